"""What a ledger shows as spent holds for whoever chooses, in view of the releases, where to
stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import norm

from sottovoce.errors import BudgetExceeded
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy import accountants
from sottovoce.privacy.accountants import (
    Accountant,
    RDPAccountant,
    ZCDPAccountant,
    at_one_order,
    lifetime_accountant,
)
from sottovoce.privacy.events import Event, GaussianMechanism
from sottovoce.util.plain import infinities_to_text, personalised_hash

DELTA = 1e-5


def gauss(mu: float, nodes: int = 1) -> GaussianMechanism:
    return GaussianMechanism(
        "test", "replace-one", np.full(nodes, 2.0 / mu), np.full(nodes, 2.0), 5
    )


def realised(mu: float, quoted: np.ndarray) -> float:
    """The largest ``E (1 - e^{quoted_T - loss_T})_+`` of all stopping rules T over releases of
    shift `mu` over sigma.

    Backward induction: the loss is a walk of steps N(mu^2/2, mu^2), and the value of a state the
    larger of the gain there and of the mean value one step on.  Steps are rounded to an eighth of
    mu, which adds 1/768 to their variance.
    """
    releases, h = len(quoted) - 1, mu / 8.0
    wide = 12.0 * mu * np.sqrt(releases)
    loss = np.arange(np.floor(-wide / h), np.ceil((releases * mu**2 / 2.0 + wide) / h) + 1.0) * h
    far = int(np.ceil((mu**2 / 2.0 + 9.0 * mu) / h))
    step = np.arange(-far, far + 1) * h - mu**2 / 2.0
    weights = norm.cdf((step + h / 2.0) / mu) - norm.cdf((step - h / 2.0) / mu)
    value = -np.expm1(np.minimum(0.0, quoted[-1] - loss))
    for spent in quoted[-2::-1]:
        ends = np.concatenate([np.zeros(far), value, np.full(far, value[-1])])
        on = fftconvolve(ends, weights[::-1], mode="valid")
        value = np.maximum(-np.expm1(np.minimum(0.0, spent - loss)), on)
    return float(value[np.argmin(np.abs(loss))])


def quoted(accountant: Accountant, event: Event, releases: int) -> np.ndarray:
    spent, shown = accountant.zero_spending(), [0.0]
    for _ in range(releases):
        spent = accountant.add_event(spent, event)
        shown.append(float(np.max(accountant.epsilon(spent, DELTA))))
    return np.array(shown)


@pytest.mark.parametrize(("epsilon", "releases"), [(1.0, 100), (3.0, 400)])
@pytest.mark.parametrize("name", ["zcdp", "rdp"])
def test_an_analyst_who_chooses_when_to_stop_gets_no_more_than_delta(
    name: str, epsilon: float, releases: int
) -> None:
    free = accountants.make_accountant(name)
    low, high = 1e-6, 1.0  # the shift with which so many releases fill the budget
    for _ in range(60):
        mu = np.sqrt(low * high)
        low, high = (
            (mu, high)
            if quoted(free, gauss(mu * np.sqrt(releases)), 1)[-1] <= epsilon
            else (low, mu)
        )
    shown = quoted(lifetime_accountant(name, np.array(epsilon), DELTA), gauss(low), releases)
    # the budget holds as much as with a free order
    assert shown[-1] == pytest.approx(epsilon, rel=1e-9)
    assert realised(low, np.full(releases + 1, epsilon)) < realised(low, shown) < 0.7 * DELTA
    # the best order at every stop: refuted
    assert realised(low, quoted(free, gauss(low), releases)) > 2.5 * DELTA


def test_running_totals_are_never_below_those_at_the_best_order() -> None:
    for epsilon in (0.3, 1.0, 8.0, np.inf):
        for free in (ZCDPAccountant(), RDPAccountant()):
            one = at_one_order(free, np.array(epsilon), DELTA)
            assert one.is_filter and not free.is_filter and one.label.startswith(f"{free.name}:")
            assert np.all(
                quoted(one, gauss(0.03), 300) >= quoted(free, gauss(0.03), 300) * (1 - 1e-12)
            )


def test_a_ledger_that_is_shared_reads_one_order_from_then_on() -> None:
    for make in (ZCDPAccountant, RDPAccountant):
        shared = Ledger(make(), 2.0, DELTA)
        shared.record_event(gauss(0.05))
        before = shared.total()
        shared.settle()
        assert shared.accountant.label == lifetime_accountant(make.name, np.array(2.0), DELTA).label
        assert (
            shared.total()
            == Ledger(make.name, 2.0, DELTA).accountant.epsilon_of_events(shared.rows, DELTA)[0]
            > before
            > 0
        )


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_an_old_ledger_without_an_order_takes_that_of_its_budget(
    tmp_path: Path, epsilon: float
) -> None:
    """As written by versions that took the best order for each total: its rows show as no less,
    and as much fits.
    """
    path, event = tmp_path / "old.ledger", gauss(0.05)

    def first(secret: bytes) -> dict[str, Any]:
        return {
            "kind": "create",
            "accountant": "zcdp",
            "epsilon": [infinities_to_text(epsilon)],
            "delta": DELTA,
            "key": personalised_hash(secret).hex(),
            "at": "2025-01-01T00:00:00+00:00",
        }

    ChainFile.create(path, first)
    free, count = ZCDPAccountant(), 0
    with DurableLedger.open(path) as ledger:
        while count < 40:
            try:
                ledger.record_event(event)
            except BudgetExceeded:
                break
            count += 1
            assert ledger.total() >= free.epsilon_of_events([event] * count, DELTA)[0] * (1 - 1e-12)
        assert (count == 40) == np.isinf(epsilon) or free.epsilon_of_events(
            [event] * (count + 1), DELTA
        )[0] > epsilon
        assert ledger.total() > free.epsilon_of_events([event], DELTA)[0] and ledger.show()[
            "accountant"
        ].startswith("zcdp:")
    with DurableLedger.open(path) as ledger:
        assert len(ledger.rows) == count


def test_a_ledger_on_disk_keeps_its_order(tmp_path: Path) -> None:
    for epsilon in (1.0, np.inf):
        path = tmp_path / f"{epsilon}.ledger"
        with DurableLedger.create(path, epsilon=epsilon, delta=DELTA, accountant="zcdp") as ledger:
            ledger.record_event(gauss(0.05))
            shown = ledger.total()
            assert (
                shown
                == lifetime_accountant("zcdp", np.array(epsilon), DELTA).epsilon_of_events(
                    [gauss(0.05)], DELTA
                )[0]
            )
        with DurableLedger.open(path) as ledger:
            assert (
                ledger.total()
                == shown
                > ZCDPAccountant().epsilon_of_events([gauss(0.05)], DELTA)[0]
            )
            assert ledger.show()["accountant"].startswith("zcdp:")


@pytest.mark.parametrize("kind", [ZCDPAccountant, RDPAccountant])
def test_an_interrupt_while_the_order_is_chosen_forgets_nothing(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C in the midst once left a ledger with the rows, and with nothing spent."""
    shared = Ledger(kind(), epsilon=5.0, delta=DELTA)
    for mu in (0.5, 0.4, 0.3):  # equal ones would be added at once
        shared.record_event(gauss(mu))
    before, add, calls = shared.total(), kind.add_event, []

    def interrupted(self: Any, spent: Any, event: Event, count: int) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return add(self, spent, event, count)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "add_event", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shared.settle()
    assert shared.total() >= before
    shared.settle()
    assert shared.total() >= before and shared.accountant.is_filter
