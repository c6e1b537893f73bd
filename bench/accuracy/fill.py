"""What it buys that rows fill the unit ball: prints the table of docs/reference/data.md.

``python bench/accuracy/fill.py [--quick] [--json]``

Four numeric tables: breast cancer, wine (the first cultivar or another) and digits (3 or 8) come
with scikit-learn; "made-up" has 10,000 rows of 20 normal columns, with bounds of ten standard
deviations to either side and a typical range of 1.6.  The tables are public, and were known to
whoever wrote their bounds and typical ranges, in round numbers; with less knowledge a typical range
gains less.  The pixels of a digit are one vector, and its typical range is a norm.

5 sites, 20% test rows, delta 1e-5 in total, logistic loss, all other knobs at their defaults.
Seeds 0, 1 and 2 split the rows and deal them to sites; each has 10 replicates of the noise.  A cell
is the mean test accuracy over tables, methods, seeds and replicates, and the mean over tables and
methods of the standard deviation; JSON has each by itself. `scale` is what ``sottovoce data
--schema`` proposes.  Takes a minute on two cores; ``--quick`` is for the tests.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from sottovoce.data import Schema, fill, partition
from sottovoce.data.rows import Rows
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.util.typing import Any, Array

SITES, DELTA, REPLICATES, SEEDS = 5, 1e-5, 10, (0, 1, 2)
EPSILONS, METHODS = (0.1, 0.5, 1.0), ("prox_admm", "prox_average")
Range = tuple[float, float]

# Of each measure: largest value, and typical ranges of its mean, its standard error, and its worst
# value.
NUCLEI: tuple[tuple[Range, Range, Range, Range, Range, Range], ...] = (
    ((0, 40), (9, 20), (0, 4), (0.1, 0.8), (0, 50), (10, 25)),  # radius
    ((0, 50), (13, 27), (0, 6), (0.5, 2.0), (0, 60), (16, 36)),  # texture
    ((0, 250), (60, 135), (0, 30), (1, 6), (0, 300), (65, 170)),  # perimeter
    ((0, 4000), (250, 1250), (0, 600), (10, 100), (0, 6000), (300, 2000)),  # area
    ((0, 0.3), (0.07, 0.12), (0, 0.05), (0.003, 0.012), (0, 0.4), (0.09, 0.17)),  # smoothness
    ((0, 0.5), (0.04, 0.2), (0, 0.2), (0.005, 0.06), (0, 1.5), (0.07, 0.55)),  # compactness
    ((0, 0.6), (0, 0.25), (0, 0.5), (0, 0.08), (0, 1.5), (0, 0.7)),  # concavity
    ((0, 0.3), (0, 0.12), (0, 0.1), (0, 0.025), (0, 0.4), (0, 0.25)),  # concave points
    ((0, 0.4), (0.14, 0.23), (0, 0.1), (0.01, 0.035), (0, 0.8), (0.2, 0.4)),  # symmetry
    (
        (0, 0.15),
        (0.05, 0.08),
        (0, 0.05),
        (0.001, 0.008),
        (0, 0.3),
        (0.06, 0.12),
    ),  # fractal dimension
)
WINE: tuple[tuple[Range, Range], ...] = (
    ((8, 18), (11.5, 14.5)),
    ((0, 10), (1, 4.5)),
    ((0, 5), (2, 2.7)),
    ((0, 40), (15, 25)),
    ((0, 250), (80, 125)),
    ((0, 6), (1.4, 3.3)),
    ((0, 8), (0.5, 3.5)),
    ((0, 1.5), (0.2, 0.6)),
    ((0, 6), (0.7, 2.7)),
    ((0, 20), (2, 9.5)),
    ((0, 3), (0.6, 1.3)),
    ((0, 6), (1.5, 3.5)),
    ((0, 3000), (350, 1300)),
)


@dataclasses.dataclass(frozen=True)
class Numeric:
    """A table with its labels, and its schema without and with typical ranges."""

    name: str
    columns: dict[str, Array]
    y: Array
    bounds: Schema
    typical: Schema


def of_ranges(name: str, X: Array, y: Array, ranges: list[tuple[Range, Range]]) -> Numeric:
    """A table of numbers; of each column its bounds and its typical range."""
    given: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for k, ((lo, hi), typical) in enumerate(ranges):
        block = {"kind": "number", "lo": float(lo), "hi": float(hi)}
        given[False][f"x{k}"] = block
        given[True][f"x{k}"] = block | {"typical": typical}
    both = (
        Schema.from_dict({"name": name, "intercept": True, "columns": given[typical]})
        for typical in (False, True)
    )
    return Numeric(name, {f"x{k}": column for k, column in enumerate(X.T)}, y, *both)


def tables() -> list[Numeric]:
    """The four tables."""
    nuclei, wine, digits, rng = (
        load_breast_cancer(),
        load_wine(),
        load_digits(),
        np.random.default_rng(0),
    )
    cells = [(measure[at], measure[at + 1]) for at in (0, 2, 4) for measure in NUCLEI]
    some = np.isin(digits.target, (3, 8))
    made = rng.normal(size=(10_000, 20))
    score = made @ rng.normal(size=20)
    above = np.where(score + 0.5 * score.std() * rng.normal(size=len(made)) > 0, 1.0, -1.0)
    image = {"kind": "vector", "size": 64, "lo": 0, "hi": 16}
    norms = [
        {"columns": {"image": image | {"norm": float(norm)}}, "intercept": True}
        for norm in (128, 50)
    ]
    return [
        of_ranges("breast cancer", nuclei.data, np.where(nuclei.target == 1, 1.0, -1.0), cells),
        of_ranges("wine", wine.data, np.where(wine.target == 0, 1.0, -1.0), list(WINE)),
        Numeric(
            "digits",
            {"image": digits.data[some]},
            np.where(digits.target[some] == 8, 1.0, -1.0),
            *(Schema.from_dict({"name": "digits"} | given) for given in norms),
        ),
        of_ranges("made-up", made, above, [((-10.0, 10.0), (-1.6, 1.6))] * 20),
    ]


def scaled(schema: Schema) -> Schema:
    """With the scale that is proposed for it."""
    proposed = fill(schema).scale
    return schema if proposed is None else dataclasses.replace(schema, scale=proposed)


def small(schema: Schema) -> Schema:
    """With a smaller constant."""
    return dataclasses.replace(schema, intercept=0.5)


def variants(table: Numeric) -> dict[str, Schema]:
    """Schemas of one table, by what was changed in it."""
    as_is, typical = table.bounds, table.typical
    return {
        "bounds only": as_is,
        "`intercept = 0.5`": small(as_is),
        "`scale`": scaled(as_is),
        "`unit`": dataclasses.replace(as_is, unit=True),
        "`typical`": typical,
        "`typical`, `scale`": scaled(typical),
        "`typical`, `unit`": dataclasses.replace(typical, unit=True),
        "`typical`, `scale`, `intercept = 0.5`": scaled(small(typical)),
    }


def accuracies(X: Array, y: Array, run: RunConfig, seed: int) -> Array:
    """Test accuracy of each replicate."""
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])
    parts = [train[part] for part in partition("iid", y[train], SITES, seed)]
    rows = Rows.build_from_parts([(X[part], y[part]) for part in parts])
    W = simulate(dataclasses.replace(run, seed=seed), rows).consensus
    return np.asarray(np.mean(y[test] == np.sign(X[test] @ W.T).T, axis=1))


def measure(quick: bool) -> list[dict[str, Any]]:
    """One entry for each table, schema, method and epsilon."""
    out: list[dict[str, Any]] = []
    for table in tables()[1:2] if quick else tables():
        for name, schema in variants(table).items():
            X, told = schema.encode(table.columns, labels=False).X, fill(schema)
            for method in METHODS:
                for epsilon in EPSILONS[1:2] if quick else EPSILONS:
                    run = RunConfig(
                        method=method,
                        loss="logistic",
                        epsilon=epsilon,
                        delta=DELTA,
                        replicates=2 if quick else REPLICATES,
                    )
                    scores = [
                        accuracies(X, table.y, run, seed)
                        for seed in (SEEDS[:1] if quick else SEEDS)
                    ]
                    accuracy = 100 * np.concatenate(scores)
                    out.append(
                        {
                            "table": table.name,
                            "rows": name,
                            "method": method,
                            "epsilon": epsilon,
                            "expected_norm": told.median,
                            "norm": float(np.median(np.linalg.norm(X, axis=1))),
                            "accuracy": float(accuracy.mean()),
                            "sd": float(accuracy.std(ddof=1)),
                        }
                    )
    return out


def _cell(cells: list[dict[str, Any]]) -> str:
    mean, sd = (float(np.mean([cell[key] for cell in cells])) for key in ("accuracy", "sd"))
    return f"{mean:.1f} ± {sd:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="wine alone, at one epsilon")
    parser.add_argument("--json", action="store_true", help="print every cell as JSON")
    given = parser.parse_args()
    found = measure(given.quick)
    if given.json:
        print(json.dumps({"cells": found}))
        return
    table = Table(title="Mean test accuracy in percent", title_justify="left")
    epsilons = list(dict.fromkeys(cell["epsilon"] for cell in found))
    for header in ("rows", "norm said", "norm", *(f"epsilon {epsilon:g}" for epsilon in epsilons)):
        table.add_column(header)
    for name in dict.fromkeys(cell["rows"] for cell in found):
        mine = [cell for cell in found if cell["rows"] == name]
        norms = (
            f"{np.mean([cell[key] for cell in mine]):.2f}" for key in ("expected_norm", "norm")
        )
        table.add_row(
            name,
            *norms,
            *(_cell([cell for cell in mine if cell["epsilon"] == e]) for e in epsilons),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
