"""Every method under every trust as the tests run it, and what watches a run: queries, answers,
messages, noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from sottovoce.algorithms import REGISTRY, Algorithm
from sottovoce.data.rows import Rows
from sottovoce.ledger.memory import Ledger
from sottovoce.network import graphs
from sottovoce.network.net import DenseNet, Net
from sottovoce.privacy.noise import KeyedNoise, Noise
from sottovoce.queries import Query, Sum
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, prepare
from sottovoce.util.typing import Array, IntArray


class Recorder:
    """A row guard that keeps every query and answer."""

    def __init__(self, guard: RowGuard) -> None:
        self.facts, self._guard = guard.facts, guard
        self.asked: list[tuple[Query | Sum, Array]] = []

    def charge_and_answer(self, query: Query) -> Array:
        answer = self._guard.charge_and_answer(query)
        self.asked.append((query, answer))
        return answer

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        answer = self._guard.charge_and_open_sum(query, net)
        self.asked.append((query, answer))
        return answer


class SpyNet(DenseNet):
    """A net that keeps every message, and every sum over all sites."""

    def __init__(self, graph: graphs.Graph) -> None:
        super().__init__(graph)
        self.sent: list[Array] = []
        self.opened: list[IntArray] = []

    def total(self, sealed: IntArray) -> IntArray:
        self.opened.append(sealed)
        return super().total(sealed)

    def neighbour_sum(self, x: Array) -> Array:
        self.sent.append(np.array(x))
        return super().neighbour_sum(x)


FACTORS = (1.0, 2 / 3, 3 / 2)
"""What the noise of a mechanism under test is multiplied by: only the first may pass."""
LEVEL = 1e-6
"""Error rate of every test of a noise's law; at fixed seeds."""


class Rescaled(KeyedNoise):
    """Keyed noise that is wrong by a factor in some of a release's draws."""

    def __init__(
        self, seed: int, replicates: range, nodes: range, factor: float, uses: Sequence[int]
    ) -> None:
        super().__init__(seed, replicates, nodes)
        self._factor, self._uses = factor, uses

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        return super().draw_spherical(d, release, use) * (
            self._factor if use in self._uses else 1.0
        )

    def draw_gaussian(
        self, d: int, release: int, use: int = 0
    ) -> Array:  # from which steps of a sum are made, too
        return super().draw_gaussian(d, release, use) * (self._factor if use in self._uses else 1.0)


def accepts(noise: Array, law: str) -> bool:
    """Whether vectors in units of their stated scale have its size: a two-sided exact test at
    :data:`LEVEL`.

    A sum of squares of M normals is chi-square of M degrees of freedom, and a sum of M norms of
    density ``exp(-||v||)`` in d dimensions is Gamma(M d).
    """
    if law == "gaussian":
        total, exact = np.sum(noise**2), stats.chi2(noise.size)
    else:
        total, exact = np.sum(np.linalg.norm(noise, axis=-1)), stats.gamma(noise.size)
    return bool(2.0 * min(exact.cdf(total), exact.sf(total)) > LEVEL)


@dataclass(frozen=True)
class Case:
    """A method under a trust, and what is particular to the pair."""

    method: str
    # what the noise is on: an objective, a "statistic", a "sum"; others bring their own test
    kind: str = "objective"
    releases_in_ten: int = 10  # charged releases of a site in ten rounds
    part: float = 1.0  # a budget that is spent before ten rounds of a run at 3.0 end
    # a budget whose noise vanishes
    loud: Mapping[str, Any] = field(default_factory=lambda: {"epsilon": 1e7})
    quiet: float = 2e-4  # what noise of that budget may leave

    @property
    def delta(self) -> float | None:
        """None where the noise has a pure price."""
        return 1e-5 if REGISTRY[self.method].needs_delta else None

    @property
    def private(self) -> bool:
        return REGISTRY[self.method].private

    @property
    def nodes(self) -> int:
        return 1 if REGISTRY[self.method].trust.pools_rows else 5

    def make(self, **changes: Any) -> RunConfig:
        plain = {
            "method": self.method,
            "rounds": 10,
            "rho": 0.02,
            "eta": 0.05,
            "gamma": 0.2,
            "epsilon": math.inf,
        }
        return RunConfig.from_dict(
            plain | ({"epsilon": 3.0, "delta": self.delta} if self.private else {}) | changes
        )

    def seen(self, rows: Rows) -> Rows:
        """Rows as the method's row guards hold them."""
        return rows.pool_at_one_node() if self.nodes == 1 else rows

    def watched(
        self, config: RunConfig, rows: Rows, noise: Noise, replicates: int = 2
    ) -> tuple[Recorder, SpyNet, Algorithm[Any], Ledger]:
        """A run whose queries, answers and messages are kept."""
        rows = self.seen(rows)
        prepared, shape = prepare(config, rows.n, rows.d), (replicates, self.nodes)
        recorder, net = (
            Recorder(RowGuard(rows, prepared.facts, noise, prepared.ledger)),
            SpyNet(prepared.graph),
        )
        run_rounds(
            prepared.algorithm, Place(prepared.facts, net, recorder, shape, rows.d), config.rounds
        )
        return recorder, net, prepared.algorithm, prepared.ledger

    def spied(
        self, config: RunConfig, rows: Rows
    ) -> tuple[Recorder, SpyNet, Algorithm[Any], Ledger]:
        return self.watched(config, rows, KeyedNoise(0, range(2), range(self.nodes)))

    def rescaled(
        self, config: RunConfig, rows: Rows, factor: float, uses: Sequence[int]
    ) -> tuple[Recorder, KeyedNoise, Ledger]:
        """A run whose noise is wrong by `factor` in `uses`; the noise returned with it is right."""
        replicates, nodes = range(config.replicates), range(self.nodes)
        recorder, _, _, ledger = self.watched(
            config, rows, Rescaled(11, replicates, nodes, factor, uses), config.replicates
        )
        return recorder, KeyedNoise(11, replicates, nodes), ledger


_ALL = (
    Case("admm"),
    Case("dvp"),
    Case("pvp", "statistic"),
    Case("m_admm"),
    Case("r_admm", releases_in_ten=5),
    Case("mr_admm", releases_in_ten=5),
    Case(
        "pp_admm", "gaussian objective", loud={"epsilon": 300.0, "rounds": 3}, quiet=0.1
    ),  # a delta allows no less
    Case("ipp_admm", "gate", part=2.0, quiet=1e-3),  # the first round pays for all tests
    Case("prox_admm", "statistic"),
    Case("prox_average", "statistic"),
    Case("momentum", "statistic"),
    Case(
        "sum_momentum", "sum", quiet=4e-4
    ),  # the late rounds, of which the average has most, have noise of their own
    Case("sum_prox", "sum"),
    Case("output", "statistic", 1),
    Case("objective", releases_in_ten=1),
    Case("generalised", releases_in_ten=1),
    Case("dgd", "statistic"),
    Case("gradient_tracking", "statistic", releases_in_ten=5),
    Case("dp_admm", "statistic"),
    Case("central", releases_in_ten=1),
    Case("central_gd", "statistic"),
    Case("central_sgd", "pass"),
    Case("central_prox", "statistic"),
    Case("central_momentum", "statistic"),
)
CASES = {case.method: case for case in _ALL}
