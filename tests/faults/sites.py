"""Kill hubs and sites at random instants of real runs over the relay, and check what a deployment
promises.

``python tests/faults/sites.py [--kills 200] [--sites 5] [--rounds 60] [--method dvp] [--seed 0]
[--json] [--forks]``

Hub and sites are processes of their own, as ``sottovoce demo`` starts them; a supervisor starts
again what was killed, as systemd would.  After every run: each site's journal and the hub's log
agree byte for byte; no message was ever seen with two values; what was spent is exactly what was
planned, row for row; the run is complete and every model is, bit by bit, that of the same run in
one process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import starts  # noqa: E402

from sottovoce.deploy import demonstration  # noqa: E402
from sottovoce.deploy.demonstration import Demonstration  # noqa: E402
from sottovoce.deploy.hublog import HubLog  # noqa: E402
from sottovoce.ledger.durable import DurableLedger  # noqa: E402
from sottovoce.ledger.journal import Journal  # noqa: E402
from sottovoce.runs.config import RunConfig  # noqa: E402

SCHEMA = {
    "label": {"column": "ill", "positive": "yes", "negative": "no"},
    "intercept": True,
    "columns": {
        name: {"kind": "number", "lo": 0, "hi": 100} for name in ("age", "weight", "pulse")
    },
}
PATIENCE = 900.0
"""Seconds without any progress after which a run counts as stuck."""


def table(folder: Path, rows: int) -> Path:
    """A small table of synthetic patients."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 101, size=(rows, 3))
    ill = np.where(values[:, 0] + rng.normal(scale=20.0, size=rows) > 50, "yes", "no")
    path = folder / "rows.csv"
    lines = [",".join([*map(str, one), label]) for one, label in zip(values, ill, strict=True)]
    path.write_text("\n".join(["age,weight,pulse,ill", *lines]) + "\n")
    return path


class Supervised:
    """A hub and its sites, started again when they were killed."""

    def __init__(self, demo: Demonstration) -> None:
        self.demo = demo
        self.processes: dict[str, starts.Process] = {}
        self.done: set[str] = set()
        for name in ("hub", *demo.plan.names):
            self.start(name)

    def start(self, name: str) -> None:
        errors = self.demo.folder / name / "errors"
        address = f"127.0.0.1:{self.demo.port}"
        command = (
            ("hub", "run", str(self.demo.hub), "--listen", address)
            if name == "hub"
            else ("site", "run", str(self.demo.settings_file_of(name)), "--json")
        )
        self.processes[name] = starts.start_command(*command, errors=errors)

    def look(self) -> None:
        """Start again what was killed; end on what failed by itself."""
        for name, process in self.processes.items():
            code = process.poll()
            if code is None or name in self.done:
                continue
            if code == -signal.SIGKILL:
                self.start(name)
            elif code == 0 and name != "hub":
                self.done.add(name)
            else:
                said = (self.demo.folder / name / "errors").read_text()
                raise SystemExit(f"{name} failed by itself with {code}: {said}")

    def kill(self, name: str) -> bool:
        process = self.processes[name]
        if name in self.done or process.poll() is not None:
            return False
        process.kill()
        process.wait()
        return True

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def messages(demo: Demonstration) -> dict[tuple[int, str], bytes]:
    path = demo.hub / "hub.log"
    if not path.exists():
        return {}
    with HubLog(path) as log:
        return log.messages(demo.plan.run)


def check(demo: Demonstration) -> int:
    """Journals, hub's log and spending after a run; returns how many messages were compared."""
    plan, held = demo.plan, messages(demo)
    for name in plan.names:
        with DurableLedger.open(demo.folder / name / f"{name}.ledger") as ledger:
            ledger.file.verify()
            journal = Journal(ledger, plan.run)
            if journal.highest_round != plan.exchange_table.attempts + 1:
                raise SystemExit(f"{name}: its journal ends at round {journal.highest_round}")
            for k in range(plan.exchange_table.attempts + 2):
                if journal.sent(k) != held.get((k, name)):
                    raise SystemExit(f"{name}, round {k}: journal and hub hold different bytes")
                inbox = json.loads(journal.received(k) or b"null")
                if inbox != {
                    other: held[k, other].decode()
                    for other in plan.exchange_table.names_heard_by(name, k)
                }:
                    raise SystemExit(
                        f"{name}, round {k}: the inbox is not what its neighbours sent"
                    )
            planned = plan.planned_privacy.events(name)
            # in doubles; the ledger: exact
            price = float(np.max(ledger.accountant.epsilon_of_events(planned, ledger.delta)))
            if ledger.to_list() != [event.to_dict() for event in planned] or not np.isclose(
                ledger.total(), price, rtol=1e-12, atol=0.0
            ):
                raise SystemExit(f"{name}: spent something else than what was planned")
    if len(held) != len(plan.names) * (plan.exchange_table.attempts + 2):
        raise SystemExit(f"the hub holds {len(held)} messages")
    return len(held)


def one_run(demo: Demonstration, kills: int, rng: random.Random) -> dict[str, int]:
    """A run with up to `kills` kills; returns how many of whom."""
    killed = {"hub": 0, "site": 0}
    seen: dict[tuple[int, str], bytes] = {}
    supervised = Supervised(demo)
    moved, before = time.monotonic(), -1
    next_kill = starts.later(rng.uniform(0.0, 4.0))
    try:
        while len(supervised.done) < len(demo.plan.names):
            supervised.look()
            now = time.monotonic()
            if now >= next_kill and sum(killed.values()) < kills:
                name = rng.choice(["hub", *demo.plan.names])
                if supervised.kill(name):
                    killed["hub" if name == "hub" else "site"] += 1
                    held = messages(demo)
                    for key, message in seen.items():
                        if held.get(key) != message:
                            raise SystemExit(
                                f"round {key[0]} of {key[1]}: lost, or seen with two values"
                            )
                    seen = held
                # Mostly when all are up and rounds go by, sometimes while something still starts.
                next_kill = starts.later(
                    rng.uniform(0.0, 1.0) if rng.random() < 0.3 else rng.uniform(1.0, 5.0)
                )
            if sum(killed.values()) >= kills or now - moved > 5.0:
                count = len(messages(demo))
                moved, before = (now, count) if count > before else (moved, before)
                if now - moved > PATIENCE:
                    raise SystemExit(f"stuck with {count} messages")
            time.sleep(0.01)
    finally:
        supervised.stop()
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--method", default="dvp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--forks", action="store_true", help="start forks, not interpreters")
    arguments = parser.parse_args()
    starts.forks = arguments.forks
    rng, started = random.Random(arguments.seed), time.perf_counter()
    report: dict[str, Any] = {
        "kills": 0,
        "of_hub": 0,
        "of_sites": 0,
        "runs": 0,
        "messages": 0,
        "difference": 0.0,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = table(folder, 150 * arguments.sites)
        while report["kills"] < arguments.kills:
            config = RunConfig(
                method=arguments.method,
                rounds=arguments.rounds,
                epsilon=5.0,
                delta=1e-5,
                seed=report["runs"],
            )
            demo = demonstration.build_demonstration(
                folder / f"run-{report['runs']}", config, arguments.sites, str(rows), SCHEMA
            )
            killed = one_run(demo, arguments.kills - report["kills"], rng)
            report["messages"] += check(demo)
            difference = demonstration.compare_with_simulation(demo, "relay", 0.0)["difference"]
            if difference != 0.0:
                raise SystemExit(
                    f"run {report['runs']}: differs from an undisturbed run by {difference:g}"
                )
            report["kills"] += sum(killed.values())
            report["of_hub"] += killed["hub"]
            report["of_sites"] += killed["site"]
            report["runs"] += 1
            if not arguments.json:
                print(
                    f"run {report['runs']}: {killed}, {report['kills']} kills so far",
                    file=sys.stderr,
                )
    report["seconds"] = round(time.perf_counter() - started)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:12} {value}" for name, value in report.items()))
        print("every promise held")


if __name__ == "__main__":
    main()
