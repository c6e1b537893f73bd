"""Processes of their own that need not import NumPy, SciPy and scikit-learn anew.

A server, started once by each process that runs tests, imports what others wrote and nothing of
ours; every program runs in a fork of it, with arguments, folder, environment and path of its own.
So it is a process like any other, less a processor second and more.  Tests of what a start loads,
or takes, start an interpreter, and so do those of variables that it alone reads.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats")
LIBRARIES += ("sklearn.linear_model", "sklearn.pipeline", "joblib", "networkx", "click")
LIBRARIES += ("rich.console", "rich.table", "jinja2", "pytest")


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # at the end of its input it ends
    return server


def run(
    arguments: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: int = 0,
) -> subprocess.CompletedProcess[str]:
    """What ``python *arguments`` answers: a script, ``-c`` and code, or ``-m`` and a module.

    Parameters
    ----------
    arguments : sequence of str and Path
        What would follow the interpreter.
    cwd : Path, optional
        The folder; that of this process otherwise.
    env : mapping, optional
        The environment; that of this process otherwise.
    timeout : int, optional
        Seconds after which it is killed; never by default.
    """
    server, words = _server(), [str(word) for word in arguments]
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        asked = {
            "words": words,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "timeout": timeout,
            "into": [str(out), str(err)],
        }
        print(json.dumps(asked), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


class Started:
    """A program that was started, and what :class:`subprocess.Popen` offers of it."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], words: list[str]) -> None:
        self._folder, self._words = folder, words
        place = Path(folder.name)
        self._code = place / "code"
        # In the order in which the program opens them.
        self.stdin = (place / "in").open("w", buffering=1)
        self.stdout = (place / "out").open()
        # One pipe takes both where they are read together.
        self.stderr = (place / "err").open() if (place / "err").exists() else self.stdout
        self.pid = int(self.stderr.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None and self._code.exists():
            self.returncode = int(self._code.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self._words, timeout or 0.0)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it prints until it ends, on standard output and on standard error."""
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(one.read) for one in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self.close()
        out, err = (one.result() for one in read)
        return out, err

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Give up its pipes, once it has ended."""
        for one in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                one.close()
        self._folder.cleanup()


def start(
    arguments: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    together: bool = False,
) -> Started:
    """Start ``python *arguments``, as :func:`run` does, and do not wait for its end.

    With `together` its standard output has its standard error, too.
    """
    server, words = _server(), [str(word) for word in arguments]
    assert server.stdin is not None and server.stdout is not None
    folder = tempfile.TemporaryDirectory()
    names = ("in", "out", "out" if together else "err")
    pipes = [str(Path(folder.name) / name) for name in names]
    for pipe in dict.fromkeys(pipes):
        os.mkfifo(pipe)
    asked = {
        "words": words,
        "cwd": str(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env),
        "timeout": 0,
        "into": pipes,
        "code": str(Path(folder.name) / "code"),
    }
    print(json.dumps(asked), file=server.stdin, flush=True)
    return Started(folder, words)


# The server


def _path(words: list[str], given: str) -> list[str]:
    """The path for imports that an interpreter of these arguments and this PYTHONPATH has."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in sys.path[1:] if entry not in own]
    first = {"-c": "", "-m": os.getcwd()}.get(words[0], str(Path(words[0]).resolve().parent))
    return [first, *filter(None, given.split(os.pathsep)), *rest]


def _become(asked: dict[str, Any]) -> None:
    """Take on what is asked for, in the fork."""
    os.chdir(asked["cwd"])
    path = _path(asked["words"], asked["env"].get("PYTHONPATH", ""))
    files = asked["into"] if "code" in asked else ("/dev/null", *asked["into"])
    for k, file in enumerate(files):
        opened = os.open(file, os.O_RDONLY if k == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, k)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[:] = path
    importlib.invalidate_caches()
    if "code" in asked:
        os.write(2, f"{os.getpid()}\n".encode())
        # Those of the server were made for what it has there.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    signal.alarm(asked["timeout"])


def _go(words: list[str]) -> None:
    """Run what is asked for, as the interpreter would."""
    kind = words[0]
    sys.argv = words if kind not in ("-c", "-m") else [kind, *words[2:]]
    if kind == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        runpy.run_path(kind, run_name="__main__")


def _keep(asked: dict[str, Any]) -> bool:
    """Fork the program that is asked for, wait for its end, and write its exit code down; True in
    the program.
    """
    process = os.fork()
    if not process:
        return True
    code, file = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), Path(asked["code"])
    with contextlib.suppress(FileNotFoundError):  # nobody waits for it any more
        file.with_suffix(".new").write_text(str(code))
        file.with_suffix(".new").rename(file)
    return False


def _serve() -> None:
    said = os.fdopen(os.dup(1), "w")
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    keepers = list[int]()
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            if "code" in asked and not _keep(asked):
                os._exit(0)
            _become(asked)
            try:
                _go(asked["words"])
            except Exception:
                traceback.print_exc()
                sys.exit(1)
            return
        if "code" in asked:
            keepers.append(process)
            keepers = [one for one in keepers if not os.waitpid(one, os.WNOHANG)[0]]
            continue
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=said, flush=True)


if __name__ == "__main__":
    _serve()
