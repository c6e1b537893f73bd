"""Common bases of the estimators: parameters, copies, files, and the reports of a fitted model.

:class:`PrivateEstimator` is the base of all; :class:`LinearEstimator` that of classifiers and
regressors.  What a subclass adds is its parameters, its `fit` (five steps,
:mod:`sottovoce.estimators.fitting`) and its predictions.  Most methods here only forward to a
module that holds the work.

A *fit* is what scikit-learn calls so; it is a release of its own, which spends budget.  `_answered`
is the model of encoded rows with the encoding beside it; `_result` is the run that trained it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from ..answers.saved import SavedModel
from ..data.frames import read_frame
from ..data.schema import Schema
from ..data.validation import check_column_types, run_without_data_in_errors
from ..errors import InvalidInput
from ..runs.simulate import Result
from ..util.compatibility import FORMAT
from ..util.typing import Any, Array, IntArray
from .keeping import load_fitted_estimator, save_fitted_estimator
from .ledgers import state_without_ledger
from .notices import Notifying
from .own_site import check_groups_are_used, site_positions, unknown_sites_note
from .parameters import PICKLED_BY, check_pickle_format, collect_run_fields, resolve_knobs
from .showing import describe_model, model_page_html, plot_coefficients, text_of_model
from .tables import Features
from .terms import Terms


class PrivateEstimator(Notifying, BaseEstimator):
    """An estimator whose fits are private, with rarely used parameters in a dict, `knobs`.

    :func:`sottovoce.estimators.parameters.declare_knobs` declares the names of a class's knobs.
    Its `fit` is five calls: validate, encode, plan, run, decode
    (:mod:`sottovoce.estimators.fitting`).
    """

    schema: Any = None
    columns: Sequence[str] | None = None
    knobs: Mapping[str, Any] | None
    own_knobs: ClassVar[dict[str, Any]]
    takes_sparse: ClassVar[bool] = False

    schema_: Schema | None = None
    # The model of encoded rows with their encoding; None for one whose rows are plain numbers.
    _answered: SavedModel | None = None
    # The run, for `save`; None where several runs made the model.
    _result: Result | None = None

    def _resolve_knobs(self) -> dict[str, Any]:
        """Return the values of all knobs of this estimator by name."""
        return resolve_knobs(self)

    def _collect_run_fields(self) -> dict[str, Any]:
        """Return the fields of :class:`sottovoce.RunConfig` that parameters and knobs set."""
        return collect_run_fields(self)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``knobs__rho=...`` sets one knob and leaves the others."""
        # Knobs are no parameters of a nested estimator, which scikit-learn's `a__b` means.
        single = {
            name.removeprefix("knobs__"): params.pop(name)
            for name in list(params)
            if name.startswith("knobs__")
        }
        if single:
            params["knobs"] = dict(params.get("knobs", self.knobs) or {}) | single
        found: Self = super().set_params(**params)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return state_without_ledger(super().__getstate__()) | {PICKLED_BY: FORMAT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(check_pickle_format(state, type(self).__name__))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file, in one step.

        The file has the format of ``sottovoce train --save``: ``sottovoce report`` and, under a
        schema, ``sottovoce predict`` and ``export`` read it too; :meth:`load` reads it back.

        Raises
        ------
        InvalidInput
            For one model of each class against the rest, which are several runs.
        NotWritten
            If the file cannot be written.
        """
        save_fitted_estimator(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that :meth:`save` wrote; the file may come from an untrusted source.

        The ledger and the `random_state` are not in the file: a fit of the loaded estimator is a
        release.

        Raises
        ------
        CheckpointError
            If it is no saved estimator of this class.
        """
        found: Self = load_fitted_estimator(cls, path)
        return found

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that coefficients belong to.

        Parameters
        ----------
        input_features : ignored under a schema; else names of the columns of X, if it had none

        Returns
        -------
        ndarray of str objects
            Those of `coef_`: of encoded columns under a schema, such as "ward=icu"; else those of
            X.
        """
        check_is_fitted(self, "n_features_in_")
        schema = self.schema_
        if schema is None:
            return np.asarray(_check_feature_names_in(self, input_features))
        # Inference reads rows in an encoding of its own.
        if self._answered is not None and self._answered.naming is not None:
            schema = self._answered.naming.schema or schema
        names = [name for block in schema.blocks for name in block.feature_names]
        return np.array(names, dtype=np.object_)

    def _store_column_names(self, terms: Terms, features: Features) -> None:
        """Set `n_features_in_`, `feature_names_in_` and `schema_`, as scikit-learn wants of a fit.

        Names of an earlier fit are removed first, as this one's X may have none.
        """
        self.__dict__.pop("schema_", None)
        self.__dict__.pop("feature_names_in_", None)
        if terms.schema is not None:
            self.schema_ = terms.schema
        if features.names is not None:
            self.feature_names_in_ = features.names
        self.n_features_in_ = features.width

    def _validate_array(self, X: Any) -> Any:
        """Return X as a float array (n, p), or CSR, with the columns of the fit; else InvalidInput.

        For rows without a schema; the checks are scikit-learn's, without data in the errors.
        """
        if issparse(X) and not self.takes_sparse:
            raise InvalidInput("X", None, "sparse input is not supported", "use X.toarray()")
        check_column_types(X)
        accepted: str | bool = False
        if self.takes_sparse:
            accepted = "csr"

        def validated() -> Any:
            return validate_data(self, X, reset=False, dtype=np.float64, accept_sparse=accepted)

        return run_without_data_in_errors("X", validated, X)


class LinearEstimator(PrivateEstimator):
    """A linear model of rows, ``coef_ . x`` plus one constant, or a constant for every site."""

    def _read_rows_to_predict(self, X: Any) -> Any:
        """Read rows to predict: raw columns for a model under a schema, else an array."""
        if self.schema_ is not None and self._answered is not None:
            return read_frame(X, self.columns)
        rows = self._validate_array(X)
        # A model with named coefficients encodes rows itself, and reads no sparse ones.
        named = self._answered is not None and self._answered.naming is not None
        if issparse(rows) and named:
            return rows.toarray()
        return rows

    def _site_positions(self, rows: Any, groups: Any) -> IntArray | None:
        """Return the index of each row's site in the model, (n,); None if sites do not matter.

        Warns the data owner (:class:`sottovoce.errors.HolderNote`) of rows whose site is not one of
        the model's.
        """
        where = site_positions(self._answered, rows, groups)
        check_groups_are_used(where, groups)
        note = unknown_sites_note(where, groups)
        if note is not None:
            # Warn at the line of the user's call.
            self._warn_once(note, stacklevel=4)
        return where

    def summary(self) -> str:
        """Return text: the training, the coefficients, and the privacy statement with caveats."""
        return describe_model(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw the coefficients: after inference a forest plot with 95% intervals, else bars.

        Odds ratios have a logarithmic axis.  Refused coefficients are marked as such.  Of many
        columns only those with the largest coefficients are drawn.  Costs no budget.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; None for a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        InvalidInput
            If matplotlib is not installed: ``pip install 'sottovoce[plot]'``.
        """
        return plot_coefficients(self, ax)

    def page(self) -> str:
        """Return HTML of the privacy statement and, after inference, of the table."""
        return model_page_html(self)

    def __str__(self) -> str:
        return text_of_model(self)

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's HTML of the estimator and, once fitted, :meth:`page`."""
        whole: str = super()._repr_html_inner()
        if hasattr(self, "coef_"):
            whole += self.page()
        return whole

    def _repr_mimebundle_(self, **more: Any) -> Any:
        """Return what a notebook shows: the same, with :meth:`page` once fitted."""
        shown = super()._repr_mimebundle_(**more)
        if "text/html" in shown and hasattr(self, "coef_"):
            shown["text/html"] += self.page()
        return shown


__all__ = ["LinearEstimator", "PrivateEstimator"]
