"""What a command costs before it does anything: processor time, and which libraries it loads, and
for whom.

``python bench/speed/startup.py [--times 7] [--quick] [--json]``

Every command is a process of its own.  Its time is what the system counts for it, user and system
together, so that other work of the machine disturbs it little; the least and the median of several
are told, and beside them those of a bare interpreter and of one that imports NumPy.  The first run
of each is not counted: it writes the bytecode, into a folder of this benchmark's own.  Libraries
come from one more run, under ``-X importtime``, which itself takes time: its seconds say what is
large, not how long the command takes.  A library belongs to the line of this package that was the
first to want it, itself or through another library.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

PACKAGE = "sottovoce"
NAMED = ("--method", "mr_admm", "--pure")  # else a method would be searched for, which is no start
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "python -c 'import numpy'": ("-c", "import numpy"),
    "sottovoce --version": ("-m", PACKAGE, "--version"),
    "sottovoce --help": ("-m", PACKAGE, "--help"),
    "sottovoce methods": ("-m", PACKAGE, "methods"),
    "sottovoce plan": ("-m", PACKAGE, "plan", *NAMED),
    "sottovoce train": ("-m", PACKAGE, "train", *NAMED),
}
LINE = re.compile(r"import time: +(\d+) \| +\d+ \| +(\S+)")
SHOWN = 0.003  # seconds of a library from which on it is listed on a screen
ASKED = re.compile(r"asked: (\S+) by (\S+)")
INTERPRETER = "the interpreter"
# Runs a module as `python -m` does, and tells of every library which line of this package was the
# first to want it.
PROBE = f"""
import atexit, runpy, sys

class First:
    asked = {{}}

    def find_spec(self, name, path=None, target=None):
        frame, whole = sys._getframe(1), name.partition(".")[0]
        while frame is not None and not frame.f_globals.get("__name__", "").startswith("{PACKAGE}"):
            frame = frame.f_back
        if frame is not None:
            self.asked.setdefault(whole, f"{{frame.f_globals['__name__']}}:{{frame.f_lineno}}")

first = First()
sys.meta_path.insert(0, first)
atexit.register(lambda: [print("asked:", name, "by", who, file=sys.stderr) for name, who in first.asked.items()])
runpy.run_module("{PACKAGE}", run_name="__main__", alter_sys=True)
"""


class Loaded(NamedTuple):
    """A module as it was imported, and its own seconds."""

    name: str
    seconds: float


def loaded(report: str) -> list[Loaded]:
    """The modules of a report of ``-X importtime``, in the order in which their imports ended."""
    return [Loaded(name, int(microseconds) / 1e6) for microseconds, name in LINE.findall(report)]


def libraries(modules: Iterable[Loaded], asked: dict[str, str]) -> list[dict[str, Any]]:
    """What each library took, the slowest first, and which line of this package was the first to
    want it.

    What the interpreter loads before it runs anything, up to ``site``, counts as its own.
    """
    found: dict[str, dict[str, Any]] = {}
    running = False
    for module in modules:
        name = module.name.partition(".")[0] if running else INTERPRETER
        running = running or module.name == "site"
        because = asked.get(name, "") if name != PACKAGE else ""
        entry = found.setdefault(
            name, {"library": name, "seconds": 0.0, "modules": 0, "because": because}
        )
        entry["seconds"] += module.seconds
        entry["modules"] += 1
    return sorted(found.values(), key=lambda entry: -float(entry["seconds"]))


def run(arguments: Iterable[str], env: dict[str, str], folder: Path) -> tuple[float, str]:
    """Processor seconds of one process, and what it wrote to standard error."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}: {text[-500:]}")
    return used.ru_utime + used.ru_stime, text


def environment(bytecode: Path | None) -> dict[str, str]:
    """For processes in another folder, which write their bytecode into a folder of the
    benchmark's own; None leaves it where it is.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    if "PYTHONPATH" in env:
        env["PYTHONPATH"] = os.pathsep.join(
            map(os.path.abspath, env["PYTHONPATH"].split(os.pathsep))
        )
    own = {} if bytecode is None else {"PYTHONPYCACHEPREFIX": str(bytecode)}
    return env | own | {"COLUMNS": "100"}


def measure(times: int, quick: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        env = environment(None if quick else folder / "bytecode")
        for name, arguments in COMMANDS.items():
            if not quick:
                run(arguments, env, folder)
            seconds = [run(arguments, env, folder)[0] for _ in range(times)]
            probed = ("-c", PROBE, *arguments[2:]) if arguments[0] == "-m" else arguments
            report = run(("-X", "importtime", *probed), env, folder)[1]
            modules = loaded(report)
            answer[name] = {
                "least": min(seconds),
                "median": median(seconds),
                "modules": len(modules),
                "libraries": libraries(modules, dict(ASKED.findall(report))),
            }
    return {
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "times": times,
        "commands": answer,
    }


def show(answer: dict[str, Any]) -> None:
    print(
        f"processor seconds of {answer['times']} runs; Python {answer['python']}, "
        f"{answer['cores']} cores"
    )
    print(f"{'':28}{'least':>7}{'median':>8}{'modules':>9}")
    for name, entry in answer["commands"].items():
        print(f"{name:28}{entry['least']:7.2f}{entry['median']:8.2f}{entry['modules']:9}")
    for name, entry in answer["commands"].items():
        print(f"\n{name}: seconds under -X importtime, modules, and who wanted it first")
        for library in entry["libraries"]:
            if library["seconds"] >= SHOWN:
                print(
                    f"  {library['library']:22}{library['seconds']:7.3f}{library['modules']:6}  "
                    f"{library['because']}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--times", type=int, default=7, help="runs of each command that are counted"
    )
    parser.add_argument("--quick", action="store_true", help="one run of each: shows that it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    answer = measure(1 if given.quick else max(1, given.times), given.quick)
    if given.json:
        print(json.dumps(answer))
    else:
        show(answer)


if __name__ == "__main__":
    main()
