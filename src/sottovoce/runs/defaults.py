"""What somebody gets who names no method and no budget: the defaults of the command line and of the estimators.

:class:`sottovoce.runs.config.RunConfig` has defaults of its own, which stay as they are: saved runs, plans, studies and
digests that leave a field out mean them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from ..algorithms import REGISTRY, under
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..problem.losses import HuberResidual
from ..problem.task import ManyClasses, Task, TwoClasses
from .config import RunConfig

METHOD = "auto"
EPSILON = 1.0
DELTA = 1e-5


def default_epsilon(method: str) -> float:
    """`EPSILON`, or infinity where the method has no noise."""
    known = REGISTRY.get(method)
    return EPSILON if known is None or known.private else math.inf


def default_delta(method: str, form: str, accountant: str | Ledger | DurableLedger | None) -> float | None:
    """`DELTA`, or None where a delta has no use.

    It has none where the method has no noise, where the total is one of pure epsilon (:func:`pure_total`), and in a
    paper's own form whose claim is about a pure epsilon.
    """
    known = REGISTRY.get(method)
    if known is not None and known.needs_delta:
        return DELTA
    idle = form != "corrected" or pure_total(accountant) or (known is not None and not known.private)
    return None if idle else DELTA


def for_task(config: RunConfig, task: Task) -> RunConfig:
    """The configuration for this kind of label: in place of the logistic loss, the default, the nearest one for it.

    For several classes that is softmax, for a number Huber's loss of residuals.
    """
    if isinstance(task, TwoClasses) or config.loss != "logistic":
        return config
    loss = f"softmax:{task.outputs}" if isinstance(task, ManyClasses) else HuberResidual().spec
    return replace(config, method=METHOD if config.auto else config.method, auto=False, loss=loss)


ROUNDS_OF_NUMBERS = 100
"""Of gradients with momentum, for losses of residuals."""


def method_of_numbers(trust: str, delta: float | None) -> str:
    """What "auto" is for a loss of residuals: gradients with momentum under this trust, or "auto" without a delta."""
    return METHOD if delta is None else under("momentum", trust)


def of_numbers(config: RunConfig, free: Collection[str]) -> RunConfig:
    """The configuration for a loss of residuals if "auto" was asked: nothing is tried out for numbers.

    Parameters
    ----------
    config : RunConfig
    free : collection of str
        Knobs that were left open; rounds among them become `ROUNDS_OF_NUMBERS`.
    """
    if config.delta is None or config.noise is not None:
        return config
    rounds = ROUNDS_OF_NUMBERS if "rounds" in free else config.rounds
    return replace(config, method=method_of_numbers(config.trusts, config.delta), rounds=rounds)


def pure_total(accountant: str | Ledger | DurableLedger | None) -> bool:
    """Whether totals are sums of pure epsilons, by the accountant's name or in this ledger."""
    return (accountant if isinstance(accountant, str | None) else accountant.accountant.name) == "pure"
