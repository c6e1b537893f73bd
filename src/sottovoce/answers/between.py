"""Random effects of sites: how they differ, from a constant for each, at no cost
(docs/reference/answers.md).

Sites i = 1 ... K have effects t_i that are independent draws of N(m, tau^2), and their estimates
are N(t, V) given these, with the covariance V that the table knows, noise and what all sites have
in common included.  Then differences of sites, with eigenvalues l of their part of V and
coordinates z, make

    Q(tau^2) = sum z^2 / (l + tau^2),

which at the true tau is chi squared with K - 1 degrees of freedom, and falls in tau^2 (Viechtbauer
2007, "Confidence intervals for the amount of heterogeneity in meta-analysis").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..util import normal
from ..util.later import Later
from ..util.typing import Array

optimize, special = Later("scipy.optimize"), Later("scipy.special")

FEWEST = 3
"""Sites below which nothing is told of how they differ."""
_HALVINGS = 60
_RATIOS = np.append(0.0, np.geomspace(1e-3, 30.0, 60))
"""Errors over the largest spread, at which half-widths are solved."""
# chances of Q, for the spread that one more site is drawn with
_GRID = (np.arange(400) + 0.5) / 400.0


class Between(NamedTuple):
    """Random effects of sites: mean and spread of a normal population, and one more draw.

    Ends of intervals are pairs.  `sites` are best predictions, drawn towards the mean, with their
    standard errors. `apart` leaves out what is unsure for all sites alike, such as a constant far
    from where rows are.
    """

    mean: float
    mean_ends: tuple[float, float]
    sd: float
    sd_ends: tuple[float, float]
    p: float  # of no difference at all
    apart: float  # from the average of these sites, at most, of one more
    sites: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SiteConstants:
    """The sites' own constants that a table prints, with what it knows of their errors.

    Attributes
    ----------
    effects : array (K,)
    covariance : array (K, K)
        Of the estimates, noise and what all sites have in common included.
    """

    effects: Array
    covariance: Array

    @property
    def count(self) -> int:
        """Number K of sites."""
        return len(self.effects)

    @property
    def too_few(self) -> str | None:
        """Reason why rows of other sites have no interval; None if there are enough sites."""
        if self.count >= FEWEST:
            return None
        return (
            "rows of no known site have no interval: how sites differ is not known from "
            f"{self.count} printed "
            f"constants, and {FEWEST} are the fewest that tell it"
        )

    def random_effects(self, alpha: float) -> Between:
        """Estimate random effects (:func:`between`); InvalidInput for too few sites."""
        self._check_count()
        return between(self.effects, self.covariance, alpha)

    def spreads(self) -> Array:
        """Return likely standard deviations between sites, equally likely by Q, (400,).

        InvalidInput as for :meth:`random_effects`.
        """
        self._check_count()
        curves = _differences(self.effects, self.covariance)
        return np.sqrt(_falls_to(special.chdtri(self.count - 1, _GRID), *curves))

    def _check_count(self) -> None:
        if self.count < FEWEST:
            rule = f"need constants of their own, of which {FEWEST} at least are printed"
            remedy = "leave out site_constants=no; of fewer sites see the table itself"
            raise InvalidInput("sites", self.count, rule, remedy)


def between(effects: Array, V: Array, alpha: float) -> Between:
    """Estimate random effects of K sites from their estimates (Paule and Mandel).

    The spread ``sd`` solves ``Q = K - 1``, and its interval holds all spreads at which Q is no
    surprise: if none is, both ends are 0.  The mean's interval is Student's with K - 1 degrees of
    freedom.  One more site is drawn with a spread that is as uncertain as Q says; without errors in
    the estimates that is Student's law, too.

    Parameters
    ----------
    effects : array (K,)
        Estimates; K is 3 or more.
    V : array (K, K)
        Their covariance.
    alpha : float
        One minus the confidence level, in (0, 1).

    Returns
    -------
    Between
    """
    K, one = len(effects), np.ones(len(effects))
    values, z = _differences(effects, V)
    surprising = special.chdtri(K - 1, np.array([alpha / 2.0, 1.0 - alpha / 2.0]))
    # Q(tau^2) at its quantiles for the interval, and at K - 1 for the estimate.
    low, high, square = _falls_to([*surprising, K - 1.0], values, z)
    W = np.linalg.inv(V + square * np.eye(K))
    variance = 1.0 / float(one @ W @ one)
    mean = variance * float(one @ W @ effects)
    half = float(special.stdtrit(K - 1, 1.0 - alpha / 2.0)) * variance**0.5
    # Best linear predictions of the t_i given the estimates.
    drawn = mean + square * (W @ (effects - mean))
    # of t_i given the estimates, and what the mean's own error adds
    left = square * (1.0 - square * np.diag(W)) + (1.0 - square * (W @ one)) ** 2 * variance
    spreads = SiteConstants(effects, V).spreads() * (1.0 + 1.0 / K) ** 0.5
    chance = float(special.chdtrc(K - 1, np.sum(z**2 / values)))
    return Between(
        mean,
        (mean - half, mean + half),
        square**0.5,
        (low**0.5, high**0.5),
        chance,
        _within(spreads, alpha),
        tuple(zip(drawn.tolist(), np.sqrt(np.maximum(left, 0.0)).tolist(), strict=True)),
    )


def _falls_to(targets: Array | list[float], values: Array, z: Array) -> Array:
    """Find the smallest tau^2 at which Q is at most each of the targets."""
    targets = np.asarray(targets, dtype=float)
    high = np.sum(z**2) / targets
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = np.sum(z**2 / (values + middle[:, None]), axis=1) > targets
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(np.sum(z**2 / values) > targets, high, 0.0)


def widened(ends: Array, spreads: Array, alpha: float) -> Array:
    """Widen intervals by one more normal draw whose standard deviation is uncertain.

    The ends are those of normal errors around the middle.  An interval with one end gets the draw
    alone, added to that end.

    Parameters
    ----------
    ends : array (n, 2)
        Intervals of level ``1 - alpha``.
    spreads : array (k,)
        Standard deviations of the draw, each as likely.
    alpha : float
        One minus the confidence level, in (0, 1).

    Returns
    -------
    array (n, 2)
    """
    half = 0.5 * (ends[:, 1] - ends[:, 0])
    finite = np.isfinite(half)
    alone = _within(spreads, alpha)
    errors = np.where(finite, half, 0.0) / -normal.quantile(alpha / 2.0)
    more = np.where(finite, _half_widths(errors, spreads, alpha) - half, alone)
    return np.asarray(ends + np.stack([-more, more], axis=1))


def _half_widths(errors: Array, spreads: Array, alpha: float) -> Array:
    """Half-widths for normal errors (n,) and a draw together: solved at public ratios of the
    two, and in between.
    """
    largest = float(spreads.max(initial=0.0))
    if largest == 0.0:
        return errors * -normal.quantile(alpha / 2.0)
    known = (
        np.array([_within(np.hypot(spreads, largest * ratio), alpha) for ratio in _RATIOS])
        / largest
    )
    ratios = errors / largest
    # Squares of half-widths are nearly linear in squared errors.
    inside = np.sqrt(np.interp(ratios**2, _RATIOS**2, known**2))
    beyond = ratios * -normal.quantile(alpha / 2.0)
    return np.asarray(largest * np.where(ratios > _RATIOS[-1], np.maximum(inside, beyond), inside))


def _differences(effects: Array, V: Array) -> tuple[Array, Array]:
    """Eigenvalues of the covariance of differences between sites, and the differences'
    coordinates.
    """
    basis = np.linalg.qr(np.column_stack([np.ones(len(effects)), np.eye(len(effects))[:, 1:]]))[0][
        :, 1:
    ]
    values, vectors = np.linalg.eigh(basis.T @ V @ basis)
    return np.maximum(values, 1e-300), vectors.T @ basis.T @ effects


def _within(spreads: Array, alpha: float) -> float:
    """Half-width of a level ``1 - alpha`` interval for a centred draw of uncertain spread."""
    if not np.any(spreads > 0.0):
        return 0.0

    def beyond(half: float) -> float:
        return (
            float(np.mean(special.erfc(half / np.maximum(spreads, 1e-300) / np.sqrt(2.0)))) - alpha
        )

    return float(optimize.brentq(beyond, 0.0, 40.0 * float(spreads.max())))
