"""Bounded sums over rows in another frame: ``A a`` for a public matrix A, each shortened to norm 1.

A follows from earlier answers.  A row of weight m (:mod:`sottovoce.problem.weighted_loss`) is shortened in the square:
it adds ``c m u u'`` with ``u = A a``, times ``min(1, 1 / (m |u|^2))``.  So a sum's bounds are those that it has without
a frame, whatever A is: neither sensitivity nor event depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.weighted_loss import weights
from ..util.typing import Array
from .bounded import Bounded, Curvature, Gram, HuberGradient, ResidualMoments, SecondMoments, SlopeMoments, counts
from .moments import flat

_WHOLE = {"whole": True}  # a matrix has no axis of nodes
_UP = 1.0 + 2.0**-40
"""More than what rounding may take away from a squared length."""


def _in_frame(block: Design, frame: Array, nodes: int) -> Array:
    """``A a`` of every row, (M, d, n), with its label's sign."""
    return np.asarray(block.host(block.moves(np.broadcast_to(frame, (nodes, *frame.shape)))))


def _less(u: Array, weight: Array) -> Array:
    """``min(1, 1 / (m |u|^2))`` of rows u in a frame, (M, d, n), with weights m, (M, n)."""
    return np.asarray(1.0 / np.maximum(1.0, weight * np.sum(u**2, axis=1) * _UP))


@dataclass(frozen=True)
class _Framed(Gram):
    """A gram of rows in the frame A, shape (R, d, d), one for every replicate."""

    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        assert self.frame is not None
        z = np.asarray(block.host(block.margins(at)))
        c, weight = self.factors(loss, z), weights(loss, z)
        found = []
        for r, frame in enumerate(np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))):
            u = _in_frame(block, frame, len(at))
            own = c[:, r] * self.shortening(u, weight[:, r])
            found.append((u * own[:, None, :]) @ u.transpose(0, 2, 1))
        return flat(np.stack(found, axis=1))

    def shortening(self, u: Array, weight: Array) -> Array:
        """What the factors of rows u in the frame, (M, d, n), are multiplied by, (M, n)."""
        return _less(u, weight)


@dataclass(frozen=True)
class FramedMoments(_Framed, SecondMoments):
    """:class:`SecondMoments` of rows in a frame."""

    of_people: ClassVar[bool] = False


@dataclass(frozen=True)
class FramedCurvature(_Framed, Curvature):
    """:class:`Curvature` of rows in a frame."""


@dataclass(frozen=True)
class FramedSlopes(_Framed, SlopeMoments):
    """:class:`SlopeMoments` of rows in a frame."""


@dataclass(frozen=True)
class FramedResiduals(_Framed, ResidualMoments):
    """:class:`ResidualMoments` of rows in a frame: second moments of what rows add to :class:`FramedSteps`.

    So a row's weight in the frame, ``m' = min(m, 1 / |u|^2)``, is squared: it adds ``m'^2 clip(r / h)^2 u u'``.
    """

    def shortening(self, u: Array, weight: Array) -> Array:
        return _less(u, weight) ** 2


@dataclass(frozen=True)
class FramedSteps(HuberGradient):
    """:class:`HuberGradient` of rows in a frame: ``(1/n) sum_k m'_k clip(r_k / h, -1, 1) u_k``, with ``u = A a``.

    ``m' = min(m, 1 / |u|^2)`` is the weight that a row has in :class:`FramedMoments`, so that without clipping this is
    the gradient of the quadratic of those moments.  ``m' |u| <= 1``: where ``m |u|^2 <= 1`` it is at most
    ``sqrt(m) sqrt(m |u|^2)``, and elsewhere ``1 / |u|`` with ``|u| > 1``.
    """

    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        assert self.frame is not None
        z = np.asarray(block.host(block.margins(at)))
        weight = weights(loss, z)
        clipped = weight * np.clip(z / self.h, -1.0, 1.0)
        found = []
        for r, frame in enumerate(np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))):
            u = _in_frame(block, frame, len(at))
            found.append(np.sum(u * (clipped[:, r] * _less(u, weight[:, r]))[:, None, :], axis=2))
        return np.stack(found, axis=1)


@dataclass(frozen=True)
class Lengths(Bounded):
    """Shares of rows by cell of their length ``sqrt(m) |A a|`` in a frame; a row of zeros is in no cell.

    Parameters
    ----------
    frame : array (R, d, d)
        A, for every replicate.
    edges : array (cells - 1,)
        Public and increasing; a length on an edge is in the upper cell.
    """

    cone: ClassVar[bool] = True  # counts
    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)
    edges: Array | None = field(default=None, kw_only=True)

    def width(self, facts: Facts) -> int:
        assert self.edges is not None
        return len(self.edges) + 1

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        assert self.frame is not None and self.edges is not None
        weight = weights(loss, np.asarray(block.host(block.margins(at))))
        frames = np.broadcast_to(self.frame, (at.shape[1], *self.frame.shape[1:]))
        size = np.stack([np.sum(_in_frame(block, frame, len(at)) ** 2, axis=1) for frame in frames], axis=1)
        cells = np.searchsorted(self.edges, np.sqrt(weight * size), side="right")
        return counts(cells, size > 0.0, len(self.edges) + 1)
