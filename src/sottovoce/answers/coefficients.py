"""The table of coefficients: lines, what is refused and why, and what would do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ..errors import InvalidInput
from ..privacy.gaussian import gaussian_epsilon
from ..reports.coefficients import remark, text_table
from ..util.typing import Any, Array
from .inference import SURE, TAU, UNSURE, Estimates
from .terms import Naming, Term

LEVEL = 0.95
"""Confidence level of intervals."""


@dataclass(frozen=True)
class Coefficient:
    """One line of the table; if `refused` says why, all numbers are None."""

    term: Term
    estimate: float | None
    standard_error: float | None
    noise_share: float | None
    low: float | None
    high: float | None
    p: float | None
    unsure: bool = False
    refused: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``noise_share`` is of the variance."""
        ratios = [None if x is None else _exp(x) for x in (self.estimate, self.low, self.high)]
        return {
            "name": self.term.name, "level": self.term.level, "reference": self.term.reference, "unit": self.term.unit,
            "estimate": self.estimate, "odds_ratio": ratios[0], "standard_error": self.standard_error,
            "noise_share": self.noise_share, "low": self.low, "high": self.high, "p": self.p,
            "odds_ratio_low": ratios[1], "odds_ratio_high": ratios[2], "unsure": self.unsure, "refused": self.refused,
            "typical": None if self.term.typical is None else list(self.term.typical), "steps": self.term.steps,
        }  # fmt: skip


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


@dataclass(frozen=True)
class Coefficients(Sequence[dict[str, Any]]):
    """A table of coefficients: a sequence of lines as dicts, which ``pandas.DataFrame`` takes as it is."""

    lines: tuple[Coefficient, ...]
    strain: float  # q of the table
    needs: dict[str, float] | None
    """The smallest ``epsilon`` or number of ``rows`` at which all of it would be printed, about; None if all is."""
    odds: bool = True  # coefficients are log-odds
    weighed: str = ""  # :attr:`sottovoce.answers.terms.Naming.weighed`

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data; without odds ratios unless coefficients are log-odds."""
        lines = [line.to_dict() for line in self.lines]
        return [{k: v for k, v in line.items() if self.odds or not k.startswith("odds_ratio")} for line in lines]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, k: Any) -> Any:
        return self.to_dict()[k]

    def __str__(self) -> str:
        lines = self.to_dict()
        return f"{text_table(lines)}\n{remark(lines, self.needs, self.weighed)}".rstrip()


def table(found: Estimates, naming: Naming, replicate: int = 0, delta: float | None = None) -> Coefficients:
    """The table of one replicate, in the user's units; with a `delta` refusals name the epsilon that would do."""
    M, q = naming.into_units, float(found.strain[replicate])
    center = M @ found.estimate[replicate]
    total = np.einsum("ij,jk,ik->i", M, found.covariance[replicate], M)
    noise = np.einsum("ij,jk,ik->i", M, found.noise[replicate], M)
    merged = np.append(~found.kept[replicate], np.zeros(len(M) - naming.d, dtype=bool))
    merged &= np.append(naming.marks > 0.0, np.zeros(len(M) - naming.d, dtype=bool))
    tau = np.array([0.0 if out else found.fragility(row)[replicate] for row, out in zip(M, merged, strict=True)])
    needs = _needs(found, tau, q, delta)
    lines = []
    for k, term in enumerate(naming.terms):
        why = None
        if merged[k]:
            why = "too few rows for this noise: merged with the reference"
        elif q > UNSURE or (q > SURE and not np.all(tau <= TAU)):
            why = "the whole table: the last step is mostly noise" + _remedy(needs)
        elif not tau[k] <= TAU:
            why = "too much of its variance is noise in the Hessian" + _remedy(needs)
        if why is not None:
            lines.append(Coefficient(term, None, None, None, None, None, None, refused=why))
            continue
        error = math.sqrt(total[k])
        z = float(-ndtri((1.0 - LEVEL) / 2.0))
        p = float(2.0 * ndtr(-abs(center[k]) / error)) if error > 0 else 0.0
        share = float(noise[k] / total[k]) if total[k] > 0 else 0.0
        mid, half = float(center[k]), z * error
        lines.append(Coefficient(term, mid, error, share, mid - half, mid + half, p, unsure=q > SURE))
    return Coefficients(tuple(lines), q, needs, weighed=naming.weighed)


def _needs(found: Estimates, tau: Array, q: float, delta: float | None) -> dict[str, float] | None:
    """Epsilon and rows that would do: tau falls as ``(n mu)^-2`` and q as ``(n mu)^-1``."""
    worst = float(np.max(tau))
    if q <= SURE and worst <= TAU:
        return None
    factor = max(math.sqrt(worst / TAU) if math.isfinite(worst) else 4.0, min(q, 64.0) / SURE, 1.01)
    needs = {"rows": _up(found.rows * factor)}
    if delta is not None and math.isfinite(found.scale):
        needs["epsilon"] = _up(gaussian_epsilon(delta, found.scale * factor))
    return needs


def _remedy(needs: dict[str, float] | None) -> str:
    if needs is None:
        return ""
    more = f"epsilon {needs['epsilon']:g}, or " if "epsilon" in needs else ""
    return f"; {more}{needs['rows']:,.0f} rows would do, about"


def _up(x: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit * (1.0 - 1e-12)) * unit if x < 1e12 else x


def forecast(
    naming: Naming, rows: float, mu: float, *, sites: int = 1, summed: bool = True, colluders: int = 1,
    positives: float = 0.5, rho: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """The number of rows n0 from which on a table will be printed, from public facts alone.

    Parameters
    ----------
    rows : float
        Of all sites.
    mu : float
        Shift over sigma of the whole plan.
    sites, summed, colluders
        Noise of local answers adds up over sites; that of sums is ``sites / (sites - colluders)`` of a curator's.
    positives : float
        Expected share of positive labels.
    rho : float
        Largest expected correlation of a column with the others.

    Returns
    -------
    dict
        ``rows_needed`` (n0), and ``tau``, about ``.1 (n0 / n)^2``.
    """
    if not 0.0 < positives < 1.0:
        raise InvalidInput("positives", positives, "must be inside (0, 1)", "use the share that you expect")
    loss = sites / (sites - colluders) if summed and sites > colluders else float(sites)
    curvature, least = positives * (1.0 - positives), naming.least_variance(rho)
    needed = 1.7 * math.sqrt(naming.d + 1.0) / (curvature * max(least, 1e-12) * mu) * math.sqrt(loss)
    return {"rows_needed": _up(needed), "tau": TAU * (needed / rows) ** 2}
