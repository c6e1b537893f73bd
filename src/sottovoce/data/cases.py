"""Rows with weights in [0, 1]: a row's loss counts so much.

The weights multiply slopes and bends where rows are combined, so nothing else knows of them.  A weighted loss is convex
with slopes and bends no larger than before, and so are all bounds that prices rest on (docs/privacy/weights.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidInput, SchemaError
from ..later import Later
from ..losses import Loss
from ..typing import Any, Array, ArrayLike, IntArray
from .classes import ClassRows
from .design import Design, Wrapped
from .rows import OffsetRows, Rows
from .table import Column, as_numbers

compat = Later("array_api_compat")


@dataclass(frozen=True)
class Weighed(Wrapped):
    """Rows of another design that count by their weights.

    Attributes
    ----------
    weight : array (M, n)
        In [0, 1], of the library that computes margins; 0 for rows that fill up a node.
    """

    weight: Any

    def _times(self, x: Any, weight: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x * weight.astype(x.dtype, copy=False)
        return x * compat.array_namespace(x).astype(self.base.asarray(weight), x.dtype)

    def margins(self, w: Array) -> Any:
        return self.base.margins(w)

    def moves(self, along: Array) -> Any:
        return self.base.moves(along)

    def combine(self, slopes: Any) -> Array:
        return self.base.combine(self._times(slopes, self.weight[:, None, :]))

    def gram(self, weights: Any) -> Array:
        return self.base.gram(self._times(weights, self.weight))

    def diagonal(self, weights: Any) -> Array:
        return self.base.diagonal(self._times(weights, self.weight))

    def weigh(self, values: Array) -> Array:
        return self.base.weigh(values) * self.host(self.weight)[:, None, :]

    @property
    def beside(self) -> Array:
        return self.host(self.weight)

    def picked(self, base: Design, which: IntArray) -> Self:
        return type(self)(base, self.weight[:, which])

    def keep(self, nodes: Any) -> Self:
        return type(self)(self.base.keep(nodes), self.asarray(self.host(self.weight)[nodes]))

    def every(self, part: int, parts: int) -> Self:
        return type(self)(self.base.every(part, parts), self.weight[:, part::parts])

    def between(self, first: int, last: int) -> Self:
        return type(self)(self.base.between(first, last), self.weight[:, first:last])


@dataclass(frozen=True)
class CaseRows(Rows):
    """Rows that count by their weights; `base` holds the rows and ``signed`` is empty.

    Attributes
    ----------
    base : Rows
    weight : array (N, n_max)
        In [0, 1]; 0 where rows of small nodes are missing.
    """

    base: Rows = None  # type: ignore[assignment]
    weight: Array = None  # type: ignore[assignment]

    def check(self, loss: Loss) -> None:
        self.base.check(loss)

    def on(self, spec: str) -> Self:
        return replace(self, base=self.base.on(spec), backend=spec)

    def design(self, nodes: IntArray) -> Design:
        base = self.base.design(nodes)
        return Weighed(base, base.asarray(np.ascontiguousarray(self.weight[nodes, : base.n])))

    def arrays(self) -> tuple[Array, ...]:
        return (*self.base.arrays(), self.weight)

    def _each(self) -> list[Array]:
        return [own[:n] for own, n in zip(self.weight, self.n[:, 0].astype(int), strict=True)]

    def node(self, i: int) -> Rows:
        return weighed(self.base.node(i), self._each()[i : i + 1])

    def pooled(self) -> Rows:
        return weighed(self.base.pooled(), [np.concatenate(self._each())])


def weighed(rows: Rows, weights: Sequence[Array]) -> Rows:
    """The same rows, each counting by its weight.

    Parameters
    ----------
    rows : Rows
        Without weights.
    weights : sequence of array (n_i,)
        In [0, 1], one a row of every node: see :func:`shares`.

    Raises
    ------
    InvalidInput
        On other weights; the message shows none of them.
    """
    if isinstance(rows, OffsetRows | ClassRows):
        return replace(rows, base=weighed(rows.base, weights))
    if len(weights) != len(rows.n):
        raise InvalidInput("weights", len(weights), f"there are {len(rows.n)} sites", "give one array a site")
    padded = np.zeros((len(rows.n), int(rows.n.max())))
    for i, (own, n) in enumerate(zip(weights, rows.n[:, 0].astype(int), strict=True)):
        if own.shape != (n,) or not np.all((own >= 0.0) & (own <= 1.0)):  # NaN too
            rule = f"weights must be {n} numbers from 0 to 1, one a row"
            raise InvalidInput(f"site {i}", None, rule, "divide them by their public cap")
        padded[i, :n] = own
    return CaseRows(np.zeros((len(rows.n), 0, rows.d)), rows.n, rows.one_class, rows, padded, backend=rows.backend)


def check_cap(field: str, cap: float) -> None:
    """Refuse what is no cap on weights.

    Raises
    ------
    InvalidInput
    """
    if isinstance(cap, bool) or not (isinstance(cap, int | float) and 1e-100 <= cap <= 1e100):
        rule = "must be a number above 0: weights beyond it count as much"
        raise InvalidInput(field, cap, rule, "declare a public bound, such as 3")


def shares(field: str, given: ArrayLike, cap: float) -> tuple[Array, int]:
    """``min(w, cap) / cap`` for weights w, and how many were above the cap, for their holder only.

    Raises
    ------
    InvalidInput
        On a negative weight, or one that is no finite number; the message shows none of them.
    """
    check_cap(field, cap)
    w = np.asarray(given, dtype=np.float64)
    if not (np.all(np.isfinite(w)) and np.all(w >= 0.0)):
        rule = "weights must be finite numbers, 0 or more: a negative one would make a loss that is not convex"
        raise InvalidInput(field, None, rule, "correct them, or leave those rows out")
    return np.minimum(np.minimum(w, cap) / cap, 1.0), int(np.sum(w > cap))


@dataclass(frozen=True)
class CaseWeight:
    """The column that says how much a row counts.

    Parameters
    ----------
    column : str
    max : float
        Public: a row counts ``min(w, max) / max``.
    """

    column: str
    max: float

    def __post_init__(self) -> None:
        if not (isinstance(self.column, str) and self.column):
            raise SchemaError("weight", None, "column must be a text", 'write weight = {column = "w", max = 3}')
        check_cap("weight.max", self.max)

    @classmethod
    def of(cls, given: object) -> Self:
        """From a schema's ``weight`` entry.

        Raises
        ------
        SchemaError
        """
        if not isinstance(given, Mapping) or set(given) != {"column", "max"}:
            raise SchemaError("weight", None, "must have column and max", 'write weight = {column = "w", max = 3}')
        return cls(**given)

    def encode(self, column: Column, na: frozenset[str]) -> tuple[Array, int]:
        """What rows count, in [0, 1], and how many weights were above the cap.

        Raises
        ------
        InvalidInput
        """
        try:
            numbers, missing = as_numbers(column, na)
        except ValueError as error:
            rule = f"every weight must be a finite number, and some are {error}"
            raise SchemaError(self.column, None, rule, "repair the rows") from None
        if missing.any():
            raise SchemaError(self.column, None, "some weights are missing", "write 1, or leave those rows out")
        return shares(self.column, numbers, self.max)


def class_shares(field: str, given: Any, names: Sequence[object]) -> Array:
    """What rows of each class count, (K,), at most 1: public numbers, 1 for classes that are not named.

    Raises
    ------
    InvalidInput
    """
    remedy = "give public numbers, such as {'died': 5}; from published counts, n / (K n_class) is 'balanced'"
    if isinstance(given, str):
        raise InvalidInput(field, given, "would count the labels of private rows, which nothing pays for", remedy)
    known = {str(name): k for k, name in enumerate(names)}
    try:
        entries = {str(name): value for name, value in given.items()}
    except AttributeError:
        raise InvalidInput(field, type(given), "must map classes to numbers", remedy) from None
    out = np.ones(len(names))
    for name, value in entries.items():
        if name not in known:
            raise InvalidInput(field, name, "is none of the declared classes", remedy)
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and 0.0 <= value <= 1e100):
            raise InvalidInput(field, None, "weights of classes must be finite numbers, 0 or more", remedy)
        out[known[name]] = float(value)
    if not out.max() > 0.0:
        raise InvalidInput(field, None, "some class must count", remedy)
    return np.minimum(out / out.max(), 1.0)
