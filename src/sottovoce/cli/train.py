"""``sottovoce train``: the main job."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import graphs
from ..algorithms import REGISTRY
from ..errors import InvalidInput
from ..simulate import RunConfig
from ..training import TrainConfig
from ..training import train as train_on
from .render import render

_RUN = RunConfig()
_DEFAULT_ROWS = TrainConfig()


class Numbers(click.ParamType):
    """A number, or one a node, separated by commas."""

    name = "number[,number...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number or a list like 1,1.5,2", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options, grouped as they are declared: what, privacy, where, knobs, output."""
    number = Numbers()
    options = [
        click.option("--data", default=_DEFAULT_ROWS.data, show_default=True, help="A name of `sottovoce data`, or a CSV or Parquet file."),
        click.option("--schema", type=click.Path(), help="TOML file declaring the public facts of your table."),
        click.option("--method", default=_RUN.method, show_default=True, help=f"One of: {', '.join(REGISTRY)}."),
        click.option("--rounds", type=int, default=_RUN.rounds, show_default=True, help="Exchanges with the neighbours."),
        click.option("--epsilon", type=float, help="Total privacy budget of the run; inf for no noise.  [default: 1, inf for methods without noise]"),
        click.option("--delta", type=float, help="Probability left out of the guarantee.  [default: none, pure epsilon]"),
        click.option("--form", default=_RUN.form, show_default=True, help="corrected, or printed: a paper's algorithm to the letter."),
        click.option("--relation", default=_RUN.relation, show_default=True, help="Neighbouring data: replace-one or zero-out."),
        click.option("--noise", type=number, help="The method's own noise parameter alpha; --epsilon is then a budget to stop at."),
        click.option("--noise-growth", type=float, default=_RUN.noise_growth, show_default=True, help="Factor of alpha per release."),
        click.option("--nodes", type=int, help="Number of sites.  [default: 5, or as many as site:NAME finds]"),
        click.option("--graph", default=_RUN.graph, show_default=True, help=f"One of: {', '.join(graphs.names())}."),
        click.option("--partition", default=_DEFAULT_ROWS.partition, show_default=True, help="iid, label, dirichlet:ALPHA, column:NAME or site:NAME."),
        click.option("--strength", type=float, default=_DEFAULT_ROWS.strength, show_default=True, help="Skew of the label partition."),
        click.option("--sizes", type=number, help="Relative sizes of the sites, separated by commas."),
        click.option("--test-share", type=float, default=_DEFAULT_ROWS.test_share, show_default=True, help="Held-out share of your table."),
        click.option("--loss", default=_RUN.loss, show_default=True, help="logistic, or huber:H."),
        click.option("--C", "C", type=float, default=_RUN.C, show_default=True, help="Weight of the data."),
        click.option("--rho", type=float, default=_RUN.rho, show_default=True, help="Weight of the regulariser."),
        click.option("--eta", type=number, default=_RUN.eta, show_default=True, help="Penalty, or one a node."),
        click.option("--eta-growth", type=number, default=_RUN.eta_growth, show_default=True, help="Factor of the penalty per release."),
        click.option("--gamma", type=float, default=_RUN.gamma, show_default=True, help="Proximal weight of even rounds, (M)R-ADMM."),
        click.option("--phi", type=float, default=_RUN.phi, show_default=True, help="Extra curvature, DVP."),
        click.option("--tol", type=float, default=_RUN.tol, show_default=True, help="Certificate of the local solves."),
        click.option("--seed", type=int, default=_RUN.seed, show_default=True, help="Keys noise and partition: a simulation."),
        click.option("--system-noise", is_flag=True, help="Draw noise from the operating system: cannot be repeated."),
        click.option("--replicates", type=int, default=_RUN.replicates, show_default=True, help="Independent repetitions of the noise."),
        click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write models, ledger and configuration (.npz)."),
        click.option("--checkpoint", type=click.Path(dir_okay=False, path_type=Path), help="Save every round here; go on from it if it exists."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(name="train")
@_options
def train(
    data: str, schema: str | None, nodes: int | None, partition: str, strength: float, sizes: Any, test_share: float,
    epsilon: float | None, seed: int, system_noise: bool, save: Path | None, checkpoint: Path | None, as_json: bool,
    **knobs: Any,
) -> None:  # fmt: skip
    """Train across sites, print the privacy statement and the accuracy.

    Without options: the Adult census data, five sites on a ring, a private method at a total epsilon of 1.
    All sites run in this process; their noise is keyed by --seed, so the run can be repeated, and is a simulation.
    """
    for name, path in (("save", save), ("checkpoint", checkpoint)):
        if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise InvalidInput(name, str(path), "its folder must exist and be writable", "make it first")
    if epsilon is None:
        known = REGISTRY.get(knobs["method"])
        epsilon = _RUN.epsilon if known is None or known.private else math.inf
    run = RunConfig(epsilon=epsilon, seed=None if system_noise else seed, **knobs)
    relative = (sizes,) if isinstance(sizes, float) else sizes
    config = TrainConfig(run, data, schema, nodes, partition, strength, relative, test_share)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as progress:
        task = progress.add_task("loading", total=run.rounds)
        report = train_on(
            config,
            observers=[lambda k, state: progress.update(task, completed=k, description=f"{run.method} round")],
            checkpoint=checkpoint,
        )
    if save is not None:
        report.result.save(save)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        render(report, Console(), save)
