"""Bounded sums: means over rows of a statistic of bounded size.

A :class:`Bounded` says what a row adds, and how much.  :class:`NoisyBounded` asks each site for its
own mean with all of the noise in it; as a :class:`sottovoce.queries.Sum` it asks for the mean of
all rows, and nobody sees an addend.

Guarantee
---------
With ``alpha`` an answer is the Gaussian mechanism of sensitivity over sigma ``alpha`` for one row.
Sensitivities follow from public facts, with the rounding of the computation;
``docs/privacy/answers.md`` has their proofs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from ..data.design import Design
from ..errors import InvalidInput
from ..problem.facts import Among, Facts
from ..problem.losses import Loss
from ..problem.trust import RELATIONS
from ..problem.weighted_loss import weights_of_rows
from ..util.plain import digest_public_values
from ..util.typing import Array, BoolArray, IntArray
from .moments import flatten_symmetric
from .statistic import NoisyValue
from .vault import Vault

# Unit roundoff of double precision.
_UNIT = 2.0**-53
# Least size of an encoded target that counts as at its bound of 1, as encoding may round it.
_BOUND = 1.0 - 2.0**-40


@dataclass(frozen=True)
class Bounded(ABC):
    """The statistic of one row whose mean is released: its value, its size, its sensitivity.

    Widths and sensitivities follow from public facts alone, so a plan may give points of one entry.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point at which the statistic is computed.
    """

    at: Array
    of_people: ClassVar[bool] = False
    """Whether rows count by their weights, so that a unit of several rows of total weight 1 adds as
    much as one row at most (user-level privacy)."""
    cone: ClassVar[bool] = False
    """Whether it is proved that no two rows' contributions have a negative inner product, so that
    the sensitivity to a replaced row is smaller."""
    degree: ClassVar[int] = 1
    """How many times the row is a factor of its contribution: 1 for gradients, 2 for matrices."""

    @abstractmethod
    def number_of_entries(self, facts: Facts) -> int:
        """Return how many entries the statistic has."""

    @abstractmethod
    def largest_row_norm(self, facts: Facts) -> float:
        """Return the largest Euclidean norm of one row's contribution."""

    @abstractmethod
    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of the statistic over a block of rows.

        The solver adds up the blocks (:meth:`sottovoce.solvers.local.Solver.total_over_rows`).

        Parameters
        ----------
        block : Design
            Up to n rows of each of M nodes, padded with zero rows.
        loss : Loss
            The loss for these rows; it knows their norms if it depends on them.
        at : array of shape (M, R, d)
            Public points of R replicates.

        Returns
        -------
        array of shape (M, R, width)
        """

    def exact_sum_sensitivity(self, facts: Facts) -> float:
        """Return the largest Euclidean change of the exact sum between neighbouring data sets.

        A replaced row takes its contribution u away and brings v: ``||u - v||`` is at most 2 norms,
        and sqrt 2 norms if ``u.v >= 0`` for any two rows (`cone`).  A zeroed row only takes one
        away.
        """
        # 2 contributions change under replace-one, 1 under zero-out.
        rows = RELATIONS[facts.relation]
        # The table of docs/privacy/answers.md, "Sensitivities", has every statistic's.
        if self.cone:
            return self.largest_row_norm(facts) * float(np.sqrt(rows))
        return self.largest_row_norm(facts) * float(rows)

    def rounding_error_bound(self, facts: Facts, rows: Array) -> Array:
        """Bound the rounding error of a computed mean.

        A sum of that many products of a few rounded factors, in any order, errs by at most ``(rows
        + d + 24) u`` times the sum of absolute values (Higham 2002, chapter 3), and so does the
        vector.  Sums over moved rows (:mod:`sottovoce.data.move`) err by at most ``(rows + 2 d +
        48) u`` times their stretch for every factor that is a row, or its square for losses that
        depend on norms.  Where a person has several rows, those of others may stand at other
        places, where the norms that weigh them round otherwise: by ``2 d u`` more.

        Parameters
        ----------
        facts : Facts
            Public facts of the run.
        rows : array of shape (..., 1)
            How many units the mean is over.

        Returns
        -------
        array of shape (..., 1)
            Bound on the Euclidean norm of the error, with unit roundoff ``u = 2^-53``.
        """
        summands = facts.most_rows_of_units(rows)
        elsewhere = 0.0
        if facts.has_several_rows:
            elsewhere = 2.0 * facts.d
        summands = summands + elsewhere
        if facts.stretch == 1.0:
            return np.asarray((summands + facts.d + 24.0) * _UNIT * self.largest_row_norm(facts))
        # Rows that a map moves are never written down: every factor of the sum rounds by the
        # stretch.
        power = self.degree
        if facts.loss.by_norm:
            power = 2 * self.degree
        more = facts.stretch**power
        return np.asarray(
            (summands + 2.0 * facts.d + 48.0) * _UNIT * self.largest_row_norm(facts) * more
        )

    def mean_sensitivity(self, facts: Facts, rows: Array) -> Array:
        """Return the sensitivity of a computed mean of `rows` units, its rounding included."""
        # Each of the two computed means may be off by its rounding, in opposite directions.
        return np.asarray(
            self.exact_sum_sensitivity(facts) / rows + 2.0 * self.rounding_error_bound(facts, rows)
        )

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        """Compute the mean over each node's own rows without noise, shape (..., width).

        It is protected by nothing, so it never leaves the query that adds the noise.
        """
        return np.asarray(vault.solver.total_over_rows(self.at, self.sum_over_block) / facts.n)

    def public_digest(self) -> bytes:
        """Return the digest of the public point and parameters (:meth:`Query.public_digest`)."""
        return digest_public_values(self)

    def placeholder_answer(self, facts: Facts) -> Array:
        """Return zeros of the answer's shape (..., width), for planning."""
        return np.zeros((*self.at.shape[:-1], self.number_of_entries(facts)))


class _Vector(Bounded):
    """Base of sums of vectors ``c_k a_k`` over the rows, with factors of both signs."""

    def number_of_entries(self, facts: Facts) -> int:
        """Return d."""
        return facts.d


@dataclass(frozen=True)
class Gradient(_Vector):
    """The mean gradient ``(1/n) sum_k derivative(a_k.w) a_k`` of the loss.

    A row's norm is at most the derivative bound.
    """

    def largest_row_norm(self, facts: Facts) -> float:
        return facts.loss.derivative_bound

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of gradients over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, d)
        """
        return np.asarray(block.weighted_row_sum(loss.derivative(block.margins_at(at))))


@dataclass(frozen=True)
class HuberGradient(_Vector):
    """The mean gradient of Huber's loss in units of h; a row's norm is at most 1.

    ``(1/n) sum_k weight_k clip(r_k / h, -1, 1) a_k`` with residuals ``r = a.w - t``.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point w.
    h : float
        Residual from which on the gradient is clipped, > 0.  It may follow from earlier releases:
        neither sensitivity nor event depends on it.
    """

    h: float = 1.0

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of Huber's gradients over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, d)
        """
        z = np.asarray(block.to_numpy_array(block.margins_at(at)))
        return np.asarray(
            block.weighted_row_sum(
                block.to_storage_array(weights_of_rows(loss, z) * np.clip(z / self.h, -1.0, 1.0))
            )
        )


class Gram(Bounded):
    """Sums of ``c_k a_k a_k'`` with factors ``c_k >= 0``, as vectors.

    Matrices are flattened by :func:`sottovoce.queries.moments.flatten_symmetric`.  ``<a a', b b'> =
    (a.b)^2 >= 0``, so contributions lie in a cone.
    """

    cone: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def number_of_entries(self, facts: Facts) -> int:
        return facts.d * (facts.d + 1) // 2

    @abstractmethod
    def row_factors(self, loss: Loss, z: Array) -> Array:
        """Return the factors ``c_k >= 0`` of the rows with margins `z`, of the shape of `z`."""

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of ``c_k a_k a_k'`` over a block of rows, flattened.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, d (d + 1) / 2)
        """
        c = self.row_factors(loss, np.asarray(block.to_numpy_array(block.margins_at(at))))
        return flatten_symmetric(
            np.stack(
                [block.weighted_gram(block.to_storage_array(c[:, r])) for r in range(c.shape[1])],
                axis=1,
            )
        )


@dataclass(frozen=True)
class SecondMoments(Gram):
    """``(1/n) sum_k weight_k a_k a_k'``: norm at most 1."""

    of_people: ClassVar[bool] = True

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def row_factors(self, loss: Loss, z: Array) -> Array:
        return weights_of_rows(loss, z)


@dataclass(frozen=True)
class Curvature(Gram):
    """The mean Hessian with clipped curvatures, in units of :meth:`hessian_factor`; rows add at
    most 1.

    ``(1/n) sum_k min(curvature(a_k.w), most) a_k a_k'``

    Parameters
    ----------
    at : array of shape (..., d)
        Public point w.
    most : float
        Bound at which curvatures are clipped.  It may follow from earlier releases: neither
        sensitivity nor event depends on it.
    """

    most: float = float("inf")

    def hessian_factor(self, loss: Loss) -> float:
        """Return the number by which the answer is to be multiplied to be a Hessian."""
        return min(loss.curvature_bound, self.most)

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def row_factors(self, loss: Loss, z: Array) -> Array:
        unit = self.hessian_factor(loss)
        return np.minimum(loss.curvature(z) / unit, weights_of_rows(loss, z))


@dataclass(frozen=True)
class SlopeMoments(Gram):
    """Second moments of gradients, ``(1/n) sum_k derivative(a_k.w)^2 a_k a_k'``.

    A row's norm is at most the derivative bound squared.
    """

    def largest_row_norm(self, facts: Facts) -> float:
        return facts.loss.derivative_bound**2

    def row_factors(self, loss: Loss, z: Array) -> Array:
        return np.asarray(loss.derivative(z) ** 2)


@dataclass(frozen=True)
class ResidualMoments(SlopeMoments):
    """Second moments of Huber's gradients, in units of h squared; a row's norm is at most 1.

    ``(1/n) sum_k weight_k^2 clip(r_k / h, -1, 1)^2 a_k a_k'`` with residuals ``r = a.w - t``.  `h`
    is as in :class:`HuberGradient`.
    """

    h: float = 1.0

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def row_factors(self, loss: Loss, z: Array) -> Array:
        return np.asarray((weights_of_rows(loss, z) * np.clip(z / self.h, -1.0, 1.0)) ** 2)


@dataclass(frozen=True)
class Products(_Vector):
    """Mean product with the target, ``(1/n) sum_k weight_k t_k a_k``: a row's norm is at most 1.

    t is the number to predict, in [-1, 1].
    """

    def largest_row_norm(self, facts: Facts) -> float:
        return facts.loss.offset_bound

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of products with the target over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, d)
        """
        # The margin at 0 is -t.
        t = -np.asarray(block.to_numpy_array(block.margins_at(np.zeros_like(at))))
        return np.asarray(
            block.weighted_row_sum(block.to_storage_array(weights_of_rows(loss, t) * t))
        )


@dataclass(frozen=True)
class RowMean(Bounded):
    """The mean row ``(1/n) sum_k x_k``, with 0 for the constants; a row's norm is at most 1.

    x_k is the row without its label's sign (which the sign of its constant tells), without class,
    and without weight unless a person's rows weigh no more than 1 together.  A row whose constants
    are 0, such as padding, adds nothing.  A row longer than 1 is clipped to norm 1.

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    constants : tuple of int
        Columns that hold the constant features.
    """

    of_people: ClassVar[bool] = True
    constants: tuple[int, ...] = ()

    def number_of_entries(self, facts: Facts) -> int:
        return facts.d // facts.loss.outputs

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        each = partial(self.sum_over_block, weighed=facts.has_several_rows)
        return np.asarray(vault.solver.total_over_rows(self.at, each) / facts.n)

    def sum_over_block(self, block: Design, loss: Loss, at: Array, weighed: bool = False) -> Array:
        """Compute the sum of rows, without their labels' signs, over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.
        weighed : bool
            Whether rows count by their weights, as where a person has several rows.

        Returns
        -------
        array of shape (M, R, d / outputs)
        """
        columns, rows = list(self.constants), block.storage
        constant = np.zeros((len(at), 1, at.shape[-1] // block.classes))
        constant[..., columns] = 1.0
        # Rows are stored times their label's sign, and so are their constants; padding has none.
        sign = np.sign(np.asarray(block.to_numpy_array(rows.margins_at(constant))))
        if loss.any_norm:
            # Bounds of norms are rounded up, so that no clipped row is longer than 1.
            norms = np.asarray(block.to_numpy_array(block.row_norm_bounds()))
            sign = sign / np.maximum(norms, 1.0)[:, None, :]
        if weighed:
            sign = block.apply_row_weights(sign)
        total = np.array(rows.weighted_row_sum(block.to_storage_array(sign)))
        total[..., columns] = 0.0
        return np.broadcast_to(total, (*at.shape[:2], total.shape[-1]))


@dataclass(frozen=True)
class Positives(Bounded):
    """The share of rows of the positive class, one entry.

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    constant : array of shape (d,)
        1 at the columns that hold the constant features and 0 elsewhere: its product with a row,
        which is stored times its label's sign, has the sign of the label.
    """

    constant: Array | None = None

    def number_of_entries(self, facts: Facts) -> int:
        return 1

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def exact_sum_sensitivity(self, facts: Facts) -> float:
        """Return 1: a row adds 0 or 1, so two of them differ by at most 1."""
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of the positive class in a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, 1)
        """
        sign = labels_of(block, self.constant, at)
        return np.sum(sign > 0, axis=-1, keepdims=True, dtype=float)


@dataclass(frozen=True)
class Scores(Bounded):
    """A histogram of scores ``x.w`` by group and label: shares of rows.

    A row without a known label is in no cell.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point w.
    constant : array of shape (d,)
        As for :class:`Positives`.
    edges : array of shape (cells - 1,)
        Public and increasing; a score on an edge is in the upper cell.
    groups : array of shape (g, d), optional
        A row is in group k + 1 for the first k whose product with it is not zero, else in group 0.
    """

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None
    edges: Array | None = None
    groups: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, labels and cells: the shape (1 + g, 2, cells) in which to read an answer."""
        assert self.edges is not None
        groups = 1
        if self.groups is not None:
            groups += len(self.groups)
        return groups, 2, len(self.edges) + 1

    def number_of_entries(self, facts: Facts) -> int:
        return int(np.prod(self.shape))

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block by group, label and cell of their score.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, groups * 2 * cells)
            To be read in the order of :attr:`shape`.
        """
        assert self.edges is not None
        groups, _, cells = self.shape
        sign = labels_of(block, self.constant, at)
        _, group, cell = score_cells(block, at, sign, self.edges, self.groups)
        index = (group * 2 + (sign > 0)) * cells + cell
        return counts_by_cell(index, sign != 0.0, groups * 2 * cells)


@dataclass(frozen=True)
class Residuals(Bounded):
    """A histogram of the absolute residuals ``|x.w - t|``: shares of rows.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point w.
    constant : array of shape (d,)
        As for :class:`Positives`.
    edges : array of shape (cells - 1,)
        Public and increasing; a residual on an edge is in the upper cell.
    """

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None
    edges: Array | None = None

    def number_of_entries(self, facts: Facts) -> int:
        assert self.edges is not None
        return len(self.edges) + 1

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block by cell of their absolute residual.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, cells)
        """
        assert self.edges is not None
        cell = np.searchsorted(
            self.edges, np.abs(np.asarray(block.to_numpy_array(block.margins_at(at)))), side="right"
        )
        return counts_by_cell(cell, labels_of(block, self.constant, at) != 0.0, len(self.edges) + 1)


@dataclass(frozen=True)
class AtBounds(Bounded):
    """Shares of rows whose target is at its lower and at its upper declared bound, two entries.

    Targets beyond the declared bounds were clipped to them, so these are the shares at or beyond
    the bounds.

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    constant : array of shape (d,)
        As for :class:`Positives`.
    """

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None

    def number_of_entries(self, facts: Facts) -> int:
        return 2

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block whose target is at its lower and at its upper bound.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, 2)
        """
        t = -np.asarray(block.to_numpy_array(block.margins_at(np.zeros_like(at))))
        known = labels_of(block, self.constant, at) != 0.0
        return counts_by_cell((t > 0.0).astype(np.int64), known & (np.abs(t) >= _BOUND), 2)


@dataclass(frozen=True)
class Cells(Bounded):
    """Histograms of several columns at once: shares of rows by cell, times ``1 / sqrt(columns)``.

    Rows hold in every column the number of their cell, from 1; any other number is in no cell.  A
    row counts by its weight.  A row adds ``1 / sqrt(columns)`` to each column's histogram, so its
    norm is at most 1.

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    widths : tuple of int
        How many cells each column has.
    """

    cone: ClassVar[bool] = True  # counts
    of_people: ClassVar[bool] = True
    widths: tuple[int, ...] = ()

    @property
    def unit(self) -> float:
        """Contribution of one row to its cell of a column."""
        return float(1.0 / np.sqrt(len(self.widths)))

    def number_of_entries(self, facts: Facts) -> int:
        return sum(self.widths)

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block by cell of every column.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, sum of `widths`)
            The columns' histograms one after the other, times :attr:`unit`.
        """
        row_weights: list[Array | None] = [None] * len(at)
        if block.weight is not None:
            row_weights = list(np.asarray(block.to_numpy_array(block.weight)))
        found = []
        for width, axis in zip(self.widths, np.eye(at.shape[-1]), strict=True):
            # The product with a unit vector reads one column.
            cells = np.asarray(
                block.to_numpy_array(block.change_of_margins(_repeat_for_nodes(axis, at)))
            )[:, 0]
            own = np.rint(np.where(cells <= width, np.maximum(cells, 0.0), 0.0)).astype(np.int64)
            # Cell 0 collects the rows that are in no cell, and is dropped.
            counts = [
                np.bincount(row, weight, width + 1)[1:]
                for row, weight in zip(own, row_weights, strict=True)
            ]
            found.append(np.stack(counts))
        return np.repeat(
            (np.concatenate(found, axis=1) * self.unit)[:, None, :], at.shape[1], axis=1
        )


def counts_by_cell(cells: IntArray, counted: BoolArray, width: int) -> Array:
    """Count rows by cell, for every node and replicate.

    Parameters
    ----------
    cells : integer array of shape (M, R, n)
        Number of each row's cell, from 0 to ``width - 1``.
    counted : boolean array of shape (M, R, n)
        Which rows are counted; the others may have any cell.
    width : int
        How many cells there are.

    Returns
    -------
    array of shape (M, R, width)
    """
    out = np.zeros((*counted.shape[:2], width))
    for at in np.ndindex(counted.shape[:2]):
        out[at] = np.bincount(cells[at][counted[at]], minlength=width)
    return out


def _repeat_for_nodes(vector: Array, at: Array) -> Array:
    """Return the same vector (d,) for every node and one replicate, (M, 1, d)."""
    return np.broadcast_to(np.asarray(vector, dtype=float), (at.shape[0], 1, at.shape[-1]))


def labels_of(block: Design, constant: Array | None, at: Array) -> Array:
    """Return the signs of the rows' labels.

    Parameters
    ----------
    block : Design
        Up to n rows of each of M nodes, padded with zero rows.
    constant : array of shape (d,)
        1 at the columns that hold the constant features, as for :class:`Positives`.
    at : array of shape (M, R, d)
        Only its shape is used.

    Returns
    -------
    array of shape (M, R, n)
        1 and -1 for labels; 0 for a row without a known label, and for padding.
    """
    assert constant is not None
    sign = np.sign(
        np.asarray(block.to_numpy_array(block.change_of_margins(_repeat_for_nodes(constant, at))))
    )
    return np.broadcast_to(sign, (*at.shape[:2], sign.shape[-1]))


def score_cells(
    block: Design, at: Array, sign: Array, edges: Array, groups: Array | None
) -> tuple[Array, IntArray, IntArray]:
    """Return each row's score ``x.w``, and its group and cell as in :class:`Scores`.

    Parameters
    ----------
    block : Design
        Up to n rows of each of M nodes, padded with zero rows.
    at : array of shape (M, R, d)
        Public points w.
    sign : array of shape (M, R, n)
        Signs of the rows' labels (:func:`labels_of`), by which rows are stored.
    edges : array of shape (cells - 1,)
        Public and increasing edges of the cells.
    groups : array of shape (g, d), optional
        As for :class:`Scores`; None if all rows are in group 0.

    Returns
    -------
    score : array of shape (M, R, n)
    group, cell : integer arrays of shape (M, R, n)
        From 0 to g, and from 0 to ``cells - 1``.
    """
    score = np.asarray(block.to_numpy_array(block.change_of_margins(at))) * sign
    cell = np.searchsorted(edges, score, side="right")
    group = np.zeros(sign.shape, dtype=np.int64)
    if groups is not None:
        # From the last to the first, so that the first group that a row is in overwrites the
        # others.
        for k in reversed(range(len(groups))):
            product = block.change_of_margins(_repeat_for_nodes(groups[k], at))
            inside = np.asarray(block.to_numpy_array(product)) != 0.0
            group = np.where(np.broadcast_to(inside, sign.shape), k + 1, group)
    return score, group, cell


@dataclass(frozen=True)
class NoisyBounded(NoisyValue):
    """The mean over each node's own rows of a bounded statistic, with Gaussian noise.

    Parameters
    ----------
    start, alpha, source, claimed
        As for :class:`sottovoce.queries.statistic.NoisyStatistic`; `start` is the statistic's
        point.
    what : Bounded
        The statistic.

    Guarantee
    ---------
    With ``alpha``, the Gaussian mechanism of sensitivity over sigma ``alpha`` for one row of the
    node, priced by :class:`~sottovoce.privacy.events.GaussianMechanism` (docs/privacy/answers.md).
    In a sum, a site's rounding, weighed by its rows, is below that of all rows at one site.
    """

    what: Bounded = field(kw_only=True)
    in_sums: ClassVar[str | None] = ""

    @classmethod
    def of_statistic(cls, what: Bounded, alpha: Array | None, source: str) -> NoisyBounded:
        """Return the query that releases the mean of a bounded statistic at its own point.

        Parameters
        ----------
        what : Bounded
            The statistic.
        alpha : array of shape (..., 1) or None
            Sensitivity over sigma of the release; None for no noise.
        source : str
            The mechanism's name in ledgers.

        Returns
        -------
        NoisyBounded
        """
        return cls(what.at, alpha, source, what=what)

    def proved_of_people(self) -> bool:
        return bool(vars(type(self.what)).get("of_people", False))

    def exact_sensitivity(self, facts: Facts) -> Array:
        return self.mean_sensitivity(facts, facts.n)

    def mean_sensitivity(self, facts: Facts, rows: Array) -> Array:
        return self.what.mean_sensitivity(facts, rows)

    def addend_norm_bound(self, facts: Facts) -> Array:
        return np.full(
            (*facts.n.shape[:-1], 1), self.what.largest_row_norm(facts) * (1.0 + 2.0**-20)
        )

    def check_before_charge(self, facts: Facts) -> None:
        """Check that the public point is finite, and that the noise has a price in this run."""
        super().check_before_charge(facts)
        if facts.pure and self.alpha is not None:
            raise InvalidInput(
                "delta",
                None,
                "must be > 0, because Gaussian noise on sums has no pure epsilon",
                "use delta=1e-5",
            )

    def number_of_entries(self, facts: Facts) -> int:
        return self.what.number_of_entries(facts)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Return the standard deviation of the noise on an entry of the mean over all rows.

        Parameters
        ----------
        facts : Facts
            Public facts of all nodes, of which the mean weighs each by its rows.
        among : Among
            Not used: where each site releases its own mean, all sites take part
            (:meth:`sottovoce.runs.oracles.OwnAnswers.participating_sites`).

        Returns
        -------
        float
            0 without noise.
        """
        if self.alpha is None:
            return 0.0
        weights = facts.n[:, 0] / np.sum(facts.n)
        return float(np.sqrt(np.sum((weights * self.event(facts).noise_standard_deviation()) ** 2)))

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        return self.what.exact_statistic(vault, facts)

    def public_digest(self) -> bytes:
        return self.what.public_digest()

    def placeholder_answer(self, facts: Facts) -> Array:
        return self.what.placeholder_answer(facts)
