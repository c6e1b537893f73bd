"""A hub that serves the plans of its queue one after another, for ``sottovoce hub run --queue``.

One process and one port.  A plan that cannot be served, that a site declines before it begins, or
that not all sites agree to in time, is set aside with its reason, and the next one begins.  What is
decided is in the hub's log before a plan is over, so a hub that was killed decides the same again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from ..deploy.hub import Hub
from ..deploy.hublog import HubLog
from ..deploy.plan import Plan
from ..deploy.plan_file import read_plan_file, write_plan_file
from ..deploy.plan_queue import End, Entry, PlanQueue
from ..deploy.relay import Credentials
from ..deploy.report import run_in_the_way
from ..deploy.waits import Waits
from ..errors import EndedEarly, FinishedWithout, InvalidInput, Queued, Refused, SottovoceError
from .outlets import Outlets
from .serving import Serving
from .teller import Teller

BEGIN = 7 * 86_400.0
"""Seconds in which all sites must have greeted, or the plan is set aside."""
TOLD = 30.0
"""Seconds in which the sites of a plan that was ended can ask, and hear it, before the next one."""
_LOOK = 1.0
"""Seconds between two looks at an empty queue, or a port that is still taken."""
_PORT = 30.0
"""Seconds in which the port of the plan before must become free."""


@dataclass(frozen=True)
class Choices:
    """How a queue is served.

    Parameters
    ----------
    credentials : Credentials
        The hub's.
    listen : str
        HOST:PORT for the sites.
    once : bool
        Whether serving ends when no plan waits.
    patience : float or None
        Deadline in place of the plans' own, for plans that have one.
    greeting : float
        Seconds that the first exchange waits for its last site, from its first.
    begin : float
        Seconds in which all sites must have greeted, from when the plan is offered.
    """

    credentials: Credentials
    listen: str
    once: bool
    patience: float | None
    greeting: float = math.inf
    begin: float = BEGIN

    def check_patience_of(self, plan: Plan) -> None:
        """Raise :class:`InvalidInput` for a patience that was typed, of a plan without deadline."""
        if self.patience is not None:
            plan.waits.with_deadline(self.patience)

    def waits_of(self, plan: Plan) -> Waits | None:
        """Return the waits of a plan; None for its own."""
        if self.patience is None or plan.waits.waits_for_ever:
            return None
        return plan.waits.with_deadline(self.patience)


class QueueServing:
    """Serves the plans of a queue until it is stopped, or with `once` until none waits.

    Parameters
    ----------
    folder : Path
        The hub's.
    log : HubLog
        Messages of all runs.
    teller : Teller
    outlets : Outlets
    choices : Choices
    """

    def __init__(
        self, folder: Path, log: HubLog, teller: Teller, outlets: Outlets, choices: Choices
    ) -> None:
        self._folder = folder
        self._log = log
        self._teller = teller
        self._outlets = outlets
        self._choices = choices
        self._queue = PlanQueue(folder)
        # hubs of plans that are over, for sites that ask late
        self._over: dict[str, Hub] = {}
        self._set_aside: list[str] = []
        self._trouble: str | None = None

    def follow(self, stop: Event) -> None:
        """Serve plan after plan, until `stop` is set.

        Raises :class:`EndedEarly` at the end of a queue that is served once, if a plan was set
        aside.
        """
        while not stop.is_set():
            waiting = self._queue.waiting()
            if waiting:
                self._try_plan(waiting[0], stop)
            elif self._choices.once:
                break
            elif not self._serve_last_again(stop):
                stop.wait(_LOOK)
        if stop.is_set():
            self._teller.print_line_or_json("stopped; the same command goes on", stopped=True)
        elif self._set_aside:
            runs = ", ".join(map(repr, self._set_aside))
            raise EndedEarly(
                f"queue: these plans were set aside: {runs}; `sottovoce hub queue list` says why"
            )

    def _try_plan(self, entry: Entry, stop: Event) -> None:
        """Serve one plan; a full disk or a want of descriptors is told, and waited for."""
        try:
            self._serve_or_set_aside(entry, stop)
        except InvalidInput:
            raise
        except (SottovoceError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._teller.print_line_or_json(
                    f"{error}; the hub stays and tries again", trouble=str(error)
                )
            stop.wait(_LOOK)
        else:
            self._trouble = None

    def _serve_or_set_aside(self, entry: Entry, stop: Event) -> None:
        """Serve one plan to its end; one that cannot be served is set aside."""
        try:
            hub = self._hub_of(entry.plan)
            run_in_the_way(self._folder / "hub", entry.plan)
            hub.check_log()
        except InvalidInput as error:
            self._record_end(entry, "set aside", str(error))
            return
        self._offer(entry.plan)
        self._serve(hub, entry, stop)

    def _hub_of(self, plan: Plan) -> Hub:
        """Return the hub of a plan, which passes requests of other runs on."""
        hub = Hub(plan, self._log, self._choices.waits_of(plan), self._choices.greeting)
        hub.other_runs = self._other_run
        return hub

    def _offer(self, plan: Plan) -> None:
        """Write ``plan.json``, from which sites get the plan, unless it is this plan already."""
        path = self._folder / "plan.json"
        try:
            offered = read_plan_file(path).digest
        except InvalidInput:
            offered = None
        if offered != plan.digest:
            write_plan_file(plan, path)

    def _serve(self, hub: Hub, entry: Entry | None, stop: Event) -> None:
        """Serve a plan until another one waits; `entry` is None for one that is over."""
        serving = Serving(self._folder, hub, self._teller, self._outlets, once=False, linger=0.0)
        turn = _Turn(self, hub, serving, entry)
        until = time.monotonic() + _PORT
        while not stop.is_set():
            try:
                with serving.open_relay(
                    self._choices.credentials, self._choices.listen, last=False
                ):
                    serving.follow_until(stop, turn.is_over)
                break
            except InvalidInput as error:
                if error.field != "listen" or time.monotonic() > until:
                    raise
                stop.wait(_LOOK)
        self._over[hub.plan.run] = hub

    def _serve_last_again(self, stop: Event) -> bool:
        """Serve the plan that was over last, for sites that ask late; False if there is none."""
        for entry in reversed(self._queue.entries()):
            try:
                hub = self._hub_of(entry.plan)
                hub.check_log()
            except InvalidInput:
                continue
            self._serve(hub, None, stop)
            return True
        return False

    def _other_run(self, run: str, site: str) -> Hub:
        """Return the hub of another run of the queue.

        Raises :class:`Queued` if its turn has not come, and :class:`Refused` if there is none.
        """
        if run in self._over:
            return self._over[run]
        entry = self._queue.of_run(run)
        if entry is None:
            raise Refused("run: this hub serves another run, and its queue has none of this name")
        waiting = [one.run for one in self._queue.waiting()]
        if run in waiting:
            before = waiting.index(run)
            raise Queued(f"run {run!r} waits in the hub's queue; {before} before it")
        try:
            hub = Hub(entry.plan, self._log)
        except InvalidInput as error:
            raise Refused(f"run: {error}") from None
        self._over[run] = hub
        return hub

    def record_end_of(self, hub: Hub, entry: Entry) -> None:
        """Record how a plan that is over ended, from what the log holds."""
        end: End = "done"
        why = ""
        try:
            if self._log.decisions.is_run_ended(hub.plan.run) and not hub.rounds.is_over:
                raise EndedEarly("the hub ended it")
            hub.check_complete_end()
        except FinishedWithout as error:
            why = str(error)
        except EndedEarly as error:
            end = "set aside"
            why = str(error)
            if not hub.has_begun:
                why = self._reason_of_no_beginning(hub)
        self._record_end(entry, end, why)

    def _reason_of_no_beginning(self, hub: Hub) -> str:
        """Return why a run that was ended had not begun."""
        declined = self._log.decisions.declined_sites(hub.plan.run)
        if declined:
            return "; ".join(f"{site} declined: it {reason}" for site, reason in declined.items())
        missing = [name for name in hub.plan.names if self._log.last(hub.plan.run, name) < 0]
        return f"ended before it began; never greeted: {', '.join(missing) or 'none'}"

    def _record_end(self, entry: Entry, end: End, why: str) -> None:
        """Record how a plan ended, and tell it."""
        # The operator may have taken it out of the queue at this moment.
        if not entry.end_file.exists():
            entry.record_end(end, why)
        self._outlets.counts.add(end)
        text = f"plan {entry.number}, run {entry.run}: {end}"
        if why:
            text += f": {why}"
        if end == "set aside":
            self._set_aside.append(entry.run)
        self._teller.print_line_or_json(
            text,
            queue=entry.number,
            run=entry.run,
            end=end,
            why=why,
            waiting=len(self._queue.waiting()),
        )

    def may_leave(self) -> bool:
        """Return True if a plan that is over need not be served any longer."""
        return self._choices.once or bool(self._queue.waiting())

    @property
    def begin(self) -> float:
        """Seconds in which all sites must have greeted."""
        return self._choices.begin


class _Turn:
    """One plan's turn: when it is over, and when the hub goes on to the next.

    Parameters
    ----------
    queue : QueueServing
    hub : Hub
    serving : Serving
    entry : Entry or None
        None for a plan whose end is recorded.
    """

    def __init__(
        self, queue: QueueServing, hub: Hub, serving: Serving, entry: Entry | None
    ) -> None:
        self._queue = queue
        self._hub = hub
        self._serving = serving
        self._entry = entry
        self._offered = time.time()
        if entry is not None:
            # also after a restart of the hub
            self._offered = (entry.path.parent.parent / "plan.json").stat().st_mtime
        self._ended: float | None = None

    def is_over(self) -> bool:
        """Return True when the next plan may begin."""
        if self._entry is not None:
            self._end_if_nobody_comes()
            if not self._is_run_over():
                return False
            self._queue.record_end_of(self._hub, self._entry)
            self._entry = None
        return self._queue.may_leave()

    def _end_if_nobody_comes(self) -> None:
        """End the run, for all sites, if it has not begun and cannot, or not in time."""
        decisions, run = self._hub.log.decisions, self._hub.plan.run
        if decisions.is_run_ended(run) or self._hub.has_begun:
            return
        late = time.time() - self._offered > self._queue.begin
        if late or decisions.declined_sites(run):
            decisions.record_end_of_run(run)

    def _is_run_over(self) -> bool:
        """Return True if every site has left, or the run was ended and those there were told."""
        if self._serving.results_written:
            return True
        hub = self._hub
        if not hub.log.decisions.is_run_ended(hub.plan.run):
            return False
        if self._ended is None:
            self._ended = time.monotonic()
        gone = hub.gone()
        here = [name for name in hub.plan.names if hub.log.last(hub.plan.run, name) >= 0]
        return time.monotonic() - self._ended > TOLD or all(name in gone for name in here)
