"""Bounded sums: means over rows of a statistic of bounded size.

A :class:`Bounded` says what a row adds, and how much.  :class:`NoisyBounded` asks each site for its own mean with all
of the noise in it; as a :class:`sottovoce.queries.Sum` it asks for the mean of all rows, and nobody sees an addend.

Guarantee
---------
With ``alpha`` an answer is the Gaussian mechanism of shift over sigma ``alpha`` for one row.  Sensitivities follow from
public facts, with the rounding of the computation; ``docs/privacy/answers.md`` has their proofs.
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
from ..problem.weighted_loss import weights
from ..util.plain import digest_of
from ..util.typing import Array, BoolArray, IntArray
from .moments import flat
from .statistic import NoisyValue
from .vault import Vault

_UNIT = 2.0**-53
_BOUND = 1.0 - 2.0**-40  # of an encoded target: what is at a bound may be rounded


@dataclass(frozen=True)
class Bounded(ABC):
    """What every row adds at a public point `at`, shape (..., d).

    Widths and sensitivities follow from public facts alone: a plan asks at points of one entry.
    """

    at: Array
    of_people: ClassVar[bool] = False
    """Whether rows count by their weights, so that units of several rows that weigh 1 together add one row at most."""
    cone: ClassVar[bool] = False
    """Whether it is proved that no two rows' contributions have a negative inner product; a replaced row costs less."""
    degree: ClassVar[int] = 1
    """How often a contribution has the row as a factor."""

    @abstractmethod
    def width(self, facts: Facts) -> int:
        """Entries of the statistic."""

    @abstractmethod
    def norm(self, facts: Facts) -> float:
        """Largest Euclidean norm of what a row adds."""

    @abstractmethod
    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        """The sum over a block of rows, for M nodes and R points: (M, R, width)."""

    def changed(self, facts: Facts) -> float:
        """Largest Euclidean change of the exact sum between neighbouring data sets.

        A replaced row takes u away and brings v: ``||u - v||`` is at most 2 norms, and sqrt 2 of them if ``u.v >= 0``.
        A zeroed row only takes one away.
        """
        rows = RELATIONS[facts.relation]
        return self.norm(facts) * float(np.sqrt(rows) if self.cone else rows)

    def rounding(self, facts: Facts, rows: Array) -> Array:
        """Bound on the rounding error of a mean over `rows` rows.

        A sum of that many products of a few rounded factors, in any order, errs by at most ``(rows + d + 24) u`` times
        the sum of absolute values (Higham 2002, chapter 3), and so does the vector.  Sums over moved rows
        (:mod:`sottovoce.data.move`) err by at most ``(rows + 2 d + 48) u`` times their stretch for every factor that is
        a row, or its square for losses that depend on norms.  Where a person has several rows, those of others may
        stand at other places, where the norms that weigh them round otherwise: by ``2 d u`` more.
        """
        rows = facts.summands(rows) + (2.0 * facts.d if facts.several else 0.0)
        if facts.stretch == 1.0:
            return np.asarray((rows + facts.d + 24.0) * _UNIT * self.norm(facts))
        more = facts.stretch ** (self.degree * (2 if facts.loss.by_norm else 1))
        return np.asarray((rows + 2.0 * facts.d + 48.0) * _UNIT * self.norm(facts) * more)

    def moved(self, facts: Facts, rows: Array) -> Array:
        """Largest Euclidean change of a computed mean of `rows` rows."""
        return np.asarray(self.changed(facts) / rows + 2.0 * self.rounding(facts, rows))

    def value(self, vault: Vault, facts: Facts) -> Array:
        """The mean over each node's own rows, (..., width)."""
        return np.asarray(vault.solver.total(self.at, self.terms) / facts.n)

    def stamp(self) -> bytes:
        return digest_of(self)

    def blank(self, facts: Facts) -> Array:
        return np.zeros((*self.at.shape[:-1], self.width(facts)))


class _Vector(Bounded):
    """Sums of vectors ``c_k a_k`` with factors of both signs."""

    def width(self, facts: Facts) -> int:
        return facts.d


@dataclass(frozen=True)
class Gradient(_Vector):
    """``(1/n) sum_k derivative(a_k.w) a_k``: norm at most the derivative bound."""

    def norm(self, facts: Facts) -> float:
        return facts.loss.derivative_bound

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        return np.asarray(block.combine(loss.derivative(block.margins(at))))


@dataclass(frozen=True)
class HuberGradient(_Vector):
    """``(1/n) sum_k weight_k clip(r_k / h, -1, 1) a_k`` with residuals ``r = a.w - t``: norm at most 1.

    `h`, the unit, may follow from earlier releases: neither sensitivity nor event depends on it.
    """

    h: float = 1.0

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        z = np.asarray(block.host(block.margins(at)))
        return np.asarray(block.combine(block.asarray(weights(loss, z) * np.clip(z / self.h, -1.0, 1.0))))


class Gram(Bounded):
    """Sums of ``c_k a_k a_k'`` with ``c_k >= 0``, flattened by :func:`sottovoce.queries.moments.flat`.

    ``<a a', b b'> = (a.b)^2 >= 0``, so contributions lie in a cone.
    """

    cone: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def width(self, facts: Facts) -> int:
        return facts.d * (facts.d + 1) // 2

    @abstractmethod
    def factors(self, loss: Loss, z: Array) -> Array:
        """The c_k, at least 0."""

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        c = self.factors(loss, np.asarray(block.host(block.margins(at))))
        return flat(np.stack([block.gram(block.asarray(c[:, r])) for r in range(c.shape[1])], axis=1))


@dataclass(frozen=True)
class SecondMoments(Gram):
    """``(1/n) sum_k weight_k a_k a_k'``: norm at most 1."""

    of_people: ClassVar[bool] = True

    def norm(self, facts: Facts) -> float:
        return 1.0

    def factors(self, loss: Loss, z: Array) -> Array:
        return weights(loss, z)


@dataclass(frozen=True)
class Curvature(Gram):
    """The Hessian ``(1/n) sum_k curvature(a_k.w) a_k a_k'`` with curvatures cut at `most`, in units of :meth:`unit`.

    A row adds at most 1.  `most` may follow from earlier releases: neither sensitivity nor event depends on it.
    """

    most: float = float("inf")

    def unit(self, loss: Loss) -> float:
        """What the answer is to be multiplied by."""
        return min(loss.curvature_bound, self.most)

    def norm(self, facts: Facts) -> float:
        return 1.0

    def factors(self, loss: Loss, z: Array) -> Array:
        unit = self.unit(loss)
        return np.minimum(loss.curvature(z) / unit, weights(loss, z))


@dataclass(frozen=True)
class SlopeMoments(Gram):
    """``(1/n) sum_k derivative(a_k.w)^2 a_k a_k'``, second moments of gradients: norm at most the bound squared."""

    def norm(self, facts: Facts) -> float:
        return facts.loss.derivative_bound**2

    def factors(self, loss: Loss, z: Array) -> Array:
        return np.asarray(loss.derivative(z) ** 2)


@dataclass(frozen=True)
class ResidualMoments(SlopeMoments):
    """``(1/n) sum_k weight_k^2 clip(r_k / h, -1, 1)^2 a_k a_k'`` with residuals ``r = a.w - t``: norm at most 1.

    `h` is as in :class:`HuberGradient`.
    """

    h: float = 1.0

    def norm(self, facts: Facts) -> float:
        return 1.0

    def factors(self, loss: Loss, z: Array) -> Array:
        return np.asarray((weights(loss, z) * np.clip(z / self.h, -1.0, 1.0)) ** 2)


@dataclass(frozen=True)
class Products(_Vector):
    """``(1/n) sum_k weight_k t_k a_k``, with numbers t to predict in [-1, 1]: norm at most 1."""

    def norm(self, facts: Facts) -> float:
        return facts.loss.offset_bound

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        t = -np.asarray(block.host(block.margins(np.zeros_like(at))))
        return np.asarray(block.combine(block.asarray(weights(loss, t) * t)))


@dataclass(frozen=True)
class RowMean(Bounded):
    """``(1/n) sum_k x_k`` of the rows' columns but those of their `constants`, whose entries are 0: norm at most 1.

    x_k is without the label's sign, which the constant's sign tells, and without class, and without weight unless a
    person's rows weigh no more than 1 together.  A row without a constant, as one of zeros, adds nothing; of a row
    longer than 1 only the direction counts.
    """

    of_people: ClassVar[bool] = True
    constants: tuple[int, ...] = ()

    def width(self, facts: Facts) -> int:
        return facts.d // facts.loss.outputs

    def norm(self, facts: Facts) -> float:
        return 1.0

    def value(self, vault: Vault, facts: Facts) -> Array:
        each = partial(self.terms, weighed=facts.several)
        return np.asarray(vault.solver.total(self.at, each) / facts.n)

    def terms(self, block: Design, loss: Loss, at: Array, weighed: bool = False) -> Array:
        columns, rows = list(self.constants), block.storage
        constant = np.zeros((len(at), 1, at.shape[-1] // block.classes))
        constant[..., columns] = 1.0
        sign = np.sign(np.asarray(block.host(rows.margins(constant))))
        if loss.any_norm:
            sign = sign / np.maximum(np.asarray(block.host(block.norms())), 1.0)[:, None, :]
        total = np.array(rows.combine(block.asarray(block.weigh(sign) if weighed else sign)))
        total[..., columns] = 0.0
        return np.broadcast_to(total, (*at.shape[:2], total.shape[-1]))


@dataclass(frozen=True)
class Positives(Bounded):
    """The share of rows of the positive class, one entry.

    `constant`, shape (d,), is 1 where rows have their constants and 0 elsewhere: its product with a signed row has the
    sign of the label.
    """

    constant: Array | None = None

    def width(self, facts: Facts) -> int:
        return 1

    def norm(self, facts: Facts) -> float:
        return 1.0

    def changed(self, facts: Facts) -> float:
        """A row adds 0 or 1, so two of them differ by at most 1."""
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        sign = labels_of(block, self.constant, at)
        return np.sum(sign > 0, axis=-1, keepdims=True, dtype=float)


@dataclass(frozen=True)
class Scores(Bounded):
    """Shares of rows by group, label and cell of their score ``x.w``; a row without a known label is in none.

    Parameters
    ----------
    constant : array (d,)
        As for :class:`Positives`.
    edges : array (cells - 1,)
        Public and increasing; a score on an edge is in the upper cell.
    groups : array (g, d)
        A row is in group k + 1 for the first k whose product with it is not zero, else in group 0.
    """

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None
    edges: Array | None = None
    groups: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, labels and cells: how to read an answer."""
        assert self.edges is not None
        return 1 + (0 if self.groups is None else len(self.groups)), 2, len(self.edges) + 1

    def width(self, facts: Facts) -> int:
        return int(np.prod(self.shape))

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        assert self.edges is not None
        groups, _, cells = self.shape
        sign = labels_of(block, self.constant, at)
        _, group, cell = score_cells(block, at, sign, self.edges, self.groups)
        index = (group * 2 + (sign > 0)) * cells + cell
        return counts(index, sign != 0.0, groups * 2 * cells)


@dataclass(frozen=True)
class Residuals(Bounded):
    """Shares of rows by the size of ``x.w - t``, over public cells; `constant` and `edges` as in :class:`Scores`."""

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None
    edges: Array | None = None

    def width(self, facts: Facts) -> int:
        assert self.edges is not None
        return len(self.edges) + 1

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        assert self.edges is not None
        cell = np.searchsorted(self.edges, np.abs(np.asarray(block.host(block.margins(at)))), side="right")
        return counts(cell, labels_of(block, self.constant, at) != 0.0, len(self.edges) + 1)


@dataclass(frozen=True)
class AtBounds(Bounded):
    """Shares of rows whose number to predict is at the lower and at the upper bound; `constant` as in :class:`Scores`.

    Targets beyond the declared bounds were clipped to them, so these are the shares at or beyond the bounds.
    """

    cone: ClassVar[bool] = True  # counts
    constant: Array | None = None

    def width(self, facts: Facts) -> int:
        return 2

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        t = -np.asarray(block.host(block.margins(np.zeros_like(at))))
        known = labels_of(block, self.constant, at) != 0.0
        return counts((t > 0.0).astype(np.int64), known & (np.abs(t) >= _BOUND), 2)


@dataclass(frozen=True)
class Cells(Bounded):
    """Shares of rows by cell, of several columns at once, each column's times the root of one over their number.

    Rows hold the number of their cell in every column, from 1; any other number is in no cell.  A row counts by its
    weight.

    Parameters
    ----------
    widths : tuple of int
        Cells of each column.
    """

    cone: ClassVar[bool] = True  # counts
    of_people: ClassVar[bool] = True
    widths: tuple[int, ...] = ()

    @property
    def unit(self) -> float:
        """What a row adds to its cell of a column."""
        return float(1.0 / np.sqrt(len(self.widths)))

    def width(self, facts: Facts) -> int:
        return sum(self.widths)

    def norm(self, facts: Facts) -> float:
        return 1.0

    def terms(self, block: Design, loss: Loss, at: Array) -> Array:
        weight = None if block.weight is None else np.asarray(block.host(block.weight))
        found = []
        for width, axis in zip(self.widths, np.eye(at.shape[-1]), strict=True):
            cells = np.asarray(block.host(block.moves(_everywhere(axis, at))))[:, 0]
            own = np.rint(np.where(cells <= width, np.maximum(cells, 0.0), 0.0)).astype(np.int64)
            counts = [
                np.bincount(row, None if weight is None else weight[i], width + 1)[1:] for i, row in enumerate(own)
            ]
            found.append(np.stack(counts))
        return np.repeat((np.concatenate(found, axis=1) * self.unit)[:, None, :], at.shape[1], axis=1)


def counts(cells: IntArray, counted: BoolArray, width: int) -> Array:
    """How many counted rows are in each of `width` cells, (M, R, width)."""
    out = np.zeros((*counted.shape[:2], width))
    for at in np.ndindex(counted.shape[:2]):
        out[at] = np.bincount(cells[at][counted[at]], minlength=width)
    return out


def _everywhere(vector: Array, at: Array) -> Array:
    """The same vector for every node, and one replicate: (M, 1, d)."""
    return np.broadcast_to(np.asarray(vector, dtype=float), (at.shape[0], 1, at.shape[-1]))


def labels_of(block: Design, constant: Array | None, at: Array) -> Array:
    """Signs of labels, (M, R, n): 0 for a row without a known label, and for padding."""
    assert constant is not None
    sign = np.sign(np.asarray(block.host(block.moves(_everywhere(constant, at)))))
    return np.broadcast_to(sign, (*at.shape[:2], sign.shape[-1]))


def score_cells(
    block: Design, at: Array, sign: Array, edges: Array, groups: Array | None
) -> tuple[Array, IntArray, IntArray]:
    """Scores ``x.w`` of rows with these signs, with their groups and cells as in :class:`Scores`: (M, R, n) each."""
    score = np.asarray(block.host(block.moves(at))) * sign
    cell = np.searchsorted(edges, score, side="right")
    group = np.zeros(sign.shape, dtype=np.int64)
    for k in reversed(range(0 if groups is None else len(groups))):
        assert groups is not None
        inside = np.asarray(block.host(block.moves(_everywhere(groups[k], at)))) != 0.0
        group = np.where(np.broadcast_to(inside, sign.shape), k + 1, group)
    return score, group, cell


@dataclass(frozen=True)
class NoisyBounded(NoisyValue):
    """Each node's mean of `what`, with noise; `start` is its point.

    In a sum, a site's rounding, weighed by its rows, is below that of all rows at one site.
    """

    what: Bounded = field(kw_only=True)
    in_sums: ClassVar[str | None] = ""

    @classmethod
    def of(cls, what: Bounded, alpha: Array | None, source: str) -> NoisyBounded:
        """The query for `what` at its point."""
        return cls(what.at, alpha, source, what=what)

    def proved_of_people(self) -> bool:
        return bool(vars(type(self.what)).get("of_people", False))

    def exact_sensitivity(self, facts: Facts) -> Array:
        return self.moved(facts, facts.n)

    def moved(self, facts: Facts, rows: Array) -> Array:
        return self.what.moved(facts, rows)

    def reach(self, facts: Facts) -> Array:
        return np.full((*facts.n.shape[:-1], 1), self.what.norm(facts) * (1.0 + 2.0**-20))

    def check(self, facts: Facts) -> None:
        super().check(facts)
        if facts.pure and self.alpha is not None:
            raise InvalidInput("delta", None, "noise on sums is Gaussian and has no pure price", "use delta=1e-5")

    def entries(self, facts: Facts) -> int:
        return self.what.width(facts)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Standard deviation of the noise on an entry of the mean over all rows, from the facts of all nodes."""
        if self.alpha is None:
            return 0.0
        weights = facts.n[:, 0] / np.sum(facts.n)
        return float(np.sqrt(np.sum((weights * self.event(facts).spread()) ** 2)))

    def value(self, vault: Vault, facts: Facts) -> Array:
        return self.what.value(vault, facts)

    def stamp(self) -> bytes:
        return self.what.stamp()

    def blank(self, facts: Facts) -> Array:
        return self.what.blank(facts)
