"""Parameters of ``sottovoce plan``, and what they hold once they are read.

An option is typed; a setting is given by ``--set NAME=VALUE`` or in a file
(:mod:`sottovoce.cli.run_command`).  Those that ``train`` has too are in
:mod:`sottovoce.cli.run_options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answers.assumed import Assumed
from ..deploy.waits import Waits
from .options import FILE, NUMBER, Option, json_flag_option
from .run_command import RunOption
from .run_options import (
    ANSWERS,
    DATA,
    METHOD_OPTIONS,
    OUTPUT,
    PRIVACY,
    PRIVACY_OPTIONS,
    SITES_PLAN,
    TRUST_OPTIONS,
    by,
    centre,
    grouped_option,
    grouped_setting,
    save_config,
    split_parameters,
    starting_point_settings,
)

if TYPE_CHECKING:
    from ..deploy.asks import Asks

FEATURES = 36
"""Features of a row where neither they nor a schema are given: those of Adult, the default data."""
_EXPECTED = Assumed()
"""Default assumptions of a forecast."""


@dataclass(frozen=True)
class PlanOptions:
    """Everything that a command line and its file ask ``plan`` for.

    The fields are named as the parameters; `run` has all others, which are of
    :class:`sottovoce.RunConfig`.
    """

    sizes: float | tuple[float, ...]
    nodes: int
    features: int | None
    schema: Path | None
    partition: str
    centre: bool
    life: float | None
    inference: bool
    evaluation: float | None
    site_constants: bool
    expect_positives: float
    expect_share: tuple[str, ...]
    expect_correlation: float
    expect_residuals: float
    holdout: float
    cut: float
    by: str | None
    write: Path | None
    run_name: str | None
    sites: tuple[Path, ...]
    start: Path | None
    public: Path | None
    norm_cap: float | None
    dropout: float
    deadline: float
    patience: float
    config: Path | None
    save_config: Path | None
    as_json: bool
    run: dict[str, Any]

    def __post_init__(self) -> None:
        # What is expected must be possible, also where nothing asks for it.
        _ = self.forecast_assumptions

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> PlanOptions:
        """Make the options of click's parameters."""
        return cls(**split_parameters(cls, parameters))

    @property
    def forecast_assumptions(self) -> Assumed:
        """Assumptions of a forecast about rows that nobody has read."""
        return Assumed(
            self.expect_positives, self.expect_correlation, self.expect_residuals, self.expect_share
        )

    @property
    def asks(self) -> Asks | None:
        """Answers that are asked for in addition to training; None without any."""
        return make_requested_answers(
            self.inference, self.site_constants, self.evaluation, self.holdout, self.cut, self.by
        )


def make_requested_answers(
    inference: bool,
    site_constants: bool,
    evaluation: float | None,
    holdout: float,
    cut: float,
    by: str | None,
) -> Asks | None:
    """Return the answers that are asked for in addition to training; None without any.

    Parameters
    ----------
    inference : bool
        Ask for coefficients with intervals.
    site_constants : bool
        Of the inference: a constant for each site.
    evaluation : float or None
        Epsilon of an evaluation by held-out rows; None for no evaluation.
    holdout : float
        Share of rows that is held out, if there is an evaluation.
    cut : float
        Probability from which on a row is called positive.
    by : str or None
        Column by whose levels the evaluation is also asked.

    Returns
    -------
    Asks or None
    """
    if not inference and evaluation is None:
        return None
    from ..deploy.asks import Asks  # only a plan with answers needs it

    share = 0.0 if evaluation is None else holdout
    return Asks(inference, inference and site_constants, evaluation, share, cut, by)


_ANSWERS: list[Option] = [
    grouped_setting(
        ANSWERS,
        "site_constants",
        "For inference: whether each site has its own constant.",
        type=bool,
        default=True,
    ),
    grouped_setting(
        ANSWERS,
        "expect_positives",
        "For inference: expected share of positive rows.",
        type=float,
        default=_EXPECTED.positives,
    ),
    grouped_setting(
        ANSWERS,
        "expect_share",
        "Of inference: share of a level that you expect among all rows, as "
        "--set 'expect_share=stage: b=0.03'; may be repeated.",
        multiple=True,
    ),
    grouped_setting(
        ANSWERS,
        "expect_correlation",
        "For inference: expected correlation of each number with the next.",
        type=float,
        default=_EXPECTED.correlation,
    ),
    grouped_setting(
        ANSWERS,
        "expect_residuals",
        "Of inference on numbers: standard deviation of their residuals, over the width of the "
        "label's bounds.",
        type=float,
        default=_EXPECTED.residuals,
    ),
    grouped_setting(
        ANSWERS,
        "holdout",
        "For the evaluation: share of each site's rows that is held out.",
        type=float,
        default=0.2,
        is_limit=True,
    ),
    grouped_setting(
        ANSWERS,
        "cut",
        "For the evaluation: probability from which a row is positive.",
        type=float,
        default=0.5,
    ),
    by(),
]

_RULES: list[Option] = [
    *starting_point_settings("a table under the schema of the sites' plan"),
    grouped_setting(
        SITES_PLAN,
        "norm_cap",
        "Longest message of the run.  [default: from public facts]",
        type=float,
    ),
    grouped_setting(
        SITES_PLAN,
        "dropout",
        "Probability of each site to be lost in a round: also say how the run would end.",
        type=float,
        default=0.0,
    ),
    grouped_setting(
        SITES_PLAN,
        "deadline",
        "Seconds that a round waits for its last site; then the run goes on without it.",
        type=float,
        default=Waits.deadline,
    ),
    grouped_setting(
        SITES_PLAN,
        "patience",
        "Seconds that a round waits where it may not go on without that site; then the run ends.",
        type=float,
        default=Waits.patience,
    ),
]

PLAN_OPTIONS: list[Option] = [
    grouped_option(
        DATA,
        "--sizes",
        "Rows of every site; commas give each site its own number.",
        metavar="N[,N...]",
        type=NUMBER,
        default=8000.0,
    ),
    grouped_option(
        DATA,
        "--nodes",
        "Number of sites, if --sizes is one number.",
        metavar="N",
        type=int,
        default=5,
    ),
    grouped_option(
        DATA,
        "--features",
        f"Features of a row, including the constant.  [default: those of --schema, or {FEATURES}]",
        metavar="N",
        type=int,
    ),
    grouped_option(
        DATA,
        "--schema",
        "Public facts of the sites' tables, as TOML: for their plan, for --inference, and for "
        "--method auto.",
        metavar="FILE",
        type=FILE,
    ),
    grouped_option(
        DATA,
        "--partition",
        "How sites will differ, for --method auto: iid, or as for train.",
        metavar="HOW",
        default="iid",
    ),
    centre(),
    *PRIVACY_OPTIONS,
    grouped_option(
        PRIVACY,
        "--life",
        "Lifetime epsilon of a site's ledger: also say how much of it the run takes.",
        metavar="E",
        type=float,
        is_limit=True,
    ),
    *TRUST_OPTIONS,
    *METHOD_OPTIONS,
    grouped_option(
        ANSWERS,
        "--inference",
        "Coefficients with intervals in place of a classifier; with --schema also which "
        "standard errors to expect, and from how many rows on coefficients are printed.",
        is_flag=True,
    ),
    grouped_option(
        ANSWERS,
        "--evaluation",
        "The sites' plan ends with an evaluation of held-out rows, with this epsilon of theirs.",
        metavar="E",
        type=float,
    ),
    *_ANSWERS,
    grouped_option(
        SITES_PLAN,
        "--write",
        "Write the plan that separate sites agree on; needs --run, --schema and --site.",
        metavar="FILE",
        type=FILE,
        typed_only=True,
    ),
    grouped_option(
        SITES_PLAN,
        "--run",
        "Name of the run in that plan, new to every site's ledger.",
        metavar="NAME",
        name="run_name",
    ),
    grouped_option(
        SITES_PLAN,
        "--site",
        "The .joined of `site join` or .public.json of `site init`; once a site, in the graph's "
        "order.",
        metavar="FILE",
        name="sites",
        type=FILE,
        multiple=True,
    ),
    *_RULES,
    save_config(),
    json_flag_option(cls=RunOption, group=OUTPUT, typed_only=True),
]
"""Parameters of ``sottovoce plan``."""
