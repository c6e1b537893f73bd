"""One data set through every door: tables, predictions, intervals and evaluations have the same
numbers.

Six sites that differ as wards do, with labels of two classes or numbers. Simulation, estimator and
saved model get the same rows in the same order and the same seed, so they agree to the last bit;
sites with secure sums agree up to rounding on the grid of shares. Evaluations are compared without
noise.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats
from scipy.special import expit
from sklearn.metrics import r2_score, roc_auc_score

from sottovoce import ConsensusClassifier, ConsensusRegressor, RunConfig, TrainConfig, data
from sottovoce.answers import judging
from sottovoce.answers.between import widen_by_random_draw
from sottovoce.answers.evaluation import Held
from sottovoce.answers.numbers import fit_numbers
from sottovoce.answers.saved import SavedModel
from sottovoce.answers.training import infer
from sottovoce.cli import cli
from sottovoce.data import read_table
from sottovoce.deploy.answering import results_document, results_to_dict
from sottovoce.deploy.asks import Asks, make_site_table
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.local import answer_as_sites
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.errors import CheckpointError, HolderNote, InvalidInput, SottovoceError
from sottovoce.reports import page

EFFECTS = {"north": -2.5, "east": -1.2, "south": -0.4, "west": 0.6, "centre": 1.4, "isle": 2.4}
SITES = sorted(EFFECTS)
ROWS = 3000
EPSILON, SEED = 40.0, 5
LABELS = {
    "classes": '{ column = "y", positive = "yes", negative = "no" }',
    "numbers": '{ column = "y", lo = -15.0, hi = 15.0 }',
}


class Made(NamedTuple):
    """Files of a table, and its columns."""

    csv: Path
    schema: Path
    columns: dict[str, np.ndarray]


def made(folder: Path, kind: str, seed: int = 0) -> Made:
    rng = np.random.default_rng(seed)
    site = np.array(sorted(EFFECTS) * (ROWS // len(EFFECTS)), dtype=object)
    rng.shuffle(site)
    x, ward = rng.uniform(-1.0, 1.0, ROWS), rng.choice(["a", "b", "c"], ROWS).astype(object)
    score = np.array([EFFECTS[name] for name in site]) + 1.2 * x + 0.5 * (ward == "c")
    if kind == "classes":
        y = np.where(rng.random(ROWS) < expit(score), "yes", "no").astype(object)
    else:
        y = np.clip(2.0 * score + rng.normal(size=ROWS), -15.0, 15.0)
    columns = {"site": site, "x": x, "ward": ward, "y": y}
    write(folder / "rows.csv", columns)
    (folder / "schema.toml").write_text(
        f'site = "site"\nlabel = {LABELS[kind]}\n[columns.x]\nkind = "number"\nlo = -1\nhi = 1\n'
        '[columns.ward]\nkind = "category"\nvalues = ["a", "b", "c"]\n'
    )
    return Made(folder / "rows.csv", folder / "schema.toml", columns)


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(map(str, values) for values in columns.values()), strict=True))
    return path


def ok(*words: Any) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def predicted(run: Path, rows: Path, *more: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(ok("predict", run, rows, "--interval", 0.95, *more))))


def configured(files: Made, test_share: float | None = None, trust: str = "sum") -> TrainConfig:
    run = RunConfig("auto", EPSILON, 1e-5, trust=trust, seed=SEED)
    return TrainConfig(run, str(files.csv), str(files.schema), test_share=test_share)


def estimator(files: Made, kind: str, **more: Any) -> Any:
    given: dict[str, Any] = {
        "epsilon": EPSILON,
        "trust": "sum",
        "inference": True,
        "random_state": SEED,
        "schema": files.schema,
    } | more
    return (ConsensusClassifier if kind == "classes" else ConsensusRegressor)(**given)


def trained(files: Made, kind: str, **more: Any) -> Any:
    """The simulation, with intervals."""
    config = configured(files, more.pop("test_share", None))
    return (
        infer(config, **more) if kind == "classes" else fit_numbers(config, intervals=True, **more)
    )


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize("kind", LABELS)
def test_simulation_estimator_files_and_pages_have_one_table_and_one_answer(
    tmp_path: Path, kind: str
) -> None:
    files, saved = made(tmp_path, kind), tmp_path / "run.json"
    words = ("--inference", "--epsilon", EPSILON, "--trust", "sum", "--seed", SEED)
    told = json.loads(
        ok(
            "train",
            "--data",
            files.csv,
            "--schema",
            files.schema,
            *words,
            "--save",
            saved,
            "--json",
            "--report",
            tmp_path / "train.html",
        )
    )
    model = estimator(files, kind).fit(files.columns)
    model.save(tmp_path / "model.json")
    read = [SavedModel.load(tmp_path / name) for name in ("run.json", "model.json")]
    tables = [
        told["coefficients"],
        read[0].coefficients,
        read[1].coefficients,
        read[0].table.to_dict(),
    ]
    lines = json.loads(json.dumps(model.coefficients_.to_dict()))
    for one in tables:
        same(one, lines)
    own = [line for line in lines if line["name"] == "(constant)"]
    assert [line["level"] for line in own] == SITES and all(line["refused"] is None for line in own)
    assert len({line["estimate"] for line in own}) == len(SITES)

    table = read_table(files.csv)
    margins = [one.margins(table) for one in read]
    np.testing.assert_array_equal(*margins)
    ends = [one.intervals(table) for one in read]
    np.testing.assert_array_equal(*ends)
    assert np.all(
        (ends[0][:, 0] < told_of(read[0], margins[0]))
        & (told_of(read[0], margins[0]) < ends[0][:, 1])
    )
    if kind == "classes":
        sure = model.predict_proba(files.columns)[:, list(model.classes_).index("yes")]
        np.testing.assert_array_equal(sure, expit(margins[0]))
    else:
        np.testing.assert_array_equal(model.predict(files.columns), told_of(read[0], margins[0]))
    shown = [predicted(tmp_path / name, files.csv) for name in ("run.json", "model.json")]
    assert shown[0] == shown[1]
    for line, pair in zip(shown[0], ends[0].tolist(), strict=True):
        pair = expit(pair).tolist() if kind == "classes" else pair
        assert [float(line["low"]), float(line["high"])] == [round(x, 6) for x in pair]

    pages = [(tmp_path / "train.html").read_text()]
    for name in ("run", "model"):
        ok("report", tmp_path / f"{name}.json", "--out", tmp_path / f"{name}.html")
        pages.append((tmp_path / f"{name}.html").read_text())
    figures = [one[one.index("<figure") : one.index("</figure>")] for one in pages]
    assert figures[0] == figures[1] == figures[2]


def told_of(saved: SavedModel, margins: np.ndarray) -> np.ndarray:
    """Return margins in the unit of intervals."""
    if saved.trained_by == "logistic":
        return margins
    assert saved.schema is not None
    return np.asarray(saved.schema.task.shown_answers(margins))


@pytest.mark.parametrize("kind", LABELS)
def test_held_out_rows_are_scored_with_the_constant_of_their_site(
    tmp_path: Path, kind: str
) -> None:
    """Without noise `evaluate` finds what the training found: the quality with own constants, not
    with their average.
    """
    files = made(tmp_path, kind)
    done = trained(files, kind, test_share=0.3, held=Held(math.inf))
    done.answered.save(tmp_path / "run.json")
    dataset = data.load(str(files.csv), schema=str(files.schema), test_share=0.3)
    held = write(tmp_path / "held.csv", dataset.test_columns)
    asked = ("evaluate", tmp_path / "run.json", held, "--epsilon", "inf", "--json")
    found = json.loads(ok(*asked))
    there = json.loads(json.dumps(done.evaluation.to_dict()))
    names = (
        ["auc", "brier"]
        if kind == "classes"
        else ["r2", "mean_absolute_error", "root_mean_squared_error"]
    )
    assert found["exact"] == there["exact"]
    for name in names:
        assert found[name]["value"] == pytest.approx(there[name]["value"], rel=1e-9)
    margins = done.answered.margins(dataset.test_columns)
    if kind == "classes":
        own = roc_auc_score(dataset.y_test, margins)
        assert abs(found["auc"]["value"] - own) < 0.01 and abs(done.exact["auc"] - own) < 1e-9
    else:
        own = r2_score(dataset.y_test, margins)
        assert abs(found["r2"]["value"] - own) < 0.01 and abs(done.exact["r2"] - own) < 1e-9
    average = done.answered.margins(dataset.test_columns, where=np.full(len(margins), -1))
    worse = roc_auc_score if kind == "classes" else r2_score
    assert worse(dataset.y_test, average) < own - 0.1
    for site in (
        "south",
        "2",
    ):  # all rows with the constant of one: another model, by name or number
        one = json.loads(ok(*asked, "--site", site))
        assert one["exact"][names[0]] < own - 0.1


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[Any], Any, Made]:
    """Run the same rows at separate sites; a third of each is held out and evaluated without noise."""
    pytest.importorskip("cryptography")
    files = made(tmp_path_factory.mktemp("sites"), "classes")
    dataset = data.load(str(files.csv), schema=str(files.schema), test_share=None)
    assert dataset.schema is not None
    parts = data.partition("site:site", dataset.y_train, None, columns=dataset.train_columns)
    tables = [
        make_site_table(
            dataset.schema,
            dataset.X_train[part],
            dataset.y_train[part],
            {name: values[part] for name, values in dataset.train_columns.items()},
        )
        for part in parts
    ]
    members = [
        Member(name, len(part), SigningKey.make().public)
        for name, part in zip(SITES, parts, strict=True)
    ]
    asks = Asks(inference=True, site_constants=True, evaluation=math.inf, holdout=0.3)
    config = RunConfig("auto", EPSILON, 1e-5, trust="sum", seed=SEED)
    plan = make_calibrated_plan(
        Proposal(
            "trial", config, members, dataset.n_features, schema=dataset.schema.to_dict(), asks=asks
        )
    )
    return plan, tables, answer_as_sites(plan, tables)[0][1], files


def test_separate_sites_have_the_table_of_a_simulation(deployed: Any, tmp_path: Path) -> None:
    plan, tables, _, files = deployed
    plain = replace(plan.asks, evaluation=None, holdout=0.0)
    whole = make_calibrated_plan(
        Proposal("trial", plan.config, plan.sites, plan.d, schema=plan.schema, asks=plain)
    )
    there = results_to_dict(whole, answer_as_sites(whole, tables)[0][1])
    here = trained(files, "classes")
    for one, other in zip(there["coefficients"], here.coefficients.to_dict(), strict=True):
        assert {k: v for k, v in one.items() if not isinstance(v, float)} == {
            k: v for k, v in other.items() if not isinstance(v, float)
        }
        for name in ("estimate", "standard_error", "low", "high"):
            assert one[name] == pytest.approx(other[name], rel=1e-6, abs=1e-8)


def test_saved_model_of_separate_sites_predicts_and_is_evaluated_alike(
    deployed: Any, tmp_path: Path
) -> None:
    plan, tables, found, _ = deployed
    (tmp_path / "north.json").write_text(json.dumps(results_document(plan, found), allow_nan=False))
    saved = SavedModel.load(tmp_path / "north.json")
    assert saved.site == "site" and saved.naming is not None and saved.naming.sites == tuple(SITES)
    same(saved.coefficients, json.loads(json.dumps(results_to_dict(plan, found)["coefficients"])))
    held = [table.at(plan.asks.split(len(table.y))[1]).columns for table in tables]
    together = {name: np.concatenate([one[name] for one in held]) for name in held[0]}
    margins = saved.margins(together)
    for k, one in enumerate(held):  # a site without a word on itself says it by --site
        bare = {name: values for name, values in one.items() if name != "site"}
        only = SavedModel.load(tmp_path / "north.json", site=SITES[k])
        np.testing.assert_array_equal(only.margins(bare), saved.margins(one))
        assert only.digest != saved.digest
    path = write(tmp_path / "held.csv", together)
    judged = json.loads(ok("evaluate", tmp_path / "north.json", path, "--epsilon", "inf", "--json"))
    there = results_to_dict(plan, found)["evaluation"]
    for name in ("auc", "brier"):
        assert judged[name]["value"] == pytest.approx(there[name]["value"], rel=1e-6)
    assert abs(there["auc"]["value"] - roc_auc_score(together["y"] == "yes", margins)) < 0.01
    assert page(results_to_dict(plan, found) | {"versions": ""}).count("(constant)") >= 1


# Which constant a row has


@pytest.mark.parametrize("kind", LABELS)
def test_groups_name_sites_of_arrays_and_of_frames_alike(tmp_path: Path, kind: str) -> None:
    """A regressor once ignored groups silently, with one constant for all sites."""
    files = made(tmp_path, kind)
    X, y, site = files.columns["x"][:, None], files.columns["y"], files.columns["site"]
    y = y if kind == "numbers" else (y == "yes")
    own = {"schema": None, "data_norm": 1.0} | (
        {"classes": [False, True]} if kind == "classes" else {}
    )
    own |= {"y_bounds": (-15.0, 15.0)} if kind == "numbers" else {}
    model = estimator(files, kind, **own).fit(X, y, groups=site)
    lines = [line for line in model.coefficients_.to_dict() if line["name"] == "(constant)"]
    assert [line["level"] for line in lines] == SITES
    np.testing.assert_allclose(model.site_intercept_, [line["estimate"] for line in lines])
    answer: Callable[..., Any] = model.decision_function if kind == "classes" else model.predict
    by_site = (
        X @ np.ravel(model.coef_) + model.site_intercept_[[SITES.index(name) for name in site]]
    )
    expected = by_site if kind == "classes" else np.clip(by_site, -15.0, 15.0)
    np.testing.assert_allclose(answer(X, groups=site), expected, rtol=1e-9, atol=1e-9)
    with pytest.warns(HolderNote, match=f"{ROWS:,} of {ROWS:,} rows name no site"):
        average = answer(X)
    np.testing.assert_allclose(
        average, X @ np.ravel(model.coef_) + np.ravel(model.intercept_), atol=1e-9
    )
    with pytest.warns(HolderNote, match="name no site"):
        strangers = model.score(X, y, groups=["?"] * ROWS)
    assert model.score(X, y, groups=site) > strangers + 0.1
    with pytest.raises(InvalidInput, match="groups"):
        answer(X, groups=site[:-1])
    model.save(tmp_path / "model.json")
    again = type(model).load(tmp_path / "model.json")
    again_answer = again.decision_function if kind == "classes" else again.predict
    np.testing.assert_array_equal(again_answer(X, groups=site), answer(X, groups=site))


def test_least_squares_without_intervals_has_the_same_constants_at_every_door(
    tmp_path: Path,
) -> None:
    files = made(tmp_path, "numbers")
    done = fit_numbers(configured(files))
    model = estimator(files, "numbers", inference=False).fit(files.columns)
    estimates = [line["estimate"] for line in done.coefficients]
    assert model.coefficients_["coefficient"] == pytest.approx(estimates, rel=1e-12)
    assert [name for name in model.coefficients_["name"] if "constant" in name] == [
        f"(constant): {s}" for s in SITES
    ]
    model.save(tmp_path / "model.json")
    same(
        SavedModel.load(tmp_path / "model.json").coefficients,
        json.loads(json.dumps(done.coefficients)),
    )
    np.testing.assert_array_equal(
        model.predict(files.columns), told_of(done.answered, done.answered.margins(files.columns))
    )
    assert model.score(files.columns) > 0.8


@pytest.mark.parametrize("kind", LABELS)
def test_one_constant_for_all_sites_is_requested_alike_at_every_door(
    tmp_path: Path, kind: str
) -> None:
    files = made(tmp_path, kind)
    here = trained(files, kind, site_constants=False)
    model = estimator(files, kind, knobs={"site_constants": False}).fit(files.columns)
    there = json.loads(json.dumps(model.coefficients_.to_dict()))
    same(here.answered.coefficients, there)
    assert [line["level"] for line in there if line["name"] == "(constant)"] == [None]
    for wrong in ("yes", 1):
        with pytest.raises(InvalidInput, match="site_constants"):
            estimator(files, kind, knobs={"site_constants": wrong}).fit(files.columns)
    rounds = {"inference": False} | ({} if kind == "classes" else {"loss": "huber-residual:0.25"})
    with pytest.raises(InvalidInput, match="site_constants"):
        estimator(files, kind, knobs={"site_constants": True}, **rounds).fit(files.columns)


def test_groups_are_refused_where_all_rows_have_one_constant(tmp_path: Path) -> None:
    files = made(tmp_path, "numbers")
    model = estimator(files, "numbers", schema=None, y_bounds=(-15.0, 15.0), data_norm=1.0)
    model.fit(files.columns["x"][:, None], files.columns["y"])
    with pytest.raises(InvalidInput, match="groups"):
        model.predict(files.columns["x"][:, None], groups=files.columns["site"])


SPELLED = ["1", "1.0", " 1 ", "01", "", "NA", "2", "9" * 400, "TRUE", "nan"]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> tuple[SavedModel, Made, Path]:
    """Train a model of sites 1, 2, 3 and 7, which are numbers in the table."""
    folder = tmp_path_factory.mktemp("numbered")
    files = made(folder, "numbers")
    codes = np.array([1, 2, 3, 7])[np.arange(ROWS) % 4]
    columns = files.columns | {"site": codes}
    write(files.csv, columns)
    files = files._replace(columns=columns)
    saved = trained(files, "numbers").answered
    saved.save(folder / "run.json")
    return saved, files, folder / "run.json"


def test_site_of_a_row_changes_only_its_own_margin(numbered: Any) -> None:
    saved, _, _ = numbered
    n = len(SPELLED)
    rows = {"x": np.zeros(n), "ward": np.array(["a"] * n, dtype=object)}
    places = saved.site_indices(rows | {"site": np.array(SPELLED, dtype=object)})
    assert places.tolist() == [0, 0, 0, -1, -1, -1, 1, -1, -1, -1]
    margins = saved.margins(rows | {"site": np.array(SPELLED, dtype=object)})
    for k, text in enumerate(SPELLED):
        alone = {name: values[:1] for name, values in rows.items()} | {
            "site": np.array([text], dtype=object)
        }
        assert saved.margins(alone)[0] == margins[k]
    for column in (np.array([1.0, np.nan, 7.0]), np.array([1, 5, 7]), np.array(["1", "x", "7.0"])):
        three = {name: values[:3] for name, values in rows.items()} | {"site": column}
        assert saved.site_indices(three).tolist() == [0, -1, 3]
    for column in (
        [1, "x", 2.5],
        [1, None, True],
        [np.float64(1.0), b"2", {}],
    ):  # as a dict of lists has them
        three = {name: values[:3] for name, values in rows.items()} | {"site": column}
        assert saved.site_indices(three)[0] == 0
    without = saved.margins(rows)  # no site column at all
    np.testing.assert_array_equal(without, np.full(n, margins[4]))


def test_site_of_an_evaluated_row_changes_no_other_count(
    numbered: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, files, run = numbered
    seen: list[np.ndarray] = []
    ask = judging.simulate

    def watched(config: Any, rows: Any, **more: Any) -> Any:
        seen.append(np.concatenate([rows.signed, rows.offset[..., None]], axis=2)[0])
        return ask(config, rows, **more)

    monkeypatch.setattr(judging, "simulate", watched)
    few = {name: values[:60].astype(object) for name, values in files.columns.items()}
    for site in ("1", "7", "zz", "", "1.0", "9" * 30):
        few["site"] = np.array([site, *files.columns["site"][1:60]], dtype=object)
        ok("evaluate", run, write(tmp_path / "held.csv", few), "--epsilon", 5, "--json")
    for one in seen[1:]:
        np.testing.assert_array_equal(one[1:], seen[0][1:])
    assert len({one[0].tobytes() for one in seen}) == 3  # of site 1, of site 7, and of the average


def test_site_is_found_by_name_then_number_and_unknown_one_is_refused(
    numbered: Any, tmp_path: Path
) -> None:
    saved, files, run = numbered
    for asked, place in (
        ("7", 3),
        ("1.0", 0),
        ("0", 0),
        ("3", 2),
    ):  # 3 is a name, and 0 the first one's number
        assert SavedModel.load(run, site=asked).only == place
        lines = predicted(run, files.csv, "--site", asked)[:5]
        first = {name: values[:5] for name, values in files.columns.items()}
        wanted = told_of(saved, saved.margins(first, where=np.full(5, place)))
        np.testing.assert_allclose(
            [float(line["prediction"]) for line in lines], wanted, rtol=1e-12
        )
    for asked in ("8", "-1", "nowhere", "7.5"):
        done = CliRunner().invoke(cli, ["predict", str(run), str(files.csv), "--site", asked])
        assert isinstance(done.exception, InvalidInput) and done.exception.field == "site"
        assert "\n" not in str(done.exception)
    with pytest.raises(InvalidInput, match="replicate"):
        SavedModel.load(run, replicate=1)


def test_two_sites_give_no_interval_for_a_third(tmp_path: Path) -> None:
    files = made(tmp_path, "numbers")
    columns = files.columns | {"site": np.array(["p", "q"], dtype=object)[np.arange(ROWS) % 2]}
    write(files.csv, columns)
    # a sum of two hides neither
    saved = fit_numbers(configured(files, trust="nobody"), intervals=True).answered
    few = {name: values[:4] for name, values in columns.items()}
    assert (
        np.isfinite(saved.intervals(few)).all()
        and saved.table.site_constants.unknown_spread_reason is not None
    )
    ends = saved.intervals(few | {"site": np.array(["p", "z", "", "q"], dtype=object)})
    assert np.isnan(ends[:, 0]).tolist() == [False, True, True, False]
    saved.save(tmp_path / "run.json")
    unnamed = write(
        tmp_path / "unnamed.csv", {name: values for name, values in few.items() if name != "site"}
    )
    done = CliRunner().invoke(
        cli, ["predict", str(tmp_path / "run.json"), str(unnamed), "--interval", "0.95"]
    )
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.exit_code == 0 and all(line["low"] == "" for line in lines)
    rows_without = re.search(r"(\d+) of (\d+) rows", done.stderr)
    assert rows_without is not None and rows_without.groups() == ("4", "4")
    assert "no interval" in done.stderr


def test_saved_model_without_its_site_column_is_refused(numbered: Any, tmp_path: Path) -> None:
    """The column is not guessed from the partition of the run, as versions before 0.3 did for their
    own files.
    """
    _, _, run = numbered
    plain = json.loads(run.read_text())
    said = plain.pop("site")
    path = tmp_path / "other.json"
    for how in ("site:site", "site:ward", "label", "iid"):
        told = plain | {"record": plain["record"] | {"partition": how}}
        path.write_text(json.dumps(told))
        with pytest.raises(CheckpointError):
            SavedModel.load(path)
        for column in ("site", "ward", None):
            path.write_text(json.dumps(told | {"site": column}))
            assert SavedModel.load(path).site == column
    for wrong in ({"site": ["site"]}, {"site": said, "sites": [["x"]] * 4}):
        path.write_text(json.dumps(plain | wrong))
        with pytest.raises(SottovoceError):
            SavedModel.load(path, site="x")


# A new site


def test_intervals_for_rows_of_a_new_site_cover_and_those_without_the_spread_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 data sets; the probability of covering one more site is computed in each, so the mean has
    an error below two points; 3 are allowed. Intervals around the average alone would cover a
    twentieth.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench" / "accuracy"))
    import predictions

    found = predictions.cell("numbers", (1000,) * 6, 10.0, 40)
    assert found["new_error"] < 0.02 and abs(found["new"] - 0.955) < 0.045
    assert abs(found["known"] - 0.95) < 3.0 * 0.015
    assert found["without"] < 0.2


def test_widened_interval_is_that_of_the_sum_with_a_random_draw() -> None:
    """Against the distribution of a normal error plus a draw with one of several deviations, solved
    separately.
    """
    spreads, alpha = np.array([0.0, 0.5, 1.0, 3.0]), 0.05
    errors = np.array([0.0, 0.01, 0.3, 1.0, 5.0, 80.0, 1000.0])
    z = float(stats.norm.ppf(1.0 - alpha / 2.0))
    ends = widen_by_random_draw(
        np.stack([2.0 - z * errors, 2.0 + z * errors], axis=1), spreads, alpha
    )
    np.testing.assert_allclose(ends.mean(axis=1), 2.0)
    half = 0.5 * (ends[:, 1] - ends[:, 0])
    for one, error in zip(half, errors, strict=True):
        total = np.hypot(spreads, error)
        beyond = np.where(
            total > 0.0, 2.0 * stats.norm.sf(one / np.maximum(total, 1e-300)), 0.0
        ).mean()
        assert beyond == pytest.approx(alpha, rel=0.005)
    none = widen_by_random_draw(
        np.array([[1.0, 3.0], [np.nan, np.nan], [1.0, np.inf], [-np.inf, 4.0]]), np.zeros(3), alpha
    )
    np.testing.assert_array_equal(
        none, [[1.0, 3.0], [np.nan, np.nan], [1.0, np.inf], [-np.inf, 4.0]]
    )
    one_sided = widen_by_random_draw(np.array([[1.0, np.inf], [-np.inf, 4.0]]), spreads, alpha)
    assert one_sided[0, 0] == pytest.approx(1.0 - half[0]) and one_sided[1, 1] == pytest.approx(
        4.0 + half[0]
    )
    assert np.isinf(one_sided[0, 1]) and np.isinf(one_sided[1, 0])
