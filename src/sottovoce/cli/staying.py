"""``sottovoce site run --stay``: a site that runs each plan that its people agree to."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..deploy.agreement import (
    Tell,
    fetch_plan,
    install_agreed_proposal,
    keep_proposal,
    people_missing,
)
from ..deploy.settings import SiteSettings
from ..errors import BudgetExceeded, EndedEarly, FinishedWithout, InvalidInput, Unreachable
from ..ledger.durable import DurableLedger

_BETWEEN_REQUESTS = 10.0
"""Seconds between two questions to the hub for its plan."""
_BETWEEN_LOOKS = 1.0
"""Seconds between two looks whether somebody agreed."""


class Staying:
    """A site that stays: it takes part in one agreed run after another.

    Parameters
    ----------
    read : callable
        Reads the site's settings, again before every look.
    take_part : callable
        Takes part in the run of the settings' plan, to its end.
    tell : callable ``(line)``
        Called with what is new.
    """

    def __init__(
        self, read: Callable[[], SiteSettings], take_part: Callable[[], None], tell: Tell
    ) -> None:
        self._read = read
        self._take_part = take_part
        self._tell = tell
        self._told = ""
        self._asks_again = 0.0
        # Digest of a plan that the ledger could not pay for, which is not tried again.
        self._too_expensive = ""
        # State of the files at the last look.
        self._seen: list[tuple[int, int] | None] = []

    def follow(self) -> None:
        """Take part in every run that is agreed to, until an error or a signal ends it."""
        while True:
            found = self._read()
            # A ledger is verified whenever it is opened: only after something has changed.  The
            # state is that of before the look, so that what changes meanwhile is looked at again.
            state = _state_of_files(found)
            if state != self._seen:
                install_agreed_proposal(found)
                found = self._read()
                if self._is_to_run(found):
                    self._run(found)
                    continue
                self._tell_what_it_waits_for(found)
                self._seen = state
            if time.monotonic() >= self._asks_again:
                self._ask_hub(found)
                self._asks_again = time.monotonic() + _BETWEEN_REQUESTS
            time.sleep(_BETWEEN_LOOKS)

    def _is_to_run(self, found: SiteSettings) -> bool:
        """Return True if the site's plan is agreed to and its run is not over."""
        if not (found.plan.exists() and found.credentials.certificate.exists()):
            return False
        plan = found.agreed_plan
        if plan.digest == self._too_expensive or found.read_final_results() is not None:
            return False
        with DurableLedger.open(found.ledger) as ledger:
            run = ledger.runs.get(plan.run)
            return found.is_agreed(ledger) and (run is None or not run.given_up)

    def _run(self, found: SiteSettings) -> None:
        """Take part in a run; one that ends early, or is too expensive, does not end the site."""
        try:
            self._take_part()
        except (EndedEarly, FinishedWithout) as error:
            self._tell(f"{error}; waits for the next plan")
        except BudgetExceeded as error:
            self._too_expensive = found.agreed_plan.digest
            self._tell(f"{error}; waits for another plan")
        # Asked at once: the hub may have its next plan already.
        self._asks_again = 0.0

    def _ask_hub(self, found: SiteSettings) -> None:
        """Ask the hub for its plan; a hub that is silent, or gives a wrong one, is told once."""
        try:
            data = fetch_plan(found, self._tell, patience=0.0)
        except Unreachable as error:
            self._tell_once(f"{error}; asks again")
            return
        try:
            keep_proposal(found, data, self._tell)
        except InvalidInput as error:
            # Of another party, so no reason to end: the hub may write a better one.
            self._tell_once(f"the hub's plan is not for this site: {error}")

    def _tell_what_it_waits_for(self, found: SiteSettings) -> None:
        """Tell once that a proposal waits for people, or that there is none."""
        if not found.proposed.exists():
            self._tell_once("waits for the hub's next plan")
            return
        plan = found.of_proposal.agreed_plan
        missing = people_missing(found, plan)
        if missing:
            who = "somebody" if missing == 1 else f"{missing} people"
            self._tell_once(
                f"run {plan.run} waits until {who} agrees: sottovoce site agree {found.folder}"
            )

    def _tell_once(self, line: str) -> None:
        """Tell a line unless it was the last one."""
        if line != self._told:
            self._told = line
            self._tell(line)


def _state_of_files(found: SiteSettings) -> list[tuple[int, int] | None]:
    """Return size and time of change of the files on which the next step depends."""
    files = (
        found.folder / "site.toml",
        found.plan,
        found.proposed,
        found.ledger,
        found.credentials.certificate,
    )
    state: list[tuple[int, int] | None] = []
    for path in files:
        try:
            seen = path.stat()
        except FileNotFoundError:
            state.append(None)
            continue
        state.append((seen.st_size, seen.st_mtime_ns))
    return state
