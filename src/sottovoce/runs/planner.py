"""Price a run before any row is read, and find the noise that meets a target.

A plan runs the algorithm itself against a curator without data, so a plan's price and a run's ledger are the same sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..algorithms import Algorithm
from ..errors import InvalidInput
from ..facts import Facts
from ..graphs import Graph
from ..ledger.memory import Ledger, validate_target
from ..net import DenseNet
from ..privacy.accountants import Accountant
from ..queries import Query
from ..typing import Any, Array, ArrayLike
from .engine import Place, run

A = TypeVar("A", bound=Algorithm[Any])

_SPAN = 40.0  # of the logarithm of the scale
_REACH = 4.0  # while nothing is known on one side
_STEPS = 200
_CLOSE = 1e-9
_CLOSE_TIGHT = 1e-4  # an evaluation convolves distributions


@dataclass
class Planner:
    """A curator without data: it charges and returns blanks, so that a run can be priced before any row is read."""

    facts: Facts
    ledger: Ledger = field(default_factory=Ledger)

    def ask(self, query: Query) -> Array:
        """Charge the event; return a blank of the right shape."""
        self.ledger.charge(query.event(self.facts))
        return query.blank(self.facts)


def plan(
    algorithm: Algorithm[Any],
    facts: Facts,
    graph: Graph,
    rounds: int,
    accountant: Accountant[Any],
    delta: float = 0.0,
    sites_per_row: int = 1,
    copies: int = 1,
) -> Ledger:
    """The ledger that `rounds` rounds will leave behind, and as many again for each further copy of the run.

    Raises
    ------
    InvalidInput
        If a precondition of the method fails.
    """
    ledger = Ledger(accountant, math.inf, delta, sites_per_row)
    # Prices depend on public curvatures only, never on vectors: one column stands for all features.
    run(algorithm, Place(facts, DenseNet(graph), Planner(facts, ledger), (graph.n_nodes,), 1), rounds)
    for event in ledger.rows * (copies - 1):
        ledger.charge(event)
    return ledger


def calibrate(
    algorithm: A,
    facts: Facts,
    graph: Graph,
    rounds: int,
    epsilon: ArrayLike,
    accountant: Accountant[Any],
    delta: float = 0.0,
    *,
    sites_per_row: int = 1,
    copies: int = 1,
    claimed: bool = False,
) -> A:
    """The same algorithm, its noise scaled so that every node's run costs at most `epsilon`, and not much less.

    Parameters
    ----------
    algorithm : Algorithm
        Its ``noise`` gives the shape over rounds.
    epsilon : float or array (N,)
        For all nodes, or for each.
    sites_per_row : int
        If more than one, all nodes share one scale, at which the worst set of so many nodes meets the target.
    copies : int
        Runs like this one on the same rows that share the target.
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
    nodes = facts.n_nodes
    target = np.broadcast_to(np.asarray(epsilon, dtype=float), (nodes,))
    close = _CLOSE if accountant.name == "pure" or claimed else _CLOSE_TIGHT

    def price(log_scale: Array) -> Array:
        """Totals per node at these scales; -inf where the noise would have to be infinite, NaN where that is unseen."""
        scaled = algorithm.with_noise(shape.scaled(_scale(np.exp(log_scale))))
        try:
            ledger = plan(scaled, facts, graph, rounds, accountant, delta, sites_per_row, copies)
        except InvalidInput as error:
            if error.field == "alpha" and error.nodes is not None:
                return np.where(np.broadcast_to(np.asarray(error.nodes), (nodes,)), -np.inf, np.nan)
            raise
        if claimed:
            claims = ledger.claims()
            return np.broadcast_to(np.inf if claims is None else claims, (nodes,))
        totals = ledger.per_node() if sites_per_row == 1 else np.array(ledger.total())
        return np.broadcast_to(totals, (nodes,))

    # Totals grow with the scale, nearly as a power of it: secant steps in logarithms, every third one a bisection.
    low, high = np.full(nodes, -_SPAN), np.full(nodes, _SPAN)
    spent, over = np.full(nodes, -np.inf), np.full(nodes, np.inf)
    guess = np.zeros(nodes)
    for trial in range(_STEPS):
        total = price(guess)
        fits, fails = total <= target, total > target
        low, spent = np.where(fits, guess, low), np.where(fits, total, spent)
        high, over = np.where(fails, guess, high), np.where(fails, total, over)
        done = (target * (1.0 - close) <= spent) | (high - low < 1e-12)
        if np.all(done):
            break
        guess = np.where(done, low, _next(low, high, spent, over, target * (1.0 - 0.5 * close), trial % 3 == 2))
    if not np.all((spent > 0.0) & (spent <= target) & (low > -_SPAN)):
        least = price(high)
        least_text = f"{float(np.nanmax(np.where(np.isfinite(least), least, np.nan))):.4g}" if np.any(
            np.isfinite(least)
        ) else "more than this"  # fmt: skip
        shown = float(target[0]) if np.all(target == target[0]) else target.tolist()
        raise InvalidInput(
            "epsilon", shown, f"{rounds} rounds cost at least {least_text} here, however much noise there is",
            "use a larger epsilon, fewer rounds, or larger eta or rho",
        )  # fmt: skip
    return algorithm.with_noise(shape.scaled(_scale(np.exp(low))))


def _scale(values: Array) -> Array:
    """One number where all nodes have the same."""
    return values[0] if np.all(values == values[0]) else values


def _next(low: Array, high: Array, spent: Array, over: Array, aim: Array, halve: bool) -> Array:
    """Where to look next, in logarithms of the scale."""
    middle = np.where(high >= _SPAN, np.minimum(low + _REACH, 0.5 * (low + high)), 0.5 * (low + high))
    middle = np.where((low <= -_SPAN) & (high < _SPAN), np.maximum(high - _REACH, 0.5 * (low + high)), middle)
    if halve:
        return middle
    with np.errstate(invalid="ignore", divide="ignore"):
        below, above, goal = np.log(spent), np.log(over), np.log(aim)
        both = low + (goal - below) * (high - low) / (above - below)
        one = np.where(np.isfinite(below), low + goal - below, high + goal - above)
        step = np.where(np.isfinite(below) & np.isfinite(above), both, one)
    return np.where((low < step) & (step < high), step, middle)
