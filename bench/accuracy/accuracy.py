"""Where accuracy comes from: draws the pictures of docs/explanation/accuracy.md and writes their
numbers.

``python bench/accuracy/accuracy.py [--quick] [--json] [--out docs/measured/accuracy] [--jobs 2]``

Adult, breast cancer and digits (even or odd), and in the last picture the synthetic rows of fill.py,
which also has the bounds and the typical ranges.  5 sites on a ring, alike; logistic loss,
replace-one, delta 1e-5 in total; penalties at their defaults.  `prox_average` runs 20 rounds and
`momentum` 100, where the picture is not about rounds.

10 replicates of the noise.  Adult has test rows of its own, and its other rows are dealt once (seed
0); of the other tables 20% are test rows, in three splits and deals (seeds 0, 1 and 2) with 10
replicates each.  Bars are one standard deviation over all runs of a setting.  Nothing is chosen on
test rows, but for the curator's cap in the last picture.

Takes four minutes on two cores; ``--quick`` is for the tests.
"""

from __future__ import annotations

import argparse
import io
import json
import re
from pathlib import Path

import matplotlib
import numpy as np
from _accuracy_cells import CAP, DELTA, LEVERS, REPLICATES, SEEDS, SITES, Cells, levers, measure
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sottovoce.util.typing import Any
from sottovoce_papers.studies.figures import COLOURS, LINES, MARKERS, STYLE


def draw(pictures: dict[str, Cells]) -> dict[str, bytes]:
    """SVG of every picture; the same cells give the same bytes."""
    with matplotlib.rc_context(STYLE):
        return {name: _DRAW[name](cells) for name, cells in pictures.items()}


def _canvas(rows: int, columns: int, height: float) -> tuple[Figure, Any]:
    canvas = Figure(figsize=(10.5, height * rows), layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas, canvas.subplots(rows, columns, squeeze=False)


def _svg(canvas: Figure, axes: Any) -> bytes:
    found: dict[str, Any] = {}
    for one in axes.flat:
        found |= dict(zip(*one.get_legend_handles_labels()[::-1], strict=True))
    canvas.legend(
        list(found.values()),
        list(found),
        loc="outside upper center",
        ncols=5 if len(found) < 6 else 3,
    )
    sink = io.BytesIO()
    canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": "sottovoce"})
    return sink.getvalue()


def _curves(axes: Any, cells: Cells, x: str, names: dict[str, Cells]) -> None:
    """A line with its spread for each name, and the level without privacy; the x axis is
    logarithmic.
    """
    for k, (name, some) in enumerate(names.items()):
        xs = np.array([cell[x] for cell in some]) * 1.02 ** (k - 1)  # side by side
        look: dict[str, Any] = {
            "color": COLOURS[k],
            "marker": MARKERS[k],
            "ls": LINES[k],
            "ms": 4.5,
            "lw": 1.6,
        }
        axes.plot(xs, [cell["error"] for cell in some], **look, label=name)
        axes.errorbar(
            xs,
            [cell["error"] for cell in some],
            [cell["sd"] for cell in some],
            fmt="none",
            ecolor=COLOURS[k],
            capsize=2,
            lw=0.9,
        )
    none = next(cell["error"] for cell in cells if cell["method"] == "none")
    axes.axhline(none, color="#444", lw=1.2, ls=(0, (2, 2)), label="no privacy")
    axes.set_xscale("log")
    ticks = sorted({cell[x] for some in names.values() for cell in some})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=9)
    axes.set_xticks([], minor=True)


def _title(cell: dict[str, Any]) -> str:
    return f"{cell['table'].capitalize()}, epsilon {cell['epsilon']:g}"


def _draw_cap(cells: Cells) -> bytes:
    names = list(dict.fromkeys(cell["table"] for cell in cells))
    epsilons = sorted({cell["epsilon"] for cell in cells} - {None})
    canvas, axes = _canvas(len(names), len(epsilons), 2.7)
    for (i, table), (j, e) in ((a, b) for a in enumerate(names) for b in enumerate(epsilons)):
        own = [cell for cell in cells if cell["table"] == table and cell["epsilon"] in (e, None)]
        some = {
            method: [cell for cell in own if cell["method"] == method]
            for method in dict.fromkeys(ran_of(own))
        }
        _curves(axes[i, j], own, "cap", some)
        for cell in own:
            if cell["method"] == "auto":
                at = min(1.0, cell["ran_cap"] or 1.0)
                axes[i, j].errorbar(
                    at,
                    cell["error"],
                    cell["sd"],
                    fmt="*",
                    ms=13,
                    color="#000000",
                    capsize=4,
                    lw=1.2,
                    label="auto",
                )
        axes[i, j].set_title(_title({"table": table, "epsilon": e}), loc="left")
        axes[i, j].sharey(axes[i, 0])
    for panel in axes[-1]:
        panel.set_xlabel("cap (max_grad_norm); 1 is none")
    canvas.supylabel("test error, %")
    return _svg(canvas, axes)


def ran_of(cells: Cells) -> list[str]:
    """Names of the methods that were given."""
    return [cell["method"] for cell in cells if cell["method"] not in ("none", "auto")]


def _row(cells: Cells, x: str, said: dict[tuple[str, float | None], str], xlabel: str) -> bytes:
    """One panel for each table; `said` names the lines, by method and cap."""
    names = list(dict.fromkeys(cell["table"] for cell in cells))
    canvas, axes = _canvas(1, len(names), 3.6)
    for panel, table in zip(axes[0], names, strict=True):
        own = [cell for cell in cells if cell["table"] == table]
        some = {
            name: [cell for cell in own if (cell["method"], cell["cap"]) == which]
            for which, name in said.items()
        }
        _curves(panel, own, x, {name: line for name, line in some.items() if line})
        panel.set_title(_title(next(cell for cell in own if cell["epsilon"])), loc="left")
    for panel in axes[0]:
        panel.set_xlabel(xlabel)
    axes[0, 0].set_ylabel("test error, %")
    return _svg(canvas, axes)


def _draw_norm(cells: Cells) -> bytes:
    said = {
        ("momentum", None): "momentum, no cap",
        ("momentum", 0.1): "momentum, cap 0.1",
        ("auto", None): "auto",
    }
    return _row(cells, "norm", said, "norm of a typical row")


def _draw_rounds(cells: Cells) -> bytes:
    said: dict[tuple[str, float | None], str] = {
        (m, CAP): m for m in ("momentum", "prox_average", "dgd")
    }
    return _row(cells, "rounds", said, "rounds")


def _draw_levers(cells: Cells) -> bytes:
    bars = levers(cells)
    epsilons = list(dict.fromkeys(bar["epsilon"] for bar in bars))
    canvas, axes = _canvas(1, 1, 4.2)
    for k, lever in enumerate(LEVERS):
        mine = [bar for bar in bars if bar["lever"] == lever]
        at = np.arange(len(epsilons)) + (k - (len(LEVERS) - 1) / 2) * 0.14
        drawn = axes[0, 0].bar(
            at,
            [bar["error"] for bar in mine],
            0.128,
            yerr=[bar["sd"] for bar in mine],
            color=COLOURS[k],
            alpha=0.8,
            hatch=("", "//", "..", "\\\\", "xx", "")[k],
            edgecolor="white",
            lw=0,
            ecolor="#222",
            capsize=2,
            label=lever,
        )
        axes[0, 0].bar_label(drawn, [f"{bar['error']:.1f}" for bar in mine], fontsize=8, padding=1)
    axes[0, 0].set_xticks(range(len(epsilons)), [f"epsilon {e:g}" for e in epsilons])
    axes[0, 0].grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("test error, %, mean over tables")
    return _svg(canvas, axes)


_DRAW = {"cap": _draw_cap, "norm": _draw_norm, "rounds": _draw_rounds, "levers": _draw_levers}


def table(pictures: dict[str, Cells]) -> str:
    """The last picture as Markdown, and what `auto` chose."""
    bars = levers(pictures["levers"])
    epsilons = list(dict.fromkeys(bar["epsilon"] for bar in bars))
    text = (
        f"| | {' | '.join(f'epsilon {e:g}' for e in epsilons)} |\n|---|{'---|' * len(epsilons)}\n"
    )
    for lever in LEVERS:
        mine = [f"{bar['error']:.1f} ± {bar['sd']:.1f}" for bar in bars if bar["lever"] == lever]
        text += f"| {lever} | {' | '.join(mine)} |\n"
    text += (
        "\n| table | rows | norm | epsilon | auto chose | cap | error "
        "|\n|---|---|---|---|---|---|---|\n"
    )
    for cell in (cell for cells in pictures.values() for cell in cells if cell["method"] == "auto"):
        where = f"| {cell['table']} | {cell['rows']} | {cell['norm']:g} | {cell['epsilon']:g} |"
        what = f"`{cell['ran']}`, {cell['ran_rounds']} rounds | {cell['ran_cap'] or 'none'}"
        text += f"{where} {what} | {cell['error']:.1f} ± {cell['sd']:.1f} |\n"
    return text


def lines(numbers: dict[str, Any]) -> str:
    """JSON with a line for each setting."""
    flat = re.sub(
        r"\{[^{}]*\}", lambda cell: " ".join(cell[0].split()), json.dumps(numbers, indent=1)
    )
    return flat + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="breast cancer alone, little of everything"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers and write nothing")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/measured/accuracy"),
        help="folder of pictures and numbers",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    pictures = measure(given.quick, given.jobs)
    numbers = {
        "sites": SITES,
        "delta": DELTA,
        "replicates": 2 if given.quick else REPLICATES,
        "seeds": SEEDS,
        "levers": levers(pictures["levers"]),
        "pictures": pictures,
    }
    images = draw(pictures)
    if given.json:
        print(json.dumps(numbers | {"bytes": {name: len(image) for name, image in images.items()}}))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "numbers.json").write_text(lines(numbers))
    for name, image in images.items():
        (given.out / f"{name}.svg").write_bytes(image)
    print(table(pictures))


if __name__ == "__main__":
    main()
