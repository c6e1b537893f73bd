"""A hub that serves a run at a console, for ``sottovoce hub run``: its messages, results and end.

:class:`Serving` starts the servers and looks at the run until it is over; :class:`News` tells who
is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

from rich.live import Live
from rich.table import Table

from ..deploy import certificates
from ..deploy.hub import Hub
from ..deploy.names import check_site_name
from ..deploy.plan import Plan
from ..deploy.relay import Credentials, start_relay
from ..deploy.report import describe_progress, read_finished_results, write_hub_results
from ..deploy.watch import Watch, describe_long_waits
from ..errors import InvalidInput, SottovoceError
from .outlets import Outlets
from .screen import escape_markup, make_listing
from .teller import Teller

LINGER = 300.0
"""Seconds that `hub run --once` waits for sites without which the run went on."""
_BETWEEN_STEPS = 0.2
"""Seconds between two looks at whether serving is over."""
_BETWEEN_LOOKS = 0.5
"""Seconds between two looks at how far the run is."""
_BEFORE_A_LINE = 15.0
"""Seconds that a site is waited for until a line says so."""
_BETWEEN_LINES = 60.0
"""Seconds between two such lines."""


class News:
    """Lines on the console while a hub serves a run.

    They say who waits for whom, again every minute while it lasts, and each alarm once.
    """

    def __init__(
        self,
        watch: Watch,
        tell: Callable[..., None],
        noted: Callable[[list[dict[str, str]], str, str], None],
    ) -> None:
        self._watch = watch
        self._say = tell
        self._noted = noted
        self._looked = self._said = time.monotonic()
        self._alarms: set[str] = set()

    def look_and_tell(self, *, last: bool = False) -> None:
        """Note how far the run is, and tell what is new.

        It does so at most every `_BETWEEN_LOOKS` seconds; with `last` it notes at once, and tells
        nothing.
        """
        now = time.monotonic()
        if not last and now - self._looked < _BETWEEN_LOOKS:
            return
        self._looked = now
        self._watch.note_new_messages(now=last)
        if not last and now - self._said >= _BEFORE_A_LINE:
            self._tell_news(now)

    def _tell_news(self, now: float) -> None:
        """Say who is waited for, and alarms that were not told before."""
        status = self._watch.status_with_times()
        lines = describe_long_waits(status, _BEFORE_A_LINE)
        self._said = now
        if lines:
            # So that the next such line comes _BETWEEN_LINES from now.
            self._said = now + _BETWEEN_LINES - _BEFORE_A_LINE
            self._say("\n".join(lines), waits=lines)
        self._noted(status["alarms"], status["run"], status["plan"])
        for one in status["alarms"]:
            known = one["alarm"] + one["do"]
            # The lines above tell of a run that is stalled.
            if one["alarm"] != "stalled" and known not in self._alarms:
                self._alarms.add(known)
                self._say(f"{one['what']}: {one['do']}", alarm=one)


class Serving:
    """A hub that serves its run until it is stopped, or with `once` until every site has left.

    Parameters
    ----------
    folder : Path
        Where the plan, the certificates and the results are.
    hub : Hub
        Carries the messages of the run.
    teller : Teller
        Prints lines for people, or JSON objects.
    outlets : Outlets
        Gets the requests and alarms of this run.
    once : bool
        Whether serving ends by itself when every site has left; otherwise only when it is stopped.
    linger : float
        With `once`: seconds more for sites without which the run went on, to be told.

    Attributes
    ----------
    results_written : bool
        Whether every site has left, and the results are written if there are any.
    """

    def __init__(
        self,
        folder: Path,
        hub: Hub,
        teller: Teller,
        outlets: Outlets,
        *,
        once: bool,
        linger: float,
    ) -> None:
        self._folder = folder
        self._hub = hub
        self._teller = teller
        self._once = once
        self._linger = linger
        self._watch = Watch(hub, folder)
        self._news = News(self._watch, teller.print_line_or_json, outlets.note_alarms)
        self._outlets = outlets
        outlets.watch = self._watch
        teller.plan = hub.plan.digest
        self.results_written = False
        # what failed the last time, by the name of the step
        self._troubles: dict[str, str] = {}
        self._lingers_until: float | None = None

    @contextmanager
    def open_relay(
        self, credentials: Credentials, listen: str, *, last: bool = True
    ) -> Iterator[None]:
        """Serve the hub for the sites; the relay ends with the context.

        Parameters
        ----------
        credentials : Credentials
            The hub's key and certificates.
        listen : str
            HOST:PORT for the sites.
        last : bool
            Whether this process serves no run after this one: then the log ends, too.
        """
        hub, folder = self._hub, self._folder
        server, port = start_relay(
            hub,
            credentials,
            listen,
            self._teller.tell_refused_request,
            self._teller.tell_failed_request,
            lambda name: files_for_invited_site(folder, name),
            self._outlets.note_request,
            lambda pem: certificates.is_revoked(folder, pem),
        )
        self._announce_start(port)
        try:
            yield
        finally:
            self._look_and_write_results(last=True)
            if last:
                hub.log.close()
            # Requests that are being answered have a second to end.
            server.stop(1.0).wait()

    def follow_until_over(self, stop: Event) -> None:
        """Look at the run until it is over, or `stop` is set.

        Raises as :meth:`Hub.check_complete_end` for a run that is over.
        """
        self.follow_until(
            stop, lambda: self._once and self.results_written and self._all_sites_told()
        )
        if self.results_written:
            self._hub.check_complete_end()
        elif stop.is_set() and not self._teller.as_json:
            self._teller.print_line_or_json("stopped; the same command goes on", stopped=True)

    def follow_until(self, stop: Event, leaves: Callable[[], bool]) -> None:
        """Look at the run until `leaves` returns True, or `stop` is set."""
        with self._live_sites_table():
            while not stop.wait(_BETWEEN_STEPS):
                self._look_and_write_results()
                if self._try_or_tell("leave", leaves):
                    break

    def _look_and_write_results(self, *, last: bool = False) -> None:
        """Look at how far the run is, and write the results once every site has left."""

        def look() -> bool:
            self._news.look_and_tell(last=last)
            if not self.results_written and self._hub.all_sites_left:
                self._write_results()
            return True

        self._try_or_tell("look", look)

    def _try_or_tell(self, name: str, step: Callable[[], bool]) -> bool:
        """Return what a step returns, and False if it fails.

        A full disk or a want of file descriptors never ends the hub: it is told once, and the next
        look tries again.  Only a log that is damaged does, since nothing can be carried then.
        """
        try:
            done = step()
        except InvalidInput:
            raise
        except (SottovoceError, OSError) as error:
            if str(error) != self._troubles.get(name):
                self._troubles[name] = str(error)
                self._teller.print_line_or_json(
                    f"{error}; the hub stays and tries again", trouble=str(error)
                )
            return False
        self._troubles.pop(name, None)
        return done

    def _announce_start(self, port: int) -> None:
        """Tell the run, the port for the sites, and the addresses of the page and the metrics."""
        plan = self._hub.plan
        page, where = self._outlets.page, ""
        if page is not None:
            where = f"; its page: {page}"
        metrics = self._outlets.address
        if metrics is not None:
            where += f"; metrics: {metrics}metrics"
        text = (
            f"run {plan.run}: listening on port {port}{where}; Ctrl-C ends it\nplan {plan.digest}"
        )
        self._teller.print_line_or_json(
            text, run=plan.run, plan=plan.digest, port=port, page=page, metrics=metrics
        )

    def _live_sites_table(self) -> Any:
        """Show a table of the sites on a terminal, renewed while the run goes on.

        There is none for a file or a program.
        """
        console = self._teller.console
        if self._teller.as_json or not console.is_terminal:
            return nullcontext()
        rounds = self._hub.plan.exchange_table.attempts
        return Live(
            get_renderable=lambda: make_progress_table(self._hub.sites(), rounds),
            console=console,
            refresh_per_second=2,
        )

    def _write_results(self) -> None:
        """Write the results once every site has left, and say so."""
        plan = self._hub.plan
        has_results = write_hub_results(self._folder, self._hub)
        self.results_written = True
        where = ""
        if has_results:
            where = f": {_result_file_names(plan)} are in {self._folder}"
        self._teller.print_line_or_json(
            f"every site has left{where}", left=self._hub.gone(), finished=has_results
        )
        if has_results and plan.asks is not None and not self._teller.as_json:
            # Loads SciPy's statistics.
            from .answers import render_answers_record

            summary = read_finished_results(self._folder / "hub", plan) or {}
            render_answers_record(summary["record"], self._teller.console)

    def _all_sites_told(self) -> bool:
        """Return True if all sites know that the run is over, or had the time to ask."""
        untold = self._hub.rounds.sites_not_told
        if not untold:
            return True
        who = ", ".join(untold)
        if self._lingers_until is None:
            self._lingers_until = time.monotonic() + self._linger
            text = (
                f"waits {self._linger:g} s so that {who} can be told that the run went on without "
                "them; Ctrl-C ends it"
            )
            self._teller.print_line_or_json(text, untold=untold, seconds=self._linger)
        if time.monotonic() < self._lingers_until:
            return False
        key = (
            "the key of this run stays at the site until `site end`, or until the site asks this "
            "hub again"
        )
        self._teller.print_line_or_json(f"never told: {who}; {key}", untold=untold, seconds=0.0)
        return True


def files_for_invited_site(folder: Path, name: str) -> dict[str, Any]:
    """Return the files that an invited site may ask for.

    They are its certificate, if it was admitted, and the plan.
    """
    check_site_name("name", name)
    files = {"certificate": folder / f"{name}.crt", "plan": folder / "plan.json"}
    return {what: path.read_text("utf-8") for what, path in files.items() if path.is_file()}


def make_progress_table(sites: list[dict[str, Any]], rounds: int) -> Table:
    """Make a table of how far every site is.

    Parameters
    ----------
    sites : list of dict
        Rows, last message and reason of leaving of each, as :meth:`sottovoce.deploy.hub.Hub.sites`
        returns them.
    rounds : int
        Rounds of the plan, as for :func:`sottovoce.deploy.report.describe_progress`.
    """
    table = make_listing("<site", ">rows", ">last message", "<left")
    for one in sites:
        table.add_row(
            escape_markup(one["site"]),
            f"{one['rows']:,}",
            describe_progress(one, rounds),
            escape_markup(one["left"] or "no"),
        )
    return table


def _result_file_names(plan: Plan) -> str:
    """Name the files that a finished run leaves at the hub; an inference has no model."""
    if plan.is_inference:
        return "hub.html and hub.json"
    return "hub.html, hub.npz and hub.json"
