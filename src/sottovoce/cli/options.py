"""Options that several commands share, in the order of ``--help``."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..errors import InvalidInput
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.registering import find_method

if TYPE_CHECKING:
    from ..ledger.durable import DurableLedger  # SQLite, which few runs need


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """One number, or one per node, separated by commas."""

    name = "number[,number...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse one number, or a list of numbers separated by commas.

        Parameters
        ----------
        value : str or other
            As typed, or as a file gives it; what is no text is returned as it is.
        param : click.Parameter or None
            For the message.
        ctx : click.Context or None
            For the message.

        Returns
        -------
        float, or tuple of float if there are several
        """
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number or a list like 1,1.5,2", param, ctx)
        if len(numbers) == 1:
            return numbers[0]
        return numbers


Option = Callable[[Any], Any]
NUMBER = Numbers()
FILES_OF_RUNS = ("set_", "config", "save_config")
"""Parameters that read or write values of other parameters.

Records of runs and files for ``--config`` hold those values, and not these.
"""
LIFELONG = click.Choice(["pure", "zcdp", "rdp"])
"""Accountants of ledgers on disk."""
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def make_option(flag: str, about: str, *, name: str | None = None, **more: Any) -> Option:
    """Make an option with its help.

    Parameters
    ----------
    flag : str
        As it is typed.
    about : str
        The help; a default of `more` is shown behind it.
    name : str, optional
        Name of the function's parameter; by default from the flag.
    **more
        As for :func:`click.option`.

    Returns
    -------
    callable
        A decorator of commands.
    """
    declarations = [flag]
    if name:
        declarations.append(name)
    return click.option(*declarations, help=about, show_default="default" in more, **more)


def decorate_with_options(options: Iterable[Option]) -> Option:
    """Return a decorator that gives a command these options, in this order."""

    def decorate(command: Any) -> Any:
        # Each option is put in front of those that a command has.
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate


def json_flag_option(text: str = "Print one JSON object and nothing else.", **more: Any) -> Option:
    """Make ``--json``."""
    return make_option("--json", text, name="as_json", is_flag=True, **more)


def holder_flag_option(**more: Any) -> Option:
    """Make ``--holder``, for commands that may print what a release holds back."""
    text = (
        "In the JSON of a release, also numbers without noise, under holder_only: for the "
        "holder of the rows only."
    )
    return make_option("--holder", text, is_flag=True, **more)


def saved_method_option() -> Option:
    """Make ``--method``, for commands that read a run.

    Files never make anybody load a package, but a user may.
    """
    about = (
        "Method of the run, where another installed package brings it: it is loaded only if "
        "it is typed here."
    )
    return make_option(
        "--method", about, metavar="NAME", expose_value=False, callback=_load_typed_method
    )


def _load_typed_method(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    """Load and register the method that was typed."""
    if name is not None and find_method(name) is None:
        raise InvalidInput("method", name, "is not a method", "see `sottovoce methods`")


def make_run_config(
    knobs: dict[str, Any],
    *,
    seed: int | None,
    ledger: DurableLedger | None = None,
    priced: bool = False,
) -> RunConfig:
    """Make the run that parameters ask for, with the default budget where they give none.

    Parameters
    ----------
    knobs : dict
        Parameters of click that are fields of :class:`sottovoce.RunConfig`, and ``pure``; epsilon
        and delta are None where they are left out.
    seed : int or None
        None draws noise from the operating system.
    ledger : DurableLedger, optional
        The ledger that is charged; with one of pure epsilon there is no default delta.
    priced : bool
        True for a plan: where noise is given and epsilon is not, epsilon is computed from the
        noise; otherwise it would be a budget at which the run stops.

    Returns
    -------
    RunConfig

    Raises
    ------
    InvalidInput
        If delta is outside (0, 1), or given together with `pure`.
    """
    options = dict(knobs)
    # A run has no field `pure`: it is pure if it has no delta.
    pure = options.pop("pure")
    delta, method = options["delta"], options["method"]
    if delta is not None and not 0.0 < delta < 1.0:
        raise InvalidInput(
            "delta", delta, "must be inside (0, 1)", "use e.g. --delta 1e-5, or --pure for none"
        )
    if delta is not None and pure:
        raise InvalidInput("pure", delta, "cannot be combined with --delta", "give one of the two")
    if delta is None and not pure:
        accountant = options["accountant"]
        if ledger is not None:
            accountant = ledger
        options["delta"] = defaults.default_delta(method, options["form"], accountant)
    if options["epsilon"] is None:
        if priced and options["noise"] is not None:
            # No budget stops the run, and its epsilon is computed.
            options["epsilon"] = math.inf
        else:
            options["epsilon"] = defaults.default_epsilon(method)
    return RunConfig.from_dict({"seed": seed, **options})


def opened_ledger(path: Path | None) -> AbstractContextManager[DurableLedger | None]:
    """Open the ledger that is to be charged; None, within the context, where none is named."""
    if path is None:
        return nullcontext()
    # Loads SQLite, which few runs need.
    from ..ledger.durable import DurableLedger

    return DurableLedger.open(path)


def knobs_left_open() -> tuple[str, ...]:
    """Return the settings of methods that were not given, which ``--method auto`` may choose."""
    context = click.get_current_context()
    return tuple(
        knob
        for knob in defaults.KNOBS
        if context.get_parameter_source(knob) is ParameterSource.DEFAULT
    )


def typed_command_line() -> str:
    """Return the command as it was typed, without defaults and with the seed.

    Of each path the last part alone is kept.  What a file of a run gave is written out, as if it
    had been typed.
    """
    context = click.get_current_context()
    words = ["sottovoce", context.info_name or ""]
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        given = source in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
        # The seed is always written, so that the command repeats its simulation.
        if not given and param.name != "seed":
            continue
        value = context.params.get(param.name or "")
        if value is not None and param.name not in FILES_OF_RUNS:
            words += _words_of_parameter(param, value)
    return " ".join(words)


def _words_of_parameter(param: click.Parameter, value: Any) -> list[str]:
    """Return the words of one parameter, as it is typed."""
    values = [value]
    if param.multiple:
        values = value
    texts = [_text_without_folders(param, each) for each in values]
    if isinstance(param, click.Argument):
        return texts
    # A setting has no flag of its own.
    if not param.opts:
        return [word for text in texts for word in ("--set", shlex.quote(f"{param.name}={text}"))]
    flag = param.opts[0]
    if isinstance(param, click.Option) and param.is_flag:
        # The other side of a switch, such as --no-centre, if there is one.
        if value:
            return [flag]
        return param.secondary_opts[:1]
    return [word for text in texts for word in (flag, shlex.quote(text))]


def _text_without_folders(param: click.Parameter, value: Any) -> str:
    """Return a value as text, without the folders of a path."""
    # --data is a text, because it also names data sets of the package.
    is_path = (
        isinstance(param, click.Argument)
        or isinstance(param.type, click.Path)
        or param.name == "data"
    )
    if is_path:
        return Path(str(value)).name
    return format_typed_value(value)


def format_typed_value(value: Any) -> str:
    """Return a value as one types it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(format_typed_value, value))
    return str(value)


def path_text_or_none(path: Path | None) -> str | None:
    """Return a path as JSON has it; None stays None."""
    if path is None:
        return None
    return str(path)


def check_parent_folder(field: str, path: Path) -> None:
    """Refuse a path whose folder is missing or read-only."""
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InvalidInput(
            field,
            str(path),
            "its folder must exist and be writable",
            "make the folder first, or give another path",
        )
