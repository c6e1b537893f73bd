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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..util import normal
from ..util.enumerations import first_names
from ..util.later import Later
from ..util.typing import Any, Array

optimize, special = Later("scipy.optimize"), Later("scipy.special")

FEWEST = 3
"""Least number of sites for an estimate of how they differ."""
_TURNS = 10
"""Number of times that errors at the mean and the mean are computed in turn."""
_NAMED = 5
"""Largest number of sites that a refusal names."""
MOST_WEAK = 1.0 / 3.0
"""Largest share of the sites that may be weak (:class:`SiteConstants`)."""
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
    """The sites' own constants as draws of a population, with the covariance of their errors.

    Sites that a table refuses for their few events are among them: the others are those with more
    events than the population.

    Attributes
    ----------
    effects : array (K,)
        The constants.
    covariance : array (K, K)
        V: covariance of the estimates, with noise and errors that all sites have in common.
    weak : tuple of str
        Names of those of the K sites that the table refuses because noise hides their events, or
        because these are few.
    refused : tuple of str
        Names of further sites, whose constant is not estimated for a reason that depends on what
        their rows say.
    sampling : array (K,), optional
        The part of the variances that is there without noise; needed if there are weak sites.
    """

    effects: Array
    covariance: Array
    weak: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    sampling: Array | None = None

    @property
    def count(self) -> int:
        """Number K of sites."""
        return len(self.effects)

    @property
    def unknown_spread_reason(self) -> str | None:
        """Reason why the population of sites is not estimated; None if it is.

        A site whose constant is not estimated may not be left out, as it is one of those with few
        events; and of weak sites the errors are not normal, so there may not be many.
        """
        if self.count + len(self.refused) < FEWEST:
            return (
                f"the spread between sites is estimated from at least {FEWEST} printed site "
                f"constants, and this table has {self.count}"
            )
        if self.refused:
            return (
                "the population of sites is not told by a part of them, and the constant is "
                f"refused of {first_names(self.refused, _NAMED)}"
            )
        if len(self.weak) > MOST_WEAK * self.count:
            return (
                "the population of sites is estimated if at least two in three constants are "
                f"printed; too few events for this noise have {first_names(self.weak, _NAMED)}"
            )
        return None

    def to_plain(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "effects": self.effects.tolist(),
            "covariance": self.covariance.tolist(),
            "weak": list(self.weak),
            "refused": list(self.refused),
            "sampling": None if self.sampling is None else self.sampling.tolist(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> SiteConstants:
        """Construct from plain data of :meth:`to_plain`."""
        effects = np.array(plain["effects"], dtype=float)
        covariance = np.array(plain["covariance"], dtype=float).reshape(len(effects), len(effects))
        sampling = None
        if plain["sampling"] is not None:
            sampling = np.array(plain["sampling"], dtype=float)
        return cls(effects, covariance, tuple(plain["weak"]), tuple(plain["refused"]), sampling)

    def random_effects(self, alpha: float) -> Between:
        """Return :func:`estimate_random_effects` at the level ``1 - alpha``.

        With weak sites, intervals reach over those with the sites' errors as they would be at the
        mean (:meth:`_errors_at_the_mean`), too.

        InvalidInput where :attr:`unknown_spread_reason` says why.
        """
        self._check_population()
        found = estimate_random_effects(self.effects, self.covariance, alpha)
        if not self.weak:
            return found
        even = estimate_random_effects(self.effects, self._errors_at_the_mean(), alpha)
        return found._replace(
            mean_ends=_hull(found.mean_ends, even.mean_ends),
            sd_ends=_hull(found.sd_ends, even.sd_ends),
            apart=max(found.apart, even.apart),
        )

    def likely_spreads(self) -> Array:
        """Return 400 quantiles of the confidence distribution of tau, by inverting Q.

        InvalidInput as for :meth:`random_effects`.
        """
        self._check_population()
        spreads = _likely_spreads(self.effects, self.covariance)
        if self.weak:
            even = _likely_spreads(self.effects, self._errors_at_the_mean())
            spreads = np.maximum(spreads, even)
        return spreads

    def _errors_at_the_mean(self) -> Array:
        """Return the covariance with each site's variance as if its constant were the mean.

        The fewer events a site has, the larger is its estimated error, so the mean with these
        errors is that of the sites that happened to have many.  With the same error for all it is
        too low, as the logarithm of a small count falls farther below than it rises above.  With p
        the chance at the constant, sampling variances fall as ``1 / p (1 - p)``, and those by noise
        as its square.
        """
        assert self.sampling is not None
        total = np.diag(self.covariance)
        rest = np.maximum(total - self.sampling, 0.0)
        mean = float(np.mean(self.effects))
        covariance = self.covariance
        for _ in range(_TURNS):
            ratio = _curvature(self.effects) / _curvature(np.array(mean))
            scale = np.sqrt((self.sampling * ratio + rest * ratio**2) / total)
            covariance = self.covariance * np.outer(scale, scale)
            mean = estimate_random_effects(self.effects, covariance, 0.5).mean
        return covariance

    def _check_population(self) -> None:
        rule = self.unknown_spread_reason
        if rule is None:
            return
        remedy = (
            "train with a constant for each site (site_constants=yes), or compare the lines of "
            "fewer sites in the table"
        )
        if self.weak or self.refused:
            remedy = (
                "join sites that have few events with others like them before training, use a "
                "larger epsilon or more rows, or compare the lines that are printed"
            )
        raise InvalidInput("sites", self.count, rule, remedy)


def _likely_spreads(effects: Array, V: Array) -> Array:
    """Return 400 quantiles of the confidence distribution of tau, by inverting Q."""
    values, z = _site_differences(effects, V)
    # At the true spread Q is chi squared, so each of its quantiles is as likely.
    quantiles = special.chdtri(len(effects) - 1, _CHANCES)
    return np.sqrt(_solve_for_variance(quantiles, values, z))


def _curvature(log_odds: Array) -> Array:
    """Return p (1 - p) of log-odds."""
    p = special.expit(log_odds)
    return np.asarray(p * (1.0 - p))


def _hull(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the least interval that holds both."""
    return min(one[0], other[0]), max(one[1], other[1])


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
    spreads = _likely_spreads(effects, V) * (1.0 + 1.0 / K) ** 0.5
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
