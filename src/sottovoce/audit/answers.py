"""Audit of answers: bounded sums and recipes at worst-case pairs, under local trust and in sums.

An *item* is one release of a bounded sum (:class:`sottovoce.queries.Bounded`); a *recipe* is a list
of items from which an answer such as an interval is computed.  A *frame* is a public whitening
transform of rows.  The page is docs/explanation/audit.md.

Rows have three entries, the last a constant, and the tables differ in one row of the smallest of
three sites.  A single release is Gaussian, so the epsilon of its pair is also known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..algorithms.items import Item
from ..algorithms.once import Once
from ..algorithms.recipe import Recipe
from ..answers.description import Description
from ..answers.evaluation import Histogram
from ..answers.inference import newton_from_naming
from ..answers.least_squares import slopes_from_naming
from ..answers.rates import RateSteps
from ..answers.regression import LeastSquares
from ..answers.survey import Survey
from ..answers.survival_curves import ExitCounts
from ..answers.terms import naming_from_columns
from ..data.rows import Rows
from ..privacy.events import GaussianMechanism
from ..privacy.gaussian import gaussian_epsilon, gaussian_mu
from ..problem.losses import HuberResidual, Logistic, Loss
from ..problem.weighted_loss import Weighted
from ..queries import (
    AtBounds,
    Bounded,
    Cells,
    Corrections,
    Curvature,
    Exits,
    FramedCurvature,
    FramedMoments,
    FramedResiduals,
    FramedSlopes,
    FramedSteps,
    Gradient,
    HuberGradient,
    Lengths,
    LevelSums,
    NoisyBounded,
    NumberSums,
    Positives,
    Products,
    RateGradient,
    RateHessian,
    RateSlopes,
    RateTotals,
    ResidualMoments,
    Residuals,
    RowMean,
    Scores,
    SecondMoments,
    SlopeMoments,
    TableSums,
)
from ..queries.corrections import ORDER, STATISTICS, Curves
from ..runs.centre import Centring
from ..runs.config import RunConfig
from ..util.typing import Any, Array
from .game import (
    DEFAULT,
    Attack,
    Case,
    Options,
    Transcripts,
    Verdict,
    candidates,
    judge_best_attack,
    likelihood_attack,
    record_transcripts,
    score_all_attacks,
)
from .likelihood import exact_honest_sums
from .several import WorstVerdict, play_all_games

RUNS, QUICK_RUNS = 4_000, 1_000
MOVED = 2_000
"""Runs at most where every run has a map and a solver of its own."""
CORRECTED = 1_000
"""Runs at most of an evaluation: the points of its corrections are computed for every run."""
DELTA = 0.1
D, SITES = 3, (30, 40, 40)
"""Entries of a row, and rows of each site; the first is the victim."""
LAST = np.eye(D)[-1]
"""Marks the column of the constant, the last one."""
LOGISTIC = Logistic()


@dataclass(frozen=True)
class Given(Once):
    """A recipe that asks given items at one given public point.

    Attributes
    ----------
    asks : tuple of Item
        The items.
    where : array (d,)
        The point.
    """

    asks: tuple[Item, ...] = field(kw_only=True)
    where: Array = field(kw_only=True)

    @property
    def items(self) -> tuple[Item, ...]:
        return self.asks

    def point_of_release(self, d: int) -> Array:
        return self.where


@dataclass(frozen=True)
class RecipeCase(Case):
    """A pair of neighbouring tables, and the recipe that is asked about them."""

    before: RecipeCase | None = None
    """Releases about other rows.

    The claim for both is the larger price, as a row is in one of them only.
    """


@dataclass(frozen=True)
class Pair:
    """A sum at a public point, and the two values of the row in which the tables differ.

    Attributes
    ----------
    what : callable
        Makes the sum at a point.
    at : array (d,)
        The public point.
    rows : pair of array (d,)
        Signed row on table 0 and on table 1.
    numbers : pair of float, optional
        Number to predict of each, for sums of residuals.
    long : bool
        True if rows may be longer than the norm bound of 1.
    """

    what: Callable[[Array], Bounded]
    at: Array
    rows: tuple[Array, Array]
    numbers: tuple[float, float] | None = None
    long: bool = False


def _row_of_norm(*x: float, norm: float = 1.0) -> Array:
    """Return the row in the direction of `x`, of this norm, (d,)."""
    a = np.array(x)
    # Just inside the norm bound, so that rounding makes no row longer.
    return np.asarray(norm * a / (np.linalg.norm(a) * (1.0 + 1e-12)))


# Rows along the first two axes, and tilted against the constant; their names say where they point.
_E0, _E1, _ZERO = _row_of_norm(1, 0, 0), _row_of_norm(0, 1, 0), np.zeros(D)
_TILT = np.array([0.0, 0.0, -0.1])
_STEEP = np.array([0.0, 0.0, 400.0])
"""A point at which derivatives of both tilted rows are at their bound."""
_LEFT, _RIGHT = _row_of_norm(*(_E0 + _TILT)), _row_of_norm(*(-_E0 + _TILT))
_DOWN = _row_of_norm(*(_E1 + _TILT))
_FRAME = np.diag([3.0, 3.0, 1.0])[None]
"""A frame in which these rows are longer than 1."""
_NO_FRAME = np.eye(D)[None]
_ACROSS = (_row_of_norm(1, 1, 0), _row_of_norm(1, -1, 0))
"""Rows whose moments differ off the diagonal."""


def _corrections(at: Array) -> Corrections:
    """Make corrections of scores to which two rows of opposite scores add opposite parts.

    Public numbers are such that only the statistic of a score's place within its cell counts: one
    row adds one half there, the other minus one half.
    """
    one = np.ones((1, 1))
    edges = np.array([-10.0, 0.0, 10.0])
    curves = Curves(
        level=one,
        slope=one,
        base=one,
        shift=one,
        reach=one,
        worth=np.zeros((1, 1, 4)),
        order=np.ones((1, 1, 2, 4)),
        tails=np.ones((1, 1, 2)),
    )
    units = np.full((1, 1, STATISTICS), 1e6)
    units[..., ORDER] = 1e-3
    return Corrections(at, LAST, edges, None, curves, np.zeros((1, 1, 2, 4, STATISTICS)), units)


LEVELS = (LevelSums(1, math.sqrt(0.5)), LevelSums(2, math.sqrt(0.5)))
"""Blocks of a descriptive table with one column of levels."""
NUMBERS = (LevelSums(1, 1e-3), NumberSums(np.zeros(1), math.sqrt(1.0 - 1e-6)))
"""Blocks of one with a number, and next to nothing for the count of rows."""
# Rows of rates have a constant, the time seen and the events, as parts of their bounds: somebody
# seen for all of the time without an event, for none with all events, and for none without.
_SEEN, _COUNTED, _UNSEEN = np.array([1.0, 1, 0]), np.array([1.0, 0, 1]), np.array([1.0, 0, 0])
_CERTAIN = np.array([math.log(4.0), 0.0, 0.0])
"""A point at which four events are expected of whoever is seen: twice the cap."""
_COUNTS: dict[str, Any] = {
    "most": 2.0,
    "dated": False,
    "frame": np.zeros((1, 0, 1)),
    "lift": 1.0,
    "cap": 2.0,
}

PAIRS: dict[str, Pair] = {
    "gradient": Pair(Gradient, _STEEP, (_LEFT, _RIGHT)),
    "gradient, short rows": Pair(Gradient, _STEEP, (0.5 * _LEFT, 0.5 * _RIGHT), long=True),
    "second moments": Pair(SecondMoments, _ZERO, _ACROSS),
    "second moments, long rows": Pair(SecondMoments, _ZERO, (4.0 * _E0, 4.0 * _E1), long=True),
    "Hessian": Pair(Curvature, _ZERO, _ACROSS),
    "Hessian, curvatures cut": Pair(partial(Curvature, most=0.1), _ZERO, (_E0, _E1)),
    "moments of derivatives": Pair(SlopeMoments, _STEEP, (_LEFT, _DOWN)),
    "Hessian in a frame": Pair(
        partial(FramedCurvature, most=0.1, frame=_FRAME), _ZERO, _ACROSS, long=True
    ),
    "second moments in a frame": Pair(partial(FramedMoments, frame=_FRAME), _ZERO, (_E0, _E1)),
    "moments of derivatives in a frame": Pair(
        partial(FramedSlopes, frame=_NO_FRAME), _STEEP, (_LEFT, _DOWN)
    ),
    "moments of residuals in a frame": Pair(
        partial(FramedResiduals, h=0.5, frame=_NO_FRAME), _ZERO, (_E0, _E1), (1.0, -1.0)
    ),
    "Huber step in a frame": Pair(
        partial(FramedSteps, h=0.5, frame=_NO_FRAME), _ZERO, (_E0, _E0), (1.0, -1.0)
    ),
    "numbers at their bounds": Pair(
        partial(AtBounds, constant=LAST), _ZERO, (LAST, LAST), (-1.0, 1.0)
    ),
    "lengths of rows": Pair(
        partial(Lengths, frame=_FRAME, edges=np.array([2.0])), _ZERO, (_E0, 0.25 * _E1)
    ),
    "count of positives": Pair(
        partial(Positives, constant=LAST), _ZERO, (_row_of_norm(0, 0, 1), _row_of_norm(0, 0, -1))
    ),
    "scores": Pair(
        partial(Scores, constant=LAST, edges=np.array([0.0])),
        _E0,
        (_row_of_norm(1, 0, 1), _row_of_norm(-1, 0, 1)),
    ),
    "corrections of scores": Pair(
        _corrections, _E0, (_row_of_norm(1, 0, 1), _row_of_norm(-1, 0, 1))
    ),
    "Huber step": Pair(partial(HuberGradient, h=0.5), _ZERO, (_E0, _E0), (1.0, -1.0)),
    "cross moments": Pair(Products, _ZERO, (_E0, _E0), (1.0, -1.0)),
    "mean of rows": Pair(
        partial(RowMean, constants=(D - 1,)),
        _ZERO,
        (_row_of_norm(1, 0, 1e-4), _row_of_norm(-1, 0, 1e-4)),
    ),
    "residuals": Pair(
        partial(Residuals, constant=LAST, edges=np.array([0.5])), _ZERO, (LAST, LAST), (0.1, 0.9)
    ),
    "coarse counts": Pair(
        partial(Cells, widths=(2,) * D), _ZERO, (np.ones(D), np.full(D, 2.0)), long=True
    ),
    "table by group": Pair(
        partial(TableSums, groups=2, blocks=LEVELS),
        _ZERO,
        (np.ones(D), np.array([2.0, 1.0, 2.0])),
        long=True,
    ),
    "table of numbers": Pair(
        partial(TableSums, groups=2, blocks=NUMBERS),
        _ZERO,
        (np.ones(D), np.array([1.0, 1.0, -1.0])),
        long=True,
    ),
    "exits by time": Pair(
        partial(Exits, cells=4), _ZERO, (_row_of_norm(0, 0, 1, norm=0.25), _row_of_norm(0, 0, 1))
    ),
    "moments of residuals": Pair(partial(ResidualMoments, h=0.5), _ZERO, (_E0, _E1), (1.0, -1.0)),
    "gradient of rates": Pair(
        partial(RateGradient, **_COUNTS), _CERTAIN, (_SEEN, _COUNTED), long=True
    ),
    "Hessian of rates": Pair(
        partial(RateHessian, **_COUNTS), _CERTAIN, (_SEEN, _COUNTED), long=True
    ),
    "squares of gradients of rates": Pair(
        partial(RateSlopes, **_COUNTS), _CERTAIN, (_SEEN, _UNSEEN), long=True
    ),
    "events and time seen": Pair(
        partial(RateTotals, most=2.0, dated=False), _ZERO, (_SEEN, _COUNTED), long=True
    ),
}
"""The pair that moves each kind of release furthest, and pairs of long rows."""
TRUSTS = ("nobody", "sum")


def tables(pair: Pair, victims: int = 1, constant: float = 0.5) -> tuple[Rows, Rows]:
    """Build tables that differ in the first row of each of the first `victims` sites.

    Parameters
    ----------
    pair : Pair
        Values of that row.
    victims : int
        Number of sites that hold it.
    constant : float
        Last entry of all other signed rows, whose other entries are 0.

    Returns
    -------
    pair of Rows
        At sites of :data:`SITES` rows.
    """

    def build(table: int) -> Rows:
        signed = np.zeros((len(SITES), max(SITES), D))
        for i, n in enumerate(SITES):
            signed[i, :n] = [0.0, 0.0, constant]
        signed[:victims, 0] = pair.rows[table]
        rows = Rows(signed, np.array(SITES, dtype=float)[:, None], any_norm=pair.long)
        if pair.numbers is None:
            return rows
        targets = [np.full(n, 0.2) for n in SITES]
        for target in targets[:victims]:
            target[0] = pair.numbers[table]
        return rows.with_offset(targets)

    return build(0), build(1)


def release(name: str, pair: Pair, config: RunConfig, victims: int = 1) -> RecipeCase:
    """Make the case of one release that spends the whole budget.

    Parameters
    ----------
    name : str
        Of the release, for the report.
    pair : Pair
        The sum, and the row that moves it furthest.
    config : RunConfig
        Budget and trust.
    victims : int
        Number of sites at which a person has that row.

    Returns
    -------
    RecipeCase
    """
    loss: Loss = LOGISTIC
    if pair.numbers is not None:
        loss = HuberResidual(1.0)
    if pair.long:
        loss = Weighted(loss)
    return RecipeCase(
        replace(config, sites_per_row=victims),
        tables(pair, victims),
        0,
        f"{name}: the row that moves it furthest",
        method=Given(asks=(Item(name, pair.what, 1.0),), where=pair.at),
        loss=loss,
    )


def recipe_cases(config: RunConfig) -> dict[str, RecipeCase]:
    """Make cases of whole recipes, at points that follow from earlier answers."""
    naming = naming_from_columns(["x0", "x1"], 1.0)
    why = "a row whose answer is replaced by its opposite"
    flipped = Pair(Gradient, _ZERO, (_row_of_norm(1, 0, 1), _row_of_norm(1, 0, -1)))
    numbers = Pair(Products, _ZERO, (_row_of_norm(0, 0, 1),) * 2, (1.0, -1.0))
    score = 2.0 * np.eye(D)[0, :-1]
    residual = HuberResidual(1.0)

    def case(pair: Pair, method: Recipe, loss: Loss = LOGISTIC) -> RecipeCase:
        return RecipeCase(config, tables(pair), 0, why, method=method, loss=loss)

    survey = Survey(cells=(2,) * D, grids=b"")
    table = Description(groups=2, blocks=(LevelSums(2, 1.0),), contents=b"", sites=2)
    rates = RateSteps(edges=(0.0, 1.0), most=2.0, dated=False, value=1.0, marks=np.zeros(1))
    return {
        "inference": case(flipped, newton_from_naming(naming)),
        "evaluation": case(flipped, Histogram(judged=b"", weights=score)),
        "survey": case(PAIRS["coarse counts"], survey, Weighted(LOGISTIC)),
        "descriptive table": case(PAIRS["table by group"], table, Weighted(LOGISTIC)),
        "survival curves": case(PAIRS["exits by time"], ExitCounts(cells=4, question=b"")),
        "regression": case(numbers, LeastSquares(constant=LAST, free=np.ones(D)), residual),
        "regression with intervals": case(numbers, slopes_from_naming(naming), residual),
        "rates": case(PAIRS["gradient of rates"], rates, Weighted(LOGISTIC)),
    }


def held_out(config: RunConfig, trained: bool = False) -> RecipeCase:
    """Make the case of a gradient of training rows, followed by scores of held-out rows.

    With `trained` the fault is planted that both read the row that differs.
    """
    rows = PAIRS["gradient"].rows
    # Correctly the training rows are alike on both tables; the fault lets them differ, too.
    training_rows = rows if trained else (rows[0], rows[0])
    training = replace(PAIRS["gradient"], rows=training_rows)
    return replace(
        release("scores", replace(PAIRS["scores"], rows=rows), config),
        before=release("gradient", training, config),
        why="a held-out row; the training rows are the same",
    )


def centred_training_case(config: RunConfig) -> RecipeCase:
    """Make the case of a mean of rows, followed by a training on rows centred by it.

    The tables differ in a row and its opposite, of almost no constant.  Such a row is as long as a
    row may be, before and after it is moved, so both releases change by all that they may.  All
    other rows have the other label: were they moved by a mean that tells more, their gradients
    would add to it.  The mean gets a larger share of the squared sensitivity over sigma than any
    run gives it, so that a mean which is not charged shows.
    """
    share = 0.75
    mu = gaussian_mu(float(np.max(config.epsilon)), config.delta or 0.0)
    # Squared shifts over sigma add, so the mean gets the root of its share.
    mean = Centring((D - 1,), 0.5, 2.0, mu * math.sqrt(share), share)
    run = RunConfig(
        "momentum",
        trust=config.trust,
        epsilon=config.epsilon,
        delta=config.delta,
        rounds=2,
        eta=1e6,
        rho=0.02,
        loss="huber:0.5",
        graph="complete",
    )
    why = "a row and its opposite, which move the mean and every gradient by as much as a row may"
    return RecipeCase(run, tables(PAIRS["mean of rows"], constant=-0.5), 0, why, centring=mean)


def all_answer_cases(
    epsilon: float | None = None, delta: float | None = None
) -> dict[str, RecipeCase]:
    """Make all cases: releases, recipes, and training with held-out rows and with centred ones.

    Parameters
    ----------
    epsilon, delta : float, optional
        Of the claims; by default 1 and :data:`DELTA`.

    Returns
    -------
    dict of str to RecipeCase
        By name; names of sums over sites end in ", summed".
    """
    if epsilon is None:
        epsilon = 1.0
    if delta is None:
        delta = DELTA
    found: dict[str, RecipeCase] = {}
    for trust in TRUSTS:
        config = RunConfig(method="auto", trust=trust, epsilon=epsilon, delta=delta)
        summed = config.trusted.opens_sums
        mark = ", summed" if summed else ""
        found |= {name + mark: release(name, pair, config) for name, pair in PAIRS.items()}
        found |= {name + mark: case for name, case in recipe_cases(config).items()}
        found["held-out rows" + mark] = held_out(config)
        found["centred training" + mark] = centred_training_case(config)
        if summed:
            # One of three sites colludes, so a person at two of them has all other rows.
            name = "cross moments"
            found[f"{name}, two sites"] = release(name, PAIRS[name], config, victims=2)
    return found


def shift(case: RecipeCase, seen: Transcripts) -> float:
    """Return the distance between the tables' exact answers over sigma (mu of GDP).

    For a case of one release.
    """
    if seen.opened:
        # The adversary sees the honest sites' sum alone, with all of their noise.
        middles, deviation = exact_honest_sums(
            seen.opened[0], case.tables, seen.facts, case.make_table_solver, case.colluding_sites
        )
        return float(np.linalg.norm((middles[1] - middles[0])[0, 0])) / deviation
    query, _ = seen.asked[0]
    event = query.event(seen.facts)
    assert isinstance(query, NoisyBounded) and isinstance(event, GaussianMechanism)
    first, second = (one.noise_free_answer(one.cut(query)) for one in candidates(case, seen.facts))
    return float(np.linalg.norm((second - first)[0, 0]) / event.sigma[case.victim])


def play_answer_case(
    case: RecipeCase, replicates: int = RUNS, *, seed: int = 0, confidence: float = 0.95
) -> Verdict:
    """Play one case; single releases also get their exact epsilon.

    Parameters
    ----------
    case : RecipeCase
    replicates : int
        Runs on each table.
    seed : int
        Of the simulated noise.
    confidence : float
        Probability that the bound is true, at least.

    Returns
    -------
    Verdict
        ``exact_epsilon`` is that of a Gaussian release with the sensitivity over sigma of the
        pair; None for recipes of several releases.
    """
    parts = (case,) if case.before is None else (case.before, case)
    seen = [
        (
            record_transcripts(one, 0, replicates, seed + k),
            record_transcripts(one, 1, replicates, seed + k + 1000),
        )
        for k, one in enumerate(parts)
    ]
    found = score_all_attacks(case, seen[-1])
    if case.before is not None:
        # Their noise is independent, so the log likelihood ratios of both releases add.
        before, after = (
            likelihood_attack(one, pair).scores for one, pair in zip(parts, seen, strict=True)
        )
        together = (before[0] + after[0], before[1] + after[1])
        found = [Attack("likelihood ratio", together, 0)]
    exact = None
    if all(one.method is not None and len(one.method.items) == 1 for one in parts):
        # Gaussian releases compose exactly: their shifts over sigma add in squares.
        mu = math.hypot(*(shift(one, pair[0]) for one, pair in zip(parts, seen, strict=True)))
        exact = gaussian_epsilon(case.config.delta or 0.0, mu)
    said = judge_best_attack(case, [one for pair in seen for one in pair], found, confidence)
    return replace(said, exact_epsilon=exact, rounds=said.releases)


def play(asked: Options = DEFAULT, stands: Mapping[str, RecipeCase] | None = None) -> WorstVerdict:
    """Play every case, and return the verdict that is worst for its claim.

    `rounds` has no meaning here: a recipe has a fixed number of releases.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to RecipeCase, optional
        The cases to play; by default :func:`all_answer_cases`.

    Returns
    -------
    WorstVerdict
    """
    if stands is None:
        stands = all_answer_cases(asked.epsilon, asked.delta)

    def play_case(case: RecipeCase, each: float) -> Verdict:
        runs = asked.replicates or RUNS
        if case.centring is not None:
            runs = min(runs, MOVED)
        if isinstance(case.method, Histogram):
            runs = min(runs, CORRECTED)
        return play_answer_case(case, runs, seed=asked.seed, confidence=each)

    return play_all_games("answers", stands, asked.confidence, play_case)
