"""Rehearsals: expected errors of configurations, from runs on synthetic rows, before there are any
data.

Worlds and candidates run together, as replicates of one run whose rows, caps and penalties differ.
Solves are only as exact as a noisy answer needs, and all nodes draw from one noise stream a
release.  That is fast, and must never be used for a real release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ..algorithms import REGISTRY, Algorithm
from ..data.sweep import Sweep
from ..data.synthetic_tables import MANY, Expected, World, unknown
from ..network.graphs import make_graph
from ..network.net import DenseNet, Net
from ..privacy.noise import KeyedNoise
from ..problem.clipped import Capped
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.schedules import Schedule
from ..queries import Query, Sum, Vault
from ..solvers.local import Solution, Solver
from ..solvers.local_rows import LocalRows
from ..solvers.preconditioner import Preconditioner
from ..util.typing import Any, Array, ArrayLike, BoolArray
from . import engine
from .engine import Place
from .pricing import Prepared

WORLDS = 8
REPLICATES = {True: 4, False: 2}  # of the noise in every world, by whether sites are alike
CHECKS = 8  # other worlds, of the last comparison
ROWS = 200  # of a world, or fewer where there are many sites or features
WIDEST = MANY
"""Features of a world: wider rows are narrowed
(:func:`sottovoce.data.synthetic_tables.narrowed`).
"""
_ENTRIES = 160  # of a classifier of several classes in a world: memory grows like the square
# rows, and numbers that a search and a world may have
_FEWEST, _CELLS, _MOST = (
    60,
    400_000,
    120_000,
)
FAR = 60.0
"""Margins are cut here, beyond the slopes' limits: more is slow in single precision."""
_AT_ONCE = 2**18
"""Margins up to which all worlds are gone through together: fewer calls, and arrays that fit a
cache.
"""
_SEED = 20_240_301  # of the noise: no user's seed enters a choice


@dataclass(frozen=True)
class Ground:
    """The sites for which candidates are tried, in synthetic worlds of these sizes."""

    n: tuple[int, ...]  # true rows of every site
    d: int  # true features
    outputs: int  # margins per row
    # how much labels of sites differ: see :func:`sottovoce.data.synthetic_tables.make_world`
    tilt: float
    expected: Expected | None = None  # what is known of rows; None for rows of a few kinds
    pooled: bool = False  # whether one party holds the rows of all sites

    @staticmethod
    def too_large(sites: int, d: int, outputs: int) -> bool:
        """Return whether sites are too large for anything to be tried in seconds.

        Parameters
        ----------
        sites : int
        d : int
            Features; worlds have `WIDEST` at most.
        outputs : int
            Margins per row.

        Returns
        -------
        bool
        """
        return sites * min(d, WIDEST) * outputs * _FEWEST > _MOST

    @property
    def sizes(self) -> Array:
        """True rows, (N, 1)."""
        return np.array(self.n, dtype=float)[:, None]

    @property
    def weights(self) -> int:
        """True entries of a classifier."""
        return self.d * self.outputs

    @cached_property
    def first(self) -> Rehearsal:
        """Worlds of the search."""
        return self._draw(0, WORLDS)

    @cached_property
    def final(self) -> Rehearsal:
        """Worlds of the last comparison, other than those of the search."""
        return self._draw(WORLDS, CHECKS)

    def _draw(self, start: int, many: int) -> Rehearsal:
        known = unknown(self.d) if self.expected is None else self.expected
        held = (sum(self.n),) if self.pooled else self.n
        widest = min(WIDEST, max(2, _ENTRIES // self.outputs))
        cells = WORLDS * (1 if self.tilt == 0.0 else len(held)) * min(self.d, widest) * self.outputs
        rows = max(_FEWEST, min(ROWS, _CELLS // cells))
        worlds = [
            known.world(
                start + k, rows, held, classes=max(2, self.outputs), tilt=self.tilt, widest=widest
            )
            for k in range(many)
        ]
        alike = self.tilt == 0.0
        return Rehearsal(tuple(worlds), REPLICATES[alike], _SEED + start, self.outputs, alike)

    @property
    def says(self) -> str:
        known = unknown(self.d) if self.expected is None else self.expected
        low, high = min(self.n), max(self.n)
        size = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        alike = "alike" if self.tilt == 0.0 else "with unlike labels"
        return (
            f"on {known.says} ({len(self.n)} sites of {size} rows, {self.d} features, sites "
            f"{alike})"
        )


@dataclass(frozen=True)
class Outcome:
    """Errors and losses of a candidate in the worlds, (worlds, replicates) each.

    `errors` are expected misclassified shares, `losses` the expected log loss of stated
    probabilities, in nats a row.
    """

    errors: Array
    losses: Array


def _grows(candidate: Prepared) -> bool:
    """Return whether the noise of a method grows over its rounds."""
    noise = candidate.algorithm.noise
    return noise is not None and not noise.steady


@dataclass(frozen=True)
class Rehearsal:
    """Synthetic worlds of the same sites; every candidate meets the same rows and the same noise.

    Prices and noise follow the true sizes, and objectives are means over rows, so the curvature and
    the noise of every release are those of the real run.  Rows count for every class with its
    probability, so that their sampling error is small.  With `alike` sites, all of one objective,
    methods that average what sites send run as if by one site with the noise of the average: only
    the errors of mixing are left out.
    """

    worlds: tuple[World, ...]
    replicates: int
    seed: int
    outputs: int = 1
    alike: bool = False

    def outcomes(self, candidates: Sequence[Prepared]) -> list[Outcome]:
        """Expected errors and losses of the average classifier of every candidate.

        Candidates have the same method, rounds and graph; caps, penalties, regularisers and noise
        may differ.  Where a method carries noise, that of all grows or that of none (ValueError).
        """
        if candidates[0].algorithm.recalls and len({_grows(one) for one in candidates}) > 1:
            raise ValueError("candidates: their noise must all grow or none")
        alone = [_as_one(one, self.alike) for one in candidates]
        sites = {len(one.facts.n) for one in alone}
        if len(sites) > 1:  # only some may be taken as one site
            alone = list(candidates)
        if self.alike:
            candidates = alone
        elif all(len(one.facts.n) == 1 for one in alone):
            return self._pooled().outcomes(alone)
        return self._run_together(candidates)

    def _run_together(self, candidates: Sequence[Prepared]) -> list[Outcome]:
        """Outcomes of candidates for the same number of sites, all in one run."""
        first, worlds, many = candidates[0], len(self.worlds), len(candidates)
        width, nodes = self.worlds[0].X.shape[1] * self.outputs, len(first.facts.n)
        lead = (worlds * many * self.replicates, nodes)
        caps = [
            one.facts.loss.most if isinstance(one.facts.loss, Capped) else math.inf
            for one in candidates
        ]
        facts, algorithm = candidates[int(np.argmax(caps))].facts, first.algorithm
        solver = _Solver(self, facts, np.asarray(caps))
        if many > 1:
            facts, algorithm = self._together(candidates, facts, algorithm)
        stream = _Stream(self.seed, (worlds, 1, self.replicates, nodes), lead, width, facts.d)
        asked = _Rehearsed(facts, Vault(solver, stream))
        place = Place(facts, DenseNet(first.graph), asked, lead, width, start=self._start(many))
        outcome = engine.run(algorithm, place, first.config.rounds)
        models = np.broadcast_to(
            place.classifier(algorithm.model(outcome.state)), (*lead, width)
        ).mean(axis=1)
        mine = models.reshape(worlds, many, self.replicates, width)
        errors = np.stack(
            [world.error(W) for world, W in zip(self.worlds, mine, strict=True)], axis=1
        )
        losses = np.stack(
            [world.log_loss(W) for world, W in zip(self.worlds, mine, strict=True)], axis=1
        )
        return [Outcome(*found) for found in zip(errors, losses, strict=True)]

    def _pooled(self) -> Rehearsal:
        """The same worlds for one party that holds the rows of all sites."""
        worlds = tuple(
            replace(one, shares=one.shares.mean(axis=0, keepdims=True)) for one in self.worlds
        )
        return replace(self, worlds=worlds, alike=True)

    def _together(
        self, candidates: Sequence[Prepared], facts: Facts, algorithm: Any
    ) -> tuple[Any, Any]:
        """Facts and algorithm of all candidates in one run, whose leading axis holds (worlds
        candidates replicates).
        """
        worlds, nodes = len(self.worlds), len(facts.n)

        def stacked(values: Sequence[ArrayLike]) -> Array:
            """One value a candidate, or one a node of each: (worlds candidates replicates,
            nodes, 1).
            """
            each = np.stack(
                [np.broadcast_to(np.asarray(v, dtype=float), (nodes, 1)) for v in values]
            )
            return np.tile(np.repeat(each, self.replicates, axis=0), (worlds, 1, 1))

        changed = stacked([one.facts.gradients_changed for one in candidates])
        several = _Several.of(facts, changed, stacked([one.facts.mu for one in candidates]))
        penalty, noise = (
            _Stacked(
                parts=tuple(getattr(one.algorithm, name) for one in candidates), stacked=stacked
            )
            for name in ("penalty", "noise")
        )
        return several, replace(algorithm, penalty=penalty, noise=noise)

    def _start(self, candidates: int) -> Array | None:
        """Return the runs' starting points, (worlds candidates replicates, 1, width)."""
        starts = [world.start for world in self.worlds if world.start is not None]
        return (
            np.repeat(np.stack(starts), candidates * self.replicates, axis=0)[:, None]
            if starts
            else None
        )


def averaging(method: type[Algorithm[Any]]) -> bool:
    """Return whether alike sites rehearse as one: the method averages messages, round by round."""
    alone = method.objective_noise or method.single
    return method.gradient_steps or (method.curvature == "node" and not alone)


def _as_one(candidate: Prepared, alike: bool) -> Prepared:
    """The candidate with one site in place of all, if its method averages or sums what sites send,
    round by round.

    The one site's noise is that of the average, or of the sum.  For gradient steps sites may
    differ: the average of their gradients is that of their mean.
    """
    cls, n = REGISTRY[candidate.config.method], candidate.facts.n
    averages = cls.gradient_steps or (alike and averaging(cls))
    schedules = (candidate.algorithm.penalty, candidate.algorithm.noise)
    if (
        len(n) == 1
        or not averages
        or any(one is not None and not one.constant for one in schedules)
    ):
        return candidate
    summed = cls.trust.opens_sums  # of all rows, with noise of its own
    alone = np.array(
        [[candidate.facts.rows if summed else len(n) / math.sqrt(float((1.0 / n**2).sum()))]]
    )
    # A schedule may list one value a site, all of them equal.
    own: dict[str, Any] = {
        name: schedule.node(0)
        for name, schedule in zip(("penalty", "noise"), schedules, strict=True)
        if schedule is not None
    }
    algorithm = replace(candidate.algorithm, **own)
    facts = replace(candidate.facts, n=alone)
    return replace(candidate, facts=facts, algorithm=algorithm, graph=make_graph("complete", 1, 0))


@dataclass(frozen=True)
class _Stacked(Schedule):
    """The schedules of several candidates."""

    parts: tuple[Schedule, ...] = ()
    stacked: Any = None

    @classmethod
    def of(cls, value: Any) -> Schedule:
        return value

    def __call__(self, k: int) -> Array:
        return self._always if self.steady else self._of(k)

    def _of(self, k: int) -> Array:
        found: Array = self.stacked([part(k) for part in self.parts])
        return found

    @cached_property
    def _always(self) -> Array:
        return self._of(1)

    @cached_property
    def steady(self) -> bool:
        return all(part.steady for part in self.parts)


@dataclass(frozen=True)
class _Several(Facts):
    """The facts of several candidates, whose gradients change and are regularised by different
    amounts.
    """

    changed: Any = None
    ridge: Any = None

    @classmethod
    def of(cls, facts: Facts, changed: Array, ridge: Array) -> _Several:
        """Return facts with each candidate's change by a row, and its regulariser."""
        return cls(
            **{name: getattr(facts, name) for name in Facts.__dataclass_fields__},
            changed=changed,
            ridge=ridge,
        )

    @property
    def gradients_changed(self) -> Any:
        return self.changed

    @property
    def change_certified(self) -> Any:
        return self.changed

    @property
    def mu(self) -> Any:
        return self.ridge


class _Rehearsed:
    """A row guard of synthetic rows, without a ledger; a sum is that of one site with all rows."""

    def __init__(self, facts: Facts, vault: Vault) -> None:
        self.facts, self._vault, self._releases = facts, vault, 0

    def ask(self, query: Query) -> Array:
        self._releases += 1
        return query.answer(self._vault, self.facts, self._releases)

    def ask_sum(self, query: Sum, net: Net) -> Array:
        self._releases += 1
        return query.at_once(self._vault, self.facts, self._releases)


@dataclass(frozen=True)
class _Problems(Sweep):
    """A problem a node: a candidate in a world, with one noise and at one site.  Vectors are (M,
    1, width).
    """

    X: Any = None  # (worlds, m, d), in single precision
    world: Any = None  # (M,), which never falls
    group: Any = None  # (M,), a number for world and candidate
    shares: Any = None  # (M, K, m): how much a row counts for each class
    most: Any = None  # (M, m): the largest slope of a row under its cap

    @property
    def nodes(self) -> int:
        return len(self.world)

    def single(self) -> None:
        """None: these rows are in single precision already."""

    def keep(self, nodes: BoolArray) -> Self:
        return replace(
            self,
            **{name: getattr(self, name)[nodes] for name in ("world", "group", "shares", "most")},
        )

    def _worlds(self) -> Iterator[tuple[Array, slice]]:
        """The rows and the problems of every world."""
        ends = np.searchsorted(self.world, np.arange(len(self.X) + 1))
        for X, first, last in zip(self.X, ends[:-1], ends[1:], strict=True):
            if first < last:
                yield X, slice(first, last)

    def gradient(self, loss: Loss, w: Array) -> Array:
        many, worlds = len(w), len(self.X)
        together = many % worlds == 0 and w.size * self.X.shape[1] <= _AT_ONCE * self.X.shape[2]
        if together and np.array_equal(self.world, np.repeat(np.arange(worlds), many // worlds)):
            # As many problems in every world: all products at once, each of the shape that it has
            # alone.
            d, several = self.X.shape[2], self.width > self.X.shape[2]
            X = self.X[:, None] if several else self.X
            shape = (worlds, -1, self.width // d, d) if several else (worlds, -1, d)
            z = np.clip(w.astype(np.float32).reshape(shape) @ X.swapaxes(-1, -2), -FAR, FAR)
            slopes = self._slopes(loss, z.reshape(many, *z.shape[2:]), slice(None))
            return (slopes.reshape(z.shape) @ X).reshape(w.shape).astype(w.dtype)
        out = np.empty_like(w)
        for X, mine in self._worlds():
            slopes = self._slopes(loss, self._margins(X, w[mine]), mine)
            out[mine] = (slopes @ X).reshape(len(slopes), 1, -1)
        return out

    def _margins(self, X: Array, w: Array) -> Array:
        """(b, m), or (b, K, m) for K classes."""
        short = w.astype(np.float32)
        z = (
            short.reshape(len(w), -1, X.shape[1]) if self.width > X.shape[1] else short[:, 0]
        ) @ X.T
        return np.asarray(np.clip(z, -FAR, FAR))

    def _slopes(self, loss: Loss, z: Array, mine: slice) -> Array:
        """Slopes in the margins, each class counted by its share."""
        most, shares = self.most[mine], self.shares[mine]
        if z.ndim == 2:
            up = loss.derivative(z)
            # log(1 + e^-z) - log(1 + e^z) = -z
            down = -1.0 - up if loss.logistic_identity else loss.derivative(-z)
            up, down = (np.maximum(np.minimum(one, most), -most) for one in (up, down))
            return np.asarray(up * shares[:, 1] - down * shares[:, 0])
        p = loss.derivative(z.reshape(len(z), -1)).reshape(z.shape)  # of margins against any class
        factor = (
            np.minimum(1.0, (most / math.sqrt(2.0))[:, None] / np.maximum(1.0 - p, 1e-12)) * shares
        )
        return np.asarray(p * factor.sum(axis=1, keepdims=True) - factor)

    def hessian(self, loss: Loss, w: Array, diagonal: bool, typical: bool = False) -> Array:
        """One Hessian for every group: the mean over its problems, with a curvature that none of
        them lacks.
        """
        d = self.X.shape[2]
        out = np.zeros((len(w), self.width, self.width))
        for X, mine in self._worlds():
            z, groups = self._margins(X, w[mine]), self.group[mine]
            curvatures = loss.typical_curvature(z.reshape(len(z), -1)).reshape(z.shape)
            if z.ndim == 2:
                curvatures = np.minimum(curvatures, 0.5 * self.most[mine])
            for group in sorted(set(groups.tolist())):
                for j, weights in enumerate(
                    np.atleast_2d(curvatures[groups == group].mean(axis=0))
                ):
                    block = slice(j * d, (j + 1) * d)
                    out[mine.start + np.flatnonzero(groups == group), block, block] = (
                        X * weights[:, None]
                    ).T @ X
        return out


class _OnePerGroup(Preconditioner):
    """One Hessian for all problems of one candidate in one world."""

    def _eigen(
        self, loss: Loss, sweep: Sweep, weight: Array, at: Array, *, typical: bool
    ) -> tuple[Array | None, Array]:
        assert isinstance(sweep, _Problems)
        _, first, inverse = np.unique(sweep.group, return_index=True, return_inverse=True)
        hessian = (
            sweep.hessian(loss, at, diagonal=False, typical=typical)[first]
            * weight[first][:, :, None]
        )
        values, vectors = np.linalg.eigh(hessian)
        return vectors[inverse], np.maximum(values, 0.0)[inverse]


class _Solver(Solver):
    """Solves all problems; those of one candidate in one world share their preconditioner."""

    def __init__(self, rehearsal: Rehearsal, facts: Facts, caps: Array) -> None:
        worlds, sites = rehearsal.worlds, len(facts.n)
        X = np.stack([world.X for world in worlds]).astype(np.float32)
        shape = (len(worlds), len(caps), rehearsal.replicates, sites)
        world, candidate, _, site = (x.ravel() for x in np.indices(shape))
        shares = (
            np.stack([one.shares for one in worlds])
            .transpose(0, 1, 3, 2)
            .astype(np.float32)[world, site]
        )
        with np.errstate(divide="ignore"):
            most = (caps[:, None, None] / np.linalg.norm(X, axis=2)).astype(np.float32)[
                candidate, world
            ]
        width, group = X.shape[2] * rehearsal.outputs, world * len(caps) + candidate
        problems = _Problems((), width, X, world, group, shares, most)
        rows = np.full((len(world), 1), float(X.shape[1]))
        loss = facts.loss.base if isinstance(facts.loss, Capped) else facts.loss
        self._prepare(LocalRows(problems, problems, rows, rows, loss, facts.C), _OnePerGroup)
        # noise is larger than that many rows
        near = float(np.clip(8.0 / np.min(facts.n), 1e-5, 1e-3))
        self._near = np.maximum(
            near * np.minimum(caps, loss.derivative_bound)[candidate][:, None], 2e-6
        )

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise to the accuracy that comparisons need, whatever certificate `tol` asks for."""
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        return super().minimise(linear, q, start, self._near.reshape(*lead, 1))

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        points = w.reshape(-1, 1, w.shape[-1])
        slopes = self._rows.given.gradient(self._rows.loss, points)
        return np.asarray(self._rows.weight[:, :, None] * slopes).reshape(w.shape)


class _Stream(KeyedNoise):
    """One noise stream a release for all candidates; of `d` entries only the first `width` are
    drawn.

    Every second replicate has the noise of the one before with the other sign.  Where one errs too
    much the other errs too little, so their mean is much nearer the expected error than that of two
    independent ones.
    """

    def __init__(
        self, seed: int, drawn: tuple[int, ...], lead: tuple[int, ...], width: int, d: int
    ) -> None:
        super().__init__(seed, range(1), range(1), lead)
        worlds, one, self._replicates, nodes = drawn
        self._drawn, self._width, self._d = (
            (worlds, one, -(-self._replicates // 2), nodes),
            width,
            d,
        )

    def _for_all(self, x: Array) -> Array:
        both = np.stack([x, -x], axis=3).reshape(*x.shape[:2], -1, *x.shape[3:])[
            :, :, : self._replicates
        ]
        candidates = self._lead[0] // (both.shape[0] * both.shape[2])
        return np.broadcast_to(both, (both.shape[0], candidates, *both.shape[2:])).reshape(
            *self._lead, x.shape[-1]
        )

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Draw spherical noise of rate one: the first `d` entries of a vector of true dimension."""
        (rng,) = self._starts(release, use)
        # of a vector only a part is drawn; a test draws one number
        whole = self._d if d == self._width else d
        direction = rng.standard_normal((*self._drawn, d))
        norm = rng.standard_gamma(whole, (*self._drawn, 1))
        square, rest = (direction**2).sum(axis=-1, keepdims=True), whole - d
        if rest > 0:
            square = square + rng.chisquare(rest, square.shape)
        return self._for_all(direction * (norm / np.sqrt(square)))

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Draw standard Gaussian noise, the same for all candidates."""
        return self._for_all(next(self._starts(release, use)).standard_normal((*self._drawn, d)))
