"""What inference, least squares and evaluations print for people.

``train``, ``evaluate``, ``demo``, ``hub`` and ``site`` call it.  `found` is an evaluation, or its
plain data: measures by key, each an estimate with ``value``, ``low`` and ``high``, the ends of its
95% interval; a refused one has the value None and the reason as ``refused``.  Tables of
coefficients are plain data too, as
:meth:`sottovoce.answers.coefficients.Coefficients.to_plain_data` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..answers.classes import ClassEvaluation
from ..answers.evaluation import Evaluation
from ..answers.numbers import Fitted
from ..answers.numeric_metrics import NumberEvaluation
from ..answers.training import Inferred
from ..errors import escape_unprintable
from ..privacy.statement import Statement
from ..reports.coefficients import (
    NOISE_MEANS,
    RATIOS,
    assumption_sentences,
    has_intervals,
    remarks_below_table,
    table_rows_as_text,
)
from ..reports.quality import RECALIBRATION, calibration_cell_text
from .render import format_site_sizes, make_privacy_panel, print_notes
from .screen import Console, Listing, escape_markup, make_listing

DIMMED = ("reference", "refused", "-")
"""Entries of a table of coefficients that stand in place of a number."""
HELD = "Privacy of held-out rows"
_RECALIBRATED = {key: head for key, (head, _) in RECALIBRATION.items()}
_NAMES = {
    "r2": "R2",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
    "mean_target": "mean of the target",
}


def _print_run_header(what: str, done: Inferred | Fitted, console: Console) -> None:
    """Print the data, sizes and privacy statement of a run."""
    sizes = done.sizes.astype(int)
    console.print(
        f"[bold]{what}[/] on [bold]{escape_markup(done.config.data)}[/]: {len(sizes)} sites of "
        f"{format_site_sizes(sizes)} {done.statement.counted}, "
        f"{escape_markup(done.config.partition or '')} "
        f"partition, {len(done.answered.model)} columns"
    )
    console.print(make_privacy_panel(done.statement.words))


def render_inference(done: Inferred, console: Console, saved: Path | None) -> None:
    """Print an inference for people.

    Parameters
    ----------
    done : Inferred
        The run.
    console : Console
        Where it is printed.
    saved : Path or None
        Where the run is stored; None if nowhere.
    """
    _print_run_header("inference", done, console)
    if done.evaluation is not None:
        render_evaluation(done.evaluation, console)
    elif done.exact:
        # The curve needs test rows of both classes.
        area = "unknown (test rows of one class)"
        if "auc" in done.exact:
            area = f"{done.exact['auc']:.4f}"
        console.print(
            f"AUC {area}, Brier {done.exact['brier']:.4f}, "
            f"accuracy {100 * done.exact['accuracy']:.2f}% on {done.exact['rows']:,.0f} test rows, "
            "[dim]taken as public, without noise: for the data's holder only[/]"
        )
    show_coefficients(done.to_dict(), console)
    print_notes(done.notes, console, saved)


def render_answers_record(record: dict[str, Any], console: Console) -> None:
    """Print the answers of a run between sites, as their files hold them."""
    print_notes(record["notes"], console)
    if record["evaluation"] is not None:
        render_quality(record["evaluation"], console)
    if "coefficients" in record:
        show_coefficients(record, console)


def show_coefficients(plain: dict[str, Any], console: Console) -> None:
    """Print a run's table of coefficients with their intervals, and notes on it.

    Parameters
    ----------
    plain : dict
        Plain data of the run with its table: ``coefficients``, the lines, and ``needs``, the
        epsilon or rows that would suffice for all of them
        (:attr:`sottovoce.answers.coefficients.Coefficients.needs`).
    console : Console
    """
    lines = plain["coefficients"]
    table = make_listing()
    (column, heads), *rows = table_rows_as_text(lines)
    heads_of_ratios = {ratio.head for ratio in RATIOS}
    table.add_column(column, overflow="fold")
    for head in heads:
        # The entries of an interval are wider than its head.
        if head not in heads_of_ratios and not head.startswith("95%"):
            head = head.replace(" ", "\n")
        table.add_column(head, justify="right", no_wrap=True)
    for name, row in rows:
        table.add_row(escape_markup(name), *map(_dim_placeholder, row))
    console.print(table)
    if any(line.get("noise_share") for line in lines):
        console.print(f"[dim]{NOISE_MEANS}.[/]")
    note = remarks_below_table(lines, plain["needs"], assumption_sentences(plain))
    if note:
        console.print(f"[yellow]note[/] {escape_markup(note)}")


def _dim_placeholder(entry: str) -> str:
    """Dim an entry of a table that stands in place of a number."""
    if entry in DIMMED:
        return f"[dim]{entry}[/]"
    return entry


def render_evaluation(found: Evaluation, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of two classes.

    Parameters
    ----------
    found : Evaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print quality without noise, which is for the holder of the rows only.
    """
    plain = found.to_dict()
    if not exact:
        plain["exact"] = {}
    render_quality(plain, console)


def render_quality(found: dict[str, Any], console: Console) -> None:
    """Print an evaluation of two classes from plain data.

    Numbers without noise, its ``exact``, are printed beside the others if there are any.
    """
    console.print(make_privacy_panel(Statement.from_dict(found["privacy"]).words, HELD))
    names = ["all held-out rows", *found["by"]]
    every = [found, *found["by"].values()]
    console.print(_quality_table(found, names, every))
    console.print(_calibration_table(found["calibration"]))
    for quality, name in zip(every, names, strict=True):
        for key, head in ({"auc": "AUC"} | _RECALIBRATED).items():
            if quality[key].get("refused") is not None:
                console.print(
                    f"[yellow]note[/] {head}, {escape_markup(name)}: {quality[key]['refused']}"
                )


def _quality_table(
    found: dict[str, Any], names: Sequence[str], every: Sequence[dict[str, Any]]
) -> Listing:
    """Make a table with a line for each measure, and a column for all rows and each group of rows.

    `every` has the evaluation of all rows and then of each group, named by `names`; `found` is that
    of all rows, which also has the numbers without noise.
    """
    # Of several groups, intervals stand below their numbers, so that the columns fit a screen.
    many = len(every) > 1
    heads = names
    gap = 2
    if many:
        heads = ["all", *(name.replace("=", "\n", 1) for name in names[1:])]
        gap = 1
    table = Listing(padding=(0, gap, 0, 0))
    table.add_column("held-out rows")
    for head in heads:
        table.add_column(escape_markup(head), justify="right")
    exact = found.get("exact", {})
    exact_head = ""
    if exact:
        exact_head = "[dim]exact, for\nthe holder[/]"
    table.add_column(exact_head, justify="right")

    def add_measure(head: str, estimates: list[dict[str, Any]], name: str) -> None:
        """Add the line of one measure, given its estimate in every group and its key in `exact`."""
        texts = [format_estimate(one, many) for one in estimates]
        table.add_row(head, *texts, _format_exact_number(exact, name))

    measures = {"auc": "AUC", "brier": "Brier score"} | _RECALIBRATED | {"positives": "positives"}
    for key, head in measures.items():
        add_measure(head, [quality[key] for quality in every], key)
    table.add_row(f"at {found['threshold']:g} or more:", *[""] * len(every), "")
    for name in ("accuracy", "sensitivity", "specificity", "precision"):
        add_measure(f"  {name}", [quality["rates"][name] for quality in every], name)
    return table


def _format_exact_number(exact: Mapping[str, float], name: str) -> str:
    """Format a number without noise, for the holder of the rows; empty if there is none."""
    if name not in exact:
        return ""
    return f"[dim]{exact[name]:.4f}[/]"


def format_estimate(found: dict[str, Any], below: bool = False) -> str:
    """Format an estimate with its 95% interval, or say that it was refused.

    With `below` the interval stands on a second line.
    """
    if found["value"] is None:
        return "[dim]refused[/]"
    low, high = f"{found['low']:.3f}", f"{found['high']:.3f}"
    if below:
        return f"{found['value']:.4f}\n[dim]{low.removeprefix('0')} to {high.removeprefix('0')}[/]"
    return f"{found['value']:.4f} [dim]({low} to {high})[/]"


def _calibration_table(cells: Sequence[dict[str, Any]]) -> Table:
    """Make a table of observed shares of positives, by what was predicted."""
    table = make_listing(">predicted", ">observed", ">95% interval", ">rows, about")
    for cell in cells:
        table.add_row(
            calibration_cell_text(cell),
            f"{100 * cell['observed']:.1f}%",
            f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}",
            f"{cell['rows']:,.0f}",
        )
    return table


def render_any_evaluation(found: Any, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of two classes, of several classes or of a number.

    Parameters
    ----------
    found : Evaluation, ClassEvaluation or NumberEvaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print quality without noise, which is for the holder of the rows only.
    """
    kinds: dict[type, Callable[..., None]] = {
        ClassEvaluation: render_class_evaluation,
        NumberEvaluation: render_number_errors,
    }
    kinds.get(type(found), render_evaluation)(found, console, exact=exact)


def render_class_evaluation(
    found: ClassEvaluation, console: Console, *, exact: bool = True
) -> None:
    """Print an evaluation of several classes.

    Parameters
    ----------
    found : ClassEvaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print recalls without noise, which are for the holder of the rows only.
    """
    console.print(make_privacy_panel(found.statement.words, HELD))
    heads = ["<held-out rows", ">share", ">found (recall)", ">correct predictions (precision)"]
    if exact:
        heads.append(">[dim]recall, exact, for\nthe holder[/]")
    table = make_listing(*heads)
    for name in found.names:
        row = [
            format_estimate(estimates[name].to_dict(), True)
            for estimates in (found.share, found.found, found.right)
        ]
        if exact:
            row.append(f"[dim]{found.exact[f'recall on {name}']:.4f}[/]")
        table.add_row(escape_markup(escape_unprintable(name)), *row)
    row = ["[bold]all: accuracy[/]", "", format_estimate(found.accuracy.to_dict(), True), ""]
    if exact:
        row.append(f"[dim]{found.exact['accuracy']:.4f}[/]")
    table.add_row(*row)
    console.print(table)
    counts = make_listing(
        "<rows, about, of",
        *(f">answered\n{escape_markup(escape_unprintable(name))}" for name in found.names),
    )
    for name, line in zip(found.names, found.counts, strict=True):
        counts.add_row(
            escape_markup(escape_unprintable(name)), *(f"{count:,.0f}" for count in line)
        )
    console.print(counts)


def render_least_squares(done: Fitted, console: Console, saved: Path | None) -> None:
    """Print a least squares fit for people.

    Parameters
    ----------
    done : Fitted
        The run.
    console : Console
        Where it is printed.
    saved : Path or None
        Where the run is stored; None if nowhere.
    """
    unit = done.task.unit
    _print_run_header("least squares", done, console)
    if done.evaluation is not None:
        render_number_errors(done.evaluation, console)
    elif done.exact.get("rows"):
        table = make_listing("<on test rows", ">this run", ">mean of training rows")
        for name, words in _NAMES.items():
            if name != "mean_target" and name in done.exact:
                table.add_row(
                    _add_target_unit(words, name, unit),
                    f"{done.exact[name]:.4g}",
                    f"{done.baseline[name]:.4g}",
                )
        console.print(table)
        console.print(
            f"[dim]{done.exact['rows']:,.0f} test rows, taken as public, without noise: for the "
            "data's holder only[/]"
        )
    if has_intervals(done.coefficients):
        console.print(
            f"[dim]coefficients in {escape_markup(unit or 'units of the target')} per unit of the "
            "column[/]"
        )
        show_coefficients(done.to_dict(), console)
    else:
        console.print(_coefficients_table(done))
        console.print("[dim]without standard errors; use --inference for intervals[/]")
        if done.weighed:
            console.print(f"[yellow]note[/] {escape_markup(done.weighed)}")
    print_notes(done.notes, console, saved)


def _add_target_unit(words: str, name: str, unit: str) -> str:
    """Add the unit of the target to the name of a measure; R2 has none."""
    if name == "r2" or not unit:
        return words
    return f"{words} ({escape_markup(unit)})"


def _coefficients_table(done: Fitted) -> Table:
    """Make a table of coefficients without standard errors."""
    head = "coefficient"
    if done.task.unit:
        head = f"coefficient ({done.task.unit})"
    table = make_listing("<column", "<level", f">{escape_markup(head)}")
    named: set[str] = set()
    for line in done.coefficients:
        level = line["level"] or ""
        # The first level of a category says against which one all its levels are.
        if line["reference"] is not None and line["name"] not in named:
            level += f"  (against {line['reference']})"
        named.add(line["name"])
        table.add_row(escape_markup(line["name"]), escape_markup(level), f"{line['estimate']:.4g}")
    return table


def render_number_errors(found: NumberEvaluation, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of a predicted number.

    Parameters
    ----------
    found : NumberEvaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print errors without noise, which are for the holder of the rows only.
    """
    console.print(make_privacy_panel(found.statement.words, HELD))
    exact_head = ">"
    exact_numbers: dict[str, float] = {}
    if exact:
        exact_head = ">[dim]exact, for the holder[/]"
        exact_numbers = found.exact
    table = make_listing("<held-out rows", ">with its 95% interval", exact_head)
    for name, estimate in found.errors.estimates.items():
        table.add_row(
            _add_target_unit(_NAMES[name], name, found.errors.unit),
            format_estimate(estimate.to_dict()),
            _format_exact_number(exact_numbers, name),
        )
    console.print(table)
    if found.errors.r2.refused is not None:
        console.print(f"[yellow]note[/] R2: {found.errors.r2.refused}")
