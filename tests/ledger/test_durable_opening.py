"""Opening a ledger reads every record once, and prices every kind of event once, when somebody
asks.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import DATA, again, price, release

from sottovoce.ledger import history
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import Event

BETAS = (0.1, 0.2, 0.4)


def ledger_of(path: Path, releases: int) -> Path:
    with DurableLedger.create(path, epsilon=np.inf, n_nodes=2, fingerprint=DATA) as ledger:
        ledger.file._db.execute("PRAGMA synchronous = OFF")
        events = [release(BETAS[i % len(BETAS)]) for i in range(releases)]
        with ledger.reserve("run", "plan", events) as run:
            for event in events:
                run.charge_once(event, lambda: b"drawn")
    return path


class Walked(dict[int, Any]):
    """Notes that somebody went through all of it."""

    walks = 0

    def keys(self) -> Any:
        Walked.walks += 1
        return super().keys()

    __iter__ = values = items = keys  # type: ignore[assignment]


@dataclass
class WalkedRun(history.RunHistory):
    def __post_init__(self) -> None:
        self.stored = Walked()


def test_each_kind_of_event_is_read_and_priced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = ledger_of(tmp_path / "a", 120), Counter[str]()
    priced, read, expected = (
        PureAccountant.price_of_event,
        history.from_dict,
        40 * sum(map(price, BETAS)),
    )

    def counted_price(self: PureAccountant, event: Event) -> np.ndarray:
        work["priced"] += 1
        return priced(self, event)

    def counted_read(plain: dict[str, Any]) -> Event:
        work["read"] += 1
        return read(plain)

    monkeypatch.setattr(PureAccountant, "price_of_event", counted_price)
    monkeypatch.setattr(history, "from_dict", counted_read)
    monkeypatch.setattr(history, "RunHistory", WalkedRun)
    with again(path) as ledger:
        assert Walked.walks == 0 and work == {"read": 3}
        for _ in range(3):
            assert ledger.total() == pytest.approx(expected)
        assert work == {"read": 3, "priced": 3}
        ledger.record_event(release(0.1))  # of a kind that is known
        assert work == {"read": 3, "priced": 3} and len(ledger.rows) == 121


def test_the_work_of_opening_grows_with_the_records(tmp_path: Path) -> None:
    def calls(path: Path) -> int:
        seen = 0

        def count(frame: object, what: str, argument: object) -> None:
            nonlocal seen
            seen += what in ("call", "c_call")

        sys.setprofile(count)
        try:
            again(path).close()
        finally:
            sys.setprofile(None)
        return seen

    few, more, most = (calls(ledger_of(tmp_path / str(n), n)) for n in (60, 120, 240))
    assert most - more < 2.05 * (more - few)
