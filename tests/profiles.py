"""Hockey-stick profiles that tests hold against exact densities."""

from __future__ import annotations

import numpy as np

from sottovoce.privacy.gaussian import gaussian_delta, objective_dominating
from sottovoce.privacy.spherical import objective_surplus


def objective_delta(epsilon: float, sigma: float, kappa: float, *, relation: str, releases: int = 1) -> float:
    """An upper bound of delta at ``epsilon >= 0`` of equal releases, derivative in [-1, 0] (docs/privacy/tight.md, U3).

    One release: the loss is at most the larger of its ends, so remove is ``delta_G(eps; 1/sigma)`` and add is
    ``delta_G(eps - ln(1+kappa); 1/sigma)``.  Any number, and replace-one: `objective_dominating` with x of
    `objective_surplus` at delta', ``delta_G(eps - x; mu) + delta'``.
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
