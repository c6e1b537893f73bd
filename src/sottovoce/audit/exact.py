"""Exact checks by quadrature: a single release's densities on both tables, on a grid of answers.

With one or two features the density of an answer is known in closed form up to a factor (the
noise's density, mapped through the optimality condition).  So the privacy loss of a pair and its
hockey-stick divergence follow without sampling, and no proved epsilon may be below them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import logsumexp

from ..errors import InvalidInput
from ..queries import Query
from ..util.later import Later
from ..util.typing import Array
from .game import Case, Transcripts, candidates, record_transcripts
from .likelihood import exact_honest_sums, restrict_to_node

optimize = Later("scipy.optimize")
_POINTS = {1: 40_001, 2: 601}
"""Grid points of an axis, by the number of features."""
_SPAN = {1: 30.0, 2: 12.0}
"""Half-width of an axis in mean absolute deviations of the answers, by the number of features."""
_SEEN = 400
"""Number of simulated answers on each table, which place the grid."""


@dataclass(frozen=True)
class Exact:
    """Log probabilities of both tables on one grid of answers.

    Attributes
    ----------
    logs : pair of array (G,)
        Log probability of each of the G grid points on table 0 and on table 1.
    """

    logs: tuple[Array, Array]

    @property
    def epsilon(self) -> float:
        """Largest privacy loss where either density is above e^-60 of its peak."""
        p, q = self.logs
        where = np.maximum(p - p.max(), q - q.max()) > -60.0
        return float(np.abs(p - q)[where].max())

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at `epsilon`, of the worse direction."""
        p, q = self.logs

        def divergence(a: Array, b: Array) -> float:
            more = a > b + epsilon
            return float(np.sum(np.exp(a[more]) - np.exp(b[more] + epsilon)))

        return max(divergence(p, q), divergence(q, p))

    def epsilon_at_delta(self, delta: float) -> float:
        """Return the smallest epsilon at which the divergence is at most `delta`."""
        if delta <= 0:
            return self.epsilon
        if self.delta(0.0) <= delta:
            return 0.0

        def excess(epsilon: float) -> float:
            return self.delta(epsilon) - delta

        return float(optimize.brentq(excess, 0.0, self.epsilon, xtol=1e-10))


def densities(case: Case, seed: int = 0) -> Exact:
    """Return the densities of the victim's first release on both tables of a case.

    Parameters
    ----------
    case : Case
    seed : int
        Of the runs that show where answers lie.

    Returns
    -------
    Exact

    Raises
    ------
    InvalidInput
        For more than two features, or a query whose density is not known.
    """
    seen = [record_transcripts(case, table, _SEEN, seed + table) for table in (0, 1)]
    facts, d = seen[0].facts, case.tables[0].d
    if d not in _POINTS:
        raise InvalidInput("features", d, "must be 1 or 2 for quadrature", "use a simulated audit")
    if seen[0].opened:
        return _densities_of_sum(case, seen[0])
    whole = seen[0].asked[0][0]
    tables = candidates(case, facts)
    victim, n_nodes = tables[0].i, len(facts.n)
    answers = np.concatenate(
        [restrict_to_node(one.asked[0][1], victim, n_nodes)[:, 0] for one in seen]
    )
    if answers.shape[1] != d:
        rule = "releases more than a model"
        raise InvalidInput("method", case.config.method, rule, "use a simulated audit")
    # A few simulated answers place the grid, around their median.
    centre = np.median(answers, axis=0)
    spread = np.abs(answers - centre).mean(axis=0) + 1e-300
    axes = [
        c + s * _SPAN[d] * np.linspace(-1.0, 1.0, _POINTS[d])
        for c, s in zip(centre, spread, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 1, d)
    logs = []
    for one in tables:
        query = _without_replicates(one.cut(whole))
        if not one.has_exact_density(query, grid):
            rule = "adds noise to an answer whose density is not Gaussian near the grid"
            raise InvalidInput("method", case.config.method, rule, "use a simulated audit")
        density = one.log_density(query, grid)
        if density is None or not np.all(np.isfinite(density)):
            rule = "has no density in closed form"
            raise InvalidInput("method", case.config.method, rule, "use a simulated audit")
        logs.append(density - logsumexp(density))
    return Exact((logs[0], logs[1]))


def _densities_of_sum(case: Case, seen: Transcripts) -> Exact:
    """Return the densities of the first sum, less the shares of colluding sites.

    The sum is Gaussian, so only its part along the line through the two exact sums tells the tables
    apart.
    """
    middles, deviation = exact_honest_sums(
        seen.opened[0], case.tables, seen.facts, case.make_table_solver, case.colluding_sites
    )
    apart = float(np.linalg.norm((middles[1] - middles[0])[0, 0])) / deviation
    # Answers along that line in deviations, 0 at table 0's sum; the grid reaches beyond both.
    x = apart / 2 + (_SPAN[1] + apart) * np.linspace(-1.0, 1.0, _POINTS[1])
    logs = [-0.5 * (x - middle) ** 2 for middle in (0.0, apart)]
    return Exact((logs[0] - logsumexp(logs[0]), logs[1] - logsumexp(logs[1])))


def _without_replicates(query: Query) -> Query:
    """Return the query with its public vectors of round 1 only once.

    They are the same at every point of the grid.
    """
    once = {}
    for f in fields(query):  # type: ignore[arg-type]
        value = getattr(query, f.name)
        if isinstance(value, np.ndarray) and value.ndim == 3:
            once[f.name] = value[:1]
    return replace(query, **once)  # type: ignore[type-var]
