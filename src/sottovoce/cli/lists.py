"""``sottovoce methods``, ``data`` and ``graphs``: what there is to choose from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from .. import data as datasets
from .. import graphs
from ..algorithms import REGISTRY, same_as
from .screen import Console, escape


@click.command(name="methods")
@click.option("--all", "everything", is_flag=True, help="Also those that cannot meet a budget (no noise).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def methods(everything: bool, as_json: bool) -> None:
    """List the private methods: whom each trusts with rows, how often it releases what, and when to pick it."""
    rows: list[dict[str, Any]] = [
        {
            "name": cls.name, "private": cls.private, "trusts": cls.trust.kind, "releases": cls.releases,
            "noise": cls.noise_law, "relations": list(cls.relations) if cls.private else [], "good for": cls.good_for,
            "equals": list(same_as(cls.name)), "paper": cls.paper, "summary": cls.summary, "forms": list(cls.forms),
        }
        for cls in REGISTRY.values()
        if cls.private or everything
    ]  # fmt: skip
    if as_json:
        _list("Methods", rows, as_json)
        return
    shown = [
        {key: row[key] for key in ("name", "private", "trusts", "releases", "noise")}
        | {"good for": "; ".join([row["good for"], *(f"by default the same as {other}" for other in row["equals"])])}
        | {"from": f"{row['paper']} ({', '.join(row['forms'])})"}
        for row in rows
    ]
    _list("Methods", shown, as_json)
    relations = " or ".join(dict.fromkeys(name for row in rows for name in row["relations"]))
    click.echo(f"Every private method: {relations} (--relation).  `--method auto` picks one from public facts.")


@click.command(name="data")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def data(as_json: bool) -> None:
    """List the data sets that come with the package."""
    _list("Data sets", datasets.describe(), as_json)


@click.command(name="graphs")
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
