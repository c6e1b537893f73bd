"""Schedules ``k -> eta_i(k)`` or ``alpha_i(k)``: public positive parameters per round and node.

Called with ``k = 1, 2, ...``, a schedule returns an array of shape ``()`` (all nodes alike) or
``(N, 1)``, which broadcasts against vectors ``(..., N, d)``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput, format_declared_value
from ..util.constraints import real_number_or_none
from ..util.plain import as_python_numbers
from ..util.typing import Any, Array, ArrayLike


def _check_positive(field: str, given: Any) -> None:
    """Refuse (InvalidInput) what is neither a positive number nor one for each node."""
    entries = given.ravel().tolist() if isinstance(given, np.ndarray) else given
    entries = entries if isinstance(entries, tuple | list) else [entries]
    if any(real_number_or_none(as_python_numbers(entry)) is None for entry in entries):
        raise InvalidInput(
            field,
            type(given),
            "must be a number, or a tuple with one number per node",
            f"give a number, such as {field}=1.0",
        )
    values = np.asarray(given, dtype=float)
    if values.size == 0 or not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidInput(
            field,
            values.tolist(),
            "every value of a schedule must be finite and > 0",
            "give positive numbers",
        )


@dataclass(frozen=True)
class Schedule:
    """A positive parameter of round k: ``start * growth ** (k - 1)``, or row k of a table.

    The last row of a table holds for all later rounds.

    Parameters
    ----------
    start : float or tuple of N floats
        Value in the first round, for all nodes or for each.
    growth : float or tuple of N floats
        Factor from one round to the next.  The first round has `start` itself: ``eta_i(2k-1) =
        q^k`` of 002, Figure 4, whose exponent is 1 there, has q for both.
    table : tuple of float, or of tuples of N floats, optional
        Explicit values per round; excludes `growth`.
    factor : float or tuple of N floats
        Factor of every value; calibration sets it.
    """

    start: float | tuple[float, ...] = 1.0
    growth: float | tuple[float, ...] = 1.0
    table: tuple[float | tuple[float, ...], ...] | None = None
    factor: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        for name in ("start", "growth", "factor"):
            _check_positive(name, getattr(self, name))
        for row in self.table or ():
            _check_positive("table", row)
        if self.table is not None and len(self.table) == 0:
            raise InvalidInput(
                "table", [], "a table needs at least one row", "give one value a round"
            )

    @classmethod
    def from_value(cls, value: Schedule | ArrayLike) -> Schedule:
        """Make a schedule of a number, of one number for each node, or return one as it is."""
        if isinstance(value, Schedule):
            return value
        array = np.asarray(value, dtype=float)
        return cls(float(array) if array.ndim == 0 else tuple(array.tolist()))

    def __call__(self, k: int) -> Array:
        if self.table is not None:
            value = np.asarray(self.table[min(k, len(self.table)) - 1], dtype=float)
        else:
            value = np.asarray(self.start, dtype=float) * np.asarray(self.growth, dtype=float) ** (
                k - 1
            )
        value = value * np.asarray(self.factor, dtype=float)
        return value if value.ndim == 0 else value[:, None]

    def scaled(self, factor: ArrayLike) -> Schedule:
        """Return the schedule times `factor`, one number or one per node."""
        product = np.asarray(self.factor, dtype=float) * np.asarray(factor, dtype=float)
        return Schedule(
            self.start,
            self.growth,
            self.table,
            product.item() if product.ndim == 0 else tuple(product),
        )

    def schedule_of_node(self, i: int) -> Schedule:
        """Return the schedule of node `i` alone."""

        def pick(x: float | tuple[float, ...]) -> float:
            return x[i] if isinstance(x, tuple) else x

        table = None if self.table is None else tuple(pick(row) for row in self.table)
        return Schedule(pick(self.start), pick(self.growth), table, pick(self.factor))

    @property
    def nodes(self) -> set[int]:
        """The lengths of its parts that list one value per node: {N}, or empty if there is none."""
        parts = (self.start, self.growth, self.factor, *(self.table or ()))
        return {len(part) for part in parts if isinstance(part, tuple)}

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same for all nodes and rounds."""
        first = self.start if self.table is None else self.table[0]
        return self.is_steady and all(np.all(x == np.ravel(x)[0]) for x in (first, self.factor))

    @property
    def is_steady(self) -> bool:
        """Whether the value of every node is the same in all rounds."""
        if self.table is not None:
            return all(
                bool(np.all(np.asarray(row) == np.asarray(self.table[0]))) for row in self.table
            )
        return bool(np.all(np.asarray(self.growth) == 1.0))

    @property
    def non_decreasing(self) -> bool:
        """Whether no node's value falls from one round to the next."""
        if self.table is None:
            return bool(np.all(np.asarray(self.growth) >= 1.0))
        rows = [np.asarray(row, dtype=float) for row in self.table]
        return all(bool(np.all(b >= a)) for a, b in itertools.pairwise(rows))

    @property
    def describe_values(self) -> str:
        """A description in words, for messages."""
        if self.table is not None:
            return f"a table of {len(self.table)} rounds"
        return (
            f"start {format_declared_value(self.start)}, growth "
            f"{format_declared_value(self.growth)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain: dict[str, Any] = {"start": self.start, "growth": self.growth, "factor": self.factor}
        return plain | ({} if self.table is None else {"table": self.table})

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Schedule:
        """Inverse of :meth:`to_dict` (lists, as JSON gives them, become tuples)."""

        def frozen(x: Any) -> Any:
            return tuple(frozen(v) for v in x) if isinstance(x, list | tuple) else x

        return cls(**{key: frozen(value) for key, value in plain.items()})
