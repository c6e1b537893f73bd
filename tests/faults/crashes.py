"""Kill real training runs, race real processes, and check what the durable ledger promises.

``python tests/faults/crashes.py [--kills 200] [--races 100] [--json]``

*Kills.*  A process trains against a ledger on disk and is killed with SIGKILL at a random instant,
then another resumes the run, until it ends; then the next run starts on the same ledger.  A
neighbour writes down every vector it sees.  After every kill: the chain verifies, the ledger holds
at least as many rows as releases were seen, and no release was ever seen with two values.  After
every run: its model is that of a run that nobody disturbed, bit by bit.

*Races.*  Two processes reserve the last of a budget at once: exactly one wins, the other gets the
documented error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # a process that forks must have one thread

import numpy as np  # noqa: E402

from sottovoce.data.rows import Rows  # noqa: E402
from sottovoce.errors import BudgetExceeded  # noqa: E402
from sottovoce.ledger.durable import DurableLedger  # noqa: E402
from sottovoce.runs.simulate import RunConfig, simulate  # noqa: E402

NODES, ROUNDS = 5, 12


def make_rows(seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    sites = []
    for _ in range(NODES):
        X = rng.normal(size=(300, 6))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
        sites.append((X, np.where(X[:, 0] + 0.3 * rng.normal(size=300) > 0, 1.0, -1.0)))
    return Rows.build_from_parts(sites)


def fork(job: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        job()
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def train(path: Path, seen: Path, number: int, method: str) -> None:
    """One process's attempt at run `number`; the neighbour's notes are appended as they arrive."""
    config = RunConfig(method=method, rounds=ROUNDS, epsilon=1.0, delta=1e-5, seed=number)

    def note(k: int, state: object) -> None:
        digest = hashlib.sha256(np.ascontiguousarray(state.f).tobytes()).hexdigest()  # type: ignore[attr-defined]
        with seen.open("a") as file:
            file.write(f"{number} {k} {digest}\n")

    with DurableLedger.open(path) as ledger:
        result = simulate(
            config, make_rows(), observers=[note], ledger=ledger, run_name=f"run {number}"
        )
    np.save(path.parent / f"model-{number}.npy", result.models)


def kill_runs(kills: int, folder: Path, rng: random.Random) -> dict[str, int]:
    path, seen = folder / "data.ledger", folder / "seen"
    seen.touch()
    DurableLedger.create(path, epsilon=1e6, delta=1e-5, accountant="rdp", n_nodes=NODES).close()
    known: dict[tuple[int, int], str] = {}
    done = killed = runs = interrupted = 0
    started = time.perf_counter()
    train(path, seen, 10**6, "dvp")  # warms caches, and tells how long a run takes
    typical = time.perf_counter() - started
    while killed < kills:
        method = ("dvp", "mr_admm")[runs % 2]
        hits = 0
        while True:
            pid = fork(partial(train, path, seen, runs, method))
            time.sleep(rng.uniform(0.0, typical))
            if killed < kills:
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            dead = os.WIFSIGNALED(status)
            killed, hits = killed + dead, hits + dead
            if not dead and os.WEXITSTATUS(status) != 0:
                raise SystemExit("a run failed by itself")
            lines = [line.split() for line in seen.read_text().splitlines()]
            for number, k, digest in (
                (int(a), int(b), c) for a, b, c in (part for part in lines if len(part) == 3)
            ):
                if known.setdefault((number, k), digest) != digest:
                    raise SystemExit(f"run {number}, round {k}: seen with two values")
            with DurableLedger.open(path) as ledger:
                ledger.file.verify()
                rows = sum(
                    run["charged"] for run in ledger.show()["runs"] if run["run"] == f"run {runs}"
                )
            rounds = max((k for number, k in known if number == runs), default=0)
            if rows < (rounds if method == "dvp" else (rounds + 1) // 2):
                raise SystemExit(
                    f"run {runs}: {rounds} rounds were seen and {rows} rows are in the ledger"
                )
            if not dead:
                break
        interrupted += hits > 0
        config = RunConfig(method=method, rounds=ROUNDS, epsilon=1.0, delta=1e-5, seed=runs)
        if not np.array_equal(
            np.load(folder / f"model-{runs}.npy"), simulate(config, make_rows()).models
        ):
            raise SystemExit(f"run {runs}: not the model of an undisturbed run")
        runs += 1
        done = runs
    return {
        "kills": killed,
        "runs": done,
        "runs_interrupted": interrupted,
        "releases_seen": len(known),
    }


def race(races: int, folder: Path) -> dict[str, int]:
    wins = refusals = 0
    for attempt in range(races):
        path = folder / f"race-{attempt}.ledger"
        DurableLedger.create(path, epsilon=1.5, n_nodes=NODES).close()
        gate, start = os.pipe()
        answers, answer = os.pipe()

        def compete(
            side: int, path: Path = path, gate: int = gate, start: int = start, answer: int = answer
        ) -> None:
            os.close(start)
            rows = make_rows()
            config = RunConfig(method="dvp", rounds=3, epsilon=1.0, seed=side)
            with DurableLedger.open(path) as ledger:
                os.read(gate, 1)  # returns when the parent closes its end
                try:
                    simulate(config, rows, ledger=ledger, run_name=f"side {side}")
                    os.write(answer, b"won\n")
                except BudgetExceeded:
                    os.write(answer, b"refused\n")

        pids = [fork(partial(compete, side)) for side in range(2)]
        os.close(answer)
        time.sleep(0.05)
        os.close(start)
        for pid in pids:
            os.waitpid(pid, 0)
        with os.fdopen(answers) as file:
            said = sorted(file.read().split())
        os.close(gate)
        if said != ["refused", "won"]:
            raise SystemExit(f"race {attempt}: {said}")
        with DurableLedger.open(path) as ledger:
            ledger.file.verify()
            if not ledger.total() <= 1.5:
                raise SystemExit(f"race {attempt}: spent {ledger.total()} of 1.5")
        wins, refusals = wins + 1, refusals + 1
    return {"races": races, "won": wins, "refused": refusals}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--races", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = race(arguments.races, Path(folder)) | kill_runs(
            arguments.kills, Path(folder), random.Random(0)
        )
    report["seconds"] = round(time.perf_counter() - started)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:18} {value}" for name, value in report.items()))
        print("every promise held")


if __name__ == "__main__":
    main()
