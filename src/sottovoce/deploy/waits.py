"""How long a run waits for its sites: part of every plan.

A round begins to wait with its first message.  After the *deadline* it goes on without the sites
that are missing, if the plan allows that and enough are there; else it waits until the *patience*
is over, and the run ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from ..errors import InvalidInput

_SHORTEST_WAIT = 1e-3
"""The fewest seconds of either wait: no message comes in less."""
_LONGEST_WAIT = 1e8
"""The most seconds of either wait, some three years."""


@dataclass(frozen=True)
class Waits:
    """Seconds that a run waits for its sites, from the first message of a round.

    Parameters
    ----------
    deadline : float or None
        Wait for the last site's message, if the run may go on without the missing sites.
    patience : float or None
        Wait before the run ends, if it may not.  None is infinite patience: the run needs all its
        sites to its end, so there is no deadline either.
    """

    deadline: float | None = 60.0
    patience: float | None = 600.0

    def __post_init__(self) -> None:
        if self.deadline is None and self.patience is None:
            return
        for field, value in vars(self).items():
            # to Python True is an int
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not _SHORTEST_WAIT <= value <= _LONGEST_WAIT:
                rule = f"must be a number of seconds from {_SHORTEST_WAIT:g} to {_LONGEST_WAIT:g}"
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
        """The deadline in seconds; infinite if there is none."""
        if self.deadline is None:
            return math.inf
        return self.deadline

    @property
    def patience_seconds(self) -> float:
        """The patience in seconds; infinite if there is none."""
        if self.patience is None:
            return math.inf
        return self.patience

    def with_deadline(self, seconds: float) -> Self:
        """Return these waits with another deadline, and a patience that is at least as long.

        Raises :class:`InvalidInput` if the plan waits for ever.
        """
        if self.waits_for_ever:
            rule = "the plan waits for all its sites without a time limit"
            raise InvalidInput(
                "patience", seconds, rule, "leave it out; `sottovoce hub end` ends the run"
            )
        return type(self)(seconds, max(seconds, self.patience_seconds))


DEFAULT = Waits()
"""Waits of a plan by default."""
ENDLESS = Waits(None, None)
"""Waits of a run over a graph that needs all its sites to its end."""
