"""One table of coefficients for all sites where every site releases its own noisy answers
(docs/privacy/answers.md, "Separate sites").

Under local trust (no secure sums) each site's answer is public, with all of the noise that protects
the site's rows.  Combining the answers is post-processing, which costs no privacy.  It is the same
for :mod:`sottovoce.answers.inference` and :mod:`sottovoce.answers.least_squares`, whose recipes are
:class:`SeparateSites`:

- *Common steps* are taken as if one site held all rows.  Answers are averaged by the precision of
  their noise, not by rows, so that noisy answers of small sites do not dominate.
- If every site has a constant of its own, a site's answer is reduced to k slopes and one constant:
  its rows are zero in the constants of other sites, so the entries for those are noise alone.
- At the end each site takes a last step from the common point, by its own gradients, and by its own
  Hessian as far as that differs from that of all sites by more than noise.  These estimates are
  combined by inverse covariance, as in a meta-analysis.

Arrays have R replicates in front; N is the number of sites.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from ..algorithms.items import Answer, Kept, Script, SiteAnswers
from ..algorithms.recipe import Recipe
from ..problem.facts import Among, Facts
from ..queries import Bounded, Gradient, HuberGradient
from ..queries.bounded import Gram
from ..queries.moments import flatten_symmetric, unflatten_symmetric
from ..util.typing import Array, BoolArray

# Directions of a covariance with an eigenvalue below this part of the largest have no precision.
_SINGULAR = 1e-12
_PADDED = 1e8
"""Diagonal entry of a Hessian for a column that is 0 in the frame, over its largest eigenvalue.

Products with the frame multiply that entry's inverse by 0.  Only the trace of the inverse, in the
second-order share of noise, contains it, and is changed by at most 1e-8 of itself.  A much larger
entry would spoil the Hessian's own eigenvalues, which have an error of 1e-16 of the largest.
"""


class Columns(NamedTuple):
    """Columns of the rows of N sites: k slopes, then one constant, or one for each site.

    Sites are asked about points of all d columns; combined answers have ``k + 1`` columns, of which
    the last one is the site's own constant.
    """

    constant: Array  # 1 in constants, (d,)
    sites: int  # N

    @property
    def slopes(self) -> int:
        """The number k of slopes."""
        return int(np.sum(self.constant == 0.0))

    @property
    def apart(self) -> bool:
        """Whether every site has a constant of its own."""
        return len(self.constant) > self.slopes + 1

    @property
    def one_constant(self) -> Array:
        """Indicator of the constant among the k + 1 columns of a site, (k + 1,)."""
        return np.eye(self.slopes + 1)[-1]

    def columns_of_site(self, i: int) -> list[int]:
        """Return the columns of site i."""
        constant = self.slopes
        if self.apart:
            constant += i
        return [*range(self.slopes), constant]

    def embedding(self, i: int) -> Array:
        """Return the map from the columns of site i to all columns, (d, k + 1)."""
        return np.eye(len(self.constant))[:, self.columns_of_site(i)]

    def extend_to_all_columns(self, one: Array) -> Array:
        """Repeat the last row of a matrix (..., k + 1, m) for every constant: (..., d, m)."""
        slopes, constant = one[..., : self.slopes, :], one[..., -1:, :]
        return np.concatenate([slopes] + [constant] * self._constants, axis=-2)

    def extend_covariance(self, one: Array) -> Array:
        """Repeat the last row and column of a covariance for every constant: (..., d, d)."""
        return self.extend_to_all_columns(np.swapaxes(self.extend_to_all_columns(one), -1, -2))

    def point_in_all_columns(self, one: Array, own: Array) -> Array:
        """Return a common point in all columns, (R, d).

        Parameters
        ----------
        one : array (R, k + 1)
            The common point.
        own : array (R, N)
            The sites' constants, less the common one.
        """
        constants = one[:, -1:]
        if self.apart:
            constants = constants + own
        return np.hstack([one[:, :-1], constants])

    def point_of_each_site(self, one: Array, own: Array) -> Array:
        """Return a common point in each site's own columns, (R, N, k + 1); see
        :meth:`point_in_all_columns`.
        """
        every = np.repeat(one[:, None, :], self.sites, axis=1)
        every[:, :, -1] += own
        return every

    def asked(self, what: Bounded, own: Array) -> Bounded:
        """Return the query to send to the sites, in all d columns.

        Parameters
        ----------
        what : Bounded
            The query of the common steps, in k + 1 columns.
        own : array (R, N)
            The sites' constants, less the common one.
        """
        if not self.apart:
            return what
        changes: dict[str, Any] = {"at": self.point_in_all_columns(what.at, own)}
        if getattr(what, "constant", None) is not None:
            changes["constant"] = self.constant
        frame = getattr(what, "frame", None)
        if frame is not None:
            # Every constant gets the frame's column of the one constant, so that a row is whitened
            # to the same k + 1 numbers whichever constant is its own.  Zeros fill them up to d.
            wide = self.extend_to_all_columns(np.swapaxes(frame, -1, -2))
            changes["frame"] = self._padded(np.swapaxes(wide, -1, -2))
        return replace(what, **changes)

    def own_part(self, what: Bounded, answers: Array) -> Array:
        """Reduce the sites' answers to what is about their own k + 1 columns; the rest is noise.

        Parameters
        ----------
        what : Bounded
            The query that was sent (:meth:`asked`), which tells how the entries are laid out: as a
            vector of all d columns, as a symmetric matrix of them, or not by columns.
        answers : array (..., N, entries)

        Returns
        -------
        array (..., N, fewer entries)
            The vectors and matrices of k + 1 columns; an answer that is not laid out by columns,
            such as counts, is returned as it is.
        """
        if not self.apart:
            return answers
        # The query is about whitened rows, d numbers of which :meth:`asked` makes the first k + 1
        # depend on the row and the others zero.
        framed = getattr(what, "frame", None) is not None
        if isinstance(what, HuberGradient) and framed:
            return answers[..., : self.slopes + 1]
        if isinstance(what, (Gradient, HuberGradient)):
            return np.stack(
                [answers[..., i, self.columns_of_site(i)] for i in range(self.sites)], axis=-2
            )
        if not isinstance(what, Gram):
            return answers
        matrices = unflatten_symmetric(answers, len(self.constant))
        if framed:
            return flatten_symmetric(matrices[..., : self.slopes + 1, : self.slopes + 1])
        parts = [
            matrices[..., i, :, :][..., self.columns_of_site(i), :][..., self.columns_of_site(i)]
            for i in range(self.sites)
        ]
        return flatten_symmetric(np.stack(parts, axis=-3))

    def _padded(self, rows: Array) -> Array:
        """Return a matrix with rows of zeros below, so that it is square."""
        missing = rows.shape[-1] - rows.shape[-2]
        return np.concatenate(
            [rows, np.zeros((*rows.shape[:-2], missing, rows.shape[-1]))], axis=-2
        )

    @property
    def _constants(self) -> int:
        """Number of constants: 1, or one for each site."""
        return len(self.constant) - self.slopes


class Heard(NamedTuple):
    """A query of the common steps with the answers of all sites, in k + 1 columns."""

    what: Bounded
    own: Array  # the sites' constants at which it was asked, less the common one  (R, N)
    values: Array  # (R, N, entries)
    spreads: Array  # standard deviations of the noise on an entry  (N,)

    def of(self, i: int) -> tuple[Array, float]:
        """Return site i's answer, (R, entries), and the standard deviation of its noise."""
        return self.values[:, i], float(self.spreads[i])


class SiteStep(NamedTuple):
    """A site's estimate by a step from the common point, in its k + 1 columns."""

    estimate: Array  # (R, k + 1)
    # Covariance if the model is right: its inverse is the weight of the estimate.
    expected: Array  # (R, k + 1, k + 1)
    noise: Array  # covariance by privacy noise  (R, k + 1, k + 1)
    sampling: Array  # covariance by sampling, whether the model is right or not  (R, k + 1, k + 1)


class Combined(NamedTuple):
    """Estimates of all columns, and both parts of their covariance."""

    estimate: Array  # (R, d)
    noise: Array  # (R, d, d)
    sampling: Array  # (R, d, d)


def combine_by_precision(columns: Columns, steps: Sequence[SiteStep]) -> Combined:
    """Combine the sites' estimates with the inverses of their expected covariances as weights.

    A site's estimate contains nothing about the constants of other sites.  The covariance of the
    result is right for any weights.
    """
    weights = [precision(step.expected) for step in steps]
    places = [columns.embedding(i) for i in range(len(steps))]
    total = sum(E @ W @ E.T for E, W in zip(places, weights, strict=True))
    inverse = precision(np.asarray(total))
    # K_i = G E_i V_i^-1: the covariance below is that of these weights, whatever they are.
    gains = [inverse @ E @ W for E, W in zip(places, weights, strict=True)]
    estimate = sum(
        np.einsum("rij,rj->ri", K, step.estimate) for K, step in zip(gains, steps, strict=True)
    )
    noise = sum(K @ step.noise @ K.transpose(0, 2, 1) for K, step in zip(gains, steps, strict=True))
    sampling = sum(
        K @ step.sampling @ K.transpose(0, 2, 1) for K, step in zip(gains, steps, strict=True)
    )
    return Combined(np.asarray(estimate), np.asarray(noise), np.asarray(sampling))


def precision(covariance: Array) -> Array:
    """Return pseudoinverses of covariances, (R, d, d): zeros in columns that are not kept."""
    return np.asarray(np.linalg.pinv(covariance, rcond=_SINGULAR, hermitian=True))


def weights_by_noise(spreads: Array, rows: Array) -> Array:
    """Return the sites' weights with the least noise in the mean, (N,), for `spreads` (N,).

    Without noise they are in proportion to `rows`, (N,).
    """
    if np.any(spreads == 0.0):
        return np.asarray(rows / rows.sum())
    # Weights by rows would give the mean the noise of equally large sites, even if one site is far
    # larger and has far less noise.
    precisions = spreads**-2.0
    return np.asarray(precisions / precisions.sum())


def shrink_to_mean(z: Array, variance: Array) -> Array:
    """Return the sites' deviations from their mean, (R, N), shrunk by their share of noise.

    `variance` is that of the noise in each entry of `z`, both (R, N).  The variance between sites
    is estimated as the mean squared deviation less that of the noise.
    """
    weight = 1.0 / np.maximum(variance, 1e-300)
    apart = z - np.sum(weight * z, axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    between = np.maximum(np.mean(apart**2 - variance, axis=1, keepdims=True), 0.0)
    total = between + variance
    return np.asarray(apart * np.divide(between, total, out=np.ones_like(total), where=total > 0.0))


class SeparateSites(Recipe):
    """A recipe written for one site with all rows, that can also be run on the answers of several.

    `constant`, (d,), is 1 in the columns that hold constants.
    """

    constant: Array

    def columns(self, facts: Facts) -> Columns:
        """Return the columns of the sites' rows."""
        return Columns(self.constant, facts.n_nodes)

    def separate(self, facts: Facts) -> bool:
        """Return whether every site's own answer is kept, and not only the mean over all rows."""
        several = facts.n_nodes > 1 and not facts.opens_only_sums and self.noise is not None
        return several and int(self.constant.sum()) in (1, facts.n_nodes)

    def answers_of_state(self, facts: Facts) -> Kept:
        """Return how many numbers of each answer a run keeps: those of every site, if separate."""
        if not self.separate(facts):
            return super().answers_of_state(facts)
        columns = self.columns(facts)
        of_one_constant = self.releases_with_noise.entries_of_answers(
            replace(facts, d=columns.slopes + 1)
        )
        return Kept(tuple(facts.n_nodes * width for width in of_one_constant), columns.own_part)

    def begin_script(self, facts: Facts, replicates: int) -> Script:
        """Return the script on the sites' own answers if these are kept, else on their mean."""
        if self.separate(facts):
            return self._jointly(facts, replicates)
        return self.script(facts, replicates)

    @abstractmethod
    def with_one_constant(self, columns: Columns) -> Self:
        """Return the recipe of the common steps, for rows of k + 1 columns."""

    @abstractmethod
    def own_constants(self, heard: Sequence[Heard], then: Array, facts: Facts) -> Array:
        """Estimate the sites' constants, less the common one, at which the next item is asked.

        Parameters
        ----------
        heard : sequence of Heard
            The answers so far.
        then : array (R, k + 1)
            The common point at which the next item is asked.
        facts : Facts

        Returns
        -------
        array (R, N)
        """

    @abstractmethod
    def joined(self, found: Any, heard: Sequence[Heard], facts: Facts) -> Any:
        """Return the outcome in all columns, from that of the common steps.

        Parameters
        ----------
        found : object
            Outcome of the script for one constant.
        heard : sequence of Heard
            All answers.
        facts : Facts

        Returns
        -------
        object
            Of the same type as `found`.
        """

    def _jointly(self, facts: Facts, replicates: int) -> Script:
        """Run the script of the common steps on averages of the sites' answers.

        Each site is asked at its own constant.
        """
        columns, rows = self.columns(facts), facts.rows_per_node[:, 0]
        own, heard = np.zeros((replicates, columns.sites)), list[Heard]()
        script = self.with_one_constant(columns).script(_as_one(facts, columns), replicates)
        what = next(script)
        while True:
            answer = yield columns.asked(what, own)
            assert answer.sites is not None
            heard.append(Heard(what, own, *answer.sites))
            try:
                what = script.send(_together(answer.sites, rows))
            except StopIteration as end:
                return self.joined(end.value, heard, facts)
            if columns.apart:
                own = self.own_constants(heard, what.at, facts)


def _as_one(facts: Facts, columns: Columns) -> Facts:
    """Return the facts of one site whose noise is that of the averaged answers.

    A site's noise falls as one over its rows, so the one site has the root of their summed squares.
    """
    rows = math.sqrt(float(np.sum(facts.rows_per_node**2)))
    return replace(
        facts,
        n=np.array([[rows]]),
        rows=rows,
        d=columns.slopes + 1,
        n_nodes=1,
        sizes=None,
        max_degree=None,
    )


def _together(sites: SiteAnswers, rows: Array) -> Answer:
    """Average the sites' answers with the weights that give the least noise.

    The answer has the number of rows of equal weight whose mean has its sampling error.
    """
    weights = weights_by_noise(sites.spreads, rows)
    value = np.einsum("i,rie->re", weights, sites.values)
    spread = math.sqrt(float(np.sum((weights * sites.spreads) ** 2)))
    return Answer(value, Among(1.0 / float(np.sum(weights**2 / rows)), 1), spread)


def of_kind(heard: Sequence[Heard], kind: type[Bounded] | tuple[type[Bounded], ...]) -> list[Heard]:
    """Select the answers to queries of a kind, in the order in which they were asked."""
    return [one for one in heard if isinstance(one.what, kind)]


class WideFrame(NamedTuple):
    """A frame and a Hessian extended to all columns, with the same inverse."""

    frame: Array  # (R, d, d)
    hessian: Array  # (R, d, d)
    kept: BoolArray  # (R, d)


def extend_to_site_constants(
    columns: Columns, frame: Array, hessian: Array, kept: BoolArray
) -> WideFrame:
    """Extend a frame and a Hessian for rows of one constant to all columns.

    Each site's constant has the row of the common one in the frame.

    Parameters
    ----------
    columns : Columns
    frame : array (R, k + 1, k + 1)
    hessian : array (R, k + 1, k + 1)
        In the frame.
    kept : bool array (R, k + 1)
        Columns that were not merged.

    Returns
    -------
    WideFrame
    """
    added = len(columns.constant) - columns.slopes - 1
    wide_frame = columns.extend_to_all_columns(frame)
    R, d_one_constant = hessian.shape[:2]
    d = d_one_constant + added
    wide_hessian = np.zeros((R, d, d))
    wide_hessian[:, :d_one_constant, :d_one_constant] = hessian
    largest = np.maximum(np.abs(np.linalg.eigvalsh(hessian)).max(axis=1), 1e-300)
    diagonal = np.arange(d_one_constant, d)
    wide_hessian[:, diagonal, diagonal] = _PADDED * largest[:, None]
    return WideFrame(
        np.concatenate([wide_frame, np.zeros((R, d, added))], axis=2),
        wide_hessian,
        np.hstack([kept, np.ones((R, added), dtype=bool)]),
    )
