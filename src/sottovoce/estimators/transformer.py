"""A schema as a transformer of scikit-learn.

It learns nothing from rows, so a private model after it keeps its guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from ..data.frames import read_frame
from ..data.schema import Schema, describe_unfit_rows, errors_of_columns
from ..errors import HolderNote, InvalidInput, SchemaError
from ..util.typing import Any, Array
from .declared import read_schema_argument, source_columns
from .notices import Note, Notifying


class SchemaTransformer(Notifying, TransformerMixin, BaseEstimator):
    """Encode frames as rows of norm at most 1, by a schema of public facts.

    Parameters
    ----------
    schema : path, dict or Schema
        As for :class:`sottovoce.ConsensusClassifier`.
    columns : sequence of str or None, default=None
        Names for the columns of an array that has none.

    Attributes
    ----------
    schema_ : Schema
    feature_names_in_ : ndarray of str
        Columns that the schema reads.
    n_features_in_ : int

    Notes
    -----
    *Guarantee*: A row of the output depends on its own row of the input and on the schema, on no
    other row, so that a model behind it has the guarantee that it states.

    Examples
    --------
    >>> from sottovoce import SchemaTransformer
    >>> age = {"kind": "number", "lo": 0, "hi": 120, "missing": 60}
    >>> encode = SchemaTransformer({"columns": {"age": age}})
    >>> encode.fit_transform({"age": [30, None, 120]}).round(6).tolist()
    [[-0.5], [0.0], [1.0]]
    """

    def __init__(self, schema: Any = None, columns: Sequence[str] | None = None) -> None:
        self.schema = schema
        self.columns = columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _read_schema(self) -> Schema:
        """Read the schema; InvalidInput without one."""
        schema = read_schema_argument(self.schema)
        if schema is None:
            rule = "must be given, because it declares the columns"
            raise InvalidInput(
                "schema", None, rule, "give the path of a TOML file, a dict or a Schema"
            )
        return schema

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the schema and check that X has its columns; no value is read."""
        schema = self._read_schema()
        table = read_frame(X, self.columns)
        if schema.person is not None:
            rule = (
                "protects all rows of a person together, but encoded rows no longer say whose "
                "they are"
            )
            raise SchemaError(
                "person", None, rule, "give schema= to the estimator, or leave person out"
            )
        errors = errors_of_columns(schema, table.columns, labels=False)
        if errors:
            raise errors[0]
        sources = source_columns(schema, table.columns)
        self.schema_ = schema
        self.feature_names_in_ = np.array(sources, dtype=np.object_)
        self.n_features_in_ = len(sources)
        return self

    def transform(self, X: Any) -> Array:
        """Encode rows, (n_samples, n_features_out).

        A :class:`sottovoce.errors.HolderNote` tells the data owner which values did not fit.
        """
        schema = getattr(self, "schema_", None) or self._read_schema()
        found = schema.encode(read_frame(X, self.columns), labels=False)
        notes = describe_unfit_rows(found.clipped)
        if notes:
            self._warn_once(Note("schema", "; ".join(notes), HolderNote), stacklevel=2)
        return found.X

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return names of the columns of the output; `input_features` is ignored."""
        schema = getattr(self, "schema_", None) or self._read_schema()
        return np.array(schema.feature_names, dtype=np.object_)


__all__ = ["SchemaTransformer"]
