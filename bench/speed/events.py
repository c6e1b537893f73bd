"""What many releases cost: rounds of momentum, and a ledger on disk that holds many.

    python bench/speed/events.py [--times 5] [--json] [--quick]

rounds: `momentum` at epsilon 2, delta 1e-5, on 5 sites of 100 rows with 4 columns, planned and run,
at more and more rounds; the exponent is that of the processor seconds between the first point and
the last.  ledger: a file of equal releases charged one by one, opened and added up.  Its rows are
written in one transaction, as a release otherwise waits for the disk; the file is the same.
counted: the same releases charged at once, as one row.  Processor seconds, medians of several.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from sottovoce import DurableLedger, RunConfig
from sottovoce.data.rows import Rows
from sottovoce.privacy.events import GaussianMechanism
from sottovoce.runs.simulate import simulate

ROUNDS, RELEASES = (400, 3_200), 100_000
QUICK_ROUNDS, QUICK_RELEASES = (4, 8), 100


def seconds(work: Callable[[], object], times: int) -> float:
    """Median of the processor seconds that `work` takes."""
    found = []
    for _ in range(times):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return median(found)


def momentum(rounds: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 100, 4))
    X /= 1.01 * np.linalg.norm(X, axis=-1, keepdims=True)
    rows = Rows.build_from_parts([(part, np.where(part[:, 0] > 0, 1.0, -1.0)) for part in X])
    simulate(RunConfig("momentum", rounds=rounds, epsilon=2.0, delta=1e-5, seed=0), rows)


def filled(path: Path, releases: int, counted: bool) -> None:
    """A ledger of that many equal releases, each of them a record of its own, or all of them
    one.
    """
    one = np.ones(1)
    event = GaussianMechanism("benchmark", "replace-one", 1e4 * one, one, 4)
    with DurableLedger.create(path, epsilon=8.0, delta=1e-5, accountant="rdp") as ledger:
        ledger.record_event(event, count=releases if counted else 1)
        with ledger.file.transaction():
            for _ in range(0 if counted else releases - 1):
                ledger.file.append_record({"kind": "charge", "run": None, "release": None})


def read(path: Path, times: int) -> tuple[float, float]:
    """Seconds to open the ledger, and those of the first total after it."""
    opened, totals = [], []
    for _ in range(times):
        started = time.process_time()
        with DurableLedger.open(path) as ledger:
            opened.append(time.process_time() - started)
            started = time.process_time()
            ledger.total()
            totals.append(time.process_time() - started)
    return median(opened), median(totals)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    times, rounds = (1, QUICK_ROUNDS) if options.quick else (options.times, ROUNDS)
    releases = QUICK_RELEASES if options.quick else RELEASES
    momentum(2)  # imports
    spent = {many: seconds(lambda many=many: momentum(many), times) for many in rounds}  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "one_by_one": Path(folder) / "many.ledger",
            "counted": Path(folder) / "counted.ledger",
        }
        for kind, path in kinds.items():
            filled(path, releases, kind == "counted")
        read_in = {kind: read(path, times) for kind, path in kinds.items()}
    first, last = rounds
    found = {
        "seconds_of_rounds": spent,
        "exponent": math.log(spent[last] / spent[first]) / math.log(last / first),
        "releases": releases,
        "seconds_to_open": {kind: opened for kind, (opened, _) in read_in.items()},
        "seconds_of_total": {kind: total for kind, (_, total) in read_in.items()},
    }
    print(
        json.dumps(found)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in found.items())
    )


if __name__ == "__main__":
    main()
