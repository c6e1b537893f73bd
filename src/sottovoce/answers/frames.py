"""Public whitening transforms (frames) for sums over rows, and steps by noisy gradients
(docs/privacy/answers.md, "Frames" and "Steps").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray

EDGES = 2.0 ** np.arange(-2.0, 7.25, 0.25)
"""Public cells of a row's length in a frame of :func:`whitening_transform`, where its root mean
square is that of the columns.
"""
LONG = 0.1
"""Largest share of the rows that may be longer than 1 in a frame, and are shortened."""
_FLOOR = 0.05
"""Part of the noise's norm to which eigenvalues of a Hessian are raised in the steps."""
_EMPTY = 2.0
"""Noise deviations, below which a second moment in a frame may be none."""
_BARELY = 0.1
"""Least unseen part of a direction that may have been noise."""
_SPREADS = np.logspace(-3.0, 6.0, 91)
"""Variances that a step may have in a direction of a frame."""
_TURNS = 20
"""Iterations of expectation and maximisation, for the law of these variances."""


class Frame(NamedTuple):
    """Symmetric matrices A, and their inverses in the columns that they keep, else zeros."""

    A: Array  # (R, d, d)
    back: Array  # (R, d, d)


class Sight(NamedTuple):
    """A whitening transform, the directions hidden by noise, and the mass lost to norm clipping.

    Both parts are positive semidefinite, (R, d, d).
    """

    frame: Frame
    unseen: Array
    lost: Array

    @property
    def raised_moments(self) -> Array:
        """Second moments of the rows, raised where noise hides them, (R, d, d)."""
        return self.frame.back @ self.frame.back


def whitening_transform(S: Array, spread: float, kept: BoolArray) -> Sight:
    """Compute frames in which second moments are the identity, as far as noise lets see.

    Eigenvalues are raised to the noise's norm, about ``spread sqrt(2 d)``: no direction is
    stretched for its noise.

    Parameters
    ----------
    S : array (R, d, d)
        Released second moments.
    spread : float
        Standard deviation of the noise on an entry of S.
    kept : bool array (R, d)
        Columns that take part.

    Returns
    -------
    Sight
    """
    values, vectors = np.linalg.eigh(S)
    noise_norm = spread * math.sqrt(2.0 * S.shape[-1])
    raised = np.maximum(values, max(1e-12, noise_norm))
    root = np.sqrt(raised)[:, None, :]
    hidden_share = ((raised - values) / raised)[:, None, :]
    both = kept[:, :, None] & kept[:, None, :]
    turned = vectors.transpose(0, 2, 1)
    frame = Frame(A=(vectors / root) @ turned * both, back=(vectors * root) @ turned * both)
    unseen = (vectors * hidden_share) @ turned * both
    return Sight(frame, unseen, lost=np.zeros_like(S))


def refine_whitening(sight: Sight, M: Array, noise: Array, kept: BoolArray) -> Sight:
    """Refine a whitening transform with second moments that were measured in the previous one.

    An eigenvector of which more than half was not seen has the second moment that M tells, raised
    to the noise's norm; others keep theirs, or have a larger one: what M lacks of it is lost to
    long rows, which are shortened in M. Where M shows nothing at all, what was seen only in part
    was noise.

    Parameters
    ----------
    sight : Sight
        The previous transform.
    M : array (R, d, d)
        Second moments in it: the identity where all was seen.
    noise : array (R,)
        Standard deviation of the noise on an entry of M.
    kept : bool array (R, d)
        Columns that take part.

    Returns
    -------
    Sight
    """
    values, vectors = np.linalg.eigh(M)
    unseen = np.einsum("rji,rjk,rki->ri", vectors, sight.unseen, vectors)
    least = _EMPTY * noise[:, None]
    empty = (values <= least) & (1.0 - unseen > 3.0 * least)
    # More than half was hidden before; or a tenth, and M shows nothing where the seen part would
    # be six deviations at least.
    hidden = (unseen > 0.5) | ((unseen > _BARELY) & empty)
    floor = np.maximum(1e-12, noise * math.sqrt(2.0 * M.shape[-1]))[:, None]
    # Others never get a smaller moment: rows that are shortened in M would make it so, and a
    # direction of a few long rows would be stretched again and again.
    raised = np.maximum(values, np.where(hidden, floor, 1.0))
    unseen_along = np.where(hidden, raised - values, 0.0)
    lost_along = np.where(hidden, 0.0, np.clip(1.0 - values, 0.0, 1.0))
    # Second moments of the columns, and the frame in which they are the identity.
    back = sight.frame.back @ vectors
    moments = (back * raised[:, None, :]) @ back.transpose(0, 2, 1)
    frame = whitening_transform(moments, 0.0, kept).frame
    # What is not seen, or lost, along the eigenvectors is carried into the new frame.
    turned = frame.A @ back
    into_frame = turned.transpose(0, 2, 1)
    unseen = (turned * unseen_along[:, None, :]) @ into_frame
    lost = (turned * lost_along[:, None, :]) @ into_frame
    return Sight(frame, unseen, lost)


def choose_row_thresholds(cells: Array, spread: float, noise: Array) -> Array:
    """Find the smallest clipping thresholds at which the clipped mass is below the noise.

    Transforms are divided by them.  Two deviations of a share's own noise are allowed for: else a
    far edge is taken by chance.

    Parameters
    ----------
    cells : array (R, cells)
        The answer of :class:`sottovoce.queries.Lengths`.
    spread : float
        Standard deviation of the noise on an entry.
    noise : array (R,)
        Norm of the noise in a Hessian over its eigenvalues: a share of the rows as large as it, at
        most `LONG`, may be clipped.

    Returns
    -------
    array (R,)
    """
    # Shares of rows beyond each edge.
    beyond = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1][:, 1:]
    doubt = 2.0 * spread * np.sqrt(np.arange(beyond.shape[1], 0, -1))
    few = beyond <= np.minimum(noise, LONG)[:, None] + doubt
    first = np.where(few.any(axis=1), few.argmax(axis=1), len(EDGES) - 1)
    return np.asarray(EDGES[first])


def estimate_displacement(
    frame: Frame, H: Array, noise: Array, gradient: Array, s_g: float
) -> Array:
    """Estimate the step from a point to the minimiser from a noisy gradient.

    Without noise in the gradient it is Newton's step, and none in directions that the rows do not
    have.  With noise it is the posterior mean given the gradient if every direction of the frame is
    normal beforehand, with a variance of a law that all of them tell (empirical Bayes): a direction
    of which noise hides the gradient hardly moves.

    Parameters
    ----------
    frame : Frame
    H : array (R, d, d)
        Hessian in the frame.
    noise : array (R,)
        Standard deviation of the noise on an entry of H.
    gradient : array (R, d)
        At the point, in the columns.
    s_g : float
        Standard deviation of the noise on an entry of the gradient.

    Returns
    -------
    array (R, d)
    """
    values, vectors = np.linalg.eigh(H)
    floor = np.maximum(_FLOOR * noise * math.sqrt(2.0 * H.shape[-1]), 1e-12)[:, None]
    raised = np.maximum(values, floor)
    turned = vectors.transpose(0, 2, 1)
    if s_g == 0.0:
        # Newton's step
        along = turned @ frame.A @ gradient[:, :, None]
        moved = np.where(values > floor, along[:, :, 0] / raised, 0.0)
        inside = -vectors @ moved[:, :, None]
    else:
        raised_H = (vectors * raised[:, None, :]) @ turned
        inside = -_posterior_mean(frame.back @ raised_H / s_g, gradient / s_g)[:, :, None]
    return np.asarray((frame.A @ inside)[:, :, 0])


def _posterior_mean(design: Array, observed: Array) -> Array:
    """Estimate x (R, d) from ``observed = design x + noise`` of deviation 1, by empirical Bayes.

    Entries of x along the right singular vectors of the design (R, d, d) are normal, with
    variances on the grid `_SPREADS` whose weights all of them tell together.
    """
    left, sizes, right = np.linalg.svd(design)
    z = np.einsum("rji,rj->ri", left, observed)
    # Variance of z, (R, spreads, d).
    seen = 1.0 + _SPREADS[:, None] * sizes[:, None, :] ** 2
    log_likelihood = -0.5 * (np.log(seen) + z[:, None, :] ** 2 / seen)
    # Less the largest, so that the weights of no entry underflow to 0.
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    grid = len(_SPREADS)
    before = np.full((len(z), grid, 1), 1.0 / grid)
    # Expectation and maximisation, for the weights of the grid of variances; the prior counts as
    # one entry more, with the same weight everywhere.
    for _ in range(_TURNS):
        after = before * likelihood
        after /= after.sum(axis=1, keepdims=True)
        before = (after.sum(axis=2, keepdims=True) + 1.0 / grid) / (z.shape[1] + 1.0)
    gain = np.sum(after * _SPREADS[:, None] * sizes[:, None, :] / seen, axis=1)
    return np.asarray(np.einsum("rij,ri->rj", right, gain * z))


def project_to_semidefinite(S: Array) -> Array:
    """Project on the positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(S)
    return compose_from_eigenvalues(vectors, np.maximum(values, 0.0))


def compose_from_eigenvalues(vectors: Array, values: Array) -> Array:
    """Compose symmetric matrices (R, d, d) from eigenvectors and eigenvalues (R, d)."""
    return np.asarray((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))
