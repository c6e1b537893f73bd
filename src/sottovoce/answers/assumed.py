"""Public assumptions of a forecast of coefficients about rows that nobody has read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..data.columns import Category
from ..data.schema import Schema
from ..errors import InvalidInput, escape_unprintable
from ..util.constraints import Interval, constrained_field, validate_fields_and_rules

ROUNDED = 0.02
"""By how much shares of all levels of a column may miss 1, as they are rounded."""


@dataclass(frozen=True)
class Assumed:
    """Public assumptions about rows, for forecasts (:mod:`sottovoce.answers.forecast`).

    Parameters
    ----------
    positives : float
        Share of rows of the positive class.
    correlation : float
        Of each number with the next number, in the order of the schema.
    residuals : float
        Standard deviation of a number's residuals over the width of its bounds.
    shares : tuple of str
        Shares of levels among all rows, as ``"stage: b=0.03"``: the name in the table of
        coefficients, and the share.
    """

    positives: float = constrained_field(0.3, Interval(0.0, 1.0, closed="neither"))
    correlation: float = constrained_field(0.3, Interval(-1.0, 1.0, closed="neither"))
    residuals: float = constrained_field(0.15, Interval(0.0, 0.5, closed="high"))
    shares: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_fields_and_rules(self)


def parse_expected_shares(schema: Schema, texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Read shares of levels, by column and level, from texts such as ``"stage: b=0.03"``.

    Raises
    ------
    InvalidInput
        For a level that the schema does not have, one that is named twice, and shares that cannot
        be those of a column.
    """
    columns = {
        block.name: [name for name, _ in block.values]
        for block in schema.blocks
        if isinstance(block, Category)
    }
    found = dict[str, dict[str, float]]()
    for text in texts:
        # A share holds no "=", and names may: split at the last one.
        name, _, number = text.rpartition("=")
        column, level = _find_named_level(columns, name, text)
        share = _parse_share(text, number)
        known = found.setdefault(column, {})
        if level in known:
            rule = (
                f"share of level {escape_unprintable(level)} of {escape_unprintable(column)} "
                "is told twice"
            )
            raise InvalidInput("shares", text, rule, "leave one of the two out")
        known[level] = share
    for column, shares in found.items():
        _check_total_share(column, shares, all_levels=len(shares) == len(columns[column]))
    return found


def _check_total_share(column: str, shares: dict[str, float], *, all_levels: bool) -> None:
    """Refuse shares of a column's levels that cannot be those of its rows."""
    total = sum(shares.values())
    adds_up = all_levels and total <= 1.0 + ROUNDED
    if total >= 1.0 and not adds_up:
        rule = f"shares of {column} must leave room for its other levels"
        raise InvalidInput("shares", round(total, 6), rule, "lower them")
    if all_levels and total < 1.0 - ROUNDED:
        rule = f"shares of all levels of {column} must add up to 1"
        raise InvalidInput("shares", round(total, 6), rule, "raise them")


def _find_named_level(columns: dict[str, list[str]], name: str, text: str) -> tuple[str, str]:
    """Return the column and the level of a name, ``"column: level"`` or without the blank.

    Names of columns and of levels may hold colons, too, so every level of the schema is tried.
    """
    with_blank, without_blank = list[tuple[str, str]](), list[tuple[str, str]]()
    for column, levels in columns.items():
        for level in levels:
            if f"{column}: {level}".strip() == name.strip():
                with_blank.append((column, level))
            if f"{column}:{level}".strip() == name.strip():
                without_blank.append((column, level))
    # A level may begin with a blank itself: the form of the table of coefficients goes first.
    meant = with_blank or without_blank
    if not meant:
        raise InvalidInput(
            "shares", text, "must name a level of the schema", 'use "column: level=0.03"'
        )
    if len(meant) > 1:
        called = " and ".join(escape_unprintable(column) for column, _ in meant)
        remedy = 'use "column:level=0.03", without a blank'
        raise InvalidInput("shares", text, f"names levels of {called}", remedy)
    return meant[0]


def _parse_share(text: str, number: str) -> float:
    """Read a share, inside (0, 1)."""
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    # what is no number fails this comparison, too
    if not 0.0 < share < 1.0:
        rule = "the part after '=' must be a number above 0 and below 1, with a decimal point"
        raise InvalidInput("shares", text, rule, "write 0.03 for 3%")
    return share
