"""Discrete-time survival: expansion by intervals, the bound on a person's rows together, and fits of known hazards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from sottovoce import ConsensusSurvival
from sottovoce.data.rows import Rows
from sottovoce.errors import HolderNote, InvalidInput
from sottovoce.estimators.survival import expand, intervals, person_weight
from sottovoce.problem.losses import Logistic

EDGES = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
HAZARDS, SLOPES = np.array([0.05, 0.1, 0.15, 0.1]), np.array([1.0, -0.5])


def people(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With known hazards, a third of them seen only until a random time."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    came = rng.random((n, 4)) < expit((X @ SLOPES)[:, None] + logit(HAZARDS))
    time = np.where(came.any(axis=1), came.argmax(axis=1) + rng.random(n), 9.0)
    until = np.where(rng.random(n) < 1 / 3, rng.uniform(0.0, 4.0, n), 4.0)
    return X, np.minimum(time, until), time <= until


def test_people_are_expanded_by_the_intervals_that_they_enter() -> None:
    time = np.array([0.5, 1.0, 1.0, 3.2, 3.2, 9.0, 9.0, 4.0, 0.0, np.nan, -1.0])
    event = np.array([True, True, False, True, False, True, False, False, True, True, False])
    last = intervals(time, event, EDGES)
    assert last.tolist() == [0, 0, 0, 3, 2, 3, 3, 3, -1, -1, -1]
    rows, y = expand(np.full((11, 1), 0.5), last, event & (time <= 4), 4)
    y = y.reshape(11, 4)
    want = [[1, 0, 0, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [-1, -1, -1, 1], [-1, -1, -1, 0]]
    assert y.tolist() == want + [[-1] * 4] * 3 + [[0] * 4] * 3
    rows = rows.reshape(11, 4, 5)
    assert not rows[y == 0].any()
    np.testing.assert_allclose(rows[3, :, 1:], np.sqrt(0.5) * np.eye(4))
    np.testing.assert_allclose(rows[3, :, 0], np.sqrt(0.5) * 0.5)
    assert np.linalg.norm(rows, axis=2).max() <= 1.0


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_a_person_adds_no_more_than_one_row_and_some_person_as_much(m: int) -> None:
    """Over points, columns and ends: norms of a person's gradient and Hessian against those of one row in the ball."""
    rng, steepest, most_bent, d = np.random.default_rng(m), 0.0, 0.0, 3
    point = np.zeros((1, 1, d + m))
    for trial in range(300):
        X = rng.normal(size=(1, d))
        X /= np.linalg.norm(X) * (1.0 if trial % 2 else rng.uniform(1, 3))
        last, event = np.array([rng.integers(m) if trial % 3 else m - 1]), np.array([trial % 3 == 1])
        rows, y = expand(X, last, event, m)
        sweep = Rows.build([(rows, y)]).with_weight([np.full(m, person_weight(m))]).sweep()
        point[0, 0] = rng.normal(size=d + m) * 10.0 ** rng.uniform(-2, 2)
        if trial % 4 == 0:
            point[0, 0, d:] = 60.0  # everybody is expected to have the event at once
        if trial % 4 == 1:
            point[0, 0] = 0.0  # where the logistic loss bends most
        gradient = float(np.linalg.norm(sweep.gradient(Logistic(), point)))
        bent = float(np.linalg.norm(sweep.hessian(Logistic(), point, diagonal=False)[0], 2))
        assert gradient <= 1.0 and bent <= 0.25
        steepest, most_bent = max(steepest, gradient), max(most_bent, bent)
    assert steepest > 0.999
    assert most_bent > 0.25 * person_weight(m) * (m + 1) / 2 * 0.999  # m s^2 + t^2 of one half each


def test_more_weight_would_break_the_bound() -> None:
    rows, y = expand(np.array([[1.0]]), np.array([3]), np.array([False]), 4)
    heavy = Rows.build([(rows, y)]).with_weight([np.full(4, 1.01 * person_weight(4))]).sweep()
    assert float(np.linalg.norm(heavy.gradient(Logistic(), np.full((1, 1, 5), 60.0)))) > 1.0
    assert person_weight(4) > 1 / 4 and person_weight(1) == pytest.approx(1.0)


def test_without_noise_it_is_the_logistic_regression_of_the_expanded_rows() -> None:
    X, time, event = people(4000)
    model = ConsensusSurvival(
        EDGES, epsilon=np.inf, trust="curator", data_norm=1.5, knobs={"rho": 1e-7}, random_state=0
    )
    model.set_params(rounds=150).fit(X, time, event)
    rows, y = expand(X / 1.5, intervals(time, event, EDGES), event, 4)
    plain = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000).fit(rows[y != 0], y[y != 0])
    np.testing.assert_allclose(model.coef_, plain.coef_[0, :2] * np.sqrt(0.5) / 1.5, atol=0.01)
    np.testing.assert_allclose(model.intercept_, plain.coef_[0, 2:] * np.sqrt(0.5), atol=0.01)


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_known_hazards_are_found_and_the_statement_speaks_of_people(trust: str) -> None:
    X, time, event = people(20_000)
    model = ConsensusSurvival(EDGES, epsilon=4.0, trust=trust, data_norm=1.5, random_state=0).fit(X, time, event)
    np.testing.assert_allclose(model.coef_, SLOPES, atol=0.15)
    np.testing.assert_allclose(model.predict_hazard([[0.0, 0.0]])[0], HAZARDS, atol=0.03)
    curve = model.predict_survival([[0.5, 0.0], [-0.5, 0.0]])
    assert np.all(np.diff(curve, axis=1) < 0) and np.all(curve[0] < curve[1])
    said = model.privacy_spent_
    assert said["epsilon"] <= 4.0 and said["unit"] == "one person with up to 4 rows at one site"
    assert "its probability with the person is at most" in said["says"] and "another in their place" in said["says"]


def test_groups_clones_and_people_without_a_time() -> None:
    X, time, event = people(3000)
    time[:5] = np.nan
    model = clone(ConsensusSurvival(EDGES, data_norm=1.5, random_state=0))
    with pytest.warns(HolderNote, match="5 of 3000 people"):
        model.fit(X, time, event, groups=np.arange(3000) % 3)
    assert model.sites_.tolist() == [0, 1, 2] and model.n_features_in_ == 2
    out = ConsensusSurvival(EDGES, data_norm=1.5, random_state=0, knobs={"relation": "zero-out"}).fit(
        X[5:], time[5:], event[5:]
    )
    assert "nobody in their place" in out.privacy_spent_["says"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"edges": [0]}, "two or more"), ({"edges": [0, 2, 1]}, "increasing"), ({"edges": [0, np.inf]}, "finite"),
        ({"trust": "everybody"}, "must be one of"), ({"data_norm": 0.0}, "data_norm"), ({"epsilon": -1.0}, "epsilon"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(parameters: dict[str, Any], said: str) -> None:
    X, time, event = people(100)
    with pytest.raises(InvalidInput, match=said):
        ConsensusSurvival(**({"edges": EDGES, "random_state": 0} | parameters)).fit(X, time, event)
    with pytest.raises(InvalidInput, match="one value for each"):
        ConsensusSurvival(EDGES, random_state=0).fit(X, time[1:], event)
