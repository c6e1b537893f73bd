"""Classifiers that say so if they are near guessing: before anything is spent, and of the model that they found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..answers.saved import SavedModel
from ..data.expected import fill, sketch
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import HolderNote, PublicNote
from ..runs.config import RunConfig
from ..runs.forecast import Forecast, forecast
from ..util.typing import Any, Array

_MADE_UP = 1000  # rows


def _differ(margins: Array) -> bool:
    """Whether margins (n,) or (n, K) answer some rows otherwise than others."""
    answers = margins > 0 if margins.ndim == 1 else margins.argmax(axis=1)
    return bool(np.any(answers != answers[0]))


class Foretelling:
    """Mixin of classifiers: warns of guessing."""

    forecast_: Forecast | None
    schema_: Schema | None
    coef_: Array
    intercept_: Array
    random_state: Any
    inference: bool
    _norm: float
    _answered: SavedModel | None
    _margins: Any
    _own_places: Any
    _notify: Callable[..., None]

    def _foretell(self, run: RunConfig, rows: Rows, where: dict[str, Any]) -> None:
        """Rehearse a run, once a fit, and warn if it is expected to be near guessing."""
        if "forecast_" in self.__dict__:
            return
        self.forecast_ = forecast(run, rows.n[:, 0], rows.d, **where)
        if self.forecast_ is not None and self.forecast_.guessing:
            self._notify("guessing", f"{self.forecast_.says}{self._more_scale()}", PublicNote, stacklevel=6)

    def _more_scale(self) -> str:
        """What rows of a better length would do, in words; from the schema alone."""
        if self.schema_ is None:
            return "; a data_norm that most rows reach, or a schema with typical ranges, lets rows stand out more"
        changes = fill(self.schema_).changes
        return f"; in the schema: {changes[0]}" if changes else ""

    def _tell_one_class(self, X: Any, features: Any, groups: Any = None) -> None:
        """Warn the data owner if the model predicts a single class, or everybody if the rows are synthetic."""
        if self.random_state is not None:
            if self._answered is not None:
                rows = features if self.schema_ is None else X
                margins = self._margins(rows, self._own_places(rows, groups))
            else:
                with np.errstate(all="ignore"):  # rows that are too long must not tell by a warning
                    margins = np.asarray(features @ self.coef_.T + self.intercept_)
                margins = margins[:, 0] if len(self.coef_) == 1 else margins
            if not _differ(margins):
                what = "the model gives one class for every row"
                text = f"{what} (a simulation, for the data's holder only)"
                self._notify("one class", text, HolderNote, stacklevel=3)
        elif not self.inference and (made := self._made_up()) is not None and not _differ(made):
            what = "the model gives one class for every made-up row" + ("" if self.schema_ else " up to data_norm")
            self._notify("one class", f"{what}, so it can hardly tell rows apart", PublicNote, stacklevel=3)

    def _made_up(self) -> Array | None:
        """Margins of made-up rows: of the schema, or those within `data_norm` that tell most."""
        if self.schema_ is not None and self._answered is not None:
            X = sketch(self.schema_, _MADE_UP, np.random.default_rng(0))
            assert self._answered.schema is not None
            return np.asarray(self._answered.schema.task.vectors(self._answered.model) @ X.T).T
        away = self.coef_ - self.coef_.mean(axis=0) if len(self.coef_) > 1 else self.coef_
        X = self._norm * away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-300)
        margins = np.concatenate([X, -X]) @ self.coef_.T + self.intercept_
        return np.asarray(margins[:, 0] if len(self.coef_) == 1 else margins)
