"""The table of coefficients: lines, what is refused and why, and what would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..privacy.gaussian import gaussian_epsilon
from ..reports.causes import Cause
from ..reports.coefficients import assumptions, needed, remark, text_table
from ..reports.notebook import coefficients_html
from ..reports.plain import of_anybody
from ..reports.worth import times_wider
from ..util import normal
from ..util.later import Later
from ..util.typing import Any, Array, BoolArray
from .between import FEWEST, Between, between, spreads_of
from .directions import LostLines, Relation, Undivided, in_words, lost_lines, remedy
from .inference import ROOM, SURE, TAU, UNSURE, Estimates, fragility, inverse_of
from .terms import CONSTANT, Naming, Term

special = Later("scipy.special")

LEVEL = 0.95
"""Confidence level of intervals."""
LONGEST = 0.9
"""A last step that moves a level's log-odds by more than this is taken to be as long, for what it left undone."""
CHANCE = 2.0
"""Noise deviations by which a last step must be longer than none to say that steps have not come near."""
LONG = 2.0
"""Sampling errors by which a last step is a long one."""
STEADY = 0.75
"""A step that is longer than this part of the one before comes no nearer."""
MOSTLY = 0.5
"""The part of a variance that the last step may have left undone, above which a line is refused."""
MOST_NOISE = 0.99
"""The part of a variance that is not sampling, above which a line is refused: its interval is ten times too wide."""
HIDDEN = 1.3
"""An eigenvalue that noise hides is taken to be that many of its deviations: what a refusal says is needed is then
within a factor of 1.5 of the truth on most tables of bench/accuracy/forecasts.py."""
_FACTORS = 2.0 ** (np.arange(1.0, 81.0) / 8.0)  # of rows, or of shift over sigma


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
    cause: str | None = None  # of a refusal or a question mark: the code of a :class:`sottovoce.reports.causes.Cause`

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``noise_share`` is of the variance."""
        ratios = [None if x is None else _exp(x) for x in (self.estimate, self.low, self.high)]
        return {
            "name": self.term.name, "level": self.term.level, "reference": self.term.reference, "unit": self.term.unit,
            "estimate": self.estimate, "odds_ratio": ratios[0], "standard_error": self.standard_error,
            "noise_share": self.noise_share, "low": self.low, "high": self.high, "p": self.p,
            "odds_ratio_low": ratios[1], "odds_ratio_high": ratios[2], "unsure": self.unsure, "refused": self.refused,
            "cause": self.cause, "times_wider": times_wider(self.noise_share),
            "typical": None if self.term.typical is None else list(self.term.typical), "steps": self.term.steps,
        }  # fmt: skip


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


class Contrast(NamedTuple):
    """A weighted sum of coefficients with its interval."""

    estimate: float
    standard_error: float
    low: float
    high: float
    p: float


class Wald(NamedTuple):
    """A joint test of coefficients, by the law of chi squared with `df` degrees of freedom."""

    statistic: float
    df: int
    p: float


@dataclass(frozen=True)
class Coefficients(Sequence[dict[str, Any]]):
    """A table of coefficients: a sequence of lines as dicts, which ``pandas.DataFrame`` takes as it is."""

    lines: tuple[Coefficient, ...]
    strain: float  # q of the table
    needs: dict[str, float] | None
    """The smallest ``epsilon`` or number of ``rows`` at which all of it would be printed, about; None if all is."""
    covariance: Array = field(repr=False)  # of all lines, NaN for those that are refused
    odds: bool = True  # coefficients are log-odds
    weighed: str = ""  # :attr:`sottovoce.answers.terms.Naming.weighed`
    at_bounds: dict[str, Any] | None = None
    """Of a number's table: :func:`sottovoce.answers.bounds_reached.targets_at_bounds`."""
    clusters: str = ""  # :attr:`sottovoce.answers.terms.Naming.clusters`
    undivided: Undivided | None = field(default=None, repr=False)  # of lines that are lost, if there are any

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data; without odds ratios unless coefficients are log-odds."""
        lines = [line.to_dict() for line in self.lines]
        return [{k: v for k, v in line.items() if self.odds or not k.startswith("odds_ratio")} for line in lines]

    def plain(self) -> dict[str, Any]:
        """All of it as plain data: ``covariance`` has None where a line is refused."""
        covariance = [[None if math.isnan(x) else x for x in line] for line in self.covariance.tolist()]
        return {
            "coefficients": self.to_dict(), "covariance": covariance, "strain": self.strain, "needs": self.needs,
            "weighed": self.weighed, "clusters": self.clusters,
            "undivided": None if self.undivided is None else self.undivided.plain(),
        } | ({} if self.at_bounds is None else {"at_bounds": self.at_bounds})  # fmt: skip

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Coefficients:
        """What :meth:`plain` told, such as the record of ``run.json``; InvalidInput if that has no covariance."""
        if "covariance" not in plain:
            rule = "this run has no covariance of its coefficients"
            raise InvalidInput("run", None, rule, "ask for intervals with --inference, in this version")
        lines = plain["coefficients"]
        terms = [
            Term(
                one["name"], one["level"], one["reference"], one["unit"],
                None if one["typical"] is None else tuple(one["typical"]), one["steps"],
            )
            for one in lines
        ]  # fmt: skip
        numbers = ("estimate", "standard_error", "noise_share", "low", "high", "p", "unsure", "refused")
        made = [
            Coefficient(term, **{name: one[name] for name in numbers}, cause=one.get("cause"))
            for term, one in zip(terms, lines, strict=True)
        ]
        covariance = np.array(plain["covariance"], dtype=float)
        odds = any("odds_ratio" in one for one in lines)
        lost = plain.get("undivided")
        return cls(
            lines=tuple(made), strain=float(plain["strain"]), needs=plain["needs"], covariance=covariance, odds=odds,
            weighed=plain["weighed"], at_bounds=plain.get("at_bounds"), clusters=plain.get("clusters", ""),
            undivided=None if lost is None else Undivided.of_plain(lost),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.lines)

    def conf_int(self, alpha: float = 1.0 - LEVEL) -> Array:
        """Intervals of all lines at level ``1 - alpha``, (lines, 2); NaN for those that are refused."""
        found = [(np.nan, np.nan) if x.refused else self.contrast({x.term.text: 1.0}, alpha)[2:4] for x in self.lines]
        return np.array(found)

    def contrast(self, weights: Mapping[str, float], alpha: float = 1.0 - LEVEL) -> Contrast:
        """A weighted sum of coefficients by name, as ``{"stage: 3": 1, "stage: 2": -1}``; it costs no budget.

        Raises
        ------
        InvalidInput
            If there is no coefficient of a name, or it is refused.
        """
        _check_alpha(alpha)
        c = np.zeros(len(self.lines))
        c[self._places(list(weights), lost=True)] = list(weights.values())
        known, center, covariance = self._known(c[None])
        if not known[0]:
            names = [name for name in weights if self.lines[self._places([name], lost=True)[0]].refused is not None]
            rule = "cannot be told apart: this sum depends on how they are divided"
            raise InvalidInput("names", names, rule, "leave them out, or ask for what they have together")
        mid, error = float(c @ center), math.sqrt(max(0.0, float(c @ covariance @ c)))
        half = -normal.quantile(alpha / 2.0) * error
        return Contrast(mid, error, mid - half, mid + half, normal.two_sided(mid / error) if error > 0 else 0.0)

    def _known(self, weights: Array) -> tuple[BoolArray, Array, Array]:
        """Whether sums of lines with these weights, (n, lines), are known, and the estimates and covariance for them.

        These have zeros where a line has none.
        """
        refused = np.array([line.refused is not None for line in self.lines])
        if self.undivided is None:
            known = ~np.any((weights != 0.0) & refused, axis=1)
            estimates = np.array([0.0 if line.refused else line.estimate for line in self.lines], dtype=float)
            return known, estimates, np.where(refused[:, None] | refused, 0.0, self.covariance)
        whole = self.undivided
        return whole.tells(weights), np.nan_to_num(whole.estimate), np.nan_to_num(whole.covariance)

    def wald(self, names: str | Sequence[str]) -> Wald:
        """A joint test that coefficients are zero, by name; the name of a column stands for all of its levels.

        Raises
        ------
        InvalidInput
            As :meth:`contrast`.
        """
        asked = [names] if isinstance(names, str) else list(names)
        own = [[x.term.text for x in self.lines if x.term.name == name] or [name] for name in asked]
        which = self._places([text for texts in own for text in texts])
        b = np.array([self.lines[k].estimate for k in which], dtype=float)
        statistic = float(b @ np.linalg.solve(self.covariance[np.ix_(which, which)], b))
        return Wald(statistic, len(which), float(special.chdtrc(len(which), statistic)))

    def between_sites(self, alpha: float = 1.0 - LEVEL) -> Between:
        """Random effects of the sites' own constants, as draws of a normal population; it costs no budget.

        Returns
        -------
        Between
            ``mean`` of the constants, ``sd`` between sites, how far ``apart`` from their average one more may be, and
            ``sites``, each drawn towards the mean; intervals have level ``1 - alpha``, and ``p`` is of no difference.

        Raises
        ------
        InvalidInput
            If fewer than three sites have constants of their own that are printed.
        """
        _check_alpha(alpha)
        return between(*self._effects(), alpha)

    def _effects(self) -> tuple[Array, Array]:
        """The sites' printed constants with their covariance; InvalidInput if they are too few to tell a spread."""
        which = self.constants
        if len(which) < FEWEST:
            rule = f"need constants of their own, of which {FEWEST} at least are printed"
            remedy = "leave out --one-constant; of fewer sites see the table itself"
            raise InvalidInput("sites", len(which), rule, remedy)
        effects = np.array([self.lines[k].estimate for k in which], dtype=float)
        return effects, self.covariance[np.ix_(which, which)]

    def spreads_of_sites(self) -> Array:
        """Standard deviations between sites, each as likely (:func:`sottovoce.answers.between.spreads_of`)."""
        effects, V = self._effects()
        return spreads_of(effects, V)

    @property
    def constants(self) -> list[int]:
        """Positions of the printed constants of single sites."""
        own = [k for k, x in enumerate(self.lines) if x.term.name == CONSTANT and x.term.level is not None]
        return [k for k in own if self.lines[k].refused is None]

    def sums(self, weights: Array, alpha: float = 1.0 - LEVEL) -> Array:
        """Intervals of weighted sums of all lines, one a row of `weights` (n, lines): (n, 2).

        NaN where a line that is refused takes part.  It costs no budget.
        """
        _check_alpha(alpha)
        known, center, covariance = self._known(weights)
        mid, variance = weights @ center, np.einsum("nj,jk,nk->n", weights, covariance, weights)
        half = -normal.quantile(alpha / 2.0) * np.sqrt(np.maximum(variance, 0.0))
        return np.where(known[:, None], np.stack([mid - half, mid + half], axis=1), np.nan)

    def _places(self, names: Sequence[str], *, lost: bool = False) -> list[int]:
        """Positions of printed lines by name, and with `lost` of those that other columns repeat."""
        known = {line.term.text: k for k, line in enumerate(self.lines)}
        for name in names:
            if name not in known:
                raise InvalidInput("names", name, "is no coefficient of this table", f"use one of {sorted(known)}")
            line = self.lines[known[name]]
            if line.refused is not None and not (lost and line.cause == Cause.LOST.value):
                raise InvalidInput("names", name, "is refused, so nothing is known of it", "leave it out")
        return [known[name] for name in names]

    def __getitem__(self, k: Any) -> Any:
        return self.to_dict()[k]

    def remark(self) -> str:
        """Sentences on what the table lacks, and on what its intervals are worth; empty if there is nothing to say."""
        taken = {"weighed": self.weighed, "at_bounds": self.at_bounds, "clusters": self.clusters}
        return remark(self.to_dict(), self.needs, assumptions(taken))

    def __str__(self) -> str:
        lines = self.to_dict()
        return f"{text_table(lines)}\n{self.remark()}".rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = self.to_dict()
        return coefficients_html(lines, self.remark())


def with_sites(plain: dict[str, Any]) -> dict[str, Any]:
    """A run's record for a page, with ``between_sites`` if three sites or more have constants that are printed.

    InvalidInput if it is no run's record.
    """
    if not plain.get("coefficients") or "covariance" not in plain:
        return plain
    with of_anybody():
        found = Coefficients.of_plain(plain)
        return plain | {"between_sites": found.between_sites()._asdict()} if len(found.constants) >= FEWEST else plain


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise InvalidInput("alpha", alpha, "must be inside (0, 1)", "use 0.05")


class _Judged(NamedTuple):
    """What is known of the lines of one replicate, in the user's units, (lines,) each."""

    estimate: Array
    covariance: Array  # with what the last step may have left undone  (lines, lines)
    sampling: Array  # variance that is there without privacy noise, too
    by_model: Array  # the same by the Hessian alone, as if the model were right; infinite for a quadratic
    noise: Array  # variance
    step: Array  # the last one
    before: Array  # the one before, zeros if there was none
    undone: Array  # what the last step may have left
    levels: BoolArray  # whether a line is a level's

    @property
    def total(self) -> Array:
        """Variances."""
        return np.diag(self.covariance)

    @property
    def excess(self) -> Array:
        """Noise over sampling: with more rows it falls as one over their number.

        What noise leaves of the released squares of slopes may be next to nothing; the Hessian then tells the sampling.
        """
        sampling = np.maximum(self.sampling, self.by_model)
        return np.divide(self.total - self.sampling, sampling, out=np.zeros_like(sampling), where=sampling > 0.0)

    @property
    def noise_share(self) -> Array:
        """One less the share of sampling: without noise nothing is noise, whatever a step left undone."""
        rest = 1.0 - np.divide(self.sampling, self.total, out=np.ones_like(self.total), where=self.total > 0.0)
        return np.where(self.noise > 0.0, np.clip(rest, 0.0, 1.0), 0.0)

    @property
    def moving(self) -> BoolArray:
        """Whether steps still lead away: the last one is longer than its noise, and no shorter than the one before.

        Where a coefficient has no end, each step is as long as the one before (in log-odds about 1), and near an end
        each is about the square of it.  Of a level it is enough that most of its variance is what that step may have
        left undone, or that nobody knows how much that is; of a constant it is not, as rows may be far from where all
        columns are 0.
        """
        noise = CHANCE * np.sqrt(self.noise)
        long = np.abs(self.step) > LONG * np.sqrt(self.sampling)
        on = self.step * np.sign(self.before) > STEADY * np.abs(self.before)
        steady = long & on & (np.abs(self.before) > noise)
        beyond = (np.abs(self.step) > LONGEST) | (self.undone**2 > MOSTLY * self.total)
        left = self.levels & beyond
        return (np.abs(self.step) > noise) & (steady | left)


def _judged(found: Estimates, naming: Naming, replicate: int) -> _Judged:
    """Numbers of one replicate in the user's units."""
    M = naming.into_units
    covariance = M @ found.covariance[replicate] @ M.T
    sampling, noise = (np.einsum("ij,jk,ik->i", M, C[replicate], M) for C in (found.sampling, found.noise))
    step = M @ (found.estimate[replicate] - found.at[replicate])
    if found.quadratic:
        none = np.zeros(len(M))
        unknown = none + math.inf  # the spread of residuals is known by their squares alone
        return _Judged(
            M @ found.estimate[replicate], covariance, sampling, unknown, noise, none, none, none, none > 0.0
        )
    one = slice(replicate, replicate + 1)
    inverse, _ = inverse_of(found.hessian[one], found.kept[one], np.zeros(1))
    turned = M @ found.frame[replicate]
    by_model = np.einsum("ij,jk,ik->i", turned, inverse[0], turned) / found.rows
    before = np.zeros(len(M)) if found.moved is None else M @ found.moved[replicate]
    constant = np.array([term.name == CONSTANT for term in naming.terms])
    levels = np.array([term.level is not None for term in naming.terms]) & ~constant
    may_be = np.hypot(step, np.sqrt(np.maximum(noise, 0.0)))  # a step is known but for its noise
    undone = np.where(levels | constant, left_undone(may_be), 0.0)
    covariance = covariance + np.diag(undone**2)
    return _Judged(M @ found.estimate[replicate], covariance, sampling, by_model, noise, step, before, undone, levels)


def _lost(found: Estimates, naming: Naming, replicate: int) -> LostLines:
    """The lines that the rows do not tell, whatever the epsilon."""
    none = np.zeros(len(naming.terms), dtype=bool)
    if found.directions is None:
        return LostLines(none, none, (), (), np.empty((0, len(none))), True)
    lost = lost_lines(found.directions.of(replicate), naming.into_units, _constants(naming))
    return lost._replace(turned=lost.turned & ~_merged(found, naming, replicate))


def _constants(naming: Naming) -> BoolArray:
    """The lines that are constants."""
    return np.array([term.name == CONSTANT for term in naming.terms])


def _merged(found: Estimates, naming: Naming, replicate: int) -> BoolArray:
    """The lines of levels that were merged with their reference."""
    return np.asarray(~found.kept[replicate] & (naming.marks > 0.0))


def _causes(
    found: Estimates, naming: Naming, judged: _Judged, lost: LostLines, replicate: int
) -> list[Cause | None]:  # fmt: skip
    """Why each line is refused or doubtful, None for the others."""
    merged = _merged(found, naming, replicate)
    tau = np.where(merged | lost.turned, 0.0, found.fragility(naming.into_units)[replicate])
    q = float(found.strain[replicate])
    none = certain = np.zeros(len(tau), dtype=bool)
    if found.evidence is not None:
        none, certain = found.undetermined(naming, replicate)
    whole: Cause | None = None
    if q > UNSURE or (q > SURE and not np.all(tau <= TAU)):
        late = math.isfinite(q) and float(judged.noise.sum()) < 0.5 * float(judged.total.sum())
        whole = Cause.TABLE_UNFINISHED if late else Cause.TABLE_NOISE
        if whole is Cause.TABLE_NOISE and lost.hidden:
            whole = Cause.TABLE_HIDDEN
    elif found.room is not None and found.room[replicate] < ROOM:
        whole = Cause.SIZE_HIDDEN
    causes = list[Cause | None]()
    for k in range(len(tau)):
        cause = whole
        if merged[k]:
            cause = Cause.MERGED
        elif lost.turned[k]:
            cause = Cause.LOST
        elif whole is not None:
            cause = whole
        elif certain[k]:
            cause = Cause.SEPARATION
        elif not tau[k] <= TAU or lost.unclear[k]:
            cause = Cause.NOISE
        elif judged.moving[k]:
            cause = Cause.UNFINISHED if judged.noise[k] < judged.sampling[k] else Cause.ASTRAY
        elif judged.excess[k] > MOST_NOISE / (1.0 - MOST_NOISE):
            cause = Cause.NOISE
        elif none[k]:
            cause = Cause.HIDDEN
        causes.append(cause)
    return causes


def table(found: Estimates, naming: Naming, replicate: int = 0, delta: float | None = None) -> Coefficients:
    """The table of one replicate, in the user's units; with a `delta` refusals name the epsilon that would do."""
    M, q = naming.into_units, float(found.strain[replicate])
    judged = _judged(found, naming, replicate)
    lost = _lost(found, naming, replicate)
    causes = _causes(found, naming, judged, lost, replicate)
    noise_decides = np.array([cause is None or cause.by_noise for cause in causes])
    needs = _needs(found, M[noise_decides], judged.excess[noise_decides], replicate, delta)
    z = -normal.quantile((1.0 - LEVEL) / 2.0)
    lines = []
    for k, (term, cause) in enumerate(zip(naming.terms, causes, strict=True)):
        mid, error = float(judged.estimate[k]), math.sqrt(judged.total[k])
        p = normal.two_sided(mid / error) if error > 0 else 0.0
        # What may have no end may not seem clear; an interval that holds 0 claims nothing.
        doubtful = cause is Cause.HIDDEN and p >= 1.0 - LEVEL
        if cause is not None and not doubtful:
            why = cause.sentence + _detail(cause, lost, k, naming) + (_remedy(needs) if cause.by_noise else "")
            lines.append(Coefficient(term, None, None, None, None, None, None, refused=why, cause=cause.value))
            continue
        numbers = (mid, error, float(judged.noise_share[k]), mid - z * error, mid + z * error, p)
        unsure = q > SURE or doubtful
        if unsure and cause is None:
            cause = Cause.STRAINED
        lines.append(Coefficient(term, *numbers, unsure=unsure, cause=cause and cause.value))
    hidden = np.array([line.refused is not None for line in lines])
    covariance = np.where(hidden[:, None] | hidden, np.nan, judged.covariance)
    return Coefficients(
        tuple(lines), q, needs, covariance, weighed=naming.weighed, clusters=naming.clusters,
        undivided=_undivided(lost, judged, causes, hidden),
    )  # fmt: skip


def _undivided(lost: LostLines, judged: _Judged, causes: Sequence[Cause | None], hidden: BoolArray) -> Undivided | None:
    """What is known of lost lines; None if there are none."""
    if Cause.LOST not in causes:
        return None
    other = hidden & np.array([cause is not Cause.LOST for cause in causes])
    covariance = np.where(other[:, None] | other, np.nan, judged.covariance)
    return Undivided(np.where(other, np.nan, judged.estimate), covariance, lost.directions, lost.exact)


def _detail(cause: Cause, lost: LostLines, line: int, naming: Naming) -> str:
    """Which columns a refusal is about, and what to do, as the end of a sentence; empty if it needs none."""
    names, constants = [term.text for term in naming.terms], _constants(naming)

    def said(relation: Relation) -> str:
        return in_words(relation, names, constants, sites=bool(naming.sites))

    relation = lost.relation_of(line)
    if cause is Cause.LOST and relation is not None:
        return f": {said(relation)}; {remedy(relation, constants)}"
    if cause is Cause.TABLE_HIDDEN:
        return f": it may be that {said(lost.hidden[0])}, and then no epsilon would do"
    return ""


def left_undone(step: Array) -> Array:
    """What a step s of a level's log-odds may leave undone: ``-log(1 - |s|) - |s|``, about ``s^2 / 2``.

    Where events are rare the odds of a level's rows are the exponential of their log-odds.  A step s < 0, from D too
    high, is then ``-(1 - exp(-D))``.  The table's strain is a mean over all directions, and does not see one of them.
    """
    s = np.minimum(np.abs(step), LONGEST)
    return np.asarray(-np.log1p(-s) - s)


def _needs(found: Estimates, M: Array, excess: Array, replicate: int, delta: float | None) -> dict[str, float] | None:
    """Epsilon and rows that would do: with less noise, tau by the same matrices; q falls as ``(n mu)^-1``.

    `M` and `excess` (:attr:`_Judged.excess`) are of the lines that less noise would print.  An eigenvalue that noise
    hides may be as small as one likes: it is taken to be `HIDDEN` deviations, and ``more`` says that it was.  None if
    nothing is needed, and empty if a thousand times the rows would not do.
    """
    q, most = float(found.strain[replicate]), MOST_NOISE / (1.0 - MOST_NOISE)
    held = found.fragility(M)[replicate] <= TAU
    if not len(M) or (q <= SURE and np.all(held) and np.all(excess <= most)):
        return None
    excess = np.where(held & (q <= UNSURE), excess, 0.0)  # elsewhere the noise in variances is itself mostly noise
    noise = float(found.hessian_noise[replicate])
    values, vectors = np.linalg.eigh(found.hessian[replicate])
    lost = bool(values[0] <= noise) or not math.isfinite(q)
    raised = (vectors * np.maximum(values, HIDDEN * noise)) @ vectors.T
    one = slice(replicate, replicate + 1)
    for factor in _FACTORS:
        tau = fragility(found.frame[one], raised[None], found.kept[one], np.array([noise / factor]), M)
        near = (q if math.isfinite(q) else 0.0) / factor <= SURE
        if near and np.all(tau <= TAU) and np.all(excess / factor <= most):
            break
    else:
        return {}  # a number beyond the last factor would only be that factor
    needs = {"rows": rounded_up(found.rows * factor)} | ({"more": 1.0} if lost else {})
    if delta is not None and math.isfinite(found.scale):
        needs["epsilon"] = rounded_up(gaussian_epsilon(delta, found.scale * factor))
    return needs


def _remedy(needs: dict[str, float] | None) -> str:
    """What would do, as the end of a sentence."""
    if needs is None:
        return ""
    if not needs:
        return "; a thousand times the rows would not do"
    return f"; {needed(needs)} " + ("is needed" if "more" in needs else "would do, about")


def rounded_up(x: float) -> float:
    """A positive number, rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit * (1.0 - 1e-12)) * unit if x < 1e12 else x
