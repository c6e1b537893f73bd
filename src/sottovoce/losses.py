"""Margin losses: value, slope, bend, and the bounds that every privacy proof rests on.

A loss is a convex function of the margin ``z = y w.x``.  With its derivative called *slope* and its
second derivative *bend*, a row with ``||x|| <= 1`` contributes to the local objective

* the gradient ``slope(z) y x``, of norm at most ``slope_bound`` (papers 000-004 assume 1), and
* the Hessian ``bend(z) x x'``, of rank one and norm at most ``bend_bound`` (``c1`` in the papers).

Both bounds are stated at each class with their proof, and tested by finite differences and on grids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from .errors import InvalidInput
from .typing import Array


class Loss(ABC):
    """A convex margin loss with ``-1 <= slope <= 0`` and ``0 <= bend <= bend_bound``."""

    name: ClassVar[str]
    slope_bound: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def bend_bound(self) -> float:
        """``c1``: the supremum of the bend."""

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Loss at margin `z`."""

    @abstractmethod
    def slope(self, z: Array) -> Array:
        """First derivative at margin `z`."""

    @abstractmethod
    def bend(self, z: Array) -> Array:
        """Second derivative at margin `z` (almost everywhere)."""

    @property
    @abstractmethod
    def spec(self) -> str:
        """The text from which :func:`make` builds this loss again."""


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-z))``.

    With ``p = 1/(1 + exp(z))``: slope ``-p`` in (-1, 0), bend ``p (1 - p) <= 1/4``, attained at z = 0.
    The identity ``bend = |slope| (1 - |slope|)`` is what makes its log-determinant cheap (U1 of
    :mod:`sottovoce.privacy.bounds`): where the gradient is extreme, the curvature vanishes.
    """

    name: ClassVar[str] = "logistic"

    @property
    def bend_bound(self) -> float:
        return 0.25

    def value(self, z: Array) -> Array:
        return np.logaddexp(0.0, -z)

    def slope(self, z: Array) -> Array:
        return -expit(-z)

    def bend(self, z: Array) -> Array:
        p = expit(-z)
        return p * (1.0 - p)

    @property
    def spec(self) -> str:
        return "logistic"


@dataclass(frozen=True)
class HuberSVM(Loss):
    """The Huberised hinge of 003, eq. (3.5): linear below ``1 - h``, quadratic within ``h`` of 1, zero above.

    On the quadratic piece ``(1 + h - z)^2 / (4h)`` the slope is ``-(1 + h - z)/(2h)``, which runs from
    -1 at ``z = 1 - h`` to 0 at ``z = 1 + h``; so ``-1 <= slope <= 0`` and the bend is ``1/(2h)`` there, 0 elsewhere.
    """

    h: float = 0.5
    name: ClassVar[str] = "huber"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.h) and self.h > 0):
            raise InvalidInput("h", self.h, "the half-width of Huber's quadratic piece must be > 0", "use h=0.5")

    @property
    def bend_bound(self) -> float:
        return 1.0 / (2.0 * self.h)

    def value(self, z: Array) -> Array:
        gap = np.clip(1.0 + self.h - z, 0.0, 2.0 * self.h)
        return gap**2 / (4.0 * self.h) + np.maximum(1.0 - self.h - z, 0.0)

    def slope(self, z: Array) -> Array:
        return -np.clip((1.0 + self.h - z) / (2.0 * self.h), 0.0, 1.0)

    def bend(self, z: Array) -> Array:
        return np.where(np.abs(1.0 - z) < self.h, self.bend_bound, 0.0)

    @property
    def spec(self) -> str:
        return f"huber:{self.h:g}"


def make(spec: str) -> Loss:
    """Build a loss from ``"logistic"``, ``"huber"`` or ``"huber:H"``.

    Raises
    ------
    InvalidInput
        For any other text.
    """
    name, _, argument = spec.partition(":")
    if name == "logistic" and not argument:
        return Logistic()
    if name == "huber":
        try:
            return HuberSVM(float(argument)) if argument else HuberSVM()
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
    raise InvalidInput("loss", spec, "must be 'logistic', 'huber' or 'huber:H'", "use loss='logistic'")
