"""A summary of a ledger on disk as plain data, as ``sottovoce ledger show --json`` prints it."""

from __future__ import annotations

import numpy as np

from ..util.plain import infinities_to_text
from ..util.typing import Any, Array
from .file import ChainFile
from .history import History, RunHistory


def summary(file: ChainFile[History]) -> dict[str, Any]:
    """Return budget, spending, runs and head of a ledger.

    An infinite epsilon is the text ``inf``; ``committed`` is what is spent or reserved by open
    runs.
    """
    with file.transaction("DEFERRED") as state:
        return {
            "epsilon": _values_per_node(state, state.epsilon),
            "spent": _values_per_node(state, state.epsilon_per_node()),
            "committed": _values_per_node(state, state.epsilon_per_node(state.held())),
            "path": str(file.path),
            "accountant": state.accountant.label,
            "delta": state.delta,
            "n_nodes": state.epsilon.size,
            "releases": len(state.rows),
            "bound": bool(state.tags),
            "since": state.since,
            "runs": [_summarise_run(name, run) for name, run in state.runs.items()],
            "consents": [one._asdict() for one in state.consents],
            "head": file.chain.head(),
            "demonstration": state.demonstration,
            "cautions": state.pricing_caveats(),
        }


def _values_per_node(state: History, values: Array) -> list[Any]:
    """Return a value for each node of the ledger, as numbers or the text ``inf``."""
    return [
        infinities_to_text(float(value)) for value in np.broadcast_to(values, state.epsilon.shape)
    ]


def _summarise_run(name: str, run: RunHistory) -> dict[str, Any]:
    """Return a run's state and its numbers of releases; ``held`` are reserved without a row."""
    return {
        "run": name,
        "plan": run.plan,
        "state": run.state,
        "since": run.since,
        "planned": len(run.planned),
        "charged": run.charged,
        "released": len(run.stored),
        "failed": len(run.failed),
        "held": run.left if run.open else 0,
        "goes_on": run.open and not run.has_other_format,
    }
