"""The defaults of the command line and of the estimators, which may change between versions.

Those of :class:`sottovoce.runs.config.RunConfig` may not, because saved runs, plans, studies and
digests rely on them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..algorithms import name_under_trust
from ..data.labels import refuse_rates
from ..ledger.memory import Ledger
from ..problem.losses import HuberResidual
from ..problem.task import ManyClasses, Task, TwoClasses
from .config import RunConfig
from .registering import AUTO, find_method

if TYPE_CHECKING:
    from ..ledger.durable import DurableLedger  # SQLite, which few runs need

METHOD = AUTO
EPSILON = 1.0
DELTA = 1e-5
KNOBS = ("rounds", "eta", "rho", "max_grad_norm")
"""Parameters that a choice sets together with the method, where the caller left them open.

`eta` is the penalty, `rho` the regulariser, and `max_grad_norm` the cap on a row's gradient.
"""


def default_epsilon(method: str) -> float:
    """Return the default epsilon of a method: `EPSILON`, or infinity for methods without noise."""
    known = find_method(method)
    if known is None or known.private:
        return EPSILON
    return math.inf


def default_delta(
    method: str, form: str, accountant: str | Ledger | DurableLedger | None
) -> float | None:
    """Return the default delta of a method: `DELTA`, or None where a delta has no use.

    Parameters
    ----------
    method : str
        Its name, or "auto".
    form : str
        "corrected", or a printed form of the paper.
    accountant : str, Ledger, DurableLedger or None
        The accountant, by name or as that of a ledger.

    Returns
    -------
    float or None
        None without noise, for totals of pure epsilon, and for printed forms that claim one;
        methods of Gaussian noise always have a delta.
    """
    known = find_method(method)
    if known is not None and known.needs_delta:
        return DELTA
    if form != "corrected" or counts_pure_epsilon(accountant):
        return None
    if known is not None and not known.private:
        return None
    return DELTA


def with_loss_of_task(config: RunConfig, task: Task) -> RunConfig:
    """Return the configuration with the loss that fits the task, if it has the default loss.

    In place of "logistic" that is softmax for many classes, and Huber's loss for numbers.
    InvalidInput for labels of events, which only inference fits.
    """
    refuse_rates(task)
    if isinstance(task, TwoClasses) or config.loss != "logistic":
        return config
    if isinstance(task, ManyClasses):
        loss = f"softmax:{task.outputs}"
    else:
        loss = HuberResidual().spec
    # Another loss may have another first guess, so "auto" is resolved again.
    method = config.method
    if config.auto:
        method = METHOD
    return config.but(method=method, auto=False, loss=loss)


# Rounds of momentum where labels are numbers (losses of residuals).
ROUNDS_OF_NUMBERS = 100


def method_of_numbers(trust: str, delta: float | None) -> str:
    """Return the method that "auto" stands for where labels are numbers (losses of residuals).

    With a delta that is momentum under this trust; without one it stays "auto".
    """
    if delta is None:
        return METHOD
    return name_under_trust("momentum", trust)


def with_method_of_numbers(config: RunConfig, free: Collection[str]) -> RunConfig:
    """Resolve ``method="auto"`` where labels are numbers, for which no candidates are compared.

    `free` are the names of the parameters that the caller left open; if "rounds" is among them, it
    becomes `ROUNDS_OF_NUMBERS`.
    """
    if config.delta is None or config.noise is not None:
        return config
    rounds = config.rounds
    if "rounds" in free:
        rounds = ROUNDS_OF_NUMBERS
    return config.but(method=method_of_numbers(config.trusts, config.delta), rounds=rounds)


def counts_pure_epsilon(accountant: str | Ledger | DurableLedger | None) -> bool:
    """Return whether an accountant, by name or of a ledger, adds up pure epsilons."""
    if accountant is None or isinstance(accountant, str):
        return accountant == "pure"
    return accountant.accountant.name == "pure"
