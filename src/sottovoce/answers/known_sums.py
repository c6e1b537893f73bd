"""Weighted sums of a table's lines (contrasts) that are known although some lines are refused.

Where noise hides a reference level, the other levels can still be compared with each other
(:mod:`sottovoce.answers.references`).  Where a combination of columns is 0 in every row, every sum
that does not depend on it is determined (:mod:`sottovoce.answers.directions`).  A table has one
:class:`KnownSums` for each of the two reasons (:mod:`sottovoce.answers.coefficients`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..util.typing import Any, Array, BoolArray
from .directions import depends_on_lost_directions
from .few_outcomes import FewOutcomes, ends_of_intervals
from .references import HiddenGroups

_NEXT_TO_NONE = 1e-9
"""A weight below this part of the largest weight of a sum is a rounding error."""


class KnownSums(NamedTuple):
    """Estimates with their covariance, from which weighted sums of lines follow.

    Parameters
    ----------
    estimate : array (lines,)
        Estimates of the pivots, or of the lines without `pivots`; NaN for refused ones.
    covariance : array (lines, lines)
        Their covariance; NaN likewise.
    pivots : array (lines, lines), optional
        Map from the lines to the pivots (:func:`sottovoce.answers.references.pivots`); None if the
        estimates are those of the lines.
    hidden : HiddenGroups, optional
        Groups of rows without the rarer outcome, whose log-odds have one-sided intervals.
    directions : array (k, lines), optional
        Lost directions: sums that turn into them are unknown, as the estimate is only one of the
        models that fit equally well.
    noiseless : bool
        Whether the lost directions are known without noise.
    """

    estimate: Array
    covariance: Array
    pivots: Array | None = None
    hidden: HiddenGroups | None = None
    directions: Array | None = None
    noiseless: bool = True

    def intervals_of_sums(
        self, weights: Array, alpha: float, few: FewOutcomes | None = None
    ) -> Array:
        """Compute confidence intervals of weighted sums of lines.

        They reach farther to one side where groups with `few` of the rarer outcome take part.  One
        end is infinite where a group without the rarer outcome takes part.  Such a sum is split
        into the group's mean margin, which the group's count bounds on one side, and a rest that
        does not depend on the group's own log-odds.  Each of the two parts may fail with half of
        `alpha`, so the sum fails with at most `alpha` (Bonferroni).

        Parameters
        ----------
        weights : array (n, lines)
            Weights of the lines in each of n sums.
        alpha : float
            One minus the confidence level, in (0, 1).
        few : FewOutcomes, optional
            Groups with few of the rarer outcome.

        Returns
        -------
        array (n, 2)
            NaN for sums that are not known.
        """
        rest_of_lines, parts = weights, np.zeros((len(weights), 0))
        lost = np.zeros(len(weights), dtype=bool)
        if self.hidden is not None and len(self.hidden.rows):
            parts, lost = self.hidden.shares_of(weights)
            rest_of_lines = weights - parts @ self.hidden.means
        rest, missing = self._map_to_estimates(rest_of_lines)
        lost = lost | missing
        if self.directions is not None:
            lost = lost | depends_on_lost_directions(
                self.directions, weights, noiseless=self.noiseless
            )
        unknown = np.isnan(self.estimate)
        known_rest = np.where(unknown, 0.0, rest)
        covariance = np.where(unknown[:, None] | unknown, 0.0, self.covariance)
        middle = known_rest @ np.where(unknown, 0.0, self.estimate)
        variance = np.einsum("nj,jk,nk->n", known_rest, covariance, known_rest)
        if self.hidden is not None:
            variance = variance + parts**2 @ self.hidden.mean_variance
        ends = np.stack(ends_of_intervals(middle, variance, rest_of_lines, alpha, few), axis=1)
        if self.hidden is not None:
            self.hidden.widen(ends, parts, alpha)
            lost = lost | ~np.any(np.isfinite(ends), axis=1)
        return np.where(lost[:, None], np.nan, ends)

    def _map_to_estimates(self, weights: Array) -> tuple[Array, BoolArray]:
        """Return the weights, (n, lines), of the estimates in each sum, and which sums need a
        refused estimate, (n,).
        """
        unknown = np.isnan(self.estimate)
        if self.pivots is None:
            return weights, np.any(unknown & (weights != 0.0), axis=1)
        mapped = np.asarray(weights @ np.linalg.inv(self.pivots))
        largest = np.abs(mapped).max(axis=1, keepdims=True, initial=1.0)
        return mapped, np.any(unknown & (np.abs(mapped) > _NEXT_TO_NONE * largest), axis=1)

    def in_other_units(self, factor: float, shift: Array) -> KnownSums:
        """Return the sums of lines that are multiplied by `factor`, then shifted by `shift`.

        `shift`, (lines,), is not 0 for constants of least squares only.
        """
        if self.pivots is not None:
            shift = self.pivots @ shift
        return self._replace(
            estimate=factor * self.estimate + shift, covariance=factor**2 * self.covariance
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain data, with None for NaN."""
        told: dict[str, Any] = {
            "estimate": _with_none_for_nan(self.estimate),
            "covariance": [_with_none_for_nan(row) for row in self.covariance],
        }
        if self.pivots is not None:
            told["pivots"] = self.pivots.tolist()
        if self.hidden is not None:
            told["hidden"] = {name: array.tolist() for name, array in self.hidden._asdict().items()}
        if self.directions is not None:
            told |= {"directions": self.directions.tolist(), "noiseless": self.noiseless}
        return told

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> KnownSums:
        """Construct from plain data of :meth:`to_plain`."""
        arrays = {
            name: np.array(plain[name], dtype=float)
            for name in ("estimate", "covariance", "pivots", "directions")
            if name in plain
        }
        hidden = None
        if "hidden" in plain:
            hidden = HiddenGroups.from_plain(plain["hidden"], len(arrays["estimate"]))
        return cls(**arrays, hidden=hidden, noiseless=bool(plain.get("noiseless", True)))


def _with_none_for_nan(values: Array) -> list[float | None]:
    """Return numbers as plain data, with None for NaN, which JSON has not."""
    return [None if np.isnan(x) else float(x) for x in values]
