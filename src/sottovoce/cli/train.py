"""``sottovoce train``: the main job."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import graphs
from ..algorithms import REGISTRY
from ..engine import Observer
from ..privacy.durable import DurableLedger
from ..simulate import RunConfig
from ..training import TrainConfig
from ..training import train as train_on
from .files import check_folder
from .render import render

_RUN = RunConfig()
_DEFAULT_ROWS = TrainConfig()


class Numbers(click.ParamType):  # type: ignore[type-arg]
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


def _say(flag: str, about: str, *, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
    return click.option(flag, *([name] if name else []), help=about, show_default="default" in more, **more)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options in the order of ``--help``: data, privacy, sites, knobs, output."""
    number, file, say = Numbers(), click.Path(dir_okay=False, path_type=Path), _say
    options = [
        say("--data", "A name of `sottovoce data`, or a CSV or Parquet file.", default=_DEFAULT_ROWS.data),
        say("--schema", "TOML file declaring the public facts of your table.", type=click.Path()),
        say("--method", f"One of: {', '.join(REGISTRY)}.", default=_RUN.method),
        say("--rounds", "Exchanges with the neighbours.", type=int, default=_RUN.rounds),
        say(
            "--epsilon",
            "Total budget (printed forms: by the paper's claim).  [default: 1, or inf where a method has no noise]",
            type=float,
        ),
        say("--delta", "Probability left out of the guarantee.  [default: none, pure epsilon]", type=float),
        say("--form", "corrected, or printed: a paper's algorithm to the letter.", default=_RUN.form),
        say("--relation", "Neighbouring data: replace-one or zero-out.", default=_RUN.relation),
        say(
            "--noise",
            "The method's own noise parameter, alpha in its paper; --epsilon is then a budget to stop at.",
            type=number,
        ),
        say("--noise-growth", "Factor of alpha per release.", type=float, default=_RUN.noise_growth),
        say("--nodes", "Number of sites.  [default: 5, or as many as site:NAME finds]", type=int),
        say("--graph", f"One of: {', '.join(graphs.names())}.", default=_RUN.graph),
        say("--partition", "iid, label, dirichlet:ALPHA, column:NAME or site:NAME.", default=_DEFAULT_ROWS.partition),
        say("--strength", "Skew of the label partition.", type=float, default=_DEFAULT_ROWS.strength),
        say("--sizes", "Relative sizes of the sites, separated by commas.", type=number),
        say("--test-share", "Held-out share of your table.", type=float, default=_DEFAULT_ROWS.test_share),
        say("--loss", "logistic, or huber:H.", default=_RUN.loss),
        say("--C", "Weight of the data.", name="C", type=float, default=_RUN.C),
        say("--rho", "Weight of the regulariser.", type=float, default=_RUN.rho),
        say("--eta", "Penalty, or one a node.  [default: from sizes, graph and budget]", type=number),
        say("--eta-growth", "Factor of the penalty per release.", type=number, default=_RUN.eta_growth),
        say("--gamma", "Proximal weight of even rounds, (M)R-ADMM.", type=float, default=_RUN.gamma),
        say("--phi", "Extra curvature, DVP.", type=float, default=_RUN.phi),
        say("--tol", "Certificate of the local solves.", type=float, default=_RUN.tol),
        say("--seed", "Keys noise, partition and random graphs: a simulation.", type=int, default=_RUN.seed),
        say(
            "--system-noise",
            "Draw noise from the operating system: cannot be repeated; the rest is keyed by 0.",
            is_flag=True,
        ),
        say("--replicates", "Independent repetitions of the noise.", type=int, default=_RUN.replicates),
        say("--save", "Write models, ledger and configuration (.npz).", type=file),
        say("--checkpoint", "Save every round here; go on from it if it exists.", type=file),
        say("--ledger", "The data set's ledger on disk, made by `sottovoce ledger init`.", type=file),
        say("--run", "Name of this run in the ledger.  [default: from the configuration]", name="run_name"),
        say("--json", "Print one JSON object and nothing else.", name="as_json", is_flag=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(name="train")
@_options
def train(
    data: str, schema: str | None, nodes: int | None, partition: str, strength: float, sizes: Any, test_share: float,
    epsilon: float | None, seed: int, system_noise: bool, save: Path | None, checkpoint: Path | None,
    ledger: Path | None, run_name: str | None, as_json: bool, **knobs: Any,
) -> None:  # fmt: skip
    """Train across sites, print the privacy statement and the accuracy.

    Without options: the Adult census data, five sites on a ring, a private method at a total epsilon of 1.
    All sites run in this process; their noise is keyed by --seed, so the run can be repeated, and is a simulation.
    """
    for name, path in (("save", save), ("checkpoint", checkpoint)):
        if path is not None:
            check_folder(name, path)
    if epsilon is None:
        known = REGISTRY.get(knobs["method"])
        epsilon = _RUN.epsilon if known is None or known.private else math.inf
    settings = RunConfig(epsilon=epsilon, seed=None if system_noise else seed, **knobs)
    relative = (sizes,) if isinstance(sizes, float) else sizes
    config = TrainConfig(settings, data, schema, nodes, partition, strength, relative, test_share)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar: Any = Progress(*columns, console=console, transient=True)
    with bar if console.is_terminal and not as_json else nullcontext() as progress:
        observers: list[Observer] = []
        if progress is not None:
            task = progress.add_task(f"{settings.method} round", total=settings.rounds)
            observers.append(lambda k, state: progress.update(task, completed=k))
        with nullcontext() if ledger is None else DurableLedger.open(ledger) as book:
            report = train_on(config, observers=observers, checkpoint=checkpoint, ledger=book, run_name=run_name)
    if save is not None:
        report.result.save(save)
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        render(report, Console(), save)
