"""How long a run waits for its sites: part of every plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from ..errors import InvalidInput

_LONGEST_WAIT = 1e8
"""Seconds, some three years."""


@dataclass(frozen=True)
class Waits:
    """Seconds that a run waits for its sites, from the first message of a round.

    Parameters
    ----------
    deadline : float or None
        For the last site's message, if the run may go on without those that are missing.
    patience : float or None
        If it may not, before it ends.  None is infinite patience: the run needs all its sites to
        its end, so there is no deadline either.
    """

    deadline: float | None = 60.0
    patience: float | None = 600.0

    def __post_init__(self) -> None:
        if self.deadline is None and self.patience is None:
            return
        for field, value in vars(self).items():
            # to Python True is an int
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0.0 < value <= _LONGEST_WAIT:
                rule = f"must be a number of seconds above 0 and at most {_LONGEST_WAIT:g}"
                remedy = (
                    f"use e.g. {getattr(type(self), field):g}, or null for both to wait without "
                    "limit"
                )
                raise InvalidInput(field, value, rule, remedy)
        if self.patience_seconds < self.deadline_seconds:
            rule = f"must be at least the deadline, {self.deadline:g} s"
            raise InvalidInput("patience", self.patience, rule, "raise it")

    @property
    def waits_for_ever(self) -> bool:
        """True if every round waits for all sites, however long."""
        return self.patience is None

    @property
    def deadline_seconds(self) -> float:
        """The deadline as a number that a clock can be compared with."""
        if self.deadline is None:
            return math.inf
        return self.deadline

    @property
    def patience_seconds(self) -> float:
        """The patience as a number that a clock can be compared with."""
        if self.patience is None:
            return math.inf
        return self.patience

    def with_deadline(self, seconds: float) -> Self:
        """Return these waits with another deadline, and a patience that is no shorter.

        Raises :class:`InvalidInput`.
        """
        if self.waits_for_ever:
            rule = "the plan waits for all its sites without a time limit"
            raise InvalidInput(
                "patience", seconds, rule, "leave it out; `sottovoce hub end` ends the run"
            )
        return type(self)(seconds, max(seconds, self.patience_seconds))


DEFAULT = Waits()
"""What a plan has unless it says otherwise."""
ENDLESS = Waits(None, None)
"""Of a run over a graph that needs all its sites to its end."""
