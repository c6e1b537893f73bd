"""Numbers from untrusted documents, and their text.

A record may come from anybody, so its numbers are read by :func:`number` and
:func:`read_finite_number`, within :func:`refusing_foreign_documents`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InvalidInput
from ..util.typing import Any


@contextmanager
def refusing_foreign_documents() -> Iterator[None]:
    """Turn an error of reading an untrusted document into InvalidInput: it is no run's record."""
    try:
        yield
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        rule = "does not hold a run's answers"
        raise InvalidInput(
            "run", None, rule, "use a file written by `train --save`, or by --json"
        ) from None


def number(x: Any) -> float:
    """Read a number, or an infinity in words; ValueError for anything else."""
    # A bool is an int to Python, and no number in a document.
    if isinstance(x, bool) or not (isinstance(x, int | float) or x in ("inf", "-inf")):
        raise ValueError("no number")
    return float(x)


def read_finite_number(x: Any) -> float:
    """Read a finite number; ValueError for anything else."""
    found = number(x)
    if not math.isfinite(found):
        raise ValueError("not finite")
    return found


def format_percentage(x: float, digits: int = 1) -> str:
    """Format a share as a percentage."""
    return f"{100.0 * x:.{digits}f}%"


def format_odds_ratio(x: float, digits: int = 2) -> str:
    """Format an odds ratio: to `digits` decimals below 100, whole up to 10,000, else as a bound."""
    if x >= 1e4:
        return ">10,000"
    if x >= 100:
        return f"{x:,.0f}"
    least = 10.0**-digits
    if x < least / 2:
        # Rounded to nothing, it would read as a ratio of 0.
        return f"<{least:g}"
    return f"{x:.{digits}f}"
