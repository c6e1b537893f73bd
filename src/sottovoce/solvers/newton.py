"""Newton's method for one node and one replicate, where the quasi-Newton iteration does not finish.

Directions come from preconditioned conjugate gradients with the exact Hessian, and line searches
are by bisection.  :mod:`sottovoce.solvers.descent` calls it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..data.sweep import Sweep
from ..errors import SolverError
from ..problem.losses import Loss
from ..util.typing import Array
from .quasinewton import Problem

MOST = 1000  # largest number of Newton steps
# Largest number of Newton steps for a softened loss, whose minimiser is only a starting point.
STAGE = 50
# Largest number of products with the Hessian in one Newton step.
CONJUGATE = 1000

Renewed = Callable[[Loss, Sweep, Problem, Array], Problem]
"""Makes the problem with a preconditioner from the curvature at a point."""


def minimise_by_newton(
    loss: Loss, sweep: Sweep, problem: Problem, w: Array, goal: float, *, C: float, renewed: Renewed
) -> tuple[Array, Array]:
    """Minimise one problem by Newton's method, from any start.

    A loss whose curvature jumps (Huber's) is minimised in softened forms first, with ever smaller
    widths, so that each minimiser is near the next one.  Newton steps on the loss itself might pass
    through its pieces one by one.

    Parameters
    ----------
    loss : Loss
    sweep : Sweep
        The rows of the one node.
    problem : Problem
        Of one node and one replicate.
    w : array (d,)
        The start; entries that are not finite count as 0.
    goal : float
        The gradient norm to reach, > 0.
    C : float
        Weight of the data term, for the error's relative tolerance and for how far to soften.
    renewed : callable
        Makes the preconditioner of the conjugate gradients at a point.

    Returns
    -------
    w, g : array (d,)
        The minimiser, and the gradient there, of norm at most `goal`.

    Raises
    ------
    SolverError
        If `goal` is not reached; the message tells nothing of the rows.
    """
    w, width = np.where(np.isfinite(w), w, 0.0), 1.0
    # Softening moves a derivative by at most width c1, hence the gradient by at most C times that:
    # once this is a quarter of the goal, the minimiser is near enough to start from.
    while loss.softened(width) is not loss and width * C * loss.curvature_bound > 0.25 * goal:
        w, _ = _newton_steps(loss.softened(width), sweep, problem, w, 0.5 * goal, STAGE, renewed)
        width *= 0.1
    w, g = _newton_steps(loss, sweep, problem, w, goal, MOST, renewed)
    if not np.linalg.norm(g) <= goal:
        # The norm depends on the rows, so the message must not show it.
        rule = "a local solve did not reach this accuracy; use a larger rho or tol"
        raise SolverError(f"tol={goal / C:g}: {rule}")
    return w, g


def _newton_steps(
    loss: Loss, sweep: Sweep, problem: Problem, w: Array, goal: float, most: int, renewed: Renewed
) -> tuple[Array, Array]:
    """Make at most `most` Newton steps from `w`, until the gradient norm is at most `goal`.

    Returns the point and the gradient there, (d,) each.  F is convex along a line, so its
    derivative has one zero there, which bisection finds whatever the curvature.
    """

    def gradient(x: Array) -> Array:
        whole = (
            problem.weight * sweep.sum_gradients(loss, x[None, None]) + problem.c + problem.q * x
        )
        return np.asarray(whole[0, 0])

    g = gradient(w)
    for _ in range(most):
        if np.linalg.norm(g) <= goal:
            break
        p = _newton_direction(loss, sweep, problem, w, g, renewed)
        # Double the step until the derivative along p is positive: it has one zero before that.
        near, far = 0.0, 1.0
        ahead = gradient(w + p)
        while ahead @ p < 0.0 and far < 2.0**60:
            near, far = far, 2.0 * far
            ahead = gradient(w + far * p)
        t = far
        # Bisect until a tenth of the descent is left, or rounding ends the search.
        while abs(ahead @ p) > 0.1 * abs(g @ p) and far - near > 2.0**-50 * far:
            t = 0.5 * (near + far)
            ahead = gradient(w + t * p)
            if ahead @ p < 0.0:
                near = t
            else:
                far = t
        w, g = w + t * p, ahead
    return w, g


def _newton_direction(
    loss: Loss, sweep: Sweep, problem: Problem, w: Array, g: Array, renewed: Renewed
) -> Array:
    """Return the Newton direction at `w` with gradient `g`: the approximate solution of H p = -g.

    It is computed by preconditioned conjugate gradients, in whose usual notation ``left`` is the
    residual r, ``eased`` the preconditioned residual z, ``along`` the search direction, ``turned``
    H times that, ``bent`` its curvature, and ``worth`` r.z.
    """
    at = renewed(loss, sweep, problem, w[None, None])
    p, left = np.zeros_like(g), -g
    eased = at.precondition_gradient(left[None, None])[0, 0]
    along, worth = eased, float(left @ eased)
    for _ in range(CONJUGATE):
        turned = (
            problem.weight * sweep.hessian_vector_product(loss, w[None, None], along[None, None])
            + problem.q * along
        )
        bent = float(along @ turned[0, 0])
        # H is positive definite, so a curvature that is not positive is rounding: stop here.
        if not bent > 0.0:
            break
        p = p + worth / bent * along
        left = left - worth / bent * turned[0, 0]
        if np.linalg.norm(left) <= 0.01 * np.linalg.norm(g):
            break
        eased = at.precondition_gradient(left[None, None])[0, 0]
        worth, before = float(left @ eased), worth
        along = eased + worth / before * along
    return p
