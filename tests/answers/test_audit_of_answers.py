"""The worst pair of tables known against every bounded sum: no release tells them apart better than its event allows.

The best test between two known means with Gaussian noise is the projection on their difference; its error rates give a
lower bound on epsilon at the event's delta.  A fault is planted beside each: the bound must catch it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.curator import Curator
from sottovoce.data.rows import Rows
from sottovoce.facts import Facts
from sottovoce.graphs import make_graph
from sottovoce.ledger.memory import Ledger
from sottovoce.losses import HuberResidual, Logistic
from sottovoce.net import DenseNet
from sottovoce.privacy.gaussian import gaussian_delta
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.queries import (
    Bounded,
    Curvature,
    Gradient,
    HuberGradient,
    NoisyBounded,
    Positives,
    Products,
    Residuals,
    Scores,
    SecondMoments,
    SlopeMoments,
    SummedBounded,
)

ALPHA, RUNS, D = 1.0, 2000, 3
STEEP = np.array([0.0, 0.0, 400.0])
LAST = np.eye(D)[-1]
TILT = np.array([0.0, 0.0, -0.1])


def row(*x: float) -> np.ndarray:
    a = np.array(x)
    return a / (np.linalg.norm(a) * (1 + 1e-12))


E0, E1 = row(1, 0, 0), row(0, 1, 0)
CASES: dict[str, tuple[Any, np.ndarray, tuple[np.ndarray, np.ndarray], tuple[float, float] | None]] = {
    "gradient": (Gradient, STEEP, (row(*(E0 + TILT)), row(*(-E0 + TILT))), None),
    "second moments": (SecondMoments, np.zeros(D), (E0, E1), None),
    "hessian": (Curvature, np.zeros(D), (E0, E1), None),
    "moments of slopes": (SlopeMoments, STEEP, (row(*(E0 + TILT)), row(*(E1 + TILT))), None),
    "count": (lambda at: Positives(at, LAST), np.zeros(D), (row(0, 0, 1), row(0, 0, -1)), None),
    "scores": (lambda at: Scores(at, LAST, np.array([0.0])), E0, (row(1, 0, 1), row(-1, 0, 1)), None),
    "huber": (lambda at: HuberGradient(at, 0.5), np.zeros(D), (E0, E0), (1.0, -1.0)),
    "products": (Products, np.zeros(D), (E0, E0), (1.0, -1.0)),
    "residuals": (lambda at: Residuals(at, LAST, np.array([0.5])), np.zeros(D), (LAST, LAST), (0.1, 0.9)),
}
LEAST = {"gradient": 0.98, "moments of slopes": 0.98}
"""Share of the stated shift that the pair reaches, where it is not all of it."""


def world(rows: tuple[np.ndarray, np.ndarray], number: tuple[float, float] | None, k: int) -> Rows:
    """Three sites of three rows; the first row of the first one is the pair's k-th."""
    still = np.array([0.0, 0.0, 0.5])
    signed = np.tile(still, (3, 3, 1))
    signed[0, 0] = rows[k]
    if number is None:
        return Rows(signed, np.full((3, 1), 3.0))
    offsets = [np.array([number[k] if i == 0 else 0.2, 0.2, 0.2]) for i in range(3)]
    return Rows.build([(signed[i], np.ones(3)) for i in range(3)], offsets)


def answers(name: str, way: str, k: int, loud: float = 1.0) -> np.ndarray:
    kind, at, rows, number = CASES[name]
    loss = Logistic() if number is None else HuberResidual(1.0)
    summed = {"participants": 3, "colluders": 1} if way == "sum" else {}
    facts = Facts(loss, np.full((3, 1), 3.0), D, 1.0, 1.0, 3, pure=False, **summed)  # type: ignore[arg-type]
    curator = Curator(world(rows, number, k), facts, KeyedNoise(k, range(RUNS), range(3)), Ledger("zcdp", delta=1e-5))
    what: Bounded = kind(np.broadcast_to(at, (RUNS, 3, D)).copy())
    alpha = np.full((3, 1), ALPHA * loud)
    if way == "sum":
        return curator.ask_sum(SummedBounded.of(what, alpha, name), DenseNet(make_graph("complete", 3)))[:, 0]
    return curator.ask(NoisyBounded.of(what, alpha, name))[:, 0]


def separation(name: str, way: str, loud: float = 1.0) -> float:
    """Shift over sigma between both worlds along their difference, from half of the answers on the other half."""
    one, other = (answers(name, way, k, loud) for k in (0, 1))
    half = RUNS // 2
    along = one[:half].mean(axis=0) - other[:half].mean(axis=0)
    a, b = one[half:] @ along, other[half:] @ along
    return float((a.mean() - b.mean()) / np.sqrt(0.5 * (a.var(ddof=1) + b.var(ddof=1))))


ERROR = 4.5 * np.sqrt(2.0 / (RUNS // 2) * (1.0 + ALPHA**2 / 4.0))


@pytest.mark.parametrize("way", ["nobody", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_the_worst_pair_is_no_further_apart_than_the_event_says(name: str, way: str) -> None:
    """One colluder of three takes its share of a sum's noise away: two thirds of the variance seen here are left."""
    seen = separation(name, way) * (np.sqrt(1.5) if way == "sum" else 1.0)
    assert seen < ALPHA + ERROR
    assert seen > LEAST.get(name, 1.0) * ALPHA - ERROR - 0.05


@pytest.mark.parametrize("way", ["nobody", "sum"])
def test_a_histogram_with_the_sensitivity_of_one_cell_is_caught(way: str) -> None:
    """The planted fault: noise for a sensitivity of 1 in place of sqrt 2."""
    seen = separation("scores", way, loud=np.sqrt(2.0)) * (np.sqrt(1.5) if way == "sum" else 1.0)
    assert seen > ALPHA + ERROR
    epsilon = 1.0
    assert gaussian_delta(epsilon, seen - ERROR) > gaussian_delta(epsilon, ALPHA)
    assert stats.norm.sf(4.5) < 1e-5
