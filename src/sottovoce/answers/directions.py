"""Lost directions: combinations of columns that are 0 in every row, so that nothing is known along
them.

A column of zeros, one that repeats another, one that is constant at every site beside the sites'
constants, or one that is the sum of others: along such a direction v, with ``v'x = 0`` for every
row x, coefficients may move without moving any row's score.  No epsilon and no number of rows would
tell them.  But only lines c of the table with ``c'v != 0`` are lost; every other one is the same
wherever the model stands along v.  So the last step is taken in the space without these directions,
and lines that do not turn into them are printed as ever.

In a frame A a lost direction is an eigenvector q of a matrix H of bounded sums (a Hessian, or
second moments) with the eigenvalue 0, and v is ``A q``.  With noise of deviation s on an entry of H
an eigenvalue is that of a lost direction if

- it is 0 within the noise, and
- even with two more deviations of it the direction varies next to not at all beside its columns: by
  a share of at most `LOST` of the variance that they would have together if they were unrelated.

An eigenvalue that is 0 within the noise and fails the second rule is *hidden*: more epsilon may
show it.  That q has an error does no harm: if v is lost, the minimisers lie on a straight line
along v, and one of them is in any space across it.

A *line* of the table is a printed coefficient, which is a weighted sum ``c'w`` of the coefficients
w of columns.  It *turns into* a direction v if ``c'v`` is not 0, and by how much is told *for a
score of 1*: with v scaled so that the score of a row would have the variance 1 along it if its
columns were unrelated.

:func:`column_variances` of second moments say what columns would have by themselves.
:func:`classify_directions` finds the eigenvectors, as :class:`Directions`, by which steps avoid
those that are lost.  :func:`find_lost_lines` tells which lines turn into them, as
:class:`LostLines`, and ``describe_*`` put each :class:`Relation` of these in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray
from .frames import Frame

LOST = 5e-3
"""The largest share of its columns' variance that a lost direction may have."""
FLAT = 1e-3
"""The least variance that a column counts with, over the mean of all: noise may hide a column that
is nearly flat.

A column that varies less is lost only if its variance is below `LOST` of that: noise must show it
to be that small.
"""
UNCLEAR = 0.02
"""A line is refused if noise hides that it turns by so much, for a score of 1, when a direction
turns by as much.
"""
SEEN = 2.0
"""Noise deviations by which an eigenvalue stands out, beside the norm of a matrix of noise."""
_EXACT = 1e-9
"""Rounding in an eigenvalue of 0, over the mean eigenvalue."""
_LEAST_VARIANCE = 1e-300
"""Least variance of a column, of which noise may leave nothing."""
_TURNED = 1e-6
"""Part of a line's length by which rounding may turn it into a direction."""
_DOUBT = 3.0
"""Deviations of an estimated direction, within which a line does not turn into it."""
_PART = 0.05
"""Entry of the projection on lost directions, above which two lines belong together."""
_CLEAR = 0.4
"""Angle of the noise in a hidden direction, above which its columns are not named."""
_ALIKE = 0.1
"""Largest share of a hidden direction of several columns that are named."""
_NAMED = 0.3
"""Part of the largest weight in a hidden direction, from which on a column is named."""
_FEW = 3
"""Most names of a hidden direction: where noise hides more, it hides the whole table."""


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
        Upper bound of the share of its columns' variance that a direction has.
    size : array (R, d)
        Root of the variance of a row's score along ``A q`` if its columns were unrelated.
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
        """Projectors on a space across the lost directions, in the frame, (R, d, d).

        Any space across them has a minimiser.  That orthogonal to ``A q`` is stretched least by the
        symmetric A: noise in gradients, which A turns into the frame, would be large in one that is
        orthogonal to q, as q has an error.
        """
        lost_in_columns = self.frame.A @ self.vectors * self.lost[:, None, :]
        _, vectors = np.linalg.eigh(lost_in_columns @ lost_in_columns.transpose(0, 2, 1))
        d = lost_in_columns.shape[-1]
        # eigh sorts eigenvalues in ascending order: those of lost directions are the last.
        across = np.arange(d) < d - self.lost.sum(axis=1)[:, None]
        kept = (vectors * across[:, None, :]) @ vectors.transpose(0, 2, 1)
        return np.where(self.any_lost[:, None, None], kept, np.eye(d))

    def split_along_lost(self, shift: Array) -> tuple[Array, Array]:
        """Split a shift of coefficients across and along lost directions, both in the frame.

        What is taken out goes along q, so that scores stay: a part orthogonal to the space is not
        quite along q.
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
        """Remove from a step by :meth:`restrict_hessian` H what lies outside its space, (R, d)."""
        if not self.lost.any():
            return step
        inside = self.frame.A @ self.projector_across_lost @ self.frame.back @ step[:, :, None]
        return np.where(self.any_lost[:, None], inside[:, :, 0], step)

    def remove_lost_part(self, shift: Array) -> Array:
        """Remove from a shift its part along lost directions, which moves no score, (R, d)."""
        if not self.lost.any():
            return shift
        across_in_frame, _ = self.split_along_lost(shift)
        across = np.einsum("rij,rj->ri", self.frame.A, across_in_frame)
        return np.where(self.any_lost[:, None], across, shift)

    def lost_part_variance(self, shift: Array) -> Array:
        """Variance on a gradient's entry from noise in H along the lost part of a shift, (R,)."""
        if not self.lost.any():
            return np.zeros(len(shift))
        _, along_lost = self.split_along_lost(shift)
        stretched = self.projector_across_lost @ self.frame.A
        # Noise in a gradient's entry, turned into the space, has this variance on average.
        mean = np.einsum("rij,rij->r", stretched, stretched) / shift.shape[-1]
        # An entry of H beside the diagonal has half of the noise variance of one on it.
        return np.asarray(
            0.5 * self.noise**2 * np.sum(along_lost**2, axis=1) / mean * self.any_lost
        )

    def restrict_hessian(self, H: Array) -> Array:
        """Restrict H to the space without lost directions, (R, d, d).

        These get its mean eigenvalue there.
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
        Of each column, at least; see :func:`column_variances`.
    moments : array (R,)
        The mean second moment of rows in the frame, in a direction that is seen: H is about in
        proportion.

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
    """Classify directions before any Hessian is known, by what second moments hide of the frame.

    What they hide was raised to the norm of their noise, ``sqrt(2 d)`` deviations: that is 1 in
    `unseen`.

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
    """Compute variances of columns from second moments, with tiny ones raised, (R, d).

    Parameters
    ----------
    S : array (R, d, d)
        Second moments.
    constant : array (d,)
        1 in the columns that hold constants, of which every row has one: they have no variance of
        their own.
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
    share : float
        Upper bound of the share of their columns' variance that they do not have in common; 0
        without noise.
    weights : array (lines,)
        Weights of all lines, for a score of 1 if their columns were unrelated.
    directions : int
        Number of directions in which these lines move.
    """

    lines: tuple[int, ...]
    share: float
    weights: Array
    directions: int = 1


class LostLines(NamedTuple):
    """Lines of one table that turn into lost directions, and those that hide the whole table.

    Parameters
    ----------
    turned : bool array (lines,)
    unclear : bool array (lines,)
        Lines of which noise hides whether they turn.
    relations : tuple of Relation
        Of the lines that turn.
    hidden : tuple of Relation
        Relations that may be lost, or not; empty if noise hides more than can be named.
    directions : array (k, lines)
        Lost directions, as weights of all lines for a score of 1.
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

    A line that does not is the same wherever the model stands along them.  A direction is known but
    for its noise: a line is lost if it turns by more than that, and it is unclear if that is more
    than `UNCLEAR`.

    Parameters
    ----------
    found : Directions
        Of one replicate.
    M : array (lines, d)
        From coefficients of columns to those of the lines.
    constants : bool array (lines,)
        The lines that are constants.

    Returns
    -------
    LostLines
    """
    lost, size, values = found.lost[0], found.size[0], found.values[0]
    noiseless = not found.noise[0] > 0.0
    # Units may be as large or small as one likes: lines are scaled to entries of 1.
    scale = np.maximum(np.abs(M).max(axis=1), 1e-300)
    M = M / scale[:, None]
    of_lines = M @ found.frame.A[0] @ found.vectors[0]  # each direction's part of each line
    turn = of_lines[:, lost] / size[lost]  # for a score of 1
    # Noise may leave nothing of a column's variance; lines without that column have their own
    # length.
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
    """Return which weighted sums of lines depend on lost directions.

    The others are the same wherever the model stands along these.

    Parameters
    ----------
    directions : array (k, lines)
        Lost directions.
    weights : array (n, lines)
        One sum a row.
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
    """Return the one direction that noise hides, if it can be named."""
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
    """Group lines that turn into the same directions.

    The projection on all directions has blocks of such lines.

    Constants belong to all groups with which they turn; they are no reason for two groups to be
    one.
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
    called = _join_with_and([names[k] for k in own])
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
    """Describe a column that does not vary, as the end of a clause."""
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
    """Describe how to resolve a relation, as a clause."""
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
    """Return 1 less a share as text, rounded down: a correlation is not told as 1."""
    # one digit more than where the share begins
    digits = min(12, max(2, math.ceil(-math.log10(max(share, 1e-12))) + 1))
    rounded = math.floor((1.0 - share) * 10.0**digits) / 10.0**digits
    return f"{rounded:.{digits}f}"


def _join_with_and(names: Sequence[str]) -> str:
    """Join names with commas and a last "and"."""
    parts = (", ".join(names[:-1]), *names[-1:])
    return " and ".join(part for part in parts if part)
