"""A run on made-up rows: estimates a configuration's error from sizes and a plan, before there are any data.

Several worlds run at once, as replicates of one run whose rows differ.  Solves are only as exact as a noisy answer
needs, and all nodes draw from one noise stream per release.  That is fast, and must never be used for a real release.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..data.classes import ClassRows
from ..data.lifelike import World
from ..data.rows import Rows
from ..facts import Facts
from ..losses import Loss
from ..net import DenseNet
from ..privacy.noise import KeyedNoise
from ..queries import Query, Vault
from ..solvers import Solution, Solver
from ..task import TwoClasses
from ..typing import Array, ArrayLike
from . import engine
from .engine import Place
from .prepare import Prepared

TOL = 1e-5  # of a solve, on the gradient's norm in units of C


@dataclass(frozen=True)
class Rehearsal:
    """Made-up worlds of the same sites; every candidate is tried on the same rows and with the same noise.

    Parameters
    ----------
    worlds : tuple of World
        A made-up site may have fewer rows than the real one.  Prices and noise follow the true sizes, and objectives
        are means over rows, so the curvature and the noise of every release are those of the real run.  Only the
        sampling error of the rows is larger.
    replicates : int
        Repetitions of the noise in every world.
    seed : int
    outputs : int
        Margins per row.
    """

    worlds: tuple[World, ...]
    replicates: int
    seed: int
    outputs: int = 1

    @cached_property
    def rows(self) -> Rows:
        """The rows of all worlds, with every site of every world as a node."""
        parts = [part for world in self.worlds for part in world.parts]
        if self.outputs > 1:
            return ClassRows.of(parts, self.outputs)
        return Rows.build([(X, TwoClasses().encode(y)) for X, y in parts])

    def errors(self, prepared: Prepared) -> Array:
        """Expected misclassified shares of the average classifier, shape (worlds, replicates)."""
        facts, worlds = prepared.facts, len(self.worlds)
        lead = (worlds * self.replicates, facts.n_nodes)
        solver = _Folded(self.rows, facts.loss, facts.C, worlds)
        asked = _Rehearsed(facts, Vault(solver, _Stream(self.seed, lead)))
        place = Place(facts, DenseNet(prepared.graph), asked, lead, facts.d)
        outcome = engine.run(prepared.algorithm, place, prepared.config.rounds)
        models = np.broadcast_to(prepared.algorithm.model(outcome.state), (*lead, facts.d)).mean(axis=1)
        mine = models.reshape(worlds, self.replicates, facts.d)
        return np.stack([world.error(W) for world, W in zip(self.worlds, mine, strict=True)])


class _Rehearsed:
    """A curator of made-up rows, which needs no ledger."""

    def __init__(self, facts: Facts, vault: Vault) -> None:
        self.facts, self._vault, self._releases = facts, vault, 0

    def ask(self, query: Query) -> Array:
        """Answer."""
        self._releases += 1
        return query.answer(self._vault, self.facts, self._releases)


class _Folded(Solver):
    """Turns (worlds R, N, d) into R replicates of (worlds N) nodes, whose rows differ, and back."""

    def __init__(self, rows: Rows, loss: Loss, C: float, worlds: int) -> None:
        super().__init__(rows, loss, C)
        self._worlds = worlds

    def _fold(self, x: Array, lead: tuple[int, ...]) -> Array:
        x = np.broadcast_to(x, (*lead, x.shape[-1])).reshape(self._worlds, -1, lead[-1], x.shape[-1])
        return x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[-1])

    def _unfold(self, x: Array) -> Array:
        split = x.reshape(len(x), self._worlds, -1, x.shape[-1])
        return split.swapaxes(0, 1).reshape(self._worlds * len(x), -1, x.shape[-1])

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        near = max(float(np.max(tol)), TOL)
        found = super().minimise(
            self._fold(linear, lead), self._fold(np.atleast_1d(q), lead), self._fold(start, lead), near
        )
        return Solution(self._unfold(found.w), self._unfold(found.gradient_norm), found.iterations)

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        return self._unfold(super().gradient(self._fold(w, w.shape[:-1]), part, parts))


class _Stream(KeyedNoise):
    """One stream a release for all replicates and nodes."""

    def __init__(self, seed: int, lead: tuple[int, ...]) -> None:
        super().__init__(seed, range(1), range(1), lead)

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        rng = self._generator(0, 0, release, use)
        direction = rng.standard_normal((*self._lead, d))
        norm = rng.standard_gamma(d, (*self._lead, 1))
        return np.asarray(direction * (norm / np.linalg.norm(direction, axis=-1, keepdims=True)))

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return self._generator(0, 0, release, use).standard_normal((*self._lead, d))
