"""Time and peak memory as rows, columns and sites grow: one run a point, each in a process of its
own.

    python bench/speed/growth.py [--json] [--quick] [--part streamed|cluster|sparse|sites]

streamed: a Parquet file of bins and numbers, 100 columns, encoded into files of 20 sites and
trained from them; nothing is ever in memory whole.  cluster: the same rows as a Dask array at one
site, on two local workers.  sparse: 5 sites of 2,000 rows with 20 entries each, more and more
columns.  sites: 400 dense rows of 50 columns each, more and more sites. Every part runs prox_admm
at epsilon 1, delta 1e-5, for 3 rounds.  Slopes are exponents between the first point and the last,
in processor seconds and in the memory that a run holds at most, without pages of files.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse

from sottovoce import RunConfig
from sottovoce.data.rows import Rows
from sottovoce.data.schema import Schema
from sottovoce.runs.simulate import simulate
from sottovoce.util.typing import Any

COLUMNS, BLOCK = 100, 50_000
POINTS = {
    "streamed": (100_000, 400_000),
    "cluster": (100_000, 400_000),
    "sparse": (10_000, 100_000),
    "sites": (50, 200),
}
QUICK = {"streamed": (400, 800), "cluster": (400, 800), "sparse": (100, 200), "sites": (2, 4)}
RUN = RunConfig(method="prox_admm", epsilon=1.0, delta=1e-5, rounds=3, tol=None)


@contextmanager
def watched() -> Iterator[Callable[[], float]]:
    """Counts the MiB that this process holds at most beyond what it held before, without pages of
    files.

    The system keeps pages of mapped files while nobody else needs the room, so they say nothing of
    what is needed.
    """

    def held() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10

    before, most, done = held(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], held() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: max(most[0], held() - before)
    finally:
        done.set()
        thread.join()


def parquet(path: Path, n: int) -> Schema:
    """A file of n rows, written a block at a time, and its schema: half bins of four, half
    numbers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, half = np.random.default_rng(0), COLUMNS // 2
    names = [f"b{k}" for k in range(half // 4)] + [f"x{k}" for k in range(half)]
    with pq.ParquetWriter(
        path, pa.schema([*((name, pa.float64()) for name in names), ("y", pa.string())])
    ) as file:
        for first in range(0, n, BLOCK):
            values = rng.random((min(BLOCK, n - first), len(names)))
            labels = np.where(
                values[:, 0] + 0.5 * values[:, -1] + 0.3 * rng.standard_normal(len(values)) > 0.75,
                "a",
                "b",
            )
            file.write_table(pa.table([*values.T, labels], names=[*names, "y"]))
    columns: dict[str, Any] = {
        name: {"kind": "bins", "edges": [0, 0.25, 0.5, 0.75, 1]} for name in names[: half // 4]
    }
    columns |= {name: {"kind": "number", "lo": 0.0, "hi": 1.0} for name in names[half // 4 :]}
    label = {"column": "y", "negative": "b", "positive": "a"}
    return Schema.from_dict({"label": label, "columns": columns})


def streamed(n: int) -> dict[str, float]:
    """Processor seconds of encoding and of training."""
    from sottovoce.data.memmap import map_parquet

    with tempfile.TemporaryDirectory() as folder:
        schema = parquet(Path(folder) / "rows.parquet", n)
        started = time.process_time()
        with watched() as most:
            rows = map_parquet(
                Path(folder) / "rows.parquet", schema, Path(folder) / "rows", nodes=20
            )
            encoding, encoded = most(), time.process_time()
        return {"seconds_encode": encoded - started, "mib_encode": encoding} | measured(rows)


def cluster(n: int) -> dict[str, float]:
    """Two workers of a thread each, in processes of their own; seconds are of the wall, as they
    work elsewhere.
    """
    import dask.array as da
    from distributed import Client, LocalCluster

    from sottovoce.data.cluster import ClusterRows

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local),
    ):
        rng = da.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(n, COLUMNS), chunks=(min(n, BLOCK), COLUMNS)) / math.sqrt(
            COLUMNS
        )
        y = da.where(X[:, 0] > 0, 1.0, -1.0)
        started = time.perf_counter()
        with watched() as most:
            simulate(RUN, ClusterRows.rows_from_dask(X, y))
            taken = time.perf_counter() - started
            return {"seconds": taken, "mib": most(), "mib_of_rows": n * COLUMNS * 8 / 2**20}


def sparse(columns: int) -> dict[str, float]:
    """Rows with 20 ones each, scaled to the unit ball."""
    rng, parts, n, ones = np.random.default_rng(0), [], 2000, 20
    for _ in range(5):
        where = rng.integers(columns, size=(n, ones))
        X = scipy.sparse.csr_array(
            (np.full(n * ones, 1 / ones), (np.repeat(np.arange(n), ones), where.ravel())),
            (n, columns),
        )
        parts.append((X, np.where(where[:, 0] < columns // 3, 1.0, -1.0)))
    return measured(Rows.build_from_parts(parts))


def sites(many: int) -> dict[str, float]:
    """Dense rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (many, 400, 50)) / math.sqrt(50)
    return measured(Rows.build_from_parts([(one, np.where(one[:, 0] > 0, 1.0, -1.0)) for one in X]))


def measured(rows: Rows) -> dict[str, float]:
    """A run."""
    started = time.process_time()
    with watched() as most:
        simulate(RUN, rows)
        return {"seconds": time.process_time() - started, "mib": most()}


PARTS: dict[str, Callable[[int], dict[str, float]]] = {
    "streamed": streamed,
    "cluster": cluster,
    "sparse": sparse,
    "sites": sites,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing"
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="these parts only")
    parser.add_argument("--points", type=int, nargs="+", help="sizes in place of the part's own")
    parser.add_argument("--point", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        print(json.dumps(PARTS[arguments.part[0]](arguments.point)))
        return
    answer: dict[str, Any] = {}
    for part in arguments.part or PARTS:
        points = arguments.points or (QUICK if arguments.quick else POINTS)[part]
        found = []
        for point in points:
            command = [sys.executable, __file__, "--part", part, "--point", str(point)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
        ends = math.log(points[-1] / points[0]) or 1.0
        answer[part] = {"points": list(points)} | {
            key: [one[key] for one in found] for key in found[0]
        }
        for key in ("seconds", "mib"):
            answer[part][f"slope_{key}"] = (
                math.log(max(found[-1][key], 1e-3) / max(found[0][key], 1e-3)) / ends
            )
    print(json.dumps(answer) if arguments.json else json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
