"""Directions that the rows lose: combinations of columns that are 0 in every row, so that nothing is known along them.

A column of zeros, one that repeats another, one that is constant at every site beside the sites' constants, or one that
is the sum of others: along such a direction v, with ``v'x = 0`` for every row x, coefficients may move without moving
any row's score.  No epsilon and no number of rows would tell them.  But only lines c of the table with ``c'v != 0`` are
lost; every other one is the same wherever the model stands along v.  So the last step is taken in the space without
these directions, and lines that do not turn into them are printed as ever.

In a frame A a lost direction is an eigenvector q of a matrix H of bounded sums (a Hessian, or second moments) with the
eigenvalue 0, and v is ``A q``.  With noise of deviation s on an entry of H an eigenvalue is that of a lost direction if

- it is 0 within the noise, and
- even with two more deviations of it the direction varies next to not at all beside its columns: by a share of at most
  `LOST` of the variance that they would have together if they were unrelated.

An eigenvalue that is 0 within the noise and fails the second rule is *hidden*: more epsilon may show it.  That q has an
error does no harm: if v is lost, the minimisers are a line along v, and one of them is in any space across it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray
from .frames import Frame

LOST = 5e-3
"""The largest share of its columns' variance that a lost direction may have."""
FLAT = 1e-3
"""The least variance that a column counts with, over the mean of all: noise may hide a column that is nearly flat.

A column that varies less is lost only if its variance is below `LOST` of that: noise must show it to be that small.
"""
SEEN = 2.0
"""Noise deviations by which an eigenvalue stands out, beside the norm of a matrix of noise."""
_EXACT = 1e-9  # of the mean eigenvalue: what rounding leaves of 0
_TURNED = 1e-6  # of a line's length: what rounding turns it into a direction
_DOUBT = 3.0  # deviations of an estimated direction, within which a line does not turn into it
_PART = 0.05  # of the largest weight in a direction: columns with less are not named


class Directions(NamedTuple):
    """The eigenvectors of H in the frame, and which of them are lost or hidden, of R replicates."""

    frame: Frame
    values: Array  # eigenvalues of H, in order                      (R, d)
    vectors: Array  # in columns                                     (R, d, d)
    noise: Array  # on an entry of H                                 (R,)
    lost: BoolArray  # (R, d)
    hidden: BoolArray  # 0 within the noise, and not lost            (R, d)
    share: Array  # at most so much of their columns' variance directions have  (R, d)
    size: Array  # root of that variance: of a row's score along ``A q`` if its columns were unrelated  (R, d)
    variances: Array  # of the columns, at least                     (R, d)

    @property
    def any_lost(self) -> BoolArray:
        """Whether a replicate has a lost direction, (R,)."""
        return np.asarray(self.lost.any(axis=1))

    @property
    def across(self) -> Array:
        """Projectors on a space across the lost directions, in the frame, (R, d, d).

        Any space across them has a minimiser.  That orthogonal to ``A q`` is stretched least by the symmetric A: noise
        in gradients, which A turns into the frame, would be large in one that is orthogonal to q, as q has an error.
        """
        along = self.frame.A @ self.vectors * self.lost[:, None, :]
        _, vectors = np.linalg.eigh(along @ along.transpose(0, 2, 1))
        d = along.shape[-1]
        few = np.arange(d) < d - self.lost.sum(axis=1)[:, None]
        kept = (vectors * few[:, None, :]) @ vectors.transpose(0, 2, 1)
        return np.where(self.any_lost[:, None, None], kept, np.eye(d))

    def without(self, step: Array) -> Array:
        """A step of coefficients without its part along lost directions, which moves no row's score, (R, d)."""
        return np.asarray(np.einsum("rij,rjk,rkl,rl->ri", self.frame.A, self.across, self.frame.back, step))

    def restricted(self, H: Array) -> Array:
        """H in the space without lost directions, which get its mean eigenvalue there, (R, d, d)."""
        across = self.across
        own = across @ H @ across
        rest = np.einsum("rii->r", own) / np.maximum(np.einsum("rii->r", across), 1.0)
        return np.asarray(own + rest[:, None, None] * (np.eye(H.shape[-1]) - across))

    def of(self, replicate: int) -> Directions:
        """Of one replicate, which keeps the first axis."""
        one = slice(replicate, replicate + 1)
        frame = Frame(self.frame.A[one], self.frame.back[one])
        return Directions(frame, *(x[one] for x in self[1:]))


def directions(frame: Frame, H: Array, noise: Array, variances: Array, moments: Array) -> Directions:
    """Eigenvectors of H with the lost and the hidden ones among them.

    Parameters
    ----------
    frame : Frame
        That of H.
    H : array (R, d, d)
        Symmetric, with 0 along a lost direction but for noise.
    noise : array (R,)
        Deviation of the noise on an entry of H.
    variances : array (R, d)
        Of each column, at least; see :func:`variances_of`.
    moments : array (R,)
        The mean second moment of rows in the frame, in a direction that is seen: H is about in proportion.
    """
    values, vectors = np.linalg.eigh(H)
    d = H.shape[-1]
    # The k least eigenvalues of noise alone are within its norm, about sqrt(2 k) deviations.
    few = np.sqrt(2.0 * np.arange(1, d + 1))
    mean = np.mean(np.maximum(values, 0.0), axis=1)[:, None]
    rounding = _EXACT * mean
    limit = noise[:, None] * (SEEN + few) + rounding
    zero = np.logical_and.accumulate(values <= limit, axis=1)
    most = np.maximum(values, 0.0) + SEEN * noise[:, None] + rounding
    along = frame.A @ vectors  # directions as weights of the columns, in columns
    together = np.einsum("rj,rjk,rjk->rk", variances, along, along)
    moved = np.divide(most, mean, out=np.ones_like(most), where=mean > 0.0) * moments[:, None]
    share = np.divide(moved, together, out=np.full_like(moved, np.inf), where=together > 0.0)
    lost = zero & (share <= LOST)
    return Directions(frame, values, vectors, noise, lost, zero & ~lost, share, np.sqrt(together), variances)


def variances_of(S: Array, mean: Array, constant: Array) -> Array:
    """Variances of columns by their second moments and means, with those that are next to 0 raised, (R, d).

    Parameters
    ----------
    S : array (R, d, d)
        Second moments.
    mean : array (R, d)
    constant : array (d,)
        1 in the columns that hold constants: they have none of their own.
    """
    columns = constant == 0.0
    own = np.maximum(np.einsum("rii->ri", S) - mean**2, 0.0) * columns
    typical = own.sum(axis=1, keepdims=True) / max(1, int(columns.sum()))
    return np.asarray(np.maximum(own, FLAT * typical))
