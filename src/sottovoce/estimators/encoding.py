"""Encodings: rows into the unit ball by public constants, and models back to the columns' units.

Every method needs rows of norm at most 1, because sensitivities are proved for these.  Without a
schema a declared bound on norms does it (:class:`NormEncoding`); with one, the schema already has
(:class:`SchemaEncoding`).  No row's encoding depends on another row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from ..data.schema import Schema
from ..runs.centre import GAIN, Frame, frame_of_schema
from ..util.typing import Any, Array
from .declared import coefficients_in_units, encoded_model_from_units

SLACK = 1.0 + 1e-12
"""Keeps rounding from carrying a row of norm one outside the unit ball."""


class Encoding(ABC):
    """A map of rows into the unit ball that reads public constants and one row at a time."""

    @abstractmethod
    def encode_rows(self, features: Any) -> Any:
        """Encode `features` (n, p), dense or CSR, as rows (n, d) of norm at most 1."""

    @abstractmethod
    def centring_frame(self, width: int) -> Frame | None:
        """Return where encoded rows of this width hold constants; None if they hold none.

        A run that centres its rows needs a constant column (:mod:`sottovoce.runs.centre`).
        """

    @abstractmethod
    def coefficient_count(self, width: int) -> int:
        """Return the number of features that have coefficients, of X or of rows of this width."""

    @abstractmethod
    def model_to_units(self, vectors: Array) -> tuple[Array, Array]:
        """Convert models of encoded rows to the units of the columns.

        Parameters
        ----------
        vectors : array (models, d)

        Returns
        -------
        coef : array (models, columns)
            Per unit of each column.
        constant : array (models,)
        """

    @abstractmethod
    def model_from_units(self, coef: Array, intercept: Array) -> Array:
        """Convert coefficients (models, columns) and constants (models,) to models of encoded rows.

        The inverse of :meth:`model_to_units`.
        """


@dataclass(frozen=True)
class NormEncoding(Encoding):
    """Rows ``x`` as ``(x / R, 1) / sqrt 2``, with x of norm above a declared R scaled down to R.

    Parameters
    ----------
    norm : float
        R, in the units of the columns.
    intercept : bool
        Whether rows get the constant; without one they are ``x / R``.
    """

    norm: float
    intercept: bool

    def encode_rows(self, features: Any) -> Any:
        """Encode rows by the declared norm, and append the constant."""
        if issparse(features):
            return self._encode_sparse_rows(csr_array(features))
        # Divided by their largest entry (or R) first, so that squares cannot overflow.
        peak = np.maximum(np.abs(features).max(axis=1, keepdims=True), self.norm)
        unit = features / peak
        unit /= np.maximum(1.0, np.linalg.norm(unit, axis=1, keepdims=True)) * SLACK
        if not self.intercept:
            return unit
        return np.hstack([unit, np.ones((len(features), 1))]) / (math.sqrt(2.0) * SLACK)

    def _encode_sparse_rows(self, features: csr_array) -> csr_array:
        """Encode sparse rows by the same steps as dense ones."""
        peak = np.maximum(np.asarray(abs(features).max(axis=1).todense()).reshape(-1, 1), self.norm)
        unit = csr_array(features.multiply(1.0 / peak))
        norms = np.sqrt(np.asarray(unit.power(2).sum(axis=1))).reshape(-1, 1)
        unit = csr_array(unit.multiply(1.0 / (np.maximum(1.0, norms) * SLACK)))
        if not self.intercept:
            return unit
        ones = csr_array(np.ones((features.shape[0], 1)))
        return csr_array(hstack([unit, ones]) / (math.sqrt(2.0) * SLACK))

    def centring_frame(self, width: int) -> Frame | None:
        """Return the last column as the constant; None without an intercept."""
        if not self.intercept:
            return None
        return Frame((width - 1,), 1.0 / (math.sqrt(2.0) * SLACK), GAIN)

    def coefficient_count(self, width: int) -> int:
        """Return the width of X."""
        return width

    def model_to_units(self, vectors: Array) -> tuple[Array, Array]:
        """Divide by the scales of :meth:`encode_rows`; the last entry is the constant."""
        if not self.intercept:
            return vectors / (self.norm * SLACK), np.zeros(len(vectors))
        scaled = vectors / (math.sqrt(2.0) * SLACK)
        return scaled[:, :-1] / (self.norm * SLACK), scaled[:, -1]

    def model_from_units(self, coef: Array, intercept: Array) -> Array:
        """Multiply by the scales of :meth:`encode_rows`."""
        slopes = coef * (self.norm * SLACK)
        if not self.intercept:
            return slopes
        return np.hstack([slopes, intercept[:, None]]) * (math.sqrt(2.0) * SLACK)


@dataclass(frozen=True)
class SchemaEncoding(Encoding):
    """Rows that :meth:`sottovoce.Schema.encode` has put into the unit ball already."""

    schema: Schema

    def encode_rows(self, features: Any) -> Any:
        """Return the rows as they are: the schema has encoded them."""
        return features

    def centring_frame(self, width: int) -> Frame | None:
        """Return where the schema's encoding holds constants; None if nowhere."""
        return frame_of_schema(self.schema)

    def coefficient_count(self, width: int) -> int:
        """Return the width of encoded rows without the constant."""
        return width - (self.schema.intercept > 0)

    def model_to_units(self, vectors: Array) -> tuple[Array, Array]:
        """Convert by the declared bounds of the columns."""
        return coefficients_in_units(self.schema, vectors)

    def model_from_units(self, coef: Array, intercept: Array) -> Array:
        """Convert by the declared bounds; InvalidInput for a schema without a constant."""
        return encoded_model_from_units(self.schema, coef, intercept)


__all__ = ["SLACK", "Encoding", "NormEncoding", "SchemaEncoding"]
