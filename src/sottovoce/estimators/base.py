"""What the estimators share: the seed, the deal of rows to sites, weights, and rows in the unit ball."""

from __future__ import annotations

import math
import secrets
import warnings

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from ..data import partition
from ..data.validation import checked, misfit, sites_in
from ..data.weights import check_cap, class_shares, shares
from ..errors import HolderNote, InvalidInput
from ..runs.centre import GAIN, Frame
from ..util.typing import Any, Array, ArrayLike, IntArray
from .parameters import Knobbed

SLACK = 1.0 + 1e-12
"""Keeps rounding from carrying a row of norm one outside the unit ball."""
HEAVIEST_READ = "the largest weight was read off the rows, and epsilon does not cover that"


class Sited(Knobbed):
    """For estimators with `random_state`, `n_sites`, `data_norm`, `epsilon` and `fit_intercept`."""

    random_state: Any
    n_sites: int
    data_norm: float
    epsilon: Any
    fit_intercept: bool
    class_weight: Any = None

    def _weights(
        self, given: ArrayLike | None, parts: list[IntArray], classes: Array | None = None, label: Any = None
    ) -> tuple[list[Array] | None, str | None]:
        """Weights in [0, 1] of each site's rows, and a caveat; two Nones if all rows count alike."""
        n, weight, caveat, cap = sum(map(len, parts)), None, None, self._knobs()["max_weight"]
        if given is not None:
            own = np.asarray(checked("sample_weight", lambda: np.asarray(given, dtype=np.float64)))
            if own.shape != (n,):
                rule = f"must have one number for each of the {n} rows, and has shape {own.shape}"
                raise InvalidInput("sample_weight", None, rule, "give one number a row")
            if cap is None and self.random_state is None:
                rule = "a release needs a public cap on weights: the largest one is private"
                remedy = "give knobs={'max_weight': 3}, or a random_state for a simulation"
                raise InvalidInput("max_weight", None, rule, remedy)
            if cap is None:
                if not np.any(own):
                    rule = "Sample weights must contain at least one non-zero number"
                    raise InvalidInput("sample_weight", None, rule, "declare the knob max_weight, or leave weights out")
                cap = float(np.max(own)) if 0 < np.max(own) < np.inf else 1.0  # others are refused below
                caveat = HEAVIEST_READ if not np.all(own == own[0]) else None
            weight, heavy = shares("sample_weight", own, cap)
            if heavy:
                what = f"{heavy} of {n} rows have a weight above max_weight and count as much as that"
                warnings.warn(f"{what} (for the data's holder only)", HolderNote, stacklevel=3)
        elif cap is not None:
            check_cap("max_weight", cap)
        if self.class_weight is not None:
            assert classes is not None
            of_class = class_shares("class_weight", self.class_weight, classes.tolist())[np.maximum(label, 0)]
            weight = of_class if weight is None else weight * of_class
        return None if weight is None else [weight[part] for part in parts], caveat

    def _check_norm(self) -> None:
        if not (math.isfinite(self.data_norm) and self.data_norm > 0):
            rule = "must be finite and > 0, because rows are divided by it"
            raise InvalidInput("data_norm", self.data_norm, rule, "declare a public bound on the norm of a row")

    def _tell_norm(self, X: Any) -> None:
        """Warn the rows' holder, in a simulation, of a `data_norm` that suits no row."""
        noisy = not np.all(np.isinf(self.epsilon))
        if self.random_state is not None and (ill := misfit(X, self.data_norm, noisy=noisy)):
            warnings.warn(f"{ill} (a simulation, for the data's holder only)", HolderNote, stacklevel=3)

    def _seed(self) -> int | None:
        state = self.random_state
        if isinstance(state, np.random.Generator):
            return int(state.integers(np.iinfo(np.int32).max))
        if state is not None and not isinstance(state, int | np.integer):
            return int(check_random_state(state).randint(np.iinfo(np.int32).max))
        if state is not None and state < 0:
            raise InvalidInput("random_state", state, "must be >= 0", "use random_state=0, or None for a release")
        return None if state is None else int(state)

    def _deal(self, groups: ArrayLike | None, n: int) -> tuple[int | None, Any, list[IntArray]]:
        """The seed, the sites' identifiers and the rows of each."""
        seed = self._seed()
        if groups is None:
            if not (isinstance(self.n_sites, int | np.integer) and 1 <= self.n_sites <= n):
                rule = f"must be a whole number from 1 to the number of rows, {n}"
                raise InvalidInput("n_sites", self.n_sites, rule, "use fewer sites or more rows")
            deal = secrets.randbits(64) if seed is None else seed
            return seed, np.arange(self.n_sites), partition("iid", np.ones(n), self.n_sites, deal)
        return seed, *sites_in(groups, n)

    def _check_y(self, y: ArrayLike | None, what: str) -> None:
        if y is None:
            rule = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InvalidInput("y", None, rule, f"give the {what} of every row")

    def _encode(self, X: Any) -> Any:
        """Rows in the unit ball: ``(x / R, 1) / sqrt 2``, with longer x shortened to norm R."""
        if issparse(X):
            return self._encode_sparse(csr_array(X))
        peak = np.maximum(np.abs(X).max(axis=1, keepdims=True), self.data_norm)  # no square can overflow below it
        unit = X / peak
        unit /= np.maximum(1.0, np.linalg.norm(unit, axis=1, keepdims=True)) * SLACK
        return np.hstack([unit, np.ones((len(X), 1))]) / (math.sqrt(2.0) * SLACK) if self.fit_intercept else unit

    def _encode_sparse(self, X: csr_array) -> csr_array:
        peak = np.maximum(np.asarray(abs(X).max(axis=1).todense()).reshape(-1, 1), self.data_norm)
        unit = csr_array(X.multiply(1.0 / peak))
        norms = np.sqrt(np.asarray(unit.power(2).sum(axis=1))).reshape(-1, 1)
        unit = csr_array(unit.multiply(1.0 / (np.maximum(1.0, norms) * SLACK)))
        if not self.fit_intercept:
            return unit
        return csr_array(hstack([unit, csr_array(np.ones((X.shape[0], 1)))]) / (math.sqrt(2.0) * SLACK))

    def _frame(self, width: int) -> Frame | None:
        """What :meth:`_encode` says of its rows; None without a constant."""
        return Frame((width - 1,), 1.0 / (math.sqrt(2.0) * SLACK), GAIN) if self.fit_intercept else None

    def _decode(self, W: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts in the units of X."""
        if not self.fit_intercept:
            return W / (self.data_norm * SLACK), np.zeros(len(W))
        W = W / (math.sqrt(2.0) * SLACK)
        return W[:, :-1] / (self.data_norm * SLACK), W[:, -1]

    def _recode(self, coef: Array, intercept: Array) -> Array:
        """Inverse of :meth:`_decode`."""
        W = coef * (self.data_norm * SLACK)
        return np.hstack([W, intercept[:, None]]) * (math.sqrt(2.0) * SLACK) if self.fit_intercept else W


class SitedTable(Sited):
    """For estimators of dense rows."""

    def _table(self, X: ArrayLike, *, reset: bool) -> Array:
        if issparse(X):
            raise InvalidInput("X", None, "sparse input is not supported", "use X.toarray()")
        return np.asarray(checked("X", lambda: validate_data(self, X, reset=reset, dtype=np.float64)))
