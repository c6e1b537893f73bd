"""Weighted sums of a table's lines that are known though some lines are refused.

A line may be refused, and a sum with it still be known: where noise hides a reference, levels can
be compared with each other (:mod:`sottovoce.answers.references`), and where rows lose a direction,
every sum that does not turn into it is the same (:mod:`sottovoce.answers.directions`).
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
"""A weight that is so small beside the largest of a sum is one of rounding."""


class KnownSums(NamedTuple):
    """Estimates with their covariance, from which weighted sums of lines follow.

    Parameters
    ----------
    estimate : array (lines,)
        NaN for what is refused.
    covariance : array (lines, lines)
        NaN likewise.
    pivots : array (lines, lines), optional
        The map from lines to what `estimate` is of; None if that are the lines.
    hidden : HiddenGroups, optional
        Groups that have one end.
    directions : array (k, lines), optional
        Lost ones: the estimate is that of one of the models that fit alike, and says nothing of
        sums that turn into them.
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
        """Compute intervals of weighted sums of lines.

        They reach farther to one side where groups with `few` of the rarer outcome take part. Where
        a group without the rarer outcome takes part one end is infinite: a sum is the group's mean
        margin, which is bounded by its count, and a rest on which the group's own direction has no
        effect. Each of the two has half of `alpha` for its error, which groups of one sum share, so
        the sum has `alpha` at most (Bonferroni).

        Parameters
        ----------
        weights : array (n, lines)
            One sum a row.
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
        """Map weights to those of `estimate`, and find the sums with something refused in them."""
        unknown = np.isnan(self.estimate)
        if self.pivots is None:
            return weights, np.any(unknown & (weights != 0.0), axis=1)
        mapped = np.asarray(weights @ np.linalg.inv(self.pivots))
        largest = np.abs(mapped).max(axis=1, keepdims=True, initial=1.0)
        return mapped, np.any(unknown & (np.abs(mapped) > _NEXT_TO_NONE * largest), axis=1)

    def in_other_units(self, factor: float, shift: Array) -> KnownSums:
        """Return the same for lines times `factor`, plus `shift` (lines,)."""
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
