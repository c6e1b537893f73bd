"""Sums that only the network sees: the game of whoever sees the totals and knows all that some of the sites know.

She knows both tables of the victim, the rows of all others, every total, and the shares of the colluding sites, which
she subtracts.  At as many colluders as a claim allows it must stand.  With one more it must fall, as noise is no larger
than the claim needs.  Whoever has a row at two sites moves one sum twice, and a claim for such a person is played, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..algorithms import REGISTRY
from ..data.rows import Rows
from ..errors import InvalidInput
from .game import Case, Verdict
from .game import play as game
from .several import play_all
from .worst_cases import LINEAR, linear, signed_site

RUNS, QUICK_RUNS = 20_000, 4_000
DELTA = 0.1
"""So large that a threshold in the middle of the law decides, and a loss of half as much noise shows in few runs."""
OWN, OTHER = [1.0, -1.0, 1.0], [1.0, -1.0] * 5
"""Signed rows of the victim, and of any other site: sizes differ, and the victim's is the smallest."""
TWICE = ", two sites"
"""Marks the games of a person who has a row at two sites."""


def tables(victims: int, sites: int) -> tuple[Rows, Rows]:
    """Tables that differ in one row of each of the first `victims` sites."""
    first, second = (
        Rows.build([signed_site(*OWN, row)] * victims + [signed_site(*OTHER)] * (sites - victims))
        for row in (1.0, -1.0)
    )
    return first, second


def cases(epsilon: float | None = None, delta: float | None = None, rounds: int | None = None) -> dict[str, Case]:
    """The worst pair of every method of sums, by the method's name; of a person with two rows, by that and a mark."""
    found = {}
    for name, cls in REGISTRY.items():
        if cls.trust.kind == "sum":
            for m, mark in ((1, ""), (2, TWICE)):
                case = linear(
                    name, "corrected", 1.0 if epsilon is None else epsilon, DELTA if delta is None else delta,
                    2 if rounds is None else rounds, sites_per_row=m, eta=1e6,
                )  # fmt: skip
                found[name + mark] = replace(case, worlds=tables(m, m + 2), why=f"{LINEAR}, at {m} of {m + 2} sites")
    return found


def play(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int | None = None,
    replicates: int = RUNS,
    seed: int = 0,
    confidence: float = 0.95,
    colluders: int | None = None,
    stands: Mapping[str, Case] | None = None,
) -> Verdict:
    """Play every game, and return the verdict that is worst for its claim.

    Parameters
    ----------
    epsilon, delta : float, optional
        Total of every run; by default 1 at 0.1.
    rounds : int, optional
        By default 2.
    replicates : int
        Of each world, for every game.
    seed : int
    confidence : float
        That no bound of any game is false: each bound takes its share of the error.
    colluders : int, optional
        Sites that tell the adversary all they know; by default one, which is what the claims allow.
    stands : mapping, optional
        What is attacked, by name; :func:`cases` by default.

    Returns
    -------
    Verdict

    Raises
    ------
    InvalidInput
        If no honest site would be left beside the victim's rows.
    """
    stands = cases(epsilon, delta, rounds) if stands is None else stands

    def one(case: Case, each: float) -> Verdict:
        known, victims = case.known if colluders is None else colluders, case.config.sites_per_row
        if not 0 <= known <= len(case.worlds[0].n) - victims:
            rule = f"of {len(case.worlds[0].n)} sites, {victims} hold rows of the victim"
            raise InvalidInput("colluders", known, rule, "let fewer collude")
        return game(replace(case, colluders=known), replicates, seed=seed, confidence=each)

    return play_all("sums", stands, confidence, one)
