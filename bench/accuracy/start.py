"""What a public starting point is worth on Adult: public rows, and an earlier run's model, at small
budgets.

``python bench/accuracy/start.py [--quick] [--json]``

5 nodes on a ring, 10 rounds, delta 1e-5, 10 replicates of the noise (seed 0), every other parameter
at its default. Test accuracy in percent, mean and standard deviation over replicates.

Public rows: 2% of the training rows (800) and 0.5% (200) are taken as public; the other rows are
dealt to the sites. ``zero`` runs on the same sites without a start, ``start`` from the minimiser
over the public rows, and ``start, eta x 3`` does so with three times the default penalty.
``public`` is that minimiser by itself.

An earlier run: one half of the training rows (seed 0) was trained on before, at epsilon 1 by
`prox_admm`; the run is on the other half.  ``public`` is then the earlier model by itself.  Takes
some minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce import data
from sottovoce.data.rows import Rows
from sottovoce.runs.prepare import default_penalty, prepare
from sottovoce.runs.public import Public, set_aside_public_rows, start_from_result
from sottovoce.runs.simulate import RunConfig, Start, simulate

METHODS, PARTITIONS, EPSILONS, SHARES = (
    ("prox_admm", "mr_admm", "objective"),
    ("iid", "label"),
    (0.1, 0.5),
    (0.02, 0.005),
)
DELTA, ROUNDS, REPLICATES, NODES, FACTOR, EARLIER = 1e-5, 10, 10, 5, 3.0, 1.0


def rows_of(dataset: data.Dataset, partition: str) -> Rows:
    parts = data.partition(partition, dataset.y_train, NODES, 0, dataset.train_columns)
    return Rows.build_from_parts([(dataset.X_train[part], dataset.y_train[part]) for part in parts])


def accuracy(dataset: data.Dataset, models: Any) -> tuple[float, float]:
    right = 100 - 100 * dataset.task.model_errors(
        dataset.X_test, dataset.y_test, np.atleast_2d(models)
    )
    return float(right.mean()), float(right.std(ddof=1)) if len(right) > 1 else 0.0


def measure(
    name: str, sites: data.Dataset, partition: str, config: RunConfig, start: Start
) -> dict[str, Any]:
    """The same budget from zero and from the start, on the same rows."""
    rows = rows_of(sites, partition)
    ready = prepare(config, rows.n, rows.d)
    stiff = replace(config, eta=FACTOR * default_penalty(config, ready.facts, ready.graph))
    found: dict[str, Any] = {
        "start": name,
        "partition": partition,
        "method": config.method,
        "epsilon": config.epsilon,
        "public": accuracy(sites, start.vector),
    }
    for label, run, begin in (
        ("zero", config, None),
        ("from start", config, start),
        ("stiff", stiff, start),
    ):
        result = simulate(run, rows, start=begin)
        if not result.privacy["epsilon"] <= config.epsilon:
            raise SystemExit(
                f"{config.method}: spent {result.privacy['epsilon']} of {config.epsilon}"
            )
        found[label] = accuracy(sites, result.consensus)
    print(found, file=sys.stderr)
    return found


def starts(dataset: data.Dataset) -> list[tuple[str, data.Dataset, Start]]:
    """Names, the rows left to the sites, and starting points."""
    found = []
    for share in SHARES:
        known, private = set_aside_public_rows(dataset, share, 0)
        public = Public.from_dataset(known, RunConfig(), NODES)
        found.append((f"{len(public.X)} public rows", private, public.start))
    before, now = set_aside_public_rows(dataset, 0.5, 0)
    config = RunConfig("prox_admm", EARLIER, DELTA, rounds=ROUNDS, seed=1)
    earlier = simulate(config, rows_of(before, "iid"))
    return [
        *found,
        ("an earlier run", now, start_from_result(earlier, config, dataset.n_features, None)),
    ]


def page(found: list[dict[str, Any]]) -> str:
    text = "| start | partition | method | epsilon | zero | start | start, eta x 3 | public |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for row in found:
        cells = [
            f"{row[label][0]:.2f} ± {row[label][1]:.2f}"
            for label in ("zero", "from start", "stiff")
        ]
        given = [row["start"], row["partition"], f"`{row['method']}`", f"{row['epsilon']:g}"]
        text += f"| {' | '.join([*given, *cells, format(row['public'][0], '.2f')])} |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small synthetic rows, two replicates, one method"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    arguments = parser.parse_args()
    dataset = data.load("synthetic:n=3000,d=6,seed=1" if arguments.quick else "adult")
    methods, replicates = (METHODS[:1], 2) if arguments.quick else (METHODS, REPLICATES)
    found = [
        measure(
            name,
            sites,
            partition,
            RunConfig(method, epsilon, DELTA, rounds=ROUNDS, replicates=replicates),
            start,
        )
        for name, sites, start in starts(dataset)
        for partition in PARTITIONS
        for method in methods
        for epsilon in EPSILONS
    ]
    print(json.dumps(found) if arguments.json else page(found))


if __name__ == "__main__":
    main()
