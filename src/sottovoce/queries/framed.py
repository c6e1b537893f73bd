"""Bounded sums over whitened rows ``A a``, each clipped to norm 1.

The whitening transform A is public: it follows from earlier answers.  A row of weight m
(:mod:`sottovoce.problem.weighted_loss`) is clipped in the square: it adds ``c m u u'`` with ``u = A
a``, times ``min(1, 1 / (m |u|^2))``.  So a sum's bounds are those that it has without a frame,
whatever A is: neither sensitivity nor event depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.weighted_loss import weights_of_rows
from ..util.typing import Array
from .bounded import (
    Bounded,
    Curvature,
    Gram,
    HuberGradient,
    ResidualMoments,
    SecondMoments,
    SlopeMoments,
    counts_by_cell,
)
from .moments import flatten_symmetric

# A matrix has no axis of nodes.
_WHOLE = {"whole": True}
_UP = 1.0 + 2.0**-40
"""Factor by which squared lengths are enlarged, more than rounding may take away from them."""


def _whitened_rows(block: Design, frame: Array, nodes: int) -> Array:
    """Return all whitened rows ``A a``, (M, d, n), times their labels' signs."""
    return np.asarray(
        block.to_numpy_array(block.change_of_margins(np.broadcast_to(frame, (nodes, *frame.shape))))
    )


def _norm_clipping_factors(u: Array, weight: Array) -> Array:
    """Return ``min(1, 1 / (m |u|^2))`` of whitened rows u, (M, d, n), of weights m, (M, n)."""
    return np.asarray(1.0 / np.maximum(1.0, weight * np.sum(u**2, axis=1) * _UP))


@dataclass(frozen=True)
class _Framed(Gram):
    """Sums of ``c_k u_k u_k'`` over whitened rows ``u = A a``, each clipped in the square.

    Parameters
    ----------
    frame : array of shape (R, d, d)
        The whitening transform A of every replicate; public, as it follows from earlier releases.
    """

    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of ``c_k u_k u_k'`` over a block of whitened rows, flattened.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, d (d + 1) / 2)
        """
        assert self.frame is not None
        z = np.asarray(block.to_numpy_array(block.margins_at(at)))
        c, weight = self.row_factors(loss, z), weights_of_rows(loss, z)
        found = []
        for r, frame in enumerate(
            np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))
        ):
            u = _whitened_rows(block, frame, len(at))
            own = c[:, r] * self.clipping_factors(u, weight[:, r])
            found.append((u * own[:, None, :]) @ u.transpose(0, 2, 1))
        return flatten_symmetric(np.stack(found, axis=1))

    def clipping_factors(self, u: Array, weight: Array) -> Array:
        """Return the factors, (M, n), that clip contributions of whitened rows u, (M, d, n)."""
        return _norm_clipping_factors(u, weight)


@dataclass(frozen=True)
class FramedMoments(_Framed, SecondMoments):
    """:class:`SecondMoments` of whitened rows."""

    of_people: ClassVar[bool] = False


@dataclass(frozen=True)
class FramedCurvature(_Framed, Curvature):
    """:class:`Curvature` of whitened rows."""


@dataclass(frozen=True)
class FramedSlopes(_Framed, SlopeMoments):
    """:class:`SlopeMoments` of whitened rows."""


@dataclass(frozen=True)
class FramedResiduals(_Framed, ResidualMoments):
    """:class:`ResidualMoments` of whitened rows: second moments of :class:`FramedSteps`.

    So a row's weight in the frame, ``m' = min(m, 1 / |u|^2)``, is squared: it adds ``m'^2 clip(r /
    h)^2 u u'``.
    """

    def clipping_factors(self, u: Array, weight: Array) -> Array:
        return _norm_clipping_factors(u, weight) ** 2


@dataclass(frozen=True)
class FramedSteps(HuberGradient):
    """:class:`HuberGradient` of whitened rows ``u = A a``.

    ``(1/n) sum_k m'_k clip(r_k / h, -1, 1) u_k``, where ``m' = min(m, 1 / |u|^2)`` is the weight
    that a row has in :class:`FramedMoments`, so that without clipping this is the gradient of the
    quadratic of those moments.  ``m' |u| <= 1``: where ``m |u|^2 <= 1`` it is at most ``sqrt(m)
    sqrt(m |u|^2)``, and elsewhere ``1 / |u|`` with ``|u| > 1``.
    """

    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of Huber's gradients over a block of whitened rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, d)
        """
        assert self.frame is not None
        z = np.asarray(block.to_numpy_array(block.margins_at(at)))
        weight = weights_of_rows(loss, z)
        clipped = weight * np.clip(z / self.h, -1.0, 1.0)
        found = []
        for r, frame in enumerate(
            np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))
        ):
            u = _whitened_rows(block, frame, len(at))
            found.append(
                np.sum(
                    u * (clipped[:, r] * _norm_clipping_factors(u, weight[:, r]))[:, None, :],
                    axis=2,
                )
            )
        return np.stack(found, axis=1)


@dataclass(frozen=True)
class Lengths(Bounded):
    """A histogram of whitened rows' lengths ``sqrt(m) |A a|``; a row of zeros is in no cell.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point; losses that weigh rows weigh them whatever it is.
    frame : array of shape (R, d, d)
        The whitening transform A of every replicate.
    edges : array of shape (cells - 1,)
        Public and increasing; a length on an edge is in the upper cell.
    """

    cone: ClassVar[bool] = True  # counts
    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)
    edges: Array | None = field(default=None, kw_only=True)

    def number_of_entries(self, facts: Facts) -> int:
        assert self.edges is not None
        return len(self.edges) + 1

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block by cell of their length after whitening.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, cells)
        """
        assert self.frame is not None and self.edges is not None
        weight = weights_of_rows(loss, np.asarray(block.to_numpy_array(block.margins_at(at))))
        frames = np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))
        size = np.stack(
            [np.sum(_whitened_rows(block, frame, len(at)) ** 2, axis=1) for frame in frames], axis=1
        )
        cells = np.searchsorted(self.edges, np.sqrt(weight * size), side="right")
        return counts_by_cell(cells, size > 0.0, len(self.edges) + 1)
