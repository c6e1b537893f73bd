"""``sottovoce claims``: a table of the papers' privacy claims and what is proved of each; with
``--rows`` of their sample sizes.
"""

from __future__ import annotations

import re

import click

from sottovoce.cli.options import json_flag_option
from sottovoce.cli.screen import Console, Listing, escape_markup, make_listing, print_json
from sottovoce.privacy.statement import ceil_text
from sottovoce.util.typing import Any

from .. import claims as known
from .. import plausible, sample_size

_COLOURS = {"false": "bold red", "unproved": "yellow"}
PAPERS = ("000", "001", "002", "003", "004")


@click.command(name="claims")
@click.argument("paper", required=False, type=click.Choice(PAPERS))
@click.option(
    "--verdict",
    type=click.Choice(list(known.MEANINGS)),
    help="Show only claims of this verdict, ambiguous ones among them.",
)
@click.option(
    "--rows",
    is_flag=True,
    help="Show the theorems on accuracy instead: how many rows a node needs by each.",
)
@json_flag_option()
def claims(paper: str | None, verdict: str | None, rows: bool, as_json: bool) -> None:
    """Compare every printed privacy claim of the papers, or of one PAPER, with what can be proved,
    at one setting.

    Computed afresh on every call; nothing is looked up.

    \b
      sottovoce claims                  what is printed, attained and proved
      sottovoce claims 004              of one paper
      sottovoce claims --verdict false  what two data sets refute
      sottovoce claims --json           all fields: audits, proofs, what ships instead
    """
    if rows and verdict is not None:
        raise click.BadParameter("cannot be combined with --rows", param_hint="--verdict")
    if rows:
        found = [row for row in sample_size.table() if _speaks_of(paper, row["theorem"])]
        if as_json:
            print_json(found, indent=2)
        else:
            _print_rows(found)
        return
    chosen = [
        row
        for row in known.table()
        if _speaks_of(paper, row.paper) and verdict in (None, row.plain_verdict)
    ]
    if as_json:
        print_json([row.to_dict() for row in chosen], indent=2)
    else:
        _print_claims(chosen)


def _speaks_of(paper: str | None, source: str) -> bool:
    """Return whether a source such as "000 and 001, Algorithm 2" is in a paper; None is any."""
    return paper is None or re.search(rf"\b{paper}\b", source) is not None


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


def _print_claims(rows: list[known.Claim]) -> None:
    """Print a table of privacy claims."""
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
    table = make_listing("<printed claim", ">claimed", ">attained", ">proved", "<verdict")
    table.title, table.caption, table.caption_justify = "Claims and proofs", setting, "left"
    for row in rows:
        style, says = _COLOURS.get(row.verdict, "green"), row.says
        if row.reading:
            style, says = "yellow", f"{row.says}; read as: {row.reading}"
        # a lower bound is not rounded up, as the others are
        attained = ""
        if row.attained is not None:
            attained = f"{row.attained:.3f}"
        table.add_row(
            f"[bold]{escape_markup(row.method)}[/], {escape_markup(row.paper)}: "
            f"{escape_markup(says)}",
            ceil_text(row.claimed),
            attained,
            ceil_text(row.known),
            f"[{style}]{row.verdict}[/]",
        )
    console.print(table)
    console.print(
        "[dim]Epsilons are pure (delta 0), or at the claim's delta where it is one of (epsilon, "
        "delta). attained: the loss of a concrete pair of data sets; proofs: "
        "docs/privacy/verdicts.md; papers by number: docs/explanation/papers.md; what ships "
        "instead, both epsilons and the audit of each claim: --json[/]"
    )
