"""A trusted curator, who holds all rows as one site: references for networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..trust import CURATOR, Trust
from .momentum import Momentum
from .one_shot import Objective


@dataclass(frozen=True)
class Central(Objective):
    """One release from pooled rows.

    Guarantee
    ---------
    That of :class:`Objective`, against whoever sees the model; the curator sees the rows.
    """

    name: ClassVar[str] = "central"
    paper: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "objective perturbation of pooled rows at a trusted curator"
    releases: ClassVar[str] = "once"
    noise_law: ClassVar[str] = "spherical or Gaussian, in the objective"
    good_for: ClassVar[str] = "what trust in one party would buy"
    trust: ClassVar[Trust] = CURATOR
    least_penalty: ClassVar[float] = 0.00002
    noise_weight: ClassVar[float] = 0.1
    forms: ClassVar[tuple[str, ...]] = ("corrected",)


@dataclass(frozen=True)
class CentralMomentum(Momentum):
    """Private gradient descent with momentum of a trusted curator, who holds all rows as one site.

    Guarantee
    ---------
    That of :class:`Momentum`, against whoever sees the iterates; the curator sees the rows.
    """

    name: ClassVar[str] = "central_momentum"
    paper: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "gradient descent with momentum and noisy gradients at a trusted curator"
    good_for: ClassVar[str] = "what trust in one party would buy, by gradients with momentum"
    trust: ClassVar[Trust] = CURATOR
