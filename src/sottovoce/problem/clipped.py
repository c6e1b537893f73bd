"""Gradient clipping as a loss: a convex loss whose gradients are the clipped gradients of another.

With gradients of norm at most c in place of the loss's bound, less noise is needed.  For a row a
and a cap c let ``k = c / ||a||``.  The capped loss has the derivative ``clip(derivative, -k, k)``:
it is the loss itself where the row's gradient has norm at most c, and linear beyond.  It is convex,
as the derivative still grows and is continuous; the row's gradient has norm at most c at every w;
its curvature is the loss's, or 0 where clipped, so ``curvature_bound`` holds.

Softmax's loss is ``psi(t) = log(1 + e^t)`` with ``t = log((1 - p) / p)``, p the probability of a
row's own class: t is convex in w.  With ``psi'`` clipped at ``k / sqrt 2`` the loss is a growing
convex function of a convex one.  Its gradient is softmax's times ``min(1, k / (sqrt 2 (1 - p)))``,
of norm at most c, since ``||p - e|| <= sqrt 2 (1 - p)`` as at
:class:`sottovoce.problem.losses.Softmax`.  Its Hessian has norm at most 1/2.  (Clipping the norm of
softmax's gradient itself gives a field that is no gradient.)

Norms are rounded up, so rounding does not lift the derivative of a margin loss above k; softmax's
rounding is within :func:`sottovoce.solvers.local.rounding_bound`.  ``docs/privacy/capped.md`` has
the proofs in full.

Source: Song, Thakkar and Thakurta (2020): clipped gradients of a generalised linear model are
gradients of a convex loss.  Softmax's form is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..util.typing import Any, Array
from .losses import Loss, make_loss, namespace
from .weighted_loss import ByNorm, Weighted, per_row

LEAST = 1e-6
"""Smallest cap: smaller gradients would be lost in the rounding of a solve."""
NOT_CALIBRATED = (
    "probabilities of a model trained with max_grad_norm may be over- or underconfident: "
    "for calibrated ones train with the method prox_average and without max_grad_norm, "
    "or with inference; or check them by an evaluation"
)
"""The warning that accompanies probabilities of a model trained with gradient clipping."""
_MARK = "@"  # between loss and cap in a text such as "logistic@0.5"
# Largest derivative, relative to the loss's bound, whose margin is computed: at the bound itself it
# may be infinite.
_NEARLY = 0.999999


def _cast_like(x: Any, like: Any) -> Any:
    """`x` in the precision of `like`; NumPy before 2.1 has no function for it."""
    return (
        x.astype(like.dtype)
        if isinstance(x, np.ndarray | np.generic)
        else namespace(x).astype(x, like.dtype)
    )


def clip_gradients(loss: Loss, most: float) -> Loss:
    """Return the loss whose gradients are clipped at the norm `most`; the loss itself for inf.

    InvalidInput for a cap below `LEAST`, or a loss whose gradients cannot be clipped.
    """
    return loss if most == math.inf else Capped(loss, float(most))


def read_loss(spec: str) -> Loss:
    """Read the loss of a :attr:`sottovoce.problem.losses.Loss.spec`; InvalidInput if it is none."""
    own = spec.removeprefix(f"{Weighted.name} ")
    name, _, most = own.partition(_MARK)
    loss = clip_gradients(make_loss(name), float(most) if most else math.inf)
    return loss if own == spec else Weighted(loss)


@dataclass(frozen=True)
class Capped(ByNorm):
    """A loss with its rows' gradients clipped at the norm `most`: see the module.

    Without `norms` all are taken as 1, so that the cap holds for every row in the unit ball.
    `width` is 0 for the loss itself; softened forms (:meth:`Loss.softened`) have a positive one.
    """

    most: float
    width: float = field(default=0.0, repr=False)
    name: ClassVar[str] = "capped"
    about: ClassVar[str] = "a loss with per-row gradient clipping"

    def __post_init__(self) -> None:
        if not LEAST <= self.most < math.inf:  # False for NaN
            rule = f"must be finite and at least {LEAST:g}"
            raise InvalidInput("max_grad_norm", self.most, rule, "use 0.5, or leave it out")
        if self.base.outputs == 1 and self.base.margin_of_derivative(0.5) is None:
            rule = f"gradients of the loss {self.base.spec} cannot be clipped"
            raise InvalidInput(
                "max_grad_norm", self.most, rule, "leave it out, or use loss='logistic'"
            )
        object.__setattr__(self, "outputs", self.base.outputs)
        object.__setattr__(self, "offset_bound", self.base.offset_bound)
        object.__setattr__(self, "monotone", self.base.monotone)

    @property
    def derivative_bound(self) -> float:
        """Largest norm of a row's gradient, for rows in the unit ball."""
        return min(self.most, self.base.derivative_bound)

    @property
    def hessian_bound(self) -> float:
        """``c (1 - c)`` for a cap c < 1/2 on the logistic loss: its curvature is ``s (1 - s)`` at a
        derivative of -s.

        *Proof.*  Where the derivative is not clipped, a row of norm ``r <= 1`` has ``s <= c / r``
        and a Hessian of norm ``s (1 - s) r^2``.  If ``r <= 2 c`` this is at most ``r^2 / 4 <= c^2
        <= c (1 - c)``; otherwise ``s (1 - s)`` grows up to ``s = c / r < 1/2``, and ``c (r - c) <=
        c (1 - c)``.
        """
        if self.base.logistic_identity and self.most < 0.5 and not self.width:
            return self.most * (1.0 - self.most)
        return self.base.hessian_bound

    @property
    def unproved_inside(self) -> str | None:
        return "objective perturbation is proved only without gradient clipping"

    @property
    def spec(self) -> str:
        return f"{self.base.spec}{_MARK}{self.most!r}"

    def _clipping_thresholds(self, z: Any) -> Any:
        """Return the rows' thresholds ``k`` for derivatives, (..., 1, n) or, for softmax, (..., 1,
        1, n).

        They are in the precision of margins `z`, and at most twice the loss's derivative bound, as
        rows of norm 0 have no finite threshold.  For softmax, k is divided by ``sqrt 2`` and bounds
        ``1 - p``.
        """
        xp, far = namespace(z), 2.0 * self.base.derivative_bound
        most = self.most if self.outputs == 1 else self.most / math.sqrt(2.0)
        if self.norms is None:
            k = xp.full_like(z[..., :1], min(most, far))
        else:
            k = per_row(_cast_like(most / xp.clip(self.norms, most / far, None), z), z)
        return k if self.outputs == 1 else k[..., None, :]

    def _clip_with_derivative(self, s: Any, k: Any) -> tuple[Any, Any]:
        """Return ``clip(s, -k, k)`` and its derivative in s.

        With a positive `width` both are smooth, and the clipped value changes by at most `width`.
        """
        xp = namespace(s)
        if self.width == 0.0:
            return xp.maximum(xp.minimum(s, k), -k), _cast_like(xp.abs(s) < k, s)
        above = xp.sqrt((s + k) ** 2 + 4.0 * self.width**2)
        below = xp.sqrt((s - k) ** 2 + 4.0 * self.width**2)
        # Half their difference is 2 s k / whole, where nothing cancels.
        whole = above + below
        turn = s * ((s + k) / above + (s - k) / below) / whole
        return 2.0 * s * k / whole, 2.0 * k * xp.clip(1.0 - turn, 0.0, None) / whole

    def derivative(self, z: Array) -> Array:
        if self.outputs == 1:
            return self._clip_with_derivative(
                self.base.derivative(z), self._clipping_thresholds(z)
            )[0]
        p, _, factor, _ = self._softmax_shares(z)
        return namespace(z).reshape(p * factor, z.shape)

    def curvature(self, z: Array) -> Array:
        if self.outputs == 1:
            return self._clip_with_derivative(
                self.base.derivative(z), self._clipping_thresholds(z)
            )[1] * self.base.curvature(z)
        p, _, factor, _ = self._softmax_shares(z)
        return namespace(z).reshape(factor * p * (1.0 - p), z.shape)

    def typical_curvature(self, z: Array) -> Array:
        """Return the base loss's typical curvature, at most ``k / 2``.

        A clipped row has no curvature at `z`, but may have some near the minimiser.
        """
        if self.outputs > 1:
            return self.curvature(z)
        return namespace(z).minimum(
            self.base.typical_curvature(z), 0.5 * self._clipping_thresholds(z)
        )

    def gradient_derivative(self, z: Array, along: Array) -> Array:
        if self.outputs == 1:
            return self.curvature(z) * along
        p, far, factor, bent = self._softmax_shares(z)
        xp = namespace(z)
        m = xp.reshape(along, p.shape)
        mean = xp.sum(p * m, axis=-2, keepdims=True)
        moved = factor * p * (m - mean) + p * mean * (bent - factor) * (1.0 - far) / far
        return xp.reshape(moved, z.shape)

    def _softmax_shares(self, z: Array) -> tuple[Any, Any, Any, Any]:
        """Return, for softmax, what its clipped gradient is made of.

        These are the probabilities p (..., K, n), and for every row (..., 1, n): ``1 - p_own`` with
        p_own the probability of its own class, the clipping factor ``psi' / (1 - p_own)``, and the
        derivative of the clip.  Margins are against the row's own class, whose margin is 0.
        """
        xp = namespace(z)
        split = xp.reshape(z, (*z.shape[:-1], self.outputs, -1))
        top = xp.max(split, axis=-2, keepdims=True)
        e = xp.exp(split - top)
        total = xp.sum(e, axis=-2, keepdims=True)
        far = xp.clip(1.0 - xp.exp(-top) / total, 1e-12, None)
        # A row's softmax gradient has a norm of at most sqrt(2) (1 - p_own), which the thresholds
        # are divided by.
        clipped, inside = self._clip_with_derivative(far, self._clipping_thresholds(z))
        return e / total, far, clipped / far, inside

    def value(self, z: Array) -> Array:
        """Return the base loss up to the margin where the derivative is clipped, linear beyond."""
        xp, k = namespace(z), self._clipping_thresholds(z)
        inside = xp.minimum(k, xp.full_like(k, _NEARLY * min(1.0, self.base.derivative_bound)))
        if self.outputs == 1:
            edge, s = self.base.margin_of_derivative(inside), self.base.derivative(z)
            near = xp.where(s < -k, edge, xp.where(s > k, -edge, z))
            return self.base.value(near) + k * xp.abs(z - near)
        # log(1 + e^t): 1 - p = 1 - e^-value
        k, inside = k[..., 0, :], inside[..., 0, :]
        whole = self.base.value(z)
        far = xp.clip(-xp.expm1(-whole), 1e-12, None)
        # How far t is past the edge, where the derivative is clipped and the value linear.
        beyond = whole + xp.log(far) - xp.log(inside / (1.0 - inside))
        return xp.where(far > k, k * beyond - xp.log1p(-inside), whole)

    def softened(self, width: float) -> Loss:
        """A softened base with a smooth clip; each moves the derivative by half of the width."""
        return replace(
            self,
            base=self.base.softened(0.5 * width),
            width=0.5 * width * self.base.curvature_bound,
        )
