"""Closed-form privacy bounds of single mechanisms, each with its proof.

Notation: *sum scale* (see :mod:`sottovoce.problem.facts`).  A release is ``w* = argmin sum_k loss(y_k w.x_k) + Q(w) +
b.w`` with rows in the unit ball and ``Q`` public and K-strongly convex; ``Delta`` is 2 for replace-one and 1 for
zero-out.
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array, ArrayLike


def objective_perturbation_epsilon(
    beta: ArrayLike, K: ArrayLike, *, delta_gradient: float, curvature_bound: float, logistic: bool
) -> Array:
    """U1: pure epsilon of objective perturbation with noise density ``exp(-beta ||b||)``, exact minimiser.

    Parameters
    ----------
    beta : array
        Rate of the noise in sum scale.
    K : array
        Strong convexity in sum scale of everything except the loss.
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
    *Proof.*  ``b = -grad F(w)`` is a bijection between noise and minimiser, ``F`` being strongly convex, so the
    density of ``w*`` is ``exp(-beta ||b(w)||) |det Hess F(w)|`` up to one constant.  Let ``u, u'`` be the two versions
    of the row, with derivatives ``a, a'`` and curvatures ``c, c'`` at ``w``, and ``A >= K I`` the Hessian without that
    row.  The noise factors differ by at most ``exp(beta (a ||u|| + a' ||u'||))``, and

        ``det(A + c u u') / det(A + c' u' u'') = (1 + c u'A^-1 u) / (1 + c' u''A^-1 u') <= 1 + c / K``.

    With ``a' <= 1`` (absent for zero-out), ``||u|| <= 1`` and ``c <= c1`` the first form follows; with
    ``c = a (1 - a)`` the second (for zero-out, the direction that removes the row costs at most ``beta``, less than
    the bound).  The bracket is concave in ``a``; its derivative vanishes where
    ``beta (K + a - a^2) + 1 - 2a = 0``, whose root in [0, 1], or 1 if ``beta K >= 1``, is taken below.

    *Slopes of both signs.*  The general form needs ``|derivative| <= L`` and ``0 <= curvature <= c1`` only, with
    ``Delta L`` for Delta: the noise vectors are ``b_0 + s u`` and ``b_0 + s' u'`` with ``|s|, |s'| <= L``, so their
    lengths differ by at most ``2 L`` (``L`` for zero-out) whatever the signs are, and the determinants do not depend on
    derivatives. The second form holds for the logistic loss only.  No event has such a price yet: events for objectives
    state that derivatives are in [-1, 0], and :class:`sottovoce.queries.PerturbedObjective` refuses other losses.
    """
    beta, K = np.asarray(beta, dtype=float), np.asarray(K, dtype=float)
    if not logistic:
        return delta_gradient * beta + np.log1p(curvature_bound / K)
    # The form of the quadratic's root without cancellation: the other one loses all digits at small beta.
    root = 2.0 * (beta * K + 1.0) / (2.0 - beta + np.sqrt(beta**2 + 4.0 + 4.0 * beta**2 * K))
    a = np.where(beta * K >= 1.0, 1.0, np.clip(root, 0.0, 1.0))
    return (delta_gradient - 1.0) * beta + beta * a + np.log1p(a * (1.0 - a) / K)


def objective_perturbation_rate(
    epsilon: ArrayLike, K: ArrayLike, *, delta_gradient: float, curvature_bound: float, logistic: bool
) -> Array:
    """The largest ``beta`` whose :func:`objective_perturbation_epsilon` is at most `epsilon`; NaN where none is.

    The bound increases in ``beta`` (each bracket does) and is at least ``Delta beta`` (take ``a = 1``), so the answer
    lies below ``epsilon / Delta``; bisection keeps the invariant ``price(low) <= epsilon``.
    """
    epsilon, K = np.broadcast_arrays(np.asarray(epsilon, dtype=float), np.asarray(K, dtype=float))

    def price(beta: Array) -> Array:
        return objective_perturbation_epsilon(
            beta, K, delta_gradient=delta_gradient, curvature_bound=curvature_bound, logistic=logistic
        )

    low, high = epsilon * 1e-12, epsilon / delta_gradient
    if np.all(price(high) <= epsilon):  # the log-determinant is free
        return high
    high = high * (1.0 + 1e-12)
    for _ in range(80):
        middle = 0.5 * (low + high)
        fits = price(middle) <= epsilon
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(price(low) <= epsilon, low, np.nan)


def approximate_release_epsilon(beta_release: ArrayLike, error: ArrayLike) -> Array:
    """U4, pure form: the extra price of releasing ``w + v`` where ``||w - w*|| <= error`` and ``v ~ exp(-beta ||v||)``.

    Returns
    -------
    array
        ``2 beta_release error``.

    Notes
    -----
    *Proof.*  Given data D, let ``w`` be any function of ``w*`` within `error` of it.  For every output ``o``,
    ``p_D(o) = E exp(-beta ||o - w||) <= e^{beta error} E exp(-beta ||o - w*||)``, and the last expectation changes by
    at most the factor ``e^eps`` of the exact minimiser's release when D becomes a neighbour; going back from ``w*`` to
    ``w`` costs ``e^{beta error}`` once more.  So the proof covers a solver that stops early.
    """
    return 2.0 * np.asarray(beta_release, dtype=float) * np.asarray(error, dtype=float)
