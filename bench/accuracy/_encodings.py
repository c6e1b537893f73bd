"""How encodings of one table compare: errors of `auto` on fresh deals, which are the same for
each encoding.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.data import Schema, partition
from sottovoce.data.expected import expected_rows
from sottovoce.data.rows import Rows
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.centre import decide_centring, frame_of_schema
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate
from sottovoce.util.typing import Array

EPSILONS, DELTA, SITES, TEST_SHARE = (0.1, 0.5, 1.0), 1e-5, 5, 0.2
MOST_ROWS = 7500
Cells = dict[str, dict[str, Any]]


class Raw(NamedTuple):
    """Raw columns and labels -1 or 1."""

    columns: dict[str, Any]
    y: Array


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured: deals of the rows, replicates of the noise in each, and the seed of
    both.
    """

    deals: int = 6
    replicates: int = 10
    seed: int = 7000


def errors(
    schema: Schema, raw: Raw, epsilon: float, sizes: Sizes, centre: bool = True
) -> dict[str, Any]:
    """Test errors in percent, a mean for each deal, of `auto`, and of no privacy.  As ``sottovoce
    train`` would run.

    With `centre`, rows are centred where public facts say that it pays.
    """
    X = schema.encode(raw.columns, labels=False).X
    kept = np.random.default_rng(sizes.seed).permutation(len(raw.y))[:MOST_ROWS]
    found, plain, chosen, centring = list[float](), list[float](), None, None
    for k in range(sizes.deals):
        order = np.random.default_rng(sizes.seed + k).permutation(kept)
        test, train = np.split(order, [round(TEST_SHARE * len(order))])
        parts = [train[part] for part in partition("iid", raw.y[train], SITES, sizes.seed + k)]
        rows = Rows.build_from_parts([(X[part], raw.y[part]) for part in parts])
        if chosen is None:  # from public facts, so it is the same in all deals
            asked = RunConfig(method="auto", loss="logistic", epsilon=epsilon, delta=DELTA)
            centring = (
                decide_centring(asked, rows.n, rows.d, frame_of_schema(schema)).centring
                if centre
                else None
            )
            left = asked if centring is None else centring.config_for_method(asked)
            chosen = choose_method(
                left, rows.n[:, 0], rows.d, expected=expected_rows(schema)
            ).config
            chosen = dataclasses.replace(chosen, epsilon=epsilon)
            if centring is None:  # calibrated once
                chosen = dataclasses.replace(
                    chosen, noise=prepare(chosen, rows.n, rows.d).algorithm.noise
                )
        run = dataclasses.replace(chosen, seed=sizes.seed + k, replicates=sizes.replicates)
        models = simulate(run, rows, centre=centring).consensus
        found.append(100.0 * float(np.mean(np.sign(X[test] @ models.T) != raw.y[test, None])))
        exact = pooled_minimiser(rows, run)
        plain.append(100.0 * float(np.mean(np.sign(X[test] @ exact) != raw.y[test])))
    offset = float(np.linalg.norm(X[:, :-1].mean(axis=0)))  # of the real rows, without the constant
    return {
        "errors": found,
        "plain": float(np.mean(plain)),
        "d": X.shape[1],
        "offset": offset,
        "centred": centring is not None,
    }


class Job(NamedTuple):
    """One cell: a table, an encoding of it, a budget."""

    table: str
    way: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.table} {self.way} {self.epsilon:g}"


def measure_all(
    jobs: Iterable[Job], of: Callable[[Job], dict[str, Any]], path: Path | None, workers: int
) -> Cells:
    """Cells of all jobs; those in the file are not measured again."""
    wanted = list(jobs)
    cells: Cells = json.loads(path.read_text()) if path is not None and path.exists() else {}
    left = [job for job in wanted if job.key not in cells]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(of, job): job for job in left}
        for count, done in enumerate(as_completed(waiting), 1):
            cells[waiting[done].key] = done.result()
            if path is not None:
                lines = ",\n".join(
                    f'"{key}": {json.dumps(cell)}' for key, cell in sorted(cells.items())
                )
                path.write_text(f"{{\n{lines}\n}}\n")
            print(f"{count}/{len(left)} {waiting[done].key}", file=sys.stderr)
    return {job.key: cells[job.key] for job in wanted}


def change(cells: Cells, table: str, way: str, before: str, epsilon: float) -> tuple[float, float]:
    """Mean change of the error over deals, and its standard error."""
    pair = [np.array(cells[Job(table, name, epsilon).key]["errors"]) for name in (way, before)]
    gap = pair[0] - pair[1]
    return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
