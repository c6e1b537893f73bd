"""What every ledger does, in memory and on disk: suites that each store inherits."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from ledgers import price, release

from sottovoce.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerMismatch,
    SottovoceError,
    UnknownEvent,
)
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.joint import Joint
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import Event, Unprotected
from sottovoce.runs.row_guard import Book

Rows = Callable[[], tuple[Event, ...]]
Begin = Callable[..., AbstractContextManager[tuple[Book, Rows]]]


class AnyLedger(Protocol):
    @property
    def rows(self) -> tuple[Event, ...]: ...
    def record_event(self, event: Event, *, count: int = 1) -> None: ...
    def per_node(self) -> np.ndarray: ...
    def total(self) -> float: ...
    def claimed(self) -> float | None: ...
    def to_list(self) -> list[dict[str, Any]]: ...


class LedgerContract(ABC):
    """What every ledger of two nodes keeps."""

    @abstractmethod
    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[Callable[..., AnyLedger]]:
        """From an epsilon to a new ledger."""

    def test_total_is_the_accountants(self, make: Callable[..., AnyLedger]) -> None:
        ledger, events = make(), [release(beta) for beta in (0.5, 0.25, 1.0)]
        assert ledger.rows == () and ledger.total() == 0.0
        for event in events:
            ledger.record_event(event)
        np.testing.assert_array_equal(ledger.per_node(), PureAccountant().epsilon_of_events(events))
        assert ledger.total() == ledger.per_node()[0] > ledger.per_node()[1]
        assert (
            ledger.to_list()
            == [event.to_dict() for event in events]
            == [row.to_dict() for row in ledger.rows]
        )

    def test_without_noise_epsilon_is_infinite(self, make: Callable[..., AnyLedger]) -> None:
        event, ledger = Unprotected(source="test", rows=np.array([[5.0], [6.0]])), make()
        ledger.record_event(event)
        assert math.isinf(ledger.total())
        with pytest.raises(BudgetExceeded):
            make(1e9).record_event(event)

    def test_a_refusal_changes_nothing(self, make: Callable[..., AnyLedger]) -> None:
        ledger = make(1.5 * price())
        ledger.record_event(release())
        before = ledger.per_node()
        with pytest.raises(BudgetExceeded, match=r"^epsilon=.*nothing was drawn") as refusal:
            ledger.record_event(release())
        assert "\n" not in str(refusal.value)
        np.testing.assert_array_equal(ledger.per_node(), before)
        ledger.record_event(release(0.01))  # a smaller one still fits
        assert len(ledger.rows) == 2

    def test_a_budget_can_be_spent_to_its_last_digit(self, make: Callable[..., AnyLedger]) -> None:
        probe = make()
        for _ in range(10):
            probe.record_event(release(0.1))
        total = probe.total()
        assert total == pytest.approx(
            PureAccountant().epsilon_of_events([release(0.1)] * 10)[0], rel=1e-15
        )
        exact, short = make(total), make(np.nextafter(total, 0.0))
        for ledger in (exact, short):
            for _ in range(9):
                ledger.record_event(release(0.1))
        exact.record_event(release(0.1))
        with pytest.raises(BudgetExceeded):
            short.record_event(release(0.1))

    def test_budget_is_per_node(self, make: Callable[..., AnyLedger]) -> None:
        with pytest.raises(BudgetExceeded, match="node 1"):
            make(np.array([10.0, 0.5])).record_event(release())

    def test_claims_stand_beside_the_price(self, make: Callable[..., AnyLedger]) -> None:
        ledger = make()
        assert ledger.claimed() is None
        ledger.record_event(release(claimed=0.3))
        ledger.record_event(release(claimed=0.4))
        assert ledger.claimed() == pytest.approx(0.7)
        ledger.record_event(release())
        assert ledger.claimed() is None

    def test_unpriceable_events_are_refused(self, make: Callable[..., AnyLedger]) -> None:
        class Novel(Event):
            needs = "nothing"

        ledger = make()
        with pytest.raises(UnknownEvent, match="Novel"):
            ledger.record_event(Novel(source="test"))
        assert ledger.rows == ()

    def test_a_count_is_charged_whole_or_not_at_all(self, make: Callable[..., AnyLedger]) -> None:
        ledger, single = make(3.5 * price()), make()
        ledger.record_event(release(), count=3)
        for _ in range(3):
            single.record_event(release())
        assert ledger.to_list() == single.to_list()
        np.testing.assert_array_equal(ledger.per_node(), single.per_node())
        with pytest.raises(BudgetExceeded, match="run of 2"):
            ledger.record_event(release(0.2), count=2)
        for wrong in (0, -1, 1.0):
            with pytest.raises(InvalidInput, match=r"^count="):
                ledger.record_event(release(0.001), count=wrong)  # type: ignore[arg-type]
        assert len(ledger.rows) == 3

    def test_two_relations_do_not_add_up(self, make: Callable[..., AnyLedger]) -> None:
        ledger = make()
        ledger.record_event(release())
        with pytest.raises(InvalidInput, match=r"^relation="):
            ledger.record_event(replace(release(), relation="zero-out"))
        assert len(ledger.rows) == 1

    def test_a_copy_is_the_ledger_itself(self, make: Callable[..., AnyLedger]) -> None:
        ledger = make()
        assert copy.copy(ledger) is copy.deepcopy(ledger) is ledger

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
    def test_invalid_budgets_are_refused(
        self, make: Callable[..., AnyLedger], epsilon: float
    ) -> None:
        with pytest.raises(InvalidInput, match=r"^epsilon="):
            make(epsilon)


class TestInMemory(LedgerContract):
    @pytest.fixture
    def make(self) -> Callable[..., AnyLedger]:
        return lambda epsilon=np.inf: Ledger(epsilon=epsilon)


class TestDurable(LedgerContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[Callable[..., AnyLedger]]:
        made: list[DurableLedger] = []

        def new(epsilon: Any = np.inf) -> DurableLedger:
            made.append(
                DurableLedger.create(tmp_path / f"{len(made)}.ledger", epsilon=epsilon, n_nodes=2)
            )
            return made[-1]

        yield new
        for ledger in made:
            ledger.close()


class ReleasesContract(ABC):
    """What every book keeps from which a row guard draws: no release without its row, and the
    row first.
    """

    @abstractmethod
    @pytest.fixture
    def begin(self, tmp_path: Path) -> Begin:
        """From the planned events and an epsilon to a book, and what reads the rows of the data
        set anew.
        """

    def test_the_row_is_there_when_the_release_is_drawn(self, begin: Begin) -> None:
        seen = []
        with begin([release(0.1), release(0.2)]) as (book, rows):

            def draw() -> bytes:
                seen.append([event.to_dict() for event in rows()])
                return b"drawn"

            assert [book.charge_once(event, draw) for event in (release(0.1), release(0.2))] == [
                b"drawn"
            ] * 2
            assert book.to_list() == [event.to_dict() for event in book.rows] == seen[1]
        assert [len(rows_then) for rows_then in seen] == [1, 2]
        assert seen[1] == [release(0.1).to_dict(), release(0.2).to_dict()]

    def test_a_draw_that_fails_stays_charged(self, begin: Begin) -> None:
        with begin([release(0.1)] * 2) as (book, rows):
            with pytest.raises(ZeroDivisionError):
                book.charge_once(release(0.1), lambda: bytes(1 // 0))
            assert len(rows()) == 1

    def test_a_refused_release_is_not_drawn(self, begin: Begin) -> None:
        with begin([release(0.1)], epsilon=1.5 * price(0.1)) as (book, rows):
            book.charge_once(release(0.1), lambda: b"drawn")
            with pytest.raises((BudgetExceeded, LedgerMismatch)):
                book.charge_once(release(0.1), _never)
            assert len(rows()) == 1

    def test_a_release_without_a_price_is_not_drawn(self, begin: Begin) -> None:
        class Novel(Event):
            needs = "nothing"

        with begin([release(0.1)]) as (book, rows):
            with pytest.raises(SottovoceError):
                book.charge_once(Novel(source="test"), _never)
            assert rows() == ()


def _never() -> bytes:
    pytest.fail("was drawn")


class TestReleasesInMemory(ReleasesContract):
    @pytest.fixture
    def begin(self) -> Begin:
        def new(
            planned: Sequence[Event], epsilon: float = np.inf
        ) -> AbstractContextManager[tuple[Book, Rows]]:
            ledger = Ledger(epsilon=epsilon)
            ledger.expect(planned)
            return nullcontext((ledger, lambda: ledger.rows))

        return new


class TestReleasesOfARunInASharedLedger(ReleasesContract):
    @pytest.fixture
    def begin(self) -> Begin:
        @contextmanager
        def new(planned: Sequence[Event], epsilon: float = np.inf) -> Iterator[tuple[Book, Rows]]:
            shared = Ledger(epsilon=epsilon)
            with Joint(Ledger(), shared, planned) as joint:
                yield joint, lambda: shared.rows

        return new


class TestReleasesOfARunOnDisk(ReleasesContract):
    @pytest.fixture
    def begin(self, tmp_path: Path) -> Begin:
        @contextmanager
        def new(planned: Sequence[Event], epsilon: float = np.inf) -> Iterator[tuple[Book, Rows]]:
            path = tmp_path / "a.ledger"

            def rows() -> tuple[Event, ...]:
                with DurableLedger.open(path) as another:  # as another process reads it
                    return another.rows

            with DurableLedger.create(path, epsilon=epsilon, n_nodes=2) as ledger:
                yield ledger.reserve("run", "plan", planned), rows

        return new
