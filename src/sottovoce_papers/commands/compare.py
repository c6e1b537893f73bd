"""``sottovoce compare``: the local, global, average and feature methods of 003 on one split."""

from __future__ import annotations

from typing import Any

import click

from sottovoce.cli.options import decorate_with_options, json_flag_option, make_option
from sottovoce.cli.screen import Console, escape_markup, make_listing, print_json
from sottovoce.privacy.statement import ceil_text
from sottovoce.problem.losses import loss_texts
from sottovoce.problem.task import TwoClasses

from ..aggregation import SETTINGS, CompareConfig
from ..aggregation import compare as compare_methods

_TASK = TwoClasses()  # the only one that 003's methods know
_DEFAULT = CompareConfig()
_OPTIONS = [
    make_option(
        "--data", "A name of `sottovoce data`, or a CSV or Parquet file.", default=_DEFAULT.data
    ),
    make_option(
        "--schema", "TOML file declaring the public facts of your table.", type=click.Path()
    ),
    make_option("--sites", "Number of sites.", type=int, default=_DEFAULT.sites),
    make_option("--rows", "Training rows per site.", type=int, default=_DEFAULT.rows),
    make_option(
        "--aggregator-rows",
        "Training rows of the aggregator.",
        type=int,
        default=_DEFAULT.aggregator_rows,
    ),
    make_option(
        "--setting",
        "Whose rows are protected: non-private, nobody's; public-private, those of the sites "
        "(the aggregator's are public); private, everybody's.",
        type=click.Choice(SETTINGS),
        default=_DEFAULT.setting,
    ),
    make_option("--epsilon", "Total epsilon of each party.", type=float, default=_DEFAULT.epsilon),
    make_option(
        "--delta",
        "Delta of an (epsilon, delta) guarantee.  [default: none, pure epsilon]",
        type=float,
    ),
    make_option(
        "--relation", "Neighbouring data: replace-one or zero-out.", default=_DEFAULT.relation
    ),
    make_option("--loss", f"One of: {', '.join(loss_texts())}.", default=_DEFAULT.loss),
    make_option(
        "--lambda", "Weight of the regulariser.", name="Lambda", type=float, default=_DEFAULT.Lambda
    ),
    make_option(
        "--replicates",
        "Independent repetitions of the noise.",
        type=int,
        default=_DEFAULT.replicates,
    ),
    make_option(
        "--seed",
        "Seed of the noise and of the partition of rows (a simulation).",
        type=int,
        default=_DEFAULT.seed,
    ),
    json_flag_option(),
]


@click.command(name="compare")
@decorate_with_options(_OPTIONS)
def compare(as_json: bool, **knobs: Any) -> None:
    """Compare ways to combine the models of several sites: accuracy and privacy guarantees.

    Every site releases one model.  The models are used alone (local), averaged, or weighted by an
    aggregator that has rows of its own (feature); the global method pools all rows at a trusted
    curator.

    \b
      sottovoce compare                                setting of paper 003: MNIST, epsilon 0.1
      sottovoce compare --setting private --epsilon 5  the aggregator's rows are protected too
      sottovoce compare --data adult --rows 3000 --epsilon 1 --delta 1e-5
    """
    config = CompareConfig(**knobs)
    rows = compare_methods(config)
    if as_json:
        print_json(rows)
        return
    _render(config, rows, Console())


def _total(said: dict[str, Any]) -> str:
    """Format the total of a statement, with what 003 claims if that is another number."""
    text = ceil_text(float(said["epsilon"]))
    if said["delta"] != 0:
        text += f", delta {said['delta']:g}"
    if said["claimed"] is not None:
        text += f" (003 claims {ceil_text(said['claimed'])})"
    return text


def _render(config: CompareConfig, rows: list[dict[str, Any]], console: Console) -> None:
    """Print the table of methods, and what each of them protects."""
    console.print(
        f"[bold]{escape_markup(config.data)}[/], {config.setting}: {config.sites} sites of "
        f"{config.rows:,} rows, an "
        f"aggregator of {config.aggregator_rows:,}; {escape_markup(config.loss)} loss, Lambda "
        f"{config.Lambda:g}; "
        f"{config.replicates} replicates of the noise on one split"
    )
    quality = _TASK.wording.quality
    table = make_listing("<method", f">{quality}", ">sites: epsilon", ">aggregator: epsilon")
    for row in rows:
        scored = f"{_TASK.quality(row['test_error']):.3f} ± {row['test_error_sd']:.3f}"
        table.add_row(row["method"], scored, _total(row["sites"]), _total(row["aggregator"]))
    console.print(table)
    console.print(
        f"\n[bold]What is protected[/] ({config.relation} neighbours; {quality} ± standard "
        "deviation over replicates of the noise)"
    )
    for row in rows:
        for who in ("sites", "aggregator"):
            said = row[who]
            line = f"  {row['method']}, {who}: protects {said['protects']}"
            if said["not_protected"]:
                line += f"; not: {said['not_protected']}"
            console.print(line, highlight=False)
    if caveat := rows[0]["sites"].get("caveat"):
        console.print(f"[bold yellow]Not covered[/]: {escape_markup(caveat)}.")
    console.print(
        "[dim]This is a simulation, not a release: anyone who knows the seed can remove the "
        "noise.[/]"
    )
