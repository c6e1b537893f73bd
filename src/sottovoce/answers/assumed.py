"""What a forecast of coefficients takes for true of rows that nobody has read."""

from __future__ import annotations

from typing import NamedTuple


class Assumed(NamedTuple):
    """Public expectations of whoever plans; see :mod:`sottovoce.answers.forecast`.

    Parameters
    ----------
    positives : float
        Share of rows of the positive class.
    correlation : float
        Of each number with the next number, in the order of the schema.
    residuals : float
        Standard deviation of a number's residuals over the width of its bounds.
    """

    positives: float = 0.3
    correlation: float = 0.3
    residuals: float = 0.15
