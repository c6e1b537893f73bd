"""Coefficients with their intervals: as cells, as plain text, as a table and as a plot.

A "line" is one coefficient of a run's record, as
:meth:`sottovoce.answers.coefficients.Coefficients.to_dict` writes it: the column (``name``,
``unit``), for a category its ``level`` and the ``reference`` that it is compared with, and
``estimate``, ``standard_error``, ``low``, ``high``, ``p`` and ``noise_share`` in the column's
units.  Logarithms have an ``odds_ratio``, ``hazard_ratio`` or ``rate_ratio`` too.  A line may be
``refused`` (then it has no numbers), ``unsure`` (a question mark), or ``one_sided`` (one end of its
interval is known); ``cause`` says why.  Terminal, HTML page, SVG file and matplotlib all draw from
the functions here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..util.enumerations import first_names
from ..util.pages import Column, Table
from ..util.typing import Any
from .causes import Cause, cause_of_line
from .plain import format_odds_ratio, number, read_finite_number
from .worth import exaggeration_in_words, width_in_words

NOISE_MEANS = (
    "Noise: the share of the variance that comes from privacy noise; the rest is sampling variance"
)
"""The legend of the column of noise."""
HEAD = ("estimate", "std. error", "noise", "95% interval", "p", "why")
"""Columns of :func:`cells`."""
CONSTANT = "(constant)"


class Ratio(NamedTuple):
    """What the exponentials of coefficients are, in lines and in words.

    Parameters
    ----------
    key : str
        Of a line, such as ``odds_ratio``.
    noun, verb : str
        What is so many times as high: "odds" with "are", "hazard" with "is".
    model : str
        The kind of regression.
    """

    key: str
    noun: str
    verb: str
    model: str

    @property
    def name(self) -> str:
        """The name in words, such as "odds ratio"."""
        return self.key.replace("_", " ")

    @property
    def head(self) -> str:
        """Head of the column of intervals where estimates are logarithms of this ratio."""
        return f"{self.name} (95% interval)"


RATIOS = (
    Ratio("odds_ratio", "odds", "are", "logistic regression"),
    Ratio("hazard_ratio", "hazard", "is", "piecewise exponential regression"),
    Ratio("rate_ratio", "rate", "is", "Poisson regression"),
)
"""The kinds of ratios that lines may have."""
_NAMED = 6
"""Most coefficients that are named in a sentence; the others are counted."""
_TICKS = 7
"""Most ticks of an axis."""
_WIDEST = math.log(200.0)
"""How far the axis of odds ratios reaches to either side of 1, in log-odds.

Intervals beyond a ratio of 1/200 or 200 end at the edge.
"""
_LARGEST_EXPONENT = 50.0
"""Log-odds are cut here before math.exp, which overflows at 710: any text would say infinity."""


# The table of coefficients


def cells(line: dict[str, Any]) -> list[str]:
    """Return the cells of a line, in the columns of :data:`HEAD`.

    A one-sided line has its interval alone, one without standard error its estimate alone.  Where
    the estimate is a log-odds, the interval is that of the odds ratio (of a constant: of the odds)
    and stands beside it.
    """
    if line.get("one_sided") is not None:
        by_head = dict.fromkeys(HEAD, "-")
        by_head["95% interval"] = one_sided_interval_text(line, odds=ratio_of([line]) is not None)
        by_head["why"] = why(line)
        return list(by_head.values())
    if line.get("refused") is not None:
        return ["refused", *["-"] * (len(HEAD) - 2), why(line)]
    if "standard_error" not in line:
        return [f"{number(line['estimate']):.4g}", *["-"] * (len(HEAD) - 2), ""]
    return _inference_cells(line)


def _inference_cells(line: dict[str, Any]) -> list[str]:
    """Return the cells of a line that has a standard error and a two-sided interval."""
    error = number(line["standard_error"])
    digits = _decimals_for_error(error, least=3, most=9)
    question_mark = "?" if line.get("unsure") else ""
    p = number(line["p"])
    p_value = f"{p:.3f}"
    if p < 0.001:
        p_value = "<.001"
    return [
        f"{number(line['estimate']):.{digits}f}{question_mark}",
        f"{error:.{digits}f}",
        f"{100.0 * number(line['noise_share']):.0f}%",
        _interval_cell(line),
        p_value,
        why(line),
    ]


def _decimals_for_error(error: float, least: int, most: int) -> int:
    """Return so many decimals that a standard error has two significant digits, within limits."""
    if error <= 0:
        return least
    return min(most, max(least, 1 - math.floor(math.log10(error))))


def _interval_cell(line: dict[str, Any]) -> str:
    """Return a line's interval; of log-odds, the odds ratio with the interval of the ratio."""
    error, low, high = (number(line[name]) for name in ("standard_error", "low", "high"))
    found = ratio_of([line])
    if found is None:
        digits = _decimals_for_error(error, least=3, most=9)
        return f"{low:.{digits}f} to {high:.{digits}f}"
    ratio = number(line[found.key])
    digits = _decimals_for_error(ratio * error, least=2, most=6)
    text, low_text, high_text = (
        format_odds_ratio(math.exp(min(log_odds, _LARGEST_EXPONENT)), digits)
        for log_odds in (number(line["estimate"]), low, high)
    )
    return f"{text} ({low_text} to {high_text})"


def why(line: dict[str, Any]) -> str:
    """Return the reason of a refusal or a question mark, in a word or two; else empty."""
    if line.get("refused") is None and not line.get("unsure"):
        return ""
    cause = cause_of_line(line)
    return "" if cause is None else cause.label


def question_mark_text(line: dict[str, Any]) -> str:
    """Return the question mark of a line in a drawing, with its reason; empty without one."""
    if not line.get("unsure"):
        return ""
    reason = why(line)
    if not reason:
        return "?"
    # Some reasons end in a question mark of their own, and one is enough.
    return f"? ({reason.rstrip('?')})"


def one_end(line: dict[str, Any]) -> tuple[float, int] | None:
    """Return the known end of a line's one-sided interval, and its side; None for other lines.

    The side is 1 if the interval lies above that end, -1 if below.
    """
    side = line.get("one_sided")
    if side is None:
        return None
    if side == "above":
        return number(line["low"]), 1
    return number(line["high"]), -1


def one_sided_interval_text(line: dict[str, Any], odds: bool) -> str:
    """Format a one-sided interval as ``above 0.50``: a coefficient or, with `odds`, an odds ratio.

    It is rounded outwards, so that the text excludes nothing that the interval holds.
    """
    found = one_end(line)
    assert found is not None
    end, side = found
    # An end of 0.507 reads "above 0.50": "above 0.51" would claim too much.
    round_outwards = math.floor if side > 0 else math.ceil
    if not odds:
        return f"{line['one_sided']} {round_outwards(end * 100.0) / 100.0:.2f}"
    ratio = math.exp(min(end, _LARGEST_EXPONENT))
    scale = 100.0 if ratio < 100.0 else 1.0  # as `format_odds_ratio` rounds
    return f"{line['one_sided']} {format_odds_ratio(round_outwards(ratio * scale) / scale)}"


def name_of_line(line: dict[str, Any]) -> str:
    """Return the name of a line, with its level if it has one."""
    name = _column_name(line)
    if line["level"] is None:
        return name
    return f"{name}: {line['level']}"


def _column_name(line: dict[str, Any]) -> str:
    """Return the name of a line's column, or of the unit where it has one."""
    return str(line.get("unit") or line["name"])


class CoefficientGroup(NamedTuple):
    """Lines of one column: one of a number, or those of levels against a reference."""

    name: str
    reference: str | None
    lines: list[dict[str, Any]]


def groups(lines: Sequence[dict[str, Any]]) -> list[CoefficientGroup]:
    """Group lines by column, in order."""
    found: list[CoefficientGroup] = []
    for line in lines:
        name, reference = _column_name(line), line["reference"]
        if found and line["level"] is not None and found[-1][:2] == (name, reference):
            found[-1].lines.append(line)
        else:
            found.append(CoefficientGroup(name, reference, [line]))
    return found


def labelled(lines: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return labels and cells, with levels indented below their column and its reference."""
    found = []
    for group in groups(lines):
        if group.lines[0]["level"] is not None:
            found.append((group.name, [""] * len(HEAD)))
            names = [f"  {line['level']}" for line in group.lines]
        else:
            names = [group.name] * len(group.lines)
        if group.reference is not None:
            found.append((f"  {group.reference}", ["reference", *[""] * (len(HEAD) - 1)]))
        found += zip(names, map(cells, group.lines), strict=True)
    return found


def table_rows_as_text(lines: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the table's rows, each a name with its cells; the first row has the heads.

    Columns that no line fills are left out; lines without intervals have their estimate alone.
    """
    kept = list(range(len(HEAD)))
    if not any(map(why, lines)):
        kept.remove(HEAD.index("why"))
    if not has_intervals(lines):
        # Only the estimates.
        kept = [0]
    heads = list(HEAD)
    if (ratio := ratio_of(lines)) is not None:
        heads[HEAD.index("95% interval")] = ratio.head
    rows = [("column", heads), *labelled(lines)]
    return [(name, [row[k] for k in kept]) for name, row in rows]


def format_text_table(lines: Sequence[dict[str, Any]]) -> str:
    """Format the table of coefficients as plain text."""
    rows = table_rows_as_text(lines)
    name_width = max(len(name) for name, _ in rows)
    columns = zip(*(row for _, row in rows), strict=True)
    widths = [max(map(len, column)) for column in columns]
    text = []
    for name, row in rows:
        # Names stand at the left of their column, numbers at the right.
        aligned = map(str.rjust, row, widths)
        text.append("  ".join([name.ljust(name_width), *aligned]).rstrip())
    return "\n".join(text)


def coefficient_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Build the table of coefficients for a page."""
    (_, heads), *rows = table_rows_as_text(lines)
    columns = [Column("column", "name"), *(Column(text, "n") for text in heads)]
    return Table(columns, [[_indent_for_html(name), *row] for name, row in rows])


def _indent_for_html(name: str) -> str:
    """Return a row's name for HTML, which would drop the two spaces before a level.

    A wide space stands in their place.
    """
    if name.startswith("  "):
        return "\N{EM SPACE}" + name.strip()
    return name.strip()


def sufficient_budget_text(needs: dict[str, Any] | None) -> str:
    """Return, in words, the epsilon or rows with which the whole table would be printed.

    `needs` has ``rows``, perhaps ``epsilon``, and ``more`` if both are only lower bounds.  Empty if
    all is printed already.
    """
    if not needs:
        return ""
    said = f"{number(needs['rows']):,.0f} rows"
    if "epsilon" in needs:
        said = f"epsilon {number(needs['epsilon']):g} or {said}"
    if needs.get("more"):
        return f"more than {said}"
    return said


def refusals(lines: Sequence[dict[str, Any]]) -> list[tuple[list[str], str]]:
    """Group refused lines by reason: pairs of the lines' names, and the reason."""
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line.get("refused") is not None:
            reasons.setdefault(str(line["refused"]), []).append(name_of_line(line))
    return [(names, why) for why, names in reasons.items()]


def remarks_below_table(
    lines: Sequence[dict[str, Any]], needs: dict[str, Any] | None, weighed: str = ""
) -> str:
    """Return the sentences below a printed table of coefficients; empty if there is nothing to say.

    They are on refused lines, question marks, noise, and rows longer than the norm bound.

    Parameters
    ----------
    lines : sequence of dict
        Lines of the table, as in a run's record.
    needs : dict or None
        Epsilon and rows with which the whole table would be printed; None if
        no such numbers are stated.
    weighed : str
        A sentence on rows longer than the norm bound; empty for none.

    Returns
    -------
    str
    """
    said = list[str]()
    for names, why in refusals(lines):
        if len(names) < len(lines):
            said.append(f"{first_names(names, _NAMED)}: {why}.")
        else:
            # One reason for the whole table needs no names.
            said.append(f"{why[:1].upper()}{why[1:]}.")
    if said:
        said.insert(0, "Some coefficients are not printed.")
    return " ".join([*said, reliability_sentences(lines, needs, weighed)]).strip()


def assumption_sentences(plain: dict[str, Any]) -> str:
    """Return a run's sentences on the assumptions of its table.

    They are on rows longer than the norm bound (``weighed`` in the record), on targets at their
    bounds (``at_bounds``), and on rows that depend on each other (``clusters``).
    """
    said = (
        str(plain.get("weighed") or ""),
        _targets_at_bounds_sentence(plain.get("at_bounds")),
        str(plain.get("clusters") or ""),
    )
    return " ".join(filter(None, said))


def reliability_sentences(
    lines: Sequence[dict[str, Any]], needs: dict[str, Any] | None, weighed: str = ""
) -> str:
    """Return sentences on the reliability of printed lines: question marks, noise, and long rows.

    Parameters
    ----------
    lines : sequence of dict
        Lines of the table, as in a run's record; refused ones are left out.
    needs : dict or None
        Epsilon and rows with which the whole table would be printed; None if
        no such numbers are stated.
    weighed : str
        A sentence on rows longer than the norm bound; empty for none.

    Returns
    -------
    str
        Empty if there is nothing to say.
    """
    printed = [line for line in lines if line.get("refused") is None]
    said = _question_mark_sentences([line for line in printed if line.get("unsure")], needs)
    if printed and has_intervals(printed):
        names = [name_of_line(line) for line in printed]
        said += [width_in_words(printed, names), exaggeration_in_words(printed, names)]
    if printed and weighed:
        said.append(weighed)
    return " ".join(filter(None, said))


def _sufficient_budget_clause(needs: dict[str, Any] | None) -> str:
    """Return the epsilon or rows that would print the whole table, as the end of a sentence.

    Empty where no such numbers are stated.
    """
    would = sufficient_budget_text(needs)
    if not would or not needs:
        return ""
    if needs.get("more"):
        return f"; {would} is needed"
    return f"; about {would} would be enough"


def _targets_at_bounds_sentence(at_bounds: dict[str, Any] | None) -> str:
    """Return a sentence on targets at their bounds, if their share is clearly above none.

    `at_bounds` has the ``share``, its interval, and ``clear``: see
    :mod:`sottovoce.answers.bounds_reached`.
    """
    if not at_bounds or not at_bounds["clear"]:
        return ""
    share, low, high = (100.0 * number(at_bounds[name]) for name in ("share", "low", "high"))
    return (
        f"About {share:.2g}% of the targets ({low:.2g}% to {high:.2g}%) lie at or beyond the "
        "declared bounds: the coefficients describe the clipped target."
    )


def _question_mark_sentences(
    unsure: Sequence[dict[str, Any]], needs: dict[str, Any] | None
) -> list[str]:
    """Return a sentence for each cause of question marks."""
    said = list[str]()
    for cause in dict.fromkeys(map(cause_of_line, unsure)):
        if cause is Cause.STRAINED:
            said.append(f"Question marks: {cause.sentence}{_sufficient_budget_clause(needs)}.")
        elif cause is not None:
            names = [name_of_line(line) for line in unsure if cause_of_line(line) is cause]
            said.append(f"Question mark at {first_names(names, _NAMED)}: {cause.sentence}.")
    return said


def has_strained_lines(lines: Sequence[dict[str, Any]]) -> bool:
    """Return True if any question mark is for a last Newton step that was too large."""
    return any(line.get("unsure") and cause_of_line(line) is Cause.STRAINED for line in lines)


def site_difference_sentences(found: dict[str, Any], odds: bool) -> str:
    """Return sentences on how far the constants of sites differ, by a random-effects model.

    `found` has the fields of :class:`sottovoce.answers.between.Between`: the standard deviation
    between sites (``sd``, with its interval ``sd_ends``), ``p`` of no difference, and ``apart``,
    the half-width of the 95% interval for a new site.  With `odds` constants are log-odds.
    """
    p, sd, apart = (number(found[name]) for name in ("p", "sd", "apart"))
    low, high = (number(x) for x in found["sd_ends"])
    p_value = f"p = {p:.3f}"
    if p < 0.001:
        p_value = "p < .001"
    verdict = "differ" if p < 0.05 else "do not differ significantly"
    reach = f"within {apart:.3g}"
    if odds:
        inside = min(apart, _LARGEST_EXPONENT)
        least, most = (f"{math.exp(x):.3g}" for x in (-inside, inside))
        reach = f"between {least} and {most} times the odds"
    if sd > 0.0:
        spread = f"their constants have a standard deviation of {sd:.3g} ({low:.3g} to {high:.3g})"
    elif high > 0.0:
        spread = f"their constants are compatible with a standard deviation from 0 to {high:.3g}"
    else:
        spread = (
            "their constants are closer together than chance would allow even with a standard "
            "deviation of 0"
        )
    allows = ""
    if high > 0.0:
        allows = f", and their standard deviation may be anything up to {high:.3g}"
    return (
        f"Sites {verdict} beyond what their columns explain ({p_value}): {spread}. A new site "
        f"would lie {reach} of the average of these (95%), if sites are a sample of a normal "
        f"population{allows}."
    )


# The plot of coefficients


class Axis(NamedTuple):
    """Horizontal axis of a plot with a row for each name, from `low` to `high`.

    With a `ratio` both are logarithms, and ticks are ratios.
    """

    low: float
    high: float
    ratio: Ratio | None

    @property
    def odds(self) -> bool:
        """Whether ticks are ratios, on a logarithmic axis."""
        return self.ratio is not None

    @property
    def label(self) -> str:
        """What the axis is, in words."""
        if self.ratio is None:
            return "coefficient"
        return f"{self.ratio.name} (logarithmic)"

    def at(self, x: float) -> str:
        """Return the place of x, in percent of the axis; one of its ends if x lies outside."""
        inside = min(max(x, self.low), self.high)
        return f"{100.0 * (inside - self.low) / (self.high - self.low):.2f}%"

    def ticks(self) -> list[tuple[str, str]]:
        """Return places and texts of round numbers."""
        if not self.odds:
            return [(self.at(x), f"{x:.6g}") for x in _evenly_spaced_ticks(self.low, self.high)]
        low, high = math.exp(self.low), math.exp(self.high)
        # Over a short range a logarithmic axis is nearly linear, and has too few round ratios.
        if high / low > 2.5:
            ratios = _ticks_of_ratios(low, high)
        else:
            ratios = _evenly_spaced_ticks(low, high)
        return [(self.at(math.log(x)), f"{x:.6g}") for x in ratios]


def _ticks_of_ratios(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: as many as fit, or the powers of ten."""
    found = list[float]()
    # From the finest series of digits to the coarsest, until few enough ticks are in view.
    for digits in ((1.0, 1.5, 2.0, 3.0, 5.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        every = [m * 10.0**k for k in range(-3, 4) for m in digits]
        found = [x for x in every if low <= x <= high]
        if len(found) <= _TICKS:
            break
    return found


def _evenly_spaced_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers at equal distances."""
    fifth = (high - low) / 5.0
    # The step is the next of 1, 2, 5 and 10 times a power of ten.
    unit = 10.0 ** math.floor(math.log10(fifth))
    step = next(unit * m for m in (1.0, 2.0, 5.0, 10.0) if unit * m >= fifth)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def scaled_interval(line: dict[str, Any]) -> tuple[float, float, float]:
    """Return low end, estimate and high end for the difference that :func:`compared` names.

    A number is compared over its typical range where it declares one, so its coefficient is
    multiplied by ``steps``, the width of that range in the coefficient's unit.
    """
    steps = read_finite_number(line.get("steps", 1.0))
    low, mid, high = (
        steps * read_finite_number(line[name]) for name in ("low", "estimate", "high")
    )
    return low, mid, high


def compared(line: dict[str, Any]) -> str:
    """Return, in words, the two values of a number that a coefficient compares."""
    if line.get("typical") is None:
        if line.get("unit"):
            return f"one more of {line['unit']}"
        return "one more"
    low, high = (number(x) for x in line["typical"])
    return f"{high:g} against {low:g}"


def interval_text(low: float, mid: float, high: float, odds: bool) -> str:
    """Format an estimate with its interval, as in ``1.2 (0.9 to 1.6)``.

    Parameters
    ----------
    low, mid, high : float
        Low end, estimate and high end: coefficients or log-odds.
    odds : bool
        Write them as odds ratios.

    Returns
    -------
    str
    """
    if not odds:
        return f"{mid:.3g} ({low:.3g} to {high:.3g})"
    ratio, least, most = (
        format_odds_ratio(math.exp(min(x, _LARGEST_EXPONENT))) for x in (mid, low, high)
    )
    return f"{ratio} ({least} to {most})"


def has_intervals(lines: Sequence[dict[str, Any]]) -> bool:
    """Return True if coefficients have intervals."""
    return any("standard_error" in line for line in lines)


def ratio_of(lines: Sequence[dict[str, Any]]) -> Ratio | None:
    """Return what the exponentials of these coefficients are; None if they are no logarithms."""
    printed = [line for line in lines if line.get("refused") is None]
    for ratio in RATIOS:
        if any(line.get(ratio.key) is not None for line in printed):
            return ratio
        # Refused lines of ratios keep the key, with no value; lines of numbers do not have it.
        if not printed and all(ratio.key in line for line in lines):
            return ratio
    return None


def make_axis(lines: Sequence[dict[str, Any]]) -> Axis:
    """Return an axis that shows these lines and zero."""
    ratio = ratio_of(lines)
    intervals = [scaled_interval(line) for line in lines if line.get("refused") is None]
    single_ends = [found[0] for line in lines if (found := one_end(line)) is not None]
    least = min([*(low for low, _, _ in intervals), *single_ends], default=0.0)
    largest = max([*(high for _, _, high in intervals), *single_ends], default=0.0)
    reach = _WIDEST if ratio else math.inf
    # Zero, no difference, is always in view.
    low = min(max(least, -reach), 0.0)
    high = max(min(largest, reach), 0.0)
    # Without any line, or if all are at zero, the axis still needs a length.
    pad = 0.04 * (high - low) or 1.0
    return Axis(low - pad, high + pad, ratio)


@dataclass(frozen=True)
class ForestRow:
    """A row of the forest plot; places are in percent of the axis."""

    kind: str
    """``column`` (the name alone, above its levels), ``reference``, ``level`` or ``number``."""
    name: str
    title: str = ""
    """The row in words, for screen readers."""
    text: str = ""
    """The estimate; empty where it is refused."""
    compared: str = ""
    """The two values of a number that are compared."""
    colour: str = "mark"
    """CSS class: ``blue`` if the interval excludes zero, else ``mark``."""
    span: tuple[str, str] | None = None
    """Places of the two ends of the interval."""
    dot: str | None = None
    """Place of the estimate; None where it is refused or one-sided."""


class Forest(NamedTuple):
    """A forest plot.

    `base` is the place of no difference, `ticks` are places and texts, and `label` says what the
    axis is.
    """

    base: str
    ticks: list[tuple[str, str]]
    label: str
    rows: list[ForestRow]


def lay_out_forest_plot(lines: Sequence[dict[str, Any]]) -> Forest:
    """Lay out the forest plot of all coefficients but constants, with the references."""
    kept = [line for line in lines if line["name"] != CONSTANT]
    axis = make_axis(kept)
    rows = []
    for group in groups(kept):
        kind = "number" if group.lines[0]["level"] is None else "level"
        if kind == "level":
            rows.append(ForestRow("column", group.name))
        if group.reference is not None:
            title = f"{group.reference}: the reference of {group.name}"
            rows.append(ForestRow("reference", group.reference, title, "reference"))
        rows += [_lay_out_forest_row(line, axis, kind) for line in group.lines]
    return Forest(axis.at(0), axis.ticks(), axis.label, rows)


def _lay_out_forest_row(line: dict[str, Any], axis: Axis, kind: str) -> ForestRow:
    """Lay out the row of one line: its text, and its interval on the axis.

    `kind` is ``level`` or ``number``.  The row is blue if its interval excludes zero.
    """
    if kind == "level":
        name, beside = str(line["level"]), ""
    else:
        name, beside = str(line["name"]), compared(line)
    dot: str | None = None
    if (found := one_end(line)) is not None:
        end, side = found
        text = one_sided_interval_text(line, axis.odds)
        # The unknown end is drawn at the edge of the axis.
        edge = axis.high if side > 0 else axis.low
        span = (axis.at(end), axis.at(edge))
        clear = end * side > 0.0
    elif line.get("refused") is not None:
        return ForestRow(kind, name, f"{name_of_line(line)}: refused", compared=beside)
    else:
        low, mid, high = scaled_interval(line)
        text = interval_text(low, mid, high, axis.odds) + question_mark_text(line)
        span, dot = (axis.at(low), axis.at(high)), axis.at(mid)
        clear = low > 0 or high < 0
    return ForestRow(
        kind=kind,
        name=name,
        title=f"{name_of_line(line)}: {text}",
        text=text,
        compared=beside,
        colour="blue" if clear else "mark",
        span=span,
        dot=dot,
    )


@dataclass(frozen=True)
class CoefficientSection:
    """The section of a page on coefficients: the values of templates/coefficients.html."""

    table: Table
    weighed: str
    """Sentences on the assumptions of the table: see :func:`assumption_sentences`."""
    plot: Forest | None
    """None where no intervals were asked for; caption, refusals and remarks are then empty."""
    several: bool
    """True if the table has more than one line."""
    odds: bool
    """True if coefficients are logarithms of ratios."""
    caption: str
    refusals: list[tuple[list[str], str]]
    """Names of refused lines, with the reason that they share."""
    remarks: list[str]
    """Paragraphs below the plot."""
    noise_means: str = NOISE_MEANS


def build_coefficient_section(plain: dict[str, Any]) -> CoefficientSection:
    """Build a page's section on coefficients: plot, refusals and table."""
    lines, weighed = plain["coefficients"], assumption_sentences(plain)
    several, ratio = len(lines) > 1, ratio_of(lines)
    odds = ratio is not None
    if not has_intervals(lines):
        return CoefficientSection(
            coefficient_table(lines), weighed, None, several, odds, "", [], []
        )
    remarks = [reliability_sentences(lines, plain.get("needs"), weighed)]
    if plain.get("between_sites"):
        remarks.append(site_difference_sentences(plain["between_sites"], odds))
    return CoefficientSection(
        table=coefficient_table(lines),
        weighed=weighed,
        plot=lay_out_forest_plot(lines),
        several=several,
        odds=odds,
        caption=_forest_plot_caption(lines, ratio),
        refusals=refusals(lines),
        remarks=[remark for remark in remarks if remark],
    )


def _forest_plot_caption(lines: Sequence[dict[str, Any]], ratio: Ratio | None) -> str:
    """Return sentences on how to read the forest plot."""
    said = []
    if ratio:
        said.append(f"The dot is the {ratio.name}, adjusted for all other columns.")
    said.append("The line is its 95% interval, which covers sampling and privacy noise.")
    if any(line.get("typical") is not None for line in lines):
        said.append("A number is compared over the typical range that the schema declares.")
    if has_strained_lines(lines):
        said.append(f"Question marks: {Cause.STRAINED.sentence}.")
    said.append(
        "Each interval misses the true value with probability 5%: about one in twenty does. "
        "Coefficients describe associations, not the effect of changing a column."
    )
    return " ".join(said)
