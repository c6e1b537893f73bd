"""User-level privacy: the column that says whose row it is, and weights that bound all rows of a
person together.

Each of a person's k rows at a site weighs ``1 / k``, so that all of them together move any weighted
sum over rows no further than one row of weight 1 would (docs/privacy/person.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..errors import SchemaError
from ..util.typing import Any, Array, BoolArray, IntArray
from .partition import partition
from .values import MISSING_MARKS, Column, canonical_text, distinct_texts, mask_of_missing

MOST = 100
"""Largest number of rows of a person that are read at a site, unless a schema says otherwise; to
allow many costs next to nothing.
"""
_LARGEST = 10_000
# Identifiers that are whole numbers, and the characters beyond which none is taken for a number.
_WHOLE, _LONGEST = re.compile(r"[+-]?[0-9]+(\.0*)?"), 1000
# A little less than 1, so that rounded weights add up to at most 1.
_BELOW = 1.0 - 2.0**-40
_WRITE = 'write person = "patient_id", or person = { column = "patient_id", rows = 20 }'


@dataclass(frozen=True)
class Person:
    """The column whose values identify people within a site.

    At most `rows` rows of a person are read there.
    """

    column: str
    rows: int = MOST

    def __post_init__(self) -> None:
        if not (isinstance(self.column, str) and self.column):
            raise SchemaError("person", None, "must name a column", _WRITE)
        is_whole = isinstance(self.rows, int) and not isinstance(self.rows, bool)
        if not is_whole or not 1 <= self.rows <= _LARGEST:
            rule = (
                f"must be a whole number from 1 to {_LARGEST:,}: "
                "a person's further rows are left out"
            )
            raise SchemaError("person.rows", self.rows, rule, "leave it out")

    @classmethod
    def person_from_entry(cls, given: object) -> Self:
        """Read a schema's ``person`` entry; a SchemaError for any other."""
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping) or not {"column"} <= set(given) <= {"column", "rows"}:
            raise SchemaError(
                "person", None, "must be a column, or have column and optionally rows", _WRITE
            )
        return cls(**given)

    def to_entry(self) -> Any:
        """Return the entry of a schema file."""
        if self.rows == MOST:
            return self.column
        return {"column": self.column, "rows": self.rows}

    def number_people(self, column: Column, na: frozenset[str]) -> IntArray:
        """Number the person of each row, in the order in which people first appear: (n,).

        A SchemaError if some rows do not name a person, or the column has several values a row.
        """
        if column.ndim != 1:
            raise SchemaError(
                self.column, None, "must hold one value a row", "give a column of identifiers"
            )
        texts, which = distinct_texts(column)
        if mask_of_missing(texts, na, MISSING_MARKS).any():
            rule = (
                "some rows have no person identifier, "
                "so the number of rows per person cannot be bounded"
            )
            raise SchemaError(
                self.column, None, rule, "fill in the identifiers, or leave those rows out"
            )
        known = dict[str, int]()
        numbers = [
            known.setdefault(_comparable_identifier(text), len(known)) for text in texts.tolist()
        ]
        people = np.array(numbers, dtype=np.int64)
        # Distinct texts need not stand in the order of the rows, so people are numbered anew, by
        # the first row of each.
        _, first, number = np.unique(people[which], return_index=True, return_inverse=True)
        order = np.empty(len(first), dtype=np.int64)
        order[np.argsort(first, kind="stable")] = np.arange(len(first))
        return order[number]

    def number_people_of_table(self, columns: Mapping[str, Column], na: frozenset[str]) -> IntArray:
        """Number the people of a table's rows, as :meth:`number_people`.

        A SchemaError if the table lacks the column.
        """
        if self.column not in columns:
            rule = "is the person column of the schema, and the table does not have it"
            raise SchemaError(
                self.column, None, rule, "add the column, or leave person out of the schema"
            )
        return self.number_people(columns[self.column], na)


def _comparable_identifier(text: str) -> str:
    """Return an identifier as it is compared: whole numbers by value, so that 1, 1.0 and 01 are one
    person.

    That is safe for privacy: two people who are taken for one are bounded together, and the
    guarantee of one person holds for each of them.
    """
    text = canonical_text(text)
    # Python refuses to convert texts of very many digits.
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        return text
    return str(int(text.partition(".")[0]))


def first_rows_of_each(people: IntArray, most: int) -> BoolArray:
    """Return which rows are read: the first `most` of every person, a mask (n,)."""
    order = np.argsort(people, kind="stable")
    start = np.flatnonzero(np.diff(people[order], prepend=-1))
    place = np.empty(len(people), dtype=np.int64)
    # Number of earlier rows of the same person: the stable sort keeps the order of the table.
    rows_of_each = np.diff(np.append(start, len(people)))
    place[order] = np.arange(len(people)) - np.repeat(start, rows_of_each)
    return place < most


def weights_within_person(people: IntArray) -> Array:
    """Return the weight of each row: one over the number of rows of its person, (n,).

    A person's weights add up to at most 1 in floating-point arithmetic too, so all rows of a person
    move a weighted sum no further than one row of weight 1 (docs/privacy/person.md).
    """
    _, number, count = np.unique(people, return_inverse=True, return_counts=True)
    return np.asarray(_BELOW / count[number])


def group_rows_by_person(people: IntArray, rows: IntArray) -> list[IntArray]:
    """Group row numbers by person, sorted by the person's number.

    `rows` (n,) are row numbers, and `people` (n,) the number of each one's person.
    """
    order = np.argsort(people, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(people[order])) + 1)


def rows_of_dealt_people(people: IntArray, parts: Sequence[IntArray]) -> list[IntArray]:
    """Return the sorted row numbers of each node, from the people of each node.

    `people` (n,) is the person of each row; ``parts[i]`` are the people of node i.
    """
    node_of_person = np.full(int(people.max(initial=-1)) + 1, -1)
    for node, part in enumerate(parts):
        node_of_person[part] = node
    node_of_row = node_of_person[people]
    return [np.flatnonzero(node_of_row == node).astype(np.int64) for node in range(len(parts))]


def partition_people(
    people: IntArray, nodes: int | None, seed: int, sizes: Sequence[float] | None = None
) -> list[IntArray]:
    """Partition people at random over nodes, each with all their rows.

    Parameters
    ----------
    people : ndarray of int, shape (n,)
        Whose row it is.
    nodes : int or None
        Number of nodes, at most the number of people.
    seed : int
        Of the partition.
    sizes : sequence of float, optional
        Relative numbers of people of the nodes; equal up to one person if None.

    Returns
    -------
    list of ndarray of int64
        Sorted row numbers of each node.

    Raises
    ------
    InvalidInput
        As :func:`sottovoce.data.partition.partition` raises for ``iid``.
    """
    _, number = np.unique(people, return_inverse=True)
    everybody = np.ones(int(number.max(initial=-1)) + 1)
    return rows_of_dealt_people(number, partition("iid", everybody, nodes, seed, sizes=sizes))


def most_parts_of_a_person(people: IntArray, parts: Sequence[IntArray]) -> int:
    """Return the largest number of parts in which one person has rows."""
    # A person counts once in a part, however many rows there are.
    own = np.concatenate([np.unique(people[part]) for part in parts])
    _, parts_of_each = np.unique(own, return_counts=True)
    return int(parts_of_each.max())
