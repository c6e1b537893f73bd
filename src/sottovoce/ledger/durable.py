"""The durable ledger: one file for each data set, which outlives runs, processes and crashes.

*Budget.* A run reserves all its events before its first round, and is refused if rows, open reservations and the new
events together would exceed the lifetime budget.  Decision and record are one transaction.  A later charge is one of
the reserved events, so it cannot exceed the budget.

*One draw for each row.* A release is charged (its row is committed), drawn, stored (its payload is committed) and
handed out, in this order.  What a crash leaves:

- no row: nothing was drawn, so closing a run may return the event's price, even while its process lives;
- a row and no payload: nobody has seen a draw.  A new one under the same row is the first that anybody sees;
- a row and a payload: these bytes are the release, every time.  If two processes drew for one row, the first commit
  wins and the other's draw is dropped unseen;
- a row whose draw raised an error, or whose caller did not promise to store the bytes before handing them out:
  something may have been seen.  The row stays spent and is never drawn again.

A crash can over-count, never under-count.  ``docs/reference/ledger.md`` says what this assumes, and what no file
can detect.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import BudgetExceeded, InvalidInput, LedgerCorrupt, LedgerError, LedgerMismatch
from ..privacy import accountants
from ..privacy.accountants import Accountant
from ..privacy.conditions import all_priced
from ..privacy.events import Event, same_relation
from ..util.compatibility import FORMAT, FORMER
from ..util.plain import canonical, jsonable, keyed_hash
from ..util.typing import Any, Array, ArrayLike
from .file import ChainFile
from .history import MOST, History, RunHistory, packed, rows_digest, stored
from .memory import validate_target
from .readings import OnDisk, Readings

__all__ = ["DurableLedger", "Run", "rows_digest"]


def _tags(secret: bytes, *digests: bytes) -> list[str]:
    """What a ledger with this secret keeps of digests of rows."""
    return [keyed_hash(digest, key=secret).hex() for digest in digests]


def _known(state: History, tags: list[str]) -> bool:
    return any(hmac.compare_digest(tag, known) for tag in tags for known in state.tags)


def _now() -> str:
    # Runs and files are dated, rows are not: the time between two rows is that of a solve, which depends on data.
    return datetime.now(UTC).isoformat(timespec="seconds")


class DurableLedger(OnDisk):
    """A ledger on disk with a lifetime budget; a context manager, which closes the file.

    It reads like :class:`sottovoce.ledger.memory.Ledger`.  Safe from several processes and threads, forked ones too.
    A copy is the ledger itself.  Unpickled, it is a new handle on the same file, without the rows' fingerprint.

    Examples
    --------
    >>> from sottovoce import DurableLedger
    >>> with DurableLedger.create("rows.ledger", epsilon=2.0, delta=1e-5, accountant="zcdp") as ledger:
    ...     ledger.total(), ledger.epsilon.tolist()
    (0.0, [2.0])
    >>> with DurableLedger.open("rows.ledger") as ledger:
    ...     len(ledger.runs)
    0
    """

    def __init__(self, file: ChainFile[History]) -> None:
        self._file, self._shown = file, False

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self).open, timeout=self._file.timeout), (str(self._file.real),)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        epsilon: ArrayLike,
        delta: float = 0.0,
        accountant: str = "pure",
        n_nodes: int = 1,
        fingerprint: bytes | None = None,
        demonstration: bool = False,
    ) -> Self:
        """Make the ledger of a data set, readable by this user only.  Its budget never changes.

        Parameters
        ----------
        path : path
            On a local disk, in a folder that the process may write to: network file systems do not lock safely.
        epsilon : float or array (N,)
            Lifetime budget of every node; infinity records without limiting.
        delta : float
            0 for pure epsilon.
        accountant : {"pure", "zcdp", "rdp"}
            See :func:`sottovoce.privacy.accountants.for_life`.
        n_nodes : int
            Nodes whose rows the data set holds; 1 at a real site.
        fingerprint : bytes, optional
            See :meth:`bind`.
        demonstration : bool
            Marks the file for good as one whose noise may be repeatable, and which holds no true releases.

        Raises
        ------
        LedgerError
            If the file exists.
        """
        validate_target(epsilon, delta or None)
        name = accountants.for_life(accountant, np.asarray(epsilon, dtype=float), delta).label
        if n_nodes < 1 or np.size(epsilon) not in (1, n_nodes):
            raise InvalidInput("n_nodes", n_nodes, "must fit the values of epsilon", "give one value, or one a node")
        budget = [jsonable(float(e)) for e in np.broadcast_to(np.ravel(np.asarray(epsilon, dtype=float)), (n_nodes,))]

        def first(secret: bytes) -> dict[str, Any]:
            key = keyed_hash(secret).hex()  # vouches for the key that vouches for the data set
            return {
                "kind": "create", "accountant": name, "epsilon": budget, "delta": float(delta), "key": key, "at": _now()
            } | ({"demonstration": True} if demonstration else {})  # fmt: skip

        ChainFile.create(path, first)
        return cls.open(path, fingerprint=fingerprint)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fingerprint: bytes | None = None,
        expected_head: str | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Open a ledger and verify its chain.

        Parameters
        ----------
        fingerprint : bytes, optional
            See :meth:`bind`.  Without it a bound ledger can be read and its runs closed, but nothing can be spent.
        expected_head : str, optional
            See :meth:`verify`.
        timeout : float
            Seconds to wait for other processes.

        Raises
        ------
        LedgerError
            If the file is missing, damaged, edited, of another version or of another data set.
        """
        ledger = cls(ChainFile(path, History, timeout))
        try:
            if expected_head is not None:
                ledger._file.expect(expected_head)
            if fingerprint is not None:
                ledger.bind(fingerprint)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def path(self) -> Path:
        """The file's, without links."""
        return self._file.real

    def close(self) -> None:
        """Close the file, not its runs."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def holds(path: str | Path, *digests: bytes) -> bool:
        """Whether the file is a ledger, not a demonstration's, of the rows with one of these digests; it is only read.

        LedgerError if that cannot be told.
        """
        found = ChainFile.glance(path, History)
        return not found.state.demonstration and _known(found.state, _tags(found.secret, *digests))

    def bind(self, digest: bytes, *others: bytes, learn: bool = True) -> None:
        """Tie the ledger to the rows with this digest (:func:`rows_digest`), or check that it is tied to them.

        `others` are digests by which the same rows may have been tied before, such as those of encoded rows.  If the
        rows are known by one of them, the ledger knows them by `digest` too from now on, unless not to `learn`.
        The file keeps a hash of the digest under a random key that never leaves the file, so an export says nothing
        about the rows.  Who holds the file can test a guess of *all* rows: keep it where the rows are kept.

        Raises
        ------
        LedgerMismatch
            If the ledger belongs to another data set, or was used before it was bound.
        """
        if any(len(one) < 16 for one in (digest, *others)):
            raise InvalidInput("fingerprint", None, "must be a digest of 16 bytes or more", "use rows_digest(...)")
        tags = _tags(self._file.secret, digest, *others)
        with self._file.transaction():
            state = self._file.state
            if not state.tags and state.used:
                raise LedgerMismatch(
                    f"{self._file.name}: was used before it was bound to rows; bind a new ledger before its first use"
                )
            if state.tags and not _known(state, tags):
                raise LedgerMismatch(
                    f"{self._file.name}: belongs to other rows; open the ledger of these, or give those unchanged"
                )
            if tags[0] not in state.tags and (learn or not state.tags):
                self._file.append({"kind": "bind", "tag": tags[0]})
        self._shown = True

    # Spending

    def charge(self, event: Event, *, count: int = 1) -> None:
        """Record a release outside any run, durably, or refuse it; with a `count` that many equal ones, or none.

        Such rows can have no payload.  A count is one record: all are charged before the first of them is drawn.
        An event out of the conditions of its proof is charged what it costs then (:mod:`sottovoce.privacy.conditions`).

        Raises
        ------
        BudgetExceeded
            If this, what is spent and what open runs hold would exceed a node's budget.  Nothing is recorded.
        UnknownEvent
            If the accountant cannot price it.
        """
        if not isinstance(count, int | np.integer) or not 1 <= count <= MOST:
            raise InvalidInput("count", count, f"must be a whole number from 1 to {MOST:,}", "use 1")
        with self._file.transaction():
            state, plain, record = self._file.state, event.to_dict(), {"kind": "charge", "run": None, "release": None}
            what = f"release {len(state.rows) + 1}" if count == 1 else f"a run of {count} releases"
            self._afford(state.next(event, int(count)), what, "drawn")
            told = {} if canonical(plain) == state.last else {"event": plain}
            self._file.append(record | told | ({"count": int(count)} if count > 1 else {}))

    def reserve(self, run: str, plan: str, events: Sequence[Event]) -> Run:
        """Reserve the price of a whole run before its first round; an open run with the same plan is resumed.

        Parameters
        ----------
        run : str
            A new name, or that of the run to resume.
        plan : str
            Digest of everything that the run depends on.
        events : sequence of Event
            All that it will charge, in order.  Their conditions are judged among these alone.

        Raises
        ------
        BudgetExceeded
            If these, what is spent and what open runs hold would exceed a node's budget.  Nothing is reserved.
        LedgerMismatch
            If the run has another plan or other events, or is closed.
        """
        if not run or not plan or not events:
            raise InvalidInput("run", run, "needs a name, a plan and at least one event", "give all three")
        plain = [event.to_dict() for event in events]
        with self._file.transaction():
            known = self._file.state.runs.get(run)
            if known is None:
                self._afford(all_priced(events), f"run {run!r} of {len(events)} releases", "reserved")
                record = {"kind": "reserve", "run": run, "plan": plan, "releases": packed(plain), "at": _now()}
                self._file.append(record | {"version": FORMAT})
            elif known.former:
                raise LedgerMismatch(self._why_over(run))
            elif not known.open:
                rule = f"is closed; choose a new name, such as {self._free(run)!r}, or replay it with resume"
                raise LedgerMismatch(f"run={run!r}: {rule}")
            elif known.plan != plan or known.texts != [canonical(event) for event in plain]:
                rule = f"was reserved with another plan; resume it as it was, or name this run {self._free(run)!r}"
                raise LedgerMismatch(f"run={run!r}: {rule}")
        return Run(self, run)

    def afford(self, events: Sequence[Event]) -> Array:
        """What these events would add to every node's total, (N,), without reserving; refused as by :meth:`reserve`."""
        with self._file.transaction("DEFERRED"):
            return self._afford(all_priced(events), f"a run of {len(events)} releases", "reserved")

    def resume(self, run: str, plan: str) -> Run:
        """Go through a run again from its first row: rows are replayed, never charged twice; a closed run only so.

        Raises
        ------
        LedgerError
            If there is no such run, it has another plan, or a version before 0.3 began it.
        """
        self.check_goes_on(run)
        if self._run(run).plan != plan:
            another = f"give this run another name, such as {self._free(run)!r}"
            rule = f"is in this ledger with another plan; go on with that one, or {another}"
            raise LedgerMismatch(f"run={run!r}: {rule}")
        return Run(self, run)

    def check_goes_on(self, run: str) -> None:
        """Refuse, by LedgerMismatch, a run that a version before 0.3 began; LedgerError if there is no such run."""
        self._file.read()
        if self._run(run).former:
            raise LedgerMismatch(self._why_over(run))

    def charge_release(self, run: str, release: int, event: Event, *, kept: bool) -> bytes | None:
        """Record release number `release` of a run, durably, or find it recorded.

        `kept` promises to store the bytes before they are handed out.  Only such a row can be drawn again.  Returns the
        bytes stored with it, as :meth:`payload`, to a caller that made the promise.

        Raises
        ------
        LedgerMismatch
            If it is not the reserved event, or not the next release.
        LedgerError
            If the run is closed, or the row was written without that promise.
        """
        plain = event.to_dict()
        with self._file.transaction():
            known = self._run(run)
            self._spendable()
            if not 1 <= release <= min(known.charged + 1, len(known.planned)):
                raise LedgerMismatch(
                    f"run={run!r}: release {release} is not the next of {known.charged} charged and "
                    f"{len(known.planned)} reserved; plan every release before the first round"
                )
            if canonical(plain) != known.texts[release - 1]:
                reserved = known.planned[release - 1].to_dict()
                names = sorted(k for k in plain.keys() | reserved.keys() if plain.get(k) != reserved.get(k))
                raise LedgerMismatch(
                    f"run={run!r}: release {release} differs in {', '.join(names)} from what was reserved; nothing was "
                    "drawn; run what was planned"
                )
            if release > known.charged:
                if not known.open:
                    raise LedgerError(f"run={run!r}: is closed; nothing was drawn; reserve a new run")
                self._file.append({"kind": "charge", "run": run, "release": release, "kept": kept})
            elif release in known.loose:
                raise LedgerError(
                    f"run={run!r}: release {release} was charged before and its bytes were not kept, so they may have "
                    "been seen; nothing was drawn; close the run and plan another"
                )
            return self._stored(run, release) if kept else None

    def close_run(self, run: str, *, reclaim: bool = False) -> int:
        """Close a run for good; with `reclaim`, give it up: return the price of reserved events that have no row.

        An event without a row was never drawn; if the run's process still lives, it is refused at its next charge.  A
        site takes no further part in a run that was given up (:meth:`given_up`).  Returns how many events were given
        back, 0 if the run was closed before.

        Raises
        ------
        LedgerError
            If events are left and `reclaim` is false.
        """
        return self._close(run, reclaim=reclaim, given_up=reclaim)

    def given_up(self, run: str) -> bool:
        """Whether a run was closed from outside, and not at its own end."""
        self._file.read()
        return self._run(run).given_up

    def _close(self, run: str, *, reclaim: bool, given_up: bool) -> int:
        with self._file.transaction():
            known = self._run(run)
            if known.open and known.left and not reclaim:
                raise LedgerError(
                    f"run={run!r}: {known.left} of {len(known.planned)} reserved releases have no row; resume the run, "
                    "or close it with reclaim=True to give them back"
                )
            if not known.open:
                return 0
            returned = known.left
            record = {"kind": "close", "run": run, "returned": returned}
            self._file.append(record | ({"given_up": True} if given_up else {}))
            return returned

    def payload(self, run: str, release: int) -> bytes | None:
        """The bytes stored with a row; None if nobody has seen any, LedgerError if the row's draw failed."""
        with self._file.transaction("DEFERRED"):
            return self._stored(run, release)

    def store(self, run: str, release: int, payload: bytes) -> None:
        """Store the bytes of a release, durably, before they are handed out; LedgerMismatch if it has others."""
        if self.keep(run, release, payload) != payload:
            raise LedgerMismatch(f"run={run!r}: release {release} has other bytes already; hand out those of payload()")

    def keep(self, run: str, release: int, payload: bytes) -> bytes:
        """As :meth:`store`, but returns the bytes to hand out: `payload`, or those of an earlier commit."""
        with self._file.transaction():
            found = self._stored(run, release)
            if found is None:
                self._file.append(stored(run, release, payload), payload)
        return payload if found is None else found

    def fail(self, run: str, release: int) -> bytes | None:
        """Record that the draw of a row failed: it stays spent and is never drawn again.

        Bytes that another process has stored meanwhile are the release: they are returned, and nothing is recorded.
        """
        with self._file.transaction():
            found = None if release in self._run(run).failed else self._stored(run, release)
            if found is None and release not in self._run(run).failed:
                self._file.append({"kind": "fail", "run": run, "release": release})
        return found

    # Inside a transaction

    def _run(self, run: str) -> RunHistory:
        if run not in self._file.state.runs:
            raise LedgerError(f"run={run!r}: is not in this ledger; see show() for its runs")
        return self._file.state.runs[run]

    def _why_over(self, run: str) -> str:
        """Why a run that a version before 0.3 began does not go on, and what to do."""
        known, again = self._run(run), f"run again as {self._free(run)!r}"
        if not known.open:
            return f"run={run!r}: {FORMER}; replay it with version 0.2, or {again}"
        held = f"the {known.left} releases that it holds stay charged until it is closed"
        close = f"close it with `sottovoce ledger close` and {again}"
        return f"run={run!r}: {FORMER}, and {held}; end it with version 0.2, or {close}"

    def _free(self, run: str) -> str:
        return next(name for k in count(2) if (name := f"{run}-{k}") not in self._file.state.runs)

    def _stored(self, run: str, release: int) -> bytes | None:
        known = self._run(run)
        if not 1 <= release <= known.charged:
            raise LedgerError(f"run={run!r}: release {release} has no row; charge it before it is drawn")
        if release in known.failed:
            raise LedgerError(f"run={run!r}: the draw of release {release} failed in view; close the run, plan another")
        if release in known.loose:
            raise LedgerError(f"run={run!r}: release {release} was charged without kept=True; its bytes are unknown")
        return self._file.payload(*known.stored[release]) if release in known.stored else None

    def _spendable(self) -> None:
        if self._file.state.tags and not self._shown:
            raise LedgerMismatch(f"{self._file.name}: is bound to rows that were not shown; open with fingerprint=...")

    def _afford(self, events: Iterable[Event], what: str, undone: str) -> Array:
        """What these events, each as what prices it, add to the totals; refused if that passes a budget."""
        self._spendable()
        state = self._file.state
        relation, known, texts = state.relation, dict[str, Event](), Counter[str]()
        for event in events:
            text = canonical(event.to_dict())
            texts[text] += 1
            if text not in known:
                known[text], relation = event, same_relation(relation, event)
                shape = state.alone(text, event).shape
                if shape not in ((), (1,), state.epsilon.shape):
                    rule = f"must price {state.epsilon.size} nodes"
                    raise InvalidInput("event", shape, rule, "use the ledger's n_nodes")
        held = state.held()
        after, spent, committed = (
            np.broadcast_to(price, state.epsilon.shape)
            for price in (state.price(held + texts, known), state.price(), state.price(held))
        )
        over = np.flatnonzero(~(after <= state.epsilon))  # NaN is over, too
        if over.size:
            node = int(over[0])
            where = f"node {node}" if state.epsilon.size > 1 else "these rows"
            now = f"{spent[node]:.6g} spent, the rest held by open runs" if held else "spent"
            remedy = "plan a smaller run" + (", or close abandoned runs" if held else "")
            raise BudgetExceeded(
                f"epsilon={state.epsilon[node]:g}: {what} would bring {where} from {committed[node]:.6g} ({now}) to "
                f"{after[node]:.6g}, past the ledger's budget; nothing was {undone}; {remedy}"
            )
        return after - committed


class Run(Readings):
    """One run's view of a ledger, with the interface of :class:`sottovoce.ledger.memory.Ledger`.

    It goes through the run from its first release.  Rows that exist are replayed: the same events are expected, and
    nothing is charged.  A context manager: left normally, it closes the run and returns the price of events without a
    row; left by an exception, the run stays open.

    Attributes
    ----------
    journaled : bool
        A promise that bytes of :meth:`once` leave this process only in messages of the :class:`.journal.Journal`.  They
        are then stored first thing at the next use of the file: by such a message's commit, or an earlier one.
    """

    journaled = False

    def __init__(self, ledger: DurableLedger, name: str) -> None:
        self._ledger, self.name, self._release = ledger, name, 0
        self._most = len(ledger._run(name).planned)  # a caller has just read the file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    @property
    def release(self) -> int:
        """Number of the last release charged or replayed; 0 before the first."""
        return self._release

    @property
    def accountant(self) -> Accountant[Any]:
        return self._ledger.accountant

    @property
    def epsilon(self) -> Array:
        """Lifetime budget of the data set, shape (N,)."""
        return self._ledger.epsilon

    @property
    def delta(self) -> float:
        return self._ledger.delta

    @property
    def rows(self) -> tuple[Event, ...]:
        """Events of this run up to :attr:`release`."""
        return tuple(self._state().planned[: self._release])

    @property
    def failed(self) -> bool:
        """Whether the draw of a release failed, so that the run cannot go past it."""
        return bool(self._state().failed)

    @property
    def answers(self) -> list[str]:
        """Digests of stored answers up to :attr:`release` ("" for none); they match a checkpoint to its ledger."""
        stored = self._state().stored
        return [stored[k][1] if k in stored else "" for k in range(1, self._release + 1)]

    def charge(self, event: Event, *, kept: bool = False) -> None:
        """Record the next release, durably, or find it recorded; see :meth:`DurableLedger.charge_release`."""
        self._next(event, kept=kept)

    def _next(self, event: Event, *, kept: bool) -> bytes | None:
        if self._release >= self._most:
            what = f"all {self._release} reserved releases are made; nothing was drawn; reserve a new run"
            raise BudgetExceeded(f"run={self.name!r}: {what}")
        found = self._ledger.charge_release(self.name, self._release + 1, event, kept=kept)
        self._release += 1
        return found

    def once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """The next release: charged, drawn and stored if it is new; else its stored bytes, without a draw.

        If `draw` raises, the row is marked as failed and the error goes on; LedgerError if it failed before.
        """
        found = self._next(event, kept=True)
        if found is not None:
            return found
        try:
            drawn = draw()
        except Exception:
            found = self._ledger.fail(self.name, self._release)
            if found is None:
                raise
            return found
        if self.journaled:
            self._ledger._file.later(stored(self.name, self._release, drawn), drawn)
            return drawn
        return self._ledger.keep(self.name, self._release, drawn)

    def payload(self) -> bytes | None:
        """The stored bytes of the current release; None if nobody has seen any."""
        return self._ledger.payload(self.name, self._release)

    def store(self, payload: bytes) -> None:
        """Store the bytes of the current release; see :meth:`DurableLedger.store`."""
        self._ledger.store(self.name, self._release, payload)

    def per_node(self) -> Array:
        """Epsilon of this run per node, of all its rows in the file, replayed or not."""
        state = self._state()
        return self.accountant.total(state.planned[: state.charged], self.delta)

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Continue after `rows`, which a checkpoint of this run holds; LedgerCorrupt if the run lacks them."""
        state = self._state()
        if len(rows) > state.charged or [canonical(row) for row in rows] != state.texts[: len(rows)]:
            raise LedgerCorrupt(
                f"run={self.name!r}: the ledger lacks rows of this checkpoint; find the ledger that was used with it"
            )
        self._release = len(rows)

    def anew(self) -> Self:
        """The same run from before its first release: what is stored is read again."""
        return type(self)(self._ledger, self.name)

    def close(self) -> None:
        """End the run, and return the price of events without a row."""
        self._ledger._close(self.name, reclaim=True, given_up=False)

    def _state(self) -> RunHistory:
        self._ledger._file.read()
        return self._ledger._run(self.name)
