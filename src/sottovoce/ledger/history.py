"""The meaning of a durable ledger's records, and the totals of its rows."""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, repeat

import numpy as np

from ..privacy import accountants
from ..privacy.accountants import Accountant
from ..privacy.conditions import Conditions, all_priced
from ..privacy.events import Event, from_dict, same_relation
from ..util.compatibility import FORMAT
from ..util.plain import canonical, keyed_hash
from ..util.typing import Any, Array

_UNITS = 2.0**64  # to one of the accountant's currency
MOST = 10_000_000
"""Releases of a record: a count is short, however long the list that it stands for."""


def _up(price: float) -> int | float:
    units = float(price) * _UNITS  # exact: a power of two
    return math.ceil(units) if math.isfinite(units) else units


def _down(units: int | float) -> float:
    if isinstance(units, float):  # infinite, or no number
        return units
    # The division rounds to the nearest float: take the next one up where that is below the exact
    # total.
    total = units / 2**64
    return total if total * _UNITS >= units else math.nextafter(total, math.inf)


class Tally:
    """Spending in whole units of 2^-64 (of epsilon, rho or Renyi divergence).

    The price of an event is rounded up once and nothing after that, so a total does not depend on
    the events' order. Events with the same text are priced once, when a total is first asked for.
    """

    def __init__(self, accountant: Accountant[Any]) -> None:
        self._accountant = accountant
        self._prices: dict[str, Any] = {}
        self._new: Counter[str] = Counter()  # not in the sum yet
        self._sum: Any = None

    def add(self, text: str, count: int = 1) -> None:
        """Count releases by the canonical text of their event; a total prices them later."""
        self._new[text] += count

    def epsilon(self, delta: float, events: Mapping[str, Event], more: Counter[str]) -> Array:
        """Return the epsilon of each node, by all releases added so far and by some more.

        Parameters
        ----------
        delta : float
            0 for pure epsilon.
        events : mapping of str to Event
            The event of every canonical text.
        more : Counter of str
            How often each text is to be counted in addition; they are not added.

        Returns
        -------
        array (N,)
            Shape () before the first event; infinite where the accountant has no number.
        """
        self._sum, self._new = self._plus(self._sum, self._new, events), Counter()
        return self._epsilon(self._plus(self._sum, more, events), delta)

    def alone(self, text: str, event: Event, delta: float) -> Array:
        """Return the epsilon of each node by one event alone.

        Parameters
        ----------
        text : str
            Canonical text of the event, under which its price is cached.
        event : Event
        delta : float
            0 for pure epsilon.

        Returns
        -------
        array (N,)
            Shape () for an event that costs all nodes the same.
        """
        return self._epsilon(self._price(text, event), delta)

    def _plus(self, total: Any, more: Counter[str], events: Mapping[str, Event]) -> Any:
        for text, count in more.items():
            units = self._price(text, events[text]) * count
            total = units if total is None else total + units
        return total

    def _price(self, text: str, event: Event) -> Any:
        if text not in self._prices:
            price = self._accountant.add(self._accountant.nothing(), event)
            # Whole numbers from here on: their sums are exact, so a total does not depend on the
            # order of rows (docs/reference/ledger.md, "Runs reserve before they spend").
            self._prices[text] = np.frompyfunc(_up, 1, 1)(np.asarray(price, dtype=object))
        return self._prices[text]

    def _epsilon(self, total: Any, delta: float) -> Array:
        if total is None:
            return self._accountant.epsilon(self._accountant.nothing(), delta)
        found = self._accountant.epsilon(
            np.asarray(np.frompyfunc(_down, 1, 1)(total), dtype=float), delta
        )
        return np.where(np.isnan(found), np.inf, found)  # what has no number has no proof


def packed(events: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return plain events in order, in short form.

    Equal events that follow one another are one with their count; an event of the same class as the
    one before is what differs from that.
    """
    found, before = list[tuple[dict[str, Any], int]](), dict[str, Any]()
    for _, some in groupby(events, canonical):
        first, *others = some
        changed = {
            name for name, value in first.items() if canonical(value) != canonical(before.get(name))
        }
        found.append(
            (
                first if "event" in changed else {name: first[name] for name in changed},
                1 + len(others),
            )
        )
        before = first
    return found


def unpacked(packs: Iterable[tuple[dict[str, Any], int]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Whole events, each with its count; ValueError for what :func:`packed` does not make."""
    before, left = dict[str, Any](), MOST
    for changed, count in packs:
        left -= _counted(count)
        if not isinstance(changed, dict) or left < 0 or not ("event" in changed or before):
            raise ValueError
        before = changed if "event" in changed else before | changed
        yield before, count


def _counted(count: object) -> int:
    if type(count) is not int or not 1 <= count <= MOST:
        raise ValueError
    return count


@dataclass
class RunHistory:
    """One run: what it reserved, and how far it has come.  Releases are numbered from 1.

    Parameters
    ----------
    plan : str
        Digest of all that the run depends on.
    planned : list of Event
        All reserved releases, in order.
    texts : list of str
        Their canonical texts.
    priced : list of str
        Canonical texts of what prices them (:mod:`sottovoce.privacy.conditions`).
    since : str
        When it was reserved.
    charged : int
        How many have a row.
    stored : dict
        By release, the record and the digest of its stored bytes.
    failed : set of int
        Releases whose draw failed.
    loose : set of int
        Releases charged by a caller that may hand out what it does not store.
    sent, received : list of (int, str)
        By round of an exchange with other sites, from 0: record and digest.
    version : int, optional
        ``FORMAT`` when it was reserved; None before version 0.3.
    open, given_up : bool
        Whether the run goes on; whether it was closed from outside, and not at its own end.
    """

    plan: str
    planned: list[Event]
    texts: list[str]
    priced: list[str]  # texts of what prices them: see sottovoce.privacy.conditions
    since: str
    charged: int = 0
    # release -> (record, digest of the payload)
    stored: dict[int, tuple[int, str]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    # charged by a caller that may hand out what it does not store
    loose: set[int] = field(default_factory=set)
    # by round of an exchange with other sites, from 0
    sent: list[tuple[int, str]] = field(default_factory=list)
    received: list[tuple[int, str]] = field(default_factory=list)
    version: int | None = None  # FORMAT when it was reserved; None before version 0.3
    open: bool = True
    given_up: bool = False  # closed from outside, by a person, and not by the run at its own end

    @property
    def state(self) -> str:
        """``open``, ``closed`` or ``given up``."""
        if self.open:
            return "open"
        return "given up" if self.given_up else "closed"

    @property
    def former(self) -> bool:
        """True if another format reserved it: it keeps its price, and does not go on."""
        return self.version != FORMAT

    @property
    def left(self) -> int:
        """Reserved events without a row."""
        return len(self.planned) - self.charged

    @property
    def exchanged(self) -> tuple[int, int]:
        """Messages sent and inboxes received, which alternate."""
        return len(self.sent), len(self.received)

    def is_drawable(self, release: int) -> bool:
        """Return True if a release has a row whose draw has no known outcome yet."""
        known = release in self.stored or release in self.failed or release in self.loose
        return 1 <= release <= self.charged and not known


def _any(value: object) -> bool:
    return True


def _whole(value: object) -> bool:
    return type(value) is int


def _text(value: object) -> bool:
    return isinstance(value, str) and value.isascii()


def _whole_or_none(value: object) -> bool:
    return value is None or _whole(value)


def _string(value: object) -> bool:
    return isinstance(value, str)


def _string_or_none(value: object) -> bool:
    return value is None or _string(value)


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _list(value: object) -> bool:
    return isinstance(value, list)


_FITS: dict[
    str, Callable[[Any], bool]
] = {  # of an entry of a record: whether a value is of its type
    "kind": _text,
    "key": _text,
    "tag": _text,
    "digest": _text,
    "at": _text,
    "accountant": _text,
    "round": _whole,
    "count": _whole,
    "version": _whole,
    "release": _whole_or_none,
    "plan": _string,
    "run": _string_or_none,
    "kept": _flag,
    "demonstration": _flag,
    "given_up": _flag,
    "epsilon": _list,
    "events": _list,
    "releases": _list,
    "event": _object,
}


class History:
    """The state of a log: budget, rows and runs.

    :meth:`apply` refuses records that the rules do not allow.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = keyed_hash(secret).hex()
        self.accountant: Accountant[Any] = accountants.make_accountant("pure")
        self.epsilon: Array = np.zeros(0)
        self.delta, self.since = 0.0, ""
        self.demonstration = False
        self.tags: list[str] = []  # keyed hashes of the digests by which the rows are known
        self.rows: list[Event] = []
        self.last = ""  # text of the last charge outside runs
        self.relation: str | None = None
        self.runs: dict[str, RunHistory] = {}
        self._events: dict[str, Event] = {}
        self._alone = Conditions()  # of what was charged outside runs
        self._tally = Tally(self.accountant)

    def apply(self, number: int, record: dict[str, Any]) -> None:
        """Apply one record; see :class:`sottovoce.ledger.chain.Fold`."""
        if not isinstance(record, dict) or not all(
            _FITS.get(key, _any)(value) for key, value in record.items()
        ):
            raise ValueError
        match record["kind"]:
            case "create" if number == 1 and record["key"] == self._key:
                self.epsilon, self.delta = (
                    np.array([float(e) for e in record["epsilon"]]),
                    float(record["delta"]),
                )
                # "zcdp" without an order is of a version that showed less than is proved: see
                # at_one_order.
                self.accountant = accountants.for_life(
                    record["accountant"], self.epsilon, self.delta
                )
                self.since, self.demonstration = record["at"], record.get("demonstration", False)
                self._tally = Tally(self.accountant)
            # A ledger is tied before its first use; later it may learn further digests of the same
            # rows.
            case "bind" if (
                number > 1 and record["tag"] not in self.tags and (self.tags or not self.used)
            ):
                self.tags.append(record["tag"])
            case "reserve" if number > 1 and record["run"] not in self.runs:
                self.runs[record["run"]] = self._reserved(record)
            case "charge" if number > 1:
                self._charge(record)
            # A row has one outcome: bytes, a failed draw, or bytes that nobody promised to store.
            case "store" if self.runs[record["run"]].is_drawable(record["release"]):
                self.runs[record["run"]].stored[record["release"]] = number, record["digest"]
            case "fail" if self.runs[record["run"]].is_drawable(record["release"]):
                self.runs[record["run"]].failed.add(record["release"])
            # Messages and inboxes alternate: a round is sent after the inbox of the round before.
            case "send" if self.runs[record["run"]].exchanged == (record["round"], record["round"]):
                self.runs[record["run"]].sent.append((number, record["digest"]))
            case "receive" if self.runs[record["run"]].exchanged == (
                record["round"] + 1,
                record["round"],
            ):
                self.runs[record["run"]].received.append((number, record["digest"]))
            case "close" if self.runs[record["run"]].open:
                run = self.runs[record["run"]]
                run.open, run.given_up = False, record.get("given_up", False)
            case _:
                raise ValueError

    def _event(self, text: str, plain: dict[str, Any]) -> Event:
        if text not in self._events:
            event = from_dict(plain)
            # Prices are per node: an array of an event has one entry, or one for each node.
            sizes = {value.size for value in vars(event).values() if isinstance(value, np.ndarray)}
            if not sizes <= {1, len(self.epsilon)}:
                raise ValueError
            self.relation = same_relation(self.relation, event)
            self._events[text] = event
        return self._events[text]

    def _priced(self, text: str, event: Event, priced: Event) -> str:
        """Return the text of what prices this event."""
        if priced is not event:
            text = canonical(plain := priced.to_dict())
            self._event(text, plain)
        return text

    def _reserved(self, record: dict[str, Any]) -> RunHistory:
        """Return a run; schemas before 5 hold every event whole, under ``events``."""
        if "events" in record and "releases" in record:
            raise ValueError
        packs = (
            unpacked(record["releases"])
            if "releases" in record
            else ((one, 1) for one in record["events"])
        )
        texts, events = list[str](), list[Event]()
        for plain, count in packs:
            text = canonical(plain)
            texts += [text] * count
            events += [self._event(text, plain)] * count
        priced = [
            self._priced(*each) for each in zip(texts, events, all_priced(events), strict=True)
        ]
        return RunHistory(
            record["plan"], events, texts, priced, record["at"], version=record.get("version")
        )

    def _charge(self, record: dict[str, Any]) -> None:
        """A release of a run, or so many equal ones outside runs.

        Since schema 5 an event that is known is left out: the reserved one, or that of the last
        charge outside runs.
        """
        count = _counted(record["count"]) if "count" in record else 1
        if record["run"] is None:
            self._charge_outside_runs(record.get("event"), count)
        elif count > 1:
            raise ValueError
        else:
            self._charge_in_run(self.runs[record["run"]], record)

    def _charge_in_run(self, run: RunHistory, record: dict[str, Any]) -> None:
        """The next release that the run reserved."""
        if not run.open or not run.left or record["release"] != run.charged + 1:
            raise ValueError
        told = record.get("event")
        if told is not None and canonical(told) != run.texts[run.charged]:
            raise ValueError
        self.rows.append(run.planned[run.charged])
        self._tally.add(run.priced[run.charged])
        run.charged += 1
        if not record["kept"]:
            run.loose.add(run.charged)

    def _charge_outside_runs(self, told: dict[str, Any] | None, count: int) -> None:
        text = self.last if told is None else canonical(told)
        event = self._events[text] if told is None else self._event(text, told)
        self.last = text
        self.rows.extend(repeat(event, count))
        if count == 1:
            self._tally.add(self._priced(text, event, self._alone.add(event)))
            return
        for priced, times in Counter(
            self._alone.add(event) for _ in range(count)
        ).items():  # an event is its own key
            self._tally.add(self._priced(text, event, priced), times)

    @property
    def used(self) -> bool:
        return bool(self.rows or self.runs)

    def payloads(self) -> dict[int, str]:
        """Return records that own a payload, with its digest."""
        runs = self.runs.values()
        return dict(
            pair for run in runs for pair in (*run.stored.values(), *run.sent, *run.received)
        )

    def held(self) -> Counter[str]:
        """Return texts of what prices reserved events of open runs that have no row."""
        return Counter(
            text for run in self.runs.values() if run.open for text in run.priced[run.charged :]
        )

    def cautions(self) -> list[str]:
        """Return caveats on the prices of these events."""
        return sorted({event.caution for event in self._events.values() if event.caution})

    def price(
        self, more: Mapping[str, int] | None = None, events: dict[str, Event] | None = None
    ) -> Array:
        """Return the epsilon of each node by all rows, and by some more.

        Parameters
        ----------
        more : mapping of str to int, optional
            How often each canonical text counts in addition.
        events : dict of Event, optional
            Those of the texts that are not in the log.

        Returns
        -------
        array (N,)
        """
        return self._tally.epsilon(
            self.delta, ChainMap(events or {}, self._events), Counter(more or {})
        )

    def next(self, event: Event, count: int) -> list[Event]:
        """Return the events that price `count` equal releases, charged outside runs now."""
        if count == 1:
            return [self._alone.priced(event)]
        trial = self._alone.copy()
        return [trial.add(event) for _ in range(count)]

    def alone(self, text: str, event: Event) -> Array:
        """Return the epsilon per node of one event, of this text."""
        return self._tally.alone(text, event, self.delta)
