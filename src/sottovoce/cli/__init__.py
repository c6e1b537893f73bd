"""The command line: ``sottovoce train``, ``plan``, ``predict`` and the others of ``sottovoce --help``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from rich.table import Table

from .. import data as datasets
from .. import graphs
from ..algorithms import REGISTRY
from ..errors import SottovoceError, exit_code, printable
from .audit import audit
from .claims import claims
from .compare import compare
from .demo import demo
from .hub import hub
from .ledger import ledger
from .options import EXITS
from .plan import plan
from .predict import predict
from .screen import Console, escape
from .site import site
from .study import study
from .train import train

_EXAMPLES = """
Train one linear classifier across sites that may not share their rows, with a proved privacy guarantee.

\b
  sottovoce train                                  Adult, five sites
  sottovoce train --method dvp --epsilon 2         another method and total
  sottovoce train --data rows.csv --schema s.toml  your own table
  sottovoce plan --rounds 30 --epsilon 1           what noise that means
  sottovoce predict run.npz new.csv                use a saved run
  sottovoce ledger init my.ledger --epsilon 3      a budget for life
  sottovoce claims                                 what papers claim
  sottovoce audit mr_admm                          attack a method
  sottovoce compare                                003's comparison
  sottovoce study --list                           papers' experiments
  sottovoce demo                                   a hub and its sites
  sottovoce site --help                            take part with others
"""


@click.group(help=_EXAMPLES, epilog=EXITS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sottovoce")
def cli() -> None:
    """Entry of all commands."""


cli.add_command(train)
cli.add_command(plan)
cli.add_command(claims)
cli.add_command(audit)
cli.add_command(compare)
cli.add_command(predict)
cli.add_command(ledger)
cli.add_command(study)
cli.add_command(site)
cli.add_command(hub)
cli.add_command(demo)


@cli.command(name="methods")
@click.option("--all", "everything", is_flag=True, help="Also those that cannot meet a budget (no noise).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def methods(everything: bool, as_json: bool) -> None:
    """List the private methods: whom each trusts with rows, how often it releases what, and when to pick it."""
    rows: list[dict[str, Any]] = [
        {
            "name": cls.name, "private": cls.private, "trusts": cls.trust.kind, "releases": cls.releases,
            "noise": cls.noise_law, "relations": list(cls.relations) if cls.private else [], "good for": cls.good_for,
            "paper": cls.paper, "summary": cls.summary, "forms": list(cls.forms),
        }
        for cls in REGISTRY.values()
        if cls.private or everything
    ]  # fmt: skip
    if as_json:
        _list("Methods", rows, as_json)
        return
    shown = [
        {key: row[key] for key in ("name", "private", "trusts", "releases", "noise", "good for")}
        | {"from": f"{row['paper']} ({', '.join(row['forms'])})"}
        for row in rows
    ]
    _list("Methods", shown, as_json)
    relations = " or ".join(dict.fromkeys(name for row in rows for name in row["relations"]))
    click.echo(f"Every private method: {relations} (--relation).  `--method auto` picks one from public facts.")


@cli.command(name="data")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def data(as_json: bool) -> None:
    """List the data sets that come with the package."""
    _list("Data sets", datasets.describe(), as_json)


@cli.command(name="graphs")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def list_graphs(as_json: bool) -> None:
    """List the networks that --graph understands."""
    _list("Networks", [{"spec": spec, "about": about} for spec, about in graphs.names().items()], as_json)


def _list(title: str, rows: Sequence[dict[str, object]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 2, 0, 0))
    for i, key in enumerate(rows[0]):
        table.add_column(key, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(escape(", ".join(v) if isinstance(v, list) else _word(v)) for v in row.values()))
    Console().print(table)


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line on standard error.

    Exit codes: :data:`sottovoce.errors.EXITS`.
    """
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="sottovoce", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SottovoceError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(exit_code(error))
    except OSError as error:  # a full disk behind standard output, say
        place = "" if error.filename is None else f" for {error.filename!r}"
        _say_last(f"error: {error.strerror or type(error).__name__}{place}; repair that, and try again")
    except MemoryError:
        _say_last("error: this machine's memory does not hold that; use less data, or fewer features or replicates")


def _say_last(line: str) -> None:
    """End with a line that nobody foresaw; standard output may be what failed, and is not tried again."""
    with suppress(OSError):  # it is no file here
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    click.echo(printable(line), err=True)
    sys.exit(1)
