"""Real faults in real runs over the relay: what a supervisor, an operator and bad luck do to a
consortium.

    python bench/life.py [--faults 300] [--longest 150] [--sites 4] [--rounds 100] [--seed 0]
    [--json] [--forks]

Hub and sites are processes of their own, over TLS, on real files.  Every run is over a graph or of
sums, and meets some faults at random instants: a hub or a site killed and started again, a site
lost for good, a process stopped for some seconds (a slow machine, or a cut network), a full disk
(the system's limit on the size of files: every write fails), a site taken out by `sottovoce hub
expel`, a ledger put back from an older copy.  After every run, which must end by itself within
`--longest` seconds: the auditor of `tests/world`, which shares no code with the library, reads
ledgers and the hub's log; exit codes are those of the book; those that stay tell one roster; their
models are, bit by bit, those of the same run in one process with the same sites lost.  Linux; about
half an hour on 2 cores for 300 faults.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path += [str(Path(__file__).parents[1] / "tests" / name) for name in ("world", "faults")]

import numpy as np  # noqa: E402
import starts  # noqa: E402
from auditor import Auditor  # noqa: E402
from sites import SCHEMA, messages, table  # noqa: E402

from sottovoce.deploy import demonstration, run_sites  # noqa: E402
from sottovoce.deploy.demonstration import Demonstration  # noqa: E402
from sottovoce.deploy.hub import Hub  # noqa: E402
from sottovoce.deploy.hublog import HubLog  # noqa: E402
from sottovoce.deploy.waits import Waits  # noqa: E402
from sottovoce.runs.config import RunConfig  # noqa: E402
from sottovoce.runs.simulate import Result  # noqa: E402

METHODS = ("momentum", "sum_momentum", "mr_admm", "sum_prox")
FAULTS = ("kill", "kill", "hub", "lost", "stop", "stop hub", "full", "hub full", "expel", "restore")
WAITS, GREETING = Waits(4.0, 12.0), 30.0
FINAL = (0, 3, 4, 5)
"""Exit codes with which a site's part is over; 1 and 2 are for people, who mend and start again."""
TRIES = 4


class Life:
    """One run, its processes, and what happens to them."""

    def __init__(self, demo: Demonstration, rng: random.Random, faults: int) -> None:
        self.demo, self.rng, self.plan = demo, rng, demo.plan
        self.started, self.said = time.monotonic(), list[str]()
        self.processes: dict[str, starts.Process] = {}
        self.codes, self.tries, self.lost = dict[str, int](), Counter[str](), set[str]()
        self.copies: dict[str, bytes] = {}
        self.harmed, self.full, self.happened = set[str](), set[str](), Counter[str]()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.faults, self.at = faults, self.now + starts.sooner(rng.uniform(1.0, 5.0))
        for name in ("hub", *self.plan.names):
            self.start(name)

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def say(self, what: str) -> None:
        self.said.append(f"{self.now:6.1f} {what}")

    def ledger(self, name: str) -> Path:
        return self.demo.folder / name / f"{name}.ledger"

    def start(self, name: str) -> None:
        address = f"127.0.0.1:{self.demo.port}"
        hub = (
            "hub",
            "run",
            str(self.demo.hub),
            "--listen",
            address,
            "--page",
            "none",
            "--greeting",
            str(GREETING),
        )
        command = (
            hub
            if name == "hub"
            else ("site", "run", str(self.demo.settings_file_of(name)), "--json")
        )
        self.processes[name] = starts.start_command(
            *command, errors=self.demo.folder / name / "errors"
        )
        self.tries[name] += 1

    def look(self) -> None:
        """Act when a fault's time has come, and start again what ended before its time."""
        while self.later and self.later[0][0] <= self.now:
            self.later.pop(0)[1]()
        if self.faults and self.now >= self.at:
            self.at = self.now + starts.sooner(self.rng.choice((0.3, 1.0, 3.0, 6.0)))
            kind = self.rng.choice(FAULTS)
            if getattr(self, f"_{kind.split()[0]}")(
                "hub" if "hub" in kind else self.rng.choice(self.plan.names)
            ):
                self.faults -= 1
                # which happens later, if the site is still there
                self.happened[kind] += kind != "restore"
        for name, process in list(self.processes.items()):
            code = process.poll()
            if code is None or name in self.codes:
                continue
            ended = name != "hub" and (code in FINAL or self.tries[name] > TRIES)
            if ended or name in self.lost:
                self.codes[name] = -9 if name in self.lost else code
                self.say(f"{name} ends with {code}")
                continue
            self.codes[name] = code  # until it is started again
            self.say(f"{name} ended with {code}")
            pause = self.rng.choice((0.0, 1.0, 4.0)) if code == -signal.SIGKILL else 5.0
            self.then(pause, lambda name=name: self._again(name))

    def then(self, seconds: float, act: Callable[[], None]) -> None:
        self.later.append((self.now + seconds, act))
        self.later.sort(key=lambda one: one[0])

    def _again(self, name: str) -> None:
        del self.codes[name]
        self.start(name)

    @property
    def over(self) -> bool:
        return all(name in self.codes for name in self.plan.names) and not self.later

    def alive(self, name: str) -> bool:
        return name not in self.codes and self.processes[name].poll() is None

    # Faults: each says whether it could happen

    def _kill(self, name: str) -> bool:
        if not self.alive(name):
            return False
        self.say(f"{name} is killed")
        self.processes[name].kill()
        return True

    _hub = _kill

    def _lost(self, name: str) -> bool:
        if len(self.lost) > len(self.plan.names) - 3 or not self._kill(name):
            return False
        self.say(f"{name} is lost for good")
        self.lost.add(name)
        return True

    def _stop(self, name: str) -> bool:
        if not self.alive(name):
            return False
        process, seconds = self.processes[name], self.rng.choice((0.5, 2.0, 3.0, 8.0))
        self.say(f"{name} stops for {seconds} s")
        process.send_signal(signal.SIGSTOP)
        self.then(seconds, lambda: process.send_signal(signal.SIGCONT))
        return True

    def _full(self, name: str) -> bool:
        if not self.alive(name):
            return False
        process, seconds = self.processes[name], self.rng.choice((1.0, 3.0, 8.0))
        self.say(f"{name} has no room for {seconds} s")
        self.full.add(name)
        self._limit(process, 1)
        self.then(seconds, lambda: self._limit(process, resource.RLIM_INFINITY))
        return True

    def _limit(self, process: starts.Process, size: int) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _expel(self, name: str) -> bool:
        if name in self.codes or self.happened["expel"]:
            return False
        errors = self.demo.hub / "expel"
        self.say(f"{name} is taken out")
        return (
            starts.start_command("hub", "expel", str(self.demo.hub), name, errors=errors).wait()
            == 0
        )

    def _restore(self, name: str) -> bool:
        """A copy of now comes back later, after a crash."""
        if not self.alive(name) or name in self.copies:
            return False
        self.copies[name] = self.ledger(name).read_bytes()
        self.say(f"{name} makes a copy")

        def restore() -> None:
            if self._kill(name):
                self.processes[name].wait()
                self.harmed.add(name)
                self.happened["restore"] += 1
                self.ledger(name).write_bytes(self.copies[name])
                self.ledger(name).with_name(f"{name}.ledger-journal").unlink(missing_ok=True)
                self.say(f"{name} has its copy back")

        self.then(self.rng.choice((1.0, 3.0)), restore)
        return True

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def judged(life: Life) -> list[str]:
    """Promises that a run broke."""
    demo, plan, codes = life.demo, life.plan, life.codes
    flat = demo.folder / "flat"  # the auditor reads ledgers of one folder
    flat.mkdir()
    for name in plan.names:
        shutil.copy(life.ledger(name), flat)
    auditor = Auditor(flat, plan.run, plan.names, plan.quorum.least, summed=plan.uses_secure_sums)
    auditor.order = plan.names
    auditor.read(messages(demo), but=life.harmed)
    for name in plan.names:
        auditor.spending(name, codes[name])
    with HubLog(demo.hub / "hub.log") as log:
        hub = Hub(plan, log)
        roster, since = hub.status_as_dict()["roster"], hub.status_as_dict()["roster"]["since"]
        attempts = hub.rounds.attempts if plan.uses_secure_sums else None
    harmed = life.harmed | {name for name, code in codes.items() if code in (-9, 1, 2)}
    ends = {}
    for name in plan.names:
        with suppress(FileNotFoundError):
            ends[name] = json.loads((demo.folder / name / f"{name}.json").read_text())
    for name in plan.names:
        code, end = codes[name], ends.get(name)
        if code == 3 and name not in life.harmed:
            auditor.breach(f"{name}: refused something of an honest hub")
        if code in (1, 2) and name not in life.harmed | life.full:
            auditor.breach(f"{name}: ended with {code} for no reason of its own")
        if name in harmed or end is None:
            continue
        right = 0
        if end["stopped"] not in ("finished", "budget spent"):
            right = 4
        elif end.get("lost"):
            right = 5
        if code != right:
            auditor.breach(f"{name}: ended with {code} where {right} is right")
    stay = [name for name in roster["members"] if name not in harmed]
    rosters = [ends[name].get("roster") for name in stay]
    if len({codes[name] for name in stay}) > 1 or any(one != rosters[0] for one in rosters):
        auditor.breach(f"those that stay end in different ways: {codes}")
    if stay and all(codes[name] in (0, 5) for name in stay):
        index = plan.names.index
        told: dict[str, Any] = {"lost": {index(name): k for name, k in since.items()}}
        if attempts is not None:
            told = {
                "attempts": [
                    ([index(name) for name in one.members], one.opened) for one in attempts
                ]
            }
        made = run_sites(plan.config, demo.rows, **told)
        for name in stay:
            twin = (
                plan.stages[0]
                .prepared.algorithm.method_of_node(index(name))
                .model(made[index(name)][0].state)
            )
            if not np.array_equal(
                Result.load(demo.folder / name / f"{name}.npz").models[0, 0], np.ravel(twin)
            ):
                auditor.breach(f"{name}: another model than its twin's")
    return auditor.broken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=300, help="faults at least")
    parser.add_argument(
        "--longest", type=float, default=150.0, help="seconds within which every run must end"
    )
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=Path, help="keep the files of a run that broke a promise here"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--forks", action="store_true", help="start forks, not interpreters")
    arguments = parser.parse_args()
    starts.forks = arguments.forks
    rng, started = random.Random(arguments.seed), time.perf_counter()
    happened, codes, seconds, broken = (
        Counter[str](),
        Counter[int](),
        list[float](),
        dict[int, list[str]](),
    )
    with tempfile.TemporaryDirectory() as name:
        rows = table(Path(name), 150 * arguments.sites)
        while happened.total() < arguments.faults:
            number = len(seconds)
            method = METHODS[number % len(METHODS)]
            graph = {} if method.startswith("sum") else {"graph": rng.choice(("complete", "ring"))}
            config = RunConfig.from_dict(
                {
                    "method": method,
                    "epsilon": 5.0,
                    "delta": 1e-5,
                    "rounds": arguments.rounds,
                    "seed": number,
                    **graph,
                }
            )
            demo = demonstration.build_demonstration(
                Path(name) / "run",
                config,
                arguments.sites,
                str(rows),
                SCHEMA,
                centre=False,
                waits=WAITS,
            )
            life = Life(demo, rng, rng.randint(2, 9))
            try:
                while not life.over and life.now < arguments.longest:
                    life.look()
                    time.sleep(0.02)
            finally:
                life.stop()
            found = (
                judged(life)
                if life.over
                else [f"no end after {arguments.longest:g} s: {life.codes}"]
            )
            happened.update(life.happened)
            codes.update(life.codes[name] for name in demo.plan.names if name in life.codes)
            seconds.append(life.now)
            if found:
                broken[number] = found
                print("\n".join([f"run {number} ({method}):", *found, *life.said]), file=sys.stderr)
                if arguments.keep:
                    shutil.copytree(
                        demo.folder, arguments.keep / f"run-{number}", dirs_exist_ok=True
                    )
            elif not arguments.json:
                end = " ".join(f"{name} {life.codes[name]}" for name in demo.plan.names)
                print(
                    f"run {number} ({method}): {dict(life.happened)}, {life.now:.0f} s; {end}",
                    file=sys.stderr,
                )
            shutil.rmtree(demo.folder)
    report = {
        "faults": happened.total(),
        "of": dict(happened),
        "runs": len(seconds),
        "broken": len(broken),
        "codes": dict(sorted(codes.items())),
        "longest": round(max(seconds), 1),
        "seconds": round(time.perf_counter() - started),
    }
    print(
        json.dumps(report)
        if arguments.json
        else "\n".join(f"{name:8} {value}" for name, value in report.items())
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
