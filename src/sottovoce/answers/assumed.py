"""Public assumptions about the rows, for a forecast of the table of coefficients.

A forecast (:mod:`sottovoce.answers.forecast`) reads no row; what it takes for granted of labels,
columns and levels stands here, and the user may replace it (``sottovoce plan --set
expect_share=...`` and its siblings).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..data.columns import Category, Number
from ..data.schema import Schema
from ..errors import InvalidInput, escape_unprintable
from ..util.constraints import Interval, constrained_field, validate_fields_and_rules

ROUNDED = 0.02
"""Largest distance from 1 of the sum of a column's shares: users give rounded ones."""


@dataclass(frozen=True)
class Assumed:
    """Public assumptions about rows, for forecasts (:mod:`sottovoce.answers.forecast`).

    Parameters
    ----------
    positives : float
        Share of rows with the positive label, in (0, 1).
    correlation : float
        Correlation of each numeric column with the next one in the schema, in (-1, 1).
    residuals : float
        Standard deviation of the residuals of a numeric label, as a share of the width of its
        bounds, in (0, 0.5].
    shares : tuple of str
        Shares of levels among all rows, as ``"stage: b=0.03"``: the level's name in the table of
        coefficients (column, colon, level), and its share in (0, 1).
    """

    positives: float = constrained_field(0.3, Interval(0.0, 1.0, closed="neither"))
    correlation: float = constrained_field(0.3, Interval(-1.0, 1.0, closed="neither"))
    residuals: float = constrained_field(0.15, Interval(0.0, 0.5, closed="high"))
    shares: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_fields_and_rules(self)


def parse_expected_shares(schema: Schema, texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Read shares of levels from texts such as ``"stage: b=0.03"``.

    Parameters
    ----------
    schema : Schema
        Declares the columns and their levels.
    texts : sequence of str
        As :attr:`Assumed.shares`.

    Returns
    -------
    dict of str to dict of str to float
        The share of each named level in (0, 1), by column and level; "missing" is one where the
        schema marks missing values, and "other" where it has that level.

    Raises
    ------
    InvalidInput
        For a level that the schema does not have, one that is named twice, and shares of one column
        with an impossible sum.
    """
    columns = {
        block.name: block.level_names for block in schema.blocks if isinstance(block, Category)
    }
    # A number with an indicator of missing values has these as its one level.
    with_gaps = {
        block.name: ["missing"]
        for block in schema.blocks
        if isinstance(block, Number) and block.indicator
    }
    found = dict[str, dict[str, float]]()
    for text in texts:
        # A share holds no "=", and names may: split at the last one.
        name, _, number = text.rpartition("=")
        column, level = _find_named_level(columns | with_gaps, name, text)
        share = _parse_share(text, number)
        known = found.setdefault(column, {})
        if level in known:
            rule = (
                f"gives the share of level {escape_unprintable(level)} of column "
                f"{escape_unprintable(column)} a second time"
            )
            raise InvalidInput("shares", text, rule, "give it once")
        known[level] = share
    for column, shares in found.items():
        all_levels = column in columns and len(shares) == len(columns[column])
        _check_total_share(column, shares, all_levels=all_levels)
    return found


def _check_total_share(column: str, shares: dict[str, float], *, all_levels: bool) -> None:
    """Refuse shares of a column's levels with an impossible sum.

    `shares` are those given, by level; with `all_levels` they are those of all levels of the
    `column` and must sum to 1, but for rounding by `ROUNDED`; else to less than 1.
    """
    total = sum(shares.values())
    if all_levels:
        rule = f"the shares of all levels of column {column} must sum to 1"
        if total > 1.0 + ROUNDED:
            raise InvalidInput("shares", round(total, 6), rule, "lower them")
        if total < 1.0 - ROUNDED:
            raise InvalidInput("shares", round(total, 6), rule, "raise them")
    elif total >= 1.0:
        rule = (
            f"the shares given for some levels of column {column} must sum to less than 1, as the "
            "other levels have rows too"
        )
        raise InvalidInput("shares", round(total, 6), rule, "lower them")


def _find_named_level(columns: dict[str, list[str]], name: str, text: str) -> tuple[str, str]:
    """Return the column and the level of a `name`, ``"column: level"`` or ``"column:level"``.

    Names of columns and of levels may hold colons, too, so every level of the schema is tried.
    `columns` has the levels by column, and `text` is the whole text, for errors.
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
            "shares",
            text,
            "must begin with a column of the schema and one of its levels",
            'write "column: level=0.03"',
        )
    if len(meant) > 1:
        called = " or ".join(escape_unprintable(column) for column, _ in meant)
        rule = f"is ambiguous: it may name a level of {called}"
        raise InvalidInput("shares", text, rule, 'write "column:level=0.03", without a blank')
    return meant[0]


def _parse_share(text: str, number: str) -> float:
    """Read the `number` behind the last ``=`` of a `text` as a share in (0, 1)."""
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    # NaN fails this comparison, too.
    if not 0.0 < share < 1.0:
        rule = "the part after '=' must be a number above 0 and below 1, with a decimal point"
        raise InvalidInput("shares", text, rule, "write 0.03 for 3%")
    return share
