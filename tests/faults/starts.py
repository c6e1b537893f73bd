"""Processes of hubs and sites: interpreters of their own, or forks of the program that kills them.

A fork is a process like any other, and a kill takes from it all that it has not written; but the
library is loaded in it, which costs an interpreter a processor second.  Long runs start
interpreters; the few kills of the test suite need not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn, Protocol

from sottovoce.cli import main
from sottovoce.deploy import demonstration

forks = False
"""Whether commands run in forks."""
SOONER = 0.3
"""How much sooner faults come where nothing waits for interpreters."""


class Process(Protocol):
    """What is asked of a process that was started."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


class Fork:
    """A command in a fork of this process, as :class:`subprocess.Popen` has it."""

    def __init__(self, arguments: tuple[str, ...], errors: Path) -> None:
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _become(arguments, errors)

    def _reap(self, options: int) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        code = self._reap(0)
        assert code is not None
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(arguments: tuple[str, ...], errors: Path) -> NoReturn:
    """Run the command in the fork, and end it."""
    code = 1
    try:
        for number, path in ((1, Path(os.devnull)), (2, errors)):
            opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.dup2(opened, number)
            os.close(opened)
        main(arguments)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start_command(*arguments: str, errors: Path) -> Process:
    """Start a ``sottovoce`` command; its standard error is appended to the file `errors`."""
    if forks:
        return Fork(arguments, errors)
    return demonstration.start_command(*arguments, errors=errors)


def sooner(seconds: float) -> float:
    """Seconds until a fault: fewer with forks."""
    return seconds * (SOONER if forks else 1.0)


def later(seconds: float) -> float:
    """The time of a fault so many seconds from now, or sooner with forks."""
    return time.monotonic() + sooner(seconds)
