"""``sottovoce methods``, ``data`` and ``graphs``: what there is to choose from.

"Trusts" of a method are the parties with whom it runs: nobody but the site, secure aggregation, or
a curator (:data:`sottovoce.algorithms.method.TRUSTS`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..algorithms import NAMES, REGISTRY, equal_methods, trusts_of
from ..errors import InvalidInput
from ..network.graphs import names
from ..util import plugins
from .screen import Console, escape_markup, make_listing, print_json


@click.command(name="methods")
@click.option(
    "--all", "everything", is_flag=True, help="Also those that cannot meet a budget (no noise)."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def methods(everything: bool, as_json: bool) -> None:
    """List the private methods: whom each can trust, what it releases, and when to pick it.

    \b
      sottovoce methods                 whom each can trust, and when
      sottovoce methods --json          every field
    """
    rows = [_method_facts(name) for name in NAMES if everything or REGISTRY[name].private]
    if as_json:
        print_json(rows, indent=2)
        return
    _print_rows_or_json("Methods", [_method_table_row(row) for row in rows])
    relations = " or ".join(dict.fromkeys(name for row in rows for name in row["relations"]))
    Console().print(
        f"Every private method: {relations} (--set relation).  `--method auto` picks one from "
        "public facts.  --trust "
        "sum or curator: a method that lists it releases sums over all sites, or answers of all "
        "rows."
    )
    for entry in _unloaded_package_methods():
        line = plugins.first_docstring_line(entry)
        Console().print(
            f"Of the package {escape_markup(entry.package)}: --method {escape_markup(entry.name)}. "
            " "
            f"{escape_markup(line)}"
        )


def _method_facts(name: str) -> dict[str, Any]:
    """Return what a method is, in the words of its class, as plain data."""
    cls = REGISTRY[name]
    # A method without noise promises nothing about neighbouring data.
    relations: list[str] = []
    if cls.private:
        relations = list(cls.relations)
    return {
        "name": cls.name,
        "private": cls.private,
        "trusts": _describe_trusts(cls.name),
        "releases": cls.releases,
        "noise": cls.noise_law,
        "relations": relations,
        "good for": cls.good_for,
        "equals": list(equal_methods(cls.name)),
        "paper": cls.paper,
        "summary": cls.summary,
        "forms": list(cls.forms),
    }


def _method_table_row(facts: dict[str, Any]) -> dict[str, object]:
    """Return a line of the table of methods, with its facts in sentences."""
    releases = f"{facts['releases']}, {facts['noise']}."
    if not facts["private"]:
        releases = f"No noise: {releases}"
    sentences = [
        releases,
        f"Good for {facts['good for']}.",
        *(f"By default the same as {other}." for other in facts["equals"]),
        f"After {facts['paper']} ({', '.join(facts['forms'])}).",
    ]
    return {
        "name": facts["name"],
        "trusts": list(facts["trusts"]),
        "what it releases; what it is good for; after which paper": "  ".join(sentences),
    }


def _unloaded_package_methods() -> list[plugins.EntryPoint]:
    """Return methods of other installed packages that are not loaded, without loading any."""
    brought = plugins.installed_entry_points(plugins.METHODS)
    return [entries[0] for name, entries in brought.items() if name not in REGISTRY]


def _describe_trusts(name: str) -> dict[str, dict[str, str]]:
    """Return what a method is under each trust: its name in records, releases, noise and use."""
    classes = {trust: REGISTRY[own_name] for trust, own_name in trusts_of(name).items()}
    return {
        trust: {
            "name": cls.name,
            "releases": cls.releases,
            "noise": cls.noise_law,
            "good for": cls.good_for,
        }
        for trust, cls in classes.items()
    }


@click.command(name="data")
@click.argument("table", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--schema",
    type=click.Path(),
    help="TOML file: say how long its rows will be, and what to change.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def data(table: Path | None, schema: str | None, as_json: bool) -> None:
    """List the data sets that come with the package, or check a schema of yours (--schema).

    With a TABLE (CSV or Parquet) and its schema: what in the table does not fit, and what training
    would refuse, before any budget is spent.  These counts are exact, so they are for the holder of
    the rows only.  Exit code 2 if training would refuse the table.  `sottovoce schema check` does
    the same, and finds every mistake in the schema at once.

    \b
      sottovoce data                           data sets in the package
      sottovoce data --schema s.toml           will rows fill the ball?
      sottovoce data rows.csv --schema s.toml  does this table fit?
    """
    # The lists of methods and graphs need no data.
    from .. import data as datasets
    from .schema import print_norm_forecast, print_table_review
    from .tables import read_table_with_notes

    if schema is None:
        if table is not None:
            raise InvalidInput("schema", None, "is needed to check a table", "give --schema FILE")
        _print_rows_or_json("Data sets", datasets.describe(), as_json)
        return
    declared = datasets.Schema.from_toml(schema)
    if table is not None:
        # Loads all that a training needs.
        from ..runs.table_check import review_for_training

        compared = review_for_training(declared, read_table_with_notes(table))
        if as_json:
            print_json(compared.to_dict(), indent=2)
        else:
            print_table_review(compared)
        if compared.refused:
            sys.exit(2)
        return
    found = datasets.fill(declared)
    if as_json:
        print_json(found.to_dict(), indent=2)
    else:
        print_norm_forecast(found)


@click.command(name="graphs")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def graphs(as_json: bool) -> None:
    """List the networks that --graph understands.

    \b
      sottovoce graphs
      sottovoce train --graph watts-strogatz:k=4,p=0.1
    """
    rows = [{"spec": spec, "about": about} for spec, about in names().items()]
    _print_rows_or_json("Networks", rows, as_json)


def _print_rows_or_json(
    title: str, rows: Sequence[Mapping[str, object]], as_json: bool = False
) -> None:
    """Print rows that have the same keys, as a table with a column for each key, or as JSON."""
    if as_json:
        print_json(rows, indent=2)
        return
    table = make_listing()
    table.title = title
    # The names in the first column are never broken.
    for i, key in enumerate(rows[0]):
        table.add_column(key, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(escape_markup(_format_table_entry(value)) for value in row.values()))
    Console().print(table)


def _format_table_entry(value: object) -> str:
    """Format an entry of a table."""
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
