"""Curved features: what they are, that rows stay in the unit ball, what synthetic rows are, and
what is refused.
"""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.interpolate import BSpline
from scipy.stats import kstest

from sottovoce import ConsensusClassifier
from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_from_schema
from sottovoce.cli import cli
from sottovoce.data import Schema, review, sketch
from sottovoce.data.curved import Fourier, Pairs, Spline, Squares
from sottovoce.data.expected import draw_weighted_rows
from sottovoce.errors import InvalidInput, SchemaError

RING = """
label = { column = "where", positive = "in", negative = "out" }
intercept = 0.5
[columns.x]
kind = "number"
lo = -1
hi = 1
[columns.y]
kind = "number"
lo = -1
hi = 1
[columns.turns]
kind = "squares"
of = ["*"]
[columns.both]
kind = "pairs"
of = ["*"]
[columns.curve]
kind = "spline"
column = "x"
knots = [-1, 0, 1]
degree = 2
[columns.waves]
kind = "fourier"
of = ["*"]
features = 2
bandwidth = 1.5
"""
COLUMNS: dict[str, Any] = {
    "both": {"kind": "pairs", "of": ["dose", "ward", "age"]},  # before what it is made of
    "dose": {"kind": "number", "lo": 0, "hi": 10},
    "share": {"kind": "number", "lo": 0, "hi": 10, "typical": [2, 4], "missing": 3},
    "ward": {"kind": "category", "values": ["icu", "ward"]},
    "age": {"kind": "bins", "edges": [0, 40, 100], "base": 0},
    "turns": {"kind": "squares", "of": ["dose", "share"], "weight": 2},
    "curve": {"kind": "spline", "column": "week", "knots": [0, 10, 20, 52]},
    "waves": {
        "kind": "fourier",
        "of": ["dose", "share"],
        "features": 8,
        "bandwidth": 0.5,
        "seed": 3,
    },
}
RAW = {
    "dose": [0, 5, 7.5, 20],
    "share": [0, 3, "", 10],
    "ward": ["icu", "ward", "no", "icu"],
    "age": [10, 50, 60, 1],
}
RAW |= {"week": [-1, 0, 15, 52]}


def schema(columns: dict[str, Any], **entries: Any) -> Schema:
    return Schema.from_dict({"columns": columns} | entries)


def undivided(s: Schema, table: dict[str, Any]) -> dict[str, Any]:
    """Weighted features by their names."""
    X = s.encode(table, labels=False, whole=True).X * s.divisor
    return dict(zip(s.feature_names, X.T, strict=True))


def test_each_kind_encodes_exactly() -> None:
    s = schema(COLUMNS, intercept=True)
    found = undivided(s, RAW)
    dose, share = np.array([-1, 0, 0.5, 1]), np.array([-3, 0, 0, 7.0])
    np.testing.assert_allclose(found["share"], share, atol=1e-9)
    np.testing.assert_allclose(found["dose^2"], 2 * (dose**2 - 0.3), rtol=1e-9)
    np.testing.assert_allclose(found["share^2"], 2 * np.minimum(share**2 - 0.3, 1), rtol=1e-9)
    np.testing.assert_allclose(found["dose:ward=icu"], [-1, 0, 0, 1], atol=1e-9)
    np.testing.assert_allclose(found["dose:age[40,100]"], [0, 0, 0.5, 0], atol=1e-9)
    np.testing.assert_allclose(found["ward=ward:age[40,100]"], [0, 1, 0, 0], atol=1e-9)
    assert sum(":" in name for name in found) == 2 + 1 + 2
    splines = [name for name in found if name.startswith("curve")]
    assert len(splines) == 6
    np.testing.assert_allclose(sum(found[name] for name in splines), 1.0, rtol=1e-9)
    assert found["curve[spline 0]"][0] == pytest.approx(1) and found["curve[spline 5]"][
        3
    ] == pytest.approx(1)
    (waves,) = (block for block in s.blocks if isinstance(block, Fourier))
    angles = np.outer(dose, waves.directions[0]) + np.outer(share, waves.directions[1])
    for k in range(4):
        np.testing.assert_allclose(found[f"waves[cos {k}]"], np.cos(angles[:, k]) / 2, atol=1e-9)
        np.testing.assert_allclose(found[f"waves[sin {k}]"], np.sin(angles[:, k]) / 2, atol=1e-9)
    assert s.encode(RAW, labels=False).clipped == {"dose": 1, "ward": 1, "curve": 1, "(row)": 2}
    assert s.n_features == len(s.feature_names) == len(set(s.feature_names))


def test_two_columns_have_the_same_derived_features_wherever_they_are_declared() -> None:
    """Order of declaration is that of features, and nothing else."""
    first, last = (
        undivided(schema(given), RAW) for given in (COLUMNS, dict(reversed(COLUMNS.items())))
    )
    assert set(first) == set(last) and list(first) != list(last)
    for name, values in first.items():
        np.testing.assert_allclose(values, last[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("knots", [(0.0, 1.0), (-3.0, -1.0, 0.5, 0.6, 40.0), (1e-9, 1.0, 1e9)])
def test_splines_are_those_of_scipy(degree: int, knots: tuple[float, ...]) -> None:
    block = Spline("x", knots, degree=degree)
    inside = np.random.default_rng(0).uniform(knots[0], knots[-1], 500)
    x = np.concatenate([inside, knots, [knots[0] - 1, knots[-1] + 1]])
    found, clipped = block.encode({"x": x}, frozenset())
    expected = BSpline.design_matrix(
        np.clip(x, knots[0], knots[-1]), block.repeated, degree
    ).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.shape[1] == len(block.feature_names) and found.min() >= 0.0
    assert clipped.sum() == 2 and clipped[-2:].all()


def test_splines_on_knots_that_touch_stay_finite_and_add_up_to_one() -> None:
    """Divided by a width that is next to nothing, a distance overflows; there the spline is 0."""
    for knots in (
        (0.0, 5e-324, 1e100),
        (-1e100, 0.0, np.nextafter(0.0, 1.0), 1.0),
        (1.0, np.nextafter(1.0, 2.0), 2.0),
    ):
        x = np.concatenate([knots, np.linspace(knots[0], knots[-1], 50)])
        for degree in (1, 2, 3):
            found = Spline("x", knots, degree=degree).spline_features(x)
            assert np.isfinite(found).all() and found.min() >= 0.0
            np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)


def test_fourier_features_approximate_the_gaussian_kernel() -> None:
    """Inner products are means of 20,000 cosines, each of variance at most 1/2: off by .03 with
    chance below 1e-9.
    """
    rng, width = np.random.default_rng(1), 0.7
    numbers = {name: {"kind": "number", "lo": -1, "hi": 1} for name in "abc"}
    s = schema(
        numbers | {"w": {"kind": "fourier", "of": ["*"], "features": 40_000, "bandwidth": width}}
    )
    c = rng.uniform(-1, 1, (20, 3))
    (block,) = (one for one in s.blocks if isinstance(one, Fourier))
    features = block.derive_features([c[:, [k]] for k in range(3)])
    kernel = np.exp(-((c[:, None] - c[None]) ** 2).sum(axis=2) / (2 * width**2))
    assert np.abs(features @ features.T - kernel).max() < 0.03
    assert kstest(block.directions.ravel() * width, "norm").pvalue > 1e-6


def test_directions_are_public_and_the_same_everywhere() -> None:
    """Written down once: another version of a library must not change the model of a saved run."""
    block = schema(COLUMNS).blocks[-1]
    assert isinstance(block, Fourier)
    expected = [
        [-2.7360878055160422, -1.4331997773735012, 1.6923645457245504, 0.41485520447251834],
        [-2.6315040608985347, -0.3368374439367866, -0.10506952704798556, -1.9910630102293259],
    ]
    np.testing.assert_allclose(block.directions, expected, rtol=1e-12)
    other = schema(COLUMNS | {"waves": COLUMNS["waves"] | {"seed": 4}}).blocks[-1]
    assert isinstance(other, Fourier) and not np.allclose(other.directions, expected)


def test_rows_have_the_same_bits_in_any_batch() -> None:
    s, rng = schema(COLUMNS), np.random.default_rng(5)
    table = {name: rng.uniform(0, 10, 400) for name in ("dose", "share", "age", "week")}
    table["ward"] = rng.choice(["icu", "ward"], 400)
    whole = s.encode(table, labels=False).X
    for size in (1, 7, 133):
        parts = [
            s.encode({name: values[k : k + size] for name, values in table.items()}, labels=False).X
            for k in range(0, 400, size)
        ]
        assert np.array_equal(np.vstack(parts), whole)


def random_curved(rng: np.random.Generator) -> Schema:
    """Numbers of all sorts, a category, a vector, and all kinds of curves on some of them."""
    columns: dict[str, Any] = {}
    for k in range(int(rng.integers(1, 5))):
        lo, hi = np.sort(rng.normal(size=2) * 10.0 ** rng.integers(-5, 6, size=2)).tolist()
        to = str(rng.choice(["[0,1]", "[-1,1]"]))
        columns[f"n{k}"] = {"kind": "number", "lo": lo, "hi": hi, "to": to, "missing": 0}
        if rng.integers(2):
            a, b = np.sort(rng.uniform(size=2))
            columns[f"n{k}"]["typical"] = [lo + a * (hi - lo), lo + b * (hi - lo)]
    numbers = list(columns)
    columns["c"] = {"kind": "category", "values": ["a", "b", "1"], "other": bool(rng.integers(2))}
    norm = "unit" if rng.integers(2) else float(10 ** rng.uniform(-9, 9))
    columns["v"] = {
        "kind": "vector",
        "lo": -1,
        "hi": 2,
        "size": int(rng.integers(1, 9)),
        "missing": 0,
        "norm": norm,
    }
    columns["squares"] = {"kind": "squares", "of": numbers}
    columns["pairs"] = {"kind": "pairs", "of": [*numbers, "c", "v"]}
    wide = float(10 ** rng.uniform(-3, 3))
    columns["waves"] = {
        "kind": "fourier",
        "of": numbers,
        "features": 2 * int(rng.integers(1, 20)),
        "bandwidth": wide,
    }
    knots = np.unique(
        rng.normal(size=int(rng.integers(2, 7))) * 10.0 ** rng.integers(-300, 90)
    ).tolist()
    columns["s"] = {
        "kind": "spline",
        "knots": knots,
        "degree": int(rng.integers(1, 4)),
        "missing": 0,
    }
    for block in columns.values():
        block["weight"] = float(10 ** rng.uniform(-2, 2))
    kept = {
        name: block
        for name, block in columns.items()
        if block["kind"] in ("number", "category", "vector")
    }
    kept |= {name: block for name, block in columns.items() if name not in kept and rng.integers(4)}
    entries = {
        "intercept": float(rng.integers(2) * rng.uniform(0.1, 3)),
        "unit": bool(rng.integers(4) == 0),
    }
    return schema(kept, **entries)


def garbage(rng: np.random.Generator, n: int, width: int) -> Any:
    values = rng.normal(size=(n, width)) * 10.0 ** rng.integers(-320, 300, size=(n, width)).astype(
        float
    )
    values[rng.uniform(size=values.shape) < 0.1] = 0.0
    if rng.integers(2):
        return values
    text = np.where(rng.uniform(size=values.shape) < 0.2, "", values.astype(str))
    return text.astype(object)


@pytest.mark.parametrize("seed", range(150))
def test_rows_of_any_values_are_encoded_inside_the_unit_ball(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    s = random_curved(rng)
    if seed % 2 and not s.unit:
        s = replace(s, scale=s.bound * rng.uniform(0.05, 1))
    widths = {
        block.name: len(block.feature_names) if block.kind == "vector" else 1 for block in s.blocks
    }
    read = [block.name for block in s.blocks if block.name not in ("squares", "pairs", "waves")]
    table = {name: garbage(rng, 60, widths[name]) for name in read}
    table = {name: values if name == "v" else values[:, 0] for name, values in table.items()}
    rows = s.encode(table, labels=False)
    assert np.isfinite(rows.X).all()
    norms = np.linalg.norm(rows.X, axis=1)
    assert norms.max() <= 1.0 and np.sqrt((rows.X**2).sum(axis=1)).max() <= 1.0
    made = sketch(s, 60, rng)
    assert np.linalg.norm(made, axis=1).max() <= 1.0
    if not s.shortens:
        assert "(row)" not in rows.clipped and s.bound == pytest.approx(s.divisor)
    again = Schema.from_dict(json.loads(json.dumps(s.to_dict())))
    assert again == s and again.fingerprint == s.fingerprint


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_no_longer_than_the_proof_says(seed: int) -> None:
    """Norms of features in exact arithmetic, against `reach`, and against `span` within typical
    ranges: slack 1e-13.
    """
    rng = np.random.default_rng([11, seed])
    s = random_curved(rng)
    if s.unit:
        return
    edge = np.array([-1e300, 0.0, 1e300])  # bounds are reached
    table = {block.name: rng.choice(edge, 8) for block in s.blocks if block.name[0] in "ns"}
    table |= {"c": rng.choice(["a", "b"], 8)}
    table["v"] = rng.choice(
        edge, (8, next(len(block.feature_names) for block in s.blocks if block.name == "v"))
    )
    inside = draw_weighted_rows(s, 50, rng)
    first = 0
    for block in s.blocks:
        features, part = (
            block.encode(table, frozenset())[0],
            inside[:, first : first + len(block.feature_names)],
        )
        for values, most in ((features, block.reach), (part, block.span * block.weight)):
            squares = [sum(Fraction(float(v)) ** 2 for v in row) for row in values]
            assert max(squares) <= Fraction(most) ** 2 * Fraction(1 + 1e-13)
        first += len(block.feature_names)


def test_derived_features_of_synthetic_rows_follow_their_numbers() -> None:
    s = schema(COLUMNS, intercept=0.5)
    X = dict(
        zip(s.feature_names, draw_weighted_rows(s, 300, np.random.default_rng(0)).T, strict=True)
    )
    np.testing.assert_allclose(X["dose^2"], 2 * (X["dose"] ** 2 - 0.3), rtol=1e-12)
    np.testing.assert_allclose(X["dose:ward=icu"], X["dose"] * X["ward=icu"], rtol=1e-12)
    assert np.ptp(X["curve[spline 2]"]) > 0.4 and set(X["intercept"]) == {0.5}


def test_star_in_of_means_every_declared_number() -> None:
    numbers = {name: {"kind": "number", "lo": -1, "hi": 1} for name in "abc"}
    for kind in (
        {"kind": "squares"},
        {"kind": "pairs"},
        {"kind": "fourier", "features": 4, "bandwidth": 1.0},
    ):
        star, named = (
            schema({"new": kind | {"of": of}} | numbers) for of in (["*"], ["a", "b", "c"])
        )
        assert star.fingerprint == named.fingerprint and star == named
        assert star.to_dict()["columns"]["new"]["of"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change", [{"of": ["dose"]}, {"features": 10}, {"bandwidth": 0.6}, {"seed": 4}, {"weight": 0.5}]
)
def test_every_entry_is_part_of_the_fingerprint(change: dict[str, Any]) -> None:
    other = schema(COLUMNS | {"waves": COLUMNS["waves"] | change})
    assert other.fingerprint != schema(COLUMNS).fingerprint
    with_spline = [
        schema({"curve": COLUMNS["curve"] | more})
        for more in ({}, {"degree": 2}, {"knots": [0, 52]})
    ]
    assert len({one.fingerprint for one in with_spline}) == 3


@pytest.mark.parametrize(
    ("columns", "field", "says"),
    [
        ({"q": {"kind": "squares"}}, "[columns.q]", "needs of"),
        ({"q": {"kind": "squares", "of": "dose"}}, "[columns.q]", "needs of"),
        ({"q": {"kind": "squares", "of": [["dose"]]}}, "q.of", "must be a declared column"),
        ({"q": {"kind": "pairs", "of": ["dose", 1.5]}}, "q.of", "1.5: must be a declared column"),
        ({"q": {"kind": "squares", "of": []}}, "q.of", "at least 1 declared column"),
        ({"q": {"kind": "squares", "of": ["dose", "dose"]}}, "q.of", "each once"),
        ({"q": {"kind": "squares", "of": ["does"]}}, "q.of", "'does': must be a declared column"),
        ({"q": {"kind": "squares", "of": ["ward"]}}, "q.of", "'ward': must be a declared number"),
        (
            {"q": {"kind": "squares", "of": ["p"]}, "p": {"kind": "pairs", "of": ["dose", "ward"]}},
            "q.of",
            "'p': must be",
        ),
        ({"q": {"kind": "pairs", "of": ["dose"]}}, "q.of", "at least 2 declared columns"),
        ({"q": {"kind": "pairs", "of": ["dose", "q"]}}, "q.of", "'q': must be a declared column"),
        ({"q": {"kind": "squares", "of": ["dose"], "weight": 0}}, "q.weight", "1e-6"),
        (
            {"q": {"kind": "squares", "of": ["dose"], "power": 3}},
            "q.power",
            "is unknown; squares accepts of, weight",
        ),
        ({"q": {"kind": "squares", "of": ["dose"], "reach": 3}}, "q.reach", "is unknown"),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 4}},
            "[columns.q]",
            "needs of, features and bandwidth",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 3, "bandwidth": 1}},
            "q.features",
            "even",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 0, "bandwidth": 1}},
            "q.features",
            "even",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 10**7, "bandwidth": 1}},
            "q.features",
            "at most",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 4.5, "bandwidth": 1}},
            "[columns.q]",
            "right type",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 4, "bandwidth": 0}},
            "q.bandwidth",
            "from 0.001",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 4, "bandwidth": math.nan}},
            "q.bandwidth",
            "from 0.001",
        ),
        (
            {"q": {"kind": "fourier", "of": ["dose"], "features": 4, "bandwidth": 1, "seed": -1}},
            "q.seed",
            "from 0",
        ),
        (
            {
                "q": {
                    "kind": "fourier",
                    "of": ["dose"],
                    "features": 4,
                    "bandwidth": 1,
                    "seed": 2**64,
                }
            },
            "q.seed",
            "from 0",
        ),
        (
            {"q": {"kind": "fourier", "of": ["ward"], "features": 4, "bandwidth": 1}},
            "q.of",
            "a declared number",
        ),
        ({"q": {"kind": "spline"}}, "[columns.q]", "needs knots"),
        ({"q": {"kind": "spline", "knots": [1]}}, "q.knots", "two increasing"),
        ({"q": {"kind": "spline", "knots": [1, 1]}}, "q.knots", "two increasing"),
        ({"q": {"kind": "spline", "knots": [0, math.nan, 1]}}, "q.knots", "two increasing"),
        ({"q": {"kind": "spline", "knots": [0, math.inf]}}, "q.knots", "two increasing"),
        ({"q": {"kind": "spline", "knots": [0, 1], "degree": 4}}, "q.degree", "1, 2 or 3"),
        ({"q": {"kind": "spline", "knots": [0, 1], "missing": math.inf}}, "q.missing", "finite"),
    ],
)
def test_bad_declarations_are_refused_by_name(
    columns: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        schema({"dose": COLUMNS["dose"], "ward": COLUMNS["ward"]} | columns)
    assert (
        caught.value.field == field and says in str(caught.value) and "\n" not in str(caught.value)
    )


def test_a_block_that_is_not_in_the_schema_is_refused() -> None:
    """In Python a block holds others, and they might not be declared."""
    dose, ward = schema({"dose": COLUMNS["dose"], "ward": COLUMNS["ward"]}).blocks
    assert Schema("s", (dose, ward, Pairs("p", (dose, ward)))).feature_names[-1] == "dose:ward=ward"
    for block, lost in ((Squares("q", (dose,)), "dose"), (Pairs("q", (dose, ward)), "dose")):
        with pytest.raises(SchemaError, match=f"q.of='{lost}': must be a column"):
            Schema("s", (ward, block))


def test_a_table_is_reviewed_once_a_column() -> None:
    found = review(
        schema(COLUMNS, label={"column": "y", "positive": "yes"}),
        RAW | {"y": ["yes", "no", "no", "no"]},
    )
    assert {(one.column, one.rows) for one in found.counts if not one.fits} == {
        ("dose", 1),
        ("ward", 1),
        ("curve", 1),
    }
    broken = RAW | {"y": ["yes"] * 4, "dose": ["1", "two", "3", "4"]}
    found = review(schema(COLUMNS, label={"column": "y", "positive": "yes"}), broken)
    assert len(found.refused) == 1 and found.refused[0].startswith("dose: ")


def test_saved_run_predicts_with_curved_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`train --save` and `predict` encode alike, and the model finds a ring, which no straight
    line does.
    """
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).uniform(-1, 1, (2, 4000))
    lines = [f"{a},{b},{'in' if a * a + b * b < 0.6 else 'out'}" for a, b in zip(x, y, strict=True)]
    Path("ring.csv").write_text("\n".join(["x,y,where", *lines]) + "\n")
    Path("ring.toml").write_text(RING)
    run = [
        "train",
        "--data",
        "ring.csv",
        "--schema",
        "ring.toml",
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
        "--method",
    ]
    done = CliRunner().invoke(
        cli, [*run, "momentum", "--save", "run.npz", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["features"] == 12
    told = CliRunner().invoke(
        cli, ["predict", "run.npz", "ring.csv", "--json"], catch_exceptions=False
    )
    answers = [one["prediction"] for one in json.loads(told.stdout)]
    saved = SavedModel.load(Path("run.npz"))
    assert saved.schema is not None
    margins = saved.schema.encode({"x": x, "y": y}, labels=False).X @ saved.model
    assert answers == ["in" if margin > 0 else "out" for margin in margins]
    right = np.mean(
        [answer == line.rsplit(",", 1)[1] for answer, line in zip(answers, lines, strict=True)]
    )
    assert right > 0.85  # the majority's share is .53


def test_an_estimator_on_curved_rows_is_scikit_learns() -> None:
    rng, s = np.random.default_rng(0), Schema.from_dict(tomllib.loads(RING))
    table = {"x": rng.uniform(-1, 1, 2000), "y": rng.uniform(-1, 1, 2000)}
    X, y = s.encode(table, labels=False).X, table["x"] ** 2 + table["y"] ** 2 < 0.6
    model = ConsensusClassifier(
        method="momentum", epsilon=5.0, delta=1e-5, data_norm=1.0, random_state=0
    ).fit(X, y)
    plain = model.to_sklearn()
    assert np.array_equal(plain.predict(X), model.predict(X)) and model.score(X, y) > 0.85


@pytest.mark.parametrize("names", [["out", "in"], ["in", "out"], ["b", "a", "c"]])
def test_estimator_with_curved_schema_exports_as_a_pipeline(names: list[str]) -> None:
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(-1, 1, 2000), "y": rng.uniform(-1, 1, 2000)}
    number = np.digitize(
        table["x"] ** 2 + table["y"] ** 2, [0.6] if len(names) == 2 else [0.4, 0.8]
    )
    given = tomllib.loads(RING) | {"label": {"column": "where", "values": names}}
    model = ConsensusClassifier(
        schema=given, method="momentum", epsilon=5.0, delta=1e-5, random_state=0
    )
    y = np.array(names)[number]
    plain = model.fit(table, y).to_sklearn()
    assert plain.classes_.tolist() == sorted(names)
    assert (
        np.array_equal(plain.predict(table), model.predict(table))
        and np.mean(plain.predict(table) == y) > 0.65
    )


def test_inference_coefficients_are_refused_for_export_as_a_pipeline() -> None:
    """Its rows are whole and have reference levels: a transformer's are other rows."""
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(-1, 1, 4000)}
    given = {"columns": {"x": {"kind": "number", "lo": -1, "hi": 1}}}
    model = ConsensusClassifier(
        schema=given, inference=True, epsilon=5.0, delta=1e-5, random_state=0
    )
    model.fit(table, table["x"] + rng.normal(size=4000) > 0)
    with pytest.raises(InvalidInput, match=r"^inference=True"):
        model.to_sklearn()


def test_curved_features_have_no_coefficients_in_column_units() -> None:
    base = {name: COLUMNS[name] for name in ("dose", "share", "ward", "age")}
    naming_from_schema(schema(base))
    for name in ("both", "turns", "curve", "waves"):
        with pytest.raises(InvalidInput, match=f"{name}: features of kind .* have no coefficients"):
            naming_from_schema(schema(base | {name: COLUMNS[name]}))
