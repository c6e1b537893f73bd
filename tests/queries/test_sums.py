"""Sums over sites: one grid for all, sensitivities that are attained, noise in shares, and
refusals before a charge.
"""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows
from scipy import stats

from sottovoce.algorithms import REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.deploy.local import run_sites
from sottovoce.errors import AttemptLost, BudgetExceeded, InvalidInput, NetClosed, Refused
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import Adder, DenseNet, QueueNet
from sottovoce.privacy.events import SummedGaussianMechanism, Unprotected
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Among, Facts
from sottovoce.problem.losses import make_loss
from sottovoce.problem.schedules import Schedule
from sottovoce.queries import NoisyGradient, NoisyMinimiser, Sum, Vault
from sottovoce.queries.sum_attempt import SharedNoise
from sottovoce.runs.config import RunConfig
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard, make_solver
from sottovoce.runs.simulate import simulate
from sottovoce.util.typing import Array, IntArray

FACTORS, LEVEL = (1.0, 2 / 3, 3 / 2), 1e-6
SIZES = [60, 45, 80, 60, 51]
ALPHA = np.array(0.2)


def gradient(start: Array, alpha: Array | None) -> Sum:
    return Sum.sum_of_query(NoisyGradient(start, alpha, "test"))


def proximal(start: Array, alpha: Array | None, curvature: float = 0.05, pull: float = 0.0) -> Sum:
    """A proximal step from `start`, with a linear term of its own besides."""
    return Sum.sum_of_query(
        NoisyMinimiser(start, alpha, "test", None, -curvature * start - pull, curvature)
    )


def facts(
    sizes: list[int] | None = None, d: int = 4, loss: str = "logistic", **changes: Any
) -> Facts:
    n = np.array(SIZES if sizes is None else sizes, dtype=float)[:, None]
    plain = {"pure": False, "participants": len(n) - 1, "colluders": 1} | changes
    return Facts(make_loss(loss), n, d, plain.pop("C", 1.0), 0.02, len(n), **plain)


def queries(d: int = 4, alpha: Array | None = ALPHA, start: Array | None = None) -> list[Sum]:
    w = np.zeros(d) if start is None else start
    return [gradient(w, alpha), proximal(w, alpha, pull=0.0004)]


def among(whole: Facts, members: list[int]) -> Among:
    return Among(float(whole.n[members].sum()), len(members))


# --- One grid -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"relation": "zero-out"}, {"C": 7.0}, {"loss": "softmax:3", "d": 12}]
)
@pytest.mark.parametrize("capped", [math.inf, 0.3])
def test_every_site_alone_computes_the_grid_of_all(changes: dict[str, Any], capped: float) -> None:
    """A site's facts hold its own number of rows only, and shares on two grids would not add up,
    nor hide.
    """
    whole = facts(**changes)
    whole = replace(whole, loss=clip_gradients(whole.loss, capped))
    for query, members in itertools.product(queries(whole.d), ([0, 1, 2, 3, 4], [0, 2, 3, 4])):
        those, together = among(whole, members), query.event(whole)
        assert isinstance(together, SummedGaussianMechanism)
        step, tau = query.attempt(whole, those).grid
        assert np.all(step == step[0]) and np.all(tau == tau[0])
        for i in members:
            own = whole.facts_of_node(i)
            assert query.attempt(own, those).grid == (step[0], tau[0])
            alone = query.event(own).to_dict()
            assert alone["alpha"] == [ALPHA] and alone["sensitivity"] == [together.sensitivity[i]]
            assert {k: v for k, v in alone.items() if not isinstance(v, list)} == {
                k: v for k, v in together.to_dict().items() if not isinstance(v, list)
            }


def test_the_grid_is_a_power_of_two_below_the_stated_part_of_a_share_for_all_rosters() -> None:
    for sizes in (SIZES, [10**12] * 3, [1, 5, 10**6, 3]):
        whole = facts(sizes)
        for query, alpha in itertools.product(queries(), (1e-6, 0.1, 3.0)):
            query = replace(query, what=replace(query.what, alpha=np.array(alpha)))
            noise = SharedNoise(query.what, whole)
            for members in (
                [*range(len(sizes))],
                [*range(len(sizes) - 1)],
                [*range(1, len(sizes))],
            ):
                those = among(whole, members)
                grid, honest = query.attempt(whole, those).grid, len(members) - 1
                mantissa, _ = np.frexp(grid.step)
                assert np.all(mantissa == 0.5) and np.all(grid.tau >= 2.0**noise.grid_bits)
                moved = (
                    noise.mean_sensitivity(those.rows) / grid.step + 2.0
                )  # the root of four features
                np.testing.assert_allclose(
                    np.sqrt(moved**2 / honest + honest) / grid.tau, alpha, rtol=1e-11
                )
                assert np.all(np.sqrt(moved**2 / honest + honest) / grid.tau <= alpha)
                assert np.all(query.what.addend_norm_bound(whole) / grid.step <= 2.0**61)


def test_more_colluders_than_planned_see_no_more_than_the_event_says_at_any_roster() -> None:
    """With k < h shares left, ``sqrt(D^2 / k + d k / 4) / tau`` is below the price of `against`,
    and comes near it.
    """
    sizes = [60, 45, 80, 60, 51, 70, 33]
    whole = facts(sizes, participants=5, colluders=2)
    for query in queries():
        event, noise = query.event(whole), SharedNoise(query.what, whole)
        assert isinstance(event, SummedGaussianMechanism)
        for more in range(2, 7):
            seen = []
            for u in range(max(5, more + 1), 8):
                for members in itertools.combinations(range(7), u):
                    those = among(whole, list(members))
                    grid = query.attempt(whole, those).grid
                    steps, left = (
                        float((noise.mean_sensitivity(those.rows) / grid.step)[0, 0]) + 2.0,
                        u - more,
                    )
                    seen.append(math.sqrt(steps**2 / left + left) / float(grid.tau[0, 0]))
            stated = float(event.event_against_colluders(more).alpha[0])
            assert stated * (1 - 1e-9) < max(seen) <= stated


# --- Sensitivity ----------------------------------------------------------------------------------


def pair(sizes: list[int], victim: int, row: Array, other: Array, fill: Array) -> tuple[Rows, Rows]:
    """Tables of rows `fill` that differ in one row of one site."""

    def made(last: Array) -> Rows:
        parts = []
        for i, n in enumerate(sizes):
            X = np.tile(fill, (n, 1))
            if i == victim:
                X[-1] = last
            parts.append((X, np.ones(n)))
        return Rows.build_from_parts(parts)

    return made(row), made(other)


def moved(query: Sum, whole: Facts, those: Among, tables: tuple[Rows, Rows], victim: int) -> float:
    """How far the victim's addend moves, over the sensitivity in steps that is priced."""
    silent = [Vault(make_solver(rows, whole), KeyedNoise(0, [0], [0])) for rows in tables]
    first, second = (
        query.attempt(whole, those).share_without_noise(vault)[victim] for vault in silent
    )
    honest = those.sites - whole.colluders
    grid = query.attempt(whole, those).grid
    steps = math.sqrt(honest * (float(query.alpha * grid.tau[0, 0]) ** 2 - whole.d * honest / 4))  # type: ignore[operator]
    return float(np.linalg.norm((first - second).astype(float))) / steps


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("capped", [math.inf, 0.25])
@pytest.mark.parametrize("kind", [gradient, proximal])
def test_sensitivity_is_attained_at_every_site_and_never_passed(
    kind: Any, relation: str, capped: float
) -> None:
    """Huber's linear piece: a row and its opposite, at sites of very different sizes, in all
    rosters.
    """
    sizes = [3, 40, 400, 57]
    whole = facts(sizes, 2, "huber:0.5", relation=relation, tol=1e-12)
    whole = replace(whole, loss=clip_gradients(whole.loss, capped))
    more = {"curvature": 1e4} if kind is proximal else {}
    query: Sum = kind(np.zeros((4, 2)), ALPHA, **more)
    row, fill = np.array([1.0, 0.0]), np.array([0.0, 0.5])
    other = -row if relation == "replace-one" else 0.0 * row
    for victim, members in itertools.product(range(4), ([0, 1, 2, 3], [0, 1, 3], [0, 1, 2])):
        if victim in members:
            ratio = moved(
                query, whole, among(whole, members), pair(sizes, victim, row, other, fill), victim
            )
            assert 0.999 < ratio <= 1.0


@pytest.mark.parametrize("loss", ["logistic", "huber:0.5"])
def test_no_pair_of_random_rows_moves_a_sum_more_than_priced(loss: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        sizes = rng.integers(1, 30, 4).tolist()
        whole, victim = facts(sizes, 3, loss), int(rng.integers(4))
        rows = rng.standard_normal((3, 3))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True)) * (1 + 1e-12)
        start = np.tile(4 * rng.standard_normal(3), (4, 1))
        for query in queries(3, start=start):
            tables = pair(sizes, victim, rows[0], rows[1], rows[2])
            assert moved(query, whole, Among.all_sites(whole), tables, victim) <= 1.0


def test_a_person_at_two_sites_moves_one_sum_twice() -> None:
    """Which is what the event says: shifts add up, where two releases would add up their
    squares.
    """
    sizes, row, fill = [5, 9, 7, 8], np.array([1.0, 0.0]), np.array([0.0, 0.5])
    whole = facts(sizes, 2, "huber:0.5", sites_per_row=2)
    query, those = gradient(np.zeros((4, 2)), ALPHA), Among.all_sites(whole)
    event = query.event(whole)
    assert isinstance(event, SummedGaussianMechanism)
    np.testing.assert_allclose(event.sensitivity_over_sigma() ** 2 * 2, (2 * ALPHA) ** 2)
    totals = []
    for last in (row, -row):
        parts = [
            (np.vstack([np.tile(fill, (n - 1, 1)), last if i < 2 else fill]), np.ones(n))
            for i, n in enumerate(sizes)
        ]
        vault = Vault(make_solver(Rows.build_from_parts(parts), whole), KeyedNoise(0, [0], [0]))
        totals.append(
            query.attempt(whole, those).share_without_noise(vault).sum(axis=0).astype(float)
        )
    tau = float(query.attempt(whole, those).grid.tau[0, 0])
    shift = np.linalg.norm(totals[0] - totals[1]) / (tau * math.sqrt(3))
    assert 0.999 * 2 * ALPHA < shift <= 2 * ALPHA


# --- Noise ----------------------------------------------------------------------------------------


class Part(DenseNet):
    """Only some of the sites take part; what they send is kept."""

    def __init__(self, whole: Facts, members: list[int]) -> None:
        super().__init__(make_graph("complete", whole.n_nodes))
        self._whole, self.members = whole, members
        self.shares: list[IntArray] = []

    def among(self, facts: Facts) -> Among:
        return among(self._whole, self.members)

    def mask_share(self, share: IntArray) -> IntArray:
        self.shares.append(share[..., self.members, :])
        return super().mask_share(
            np.where(np.isin(np.arange(share.shape[-2]), self.members)[:, None], share, 0)
        )


class Scaled(KeyedNoise):
    """Noise that is wrong by a factor at some nodes."""

    def __init__(self, factor: float, nodes: list[int]) -> None:
        super().__init__(4, range(2000), range(5))
        self._factors = np.ones((5, 1))
        self._factors[nodes] = factor

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        return np.rint(super().draw_rounded_gaussian(d, tau, release, use) * self._factors).astype(
            np.int64
        )


def accepts(noise: KeyedNoise, query: Sum, members: list[int]) -> bool:
    """Whether the noise of honest shares is that of shift over sigma `ALPHA`: a two-sided exact
    test.
    """
    rows, whole = make_rows(SIZES, 4), facts()
    query = replace(query, what=replace(query.what, start=np.zeros((2000, 5, 4))))
    net, book = Part(whole, members), Ledger("zcdp", math.inf, 1e-5)
    guard = RowGuard(rows, whole, noise, book)
    guard.charge_and_open_sum(query, net)
    vault = Vault(make_solver(rows, whole), noise)
    attempt = query.attempt(whole, among(whole, members))
    honest = net.shares[0][:, :-1] - attempt.share_without_noise(vault)[:, members[:-1]]
    sigma = float(
        SharedNoise(query.what, whole).mean_sensitivity(attempt.among.rows)[0, 0]
    ) / float(ALPHA)
    step = float(attempt.grid.step[0, 0])
    total = float(np.sum((honest.sum(axis=1) * step / sigma) ** 2))
    law = stats.chi2(2000 * 4)
    return bool(2 * min(law.cdf(total), law.sf(total)) > LEVEL)


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4], [0, 2, 3, 4]])
@pytest.mark.parametrize("which", [0, 1])
def test_honest_shares_have_together_the_noise_that_is_priced(
    which: int, members: list[int]
) -> None:
    """Of all sites and of fewer: with one colluder's share taken away, no more and no less is
    left than needed.
    """
    query = queries()[which]
    assert [accepts(Scaled(factor, [0, 1, 2, 3, 4]), query, members) for factor in FACTORS] == [
        True,
        False,
        False,
    ]
    assert not accepts(Scaled(0.0, [0]), query, members)  # a share is missing
    # no colluder
    assert not accepts(
        Scaled(math.sqrt((len(members) - 1) / len(members)), [*range(5)]), query, members
    )


def test_noise_follows_the_attempt_and_not_the_sums_that_were_opened() -> None:
    """A plan whose noise changes from round to round: an attempt that is lost uses up its own."""

    class Losing(DenseNet):
        attempts = 0

        def total(self, sealed: IntArray) -> IntArray:
            self.attempts += 1
            if self.attempts in (2, 3):
                raise AttemptLost("a site sent nothing")
            return sealed

    rows = make_rows(SIZES, 4)
    config = RunConfig(
        method="sum_momentum", delta=1e-5, rounds=6, epsilon=3.0, noise_growth=1.5, seed=0
    )
    ready = prepare(config, rows.n, rows.d)
    planned = ready.plan_ledger().rows
    guard = RowGuard(rows, ready.facts, KeyedNoise(0, [0], range(5), lead=(5,)), ready.ledger)
    seen: list[Any] = []
    place = Place(ready.facts, Losing(ready.graph), guard, (5,), rows.d)
    outcome = run_rounds(ready.algorithm, place, 6, observers=[lambda _, state: seen.append(state)])
    assert outcome.rounds == 6 and float(outcome.state.opened[0, 0]) == 4
    assert [row.to_dict() for row in ready.ledger.rows] == [row.to_dict() for row in planned]
    assert len({float(row.alpha[0]) for row in planned}) == 6  # type: ignore[attr-defined]
    assert all(np.array_equal(a, b) for a, b in zip(seen[0], seen[2], strict=True))
    assert not np.array_equal(seen[2].f, seen[3].f)


# --- Words ----------------------------------------------------------------------------------------


def test_masks_cancel_in_the_ring_and_a_word_that_wraps_costs_nothing() -> None:
    rng = np.random.default_rng(0)
    shares = rng.integers(-(2**62), 2**62, (5, 100)) // 8
    sealed = shares.copy()
    for i, j in itertools.combinations(range(5), 2):
        mask = rng.integers(-(2**63), 2**63 - 1, 100, endpoint=True)
        with np.errstate(over="ignore"):
            sealed[i] += mask
            sealed[j] -= mask
    assert np.array_equal(sealed.sum(axis=0), shares.sum(axis=0)) and not np.any(sealed == shares)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("alpha", "says"), [(1e30, "so little noise"), (1e-300, "so much noise")])
def test_numbers_that_do_not_fit_the_ring_are_refused_before_the_charge(
    which: int, alpha: float, says: str
) -> None:
    rows, whole = make_rows(SIZES, 4), facts()
    query = queries(4, np.array(alpha), np.zeros((5, 4)))[which]
    book = Ledger("zcdp", math.inf, 1e-5)
    with pytest.raises(InvalidInput, match=says):
        RowGuard(rows, whole, KeyedNoise(1, [0], range(5), lead=(5,)), book).charge_and_open_sum(
            query, DenseNet(make_graph("complete", 5))
        )
    assert book.rows == ()
    if alpha > 1:  # a plan calls it infinite, so that a search for noise can go on
        book.record_event(query.event(whole))
        assert math.isinf(book.total())


def test_a_calibration_finds_noise_for_more_rows_than_words_have_room_for_at_its_first_guess() -> (
    None
):
    config = RunConfig(method="sum_momentum", delta=1e-5, rounds=4, epsilon=0.1, seed=0)
    ready = prepare(config, np.full((5, 1), 1e12), 10)
    assert 0.0999 < ready.plan_ledger().total() <= 0.1


@pytest.mark.parametrize("which", [0, 1])
def test_sites_that_the_run_does_not_allow_are_refused_before_the_charge(which: int) -> None:
    rows, whole = make_rows(SIZES, 4), facts()
    query = queries(start=np.zeros((5, 4)))[which]
    book = Ledger("zcdp", math.inf, 1e-5)
    guard = RowGuard(rows, whole, KeyedNoise(1, [0], range(5), lead=(5,)), book)

    class Lying(DenseNet):
        those = Among(0.0, 0)

        def among(self, facts: Facts) -> Among:
            return self.those

    net = Lying(make_graph("complete", 5))
    for rows_of_them, sites in (
        (156.0, 3),
        (296.0, 6),
        (295.0, 5),
        (297.0, 5),
        (296.0, 4),
        (300.0, 4),
        (2.0, 4),
        (0.0, 0),
    ):
        net.those = Among(rows_of_them, sites)
        with pytest.raises(Refused, match="nothing was charged"):
            guard.charge_and_open_sum(query, net)
    assert book.rows == ()
    net.those = Among(236.0, 4)
    guard.charge_and_open_sum(query, net)
    assert len(book.rows) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_a_sum_that_honest_sites_cannot_have_made_is_refused_alike_on_both_tables(
    which: int,
) -> None:
    """Privacy does not rest on it; it says that somebody sent another thing than a share."""

    class Huge(DenseNet):
        more = 0

        def total(self, sealed: IntArray) -> IntArray:
            return sealed + np.int64(self.more)

    whole = facts()
    query = queries(start=np.zeros((5, 4)))[which]
    grid = query.attempt(whole, Among.all_sites(whole)).grid
    most = float(
        query.what.addend_norm_bound(whole)[0, 0] / grid.step[0, 0]
        + 5
        + 40 * math.sqrt(5) * grid.tau[0, 0]
    )
    for seed in (0, 1):
        rows, told = make_rows(SIZES, 4, seed), []
        for more in (0, int(0.5 * most), int(3 * most), 2**62):
            net, book = Huge(make_graph("complete", 5)), Ledger("zcdp", math.inf, 1e-5)
            net.more = more
            guard = RowGuard(rows, whole, KeyedNoise(1, [0], range(5), lead=(5,)), book)
            try:
                guard.charge_and_open_sum(query, net)
                told.append("")
            except Refused as error:
                told.append(str(error))
            assert len(book.rows) == 1  # refused or not
        assert told[:2] == ["", ""] and told[2] == told[3] and "sent something else" in told[2]


def test_vectors_too_long_are_refused_by_public_numbers_that_all_sites_share() -> None:
    whole = facts(tol=1e-12)
    far = proximal(np.full((5, 4), 1e9), ALPHA)
    with pytest.raises(InvalidInput, match=r"^tol="):
        far.check(whole)
    for i in range(
        5
    ):  # a site of few rows refuses with the others, and is not left waiting for them
        with pytest.raises(InvalidInput, match=r"^tol="):
            replace(
                far, what=replace(far.what, start=far.what.start[0], linear=far.what.linear[0])
            ).check(whole.facts_of_node(i))
    for query in queries(start=np.full((5, 4), np.nan)):
        with pytest.raises(InvalidInput, match="finite"):
            query.check(whole)


def test_sums_refuse_unequal_alphas_and_pure_prices() -> None:
    uneven = np.array([[0.1], [0.2], [0.1], [0.1], [0.1]])
    for query in queries(alpha=uneven, start=np.zeros((5, 4))):
        with pytest.raises(InvalidInput, match=r"^alpha"):
            query.check(facts())
    for query in queries(start=np.zeros((5, 4))):
        with pytest.raises(InvalidInput, match=r"^delta"):
            query.check(facts(pure=True))


def test_without_noise_a_sum_is_its_mean_and_no_epsilon_is_printed() -> None:
    rows, whole = make_rows(SIZES, 4), facts()
    start = np.tile(np.array([0.3, -0.2, 0.1, 0.5]), (5, 1))
    for query in queries(alpha=None, start=start):
        book = Ledger("zcdp", math.inf, 1e-5)
        guard = RowGuard(rows, whole, KeyedNoise(1, [0], range(5), lead=(5,)), book)
        answer = guard.charge_and_open_sum(query, DenseNet(make_graph("complete", 5)))
        assert isinstance(book.rows[0], Unprotected) and math.isinf(book.total())
        vault = Vault(make_solver(rows, whole), KeyedNoise(0, [0], [0]))
        mean = np.sum(
            whole.n
            / whole.rows
            * query.what.answer_from_mean(query.what.addend_of_site(vault, whole), whole),
            axis=0,
        )
        np.testing.assert_allclose(answer, np.broadcast_to(mean, (5, 4)), atol=1e-12)
    privacy = simulate(
        RunConfig(method="sum_prox", epsilon=math.inf, rounds=2, seed=0), rows
    ).privacy
    assert math.isinf(privacy["epsilon"]) and "No privacy guarantee" in privacy["says"]


# --- Runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
@pytest.mark.parametrize(
    "more", [{}, {"max_grad_norm": 0.3}, {"relation": "zero-out"}, {"sites_per_row": 2}]
)
def test_threaded_sites_equal_the_simulation(method: str, more: dict[str, Any]) -> None:
    """Bit by bit for gradients; minimisers stop at their tolerance, wherever they are solved."""
    rows = make_rows(SIZES, 4)
    config = RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 3.0,
            "delta": 1e-5,
            "rounds": 5,
            "seed": 2,
            "tol": 1e-12,
            **more,
        }
    )
    together, planned = simulate(config, rows), prepare(config, rows.n, rows.d)
    for i, (outcome, ledger) in enumerate(run_sites(config, rows)):
        model = planned.algorithm.model(outcome.state)
        if method == "sum_momentum":
            assert np.array_equal(model, together.models[0, i])
        np.testing.assert_allclose(model, together.models[0, i], atol=1e-11)
        own = planned.plan_ledger(node=i).rows
        assert [row.to_dict() for row in ledger.rows] == [row.to_dict() for row in own]
    assert np.all(together.models[0] == together.models[0, 0])  # all sites hold one model


def test_noise_of_the_operating_system_makes_the_same_models_at_all_sites() -> None:
    config = RunConfig(method="sum_momentum", epsilon=3.0, delta=1e-5, rounds=3)
    models = [outcome.state.mean for outcome, _ in run_sites(config, make_rows(SIZES, 4))]
    assert all(np.array_equal(models[0], one) for one in models) and np.any(models[0] != 0)


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_start_shifts_public_points_and_keeps_prices_and_noise(method: str) -> None:
    """A run from s on rows is, counted from s, one that asks at shifted points: prices and noise
    stay.
    """
    rows, s = make_rows(SIZES, 4), np.array([0.4, -0.3, 0.2, 0.1])
    config = RunConfig(method=method, epsilon=3.0, delta=1e-5, rounds=3, seed=0, tol=1e-12)
    ready = prepare(config, rows.n, rows.d)
    noisy = []
    for start in (s, None):
        noise, book = KeyedNoise(0, [0], range(5), lead=(5,)), Ledger("zcdp", math.inf, 1e-5)
        place = Place(
            ready.facts,
            DenseNet(ready.graph),
            RowGuard(rows, ready.facts, noise, book),
            (5,),
            4,
            start,
        )
        outcome = run_rounds(ready.algorithm, place, 3)
        noisy.append(
            (
                place.fold_to_original_rows(ready.algorithm.model(outcome.state)),
                [row.to_dict() for row in book.rows],
            )
        )
    assert noisy[0][1] == noisy[1][1] and not np.allclose(noisy[0][0], noisy[1][0], atol=1e-3)
    w, path, velocity = s.copy(), list[Array](), np.zeros(4)
    # Written out, without noise: the regulariser pulls to s
    guard = RowGuard(rows, ready.facts, noise, Ledger("zcdp", math.inf, 1e-5))
    place = Place(ready.facts, DenseNet(ready.graph), guard, (5,), 4, s)
    plain = ready.algorithm.with_noise(None)
    found = place.fold_to_original_rows(plain.model(run_rounds(plain, place, 3).state))[0]
    vault, eta, mu = Vault(make_solver(rows, ready.facts), noise), plain.penalty(1), ready.facts.mu
    weight = rows.n / rows.n.sum()
    for _ in range(3):
        if method == "sum_momentum":
            velocity = (
                0.8 * velocity
                + (weight * vault.solver.gradient(np.tile(w, (5, 1)))).sum(axis=0)
                + mu * (w - s)
            )
            w = w - velocity / eta
        else:
            linear = np.tile(-eta * w - mu * s, (5, 1))
            q = np.full((5, 1), mu + eta)
            w = (weight * vault.solver.minimise(linear, q, np.zeros((5, 4)), 1e-12).w).sum(axis=0)
        path.append(w)
    power = 8 if method == "sum_momentum" else 3
    weights = np.array([math.prod(range(k, k + power)) for k in (1, 2, 3)])
    np.testing.assert_allclose(
        found, np.tensordot(weights / weights.sum(), np.array(path), axes=1), atol=1e-9
    )


class Silenced(KeyedNoise):
    """Noise that must not be drawn."""

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        raise AssertionError("a second draw")


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_a_run_repeats_from_the_ledger_without_a_second_draw(method: str, tmp_path: Path) -> None:
    """One share per site and attempt: what was stored is what leaves again, bit by bit."""
    rows = make_rows(SIZES, 4)
    config = RunConfig(method=method, epsilon=1.0, delta=1e-5, rounds=4, seed=0, accountant="zcdp")
    ready, found = prepare(config, rows.n, rows.d), []
    with DurableLedger.create(
        tmp_path / "a", epsilon=2.0, delta=1e-5, accountant="zcdp", n_nodes=5
    ) as ledger:
        for kind in (KeyedNoise, Silenced):
            book = ledger.reserve("one", "plan", ready.plan_ledger().rows)
            guard = RowGuard(rows, ready.facts, kind(0, [0], range(5), lead=(5,)), book)
            place = Place(ready.facts, DenseNet(ready.graph), guard, (5,), 4)
            found.append(run_rounds(ready.algorithm, place, 4).state)
        assert (
            ledger.total() == pytest.approx(ready.plan_ledger().total(), abs=0.5)
            and ledger.total() <= 2.0
        )
        assert "collude" in ledger.show()["cautions"][0]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_sums_and_local_releases_share_a_ledger_and_its_budget() -> None:
    rows = make_rows(SIZES, 4)
    book = Ledger("zcdp", 2.0, 1e-5)
    sums = RunConfig(
        method="sum_momentum", epsilon=1.0, delta=1e-5, rounds=4, seed=0, accountant="zcdp"
    )
    simulate(sums, rows, ledger=book)
    one = book.total()
    simulate(sums.but(method="momentum", graph="ring"), rows, ledger=book)
    assert 1.0 <= one < book.total() <= 2.0
    assert book.account.against([0, 1]) > book.account.against([0]) == book.total()
    with pytest.raises(BudgetExceeded):
        simulate(replace(sums, epsilon=2.0), rows, ledger=book)


@pytest.mark.parametrize("counted", [1, 3])
def test_a_ledger_that_counts_people_otherwise_than_a_sum_is_refused(counted: int) -> None:
    """The event's price holds for the number of sites that it was made for."""
    config = RunConfig(
        method="sum_momentum",
        epsilon=1.0,
        delta=1e-5,
        rounds=2,
        seed=0,
        accountant="zcdp",
        sites_per_row=2,
    )
    book = Ledger("zcdp", 9.0, 1e-5, sites_per_row=counted)
    with pytest.raises(InvalidInput, match=r"^sites_per_row=2"):
        simulate(config, make_rows(SIZES, 4), ledger=book)
    assert book.rows == ()


def test_a_site_that_leaves_ends_the_attempts_of_the_others() -> None:
    nets = QueueNet.connect_all_nodes(make_graph("complete", 3))
    told: list[str] = []

    def wait(net: QueueNet) -> None:
        try:
            net.total(net.mask_share(np.ones(2, dtype=np.int64)))
        except NetClosed as error:
            told.append(str(error))

    threads = [threading.Thread(target=wait, args=(net,)) for net in nets[:2]]
    for one in threads:
        one.start()
    nets[2].close()
    for one in threads:
        one.join(60)
    assert len(told) == 2 and all("left" in text for text in told)
    adder = Adder(1)
    adder.close()
    # an attempt that is complete is opened
    assert np.array_equal(adder.add_share_and_wait(1, np.ones(2, dtype=np.int64)), [1, 1])


@pytest.mark.parametrize("kind", [REGISTRY["sum_momentum"], REGISTRY["sum_prox"]])
def test_a_site_hands_its_share_to_the_net_and_to_nobody_else(kind: Any) -> None:
    """An algorithm sees what was opened: the same at all sites, and not one site's share."""
    rows, whole = make_rows(SIZES, 4), facts()
    seen: list[Array] = []

    class Watch:
        facts = whole

        def __init__(self, guard: RowGuard) -> None:
            self._guard = guard

        def charge_and_answer(self, query: Any) -> Array:
            raise AssertionError("a site's own answer would not be sealed")

        def charge_and_open_sum(self, query: Sum, net: Any) -> Array:
            seen.append(self._guard.charge_and_open_sum(query, net))
            return seen[-1]

    guard = RowGuard(
        rows, whole, KeyedNoise(0, [0], range(5), lead=(5,)), Ledger("zcdp", math.inf, 1e-5)
    )
    algorithm = kind(penalty=Schedule(1.0), noise=Schedule(0.2))
    run_rounds(
        algorithm, Place(whole, DenseNet(make_graph("complete", 5)), Watch(guard), (5,), 4), 3
    )
    assert len(seen) == 3 and all(np.all(one == one[0]) for one in seen)


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_an_interrupted_simulation_goes_on_from_its_checkpoint_bit_by_bit(
    method: str, tmp_path: Path
) -> None:
    rows = make_rows(SIZES, 4)
    config = RunConfig(method=method, epsilon=1.0, delta=1e-5, rounds=6, seed=0, noise_growth=1.2)

    def interrupt(k: int, state: Any) -> None:
        if k == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, rows, checkpoint=tmp_path / "a", observers=[interrupt])
    again, whole = simulate(config, rows, checkpoint=tmp_path / "a"), simulate(config, rows)
    assert np.array_equal(again.models, whole.models) and again.ledger == whole.ledger
