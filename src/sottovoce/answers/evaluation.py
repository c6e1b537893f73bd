"""Differentially private evaluation of a two-class model on held-out rows (docs/privacy/answers.md,
"Evaluation").

The recipe :class:`Histogram` asks for a noisy histogram of the model's scores by label, with public
cells that have equal width in logits around the base rate, and for two corrections of it.
:func:`qualities` estimates the metrics of :mod:`sottovoce.answers.metrics` and the calibration of
:mod:`sottovoce.answers.recalibration` from these.  :mod:`sottovoce.answers.judging` runs it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..algorithms.items import Answer, Item, Script
from ..algorithms.recipe import Recipe
from ..data.columns import Bins, Category
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import InvalidInput
from ..privacy.statement import Statement
from ..problem.facts import Among, Facts
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..queries import Bounded, Corrections, Positives, Scores
from ..queries.corrections import ORDER, STATISTICS, Curves
from ..runs.config import RunConfig
from ..runs.pricing import Prepared
from ..util.later import Later
from ..util.typing import Array
from . import recalibration
from .metrics import CELLS, LEAST, WIDTH, Order, Quality, estimate_quality
from .recalibration import EDGES, Block, Corrected
from .released import ReleasedEvaluation
from .terms import name_of_reference

special = Later("scipy.special")

LOSS = Weighted(Logistic())
"""Rows need a loss; this one allows rows of any norm.  The counts do not depend on it."""


class Level(NamedTuple):
    """A declared level of a column, as a subgroup of the evaluation."""

    name: str
    feature: int | None  # number of the encoded column that marks it; None for the reference


def build_scored_rows(parts: Sequence[tuple[Array, Array]]) -> Rows:
    """Construct held-out rows from each site's encoded columns (n, d) and labels (n,).

    Labels are -1, 1, or 0 for none; a constant column is appended.
    """
    found = []
    for X, y in parts:
        with_constant = np.hstack([X, np.ones((len(X), 1))])
        # a row without a label becomes a zero row, which is in no cell
        found.append((with_constant * np.abs(y)[:, None], y))
    return Rows.build_with_any_norm(found)


def subgroup_masks(levels: Sequence[Level], d: int) -> Array | None:
    """Return one-hot masks over d columns, (g, d), of the g levels that have a column; or None."""
    marked = [level.feature for level in levels if level.feature is not None]
    if not marked:
        return None
    return np.eye(d)[marked]


def subgroup_levels(schema: Schema | None, by: str | None) -> tuple[Level, ...]:
    """Return the levels of the column named `by`, which are the subgroups; empty without `by`.

    InvalidInput if the schema declares no levels for it.
    """
    if by is None:
        return ()
    blocks: Sequence[Any] = ()
    if schema is not None:
        blocks = schema.blocks
    first = 0
    for block in blocks:
        if block.name == by and isinstance(block, Bins | Category):
            named = [Level(name, first + k) for k, name in enumerate(block.feature_names)]
            rest = f"{by}: others"
            if block.base is not None:
                rest = name_of_reference(block)
            return (*named, Level(rest, None))
        first += len(block.feature_names)
    known = [block.name for block in blocks if isinstance(block, Bins | Category)]
    remedy = "leave it out"
    if known:
        remedy = f"use one of {', '.join(known[:8])}"
    raise InvalidInput("by", by, "must be a column for which the schema declares levels", remedy)


def check_threshold(threshold: float) -> None:
    """Check that a threshold is inside (0, 1); InvalidInput."""
    if not 0.0 < threshold < 1.0:
        raise InvalidInput("threshold", threshold, "must be inside (0, 1)", "use 0.5")


@dataclass(frozen=True)
class Held:
    """Options of an evaluation on held-out rows.

    Parameters
    ----------
    epsilon : float
        Privacy loss of each held-out row, > 0; no other release reads these rows.
    threshold : float
        Probability, in (0, 1), from which on a row is called positive.
    by : str, optional
        A column of the schema, whose levels are the subgroups.
    """

    epsilon: float
    threshold: float = 0.5
    by: str | None = None

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InvalidInput("evaluation", self.epsilon, "must be an epsilon above 0", "use 0.5")
        check_threshold(self.threshold)

    def check_without_subgroups(self) -> None:
        """Refuse subgroups and a threshold, which only labels of two classes have; InvalidInput."""
        rule, remedy = "needs a label with two classes", "leave it out"
        if self.by != Held.by:
            raise InvalidInput("by", self.by, rule, remedy)
        if self.threshold != Held.threshold:
            raise InvalidInput("threshold", self.threshold, rule, remedy)

    def evaluation_config(self, run: RunConfig, method: Recipe) -> RunConfig:
        """Return the configuration of the evaluation's recipe: that of the training `run`, with its
        own epsilon and a seed that gives other noise.
        """
        seed = run.seed
        if seed is not None:
            # With the training's own seed the two would have noise in common.
            digest = hashlib.blake2b(f"{seed} evaluation".encode(), digest_size=6).digest()
            seed = int.from_bytes(digest, "big")
        return run.for_recipe(method, epsilon=float(self.epsilon), seed=seed, replicates=1)


@dataclass(frozen=True, repr=False)
class Evaluation(ReleasedEvaluation):
    """Released quality by subgroup, with exact numbers that only the data owner may see.

    `asked` has the name of every release with its share of the budget.
    """

    quality: dict[str, Quality]  # by level's name; of all rows under ""
    statement: Statement
    exact: dict[str, float]  # metrics without noise
    asked: list[dict[str, Any]] = field(default_factory=list)

    def released(self) -> dict[str, Any]:
        """Return the released results as plain data."""
        by_group = {name: found.to_dict() for name, found in self.quality.items() if name}
        return {
            **self.quality[""].to_dict(),
            "privacy": self.statement.to_dict(),
            "asked": self.asked,
            "by": by_group,
        }


_HISTOGRAM, _SECOND_CORRECTION = 1, 3
"""Positions of two releases in :attr:`Histogram.items`."""


class Cells(NamedTuple):
    """Outcome of :class:`Histogram`, for R replicates.

    Parameters
    ----------
    cell_shares : array (R, groups, 2, CELLS)
        Noisy shares of rows, by group, label and cell.
    center : array (R,)
        Middle of the cells, in logits.
    rows : float
        Public number of rows.
    spread : float
        Standard deviation of the noise on each share.
    corrected : list
        ``corrected[r][b]`` are the first and the second correction of replicate r and block b (all
        rows, then each subgroup if there are several).
    """

    cell_shares: Array
    center: Array
    rows: float
    spread: float
    corrected: list[list[list[Corrected]]]


@dataclass(frozen=True)
class Histogram(Recipe):
    """Noisy histogram of a public model's scores by label, with two corrections of it.

    The base rate is asked first, to place the cells.  Rows are those of :func:`build_scored_rows`;
    the outcome is :class:`Cells`.

    Parameters
    ----------
    judged : bytes
        Digest of the public model (:func:`sottovoce.util.plain.digest_public_values`): where rows
        hold its scores already, nothing else in the recipe distinguishes two models.
    weights : array (d - 1,), optional
        Scores are products of rows with it; only a plan, which is priced and not run, has none.
    threshold : float
        Probability, in (0, 1), that is put on an edge of the cells.
    groups : array (g, d), optional
        Masks of the subgroups, by :func:`subgroup_masks`.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    All metrics are post-processing.  The judged model is public.
    """

    judged: bytes = field(kw_only=True)
    weights: Array | None = None
    threshold: float = 0.5
    groups: Array | None = None

    name: ClassVar[str] = "histogram"
    summary: ClassVar[str] = "quality of a public model of two classes, by a histogram of scores"
    budget_shares: ClassVar[tuple[float, ...]] = (0.02, 0.84, 0.04, 0.10)
    """Budget shares of the items, in order.

    The base rate need only be coarse, as it only places the cells.  All metrics follow from the
    histogram, which gets nearly everything.  Corrections need little, as their sensitivity is a
    fraction of that of whole scores, and the first ones need least: they only lead to the point of
    the second, from which the calibration is estimated (docs/privacy/answers.md, "Evaluation").
    """

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    @property
    def items(self) -> tuple[Item, ...]:
        """Releases in the order of :meth:`script`: name, query, and share of the budget."""
        count, histogram, first, second = self.budget_shares
        return (
            Item("count of positives", self._count_query, count),
            Item("scores", self._scores_query, histogram),
            Item("first correction of scores", self._corrections_query, first),
            Item("second correction of scores", self._corrections_query, second),
        )

    def _count_query(self, at: Array) -> Positives:
        """Return the query for the share of positives: the base rate."""
        return Positives(at, _constant_column(at))

    def _scores_query(self, at: Array) -> Scores:
        """Return the query for the histogram of scores, which are products of rows with `at`."""
        return Scores(at, _constant_column(at), EDGES, self.groups)

    def _corrections_query(self, at: Array) -> Corrections:
        """Return the query for corrections of that histogram, without a point yet."""
        return Corrections(at, _constant_column(at), EDGES, self.groups)

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the releases in order, and return :class:`Cells`.

        The steps: place the cells by the noisy base rate, ask for the histogram, and correct it
        twice, each time at the points where the answers so far lead.
        """
        assert self.weights is not None
        at = np.tile(np.append(self.weights, 0.0), (replicates, 1))
        count = yield self._count_query(at)
        # Noise may leave no positives, or no others: the base rate is kept away from 0 and 1.
        least = min(0.5, max(1.0 / count.rows, 2.0 * count.spread))
        base = special.logit(np.clip(count.value[:, 0], least, 1.0 - least))
        cut = float(special.logit(self.threshold))
        # Cells are centred near the base rate's logit, with the threshold on an edge.
        center = cut + WIDTH * np.rint((base - cut) / WIDTH)
        at = np.hstack([at[:, :-1], -center[:, None]])
        histogram = yield self._scores_query(at)
        rows, spread = histogram.rows, histogram.spread
        cell_shares = histogram.value.reshape(replicates, -1, 2, CELLS)
        blocks = [
            recalibration.blocks_of(rows * shares, rows * spread, rows) for shares in cell_shares
        ]
        # The reach (how far out rows count in full) is chosen with the first points, and kept.
        # Standard errors follow from the second corrections, so it is chosen by their noise, in
        # rows.  With subgroups a row is in two blocks and counts by 1 / sqrt(2) in each.
        deviation = self.releases_with_noise.noise_deviation(
            _SECOND_CORRECTION, facts, histogram.among
        )
        second_noise = rows * deviation * math.sqrt(min(len(blocks[0]), 2))
        points = [
            [
                recalibration.first_point(block, float(middle), second_noise)
                for block in of_replicate
            ]
            for of_replicate, middle in zip(blocks, center, strict=True)
        ]
        # Two steps of Newton's method on the score equations, each by corrections at its point.
        first = yield from self._ask_corrections(at, blocks, points)
        points = [
            [recalibration.second_point(block, answer) for block, answer in zip(*pair, strict=True)]
            for pair in zip(blocks, first, strict=True)
        ]
        second = yield from self._ask_corrections(at, blocks, points)
        answers = [
            [list(pair) for pair in zip(*both, strict=True)]
            for both in zip(first, second, strict=True)
        ]
        return Cells(cell_shares, center, rows, spread, answers)

    def _ask_corrections(
        self, at: Array, blocks: list[list[Block]], points: list[list[Curves]]
    ) -> Generator[Bounded, Answer, list[list[Corrected]]]:
        """Ask for the corrections at the point of each block of every replicate.

        `blocks` and `points` are indexed by replicate and block, as the returned corrections are.
        """
        values = [[recalibration.values_of(curve) for curve in own] for own in points]
        units = [
            [recalibration.units_of(*pair) for pair in zip(*both, strict=True)]
            for both in zip(points, values, strict=True)
        ]
        query = replace(
            self._corrections_query(at),
            curves=recalibration.stacked(points),
            values=np.array(values),
            units=np.array(units),
        )
        answer = yield query
        # Undoes the units, and the 1 / sqrt(2) of rows that are in two blocks.
        scale = answer.rows * np.array(units) * math.sqrt(min(query.blocks, 2))
        sums = list(answer.value.reshape(len(points), -1, STATISTICS) * scale)
        noise = list(answer.spread * scale)
        return [
            [recalibration.corrected(*one) for one in zip(*own, strict=True)]
            for own in zip(blocks, points, values, sums, noise, strict=True)
        ]


def _constant_column(at: Array) -> Array:
    """Return the mask of the last column, which holds the constant, (d,)."""
    return np.eye(at.shape[-1])[-1]


def check_held_out_rows(prepared: Prepared) -> None:
    """Check that held-out rows would suffice for an AUC if both classes were equally frequent.

    InvalidInput if not; `prepared` is the priced plan of the evaluation.
    """
    method, facts = prepared.algorithm, prepared.facts
    assert isinstance(method, Histogram)
    n = float(facts.n.sum())
    # The histogram has counts by subgroup, label and cell.
    groups = method.releases_with_noise.entries_of_answers(facts)[_HISTOGRAM] // (2 * CELLS)
    # An area needs `LEAST` deviations of a count in the rarer class: half of the rows at best.  The
    # deviation is that of a share of the n rows in one subgroup; a count of all rows is the sum
    # over subgroups.
    needed = (
        2.0
        * LEAST
        * n
        * method.releases_with_noise.noise_deviation(_HISTOGRAM, facts, Among.all_sites(facts))
        * math.sqrt(groups)
    )
    if n < needed:
        rule = (
            f"{n:,.0f} held-out rows are too few for this noise: about {math.ceil(needed):,} "
            "would suffice"
        )
        remedy = "hold out more, or raise the evaluation's epsilon"
        raise InvalidInput("holdout", None, rule, remedy)


def qualities(
    cells: Cells, threshold: float = 0.5, levels: Sequence[Level] = ()
) -> list[dict[str, Quality]]:
    """Estimate the quality of each replicate's model, overall and by subgroup.

    Parameters
    ----------
    cells : Cells
        Outcome of :class:`Histogram` with this threshold and with the masks of these levels.
    threshold : float
        Probability, in (0, 1), from which on a row is called positive.
    levels : sequence of Level
        The subgroups.

    Returns
    -------
    list of dict of str to Quality
        For each replicate, by level's name; overall under ``""``.
    """
    n, sigma = cells.rows, cells.rows * cells.spread
    out = []
    for r, (shares, middle) in enumerate(zip(cells.cell_shares, cells.center, strict=True)):
        blocks = recalibration.blocks_of(n * shares, sigma, n)
        found = []
        for b, block in enumerate(blocks):
            # The number of all rows is public; that of a group's is a noisy count.
            public_rows = None
            if b == 0:
                public_rows = block.rows
            answers = cells.corrected[r][b]
            found.append(_block_quality(block, answers, float(middle), threshold, public_rows))
        # Blocks are all rows, those of the reference, and those of each marked level.
        parts = {"": found[0]}
        marked = [level for level in levels if level.feature is not None]
        parts |= {level.name: found[k + 2] for k, level in enumerate(marked)}
        parts |= {level.name: found[1] for level in levels if level.feature is None}
        out.append(parts)
    return out


def _block_quality(
    block: Block, answers: list[Corrected], middle: float, threshold: float, rows: float | None
) -> Quality:
    """Estimate the quality among the rows of a block.

    `answers` are its two corrections, `middle` is the middle of the cells in logits, and `rows` the
    number of rows if it is public.
    """
    recalibrated = recalibration.recalibrate(block, answers)
    order = Order(*recalibration.average_corrections(answers, ORDER))
    return estimate_quality(
        block.counts, block.sigma, middle + EDGES, threshold, rows, recalibrated, order
    )


def exact_metrics(scores: Array, y: Array, threshold: float = 0.5) -> dict[str, float]:
    """Compute metrics without noise, for the data owner only.

    Parameters
    ----------
    scores : array (n,)
        Log-odds by the model.
    y : array (n,)
        Labels -1 and 1, or 0 for rows to leave out.
    threshold : float
        Probability from which on a row is called positive.

    Returns
    -------
    dict of str to float
        ``rows`` alone without a labelled row; ``auc`` only if there are rows of both classes.
    """
    s, label = scores[y != 0], y[y != 0] > 0
    if not len(s):
        return {"rows": 0.0}
    positives, negatives = int(label.sum()), int((~label).sum())
    # The loss has the derivative -1 / (1 + e^z) at a margin z: at -s that is minus the chance.
    p = -Logistic().derivative(-s)
    found = {
        "rows": float(len(s)),
        "positives": positives / len(s),
        "brier": float(np.mean((p - label) ** 2)),
        "accuracy": float(np.mean((p >= threshold) == label)),
    }
    if positives and negatives:
        # The area is the Mann-Whitney statistic; equal scores share their mean rank.
        _, place, many = np.unique(s, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(many) - (many - 1) / 2.0)[place]
        least = positives * (positives + 1) / 2.0
        found["auc"] = (float(ranks[label].sum()) - least) / (positives * negatives)
    return found
