"""``sottovoce predict``: use a saved run on new rows."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
from scipy.special import expit, log_softmax

from .. import data, files
from ..capped import NOT_CALIBRATED
from ..data.schema import unfit
from ..errors import InvalidInput, printable
from ..runs.simulate import Result
from ..task import TwoClasses
from ..typing import Array


@click.command()
@click.argument("run", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("rows", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replicate", type=int, default=0, show_default=True, help="Which repetition's model to use.")
@click.option("--site", type=int, help="Use one site's own model.  [default: the average over sites]")
@click.option("--threshold", type=float, help="Probability from which on a row is called positive.  [default: 0.5]")
@click.option("--proba", is_flag=True, help="Also the probability of every class.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of to the screen.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of CSV.")
def predict(
    run: Path,
    rows: Path,
    replicate: int,
    site: int | None,
    threshold: float | None,
    proba: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Classify ROWS (CSV or Parquet) with the model in RUN.

    RUN is a file written by `train --save`, or at the end of a run across sites: a site's NAME.npz, or hub.npz.

    The schema saved with the run encodes the rows; its label column may be absent.  One line a row: the class, and for
    the logistic loss of two classes the probability of the positive one; or the number, in its own unit.  Probabilities
    of a model trained with --max-grad-norm are not calibrated: a note on standard error says so, and in JSON every line
    does.
    """
    if out is not None:
        files.check("out", out, reads=(run, rows))
    if threshold is not None and not 0.0 < threshold < 1.0:
        raise InvalidInput("threshold", threshold, "must be inside (0, 1)", "use 0.5")
    if is_answered(run):
        from ..answers.saved import Answered

        answered = Answered.load(run)
        if answered.schema is None:
            raise InvalidInput("run", str(run), "was trained without a schema", "train on a table")
        table = data.read_table(rows)
        tell_unfit(answered.schema.encode(table, labels=False).clipped)
        margin = answered.margins(table)
        loss = "logistic" if isinstance(answered.schema.task, TwoClasses) else "squared"
        called = at_threshold(schema_answers(answered.schema, margin, loss, proba), answered.schema, threshold)
        _write(called, out, as_json)
        return
    result = Result.load(run)
    schema = schema_of(result, run)
    replicates, nodes = result.models.shape[:2]
    if not 0 <= replicate < replicates:
        raise InvalidInput("replicate", replicate, f"the run has replicates 0 to {replicates - 1}", "use --replicate 0")
    if site is not None and not 0 <= site < nodes:
        raise InvalidInput("site", site, f"the run has sites 0 to {nodes - 1}", "leave --site out for the average")
    table = data.read_table(rows)
    w = result.consensus[replicate] if site is None else result.models[replicate, site]
    encoded = schema.encode(table, labels=False)
    tell_unfit(encoded.clipped)
    margin = schema.task.vectors(w) @ encoded.X.T
    answers = schema_answers(schema, margin, result.config.loss, proba)
    if (result.config.loss == "logistic" or proba) and result.config.max_grad_norm < math.inf:
        click.echo(f"Note: {NOT_CALIBRATED}.", err=True)
        answers = [answer | {"calibrated": False} for answer in answers] if as_json else answers
    _write(at_threshold(answers, schema, threshold), out, as_json)


def is_answered(path: Path) -> bool:
    """Whether a file looks like one of a run with inference, which is plain text."""
    if not path.is_file():  # to open a pipe would wait for whoever writes to it
        return False
    try:
        with path.open("rb") as file:
            return file.read(1) == b"{"
    except OSError:
        return False


Answer = dict[str, str | float | bool]


def schema_answers(schema: data.Schema, margin: Array, loss: str, proba: bool = False) -> list[Answer]:
    """The answer to every row, with its probability for the logistic loss of two classes.

    Parameters
    ----------
    schema : Schema
    margin : array (n,) or (K, n)
    loss : str
        By which the model was trained.
    proba : bool
        Also the probability of every class, as ``probability of NAME``.

    Raises
    ------
    InvalidInput
        If the loss gives no probabilities and they are asked for.
    """
    logistic = loss == "logistic" or loss.startswith("softmax")
    if proba and not (logistic and schema.task.names):
        raise InvalidInput("proba", None, f"the loss {loss} gives no probabilities", "leave --proba out")
    answers: list[Answer] = [{"prediction": answer} for answer in schema.task.answers(margin)]
    if loss == "logistic":
        for answer, p in zip(answers, np.round(expit(margin), 6), strict=True):
            answer["probability"] = float(p)
    if proba:
        chances = np.exp(log_softmax(margin, axis=0)) if margin.ndim > 1 else np.stack([expit(-margin), expit(margin)])
        for name, chance in zip(schema.task.names, np.round(chances, 6), strict=True):
            for answer, p in zip(answers, chance, strict=True):
                answer[f"probability of {printable(name)}"] = float(p)
    return answers


def tell_unfit(clipped: Mapping[str, int]) -> None:
    """A note on standard error for who holds the table: what in it the schema does not declare."""
    for note in unfit(clipped, shortened=False):
        click.echo(f"Note: {note}", err=True)


def at_threshold(answers: list[Answer], schema: data.Schema, threshold: float | None) -> list[Answer]:
    """The same, called positive from a probability on; None for as they are.

    Raises
    ------
    InvalidInput
        If there are no probabilities.
    """
    if threshold is None:
        return answers
    if not isinstance(schema.task, TwoClasses) or any("probability" not in answer for answer in answers):
        rule = "is for two classes and the logistic loss: other answers have no probability"
        raise InvalidInput("threshold", threshold, rule, "leave --threshold out")
    no, yes = schema.task.names
    return [answer | {"prediction": yes if float(answer["probability"]) >= threshold else no} for answer in answers]


def schema_of(result: Result, run: Path) -> data.Schema:
    """The schema that a saved run holds.

    Raises
    ------
    InvalidInput
    """
    plain = result.extra.get("schema")
    if plain is None:
        raise InvalidInput(
            "run", str(run), "was trained without a schema, so raw rows cannot be encoded", "train on a table"
        )
    schema, d = data.Schema.from_dict(plain), result.models.shape[2]
    if schema.n_features * schema.task.outputs != d:
        rule = f"has {d} weights and a schema of {schema.n_features * schema.task.outputs}"
        raise InvalidInput("run", run, rule, "use a file written by `train --save`")
    return schema


def _write(answers: list[Answer], out: Path | None, as_json: bool) -> None:
    if as_json:
        written = json.dumps(answers, indent=1) + "\n"
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(answers[0]) if answers else ["prediction"])
        writer.writeheader()
        writer.writerows(answers)
        written = text.getvalue()
    if out is None:
        click.echo(written, nl=False)
    else:
        files.write("out", out, written)
