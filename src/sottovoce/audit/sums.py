"""Audit of secure aggregation (`sums`): the adversary sees totals and all that some sites know.

The page is docs/explanation/audit.md.

She subtracts the shares of the colluding sites.  The claim must stand against as many colluders as
it allows, and fall against one more, since the noise is no larger than needed.  Games of a person
with rows at two sites, who moves one sum twice, are played too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..algorithms import REGISTRY
from ..data.rows import Rows
from ..errors import InvalidInput
from .game import DEFAULT, Case, Options, Verdict
from .game import play as game
from .several import play_all_games
from .worst_cases import LINEAR, ClaimedRun, linear, site_from_signed_rows

RUNS, QUICK_RUNS = 20_000, 4_000
DELTA = 0.1
"""Large, so that a threshold in the middle of the law decides, and half as much noise shows in
few runs.
"""
OWN, OTHER = [1.0, -1.0, 1.0], [1.0, -1.0] * 5
"""Rows, as ``y x``, of the victim, which is the smallest site, and of any other site."""
STRONG_PENALTY = 1e6
"""A penalty so strong that the model hardly leaves 0, so that all rows stay on the loss's linear
piece, where a row and its opposite change gradients by 2 (:mod:`sottovoce.audit.worst_cases`).
"""
TWICE = ", two sites"
"""Ends the names of games of a person with rows at two sites."""


def tables(victims: int, sites: int) -> tuple[Rows, Rows]:
    """Build two tables of one feature that differ in one row of each of the first `victims` sites.

    Parameters
    ----------
    victims : int
        Sites with the row, which table 1 holds negated.
    sites : int
        Number of sites.

    Returns
    -------
    pair of Rows
    """
    others = [site_from_signed_rows(*OTHER)] * (sites - victims)
    first = Rows.build_from_parts([site_from_signed_rows(*OWN, 1.0)] * victims + others)
    second = Rows.build_from_parts([site_from_signed_rows(*OWN, -1.0)] * victims + others)
    return first, second


def summing_cases(
    epsilon: float | None = None, delta: float | None = None, rounds: int | None = None
) -> dict[str, Case]:
    """Make the worst case of every method of sums, for one row and for a person with two rows.

    Parameters
    ----------
    epsilon : float, optional
        Claimed epsilon, by default 1.
    delta : float, optional
        Claimed delta, by default :data:`DELTA`.
    rounds : int, optional
        Rounds of a run; by default 2.

    Returns
    -------
    dict of str to Case
        By method; names that end in :data:`TWICE` are of a person with rows at two sites.
    """
    if epsilon is None:
        epsilon = 1.0
    if delta is None:
        delta = DELTA
    if rounds is None:
        rounds = 2
    cases = {}
    for name, cls in REGISTRY.items():
        if not cls.trust.opens_sums:
            continue
        for victim_sites, mark in ((1, ""), (2, TWICE)):
            # Two sites more than hold the row: one that colludes, and one that hides the sum.
            sites = victim_sites + 2
            # The form is that whose price is proved, not a paper's as it was printed.
            claim = ClaimedRun(name, "corrected", epsilon, delta, rounds)
            one_site_case = linear(claim, sites_per_row=victim_sites, eta=STRONG_PENALTY)
            # Its configuration is kept.  Its tables are not, as they have the row at one site.
            cases[name + mark] = replace(
                one_site_case,
                tables=tables(victim_sites, sites),
                why=f"{LINEAR}, at {victim_sites} of {sites} sites",
            )
    return cases


def play(asked: Options = DEFAULT, stands: Mapping[str, Case] | None = None) -> Verdict:
    """Play the game of every method of sums, and return the verdict that is worst for its claim.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Case, optional
        The cases to play; by default :func:`summing_cases`.

    Returns
    -------
    Verdict

    Raises
    ------
    InvalidInput
        If sites of the victim would have to collude.
    """
    if stands is None:
        stands = summing_cases(asked.epsilon, asked.delta, asked.rounds)

    def play_case(case: Case, each: float) -> Verdict:
        colluders = case.colluding_sites if asked.colluders is None else asked.colluders
        sites, victims = len(case.tables[0].n), case.config.sites_per_row
        # The colluding sites are the last ones, those of the victim the first.
        if not 0 <= colluders <= sites - victims:
            rule = (
                f"must be from 0 to {sites - victims}: of {sites} sites, {victims} hold rows of "
                "the victim"
            )
            raise InvalidInput("colluders", colluders, rule, "use fewer colluders")
        with_colluders = replace(case, colluders=colluders)
        runs = asked.replicates or RUNS
        return game(with_colluders, runs, seed=asked.seed, confidence=each)

    return play_all_games("sums", stands, asked.confidence, play_case)
