"""Records (dataclasses and named tuples) as plain data for JSON, and back: one strict reader for
files that others may have written.

A record's keys are the names of its fields, so that a class shows what its file holds, and its
annotations are what the reader accepts.  Every key must be there, and no other; every value must
have the very type of its field: no number is taken from a text, and no truth value for a number.
What the values may be is checked by the class itself.

Arrays are nested lists with None for NaN, tuples are lists, and records within records are objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from .typing import Any, Array

T = TypeVar("T")

_NAMES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number with a point or an exponent",
    str: "a text",
    NoneType: "null",
}


class Unreadable(ValueError):
    """Raised where plain data is no record.

    The message is the place and the rule, as the end of a sentence, without a value.
    """


def record_to_plain(value: Any, leave_out: Collection[str] = ()) -> Any:
    """Convert a record to plain data.

    Parameters
    ----------
    value
        A record, or what a field may hold: numbers, texts, None, arrays, and lists, tuples and
        dicts of these.
    leave_out : collection of str
        Fields that are kept elsewhere.

    Returns
    -------
    object
        Of JSON types.
    """
    if is_record_type(type(value)):
        names = [name for name in _record_field_types(type(value)) if name not in leave_out]
        return {name: record_to_plain(getattr(value, name)) for name in names}
    if isinstance(value, np.ndarray):
        return _replace_nan_by_none(value.tolist())
    if isinstance(value, dict):
        return {key: record_to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [record_to_plain(one) for one in value]
    return value


def record_from_plain(cls: type[T], plain: Any, **elsewhere: Any) -> T:
    """Read a record from plain data, the inverse of :func:`record_to_plain`.

    Parameters
    ----------
    cls : type
        A dataclass or a named tuple.
    plain
        Plain data, which may come from anybody.
    **elsewhere
        The fields that were left out.

    Returns
    -------
    object
        Of the class `cls`.

    Raises
    ------
    Unreadable
        If `plain` has other keys, or a value of another type.
    InvalidInput
        If the class refuses its values.
    """
    return _read_record(cls, plain, "", elsewhere)


def is_record_type(kind: object) -> bool:
    """Return True for a dataclass or a named tuple."""
    if not isinstance(kind, type):
        return False
    if is_dataclass(kind):
        return True
    # A named tuple has no base class of its own.
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


_KNOWN: dict[type, dict[str, Any]] = {}
"""Resolved field types of records, cached: to resolve annotations takes longer than to read one."""


def _record_field_types(cls: type) -> dict[str, Any]:
    """Return the names and types of a record's fields."""
    if cls not in _KNOWN:
        # Annotations are texts until they are resolved, because modules postpone them.
        hints = get_type_hints(cls)
        if is_dataclass(cls):
            names = [field.name for field in fields(cls)]
        else:
            names = vars(cls)["_fields"]
        _KNOWN[cls] = {name: hints[name] for name in names}
    return _KNOWN[cls]


def _read_record(cls: type[T], plain: Any, place: str, elsewhere: Mapping[str, Any] = {}) -> T:
    """Read a record; `place` is where it stands, for messages, and empty for the whole."""
    if not isinstance(plain, dict):
        raise _unreadable_at_place(place, "an object")
    kinds = {name: kind for name, kind in _record_field_types(cls).items() if name not in elsewhere}
    where = within = ""
    if place:
        where, within = f"{place}: ", f"{place}."
    missing = sorted(kinds.keys() - plain.keys())
    if missing:
        raise Unreadable(f"{where}lacks {', '.join(missing)}")
    # Other keys are not named, because they may come from anybody.
    if plain.keys() != kinds.keys():
        raise Unreadable(f"{where}has keys other than {', '.join(kinds)}")
    values = {
        name: _read_typed_value(kind, plain[name], f"{within}{name}")
        for name, kind in kinds.items()
    }
    return cls(**values, **elsewhere)


def _read_typed_value(kind: Any, plain: Any, place: str) -> Any:
    """Read a value of the type `kind`, which is an annotation."""
    if kind is Any:
        return plain
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _read_optional_value(get_args(kind), plain, place)
    if origin is Literal:
        if plain not in get_args(kind):
            raise _unreadable_at_place(place, "one of " + ", ".join(map(str, get_args(kind))))
        return plain
    read = _CONTAINERS.get(origin)
    if read is not None:
        return read(get_args(kind), plain, place)
    if is_record_type(kind):
        return _read_record(kind, plain, place)
    # The very type: True is an instance of int, and no number of a file.
    if type(plain) is not kind:
        raise _unreadable_at_place(place, _NAMES[kind])
    return plain


def _read_optional_value(kinds: tuple[Any, ...], plain: Any, place: str) -> Any:
    """Read a value of a type, or None; the message is that of the type."""
    if plain is None and NoneType in kinds:
        return None
    (kind,) = (one for one in kinds if one is not NoneType)
    return _read_typed_value(kind, plain, place)


def _read_list_value(kinds: tuple[Any, ...], plain: Any, place: str) -> list[Any]:
    if not isinstance(plain, list):
        raise _unreadable_at_place(place, "a list")
    return [_read_typed_value(kinds[0], one, f"{place}[{k}]") for k, one in enumerate(plain)]


def _read_tuple_value(kinds: tuple[Any, ...], plain: Any, place: str) -> tuple[Any, ...]:
    """Read a tuple of any length, as ``tuple[int, ...]`` says, or of one kind an entry."""
    if kinds[-1] is Ellipsis:
        return tuple(_read_list_value(kinds, plain, place))
    if not isinstance(plain, list) or len(plain) != len(kinds):
        raise _unreadable_at_place(place, f"a list of {len(kinds)}")
    return tuple(
        _read_typed_value(kind, one, f"{place}[{k}]")
        for k, (kind, one) in enumerate(zip(kinds, plain, strict=True))
    )


def _read_dict_value(kinds: tuple[Any, ...], plain: Any, place: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise _unreadable_at_place(place, "an object")
    # Places are numbers, because a key may come from anybody.
    return {
        key: _read_typed_value(kinds[1], one, f"{place}[{k}]")
        for k, (key, one) in enumerate(plain.items())
    }


def _read_array_value(kinds: tuple[Any, ...], plain: Any, place: str) -> Array:
    """Read an array of numbers, with NaN for None; one without entries has the shape (0,)."""
    if not isinstance(plain, list):
        raise _unreadable_at_place(place, "a list of numbers")
    # As objects first, because floats would take texts and truth values for numbers.
    try:
        found = np.array(plain, dtype=object)
    except ValueError:
        raise _unreadable_at_place(place, "a list of numbers, or of lists of one length") from None
    if not {type(one) for one in found.ravel().tolist()} <= {float, int, NoneType}:
        raise _unreadable_at_place(place, "a list of numbers, or of lists of one length")
    return found.astype(float)


_CONTAINERS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    list: _read_list_value,
    tuple: _read_tuple_value,
    dict: _read_dict_value,
    np.ndarray: _read_array_value,
}


def _unreadable_at_place(place: str, kind: str) -> Unreadable:
    return Unreadable(f"{place or 'the whole'} must be {kind}")


def _replace_nan_by_none(values: Any) -> Any:
    """Return nested lists with None for NaN."""
    if isinstance(values, list):
        return [_replace_nan_by_none(one) for one in values]
    # NaN alone differs from itself.
    if values != values:
        return None
    return values
