"""Synthetic tables, drawn from public facts alone, on which methods are tried in advance.

`auto`, which chooses a method, and the accuracy forecasts draw them.  Rows come from a *sketch*, a
function that draws n rows: from a schema, like given public rows, or, where only the number of
features is known, of a few kinds.  Labels follow a softmax model; classes are
unevenly frequent, and a few labels are random.  A table with its labels is a *world*.  A row counts
for every class with its probability, so a few hundred rows stand for a site of any size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..problem.task import task_of_margins
from ..util.later import Later
from ..util.typing import Array
from .partition import LABEL_SPREAD

special = Later("scipy.special")

Sketch = Callable[[int, np.random.Generator], Array]
"""Draws n synthetic rows in the unit ball, (n, d)."""


@dataclass(frozen=True)
class Labels:
    """The law of synthetic labels given a row's score, a linear function of the row.

    `sharpness` is the standard deviation of a class's score, `wrong` the share of random labels,
    `gap` how far rows of two classes are moved apart, in standard deviations of the score.  Columns
    enter the score in proportion to their spread to the power of ``1 - even``: at 1 all alike, at 0
    wide ones most.
    """

    sharpness: float
    wrong: float
    gap: float
    even: float


LABELS = (
    Labels(1.0, 0.05, 0.0, 0.0),
    Labels(4.0, 0.01, 2.0, 1.0),
    Labels(1.5, 0.05, 0.0, 1.0),
    Labels(4.0, 0.01, 2.0, 0.0),
)
"""Label laws that worlds take in turn: classes that are hard to tell apart, by wide columns; easy,
by all columns alike; hard, by all columns alike; easy, by wide columns.

Half of them are as hard as most tables of people are: where all are easy, large coefficients look
right, and then the probabilities of a run are too sure."""
# The same for rows of more than `MANY` columns.
WIDE = (
    Labels(3.0, 0.03, 1.0, 0.0),
    Labels(4.0, 0.01, 2.0, 0.0),
)
# Columns beyond which synthetic rows are condensed to this number.
MANY = 64
# Log of the ratio of the first class's frequency to the last's, at equal scores.
UNEVEN = 1.0
_INSIDE = 1.0 + 1e-9


@dataclass(frozen=True)
class World:
    """A synthetic table: rows, and the weight of every row for every class at every site.

    Attributes
    ----------
    X : array (m, d)
        Rows in the unit ball, the same at every site.
    shares : array (N, m, K)
        Weight of every row for every class at every site; a site's add up to m.
    test, chances : array (t, d), (t, K)
        Test rows, and the probabilities of their classes.
    start : array (d,) or (K d,), optional
        Where runs start; None for zeros.
    """

    X: Array
    shares: Array
    test: Array
    chances: Array
    start: Array | None = None

    def error(self, W: Array) -> Array:
        """Compute the expected share of misclassified test rows of classifiers.

        They are (..., d), or (..., K d) with one block a class.
        """
        task = task_of_margins(W.shape[-1] // self.test.shape[1])
        return task.expected_error(task.vectors_by_margin(W) @ self.test.T, self.chances)

    def log_loss(self, W: Array) -> Array:
        """Compute the expected log loss, in nats a row, of classifiers' probabilities.

        Shapes are as for :meth:`error`.
        """
        task = task_of_margins(W.shape[-1] // self.test.shape[1])
        return task.expected_log_loss(task.vectors_by_margin(W) @ self.test.T, self.chances)


def draw_world(
    sketch: Sketch,
    rows: int,
    sites: Sequence[int] | Array,
    seed: int,
    *,
    classes: int = 2,
    tilt: float = 0.0,
    labels: Labels = LABELS[0],
) -> World:
    """Draw a synthetic table, with labels of its own, over several sites; deterministic.

    Parameters
    ----------
    sketch : callable
        Draws rows in the unit ball.
    rows : int
        Number m of training rows; another 1000 are drawn for tests.
    sites : sequence of int
        Number of rows of each of N sites; only their proportions matter.
    seed : int
        Of the rows and labels.
    classes : int
        Number K of classes.
    tilt : float
        How much the sites' labels differ: 0 not at all, 1 as in the ``label`` partition.
    labels : Labels
        How labels depend on rows.

    Returns
    -------
    World
    """
    rng = np.random.default_rng(seed)
    X = sketch(rows + HELD_OUT, rng)
    spread = X.std(axis=0)
    weight = np.where(spread > 1e-9, np.maximum(spread, 1e-9) ** -labels.even, 0.0)
    W = weight[:, None] * rng.normal(size=(X.shape[1], classes))
    W -= W.mean(axis=1, keepdims=True)
    if labels.gap:
        X = rows_inside_ball(X + _apart(X, W, labels.gap))
    scores = X @ W
    scores -= scores.mean(axis=0)
    scores /= max(float(scores.std()), 1e-12)
    chances = special.softmax(
        labels.sharpness * scores - UNEVEN * np.linspace(0.0, 1.0, classes), axis=1
    )
    chances = (1.0 - labels.wrong) * chances + labels.wrong / classes
    return World(X[:rows], draw_site_labels(chances[:rows], sites, tilt), X[rows:], chances[rows:])


def _apart(X: Array, W: Array, gap: float) -> Array:
    """Compute shifts (n, d) of rows X (n, d) towards their class of the highest score.

    W (d, K) has a direction per class; `gap` is in standard deviations of that class's score.
    """
    scores = X @ W
    scores -= scores.mean(axis=0)
    best = scores.argmax(axis=1)
    # a move by one of these raises its score by one
    along = W / np.maximum((W**2).sum(axis=0), 1e-300)
    return np.asarray(gap * scores.std(axis=0)[best][:, None] * along.T[best])


HELD_OUT = 1000  # test rows of a world


def draw_site_labels(chances: Array, sites: Sequence[int] | Array, tilt: float) -> Array:
    """Divide rows over sites as weights, from the probabilities of their classes.

    The log-odds of classes move in equal steps from site to site, scaled by `tilt`.  The sums over
    sites and classes are fitted by iterative proportional fitting.

    Parameters
    ----------
    chances : ndarray of shape (m, K)
        Class probabilities of every row.
    sites : sequence of int
        Number of rows of each of N sites; only their proportions matter.
    tilt : float
        How much the sites' labels differ: 0 not at all.

    Returns
    -------
    ndarray of shape (N, m, K)
        Weight of every row for every class at every site.  A site's add up to m, and their mean
        over sites, by size, is `chances`.
    """
    size = np.asarray(sites, dtype=float) / np.sum(sites)
    have = chances.mean(axis=0)
    along = np.linspace(-1.0, 1.0, len(size)) if len(size) > 1 else np.zeros(1)
    # Wanted shares of sites and classes in all rows, (N, K), before the sums are fitted.
    want = (
        np.exp(0.5 * tilt * LABEL_SPREAD * np.outer(along, np.linspace(-1.0, 1.0, len(have))))
        * have
    )
    for _ in range(100):
        # Iterative proportional fitting to these row and column sums.
        want *= (size / want.sum(axis=1))[:, None]
        want *= have / np.maximum(want.sum(axis=0), 1e-300)
    return np.asarray(chances * (want / (size[:, None] * np.maximum(have, 1e-300)))[:, None, :])


def one_hot_sketch(d: int) -> Sketch:
    """Return a sketch of rows like encoded categories: groups of about six columns with one
    active in each, and a constant.
    """

    def draw(n: int, rng: np.random.Generator) -> Array:
        X = np.zeros((n, d))
        groups = np.array_split(np.arange(d - 1), max(1, round((d - 1) / 6)))
        for group in groups:
            if len(group):
                # Every column is rarer than the one before.
                shares = rng.dirichlet(1.0 / np.arange(1.0, len(group) + 1.0))
                X[np.arange(n), group[0] + rng.choice(len(group), size=n, p=shares)] = 1.0
        X[:, -1] = 1.0
        return np.asarray(X / (np.sqrt(len(groups) + 1.0) * _INSIDE))

    return draw


def dense_sketch(d: int, norm: float = 1.0) -> Sketch:
    """Return a sketch of Gaussian rows with variances 1, 1/2, 1/3, ... and a constant.

    Their typical norm is `norm`, half of its square from the constant; rows are clipped to norm 1.
    """

    def draw(n: int, rng: np.random.Generator) -> Array:
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        X = (rng.normal(size=(n, d)) / np.sqrt(np.arange(1.0, d + 1.0))) @ rotation
        X *= norm / np.sqrt(2.0 * np.sum(1.0 / np.arange(1.0, d + 1.0)))
        X[:, -1] = norm / np.sqrt(2.0)
        return rows_inside_ball(X)

    return draw


def correlated_sketch(
    sketch: Sketch, decay: float = 1.0, astray: float = 0.0, share: float = 1.0
) -> Sketch:
    """Return a sketch with about the means, spreads and norms of another, and correlated columns.

    Parameters
    ----------
    sketch : callable
        Draws rows (n, d) in the unit ball.
    decay : float
        The k-th eigenvalue of the correlations is ``k^-decay``.
    astray : float
        By how much the columns' means deviate from the sketch's, in standard deviations of the
        column; if not 0, the columns' spreads deviate too.
    share : float
        Median of the columns' spreads relative to the sketch's, where they deviate.

    Returns
    -------
    callable
        A sketch of the same number of columns.
    """

    def draw(n: int, rng: np.random.Generator) -> Array:
        X = sketch(2000, rng)  # of which the means and spreads are measured
        d, mean, spread = X.shape[1], X.mean(axis=0), X.std(axis=0)
        if astray:
            mean = mean + astray * spread * rng.normal(size=d)
            spread = spread * share * np.exp(FACTOR * rng.normal(size=d))
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        eigenvalues = np.arange(1.0, d + 1.0) ** -decay
        Z = (rng.normal(size=(n, d)) * np.sqrt(eigenvalues)) @ rotation
        # Divided by the deviations of its columns, which then have variance 1.
        Z /= np.maximum(np.sqrt((rotation**2 * eigenvalues[:, None]).sum(axis=0)), 1e-12)
        return rows_inside_ball(mean + spread * Z)

    return draw


# Log-scale standard deviation of the spreads of columns relative to the sketch's.
FACTOR = 0.5


def condensed_sketch(sketch: Sketch, d: int, decay: float) -> Sketch:
    """Return a sketch like :func:`correlated_sketch` in `MANY` coordinates, for rows of more
    columns.

    They are the direction of the mean, the first principal directions, and a last one that has the
    remaining spread, with a random sign.

    Parameters
    ----------
    sketch : callable
        Draws rows (n, d) in the unit ball.
    d : int
        Columns of the sketch, more than `MANY`.
    decay : float
        The k-th eigenvalue of the covariance is in proportion to ``k^-decay``.

    Returns
    -------
    callable
        A sketch of `MANY` columns.
    """

    def draw(n: int, rng: np.random.Generator) -> Array:
        X = sketch(500, rng)
        # variances of all principal directions, of which `some` get a coordinate
        size = np.arange(1.0, d + 1.0) ** -decay
        size *= X.var(axis=0).sum() / size.sum()
        some = MANY - 2
        left = math.sqrt(size[some:].sum()) * rng.choice([-1.0, 1.0], size=n)
        middle = np.full(n, float(np.linalg.norm(X.mean(axis=0))))
        return rows_inside_ball(
            np.column_stack([middle, rng.normal(size=(n, some)) * np.sqrt(size[:some]), left])
        )

    return draw


def narrowed_sketch(sketch: Sketch, d: int) -> Sketch:
    """Return a sketch of the same rows in at most d dimensions, with their norms.

    All coordinates but one are the first principal ones; the last has the norm of the rest.  Norms
    stay, and so does the spread of a margin under isotropic noise.
    """

    def draw(n: int, rng: np.random.Generator) -> Array:
        X = sketch(n, rng)
        if X.shape[1] <= d:
            return X
        return onto(principal_axes(X, d - 1), X, rng)

    return draw


def principal_axes(X: Array, d: int) -> Array:
    """Compute the first d principal directions of rows, as columns; zeros beyond their rank."""
    # With fewer rows than columns the Gram matrix of the rows is the smaller one.
    if len(X) < X.shape[1]:
        values, vectors = np.linalg.eigh(X @ X.T)
        some = values[-d:] > 1e-9 * values[-1]  # the others are rounding
        return np.asarray(
            X.T @ (vectors[:, -d:] * (some / np.sqrt(np.where(some, values[-d:], 1.0))))
        )
    return np.asarray(np.linalg.eigh(X.T @ X)[1][:, -d:])


def onto(directions: Array, X: Array, rng: np.random.Generator) -> Array:
    """Project rows onto orthonormal directions, with one more coordinate that keeps their norms.

    Parameters
    ----------
    directions : ndarray of shape (d, k)
        Orthonormal columns.
    X : ndarray of shape (n, d)
        Rows.
    rng : numpy.random.Generator
        Draws the sign of the last coordinate.

    Returns
    -------
    ndarray of shape (n, k + 1)
    """
    kept = X @ directions
    left = np.sqrt(np.maximum((X**2).sum(axis=1) - (kept**2).sum(axis=1), 0.0))
    return np.column_stack([kept, left * rng.choice([-1.0, 1.0], size=len(X))])


def rows_inside_ball(X: Array) -> Array:
    """Clip rows to norm 1."""
    return np.asarray(X / (np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * _INSIDE))


class Expected(ABC):
    """Public expectations of rows before any is read, as a source of synthetic tables.

    Equal `key` means equal worlds.
    """

    key: str
    says: str
    """A description of the rows, a few words."""

    @abstractmethod
    def draw_expected_world(
        self,
        number: int,
        rows: int,
        sites: Sequence[int] | Array,
        *,
        classes: int,
        tilt: float,
        widest: int,
    ) -> World:
        """Draw world `number`; deterministic.

        Parameters
        ----------
        number : int
            From 0 on; kinds of rows and of labels take turns.
        rows : int
            Number of training rows.
        sites : sequence of int
            Number of rows of each site; only their proportions matter.
        classes : int
            Number of classes.
        tilt : float
            How much the sites' labels differ, see :func:`draw_world`.
        widest : int
            Most features of a row; others are projected (:func:`narrowed_sketch`).

        Returns
        -------
        World
        """


@dataclass(frozen=True)
class Sketches(Expected):
    """Worlds from sketches and labels in turn."""

    key: str
    says: str
    sketches: tuple[Sketch, ...] = field(compare=False)
    labels: tuple[Labels, ...] = field(default=LABELS, compare=False)

    def draw_expected_world(
        self,
        number: int,
        rows: int,
        sites: Sequence[int] | Array,
        *,
        classes: int,
        tilt: float,
        widest: int,
    ) -> World:
        """Draw world `number`: sketches take turns, and so do laws of labels, one step further in
        every round of sketches.

        Parameters
        ----------
        number : int
            From 0 on.
        rows : int
            Number of training rows.
        sites : sequence of int
            Number of rows of each site; only their proportions matter.
        classes : int
            Number of classes.
        tilt : float
            How much the sites' labels differ, see :func:`draw_world`.
        widest : int
            Most features of a row; others are projected (:func:`narrowed_sketch`).

        Returns
        -------
        World
        """
        sketch = narrowed_sketch(self.sketches[number % len(self.sketches)], widest)
        labels = self.labels[(number + number // len(self.sketches)) % len(self.labels)]
        return draw_world(
            sketch, rows, sites, _SEED + number, classes=classes, tilt=tilt, labels=labels
        )


# The seed of synthetic rows: no user's seed enters them.
_SEED = 20_240_229


def unknown(d: int) -> Sketches:
    """Return a source of tables where only the number of features is known.

    Rows are of a few kinds and norms: a bound on norms is often generous.
    """
    few = min(d, MANY)
    kinds = (one_hot_sketch(few), dense_sketch(few), dense_sketch(few, 0.3), dense_sketch(few, 0.1))
    return Sketches(f"unknown {d}", "rows of four kinds", kinds)


def sketches_from_source(key: str, says: str, sketch: Sketch, d: int) -> Sketches:
    """Return a source of tables from a sketch and from others with correlated columns.

    The others have its means, spreads and norms.  Many uncorrelated columns are unlikely: beyond
    `MANY` all rows are correlated and condensed, and labels depend on the common factors and are
    easier to predict.

    Parameters
    ----------
    key : str
        Sources of equal keys draw equal worlds.
    says : str
        Description of the rows, a few words.
    sketch : callable
        Draws rows (n, d) in the unit ball.
    d : int
        Columns of the sketch.

    Returns
    -------
    Sketches
    """
    if d <= MANY:
        together = (
            correlated_sketch(sketch),
            correlated_sketch(sketch, 1.0, 1.0),
            correlated_sketch(sketch, 1.5, 1.0, 0.5),
        )
        return Sketches(key, says, (sketch, *together))
    return Sketches(
        key, says, (condensed_sketch(sketch, d, 1.0), condensed_sketch(sketch, d, 2.0)), WIDE
    )
