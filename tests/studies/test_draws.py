"""Draws of the random graph and of rows: what differs between them, what is judged, and what a
figure's interval is.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any
from sottovoce_papers.studies import figures, tables
from sottovoce_papers.studies.kinds import draws, graded, training
from sottovoce_papers.studies.spec import Figure, Sentence
from sottovoce_papers.studies.verdicts import NOISE, REPRODUCED, judge

CELL: dict[str, Any] = {
    "data": "synthetic:n=900,d=4",
    "limit": 600,
    "nodes": 4,
    "graph": "erdos-renyi:p=0.5",
    "method": "dvp",
    "rounds": 3,
    "epsilon": 3.0,
    "eta": 0.5,
    "rho": 1.0,
    "seed": 0,
    "replicates": 5,
}


def test_replicates_are_shared_out_among_draws_of_other_graphs_and_rows() -> None:
    found = list(draws.each_draw({**CELL, "draws": 2}))
    assert [(draw, first, own["replicates"]) for draw, first, own in found] == [
        (0, 0, 3),
        (1, 3, 2),
    ]
    assert all("draws" not in own for _, _, own in found)
    first, other = (tables.deal(own) for _, _, own in found)
    assert (
        len(first.rows.n) == len(other.rows.n) == 4
        and first.rows.n.sum() == other.rows.n.sum() == 600
    )
    assert not np.array_equal(first.parts[0][0], other.parts[0][0])  # other rows ...
    np.testing.assert_array_equal(first.X_test, other.X_test)  # ... and the same to test on
    assert found[1][2]["seed"] == draws.APART  # which draws the graph and the noise
    assert len(list(draws.each_draw({**CELL, "draws": 9}))) == CELL["replicates"]
    with pytest.raises(InvalidInput, match="draws"):
        training.run({**CELL, "draws": 0})


def test_a_cell_with_draws_has_the_rows_of_each_and_the_first_is_that_of_a_cell_without() -> None:
    one = training.run({**CELL, "replicates": 2})
    several = training.run({**CELL, "draws": 3, "replicates": 6})
    assert [row["replicate"] for row in several] == list(range(6))
    assert [row["draw"] for row in several] == [0, 0, 1, 1, 2, 2]
    assert [row["loss"] for row in several[:2]] == [row["loss"] for row in one]
    assert len({row["loss"] for row in several}) == 6 and "draw" not in one[0]
    prices = {row["draw"]: row["epsilon_proved"] for row in several}
    assert prices[0] == one[0]["epsilon_proved"]


def test_privacy_and_notes_are_those_of_the_rows_own_draw() -> None:
    """Training errors, vectors sent, and the run without noise, which has the graph of its draw."""
    rows = graded.run({**CELL, "draws": 2, "replicates": 2, "also": "noiseless_error"})
    assert {"train_error", "broadcasts", "noiseless_error"} <= set(rows[0])
    for (_, _, own), row in zip(
        draws.each_draw({**CELL, "draws": 2, "replicates": 2}), rows, strict=True
    ):
        (alone,) = graded.on_one_draw({**own, "also": "noiseless_error"})
        assert row["train_error"] == alone["train_error"]
        plain = training.on_one_draw({**own, "method": "admm", "epsilon": float("inf")})
        assert row["noiseless_error"] == alone["noiseless_error"] == plain[0]["test_error"]


def test_the_cost_of_an_error_keeps_the_draws_of_its_replicates() -> None:
    p = {key: value for key, value in CELL.items() if key != "epsilon"}
    rows = graded.cost({**p, "draws": 2, "replicates": 4, "epsilons": [1.0, 10.0], "errors": [0.3]})
    costs = [row for row in rows if "cost" in row]
    assert [(row["replicate"], row["draw"]) for row in costs] == [(0, 0), (1, 0), (2, 1), (3, 1)]


def _rows(shared: float) -> list[dict[str, Any]]:
    """Two methods on four draws of five noises: b is above a by 1, and by `shared` times a
    number of the draw.
    """
    rng = np.random.default_rng(0)
    of_draw = {"a": np.zeros(4), "b": 1.0 + shared * np.array([-1.5, -0.5, 0.5, 1.5])}
    return [
        {
            "g": g,
            "draw": draw,
            "replicate": 5 * draw + k,
            "v": of_draw[g][draw] + 0.05 * rng.normal(),
        }
        for g in "ab"
        for draw in range(4)
        for k in range(5)
    ]


def test_standard_errors_are_those_between_draws() -> None:
    """Twenty replicates of four draws that disagree tell no more than four: by replicates this
    would be sure.
    """
    claim = Sentence("a is lower.", "less", "v", {"g": "a"}, {"g": "b"}, printed={})
    apart = [{key: value for key, value in row.items() if key != "draw"} for row in _rows(1.0)]
    assert judge(claim, _rows(0.1), {}).word == REPRODUCED
    assert judge(claim, _rows(1.0), {}).word == NOISE and judge(claim, apart, {}).word == REPRODUCED


def test_an_interval_of_a_figure_is_over_draws() -> None:
    figure = Figure("f", "", "line", "x", "v", xlabel="", ylabel="")
    rows = [row | {"x": 0} for row in _rows(1.0) if row["g"] == "b"]
    _, found = figures._points(figure, rows)
    means = np.array(
        [np.mean([row["v"] for row in rows if row["draw"] == draw]) for draw in range(4)]
    )
    assert found[0] == pytest.approx(figures.summary(means, "ci"))
    _, narrow = figures._points(figure, [{"x": 0, "v": row["v"]} for row in rows])
    assert narrow[0][1] < 0.5 * found[0][1]
