"""The budget of a release: 001's accuracy curve, its utility of privacy, and its problem (28).

With alpha the budget of one release at node p, section V-C of 001 minimises

    J(alpha) = L_acc(alpha) - U_priv(alpha),   0 < alpha <= alpha_U,   0 <= L_acc(alpha) <= c3,
    (28) L_acc(alpha)  = c4 exp(-c5 alpha) + c6, U_priv(alpha) = omega1 ln(omega2 / (omega3 alpha +
    omega4 alpha^2)).

J falls to minus infinity as alpha -> 0, which the constraint with ``c3 < c4 + c6`` excludes, and is
not convex: it rises, may fall between two stationary points, and rises again.  001 calls L_acc
increasing; what increases with alpha is the accuracy, and L_acc is a loss. omega2 only adds a
constant to J.  With the printed
constants (:data:`PRINTED`) and omegas J is least at alpha = 0.14 (c4 = 0.2, c5 = 25) or 0.45 (20
and 20), whatever c6 is.

**The fit reads what it is given.** A budget chosen from losses measured on private rows is itself a
release of those rows, and nobody charged it. Pass losses measured on public or synthetic data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any, Array, ArrayLike

_FLAT = 1e-2  # c5 times the span of the budgets: below it, the curve is a straight line
_STEP = 30.0  # c5 times the first gap of budgets: above it, all losses but the first equal c6
_LARGEST = 600.0  # of c5 times the first budget, so that exp does not overflow

PRINTED = ((0.2, 25.0), (20.0, 20.0))
"""c4 and c5 of the papers: "at all iterations", for DVP; "for iteration t > 1", for PVP in 001 and
for DVP in 000.

No number is printed for c6: for the first it is ``min_t C(t)``, for the second the mean of C(t)
over t = 20, ..., 100. Nor is the unit of c4: the definition of C(t) has the factor C^R = 1750,
beside which 0.2 is nothing.
"""
ACCURACY, STATIONARY, PRIVACY = "accuracy limit", "stationary", "privacy limit"


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """``L_acc(alpha) = c4 exp(-c5 alpha) + c6`` (001, section V-C): the final empirical loss at
    budget alpha.

    Attributes
    ----------
    c4, c5, c6 : float or array of shape (N,)
        Loss that privacy can cost, rate at which a budget buys it back, and loss without noise; >
        0, > 0 and >= 0.
    residual : float or array of shape (N,)
        Root mean square of the fit's errors; 0 for a curve that was not fitted.
    """

    c4: Any
    c5: Any
    c6: Any
    residual: Any = 0.0

    def __post_init__(self) -> None:
        for name, least in (("c4", False), ("c5", False), ("c6", True), ("residual", True)):
            object.__setattr__(self, name, _numbers(name, getattr(self, name), zero=least))
        _together(**vars(self))

    def predict(self, alpha: ArrayLike) -> Any:
        """Compute the loss at budget `alpha`, which broadcasts against the nodes (N,)."""
        budget = _numbers("alpha", alpha)
        _together(c4=self.c4, c5=self.c5, c6=self.c6, alpha=budget)
        return self.c4 * np.exp(-self.c5 * budget) + self.c6


@dataclass(frozen=True, eq=False)
class PrivacyUtility:
    """``U_priv(alpha) = omega1 ln(omega2 / (omega3 alpha + omega4 alpha^2))`` (001, V-C), with
    001's values by default.

    Attributes
    ----------
    omega1, omega2 : float or array of shape (N,)
        Weight of privacy against loss; value of ``omega3 alpha + omega4 alpha^2`` at which the
        utility is 0.
    omega3, omega4 : float or array of shape (N,)
        Linear and quadratic dislike of a large budget.  All four are > 0.
    """

    omega1: Any = 0.02
    omega2: Any = 6.0
    omega3: Any = 9.0
    omega4: Any = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, _numbers(name, value))
        _together(**vars(self))

    def __call__(self, alpha: ArrayLike) -> Any:
        """Compute the utility of budget `alpha`, which broadcasts against the nodes (N,)."""
        budget = _numbers("alpha", alpha)
        _together(**vars(self), alpha=budget)
        logs = np.log(self.omega2) - np.log(budget) - np.log(self.omega3 + self.omega4 * budget)
        return self.omega1 * logs  # as differences: alpha^2 may underflow


@dataclass(frozen=True, eq=False)
class OptimalAlpha:
    """The solution of (28).

    Attributes
    ----------
    alpha, objective : float or array of shape (N,)
        The budget of one release, and J there.
    where : str or array of shape (N,)
        ``"stationary"``: J' = 0; ``"accuracy limit"``: L_acc = c3; ``"privacy limit"``: alpha =
        alpha_U.
    """

    alpha: Any
    objective: Any
    where: Any = field(default=STATIONARY)


def fit_accuracy(alpha: ArrayLike, loss: ArrayLike, *, c6: float | None = None) -> AccuracyCurve:
    """Fit L_acc to pairs of budget and final empirical loss, by least squares: one curve, or one a
    node.

    Parameters
    ----------
    alpha : array of shape (m,) or (N, m)
        Budgets > 0 of whole runs; at least 3 different ones, 2 if `c6` is given.
    loss : array of shape (m,) or (N, m)
        Mean empirical loss >= 0 at the end of those runs, one row a node, from **public or
        synthetic data**.
    c6 : float, optional
        Hold c6 at this value instead of fitting it.  001 takes the smallest loss observed.

    Returns
    -------
    AccuracyCurve
        With the residuals of the fit.

    Raises
    ------
    InvalidInput
        If the losses do not fall by more than their scatter about the fit, or do not determine c5:
        it lies between 0.01 over the span of the budgets, where a straight line fits as well, and
        30 over their first gap, where a step does.
    """
    budgets = np.asarray(_numbers("alpha", alpha))
    losses = np.asarray(_numbers("loss", loss, zero=True, data=True))
    if (
        not (1 <= losses.ndim <= 2 and 1 <= budgets.ndim <= 2)
        or losses.shape[-1] != budgets.shape[-1]
    ):
        rule = f"must have one value for each budget ({budgets.shape})"
        raise InvalidInput("loss", losses.shape, rule, "use (m,) or (N, m)")
    if budgets.ndim == 2 and losses.shape != budgets.shape:
        raise InvalidInput(
            "alpha", budgets.shape, f"must have the shape of loss, {losses.shape}", "or pass (m,)"
        )
    if c6 is not None:
        c6 = float(_numbers("c6", float(c6), zero=True))
    rows = np.atleast_2d(losses)
    found = [
        _fit(a, y, c6, i)
        for i, (a, y) in enumerate(zip(np.broadcast_to(budgets, rows.shape), rows, strict=True))
    ]
    values = np.array(found).T
    # one curve has numbers, and no arrays of one node
    if losses.ndim == 1:
        values = values[:, 0]
    return AccuracyCurve(*values)


def optimal_alpha(
    curve: AccuracyCurve, utility: PrivacyUtility, *, alpha_U: ArrayLike, c3: ArrayLike
) -> OptimalAlpha:
    """Find the budget that minimises J under the constraints of 001, (28); the smaller at a tie.

    Parameters
    ----------
    curve, utility : AccuracyCurve, PrivacyUtility
        L_acc and U_priv of one node or of N.
    alpha_U : float or array of shape (N,)
        The largest budget that counts as private.
    c3 : float or array of shape (N,)
        The largest loss that counts as accurate; ``c6 < c3 < c4 + c6``.

    Returns
    -------
    OptimalAlpha

    Raises
    ------
    InvalidInput
        If no budget up to alpha_U is accurate enough, or if c3 lets alpha go to 0, where J has no
        lower bound.
    """
    pieces = {name: getattr(curve, name) for name in ("c4", "c5", "c6")} | vars(utility)
    pieces |= {"alpha_U": _numbers("alpha_U", alpha_U), "c3": _numbers("c3", c3)}
    shape = _together(**pieces)
    rows = np.stack([np.broadcast_to(value, shape).ravel() for value in pieces.values()], axis=-1)
    solved = [_solve(i, *map(float, row)) for i, row in enumerate(rows)]
    alpha = np.array([where for where, _ in solved]).reshape(shape)[()]
    labels = np.array([label for _, label in solved]).reshape(shape)
    objective = curve.predict(alpha) - utility(alpha)
    if not shape:
        return OptimalAlpha(alpha, objective, str(labels[()]))
    return OptimalAlpha(alpha, objective, labels)


def _solve(
    node: int,
    c4: float,
    c5: float,
    c6: float,
    w1: float,
    w2: float,
    w3: float,
    w4: float,
    top: float,
    c3: float,
) -> tuple[float, str]:
    """Solve (28) for one node: the budget, and which of the three kinds of point it is.

    w1 to w4 are the omegas, `top` is alpha_U; `node` is for messages.
    """
    if c3 >= c4 + c6:
        rule = (
            f"must be < c4 + c6 = {c4 + c6:g} (node {node}), because J has no lower bound as "
            "alpha -> 0"
        )
        raise InvalidInput("c3", c3, rule, "choose a loss that a very small budget does not reach")
    if c3 <= c6:
        raise InvalidInput(
            "c3",
            c3,
            f"must be > c6 = {c6:g} (node {node}), the loss without noise",
            "allow more loss",
        )
    low = math.log(c4 / (c3 - c6)) / c5  # L_acc(low) = c3
    if low > top:
        rule = f"must be >= {low:g} (node {node}), the smallest budget with L_acc <= c3"
        raise InvalidInput("alpha_U", top, rule, "allow a larger budget, or more loss")

    # J without the constants c6 and omega1 ln(omega2), which do not move a minimum
    def J(alpha: float) -> float:
        return c4 * math.exp(-c5 * alpha) + w1 * (math.log(alpha) + math.log(w3 + w4 * alpha))

    # J' = 0 where g(alpha) = c4 c5 exp(-c5 alpha) h(alpha) equals omega1, with
    # h = alpha (w3 + w4 alpha) / (w3 + 2 w4 alpha); J falls where g > omega1.
    def log_g(alpha: float) -> float:  # of g / omega1
        h = math.log(alpha) + math.log(w3 + w4 * alpha) - math.log(w3 + 2.0 * w4 * alpha)
        return math.log(c4) + math.log(c5) - math.log(w1) - c5 * alpha + h

    def derivative(scaled: float) -> float:  # of log_g, times alpha, at alpha = scaled / c5
        u = w4 * scaled / (c5 * w3)
        return (1.0 - u / (1.0 + u) / (1.0 + 2.0 * u)) - scaled

    candidates = [(J(low), low, ACCURACY)]
    # u / ((1 + u)(1 + 2u)) lies in [0, 0.18], hence the bracket.
    peak = 1.0 / c5
    if derivative(1.0) < 0:
        peak = optimize.brentq(derivative, 0.5, 1.0, xtol=1e-15) / c5
    if log_g(peak) > 0:
        high = 2.0 * peak
        while log_g(high) > 0:
            high *= 2.0
        root = optimize.brentq(log_g, peak, high, xtol=1e-15 * high, rtol=4 * np.finfo(float).eps)
        if low < root < top:
            candidates.append((J(root), root, STATIONARY))
    if low < top and log_g(top) > 0:  # still falling
        candidates.append((J(top), top, PRIVACY))
    _, alpha, label = min(candidates, key=lambda candidate: candidate[:2])
    return alpha, label


def _fit(
    alpha: Array, loss: Array, c6: float | None, node: int
) -> tuple[float, float, float, float]:
    """Fit one curve to budgets and losses (m,): c4, c5, c6 and the residual.

    `c6` is held at its value unless None; `node` is for messages.
    """
    distinct = np.unique(alpha)
    # as many budgets as unknowns
    needed = 2
    if c6 is None:
        needed = 3
    if len(distinct) < needed:
        raise InvalidInput(
            "alpha",
            len(distinct),
            f"{needed} different budgets are needed (node {node})",
            "add some",
        )
    first, span, gap = distinct[0], distinct[-1] - distinct[0], distinct[1] - distinct[0]
    slowest, fastest = math.log(_FLAT / span), math.log(min(_STEP / gap, _LARGEST / first))
    scale = float(np.max(loss)) or 1.0
    x, y = alpha - first, loss / scale
    floor = None
    if c6 is not None:
        floor = c6 / scale

    # The unknowns are a = L_acc(first) - c6, ln c5 and, unless held, c6, in units of the largest
    # loss.
    def errors(p: Array) -> Array:
        level = floor
        if level is None:
            level = p[2]
        return p[0] * np.exp(-np.exp(p[1]) * x) + level - y

    def jacobian(p: Array) -> Array:
        e = np.exp(-np.exp(p[1]) * x)
        columns = [e, -p[0] * np.exp(p[1]) * x * e]
        if floor is None:
            columns.append(np.ones_like(x))
        return np.stack(columns, axis=1)

    # For a given c5 the problem is linear; the best c5 of a grid of 60 is where the search starts.
    starts = []
    for rate in np.linspace(slowest, fastest, 60):
        e = np.exp(-np.exp(rate) * x)
        if floor is None:
            weights = optimize.nnls(np.stack([e, np.ones_like(e)], axis=1), y)[0]
            start = np.array([weights[0], rate, weights[1]])
        else:
            start = np.array([max(0.0, float(e @ (y - floor) / (e @ e))), rate])
        starts.append((float(np.sum(errors(start) ** 2)), start))
    best = min(starts, key=lambda pair: pair[0])[1]
    lower, upper = [0.0, slowest, 0.0][: len(best)], [np.inf, fastest, np.inf][: len(best)]
    answer = optimize.least_squares(
        errors,
        best,
        jacobian,
        bounds=(lower, upper),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=2000,
    )
    a, rate = float(answer.x[0]), float(answer.x[1])
    residual = math.sqrt(float(np.mean(answer.fun**2)))
    if a * -math.expm1(-math.exp(rate) * span) <= max(residual, 1e-9):
        rule = f"must fall with alpha by more than its scatter (node {node})"
        raise InvalidInput("loss", None, rule, "average more runs, or measure smaller budgets")
    if not slowest + 1e-3 < rate < fastest - 1e-3:
        rule = f"does not determine c5 (node {node}): it falls along a line, or in one step"
        raise InvalidInput(
            "loss",
            None,
            rule,
            "measure budgets over a wider range, and closer where the loss falls",
        )
    c5 = math.exp(rate)
    base = c6
    if base is None:
        base = float(answer.x[2]) * scale
    return a * scale * math.exp(c5 * first), c5, base, residual * scale


def _numbers(name: str, value: ArrayLike, *, zero: bool = False, data: bool = False) -> Any:
    """Return `value` as a number or an array, or raise an InvalidInput unless finite and > 0.

    With `zero`, 0 is allowed.  With `data` the message does not show the value.
    """
    values = np.asarray(value, dtype=float)
    rule, inside = "must be finite and > 0", values > 0
    if zero:
        rule, inside = "must be finite and >= 0", values >= 0
    if values.size == 0 or not (np.all(np.isfinite(values)) and np.all(inside)):
        # losses may be measured on private rows
        shown = values.tolist() if not data else None
        raise InvalidInput(name, shown, rule, "correct it")
    return values[()]


def _together(**values: Any) -> tuple[int, ...]:
    """Return the shape to which the values broadcast; an InvalidInput if they do not."""
    try:
        return np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    except ValueError:
        shapes = {name: np.shape(value) for name, value in values.items()}
        raise InvalidInput(
            "shapes", shapes, "must broadcast together", "give numbers, or one value per node"
        ) from None
