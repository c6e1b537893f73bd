"""Reading a privacy statement from plain data that may come from anybody: every value is checked.

Used by :meth:`sottovoce.privacy.statement.Statement.from_dict`.  Each reader below returns a value
of its type or raises; :func:`read_fields` turns that into an InvalidInput with the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from ..errors import InvalidInput
from ..problem.trust import CURATOR, NOBODY, Trust
from ..util.typing import Any
from .statement_facts import Shared

TOLD_BY_ADVERSARY = (NOBODY, CURATOR)
"""Trusts that are recognised by their sentence on the adversary, and not written by themselves."""

_T = TypeVar("_T")


def read_fields(plain: Any) -> dict[str, Any]:
    """Return the fields of a statement, from its plain data; infinities may be text.

    Raises
    ------
    InvalidInput
        If a value is missing or is not what a statement holds.
    """
    if not isinstance(plain, dict):
        raise _unknown_field_error("privacy")
    found = {key: _read_field(plain, key, read) for key, read in _REQUIRED.items()}
    found |= {key: _read_field(plain, key, read) for key, read in _OPTIONAL.items() if key in plain}
    if "caveats" in plain:
        said = _read_field(plain, "caveats", _texts)
        # The statement's own caveat stands first.
        if said[:1] == (found.get("caveat"),):
            said = said[1:]
        found["rests"] = said
    return found | {"trust": _trust(plain), "simulated": not _read_field(plain, "release", _truth)}


def _trust(plain: dict[str, Any]) -> Trust:
    """Return the trust: as it is written, or the one whose sentence on the adversary is."""
    if "trust" in plain:
        return Trust.from_dict(plain["trust"])
    for trust in TOLD_BY_ADVERSARY:
        if trust.adversary == plain.get("adversary"):
            return trust
    raise _unknown_field_error("adversary")


def _unknown_field_error(key: str) -> InvalidInput:
    """Return the error for a field that is missing or has a value of another type."""
    return InvalidInput(
        key,
        None,
        "is missing, or not a value of a privacy statement",
        "use a file that this library wrote",
    )


def _read_field(plain: dict[str, Any], key: str, read: Callable[[Any], _T]) -> _T:
    """Return the value of a field as `read` reads it; InvalidInput if it raises."""
    try:
        return read(plain[key])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _unknown_field_error(key) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_text, value))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError
    return value


def _number(value: Any) -> float:
    """Return an epsilon or delta: at least 0, perhaps infinite, which may be the text ``inf``."""
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TypeError
    return float(value)


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_number, value))


def _pairs(value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict):
        raise TypeError
    return tuple((_text(name), _number(epsilon)) for name, epsilon in value.items())


def _shared(value: Any) -> Shared:
    """Return the state of a shared ledger."""
    return Shared(
        _text(value["run"]),
        _number(value["spent"]),
        _numbers(value["budget"]),
        _number(value["delta"]),
    )


_REQUIRED: dict[str, Callable[[Any], Any]] = {
    "epsilon": _number,
    "delta": _number,
    "relation": _text,
    "unit": _text,
    "accountant": _text,
    "accountants": _pairs,
    "per_node": _numbers,
    "releases": _count,
    "form": _text,
    "public": _text,
}
_OPTIONAL: dict[str, Callable[[Any], Any]] = {
    "printed_claim": _number,
    "assumes": _text,
    "caveat": _text,
    "unprotected": _text,
    "site": _text,
    "made": _count,
    "ledger": _shared,
    "alone": _number,
    "others": _count,
    "discloses": _text,
    "other_epsilon": _number,
}
