"""Weighted losses: rows beyond the norm bound get a smaller weight instead of being clipped.

A row a of norm s > 1 would have to be clipped to enter the unit ball; then its label no longer
belongs to its columns, and coefficients are biased.  Here the row stays as it is and its loss is
multiplied by ``min(1, 1 / s^2)``:

* its gradient ``weight derivative a`` has norm at most ``derivative_bound / s``, or
  ``derivative_bound`` if s <= 1,
* its Hessian ``weight curvature a a'`` has norm at most ``curvature_bound``,
* the second moment of its gradient has norm at most ``derivative_bound^2 / s^2``.

Weights depend on columns alone, so a correctly specified model keeps its coefficients; another gets
those of the weighted rows, which may be far off.  Norms are rounded up
(:func:`sottovoce.data.design.norms_rounded_up`), so rounding lifts no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..util.typing import Any, Array
from .losses import Loss

# Rows longer than this are clipped to it: their weight is below 1e-12 either way.
LONGEST = 1e6


@dataclass(frozen=True)
class ByNorm(Loss):
    """A loss that is derived from another one, `base`, by means of the rows' norms.

    `norms`, (..., n), are upper bounds on these norms; None where rows are not known yet.
    """

    base: Loss
    norms: Any = field(default=None, compare=False, repr=False, kw_only=True)
    by_norm: ClassVar[bool] = True

    @property
    def curvature_bound(self) -> float:
        return self.base.curvature_bound

    def for_row_norms(self, norms: Callable[[], Any]) -> Loss:
        return replace(self, norms=norms())


def per_row(x: Any, z: Any) -> Any:
    """Insert axes of length 1 before the last of `x`, (..., n), until it has as many as `z`."""
    while x.ndim < z.ndim:
        x = x[..., None, :]
    return x


@dataclass(frozen=True)
class Weighted(ByNorm):
    """A loss that down-weights long rows: see the module.  Without `norms` all weights are 1."""

    name: ClassVar[str] = "weighted"
    about: ClassVar[str] = "a loss that down-weights long rows"
    any_norm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.base.outputs != 1:
            rule = "down-weighting of long rows needs a loss with one margin per row"
            raise InvalidInput("loss", self.base.spec, rule, "use loss='logistic'")
        object.__setattr__(self, "offset_bound", self.base.offset_bound)

    @property
    def derivative_bound(self) -> float:
        """Largest norm of a row's gradient, whatever the norm of the row."""
        return self.base.derivative_bound

    @property
    def unproved_inside(self) -> str | None:
        return "objective perturbation is proved only for rows in the unit ball"

    @property
    def spec(self) -> str:
        return f"weighted {self.base.spec}"

    def weight(self, z: Array) -> Array:
        """Return the weights of rows with margins `z`, shape of `z`."""
        if self.norms is None:
            return np.ones_like(z)
        w = 1.0 / np.maximum(np.asarray(self.norms), 1.0) ** 2
        return np.asarray(np.broadcast_to(per_row(w, z), z.shape))

    def value(self, z: Array) -> Array:
        return self.weight(z) * self.base.value(z)

    def derivative(self, z: Array) -> Array:
        return self.weight(z) * self.base.derivative(z)

    def curvature(self, z: Array) -> Array:
        return self.weight(z) * self.base.curvature(z)

    def typical_curvature(self, z: Array) -> Array:
        return self.weight(z) * self.base.typical_curvature(z)


def weights_of_rows(loss: Loss, z: Array) -> Array:
    """Return the weights of rows with margins `z`: 1 for a loss that weighs none."""
    return loss.weight(z) if isinstance(loss, Weighted) else np.ones_like(z)
