"""Centring: the noisy mean of all rows is released before training, and subtracted from every row.

Encoded rows consist mostly of a common offset, so norm clipping and noise act on the offset in
every round.  One release of the mean, charged to the same budget, removes it.  After *moving*, a
row z with constant entry x is ``gain (z - mean x / k)``, clipped to norm 1 again; k is the constant
of a row that nothing clipped (:class:`sottovoce.data.move.Move`).

Whether to centre is decided from public facts alone: sizes, budget, trust and the schema
(docs/privacy/centring.md, which also says why it is private).
:mod:`sottovoce.runs.training` and plans of separate sites decide; :mod:`sottovoce.runs.engine`
releases the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from ..algorithms import REGISTRY
from ..algorithms.centre import Centre
from ..algorithms.items import Answer
from ..data.columns import Number, Vector
from ..data.move import Move, stretch_bound
from ..data.schema import Schema
from ..errors import InvalidInput
from ..privacy.gaussian import gaussian_epsilon, nominal_mu
from ..problem.losses import make_loss
from ..problem.schedules import Schedule
from ..problem.trust import RELATIONS
from ..util.codec import Unreadable, record_from_plain, record_to_plain
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any, Array
from .config import RunConfig

GAIN = 2.0
"""Factor (g) of centred rows where the schema does not say how long a typical row is."""
LEAST, MOST = 0.01, 0.10
"""Bounds on the mean's share of the run's squared mu (sensitivity over sigma)."""
ACCURATE = 0.25
"""Target for the length of the mean's noise over all columns: the share follows from it."""
TOO_NOISY = 1.6
"""Largest ratio of the noise's length at the share :data:`MOST` to that of the longest row.

Beyond it no mean is asked.
"""
FEWEST = 3
"""Smallest number of columns whose means are shrunk towards a common direction."""
ROUNDED = 0.01
"""Largest relative increase of a sensitivity by the rounding of moved rows.

Tables with so many rows that it would be larger are not centred.
"""

DISCLOSED = "the means of all columns, with noise and within epsilon, by which every row was moved"


class Frame(NamedTuple):
    """Public facts of an encoding on which centring rests.

    `constants` are the indices of the constant columns, `k` and `gain` as for :class:`Centring`,
    and `groups` the columns whose declarations are alike, so that their means may be.
    """

    constants: tuple[int, ...]
    k: float
    gain: float = 1.0
    groups: tuple[tuple[int, ...], ...] = ()


def _column_group_key(block: Number | Vector) -> tuple[str, ...]:
    """Return the key by which columns are grouped: their encoding, and their side of zero."""
    kind: tuple[str, ...]
    if isinstance(block, Number):
        kind = (block.to,)
        from_zero = block.lo == 0.0 or block.transform == "log1p"
    else:
        kind = ("vector", block.name)
        from_zero = block.lo == 0.0
    if from_zero:
        return (*kind, "zero")
    if block.lo > 0.0:
        return (*kind, "above")
    return (*kind, "below")


def frame_of_schema(schema: Schema) -> Frame | None:
    """Return the public facts on which centring rests, from a schema.

    None without a constant column that is the same in all rows inside the norm bound.
    """
    if not schema.intercept or schema.unit:
        return None
    groups: dict[tuple[str, ...], list[int]] = {}
    first = 0
    for block in schema.blocks:
        columns = range(first, first + len(block.feature_names))
        first = columns.stop
        if isinstance(block, Number | Vector):
            groups.setdefault(_column_group_key(block), []).extend(columns)
    # A schema with a declared scale or typical values already says how long a typical row is.
    typical = any(isinstance(block, Number) and block.typical for block in schema.blocks)
    gain = GAIN
    if schema.scale is not None or typical:
        gain = 1.0
    k = schema.intercept / (schema.divisor * schema.slack)
    large = tuple(tuple(columns) for columns in groups.values() if len(columns) >= FEWEST)
    return Frame((schema.n_features - 1,), k, gain, large)


@dataclass(frozen=True)
class Centring:
    """The centring of a run's rows: public, and decided before any row is read.

    Parameters
    ----------
    constants : tuple of int
        Indices of the constant columns.
    k : float
        The constant entry of a row that was not clipped, in (0, 1].
    gain : float
        Factor of centred rows before they are clipped to norm 1, >= 1.
    alpha : float
        mu (sensitivity over sigma) of the mean's release.
    share : float
        The mean's share of the run's squared mu, in (0, 1).
    groups : tuple of tuples of int
        Groups of columns whose means are shrunk towards their common direction.
    """

    constants: tuple[int, ...]
    k: float
    gain: float
    alpha: float
    share: float
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        columns = [column for group in (self.constants, *self.groups) for column in group]
        distinct = self.constants and len(set(columns)) == len(columns) and min(columns) >= 0
        scaled = 0.0 < self.k <= 1.0 <= self.gain < math.inf
        priced = 0.0 < self.alpha < math.inf and 0.0 < self.share < 1.0
        if not (distinct and scaled and priced and all(self.groups)):
            rule = (
                "needs distinct columns, 0 < k <= 1 <= gain, a positive alpha, and a share "
                "inside (0, 1)"
            )
            raise InvalidInput(
                "centre", None, rule, "make it by sottovoce.runs.centre.decide_centring"
            )

    @cached_property
    def digest(self) -> str:
        """Digest of this centring, which configurations of runs hold."""
        return personalised_hash(b"centre", canonical_json(self.to_dict()).encode()).hex()[:32]

    def check_columns(self, width: int) -> None:
        """Refuse columns beyond those of rows of this width; InvalidInput."""
        most = max(column for group in (self.constants, *self.groups) for column in group)
        if most >= width:
            rule = f"needs rows of at least {most + 1} columns, but these have {width}"
            remedy = "make it by sottovoce.runs.centre.decide_centring for these rows"
            raise InvalidInput("centre", None, rule, remedy)

    @property
    def recipe(self) -> Centre:
        """The recipe that releases the mean before the method."""
        return Centre(noise=Schedule(self.alpha), constants=self.constants)

    @property
    def stretch(self) -> float:
        """The factor by which products of moved rows round more.

        See :class:`sottovoce.problem.facts.Facts`.
        """
        return stretch_bound(self.gain, self.k, len(self.constants))

    @property
    def says(self) -> str:
        """The privacy cost of the release, in words."""
        # Gaussian releases add up in mu^2 = 2 rho of zCDP, so the share of mu^2 is one of rho.
        cost = f"{100.0 * self.share:.2g}% of the privacy budget (in zCDP)"
        return (
            f"noisy means of all columns were released first and subtracted from all rows; they "
            f"took {cost}, which epsilon includes"
        )

    def map_for_mean(self, mean: Array) -> Move:
        """Return the public map that subtracts a mean, (p,) or (R, p) for R replicates."""
        return Move(mean, self.constants, self.k, self.gain)

    def shrink_mean(self, answer: Answer) -> Array:
        """Shrink the released mean to reduce its noise: (R, p), of norm at most 1.

        It is post-processing, and gives the same bits on every machine.  The mean's part along a
        group's common direction, of length a, is multiplied by ``(1 - s^2 / a^2)+``, with s the
        noise's standard deviation in a column.  What is left of the mean m is multiplied by James
        and Stein's ``(1 - (p - 2) s^2 / ||m||^2)+``, with p its free dimensions and p - 2 at least
        1.
        """
        mean = np.array(answer.value, dtype=float)
        # The variance of the noise in a column.
        noise = answer.spread**2
        mean[:, list(self.constants)] = 0.0
        common = np.zeros_like(mean)
        for group in self.groups:
            columns = list(group)
            along = _sum_exactly(mean[:, columns]) / math.sqrt(len(columns))
            kept = along * np.maximum(1.0 - noise / np.maximum(along**2, 1e-300), 0.0)
            mean[:, columns] -= along / math.sqrt(len(columns))
            common[:, columns] = kept / math.sqrt(len(columns))
        # James and Stein's p - 2: each group's direction takes one dimension away.
        left = max(1, mean.shape[1] - len(self.constants) - len(self.groups) - 2)
        shrinkage = np.maximum(1.0 - left * noise / np.maximum(_sum_exactly(mean**2), 1e-300), 0.0)
        found = common + mean * shrinkage
        # No mean of rows in the unit ball is longer than 1.
        length = np.sqrt(_sum_exactly(found**2)) * (1.0 + 1e-12)
        return np.asarray(found / np.maximum(1.0, length))

    def config_for_method(self, config: RunConfig) -> RunConfig:
        """Return the configuration with about the epsilon that the mean leaves for the method.

        ``method="auto"`` compares candidates under it; the run itself is priced exactly.
        """
        assert config.delta is not None
        left: list[float] = []
        for epsilon in np.atleast_1d(config.epsilon).tolist():
            # Squares of mu add up, and `share` of the run's is the mean's.
            mu = nominal_mu(epsilon, config.delta) * math.sqrt(1.0 - self.share)
            left.append(gaussian_epsilon(config.delta, mu))
        if isinstance(config.epsilon, tuple):
            return replace(config, epsilon=tuple(left))
        return replace(config, epsilon=left[0])

    def to_dict(self) -> dict[str, Any]:
        return dict(record_to_plain(self))

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Read what :meth:`to_dict` wrote, from an untrusted file; InvalidInput if it is none."""
        try:
            return record_from_plain(cls, record)
        except Unreadable as error:
            rule = f"is not the record of how rows are centred: {error}"
            raise InvalidInput(
                "centre", None, rule, "use the record in a plan or a saved run"
            ) from None


def _sum_exactly(values: Array) -> Array:
    """Sum (R, p) over the last axis to (R, 1), with one rounding at the end.

    Sites compare results of these sums bit by bit, so they must not depend on the order in which a
    machine adds.
    """
    return np.array([[math.fsum(row)] for row in values.tolist()])


class Decision(NamedTuple):
    """Whether rows are centred, and the reason in words."""

    centring: Centring | None
    says: str

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"centred": self.centring is not None, "says": self.says}
        if self.centring is not None:
            plain |= self.centring.to_dict()
        return plain


def decide_centring(config: RunConfig, n: Array, d: int, frame: Frame | None) -> Decision:
    """Decide from public facts whether and how to centre rows.

    Parameters
    ----------
    config : RunConfig
        Its budget, trust and relation, and whether its method can run on moved rows.
    n : array
        Rows of every site.
    d : int
        Columns of a row, constants included.
    frame : Frame or None
        Public facts of the encoding; None without a constant column.

    Returns
    -------
    Decision
        Rows are not centred where the method cannot run on moved rows, where the noise of the means
        would be too large for these rows, or where rounding would cost more.
    """
    why = _why_not_centred(config, frame)
    if why:
        return Decision(None, f"rows were not centred: {why}")
    assert frame is not None and config.delta is not None
    sizes = np.asarray(n, dtype=float).ravel()
    free = d - len(frame.constants)
    rows = float(sizes.sum())
    summed, pooled = config.trusted.opens_sums, config.trusted.pools_rows
    # By how much squared mu grows for a person with rows at m sites: one sum moves m times as far
    # (m^2), or m separate answers move once each (m).
    people = config.copies * config.sites_per_row
    if summed:
        people = config.copies * config.sites_per_row**2
    mu = nominal_mu(float(np.min(config.epsilon)), config.delta) / math.sqrt(people)
    # The expected length of the mean's noise over all columns, if the mean had the whole budget.
    more = _noise_over_curator(config, len(sizes))
    noise = math.sqrt(free) * RELATIONS[config.relation] * more / (rows * mu)
    # Without its constant, a row is no longer than this.
    radius = math.sqrt(max(0.0, 1.0 - frame.k**2))
    if noise / math.sqrt(MOST) > TOO_NOISY * radius:
        few = f"{rows:,.0f} rows are too few to estimate {free} means with this privacy budget"
        return Decision(None, f"rows were not centred: {few}")
    # Rounding grows with the rows of a sum: those of all sites, or of the largest site.
    largest = float(sizes.max())
    if summed or pooled:
        largest = rows
    stretch = stretch_bound(frame.gain, frame.k, len(frame.constants))
    if largest**2 * (config.rows_per_person or 1) * 2.0**-53 * stretch**2 > ROUNDED:
        many = f"with {rows:,.0f} rows, rounding would add more than {ROUNDED:.0%} to the noise"
        return Decision(None, f"rows were not centred: {many}")
    share = float(np.clip((noise / ACCURATE) ** 2, LEAST, MOST))
    alpha = float(f"{mu * math.sqrt(share):.6g}")
    made = Centring(frame.constants, frame.k, frame.gain, alpha, (alpha / mu) ** 2, frame.groups)
    return Decision(made, made.says)


def _noise_over_curator(config: RunConfig, sites: int) -> float:
    """Return the ratio of the noise of a mean over all sites to that of a curator's mean.

    It is f of docs/privacy/centring.md, step 1.
    """
    if config.trusted.pools_rows:
        return 1.0
    if config.trusted.opens_sums:
        # Colluders know their own shares of the noise.
        return math.sqrt(sites / max(1, sites - config.colluders))
    return math.sqrt(sites)


def _why_not_centred(config: RunConfig, frame: Frame | None) -> str:
    """Return why no mean is asked, after "rows were not centred: "; empty if one can be asked."""
    known = REGISTRY.get(config.method)
    # A constant above 1 is longer than any row may be: all rows are clipped.
    if frame is None or frame.k > 1.0:
        return "they have no constant column with the same value in all rows"
    if config.form != "corrected":
        return "a printed form follows its paper to the letter"
    if not config.budgeted or (known is not None and not known.private):
        return "without a finite epsilon there is no noise to reduce"
    if config.relation not in RELATIONS:
        return "the neighbouring relation is unknown"
    if config.noise is not None:
        return "the noise is given, so that no part of a budget can be used for the means"
    if config.delta is None or config.notion == "pure":
        return "the means need Gaussian noise, which has no pure epsilon"
    if make_loss(config.loss).offset_bound:
        return (
            "labels are numbers, for which centring loses more accuracy on small tables than it "
            "gains on large ones"
        )
    return ""


def with_centring_digest(config: RunConfig, centring: Centring | None) -> RunConfig:
    """Return the configuration with the digest of how its rows are centred.

    InvalidInput if it already has the digest of another :class:`Centring`, or `centring` is None.
    """
    if centring is None:
        if config.centre is not None:
            rule = "is the digest of a Centring, but no Centring was given"
            raise InvalidInput("centre", config.centre, rule, "give both, or leave both out")
        return config
    if config.centre not in (None, centring.digest):
        rule = "is not the digest of the Centring that was given"
        raise InvalidInput(
            "centre", config.centre, rule, "give the Centring that the configuration was made with"
        )
    return replace(config, centre=centring.digest)
