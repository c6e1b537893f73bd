"""Rows for 003's experiments: partitioned over parties, and reduced by principal components in four
ways.

003 (Appendix A) centres all rows, takes the leading eigenvectors of their covariance that hold 90%
of its trace, and maps the rows, not centred, onto them.  Projected rows stay in the unit ball, so
every bound holds *given the components*; what these cost depends on `pca`: ``none``, no reduction;
``public``, 003's rule on half of the held-out rows, declared public (free; the other half is
scored); ``thesis``, 003's rule on all training rows, without noise, so that nothing protects them;
``private``, noisy second moments of every site, see :class:`sottovoce_papers.moments.NoisyMoments`.
Held-out rows are halved in turn, every second one public: MNIST's are sorted, and the same model
errs four times as often on their first half as on their last.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sottovoce.data.schema import FROM_ROWS
from sottovoce.errors import InvalidInput
from sottovoce.problem.task import Task, TwoClasses
from sottovoce.util.typing import Any, Array

from ..tables import deal

MNIST_35, MNIST_TRAIN = "mnist35", 60_000
SHARE = 0.9  # of the covariance's trace that the kept components hold (003, Appendix A)
_INSIDE = 1.0 - 1e-12  # on projected rows: their rounding cannot carry them out of the ball


@dataclass(frozen=True)
class HeldOut:
    """Training rows, and held-out rows: a public half for the components, and a half for testing.

    `caveat` is what statements must say of the encoding and the components.  `stands_in` says that
    other rows are used in place of 003's, so that results do not test 003; empty for its own.
    """

    X: Array
    y: Array
    X_public: Array
    X_test: Array
    y_test: Array
    note: str = ""
    caveat: str | None = None
    task: Task = field(default_factory=TwoClasses)
    stands_in: str = ""

    @property
    def notes(self) -> dict[str, str]:
        """The note, and `stands_in` if there is one, for every row of a cell."""
        notes = {"_note": self.note}
        if self.stands_in:
            notes["stands_in"] = self.stands_in
        return notes

    def errors(self, models: Array) -> Array:
        """Compute the errors (...) of models (..., d) on the test half."""
        return self.task.model_errors(self.X_test, self.y_test, models)

    def told(self, promise: str) -> str:
        """Return a guarantee in words, with the caveat added."""
        if self.caveat is None:
            return promise
        return f"{promise} Not covered: {self.caveat}."

    def onto(self, basis: Array) -> HeldOut:
        """Project all rows onto the columns of `basis` (d, k), which are orthonormal."""
        X, public, test = ((one @ basis) * _INSIDE for one in (self.X, self.X_public, self.X_test))
        return replace(self, X=X, X_public=public, X_test=test)

    def deal(self, sizes: list[int], seed: int) -> list[tuple[Array, Array]]:
        """Draw disjoint random parts (X, y) of the training rows, of these sizes.

        An InvalidInput if there are not that many rows.
        """
        cuts = np.cumsum([0, *sizes])
        if cuts[-1] > len(self.y):
            rule = f"{cuts[-1]} rows are needed in all, and there are {len(self.y)}"
            raise InvalidInput("rows", max(sizes), rule, "use fewer sites or rows")
        order = np.random.default_rng(seed).permutation(len(self.y))
        parts = [order[first:last] for first, last in pairwise(cuts)]
        return [(self.X[part], self.y[part]) for part in parts]


@lru_cache(maxsize=6)
def load(name: str, pca: str = "none") -> HeldOut:
    """Load a data set by name, reduced by `pca`: "none", "public" or "thesis" (see the module)."""
    if pca != "none":
        held = load(name)
        if pca not in ("public", "thesis"):
            raise InvalidInput(
                "pca", pca, "must be none, public or thesis here", "use the study of components"
            )
        if pca == "public":
            return held.onto(leading(held.X_public))
        return replace(held.onto(leading(held.X)), caveat=FROM_ROWS)
    if name == MNIST_35:
        return digits(3, 5)
    given = deal({"data": name, "nodes": 1})
    (X, y), test = given.parts[0], halves(given.X_test, given.y_test)
    return HeldOut(X, y, *test, given.note, given.caveat, given.task)


def digits(low: int, high: int) -> HeldOut:
    """Load two digits of MNIST from scikit-learn's cache, with its 60,000 training images for
    training.

    Where it is not there and cannot be fetched, the package's digits 3 and 7 are used instead.
    """
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore")
            found = fetch_openml(
                "mnist_784", version=1, as_frame=False, parser="liac-arff", n_retries=1, delay=0.1
            )
    except OSError:
        why = (
            f"The digits {low} and {high} could not be fetched "
            "(fetch_openml: no network, and no mnist_784 in scikit-learn's cache): "
            "3 and 7 stand in."
        )
        return replace(load("mnist37"), note=why, stands_in=why)
    label = np.asarray(found.target).astype(int)
    X = np.asarray(found.data, dtype=float)
    train, test = (
        part[np.isin(label[part], (low, high))]
        for part in np.split(np.arange(len(label)), [MNIST_TRAIN])
    )
    unit = [
        _INSIDE * X[part] / np.linalg.norm(X[part], axis=1, keepdims=True) for part in (train, test)
    ]
    y = [np.where(label[part] == high, 1.0, -1.0) for part in (train, test)]
    return HeldOut(
        unit[0],
        y[0],
        *halves(unit[1], y[1]),
        f"The digits {low} and {high} of MNIST by fetch_openml.",
    )


def halves(X: Array, y: Array) -> tuple[Array, Array, Array]:
    """Split held-out rows in turn: X of the public half, then X and y of the half for testing."""
    public, scored = slice(None, None, 2), slice(1, None, 2)
    return X[public], X[scored], y[scored]


def leading(X: Array, share: float = SHARE) -> Array:
    """Compute the leading eigenvectors of the covariance of `X` (003, Appendix A), as columns.

    They are the fewest that hold `share` of its trace.
    """
    centred = X - X.mean(axis=0)
    # in increasing order of the eigenvalues
    values, vectors = np.linalg.eigh(centred.T @ centred / len(X))
    held = np.cumsum(values[::-1]) / values.sum()
    kept = int(np.searchsorted(held, share)) + 1
    return np.ascontiguousarray(vectors[:, ::-1][:, :kept])


def splits(p: Mapping[str, Any], noisy: bool = True) -> Iterator[tuple[int, int, int]]:
    """Yield (seed, first replicate, number of replicates) of each of `splits` splits of the rows.

    Replicates of one split differ in noise only.  Without noise there is one split per replicate.
    """
    replicates = int(p["replicates"])
    many = replicates
    # the same split twice would tell nothing without noise
    if noisy:
        many = min(int(p.get("splits", replicates)), replicates)
    edges = np.linspace(0, replicates, many + 1).round().astype(int)
    for first, last in pairwise(edges.tolist()):
        yield derived(int(p["seed"]), first), first, last - first


def derived(*words: int) -> int:
    """Derive a seed from whole numbers, a different one for each tuple."""
    return int(np.random.SeedSequence(list(words)).generate_state(1)[0])
