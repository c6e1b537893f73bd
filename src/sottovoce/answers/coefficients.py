"""The table of coefficients: lines, what is refused and why, and what would do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..privacy.gaussian import gaussian_epsilon
from ..reports.causes import Cause
from ..reports.coefficients import (
    assumption_sentences,
    coefficient_table,
    format_text_table,
    remarks_below_table,
    sufficient_budget_text,
)
from ..reports.plain import refusing_foreign_documents
from ..reports.worth import width_ratio_by_noise
from ..util import normal
from ..util.later import Later
from ..util.pages import render_for_notebook
from ..util.typing import Any, Array, BoolArray
from .between import FEWEST, Between, SiteConstants
from .directions import LostLines, Relation, describe_relation, describe_remedy, find_lost_lines
from .few_outcomes import FewOutcomes, ends_of_intervals, select_few_outcomes
from .hidden_groups import collect_hidden_groups
from .inference import ROOM, SURE, TAU, UNSURE, Estimates, inverse_where_known, second_order_share
from .known_sums import KnownSums
from .normal_rows import fit_normal_rows, uncertainty_of_size
from .references import Block, blocks_of, merged_reference, no_groups, pivots
from .separation import Undetermined
from .size_needed import SizeNeeds, size_needs
from .terms import CONSTANT, Naming, Term

special = Later("scipy.special")

LEVEL = 0.95
"""Confidence level of intervals."""
LONGEST = 0.9
"""Largest step of a level's log-odds for the bound on what it left undone; longer ones count as
this.
"""
CHANCE = 2.0
"""Noise deviations that a last step must exceed for steps to count as not converged."""
LONG = 2.0
"""Sampling errors that a last step must exceed to count as a long one."""
STEADY = 0.75
"""Ratio of a step to the one before, above which steps do not converge."""
MOSTLY = 0.5
"""Share of a variance that the last step may have left undone, above which a line is refused."""
# A bound of a half would refuse most lines whose intervals cover: of the coefficients within reach
# on eight real tables it leaves 36% (docs/privacy/answers.md, "Separation").
MOST_NOISE = 0.99
"""Share of a variance that is not sampling, above which a line is refused: its interval is ten
times too wide.
"""
_LARGEST_EXCESS = MOST_NOISE / (1.0 - MOST_NOISE)
"""Noise over sampling variance, above which a line is refused: `MOST_NOISE` as a ratio."""
_NO_CURVATURE = 1e-12  # of a group without rows
_OF_ALL = (Cause.TABLE_UNFINISHED, Cause.TABLE_NOISE, Cause.TABLE_HIDDEN, Cause.SIZE_HIDDEN)
"""Causes that refuse the whole table: no sum of its lines is known then."""
HIDDEN = 1.3
"""An eigenvalue that noise hides is taken to be that many of its deviations: what a refusal says
is needed is then within a factor of 1.5 of the truth on most tables of
bench/accuracy/forecasts.py."""
# Of rows, or of sensitivity over sigma.
_FACTORS = 2.0 ** (np.arange(1.0, 81.0) / 8.0)


@dataclass(frozen=True)
class Coefficient:
    """One line of the table.

    If `refused` says why, it has no estimate, and one end of an interval at most.
    """

    term: Term
    estimate: float | None
    standard_error: float | None
    noise_share: float | None
    low: float | None
    high: float | None
    p: float | None
    unsure: bool = False
    refused: str | None = None
    # of a refusal or a question mark: the code of a :class:`sottovoce.reports.causes.Cause`
    cause: str | None = None

    @property
    def one_sided(self) -> str | None:
        """``above`` if only the low end of the interval is known, ``below`` if only the high one.

        None for all other lines.
        """
        if (self.low is None) == (self.high is None):
            return None
        if self.high is None:
            return "above"
        return "below"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; ``noise_share`` is of the variance."""
        typical = None
        if self.term.typical is not None:
            typical = list(self.term.typical)
        return {
            "name": self.term.name,
            "level": self.term.level,
            "reference": self.term.reference,
            "unit": self.term.unit,
            "estimate": self.estimate,
            "odds_ratio": _odds_ratio(self.estimate),
            "standard_error": self.standard_error,
            "noise_share": self.noise_share,
            "low": self.low,
            "high": self.high,
            "p": self.p,
            "odds_ratio_low": _odds_ratio(self.low),
            "odds_ratio_high": _odds_ratio(self.high),
            "unsure": self.unsure,
            "refused": self.refused,
            "cause": self.cause,
            "times_wider": width_ratio_by_noise(self.noise_share),
            "one_sided": self.one_sided,
            "typical": typical,
            "steps": self.term.steps,
        }


def _odds_ratio(log_odds: float | None) -> float | None:
    """Compute the odds ratio of a coefficient; None without one."""
    if log_odds is None:
        return None
    # beyond about 709 the exponential overflows
    return math.exp(min(log_odds, 700.0))


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
    """A table of coefficients: a sequence of dicts, as ``pandas.DataFrame`` takes it."""

    lines: tuple[Coefficient, ...]
    strain: float  # q of the table
    needs: dict[str, float] | None
    """The smallest ``epsilon`` or number of ``rows`` at which all of it would be printed, about;
    None if all is.
    """
    # of all lines, NaN for those that are refused
    covariance: Array = field(repr=False)
    determined: KnownSums | None = field(default=None, repr=False)
    """What is known though some lines are refused: None if none is, or if all of the table is."""
    odds: bool = True  # coefficients are log-odds
    weighed: str = ""  # :attr:`sottovoce.answers.terms.Naming.weighed`
    at_bounds: dict[str, Any] | None = None
    """Clipped targets in a number's table:
    :func:`sottovoce.answers.bounds_reached.estimate_targets_at_bounds`.
    """
    clusters: str = ""  # :attr:`sottovoce.answers.terms.Naming.clusters`
    undivided: KnownSums | None = field(default=None, repr=False)
    """What is known of lines that are lost; None if none is."""
    few: FewOutcomes | None = field(default=None, repr=False)
    """Groups with few rows of the rarer outcome, towards which intervals are longer."""

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain data; without odds ratios unless coefficients are log-odds."""
        lines = [line.to_dict() for line in self.lines]
        if self.odds:
            return lines
        return [
            {key: value for key, value in line.items() if not key.startswith("odds_ratio")}
            for line in lines
        ]

    def to_plain_data(self) -> dict[str, Any]:
        """Return the whole table as plain data; ``covariance`` has None where a line is refused."""
        covariance = self.covariance.astype(object)
        covariance[np.isnan(self.covariance)] = None  # JSON has no NaN
        plain: dict[str, Any] = {
            "coefficients": self.to_dict(),
            "covariance": covariance.tolist(),
            "strain": self.strain,
            "needs": self.needs,
            "weighed": self.weighed,
            "clusters": self.clusters,
            "undivided": _optional_plain(self.undivided),
            "determined": _optional_plain(self.determined),
            "few_outcomes": _optional_plain(self.few),
        }
        if self.at_bounds is not None:
            plain["at_bounds"] = self.at_bounds
        return plain

    @classmethod
    @refusing_foreign_documents()
    def from_plain_data(cls, plain: Mapping[str, Any]) -> Coefficients:
        """Construct a table from plain data of :meth:`to_plain_data`, such as a record of
        ``run.json``.

        Raises
        ------
        InvalidInput
            If it has no covariance, or is not of this version's form.
        """
        if "covariance" not in plain:
            rule = "holds no covariance of its coefficients, so it has no intervals"
            remedy = "train with --inference, in this version"
            raise InvalidInput("run", None, rule, remedy)
        lines = tuple(_line_from_plain(one) for one in plain["coefficients"])
        few = None
        if plain["few_outcomes"] is not None:
            few = FewOutcomes.from_plain_data(plain["few_outcomes"], len(lines))
        return cls(
            lines=lines,
            strain=float(plain["strain"]),
            needs=plain["needs"],
            covariance=np.array(plain["covariance"], dtype=float),
            # Tables of numbers are written without odds ratios.
            odds=any("odds_ratio" in one for one in plain["coefficients"]),
            weighed=plain["weighed"],
            at_bounds=plain.get("at_bounds"),
            clusters=plain["clusters"],
            undivided=_optional_sums(plain["undivided"]),
            determined=_optional_sums(plain["determined"]),
            few=few,
        )

    def __len__(self) -> int:
        return len(self.lines)

    def conf_int(self, alpha: float = 1.0 - LEVEL) -> Array:
        """Return confidence intervals of all lines.

        Parameters
        ----------
        alpha : float
            One minus the confidence level, in (0, 1).

        Returns
        -------
        array (lines, 2)
            NaN for refused lines; one infinite end for lines of which one end is known.

        Raises
        ------
        InvalidInput
            If `alpha` is not inside (0, 1).
        """
        ends = self.sums(np.eye(len(self)), alpha)
        # A refused line stays NaN, even where it is known as a sum of other comparisons.
        shown = [line.refused is None or line.one_sided is not None for line in self.lines]
        known = np.array(shown, dtype=bool)
        return np.where(known[:, None], ends, np.nan)

    def contrast(self, weights: Mapping[str, float], alpha: float = 1.0 - LEVEL) -> Contrast:
        """Estimate a weighted sum of coefficients, with its interval; it costs no budget.

        Refused lines may take part if the sum does not depend on what is not known of them: two
        levels can be compared though noise hides the reference of both.

        Parameters
        ----------
        weights : mapping of str to float
            Weights by coefficient's name.
        alpha : float
            One minus the confidence level, in (0, 1).

        Returns
        -------
        Contrast

        Raises
        ------
        InvalidInput
            If there is no coefficient of a name, a weight is not a finite number, all weights are
            0, the sum depends on what is refused, or `alpha` is not inside (0, 1).

        Examples
        --------
        The difference of two levels' log-odds::

            table.contrast({"stage: 3": 1, "stage: 2": -1})
        """
        _check_alpha(alpha)
        _check_weights(weights)
        positions = _line_positions(self.lines, list(weights), refused=True)
        c = np.zeros(len(self.lines))
        c[positions] = list(weights.values())
        # Without `few` the interval is even to both sides, so its middle is the estimate and its
        # half the standard error.
        least, most = self._intervals_of_sums(c[None], alpha, None)[0]
        if not (math.isfinite(least) and math.isfinite(most)):
            raise _unknown_contrast([self.lines[k] for k in positions])
        estimate = 0.5 * (least + most)
        error = 0.5 * (most - least) / -normal.normal_quantile(alpha / 2.0)
        low, high = self.sums(c[None], alpha)[0]
        # p follows from the interval at `LEVEL`, whatever alpha is.
        p = _p_from_interval(estimate, *self.sums(c[None])[0])
        return Contrast(estimate, error, low, high, p)

    def wald(self, names: str | Sequence[str]) -> Wald:
        """Test jointly that coefficients are zero (Wald); it costs no budget.

        Parameters
        ----------
        names : str or sequence of str
            Coefficients' names; the name of a column stands for all of its levels.

        Returns
        -------
        Wald

        Raises
        ------
        InvalidInput
            If no name is given, there is no coefficient of a name, it is refused, or one is named
            twice.
        """
        if isinstance(names, str):
            names = [names]
        asked = list(names)
        if not asked:
            raise InvalidInput(
                "names", None, "must name at least one coefficient", "give a coefficient's name"
            )
        texts = list[str]()
        for name in asked:
            lines_of_column = [x.term.text for x in self.lines if x.term.name == name]
            # what is no column's name may be that of a single line, such as "stage: b"
            texts += lines_of_column or [name]
        which = _line_positions(self.lines, texts)
        if len(set(which)) < len(which):
            rule = "must not name a coefficient twice (a column's name stands for all its levels)"
            raise InvalidInput("names", asked, rule, "name each once")
        b = np.array([self.lines[k].estimate for k in which], dtype=float)
        covariance = self.covariance[np.ix_(which, which)]
        statistic = float(b @ np.linalg.solve(covariance, b))
        p = float(special.chdtrc(len(which), statistic))
        return Wald(statistic, len(which), p)

    def between_sites(self, alpha: float = 1.0 - LEVEL) -> Between:
        """Estimate random effects of the sites' own constants; it costs no budget.

        Returns
        -------
        Between
            ``mean`` of the constants, ``sd`` between sites, how far ``apart`` from their average
            one more may be, and ``sites``, each drawn towards the mean; intervals have level ``1 -
            alpha``, and ``p`` is of no difference.

        Raises
        ------
        InvalidInput
            If fewer than three sites have constants of their own that are printed.
        """
        _check_alpha(alpha)
        return self.site_constants.random_effects(alpha)

    @property
    def site_constants(self) -> SiteConstants:
        """The printed constants of single sites, with their covariance."""
        which = list[int]()
        for k, line in enumerate(self.lines):
            # the level of a constant is the name of its site
            of_site = line.term.name == CONSTANT and line.term.level is not None
            if of_site and line.refused is None:
                which.append(k)
        effects = np.array([self.lines[k].estimate for k in which], dtype=float)
        return SiteConstants(effects, self.covariance[np.ix_(which, which)])

    def sums(self, weights: Array, alpha: float = 1.0 - LEVEL) -> Array:
        """Return confidence intervals of weighted sums of lines; it costs no budget.

        Parameters
        ----------
        weights : array (n, lines)
            One sum a row.
        alpha : float
            One minus the confidence level, in (0, 1).

        Returns
        -------
        array (n, 2)
            NaN for a sum that depends on what is refused.  One end is infinite where a group of
            rows without the rarer outcome takes part.

        Raises
        ------
        InvalidInput
            If `alpha` is not inside (0, 1).
        """
        _check_alpha(alpha)
        return self._intervals_of_sums(weights, alpha, self.few)

    def _intervals_of_sums(self, weights: Array, alpha: float, few: FewOutcomes | None) -> Array:
        """Compute :meth:`sums`; without `few` they are even to both sides."""
        shown = [k for k, line in enumerate(self.lines) if not line.refused]
        printed = np.full(len(self.lines), math.nan)
        printed[shown] = np.array([self.lines[k].estimate for k in shown], dtype=float)
        ends = np.full((len(weights), 2), math.nan)
        # What printed lines tell goes first; sums that they do not tell may be known otherwise.
        for known in (KnownSums(printed, self.covariance), self.undivided, self.determined):
            left = np.isnan(ends).any(axis=1)
            if known is not None and left.any():
                ends[left] = known.intervals_of_sums(weights[left], alpha, few)
        return ends

    def __getitem__(self, k: Any) -> Any:
        return self.to_dict()[k]

    def remark(self) -> str:
        """Return sentences on refusals, and on what intervals assume; empty without any."""
        taken = {"weighed": self.weighed, "at_bounds": self.at_bounds, "clusters": self.clusters}
        return remarks_below_table(self.to_dict(), self.needs, assumption_sentences(taken))

    def __str__(self) -> str:
        lines = self.to_dict()
        return f"{format_text_table(lines)}\n{self.remark()}".rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render_for_notebook(table=coefficient_table(self.to_dict()), remark=self.remark())


def _optional_plain(part: KnownSums | FewOutcomes | None) -> dict[str, Any] | None:
    """Return a part of the table as plain data; None if the table does not have it."""
    if part is None:
        return None
    return part.to_plain()


def _optional_sums(plain: Mapping[str, Any] | None) -> KnownSums | None:
    """Construct known sums from plain data; None if the table has none."""
    if plain is None:
        return None
    return KnownSums.from_plain(plain)


def _line_from_plain(plain: Mapping[str, Any]) -> Coefficient:
    """Construct a line from plain data of :meth:`Coefficient.to_dict`."""
    typical = None
    if plain["typical"] is not None:
        typical = tuple(plain["typical"])
    term = Term(
        plain["name"],
        plain["level"],
        plain["reference"],
        plain["unit"],
        typical,
        plain["steps"],
    )
    return Coefficient(
        term,
        estimate=plain["estimate"],
        standard_error=plain["standard_error"],
        noise_share=plain["noise_share"],
        low=plain["low"],
        high=plain["high"],
        p=plain["p"],
        unsure=plain["unsure"],
        refused=plain["refused"],
        cause=plain["cause"],
    )


def _unknown_contrast(lines: Sequence[Coefficient]) -> InvalidInput:
    """Return why a sum of these lines has no interval: it depends on those that are refused."""
    hidden = [line for line in lines if line.refused is not None]
    names = [line.term.text for line in hidden]
    if all(line.cause == Cause.LOST.value for line in hidden):
        rule = "have no estimates of their own, because the columns do not identify them singly"
        remedy = "leave them out, or choose weights for which only their joint effect counts"
        return InvalidInput("names", names, rule, remedy)
    rule = "has no estimate (it is refused in the table), and the sum depends on it"
    return InvalidInput("names", names[0], rule, "leave it out")


def _line_positions(
    lines: Sequence[Coefficient], names: Sequence[str], *, refused: bool = False
) -> list[int]:
    """Return the positions of printed lines by name, and with `refused` of all lines."""
    known = {line.term.text: k for k, line in enumerate(lines)}
    for name in names:
        if name not in known:
            raise InvalidInput(
                "names", name, "is not a coefficient of this table", f"use one of {sorted(known)}"
            )
        if lines[known[name]].refused is not None and not refused:
            raise InvalidInput(
                "names", name, "has no estimate: it is refused in the table", "leave it out"
            )
    return [known[name] for name in names]


def add_site_effects(plain: dict[str, Any]) -> dict[str, Any]:
    """Add ``between_sites`` to a run's record, if three or more sites have printed constants.

    InvalidInput if it is no run's record.
    """
    if not plain.get("coefficients") or "covariance" not in plain:
        return plain
    with refusing_foreign_documents():
        found = Coefficients.from_plain_data(plain)
        if found.site_constants.count < FEWEST:
            return plain
        return plain | {"between_sites": found.between_sites()._asdict()}


def _p_from_interval(estimate: float, low: float, high: float) -> float:
    """Compute p from an interval at `LEVEL`, by its length on the side of 0.

    p is below 1 - `LEVEL` if 0 is outside the interval.
    """
    if estimate > 0.0:
        length = estimate - low
    else:
        length = high - estimate
    error = length / -normal.normal_quantile((1.0 - LEVEL) / 2.0)
    if error > 0.0:
        return normal.two_sided_tail(estimate / error)
    return 0.0


def _check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights of which there is no sum to estimate."""
    for name, weight in weights.items():
        if not (isinstance(weight, numbers.Real) and math.isfinite(weight)):
            rule = f"the weight of {name!r} must be a finite number"
            raise InvalidInput("weights", weight, rule, "use 1.0")
    if not any(weights.values()):
        remedy = "give one coefficient a weight, such as 1.0"
        raise InvalidInput("weights", dict(weights), "must not all be 0", remedy)


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise InvalidInput("alpha", alpha, "must be inside (0, 1)", "use 0.05")


class _Judged(NamedTuple):
    """Estimates, steps and variances of one replicate's lines, in user's units, (lines,).

    Parameters
    ----------
    estimate : array
    covariance : array (lines, lines)
        With what the last step may have left undone.
    sampling : array
        Variance that is there without privacy noise, too.
    by_model : array
        The same by the Hessian alone, as if the model were right; infinite for a quadratic.
    noise : array
        Variance by privacy noise.
    step, before : array
        The last step, and the one before it; zeros if there was none.
    undone : array
        What a step as long as the last one may have left of a level.
    levels : bool array
        The lines of levels.
    """

    estimate: Array
    covariance: Array
    sampling: Array
    by_model: Array
    noise: Array
    step: Array
    before: Array
    undone: Array
    levels: BoolArray

    @property
    def total_variance(self) -> Array:
        """Variances of the lines, (lines,)."""
        return np.diag(self.covariance)

    @property
    def excess_over_sampling(self) -> Array:
        """Noise over sampling: with more rows it falls as one over their number.

        What noise leaves of the released squares of slopes may be next to nothing; the Hessian then
        tells the sampling.
        """
        return self.ratio_to_sampling(self.total_variance - self.sampling)

    def ratio_to_sampling(self, variances: Array) -> Array:
        """Compute the ratio of variances (lines,) to those of sampling; 0 without sampling."""
        sampling = np.maximum(self.sampling, self.by_model)
        return np.divide(variances, sampling, out=np.zeros_like(sampling), where=sampling > 0.0)

    @property
    def noise_share(self) -> Array:
        """Share of the variance that is not sampling; 0 without noise."""
        total = self.total_variance
        sampling_share = np.divide(self.sampling, total, out=np.ones_like(total), where=total > 0.0)
        rest = 1.0 - sampling_share
        return np.where(self.noise > 0.0, np.clip(rest, 0.0, 1.0), 0.0)

    @property
    def still_moving(self) -> BoolArray:
        """Lines whose steps have not converged: the last is longer than its noise, and no shorter.

        Where a coefficient has no end, each step is as long as the one before (in log-odds about
        1), and near an end each is about the square of it.  Of a level it is enough that most of
        its variance is what that step may have left undone, or that nobody knows how much that is;
        of a constant it is not, as rows may be far from where all columns are 0.
        """
        size = np.abs(self.step)
        noise = CHANCE * np.sqrt(self.noise)
        long = size > LONG * np.sqrt(self.sampling)
        # Separation: the step goes on in the same direction, nearly as far as the one before.
        on = self.step * np.sign(self.before) > STEADY * np.abs(self.before)
        steady = long & on & (np.abs(self.before) > noise)
        variance = np.maximum(self.total_variance, self.undone**2 + self.sampling + self.noise)
        mostly_undone = self.undone**2 > MOSTLY * variance
        left = self.levels & ((size > LONGEST) | mostly_undone)
        return (size > noise) & (steady | left)


def _judge_lines(
    found: Estimates, naming: Naming, into_lines: Array, groups: Undetermined | None, replicate: int
) -> _Judged:
    """Compute the numbers of one replicate's lines: ``into_lines`` times coefficients."""
    M = into_lines
    estimate = M @ found.estimate[replicate]
    # Units may be as small as one likes.
    with np.errstate(over="ignore", invalid="ignore"):
        covariance = M @ found.covariance[replicate] @ M.T
        sampling = np.einsum("ij,jk,ik->i", M, found.sampling[replicate], M)
        noise = np.einsum("ij,jk,ik->i", M, found.noise[replicate], M)
    encoded_step = found.estimate[replicate] - found.at[replicate]
    step = M @ encoded_step
    none = np.zeros(len(M))
    if found.quadratic:
        # A step of a quadratic leaves nothing undone, and the spread of residuals is known by
        # their squares alone, not by the Hessian.
        return _Judged(
            estimate=estimate,
            covariance=covariance,
            sampling=sampling,
            by_model=none + math.inf,
            noise=noise,
            step=none,
            before=none,
            undone=none,
            levels=none > 0.0,
        )
    one = slice(replicate, replicate + 1)
    inverse, _ = inverse_where_known(found.hessian[one], found.kept[one], np.zeros(1))
    turned = M @ found.frame[replicate]
    by_model = np.einsum("ij,jk,ik->i", turned, inverse[0], turned) / found.rows
    before = none
    if found.moved is not None:
        before = M @ found.moved[replicate]
    levels = np.array([term.level is not None for term in naming.terms]) & ~_constant_lines(naming)
    undone = missing = np.zeros((0, len(M)))
    if groups is not None:
        by_columns = _undone_by_group(found, naming, groups, encoded_step, replicate)
        undone, missing = (part @ M.T for part in by_columns)
    covariance = covariance + undone.T @ undone + missing.T @ missing
    # A line that several columns decide together is still on its way though no group of rows is.
    may_be = np.hypot(step, np.sqrt(np.maximum(noise, 0.0)))
    return _Judged(
        estimate=estimate,
        covariance=covariance,
        sampling=sampling,
        by_model=by_model,
        noise=noise,
        step=step,
        before=before,
        undone=np.where(levels, bound_undone_step(may_be), 0.0),
        levels=levels,
    )


def _find_lost_lines(
    found: Estimates, naming: Naming, into_lines: Array, replicate: int
) -> LostLines:
    """Find the lines of a map (lines, d) that the rows do not tell, whatever the epsilon."""
    none = np.zeros(len(naming.terms), dtype=bool)
    if found.directions is None:
        return LostLines(
            turned=none,
            unclear=none,
            relations=(),
            hidden=(),
            directions=np.empty((0, len(none))),
            noiseless=True,
        )
    constants = _constant_lines(naming)
    lost = find_lost_lines(found.directions.for_replicate(replicate), into_lines, constants)
    # Columns of merged levels are empty, and their lines have a cause of their own.
    return lost._replace(turned=lost.turned & ~_merged_lines(found, naming, replicate))


def _constant_lines(naming: Naming) -> BoolArray:
    """Return the lines that are constants, (lines,)."""
    return np.array([term.name == CONSTANT for term in naming.terms])


def _merged_lines(found: Estimates, naming: Naming, replicate: int) -> BoolArray:
    """Return lines of merged levels, and of small sites, (lines,)."""
    of_levels_and_sites = (naming.marks > 0.0) | (naming.constant > 0.0)
    return np.asarray(~found.kept[replicate] & of_levels_and_sites)


def _undone_by_group(
    found: Estimates, naming: Naming, groups: Undetermined, step: Array, replicate: int
) -> tuple[Array, Array]:
    """Return what the last step left undone, and missing sampling error, by group, (groups, d).

    Both move the coefficients by the group's direction, whatever level they are compared with.  The
    step of a group is how far it shifts the margins of its rows, in the mean by their curvature, so
    that rows of which the outcome is all but certain do not count.  It is known but for its noise.
    The sampling variance of a group's log-odds is one over ``n p (1 - p)`` at least, with its rows
    n and share p; a curvature from before the last steps may promise less.
    """
    assert found.evidence is not None
    whole = groups.groups.whole
    directions = groups.groups.directions[whole]
    # In the columns of the evidence, which has one constant where sites were asked apart.
    into_all = found.evidence_columns(naming)
    own = directions @ into_all
    of_constants = (groups.groups.blocks[whole] == 0.0) & ~groups.groups.all_rows[whole]
    of_a_site = of_constants & bool(found.of_sites)
    own[of_a_site] = np.eye(own.shape[1])[-1] / naming.value
    back = found.evidence.back[replicate]
    inside = own @ back
    hessian = found.hessian[replicate][: len(back), : len(back)]
    along = inside @ hessian
    curvature = np.sum(along * inside, axis=1)
    hidden = CHANCE * found.hessian_noise[replicate] * np.sum(inside**2, axis=1)
    # Of a group whose curvature noise hides the step may be as long as one likes.
    there = curvature > np.maximum(hidden, _NO_CURVATURE)
    # The mean row of a group, weighted by curvature.
    means = np.divide(
        along @ back, curvature[:, None], out=np.zeros_like(own), where=there[:, None]
    )
    constants = np.flatnonzero(naming.constant > 0.0)
    of_constant = means[of_a_site, -1:] * (directions[of_a_site][:, constants] > 0.0)
    means = means @ into_all.T
    means[np.ix_(of_a_site, constants)] = of_constant
    noise = np.einsum("gi,ij,gj->g", means, found.noise[replicate], means)
    sampling = np.einsum("gi,ij,gj->g", means, found.sampling[replicate], means)
    # Noise may have hidden a part of the step: its variance counts with the step's square.
    seen = np.hypot(means @ step, np.sqrt(np.maximum(noise, 0.0)))
    may_be = np.where(there, seen, LONGEST)
    undone = bound_undone_step(may_be)[:, None] * directions
    rows, rarer = groups.rows[whole], groups.rarer[whole]
    counted = there & (rarer > 0.0) & (rarer < rows)
    # 1 / (n p (1 - p)), with p = rarer / rows
    least = np.divide(rows, rarer * (rows - rarer), out=np.zeros_like(rows), where=counted)
    # Counts weigh sites by their noise, as if there were fewer rows than those that the estimate
    # follows from.
    least = np.where(of_a_site, least, least * found.evidence.rows / found.rows)
    missing = np.sqrt(np.where(counted, np.maximum(least - sampling, 0.0), 0.0))
    return undone, missing[:, None] * directions


def _is_size_hidden(
    found: Estimates, naming: Naming, groups: Undetermined | None, replicate: int
) -> bool:
    """Return whether noise hides the size of all effects together.

    Levels that are refused for their own reasons are left out: the estimate of a level without the
    rarer outcome may be anything, and most of the size of all effects.
    """
    if found.room is None or found.room[replicate] >= ROOM:
        return False
    if groups is None or found.evidence is None or found.of_sites or not np.any(groups.one_outcome):
        return True
    # The room is computed again without these levels.
    columns = groups.groups.decided(np.eye(naming.d))
    of_levels = np.any(columns[groups.one_outcome], axis=0)
    one = slice(replicate, replicate + 1)
    law = fit_normal_rows(found.evidence.sharp_moments[one], naming.constant / naming.value)
    effects = found.estimate[one]
    if found.directions is not None:
        effects = found.directions.for_replicate(replicate).remove_lost_part(effects)
    slopes = found.kept[one] & (naming.constant == 0.0) & ~of_levels
    return bool(uncertainty_of_size(law, effects, found.covariance[one], slopes).room[0] < ROOM)


def _refusal_causes(
    found: Estimates,
    naming: Naming,
    into_lines: Array,
    judged: _Judged,
    groups: Undetermined | None,
    lost: LostLines,
    replicate: int,
) -> list[Cause | None]:
    """Return why each line of a map (lines, d) is refused, None for printed lines."""
    merged = _merged_lines(found, naming, replicate)
    # Lines that have a cause of their own do not refuse the whole table by their fragility.
    tau = np.where(merged | lost.turned, 0.0, found.fragility(into_lines)[replicate])
    none = certain = np.zeros(len(tau), dtype=bool)
    if groups is not None:
        none, certain = groups.lines(into_lines)
    whole = _refusal_of_table(found, naming, judged, groups, lost, tau, replicate)
    # The first of these that holds of a line is its cause.
    rules: list[tuple[BoolArray, Cause]] = [
        (merged & (naming.marks > 0.0), Cause.MERGED),
        (merged, Cause.SMALL_SITE),
        (lost.turned, Cause.LOST),
    ]
    if whole is not None:
        rules.append((np.ones(len(tau), dtype=bool), whole))
    rules += [
        (certain, Cause.SEPARATION),
        (~(tau <= TAU) | lost.unclear, Cause.NOISE),
        (judged.still_moving & (judged.noise < judged.sampling), Cause.UNFINISHED),
        (judged.still_moving, Cause.ASTRAY),
        (judged.excess_over_sampling > _LARGEST_EXCESS, Cause.NOISE),
    ]
    causes = list[Cause | None]()
    for k in range(len(tau)):
        causes.append(next((cause for holds, cause in rules if holds[k]), None))
    # A group without the rarer outcome is the cause of those lines only that nothing else refuses.
    if groups is not None:
        for line in np.flatnonzero(none).tolist():
            if causes[line] is None:
                causes[line] = groups.cause(into_lines, line)
    return causes


def _refusal_of_table(
    found: Estimates,
    naming: Naming,
    judged: _Judged,
    groups: Undetermined | None,
    lost: LostLines,
    tau: Array,
    replicate: int,
) -> Cause | None:
    """Return why the whole table is refused, or None; `tau` is the fragility of every line."""
    q = float(found.strain[replicate])
    # A strained table is printed, and flagged, only if noise hides none of its coefficients.
    if q > UNSURE or (q > SURE and not np.all(tau <= TAU)):
        mostly_sampling = float(judged.noise.sum()) < 0.5 * float(judged.total_variance.sum())
        # Where noise is the smaller part of the variances it is steps that have not come near.
        if math.isfinite(q) and mostly_sampling:
            return Cause.TABLE_UNFINISHED
        if lost.hidden:
            return Cause.TABLE_HIDDEN
        return Cause.TABLE_NOISE
    if _is_size_hidden(found, naming, groups, replicate):
        return Cause.SIZE_HIDDEN
    return None


def build_coefficient_table(
    found: Estimates, naming: Naming, replicate: int = 0, delta: float | None = None
) -> Coefficients:
    """Construct the table of one replicate, in the user's units, and decide which lines it refuses.

    Nothing is asked of the rows.

    Parameters
    ----------
    found : Estimates
        Outcome of the recipe, in encoded columns.
    naming : Naming
        The encoding, with the lines' names and units.
    replicate : int
        From 0 on.
    delta : float, optional
        Delta of the run: with it, refusals name the epsilon that would suffice.

    Returns
    -------
    Coefficients
    """
    M = naming.into_units
    strain = float(found.strain[replicate])
    groups: Undetermined | None = None
    few: FewOutcomes | None = None
    if found.evidence is not None:
        groups = found.undetermined(naming, replicate)
        few = select_few_outcomes(groups, M)
    judged = _judge_lines(found, naming, M, groups, replicate)
    lost = _find_lost_lines(found, naming, M, replicate)
    causes = _refusal_causes(found, naming, M, judged, groups, lost, replicate)
    needs = _requirements_of_table(found, M, judged, causes, replicate, delta)
    compared = _compare_with_pivots(found, naming, groups, causes, few, replicate)
    determined = None
    if compared is not None:
        determined = compared.determined
    low, high = ends_of_intervals(
        judged.estimate, judged.total_variance, np.eye(len(M)), 1.0 - LEVEL, few
    )
    lines = list[Coefficient]()
    for k, (term, cause) in enumerate(zip(naming.terms, causes, strict=True)):
        line = _line_by_comparison(term, compared, groups, naming, k, cause)
        if line is None:
            if cause is None:
                ends = float(low[k]), float(high[k])
                line = _printed_line(term, judged, k, *ends, strained=strain > SURE)
            else:
                line = _refused_line(term, cause, _refusal_text(cause, lost, k, naming, needs))
        lines.append(line)
    hidden = np.array([line.refused is not None for line in lines])
    return Coefficients(
        tuple(lines),
        strain,
        needs,
        covariance=np.where(hidden[:, None] | hidden, np.nan, judged.covariance),
        determined=determined,
        weighed=naming.weighed,
        clusters=naming.clusters,
        undivided=_sums_of_lost_lines(lost, judged, causes, hidden),
        few=few,
    )


def _refusal_text(
    cause: Cause, lost: LostLines, line: int, naming: Naming, needs: dict[str, float] | None
) -> str:
    """Return why a line is refused, and what would suffice."""
    text = cause.sentence + _refusal_detail(cause, lost, line, naming)
    if cause.is_caused_by_noise:
        text += _remedy_text(needs)
    return text


def _printed_line(
    term: Term, judged: _Judged, k: int, low: float, high: float, *, strained: bool
) -> Coefficient:
    """Construct line k with all its numbers."""
    estimate = float(judged.estimate[k])
    cause = None
    if strained:
        cause = Cause.STRAINED.value
    return Coefficient(
        term,
        estimate,
        standard_error=math.sqrt(judged.total_variance[k]),
        noise_share=float(judged.noise_share[k]),
        low=low,
        high=high,
        p=_p_from_interval(estimate, low, high),
        unsure=strained,
        cause=cause,
    )


def _line_by_comparison(
    term: Term,
    compared: _Compared | None,
    groups: Undetermined | None,
    naming: Naming,
    k: int,
    cause: Cause | None,
) -> Coefficient | None:
    """Return a line that comparisons decide: refused by its reference, or with one end.

    None for other lines.
    """
    if compared is None:
        return None
    share, ends = compared.shares[k], compared.ends[k]
    if share is not None:
        # Noise may make a share negative.
        percent = max(0.0, 100.0 * share)
        why = f"{Cause.REFERENCE.sentence}; it has about {percent:.1f}% of the rows"
        return _refused_line(term, Cause.REFERENCE, why)
    if cause is None or ends == (None, None):
        return None
    assert groups is not None
    cause = groups.cause(naming.into_units, k)
    return _refused_line(term, cause, f"{cause.sentence}; one end of its interval is known", *ends)


def _refused_line(
    term: Term, cause: Cause, why: str, low: float | None = None, high: float | None = None
) -> Coefficient:
    """Construct a line without an estimate, with one end of its interval at most."""
    return Coefficient(
        term,
        estimate=None,
        standard_error=None,
        noise_share=None,
        low=low,
        high=high,
        p=None,
        refused=why,
        cause=cause.value,
    )


class _Compared(NamedTuple):
    """Results of comparing levels with the most frequent ones, for a table with refused lines.

    Parameters
    ----------
    determined : KnownSums
    ends : sequence of (low, high)
        Of each line, if exactly one end is known; else both are None.
    shares : sequence of float or None
        Of a line that only its reference refuses, the reference's share of the rows.
    """

    determined: KnownSums
    ends: list[tuple[float | None, float | None]]
    shares: list[float | None]


def _compare_with_pivots(
    found: Estimates,
    naming: Naming,
    groups: Undetermined | None,
    causes: list[Cause | None],
    few: FewOutcomes | None,
    replicate: int,
) -> _Compared | None:
    """Compare levels with the most frequent one of each block in place of its reference.

    None if all lines are printed, or if no sum of them is known.
    """
    if found.moments is None or not _leaves_known_sums(causes):
        return None
    kept, moments = found.kept[replicate], found.moments[replicate]
    blocks = blocks_of(naming.marks, naming.blocks, naming.constant, naming.value, moments)
    one_outcome = _levels_of_one_outcome(groups, naming.d, len(blocks))
    T, pivot_of = pivots(naming, kept, moments, *one_outcome)
    hidden = no_groups(naming.d)
    # Evidence of sites' own answers is of rows with one constant.
    if groups is not None and found.evidence is not None and not found.of_sites:
        seen = found.evidence.of(replicate)
        hidden = collect_hidden_groups(naming, groups, seen, found.estimate[replicate], T)
    # Each pivot is judged as a line of the table is.
    into_pivots = T @ naming.into_units
    judged = _judge_lines(found, naming, into_pivots, groups, replicate)
    lost = _find_lost_lines(found, naming, into_pivots, replicate)
    pivot_causes = _refusal_causes(found, naming, into_pivots, judged, groups, lost, replicate)
    refused = np.array([cause is not None for cause in pivot_causes])
    in_groups = np.zeros(naming.d, dtype=bool)
    if groups is not None:
        in_groups, _ = groups.lines(into_pivots)
    estimate = np.where(refused, np.nan, judged.estimate)
    covariance = np.where(refused[:, None] | refused, np.nan, judged.covariance)
    determined = KnownSums(estimate, covariance, pivots=T, hidden=hidden)
    hides = _references_that_hide(pivot_of, in_groups, pivot_causes)
    shares: list[float | None] = [None] * naming.d
    for block, pivot in zip(blocks, hides, strict=True):
        if pivot is None:
            continue
        merged = merged_reference(block, kept) is not None
        for k in _refused_by_reference(block, naming, pivot, refused):
            if merged or causes[k] is not None:
                shares[k] = block.reference
    return _Compared(determined, _one_sided_ends(determined, naming.d, few), shares)


def _leaves_known_sums(causes: Sequence[Cause | None]) -> bool:
    """Return True if some lines are refused, and the table as a whole is not."""
    refusals = {cause for cause in causes if cause is not None}
    return bool(refusals) and refusals.isdisjoint(_OF_ALL)


def _references_that_hide(
    pivot_of: Sequence[int | None], in_groups: BoolArray, pivot_causes: Sequence[Cause | None]
) -> list[int | None]:
    """Return the pivot of each block whose reference hides its levels; None for other blocks."""
    hides: list[int | None] = []
    for pivot in pivot_of:
        # The pivot compares the reference with the most frequent level: if it is printed, or
        # refused for what the data are, the reference hides nothing.
        if pivot is None or in_groups[pivot] or pivot_causes[pivot] in (None, Cause.LOST):
            hides.append(None)
        else:
            hides.append(pivot)
    return hides


def _levels_of_one_outcome(
    groups: Undetermined | None, lines: int, blocks: int
) -> tuple[BoolArray, BoolArray]:
    """Return the levels, and the references, whose rows may all have one outcome."""
    levels, references = np.zeros(lines, dtype=bool), np.zeros(blocks, dtype=bool)
    if groups is not None:
        own = groups.one_outcome
        of_reference = groups.groups.columns < 0
        levels[groups.groups.columns[own & ~of_reference]] = True
        references = own[of_reference]
    return levels, references


def _one_sided_ends(
    known: KnownSums, lines: int, few: FewOutcomes | None
) -> list[tuple[float | None, float | None]]:
    """Return the known end of lines with exactly one, None for all other ends."""
    found = list[tuple[float | None, float | None]]()
    for low, high in known.intervals_of_sums(np.eye(lines), 1.0 - LEVEL, few).tolist():
        has_low, has_high = math.isfinite(low), math.isfinite(high)
        if has_low and not has_high:
            found.append((low, None))
        elif has_high and not has_low:
            found.append((None, high))
        else:
            found.append((None, None))
    return found


def _refused_by_reference(
    block: Block, naming: Naming, pivot: int, refused: BoolArray
) -> list[int]:
    """Return lines of a block, and constants, that only the reference refuses."""
    constants = np.flatnonzero(naming.constant > 0.0)
    lines = [*block.columns.tolist(), *constants.tolist()]
    return [k for k in lines if k == pivot or not refused[k]]


def _sums_of_lost_lines(
    lost: LostLines, judged: _Judged, causes: Sequence[Cause | None], hidden: BoolArray
) -> KnownSums | None:
    """Return the sums that are known of lost lines; None without lost lines."""
    if Cause.LOST not in causes:
        return None
    # Lost lines keep their estimates: sums that do not turn into lost directions are known.
    other = hidden & np.array([cause is not Cause.LOST for cause in causes])
    covariance = np.where(other[:, None] | other, np.nan, judged.covariance)
    estimate = np.where(other, np.nan, judged.estimate)
    return KnownSums(estimate, covariance, directions=lost.directions, noiseless=lost.noiseless)


def _refusal_detail(cause: Cause, lost: LostLines, line: int, naming: Naming) -> str:
    """Return which columns a refusal concerns, and the remedy, as the end of a sentence.

    Empty if the refusal needs none.
    """
    names = [term.text for term in naming.terms]
    constants = _constant_lines(naming)

    def describe(relation: Relation) -> str:
        return describe_relation(relation, names, constants, sites=bool(naming.sites))

    relation = lost.relation_of_line(line)
    if cause is Cause.LOST and relation is not None:
        return f": {describe(relation)}; {describe_remedy(relation, constants)}"
    if cause is Cause.TABLE_HIDDEN:
        return f": it may be that {describe(lost.hidden[0])}, and then no epsilon would do"
    return ""


def bound_undone_step(step: Array) -> Array:
    """Bound the error that a step s of a level's log-odds may leave: ``-log(1 - |s|) - |s|``.

    That is about ``s^2 / 2``.  Where events are rare the odds of a level's rows are the exponential
    of their log-odds.  A step s < 0, from D too high, is then ``-(1 - exp(-D))``.  The strain of
    the table is a mean over all directions, and does not see one of them.
    """
    s = np.minimum(np.abs(step), LONGEST)
    return np.asarray(-np.log1p(-s) - s)


def _excess_by_noise(
    found: Estimates, judged: _Judged, M: Array, replicate: int, by_size: bool
) -> Array:
    """Compute noise over sampling of each line, (lines,), as far as less noise helps.

    Merged rows are distinguished then.  What a line lacks because noise hides the size of all
    effects has needs of its own, :func:`_requirements_of_size`.
    """
    if by_size:
        return judged.ratio_to_sampling(judged.noise)
    if found.of_merged is None:
        return judged.excess_over_sampling
    of_merged = np.einsum("ij,jk,ik->i", M, found.of_merged[replicate], M)
    excess = judged.total_variance - judged.sampling - of_merged
    return judged.ratio_to_sampling(np.maximum(excess, 0.0))


def _requirements_of_size(found: Estimates, replicate: int) -> SizeNeeds:
    """Return what would suffice where noise hides the size of all effects together."""
    assert found.own_room is not None and found.sampling_room is not None
    room, by_sampling = found.own_room[replicate], found.sampling_room[replicate]
    return size_needs(float(room), float(by_sampling), ROOM)


def _requirements(
    found: Estimates,
    M: Array,
    excess: Array,
    replicate: int,
    delta: float | None,
    of_size: SizeNeeds | None = None,
) -> dict[str, float] | None:
    """Compute the epsilon and the rows that would suffice.

    With less noise tau follows from the same matrices, and the strain q falls as ``(n mu)^-1``.
    `M` and `excess` (:attr:`_Judged.excess_over_sampling`) are of the lines that less noise would
    print.  An eigenvalue that noise hides may be as small as one likes: it is taken to be `HIDDEN`
    deviations, and ``more`` says that it was.  None if nothing is needed, and empty if a thousand
    times as many rows would not suffice.  Without ``epsilon`` if no epsilon would do.
    """
    if not len(M):
        return None
    strain = float(found.strain[replicate])
    held = found.fragility(M)[replicate] <= TAU
    printed = strain <= SURE and np.all(held) and np.all(excess <= _LARGEST_EXCESS)
    if of_size is None and printed:
        return None
    # elsewhere the noise in variances is itself mostly noise
    excess = np.where(held & (strain <= UNSURE), excess, 0.0)
    factor, more = _least_factor(found, M, excess, replicate)
    if factor is None:
        # A number beyond the last factor would only be that factor.
        return {}
    rows = shift = factor
    if of_size is not None:
        rows, shift = max(rows, of_size.rows), max(shift, of_size.shift)
        more = more or of_size.more
    needs = {"rows": round_up_two_digits(found.rows * rows)}
    if more:
        needs["more"] = 1.0
    if delta is not None and math.isfinite(found.scale * shift):
        needs["epsilon"] = round_up_two_digits(gaussian_epsilon(delta, found.scale * shift))
    return needs


def _least_factor(
    found: Estimates, M: Array, excess: Array, replicate: int
) -> tuple[float | None, bool]:
    """Find the least factor by which noise must fall for these lines to be printed.

    Returns None if none is enough, and whether noise hides an eigenvalue: then a still smaller one
    may be there, and more may be needed.
    """
    strain = float(found.strain[replicate])
    noise = float(found.hessian_noise[replicate])
    values, vectors = np.linalg.eigh(found.hessian[replicate])
    more = bool(values[0] <= noise) or not math.isfinite(strain)
    raised = (vectors * np.maximum(values, HIDDEN * noise)) @ vectors.T
    if not math.isfinite(strain):
        # Nothing is known of it: only `more` tells that more may be needed.
        strain = 0.0
    one = slice(replicate, replicate + 1)
    frame, kept = found.frame[one], found.kept[one]
    for factor in _FACTORS:
        tau = second_order_share(frame, raised[None], kept, np.array([noise / factor]), M)
        enough = strain / factor <= SURE and np.all(tau <= TAU)
        if enough and np.all(excess / factor <= _LARGEST_EXCESS):
            return float(factor), more
    return None, more


def _requirements_of_table(
    found: Estimates,
    M: Array,
    judged: _Judged,
    causes: Sequence[Cause | None],
    replicate: int,
    delta: float | None,
) -> dict[str, float] | None:
    """Return :func:`_requirements` of lines that are printed, or refused by noise."""
    noise_decides = np.array([cause is None or cause.is_caused_by_noise for cause in causes])
    of_size = None
    if Cause.SIZE_HIDDEN in causes:
        of_size = _requirements_of_size(found, replicate)
    excess = _excess_by_noise(found, judged, M, replicate, of_size is not None)
    return _requirements(found, M[noise_decides], excess[noise_decides], replicate, delta, of_size)


def _remedy_text(needs: dict[str, float] | None) -> str:
    """Return the epsilon or rows that would suffice, as the end of a sentence."""
    if needs is None:
        return ""
    if not needs:
        return "; even a thousand times as many rows would not suffice"
    if "more" in needs:
        return f"; {sufficient_budget_text(needs)} is needed"
    return f"; about {sufficient_budget_text(needs)} would be enough"


def round_up_two_digits(x: float) -> float:
    """Round a positive number up to two digits; from 1e12 on it stays."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    if x < 1e12:
        # less a rounding error, by which a number of two digits would be raised
        return math.ceil(x / unit * (1.0 - 1e-12)) * unit
    return x
