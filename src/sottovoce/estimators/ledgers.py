"""Ledgers of estimators: clones share one, and it is left behind where a copy would lose what is
charged to it.
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
    """Stands for the ledger in a pickled estimator."""

    kind: str


def state_without_ledger(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a pickled estimator without its ledger.

    What a copy elsewhere is charged would be lost.
    """
    kind = type(state.get("ledger"))
    if not issubclass(kind, Ledger | DurableLedger):
        return state
    return state | {"ledger": _LeftBehind(kind.__name__)}


def ledger_errors(ledger: Any, accounting: str | None, *, cloned: bool) -> Iterator[InvalidInput]:
    """Yield errors in a ledger: left in another process, or on disk for part of a table.

    Parameters
    ----------
    ledger
        As the estimator was given it.
    accounting : str or None
        The name of a rule, which a ledger has itself.
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
        rule = "belongs to one whole table, so it cannot be used in cross-validation"
        remedy = (
            "fit the estimator on the whole table first, or give a Ledger in memory, which "
            "counts every fit"
        )
        yield InvalidInput("ledger", "DurableLedger", rule, remedy)


__all__ = ["_LeftBehind", "ledger_errors", "state_without_ledger"]
