"""Validation of a table against a schema, before any budget is spent.

What training would refuse is found by the functions that training calls, so both say the same in
the same words.  All else is counted for every declared column.  Counts are exact and no epsilon
covers them: only the holder of the rows can run this.  A row may be located by its number; no value
of a row is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InvalidInput, escape_unprintable
from ..problem.task import Classification
from ..util.typing import IntArray
from .column_counts import (
    SHOWN_ROWS,
    ColumnCounts,
    count_block,
    count_events,
    count_label,
    count_people,
    count_sites,
    count_weights,
    declared_labels,
    find_near_matches,
    number_sites_of_rows,
)
from .columns import Block, Category, Vector
from .curved import Derived
from .dates import Date
from .frames import read_frame
from .labels import ClassLabel, Label, NumberLabel, RateLabel
from .partition import partition
from .schema import (
    ABSENT,
    BEYOND,
    HEAVY,
    LABEL,
    OTHER,
    ROW,
    Schema,
    count_unfit_rows,
    errors_of_columns,
)
from .table import Column, Table, column_as_text, table_from_columns

CAVEAT = "Exact counts without noise, not covered by epsilon: for the data's holder only."
MANY = 0.1
"""Share of a column's rows that are clipped, or hold no declared value, from which on a note says
what to change.
"""
CROWDED = 0.75
"""Share of rows longer than the scale from which on the scale is too small.  A scale that is the
norm of a typical row, as it should be, clips half of them."""
_SPECIAL = {
    LABEL: "undeclared or missing label: encoded as zeros",
    BEYOND: "labels outside their bounds: clipped",
    HEAVY: "weights above their cap: lowered to it",
    ROW: (
        "longer than the scale: clipped to norm 1; with --inference and least squares down-weighted"
    ),
}


@dataclass(frozen=True)
class Finding:
    """A number of rows of a column that were clipped, encoded as zeros, or do not fit.

    `column` is one of the schema, or ``"(label)"``, ``"(row)"`` as in
    :class:`sottovoce.data.Encoded`; `rows` an exact count.  `fits` is True if the schema declares
    it: a replacement for missing values, or a scale that clips rows. `where` has the numbers of
    the first few such rows, from 1; it is empty for what is not located.  `detail` says more of
    them in words, such as how many lie below the bounds and above.
    """

    column: str
    rows: int
    what: str
    fits: bool = False
    where: tuple[int, ...] = ()
    detail: str = ""

    @property
    def located(self) -> str:
        """The row numbers in words; empty if they are not known."""
        if not self.where:
            return ""
        word = "rows" if self.rows > 1 else "row"
        shown = ", ".join(f"{row:,}" for row in self.where)
        more = self.rows - len(self.where)
        if more > 0:
            return f"{word} {shown} and {more:,} more"
        return f"{word} {shown}"


@dataclass(frozen=True)
class Review:
    """A schema compared with a table.

    Parameters
    ----------
    table, schema : str
        Their names.
    rows : int
    refused : tuple of str
        Every error that training would raise, one line each, without values.
    counts : tuple of Finding
        What does not fit, exact, and what the schema replaces; for the holder only.
    columns : tuple of ColumnCounts
        The counts of every declared column that is there: label, site, person, weight and features.
    notes : tuple of str
        What makes a training worth little or nothing, such as labels of one class alone, and what
        to change.
    """

    table: str
    schema: str
    rows: int
    refused: tuple[str, ...]
    counts: tuple[Finding, ...] = ()
    columns: tuple[ColumnCounts, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether every value fits, and nothing speaks against a training."""
        return not self.refused and not self.notes and all(count.fits for count in self.counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the review as plain data of JSON types."""
        counts = [
            {
                "column": one.column,
                "rows": one.rows,
                "share": one.rows / self.rows,
                "what": one.what,
                "fits": one.fits,
                "first_rows": list(one.where),
                "detail": one.detail,
            }
            for one in self.counts
        ]
        return {
            "table": self.table,
            "schema": self.schema,
            "rows": self.rows,
            "refused": list(self.refused),
            "counts": counts,
            "fine": self.fine,
            "caveat": CAVEAT,
            "columns": [one.to_dict() for one in self.columns],
            "notes": list(self.notes),
        }

    def also_refused(self, error: InvalidInput | None) -> Review:
        """Return the review with one more error of training, unless it is known already."""
        if error is None or str(error) in self.refused:
            return self
        return replace(self, refused=(*self.refused, str(error)))


def review(schema: Schema, table: Any) -> Review:
    """Compare a table with a schema; nothing is released, charged or written.

    Parameters
    ----------
    schema : Schema
    table : Table, mapping of str to array, or frame of pandas, polars or pyarrow
        All the rows of one table, of shape (n,) or (n, width) a column.

    Returns
    -------
    Review
        Exact counts, for the holder of the rows only; those of clipped rows are those of
        :meth:`Schema.encode`.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0, "hi": 120}}})
    >>> [(one.column, one.rows, one.what) for one in review(schema, {"age": [30, 150]}).counts]
    [('age', 1, 'outside the bounds: clipped')]
    """
    table = table_from_columns(table) if isinstance(table, Table | Mapping) else read_frame(table)
    columns, na = table.columns, frozenset(schema.na)
    blocks = {block.name: block for block in schema.blocks}
    readable = [block for block in schema.blocks if _columns_are_present(block, columns)]
    refused = [str(error) for error in errors_of_columns(schema, columns)]
    clipped = dict[str, int]()
    try:
        clipped = schema.encode(table).clipped
    except InvalidInput as error:
        # The encoding stops at the first error of perhaps several: each block is tried by itself.
        for block in readable:
            try:
                outside = block.encode(columns, na)[1]
                clipped |= count_unfit_rows(block, outside, columns, na)
            except InvalidInput as own:
                refused.append(str(own))
        if not refused:
            refused.append(str(error))
    refused += [text for text in _refusals_of_training(schema, columns, na) if text not in refused]
    counted = Counted(table.n_rows, blocks, tuple(_count_columns(schema, readable, columns, na)))
    unfit = [_finding_of_clipped(name, n, counted) for name, n in clipped.items() if n]
    counts = (*unfit, *_unreadable_findings(counted), *_replaced_findings(counted))
    found = Review(table.name, schema.name, table.n_rows, tuple(refused), counts, counted.columns)
    return replace(found, notes=tuple(_notes_on_training(found, schema, columns)))


@dataclass(frozen=True)
class Counted:
    """Counts of the columns of a table with `rows` rows."""

    rows: int
    blocks: Mapping[str, Block]
    columns: tuple[ColumnCounts, ...]

    def locate_finding(
        self, found: Finding, role: str, name: str | None, parts: tuple[str, ...]
    ) -> Finding:
        """Return a finding with the first few row numbers, from the counts of some columns.

        Parameters
        ----------
        found : Finding
        role : {"label", "site", "person", "weight", "feature"}
            Of the columns whose counts are looked up.
        name : str or None
            Of the column; None for every column of that role.
        parts : tuple of str
            Keys of :attr:`ColumnCounts.counts` that the finding is about.

        Returns
        -------
        Finding
            With `where`, and with several parts a `detail` that counts each.
        """
        mine = [one for one in self.columns if one.role == role and name in (None, one.column)]
        rows = {row for one in mine for part in parts for row in one.rows.get(part, ())}
        detail = ""
        if len(parts) > 1:
            counts = [(part, one.counts.get(part, 0)) for one in mine for part in parts]
            detail = ", ".join(f"{n:,} {part}" for part, n in counts if n)
        return replace(found, where=tuple(sorted(rows)[:SHOWN_ROWS]), detail=detail)


def _columns_are_present(block: Block, columns: Mapping[str, Column]) -> bool:
    """Whether a block reads raw columns, and the table has them."""
    return not isinstance(block, Derived) and set(block.source_columns(columns)) <= set(columns)


def _refusals_of_training(
    schema: Schema, columns: Mapping[str, Column], na: frozenset[str]
) -> Iterator[str]:
    """Yield the errors that training would raise about the weight, person and site columns."""
    tried: list[tuple[str, Callable[[Column], object]]] = []
    if schema.weight is not None:
        weight = schema.weight
        tried.append((weight.column, lambda column: weight.encode_weights(column, na)))
    if schema.person is not None:
        person = schema.person
        tried.append((person.column, lambda column: person.number_people(column, na)))
    if schema.site is not None:
        site = schema.site
        spec = f"site:{site}"
        tried.append(
            (site, lambda column: partition(spec, np.zeros(len(column)), None, columns=columns))
        )
    for name, attempt in tried:
        if name in columns:
            try:
                attempt(columns[name])
            except InvalidInput as error:
                yield str(error)


def _one_dimensional_column(columns: Mapping[str, Column], name: str) -> Column | None:
    """Return a column (n,) of the table; None if it is absent or has several values a row."""
    column = columns.get(name)
    if column is None or column.ndim != 1:
        return None
    return column


def _count_columns(
    schema: Schema, readable: list[Block], columns: Mapping[str, Column], na: frozenset[str]
) -> Iterator[ColumnCounts]:
    """Yield the counts of every declared column that is there and can be counted."""
    yield from _count_reserved_columns(schema, columns, na)
    for block in readable:
        if isinstance(block, Vector) or all(
            columns[name].ndim == 1 for name in block.source_columns(columns)
        ):
            yield count_block(block, columns, na)


def _count_reserved_columns(
    schema: Schema, columns: Mapping[str, Column], na: frozenset[str]
) -> Iterator[ColumnCounts]:
    """Yield the counts of the columns that are no features: label, site, person and weight."""
    sites = None if schema.site is None else _one_dimensional_column(columns, schema.site)
    if isinstance(schema.label, RateLabel):
        read = [schema.label.column, *schema.label.further_columns]
        if all(_one_dimensional_column(columns, name) is not None for name in read):
            yield count_events(schema.label, columns, schema.na)
    elif schema.label is not None:
        labels = _one_dimensional_column(columns, schema.label.column)
        if labels is not None:
            yield count_label(schema.label, labels, schema.na)
    if schema.site is not None and sites is not None:
        yield count_sites(schema.site, sites, _class_numbers(schema, columns))
    if schema.person is not None:
        persons = _one_dimensional_column(columns, schema.person.column)
        if persons is not None:
            numbers = None
            if schema.site is not None and sites is not None:
                numbers = number_sites_of_rows(schema.site, sites)
            yield count_people(schema.person, persons, na, numbers)
    if schema.weight is not None:
        weights = _one_dimensional_column(columns, schema.weight.column)
        if weights is not None:
            yield count_weights(schema.weight, weights, na)


def _class_numbers(schema: Schema, columns: Mapping[str, Column]) -> IntArray | None:
    """Return the number of each row's class, (n,), negative for none; None without classes."""
    task = schema.task
    if schema.label is None or isinstance(schema.label, RateLabel):
        return None
    if not isinstance(task, Classification):
        return None
    column = _one_dimensional_column(columns, schema.label.column)
    if column is None:
        return None
    classes: IntArray = task.number(schema.label.encode(column, schema.na))
    return classes


def _finding_of_clipped(key: str, rows: int, found: Counted) -> Finding:
    """Return the finding of one entry of :attr:`Encoded.clipped`: a key and its number of rows."""
    for mark, what, part in (
        (OTHER, "undeclared value: counts as other", "undeclared"),
        (ABSENT, "missing: encoded without a level", "missing"),
    ):
        if key not in found.blocks and key.startswith(mark):
            name = key.removeprefix(mark)
            return found.locate_finding(
                Finding(name, rows, what, fits=mark == OTHER), "feature", name, (part,)
            )
    what = _SPECIAL.get(key) or _describe_outside(found.blocks[key])
    if key == ROW:
        return Finding(key, rows, what, fits=rows < CROWDED * found.rows)
    if key == HEAVY:
        return found.locate_finding(Finding(key, rows, what), "weight", None, ("above",))
    if key == LABEL:
        parts = ("missing", "undeclared", "not a number")
        return found.locate_finding(Finding(key, rows, what), "label", None, parts)
    if key == BEYOND:
        return found.locate_finding(Finding(key, rows, what), "label", None, _CLIPPED)
    if isinstance(found.blocks[key], Category):
        return found.locate_finding(Finding(key, rows, what), "feature", key, ("undeclared",))
    return found.locate_finding(Finding(key, rows, what), "feature", key, _CLIPPED)


_CLIPPED = ("below", "above", "beyond the norm")


def _describe_outside(block: Block) -> str:
    if isinstance(block, Category):
        return "undeclared value: encoded without a level"
    if isinstance(block, Vector):
        return "entries outside the bounds: clipped"
    return "outside the bounds: clipped"


_GAPS = {
    "site": "rows without a site",
    "person": "rows without a person",
    "weight": "weights are missing",
}


def _unreadable_findings(found: Counted) -> Iterator[Finding]:
    """Yield findings about rows for which training refuses the table, without a value: how many,
    which row numbers, and what such texts look like.
    """
    for one in found.columns:
        # Rows without a label are not refused: they become zeros, and are counted so.
        if one.role == "label":
            continue
        for key in ("not a number", "not a date", "negative"):
            n = one.counts.get(key, 0)
            if n:
                what = f"{key}{_describe_likely_kinds(one)}: training refuses the table"
                yield Finding(one.column, n, what, where=one.rows[key])
        missing = one.counts["missing"]
        if missing and one.role != "feature":
            what = f"{_GAPS[one.role]}: training refuses the table"
            yield Finding(one.column, missing, what, where=one.rows["missing"])
        elif (
            missing
            and one.kind != "category"
            and not _describe_replacement(found.blocks[one.column])
        ):
            what = "missing, and the schema declares no replacement: training refuses the table"
            yield Finding(one.column, missing, what, where=one.rows["missing"])
        n = one.counts.get("left out", 0)
        if n:
            what = "rows of a person beyond person.rows: left out"
            yield Finding(one.column, n, what, fits=True, where=one.rows["left out"])


def _replaced_findings(found: Counted) -> Iterator[Finding]:
    """Yield findings about rows whose missing value is replaced as the schema declares."""
    for one in found.columns:
        missing = one.counts["missing"]
        if one.role != "feature" or not missing:
            continue
        stands = _describe_replacement(found.blocks[one.column])
        if stands:
            what = f"missing: counts as {stands}"
            yield Finding(one.column, missing, what, fits=True, where=one.rows["missing"])


def _describe_replacement(block: Block) -> str:
    """Return what replaces a missing value of a block, in words; empty if nothing does."""
    # Not every kind of block has both.
    value = getattr(block, "missing", None)
    marked = getattr(block, "indicator", False)
    if value is None:
        if marked:
            return "a level of its own"
        if isinstance(block, Category) and block.other:
            return "other"
        return ""
    if isinstance(block, Date):
        plain = block.day_from_units(value)
    elif isinstance(value, str):
        plain = value
    else:
        plain = f"{value:g}"
    return f"{plain}, with an indicator" if marked else plain


def _describe_likely_kinds(one: ColumnCounts) -> str:
    """Return how many unreadable texts look like which kind, in words such as " (3 as a date)"."""
    kinds = [f"{n:,} {key}" for key, n in one.counts.items() if key.startswith("as ") and n]
    if not kinds:
        return ""
    return f" ({', '.join(kinds)})"


def _notes_on_training(
    found: Review, schema: Schema, columns: Mapping[str, Column]
) -> Iterator[str]:
    """Yield notes on what would make a training worth little or nothing, with what to change."""
    for one in found.columns:
        name = escape_unprintable(one.column)
        if one.role == "label":
            yield from _notes_on_label(one, found.rows, schema, columns)
        elif one.role == "site":
            yield from _notes_on_alike_names(
                name, one, "sites whose names differ in case or blanks alone", "sites"
            )
        elif one.role == "person":
            yield from _notes_on_alike_names(
                name, one, "identifiers that differ in case or blanks alone", "people"
            )
        elif one.role == "weight" and one.counts["zero"] == found.rows:
            yield (
                f"{name}: every weight is 0, so no row counts; correct the weights, or leave "
                "weight out of the schema"
            )
        elif one.role == "feature":
            yield from _notes_on_feature(one, found.rows, schema, columns)
    for finding in found.counts:
        if finding.column == ROW and not finding.fits:
            yield (
                f"{_share_in_words(finding.rows, found.rows)} of the rows are longer than the "
                f"scale {schema.divisor:g}, so little more than their direction is kept; "
                "raise scale: `sottovoce schema check` without a table proposes one"
            )


def _notes_on_alike_names(name: str, one: ColumnCounts, key: str, what: str) -> Iterator[str]:
    n = one.counts.get(key, 0)
    if n:
        yield (
            f"{name}: {n:,} names differ from another one only in case, blanks or Unicode form, "
            f"and count as different {what}; write each name in one way"
        )


def _share_in_words(rows: int, n: int) -> str:
    """Format a share so that only a share of 1 reads as all, and none above 0 as 0.0%."""
    if rows == n:
        return "all"
    return f"{min(max(rows / n, 0.001), 0.999):.1%}"


def _notes_on_label(
    one: ColumnCounts, n: int, schema: Schema, columns: Mapping[str, Column]
) -> Iterator[str]:
    """Yield notes on the label column; `one` are its counts and `n` the rows of the table."""
    label = schema.label
    assert label is not None
    name = escape_unprintable(one.column)
    lost = sum(one.counts.get(key, 0) for key in ("missing", "undeclared", "not a number"))
    if isinstance(label, RateLabel):
        if one.levels["with events"] == 0:
            yield f"{name}: no row has a known event, so nothing can be learnt; check the columns"
        return
    if isinstance(label, NumberLabel):
        yield from _note_on_clipping(name, one, n, "lo and hi of the label")
        if lost == n:
            yield (
                f"{name}: no row has a number to predict, so nothing can be learnt; check the "
                "column"
            )
        return
    for value, rows in one.levels.items():
        if rows == 0:
            yield (
                f"{name}: no row is {_class_in_words(label, value)}, "
                "so nothing can be learnt about it; compare the declared label with its spelling "
                "in the table"
            )
    if lost >= MANY * n:
        yield (
            f"{name}: {_share_in_words(lost, n)} of the rows have no declared label "
            f"({one.counts['missing']:,} missing, {one.counts['undeclared']:,} undeclared) and "
            "train as rows of zeros; declare every label, or leave those rows out"
        )
    gaps = one.counts.get("negative, and a usual mark of missing values", 0)
    if gaps:
        yield (
            f"{name}: {gaps:,} rows hold a common mark of missing values and train as negative, "
            "because negative is not declared; declare negative = VALUE, or list the mark in na"
        )
    yield from _notes_on_near_matches(
        name, one, column_as_text(columns[label.column]), declared_labels(label), mapped=False
    )


def _class_in_words(label: Label | ClassLabel, name: str) -> str:
    """Describe one class of a label by its declared name, such as "positive ('yes')"."""
    if isinstance(label, ClassLabel):
        return f"of the class {escape_unprintable(name)!r}"
    if name == label.positive:
        return f"positive ({escape_unprintable(name)!r})"
    return "negative" if label.negative is None else f"negative ({escape_unprintable(name)!r})"


def _notes_on_feature(
    one: ColumnCounts, n: int, schema: Schema, columns: Mapping[str, Column]
) -> Iterator[str]:
    """Yield notes on a feature column; `one` are its counts and `n` the rows of the table."""
    block = next(block for block in schema.blocks if block.name == one.column)
    name = escape_unprintable(one.column)
    if one.counts["missing"] == n:
        yield (
            f"{name}: every value is missing, so the column carries no information; leave it out, "
            "or repair the table"
        )
    if isinstance(block, Category):
        values = [value for _, members in block.values for value in members]
        strange = one.counts["undeclared"]
        if strange >= MANY * n:
            yield (
                f"{name}: {_share_in_words(strange, n)} of the rows hold undeclared values "
                f"({one.counts['undeclared texts']:,} different texts); "
                "compare values with the code book"
            )
        yield from _notes_on_near_matches(
            name, one, column_as_text(columns[block.source_column]), values, mapped=True
        )
        return
    # Rows that are divided by their own norms are clipped in their entries alone.
    unit_rows = isinstance(block, Vector) and isinstance(block.norm, str)
    if not unit_rows or one.counts["below"] or one.counts["above"]:
        bounds = {"bins": "edges", "spline": "knots"}.get(one.kind, "lo and hi")
        yield from _note_on_clipping(name, one, n, bounds)
        beyond = one.counts.get("beyond the norm", 0)
        if beyond >= CROWDED * n:
            yield (
                f"{name}: {_share_in_words(beyond, n)} of the rows are longer than norm; "
                "declare the norm of a typical row"
            )


def _note_on_clipping(name: str, one: ColumnCounts, n: int, what: str) -> Iterator[str]:
    """Yield a note if many rows are clipped; `what` names the entries of the schema to check."""
    below, above = one.counts["below"], one.counts["above"]
    if below + above >= MANY * n:
        yield (
            f"{name}: {_share_in_words(min(below + above, n), n)} of the rows are clipped "
            f"({below:,} below, {above:,} above the declared bounds); "
            f"check the unit and {what} against what the column means"
        )


def _notes_on_near_matches(
    name: str,
    one: ColumnCounts,
    texts: Column,
    values: list[str] | tuple[str, ...],
    *,
    mapped: bool,
) -> Iterator[str]:
    """Yield notes on undeclared texts that differ from a declared one only in case, blanks or
    Unicode form; the undeclared text is not shown.

    `mapped` is True for categories, whose declaration can list several spellings of one level.
    """
    if not one.counts.get("near", 0):
        return
    for value, rows in find_near_matches(texts, values).items():
        told = escape_unprintable(value)
        remedy = "use one spelling in the table"
        if mapped:
            remedy = (
                f"give one level all its spellings, values = {{ {_toml_table_key(told)} = "
                f'["{told}", '
                f"...] }}, or {remedy}"
            )
        many = int(rows.sum())
        differ = "row differs" if many == 1 else "rows differ"
        yield (
            f"{name}: {many:,} {differ} from the declared {told!r} only in case, "
            f"blanks or Unicode form; {remedy}"
        )


def _toml_table_key(name: str) -> str:
    """Return a name as a key of a TOML table: bare where it can be, else in quotes."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else f'"{name}"'
