"""How objects print, show themselves in a notebook, and plot."""

from __future__ import annotations

import builtins
import math
import warnings
from html.parser import HTMLParser
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib import pyplot

from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    RunConfig,
    TrainConfig,
    train,
)
from sottovoce.answers.evaluation import Held
from sottovoce.answers.surveyed import survey
from sottovoce.answers.training import evaluate_report, infer
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.reports.notebook import ColumnTable
from sottovoce.reports.plots import MOST, coefficient_plot, forest_plot

mpl.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
HOSTILE = "<script>alert(1)</script>"
RNG = np.random.default_rng(0)
N = 4000
FRAME = pd.DataFrame(
    {"age": RNG.normal(size=N), HOSTILE: RNG.normal(size=N), "$x$": RNG.normal(size=N)}
)
Y = (FRAME["age"] + RNG.logistic(size=N) > 0).astype(int).to_numpy()
STEPS: dict[str, Any] = {
    "data_norm": 3.0,
    "random_state": 0,
    "n_sites": 3,
    "epsilon": 8.0,
    "trust": "sum",
}


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def inferred() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ConsensusClassifier(inference=True, **STEPS).fit(FRAME, Y)


@pytest.fixture(scope="module")
def stepped() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ConsensusClassifier("momentum", rounds=3, **STEPS).fit(FRAME, Y)


@pytest.fixture(scope="module")
def report() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = RunConfig("momentum", trust="sum", seed=0, rounds=2, delta=1e-5)
        return train(TrainConfig(run, data="synthetic:n=600,d=3", nodes=3))


class Balanced(HTMLParser):
    """Texts and tags of a page; every tag but empty ones is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html_of(one: Any) -> Balanced:
    found = Balanced(one._repr_html_())
    assert found.open == [] and "script" not in found.tags
    return found


def test_a_table_of_coefficients_prints_as_its_table_and_shows_one(inferred: Any) -> None:
    table = inferred.coefficients_
    assert repr(table) == str(table) and repr(table).splitlines()[0].split()[:2] == [
        "column",
        "estimate",
    ]
    assert "std. error" in repr(table) and len(repr(table)) < 1500
    found = html_of(table)
    assert found.tags.count("table") == 1 and HOSTILE in found.texts
    for cell in repr(table).splitlines()[1].split()[1:4]:
        assert cell in found.texts  # no number is cut
    assert len(pd.DataFrame(table)) == len(table)


def test_a_table_without_intervals_is_a_dict_of_columns_that_prints_as_a_table(
    stepped: Any,
) -> None:
    table = stepped.coefficients_
    assert isinstance(table, dict) and list(pd.DataFrame(table).columns) == list(
        pl.DataFrame(table).columns
    )
    head, *lines = repr(table).splitlines()
    assert (
        head.split()[:2] == ["name", "coefficient"]
        and len(lines) == 4
        and repr(table) in stepped.summary()
    )
    assert HOSTILE in html_of(table).texts
    many = ColumnTable(
        {"name": [f"x{k}" for k in range(200)], "coefficient": np.arange(200.0).tolist()}
    )
    assert len(repr(many).splitlines()) == 62 and "140 more" in repr(many) and "199" in repr(many)
    assert "x\\x1b" in repr(ColumnTable({"name": ["x\x1b[31m"], "coefficient": [1.0]}))


def test_a_run_and_its_report_print_in_a_line_without_rows(report: Any) -> None:
    whole = infer(
        TrainConfig(RunConfig("auto", seed=0, delta=1e-5), data="synthetic:n=600,d=3", nodes=3)
    )
    for one in (report, report.result, report.result.statement, whole):
        assert "\n" not in repr(one) and len(repr(one)) < 250 and "epsilon=" in repr(one)
        assert "Rests" not in repr(one) and html_of(one).tags.count("p") >= 1
    assert "array" not in repr(report) and "test_error" not in repr(report)


def test_an_evaluation_prints_what_is_released_alone(report: Any) -> None:
    evaluation = evaluate_report(report, Held(1.0))
    assert evaluation.exact  # for the rows' holder
    text = repr(evaluation)
    assert text.splitlines()[0].startswith("Evaluation on") and len(text.splitlines()) < 20
    for shown in (text, evaluation._repr_html_()):
        assert "accuracy" in shown and "exact" not in shown
        assert not any(
            f"{x:.4f}" in shown for x in evaluation.exact.values() if isinstance(x, float)
        )
    assert html_of(evaluation).tags.count("table") == 1


def test_a_survey_prints_its_columns() -> None:
    schema = Schema.from_dict(
        {"columns": {"age": {"kind": "number", "lo": -9, "hi": 9}}, "ignore": ["*"]}
    )
    found = survey(schema, [FRAME], RunConfig("auto", epsilon=4.0, seed=0, delta=1e-5))
    assert repr(found).splitlines()[1].split()[0] == "age" and "age" in html_of(found).texts


@pytest.mark.parametrize("kind", ["inferred", "stepped"])
def test_an_estimator_prints_its_parameters_and_shows_its_statement(
    kind: str, request: Any
) -> None:
    model = request.getfixturevalue(kind)
    assert len(repr(model)) < 300 and "ConsensusClassifier(" in repr(model)
    shown = model._repr_html_()
    assert HOSTILE not in shown and "epsilon" in shown


def texts(ax: Any) -> list[str]:
    return [one.get_text() for one in (*ax.texts, *ax.get_yticklabels())]


def test_a_forest_plot_has_a_row_a_coefficient_on_an_axis_of_odds_ratios(inferred: Any) -> None:
    ax = inferred.plot()
    lines = [line for line in inferred.coefficients_ if line["name"] != "(constant)"]
    assert ax.get_xscale() == "log" and len(ax.get_yticks()) == len(lines) == 3
    places = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(places, [line["odds_ratio"] for line in lines])
    spans = [
        line.get_xdata()
        for line in ax.lines
        if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"
    ]
    np.testing.assert_allclose(
        spans, [[line["odds_ratio_low"], line["odds_ratio_high"]] for line in lines]
    )
    ax.figure.canvas.draw()  # names with dollars are no formulas
    assert any(r"\$x\$" in text for text in texts(ax))


def test_it_draws_on_the_axes_that_are_given(inferred: Any, stepped: Any) -> None:
    _, (left, right) = pyplot.subplots(1, 2)
    assert inferred.plot(ax=left) is left and stepped.plot(ax=right) is right
    assert len(right.patches) == 3


def line(
    name: str, level: str | None = None, refused: str | None = None, estimate: float = 0.5
) -> dict[str, Any]:
    numbers = {
        "estimate": estimate,
        "low": estimate - 0.1,
        "high": estimate + 0.1,
        "odds_ratio": math.exp(estimate),
    }
    known = {
        "name": name,
        "level": level,
        "reference": None if level is None else "base",
        "unit": None,
    }
    known |= {
        "typical": None,
        "steps": 1.0,
        "unsure": False,
        "refused": refused,
        "standard_error": 0.05,
    }
    return known | (numbers if refused is None else dict.fromkeys(numbers))


def test_refused_lines_are_marked_and_have_no_point() -> None:
    ax = forest_plot([line("a"), line("b", "x", refused="why"), line("b", "y")])
    assert texts(ax).count("refused") == 1 and texts(ax).count("reference") == 1
    assert sum(one.get_marker() == "o" for one in ax.lines) == 3  # two estimates and the reference
    nothing = forest_plot([line("a", refused="why")])
    nothing.figure.canvas.draw()
    assert texts(nothing).count("refused") == 1


def test_of_many_coefficients_the_largest_are_drawn_and_long_names_are_cut() -> None:
    many = [line("n" * 90 + str(k), estimate=k / 10.0) for k in range(MOST + 20)]
    ax = forest_plot(many)
    assert len(ax.get_yticks()) == MOST and f"{MOST} largest of {MOST + 20}" in ax.get_xlabel()
    assert max(map(len, texts(ax))) < 60
    bars = coefficient_plot([str(k) for k in range(MOST + 1)], np.arange(MOST + 1.0))
    assert len(bars.patches) == MOST and bars.get_yticklabels()[0].get_text() == "1"


def test_an_estimate_beyond_the_axis_stays_at_its_end() -> None:
    ax = forest_plot([line("a", estimate=50.0), line("b")])
    assert max(ax.get_xlim()) < 1e4
    ax.figure.canvas.draw()


def test_models_without_intervals_plot_bars_or_dots() -> None:
    several = ConsensusClassifier("prox_admm", rounds=2, **STEPS | {"trust": None}).fit(
        FRAME, np.arange(N) % 3
    )
    assert [text.get_text() for text in several.plot().get_legend().get_texts()] == ["0", "1", "2"]
    number = ConsensusRegressor((-4, 4), inference=True, **STEPS).fit(FRAME, FRAME["age"])
    assert number.plot().get_xscale() == "linear" and number.plot().get_xlabel().startswith(
        "coefficient"
    )
    plain = ConsensusRegressor((-4, 4), **STEPS).fit(FRAME, FRAME["age"])
    widths = [bar.get_width() for bar in plain.plot().patches]
    np.testing.assert_allclose(widths, plain.coef_)
    assert not hasattr(ConsensusPCA(), "plot")


def test_survival_curves_fall_from_one() -> None:
    model = ConsensusSurvival([0, 1, 2], rounds=2, **STEPS).fit(
        FRAME, np.arange(N) % 3 + 0.1, Y.astype(bool)
    )
    (curve,) = model.plot().lines
    assert curve.get_ydata()[0] == 1.0 and np.all(np.diff(curve.get_ydata()) < 0)
    np.testing.assert_allclose(curve.get_ydata()[1:], model.predict_survival(np.zeros((1, 3)))[0])
    rows = model.plot(FRAME[:2])
    np.testing.assert_allclose(
        [one.get_ydata()[1:] for one in rows.lines], model.predict_survival(FRAME[:2])
    )


def test_without_matplotlib_it_says_what_to_install(
    inferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInput, match=r"sottovoce\[plot\]"):
        inferred.plot()
