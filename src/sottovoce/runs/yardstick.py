"""The baseline "without privacy": how well a linear model can do on the same columns.

A private run is compared with the best of several linear models, not with the same fit without
noise: that would have the run's penalty, clipped rows and scale of columns, and comparing with it
would flatter the run.  The models are the converged minimisers of the logistic loss,
of softmax, or of the squared residuals, under :data:`PENALTIES`, on

- the encoded rows, and the encoded rows before any is shortened
  (:attr:`sottovoce.data.schema.Schema.shortens`);
- columns as they are encoded, where the smaller penalty is next to none, and columns of mean 0 and
  variance 1, which scikit-learn's users know.

Of these the one with the least error *on the test rows* counts.  So chosen, it is a little better
than a model that sees training rows alone: that errs on the side that does not flatter the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from .. import data
from ..data.labels import build_rows_for_task
from ..data.schema import ROW
from ..errors import SolverError
from ..problem.task import BoundedNumber, ManyClasses
from ..util.typing import Array
from .simulate import PooledProblem

PENALTIES = {"encoded": (1e-4, 1.0, 100.0), "standardised": (1.0, 100.0)}
"""Weights of ``||w||^2 / 2`` relative to the *sum* of the rows' losses: scikit-learn's 1 / C."""
LEAST_SQUARES = (0.0, 1.0, 100.0)
"""Penalties of the least squares, on standardised columns."""
_CONSTANT = 10.0
"""Value of the added constant column: large, so that the penalty hardly shrinks the intercept."""
_FLAT = 1e-9
"""Columns whose standard deviation is below this share of their mean count as constant."""


def least_nonprivate_error(dataset: data.Dataset) -> float | None:
    """Compute the test error of the best linear model without privacy.

    The error is that of :meth:`sottovoce.problem.task.Task.error`.

    Parameters
    ----------
    dataset : Dataset
        With test rows.  Sample weights count in the fits, and every test row counts once.

    Returns
    -------
    float or None
        None if no model could be fitted: no training row with a label has a positive weight, or
        all solvers failed.  That is not an error, because the private run is finished already.
    """
    task = dataset.task
    known = task.has_known_label(dataset.y_train)
    if dataset.weights is not None:
        # Rows of weight zero change no fit, and a solver has no use for them.
        known = known & (dataset.weights > 0.0)
    if not np.any(known):
        return None
    weights = None
    if dataset.weights is not None:
        weights = dataset.weights[known]
    plain = replace(dataset, y_train=dataset.y_train[known], weights=weights)
    errors = []
    for X, X_test in _encodings_to_try(dataset):
        for margins in _fit_all_models(plain, X[known], X_test):
            errors.append(float(task.error(margins, dataset.y_test)))
    return min(errors, default=None)


def _encodings_to_try(dataset: data.Dataset) -> Iterator[tuple[Array, Array]]:
    """Yield training and test rows as encoded, then, if some were clipped, without clipping."""
    yield dataset.X_train, dataset.X_test
    schema = dataset.schema
    # With `unit` the user asked for rows of norm 1, so these are not undone.
    if schema is not None and not schema.unit and ROW in dataset.clipped:
        whole = schema.encode(dataset.train_columns, labels=False, whole=True).X
        whole_test = schema.encode(dataset.test_columns, labels=False, whole=True).X
        yield whole, whole_test


def _fit_all_models(dataset: data.Dataset, X: Array, X_test: Array) -> Iterator[Array]:
    """Yield margins of test rows, (t,) or (K, t), of every model on rows X.

    Labels and weights are those of `dataset`.
    """
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    varied = deviation > _FLAT * np.maximum(np.abs(mean), np.finfo(float).tiny)

    def standardised(rows: Array) -> Array:
        return _add_constant_column((rows[:, varied] - mean[varied]) / deviation[varied])

    if isinstance(dataset.task, BoundedNumber):
        yield from _fit_least_squares(dataset, standardised(X), standardised(X_test))
        return
    for how, change in (("encoded", _add_constant_column), ("standardised", standardised)):
        rows, rows_test = change(X), change(X_test)
        yield from _fit_minimisers(dataset, rows, rows_test, PENALTIES[how])


def _add_constant_column(X: Array) -> Array:
    """Return rows with a constant, in addition to those of the schema."""
    return np.column_stack([X, np.full(len(X), _CONSTANT)])


def _fit_minimisers(
    dataset: data.Dataset, X: Array, X_test: Array, penalties: Sequence[float]
) -> Iterator[Array]:
    """Yield margins of the minimisers of the logistic loss or softmax under these penalties.

    One is left out if the solver fails.
    """
    task = dataset.task
    # Rows of a run lie in the unit ball, so these are divided by their largest norm, and the
    # penalty by its square; rounding must not put a row outside.
    longest = max(1.0, float(np.sqrt(np.einsum("ij,ij->i", X, X).max()))) * (1.0 + 1e-9)
    weights = None
    if dataset.weights is not None:
        weights = [dataset.weights]
    rows = build_rows_for_task(task, [(X / longest, dataset.y_train)], weights)
    loss = "logistic"
    if isinstance(task, ManyClasses):
        loss = f"softmax:{task.outputs}"
    # To find equal rows takes as long as a fit, so it is done once.
    problem = PooledProblem(rows, loss)
    for penalty in penalties:
        with suppress(SolverError):
            w = problem.minimiser(penalty / (len(X) * longest**2))
            yield task.vectors_by_margin(w) @ (X_test / longest).T


def _fit_least_squares(dataset: data.Dataset, X: Array, X_test: Array) -> Iterator[Array]:
    """Yield margins of ridge regressions."""
    root = np.ones(len(X))
    if dataset.weights is not None:
        root = np.sqrt(dataset.weights)
    # Ridge regression is least squares with a row of sqrt(penalty) and target 0 for each column.
    for penalty in LEAST_SQUARES:
        rows = np.vstack([root[:, None] * X, np.sqrt(penalty) * np.eye(X.shape[1])])
        wanted = np.concatenate([root * dataset.y_train, np.zeros(X.shape[1])])
        yield X_test @ np.linalg.lstsq(rows, wanted, rcond=None)[0]


__all__ = ["least_nonprivate_error"]
