"""Centring: one charged release of the rows' mean before any method, and the public map that takes
it away.

Encoded rows are mostly a common offset, which noise and caps pay for in every round.  What is
decided here follows from public facts: sizes, budget, trust and the schema
(docs/explanation/centring.md).
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
"""g where nothing says how long a typical row is."""
LEAST, MOST = 0.01, 0.10
"""Bounds on the mean's share of the squared sensitivity over sigma."""
ACCURATE = 0.25
"""The share makes the noise's length, over all columns, this large, within its bounds."""
TOO_NOISY = 1.6
"""At the largest share, the noise's length over that of the longest row, beyond which nothing is
asked.
"""
FEWEST = 3
"""Columns of a group."""
ROUNDED = 0.01
"""How much larger the rounding of moved rows may make a sensitivity; more rows are left as they
are.
"""

DISCLOSED = "the means of all columns, with noise and within epsilon, by which every row was moved"


class Frame(NamedTuple):
    """Public facts of an encoding: constants' columns, k, g, and columns whose means are alike."""

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
    """Return the frame of a schema's rows.

    It is None without a constant that rows inside the norm bound have alike.
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
    # Whoever declares a scale or typical values says how long a typical row is.
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
        Columns of the constants.
    k : float
        The constant of a row that nothing shortened.
    gain : float
        What centred rows are multiplied by before they are shortened.
    alpha : float
        Sensitivity over sigma of the mean's release.
    share : float
        Of the squared sensitivity over sigma of the whole run.
    groups : tuple of tuples of int
        Columns whose means are shrunk towards a common one's direction.
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
            raise InvalidInput("centre", None, rule, "use sottovoce.runs.centre.decide_centring")

    @cached_property
    def digest(self) -> str:
        """Digest of this centring; configurations hold it."""
        return personalised_hash(b"centre", canonical_json(self.to_dict()).encode()).hex()[:32]

    def check_columns(self, width: int) -> None:
        """Refuse columns beyond those of rows of this width; InvalidInput."""
        most = max(column for group in (self.constants, *self.groups) for column in group)
        if most >= width:
            rule = f"names column {most} of rows that have {width}"
            raise InvalidInput("centre", None, rule, "decide it for the encoding of these rows")

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
        cost = f"{100.0 * self.share:.2g}% of the squared shift over sigma"
        return (
            f"noisy means of all columns were released first, within epsilon ({cost}), and taken "
            "away from all rows"
        )

    def map_for_mean(self, mean: Array) -> Move:
        """Return the public map of a mean, (p,) or (R, p)."""
        return Move(mean, self.constants, self.k, self.gain)

    def shrink_mean(self, answer: Answer) -> Array:
        """Shrink the released mean by what noise explains: (R, p), of norm at most 1.

        The bits are the same on every machine.

        Along a group's common direction by ``(1 - s^2 / a^2)+``, with a the mean's part along it
        and s the noise's standard deviation; the rest as James and Stein do, and one or two columns
        like one direction.
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
        # James and Stein's factor: dimensions less two.
        left = max(1, mean.shape[1] - len(self.constants) - len(self.groups) - 2)
        shrinkage = np.maximum(1.0 - left * noise / np.maximum(_sum_exactly(mean**2), 1e-300), 0.0)
        found = common + mean * shrinkage
        # No mean of rows in the unit ball is longer than 1.
        length = np.sqrt(_sum_exactly(found**2)) * (1.0 + 1e-12)
        return np.asarray(found / np.maximum(1.0, length))

    def config_for_method(self, config: RunConfig) -> RunConfig:
        """Return the configuration with about the epsilon that is left for its method.

        It is for choices that are made before the run is priced.
        """
        assert config.delta is not None
        left: list[float] = []
        for epsilon in np.atleast_1d(config.epsilon).tolist():
            # Squares of shifts over sigma add up, and this share of them is the mean's.
            mu = nominal_mu(epsilon, config.delta) * math.sqrt(1.0 - self.share)
            left.append(gaussian_epsilon(config.delta, mu))
        if isinstance(config.epsilon, tuple):
            return replace(config, epsilon=tuple(left))
        return replace(config, epsilon=left[0])

    def to_dict(self) -> dict[str, Any]:
        return dict(record_to_plain(self))

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Read a :meth:`to_dict`, which may come from anybody; InvalidInput if it is none."""
        try:
            return record_from_plain(cls, record)
        except Unreadable as error:
            rule = f"is not the record of a centring: {error}"
            raise InvalidInput(
                "centre", None, rule, "use what a plan or a run's record holds"
            ) from None


def _sum_exactly(values: Array) -> Array:
    """Add up over the last axis, (R, 1), exactly but for one rounding.

    Sites compare what follows from these sums, so no machine may add in another order.
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
        Its budget, trust and relation; of the method only whether it can run on moved rows.
    n : array
        Rows of every site.
    d : int
        Columns of a row, constants included.
    frame : Frame or None
        Of the encoding; None without a constant.

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
    # A person's rows at m sites move one sum m times as far, and m answers once each.
    people = config.copies * config.sites_per_row
    if summed:
        people = config.copies * config.sites_per_row**2
    mu = nominal_mu(float(np.min(config.epsilon)), config.delta) / math.sqrt(people)
    # The length of the mean's noise, at a share of one.
    more = _noise_over_curator(config, len(sizes))
    noise = math.sqrt(free) * RELATIONS[config.relation] * more / (rows * mu)
    # Without its constant, a row is no longer than this.
    radius = math.sqrt(max(0.0, 1.0 - frame.k**2))
    if noise / math.sqrt(MOST) > TOO_NOISY * radius:
        few = f"{rows:,.0f} rows are too few for {free} means at this budget"
        return Decision(None, f"rows were not centred: {few}")
    # Rounding grows with the rows of a sum: those of all sites, or of the largest site.
    largest = float(sizes.max())
    if summed or pooled:
        largest = rows
    stretch = stretch_bound(frame.gain, frame.k, len(frame.constants))
    if largest**2 * (config.rows_per_person or 1) * 2.0**-53 * stretch**2 > ROUNDED:
        many = f"{rows:,.0f} rows are so many that rounding would cost more"
        return Decision(None, f"rows were not centred: {many}")
    share = float(np.clip((noise / ACCURATE) ** 2, LEAST, MOST))
    alpha = float(f"{mu * math.sqrt(share):.6g}")
    made = Centring(frame.constants, frame.k, frame.gain, alpha, (alpha / mu) ** 2, frame.groups)
    return Decision(made, made.says)


def _noise_over_curator(config: RunConfig, sites: int) -> float:
    """Return how much more noise a mean over all sites has than one by a curator.

    It is f of docs/explanation/centring.md, step 1.
    """
    if config.trusted.pools_rows:
        return 1.0
    if config.trusted.opens_sums:
        # Colluders know their own shares of the noise.
        return math.sqrt(sites / max(1, sites - config.colluders))
    return math.sqrt(sites)


def _why_not_centred(config: RunConfig, frame: Frame | None) -> str:
    """Return why no mean is asked; empty if one can be."""
    known = REGISTRY.get(config.method)
    # A constant above 1 is longer than any row may be: all rows are clipped.
    if frame is None or frame.k > 1.0:
        return "they have no constant that is alike in all of them"
    if config.form != "corrected":
        return "a printed form runs as its paper says"
    if not config.budgeted or (known is not None and not known.private):
        return "without a budget there is no noise to save"
    if config.relation not in RELATIONS:
        return "their relation is unknown"
    if config.noise is not None:
        return "noise is given, and no share of it can be taken for a mean"
    if config.delta is None or config.notion == "pure":
        return "a mean's noise has no price in pure epsilon"
    if make_loss(config.loss).offset_bound:
        return (
            "labels are numbers, for which it loses more on small tables than it gains on large "
            "ones"
        )
    return ""


def with_centring_digest(config: RunConfig, centring: Centring | None) -> RunConfig:
    """Return the configuration with the digest of how its rows are centred.

    InvalidInput if it names another way, or one that was not given.
    """
    if centring is None:
        if config.centre is not None:
            rule = "is the digest of a centring that was not given"
            raise InvalidInput(
                "centre", config.centre, rule, "give the centring too, or leave both out"
            )
        return config
    if config.centre not in (None, centring.digest):
        rule = "is the digest of another centring than the one given"
        raise InvalidInput(
            "centre", config.centre, rule, "give the centring that the configuration was made with"
        )
    return replace(config, centre=centring.digest)
