"""One noise-free solve beside the libraries that one would use for it, each to a gradient norm of
1e-8.

The problem is scikit-learn's by default, without an intercept: mean logistic loss plus ``||w||^2 /
(2 n)``, all rows at one site.  `ours` starts from the arrays, as the others do, so that signing,
merging and copying rows count; `solve` is ours without making its rows, which a run does once for
all of its rounds.  A peer gets the loosest tolerance of its own, in powers of ten, with which it
reaches the norm; one that never does has no ratio.  Processor seconds on one thread, all in turn; a
first run of each is not counted, as skglm compiles in it. glum and skglm are no dependencies of
this project: ``pip install glum skglm``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from threadpoolctl import threadpool_limits

from sottovoce import data
from sottovoce.data.rows import Rows
from sottovoce.data.sweep import one_thread_a_product
from sottovoce.problem.losses import Logistic
from sottovoce.solvers.local import Solver

GOAL = 1e-8
OURS = ("ours", "solve")
Fit = Callable[[Any, Any, float], Any]
"""``fit(X, y, tolerance)``: the model, of labels -1 and 1."""


def problems(quick: bool) -> dict[str, tuple[Any, Any]]:
    """Rows of length at most 1, and labels."""
    rng = np.random.default_rng(0)
    dataset = data.load("synthetic:n=500,d=8" if quick else "adult-002")
    n, d = (300, 10) if quick else (200_000, 100)
    dense = rng.standard_normal((n, d))
    dense /= 1.001 * np.linalg.norm(dense, axis=1, keepdims=True)
    of_dense = np.where(dense[:, 0] + 0.1 * rng.standard_normal(n) > 0, 1.0, -1.0)
    n, d, ones = (200, 50, 5) if quick else (16_000, 20_000, 30)
    at = rng.integers(d, size=(n, ones))
    sparse = sp.csr_array(
        (np.full(at.size, 0.99 / np.sqrt(ones)), (np.repeat(np.arange(n), ones), at.ravel())),
        (n, d),
    )
    sparse.sum_duplicates()
    sparse.data = np.minimum(sparse.data, 0.99 / np.sqrt(ones))
    return {
        "Adult": (dataset.X_train, dataset.y_train),
        "dense": (dense, of_dense),
        "sparse": (sparse, np.where(at[:, 0] < d // 3, 1.0, -1.0)),
    }


def norm(X: Any, y: Any, w: Any) -> float:
    """Of the objective's gradient."""
    slopes = -y * expit(-y * (X @ w))
    return float(np.linalg.norm((X.T @ slopes + w) / len(y)))


def solve(rows: Rows, tolerance: float) -> Any:
    zero, q = np.zeros((1, 1, rows.d)), 1.0 / rows.n[:, :, None]
    return Solver(rows, Logistic(), 1.0).minimise(zero, q, zero, tolerance).w.ravel()


def ours(X: Any, y: Any, tolerance: float) -> Any:
    return solve(Rows.build_from_parts([(X, y)]), tolerance)


def scikit(solver: str) -> Fit:
    def fit(X: Any, y: Any, tolerance: float) -> Any:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(
            solver=solver, fit_intercept=False, tol=tolerance, max_iter=10_000
        )
        return model.fit(X, y).coef_[0]

    return fit


def glum(X: Any, y: Any, tolerance: float) -> Any:
    from glum import GeneralizedLinearRegressor

    model = GeneralizedLinearRegressor(
        family="binomial",
        alpha=1.0 / len(y),
        l1_ratio=0.0,
        fit_intercept=False,
        gradient_tol=tolerance,
        max_iter=1000,
        solver="lbfgs" if sp.issparse(X) else "irls-ls",
    )
    rows = sp.csc_matrix(X) if sp.issparse(X) else X
    return model.fit(rows, (y > 0).astype(float)).coef_


def skglm(X: Any, y: Any, tolerance: float) -> Any:
    from skglm.datafits import Logistic as Datafit
    from skglm.penalties import L2
    from skglm.solvers import LBFGS

    rows = sp.csc_matrix(X) if sp.issparse(X) else X
    return LBFGS(max_iter=10_000, tol=tolerance).solve(rows, y, Datafit(), L2(1.0 / len(y)))[0]


PEERS: dict[str, tuple[Fit, str]] = {
    "lbfgs": (scikit("lbfgs"), "sklearn"),
    "newton-cholesky": (scikit("newton-cholesky"), "sklearn"),
    "newton-cg": (scikit("newton-cg"), "sklearn"),
    "glum": (glum, "glum"),
    "skglm": (skglm, "skglm"),
}


def reached(fit: Fit, X: Any, y: Any) -> float | None:
    """The loosest tolerance with which the norm is reached."""
    for power in range(7, 15):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if norm(X, y, fit(X, y, 10.0**-power)) <= GOAL:
                return 10.0**-power
    return None


def peers(quick: bool, repeats: int) -> dict[str, Any]:
    """Seconds of all, and ratios to ours."""
    answer: dict[str, Any] = {}
    for name, (X, y) in problems(quick).items():
        wide = X.shape[1] > 5000
        rows = Rows.build_from_parts([(X, y)])
        fits: dict[str, tuple[Fit, float]] = {"ours": (ours, GOAL)}
        fits["solve"] = (lambda X, y, tolerance, rows=rows: solve(rows, tolerance)), GOAL
        for peer, (fit, library) in PEERS.items():
            if find_spec(library) is None:
                answer[f"peer_{name}_{peer}"] = f"skipped: {library} is not installed"
            elif wide and peer == "newton-cholesky":
                answer[f"peer_{name}_{peer}"] = (
                    "skipped: it would store a Hessian of that many columns"
                )
            else:
                with threadpool_limits(1):
                    tolerance = reached(fit, X, y)
                if tolerance is None:
                    answer[f"peer_{name}_{peer}"] = "misses the norm at every tolerance"
                else:
                    fits[peer] = fit, tolerance
        took: dict[str, list[float]] = {peer: [] for peer in fits}
        for k in range(repeats + 1):
            for peer, (fit, tolerance) in fits.items():
                with threadpool_limits(1), one_thread_a_product(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    start = time.process_time()
                    w = fit(X, y, tolerance)
                    seconds = time.process_time() - start
                if k:
                    took[peer].append(seconds)
                if peer in OURS:
                    assert norm(X, y, w) <= GOAL, "ours misses its certificate"
        answer |= {f"seconds_{name}_{peer}": median(all_) for peer, all_ in took.items()}
        answer |= {
            f"ratio_{name}_{peer}{'_solve' if own == 'solve' else ''}": float(
                median(np.divide(all_, took[own]))
            )
            for own in OURS
            for peer, all_ in took.items()
            if peer not in OURS
        }
    return answer
