"""Discrete-time survival: beside Kaplan and Meier, beside the grouped likelihood, and the bound
on a person's rows.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone

from sottovoce import ConsensusSurvival
from sottovoce.answers.hazards import LifeTable, Seen, newton_step, number_of_cells, pool_answers
from sottovoce.data.follow_up import (
    Leaving,
    find_leaving_intervals,
    read_event_marks,
    read_survival_times,
)
from sottovoce.data.rows import Rows
from sottovoce.errors import HolderNote, InvalidInput, PublicNote
from sottovoce.estimators.hazard_rows import expand_to_interval_rows, person_weight
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic
from sottovoce.queries import Bounded, Curvature, Exits, Gradient

EDGES = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
HAZARDS, SLOPES = np.array([0.05, 0.1, 0.15, 0.1]), np.array([1.0, -0.5])
NO_NOISE: dict[str, Any] = {"epsilon": np.inf, "trust": "curator", "n_sites": 1, "random_state": 0}

# Weeks of remission of 42 patients with acute leukaemia (Freireich and others 1963), the first 21
# treated.
WEEKS = np.array(
    [
        *(6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35),
        *(1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23),
    ],
    dtype=float,
)
RELAPSE = np.r_[np.ones(9), np.zeros(12), np.ones(21)] > 0
TREATED = np.r_[np.ones(21), np.zeros(21)]


def people(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With known hazards, a third of them seen only until a random time."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    came = rng.random((n, 4)) < expit((X @ SLOPES)[:, None] + logit(HAZARDS))
    time = np.where(came.any(axis=1), came.argmax(axis=1) + rng.random(n), 9.0)
    until = np.where(rng.random(n) < 1 / 3, rng.uniform(0.0, 4.0, n), 4.0)
    return X, np.minimum(time, until), time <= until


def kaplan_meier(time: np.ndarray, event: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The product over event times of one less the share of those at risk who have the event."""
    times = np.unique(time[event])
    factors = np.array([1.0 - np.sum(event & (time == t)) / np.sum(time >= t) for t in times])
    return np.array([np.prod(factors[times <= t]) for t in at])


def grouped_maximum(
    X: np.ndarray, time: np.ndarray, event: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """The maximum of the grouped likelihood, slopes and then constants, by plain Newton steps on
    rows made here.
    """
    m, d = len(edges) - 1, X.shape[1]
    rows, labels, weights = [], [], []
    for x, t, e in zip(X, time, event, strict=True):
        for j in range(m):
            if t <= edges[j]:
                break
            came = bool(e) and t <= edges[j + 1]
            rows.append(np.r_[x, np.eye(m)[j]])
            labels.append(float(came))
            weights.append(1.0 if came else min(1.0, (t - edges[j]) / (edges[j + 1] - edges[j])))
    A, y, v = np.array(rows), np.array(labels), np.array(weights)
    w = np.zeros(d + m)
    for _ in range(60):
        p = expit(A @ w)
        step = np.linalg.solve((A * (v * p * (1.0 - p))[:, None]).T @ A, A.T @ (v * (y - p)))
        w = w + step * min(1.0, 2.0 / np.abs(A @ step).max())
    assert np.abs(A.T @ (v * (y - expit(A @ w)))).max() < 1e-8
    return w


def censored(
    time: np.ndarray, event: np.ndarray, how: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    rng, end = np.random.default_rng(seed), float(time.max())
    until = {
        "as it is": np.full(len(time), np.inf),
        "uniform": rng.uniform(0.0, end, len(time)),
        "early": end * rng.beta(1.0, 3.0, len(time)),
        "late": end * rng.beta(3.0, 1.0, len(time)),
    }[how]
    return np.minimum(time, until), event & (time <= until)


def leaves(
    last: int, event: bool, m: int, exposed: float = 1.0, cells: int = 4, cell: int = 0
) -> Leaving:
    return Leaving(np.array([last]), np.array([event]), np.array([exposed]), np.array([cell]))


# --- Reading people -------------------------------------------------------------------------------


def test_leaving_interval_follows_from_time_and_event() -> None:
    time = np.array(
        [
            0.5,
            1.0,
            1.0,
            3.2,
            3.2,
            9.0,
            9.0,
            4.0,
            4.0,
            np.inf,
            np.inf,
            0.0,
            np.nan,
            -1.0,
            -np.inf,
            1.5,
        ]
    )
    event = np.array([1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1]) > 0
    known = np.ones(16, dtype=bool)
    known[-1] = False
    found = find_leaving_intervals(time, event, known, EDGES, 2)
    assert found.last.tolist() == [0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, -1, -1, -1, -1, -1]
    assert found.event.tolist() == [True, True, False, True] + [False] * 4 + [True] + [False] * 7
    np.testing.assert_allclose(found.exposed[:11], [1, 1, 1, 1, 0.2, 1, 1, 1, 1, 1, 1])
    # 4 intervals of 2 cells: events 0..7, censored inside 8..15, at an interval's end 16..19, in
    # none 20
    assert found.cell.tolist() == [0, 1, 16, 6, 14, 19, 19, 19, 7, 19, 19, 20, 20, 20, 20, 20]


def test_leaving_interval_of_a_person_depends_on_no_other() -> None:
    rng = np.random.default_rng(0)
    time = np.r_[rng.uniform(-1.0, 6.0, 60), EDGES, np.inf, np.nan]
    event, known = rng.random(len(time)) < 0.5, rng.random(len(time)) < 0.9
    whole = find_leaving_intervals(time, event, known, EDGES, 8)
    for k in range(len(time)):
        alone = find_leaving_intervals(
            time[k : k + 1], event[k : k + 1], known[k : k + 1], EDGES, 8
        )
        assert [one[0] for one in alone] == [one[k] for one in whole]


def test_first_edge_above_zero_leaves_out_people_who_left_before() -> None:
    found = find_leaving_intervals(
        np.array([1.0, 2.0, 2.5]), np.ones(3) > 0, np.ones(3) > 0, np.array([2.0, 3.0, 5.0]), 4
    )
    assert found.last.tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    ("given", "code", "read"),
    [
        ([1, 0, 1], None, [1, 0, 1]),
        ([True, False, np.True_], None, [1, 0, 1]),
        ([1.0, 0.0, np.nan], None, [1, 0, np.nan]),
        (["1", " 0 ", "1.0"], None, [1, 0, 1]),
        (["TRUE", "False", "true"], None, [1, 0, 1]),
        ([b"1", b"false", None], None, [1, 0, np.nan]),
        ([2, 1, 0], None, [np.nan, 1, 0]),
        ([-1, 0.5, 1], None, [np.nan, np.nan, 1]),
        (["dead", "alive", "1"], None, [np.nan, np.nan, 1]),
        ([2, 1, 2], 2, [1, 0, 1]),
        ([2.0, 1.0, np.nan], "2", [1, 0, np.nan]),
        (["dead ", "alive", "NA", "."], "dead", [1, 0, np.nan, np.nan]),
        ([1, 0, True, "false", 2], 1, [1, 0, 1, 0, 0]),
        ([1, 0, True, None], False, [0, 1, 0, np.nan]),
        (["NA", "alive", ""], "NA", [1, 0, np.nan]),
        ([True, False, None], True, [1, 0, np.nan]),
        (["2", "1", ""], 2.0, [1, 0, np.nan]),
    ],
)
def test_event_marks_are_read_by_meaning(given: list[Any], code: Any, read: list[float]) -> None:
    np.testing.assert_array_equal(read_event_marks(given, code), read)
    for k, one in enumerate(given):  # each by itself, whatever stands beside it
        for odd in (None, "x", 2, np.float32(0.1), True):
            assert read_event_marks([one, odd], code)[0] == pytest.approx(read[k], nan_ok=True)
            beside = np.array([one, odd], dtype=object)
            assert read_event_marks(beside, code)[0] == pytest.approx(read[k], nan_ok=True)


def test_each_time_is_read_independently() -> None:
    given = [1, "2.5", np.float32(0.7), None, "soon", True, np.int8(3), np.inf]
    want = [1.0, 2.5, float(np.float32(0.7)), np.nan, np.nan, 1.0, 3.0, np.inf]
    np.testing.assert_array_equal(read_survival_times(given), want)
    for k, one in enumerate(given):
        assert read_survival_times([one])[0] == pytest.approx(want[k], nan_ok=True)
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    np.testing.assert_array_equal(read_survival_times(masked), [1.0, np.nan])


@pytest.mark.parametrize(
    "given",
    [np.array(["2020-01-01"], dtype="datetime64[D]"), np.ones((2, 2)), np.array([1 + 2j]), 3.0],
)
def test_a_column_that_is_no_column_of_values_is_refused_by_its_type(given: Any) -> None:
    for read in (read_survival_times, read_event_marks):
        with pytest.raises(InvalidInput, match=r"^(time|event): "):
            read(given)


# --- The bound on a person ------------------------------------------------------------------------


def test_rows_hold_the_intervals_entered_and_a_cell() -> None:
    time, event = np.array([0.5, 3.2, 3.2, np.nan]), np.array([True, True, False, True])
    one = find_leaving_intervals(time, event, np.ones(4) > 0, EDGES, 2)
    rows, label, weight = expand_to_interval_rows(np.full((4, 1), 0.5), one, 4, 2)
    rows, label, weight = (
        rows.reshape(4, 5, 6),
        label.reshape(4, 5),
        weight.reshape(4, 5) / person_weight(4),
    )
    want = [[1, 0, 0, 0, 1], [-1, -1, -1, 1, 1], [-1, -1, -1, -1, 1], [0, 0, 0, 0, 1]]
    assert label.tolist() == want
    np.testing.assert_allclose(
        weight, [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0.2, 0], [0] * 5]
    )
    np.testing.assert_allclose(rows[1, :4, 1:5], np.sqrt(0.5) * np.eye(4))
    np.testing.assert_allclose(rows[1, :4, 0], np.sqrt(0.5) * 0.5)
    assert not rows[3, :4].any() and not rows[:, 4, :5].any() and not rows[:, :4, 5].any()
    np.testing.assert_allclose(rows[:, 4, 5] * number_of_cells(4, 2), one.cell + 1.0)
    assert np.linalg.norm(rows, axis=2).max() <= 1.0


def person(rng: np.random.Generator, m: int, d: int, cells: int, trial: int) -> Rows:
    """One person: long or short columns, any end, any part of the last interval seen; a third
    stay to the end.
    """
    X = rng.normal(size=(1, d))
    X /= np.linalg.norm(X) * (rng.uniform(1, 3) if trial % 5 == 0 else 1.0)
    last = int(rng.integers(-1, m)) if trial % 3 else m - 1
    event = trial % 3 == 1 and last >= 0
    part = 1.0 if event or trial % 3 == 0 else float(rng.choice([0.0, 1.0, rng.random()]))
    one = expand_to_interval_rows(
        X,
        leaves(last, event, m, part, cells, int(rng.integers(number_of_cells(m, cells)))),
        m,
        cells,
    )
    return Rows.build_from_parts([(one.rows, one.label)]).with_weight([one.weight])


def added(what: Bounded, rows: Rows) -> np.ndarray:
    """What the rows add to the exact sum, (width,)."""
    return what.sum_over_block(rows.design_of_nodes(np.array([0])), Logistic(), what.at[None])[0, 0]


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_a_replaced_person_changes_each_answer_by_no_more_than_is_charged(m: int) -> None:
    """Over points, columns, ends and parts: the change of the sum against the sensitivity that
    sets the price.
    """
    rng, d, cells = np.random.default_rng(m), 3, 4
    width = number_of_cells(m, cells)
    most = {"gradient": 0.0, "Hessian": 0.0, "life table": 0.0}
    for trial in range(300):
        one, other = (
            person(rng, m, d, cells, trial),
            person(rng, m, d, cells, int(rng.integers(1000))),
        )
        at = rng.normal(size=(1, d + m + 1)) * 10.0 ** rng.uniform(-2, 2)
        if trial % 4 == 0:
            at[0, d : d + m] = 60.0  # everybody is expected to have the event at once
        if trial % 4 == 1:
            at[0] = 0.0  # where the logistic loss bends most
        facts = Facts(Logistic(), one.n, d + m + 1, 1.0, 1.0, 1)
        for name, what in (
            ("gradient", Gradient(at)),
            ("Hessian", Curvature(at)),
            ("life table", Exits(at, width)),
        ):
            mine, theirs = added(what, one), added(what, other)
            assert np.linalg.norm(mine) <= what.largest_row_norm(facts)
            assert np.linalg.norm(mine - theirs) <= what.exact_sum_sensitivity(facts)
            most[name] = max(most[name], float(np.linalg.norm(mine) / what.largest_row_norm(facts)))
    assert most["gradient"] > 0.99 and most["life table"] == 1.0
    # of columns of norm 1, and all curvatures alike
    assert most["Hessian"] > 0.99 * np.sqrt((m + 3.0) / (2.0 * (m + 1.0)))


def test_larger_person_weight_breaks_the_sensitivity_bound() -> None:
    one = expand_to_interval_rows(np.array([[1.0]]), leaves(3, False, 4), 4, 4)
    heavy = Rows.build_from_parts([(one.rows, one.label)]).with_weight([1.01 * one.weight])
    assert np.linalg.norm(added(Gradient(np.full((1, 6), 60.0)), heavy)) > 1.0
    assert person_weight(4) > 1 / 4 and person_weight(1) == pytest.approx(1.0)


# --- Without noise --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["as it is", "uniform", "early", "late"])
@pytest.mark.parametrize("intervals", [3, 6])
def test_the_curve_of_people_without_columns_is_that_of_kaplan_and_meier(
    how: str, intervals: int
) -> None:
    """Up to the end of follow-up, where few are at risk."""
    for seed in range(3):
        time, event = censored(WEEKS, RELAPSE, how, seed)
        edges = np.linspace(0.0, float(time.max()), intervals + 1)
        model = ConsensusSurvival(edges, **NO_NOISE).fit(np.zeros((42, 1)), time, event)
        curve = model.predict_survival([[0.0]])[0]
        np.testing.assert_allclose(curve, kaplan_meier(time, event, edges[1:]), atol=0.005)
        assert model.converged_


@pytest.mark.parametrize("name", ["rossi", "gbsg2", "lung", "kidney_transplant", "larynx"])
def test_curves_of_public_trials_are_those_of_lifelines(name: str) -> None:
    lifelines = pytest.importorskip("lifelines")
    datasets = pytest.importorskip("lifelines.datasets")
    times = {"rossi": "week"}
    events = {"rossi": "arrest", "gbsg2": "cens", "lung": "status"}
    frame = getattr(datasets, f"load_{name}")()
    time = frame[times.get(name, "time")].to_numpy(float)
    event = frame[events.get(name, "death")].to_numpy(float)
    event = event == event.max()
    edges = np.linspace(0.0, float(np.quantile(time, 0.9)), 6)
    for how in ("as it is", "uniform", "early", "late"):
        seen, came = censored(time, event, how, 1)
        kept = edges[: 1 + int(np.searchsorted(edges[1:], seen.max(), side="right"))]
        curve = (
            lifelines.KaplanMeierFitter()
            .fit(seen, came)
            .survival_function_at_times(kept[1:])
            .to_numpy()
        )
        model = ConsensusSurvival(kept, **NO_NOISE).fit(np.zeros((len(seen), 1)), seen, came)
        np.testing.assert_allclose(model.predict_survival([[0.0]])[0], curve, atol=0.005)


@pytest.mark.parametrize("how", ["as it is", "uniform", "early", "late"])
@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_log_hazards_are_those_of_the_grouped_likelihood(how: str, trust: str) -> None:
    noise = np.random.default_rng(5).normal(size=(42, 2))
    X = np.c_[TREATED, noise[:, 0], 40.0 + 3.0 * noise[:, 1]]  # one with a mean far from zero
    time, event = censored(WEEKS, RELAPSE, how, 4)
    edges = np.linspace(0.0, float(np.quantile(time[event], 0.9)), 4)
    found = grouped_maximum(X, time, event, edges)
    terms = NO_NOISE | {"trust": trust, "n_sites": 3, "data_norm": 50.0}
    model = ConsensusSurvival(edges, **terms).fit(X, time, event)
    np.testing.assert_allclose(model.coef_, found[:3], atol=0.01)
    np.testing.assert_allclose(model.intercept_ - model.correction_, found[3:], atol=0.01)
    assert model.converged_


@pytest.mark.parametrize("intervals", [2, 6, 12])
def test_no_number_of_intervals_takes_more_rounds_to_converge(intervals: int) -> None:
    X, time, event = people(3000)
    edges = np.linspace(0.0, 4.0, intervals + 1)
    found = grouped_maximum(X, time, event, edges)
    model = ConsensusSurvival(edges, rounds=1, data_norm=1.5, **NO_NOISE).fit(X, time, event)
    np.testing.assert_allclose(model.coef_, found[:2], atol=0.001)


def test_without_censoring_inside_there_is_nothing_to_correct() -> None:
    X, time, event = people(2000)
    time, event = np.where(event, time, 4.0), event
    model = ConsensusSurvival(EDGES, data_norm=1.5, **NO_NOISE).fit(X, time, event)
    np.testing.assert_allclose(model.correction_, 0.0, atol=1e-9)


def test_a_person_censored_inside_counts_by_the_part_seen() -> None:
    """Not at all, by half, and whole: the interval's hazard falls in between."""
    found = []
    for seen in (1e-9, 0.5, 1.0 - 1e-9):
        time = np.r_[np.full(100, 0.9), np.full(100, 1.0), np.full(100, seen)]
        model = ConsensusSurvival([0, 1], **NO_NOISE).fit(
            np.zeros((300, 1)), time, np.r_[np.ones(100), np.zeros(200)]
        )
        found.append(float(expit(model.intercept_ - model.correction_)[0]))
    np.testing.assert_allclose(found, [100 / 200, 100 / 250, 100 / 300], atol=1e-6)


def test_intervals_without_events_or_people_and_columns_that_are_constant() -> None:
    X, time, event = people(500)
    X = np.c_[X, np.zeros(500), np.full(500, 0.3)]
    edges = np.array([0.0, 1e-6, 1.0, 4.0, 10.0, 11.0])
    model = ConsensusSurvival(edges, data_norm=2.0, **NO_NOISE).fit(X, time, event)
    hazard = expit(model.intercept_ + 0.3 * model.coef_[3])
    assert (
        np.all(hazard[[0, 3, 4]] < 1e-5)
        and abs(model.coef_[2]) < 1e-4
        and np.all(np.isfinite(model.coef_))
    )
    assert np.all(np.isfinite(model.predict_survival(X)))


def test_separating_column_is_warned_of_as_not_converged() -> None:
    time, event = np.linspace(0.1, 3.9, 200), np.arange(200) % 2 > 0
    with pytest.warns(PublicNote, match="not converged"):
        model = ConsensusSurvival(EDGES, **NO_NOISE).fit(event[:, None] - 0.5, time, event)
    assert not model.converged_


# --- With noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_known_hazards_are_found_and_the_statement_speaks_of_people(trust: str) -> None:
    X, time, event = people(20_000)
    model = ConsensusSurvival(EDGES, epsilon=4.0, trust=trust, data_norm=1.5, random_state=0).fit(
        X, time, event
    )
    np.testing.assert_allclose(model.coef_, SLOPES, atol=0.15)
    np.testing.assert_allclose(model.predict_hazard([[0.0, 0.0]])[0], HAZARDS, atol=0.03)
    curve = model.predict_survival([[0.5, 0.0], [-0.5, 0.0]])
    assert np.all(np.diff(curve, axis=1) < 0) and np.all(curve[0] < curve[1]) and model.converged_
    said = model.privacy_spent_
    unit = "one person with up to 4 rows at one site"
    assert said["epsilon"] <= 4.0 and said["unit"] == unit
    assert "with the person" in said["says"] and "another in" in said["says"]


def test_noise_adds_spread_without_bias() -> None:
    """At epsilon 10, over 20 draws of the noise."""
    X, time, event = people(10_000, 1)
    terms: dict[str, Any] = {"trust": "curator", "n_sites": 1, "data_norm": 1.5}
    exact = ConsensusSurvival(EDGES, epsilon=np.inf, random_state=0, **terms).fit(X, time, event)
    fits = [
        ConsensusSurvival(EDGES, epsilon=10.0, random_state=k, **terms).fit(X, time, event)
        for k in range(20)
    ]
    assert all(one.converged_ for one in fits)
    for name in ("coef_", "intercept_"):
        found, want = np.array([getattr(one, name) for one in fits]), getattr(exact, name)
        spread = found.std(axis=0, ddof=1)
        assert np.all(np.abs(found.mean(axis=0) - want) < 1.2 * spread) and np.all(spread < 0.05)


def test_hidden_directions_are_warned_of() -> None:
    X, time, event = people(200)
    with pytest.warns(PublicNote, match="noise hides"):
        model = ConsensusSurvival(EDGES, epsilon=0.5, data_norm=1.5, random_state=0).fit(
            X, time, event
        )
    assert (
        not model.converged_
        and np.all(np.isfinite(model.intercept_))
        and np.all(np.abs(model.coef_) < 20.0)
    )


def test_directions_that_noise_hides_are_not_moved_far() -> None:
    H, g = np.diag([1.0, 1e-9])[None], np.array([[0.1, 0.1]])
    sharp, noisy = (
        newton_step(Seen(0.0 * g, H, *noise), 1.0, 1) for noise in ((0.0, g, 0.0), (0.05, g, 0.01))
    )
    assert sharp.hidden[0] == 0 and noisy.hidden[0] == 1
    assert abs(noisy.change[0, 1]) <= 0.1 / 0.1 and noisy.change[0, 0] == pytest.approx(-0.1)


def test_answers_at_one_point_are_pooled_by_their_precision_and_those_of_far_points_count_for_less() -> (
    None
):
    H, w, g = np.eye(2)[None], np.zeros((1, 2)), np.ones((1, 2))
    near = pool_answers([Seen(w, 2.0 * H, 0.1, 3.0 * g, 0.1), Seen(w, H, 0.1, g, 0.1)], 1.0, 1)
    np.testing.assert_allclose(near.hessian, 1.5 * H)
    np.testing.assert_allclose(near.gradient, 2.0 * g)
    assert near.hessian_noise == near.gradient_noise == pytest.approx(0.1 / np.sqrt(2.0))
    far = pool_answers(
        [Seen(w, 2.0 * H, 0.1, 3.0 * g, 0.1), Seen(w + 100.0, H, 0.1, g, 0.1)], 1.0, 1
    )
    np.testing.assert_allclose(far.hessian, H, atol=0.01)
    np.testing.assert_allclose(far.gradient, g, atol=0.01)
    exact = pool_answers([Seen(w, 2.0 * H, 0.0, 3.0 * g, 0.0), Seen(w, H, 0.0, g, 0.0)], 1.0, 1)
    np.testing.assert_array_equal(exact.gradient, g)


def test_a_life_table_counts_those_at_risk() -> None:
    """2 intervals of 2 cells: events .1, .2; .05, 0; censored inside .1, 0; 0, .05; at ends .2
    and .3.
    """
    table = LifeTable(
        np.array([0.1, 0.2, 0.05, 0.0, 0.1, 0.0, 0.0, 0.05, 0.2, 0.3, 0.0]), 0.0, 2, 2
    )
    np.testing.assert_allclose(table.share_at_risk, [[1.0, 0.8], [0.4, 0.35]])
    events, without = table.events_and_exposure()
    np.testing.assert_allclose(events, [0.3, 0.05])
    np.testing.assert_allclose(without, [0.6 + 0.1 * 0.25, 0.3 + 0.05 * 0.75])
    np.testing.assert_allclose(table.kaplan_meier_chances(), [1.0 - 0.9 * 0.75, 0.125])


# --- The estimator --------------------------------------------------------------------------------


def test_people_without_a_time_or_a_known_event_are_counted_for_their_holder() -> None:
    X, time, event = people(3000)
    coded = event.astype(object)
    time[:5], coded[5:12] = np.nan, None
    model = clone(
        ConsensusSurvival(EDGES, data_norm=1.5, trust="curator", random_state=0, epsilon=np.inf)
    )
    with pytest.warns(HolderNote) as told:
        model.fit(X, time, coded, groups=np.arange(3000) % 3)
    assert [str(one.message).split(" people")[0] for one in told] == ["5 of 3000", "7 of 3000"]
    assert model.sites_.tolist() == [0, 1, 2] and model.n_features_in_ == 2
    kept = ConsensusSurvival(EDGES, data_norm=1.5, **NO_NOISE).fit(X[12:], time[12:], event[12:])
    np.testing.assert_allclose(model.coef_, kept.coef_, atol=1e-6)


def test_event_code_declares_the_event() -> None:
    X, time, event = people(1000)
    coded = np.where(event, 2, 1)
    plain = ConsensusSurvival(EDGES, data_norm=1.5, **NO_NOISE).fit(X, time, event)
    declared = ConsensusSurvival(EDGES, event_code=2, data_norm=1.5, **NO_NOISE).fit(X, time, coded)
    np.testing.assert_array_equal(declared.coef_, plain.coef_)
    with pytest.warns(HolderNote, match="declare event_code"):
        ConsensusSurvival(EDGES, data_norm=1.5, **NO_NOISE).fit(X, time, coded)


def test_the_other_relation_and_a_cap_hold() -> None:
    X, time, event = people(6000)
    out = ConsensusSurvival(
        EDGES,
        epsilon=4.0,
        trust="curator",
        data_norm=1.5,
        random_state=0,
        knobs={"relation": "zero-out", "max_grad_norm": 0.9},
    ).fit(X, time, event)
    assert "nobody in" in out.privacy_spent_["says"]
    assert out.privacy_spent_["epsilon"] <= 4.0
    np.testing.assert_allclose(out.coef_, SLOPES, atol=0.3)


def test_a_fit_is_copied_saved_and_pickled(tmp_path: Any) -> None:
    X, time, event = people(500)
    model = ConsensusSurvival(EDGES, data_norm=1.5, **NO_NOISE).fit(X, time, event)
    model.save(tmp_path / "model.npz")
    loaded = ConsensusSurvival.load(tmp_path / "model.npz")
    for other in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_survival(X), model.predict_survival(X))
        assert other.converged_ is True
        np.testing.assert_array_equal(other.correction_, model.correction_)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"edges": [0]}, "two or more"),
        ({"edges": [0, 2, 1]}, "increasing"),
        ({"edges": [0, np.inf]}, "finite"),
        ({"edges": [0, 1, np.nan]}, "finite"),
        ({"edges": "ab"}, "edges"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"knobs": {"rho": -1.0}}, "rho"),
        ({"knobs": {"rho": np.nan}}, "rho"),
        ({"knobs": {"eta": 1.0}}, "eta"),
        ({"delta": None}, "pure epsilon"),
        ({"trust": "everybody"}, "must be one of"),
        ({"data_norm": 0.0}, "data_norm"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_invalid_parameters_of_survival_are_refused(parameters: dict[str, Any], said: str) -> None:
    X, time, event = people(100)
    model = ConsensusSurvival(**({"edges": EDGES, "random_state": 0} | parameters))
    with pytest.raises(InvalidInput, match=said):
        model.fit(X, time, event)
    with pytest.raises(InvalidInput, match=r"^time: .*100 people"):
        ConsensusSurvival(EDGES, random_state=0).fit(X, time[1:], event)
