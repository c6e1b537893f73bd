"""A recipe that asks at one public point, which no answer moves."""

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
    """All items at one point; the outcome is the last answer."""

    name: ClassVar[str] = "once"

    @abstractmethod
    def point_of_release(self, d: int) -> Array:
        """Return the point, of shape (d,)."""

    def script(self, facts: Facts, replicates: int) -> Script:
        at, told = np.tile(self.point_of_release(facts.d), (replicates, 1)), None
        for item in self.items:
            told = yield item.what(at)
        return told
