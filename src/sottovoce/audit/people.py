"""Audit of user-level privacy (`people`): all rows of a person differ, where proofs are tight.

The page is docs/explanation/audit.md.

Neighbouring tables differ in one person of one site, who has several rows on one of them and
another number on the other.  If a person's rows were not bounded together, they would move sums by
as many times more as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..algorithms import REGISTRY
from ..algorithms.recipe import Recipe
from ..answers.description import Description
from ..answers.survey import Survey
from ..data.rows import Rows
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..queries import LevelSums
from ..runs.config import RunConfig
from . import answers
from .game import DEFAULT, Case, Options, Verdict
from .game import play as game
from .several import play_all_games
from .worst_cases import make_case, site_from_signed_rows

RUNS, QUICK_RUNS = 8_000, 2_000
ROWS = 4
"""The most rows of a person."""
METHODS = (
    "prox_admm",
    "prox_average",
    "dgd",
    "momentum",
    "output",
    "sum_prox",
    "sum_momentum",
    "central_gd",
)
ANSWERS = ("mean of rows", "second moments")
DELTA = 0.1
WHY = (
    "all rows of a person with several rows, who pull one way; the other person pulls the other way"
)


def tables(own: Sequence[float], other: Sequence[float], sites: int) -> tuple[Rows, Rows]:
    """Build two tables of one feature that differ in all rows of one person of site 0.

    Parameters
    ----------
    own : sequence of float
        Rows of the other people of site 0, one each, as ``y x``.
    other : sequence of float
        Rows of every other site, as ``y x``, one a person.
    sites : int
        Number of sites.

    Returns
    -------
    pair of Rows
        The person has `ROWS` rows on table 0, and two opposite ones on table 1.
    """
    others = [site_from_signed_rows(*other)] * (sites - 1)

    def table(row: float, count: int) -> Rows:
        """Build the table in which the person has `count` rows."""
        rows = Rows.build_from_parts([site_from_signed_rows(*own, *[row] * count), *others])
        person = len(own)
        victims = np.append(np.arange(len(own)), [person] * count)
        people = [victims, *(np.arange(len(y)) for _, y in others)]
        return rows.with_people(people, ROWS)

    return table(1.0, ROWS), table(-1.0, 2)


def user_level_cases(
    epsilon: float | None = None, delta: float | None = None, rounds: int | None = None
) -> dict[str, Case]:
    """Make the worst cases of every kind of release that is proved for people.

    Parameters
    ----------
    epsilon : float, optional
        Claimed epsilon, by default 1.
    delta : float, optional
        Claimed delta, by default :data:`DELTA` where a release is Gaussian.
    rounds : int, optional
        Rounds of a run; by default that of the worst case of the method.

    Returns
    -------
    dict of str to Case
        By method or answer, one for a survey, and one for a descriptive table.
    """
    own, other = [1.0, -1.0, 1.0], [1.0, -1.0] * 2
    found = dict[str, Case]()
    for name in METHODS:
        claimed_delta = delta
        if delta is None and REGISTRY[name].needs_delta:
            claimed_delta = DELTA
        case = make_case(name, "corrected", epsilon, claimed_delta, rounds)
        config = replace(case.config, rows_per_person=ROWS)
        pair = tables(own, other, sites=len(case.tables[0].n))
        found[name] = replace(case, config=config, tables=pair, why=WHY)
    # The other releases are Gaussian, so that they need a delta.
    config = RunConfig(
        "auto",
        1.0 if epsilon is None else epsilon,
        DELTA if delta is None else delta,
        rows_per_person=ROWS,
    )
    for name in ANSWERS:
        release = answers.release(name, answers.PAIRS[name], config)
        found[name] = replace(release, tables=_pair_of_people(name))
    found["survey"] = _counts_of_people(config, _SURVEY, 2)
    found["descriptive table"] = _counts_of_people(config, _TABLE, 3)
    return found


def _pair_of_people(name: str) -> tuple[Rows, Rows]:
    """Return the tables of an answer's worst pair, made into a pair of people.

    The row that differs is a person's: `ROWS` times on one table, twice on the other.
    """

    def repeated(rows: Rows, count: int) -> Rows:
        """Hold the first row of the first site `count` times, by one person."""
        counts = rows.n[:, 0].astype(int)
        first = rows.signed[0, : counts[0]]
        longer = np.concatenate([np.repeat(first[:1], count - 1, axis=0), first])
        parts = [longer, *(own[:n] for own, n in zip(rows.signed[1:], counts[1:], strict=True))]
        victims = np.append(np.zeros(count - 1, dtype=int), np.arange(counts[0]))
        people = [victims, *map(np.arange, counts[1:])]
        # Rows are signed already, so that all labels are 1.
        return Rows.build_from_parts([(own, np.ones(len(own))) for own in parts]).with_people(
            people, ROWS
        )

    first, second = answers.tables(answers.PAIRS[name])
    return repeated(first, ROWS), repeated(second, 2)


_SURVEY = Survey(cells=(2, 2), grids=b"")
_TABLE = Description(groups=2, blocks=(LevelSums(2, 1.0),), contents=b"")
"""Recipes that count a person's rows by their codes, in two columns and in three."""


def _counts_of_people(config: RunConfig, recipe: Recipe, columns: int) -> Case:
    """Make a case of columns of codes; all rows of the person have code 1 in them, or 2."""

    def table(code: float, count: int) -> Rows:
        # Twenty other people a site, of code 0 in all columns: their one row counts nowhere.
        first = np.concatenate([np.zeros((20, columns)), np.full((count, columns), code)])
        rows = Rows.build_with_any_norm(
            [(own, np.ones(len(own))) for own in (first, np.zeros((20, columns)))]
        )
        people = [np.append(np.arange(20), [20] * count), np.arange(20)]
        return rows.with_people(people, ROWS)

    pair = (table(1.0, ROWS), table(2.0, 1))
    return Case(config, pair, 0, WHY, method=recipe, loss=Weighted(Logistic()))


def play(asked: Options = DEFAULT, stands: Mapping[str, Case] | None = None) -> Verdict:
    """Play the games of people with several rows, and return the verdict worst for its claim.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Case, optional
        The cases to play; by default :func:`user_level_cases`.

    Returns
    -------
    Verdict
    """
    if stands is None:
        stands = user_level_cases(asked.epsilon, asked.delta, asked.rounds)

    def play_case(case: Case, each: float) -> Verdict:
        return game(case, asked.replicates or RUNS, seed=asked.seed, confidence=each)

    return play_all_games("people", stands, asked.confidence, play_case)
