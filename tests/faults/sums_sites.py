"""Kill hubs and sites at random instants of real runs of sums, lose a site for good in some, and
check all promises.

``python tests/faults/sums_sites.py [--kills 200] [--sites 5] [--rounds 40] [--patience 30] [--seed
0] [--json] [--forks]``

As ``sites.py``: hub and sites are processes of their own over the relay, started again when they
were killed.  In every second run one site is not: ``sottovoce site end`` ends its part.  After
every run: each site's journal and the hub's log agree byte for byte; no message was ever seen with
two values, so no sum is opened twice; what was spent is exactly what was planned, row for row, lost
attempts included; no key is left at any site, under no name; every model is, bit by bit, that of
the same run in one process with the same site lost at the same attempt.

``--kills 0`` measures one undisturbed run: seconds a round, with 5 sites or with 100.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import sites as plain
import starts
from sites import SCHEMA, messages, table

from sottovoce.deploy import demonstration
from sottovoce.deploy.demonstration import Demonstration
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.local import train_as_sites
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.journal import Journal
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import Result

EARLY, WITHOUT = 4, 5
"""Exit code of a site without which the others went on."""


class Supervised(plain.Supervised):
    """A hub and its sites, started again when they were killed, but for a site that is lost."""

    def __init__(self, demo: Demonstration, patience: float) -> None:
        self.patience, self.lost = patience, set[str]()
        super().__init__(demo)

    def start(self, name: str) -> None:
        address = f"127.0.0.1:{self.demo.port}"
        command = (
            (
                "hub",
                "run",
                str(self.demo.hub),
                "--listen",
                address,
                "--patience",
                str(self.patience),
            )
            if name == "hub"
            else ("site", "run", str(self.demo.settings_file_of(name)), "--json")
        )
        self.processes[name] = starts.start_command(
            *command, errors=self.demo.folder / name / "errors"
        )

    def look(self) -> None:
        for name, process in self.processes.items():
            code = process.poll()
            if code is None or name in self.done or name in self.lost:
                continue
            if code == -signal.SIGKILL:
                self.start(name)
            elif code in (0, EARLY, WITHOUT) and name != "hub":
                self.done.add(name)
            else:
                said = (self.demo.folder / name / "errors").read_text()
                raise SystemExit(f"{name} failed by itself with {code}: {said}")

    @property
    def over(self) -> bool:
        return len(self.done | self.lost) == len(self.demo.plan.names)


def check(demo: Demonstration, lost: set[str]) -> dict[str, int]:
    """Journals, hub's log, spending and models after a run; returns counts."""
    plan = demo.plan
    with HubLog(demo.hub / "hub.log") as log:
        held = log.messages(plan.run)
        hub = Hub(plan, log)
        attempts, gone, models = hub.rounds.attempts, hub.rounds.gone, hub.results.models()
    if not lost <= gone.keys():
        raise SystemExit(f"lost {lost}, and the hub went on without {gone}")
    if models is None or len(attempts) != plan.exchange_table.attempts:
        raise SystemExit(f"ended after {len(attempts)} attempts")
    told = [([plan.names.index(name) for name in one.members], one.opened) for one in attempts]
    made = train_as_sites(plan, demo.rows, told)
    for i, name in enumerate(plan.names):
        with DurableLedger.open(demo.folder / name / f"{name}.ledger") as ledger:
            ledger.file.verify()
            journal, rows = Journal(ledger, plan.run), ledger.to_list()
            sent = [journal.sent(k) for k in range(journal.highest_round + 1)]
            total = ledger.total()
            price = float(
                np.max(
                    ledger.accountant.epsilon_of_events(
                        plan.planned_privacy.events(name)[: len(rows)], ledger.delta
                    )
                )
            )
        posted = [held[k, name] for k in range(len(sent)) if (k, name) in held]
        if sent[: len(posted)] != posted or len(sent) > len(posted) + (name in gone):
            raise SystemExit(f"{name}: journal and hub hold different bytes")
        if any(".masks" in path.name for path in (demo.folder / name).iterdir()):
            raise SystemExit(f"{name}: its key is still there")
        planned = [event.to_dict() for event in plan.planned_privacy.events(name)]
        if rows != planned[: len(rows)] or not np.isclose(total, price, rtol=1e-12, atol=0.0):
            raise SystemExit(f"{name}: spent something else than what was planned")
        if name in gone:
            continue
        if len(rows) != len(planned):
            raise SystemExit(f"{name}: charged {len(rows)} attempts of {len(planned)}")
        model = Result.load(demo.folder / name / f"{name}.npz").models[0, 0]
        twin = made[i][0]
        if not np.array_equal(model, twin) or not np.array_equal(model, models[0]):
            raise SystemExit(
                f"{name}: its model differs from the twin's by {np.max(np.abs(model - twin)):g}"
            )
    opened = sum(one.opened for one in attempts)
    return {
        "messages": len(held),
        "opened": opened,
        "lost_attempts": len(attempts) - opened,
        "gone": len(gone),
    }


def end(demo: Demonstration, lost: set[str]) -> None:
    """What the people of a site do that will not come back."""
    for name in lost:
        errors = demo.folder / name / "errors"
        if starts.start_command(
            "site", "end", str(demo.settings_file_of(name)), errors=errors
        ).wait():
            raise SystemExit(f"{name}: its part was not ended: {errors.read_text()}")


def one_run(
    demo: Demonstration, kills: int, rng: random.Random, patience: float, lose: bool
) -> tuple[dict[str, int], set[str]]:
    """A run with up to `kills` kills; returns how many of whom, and who was lost for good."""
    killed = {"hub": 0, "site": 0}
    seen: dict[tuple[int, str], bytes] = {}
    supervised = Supervised(demo, patience)
    moved, before, at_kill = time.monotonic(), -1, 0
    next_kill, until = (
        starts.later(rng.uniform(0.0, 4.0)),
        rng.randrange(len(demo.plan.names), 4 * demo.plan.exchange_table.last),
    )
    try:
        while not supervised.over:
            supervised.look()
            now, count = time.monotonic(), len(messages(demo))
            if lose and count >= until:
                name = rng.choice(demo.plan.names)
                supervised.lost.add(name)
                if supervised.kill(name):
                    killed["site"], lose = killed["site"] + 1, False
                else:
                    supervised.lost.discard(name)
            if now >= next_kill and count >= at_kill and sum(killed.values()) < kills:
                name = rng.choice(["hub", *demo.plan.names])
                if name not in supervised.lost and supervised.kill(name):
                    killed["hub" if name == "hub" else "site"] += 1
                    held = messages(demo)
                    for key, message in seen.items():
                        if held.get(key) != message:
                            raise SystemExit(
                                f"round {key[0]} of {key[1]}: lost, or seen with two values"
                            )
                    seen = held
                # Mostly when all are up and rounds go by, sometimes while something still starts.
                next_kill, soon = starts.later(rng.uniform(0.0, 2.0)), rng.random() < 0.3
                at_kill = 0 if soon else count + rng.randrange(1, 3 * len(demo.plan.names))
            if count > before:
                moved, before = now, count
            if now - moved > plain.PATIENCE:
                raise SystemExit(f"stuck with {count} messages")
            time.sleep(0.05)
    finally:
        supervised.stop()
    return killed, supervised.lost


def undisturbed(folder: Path, arguments: argparse.Namespace, rows: Path) -> dict[str, Any]:
    """One run without kills, and how long a round takes."""
    demo = demonstration.build_demonstration(
        folder / "run", config_of(arguments, 0), arguments.sites, str(rows), SCHEMA
    )
    started = time.perf_counter()
    demonstration.run_over_relay(demo, lambda: None)
    wall = time.perf_counter() - started
    found = demonstration.compare_with_simulation(demo, "relay", wall)
    if found["difference"] != 0.0:
        raise SystemExit(f"differs from the run in one process by {found['difference']:g}")
    words = ("sites", "rounds", "seconds_per_round", "seconds_with_messages_per_round", "seconds")
    return {word: found[word] for word in words} | check(demo, set())


def config_of(arguments: argparse.Namespace, seed: int) -> RunConfig:
    return RunConfig(
        method=arguments.method, rounds=arguments.rounds, epsilon=5.0, delta=1e-5, seed=seed
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds that the hub waits for a site"
    )
    parser.add_argument("--runs", type=int, default=0, help="runs at least")
    parser.add_argument("--method", default="sum_momentum")
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
        "with_a_site_lost": 0,
        "messages": 0,
        "opened": 0,
        "lost_attempts": 0,
        "gone": 0,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = table(folder, 150 * arguments.sites)
        if not arguments.kills:
            report = undisturbed(folder, arguments, rows)
            arguments.runs = 0
        while report.get("kills", 0) < arguments.kills or report.get("runs", 0) < arguments.runs:
            number = report["runs"]
            place = folder / f"run-{number}"
            demo = demonstration.build_demonstration(
                place, config_of(arguments, number), arguments.sites, str(rows), SCHEMA
            )
            left = arguments.kills - report["kills"]
            killed, lost = one_run(demo, left, rng, arguments.patience, number % 2 == 1)
            end(demo, lost)
            for word, count in check(demo, lost).items():
                report[word] += count
            report["kills"] += sum(killed.values())
            report["of_hub"] += killed["hub"]
            report["of_sites"] += killed["site"]
            report["with_a_site_lost"] += bool(lost)
            report["runs"] += 1
            if not arguments.json:
                print(
                    f"run {report['runs']}: {killed}, lost {lost}, {report['kills']} kills so far",
                    file=sys.stderr,
                )
    report["wall"] = round(time.perf_counter() - started)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{word:32} {value}" for word, value in report.items()))
        print("every promise held")


if __name__ == "__main__":
    main()
