"""A neighbour with extreme vectors: planted sites whose refusals tell, one that refuses by a
public rule, and ours.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.algorithms import REGISTRY
from sottovoce.audit import aborts, attack
from sottovoce.audit.aborts import AbortVerdict, Seen, Victim
from sottovoce.audit.game import Options
from sottovoce.audit.likelihood import Silence
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput, SolverError
from sottovoce.privacy.noise import Noise, SystemNoise
from sottovoce.problem.facts import Facts
from sottovoce.queries import Query, Sum
from sottovoce.runs import pricing
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Pricer, RunSetting, plan_ledger
from sottovoce.runs.row_guard import Book, RowGuard
from sottovoce.solvers.local import Solution, Solver
from sottovoce.util.typing import Any, Array

FAST = 100
"""Runs that refute what is certain: bounds above a claim of 1 need 40 of the half that bets."""


def play(stands: dict[str, Victim], replicates: int = aborts.RUNS) -> AbortVerdict:
    """With seeds: what must hold, or must not, every time."""
    return aborts.play(Options(replicates=replicates), stands, released=False)


class Touchy(Solver):
    """What was wrong: refuses by what the minimiser is, after the charge."""

    def minimise(self, linear: Array, q: Array, start: Array, tol: float) -> Solution:
        found = super().minimise(linear, q, start, tol)
        if float(np.linalg.norm(linear) + np.linalg.norm(q * found.w)) > 100.0:
            raise SolverError("the answer is too long")
        return found


class Overflowing(Solver):
    """What was wrong, too: a gradient of which one table makes no number."""

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        found = super().gradient(w, part, parts)
        return np.where((np.abs(w).max() > 10.0) & (np.abs(found) > 0.4), np.nan, found)


def with_solver(cls: type[Solver]) -> Any:
    def guard(rows: Rows, facts: Facts, noise: Noise, book: Book) -> RowGuard:
        return RowGuard(rows, facts, noise, book, lambda own, seen: cls(own, seen.loss, seen.C))

    return guard


class Careful(RowGuard):
    """Refuses long public vectors before it charges."""

    def charge_and_answer(self, query: Query) -> Array:
        for name in ("start", "linear"):
            if np.linalg.norm(np.asarray(getattr(query, name, 0.0)) / 1e3) > 1.0:
                raise InvalidInput(name, None, "is longer than 1000", "send shorter vectors")
        return super().charge_and_answer(query)


def stand(method: str, features: int = 1, guard: Any = RowGuard, **knobs: Any) -> dict[str, Victim]:
    rounds = 3 if method in ("dgd", "mr_admm") else 2
    return {
        "planted": Victim(
            RunConfig.from_dict({"method": method, "rounds": rounds, "graph": "complete", **knobs}),
            features,
            guard,
        )
    }


@pytest.mark.parametrize(
    ("method", "knobs"),
    [
        ("prox_admm", {}),
        ("prox_admm", {"delta": 1e-5}),
        ("ipp_admm", {"delta": 1e-5, "positives": 2, "threshold": -1e6}),
    ],
)
def test_a_site_that_refuses_by_its_minimiser_gives_a_row_away(
    method: str, knobs: dict[str, Any]
) -> None:
    verdict = play(stand(method, guard=with_solver(Touchy), **knobs), replicates=FAST)
    assert verdict.refuted and 10.0 < verdict.length < 1e4
    assert verdict.told[0].keys().isdisjoint(verdict.told[1])
    assert f"planted at {verdict.length:.6g}" in verdict.channels


class Telling(Solver):
    """Refuses by the gradient of its rows, wherever the public point is."""

    def _tell(self, gradient: Array) -> None:
        if float(gradient.max()) < -0.25:
            raise SolverError("the rows pull too much")

    def minimise(self, linear: Array, q: Array, start: Array, tol: float) -> Solution:
        found = super().minimise(linear, q, start, tol)
        self._tell(-(linear + q * found.w))
        return found

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        found = super().gradient(w, part, parts)
        self._tell(found)
        return found


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_a_site_of_a_sum_that_refuses_by_its_rows_gives_one_away(method: str) -> None:
    """Whoever is missing from a sum is seen.  A sum that is too large is refused by what it is,
    and tells nothing.
    """
    knobs = {"delta": 1e-5, "loss": "huber:0.5", "eta": 1e4}
    verdict = play(stand(method, guard=with_solver(Telling), **knobs), replicates=FAST)
    assert verdict.refuted and any(
        "pull too much" in told for told in {**verdict.told[0], **verdict.told[1]}
    )
    assert not play(stand(method, **knobs), replicates=FAST).refuted
    site = stand(method, **knobs)["planted"]
    ends = [site.observe_run(0, length, Silence(())).told for length in (1.0, 1e18)]
    assert "finished" in ends[0] and "sent something else" in ends[1]


def test_a_refusal_that_noise_decides_gives_a_row_away_together_with_the_answer() -> None:
    """How often it refuses says little; an answer that only one of the tables would have given
    says all.
    """
    knobs = {"relation": "zero-out", "noise_growth": 20.0}
    verdict = play(stand("m_admm", guard=with_solver(Touchy), **knobs))
    assert verdict.refuted and verdict.attack.endswith("its last message")
    assert all(len(side) > 1 for side in verdict.told)


def test_a_nan_answer_reveals_a_row() -> None:
    verdict = play(stand("dgd", guard=with_solver(Overflowing)), replicates=FAST)
    assert verdict.refuted and any(
        "no numbers" in told for told in {**verdict.told[0], **verdict.told[1]}
    )


@pytest.mark.parametrize(
    ("method", "features", "knobs"),
    [
        ("prox_admm", 1, {}),
        ("dgd", 64, {}),
        ("m_admm", 1, {"relation": "zero-out", "noise_growth": 20.0}),
        ("pp_admm", 1, {"delta": 1e-5}),
    ],
)
def test_a_refusal_by_a_public_rule_reveals_nothing(
    method: str, features: int, knobs: dict[str, Any]
) -> None:
    stands = stand(method, features, guard=Careful, **knobs)
    verdict = play(stands, replicates=FAST)
    assert not verdict.refuted and not verdict.channels
    site, silent = stands["planted"], Silence(())
    ends = [
        {site.observe_run(table, length, silent).told for table in (0, 1)}
        for length in aborts.lengths(site)
    ]
    # both sides of the rule
    assert {"longer than 1000" in told for each in ends for told in each} == {
        True,
        False,
    }


def test_a_bet_is_chosen_on_one_half_and_counts_the_other() -> None:
    """Whatever the first half saw by luck is worth nothing in the second."""
    rng = np.random.default_rng(0)
    sides = [[Seen(str(told), 0.0) for told in rng.integers(0, 50, 400)] for _ in (0, 1)]
    known, fresh = aborts.split_in_halves((sides[0], sides[1]))
    assert aborts.Bet.choose_best_bet(known, 0.0, 0.95).bound(fresh, 0.0, 0.95) < 0.5


def kinds(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> set[type[Query]]:
    """The kinds of release that a run asks for, found on its plan."""
    found: set[type[Query]] = set()

    def noted(pricer: Pricer, query: Query | Sum) -> Array:
        found.add(type(query.statistic))
        return query.placeholder_answer(pricer.facts)

    ready = prepare(config, np.full((3, 1), 4.0), 1)
    with monkeypatch.context() as patched:
        patched.setattr(Pricer, "_note_query", noted)
        # The plan is made again, for its queries.
        patched.setattr(pricing, "_last_plans", {})
        plan_ledger(
            ready.algorithm,
            RunSetting(ready.facts, ready.graph, config.rounds, ready.ledger.accountant),
        )
    return found


def test_every_kind_of_release_between_sites_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    stands = [stand.config for stand in aborts._default_victims(1.0, None, None).values()]
    tried: set[type[Query]] = set().union(*(kinds(config, monkeypatch) for config in stands))
    noisy = {
        name
        for name, cls in REGISTRY.items()
        if cls.private and cls.trust.between_sites and not cls.single
    }
    assert {config.method for config in stands} <= noisy
    for method in noisy:
        config = RunConfig(
            method=method, delta=1e-5 if REGISTRY[method].needs_delta else None, rounds=2
        )
        assert kinds(config, monkeypatch) <= tried, (
            f"{method} asks for a release that audit.aborts does not try"
        )
    assert {stand.config.delta for stand in aborts._default_victims(2.0, 1e-6, 4).values()} == {
        1e-6
    }


def test_no_site_of_the_library_refuses_by_its_rows() -> None:
    """With real noise, too.  Where noise decides how a run ends, more runs are played below."""
    verdict = attack("refusals", replicates=FAST)
    assert not verdict.refuted and verdict.to_dict()["channels"] == {}


def test_noise_of_the_operating_system_is_played_too() -> None:
    one = stand("prox_admm", guard=with_solver(Touchy))["planted"]
    length = aborts.lengths(one)[0]
    seen = [
        [one.observe_run(table, length, SystemNoise()).told for _ in range(3)] for table in (0, 1)
    ]
    assert set(seen[0]).isdisjoint(seen[1])


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("prox_admm", FAST),
        ("prox_admm, a coarse solver", FAST),
        ("m_admm, zero-out", aborts.RUNS),
        ("dgd, many features", FAST),
    ],
)
def test_no_method_of_the_library_refuses_by_its_rows(name: str, runs: int) -> None:
    """In as many runs as refute the planted refusals above; where noise decides those take most."""
    verdict = play({name: aborts._default_victims(1.0, None, None)[name]}, replicates=runs)
    assert not verdict.refuted and verdict.channels == {}


class Mistaken(RowGuard):
    """What a change of the interface would leave behind."""

    def charge_and_answer(self) -> Array:  # type: ignore[override]
        raise AssertionError("nobody calls it so")


class Broken(RowGuard):
    def charge_and_answer(self, query: Query) -> Array:
        raise ValueError("gone")


def test_a_programming_error_is_not_reported_as_a_departed_site() -> None:
    """It was: both tables then looked alike, and an audit of nothing passed."""
    (one,) = stand("prox_admm", guard=Mistaken).values()
    with pytest.raises(TypeError, match="positional argument"):
        one.observe_run(0, 1.0, Silence(()))
    (one,) = stand("prox_admm", guard=Broken).values()
    ended, _, counts = one.observe_run(0, 1.0, Silence(())).told.partition(" (")
    charged, sent = (int(part.split()[0]) for part in counts.split(", "))
    assert ended == "ValueError: gone" and (charged, sent) == (0, 0)
