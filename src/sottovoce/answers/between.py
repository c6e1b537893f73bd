"""Random-effects meta-analysis of the sites' constants (docs/reference/answers.md).

It is post-processing of a printed table in which every site has a constant of its own, and costs no
privacy.  Sites i = 1 ... K have effects t_i that are independent draws of N(m, tau^2).  Their
estimates are N(t, V) given these, with the covariance V of the table, which includes privacy noise
and errors that all sites have in common.  Let z be the differences between the estimates in the
coordinates in which their part of V is diagonal, with entries l.  Then

    Q(tau^2) = sum z^2 / (l + tau^2)

is chi squared with K - 1 degrees of freedom at the true tau, and falls in tau^2 (Viechtbauer 2007,
"Confidence intervals for the amount of heterogeneity in meta-analysis").
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
"""Least number of sites for an estimate of how they differ."""
_HALVINGS = 60
"""Steps of bisection."""
_RATIOS = np.append(0.0, np.geomspace(1e-3, 30.0, 60))
"""Grid of standard errors, over the largest spread, at which half-widths are solved."""
# Tail probabilities at which Q is inverted: the confidence distribution of the spread.
_CHANCES = (np.arange(400) + 0.5) / 400.0


class Between(NamedTuple):
    """Random effects of sites: mean and spread of a normal population, and one more draw.

    Parameters
    ----------
    mean, sd : float
        Mean m, and standard deviation tau between sites, of the population.
    mean_ends, sd_ends : (low, high)
        Ends of their intervals.
    p : float
        P value of the hypothesis that sites do not differ.
    apart : float
        Half-width of the prediction interval for the difference of one more site from the average
        of these.  Errors that all sites have in common do not enter it.
    sites : tuple of (effect, standard error)
        Best linear predictions of the t_i, shrunk to the mean.
    """

    mean: float
    mean_ends: tuple[float, float]
    sd: float
    sd_ends: tuple[float, float]
    p: float
    apart: float
    sites: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SiteConstants:
    """The sites' own constants that a table prints, with the covariance of their errors.

    Attributes
    ----------
    effects : array (K,)
        The constants.
    covariance : array (K, K)
        V: covariance of the estimates, with noise and errors that all sites have in common.
    """

    effects: Array
    covariance: Array

    @property
    def count(self) -> int:
        """Number K of sites."""
        return len(self.effects)

    @property
    def too_few_reason(self) -> str | None:
        """Reason why rows of other sites have no interval; None if there are enough sites."""
        if self.count >= FEWEST:
            return None
        return (
            "no interval for rows of an unknown site: the spread between sites is estimated from "
            f"at least {FEWEST} printed site constants, and this table has {self.count}"
        )

    def random_effects(self, alpha: float) -> Between:
        """Return :func:`estimate_random_effects` at the level ``1 - alpha``.

        InvalidInput for fewer than three sites.
        """
        self._check_site_count()
        return estimate_random_effects(self.effects, self.covariance, alpha)

    def likely_spreads(self) -> Array:
        """Return 400 quantiles of the confidence distribution of tau, by inverting Q.

        InvalidInput as for :meth:`random_effects`.
        """
        self._check_site_count()
        values, z = _site_differences(self.effects, self.covariance)
        # At the true spread Q is chi squared, so each of its quantiles is as likely.
        quantiles = special.chdtri(self.count - 1, _CHANCES)
        return np.sqrt(_solve_for_variance(quantiles, values, z))

    def _check_site_count(self) -> None:
        if self.count < FEWEST:
            rule = (
                f"the spread between sites is estimated from at least {FEWEST} printed site "
                f"constants, and this table has {self.count}"
            )
            remedy = (
                "train with a constant for each site (site_constants=yes), or compare the lines of "
                "fewer sites in the table"
            )
            raise InvalidInput("sites", self.count, rule, remedy)


def estimate_random_effects(effects: Array, V: Array, alpha: float) -> Between:
    """Estimate random effects of K sites from their estimates (Paule and Mandel).

    The spread ``sd`` solves ``Q = K - 1``.  Its interval holds all spreads at which Q is between
    its quantiles ``alpha / 2`` and ``1 - alpha / 2``; if there is none, both ends are 0.  The
    mean's interval is Student's with K - 1 degrees of freedom.  One more site is drawn with the
    spread's whole confidence distribution, which gives Student's law if estimates have no errors.

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
    K = len(effects)
    ones = np.ones(K)
    values, z = _site_differences(effects, V)
    surprising = special.chdtri(K - 1, np.array([alpha / 2.0, 1.0 - alpha / 2.0]))
    # Q(tau^2) at its quantiles for the interval, and at K - 1 for the estimate.
    low, high, tau_squared = _solve_for_variance([*surprising, K - 1.0], values, z)
    # Generalised least squares for the mean, with the spread as it is estimated.
    W = np.linalg.inv(V + tau_squared * np.eye(K))
    variance = 1.0 / float(ones @ W @ ones)
    mean = variance * float(ones @ W @ effects)
    half = float(special.stdtrit(K - 1, 1.0 - alpha / 2.0)) * variance**0.5
    # Best linear predictions of the t_i given the estimates.
    predictions = mean + tau_squared * (W @ (effects - mean))
    # Their variance: of t_i given the estimates, and what the mean's own error adds.
    given_mean = tau_squared * (1.0 - tau_squared * np.diag(W))
    by_mean = (1.0 - tau_squared * (W @ ones)) ** 2 * variance
    errors = np.sqrt(np.maximum(given_mean + by_mean, 0.0))
    # One more site differs from the average of K by its own draw and by theirs.
    spreads = SiteConstants(effects, V).likely_spreads() * (1.0 + 1.0 / K) ** 0.5
    return Between(
        mean=mean,
        mean_ends=(mean - half, mean + half),
        sd=tau_squared**0.5,
        sd_ends=(low**0.5, high**0.5),
        p=float(special.chdtrc(K - 1, np.sum(z**2 / values))),
        apart=_solve_half_width(spreads, alpha),
        sites=tuple(zip(predictions.tolist(), errors.tolist(), strict=True)),
    )


def _solve_for_variance(targets: Array | list[float], values: Array, z: Array) -> Array:
    """Find the smallest tau^2 at which Q is at most a target, for each of the `targets`.

    `values` and `z` are the l and z of :func:`_site_differences`.
    """
    targets = np.asarray(targets, dtype=float)
    # Q falls in tau^2, and is at most sum(z^2) / tau^2: bisection, of all targets at once.
    high = np.sum(z**2) / targets
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = np.sum(z**2 / (values + middle[:, None]), axis=1) > targets
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return np.where(np.sum(z**2 / values) > targets, high, 0.0)


def widen_by_random_draw(ends: Array, spreads: Array, alpha: float) -> Array:
    """Widen intervals by one more normal draw whose standard deviation is uncertain.

    The given ends are those of normal errors around the middle.  An interval with one finite end is
    widened there by the half-width of the draw alone.

    Parameters
    ----------
    ends : array (n, 2)
        Intervals of level ``1 - alpha``.
    spreads : array (k,)
        Equally likely standard deviations of the draw.
    alpha : float
        One minus the confidence level, in (0, 1).

    Returns
    -------
    array (n, 2)
    """
    half = 0.5 * (ends[:, 1] - ends[:, 0])
    finite = np.isfinite(half)
    alone = _solve_half_width(spreads, alpha)
    errors = np.where(finite, half, 0.0) / -normal.normal_quantile(alpha / 2.0)
    more = np.where(finite, _interpolate_half_widths(errors, spreads, alpha) - half, alone)
    return np.asarray(ends + np.stack([-more, more], axis=1))


def _interpolate_half_widths(errors: Array, spreads: Array, alpha: float) -> Array:
    """Compute half-widths, (n,), for normal standard errors (n,) and a draw together.

    They are solved at the ratios `_RATIOS` of the two, and interpolated in between.
    """
    largest = float(spreads.max(initial=0.0))
    if largest == 0.0:
        return errors * -normal.normal_quantile(alpha / 2.0)
    solved = [_solve_half_width(np.hypot(spreads, largest * ratio), alpha) for ratio in _RATIOS]
    known = np.array(solved) / largest
    ratios = errors / largest
    # Squares of half-widths are nearly linear in squared errors.
    inside = np.sqrt(np.interp(ratios**2, _RATIOS**2, known**2))
    # Beyond the largest ratio errors are nearly all of it.
    beyond = ratios * -normal.normal_quantile(alpha / 2.0)
    return np.asarray(largest * np.where(ratios > _RATIOS[-1], np.maximum(inside, beyond), inside))


def _site_differences(effects: Array, V: Array) -> tuple[Array, Array]:
    """Compute the eigenvalues l of the covariance of sites' differences, and their coordinates z.

    Both are (K - 1,).
    """
    K = len(effects)
    # An orthonormal basis of what is orthogonal to the mean of all sites.
    basis, _ = np.linalg.qr(np.column_stack([np.ones(K), np.eye(K)[:, 1:]]))
    basis = basis[:, 1:]
    values, vectors = np.linalg.eigh(basis.T @ V @ basis)
    return np.maximum(values, 1e-300), vectors.T @ basis.T @ effects


def _solve_half_width(spreads: Array, alpha: float) -> float:
    """Compute the half-width of a ``1 - alpha`` interval for a centred draw of uncertain spread."""
    if not np.any(spreads > 0.0):
        return 0.0

    def excess_chance(half: float) -> float:
        # The chance to lie beyond is the mean over all spreads, each as likely.
        beyond = special.erfc(half / np.maximum(spreads, 1e-300) / np.sqrt(2.0))
        return float(np.mean(beyond)) - alpha

    return float(optimize.brentq(excess_chance, 0.0, 40.0 * float(spreads.max())))
