"""Stored answers of a ledger belong to the public point at which they were asked, whatever the name
of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.answers.evaluation import LOSS, Histogram, build_scored_rows
from sottovoce.answers.judging import Scored
from sottovoce.errors import InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import DenseNet
from sottovoce.privacy.noise import SystemNoise
from sottovoce.problem.facts import Facts
from sottovoce.queries import Bounded, NoisyBounded, Positives, Scores, query_for_release
from sottovoce.queries.bounded import SecondMoments, SlopeMoments
from sottovoce.runs.config import RunConfig
from sottovoce.runs.oracles import choose_oracle
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate
from sottovoce.util.plain import digest_public_values
from sottovoce.util.typing import Array

N, D = 3, 4
CONSTANT: Array = np.eye(D)[-1]
EDGES: Array = np.array([-0.5, 0.0, 0.5])
GROUPS: Array = np.eye(D)[:1]


@dataclass
class Site:
    """All nodes, with a ledger on disk that keeps their releases."""

    ledger: DurableLedger
    trust: str

    def asked(self, what: Bounded) -> Array:
        """Return the one release of the run, from now or from the ledger."""
        rng = np.random.default_rng(0)
        parts = [(rng.normal(size=(50, D - 1)), rng.choice([-1.0, 1.0], 50)) for _ in range(N)]
        summed = self.trust == "sum"
        more: dict[str, Any] = {"participants": N, "colluders": 1} if summed else {}
        facts = Facts(
            LOSS, np.full((N, 1), 50.0), D, 1.0, 1.0, N, "replace-one", pure=False, **more
        )
        alpha, net = np.full((N, 1), 0.1), DenseNet(make_graph("complete", N))
        own = NoisyBounded.of_statistic(what, alpha, "x")
        query = query_for_release(own, facts)
        runs = self.ledger.runs
        run = (
            self.ledger.resume("a", "p")
            if runs
            else self.ledger.reserve("a", "p", [query.event(facts)])
        )
        guard = RowGuard(build_scored_rows(parts), facts, SystemNoise((1, N)), run)
        return choose_oracle(facts, net, guard).request_answer(own)


@pytest.fixture(params=["nobody", "sum"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    path = tmp_path / "l"
    return Site(
        DurableLedger.create(path, epsilon=9.0, delta=1e-5, accountant="zcdp", n_nodes=N),
        request.param,
    )


def question(shift: float = 0.0, **more: Any) -> Scores:
    at = np.broadcast_to(np.arange(1.0, D + 1.0) + shift, (1, N, D))
    return replace(Scores(at, CONSTANT, EDGES, GROUPS), **more)


@pytest.mark.parametrize(
    "other",
    [
        question(1e-9),
        question(edges=EDGES + 0.1),
        question(groups=np.eye(D)[1:2]),
        question(constant=-CONSTANT),
    ],
)
def test_stored_answer_is_used_only_at_its_own_point(site: Site, other: Scores) -> None:
    first = site.asked(question())
    np.testing.assert_array_equal(site.asked(question()), first)
    with pytest.raises(LedgerMismatch, match=r"release 1.*different iterate"):
        site.asked(other)
    assert len(site.ledger.rows) == 1
    np.testing.assert_array_equal(site.asked(question()), first)


def test_stored_answer_without_stamp_is_not_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown at which point it was asked."""
    with monkeypatch.context() as bare:
        bare.setattr(Bounded, "public_digest", lambda self: b"")
        site.asked(question())
    with pytest.raises(LedgerMismatch, match=r"release 1.*different iterate"):
        site.asked(question())
    assert len(site.ledger.rows) == 1


def test_a_run_in_a_ledger_is_that_of_one_identity(tmp_path: Path) -> None:
    """Model, threshold and subgroups are neither in the rows that the ledger is bound to, nor in
    the configuration.
    """
    rows = build_scored_rows([(np.random.default_rng(1).normal(size=(60, D - 1)), np.ones(60))])
    config = RunConfig(method="auto", epsilon=1.0, delta=1e-5, seed=0)
    first = Histogram(judged=b"1", weights=np.ones(D - 1))
    others = [
        {"judged": b"2"},
        {"weights": np.zeros(D - 1)},
        {"threshold": 0.4},
        {"groups": np.eye(D)[:1]},
    ]
    with DurableLedger.create(tmp_path / "l", epsilon=9.0, delta=1e-5, accountant="zcdp") as book:

        def asked(method: Histogram, name: str | None = "a") -> Any:
            return simulate(
                config, rows, method=method, loss=LOSS, ledger=book, run_name=name
            ).outcome

        np.testing.assert_array_equal(asked(first).cell_shares, asked(first).cell_shares)
        for other in others:
            with pytest.raises(LedgerMismatch, match="such as 'a-2'"):
                asked(replace(first, **other))  # type: ignore[arg-type]
        assert len(book.rows) == 4
        for method in (first, *(replace(first, **other) for other in others)):  # type: ignore[arg-type]
            asked(method, None)
        assert len(book.runs) == 2 + len(others)


def test_evaluation_needs_the_digest_of_its_model() -> None:
    with pytest.raises(InvalidInput, match=r"digest.*public model"):
        Scored(np.zeros(3), b"", np.ones(3))
    with pytest.raises(TypeError, match="judged"):
        Histogram(weights=np.ones(3))  # type: ignore[call-arg]


def test_a_digest_tells_values_apart_and_is_the_same_in_every_version() -> None:
    """Ledgers store these digests: a change here would lose answers that were paid for."""
    values: list[Any] = [
        None,
        True,
        1,
        1.0,
        1.5,
        np.inf,
        "1",
        b"1",
        [1],
        [[1]],
        {"1": 1},
        np.ones(1),
        np.ones((1, 1)),
        np.ones(2),
        Positives(np.ones(1)),
        Positives(np.ones(1), np.ones(1)),
        SecondMoments(np.ones(1)),
        SlopeMoments(np.ones(1)),
        (1.0).hex(),
        [(1.0).hex()],
        [b"1".hex()],
    ]
    assert len({digest_public_values(value) for value in values}) == len(values)
    assert digest_public_values(np.array([0.0])) == digest_public_values(
        np.array([-0.0])
    ) and digest_public_values((1,)) == digest_public_values([1])
    assert (
        digest_public_values("a", 1.5, np.arange(3.0)).hex() == "fba18e31fe35ab4bafe3de12e90550b6"
    )
    assert question().public_digest().hex() == "888fc65cd7db01c8d3caff73ec95fea3"
    with pytest.raises(TypeError, match="digest of a set"):
        digest_public_values({1})
    with pytest.raises(TypeError, match="complex128"):
        digest_public_values(np.ones(1) * 1j)
