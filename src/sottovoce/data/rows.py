"""Validated rows of all nodes, stacked for the solver.

A row is ``a = y x`` with a label y of two classes; or x itself with an *offset* t, a number to
predict (losses see ``a.w - t``); or x itself with one of K classes.  A row may have a weight too.
Offsets, weights and classes are fields of :class:`Rows`; its subclasses differ in how rows are
stored, and in nothing else.

Weights are multiplied into derivatives and curvatures where rows are combined.  A weighted loss is
convex, with derivatives and curvatures no larger than before, so all prices hold
(docs/privacy/weights.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ..errors import InvalidInput
from ..problem.losses import MOST_OFFSET, Loss
from ..problem.weighted_loss import LONGEST
from ..util.later import Later
from ..util.typing import Any, Array, IntArray
from .design import Dense, Design, Sparse, Storage
from .device import OnDevice, backend_from_spec, backend_spec_of
from .move import Move, Moved
from .person import weights_within_person
from .sweep import Batch, Sweep, group_nodes_by_size

if TYPE_CHECKING:
    from scipy.sparse import csr_array

sparse = Later("scipy.sparse")

ROUNDED = 1.0 + 1e-6
"""The longest row that is taken to be of norm 1 in single or double precision."""


def check_loss_fits_labels(loss: Loss, outputs: int, *, numeric: bool) -> None:
    """Refuse a loss for other margins or labels than those of rows or of a plan.

    Parameters
    ----------
    loss : Loss
    outputs : int
        Margins per row: 1, or the number of classes.
    numeric : bool
        Whether labels are numbers.

    Raises
    ------
    InvalidInput
        If the loss is for other labels.
    """
    if numeric and not loss.offset_bound:
        rule = "is for classification, and these rows have numeric labels"
        raise InvalidInput("loss", loss.spec, rule, "use 'huber-residual:0.25' or 'log-cosh:0.25'")
    if loss.offset_bound and not numeric:
        rule = "is for regression, and these rows have class labels"
        raise InvalidInput("loss", loss.spec, rule, "use 'logistic' or 'huber:0.5'")
    if outputs != loss.outputs:
        rule = f"the loss has {loss.outputs} margins per row, and these rows have {outputs}"
        remedy = "use 'logistic' for labels of two classes"
        if outputs > 1:
            remedy = f"use 'softmax:{outputs}'"
        kind = "softmax" if loss.outputs > 1 else "of one margin"
        raise InvalidInput("loss", kind, rule, remedy)


@dataclass(frozen=True)
class Rows:
    """Rows of one or many nodes, with their weights, offsets or classes.

    Attributes
    ----------
    signed : array (N, n_max, d)
        Row k of node i is ``y_k x_k``.  Small nodes are padded with zeros, which add nothing to any
        gradient or Hessian. Empty where rows are stored in another way.
    n : array (N, 1)
        True number of rows per node.
    one_class : tuple of int
        Nodes whose rows are all of one class: allowed, and told to the holder of the rows only.
    backend : str
        The array library that multiplies them, see :meth:`with_backend`.
    weight : array (N, n_max), optional
        In [0, 1], multiplied into each row's loss; 0 for padding.
    offset : array (N, n_max), optional
        Numbers to predict, in [-1, 1]; 0 for padding, whose margin stays 0.
    labels : array of int (N, n_max), optional
        The class of each row, of `classes`.
    classes : int
        1 unless rows have `labels`.
    any_norm : bool
        Whether rows may be longer than 1, for losses whose bounds hold for such rows.
    move : Move, optional
        The public map of one replicate by which rows are multiplied (:mod:`sottovoce.data.move`).
    people : int, optional
        Largest number of rows of one person at a node, if a person may have several.  A person's
        rows then have weights that add up to at most 1, and `n` counts people
        (:meth:`with_people`).
    held : array of int (N,), optional
        Number of rows of each node, where `n` counts people.
    """

    signed: Array
    n: Array
    one_class: tuple[int, ...] = ()
    backend: str = field(default="numpy", kw_only=True)
    weight: Array | None = field(default=None, kw_only=True)
    offset: Array | None = field(default=None, kw_only=True)
    labels: IntArray | None = field(default=None, kw_only=True)
    classes: int = field(default=1, kw_only=True)
    any_norm: bool = field(default=False, kw_only=True)
    move: Move | None = field(default=None, kw_only=True)
    people: int | None = field(default=None, kw_only=True)
    held: IntArray | None = field(default=None, kw_only=True)

    @property
    def rows_per_node(self) -> IntArray:
        """Number of rows of each node, (N,), where `n` counts people if these may have several."""
        if self.held is None:
            return self.n[:, 0].astype(int)
        return self.held

    def with_backend(self, spec: str) -> Self:
        """Return these rows with another array library to multiply them.

        See :func:`sottovoce.data.device.backend_from_spec` for `spec`.
        """
        if spec != "numpy":
            backend_from_spec(spec)
        return replace(self, backend=spec)

    @property
    def d(self) -> int:
        """Entries of a model: features times classes."""
        return int(self.signed.shape[2]) * self.classes

    @property
    def outputs(self) -> int:
        """Margins per row: 1, or the number of classes."""
        return self.classes

    @property
    def has_offset(self) -> bool:
        """Whether rows have a number to predict instead of a class."""
        return self.offset is not None

    def check_loss_fits(self, loss: Loss) -> None:
        """Refuse a loss for other margins, labels or norms than those of these rows."""
        check_loss_fits_labels(loss, self.outputs, numeric=self.has_offset)
        if self.any_norm and not loss.any_norm:
            rule = "has a sensitivity only for rows in the unit ball, and these rows may be longer"
            raise InvalidInput("loss", loss.spec, rule, "use a weighted loss")

    def rows_of_node(self, i: int) -> Self:
        """Return the rows of node `i` alone."""
        n = self.n[i : i + 1]
        n_rows = int(self.rows_per_node[i])
        alike = (0,) if i in self.one_class else ()
        part = self._with_row_subset(
            self._storage_of_node(i), n, alike, lambda x: x[i : i + 1, :n_rows]
        )
        if self.held is None:
            return part
        return replace(part, held=self.held[i : i + 1])

    def pool_at_one_node(self) -> Self:
        """Return all rows at one node."""
        counts = self.rows_per_node
        n = self.n.sum(axis=0, keepdims=True)
        # Two nodes of one class each may hold both classes together, so it is known only of a
        # single node whether the pooled rows are of one class.
        alike = (0,) if len(self.one_class) == len(counts) == 1 else ()
        part = self._with_row_subset(
            self._storage_of_pooled(), n, alike, lambda x: _concatenate_nodes(x, counts)
        )
        if self.held is not None:
            part = replace(part, held=counts.sum(keepdims=True))
        if part.labels is not None:
            part = replace(part, one_class=_nodes_of_one_class(part.labels, part.rows_per_node))
        return part

    def _with_row_subset(
        self,
        stored: dict[str, Any],
        n: Array,
        one_class: tuple[int, ...],
        pick: Callable[[Any], Any],
    ) -> Self:
        """Return a subset of these rows.

        `stored` has the fields that store the rows, `n` (N, 1) and `one_class` are those of the
        subset, and `pick` selects its entries of a per-row field (N, n_max).
        """
        fields = {name: pick(x) for name, x in self._present_fields.items()}
        return replace(self, n=n, one_class=one_class, **stored, **fields)

    @property
    def _present_fields(self) -> dict[str, Any]:
        """The fields that are not None, in the order of fingerprints."""
        fields: dict[str, Any] = {
            "weight": self.weight,
            "offset": self.offset,
            "labels": self.labels,
        }
        return {name: x for name, x in fields.items() if x is not None}

    def _storage_of_node(self, i: int) -> dict[str, Any]:
        """Return the fields that store node `i` alone."""
        return {
            "signed": np.ascontiguousarray(self.signed[i : i + 1, : int(self.rows_per_node[i])])
        }

    def _storage_of_pooled(self) -> dict[str, Any]:
        """Return the fields that store all rows at one node."""
        return {"signed": _concatenate_nodes(self.signed, self.rows_per_node)}

    def _storage_of_nodes(self, nodes: IntArray) -> Storage:
        """Return the storage that multiplies the rows of these nodes, padded to the largest."""
        longest = int(self.rows_per_node[nodes].max())
        some: Any = nodes
        if len(nodes) == 1:
            # A slice is a view; an array of indices would copy the rows of a node that is alone.
            some = slice(nodes[0], nodes[0] + 1)
        a = self.signed[some, :longest]
        if self.backend == "numpy":
            return Dense(np.ascontiguousarray(a))
        home = backend_from_spec(self.backend)
        return OnDevice(home.copy_to_device(a), home)

    def design_of_nodes(self, nodes: IntArray) -> Design:
        """Return products with the rows of some nodes and their fields.

        Rows are padded to the largest of the nodes.
        """
        storage = self._storage_of_nodes(nodes)
        if self.move is not None:
            storage = Moved.move_storage(storage, self.move, short=not self.any_norm)
        fields: dict[str, Any] = {}
        for name, x in self._present_fields.items():
            own = np.ascontiguousarray(x[nodes, : storage.n])
            # Labels stay NumPy's: a design makes its one-hot classes of them.
            fields[name] = own if name == "labels" else storage.to_storage_array(own)
        return Design(storage, **fields, classes=self.classes)

    def sweep_over_rows(self) -> Sweep:
        """Return the passes over all of these rows, for the solver."""
        parts = group_nodes_by_size(self.rows_per_node, self.d)
        return Sweep(tuple(Batch(nodes, self.design_of_nodes(nodes)) for nodes in parts), self.d)

    def fingerprint_arrays(self) -> tuple[Array, ...]:
        """Return the arrays that determine these rows, for a fingerprint."""
        fields = [np.asarray(x, dtype=float) for x in self._present_fields.values()]
        return (*self._fingerprint_storage(), *fields)

    def _fingerprint_storage(self) -> tuple[Array, ...]:
        return self.signed, self.n

    def with_offset(self, offsets: Sequence[Array]) -> Self:
        """Return these rows, each with a number t to predict: losses see ``a.w - t``.

        Offsets, (n_i,) for each node, are in [-1, 1], scaled by declared public bounds, and 0 for
        rows of zeros. InvalidInput for others, and for rows with classes.
        """
        if self.labels is not None:
            raise InvalidInput(
                "offsets",
                len(offsets),
                "rows with class labels have no numeric labels",
                "leave them out",
            )
        rule = f"numeric labels must be finite and within {MOST_OFFSET:g} of 0"
        remedy = "clip and scale them by public bounds"
        offset = self._stack_and_pad_field(
            "offsets", offsets, -MOST_OFFSET, MOST_OFFSET, rule, remedy
        )
        return replace(self, offset=offset, one_class=())

    def with_people(self, people: Sequence[IntArray], most: int) -> Self:
        """Return these rows weighted by one over the number of rows of their person at the node.

        Then `n` counts people, and the unit that is protected is a person with all rows at a node
        (docs/privacy/person.md).  Weights that rows have already are multiplied in.

        Parameters
        ----------
        people : sequence of array of int (n_i,)
            Whose row it is, within a node.
        most : int
            Public: no person has more rows at a node.

        Returns
        -------
        Rows

        Raises
        ------
        InvalidInput
            If a person has more than `most` rows at a node.
        """
        own = [np.asarray(codes) for codes in people]
        for codes in own:
            _, rows_per_person = np.unique(codes, return_counts=True)
            if rows_per_person.max(initial=0) > most:
                rule = f"a person has more than {most} rows at a site"
                raise InvalidInput("person", None, rule, "leave further rows out, or allow more")
        weights = [weights_within_person(codes) for codes in own]
        if self.weight is not None:
            weights = [new * old[: len(new)] for new, old in zip(weights, self.weight, strict=True)]
        n = np.array([[float(len(np.unique(codes)))] for codes in own])
        return replace(self.with_weight(weights), n=n, people=most, held=self.rows_per_node)

    def check_privacy_unit(self, rows_per_person: int | None) -> None:
        """Refuse a run whose privacy statement covers another unit than the rows' weights do.

        `rows_per_person` is what the run declares: None or 1 if the unit is a row, else the most
        rows of a person.
        """
        asked = rows_per_person or 1
        own = self.people or 1
        # A statement about people with more rows covers those with fewer, but rows that are not
        # bounded by person are covered by none about several.
        if asked < own or (asked > 1 and self.people is None):
            rule = (
                f"would cover people with up to {asked} rows, "
                f"but these rows are weighted for people with up to {own}"
            )
            raise InvalidInput("rows_per_person", rows_per_person, rule, f"use {self.people}")

    def with_weight(self, weights: Sequence[Array]) -> Self:
        """Return these rows with sample weights in [0, 1], (n_i,) for each node.

        See :mod:`sottovoce.data.weights`.  InvalidInput for others; the message shows none of them.
        """
        rule = "weights must be numbers from 0 to 1"
        weight = self._stack_and_pad_field(
            "weights", weights, 0.0, 1.0, rule, "divide them by their public cap"
        )
        return replace(self, weight=weight)

    def _stack_and_pad_field(
        self, field: str, given: Sequence[Array], low: float, high: float, rule: str, remedy: str
    ) -> Array:
        """Stack one number per row, (n_i,) for each node, into (N, n_max), padded with 0.

        InvalidInput with `rule` and `remedy` for numbers outside [low, high].
        """
        if len(given) != len(self.n):
            raise InvalidInput(
                field, len(given), f"there are {len(self.n)} sites", "give one array per site"
            )
        out = np.zeros((len(self.n), int(self.rows_per_node.max())))
        for i, (own, n) in enumerate(zip(given, self.rows_per_node, strict=True)):
            x = _to_numpy_array(own)
            if x.shape != (n,):
                raise InvalidInput(
                    f"site {i}",
                    x.shape,
                    f"{field} must have shape ({n},)",
                    "give one number per row",
                )
            # Written so that NaN, which compares with nothing, is refused too.
            if not np.all((x >= low) & (x <= high)):
                raise InvalidInput(f"site {i}", None, rule, remedy)
            out[i, :n] = x
        return out

    @classmethod
    def build_with_classes(cls, parts: Sequence[tuple[Any, IntArray]], classes: int) -> Rows:
        """Validate the (X, label in 0..classes-1) of every node; label -1 makes a row of zeros.

        Rows are validated as by :meth:`build_from_parts`.
        """
        rows = cls.build_from_parts([(X, np.where(y < 0, 0.0, 1.0)) for X, y in parts])
        labels = np.zeros((len(parts), int(rows.n.max())), dtype=np.intp)
        for i, (X, y) in enumerate(parts):
            if y.shape != (X.shape[0],) or np.any((y < -1) | (y >= classes)):
                rule = (
                    f"labels must be whole numbers from 0 to {classes - 1}, "
                    "or -1 for a row of zeros, one per row"
                )
                raise InvalidInput(f"site {i}", None, rule, "encode the classes this way")
            labels[i, : len(y)] = y
        return replace(
            rows,
            labels=labels,
            classes=classes,
            one_class=_nodes_of_one_class(labels, rows.rows_per_node),
        )

    @classmethod
    def build_with_any_norm(cls, parts: Sequence[tuple[Array, Array]]) -> Rows:
        """Validate rows of any norm, for losses whose bounds hold for such rows.

        These are :class:`sottovoce.problem.weighted_loss.Weighted` losses.  Otherwise as
        :meth:`build_from_parts`.
        """
        short = []  # for each node: rows of norm at most LONGEST, labels, and norms rounded up
        for X, y in parts:
            # The norm itself may overflow, and refusals must be about a row, so it is computed as
            # the largest entry times the norm of the row divided by it.
            peak = np.maximum(np.abs(X).max(axis=1, keepdims=True, initial=0.0), 1.0)
            shape = np.linalg.norm(X / peak, axis=1, keepdims=True)
            scale = np.maximum(1.0, peak / LONGEST * shape)
            norms = np.where(scale > 1.0, LONGEST, np.minimum(peak, LONGEST) * shape)
            short.append((X / scale, y, np.maximum(1.0, norms) * (1.0 + 1e-9)))
        # Rows divided by their norms are built only to be validated as all rows are.
        inside = cls.build_from_parts([(X / norms, y) for X, y, norms in short])
        signed = np.zeros_like(inside.signed)
        for i, (X, y, _) in enumerate(short):
            signed[i, : len(X)] = X * y[:, None]
        return Rows(signed, inside.n, inside.one_class, any_norm=True)

    @classmethod
    def build_from_parts(
        cls, parts: Sequence[tuple[Array, Array]], offsets: Sequence[Array] | None = None
    ) -> Rows:
        """Validate the rows and labels of every node, and stack them for the solver.

        Parameters
        ----------
        parts : sequence of (X of shape (n_i, d), y of shape (n_i,) in {-1, +1})
            Rows in the unit ball.  Label 0 makes a row of zeros: it counts as a row and adds
            nothing.  SciPy sparse matrices stay sparse (:class:`SparseRows`); arrays of another
            library stay on their device.
        offsets : sequence of array (n_i,), optional
            Numbers to predict, see :meth:`with_offset`.  Labels are then +1, or 0 for a row of
            zeros, whose number is dropped.

        Returns
        -------
        Rows
            A :class:`SparseRows` if any of the matrices is sparse.

        Raises
        ------
        InvalidInput
            NaN or infinite entries, other labels, rows outside the unit ball, a node without rows,
            nodes that disagree on d. Messages hold no data value.

        Notes
        -----
        A row of norm 1 that rounding left up to :data:`ROUNDED` longer, as rows have that were
        divided by their own norms, is divided by its norm once more: each row by itself, so that
        all are inside the unit ball, where prices hold.

        Examples
        --------
        >>> Rows.build_from_parts([(np.array([[0.6, 0.8], [0.0, 1.0]]), np.array([1.0, -1.0]))]).n
        array([[2.]])
        """
        if not parts:
            raise InvalidInput(
                "sites", 0, "at least one site is needed", "give one (X, y) per site"
            )
        if offsets is not None:
            return cls.build_from_parts(parts).with_offset(_known_offsets(parts, offsets))
        # Where SciPy's module is not loaded nobody has made a sparse matrix, and it need not be.
        if "scipy.sparse" in sys.modules and any(sparse.issparse(X) for X, _ in parts):
            return SparseRows.sparse_rows_from_parts(
                [(sparse.csr_array(X, dtype=float), y) for X, y in parts]
            )
        spec = backend_spec_of(parts[0][0])
        if spec != "numpy":
            home = backend_from_spec(spec)
            return cls.build_from_parts(
                [(home.copy_to_host(X), home.copy_to_host(y)) for X, y in parts]
            ).with_backend(spec)
        d = np.asarray(parts[0][0]).shape[-1]
        parts = [(_divide_rounded_rows(X), y) for X, y in parts]
        one_class = cls._check_parts(parts, d, [_squared_row_norms(X) for X, _ in parts])
        n = np.array([[float(len(X))] for X, _ in parts])
        return cls(_stacked_signed(parts, d), n, one_class)

    @staticmethod
    def _check_parts(
        parts: Sequence[tuple[Any, Array]], d: int, squares: Sequence[Array]
    ) -> tuple[int, ...]:
        """Refuse unfit rows and labels (:meth:`build_from_parts`); return the nodes of one class.

        `squares` has the squared norms (n_i,) of each node's rows.
        """
        one_class = []
        for i, ((X, y), norms) in enumerate(zip(parts, squares, strict=True)):
            if X.ndim != 2 or X.shape[1] != d:
                rule = f"rows must have shape (n, {d})"
                raise InvalidInput(f"site {i}", X.shape, rule, "give every site the same columns")
            if X.shape[0] == 0:
                raise InvalidInput(
                    f"site {i}", 0, "has no rows", "drop the site or change the partition"
                )
            if y.shape != (X.shape[0],) or not np.all((np.abs(y) == 1.0) | (y == 0.0)):
                rule = "labels must be -1 or +1, or 0 for a row of zeros, one per row"
                raise InvalidInput(f"site {i}", None, rule, "encode the two classes this way")
            if not np.all(np.isfinite(norms)):
                remedy = "replace them by a public constant, or drop those rows"
                raise InvalidInput(f"site {i}", None, "rows hold NaN or infinite values", remedy)
            if norms.size and norms.max() > 1.0:
                remedy = "encode rows with a schema or a data_norm"
                raise InvalidInput(f"site {i}", None, "a row lies outside the unit ball", remedy)
            if not (np.any(y > 0) and np.any(y < 0)):
                one_class.append(i)
        return tuple(one_class)


def _stacked_signed(parts: Sequence[tuple[Array, Array]], d: int) -> Array:
    """Return every node's rows times their labels, padded with zeros: (N, n_max, d)."""
    signed = np.zeros((len(parts), max(len(X) for X, _ in parts), d))
    for i, (X, y) in enumerate(parts):
        np.multiply(X, y[:, None], out=signed[i, : len(X)])
    return signed


@dataclass(frozen=True)
class SparseRows(Rows):
    """Signed rows as one CSR matrix ``y x`` per node; ``signed`` is empty."""

    blocks: tuple[csr_array, ...] = ()

    def with_backend(self, spec: str) -> Self:
        if spec != "numpy":
            raise InvalidInput(
                "backend",
                spec,
                "sparse rows need the NumPy backend",
                "use 'numpy', or dense rows",
            )
        return self

    @classmethod
    def sparse_rows_from_parts(cls, parts: Sequence[tuple[csr_array, Array]]) -> SparseRows:
        """Build from the (X, y) of every node, validated as by :meth:`Rows.build_from_parts`."""
        d = parts[0][0].shape[1]
        parts = [(_divide_rounded_rows(X), y) for X, y in parts]
        squares = [_squared_row_norms(X) for X, _ in parts]
        one_class = cls._check_parts(parts, d, squares)
        blocks = tuple(_signed_sparse_rows(X, y) for X, y in parts)
        n = np.array([[float(block.shape[0])] for block in blocks])
        return cls(np.zeros((len(blocks), 0, d)), n, one_class, blocks)

    def _storage_of_nodes(self, nodes: IntArray) -> Storage:
        return Sparse(tuple(self.blocks[i] for i in nodes))

    def _fingerprint_storage(self) -> tuple[Array, ...]:
        arrays: list[Array] = []
        for block in self.blocks:
            for part in (block.data, block.indices, block.indptr):
                arrays.append(np.asarray(part, dtype=float))
        return (*arrays, self.n)

    def _storage_of_node(self, i: int) -> dict[str, Any]:
        return {"signed": self.signed[:1], "blocks": self.blocks[i : i + 1]}

    def _storage_of_pooled(self) -> dict[str, Any]:
        return {
            "signed": self.signed[:1],
            "blocks": (sparse.csr_array(sparse.vstack(self.blocks)),),
        }


def _squared_row_norms(X: Any) -> Array:
    """Compute the squared norms (n,) of dense or CSR rows.

    An array that is not 2-D is returned as it is: :meth:`Rows._check_parts` refuses it.
    """
    # No warning of overflow: such rows are refused.
    with np.errstate(over="ignore", invalid="ignore"):
        if not isinstance(X, np.ndarray):
            return np.asarray(X.power(2).sum(axis=1)).ravel()
        if X.ndim != 2:
            return X
        return np.einsum("nd,nd->n", X, X)


def _divide_rounded_rows(X: Any) -> Any:
    """Divide rows that rounding left just outside the unit ball (`ROUNDED`) by their norms."""
    if isinstance(X, np.ndarray) and X.dtype != np.float64 and X.dtype.kind in "fiub":
        # A square in single precision would round again.
        X = X.astype(float)
    if X.ndim != 2:
        return X
    squares = _squared_row_norms(X)
    rounded = (squares > 1.0) & (squares <= ROUNDED**2)
    if not rounded.any():
        return X
    norms = np.sqrt(np.where(rounded, squares, 1.0))
    # A little more than the norm, so that rounding of this division cannot leave a row outside.
    scale = np.where(rounded, 1.0 / (norms * (1.0 + 1e-12)), 1.0)[:, None]
    if isinstance(X, np.ndarray):
        return X * scale
    return sparse.csr_array(X.multiply(scale))


def _signed_sparse_rows(X: csr_array, y: Array) -> csr_array:
    """Return CSR rows times their labels; entries that are stored twice are added up."""
    signed = X.copy()
    signed.sum_duplicates()
    signed.data *= np.repeat(y, np.diff(signed.indptr))
    return signed


def _concatenate_nodes(x: Array, counts: IntArray) -> Array:
    """Concatenate the first ``counts[i]`` entries of every node i, as (1, n, ...): one node."""
    return np.concatenate([own[:n] for own, n in zip(x, counts, strict=True)])[None]


def _nodes_of_one_class(labels: IntArray, counts: IntArray) -> tuple[int, ...]:
    """Return the nodes whose known labels are all of one class, or that have none."""
    known = [own[:m][own[:m] >= 0] for own, m in zip(labels, counts, strict=True)]
    return tuple(i for i, own in enumerate(known) if np.all(own == own[:1]))


def _to_numpy_array(x: Any) -> Array:
    """Convert an array of any library to a NumPy array."""
    spec = backend_spec_of(x)
    if spec == "numpy":
        return np.asarray(x, dtype=float)
    return backend_from_spec(spec).copy_to_host(x)


def _known_offsets(parts: Sequence[tuple[Any, Array]], offsets: Sequence[Array]) -> list[Array]:
    """Return the offsets (n_i,) of each node, set to 0 for rows of zeros (label 0)."""
    if len(offsets) != len(parts):
        raise InvalidInput(
            "offsets", len(offsets), f"there are {len(parts)} sites", "give one array per site"
        )
    out = []
    for i, ((_, label), offset) in enumerate(zip(parts, offsets, strict=True)):
        y, t = _to_numpy_array(label), _to_numpy_array(offset)
        if t.shape != y.shape:
            raise InvalidInput(
                f"site {i}",
                t.shape,
                f"offsets must have shape {y.shape}",
                "give one number per row",
            )
        if np.any(y < 0):
            rule = (
                "rows with numeric labels have no class: their class label must be +1, "
                "or 0 for a row of zeros"
            )
            raise InvalidInput(f"site {i}", None, rule, "give class labels of ones, or no offsets")
        out.append(np.where(y == 0, 0.0, t))
    return out
