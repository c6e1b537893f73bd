"""``sottovoce predict``: use a saved run on new rows.

The "margin" of a row is its inner product with the model's weights: log-odds for the logistic loss,
the number itself for least squares.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import sys
from pathlib import Path

import click
import numpy as np
from scipy.special import expit, log_softmax, logit

from .. import data
from ..answers.own_site import AVERAGE, note_on_unknown_sites
from ..answers.saved import SavedModel
from ..data.schema import describe_unfit_rows
from ..errors import InvalidInput, escape_unprintable
from ..problem.clipped import NOT_CALIBRATED
from ..problem.task import TwoClasses
from ..util import files
from ..util.typing import Any, Array, IntArray
from .options import FILE, decorate_with_options, json_flag_option, make_option, saved_method_option
from .tables import read_table_with_notes


@click.command()
@click.argument("run", type=FILE)
@click.argument("rows", type=FILE)
@decorate_with_options(
    [
        make_option("--replicate", "Replicate whose model is used.", type=int, default=0),
        make_option(
            "--site",
            "Use one site's own model, or the constant of one site: by name, or number from 0 on.  "
            "[default: what each row's site column says, else the average over sites]",
        ),
        make_option(
            "--threshold",
            "Probability from which a row is positive.  [default: the run's, else 0.5]",
            type=float,
        ),
        make_option("--proba", "Also print the probability of every class.", is_flag=True),
        make_option(
            "--interval",
            "Also print an interval of this level, such as 0.95, for the probability or the mean.",
            type=float,
        ),
        make_option("--out", "Write to this file instead of the screen.", type=FILE),
        saved_method_option(),
        json_flag_option("Print a JSON list instead of CSV."),
    ]
)
def predict(
    run: Path,
    rows: Path,
    replicate: int,
    site: str | None,
    threshold: float | None,
    proba: bool,
    interval: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Classify ROWS (CSV or Parquet) with the model in RUN.

    RUN is a file written by `train --save`, or at the end of a run across sites: a site's NAME.npz,
    or hub.npz.

    The schema saved with the run encodes the rows; its label column may be absent.  One line a row:
    the class, and for the logistic loss of two classes the probability of the positive one; or the
    number, in its own unit.  A run that was cut at another probability than 0.5 (`train --set
    cut=0.3`) is used at that one.  Probabilities of a model trained with max_grad_norm may be
    overconfident or underconfident: a note on standard error says so, and what to use instead, and
    in JSON every line is marked.

    Where every site has a constant of its own, a row has that of the site that its site column
    names; a row that names none that the model knows has their average, and a note on standard
    error counts those.  --site gives all rows the constant of one site.

    After inference (`train --inference`) `--interval` adds a confidence interval for the
    probability, or for the mean of numbers, of rows like this one.  It covers sampling and privacy
    noise, and for a row of no known site also the differences between sites.  It is empty for rows
    of which a coefficient was refused, and costs no budget.

    \b
      sottovoce predict run.npz new.csv > answers.csv
      sottovoce predict run.npz new.csv --threshold 0.3
      sottovoce predict run.json new.csv --interval 0.95
    """
    if out is not None:
        files.check_writable_path("out", out, reads=(run, rows))
    _check_options(threshold, interval)
    saved = SavedModel.load(run, replicate, site)
    schema = saved.encoding(run)
    table = read_table_with_notes(rows)
    encoded = schema.encode(table, labels=False)
    # Who predicts holds the table, so counts of its rows may be told.
    for note in describe_unfit_rows(encoded.clipped, shortened=False):
        click.echo(f"Note: {note}", err=True)
    where = saved.site_indices(table)
    _note_unknown_sites(where)
    margins = saved.margins(table, encoded.X, where)
    answers = answers_from_margins(schema, margins, saved.trained_by, proba)
    if saved.capped and (saved.trained_by == "logistic" or proba):
        click.echo(f"Note: {NOT_CALIBRATED}.", err=True)
        if as_json:
            answers = [answer | {"calibrated": False} for answer in answers]
    if threshold is None:
        answers = _apply_run_threshold(answers, saved, schema, margins)
    answers = classify_at_threshold(answers, schema, threshold)
    if interval is not None:
        answers = add_answer_intervals(answers, saved, table, interval)
        _note_other_sites(saved, where)
    _write_predictions(answers, out, as_json)


def _check_options(threshold: float | None, interval: float | None) -> None:
    """Raise InvalidInput if the threshold is no probability, or the interval no level."""
    if threshold is not None and not 0.0 < threshold < 1.0:
        raise InvalidInput("threshold", threshold, "must be inside (0, 1)", "use 0.5")
    if interval is not None and not 0.0 < interval < 1.0:
        raise InvalidInput(
            "interval", interval, "must be a confidence level inside (0, 1)", "use 0.95"
        )


Answer = dict[str, Any]
"""What is printed of a row: texts, numbers, flags, or None for an interval that is not known."""


def _note_unknown_sites(where: IntArray | None) -> None:
    """Note how many rows name no site that the model knows, and get the average constant."""
    if where is None:
        return
    note = note_on_unknown_sites(where)
    if note is not None:
        click.echo(f"Note: {note}; --site NAME gives all rows that of one site.", err=True)


def _note_other_sites(saved: SavedModel, where: IntArray | None) -> None:
    """Note why rows of unknown sites have no interval, if there are such rows."""
    if where is None or not np.any(where == AVERAGE):
        return
    why = saved.table.site_constants.unknown_spread_reason
    if why is not None:
        click.echo(f"Note: no interval for rows of an unknown site: {why}.", err=True)


def add_answer_intervals(
    answers: list[Answer], saved: SavedModel, table: data.Table, level: float
) -> list[Answer]:
    """Add the ends of an interval to every answer: for the probability, or the mean number.

    Parameters
    ----------
    answers : list of dict
        One for each row.
    saved : SavedModel
        A run with inference.
    table : data.Table
        The rows as they were read.
    level : float
        Of the interval, inside (0, 1).

    Returns
    -------
    list of dict
        With ``low`` and ``high``, None where a coefficient was refused.
    """
    ends = saved.intervals(table, 1.0 - level)
    # The logistic function is monotone, so it maps an interval of margins to one of probabilities.
    if saved.trained_by == "logistic":
        ends = expit(ends)
    found = []
    for answer, (low, high) in zip(answers, np.round(ends, 6).tolist(), strict=True):
        found.append(answer | {"low": _number_or_none(low), "high": _number_or_none(high)})
    return found


def _number_or_none(x: float) -> float | None:
    """Return a number, and None for NaN, which JSON lacks."""
    if math.isnan(x):
        return None
    return x


def answers_from_margins(
    schema: data.Schema, margin: Array, loss: str, proba: bool = False
) -> list[Answer]:
    """Return the answer to every row, with probabilities where the loss gives them.

    Parameters
    ----------
    schema : data.Schema
        Names the classes, or the unit of the number.
    margin : array (n,) or (K, n)
        Margins of the rows, of K classes if there are several.
    loss : str
        The loss of the training.
    proba : bool
        Also add the probability of every class.

    Returns
    -------
    list of dict

    Raises
    ------
    InvalidInput
        If `proba` is asked of a loss without probabilities.
    """
    logistic = loss == "logistic" or loss.startswith("softmax")
    if proba and not (logistic and schema.task.names):
        raise InvalidInput(
            "proba", None, f"the loss {loss} gives no probabilities", "remove --proba"
        )
    answers: list[Answer] = [{"prediction": answer} for answer in schema.task.shown_answers(margin)]
    if loss == "logistic":
        for answer, p in zip(answers, np.round(expit(margin), 6), strict=True):
            answer["probability"] = float(p)
    if proba:
        for name, chances in zip(schema.task.names, _class_probabilities(margin), strict=True):
            for answer, p in zip(answers, np.round(chances, 6), strict=True):
                answer[f"probability of {escape_unprintable(name)}"] = float(p)
    return answers


def _class_probabilities(margin: Array) -> Array:
    """Compute the probability of every class, of shape (K, n)."""
    chances: Array
    if margin.ndim > 1:
        chances = np.exp(log_softmax(margin, axis=0))
    else:
        # expit(-m) in place of 1 - expit(m), which loses digits where it is small.
        chances = np.stack([expit(-margin), expit(margin)])
    return chances


def classify_at_threshold(
    answers: list[Answer], schema: data.Schema, threshold: float | None
) -> list[Answer]:
    """Call rows positive from a probability on.

    Parameters
    ----------
    answers : list of dict
        One for each row.
    schema : data.Schema
        Names the classes.
    threshold : float or None
        Inside (0, 1); None leaves the answers as they are.

    Returns
    -------
    list of dict

    Raises
    ------
    InvalidInput
        If answers have no probability, or there are not two classes.
    """
    if threshold is None:
        return answers
    have_probabilities = all("probability" in answer for answer in answers)
    if not isinstance(schema.task, TwoClasses) or not have_probabilities:
        rule = "needs two classes and the logistic loss: other models give no probability"
        raise InvalidInput("threshold", threshold, rule, "remove --threshold")
    no, yes = schema.task.names
    found = []
    for answer in answers:
        called = no
        if float(answer["probability"]) >= threshold:
            called = yes
        found.append(answer | {"prediction": called})
    return found


def _apply_run_threshold(
    answers: list[Answer], saved: SavedModel, schema: data.Schema, margins: Array
) -> list[Answer]:
    """Call rows positive from the run's own threshold on, if it has one.

    A note on standard error says which.
    """
    if saved.threshold is None or saved.threshold == 0.5:
        return answers
    click.echo(
        f"Note: positive from {saved.threshold:g} on, the run's threshold; --threshold sets "
        "another.",
        err=True,
    )
    return classify_by_run_threshold(answers, schema, margins, saved.threshold)


def classify_by_run_threshold(
    answers: list[Answer], schema: data.Schema, margin: Array, threshold: float
) -> list[Answer]:
    """Call rows positive where an evaluation at this threshold does so, for any loss.

    Parameters
    ----------
    answers : list of dict
        One for each row.
    schema : data.Schema
        Names the classes; nothing changes unless there are two.
    margin : array (n,)
        Margins of the rows.
    threshold : float
        Probability, inside (0, 1), whose logit the margin must reach.

    Returns
    -------
    list of dict
    """
    names = schema.task.names
    if len(names) != 2:
        return answers
    # By margins, because only the logistic loss gives probabilities.
    positive = (margin >= logit(threshold)).astype(int)
    return [
        answer | {"prediction": names[yes]}
        for answer, yes in zip(answers, positive.tolist(), strict=True)
    ]


def _write_predictions(answers: list[Answer], out: Path | None, as_json: bool) -> None:
    """Write the answers to a file, or to standard output."""
    if as_json:
        text = json.dumps(answers, indent=1) + "\n"
    else:
        text = _format_as_csv(answers)
    if out is None:
        _check_encoding(text)
        click.echo(text, nl=False)
    else:
        files.write_atomically("out", out, text)


def _format_as_csv(answers: list[Answer]) -> str:
    """Return answers as CSV; a table without rows gives the heading alone."""
    names = ["prediction"]
    if answers:
        names = list(answers[0])
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=names)
    writer.writeheader()
    writer.writerows(answers)
    return text.getvalue()


def _check_encoding(text: str) -> None:
    """Refuse to write answers in an encoding that would change a name.

    Raises InvalidInput; other programs read the answers.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # click takes ASCII for a mistake of the environment, and writes UTF-8.
    if codecs.lookup(encoding).name == "ascii":
        return
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        rule = (
            f"is needed: standard output, in {encoding}, cannot show some characters of the answers"
        )
        raise InvalidInput(
            "out", None, rule, "give --out FILE, which is written in UTF-8"
        ) from None
