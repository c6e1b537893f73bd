"""What sums over sites buy: accuracy against the number of sites at a fixed total of rows.

``python bench/accuracy/sums.py [--quick] [--json] [--rows 6000] [--jobs 2] [--out docs/measured]``

Rows of Adult, drawn once (seed 0) and dealt to 2, 3, 5, 10, 20, 50, 100 and 200 sites of equal
size, alike and, for 20 sites, with unlike labels.  At each number of sites `auto` chooses under
local trust (``--trust nobody``), under sums with one colluder (``--trust sum``) and for a trusted
curator; nothing is chosen on test rows.  Delta 1e-5, replace-one, 10 replicates of the noise; the
8,842 test rows of Adult are public.  Two sites with one colluder gain nothing by sums: that cell is
local trust's.  Writes ``sums.svg`` and ``sums.json``.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import matplotlib
import numpy as np
from joblib import Parallel, delayed
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sottovoce.data import partition
from sottovoce.data.expected import expected_rows
from sottovoce.data.loaders import load
from sottovoce.data.rows import Rows
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.util.typing import Any
from sottovoce_papers.studies.figures import COLOURS, LINES, MARKERS, STYLE

SITES = (2, 3, 5, 10, 20, 50, 100, 200)
SITES_OF_TABLE = (2, 20, 200)
"""Those that the page's table shows, at the least epsilon; the picture has all of them."""

EPSILONS = (0.5, 1.0)
TRUSTS = {"nobody": "local trust", "sum": "sums, one colluder", "curator": "trusted curator"}
DELTA, REPLICATES = 1e-5, 10


def cell(rows: int, sites: int, kind: str, trust: str, epsilon: float) -> dict[str, Any]:
    """Accuracy of what `auto` chooses."""
    table = load("adult")
    some = np.random.default_rng(0).permutation(len(table.y_train))[:rows]
    X, y = table.X_train[some], table.y_train[some]
    columns = {name: values[some] for name, values in table.train_columns.items()}
    parts = partition(kind, y, sites, 0, columns)
    held = Rows.build_from_parts([(X[part], y[part]) for part in parts])
    if trust == "sum" and sites == 2:
        trust = "nobody"
    config = RunConfig(
        method="auto", epsilon=epsilon, delta=DELTA, replicates=REPLICATES, trust=trust
    )
    assert table.schema is not None
    alike = "iid" if kind == "iid" else "label"
    choice = choose_method(
        config, held.n[:, 0], held.d, heterogeneity=alike, expected=expected_rows(table.schema)
    )
    result = simulate(choice.config, held)
    if not 0.999 * epsilon <= result.statement.epsilon <= epsilon:
        raise SystemExit(f"{choice.config.method}: spent {result.statement.epsilon} of {epsilon}")
    errors = table.task.model_errors(table.X_test, table.y_test, result.consensus)
    return {
        "rows": rows,
        "sites": sites,
        "partition": kind,
        "trust": trust,
        "epsilon": epsilon,
        "method": choice.config.method,
        "rounds": choice.config.rounds,
        "cap": choice.config.gradient_cap,
        "accuracy": 100 * (1 - float(errors.mean())),
        "sd": 100 * float(errors.std(ddof=1)),
        "alone": result.statement.alone,
    }


def draw(cells: list[dict[str, Any]]) -> bytes:
    """The picture; the same cells give the same bytes."""
    with matplotlib.rc_context(STYLE):
        epsilons = sorted({one["epsilon"] for one in cells})
        canvas = Figure(figsize=(10.5, 3.8), layout="constrained")
        FigureCanvasAgg(canvas)
        panels = canvas.subplots(1, len(epsilons), squeeze=False, sharey=True)[0]
        for panel, epsilon in zip(panels, epsilons, strict=True):
            for k, (trust, name) in enumerate(TRUSTS.items()):
                mine = [
                    one
                    for one in cells
                    if (one["asked"], one["epsilon"], one["partition"]) == (trust, epsilon, "iid")
                ]
                at = np.array([one["sites"] for one in mine]) * 1.03 ** (k - 1)  # side by side
                panel.errorbar(
                    at,
                    [one["accuracy"] for one in mine],
                    [one["sd"] for one in mine],
                    color=COLOURS[k],
                    marker=MARKERS[k],
                    ls=LINES[k],
                    ms=4.5,
                    lw=1.6,
                    elinewidth=0.9,
                    capsize=2,
                    label=name,
                )
            panel.set_xscale("log")
            ticks = sorted({one["sites"] for one in cells})
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=9)
            panel.set_xticks([], minor=True)
            panel.set_xlabel("sites")
            panel.set_title(
                f"Adult, {cells[0]['rows']:,} rows in all, epsilon {epsilon:g}", loc="left"
            )
        panels[0].set_ylabel("test accuracy, %")
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        sink = io.BytesIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": "sottovoce"})
        return sink.getvalue()


def said(cells: list[dict[str, Any]]) -> str:
    """The picture and a table of some cells, for the page of sums."""
    columns = [(trust, min(c["epsilon"] for c in cells)) for trust in TRUSTS]
    lines = [
        "![Accuracy against the number of sites](../measured/sums.svg)",
        "",
        f"Test accuracy of what `auto` chooses, in percent, with {cells[0]['rows']:,} rows of "
        f"Adult in all, delta {DELTA:g},",
        f"mean ± standard deviation of {REPLICATES} replicates; `bench/accuracy/sums.py` prints "
        "all cells:",
        "",
        "| sites | "
        + " | ".join(f"{TRUSTS[trust]}, {epsilon:g}" for trust, epsilon in columns)
        + " |",
        "|---|" + "---|" * len(columns),
    ]
    shown = [c for c in cells if c["sites"] in SITES_OF_TABLE and c["partition"] == "iid"]
    for sites in dict.fromkeys(c["sites"] for c in shown):
        found = {
            (c["asked"], c["epsilon"]): f"{c['accuracy']:.2f} ± {c['sd']:.2f}"
            for c in shown
            if c["sites"] == sites
        }
        lines.append(f"| {sites} | " + " | ".join(found[column] for column in columns) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three numbers of sites, one budget")
    parser.add_argument("--json", action="store_true", help="print the cells")
    parser.add_argument("--rows", type=int, default=6_000, help="of all sites together")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/measured"))
    given = parser.parse_args()
    wanted = [
        (given.rows, sites, kind, trust, epsilon)
        for kind in ("iid", "label")
        for sites in ((2, 5, 20) if given.quick else SITES)
        for trust in TRUSTS
        for epsilon in (EPSILONS[-1:] if given.quick else EPSILONS)
        if kind == "iid" or sites == 20
    ]
    cells = []
    for asked, found in zip(
        wanted,
        Parallel(n_jobs=given.jobs, return_as="generator")(delayed(cell)(*one) for one in wanted),
        strict=True,
    ):
        cells.append(found | {"asked": asked[3]})
        print(
            f"{found['sites']:>4} sites {found['partition']:<6} {TRUSTS[asked[3]]:<20} epsilon "
            f"{found['epsilon']:g}: "
            f"{found['accuracy']:.2f} ± {found['sd']:.2f}  ({found['method']}, {found['rounds']} "
            "rounds)",
            file=sys.stderr,
        )
    given.out.mkdir(parents=True, exist_ok=True)
    page = Path("docs/privacy/sums.md")
    if page.exists():
        mark = "<!-- sums: written by bench/accuracy/sums.py -->\n"
        before, rest = page.read_text().split(mark)
        after = rest.split("<!-- /sums -->\n")[1]
        page.write_text(f"{before}{mark}{said(cells)}<!-- /sums -->\n{after}")
    (given.out / "sums.svg").write_bytes(draw(cells))
    (given.out / "sums.json").write_text(json.dumps(cells, indent=1) + "\n")
    if given.json:
        print(json.dumps(cells))


if __name__ == "__main__":
    main()
