"""Parameters of ``sottovoce train``, and what they hold once they are read.

An option is typed; a setting is given by ``--set NAME=VALUE`` or in a file
(:mod:`sottovoce.cli.run_command`).  Those that ``plan`` has too are in
:mod:`sottovoce.cli.run_options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..runs.config import RunConfig
from ..runs.training import TrainConfig
from .options import FILE, NUMBER, Option, holder_flag_option, json_flag_option, path_text_or_none
from .run_command import RunOption
from .run_options import (
    ANSWERS,
    DATA,
    METHOD,
    METHOD_OPTIONS,
    OUTPUT,
    PRIVACY,
    PRIVACY_OPTIONS,
    TRUST_OPTIONS,
    by,
    centre,
    grouped_option,
    grouped_setting,
    save_config,
    split_parameters,
    starting_point_settings,
)

_RUN = RunConfig()
_TRAINING = TrainConfig()


@dataclass(frozen=True)
class TrainOptions:
    """Everything that a command line and its file ask ``train`` for.

    The fields are named as the parameters; `run` has all others, which are of
    :class:`sottovoce.RunConfig`.
    """

    data: str
    schema: str | None
    nodes: int | None
    partition: str | None
    strength: float
    sizes: float | tuple[float, ...] | None
    test_share: float | None
    start: Path | None
    public: Path | None
    public_share: float | None
    centre: bool
    dropout: float
    seed: int
    system_noise: bool
    inference: bool
    site_constants: bool | None
    evaluation: float | None
    cut: float | None
    by: str | None
    save: Path | None
    report: Path | None
    checkpoint: Path | None
    config: Path | None
    save_config: Path | None
    ledger: Path | None
    run_name: str | None
    as_json: bool
    holder: bool
    run: dict[str, Any]

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> TrainOptions:
        """Make the options of click's parameters."""
        return cls(**split_parameters(cls, parameters))

    @property
    def relative_sizes(self) -> tuple[float, ...] | None:
        """Sizes of the sites relative to each other; None for equal ones."""
        if isinstance(self.sizes, float):
            return (self.sizes,)
        return self.sizes

    @property
    def noise_seed(self) -> int | None:
        """Seed of the run; None draws noise from the operating system."""
        if self.system_noise:
            return None
        return self.seed

    @property
    def held_out_share(self) -> float | None:
        """Share of the table that is held out; None or 0 for none."""
        if self.test_share is not None:
            return self.test_share
        # Coefficients without an evaluation are computed from all rows.
        if self.inference and self.evaluation is None:
            return None
        return _TRAINING.test_share

    def make_train_config(self, run: RunConfig) -> TrainConfig:
        """Return the run with its data."""
        return TrainConfig(
            run=run,
            data=self.data,
            schema=self.schema,
            nodes=self.nodes,
            partition=self.partition,
            strength=self.strength,
            sizes=self.relative_sizes,
            test_share=self.held_out_share or None,
            start=path_text_or_none(self.start),
            public=path_text_or_none(self.public),
            public_share=self.public_share,
            centre=self.centre,
            dropout=self.dropout,
        )


_ROWS: list[Option] = [
    grouped_setting(
        DATA,
        "sizes",
        "Relative sizes of the sites, separated by commas.  [default: equal]",
        type=NUMBER,
    ),
    grouped_setting(
        DATA,
        "strength",
        "Difference between sites under --partition label: 0 for none.",
        type=float,
        default=_TRAINING.strength,
    ),
    grouped_setting(
        DATA,
        "test_share",
        "Share of your table that is held out, 0 for none.  [default: 0.2; for --inference "
        "alone, none]",
        type=float,
    ),
    *starting_point_settings("a table under the schema of the data"),
    grouped_setting(
        DATA,
        "public_share",
        "In a simulation: share of the training rows that is treated as public.",
        type=float,
    ),
    centre(),
    grouped_setting(
        DATA,
        "dropout",
        "In a simulation: probability that a site is lost for good in a round.",
        type=float,
        default=_TRAINING.dropout,
    ),
]
"""Which rows a training has, and where it starts."""

_ANSWERS: list[Option] = [
    grouped_setting(
        ANSWERS,
        "site_constants",
        "Whether every site has a constant of its own.  [default: unless iid]",
        type=bool,
    ),
    grouped_setting(
        ANSWERS,
        "cut",
        "Probability from which a row is positive, in the evaluation and for `predict`.  "
        "[default: 0.5]",
        type=float,
    ),
    by(),
]

TRAIN_OPTIONS: list[Option] = [
    grouped_option(
        DATA,
        "--data",
        "A name of `sottovoce data`, or a CSV or Parquet file.",
        metavar="NAME|FILE",
        default=_TRAINING.data,
    ),
    grouped_option(
        DATA,
        "--schema",
        "Public facts of your table, as TOML: see `sottovoce schema init`.",
        metavar="FILE",
        type=click.Path(),
    ),
    grouped_option(
        DATA,
        "--nodes",
        "Number of sites.  [default: 5, or as many as the site column names]",
        metavar="N",
        type=int,
    ),
    grouped_option(
        DATA,
        "--partition",
        "How rows lie at sites: iid, label, dirichlet:ALPHA, column:NAME or site:NAME.  "
        "[default: the schema's site, else iid]",
        metavar="HOW",
    ),
    *_ROWS,
    *PRIVACY_OPTIONS,
    grouped_option(
        PRIVACY,
        "--ledger",
        "Charge the run to this ledger of the data set, by `sottovoce ledger init`.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    grouped_option(
        PRIVACY,
        "--run",
        "Name of the run in that ledger.  [default: from the configuration]",
        metavar="NAME",
        name="run_name",
    ),
    grouped_option(
        PRIVACY,
        "--system-noise",
        "Draw noise from the operating system: a release.  Without it noise is keyed by "
        "--seed: a simulation, which protects nobody.",
        is_flag=True,
        typed_only=True,
    ),
    *TRUST_OPTIONS,
    *METHOD_OPTIONS,
    grouped_option(
        METHOD,
        "--seed",
        "Seed of noise, partition and random graphs of a simulation.",
        metavar="N",
        type=int,
        default=_RUN.seed,
    ),
    grouped_option(
        METHOD,
        "--replicates",
        "Repetitions of a simulation, each with its own noise.",
        metavar="N",
        type=int,
        default=_RUN.replicates,
    ),
    grouped_option(
        ANSWERS,
        "--inference",
        "Coefficients with 95% intervals, in units of the columns, instead of a classifier.",
        is_flag=True,
    ),
    grouped_option(
        ANSWERS,
        "--evaluation",
        "Also evaluate the model on held-out rows, with this epsilon for them.",
        metavar="E",
        type=float,
    ),
    *_ANSWERS,
    grouped_option(
        OUTPUT,
        "--save",
        "Write the models, with their privacy and configuration, to this file (.npz).",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    grouped_option(
        OUTPUT,
        "--report",
        "Write one HTML page to read or pass on.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    grouped_option(
        OUTPUT,
        "--checkpoint",
        "Save every round or answer here, and resume from it if it exists.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    save_config(),
    json_flag_option(cls=RunOption, group=OUTPUT, typed_only=True),
    holder_flag_option(cls=RunOption, group=OUTPUT, typed_only=True),
]
"""Parameters of ``sottovoce train``."""
