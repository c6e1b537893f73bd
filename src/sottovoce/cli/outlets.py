"""What a hub tells besides its console: a page, a monitoring system, a log of JSON lines, and a
command for alarms.

An :class:`Outlets` lives as long as the process; the runs that it serves one after another put
their :class:`sottovoce.deploy.watch.Watch` into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..deploy.alarm_command import AlarmCommand
from ..deploy.events_log import EventsLog
from ..deploy.hub_settings import HubSettings
from ..deploy.metrics import Counts, serve_metrics
from ..deploy.monitor import PAGE, BoundedServer, serve_status_page
from ..deploy.watch import Watch
from ..errors import SottovoceError
from .teller import Teller

_LAST_COMMANDS = 5.0
"""Seconds that commands for alarms have to end when the hub ends."""


class Outlets:
    """The outlets of one hub.

    Parameters
    ----------
    folder : Path
        The hub's.
    settings : HubSettings
    page : str or None
        HOST:PORT of the page that shows the run, or "none"; None takes the default, or a free port.
    teller : Teller
        Gets the log of JSON lines, and tells what fails.
    queued : callable
        Returns how many plans wait in the hub's queue.

    Attributes
    ----------
    counts : Counts
        Requests that were refused or failed, and plans that are over.
    watch : Watch or None
        Of the run that is served.
    address, page : str or None
        Of the metrics and the page, as URLs, while they are served.
    """

    def __init__(
        self,
        folder: Path,
        settings: HubSettings,
        page: str | None,
        teller: Teller,
        queued: Callable[[], int] = lambda: 0,
    ) -> None:
        self.counts = Counts()
        self.watch: Watch | None = None
        self.address: str | None = None
        self.page: str | None = None
        self._page_asked = page
        self._folder = folder
        self._settings = settings
        self._teller = teller
        self._queued = queued
        self._command: AlarmCommand | None = None
        if settings.on_alarm:
            self._command = AlarmCommand(settings.on_alarm, self._tell_failed_command)
        if settings.log_json is not None:
            teller.log = EventsLog(settings.log_json, "hub", teller.tell_log_trouble)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Serve the page and the metrics; everything that is started ends with this."""
        with ExitStack() as servers:
            # The usual port may be taken by the page of another hub; a port that was typed may not.
            if self._page_asked != "none":
                server, self.page = serve_status_page(
                    self._status, self._page_asked or PAGE, free=self._page_asked is None
                )
                servers.callback(_close_server, server)
            if self._settings.metrics is not None:
                server, self.address = serve_metrics(
                    self._look, self._folder, self.counts, self._settings.metrics
                )
                servers.callback(_close_server, server)
            if self._command is not None:
                servers.callback(self._command.wait, _LAST_COMMANDS)
            yield

    def note_request(self, site: str, what: str) -> None:
        """Note a request of a site, as :func:`sottovoce.deploy.relay.start_relay` tells it."""
        self.counts.add(what)
        if what == "asked" and self.watch is not None:
            self.watch.note_request(site)

    def note_alarms(self, alarms: Sequence[dict[str, str]], run: str, plan: str) -> None:
        """Run the operator's command for alarms that are new.

        Parameters
        ----------
        alarms : sequence of dict
            Of :meth:`sottovoce.deploy.watch.Watch.status_with_times`.
        run, plan : str
            Name of the run, and digest of its plan; the command gets both.
        """
        if self._command is not None:
            self._command.note_alarms(alarms, run=run, plan=plan)

    def _status(self) -> dict[str, Any]:
        """Return the state of the run for the page; raises :class:`SottovoceError` without one."""
        if self.watch is None:
            raise SottovoceError("queue: no plan waits; see `sottovoce hub queue add`")
        return self.watch.status_with_times()

    def _look(self) -> tuple[dict[str, Any] | None, int]:
        """Return the state of the run that is served, and the number of plans that wait."""
        if self.watch is None:
            return None, self._queued()
        return self.watch.status_for_metrics(), self._queued()

    def _tell_failed_command(self, line: str) -> None:
        """Tell that the command for an alarm failed."""
        self._teller.print_line_or_json(line, trouble=line)


def _close_server(server: BoundedServer) -> None:
    """Stop a server of pages."""
    server.shutdown()
    server.server_close()
