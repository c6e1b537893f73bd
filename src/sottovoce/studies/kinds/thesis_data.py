"""Rows for 003's experiments: dealt to parties, and reduced by principal components in four ways.

003 (Appendix A) centres all rows, takes the leading eigenvectors of their covariance that hold 90% of its trace, and
maps the rows, not centred, onto them.  A projection leaves rows in the unit ball, so that every bound holds for the
projected rows *given the components*; what the components cost depends on where they come from:

``none``
    No reduction.
``public``
    003's rule on the first half of the held-out rows, declared public.  Costs nothing; the other half is scored.
``thesis``
    003's rule on all training rows.  No noise, so nothing protects them.
``private``
    Every site releases its second moments with Gaussian noise, see :class:`NoisyMoments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ...data.schema import FROM_ROWS
from ...errors import InvalidInput
from ...facts import Facts
from ...losses import Loss
from ...privacy.events import RELATIONS
from ...queries import Vault
from ...queries.statistic import NoisyValue
from ...typing import Any, Array
from ..tables import deal

SHARE = 0.9  # of the covariance's trace that the kept components hold (003, Appendix A)
_INSIDE = 1.0 - 1e-12  # on projected rows: their rounding cannot carry them out of the ball


@dataclass(frozen=True)
class Held:
    """Training rows, and the held-out rows: a public half to learn components from, and a half to score on.

    `caveat` is what statements must say of the encoding, components included.
    """

    X: Array
    y: Array
    X_public: Array
    X_test: Array
    y_test: Array
    note: str = ""
    caveat: str | None = None

    def told(self, promise: str) -> str:
        """A promise in words, and what it does not cover."""
        return promise if self.caveat is None else f"{promise} Not covered: {self.caveat}."

    def onto(self, basis: Array) -> Held:
        """All rows projected onto the columns of `basis`, which are orthonormal."""
        X, public, test = ((one @ basis) * _INSIDE for one in (self.X, self.X_public, self.X_test))
        return replace(self, X=X, X_public=public, X_test=test)

    def deal(self, sizes: list[int], seed: int) -> list[tuple[Array, Array]]:
        """Disjoint random parts of the training rows, of these sizes.

        Raises
        ------
        InvalidInput
            If there are not that many rows.
        """
        cuts = np.cumsum([0, *sizes])
        if cuts[-1] > len(self.y):
            rule = f"{cuts[-1]} are needed, there are {len(self.y)}"
            raise InvalidInput("rows", max(sizes), rule, "use fewer sites or rows")
        order = np.random.default_rng(seed).permutation(len(self.y))
        parts = [order[first:last] for first, last in pairwise(cuts)]
        return [(self.X[part], self.y[part]) for part in parts]


@lru_cache(maxsize=4)
def load(name: str, pca: str = "none") -> Held:
    """A data set by name; `pca` is "none", "public" or "thesis"."""
    if pca != "none":
        held = load(name)
        if pca not in ("public", "thesis"):
            raise InvalidInput("pca", pca, "must be none, public or thesis here", "use the study of components")
        if pca == "public":
            return held.onto(leading(held.X_public))
        return replace(held.onto(leading(held.X)), caveat=FROM_ROWS)
    given = deal({"data": name, "nodes": 1})
    (X, y), half = given.parts[0], len(given.y_test) // 2
    return Held(X, y, given.X_test[:half], given.X_test[half:], given.y_test[half:], given.note, given.caveat)


def leading(X: Array, share: float = SHARE) -> Array:
    """003, Appendix A: eigenvectors of the covariance of `X`, as columns, that hold `share` of its trace."""
    centred = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(X))
    held = np.cumsum(values[::-1]) / values.sum()
    return np.ascontiguousarray(vectors[:, ::-1][:, : int(np.searchsorted(held, share)) + 1])


def splits(p: Mapping[str, Any], noisy: bool = True) -> Iterator[tuple[int, int, int]]:
    """(seed, first replicate, replicates) of every split of the rows; replicates of one split differ in noise only.

    There are `splits` of them, or one a replicate, as always where nothing is noisy.
    """
    replicates = int(p["replicates"])
    many = min(int(p.get("splits", replicates)), replicates) if noisy else replicates
    edges = np.linspace(0, replicates, many + 1).round().astype(int)
    for first, last in pairwise(edges.tolist()):
        yield derived(int(p["seed"]), first), first, last - first


def derived(*words: int) -> int:
    """A seed of its own for each tuple of whole numbers."""
    return int(np.random.SeedSequence(list(words)).generate_state(1)[0])


@dataclass(frozen=True)
class SquaredMargin(Loss):
    """``z^2 / 2``: its mean gradient at the unit vector e_j is column j of the rows' second moments.

    Slope and bend are bounded by 1 for rows in the unit ball and ``|w| <= 1``, where it is used.
    """

    name: ClassVar[str] = "squared margin"

    @property
    def bend_bound(self) -> float:
        return 1.0

    def value(self, z: Array) -> Array:
        return z**2 / 2.0

    def slope(self, z: Array) -> Array:
        return z

    def bend(self, z: Array) -> Array:
        return 0.0 * z + 1.0

    @property
    def spec(self) -> str:
        return self.name


@dataclass(frozen=True)
class NoisyMoments(NoisyValue):
    """Second moments ``(1/n) sum_k x_k x_k'`` of every node's rows, flattened by :func:`flat`.

    Guarantee
    ---------
    :func:`flat` keeps the Frobenius norm, and ``||x x' - z z'||_F^2 = |x|^4 + |z|^4 - 2 (x.z)^2 <= 2`` in the unit
    ball, attained by orthogonal unit rows; so the sensitivity is ``sqrt(2) / n`` for a row that is replaced and
    ``1 / n`` for one that is zeroed.
    """

    width: int = 0

    def exact_sensitivity(self, facts: Facts) -> Array:
        return np.sqrt(RELATIONS[facts.relation]) / facts.n

    def value(self, vault: Vault, facts: Facts) -> Array:
        nodes = len(facts.n)
        units = np.broadcast_to(np.eye(self.width)[:, None, :], (self.width, nodes, self.width))
        return flat(np.moveaxis(vault.solver.gradient(units), 0, 1))


def flat(S: Array) -> Array:
    """Symmetric matrices (..., d, d) as vectors of their d (d + 1) / 2 entries, of the same Euclidean norm."""
    i, j = np.triu_indices(S.shape[-1])
    return np.asarray(S[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def square(v: Array, d: int) -> Array:
    """Inverse of :func:`flat`."""
    i, j = np.triu_indices(d)
    S = np.zeros((*v.shape[:-1], d, d))
    S[..., i, j] = S[..., j, i] = v / np.where(i == j, 1.0, np.sqrt(2.0))
    return S
