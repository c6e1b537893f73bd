"""Which queries sites may add up: those whose class declares it; and who answers a node, by the
trust of its run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import DenseNet
from sottovoce.privacy.events import GaussianMechanism, SummedGaussianMechanism
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.queries import (
    CarriedGradient,
    GatedMinimiser,
    NoisyEpoch,
    NoisyGradient,
    PerturbedObjective,
    SecretMinimiser,
    Sum,
)
from sottovoce.runs.engine import Place
from sottovoce.runs.row_guard import RowGuard

ROWS = make_rows([60, 45, 80, 60, 51], 4)
FACTS = Facts(
    make_loss("logistic"), ROWS.n, 4, 1.0, 0.02, 5, pure=False, participants=4, colluders=1
)
ZERO, ONE = np.zeros((5, 4)), np.ones((5, 1))


def placed(facts: Facts) -> tuple[Place, Ledger]:
    book = Ledger("zcdp", math.inf, 1e-5)
    guard = RowGuard(ROWS, facts, KeyedNoise(0, [0], range(5), lead=(5,)), book)
    return Place(facts, DenseNet(make_graph("complete", 5)), guard, (5,), 4), book


class Undeclared(NoisyGradient):
    """A subclass has another statistic, as far as anybody knows."""


@pytest.mark.parametrize(
    "query",
    [
        CarriedGradient(ZERO, ONE, "test", index=1, rounds=4),
        Undeclared(ZERO, ONE, "test"),
        NoisyEpoch(ZERO, ONE, "test"),
        SecretMinimiser(ZERO, ONE, "test", None, ZERO, 0.1, 0.1, (ONE,)),
        GatedMinimiser(ZERO, ONE, "test"),
        PerturbedObjective(ZERO, ONE, ZERO, None, "test"),
    ],
    ids=lambda query: type(query).__name__,
)
def test_a_query_that_does_not_declare_that_it_may_be_summed_is_refused(query: Any) -> None:
    """Under trust in sums, whichever way it comes, and before anything is charged."""
    for way in (Sum.sum_of_query, Sum):
        with pytest.raises(InvalidInput, match=rf"^trust='sum': {type(query).__name__} cannot"):
            way(query)
    place, book = placed(FACTS)
    with pytest.raises(InvalidInput, match=r"^trust='sum'"):
        place.ask(query)
    assert book.rows == ()


def test_requests_are_answered_by_the_oracle_of_the_trust() -> None:
    """The same query: each site's own noisy answer, or one sum that is the same at all sites,
    each with its event.
    """
    seen = {}
    for trust, facts in (("nobody", replace(FACTS, participants=0, colluders=0)), ("sum", FACTS)):
        place, book = placed(facts)
        answer = place.ask(NoisyGradient(ZERO, ONE, "test"))
        seen[trust] = (
            type(book.rows[0]),
            book.rows[0].source,
            bool(np.ptp(answer, axis=0).max() == 0.0),
        )
    assert seen == {
        "nobody": (GaussianMechanism, "test", False),
        "sum": (SummedGaussianMechanism, "sum of gradients", True),
    }
