"""What the records of a durable ledger say, and what its rows come to."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self

import numpy as np

from ..typing import Any, Array
from . import accountants
from .accountants import Accountant
from .chain import canonical, keyed_hash
from .events import Event, from_dict, same_relation
from .ledger import Ledger


def rows_digest(*arrays: Array) -> bytes:
    """Digest of arrays of rows, for :meth:`DurableLedger.bind`.  It has no key, so it is a secret: never store it."""
    digest = hashlib.blake2b(digest_size=32)
    for array in arrays:
        values = np.ascontiguousarray(array, dtype="<f8")
        digest.update(repr(values.shape).encode())
        digest.update(values.tobytes())
    return digest.digest()


_UNITS = 2.0**64  # to one of the accountant's currency


def _up(price: float) -> int | float:
    units = float(price) * _UNITS  # exact: a power of two
    return math.ceil(units) if math.isfinite(units) else units


def _down(units: int | float) -> float:
    if isinstance(units, float):  # infinite, or no number
        return units
    total = units / 2**64
    return total if total * _UNITS >= units else math.nextafter(total, math.inf)


class Tally:
    """Spending in whole numbers, 2^64 to one of the currency: of epsilon, of rho, or of Renyi divergence.

    An event's price is rounded up once, and after that nothing is rounded, however many events there are and in
    whichever order they are added.
    """

    def __init__(self, accountant: Accountant[Any], units: Any = None) -> None:
        self._accountant, self._units = accountant, units

    def add(self, event: Event) -> Tally:
        """What is spent after `event` too."""
        price = self._accountant.add(self._accountant.nothing(), event)
        units = np.frompyfunc(_up, 1, 1)(np.asarray(price, dtype=object))
        return Tally(self._accountant, units if self._units is None else self._units + units)

    def epsilon(self, delta: float) -> Array:
        """Epsilon per node, from sums that are rounded up."""
        if self._units is None:
            return self._accountant.epsilon(self._accountant.nothing(), delta)
        spent = np.asarray(np.frompyfunc(_down, 1, 1)(self._units), dtype=float)
        return self._accountant.epsilon(spent, delta)


@dataclass
class RunHistory:
    """One run: what it reserved, and how far it came.  Releases are numbered from 1."""

    plan: str
    planned: list[Event]
    texts: list[str]
    since: str
    charged: int = 0
    stored: dict[int, tuple[int, str]] = field(default_factory=dict)  # release -> (record, digest of the payload)
    failed: set[int] = field(default_factory=set)
    loose: set[int] = field(default_factory=set)  # charged by a caller that may hand out what it does not store
    sent: list[tuple[int, str]] = field(default_factory=list)  # by round of an exchange with other sites, from 0
    received: list[tuple[int, str]] = field(default_factory=list)
    open: bool = True

    @property
    def left(self) -> int:
        """Reserved events without a row."""
        return len(self.planned) - self.charged


class History:
    """What the log says: budget, rows and runs.  Its :meth:`apply` refuses what the rules would not have allowed."""

    def __init__(self, secret: bytes) -> None:
        self._key = keyed_hash(secret).hex()
        self.accountant: Accountant[Any] = accountants.make("pure")
        self.epsilon: Array = np.zeros(0)
        self.delta, self.since = 0.0, ""
        self.demonstration = False
        self.tag: str | None = None
        self.rows: list[Event] = []
        self.spent = Tally(self.accountant)
        self.relation: str | None = None
        self.runs: dict[str, RunHistory] = {}

    def apply(self, number: int, record: dict[str, Any]) -> None:
        """Take one record in; see :class:`sottovoce.privacy.chain.Fold`."""
        match record["kind"]:
            case "create" if number == 1 and record["key"] == self._key:
                self.accountant, self.delta = accountants.make(record["accountant"]), float(record["delta"])
                self.epsilon, self.since = np.array([float(e) for e in record["epsilon"]]), record["at"]
                self.spent, self.demonstration = Tally(self.accountant), record.get("demonstration", False)
            case "bind" if number > 1 and self.tag is None and not self.used:
                self.tag = record["tag"]
            case "reserve" if number > 1 and record["run"] not in self.runs:
                events, texts = [from_dict(e) for e in record["events"]], [canonical(e) for e in record["events"]]
                for event in events:
                    self.relation = same_relation(self.relation, event)
                self.runs[record["run"]] = RunHistory(record["plan"], events, texts, record["at"])
            case "charge" if number > 1:
                self._charge(record)
            case "store" if self._drawable(record):
                self.runs[record["run"]].stored[record["release"]] = number, record["digest"]
            case "fail" if self._drawable(record):
                self.runs[record["run"]].failed.add(record["release"])
            case "send" if self._turn(record) == (record["round"], record["round"]):
                self.runs[record["run"]].sent.append((number, record["digest"]))
            case "receive" if self._turn(record) == (record["round"] + 1, record["round"]):
                self.runs[record["run"]].received.append((number, record["digest"]))
            case "close" if self.runs[record["run"]].open:
                self.runs[record["run"]].open = False
            case _:
                raise ValueError

    def _charge(self, record: dict[str, Any]) -> None:
        if record["run"] is not None:
            run = self.runs[record["run"]]
            reserved = run.texts[run.charged : run.charged + 1]
            if not run.open or record["release"] != run.charged + 1 or [canonical(record["event"])] != reserved:
                raise ValueError
            run.charged += 1
            if not record["kept"]:
                run.loose.add(run.charged)
        event = from_dict(record["event"])
        self.relation = same_relation(self.relation, event)
        self.spent = self.spent.add(event)
        self.rows.append(event)

    def _drawable(self, record: dict[str, Any]) -> bool:
        run, release = self.runs[record["run"]], record["release"]
        return 1 <= release <= run.charged and release not in run.failed | run.loose | run.stored.keys()

    def _turn(self, record: dict[str, Any]) -> tuple[int, int]:
        """Messages sent and inboxes received so far in the run of `record`; one is sent, then one received."""
        run = self.runs[record["run"]]
        return len(run.sent), len(run.received)

    @property
    def used(self) -> bool:
        """Whether anything was spent or reserved."""
        return bool(self.rows or self.runs)

    def payloads(self) -> dict[int, str]:
        """Records that own a payload, with its digest."""
        runs = self.runs.values()
        return dict(pair for run in runs for pair in (*run.stored.values(), *run.sent, *run.received))

    def held(self) -> list[Event]:
        """Reserved events of open runs that have no row."""
        return [event for run in self.runs.values() if run.open for event in run.planned[run.charged :]]

    def price(self, *more: Sequence[Event]) -> Array:
        """Epsilon per node of all rows and `more`: always added up from the rows, in one order, never subtracted."""
        spent = self.spent
        for event in chain(*more):
            spent = spent.add(event)
        return spent.epsilon(self.delta)


class Readings(ABC):
    """What a ledger's rows come to."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

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
        """Epsilon of each node, shape (N,); shape () before the first event."""

    def total(self) -> float:
        """Epsilon of the whole network: the worst node, rows being disjoint over sites."""
        return float(np.max(self.per_node()))

    def claimed(self) -> float | None:
        """What the papers claim for the same rows, or None where one claims nothing."""
        book = Ledger(self.accountant, np.inf, self.delta)
        for event in self.rows:
            book.charge(event)
        return book.claimed()

    def to_list(self) -> list[dict[str, Any]]:
        """Rows as plain data."""
        return [event.to_dict() for event in self.rows]
