"""Several games against one claim: each is played, and the worst verdict for it is returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .game import Case, Verdict

C = TypeVar("C", bound=Case)


@dataclass(frozen=True)
class WorstVerdict(Verdict):
    """The verdict that is worst for its claim."""

    games: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """By name of the game: its ``lower_bound``, and ``exact_epsilon``, None where not known."""


def play_all_games(
    method: str, stands: Mapping[str, C], confidence: float, play: Callable[[C, float], Verdict]
) -> WorstVerdict:
    """Play every game, and return the verdict that is worst for its claim.

    Parameters
    ----------
    method : str
        Name of the audit, which the verdict bears.
    stands : mapping of str to Case
        The games, by name.
    confidence : float
        Probability that no bound of any game is false: each gets an equal share of the error.
    play : callable ``(case, confidence)``
        Plays one game.

    Returns
    -------
    WorstVerdict
        The worst verdict, and the bounds of all games.
    """
    # Bonferroni: the worst of several bounds is chosen after all were seen.
    each = 1.0 - (1.0 - confidence) / len(stands)
    found = {name: play(case, each) for name, case in stands.items()}
    worst = max(found, key=lambda name: _severity_of_verdict(found[name]))
    told = {"method": method, "confidence": confidence, "attack": f"{worst}: {found[worst].attack}"}
    games = {
        name: {"lower_bound": one.lower_bound, "exact_epsilon": one.exact_epsilon}
        for name, one in found.items()
    }
    return WorstVerdict(**(vars(found[worst]) | told), games=games)


def _severity_of_verdict(verdict: Verdict) -> tuple[bool, float, float]:
    """Return a key that sorts verdicts by how bad they are for their claims.

    The ratio to the claim is rounded to a thousandth, so that the bound decides among equals.
    """
    shown = max(verdict.lower_bound, verdict.exact_epsilon or 0.0)
    found = verdict.refuted or verdict.is_refuted_exactly
    return found, round(shown / verdict.claimed_epsilon, 3), verdict.lower_bound
