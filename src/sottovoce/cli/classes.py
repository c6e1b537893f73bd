"""What ``train --evaluation`` and ``evaluate`` print for people about several classes."""

from __future__ import annotations

from typing import Any

from rich.panel import Panel
from rich.table import Table

from ..answers.classes import ClassEvaluation
from ..answers.numeric_metrics import NumberEvaluation
from ..errors import printable
from .answers import estimate_text, render_evaluation
from .numbers import render_errors
from .render import marked_words
from .screen import Console, escape


def render_any(found: Any, console: Console, *, exact: bool = True) -> None:
    """Print what was released of held-out rows, whatever their label is."""
    kinds = {ClassEvaluation: render_classes, NumberEvaluation: render_errors}
    kinds.get(type(found), render_evaluation)(found, console, exact=exact)  # type: ignore[operator]


def render_classes(found: ClassEvaluation, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of several classes: accuracy, and by class how many are found and how many answers right."""
    console.print(Panel(marked_words(found.statement.words), title="Privacy of held-out rows", title_align="left"))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("held-out rows")
    heads = ["share", "found (recall)", "answers right (precision)", "[dim]recall, exact, for\nthe holder[/]"]
    for head in heads if exact else heads[:-1]:
        table.add_column(head, justify="right")
    for name in found.names:
        row = [estimate_text(of[name].to_dict(), True) for of in (found.share, found.found, found.right)]
        beside = [f"[dim]{found.exact[f'recall on {name}']:.4f}[/]"] if exact else []
        table.add_row(escape(printable(name)), *row, *beside)
    beside = [f"[dim]{found.exact['accuracy']:.4f}[/]"] if exact else []
    table.add_row("[bold]all: accuracy[/]", "", estimate_text(found.accuracy.to_dict(), True), "", *beside)
    console.print(table)
    counts = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    counts.add_column("rows, about, of")
    for name in found.names:
        counts.add_column(f"answered\n{escape(printable(name))}", justify="right")
    for name, line in zip(found.names, found.counts, strict=True):
        counts.add_row(escape(printable(name)), *(f"{count:,.0f}" for count in line))
    console.print(counts)
