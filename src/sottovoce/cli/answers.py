"""What ``train --inference``, ``train --evaluation`` and ``evaluate`` print for people."""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from ..answers.evaluation import Estimate, Quality
from ..answers.inference import Coefficient
from ..answers.training import Evaluation, Inferred
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
    console.print(_coefficients(done.coefficients.lines))
    if done.coefficients.needs is not None:
        more = [f"epsilon {done.coefficients.needs['epsilon']:g}"] if "epsilon" in done.coefficients.needs else []
        more.append(f"{done.coefficients.needs['rows']:,.0f} rows")
        console.print(
            f"[yellow]note[/] not all is printed: noise is too much of it; {' or '.join(more)} would do, about"
        )
    for note in done.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)


def _coefficients(lines: tuple[Coefficient, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for k, head in enumerate(_HEADS):
        table.add_column(head, justify="left" if k < 2 else "right")
    told: set[str] = set()
    for line in lines:
        name, reference = line.term.unit or line.term.name, line.term.reference
        level = "" if line.term.level is None else line.term.level
        if reference is not None and line.term.name not in told:
            level += f"  (against {reference})"
        told.add(line.term.name)
        table.add_row(escape(name), escape(level), *_numbers(line))
    return table


def _numbers(line: Coefficient) -> list[str]:
    plain = line.to_dict()
    if line.refused is not None:
        return ["[dim]refused[/]", *["[dim]-[/]"] * 5]
    mark = "?" if line.unsure else ""
    p = plain["p"]
    return [
        f"{plain['estimate']:.3f}{mark}", f"{plain['odds_ratio']:.3g}", f"{plain['standard_error']:.3f}",
        f"{100 * plain['noise_share']:.0f}%", f"{plain['low']:.3f} to {plain['high']:.3f}",
        "<.001" if p < 0.001 else f"{p:.3f}",
    ]  # fmt: skip


def render_evaluation(found: Evaluation, console: Console, *, exact: bool = True) -> None:
    """Print what was released of held-out rows: AUC and calibration first."""
    console.print(Panel(marked_words(found.statement.words), title="Privacy of held-out rows", title_align="left"))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    names = [name or "all held-out rows" for name in found.quality]
    table.add_column("held-out rows")
    for name in names:
        table.add_column(escape(name), justify="right")
    beside = found.exact if exact else {}
    table.add_column("[dim]exact, for the holder[/]" if exact else "", justify="right")
    every = list(found.quality.values())

    def row(head: str, of: list[Estimate], name: str) -> None:
        table.add_row(head, *map(estimate_text, of), f"[dim]{beside[name]:.4f}[/]" if name in beside else "")

    row("AUC", [q.auc for q in every], "auc")
    row("Brier score", [q.brier for q in every], "brier")
    table.add_row("calibration slope", *(f"{q.slope:.2f}" for q in every), "")
    row("share of positives", [q.positives for q in every], "positives")
    for name in ("accuracy", "sensitivity", "specificity", "precision"):
        row(f"{name} at {every[0].threshold:g}", [q.rates[name] for q in every], name)
    console.print(table)
    console.print(_calibration(every[0]))
    for quality, name in zip(every, names, strict=True):
        if quality.auc.refused is not None:
            console.print(f"[yellow]note[/] AUC, {escape(name)}: {quality.auc.refused}")


def estimate_text(found: Estimate) -> str:
    """A number with its interval, or that it was refused."""
    if found.value is None:
        return "[dim]refused[/]"
    return f"{found.value:.4f} [dim]({found.low:.3f} to {found.high:.3f})[/]"


def _calibration(quality: Quality) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("predicted", "observed", "95% interval", "rows, about"):
        table.add_column(name, justify="right")
    for cell in quality.calibration:
        table.add_row(
            f"{100 * cell['predicted']:.1f}%", f"{100 * cell['observed']:.1f}%",
            f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}", f"{cell['rows']:,.0f}",
        )  # fmt: skip
    return table
