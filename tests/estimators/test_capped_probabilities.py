"""Probabilities of a capped model: what they are instead, and that everybody who asks for them
is told.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from sottovoce import ConsensusClassifier
from sottovoce.errors import NotCalibrated
from sottovoce.problem.clipped import NOT_CALIBRATED, clip_gradients
from sottovoce.problem.losses import make_loss
from sottovoce.util.typing import Array


def problem(classes: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=150)
    return rng.normal(size=(classes, 3))[y] + rng.normal(size=(150, 3)), y


@pytest.mark.parametrize("k", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("share", [0.55, 0.6, 0.9, 0.99])
def test_unpenalised_capped_probabilities_are_too_extreme(k: float, share: float) -> None:
    """Rows alike, of norm 1, a share of them positive: the stated probability is 1 - k (1 -
    share) / share.
    """
    loss = clip_gradients(make_loss("logistic"), k)

    def derivative(z: float) -> float:
        ahead, behind = loss.derivative(np.array([z, -z]))
        return float(share * ahead - (1.0 - share) * behind)

    said = expit(brentq(derivative, -40.0, 40.0, xtol=1e-12))
    assert said == pytest.approx(1.0 - k * (1.0 - share) / share, abs=1e-9) and said > share


@pytest.mark.filterwarnings("ignore:the model gives")
def test_penalised_capped_probabilities_may_be_closer_to_one_half_than_the_share() -> None:
    """All rows are positive, and yet the cap keeps ||w|| below c over the penalty's weight."""
    X, y = np.tile([[1.0, 0.0]], (40, 1)), np.arange(40) % 20 == 0
    model = ConsensusClassifier(
        "dgd",
        epsilon=np.inf,
        n_sites=1,
        rounds=60,
        knobs={"rho": 0.5, "eta": 1.0, "max_grad_norm": 0.1},
        random_state=0,
        fit_intercept=False,
    ).fit(X, ~y)
    with pytest.warns(NotCalibrated):
        said = model.predict_proba(X[:1])[0, 1]
    assert 0.5 < said <= expit(0.1 / 0.5) + 1e-3 and said < 0.95


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("logistic", 3), ("softmax", 3)])
def test_predict_proba_of_a_capped_model_warns_once(loss: str, classes: int) -> None:
    X, y = problem(classes)
    given = {
        "epsilon": np.inf,
        "n_sites": 2,
        "rounds": 3,
        "random_state": 0,
        "data_norm": 5.0,
        "loss": loss,
    }
    bare = ConsensusClassifier("prox_admm", **given).fit(X, y)
    capped = ConsensusClassifier("prox_admm", knobs={"max_grad_norm": 0.2}, **given).fit(X, y)
    assert bare.max_grad_norm_ == np.inf and capped.max_grad_norm_ == 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (
            bare.predict_proba(X),
            bare.predict_log_proba(X),
            capped.predict(X),
            capped.decision_function(X),
        )
    for ask in (capped.predict_proba, capped.predict_log_proba):
        with pytest.warns(NotCalibrated) as heard:
            answer = ask(X)
        assert [str(one.message) for one in heard] == [NOT_CALIBRATED] and answer.shape == (
            150,
            classes,
        )
