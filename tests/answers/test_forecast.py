"""Forecasts of tables of coefficients from public facts alone: rows needed, and standard errors to
expect.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from sottovoce.answers import forecast as ahead
from sottovoce.answers.assumed import parse_expected_shares
from sottovoce.answers.coefficients import build_coefficient_table
from sottovoce.answers.forecast import LogOdds, Means, Study, is_complete, is_half_complete
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.least_squares import slopes_from_naming, table_in_target_units
from sottovoce.answers.rehearsal import DECLARED, EVEN, REAL, draw_synthetic_rows
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

DELTA, EPSILON, N, SITES = 1e-5, 3.0, 4000, 4
COLUMNS = {
    "age": {"kind": "number", "lo": 0, "hi": 120, "typical": [20, 80]},
    "dose": {"kind": "number", "lo": 0, "hi": 10, "typical": [1, 5]},
    "stage": {"kind": "category", "values": ["a", "b", "c"]},
}
MU = gaussian_mu(EPSILON, DELTA)


@cache
def naming() -> Naming:
    return naming_from_schema(Schema.from_dict({"columns": COLUMNS, "name": "made"}))


def schema() -> Schema:
    own = naming().schema
    assert own is not None
    return own


def raw_rows(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw raw rows: nine in ten numbers are in the typical ranges, levels are equally frequent,
    columns are uncorrelated.
    """
    age = np.clip(50.0 + 30.0 * rng.normal(size=n) / 1.645, 0.0, 120.0)
    dose = np.clip(3.0 + 2.0 * rng.normal(size=n) / 1.645, 0.0, 10.0)
    return {"age": age, "dose": dose, "stage": np.array(["a", "b", "c"])[rng.integers(3, size=n)]}


def split(
    raw: dict[str, np.ndarray], y: np.ndarray
) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    parts = np.array_split(np.arange(len(y)), SITES)
    return [({name: values[part] for name, values in raw.items()}, y[part]) for part in parts]


def config(replicates: int) -> RunConfig:
    return RunConfig(
        "auto", trust="sum", epsilon=EPSILON, delta=DELTA, seed=1, replicates=replicates
    )


def ratios(told: list[ahead.LineAhead], errors: list[list[float]]) -> np.ndarray:
    expected = np.array([line.standard_error for line in told], dtype=float)
    return np.asarray(expected / np.mean(np.array(errors, dtype=float), axis=0))


def test_forecast_standard_errors_of_log_odds_match_runs() -> None:
    """Within a factor of 1.3 of the mean of 16 draws; twice the noise, or half of the rows, would
    fail.
    """
    rng = np.random.default_rng(0)
    raw = raw_rows(N, rng)
    score = (raw["age"] - 50.0) / 30.0 + 0.5 * (raw["stage"] == "b")
    y = np.where(rng.random(N) < expit(score - 1.0), 1.0, -1.0)
    loss = Weighted(Logistic()) if naming().long else Logistic()
    rows = naming().rows_of_sites(split(raw, y))
    found = simulate(config(16), rows, method=newton_from_naming(naming()), loss=loss).outcome
    shown = [build_coefficient_table(found, naming(), k) for k in range(16)]
    errors = [
        [line.standard_error for line in one.lines]
        for one in shown
        if all(x.refused is None for x in one.lines)
    ]
    assert len(errors) >= 12
    study = Study.from_sites(LogOdds(naming()), MU, sites=SITES)
    told = study.forecast_lines(float(N), DECLARED)
    assert np.all(np.abs(np.log(ratios(told, errors))) < np.log(1.3))
    assert all(line.without_privacy < line.standard_error and line.printed > 0.8 for line in told)
    fewer = study.forecast_lines(N / 4.0, DECLARED)
    assert not np.all(np.abs(np.log(ratios(fewer, errors))) < np.log(1.3))


def test_forecast_standard_errors_of_least_squares_match_runs() -> None:
    """Within a factor of 1.3 of the mean of 12 draws, in the units of the label."""
    rng, task = np.random.default_rng(2), BoundedNumber(0.0, 200.0)
    raw = raw_rows(N, rng)
    spread = 30.0 * rng.normal(size=N)
    target = np.clip(100.0 + 15.0 * (raw["age"] - 50.0) / 30.0 + spread, 0.0, 200.0) / 100.0 - 1.0
    loss = Weighted(HuberResidual(1.0)) if naming().long else HuberResidual(1.0)
    rows = naming().rows_of_sites(split(raw, np.ones(N))).with_offset(np.array_split(target, SITES))
    errors = []
    for seed in range(12):
        run = RunConfig("auto", trust="sum", epsilon=EPSILON, delta=DELTA, seed=seed)
        found = simulate(run, rows, method=slopes_from_naming(naming()), loss=loss).outcome
        errors.append(
            [line.standard_error for line in table_in_target_units(found, naming(), task).lines]
        )
    shown = [one for one in errors if None not in one]
    assert len(shown) >= 10
    told = Study.from_sites(Means(naming(), task, 0.15), MU, sites=SITES).forecast_lines(
        float(N), DECLARED
    )
    assert np.all(np.abs(np.log(ratios(told, shown))) < np.log(1.3))
    assert told[0].without_privacy == pytest.approx(30.0 / (30.0 / 1.645) / np.sqrt(N), rel=0.15)


def test_forecast_rows_depend_on_noise_and_sites() -> None:
    """For noise only the product of rows and mu counts; secure sums reduce it; rare positives need
    more rows.
    """
    small = naming_from_columns(["a", "b", "c"], 1.35 * np.sqrt(3.0))
    one = Study.from_sites(LogOdds(small), MU).estimate_rows_needed(EVEN, 4)
    half_mu = Study.from_sites(LogOdds(small), MU / 2.0).estimate_rows_needed(EVEN, 4)
    assert half_mu.half == pytest.approx(2.0 * one.half, rel=0.15)
    alone = Study.from_sites(LogOdds(small), MU, sites=4, summed=False).estimate_rows_needed(
        EVEN, 4
    )
    assert alone.half == pytest.approx(2.0 * one.half, rel=0.15)
    assert (
        Study.from_sites(LogOdds(small, 0.03), MU).estimate_rows_needed(EVEN, 4).half
        > 1.5 * one.half
    )


def test_synthetic_rows_follow_the_schema() -> None:
    """Nine in ten numbers are in their typical ranges, levels are equally frequent, nothing is
    correlated.
    """
    X = draw_synthetic_rows(naming(), 20_000, np.random.default_rng(3), EVEN)
    schema = naming().schema
    assert schema is not None
    plain = X * schema.divisor * schema.slack
    assert np.mean(np.abs(plain[:, 0]) <= 1.0) == pytest.approx(0.9, abs=0.01)
    np.testing.assert_allclose(np.mean(plain[:, 2:4] != 0.0, axis=0), 1.0 / 3.0, atol=0.015)
    assert abs(np.corrcoef(plain[:, 0], plain[:, 1])[0, 1]) < 0.03
    np.testing.assert_allclose(X[:, -1], naming().value)


def test_realistic_synthetic_rows_have_rare_levels_long_tails_and_binaries() -> None:
    """Shares, widths and binaries are those of `REAL`: over 40 tables the rarest of three levels
    has at most an eighth of the rows.
    """
    columns = COLUMNS | {"mark": {"kind": "number", "lo": 0, "hi": 1}}
    encoding = naming_from_schema(Schema.from_dict({"columns": columns, "name": "made"}))
    own = encoding.schema
    assert own is not None
    tables = [
        draw_synthetic_rows(encoding, 2000, np.random.default_rng(seed), REAL) for seed in range(40)
    ]
    plain = [X * own.divisor * own.slack for X in tables]
    shares = [np.mean(X[:, 2:4] > 0.0, axis=0) for X in plain]
    rarest = [min(*two, 1.0 - sum(two)) for two in shares]
    assert np.median(rarest) < 0.125
    assert np.mean([np.mean(np.abs(X[:, 0]) <= 1.0) for X in plain]) == pytest.approx(0.9, abs=0.02)
    middles = [abs(np.median(X[:, 0])) for X in plain]
    assert np.quantile(middles, 0.8) > 0.2  # of symmetric numbers it is below .05
    assert all(len(np.unique(X[:, 4])) == 2 for X in plain)


def test_synthetic_rows_have_the_given_shares() -> None:
    shares = parse_expected_shares(schema(), ["stage: b=0.03"])
    assert shares == {"stage": {"b": 0.03}}
    for seed, habits in enumerate((EVEN, REAL)):
        X = draw_synthetic_rows(
            naming(), 20_000, np.random.default_rng(seed), replace(habits, shares=shares)
        )
        assert np.mean(X[:, 2] != 0.0) == pytest.approx(0.03, abs=0.005)
    every = parse_expected_shares(schema(), ["stage:a=.02", "stage:b=.9", "stage:c=.08"])
    X = draw_synthetic_rows(naming(), 20_000, np.random.default_rng(9), replace(REAL, shares=every))
    np.testing.assert_allclose(np.mean(X[:, 2:4] != 0.0, axis=0), [0.9, 0.08], atol=0.01)


def test_missing_and_other_values_have_the_given_shares() -> None:
    declared = Schema.from_dict(
        {
            "name": "gaps",
            "columns": {
                "bmi": {"kind": "number", "lo": 10, "hi": 60, "missing": 26, "indicator": True},
                "ward": {
                    "kind": "category",
                    "values": ["a", "b"],
                    "base": "a",
                    "other": True,
                    "indicator": True,
                },
            },
        }
    )
    shares = parse_expected_shares(
        declared, ["bmi: missing=0.3", "ward: missing=0.2", "ward: other=0.1"]
    )
    assert shares == {"bmi": {"missing": 0.3}, "ward": {"missing": 0.2, "other": 0.1}}
    X = draw_synthetic_rows(
        naming_from_schema(declared),
        20_000,
        np.random.default_rng(0),
        replace(EVEN, shares=shares),
    )
    # the last column is the constant
    by_name = dict(zip(declared.feature_names, X.T[:-1], strict=True))
    for name, share in (("bmi=missing", 0.3), ("ward=missing", 0.2), ("ward=other", 0.1)):
        assert np.mean(by_name[name] != 0.0) == pytest.approx(share, abs=0.01)


def test_given_rare_level_raises_standard_error_and_rows_needed() -> None:
    study = Study.from_sites(LogOdds(naming()), MU, sites=SITES)
    even = study.forecast_lines(4.0 * N, DECLARED)
    rare = study.forecast_lines(4.0 * N, replace(DECLARED, shares={"stage": {"b": 0.04}}))
    # a third of the rows against 4% of them: without noise sqrt((1/.04 + 1/.48) / (3 + 3))
    assert rare[2].without_privacy / even[2].without_privacy == pytest.approx(2.12, rel=0.15)
    assert rare[3].without_privacy < 1.1 * even[3].without_privacy
    known = replace(EVEN, shares={"stage": {"b": 0.02}})
    assert (
        study.estimate_rows_needed(known, 3).complete
        > 2.0 * study.estimate_rows_needed(EVEN, 3).complete
    )


@pytest.mark.parametrize(
    "texts",
    [
        ["stage: d=.1"],
        ["age=.1"],
        ["stage: b"],
        ["stage: b=many"],
        ["stage: b=0"],
        ["stage: b=nan"],
        ["stage: a=.5", "stage: b=.6"],
        ["stage: a=.1", "stage: b=.1", "stage: c=.1"],
        ["stage: b=.1", "stage:b=.2"],
        ["stage: b=.1", "stage: b=.1"],
    ],
)
def test_shares_of_unknown_columns_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_expected_shares(schema(), texts)
    assert caught.value.field == "shares"


def _of_levels(columns: dict[str, list[str]]) -> Schema:
    plain = {name: {"kind": "category", "values": levels} for name, levels in columns.items()}
    return Schema.from_dict({"columns": plain, "name": "levels"})


def test_names_of_columns_and_levels_may_hold_colons_and_equals_signs() -> None:
    declared = _of_levels({"a: b": ["x", "y=1", "p: q", "rest"], "a": ["b", "c"]})
    texts = ["a: b: x=.1", "a: b:y=1=.2", "a: b: p: q = .3", "a: b=.4"]
    found = parse_expected_shares(declared, texts)
    assert found == {"a: b": {"x": 0.1, "y=1": 0.2, "p: q": 0.3}, "a": {"b": 0.4}}


def test_ambiguous_level_name_is_refused() -> None:
    declared = _of_levels({"a: b": ["c", "d"], "a": ["b: c", "e"]})
    with pytest.raises(InvalidInput) as caught:
        parse_expected_shares(declared, ["a: b: c=.1"])
    assert caught.value.field == "shares"
    found = parse_expected_shares(declared, ["a:b: c=.1", "a: b:c=.2"])
    assert found == {"a": {"b: c": 0.1}, "a: b": {"c": 0.2}}


def test_forecast_range_contains_the_forecast() -> None:
    """Tables as declared hardly differ; realistic ones differ by more than a factor of two."""
    study = Study.from_sites(LogOdds(naming()), MU, sites=SITES)
    real, even = study.estimate_rows_needed(REAL, 9), study.estimate_rows_needed(EVEN, 3)
    assert real.half_range[0] <= real.half <= real.half_range[1]
    assert real.half_range[1] / real.half_range[0] > 2.0 * even.half_range[1] / even.half_range[0]


@pytest.mark.parametrize("positives", [0.0, 1.0, float("nan")])
def test_texts_that_are_no_share_are_refused(positives: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        LogOdds(naming(), positives)
    assert caught.value.field == "positives"


def test_completeness_counts_only_lines_that_can_be_printed() -> None:
    rng = np.random.default_rng(4)
    raw = raw_rows(N, rng)
    y = np.where(rng.random(N) < 0.3, 1.0, -1.0)
    y[raw["stage"] == "c"] = 1.0  # separation: no number of rows would do
    loss = Weighted(Logistic()) if naming().long else Logistic()
    rows = naming().rows_of_sites(split(raw, y))
    much = RunConfig("auto", trust="sum", epsilon=100.0, delta=DELTA, seed=1)
    shown = build_coefficient_table(
        simulate(much, rows, method=newton_from_naming(naming()), loss=loss).outcome, naming()
    )
    assert (
        any(line.cause == "separation" for line in shown.lines)
        and is_complete(shown)
        and is_half_complete(shown)
    )
