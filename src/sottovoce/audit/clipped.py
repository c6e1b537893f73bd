"""Audit of gradient clipping: every method that clips, where its sensitivity is tight.

The page is docs/explanation/audit.md, `capped`.

Every row's gradient is clipped to norm c, the *cap*.  The row that differs between the tables has
another norm on each.  So a cap that is left out, depends on other rows, or rests on norms that are
too small moves the sum of gradients by more than the ``2 c`` that is priced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..algorithms import REGISTRY, knobs_of
from ..util.typing import Any
from .exact import densities
from .game import DEFAULT, Case, Options, Verdict
from .game import play as game
from .several import play_all_games
from .worst_cases import make_case, tables

RUNS, QUICK_RUNS = 8_000, 2_000
CAP = 0.25
"""The cap c.  On the loss's linear piece a row's gradient is as long as the row: above the cap."""
LONG, SHORT = 1.0, 0.6
"""Norms of the row that differs, on table 0 and on table 1; its site's other rows are SHORT."""
WHY = (
    "Huber's linear piece, all rows capped: a row of norm 1 becomes one of norm 0.6 with the other "
    "label"
)


def clipping_cases(
    epsilon: float | None = None, delta: float | None = None, rounds: int | None = None
) -> dict[str, Case]:
    """Make the worst case of every method that clips gradients.

    Parameters
    ----------
    epsilon : float, optional
        Claimed epsilon, by default 1.
    delta : float, optional
        Claimed delta, by default that of the worst case of the method.
    rounds : int, optional
        Rounds of a run; by default that of the worst case of the method.

    Returns
    -------
    dict of str to Case
        By method.
    """
    # Not all on one side, so that answers lie inside the ball to which they are projected.
    own = [SHORT] * 5 + [-SHORT] * 2
    other = [1.0, -1.0] * 2
    found = {}
    cap = dict[str, Any](max_grad_norm=CAP)
    for name, cls in REGISTRY.items():
        if "max_grad_norm" in knobs_of(cls.options):
            case = make_case(name, "corrected", epsilon, delta, rounds)
            config = case.config.but(**cap)
            sites = len(case.tables[0].n)
            # Table 0 of the one pair and table 1 of the other: the row changes its label and its
            # norm.
            first, _ = tables(own, other, LONG, sites)
            _, second = tables(own, other, SHORT, sites)
            found[name] = replace(case, config=config, tables=(first, second), why=WHY)
    return found


def play(asked: Options = DEFAULT, stands: Mapping[str, Case] | None = None) -> Verdict:
    """Play the game of every method that clips gradients, and return the worst verdict.

    The verdict is that of the game that is worst for its claim.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Case, optional
        The cases to play; by default :func:`clipping_cases`.

    Returns
    -------
    Verdict
    """
    if stands is None:
        stands = clipping_cases(asked.epsilon, asked.delta, asked.rounds)

    def play_case(case: Case, each: float) -> Verdict:
        found = game(case, asked.replicates or RUNS, seed=asked.seed, confidence=each)
        exact = None
        if found.method == "output" and found.releases == 1:
            exact = densities(case).epsilon_at_delta(found.delta)
        return replace(found, exact_epsilon=exact)

    return play_all_games("capped", stands, asked.confidence, play_case)
