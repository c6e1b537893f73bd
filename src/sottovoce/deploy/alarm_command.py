"""A command of the operator's that is run for each alarm of a hub, ``hub run --on-alarm``.

It gets the alarm as JSON on standard input, and no shell reads it: words of a site or of a file
name cannot become part of the command.
"""

from __future__ import annotations

import errno
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ..errors import InvalidInput
from ..util.plain import format_json_text
from ..util.typing import Any

LONGEST = 60.0
"""Seconds after which the command is killed."""
OVER = 600.0
"""Seconds without an alarm after which the same one counts as another."""
_PASSES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Errors of a machine that has nothing left for a process now: it is tried again."""


def split_command(text: str) -> tuple[str, ...]:
    """Return the words of a command; raises :class:`InvalidInput` if there are none."""
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ()
    if not words:
        rule = "must be a program and its arguments"
        raise InvalidInput("on_alarm", text, rule, "use e.g. '/usr/local/bin/tell-us --urgent'")
    return words


class AlarmCommand:
    """Runs a command at most once for each alarm, each in a thread of its own.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    tell : callable ``(line)``
        Called if the command fails, from any thread.
    clock : callable
        Returns seconds that never go back.
    longest : float
        Seconds after which the command is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        longest: float = LONGEST,
    ) -> None:
        self._command = list(command)
        self._tell = tell
        self._clock = clock
        self._longest = longest
        self._lock = threading.Lock()
        # when each alarm was last seen, by its kind and what it concerns
        self._seen: dict[tuple[str, str], float] = {}
        self._threads: list[threading.Thread] = []

    def note_alarms(self, alarms: Sequence[Mapping[str, str]], **more: Any) -> None:
        """Run the command for each alarm that is new; `more` is added to what it gets."""
        now = self._clock()
        with self._lock:
            for one, at in list(self._seen.items()):
                if now - at > OVER:
                    del self._seen[one]
            found = {(one["alarm"], one["about"]): one for one in alarms}
            fresh = [alarm for key, alarm in found.items() if key not in self._seen]
            self._seen |= dict.fromkeys(found, now)
        for alarm in fresh:
            thread = threading.Thread(target=self._run, args=(dict(alarm) | more,), daemon=True)
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for commands that run, but not longer than `seconds` for all."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, alarm: dict[str, Any]) -> None:
        """Run the command for one alarm, and tell if it fails."""
        try:
            ended = subprocess.run(
                self._command,
                input=format_json_text(alarm).encode() + b"\n",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._longest,
                check=False,
            )
        except subprocess.TimeoutExpired:
            why = f"was killed after {self._longest:g} s"
        except OSError as error:
            why = f"could not be started: {error.strerror}"
            if error.errno in _PASSES:
                with self._lock:
                    self._seen.pop((alarm["alarm"], alarm["about"]), None)
        else:
            if ended.returncode == 0:
                return
            why = f"ended with code {ended.returncode}"
        self._tell(f"on-alarm: the command for the alarm {alarm['alarm']!r} {why}")
