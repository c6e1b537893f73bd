"""How likely a site's releases are on given rows: the most powerful score against noise whose law is public.

An adversary who sees every message knows the public inputs of every query that a site was asked, so for each of two
candidate tables the density of every answer is known, and the sum over rounds of log ratios is the most powerful test
(Neyman and Pearson).  Here the law is evaluated at the *stated* noise.  If the noise that was drawn has a fault, the
score stays the same; only what it reveals changes.

Some queries have a density that cannot be computed from the answers alone (a pass over minibatches, a redrawn gate).
They get the best linear score instead: the position of the answer along the line between the two noise-free answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import logsumexp
from scipy.stats import laplace

from ..data.rows import Rows
from ..facts import Facts
from ..privacy.noise import KeyedNoise
from ..queries import (
    GatedMinimiser,
    GaussianLaw,
    NoisyMinimiser,
    NoisyValue,
    PerturbedObjective,
    Query,
    RedrawnGate,
    SecretMinimiser,
    SecretStartObjective,
    SphericalLaw,
    Vault,
)
from ..solvers import Solver
from ..typing import Array

T = TypeVar("T")
_CERTAIN = 1e6  # the log ratio of a release without noise that fits one table and not the other
_BARS = np.linspace(0.0, 1.0, 66)[1:-1]  # quantiles of the noisy threshold


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
    solver: Callable[[Rows, Facts], Solver] | None = None

    def __post_init__(self) -> None:
        alone = self.rows.node(self.i)
        self._signed, self._all = alone.signed[0], len(self.facts.n)
        self._own = replace(self.facts, n=self.facts.n[self.i : self.i + 1])
        solver = Solver(alone, self.facts.loss, self.facts.C) if self.solver is None else self.solver(alone, self._own)
        self._vault = Vault(solver, Silence())
        self._bits: Array | None = None

    def cut(self, query: Query) -> Query:
        """The query as this node was asked it."""
        return of_node(query, self.i, self._all)

    def silent(self, query: Query) -> Array:
        """The noise-free answer, shape (R, 1, d).  To be called once a round: some queries remember."""
        return query.answer(self._vault, self._own, 1)

    def is_sharp(self, query: Query, answers: Array) -> bool:
        """Whether :meth:`log_density` is exact: two Gaussian noises add up only where the loss is linear."""
        law = getattr(query, "noise", None)
        if not isinstance(law, GaussianLaw) or law.release is None:
            return True
        return not np.any(self._own.loss.bend(np.einsum("kd,rd->rk", self._signed, answers[:, 0])))

    def log_density(self, query: Query, answer: Array) -> Array | None:
        """Logarithm of the density of a release, shape (R,), up to what does not depend on rows; None where unknown."""
        facts = self._own
        match query:
            case GatedMinimiser() if query.alpha is not None:
                return self._gated(query, answer)
            case RedrawnGate():
                return None
            case NoisyValue() if query.alpha is None:
                return -_CERTAIN * (np.abs(answer - query.value(self._vault, facts)).max(axis=(1, 2)) > 1e-9)
            case SecretMinimiser() if query.alpha is not None:
                rate = facts.mu * facts.n * query.alpha / (2.0 * facts.C)
                return self._spherical(answer - query.value(self._vault, facts), rate)
            case NoisyValue():
                return self._about(query, answer - query.value(self._vault, facts))
            case PerturbedObjective() if query.noise is None:
                return -_CERTAIN * (np.abs(answer - self.silent(query)).max(axis=(1, 2)) > 1e-9)
            case PerturbedObjective():
                return self._objective(query, answer)
            case _:
                return None

    def _about(self, query: NoisyValue, residual: Array) -> Array:
        sensitivity = query.sensitivity(self._own)
        assert query.alpha is not None
        if self._own.pure:
            return self._spherical(residual, query.alpha / sensitivity)
        return self._gaussian(residual, sensitivity / query.alpha)

    @staticmethod
    def _spherical(residual: Array, rate: Array) -> Array:
        return np.asarray(-(rate * np.linalg.norm(residual, axis=-1, keepdims=True))[:, 0, 0])

    @staticmethod
    def _gaussian(residual: Array, sigma: Array) -> Array:
        return np.asarray(-0.5 * np.sum((residual / sigma) ** 2, axis=(1, 2)))

    def _objective(self, query: PerturbedObjective, w: Array) -> Array:
        """The noise that made `w` the minimiser, and the determinant of the map from one to the other (U1)."""
        facts, law, linear = self._own, query.noise, np.asarray(query.linear)
        if isinstance(query, SecretStartObjective):
            linear = linear + np.asarray(query.own, dtype=float) * self._vault.memory.get("f", np.zeros_like(w))
        q = facts.mu + np.asarray(query.curvature, dtype=float)
        sums = facts.n / facts.C
        b = -sums * (self._vault.solver.gradient(w) + linear + q * w)
        bend = facts.loss.bend(np.einsum("kd,rd->rk", self._signed, w[:, 0]))
        hessian = np.einsum("rk,kd,ke->rde", bend, self._signed, self._signed)
        hessian = hessian + (sums * q).reshape(-1, 1, 1) * np.eye(w.shape[-1])
        determinant = np.linalg.slogdet(hessian)[1]
        if isinstance(law, GaussianLaw):
            if (
                law.release is not None
            ):  # the answer's noise is not small: compare answers instead, both noises Gaussian
                spread = np.hypot(law.sigma / (sums * q), law.release)
                return self._gaussian(w - self.silent(query), spread)
            return self._gaussian(b, law.sigma) + determinant
        assert isinstance(law, SphericalLaw)
        return self._spherical(b, law.rate) + determinant

    def _gated(self, query: GatedMinimiser, answer: Array) -> Array:
        """A gate's bits share one noisy bar: sum over its quantiles, and divide by the sum before this round."""
        facts, passed = self._own, answer[..., -1] > 0  # (R, 1)
        linear = np.asarray(query.linear, dtype=float)
        rest = linear + (facts.mu + np.asarray(query.curvature, dtype=float)) * query.start
        length = np.linalg.norm(self._vault.solver.gradient(query.start) + rest, axis=-1)  # (R, 1)
        whole = facts.gradients_changed * facts.C / facts.n
        assert query.alpha is not None
        bars = query.threshold * facts.C + laplace.ppf(_BARS) * float(np.max(whole / query.epsilon_threshold))
        scale = float(np.max(2.0 * query.positives * whole / query.epsilon_queries))
        if query.index == 1 or self._bits is None:
            self._bits, self._sent = np.zeros((len(answer), len(bars))), np.zeros(len(answer))
        before = logsumexp(self._bits, axis=1)
        over = (length - bars) / scale
        each = np.where(passed, laplace.logcdf(over), laplace.logsf(over))
        self._bits = self._bits + np.where((self._sent < query.positives)[:, None], each, 0.0)
        self._sent = self._sent + passed[:, 0]
        exact = NoisyMinimiser.value(query, self._vault, facts)
        release = np.where(passed[:, 0], self._about(query, answer[..., :-1] - exact), 0.0)
        return np.asarray(logsumexp(self._bits, axis=1) - before + release)


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
