"""Runs that cells share are made once, with the same rows; and Nelder and Mead's method is
scipy's.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from sottovoce.problem.losses import make_loss
from sottovoce_papers.studies.kinds import graded, kept, thesis_solvers, tradeoff, training
from sottovoce_papers.studies.run import Cost, digest, run
from sottovoce_papers.studies.spec import parse

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


def test_a_run_that_is_read_has_the_seconds_that_it_took_and_is_not_made_by_the_reader(tmp_path):
    p, shelf = BASE | {"alpha": 0.5}, kept.Shelf(tmp_path / kept.FOLDER, digest)
    with kept.shelved(shelf) as maker:
        training.run(p)
    with kept.shelved(shelf) as reader:
        training.run(p | {"panel": "again"})
    assert maker.seconds == reader.seconds and len(maker.seconds) == 1
    assert maker.made == sum(maker.seconds.values()) > reader.made == 0.0


def test_a_study_costs_the_same_whether_another_study_made_its_runs_before_it(tmp_path):
    """And both together cost a run that they share once."""
    fixed = {key: value for key, value in BASE.items() if key not in ("seed", "replicates")}
    lines = [f"{key} = {json.dumps(value)}" for key, value in (fixed | {"alpha": 0.5}).items()]
    head = 'title = "t"\nabout = "a"\nkind = "training.run"\nreplicates = 2\n\n[fixed]\n'
    text = head + "\n".join(lines) + '\n\n[grid]\npanel = ["first", "second"]\n'
    first, second = (run(parse(text, name), tmp_path, jobs=1) for name in ("one", "two"))
    assert first.cost.runs == second.cost.runs and len(first.cost.runs) == 1
    (made,) = first.cost.runs.values()
    assert made > 0.0 and second.cost.seconds > made
    together = Cost.together([first.cost, second.cost])
    assert together.seconds == pytest.approx(first.cost.own + second.cost.own + made)
    again = run(parse(text, "one"), tmp_path, jobs=1)
    assert again.reused == 2 and again.cost == first.cost


@pytest.mark.parametrize(("n", "d"), [(40, 3), (30, 12), (60, 1)])
def test_the_simplex_minimises_the_objective_as_it_is_written(n, d):
    rng = np.random.default_rng(d)
    a, b, loss = rng.normal(size=(n, d)), 3.0 * rng.normal(size=d), make_loss("huber:0.5")

    def plain(w):
        return float(loss.value(a @ w).mean() + b @ w / n + 0.05 * (w @ w))

    x, value, stopped = thesis_solvers.simplex(a, b, 0.1, loss.value)
    wanted = minimize(plain, np.zeros(d), method="Nelder-Mead")
    assert np.array_equal(x, wanted.x) and value == wanted.fun and stopped == (not wanted.success)
