"""The durable ledger: one file for each data set, which outlives runs, processes and crashes.

*Budget.* A run reserves all its events before its first round, and is refused if rows, open
reservations and the new events together would exceed the lifetime budget.  Decision and record are
one transaction.  A later charge is one of the reserved events, so it cannot exceed the budget.

*One draw for each row.* A release is charged (its row is committed), drawn, stored (its payload is
committed) and handed out, in this order.  What a crash leaves:

- no row: nothing was drawn, so closing a run may return the event's price, even while its process
  lives;
- a row and no payload: nobody has seen a draw.  A new one under the same row is the first that
  anybody sees;
- a row and a payload: these bytes are the release, every time.  If two processes drew for one row,
  the first commit wins and the other's draw is dropped unseen;
- a row whose draw raised an error, or whose caller did not promise to store the bytes before
  handing them out: something may have been seen.  The row stays spent and is never drawn again.

A crash can over-count, never under-count.  ``docs/reference/ledger.md`` says what this assumes, and
what no file can detect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import InvalidInput, LedgerMismatch
from ..privacy import accountants
from ..privacy.conditions import pricing_events
from ..privacy.events import Event
from ..util.compatibility import FORMAT
from ..util.plain import canonical_json, infinities_to_text, personalised_hash
from ..util.typing import Any, Array, ArrayLike
from .digest import rows_digest
from .disk_account import DiskAccount
from .file import ChainFile
from .history import MOST, Consent, History, RunHistory, packed
from .identity import RowsIdentity, check_digest_lengths
from .memory import validate_target
from .readings import NeverCopied, Readings
from .run import Run
from .run_records import find_run_history
from .runs import Runs, explain_run_is_over, unused_run_name
from .summary import summary

__all__ = ["DurableLedger", "rows_digest"]
_LONGEST_NAME = 128
"""The most characters of the name of a person who agrees to a plan."""


class DurableLedger(NeverCopied, Readings):
    """A ledger on disk with a lifetime budget; a context manager, which closes the file.

    It reads like :class:`sottovoce.ledger.memory.Ledger`.  Safe from several processes and threads,
    forked ones too. A copy is the ledger itself.  Unpickled, it is a new handle on the same file,
    without the rows' fingerprint.

    Attributes
    ----------
    path : Path
        Of the file, without links.
    epsilon : array (N,)
        Lifetime budget of each node.
    demonstration : bool
        True if it was made for a demonstration: its noise may be repeatable, so it cannot hold a
        true release.
    account : sottovoce.ledger.disk_account.DiskAccount
        What is spent, what open runs hold, and what a run would add.
    identity : sottovoce.ledger.identity.RowsIdentity
        Which rows it belongs to.
    runs : sottovoce.ledger.runs.Runs
        All runs, open or closed, by name.
    file : sottovoce.ledger.file.ChainFile
        The log: its head, and what verifies and exports it.

    Examples
    --------
    >>> from sottovoce import DurableLedger
    >>> budget = {"epsilon": 2.0, "delta": 1e-5}
    >>> with DurableLedger.create("rows.ledger", **budget, accountant="zcdp") as ledger:
    ...     ledger.total(), ledger.epsilon.tolist()
    (0.0, [2.0])
    >>> with DurableLedger.open("rows.ledger") as ledger:
    ...     len(ledger.runs)
    0
    """

    def __init__(self, file: ChainFile[History]) -> None:
        # The state when the file was opened: budget and accountant never change.
        made = file.chain.state
        self.path = file.real
        self.accountant, self.epsilon, self.delta = made.accountant, made.epsilon, made.delta
        self.demonstration = made.demonstration
        self.file = file
        self.identity = RowsIdentity(file)
        self.account = DiskAccount(file, self.identity)
        self.runs = Runs(file, self.identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self).open, timeout=self.file.timeout), (str(self.path),)

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
            On a local disk, in a folder that the process may write to: network file systems do not
            lock safely.
        epsilon : float or array (N,)
            Lifetime budget of every node; infinity records without limiting.
        delta : float
            0 for pure epsilon.
        accountant : {"pure", "zcdp", "rdp"}
            See :func:`sottovoce.privacy.accountants.lifetime_accountant`.
        n_nodes : int
            Nodes whose rows the data set holds; 1 at a real site.
        fingerprint : bytes, optional
            See :meth:`.identity.RowsIdentity.bind_to_rows`.
        demonstration : bool
            Marks the file for good as one whose noise may be repeatable, and which holds no true
            releases.

        Returns
        -------
        DurableLedger
            Open.

        Raises
        ------
        InvalidInput
            If epsilon, delta or `n_nodes` is out of range, they do not fit each other, or the
            fingerprint is too short.
        LedgerError
            If the file exists.
        NotWritten
            If it cannot be written.  Nothing is left behind then, but where the disk fills up
            after the ledger was made and before it was bound to the rows of `fingerprint`: it is
            there then, unbound and without a charge, and :meth:`open` binds it.
        """
        validate_target(epsilon, delta or None)
        values = np.asarray(epsilon, dtype=float)
        name = accountants.lifetime_accountant(accountant, values, delta).label
        if n_nodes < 1 or np.size(epsilon) not in (1, n_nodes):
            rule = "must be at least 1, and the number of values of epsilon if there are several"
            raise InvalidInput("n_nodes", n_nodes, rule, "give one value, or one for each node")
        if fingerprint is not None:
            # Before there is a file: a ledger that was made and not bound would be left behind.
            check_digest_lengths(fingerprint)
        per_node = np.broadcast_to(np.ravel(values), (n_nodes,))
        record = {
            "kind": "create",
            "accountant": name,
            "epsilon": [infinities_to_text(float(value)) for value in per_node],
            "delta": float(delta),
        }

        def first(secret: bytes) -> dict[str, Any]:
            # The hash vouches for the key that vouches for the data set.
            made = record | {"key": personalised_hash(secret).hex(), "at": _timestamp_now()}
            if demonstration:
                made["demonstration"] = True
            return made

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
        path : path
        fingerprint : bytes, optional
            Digest of the rows, 16 bytes or more, to which the ledger is bound, or was bound before
            (:meth:`.identity.RowsIdentity.bind_to_rows`).  Without it a bound ledger can be read
            and its runs closed, but nothing can be spent.
        expected_head : str, optional
            A head of the chain that was noted earlier.  The file must contain it, so that an older
            copy is refused (:meth:`.file.ChainFile.verify`).
        timeout : float
            Seconds to wait for other processes.

        Returns
        -------
        DurableLedger

        Raises
        ------
        LedgerError
            If the file is missing, damaged, edited, of another version or of another data set.
        """
        ledger = cls(ChainFile(path, History, timeout))
        try:
            if expected_head is not None:
                ledger.file.expect(expected_head)
            if fingerprint is not None:
                ledger.identity.bind_to_rows(fingerprint)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Close the file, not its runs."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rows(self) -> tuple[Event, ...]:
        """All events so far, of runs and others, in the order of their charges."""
        return tuple(self.file.read().rows)

    def per_node(self) -> Array:
        """Return the epsilon spent by each node, (N,)."""
        return self.account.spent()

    def show(self) -> dict[str, Any]:
        """Return a summary as plain data; an infinite epsilon is the text ``inf``."""
        return summary(self.file)

    def record_event(self, event: Event, *, count: int = 1) -> None:
        """Record a release outside any run, durably, or refuse it.

        Such rows can have no payload.  A count is one record: all are charged before the first of
        them is drawn.  An event out of the conditions of its proof is charged what it costs then
        (:mod:`sottovoce.privacy.conditions`).

        Parameters
        ----------
        event : Event
            The release, which is drawn after this returns.
        count : int
            Charge that many equal releases, or none of them; at most ten million.

        Raises
        ------
        BudgetExceeded
            If this, what is spent and what open runs hold would exceed a node's budget.  Nothing is
            recorded.
        UnknownEvent
            If the accountant cannot price it.
        """
        if not isinstance(count, int | np.integer) or not 1 <= count <= MOST:
            rule = f"must be a whole number from 1 to {MOST:,}"
            raise InvalidInput("count", count, rule, "use 1")
        plain = event.to_dict()
        with self.file.transaction() as state:
            what = f"a run of {count} releases"
            if count == 1:
                what = f"release {len(state.rows) + 1}"
            self.account.check_affordable(
                state, state.pricing_events_outside_runs(event, int(count)), what, "drawn"
            )
            record: dict[str, Any] = {"kind": "charge", "run": None, "release": None}
            # Since schema 5 a charge leaves out an event that is that of the charge before.
            if canonical_json(plain) != state.last:
                record["event"] = plain
            if count > 1:
                record["count"] = int(count)
            self.file.append_record(record)

    def reserve(self, run: str, plan: str, events: Sequence[Event]) -> Run:
        """Reserve the price of a whole run before its first round, or resume the run.

        A run is resumed if it is open and was reserved with the same plan and events.

        Parameters
        ----------
        run : str
            A new name, or that of the run to resume.
        plan : str
            Digest of everything that the run depends on.
        events : sequence of Event
            All that it will charge, in order.  Their conditions are judged among these alone.

        Returns
        -------
        Run
            The ledger of the run's releases, from its first.

        Raises
        ------
        BudgetExceeded
            If these, what is spent and what open runs hold would exceed a node's budget.  Nothing
            is reserved.
        LedgerMismatch
            If the run has another plan or other events, or is closed.
        """
        if not run or not plan or not events:
            rule = "needs a name, a plan and at least one event"
            raise InvalidInput("run", run, rule, "give all three")
        plain = [event.to_dict() for event in events]
        with self.file.transaction() as state:
            # Decision and record are one transaction: of two processes that race for the last of a
            # budget, one gets it.
            known = state.runs.get(run)
            if known is None:
                what = f"run {run!r} of {len(events)} releases"
                self.account.check_affordable(state, pricing_events(events), what, "reserved")
                record = {
                    "kind": "reserve",
                    "run": run,
                    "plan": plan,
                    "releases": packed(plain),
                    "at": _timestamp_now(),
                }
                self.file.append_record(record | {"version": FORMAT})
            else:
                _check_same_run(state, run, known, plan, plain)
        return self._open_run(run)

    def resume(self, run: str, plan: str) -> Run:
        """Go through a run again from its first row.

        Rows are replayed, never charged twice; a closed run can be replayed only.

        Parameters
        ----------
        run : str
            Its name.
        plan : str
            The digest with which it was reserved.

        Returns
        -------
        Run

        Raises
        ------
        LedgerError
            If there is no such run, it has another plan, or a version before 0.3 began it.
        """
        self.runs.check_can_continue(run)
        # As the check has just read it.
        state = self.file.chain.state
        if find_run_history(state, run).plan != plan:
            another = f"give this run another name, such as {unused_run_name(state, run)!r}"
            rule = f"is in this ledger with another plan; continue with that plan, or {another}"
            raise LedgerMismatch(f"run={run!r}: {rule}")
        return self._open_run(run)

    @property
    def consents(self) -> tuple[Consent, ...]:
        """All consents to plans, in the order in which they were given."""
        return tuple(self.file.read().consents)

    def record_consent(self, run: str, plan: str, by: str) -> bool:
        """Record, durably, that somebody agreed to a plan; nothing is spent.

        Parameters
        ----------
        run, plan : str
            Name of the run, and digest of its plan.
        by : str
            Who agreed, 1 to 128 printable characters.

        Returns
        -------
        bool
            False if the same person's consent to this plan was recorded before.

        Raises
        ------
        InvalidInput
            If `by` is empty, too long, or not printable.
        """
        if not 0 < len(by.strip()) <= _LONGEST_NAME or not by.isprintable():
            rule = f"must be 1 to {_LONGEST_NAME} printable characters"
            raise InvalidInput("by", None, rule, "give the name of the person who agrees")
        with self.file.transaction() as state:
            for known in state.consents:
                if known.plan == plan and same_person(known.by, by):
                    return False
            record = {"kind": "consent", "run": run, "plan": plan, "by": by.strip()}
            self.file.append_record(record | {"at": _timestamp_now()})
        return True

    def close_run(self, run: str, *, reclaim: bool = False) -> int:
        """Close a run for good.

        An event without a row was never drawn; if the run's process still lives, it is refused at
        its next charge.  A site takes no further part in a run that was given up (:attr:`runs`).

        Parameters
        ----------
        run : str
        reclaim : bool
            Give the run up: return the price of reserved events that have no row.

        Returns
        -------
        int
            How many events were given back; 0 if the run was closed before.

        Raises
        ------
        LedgerError
            If there is no such run, or events are left and `reclaim` is false.
        """
        return self.runs.records_of_run(run).close(reclaim=reclaim, given_up=reclaim)

    def _open_run(self, run: str) -> Run:
        """Return the ledger of a run's releases, from its first."""
        return Run(self.runs.records_of_run(run), self.accountant, self.epsilon, self.delta)


def same_person(one: str, other: str) -> bool:
    """Return True for names of people that differ in capitals and outer blanks at most."""
    return one.strip().casefold() == other.strip().casefold()


def _check_same_run(
    state: History, run: str, known: RunHistory, plan: str, plain: list[dict[str, Any]]
) -> None:
    """Refuse (LedgerMismatch) to go on with a run that is over, or was reserved otherwise."""
    if known.has_other_format:
        raise LedgerMismatch(explain_run_is_over(state, run))
    if not known.open:
        rule = (
            f"is closed; choose a new name, such as {unused_run_name(state, run)!r}, "
            "or replay it with resume"
        )
        raise LedgerMismatch(f"run={run!r}: {rule}")
    if known.plan != plan or known.texts != [canonical_json(event) for event in plain]:
        again = f"resume it with that plan, or name this run {unused_run_name(state, run)!r}"
        raise LedgerMismatch(f"run={run!r}: was reserved with another plan; {again}")


def _timestamp_now() -> str:
    """Return the time for a record, to the second."""
    # Runs and files are dated, rows are not: the time between two rows is that of a solve, which
    # depends on data.
    return datetime.now(UTC).isoformat(timespec="seconds")
