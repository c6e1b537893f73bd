"""Weights of rows and of classes in the estimators: capped by public numbers, and refused where
they would not be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from sottovoce import ConsensusClassifier, ConsensusRegressor, PrivateClassifier, PrivateRegressor
from sottovoce.errors import HolderNote, InvalidInput

pytestmark = pytest.mark.filterwarnings("ignore:the model gives")  # weights make one class commoner
RHO = {"rho": 1e-3}
FREE: dict[str, Any] = {
    "method": "admm",
    "epsilon": np.inf,
    "n_sites": 1,
    "rounds": 1,
    "data_norm": 3.0,
}


def rows(n: int = 1200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = np.where(X[:, 0] + 0.5 * rng.logistic(size=n) > 0, "yes", "no")
    return X, y, rng.uniform(0, 4, n)


def test_without_noise_it_is_scikit_learns_weighted_fit() -> None:
    X, y, w = rows()
    with pytest.warns(HolderNote, match="above max_weight"):
        found = ConsensusClassifier(random_state=0, knobs=RHO | {"max_weight": 3.0}, **FREE).fit(
            X, y, sample_weight=w
        )
    Z = np.hstack([X / 3.0, np.ones((len(X), 1))]) / np.sqrt(2)
    C = 1.0 / (len(X) * 1e-3)
    plain = LogisticRegression(C=C, fit_intercept=False, tol=1e-10).fit(
        Z, y, sample_weight=np.minimum(w, 3) / 3
    )
    np.testing.assert_allclose(found.coef_[0], plain.coef_[0, :2] / 3 / np.sqrt(2), rtol=1e-4)
    sparse = ConsensusClassifier(random_state=0, knobs=RHO | {"max_weight": 4.0}, **FREE).fit(
        csr_array(X), y, sample_weight=w
    )
    dense = ConsensusClassifier(random_state=0, knobs=RHO | {"max_weight": 4.0}, **FREE).fit(
        X, y, sample_weight=w
    )
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6)
    assert not np.allclose(
        dense.coef_,
        ConsensusClassifier(random_state=0, knobs=RHO, **FREE).fit(X, y).coef_,
        rtol=1e-3,
    )


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_class_weights_are_sample_weights_of_the_classes(loss: str) -> None:
    X, y, _ = rows()
    terms = FREE | {"loss": loss, "random_state": 0}
    found = ConsensusClassifier(class_weight={"yes": 4}, knobs=RHO, **terms).fit(X, y)
    by_rows = np.where(y == "yes", 4.0, 1.0)
    same = ConsensusClassifier(knobs=RHO | {"max_weight": 4.0}, **terms).fit(
        X, y, sample_weight=by_rows
    )
    np.testing.assert_array_equal(found.coef_, same.coef_)
    plain = ConsensusClassifier(knobs=RHO, **terms).fit(X, y)
    assert np.sum(found.predict(X) == "yes") > np.sum(plain.predict(X) == "yes") + 50


def test_the_price_of_a_weighted_fit_is_that_of_the_fit() -> None:
    X, y, w = rows()
    terms: dict[str, Any] = {
        "data_norm": 1.5,
        "random_state": 0,
        "knobs": {"max_weight": 4.0},
        "classes": ["no", "yes"],
    }
    fits = [
        ConsensusClassifier("prox_admm", rounds=3, **terms).fit(X, y, sample_weight=v)
        for v in (None, w)
    ]
    said = [fit.privacy_spent_ for fit in fits]
    assert not np.array_equal(fits[0].coef_, fits[1].coef_)
    assert said[0]["epsilon"] == said[1]["epsilon"] <= 1.0
    alone = PrivateClassifier("objective", **terms).fit(X, y, sample_weight=w)
    assert alone.privacy_spent_["epsilon"] <= 1.0


@pytest.mark.parametrize("kind", [ConsensusRegressor, PrivateRegressor])
@pytest.mark.parametrize("loss", ["squared", "log-cosh:0.25"])
def test_regressors_use_sample_weights(kind: Any, loss: str) -> None:
    X, _, _ = rows(6000)
    bad = np.arange(6000) % 2 == 0
    y = 10.0 + np.where(bad, -4.0, 4.0) * X[:, 0]
    weight = np.where(bad, 0.0, 2.0)
    terms: dict[str, Any] = {"data_norm": 1.5, "epsilon": 8.0, "random_state": 0, "loss": loss}
    model = kind((0.0, 20.0), knobs={"rho": 0.01, "max_weight": 2.0}, **terms).fit(
        X, y, sample_weight=weight
    )
    assert model.score(X[~bad], y[~bad]) > 0.6 and model.privacy_spent_["epsilon"] <= 8.0


def test_a_release_needs_a_declared_cap_and_a_simulation_says_that_it_read_one() -> None:
    X, y, w = rows(300)
    for model, target in (
        (ConsensusClassifier(classes=["no", "yes"]), y),
        (ConsensusRegressor((0, 1)), X[:, 0]),
    ):
        with pytest.raises(InvalidInput, match=r"^max_weight: .*private"):
            model.fit(X, target, sample_weight=w)
    terms: dict[str, Any] = {"classes": ["no", "yes"], "random_state": 0, "data_norm": 1.5}
    said = (
        ConsensusClassifier("prox_admm", **terms).fit(X, y, sample_weight=w).privacy_spent_["says"]
    )
    assert "largest weight" in said
    said = (
        ConsensusClassifier("prox_admm", knobs={"max_weight": 4.0}, **terms)
        .fit(X, y, sample_weight=w)
        .privacy_spent_["says"]
    )
    assert "read off" not in said


@pytest.mark.parametrize(
    ("parameters", "weights", "said"),
    [
        ({"knobs": {"max_weight": 2.0}}, -1.0, "0 or more"),
        ({"knobs": {"max_weight": 2.0}}, np.nan, "0 or more"),
        ({"knobs": {"max_weight": 0.0}}, 1.0, "number above 0"),
        ({"knobs": {"max_weight": 2.0}, "inference": True}, 1.0, "equal weight"),
        ({"class_weight": "balanced"}, None, "without charging"),
        ({"class_weight": {"perhaps": 2}}, None, "declared class"),
        ({"class_weight": {"yes": -2}}, None, "0 or more"),
    ],
)
def test_invalid_weights_are_refused(
    parameters: dict[str, Any], weights: float | None, said: str
) -> None:
    X, y, w = rows(300)
    given = None if weights is None else np.where(np.arange(300) == 7, weights, w)
    with pytest.raises(InvalidInput, match=said) as caught:
        ConsensusClassifier(random_state=0, **parameters).fit(X, y, sample_weight=given)
    assert "nan" not in str(caught.value) and "-1" not in str(caught.value)
