"""Likelihood ratios of a site's releases, the most powerful score (Neyman and Pearson).

The page is docs/explanation/audit.md, "The game".

Each query computes its density at the *stated* noise, :meth:`sottovoce.queries.Query.log_density`;
so a fault of the drawn noise does not change the score.  A query without a density (a pass over
minibatches, a redrawn gate) gets the best linear score: the position of its answer along the line
between the two noise-free answers.  Of a sum over sites the score is that of the honest sites'
shares, since the adversary knows what the colluding sites added.  R is the number of replicates.
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
    """A source of noise that draws zeros, by which noise-free answers are computed."""

    def __init__(self, lead: tuple[int, ...] = (1, 1)) -> None:
        super().__init__(0, [0], [0], lead)

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Return zeros in place of standard normals.

        Parameters
        ----------
        d : int
            Entries of a vector.
        release, use : int
            As for :meth:`sottovoce.privacy.noise.Noise.draw_gaussian`; they have no effect.

        Returns
        -------
        array (..., d)
        """
        return np.zeros((*self._lead, d))

    draw_spherical = draw_gaussian


def restrict_to_node(x: T, i: int, nodes: int) -> T:
    """Restrict a query, a law or an array to one node.

    Node axes, the last but one, are cut to length one, recursively in tuples and dataclasses.
    Fields that are marked `whole` stay as they are.

    Parameters
    ----------
    x : array (..., N, d), tuple, dataclass or other
        Anything else is returned as it is.
    i : int
        The node, from 0 on.
    nodes : int
        N: an array without such an axis is not cut.

    Returns
    -------
    same type as `x`
    """
    if isinstance(x, np.ndarray):
        if x.ndim >= 2 and x.shape[-2] == nodes:
            return x[..., i : i + 1, :]  # type: ignore[return-value]
        return x
    if isinstance(x, tuple):
        return tuple(restrict_to_node(part, i, nodes) for part in x)  # type: ignore[return-value]
    if is_dataclass(x) and not isinstance(x, type):
        cut = [f.name for f in fields(x) if not f.metadata.get("whole")]
        return replace(x, **{name: restrict_to_node(getattr(x, name), i, nodes) for name in cut})
    return x


@dataclass
class Candidate:
    """Rows that the adversary supposes node `i` to hold, and whose likelihood she computes.

    Attributes
    ----------
    rows : Rows
        Rows of all nodes, of which those of node `i` are used.
    facts : Facts
        Public facts of all nodes.
    i : int
        The node.
    solver : callable ``(rows, facts)``
        Makes the solver of its local problems.
    """

    rows: Rows
    facts: Facts
    i: int
    solver: Callable[[Rows, Facts], Solver] = make_solver

    def __post_init__(self) -> None:
        alone = self.rows.rows_of_node(self.i)
        own = replace(self.facts, n=self.facts.n[self.i : self.i + 1])
        self._supposed = Supposed(Vault(self.solver(alone, own), Silence()), own, alone.signed[0])
        self._all = len(self.facts.n)

    def cut(self, query: Query) -> Query:
        """Return the query as this node was asked it."""
        return restrict_to_node(query, self.i, self._all)

    def noise_free_answer(self, query: Query) -> Array:
        """Return the noise-free answer, (R, 1, d).

        Call it once a round: some queries keep a secret.
        """
        return query.answer(self._supposed.vault, self._supposed.facts, 1)

    def has_exact_density(self, query: Query, answers: Array) -> bool:
        """Return True if :meth:`log_density` is exact."""
        return query.has_exact_density(self._supposed, answers)

    def log_density(self, query: Query, answer: Array) -> Array | None:
        """Return the log density of a release, (R,), up to a constant.

        The constant does not depend on the rows.  None if the density is unknown.
        """
        return query.log_density(self._supposed, answer)


def log_likelihood_ratio(
    asked: list[tuple[Query, Array]], candidates: tuple[Candidate, Candidate]
) -> Array:
    """Return the log likelihood ratio of the second candidate to the first, (R,), over all rounds.

    A query without a density adds a linear score in its place.
    """
    total: Array | float = 0.0
    for whole, answers in asked:
        query = candidates[0].cut(whole)
        answer = restrict_to_node(answers, candidates[0].i, len(candidates[0].facts.n))
        first, second = (one.log_density(query, answer) for one in candidates)
        if first is not None and second is not None:
            total = total + second - first
            continue
        a, b = (np.broadcast_to(one.noise_free_answer(query), answer.shape) for one in candidates)
        # No density: project the answer on the line between the noise-free answers, in units of
        # their distance, zero in the middle.
        line = b - a
        size = np.linalg.norm(line, axis=-1, keepdims=True)
        along = np.sum((answer - 0.5 * (a + b)) * line, axis=-1, keepdims=True)
        total = total + np.divide(along, size**2, out=np.zeros_like(along), where=size > 0)[:, 0, 0]
    # The last digits of simulated noise depend on what it was added to: docs/explanation/audit.md.
    return np.round(total, 9)


@dataclass(frozen=True)
class OpenedSum:
    """A sum over sites as it was opened, without the shares of the colluding sites."""

    query: Sum
    honest: IntArray
    """Sum of the honest sites' noisy shares, (R, 1, d), in steps of the grid."""


Solvers = Callable[[Rows, Facts, int], Solver]
"""Makes the solver of table 0 or 1, ``(rows, facts, table) -> Solver``."""


def exact_honest_sums(
    one: OpenedSum, tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int
) -> tuple[tuple[IntArray, IntArray], float]:
    """Return the honest sites' exact sums on both tables, and the deviation of their noise.

    Parameters
    ----------
    one : OpenedSum
        The attempt at a sum.
    tables : pair of Rows
        Table 0 and table 1.
    facts : Facts
        Public facts of all sites.
    solvers : callable
        Makes the solver of a table.
    known : int
        Number of colluding sites: the last ones.

    Returns
    -------
    sums : pair of array of int (R, 1, d)
        In steps of the grid.
    deviation : float
        Standard deviation of an entry of the honest sites' noise, in steps of the grid.
    """
    attempt = one.query.attempt(facts, Among.all_sites(facts))
    honest = facts.n_nodes - known

    def exact(table: int) -> IntArray:
        vault = Vault(solvers(tables[table], facts, table), Silence())
        return np.asarray(
            attempt.share_without_noise(vault)[..., :honest, :].sum(axis=-2, keepdims=True)
        )

    # Each honest site adds its own noise of deviation tau, so their sum has sqrt(honest) of it.
    return (exact(0), exact(1)), float(np.sqrt(honest) * np.max(attempt.grid.tau))


def log_likelihood_ratio_of_sums(
    opened: list[OpenedSum], tables: tuple[Rows, Rows], facts: Facts, solvers: Solvers, known: int
) -> Array:
    """Return the log likelihood ratio of the second table to the first, (R,), over all sums.

    Sums and noise are in steps of the grid to which shares are rounded.

    Parameters
    ----------
    opened : list of OpenedSum
        All attempts at sums of a run.
    tables : pair of Rows
        Table 0 and table 1.
    facts : Facts
        Public facts of all sites.
    solvers : callable
        Makes the solver of a table, as :data:`Solvers`.
    known : int
        Number of colluding sites: the last ones.

    Returns
    -------
    array (R,)
    """
    total: Array | float = 0.0
    for one in opened:
        exact, deviation = exact_honest_sums(one, tables, facts, solvers, known)
        # The noise of the honest shares is Gaussian about either exact sum, with the same
        # deviation.
        first, second = (np.sum((one.honest - x).astype(float) ** 2, axis=(-2, -1)) for x in exact)
        total = total + (first - second) / (2.0 * deviation**2)
    # As in `log_likelihood_ratio`: the last digits of simulated noise depend on what it was added
    # to.
    return np.asarray(np.round(total, 9))
