"""Carried gradients: what is drawn and priced, what a resumed run computes again, and what is
refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planting import planted

from sottovoce.audit import densities
from sottovoce.audit.one_run import audit_one_run
from sottovoce.audit.worst_cases import make_case
from sottovoce.data.move import Move, stretch_bound
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput, LedgerError, LedgerMismatch, UnknownEvent
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy import prices
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.events import CarriedGaussianMechanism, GaussianMechanism, from_dict
from sottovoce.privacy.gaussian import gaussian_epsilon
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.problem.schedules import Schedule
from sottovoce.queries import (
    CarriedGradient,
    NoisyGradient,
    can_correlate_noise,
    correlated,
    within_reach,
)
from sottovoce.queries.correlated import Pulls, computed_twice
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Array

T = 6
RUN: dict[str, Any] = {
    "method": "momentum",
    "epsilon": 1.0,
    "delta": 1e-5,
    "rounds": T,
    "rho": 0.01,
}


def event(index: int = 1, rounds: int = T, **changes: Any) -> CarriedGaussianMechanism:
    spread = math.sqrt((rounds + index) / (2.0 * (rounds + index - 1.0)))
    fields = {
        "sigma": np.full(2, 8.0 * spread),
        "sensitivity": np.ones(2),
        "dimension": 3,
    } | changes
    return CarriedGaussianMechanism("test", "replace-one", index=index, rounds=rounds, **fields)


@pytest.mark.parametrize("notion", ["zcdp", "rdp", "pld"])
def test_a_whole_run_costs_what_as_many_rounds_of_independent_noise_cost(notion: str) -> None:
    accountant = make_accountant(notion)
    alone = GaussianMechanism("test", "replace-one", np.full(2, 8.0), np.ones(2), 3)
    whole = accountant.epsilon_of_events([event(t) for t in range(1, T + 1)], 1e-5)
    np.testing.assert_allclose(whole, accountant.epsilon_of_events([alone] * T, 1e-5), rtol=1e-6)
    some = [
        np.max(accountant.epsilon_of_events([event(t) for t in range(1, t + 1)], 1e-5))
        for t in range(1, T + 1)
    ]
    assert np.all(np.diff(some) > 0)
    for t, price in enumerate(some, 1):  # a run that stops is charged 2 T t / (T + t) shifts
        mu = math.sqrt(2.0 * T * t / (T + t)) / 8.0
        assert price >= gaussian_epsilon(mu, 1e-5) * (1 - 1e-9)
    assert np.all(np.isfinite(prices.renyi_divergences(event(), (2.0, 8.0))))


def test_an_event_is_read_back_and_one_without_a_proof_is_refused() -> None:
    again = from_dict(event(3).to_dict())
    assert again.to_dict() == event(3).to_dict() and isinstance(again, CarriedGaussianMechanism)
    np.testing.assert_allclose(
        event(3).sensitivity_over_sigma() / (1.0 / event(3).sigma), T / (T + 2.0)
    )
    for wrong in (event(0, T), event(T + 1, T), event(sigma=np.zeros(2))):
        with pytest.raises(UnknownEvent):
            prices.zcdp_rho(wrong)
    with pytest.raises(UnknownEvent):
        prices.pure_epsilon(event())


def test_a_release_by_itself_costs_more_than_its_part_of_a_run() -> None:
    """A row that pulls in the last round only: so nothing prints the price of a part as that of
    a release.
    """
    alone = event(T).alone()
    assert isinstance(alone, GaussianMechanism)
    assert np.all(
        prices.zcdp_rho(alone) == pytest.approx(prices.zcdp_rho(event(T)) * ((2 * T - 1) / T) ** 2)
    )


def test_only_gradients_of_one_sign_with_even_gaussian_noise_are_carried(rows: Rows) -> None:
    def of(loss: str, **changes: Any) -> Facts:
        return Facts(make_loss(loss), rows.n, rows.d, 1.0, 0.1, len(rows.n), pure=False, **changes)

    even = Schedule(0.1)
    for loss in ("logistic", "huber:0.5"):
        assert can_correlate_noise(of(loss), even, T) and can_correlate_noise(
            of(loss), Schedule((0.1, 0.2)), T
        )
        assert not can_correlate_noise(
            of(loss), Schedule(0.1, 1.01), T
        ) and not can_correlate_noise(of(loss), None, T)
        assert not can_correlate_noise(
            of(loss), Schedule(table=(0.1, 0.2)), T
        ) and not can_correlate_noise(of(loss), even, 1)
        assert not can_correlate_noise(replace(of(loss), pure=True), even, T)
    two_sided = of("log-cosh")
    assert not can_correlate_noise(two_sided, even, T) and not can_correlate_noise(
        of("softmax:2"), even, T
    )
    with pytest.raises(InvalidInput, match=r"^correlation=.*one sign"):
        CarriedGradient(np.zeros(rows.d), np.array([0.1]), "test", index=1, rounds=T).event(
            two_sided
        )


def test_knobs_and_losses_decide_which_gradients_a_run_releases(rows: Rows) -> None:
    def kinds(**changes: Any) -> set[str]:
        prepared = prepare(RunConfig.from_dict(RUN | changes), rows.n, rows.d)
        return {type(row).__name__ for row in prepared.plan_ledger().rows}

    carried, independent = {"CarriedGaussianMechanism"}, {"GaussianMechanism"}
    assert kinds() == kinds(max_grad_norm=0.1) == kinds(method="central_momentum") == carried
    assert kinds(correlation="none") == kinds(noise_growth=1.1) == kinds(rounds=1) == independent
    assert kinds(loss="log-cosh") == independent
    assert kinds(delta=None) == {"ExactSphericalMechanism"}
    with pytest.raises(InvalidInput, match=r"^correlation='all'"):
        RunConfig.from_dict(RUN | {"correlation": "all"})


def vaulted(rows: Rows, rounds: int = T, **changes: Any) -> tuple[RowGuard, Array]:
    prepared = prepare(RunConfig.from_dict(RUN | {"rounds": rounds} | changes), rows.n, rows.d)
    assert prepared.algorithm.noise is not None
    guard = RowGuard(rows, prepared.facts, KeyedNoise(5, [0], range(len(rows.n))), prepared.ledger)
    return guard, prepared.algorithm.noise(1)


def points(rows: Rows) -> Array:
    return np.random.default_rng(8).normal(size=(T, 1, len(rows.n), rows.d))


def test_a_release_is_a_gradient_less_a_share_of_those_before(rows: Rows) -> None:
    guard, alpha = vaulted(rows)
    facts, sums = guard.facts, 0.0
    for t, w in enumerate(points(rows), 1):
        query = CarriedGradient(w, alpha, "test", index=t, rounds=T)
        stated = query.event(facts)
        assert isinstance(stated, CarriedGaussianMechanism)
        exact = guard._vault.solver.gradient(w)
        noise = KeyedNoise(5, [0], range(len(rows.n))).draw_gaussian(rows.d, t, 1)
        np.testing.assert_allclose(
            guard.charge_and_answer(query),
            exact - sums / (T + t - 1) + stated.sigma[:, None] * noise,
            rtol=0,
            atol=1e-12,
        )
        sums = sums + exact


def test_a_gradient_that_was_not_computed_again_is_missed_and_not_made_up(rows: Rows) -> None:
    guard, alpha = vaulted(rows)
    first, second = (
        CarriedGradient(points(rows)[k], alpha, "test", index=k + 1, rounds=T) for k in (0, 1)
    )
    with pytest.raises(LedgerError, match=r"^resume: .*round 1"):
        guard.charge_and_answer(second)
    assert not guard.ledger.rows
    guard.charge_and_answer(first)
    guard.charge_and_answer(second)
    with pytest.raises(LedgerError, match=r"^resume: .*round 1"):  # a round is answered once
        guard.charge_and_answer(second)
    assert len(guard.ledger.rows) == 2


def test_a_resumed_release_computes_gradients_again_at_the_same_points_and_at_no_others(
    rows: Rows, tmp_path: Path
) -> None:
    """What an interrupted site said is read again; a neighbour who sends something else then is
    found out.
    """
    many = int(rows.n[0, 0])
    mine = Rows.build_from_parts([(rows.signed[0][:many], np.ones(many))])
    prepared = prepare(RunConfig.from_dict(RUN | {"seed": None}), mine.n, mine.d)
    assert prepared.algorithm.noise is not None
    alpha, at = prepared.algorithm.noise(1), np.random.default_rng(8).normal(size=(T, 1, 1, mine.d))

    def site() -> RowGuard:
        run = (
            book.resume("a", "plan")
            if "a" in book.runs
            else book.reserve("a", "plan", prepared.plan_ledger().rows)
        )
        return RowGuard(mine, prepared.facts, SystemNoise((1, 1)), run)

    def asked(guard: RowGuard, k: int, w: Array) -> Array:
        return guard.charge_and_answer(
            CarriedGradient(w, alpha, "noisy gradient, carried", index=k + 1, rounds=T)
        )

    book = DurableLedger.create(tmp_path / "book.ledger", epsilon=2.0, delta=1e-5, accountant="rdp")
    first = site()
    said = [asked(first, k, at[k]) for k in range(3)]
    again = site()
    for k in range(3):
        np.testing.assert_array_equal(asked(again, k, at[k]), said[k])
    kept, once = again._vault.recall_secret(Pulls), first._vault.recall_secret(Pulls)
    assert kept is not None and once is not None
    np.testing.assert_array_equal(kept.before + kept.last, once.before + once.last)
    asked(again, 3, at[3])
    led = site()
    with pytest.raises(LedgerMismatch, match=r"different iterate"):
        asked(led, 0, at[0] + 1e-9)


def test_a_round_that_was_not_planned_and_a_point_too_far_out_are_refused_before_a_charge(
    rows: Rows,
) -> None:
    guard, alpha = vaulted(rows)
    for query, said in (
        (CarriedGradient(points(rows)[0], alpha, "test", index=T + 1, rounds=T), "^rounds=7: "),
        (CarriedGradient(points(rows)[0] + 1e12, alpha, "test", index=1, rounds=T), "norm"),
    ):
        with pytest.raises(InvalidInput, match=said):
            guard.charge_and_answer(query)
    assert not guard.ledger.rows


@pytest.mark.parametrize(("stretch", "people"), [(1.0, None), (6.8, None), (1.0, 3), (6.8, 3)])
def test_a_point_that_is_too_long_is_shortened_to_one_that_is_answered(
    stretch: float, people: int | None
) -> None:
    d, loss = 20_000, make_loss("logistic")
    n = np.array([[1000.0]])
    facts = Facts(loss, n, d, 1.0, 0.01, 1, stretch=stretch, pure=False, rows_per_person=people)
    query = CarriedGradient(np.zeros(d), np.array([1.0]), "test", index=1, rounds=T)
    for size in (1.0, 1e9):
        far = np.full(d, size / math.sqrt(d))
        near = within_reach(facts, far)
        replace(query, start=near).check_before_charge(facts)
        if size == 1.0:
            assert near.tobytes() == far.tobytes()
        else:  # in the same direction, and hardly more than is needed
            np.testing.assert_allclose(near / np.linalg.norm(near), far / size, rtol=1e-12)
            with pytest.raises(InvalidInput, match="eta"):
                replace(query, start=1.01 * near).check_before_charge(facts)


def test_a_run_whose_model_is_all_noise_ends(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are refused beyond a norm that this run would pass, were it not for shortened
    points.
    """
    run = RunConfig.from_dict({**(RUN | {"epsilon": 0.05}), "seed": 0})
    free = np.max(np.linalg.norm(simulate(run, rows).models, axis=-1))
    asked: list[float] = []
    check = CarriedGradient.check_before_charge

    def noted(self: CarriedGradient, facts: Facts) -> None:
        asked.append(float(np.max(np.linalg.norm(self.start, axis=-1))))
        check(self, facts)

    monkeypatch.setattr(CarriedGradient, "check_before_charge", noted)
    facts = prepare(run, rows.n, rows.d).facts
    monkeypatch.setattr(correlated, "_AGAIN", computed_twice(facts, free / 8.0))
    simulate(run, rows)
    assert free / 9.0 < max(asked) <= free / 8.0


@pytest.mark.parametrize(("gain", "spec"), [(2.0, "logistic"), (1e5, "logistic"), (1e5, "capped")])
def test_gradients_of_moved_rows_that_are_computed_twice_differ_by_no_more_than_is_allowed(
    gain: float, spec: str
) -> None:
    """Columns in another order stand for another library; rows near the mean cancel, and a large
    gain shows it.
    """
    rng, d, far = np.random.default_rng(0), 40, 1e-6
    mean = np.append(0.8 * rng.normal(size=d - 1) / math.sqrt(d - 1), 0.0)
    X = np.column_stack(
        [mean[:-1] + rng.normal(size=(300, d - 1)) / gain / math.sqrt(d), np.full(300, 0.4)]
    )
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12))
    loss = (
        make_loss("logistic") if spec == "logistic" else clip_gradients(make_loss("logistic"), 0.3)
    )
    w = far * rng.normal(size=d)

    def each(order: Array) -> Array:
        """The gradient of every row, with columns in this order."""
        place, known = (
            np.empty(d, dtype=int),
            Move(mean[order], (int(np.argmax(order == d - 1)),), 0.4, gain),
        )
        place[order] = np.arange(d)
        rows = replace(Rows.build_from_parts([(x[None, order], np.ones(1)) for x in X]), move=known)
        return np.asarray(Solver(rows, loss, 1.0).gradient(np.tile(w[order], (300, 1))))[:, place]

    first, most = each(np.arange(d)), 0.0
    for _ in range(8):
        most = max(most, float(np.linalg.norm(each(rng.permutation(d)) - first, axis=1).max()))
    facts = Facts(
        loss, np.array([[300.0]]), d, 1.0, 0.01, 1, stretch=stretch_bound(gain, 0.4), pure=False
    )
    allowed, margins = (
        computed_twice(facts, float(np.linalg.norm(w))),
        2 * (2 * d + 24) * 2.0**-53 * facts.stretch,
    )
    assert 0.0 < most <= allowed
    if gain > 2.0:  # margins alone do not explain it, and such a round is refused
        assert most > margins * float(np.linalg.norm(w)) * loss.hessian_bound
        asked = CarriedGradient(w[None], np.array([[0.1]]), "test", index=1, rounds=T)
        with pytest.raises(InvalidInput, match=r"^eta: .*norm"):
            asked.check_before_charge(facts)


def test_sensitivity_is_a_gradients_and_a_little_more(rows: Rows) -> None:
    guard, alpha = vaulted(rows)
    plain = NoisyGradient(np.zeros(rows.d), alpha, "test").sensitivity(guard.facts)
    carried = CarriedGradient(np.zeros(rows.d), alpha, "test", index=1, rounds=T).sensitivity(
        guard.facts
    )
    assert np.all(carried > plain) and np.all(carried < plain * (1.0 + 3e-6))


def test_the_noise_of_what_rounds_say_together_is_as_stated(rows: Rows) -> None:
    """Over many runs at one point: each round's gradient has half of the noise in common with all
    others.

    The mean over rounds has the variance of independent noise, differences between rounds half of
    it.
    """
    R = 4000
    prepared = prepare(RunConfig.from_dict(RUN | {"replicates": R, "eta": 1e6}), rows.n, rows.d)
    assert prepared.algorithm.noise is not None
    alpha, facts = prepared.algorithm.noise(1), prepared.facts
    guard = RowGuard(rows, facts, KeyedNoise(3, range(R), range(len(rows.n))), prepared.ledger)
    w, heard, gradients = np.zeros((R, len(rows.n), rows.d)), np.zeros((R, len(rows.n), rows.d)), []
    for t in range(1, T + 1):
        query = CarriedGradient(w, alpha, "test", index=t, rounds=T)
        gradients.append(guard.charge_and_answer(query) + query.share * heard)
        heard = heard + gradients[-1]
    noise = np.array(gradients) - guard._vault.solver.gradient(w)
    noise /= (query.sensitivity(facts) / alpha)[None, None]
    flat = noise.reshape(T, -1)
    covariance = flat @ flat.T / flat.shape[1]
    wanted, error = 0.5 * np.eye(T) + 0.5 / T, 6.0 / math.sqrt(flat.shape[1])
    assert np.max(np.abs(covariance - wanted)) < error
    for wrong in (np.eye(T), 2 / 3 * wanted, 3 / 2 * wanted):
        assert np.max(np.abs(covariance - wrong)) > error


class Crash(Exception):
    """Stands for a crash."""


def test_a_resumed_simulation_repeats_every_bit(rows: Rows, tmp_path: Path) -> None:
    config, path = RunConfig.from_dict(RUN | {"replicates": 3}), tmp_path / "run.ckpt"

    def crash(k: int, _: Any) -> None:
        if k == 4:
            raise Crash

    with pytest.raises(Crash):
        simulate(config, rows, observers=[crash], checkpoint=path)
    resumed = simulate(config, rows, checkpoint=path)
    np.testing.assert_array_equal(resumed.models, simulate(config, rows).models)


def test_the_exact_epsilon_of_the_worst_tables_is_the_claim() -> None:
    found = densities(make_case("momentum", delta=1e-5, rounds=1)).epsilon_at_delta(1e-5)
    assert 0.999 < found <= 1.0


GAME = """
import json
from sottovoce.audit.game import play
from sottovoce.audit.worst_cases import make_case
verdict = play(make_case("momentum", epsilon=1.0, delta=0.05, rounds=6), replicates=20000)
print(json.dumps([verdict.claimed_epsilon, verdict.lower_bound]))
"""
FAULTS = {
    "nothing is left out": {"pulls.last - self.share * pulls.before": "pulls.last"},
    "too much is left out": {
        "pulls.last - self.share * pulls.before": "pulls.last - 6 * self.share * pulls.before"
    },
    "less noise is drawn": {
        "return vault.noise.add_gaussian(exact, self._sigma(sensitivity),": "return vault.noise.add_gaussian(exact, 0.8 * self._sigma(sensitivity),"
    },
    "a smaller change is charged": {
        "n.shape), sensitivity, facts.d,": "n.shape), 0.7 * sensitivity, facts.d,"
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_what_is_carried_is_refuted_by_the_audit(fault: str, tmp_path: Path) -> None:
    claimed, bound = planted(tmp_path, "queries/correlated.py", FAULTS[fault], GAME)
    assert bound > claimed


def test_a_later_round_in_the_event_is_priced_as_a_round_alone_so_the_audit_refutes_nothing(
    tmp_path: Path,
) -> None:
    """The ledger's own check: what the event says of its round does not lower the price."""
    later = "n.shape), sensitivity, facts.d,\n            self."
    claimed, bound = planted(
        tmp_path, "queries/correlated.py", {f"{later}index,": f"{later}rounds,"}, GAME
    )
    assert bound <= claimed


def test_without_a_fault_the_audit_refutes_nothing(tmp_path: Path) -> None:
    same = {"_U = 2.0**-53": "_U = 2.0**-53  # the same"}
    claimed, bound = planted(tmp_path, "queries/correlated.py", same, GAME)
    assert 0.8 * claimed < bound <= claimed


def test_canaries_are_read_round_by_round() -> None:
    rng, parts = np.random.default_rng(3), []
    for _ in range(2):
        X = rng.standard_normal((120, 30))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.01
        parts.append((X, np.where(X[:, 0] > 0, 1.0, -1.0)))
    config = RunConfig(method="momentum", epsilon=6.0, delta=1e-5, rounds=8, loss="huber:0.5")
    verdict = audit_one_run(config, parts, canaries=60)
    assert not verdict.refuted and verdict.right > 0.7 * verdict.guesses > 0
