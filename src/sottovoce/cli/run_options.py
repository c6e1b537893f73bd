"""Options and settings that ``train`` and ``plan`` share, in the order of ``--help``.

Each is declared once.

Options are what one decides in every run.  The rest are settings, which ``--set NAME=VALUE`` and a
file give; a knob of a method is a setting by its own declaration
(:mod:`sottovoce.algorithms.knobs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from ..algorithms import KNOBS, NAMES
from ..network import graphs
from ..problem.losses import loss_texts
from ..runs import defaults
from ..runs.config import RunConfig
from .options import FILE, FILES_OF_RUNS, NUMBER, Option, make_option
from .run_command import GROUPS, RunOption, Setting

DATA, PRIVACY, TRUST, METHOD, ANSWERS, SITES_PLAN, OUTPUT = GROUPS
_RUN = RunConfig()
# Types of click, by the kind that a method's knob declares.
_KINDS: dict[str, click.ParamType[Any]] = {
    "float": click.FLOAT,
    "int": click.INT,
    "str": click.STRING,
}


def grouped_option(group: str, flag: str, about: str, **more: Any) -> Option:
    """Make an option under a heading of ``--help``.

    Parameters
    ----------
    group : str
        The heading.
    flag : str
        As it is typed.
    about : str
        The help.
    **more
        As for :func:`click.option`.

    Returns
    -------
    callable
        A decorator of commands.
    """
    return make_option(flag, about, cls=RunOption, group=group, **more)


def grouped_setting(group: str, name: str, about: str, **more: Any) -> Option:
    """Make a parameter for ``--set`` and files, without an option of its own.

    See :class:`sottovoce.cli.run_command.Setting`.

    Parameters
    ----------
    group : str
        The heading of ``--help``.
    name : str
        As in ``--set NAME=VALUE``.
    about : str
        The help.
    **more
        As for :func:`click.option`.

    Returns
    -------
    callable
        A decorator of commands.
    """
    return make_option(f"--{name}", about, name=name, cls=Setting, group=group, **more)


def _knob_settings() -> list[Option]:
    """Make the parameters of single methods."""
    offered = (knob for knob in KNOBS.values() if knob.offered)
    return [
        grouped_setting(METHOD, one.name, one.about, type=_KINDS[one.kind], default=one.default)
        for one in offered
    ]


PRIVACY_OPTIONS: list[Option] = [
    grouped_option(
        PRIVACY,
        "--epsilon",
        "Privacy loss of the whole run for one row; commas give each site its own.  "
        "[default: 1, or inf where a method has no noise]",
        metavar="E[,E...]",
        type=NUMBER,
    ),
    grouped_option(
        PRIVACY,
        "--delta",
        "Delta of the whole run's guarantee: far below 1 over the number of rows.  [default: "
        f"{defaults.DELTA:g}; none with --pure, with an accountant or ledger of pure epsilon, "
        "for printed forms of pure epsilon, and without noise]",
        metavar="D",
        type=float,
    ),
    grouped_option(
        PRIVACY,
        "--pure",
        "Pure epsilon, without a delta: a stronger promise for more noise.",
        is_flag=True,
    ),
    grouped_setting(
        PRIVACY,
        "accountant",
        "How releases add up: pure, zcdp, rdp, pld or best.  [default: pure without a delta, "
        "else best: the least]",
    ),
    grouped_setting(
        PRIVACY,
        "relation",
        "Neighbouring data: replace-one (a row with any other) or zero-out (with an empty one, "
        "which promises less).",
        default=_RUN.relation,
    ),
    grouped_setting(
        PRIVACY,
        "sites_per_row",
        "Sites at which one person may have a row.",
        type=int,
        default=_RUN.sites_per_row,
    ),
    grouped_setting(
        PRIVACY,
        "noise",
        "The method's own noise parameter, alpha in its paper; commas give each site its own.  "
        "The run then stops when it has spent epsilon; a plan without --epsilon computes it.  "
        "[default: from epsilon]",
        type=NUMBER,
    ),
    grouped_setting(
        PRIVACY,
        "noise_growth",
        "Factor of alpha from one release to the next.",
        type=float,
        default=_RUN.noise_growth,
    ),
]
"""How much to spend, and what it promises."""

TRUST_OPTIONS: list[Option] = [
    grouped_option(
        TRUST,
        "--trust",
        "Whom people trust with rows: nobody but their site (local); sum: only sums over all "
        "sites are seen (secure aggregation); curator, who holds all rows (central).  [default: "
        "nobody, or whom "
        "the method's name says]",
        metavar="WHOM",
    ),
    grouped_option(
        TRUST,
        "--colluders",
        "Under sum: sites that may collude.",
        metavar="N",
        type=int,
        default=_RUN.colluders,
    ),
    grouped_setting(
        TRUST,
        "participants",
        "Under sum: least number of sites in a sum.  [default: more than half]",
        type=int,
    ),
    grouped_option(
        TRUST,
        "--graph",
        f"Who exchanges with whom: {', '.join(graphs.names())}.",
        metavar="SPEC",
        default=_RUN.graph,
    ),
]
"""Who may see what, and who talks to whom."""

METHOD_OPTIONS: list[Option] = [
    grouped_option(
        METHOD,
        "--method",
        "auto, which tries methods on synthetic data, with rounds, eta, rho and max_grad_norm "
        f"where they are left open; or one of {', '.join(NAMES)}.",
        metavar="NAME",
        default=defaults.METHOD,
    ),
    grouped_option(
        METHOD,
        "--form",
        "corrected; or printed: a paper's algorithm to the letter.",
        metavar="NAME",
        default=_RUN.form,
    ),
    grouped_option(
        METHOD,
        "--rounds",
        "Rounds of exchange with the neighbours.",
        metavar="N",
        type=int,
        default=_RUN.rounds,
    ),
    grouped_option(
        METHOD,
        "--rho",
        "Weight of the regulariser: more shrinks coefficients, and needs less noise.",
        metavar="WEIGHT",
        type=float,
        default=_RUN.rho,
    ),
    grouped_option(
        METHOD,
        "--eta",
        "Penalty parameter; commas give each site its own.  [default: from sizes, graph and "
        "budget]",
        metavar="PENALTY",
        type=NUMBER,
    ),
    grouped_setting(
        METHOD,
        "loss",
        f"One of: {', '.join(loss_texts())}; of a number also squared, huber-residual:H, "
        "log-cosh:H and quantile:Q; of several classes softmax:K.",
        default=_RUN.loss,
    ),
    grouped_setting(METHOD, "C", "Weight of the data.", type=float, default=_RUN.C),
    grouped_setting(
        METHOD,
        "eta_growth",
        "Factor q of the penalty from one release to the next: eta, eta q, eta q^2, ...  Paper 002 "
        "starts at eta = q.",
        type=NUMBER,
        default=_RUN.eta_growth,
    ),
    *_knob_settings(),
    grouped_setting(
        METHOD,
        "tol",
        "Relative gradient norm to which local solves are certified.  [default: matched to the "
        "noise]",
        type=float,
    ),
    grouped_option(
        METHOD,
        "--set",
        "Any setting listed below; may be repeated.",
        metavar="NAME=VALUE",
        name="set_",
        multiple=True,
    ),
    grouped_option(
        METHOD,
        "--config",
        "Read options and settings from this TOML file; what is typed wins.",
        metavar="FILE",
        type=FILE,
    ),
]
"""What runs, and with which parameters."""


def starting_point_settings(table: str) -> list[Option]:
    """Make the parameters of where a run starts, if not from zero."""
    return [
        grouped_setting(
            DATA,
            "start",
            "Start from the model of this earlier run, a file of `train --save` or a hub's.",
            type=FILE,
        ),
        grouped_setting(DATA, "public", f"Start from public rows: {table}.", type=FILE),
    ]


def centre() -> Option:
    """Make the parameter that asks for the mean of rows first."""
    return grouped_setting(
        DATA,
        "centre",
        "Whether the means of all columns are released first, within epsilon, and subtracted from "
        "every row, where public facts (a schema) say that it pays.",
        type=bool,
        default=True,
    )


def by() -> Option:
    """Make the parameter that asks an evaluation by groups."""
    return grouped_setting(ANSWERS, "by", "For the evaluation: also each level of this column.")


def save_config() -> Option:
    """Make ``--save-config``."""
    return grouped_option(
        OUTPUT,
        "--save-config",
        "Write the options and settings of this command as a file for --config.",
        metavar="FILE",
        type=FILE,
    )


def split_parameters(cls: type, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Split click's parameters into the fields of a dataclass of options.

    Parameters that are no field of it are those of a :class:`sottovoce.RunConfig`: they become its
    field `run`, a dict by name.  Parameters that read or write files of runs are in neither.
    """
    own = {field.name for field in fields(cls)} - {"run"}
    rest = {
        name: value
        for name, value in parameters.items()
        if name not in own and name not in FILES_OF_RUNS
    }
    return {name: parameters[name] for name in own} | {"run": rest}
