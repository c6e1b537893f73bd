"""Bound U1: pure epsilon of objective perturbation, in closed form.

The proof is in docs/privacy/objective_perturbation.md.  Notation: *sum scale* (see
:mod:`sottovoce.problem.facts`).  A release is ``w* = argmin sum_k loss(y_k w.x_k) + Q(w) + b.w``
with rows in the unit ball and ``Q`` public and K-strongly convex; ``Delta`` is 2 for replace-one
and 1 for zero-out.
"""

from __future__ import annotations

import numpy as np

from ..util.bisection import bisect_elementwise
from ..util.typing import Array, ArrayLike


def objective_perturbation_epsilon(
    beta: ArrayLike, K: ArrayLike, *, delta_gradient: float, curvature_bound: float, logistic: bool
) -> Array:
    """Return pure epsilon of releasing the exact minimiser, by U1.

    The noise in the objective has density ``exp(-beta ||b||)``.

    Parameters
    ----------
    beta : array
        Rate of the noise in sum scale, > 0.
    K : array
        Strong convexity in sum scale of everything except the loss, > 0.
    delta_gradient : float
        Rows whose gradients change between neighbours, 1 or 2, times the loss's derivative bound L.
    curvature_bound : float
        ``c1``, the supremum of the loss's second derivative.
    logistic : bool
        Whether the loss obeys ``curvature = a (1 - a)`` with ``a = |derivative|``.

    Returns
    -------
    array
        ``Delta beta + ln(1 + c1/K)`` in general, and the smaller
        ``(Delta - 1) beta + max_{0<=a<=1} [beta a + ln(1 + a(1-a)/K)]`` for the logistic loss.

    Notes
    -----
    ``docs/privacy/objective_perturbation.md``, U1: ``b = -grad F(w)`` is a bijection
    between noise and minimiser.  The noise's density changes by at most ``exp(beta (a + a'))``,
    with a, a' the sizes of the two rows' derivatives, and the Jacobian by at most ``1 + c / K``
    with c the row's curvature: ``c <= c1``, or ``c = a (1 - a)``.  That bracket is concave, and
    largest where ``beta (K + a - a^2) + 1 - 2a = 0``, or at 1 if ``beta K >= 1``.

    The first form holds for derivatives of both signs, with ``Delta L`` for Delta, but no event has
    such a price.
    """
    beta, K = np.asarray(beta, dtype=float), np.asarray(K, dtype=float)
    if not logistic:
        return delta_gradient * beta + np.log1p(curvature_bound / K)
    # The form of the quadratic's root without cancellation: the other one loses all digits at small
    # beta.
    root = 2.0 * (beta * K + 1.0) / (2.0 - beta + np.sqrt(beta**2 + 4.0 + 4.0 * beta**2 * K))
    # The bracket is concave, with derivative beta - 1 / K at a = 1: from beta K = 1 on its maximum
    # is there.
    a = np.where(beta * K >= 1.0, 1.0, np.clip(root, 0.0, 1.0))
    return (delta_gradient - 1.0) * beta + beta * a + np.log1p(a * (1.0 - a) / K)


def objective_perturbation_rate(
    epsilon: ArrayLike,
    K: ArrayLike,
    *,
    delta_gradient: float,
    curvature_bound: float,
    logistic: bool,
) -> Array:
    """Return the largest noise rate at which objective perturbation costs at most `epsilon`.

    It inverts :func:`objective_perturbation_epsilon`.

    Parameters
    ----------
    epsilon : array
        Pure epsilon of one release, > 0.
    K : array
        Strong convexity in sum scale of everything except the loss, > 0; it broadcasts with
        `epsilon`.
    delta_gradient, curvature_bound, logistic
        As for :func:`objective_perturbation_epsilon`.

    Returns
    -------
    array
        Rate ``beta`` of the noise in sum scale; NaN where no rate is enough, as the curvature alone
        costs more.

    Notes
    -----
    The bound increases in ``beta`` (each bracket does) and is at least ``Delta beta``
    (take ``a = 1``), so the answer lies below ``epsilon / Delta``; bisection keeps the invariant
    ``price(low) <= epsilon``.
    """
    epsilon, K = np.broadcast_arrays(np.asarray(epsilon, dtype=float), np.asarray(K, dtype=float))

    def price(beta: Array) -> Array:
        return objective_perturbation_epsilon(
            beta,
            K,
            delta_gradient=delta_gradient,
            curvature_bound=curvature_bound,
            logistic=logistic,
        )

    # The price is at least Delta beta, so that the answer lies below epsilon / Delta.
    low = epsilon * 1e-12
    high = epsilon / delta_gradient
    # The largest rate that gradients alone allow fits where the log-determinant is free.
    if np.all(price(high) <= epsilon):
        return high
    low = bisect_elementwise(lambda beta: price(beta) <= epsilon, low, high * (1.0 + 1e-12), 80)[0]
    # The lower end keeps price(low) <= epsilon, unless no rate is enough.
    return np.where(price(low) <= epsilon, low, np.nan)
