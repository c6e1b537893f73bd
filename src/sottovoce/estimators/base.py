"""What the estimators share: the seed, the deal of rows to sites, weights, and rows in the unit ball."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from ..answers.fits import Layout, check_products, site_constants
from ..answers.training import ONE_EACH
from ..data import partition
from ..data.loaders import table_digest
from ..data.person import at_random, kept
from ..data.rows import Rows
from ..data.schema import Schema, unfit
from ..data.validation import check_columns, checked, misfit, sites_in
from ..data.weights import check_cap, class_shares, shares
from ..errors import HolderNote, InvalidInput, PublicNote
from ..ledger.durable import DurableLedger
from ..runs.centre import GAIN, Centring, Decision, Frame, decide, frame_of
from ..runs.config import RunConfig
from ..runs.training import deal_of
from ..util.typing import Any, Array, ArrayLike, IntArray
from .declared import Declares, from_units, in_units
from .keeping import Kept
from .notices import Notifying
from .parameters import Knobbed

SLACK = 1.0 + 1e-12
"""Keeps rounding from carrying a row of norm one outside the unit ball."""
HEAVIEST_READ = "the largest weight was read off the rows, and epsilon does not cover that"


class Dealt(NamedTuple):
    """The seed, the sites' identifiers, the rows of each, and whose they are if the unit is a person."""

    seed: int | None
    sites: Any
    parts: list[IntArray]
    people: list[IntArray] | None = None
    """Of each part's rows, if they are bounded together."""
    most: int | None = None
    """Rows of a person that are read, if the unit is a person."""
    apart: bool = True
    """Whether sites were given, and not dealt at random."""
    column: str | None = None
    """The schema's column that gave them, if it did."""

    def layout(
        self, schema: Schema | None, columns: Sequence[str], data_norm: float, own: bool | None = None
    ) -> Layout:  # fmt: skip
        """The encoding of rows at these sites whose coefficients have names; `own` is the knob `site_constants`."""
        constants = site_constants(list(self.sites), at_random=not self.apart, asked=own)
        check_products(len(constants), len(columns) if schema is None else schema.n_features)
        sizes = [len(part) for part in self.parts]
        return Layout.of(schema, columns, data_norm, sizes, constants, self.column)

    def bounded(self, rows: Rows, weights: list[Array] | None = None) -> Rows:
        """The rows of each part, with their weights, and a person's bounded together."""
        rows = rows if weights is None else rows.with_weight(weights)
        return rows.with_people(self.people, self.most) if self.people is not None and self.most is not None else rows

    @property
    def unit(self) -> dict[str, Any]:
        """What :class:`RunConfig` says of the unit."""
        return {} if self.most is None else {"rows_per_person": self.most}


class Sited(Notifying, Kept, Declares, Knobbed):
    """For estimators with `random_state`, `n_sites`, `data_norm`, `epsilon` and `fit_intercept`."""

    random_state: Any
    n_sites: int
    data_norm: float | None
    epsilon: Any
    fit_intercept: bool
    class_weight: Any = None

    def _weights(
        self, given: ArrayLike | None, n: int, parts: list[IntArray], classes: Array | None = None, label: Any = None,
        declared: tuple[Array, int] | None = None,
    ) -> tuple[list[Array] | None, str | None]:  # fmt: skip
        """Weights in [0, 1] of each site's rows, of n, and a caveat; two Nones if all rows count alike.

        `declared` are those of a schema, and how many of them were capped.
        """
        caveat, cap = None, self._knobs()["max_weight"]
        if given is not None:
            own = np.asarray(checked("sample_weight", lambda: np.asarray(given, dtype=np.float64)))
            cap, caveat = self._cap(own, n, cap)
            declared = shares("sample_weight", own, cap)
        elif cap is not None:
            check_cap("max_weight", cap)
        weight = None
        if declared is not None:
            weight, heavy = declared
            if heavy:
                what = f"{heavy} of {n} rows have a weight above max_weight and count as much as that"
                self._notify("max_weight", f"{what} (for the data's holder only)", HolderNote, stacklevel=3)
        of_classes = self._weights_of_classes()
        if of_classes is not None and classes is not None:
            of_class = class_shares("class_weight", of_classes, classes.tolist())[np.maximum(label, 0)]
            weight = of_class if weight is None else weight * of_class
        return None if weight is None else [weight[part] for part in parts], caveat

    def _cap(self, own: Array, n: int, cap: Any) -> tuple[Any, str | None]:
        """The cap on weights, of n rows, and a caveat if it was read off them; InvalidInput if that must not be."""
        if own.shape != (n,):
            rule = f"must have one number for each of the {n} rows, and has shape {own.shape}"
            raise InvalidInput("sample_weight", None, rule, "give one number a row")
        if cap is not None:
            return cap, None
        if self.random_state is None:
            rule = "a release needs a public cap on weights: the largest one is private"
            remedy = "give knobs={'max_weight': 3}, or a random_state for a simulation"
            raise InvalidInput("max_weight", None, rule, remedy)
        if not np.any(own):
            rule = "Sample weights must contain at least one non-zero number"
            raise InvalidInput("sample_weight", None, rule, "declare the knob max_weight, or leave weights out")
        largest = float(np.max(own))
        caveat = HEAVIEST_READ if not np.all(own == own[0]) else None
        return largest if 0 < largest < np.inf else 1.0, caveat  # others are refused when shares are taken

    def _weights_of_classes(self) -> Any:
        """Those that the estimator is given, or else the schema's; None if there are none."""
        if self.class_weight is None and self.schema_ is not None and self.schema_.class_weight:
            return dict(self.schema_.class_weight)
        return self.class_weight

    @property
    def _weighs(self) -> bool:
        """Whether rows beyond the norm bound count for less, and are not shortened."""
        return False

    @property
    def _norm(self) -> float:
        """The bound on norms: 1 unless one is declared, and under a schema, whose rows are in the unit ball."""
        return 1.0 if self.data_norm is None else self.data_norm

    def _site_constants(self, named: bool) -> bool | None:
        """The knob `site_constants`, of a model whose coefficients are `named` or not; InvalidInput if it misfits."""
        own = self._knobs().get("site_constants")
        if own is not None and not isinstance(own, bool | np.bool_):
            raise InvalidInput("site_constants", own, "must be True, False or None", "use False for one constant")
        if own is not None and not named:
            rule = "is for inference and for least squares"
            raise InvalidInput("site_constants", own, rule, "leave it out")
        return None if own is None else bool(own)

    def _check_norm(self) -> None:
        if self.schema_ is not None:
            if self.data_norm is not None:
                rule = "is for columns without a schema, which has bounds of its own"
                raise InvalidInput("data_norm", self.data_norm, rule, "leave it out")
            if "fit_intercept" in vars(self) and not self.fit_intercept:
                raise InvalidInput("fit_intercept", False, "is the schema's to say", "use intercept = false in it")
            return
        if not (math.isfinite(self._norm) and self._norm > 0):
            rule = "must be finite and > 0, because rows are divided by it"
            raise InvalidInput("data_norm", self.data_norm, rule, "declare a public bound on the norm of a row")
        if self.data_norm is None and self.random_state is None:
            what = (
                "data_norm is not declared: rows longer than 1 are shortened to norm 1, which makes unscaled rows alike"
            )
            remedy = "declare data_norm, a public bound on the norm of most rows, or a schema"
            self._notify("data_norm", f"{what}; {remedy}", PublicNote, stacklevel=3)

    def _tell_norm(self, X: Any) -> None:
        """Warn the rows' holder, in a simulation, of a `data_norm` that suits no row."""
        noisy = not np.all(np.isinf(self.epsilon))
        if self.random_state is None or self.schema_ is not None:
            return
        if ill := misfit(X, self._norm, noisy=noisy, weighed=self._weighs):
            self._notify("norms", f"{ill} (a simulation, for the data's holder only)", HolderNote, stacklevel=3)

    def _by_rows(self, table: Any) -> Array:
        """Encoded rows of a table under the schema; its holder is told what did not fit."""
        assert self.schema_ is not None
        found = self.schema_.encode(table, labels=False)
        if notes := unfit(found.clipped, weighed=self._weighs):
            self._notify("schema", "; ".join(notes), HolderNote, stacklevel=4)
        return found.X

    def _seed(self) -> int | None:
        state = self.random_state
        if isinstance(state, np.random.Generator):
            return int(state.integers(np.iinfo(np.int32).max))
        if state is not None and not isinstance(state, int | np.integer):
            return int(check_random_state(state).randint(np.iinfo(np.int32).max))
        if state is not None and state < 0:
            raise InvalidInput("random_state", state, "must be >= 0", "use random_state=0, or None for a release")
        return None if state is None else int(state)

    def _deal(self, X: Any, groups: ArrayLike | None, n: int, *, one: bool = False) -> Dealt:
        """Deal n rows, of a table X under a schema; of a schema's people `one` row each, or as many as it says."""
        seed, people, column = self._seed(), self._people(X), None
        if groups is None and self.n_sites != 1 and (groups := self._site_column(X)) is not None:
            assert self.schema_ is not None
            column = self.schema_.site
        if groups is None:
            parts = self._at_random(n, people, secrets.randbits(64) if seed is None else seed)
            dealt = Dealt(seed, np.arange(self.n_sites), parts, apart=False)
        else:
            dealt = Dealt(seed, *sites_in(groups, n), column=column)
        return dealt if people is None else self._with_people(dealt, people, n, one)

    def _at_random(self, n: int, people: IntArray | None, seed: int) -> list[IntArray]:
        """Numbers of the n rows at each of `n_sites`, at random; those of one person together."""
        units, what = (n, "rows") if people is None else (int(people.max()) + 1, "people")
        if not (isinstance(self.n_sites, int | np.integer) and 1 <= self.n_sites <= units):
            rule = f"must be a whole number from 1 to the number of {what}, {units}"
            raise InvalidInput("n_sites", self.n_sites, rule, "use fewer sites or more rows")
        if people is None:
            return partition("iid", np.ones(n), self.n_sites, seed)
        return at_random(people, self.n_sites, seed)

    def _with_people(self, dealt: Dealt, people: IntArray, n: int, one: bool) -> Dealt:
        """The rows of `dealt` that are kept of each person: `one`, or as many as the schema says."""
        assert self.schema_ is not None and self.schema_.person is not None
        most = 1 if one else self.schema_.person.rows
        mine = [part[kept(people[part], most)] for part in dealt.parts]
        if one:
            self._notify("one row a person", ONE_EACH, PublicNote, stacklevel=4)
        elif left := n - sum(map(len, mine)):
            what = f"{left} of {n} rows were left out: their people have more than person.rows"
            self._notify("people", f"{what} (for the data's holder only)", HolderNote, stacklevel=4)
        return dealt._replace(parts=mine, people=None if one else [people[part] for part in mine], most=most)

    def _raw_digest(self, table: Any, run: RunConfig, sites: int) -> bytes | None:
        """What a ledger on disk knows a table with its labels and sites by, whatever the schema's bounds."""
        if table is None or self.schema_ is None or not isinstance(getattr(self, "ledger", None), DurableLedger):
            return None
        return table_digest([table], deal_of(f"site:{self.schema_.site}", self.schema_, sites, run))

    def _check_y(self, y: ArrayLike | None, what: str) -> None:
        if y is None:
            rule = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InvalidInput("y", None, rule, f"give the {what} of every row")

    def _encode(self, X: Any) -> Any:
        """Rows in the unit ball: ``(x / R, 1) / sqrt 2``, with longer x shortened to norm R; a schema's are there."""
        if self.schema_ is not None:
            return X
        if issparse(X):
            return self._encode_sparse(csr_array(X))
        peak = np.maximum(np.abs(X).max(axis=1, keepdims=True), self._norm)  # no square can overflow below it
        unit = X / peak
        unit /= np.maximum(1.0, np.linalg.norm(unit, axis=1, keepdims=True)) * SLACK
        return np.hstack([unit, np.ones((len(X), 1))]) / (math.sqrt(2.0) * SLACK) if self.fit_intercept else unit

    def _encode_sparse(self, X: csr_array) -> csr_array:
        peak = np.maximum(np.asarray(abs(X).max(axis=1).todense()).reshape(-1, 1), self._norm)
        unit = csr_array(X.multiply(1.0 / peak))
        norms = np.sqrt(np.asarray(unit.power(2).sum(axis=1))).reshape(-1, 1)
        unit = csr_array(unit.multiply(1.0 / (np.maximum(1.0, norms) * SLACK)))
        if not self.fit_intercept:
            return unit
        return csr_array(hstack([unit, csr_array(np.ones((X.shape[0], 1)))]) / (math.sqrt(2.0) * SLACK))

    def _frame(self, width: int) -> Frame | None:
        """What :meth:`_encode` says of its rows; None without a constant."""
        if self.schema_ is not None:
            return frame_of(self.schema_)
        return Frame((width - 1,), 1.0 / (math.sqrt(2.0) * SLACK), GAIN) if self.fit_intercept else None

    def _columns_of(self, features: Any) -> int:
        """How many columns have coefficients."""
        return int(features.shape[1]) - (self.schema_ is not None and self.schema_.intercept > 0)

    def _of_class(self, seed: int | None, c: int) -> int | None:
        """Noise of its own for each class; two classes keep the seed."""
        if seed is None or c == 1:
            return seed
        return int.from_bytes(hashlib.blake2b(f"{seed} class {c}".encode(), digest_size=7).digest(), "big")

    def _centring(self, run: RunConfig, rows: Rows) -> Centring | None:
        """How a run centres its rows; None for not at all."""
        if not self._knobs()["centre"]:
            return None
        width = rows.d // rows.outputs
        self.centring_: Decision | None = decide(run, rows.n, width, self._frame(width))
        return self.centring_.centring

    def _decode(self, W: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts in the units of X."""
        if self.schema_ is not None:
            return in_units(self.schema_, W)
        if not self.fit_intercept:
            return W / (self._norm * SLACK), np.zeros(len(W))
        W = W / (math.sqrt(2.0) * SLACK)
        return W[:, :-1] / (self._norm * SLACK), W[:, -1]

    def _recode(self, coef: Array, intercept: Array) -> Array:
        """Inverse of :meth:`_decode`."""
        if self.schema_ is not None:
            return from_units(self.schema_, coef, intercept)
        W = coef * (self._norm * SLACK)
        return np.hstack([W, intercept[:, None]]) * (math.sqrt(2.0) * SLACK) if self.fit_intercept else W


class SitedTable(Sited):
    """For estimators of dense rows."""

    def _table(self, X: ArrayLike, *, reset: bool) -> Array:
        if self.schema_ is not None:
            return self._by_rows(X)
        if issparse(X):
            raise InvalidInput("X", None, "sparse input is not supported", "use X.toarray()")
        check_columns(X)
        return np.asarray(checked("X", lambda: validate_data(self, X, reset=reset, dtype=np.float64), X))
