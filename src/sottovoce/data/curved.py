"""Curved features: functions of raw columns, so that a linear model of them is not linear in these.

They are used only where a schema declares them.
:class:`Spline` reads a raw column; :class:`Squares`, :class:`Pairs` and :class:`Fourier` are
*derived* from features of other blocks.  All constants are declared: no knot, bandwidth or
frequency depends on rows.  That encoded rows stay in the unit ball is proved in
docs/howto/curved.md, and sketched at each class.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from ..errors import SchemaError
from ..util.later import Later
from ..util.typing import Array
from .columns import (
    KINDS,
    LIMIT,
    Block,
    Mask,
    Number,
    OneColumn,
    Vector,
    block_from_dict,
    check_number_of_features,
    check_replacement_value,
)
from .table import Column

special = Later("scipy.special")

MIDDLE = 0.3
"""Subtracted from squares to centre them: about the mean square of a number that fills its range
(1/3 if it is uniform on [-1, 1])."""
NARROW, BROAD = 1e-3, 1e3  # bounds of a bandwidth, where the range of a number has width 2
SEEDS = 2**63  # seeds are smaller than this
ALL = "*"  # in `of`: every declared number


class Derived(ABC):
    """A block whose features are functions of those of other blocks, `of`."""

    kind: ClassVar[str]
    numbers: ClassVar[bool] = True
    """Whether all of `of` must be numbers."""
    least: ClassVar[int] = 1
    """Smallest number of blocks in `of`."""
    name: str
    of: tuple[Block, ...]
    weight: float

    @property
    @abstractmethod
    def reach(self) -> float: ...
    @property
    @abstractmethod
    def span(self) -> float: ...
    @property
    @abstractmethod
    def feature_names(self) -> list[str]: ...
    @abstractmethod
    def derive_features(self, features: Sequence[Array]) -> Array:
        """Compute features (n, k) from those of the blocks `of`, in their order."""

    def source_columns(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        return tuple(source for one in self.of for source in one.source_columns(columns))

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """Clips nothing of its own: what other blocks clip is counted there."""
        found = self.derive_features([one.encode(columns, na)[0] for one in self.of])
        return found, np.zeros(len(found), dtype=bool)

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        return self.derive_features([one.draw_features(n, rng) for one in self.of])

    def _check_source_blocks(self) -> None:
        """Refuse sources that repeat, are too few, or are of a kind that this block cannot use."""
        field = f"{self.name}.of"
        names = [getattr(one, "name", one) for one in self.of]
        if len(set(names)) != len(names) or len(names) < self.least:
            columns = "columns" if self.least > 1 else "column"
            rule = f"must name at least {self.least} declared {columns}, each once"
            remedy = f'for example: of = ["age", "dose"], or ["{ALL}"] for every number'
            raise SchemaError(field, None, rule, remedy)
        allowed: Any = OneColumn | Vector
        rule = "must be a declared column that is not computed from others"
        if self.numbers:
            allowed = Number
            rule = "must be a declared number"
        for one, name in zip(self.of, names, strict=True):
            if not isinstance(one, allowed):
                remedy = f"declare [columns.{name}] that way, or leave it out of {self.name}"
                raise SchemaError(field, name, rule, remedy)


@dataclass(frozen=True)
class Squares(Derived):
    """The square of each of some numbers, minus 0.3: for effects that rise and fall, and for
    spreads that differ between classes.

    Parameters
    ----------
    of : tuple of Number
        The square is that of the scaled number: 0 in the middle of the range, 1 at its ends (``to =
        "[0,1]"``: 0 at its start).  Beyond the range, squares less 0.3 are clipped to 1.

    Guarantee
    ---------
    A feature ``min(c^2 - 0.3, 1)`` lies in [-0.3, 1], and in [-0.3, 0.7] where the number lies in
    its range. Subtraction is monotone in floating point, so this holds for rounded features too.
    """

    kind: ClassVar[str] = "squares"
    name: str
    of: tuple[Block, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._check_source_blocks()

    @property
    def reach(self) -> float:
        return math.sqrt(sum(_largest_squared_norm(one.reach) ** 2 for one in self.of))

    @property
    def span(self) -> float:
        return math.sqrt(sum(_largest_squared_norm(1.0) ** 2 for _ in self.of))

    @property
    def feature_names(self) -> list[str]:
        return [f"{one.name}^2" for one in self.of]

    def derive_features(self, features: Sequence[Array]) -> Array:
        c = _stack_source_numbers(features)
        return np.minimum(c * c - MIDDLE, 1.0)


def _largest_squared_norm(reach: float) -> float:
    """Return the largest absolute value of ``min(c^2 - 0.3, 1)`` where ``|c| <= reach``."""
    return max(MIDDLE, min(reach * reach - MIDDLE, 1.0))


def _stack_source_numbers(features: Sequence[Array]) -> Array:
    """Stack the scaled numbers of k blocks, (n, k), without their indicators of missing values."""
    return np.column_stack([one[:, 0] for one in features])


@dataclass(frozen=True)
class Pairs(Derived):
    """Interactions: the products of all features of every two of some blocks.

    Parameters
    ----------
    of : tuple of Block
        Two or more.  Numbers are clipped to [-1, 1], so to their typical range, before they are
        multiplied; with a category, a number gets a slope for every level.

    Guarantee
    ---------
    Features of a block, clipped to [-1, 1], have norm at most 1 (U), so the products of two blocks,
    an outer product, have norm at most U^2, and those of m pairs at most ``sqrt(m)`` times that.
    """

    kind: ClassVar[str] = "pairs"
    numbers: ClassVar[bool] = False
    least: ClassVar[int] = 2
    name: str
    of: tuple[Block, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._check_source_blocks()
        sizes = [len(one.feature_names) for one in self.of]
        check_number_of_features(
            f"{self.name}.of", (sum(sizes) ** 2 - sum(k * k for k in sizes)) // 2
        )

    @property
    def reach(self) -> float:
        return math.sqrt(math.comb(len(self.of), 2))

    @property
    def span(self) -> float:
        return self.reach

    @cached_property
    def feature_names(self) -> list[str]:
        return [
            f"{a}:{b}"
            for one, other in combinations(self.of, 2)
            for a in one.feature_names
            for b in other.feature_names
        ]

    def derive_features(self, features: Sequence[Array]) -> Array:
        inside = [np.clip(one, -1.0, 1.0) for one in features]
        products = [a[:, :, None] * b[:, None, :] for a, b in combinations(inside, 2)]
        return np.concatenate([one.reshape(len(one), -1) for one in products], axis=1)


@dataclass(frozen=True)
class Fourier(Derived):
    """Random Fourier features (Rahimi and Recht 2007): cosines and sines of some numbers along
    random directions.

    The inner product of two rows' features approximates the Gaussian kernel ``exp(-|c - c'|^2 / (2
    bandwidth^2))`` of their scaled numbers, so a linear model of them is about one of any smooth
    shape.

    Parameters
    ----------
    of : tuple of Number
    features : int
        An even number; half are cosines and half sines, of the same directions.  More follow the
        kernel more closely, and gather more noise.
    bandwidth : float
        Public, in units of scaled numbers, whose range is [-1, 1]: how far apart two values are
        that have to do with each other.
    seed : int
        Public; directions are the same on every machine.

    Guarantee
    ---------
    ``cos^2 + sin^2 = 1``, so with the factor ``sqrt(2 / features)`` the norm is 1.
    """

    kind: ClassVar[str] = "fourier"
    reach: ClassVar[float] = 1.0
    span: ClassVar[float] = 1.0
    name: str
    of: tuple[Block, ...]
    features: int
    bandwidth: float
    seed: int = 0
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._check_source_blocks()
        if self.features < 2 or self.features % 2:
            rule = "must be an even number, half of it cosines and half sines"
            raise SchemaError(f"{self.name}.features", self.features, rule, "use 50 to 200")
        check_number_of_features(f"{self.name}.features", self.features)
        if not NARROW <= self.bandwidth <= BROAD:
            rule = f"must be from {NARROW:g} to {BROAD:g}, in units of half a number's range"
            raise SchemaError(f"{self.name}.bandwidth", self.bandwidth, rule, "use 0.3 to 2")
        if not 0 <= self.seed < SEEDS:
            raise SchemaError(f"{self.name}.seed", self.seed, "must be from 0 to 2^63 - 1", "use 0")

    @cached_property
    def feature_names(self) -> list[str]:
        return [
            f"{self.name}[{what} {k}]" for what in ("cos", "sin") for k in range(self.features // 2)
        ]

    @cached_property
    def directions(self) -> Array:
        """Frequencies (k, features / 2) of k numbers: normal, with standard deviation ``1 /
        bandwidth``.
        """
        k, half = len(self.of), self.features // 2
        # NumPy keeps the raw stream of a bit generator for good, and not what it makes of it (NEP
        # 19).
        raw = np.random.PCG64(self.seed).random_raw(k * half) >> np.uint64(12)
        return special.ndtri((raw + 0.5) * 2.0**-52).reshape(k, half) / self.bandwidth

    def derive_features(self, features: Sequence[Array]) -> Array:
        c = _stack_source_numbers(features)
        angles = np.zeros((len(features[0]), self.features // 2))
        for values, along in zip(c.T, self.directions, strict=True):
            # Sums in one order, whatever the batch of rows.
            angles += values[:, None] * along
        return np.hstack([np.cos(angles), np.sin(angles)]) * math.sqrt(2.0 / self.features)


@dataclass(frozen=True)
class Spline(OneColumn):
    """A smooth curve of one number: B-splines on public knots.

    Parameters
    ----------
    knots : tuple of float
        Two or more increasing numbers, in the column's unit; values beyond the outer ones are
        clipped to them and counted.  They stand where the curve may bend, closer where more values
        lie.
    degree : {3, 2, 1}
        Of the polynomials between knots: 3 for smooth curves, 1 for broken lines.
    missing : float, optional
        Replaces a missing value.

    Guarantee
    ---------
    There are ``len(knots) - 1 + degree`` features.  None is negative and they add up to 1, so their
    norm is at most 1.
    """

    kind: ClassVar[str] = "spline"
    name: str
    knots: tuple[float, ...]
    column: str | None = None
    degree: int = 3
    missing: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        knots = np.asarray(self.knots)
        inside = bool(np.all(np.abs(knots) <= LIMIT))  # False with a NaN
        if len(knots) < 2 or not inside or not np.all(knots[:-1] < knots[1:]):
            rule = f"must be at least two increasing numbers within {LIMIT:g}"
            raise SchemaError(
                f"{self.name}.knots",
                self.knots,
                rule,
                "declare public knots such as [0, 20, 50, 100]",
            )
        if self.degree not in (1, 2, 3):
            raise SchemaError(
                f"{self.name}.degree", self.degree, "must be 1, 2 or 3", "use 3 for smooth curves"
            )
        check_number_of_features(f"{self.name}.knots", len(self.knots) - 1 + self.degree)
        check_replacement_value(self.name, self.missing)

    @cached_property
    def feature_names(self) -> list[str]:
        return [f"{self.name}[spline {k}]" for k in range(len(self.knots) - 1 + self.degree)]

    @cached_property
    def repeated(self) -> Array:
        """The knots, the outer ones `degree` times more."""
        return np.concatenate(
            [[self.knots[0]] * self.degree, self.knots, [self.knots[-1]] * self.degree]
        )

    def supports(self, p: int) -> tuple[Array, Array, Array]:
        """Return starts, ends and widths of the supports of splines of degree ``p - 1``.

        A support between equal knots has width 0; it is given as 1, so that it can divide.
        """
        start, end = self.repeated[:-p], self.repeated[p:]
        return start, end, np.where(end > start, end - start, 1.0)

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        raw = self.read_numbers(columns, na, self.missing)
        return self.spline_features(raw), (raw < self.knots[0]) | (raw > self.knots[-1])

    def spline_features(self, raw: Array) -> Array:
        """Compute the splines' values (n, k) by the recursion of Cox and de Boor."""
        x = np.clip(raw, self.knots[0], self.knots[-1])
        # Degree 0: the indicator of the stretch between knots that holds the number.
        found = np.zeros((len(x), len(self.repeated) - 1))
        found[
            np.arange(len(x)), self.degree + np.searchsorted(self.knots[1:-1], x, side="right")
        ] = 1.0
        for p in range(1, self.degree + 1):
            start, end, width = self.supports(p)
            with np.errstate(over="ignore"):
                # Far from a support that is narrow, where the spline is 0.
                up = np.clip((x[:, None] - start) / width, 0.0, 1.0)
                down = np.clip((end - x[:, None]) / width, 0.0, 1.0)
            found = up[:, :-1] * found[:, :-1] + down[:, 1:] * found[:, 1:]
        return found

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Intervals between knots are equally likely, and values uniform in them."""
        knots = np.asarray(self.knots)
        at = rng.integers(len(knots) - 1, size=n)
        return self.spline_features(knots[at] + rng.random(n) * np.diff(knots)[at])


KINDS.update({cls.kind: cls for cls in (Squares, Pairs, Spline, Fourier)})


def blocks_from_entries(columns: Mapping[str, Mapping[str, Any]]) -> tuple[Block, ...]:
    """Build the blocks of a schema file's ``[columns.NAME]``, in their order."""
    given = {str(name): dict(entries) for name, entries in columns.items()}
    derived = {name for name, entries in given.items() if is_derived(entries)}
    plain = {
        name: block_from_dict(name, entries)
        for name, entries in given.items()
        if name not in derived
    }

    def one(name: str) -> Block:
        if name in plain:
            return plain[name]
        return block_from_dict(name, given[name] | named_source_blocks(name, given[name], plain))

    return tuple(map(one, given))


def is_derived(entries: Mapping[str, Any]) -> bool:
    """Return True if ``[columns.NAME]`` declares features made from those of other columns."""
    kind = entries.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return False
    return issubclass(KINDS[kind], Derived)


def named_source_blocks(
    name: str, entries: Mapping[str, Any], plain: Mapping[str, Block]
) -> dict[str, Any]:
    """Replace the names in an entry ``of`` by the blocks that they name.

    Parameters
    ----------
    name : str
        Of the derived block, for errors.
    entries : mapping
        Its entries in a schema file.
    plain : mapping of str to Block
        The blocks that are not derived.

    Returns
    -------
    dict
        ``{"of": blocks}``, of every number for ``["*"]``; empty if the entry is no list, which the
        block itself refuses.

    Raises
    ------
    SchemaError
        If a name is none of `plain`.
    """
    of = entries.get("of")
    if of == [ALL]:
        return {"of": [block for block in plain.values() if isinstance(block, Number)]}
    if not isinstance(of, list | tuple):
        return {}  # refused by its type
    for one in of:
        if not isinstance(one, str) or one not in plain:
            rule = "must be a declared column that is not computed from others"
            raise SchemaError(f"{name}.of", one, rule, "declare it, or leave it out")
    return {"of": [plain[one] for one in of]}
