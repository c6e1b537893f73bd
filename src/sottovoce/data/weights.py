"""Sample weights: a column of weights under a public cap, and public weights of classes, both
scaled to [0, 1], for :meth:`sottovoce.data.rows.Rows.with_weight`.

A weight of at most 1 raises no sensitivity, so no price depends on weights
(docs/privacy/weights.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..errors import InvalidInput, SchemaError
from ..util.typing import Any, Array, ArrayLike
from .values import Column, Declared, as_python_value, column_as_numbers, value_as_text


def check_weight_cap(field: str, cap: float) -> None:
    """Refuse a cap on weights that is not a number from 1e-100 to 1e100."""
    if isinstance(cap, bool) or not (isinstance(cap, int | float) and 1e-100 <= cap <= 1e100):
        rule = "must be a number above 0, to which larger weights are lowered"
        raise InvalidInput(field, cap, rule, "declare a public bound, such as 3")


def weights_below_cap(field: str, given: ArrayLike, cap: float) -> tuple[Array, int]:
    """Cap sample weights w and scale them to [0, 1]: ``min(w, cap) / cap``.

    Parameters
    ----------
    field : str
        Named by errors.
    given : array_like
        Weights, finite and not negative.
    cap : float
        Public bound, from 1e-100 to 1e100.

    Returns
    -------
    weights : ndarray
        In [0, 1], of the shape given.
    above : int
        Number of weights above the cap: exact, for the holder of the rows only.

    Raises
    ------
    InvalidInput
        For a weight that is negative or no finite number (no weight is shown), or a cap out of
        range.
    """
    check_weight_cap(field, cap)
    w = np.asarray(given, dtype=np.float64)
    if not (np.all(np.isfinite(w)) and np.all(w >= 0.0)):
        rule = "weights must be finite numbers, 0 or more: a negative one makes the loss non-convex"
        raise InvalidInput(field, None, rule, "correct them, or leave those rows out")
    return np.minimum(np.minimum(w, cap) / cap, 1.0), int(np.sum(w > cap))


@dataclass(frozen=True)
class CaseWeight:
    """The column of sample weights, and their public cap `max`: a row counts ``min(w, max) /
    max``.
    """

    column: str
    max: float

    def __post_init__(self) -> None:
        if not (isinstance(self.column, str) and self.column):
            raise SchemaError(
                "weight", None, "column must be a text", 'write weight = {column = "w", max = 3}'
            )
        check_weight_cap("weight.max", self.max)

    @classmethod
    def case_weight_from_entry(cls, given: object) -> Self:
        """Read a schema's ``weight`` entry; a SchemaError for any other."""
        if not isinstance(given, Mapping) or set(given) != {"column", "max"}:
            raise SchemaError(
                "weight", None, "must have column and max", 'write weight = {column = "w", max = 3}'
            )
        return cls(**given)

    def encode_weights(self, column: Column, na: frozenset[str]) -> tuple[Array, int]:
        """Read sample weights in [0, 1] from their column, with the number above the cap."""
        try:
            numbers, missing = column_as_numbers(column, na)
        except ValueError as error:
            rule = f"every weight must be a finite number, and some are {error}"
            raise SchemaError(self.column, None, rule, "repair the rows") from None
        if missing.any():
            raise SchemaError(
                self.column, None, "some weights are missing", "write 1, or leave those rows out"
            )
        return weights_below_cap(self.column, numbers, self.max)


def shares_of_classes(field: str, given: Any, names: Sequence[object]) -> Array:
    """Return the weights of all classes, scaled so that the largest is 1.

    Parameters
    ----------
    field : str
        Named by errors.
    given : mapping of class to float
        Public weights, finite, 0 or more, at least one positive; 1 for classes that are not named.
        ``"balanced"`` is refused: it would count the labels of private rows.
    names : sequence of length K
        The declared classes.

    Returns
    -------
    ndarray of shape (K,)
        In [0, 1], in the order of `names`.

    Raises
    ------
    InvalidInput
        If `given` is no such mapping, or names a class twice or one that is not declared.
    """
    remedy = (
        "give public numbers, such as {'died': 5}; from published counts, n / (K n_class) "
        "is 'balanced'"
    )
    if isinstance(given, str):
        raise InvalidInput(
            field,
            given,
            "would count the labels of private rows without charging the budget",
            remedy,
        )
    known = Declared({value_as_text(name): k for k, name in enumerate(names)})
    try:
        entries = [(value_as_text(name), as_python_value(value)) for name, value in given.items()]
    except AttributeError:
        raise InvalidInput(field, type(given), "must map classes to numbers", remedy) from None
    out, named = np.ones(len(names)), set[int]()
    for name, value in entries:
        k = known.meaning_of_text(name)
        if k is None:
            raise InvalidInput(field, name, "is not a declared class", remedy)
        if k in named:
            raise InvalidInput(field, name, "names a class twice", "give every class one number")
        named.add(k)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0.0 <= value <= 1e100):  # False with a NaN
            raise InvalidInput(
                field, None, "weights of classes must be finite numbers, 0 or more", remedy
            )
        out[k] = float(value)
    if not out.max() > 0.0:
        raise InvalidInput(field, None, "must be positive for at least one class", remedy)
    return np.minimum(out / out.max(), 1.0)
