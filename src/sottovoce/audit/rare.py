"""Audit of rare levels (`rare`): does a survey show a level, or a range, that few rows have?

The page is docs/explanation/audit.md.

A survey says that no level and no run of cells with at most `rare` rows is shown, but for a stated
rate of errors. Here every level but one has exactly that many rows, which nearly reaches the stated
rate, and all that a survey tells is looked at.  The tables differ in one of these rows, and what is
shown must not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..answers.survey import ERROR, RARE, Column
from ..answers.surveyed import replicates
from ..data.schema import Schema
from ..data.table import Table
from ..runs.config import RunConfig
from ..util.typing import Any, Array
from .confidence import check_replicates, choose_test, probability_lower_limit
from .game import DEFAULT, Options, Verdict

RUNS, QUICK_RUNS = 4_000, 1_000
DELTA, SITES = 1e-5, 3
LEVELS, COMMON = 30, 4_000
"""Number of rare levels of a column, and rows of the one common level or range."""
FAR = 2.0**12
"""The value of the rare rows of a numeric column; the common rows have 1.5."""


@dataclass(frozen=True)
class Stand:
    """A schema and two tables, with a test of whether a survey of them shows the few rows.

    Attributes
    ----------
    schema : Schema
        Declares the columns.
    tables : pair of dict
        Columns of table 0 and of table 1.
    shows : callable
        Takes the surveyed columns; True if a rare level or range is shown.
    config : RunConfig
        Budget and trust.
    """

    schema: Schema
    tables: tuple[dict[str, Any], dict[str, Any]]
    shows: Callable[[Sequence[Column]], bool]
    config: RunConfig


@dataclass(frozen=True)
class RareVerdict(Verdict):
    """The verdict on rare levels."""

    stated: float = ERROR
    """Rate at which surveys may show a rare level or range, as a survey states it."""
    shown: int = 0
    """Number of surveys that showed one, of the runs of both tables."""
    rate_bound: float = 0.0
    """Lower bound on the rate of such surveys.  It and the bound on epsilon hold together with
    the confidence."""

    @property
    def refuted(self) -> bool:
        """True if the rate of surveys that show rare rows, or epsilon, is larger than stated."""
        return self.rate_bound > self.stated or super().refuted


def _survey_of_rare_levels(config: RunConfig) -> Stand:
    """Make a survey of a column of categories, of which all but one are rare."""
    few = [f"level {k}" for k in range(LEVELS)]
    block = {"kind": "category", "values": ["common", *few]}

    def table(moved: int) -> dict[str, Any]:
        # Missing and unread entries are as rare as every level; a moved row turns common.
        rare = [name for name in [*few, "", "a typo"] for _ in range(int(RARE))]
        return {"x": np.array(["common"] * (COMMON + moved) + rare[moved:], dtype=object)}

    def shows(columns: Sequence[Column]) -> bool:
        (one,) = columns
        return bool(set(one.kept) & set(few)) or one.missing is not None or one.unread is not None

    return Stand(Schema.from_dict({"columns": {"x": block}}), (table(0), table(1)), shows, config)


def _survey_of_rare_ranges(config: RunConfig) -> Stand:
    """Make a survey of three numbers, of which few rows have a large value."""
    names = ("a", "b", "c")
    block = {"kind": "number", "lo": 0, "hi": 1e6}

    def table(moved: int) -> dict[str, Any]:
        few = int(RARE)
        return {name: np.array([1.5] * (COMMON + moved) + [FAR] * (few - moved)) for name in names}

    def shows(columns: Sequence[Column]) -> bool:
        return any(
            one.proposed.get("hi", 0.0) > FAR / 4.0 or one.missing or one.unread for one in columns
        )

    schema = Schema.from_dict({"columns": dict.fromkeys(names, block)})
    return Stand(schema, (table(0), table(1)), shows, config)


def rare_level_cases(epsilon: float | None = None, delta: float | None = None) -> dict[str, Stand]:
    """Make surveys of rare levels and of rare ranges, for each trust.

    Parameters
    ----------
    epsilon, delta : float, optional
        Of the survey; by default 1 and :data:`DELTA`.

    Returns
    -------
    dict of str to Stand
    """
    if epsilon is None:
        epsilon = 1.0
    if delta is None:
        delta = DELTA
    found = dict[str, Stand]()
    for trust in ("nobody", "sum"):
        config = RunConfig("auto", epsilon, delta, trust=trust)
        found |= {
            f"levels, {trust}": _survey_of_rare_levels(config),
            f"ranges, {trust}": _survey_of_rare_ranges(config),
        }
    return found


def play(asked: Options = DEFAULT, stands: Mapping[str, Stand] | None = None) -> RareVerdict:
    """Play every game, and return the verdict with the highest rate of surveys that show rare rows.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Stand, optional
        What is surveyed; by default :func:`rare_level_cases`.

    Returns
    -------
    RareVerdict
    """
    if stands is None:
        stands = rare_level_cases(asked.epsilon, asked.delta)
    # Each game gets an equal share of the error, so that all bounds hold together.
    each = 1.0 - (1.0 - asked.confidence) / len(stands)
    runs = asked.replicates or RUNS
    found = [_judge_survey(name, stand, runs, asked.seed, each) for name, stand in stands.items()]
    worst = max(found, key=lambda one: (one.refuted, one.rate_bound))
    return replace(worst, confidence=asked.confidence)


def _judge_survey(name: str, stand: Stand, runs: int, seed: int, confidence: float) -> RareVerdict:
    """Survey both tables `runs` times each, and return the verdict of one game.

    Two claims may fall: epsilon, and the rate of surveys that show rare rows.  Each bound gets half
    of the error, so that both hold together with probability `confidence`.
    """
    each = 1.0 - 0.5 * (1.0 - confidence)
    check_replicates(runs)
    sides, expected = list[Array](), None
    for k, columns in enumerate(stand.tables):
        whole = Table("t", columns)
        parts = [whole.take(np.arange(i, whole.n_rows, SITES)) for i in range(SITES)]
        run = replace(stand.config, seed=2 * seed + k, replicates=runs)
        expected, told = replicates(stand.schema, parts, run)
        sides.append(np.array([stand.shows(one) for one in told], dtype=float))
    assert expected is not None
    said = expected.statement
    delta, half = said.delta, runs // 2
    shown = int(sum(side.sum() for side in sides))
    # One half of the runs chooses the test, and the other half bounds epsilon.
    test = choose_test((sides[0][:half], sides[1][:half]), delta, each)
    return RareVerdict(
        method="rare",
        form="corrected",
        claimed_epsilon=said.epsilon,
        proved_epsilon=said.epsilon,
        lower_bound=test.epsilon_lower_bound((sides[0][half:], sides[1][half:]), delta, each),
        delta=delta,
        confidence=confidence,
        replicates=runs,
        rounds=1,
        attack=f"whether {name}, is shown",
        why=f"every rare level or range has {RARE:g} rows, or one of them a row less",
        shown=shown,
        rate_bound=float(probability_lower_limit(shown, 2 * runs, 1.0 - each)),
    )
