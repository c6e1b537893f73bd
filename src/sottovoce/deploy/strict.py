"""JSON from others: read strictly, in bounded memory, or not at all."""

from __future__ import annotations

import json
import math

from ..typing import Any

DEEPEST = 40
"""Lists and objects inside each other, at most."""
MOST = 1_000_000
"""Lists and objects in a text, at most; each takes some sixty bytes of memory, however short it is written."""
DIGITS = 40
"""Of a whole number, at most."""


class NotStrict(ValueError):
    """Why a text was refused, as the end of a sentence; it shows nothing of what was read."""


def parse(data: bytes | str, longest: int) -> Any:
    """The value of a JSON text.

    Refused are texts that are too long or too deep, ``NaN`` and infinities (also those of numbers such as ``1e999``),
    whole numbers of more than :data:`DIGITS` digits, and objects that say a key twice.

    Parameters
    ----------
    longest : int
        Bytes, or characters, at most.

    Raises
    ------
    NotStrict
    """
    if len(data) > longest:
        raise NotStrict(f"is longer than {longest:,} bytes")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotStrict("is no text") from None
    if text.count("[") + text.count("{") > MOST:
        raise NotStrict(f"holds more than {MOST:,} lists and objects")
    try:
        value = json.loads(
            text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole, object_pairs_hook=_once
        )  # fmt: skip
    except (RecursionError, MemoryError):
        raise NotStrict("is too deep or too large") from None
    except json.JSONDecodeError:
        raise NotStrict("is no JSON") from None
    _check_depth(value)
    return value


def _refuse(constant: str) -> Any:
    raise NotStrict(f"holds {constant}, which is no number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotStrict("holds a number that is too large")
    return value


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise NotStrict(f"holds a whole number of more than {DIGITS} digits")
    return int(digits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotStrict("says a key twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner for outer in level if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer) if isinstance(inner, dict | list)
        ]  # fmt: skip
        if not level:
            return
    raise NotStrict(f"is deeper than {DEEPEST} lists and objects")
