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
from ..reports.coefficients import remark, rows_of
from .render import marked_words
from .screen import Console, escape

DIMMED = ("reference", "refused", "-")


def render_inferred(done: Inferred, console: Console, saved: Path | None) -> None:
    """Print a run with inference."""
    sizes = done.sizes.astype(int)
    size = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    console.print(
        f"[bold]inference[/] on [bold]{escape(done.config.data)}[/]: {len(sizes)} sites of {size} rows, "
        f"{escape(done.config.partition)} partition, {len(done.answered.model)} columns"
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
    show_coefficients(done.to_dict(), console)
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
    if "coefficients" in record:
        show_coefficients(record, console)


def show_coefficients(plain: dict[str, Any], console: Console) -> None:
    """Print a run's table of coefficients with their intervals, and what there is to say of it."""
    lines = plain["coefficients"]
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    (column, heads), *rows = rows_of(lines)
    table.add_column(column, overflow="fold")
    for head in heads:
        table.add_column(head if head.startswith("95%") else head.replace(" ", "\n"), justify="right", no_wrap=True)
    for name, row in rows:
        table.add_row(escape(name), *(f"[dim]{x}[/]" if x in DIMMED else x for x in row))
    console.print(table)
    if said := remark(lines, plain["needs"], plain.get("weighed", "")):
        console.print(f"[yellow]note[/] {escape(said)}")


def render_evaluation(found: Evaluation, console: Console, *, exact: bool = True) -> None:
    """Print what was released of held-out rows: AUC and calibration first."""
    render_quality(found.to_dict() | ({} if exact else {"exact": {}}), console)


def render_quality(found: dict[str, Any], console: Console) -> None:
    """The same from plain data; ``exact`` is shown if there is any."""
    words = Statement.from_dict(found["privacy"]).words
    console.print(Panel(marked_words(words), title="Privacy of held-out rows", title_align="left"))
    names, every = ["all held-out rows", *found["by"]], [found, *found["by"].values()]
    many = len(every) > 1  # then a column each, with intervals below
    table = Table(box=None, header_style="bold", padding=(0, 1 if many else 2, 0, 0))
    table.add_column("held-out rows")
    for name in names:
        text = "all" if many and name == names[0] else name
        table.add_column(escape(text.replace("=", "\n", 1) if many else text), justify="right", overflow="fold")
    beside = found.get("exact", {})
    table.add_column("[dim]exact, for\nthe holder[/]" if beside else "", justify="right")

    def row(head: str, of: list[dict[str, Any]], name: str) -> None:
        told = f"[dim]{beside[name]:.4f}[/]" if name in beside else ""
        table.add_row(head, *(estimate_text(one, many) for one in of), told)

    row("AUC", [q["auc"] for q in every], "auc")
    row("Brier score", [q["brier"] for q in every], "brier")
    table.add_row("calibration slope", *(f"{q['calibration_slope']:.2f}" for q in every), "")
    row("positives", [q["positives"] for q in every], "positives")
    table.add_row(f"at {found['threshold']:g} or more:", *[""] * len(every), "")
    for name in ("accuracy", "sensitivity", "specificity", "precision"):
        row(f"  {name}", [q["rates"][name] for q in every], name)
    console.print(table)
    console.print(_calibration(found["calibration"]))
    for quality, name in zip(every, names, strict=True):
        if quality["auc"].get("refused") is not None:
            console.print(f"[yellow]note[/] AUC, {escape(name)}: {quality['auc']['refused']}")


def estimate_text(found: dict[str, Any], below: bool = False) -> str:
    """A number with its interval beside or below, or that it was refused."""
    if found["value"] is None:
        return "[dim]refused[/]"
    low, high = f"{found['low']:.3f}", f"{found['high']:.3f}"
    if below:
        return f"{found['value']:.4f}\n[dim]{low.removeprefix('0')} to {high.removeprefix('0')}[/]"
    return f"{found['value']:.4f} [dim]({low} to {high})[/]"


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
