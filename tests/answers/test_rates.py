"""Hazard ratios and rate ratios: those of the likelihood without noise, bounded sums, three trusts,
resumption.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import RunConfig
from sottovoce.answers.fits import Layout, LogRates
from sottovoce.answers.inference import Estimates
from sottovoce.data.rows import Rows
from sottovoce.data.schema import Schema
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic
from sottovoce.problem.task import EventRate
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import RateGradient, RateHessian, RateMoments, RateSlopes, RateTotals
from sottovoce.queries.rates import Rates
from sottovoce.runs.simulate import Result, simulate

EDGES = (0.0, 1.0, 2.0, 5.0)
TIMED, COUNTED = EventRate(EDGES, 1.0, True), EventRate((0.0, 4.0), 6.0, False)
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "number", "lo": 20, "hi": 80},
            "arm": {"kind": "category", "values": ["a", "b"]},
        }
    }
)
SITES = 3
LOSS = Weighted(Logistic())


def people(n: int, seed: int = 0) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Columns of n people as a table and as numbers, and encoded labels of both kinds."""
    rng = np.random.default_rng(seed)
    age, arm = rng.uniform(20, 80, n), rng.random(n) < 0.5
    rate = 0.15 * np.exp(0.02 * (age - 50) - 0.5 * arm)
    event, left = rng.exponential(1.0 / rate), rng.uniform(0.5, 8.0, n)
    timed = TIMED.encode(np.column_stack([event <= left, np.minimum(event, left)]))
    seen = rng.uniform(0.5, 4.0, n)
    counted = COUNTED.encode(np.column_stack([rng.poisson(2.0 * rate * seen), seen]))
    table = {"age": age, "arm": np.where(arm, "b", "a")}
    return table, np.column_stack([age, arm]).astype(float), timed, counted


def fitted(
    task: EventRate, table: dict[str, Any], y: np.ndarray, epsilon: float, **how: Any
) -> tuple[LogRates, Result]:
    parts = np.array_split(np.arange(len(y)), SITES)
    layout = Layout.from_schema(SCHEMA, [], 1.0, [len(part) for part in parts], ())
    fit = LogRates(layout, task=task, noisy=math.isfinite(epsilon))
    tables = [{name: column[part] for name, column in table.items()} for part in parts]
    rows = fit.encode_rows(tables, [y[part] for part in parts])
    asked = {name: how.pop(name) for name in ("trust", "relation") if name in how}
    config = RunConfig(method="auto", epsilon=epsilon, delta=1e-5, seed=1, **asked)
    return fit, simulate(config, rows, method=fit.recipe, loss=fit.loss, **how)


def poisson(D: np.ndarray, y: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of the Poisson likelihood with time seen e, and its Hessian; plain Newton."""
    w = np.zeros(D.shape[1])
    w[2:] = math.log(y.sum() / e.sum())
    for _ in range(50):
        mean = e * np.exp(D @ w)
        H = (D * mean[:, None]).T @ D
        w = w - np.linalg.solve(H, D.T @ (mean - y))
    return w, H


@pytest.mark.parametrize("task", [TIMED, COUNTED])
def test_without_noise_they_are_those_of_the_grouped_likelihood(task: EventRate) -> None:
    """Estimates, and standard errors robust to dependence of a person's intervals."""
    table, X, timed, counted = people(300)
    y = timed if task.dated else counted
    fit, result = fitted(task, table, y, math.inf)
    lines = fit.read_outcome(result.outcome, None).plain["coefficients"]
    events, part = task.events_and_time(y)
    edges = np.array(task.edges)
    seen = np.clip(part[:, None] * edges[-1] - edges[:-1], 0.0, np.diff(edges))
    last = np.searchsorted(edges[1:], part * edges[-1] - 1e-9)
    came = (np.arange(len(edges) - 1) == last[:, None]) * events[:, None]
    who, interval = np.nonzero(seen > 0.0)
    D = np.hstack([X[who], np.eye(len(edges) - 1)[interval]])
    want, H = poisson(D, came[who, interval], seen[who, interval])
    score = (seen[who, interval] * np.exp(D @ want) - came[who, interval])[:, None] * D
    by_person = np.zeros((len(X), D.shape[1]))
    np.add.at(by_person, who, score)
    robust = np.linalg.solve(H, np.linalg.solve(H, by_person.T @ by_person).T)
    np.testing.assert_allclose([line["estimate"] for line in lines], want, atol=1e-6)
    errors = [line["standard_error"] for line in lines]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(robust)), rtol=1e-6)
    ratio = "hazard_ratio" if task.dated else "rate_ratio"
    assert lines[1][ratio] == pytest.approx(math.exp(want[1]))
    assert lines[1][f"{ratio}_low"] < lines[1][ratio] < lines[1][f"{ratio}_high"]


# --- Bounds ---------------------------------------------------------------------------------------

WORST = np.array([0.0, 0.25, 0.5, 1.0])


def contributions(what: Rates, rows: np.ndarray) -> np.ndarray:
    """What each row adds, (n, entries)."""
    made = Rows.build_with_any_norm([(row[None], np.ones(1)) for row in rows])
    found = []
    for node in range(len(rows)):
        design = made.design_of_nodes(np.array([node]))
        found.append(what.sum_over_block(design, LOSS, what.at[None])[0, 0])
    return np.array(found)


@pytest.mark.parametrize(("intervals", "dated"), [(1, False), (1, True), (3, True)])
@pytest.mark.parametrize("cap", [1.0, 2.0])
def test_nobody_adds_more_than_the_bound_whatever_point_and_frame(
    intervals: int, dated: bool, cap: float
) -> None:
    """Random and extreme people; neighbouring sums differ by the sensitivity at most."""
    rng = np.random.default_rng(intervals)
    k, most = 2, 1.0 if dated else 2.0
    edges = tuple(np.arange(intervals + 1.0))
    for size in (0.1, 1.0, 30.0):
        x = rng.normal(size=(24, k)) * rng.choice([0.0, 1.0, 10.0], (24, 1))
        rest = np.zeros((24, intervals - 1))
        events = rng.integers(0, 2, 24)
        rows = np.column_stack([x, np.full(24, 0.5), rest, rng.choice(WORST, 24), events])
        at = np.concatenate([rng.normal(size=k + intervals) * size, [0.0, 0.0]])[None]
        common: dict[str, Any] = {
            "edges": edges,
            "most": most,
            "dated": dated,
            "frame": rng.normal(size=(1, k, k + 1)) * size,
            "lift": math.sqrt(0.5),
            "cap": cap,
        }
        facts = Facts(LOSS, np.array([[24.0]]), rows.shape[1], 1.0, 0.1, 1)
        for kind in (RateGradient, RateHessian, RateSlopes, RateMoments, RateTotals):
            what = kind(at, **common)
            added = contributions(what, rows)
            assert added.shape[1] == what.number_of_entries(facts)
            assert np.linalg.norm(added, axis=1).max() <= 1.0 + 1e-12
            apart = np.linalg.norm(added[:, None] - added[None], axis=2).max()
            assert apart <= what.exact_sum_sensitivity(facts) * (1.0 + 1e-12)


class Uncapped(RateGradient):
    """The planted fault: expected events have no bound."""

    @property
    def unit(self) -> float:
        return 1.0


def test_the_bound_of_gradients_is_attained_and_needs_the_cap() -> None:
    """Somebody expected to have the event, and somebody who has it at once."""
    half = math.sqrt(0.5)
    at = np.array([[0.0, 10.0, 10.0, 0.0, 0.0]])
    how: dict[str, Any] = {"edges": (0.0, 1.0, 2.0), "frame": np.array([[[1.0, 0.0]]])}
    rows = np.array([[half, 1.0, 0.0, 0.5, 0.0], [half, 1.0, 0.0, 1e-12, 1.0]])
    added = contributions(RateGradient(at, lift=half, **how), rows)
    assert np.linalg.norm(added[0] - added[1]) == pytest.approx(2.0, abs=1e-6)
    assert np.linalg.norm(contributions(Uncapped(at, lift=half, cap=1e9, **how), rows)[0]) > 100.0


# --- Runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_every_trust_and_relation_finds_them_with_noise(trust: str) -> None:
    table, _, timed, counted = people(4000)
    relation = "zero-out" if trust == "sum" else "replace-one"
    for task, y, true in ((TIMED, timed, -0.5), (COUNTED, counted, -0.5)):
        fit, result = fitted(task, table, y, 8.0, trust=trust, relation=relation)
        assert result.statement.epsilon <= 8.0
        assert len(result.algorithm["asked"]) == 9
        line = fit.read_outcome(result.outcome, 1e-5).plain["coefficients"][1]
        assert abs(line["estimate"] - true) < 4.0 * line["standard_error"] < 1.0
        assert 0.0 < line["noise_share"] < 1.0


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    table, _, timed, _ = people(600)
    whole: Estimates = fitted(TIMED, table, timed, 5.0)[1].outcome

    class Interrupted(Exception):
        pass

    def stop(k: int, state: Any) -> None:
        if k == 4:
            raise Interrupted

    kept = tmp_path / "kept"
    with pytest.raises(Interrupted):
        fitted(TIMED, table, timed, 5.0, checkpoint=kept, observers=[stop])
    again: Estimates = fitted(TIMED, table, timed, 5.0, checkpoint=kept)[1].outcome
    np.testing.assert_array_equal(again.estimate, whole.estimate)


def test_too_little_budget_refuses_lines_and_says_what_would_do() -> None:
    table, _, timed, _ = people(600)
    fit, result = fitted(TIMED, table, timed, 0.1)
    found = fit.read_outcome(result.outcome, 1e-5).plain
    assert all(line["refused"] for line in found["coefficients"])
    assert "hazard_ratio" in found["coefficients"][0] and "epsilon" in found["needs"]


def test_labels_hold_events_and_times_exactly() -> None:
    given = np.array([[1, 2.0], [0, 2.0], [1, 5.0], [1, 5.5], [0, 9.0], [1, 0.0], [np.nan, 1.0]])
    events, part = TIMED.events_and_time(TIMED.encode(given))
    np.testing.assert_array_equal(events, [1, 0, 1, 0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(part[:5], [0.4, 0.4, 1.0, 1.0, 1.0])
    events, part = COUNTED.events_and_time(COUNTED.encode([[3, 4.0], [9, 1.0], [0, np.nan]]))
    np.testing.assert_array_equal(events, [3, 6, np.nan])
    np.testing.assert_allclose(part[:2], [1.0, 0.25])
    margins = np.full((1, 2), math.log(0.5))
    assert COUNTED.error(margins, COUNTED.encode([[2, 4.0], [1, 4.0]])) == pytest.approx(0.5)
