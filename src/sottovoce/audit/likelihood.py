"""How likely a site's releases are on given rows: the most powerful score against noise whose law is public.

An adversary who sees every message knows the public inputs of every query that a site was asked, so for each of two
candidate tables the density of every answer is known, and the sum over rounds of log ratios is the most powerful test
(Neyman and Pearson).  Every query computes its own density, :meth:`sottovoce.queries.Query.log_density`, at the
*stated* noise.  If the noise that was drawn has a fault, the score stays the same; only what it reveals changes.

Some queries have a density that cannot be computed from the answers alone (a pass over minibatches, a redrawn gate).
They get the best linear score instead: the position of the answer along the line between the two noise-free answers.

Of a sum over sites the adversary knows what the colluding sites added.  What is left is the sum of the honest sites'
shares, whose law on either table is known.
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
from ..runs.curator import make_solver
from ..solvers.local import Solver
from ..util.typing import Array, IntArray

T = TypeVar("T")


class Silence(KeyedNoise):
    """No noise: what a query would answer without it."""

    def __init__(self) -> None:
        super().__init__(0, [0], [0])

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return np.zeros((1, 1, d))

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        return np.zeros((1, 1, d))


def of_node(x: T, i: int, nodes: int) -> T:
    """What node `i` sees of a query or a law: node axes cut down to length one."""
    if isinstance(x, np.ndarray):
        return x[..., i : i + 1, :] if x.ndim >= 2 and x.shape[-2] == nodes else x  # type: ignore[return-value]
    if isinstance(x, tuple):
        return tuple(of_node(part, i, nodes) for part in x)  # type: ignore[return-value]
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{f.name: of_node(getattr(x, f.name), i, nodes) for f in fields(x)})
    return x


@dataclass
class Candidate:
    """One candidate for the rows of node `i`, in a network whose facts are known."""

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
        """The noise-free answer, shape (R, 1, d).  To be called once a round: some queries remember."""
        return query.answer(self._supposed.vault, self._supposed.facts, 1)

    def is_sharp(self, query: Query, answers: Array) -> bool:
        """Whether :meth:`log_density` is exact."""
        return query.has_exact_density(self._supposed, answers)

    def log_density(self, query: Query, answer: Array) -> Array | None:
        """Logarithm of the density of a release, shape (R,), up to what does not depend on rows; None where unknown."""
        return query.log_density(self._supposed, answer)


def score(asked: list[tuple[Query, Array]], candidates: tuple[Candidate, Candidate]) -> Array:
    """Log likelihood ratio of the second candidate to the first over all rounds, shape (R,)."""
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
    # Simulated noise is continuous, drawn in doubles: its last digits depend on what it was added to.  Releases have
    # noise on a grid instead; here those digits are dropped, lest the audit read them.
    return np.round(total, 9)


@dataclass(frozen=True)
class Opened:
    """An attempt to open a sum as the adversary sees it: without the colluding sites' shares."""

    query: Sum
    honest: IntArray
    """Sum of the shares of the honest sites, (R, 1, d)."""


Solvers = Callable[[Rows, Facts, int], Solver]
"""What makes the solver of a table, by its number."""


def honest_sums(
    one: Opened, tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int
) -> tuple[tuple[IntArray, IntArray], float]:
    """What the honest sites add on either table, (R, 1, d), and the standard deviation of their noise together.

    The last `known` sites collude.
    """
    among, honest = Among.all(facts), facts.n_nodes - known

    def exact(world: int) -> IntArray:
        vault = Vault(solvers(tables[world], facts, world), Silence())
        return np.asarray(one.query.addend(vault, facts, among)[..., :honest, :].sum(axis=-2, keepdims=True))

    return (exact(0), exact(1)), float(np.sqrt(honest) * np.max(one.query.spread(facts, among)))


def score_sums(opened: list[Opened], tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int) -> Array:
    """Log likelihood ratio of the second table to the first over all attempts, shape (R,)."""
    total: Array | float = 0.0
    for one in opened:
        exact, deviation = honest_sums(one, tables, facts, solvers, known)
        first, second = (np.sum((one.honest - x).astype(float) ** 2, axis=(-2, -1)) for x in exact)
        total = total + (first - second) / (2.0 * deviation**2)
    return np.asarray(np.round(total, 9))
