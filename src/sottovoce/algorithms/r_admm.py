"""Private R-ADMM (002, Algorithm 1 with the noise of Algorithm 3).

002, section III-B2: with eta_i(2k-1) = eta for all nodes and rounds, (14) to (17) are the same as
(10) to (13).  So R-ADMM is MR-ADMM with that restriction, which is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import InvalidInput
from .base import Node
from .mr_admm import MRADMM


@dataclass(frozen=True)
class RADMM(MRADMM):
    """MR-ADMM with one penalty for all nodes and rounds.

    Guarantee
    ---------
    That of :class:`sottovoce.algorithms.mr_admm.MRADMM`.
    """

    name: ClassVar[str] = "r_admm"
    paper: ClassVar[str] = "002, Algorithms 1 and 3"
    summary: ClassVar[str] = "recycled ADMM with one constant penalty: a release every second round"
    good_for: ClassVar[str] = "002 with one penalty"
    equals: ClassVar[str] = "mr_admm"

    def check(self, node: Node) -> None:
        if not self.penalty.is_constant:
            raise InvalidInput(
                "eta",
                self.penalty.describe_values,
                "R-ADMM has one constant penalty",
                "use method='mr_admm'",
            )
        super().check(node)
