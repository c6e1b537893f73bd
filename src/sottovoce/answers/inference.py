"""Logistic regression with confidence intervals, by Newton steps on noisy sums
(docs/privacy/answers.md, "Inference").

:class:`Newton` is the list of releases and the script that asks for them; its outcome,
:class:`Estimates`, becomes a table in :mod:`sottovoce.answers.coefficients`.  Arrays have one entry
for each of R replicates (runs with fresh noise) in front, and d is the number of encoded columns.

Second moments give a public *frame*, a whitening matrix A: the rows ``A a`` have about equal second
moments in all directions, and nine in ten are shorter than 1.  Hessians are asked of rows ``A a``,
so that their noise is small relative to them in every direction; gradients are asked of the rows a
themselves, so the frame moves no estimate.  Newton steps lead near the minimiser.  At the last
point w let H be the average of all Hessians and J the second moments of the rows' gradients, both
in the frame, g the average of all gradients, n the number of rows, and s_g and s_H the standard
deviations of the noise on an entry of g and of the flattened H.  Then::

    estimate = w + A'(d - b),    d = -H^-1 A g,
    covariance = H^-1 [J / n + s_g^2 A A' + (s_H^2 / 2)(|d|^2 I + d d')] H^-1 + b b',

The second term in s_H holds because an error E of H moves the estimate by ``H^-1 E d``.  b is the
second-order bias of the last step (:mod:`sottovoce.answers.second_order`), taken to be as uncertain
as it is large.

Terms of this package: a column is *kept* if it has a coefficient of its own; a rare level or small
site whose coefficient noise would hide is *merged* with its reference, or with the other sites.  A
*lost* direction is a combination of columns that is 0 in every row
(:mod:`sottovoce.answers.directions`).  The *strain* of a table is the relative size of its last
Newton step.  The *size* of the effects is a common factor on all slopes, and its *room* the
distance, in standard errors, to where the likelihood has no maximum in it (separation).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..algorithms.items import Answer, Item, Script
from ..errors import InvalidInput
from ..problem.facts import Among, Facts
from ..problem.losses import Logistic
from ..queries import (
    Bounded,
    Curvature,
    FramedCurvature,
    FramedMoments,
    FramedSlopes,
    Gradient,
    Lengths,
    Positives,
    SecondMoments,
)
from ..queries.moments import unflatten_symmetric
from ..runs.config import RunConfig
from ..util.typing import Array, BoolArray
from .directions import (
    Directions,
    classify_directions,
    classify_unseen_directions,
    column_variances,
)
from .frames import (
    EDGES,
    Frame,
    choose_row_thresholds,
    estimate_displacement,
    project_to_semidefinite,
    refine_whitening,
    whitening_transform,
)
from .merged_levels import MergedLevels, levels_merged
from .normal_rows import (
    NormalRows,
    as_curvature_falls,
    fit_normal_rows,
    stretch_newton_step,
    uncertainty_of_size,
)
from .references import blocks_of
from .second_order import missed
from .separate_sites import (
    Columns,
    Heard,
    SeparateSites,
    SiteStep,
    combine_by_precision,
    extend_to_site_constants,
    of_kind,
    shrink_to_mean,
    weights_by_noise,
)
from .separation import Evidence, Point, Shortened, Undetermined, undetermined, undetermined_by_site
from .slope_moments import OF_CLASSES, drawn_to_multiple
from .terms import Naming

# The error is exact given H, so intervals cover above it too (measured below .5).
TAU = 0.3
"""Largest share of a coefficient's variance that the noise of the Hessian may add beyond first
order (:func:`second_order_share`); a coefficient with more is refused.
"""
LOWER = 1.0
"""Noise deviations that :func:`second_order_share` subtracts from the Hessian's eigenvalues, to be
on the safe side.
"""
SURE, UNSURE = 0.5, 1.0
"""Thresholds of a table's strain q: printed below the first, flagged up to the second, refused
above.

In between it is refused, too, if a coefficient fails `TAU`: with some directions of the Hessian
lost in noise, a strained step is not reliable in the others either (bench/accuracy/coverage.py,
correlated columns).
"""
ROOM = 4.0
"""Least room of a printed table, in standard errors of the size of all effects; with less, the
whole table is refused.
"""
# Largest change of a site's own constant by one answer, in log-odds.
_FARTHEST = 2.0
# Without these deviations a tenth of the draws of `justice-like` were refused at epsilon 10.
CHANCE = 2.0
"""Standard deviations of the noise's part of the last step's squared length that are subtracted
from it, beside its mean, before the strain is computed.
"""
FAR = 10.0
"""Largest root mean square shift of scores, in log-odds, by noise in the gradients alone; with
more the steps went astray, and the table is refused.
"""
CUT = 2.0 * UNSURE
"""Least strain of a table whose last step but one was shortened: the steps had not arrived, so it
is refused.
"""
# Curvatures of rows are clipped at this multiple of the mean curvature: at .1 with 3% positives.
_RARE = 3.4
RAREST = 0.01
"""Levels, references too, with a smaller share of the rows are merged if noise would hide their
coefficient.
"""
HIDDEN = 2.0
"""Largest standard deviation, in log-odds, by which noise in the gradients may move the coefficient
of a rare level that is not merged.
"""
# Before this was added, the slope of a column with which forty hidden sites rise had intervals
# that covered half of the time (docs/privacy/answers.md, "What merged rows may do").
OFF = 1.0
"""Standard deviation, taken beforehand, of the log-odds of a merged level or site about what it was
merged with.
"""
OF_LEVELS = 0.3
"""Distance of a level's mean row from the mean of all rows, in standard deviations of a row; that
of a site is taken to be 1.
"""
# A level or site with a smaller share of the rows, in noise deviations of the share, is merged.
_SEEN = 2.0
# The same for shares below `_COMMON`.
_SURELY_SEEN = 3.0
_COMMON = 0.05
# Without noise, a share of the rows below this is 0 but for rounding.
_NO_ROWS = 1e-9
# A Hessian is taken to have no inverse if an eigenvalue is below this part of the noise's norm.
_FLOOR = 0.05
# About the length that one row in ten exceeds, over the root mean square of lengths.
_TYPICAL = 1.3


@dataclass(frozen=True)
class Estimates:
    """Outcome of the recipes of this module and of :mod:`sottovoce.answers.least_squares`.

    For R replicates, in encoded columns; symbols are those of the module's docstring.
    """

    estimate: Array  # one step from `at`                         (R, d)
    at: Array  # w, the public point of the last gradient         (R, d)
    covariance: Array  # of the estimate                          (R, d, d)
    noise: Array  # its part from privacy noise                   (R, d, d)
    sampling: Array  # its part that is there without noise, too  (R, d, d)
    frame: Array  # A                                             (R, d, d)
    hessian: Array  # H in the frame                              (R, d, d)
    hessian_noise: Array  # s_H                                   (R,)
    # q, the relative size of the last step (:func:`_relative_step_size`); inf where H has no
    # inverse, or noise in the gradients alone leads far
    strain: Array  #                                              (R,)
    kept: BoolArray  # columns that were not merged               (R, d)
    rows: float  # number of rows
    scale: float  # sensitivity over sigma of the whole plan; inf without noise
    quadratic: bool = False  # whether the loss is quadratic, so that one Newton step is exact
    moved: Array | None = None  # the last step but one, which led to `at`    (R, d)
    evidence: Evidence | None = None  # sums by which groups of rows with one outcome are found
    of_sites: tuple[Evidence, ...] = ()  # of each site alone, if it has a constant of its own
    # Distance of the size of all effects from where it is unbounded, in its standard errors.
    room: Array | None = None  # (R,)
    # Part of the covariance that allows for merged rows.
    of_merged: Array | None = None  # (R, d, d)
    # The room in errors without `of_merged`, and in errors by sampling alone.
    own_room: Array | None = None  # (R,)
    sampling_room: Array | None = None  # (R,)
    at_bounds: Array | None = None  # shares of targets at the lower and the upper bound  (R, 2)
    at_bounds_noise: float = 0.0  # standard deviation of the noise on each share
    # Eigen-directions of H, lost ones marked: `frame` and `hessian` are without the lost ones.
    directions: Directions | None = None
    moments: Array | None = None  # second moments of the rows as they were released  (R, d, d)
    # Share of the last step's squared length, in the metric H, that noise does not explain.
    signal: Array | None = None  # (R,)

    def fragility(self, c: Array, less: float = 1.0) -> Array:
        """Compute tau, the share of a variance that noise in H adds beyond first order.

        Parameters
        ----------
        c : array (d,) or (m, d)
            Weights of coefficients, or one row of weights for each of m sums.
        less : float
            Factor on the noise of the Hessian: below 1 for what a larger epsilon would give.

        Returns
        -------
        array (R,) or (R, m)
        """
        noise = less * self.hessian_noise
        tau = second_order_share(self.frame, self.hessian, self.kept, noise, np.atleast_2d(c))
        if c.ndim == 1:
            return tau[:, 0]
        return tau

    def undetermined(self, naming: Naming, replicate: int) -> Undetermined:
        """Find groups of rows that all have one outcome: there the likelihood has no maximum.

        Parameters
        ----------
        naming : Naming
            The encoding, with its levels and sites.
        replicate : int
            Index of the replicate, from 0 on.

        Returns
        -------
        Undetermined
        """
        assert self.evidence is not None
        seen = self.evidence.of(replicate)
        kept = self.kept[replicate]
        if not self.of_sites:
            return undetermined(naming, kept, seen)
        # The common evidence is in columns with one constant, which are the first columns: the
        # constants of the sites stand at the end.
        one = kept[: seen.moments.shape[0]]
        by_site = [site.of(replicate) for site in self.of_sites]
        return undetermined_by_site(naming, one, seen, by_site)

    def evidence_columns(self, naming: Naming) -> Array:
        """Return the map from the columns of the evidence to all columns, (d, d of the evidence).

        Where each site released its own answers the evidence has one constant for all sites: it is
        divided among the sites' constants in proportion to their rows.
        """
        if not self.of_sites:
            return np.eye(naming.d)
        rows = np.array([site.rows for site in self.of_sites])
        return shared_constant(naming.d, rows / rows.sum())


def check_run_is_inference(run: RunConfig) -> None:
    """Refuse a run with a method or a loss other than inference's own; InvalidInput."""
    if not run.auto:
        rule = "inference takes Newton steps of its own and no other method"
        raise InvalidInput(
            "method", run.method, rule, "leave method out; trust='sum' selects secure sums"
        )
    if run.loss != "logistic" or run.gradient_cap != math.inf:
        rule = "inference estimates log-odds by the logistic loss without a cap on gradients"
        raise InvalidInput("loss", run.loss, rule, "leave loss and max_grad_norm out")


def _share_of_positives(count: Answer) -> Array:
    """Return the noisy share of positives, (R,), clipped so that it has finite log-odds.

    It stays one row, or two noise deviations if that is more, away from 0 and 1.
    """
    least = min(0.5, max(1.0 / count.rows, 2.0 * count.spread))
    return np.clip(count.value[:, 0], least, 1.0 - least)


class _Ground(NamedTuple):
    """What all Newton steps after the first have in common: the frame and moments of the rows."""

    frame: Frame
    sizes: Array  # second moments of rows, not in the frame                 (R, d, d)
    kept: BoolArray  # columns that were not merged                          (R, d)
    small: SmallSites
    law: NormalRows  # the normal law with these moments
    lost: Array  # what clipping of long rows takes from a Hessian, in the frame  (R, d, d)
    variances: Array  # of the columns                                       (R, d)
    framed: Array  # mean second moment of rows in the frame                 (R,)
    cap: float  # at which the curvature of a row is clipped

    def directions(self, pool: Pool) -> Directions:
        """Classify the eigen-directions of the pooled Hessian: seen, hidden by noise, or lost."""
        return classify_directions(
            self.frame, pool.H + self.lost, pool.noise, self.variances, self.framed
        )


class _Start(NamedTuple):
    """What is known after the first Newton step."""

    ground: _Ground
    w: Array  # the end of the first step                                    (R, d)
    moments: Array  # released second moments of the kept columns            (R, d, d)
    merged: Array  # share of the rows whose level or site is not kept       (R,)
    gradient: Answer  # at the constant's log-odds, before the first step
    shortened: Shortened


class _Sharpened(NamedTuple):
    """The frame after all refinements (:meth:`Newton._ask_for_frames`), and its second moments."""

    frame: Frame
    sizes: Array  # second moments of rows, not in the frame                 (R, d, d)
    lost: Array  # what norm clipping takes from second moments in the frame (R, d, d)
    unseen: Array  # the part of the identity that noise hides in the frame  (R, d, d)
    spread: Array  # noise deviation on an entry of second moments in the frame  (R,)


class _Walked(NamedTuple):
    """The end of the steps of limited length (:meth:`Newton._walk_by_newton_steps`)."""

    w: Array  # where they end                                               (R, d)
    step: Array  # the last of these steps                                   (R, d)
    cut: BoolArray  # whether that was shortened                             (R,)
    pool: Pool  # average of all Hessians


@dataclass(frozen=True)
class Newton(SeparateSites):
    """Coefficients of the logistic loss by Newton steps on noisy sums; the outcome is
    :class:`Estimates`.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    value : float
        Entry of a row in its constant column.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    blocks : array (d,)
        Number of the block of a column that marks a level; 0 for other columns.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    Frames, steps and the outcome are post-processing.
    """

    constant: Array = field(kw_only=True)
    value: float = field(kw_only=True)
    marks: Array = field(kw_only=True)
    blocks: Array = field(kw_only=True)

    name: ClassVar[str] = "newton"
    summary: ClassVar[str] = "log-odds with intervals, by Newton steps"
    steps: ClassVar[tuple[tuple[float, bool], ...]] = ((4.0, True), (3.0, True), (2.0, True))
    """For each step after the first: the largest root mean square shift of scores, in log-odds,
    and whether a Hessian is asked before it.
    """

    farthest: ClassVar[float] = 8.0
    """Largest root mean square shift of scores in the first step, in log-odds."""
    after: ClassVar[tuple[str, ...]] = ("{} after step 1", "{} after step 2", "{} after step 3")
    """Names of the Hessians and gradients between the first and the last."""

    sharper: ClassVar[tuple[float, ...]] = (0.05, 0.04, 0.03, 0.02)
    """Budget shares of repeated second moments, each in the frame that the previous ones give:
    noise hides fewer directions there.

    The first gets most: what noise hides in it is hidden in all frames after it.
    """
    shares: ClassVar[tuple[float, ...]] = (
        0.04,
        0.02,
        0.03,
        0.10,
        0.03,
        0.10,
        0.03,
        0.10,
        0.12,
        0.04,
        0.19,
    )
    """Budget shares of second moments, first gradient, three Hessians with their gradients, last
    Hessian, moments of slopes and last gradient; counts and lengths have .01 each.
    """

    @property
    def items(self) -> tuple[Item, ...]:
        """Releases in the order of :meth:`script`: name, query, and share of the budget."""

        def positives(at: Array) -> Bounded:
            return Positives(at, self.constant)

        def lengths(at: Array) -> Bounded:
            return Lengths(at, edges=EDGES)

        in_frames: list[Item] = []
        for k, share in enumerate(self.sharper, 1):
            in_frames.append(Item(f"lengths of rows in frame {k}", lengths, 0.01))
            in_frames.append(Item(f"second moments in frame {k}", FramedMoments, share))

        asked: list[tuple[str, Any]] = [
            ("second moments", SecondMoments),
            ("first gradient", Gradient),
        ]
        for which in self.after:
            asked += [
                (which.format("Hessian"), FramedCurvature),
                (which.format("gradient"), Gradient),
            ]
        asked += [
            ("last Hessian", FramedCurvature),
            ("moments of slopes", FramedSlopes),
            ("last gradient", Gradient),
        ]
        first, *rest = [Item(*one, share) for one, share in zip(asked, self.shares, strict=True)]
        return (
            Item("count of positives", positives, 0.01),
            first,
            *in_frames,
            Item("lengths of rows", lengths, 0.01),
            *rest,
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the releases in order, and return :class:`Estimates`.

        The steps: start at the log-odds of the noisy share of positives, find the frame, take
        Newton steps of limited length, take one last step whose errors are known (module's
        docstring), and widen its covariance by three further errors: of merged rows, of falling
        curvature, and of the size of the effects.
        """
        d = facts.d
        zero = np.zeros((replicates, d))
        count = yield Positives(zero, self.constant)
        share = _share_of_positives(count)
        # Without a frame second moments are asked only once: in a frame, noise of the same size
        # hides less.
        moments = yield SecondMoments(zero)
        start = yield from self._first_step(share, moments, facts)

        ground, points, seen = start.ground, list[Point](), list[Seen]()
        small, kept = ground.small, ground.kept
        w, step, cut, pool = yield from self._walk_by_newton_steps(ground, start.w, points, seen)

        # The last point: its Hessian, second moments of slopes and gradient make the estimate.
        asked_in = small.frame_for_queries(ground.frame).A
        found = yield FramedCurvature(w, ground.cap, frame=asked_in)
        last = restrict_to_kept(ground.cap * unflatten_symmetric(found.value, d), kept)
        last_noise = ground.cap * found.spread
        pool = pool_hessians(pool, last, last_noise)
        slopes = yield FramedSlopes(w, frame=asked_in)
        gradient = yield Gradient(w)
        points.append(Point(w, last, last_noise, gradient.value, gradient.spread))
        seen.append(Seen(w, small.gather_gradient(gradient).value, gradient.spread))

        rows = self._moments_of_rows(start.moments, kept)
        J = restrict_to_kept(unflatten_symmetric(slopes.value, d), kept)
        sums = Asked(ground.frame, pool, J, seen)
        lost = ground.directions(pool)
        ends = take_last_step(
            sums, rows, kept, count.rows, self.releases_with_noise.total_mu, lost, small
        )
        whole = unflatten_symmetric(moments.value, d)
        evidence = Evidence(
            rows=count.rows,
            chance=share,
            moments=whole,
            moments_spread=moments.spread,
            gradient=start.gradient.value,
            gradient_spread=start.gradient.spread,
            sharp_moments=project_to_semidefinite(ground.sizes),
            shortened=start.shortened,
            back=ground.frame.back,
            points=tuple(points),
        )
        # A shortened step shows that the maximum is not near, whatever the strain of the last one.
        strain = np.where(cut, np.maximum(ends.strain, CUT), ends.strain)
        ends = replace(ends, strain=strain, moved=step, evidence=evidence, moments=whole)
        ends = replace(ends, estimate=w + small.extend_to_small_sites(ends.estimate - w))
        ends = add_error_of_merged_rows(ends, rows, start.merged)
        merged = MergedLevels.of(
            (self.marks, self.blocks, self.constant, self.value), whole, moments.spread, kept
        )
        ends = add_error_of_merged_levels(ends, merged, rows, share, gradient)
        ends = add_error_of_curvature(ends, ground.law)
        return add_error_of_size(ends, ground.law, kept & (self.constant == 0.0))

    def _first_step(
        self, share: Array, moments: Answer, facts: Facts
    ) -> Generator[Bounded, Answer, _Start]:
        """Find the frame, and take the first Newton step.

        It starts at a model of the constant alone.  Its Hessian is the matrix of second moments
        times the mean curvature.

        Parameters
        ----------
        share : array (R,)
            Noisy share of positives, inside (0, 1).
        moments : Answer
            Released second moments.
        facts : Facts
            Public facts of the run.
        """
        mask, d = self.constant, facts.d
        # Start: the model of the constant alone, at the log-odds of the noisy share of positives.
        w = np.log(share / (1.0 - share))[:, None] / self.value * mask
        curvature = share * (1.0 - share)
        # One cap for all replicates, as a query has one unit.
        cap = float(np.minimum(facts.loss.curvature_bound, _RARE * curvature).max())
        S = unflatten_symmetric(moments.value, d)
        of_gradients = self._combined_noise(Gradient, facts, moments.among)
        kept = self._columns_not_merged(S, moments.spread, curvature, of_gradients)
        small = SmallSites.from_kept_columns(mask, kept, S)
        merged = self._share_of_merged_rows(S, moments.spread, kept)
        S = restrict_to_kept(small.gathered_moments(S), kept)

        # Norm of the noise in a Hessian over its eigenvalues: a share of the rows as large as that
        # may be clipped (choose_row_thresholds).
        noise = self._combined_noise(Curvature, facts, moments.among)
        hidden = cap * noise * math.sqrt(2.0 * d) * _TYPICAL**2 * kept.sum(axis=1) / curvature
        sharp = yield from self._ask_for_frames(S, moments.spread, kept, hidden, small)
        frame, sizes, lost = sharp.frame, sharp.sizes, sharp.lost
        variances = column_variances(sizes, mask)
        framed = np.einsum("rii->r", frame.A @ sizes @ frame.A) / kept.sum(axis=1)
        # Without noise no row was shortened.
        if moments.spread == 0.0:
            lost = np.zeros_like(lost)
        as_short = project_to_semidefinite(sizes - frame.back @ lost @ frame.back)
        shortened = Shortened(as_short, sharp.spread, frame.back)
        # What a Hessian lacks, if its curvature is the same for all rows.
        lost = curvature[:, None, None] * lost

        first = yield Gradient(w)
        at_zero = curvature[:, None, None] * (frame.A @ sizes @ frame.A)
        law = fit_normal_rows(project_to_semidefinite(sizes), mask / self.value)
        flat = classify_unseen_directions(frame, sharp.unseen, variances, framed)
        # The first step is by second moments times the mean curvature: no Hessian was asked yet.
        known = Pool(restrict_to_kept(at_zero, kept), np.zeros(len(w)))
        gathered = small.gather_gradient(first)
        step = self._stretched_step(frame, law, w, known, gathered, self.farthest, flat, small)
        w = w + shorten_step(step, sizes, self.farthest)[0]
        # With noise, Hessians are asked in a frame where curvature, not moments, is even.
        if first.spread > 0.0:
            turned = _by_curvature(frame, sizes, law.by_curvature(w), kept)
            lost = turned.A @ frame.back @ lost @ frame.back @ turned.A
            frame = turned
        ground = _Ground(frame, sizes, kept, small, law, lost, variances, framed, cap)
        return _Start(ground, w, S, merged, first, shortened)

    def _moments_of_rows(self, S: Array, kept: BoolArray) -> Moments:
        """Return the moments for second-order biases, with zeros in columns that were merged."""
        both = kept[:, :, None] & kept[:, None, :]
        return Moments(
            project_to_semidefinite(S) * both,
            S @ (self.constant / self.value),
            self.marks,
            self.blocks,
        )

    def _walk_by_newton_steps(
        self, ground: _Ground, w: Array, points: list[Point], seen: list[Seen]
    ) -> Generator[Bounded, Answer, _Walked]:
        """Take the Newton steps of :attr:`steps` from w, (R, d).

        What is released at each point is appended to `points`, for the search of groups with one
        outcome, and to `seen`, for the average of all gradients.
        """
        pool = None
        step = np.zeros_like(w)
        cut = np.zeros(len(w), dtype=bool)
        asked_in = ground.small.frame_for_queries(ground.frame).A
        for most, fresh in self.steps:
            if fresh or pool is None:
                found = yield FramedCurvature(w, ground.cap, frame=asked_in)
                here = restrict_to_kept(
                    ground.cap * unflatten_symmetric(found.value, w.shape[1]), ground.kept
                )
                here_noise = ground.cap * found.spread
                pool = pool_hessians(pool, here, here_noise)
            gradient = yield Gradient(w)
            if fresh:
                points.append(Point(w, here, here_noise, gradient.value, gradient.spread))
            gradient = ground.small.gather_gradient(gradient)
            seen.append(Seen(w, gradient.value, gradient.spread))
            own = ground.directions(pool)
            # H lacks the curvature of clipped long rows, of a rare level maybe nine tenths, which
            # would make the step ten times too long: so steps add it.  The estimate at the end uses
            # H alone, which makes its intervals wider.
            known = Pool(own.restrict_hessian(pool.H + ground.lost), pool.noise)
            step = self._stretched_step(
                ground.frame, ground.law, w, known, gradient, most, own, ground.small
            )
            step, cut = shorten_step(step, ground.sizes, most)
            w = w + step
        assert pool is not None
        return _Walked(w, step, cut, pool)

    def with_one_constant(self, columns: Columns) -> Newton:
        """Return the recipe for rows of k slopes and one constant."""
        one = columns.slopes + 1
        constant = columns.one_constant
        return replace(self, constant=constant, marks=self.marks[:one], blocks=self.blocks[:one])

    def own_constants(self, heard: Sequence[Heard], then: Array, facts: Facts) -> Array:
        """Update each site's own constant by its latest answer.

        It starts at the log-odds of the site's noisy share of positives, and takes one Newton step
        by the constant's entry of each of the site's gradients.  Differences between sites are
        shrunk by their share of noise.

        Parameters
        ----------
        heard, then, facts
            As for :meth:`SeparateSites.own_constants`.

        Returns
        -------
        array (R, N)
        """
        last = heard[-1]
        counts = of_kind(heard, Positives)[0]
        n_rows = facts.rows_per_node[:, 0]
        chance = _clipped_shares(counts.values[:, :, 0], counts.spreads, n_rows)
        bends = chance * (1.0 - chance)
        if isinstance(last.what, Positives):
            # Delta method: d logit(p) = dp / (p (1 - p)), for noise and for sampling.
            variance = (counts.spreads / bends) ** 2 + 1.0 / (n_rows * bends)
            return shrink_to_mean(np.log(chance / (1.0 - chance)), variance) / self.value
        if not isinstance(last.what, Gradient):
            return last.own
        bends = bends * self.value**2
        step = shrink_to_mean(-last.values[:, :, -1] / bends, (last.spreads / bends) ** 2)
        farthest = _FARTHEST / self.value
        return np.asarray(last.own + np.clip(step, -farthest, farthest))

    def joined(self, found: Estimates, heard: Sequence[Heard], facts: Facts) -> Estimates:
        """Combine the sites' last steps (:func:`combine_last_steps`).

        Parameters
        ----------
        found, heard, facts
            As for :meth:`SeparateSites.joined`.

        Returns
        -------
        Estimates
        """
        return combine_last_steps(self, found, heard, facts)

    def _columns_not_merged(
        self, S: Array, spread: float, curvature: Array, noise: float
    ) -> BoolArray:
        """Return which columns are kept, (R, d): not those of levels and sites that noise hides.

        A level or site is hidden if the moments S show no row of it beyond noise; or if it is rare
        and the `noise` in a gradient would move its log-odds, against the most frequent level, by
        more than `HIDDEN`.  A hidden level counts as the reference.  The reference is a level like
        the others: if it is the rare one, the most frequent level has no column, and counts as the
        reference.  Sites with constants of their own are a block without a reference: see
        :class:`SmallSites`.

        A rare level's own moment must stand out from noise, even if its moment with the constant
        does: frames are made of it, and where noise made it too small, steps along the level go
        astray.

        Parameters
        ----------
        S : array (R, d, d)
            Released second moments.
        spread : float
            Standard deviation of the noise on an entry of S.
        curvature : array (R,)
            Mean curvature p (1 - p) of the rows.
        noise : float
            Standard deviation of the noise on an entry of all gradients together.
        """
        sizes = np.einsum("rii->ri", S)
        in_frames = (sizes >= RAREST * self.marks**2) | (sizes > _SEEN * spread)
        every = whitening_transform(S, spread, np.ones(S.shape[:2], dtype=bool)).frame.A
        inverse = every @ every
        kept = np.ones(S.shape[:2], dtype=bool)
        for r in range(len(S)):
            hides = _Hides(inverse[r], spread, noise / curvature[r])
            for block in blocks_of(self.marks, self.blocks, self.constant, self.value, S[r]):
                towards = np.vstack([np.diag(self.marks)[block.columns], np.zeros(len(self.marks))])
                shares = np.append(block.shares, block.reference)
                hidden = hides.hidden_levels(towards, shares, block.deviations)
                kept[r, block.columns] = ~hidden[:-1] & in_frames[r, block.columns]
                if hidden[-1]:
                    kept[r, block.columns[np.argmax(shares)]] = False
            sites = np.flatnonzero(self.constant > 0.0)
            if len(sites) > 1:
                shares = np.diag(S[r])[sites] / self.value**2
                towards = self.value * np.eye(len(self.constant))[sites]
                deviations = np.full(len(sites), self.value**-2)
                kept[r, sites] = ~hides.hidden_levels(towards, shares, deviations)
        return kept

    def _share_of_merged_rows(self, S: Array, spread: float, kept: BoolArray) -> Array:
        """Estimate the effective share of rows with a merged site or level, (R,).

        Shares of merged sites count in full, shares of merged levels times `OF_LEVELS`.  Sites and
        each column are added as squares, as the errors that they cause are unrelated.  A share is
        taken to be at least one deviation of its noise, because levels that noise makes seem rarer
        are merged more often.
        """
        sites = np.flatnonzero(self.constant > 0.0)
        found = np.zeros(len(S))
        for r in range(len(S)):
            small = sites[~kept[r, sites]]
            noise = spread * math.sqrt(len(small)) / self.value**2
            squares = max(S[r, small, small].sum() / self.value**2, noise) ** 2
            for block in blocks_of(self.marks, self.blocks, self.constant, self.value, S[r]):
                hidden = levels_merged(block, kept[r])
                share = np.append(block.shares, block.reference)[hidden].sum()
                noise = spread * math.sqrt(np.sum(block.deviations[hidden] ** 2))
                squares += (OF_LEVELS * max(share, noise)) ** 2
            found[r] = math.sqrt(squares)
        return found

    def _ask_for_frames(
        self, S: Array, spread: float, kept: BoolArray, hidden: Array, small: SmallSites
    ) -> Generator[Bounded, Answer, _Sharpened]:
        """Ask for second moments in a sequence of better frames.

        Each frame is scaled so that few rows are longer than 1 in it, by a noisy histogram of the
        rows' lengths; second moments in it give the next frame.

        Parameters
        ----------
        S : array (R, d, d)
            Second moments of the kept columns.
        spread : float
            Standard deviation of the noise on an entry of S.
        kept : bool array (R, d)
            Columns that were not merged.
        hidden : array (R,)
            Share of the rows that may be clipped; see :func:`choose_row_thresholds`.
        small : SmallSites
            Sites whose constant noise hides.
        """
        zero = np.zeros(S.shape[:2])
        sight = whitening_transform(S, spread, kept)
        # One turn more than there are second moments: the last frame is only measured for lengths.
        for k in range(len(self.sharper) + 1):
            cells = yield Lengths(zero, frame=small.frame_for_queries(sight.frame).A, edges=EDGES)
            edge = choose_row_thresholds(cells.value, cells.spread, hidden)[:, None, None]
            frame = Frame(sight.frame.A / edge, sight.frame.back * edge)
            if k < len(self.sharper):
                found = yield FramedMoments(zero, frame=small.frame_for_queries(frame).A)
                M = restrict_to_kept(unflatten_symmetric(found.value, S.shape[-1]), kept) * edge**2
                noise = found.spread * edge[:, 0, 0] ** 2
                sight = refine_whitening(sight, M, noise, kept)
        return _Sharpened(
            frame=frame,
            sizes=sight.raised_moments,
            lost=sight.lost / edge**2,
            unseen=sight.unseen,
            spread=noise / edge[:, 0, 0] ** 2,
        )

    def _stretched_step(
        self,
        frame: Frame,
        rows: NormalRows,
        w: Array,
        pool: Pool,
        gradient: Answer,
        most: float,
        lost: Directions,
        small: SmallSites,
    ) -> Array:
        """Compute a Newton step from w, (R, d), scaled for the change of curvature along it.

        Parameters
        ----------
        frame : Frame
        rows : NormalRows
            Normal law of the rows, for the change of curvature.
        w : array (R, d)
            Start of the step.
        pool : Pool
            Hessian in the frame.
        gradient : Answer
            Noisy gradient at w.
        most : float
            Largest root mean square shift of scores, in log-odds.
        lost : Directions
            Lost directions, along which no step is taken.
        small : SmallSites
            Sites whose constant moves with those of the others.

        Returns
        -------
        array (R, d)
        """
        step = estimate_displacement(frame, pool.H, pool.noise, gradient.value, gradient.spread)
        return stretch_newton_step(
            rows, w, small.extend_to_small_sites(lost.project_step_across(step)), 1.01 * most
        )

    def _combined_noise(self, kind: type[Bounded], facts: Facts, among: Among) -> float:
        """Compute the noise deviation on an entry of the average of all answers of a kind.

        The average weighs them by their precision; `kind` is the class of their query.
        """
        statistics = [item.what(np.zeros(1)) for item in self.releases_with_noise.items]
        spreads = [
            self.releases_with_noise.noise_deviation(j, facts, among)
            for j, statistic in enumerate(statistics)
            if isinstance(statistic, kind)
        ]
        if not all(spreads):
            return 0.0
        return 1.0 / math.sqrt(sum(s**-2.0 for s in spreads))


def newton_from_naming(naming: Naming) -> Newton:
    """Construct the recipe for rows of an encoding."""
    return Newton(
        constant=naming.constant, value=naming.value, marks=naming.marks, blocks=naming.blocks
    )


def models_for_predictions(found: Estimates) -> Array:
    """Return the coefficients for predictions, (R, d).

    They are the estimate; where the whole table is refused for its strain, they are the last point
    of the steps, which no unreliable last step has moved.
    """
    return np.where((found.strain <= UNSURE)[:, None], found.estimate, found.at)


def combine_last_steps(
    recipe: Newton, found: Estimates, heard: Sequence[Heard], facts: Facts
) -> Estimates:
    """Combine the last steps of all sites from the common point, by inverse covariance.

    Parameters
    ----------
    recipe : Newton
    found : Estimates
        Of the common steps, in columns with one constant.
    heard : sequence of Heard
        The sites' answers to every item, in order.
    facts : Facts

    Returns
    -------
    Estimates
        In all columns, with a constant for each site if sites have their own.
    """
    columns, seen, lost = recipe.columns(facts), found.evidence, found.directions
    assert seen is not None and lost is not None
    # The first gradient was asked far from the last point, and is left out.
    gradients = of_kind(heard, Gradient)[1:]
    bends, slopes = of_kind(heard, FramedCurvature)[-1], of_kind(heard, FramedSlopes)[-1]
    assert isinstance(bends.what, FramedCurvature)
    cap, d = bends.what.hessian_factor(facts.loss), columns.slopes + 1
    frame, n = lost.frame, facts.rows_per_node[:, 0]
    one = recipe.with_one_constant(columns)
    everywhere = one.constant / one.value
    mean = seen.sharp_moments @ everywhere
    rows = Moments(seen.sharp_moments, mean, one.marks, one.blocks)
    law = fit_normal_rows(seen.sharp_moments, everywhere)
    of_all = Pool(found.hessian, found.hessian_noise)
    squares, squares_noise = mean_matrix_of_sites(slopes)
    squares = restrict_to_kept(squares, found.kept)
    # J of small sites is mostly noise: it is drawn to that of all sites, and that to H.
    common_slopes = Pool(*drawn_to_multiple(squares, squares_noise, found.hessian, OF_CLASSES))
    points = [columns.point_of_each_site(gradient.what.at, gradient.own) for gradient in gradients]
    steps = []
    for i in range(columns.sites):
        value, spread = bends.of(i)
        pool = pool_hessians(
            of_all, restrict_to_kept(cap * unflatten_symmetric(value, d), found.kept), cap * spread
        )
        pool = replace_singular_hessian(pool, of_all, found.kept)
        value, spread = slopes.of(i)
        J = pool_hessians(
            common_slopes, restrict_to_kept(unflatten_symmetric(value, d), found.kept), spread
        ).H
        own = [
            Seen(at[:, i], *gradient.of(i)) for at, gradient in zip(points, gradients, strict=True)
        ]
        sums = Asked(frame, pool, J, own)
        ends = take_last_step(sums, rows, found.kept, float(n[i]), found.scale, lost)
        steps.append(_shift_of_site(add_error_of_curvature(ends, law), own[-1].at, lost))
    at = columns.point_in_all_columns(found.at, gradients[-1].own)
    ends = combine_site_steps(found, columns, steps, at, facts)
    ends = replace(ends, estimate=ends.estimate + at)
    if not columns.apart:
        return ends
    return replace(ends, of_sites=_evidence_by_site(recipe, found, heard, columns, n))


def _shift_of_site(ends: Estimates, at: Array, lost: Directions) -> SiteStep:
    """Return a site's last step from the point `at`, (R, k + 1), with its covariances."""
    A = lost.frame.A
    inverse, _ = inverse_where_known(ends.hessian, ends.kept, np.zeros(len(ends.hessian)))
    inverse = lost.projector_across_lost @ inverse @ lost.projector_across_lost
    # Weights by the model: those by a site's own J follow the very rows that they weigh, and
    # intervals of such a meta-analysis cover 73 to 90% at a few hundred rows a site.
    expected = A @ (inverse / ends.rows) @ A + ends.noise
    # Sites are combined as shifts from `at`: along a lost direction estimates are arbitrary, and
    # their covariances are 0.
    return SiteStep(ends.estimate - at, expected, ends.noise, ends.sampling)


def _evidence_by_site(
    recipe: Newton, found: Estimates, heard: Sequence[Heard], columns: Columns, n: Array
) -> tuple[Evidence, ...]:
    """Return each site's own counts and gradients, by which groups with one outcome are found.

    `n`, (N,), are the sites' numbers of rows.
    """
    seen = found.evidence
    assert seen is not None
    first = of_kind(heard, Gradient)[0]
    margins = recipe.value * columns.point_of_each_site(first.what.at, first.own)[:, :, -1]
    chances = np.asarray(-Logistic().derivative(-margins))
    return tuple(
        seen._replace(
            rows=float(n[i]),
            chance=chances[:, i],
            gradient=first.values[:, i],
            gradient_spread=float(first.spreads[i]),
            points=tuple(_points_of_site(i, found, heard, columns)),
        )
        for i in range(columns.sites)
    )


def _points_of_site(
    i: int, found: Estimates, heard: Sequence[Heard], columns: Columns
) -> Iterator[Point]:
    """Yield the points at which site i was asked for a Hessian and then a gradient.

    They are in the site's k + 1 columns: slopes, and its own constant.
    """
    hessian: Heard | None = None
    for one in heard:
        if isinstance(one.what, FramedCurvature):
            hessian = one
        if hessian is None or not isinstance(one.what, Gradient):
            continue
        assert isinstance(hessian.what, FramedCurvature)
        bends, spread = hessian.of(i)
        gradient, gradient_spread = one.of(i)
        cap = hessian.what.most
        at = columns.point_of_each_site(one.what.at, one.own)[:, i]
        H = restrict_to_kept(cap * unflatten_symmetric(bends, at.shape[1]), found.kept)
        yield Point(at, H, cap * spread, gradient, gradient_spread)
        hessian = None


def combine_site_steps(
    found: Estimates, columns: Columns, steps: Sequence[SiteStep], at: Array, facts: Facts
) -> Estimates:
    """Combine the sites' steps by precision into estimates of all columns.

    Biases and errors of merged rows are those of the common steps.

    Parameters
    ----------
    found : Estimates
        Of the common steps, in columns with one constant.
    columns : Columns
    steps : sequence of SiteStep
        One for each site, in its own columns.
    at : array (R, d)
        The point from which the steps were taken, in all columns.
    facts : Facts

    Returns
    -------
    Estimates
        In all columns.
    """
    made = combine_by_precision(columns, steps)
    bias = columns.extend_covariance(found.covariance - found.noise - found.sampling)
    of_merged = found.of_merged
    if of_merged is not None:
        of_merged = columns.extend_covariance(of_merged)
    wide = extend_to_site_constants(columns, found.frame, found.hessian, found.kept)
    moved = found.moved
    if moved is not None:
        moved = columns.extend_to_all_columns(moved[:, :, None])[:, :, 0]
    rows = float(facts.rows_per_node.sum())
    lost = found.directions
    if lost is not None:
        rows_of_frame = Frame(columns.extend_to_all_columns(lost.frame.A), lost.frame.back)
        variances = columns.extend_to_all_columns(lost.variances[:, :, None])[:, :, 0]
        lost = lost._replace(frame=rows_of_frame, variances=variances)
    moments = found.moments
    if moments is not None and columns.apart:
        to_all = shared_constant(len(columns.constant), facts.rows_per_node[:, 0] / rows)
        moments = to_all @ moments @ to_all.T
    return replace(
        found,
        estimate=made.estimate,
        at=at,
        covariance=made.noise + made.sampling + bias,
        noise=made.noise,
        sampling=made.sampling,
        frame=wide.frame,
        hessian=wide.hessian,
        kept=wide.kept,
        moved=moved,
        rows=rows,
        directions=lost,
        moments=moments,
        of_merged=of_merged,
    )


def shared_constant(d: int, shares: Array) -> Array:
    """Return the map from columns with one constant to d columns with one for each of N sites.

    Parameters
    ----------
    d : int
        All columns.
    shares : array (N,)
        Sites' shares of the rows.

    Returns
    -------
    array (d, d - N + 1)
    """
    slopes = d - len(shares)
    found = np.zeros((d, slopes + 1))
    found[:slopes, :slopes] = np.eye(slopes)
    found[slopes:, -1] = shares
    return found


def _clipped_shares(shares: Array, spreads: Array, rows: Array) -> Array:
    """Clip sites' noisy shares of positives, (R, N), so that they have finite log-odds.

    They stay one row, or two noise deviations `spreads`, (N,), away from 0 and 1.
    """
    least = np.minimum(np.maximum(1.0 / rows, 2.0 * spreads), 0.5)
    return np.clip(shares, least, 1.0 - least)


def mean_matrix_of_sites(heard: Heard) -> tuple[Array, Array]:
    """Average the sites' released matrices with the weights that give the least noise.

    Returns
    -------
    mean : array (R, d, d)
    noise : array (R,)
        Standard deviation of the noise on an entry of the mean.
    """
    weights = weights_by_noise(heard.spreads, np.ones(len(heard.spreads)))
    value = np.einsum("i,rie->re", weights, heard.values)
    noise = math.sqrt(float(np.sum((weights * heard.spreads) ** 2)))
    return unflatten_symmetric(value, heard.what.at.shape[-1]), np.full(len(value), noise)


def replace_singular_hessian(own: Pool, common: Pool, kept: BoolArray) -> Pool:
    """Replace a site's Hessian by that of all sites where noise leaves it without an inverse.

    Parameters
    ----------
    own, common : Pool
        Hessians of the site and of all sites, in the frame.
    kept : bool array (R, d)
        Columns that were not merged.

    Returns
    -------
    Pool
    """
    least = np.maximum(1e-12, _FLOOR * own.noise * math.sqrt(2.0 * own.H.shape[-1]))
    _, fine = inverse_where_known(own.H, kept, least)
    return Pool(
        np.where(fine[:, None, None], own.H, common.H), np.where(fine, own.noise, common.noise)
    )


class SmallSites(NamedTuple):
    """Sites whose constant noise hides: they get the mean of the other sites' constants.

    A level that is not kept counts as the reference, whose coefficient is 0.  Sites have no
    reference, so coefficients are written as ``P v``.  v has zeros for the small sites; P is the
    identity, but in the row of a small site it has the other sites' shares of the rows.  So sums
    are asked of rows ``P'x``, and gradients become ``P'g``.
    """

    P: Array  # (R, d, d)

    @classmethod
    def from_kept_columns(cls, constant: Array, kept: BoolArray, S: Array) -> SmallSites:
        """Find the sites whose constant is not kept, and give them the mean of the others.

        Parameters
        ----------
        constant : array (d,)
            1 in the columns that hold constants.
        kept : bool array (R, d)
            Columns that were not merged.
        S : array (R, d, d)
            Released second moments, for the sites' shares of the rows.

        Returns
        -------
        SmallSites
        """
        small = (constant > 0.0) & ~kept
        rows = np.maximum(np.einsum("rii->ri", S), 0.0) * constant * kept
        shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300)
        own = np.eye(len(constant)) * ~small[:, None, :]
        return cls(own + small[:, :, None] * shares[:, None, :])

    def extend_to_small_sites(self, shift: Array) -> Array:
        """Return a shift of coefficients, (R, d), extended to the constants of the small sites."""
        return np.einsum("rij,rj->ri", self.P, shift)

    def gather_gradient(self, gradient: Answer) -> Answer:
        """Return the gradient in the coordinates v, ``P'g``."""
        return gradient._replace(value=np.einsum("rji,rj->ri", self.P, gradient.value))

    def gathered_moments(self, S: Array) -> Array:
        """Return the second moments of rows ``P'x``, (R, d, d)."""
        return self.P.transpose(0, 2, 1) @ S @ self.P

    def frame_for_queries(self, frame: Frame) -> Frame:
        """Return a frame of rows ``P'x`` as one that is applied to the rows x."""
        return Frame(frame.A @ self.P.transpose(0, 2, 1), frame.back)

    @property
    def noise(self) -> Array:
        """Covariance of the noise in ``P'g`` for noise of variance 1 in g, (R, d, d)."""
        return self.P.transpose(0, 2, 1) @ self.P


class _Hides(NamedTuple):
    """Rule by which levels of a column, or sites, are merged because noise hides them."""

    inverse: Array  # of second moments  (d, d)
    spread: float  # standard deviation of the noise on an entry of second moments
    noise: float  # standard deviation of the noise in a gradient, over the mean curvature

    def hidden_levels(self, towards: Array, shares: Array, deviations: Array) -> BoolArray:
        """Return the levels whose log-odds against the most frequent one noise hides, (levels,).

        Parameters
        ----------
        towards : array (levels, d)
            Weights of coefficients in a level's log-odds.
        shares : array (levels,)
            Shares of the rows.
        deviations : array (levels,)
            Standard deviation of the noise in a share, for noise of deviation 1 in an entry of
            second moments.
        """
        most = int(np.argmax(shares))
        moved = self.noise * np.linalg.norm((towards - towards[most]) @ self.inverse, axis=1)
        doubts = self.spread * deviations
        least = np.minimum(_SURELY_SEEN * doubts, np.maximum(_SEEN * doubts, _COMMON))
        stays = shares > np.maximum(least, _NO_ROWS)
        stays &= (shares >= RAREST) | (moved <= HIDDEN)
        # The commonest level stays: others are merged with it.
        stays[most] = True
        return np.asarray(~stays)


class Moments(NamedTuple):
    """Moments of the rows, for second-order biases."""

    S: Array  # second moments, positive semidefinite  (R, d, d)
    mean: Array  # the mean row  (R, d)
    marks: Array  # as in :class:`Newton`  (d,)
    blocks: Array  # as in :class:`Newton`  (d,)

    def third_derivative_term(self, w: Array, d: Array, moved: Array) -> Array:
        """Compute the term t of :func:`sottovoce.answers.second_order.missed` for these rows.

        Parameters
        ----------
        w : array (R, d)
            Start of the step.
        d : array (R, d)
            The step.
        moved : array (R,)
            Released ``E[l''(z) u^2]`` along the step, less its part of noise.

        Returns
        -------
        array (R, d)
        """
        return missed(w, d, self.S, self.mean, moved, self.marks, self.blocks)


class Seen(NamedTuple):
    """A released gradient and the point where it was asked."""

    at: Array  # the point  (R, d)
    gradient: Array  # (R, d)
    spread: float  # standard deviation of the noise on an entry


class Pool(NamedTuple):
    """Average of all Hessians so far, in the frame, and the deviation of its error on an entry."""

    H: Array  # (R, d, d)
    noise: Array  # (R,)


def pool_hessians(before: Pool | None, H: Array, spread: float) -> Pool:
    """Average a new Hessian with those at earlier points, by precision.

    The new one is unbiased.  The bias of the others is taken to be the largest eigenvalue of the
    difference, less that of a matrix of noise alone: curvature that changes in one direction must
    not drown among those where it does not.

    Parameters
    ----------
    before : Pool or None
        Average of the Hessians at earlier points.
    H : array (R, d, d)
        Hessian at the present point, in the same frame.
    spread : float
        Standard deviation of the noise on an entry of H.

    Returns
    -------
    Pool
    """
    d, noise = H.shape[-1], np.full(len(H), spread)
    if before is None:
        return Pool(H, noise)
    apart = np.abs(np.linalg.eigvalsh(H - before.H)).max(axis=1) ** 2
    # A symmetric matrix of noise s has a norm of about s sqrt(2 d).
    off = np.maximum(apart - 2.0 * d * (before.noise**2 + noise**2), 0.0) + before.noise**2
    share = np.divide(noise**2, noise**2 + off, out=np.zeros_like(off), where=noise > 0.0)
    mixed = (1.0 - share)[:, None, None] * H + share[:, None, None] * before.H
    return Pool(mixed, np.sqrt((1.0 - share) ** 2 * noise**2 + share**2 * off))


def restrict_to_kept(H: Array, kept: BoolArray) -> Array:
    """Set rows and columns of H, (R, d, d), that are not kept, (R, d), to zero.

    Their diagonal entries get the mean of the kept ones, so that H stays invertible.
    """
    rest = np.einsum("rii,ri->r", H, kept) / np.maximum(kept.sum(axis=1), 1)
    return np.asarray(
        H * kept[:, :, None] * kept[:, None, :]
        + rest[:, None, None] * np.eye(H.shape[-1]) * ~kept[:, None]
    )


def shorten_step(step: Array, S: Array, most: float) -> tuple[Array, BoolArray]:
    """Shorten a step so that margins shift by at most `most` in root mean square.

    Parameters
    ----------
    step : array (R, d)
    S : array (R, d, d)
        Second moments of the rows.
    most : float
        In log-odds.

    Returns
    -------
    step : array (R, d)
    cut : bool array (R,)
        Whether it was shortened.
    """
    moved = np.sqrt(
        np.maximum(np.einsum("ri,rij,rj->r", step, project_to_semidefinite(S), step), 1e-300)
    )
    return np.asarray(step * np.minimum(1.0, most / moved)[:, None]), np.asarray(moved > most)


def _by_curvature(frame: Frame, S: Array, M: Array, kept: BoolArray) -> Frame:
    """Return the frame in which a Hessian, rather than second moments, is about even.

    A direction in which the Hessian is small, because only rows near the decision boundary have
    curvature, is stretched: noise hides less of it.  Rows that become long by that are far from the
    boundary, and have next to no curvature that clipping could take away.

    Parameters
    ----------
    frame : Frame
        The frame so far; the new one keeps the mean squared length of its rows.
    S : array (R, d, d)
        Second moments of the rows.
    M : array (R, d, d)
        Second moments of the rows weighted by their curvature.
    kept : bool array (R, d)
        Columns that were not merged.
    """
    sizes = np.einsum("rij,rjk,rki->ri", frame.A, S, frame.A)
    scale = np.sqrt(np.sum(sizes * kept, axis=1) / np.maximum(kept.sum(axis=1), 1))[:, None, None]
    found = whitening_transform(restrict_to_kept(M, kept), 0.0, kept).frame
    return Frame(found.A * scale, found.back / scale)


class _Length(NamedTuple):
    """Squared length d'Hd of the last step, split into noise and signal."""

    of_noise: Array  # expected from noise in the gradients alone            (R,)
    signal: Array  # d'Hd less that, at least 0                              (R,)
    surely: Array  # the signal less `CHANCE` deviations of the noise's part  (R,)


class _Inverted(NamedTuple):
    """A Hessian restricted to the space without lost directions, and its inverse there."""

    H: Array  # (R, d, d)
    inverse: Array  # (R, d, d)
    fine: BoolArray  # whether its eigenvalues stand out enough for an inverse  (R,)
    across: Array  # projector on that space                                 (1 or R, d, d)
    n_left: Array  # kept directions that are not lost                       (R,)


class Asked(NamedTuple):
    """Sums from which the last step follows; J and the Hessian are in the frame."""

    frame: Frame
    pool: Pool  # average of all Hessians
    J: Array  # second moments of the rows' gradients  (R, d, d)
    seen: list[Seen]  # all gradients, the last one at the last point


def take_last_step(
    asked: Asked,
    rows: Moments,
    kept: BoolArray,
    n: float,
    scale: float,
    lost: Directions | None = None,
    small: SmallSites | None = None,
) -> Estimates:
    """Take the last Newton step and compute its errors, in the space without lost directions.

    The formulas are those of the module's docstring.

    Parameters
    ----------
    asked : Asked
        Frame, Hessian, moments of slopes, and gradients.
    rows : Moments
        Second moments of the rows, for second-order biases.
    kept : bool array (R, d)
        Columns that were not merged.
    n : float
        Number of rows.
    scale : float
        Sensitivity over sigma of the whole plan.
    lost : Directions, optional
        Directions that the rows lose; None for none.
    small : SmallSites, optional
        Sites whose constant follows the others; None for none.

    Returns
    -------
    Estimates
    """
    frame, pool, J, seen = asked
    A = frame.A
    hessian = _inverted(pool, kept, lost)
    H, inverse, across = hessian.H, hessian.inverse, hessian.across
    w, g, s_g, u, turned = average_gradients(frame, across @ H @ across, seen, rows, lost)
    d = -np.einsum("rij,rjk,rk->ri", inverse, A, g)
    # covariance = H^-1 [J / n + s_g^2 A A' + (s_H^2 / 2)(|d|^2 I + d d')] H^-1, its noise first.
    of_entry = A @ A if small is None else A @ small.noise @ A
    of_g = (s_g**2)[:, None, None] * of_entry
    # The noise in H moves the estimate by the shift from all points together, not by d alone.
    of_H = covariance_of_hessian_noise(d + np.einsum("rij,rj->ri", frame.back, u), pool.noise)
    noise = inverse @ (of_g + of_H) @ inverse
    sampling = inverse @ (project_to_semidefinite(J) / n) @ inverse
    covariance = sampling + noise

    length = _squared_length(d, H, inverse @ of_g)
    strain = _relative_step_size(length, hessian, A, rows.S, covariance, kept)
    b, b_u = _third_derivative_biases(rows, w, d, length.signal, turned, inverse, A)
    # Both biases are taken to be as uncertain as they are large.
    covariance = covariance + b[:, :, None] * b[:, None, :] + b_u[:, :, None] * b_u[:, None, :]
    return Estimates(
        estimate=w + np.einsum("rij,rj->ri", A, d - b),
        at=w,
        covariance=A @ covariance @ A,
        noise=A @ noise @ A,
        sampling=A @ sampling @ A,
        frame=A @ across,
        hessian=H,
        hessian_noise=pool.noise,
        strain=strain,
        kept=kept,
        rows=n,
        scale=scale,
        directions=lost,
        signal=length.signal / np.maximum(length.signal + length.of_noise, 1e-300),
    )


def _third_derivative_biases(
    rows: Moments, w: Array, d: Array, moved: Array, turned: Array, inverse: Array, A: Array
) -> tuple[Array, Array]:
    """Return the two biases of the last step by third derivatives of the loss.

    Of the step itself, and of the earlier gradients that were carried to its start.

    Parameters
    ----------
    rows : Moments
    w, d : array (R, d)
        Start of the step, and the step in the frame.
    moved : array (R,)
        Released ``E[l''(z) u^2]`` along the step, less its part of noise.
    turned : array (R, d)
        Weighted mean of t / 2 over all points, as :func:`average_gradients` returns it.
    inverse, A : array (R, d, d)
        Inverse Hessian in the frame, and the frame.

    Returns
    -------
    tuple of array (R, d)
        In the frame.
    """
    # b = H^-1 t / 2: the next term of the expansion of the gradient along the step.
    over = rows.third_derivative_term(w, np.einsum("rij,rj->ri", A, d), moved)
    b = np.einsum("rij,rjk,rk->ri", inverse, A, 0.5 * over)
    return b, np.einsum("rij,rjk,rk->ri", inverse, A, turned)


def _inverted(pool: Pool, kept: BoolArray, lost: Directions | None) -> _Inverted:
    """Invert the pooled Hessian in the space without lost directions."""
    H, n_left = pool.H, kept.sum(axis=1)
    across = np.eye(H.shape[-1])[None]
    if lost is not None:
        across = lost.projector_across_lost
        H = lost.restrict_hessian(H)
        n_left = n_left - lost.lost.sum(axis=1)
    least = np.maximum(1e-12, _FLOOR * pool.noise * math.sqrt(2.0 * H.shape[-1]))
    inverse, fine = inverse_where_known(H, kept, least)
    return _Inverted(H, across @ inverse @ across, fine, across, n_left)


def _squared_length(d: Array, H: Array, Z: Array) -> _Length:
    """Split the squared length d'Hd of a step d into signal and noise.

    Parameters
    ----------
    d : array (R, d)
        The step, in the frame.
    H : array (R, d, d)
        Hessian in the frame.
    Z : array (R, d, d)
        ``H^-1 s_g^2 A A'``: H^-1 times the covariance of the noise in the gradient.
    """
    # Of noise alone d'Hd has the mean tr Z and the variance 2 tr Z^2.
    of_noise = np.einsum("rii->r", Z)
    moved = np.einsum("ri,rij,rj->r", d, H, d) - of_noise
    # One direction may have nearly all of the noise in d'Hd, such as a count hardly ever above 0.
    beyond = moved - CHANCE * np.sqrt(2.0 * np.einsum("rij,rji->r", Z, Z))
    return _Length(of_noise, np.maximum(moved, 0.0), np.maximum(beyond, 0.0))


def _relative_step_size(
    length: _Length, hessian: _Inverted, A: Array, S: Array, covariance: Array, kept: BoolArray
) -> Array:
    """Compute the strain q, the relative size of the last step, (R,).

    It is infinite where H has no inverse, and where noise alone moves scores by more than `FAR`
    (docs/privacy/answers.md, "Inference").

    Parameters
    ----------
    length : _Length
    hessian : _Inverted
    A : array (R, d, d)
        The frame.
    S : array (R, d, d)
        Second moments of the rows.
    covariance : array (R, d, d)
        Of the step, in the frame, without biases.
    kept : bool array (R, d)
        Columns that were not merged.
    """
    H, across = hessian.H, hessian.across
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = across @ A @ S @ A @ across
        bends = np.einsum("rii,ri->r", across @ H @ across, kept) / np.einsum("rii->r", sizes)
        spread = np.sqrt(np.einsum("rij,rji->r", H, covariance) / hessian.n_left)
        # q = .35 (d'Hd - tr Z - 2 sqrt(2 tr Z^2))+ / sqrt(tr H / tr ASA) / sqrt(tr(H cov) / p)
        strain = 0.35 * length.surely / np.sqrt(np.maximum(bends, 0.0)) / spread
        near = length.of_noise <= FAR**2 * bends
    return np.where(hessian.fine & near & np.isfinite(strain), strain, np.inf)


def add_error_of_curvature(ends: Estimates, rows: NormalRows) -> Estimates:
    """Widen the covariance for the correction of the last step where curvature falls along it.

    See :func:`sottovoce.answers.normal_rows.as_curvature_falls`.
    """
    part = ends.signal
    assert part is not None
    noise = as_curvature_falls(rows, ends.at, ends.estimate, ends.noise, part)
    sampling = as_curvature_falls(rows, ends.at, ends.estimate, ends.sampling, part)
    of_bias = ends.covariance - ends.noise - ends.sampling
    return replace(ends, covariance=noise + sampling + of_bias, noise=noise, sampling=sampling)


def add_error_of_merged_rows(ends: Estimates, rows: Moments, share: Array) -> Estimates:
    """Widen the covariance for rows whose level or site was merged because noise hides it.

    Their margins are off by the difference of their level or site from what it was merged with.
    Beforehand that difference has the standard deviation `OFF`, and the mean of these rows is as
    far from the mean of all as a single row (docs/privacy/answers.md, "What merged rows may do").

    Parameters
    ----------
    ends : Estimates
    rows : Moments
    share : array (R,)
        Effective share of these rows (:meth:`Newton._share_of_merged_rows`).

    Returns
    -------
    Estimates
        With ``of_merged``, the covariance that was added.
    """
    F, H = ends.frame, ends.hessian
    inverse, _ = inverse_where_known(H, ends.kept, np.zeros(len(H)))
    factor = (OFF * share) ** 2 * _mean_curvature(ends, rows)
    # T^2 times the mean curvature times A H^-1 A, with T the share of merged rows times OFF.
    added = factor[:, None, None] * (F @ inverse @ F.transpose(0, 2, 1))
    return replace(ends, covariance=ends.covariance + added, of_merged=added)


def _mean_curvature(ends: Estimates, rows: Moments) -> Array:
    """Return the mean curvature of rows as the Hessian tells it, (R,), at least 0."""
    F = ends.frame
    sizes = np.einsum("rji,rjk,rki->r", F, rows.S, F)
    curvature = np.einsum("rii,ri->r", ends.hessian, ends.kept)
    bends = np.divide(curvature, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
    return np.maximum(bends, 0.0)


def add_error_of_merged_levels(
    ends: Estimates, merged: MergedLevels, rows: Moments, positives: Array, gradient: Answer
) -> Estimates:
    """Widen the covariance for what merged levels do to the level that they are counted with.

    Parameters
    ----------
    ends : Estimates
    merged : MergedLevels
    rows : Moments
    positives : array (R,)
        Share of positives.
    gradient : Answer
        At the last point.
    """
    F = ends.frame
    inverse, _ = inverse_where_known(ends.hessian, ends.kept, np.zeros(len(F)))
    step = F @ inverse @ F.transpose(0, 2, 1)
    seen = (gradient.value, gradient.spread)
    added = merged.covariance(step, rows.mean, _mean_curvature(ends, rows), positives, seen)
    before = np.zeros_like(added) if ends.of_merged is None else ends.of_merged
    return replace(ends, covariance=ends.covariance + added, of_merged=before + added)


def add_error_of_size(ends: Estimates, rows: NormalRows, slopes: BoolArray) -> Estimates:
    """Widen the covariance along the size of all effects, and compute the room of that size.

    See :func:`sottovoce.answers.normal_rows.uncertainty_of_size`.

    Parameters
    ----------
    ends : Estimates
    rows : NormalRows
        Law of the rows.
    slopes : bool array (R, d)
        Kept columns that are no constants.

    Returns
    -------
    Estimates
        With ``room``, ``own_room`` and ``sampling_room``.
    """
    effects = ends.estimate
    if ends.directions is not None:
        # Along lost directions coefficients are anything.
        effects = ends.directions.remove_lost_part(effects)
    size = uncertainty_of_size(rows, effects, ends.covariance, slopes)
    lacking = size.widening[:, None] * effects * slopes
    covariance = ends.covariance + lacking[:, :, None] * lacking[:, None, :]
    # For the rows or the epsilon that would suffice: with more of either, merged rows get
    # coefficients of their own, so `of_merged` is left out.
    own = uncertainty_of_size(rows, effects, ends.sampling + ends.noise, slopes)
    of_sampling = uncertainty_of_size(rows, effects, ends.sampling, slopes)
    return replace(
        ends,
        covariance=covariance,
        room=size.room,
        own_room=own.room,
        sampling_room=of_sampling.room,
    )


def average_gradients(
    frame: Frame, H: Array, seen: list[Seen], rows: Moments, lost: Directions | None = None
) -> tuple[Array, Array, Array, Array, Array]:
    """Estimate the gradient at the last point w from all gradients, weighted by precision.

    A gradient at v is that at w less ``H u - t / 2``, with ``u = w - v`` and the term t of third
    derivatives (:meth:`Moments.third_derivative_term`).  Its squared error is the variance of its
    noise plus the mean square of t / 2.

    Parameters
    ----------
    frame : Frame
    H : array (R, d, d)
        Hessian in the frame.
    seen : list of Seen
        Gradients and their points; the last is at w.
    rows : Moments
        For the third derivatives' terms.
    lost : Directions, optional
        Directions along which a shift moves no score.

    Returns
    -------
    w : array (R, d)
    g : array (R, d)
        The gradient at w.
    s_g : array (R,)
        Standard deviation of the error on an entry of g; 0 without noise.
    u : array (R, d)
        Weighted mean of the shifts.
    half : array (R, d)
        Weighted mean of t / 2.
    """
    w = seen[-1].at
    d = w.shape[1]
    H = frame.back @ H @ frame.back
    total = np.zeros((len(w), 1))
    g = np.zeros_like(w)
    moved = np.zeros_like(w)
    turned = np.zeros_like(w)
    for one in seen:
        u = w - one.at
        if lost is None:
            own, unknown = u, np.zeros(len(w))
        else:
            # Along a lost direction a shift moves no score that is known: it counts as noise.
            own, unknown = lost.remove_lost_part(u), lost.lost_part_variance(u)
        along = np.einsum("rij,rj->ri", H, own)
        # Newton's gradient at w is g(v) + H u - t / 2, with u'Hu for the size of t.
        half = 0.5 * rows.third_derivative_term(
            w, own, np.maximum(np.sum(own * along, axis=1), 0.0)
        )
        variance = one.spread**2 + np.sum(half**2, axis=1) / d + unknown
        precision = 1.0 / np.maximum(variance, 1e-300)[:, None]
        total += precision
        g += precision * (one.gradient + along - half)
        moved += precision * u
        turned += precision * half
    if seen[-1].spread > 0.0:
        s_g = np.sqrt(1.0 / total[:, 0])
    else:
        s_g = np.zeros(len(w))
    return w, g / total, s_g, moved / total, turned / total


def inverse_where_known(
    H: Array, kept: BoolArray, least: Array, lowered: Array | float = 0.0
) -> tuple[Array, BoolArray]:
    """Invert H, less `lowered` times the identity, where its least eigenvalue is above `least`.

    Parameters
    ----------
    H : array (R, d, d)
        Symmetric.
    kept : bool array (R, d)
        Columns that were not merged.
    least : array (R,)
        What the least lowered eigenvalue must exceed.
    lowered : float or array (R,)
        Subtracted from all eigenvalues.

    Returns
    -------
    inverse : array (R, d, d)
        Zeros where there is none, and in columns that are not kept.
    fine : bool array (R,)
        Whether there is one.
    """
    values, vectors = np.linalg.eigh(H)
    values = values - np.reshape(lowered, (-1, 1))
    # eigh sorts eigenvalues in ascending order.
    fine = values[:, 0] > least
    safe = np.where(fine[:, None], values, 1.0)
    found = (vectors / safe[:, None, :]) @ vectors.transpose(0, 2, 1)
    both = kept[:, :, None] & kept[:, None, :]
    return np.where(fine[:, None, None], found, 0.0) * both, fine


def second_order_share(A: Array, H: Array, kept: BoolArray, s_H: Array, c: Array) -> Array:
    """Compute tau, the share of second-order noise in the variance of ``c'w``, for each row of c.

    ``tau = c'A P E[E P E] P A c / c'A P A c``, where E is noise in H of deviation s_H, and P the
    inverse of H in the frame A with its eigenvalues lowered by `LOWER` s_H.  Coefficients with
    more than `TAU` are refused.

    Parameters
    ----------
    A : array (R, d, d)
        The frame.
    H : array (R, d, d)
        Hessian in the frame.
    kept : bool array (R, d)
        Columns that were not merged.
    s_H : array (R,)
        Standard deviation of the noise on an entry of H.
    c : array (m, d)
        Weights of coefficients.

    Returns
    -------
    array (R, m)
        Infinite where the lowered H has no inverse.
    """
    P, _ = inverse_where_known(H, kept, np.zeros(len(H)), LOWER * s_H)
    # tau depends on the direction of c alone: the scale is taken out against overflow.
    turned = (c / np.maximum(np.abs(c).max(axis=1, keepdims=True), 1e-300)) @ A
    along = turned @ P
    trace = np.einsum("rii->r", P)[:, None]
    first = np.sum(turned * along, axis=2)
    # E[E P E] = s_H^2 / 2 (tr(P) I + P), as E has the variance s_H^2 / 2 off the diagonal.
    by_itself = np.einsum("rmi,rij,rmj->rm", along, P, along)
    beyond = 0.5 * (trace * np.sum(along**2, axis=2) + by_itself)
    added = beyond * (s_H**2)[:, None]
    return np.asarray(np.divide(added, first, out=np.full_like(first, np.inf), where=first > 0.0))


def covariance_of_hessian_noise(shift: Array, s_H: Array) -> Array:
    """Compute the covariance (R, d, d) of ``E d`` for a step d = `shift`, (R, d), and noise E in H.

    Entries of E have the variance s_H^2 on the diagonal and half of it off the diagonal.
    """
    length = np.sum(shift**2, axis=1)[:, None, None]
    added = length * np.eye(shift.shape[1]) + shift[:, :, None] * shift[:, None, :]
    return np.asarray((s_H**2 / 2.0)[:, None, None] * added)
