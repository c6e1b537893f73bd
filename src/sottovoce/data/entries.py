"""Conversion of the entries of a declared column, ``[columns.NAME]`` of a schema file, to the types
that the block's class takes.  A value of another type raises a TypeError, from which
:func:`sottovoce.data.columns.block_from_dict` makes a SchemaError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import SchemaError
from .values import as_python_value, collide_in_a_frame, value_as_text


def groups_from_values(values: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the groups of a category, each with its members; a list gives one group per value."""
    if isinstance(values, Mapping):
        return tuple(
            (str(name), tuple(map(declared_text, _listed(group)))) for name, group in values.items()
        )
    return tuple((declared_text(value), (declared_text(value),)) for value in _listed(values))


def declared_text(value: object) -> str:
    """Return a declared text, number or truth value as `value_as_text` writes it.

    A TypeError for anything else.
    """
    value = as_python_value(value)
    if not isinstance(value, str | int | float):
        raise TypeError("a text is needed")
    return value_as_text(value)


def check_distinct_in_frames(field: str, texts: Iterable[str]) -> None:
    """Refuse declared whole numbers beyond 2^53 that a frame would round to the same number.

    Frames round them in a column with a missing value.
    """
    if collide_in_a_frame(texts):
        rule = (
            "two of its whole numbers are equal in a data frame, "
            "which rounds numbers beyond 2^53 in a column with missing values"
        )
        raise SchemaError(field, None, rule, "write them as texts with a letter, in the table too")


def _typed_converter(kind: Any, convert: Callable[[Any], Any]) -> Callable[[object], Any]:
    """Return a function that converts values of a type and raises a TypeError for others.

    True and False do not count as numbers.
    """

    def read(value: object) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{kind} is needed")
        return convert(value)

    return read


_text = _typed_converter(str, str)
_number = _typed_converter(int | float, float)
_truth = _typed_converter(bool, bool)
_whole = _typed_converter(int, int)
_listed = _typed_converter(list | tuple, list)


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(declared_text, _listed(values)))


def _numbers(values: object) -> tuple[float, ...]:
    return tuple(map(_number, _listed(values)))


def _edges(values: object) -> tuple[float, ...]:
    """Read numbers; infinite ones may be "inf" or "-inf", since JSON has no such number."""
    return tuple(map(_edge, _listed(values)))


def _edge(value: object) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    return _number(value)


def _unit_or_number(value: object) -> str | float:
    if isinstance(value, str):
        return value
    return _number(value)


def _as_tuple(values: object) -> tuple[Any, ...]:
    return tuple(_listed(values))


# How each entry of a block is converted, whatever its kind.
CONVERT: dict[str, Any] = {
    "base": _whole,
    "column": _text,
    "columns": _texts,
    "edges": _edges,
    "epoch": _text,
    "hi": _number,
    "indicator": _truth,
    "lo": _number,
    "missing": _number,
    "norm": _unit_or_number,
    "other": _truth,
    "prefix": _text,
    "size": _whole,
    "to": _text,
    "transform": _text,
    "typical": _numbers,
    "unit": _text,
    "weight": _number,
    "knots": _numbers,
    "of": _as_tuple,
    "bandwidth": _number,
    "degree": _whole,
    "features": _whole,
    "seed": _whole,
}
_OF_CATEGORY: dict[str, Any] = {
    "values": groups_from_values,
    "base": declared_text,
    "missing": declared_text,
}


def convert_entry(kind: str, key: str, value: object) -> Any:
    """Convert one entry of a block from what a schema file may hold.

    Parameters
    ----------
    kind : str
        Of the block, such as ``"category"``, on which the type of some entries depends.
    key : str
        Name of the entry.
    value : object
        As the file holds it.

    Returns
    -------
    object
        As the block's class takes it.

    Raises
    ------
    TypeError, ValueError or OverflowError
        If the value is of another type.
    """
    # In a category these entries are texts, which are numbers in other kinds.
    if kind == "category" and key in _OF_CATEGORY:
        return _OF_CATEGORY[key](value)
    return CONVERT[key](value)
