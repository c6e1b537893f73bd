"""Least squares with confidence intervals (docs/privacy/answers.md, "Least squares with
intervals").

:class:`Stepped` is the list of releases and the script that asks for them;
:func:`table_in_target_units` makes a table of its outcome.  Targets are scaled to [-1, 1], arrays
have R replicates in front, and d is the number of encoded columns.

Second moments give a public *frame*, a matrix A that stretches directions in which rows hardly vary
(:mod:`sottovoce.answers.row_frames`).  All that follows is asked of rows ``u = A a``, so that noise
is small relative to the rows in every direction.  A row that is longer than 1 in the frame has a
smaller weight there, the same one in the second moments M, in gradients g and in J, the second
moments of rows times residuals: they are those of one weighted least squares.

Two gradients lead near its minimum.  Each has residuals clipped at a threshold h beyond which a
histogram at its point shows none.  In the frame a gradient g at the point t gives the mean product
of rows and targets as ``c = M t - g``.  With all of these averaged by precision, n rows, noise of
deviation s_c on an entry of c and s_M on one of M::

    estimate = M^-1 c,    d = estimate - (the same average of the points t),
    covariance = M^-1 [J / n + s_c^2 I + (s_M^2 / 2)(|d|^2 I + d d')] M^-1.

This is exact, as the loss is quadratic, so the shrinkage of the points leaves no bias.  J, unlike
sigma^2 M^-1, holds if residuals have different spreads.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple

import numpy as np

from ..algorithms.items import Answer, Item, Script
from ..problem.facts import Facts
from ..problem.task import BoundedNumber
from ..queries import (
    AtBounds,
    Bounded,
    FramedMoments,
    FramedResiduals,
    FramedSteps,
    Lengths,
    Residuals,
    SecondMoments,
)
from ..queries.moments import unflatten_symmetric
from ..util import normal
from ..util.typing import Array, BoolArray
from . import clipped_tails
from .bounds_reached import estimate_targets_at_bounds
from .clipped_sites import ClippedStep, Shortfall, estimate_shortfall
from .coefficients import Coefficient, Coefficients, build_coefficient_table
from .directions import Directions, classify_directions, column_variances
from .frames import (
    Frame,
    compose_from_eigenvalues,
    project_to_semidefinite,
    refine_whitening,
    whitening_transform,
)
from .inference import (
    RAREST,
    UNSURE,
    Estimates,
    Pool,
    combine_site_steps,
    covariance_of_hessian_noise,
    inverse_where_known,
    mean_matrix_of_sites,
    pool_hessians,
    replace_singular_hessian,
    restrict_to_kept,
)
from .normal_equations import Mean, Products, posterior
from .references import comparisons_of, directions_of
from .row_frames import FINE, ROUGH, Ahead, best_power, length_of_levels, reach
from .separate_sites import (
    Columns,
    Heard,
    SeparateSites,
    SiteStep,
    of_kind,
    precision,
    shrink_to_mean,
)
from .slope_moments import OF_RESIDUALS, drawn_to_multiple
from .terms import CONSTANT, Naming

EDGES = 2.0 ** np.arange(-10.0, 1.5, 0.5)
"""Public cells of residuals, in half widths of the target's bounds; beyond the last one no
residual is kept.
"""
# A matrix is taken to have no inverse if an eigenvalue is below this part of the noise's norm.
_FLOOR = 0.05
# Mean distance beyond h, in units of h, of residuals that noise in the histogram may hide.
_EXCESS = 0.25
# Shares of the budget: of the first second moments, of those in the last frame, and of the second
# and the last gradient together.
_ROUGHLY = 0.05
_MOMENTS = 0.20
_GRADIENTS = 0.47
# For the choice of h: assumed distance of the mean row with clipped residuals from the mean of all
# rows, in standard deviations of a row.
_LEANS = 0.5
# For the choice of h: weight of the constant's variance, as it enters all predictions; that of a
# slope is 1.
_OF_CONSTANT = 2.0
# For the choice of the frame: h over the standard deviation of residuals, about.
_KEPT = 4.0
# A smaller curvature along a site's constant, in a frame, is taken to be 0.
_NO_BEND = 1e-12
# Without noise, a share of the rows below this is 0 but for rounding.
_NO_ROWS = 1e-9
# Largest distance of a site's constant from a point, in scores: targets are within 1.
_FARTHEST = 2.0
# A rare level is merged with its reference if its share is below this many noise deviations.
_MERGED = 3.0


class Clipping(NamedTuple):
    """Where residuals are clipped, and by how much; in half widths of the target's bounds."""

    h: float  # residuals are clipped to [-h, h]
    hidden: float  # bound of the mean amount by which they are


class _Released(NamedTuple):
    """Releases before the last clipping threshold, and the products of all gradients.

    Parameters
    ----------
    bounds : Answer
        Shares of targets at their bounds.
    frame : Frame
    kept : bool array (d,)
        Columns that were not merged.
    rough : array (R, d, d)
        Second moments of all columns.
    M : array (R, d, d)
        Second moments of the kept columns, in the frame.
    noise_on_entry : float
        Standard deviation of the noise on an entry of M.
    products : _FramedProducts
        Of every gradient.
    """

    bounds: Answer
    frame: Frame
    kept: BoolArray
    rough: Array
    M: Array
    noise_on_entry: float
    products: _FramedProducts


class _LastPoint(NamedTuple):
    """The point of the last gradient, and the releases there."""

    point: Array  # in the frame  (R, d)
    at: Array  # in encoded columns  (R, d)
    clipping: Clipping
    squares: Answer  # J, in units of h^2
    found: Answer  # the gradient, in units of h


@dataclass(frozen=True)
class Stepped(SeparateSites):
    """Least squares with intervals, of targets in [-1, 1]; the outcome is :class:`Estimates`.

    Replicates share two choices: which columns are kept, and where residuals are clipped.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    blocks : array (d,)
        Number of the block of a column that marks a level; 0 for other columns.
    value : float
        Entry of a row in its constant column.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    Frames, the h at which residuals are clipped, and the outcome are post-processing.
    """

    constant: Array = field(kw_only=True)
    marks: Array = field(kw_only=True)
    blocks: Array = field(kw_only=True)
    value: float = field(kw_only=True)

    name: ClassVar[str] = "slopes"
    summary: ClassVar[str] = "least squares with intervals"

    @property
    def items(self) -> tuple[Item, ...]:
        """Releases in the order of :meth:`script`: name, query, and share of the budget."""

        def at_bounds(at: Array) -> Bounded:
            return AtBounds(at, self.constant)

        def rough_lengths(at: Array) -> Bounded:
            return Lengths(at, edges=ROUGH)

        def fine_lengths(at: Array) -> Bounded:
            return Lengths(at, edges=FINE)

        def residuals(at: Array) -> Bounded:
            return Residuals(at, self.constant, EDGES)

        return (
            Item("targets at their bounds", at_bounds, 0.01),
            Item("second moments", SecondMoments, _ROUGHLY),
            Item("lengths of rows", rough_lengths, 0.01),
            Item("second moments in the first frame", FramedMoments, 0.05),
            Item("lengths of rows in the frame", fine_lengths, 0.02),
            Item("second moments in the frame", FramedMoments, _MOMENTS),
            Item("first gradient", FramedSteps, 0.05),
            Item("first residuals", residuals, 0.03),
            Item("second gradient", FramedSteps, 0.11),
            Item("residuals", residuals, 0.07),
            Item("moments of residuals", FramedResiduals, 0.04),
            Item("last gradient", FramedSteps, 0.36),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the releases in order, and return :class:`Estimates`.

        The steps: find the frame, ask for gradients whose residuals are clipped where a histogram
        shows none, and solve the normal equations with the products of all gradients (module's
        docstring).
        """
        zero = np.zeros((replicates, facts.d))
        bounds = yield AtBounds(zero, self.constant)
        frame, kept, rough = yield from self._ask_for_frame(zero)
        moments = yield FramedMoments(zero, frame=frame.A)
        every = np.tile(kept, (replicates, 1))
        M = restrict_to_kept(unflatten_symmetric(moments.value, facts.d), every)
        products = _FramedProducts(M, moments.spread, frame, kept, kept & (self.constant > 0))

        # At zero no residual needs clipping, as targets are within 1.
        found = yield FramedSteps(zero, frame=frame.A)
        products.add(zero, found.value * kept, found.spread)
        # Twice: under bounds that are far too wide, the first of these gradients leads to a point
        # where a second histogram tells a smaller h, and noise is in proportion to h.
        for last in (False, True):
            point = products.posterior_mean()
            at = np.einsum("rij,rj->ri", frame.A, point)
            cells = yield Residuals(at, self.constant, EDGES)
            of_gradient = self._noise_ahead(last, facts, cells)
            clipping = self._choose_clipping(cells, products, of_gradient)
            h = clipping.h
            if last:
                squares = yield FramedResiduals(at, h, frame=frame.A)
            found = yield FramedSteps(at, h, frame=frame.A)
            products.add(point, h * found.value * kept, h * found.spread)

        released = _Released(bounds, frame, kept, rough, M, moments.spread, products)
        last_point = _LastPoint(point, at, clipping, squares, found)
        return self._solve_normal_equations(released, last_point)

    def _solve_normal_equations(self, released: _Released, last: _LastPoint) -> Estimates:
        """Solve the normal equations of all products, and compute the errors of the solution.

        This is post-processing: the formulas are those of the module's docstring.
        """
        bounds, frame, kept, rough, M, noise_on_entry, products = released
        point, at, clipping, squares, found = last
        replicates, d = point.shape
        h, every = clipping.h, np.tile(kept, (replicates, 1))
        told = Pool(
            restrict_to_kept(h**2 * unflatten_symmetric(squares.value, d), every),
            np.full(replicates, h**2 * squares.spread),
        )
        s_M = np.full(replicates, noise_on_entry)
        size = np.einsum("rii->r", M) / max(1, int(kept.sum()))
        variances = column_variances(frame.back @ M @ frame.back, self.constant)
        lost = classify_directions(frame, M, s_M, variances, size)
        inverse, fine = _inverse_without_lost(lost, M, every, s_M)
        # M^-1 c is exact, as the loss is quadratic: shrinkage of the points leaves no bias.
        mean = products.together(products.distances(point))
        best = np.einsum("rij,rj->ri", inverse, mean.c)
        of_c = mean.of_gradients[:, None, None] * np.eye(d)
        noise = inverse @ (of_c + covariance_of_hessian_noise(best - mean.center, s_M)) @ inverse
        # White's J holds for unequal spreads; it is drawn to a multiple of M by its share of noise.
        drawn, _ = drawn_to_multiple(*told, M, OF_RESIDUALS)
        sampling = inverse @ (project_to_semidefinite(drawn) / found.rows) @ inverse
        A = frame.A
        every_row = np.einsum("rij,j->ri", frame.back, self.constant)
        tail = clipped_tails.tail_second_moments(M, *told, every_row)
        # Residuals clipped by c in the mean, in rows of mean u, move least squares by M^-1 u c.
        of_clipped = clipping.hidden**2 * (inverse @ tail @ inverse)
        noise_of_all = A @ noise @ A
        return Estimates(
            estimate=np.einsum("rij,rj->ri", A, best),
            at=at,
            covariance=A @ sampling @ A + noise_of_all + A @ of_clipped @ A,
            noise=noise_of_all,
            sampling=A @ sampling @ A,
            frame=A @ lost.projector_across_lost,
            hessian=lost.restrict_hessian(M),
            hessian_noise=s_M,
            strain=np.where(fine, 0.0, 2.0 * UNSURE),  # no step is too long for a quadratic
            kept=every,
            rows=found.rows,
            scale=self.releases_with_noise.total_mu,
            quadratic=True,
            directions=lost,
            moments=rough,
            at_bounds=bounds.value,
            at_bounds_noise=bounds.spread,
        )

    def _noise_ahead(self, last: bool, facts: Facts, cells: Answer) -> float:
        """Return the noise deviation of the gradient that follows the histogram `cells`, over h.

        `last` says whether that is the last gradient, or else the second.
        """
        name = "last gradient" if last else "second gradient"
        place = [item.name for item in self.releases_with_noise.items].index(name)
        return self.releases_with_noise.noise_deviation(place, facts, cells.among)

    def _choose_clipping(
        self, cells: Answer, products: _FramedProducts, of_gradient: float
    ) -> Clipping:
        """Choose the clipping threshold of residuals: as far out as their histogram shows any.

        Parameters
        ----------
        cells : Answer
            Noisy histogram of residuals at the present point.
        products : _FramedProducts
            Used by :class:`OfSites` only.
        of_gradient : float
            Standard deviation of the noise on an entry of the next gradient, over h; used by
            :class:`OfSites` only.
        """
        shares = cells.value.mean(axis=0)
        h = clipped_tails.choose_clipping_width(shares, cells.spread, EDGES)
        return Clipping(h, h * hidden_by_clipping(shares, cells.spread, h))

    def with_one_constant(self, columns: Columns) -> Stepped:
        """Return the recipe for rows of k slopes and one constant, which chooses h by cost."""
        one = columns.slopes + 1
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        changed = {
            "constant": columns.one_constant,
            "marks": self.marks[:one],
            "blocks": self.blocks[:one],
        }
        return OfSites(**(own | changed))

    def own_constants(self, heard: Sequence[Heard], then: Array, facts: Facts) -> Array:
        """Update each site's own constant by a Newton step with its gradient and second moments.

        Differences between sites are shrunk by their share of noise.

        Parameters
        ----------
        heard, then, facts
            As for :meth:`SeparateSites.own_constants`.

        Returns
        -------
        array (R, N)
        """
        last = heard[-1]
        if not isinstance(last.what, FramedSteps) or last.what.frame is None:
            return last.own
        moments = of_kind(heard, FramedMoments)[-1]
        common = Pool(*mean_matrix_of_sites(moments))
        d, h, back = then.shape[1], last.what.h, precision(last.what.frame)
        step = np.einsum("rij,rj->ri", back, then - last.what.at)
        along = back[:, :, -1]  # the direction, in the frame, that moves the constant alone
        per_bend = _inverse_curvature(along, common.H)
        missing = np.zeros_like(last.own)
        for i in range(missing.shape[1]):
            value, noise = moments.of(i)
            own = pool_hessians(common, unflatten_symmetric(value, d), noise).H
            # The loss is quadratic: M times the common step is what it changes in the gradient.
            gradient = h * last.values[:, i] + np.einsum("rij,rj->ri", own, step)
            missing[:, i] = -np.einsum("ri,ri->r", along, gradient) * per_bend
        spread = h * np.sqrt(np.sum(along**2, axis=1)) * per_bend
        return np.asarray(last.own + shrink_to_mean(missing, (spread[:, None] * last.spreads) ** 2))

    def joined(self, found: Estimates, heard: Sequence[Heard], facts: Facts) -> Estimates:
        """Combine the sites' estimates (:func:`combine_site_slopes`), and their shares of targets
        at the bounds, by rows.

        Parameters
        ----------
        found, heard, facts
            As for :meth:`SeparateSites.joined`.

        Returns
        -------
        Estimates
        """
        n = facts.rows_per_node[:, 0]
        bounds = of_kind(heard, AtBounds)[0]
        share = n / n.sum()
        return replace(
            combine_site_slopes(self.columns(facts), found, heard, facts, self.value),
            at_bounds=np.einsum("i,rie->re", share, bounds.values),
            at_bounds_noise=math.sqrt(float(np.sum((share * bounds.spreads) ** 2))),
        )

    def _ask_for_frame(
        self, zero: Array
    ) -> Generator[Bounded, Answer, tuple[Frame, BoolArray, Array]]:
        """Ask for second moments, then again in the frame they give, and choose the final frame.

        Returns
        -------
        short : Frame
            Scaled so that hardly any row is longer than 1 in it.
        kept : bool array (d,)
            Columns that were not merged.
        rough : array (R, d, d)
            Second moments of all columns, not in a frame.
        """
        every, d = np.ones(zero.shape, dtype=bool), zero.shape[1]
        moments = yield SecondMoments(zero)
        sight = whitening_transform(unflatten_symmetric(moments.value, d), moments.spread, every)

        # Root mean square length of the rows in the frame, where second moments are the identity.
        unit = math.sqrt(d)
        cells = yield Lengths(zero, frame=sight.frame.A / unit, edges=ROUGH)
        length = unit * reach(cells.value, cells.spread, ROUGH)
        found = yield FramedMoments(zero, frame=sight.frame.A / length[:, None, None])
        M = unflatten_symmetric(found.value, d) * length[:, None, None] ** 2
        noise = found.spread * length**2
        kept = self._columns_not_merged(sight.frame.back, M, noise)
        S = restrict_to_kept(
            refine_whitening(sight, M, noise, every).raised_moments, np.tile(kept, (len(zero), 1))
        )
        length = self._longest_rows(S, kept, length)

        # Noise of second moments with all of the budget.  That of a gradient is sqrt(2) times it:
        # a replaced row moves a gradient by 2, and moments, which are in a cone, by sqrt(2).
        unit = moments.spread * math.sqrt(_ROUGHLY)
        of_gradients = _KEPT * math.sqrt(2.0) * unit / math.sqrt(_GRADIENTS)
        ahead = Ahead(unit / math.sqrt(_MOMENTS), of_gradients)
        levels = (self.marks, self.blocks, self.constant, self.value)
        compared = comparisons_of(*levels, S.mean(axis=0), kept)
        # Noise is large at p = 0 where columns are related, and at p = 1 where levels are rare.
        frame = best_power(S, length, kept, moments.rows, ahead, compared)
        cells = yield Lengths(zero, frame=frame.A, edges=FINE)
        edge = reach(cells.value, cells.spread, FINE)[:, None, None]
        short = Frame(frame.A / edge, frame.back * edge)
        return short, kept, sight.frame.back @ M @ sight.frame.back

    def _longest_rows(self, S: Array, kept: BoolArray, length: Array) -> Array:
        """Raise the largest length of rows at p = 1 to that of rare levels and small sites, (R,).

        The rows of a group with the share s of all rows have at least the length ``s^-1/2`` there.

        Parameters
        ----------
        S : array (R, d, d)
            Second moments.
        kept : bool array (d,)
            Columns that were not merged.
        length : array (R,)
            Largest length that a noisy histogram showed.
        """
        marks, blocks = self.marks * kept, self.blocks * kept
        length = np.maximum(length, length_of_levels(S, marks))
        for _, groups in directions_of(marks, blocks, self.constant, self.value):
            reference = groups[-1]
            share = np.einsum("i,rij,j->r", reference, S, reference)
            length = np.maximum(length, share**-0.5)
        for constant in np.flatnonzero(kept & (self.constant > 0.0)):
            length = np.maximum(length, self.value * S[:, constant, constant] ** -0.5)
        return length

    def _columns_not_merged(self, back: Array, M: Array, noise: Array) -> BoolArray:
        """Return which columns are kept, (d,): not those of rare levels that noise hides.

        The reference is a level like the others: if it is the rare one, the most frequent level
        counts as the reference.

        Parameters
        ----------
        back : array (R, d, d)
            Inverse of the frame.
        M : array (R, d, d)
            Second moments in the frame.
        noise : array (R,)
            Standard deviation of the noise on an entry of M.
        """
        kept = np.ones(len(self.marks), dtype=bool)
        for columns, groups in directions_of(self.marks, self.blocks, self.constant, self.value):
            turned = groups @ back  # (R, levels and reference, d)
            shares = np.einsum("rli,rij,rlj->rl", turned, M, turned).mean(axis=0)
            doubts = (noise[:, None] * np.sum(turned**2, axis=2)).mean(axis=0)
            # Rare, and not shown by three noise deviations of the moments in the first frame.
            hidden = (shares < RAREST) & (shares <= np.maximum(_MERGED * doubts, _NO_ROWS))
            # The commonest level stays: others are merged with it.
            hidden[np.argmax(shares)] = False
            kept[columns] = ~hidden[:-1]  # the last group is the reference, without a column
            if hidden[-1]:
                # The reference is the rare one: the most frequent level counts as the reference.
                kept[columns[np.argmax(shares[:-1])]] = False
        return kept


class OfSites(Stepped):
    """:class:`Stepped` for the average answers of sites that each release their own.

    The histograms of all sites together have less noise than that of one site, and show rarer large
    residuals.  But each site's gradient keeps all of its own noise, in proportion to h.  So h is
    the threshold with the least expected variance of the coefficients, instead of the largest
    residual that shows.
    """

    def _choose_clipping(
        self, cells: Answer, products: _FramedProducts, of_gradient: float
    ) -> Clipping:
        """Choose the threshold with the least mean log variance of the coefficients."""
        shares = cells.value.mean(axis=0)
        square = max(float(EDGES**2 @ shares[:-1]), float(EDGES[0] ** 2))
        costs = products.clipping_costs(
            self.constant / self.value, square / cells.rows, of_gradient**2
        )
        h = clipped_tails.choose_cheapest_width(shares, cells.spread, EDGES, costs)
        return Clipping(h, clipped_tails.estimate_mean_clipping(shares, cells.spread, EDGES, h))


def combine_site_slopes(
    columns: Columns, found: Estimates, heard: Sequence[Heard], facts: Facts, value: float
) -> Estimates:
    """Compute an estimate for every site, and combine them by inverse covariance.

    Each is a step from the common point.

    Parameters
    ----------
    columns : Columns
    found : Estimates
        Of the common steps, in columns with one constant.
    heard : sequence of Heard
        The sites' answers to every item, in order.
    facts : Facts
    value : float
        Entry of a row in its constant column.

    Returns
    -------
    Estimates
        In all columns.
    """
    moments = of_kind(heard, FramedMoments)[-1]
    squares = of_kind(heard, FramedResiduals)[-1]
    gradients = of_kind(heard, FramedSteps)
    d, lost = columns.slopes + 1, found.directions
    assert isinstance(squares.what, FramedResiduals) and lost is not None
    A, back, across = lost.frame.A, lost.frame.back, lost.projector_across_lost
    h = squares.what.h
    of_all = Pool(found.hessian, found.hessian_noise)
    common, spread = _pooled_residual_moments(found, squares, h)
    points = [
        np.einsum("rij,rnj->rni", back, columns.point_of_each_site(gradient.what.at, gradient.own))
        for gradient in gradients
    ]
    n, steps = facts.rows_per_node[:, 0], list[SiteStep]()
    for i in range(columns.sites):
        own = _pool_site(of_all, moments, i, found.kept)
        own = replace_singular_hessian(own, of_all, found.kept)
        J = h**2 * _pool_site(common, squares, i, found.kept).H
        inverse, _ = inverse_where_known(
            lost.restrict_hessian(own.H), found.kept, np.zeros(len(own.H))
        )
        inverse = across @ inverse @ across
        mean = _site_products(own, gradients, points, i)
        best = np.einsum("rij,rj->ri", inverse, mean.c)
        of_c = mean.of_gradients[:, None, None] * np.eye(d)
        of_noise = (
            inverse @ (of_c + covariance_of_hessian_noise(best - mean.center, own.noise)) @ inverse
        )
        sampling = inverse @ (project_to_semidefinite(J) / n[i]) @ inverse
        # Weights by one spread of all residuals: a site's own J follows the rows that it weighs.
        expected = A @ (spread[:, None, None] * inverse / n[i] + of_noise) @ A
        of_noise = A @ of_noise @ A
        estimate = np.einsum("rij,rj->ri", A, best)
        if columns.apart:
            # Residuals of a small site may all be clipped to one side.  Without this a third of the
            # intervals of such a constant covered, with 40 of 2,000 rows at epsilon 3.
            short = _shortfall_of_constant(
                own, back, gradients, points, mean.shares, i, spread / n[i], value
            )
            estimate[:, -1] += short.mean
            of_noise[:, -1, -1] += short.variance
            expected[:, -1, -1] += short.variance
        steps.append(SiteStep(estimate, expected, of_noise, A @ sampling @ A))
    return combine_site_steps(
        found,
        columns,
        steps,
        columns.point_in_all_columns(gradients[-1].what.at, gradients[-1].own),
        facts,
    )


def _pooled_residual_moments(found: Estimates, squares: Heard, h: float) -> tuple[Pool, Array]:
    """Average J over all sites, in units of h^2, and estimate the residuals' mean square.

    Parameters
    ----------
    found : Estimates
        Of the common steps.
    squares : Heard
        The sites' second moments of rows times residuals, J.
    h : float
        Where residuals are clipped.

    Returns
    -------
    tuple of Pool and array (R,)
        The mean square is the multiple of M that is nearest to h^2 J.
    """
    # J of small sites is mostly noise: it is drawn to that of all sites, and that to M.
    mean_squares, squares_noise = mean_matrix_of_sites(squares)
    mean_squares = restrict_to_kept(mean_squares, found.kept)
    common = Pool(*drawn_to_multiple(mean_squares, squares_noise, found.hessian, OF_RESIDUALS))
    overlap = np.einsum("rij,rij->r", found.hessian, h**2 * common.H)
    # Noise may leave nothing of the second moments: the table is refused then, and its numbers stay
    # numbers.
    size = np.maximum(np.einsum("rij,rij->r", found.hessian, found.hessian), 1e-300)
    return common, np.maximum(overlap, 0.0) / size


def _pool_site(common: Pool, moments: Heard, i: int, kept: BoolArray) -> Pool:
    """Average the released matrix of site i with that of all sites, `common`, by precision."""
    value, noise = moments.of(i)
    own = restrict_to_kept(unflatten_symmetric(value, kept.shape[-1]), kept)
    return pool_hessians(common, own, noise)


def _shortfall_of_constant(
    own: Pool,
    back: Array,
    gradients: Sequence[Heard],
    points: Sequence[Array],
    shares: Array,
    i: int,
    residuals: Array,
    value: float,
) -> Shortfall:
    """Estimate by how much clipped residuals make the step of a site's constant too short.

    Parameters
    ----------
    own : Pool
        Second moments of the site's rows in the frame.
    back : array (R, d, d)
        The frame's inverse.
    gradients : sequence of Heard
        The sites' gradients.
    points : sequence of array (R, N, d)
        Points of the gradients, in the frame, for each site with its own constant.
    shares : array (gradients, R)
        Weights of the gradients in the site's estimate.
    i : int
        Number of the site.
    residuals : array (R,)
        Sampling variance of the mean residual of the site, in scores.
    value : float
        Entry of a row in its constant column.
    """
    along = back[:, :, -1]
    per_bend = _inverse_curvature(along, own.H)
    steps = list[ClippedStep]()
    for gradient, every, share in zip(gradients, points, shares, strict=True):
        assert isinstance(gradient.what, FramedSteps)
        answer, noise = gradient.of(i)
        h = gradient.what.h
        of_noise = h * noise * np.sqrt(np.sum(along**2, axis=1)) * per_bend
        to_last = points[-1][:, i] - every[:, i]
        step = ClippedStep(
            seen=-h * np.einsum("ri,ri->r", along, answer) * per_bend,
            error=np.sqrt(of_noise**2 + residuals / value**2),
            start=np.einsum("ri,rij,rj->r", along, own.H, to_last) * per_bend,
            h=h / value,
            share=share,
        )
        steps.append(step)
    return estimate_shortfall(steps, _FARTHEST / value)


def _inverse_curvature(along: Array, H: Array) -> Array:
    """Return one over the curvature ``v'Hv`` along a direction v, (R,); 0 up to `_NO_BEND`.

    With 0 no step is taken along v; the table is refused there anyway, and stays free of infinite
    numbers.
    """
    bend = np.einsum("ri,rij,rj->r", along, H, along)
    return np.asarray(np.divide(1.0, bend, out=np.zeros_like(bend), where=bend > _NO_BEND))


def _site_products(own: Pool, gradients: Sequence[Heard], points: Sequence[Array], i: int) -> Mean:
    """Average site i's products of rows and targets over its gradients, by precision.

    `own` are the second moments of its rows in the frame, and `points` as in
    :func:`_shortfall_of_constant`.
    """
    products = Products(own.H, own.noise)
    for gradient, every in zip(gradients, points, strict=True):
        assert isinstance(gradient.what, FramedSteps)
        value, noise = gradient.of(i)
        products.add(every[:, i], gradient.what.h * value, gradient.what.h * noise)
    return products.together(products.distances(points[-1][:, i]))


class _FramedProducts(Products):
    """Mean products c of rows and targets in a frame, with a normal prior on the slopes.

    Parameters
    ----------
    M : array (R, d, d)
        Second moments in the frame.
    s_M : float
        Standard deviation of the noise on an entry of M.
    frame : Frame
    kept : bool array (d,)
        Columns that have a coefficient.
    constants : bool array (d,)
        Those of them that are constants, which the prior does not shrink.
    """

    def __init__(
        self, M: Array, s_M: float, frame: Frame, kept: BoolArray, constants: BoolArray
    ) -> None:
        super().__init__(M, s_M)
        self.frame, self.kept = frame, kept
        floor = np.maximum(1e-12, _FLOOR * s_M * math.sqrt(2.0 * M.shape[-1]))
        values, vectors = np.linalg.eigh(M)
        self.raised = compose_from_eigenvalues(vectors, np.maximum(values, floor))
        # Orthonormal directions of the points: first those that move constants alone, then all
        # others.
        whole = frame.back[:, :, np.flatnonzero(constants)]
        self.first = whole.shape[2]
        self.turn = np.linalg.qr(whole, mode="complete").Q

    def clipping_costs(self, constant: Array, sampling: float, noise: float) -> clipped_tails.Costs:
        """Estimate the variance of each kept coefficient as a function of the next threshold h.

        Variances are means over replicates.  The mean row with clipped residuals is taken to be
        `_LEANS` standard deviations of a row away from the mean of all rows.

        Parameters
        ----------
        constant : array (d,)
            Change of the coefficients that moves all scores by 1.
        sampling : float
            Variance of residuals over the number of rows.
        noise : float
            Variance of the noise on an entry of a gradient, in units of h.

        Returns
        -------
        Costs
        """
        inverse = np.linalg.inv(self.raised)
        A = self.frame.A
        # Diagonals of A M^-1 A for errors like those of rows, and of A M^-2 A for noise.
        by_one_row = np.einsum("rij,rjk,rki->ri", A, inverse, A)[:, self.kept]
        of_gradient = np.einsum("rij,rjk,rkl,rli->ri", A, inverse, inverse, A)[:, self.kept]
        return clipped_tails.Costs(
            sampling=sampling * by_one_row.mean(axis=0),
            noise=noise * of_gradient.mean(axis=0),
            clipped=_LEANS**2 * by_one_row.mean(axis=0) + constant[self.kept] ** 2,
            weights=np.where(constant[self.kept] > 0.0, _OF_CONSTANT, 1.0),
        )

    def posterior_mean(self) -> Array:
        """Return the posterior mean of the coefficients in the frame, (R, d), by empirical Bayes.

        Constants have a flat prior.  The others are normal with one variance, averaged over a grid
        by its likelihood (:func:`sottovoce.answers.normal_equations.posterior`).
        """
        turned = self.turn.transpose(0, 2, 1)
        M = turned @ self.raised @ self.turn
        found = np.zeros_like(self.points[0])
        # The noise in M counts by the distance from the points, which follows from the mean.
        for _ in range(3):
            mean = self.together(self.distances(found))
            distance = np.sum((found - mean.center) ** 2, axis=1)
            variance = mean.of_gradients + self.s_M**2 / 2.0 * distance
            c = np.einsum("rij,rj->ri", turned, mean.c)
            expected = posterior(M, c, variance, free=self.first).mean
            found = np.einsum("rij,rj->ri", self.turn, expected)
        return found


def _inverse_without_lost(
    lost: Directions, M: Array, kept: BoolArray, noise: Array
) -> tuple[Array, BoolArray]:
    """Invert M in the space without lost directions, (R, d, d).

    Also returns for which replicates that is possible, (R,): where noise, of the deviation `noise`
    on an entry, leaves its least eigenvalue clearly above 0.
    """
    least = np.maximum(1e-12, _FLOOR * noise * math.sqrt(2.0 * M.shape[-1]))
    inverse, fine = inverse_where_known(lost.restrict_hessian(M), kept, least)
    return lost.projector_across_lost @ inverse @ lost.projector_across_lost, fine


def slopes_from_naming(naming: Naming) -> Stepped:
    """Construct the recipe of least squares for rows of an encoding."""
    return Stepped(
        constant=naming.constant, marks=naming.marks, blocks=naming.blocks, value=naming.value
    )


def hidden_by_clipping(cells: Array, noise: float, h: float) -> float:
    """Bound the mean amount of clipping, in units of h, that a noisy histogram may hide.

    That is the share of residuals beyond h, noise included, times their mean excess `_EXCESS`.

    Parameters
    ----------
    cells : array (edges + 1,)
        Noisy shares of residuals by size.
    noise : float
        Standard deviation of the noise on a share; one deviation is added.
    h : float
        Where residuals are clipped.

    Returns
    -------
    float
    """
    beyond = cells[np.searchsorted(EDGES, h / clipped_tails.MARGIN * 0.999) + 1 :]
    return _EXCESS * (max(0.0, float(beyond.sum())) + noise * math.sqrt(len(beyond)))


def table_in_target_units(
    found: Estimates, naming: Naming, task: BoundedNumber, delta: float | None = None
) -> Coefficients:
    """Construct the table of coefficients in the units of the columns and of the target.

    Parameters
    ----------
    found : Estimates
        Outcome of :class:`Stepped`, for targets in [-1, 1].
    naming : Naming
        The encoding, with the lines' names and units.
    task : BoundedNumber
        The target's bounds.
    delta : float, optional
        Delta of the run: with it, refusals name the epsilon that would suffice.

    Returns
    -------
    Coefficients
        Of the first replicate; see :func:`sottovoce.answers.coefficients.build_coefficient_table`.
    """
    encoded = build_coefficient_table(found, naming, delta=delta)
    half = 0.5 * (task.high - task.low)
    starts = [_value_at_zero(line, task) for line in encoded.lines]
    lines = tuple(
        _in_units(line, half, start) for line, start in zip(encoded.lines, starts, strict=True)
    )
    at_bounds = None
    if found.at_bounds is not None:
        at_bounds = estimate_targets_at_bounds(
            found.at_bounds[0], found.at_bounds_noise, found.rows
        )
    undivided, determined = encoded.undivided, encoded.determined
    if undivided is not None:
        undivided = undivided.in_other_units(half, np.array(starts))
    if determined is not None:
        determined = determined.in_other_units(half, np.array(starts))
    return replace(
        encoded,
        lines=lines,
        odds=False,
        covariance=half**2 * encoded.covariance,
        at_bounds=at_bounds,
        undivided=undivided,
        determined=determined,
    )


def _value_at_zero(line: Coefficient, task: BoundedNumber) -> float:
    """Return the line's value for an encoded 0: the middle of the bounds for the constant."""
    if line.term.name != CONSTANT:
        return 0.0
    return task.low + 0.5 * (task.high - task.low)


def _in_units(line: Coefficient, half: float, start: float) -> Coefficient:
    """Scale a line from targets in [-1, 1] to the target's units; refused lines stay as they are.

    Parameters
    ----------
    line : Coefficient
    half : float
        Half the width of the target's bounds.
    start : float
        The line's value in target units for an encoded 0.
    """
    if line.estimate is None or line.standard_error is None:
        return line
    if line.low is None or line.high is None:
        return line
    estimate = start + half * line.estimate
    error = half * line.standard_error
    p = 0.0
    if error > 0:
        p = normal.two_sided_tail(estimate / error)
    return replace(
        line,
        estimate=estimate,
        standard_error=error,
        p=p,
        low=start + half * line.low,
        high=start + half * line.high,
    )
