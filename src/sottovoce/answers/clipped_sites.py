"""The part of a site's own constant that steps miss where all residuals of the site are clipped to
the same side.

A gradient of residuals that are clipped at h tells a constant's distance only up to h.  A small
site's constant is known badly when its last gradient is asked, and may be farther away than that:
the step then ends too early, by any amount that the other gradients leave open
(docs/privacy/answers.md, "Separate sites").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array

_POINTS = 401
"""Distances that are compared: from the farthest below to the farthest above."""


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
        How far the last gradient's point is beyond that of this one.
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
    """Amount by which an estimate is too small: posterior mean and variance, (R,)."""

    mean: Array
    variance: Array


def estimate_shortfall(steps: Sequence[ClippedStep], farthest: float) -> Shortfall:
    """Estimate by how much a site's constant ends too early because residuals are clipped.

    At a distance x from the point of a gradient its residuals are clipped by ``x - clip(x, -h, h)``
    in the mean.

    Parameters
    ----------
    steps : sequence of ClippedStep
        One for each gradient.
    farthest : float
        No constant is farther from the point of the last gradient, in units of the constant.

    Returns
    -------
    Shortfall
        Of the estimate that averages all gradients by their shares.
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
