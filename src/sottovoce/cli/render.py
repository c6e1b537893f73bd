"""What ``sottovoce train`` prints for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ..privacy.statement import Words, ceil_text
from ..problem.task import Detail
from ..runs.training import Report
from .screen import Console, escape, listing

if TYPE_CHECKING:
    from rich.panel import Panel

_STYLES = {"No privacy guarantee": "bold red", "As printed": "bold"}
_STYLES |= dict.fromkeys(("Not covered", "Ended early"), "bold yellow")


def marked_words(words: Words) -> str:
    """Return a privacy statement as marked-up text, with its headlines coloured."""
    lines = []
    for head, rest in words:
        style = _STYLES.get(head, "dim" if head.startswith("Simulation") else "bold green")
        lines.append((f"[{style}]{escape(head)}[/]" if head else "") + escape(rest))
    return "\n".join(lines)


def privacy(words: Words, title: str = "Privacy", more: str = "") -> Panel:
    """Make a framed panel of a privacy statement.

    Parameters
    ----------
    words : Words
        The statement, as headlines with their texts.
    title : str
        Of the frame.
    more : str
        Marked-up text below the statement.

    Returns
    -------
    Panel
    """
    from rich.panel import Panel  # which many commands do not need

    return Panel(marked_words(words) + more, title=title, title_align="left")


def render(report: Report, console: Console, saved: Path | None) -> None:
    """Print the report of a training for people.

    Parameters
    ----------
    report : Report
        The trained model with its scores.
    console : Console
        Where it is printed.
    saved : Path or None
        Where the run is stored; None if nowhere.
    """
    config, result, facts, said = (
        report.config.run,
        report.result,
        report.result.facts,
        report.task.wording,
    )
    sizes = facts.n[:, 0].astype(int)
    size = (
        f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    )
    console.print(
        f"[bold]{config.method}[/] ({config.form}) on [bold]{escape(report.config.data)}[/]: "
        f"{facts.n_nodes} sites of {size} {result.statement.counted}, "
        f"{escape(report.config.partition or '')} partition, {escape(config.graph)} graph, "
        f"{facts.d // report.task.outputs} features, {result.rounds} of {config.rounds} rounds"
        + ("" if config.replicates == 1 else f", {config.replicates} replicates")
        + ("" if result.stopped == "finished" else f" [bold yellow](stopped: {result.stopped})[/]")
    )
    if report.choice is not None:
        console.print(f"[bold]auto[/] {escape(report.choice.says)}", highlight=False)
    book, spent = result.statement.ledger, ""
    if book is not None:
        spent = (
            f"\nLedger: run {escape(book.run)}; {ceil_text(book.spent)} spent of "
            f"{min(book.budget):g} for life."
        )
    console.print(privacy(result.statement.words, more=spent))
    if report.test_errors.size:
        console.print(_quality(report, max(8, min(40, console.width - 34))))
    if report.details:
        console.print(details_table(report.details))
    console.print(_sites(report))
    show_notes(report.notes, console, saved)
    console.print(
        f"[dim]{result.seconds:.1f} s of training; {len(report.dataset.y_test):,} test rows, taken "
        "as public\n"
        f"{said.qualities} and '{escape(said.labels)}' read rows without noise: for the data's "
        "holder only[/]"
    )


def show_notes(notes: Iterable[str], console: Console, saved: Path | None = None) -> None:
    """Print what a reader should know, and where the run is stored.

    Parameters
    ----------
    notes : iterable of str
        One line each.
    console : Console
        Where they are printed.
    saved : Path, optional
        Where the run is stored; None if nowhere.
    """
    for note in notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)


def _quality(report: Report, bar: int) -> Table:
    """Make a table of models' qualities, with bars.

    A full bar is a model that is always right.
    """
    task, errors = report.task, report.test_errors
    said = task.wording
    table = listing(f"<test {said.quality}", f">{escape(said.unit)}", "<")
    spread = f" ± {said.quality_text(errors.std(ddof=1))}" if errors.size > 1 else ""
    lines = [("this run", float(errors.mean()), spread, "green")]
    for name, error in (
        ("without privacy", report.nonprivate_test_error),
        *report.baseline_test_errors.items(),
    ):
        if error is not None:
            lines.append((name, error, "", "blue"))
    for name, error, extra, colour in lines:
        right = 1 - error / task.worst
        table.add_row(
            name,
            said.quality_text(task.quality(error)) + extra,
            f"[{colour}]{'█' * round(bar * right)}[/]",
        )
    return table


def details_table(details: dict[str, Detail]) -> Table:
    """Exact metrics after the first, for the holder of the test rows."""
    table = listing("<on test rows, without noise", ">")
    for name, detail in details.items():
        table.add_row(escape(name), escape(detail.text))
    return table


def _sites(report: Report) -> Table:
    task, said, scored = report.task, report.task.wording, report.site_test_errors.size > 0
    own_quality = [f"own test {said.quality} {said.unit}".rstrip()] if scored else []
    heads = ("site", report.result.statement.counted, said.labels, "epsilon spent", *own_quality)
    table = listing(*(f">{escape(head)}" for head in heads))
    sizes, most = report.result.facts.n[:, 0].astype(int), 10
    for i, spent in enumerate(report.result.statement.per_node[:most]):
        own = (
            [said.quality_text(task.quality(report.site_test_errors[:, i].mean()))]
            if scored
            else []
        )
        table.add_row(
            str(i), f"{sizes[i]:,}", said.label_text(report.site_labels[i]), ceil_text(spent), *own
        )
    if len(sizes) > most:
        table.add_row("…", f"and {len(sizes) - most} more", "", "", *([""] if scored else []))
    return table
