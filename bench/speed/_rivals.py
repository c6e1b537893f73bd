"""What one would use instead of ours: four local solvers, and 002's R-ADMM as a plain loop
around any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from sottovoce.data.rows import Rows
from sottovoce.network.graphs import make_graph
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.losses import Logistic
from sottovoce.runs.simulate import Result
from sottovoce.util.typing import Array

C, RHO, ETA, GAMMA, ALPHA, NODES, TOL = 1750.0, 0.22, 1.0, 0.5, 1.0, 5, 1e-8
LOSS = Logistic()
Solve = Callable[[Array, float, float, Array, float, Array, float], Array]
"""``solve(a, C, n, linear, q, start, goal) -> w`` with a gradient norm of at most `goal`."""


def value_and_gradient(
    a: Array, C: float, n: float, linear: Array, q: float, w: Array
) -> tuple[float, Array]:
    """Of the local objective at w."""
    z = a @ w
    value = C / n * float(LOSS.value(z).sum()) + float(linear @ w) + q / 2 * float(w @ w)
    return value, C / n * (LOSS.derivative(z) @ a) + linear + q * w


def lbfgs(
    a: Array, C: float, n: float, linear: Array, q: float, start: Array, goal: float
) -> Array:
    """scipy's L-BFGS-B."""
    x = start
    for _ in range(20):  # its stopping rule bounds the largest entry; ask until the norm is reached
        answer = minimize(
            lambda w: value_and_gradient(a, C, n, linear, q, w),
            x,
            jac=True,
            method="L-BFGS-B",
            options={"gtol": goal / math.sqrt(len(x)), "ftol": 0.0, "maxiter": 1000, "maxls": 50},
        )
        x = answer.x
        if np.linalg.norm(answer.jac) <= goal:
            return x
    raise RuntimeError("L-BFGS-B missed its certificate")


def newton(
    a: Array, C: float, n: float, linear: Array, q: float, start: Array, goal: float
) -> Array:
    """Newton's method with the full Hessian, Cholesky, and halving until the value falls."""
    w = start
    value, g = value_and_gradient(a, C, n, linear, q, w)
    for _ in range(100):
        if np.linalg.norm(g) <= goal:
            return w
        bends = LOSS.curvature(a @ w)
        hessian = C / n * ((a * bends[:, None]).T @ a) + q * np.eye(len(w))
        step = -cho_solve(cho_factor(hessian), g)
        t, room = 1.0, 1e-13 * max(1.0, abs(value))  # rounding hides falls smaller than this
        while True:
            new, g_new = value_and_gradient(a, C, n, linear, q, w + t * step)
            if new <= value + 1e-4 * t * float(g @ step) + room or t < 1e-6:
                break
            t /= 2
        w, value, g = w + t * step, new, g_new
    raise RuntimeError("Newton missed its certificate")


def newton_cholesky(a: Array, C: float, n: float, q: float, goal: float) -> Array:
    """scikit-learn, without the linear term: min (C/n) sum loss + q/2 ||w||^2 = q (weight sum
    loss + ||w||^2 / 2).
    """
    from sklearn.linear_model import LogisticRegression

    # A row times -1 with its label flipped is the same row, and scikit-learn needs two classes.
    y = np.where(np.arange(len(a)) % 2, 1.0, -1.0)
    weight = C / (n * q)
    # Its gradient is ours over C (data as a mean); it bounds the largest entry.
    model = LogisticRegression(
        C=weight,
        fit_intercept=False,
        solver="newton-cholesky",
        tol=goal / C / math.sqrt(a.shape[1]),
        max_iter=1000,
    )
    return np.asarray(model.fit(a * y[:, None], y).coef_[0])


def by_cvxpy(a: Array, C: float, n: float, linear: Array, q: float) -> Array:
    """CVXPY with its default solver, built anew as research code does in every round."""
    import cvxpy as cp

    w = cp.Variable(a.shape[1])
    objective = C / n * cp.sum(cp.logistic(-(a @ w))) + linear @ w + q / 2 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(objective)).solve()
    return np.asarray(w.value)


@dataclass
class Loop:
    """002, Algorithm 3 with one penalty, over the keyed noise of a run of ours."""

    rows: Rows
    run: Result

    def __post_init__(self) -> None:
        self.signed = [self.rows.rows_of_node(i).signed[0] for i in range(NODES)]
        self.graph = make_graph("ring", NODES)
        self.noise = KeyedNoise(0, [0], range(NODES))  # replicate 0
        self.worst = 0.0

    def problem(
        self, k: int, i: int, linear: Array, b: Array
    ) -> tuple[Array, float, float, Array, float]:
        """Node i's local problem of release k."""
        n, event = float(self.rows.n[i, 0]), self.run.ledger[k - 1]
        q = RHO / NODES + 2 * ETA * self.graph.degree[i, 0]
        return self.signed[i], C, n, linear[i] + C / n * b[i] / event["beta"][i], q

    def __call__(self, solve: Solve, rounds: int) -> Array:
        """Models (N, d) after so many rounds; `worst` is the largest gradient norm after a
        single one.
        """
        d, degree, adjacency = self.rows.d, self.graph.degree, self.graph.adjacency
        f, lam, g = np.zeros((NODES, d)), np.zeros((NODES, d)), np.zeros((NODES, d))
        S, goal = adjacency @ f, C * TOL
        self.worst = 0.0
        for k in range(1, rounds + 1):
            if k % 2:
                release = (k + 1) // 2
                b, q = self.noise.draw_spherical(d, release)[0], RHO / NODES + 2 * ETA * degree
                public, answer = 2 * lam - ETA * (degree * f + S), np.empty_like(f)
                for i in range(NODES):
                    problem = self.problem(release, i, public, b)
                    answer[i] = solve(*problem, f[i], goal)
                    if rounds == 1:  # not while a whole run is timed
                        self.worst = max(
                            self.worst,
                            float(np.linalg.norm(value_and_gradient(*problem, answer[i])[1])),
                        )
                rate = np.array(self.run.ledger[release - 1]["beta_release"])[:, None]
                f = self.noise.add_spherical(answer[None], rate, np.zeros(1), release)[0]
                g = -public - (q - RHO / NODES) * f
                S = adjacency @ f
                lam = lam + ETA / 2 * (degree * f - S)
            else:
                f = f - (2 * lam + g + ETA * (degree * f - S)) / (2 * ETA * degree + GAMMA)
                S = adjacency @ f
        return f
