"""Lost directions: combinations of columns that are 0 in every row, so that nothing is known along
them.

Examples are a column of zeros, one that repeats another, one that is the sum of others, and one
that is constant within each site if sites have their own constants. Along such a direction v every
row x has ``v'x = 0``, so coefficients may move along v without moving any row's score.  No epsilon
and no number of rows would determine them.  But only lines c of the table with ``c'v != 0`` are
lost; every other one has the same value wherever the model stands along v.  So the last step is
taken in the space without these directions, and the other lines are printed as usual.

In a frame A a lost direction is an eigenvector q of a matrix H of bounded sums (a Hessian, or
second moments) with the eigenvalue 0, and v is ``A q``.  With noise of deviation s on an entry of H
an eigenvalue is that of a lost direction if

- it is 0 within the noise, and
- even if two noise deviations are added to it, the variance of rows along the direction is at most
  the share `LOST` of the variance that they would have there if the columns were uncorrelated.

An eigenvalue that is 0 within the noise and fails the second rule is *hidden*: a larger epsilon may
show it.  An error in q does no harm: if v is lost, the minimisers lie on a straight line along v,
and any complementary space contains one of them.

A *line* of the table is a printed coefficient, which is a weighted sum ``c'w`` of the coefficients
w of columns.  It *turns into* a direction v if ``c'v`` is not 0.  Sizes of ``c'v`` are *for a score
of 1*: v is scaled so that the scores of rows along it would have variance 1 if the columns were
uncorrelated.

:func:`column_variances` computes the variance of each column from second moments.
:func:`classify_directions` finds the eigenvectors, as :class:`Directions`, by which steps avoid
those that are lost.  :func:`find_lost_lines` finds the lines that turn into them, as
:class:`LostLines`, and ``describe_*`` put each :class:`Relation` of these in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.enumerations import join_with_and
from ..util.typing import Array, BoolArray
from .frames import Frame

LOST = 5e-3
"""Largest variance of rows along a lost direction, over that with uncorrelated columns."""
FLAT = 1e-3
"""Smaller variances of a column are raised to this part of the mean variance of all columns.

So a nearly constant column is lost only if its variance is shown to be below `LOST` of that.
"""
UNCLEAR = 0.02
"""Largest doubt, for a score of 1, about whether a line turns into a lost direction; with more the
line is refused.
"""
SEEN = 2.0
"""Noise deviations that an eigenvalue above 0 must exceed, in addition to the norm of a matrix of
noise.
"""
_EXACT = 1e-9
"""Rounding error of an eigenvalue of 0, over the mean eigenvalue."""
_LEAST_VARIANCE = 1e-300
"""Smallest variance of a column in a denominator."""
_TURNED = 1e-6
"""Largest ``c'v``, over the length of a line c, that may be a rounding error."""
_DOUBT = 3.0
"""Standard deviations of the error in ``c'v`` that a line must exceed to turn into v."""
_PART = 0.05
"""Two lines belong to one relation if their entry of the projection on lost directions exceeds
this.
"""
_CLEAR = 0.4
"""Largest angle, in radians, by which noise may turn a hidden direction whose columns are named."""
_ALIKE = 0.1
"""Largest share of variance (:attr:`Directions.share`) at which several columns of a hidden
direction are named.
"""
_NAMED = 0.3
"""Columns of a hidden direction are named if their weight is this part of the largest one."""
_FEW = 3
"""Largest number of columns of a hidden direction that are named."""


class Directions(NamedTuple):
    """Eigenvectors of H in the frame, with those that are lost or hidden, of R replicates.

    Parameters
    ----------
    frame : Frame
    values : array (R, d)
        Eigenvalues of H, in increasing order.
    vectors : array (R, d, d)
        Eigenvectors q, in columns.
    noise : array (R,)
        Standard deviation of the noise on an entry of H.
    lost : bool array (R, d)
    hidden : bool array (R, d)
        Eigenvectors whose eigenvalue is 0 within the noise, and that are not lost.
    share : array (R, d)
        Upper bound of the variance of rows along a direction, over that with uncorrelated columns.
    size : array (R, d)
        Standard deviation of scores of rows along ``A q`` if the columns were uncorrelated.
    variances : array (R, d)
        Lower bound of the variance of each column.
    """

    frame: Frame
    values: Array
    vectors: Array
    noise: Array
    lost: BoolArray
    hidden: BoolArray
    share: Array
    size: Array
    variances: Array

    @property
    def any_lost(self) -> BoolArray:
        """Replicates that have a lost direction, (R,)."""
        return np.asarray(self.lost.any(axis=1))

    @property
    def projector_across_lost(self) -> Array:
        """Projectors on a space that is complementary to the lost directions, (R, d, d).

        They apply in the frame.  Any complementary space contains a minimiser.  The one orthogonal
        to ``A q`` is taken: A maps the noise of gradients into the frame, and with the error of q
        that noise would be large in the space orthogonal to q.
        """
        lost_in_columns = self.frame.A @ self.vectors * self.lost[:, None, :]
        _, vectors = np.linalg.eigh(lost_in_columns @ lost_in_columns.transpose(0, 2, 1))
        d = lost_in_columns.shape[-1]
        # eigh sorts eigenvalues in ascending order: those of lost directions are the last.
        across = np.arange(d) < d - self.lost.sum(axis=1)[:, None]
        kept = (vectors * across[:, None, :]) @ vectors.transpose(0, 2, 1)
        return np.where(self.any_lost[:, None, None], kept, np.eye(d))

    def split_along_lost(self, shift: Array) -> tuple[Array, Array]:
        """Split a shift of coefficients, (R, d), into its parts across and along lost directions.

        Both parts, (R, d), are in the frame.  The part along is a combination of the q, which
        leaves scores as they are; the projection out of the space alone would not quite be one.
        """
        lost_in_frame = self.vectors * self.lost[:, None, :]
        shift_in_frame = np.einsum("rij,rj->ri", self.frame.back, shift)
        orthogonal = np.eye(lost_in_frame.shape[-1]) - self.projector_across_lost
        # The combination of the q whose part outside the space is that of the shift.
        solve = np.linalg.pinv(orthogonal @ lost_in_frame, rcond=_TURNED)
        parts = solve @ orthogonal @ shift_in_frame[:, :, None]
        along_lost = (lost_in_frame @ parts)[:, :, 0]
        return np.asarray(shift_in_frame - along_lost), np.asarray(along_lost)

    def project_step_across(self, step: Array) -> Array:
        """Project a step, (R, d), on the space of :attr:`projector_across_lost`, (R, d).

        The step was computed with a Hessian of :meth:`restrict_hessian`.
        """
        if not self.lost.any():
            return step
        inside = self.frame.A @ self.projector_across_lost @ self.frame.back @ step[:, :, None]
        return np.where(self.any_lost[:, None], inside[:, :, 0], step)

    def remove_lost_part(self, shift: Array) -> Array:
        """Return a shift, (R, d), without its part along lost directions, which moves no score."""
        if not self.lost.any():
            return shift
        across_in_frame, _ = self.split_along_lost(shift)
        across = np.einsum("rij,rj->ri", self.frame.A, across_in_frame)
        return np.where(self.any_lost[:, None], across, shift)

    def lost_part_variance(self, shift: Array) -> Array:
        """Return the variance that a shift adds to an entry of a gradient, (R,), by noise in H.

        Gradients are carried along the shift by H; its lost part contributes noise alone.
        """
        if not self.lost.any():
            return np.zeros(len(shift))
        _, along_lost = self.split_along_lost(shift)
        stretched = self.projector_across_lost @ self.frame.A
        # Noise in a gradient's entry, turned into the space, has this variance on average.
        mean = np.einsum("rij,rij->r", stretched, stretched) / shift.shape[-1]
        # An entry of H off the diagonal has half of the noise variance of one on it.
        variance = 0.5 * self.noise**2 * np.sum(along_lost**2, axis=1)
        # Where all directions are lost, no space is left in which a gradient could have noise.
        added = np.divide(variance, mean, out=np.zeros_like(variance), where=mean > 0.0)
        return np.asarray(added * self.any_lost)

    def restrict_hessian(self, H: Array) -> Array:
        """Restrict H, (R, d, d), to the space without lost directions.

        Lost directions get the mean eigenvalue of the rest, so that H stays invertible.
        """
        across = self.projector_across_lost
        restricted = across @ H @ across
        dimensions = np.maximum(np.einsum("rii->r", across), 1.0)
        mean = np.einsum("rii->r", restricted) / dimensions
        return np.asarray(restricted + mean[:, None, None] * (np.eye(H.shape[-1]) - across))

    def for_replicate(self, replicate: int) -> Directions:
        """Return one replicate, with a first axis of length 1."""
        one = slice(replicate, replicate + 1)
        return Directions(
            frame=Frame(self.frame.A[one], self.frame.back[one]),
            values=self.values[one],
            vectors=self.vectors[one],
            noise=self.noise[one],
            lost=self.lost[one],
            hidden=self.hidden[one],
            share=self.share[one],
            size=self.size[one],
            variances=self.variances[one],
        )


def classify_directions(
    frame: Frame, H: Array, noise: Array, variances: Array, moments: Array
) -> Directions:
    """Compute the eigenvectors of H, and classify those that are lost or hidden.

    Parameters
    ----------
    frame : Frame
        That of H.
    H : array (R, d, d)
        Symmetric, with 0 along a lost direction but for noise.
    noise : array (R,)
        Standard deviation of the noise on an entry of H.
    variances : array (R, d)
        Lower bound of the variance of each column; see :func:`column_variances`.
    moments : array (R,)
        Mean second moment of rows in the frame, in directions that are not lost: H is taken to be
        in proportion to second moments.

    Returns
    -------
    Directions
    """
    values, vectors = np.linalg.eigh(H)
    d = H.shape[-1]
    # The k least eigenvalues of noise alone are within its norm, about sqrt(2 k) deviations.
    thresholds = np.sqrt(2.0 * np.arange(1, d + 1))
    mean = np.mean(np.maximum(values, 0.0), axis=1)[:, None]
    rounding = _EXACT * mean
    limit = noise[:, None] * (SEEN + thresholds) + rounding
    # Eigenvalues are in order: none is 0 above one that stands out.
    zero = np.logical_and.accumulate(values <= limit, axis=1)
    most = np.maximum(values, 0.0) + SEEN * noise[:, None] + rounding
    in_columns = frame.A @ vectors  # weights of the columns
    unrelated_variance = np.einsum("rj,rjk,rjk->rk", variances, in_columns, in_columns)
    moved = np.divide(most, mean, out=np.ones_like(most), where=mean > 0.0) * moments[:, None]
    # The share of its columns' variance that a direction has, two noise deviations included.
    share = np.divide(
        moved,
        unrelated_variance,
        out=np.full_like(moved, np.inf),
        where=unrelated_variance > _LEAST_VARIANCE,
    )
    lost = zero & (share <= LOST)
    # Directions without any variance are those of columns that were left out.
    varies = unrelated_variance > _EXACT**2 * unrelated_variance.max(axis=1, keepdims=True)
    return Directions(
        frame=frame,
        values=values,
        vectors=vectors,
        noise=noise,
        lost=lost,
        hidden=zero & ~lost & varies,
        share=share,
        size=np.sqrt(unrelated_variance),
        variances=variances,
    )


def classify_unseen_directions(
    frame: Frame, unseen: Array, variances: Array, moments: Array
) -> Directions:
    """Classify directions before any Hessian is known, by the second moments that gave the frame.

    Second moments that noise hides were raised to its norm, ``sqrt(2 d)`` deviations, which is 1 in
    the frame: that sets the noise of the rest.

    Parameters
    ----------
    frame : Frame
    unseen : array (R, d, d)
        Part of the identity that noise hides in the frame.
    variances : array (R, d)
        As for :func:`classify_directions`.
    moments : array (R,)
        As for :func:`classify_directions`.

    Returns
    -------
    Directions
    """
    d = unseen.shape[-1]
    noise = np.where(unseen.any(axis=(1, 2)), 1.0 / math.sqrt(2.0 * d), 0.0)
    return classify_directions(frame, np.eye(d) - unseen, noise, variances, moments)


def column_variances(S: Array, constant: Array) -> Array:
    """Compute variances of columns from second moments, raised to a part `FLAT` of their mean.

    Parameters
    ----------
    S : array (R, d, d)
        Second moments.
    constant : array (d,)
        1 in the columns that hold constants, of which every row has one: these get a variance of 0
        before small ones are raised.

    Returns
    -------
    array (R, d)
    """
    columns = constant == 0.0
    with_constant = S @ constant
    means = with_constant**2 / np.maximum(with_constant @ constant, 1e-300)[:, None]
    own = np.maximum(np.einsum("rii->ri", S) - means, 0.0) * columns
    typical = own.sum(axis=1, keepdims=True) / max(1, int(columns.sum()))
    return np.asarray(np.maximum(own, FLAT * typical))


# The lines of a table that depend on lost directions


class Relation(NamedTuple):
    """Lines whose coefficients may move together without moving any row's score.

    Parameters
    ----------
    lines : tuple of int
        Numbers of the lines in the table.
    share : float
        Upper bound of the variance of rows along the direction, over that with uncorrelated
        columns; 0 without noise.
    weights : array (lines,)
        The direction, as changes of all lines, for a score of 1.
    directions : int
        Number of independent directions in which these lines move.
    """

    lines: tuple[int, ...]
    share: float
    weights: Array
    directions: int = 1


class LostLines(NamedTuple):
    """Lines of one table that turn into lost directions, and directions that noise hides.

    Parameters
    ----------
    turned : bool array (lines,)
        Lines that turn into a lost direction: these are refused.
    unclear : bool array (lines,)
        Lines of which noise hides whether they turn: these are refused, too.
    relations : tuple of Relation
        The turned lines, grouped by the directions that they have in common.
    hidden : tuple of Relation
        The direction that noise hides, which may be lost or not; empty if there are several, or its
        columns cannot be named.
    directions : array (k, lines)
        Lost directions, as changes of all lines for a score of 1.
    noiseless : bool
        Whether the directions are known without noise.
    """

    turned: BoolArray
    unclear: BoolArray
    relations: tuple[Relation, ...]
    hidden: tuple[Relation, ...]
    directions: Array
    noiseless: bool

    def relation_of_line(self, line: int) -> Relation | None:
        """Return the relation that a line is part of; None for other lines."""
        return next((one for one in self.relations if line in one.lines), None)


def find_lost_lines(found: Directions, M: Array, constants: BoolArray) -> LostLines:
    """Find the lines of a table that depend on lost directions.

    Other lines have the same value wherever the model stands along them.  Directions are known up
    to noise: a line turns if ``c'v`` exceeds `_DOUBT` deviations of that noise, and it is unclear
    if these are more than `UNCLEAR`.

    Parameters
    ----------
    found : Directions
        Of one replicate.
    M : array (lines, d)
        Map from coefficients of columns to lines.
    constants : bool array (lines,)
        The lines that are constants.

    Returns
    -------
    LostLines
    """
    lost, size, values = found.lost[0], found.size[0], found.values[0]
    noiseless = not found.noise[0] > 0.0
    # Lines may have any unit: they are scaled so that their largest entry is 1.
    scale = np.maximum(np.abs(M).max(axis=1), 1e-300)
    M = M / scale[:, None]
    of_lines = M @ found.frame.A[0] @ found.vectors[0]  # each direction's part of each line
    turn = of_lines[:, lost] / size[lost]  # c'v for a score of 1
    # Noise may leave nothing of a column's variance: then only lines with that column are long.
    length = np.sqrt(np.sum(M**2 / np.maximum(found.variances[0], _LEAST_VARIANCE), axis=1))
    # To first order noise in H turns a lost eigenvector towards the others by its entry over the
    # distance of their eigenvalues.
    apart = values[~lost, None] - values[lost]
    of_eigenvectors = 0.5 * found.noise[0] ** 2 / np.maximum(apart**2, 1e-300) / size[lost] ** 2
    variance = of_lines[:, ~lost] ** 2 @ of_eigenvectors
    doubt = _DOUBT * np.sqrt(variance.sum(axis=1))
    turned = (np.sqrt(np.sum(turn**2, axis=1)) > _TURNED * length + doubt) & bool(lost.any())
    # Coefficients for a score of 1.
    unit = np.where(constants, 1.0 / scale, length)
    largest_share = 0.0
    if not noiseless:
        largest_share = float(found.share[0][lost].max(initial=0.0))
    relations = list[Relation]()
    for lines in _group_by_direction(turn / unit[:, None], turned, constants):
        turn_of_lines = turn[list(lines)] / unit[list(lines), None]
        _, sizes, right = np.linalg.svd(turn_of_lines, full_matrices=False)
        # The direction in which these lines move most, and in how many they move.
        weights = scale * (turn @ right[0])
        count = int(np.sum(sizes > _PART * sizes[0]))
        relations.append(Relation(lines, largest_share, weights, count))
    hidden = _hidden_relation(found, of_lines, unit, constants)
    return LostLines(
        turned=turned,
        unclear=(doubt > UNCLEAR * unit) & ~turned,
        relations=tuple(relations),
        hidden=tuple(one._replace(weights=scale * one.weights) for one in hidden),
        directions=np.where(turned, scale * turn.T, 0.0),  # the rest is noise
        noiseless=noiseless,
    )


def depends_on_lost_directions(directions: Array, weights: Array, *, noiseless: bool) -> BoolArray:
    """Return which weighted sums of lines depend on where the model stands along lost directions.

    Parameters
    ----------
    directions : array (k, lines)
        Lost directions.
    weights : array (n, lines)
        Weights of the lines in each of n sums.
    noiseless : bool
        Whether the directions are known without noise: then only rounding is allowed for.

    Returns
    -------
    bool array (n,)
    """
    turn = np.abs(weights @ directions.T)
    # Parts that cancel each other leave rounding, or the noise in the directions.
    parts = np.abs(weights) @ np.abs(directions.T)
    tolerance = UNCLEAR
    if noiseless:
        tolerance = _TURNED
    return np.asarray(~np.all(turn <= tolerance * parts, axis=1))


def _hidden_relation(
    found: Directions, of_lines: Array, unit: Array, constants: BoolArray
) -> tuple[Relation, ...]:
    """Return the direction that noise hides, if it is one and its columns can be named.

    `of_lines`, (lines, d), are the parts of each direction in each line, and `unit`, (lines,), the
    change of a line for a score of 1.
    """
    hidden, values, share = found.hidden[0], found.values[0], found.share[0]
    if hidden.sum() != 1:
        return ()
    k = int(np.flatnonzero(hidden)[0])
    # The eigenvector has an angle of about the noise over the distance to the other eigenvalues.
    apart = values[~(hidden | found.lost[0])] - values[k]
    if not np.all(apart > 0.0) or found.noise[0] * np.linalg.norm(1.0 / apart) > _CLEAR:
        return ()
    weights = of_lines[:, k] / found.size[0, k]
    part = np.abs(weights / unit) * ~constants
    lines = tuple(np.flatnonzero(part > _NAMED * part.max()).tolist())
    if len(lines) > _FEW or (len(lines) > 1 and share[k] > _ALIKE):
        return ()
    return (Relation(lines, float(share[k]), weights),)


def _group_by_direction(
    turn: Array, turned: BoolArray, constants: BoolArray
) -> list[tuple[int, ...]]:
    """Group the lines that turn into the same directions, as tuples of their numbers.

    Lines whose entry in the projection on all directions is not 0 are connected, and a group is a
    connected component.  Constants belong to every group with which they turn, but connect none.

    Parameters
    ----------
    turn : array (lines, k)
        Change of each line along each lost direction, in units of the lines.
    turned : bool array (lines,)
        Lines that turn into a direction.
    constants : bool array (lines,)
        The lines that are constants.
    """
    slopes = np.flatnonzero(turned & ~constants)
    if not len(slopes):
        if not turned.any():
            return []
        return [tuple(np.flatnonzero(turned).tolist())]
    _, sizes, right = np.linalg.svd(turn[slopes], full_matrices=False)
    independent = sizes > _TURNED * sizes[0]
    # Products of these rows are the entries of the projection on all directions.
    basis = turn @ (right[independent] / sizes[independent, None]).T
    near = np.abs(basis[slopes] @ basis[slopes].T) > _PART
    length = np.linalg.norm(basis, axis=1)
    left = set(range(len(slopes)))
    groups = list[tuple[int, ...]]()
    while left:
        # All that can be reached from one line is a block of the projection.
        group, reached = set[int](), {min(left)}
        while reached:
            group |= reached
            neighbours = np.flatnonzero(near[sorted(reached)].any(axis=0))
            reached = {int(k) for k in neighbours} - group
        members = slopes[sorted(group)]
        overlap = np.abs(basis @ basis[members].T).max(axis=1)
        beside = turned & constants & (overlap > _PART * length * length[members].max())
        lines = {*members.tolist(), *np.flatnonzero(beside).tolist()}
        groups.append(tuple(sorted(lines)))
        left -= group
    return groups


def describe_relation(
    relation: Relation, names: Sequence[str], constants: BoolArray, *, sites: bool
) -> str:
    """Describe what the columns of a relation have in common, as a clause.

    Parameters
    ----------
    relation : Relation
    names : sequence of str
        Names of all lines.
    constants : bool array (lines,)
        The lines that are constants.
    sites : bool
        Whether sites have constants of their own.

    Returns
    -------
    str
    """
    own = [k for k in relation.lines if not constants[k]]
    called = join_with_and([names[k] for k in own])
    noisy = relation.share > 0.0
    if not own:
        return "the constants of sites cannot be told apart"
    if len(own) == 1:
        return f"{called} {_describe_flat_column(relation, own[0], sites=sites, noisy=noisy)}"
    if len(own) == 2:
        sign = ""
        # Their weighted sum is 0, so with weights of one sign the columns go against each other.
        if float(np.prod(np.sign(relation.weights[own]))) > 0.0:
            sign = "-"
        known = f"r = {sign}1"
        if noisy:
            known = f"r is {sign}{_round_below_one(relation.share)} or nearer to {sign}1"
        return f"{called} cannot be told apart ({known})"
    known = ""
    if noisy:
        known = ", as far as the privacy noise shows"
    return f"{called} cannot be told apart, as each is a linear combination of the others{known}"


def _describe_flat_column(relation: Relation, line: int, *, sites: bool, noisy: bool) -> str:
    """Return the predicate "does not vary ..." for the only column of a relation, its `line`."""
    where = ""
    # with the constants of several sites: the column is constant within each
    if sites and len(relation.lines) > 2:
        where = " within sites"
    known = ""
    if noisy:
        least = math.sqrt(relation.share) / max(abs(float(relation.weights[line])), 1e-300)
        known = f", as far as the privacy noise shows (standard deviation below {least:.2g})"
    return f"does not vary{where}{known}"


def describe_remedy(relation: Relation, constants: BoolArray) -> str:
    """Return which columns to leave out, and that neither epsilon nor rows help, as a clause.

    `constants`, (lines,), marks the lines that are constants.
    """
    own = sum(not constants[k] for k in relation.lines)
    leave = "leave it out"
    if own > 1:
        leave = "leave one of them out"
        if relation.directions != 1:
            leave = f"leave {relation.directions} of them out"
    if relation.share == 0.0:
        return f"no epsilon and no number of rows would suffice, so {leave}"
    return (
        "unless the privacy noise hides a difference, no epsilon and no number of rows would "
        f"suffice, so {leave}"
    )


def _round_below_one(share: float) -> str:
    """Return 1 less a share as text, rounded down: no correlation below 1 is shown as 1."""
    # one digit more than where the share begins
    digits = min(12, max(2, math.ceil(-math.log10(max(share, 1e-12))) + 1))
    rounded = math.floor((1.0 - share) * 10.0**digits) / 10.0**digits
    return f"{rounded:.{digits}f}"
