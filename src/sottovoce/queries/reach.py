"""Bounds on answers and on the solver's exactness, from public facts alone.

A local objective with linear term ``c`` and quadratic term ``q`` is q-strongly convex, and its
gradient at 0 has norm at most ``C L + ||c||``, with ``L`` the loss's derivative bound; so its
minimiser has norm at most ``(C L + ||c||) / q``.

*Before a charge*, public vectors are refused if they are so long that rounding could hide whether a
solve reached its certificate: a refusal after the charge would depend on rows.  That every solve
which passes reaches its certificate is tested (``tests/solvers/test_hard_solves.py``), not proved.
*After a solve*, the answer is projected to that ball, which increases no distance between answers.

Where ``tol`` of the facts is None, it is set so that the solver's error makes the noise at most
`INFLATION` larger than after an exact solve, but not below the certificate of exact answers.
Sensitivities and prices are computed from it.
"""

from __future__ import annotations

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..solvers.local import DataTerm, certified_error, elsewhere_bound, rounding_bound
from ..util.typing import Array, ArrayLike

# Largest size of an entry of a public vector: neither its square overflows, nor that of its product
# with anything declared.
_LONGEST = 2.0**200
INFLATION = 1e-3
"""Share by which a solver's error may enlarge the noise on answers, where ``tol`` is left open."""
# A certificate must be at least this many times the bound on rounding: below the bound there may be
# no double whose computed gradient norm reaches the certificate.
_ROOM = 2.0


def minimiser_norm_bound(facts: Facts, pull: ArrayLike, q: Array) -> Array:
    """Bound the norm of a local objective's minimiser by ``(C L + pull) / q``.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    pull : float or array of shape (..., 1)
        Bound on the norm of the linear term.
    q : array of shape (..., 1)
        Quadratic term, rho's part included, > 0.

    Returns
    -------
    array of shape (..., 1)
    """
    return np.asarray((facts.C * facts.loss.derivative_bound + np.asarray(pull, dtype=float)) / q)


def _gradient_rounding_bound(facts: Facts, tol: ArrayLike, pull: Array, q: Array) -> Array:
    """Bound the rounding in a gradient's norm, over C, at all points where an answer can lie."""
    # The farthest point at which an answer can lie.
    most = minimiser_norm_bound(facts, pull, q) + certified_error(facts.C, tol, q)
    rows = facts.most_rows_of_units(facts.n)
    found = rounding_bound(
        DataTerm(facts.C, rows, facts.loss, facts.d, facts.stretch), most, pull, q
    )
    if facts.has_several_rows:
        found = found + elsewhere_bound(facts.C, facts.loss, facts.d, most, facts.stretch)
    return found / facts.C


def certified_gradient_norm(
    facts: Facts, tol: ArrayLike, q: Array, noise: ArrayLike = 0.0
) -> Array:
    """Return the gradient norm to which a solve is certified, over C.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    tol : float or array of shape (..., 1)
        Gradient norm that is asked for, over C.
    q : array of shape (..., 1)
        Quadratic term, rho's part included, > 0.
    noise : float or array of shape (..., 1)
        Bound on the norm of what noise adds to the linear term.

    Returns
    -------
    array of shape (..., 1)
        `tol`, or what double precision can certify without public vectors, if that is more.
    """
    # Twice what check_solve asks for without public vectors: it would refuse nearly all of these if
    # they had no room.  They may add as much rounding again.
    least = 2.0 * _ROOM * _gradient_rounding_bound(facts, tol, np.asarray(noise, dtype=float), q)
    return np.maximum(np.asarray(tol, dtype=float), least)


def matched_tolerance(facts: Facts, enough: ArrayLike) -> Array:
    """Return ``tol`` of the facts; if None, `enough`, as a query's noise hides what is smaller.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    enough : float or array of shape (..., 1)
        Gradient norm, over C, that is small enough for the query's noise.

    Returns
    -------
    array of shape () or (..., 1)
        At least `exact_tol` of the facts, where ``tol`` is None.
    """
    if facts.tol is not None:
        return np.array(facts.tol)
    return np.maximum(facts.exact_tol, enough)


def project_to_ball(w: Array, facts: Facts, tol: ArrayLike, pull: Array, q: Array) -> Array:
    """Project answers to the ball in which every certified answer lies; these do not move.

    Parameters
    ----------
    w : array of shape (..., d)
        Answers of a solver, or starting points.
    facts : Facts
        Public facts of the run.
    tol : float or array of shape (..., 1)
        Certificate of the solve, over C.
    pull : array of shape (..., 1)
        Norm of the linear term.
    q : array of shape (..., 1)
        Quadratic term, rho's part included, > 0.

    Returns
    -------
    array of shape (..., d)
    """
    most = minimiser_norm_bound(facts, pull, q) + certified_error(facts.C, tol, q)
    length = np.linalg.norm(w, axis=-1, keepdims=True)
    return np.where(length > most, w * (most / np.maximum(length, most)), w)


def public_vector_norm(vector: ArrayLike, name: str) -> Array:
    """Compute norms of public vectors.

    Parameters
    ----------
    vector : array of shape (..., d)
        Public vectors.
    name : str
        What they are called in the error.

    Returns
    -------
    array of shape (..., 1)

    Raises
    ------
    InvalidInput
        If an entry is not finite, or too large to compute with.
    """
    x = np.asarray(vector, dtype=float)
    if not np.all(np.abs(x) <= _LONGEST):  # NaN too
        rule = f"must be finite, with entries of size at most {_LONGEST:.0e}"
        raise InvalidInput(
            name, None, rule, "find the site that sent this vector, and leave it out"
        )
    return np.asarray(np.linalg.norm(np.atleast_1d(x), axis=-1, keepdims=True))


def check_solve(
    facts: Facts, tol: ArrayLike, linear: Array, start: Array, q: Array, noise: ArrayLike = 0.0
) -> None:
    """Check that public vectors leave a solve room to reach its :func:`certified_gradient_norm`
    `tol`.

    The rounding of a gradient at the farthest point in reach must leave room for it.  As that point
    may be ``C L / q`` away, this also bounds the condition number: ``C c1 L / q <= tol / (2 u d)``,
    with u the unit roundoff.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.  Only public values are read.
    tol : float or array of shape (..., 1)
        Certificate of the solve, over C.
    linear, start : array of shape (..., d)
        Public linear term, and the solver's starting point.
    q : array of shape (..., 1)
        Quadratic term, rho's part included, > 0.
    noise : float or array of shape (..., 1)
        Bound on the norm of what noise adds to the linear term.

    Raises
    ------
    InvalidInput
        If public vectors are not finite, or so long that rounding could hide whether the solve
        reached `tol`.
    """
    public_vector_norm(start, "start")
    pull = public_vector_norm(linear, "linear") + np.asarray(noise, dtype=float)
    if not np.all(_ROOM * _gradient_rounding_bound(facts, tol, pull, q) <= np.asarray(tol)):
        rule = (
            "is too small a gradient norm to be certified in double precision with public vectors "
            "of this length"
        )
        shown = float(np.min(tol))
        raise InvalidInput(
            "tol",
            shown,
            rule,
            "use a larger tol, rho or eta, or leave out the site that sent these vectors",
        )
