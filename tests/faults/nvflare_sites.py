"""Time NVFlare as the carrier of a run, kill its processes, and check what site sessions promise.

``python tests/faults/nvflare_sites.py [--kills 10] [--rounds 60] [--seed 0] [--json] [--folder
DIR]``, with extra ``nvflare``.

*Time.*  Five sites on a ring, as real processes on loopback with mutual TLS: seconds from one round
to the next.

*Kills.*  The same run again, while processes are killed with SIGKILL at random instants: the
server, a site with all that it started, or one process of theirs.  A supervisor hands the run in
again until it is complete.  Then: journals and the hub's log agree byte for byte, every ledger has
exactly the rows and the total of an undisturbed run, and the models are those of an undisturbed
run, bit by bit.

The file is not called after the package that it measures: Python would import it in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from sottovoce.data.memmap import write_rows  # noqa: E402
from sottovoce.deploy.hub import Hub, LocalTransport  # noqa: E402
from sottovoce.deploy.hublog import HubLog  # noqa: E402
from sottovoce.deploy.keys import SigningKey  # noqa: E402
from sottovoce.deploy.members import Member  # noqa: E402
from sottovoce.deploy.nvflare.loopback import SERVER, Federation, run_loopback  # noqa: E402
from sottovoce.deploy.plan_file import write_plan_file  # noqa: E402
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan  # noqa: E402
from sottovoce.deploy.settings import SiteSettings  # noqa: E402
from sottovoce.ledger.durable import DurableLedger  # noqa: E402
from sottovoce.ledger.journal import Journal  # noqa: E402
from sottovoce.runs.config import RunConfig  # noqa: E402

NAMES, SIZE, WIDTH = ("north", "east", "south", "west", "centre"), 400, 10


class Consortium:
    """A plan, its keys, and any number of identical sets of sites."""

    def __init__(self, rounds: int) -> None:
        self.keys = {name: SigningKey.make() for name in NAMES}
        members = [Member(name, SIZE, self.keys[name].public) for name in NAMES]
        config = RunConfig(method="dvp", rounds=rounds, epsilon=1.0, delta=1e-5, seed=0)
        self.plan = make_calibrated_plan(Proposal("bench", config, members, WIDTH))

    def sites(self, folder: Path) -> dict[str, Path]:
        """Write the files of all sites, and return those with their settings."""
        rng, found = np.random.default_rng(0), {}
        folder.mkdir(parents=True)
        write_plan_file(self.plan, folder / "plan.json")
        for name in NAMES:
            home = folder / name
            home.mkdir()
            X = rng.normal(size=(SIZE, WIDTH))
            X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
            write_rows(
                home / "rows",
                [(0, X, np.where(X[:, 0] + 0.3 * rng.normal(size=SIZE) > 0, 1.0, -1.0))],
            )
            write_plan_file(self.plan, home / "plan.json")
            self.keys[name].write(home / "signing")
            ledger = DurableLedger.create(
                home / "ledger", epsilon=100.0, delta=1e-5, accountant="rdp", demonstration=True
            )
            ledger.close()
            found[name] = home / "site.toml"
            found[name].write_text(
                f'name = "{name}"\nplan = "plan.json"\nledger = "ledger"\n'
                '[data]\nfile = "rows"\n[keys]\nsigning = "signing"\n'
            )
        return found


def undisturbed(consortium: Consortium, folder: Path) -> dict[str, Any]:
    """Models and ledgers of the run with all sites in this process."""
    sites = consortium.sites(folder)
    with HubLog(folder / "hub.log") as log, ThreadPoolExecutor(len(NAMES)) as pool:
        hub = Hub(consortium.plan, log)
        jobs = [
            pool.submit(
                SiteSettings.read(sites[name]).run_and_write_results,
                LocalTransport(hub, name, 600.0),
            )
            for name in NAMES
        ]
        return {
            name: (job.result().model, *spend(sites[name]))
            for name, job in zip(NAMES, jobs, strict=True)
        }


def spend(site: Path) -> tuple[list[dict[str, Any]], float]:
    with DurableLedger.open(SiteSettings.read(site).ledger) as ledger:
        return [event.to_dict() for event in ledger.rows], ledger.total()


class Killer:
    """Kills at random instants, each some time after the first complete round that follows the
    kill before.
    """

    def __init__(self, kills: int, seed: int) -> None:
        self.left, self.victims, self._rng = kills, list[str](), random.Random(seed)
        self._seen, self._when = 0, float("inf")

    def __call__(self, federation: Federation, complete: int) -> None:
        if not self.left:
            return
        if complete > self._seen and self._when == float("inf"):
            self._when = time.monotonic() + self._rng.uniform(0.0, 0.6)
        if time.monotonic() < self._when:
            return
        self._when, self._seen = float("inf"), complete
        name = self._rng.choice([SERVER, *federation.names])
        numbers = federation.process_numbers_of(name)
        one = self._rng.choice(numbers) if numbers and self._rng.random() < 0.5 else None
        federation.kill_processes_of(name, one)
        self.left -= 1
        self.victims.append(
            f"{name}{'' if one is None else ', one process'} after round {complete}"
        )
        print(f"  killed {self.victims[-1]}", file=sys.stderr, flush=True)


def check(consortium: Consortium, sites: dict[str, Path], hub: Path, calm: dict[str, Any]) -> int:
    """Compare everything with everything; the number of messages compared."""
    plan = consortium.plan
    with HubLog(hub / "hub.log") as log:
        messages, models = log.messages(plan.run), Hub(plan, log).results.models()
    assert models is not None, "a site has not sent its model"
    last = plan.exchange_table.attempts + 1
    assert sorted(messages) == sorted((k, name) for k in range(last + 1) for name in NAMES)
    for i, name in enumerate(NAMES):
        settings = SiteSettings.read(sites[name])
        with DurableLedger.open(settings.ledger) as ledger:
            journal = Journal(ledger, plan.run)
            assert journal.highest_round == last
            for k in range(last + 1):
                assert journal.sent(k) == messages[k, name], (
                    f"{name}, round {k}: journal and hub differ"
                )
                inbox = json.loads(journal.received(k) or b"{}")
                assert inbox == {
                    other: messages[k, other].decode()
                    for other in plan.exchange_table.names_heard_by(name, k)
                }
        model, rows, total = calm[name]
        assert np.array_equal(models[i], model), f"{name}: not the model of an undisturbed run"
        assert spend(sites[name]) == (rows, total), (
            f"{name}: spent something else than an undisturbed run"
        )
    return len(messages)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="keep everything there; else it is removed")
    arguments = parser.parse_args()
    consortium, started = Consortium(arguments.rounds), time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        calm = undisturbed(consortium, folder / "calm")
        sites = consortium.sites(folder / "timed")
        timed = run_loopback(folder / "timed", sites, folder / "timed" / "nvflare")
        check(consortium, sites, folder / "timed", calm)
        reports = [
            json.loads(SiteSettings.read(path).result_file("json").read_text())
            for path in sites.values()
        ]
        solve = max((report["seconds"] - report["waited"]) / report["rounds"] for report in reports)
        report: dict[str, Any] = {
            "sites": len(NAMES),
            "rounds": arguments.rounds,
            "seconds_per_round": round(float(np.median(timed.seconds)), 3),
            "slowest_round": round(max(timed.seconds), 3),
            "seconds_of_solve_and_journal": round(solve, 3),
            "jobs_undisturbed": timed.jobs,
        }
        if arguments.kills:
            hub, killer, begun = (
                folder / "killed",
                Killer(arguments.kills, arguments.seed),
                time.perf_counter(),
            )
            sites = consortium.sites(hub)
            killed = run_loopback(hub, sites, hub / "nvflare", tick=killer, task_seconds=15.0)
            assert not killer.left, f"{killer.left} kills were not reached: give more rounds"
            report |= {
                "kills": len(killer.victims),
                "victims": killer.victims,
                "jobs": killed.jobs,
                "messages_compared": check(consortium, sites, hub, calm),
                "seconds_with_kills": round(time.perf_counter() - begun),
            }
    report["seconds"] = round(time.perf_counter() - started)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:30} {value}" for name, value in report.items()))
        print("every promise held")


if __name__ == "__main__":
    main()
