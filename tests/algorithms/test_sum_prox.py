"""sum_prox: the sites' weights, and its capped form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import CASES

from sottovoce.data.rows import Rows
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import pooled_minimiser, simulate

CASE = CASES["sum_prox"]


def test_sites_that_are_alike_reach_the_pooled_minimiser(rows: Rows) -> None:
    alike = Rows.build_from_parts([(rows.signed[0, :60], np.ones(60))] * 5)
    config = CASE.make(epsilon=math.inf, rounds=200, eta=0.2, rho=0.1, tol=1e-12)
    wanted = pooled_minimiser(alike, config, l2=0.1 / 5)
    np.testing.assert_allclose(simulate(config, alike).models[0, 0], wanted, atol=1e-5)


@pytest.mark.parametrize(("cap", "slope"), [(math.inf, 1.0), (0.25, 0.25)])
def test_sensitivity_is_that_of_all_rows_at_one_curvature(
    rows: Rows, cap: float, slope: float
) -> None:
    config = CASE.make(epsilon=1.0, max_grad_norm=cap, tol=1e-12)
    ready = prepare(config, rows.n, rows.d)
    q = ready.facts.mu + float(ready.algorithm.penalty(1))
    for row in ready.plan_ledger().rows:
        np.testing.assert_allclose(row.sensitivity, 2 * slope / (rows.n.sum() * q), rtol=1e-6)  # type: ignore[attr-defined]


def test_a_capped_run_is_as_quiet_as_its_cap(rows: Rows) -> None:
    spent = []
    for cap in (math.inf, 0.1):
        config = CASE.make(epsilon=1.0, max_grad_norm=cap, seed=1)
        result = simulate(config, rows)
        assert 0.999 < result.privacy["epsilon"] <= 1.0
        spent.append(
            prepare(config, rows.n, rows.d).plan_ledger().rows[0].noise_standard_deviation()[0]
        )
    assert spent[1] == pytest.approx(0.1 * spent[0], rel=1e-4)
