"""Likelihood ratios of a site's releases, the best score (Neyman and Pearson): docs/explanation/audit.md, "The game".

Each query computes its density at the *stated* noise, :meth:`sottovoce.queries.Query.log_density`; so a fault of the
drawn noise does not change the score.  A query without a density (a pass over minibatches, a redrawn gate) gets the
best linear score: the position of its answer along the line between the two noise-free answers.  Of a sum over sites
the score is that of the honest sites' shares, since the adversary knows what the colluding sites added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import numpy as np

from ..data.rows import Rows
from ..privacy.noise import KeyedNoise
from ..problem.facts import Among, Facts
from ..queries import Query, Sum, Vault
from ..queries.audit_hooks import Supposed
from ..runs.row_guard import make_solver
from ..solvers.local import Solver
from ..util.typing import Array, IntArray

T = TypeVar("T")


class Silence(KeyedNoise):
    """No Gaussian or spherical noise."""

    def __init__(self, lead: tuple[int, ...] = (1, 1)) -> None:
        super().__init__(0, [0], [0], lead)

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return np.zeros((*self._lead, d))

    spherical = gaussian


def of_node(x: T, i: int, nodes: int) -> T:
    """Node `i`'s part of a query or a law: node axes cut down to length one, but of fields that are marked `whole`."""
    if isinstance(x, np.ndarray):
        return x[..., i : i + 1, :] if x.ndim >= 2 and x.shape[-2] == nodes else x  # type: ignore[return-value]
    if isinstance(x, tuple):
        return tuple(of_node(part, i, nodes) for part in x)  # type: ignore[return-value]
    if is_dataclass(x) and not isinstance(x, type):
        cut = [f.name for f in fields(x) if not f.metadata.get("whole")]
        return replace(x, **{name: of_node(getattr(x, name), i, nodes) for name in cut})
    return x


@dataclass
class Candidate:
    """Candidate rows of node `i`."""

    rows: Rows
    facts: Facts
    i: int
    solver: Callable[[Rows, Facts], Solver] = make_solver

    def __post_init__(self) -> None:
        alone = self.rows.node(self.i)
        own = replace(self.facts, n=self.facts.n[self.i : self.i + 1])
        self._supposed = Supposed(Vault(self.solver(alone, own), Silence()), own, alone.signed[0])
        self._all = len(self.facts.n)

    def cut(self, query: Query) -> Query:
        """The query as this node was asked it."""
        return of_node(query, self.i, self._all)

    def silent(self, query: Query) -> Array:
        """The noise-free answer, (R, 1, d).  Call it once a round: some queries keep a secret."""
        return query.answer(self._supposed.vault, self._supposed.facts, 1)

    def is_sharp(self, query: Query, answers: Array) -> bool:
        """Whether :meth:`log_density` is exact."""
        return query.has_exact_density(self._supposed, answers)

    def log_density(self, query: Query, answer: Array) -> Array | None:
        """Log density of a release, (R,), up to a constant that does not depend on rows; None if unknown."""
        return query.log_density(self._supposed, answer)


def score(asked: list[tuple[Query, Array]], candidates: tuple[Candidate, Candidate]) -> Array:
    """Log likelihood ratio of the second candidate to the first over all rounds, (R,)."""
    total: Array | float = 0.0
    for whole, answers in asked:
        query = candidates[0].cut(whole)
        answer = of_node(answers, candidates[0].i, len(candidates[0].facts.n))
        first, second = (one.log_density(query, answer) for one in candidates)
        if first is not None and second is not None:
            total = total + second - first
            continue
        a, b = (np.broadcast_to(one.silent(query), answer.shape) for one in candidates)
        line = b - a
        size = np.linalg.norm(line, axis=-1, keepdims=True)
        along = np.sum((answer - 0.5 * (a + b)) * line, axis=-1, keepdims=True)
        total = total + np.divide(along, size**2, out=np.zeros_like(along), where=size > 0)[:, 0, 0]
    return np.round(total, 9)  # simulated noise's last digits depend on what it was added to: docs/explanation/audit.md


@dataclass(frozen=True)
class OpenedSum:
    """An attempt at a sum, without the colluding sites' shares."""

    query: Sum
    honest: IntArray
    """Sum of the honest sites' shares, (R, 1, d)."""


Solvers = Callable[[Rows, Facts, int], Solver]
"""Makes the solver of table 0 or 1."""


def honest_sums(
    one: OpenedSum, tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int
) -> tuple[tuple[IntArray, IntArray], float]:
    """Honest sites' exact sums on both tables, (R, 1, d), and their noise's deviation; the last `known` collude."""
    attempt, honest = one.query.attempt(facts, Among.all(facts)), facts.n_nodes - known

    def exact(table: int) -> IntArray:
        vault = Vault(solvers(tables[table], facts, table), Silence())
        return np.asarray(attempt.addend(vault)[..., :honest, :].sum(axis=-2, keepdims=True))

    return (exact(0), exact(1)), float(np.sqrt(honest) * np.max(attempt.grid.tau))


def score_sums(opened: list[OpenedSum], tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int) -> Array:
    """Log likelihood ratio of the second table to the first over all attempts, (R,)."""
    total: Array | float = 0.0
    for one in opened:
        exact, deviation = honest_sums(one, tables, facts, solvers, known)
        first, second = (np.sum((one.honest - x).astype(float) ** 2, axis=(-2, -1)) for x in exact)
        total = total + (first - second) / (2.0 * deviation**2)
    return np.asarray(np.round(total, 9))
