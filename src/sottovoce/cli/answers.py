"""What ``train --inference``, ``train --evaluation`` and ``evaluate`` print for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.table import Table

from ..answers.evaluation import Evaluation
from ..answers.training import Inferred
from ..privacy.statement import Statement
from .render import marked_words
from .screen import Console, escape

_HEADS = ("column", "level", "coefficient", "odds ratio", "std. error", "noise", "95% interval", "p")


def render_inferred(done: Inferred, console: Console, saved: Path | None) -> None:
    """Print a run with inference."""
    sizes = done.sizes.astype(int)
    size = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    console.print(
        f"[bold]inference[/] on [bold]{escape(done.config.data)}[/]: {len(sizes)} sites of {size} rows, "
        f"{escape(done.config.partition)} partition, {done.answered.naming.d} columns"
    )
    console.print(Panel(marked_words(done.statement.words), title="Privacy", title_align="left"))
    if done.evaluation is not None:
        render_evaluation(done.evaluation, console)
    elif done.exact:
        console.print(
            f"AUC {done.exact['auc']:.4f}, Brier {done.exact['brier']:.4f}, "
            f"accuracy {100 * done.exact['accuracy']:.2f}% on {done.exact['rows']:,.0f} test rows, "
            "[dim]taken as public, without noise: for the data's holder only[/]"
        )
    console.print(_coefficients(done.coefficients.to_dict()))
    if done.coefficients.needs is not None:
        console.print(_needs(done.coefficients.needs))
    for note in done.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)


def render_record(record: dict[str, Any], console: Console) -> None:
    """Print the answers of a run between sites, as their files hold them."""
    for note in record["notes"]:
        console.print(f"[yellow]note[/] {escape(note)}")
    if record["evaluation"] is not None:
        render_quality(record["evaluation"], console)
    if "coefficients" not in record:
        return
    console.print(_coefficients(record["coefficients"]))
    if record["needs"] is not None:
        console.print(_needs(record["needs"]))


def _needs(needs: dict[str, float]) -> str:
    more = [f"epsilon {needs['epsilon']:g}"] if "epsilon" in needs else []
    more.append(f"{needs['rows']:,.0f} rows")
    return f"[yellow]note[/] not all is printed: noise is too much of it; {' or '.join(more)} would do, about"


def _coefficients(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for k, head in enumerate(_HEADS):
        table.add_column(head, justify="left" if k < 2 else "right")
    told: set[str] = set()
    for line in lines:
        name, reference = line["unit"] or line["name"], line["reference"]
        level = "" if line["level"] is None else line["level"]
        if reference is not None and line["name"] not in told:
            level += f"  (against {reference})"
        told.add(line["name"])
        table.add_row(escape(name), escape(level), *_numbers(line))
    return table


def _numbers(line: dict[str, Any]) -> list[str]:
    if line["refused"] is not None:
        return ["[dim]refused[/]", *["[dim]-[/]"] * 5]
    mark = "?" if line["unsure"] else ""
    p = line["p"]
    return [
        f"{line['estimate']:.3f}{mark}", f"{line['odds_ratio']:.3g}", f"{line['standard_error']:.3f}",
        f"{100 * line['noise_share']:.0f}%", f"{line['low']:.3f} to {line['high']:.3f}",
        "<.001" if p < 0.001 else f"{p:.3f}",
    ]  # fmt: skip


def render_evaluation(found: Evaluation, console: Console, *, exact: bool = True) -> None:
    """Print what was released of held-out rows: AUC and calibration first."""
    render_quality(found.to_dict() | ({} if exact else {"exact": {}}), console)


def render_quality(found: dict[str, Any], console: Console) -> None:
    """The same from plain data; ``exact`` is shown if there is any."""
    words = Statement.from_dict(found["privacy"]).words
    console.print(Panel(marked_words(words), title="Privacy of held-out rows", title_align="left"))
    table, beside = Table(box=None, header_style="bold", padding=(0, 2, 0, 0)), found.get("exact", {})
    names = ["all held-out rows", *found["by"]]
    table.add_column("held-out rows")
    for name in names:
        table.add_column(escape(name), justify="right")
    table.add_column("[dim]exact, for the holder[/]" if beside else "", justify="right")
    every = [found, *found["by"].values()]

    def row(head: str, of: list[dict[str, Any]], name: str) -> None:
        table.add_row(head, *map(estimate_text, of), f"[dim]{beside[name]:.4f}[/]" if name in beside else "")

    row("AUC", [q["auc"] for q in every], "auc")
    row("Brier score", [q["brier"] for q in every], "brier")
    table.add_row("calibration slope", *(f"{q['calibration_slope']:.2f}" for q in every), "")
    row("share of positives", [q["positives"] for q in every], "positives")
    for name in ("accuracy", "sensitivity", "specificity", "precision"):
        row(f"{name} at {found['threshold']:g}", [q["rates"][name] for q in every], name)
    console.print(table)
    console.print(_calibration(found["calibration"]))
    for quality, name in zip(every, names, strict=True):
        if quality["auc"].get("refused") is not None:
            console.print(f"[yellow]note[/] AUC, {escape(name)}: {quality['auc']['refused']}")


def estimate_text(found: dict[str, Any]) -> str:
    """A number with its interval, or that it was refused."""
    if found["value"] is None:
        return "[dim]refused[/]"
    return f"{found['value']:.4f} [dim]({found['low']:.3f} to {found['high']:.3f})[/]"


def _calibration(cells: Sequence[dict[str, float]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("predicted", "observed", "95% interval", "rows, about"):
        table.add_column(name, justify="right")
    for cell in cells:
        table.add_row(
            f"{100 * cell['predicted']:.1f}%", f"{100 * cell['observed']:.1f}%",
            f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}", f"{cell['rows']:,.0f}",
        )  # fmt: skip
    return table
