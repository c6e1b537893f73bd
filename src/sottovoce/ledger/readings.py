"""Totals of a ledger's rows, in memory and on disk."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from ..errors import InvalidInput, LedgerCorrupt
from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..util.plain import jsonable
from ..util.typing import Any, Array
from .file import ChainFile
from .history import History
from .memory import Ledger


class Readings(ABC):
    """Totals of a ledger's rows."""

    @property
    @abstractmethod
    def accountant(self) -> Accountant[Any]:
        """What prices the rows."""

    @property
    @abstractmethod
    def delta(self) -> float:
        """0 for pure epsilon."""

    @property
    @abstractmethod
    def rows(self) -> tuple[Event, ...]:
        """Events, in the order of their charges."""

    @abstractmethod
    def per_node(self) -> Array:
        """Epsilon spent by each node, shape (N,); shape () before the first event."""

    def total(self) -> float:
        """Epsilon of the whole network: the worst node, as rows are disjoint over sites."""
        return float(np.max(self.per_node()))

    def claimed(self) -> float | None:
        """The papers' claim for the same rows; None where one claims nothing."""
        book = Ledger(self.accountant, np.inf, self.delta)
        for event in self.rows:
            book.charge(event)
        return book.claimed()

    def to_list(self) -> list[dict[str, Any]]:
        """Rows as plain data."""
        return [event.to_dict() for event in self.rows]


class OnDisk(Readings):
    """What a ledger on disk reports about its rows, its runs and its file."""

    _file: ChainFile[History]

    @property
    def accountant(self) -> Accountant[Any]:
        return self._file.state.accountant

    @property
    def epsilon(self) -> Array:
        """Lifetime budget per node, shape (N,)."""
        return self._file.state.epsilon

    @property
    def delta(self) -> float:
        return self._file.state.delta

    @property
    def demonstration(self) -> bool:
        """Whether it was made for a demonstration: its noise may be repeatable, so it cannot hold a true release."""
        return self._file.state.demonstration

    @property
    def bound(self) -> bool:
        """Whether it is tied to rows, whose fingerprint it needs to spend."""
        return bool(self._file.read().tags)

    def reserved(self, run: str) -> tuple[Event, ...]:
        """All releases that a run reserved, in order."""
        return tuple(self._file.read().runs[run].planned)

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of all runs, open or closed."""
        return tuple(self._file.read().runs)

    @property
    def former_runs(self) -> tuple[str, ...]:
        """Names of open runs that a version before 0.3 began: they do not go on, and hold what they reserved."""
        return tuple(name for name, run in self._file.read().runs.items() if run.former and run.open)

    @property
    def rows(self) -> tuple[Event, ...]:
        return tuple(self._file.read().rows)

    def per_node(self) -> Array:
        with self._file.transaction("DEFERRED"):
            return self._file.state.price()

    def committed(self) -> Array:
        """Epsilon per node that is spent or reserved by open runs."""
        with self._file.transaction("DEFERRED"):
            return self._file.state.price(self._file.state.held())

    def head(self) -> str:
        """Count and hash of the last record, ``"12:9f..."``.  Noted elsewhere, it detects an older copy."""
        with self._file.transaction("DEFERRED"):
            return self._file.head()

    def goes_through(self, head: str) -> bool:
        """Whether the log contains an earlier :meth:`head`."""
        try:
            self._file.expect(head)
        except (InvalidInput, LedgerCorrupt):
            return False
        return True

    def passes(self, mark: str) -> bool:
        """Whether the log contains a record with this hash in hexadecimal digits: a :meth:`head` without its count."""
        with self._file.transaction("DEFERRED"):
            return bool(re.fullmatch("[0-9a-f]{64}", mark)) and self._file.passes(bytes.fromhex(mark))

    def verify(self, expected_head: str | None = None) -> str:
        """Verify the whole file from its first record, payloads included; returns its head.

        Raises
        ------
        LedgerCorrupt
            If anything was edited, removed, added or moved, or the log lacks `expected_head`, which was noted earlier.
        """
        self._file.verify()
        if expected_head is not None:
            self._file.expect(expected_head)
        return self.head()

    def export(self, path: str | Path) -> None:
        """Write all records as JSON lines with their hashes: no data, no key and no payload."""
        self._file.export(path)

    def show(self) -> dict[str, Any]:
        """A summary as plain data; an infinite epsilon is the text ``inf``."""
        with self._file.transaction("DEFERRED"):
            head, state = self._file.head(), self._file.state
            prices = {"epsilon": state.epsilon, "spent": state.price(), "committed": state.price(state.held())}
            runs = [
                {
                    "run": name, "plan": run.plan, "state": run.state, "since": run.since,
                    "planned": len(run.planned), "charged": run.charged, "released": len(run.stored),
                    "failed": len(run.failed), "held": run.left if run.open else 0,
                    "goes_on": run.open and not run.former,
                }
                for name, run in state.runs.items()
            ]  # fmt: skip
            each = {k: np.broadcast_to(v, state.epsilon.shape) for k, v in prices.items()}
            return {k: [jsonable(float(e)) for e in v] for k, v in each.items()} | {
                "path": str(self._file.path), "accountant": state.accountant.label, "delta": state.delta,
                "n_nodes": state.epsilon.size, "releases": len(state.rows), "bound": bool(state.tags),
                "since": state.since, "runs": runs, "head": head, "demonstration": state.demonstration,
                "cautions": state.cautions(),
            }  # fmt: skip
