"""``sottovoce ledger``: the data set's lifetime budget on disk.

A ledger is one file of records, each chained to the one before by a hash.  Its "head" is the hash
of the last record: a file that was restored from a backup lacks a head that was noted later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..ledger.durable import DurableLedger
from ..ledger.life import describe_example_run
from ..privacy.statement import ceil_text
from ..util import files
from ..util.compatibility import FORMER
from . import results
from .options import FILE, NUMBER, check_parent_folder, decorate_with_options, json_flag_option
from .screen import Console, escape_markup, make_listing, print_json


@click.group()
def ledger() -> None:
    """Keep a data set's lifetime budget: one file beside the rows, which outlives runs and crashes.

    \b
      sottovoce ledger init adult.ledger --epsilon 3 --nodes 5
      sottovoce train --ledger adult.ledger --system-noise --epsilon 1
      sottovoce ledger show adult.ledger
    """


@ledger.command()
@click.argument("file", type=FILE)
@click.option(
    "--epsilon", type=NUMBER, required=True, help="Lifetime budget of every node, or one a node."
)
@click.option(
    "--delta",
    type=float,
    help="Delta of an (epsilon, delta) guarantee.  [default: none, pure epsilon]",
)
@click.option(
    "--accountant", help="pure, zcdp or rdp, for life.  [default: pure without a delta, else rdp]"
)
@click.option(
    "--nodes", type=int, default=1, show_default=True, help="Nodes whose rows the data set holds."
)
def init(
    file: Path,
    epsilon: float | tuple[float, ...],
    delta: float | None,
    accountant: str | None,
    nodes: int,
) -> None:
    """Make the ledger FILE.  It is tied to the rows of its first run; its budget never changes."""
    check_parent_folder("file", file)
    kind = accountant
    # Every other accountant promises an epsilon at a delta.
    if not kind and delta is None:
        kind = "pure"
    elif not kind:
        kind = "rdp"
    delta = delta or 0.0
    DurableLedger.create(file, epsilon=epsilon, delta=delta, accountant=kind, n_nodes=nodes).close()
    click.echo(f"made {file}; keep it where the rows are, and never restore it from a backup")
    share = describe_example_run(kind, float(np.min(epsilon)), delta)
    if share is not None:
        click.echo(share)


@ledger.command()
@click.argument("file", type=FILE)
@decorate_with_options([json_flag_option("Print one JSON object.")])
def show(file: Path, as_json: bool) -> None:
    """Budget, spending and runs of FILE."""
    with DurableLedger.open(file) as book:
        shown = book.show()
    for run in shown["runs"]:
        run["results"] = [str(path) for path in results.find_stored_results(file, run["run"])]
    if as_json:
        print_json(shown)
        return
    _print_ledger_summary(file, shown, Console())


def _print_ledger_summary(file: Path, shown: dict[str, Any], console: Console) -> None:
    """Print a ledger's summary for people; its head is the last line."""
    # The first run ties a ledger to its rows by their digest.
    tied = "not tied to any rows yet"
    if shown["bound"]:
        tied = "tied to its rows"
    if shown["demonstration"]:
        tied += "; [bold red]of a demonstration: it holds no release[/]"
    console.print(
        f"[bold]{escape_markup(str(file))}[/]: {shown['accountant']} accountant, delta = "
        f"{shown['delta']:g}, {shown['releases']} releases, {tied}"
    )
    nodes = make_listing(">node", ">budget", ">spent", ">spent or held")
    epsilons = zip(shown["epsilon"], shown["spent"], shown["committed"], strict=True)
    for i, values in enumerate(epsilons):
        nodes.add_row(str(i), *map(_format_ledger_epsilon, values))
    console.print(nodes)
    for caution in shown["cautions"]:
        console.print(f"[bold yellow]note[/]: {escape_markup(caution)}", highlight=False)
    for run in shown["runs"]:
        _print_run_in_ledger(run, console)
    for one in shown["consents"]:
        line = f"{one['by']} agreed to run {one['run']}, plan {one['plan'][:16]}..., at {one['at']}"
        console.print(escape_markup(line), highlight=False, soft_wrap=True)
    console.print(
        "[dim]keep the next line elsewhere: `ledger verify --head` detects a restored backup by "
        "it[/]"
    )
    click.echo(f"head {shown['head']}")


def _format_ledger_epsilon(value: float | str) -> str:
    """Format an epsilon of a ledger's summary, in which infinity is a text."""
    if isinstance(value, float):
        return ceil_text(value, 6)
    return str(value)


def _print_run_in_ledger(run: dict[str, Any], console: Console) -> None:
    """Print what a run has charged and holds, and the files of its result."""
    console.print(
        f"run {escape_markup(run['run'])}: {run['state']}, {run['charged']} of {run['planned']} "
        "releases, "
        f"{run['held']} held, since {run['since']}"
    )
    if run["state"] == "open" and not run["goes_on"]:
        console.print(
            f"  [yellow]it {FORMER}: what it holds stays charged until `sottovoce ledger close` "
            "gives it back[/]",
            highlight=False,
        )
    for path in run["results"]:
        console.print(f"  result in {escape_markup(path)}", highlight=False)


@ledger.command()
@click.argument("file", type=FILE)
@click.option(
    "--head", help="A head noted earlier (the last line of `show`), which the file must go through."
)
def verify(file: Path, head: str | None) -> None:
    """Check every record and every stored release of FILE."""
    with DurableLedger.open(file, expected_head=head) as book:
        checked = book.file.verify(head)
        consents = ""
        if book.consents:
            consents = f"{len(book.consents)} consents to plans; "
        click.echo(f"sound; {consents}head {checked}")


@ledger.command()
@click.argument("file", type=FILE)
@click.argument("out", type=FILE)
def export(file: Path, out: Path) -> None:
    """Write all records of FILE to OUT as JSON lines: no keys, no releases, no data."""
    files.check_writable_path("out", out, reads=(file,))
    with DurableLedger.open(file) as book:
        book.file.export_records(out)


@ledger.command()
@click.argument("file", type=FILE)
@click.argument("run")
def close(file: Path, run: str) -> None:
    """Give up the open RUN of FILE: its releases stay spent, what has no row goes back to the
    budget.

    Keys of runs of sums that cannot go on are erased, this run's first.
    """
    # Loads all that a site needs.
    from ..deploy.sums.masks import erase_old_masking_keys, give_up_run

    with DurableLedger.open(file) as book:
        _, erased = give_up_run(book, run)
        key = ""
        if erased:
            key = "; its key is erased"
        click.echo(f"closed {run}; its name cannot be used again{key}")
        for other, state in erase_old_masking_keys(book).items():
            click.echo(f"erased the key of run {other}, which is {state} in the ledger")
