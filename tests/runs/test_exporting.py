"""Saved runs as ONNX graphs: they answer as ``sottovoce predict`` does, from raw columns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit, softmax

from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_from_schema
from sottovoce.cli import cli, main
from sottovoce.data import Schema
from sottovoce.data.labels import build_rows_for_task
from sottovoce.errors import InvalidInput
from sottovoce.estimators.exporting import Linear, build_onnx_model
from sottovoce.runs.centre import Centring, frame_of_schema
from sottovoce.runs.defaults import with_loss_of_task
from sottovoce.runs.simulate import Result, RunConfig, simulate

COLUMNS: dict[str, Any] = {
    "age": {"kind": "bins", "edges": [18, 40, 60, 75], "base": 1, "missing": 50},
    "ward": {
        "kind": "category",
        "values": {"acute": ["icu", "surgery"], "other ward": ["general"]},
        "other": True,
    },
    "dose": {
        "kind": "number",
        "lo": 0,
        "hi": 10,
        "typical": [0.5, 4],
        "transform": "log1p",
        "missing": 1.0,
    },
    "share": {"kind": "number", "lo": -1, "hi": 3, "to": "[0,1]", "weight": 0.5},
    "pixel": {"kind": "vector", "size": 3, "lo": 0, "hi": 9, "norm": 5.0},
}
CURVED: dict[str, Any] = {
    "both": {"kind": "pairs", "of": ["dose", "ward", "age", "pixel"]},
    "turns": {"kind": "squares", "of": ["*"], "weight": 0.7},
    "waves": {"kind": "fourier", "of": ["dose", "share"], "features": 12, "bandwidth": 0.8},
    "curve": {"kind": "spline", "column": "dose", "knots": [0.5, 3, 4, 9], "missing": 2},
    "line": {"kind": "spline", "column": "age", "knots": [18, 40, 75], "degree": 1, "missing": 30},
}
LABELS = {
    "two": {"column": "y", "positive": "sick", "negative": "well"},
    "many": {"column": "y", "values": ["home", "rehab", "died"]},
    "number": {"column": "y", "lo": 0, "hi": 60},
}
NAMES = {"two": ["sick", "well"], "many": ["home", "rehab", "died"]}


def table(n: int = 60, seed: int = 0) -> dict[str, Any]:
    """Raw columns, with values on edges and beyond bounds, and some missing."""
    rng = np.random.default_rng(seed)
    age = rng.choice([10.0, 18, 39.9, 40, 60, 74.9, 75, 90], n).astype(object)
    dose = rng.choice([-1.0, 0, 0.5, 3, 4, 9, 20], n).astype(object)
    age[::7] = dose[::5] = ""
    ward = rng.choice(["icu", "surgery", "general", "elsewhere", ""], n).astype(object)
    pixels = {f"pixel{k}": rng.uniform(-2, 12, n) for k in range(3)}
    return {"age": age, "ward": ward, "dose": dose, "share": rng.uniform(-2, 4, n)} | pixels


def fed(raw: dict[str, Any]) -> dict[str, Any]:
    """The same as a graph takes them."""

    def numbers(values: Any) -> Any:
        return np.array([np.nan if v == "" else float(v) for v in values])[:, None]

    pixels = np.stack([raw[f"pixel{k}"] for k in range(3)], axis=1)
    plain = {name: numbers(raw[name]) for name in ("age", "dose", "share")}
    return plain | {"ward": raw["ward"].astype(str)[:, None].astype(object), "pixel": pixels}


def ran(graph: Any, raw: dict[str, Any]) -> dict[str, Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = {one.name for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    return dict(
        zip(
            names,
            session.run(None, {k: v for k, v in fed(raw).items() if k in wanted}),
            strict=True,
        )
    )


def trained(kind: str, centre: bool = False, **more: Any) -> tuple[Schema, Result]:
    given = {"label": LABELS[kind], "columns": COLUMNS, "intercept": True, "ignore": ["*"]} | more
    schema = Schema.from_dict(given)
    raw, rng = table(300, 1), np.random.default_rng(2)
    y = rng.uniform(0, 60, 300) if kind == "number" else rng.choice(NAMES[kind], 300)
    rows = schema.encode(raw | {"y": y})
    config = RunConfig(method="prox_admm", epsilon=20.0, delta=1e-5, rounds=2, rho=0.05)
    frame = frame_of_schema(schema)
    assert frame is not None or not centre
    made = None
    if centre and frame is not None:
        made = Centring(frame.constants, frame.k, 2.0, 2.0, 0.05, frame.groups)
    result = simulate(
        with_loss_of_task(config, schema.task),
        build_rows_for_task(schema.task, [(rows.X, rows.y)]),
        centre=made,
    )
    result.extra["schema"] = schema.to_dict()
    return schema, result


@pytest.mark.parametrize(
    "more",
    [{}, {"scale": 1.2}, {"unit": True}, {"centre": True}, {"centre": True, "scale": 1.2}],
    ids=["plain", "scale", "unit", "centred", "centred and scaled"],
)
@pytest.mark.parametrize("kind", LABELS)
def test_a_graph_answers_as_the_run_does(kind: str, more: dict[str, Any]) -> None:
    pytest.importorskip("onnx")
    schema, result = trained(kind, **more)
    raw = table()
    found = ran(build_onnx_model(Linear.from_saved_model(SavedModel.from_result(result))), raw)
    X = schema.encode(raw, labels=False).X
    margins = schema.task.vectors_by_margin(result.consensus[0]) @ X.T
    if result.move is not None:
        short = result.move.shortening_factors(X)[0]
        assert short.min() < 0.95  # some rows were clipped once they were moved
        margins = margins * short
    if kind == "number":
        np.testing.assert_allclose(
            found["prediction"][:, 0], schema.task.decode(margins), rtol=1e-9
        )
        return
    assert found["label"][:, 0].tolist() == schema.task.shown_answers(margins)
    chances = (
        softmax(margins, axis=0).T
        if kind == "many"
        else np.stack([expit(-margins), expit(margins)], axis=1)
    )
    np.testing.assert_allclose(found["probabilities"], chances, rtol=1e-9)
    assert len(set(found["label"][:, 0])) > 1


@pytest.mark.parametrize(
    "more", [{}, {"scale": 1.2}, {"unit": True}], ids=["plain", "scale", "unit"]
)
def test_a_graph_bends_as_the_run_does(more: dict[str, Any]) -> None:
    pytest.importorskip("onnx")
    schema, result = trained("two", columns=COLUMNS | CURVED, **more)
    raw, whole = table(), build_onnx_model(Linear.from_saved_model(SavedModel.from_result(result)))
    margins = result.consensus[0] @ schema.encode(raw, labels=False).X.T
    found = ran(whole, raw)
    np.testing.assert_allclose(found["probabilities"][:, 1], expit(margins), rtol=1e-9)
    assert found["label"][:, 0].tolist() == schema.task.shown_answers(margins)
    # the number and the curve read one input
    assert [one.name for one in whole.graph.input].count("dose") == 1


def test_a_column_that_is_both_text_and_number_is_refused() -> None:
    pytest.importorskip("onnx")
    columns = {
        "x": COLUMNS["share"],
        "level": {"kind": "category", "column": "x", "values": ["1", "2"]},
    }
    schema = Schema.from_dict({"label": LABELS["two"], "columns": columns})
    with pytest.raises(InvalidInput, match=r"^x: .*a category"):
        build_onnx_model(Linear(schema, False, np.ones((1, 3)), 0.0, schema.task, False))


@pytest.mark.parametrize("sites", [(), ("a", "b")])
def test_a_graph_of_an_answered_run_keeps_rows_long_and_averages_sites(
    sites: tuple[str, ...],
) -> None:
    pytest.importorskip("onnx")
    columns = {name: block for name, block in COLUMNS.items() if name != "pixel"}
    schema = Schema.from_dict(
        {"label": LABELS["two"], "columns": columns, "scale": 1.0, "ignore": ["*"]}
    )
    naming = naming_from_schema(schema, sites)
    model = np.random.default_rng(0).normal(size=naming.d) * 3
    answered = SavedModel(naming, model, np.array([0.3, 0.7]) if sites else np.ones(1), {}, schema)
    raw = table()
    found, margins = (
        ran(build_onnx_model(Linear.from_saved_model(answered)), raw),
        answered.margins(raw),
    )
    np.testing.assert_allclose(found["probabilities"][:, 1], expit(margins), rtol=1e-9)
    assert found["label"][:, 0].tolist() == schema.task.shown_answers(margins)


def test_the_command_writes_a_graph_that_names_its_classes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    run, place = tmp_path / "run.npz", tmp_path / "model.onnx"
    trained("many")[1].save(run)
    done = CliRunner().invoke(
        cli, ["export", str(run), "--onnx", str(place)], catch_exceptions=False
    )
    assert done.exit_code == 0 and "saved to" in done.output
    graph = onnx.load(place)
    assert graph.metadata_props[0].value.split("\n") == NAMES["many"]
    assert {one.name for one in graph.graph.input} == {"age", "ward", "dose", "share", "pixel"}


def test_without_the_extra_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sottovoce.estimators import exporting
    from sottovoce.util.later import Later

    run = tmp_path / "run.npz"
    trained("two")[1].save(run)
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were not installed
    monkeypatch.setattr(exporting, "onnx", Later("onnx"))
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--onnx", str(tmp_path / "model.onnx")])
    said = capsys.readouterr()
    assert (
        stop.value.code == 2
        and "pip install 'sottovoce[onnx]'" in said.err
        and not (tmp_path / "model.onnx").exists()
    )
    assert said.out == "" and said.err.count("\n") == 1


def test_a_run_without_a_schema_is_refused(tmp_path: Path) -> None:
    result = trained("two")[1]
    result.extra.clear()
    result.save(tmp_path / "run.npz")
    done = CliRunner().invoke(
        cli, ["export", str(tmp_path / "run.npz"), "--onnx", str(tmp_path / "m.onnx")]
    )
    assert "without a schema" in str(done.exception)
