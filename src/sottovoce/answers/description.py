"""What a descriptive table (Table 1) asks of rows: its variables, its public grids, its recipe.

A *variable* is a column of the schema, or its label: a number in public bounds, or a list of public
levels.  Rows are written as codes (:mod:`sottovoce.queries.table_sums`), and all sums of the table
are one release: of every group counts of levels, two moments of each number and its histogram.
:mod:`sottovoce.answers.description_estimates` reads the table from them, and
:mod:`sottovoce.answers.describing` runs the recipe.

An empty cell, or any other mark of a missing value, is counted as missing and enters no other
number, whatever the schema puts in its place for training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..algorithms.items import Answer, Item, Kept
from ..algorithms.once import Once
from ..data.columns import Bins, Block, Category, Number
from ..data.dates import Date
from ..data.follow_up import read_event_marks
from ..data.labels import (
    AnyLabel,
    CountLabel,
    EventLabel,
    NumberLabel,
    TimeSeen,
    parse_number_labels,
)
from ..data.schema import ABSENT, BEYOND, LABEL, OTHER, Schema
from ..data.values import Column
from ..errors import InvalidInput
from ..problem.facts import Facts
from ..problem.task import TwoClasses
from ..queries import Bounded, LevelSums, NumberSums, TableSums
from ..queries.table_sums import MISSING
from ..util.typing import Array

BY, SITE, FIRST = 0, 1, 2
"""Columns of the codes of groups, of sites, and of the first block, which counts rows."""
OVERALL = "overall"
"""Name of all groups together."""
GONE = "missing"
"""Name of the level of values that are missing, or not declared."""
MOMENTS = 0.35
"""Share of each of the two moments of a number in what a row adds for it; the histogram has the
rest.  A quartile bears more noise than a mean."""
OF_ROWS = 0.04
"""Share of the count of rows in what a row adds; counts of levels tell the number of rows too."""
USUAL_SD = 0.25
"""Standard deviation that is expected of a number without a typical range, over half of its bounds'
width: generous bounds reach four of them to both sides."""
TYPICAL_SD = 1.0 / 3.29
"""Standard deviation over the width of a typical range, which holds nine values in ten."""
NARROW, BROAD = 0.06, 1.0
"""Least and largest standard deviation that is expected."""
LEVEL_OVER_MEAN = 0.1
"""A noise of .1 standard deviations in a mean is as bad as one of 1 point in a share."""
CELLS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of cells of a grid."""
EXACT_CELLS = 4096
"""Number of cells without noise."""
IN_TYPICAL = 0.75
"""Share of the cells that lie in a declared typical range."""
NORMAL = 0.4
"""Density of a normal number at its middle, times its standard deviation."""


@dataclass(frozen=True)
class Variable(ABC):
    """A variable of the table.

    Parameters
    ----------
    name : str
        As the table shows it.
    source : Block or label
        Its declaration.
    """

    name: str
    source: Any

    @abstractmethod
    def read_codes(
        self, columns: Mapping[str, Column], na: tuple[str, ...]
    ) -> tuple[Array, dict[str, int]]:
        """Read the code of every row, (n,), and count rows that do not fit, for their holder.

        Parameters
        ----------
        columns : mapping of str to column
            Of the table.
        na : tuple of str
            Declared marks of missing values.

        Returns
        -------
        codes : array (n,)
        unfit : dict of str to int
            As :attr:`sottovoce.data.schema.Encoded.clipped`.
        """


@dataclass(frozen=True)
class Levels(Variable):
    """A variable with public levels; the last one is :data:`GONE`."""

    levels: tuple[str, ...]

    def read_codes(
        self, columns: Mapping[str, Column], na: tuple[str, ...]
    ) -> tuple[Array, dict[str, int]]:
        """Read the number of every row's level, from 1."""
        if isinstance(self.source, Bins | Category):
            whole = _with_level_for_missing(self.source)
            features, outside = whole.encode(columns, frozenset(na))
            # A value of a category that is not declared has no feature at all.
            undeclared = ~features.any(axis=1)
            level = np.where(undeclared, len(self.levels), features.argmax(axis=1) + 1)
            mark = self.source.name
            if isinstance(self.source, Category) and self.source.other:
                mark = OTHER + mark
            return level.astype(float), {mark: int(outside.sum())}
        if isinstance(self.source, EventLabel):
            event = read_event_marks(columns[self.source.event], self.source.event_code)
            known = ~np.isnan(event)
            codes = np.where(known, event + 1.0, float(len(self.levels)))
            return codes, {LABEL: int((~known).sum())}
        task = self.source.task
        y = self.source.encode(columns[self.source.column], na)
        known = task.has_known_label(y)
        number = (y > 0).astype(float) if isinstance(task, TwoClasses) else y
        codes = np.where(known, number + 1.0, float(len(self.levels)))
        return codes, {LABEL: int((~known).sum())}


@dataclass(frozen=True)
class Quantity(Variable):
    """A variable that is a number, clipped to its public bounds.

    Parameters
    ----------
    lo, hi : float
        Public bounds.
    typical : (float, float), optional
        Declared range of most values.
    logarithmic : bool
        Whether cells of the grid are even in ``log(1 + x)``.
    """

    lo: float
    hi: float
    typical: tuple[float, float] | None = None
    logarithmic: bool = False

    @property
    def middle(self) -> float:
        """Middle of the bounds, which has the code 0."""
        return 0.5 * (self.lo + self.hi)

    @property
    def half(self) -> float:
        """Half of the width of the bounds: the unit of codes."""
        return 0.5 * (self.hi - self.lo)

    @property
    def expected_sd(self) -> float:
        """Standard deviation of codes that is expected from public facts alone."""
        if self.typical is None:
            return USUAL_SD
        low, high = self.typical
        return min(max(TYPICAL_SD * (high - low) / self.half, NARROW), BROAD)

    def grid_edges(self, cells: int) -> Array:
        """Return the inner ends of this many cells, as codes.

        They are even, or even after the declared logarithm; three in four lie in a typical range,
        if one is declared.
        """
        lo, hi = self.lo, self.hi
        ends = [lo, hi]
        if self.typical is not None:
            ends = [lo, *self.typical, hi]
        if self.logarithmic:
            ends = [math.log1p(x) for x in ends]
        many = [cells]
        if self.typical is not None:
            outside = (ends[1] - ends[0]) + (ends[3] - ends[2])
            beyond = round((1.0 - IN_TYPICAL) * cells)
            below = 0
            if outside > 0.0:
                below = round(beyond * (ends[1] - ends[0]) / outside)
            above = 0
            if ends[3] > ends[2]:
                above = beyond - below
            many = [below, cells - below - above, above]
        parts = [
            np.linspace(a, b, k, endpoint=False)
            for a, b, k in zip(ends[:-1], ends[1:], many, strict=True)
        ]
        inner = np.unique(np.concatenate(parts))
        if self.logarithmic:
            inner = np.expm1(inner)
        codes = (inner - self.middle) / self.half
        return codes[(codes > -1.0 + 1e-12) & (codes < 1.0 - 1e-12)]

    def read_codes(
        self, columns: Mapping[str, Column], na: tuple[str, ...]
    ) -> tuple[Array, dict[str, int]]:
        """Read every row's number on the scale of its bounds, from -1 to 1."""
        if isinstance(self.source, NumberLabel | CountLabel | TimeSeen | EventLabel):
            column = self.source.column
            if isinstance(self.source, EventLabel):
                column = self.source.time
            x = parse_number_labels(columns[column], na)
            absent, mark = np.isnan(x), BEYOND
            x = np.where(absent, self.middle, x)
        else:
            x, absent = self.source.numbers_and_missing(columns, frozenset(na))
            mark = self.source.name
        outside = ((x < self.lo) | (x > self.hi)) & ~absent
        codes = np.clip((np.clip(x, self.lo, self.hi) - self.middle) / self.half, -1.0, 1.0)
        return np.where(absent, MISSING, codes), {mark: int(outside.sum())}


def _with_level_for_missing(block: Bins | Category) -> Bins | Category:
    """Return a block of levels without a reference, whose last level is that of missing values."""
    return replace(block, base=None, missing=None, indicator=True)


def _variable_of_block(block: Block) -> Variable | None:
    """Return the variable of a block; None for vectors and for curved features."""
    if isinstance(block, Number):
        name = block.name
        if isinstance(block, Date):
            name = f"{block.name}, {block.unit} since {block.epoch}"
        return Quantity(name, block, block.lo, block.hi, block.typical, block.transform == "log1p")
    if isinstance(block, Bins | Category):
        names = _with_level_for_missing(block).feature_names[:-1]
        shown = [name.removeprefix(block.name).removeprefix("=") for name in names]
        return Levels(block.name, block, (*shown, GONE))
    return None


def _variables_of_label(label: AnyLabel) -> list[Variable]:
    """Return the variables of the label: an event is one, and its time another."""
    if isinstance(label, NumberLabel):
        return [Quantity(label.column, label, label.lo, label.hi)]
    if isinstance(label, CountLabel):
        counted: list[Variable] = [Quantity(label.column, label, label.lo, label.hi)]
        if label.offset is not None:
            seen = label.offset
            counted.append(Quantity(seen.column, seen, seen.lo, seen.hi))
        return counted
    if isinstance(label, EventLabel):
        return [
            Levels(label.event, label, ("no", "yes", GONE)),
            Quantity(label.time, label, 0.0, label.cuts[-1]),
        ]
    return [Levels(label.column, label, (*label.task.names, GONE))]


@dataclass(frozen=True)
class Contents:
    """The variables of a table, and the one by whose levels rows are grouped.

    Parameters
    ----------
    variables : tuple of Variable
        In the order of the schema; the label comes last.
    by : Levels, optional
        None for one group of all rows.
    groups : tuple of str
        Names of the groups.
    left_out : tuple of str
        Columns of the schema that have no place in a table.
    """

    variables: tuple[Variable, ...]
    by: Levels | None
    groups: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def from_schema(cls, schema: Schema, by: str | None) -> Contents:
        """Derive the contents of the table from a schema.

        Parameters
        ----------
        schema : Schema
        by : str or None
            Name of a column with public levels.

        Returns
        -------
        Contents

        Raises
        ------
        InvalidInput
            If the column has no public levels, or nothing is left to describe.
        """
        found = {block.name: _variable_of_block(block) for block in schema.blocks}
        left_out = tuple(name for name, one in found.items() if one is None)
        named = {name: one for name, one in found.items() if one is not None}
        if schema.label is not None:
            named |= {one.name: one for one in _variables_of_label(schema.label)}
        group: Levels | None = None
        if by is not None:
            group = _grouping_variable(by, named)
        variables = tuple(one for name, one in named.items() if name != by)
        if not variables:
            rule = "leaves nothing to describe: a table needs a number or a column of levels"
            raise InvalidInput("by", by, rule, "declare another column in the schema")
        groups: tuple[str, ...] = ("all",)
        if group is not None:
            # A declared place for missing values, or for undeclared ones, is a group as well.
            groups = group.levels[:-1]
            if getattr(group.source, "indicator", False):
                groups = group.levels
            # A level of that name is told from all groups together.
            groups = tuple(f"{by}={name}" if name == OVERALL else name for name in groups)
        return cls(variables, group, groups, left_out)

    def read_rows(
        self, columns: Mapping[str, Column], na: tuple[str, ...]
    ) -> tuple[Array, dict[str, int]]:
        """Read the codes of a table's rows.

        Parameters
        ----------
        columns : mapping of str to column
        na : tuple of str
            Declared marks of missing values.

        Returns
        -------
        codes : array (n, 3 + variables)
            Of groups (0 for rows in none), of sites (all 1 yet), of rows, and of variables.
        unfit : dict of str to int
            As :attr:`sottovoce.data.schema.Encoded.clipped`.
        """
        n = len(next(iter(columns.values())))
        unfit: dict[str, int] = {}
        group = np.ones(n)
        if self.by is not None:
            group, _ = self.by.read_codes(columns, na)
            unfit[ABSENT + self.by.name] = int((group > len(self.groups)).sum())
            group = np.where(group > len(self.groups), 0.0, group)
        found = [group, np.ones(n), np.ones(n)]
        for variable in self.variables:
            codes, own = variable.read_codes(columns, na)
            found.append(codes)
            unfit |= own
        return np.stack(found, axis=1), {name: many for name, many in unfit.items() if many}


def _grouping_variable(by: str, named: Mapping[str, Variable]) -> Levels:
    """Return the variable with this name; InvalidInput unless it has public levels."""
    found = named.get(by)
    if isinstance(found, Levels):
        return found
    known = [name for name, one in named.items() if isinstance(one, Levels)]
    remedy = "leave it out"
    if known:
        remedy = f"use one of {', '.join(known[:8])}"
    rule = "must be a column for which the schema declares levels"
    raise InvalidInput("by", by, rule, remedy)


def blocks_of_table(
    contents: Contents, cells: Sequence[int], *, known_rows: bool, exact: bool = False
) -> tuple[LevelSums | NumberSums, ...]:
    """Derive what a row adds for every variable, with the scales that balance their noise.

    With a number's share of the squared norm a and the level's b, noise in a mean over the expected
    standard deviation s is proportional to ``1 / (s sqrt(p a))`` and in a share to ``1 / sqrt(b)``.
    The sum of their squares, in units of `LEVEL_OVER_MEAN` for means, is least where a and b are
    proportional to the roots of these units.

    Parameters
    ----------
    contents : Contents
    cells : sequence of int
        How many cells the grid of each variable has; not used for levels.
    known_rows : bool
        Whether the number of rows is public, so that nothing is spent on it.
    exact : bool
        Whether there is no noise: the grid is then fine, and places within cells are added.

    Returns
    -------
    tuple of LevelSums or NumberSums
        The first one counts rows.
    """
    worth = np.array(
        [
            LEVEL_OVER_MEAN / (math.sqrt(MOMENTS) * one.expected_sd)
            if isinstance(one, Quantity)
            else 1.0
            for one in contents.variables
        ]
    )
    for_rows = 1e-6 if known_rows else OF_ROWS
    scales = np.sqrt((1.0 - for_rows) * worth / worth.sum())
    found: list[LevelSums | NumberSums] = [LevelSums(1, math.sqrt(for_rows))]
    for one, scale, many in zip(contents.variables, scales.tolist(), cells, strict=True):
        if isinstance(one, Levels):
            found.append(LevelSums(len(one.levels), scale))
        else:
            assert isinstance(one, Quantity)
            shares = (0.25, 0.25) if exact else (MOMENTS, 0.0)
            found.append(NumberSums(one.grid_edges(many), scale, *shares))
    return tuple(found)


def enough_cells(contents: Contents, sigma: float, rows: float) -> list[int]:
    """Choose how many cells each number's grid has, from public facts.

    The interval of a median reaches to the ends of cells, half a cell further to each side on
    average.  The more cells, the less that is, and the more noise is in the count of those below: a
    normal number's interval would be shortest.

    Parameters
    ----------
    contents : Contents
    sigma : float
        Standard deviation of the noise on a sum to which a row adds 1 at most.
    rows : float
        Rows of a group.

    Returns
    -------
    list of int
        One for each variable.
    """
    blocks = blocks_of_table(contents, [CELLS[0]] * len(contents.variables), known_rows=False)
    found = []
    for one, block in zip(contents.variables, blocks[1:], strict=True):
        if not (isinstance(one, Quantity) and isinstance(block, NumberSums)):
            found.append(CELLS[0])
            continue
        # In standard deviations of the number: noise for one cell, and the width of all cells.
        noise = sigma / block.cell_factor / (NORMAL * max(rows, 1.0))
        width = 2.0 / USUAL_SD
        if one.typical is not None:
            width = 1.0 / (TYPICAL_SD * IN_TYPICAL)

        def half_width(cells: int, noise: float = noise, width: float = width) -> float:
            return noise * math.sqrt(cells) + 0.5 * width / cells

        found.append(min(CELLS, key=half_width))
    return found


@dataclass(frozen=True)
class Description(Once):
    """The sums of a descriptive table, of every group, and of every site if `sites` is not 0.

    The outcome has the answer to each item.

    Parameters
    ----------
    groups : int
        Number of groups.
    blocks : tuple of LevelSums or NumberSums
        What a row adds for the count of rows, then for each variable.
    contents : bytes
        Digest of the declarations: the identity of the question.
    sites : int
        Number of sites that have sums of their own, from half of the budget; 0 where sites answer
        for themselves, or are not told apart.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.  All
    that a table shows is computed from them and from public facts.
    """

    groups: int = field(kw_only=True)
    blocks: tuple[LevelSums | NumberSums, ...] = field(kw_only=True)
    contents: bytes = field(kw_only=True)
    sites: int = 0

    name: ClassVar[str] = "description"
    summary: ClassVar[str] = "counts, moments and histograms of all columns, by group: a Table 1"

    @property
    def items(self) -> tuple[Item, ...]:
        """The sums by group, and those by site with the same share of the budget."""
        if not self.sites:
            return (Item("table by group", self._by_group, 1.0),)
        return (
            Item("table by group", self._by_group, 0.5),
            Item("table by site", self._by_site, 0.5),
        )

    def _by_group(self, at: Array) -> TableSums:
        return TableSums(at, self.groups, self.blocks, BY, FIRST)

    def _by_site(self, at: Array) -> TableSums:
        return TableSums(at, self.sites, self.blocks, SITE, FIRST)

    def point_of_release(self, d: int) -> Array:
        """Return zeros (d,): sums depend on no model."""
        return np.zeros(d)

    def answers_of_state(self, facts: Facts) -> Kept:
        """Return how many numbers are kept: of every site, where sites answer for themselves."""
        if facts.n_nodes == 1 or facts.opens_only_sums:
            return super().answers_of_state(facts)
        widths = self.releases_with_noise.entries_of_answers(facts)
        return Kept(tuple(facts.n_nodes * width for width in widths), _every_answer)

    def script(self, facts: Facts, replicates: int) -> Any:
        at = np.tile(self.point_of_release(facts.d), (replicates, 1))
        told: list[Answer] = []
        for item in self.items:
            told.append((yield item.what(at)))
        return told


def _every_answer(what: Bounded, answers: Array) -> Array:
    """Return all answers of all sites, as they are."""
    return answers


__all__ = [
    "CELLS",
    "EXACT_CELLS",
    "GONE",
    "OVERALL",
    "Contents",
    "Description",
    "Levels",
    "Quantity",
    "Variable",
    "blocks_of_table",
    "enough_cells",
]
