"""The meaning of a durable ledger's records, and the totals of its rows.

:class:`History` is the state that a log's records (:mod:`.chain`) add up to.  Kinds of records:

- ``create``: budget, accountant and key; ``bind``: a keyed hash of the data set;
- ``reserve``: a run with all its events; ``close``: the run's end;
- ``charge``: the row of a release, of a run or outside runs; ``store`` or ``fail``: its outcome;
- ``send``, ``receive``: a run's messages to and from other sites, by round;
- ``consent``: somebody agreed to a plan, by name; it costs nothing, and spends nothing.

An event is known by its *canonical text*, its JSON; equal texts are priced once.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, repeat
from typing import NamedTuple

import numpy as np

from ..privacy import accountants
from ..privacy.accountants import Accountant
from ..privacy.conditions import Conditions, pricing_events
from ..privacy.events import Event, from_dict, same_relation
from ..util.compatibility import FORMAT
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any, Array

_UNITS = 2.0**64
"""Units of a tally in 1 of the accountant's currency."""
MOST = 10_000_000
"""Most releases of one record, whose short count could otherwise stand for any number of rows."""


def _round_up_to_units(price: float) -> int | float:
    """Return a price in whole units, rounded up; infinity and NaN as they are."""
    # Exact, as a product with a power of two.
    units = float(price) * _UNITS
    if not math.isfinite(units):
        return units
    return math.ceil(units)


def _round_up_to_price(units: int | float) -> float:
    """Return units in the accountant's currency, rounded up to a float."""
    # Infinite, or no number.
    if isinstance(units, float):
        return units
    # The division rounds to the nearest float: take the next one up where that is below the exact
    # total.
    total = units / 2**64
    if total * _UNITS < units:
        return math.nextafter(total, math.inf)
    return total


class Tally:
    """A ledger's spending, in whole units of 2^-64 (of epsilon, rho or Renyi divergence).

    The price of an event is rounded up once and nothing after that, so a total does not depend on
    the events' order. Events with the same text are priced once, when a total is first asked for.
    """

    def __init__(self, accountant: Accountant[Any]) -> None:
        self._accountant = accountant
        self._prices: dict[str, Any] = {}
        # What is not in the sum yet: a ledger is read without pricing its rows.
        self._new: Counter[str] = Counter()
        self._sum: Any = None

    def count_releases(self, text: str, count: int = 1) -> None:
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
        self._sum = self._add_in_units(self._sum, self._new, events)
        self._new = Counter()
        return self._epsilon_of_units(self._add_in_units(self._sum, more, events), delta)

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
        return self._epsilon_of_units(self._price_in_units(text, event), delta)

    def _add_in_units(self, total: Any, more: Counter[str], events: Mapping[str, Event]) -> Any:
        """Return a sum in units with further releases; None stands for nothing."""
        for text, count in more.items():
            units = self._price_in_units(text, events[text]) * count
            if total is None:
                total = units
            else:
                total = total + units
        return total

    def _price_in_units(self, text: str, event: Event) -> Any:
        """Return the price of one event in whole units, per node."""
        if text not in self._prices:
            price = self._accountant.add_event(self._accountant.zero_spending(), event)
            # Whole numbers from here on: their sums are exact, so a total does not depend on the
            # order of rows (docs/reference/ledger.md, "Runs reserve before they spend").
            self._prices[text] = np.frompyfunc(_round_up_to_units, 1, 1)(
                np.asarray(price, dtype=object)
            )
        return self._prices[text]

    def _epsilon_of_units(self, total: Any, delta: float) -> Array:
        """Return the epsilon of a sum in units, per node."""
        if total is None:
            return self._accountant.epsilon(self._accountant.zero_spending(), delta)
        composed = np.asarray(np.frompyfunc(_round_up_to_price, 1, 1)(total), dtype=float)
        found = self._accountant.epsilon(composed, delta)
        # What has no number has no proof.
        return np.where(np.isnan(found), np.inf, found)


def packed(events: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return plain events in order, in short form: pairs of an event and its count.

    Equal events that follow one another become one with their count.  Of an event of the same class
    as the one before, only the fields that differ are kept.
    """
    found = list[tuple[dict[str, Any], int]]()
    before = dict[str, Any]()
    for _, equal in groupby(events, canonical_json):
        first, *others = equal
        changed = {
            name
            for name, value in first.items()
            if canonical_json(value) != canonical_json(before.get(name))
        }
        # An event of another class has fields of its own, so it is kept whole.
        short = first
        if "event" not in changed:
            short = {name: first[name] for name in changed}
        found.append((short, 1 + len(others)))
        before = first
    return found


def unpack_events(
    packs: Iterable[tuple[dict[str, Any], int]],
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield whole events, each with its count; ValueError for what :func:`packed` does not make."""
    before, left = dict[str, Any](), MOST
    for changed, count in packs:
        left -= _checked_count(count)
        # The first event has none before it that it could differ from.
        if not isinstance(changed, dict) or left < 0 or not ("event" in changed or before):
            raise ValueError
        if "event" in changed:
            before = changed
        else:
            before = before | changed
        yield before, count


def _checked_count(count: object) -> int:
    """Return a count of a record; ValueError if it is none."""
    # Not isinstance: JSON's true would be the count 1.
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
        By release: number of the record that stores its bytes, and their digest.
    failed : set of int
        Releases whose draw failed.
    loose : set of int
        Releases charged by a caller that may hand out what it does not store.
    sent, received : list of (int, str)
        By round of an exchange with other sites, from 0: number of the record, and the digest of
        the message or inbox.
    version : int, optional
        ``FORMAT`` when it was reserved; None before version 0.3.
    open : bool
        True if the run goes on.
    given_up : bool
        True if a person closed it from outside, and not the run at its own end.
    """

    plan: str
    planned: list[Event]
    texts: list[str]
    priced: list[str]
    since: str
    charged: int = 0
    stored: dict[int, tuple[int, str]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    loose: set[int] = field(default_factory=set)
    sent: list[tuple[int, str]] = field(default_factory=list)
    received: list[tuple[int, str]] = field(default_factory=list)
    version: int | None = None
    open: bool = True
    given_up: bool = False

    @property
    def state(self) -> str:
        """``open``, ``closed`` or ``given up``."""
        if self.open:
            return "open"
        if self.given_up:
            return "given up"
        return "closed"

    @property
    def has_other_format(self) -> bool:
        """True if another format reserved it: it keeps its price, and does not go on."""
        return self.version != FORMAT

    @property
    def left(self) -> int:
        """Number of reserved events without a row."""
        return len(self.planned) - self.charged

    @property
    def exchange_counts(self) -> tuple[int, int]:
        """Messages sent and inboxes received, which alternate."""
        return len(self.sent), len(self.received)

    def is_drawable(self, release: int) -> bool:
        """Return True if a release has a row whose draw has no known outcome yet."""
        known = release in self.stored or release in self.failed or release in self.loose
        return 1 <= release <= self.charged and not known


class Consent(NamedTuple):
    """Somebody's consent to a plan.

    Parameters
    ----------
    run, plan : str
        Name of the run, and digest of its plan.
    by : str
        Who agreed.
    at : str
        When, in ISO 8601.
    """

    run: str
    plan: str
    by: str
    at: str


def _is_anything(value: object) -> bool:
    return True


def _is_whole_number(value: object) -> bool:
    return type(value) is int


def _is_ascii_text(value: object) -> bool:
    return isinstance(value, str) and value.isascii()


def _is_whole_number_or_none(value: object) -> bool:
    return value is None or _is_whole_number(value)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_string_or_none(value: object) -> bool:
    return value is None or _is_string(value)


def _is_json_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_json_list(value: object) -> bool:
    return isinstance(value, list)


_FITS: dict[str, Callable[[Any], bool]] = {
    "kind": _is_ascii_text,
    "key": _is_ascii_text,
    "tag": _is_ascii_text,
    "digest": _is_ascii_text,
    "at": _is_ascii_text,
    "accountant": _is_ascii_text,
    "round": _is_whole_number,
    "count": _is_whole_number,
    "version": _is_whole_number,
    "release": _is_whole_number_or_none,
    "plan": _is_string,
    "run": _is_string_or_none,
    "by": _is_string,
    "kept": _is_boolean,
    "demonstration": _is_boolean,
    "given_up": _is_boolean,
    "epsilon": _is_json_list,
    "events": _is_json_list,
    "releases": _is_json_list,
    "event": _is_json_object,
}
"""Checks of the types of a record's entries, by name; entries that are not here may be anything."""


class History:
    """The state of a log: budget, rows and runs.

    :meth:`apply_record` refuses records that the rules do not allow.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = personalised_hash(secret).hex()
        self.accountant: Accountant[Any] = accountants.make_accountant("pure")
        self.epsilon: Array = np.zeros(0)
        self.delta, self.since = 0.0, ""
        self.demonstration = False
        # Keyed hashes of the digests by which the rows are known.
        self.tags: list[str] = []
        self.rows: list[Event] = []
        # Canonical text of the last charge outside runs.
        self.last = ""
        self.relation: str | None = None
        self.runs: dict[str, RunHistory] = {}
        self.consents: list[Consent] = []
        # By canonical text, so that an event is made once.
        self._events: dict[str, Event] = {}
        # Conditions of what was charged outside runs.
        self._alone = Conditions()
        self._tally = Tally(self.accountant)

    def apply_record(self, number: int, record: dict[str, Any]) -> None:
        """Apply one record; see :class:`sottovoce.ledger.chain.Fold`."""
        _check_entry_types(record)
        match record["kind"]:
            case "create" if number == 1 and record["key"] == self._key:
                self._set_budget(record)
            # A ledger is tied before its first use; later it may learn further digests of the same
            # rows.
            case "bind" if (
                number > 1
                and record["tag"] not in self.tags
                and (self.tags or not self.was_ever_used)
            ):
                self.tags.append(record["tag"])
            case "reserve" if number > 1 and record["run"] not in self.runs:
                self.runs[record["run"]] = self._build_reserved_run(record)
            case "charge" if number > 1:
                self._apply_charge(record)
            # A row has one outcome: bytes, a failed draw, or bytes that nobody promised to store.
            case "store" if self.runs[record["run"]].is_drawable(record["release"]):
                self.runs[record["run"]].stored[record["release"]] = number, record["digest"]
            case "fail" if self.runs[record["run"]].is_drawable(record["release"]):
                self.runs[record["run"]].failed.add(record["release"])
            # Messages and inboxes alternate: a round is sent after the inbox of the round before.
            case "send" if self.runs[record["run"]].exchange_counts == (
                record["round"],
                record["round"],
            ):
                self.runs[record["run"]].sent.append((number, record["digest"]))
            case "receive" if _is_awaited_inbox(self.runs[record["run"]], record["round"]):
                self.runs[record["run"]].received.append((number, record["digest"]))
            case "close" if self.runs[record["run"]].open:
                run = self.runs[record["run"]]
                run.open, run.given_up = False, record.get("given_up", False)
            case "consent" if number > 1 and record["run"] is not None:
                self.consents.append(
                    Consent(record["run"], record["plan"], record["by"], record["at"])
                )
            case _:
                raise ValueError

    def _set_budget(self, record: dict[str, Any]) -> None:
        """Set the budget, of which all later records are."""
        self.epsilon = np.array([float(e) for e in record["epsilon"]])
        self.delta = float(record["delta"])
        # "zcdp" without an order is of a version that showed less than is proved: see
        # `sottovoce.privacy.accountants.at_one_order`.
        self.accountant = accountants.lifetime_accountant(
            record["accountant"], self.epsilon, self.delta
        )
        self.since = record["at"]
        self.demonstration = record.get("demonstration", False)
        self._tally = Tally(self.accountant)

    def _event_of_text(self, text: str, plain: dict[str, Any]) -> Event:
        """Return the event of a canonical text; ValueError if it does not fit the ledger."""
        if text not in self._events:
            event = from_dict(plain)
            # Prices are per node: an array of an event has one entry, or one for each node.
            sizes = {value.size for value in vars(event).values() if isinstance(value, np.ndarray)}
            if not sizes <= {1, len(self.epsilon)}:
                raise ValueError
            self.relation = same_relation(self.relation, event)
            self._events[text] = event
        return self._events[text]

    def _text_of_price(self, text: str, event: Event, priced: Event) -> str:
        """Return the canonical text of the event `priced` that prices `event`, of this `text`."""
        if priced is event:
            return text
        plain = priced.to_dict()
        priced_text = canonical_json(plain)
        self._event_of_text(priced_text, plain)
        return priced_text

    def _build_reserved_run(self, record: dict[str, Any]) -> RunHistory:
        """Return the run of a ``reserve`` record.

        Schema 5 holds its events packed, under ``releases``; earlier ones hold each event whole,
        under ``events``.
        """
        if "events" in record and "releases" in record:
            raise ValueError
        packs: Iterable[tuple[dict[str, Any], int]]
        if "releases" in record:
            packs = unpack_events(record["releases"])
        else:
            packs = ((one, 1) for one in record["events"])
        texts, events = list[str](), list[Event]()
        for plain, count in packs:
            text = canonical_json(plain)
            texts += [text] * count
            events += [self._event_of_text(text, plain)] * count
        priced = [
            self._text_of_price(*each)
            for each in zip(texts, events, pricing_events(events), strict=True)
        ]
        return RunHistory(
            record["plan"], events, texts, priced, record["at"], version=record.get("version")
        )

    def _apply_charge(self, record: dict[str, Any]) -> None:
        """Write the row of a release of a run, or of one or more equal ones outside runs.

        Since schema 5 an event that is known is left out: the reserved one, or that of the last
        charge outside runs.
        """
        count = 1
        if "count" in record:
            count = _checked_count(record["count"])
        if record["run"] is None:
            self._charge_outside_runs(record.get("event"), count)
        elif count > 1:
            raise ValueError
        else:
            self._charge_in_run(self.runs[record["run"]], record)

    def _charge_in_run(self, run: RunHistory, record: dict[str, Any]) -> None:
        """Write the row of the next release that a run reserved."""
        if not run.open or not run.left or record["release"] != run.charged + 1:
            raise ValueError
        told = record.get("event")
        if told is not None and canonical_json(told) != run.texts[run.charged]:
            raise ValueError
        self.rows.append(run.planned[run.charged])
        self._tally.count_releases(run.priced[run.charged])
        run.charged += 1
        if not record["kept"]:
            run.loose.add(run.charged)

    def _charge_outside_runs(self, told: dict[str, Any] | None, count: int) -> None:
        """Write rows of equal releases of an event; None stands for that of the last charge."""
        if told is None:
            text = self.last
            event = self._events[text]
        else:
            text = canonical_json(told)
            event = self._event_of_text(text, told)
        self.last = text
        self.rows.extend(repeat(event, count))
        if count == 1:
            self._tally.count_releases(
                self._text_of_price(text, event, self._alone.charge_event(event))
            )
            return
        # An event is its own key, so equal prices are counted together.
        counts = Counter(self._alone.charge_event(event) for _ in range(count))
        for priced, times in counts.items():
            self._tally.count_releases(self._text_of_price(text, event, priced), times)

    @property
    def was_ever_used(self) -> bool:
        """True if anything was charged or reserved."""
        return bool(self.rows or self.runs)

    def payload_digests(self) -> dict[int, str]:
        """Return records that own a payload, with its digest."""
        digests = dict[int, str]()
        for run in self.runs.values():
            digests.update([*run.stored.values(), *run.sent, *run.received])
        return digests

    def held(self) -> Counter[str]:
        """Return what open runs hold: the texts that price events without a row, with counts."""
        texts = Counter[str]()
        for run in self.runs.values():
            if run.open:
                texts.update(run.priced[run.charged :])
        return texts

    def pricing_caveats(self) -> list[str]:
        """Return caveats on the prices of the events in this ledger, for its readers."""
        return sorted({event.caution for event in self._events.values() if event.caution})

    def epsilon_per_node(
        self, more: Mapping[str, int] | None = None, events: dict[str, Event] | None = None
    ) -> Array:
        """Return the epsilon of each node by all rows, and by some more.

        Parameters
        ----------
        more : mapping of str to int, optional
            Further releases that are not in the log: how often each canonical text counts.
        events : dict of Event, optional
            The events of those texts that the log does not know.

        Returns
        -------
        array (N,)
        """
        known = ChainMap(events or {}, self._events)
        return self._tally.epsilon(self.delta, known, Counter(more or {}))

    def pricing_events_outside_runs(self, event: Event, count: int) -> list[Event]:
        """Return the events that price `count` equal releases, charged outside runs now."""
        if count == 1:
            return [self._alone.pricing_event(event)]
        trial = self._alone.copy()
        return [trial.charge_event(event) for _ in range(count)]

    def alone(self, text: str, event: Event) -> Array:
        """Return the epsilon per node of one event, of this text."""
        return self._tally.alone(text, event, self.delta)


def _check_entry_types(record: object) -> None:
    """Raise ValueError unless it is a record whose entries have their types."""
    if not isinstance(record, dict):
        raise ValueError
    if not all(_FITS.get(key, _is_anything)(value) for key, value in record.items()):
        raise ValueError


def _is_awaited_inbox(run: RunHistory, round: int) -> bool:
    """Return True if the inbox of a round is next: its message was sent, and no inbox came."""
    return run.exchange_counts == (round + 1, round)
