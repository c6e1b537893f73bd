"""Cells with several classes (002, section VII-C), on synthetic rows: 002 names no data for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sottovoce import RunConfig
from sottovoce.data.rows import Rows
from sottovoce.problem.losses import make_loss
from sottovoce.runs.simulate import simulate
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Any, Array, IntArray

from . import Row, check

_DATA = {"classes", "features", "rows", "nodes"}
_RUN = {
    "method",
    "epsilon",
    "delta",
    "rounds",
    "graph",
    "eta",
    "eta_growth",
    "rho",
    "C",
    "gamma",
    "perturbation",
    "seed",
    "replicates",
}
TEST_ROWS = 4000


def draw_synthetic_parts(K: int, d: int, sizes: list[int]) -> list[tuple[Array, IntArray]]:
    """Draw synthetic rows in the unit ball around K random centres; always the same ones.

    Parameters
    ----------
    K, d : int
        Numbers of classes and of features without the constant.
    sizes : list of int
        Number of rows of each part.

    Returns
    -------
    list of (X, y)
        Rows (n, d + 1), the constant last, and classes (n,) of each part.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(K, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    parts = []
    for n in sizes:
        y = rng.integers(K, size=n)
        X = centres[y] + 0.6 * rng.normal(size=(n, d)) / np.sqrt(d) * 2.0
        X = np.hstack([X, np.full((n, 1), 0.5)])
        parts.append(
            (X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) / (1.0 + 1e-12), y)
        )
    return parts


def several(p: Mapping[str, Any]) -> list[Row]:
    """Run once with the softmax loss, and score the models after the last round.

    Parameters: `classes`, `features`, `rows` (of each site), `nodes`, and those of a run.  Columns:
    `loss` (mean of the sites' own models on their own rows, nats), `test_error` of the average
    model, `epsilon_proved`.
    """
    check(p, _DATA | _RUN)
    K, d, n, N = (int(p[name]) for name in ("classes", "features", "rows", "nodes"))
    parts = draw_synthetic_parts(K, d, [n] * N + [TEST_ROWS])
    rows, (X, y) = Rows.build_with_classes(parts[:N], K), parts[N]
    knobs: dict[str, Any] = {"loss": f"softmax:{K}", "epsilon": np.inf}
    config = RunConfig.from_dict(knobs | {key: value for key, value in p.items() if key in _RUN})
    result = simulate(config, rows)
    models = result.models
    own = (
        Solver(rows, make_loss(config.loss), 1.0)
        .clipped_objective(models, np.inf)[..., 0]
        .mean(axis=1)
    )
    scores = np.einsum("nd,rkd->rnk", X, models.mean(axis=1).reshape(len(models), K, -1))
    wrong = (scores.argmax(axis=-1) != y).mean(axis=-1)
    says = f"{config.method} ({K} classes): {result.privacy['says']}"
    row: Row = {
        "round": config.rounds,
        "epsilon_proved": result.privacy["epsilon"],
        "_privacy": says,
    }
    return [
        row | {"replicate": r, "loss": float(a), "test_error": float(b)}
        for r, (a, b) in enumerate(zip(own, wrong, strict=True))
    ]
