"""Runs of Gaussian releases are priced without being run, to the last bit as by a plan at every
trial.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.privacy import prices
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.events import GaussianMechanism
from sottovoce.runs import calibration
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Prepared, RunSetting, plan_ledger

N = np.array([[700.0], [800.0], [900.0]])


def calibrated(config: RunConfig, d: int) -> Prepared:
    calibration._remembered.clear()
    return prepare(config, N, d)


def drawn(seed: int, accountant: str, relation: str, copies: int) -> tuple[RunConfig, int]:
    """A plan of Gaussian releases: of one epsilon or one a site, with knobs that change its
    events.
    """
    rng = np.random.default_rng([seed, copies])
    method, trust = [
        ("momentum", None),
        ("momentum", "sum"),
        ("prox_admm", None),
        ("prox_average", "sum"),
        ("dgd", None),
        ("prox_average", "curator"),
    ][rng.integers(6)]
    more: dict[str, Any] = (
        {"correlation": str(rng.choice(["half", "none"]))} if method == "momentum" else {}
    )
    epsilon = 10.0 ** rng.uniform(-1.5, 1.0, 3)
    several = trust is None and rng.random() < 0.4
    config = RunConfig.from_dict(
        {
            "method": method,
            "trust": trust,
            "rounds": int(rng.integers(1, 12)),
            "delta": float(10.0 ** rng.uniform(-9, -4)),
            "epsilon": tuple(epsilon.tolist()) if several else float(epsilon[0]),
            "accountant": accountant,
            "relation": relation,
            "copies": copies,
            "sites_per_row": 1 if several or trust == "curator" else int(rng.integers(1, 3)),
            **more,
        }
    )
    return config, int(rng.integers(2, 30))


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld", "best"])
def test_scales_are_those_of_a_plan_at_every_trial(
    accountant: str, relation: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        plans.append(1)
        return plan_ledger(*args, **options)

    for seed in range(4):
        config, d = drawn(seed, accountant, relation, copies)
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "plan_ledger", counted)
            plans.clear()
            quick = calibrated(config, d)
            assert len(plans) == 1  # what is spent is a ledger's total
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "price_of_gaussian_run", lambda *_: None)
            slow = calibrated(config, d)
        assert quick.algorithm == slow.algorithm
        whole = plan_ledger(
            quick.algorithm,
            RunSetting(
                quick.facts,
                quick.graph,
                config.rounds,
                quick.ledger.accountant,
                quick.ledger.delta,
                config.sites_per_row,
                copies,
            ),
        )
        spent = whole.total() if config.sites_per_row > 1 else whole.per_node()
        assert np.all(spent <= np.array(config.epsilon)) and np.all(
            spent >= 0.999 * np.array(config.epsilon)
        )


def test_a_total_that_is_not_the_ledgers_is_searched_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A price that is too low by one part in 10^9 is never what is spent."""
    config = RunConfig(method="momentum", epsilon=1.0, delta=1e-5, rounds=8)
    right = calibrated(config, 5).algorithm

    def quick(*args: Any) -> Any:
        totals = right_price(*args)
        return lambda scale: totals(scale) * (1.0 - 1e-9)

    right_price = calibration.price_of_gaussian_run
    monkeypatch.setattr(calibration, "price_of_gaussian_run", quick)
    assert calibrated(config, 5).algorithm == right


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld", "best"])
def test_spending_of_shifts_is_that_of_their_events(accountant: str) -> None:
    rng, book = np.random.default_rng(3), make_accountant(accountant)
    events = [
        GaussianMechanism("test", "replace-one", rng.uniform(1.0, 9.0, 3), np.ones(3), 4)
        for _ in range(5)
    ]
    counts = [1, 3, 1, 2, 1]
    releases = [
        (prices.dominating_pairs(event)[0], count)
        for event, count in zip(events, counts, strict=True)
    ]
    each = [event for event, count in zip(events, counts, strict=True) for _ in range(count)] * 2
    spent, added = book.spend_gaussian_releases(releases, 2), book.spending_of_events(each)
    assert np.array_equal(book.epsilon(spent, 1e-6), book.epsilon(added, 1e-6))
    assert book.network_epsilon(spent, 1e-6, 2) == book.network_epsilon(added, 1e-6, 2)


def test_one_calibration_serves_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(method="momentum", epsilon=1.0, delta=1e-5, rounds=8, copies=10)
    first = calibrated(config, 5).algorithm
    monkeypatch.setattr(calibration, "plan_ledger", None)  # nothing is priced again
    assert prepare(replace(config, seed=7), N, 5).algorithm == first
    with pytest.raises(TypeError):
        prepare(replace(config, epsilon=1.1), N, 5)
    with pytest.raises(TypeError):
        prepare(config, N, 6)
