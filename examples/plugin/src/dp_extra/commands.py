"""``sottovoce rounds``: a command of another package."""

from __future__ import annotations

import click
import numpy as np

from sottovoce import RunConfig
from sottovoce.cli.options import decorate_with_options, json_flag_option, make_option
from sottovoce.cli.screen import Console, make_listing, print_json
from sottovoce.runs.prepare import prepare

_SITES = 5
_FEATURES = 10
_OPTIONS = [
    make_option("--rows", "Rows of a site.", type=click.IntRange(min=1), default=1000),
    make_option("--epsilon", "Total budget.", type=float, default=1.0),
    json_flag_option(),
]


@click.command(name="rounds")
@decorate_with_options(_OPTIONS)
def rounds(rows: int, epsilon: float, as_json: bool) -> None:
    """Tell how the noise of a gradient grows with the number of rounds."""
    found = []
    for number in (1, 3, 10, 30):
        config = RunConfig(method="combine", epsilon=epsilon, delta=1e-5, rounds=number)
        sizes = np.full((_SITES, 1), float(rows))
        (first, *_) = prepare(config, sizes, _FEATURES).plan_ledger().rows
        found.append({"rounds": number, "sigma": float(np.max(first.to_dict()["sigma"]))})
    if as_json:
        print_json(found)
        return
    table = make_listing(">rounds", ">sigma")
    for row in found:
        table.add_row(str(row["rounds"]), f"{row['sigma']:.4g}")
    Console().print(table)
