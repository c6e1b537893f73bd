"""What a hub's process tells: lines for people or JSON for a program, and a log of the latter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..deploy.events_log import EventsLog
from .screen import Console, print_json

_EVENTS = {
    "run": "serving",
    "site": "request not answered",
    "waits": "waiting",
    "alarm": "alarm",
    "trouble": "trouble",
    "left": "every site has left",
    "untold": "sites not told",
    "stopped": "stopped",
    "queue": "queue",
}
"""What is logged, by the first key of what a program is told."""


@dataclass
class Teller:
    """Lines for people on a console, or JSON objects for a program; and a log of the latter.

    Parameters
    ----------
    as_json : bool
    console : Console
    log : EventsLog, optional
        Gets every line, with the digest of the `plan` that is served.
    """

    as_json: bool
    console: Console = field(default_factory=Console)
    log: EventsLog | None = None
    plan: str | None = None

    def print_line_or_json(self, text: str, **more: Any) -> None:
        """Print `text` for people, or the values of `more` as a JSON object for a program."""
        if self.log is not None:
            self.log.write(_EVENTS.get(next(iter(more), ""), "told"), self.plan, **more)
        self._print(text, **more)

    def tell_log_trouble(self, line: str) -> None:
        """Tell that the log of JSON lines cannot be written."""
        self._print(line, trouble=line)

    def _print(self, text: str, **more: Any) -> None:
        """Print as :meth:`print_line_or_json`, and log nothing."""
        if self.as_json:
            print_json(more)
        else:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tell_refused_request(self, site: str, why: str) -> None:
        """Tell that a request of a site was wrong."""
        self.print_line_or_json(f"{site}: refused: {why}", site=site, refused=why)

    def tell_failed_request(self, site: str, why: str) -> None:
        """Tell that a request was not answered, by an error of the hub's own."""
        self.print_line_or_json(
            f"{site}: not answered, by an error of this hub: {why}", site=site, failed=why
        )
