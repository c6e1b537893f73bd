"""Without noise, every node ends at the centralised minimiser: scikit-learn's, at the mapped C,
on the shipped data.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce import data
from sottovoce.data.rows import Rows
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate
from sottovoce.util.typing import Array

RHO = 0.2
METHODS = {"admm": {}, "r_admm": {}, "mr_admm": {"eta_growth": 1.005}}


Problem = tuple[Rows, Array]


def pooled(images: Array) -> Array:
    """Means of two by two pixels: 196 features of 784, still in the unit ball."""
    return np.asarray(images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196))


@lru_cache
def problem(name: str) -> Problem:
    dataset = data.load(name.removesuffix("-pooled"))
    X = pooled(dataset.X_train) if name.endswith("-pooled") else dataset.X_train
    # sizes differ by a row on MNIST: weights matter
    parts = data.partition("iid", dataset.y_train, 5, 0)
    rows = Rows.build_from_parts([(X[p], dataset.y_train[p]) for p in parts])
    facts = Facts(make_loss("logistic"), rows.n, rows.d, 1.0, RHO, 5)
    weights = np.concatenate(
        [np.full(len(p), s) for p, s in zip(parts, facts.sklearn_weights()[:, 0], strict=True)]
    )
    order = np.concatenate(parts)
    reference = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, solver="newton-cholesky")
    reference.fit(X[order], dataset.y_train[order], sample_weight=weights)
    return rows, reference.coef_[0]


GRAPHS = ["ring", "star", "erdos-renyi:p=0.6"]
# Every method on every graph, by turns on two tables, so that each table has every method and every
# graph: neither a method nor a graph knows which rows the sites have.  All pixels once, as means of
# four have the same rows and a fourth of the columns.
TABLES = ("adult", "mnist37-pooled")
RUNS = [
    (TABLES[(k + m) % 2], method, graph)
    for m, method in enumerate(METHODS)
    for k, graph in enumerate(GRAPHS)
]
RUNS += [("mnist37", "mr_admm", "erdos-renyi:p=0.6")]


@pytest.mark.parametrize(("name", "method", "graph"), RUNS)
def test_every_node_agrees_with_scikit_learn(name: str, method: str, graph: str) -> None:
    rows, centralised = problem(name)
    knobs: dict[str, Any] = {
        "rho": RHO,
        "eta": 0.025,
        "gamma": 0.1,
        "graph": graph,
        "tol": 1e-10,
    } | METHODS[method]
    result = simulate(
        RunConfig.from_dict({"method": method, "epsilon": math.inf, "rounds": 140, **knobs}), rows
    )
    assert np.abs(result.models - centralised).max() < 1e-6
    assert np.abs(centralised).max() > 0.1


@pytest.mark.parametrize("name", ["adult", "mnist37"])
def test_pooled_yardstick_is_scikit_learns(name: str) -> None:
    rows, _ = problem(name)
    flat = rows.signed.reshape(-1, rows.d)
    flat = flat[np.any(flat != 0, axis=1)]
    # rows are signed already: undo with any labels
    y = np.where(np.arange(len(flat)) % 2 == 0, 1.0, -1.0)
    model = LogisticRegression(
        C=100.0 / len(flat), fit_intercept=False, tol=1e-12, solver="newton-cholesky"
    )
    model.fit(flat * y[:, None], y)
    ours = pooled_minimiser(rows, RunConfig(), l2=0.01)
    np.testing.assert_allclose(ours, model.coef_[0], atol=1e-6)
