"""Options that several commands share, in the order of ``--help``."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..algorithms import KNOBS, NAMES
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..network import graphs
from ..problem.losses import loss_texts
from ..runs import auto_search, defaults
from ..runs.config import RunConfig

_RUN = RunConfig()
_TYPES = {"float": float, "int": int, "str": str}


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """One number, or one per node, separated by commas."""

    name = "number[,number...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number or a list like 1,1.5,2", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


Option = Callable[[Any], Any]
NUMBER = Numbers()
LIFELONG = click.Choice(["pure", "zcdp", "rdp"])  # accountants of ledgers on disk
FILE, FOLDER = click.Path(dir_okay=False, path_type=Path), click.Path(file_okay=False, path_type=Path)


def say(flag: str, about: str, *, name: str | None = None, **more: Any) -> Option:
    """An option with its help."""
    return click.option(flag, *([name] if name else []), help=about, show_default="default" in more, **more)


def takes(options: Iterable[Option]) -> Option:
    """A decorator that gives a command these options, in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate


def method_options() -> list[Option]:
    """What to run and how much to spend."""
    return [
        say("--method", "auto, which chooses by trying on made-up rows, also rounds, eta, rho and max-grad-norm where "
            f"they are not given, or one of: {', '.join(NAMES)}.", default=defaults.METHOD),
        say("--trust", "Whom people trust with rows: nobody; sum, that only sums over all sites are seen; or curator, "
            "who holds them.  [default: nobody, or whom the method's name says]"),
        say("--colluders", "Of sums: sites that may tell others all they know.", type=int, default=_RUN.colluders),
        say("--participants", "Of sums: the least number of sites of one.  [default: more than half]", type=int),
        say("--rounds", "Exchanges with the neighbours.", type=int, default=_RUN.rounds),
        say("--epsilon", "Total budget, or one a node (printed forms: by the paper's claim).  [default: 1, or inf "
            "where a method has no noise]", type=NUMBER),
        say("--delta", f"Delta of an (epsilon, delta) guarantee, in total.  [default: {defaults.DELTA:g}; none with "
            "--pure, with an accountant or a ledger of pure epsilon, for printed forms that claim one, and without "
            "noise]", type=float),
        say("--pure", "Pure epsilon: no delta.", is_flag=True),
        say("--accountant", "pure, zcdp, rdp, pld or best.  [default: pure without a delta, else best: the least]"),
        say("--sites-per-row", "Sites at which a person may have a row.", type=int, default=_RUN.sites_per_row),
        say("--form", "corrected; or printed: a paper's algorithm to the letter.", default=_RUN.form),
        say("--relation", "Neighbouring data: replace-one or zero-out.", default=_RUN.relation),
        say("--noise", "The method's own noise parameter, alpha in its paper; --epsilon is then a budget to stop at.",
            type=NUMBER),
        say("--noise-growth", "Factor of alpha per release.", type=float, default=_RUN.noise_growth),
        say("--graph", f"One of: {', '.join(graphs.names())}.", default=_RUN.graph),
    ]  # fmt: skip


def knob_options() -> list[Option]:
    """The objective's and the methods' parameters."""
    return [
        say("--loss", f"One of: {', '.join(loss_texts())}.", default=_RUN.loss),
        say("--C", "Weight of the data.", name="C", type=float, default=_RUN.C),
        say("--rho", "Weight of the regulariser.", type=float, default=_RUN.rho),
        say("--eta", "Penalty, or one a node.  [default: from sizes, graph and budget]", type=NUMBER),
        say(
            "--eta-growth",
            "Factor q of the penalty from one release to the next: eta, eta q, eta q^2, ... 002 starts at eta = q.",
            type=NUMBER,
            default=_RUN.eta_growth,
        ),
        *(
            say(f"--{knob.name.replace('_', '-')}", knob.about, type=_TYPES[knob.kind], default=knob.default)
            for knob in KNOBS.values()
            if knob.offered
        ),
        say("--tol", "Certificate of the local solves.  [default: matched to the noise]", type=float),
    ]


def as_json(text: str = "Print one JSON object and nothing else.") -> Option:
    """``--json``."""
    return say("--json", text, name="as_json", is_flag=True)


def holder_too() -> Option:
    """``--holder``."""
    text = "In the JSON of a release, also numbers without noise, under holder_only: for the holder of the rows only."
    return say("--holder", text, is_flag=True)


def run_config(
    knobs: dict[str, Any], *, seed: int | None, ledger: DurableLedger | None = None, priced: bool = False
) -> RunConfig:
    """The run that `method_options` and `knob_options` ask for, with the budget that they leave out.

    With a `ledger` of pure epsilon there is no delta.  If `priced`, a given noise leaves epsilon to be told, instead of
    making it a budget to stop at.
    """
    options = dict(knobs)
    pure, delta, method = options.pop("pure"), options["delta"], options["method"]
    if delta is not None and not 0.0 < delta < 1.0:
        raise InvalidInput("delta", delta, "must lie inside (0, 1)", "use e.g. --delta 1e-5, or --pure for none")
    if delta is not None and pure:
        raise InvalidInput("pure", delta, "means that there is no delta", "give --delta or --pure, not both")
    if delta is None and not pure:
        total = options["accountant"] if ledger is None else ledger
        options["delta"] = defaults.default_delta(method, options["form"], total)
    if options["epsilon"] is None:
        told = priced and options["noise"] is not None
        options["epsilon"] = math.inf if told else defaults.default_epsilon(method)
    return RunConfig.from_dict({"seed": seed, **options})


def left_open() -> tuple[str, ...]:
    """The knobs that the command line did not give, for ``--method auto`` to choose."""
    context = click.get_current_context()
    return tuple(knob for knob in auto_search.KNOBS if context.get_parameter_source(knob) is ParameterSource.DEFAULT)


def typed() -> str:
    """The command as it was typed, without defaults, with the seed, and with the last part only of each path."""
    context = click.get_current_context()
    words = ["sottovoce", context.info_name or ""]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        named = isinstance(option.type, click.Path) or option.name == "data"
        text = shlex.quote(Path(str(value)).name if named else str(value))
        if isinstance(option, click.Argument):
            words += [Path(str(value)).name]
            continue
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and (given or option.name == "seed") and value is not None:
            words += [option.opts[0]] if option.is_flag else [option.opts[0], text]
    return " ".join(words)


def check_folder(field: str, path: Path) -> None:
    """Refuse a path whose folder is missing or read-only."""
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InvalidInput(field, str(path), "its folder must exist and be writable", "make it first")
