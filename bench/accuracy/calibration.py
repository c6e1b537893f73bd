"""Do the default's probabilities hold: `auto` beside `prox_average`, inference, and `auto` of
another version.

    python bench/accuracy/calibration.py [--against FOLDER] [--tables a,b] [--epsilons 1,3] [--sites
    5] [--json FILE] python bench/accuracy/calibration.py --show
    docs/measured/accuracy/calibration.json

The tables of tables.py and centring.py (at most 6,000 training rows) and Adult; delta 1e-5,
replace-one, rows dealt at random to the sites, `--deals` shuffles of rows with test rows of their
own, `--replicates` draws of the noise in each.

- *slope*: of the logistic regression of test labels on the model's log-odds, with a constant.  1 is
  calibrated, below 1 the probabilities are too sure, above 1 not sure enough.  The median over
  deals and replicates.
- *Brier*, *log loss* and *error*: means on the test rows; ± is the standard deviation of a run for
  the error.
- `auto` is ``sottovoce.train`` with nothing else set; `before` the same by the source in
  `--against`, a checkout of an older commit such as b6382272, which chose by errors alone;
  `prox_average` that method at its defaults; `inference` what ``--inference`` fits, one constant
  for all sites.  It spends the same budget on coefficients with intervals.

A cell *holds* if the slope is between 0.8 and 1.25 and the Brier score is at most 0.003 above the
better of `prox_average` and `inference`.  The last lines count the tables whose cells hold at every
budget, and print how far the mean error is above that of `before`.  Exit status 1 if fewer than
`--least` tables hold, or the error grew by more than 0.2 points.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from sottovoce import RunConfig, TrainConfig, train
from sottovoce.errors import SottovoceError
from sottovoce.util.typing import Array

DELTA = 1e-5
SLOPES, BRIER, POINTS = (0.8, 1.25), 0.003, 0.2
RIVALS = ("prox_average", "inference")
MEASURES = ("slope", "brier", "log_loss", "error")
SCHEMAS = {**tables.SOURCES, **tables.UNSEEN}


def slope_of(z: Array, y: Array) -> float:
    """The slope of a logistic regression of labels y, -1 or 1, on log-odds z; 0 for a model of
    one answer.
    """
    spread = float(z.std())
    if spread < 1e-9:
        return 0.0
    scaled = (z - z.mean()) / spread

    def loss(at: Array) -> float:
        return float(np.logaddexp(0.0, -y * (at[0] + at[1] * scaled)).mean())

    return float(minimize(loss, np.zeros(2), method="BFGS").x[1]) / spread


def measured(z: Array, y: Array) -> dict[str, float]:
    """Slope, Brier score, log loss and error of log-odds z for labels y, -1 or 1."""
    chance = 1.0 / (1.0 + np.exp(-np.clip(z, -700.0, 700.0)))
    return {
        "slope": slope_of(z, y),
        "brier": float(np.mean((chance - (y > 0)) ** 2)),
        "log_loss": float(np.logaddexp(0.0, -y * z).mean()),
        "error": float(np.mean(z * y <= 0)),
    }


def config_of(
    folder: Path, name: str, deal: int, epsilon: float, sites: int, run: RunConfig
) -> TrainConfig:
    """A run on one deal of a table; Adult has one deal, whose sites differ with the seed."""
    where: dict[str, Any] = {"data": name}
    if name in SCHEMAS:
        where = {"data": str(tables.path(folder, name, deal)), "schema": str(SCHEMAS[name].schema)}
    return TrainConfig(run, nodes=sites, partition="iid", **where)


def trained(config: TrainConfig) -> tuple[list[dict[str, float]], str]:
    """The measures of every replicate of a run by rounds, and its method in words."""
    report = train(config)
    X, y, result = report.dataset.X_test, report.dataset.y_test, report.result
    if result.move is None:
        margins = result.consensus @ X.T
    else:
        maps = result.move.split_by_replicate()
        maps = maps if len(maps) > 1 else maps * len(result.consensus)
        margins = np.stack(
            [one.shorten_rows(X) @ w for one, w in zip(maps, result.consensus, strict=True)]
        )
    run = report.config.run
    cap = "" if not np.isfinite(run.gradient_cap) else f", cap {run.gradient_cap:g}"
    return [measured(z, y) for z in margins], f"{run.method}, {run.rounds} rounds{cap}"


def inferred(config: TrainConfig) -> dict[str, float]:
    """The measures of the model of inference."""
    from sottovoce.answers.training import infer
    from sottovoce.data import load

    found = infer(config, site_constants=False)
    dataset = load(config.data, schema=config.schema, test_share=config.test_share)
    return measured(found.answered.margins(dataset.test_columns), dataset.y_test)


def cell(
    folder: Path, name: str, epsilon: float, who: str, options: argparse.Namespace
) -> dict[str, Any]:
    """All runs of one contender on one table at one budget."""
    runs: list[dict[str, float]] = []
    said = who
    for deal in range(options.deals):
        method = who if who == "prox_average" else "auto"
        run = RunConfig(method, epsilon, DELTA, seed=deal, replicates=options.replicates)
        if who != "inference":
            found, said = trained(config_of(folder, name, deal, epsilon, options.sites, run))
            runs += found
            continue
        for k in range(options.replicates):
            alone = RunConfig("auto", epsilon, DELTA, seed=1000 * deal + k)
            try:
                runs.append(inferred(config_of(folder, name, deal, epsilon, options.sites, alone)))
            except SottovoceError as refusal:
                said = f"refused: {refusal}"
                break
    values = {what: [one[what] for one in runs] for what in MEASURES}
    return {"table": name, "epsilon": epsilon, "who": who, "setting": said, **values}


def older(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells of `auto` by another source, a table at a time: one on which that fails has
    none.
    """
    cells: list[dict[str, Any]] = []
    source = {"PYTHONPATH": str(Path(options.against) / "src")}
    for name in options.tables.split(","):
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "before.json"
            asked = [
                sys.executable,
                __file__,
                "--only",
                "auto",
                "--json",
                str(path),
                "--env",
                str(options.env),
            ]
            asked += ["--tables", name]
            for what in ("epsilons", "sites", "deals", "replicates"):
                asked += [f"--{what}", str(getattr(options, what))]
            subprocess.run(asked, env={**os.environ, **source}, check=False, capture_output=True)
            if path.exists():
                cells += [{**one, "who": "before"} for one in json.loads(path.read_text())]
            else:
                print(f"{options.against} fails on {name}", file=sys.stderr)
    return cells


def mean(found: dict[str, Any], what: str) -> float:
    """A measure of a cell over its runs; NaN if it has none."""
    values = found[what]
    if not values:
        return float("nan")
    return float(np.median(values) if what == "slope" else np.mean(values))


def holds(cells: dict[str, dict[str, Any]]) -> bool:
    """Whether the default's probabilities hold on one table at one budget."""
    slope = mean(cells["auto"], "slope")
    rivals = [mean(cells[who], "brier") for who in RIVALS if who in cells and cells[who]["brier"]]
    return (
        SLOPES[0] <= slope <= SLOPES[1]
        and mean(cells["auto"], "brier") <= min(rivals, default=np.inf) + BRIER
    )


def show(console: Console, found: dict[tuple[str, float], dict[str, dict[str, Any]]]) -> None:
    """One line a contender."""
    listed = Table(
        "table", "epsilon", "who", "slope", "Brier", "log loss", "error %", "setting", "holds"
    )
    for (name, epsilon), cells in found.items():
        for who, one in cells.items():
            if not one["error"]:
                listed.add_row(name, f"{epsilon:g}", who, "", "", "", "", one["setting"][:60], "")
                continue
            error = f"{100 * mean(one, 'error'):.2f} ± {100 * float(np.std(one['error'])):.2f}"
            slope = f"{mean(one, 'slope'):.2f} ± {float(np.std(one['slope'])):.2f}"
            numbers = [slope, f"{mean(one, 'brier'):.4f}", f"{mean(one, 'log_loss'):.4f}", error]
            verdict = ("yes" if holds(cells) else "no") if who == "auto" else ""
            listed.add_row(name, f"{epsilon:g}", who, *numbers, one["setting"], verdict)
    console.print(listed)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cells that are asked for."""
    names, budgets = options.tables.split(","), [float(one) for one in options.epsilons.split(",")]
    tables.make(options.env, [name for name in names if name in SCHEMAS], range(options.deals))
    cells = []
    for name in names:
        for epsilon in budgets:
            cells += [
                cell(options.env, name, epsilon, who, options) for who in options.only.split(",")
            ]
    return cells + (older(options) if options.against else [])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(["adult", *tables.SOURCES, *tables.UNSEEN]))
    parser.add_argument("--epsilons", default="1,3")
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--deals", type=int, default=2)
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--only", default="auto,prox_average,inference")
    parser.add_argument("--against", help="a checkout of an older commit, to compare with")
    parser.add_argument(
        "--least", type=int, default=8, help="tables that must hold at every budget"
    )
    parser.add_argument(
        "--env", type=Path, default=tables.default_folder(), help="where tables are kept"
    )
    parser.add_argument("--json", type=Path, help="write all cells to this file, a line each")
    parser.add_argument(
        "--show", type=Path, help="show the cells of such a file, and measure nothing"
    )
    options = parser.parse_args()
    if options.show:
        cells = json.loads(options.show.read_text())
    else:
        cells = measure(options)
    if options.json:
        options.json.write_text("[\n" + ",\n".join(map(json.dumps, cells)) + "\n]\n")
    names = list(dict.fromkeys(one["table"] for one in cells))
    budgets = list(dict.fromkeys(one["epsilon"] for one in cells))
    found: dict[tuple[str, float], dict[str, dict[str, Any]]] = {}
    for one in cells:
        found.setdefault((one["table"], one["epsilon"]), {})[one["who"]] = one
    show(Console(width=160), found)
    held = [name for name in names if all(holds(found[name, epsilon]) for epsilon in budgets)]
    said = " and ".join(f"{budget:g}" for budget in budgets)
    print(f"{len(held)} of {len(names)} tables hold at epsilon {said}: {', '.join(held)}")
    both = [
        (mean(one["auto"], "error"), mean(one["before"], "error"))
        for one in found.values()
        if "before" in one
    ]
    grown = 100 * float(np.mean([now - then for now, then in both])) if both else 0.0
    if both:
        print(f"mean error {grown:+.2f} points against the older choice, over {len(both)} cells")
    sys.exit(len(held) < options.least or grown > POINTS)


if __name__ == "__main__":
    main()
