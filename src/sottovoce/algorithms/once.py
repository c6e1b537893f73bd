"""A recipe whose statistics are all computed at one fixed public point."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..problem.facts import Facts
from ..util.typing import Array
from .items import Script
from .recipe import Recipe


@dataclass(frozen=True)
class Once(Recipe):
    """A recipe that asks all its items at one point; its outcome is the answer to the last item."""

    name: ClassVar[str] = "once"

    @abstractmethod
    def point_of_release(self, d: int) -> Array:
        """Return the public point at which the rows' statistics are computed, of shape (d,)."""

    def script(self, facts: Facts, replicates: int) -> Script:
        at, told = np.tile(self.point_of_release(facts.d), (replicates, 1)), None
        for item in self.items:
            told = yield item.what(at)
        return told
