"""Rows whose label is one of K classes, for losses with K margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..later import Later
from ..typing import Any, Array, IntArray
from .design import Design, Wrapped
from .rows import Rows

compat = Later("array_api_compat")


@dataclass(frozen=True)
class Classes(Wrapped):
    """Rows of M nodes against K classes.

    Vectors are (M, R, K d), one block per class; margins are (M, R, K n), ``u_j = w_j.x - w_label.x``.  These are
    linear in w, so the solver needs no knowledge of classes.
    """

    labels: IntArray
    classes: int

    def _blocks(self, x: Array) -> Array:
        """(M, R, K m) -> (M, R K, m)."""
        return x.reshape(x.shape[0], x.shape[1] * self.classes, -1)

    def _hit(self) -> Any:
        """Which class each row is of, shape (M, 1, K, n)."""
        return self.base.asarray((self.labels[:, None, None, :] == np.arange(self.classes)[:, None]).astype(float))

    def _split(self, x: Any) -> Any:
        """(..., K m) -> (..., K, m)."""
        return compat.array_namespace(x).reshape(x, (*x.shape[:-1], self.classes, -1))

    def margins(self, w: Array) -> Any:
        flat = self.base.margins(self._blocks(w))
        xp = compat.array_namespace(flat)
        scores = xp.reshape(flat, (*w.shape[:2], self.classes, -1))
        own = xp.sum(scores * xp.astype(self._hit(), scores.dtype), axis=2, keepdims=True)
        return xp.reshape(scores - own, (*w.shape[:2], -1))

    def combine(self, slopes: Any) -> Array:
        xp, split = compat.array_namespace(slopes), self._split(slopes)
        whole = split - xp.astype(self._hit(), split.dtype) * xp.sum(split, axis=2, keepdims=True)
        flat = xp.reshape(whole, (whole.shape[0], whole.shape[1] * self.classes, -1))
        return self.base.combine(flat).reshape(*slopes.shape[:2], -1)

    def gram(self, weights: Any) -> Array:
        """The diagonal blocks of the Hessian, one per class."""
        split = self._split(weights)
        blocks = [self.base.gram(split[:, j, :]) for j in range(self.classes)]
        d = blocks[0].shape[-1]
        out = np.zeros((len(blocks[0]), self.classes * d, self.classes * d))
        for j, block in enumerate(blocks):
            out[:, j * d : (j + 1) * d, j * d : (j + 1) * d] = block
        return out

    def diagonal(self, weights: Any) -> Array:
        split = self._split(weights)
        return np.concatenate([self.base.diagonal(split[:, j, :]) for j in range(self.classes)], axis=1)

    @property
    def beside(self) -> Array:
        return self.labels.astype(float)

    def picked(self, base: Design, which: IntArray) -> Self:
        return type(self)(base, self.labels[:, which], self.classes)

    def keep(self, nodes: Any) -> Self:
        return type(self)(self.base.keep(nodes), self.labels[nodes], self.classes)

    def every(self, part: int, parts: int) -> Self:
        return type(self)(self.base.every(part, parts), self.labels[:, part::parts], self.classes)

    def between(self, first: int, last: int) -> Self:
        return type(self)(self.base.between(first, last), self.labels[:, first:last], self.classes)


@dataclass(frozen=True)
class ClassRows(Rows):
    """Unsigned rows and their classes; ``signed`` is empty and ``d`` counts a block of features for every class."""

    base: Rows = None  # type: ignore[assignment]
    labels: IntArray = None  # type: ignore[assignment]
    classes: int = 2

    @classmethod
    def of(cls, parts: Sequence[tuple[Any, IntArray]], classes: int) -> ClassRows:
        """From the (X, label in 0..classes-1) of every node, validated as by :meth:`Rows.build`.

        A label -1 makes a row of zeros: it counts as a row and adds nothing.

        Raises
        ------
        InvalidInput
        """
        base = Rows.build([(X, np.where(y < 0, 0.0, 1.0)) for X, y in parts])
        labels = np.zeros((len(parts), int(base.n.max())), dtype=np.intp)
        for i, (X, y) in enumerate(parts):
            if y.shape != (X.shape[0],) or np.any((y < -1) | (y >= classes)):
                rule = f"labels must be whole numbers from 0 to {classes - 1}, or -1 for a row of zeros, one a row"
                raise InvalidInput(f"site {i}", None, rule, "encode the classes so")
            labels[i, : len(y)] = y
        return cls._wrap(base, labels, classes)

    @classmethod
    def _wrap(cls, base: Rows, labels: IntArray, classes: int) -> ClassRows:
        n = base.n[:, 0].astype(int)
        known = [own[:m][own[:m] >= 0] for own, m in zip(labels, n, strict=True)]
        alike = tuple(i for i, own in enumerate(known) if np.all(own == own[:1]))
        return cls(np.zeros((len(n), 0, classes * base.d)), base.n, alike, base, labels, classes)

    @property
    def outputs(self) -> int:
        return self.classes

    def on(self, spec: str) -> Self:
        return replace(self, base=self.base.on(spec), backend=spec)

    def with_offset(self, offsets: Sequence[Array]) -> Rows:
        raise InvalidInput("offsets", len(offsets), "rows with a class have no number to predict", "leave them out")

    def design(self, nodes: IntArray) -> Design:
        base = self.base.design(nodes)
        return Classes(base, self.labels[nodes, : base.n], self.classes)

    def arrays(self) -> tuple[Array, ...]:
        return (*self.base.arrays(), self.labels.astype(float))

    def node(self, i: int) -> ClassRows:
        return self._wrap(self.base.node(i), self.labels[i : i + 1, : int(self.n[i, 0])], self.classes)

    def pooled(self) -> ClassRows:
        counts = self.n[:, 0].astype(int)
        labels = np.concatenate([own[:m] for own, m in zip(self.labels, counts, strict=True)])[None]
        return self._wrap(self.base.pooled(), labels, self.classes)
