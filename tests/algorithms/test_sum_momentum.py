"""sum_momentum: the pooled minimiser whatever the sites, and the default penalty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cases import CASES
from problems import make_rows

from sottovoce.algorithms.momentum import DRIFT, tail_average_noise
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.network.graphs import make_graph
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import default_penalty, prepare
from sottovoce.runs.simulate import pooled_minimiser, simulate

CASE = CASES["sum_momentum"]


@pytest.mark.parametrize("cap", [math.inf, 0.5])
def test_sites_that_differ_and_have_different_sizes_reach_the_pooled_minimiser(cap: float) -> None:
    """One class a site, and rows from 10 to 160: a mean of local gradients by site would end
    elsewhere.
    """
    parts = []
    for site, n in enumerate((10, 20, 40, 80, 160)):
        X = make_rows([n], 3, site).signed[0]
        parts.append((X, np.full(n, 1.0 if site % 2 else -1.0)))
    rows = Rows.build_from_parts(parts)
    config = CASE.make(epsilon=math.inf, rounds=500, eta=0.5, rho=0.1, max_grad_norm=cap)
    found = simulate(config, rows).models[0]
    if cap == math.inf:
        wanted = pooled_minimiser(rows, config, l2=0.1 / 5)
        np.testing.assert_allclose(found, np.broadcast_to(wanted, (5, 3)), atol=1e-5)
        slow = simulate(
            CASE.make(epsilon=math.inf, method="dgd", rounds=500, eta=1.0, rho=0.1), rows
        ).models[0]
        assert np.max(np.abs(slow - wanted)) > 0.05
    else:
        facts = prepare(config, rows.n, rows.d).facts
        norms = np.linalg.norm(rows.signed, axis=2)
        slopes = np.maximum(
            -1 / (1 + np.exp(np.einsum("ind,id->in", rows.signed, found))),
            -cap / np.maximum(norms, 1e-9),
        )
        gradient = np.einsum("in,ind->d", slopes, rows.signed) / rows.n.sum() + facts.mu * found[0]
        np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"max_grad_norm": 0.25}, {"relation": "zero-out"}, {"colluders": 2}]
)
def test_a_run_costs_what_gaussian_releases_of_all_rows_cost(
    rows: Rows, changes: dict[str, Any]
) -> None:
    """Its noise is a curator's times N / (N - t)."""
    config = CASE.make(epsilon=1.0, accountant="pld", **changes)
    ledger = prepare(config, rows.n, rows.d).plan_ledger()
    mu = math.sqrt(sum(float(row.alpha[0]) ** 2 for row in ledger.rows))  # type: ignore[attr-defined]
    assert mu <= gaussian_mu(1.0, 1e-5) and mu == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-3)
    both = 1.0 if "relation" in changes else 2.0
    np.testing.assert_allclose(
        ledger.rows[0].sensitivity,
        both * changes.get("max_grad_norm", 1.0) / rows.n.sum(),
        rtol=1e-9,
    )  # type: ignore[attr-defined]
    t = changes.get("colluders", 1)
    alone = ledger.rows[0].sensitivity[0] / ledger.rows[0].alpha[0]  # type: ignore[attr-defined]
    assert ledger.rows[0].noise_standard_deviation()[0] == pytest.approx(
        alone * math.sqrt(5 / (5 - t))
    )


def test_the_default_penalty_is_momentum_s_with_the_noise_of_a_sum() -> None:
    n = np.array([[300.0], [200.0], [100.0], [400.0]])

    def penalty(epsilon: float, n: np.ndarray = n, **more: Any) -> float:
        config = RunConfig.from_dict(
            {"method": "sum_momentum", "epsilon": epsilon, "delta": 1e-5, "rounds": 20, **more}
        )
        return default_penalty(config, prepare(config, n, 6).facts, make_graph("complete", len(n)))

    least = 0.25 + 0.001 / 4
    assert penalty(math.inf) == pytest.approx(least / 1.8)
    sigma = 2 / 1000 * math.sqrt(20) / gaussian_mu(0.01, 1e-5) * math.sqrt(4 / 3)
    assert penalty(0.01) == pytest.approx(sigma * tail_average_noise(20, 0.8) / DRIFT)
    assert penalty(0.01, n=1e6 * n) == pytest.approx(least / 1.8)
    assert penalty(0.01, max_grad_norm=0.1) == pytest.approx(penalty(0.01) / 10)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": (1.0, 2.0, 1.0, 1.0, 1.0)}, r"^epsilon=.*same value"),
        ({"noise": (0.1, 0.1, 0.1, 0.1, 0.2)}, r"^noise=.*same value"),
        ({"colluders": 0}, r"^colluders=0: must be a whole number, at least 1"),
        ({"method": "momentum", "colluders": 2}, r"^colluders=2: momentum opens no sums"),
        ({"method": "momentum", "participants": 4}, r"^participants=4: momentum opens no sums"),
        (
            {"method": "prox_admm", "trust": "sum"},
            r"^trust='sum': .*'prox_admm'.* trust='nobody'",
        ),
        (
            {"trust": "nobody"},
            r"^trust='nobody': .*'sum_momentum'.* 'momentum' .*trust='sum'",
        ),
    ],
)
def test_fields_that_sums_cannot_have_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        RunConfig.from_dict({"method": "sum_momentum", "delta": 1e-5} | changes)


@pytest.mark.parametrize("sites", [1, 2])
def test_too_few_sites_are_refused_with_the_reason(sites: int) -> None:
    """Each of two sites knows its own share, and so the other's."""
    config = RunConfig(method="sum_momentum", delta=1e-5)
    with pytest.raises(InvalidInput, match=rf"^colluders=1: .*\b{sites}\b"):
        prepare(config, np.full((sites, 1), 50.0), 4)
