"""The ledger in memory: a row for every release, written before the release is drawn.

It belongs to the data set, not to the run.  A crash between the row and the noise over-counts; nothing can under-count.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, NoReturn, Self

import numpy as np

from ..errors import BudgetExceeded, InvalidInput, LedgerError, LedgerMismatch
from ..privacy.accountants import Accountant, at_one_order, for_life
from ..privacy.conditions import Conditions
from ..privacy.events import Event, counted, from_dict, same_relation
from ..util.typing import Any, Array, ArrayLike


def validate_target(epsilon: ArrayLike, delta: float | None) -> None:
    """Refuse (InvalidInput) an epsilon that is not > 0 (infinity is allowed), or a delta outside (0, 1)."""
    try:
        values = np.asarray(epsilon).astype(float, casting="same_kind")
    except (TypeError, ValueError):
        raise InvalidInput("epsilon", epsilon, "must be a number", "use e.g. epsilon=1") from None
    if np.any(np.isnan(values)) or np.any(values <= 0):
        shown = epsilon if values.ndim == 0 else values.tolist()
        raise InvalidInput(
            "epsilon", shown, "must be > 0", "use e.g. epsilon=1, or epsilon=inf for a run without noise"
        )
    if delta is not None and not 0.0 < delta < 1.0:
        raise InvalidInput("delta", delta, "must lie inside (0, 1)", "use e.g. delta=1e-5, or none for pure epsilon")


_STAYS = (
    "ledger: one in memory stays in its process, where charges from elsewhere would be lost; nothing was drawn; use "
    "n_jobs=1, threads (joblib's 'threading') or a DurableLedger"
)


_Spent = dict[bytes | None, Any]  # by deal


class _Row(NamedTuple):
    """Equal releases in a row, under one deal."""

    event: Event
    deal: bytes | None
    priced: Event
    times: int


class Ledger:
    """An in-memory ledger of one data set.  It is never copied: clones of an estimator share its ledger.

    Parameters
    ----------
    accountant : Accountant or str
        A name is passed to :func:`sottovoce.privacy.accountants.for_life`: its totals hold for releases that are chosen
        in view of earlier ones.  An accountant is used as it is, for one run whose releases are fixed beforehand.
    epsilon : float or array (N,)
        Budget of every node; infinity records without limiting.
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.

    Notes
    -----
    *Deals.* Charges with the same `deal` (a digest, or None if the caller vouches for it) concern the same rows at the
    same nodes, and add up node by node.  With several deals nobody knows at which nodes a row was, and the total is the
    sum over deals of the worst node (of the `sites_per_row` worst nodes together): spending is an array of sums, and in
    no deal can a row have cost more (``docs/reference/ledger.md``).  Accountants without such sums refuse a second
    deal.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusClassifier, Ledger
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> ledger = Ledger("zcdp", epsilon=3.0, delta=1e-5)
    >>> model = ConsensusClassifier("momentum", rounds=10, data_norm=3.0, ledger=ledger, random_state=0)
    >>> bool(model.fit(X, X[:, 0] > 0).privacy_spent_["ledger"]["spent"] <= ledger.epsilon)
    True
    """

    def __init__(
        self, accountant: Accountant[Any] | str = "pure", epsilon: ArrayLike = np.inf, delta: float = 0.0,
        sites_per_row: int = 1,
    ) -> None:  # fmt: skip
        validate_target(epsilon, delta or None)
        if isinstance(accountant, str):
            accountant = for_life(accountant, np.asarray(epsilon, dtype=float), delta)
        if not isinstance(sites_per_row, int | np.integer) or sites_per_row < 1:
            raise InvalidInput("sites_per_row", sites_per_row, "must be a whole number, at least 1", "use 1")
        self.accountant: Accountant[Any] = accountant
        self.epsilon, self.delta, self.sites_per_row = epsilon, delta, int(sites_per_row)
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._rows: list[_Row] = []
        self._conditions: dict[bytes | None, Conditions] = {}  # by deal, of what was charged outside a Joint
        self._spent: _Spent = {}
        self._sizes: dict[bytes | None, int] = {}  # nodes
        self._held: list[Joint] = []
        self._expected: deque[tuple[Event, Event]] = deque()  # with what prices each
        self._relation: str | None = None
        self._trial = False

    def __repr__(self) -> str:
        values = f"{self.accountant.label!r}, epsilon={np.asarray(self.epsilon).tolist()}, delta={self.delta:g}"
        return f"Ledger({values}, sites_per_row={self.sites_per_row})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Elsewhere, ()

    @property
    def rows(self) -> tuple[Event, ...]:
        """All events so far, in the order of their charges."""
        return tuple(row.event for row in self._rows for _ in range(row.times))

    def charge(self, event: Event, *, deal: bytes | None = None, count: int = 1) -> None:
        """Record `event`, or refuse it; with a `count` that many equal releases, all of them or none.

        An event out of the conditions of its proof is charged what it costs then (:mod:`sottovoce.privacy.conditions`).

        Parameters
        ----------
        deal : bytes, optional
            Digest of which row is at which node; None if the caller vouches that it is that of all charges with None.

        Raises
        ------
        BudgetExceeded
            If any node's total would pass its budget.  Nothing is recorded.
        UnknownEvent
            If the accountant cannot price it.
        InvalidInput
            If its relation, or its number of nodes, is not that of the events before it.
        """
        if not isinstance(count, int | np.integer) or count < 1:
            raise InvalidInput("count", count, "must be a whole number, at least 1", "use 1")
        with self._lock:
            if count == 1:
                self._take(event, deal, *self._next(event, deal))
                return
            trial = self._conditions_of(deal).copy()
            priced = [trial.add(event) for _ in range(count)]
            self._afford(priced, deal)
            for each in priced:
                self._take(event, deal, each, self._plus(deal, [each]))

    def charge_all(self, events: Sequence[Event], times: int = 1) -> None:
        """Record these releases, in order and `times` in a row, or none of them (BudgetExceeded, as by :meth:`charge`).

        What is spent is the same to the last bit as if they were charged one by one.

        Raises
        ------
        BudgetExceeded, UnknownEvent
            As by :meth:`charge`.
        InvalidInput
            If `times` is no whole number, at least 1.
        """
        if not isinstance(times, int | np.integer) or isinstance(times, bool) or times < 1:
            raise InvalidInput("times", times, "must be a whole number, at least 1", "use 1")
        with self._lock:
            conditions = self._conditions_of(None).copy()
            rows = [(event, conditions.add(event)) for event in events]
            if any(event.needs == "rounds" for event in events):
                # A later time may cost more than the first, whose rounds may have followed rounds charged before.
                rows += [(event, conditions.add(event)) for _ in range(times - 1) for event in events]
            else:  # what prices an event that needs no rounds is the same every time
                rows *= times
            spent = self._afford([price for _, price in rows], None)
            for event, price in rows:
                self._write(event, None, price, spent)
            self._conditions[None] = conditions

    def expect(self, events: Sequence[Event]) -> None:
        """Test once what a run will charge, in order; while it charges these, and nobody else does, it is not tested.

        The first releases of a run tell no more than all of them, so no test of theirs can fail.  If not all are
        affordable, nothing happens: every charge is tested, and the run ends where the budget does.
        """
        with self._lock:
            trial = self._conditions_of(None).copy()
            both = deque((event, trial.add(event)) for event in events)
            try:
                self._afford([priced for _, priced in both], None)
            except BudgetExceeded:
                return
            self._expected = both

    def settle(self) -> None:
        """Fix the order at which epsilon is read, if the accountant has orders: later runs will be chosen.

        See :func:`sottovoce.privacy.accountants.at_one_order`; what was spent is shown as no less.
        """
        with self._lock:
            chosen = at_one_order(self.accountant, np.asarray(self.epsilon, dtype=float), self.delta)
            if chosen is not self.accountant:
                self._expected.clear()
                again = _added(chosen, {}, ((row.deal, row.priced, row.times) for row in self._rows))
                self.accountant, self._spent = chosen, again  # an interrupt before this line changes nothing

    def trial(self) -> Ledger:
        """A copy to try out charges, which accepts no release."""
        with self._lock:
            twin = Ledger(self.accountant, self.epsilon, self.delta, self.sites_per_row)
            twin._rows, twin._held = list(self._rows), list(self._held)
            twin._spent, twin._sizes, twin._relation = dict(self._spent), dict(self._sizes), self._relation
            twin._conditions = {deal: conditions.copy() for deal, conditions in self._conditions.items()}
            twin._trial = True
            return twin

    def once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge `event`, and only then draw its release."""
        self._take_releases()
        self.charge(event)
        return draw()

    def per_node(self) -> Array:
        """Epsilon spent by each node, (N,); () before the first event, (1,) after several deals."""
        with self._lock:
            return self.accountant.epsilon(self._merged(self._spent)[0], self.delta)

    def total(self) -> float:
        """Epsilon of the whole network: the worst node, or the worst `sites_per_row` nodes together."""
        with self._lock:
            return self._total(self._spent)

    def against(self, coalition: Collection[int]) -> float:
        """Epsilon of a person with no row at these sites, against them together: of the worst nodes outside.

        Sums over sites are priced against as many colluders as the coalition has sites, if their plan allowed fewer.
        InvalidInput if there is no such site.
        """
        inside = set(coalition)
        with self._lock:
            most = max(self._sizes.values(), default=0)
            strange = [i for i in inside if not 0 <= i < most]
            if strange and self._rows:
                raise InvalidInput("coalition", min(strange), f"sites are numbered 0 to {most - 1}", "name others")
            outside = {deal: [i for i in range(size) if i not in inside] for deal, size in self._sizes.items()}
            spent = self._seen_by(len(inside))
            return self._total(
                {deal: self.accountant.among(spent[deal], some) for deal, some in outside.items() if some}
            )

    def report(self) -> dict[str, float]:
        """The network's epsilon by every notion that the accountant knows."""
        with self._lock:
            spent, m = self._merged(self._spent)
            return self.accountant.report(spent, self.delta, m)

    def claims(self) -> Array | None:
        """The paper's claim for the same run, per node; None where it claims nothing."""
        if len(self._spent) > 1:  # no paper deals rows anew
            return None
        rhos = [getattr(event, "claimed_rho", None) for event in self.rows]
        sums = [rho for rho in rhos if rho is not None]
        if sums and len(sums) == len(rhos) and self.delta > 0:  # 004, Theorem 3.3
            rho = np.sum(sums, axis=0)
            return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / self.delta)))
        claims = [getattr(event, "claimed", None) for event in self.rows]
        known = [claim for claim in claims if claim is not None]
        return np.asarray(np.sum(known, axis=0)) if known and len(known) == len(claims) else None

    def claimed(self) -> float | None:
        """The largest of :meth:`claims`."""
        claims = self.claims()
        return None if claims is None else float(np.max(claims))

    def to_list(self) -> list[dict[str, Any]]:
        return [event.to_dict() for event in self.rows]

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Take over rows of an earlier part of the same run, which were checked against the budget then."""
        with self._lock:
            for row in rows:
                event = from_dict(row)
                priced = self._conditions_of(None).priced(event)
                self._foreseen(event, None, priced)
                self._take(event, None, priced, self._plus(None, [priced]))

    def _take_releases(self) -> None:
        if self._trial:
            raise LedgerError("ledger: this is the trial() of another, which would not know; nothing was drawn")

    # Under the lock

    def _seen_by(self, sites: int) -> _Spent:
        """What is spent, by deal, against that many sites together."""
        if all(row.event.against(sites) is row.event for row in self._rows):
            return self._spent
        seen = ((row.deal, row.priced.against(sites), row.times) for row in self._rows)
        return _added(self.accountant, {}, seen)

    def _conditions_of(self, deal: bytes | None) -> Conditions:
        return self._conditions.setdefault(deal, Conditions(self.sites_per_row))

    def _plus(self, deal: bytes | None, events: Iterable[Event]) -> Any:
        """What is spent under a deal, these events included."""
        before = {deal: self._spent[deal] if deal in self._spent else self.accountant.nothing()}
        return _added(self.accountant, before, ((deal, event, count) for event, count in counted(events)))[deal]

    def _next(self, event: Event, deal: bytes | None) -> tuple[Event, Any]:
        """What prices an event, and what is spent under a deal with it; refused as by :meth:`charge`."""
        priced = self._conditions_of(deal).priced(event)
        self._stays()
        return priced, self._plus(deal, [priced]) if self._foreseen(event, deal, priced) else self._afford(
            [priced], deal
        )

    def _foreseen(self, event: Event, deal: bytes | None, priced: Event) -> bool:
        """Whether it is the next of the releases that were tested together; if not, none of them is expected now."""
        if self._expected and deal is None:
            known, price = self._expected[0]
            if known.terms == event.terms and price.terms == priced.terms:
                self._expected.popleft()
                return True
        self._expected.clear()
        return False

    def _stays(self) -> None:
        if os.getpid() != self._pid:  # a fork copies it unasked
            raise LedgerError(_STAYS)

    def _take(self, event: Event, deal: bytes | None, priced: Event, spent: Any) -> None:
        self._write(event, deal, priced, spent)
        self._conditions_of(deal).add(event)  # last: after an interrupt the next round is priced alone

    def _write(self, event: Event, deal: bytes | None, priced: Event, spent: Any) -> None:
        self._relation = same_relation(self._relation, event)
        self._sizes[deal] = max(self._sizes.get(deal, 1), event.nodes)
        self._spent[deal] = spent
        last = self._rows[-1] if self._rows else None
        if last and last.deal == deal and (last.event.terms, last.priced.terms) == (event.terms, priced.terms):
            self._rows[-1] = last._replace(times=last.times + 1)
        else:
            self._rows.append(_Row(event, deal, priced, 1))

    def _merged(self, spent: _Spent) -> tuple[Any, int]:
        """The spending of all deals, and how many of its nodes hold a row."""
        if len(spent) <= 1:
            return next(iter(spent.values()), self.accountant.nothing()), self.sites_per_row
        first, *others = (self.accountant.worst(each, self.sites_per_row) for each in spent.values())
        return sum(others, first), 1

    def _total(self, spent: _Spent) -> float:
        book, m = self._merged(spent)
        if m == 1:
            return float(np.max(self.accountant.epsilon(book, self.delta)))
        return self.accountant.network(book, self.delta, m)

    def _afford(self, events: Sequence[Event], deal: bytes | None) -> Any:
        """What is spent under `deal` after these; refused if it, with what open runs hold, passes a budget."""
        self._stays()
        self._expected.clear()  # it was tested with other charges in mind
        budgets, relation = np.asarray(self.epsilon, dtype=float), self._relation
        nodes = self._sizes.get(deal, 1)
        for event in {id(event): event for event in events}.values():
            relation, size = same_relation(relation, event), event.nodes
            if 1 not in (size, nodes) and size != nodes:
                rule = f"releases of these rows were of {nodes} nodes so far"
                raise InvalidInput("nodes", size, rule, "use a ledger of its own for each network")
            if 1 not in (size, budgets.size) and size != budgets.size:
                rule = f"has {budgets.size} budgets, and the release is of {size} nodes"
                raise InvalidInput("epsilon", None, rule, "give one budget, or one for each node")
            nodes = max(nodes, size)
        own = self._plus(deal, events)
        if np.all(np.isinf(budgets)) and not self._spent.keys() - {deal} and self.accountant.endless(own):
            return own
        left = ((held.deal, priced, 1) for held in self._held for _, priced in held.left)
        after = _added(self.accountant, self._spent | {deal: own}, left)
        book, m = self._merged(after)
        least, several = float(np.min(budgets)), len(after) > 1
        limits = np.array(least) if several else budgets
        fits = np.atleast_1d(self.accountant.within(book, self.delta, limits))
        over = np.flatnonzero(~fits)  # NaN is refused too
        together = (
            self.accountant.network(book, self.delta, m) if m > 1 and not over.size and np.isfinite(least) else 0.0
        )
        if not over.size and together <= least:
            return own
        what = f"release {len(self.rows) + 1}" if len(events) == 1 else f"a run of {len(events)} releases"
        remedy = "nothing was drawn; raise the budget or lower the noise's price"
        if not over.size:
            raise BudgetExceeded(
                f"epsilon={least:g}: {what} would bring a person with rows at {m} sites to {together:.6g}; {remedy}"
            )
        node = int(over[0])
        total = np.atleast_1d(self.accountant.epsilon(book, self.delta))
        budget = float(np.broadcast_to(limits, fits.shape)[node])
        spent = self.total() if several else float(np.broadcast_to(self.per_node(), fits.shape)[node])
        where = f"a row that was dealt to nodes {len(after)} times" if several else f"node {node}"
        now = f"{spent:.6g} spent, the rest held by runs in progress" if self._held else f"{spent:.6g}"
        raise BudgetExceeded(
            f"epsilon={budget:g}: {what} would bring {where} from {now} to "
            f"{float(np.broadcast_to(total, fits.shape)[node]):.6g}; {remedy}"
        )


def _added(accountant: Accountant[Any], spent: _Spent, charges: Iterable[tuple[bytes | None, Event, int]]) -> _Spent:
    """What is spent, by deal, once these are charged, each as often as its count says."""
    after = dict(spent)
    for deal, priced, count in charges:
        after[deal] = accountant.add(after[deal] if deal in after else accountant.nothing(), priced, count)
    return after


class _Elsewhere(Ledger):
    """Stands for a ledger in memory in another process or a saved model, and refuses every charge.

    A refusal to pickle would be less clear: joblib would only say that a task cannot be pickled.
    """

    def __init__(self) -> None:
        pass

    def __repr__(self) -> str:
        return "Ledger(of another process)"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name not in vars(Ledger()):
            raise AttributeError(name)
        raise LedgerError(_STAYS)


class Joint:
    """A run's own ledger inside a shared one, which pays for the whole run or refuses it at once.

    What it holds is this run's only, so runs in other threads cannot take it; a context manager, which gives back what
    was not drawn.

    `events` are all that the run will charge, in order, under `deal`; BudgetExceeded if the shared ledger cannot pay
    for them, and nothing is held then.
    """

    def __init__(self, own: Ledger, shared: Ledger, events: Sequence[Event], deal: bytes | None = None) -> None:
        conditions = Conditions(shared.sites_per_row)  # its own: other runs take turns with it
        self.own, self.shared, self.deal = own, shared, deal
        self.left = deque((event, conditions.add(event)) for event in events)
        own.expect(events)
        shared._take_releases()
        with shared._lock:
            shared._afford([priced for _, priced in self.left], deal)
            shared._held.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.shared._lock:
            self.shared._held.remove(self)
            self.left.clear()

    @property
    def rows(self) -> tuple[Event, ...]:
        return self.own.rows

    def charge(self, event: Event) -> None:
        """Charge both, or neither; LedgerMismatch unless it is the next planned event."""
        with self.shared._lock:
            own = self.own._next(event, None)
            if not self.left or event.terms != self.left[0][0].terms:
                raise LedgerMismatch("ledger: the release is not the next one planned; nothing was drawn")
            priced = self.left[0][1]
            self.shared._write(event, self.deal, priced, self.shared._plus(self.deal, [priced]))
            self.left.popleft()
            self.own._take(event, None, *own)

    def once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        self.charge(event)
        return draw()

    def to_list(self) -> list[dict[str, Any]]:
        return self.own.to_list()

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Not possible: whether the shared ledger holds these rows cannot be known."""
        raise LedgerError("ledger: a ledger in memory cannot go on from a checkpoint; use a ledger on disk")
