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
from ..answers.survey import Survey
from ..data.rows import Rows
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..runs.config import RunConfig
from . import answers
from .game import DEFAULT, Case, Options, Verdict
from .game import play as game
from .several import play_all
from .worst_cases import make_case, signed_site

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
    others = [signed_site(*other)] * (sites - 1)

    def one(row: float, many: int) -> Rows:
        rows = Rows.build([signed_site(*own, *[row] * many), *others])
        people = [
            np.append(np.arange(len(own)), [len(own)] * many),
            *(np.arange(len(y)) for _, y in others),
        ]
        return rows.with_people(people, ROWS)

    return one(1.0, ROWS), one(-1.0, 2)


def cases(
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
        By method or answer, and one for a survey.
    """
    own, found = [1.0, -1.0, 1.0], dict[str, Case]()
    for name in METHODS:
        gaussian = REGISTRY[name].needs_delta
        case = make_case(name, "corrected", epsilon, delta or (DELTA if gaussian else None), rounds)
        sites = len(case.tables[0].n)
        config = replace(case.config, rows_per_person=ROWS)
        found[name] = replace(
            case, config=config, tables=tables(own, [1.0, -1.0] * 2, sites), why=WHY
        )
    config = RunConfig("auto", epsilon or 1.0, delta or DELTA, rows_per_person=ROWS)
    found |= {
        name: replace(answers.release(name, answers.PAIRS[name], config), tables=_pair(name))
        for name in ANSWERS
    }
    return found | {"survey": _survey(config)}


def _pair(name: str) -> tuple[Rows, Rows]:
    """Return the tables of an answer's worst pair, made into a pair of people.

    The row that differs is a person's: `ROWS` times on one table, twice on the other.
    """

    def one(rows: Rows, many: int) -> Rows:
        counts = rows.n[:, 0].astype(int)
        first = rows.signed[0, : counts[0]]
        longer = np.concatenate([np.repeat(first[:1], many - 1, axis=0), first])
        parts = [longer, *(own[:n] for own, n in zip(rows.signed[1:], counts[1:], strict=True))]
        people = [
            np.append(np.zeros(many - 1, dtype=int), np.arange(counts[0])),
            *map(np.arange, counts[1:]),
        ]
        return Rows.build([(own, np.ones(len(own))) for own in parts]).with_people(people, ROWS)

    first, second = answers.tables(answers.PAIRS[name])
    return one(first, ROWS), one(second, 2)


def _survey(config: RunConfig) -> Case:
    """Make a case of two columns; all rows of the person lie in the first cell, or the second."""
    recipe = Survey(cells=(2, 2), grids=b"")

    def one(cell: float, many: int) -> Rows:
        cells = [np.concatenate([np.zeros((20, 2)), np.full((many, 2), cell)]), np.zeros((20, 2))]
        rows = Rows.of_any_norm([(own, np.ones(len(own))) for own in cells])
        return rows.with_people([np.append(np.arange(20), [20] * many), np.arange(20)], ROWS)

    pair = (one(1.0, ROWS), one(2.0, 1))
    return Case(config, pair, 0, WHY, method=recipe, loss=Weighted(Logistic()))


def play(asked: Options = DEFAULT, stands: Mapping[str, Case] | None = None) -> Verdict:
    """Play the games of people with several rows, and return the verdict worst for its claim.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Case, optional
        The cases to play; by default :func:`cases`.

    Returns
    -------
    Verdict
    """
    stands = cases(asked.epsilon, asked.delta, asked.rounds) if stands is None else stands
    return play_all(
        "people",
        stands,
        asked.confidence,
        lambda case, each: game(case, asked.replicates or RUNS, seed=asked.seed, confidence=each),
    )
