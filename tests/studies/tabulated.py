"""The rows that a full run of a study would tabulate: every cell's labels, with random numbers in
place of results.

Cells that train are simulated: they return the rounds and replicates that they would have, with the
columns of a real run (``test_simulated_cells_have_the_columns_of_real_ones``).  003's cells run on a
few rows, and only one of those that differ in numbers alone, since texts decide which methods a cell
has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from sottovoce_papers.studies import kinds
from sottovoce_papers.studies.kinds import graded, thesis_solvers, training
from sottovoce_papers.studies.kinds.thesis_data import HeldOut
from sottovoce_papers.studies.spec import Study

Row = dict[str, Any]
REPLICATES = 3  # a spread between replicates needs as many
SCORES = (
    "loss",
    "risk",
    "test_error",
    "accuracy",
    "site_test_error",
    "residual",
    "distance",
    "kept_loss",
    "kept_risk",
)
SMALL = {"rows": 24, "aggregator_rows": 24, "sites": 2, "first_rows": 24}
MOST_ROUNDS = 6  # of a curve, beside those that claims name


def played(p: Mapping[str, Any]) -> list[Row]:
    """What ``training.run`` would tabulate; losses fall as the noise's budget grows."""
    rounds = int(p["rounds"])
    every = int(p.get("every", rounds))
    wanted = sorted({*([1] if "every" in p else []), *range(every, rounds, every), rounds})
    if p["method"] == "local":  # every site alone, once
        wanted = [1]
    rng = np.random.default_rng(len(str(p)))
    level = 0.3 + math.exp(-5.0 * float(np.min(p.get("noise", p.get("alpha", 1.0)))))
    rows = []
    for k in wanted:
        for replicate in range(REPLICATES):
            row: Row = {
                "round": k,
                "replicate": replicate,
                "epsilon_claimed": 1.0,
                "epsilon_proved": 1.0,
            }
            for name in SCORES:
                weight = float(p.get("C", 1.0)) if "risk" in name else 1.0
                row[name] = weight * level + 0.01 * float(rng.random())
            rows.append(row)
    return rows


def played_graded(p: Mapping[str, Any]) -> list[Row]:
    return [
        row | {"train_error": row["test_error"], "broadcasts": row["test_error"]}
        for row in played(p)
    ]


def played_game(p: Mapping[str, Any]) -> list[Row]:
    names = ("claimed", "proved", "audited", "exact")
    return [
        {"replicate": k, "refuted": 0} | dict.fromkeys(names, 1.0 + 0.01 * k)
        for k in range(REPLICATES)
    ]


def played_classes(p: Mapping[str, Any]) -> list[Row]:
    own = {"round": p["rounds"], "epsilon_proved": 1.0}
    return [
        own | {"replicate": k, "loss": 1.0 + 0.01 * k, "test_error": 0.1 + 0.01 * k}
        for k in range(REPLICATES)
    ]


def few_features(name: str, pca: str = "none") -> HeldOut:
    """A few features of as many rows as 003's largest cell deals."""
    rng, n, d = np.random.default_rng(0), 9_000, 4
    X = rng.normal(size=(n + 200, d))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    return HeldOut(X[:n], y[:n], X[n::2], X[n + 1 :: 2], y[n + 1 :: 2])


def stopped_at_once(a: Any, b: Any, total: float, loss: Any) -> tuple[Any, float, bool]:
    """In the place of Nelder and Mead's method, which takes seconds."""
    return np.full(a.shape[1], 0.1), 0.0, True


def play(patch: pytest.MonkeyPatch) -> None:
    """Put played cells and few rows in the places of those that take long."""
    patch.setattr(training, "run", played)
    patch.setattr(graded, "run", played_graded)
    patch.setattr(thesis_solvers, "simplex", stopped_at_once)
    for name in ("thesis_models", "thesis_more", "thesis_solvers", "thesis_components"):
        patch.setattr(f"sottovoce_papers.studies.kinds.{name}.load", few_features)


PLAYED: dict[str, Callable[[Mapping[str, Any]], list[Row]]] = {
    "training.run": played,
    "graded.run": played_graded,
    "attacks.game": played_game,
    "classes.several": played_classes,
}


def told_apart_by(p: Mapping[str, Any]) -> str:
    """What decides the methods and columns of a cell of 003: texts, and whether a number is
    finite.
    """
    plain = {
        k: v if isinstance(v, str | list | tuple | bool) else math.isfinite(v) for k, v in p.items()
    }
    return str(plain)


def tabulated(study: Study) -> list[Row]:
    """The rows of a full run, after :func:`play`; of long curves only some rounds, and all that
    claims name.
    """
    cell = PLAYED.get(study.kind) or kinds.find(study.kind)
    thesis = study.kind.startswith("thesis.")
    known: dict[str, list[Row]] = {}
    rows = []
    for point, labels in zip(study.points(), study.labels(), strict=True):
        p = {**study.fixed, **point, "seed": study.seed, "replicates": REPLICATES}
        key = told_apart_by(p) if thesis else str(p)
        if key not in known:
            small = {
                name: value
                for name, value in SMALL.items()
                if thesis and name in p and "axis" not in p
            }
            known[key] = cell({**p, **small})
        own = {"target": p["epsilon"]} if thesis and "epsilon" in p else {}
        for row in known[key]:
            plain = {name: value for name, value in row.items() if not name.startswith("_")}
            rows.append(labels | plain | own)
    return some_rounds(study, rows)


def some_rounds(study: Study, rows: list[Row]) -> list[Row]:
    named = {
        value
        for claim in study.claims
        for part in claim.selectors
        for value in np.ravel(part.get("round", []))
    }
    rounds = sorted({row["round"] for row in rows if "round" in row})
    kept = {*rounds[:: max(1, len(rounds) // MOST_ROUNDS)], *rounds[-1:]}
    return [
        row for row in rows if "round" not in row or row["round"] in kept or row["round"] in named
    ]
