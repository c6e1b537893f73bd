"""The table of coefficients with confidence intervals, and which of its lines are refused.

A *line* is one coefficient in the user's units, or a level against its reference.  A line is
*refused*, and has no estimate, if noise or the data do not determine it; the refusal says why
(:class:`sottovoce.reports.causes.Cause`) and which epsilon or number of rows would suffice.
:func:`build_coefficient_table` makes the table from the outcome of an inference
(:class:`sottovoce.answers.inference.Estimates`); all of it follows from released numbers, so
neither the table nor contrasts, tests and predictions from it cost budget.  The rules are derived
in docs/privacy/answers.md, "Steps" (what is refused), "References", "Separation", "Lost
directions".

*Encoded* coefficients are those of encoded columns; the map ``into_units`` turns them into lines.
A *replicate* is one of several repetitions of a simulated run.  *Sampling* is the variance that an
estimate has without privacy noise.
"""

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
    RATIOS,
    assumption_sentences,
    coefficient_table,
    format_text_table,
    ratio_of,
    remarks_below_table,
    sufficient_budget_text,
)
from ..reports.plain import refusing_foreign_documents
from ..reports.worth import width_ratio_by_noise
from ..util import normal
from ..util.later import Later
from ..util.pages import render_for_notebook
from ..util.typing import Any, Array, BoolArray
from .between import Between, SiteConstants
from .concentrated import concentrated_numbers, with_concentrated
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
"""Longer steps of a level's log-odds count as this long in :func:`bound_undone_step`, which is
infinite at 1.
"""
CHANCE = 2.0
"""Noise deviations that a last step must exceed for steps to count as not converged."""
LONG = 2.0
"""Sampling errors that a last step must exceed to count as a long one."""
STEADY = 0.75
"""Ratio of a step to the one before, above which steps count as not converging: near an end each
step is about the square of the one before.
"""
MOSTLY = 0.5
"""A line is refused if more than this share of its variance is what the last step left undone."""
# With a limit of a half, most lines whose intervals cover would be refused: of the coefficients
# within reach on eight real tables it leaves 36% (docs/privacy/answers.md, "Separation").
MOST_NOISE = 0.99
"""Share of a variance that is not sampling, above which a line is refused: its interval is ten
times too wide.
"""
_LARGEST_EXCESS = MOST_NOISE / (1.0 - MOST_NOISE)
"""Noise over sampling variance, above which a line is refused: `MOST_NOISE` as a ratio."""
# A group with a smaller curvature has no rows.
_NO_CURVATURE = 1e-12
_OF_ALL = (Cause.TABLE_UNFINISHED, Cause.TABLE_NOISE, Cause.TABLE_HIDDEN, Cause.SIZE_HIDDEN)
"""Causes that refuse the whole table: no sum of its lines is known then."""
_OF_ROWS_ALONE = (Cause.SMALL_SITE.value, Cause.LOST.value)
"""Causes of a refused constant that are the same whatever its site's outcomes are."""
_OF_FEW_EVENTS = (Cause.HIDDEN.value, Cause.FEW.value)
"""Causes of a refused constant that has an estimate, though no interval of two ends."""
HIDDEN = 1.3
"""An eigenvalue that noise hides is taken to be this many noise deviations: the epsilon or rows
that a refusal names are then within a factor of 1.5 of the truth on most tables of
bench/accuracy/forecasts.py.
"""
# Candidate factors for the number of rows, or for sensitivity over sigma: up to 2^10.
_FACTORS = 2.0 ** (np.arange(1.0, 81.0) / 8.0)


@dataclass(frozen=True)
class Coefficient:
    """One line of the table: a coefficient in the user's units with its interval.

    A refused line has no estimate, and at most one end of an interval.
    """

    term: Term
    estimate: float | None
    standard_error: float | None
    noise_share: float | None  # share of the variance that is not sampling, in [0, 1]
    low: float | None  # ends of the interval of level `LEVEL`
    high: float | None
    p: float | None  # of the hypothesis that the coefficient is 0
    unsure: bool = False  # printed with a question mark
    refused: str | None = None  # the reason in words
    # code of the :class:`sottovoce.reports.causes.Cause` of a refusal or a question mark
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
        """Return the line as plain data, with odds ratios and the term's names."""
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
    """A weighted sum of coefficients with its confidence interval, and p of the sum being 0."""

    estimate: float
    standard_error: float
    low: float
    high: float
    p: float


class Wald(NamedTuple):
    """A joint test that coefficients are 0: chi squared with `df` degrees of freedom."""

    statistic: float
    df: int
    p: float


@dataclass(frozen=True)
class Coefficients(Sequence[dict[str, Any]]):
    """A table of coefficients: a sequence of dicts, as ``pandas.DataFrame`` takes it."""

    lines: tuple[Coefficient, ...]
    # Relative size of the last Newton step, q in docs/privacy/answers.md, "Steps": the table is
    # printed below `SURE`, flagged up to `UNSURE`, refused above.
    strain: float
    needs: dict[str, float] | None
    """The smallest ``epsilon`` or number of ``rows`` at which all of it would be printed, about;
    None if all is.  Empty if a thousand times as many rows would not be enough; with ``more`` if
    even more than this may be needed.
    """
    # (lines, lines); NaN for those that are refused
    covariance: Array = field(repr=False)
    determined: KnownSums | None = field(default=None, repr=False)
    """Sums of lines that are known by comparison with the most frequent levels, where some lines
    are refused; None if no line or the whole table is refused.
    """
    odds: bool = True  # coefficients are logarithms of ratios
    ratio: str = "odds_ratio"  # of what ratio: a key of lines as plain data
    weighed: str = ""  # :attr:`sottovoce.answers.terms.Naming.weighed`
    at_bounds: dict[str, Any] | None = None
    """Clipped targets in a number's table:
    :func:`sottovoce.answers.bounds_reached.estimate_targets_at_bounds`.
    """
    clusters: str = ""  # :attr:`sottovoce.answers.terms.Naming.clusters`
    undivided: KnownSums | None = field(default=None, repr=False)
    """Sums that are known of lines which columns do not identify singly; None without such
    lines.
    """
    few: FewOutcomes | None = field(default=None, repr=False)
    """Groups with few rows of the rarer outcome: intervals are longer towards still fewer."""
    all_sites: SiteConstants | None = field(default=None, repr=False)
    """The sites' constants, those that are refused for their few events too; None if there are no
    such sites.
    """

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain data; without ratios unless coefficients are their logarithms."""
        lines = [line.to_dict() for line in self.lines]
        if self.odds:
            return [
                {key.replace("odds_ratio", self.ratio): value for key, value in line.items()}
                for line in lines
            ]
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
        if self.all_sites is not None:
            plain["all_sites"] = self.all_sites.to_plain()
        if self.at_bounds is not None:
            plain["at_bounds"] = self.at_bounds
        return plain

    @classmethod
    @refusing_foreign_documents()
    def from_plain_data(cls, plain: Mapping[str, Any]) -> Coefficients:
        """Construct a table from :meth:`to_plain_data`, such as a record of ``run.json``.

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
        all_sites = None
        if plain.get("all_sites") is not None:
            all_sites = SiteConstants.from_plain(plain["all_sites"])
        ratio = ratio_of(plain["coefficients"])
        return cls(
            lines=lines,
            strain=float(plain["strain"]),
            needs=plain["needs"],
            covariance=np.array(plain["covariance"], dtype=float),
            # Tables of numbers are written without ratios.
            odds=ratio is not None,
            ratio=RATIOS[0].key if ratio is None else ratio.key,
            weighed=plain["weighed"],
            at_bounds=plain.get("at_bounds"),
            clusters=plain["clusters"],
            undivided=_optional_sums(plain["undivided"]),
            determined=_optional_sums(plain["determined"]),
            few=few,
            all_sites=all_sites,
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
            NaN for refused lines; lines with a one-sided interval have one infinite end.

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

        Refused lines may take part if the sum does not depend on what is unknown of them: two
        levels can be compared even if noise hides the reference of both.

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
        # Without `few` the interval is symmetric: its middle is the estimate, and its half length
        # is the standard error times the normal quantile.
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
        """Estimate how sites differ: random effects of the sites' constants; it costs no budget.

        Parameters
        ----------
        alpha : float
            One minus the confidence level, in (0, 1).

        Returns
        -------
        Between
            ``mean`` of the constants, ``sd`` between sites, how far ``apart`` from their average
            one more site may be, and ``sites``, each shrunk towards the mean; intervals have level
            ``1 - alpha``, and ``p`` is that of no difference between sites.

        Raises
        ------
        InvalidInput
            If fewer than three sites have constants of their own, or more than a third of these are
            refused for few events, or one for another reason than few events or few rows.
        """
        _check_alpha(alpha)
        return self.site_constants.random_effects(alpha)

    @property
    def site_constants(self) -> SiteConstants:
        """The sites' constants, as draws of a population."""
        if self.all_sites is not None:
            return self.all_sites
        terms = [line.term for line in self.lines]
        # Constants of hazards are those of intervals of time, and all sites share them.
        if self.ratio != RATIOS[0].key:
            terms = [Term(term.name) for term in terms]
        return _site_constants(
            terms,
            [line.cause if line.refused is not None else None for line in self.lines],
            np.array([line.estimate for line in self.lines], dtype=float),
            self.covariance,
        )

    def sums(self, weights: Array, alpha: float = 1.0 - LEVEL) -> Array:
        """Return confidence intervals of weighted sums of lines; it costs no budget.

        Parameters
        ----------
        weights : array (n, lines)
            Weights of the lines, one sum a row.
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
        """Compute :meth:`sums`, (n, 2); without `few` intervals are symmetric."""
        shown = [k for k, line in enumerate(self.lines) if not line.refused]
        printed = np.full(len(self.lines), math.nan)
        printed[shown] = np.array([self.lines[k].estimate for k in shown], dtype=float)
        ends = np.full((len(weights), 2), math.nan)
        # Sums of printed lines first; those that depend on refused lines may be known otherwise.
        for known in (KnownSums(printed, self.covariance), self.undivided, self.determined):
            unknown = np.isnan(ends).any(axis=1)
            if known is not None and unknown.any():
                ends[unknown] = known.intervals_of_sums(weights[unknown], alpha, few)
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
        """Return the table as HTML for a notebook."""
        return render_for_notebook(table=coefficient_table(self.to_dict()), remark=self.remark())


def _site_constants(
    terms: Sequence[Term],
    causes: Sequence[str | None],
    estimate: Array,
    covariance: Array,
    sampling: Array | None = None,
) -> SiteConstants:
    """Collect the sites' constants of a table; `causes` are those of refused lines, else None.

    Sites with few events are among them if the estimates of all lines are given, with their
    sampling variances.
    """
    which, weak, refused = list[int](), list[str](), list[str]()
    for k, (term, cause) in enumerate(zip(terms, causes, strict=True)):
        # the level of a constant is the name of its site
        if term.name != CONSTANT or term.level is None or cause in _OF_ROWS_ALONE:
            continue
        known = math.isfinite(estimate[k])
        if cause is None or (known and cause in _OF_FEW_EVENTS):
            which.append(k)
        else:
            refused.append(term.level)
        if known and cause in _OF_FEW_EVENTS:
            weak.append(term.level)
    part = covariance[np.ix_(which, which)]
    if sampling is not None:
        sampling = sampling[which]
    return SiteConstants(estimate[which], part, tuple(weak), tuple(refused), sampling)


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
    """Return the positions of lines by name; InvalidInput for an unknown or a refused one.

    With `refused` those may be named too.
    """
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
    """Return a run's record with ``between_sites``, if the table tells the population of sites.

    InvalidInput if `plain` is not a run's record.
    """
    if not plain.get("coefficients") or "covariance" not in plain:
        return plain
    with refusing_foreign_documents():
        found = Coefficients.from_plain_data(plain)
        if found.site_constants.unknown_spread_reason is not None:
            return plain
        return plain | {"between_sites": found.between_sites()._asdict()}


def _p_from_interval(estimate: float, low: float, high: float) -> float:
    """Compute p of the hypothesis 0 from an interval at `LEVEL`, by its length on the side of 0.

    So p is below 1 - `LEVEL` exactly if 0 is outside the interval, also of an asymmetric one.
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
    """Refuse (InvalidInput) weights that are not finite, and weights that are all 0."""
    for name, weight in weights.items():
        if not (isinstance(weight, numbers.Real) and math.isfinite(weight)):
            rule = f"the weight of {name!r} must be a finite number"
            raise InvalidInput("weights", weight, rule, "use 1.0")
    if not any(weights.values()):
        remedy = "give one coefficient a weight, such as 1.0"
        raise InvalidInput("weights", dict(weights), "must not all be 0", remedy)


def _check_alpha(alpha: float) -> None:
    """Refuse (InvalidInput) an alpha that is not inside (0, 1)."""
    if not 0.0 < alpha < 1.0:
        raise InvalidInput("alpha", alpha, "must be inside (0, 1)", "use 0.05")


class _Judged(NamedTuple):
    """Numbers of one replicate's lines in the user's units, by which lines are refused or printed.

    All but the covariance are (lines,).

    Parameters
    ----------
    estimate : array
    covariance : array (lines, lines)
        Including what the last Newton step may have left undone.
    sampling : array
        Variance that is there without privacy noise, too.
    by_model : array
        The same by the Hessian alone, as if the model were right; infinite for least squares.
    noise : array
        Variance by privacy noise.
    step, before : array
        The last Newton step, and the one before it; zeros if there was none.
    undone : array
        Bound on the error that a step as long as the last one leaves; 0 but for levels, and for
        numbers with a rare end.
    lengths : array
        What the log-odds of a group of rows move by if a line does by 1: 1 for a level, the length
        of a number with a rare end (:mod:`sottovoce.answers.concentrated`); 0 for other lines.
    """

    estimate: Array
    covariance: Array
    sampling: Array
    by_model: Array
    noise: Array
    step: Array
    before: Array
    undone: Array
    lengths: Array

    @property
    def total_variance(self) -> Array:
        """Variances of the lines, (lines,)."""
        return np.diag(self.covariance)

    @property
    def excess_over_sampling(self) -> Array:
        """Variance that is not sampling over that of sampling, (lines,).

        It falls as one over the number of rows, because the variance by noise falls as the square.

        Sampling is at least that by the Hessian, because noise may leave hardly anything of the
        released squares of slopes from which it is computed.
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
        """Lines whose last step shows that the estimate has not converged.

        A step must exceed its noise, and either go on in the direction of the step before and
        nearly as far, or, for a level, be longer than `LONGEST` or have left undone most of the
        variance.
        A coefficient without a finite maximum (separation) has steps of equal length, in log-odds
        about 1; near a maximum each step is about the square of the one before.  The second rule is
        not for constants, as rows may be far from where all columns are 0.
        """
        size = np.abs(self.step)
        noise = CHANCE * np.sqrt(self.noise)
        long = size > LONG * np.sqrt(self.sampling)
        same_direction = self.step * np.sign(self.before) > STEADY * np.abs(self.before)
        steady = long & same_direction & (np.abs(self.before) > noise)
        variance = np.maximum(self.total_variance, self.undone**2 + self.sampling + self.noise)
        mostly_undone = self.undone**2 > MOSTLY * variance
        far = self.lengths * size > LONGEST
        unfinished_group = (self.lengths > 0.0) & (far | mostly_undone)
        return (size > noise) & (steady | unfinished_group)


def _judge_lines(
    found: Estimates, naming: Naming, into_lines: Array, groups: Undetermined | None, replicate: int
) -> _Judged:
    """Compute the numbers of one replicate's lines: `into_lines` (lines, d) times coefficients.

    `groups` are those whose last steps add to the covariance what they left undone; None for none.
    """
    M = into_lines
    estimate = M @ found.estimate[replicate]
    # A column may have so small a unit that its coefficient overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        covariance = M @ found.covariance[replicate] @ M.T
        sampling = np.einsum("ij,jk,ik->i", M, found.sampling[replicate], M)
        noise = np.einsum("ij,jk,ik->i", M, found.noise[replicate], M)
    encoded_step = found.estimate[replicate] - found.at[replicate]
    step = M @ encoded_step
    zeros = np.zeros(len(M))
    if found.quadratic:
        # Least squares: one Newton step leaves nothing undone, and the spread of residuals is known
        # by their squares alone, not by the Hessian.
        return _Judged(
            estimate=estimate,
            covariance=covariance,
            sampling=sampling,
            by_model=zeros + math.inf,
            noise=noise,
            step=zeros,
            before=zeros,
            undone=zeros,
            lengths=zeros,
        )
    one = slice(replicate, replicate + 1)
    inverse, _ = inverse_where_known(found.hessian[one], found.kept[one], np.zeros(1))
    lines_in_frame = M @ found.frame[replicate]
    by_model = np.einsum("ij,jk,ik->i", lines_in_frame, inverse[0], lines_in_frame) / found.rows
    before = zeros
    if found.moved is not None:
        before = M @ found.moved[replicate]
    levels = np.array([term.level is not None for term in naming.terms]) & ~_constant_lines(naming)
    lengths = np.where(levels, 1.0, 0.0)
    undone = missing = np.zeros((0, len(M)))
    if groups is not None:
        by_columns = _undone_by_group(found, naming, groups, encoded_step, replicate)
        of_numbers = _undone_by_rare_end(found, groups, encoded_step, replicate)
        undone, missing = (
            np.vstack(both) @ M.T for both in zip(by_columns, of_numbers, strict=True)
        )
        lengths = lengths + _lengths_of_numbers(groups, M)
    covariance = covariance + undone.T @ undone + missing.T @ missing
    # By the line's own step too, as several columns together may move it though no group moves.
    may_be = np.hypot(step, np.sqrt(np.maximum(noise, 0.0)))
    return _Judged(
        estimate=estimate,
        covariance=covariance,
        sampling=sampling,
        by_model=by_model,
        noise=noise,
        step=step,
        before=before,
        undone=np.divide(
            bound_undone_step(lengths * may_be), lengths, out=zeros.copy(), where=lengths > 0.0
        ),
        lengths=lengths,
    )


def _find_lost_lines(
    found: Estimates, naming: Naming, into_lines: Array, replicate: int
) -> LostLines:
    """Find the lines of a map (lines, d) that the columns do not identify, whatever the epsilon."""
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
    # The columns of merged levels are empty too, but their lines have a cause of their own.
    return lost._replace(turned=lost.turned & ~_merged_lines(found, naming, replicate))


def _constant_lines(naming: Naming) -> BoolArray:
    """Return the lines that are constants, (lines,)."""
    return np.array([term.name == CONSTANT for term in naming.terms])


def _merged_lines(found: Estimates, naming: Naming, replicate: int) -> BoolArray:
    """Return the lines of merged levels and of sites whose constant was merged, (lines,)."""
    of_levels_and_sites = (naming.marks > 0.0) | (naming.constant > 0.0)
    return np.asarray(~found.kept[replicate] & of_levels_and_sites)


def _undone_by_group(
    found: Estimates, naming: Naming, groups: Undetermined, step: Array, replicate: int
) -> tuple[Array, Array]:
    """Return what the last step left undone, and missing sampling error, by group.

    A group is the rows of a level, of a reference or of a constant
    (:mod:`sottovoce.answers.separation`); an error of its log-odds moves the coefficients along its
    direction.  Its step is the mean shift of the margins of its rows, weighted by curvature, so
    that rows whose outcome is all but certain do not count.  The sampling variance of its log-odds
    is at least ``1 / (n p (1 - p))``, with n rows of which the share p has the rarer outcome; the
    Hessian, released before the last steps, may say less.

    Parameters
    ----------
    found : Estimates
    naming : Naming
    groups : Undetermined
        All groups with their counts.
    step : array (d,)
        The last step, of encoded coefficients.
    replicate : int

    Returns
    -------
    undone, missing : array (groups, d)
        Changes of encoded coefficients, whose outer products add to the covariance.
    """
    assert found.evidence is not None
    whole = groups.groups.whole
    directions = groups.groups.directions[whole]
    # In the columns of the evidence, which has one constant where sites were asked separately.
    into_all = found.evidence_columns(naming)
    evidence_directions = directions @ into_all
    of_constants = (groups.groups.blocks[whole] == 0.0) & ~groups.groups.all_rows[whole]
    of_a_site = of_constants & bool(found.of_sites)
    # The evidence has no column for a single site, so a site's direction is that of all rows.
    evidence_directions[of_a_site] = np.eye(evidence_directions.shape[1])[-1] / naming.value
    back = found.evidence.back[replicate]
    # The curvature v'H v of each group, with v in the frame of the Hessian.
    in_frame = evidence_directions @ back
    hessian = found.hessian[replicate][: len(back), : len(back)]
    along = in_frame @ hessian
    curvature = np.sum(along * in_frame, axis=1)
    hidden = CHANCE * found.hessian_noise[replicate] * np.sum(in_frame**2, axis=1)
    # Where noise hides a group's curvature its step is unknown, and counts as `LONGEST`.
    curvature_seen = curvature > np.maximum(hidden, _NO_CURVATURE)
    # The mean row of a group, weighted by curvature.
    means = np.divide(
        along @ back,
        curvature[:, None],
        out=np.zeros_like(evidence_directions),
        where=curvature_seen[:, None],
    )
    constants = np.flatnonzero(naming.constant > 0.0)
    # Back to the model's columns, where the constant of a group of a site is that site's.
    of_constant = means[of_a_site, -1:] * (directions[of_a_site][:, constants] > 0.0)
    means = means @ into_all.T
    means[np.ix_(of_a_site, constants)] = of_constant
    noise = np.einsum("gi,ij,gj->g", means, found.noise[replicate], means)
    sampling = np.einsum("gi,ij,gj->g", means, found.sampling[replicate], means)
    # Noise may have hidden a part of the step: its variance counts with the step's square.
    seen = np.hypot(means @ step, np.sqrt(np.maximum(noise, 0.0)))
    may_be = np.where(curvature_seen, seen, LONGEST)
    undone = bound_undone_step(may_be)[:, None] * directions
    rows, rarer = groups.rows[whole], groups.rarer[whole]
    counted = curvature_seen & (rarer > 0.0) & (rarer < rows)
    # 1 / (n p (1 - p)), with p = rarer / rows
    least = np.divide(rows, rarer * (rows - rarer), out=np.zeros_like(rows), where=counted)
    # Counts weigh sites by their noise, which amounts to fewer rows than the estimate's.
    least = np.where(of_a_site, least, least * found.evidence.rows / found.rows)
    missing = np.sqrt(np.where(counted, np.maximum(least - sampling, 0.0), 0.0))
    return undone, missing[:, None] * directions


def _undone_by_rare_end(
    found: Estimates, groups: Undetermined, step: Array, replicate: int
) -> tuple[Array, Array]:
    """Return what :func:`_undone_by_group` does, by the rare ends of numbers.

    The step of their log-odds is that of the number's coefficient times its length.
    """
    ends = groups.groups.rare_ends
    directions, columns = groups.groups.directions[ends], groups.groups.columns[ends]
    per_log_odds = directions[np.arange(len(columns)), columns]
    variances = np.maximum(np.diag(found.noise[replicate])[columns], 0.0)
    may_be = np.hypot(step[columns], np.sqrt(variances)) / np.abs(per_log_odds)
    undone = bound_undone_step(may_be)[:, None] * directions
    return undone, np.sqrt(groups.missing[ends])[:, None] * directions


def _lengths_of_numbers(groups: Undetermined, into_lines: Array) -> Array:
    """Return the length of each number with a rare end, (lines,), and 0 for other lines."""
    ends = groups.groups.rare_ends
    columns = groups.groups.columns[ends]
    moved = np.abs(groups.groups.directions[ends] @ into_lines.T)
    lengths = np.zeros(len(into_lines))
    lengths[columns] = 1.0 / moved[np.arange(len(columns)), columns]
    return lengths


def _is_size_hidden(
    found: Estimates, naming: Naming, groups: Undetermined | None, replicate: int
) -> bool:
    """Return true if noise hides the common size of all effects.

    Its error must be `ROOM` times smaller than the distance to where effects have no finite size.
    Levels that may lack the rarer outcome are left out, because their estimates may be anything and
    would be most of that size.
    """
    if found.room is None or found.room[replicate] >= ROOM:
        return False
    if groups is None or found.evidence is None or found.of_sites or not np.any(groups.one_outcome):
        return True
    # The same ratio again, without these levels.
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
) -> tuple[list[Cause | None], Cause | None]:
    """Return why each line of a map (lines, d) is refused, None for printed lines, and why the
    whole table is, None if it is not.
    """
    merged = _merged_lines(found, naming, replicate)
    # The fragility tau is the share that noise of the Hessian adds to a line's variance beyond
    # first order.  Lines with a cause of their own do not get the whole table refused by it.
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
    # A group without the rarer outcome is the cause only of lines that nothing else refuses.
    if groups is not None:
        for line in np.flatnonzero(none).tolist():
            if causes[line] is None:
                causes[line] = groups.cause(into_lines, line)
    return causes, whole


def _refusal_of_table(
    found: Estimates,
    naming: Naming,
    judged: _Judged,
    groups: Undetermined | None,
    lost: LostLines,
    tau: Array,
    replicate: int,
) -> Cause | None:
    """Return why the whole table is refused, or None; `tau` (lines,) is the lines' fragility."""
    q = float(found.strain[replicate])
    # A strained table is printed, and flagged, only if noise hides none of its coefficients.
    if q > UNSURE or (q > SURE and not np.all(tau <= TAU)):
        mostly_sampling = float(judged.noise.sum()) < 0.5 * float(judged.total_variance.sum())
        # If noise is the smaller part of the variances, it is the steps that have not converged.
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

    Everything follows from released numbers; no row is read.

    Parameters
    ----------
    found : Estimates
        Outcome of an inference, or of least squares with intervals, in encoded columns.
    naming : Naming
        The encoding, with the lines' names and units.
    replicate : int
        Number of the repetition of a simulated run, from 0 on.
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
        rare = concentrated_numbers(found, naming, replicate)
        groups = with_concentrated(found.undetermined(naming, replicate), rare, naming)
        few = select_few_outcomes(groups, M)
    judged = _judge_lines(found, naming, M, groups, replicate)
    lost = _find_lost_lines(found, naming, M, replicate)
    causes, whole = _refusal_causes(found, naming, M, judged, groups, lost, replicate)
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
    all_sites = None
    if any(line.cause in _OF_FEW_EVENTS for line in lines if line.term.name == CONSTANT):
        codes = [line.cause if line.refused is not None else None for line in lines]
        all_sites = _site_constants(
            naming.terms, codes, judged.estimate, judged.covariance, judged.sampling
        )
    # A table that is refused as a whole has no sums either: its estimates may be all noise, or 0
    # with a covariance of 0 where every direction is lost.
    undivided = None
    if whole is None:
        undivided = _sums_of_lost_lines(lost, judged, causes, hidden)
    return Coefficients(
        tuple(lines),
        strain,
        needs,
        covariance=np.where(hidden[:, None] | hidden, np.nan, judged.covariance),
        determined=determined,
        weighed=naming.weighed,
        clusters=naming.clusters,
        undivided=undivided,
        few=few,
        all_sites=all_sites,
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
    """Construct line k with all its numbers; a `strained` table gives it a question mark."""
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
    """Return line k if its reference refuses it, or if it has a one-sided interval; else None.

    `cause` is the one that the line has otherwise.
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
    """Construct a line without an estimate; `low` or `high` is the end of a one-sided interval."""
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
        The sums of lines that are known so.
    ends : list of (low, high), one for each line
        The interval of a line that is one-sided, with None for the other end; else two None.
    shares : list of float or None, one for each line
        For a line that only its reference refuses, the reference's share of the rows; else None.
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

    None if there is nothing to gain: all lines are printed, or the whole table is refused.
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
    # Each comparison with a pivot is judged as a line of the table is.
    into_pivots = T @ naming.into_units
    judged = _judge_lines(found, naming, into_pivots, groups, replicate)
    lost = _find_lost_lines(found, naming, into_pivots, replicate)
    pivot_causes, _ = _refusal_causes(found, naming, into_pivots, judged, groups, lost, replicate)
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
        # The line at `pivot` compares the reference with the most frequent level.  If it is
        # printed, or refused because of the data and not of noise, the reference hides nothing.
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
    """Return (low, high) of each line whose interval has exactly one end; (None, None) for others.

    The missing end is None.
    """
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
    """Return the lines of a block, and constants, that only the reference refuses.

    These are the line at `pivot`, and lines whose comparison with the pivot is not `refused`
    (lines,).
    """
    constants = np.flatnonzero(naming.constant > 0.0)
    lines = [*block.columns.tolist(), *constants.tolist()]
    return [k for k in lines if k == pivot or not refused[k]]


def _sums_of_lost_lines(
    lost: LostLines, judged: _Judged, causes: Sequence[Cause | None], hidden: BoolArray
) -> KnownSums | None:
    """Return the sums that are known of lost lines; None without lost lines."""
    if Cause.LOST not in causes:
        return None
    # Lost lines keep their estimates here: sums that do not change along lost directions are known.
    # Lines that are refused for other reasons do not.
    other = hidden & np.array([cause is not Cause.LOST for cause in causes])
    covariance = np.where(other[:, None] | other, np.nan, judged.covariance)
    estimate = np.where(other, np.nan, judged.estimate)
    return KnownSums(estimate, covariance, directions=lost.directions, noiseless=lost.noiseless)


def _refusal_detail(cause: Cause, lost: LostLines, line: int, naming: Naming) -> str:
    """Return the columns that a refusal concerns, and a remedy, to be appended to its sentence.

    Empty for causes that need none.
    """
    names = [term.text for term in naming.terms]
    constants = _constant_lines(naming)

    def describe(relation: Relation) -> str:
        return describe_relation(relation, names, constants, sites=bool(naming.sites))

    relation = lost.relation_of_line(line)
    if cause is Cause.LOST and relation is not None:
        return f": {describe(relation)}; {describe_remedy(relation, constants)}"
    if cause is Cause.TABLE_HIDDEN:
        return f": it may be that {describe(lost.hidden[0])}, and then no epsilon would suffice"
    return ""


def bound_undone_step(step: Array) -> Array:
    """Bound the error that a Newton step s of a level's log-odds leaves: ``-log(1 - |s|) - |s|``.

    That is about ``s^2 / 2``.  Where events are rare, the odds of a level's rows are the
    exponential of their log-odds, and Newton's step from a point that is D too high is ``s = -(1 -
    exp(-D))``, so that ``D - |s|`` is left.  (The strain of a table is a mean over all directions,
    which does not show a single one.)  See docs/privacy/answers.md, "Steps".
    """
    s = np.minimum(np.abs(step), LONGEST)
    return np.asarray(-np.log1p(-s) - s)


def _excess_by_noise(
    found: Estimates, judged: _Judged, M: Array, replicate: int, by_size: bool
) -> Array:
    """Compute the part of each line's noise over sampling, (lines,), that less noise would remove.

    The uncertainty that merged levels and sites add is left out, because with less noise they are
    no longer merged.  With `by_size`, if noise hides the size of all effects, that has requirements
    of its own (:func:`_requirements_of_size`), and only privacy noise counts here.
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
    """Compute the epsilon, and the number of rows, with which lines would be printed.

    With less noise the fragility tau follows from the same matrices, and the strain q falls as
    ``(n mu)^-1``.  An eigenvalue that noise hides may be arbitrarily small: it is taken to be
    `HIDDEN` noise deviations.

    Parameters
    ----------
    found : Estimates
    M : array (lines, d)
        Map to the lines that less noise would print.
    excess : array (lines,)
        Their noise over sampling (:func:`_excess_by_noise`).
    replicate : int
    delta : float or None
        Delta of the run; None leaves ``epsilon`` out.
    of_size : SizeNeeds, optional
        Further requirements if noise hides the size of all effects.

    Returns
    -------
    dict or None
        ``rows`` and ``epsilon``, each alone enough; ``more`` is there if even more may be needed.
        Without ``epsilon`` if none would suffice; empty if a thousand times as many rows would not
        suffice; None if all is printed.
    """
    if not len(M):
        return None
    strain = float(found.strain[replicate])
    held = found.fragility(M)[replicate] <= TAU
    printed = strain <= SURE and np.all(held) and np.all(excess <= _LARGEST_EXCESS)
    if of_size is None and printed:
        return None
    # Of other lines the variances are mostly noise themselves, so their excess says nothing.
    excess = np.where(held & (strain <= UNSURE), excess, 0.0)
    factor, more = _least_factor(found, M, excess, replicate)
    if factor is None:
        # No candidate suffices, and naming the largest would be wrong.
        return {}
    # Factors for the number of rows, and for sensitivity over sigma.
    row_factor = noise_factor = factor
    if of_size is not None:
        row_factor = max(row_factor, of_size.rows)
        noise_factor = max(noise_factor, of_size.shift)
        more = more or of_size.more
    needs = {"rows": round_up_two_digits(found.rows * row_factor)}
    if more:
        needs["more"] = 1.0
    mu = found.scale * noise_factor
    if delta is not None and math.isfinite(mu):
        needs["epsilon"] = round_up_two_digits(gaussian_epsilon(delta, mu))
    return needs


def _least_factor(
    found: Estimates, M: Array, excess: Array, replicate: int
) -> tuple[float | None, bool]:
    """Find the least factor by which noise must fall for given lines to be printed.

    Parameters
    ----------
    found : Estimates
    M : array (lines, d)
        Map from encoded coefficients to the lines.
    excess : array (lines,)
        Their noise over sampling, in variance; 0 for a line on which it sets no requirement.
    replicate : int

    Returns
    -------
    factor : float or None
        None if no candidate of `_FACTORS` is enough.
    more : bool
        Whether noise hides an eigenvalue of the Hessian, so that an even larger factor may be
        needed.
    """
    strain = float(found.strain[replicate])
    noise = float(found.hessian_noise[replicate])
    values, vectors = np.linalg.eigh(found.hessian[replicate])
    more = bool(values[0] <= noise) or not math.isfinite(strain)
    # What noise hides may be arbitrarily small: it is taken to be `HIDDEN` noise deviations.
    raised = (vectors * np.maximum(values, HIDDEN * noise)) @ vectors.T
    if not math.isfinite(strain):
        # The strain is unknown: it sets no factor, and `more` says that more may be needed.
        strain = 0.0
    one = slice(replicate, replicate + 1)
    frame, kept = found.frame[one], found.kept[one]
    # With so many times the rows, strain, excess and noise in the Hessian fall by the factor; with
    # so much larger a sensitivity over sigma the excess, a ratio of variances, falls by its square.
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
    """Return :func:`_requirements` of the lines that are printed or that noise refuses.

    Lines that are refused because of the data would be so with any epsilon.
    """
    noise_decides = np.array([cause is None or cause.is_caused_by_noise for cause in causes])
    of_size = None
    if Cause.SIZE_HIDDEN in causes:
        of_size = _requirements_of_size(found, replicate)
    excess = _excess_by_noise(found, judged, M, replicate, of_size is not None)
    return _requirements(found, M[noise_decides], excess[noise_decides], replicate, delta, of_size)


def _remedy_text(needs: dict[str, float] | None) -> str:
    """Return the epsilon or rows that would suffice, to be appended to a refusal's sentence.

    `needs` are those of :attr:`Coefficients.needs`: None adds nothing.
    """
    if needs is None:
        return ""
    if not needs:
        return "; even a thousand times as many rows would not suffice"
    # Lower bounds: "more than ... is needed".
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
