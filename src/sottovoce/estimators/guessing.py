"""Warnings of a classifier that hardly does better than guessing.

Before anything is spent they follow from a forecast on synthetic rows; after the fit, from the
model's answers to synthetic rows (a release) or to the fitted rows (a simulation).
"""

from __future__ import annotations

import numpy as np

from ..data.expected import fill, sketch
from ..errors import HolderNote, PublicNote
from ..runs.forecast import Forecast
from ..util.typing import Any, Array
from .notices import Note
from .predicting import LinearModel
from .terms import Terms

# Number of synthetic rows for which a released model is tried.
_SYNTHETIC_ROWS = 1000

SAME_CLASS = "the model gives the same class"
"""Beginning of the notes that follow from a fitted model alone; the audit of labels knows them."""


def forecast_notes(found: Forecast | None, terms: Terms) -> tuple[Note, ...]:
    """Return a public note, with advice, if the forecast expects a run to be near guessing."""
    if found is None or not found.is_near_guessing:
        return ()
    return (Note("guessing", f"{found.says}{_scale_advice(terms)}", PublicNote),)


def _scale_advice(terms: Terms) -> str:
    """Return advice on a better scale of the rows, from public facts alone; empty without any."""
    if terms.schema is None:
        return (
            "; rows stand out more from the noise with a data_norm that most rows reach, or with a "
            "schema with typical ranges"
        )
    changes = fill(terms.schema).changes
    if not changes:
        return ""
    return f"; in the schema: {changes[0]}"


def one_class_of_rows(margins: Array) -> tuple[Note, ...]:
    """Return a note, for the data owner of a simulation, if all rows get the same class.

    `margins` are those of the fitted rows, (n,) or (n, K).
    """
    if _answers_differ(margins):
        return ()
    what = f"{SAME_CLASS} for every row"
    return (Note("one class", f"{what} (a simulation, for the data's holder only)", HolderNote),)


def one_class_of_synthetic_rows(model: LinearModel, terms: Terms) -> tuple[Note, ...]:
    """Return a public note if a released model gives all synthetic rows the same class."""
    if _answers_differ(_margins_of_synthetic_rows(model, terms)):
        return ()
    where = ""
    if terms.schema is None:
        where = " up to data_norm"
    what = f"{SAME_CLASS} for every synthetic row{where}, so it hardly distinguishes rows"
    return (Note("one class", what, PublicNote),)


def _answers_differ(margins: Array) -> bool:
    """Return true if margins (n,) or (n, K) give different answers for some rows."""
    if margins.ndim == 1:
        answers = margins > 0
    else:
        answers = margins.argmax(axis=1)
    return bool(np.any(answers != answers[0]))


def _margins_of_synthetic_rows(model: LinearModel, terms: Terms) -> Array:
    """Compute margins of synthetic rows, (rows,) or (rows, K).

    Under a schema these are rows drawn from it; without one, the rows of norm `data_norm` along and
    against each class's coefficients, whose margins differ most.
    """
    answered: Any = model.answered
    if terms.schema is not None and answered is not None:
        X = sketch(terms.schema, _SYNTHETIC_ROWS, np.random.default_rng(0))
        assert answered.schema is not None
        return np.asarray(answered.schema.task.vectors_by_margin(answered.model) @ X.T).T
    coef = model.coef
    # Margins are compared, so what all coefficients have in common does not count.
    away = coef
    if len(coef) > 1:
        away = coef - coef.mean(axis=0)
    X = terms.norm * away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-300)
    return model.linear_margins(np.concatenate([X, -X]))


__all__ = ["SAME_CLASS", "forecast_notes", "one_class_of_rows", "one_class_of_synthetic_rows"]
