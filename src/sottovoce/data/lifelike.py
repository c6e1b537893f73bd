"""Made-up rows that resemble real tables, made from sizes alone; methods are tried on them in advance.

There are two kinds, because no single kind is typical of all tables.  ``one-hot`` rows have a few active columns with
uneven frequencies, like encoded categories.  ``dense`` rows have correlated columns whose spectrum decays.  Both have a
constant column and lie in the unit ball.  Labels follow a softmax model of the rows; classes are unevenly frequent, and
a few labels are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..later import Later
from ..task import of_margins
from ..typing import Array, IntArray
from .partition import LABEL_SPREAD

special = Later("scipy.special")

KINDS = ("one-hot", "dense")
SHARPNESS = 2.0  # standard deviation of a class's score: about 85% of labels of two classes can be predicted
UNEVEN = 1.0  # log of the ratio of the first class's frequency to the last's, at equal scores
WRONG = 0.05  # share of labels drawn at random
_INSIDE = 1.0 + 1e-9


@dataclass(frozen=True)
class World:
    """Training rows of every site, with labels 0 to K - 1, and test rows with the probability of each label."""

    parts: list[tuple[Array, IntArray]]
    test: Array
    chances: Array

    def error(self, W: Array) -> Array:
        """Expected misclassified share of classifiers (..., d), or (..., K d) with one block a class."""
        task = of_margins(W.shape[-1] // self.test.shape[1])
        return task.expected_error(task.vectors(W) @ self.test.T, self.chances)


def make_world(kind: str, sizes: Sequence[int], d: int, seed: int, *, classes: int = 2, tilt: float = 0.0) -> World:
    """Draw a world.

    Parameters
    ----------
    kind : {"one-hot", "dense"}
    sizes : sequence of int
        Rows of every site.
    d : int
        Features, the constant one included.
    seed : int
        The same arguments always give the same rows.
    classes : int
    tilt : float
        How much the sites' labels differ: 0 for not at all, 1 for the ``label`` partition's default strength.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    total, held_out = int(sum(sizes)), 4000
    X = (_one_hot if kind == "one-hot" else _dense)(rng, total + held_out, d)
    scores = X @ rng.normal(size=(d, classes))
    scores -= scores.mean(axis=0)
    scores /= max(float(scores.std()), 1e-12)
    chances = special.softmax(SHARPNESS * scores - UNEVEN * np.linspace(0.0, 1.0, classes), axis=1)
    chances = (1.0 - WRONG) * chances + WRONG / classes
    labels = (rng.uniform(size=(len(X), 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(0, classes - 1)
    train = labels[:total]
    parts = [(X[own], train[own]) for own in deal(rng, train, np.asarray(sizes), classes, tilt)]
    return World(parts, X[total:], chances[total:])


def _one_hot(rng: np.random.Generator, n: int, d: int) -> Array:
    """Groups of about six columns with one active in each, every column rarer than the one before; and a constant."""
    X = np.zeros((n, d))
    groups = np.array_split(np.arange(d - 1), max(1, round((d - 1) / 6)))
    for group in groups:
        if len(group):
            shares = rng.dirichlet(1.0 / np.arange(1.0, len(group) + 1.0))
            X[np.arange(n), group[0] + rng.choice(len(group), size=n, p=shares)] = 1.0
    X[:, -1] = 1.0
    return np.asarray(X / (np.sqrt(len(groups) + 1.0) * _INSIDE))


def _dense(rng: np.random.Generator, n: int, d: int) -> Array:
    """A Gaussian with spectrum 1, 1/2, 1/3, ..., its rows shortened to norm one, and a constant."""
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = (rng.normal(size=(n, d)) / np.sqrt(np.arange(1.0, d + 1.0))) @ rotation
    X /= np.sqrt(np.sum(1.0 / np.arange(1.0, d + 1.0)))
    X[:, -1] = 1.0
    return np.asarray(X / (np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.sqrt(2.0)) * _INSIDE))


def deal(rng: np.random.Generator, labels: IntArray, sizes: IntArray, classes: int, tilt: float) -> list[IntArray]:
    """Rows of every site: the log-odds of its classes move in equal steps from site to site."""
    pools = [rng.permutation(np.flatnonzero(labels == k)) for k in range(classes)]
    have = np.array([len(pool) for pool in pools], dtype=float)
    along = np.linspace(-1.0, 1.0, len(sizes)) if len(sizes) > 1 else np.zeros(1)
    want = np.exp(0.5 * tilt * LABEL_SPREAD * np.outer(along, np.linspace(-1.0, 1.0, classes))) * have
    for _ in range(100):  # to these row and column sums
        want *= (sizes / want.sum(axis=1))[:, None]
        want *= have / np.maximum(want.sum(axis=0), 1e-300)
    parts, taken = [], np.zeros(classes, dtype=np.intp)
    for shares, size in zip(want, sizes, strict=True):
        ends = np.rint(np.cumsum(shares) / shares.sum() * size).astype(np.intp)
        counts = np.diff(ends, prepend=0)
        rows = [
            np.take(pool, np.arange(at, at + count), mode="wrap")
            for pool, at, count in zip(pools, taken, counts, strict=True)
            if count
        ]
        taken += counts
        parts.append(np.concatenate(rows))
    return parts
