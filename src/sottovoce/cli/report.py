"""``sottovoce report``: a finished run as a page for people who did not run it.

A run's record is its plain data: :mod:`sottovoce.reports` makes the page from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import (
    CheckpointError,
    InvalidInput,
    NotWritten,
    SottovoceError,
    format_declared_value,
)
from ..util import files
from ..util.plain import HOLDER_ONLY, merge_held_back_figures
from .options import FILE, saved_method_option
from .screen import Console, escape_markup


@click.command()
@click.argument("run", type=FILE)
@click.option(
    "--out", type=FILE, help="Write here.  [default: the name of RUN with the ending .html]"
)
@click.option("--plot", type=FILE, help="Also write the plot of coefficients here, as SVG.")
@click.option("--title", help="Title of the page.  [default: from the label's name]")
@saved_method_option()
@click.option(
    "--holder",
    is_flag=True,
    help="Also show numbers without noise, marked: for the holder of the rows only.",
)
def report(run: Path, out: Path | None, plot: Path | None, title: str | None, holder: bool) -> None:
    """Write the answers in RUN as one page to read, print or pass on.

    RUN is a file written by `train --save`, or what `train --json` printed.

    The page is one HTML file that needs nothing else: coefficients with intervals, how good the
    model is, who took part, what it cost and what is promised.  It holds only what was released.
    With --holder it also shows the numbers without noise that RUN has: the JSON of a simulation has
    them, that of a release only if it was printed with --holder, and a saved run never.  `train
    --report` and `evaluate --report` write the page at once.

    \b
      sottovoce report run.json --out report.html
      sottovoce report run.json --out report.html --plot odds.svg
    """
    if out is None:
        out = run.with_suffix(".html")
    files.check_writable_path("out", out, reads=(run,))
    if plot is not None:
        files.check_writable_path("plot", plot, reads=(run,))
    plain = read_run_record(run)
    # What a release holds back goes into no page unless it is asked for.
    held_back = plain.pop(HOLDER_ONLY, None) or {}
    if holder:
        plain = merge_held_back_figures(plain, held_back)
    if plot is not None and not plain.get("coefficients"):
        rule = "needs coefficients with intervals, and the run has none"
        raise InvalidInput("plot", str(plot), rule, "remove it")
    write_report_page(out, plain, title=title, holder=holder)
    if plot is not None:
        from ..reports import picture

        files.write_atomically("plot", plot, picture(plain))


def write_report_page(
    path: Path, plain: dict[str, Any], *, title: str | None = None, holder: bool = False
) -> None:
    """Write the page of a run's record, and say where it is on standard error.

    Parameters
    ----------
    path : Path
        The page.
    plain : dict
        The record, as plain data.
    title : str, optional
        Of the page; by default from the label's name.
    holder : bool
        Also show numbers without noise, for the holder of the rows only.
    """
    # Few runs are reported at once, and `train` and others load this module too.
    from ..answers.coefficients import add_site_effects
    from ..reports import page

    files.write_atomically(
        "report", path, page(add_site_effects(plain), title=title, holder=holder)
    )
    Console(stderr=True).print(f"report in {escape_markup(str(path))}", highlight=False)


def write_page_or_error(path: Path, plain: dict[str, Any]) -> NotWritten | None:
    """Write the page of a run that was paid for, as :func:`write_report_page`.

    An error is returned, to be raised once the run was shown.
    """
    try:
        write_report_page(path, plain)
    except NotWritten as error:
        return error.mark_as_after_release()
    return None


def read_run_record(run: Path) -> dict[str, Any]:
    """Return the record of a saved run, or of a JSON object that a command printed."""
    from ..answers.saved import SavedModel, refusal_of_model, starts_like_json

    if not run.is_file():
        raise InvalidInput(
            "run", str(run), "is not a file", "check the path, or save a run with `train --save`"
        )
    if not starts_like_json(run):
        return SavedModel.load(run).record
    try:
        found = files.parse_bounded_json(files.read_bounded_text("run", run))
        # A saved file holds its record beside other things; --json prints the record alone.
        record = found.get("record", found)
        if not isinstance(record, dict) or not isinstance(record.get(HOLDER_ONLY) or {}, dict):
            raise ValueError("no object")
        refused = refusal_of_model(found)
    except (ValueError, TypeError) as error:
        if isinstance(error, SottovoceError):
            raise
        rule = "not a saved run"
        raise InvalidInput(
            "run", str(run), rule, "use a file written by `train --save`, or by --json"
        ) from None
    if refused is not None:
        raise CheckpointError(f"run={format_declared_value(run)}: {refused}")
    return record
