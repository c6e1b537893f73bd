"""Tables and verdicts of tables.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from _tables_peers import PEERS
from rich.console import Console
from rich.table import Table

Cells = dict[str, dict[str, Any]]
REGRET, WORST = 0.4, 2.0  # points of error
HALF, BEHIND = 0.5, 0.5
FALL = 0.25


def keyed(
    cells: Cells, who: str, nodes: int | None = None
) -> dict[tuple[str, int, str, float], dict[str, Any]]:
    """The cells of one method by table, sites, partition and epsilon."""
    return {
        (c["table"], c["nodes"], c["partition"], c["epsilon"]): c
        for c in cells.values()
        if c["who"] == who and nodes in (None, c["nodes"])
    }


def summary(cells: Cells, before: Cells, numeric: set[str]) -> dict[str, Any]:
    """The figures on which the verdicts rest; a figure whose cells are missing is left out."""
    found: dict[str, Any] = {}
    auto, fixed = keyed(cells, "auto"), keyed(cells, "fixed")
    if both := sorted(auto.keys() & fixed.keys()):
        columns = {
            "regret": ("error", "error"),
            "crossed regret": ("error", "crossed"),
            "fresh regret": ("fresh", "fresh"),
        }
        for name, (mine, its) in columns.items():
            if not all(mine in auto[key] and its in fixed[key] for key in both):
                continue
            regrets = [auto[key][mine] - fixed[key][its] for key in both]
            found[name] = {
                "mean": float(np.mean(regrets)),
                "worst": float(np.max(regrets)),
                "settings": len(both),
                "by epsilon": _by_epsilon(both, regrets),
                "yes": bool(np.mean(regrets) <= REGRET and np.max(regrets) <= WORST),
            }
    theirs = {name: keyed(cells, name) for name in PEERS}
    if one := sorted(
        set.intersection(*(set(t) for t in theirs.values()), set(keyed(cells, "auto", 1)))
    ):
        best = {
            key: min((t[key] for t in theirs.values()), key=lambda cell: cell["error"])
            for key in one
        }
        for name, column in (("peers", "error"), ("fresh peers", "fresh")):
            if not all(column in auto[key] and column in best[key] for key in one):
                continue
            behind = [auto[key][column] - best[key][column] for key in one]
            ahead = float(np.mean([gap <= 0 for gap in behind]))
            found[name] = {
                "at least as good on": ahead,
                "behind": float(np.mean(behind)),
                "settings": len(one),
                "by epsilon": _by_epsilon(one, behind),
                "yes": bool(ahead >= HALF and np.mean(behind) <= BEHIND),
            }
    old = keyed(before, "auto")
    shared = [key for key in sorted(auto.keys() & old.keys()) if key[0] in numeric]
    for sites, name in ((5, "fall"), (1, "fall at one site")):
        mine = [key for key in shared if key[1] == sites]
        falls = {}
        for epsilon in sorted({key[3] for key in mine}):
            at = [key for key in mine if key[3] == epsilon]
            then, now, least = (
                float(np.mean([c[k][column] for k in at]))
                for c, column in ((old, "error"), (auto, "error"), (auto, "nonprivate"))
            )
            falls[f"{epsilon:g}"] = {
                "before": then,
                "now": now,
                "without privacy": least,
                "fall": 1 - now / then,
            }
        if falls:
            found[name] = {
                "by epsilon": falls,
                "yes": all(f["fall"] >= FALL for f in falls.values()),
            }
    return found


def _by_epsilon(keys: list[tuple[str, int, str, float]], values: list[float]) -> dict[str, float]:
    return {
        f"{epsilon:g}": float(
            np.mean([v for k, v in zip(keys, values, strict=True) if k[3] == epsilon])
        )
        for epsilon in sorted({k[3] for k in keys})
    }


def show(console: Console, cells: Cells, before: Cells, found: dict[str, Any]) -> None:
    """A table for each budget, the settings where `auto` loses most, and the verdicts."""
    for epsilon in sorted({c["epsilon"] for c in cells.values()}):
        _sites(
            console, {k: c for k, c in cells.items() if c["epsilon"] == epsilon}, before, epsilon
        )
        _one(console, {k: c for k, c in cells.items() if c["epsilon"] == epsilon}, before, epsilon)
    _worst(console, cells)
    for line in verdicts(found):
        console.print(line, highlight=False)


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for k, name in enumerate(columns):
        table.add_column(
            name, justify="left" if k == 0 or name in ("found by", "auto chose") else "right"
        )
    return table


def _cell(cell: dict[str, Any] | None, key: str = "error") -> str:
    if cell is None:
        return ""
    return f"{cell['error']:.2f} ± {cell['sd']:.2f}" if key == "error" else f"{cell[key]:.2f}"


def _sites(console: Console, cells: Cells, before: Cells, epsilon: float) -> None:
    auto, fixed, old = keyed(cells, "auto", 5), keyed(cells, "fixed"), keyed(before, "auto")
    title = (
        f"5 sites, epsilon {epsilon:g}: error in percent, mean ± standard deviation over "
        "deals and noise"
    )
    columns = [
        "table",
        "majority",
        "no privacy",
        "before",
        "auto",
        "over before",
        "best fixed",
        "regret",
        "crossed",
    ]
    table = _table(title, [*columns, "found by"])
    for key in sorted(auto.keys() | fixed.keys()):
        a, f, o = auto.get(key), fixed.get(key), old.get(key)
        ratio = "" if not (a and o) else f"{a['error'] / o['error']:.2f}"
        regret, crossed = (
            f"{a['error'] - f[c]:.2f}" if a and f else "" for c in ("error", "crossed")
        )
        table.add_row(
            f"{key[0]} {key[2]}",
            _cell(a, "majority"),
            _cell(a, "nonprivate"),
            _cell(o),
            _cell(a),
            ratio,
            _cell(f),
            regret,
            crossed,
            "" if f is None else f["setting"].split(",")[0].removeprefix("method "),
        )
    if table.row_count:
        console.print(table)
        console.print()


def _one(console: Console, cells: Cells, before: Cells, epsilon: float) -> None:
    auto, old = keyed(cells, "auto", 1), keyed(before, "auto")
    theirs = {name: keyed(cells, name) for name in PEERS}
    table = _table(
        f"1 site, epsilon {epsilon:g}",
        ["table", "no privacy", "before", "auto", *PEERS, "behind the best"],
    )
    for key in sorted(auto.keys() | set().union(*theirs.values())):
        a, rest = auto.get(key), [t.get(key) for t in theirs.values()]
        least = min((c["error"] for c in rest if c), default=None)
        behind = "" if a is None or least is None else f"{a['error'] - least:.2f}"
        table.add_row(
            key[0],
            _cell(a, "nonprivate"),
            _cell(old.get(key)),
            _cell(a),
            *(_cell(c) for c in rest),
            behind,
        )
    if table.row_count:
        console.print(table)
        console.print()


def _worst(console: Console, cells: Cells, many: int = 8) -> None:
    auto, fixed = keyed(cells, "auto", 5), keyed(cells, "fixed")
    gaps = sorted(
        ((auto[k]["error"] - fixed[k]["error"], k) for k in auto.keys() & fixed.keys()),
        reverse=True,
    )
    table = _table("Where auto loses most", ["setting", "regret", "auto chose", "found by"])
    for gap, key in gaps[:many]:
        name, _, partition, epsilon = key
        table.add_row(
            f"{name} {partition} {epsilon:g}",
            f"{gap:.2f}",
            auto[key]["setting"],
            fixed[key]["setting"],
        )
    if gaps:
        console.print(table)
        console.print()


def verdicts(found: dict[str, Any]) -> list[str]:
    """Sentences with yes or no."""
    lines = []
    for name in ("regret", "crossed regret", "fresh regret"):
        if r := found.get(name):
            lines.append(
                f"{name.capitalize()} of auto over {r['settings']} settings: {r['mean']:.2f} "
                "points on average (at "
                f"most {REGRET}), {r['worst']:.2f} at worst (at most {WORST:g}); "
                f"{_listed(r['by epsilon'])}: {_yes(r)}"
            )
    for name, noise in (("peers", ""), ("fresh peers", ", with fresh noise")):
        if p := found.get(name):
            lines.append(
                f"auto at one site is at least as good as the best peer{noise} on "
                f"{100 * p['at least as good on']:.0f}% of {p['settings']} settings (at least "
                f"{100 * HALF:.0f}%), and "
                f"{p['behind']:.2f} points behind on average (at most {BEHIND}); "
                f"{_listed(p['by epsilon'])}: {_yes(p)}"
            )
    for name, where in (("fall", "5 sites"), ("fall at one site", "1 site")):
        if f := found.get(name):
            each = "; ".join(
                f"epsilon {e}: {v['before']:.2f} to {v['now']:.2f}, by {100 * v['fall']:.0f}% "
                "(without privacy "
                f"{v['without privacy']:.2f})"
                for e, v in f["by epsilon"].items()
            )
            lines.append(
                f"Mean error on numeric tables since before, {where} (a fall of "
                f"{100 * FALL:.0f}%): {each}: {_yes(f)}"
            )
    return lines


def _listed(values: dict[str, float]) -> str:
    return "at epsilon " + ", ".join(f"{e}: {v:.2f}" for e, v in values.items())


def _yes(found: dict[str, Any]) -> str:
    return "yes" if found["yes"] else "NO"
