"""003, Theorem 3.6 with constants, and why no random matrix in the regulariser protects rows
(6.1).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from sottovoce.errors import InvalidInput
from sottovoce_papers.utility import generalised_objective_perturbation


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_the_bound_holds_and_is_not_idle(delta: float | None) -> None:
    """A quadratic objective: J = 1/2 ||f - a||^2, whose private minimiser is known in closed
    form.
    """
    rng = np.random.default_rng(0)
    n, d, epsilon = 50, 6, 0.5
    a = rng.normal(size=d)
    says = generalised_objective_perturbation(
        n=n, d=d, epsilon=epsilon, norm=float(np.linalg.norm(a)), delta=delta
    )
    b = rng.normal(size=(4000, d))
    if delta is None:
        b *= rng.gamma(d, 2.0 / epsilon, size=4000)[:, None] / np.linalg.norm(
            b, axis=1, keepdims=True
        )
    else:
        b *= math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    f = (a - b / n) / (1 + says.Delta / n)
    lost = float(np.mean(0.5 * ((f - a) ** 2).sum(axis=1)))
    assert 0.02 * says.bound < lost <= says.bound
    assert says.best <= says.bound
    half = generalised_objective_perturbation(n=2 * n, d=d, epsilon=epsilon, norm=1.0, delta=delta)
    one = generalised_objective_perturbation(n=n, d=d, epsilon=epsilon, norm=1.0, delta=delta)
    assert half.order == pytest.approx(one.order / 2) and half.bound == pytest.approx(one.bound / 2)


@pytest.mark.parametrize(
    ("name", "value"), [("n", 0), ("epsilon", math.inf), ("norm", -1.0), ("delta", 2.0), ("d", 1)]
)
def test_bad_numbers_are_refused(name: str, value: float) -> None:
    given = {"n": 10, "d": 3, "epsilon": 1.0, "norm": 1.0} | {name: value}
    with pytest.raises(InvalidInput, match=name):
        generalised_objective_perturbation(**given)  # type: ignore[arg-type]


def test_matrix_perturbation_answers_in_disjoint_half_spaces() -> None:
    """Pairs of rows that cancel, and a last row x or -x: the answer's side of x tells which,
    whatever M is.
    """
    rng = np.random.default_rng(1)
    pairs, x = rng.normal(size=(5, 3)) / 3, np.array([0.6, -0.3, 0.2])
    sides = {1.0: [], -1.0: []}
    for sign, found in sides.items():
        a = np.vstack([pairs, -pairs, sign * x])
        for _ in range(20):
            root = rng.normal(size=(3, 3))
            M = root @ root.T + 1e-3 * np.eye(3)

            def objective(f: np.ndarray, a: np.ndarray = a, M: np.ndarray = M) -> float:
                return float(np.logaddexp(0.0, -a @ f).mean() + 0.05 * f @ M @ f)

            found.append(float(minimize(objective, np.zeros(3), tol=1e-12).x @ x))
    assert min(sides[1.0]) > 0 > max(sides[-1.0])
