"""What inference, regression and evaluations print for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..answers.classes import ClassEvaluation
from ..answers.evaluation import Evaluation
from ..answers.numbers import Fitted
from ..answers.numeric_metrics import NumberEvaluation
from ..answers.training import Inferred
from ..errors import printable
from ..privacy.statement import Statement
from ..reports.coefficients import NOISE_MEANS, assumptions, has_intervals, remark, rows_of
from ..reports.quality import RECALIBRATION, cell_text
from .render import privacy, show_notes
from .screen import Console, Listing, escape, listing

DIMMED = ("reference", "refused", "-")
HELD = "Privacy of held-out rows"
_RECALIBRATED = {key: head for key, (head, _) in RECALIBRATION.items()}
_NAMES = {
    "r2": "R2",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
    "mean_target": "mean of the target",
}


def _head(what: str, done: Inferred | Fitted, console: Console) -> None:
    """Print the data, sizes and privacy statement of a run."""
    sizes = done.sizes.astype(int)
    size = (
        f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    )
    console.print(
        f"[bold]{what}[/] on [bold]{escape(done.config.data)}[/]: {len(sizes)} sites of {size} "
        f"{done.statement.counted}, {escape(done.config.partition or '')} partition, "
        f"{len(done.answered.model)} columns"
    )
    console.print(privacy(done.statement.words))


def render_inferred(done: Inferred, console: Console, saved: Path | None) -> None:
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
    _head("inference", done, console)
    if done.evaluation is not None:
        render_evaluation(done.evaluation, console)
    elif done.exact:
        area = f"{done.exact['auc']:.4f}" if "auc" in done.exact else "unknown, of one class"
        console.print(
            f"AUC {area}, Brier {done.exact['brier']:.4f}, "
            f"accuracy {100 * done.exact['accuracy']:.2f}% on {done.exact['rows']:,.0f} test rows, "
            "[dim]taken as public, without noise: for the data's holder only[/]"
        )
    show_coefficients(done.to_dict(), console)
    show_notes(done.notes, console, saved)


def render_record(record: dict[str, Any], console: Console) -> None:
    """Print the answers of a run between sites, as their files hold them."""
    show_notes(record["notes"], console)
    if record["evaluation"] is not None:
        render_quality(record["evaluation"], console)
    if "coefficients" in record:
        show_coefficients(record, console)


def show_coefficients(plain: dict[str, Any], console: Console) -> None:
    """Print a run's table of coefficients with their intervals."""
    lines = plain["coefficients"]
    table = listing()
    (column, heads), *rows = rows_of(lines)
    table.add_column(column, overflow="fold")
    for head in heads:
        table.add_column(
            head if head.startswith("95%") else head.replace(" ", "\n"),
            justify="right",
            no_wrap=True,
        )
    for name, row in rows:
        table.add_row(escape(name), *(f"[dim]{x}[/]" if x in DIMMED else x for x in row))
    console.print(table)
    if any(line.get("noise_share") for line in lines):
        console.print(f"[dim]{NOISE_MEANS}.[/]")
    if said := remark(lines, plain["needs"], assumptions(plain)):
        console.print(f"[yellow]note[/] {escape(said)}")


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
    render_quality(found.to_dict() | ({} if exact else {"exact": {}}), console)


def render_quality(found: dict[str, Any], console: Console) -> None:
    """Print an evaluation of two classes from plain data, with ``exact`` if there is any."""
    console.print(privacy(Statement.from_dict(found["privacy"]).words, HELD))
    names, every = ["all held-out rows", *found["by"]], [found, *found["by"].values()]
    console.print(_quality_table(found, names, every))
    console.print(_calibration(found["calibration"]))
    for quality, name in zip(every, names, strict=True):
        for key, head in ({"auc": "AUC"} | _RECALIBRATED).items():
            if quality[key].get("refused") is not None:
                console.print(f"[yellow]note[/] {head}, {escape(name)}: {quality[key]['refused']}")


def _quality_table(
    found: dict[str, Any], names: Sequence[str], every: Sequence[dict[str, Any]]
) -> Listing:
    """Make a table with a line for each measure.

    It has a column for all rows, and one for each group of rows.
    """
    many = len(every) > 1  # then intervals stand below their numbers
    table = Listing(padding=(0, 1 if many else 2, 0, 0))
    table.add_column("held-out rows")
    heads = ["all", *(name.replace("=", "\n", 1) for name in names[1:])] if many else names
    for head in heads:
        table.add_column(escape(head), justify="right")
    exact = found.get("exact", {})
    table.add_column("[dim]exact, for\nthe holder[/]" if exact else "", justify="right")

    def row(head: str, of: list[dict[str, Any]], name: str) -> None:
        told = f"[dim]{exact[name]:.4f}[/]" if name in exact else ""
        table.add_row(head, *(estimate_text(one, many) for one in of), told)

    for key, head in (
        {"auc": "AUC", "brier": "Brier score"} | _RECALIBRATED | {"positives": "positives"}
    ).items():
        row(head, [q[key] for q in every], key)
    table.add_row(f"at {found['threshold']:g} or more:", *[""] * len(every), "")
    for name in ("accuracy", "sensitivity", "specificity", "precision"):
        row(f"  {name}", [q["rates"][name] for q in every], name)
    return table


def estimate_text(found: dict[str, Any], below: bool = False) -> str:
    """Format an estimate with its 95% interval, or say that it was refused."""
    if found["value"] is None:
        return "[dim]refused[/]"
    low, high = f"{found['low']:.3f}", f"{found['high']:.3f}"
    if below:
        return f"{found['value']:.4f}\n[dim]{low.removeprefix('0')} to {high.removeprefix('0')}[/]"
    return f"{found['value']:.4f} [dim]({low} to {high})[/]"


def _calibration(cells: Sequence[dict[str, Any]]) -> Table:
    table = listing(">predicted", ">observed", ">95% interval", ">rows, about")
    for cell in cells:
        table.add_row(
            cell_text(cell),
            f"{100 * cell['observed']:.1f}%",
            f"{100 * cell['low']:.1f} to {100 * cell['high']:.1f}",
            f"{cell['rows']:,.0f}",
        )
    return table


def render_any(found: Any, console: Console, *, exact: bool = True) -> None:
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
        ClassEvaluation: render_classes,
        NumberEvaluation: render_errors,
    }
    kinds.get(type(found), render_evaluation)(found, console, exact=exact)


def render_classes(found: ClassEvaluation, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of several classes.

    Parameters
    ----------
    found : ClassEvaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print recalls without noise, which are for the holder of the rows only.
    """
    console.print(privacy(found.statement.words, HELD))
    heads = ["<held-out rows", ">share", ">found (recall)", ">answers right (precision)"]
    table = listing(*heads, *([">[dim]recall, exact, for\nthe holder[/]"] if exact else []))
    for name in found.names:
        row = [
            estimate_text(of[name].to_dict(), True)
            for of in (found.share, found.found, found.right)
        ]
        beside = [f"[dim]{found.exact[f'recall on {name}']:.4f}[/]"] if exact else []
        table.add_row(escape(printable(name)), *row, *beside)
    beside = [f"[dim]{found.exact['accuracy']:.4f}[/]"] if exact else []
    table.add_row(
        "[bold]all: accuracy[/]", "", estimate_text(found.accuracy.to_dict(), True), "", *beside
    )
    console.print(table)
    counts = listing(
        "<rows, about, of", *(f">answered\n{escape(printable(name))}" for name in found.names)
    )
    for name, line in zip(found.names, found.counts, strict=True):
        counts.add_row(escape(printable(name)), *(f"{count:,.0f}" for count in line))
    console.print(counts)


def render_fitted(done: Fitted, console: Console, saved: Path | None) -> None:
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
    _head("least squares", done, console)
    if done.evaluation is not None:
        render_errors(done.evaluation, console)
    elif done.exact.get("rows"):
        table = listing("<on test rows", ">this run", ">mean of training rows")
        for name, words in _NAMES.items():
            if name != "mean_target" and name in done.exact:
                table.add_row(
                    _with_unit(words, name, unit),
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
            f"[dim]coefficients in {escape(unit or 'units of the target')} a step of the column[/]"
        )
        show_coefficients(done.to_dict(), console)
    else:
        console.print(_coefficients(done))
        console.print("[dim]without standard errors: --inference spends the budget on intervals[/]")
        if done.weighed:
            console.print(f"[yellow]note[/] {escape(done.weighed)}")
    show_notes(done.notes, console, saved)


def _with_unit(words: str, name: str, unit: str) -> str:
    return words if name == "r2" or not unit else f"{words} ({escape(unit)})"


def _coefficients(done: Fitted) -> Table:
    per = f"coefficient ({done.task.unit})" if done.task.unit else "coefficient"
    table = listing("<column", "<level", f">{escape(per)}")
    told: set[str] = set()
    for line in done.coefficients:
        level = line["level"] or ""
        if line["reference"] is not None and line["name"] not in told:
            level += f"  (against {line['reference']})"
        told.add(line["name"])
        table.add_row(escape(line["name"]), escape(level), f"{line['estimate']:.4g}")
    return table


def render_errors(found: NumberEvaluation, console: Console, *, exact: bool = True) -> None:
    """Print an evaluation of a predicted number.

    Parameters
    ----------
    found : NumberEvaluation
    console : Console
        Where it is printed.
    exact : bool
        Also print errors without noise, which are for the holder of the rows only.
    """
    console.print(privacy(found.statement.words, HELD))
    table = listing(
        "<held-out rows",
        ">with its 95% interval",
        ">[dim]exact, for the holder[/]" if exact else ">",
    )
    for name, estimate in found.errors.estimates.items():
        beside = f"[dim]{found.exact[name]:.4f}[/]" if exact and name in found.exact else ""
        table.add_row(
            _with_unit(_NAMES[name], name, found.errors.unit),
            estimate_text(estimate.to_dict()),
            beside,
        )
    console.print(table)
    if found.errors.r2.refused is not None:
        console.print(f"[yellow]note[/] R2: {found.errors.r2.refused}")
