"""The first step of centring: the mean of all rows, released once before any method.

See docs/privacy/centring.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..queries import RowMean
from ..util.typing import Array
from .items import Item
from .once import Once


@dataclass(frozen=True)
class Centre(Once):
    """The recipe with one release, the mean of all rows, asked before training.

    :class:`sottovoce.runs.centre.Centring` makes it and moves the rows by its answer.

    Parameters
    ----------
    constants : tuple of int
        Indices of the columns that hold a constant feature; their mean is not asked.
    """

    constants: tuple[int, ...] = field(kw_only=True)

    name: ClassVar[str] = "centre"
    summary: ClassVar[str] = "the mean of all rows, so that it can be subtracted before training"

    @property
    def items(self) -> tuple[Item, ...]:
        # One item, so it has the whole budget of the recipe.
        return (Item("mean of rows", lambda at: RowMean(at, self.constants), 1.0),)

    def point_of_release(self, d: int) -> Array:
        # A mean of rows depends on no model: any point will do.
        return np.zeros(d)
