"""Synthetic rows follow from the schema alone; what is said of their length holds, and advice that
is taken ends it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from sottovoce.cli import cli
from sottovoce.data import Schema, builtin_schema, fill, sketch, typical_norms
from sottovoce.data.expected import FULL, typical_undivided_norms
from sottovoce.errors import InvalidInput

NUMBER = {"kind": "number", "lo": 0, "hi": 100}
TYPICAL = NUMBER | {"typical": [10, 20]}
KINDS: dict[str, dict[str, Any]] = {
    "bins": {"kind": "bins", "edges": ["-inf", 0, 1, 5], "base": 1},
    "category": {
        "kind": "category",
        "values": {"low": ["a", "b"], "high": ["c"]},
        "other": True,
        "base": "other",
    },
    "number": NUMBER | {"weight": 2},
    "typical": TYPICAL,
    "skewed": NUMBER | {"transform": "log1p", "to": "[0,1]", "typical": [1, 5]},
    "unit": {"kind": "vector", "size": 6, "lo": -1, "hi": 3},
    "length": {"kind": "vector", "size": 4, "lo": 0, "hi": 9, "norm": 10.0, "weight": 0.5},
}


def schema(columns: dict[str, Any], **entries: Any) -> Schema:
    return Schema.from_dict({"columns": columns} | entries)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_each_kind_is_drawn_from_its_declaration() -> None:
    n = 20_000
    s = schema(KINDS, intercept=0.5)
    s = dataclasses.replace(s, scale=s.bound)  # no row is clipped
    X = sketch(s, n, rng()) * s.bound
    assert X.shape == (n, s.n_features)
    columns = dict(zip(s.feature_names, X.T, strict=True))
    # One-hot: each outcome as often as any other, the one without a feature included.  Two-sided,
    # 1e-6 a column.
    low, high = binom.ppf(5e-7, n, 1 / 3), binom.isf(5e-7, n, 1 / 3)
    hot = [name for name in columns if name.startswith(("bins", "category"))]
    assert len(hot) == 4
    for name in hot:
        assert set(np.round(columns[name], 9)) == {0.0, 1.0}
        assert low <= np.sum(columns[name] > 0.5) <= high
    for group in ("bins", "category"):
        assert sum(columns[name] for name in hot if name.startswith(group)).max() < 1 + 1e-9
    # Numbers: uniform.  The largest distance of distribution functions exceeds 2.7 / sqrt(n) with
    # probability 1e-6.
    for name, lo, hi in (("number", -2.0, 2.0), ("typical", -1.0, 1.0), ("skewed", 0.0, 1.0)):
        far = np.abs(np.sort((columns[name] - lo) / (hi - lo)) - np.arange(n) / n).max()
        assert far <= 2.7 / math.sqrt(n)
    unit = np.stack([columns[f"unit{k}"] for k in range(6)], axis=1)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-9)
    assert -1 <= unit.min() < -0.3 and unit.mean() > 0.2  # entries from -1 to 3
    length = 2 * np.linalg.norm([columns[f"length{k}"] for k in range(4)], axis=0)
    assert length.max() <= 1 + 1e-9 and 0.3 < np.mean(length > 1 - 1e-9) < 0.7
    np.testing.assert_allclose(columns["intercept"], 0.5, rtol=1e-9)


@pytest.mark.parametrize(
    "entries", [{}, {"intercept": True}, {"scale": 1.2}, {"unit": True, "intercept": True}]
)
def test_synthetic_rows_equal_encoded_rows_of_the_same_values(entries: dict[str, Any]) -> None:
    s = schema({"a": NUMBER, "b": TYPICAL, "c": KINDS["length"] | {"prefix": "v"}}, **entries)
    drawn, n = rng(), 500
    values = {"a": 100 * drawn.random((n, 1))[:, 0], "b": 10 + 10 * drawn.random((n, 1))[:, 0]}
    encoded = s.encode(values | {"c": 9 * drawn.random((n, 4))}, labels=False).X
    made = sketch(s, n, rng())
    np.testing.assert_allclose(made, encoded, rtol=1e-9, atol=1e-12)
    assert np.linalg.norm(made, axis=1).max() <= 1.0


def test_the_same_generator_gives_the_same_rows() -> None:
    s, one, other = schema(KINDS), rng(3), rng(3)
    assert np.array_equal(sketch(s, 50, one), sketch(s, 50, other))
    assert one.bit_generator.state == other.bit_generator.state
    assert not np.array_equal(sketch(s, 50, one), sketch(s, 50, rng(3)))
    assert sketch(s, 0, one).shape == (0, s.n_features)
    with pytest.raises(InvalidInput, match=r"^n=-1"):
        sketch(s, -1, one)
    with pytest.raises(InvalidInput, match="memory"):
        sketch(s, 10**12, one)


def test_typical_norms_are_those_of_drawn_rows_at_any_batch_size() -> None:
    s = schema(KINDS, intercept=True)
    np.testing.assert_allclose(
        typical_norms(s, 300), np.linalg.norm(sketch(s, 300, rng()), axis=1), rtol=1e-9
    )
    wide = schema(
        {"v": {"kind": "vector", "size": 900_000, "lo": -3, "hi": 3, "norm": 3 * 900_000**0.5}}
    )
    # a norm of very many uniforms
    np.testing.assert_allclose(typical_norms(wide, 5), 1 / math.sqrt(3), rtol=0.01)
    assert typical_norms(s, 0).shape == (0,)
    assert set(typical_norms(schema({"b": KINDS["bins"]}, unit=True))) == {0.0, 1.0}


def test_fill_reports_the_quantiles_of_norms() -> None:
    """One uniform number and a constant: sqrt(u^2 + 1) / sqrt 2."""
    found = fill(schema({"a": TYPICAL}, intercept=True))
    for said, share in ((found.low, 0.1), (found.median, 0.5), (found.high, 0.9)):
        # A share of 4,000 draws lies below the quantile; 0.04 is more than five standard deviations
        # of it.
        assert math.sqrt(2 * said**2 - 1) == pytest.approx(share, abs=0.04)
    assert found.wasted == 1 - found.median
    assert found.shortened == 0.0
    assert fill(schema({"a": TYPICAL}, scale=0.75)).shortened == pytest.approx(0.25, abs=0.04)


def test_a_schema_that_is_fine_is_called_fine() -> None:
    categories = {f"c{k}": {"kind": "category", "values": ["a", "b"]} for k in range(5)}
    for s in (
        schema(categories, intercept=0.5),
        builtin_schema("adult"),
        builtin_schema("mnist37"),
    ):
        found = fill(s)
        assert found.fine and found.changes == [] and found.median > FULL
        assert found.to_dict()["change"] == {"intercept": None, "scale": None, "typical": []}


@pytest.mark.parametrize(
    "entries", [{}, {"intercept": True}, {"intercept": 3.0, "scale": 3.0}, {"scale": 0.01}]
)
@pytest.mark.parametrize(
    "kinds", [["number"] * 9, ["typical"] * 9, ["bins"], ["bins", "length"], list(KINDS)]
)
def test_schema_with_the_proposed_changes_needs_no_further_change(
    kinds: list[str], entries: dict[str, Any]
) -> None:
    s = schema({f"x{k}": KINDS[kind] for k, kind in enumerate(kinds)}, **entries)
    found = fill(s)
    changes = {"intercept": found.intercept, "scale": found.scale}
    better = dataclasses.replace(
        s, **{key: value for key, value in changes.items() if value is not None}
    )
    blocks = [
        dataclasses.replace(b, typical=(b.lo, b.hi)) if b.name in found.guessed else b
        for b in better.blocks
    ]
    after = fill(dataclasses.replace(better, blocks=tuple(blocks)))
    assert after.fine
    assert after.median == pytest.approx(found.mended, abs=1e-9)
    assert bool(found.guessed) == ("number" in kinds)
    assert len(found.changes) == sum(value is not None for value in changes.values()) + bool(
        found.guessed
    )


def test_the_proposed_scale_is_the_size_of_a_typical_row() -> None:
    found = fill(schema({f"x{k}": TYPICAL for k in range(30)}))
    assert found.scale == pytest.approx(math.sqrt(10), rel=0.02)
    assert found.median == pytest.approx(1 / math.sqrt(3), rel=0.02)
    assert found.mended == pytest.approx(1.0, abs=0.01)
    assert found.scale == pytest.approx(np.median(typical_undivided_norms(found.schema)), rel=0.005)


def test_rows_are_not_read_and_a_caveat_is_repeated() -> None:
    found = fill(schema({"a": TYPICAL}, data_dependent=True))
    assert "computed from" in str(found.to_dict()["caveat"])
    assert fill(found.schema).to_dict() == found.to_dict()


def test_common_offset_is_the_norm_of_the_mean_over_the_typical_norm() -> None:
    """Of k numbers uniform in [0, 1] the mean is 1/2 and the mean square 1/3; levels of m have
    the mean 1/m.
    """
    low = {f"x{k}": TYPICAL | {"to": "[0,1]"} for k in range(4)}
    found = fill(schema(low, intercept=True))
    assert found.offset == pytest.approx(math.sqrt(3) / 2, abs=0.01)  # the constant is left out
    assert found.common == tuple(low) and "common offset" in found.note_on_common_offset
    assert (
        'to = "[-1,1]"' in found.note_on_common_offset and "base" not in found.note_on_common_offset
    )
    middle = {f"x{k}": TYPICAL for k in range(4)}
    assert fill(schema(middle, intercept=True)).offset < 0.05
    mixed = fill(schema(middle | low | {"y": TYPICAL | {"to": "[0,1]", "weight": 5}}, scale=1.0))
    assert mixed.common == ("y",)  # the others are a small part of the mean
    levels = {"kind": "category", "values": ["a", "b", "c", "d"]}
    assert fill(schema({"c": levels, "d": levels})).offset == pytest.approx(0.5, abs=0.02)
    one = fill(schema({"c": levels | {"values": ["a"]}}))
    assert (
        one.offset == pytest.approx(1.0)
        and one.common == ("c",)
        and "base" in one.note_on_common_offset
    )


def test_common_offset_is_in_the_printed_text_and_in_json(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    for to, mostly in (("[0,1]", True), ("[-1,1]", False)):
        path.write_text(f'[columns.a]\nkind = "number"\nlo = 0\nhi = 1\nto = "{to}"\n')
        told = (
            CliRunner().invoke(cli, ["data", "--schema", str(path)], catch_exceptions=False).stdout
        )
        plain = (
            CliRunner()
            .invoke(cli, ["data", "--schema", str(path), "--json"], catch_exceptions=False)
            .stdout
        )
        offset = json.loads(plain)["offset"]
        assert ("common offset" in " ".join(told.split())) == mostly == offset["mostly"]
        assert offset["from"] == ["a"] * mostly and (offset["says"] != "") == mostly
        assert f"{offset['share']:.0%} of" in told
