"""Rows on a real local Dask cluster: the same sums and the same run as rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from problems import make_rows
from sites_in_tests import NAMES, consortium

from sottovoce.data.cluster import ClusterRows
from sottovoce.data.rows import Rows
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.errors import InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import rows_digest
from sottovoce.problem.losses import make_loss

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as local,
        distributed.Client(local),
    ):
        yield


def spread(rows: Rows, size: int = 33) -> ClusterRows:
    a = rows.signed[0]
    return ClusterRows.rows_from_dask(
        da.from_array(a, chunks=(size, -1)), da.ones(len(a), chunks=size)
    )


def test_cluster_sums_equal_sums_in_memory(cluster: None) -> None:
    rows, loss = make_rows([80], 4), make_loss("logistic")
    here, there = rows.sweep_over_rows(), spread(rows).sweep_over_rows()
    w = np.random.default_rng(0).normal(size=(1, 3, 4))
    np.testing.assert_allclose(
        there.sum_gradients(loss, w), here.sum_gradients(loss, w), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        there.sum_curvatures(loss, w, False), here.sum_curvatures(loss, w, False), rtol=1e-12
    )
    np.testing.assert_allclose(
        there.sum_curvatures(loss, w, True), here.sum_curvatures(loss, w, True), rtol=1e-12
    )
    np.testing.assert_allclose(
        there.sum_clipped_losses(loss, w, 0.5, rows.n),
        here.sum_clipped_losses(loss, w, 0.5, rows.n),
        rtol=1e-12,
    )
    for part in (0, 4):
        one, other = there.every_nth_row(part, 7), here.every_nth_row(part, 7)
        np.testing.assert_allclose(
            one.sum_gradients(loss, w), other.sum_gradients(loss, w), rtol=1e-12, atol=1e-12
        )


def test_a_site_may_be_a_cluster(cluster: None, tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites")
    spread_out = spread(sites.rows.rows_of_node(0))
    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        hub = Hub(sites.plan, log)
        rows = {name: sites.rows.rows_of_node(i) for i, name in enumerate(NAMES)} | {
            "north": spread_out
        }
        jobs = [pool.submit(sites.run_site, n, LocalTransport(hub, n), rows=rows[n]) for n in NAMES]
        models = [job.result().model for job in jobs]
        again = sites.run_site("north", LocalTransport(hub, "north"), rows=spread_out)
    np.testing.assert_array_equal(again.model, models[0])
    with HubLog(tmp_path / "twin.log") as log:
        twin = consortium(tmp_path / "twin").run_locally(log)
    np.testing.assert_allclose(models, [twin[name].model for name in NAMES], atol=1e-6)
    with sites.ledger("north") as ledger, pytest.raises(LedgerMismatch, match="other rows"):
        ledger.identity.bind_to_rows(
            rows_digest(*spread(sites.rows.rows_of_node(0), 30).fingerprint_arrays())
        )


def test_invalid_row_is_refused_on_its_worker(cluster: None) -> None:
    good = da.ones((20, 2), chunks=(5, 2)) / 2
    labels = da.ones(20, chunks=5)
    for X, y, match in (
        (good * 9, labels, "unit ball"),
        (good * np.nan, labels, "NaN"),
        (good, labels * 2, "labels"),
        (good.rechunk((5, 1)), labels, "whole rows"),
        (good, labels.rechunk(4), "blocks of X"),
        (np.ones((3, 2)), labels, "Dask Array"),
    ):
        with pytest.raises(InvalidInput, match=match):
            ClusterRows.rows_from_dask(X, y)
    with pytest.raises(InvalidInput, match="backend"):
        ClusterRows.rows_from_dask(good, labels).with_backend("torch")
