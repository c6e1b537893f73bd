"""`fit(..., coef_init=, intercept_init=)`: a public model to start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.errors import InvalidInput

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
SCORES = X @ RNG.normal(size=(3, 3))
Y = {
    2: np.where(SCORES[:, 0] > 0, "yes", "no"),
    3: np.array(["a", "b", "c"])[SCORES.argmax(axis=1)],
}
CLASSES = {2: ["no", "yes"], 3: ["a", "b", "c"]}


def model(K: int, **changes: Any) -> ConsensusClassifier:
    common = {
        "method": "prox_admm",
        "epsilon": 2.0,
        "delta": 1e-5,
        "n_sites": 2,
        "rounds": 3,
        "data_norm": 3.0,
    }
    return ConsensusClassifier(**(common | {"classes": CLASSES[K], "random_state": 0} | changes))


CASES = [
    (K, loss, intercept)
    for K in (2, 3)
    for loss in ("logistic", "softmax")
    for intercept in (True, False)
]


@pytest.mark.parametrize(("K", "loss", "intercept"), CASES)
def test_a_heavy_regulariser_keeps_the_model_at_the_start(
    K: int, loss: str, intercept: bool
) -> None:
    outputs = 1 if K == 2 else K
    coef, constant = RNG.normal(size=(outputs, 3)), RNG.normal(size=outputs)
    heavy = model(
        K, loss=loss, fit_intercept=intercept, knobs={"rho": 1e5}, epsilon=np.inf, delta=None
    )
    init = {"coef_init": coef} | ({"intercept_init": constant} if intercept else {})
    heavy.fit(X, Y[K], **init)
    np.testing.assert_allclose(heavy.coef_, coef, atol=1e-3)
    np.testing.assert_allclose(
        heavy.intercept_, constant if intercept else np.zeros(outputs), atol=1e-3
    )
    assert "given as public" in heavy.privacy_spent_["caveat"]


@pytest.mark.parametrize(("K", "loss"), [(2, "logistic"), (3, "logistic"), (3, "softmax")])
def test_start_at_zeros_equals_no_start_and_costs_the_same(K: int, loss: str) -> None:
    outputs = 1 if K == 2 else K
    none, zero, away = (model(K, loss=loss) for _ in range(3))
    none.fit(X, Y[K])
    zero.fit(X, Y[K], None, np.zeros((outputs, 3)))
    away.fit(csr_array(X), Y[K], coef_init=np.ones((outputs, 3)), intercept_init=np.ones(outputs))
    assert np.array_equal(none.coef_, zero.coef_) and np.array_equal(
        none.intercept_, zero.intercept_
    )
    assert (
        none.privacy_spent_["epsilon"]
        == away.privacy_spent_["epsilon"]
        == zero.privacy_spent_["epsilon"]
    )
    assert not np.allclose(none.coef_, away.coef_)


def test_start_accepts_flat_arrays_at_one_site() -> None:
    one = PrivateClassifier(
        epsilon=np.inf, knobs={"rho": 1e5}, data_norm=3.0, classes=CLASSES[2], random_state=0
    )
    one.fit(X, Y[2], coef_init=[1.0, 2.0, -1.0], intercept_init=0.5)
    np.testing.assert_allclose(one.coef_, [[1.0, 2.0, -1.0]], atol=1e-3)
    np.testing.assert_allclose(one.intercept_, [0.5], atol=1e-3)


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ({"coef_init": np.ones((1, 2))}, r"^coef_init: must be finite numbers of shape \(1, 3\)"),
        ({"coef_init": [[1.0, np.nan, 0.0]]}, r"^coef_init: must be finite"),
        ({"coef_init": [["u", "v", "w"]]}, r"^coef_init: "),
        (
            {"intercept_init": [1.0, 2.0]},
            r"^intercept_init: must be finite numbers of shape \(1,\)",
        ),
    ],
)
def test_invalid_start_is_refused(init: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        model(2).fit(X, Y[2], **init)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="no intercept"):
        model(2, fit_intercept=False).fit(X, Y[2], intercept_init=[1.0])
