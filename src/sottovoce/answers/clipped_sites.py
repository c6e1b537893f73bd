"""Correction of a site's own constant where clipping made its least squares step too short
(docs/privacy/answers.md, "Separate sites").

A gradient of residuals that are clipped at h shows at most the distance h of a constant from its
minimiser.  A small site's constant is known badly when its last gradient is asked, and may be
farther away than that, so that all residuals of the site are clipped to the same side.  The step
then ends too early.  By how much is estimated here from all gradients of the site, for
:mod:`sottovoce.answers.least_squares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array

_POINTS = 401
"""Number of points of the grid of distances, from the farthest below to the farthest above."""


class ClippedStep(NamedTuple):
    """Step of a site's constant by one clipped gradient, for R replicates.

    Distances are from the point of the last gradient, in units of the constant.

    Parameters
    ----------
    seen : array (R,)
        Mean of the site's clipped residuals.
    error : array (R,)
        Its standard deviation.
    start : array (R,)
        Distance from the point of this gradient to that of the last one.
    h : float
        Threshold at which residuals are clipped.
    share : array (R,)
        Weight of this gradient in the estimate.
    """

    seen: Array
    error: Array
    start: Array
    h: float
    share: Array


class Shortfall(NamedTuple):
    """Posterior mean and variance of the amount by which an estimate is too small, each (R,)."""

    mean: Array
    variance: Array


def estimate_shortfall(steps: Sequence[ClippedStep], farthest: float) -> Shortfall:
    """Estimate by how much clipped residuals make the step of a site's constant too short.

    If the minimiser is at the distance x from the point of a gradient, the gradient shows ``clip(x,
    -h, h)`` of it.  The posterior of x is computed on a grid, from a uniform prior.

    Parameters
    ----------
    steps : sequence of ClippedStep
        One for each gradient.
    farthest : float
        Largest distance of a constant from the point of the last gradient, in units of the
        constant.

    Returns
    -------
    Shortfall
        Shortfall of the estimate that averages all gradients by their shares.
    """
    # Every distance up to the farthest is as likely beforehand.
    distances = np.linspace(-farthest, farthest, _POINTS)
    resolution = distances[1] - distances[0]
    log_likelihood = np.zeros((len(steps[0].seen), _POINTS))
    lost = np.zeros_like(log_likelihood)
    for step in steps:
        away = distances + step.start[:, None]
        told = np.clip(away, -step.h, step.h)
        # A smaller error than half a cell of the grid would leave no distance that is likely.
        error = np.maximum(step.error, 0.5 * resolution)[:, None]
        log_likelihood = log_likelihood - 0.5 * ((step.seen[:, None] - told) / error) ** 2
        lost = lost + step.share[:, None] * (away - told)
    # Less the largest, so that no row of weights underflows to 0.
    weight = np.exp(log_likelihood - np.max(log_likelihood, axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = np.sum(weight * lost, axis=1)
    variance = np.sum(weight * (lost - mean[:, None]) ** 2, axis=1)
    return Shortfall(mean, variance)
