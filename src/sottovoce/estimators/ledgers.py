"""The ledger of an estimator: shared by its clones, and removed from pickles.

A ledger counts what all fits on the same rows spend.  Charges to a copy in another process would be
lost, so a pickled estimator leaves its ledger behind, and a fit there is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..util.typing import Any


@dataclass(frozen=True)
class _LeftBehind:
    """Placeholder of the ledger in a pickled estimator; `kind` is the ledger's class."""

    kind: str


def state_without_ledger(state: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's state with a placeholder in place of its ledger, for a pickle."""
    kind = type(state.get("ledger"))
    if not issubclass(kind, Ledger | DurableLedger):
        return state
    return state | {"ledger": _LeftBehind(kind.__name__)}


def ledger_errors(ledger: Any, accounting: str | None, *, cloned: bool) -> Iterator[InvalidInput]:
    """Yield errors in the parameter `ledger`, among them one left behind in another process.

    Parameters
    ----------
    ledger
        As the estimator was given it.
    accounting : str or None
        Name of an accounting rule; not with a ledger, which has one itself.
    cloned : bool
        Whether scikit-learn may be fitting the estimator on part of a table.

    Yields
    ------
    InvalidInput
    """
    if ledger is None:
        return
    if isinstance(ledger, _LeftBehind):
        rule = (
            "the ledger stayed in its own process, and this estimator was copied to another one or "
            "loaded from a file"
        )
        remedy = "use n_jobs=1 or threads, or set_params(ledger=...) after loading"
        yield InvalidInput("ledger", ledger.kind, rule, remedy)
        return
    if not isinstance(ledger, Ledger | DurableLedger):
        remedy = "use Ledger(...) or DurableLedger.open(path), or accounting= for a rule's name"
        yield InvalidInput(
            "ledger", type(ledger).__name__, "must be a Ledger or a DurableLedger", remedy
        )
        return
    if accounting is not None:
        rule = "cannot be combined with a ledger, which has its own accounting rule"
        yield InvalidInput("accounting", accounting, rule, "leave one of the two out")
    if cloned and isinstance(ledger, DurableLedger) and not ledger.identity.bound:
        rule = (
            "belongs to one whole table, and a clone may be fitted to a part of it, as in "
            "cross-validation"
        )
        remedy = (
            "for cross-validation give a Ledger in memory, which counts every fit; otherwise fit "
            "the estimator itself first"
        )
        yield InvalidInput("ledger", "DurableLedger", rule, remedy)


__all__ = ["_LeftBehind", "ledger_errors", "state_without_ledger"]
