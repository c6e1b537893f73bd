"""Newton's method for one node and one replicate, where the quasi-Newton iteration does not finish.

Steps come from conjugate gradients with the true Hessian, and line searches are exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..data.sweep import Sweep
from ..errors import SolverError
from ..problem.losses import Loss
from ..util.typing import Array
from .quasinewton import Problem

MOST = 1000  # most Newton steps
# Most Newton steps for each softened loss, whose minimiser is only the start for the next.
STAGE = 50
# Most products with the Hessian in one Newton step.
CONJUGATE = 1000

Renewed = Callable[[Loss, Sweep, Problem, Array], Problem]
"""Makes the problem with a preconditioner from the curvature at a point."""


def minimise_by_newton(
    loss: Loss, sweep: Sweep, problem: Problem, w: Array, goal: float, *, C: float, renewed: Renewed
) -> tuple[Array, Array]:
    """Minimise one problem by Newton's method, from any start.

    A loss whose curvature jumps is softened first, in ever smaller widths, because each minimiser
    is near the next one: Newton steps on the loss itself might pass through its pieces one by one.

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
        rule = "a local solve stopped short of its certificate; use a larger rho or tol"
        raise SolverError(f"tol={goal / C:g}: {rule}")
    return w, g


def _newton_steps(
    loss: Loss, sweep: Sweep, problem: Problem, w: Array, goal: float, most: int, renewed: Renewed
) -> tuple[Array, Array]:
    """At most `most` Newton steps with exact line searches.

    F is convex along a line, so its derivative has one zero there, which bisection finds for every
    curvature.
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
    """The Newton step, by preconditioned conjugate gradients with the true Hessian."""
    # Preconditioned conjugate gradients for H p = -g: `left` is the residual.
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
        # H is positive definite, so that this is rounding.
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
