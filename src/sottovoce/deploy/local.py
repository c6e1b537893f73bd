"""A deployment within one process: one thread for each site, messages through queues, nothing shared.

Each site holds its own rows, ledger, noise and solver; only released vectors cross between threads.  With keyed noise
the result equals the batched simulation of the same replicate, which is how every transport is tested.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..curator import Curator
from ..data.rows import Rows
from ..data.sweep import one_thread_a_product
from ..ledger.memory import Ledger
from ..net import QueueNet
from ..privacy.accountants import make_accountant
from ..privacy.noise import KeyedNoise, Noise, SystemNoise
from ..runs import engine
from ..runs.config import RunConfig
from ..runs.engine import Outcome, Place
from ..runs.prepare import held, prepare
from ..runs.start import Start, named, place_of


def run_sites(
    config: RunConfig, rows: Rows, replicate: int = 0, *, start: Start | None = None
) -> list[tuple[Outcome, Ledger]]:
    """Run every node of `rows` as a site of its own.

    Parameters
    ----------
    config : RunConfig
        ``config.replicates`` is not used: sites run once.
    rows : Rows
    replicate : int
        Which replicate's noise of the simulation to repeat; without a seed, noise is the operating system's.
    start : Start, optional
        As for :func:`sottovoce.runs.simulate.simulate`; the states are counted from it.

    Returns
    -------
    list of (Outcome, Ledger)
        One a site; states hold vectors of shape (d,).
    """
    config = named(config, start, rows.d)
    prepared = prepare(config, rows.n, rows.d)
    rows = held(config, rows)
    nets = QueueNet.connect(prepared.graph)

    def site(i: int) -> tuple[Outcome, Ledger]:
        facts = prepared.facts.node(i)
        noise: Noise = SystemNoise() if config.seed is None else KeyedNoise(config.seed, [replicate], [i], lead=())
        budget = np.broadcast_to(prepared.ledger.epsilon, (prepared.facts.n_nodes,))[i]
        ledger = Ledger(make_accountant(config.notion), budget, prepared.ledger.delta)
        place = Place(facts, nets[i], Curator(rows.node(i), facts, noise, ledger), (), rows.d, place_of(start))
        return engine.run(prepared.algorithm.at(i), place, config.rounds), ledger

    # From here, because only one thread of a process can limit the linear algebra library.
    with one_thread_a_product(), ThreadPoolExecutor(max_workers=prepared.facts.n_nodes) as pool:
        return list(pool.map(site, range(prepared.facts.n_nodes)))
