"""Rehearsals: the expected errors of configurations, from runs on synthetic rows.

A *world* is a synthetic data set for sites of the true sizes: rows X, and for each site and row the
*shares* of the classes, with which the row counts for every class.  The *ground* is the set of
sites for which candidates are tried.  :mod:`sottovoce.runs.auto_search` compares methods by
rehearsals, and :mod:`sottovoce.runs.forecast` warns by them.

Worlds and candidates run together, as replicates of one run whose rows, caps and penalties differ
from replicate to replicate: leading axes are (worlds, candidates, replicates).  Solves are only as
exact as a noisy answer needs, and all nodes draw from one noise stream per release.  That is fast,
and must never be used for a real release.
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

WORLDS = 8  # of the search
# Repetitions of the noise in every world, by whether sites are alike.
REPLICATES = {True: 4, False: 2}
# Number of new worlds for the last comparison.
CHECKS = 8
# Rows of a world, or fewer where there are many sites or features.
ROWS = 200
WIDEST = MANY
"""Largest number of features of a world: wider rows are projected
(:func:`sottovoce.data.synthetic_tables.narrowed_sketch`).
"""
# Largest number of model entries of several classes in a world: memory grows like its square.
_ENTRIES = 160
# The fewest rows of a world; the most numbers (worlds x sites x rows x features x margins) of a
# search; and those of a world of `_FEWEST` rows above which nothing is rehearsed.
_FEWEST = 60
_CELLS = 400_000
_MOST = 120_000
FAR = 60.0
"""Margins are clipped here, where losses' derivatives have reached their limits.

Larger margins would be slow in single precision.
"""
_AT_ONCE = 2**18
"""Number of margins up to which all worlds are multiplied together.

That takes fewer calls, and the arrays fit a cache.
"""
# Seed of the noise: a constant, so that a choice does not depend on the user's seed.
_SEED = 20_240_301


@dataclass(frozen=True)
class Ground:
    """The sites for which candidates are tried, and the synthetic worlds drawn for them.

    Parameters
    ----------
    n : tuple of int
        True number of rows of every site.
    d : int
        True number of features; worlds have `WIDEST` at most.
    outputs : int
        Margins per row: 1 for two classes, else the number of classes.
    tilt : float
        How much labels of sites differ, 0 for alike sites:
        :func:`sottovoce.data.synthetic_tables.draw_world`.
    expected : Expected, optional
        What is publicly known of rows; None for tables of a few standard kinds.
    pooled : bool
        Whether one answer covers the rows of all sites (sums, or a curator).
    """

    n: tuple[int, ...]
    d: int
    outputs: int
    tilt: float
    expected: Expected | None = None
    pooled: bool = False

    @staticmethod
    def is_too_large(sites: int, d: int, outputs: int) -> bool:
        """Return whether sites or models are too large to try anything in seconds.

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
    def site_sizes(self) -> Array:
        """True rows, (N, 1)."""
        return np.array(self.n, dtype=float)[:, None]

    @property
    def model_entries(self) -> int:
        """True entries of a classifier."""
        return self.d * self.outputs

    @cached_property
    def search_worlds(self) -> Rehearsal:
        """Worlds of the search."""
        return self._draw_worlds(0, WORLDS)

    @cached_property
    def comparison_worlds(self) -> Rehearsal:
        """Worlds of the last comparison, other than those of the search."""
        return self._draw_worlds(WORLDS, CHECKS)

    @property
    def _world_source(self) -> Expected:
        """The source of worlds: what is known of rows, or tables of a few kinds."""
        if self.expected is None:
            return unknown(self.d)
        return self.expected

    def _draw_worlds(self, start: int, many: int) -> Rehearsal:
        """Draw worlds of these sites: `many`, numbered from `start`."""
        source = self._world_source
        held = self.n
        if self.pooled:
            held = (sum(self.n),)
        alike = self.tilt == 0.0
        # Alike sites share one objective, so that one set of rows stands for all.
        sites = len(held)
        if alike:
            sites = 1
        widest = min(WIDEST, max(2, _ENTRIES // self.outputs))
        cells = WORLDS * sites * min(self.d, widest) * self.outputs
        rows = max(_FEWEST, min(ROWS, _CELLS // cells))
        worlds = [
            source.draw_expected_world(
                start + k, rows, held, classes=max(2, self.outputs), tilt=self.tilt, widest=widest
            )
            for k in range(many)
        ]
        return Rehearsal(tuple(worlds), REPLICATES[alike], _SEED + start, self.outputs, alike)

    @property
    def says(self) -> str:
        """A description of the worlds in words."""
        low, high = min(self.n), max(self.n)
        size = f"{low:,} to {high:,}"
        if low == high:
            size = f"{low:,}"
        alike = "with different labels"
        if self.tilt == 0.0:
            alike = "alike"
        return (
            f"on {self._world_source.says} ({len(self.n)} sites of {size} rows, {self.d} features, "
            "sites "
            f"{alike})"
        )


@dataclass(frozen=True)
class Outcome:
    """Errors and losses of a candidate in the worlds, (worlds, replicates) each.

    `errors` are expected misclassification rates, `losses` the expected log loss of predicted
    probabilities, in nats per row.
    """

    errors: Array
    losses: Array


def _noise_grows(candidate: Prepared) -> bool:
    """Return whether the noise of a method grows over its rounds."""
    noise = candidate.algorithm.noise
    return noise is not None and not noise.is_steady


@dataclass(frozen=True)
class Rehearsal:
    """Synthetic worlds of the same sites; every candidate gets the same rows and the same noise.

    Noise follows the true sizes, and objectives are means over rows, so the curvature and the noise
    of every release are those of the real run.  A row counts for every class with the class's
    probability, which keeps the sampling error small.  With `alike` sites, which share one
    objective, methods that average what sites send are run as one site with the noise of the
    average: only the errors of mixing are left out.
    """

    worlds: tuple[World, ...]
    replicates: int
    seed: int
    outputs: int = 1
    alike: bool = False

    def rehearse_candidates(self, candidates: Sequence[Prepared]) -> list[Outcome]:
        """Compute expected errors and losses of the average classifier of every candidate.

        Candidates have the same method, rounds and graph; caps, penalties, regularisers and noise
        may differ.  For a method with correlated noise, the noise of all candidates must grow over
        rounds or that of none (ValueError).
        """
        if candidates[0].algorithm.recalls and len({_noise_grows(one) for one in candidates}) > 1:
            raise ValueError("candidates: their noise must all grow or none")
        alone = [_merge_alike_sites(one, self.alike) for one in candidates]
        sites = {len(one.facts.n) for one in alone}
        # All candidates run together: if only some can be merged to one site, none is.
        if len(sites) > 1:
            alone = list(candidates)
        if self.alike:
            candidates = alone
        elif all(len(one.facts.n) == 1 for one in alone):
            return self._with_pooled_sites().rehearse_candidates(alone)
        return self._run_together(candidates)

    def _run_together(self, candidates: Sequence[Prepared]) -> list[Outcome]:
        """Compute outcomes of candidates for the same number of sites, all in one run."""
        first = candidates[0]
        worlds, many = len(self.worlds), len(candidates)
        width = self.worlds[0].X.shape[1] * self.outputs
        nodes = len(first.facts.n)
        lead = (worlds * many * self.replicates, nodes)
        caps = [_gradient_cap(one.facts) for one in candidates]
        # The largest cap is that of the facts; `_Solver` applies each candidate's row by row.
        facts, algorithm = candidates[int(np.argmax(caps))].facts, first.algorithm
        solver = _Solver(self, facts, np.asarray(caps))
        if many > 1:
            facts, algorithm = self._stack_candidates(candidates, facts, algorithm)
        stream = _Stream(self.seed, (worlds, 1, self.replicates, nodes), lead, width, facts.d)
        asked = _Rehearsed(facts, Vault(solver, stream))
        place = Place(
            facts, DenseNet(first.graph), asked, lead, width, start=self._stacked_starts(many)
        )
        outcome = engine.run_rounds(algorithm, place, first.config.rounds)
        models = place.fold_to_original_rows(algorithm.model(outcome.state))
        average = np.broadcast_to(models, (*lead, width)).mean(axis=1)
        by_world = average.reshape(worlds, many, self.replicates, width)
        errors = [world.error(W) for world, W in zip(self.worlds, by_world, strict=True)]
        losses = [world.log_loss(W) for world, W in zip(self.worlds, by_world, strict=True)]
        # From one array per world to one per candidate.
        by_candidate = zip(np.stack(errors, axis=1), np.stack(losses, axis=1), strict=True)
        return [Outcome(*found) for found in by_candidate]

    def _with_pooled_sites(self) -> Rehearsal:
        """Return the same worlds for one party that holds the rows of all sites."""
        worlds = tuple(
            replace(one, shares=one.shares.mean(axis=0, keepdims=True)) for one in self.worlds
        )
        return replace(self, worlds=worlds, alike=True)

    def _stack_candidates(
        self, candidates: Sequence[Prepared], facts: Facts, algorithm: Any
    ) -> tuple[Any, Any]:
        """Return facts and algorithm of all candidates in one run.

        Its leading axis holds (worlds candidates replicates).
        """
        worlds, nodes = len(self.worlds), len(facts.n)

        def stacked(values: Sequence[ArrayLike]) -> Array:
            """Return one value a candidate, or one a node of each, for all worlds and replicates:
            (worlds candidates replicates, nodes, 1).
            """
            each = [np.broadcast_to(np.asarray(v, dtype=float), (nodes, 1)) for v in values]
            replicated = np.repeat(np.stack(each), self.replicates, axis=0)
            return np.tile(replicated, (worlds, 1, 1))

        changed = stacked([one.facts.gradients_changed for one in candidates])
        several = _Several.from_facts(facts, changed, stacked([one.facts.mu for one in candidates]))
        penalties = tuple(one.algorithm.penalty for one in candidates)
        # Candidates have one method, so that all of them draw noise or none does.
        noises: tuple[Any, ...] = tuple(one.algorithm.noise for one in candidates)
        together = replace(
            algorithm,
            penalty=_Stacked(parts=penalties, stacked=stacked),
            noise=_Stacked(parts=noises, stacked=stacked),
        )
        return several, together

    def _stacked_starts(self, candidates: int) -> Array | None:
        """Return the runs' starting points, (worlds candidates replicates, 1, width)."""
        starts = [world.start for world in self.worlds if world.start is not None]
        if not starts:
            return None
        return np.repeat(np.stack(starts), candidates * self.replicates, axis=0)[:, None]


def _gradient_cap(facts: Facts) -> float:
    """Return the cap on the norm of a row's gradient; infinity without one."""
    if isinstance(facts.loss, Capped):
        return facts.loss.most
    return math.inf


def averages_messages(method: type[Algorithm[Any]]) -> bool:
    """Return whether a method averages messages round by round, so that alike sites can be one."""
    alone = method.objective_noise or method.single
    return method.gradient_steps or (method.curvature == "node" and not alone)


def _merge_alike_sites(candidate: Prepared, alike: bool) -> Prepared:
    """Return the candidate with one site in place of all, if its method averages or sums what
    sites send, round by round.

    The one site's noise is that of the average, or of the sum.  For gradient steps sites may
    differ: the average of their gradients is that of their mean.
    """
    cls = REGISTRY[candidate.config.method]
    n = candidate.facts.n
    averages = cls.gradient_steps or (alike and averages_messages(cls))
    schedules = (candidate.algorithm.penalty, candidate.algorithm.noise)
    if len(n) == 1 or not averages:
        return candidate
    if any(one is not None and not one.is_constant for one in schedules):
        return candidate
    if cls.trust.opens_sums:
        # A sum is one release of all rows, with noise of its own.
        rows = candidate.facts.rows
    else:
        # The noise of site i has a deviation in proportion to 1 / n_i.  That of the average over N
        # sites is in proportion to sqrt(sum_i 1 / n_i^2) / N = 1 / rows.
        rows = len(n) / math.sqrt(float((1.0 / n**2).sum()))
    # A schedule may list one value a site, all of them equal.
    own: dict[str, Any] = {
        name: schedule.schedule_of_node(0)
        for name, schedule in zip(("penalty", "noise"), schedules, strict=True)
        if schedule is not None
    }
    algorithm = replace(candidate.algorithm, **own)
    facts = replace(candidate.facts, n=np.array([[rows]]))
    return replace(candidate, facts=facts, algorithm=algorithm, graph=make_graph("complete", 1, 0))


@dataclass(frozen=True)
class _Stacked(Schedule):
    """The schedules of several candidates, as one.

    `parts` are the schedules, and `stacked` a function from their values in a round to one array
    (worlds candidates replicates, nodes, 1).
    """

    parts: tuple[Schedule, ...] = ()
    stacked: Any = None

    @classmethod
    def from_value(cls, value: Any) -> Schedule:
        return value

    def __call__(self, k: int) -> Array:
        # A rehearsal asks in every round, and most schedules never change.
        if self.is_steady:
            return self._steady_value
        return self._stack_round(k)

    def _stack_round(self, k: int) -> Array:
        found: Array = self.stacked([part(k) for part in self.parts])
        return found

    @cached_property
    def _steady_value(self) -> Array:
        return self._stack_round(1)

    @cached_property
    def is_steady(self) -> bool:
        return all(part.is_steady for part in self.parts)


@dataclass(frozen=True)
class _Several(Facts):
    """The facts of several candidates, which differ in sensitivity and regulariser.

    `changed` is each candidate's Delta (change of a sum of gradients by one row) and `ridge` its
    ``mu``, both of shape (worlds candidates replicates, nodes, 1).
    """

    changed: Any = None
    ridge: Any = None

    @classmethod
    def from_facts(cls, facts: Facts, changed: Array, ridge: Array) -> _Several:
        """Return facts with each candidate's change by a row, and its regulariser.

        Parameters
        ----------
        facts : Facts
            What all candidates share.
        changed, ridge : array (worlds candidates replicates, nodes, 1)
            As for the class.

        Returns
        -------
        _Several
        """
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
    """A row guard of synthetic rows without a ledger; a sum is that of one site with all rows."""

    def __init__(self, facts: Facts, vault: Vault) -> None:
        self.facts, self._vault, self._releases = facts, vault, 0

    def charge_and_answer(self, query: Query) -> Array:
        self._releases += 1
        return query.answer(self._vault, self.facts, self._releases)

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        self._releases += 1
        return query.answer_of_pooled_rows(self._vault, self.facts, self._releases)


@dataclass(frozen=True)
class _Problems(Sweep):
    """The rows of M problems, as the solver multiplies them.

    A problem is one candidate in one world, with one draw of the noise, at one site; the solver
    takes each for a node, so vectors are (M, 1, width).

    Parameters
    ----------
    X : array (worlds, m, d)
        Rows of the worlds, in single precision.
    world : array of int (M,)
        World of each problem, in ascending order.
    group : array of int (M,)
        Number of each problem's pair of world and candidate.
    shares : array (M, K, m)
        How much each row counts for each class.
    most : array (M, m)
        Largest slope (derivative in the margin) of each row under the candidate's cap.
    """

    X: Any = None
    world: Any = None
    group: Any = None
    shares: Any = None
    most: Any = None

    @property
    def number_of_nodes(self) -> int:
        return len(self.world)

    def in_single_precision(self) -> None:
        """Return None: these rows are in single precision already."""

    def select_nodes(self, nodes: BoolArray) -> Self:
        of_problems = ("world", "group", "shares", "most")
        return replace(self, **{name: getattr(self, name)[nodes] for name in of_problems})

    def _problems_by_world(self) -> Iterator[tuple[Array, slice]]:
        """Yield the rows and the problems of every world that has some."""
        ends = np.searchsorted(self.world, np.arange(len(self.X) + 1))
        for X, first, last in zip(self.X, ends[:-1], ends[1:], strict=True):
            if first < last:
                yield X, slice(first, last)

    def sum_gradients(self, loss: Loss, w: Array) -> Array:
        many, worlds = len(w), len(self.X)
        together = many % worlds == 0 and w.size * self.X.shape[1] <= _AT_ONCE * self.X.shape[2]
        if together and np.array_equal(self.world, np.repeat(np.arange(worlds), many // worlds)):
            # All worlds have the same number of problems: their products are computed at once, each
            # in the shape that it would have alone.
            d = self.X.shape[2]
            X = self.X
            shape: tuple[int, ...] = (worlds, -1, d)
            if self.width > d:
                # Several margins a row.
                X = self.X[:, None]
                shape = (worlds, -1, self.width // d, d)
            z = np.clip(w.astype(np.float32).reshape(shape) @ X.swapaxes(-1, -2), -FAR, FAR)
            slopes = self._slopes_by_class(loss, z.reshape(many, *z.shape[2:]), slice(None))
            return (slopes.reshape(z.shape) @ X).reshape(w.shape).astype(w.dtype)
        out = np.empty_like(w)
        for X, mine in self._problems_by_world():
            slopes = self._slopes_by_class(loss, self._margins_in_world(X, w[mine]), mine)
            out[mine] = (slopes @ X).reshape(len(slopes), 1, -1)
        return out

    def _margins_in_world(self, X: Array, w: Array) -> Array:
        """Compute margins of the rows of a world: (b, m), or (b, K, m) for K classes."""
        single = w.astype(np.float32)
        if self.width > X.shape[1]:
            vectors = single.reshape(len(w), -1, X.shape[1])
        else:
            vectors = single[:, 0]
        return np.asarray(np.clip(vectors @ X.T, -FAR, FAR))

    def _slopes_by_class(self, loss: Loss, z: Array, mine: slice) -> Array:
        """Compute the loss's slopes at margins z, summed over classes with the rows' shares.

        `mine` are the problems that z belongs to; slopes are clipped under the candidate's cap.
        """
        most, shares = self.most[mine], self.shares[mine]
        if z.ndim == 2:
            up = loss.derivative(z)
            if loss.logistic_identity:
                # log(1 + e^-z) - log(1 + e^z) = -z, so one exponential gives both slopes.
                down = -1.0 - up
            else:
                down = loss.derivative(-z)
            up = np.maximum(np.minimum(up, most), -most)
            down = np.maximum(np.minimum(down, most), -most)
            return np.asarray(up * shares[:, 1] - down * shares[:, 0])
        # For K classes: softmax probabilities p, (b, K, m).
        p = loss.derivative(z.reshape(len(z), -1)).reshape(z.shape)
        # Claim 4 of docs/privacy/capped.md: softmax's gradient times min(1, k / (sqrt(2) r)).
        cut = np.minimum(1.0, (most / math.sqrt(2.0))[:, None] / np.maximum(1.0 - p, 1e-12))
        factor = cut * shares
        return np.asarray(p * factor.sum(axis=1, keepdims=True) - factor)

    def sum_curvatures(self, loss: Loss, w: Array, diagonal: bool, typical: bool = False) -> Array:
        """Compute a Hessian for every problem: the mean over its group, for the preconditioner.

        A loss's typical curvature is used, which is positive even where the curvature is zero.

        Parameters
        ----------
        loss : Loss
        w : array (M, 1, width)
            Points.
        diagonal, typical : bool
            Not used: Hessians are whole, and curvatures are typical ones.

        Returns
        -------
        array (M, width, width)
        """
        d = self.X.shape[2]
        out = np.zeros((len(w), self.width, self.width))
        for X, mine in self._problems_by_world():
            z, groups = self._margins_in_world(X, w[mine]), self.group[mine]
            curvatures = loss.typical_curvature(z.reshape(len(z), -1)).reshape(z.shape)
            if z.ndim == 2:
                curvatures = np.minimum(curvatures, 0.5 * self.most[mine])
            for group in sorted(set(groups.tolist())):
                members = mine.start + np.flatnonzero(groups == group)
                by_class = np.atleast_2d(curvatures[groups == group].mean(axis=0))
                # Blocks of different classes are left out: the preconditioner needs none.
                for j, weights in enumerate(by_class):
                    block = slice(j * d, (j + 1) * d)
                    out[members, block, block] = (X * weights[:, None]).T @ X
        return out


class _OnePerGroup(Preconditioner):
    """A preconditioner that all problems of one candidate in one world share."""

    def _hessian_eigenpairs(
        self, loss: Loss, sweep: Sweep, weight: Array, at: Array, *, typical: bool
    ) -> tuple[Array | None, Array]:
        assert isinstance(sweep, _Problems)
        _, first, inverse = np.unique(sweep.group, return_index=True, return_inverse=True)
        of_groups = sweep.sum_curvatures(loss, at, diagonal=False, typical=typical)[first]
        values, vectors = np.linalg.eigh(of_groups * weight[first][:, :, None])
        return vectors[inverse], np.maximum(values, 0.0)[inverse]


class _Solver(Solver):
    """Solves all problems; those of one candidate in one world share their preconditioner."""

    def __init__(self, rehearsal: Rehearsal, facts: Facts, caps: Array) -> None:
        worlds, sites = rehearsal.worlds, len(facts.n)
        X = np.stack([world.X for world in worlds]).astype(np.float32)
        shape = (len(worlds), len(caps), rehearsal.replicates, sites)
        world, candidate, _, site = (x.ravel() for x in np.indices(shape))
        shares_of_worlds = np.stack([one.shares for one in worlds]).transpose(0, 1, 3, 2)
        shares = shares_of_worlds.astype(np.float32)[world, site]
        # The largest slope is cap / ||x||; a row of zeros has no gradient, and any slope is
        # allowed.
        with np.errstate(divide="ignore"):
            steepest = (caps[:, None, None] / np.linalg.norm(X, axis=2)).astype(np.float32)
        most = steepest[candidate, world]
        width = X.shape[2] * rehearsal.outputs
        group = world * len(caps) + candidate
        problems = _Problems((), width, X, world, group, shares, most)
        rows = np.full((len(world), 1), float(X.shape[1]))
        loss = facts.loss
        # The caps differ from problem to problem, so `most` holds them.
        if isinstance(loss, Capped):
            loss = loss.base
        self._prepare(LocalRows(problems, problems, rows, rows, loss, facts.C), _OnePerGroup)
        # Noise moves an answer by more than several rows would, so solves need not be more exact.
        near = float(np.clip(8.0 / np.min(facts.n), 1e-5, 1e-3))
        gradients = np.minimum(caps, loss.derivative_bound)[candidate][:, None]
        self._near = np.maximum(near * gradients, 2e-6)

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise to the accuracy that comparisons need.

        Parameters
        ----------
        linear, q, start
            As for :meth:`Solver.minimise`.
        tol : float or array
            Not used: the accuracy follows from sizes and caps.

        Returns
        -------
        Solution
        """
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        return super().minimise(linear, q, start, self._near.reshape(*lead, 1))

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        points = w.reshape(-1, 1, w.shape[-1])
        slopes = self._rows.given.sum_gradients(self._rows.loss, points)
        return np.asarray(self._rows.weight[:, :, None] * slopes).reshape(w.shape)


class _Stream(KeyedNoise):
    """One noise stream per release, shared by all candidates.

    Every second replicate uses the negated noise of the one before (antithetic pairs), which
    reduces the variance of the estimated error.  Worlds have `width` of the model's true `d`
    entries, and only these are drawn.
    """

    def __init__(
        self, seed: int, drawn: tuple[int, ...], lead: tuple[int, ...], width: int, d: int
    ) -> None:
        super().__init__(seed, range(1), range(1), lead)
        worlds, one, self._replicates, nodes = drawn
        # Half of the replicates, rounded up: the others have the noise with the other sign.
        pairs = -(-self._replicates // 2)
        self._drawn = (worlds, one, pairs, nodes)
        self._width = width
        self._d = d

    def _share_among_candidates(self, x: Array) -> Array:
        """Return noise of all replicates and candidates, from that of every second replicate."""
        both_signs = np.stack([x, -x], axis=3).reshape(*x.shape[:2], -1, *x.shape[3:])
        # Of an odd number of replicates the last has no partner.
        noise = both_signs[:, :, : self._replicates]
        worlds, replicates = noise.shape[0], noise.shape[2]
        candidates = self._lead[0] // (worlds * replicates)
        shared = np.broadcast_to(noise, (worlds, candidates, *noise.shape[2:]))
        return shared.reshape(*self._lead, x.shape[-1])

    def _drawn_and_true_entries(self, d: int) -> tuple[int, int]:
        """Return how many entries of a vector of `d` are drawn, and how many it has in truth.

        Of a model's vector the first `width` of its `_d` entries are drawn, whichever of the two is
        asked for; other draws, such as a noisy test's one number, are drawn whole.
        """
        if d in (self._width, self._d):
            return self._width, self._d
        return d, d

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Draw spherical noise of rate one: the first `d` entries of a vector of true dimension.

        Parameters
        ----------
        d : int
            Entries of the vector; `width` or the true `d` of them are a model's.
        release, use : int
            Which draw of a run it is; equal numbers give equal noise.

        Returns
        -------
        array (worlds candidates replicates, nodes, d)
            The same for all candidates; of a model's vector the first `width` entries.
        """
        (rng,) = self._generators_by_stream(release, use)
        drawn, whole = self._drawn_and_true_entries(d)
        direction = rng.standard_normal((*self._drawn, drawn))
        norm = rng.standard_gamma(whole, (*self._drawn, 1))
        square = (direction**2).sum(axis=-1, keepdims=True)
        # The squared length of the entries that are not drawn.
        rest = whole - drawn
        if rest > 0:
            square = square + rng.chisquare(rest, square.shape)
        return self._share_among_candidates(direction * (norm / np.sqrt(square)))

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Draw standard Gaussian noise, the same for all candidates.

        Parameters
        ----------
        d, release, use : int
            As for :meth:`draw_spherical`.

        Returns
        -------
        array (worlds candidates replicates, nodes, d)
        """
        rng = next(self._generators_by_stream(release, use))
        drawn, _ = self._drawn_and_true_entries(d)
        return self._share_among_candidates(rng.standard_normal((*self._drawn, drawn)))
