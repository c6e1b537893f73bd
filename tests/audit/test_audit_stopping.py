"""An analyst who stops by what she sees: exact values, planted quotes that do not hold, and the
ledgers as they are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sottovoce.audit import attack, stopping
from sottovoce.audit.game import Options
from sottovoce.audit.stopping import (
    LEDGERS,
    best_stopping_rule,
    open_memory_ledger,
    play,
    raise_needed_by_quotes,
)
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import RDPAccountant, ZCDPAccountant
from sottovoce.privacy.events import Event
from sottovoce.privacy.gaussian import gaussian_delta, gaussian_epsilon
from sottovoce.privacy.spherical import ORDERS, epsilon_from_rdp
from sottovoce.util.typing import Array


class BestOrder(ZCDPAccountant):
    """What was wrong: every quote uses the Renyi order that is best for the spending so far."""

    name: ClassVar[str] = "best order so far"
    is_filter: ClassVar[bool] = True

    def __init__(self) -> None:
        pass

    def epsilon(self, spent: Array, delta: float) -> Array:
        each = [
            epsilon_from_rdp(ORDERS, rho * ORDERS, delta) if rho > 0 else 0.0
            for rho in np.ravel(spent)
        ]
        return np.array(each).reshape(np.shape(spent))


class OneOrder(RDPAccountant):
    """What is proved: one order for all quotes."""

    def __init__(self) -> None:
        super().__init__(12.0)


class Late(Ledger):
    """Quotes what was spent before the last release."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._before = 0.0

    def record_event(self, event: Event) -> None:
        self._before = super().total()
        super().record_event(event)

    def total(self) -> float:
        return self._before


def best_order(epsilon: float, delta: float) -> AbstractContextManager[Ledger]:
    return nullcontext(Ledger(BestOrder(), epsilon, delta))


def one_order(epsilon: float, delta: float) -> AbstractContextManager[Ledger]:
    return nullcontext(Ledger(OneOrder(), epsilon, delta))


def late(epsilon: float, delta: float) -> AbstractContextManager[Ledger]:
    return nullcontext(Late(OneOrder(), epsilon, delta))


# --- the backward induction -----------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.3, 1.0])
def test_a_single_release_has_the_gaussian_delta(shift: float) -> None:
    exact = float(gaussian_delta(0.7, shift))
    assert best_stopping_rule(np.array([0.7]), np.array([shift])).delta == pytest.approx(
        exact, rel=1e-3
    )
    quote = gaussian_epsilon(exact, shift) + 0.25
    assert raise_needed_by_quotes(np.array([quote]), np.array([shift]), exact) == pytest.approx(
        -0.25, abs=1e-3
    )


def test_two_releases_agree_with_quadrature() -> None:
    """She stops after the first release exactly where that is worth more than to go on, as a
    double integral says.
    """
    quotes, shifts = np.array([0.4, 1.1]), np.array([0.5, 0.8])

    def later(loss: float) -> float:
        """Value of going on: the delta of the second release at what is left of the quote."""
        m, s = loss + shifts[1] ** 2 / 2, shifts[1]
        z = (quotes[1] - m) / s
        return float(norm.sf(z) - np.exp(quotes[1] - m + s * s / 2) * norm.sf(z + s))

    def best(loss: float) -> float:
        return max(-np.expm1(min(quotes[0] - loss, 0.0)), later(loss))

    m, s = shifts[0] ** 2 / 2, shifts[0]
    exact = quad(
        lambda x: best(x) * norm.pdf(x, m, s),
        m - 9 * s,
        m + 9 * s,
        limit=400,
        points=[0.4, 0.8, 1.2],
    )[0]
    found = best_stopping_rule(quotes, shifts, points=48)
    assert found.delta == pytest.approx(exact, rel=1e-4)
    bar = found.bars[0]
    assert later(bar) <= -np.expm1(quotes[0] - bar) + 1e-3 and best(bar - 0.1) == later(bar - 0.1)


def test_the_grid_is_fine_enough() -> None:
    game = stopping.prepare_stopping_game(best_order, 2.0, 1e-3, 25)
    fine = best_stopping_rule(game.quotes, game.shifts, 48).delta
    assert game.rule.delta == pytest.approx(fine, rel=1e-4)


def test_releases_are_those_of_the_ledger_and_fill_its_budget() -> None:
    game = stopping.prepare_stopping_game(one_order, 1.0, 1e-3, 10)
    assert np.all(np.diff(game.quotes) > 0) and game.quotes[-1] == pytest.approx(1.0, rel=1e-4)
    assert game.quotes[-1] <= 1.0
    alphas = [float(query.alpha[0, 0]) for query in game.queries]  # type: ignore[index]
    assert game.shifts == pytest.approx(alphas, rel=1e-5) and np.all(game.shifts < alphas)


# --- planted --------------------------------------------------------------------------------------


def test_stopping_audit_refutes_quotes_at_the_best_order_so_far() -> None:
    verdict = play(stands={"planted": best_order})
    assert verdict.refuted and verdict.is_refuted_exactly
    assert (
        verdict.realised_delta > 2.5 * verdict.delta
        and verdict.realised_delta_bound > 1.3 * verdict.delta
    )
    assert verdict.lower_bound < verdict.exact_epsilon  # type: ignore[operator]


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 3.5), (8.0, 3.8)])
def test_quotes_at_the_best_order_fail_by_more_at_smaller_delta(
    epsilon: float, least: float
) -> None:
    game = stopping.prepare_stopping_game(best_order, epsilon, 1e-5, 40)
    assert game.rule.delta > least * 1e-5


@pytest.mark.parametrize("delta", [1e-5, 1e-3, 1e-2])
def test_stopping_audit_accepts_quotes_at_one_order(delta: float) -> None:
    verdict = play(Options(delta=delta, replicates=2000), {"proved": one_order})
    assert not verdict.refuted and not verdict.is_refuted_exactly
    assert verdict.realised_delta_bound <= verdict.realised_delta <= delta


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-3, float("nan"), 1e-17, 1e-300])
def test_a_delta_that_rounding_would_decide_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        play(Options(delta=delta), {"proved": one_order})


def test_stopping_audit_refutes_quotes_that_lag_by_one_release() -> None:
    verdict = play(stands={"planted": late, "proved": one_order})
    assert verdict.refuted and verdict.is_refuted_exactly and "planted" in verdict.attack
    assert verdict.ledgers["proved"] <= verdict.delta < verdict.ledgers["planted"]


def test_the_bound_from_runs_is_below_the_exact_value_as_often_as_it_says() -> None:
    """30 games at 80%: 6 above are expected at most, and four standard errors more are allowed."""
    game = stopping.prepare_stopping_game(best_order, 1.0, 0.05, 5)
    above = 0
    for seed in range(30):
        followed, quotes = stopping.losses(game, best_order, 1.0, 0.05, 400, seed)
        heads = (
            stopping.margins_of_heads(
                game, followed, quotes, np.random.default_rng([seed, 9]).random(400)
            )
            > 0
        )
        above += stopping.probability_lower_limit(np.sum(heads), 400, 0.2) > game.rule.delta
    assert above <= 15


def test_the_same_seed_repeats_the_game_and_no_delta_is_refused() -> None:
    def bound(seed: int) -> float:
        return play(
            Options(rounds=5, delta=0.01, replicates=500, seed=seed), {"planted": best_order}
        ).lower_bound

    assert bound(1) == bound(1) != bound(2)
    with pytest.raises(InvalidInput, match=r"^delta=0"):
        play(Options(delta=0.0))


# --- the library ----------------------------------------------------------------------------------


def test_accountants_of_the_library_at_one_order_hold_when_stopped() -> None:
    verdict = play(Options(replicates=2000), {"rdp": open_memory_ledger("rdp")})
    assert (
        not verdict.refuted
        and not verdict.is_refuted_exactly
        and verdict.realised_delta <= verdict.delta
    )


def test_stopping_audit_accepts_every_ledger_of_the_library() -> None:
    verdict = attack("stopping")
    assert set(verdict.to_dict()["ledgers"]) == set(LEDGERS) and len(LEDGERS) == 4
    assert not verdict.refuted and not verdict.is_refuted_exactly
    assert max(verdict.to_dict()["ledgers"].values()) <= verdict.delta


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_stopping_audit_accepts_every_ledger_at_a_small_delta(epsilon: float) -> None:
    for name, opened in LEDGERS.items():
        assert stopping.prepare_stopping_game(opened, epsilon, 1e-5, 40).rule.delta <= 1e-5, name
