"""Parameters of ``sottovoce train``, and what they hold once they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..runs.config import RunConfig
from ..runs.training import TrainConfig
from .options import FILE, NUMBER, Option, as_json, holder_too, path_text
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
    option,
    save_config,
    setting,
    split,
    starts,
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
        return cls(**split(cls, parameters))

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
    def held_out(self) -> float | None:
        """Share of the table that is held out; None or 0 for none."""
        if self.test_share is not None:
            return self.test_share
        # Coefficients alone are asked of all rows.
        if self.inference and self.evaluation is None:
            return None
        return _TRAINING.test_share

    def training(self, run: RunConfig) -> TrainConfig:
        """Return the run with its data."""
        return TrainConfig(
            run=run,
            data=self.data,
            schema=self.schema,
            nodes=self.nodes,
            partition=self.partition,
            strength=self.strength,
            sizes=self.relative_sizes,
            test_share=self.held_out or None,
            start=path_text(self.start),
            public=path_text(self.public),
            public_share=self.public_share,
            centre=self.centre,
            dropout=self.dropout,
        )


_ROWS: list[Option] = [
    setting(
        DATA,
        "sizes",
        "Relative sizes of the sites, separated by commas.  [default: equal]",
        type=NUMBER,
    ),
    setting(
        DATA,
        "strength",
        "How unlike sites are under --partition label: 0 for alike.",
        type=float,
        default=_TRAINING.strength,
    ),
    setting(
        DATA,
        "test_share",
        "Share of your table that is held out, 0 for none.  [default: 0.2; for --inference "
        "alone, none]",
        type=float,
    ),
    *starts("a table under the schema of the data"),
    setting(
        DATA,
        "public_share",
        "Of a simulation: share of the training rows that is taken as public instead.",
        type=float,
    ),
    centre(),
    setting(
        DATA,
        "dropout",
        "Of a simulation: probability of each site to be lost for good in a round.",
        type=float,
        default=_TRAINING.dropout,
    ),
]
"""Which rows a training has, and where it starts."""

_ANSWERS: list[Option] = [
    setting(
        ANSWERS,
        "site_constants",
        "Whether every site has a constant of its own.  [default: unless iid]",
        type=bool,
    ),
    setting(
        ANSWERS,
        "cut",
        "Probability from which on a row is positive: in the evaluation, and for `predict`.  "
        "[default: 0.5]",
        type=float,
    ),
    by(),
]

TRAIN_OPTIONS: list[Option] = [
    option(
        DATA,
        "--data",
        "A name of `sottovoce data`, or a CSV or Parquet file.",
        metavar="NAME|FILE",
        default=_TRAINING.data,
    ),
    option(
        DATA,
        "--schema",
        "Public facts of your table, as TOML: see `sottovoce schema init`.",
        metavar="FILE",
        type=click.Path(),
    ),
    option(
        DATA,
        "--nodes",
        "Number of sites.  [default: 5, or as many as the site column names]",
        metavar="N",
        type=int,
    ),
    option(
        DATA,
        "--partition",
        "How rows lie at sites: iid, label, dirichlet:ALPHA, column:NAME or site:NAME.  "
        "[default: the schema's site, else iid]",
        metavar="HOW",
    ),
    *_ROWS,
    *PRIVACY_OPTIONS,
    option(
        PRIVACY,
        "--ledger",
        "Charge the run to this ledger of the data set, by `sottovoce ledger init`.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    option(
        PRIVACY,
        "--run",
        "Name of the run in that ledger.  [default: from the configuration]",
        metavar="NAME",
        name="run_name",
    ),
    option(
        PRIVACY,
        "--system-noise",
        "Draw noise from the operating system: a release.  Without it noise is keyed by "
        "--seed: a simulation, which protects nobody.",
        is_flag=True,
        typed_only=True,
    ),
    *TRUST_OPTIONS,
    *METHOD_OPTIONS,
    option(
        METHOD,
        "--seed",
        "Keys noise, partition and random graphs of a simulation.",
        metavar="N",
        type=int,
        default=_RUN.seed,
    ),
    option(
        METHOD,
        "--replicates",
        "Repetitions of a simulation, each with its own noise.",
        metavar="N",
        type=int,
        default=_RUN.replicates,
    ),
    option(
        ANSWERS,
        "--inference",
        "Coefficients with 95% intervals, in units of the columns, in place of a classifier.",
        is_flag=True,
    ),
    option(
        ANSWERS,
        "--evaluation",
        "Also ask the held-out rows how good the model is, with this epsilon of theirs.",
        metavar="E",
        type=float,
    ),
    *_ANSWERS,
    option(
        OUTPUT,
        "--save",
        "Write models, ledger and configuration (.npz).",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    option(
        OUTPUT,
        "--report",
        "Write one HTML page to read or pass on.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    option(
        OUTPUT,
        "--checkpoint",
        "Save every round or answer here, and go on from it if it exists.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    save_config(),
    as_json(cls=RunOption, group=OUTPUT, typed_only=True),
    holder_too(cls=RunOption, group=OUTPUT, typed_only=True),
]
"""Parameters of ``sottovoce train``."""
