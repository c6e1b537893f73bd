"""What the parts of `momentum` buy, on the tables of tables.py: carried noise, step, momentum and
average.

    python bench/accuracy/momentum.py [--tables a,b] [--replicates 20] [--jobs 2] [--json FILE]

Every variant differs from the default in one thing.  The default: cap 0.06, 100 rounds, a
regulariser of 1e-5, carried noise, the default step.  Five sites on a ring and one site, rows dealt
at random, three deals, delta 1e-5, replace-one; all variants have the same draws.  It prints mean
errors over tables, and the mean difference from the default with its standard error over tables (a
table counts once).  Nothing is chosen.  About twenty minutes on 2 cores.

The average's power is a constant of the method; it is changed here in the process that measures it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from rich.console import Console
from rich.table import Table

from sottovoce.algorithms import momentum
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.prepare import default_penalty, prepare
from sottovoce.runs.simulate import RunConfig, simulate

EPSILONS, SITES, DELTA = (0.1, 0.5, 1.0), (1, 5), 1e-5
SEED = 3000
DEFAULT = RunConfig.from_dict(
    {"method": "momentum", "delta": DELTA, "rounds": 100, "rho": 1e-5, "max_grad_norm": 0.06}
)


@dataclass(frozen=True)
class Variant:
    """One thing changed: knobs of the run, a multiple of the default penalty, or the power of
    the average.
    """

    name: str
    knobs: dict[str, Any] = field(default_factory=dict)
    eta: float = 1.0
    late: float | None = None


VARIANTS = (
    Variant("the default"),
    Variant("noise of every round its own", {"correlation": "none"}),
    Variant(
        "its own, doubled over the rounds", {"correlation": "none", "noise_growth": 2 ** (-1 / 99)}
    ),
    Variant(
        "its own, halved over the rounds", {"correlation": "none", "noise_growth": 2 ** (1 / 99)}
    ),
    Variant("steps 2 times as long", eta=0.5),
    Variant("steps 1.4 times as long", eta=0.7),
    Variant("steps 0.7 times as long", eta=1.4),
    Variant("steps 0.5 times as long", eta=2.0),
    Variant("momentum 0.9", {"momentum": 0.9}),
    Variant("momentum 0.5", {"momentum": 0.5}),
    Variant("average by the third power", late=3.0),
    Variant("average by the fifteenth power", late=15.0),
    Variant("200 rounds", {"rounds": 200}),
    Variant("cap 0.12", {"max_grad_norm": 0.12}),
    Variant("cap 0.03", {"max_grad_norm": 0.03}),
    Variant("Huber's loss", {"loss": "huber:0.5"}),
    Variant("regulariser 0.001", {"rho": 0.001}),
)


def error(
    folder: Path, name: str, sites: int, epsilon: float, variant: Variant, replicates: int
) -> float:
    """Mean error in percent over the deals."""
    found, usual = [], momentum.LATE
    momentum.LATE = usual if variant.late is None else variant.late
    try:
        for k in range(tables.DEALS):
            rows, dataset = tables.held(folder, name, k, sites, "iid"), tables.load(folder, name, k)
            budgeted = DEFAULT.but(
                epsilon=epsilon, replicates=replicates, seed=SEED + k, **variant.knobs
            )
            # of shifts over sigma, whose squares add up
            shape = budgeted.noise_growth ** np.arange(budgeted.rounds)
            alpha = gaussian_mu(epsilon, DELTA) / math.sqrt(float((shape**2).sum()))
            config = replace(budgeted, epsilon=math.inf, noise=alpha)
            prepared = prepare(config, rows.n, rows.d)
            config = replace(
                config, eta=variant.eta * default_penalty(budgeted, prepared.facts, prepared.graph)
            )
            models = simulate(config, rows).consensus
            found.append(
                100 * dataset.task.model_errors(dataset.X_test, dataset.y_test, models).mean()
            )
    finally:
        momentum.LATE = usual
    return float(np.mean(found))


def cell(job: tuple[Path, str, int, float, int]) -> list[float]:
    """All variants of a cell."""
    folder, name, sites, epsilon, replicates = job
    return [error(folder, name, sites, epsilon, variant, replicates) for variant in VARIANTS]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(tables.SOURCES))
    parser.add_argument(
        "--replicates", type=int, default=20, help="repetitions of the noise in each deal"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--env", type=Path, default=tables.default_folder(), help="where tables are kept"
    )
    parser.add_argument("--json", type=Path, help="write all cells here")
    options = parser.parse_args()
    names, folder = options.tables.split(","), options.env.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tables.make(folder, names)
    keys = [(name, sites, epsilon) for sites in SITES for epsilon in EPSILONS for name in names]
    console = Console(width=120)
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [(folder, *key, options.replicates) for key in keys]
        found = np.array(list(pool.map(cell, jobs))).reshape(
            len(SITES), len(EPSILONS), len(names), len(VARIANTS)
        )
    for s, sites in enumerate(SITES):
        title = f"{sites} site{'s' * (sites > 1)}, {len(names)} tables: error in percent"
        shown = Table(title=title, title_justify="left", box=None)
        for heading in (
            "",
            *(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
            "all",
            "less the default",
        ):
            shown.add_column(heading, justify="right" if heading else "left")
        for v, variant in enumerate(VARIANTS):
            means = found[s, :, :, v].mean(axis=1)
            gap = (found[s, :, :, v] - found[s, :, :, 0]).mean(axis=0)
            spread = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
            shown.add_row(
                variant.name,
                *(f"{mean:.2f}" for mean in means),
                f"{means.mean():.2f}",
                "" if v == 0 else f"{gap.mean():+.2f} ± {spread:.2f}",
            )
        console.print(shown)
    if options.json:
        cells, said = (
            zip(keys, found.reshape(-1, len(VARIANTS)).tolist(), strict=True),
            [one.name for one in VARIANTS],
        )
        plain = {" ".join(map(str, key)): dict(zip(said, row, strict=True)) for key, row in cells}
        options.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
