"""How long a run waits for its sites: part of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidInput

_LONGEST_WAIT = 1e8


@dataclass(frozen=True)
class Waits:
    """How long a run waits for sites, in seconds from the first message of a round.

    Parameters
    ----------
    deadline : float
        For the last site's message, if the run may go on without those that are missing.
    patience : float
        If it may not, before it ends.
    """

    deadline: float = 60.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= _LONGEST_WAIT:
                rule = f"must be a number of seconds above 0 and at most {_LONGEST_WAIT:g}"
                raise InvalidInput(field, value, rule, f"use e.g. {getattr(type(self), field):g}")
        if self.patience < self.deadline:
            rule = f"must be at least the deadline, {self.deadline:g} s"
            raise InvalidInput("patience", self.patience, rule, "raise it")
