"""The first step of centring: the mean of all rows, released once before any method.

See docs/explanation/centring.md.
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
    """The recipe that releases the mean of the rows' columns; its outcome is the answer.

    Parameters
    ----------
    constants : tuple of int
        Columns that hold the constant features; they are left out.
    """

    constants: tuple[int, ...] = field(kw_only=True)

    name: ClassVar[str] = "centre"
    summary: ClassVar[str] = "the mean of all rows, so that methods can take it away"

    @property
    def items(self) -> tuple[Item, ...]:
        return (Item("mean of rows", lambda at: RowMean(at, self.constants), 1.0),)

    def point_of_release(self, d: int) -> Array:
        return np.zeros(d)
