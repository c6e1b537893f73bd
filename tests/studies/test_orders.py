"""Theorem 3.6 of 003 by slopes: what they are on the hardest problem, and that a wrong order is
noticed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce_papers import utility
from sottovoce_papers.studies import spec, verdicts
from sottovoce_papers.studies.kinds import thesis, thesis_more

BASE: dict[str, Any] = {
    "law": "spherical",
    "rows": 4000,
    "epsilon": 3.0,
    "features": 10,
    "replicates": 200,
    "seed": 0,
}
ALONG: dict[str, list[float]] = {
    "rows": [1000, 4000, 16000],
    "epsilon": [0.3, 1.0, 3.0],
    "features": [5, 10, 20, 40],
}


def beyond(axis: str, **more: Any) -> np.ndarray:
    rows = thesis.orders({**BASE, "axis": axis, "values": ALONG[axis], **more})
    return np.array([row["beyond"] for row in rows if "beyond" in row])


def test_the_loss_on_the_hardest_problem_is_a_fixed_share_of_the_bound() -> None:
    """J and the regulariser are quadratics of equal curvature: Delta / 8n of what the bound has
    Delta / 2n of.
    """
    for law, d in (("spherical", 12), ("gaussian", 40)):
        p = {
            **BASE,
            "law": law,
            "axis": "rows",
            "values": [2000, 8000],
            "features": d,
            "replicates": 800,
        }
        delta = 1e-5 if law == "gaussian" else None
        for n in (2000, 8000):
            lost = np.array([row["excess"] for row in thesis.orders(p) if row.get("value") == n])
            says = utility.generalised_objective_perturbation(
                n=n, d=d, epsilon=3.0, norm=1.0, delta=delta
            )
            error = lost.std(ddof=1) / math.sqrt(lost.size)
            assert abs(lost.mean() - says.bound / 4.0) < 4.0 * error
            assert abs(lost.mean() - says.bound / 2.0) > 8.0 * error


@pytest.mark.parametrize("axis", ALONG)
@pytest.mark.parametrize("law", ["spherical", "gaussian"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_wrong_order_fails_and_the_printed_one_does_not(
    axis: str, law: str, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that falls by one power more along the axis, or grows by one less with d, is not
    the loss's.
    """
    real = utility.generalised_objective_perturbation

    def steeper(**given: Any) -> utility.Excess:
        size = {"rows": given["n"], "epsilon": given["epsilon"], "features": given["d"]}[axis]
        says = real(**given)
        return replace(says, order=says.order / size)

    if wrong:
        monkeypatch.setattr(thesis_more, "generalised_objective_perturbation", steeper)
    values = beyond(axis, law=law)
    rows = [{"beyond": value, "replicate": k} for k, value in enumerate(values.tolist())]
    claim = next(
        claim
        for claim in spec.load("003-thm3.6").claims
        if claim.value == "beyond" and claim.level == 0.1
    )
    told = verdicts.judge(replace(claim, by=(), filter={}), rows, {}).word
    assert told == (verdicts.NOT if wrong else verdicts.REPRODUCED)
    names = {"rows": "n", "epsilon": "epsilon", "features": "d"}
    shares = []  # of the proved bound, a quarter of which is lost, in the printed order
    for value in ALONG[axis]:
        given = {
            "n": BASE["rows"],
            "d": BASE["features"],
            "epsilon": BASE["epsilon"],
            "norm": 1.0,
            names[axis]: value,
        }
        says = real(**given, delta=1e-5 if law == "gaussian" else None)
        shares.append(says.bound / says.order)
    expected = thesis_more.slope_of(np.log(ALONG[axis]), np.array(shares)) + wrong
    assert values.mean() == pytest.approx(expected, abs=0.15)


def test_above_the_logarithm_of_delta_the_gaussian_order_is_left_behind() -> None:
    """(3.7) has no part for 4 epsilon of the noise's variance: from 30 to 300 its share grows
    tenfold.
    """
    values = beyond("epsilon", law="gaussian", values=[30.0, 300.0])
    share = [1.0 + (8.0 * math.log(2e5) + 4.0 * e) / math.log(1e5) for e in (30.0, 300.0)]
    assert values.mean() == pytest.approx(math.log(share[1] / share[0]) / math.log(10.0), abs=0.05)
    assert values.mean() > 0.7


def test_pseudovalues_have_the_mean_and_spread_of_the_slope() -> None:
    rng, at = np.random.default_rng(0), np.log([1.0, 10.0])
    values = np.array([[4.0], [1.0]]) * rng.gamma(25.0, 1.0 / 25.0, size=(2, 400))
    found = np.array(thesis_more.jackknifed_slopes(at, values))
    assert found.mean() == pytest.approx(-math.log(4.0) / math.log(10.0), abs=0.02)
    assert found.std(ddof=1) == pytest.approx(math.sqrt(2.0) * 0.2 / math.log(10.0), rel=0.1)


def test_a_point_where_the_bound_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        thesis.orders({**BASE, "axis": "epsilon", "values": [0.001, 0.01]})
    with pytest.raises(InvalidInput, match="axis"):
        thesis.orders({**BASE, "axis": "delta", "values": [0.1, 0.2]})
