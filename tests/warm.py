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
import traceback
from collections.abc import Mapping, Sequence
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
    for k, file in enumerate(("/dev/null", *asked["into"])):
        opened = os.open(file, os.O_RDONLY if k == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, k)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[:] = path
    importlib.invalidate_caches()
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


def _serve() -> None:
    said = os.fdopen(os.dup(1), "w")
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            _become(asked)
            try:
                _go(asked["words"])
            except Exception:
                traceback.print_exc()
                sys.exit(1)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=said, flush=True)


if __name__ == "__main__":
    _serve()
