"""Hockey-stick profiles that tests hold against exact densities."""

from __future__ import annotations

import numpy as np

from sottovoce.privacy import spherical
from sottovoce.privacy.gaussian import gaussian_delta, objective_dominating
from sottovoce.privacy.spherical import objective_surplus

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def objective_delta(
    epsilon: float, sigma: float, kappa: float, *, relation: str, releases: int = 1
) -> float:
    """An upper bound of delta at ``epsilon >= 0`` of equal releases, derivative in [-1, 0]
    (docs/privacy/tight.md, U3).

    One release: the loss is at most the larger of its ends, so remove is ``delta_G(eps; 1/sigma)``
    and add is ``delta_G(eps - ln(1+kappa); 1/sigma)``.  Any number, and replace-one:
    `objective_dominating` with x of `objective_surplus` at delta', ``delta_G(eps - x; mu) +
    delta'``.
    """
    within = objective_dominating(sigma, kappa, relation=relation)
    mu = within.s * np.sqrt(releases)
    best = 1.0
    for small in 10.0 ** -np.arange(2.0, 31.0, 2.0) if within.slack > 0 else np.zeros(1):
        x = objective_surplus([(within, releases)], float(small))
        if np.isfinite(x):
            best = min(best, float(gaussian_delta(epsilon - x, mu)) + float(small))
    if releases == 1 and relation != "replace-one" and epsilon >= 0.0:
        log_det = float(np.log1p(kappa)) if relation == "add" else 0.0
        if epsilon >= log_det:
            best = min(best, float(gaussian_delta(epsilon - log_det, 1.0 / sigma)))
    return best


def spherical_delta(epsilon: float, d: int, s: float) -> float:
    """U2: the exact ``delta`` at `epsilon` (any sign) of one release, ``E (1 - e^{epsilon - s
    eta})_+``.
    """
    if epsilon >= s:
        return 0.0
    high = spherical.loss_support(d, s)[1]
    start = max(-1.0, min(high, epsilon / s))
    theta = np.linspace(np.arccos(np.clip(start, -1, 1)), np.arccos(high), 401)
    half = 0.5 * (theta[:-1] - theta[1:])
    at = theta[1:, None] + half[:, None] * (1.0 + _NODES)
    eta = np.clip(np.cos(at), -1.0 + 1e-16, 1.0 - 1e-16)
    inside = (
        np.exp(spherical.log_density(eta, d, s))
        * np.sin(at)
        * -np.expm1(np.minimum(0.0, epsilon - s * eta))
    )
    total = float(half @ (inside @ _WEIGHTS)) + 2e-25
    if d == 1:
        total += -0.5 * np.expm1(epsilon - s) + 0.5 * np.exp(-s) * -np.expm1(min(0.0, epsilon + s))
    return min(total, 1.0)
