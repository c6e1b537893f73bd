"""Public whitening transforms (frames) for sums over rows, and steps by noisy gradients
(docs/privacy/answers.md, "Frames" and "Steps").

A *frame* is a symmetric matrix A, computed from released second moments, in which the rows ``A a``
have second moments near the identity.  Noise of a given size then hides no direction more than
another.  It is used by :mod:`sottovoce.answers.inference` and
:mod:`sottovoce.answers.least_squares`.  Arrays have R replicates in front, and d columns.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray

EDGES = 2.0 ** np.arange(-2.0, 7.25, 0.25)
"""Edges of public cells of a row's length in a frame of :func:`whitening_transform`; rows have a
root mean square length of the square root of the number of columns there.
"""
LONG = 0.1
"""Largest share of the rows that may be longer than 1 in a frame; their norm is clipped to 1."""
_FLOOR = 0.05
"""Eigenvalues of a Hessian are raised to this part of its noise's norm in the steps."""
_EMPTY = 2.0
"""A second moment in a frame that is below this many noise deviations may be 0."""
_BARELY = 0.1
"""Share of a direction that noise hid before, from which on all that was seen of it may have been
noise.
"""
_SPREADS = np.logspace(-3.0, 6.0, 91)
"""Grid of prior variances of a step in a direction of a frame."""
_TURNS = 20
"""Iterations of expectation maximisation, for the weights of these variances."""


class Frame(NamedTuple):
    """Symmetric whitening matrices, with zeros in columns that are not kept."""

    A: Array  # from columns into the frame  (R, d, d)
    back: Array  # inverse of A in the kept columns  (R, d, d)


class Sight(NamedTuple):
    """A whitening transform, the directions hidden by noise, and the mass lost to norm clipping.

    In the frame, second moments are the identity, except for two positive semidefinite parts.
    """

    frame: Frame
    unseen: Array  # part of the identity that noise hides  (R, d, d)
    lost: Array  # part that clipping of long rows takes away  (R, d, d)

    @property
    def raised_moments(self) -> Array:
        """Second moments of the rows, raised where noise hides them, (R, d, d)."""
        return self.frame.back @ self.frame.back


def whitening_transform(S: Array, spread: float, kept: BoolArray) -> Sight:
    """Compute frames in which second moments are the identity, in directions that noise shows.

    Eigenvalues are raised to the noise's norm, about ``spread sqrt(2 d)``, so that no direction is
    stretched because noise made its eigenvalue small.

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

    Along an eigenvector of M that noise hid before (by more than half, or by a tenth if M shows
    nothing of it) the second moment is that of M, raised to the noise's norm.  Along others it is
    at least the identity's 1: what M lacks of 1 was lost by clipping long rows.

    Parameters
    ----------
    sight : Sight
        The previous transform.
    M : array (R, d, d)
        Second moments in the previous frame: the identity where noise hid nothing.
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
    """Find the smallest norm thresholds beyond which a share of the rows at most `noise` lies.

    Frames are divided by them, so that the other rows have norm at most 1.  Two noise deviations of
    each share are allowed for, so that noise alone does not lead to a far edge.

    Parameters
    ----------
    cells : array (R, cells)
        Noisy shares of rows by length, with the edges `EDGES`: the answer of
        :class:`sottovoce.queries.Lengths`.
    spread : float
        Standard deviation of the noise on a share.
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

    Without noise in the gradient it is Newton's step, with zero in directions in which rows do not
    vary.  With noise it is a posterior mean (empirical Bayes): along every direction of the frame
    the step has a normal prior, whose variance has a distribution that is estimated from all
    directions.  So there is hardly a step in directions where noise hides the gradient.

    Parameters
    ----------
    frame : Frame
    H : array (R, d, d)
        Hessian in the frame.
    noise : array (R,)
        Standard deviation of the noise on an entry of H.
    gradient : array (R, d)
        Gradient at the point, in columns (not in the frame).
    s_g : float
        Standard deviation of the noise on an entry of the gradient.

    Returns
    -------
    array (R, d)
        The step, in columns.
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
    variances on the grid `_SPREADS`, whose weights are estimated from all entries together.
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
    """Project symmetric matrices, (R, d, d), on the positive semidefinite ones."""
    values, vectors = np.linalg.eigh(S)
    return compose_from_eigenvalues(vectors, np.maximum(values, 0.0))


def compose_from_eigenvalues(vectors: Array, values: Array) -> Array:
    """Compose symmetric matrices (R, d, d) from eigenvectors and eigenvalues (R, d)."""
    return np.asarray((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))
