"""The proofs of docs/privacy/sums.md, number by number: noise in shares, its price, who sees
what, and agreement.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import special, stats

from sottovoce.errors import InvalidInput, UnknownEvent
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy import prices
from sottovoce.privacy.accountants import _LATTICE, make_accountant
from sottovoce.privacy.events import SummedGaussianMechanism, from_dict
from sottovoce.privacy.gaussian import gaussian_epsilon, gaussian_mu
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import outline_run, quorum_of_sums
from sottovoce.util.typing import Array

FACTORS = (1.0, 2 / 3, 3 / 2)
"""What the size of noise is multiplied by: only the first may pass."""
LEVEL = 1e-6
ORDERS = (1.25, 2.0, 4.0, 16.0, 64.0)


def event(alpha: float = 0.3, nodes: int = 5, **changes: object) -> SummedGaussianMechanism:
    """An attempt of a run of five sites, one of which may collude."""
    fields = {
        "dimension": 10,
        "sites": 5,
        "participants": 4,
        "colluders": 1,
        "sites_per_row": 1,
        "bits": 40,
    } | changes
    shape = np.ones(nodes)
    return SummedGaussianMechanism("test", "replace-one", alpha * shape, 0.1 * shape, **fields)  # type: ignore[arg-type]


# --- Dealing a shift to the shares ----------------------------------------------------------------


@pytest.mark.parametrize("h", [1, 2, 3, 5])
def test_a_shift_is_dealt_in_whole_steps_and_no_deal_is_shorter(h: int) -> None:
    """Claim 2: the best deal of v has the square ``v^2 / h + r (h - r) / h``, at most ``v^2 / h
    + h / 4``.
    """
    for v in range(-9, 10):
        near = range(math.floor(v / h) - 2, math.floor(v / h) + 4)
        best = min(
            sum(x * x for x in deal) for deal in itertools.product(near, repeat=h) if sum(deal) == v
        )
        r = v % h
        assert best == pytest.approx(v * v / h + r * (h - r) / h, abs=1e-12)
        assert best <= v * v / h + h / 4


# --- The price, against the exact law of a sum ----------------------------------------------------


@cache
def law(tau: float, h: int, kind: str = "rounded") -> Array:
    """Logarithms of the probabilities of the sum of `h` shares, as far out as the highest order
    looks.

    Shares are rounded normals; in what was released before, they were discrete Gaussians.
    """
    width = math.ceil(16 * tau + 70 * 14 / h)
    k = np.arange(-width, width + 1.0)
    if kind == "rounded":
        near, far = (special.log_ndtr(-(np.abs(k) + side) / tau) for side in (-0.5, 0.5))
        one = near + np.log1p(-np.exp(far - near))
    else:
        one = -(k**2) / (2 * tau**2)
        one -= special.logsumexp(one)
    total = one
    for _ in range(h - 1):
        padded = np.concatenate([np.full(2 * width, -np.inf), total, np.full(2 * width, -np.inf)])
        total = special.logsumexp(
            np.lib.stride_tricks.sliding_window_view(padded, 2 * width + 1) + one, axis=1
        )
    return np.asarray(total)


def pair(tau: float, h: int, v: int, kind: str = "rounded") -> tuple[Array, Array]:
    """The law and its shift by v, on the integers that both reach."""
    p = law(tau, h, kind)
    return p[v:], p[: len(p) - v]


def renyi(p: Array, q: Array, order: float) -> float:
    return float(special.logsumexp(order * p - (order - 1) * q)) / (order - 1)


def shift_over_sigma(tau: float, h: int, v: int) -> float:
    """What `queries.sums` charges for a shift of v steps in one coordinate."""
    return math.sqrt(v * v / h + h / 4) / tau


CASES = [(tau, h, v) for tau in (0.4, 1.0, 3.0) for h in (1, 2, 3, 7) for v in (1, 2, 3, 7, 14)]


KINDS = ("rounded", "discrete")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tau", "h", "v"), CASES)
def test_renyi_and_zcdp_prices_hold_for_the_exact_law_of_the_sum(
    tau: float, h: int, v: int, kind: str
) -> None:
    mu = shift_over_sigma(tau, h, v)
    rho = float(
        prices.zcdp_rho(event(mu, nodes=1, dimension=1, sites=h + 1, participants=h + 1))[0]
    )
    curve = prices.renyi_divergences(
        event(mu, nodes=1, dimension=1, sites=h + 1, participants=h + 1), ORDERS
    )[0, 0]
    for one, two in (pair(tau, h, v, kind), pair(tau, h, v, kind)[::-1]):
        orders = np.array(ORDERS)
        powers = orders[:, None] * one - (orders - 1.0)[:, None] * two
        exact = special.logsumexp(powers, axis=1) / (orders - 1.0)
        assert curve.shape == exact.shape and np.all(exact <= curve * (1 + 1e-9))
        np.testing.assert_allclose(curve, rho * orders, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tau", "h", "v"), [(4.0, 2, 40), (4.0, 3, 60), (6.0, 7, 140)])
def test_prices_are_tight_where_the_shift_is_long(tau: float, h: int, v: int, kind: str) -> None:
    """As in a run, whose shifts are about 2^40 steps; noise of 2/3 or 3/2 the size has another
    price by far.
    """
    mu = shift_over_sigma(tau, h, v)
    exact = math.sqrt(2 * renyi(*pair(tau, h, v, kind), 2.0) / 2.0)
    assert mu / 1.03 < exact <= mu
    for wrong in FACTORS[1:]:
        assert not mu / 1.03 < math.sqrt(renyi(*pair(tau * wrong, h, v, kind), 2.0)) <= mu


def test_without_the_quarter_of_h_the_price_would_be_false() -> None:
    """The sum of three coarse shares is not as wide as one share of three times the variance."""
    tau, h, v = 0.2, 3, 1
    for kind in KINDS:
        assert renyi(*pair(tau, h, v, kind), 2.0) > v * v / (h * tau**2)
        assert renyi(*pair(tau, h, v, kind), 2.0) <= shift_over_sigma(tau, h, v) ** 2


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0).sum())


def gaussian_profile(epsilon: float, mu: float) -> float:
    return float(
        stats.norm.cdf(mu / 2 - epsilon / mu)
        - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tau", "h", "v"), CASES)
def test_the_profile_holds_for_the_exact_law_of_the_sum(
    tau: float, h: int, v: int, kind: str
) -> None:
    """Claim 3: the profile of the Gaussian; of discrete ones, plus ``(1 + e^eps) h / (4
    tau^2)``.
    """
    mu, grid = shift_over_sigma(tau, h, v), h / (4 * tau**2) if kind == "discrete" else 0.0
    for one, two in (pair(tau, h, v, kind), pair(tau, h, v, kind)[::-1]):
        for epsilon in (0.0, 0.5, 1.0, 2.0, 5.0):
            bound = gaussian_profile(epsilon, mu) + (1 + math.exp(epsilon)) * grid
            assert hockey_stick(one, two, epsilon) <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("tau", "h"), [(6.0, 2), (12.0, 3), (24.0, 5)])
def test_the_profile_is_tight_where_grid_and_dealing_are_small(tau: float, h: int) -> None:
    v = round(4 * tau / math.sqrt(h)) * h
    mu = shift_over_sigma(tau, h, v)
    exact = hockey_stick(*pair(tau, h, v), 1.0)
    assert 0.95 < exact / gaussian_profile(1.0, mu) < 1.05


@pytest.mark.parametrize("tau", [1.0, 2.0, 5.0])
def test_a_discrete_gaussian_is_as_near_to_a_rounded_one_as_the_grid_s_term_says(
    tau: float,
) -> None:
    k = np.arange(-200, 201)
    discrete = np.exp(-(k**2) / (2 * tau**2))
    rounded = stats.norm.cdf((k + 0.5) / tau) - stats.norm.cdf((k - 0.5) / tau)
    far = 0.5 * np.abs(discrete / discrete.sum() - rounded).sum()
    assert 0.0 < far <= 1 / (4 * tau**2)


@pytest.mark.parametrize("bits", [20, 33, 40])
def test_the_grid_s_term_counts_every_honest_coordinate_at_its_step(bits: int) -> None:
    """``d h / (4 tau^2)`` with ``tau >= 2^bits``, at every number of sites: h is at most N - t."""
    bill = prices.dominating_pairs(event(bits=bits))[0][0]
    assert bill.lattice * _LATTICE == pytest.approx(10 * 4 / 4 * 4.0**-bits)


def test_a_fine_grid_costs_nothing_and_a_coarse_one_is_not_priced() -> None:
    pld, delta = make_accountant("pld"), 1e-5

    def price(bits: int) -> float:
        return float(pld.epsilon_of_events([event(bits=bits)], delta)[0])

    assert price(40) == pytest.approx(gaussian_epsilon(delta, 0.3), rel=1e-9)
    assert price(40) <= price(28) < price(24) < price(20) == pytest.approx(price(24), rel=1e-3)
    for name in ("zcdp", "rdp", "pld", "best"):
        assert math.isinf(make_accountant(name).epsilon_of_events([event(bits=19)], delta)[0])
        assert math.isfinite(make_accountant(name).epsilon_of_events([event(bits=20)], delta)[0])


# --- Who is charged what --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zcdp", "rdp", "pld", "best"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_a_person_at_m_sites_moves_one_sum_m_times(name: str, m: int) -> None:
    """The network's total is that of a shift ``m alpha``, not of m releases, whose total would
    be ``sqrt(m) alpha``.
    """
    accountant, spent = make_accountant(name), make_accountant(name).zero_spending()
    whole = accountant.zero_spending()
    for _ in range(20):
        spent = accountant.add_event(spent, event(0.1, sites_per_row=m))
        whole = accountant.add_event(whole, event(0.1 * m))
    assert accountant.network_epsilon(spent, 1e-5, m) == pytest.approx(
        float(accountant.epsilon(whole, 1e-5)[0]), rel=1e-9
    )
    assert accountant.network_epsilon(spent, 1e-5, m) >= gaussian_epsilon(
        1e-5, m * 0.1 * math.sqrt(20)
    ) * (1 - 1e-12)


def test_composing_two_sites_as_two_releases_would_print_half_the_truth() -> None:
    mu = gaussian_mu(1.0, 1e-5)
    assert gaussian_epsilon(1e-5, math.sqrt(2) * mu) == pytest.approx(1.47, abs=0.01)
    assert gaussian_epsilon(1e-5, 2 * mu) == pytest.approx(2.16, abs=0.01)


def test_other_notions_refuse_sums_and_events_without_a_proof() -> None:
    with pytest.raises(UnknownEvent):
        make_accountant("pure").epsilon_of_events([event()])
    for wrong in (
        {"participants": 6},
        {"participants": 1},
        {"colluders": -1},
        {"sites_per_row": 0},
        {"dimension": 0},
    ):
        with pytest.raises(UnknownEvent):
            make_accountant("zcdp").epsilon_of_events([event(**wrong)], 1e-5)
    again = from_dict(event().to_dict())
    assert again.to_dict() == event().to_dict() and isinstance(again, SummedGaussianMechanism)


@pytest.mark.parametrize(("sites", "least", "t"), [(5, 4, 1), (9, 6, 2), (20, 11, 1)])
def test_more_colluders_cost_what_the_worst_attempt_loses_in_noise(
    sites: int, least: int, t: int
) -> None:
    planned = event(sites=sites, participants=least, colluders=t)
    assert (
        planned.event_against_colluders(t) is planned
        and planned.event_against_colluders(0) is planned
    )
    for more in range(t + 1, sites):
        worst = max((u - t) / (u - more) for u in range(max(least, more + 1), sites + 1))
        found = planned.event_against_colluders(more)
        np.testing.assert_allclose(found.alpha, planned.alpha * math.sqrt(worst))
        assert np.all(np.isfinite(prices.zcdp_rho(found)))
    assert math.isinf(
        make_accountant("best").epsilon_of_events([planned.event_against_colluders(sites)], 1e-5)[0]
    )


def test_a_ledger_prices_sums_against_the_coalition_that_it_is_asked_about() -> None:
    """Whoever knows more shares than planned sees more; a ledger that ignored this would print
    too little.
    """
    ledger = Ledger("zcdp", 100.0, 1e-5)
    for _ in range(10):
        ledger.record_event(event())
    costs = [ledger.account.against(range(k)) for k in range(5)]
    assert costs[0] == costs[1] == ledger.total()
    assert costs[1] < costs[2] < costs[3] < costs[4]
    rho = 10 * 0.5 * 0.3**2 * 4  # against all others: four times the variance is lost
    alone = Ledger(ledger.accountant, 100.0, 1e-5)
    assert costs[4] == pytest.approx(float(alone.accountant.epsilon(np.array(rho), 1e-5)))
    assert ledger.account.against(range(5)) == 0.0  # nobody is left to protect


def test_a_plan_says_what_is_left_if_all_others_collude() -> None:
    n = np.full((5, 1), 8000.0)
    config = RunConfig(method="sum_momentum", epsilon=1.0, delta=1e-5, rounds=50, seed=0)
    privacy = outline_run(config, n, 10)["privacy"]
    assert privacy["epsilon"] <= 1.0 and privacy["alone"] == pytest.approx(2.16, abs=0.01)
    (line,) = (line for line in privacy["says"].split("\n") if "other sites collude" in line)
    assert "epsilon = 2.1" in line


# --- Noise ----------------------------------------------------------------------------------------


def test_the_operating_system_s_steps_are_rounded_normals_of_their_scale_and_no_other() -> None:
    drawn = SystemNoise().draw_rounded_gaussian(30_000, np.array([3.0]), 1)
    assert drawn.shape == (30_000,) and drawn.dtype == np.int64
    edges = np.arange(-9, 10)
    inside = np.clip(drawn, -9, 9)
    observed = np.array([(inside == k).sum() for k in edges])

    def accepts(tau: float) -> bool:
        below = stats.norm.cdf(np.concatenate([[-np.inf], edges[:-1] + 0.5, [np.inf]]), scale=tau)
        wanted = np.diff(below) * drawn.size
        return bool(
            np.sum((observed - wanted) ** 2 / wanted) < stats.chi2(len(edges) - 1).isf(LEVEL)
        )

    assert [accepts(3.0 * factor) for factor in FACTORS] == [True, False, False]


@pytest.mark.parametrize("tau", [2.0**20, 2.0**41, 2.0**58])
@pytest.mark.parametrize("system", [False, True])
def test_steps_of_every_size_have_their_standard_deviation(tau: float, system: bool) -> None:
    if system:
        drawn = SystemNoise().draw_rounded_gaussian(4000, np.array([tau]), 1)
    else:
        drawn = KeyedNoise(3, [0], [0], lead=()).draw_rounded_gaussian(4000, np.array([tau]), 1)
    total, exact = float(np.sum((drawn / tau) ** 2)), stats.chi2(4000)

    def accepts(factor: float) -> bool:
        return bool(2 * min(exact.cdf(total / factor**2), exact.sf(total / factor**2)) > LEVEL)

    assert [accepts(factor) for factor in FACTORS] == [True, False, False]


def test_simulated_steps_are_a_site_s_own_whoever_else_is_drawn() -> None:
    tau = np.full((3, 1), 2.0**30)
    together = KeyedNoise(5, [0, 1], range(3)).draw_rounded_gaussian(4, tau, 2)
    for replicate, node in itertools.product(range(2), range(3)):
        alone = KeyedNoise(5, [replicate], [node], lead=()).draw_rounded_gaussian(4, tau[0], 2)
        assert np.array_equal(alone, together[replicate, node])


# --- Agreement, and what is seen ------------------------------------------------------------------


@pytest.mark.parametrize("sites", range(3, 9))
def test_any_two_rosters_have_an_honest_site_in_common_and_no_smaller_quorum_would_do(
    sites: int,
) -> None:
    for t in range(1, sites - 1):
        config = RunConfig(method="sum_momentum", delta=1e-5, colluders=t)
        try:
            least, colluding = quorum_of_sums(config, sites)
        except InvalidInput:
            assert max(t + 2, (sites + t) // 2 + 1) > sites
            continue
        assert colluding == t and least - t >= 2

        def shared(k: int) -> int:
            return min(
                len(set(one) & set(two))
                for one, two in itertools.product(itertools.combinations(range(sites), k), repeat=2)
            )

        assert shared(least) > t
        assert shared(least - 1) <= t or least == t + 2
        for wrong in (least - 1, sites + 1):
            with pytest.raises(InvalidInput, match=r"^participants="):
                quorum_of_sums(replace(config, participants=wrong), sites)


@pytest.mark.parametrize(("sites", "rank"), [(5, 5), (8, 6), (3, 3), (4, 2)])
def test_sums_over_neighbours_on_a_ring_would_hide_little_or_nothing(sites: int, rank: int) -> None:
    """Why only one sum over all sites is opened: on a ring of five all sums over neighbours give
    every message.
    """
    ring = np.roll(np.eye(sites), 1, axis=1)
    adjacency = ring + ring.T
    assert np.linalg.matrix_rank(adjacency) == rank
    messages = np.random.default_rng(0).standard_normal((sites, 3))
    if rank == sites:
        np.testing.assert_allclose(np.linalg.solve(adjacency, adjacency @ messages), messages)


@pytest.mark.parametrize("h", [2, 3])
def test_masked_words_have_one_law_for_all_words_of_one_sum(h: int) -> None:
    """Claim 1, by counting all masks in a ring of four: what is sent depends on the words by
    their sum alone.
    """
    ring, pairs = 4, list(itertools.combinations(range(h), 2))

    def sent(words: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        found: dict[tuple[int, ...], int] = {}
        for masks in itertools.product(range(ring), repeat=len(pairs)):
            y = list(words)
            for (i, j), mask in zip(pairs, masks, strict=True):
                y[i], y[j] = (y[i] + mask) % ring, (y[j] - mask) % ring
            found[tuple(y)] = found.get(tuple(y), 0) + 1
        return found

    laws: dict[int, list[dict[tuple[int, ...], int]]] = {}
    for words in itertools.product(range(ring), repeat=h):
        laws.setdefault(sum(words) % ring, []).append(sent(words))
    for same in laws.values():
        assert all(one == same[0] for one in same)
        assert len(same[0]) == ring ** (h - 1)  # uniform on all that have this sum
        assert len(set(same[0].values())) == 1


Key = Callable[[int, tuple[int, ...], int], tuple[object, ...]]


def leaks(
    schedule: list[tuple[tuple[int, ...], int]], colluding: set[int], sites: int, key: Key
) -> bool:
    """Whether the adversary's equations determine something of one honest site's shares.

    Unknown are the shares of honest sites, one an attempt, and the masks of honest pairs, one a
    key.  Known are the masked words of all attempts; masks and shares of colluding sites are
    subtracted.  What can be computed without any mask may mix shares only with equal weight over
    the honest sites of an attempt.
    """
    columns: dict[tuple[object, ...], int] = {}
    rows: list[dict[int, float]] = []
    for attempt, (roster, parent) in enumerate(schedule):
        honest = [i for i in roster if i not in colluding]
        for i in honest:
            row = {columns.setdefault(("share", attempt, i), len(columns)): 1.0}
            for j in honest:
                if j != i:
                    name = ("mask", min(i, j), max(i, j), *key(attempt, roster, parent))
                    row[columns.setdefault(name, len(columns))] = 1.0 if i < j else -1.0
            rows.append(row)
    matrix = np.zeros((len(rows), len(columns)))
    for k, row in enumerate(rows):
        for column, value in row.items():
            matrix[k, column] += value
    masks = [c for name, c in columns.items() if name[0] == "mask"]
    shares = [c for name, c in columns.items() if name[0] == "share"]
    left = np.eye(len(rows))
    if masks:
        u, s, _ = np.linalg.svd(matrix[:, masks])
        left = u[:, int((s > 1e-9).sum()) :].T  # combinations of messages in which no mask is left
    known = (left @ matrix)[:, shares]
    allowed = np.zeros((len(schedule), len(shares)))
    for name, c in columns.items():
        if name[0] == "share":
            allowed[int(str(name[1])), shares.index(c)] = 1.0
    both = np.vstack([known, allowed])
    return bool(np.linalg.matrix_rank(both, 1e-9) > np.linalg.matrix_rank(allowed, 1e-9))


def schedules(count: int, sites: int) -> list[list[tuple[tuple[int, ...], int]]]:
    """Random rosters and parents: sites leave and come back, attempts are abandoned or not."""
    rng, found = np.random.default_rng(1), []
    for _ in range(count):
        attempts = []
        for _ in range(int(rng.integers(2, 6))):
            roster = tuple(
                sorted(rng.choice(sites, int(rng.integers(4, sites + 1)), replace=False).tolist())
            )
            attempts.append((roster, int(rng.integers(3))))
        found.append(attempts)
    return found


def test_no_schedule_shows_more_than_one_sum_an_attempt_and_keys_without_an_attempt_do() -> None:
    colluding, sites = {4}, 5
    many = schedules(60, sites)
    assert not any(
        leaks(one, colluding, sites, lambda r, roster, parent: (r, roster, parent)) for one in many
    )
    assert any(
        leaks(one, colluding, sites, lambda r, roster, parent: (roster, parent)) for one in many
    )
    assert any(leaks(one, colluding, sites, lambda r, roster, parent: ()) for one in many)
    # two honest sites need one mask: alone, a site is seen
    assert leaks([((0, 3, 4), 0)], {3, 4}, sites, lambda r, roster, parent: (r,)) is False
    assert leaks([((0, 1, 4), 0)], {4}, sites, lambda r, roster, parent: (r,)) is False


@pytest.mark.parametrize("h", [2, 3, 6])
def test_a_site_that_draws_twice_for_one_attempt_takes_away_less_than_its_share(h: int) -> None:
    """A restored site: two totals with one share drawn anew.  The best estimate from both has at
    least h shares.
    """
    tau = 5.0
    # h others, the same in both, and its own
    covariance = tau**2 * (h * np.ones((2, 2)) + np.eye(2))
    best = 1.0 / float(np.ones(2) @ np.linalg.solve(covariance, np.ones(2)))
    assert h * tau**2 < best < (h + 1) * tau**2


def test_a_sum_and_the_sum_without_one_site_cost_as_much_as_two_attempts() -> None:
    """Differencing: whatever is computed from both totals, its shift over sigma is at most
    ``sqrt(2) alpha``.
    """
    alpha, shift = 0.3, 2.0
    # noise follows the roster, so that each attempt has its alpha
    sigmas = shift / alpha * np.ones(2)
    for weights in np.random.default_rng(0).standard_normal((200, 2)):
        for moved in (
            np.array([shift, shift]),
            np.array([shift, 0.0]),
        ):  # a row of a site in both, or in the first only
            seen = abs(weights @ moved) / math.sqrt(float((weights * sigmas) @ (weights * sigmas)))
            assert seen <= (math.sqrt(2) if moved[1] else 1.0) * alpha * (1 + 1e-12)
    only = abs(np.array([1.0, -1.0]) @ np.array([shift, 0.0])) / math.sqrt(2 * sigmas[0] ** 2)
    assert only == pytest.approx(alpha / math.sqrt(2))  # of the difference alone
