"""Predictions with the constant of a row's own site."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import issparse

from ..answers.own_site import unknown
from ..answers.saved import SavedModel
from ..data.frames import read_frame
from ..data.schema import Schema
from ..data.validation import one_site_each
from ..errors import HolderNote, InvalidInput
from ..util.typing import Any, IntArray


class OwnSite:
    """Mixin of estimators whose models may have a constant for every site."""

    schema_: Schema | None
    _answered: SavedModel | None
    _notify: Callable[..., None]

    @property
    def _named(self) -> SavedModel | None:
        """The model, if its coefficients have names."""
        return None if self._answered is None or self._answered.naming is None else self._answered

    def _rows_of(self, X: Any) -> Any:
        """Rows to predict: raw columns for a model under a schema, else an array."""
        me: Any = self
        if self.schema_ is not None and self._answered is not None:
            return read_frame(X, me.columns)
        rows = me._table(X, reset=False)
        return rows.toarray() if issparse(rows) and self._named is not None else rows

    def _places(self, rows: Any, groups: Any) -> IntArray | None:
        """The places of rows' sites in the model; their holder is told of rows that name no site that it knows."""
        where = self._own_places(rows, groups)
        if where is None and groups is not None:
            rule = "is for models with a constant for every site, and this one has the same for all rows"
            raise InvalidInput("groups", None, rule, "leave it out")
        if where is not None and (said := unknown(where)) is not None:
            remedy = "" if groups is not None else "; groups= names the site of every row"
            self._notify("average site", f"{said}{remedy} (for the data's holder only)", HolderNote, stacklevel=4)
        return where

    def _own_places(self, rows: Any, groups: Any) -> IntArray | None:
        """The same in silence; None if all rows have one constant."""
        model = self._named
        if model is None:
            return None
        return model.places(rows, None if groups is None else one_site_each(groups, many(rows)))


def many(rows: Any) -> int:
    """The number of rows to predict."""
    return int(rows.n_rows) if hasattr(rows, "n_rows") else int(np.shape(rows)[0])
