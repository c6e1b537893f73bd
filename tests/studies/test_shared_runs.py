"""Runs that cells share are made once, with the same rows; and Nelder and Mead's method is
scipy's.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from sottovoce.problem.losses import make_loss
from sottovoce_papers.studies.kinds import graded, kept, thesis_solvers, tradeoff, training
from sottovoce_papers.studies.run import digest

BASE = {
    "data": "synthetic:n=600,d=5",
    "nodes": 3,
    "rounds": 6,
    "replicates": 2,
    "seed": 0,
    "method": "dvp",
    "eta": 1.0,
    "rho": 0.5,
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The runs that are made while a shelf is open."""
    runs, scored = [], training.scored

    def counted(p, *observers):
        runs.append(dict(p))
        return scored(p, *observers)

    monkeypatch.setattr(training, "scored", counted)
    with kept.shelved(kept.Shelf(tmp_path / kept.FOLDER, digest)):
        yield runs


def alone(cell, p):
    with kept.shelved(None):
        return cell(p)


def test_a_run_that_another_cell_made_is_read_with_the_same_rows_and_columns(made):
    curve = BASE | {"alpha": 0.5, "every": 2, "panel": "curve"}
    end = BASE | {"alpha": 0.5, "panel": "end", "also": "noiseless_error"}
    assert training.run(curve) == alone(training.run, curve)
    many = len(made)
    assert many == 2  # one on the shelf, one alone
    again = training.run(end)
    assert len(made) == many
    expected = alone(training.run, end)
    assert again == expected and [list(row) for row in again] == [list(row) for row in expected]
    assert {row["round"] for row in again} == {6} and "noiseless_error" in again[0]


@pytest.mark.parametrize(
    "other",
    [
        {"alpha": 0.6},
        {"seed": 1},
        {"replicates": 3},
        {"rounds": 7},
        {"every": 1},
        {"form": "printed"},
    ],
)
def test_run_with_other_parameters_is_not_reused(made, other):
    training.run(BASE | {"alpha": 0.5})
    training.run(BASE | {"alpha": 0.5} | other)
    assert len(made) == 2


def test_cells_of_costs_store_runs_that_curves_reuse(made):
    costs = BASE | {
        "method": "pp_admm",
        "delta": 1e-4,
        "epsilons": [1.0, 5.0],
        "errors": [0.2],
        "draws": 2,
    }
    curve = {key: value for key, value in costs.items() if key not in ("epsilons", "errors")}
    curve |= {"epsilon": 5.0, "every": 1}
    found = graded.cost(costs)
    many = len(made)
    assert many == 4  # totals times draws
    again = graded.run(curve)
    assert len(made) == many
    expected = alone(graded.run, curve)
    assert again == expected and [list(row) for row in again] == [list(row) for row in expected]
    assert found == alone(graded.cost, costs)


def test_budgets_traded_off_over_more_rounds_have_the_same_rows_and_are_shared(made):
    p = BASE | {
        "method": "pvp",
        "C": 10.0,
        "alphas": [0.1, 0.3, 1.0, 3.0],
        "at": [2, 6],
        "form": "corrected",
    }
    del p["rounds"]
    longer = tradeoff.run(p | {"rounds": 7})
    training.run(
        BASE
        | {"method": "pvp", "C": 10.0, "form": "corrected", "alpha": 0.3, "rounds": 7, "every": 6}
    )
    assert len(made) == 2 * 4
    assert measured(longer) == measured(alone(tradeoff.run, p))


def measured(rows):
    """Without what is told of all rounds, of which there is one more."""
    return [{key: value for key, value in row.items() if key != "_privacy"} for row in rows]


def test_a_run_that_cannot_be_read_is_made_again(made, tmp_path):
    p = BASE | {"alpha": 0.5}
    first = training.run(p)
    (place,) = (tmp_path / kept.FOLDER).iterdir()
    place.write_bytes(place.read_bytes()[:40])
    assert training.run(p) == first and len(made) == 2
    assert training.run(p) == first and len(made) == 2


@pytest.mark.parametrize(("n", "d"), [(40, 3), (30, 12), (60, 1)])
def test_the_simplex_minimises_the_objective_as_it_is_written(n, d):
    rng = np.random.default_rng(d)
    a, b, loss = rng.normal(size=(n, d)), 3.0 * rng.normal(size=d), make_loss("huber:0.5")

    def plain(w):
        return float(loss.value(a @ w).mean() + b @ w / n + 0.05 * (w @ w))

    x, value, stopped = thesis_solvers.simplex(a, b, 0.1, loss.value)
    wanted = minimize(plain, np.zeros(d), method="Nelder-Mead")
    assert np.array_equal(x, wanted.x) and value == wanted.fun and stopped == (not wanted.success)
