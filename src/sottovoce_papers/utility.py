"""003, Theorem 3.6 (Kifer, Smith and Thakurta, Theorem 4), with constants: a bound on the loss in
accuracy of its Algorithm 3.

The algorithm minimises ``J(f) + Delta / (2 n) ||f||^2 + b.f / n`` for a convex J.  Without its
noise this objective is ``Delta / n`` strongly convex, so noise of norm ||b|| costs at most
``||b||^2 / (2 n Delta)`` of it; against the minimiser fhat of J itself,

    E [J(f_priv) - J(fhat)] <= Delta ||fhat||^2 / (2 n) + E ||b||^2 / (2 n Delta),

which is least, ``||fhat|| sqrt(E ||b||^2) / n``, at ``Delta = sqrt(E ||b||^2) / ||fhat||``.  With
the listing's noise ``E ||b||^2`` is ``4 zeta^2 d (d + 1) / epsilon^2`` (pure), or ``zeta^2 d (8
ln(2/delta) + 4 epsilon) / epsilon^2``. The order (3.6) holds, even without its factor log d.  (3.7)
holds for epsilon of at most the order of log(1/delta): far above it the part 4 epsilon of the noise
is all there is, and the loss stays as it is while (3.7) falls as 1 / epsilon. Both need ||fhat||,
which no release gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sottovoce.errors import InvalidInput


@dataclass(frozen=True)
class Excess:
    """Bounds on the mean excess ``E [J(f_priv) - J(fhat)]`` of 003's Algorithm 3.

    `order` is what Theorem 3.6 prints, an order of growth, with its constants set to 1.
    """

    Delta: float  # the theorem's regulariser
    bound: float  # proved, for this Delta
    best: float  # proved, for the best Delta
    order: float  # the right-hand side of (3.6) or (3.7)


def generalised_objective_perturbation(
    *, n: int, d: int, epsilon: float, norm: float, zeta: float = 1.0, delta: float | None = None
) -> Excess:
    """Compute the bounds of 003, Theorem 3.6, for the theorem's regulariser and for the best one.

    Parameters
    ----------
    n, d : int
        Numbers of rows and of features; d at least 2 in the pure case.
    epsilon : float
        Of one release, finite and > 0.
    norm : float
        ``||fhat||``, of the minimiser of J; finite and > 0.
    zeta : float
        Bound on the norm of a row's gradient; finite and > 0.
    delta : float, optional
        In (0, 1), for the Gaussian case (3.7); None for the pure case (3.6).

    Returns
    -------
    Excess

    Raises
    ------
    InvalidInput
        If a number is out of range.
    """
    for name, value in (("n", n), ("d", d), ("epsilon", epsilon), ("norm", norm), ("zeta", zeta)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(name, value, "must be finite and > 0", "correct it")
    if delta is not None and not 0 < delta < 1:
        raise InvalidInput(
            "delta", delta, "must be above 0 and below 1", "leave it out for the pure case"
        )
    if delta is None:
        noise = 4.0 * zeta**2 * d * (d + 1) / epsilon**2
        Delta, order = (
            zeta * d * math.log(d) / (epsilon * norm),
            zeta * norm * d * math.log(d) / (epsilon * n),
        )
    else:
        noise = zeta**2 * d * (8.0 * math.log(2.0 / delta) + 4.0 * epsilon) / epsilon**2
        root = math.sqrt(zeta**2 * d * math.log(1.0 / delta))
        Delta, order = root / (epsilon * norm), zeta * norm * root / (epsilon * n)
    if d == 1 and delta is None:
        raise InvalidInput("d", d, "(3.6) has log d, which is 0 here", "use d >= 2")
    bound = Delta * norm**2 / (2.0 * n) + noise / (2.0 * n * Delta)
    return Excess(Delta, bound, norm * math.sqrt(noise) / n, order)
