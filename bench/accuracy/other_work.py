"""Methods from other work beside ours and the papers', at equal totals, on Adult: DP-ADMM, gradient
tracking, EXTRA.

``scripts/bench other_work [--quick] [--best] [--replicates N] [--json FILE]``

Five sites on a ring, delta 1e-5, replace-one, a row is the unit, trust in nobody: every site's
messages are public. Sites are alike ("iid") or differ in their labels ("label").  Each method makes
ten releases a site (those of every second round have twenty rounds), and all else is at its
default.  With ``--best`` a second block of columns gives each method the best of three penalties, a
third of the default to three times it, by its test accuracy: that looks at the test rows, and is
the same for all.  Accuracies are means over draws of the noise, in percent; the spread of one draw
is in brackets.  About two minutes on one core, and six with ``--best``.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sottovoce.errors import SottovoceError
from sottovoce.runs.config import RunConfig
from sottovoce.runs.training import TrainConfig, train

EPSILONS, PARTITIONS, DELTA, ROUNDS = (0.1, 1.0, 5.0), ("iid", "label"), 1e-5, 10
FACTORS = (1 / 3, 1.0, 3.0)
METHODS: dict[str, dict[str, Any]] = {
    "mr_admm (002)": {"method": "mr_admm", "rounds": 2 * ROUNDS},
    "pp_admm (004)": {"method": "pp_admm"},
    "prox_admm (ours)": {"method": "prox_admm"},
    "momentum (ours)": {"method": "momentum"},
    "EXTRA": {"method": "momentum", "momentum": 0.0, "correlation": "none"},
    "gradient tracking": {"method": "gradient_tracking", "rounds": 2 * ROUNDS},
    "DP-ADMM": {"method": "dp_admm"},
    "dgd": {"method": "dgd"},
}


@dataclass(frozen=True)
class Cell:
    """Accuracies of one method at one total, in percent, one for each draw of the noise."""

    method: str
    partition: str
    epsilon: float
    eta: float
    accuracies: list[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def shown(self) -> str:
        return f"{self.mean:.2f} ({np.std(self.accuracies, ddof=1):.2f})"


def cell(
    name: str, partition: str, epsilon: float, replicates: int, eta: float | None, limit: int | None
) -> Cell:
    """One training, its test accuracies; the mean over sites where models differ."""
    knobs = {"rounds": ROUNDS} | METHODS[name] | ({} if eta is None else {"eta": eta})
    run = RunConfig.from_dict(
        {"epsilon": epsilon, "delta": DELTA, "replicates": replicates, "seed": 0, **knobs}
    )
    data = "adult" if limit is None else f"synthetic:n={limit},d=8"
    report = train(TrainConfig(run=run, data=data, nodes=5, partition=partition))
    used = float(report.result.algorithm["penalty"]["start"])
    return Cell(
        name,
        partition,
        epsilon,
        used,
        [100.0 * (1.0 - error) for error in np.ravel(report.test_errors)],
    )


def tuned(start: Cell, replicates: int, limit: int | None) -> Cell:
    """The best of the default penalty and its multiples."""
    found = [start]
    for factor in FACTORS:
        if factor == 1.0:
            continue
        try:
            found.append(
                cell(
                    start.method,
                    start.partition,
                    start.epsilon,
                    replicates,
                    float(f"{start.eta * factor:.4g}"),
                    limit,
                )
            )
        except (
            SottovoceError
        ):  # a penalty at which noise inside the objective has no price, or models run away
            continue
    return max(found, key=_finite_mean)


def _finite_mean(one: Cell) -> float:
    return one.mean if math.isfinite(one.mean) else -math.inf


def measure(replicates: int, quick: bool, best: bool) -> list[tuple[Cell, Cell | None]]:
    """Each cell at its default penalty and, if asked for, at the best of some."""
    found: list[tuple[Cell, Cell | None]] = []
    limit = 600 if quick else None
    names = ["gradient tracking", "DP-ADMM"] if quick else list(METHODS)
    for partition in PARTITIONS[:1] if quick else PARTITIONS:
        for epsilon in EPSILONS[1:2] if quick else EPSILONS:
            for name in names:
                start = cell(name, partition, epsilon, replicates, None, limit)
                found.append((start, tuned(start, replicates, limit) if best else None))
    return found


def show(found: list[tuple[Cell, Cell | None]]) -> None:
    for partition in dict.fromkeys(start.partition for start, _ in found):
        here = [pair for pair in found if pair[0].partition == partition]
        columns = [
            f"epsilon {epsilon:g}" for epsilon in dict.fromkeys(start.epsilon for start, _ in here)
        ]
        if here[0][1] is not None:
            columns += [f"{one}, best penalty" for one in columns]
        table = Table(partition, *columns)
        for name in dict.fromkeys(start.method for start, _ in here):
            own = [pair for pair in here if pair[0].method == name]
            best = [second.shown for _, second in own if second is not None]
            table.add_row(name, *(start.shown for start, _ in own), *best)
        Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two methods, one total, synthetic rows"
    )
    parser.add_argument("--best", action="store_true", help="also with the best of three penalties")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the cells there, too")
    said = parser.parse_args()
    found = measure(3 if said.quick else said.replicates, said.quick, said.best)
    show(found)
    if said.json is not None:
        plain = [{"default": vars(start), "best": best and vars(best)} for start, best in found]
        said.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
