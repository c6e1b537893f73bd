"""Coefficients with confidence intervals: Newton steps on noisy sums (docs/privacy/answers.md, "Inference").

Two Newton steps, and one with an old Hessian, go near the minimiser; there a fresh Hessian H, the second moments J of
derivatives and a gradient g give, with noise s_g and s_H on an entry of g and of the flattened H,

    estimate = w + d - b,    d = -H^-1 g,
    covariance = H^-1 [J / n + s_g^2 I + (s_H^2 / 2)(|d|^2 I + d d')] H^-1 + b b',

as an error E of H moves the estimate by ``H^-1 E d``.  b is the second-order bias of the last step
(:mod:`sottovoce.answers.second_order`), taken to be as uncertain as it is large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..errors import InvalidInput
from ..privacy.gaussian import gaussian_epsilon
from ..problem.facts import Facts
from ..queries import Curvature, Gradient, Positives, SecondMoments, SlopeMoments
from ..queries.moments import square
from ..reports.coefficients import remark, text_table
from ..runs.config import RunConfig
from ..util.typing import Any, Array, BoolArray
from .second_order import missed
from .terms import Naming, Term

LEVEL = 0.95
"""Confidence level of intervals."""
TAU = 0.1
"""Share of a coefficient's variance that the noise of the Hessian may add beyond first order; above it, refused."""
SURE, UNSURE = 0.5, 1.0
"""The strain q of a table: printed below the first, flagged up to the second, refused above.

In between it is refused, too, if a coefficient fails `TAU`: with some directions of the Hessian lost in noise, a
strained step is not reliable in the others either (bench/accuracy/coverage.py, correlated columns).
"""
_FIRST, _SECOND, _THIRD = 2.0, 1.5, 0.75  # largest root mean square shifts of scores in the steps
_RARE = 3.4  # curvatures are clipped at this many mean curvatures: at .1 with 3% positives
RAREST = 0.01
"""Levels with a smaller share of the rows are merged with their reference if noise would hide their coefficient."""
_FLOOR = 0.05  # of the noise's norm: eigenvalues of a Hessian are raised to it in the steps


@dataclass(frozen=True)
class Estimates:
    """Outcome of the recipe, for R replicates, in encoded columns."""

    estimate: Array  # one step from `at`                         (R, d)
    at: Array  # a public point                                   (R, d)
    covariance: Array  # of the estimate                          (R, d, d)
    noise: Array  # its part from privacy noise                   (R, d, d)
    inverse: Array  # of H; zeros if noise may have made an eigenvalue  (R, d, d)
    strain: Array  # q, how far the last step leads from where H holds; inf without an inverse  (R,)
    hessian_noise: Array  # s_H                                   (R,)
    positives: Array  # share of positive labels                  (R,)
    kept: BoolArray  # but for rare levels that were merged with their references  (R, d)
    rows: float
    scale: float  # shift over sigma of the whole plan; inf without noise

    def fragility(self, c: Array) -> Array:
        """tau of ``c'w``, shape (R,): ``(s_H^2 / 2)(tr(H^-1) c'H^-2 c + c'H^-3 c) / c'H^-1 c``."""
        H1 = self.inverse
        H2 = H1 @ H1
        first, second, third = (np.einsum("i,rij,j->r", c, P, c) for P in (H1, H2, H2 @ H1))
        with np.errstate(divide="ignore", invalid="ignore"):
            tau = self.hessian_noise**2 / 2.0 * (np.trace(H1, axis1=1, axis2=2) * second + third) / first
        return np.where(first > 0, tau, np.inf)


def check_run(run: RunConfig) -> None:
    """Refuse methods and losses other than inference's own; InvalidInput."""
    if not run.auto:
        rule = "inference takes Newton steps of its own"
        raise InvalidInput("method", run.method, rule, "leave method out; trust='sum' asks for sums over sites")
    if run.loss != "logistic" or run.max_grad_norm != math.inf:
        rule = "coefficients are log-odds of the logistic loss without a cap"
        raise InvalidInput("loss", run.loss, rule, "leave loss and max_grad_norm out")


@dataclass(frozen=True)
class Newton(Recipe):
    """Coefficients of the logistic loss by Newton steps on noisy sums; the outcome is :class:`Estimates`.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    value : float
        Entry of a row in its constant column.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    """

    constant: Array = field(kw_only=True)
    value: float = field(kw_only=True)
    marks: Array = field(kw_only=True)

    name: ClassVar[str] = "newton"
    summary: ClassVar[str] = "coefficients with intervals, by Newton steps"

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("count of positives", lambda at: Positives(at, self.constant), 0.01),
            Item("second moments", SecondMoments, 0.08),
            Item("first gradient", Gradient, 0.06),
            Item("second Hessian", Curvature, 0.10),
            Item("second gradient", Gradient, 0.10),
            Item("third gradient", Gradient, 0.06),
            Item("last Hessian", Curvature, 0.22),
            Item("moments of slopes", SlopeMoments, 0.05),
            Item("last gradient", Gradient, 0.32),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        R, d, mask = replicates, facts.d, self.constant
        zero = np.zeros((R, d))
        count = yield Positives(zero, mask)
        n, least = count.rows, max(1.0 / count.rows, 2.0 * count.spread)
        share = np.clip(count.value[:, 0], min(least, 0.5), 1.0 - min(least, 0.5))
        w = np.log(share / (1.0 - share))[:, None] / self.value * mask
        moments = yield SecondMoments(zero)
        S = square(moments.value, d)
        curvature = (share * (1.0 - share))[:, None, None]
        cap = float(np.minimum(facts.loss.curvature_bound, _RARE * curvature).max())  # one for all replicates
        kept = _kept(S, curvature, self.marks, cap * self.spread(6, facts, moments.among))
        S = _within(S, kept)
        gradient = yield Gradient(w)
        w = w - _step(curvature * S, curvature[:, 0, 0] * moments.spread, kept * gradient.value, S, _FIRST)
        hessian = yield Curvature(w, cap)
        H, noise = _within(cap * square(hessian.value, d), kept), np.full(R, cap * hessian.spread)
        for most in (_SECOND, _THIRD):
            gradient = yield Gradient(w)
            w = w - _step(H, noise, kept * gradient.value, S, most)
        hessian = yield Curvature(w, cap)
        slopes = yield SlopeMoments(w)
        gradient = yield Gradient(w)
        H, J = _within(cap * square(hessian.value, d), kept), _within(square(slopes.value, d), kept)
        return _one_step(
            w, H, J, kept * gradient.value, S, cap * hessian.spread, gradient.spread, share, kept, n, self.scale,
            S @ (mask / self.value), self.marks,
        )  # fmt: skip


def newton_of(naming: Naming) -> Newton:
    """The recipe for rows of an encoding."""
    marks = np.where(marked(naming), np.diag(naming.into_units), 0.0)
    return Newton(constant=naming.constant, value=naming.value, marks=marks)


def model_of(found: Estimates) -> Array:
    """The model for predictions: the estimate, or the last point of the steps if the whole table is refused."""
    return np.where((found.strain <= 1.0)[:, None], found.estimate, found.at)


def _within(H: Array, kept: BoolArray) -> Array:
    """H without rows and columns that are not kept; their diagonal gets the mean of the rest."""
    rest = np.einsum("rii,ri->r", H, kept) / np.maximum(kept.sum(axis=1), 1)
    return np.asarray(
        H * kept[:, :, None] * kept[:, None, :] + rest[:, None, None] * np.eye(H.shape[-1]) * ~kept[:, None]
    )


def marked(naming: Naming) -> BoolArray:
    """Whether each column marks a level."""
    return np.array([term.reference is not None for term in naming.terms])


def _kept(S: Array, curvature: Array, marks: Array, noise: float) -> BoolArray:
    """Columns but for those of rare levels whose tau, expected from second moments alone, is above `TAU`.

    The level with the largest tau is dropped, and counts as the reference, until no rare level is above.
    """
    d = S.shape[-1]
    kept = np.ones((len(S), d), dtype=bool)
    levels = marks > 0
    if noise == 0.0 or not levels.any():
        return kept
    for r, moments in enumerate(S):
        rare = levels & (np.diag(moments) < RAREST * marks**2)
        while np.any(rare & kept[r]):
            H = _within(curvature[r] * moments[None], kept[r : r + 1])[0]
            values, vectors = np.linalg.eigh(H)
            values = np.maximum(values, 1e-3 * noise)
            H1 = (vectors / values) @ vectors.T * kept[r] * kept[r][:, None]
            H2 = H1 @ H1
            tau = noise**2 / 2.0 * (np.trace(H1) * np.diag(H2) + np.diag(H2 @ H1)) / np.maximum(np.diag(H1), 1e-300)
            tau = np.where(rare & kept[r], tau, 0.0)
            if tau.max() <= TAU:
                break
            kept[r, int(tau.argmax())] = False
    return kept


def _one_step(
    w: Array, H: Array, J: Array, g: Array, S: Array, s_H: float, s_g: float, share: Array, kept: BoolArray, n: float,
    scale: float, center: Array, marks: Array,
) -> Estimates:  # fmt: skip
    """The last step and its errors; `center` is the mean of rows."""
    R, d = w.shape
    values, vectors = np.linalg.eigh(H)
    fine = values[:, 0] > max(1e-12, _FLOOR * s_H * math.sqrt(2.0 * d))
    safe = np.where(values > 0, values, 1.0)
    inverse = np.where(fine[:, None, None], (vectors / safe[:, None, :]) @ vectors.transpose(0, 2, 1), 0.0)
    inverse = inverse * kept[:, :, None] * kept[:, None, :]
    shift = -np.einsum("rij,rj->ri", inverse, g)
    noise = noise_of(inverse, shift, s_g, s_H)
    covariance = inverse @ (positive(J) / n) @ inverse + noise
    with np.errstate(divide="ignore", invalid="ignore"):
        traces = np.einsum("rii,ri->r", H, kept) / np.maximum(np.einsum("rii,ri->r", S, kept), 1e-300)
        spread = np.sqrt(np.trace(H @ covariance, axis1=1, axis2=2) / kept.sum(axis=1))
        moved = np.einsum("ri,rij,rj->r", shift, H, shift)
        strain = 0.35 * moved / np.sqrt(np.maximum(traces, 0.0)) / spread
    strain = np.where(fine & np.isfinite(strain), strain, np.inf)
    moved = np.maximum(moved - s_g**2 * np.trace(inverse, axis1=1, axis2=2), 0.0)  # without what noise in g adds
    second = missed(w, shift, positive(S), center, moved, marks)
    bias = 0.5 * np.einsum("rij,rj->ri", inverse, second)
    covariance = covariance + bias[:, :, None] * bias[:, None, :]
    return Estimates(w + shift - bias, w, covariance, noise, inverse, strain, np.full(R, s_H), share, kept, n, scale)


def noise_of(inverse: Array, shift: Array, s_g: float, s_H: float) -> Array:
    """Covariance (R, d, d) of a step `shift` that the noise in gradient and Hessian adds."""
    eye, length = np.eye(shift.shape[1]), np.sum(shift**2, axis=1)[:, None, None]
    added = s_g**2 * eye + s_H**2 / 2.0 * (length * eye + shift[:, :, None] * shift[:, None, :])
    return np.asarray(inverse @ added @ inverse)


def positive(S: Array) -> Array:
    """The nearest positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(S)
    return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1))


def _step(H: Array, noise: Array, g: Array, S: Array, most: float) -> Array:
    """``H^-1 g``, shortened so that margins shift by at most `most` in root mean square."""
    values, vectors = np.linalg.eigh(H)
    floor = np.maximum(_FLOOR * noise * math.sqrt(2.0 * H.shape[-1]), 1e-12)[:, None]
    along = np.einsum("rji,rj->ri", vectors, g) / np.maximum(values, floor)
    step = np.einsum("rij,rj->ri", vectors, along)
    moved = np.sqrt(np.maximum(np.einsum("ri,rij,rj->r", step, positive(S), step), 1e-300))
    return np.asarray(step * np.minimum(1.0, most / moved)[:, None])


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
    merged &= marked(naming)
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
