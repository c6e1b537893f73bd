"""Kaplan-Meier curves: the plain estimators without noise, bands and test with it, the price of a
person, degenerate tables, and what is refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import DurableLedger, Schema, survival_curves
from sottovoce.answers.hazards import number_of_cells
from sottovoce.answers.kaplan_meier import (
    LEAST,
    CurveTable,
    Z,
    first_crossing,
    log_rank,
    nearest_increasing,
)
from sottovoce.answers.survival_curves import FollowUp, SurvivalCurves, plan_curves
from sottovoce.data.follow_up import find_leaving_intervals
from sottovoce.data.table import Table
from sottovoce.errors import BudgetExceeded, InvalidInput
from sottovoce.runs.config import RunConfig

CUTS = [10.0, 20.0, 30.0, 60.0]
TRIAL: dict[str, Any] = {
    "label": {"event": "died", "time": "days", "cuts": CUTS},
    "columns": {"arm": {"kind": "category", "values": ["a", "b"], "base": "a"}},
}
EDGES = np.array([0.0, *CUTS])


def schema(**changes: Any) -> Schema:
    return Schema.from_dict(TRIAL | changes)


def rows(n: int = 1500, seed: int = 0, scales: tuple[float, float] = (40.0, 70.0)) -> Any:
    rng = np.random.default_rng(seed)
    arm = rng.choice(["a", "b"], n)
    time = rng.exponential(np.where(arm == "a", *scales))
    censored = rng.uniform(5.0, 120.0, n)
    seen = np.minimum(time, censored)
    return {"days": seen, "died": (time <= censored).astype(float), "arm": arm}


def rounded_up(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times at ends of cells, and events by the last of them."""
    cell = np.minimum(np.searchsorted(EDGES, table["days"]), len(EDGES) - 1)
    return EDGES[cell], (table["died"] == 1) & (table["days"] <= EDGES[-1])


def plain_curve(time: np.ndarray, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kaplan and Meier's survival at the cuts, and Greenwood's variance of its logarithm."""
    survival, variance, found = 1.0, 0.0, []
    for t in CUTS:
        at_risk, deaths = np.sum(time >= t), np.sum((time == t) & event)
        survival *= 1.0 - deaths / at_risk
        variance += deaths / (at_risk * (at_risk - deaths))
        found.append((survival, variance))
    return tuple(np.array(found).T)


def plain_log_rank(time: np.ndarray, event: np.ndarray, first: np.ndarray) -> float:
    less, variance = 0.0, 0.0
    for t in CUTS:
        n, one = np.sum(time >= t), np.sum((time >= t) & first)
        d = np.sum((time == t) & event)
        less += np.sum((time == t) & event & first) - d * one / n
        variance += d * (n - d) / (n - 1) * one / n * (1.0 - one / n)
    return float(less**2 / variance)


def column(found: SurvivalCurves, group: str, key: str) -> np.ndarray:
    return np.array([one[key] for one in found.curves if one["group"] == group], dtype=float)


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_without_noise_they_are_the_plain_estimators_on_times_rounded_up(trust: str) -> None:
    table = rows()
    found = survival_curves(
        table, schema=schema(), by="arm", epsilon=np.inf, grid=CUTS, trust=trust, nodes=4
    )
    time, event = rounded_up(table)
    for arm in "ab":
        own = table["arm"] == arm
        survival, variance = plain_curve(time[own], event[own])
        np.testing.assert_allclose(column(found, arm, "survival")[1:], survival, rtol=1e-12)
        error = Z * np.sqrt(variance) / -np.log(survival)
        np.testing.assert_allclose(
            column(found, arm, "low")[1:], survival ** np.exp(error), rtol=1e-9
        )
        np.testing.assert_allclose(
            column(found, arm, "high")[1:], survival ** np.exp(-error), rtol=1e-9
        )
        still = [np.sum(table["days"][own] > t) for t in EDGES]
        np.testing.assert_allclose(column(found, arm, "at_risk"), still, rtol=1e-12)
        (mean,) = (one for one in found.restricted_means if one["group"] == arm)
        area = np.sum(np.diff(EDGES) * np.r_[1.0, survival[:-1]])
        assert mean["mean"] == pytest.approx(area, rel=1e-12) and mean["low"] < area < mean["high"]
    assert found.logrank is not None
    statistic = plain_log_rank(time, event, table["arm"] == "a")
    assert found.logrank["statistic"] == pytest.approx(statistic, rel=1e-9)
    assert found.logrank["df"] == 1 and found.logrank["noise_share"] == 0.0


@pytest.mark.filterwarnings("ignore")  # of lifelines about pandas
def test_without_noise_they_agree_with_lifelines() -> None:
    lifelines = pytest.importorskip("lifelines")
    from lifelines.statistics import logrank_test
    from lifelines.utils import restricted_mean_survival_time

    table = rows(seed=3)
    found = survival_curves(table, schema=schema(), by="arm", epsilon=np.inf, grid=CUTS)
    time, event = rounded_up(table)
    first = table["arm"] == "a"
    for k, own in enumerate((first, ~first)):
        fit = lifelines.KaplanMeierFitter().fit(time[own], event[own])
        survival = fit.survival_function_at_times(EDGES).to_numpy()
        np.testing.assert_allclose(column(found, "ab"[k], "survival"), survival, atol=1e-6)
        band = fit.confidence_interval_.loc[CUTS].to_numpy()
        np.testing.assert_allclose(column(found, "ab"[k], "low")[1:], band[:, 0], atol=1e-6)
        np.testing.assert_allclose(column(found, "ab"[k], "high")[1:], band[:, 1], atol=1e-6)
        assert found.medians[k]["median"] == fit.median_survival_time_
        area = restricted_mean_survival_time(fit, EDGES[-1])
        assert found.restricted_means[k]["mean"] == pytest.approx(area, abs=1e-6)
    test = logrank_test(time[first], time[~first], event[first], event[~first])
    assert found.logrank is not None
    assert found.logrank["statistic"] == pytest.approx(test.test_statistic, abs=1e-6)
    assert found.logrank["p"] == pytest.approx(test.p_value, abs=1e-6)


def counts(sets: int, n: int, seed: int, scales: tuple[float, float]) -> np.ndarray:
    """Counts of many tables, (sets, 2, counts)."""
    found = np.empty((sets, 2, number_of_cells(len(CUTS), 1)))
    for k in range(sets):
        table = rows(n, seed + k, scales)
        known = np.ones(n, dtype=bool)
        leaves = find_leaving_intervals(table["days"], table["died"] == 1, known, EDGES, 1)
        for g in (0, 1):
            own = leaves.cell[table["arm"] == "ab"[g]]
            found[k, g] = np.bincount(own, minlength=found.shape[-1])
    return found


def test_variances_of_noise_are_those_of_many_draws() -> None:
    """Of curves, restricted means, and observed less expected events, on the same counts."""
    sigma, draws = 4.0, 6000
    truth = counts(1, 3000, 1, (40.0, 70.0))[0]
    noisy = truth + sigma * np.random.default_rng(0).normal(size=(draws, *truth.shape))
    table, exact = CurveTable(noisy, sigma, EDGES), CurveTable(truth, sigma, EDGES)
    stated = exact.log_variances[1]
    drawn = np.log(table.raw).var(axis=0)
    np.testing.assert_allclose(drawn, stated, rtol=0.12)
    # Half a cell's length before the first end, and straight lines after it.
    weight = np.r_[0.5 * (np.diff(EDGES)[:-1] + np.diff(EDGES)[1:]), 0.5 * np.diff(EDGES)[-1]]
    of_means = (weight * table.raw).sum(axis=-1).var(axis=0)
    parts = np.flip(np.cumsum(np.flip(weight * exact.smooth, -1), axis=-1), -1)
    np.testing.assert_allclose(of_means, exact._noise_gradients(parts), rtol=0.12)
    share = log_rank(exact).noise_share
    # Observed less expected has variance noise_share / (1 - noise_share) times the sampling one.
    exposed, events = table.exposed, table.events
    hazard = events.sum(axis=1) / exposed.sum(axis=1)
    less = (events - exposed * hazard[:, None]).sum(axis=-1)[:, 0]
    plain = exact.exposed.sum(axis=0)
    d, p = exact.events.sum(axis=0), exact.exposed[0] / plain
    sampling = np.sum(d * (plain - d) / (plain - 1.0) * p * (1.0 - p))
    assert less.var() == pytest.approx(sampling * share / (1.0 - share), rel=0.12)


def test_bands_cover_and_the_test_has_its_size() -> None:
    """300 sets at epsilon 1; `bench/accuracy/coverage_survival.py` has many designs."""
    n, sets = 2000, 300
    asked = follow_up(schema(), grid=CUTS)
    run = RunConfig.from_dict({"method": "auto", "epsilon": 1.0, "delta": 1e-5})
    _, sigma = plan_curves(asked, [n], run)
    rng = np.random.default_rng(5)

    def release(scales: tuple[float, float], seed: int) -> CurveTable:
        exact = counts(sets, n, seed, scales)
        return CurveTable(exact + sigma * rng.normal(size=exact.shape), sigma, EDGES)

    table = release((40.0, 70.0), 1000)
    told = table.survival()
    truth = np.exp(-EDGES[1:] / np.array([[40.0], [70.0]]))
    assert np.mean((told.low <= truth) & (truth <= told.high)) > 0.92
    medians = table.medians(told)
    assert (
        np.mean((medians.low <= 40 * math.log(2)) & (medians.high >= 40 * math.log(2)), 0)[0] > 0.9
    )
    p = log_rank(release((40.0, 40.0), 5000)).p
    # Three standard errors around 5 in 100.
    assert 0.01 < np.mean(p < 0.05) < 0.09
    assert np.mean(log_rank(table).p < 0.05) > 0.95


def follow_up(given: Schema, **options: Any) -> FollowUp:
    usual = dict.fromkeys(("time", "event", "event_code", "grid"))
    return FollowUp.from_options(given, usual | {"by": "arm"} | options)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_noisy_curves_never_rise_and_lie_between_0_and_1(epsilon: float) -> None:
    for seed in range(4):
        found = survival_curves(
            rows(4000), schema=schema(), by="arm", epsilon=epsilon, seed=seed, grid=CUTS
        )
        for group in found.groups:
            for key in ("survival", "low", "high", "at_risk"):
                told = column(found, group, key)
                told = told[~np.isnan(told)]
                assert np.all(np.diff(told) <= 0.0) and np.all(told >= 0.0)
            low, value, high = (column(found, group, key) for key in ("low", "survival", "high"))
            told = ~np.isnan(value)
            assert np.all((low <= value)[told] & (value <= high)[told] & (high <= 1.0)[told])


def test_one_release_is_charged_and_read_again_for_nothing(tmp_path: Path) -> None:
    table = rows()
    asked: dict[str, Any] = {"schema": schema(), "by": "arm", "epsilon": 1.0}
    DurableLedger.create(tmp_path / "t.ledger", epsilon=1.5, delta=1e-5, accountant="zcdp").close()
    with DurableLedger.open(tmp_path / "t.ledger") as ledger:
        first = survival_curves(table, ledger=ledger, seed=None, **asked)
        spent = ledger.total()
        again = survival_curves(table, ledger=ledger, seed=None, **asked)
        assert first.curves == again.curves and ledger.total() == spent
        with pytest.raises(BudgetExceeded):
            survival_curves(table, ledger=ledger, seed=None, run_name="more", **asked)
    assert [one["share"] for one in first.asked] == [1.0]
    assert 0.99 < first.statement.epsilon <= 1.0 and not first.statement.simulated


def test_a_person_is_in_one_count_at_most() -> None:
    """So a replaced one changes two counts by 1: any value of any column, alone."""
    asked = follow_up(schema(na=["?"]))
    odd: dict[str, list[Any]] = {
        "days": [1.0, 10.0, 10.5, 60.0, 61.0, 1e300, 0.0, -3.0, math.nan, math.inf, "x", "?", None],
        "died": [1, 0, True, "true", "maybe", None, 2.0],
        "arm": ["a", "b", "c", None, 3],
    }
    single = []
    for days in odd["days"]:
        for died in odd["died"]:
            for arm in odd["arm"]:
                values = {"days": days, "died": died, "arm": arm}
                single.append({key: np.array([one], dtype=object) for key, one in values.items()})
    many = {key: np.concatenate([one[key] for one in single]) for key in odd}
    together, _ = asked.read_cells(Table("t", many))
    alone = [int(asked.read_cells(Table("t", one))[0][0]) for one in single[::7]]
    np.testing.assert_array_equal(together[::7], alone)
    width = asked.counts_of_group
    assert together.min() == 0 and together.max() <= 2 * width
    # The last count of a group is of those never at risk, who are in no count at all.
    assert not np.any((together > 0) & (together % width == 0))


def test_further_rows_of_a_person_change_nothing() -> None:
    table = rows(600)
    who = np.repeat(np.arange(300), 2)
    given = schema(person="id")
    found = survival_curves(table | {"id": who}, schema=given, by="arm", epsilon=3.0)
    other = {key: value.copy() for key, value in table.items()}
    other["days"][1::2], other["died"][1::2] = 1.0, 1.0
    again = survival_curves(other | {"id": who}, schema=given, by="arm", epsilon=3.0)
    assert found.curves == again.curves and "person" in found.statement.text
    # The first row of each in the table, and only that.
    firsts = {key: value[::2] for key, value in table.items()}
    exact = survival_curves(firsts, schema=schema(), by="arm", epsilon=np.inf)
    people = survival_curves(table | {"id": who}, schema=given, by="arm", epsilon=np.inf)
    assert exact.curves == people.curves


def test_options_take_the_place_of_the_label_and_sites_are_dealt() -> None:
    table = rows() | {"site": np.array(["x", "y", "z"] * 500)}
    plain = Schema.from_dict({"columns": TRIAL["columns"]})
    table["fate"] = np.where(table["died"] == 1, "dead", "alive")
    names: dict[str, Any] = {
        "time": "days",
        "event": "fate",
        "event_code": "dead",
        "grid": (0, 10, 20, 30, 60),
    }
    found = survival_curves(table, schema=plain, by="arm", epsilon=np.inf, **names)
    usual = survival_curves(table, schema=schema(), by="arm", epsilon=np.inf, grid=CUTS)
    assert found.curves == usual.curves
    apart = survival_curves(
        table, schema=schema(), by="arm", epsilon=np.inf, grid=CUTS, partition="site:site"
    )
    np.testing.assert_allclose(
        column(apart, "b", "survival"), column(usual, "b", "survival"), rtol=1e-12
    )
    assert follow_up(schema()).edges == (0.0, *np.arange(1, 10) * 10 / 3, 40.0, 50.0, 60.0)
    alone = survival_curves(table, schema=schema(), epsilon=1.0, seed=2)
    assert alone.groups == ("all",) and alone.logrank is None


N = 900
ARM = np.array(["a", "b", "c"] * 300)
TIME = np.random.default_rng(0).exponential(30.0, N)
DEGENERATE = {
    "a group without events": (TIME, np.where(ARM == "b", 0.0, 1.0), ARM),
    "nobody in a group": (TIME, np.ones(N), np.where(ARM == "c", "a", ARM)),
    "an undeclared group": (TIME, np.ones(N), np.where(ARM == "c", "d", ARM)),
    "all censored at once": (np.full(N, 5.0), np.zeros(N), ARM),
    "all die at once": (np.full(N, 5.0), np.ones(N), ARM),
    "events after the last cut": (TIME + 100.0, np.ones(N), ARM),
    "no times": (np.full(N, np.nan), np.ones(N), ARM),
    "some times": (np.where(TIME > 20.0, np.nan, TIME), np.ones(N), ARM),
    "no known events": (TIME, np.full(N, np.nan), ARM),
    "times below 0": (TIME - 20.0, np.ones(N), ARM),
}


@pytest.mark.parametrize("epsilon", [3.0, np.inf])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_have_curves_or_say_why_not(name: str, epsilon: float) -> None:
    time, event, arm = DEGENERATE[name]
    columns = {"arm": {"kind": "category", "values": ["a", "b", "c"]}}
    found = survival_curves(
        {"days": time, "died": event, "arm": arm},
        schema=schema(columns=columns),
        by="arm",
        epsilon=epsilon,
        grid=CUTS,
    )
    survival, test = column(found, "b", "survival"), found.logrank
    assert test is not None and found.to_dict()["curves"] and found.groups == ("a", "b", "c")
    assert repr(found) and found._repr_html_()
    if name == "a group without events":
        assert survival[-1] > 0.95 and column(found, "b", "low")[-1] < 1.0
        assert found.medians[1]["says"] == "not reached" and test["p"] < 1e-6
    if "group" in name and "events" not in name:
        assert test["df"] == 1 and test["says"] == "without c" and test["p"] is not None
        assert any("curve of c ends at 0" in note for note in found.notes)
    if name == "all censored at once":
        assert survival[1] > 0.97 and np.isnan(survival[2]) and test["p"] is None
    if name == "all die at once":
        assert survival[1] < 0.1 and found.medians[1]["median"] <= 10.0
    if name == "events after the last cut":
        assert survival[-1] > 0.95 and found.restricted_means[1]["high"] > 59.0
    if name in ("no times", "no known events"):
        assert np.all(np.isnan(survival)) and test["p"] is None and test["says"]
    if name in ("some times", "times below 0"):
        lost = int(np.sum(~(time > 0.0)))
        assert f"{lost} of 900 people have no time above 0" in found.holder_notes[0]
        assert str(lost) not in str(found.released()["notes"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"by": "days"}, "declares levels; use one of arm"),
        ({"grid": [30, 20]}, "increasing times"),
        ({"grid": [-1.0]}, "increasing times"),
        ({"grid": np.arange(1, 2002)}, "increasing times"),
        ({"grid": "soon"}, "grid"),
        ({"time": "weeks"}, "is not a column of the table"),
        ({"epsilon": 0.001}, "widen a group's band"),
        ({"partition": "label"}, "use iid or site:NAME"),
        ({"method": "dvp"}, "train no model"),
        ({"rounds_": 3}, "is no option"),
    ],
)
def test_wrong_options_are_refused_without_a_value_of_a_row(
    options: dict[str, Any], says: str
) -> None:
    table = rows(200)
    table["days"][0] = 123.456
    usual: dict[str, Any] = {"schema": schema(), "by": "arm"}
    with pytest.raises(InvalidInput, match=says) as refused:
        survival_curves(table, **(usual | options))
    assert "123.456" not in str(refused.value)


def test_columns_and_a_grid_must_be_known() -> None:
    plain = Schema.from_dict({"columns": TRIAL["columns"]})
    with pytest.raises(InvalidInput, match="time: must name a column"):
        survival_curves(rows(50), schema=plain)
    with pytest.raises(InvalidInput, match="grid: must be given"):
        survival_curves(rows(50), schema=plain, time="days", event="died")
    with pytest.raises(InvalidInput, match="has no rows"):
        survival_curves({key: value[:0] for key, value in rows(50).items()}, schema=schema())


def test_frames_pictures_and_bins() -> None:
    bins = {"age": {"kind": "bins", "edges": [0, 50, 100]}}
    table = rows() | {"age": np.where(np.arange(1500) % 3 == 0, np.nan, 60.0)}
    found = survival_curves(table, schema=schema(columns=bins), by="age", epsilon=np.inf)
    assert found.groups == ("[0,50)", "[50,100]")
    assert column(found, "[50,100]", "at_risk")[0] == 1000
    frame = pytest.importorskip("pandas") and found.to_frame()
    assert list(frame.columns) == ["group", "time", "survival", "low", "high", "at_risk"]
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = found.plot()
    below = ax.figure.axes[1]
    assert "1,000" in [text.get_text() for text in below.texts]
    pyplot.close(ax.figure)
    _, own = pyplot.subplots()
    assert found.plot(own) is own
    pyplot.close(own.figure)


def test_nearest_sequences_and_crossings() -> None:
    x = np.array([[3.0, 1.0, 2.0, 5.0], [1.0, 2.0, 3.0, 4.0]])
    found = nearest_increasing(x, np.ones_like(x))
    np.testing.assert_allclose(found, [[2.0, 2.0, 2.0, 5.0], [1.0, 2.0, 3.0, 4.0]])
    heavy = nearest_increasing(np.array([3.0, 1.0]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(heavy, [2.5, 2.5])
    S = np.array([[0.8, 0.6, 0.4, 0.2], [0.9, 0.8, 0.7, np.nan]])
    np.testing.assert_allclose(first_crossing(S, EDGES, even=True), [25.0, np.nan])
    np.testing.assert_allclose(first_crossing(S, EDGES, even=False), [30.0, np.nan])


def test_a_curve_ends_where_noise_hides_how_many_are_at_risk() -> None:
    """Which follows from what was released."""
    truth = counts(1, 400, 1, (15.0, 15.0))[0]
    table = CurveTable(truth, 3.0, EDGES)
    assert table.visible[0, 0] and not table.visible[0, -1]
    ended = ~table.visible
    assert np.all(
        (table.exposed < LEAST * table.exposed_noise)[
            ended & (np.diff(ended, axis=1, prepend=False))
        ]
    )
    assert np.all(np.isnan(table.restricted_means().value))
