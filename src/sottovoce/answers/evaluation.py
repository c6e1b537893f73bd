"""How good a model is, on rows that nobody shows: everything from one histogram of scores by label.

Rows held out at every site fall into public cells of their score, equal in logit within `REACH` of the base rate.  What
follows from the noisy counts is in :mod:`sottovoce.answers.metrics` (docs/privacy/answers.md, "Evaluation").
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..data.columns import Bins, Category
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import InvalidInput
from ..privacy.statement import Statement
from ..problem.facts import Among, Facts
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..queries import Positives, Scores
from ..runs.config import RunConfig
from ..runs.prepare import Prepared
from ..util.typing import Array
from .metrics import CELLS, LEAST, WIDTH, Quality, quality_of
from .terms import reference_of

LOSS = Weighted(Logistic())
"""Of the rows of an evaluation, which may be of any norm: counts do not depend on it."""


class Level(NamedTuple):
    """A declared level of a column, and the encoded feature that marks it; the last one, without, is the reference."""

    name: str
    feature: int | None


def rows_of(parts: Sequence[tuple[Array, Array]]) -> Rows:
    """Held-out rows of every site, from encoded columns and labels -1, 1, or 0 for none; a constant is appended."""
    return Rows.of_any_norm([(np.hstack([X, np.ones((len(X), 1))]) * np.abs(y)[:, None], y) for X, y in parts])


def groups_of(levels: Sequence[Level], d: int) -> Array | None:
    """Masks of the levels, for rows of d entries."""
    marked = [level.feature for level in levels if level.feature is not None]
    return np.eye(d)[marked] if marked else None


def levels_of(schema: Schema | None, by: str | None) -> tuple[Level, ...]:
    """The levels of a column with the features that mark them, in rows that the schema encodes.

    Raises
    ------
    InvalidInput
        If the schema declares no levels for the column.
    """
    if by is None:
        return ()
    first = 0
    for block in schema.blocks if schema is not None else ():
        if block.name == by and isinstance(block, Bins | Category):
            named = [Level(name, first + k) for k, name in enumerate(block.names)]
            rest = f"{by}: others" if block.base is None else reference_of(block)
            return (*named, Level(rest, None))
        first += len(block.names)
    known = [block.name for block in (() if schema is None else schema.blocks) if isinstance(block, Bins | Category)]
    use = f"use one of {', '.join(known[:8])}" if known else "leave it out"
    raise InvalidInput("by", by, "must be a column for which the schema declares levels", use)


def check_threshold(threshold: float) -> None:
    """Refuse what is no probability at which rows could be called positive.

    Raises
    ------
    InvalidInput
    """
    if not 0.0 < threshold < 1.0:
        raise InvalidInput("threshold", threshold, "must be inside (0, 1)", "use 0.5")


@dataclass(frozen=True)
class Held:
    """What is to be asked of held-out rows.

    Parameters
    ----------
    epsilon : float
        Of each held-out row; no other release reads it.
    threshold : float
    by : str, optional
        A column of the schema, whose levels are the subgroups.

    Raises
    ------
    InvalidInput
    """

    epsilon: float
    threshold: float = 0.5
    by: str | None = None

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InvalidInput("evaluation", self.epsilon, "must be an epsilon above 0", "use 0.5")
        check_threshold(self.threshold)

    def check_whole(self) -> None:
        """Refuse what only an evaluation of two classes has: subgroups and thresholds.

        Raises
        ------
        InvalidInput
        """
        for name, value, default in (("by", self.by, Held.by), ("threshold", self.threshold, Held.threshold)):
            if value != default:
                raise InvalidInput(name, value, "is for labels of two classes", "leave it out")

    def config(self, run: RunConfig, method: Recipe) -> RunConfig:
        """Of the releases, from that of the training: a budget of their own, and noise keyed apart.

        Raises
        ------
        InvalidInput
        """
        seed = run.seed
        if seed is not None:
            seed = int.from_bytes(hashlib.blake2b(f"{seed} evaluation".encode(), digest_size=6).digest(), "big")
        return run.for_recipe(method, epsilon=float(self.epsilon), seed=seed, replicates=1)


@dataclass(frozen=True)
class Evaluation:
    """What was released of held-out rows, with the exact numbers that only their holder may see.

    `asked` has the name of every release with its share of the budget.
    """

    quality: dict[str, Quality]
    statement: Statement
    exact: dict[str, float]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **self.quality[""].to_dict(), "exact": self.exact, "privacy": self.statement.to_dict(),
            "asked": self.asked,
            "by": {name: found.to_dict() for name, found in self.quality.items() if name},
        }  # fmt: skip


class Cells(NamedTuple):
    """What :class:`Histogram` finds, for R replicates.

    Attributes
    ----------
    shares : array (R, groups, 2, CELLS)
        Of rows, by group, label and cell.
    center : array (R,)
        The middle of the cells, in logits.
    rows : float
    spread : float
        Standard deviation of the noise on each share.
    """

    shares: Array
    center: Array
    rows: float
    spread: float


@dataclass(frozen=True)
class Histogram(Recipe):
    """Scores of a public model by label, on rows of :func:`rows_of`: a coarse base rate, then the histogram.

    Parameters
    ----------
    judged : bytes
        :func:`sottovoce.util.plain.digest_of` the public model: rows may hold its scores already, and then nothing else
        that is public tells one model from another.
    weights : array (d - 1,), optional
        Scores are products with it; a plan needs none.
    threshold : float
        A probability; the cells are laid so that it is on an edge.
    groups : array (g, d), optional
        Of :func:`groups_of`.

    Raises
    ------
    InvalidInput
    """

    judged: bytes = field(kw_only=True)
    weights: Array | None = None
    threshold: float = 0.5
    groups: Array | None = None

    name: ClassVar[str] = "histogram"
    summary: ClassVar[str] = "how good a public model of two classes is, by a histogram of scores"

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    @property
    def items(self) -> tuple[Item, ...]:
        edges: Array = np.asarray(WIDTH * (np.arange(1, CELLS) - CELLS / 2.0), dtype=np.float64)
        return (
            Item("count of positives", lambda at: Positives(at, _last(at)), 0.02),
            Item("scores", lambda at: Scores(at, _last(at), edges, self.groups), 0.98),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        assert self.weights is not None
        count, scores = (item.what for item in self.items)
        at = np.tile(np.append(self.weights, 0.0), (replicates, 1))
        told = yield count(at)
        least = min(0.5, max(1.0 / told.rows, 2.0 * told.spread))
        base, cut = logit(np.clip(told.value[:, 0], least, 1.0 - least)), float(logit(self.threshold))
        center = cut + WIDTH * np.rint((base - cut) / WIDTH)
        told = yield scores(np.hstack([at[:, :-1], -center[:, None]]))
        return Cells(told.value.reshape(replicates, -1, 2, CELLS), center, told.rows, told.spread)


def _last(at: Array) -> Array:
    return np.eye(at.shape[-1])[-1]


def check_rows(prepared: Prepared) -> None:
    """Refuse held-out rows of which no AUC could be printed, even with as many of one class as of the other.

    Raises
    ------
    InvalidInput
    """
    method, facts = prepared.algorithm, prepared.facts
    assert isinstance(method, Histogram)
    n, groups = float(facts.n.sum()), method.widths(facts)[1] // (2 * CELLS)
    needed = 2.0 * LEAST * n * method.spread(1, facts, Among.all(facts)) * math.sqrt(groups)
    if n < needed:
        rule = f"{n:,.0f} held-out rows are too few for this noise: about {math.ceil(needed):,} would do"
        raise InvalidInput("holdout", None, rule, "hold out more, or raise the evaluation's epsilon")


def qualities(cells: Cells, threshold: float = 0.5, levels: Sequence[Level] = ()) -> list[dict[str, Quality]]:
    """The quality of each replicate's model, overall and by level.

    Parameters
    ----------
    cells : Cells
        The outcome of :class:`Histogram` with this threshold, and with the masks of these levels.
    threshold : float
    levels : sequence of Level

    Returns
    -------
    list of dict of str to Quality
        By replicate; the key ``""`` is for all rows.
    """
    n, groups = cells.rows, cells.shares.shape[1]
    found, sigma = n * cells.shares, n * cells.spread
    out = []
    for raw, middle in zip(found, cells.center, strict=True):
        edges = middle + WIDTH * (np.arange(1, CELLS) - CELLS / 2.0)
        parts = {"": quality_of(raw.sum(axis=0), sigma * math.sqrt(groups), edges, threshold, n)}
        marked = [level for level in levels if level.feature is not None]
        for k, level in enumerate(marked):
            parts[level.name] = quality_of(raw[k + 1], sigma, edges, threshold)
        parts |= {level.name: quality_of(raw[0], sigma, edges, threshold) for level in levels if level.feature is None}
        out.append(parts)
    return out


def exact(scores: Array, y: Array, threshold: float = 0.5) -> dict[str, float]:
    """The same of rows without noise: for public rows, and for their holder.

    Parameters
    ----------
    scores : array (n,)
        Log-odds.
    y : array (n,)
        -1, 1, or 0 for rows to leave out.
    """
    s, label = scores[y != 0], y[y != 0] > 0
    P, N = int(label.sum()), int((~label).sum())
    ranks = stats.rankdata(s)
    area = (float(ranks[label].sum()) - P * (P + 1) / 2.0) / (P * N) if P and N else math.nan
    p = expit(s)
    return {
        "rows": float(len(s)), "positives": P / max(1, len(s)), "auc": area,
        "brier": float(np.mean((p - label) ** 2)), "accuracy": float(np.mean((p >= threshold) == label)),
    }  # fmt: skip
