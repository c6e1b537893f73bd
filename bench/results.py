"""Raw results of the studies, with checksums: made from a run of all of them, and compared with a
second run.

``python bench/results.py [--studies studies] [--out docs/measured/papers/results]`` makes them of
what ``sottovoce study all`` wrote, judged by the claims of this checkout, as ``bench/papers.py``
does.

``python bench/results.py --check NAME ...`` runs these studies again, in an empty folder, and
compares: whether the table of all replicates is the same to the last bit, else how far means lie
apart, and whether verdicts are the same.

In the folder lie

* ``verdicts.json``: of every study its claims with their verdicts, and in each setting what holds
  and what fails, by which numbers; what its table has (rows, columns, sha256); and under ``made``
  the versions, commit, day and machine;
* ``means/NAME.csv.gz``: of every study the mean, the standard deviation and the number of
  replicates, a setting a line;
* ``TABLES.sha256``: of every study's table of all replicates, which is too large to be kept, the
  checksum: ``sha256sum -c`` in a folder that ``sottovoce study`` wrote checks it;
* ``SHA256SUMS``: of these files themselves.

No checksum of a table or of means depends on a time, a date, a path or on the number of processes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import papers  # beside this file

from sottovoce.util.plain import infinities_to_text
from sottovoce_papers.studies import made, spec
from sottovoce_papers.studies.run import run
from sottovoce_papers.studies.verdicts import judged

KEPT = Path("docs/measured/papers/results")
VERDICTS, TABLES, SUMS = "verdicts.json", "TABLES.sha256", "SHA256SUMS"
REPLICATE, MANY, SPREAD = "replicate", "replicates", "_sd"
DIGITS, SPREAD_DIGITS = 10, 4
"""Of a mean and of a standard deviation: the last five digits of a float are those that
processors differ in.
"""
CLOSE = 1e-6
"""A mean that lies farther from the kept one, relative to it, is another result and no rounding."""


# A study's table, and the means over its replicates


def settings_columns(study: spec.Study, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The columns that tell settings apart: texts, parameters, and what claims and figures
    select and sort by.
    """
    asked = {*study.varied(), *study.table, *study.table_filter, "round"}
    for claim in study.claims:
        asked |= {claim.x, claim.among, *claim.by}.union(*claim.selectors) - {claim.value}
    for figure in study.figures:
        measured = {figure.y} if figure.kind in ("line", "bar") else {figure.x, figure.y}
        asked |= figure.columns() - measured
    columns = list(dict.fromkeys(name for row in rows for name in row))
    texts = {
        name for name in columns if any(row[name] and number(row[name]) is None for row in rows)
    }
    return [name for name in columns if (name in asked or name in texts) and name != REPLICATE]


def number(text: str) -> float | None:
    """The number that a cell of a table holds; None if it holds none, or a text."""
    try:
        return float(text)
    except ValueError:
        return None


def means(study: spec.Study, table: str) -> str:
    """The means over replicates of a study's table, as a table.

    Parameters
    ----------
    study : Study
    table : str
        ``table.csv``, a line a replicate and setting.

    Returns
    -------
    str
        CSV: of each setting its columns, the number of replicates, and of every other column of
        numbers the mean; its standard deviation over replicates stands in the column of that name
        with ``_sd``, where there is any.
    """
    rows = list(csv.DictReader(io.StringIO(table)))
    keys = settings_columns(study, rows)
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    measured = [
        name for name in (rows[0] if rows else ()) if name not in keys and name != REPLICATE
    ]
    lines = []
    for setting, those in groups.items():
        line = dict(zip(keys, setting, strict=True)) | {
            MANY: str(len({row.get(REPLICATE) for row in those}))
        }
        for name in measured:
            values = [value for row in those if (value := number(row[name])) is not None]
            line |= mean_and_spread(name, values)
        lines.append(line)
    columns = [*keys, MANY, *(each for name in measured for each in (name, f"{name}{SPREAD}"))]
    used = [name for name in columns if any(line.get(name) for line in lines)]
    return as_csv(used, lines)


def mean_and_spread(name: str, values: list[float]) -> dict[str, str]:
    """The two columns of what was measured, as they are written; none without values, no spread
    where there is none.
    """
    if not values:
        return {}
    if not np.all(np.isfinite(values)):
        return {name: "inf" if all(value == math.inf for value in values) else "nan"}
    told = {name: f"{np.mean(values):.{DIGITS}g}"}
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    rounding = 1e-12 * max(map(abs, values))
    return told | ({f"{name}{SPREAD}": f"{spread:.{SPREAD_DIGITS}g}"} if spread > rounding else {})


def as_csv(columns: Sequence[str], lines: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([line.get(name, "") for name in columns] for line in lines)
    return text.getvalue()


def checksum(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


# What is kept


def of_study(study: spec.Study, table: str, claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What ``verdicts.json`` holds of a study: nothing of it depends on when, where and how fast it
    ran.

    Parameters
    ----------
    study : Study
    table : str
        Its ``table.csv``.
    claims : sequence of dict
        Its claims as :meth:`Judged.plain` has them.
    """
    lines = table.splitlines()
    return {
        "study": study.name,
        "paper": study.paper,
        "replicates": study.replicates,
        "seed": study.seed,
        "cells": len(study.points()),
        "rows": len(lines) - 1,
        "columns": next(csv.reader(lines[:1]), []),
        "table_sha256": checksum(table),
        "means_sha256": checksum(means(study, table)),
        "claims": list(claims),
    }


def write(studies: Path, out: Path) -> list[str]:
    """Write all files of results; the studies of the package that are left out, each with why."""
    kept, how, costs, left, sums, compressed = [], {}, {}, [], [], {}
    for name in spec.names():
        said = papers.judged(studies / name)
        if said is None or said.get("quick") or said["cells"] != len(spec.load(name).points()):
            left.append(
                f"{name}: " + ("not run as its file is now" if said is None else "not run in full")
            )
            continue
        study, table = spec.load(name), (studies / name / "table.csv").read_text(encoding="utf-8")
        one = of_study(study, table, said["claims"])
        kept.append(one)
        how[name] = said.get("made")
        costs[name] = {"seconds": round(said["seconds"], 1), "runs": said.get("runs", {})}
        sums.append(f"{one['table_sha256']}  {name}/table.csv\n")
        compressed[f"means/{name}.csv.gz"] = gzip.compress(means(study, table).encode(), mtime=0)
    ways = list({json.dumps(way, sort_keys=True): way for way in how.values()}.values())
    runs = []
    for way in ways:
        names = [name for name in how if how[name] == way]
        runs.append({"studies": names, "made": way, "costs": {name: costs[name] for name in names}})
    contents = {
        VERDICTS: as_json(runs, kept).encode(),
        TABLES: "".join(sums).encode(),
        **compressed,
    }
    stale = set(out.glob("means/*.csv.gz")) - {out / name for name in compressed}
    for path in stale:  # of a study that is no more
        path.unlink()
    (out / "means").mkdir(parents=True, exist_ok=True)
    for name, whole in contents.items():
        (out / name).write_bytes(whole)
    listed = "".join(f"{checksum(whole)}  {name}\n" for name, whole in sorted(contents.items()))
    (out / SUMS).write_text(listed, encoding="utf-8")
    return left


def as_json(runs: list[dict[str, Any]], kept: list[dict[str, Any]]) -> str:
    """``verdicts.json``, a claim a line: what changed between two runs can be read from a diff."""

    def line(value: Any) -> str:
        return json.dumps(infinities_to_text(value), ensure_ascii=False)

    told = []
    for one in kept:
        head = line({key: value for key, value in one.items() if key != "claims"}).removesuffix("}")
        told.append(f'{head}, "claims": [\n' + ",\n".join(map(line, one["claims"])) + "\n]}")
    return f'{{"made": {line(runs)},\n"studies": [\n' + ",\n".join(told) + "\n]}\n"


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The kept studies by name."""
    content = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))
    return {one["study"]: one for one in content["studies"]}


# A second run


class Apart(NamedTuple):
    """The largest difference of two tables of means: relative to the kept mean, where, and both
    numbers.
    """

    relative: float
    where: str
    kept: str
    found: str


def largest_difference(kept: str, found: str) -> Apart:
    """Of two tables of means; infinite, with what differs, where they have not the same settings
    and columns.
    """
    first, second = (list(csv.DictReader(io.StringIO(text))) for text in (kept, found))
    columns = list(first[0]) if first else []
    if [*map(list, second[:1])] != [*map(list, first[:1])] or len(first) != len(second):
        return Apart(
            math.inf,
            "other columns or settings",
            f"{len(first)} settings",
            f"{len(second)} settings",
        )
    worst = Apart(0.0, "", "", "")
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        for name in columns:
            far = distance(one[name], other[name], size(one, name.removesuffix(SPREAD)))
            if far > worst.relative:
                worst = Apart(far, f"{name} in line {at + 2}", one[name], other[name])
    return worst


def size(line: Mapping[str, str], name: str) -> float:
    """Of what was measured: its mean or, where that is near 0, its standard deviation over
    replicates.
    """
    both = (number(line.get(column, "")) or 0.0 for column in (name, f"{name}{SPREAD}"))
    return max(1e-12, *map(abs, both))


def distance(kept: str, found: str, size: float) -> float:
    """How far two numbers lie apart, relative to a size; infinite where both are not numbers and
    differ.

    No spread is a spread of 0.
    """
    if kept == found:
        return 0.0
    one, other = (number(text or "0") for text in (kept, found))
    if one is None or other is None or not math.isfinite(one - other):
        return math.inf
    return abs(other - one) / size


def other_verdicts(
    kept: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A line for each verdict that is another one, or that only one of the two has."""

    def words(claims: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], str]:
        return {
            (one["claim"], one.get("reading") or "", basis): one[basis]["verdict"]
            for one in claims
            for basis in papers.HEADS
            if one.get(basis)
        }

    before, now = words(kept), words(found)
    lines = []
    for key in dict.fromkeys([*before, *now]):
        if before.get(key) != now.get(key):
            said, reading, basis = key
            where = f"{said} ({reading})" if reading else said
            lines.append(
                f"{where} {papers.HEADS[basis]}: {before.get(key)} is kept, {now.get(key)} came out"
            )
    return lines


def compare(
    kept: Mapping[str, Any], kept_means: str, study: spec.Study, table: str, claims: Any
) -> tuple[bool, str]:
    """Whether a second run gave the same results, and what to say of it."""
    now = of_study(study, table, claims)
    other = other_verdicts(kept["claims"], claims)
    told = "".join(f"\n  {line}" for line in other)
    many = sum(bool(one.get(basis)) for one in claims for basis in papers.HEADS)
    verdicts = (
        f"{len(other)} of {many} verdicts differ" if other else f"all {many} verdicts are the same"
    )
    if now["table_sha256"] == kept["table_sha256"]:
        return (
            not other,
            f"the same table, bit by bit ({now['table_sha256'][:16]}); {verdicts}{told}",
        )
    apart = largest_difference(kept_means, means(study, table))
    close = apart.relative <= CLOSE
    if apart.relative == 0.0:
        same = f"another table, whose means are the same to {DIGITS} digits"
    else:
        where = f"{apart.where}: {apart.kept} is kept, {apart.found} came out"
        same = (
            f"another table; the largest difference of means is {apart.relative:.2g} of the "
            f"mean ({where})"
        )
    return close and not other, f"{same}; {verdicts}{told}"


def check(names: Sequence[str], folder: Path, jobs: int) -> int:
    """Run studies again and compare; how many gave other results."""
    kept, failed = read(folder), 0
    for name in names:
        if name not in kept:
            print(f"{name}: no results are kept; there are {', '.join(kept)}")
            failed += 1
            continue
        study = spec.load(name)
        with tempfile.TemporaryDirectory() as scratch:
            done = run(study, scratch, jobs=jobs)
            table = (done.folder / "table.csv").read_text(encoding="utf-8")
        claims = infinities_to_text([one.plain() for one in judged(study, done.rows)])
        means_kept = gzip.decompress((folder / "means" / f"{name}.csv.gz").read_bytes()).decode()
        same, told = compare(kept[name], means_kept, study, table, claims)
        failed += not same
        print(f"{name}: {told}", flush=True)
    print(f"with {made.sentence(made.here())}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies", type=Path, default=Path("studies"), help="where `sottovoce study all` wrote"
    )
    parser.add_argument("--out", type=Path, default=KEPT, help="where results are kept")
    parser.add_argument(
        "--check", nargs="+", metavar="NAME", help="run these studies again and compare"
    )
    parser.add_argument(
        "--jobs", type=int, default=-1, help="with --check: cells at a time, as joblib's n_jobs"
    )
    arguments = parser.parse_args()
    if arguments.check:
        return min(1, check(arguments.check, arguments.out, arguments.jobs))
    left = write(arguments.studies, arguments.out)
    print(f"results of {len(read(arguments.out))} studies in {arguments.out}")
    print("".join(f"left out: {line}\n" for line in left), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
