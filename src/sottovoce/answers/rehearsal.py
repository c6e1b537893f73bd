"""Runs of a recipe on synthetic rows, with the noise that a given number of rows would have; no
real row is read.

For :mod:`sottovoce.answers.forecast`.  Answers are means over rows, so a few thousand synthetic
rows stand for any number of rows.  That number sets the noise, and the sampling variance that the
recipe computes.  As the recipe's own script runs, all its decisions are part of the forecast.

How synthetic columns are distributed is a :class:`Habits`; every block of a schema (a number, a
category, bins) is a function of one normal number, and correlations are between these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from ..algorithms.items import Answer, play_script
from ..algorithms.recipe import Recipe
from ..data.columns import Bins, Category, Number
from ..data.rows import Rows
from ..data.schema import Schema
from ..problem.facts import Among, Facts
from ..problem.losses import Loss
from ..util.later import Later
from ..util.typing import Any, Array, BoolArray
from .terms import Naming, typical_entry

special = Later("scipy.special")

NINE_IN_TEN = 1.645
"""Standard deviations of a normal number on either side of its middle within which nine in ten
lie.
"""
MISSING = 0.1
"""Share of missing values of a number with an indicator."""


@dataclass(frozen=True)
class Habits:
    """How the columns of synthetic tables are distributed.

    Defaults are columns that fill their declared ranges and are uncorrelated.

    Parameters
    ----------
    related : float
        Correlations of neighbouring columns are uniform between minus this and this, in [0, 1).
    together : float
        Correlation of each number with the next number, in addition.
    width, varied : float
        Width of the range of nine in ten values of a number, over its declared typical range:
        median, and standard deviation of its logarithm between columns.
    bare, bare_varied : float
        The same over the bounds, for numbers with bounds alone (no typical range, not binary):
        their values are at the lower end of the bounds.
    skewed, skewed_varied : float
        A number is the exponential of a normal number with this standard deviation, shifted and
        scaled to the declared range: mean, and standard deviation between columns.  0 is symmetric;
        below 0 the long tail is at the lower end.
    uneven : float
        Shares of levels are in proportion to ``exp(uneven * z)`` with a normal number z for each
        level.
    marks : bool
        Whether numbers with bounds 0 and 1 are binary, with shares like those of two levels.
    effect, effect_varied : float
        Standard deviation of rows' scores, in log-odds: median, and standard deviation of its
        logarithm between tables.
    shares : mapping
        Known shares of levels, by column and level.
    """

    related: float = 0.0
    together: float = 0.0
    width: float = 1.0
    varied: float = 0.0
    bare: float = 1.0
    bare_varied: float = 0.0
    skewed: float = 0.0
    skewed_varied: float = 0.0
    uneven: float = 0.0
    marks: bool = False
    effect: float = 0.0
    effect_varied: float = 0.0
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


EVEN = Habits()
"""Ranges are filled as declared, levels are equally frequent, columns are uncorrelated, and labels
do not depend on them.
"""
DECLARED = Habits(effect=1.0)
"""The same, but labels depend on the columns: scores have a standard deviation of 1."""
REAL = Habits(
    related=0.8,
    bare=0.35,
    bare_varied=0.6,
    skewed=0.14,
    skewed_varied=0.36,
    uneven=1.15,
    marks=True,
    effect=1.1,
    effect_varied=0.7,
)
"""Habits of the real tables that bench/accuracy/habits.py names; it measures these numbers."""


def draw_synthetic_rows(naming: Naming, m: int, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw a synthetic table in encoded columns.

    Parameters
    ----------
    naming : Naming
    m : int
        Number of rows.
    rng : numpy.random.Generator
    habits : Habits
        How columns are distributed.

    Returns
    -------
    array (m, d)
        The last columns are the constants of sites, which have equally many rows on average.
    """
    columns = naming.d - max(1, len(naming.sites))
    if naming.schema is None:
        X = _of_numbers(columns, m, rng, habits)
    else:
        X = _of_schema(naming.schema, m, rng, habits)
    constants = naming.d - columns
    own = np.eye(constants)[rng.integers(constants, size=m)] * naming.value
    return np.hstack([X, own])


def _of_numbers(columns: int, m: int, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw normal columns without a schema, (m, columns): most rows are below the declared norm."""
    widths = np.array([_width(rng, habits) for _ in range(columns)])
    correlated = _correlated(m, np.ones(columns, dtype=bool), rng, habits)
    return typical_entry(columns) * widths * correlated


def _of_schema(schema: Schema, m: int, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw the encoded columns of a schema's blocks, (m, d), from one normal number each."""
    numbers = np.array([isinstance(block, Number) for block in schema.blocks], dtype=bool)
    latent = _correlated(m, numbers, rng, habits)
    parts = [np.empty((m, 0))]
    for block, z in zip(schema.blocks, latent.T, strict=True):
        if isinstance(block, Number):
            made = _numbers(block, z, rng, habits)
        else:
            made = _levels(block, z, rng, habits)
        parts.append(block.weight * made)
    return np.hstack(parts) / (schema.divisor * schema.slack)


def _correlated(m: int, numbers: BoolArray, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw correlated standard normal columns, (m, blocks); `numbers`, (blocks,), marks numbers."""
    Z = rng.normal(size=(m, len(numbers)))
    for one, next_one in pairwise(np.flatnonzero(numbers)):
        Z[:, next_one] = _beside(Z[:, one], Z[:, next_one], habits.together)
    along = habits.related * rng.uniform(-1.0, 1.0, size=len(numbers))
    for j in range(1, len(numbers)):
        Z[:, j] = _beside(Z[:, j - 1], Z[:, j], along[j])
    return Z


def _beside(one: Array, other: Array, correlation: float) -> Array:
    """Return a mixture of two uncorrelated columns that has this correlation with the first."""
    return correlation * one + math.sqrt(1.0 - correlation**2) * other


def _width(rng: np.random.Generator, habits: Habits, bare: bool = False) -> float:
    """Draw the width of the range of nine in ten values of a column, over its declared range.

    `bare` columns have bounds alone; see :class:`Habits`.
    """
    if bare:
        return habits.bare * math.exp(habits.bare_varied * rng.normal())
    return habits.width * math.exp(habits.varied * rng.normal())


def _skewed(z: Array, skewed: float) -> Array:
    """Return exponentials of ``skewed * z`` for standard normal z, scaled: nine in ten in [-1, 1].

    With `skewed` 0 they are normal.
    """
    if abs(skewed) < 1e-3:
        return z / NINE_IN_TEN
    low, high = np.exp(-skewed * NINE_IN_TEN), np.exp(skewed * NINE_IN_TEN)
    return np.asarray((2.0 * np.exp(skewed * z) - low - high) / (high - low))


def _is_mark(block: Number) -> bool:
    """Return whether a number is binary by its bounds: yes is 1 and no is 0."""
    return (block.lo, block.hi) == (0.0, 1.0) and block.typical in (None, (0.0, 1.0))


def _spread_out(block: Number, z: Array, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw the scaled values, (m,), of a non-binary number, from standard normal z, (m,)."""
    bare = block.typical is None and not _is_mark(block)
    width = _width(rng, habits, bare)
    middle = skewed = 0.0
    if bare:
        # Bounds alone are wide: values are at their lower end.
        middle = min(0.0, width - 1.0)
    else:
        skewed = habits.skewed + habits.skewed_varied * rng.normal()
    return np.asarray(np.clip(middle + width * _skewed(z, skewed), *block.scaled_bounds))


def _numbers(block: Number, z: Array, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw the encoded column of a number, (m, 1), from standard normal z, (m,).

    (m, 2) with the indicator of missing values, if it has one; a missing value has the entry 0.
    """
    if habits.marks and _is_mark(block):
        of_no = _shares(2, rng, habits)[0]
        x = np.where(z > special.ndtri(of_no), block.scaled_bounds[1], block.scaled_bounds[0])
    else:
        x = _spread_out(block, z, rng, habits)
    # Up to here x is in [-1, 1].
    if block.to != "[-1,1]":
        x = (x + 1.0) / 2.0
    if not block.indicator:
        return x[:, None]
    gone = rng.random(len(z)) < habits.shares.get(block.name, {}).get("missing", MISSING)
    return np.column_stack([np.where(gone, 0.0, x), block.indicator_value * gone])


def _shares(count: int, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw the shares of levels among all rows, (count,)."""
    sizes = np.exp(habits.uneven * rng.normal(size=count))
    return np.asarray(sizes / sizes.sum())


def _with_known(shares: Array, levels: Sequence[str], known: Mapping[str, float]) -> Array:
    """Replace the drawn shares of these levels by the known ones.

    Other levels share the rest in proportion.
    """
    told = np.array([known.get(level, np.nan) for level in levels])
    unknown = np.isnan(told)
    rest = max(0.0, 1.0 - float(np.nansum(told)))
    others = max(float(shares[unknown].sum()), 1e-300)
    found = np.where(unknown, shares * rest / others, told)
    return np.asarray(found / found.sum())


def _levels(block: Any, z: Array, rng: np.random.Generator, habits: Habits) -> Array:
    """Draw the encoded columns of a category or of bins, from standard normal z, (m,).

    Each level is an interval of z.
    """
    count = len(block.feature_names) + (block.base is not None)
    base = 0
    if isinstance(block, Category) and block.base is not None:
        base = [name for name, _ in block.values].index(block.base)
    elif isinstance(block, Bins) and block.base is not None:
        base = block.base
    drawn = _shares(count, rng, habits)
    # Levels have no order along z, bins have one.
    order = np.arange(count)
    if isinstance(block, Category):
        order = rng.permutation(count)
    shares = np.empty(count)
    shares[order] = drawn
    if isinstance(block, Category):
        shares = _with_known(shares, block.level_names, habits.shares.get(block.name, {}))
    edges = special.ndtri(np.cumsum(shares[order])[:-1])
    place = order[np.searchsorted(edges, z)]
    hot = np.eye(count)[place]
    return np.asarray(np.delete(hot, base, axis=1))


def draw_linear_scores(X: Array, marks: Array, rng: np.random.Generator) -> Array:
    """Draw linear scores of rows with random coefficients, of mean 0 and standard deviation 1.

    A level, against its reference, has an effect of the size of two standard deviations of a
    number.

    Parameters
    ----------
    X : array (m, d)
        Encoded rows.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    rng : numpy.random.Generator

    Returns
    -------
    array (m,)
    """
    spread = X.std(axis=0)
    unit = np.where(marks > 0.0, marks, 2.0 * spread)
    along = np.where(spread > 1e-9, rng.normal(size=X.shape[1]) / np.maximum(unit, 1e-9), 0.0)
    score = X @ along
    return np.asarray((score - score.mean()) / max(float(score.std()), 1e-12))


def positive_probabilities(score: Array, positives: float) -> Array:
    """Compute probabilities of a positive label, (m,), with the mean `positives`.

    Their log-odds are `score`, (m,), plus a constant.
    """
    # Bisection for the constant: the mean chance rises with it.
    low, high = -40.0, 40.0
    for _ in range(50):
        middle = (low + high) / 2.0
        if special.expit(score + middle).mean() < positives:
            low = middle
        else:
            high = middle
    return np.asarray(special.expit(score + low))


def with_curators_noise(recipe: Recipe, mu: float) -> Recipe:
    """Return the recipe with the noise of one curator of all rows.

    `mu` is the sensitivity over sigma of all answers together.
    """
    return replace(recipe, noise=replace(recipe.releases_with_noise.shape, factor=mu))


def facts_of_one_curator(loss: Loss, d: int, n: float, relation: str) -> Facts:
    """Return the public facts of one curator of n rows.

    Parameters
    ----------
    loss : Loss
    d : int
        Number of encoded columns.
    n : float
        Number of rows.
    relation : {"replace-one", "zero-out"}
        Neighbouring relation.

    Returns
    -------
    Facts
    """
    return Facts(
        loss=loss, n=np.array([[n]]), d=d, C=1.0, rho=1.0, n_nodes=1, relation=relation, pure=False
    )


def run_on_synthetic_rows(
    recipe: Recipe, rows: Rows, facts: Facts, replicates: int, rng: np.random.Generator
) -> Any:
    """Run a recipe on synthetic rows with the noise that it would have with the rows of the facts.

    Parameters
    ----------
    recipe : Recipe
        With its noise.
    rows : Rows
        Synthetic, of one node: answers are means over them.
    facts : Facts
        Of one node, with the number of rows for which there will be noise.
    replicates : int
        Number of draws of the noise.
    rng : numpy.random.Generator

    Returns
    -------
    object
        The recipe's outcome.
    """
    among = Among.all_sites(facts)
    sweep = rows.sweep_over_rows()
    if facts.loss.by_norm:
        sweep = sweep.with_known_norms()
    script = recipe.script(facts, replicates)
    m = float(rows.rows_per_node[0])
    # What the script says next: a query for each item, and after the last answer the outcome.
    said = next(script)
    for j in range(len(recipe.items)):
        at = np.ascontiguousarray(np.broadcast_to(said.at, (replicates, facts.d)))
        # Means over m rows stand for means over n rows: only the noise depends on n.
        exact = (
            sweep.sum_statistic(facts.loss, at[None], replace(said, at=at).sum_over_block)[0] / m
        )
        spread = recipe.releases_with_noise.noise_deviation(j, facts, among)
        answer = Answer(exact + spread * rng.normal(size=exact.shape), among, spread)
        said = play_script(script, [answer])
    return said
