"""Simulations of printed forms in which a study also observes models that nodes do not send.

001 plots the exact minimiser of its Algorithm 3, which a node keeps to itself.
"""

from __future__ import annotations

from collections.abc import Callable

from sottovoce import RunConfig
from sottovoce.data.rows import Rows
from sottovoce.network.net import DenseNet
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.privacy.statement_facts import Caveat
from sottovoce.queries.statistic import LastMinimiser
from sottovoce.runs import engine
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import privacy_statement
from sottovoce.runs.row_guard import RowGuard
from sottovoce.util.typing import Any

KEPT = f"memory.{LastMinimiser.names()['f']}"
"""Key of a row guard's state under which the exact minimiser of 001's Algorithm 3 is stored."""


def simulate_watched(
    config: RunConfig, rows: Rows, watch: Callable[..., None], caveat: Caveat
) -> str:
    """Run as :func:`sottovoce.runs.simulate.simulate` does, with the same noise, while watching
    what nodes keep.

    Parameters
    ----------
    config : RunConfig
        Of a printed form of primal variable perturbation.
    rows : Rows
        Of all nodes.
    watch : callable
        ``watch(k, state, kept)`` is called after every round k; `kept` is the minimiser that every
        node keeps, (R, N, d), or None where it is sent.
    caveat : Caveat
        What the privacy statement must say about the data.

    Returns
    -------
    str
        The guarantee in words.
    """
    prepared = prepare(config, rows.n, rows.d)
    lead, nodes = (config.replicates, len(rows.n)), range(len(rows.n))
    assert config.seed is not None
    noise = KeyedNoise(config.seed, range(config.replicates), nodes)
    guard = RowGuard(rows, prepared.facts, noise, prepared.ledger)
    place = engine.Place(prepared.facts, DenseNet(prepared.graph), guard, lead, rows.d)

    def observe(k: int, state: Any) -> None:
        # as listed f itself is sent, and so is the answer of the last step
        if config.form == "listed" or k == config.rounds:
            watch(k, state, None)
        else:
            watch(k, state, guard.checkpoint_state()[KEPT])

    engine.run_rounds(prepared.algorithm, place, config.rounds, observers=[observe])
    statement = privacy_statement(prepared, prepared.ledger.rows, simulated=True, caveat=caveat)
    return str(statement.to_dict()["says"])
