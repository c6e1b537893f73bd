"""Numbers in a plan that no run can mean, refused by name before anything is computed from them.

Each is a number that a class allows and arithmetic does not survive, or a guarantee that promises
nothing: a plan comes from others, and is read before anybody has agreed to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..errors import InvalidInput
from ..util.constraints import UsableSize
from ..util.typing import Any

LARGEST_DELTA = 0.01
"""With a delta above it, every row may be published in one run of a hundred."""
LARGEST_EPSILON = 1e6
"""A finite epsilon above it promises nothing, and its price is not exact."""
_USABLE = UsableSize()
_UNCHECKED = ("start",)
"""Entries with checks of their own: a starting point may hold any finite number."""


def check_plan_numbers(plain: dict[str, Any]) -> None:
    """Refuse a plan with numbers that no run can mean.

    Parameters
    ----------
    plain : dict
        Plain data of a plan, of which nothing else is checked yet: what is no plan at all passes.

    Raises
    ------
    InvalidInput
        Names the first such number by its place, such as ``config.noise.growth``.
    """
    for place, value in _numbers_with_places(plain):
        if isinstance(value, bool):
            if place.startswith("edges"):
                raise InvalidInput(place, value, "must be a number", "write the plan again")
        elif not _USABLE.is_satisfied_by(value):
            rule = _USABLE.broken_rule_text(value)
            raise InvalidInput(place, value, rule, "write the plan with another value")
    config = plain.get("config")
    if isinstance(config, dict):
        _check_guarantee(config)
        for name in ("eta", "noise"):
            _check_schedule(f"config.{name}", config.get(name), config.get("rounds"))
        for name in ("eta_growth", "noise_growth"):
            for value in _as_numbers(config.get(name)):
                if value <= 0.0:
                    rule = "must be above 0: a negative or vanishing weight has no meaning"
                    raise InvalidInput(f"config.{name}", value, rule, "use e.g. 1")


def _check_guarantee(config: dict[str, Any]) -> None:
    """Refuse a guarantee that promises nothing."""
    for value in _as_numbers(config.get("delta")):
        if value > LARGEST_DELTA:
            rule = (
                f"must be at most {LARGEST_DELTA:g}: with this probability all rows may be "
                "published"
            )
            raise InvalidInput("config.delta", value, rule, "use e.g. 1e-5")
    for value in _as_numbers(config.get("epsilon")):
        if LARGEST_EPSILON < value < math.inf:
            rule = f"must be at most {LARGEST_EPSILON:g}, or the text inf"
            raise InvalidInput("config.epsilon", value, rule, "use e.g. 1")


def _check_schedule(place: str, schedule: object, rounds: object) -> None:
    """Refuse a schedule whose values leave the sizes of a plan's numbers within its rounds."""
    if not isinstance(schedule, dict) or type(rounds) is not int or "table" in schedule:
        return
    parts = [_as_numbers(schedule.get(name, 1.0)) for name in ("start", "growth", "factor")]
    # What is no positive number is refused by the schedule itself.
    if any(value <= 0.0 for part in parts for value in part):
        return
    starts, growths, factors = ([math.log10(value) for value in part] for part in parts)
    least, most = math.log10(_USABLE.smallest), math.log10(_USABLE.largest)
    for growth in growths:
        for first in (start + factor for start in starts for factor in factors):
            last = first + growth * rounds
            if not least <= min(first, last) <= max(first, last) <= most:
                rule = f"within {rounds:,} rounds values must be {_USABLE.requirement_text}"
                raise InvalidInput(place, None, rule, "use a growth nearer to 1")


def _as_numbers(value: object) -> list[float]:
    """Return a number, or the numbers of a list; nothing for anything else."""
    entries = value if isinstance(value, list | tuple) else [value]
    return [
        float(one) for one in entries if isinstance(one, int | float) and not isinstance(one, bool)
    ]


def _numbers_with_places(value: object, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number of plain data, and every truth value, with the names that lead to it."""
    if isinstance(value, int | float):
        yield place, value
    elif isinstance(value, dict):
        for name, entry in value.items():
            if place or name not in _UNCHECKED:
                yield from _numbers_with_places(entry, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers_with_places(entry, place)
