"""ConsensusClassifier: scikit-learn's own checks, the map into the unit ball and back, budgets, sites."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import sottovoce
from sottovoce import ConsensusClassifier
from sottovoce.errors import InvalidInput
from sottovoce.simulate import RunConfig

NOISE_FREE = {"epsilon": math.inf, "method": "admm", "n_sites": 2, "rounds": 60, "eta": 0.01, "rho": 1e-4}

# Documented in docs/estimator.md.
EXPECTED_FAILURES = {
    "check_classifiers_train": "asks for 83% accuracy on 300 rows: at five sites of 60 rows and epsilon 1 the noise "
    "that is proved to protect a row drowns them",
}


def problem(n: int = 400, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = 5.0 * rng.standard_normal((n, d))
    return X, np.where(X @ np.arange(1, d + 1) + 3 + rng.logistic(size=n) > 0, "yes", "no")


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [(ConsensusClassifier(data_norm=10.0, **NOISE_FREE), {}), (ConsensusClassifier(), EXPECTED_FAILURES)],
    ids=["noise-free", "default"],
)
def test_scikit_learns_checks(estimator: ConsensusClassifier, expected: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skipped checks warn; what is skipped is listed in the results
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 45
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)


def test_defaults_are_those_of_a_run() -> None:
    run, ours = RunConfig(), ConsensusClassifier().get_params()
    for name, value in ours.items():
        if hasattr(run, name) and name != "eta_growth":
            assert value == getattr(run, name), name


def test_coefficients_are_in_the_units_of_x() -> None:
    """Rows within data_norm: the linear form in X equals the model's margin on the encoded row."""
    X, y = problem()
    for intercept in (True, False):
        model = ConsensusClassifier(data_norm=100.0, fit_intercept=intercept, random_state=0).fit(X, y)
        norm = math.sqrt(2.0) if intercept else 1.0
        encoded = np.hstack([X / 100.0, np.ones((len(X), 1))]) / norm if intercept else X / 100.0
        assert np.linalg.norm(encoded, axis=1).max() <= 1
        np.testing.assert_allclose(encoded, model._encode(X), rtol=1e-9)
        w = np.append(model.coef_[0] * 100.0, model.intercept_[0]) * norm if intercept else model.coef_[0] * 100.0
        np.testing.assert_allclose(model.decision_function(X), encoded @ w, rtol=1e-9)
        assert model.site_coef_.shape == (5, 3)
        np.testing.assert_allclose(model.site_coef_.mean(axis=0), model.coef_[0], rtol=1e-9)


def test_rows_beyond_the_declared_norm_are_shortened() -> None:
    X, _ = problem()
    encoded = ConsensusClassifier(data_norm=1.0)._encode(1e6 * X)
    np.testing.assert_allclose(np.linalg.norm(encoded, axis=1), 1.0, rtol=1e-9)
    assert np.linalg.norm(encoded, axis=1).max() <= 1.0


def test_without_noise_it_is_logistic_regression_at_the_mapped_c() -> None:
    X, y = problem()
    model = ConsensusClassifier(
        method="admm", epsilon=math.inf, n_sites=4, rounds=400, data_norm=30.0, rho=0.1, eta=0.02, tol=1e-10
    ).fit(X, y)
    reference = LogisticRegression(C=1.0 / (100 * 0.1), fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    reference.fit(model._encode(X), y)
    w = np.append(model.coef_[0] * 30.0, model.intercept_[0]) * math.sqrt(2.0)
    np.testing.assert_allclose(w, reference.coef_[0], atol=1e-5)
    assert math.isinf(model.privacy_spent_["epsilon"])


def test_groups_are_the_sites() -> None:
    X, y = problem()
    groups = np.array(["north", "south", "west"])[np.arange(400) % 20 // 7]
    model = ConsensusClassifier(epsilon=3.0, data_norm=20.0, random_state=1).fit(X, y, groups=groups)
    assert model.sites_.tolist() == ["north", "south", "west"]
    spent = model.privacy_spent_["per_node"]
    assert len(spent) == 3
    assert max(spent) == model.privacy_spent_["epsilon"]
    assert spent[2] > spent[0]  # fewer rows, more spent
    with pytest.raises(InvalidInput, match="groups: must name a site"):
        ConsensusClassifier().fit(X, y, groups=groups[:-1])


@pytest.mark.parametrize("method", ["dvp", "r_admm", "mr_admm"])
def test_spends_what_was_asked(method: str) -> None:
    X, y = problem()
    for epsilon in (0.5, 4.0):
        model = ConsensusClassifier(method=method, epsilon=epsilon, random_state=0).fit(X, y)
        assert epsilon * 0.999 <= model.privacy_spent_["epsilon"] <= epsilon
        assert model.n_iter_ == 10
        assert model.stopped_ == "finished"


def test_noise_is_the_systems_unless_keyed() -> None:
    X, y = problem()
    free = [ConsensusClassifier().fit(X, y) for _ in range(2)]
    keyed = [ConsensusClassifier(random_state=7).fit(X, y) for _ in range(2)]
    assert not np.array_equal(free[0].coef_, free[1].coef_)
    assert np.array_equal(keyed[0].coef_, keyed[1].coef_)
    assert free[0].privacy_spent_["release"]
    assert not keyed[0].privacy_spent_["release"]
    legacy = ConsensusClassifier(random_state=np.random.RandomState(3)).fit(X, y)
    assert not legacy.privacy_spent_["release"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "^epsilon=0.0: must be > 0"),
        ({"epsilon": -1.0}, "^epsilon=-1.0"),
        ({"delta": 1.0}, "^delta=1.0"),
        ({"data_norm": 0.0}, "^data_norm=0.0"),
        ({"method": "nope"}, "^method='nope'"),
        ({"method": "admm"}, "no finite epsilon"),
        ({"n_sites": 1000}, "^nodes=1000"),
        ({"graph": "blob"}, "^graph='blob'"),
        ({"rounds": 0}, "^rounds=0"),
    ],
)
def test_bad_parameters_are_one_line(parameters: dict[str, Any], message: str) -> None:
    X, y = problem(60)
    with pytest.raises(InvalidInput, match=message) as refusal:
        ConsensusClassifier(**parameters).fit(X, y)
    assert "\n" not in str(refusal.value)


def test_plays_with_the_rest_of_scikit_learn() -> None:
    X, y = problem(200)
    model = ConsensusClassifier(data_norm=20.0, **NOISE_FREE)
    assert cross_val_score(model, X, y, cv=3).min() > 0.8
    search = GridSearchCV(make_pipeline(FunctionTransformer(), model), {"consensusclassifier__rho": [1e-4, 1e-2]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.8
    fitted = pickle.loads(pickle.dumps(clone(model).fit(X, y)))
    assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))
    assert not hasattr(ConsensusClassifier(loss="huber:0.5"), "predict_proba")


def test_public_names() -> None:
    assert sorted(sottovoce.__all__) == [
        "ConsensusClassifier", "Report", "Result", "RunConfig", "SottovoceError", "TrainConfig", "__version__", "train",
    ]  # fmt: skip
    assert all(hasattr(sottovoce, name) for name in sottovoce.__all__)
