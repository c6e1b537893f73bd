"""The TOML file of a study: its cells, figures and claims.

This is the reference of its keys; an unknown key or value is refused in one line.

::

    title = "R-ADMM beside others"
    paper = "002, Figure 5"            # left out for a study of our own
    about = "One paragraph for the page."
    kind = "training.run"              # FILE.FUNCTION under studies/kinds
    replicates = 10
    seed = 0
    differs = ["What differs from the paper, a sentence each."]
    table = ["method"]                 # columns that label rows of the table
    table_filter = { basis = "proved" }
    columns = { loss = "mean loss (nats)" }  # what columns mean, with units
    file = { loader = "census-us", how = "where from" }  # rows by --data FILE; optional = true: others stand in

    [fixed]                            # the same in every cell
    rounds = 100
    [grid]                             # one cell a point of the product
    method = ["admm", "r_admm"]
    [[cells]]                          # repeats the grid, less the axes that `without` names
    alpha = 1.0
    C = 1750.0
    [quick]                            # overrides under --quick: replicates, fixed, grid, cells
    replicates = 3
    fixed = { rounds = 20 }

    [[figures]]
    name = "loss"
    title = "Average loss"
    kind = "line"                      # line, bar, hist, scatter
    x = "round"
    y = "loss"
    series = "method"                  # one colour each; a list joins columns
    facet = "alpha"                    # one panel each
    filter = { basis = "printed" }     # a value or a list; "last": the largest; "": none
    xlabel = "round"
    ylabel = "mean loss (nats)"
    log = ["x"]
    spread = "ci"                      # 95% interval of the mean; sd, range, none
    references = [{ y = 0.5, label = "chance" }]  # or x = ..., or diagonal = true
    names = { r_admm = "R-ADMM" }
    caption = "More below the figure."
    share_y = false
    bins = 30                          # of a histogram

    [[claims]]
    says = "The paper's claim, in a sentence."  # begins with "Ours" if the paper does not make it
    test = "least"                     # least, greatest: `of` against the others; less, steadier (within
                                       # replicates), tighter (between them), narrows, near, no_less: against `than`;
                                       # falls, rises; above, below, never
    value = "loss"
    of = { method = "r_admm" }
    than = { method = "admm" }
    among = "method"                   # least, greatest: what tells them apart
    x = "alpha"                        # falls, rises, narrows (a gap shrinks): along this column
    by = ["alpha"]                     # a setting each
    most = false                       # true: more than half is enough
    filter = { round = "last" }        # in each setting
    printed = { basis = "printed" }    # rows as printed; of the three at least one is needed
    proof = { basis = "proof" }        # rows with the constants of the paper's proof
    proved = { basis = "proved" }      # rows at the proved epsilon
    within = 0.01                      # near, no_less: a difference that does not count
    level = 0.0                        # above, below: the mean is (never: 0 in every row)
    noise = 0.0                        # a standard error that replicates do not show
    paper = "0.23 at beta 10^-3.5 (section 5)"  # its own numbers, and their place
    refuted = "Theorem 1 of docs/proofs.md; tests/papers/test_x.py::test_y"  # a proof that it is false, a test
    misprint = ""                      # in its place: why it cannot be meant
    untestable = ""                    # in their place: what is not printed

    [[readings]]                       # of a line that can be read in several ways: a verdict each
    name = "C = 1750"
    line = "002, section VIII"
    says = "The loss weighs 1750."
    column = "C"                       # "reading" if left out, a label of cells
    value = 1750.0                     # the name if left out

    [[paper_points]]                   # points that the paper prints, drawn hollow
    figure = "loss"                    # which figure; `facet`: which panel
    series = "R-ADMM"                  # as the legend writes it
    x = [0.1, 1.0]
    y = [0.52, 0.48]
    source = "Table II"
    error = 0.0                        # of reading a plot
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path

from sottovoce.errors import InvalidInput
from sottovoce.util.files import parse_bounded_toml, read_bounded_text
from sottovoce.util.typing import Any

FIGURES = ("line", "bar", "hist", "scatter")
SPREADS = ("ci", "sd", "range", "none")
MOST_CELLS, _MOST_BINS = 100_000, 1000  # of a study, and of a histogram
# By the type of a field, as it is written: that type in words, and whether a value is of it.
_KINDS: dict[str, tuple[str, Any]] = {
    "str": ("text", lambda v: isinstance(v, str)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "float": ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool)),
    "tuple[str, ...]": ("a list of texts", lambda v: _all(v, str)),
    "tuple[Mapping[str, Any], ...]": ("a list of tables", lambda v: _all(v, Mapping)),
    "tuple[float, ...]": (
        "a list of numbers",
        lambda v: isinstance(v, list | tuple) and all(_KINDS["float"][1](one) for one in v),
    ),
    "tuple[Any, ...]": ("a list", lambda v: isinstance(v, list | tuple)),
    "Mapping[str, Any]": ("a table", lambda v: isinstance(v, Mapping)),
    "Mapping[str, str]": (
        "a table of texts",
        lambda v: isinstance(v, Mapping) and _all(tuple(v.values()), str),
    ),
    "Mapping[str, tuple[Any, ...]]": ("a table of lists", lambda v: isinstance(v, Mapping)),
    "None": ("left out", lambda v: v is None),
}
# The tests of claims, and the keys that each of them needs.
_NEEDS = {
    "least": ("of", "among"),
    "greatest": ("of", "among"),
    "falls": ("x",),
    "rises": ("x",),
    "less": ("of", "than"),
    "steadier": ("of", "than"),
    "tighter": ("of", "than"),
    "narrows": ("of", "than", "x"),
    "near": ("of", "than"),
    "no_less": ("of", "than"),
    "above": (),
    "below": (),
    "never": (),
}
TESTS = tuple(_NEEDS)


@dataclass(frozen=True)
class Figure:
    """A figure of a study; see the module.  A histogram has no `y`."""

    name: str
    title: str
    kind: str
    x: str
    y: str = ""
    series: str | tuple[str, ...] = ""
    facet: str = ""
    filter: Mapping[str, Any] = field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    log: tuple[str, ...] = ()
    spread: str = "ci"
    references: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""
    share_y: bool = True
    bins: int = 30

    def __post_init__(self) -> None:
        where = f"figures.{self.name}"
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise InvalidInput(
                "figures.name", self.name, "must be letters, digits, - and _", "rename it"
            )
        _one_of(f"{where}.kind", self.kind, FIGURES)
        _one_of(f"{where}.spread", self.spread, SPREADS)
        for axis in self.log:
            _one_of(f"{where}.log", axis, ("x", "y"))
        if not 1 <= self.bins <= _MOST_BINS:
            raise InvalidInput(
                f"{where}.bins", self.bins, f"must be from 1 to {_MOST_BINS}", "correct it"
            )
        if (self.kind == "hist") != (not self.y):
            raise InvalidInput(
                f"{where}.y", self.y, "is required, except for a histogram", "name a column"
            )
        for line in self.references:
            if not set(line) <= {"x", "y", "diagonal", "label"} or len(set(line) - {"label"}) != 1:
                rule = "takes one of x, y and diagonal, and a label"
                raise InvalidInput(f"{where}.references", dict(line), rule, "correct it")

    @property
    def series_columns(self) -> tuple[str, ...]:
        """The columns whose values tell series apart."""
        if isinstance(self.series, str):
            return (self.series,)
        return self.series

    def columns(self) -> set[str]:
        """Return the columns of the table that the figure names."""
        return {self.x, self.y, self.facet, *self.series_columns, *self.filter} - {""}


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper and the test of it over the table; see the module."""

    says: str
    test: str
    value: str
    of: Mapping[str, Any] = field(default_factory=dict)
    than: Mapping[str, Any] = field(default_factory=dict)
    among: str = ""
    x: str = ""
    by: tuple[str, ...] = ()
    most: bool = False
    filter: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, Any] | None = None
    proof: Mapping[str, Any] | None = None
    proved: Mapping[str, Any] | None = None
    within: float = 0.01
    level: float = 0.0
    noise: float | None = None
    paper: str = ""
    refuted: str = ""
    misprint: str = ""
    untestable: str = ""

    def __post_init__(self) -> None:
        _one_of("claims.test", self.test, TESTS)
        for name in _NEEDS[self.test]:
            if not getattr(self, name):
                raise InvalidInput(
                    f"claims.{name}", None, f"is required by the test {self.test!r}", "give it"
                )
        if self.printed is None and self.proof is None and self.proved is None:
            rule = "needs one of the filters `printed`, `proof` and `proved`"
            raise InvalidInput("claims", self.says, rule, "give one; {} selects all rows")
        if self.refuted and self.misprint:
            raise InvalidInput(
                "claims.misprint",
                self.misprint,
                "cannot be combined with `refuted`",
                "keep one of them",
            )
        if self.untestable and (self.refuted or self.misprint):
            rule = "cannot be combined with `refuted` or `misprint`"
            raise InvalidInput("claims.untestable", self.untestable, rule, "keep one of them")

    @property
    def ours(self) -> bool:
        """Whether the paper does not make this claim."""
        return self.says.startswith("Ours")

    def columns(self) -> set[str]:
        """Return the columns of the table that the claim names."""
        return {self.value, self.x, self.among, *self.by}.union(*self.selectors) - {""}

    @property
    def selectors(self) -> tuple[Mapping[str, Any], ...]:
        """Everything that selects rows for this claim."""
        return (
            self.of,
            self.than,
            self.filter,
            self.printed or {},
            self.proof or {},
            self.proved or {},
        )


@dataclass(frozen=True)
class UserFile:
    """A table that the user provides.

    `loader` names the function that reads it, `how` says how to get it, and `optional` is True if
    synthetic rows can be used in its place.
    """

    loader: str
    how: str
    optional: bool = False

    def __post_init__(self) -> None:
        if self.optional and self.loader != "covertype":
            raise InvalidInput(
                "file.optional",
                True,
                "is for Covertype only, where synthetic rows stand in",
                "leave it out",
            )


@dataclass(frozen=True)
class Reading:
    """One way to read an ambiguous line of a paper; see the module."""

    name: str
    line: str
    says: str
    column: str = "reading"
    value: Any = None  # of the column; the name if left out

    @property
    def marks(self) -> Any:
        """The value that cells of this reading have in its column."""
        if self.value is None:
            return self.name
        return self.value

    def covers(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is of this reading, or takes part in all readings of its line."""
        return matches(row, {self.column: [self.marks, ""]})


@dataclass(frozen=True)
class PaperPoints:
    """Points that a paper prints; see the module."""

    figure: str
    x: tuple[Any, ...]
    y: tuple[float, ...]
    source: str
    series: str = ""
    facet: Any = None
    error: float = 0.0

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or not self.x:
            raise InvalidInput(
                "paper_points.y",
                list(self.y),
                "must have as many values as x, and at least one",
                "give one value of y for each of x",
            )
        if not all(math.isfinite(value) for value in (*self.y, self.error)) or self.error < 0:
            raise InvalidInput(
                "paper_points.error",
                self.error,
                "must be finite and at least 0, and every y finite",
                "correct it",
            )
        if not self.source.strip():
            raise InvalidInput(
                "paper_points.source",
                self.source,
                "must name the place in the paper",
                'write, e.g., "Table II"',
            )


@dataclass(frozen=True)
class Study:
    """A study as its file describes it; see the module."""

    name: str
    title: str
    kind: str
    paper: str = ""
    about: str = ""
    replicates: int = 1
    seed: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    cells: tuple[Mapping[str, Any], ...] = ({},)
    quick: Mapping[str, Any] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    claims: tuple[Sentence, ...] = ()
    differs: tuple[str, ...] = ()
    file: UserFile | None = None
    readings: tuple[Reading, ...] = ()
    paper_points: tuple[PaperPoints, ...] = ()
    table: tuple[str, ...] = ()
    table_filter: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, least in (("replicates", 1), ("seed", 0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(
                    key, value, f"must be a whole number, at least {least}", f"use {key}={least}"
                )
        for key, values in self.grid.items():
            if not isinstance(values, list | tuple) or not values:
                raise InvalidInput(
                    f"grid.{key}",
                    values,
                    "must be a list of one value or more",
                    "put a single value under [fixed]",
                )
        if not self.cells:
            raise InvalidInput("cells", [], "must hold one table or more", "leave it out")
        if len({figure.name for figure in self.figures}) != len(self.figures):
            raise InvalidInput("figures", None, "every figure must have its own name", "rename one")
        known = {figure.name for figure in self.figures}
        for points in self.paper_points:
            if points.figure not in known:
                raise InvalidInput(
                    "paper_points.figure",
                    points.figure,
                    "is not a figure of the study",
                    "name a figure of it",
                )
        for key in sorted(set(self.quick) - {"replicates", "fixed", "grid", "cells"}):
            _unknown("quick", key, ("replicates", "fixed", "grid", "cells"))
        for key in ("fixed", "grid"):
            if not isinstance(self.quick.get(key, {}), Mapping):
                raise InvalidInput(f"quick.{key}", None, "must be a table", f"write [quick.{key}]")
        for cells in (self.cells, self.quick.get("cells", ())):
            if not _all(cells, Mapping):
                raise InvalidInput("cells", None, "must be a list of tables", "write [[cells]]")
        if not all(_all(cell.get("without", ()), str) for cell in self.cells):
            raise InvalidInput(
                "cells.without", None, "must be a list of texts", "name axes of the grid"
            )
        if (many := sum(math.prod(map(len, self._axes(cell))) for cell in self.cells)) > MOST_CELLS:
            rule = f"makes {many:,} cells, but at most {MOST_CELLS:,} are allowed"
            raise InvalidInput("grid", None, rule, "vary fewer parameters, or give fewer values")
        self._check_readings()
        if self.quick:
            self.quickly()

    def _check_readings(self) -> None:
        """Refuse readings that share a name, or that are not exactly those of the cells."""
        names = [one.name for one in self.readings]
        if len(set(names)) != len(names):
            raise InvalidInput(
                "readings.name", None, "every reading must have its own name", "rename one"
            )
        for column in {"reading", *(one.column for one in self.readings)}:
            found = {p[column] for p in self.points() if column in p}
            known = [one.marks for one in self.readings if one.column == column]
            if found != set(known):
                cells = ", ".join(sorted(map(str, found))) or "none"
                rule = f"must be the values of {column!r} in the cells ({cells})"
                listed = ", ".join(map(str, known))
                remedy = f"give every reading a cell with its {column}"
                raise InvalidInput("readings.name", listed, rule, remedy)

    def _axes(self, cell: Mapping[str, Any]) -> list[list[tuple[str, Any]]]:
        """Return the (key, value) pairs along each axis of the grid that the cell repeats."""
        free = [key for key in self.grid if key not in cell.get("without", ())]
        return [[(key, value) for value in self.grid[key]] for key in free]

    def quickly(self) -> Study:
        """Return the same study with its overrides for a quick run."""
        over = dict(self.quick)
        for key in ("fixed", "grid"):
            over[key] = {**getattr(self, key), **over.get(key, {})}
        if "cells" in over:
            over["cells"] = tuple(over["cells"])
        return replace(self, **over, quick={})

    def quick_sizes(self) -> str:
        """Say how much of the study a quick run has, such as "16 of 30 rounds, 45 of 99 cells"."""
        quick = self.quickly()
        sizes = [
            (name, quick.fixed.get(name), self.fixed.get(name)) for name in ("rounds", "draws")
        ]
        sizes += [
            ("replicates", quick.replicates, self.replicates),
            ("cells", len(quick.points()), len(self.points())),
        ]
        told = [f"{some} of {all_} {name}" for name, some, all_ in sizes if some != all_]
        return ", ".join(told) or "all of its settings"

    def points(self) -> list[dict[str, Any]]:
        """Return the parameters of every cell, in order, without `fixed`, `seed` and
        `replicates`.
        """
        found = []
        for cell in self.cells:
            own = {key: value for key, value in cell.items() if key != "without"}
            found += [{**own, **dict(point)} for point in itertools.product(*self._axes(cell))]
        return found

    def labels(self) -> list[dict[str, Any]]:
        """Return, for every cell, the table's columns that tell it apart: parameters as plain
        values.

        They are in the order of :meth:`points`.  A cell without a parameter that others vary has
        the value under `fixed`.
        """
        varied = set(self.varied())
        shared = {key: value for key, value in self.fixed.items() if key in varied}
        found = []
        for point in self.points():
            label: dict[str, Any] = {}
            for key, value in {**shared, **point}.items():
                # a table, such as the run that a cell is matched with, is no value of a column
                if isinstance(value, Mapping):
                    continue
                if isinstance(value, list | tuple):
                    value = " ".join(map(str, value))
                label[key] = value
            found.append(label)
        return found

    def unknown_columns(self, columns: Iterable[str]) -> list[str]:
        """Return messages about figures and claims that name columns the table does not have."""
        known = set(columns)
        spoken = [(f"figure {figure.name!r}", figure.columns()) for figure in self.figures]
        spoken += [(f"claim {claim.says!r}", claim.columns()) for claim in self.claims]
        return [
            f"{which}: the table has no column {', '.join(sorted(used - known))}; it has "
            f"{', '.join(sorted(known))}"
            for which, used in spoken
            if used - known
        ]

    def unmatched(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return messages about figures and claims that select a value that no row has.

        Columns that the table lacks altogether are reported by :meth:`unknown_columns`.
        """
        spoken = [(f"figure {figure.name!r}", figure.filter) for figure in self.figures]
        spoken += [
            (f"claim {claim.says!r}", selector)
            for claim in self.claims
            for selector in claim.selectors
        ]
        asked = [
            (which, column, value)
            for which, selector in spoken
            for column, value in selector.items()
        ]
        there = {
            column: {row.get(column) for row in rows}
            for column in {column for _, column, _ in asked}
        }
        lines = []
        for which, column, value in asked:
            known = there[column]
            written = sorted(str(one) for one in known - {None, ""})
            if value == "last" or not written:
                continue
            if not any(matches({column: one}, {column: value}) for one in known):
                lines.append(
                    f"{which}: no row has {column} = {value}; there are {', '.join(written)}"
                )
        return list(dict.fromkeys(lines))

    def varied(self) -> list[str]:
        """Return the names of the parameters that tell cells apart, in order."""
        return list(dict.fromkeys(key for point in self.points() for key in point))


def names() -> list[str]:
    """Return the names of the studies that come with the package."""
    folder = resources.files(__package__) / "specs"
    return sorted(
        each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml")
    )


def load(name_or_path: str) -> Study:
    """Read a study of the package by its name, or one of the user's by the path of its file.

    :class:`~sottovoce.errors.InvalidInput` if there is none, or its file breaks a rule.
    """
    if name_or_path in names():
        return _load_shipped(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".toml" or not path.is_file():
        remedy = "see `sottovoce study --list`"
        raise InvalidInput(
            "study", name_or_path, "is neither a study of the package nor a TOML file", remedy
        )
    return parse(read_bounded_text("study", path), path.stem)


@cache
def _load_shipped(name: str) -> Study:
    """Read a study of the package, once in a process: its file stays as it is installed."""
    file = resources.files(__package__) / "specs" / f"{name}.toml"
    return parse(file.read_text(encoding="utf-8"), name)


def parse(text: str, name: str) -> Study:
    """Build a study from the text of its file; `name` is that of the file."""
    try:
        given = parse_bounded_toml(text)
    except ValueError as error:
        raise InvalidInput("study", name, f"is not valid TOML: {error}", "correct it") from None
    if "name" in given:
        raise InvalidInput("name", given["name"], "is the name of the file", "leave it out")
    parts: dict[str, Any] = {
        "figures": Figure,
        "claims": Sentence,
        "readings": Reading,
        "paper_points": PaperPoints,
    }
    for key, cls in parts.items():
        given[key] = [_build(cls, each, key) for each in _tables(given, key)]
    _tables(given, "cells")
    for key in ("fixed", "grid", "quick", "file"):
        if not isinstance(given.get(key, {}), dict):
            shown = given[key] if key != "file" else None
            raise InvalidInput(key, shown, "must be a table", f"write [{key}]")
    if "file" in given:
        given["file"] = _build(UserFile, given["file"], "file")
    return _build(Study, given | {"name": name}, "study")


def _tables(given: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput(key, None, "must be a list of tables", f"write [[{key}]]")
    return found


def _build(cls: Any, given: Mapping[str, Any], where: str) -> Any:
    """Build a frozen class of this module from a TOML table.

    An InvalidInput for unknown or missing keys, or values of another type; `where` is the table's
    name in messages.
    """
    known = {f.name: f for f in fields(cls)}
    for key in given:
        if key not in known:
            _unknown(where, key, tuple(known))
    for key, f in known.items():
        if f.default is MISSING and f.default_factory is MISSING and key not in given:
            raise InvalidInput(f"{where}.{key}", None, "is required", "give it")
        # Types are text here (annotations are not evaluated); types that are not listed, such as
        # classes of this module, are checked by their own constructors.
        parts = str(f.type).split(" | ")
        kinds = []
        if set(parts) <= set(_KINDS):
            kinds = [_KINDS[part] for part in parts]
        if key in given and kinds and not any(fits(given[key]) for _, fits in kinds):
            rule = f"must be {' or '.join(words for words, _ in kinds)}"
            raise InvalidInput(f"{where}.{key}", given[key], rule, "correct it")
    # frozen classes hold tuples, where TOML has lists
    values = dict(given)
    for key, value in given.items():
        if isinstance(value, list):
            values[key] = tuple(value)
    return cls(**values)


def _all(values: object, kind: type) -> bool:
    """Return True for a list or tuple with values of this type only."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def _one_of(where: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(where, value, f"must be one of {', '.join(known)}", "correct it")


def _unknown(where: str, key: str, known: tuple[str, ...]) -> None:
    raise InvalidInput(
        f"{where}.{key}",
        None,
        f"is not a key here; the keys are {', '.join(known)}",
        "remove or correct it",
    )


def select(rows: list[dict[str, Any]], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with the wanted values, by column; see :func:`matches`.

    "last" stands for the largest value of the column among the rows that have the other values.
    """
    last = [key for key, value in wanted.items() if value == "last"]
    plain = {key: value for key, value in wanted.items() if key not in last}
    # the plain values first: "last" is the largest among the rows that they leave
    kept = [row for row in rows if matches(row, plain)]
    for key in last:
        numbers = [row[key] for row in kept if isinstance(row.get(key), int | float)]
        kept = [row for row in kept if numbers and row.get(key) == max(numbers)]
    return kept


def matches(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if a row has the wanted value in every column.

    Of a list any value will do; "" means that the row has no value there.
    """
    for key, value in wanted.items():
        any_of = [value]
        if isinstance(value, list | tuple):
            any_of = list(value)
        if not any(_same(row.get(key), one) for one in any_of):
            return False
    return True


def _same(a: Any, b: Any) -> bool:
    # in Python True equals 1, in a table it does not
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    return bool(a == b) or (a is None and b == "")
