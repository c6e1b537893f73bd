"""``sottovoce claims``: a table of the papers' privacy claims, what is proved of each, and the
mechanism that this package runs instead; with ``--rows`` of their sample sizes.
"""

from __future__ import annotations

import click

from sottovoce.cli.options import json_flag_option
from sottovoce.cli.screen import Console, Listing, escape_markup, print_json
from sottovoce.privacy.statement import ceil_text
from sottovoce.util.typing import Any

from .. import claims as known
from .. import plausible, sample_size

_COLOURS = {"false": "bold red", "unproved": "yellow"}


@click.command(name="claims")
@click.option(
    "--rows",
    is_flag=True,
    help="Show the theorems on accuracy instead: how many rows a node needs by each.",
)
@json_flag_option()
def claims(rows: bool, as_json: bool) -> None:
    """Compare every printed privacy claim of the papers with what can be proved, at one setting.

    Computed afresh on every call; nothing is looked up.

    \b
      sottovoce claims                  what is printed, attained and proved
      sottovoce claims --json           all fields
    """
    if as_json and not rows:
        print_json([row.to_dict() for row in known.table()], indent=2)
    elif as_json:
        print_json(sample_size.table(), indent=2)
    elif rows:
        _print_rows(sample_size.table())
    else:
        _print_claims()


def _print_rows(found: list[dict[str, Any]]) -> None:
    """Print the table of sample sizes."""
    setting = ", ".join(f"{name}={value:g}" for name, value in sample_size.SETTING.items())
    caption = (
        f"{setting}. "
        "Constants that the papers leave free are set to 1: compare the two bounds of one "
        "theorem, but do not read them as required sample sizes. inf: the theorem promises this "
        "accuracy for no number of rows. "
        "Formulas: docs/explanation/design_tools.md"
    )
    table = Listing(title="Rows for an accuracy", caption=caption, caption_justify="left")
    table.add_column("theorem", justify="left")
    table.add_column("printed", justify="right")
    table.add_column("corrected", justify="right")
    table.add_column("constants", justify="left")
    for row in found:
        constants = row["constants"].replace(sample_size.FREE, "free")
        table.add_row(
            row["theorem"],
            f"{row['printed']:.3g}",
            f"{row['corrected']:.3g}",
            escape_markup(constants),
        )
    Console().print(table)


def _print_claims() -> None:
    """Print the table of privacy claims."""
    console = Console()
    setting = (
        f"{known.SITES} sites on a ring, {known.N_ROWS:,} rows a site, {known.FEATURES} features, "
        f"{known.ROUNDS} rounds, C={known.C:g}, rho={known.RHO:g}, eta={known.ETA:g}, Huber loss "
        "of half-width 1/2, "
        "replace-one, printed forms with exact minimisation; "
        f"004 at its own: {plausible.ROWS:,} rows, {plausible.FEATURES} features, "
        f"eta={plausible.ETA:g}, "
        f"c1={plausible.BEND:g}, its line 3"
    )
    table = Listing(title="Claims and proofs", caption=setting, caption_justify="left")
    table.add_column("printed claim, and [dim]what ships instead[/]", overflow="fold")
    for header in ("claimed", "attained", "proved", "at delta"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in known.table():
        style, says = _COLOURS.get(row.verdict, "green"), row.says
        if row.reading:
            style, says = "yellow", f"{row.says}; read as: {row.reading}"
        # a lower bound is not rounded up, as the others are
        attained = ""
        if row.attained is not None:
            attained = f"{row.attained:.3f}"
        instead = f"{row.corrected}: {ceil_text(row.corrected_epsilon)} at delta {row.delta:g}"
        table.add_row(
            f"[bold]{escape_markup(row.method)}[/], {escape_markup(row.paper)}: "
            f"{escape_markup(says)}\n[dim]{escape_markup(instead)}[/]",
            ceil_text(row.claimed),
            attained,
            ceil_text(row.proved),
            ceil_text(row.proved_at_delta),
            f"[{style}]{row.verdict}[/]",
        )
    console.print(table)
    console.print(
        "[dim]attained: the loss of a concrete pair of data sets; proofs: "
        "docs/privacy/verdicts.md; papers by number: "
        "docs/explanation/papers.md[/]"
    )
