"""What ``sottovoce train`` prints for people, and parts that other commands print too.

"Marked-up" text has rich's tags, such as ``[bold]``; names from files are escaped before they are
put into it (:func:`sottovoce.cli.screen.escape_markup`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ..privacy.statement import Words, ceil_text
from ..problem.task import Detail
from ..runs.training import Report
from ..util.typing import IntArray
from .screen import Console, escape_markup, make_listing

if TYPE_CHECKING:
    from rich.panel import Panel

# Colours of headlines of a privacy statement that are no promise.
_STYLES = {"No privacy guarantee": "bold red", "As printed": "bold"}
_STYLES |= dict.fromkeys(("Not covered", "Ended early"), "bold yellow")
_MOST_SITES = 10
"""Sites in the table of a training; there may be thousands in a simulation."""


def mark_up_statement(words: Words) -> str:
    """Return a privacy statement as marked-up text, with its headlines coloured."""
    lines = []
    for head, rest in words:
        line = escape_markup(rest)
        if head:
            line = f"[{_headline_style(head)}]{escape_markup(head)}[/]{line}"
        lines.append(line)
    return "\n".join(lines)


def _headline_style(head: str) -> str:
    """Return the colour of a statement's headline: green for what holds, dim for a simulation."""
    if head in _STYLES:
        return _STYLES[head]
    if head.startswith("Simulation"):
        return "dim"
    return "bold green"


def format_site_sizes(sizes: IntArray) -> str:
    """Format the numbers of rows of sites, as one number or as a range."""
    smallest, largest = sizes.min(), sizes.max()
    if smallest == largest:
        return f"{smallest:,}"
    return f"{smallest:,} to {largest:,}"


def make_privacy_panel(words: Words, title: str = "Privacy", more: str = "") -> Panel:
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
    # Many commands show no panel.
    from rich.panel import Panel

    return Panel(mark_up_statement(words) + more, title=title, title_align="left")


def render_training(report: Report, console: Console, saved: Path | None) -> None:
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
    result, wording = report.result, report.task.wording
    console.print(_training_header_text(report))
    if report.choice is not None:
        console.print(f"[bold]auto[/] {escape_markup(report.choice.says)}", highlight=False)
    book = result.statement.ledger
    spent = ""
    if book is not None:
        spent = (
            f"\nLedger: run {escape_markup(book.run)}; {ceil_text(book.spent)} spent of "
            f"{min(book.budget):g} for life."
        )
    console.print(make_privacy_panel(result.statement.words, more=spent))
    if report.test_errors.size:
        # What the names and numbers of the table leave of the screen.
        bar = max(8, min(40, console.width - 34))
        console.print(_make_quality_table(report, bar))
    if report.details:
        console.print(make_details_table(report.details))
    console.print(_make_sites_table(report))
    print_notes(report.notes, console, saved)
    console.print(
        f"[dim]{result.seconds:.1f} s of training; {len(report.dataset.y_test):,} test rows, taken "
        "as public\n"
        f"{wording.qualities} and '{escape_markup(wording.labels)}' read rows without noise: for "
        "the "
        "data's holder only[/]"
    )


def _training_header_text(report: Report) -> str:
    """Describe what was trained on which data, and how far it came."""
    config = report.config.run
    result = report.result
    facts = report.result.facts
    sizes = facts.n[:, 0].astype(int)
    # The model has a column of weights for each output of the task.
    text = (
        f"[bold]{config.method}[/] ({config.form}) on "
        f"[bold]{escape_markup(report.config.data)}[/]: "
        f"{facts.n_nodes} sites of {format_site_sizes(sizes)} {result.statement.counted}, "
        f"{escape_markup(report.config.partition or '')} partition, {escape_markup(config.graph)} "
        "graph, "
        f"{facts.d // report.task.outputs} features, {result.rounds} of {config.rounds} rounds"
    )
    if config.replicates != 1:
        text += f", {config.replicates} replicates"
    if result.stopped != "finished":
        text += f" [bold yellow](stopped: {result.stopped})[/]"
    return text


def print_notes(notes: Iterable[str], console: Console, saved: Path | None = None) -> None:
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
        console.print(f"[yellow]note[/] {escape_markup(note)}")
    if saved is not None:
        console.print(f"saved to {escape_markup(str(saved))}", highlight=False)


def _make_quality_table(report: Report, bar: int) -> Table:
    """Make a table of models' qualities, with bars.

    A full bar is a model that is always right.
    """
    task = report.task
    errors = report.test_errors
    wording = task.wording
    table = make_listing(f"<test {wording.quality}", f">{escape_markup(wording.unit)}", "<")
    # One run without repetitions has no standard deviation.
    spread = ""
    if errors.size > 1:
        spread = f" ± {wording.quality_text(errors.std(ddof=1))}"
    lines = [("this run", float(errors.mean()), spread, "green")]
    others = {"without privacy": report.nonprivate_test_error, **report.baseline_test_errors}
    for name, error in others.items():
        if error is not None:
            lines.append((name, error, "", "blue"))
    for name, error, extra, colour in lines:
        right = 1 - error / task.worst_error
        table.add_row(
            name,
            wording.quality_text(task.quality(error)) + extra,
            f"[{colour}]{'█' * round(bar * right)}[/]",
        )
    return table


def make_details_table(details: dict[str, Detail]) -> Table:
    """Make a table of exact metrics after the first, for the holder of the test rows."""
    table = make_listing("<on test rows, without noise", ">")
    for name, detail in details.items():
        table.add_row(escape_markup(name), escape_markup(detail.text))
    return table


def _make_sites_table(report: Report) -> Table:
    """Make a table of the first sites: rows, labels, what was spent, and quality on own rows."""
    task = report.task
    wording = report.task.wording
    scored = report.site_test_errors.size > 0
    heads = ["site", report.result.statement.counted, wording.labels, "epsilon spent"]
    if scored:
        heads.append(f"own test {wording.quality} {wording.unit}".rstrip())
    table = make_listing(*(f">{escape_markup(head)}" for head in heads))
    sizes = report.result.facts.n[:, 0].astype(int)
    for i, spent in enumerate(report.result.statement.per_node[:_MOST_SITES]):
        row = [
            str(i),
            f"{sizes[i]:,}",
            wording.label_text(report.site_labels[i]),
            ceil_text(spent),
        ]
        if scored:
            row.append(wording.quality_text(task.quality(report.site_test_errors[:, i].mean())))
        table.add_row(*row)
    if len(sizes) > _MOST_SITES:
        table.add_row("…", f"and {len(sizes) - _MOST_SITES} more")
    return table
