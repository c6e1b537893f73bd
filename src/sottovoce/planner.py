"""Price a run before any row is read, and find the noise that meets a target.

A plan runs the algorithm itself against a curator without data, so a plan's price and a run's ledger are the same sum.
"""

from __future__ import annotations

import math
from typing import TypeVar

from .algorithms import Algorithm
from .curator import Planner
from .engine import Place, run
from .errors import InvalidInput
from .facts import Facts
from .graphs import Graph
from .net import DenseNet
from .privacy.accountants import Accountant
from .privacy.ledger import Ledger, validate_target
from .typing import Any

A = TypeVar("A", bound=Algorithm[Any])

_SPAN = 40.0  # of the logarithm of the scale
_STEPS = 200
_CLOSE = 1e-9


def plan(
    algorithm: Algorithm[Any], facts: Facts, graph: Graph, rounds: int, accountant: Accountant[Any], delta: float = 0.0
) -> Ledger:
    """The ledger that `rounds` rounds will leave behind.

    Raises
    ------
    InvalidInput
        If a precondition of the method fails.
    """
    ledger = Ledger(accountant, math.inf, delta)
    # Prices depend on public curvatures only, never on vectors: one column stands for all features.
    run(algorithm, Place(facts, DenseNet(graph), Planner(facts, ledger), (graph.n_nodes,), 1), rounds)
    return ledger


def calibrate(
    algorithm: A,
    facts: Facts,
    graph: Graph,
    rounds: int,
    epsilon: float,
    accountant: Accountant[Any],
    delta: float = 0.0,
    *,
    claimed: bool = False,
) -> A:
    """The same algorithm, its noise scaled so that the whole run costs at most `epsilon`, and not much less.

    Parameters
    ----------
    algorithm : Algorithm
        Its ``noise`` gives the shape over rounds and nodes.
    claimed : bool
        Meet the target by the paper's own claim instead of the proved price (printed forms).

    Raises
    ------
    InvalidInput
        If no scale meets the target; says the smallest epsilon that can be met.
    """
    validate_target(epsilon, delta or None)
    shape = algorithm.noise
    if shape is None:
        raise InvalidInput("noise", None, "there is no noise to scale", "give the method a noise schedule")

    def price(log_scale: float) -> float:
        """Total at this scale; -inf where the noise would have to be infinite."""
        try:
            ledger = plan(
                algorithm.with_noise(shape.scaled(math.exp(log_scale))), facts, graph, rounds, accountant, delta
            )
        except InvalidInput as error:
            if error.field == "alpha":
                return -math.inf
            raise
        total = ledger.claimed() if claimed else ledger.total()
        return math.inf if total is None else total

    # Totals grow with the scale, nearly in proportion: proportional steps, every other one a bisection.
    low, high, spent, guess = -_SPAN, _SPAN, -math.inf, 0.0
    for trial in range(_STEPS):
        total = price(guess)
        if total <= epsilon:
            low, spent = guess, total
        else:
            high = guess
        if epsilon * (1.0 - _CLOSE) <= spent or high - low < 1e-12:
            break
        usable = trial % 2 == 0 and 0.0 < total < math.inf
        step = guess + math.log(epsilon * (1.0 - 0.5 * _CLOSE) / total) if usable else math.nan
        guess = step if low < step < high else 0.5 * (low + high)
    if not 0.0 < spent <= epsilon or low == -_SPAN:
        least = price(high)
        raise InvalidInput(
            "epsilon", epsilon, f"{rounds} rounds cost at least {least:.4g} here, however much noise there is",
            "use a larger epsilon, fewer rounds, or larger eta or rho",
        )  # fmt: skip
    return algorithm.with_noise(shape.scaled(math.exp(low)))
