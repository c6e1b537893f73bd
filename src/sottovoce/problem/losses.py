"""Losses: value, derivative, curvature, and the bounds that every privacy proof rests on.

A margin loss is a convex function of the margin ``z = y w.x``.  With its first derivative called
*derivative* and its second *curvature*, a row with ``||x|| <= 1`` contributes to the local
objective

* the gradient ``derivative(z) y x``, of norm at most ``derivative_bound`` (papers 000-004 assume
  1), and
* the Hessian ``curvature(z) x x'``, of rank one and norm at most ``curvature_bound`` (``c1`` in the
  papers).

A :class:`Residual` loss has ``z = w.x - t``, where t is a number to predict, within public bounds.
Its derivative has both signs, so mechanisms whose proofs need one sign refuse it
(``docs/privacy/objective_perturbation.md``).

:class:`Softmax` has K margins per row and a Hessian of rank K - 1: proofs by the gradient's norm
(noise on answers and on gradients) hold for it, proofs by the rank (noise inside the objective) do
not.

Each class states its bounds with their proof; tests check them by finite differences and on grids.
Commands, errors, documentation and tests know of a loss from its line in :data:`REGISTRY`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..util.later import Later
from ..util.typing import Any, Array

compat = Later("array_api_compat")


def namespace(z: Any) -> Any:
    """Return the array library of `z` (:mod:`sottovoce.data.device`): NumPy, PyTorch or another."""
    # NumPy, the common case, is recognised without the lazy import.
    return np if isinstance(z, np.ndarray | np.generic | float) else compat.array_namespace(z)


class Loss(ABC):
    """A convex loss of margins, with the bounds that privacy proofs use.

    ``|derivative| <= derivative_bound`` and ``0 <= curvature <= curvature_bound``, so for rows in
    the unit ball these bound the norms of a row's gradient and Hessian.  :attr:`monotone` and
    :attr:`logistic_identity` have to be proved for each class, so a subclass does not inherit them.
    """

    name: ClassVar[str]
    """Name of the loss: the part before the colon in a text such as ``"huber:0.5"``."""
    argument: ClassVar[str] = ""
    """Letter that stands in help texts for the number after the colon; empty if there is none."""
    about: ClassVar[str]
    """Description, a few words."""
    monotone: ClassVar[bool] = False
    """True if the derivative is never positive, as proofs for noise inside the objective need."""
    logistic_identity: ClassVar[bool] = False
    """Whether ``curvature == |derivative| (1 - |derivative|)`` everywhere: objective
    perturbation costs less (U1).
    """
    offset_bound: ClassVar[float] = 0.0
    """Largest ``|t|`` of margins ``x.w - t``; 0 for losses of classes."""
    outputs: int = 1
    """Number of margins per row: 1, or the number of classes."""
    by_norm: ClassVar[bool] = False
    """True if a row's loss depends on its norm, see :meth:`for_row_norms`."""
    any_norm: ClassVar[bool] = False
    """True if the bounds hold for rows of any norm, and not only in the unit ball."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for proved in ("monotone", "logistic_identity"):
            if proved not in vars(cls):
                setattr(cls, proved, False)

    @classmethod
    def read(cls, argument: str) -> Loss:
        """Make this loss from the text after the colon (empty if none); ValueError for others."""
        if argument and not cls.argument:
            raise ValueError(argument)
        return cls(*map(float, filter(None, [argument])))

    @property
    def derivative_bound(self) -> float:
        """Largest ``|derivative|``, or for several margins the largest norm of a row's gradient."""
        return 1.0

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """``c1``: the supremum of the curvature."""

    @property
    def hessian_bound(self) -> float:
        """Largest norm of a row's Hessian, for rows in the unit ball."""
        return self.curvature_bound

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        """The margins at which the curvature is discontinuous."""
        return ()

    @property
    def unproved_inside(self) -> str | None:
        """Why objective perturbation has no proof for this loss; None if it has one.

        The proofs need a Hessian of rank one for each row, and derivatives in [-1, 0].
        """
        if self.outputs > 1:
            return "objective perturbation is proved only for Hessians of rank one per row"
        if self.derivative_bound > 1.0 or not self.monotone:
            return "objective perturbation is proved only for derivatives between -1 and 0"
        return None

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Compute the loss at margins `z`."""

    @abstractmethod
    def derivative(self, z: Array) -> Array:
        """Compute the first derivative at margins `z`."""

    @abstractmethod
    def curvature(self, z: Array) -> Array:
        """Compute the second derivative at margins `z` (almost everywhere)."""

    def typical_curvature(self, z: Array) -> Array:
        """Return a curvature for the preconditioner that is typical of margins around `z`.

        It is the curvature itself, unless that has jumps: then an average near `z`.
        """
        return self.curvature(z)

    def gradient_derivative(self, z: Array, along: Array) -> Array:
        """Return the gradient's directional derivative: curvature at margins `z` times `along`."""
        return self.curvature(z) * along

    def softened(self, width: float) -> Loss:
        """Return a smooth loss whose derivative is within ``width * curvature_bound`` of this one.

        As the width falls, minimisers converge to the minimiser of this loss.  A loss with
        :attr:`curvature_jumps` must have softened forms for every positive width; only their
        derivative and curvature are used.
        """
        return self

    def margin_of_derivative(self, s: Any) -> Any:
        """Return the margin of derivative ``-s``, 0 <= s <= ``derivative_bound``; None if unknown.

        For even losses it is below 0.  Capped forms need it (:mod:`sottovoce.problem.clipped`).
        """
        return None

    def for_row_norms(self, norms: Callable[[], Any]) -> Loss:
        """Return the loss for rows of these norms: itself, unless :attr:`by_norm`.

        `norms` is a callable that gives upper bounds on the rows' norms, (..., n).
        """
        return self

    @property
    @abstractmethod
    def spec(self) -> str:
        """The text from which :func:`make_loss` builds this loss again, with every digit."""


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-z))``.

    With ``p = 1/(1 + exp(z))``: derivative ``-p`` in (-1, 0), curvature ``p (1 - p) <= 1/4``,
    attained at z = 0.  The identity ``curvature = |derivative| (1 - |derivative|)`` makes its
    log-determinant cheap (U1 of :mod:`sottovoce.privacy.bounds`): where the gradient is extreme,
    the curvature vanishes.
    """

    name: ClassVar[str] = "logistic"
    about: ClassVar[str] = "logistic regression"
    monotone: ClassVar[bool] = True
    logistic_identity: ClassVar[bool] = True

    @property
    def curvature_bound(self) -> float:
        return 0.25

    def value(self, z: Array) -> Array:
        xp = namespace(z)
        return xp.logaddexp(xp.zeros_like(z), -z)

    def derivative(self, z: Array) -> Array:
        with np.errstate(over="ignore"):
            return -1.0 / (1.0 + namespace(z).exp(z))  # nothing cancels

    def curvature(self, z: Array) -> Array:
        p = self.derivative(z)
        return -p * (1.0 + p)

    def margin_of_derivative(self, s: Any) -> Any:
        return namespace(s).log((1.0 - s) / s)

    @property
    def spec(self) -> str:
        return "logistic"


@dataclass(frozen=True)
class HuberSVM(Loss):
    """The Huberised hinge of 003, eq. (3.5): linear below ``1 - h``, quadratic within ``h`` of 1,
    zero above.

    On the quadratic piece ``(1 + h - z)^2 / (4h)`` the derivative ``-(1 + h - z)/(2h)`` runs from
    -1 to 0, and the curvature is ``1/(2h)``; elsewhere the curvature is 0.
    """

    h: float = 0.5
    name: ClassVar[str] = "huber"
    argument: ClassVar[str] = "H"
    about: ClassVar[str] = "the hinge of a support vector machine, quadratic within H of 1"
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (np.isfinite(self.h) and self.h > 0):
            raise InvalidInput(
                "h", self.h, "the half-width of the quadratic part must be > 0", "use h=0.5"
            )

    @property
    def curvature_bound(self) -> float:
        return 1.0 / (2.0 * self.h)

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        return (1.0 - self.h, 1.0 + self.h)

    def value(self, z: Array) -> Array:
        xp = namespace(z)
        gap = xp.clip(1.0 + self.h - z, 0.0, 2.0 * self.h)
        return gap**2 / (4.0 * self.h) + xp.clip(1.0 - self.h - z, 0.0, None)

    def derivative(self, z: Array) -> Array:
        return -namespace(z).clip((1.0 + self.h - z) / (2.0 * self.h), 0.0, 1.0)

    def curvature(self, z: Array) -> Array:
        xp = namespace(z)
        return xp.where(
            xp.abs(1.0 - z) < self.h, xp.full_like(z, self.curvature_bound), xp.zeros_like(z)
        )

    def typical_curvature(self, z: Array) -> Array:
        """Return the mean curvature within 1 of `z`.

        At w = 0 the curvature of every row is 0, but near the minimiser it is not.
        """
        return 0.5 * (self.derivative(z + 1.0) - self.derivative(z - 1.0))

    def margin_of_derivative(self, s: Any) -> Any:
        return 1.0 + self.h - 2.0 * self.h * s

    def softened(self, width: float) -> Loss:
        return _SoftHuber(self.h, width)

    @property
    def spec(self) -> str:
        return f"huber:{self.h:g}"


@dataclass(frozen=True)
class _SoftHuber(HuberSVM):
    """Huber's hinge with a smooth ``t_+``.

    In ``derivative = ((1-h-z)_+ - (1+h-z)_+) / 2h``, ``t_+`` becomes ``(t + sqrt(t^2 + 4 width^2))
    / 2``, which is between 0 and ``width`` larger.  So the derivative is within ``width / 2h`` of
    Huber's.
    """

    width: float = 1.0

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        return ()

    def _roots(self, z: Array) -> tuple[Array, Array, Array, Array]:
        up, down = 1.0 + self.h - z, 1.0 - self.h - z
        root = namespace(z).sqrt
        return up, down, root(up**2 + 4.0 * self.width**2), root(down**2 + 4.0 * self.width**2)

    def derivative(self, z: Array) -> Array:
        _, _, above, below = self._roots(z)
        # the same, and nothing cancels
        return -namespace(z).clip(0.5 + (1.0 - z) / (above + below), 0.0, 1.0)

    def curvature(self, z: Array) -> Array:
        up, down, above, below = self._roots(z)
        turn = (1.0 - z) * (up / above + down / below) / (above + below)
        return namespace(z).clip(1.0 - turn, 0.0, None) / (above + below)

    def value(self, z: Array) -> Array:
        up, down, above, below = self._roots(z)
        asinh, s = namespace(z).asinh, self.width
        higher = up * (up + above) / 4.0 + s**2 * asinh(up / (2.0 * s))
        return (higher - down * (down + below) / 4.0 - s**2 * asinh(down / (2.0 * s))) / (
            2.0 * self.h
        )


@dataclass(frozen=True)
class Softmax(Loss):
    """``log sum_j exp(u_j)`` with ``u_j = w_j.x - w_label.x``, for K classes: multinomial logistic
    regression.

    Margins ``u`` are (..., K n), classes before rows.  Values are (..., n), first derivatives ``p =
    softmax(u)`` and curvatures ``p (1 - p)`` (the diagonal, for preconditioning) (..., K n).

    The gradient is ``x (p - e_label)'``, of norm at most ``||p - e_label|| <= sqrt 2``, since ``||p
    - e||^2 = (1 - p_label)^2 + sum_{j != label} p_j^2 <= 2 (1 - p_label)^2``.  The Hessian is
    ``(diag p - p p')`` times ``x x'``, of norm at most 1/2: a variance of a unit vector's entry
    under p is at most ``(max - min)^2 / 4 <= 1/2`` (Popoviciu).
    """

    classes: int = 3
    name: ClassVar[str] = "softmax"
    argument: ClassVar[str] = "K"
    about: ClassVar[str] = "multinomial logistic regression for K classes"

    def __post_init__(self) -> None:
        if not self.classes >= 2:
            raise InvalidInput(
                "loss", self.spec, "needs at least 2 classes", "use loss='logistic' or more classes"
            )
        object.__setattr__(self, "outputs", self.classes)

    @classmethod
    def read(cls, argument: str) -> Loss:
        if not (argument.isdecimal() and len(argument) < 10):
            raise ValueError(argument)
        return cls(int(argument))

    @property
    def derivative_bound(self) -> float:
        return 2.0**0.5

    @property
    def curvature_bound(self) -> float:
        return 0.5

    def _exponentials(self, z: Array) -> tuple[Array, Array, Array]:
        """Return (top, e, total) for softmax without overflow.

        `top` is each row's largest margin (..., 1, n), `e` the exponentials of margins minus it
        (..., K, n), and `total` their sum over classes (..., 1, n).
        """
        xp = namespace(z)
        split = xp.reshape(z, (*z.shape[:-1], self.classes, -1))
        top = xp.max(split, axis=-2, keepdims=True)
        e = xp.exp(split - top)
        return top, e, xp.sum(e, axis=-2, keepdims=True)

    def value(self, z: Array) -> Array:
        top, _, total = self._exponentials(z)
        return (top + namespace(z).log(total))[..., 0, :]

    def derivative(self, z: Array) -> Array:
        _, e, total = self._exponentials(z)
        return namespace(z).reshape(e / total, z.shape)

    def curvature(self, z: Array) -> Array:
        p = self.derivative(z)
        return p * (1.0 - p)

    def gradient_derivative(self, z: Array, along: Array) -> Array:
        xp = namespace(z)
        p, m = (
            xp.reshape(x, (*z.shape[:-1], self.classes, -1)) for x in (self.derivative(z), along)
        )
        return xp.reshape(p * (m - xp.sum(p * m, axis=-2, keepdims=True)), z.shape)

    @property
    def spec(self) -> str:
        return f"softmax:{self.classes}"


MOST_OFFSET = 1.0
"""Largest absolute value of a number to predict: targets are scaled to [-1, 1], as rows are to
the unit ball.
"""


@dataclass(frozen=True)
class Residual(Loss):
    """A loss of the residual ``r = w.x - t``: even, quadratic near 0, with tails of derivative -1
    and 1.

    Beyond residuals of about `h` it grows linearly; `h` is from 1e-6 to 1e6, in units of targets in
    [-1, 1].
    """

    h: float = 0.25
    argument: ClassVar[str] = "H"
    offset_bound: ClassVar[float] = MOST_OFFSET

    def __post_init__(self) -> None:
        if not 1e-6 <= self.h <= 1e6:  # False for NaN
            rule = "the residual beyond which the loss is linear must be from 1e-6 to 1e6"
            raise InvalidInput("h", self.h, rule, "use h=0.25")

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.h

    @property
    def spec(self) -> str:
        return f"{self.name}:{float(self.h)!r}"


@dataclass(frozen=True)
class HuberResidual(Residual):
    """Huber's loss of the residual, divided by h: ``r^2 / (2h)`` within h of 0, ``|r| - h/2``
    beyond.

    The derivative is ``r/h`` clipped to [-1, 1]; the curvature is ``1/h`` within h of 0, and 0
    beyond.  A squared loss has no bound on its derivative, and so no sensitivity.
    """

    name: ClassVar[str] = "huber-residual"
    about: ClassVar[str] = "Huber's loss of the residual: quadratic within H of 0, linear beyond"

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        return (-self.h, self.h)

    def value(self, z: Array) -> Array:
        far = namespace(z).abs(z)
        near = namespace(z).clip(far, 0.0, self.h)
        return near**2 / (2.0 * self.h) + (far - near)

    def derivative(self, z: Array) -> Array:
        return namespace(z).clip(z / self.h, -1.0, 1.0)

    def curvature(self, z: Array) -> Array:
        xp = namespace(z)
        return xp.where(xp.abs(z) < self.h, xp.full_like(z, self.curvature_bound), xp.zeros_like(z))

    def typical_curvature(self, z: Array) -> Array:
        """Return the mean curvature within 2h of `z`.

        The curvature of a row far from its target is 0, but near the minimiser it may not be.
        """
        return (self.derivative(z + 2.0 * self.h) - self.derivative(z - 2.0 * self.h)) / (
            4.0 * self.h
        )

    def margin_of_derivative(self, s: Any) -> Any:
        return -self.h * s

    def softened(self, width: float) -> Loss:
        return _SoftHuberResidual(self.h, width)


@dataclass(frozen=True)
class _SoftHuberResidual(HuberResidual):
    """A smooth form of Huber's loss: twice the softened hinge at ``1 - r``, minus ``r + h/2``.

    With a width of 0 this is Huber's loss itself.

    The softened hinge's derivative is within ``width / 2h`` of the hinge's, so this one is within
    ``width / h`` of Huber's.
    """

    width: float = 1.0

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        return ()

    @property
    def _hinge(self) -> _SoftHuber:
        return _SoftHuber(self.h, self.width)

    def value(self, z: Array) -> Array:
        return 2.0 * self._hinge.value(1.0 - z) - z - 0.5 * self.h

    def derivative(self, z: Array) -> Array:
        return -2.0 * self._hinge.derivative(1.0 - z) - 1.0

    def curvature(self, z: Array) -> Array:
        return 2.0 * self._hinge.curvature(1.0 - z)


@dataclass(frozen=True)
class LogCosh(Residual):
    """``h ln cosh(r/h)``: Huber's loss of the residual, made smooth.

    The derivative is ``s = tanh(r/h)``, inside (-1, 1), and the curvature ``(1 - s^2) / h <= 1/h``,
    attained at 0.
    """

    name: ClassVar[str] = "log-cosh"
    about: ClassVar[str] = "H ln cosh(r/H): Huber's loss of the residual made smooth"

    def value(self, z: Array) -> Array:
        xp = namespace(z)
        far = xp.abs(z) / self.h
        return self.h * (far + xp.log1p(xp.exp(-2.0 * far)) - float(np.log(2.0)))

    def derivative(self, z: Array) -> Array:
        return namespace(z).tanh(z / self.h)

    def curvature(self, z: Array) -> Array:
        s = self.derivative(z)
        return (1.0 - s) * (1.0 + s) / self.h

    def margin_of_derivative(self, s: Any) -> Any:
        xp = namespace(s)
        return 0.5 * self.h * (xp.log1p(-s) - xp.log1p(s))  # -h atanh(s)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss of the residual, smoothed within :attr:`h` of 0: half of Huber's loss plus
    ``(1/2 - q) r``.

    The derivative runs from ``-q`` at residuals below -h to ``1 - q`` above h, so its bound is the
    larger of both; the curvature is ``1/(2h)`` within h of 0, and 0 beyond.  The minimiser predicts
    the q-quantile, q from 0.01 to 0.99, up to the smoothing.
    """

    q: float = 0.5
    width: float = 0.0
    h: ClassVar[float] = 0.05
    argument: ClassVar[str] = "Q"
    name: ClassVar[str] = "quantile"
    about: ClassVar[str] = "the pinball loss of the residual, smoothed: predicts the Q-quantile"
    offset_bound: ClassVar[float] = MOST_OFFSET

    def __post_init__(self) -> None:
        if not 0.01 <= self.q <= 0.99:  # False for NaN
            raise InvalidInput(
                "q", self.q, "the quantile must be from 0.01 to 0.99", "use q=0.5 for the median"
            )

    @property
    def derivative_bound(self) -> float:
        return max(self.q, 1.0 - self.q)

    @property
    def curvature_bound(self) -> float:
        return 0.5 / self.h

    @property
    def curvature_jumps(self) -> tuple[float, ...]:
        return () if self.width else (-self.h, self.h)

    def _huber(self) -> Loss:
        huber = HuberResidual(self.h)
        return huber.softened(self.width) if self.width else huber

    def value(self, z: Array) -> Array:
        return 0.5 * self._huber().value(z) + (0.5 - self.q) * z + 0.25 * self.h

    def derivative(self, z: Array) -> Array:
        return namespace(z).clip(
            0.5 * self._huber().derivative(z) + (0.5 - self.q), -self.q, 1.0 - self.q
        )

    def curvature(self, z: Array) -> Array:
        return 0.5 * self._huber().curvature(z)

    def typical_curvature(self, z: Array) -> Array:
        return 0.5 * HuberResidual(self.h).typical_curvature(z)

    def softened(self, width: float) -> Loss:
        return Quantile(self.q, width)

    @property
    def spec(self) -> str:
        return f"quantile:{float(self.q)!r}"


REGISTRY: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, HuberSVM, Softmax, HuberResidual, LogCosh, Quantile)
}
"""Every loss by its name; each can be built without an argument."""


def loss_texts(*, classes: bool = False, numbers: bool = False) -> dict[str, str]:
    """Return the text and the description of each loss for one kind of label.

    By default losses for two classes; with `classes` those for more, with `numbers` for numbers.
    """
    found = (
        kind
        for kind in REGISTRY.values()
        if (bool(kind.offset_bound), kind().outputs > 1) == (numbers, classes)
    )
    return {
        f"{kind.name}:{kind.argument}" if kind.argument else kind.name: kind.about for kind in found
    }


def make_loss(spec: str) -> Loss:
    """Build a loss from its text: a name of :data:`REGISTRY`, and after a colon its argument.

    Without one, ``"huber"`` has H = 0.5, ``"huber-residual"`` and ``"log-cosh"`` have 0.25.

    Raises
    ------
    InvalidInput
        For any other text.

    Examples
    --------
    >>> make_loss("huber:0.5").curvature_bound
    1.0
    """
    name, _, argument = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if name in REGISTRY:
        try:
            return REGISTRY[name].read(argument)
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
    two, many, numbers = (
        " or ".join(map(repr, texts))
        for texts in (loss_texts(), loss_texts(classes=True), loss_texts(numbers=True))
    )
    rule = (
        f"must be {two} for two classes, {many} for more than two, or {numbers} for numeric labels"
    )
    raise InvalidInput("loss", spec, rule, "use loss='logistic'")
