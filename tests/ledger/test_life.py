"""What a run takes of a lifetime budget, said before there is a ledger, is what a ledger then
takes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sottovoce.errors import BudgetExceeded, InvalidInput
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.life import (
    LifetimeShare,
    Taken,
    describe_example_run,
    share_of_lifetime_budget,
)
from sottovoce.privacy.events import Event
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare


def run_of(method: str, delta: float | None = 1e-5) -> tuple[Event, ...]:
    config = RunConfig(method=method, epsilon=1.0, delta=delta, rounds=8, seed=None)
    return prepare(config, np.full((1, 1), 8000.0), 6).plan_ledger().rows


def book(path: Path, budget: float, delta: float | None) -> DurableLedger:
    kind = "pure" if delta is None else "rdp"
    return DurableLedger.create(path, epsilon=budget, delta=delta or 0.0, accountant=kind)


@pytest.mark.parametrize("budget", [1.5, 3.0, 20.0])
@pytest.mark.parametrize(
    ("method", "delta"), [("prox_admm", 1e-5), ("mr_admm", 1e-5), ("dvp", None)]
)
def test_share_of_lifetime_budget_is_what_a_ledger_charges(
    tmp_path: Path, method: str, delta: float | None, budget: float
) -> None:
    events = run_of(method, delta)
    said = share_of_lifetime_budget(events, delta, budget)
    assert said is not None and said["runs"] >= 1
    with book(tmp_path / "x.ledger", budget, delta) as ledger:
        for k in range(min(said["runs"], 12)):
            takes = ledger.account.epsilon_added_by_run(events).item()
            assert takes == pytest.approx(said["first" if k == 0 else "later"], rel=1e-9)
            ledger.reserve(f"run {k}", "plan", events)
        if said["runs"] <= 12:
            with pytest.raises(BudgetExceeded):
                ledger.reserve("one more", "plan", events)


def test_a_run_of_epsilon_one_takes_more_of_a_larger_budget_at_first() -> None:
    share = LifetimeShare(run_of("prox_admm"), "rdp", 1e-5)
    first = [share.share_of_budget(budget).first for budget in (3.0, 20.0)]
    assert first == pytest.approx([1.565, 6.916], abs=1e-3)  # not 1
    assert share.share_of_budget(20.0).later < share.share_of_budget(3.0).later < 0.3


@pytest.mark.parametrize(
    ("method", "delta"), [("prox_admm", 1e-5), ("mr_admm", 1e-5), ("dvp", None)]
)
def test_the_least_budget_is_used_up_and_no_smaller_one_does(
    tmp_path: Path, method: str, delta: float | None
) -> None:
    events = run_of(method, delta)
    said = share_of_lifetime_budget(events, delta, None)
    assert said is not None and 0.99 <= said["least"] <= 1.2
    with book(tmp_path / "x.ledger", said["least"], delta) as ledger:
        assert ledger.account.epsilon_added_by_run(events).item() == pytest.approx(
            said["least"], rel=1e-9
        )
    with (
        book(tmp_path / "y.ledger", 0.999 * said["least"], delta) as ledger,
        pytest.raises(BudgetExceeded),
    ):
        ledger.account.epsilon_added_by_run(events)


def test_wording_of_the_sentence_for_a_new_ledger() -> None:
    assert describe_example_run("rdp", 3.0, 1e-5) == (
        "a run of epsilon 1 takes 1.565 of a lifetime budget of 3 if it is the first, and 0.274 "
        "later: there is room for 6 such runs"
    )
    assert "epsilon 0.25 takes" in str(describe_example_run("rdp", 0.5, 1e-5))
    assert (
        describe_example_run("pure", 3.0, 0.0) is describe_example_run("rdp", np.inf, 1e-5) is None
    )


def test_an_infinite_budget_is_refused_as_it_pays_for_any_number_of_runs() -> None:
    with pytest.raises(InvalidInput) as caught:
        share_of_lifetime_budget(run_of("prox_admm"), 1e-5, np.inf)
    assert caught.value.field == "budget"


def test_a_run_without_a_price_has_no_share() -> None:
    config = RunConfig(method="dgd", rounds=3, seed=None, epsilon=np.inf)
    assert (
        share_of_lifetime_budget(
            prepare(config, np.full((3, 1), 80.0), 4).plan_ledger().rows, None, 3.0
        )
        is None
    )


def test_runs_that_cost_nothing_cannot_be_counted() -> None:
    with pytest.raises(InvalidInput, match="budget"):
        Taken(0.0, 0.0).runs(1.0)
    assert Taken(2.0, 0.0).runs(1.0) == 0
