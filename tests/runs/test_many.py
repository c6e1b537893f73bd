"""Many configurations at once: in processes and on a real local Dask cluster, the same results
in the same order.
"""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from problems import make_rows

from sottovoce.runs.simulate import RunConfig, simulate, simulate_many

CONFIGS = [
    RunConfig(method="prox_admm", epsilon=e, delta=1e-5, rounds=3, graph="complete")
    for e in (1.0, 3.0, 9.0)
]


def test_processes_give_what_single_runs_give() -> None:
    rows = make_rows([60, 45, 50], 4)
    for one, config in zip(simulate_many(CONFIGS, rows, n_jobs=2), CONFIGS, strict=True):
        assert one.config == config
        np.testing.assert_array_equal(one.models, simulate(config, rows).models)


def test_a_dask_cluster_gives_the_same() -> None:
    distributed = pytest.importorskip("distributed")
    rows = make_rows([60, 45, 50], 4)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        there = simulate_many(CONFIGS, rows)
    for one, config in zip(there, CONFIGS, strict=True):
        # sent arrays may lie otherwise
        np.testing.assert_allclose(one.models, simulate(config, rows).models, rtol=1e-12)
