"""The runs in a ledger on disk, by name, and which of them can still go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from ..errors import LedgerMismatch
from ..util.compatibility import FORMAT, FORMER
from .file import ChainFile
from .history import History, RunHistory
from .identity import RowsIdentity
from .run_records import RunRecords, find_run_history


class Runs(Mapping[str, RunHistory]):
    """All runs, open or closed, by their names.

    Every look reads what other processes have written.
    """

    def __init__(self, file: ChainFile[History], identity: RowsIdentity) -> None:
        self._file, self._identity = file, identity

    def __getitem__(self, run: str) -> RunHistory:
        return self._file.read().runs[run]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._file.read().runs))

    def __len__(self) -> int:
        return len(self._file.read().runs)

    @property
    def open_former_runs(self) -> tuple[str, ...]:
        """Names of open runs of another format than this version's.

        This version does not go on with them, and what they reserved stays charged until they are
        closed.
        """
        runs = self._file.read().runs
        return tuple(name for name, run in runs.items() if run.has_other_format and run.open)

    def records_of_run(self, run: str) -> RunRecords:
        """Return the rows and stored bytes of a run.

        LedgerError at their first use if there is no such run.
        """
        return RunRecords(self._file, self._identity, run)

    def check_can_continue(self, run: str) -> None:
        """Check that a run has the format of this version.

        Raises LedgerMismatch otherwise, and LedgerError if there is no such run.
        """
        state = self._file.read()
        if find_run_history(state, run).has_other_format:
            raise LedgerMismatch(explain_run_is_over(state, run))


def unused_run_name(state: History, run: str) -> str:
    """Return the first unused one of the names ``run-2``, ``run-3`` and so on."""
    names = (f"{run}-{k}" for k in count(2))
    return next(name for name in names if name not in state.runs)


def explain_run_is_over(state: History, run: str) -> str:
    """Explain why a run of another format does not go on, and what to do."""
    known = find_run_history(state, run)
    again = f"run again as {unused_run_name(state, run)!r}"
    if known.version is not None and known.version > FORMAT:
        return f"run={run!r}: is of a later version; update sottovoce, or {again}"
    if not known.open:
        return f"run={run!r}: {FORMER}; replay it with version 0.2, or {again}"
    held = f"Its {known.left} unfinished releases stay charged until it is closed"
    if known.left == 1:
        held = "Its 1 unfinished release stays charged until it is closed"
    close = f"close it with `sottovoce ledger close` and {again}"
    return f"run={run!r}: {FORMER}. {held}; end it with version 0.2, or {close}"
