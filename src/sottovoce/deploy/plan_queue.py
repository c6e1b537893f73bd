"""The queue of a hub: plans that one process serves one after another.

It is the folder ``queue`` in the hub's.  ``000001.trial-1.plan`` is a plan, as ``plan.json`` is;
``000001.trial-1.end`` says how it ended, and a plan without it waits.  Each is written in one step
and never changed, so a hub that was killed at any point goes on: what its log holds of a plan that
waits is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from ..errors import InvalidInput, SottovoceError
from ..util import files
from ..util.typing import Any
from .files import write_new_file
from .names import check_run_name
from .plan import Plan
from .plan_file import LARGEST, read_plan_file
from .strict import parse_json

QUEUE = "queue"
"""The folder of the queue, in the hub's folder."""
PLANS = 10_000
"""The most plans of a queue, those that are over included."""
End = Literal["done", "set aside"]
"""How a plan of the queue ended: with its results, or without."""
_PLAN, _END = ".plan", ".end"
_LARGEST_END = 2**16


@dataclass(frozen=True)
class Entry:
    """A plan in the queue.

    Parameters
    ----------
    path : Path
        The plan's file.
    """

    path: Path

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return int(self.path.name.partition(".")[0])

    @property
    def run(self) -> str:
        """Name of its run."""
        return self.path.name.removesuffix(_PLAN).partition(".")[2]

    @cached_property
    def plan(self) -> Plan:
        """The plan; raises :class:`InvalidInput` if the file is none, or of another run."""
        plan = read_plan_file(self.path)
        if plan.run != self.run:
            rule = f"is of the run {plan.run!r}"
            raise InvalidInput("plan", self.path, rule, "add plans with `sottovoce hub queue add`")
        return plan

    @property
    def end_file(self) -> Path:
        """File that says how the plan ended."""
        return self.path.with_name(f"{self.path.name.removesuffix(_PLAN)}{_END}")

    def read_end(self) -> dict[str, Any] | None:
        """Return how the plan ended: ``end``, ``why`` and ``at``; None while it waits."""
        if not self.end_file.exists():
            return None
        data = files.read_bounded_file("end", self.end_file, _LARGEST_END)
        try:
            return dict(parse_json(data, _LARGEST_END))
        except (ValueError, TypeError):
            rule = "does not say how a plan ended"
            raise InvalidInput("end", self.end_file, rule, "restore it") from None

    def record_end(self, end: End, why: str) -> None:
        """Record how the plan ended; it does not wait any longer."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"end": end, "why": why, "at": at}) + "\n"
        write_new_file(self.end_file, text)


class PlanQueue:
    """The queue in a hub's folder.

    Parameters
    ----------
    folder : Path
        The hub's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / QUEUE

    def entries(self) -> list[Entry]:
        """Return all plans in their order, those that are over included."""
        if not self.folder.is_dir():
            return []
        found = [
            Entry(path)
            for path in sorted(self.folder.iterdir())
            if path.name.endswith(_PLAN) and path.name.partition(".")[0].isdecimal()
        ]
        return sorted(found, key=lambda entry: (entry.number, entry.run))

    def waiting(self) -> list[Entry]:
        """Return the plans that have not ended, in their order."""
        return [entry for entry in self.entries() if not entry.end_file.exists()]

    def of_run(self, run: str) -> Entry | None:
        """Return the plan of a run; None if there is none."""
        return next((entry for entry in self.entries() if entry.run == run), None)

    def add(self, path: Path) -> Entry:
        """Add a plan at the end of the queue.

        Raises :class:`InvalidInput` for a file that is no plan, or a run that the queue has.
        """
        plan = read_plan_file(path)
        check_run_name("run", plan.run)
        entries = self.entries()
        if any(entry.run.lower() == plan.run.lower() for entry in entries):
            rule = "is in the queue already, or was"
            raise InvalidInput("run", plan.run, rule, "write the plan with another --run name")
        if len(entries) >= PLANS:
            rule = f"holds {PLANS:,} plans, the most"
            raise InvalidInput("queue", self.folder, rule, "move the queue of old plans away")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        number = max((entry.number for entry in entries), default=0) + 1
        entry = Entry(self.folder / f"{number:06d}.{plan.run}{_PLAN}")
        write_new_file(entry.path, files.read_bounded_file("plan", path, LARGEST))
        return entry

    def drop(self, run: str, check: Callable[[Entry], None]) -> Entry:
        """Set a plan aside that waits.

        Parameters
        ----------
        run : str
        check : callable ``(entry)``
            Raises if the plan may not be set aside.

        Returns
        -------
        Entry

        Raises
        ------
        InvalidInput
            If no plan of this run waits.
        """
        entry = self.of_run(run)
        if entry is None or entry.end_file.exists():
            rule = "does not wait in the queue"
            raise InvalidInput("run", run, rule, "see `sottovoce hub queue list`")
        check(entry)
        entry.record_end("set aside", "taken out of the queue by the hub's operator")
        return entry

    def to_list(self) -> list[dict[str, Any]]:
        """Return the queue as plain data: number, run, plan's digest, state and reason."""
        found = []
        for entry in self.entries():
            digest = None
            why = ""
            try:
                digest = entry.plan.digest
            except SottovoceError as error:
                why = str(error)
            end = entry.read_end() or {}
            found.append(
                {
                    "number": entry.number,
                    "run": entry.run,
                    "plan": digest,
                    "state": end.get("end", "waiting"),
                    "why": end.get("why", why),
                    "at": end.get("at"),
                }
            )
        return found
