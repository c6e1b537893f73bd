"""Somebody at a terminal, for tests that replay what people type."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
from pathlib import Path

import warm


class Person:
    """Somebody at a terminal: starts a command in a folder, reads what it prints, and types."""

    def __init__(self, folder: Path, command: str) -> None:
        self.process = warm.start(
            ["-m", "sottovoce", *shlex.split(command)],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            together=True,
        )
        self.text, self._news = "", threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while letter := self.process.stdout.read(1):
            with self._news:
                self.text += letter
                self._news.notify_all()

    def reads(self, pattern: str) -> str:
        with self._news:
            assert self._news.wait_for(lambda: re.search(pattern, self.text), 120.0), self.text
            found = re.search(pattern, self.text)
            assert found is not None
            return found[1] if found.groups() else found[0]

    def types(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ends(self, code: int = 0) -> None:
        assert self.process.wait(120.0) == code, self.text
        self._listener.join()
        self.process.close()

    def stops(self, number: int = signal.SIGTERM) -> str:
        """Stop the command by a signal, and return all that it printed."""
        self.process.send_signal(number)
        self.process.wait(60.0)
        self._listener.join()
        self.process.close()
        return self.text
