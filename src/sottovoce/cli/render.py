"""What ``sottovoce train`` prints for people."""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from ..privacy.statement import Words, ceil_text
from ..runs.training import Report
from .screen import Console, escape

_STYLES = {
    "No privacy guarantee": "bold red",
    "Not covered": "bold yellow",
    "Ended early": "bold yellow",
    "As printed": "bold",
}


def marked_words(words: Words) -> str:
    """A privacy statement in words, with its headlines marked."""
    lines = []
    for head, rest in words:
        style = _STYLES.get(head, "dim" if head.startswith("Simulation") else "bold green")
        lines.append((f"[{style}]{escape(head)}[/]" if head else "") + escape(rest))
    return "\n".join(lines)


def render(report: Report, console: Console, saved: Path | None) -> None:
    """Print a report."""
    config, result, facts = report.config.run, report.result, report.result.facts
    sizes = facts.n[:, 0].astype(int)
    size = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    console.print(
        f"[bold]{config.method}[/] ({config.form}) on [bold]{escape(report.config.data)}[/]: "
        f"{facts.n_nodes} sites of {size} rows, {escape(report.config.partition)} partition, "
        f"{escape(config.graph)} graph, {facts.d} features, "
        f"{result.rounds} of {config.rounds} rounds"
        + ("" if config.replicates == 1 else f", {config.replicates} replicates")
        + ("" if result.stopped == "finished" else f" [bold yellow](stopped: {result.stopped})[/]")
    )
    if report.choice is not None:
        console.print(f"[bold]auto[/] {escape(report.choice.says)}", highlight=False)
    words, book = marked_words(result.statement.words), result.statement.ledger
    if book is not None:
        words += f"\nLedger: run {escape(book.run)}; {ceil_text(book.spent)} spent of {min(book.budget):g} for life."
    console.print(Panel(words, title="Privacy", title_align="left"))
    if report.test_errors.size:
        console.print(_accuracy(report, max(8, min(40, console.width - 34))))
    console.print(_sites(report))
    for note in report.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)
    console.print(
        f"[dim]{result.seconds:.1f} s of training; {len(report.dataset.y_test):,} test rows, taken as public\n"
        "accuracies and 'positive %' read rows without noise: for the data's holder only[/]"
    )


def _accuracy(report: Report, bar: int) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, justify in (("test accuracy", "left"), ("%", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    errors = report.test_errors
    spread = f" ± {100 * errors.std(ddof=1):.2f}" if errors.size > 1 else ""
    lines = [("this run", float(errors.mean()), spread, "green")]
    for name, error in (("without privacy", report.nonprivate_test_error), ("majority", report.majority_test_error)):
        if error is not None:
            lines.append((name, error, "", "blue"))
    for name, error, extra, colour in lines:
        accuracy = 1 - error
        table.add_row(name, f"{100 * accuracy:.2f}{extra}", f"[{colour}]{'█' * round(bar * accuracy)}[/]")
    return table


def _sites(report: Report) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    headers = ["site", "rows", "positive %", "epsilon spent"]
    scored = report.site_test_errors.size > 0
    for header in headers + (["own test accuracy %"] if scored else []):
        table.add_column(header, justify="right")
    sizes, most = report.result.facts.n[:, 0].astype(int), 10
    for i, spent in enumerate(report.result.statement.per_node[:most]):
        own = [f"{100 * (1 - report.site_test_errors[:, i].mean()):.2f}"] if scored else []
        table.add_row(str(i), f"{sizes[i]:,}", f"{100 * report.positives[i]:.1f}", ceil_text(spent), *own)
    if len(sizes) > most:
        table.add_row("…", f"and {len(sizes) - most} more", "", "", *([""] if scored else []))
    return table
