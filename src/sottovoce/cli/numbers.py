"""What ``train`` and ``evaluate`` print for people about a bounded number."""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from ..answers.numbers import Fitted
from ..answers.numeric_metrics import NumberEvaluation
from ..reports.coefficients import has_intervals
from .answers import estimate_text, show_coefficients
from .render import marked_words
from .screen import Console, escape

_NAMES = {
    "r2": "R2",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
    "mean_target": "mean of the target",
}


def render_fitted(done: Fitted, console: Console, saved: Path | None) -> None:
    """Print a least squares fit."""
    sizes, unit = done.sizes.astype(int), done.task.unit
    size = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    console.print(
        f"[bold]least squares[/] on [bold]{escape(done.config.data)}[/]: {len(sizes)} sites of {size} rows, "
        f"{escape(done.config.partition)} partition, {len(done.answered.model)} columns"
    )
    console.print(Panel(marked_words(done.statement.words), title="Privacy", title_align="left"))
    if done.evaluation is not None:
        render_errors(done.evaluation, console)
    elif done.exact.get("rows"):
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("on test rows")
        for head in ("this run", "mean of training rows"):
            table.add_column(head, justify="right")
        for name, words in _NAMES.items():
            if name != "mean_target" and name in done.exact:
                table.add_row(_with_unit(words, name, unit), f"{done.exact[name]:.4g}", f"{done.baseline[name]:.4g}")
        console.print(table)
        console.print(
            f"[dim]{done.exact['rows']:,.0f} test rows, taken as public, without noise: for the data's holder only[/]"
        )
    if has_intervals(done.coefficients):
        console.print(f"[dim]coefficients in {escape(done.task.unit or 'units of the target')} a step of the column[/]")
        show_coefficients(done.to_dict(), console)
    else:
        console.print(_coefficients(done))
        console.print("[dim]without standard errors: --inference spends the budget on intervals[/]")
        if done.weighed:
            console.print(f"[yellow]note[/] {escape(done.weighed)}")
    for note in done.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)


def _with_unit(words: str, name: str, unit: str) -> str:
    return words if name == "r2" or not unit else f"{words} ({escape(unit)})"


def _coefficients(done: Fitted) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    per = f"coefficient ({done.task.unit})" if done.task.unit else "coefficient"
    for k, head in enumerate(("column", "level", per)):
        table.add_column(escape(head), justify="left" if k < 2 else "right")
    told: set[str] = set()
    for line in done.coefficients:
        level = line["level"] or ""
        if line["reference"] is not None and line["name"] not in told:
            level += f"  (against {line['reference']})"
        told.add(line["name"])
        table.add_row(escape(line["name"]), escape(level), f"{line['estimate']:.4g}")
    return table


def render_errors(found: NumberEvaluation, console: Console, *, exact: bool = True) -> None:
    """Print what was released of held-out rows."""
    console.print(Panel(marked_words(found.statement.words), title="Privacy of held-out rows", title_align="left"))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("held-out rows")
    for head in ("with its 95% interval", "[dim]exact, for the holder[/]" if exact else ""):
        table.add_column(head, justify="right")
    for name, estimate in found.errors.estimates.items():
        beside = f"[dim]{found.exact[name]:.4f}[/]" if exact and name in found.exact else ""
        table.add_row(_with_unit(_NAMES[name], name, found.errors.unit), estimate_text(estimate.to_dict()), beside)
    console.print(table)
    if found.errors.r2.refused is not None:
        console.print(f"[yellow]note[/] R2: {found.errors.r2.refused}")
