"""The house in tables.py: `auto`, and the best fixed method and setting.

Only what version 0.1 has too is used, so that an older source can be measured by the same program.
Knobs and methods that the version at hand lacks are left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from _tables_data import DEALS, TEST_SHARE, held, load, path, schema_path
from _tables_search import Found, Grid, Setting, search

from sottovoce import TrainConfig, train
from sottovoce.algorithms import KNOBS, REGISTRY, knobs_of
from sottovoce.errors import SottovoceError
from sottovoce.problem.trust import NOBODY
from sottovoce.runs.simulate import RunConfig, prepare, simulate

DELTA = 1e-5
REPLICATES, SCREENED, FRESH = 20, 10, 50
SCREENING_SEED = 1000  # other noise than that of the scores
FRESH_SEED = 2000

STEPS: dict[str, tuple[Any, ...]] = {  # of methods with many releases
    "rounds": (5, 10, 20, 40),
    "eta": (0.06, 0.25, 1.0, 4.0),  # times the method's own default penalty
    "rho": (0.0001, 0.001, 0.01),
    "loss": ("logistic", "huber:0.5"),
    "max_grad_norm": (math.inf, 1.0, 0.5, 0.2, 0.1, 0.05),
    "momentum": (0.0, 0.5, 0.9),
}
SINGLE = STEPS | {"rounds": (10,), "eta": (0.06, 0.25, 1.0, 4.0, 16.0)}  # of those with one
COSTLY = {"rounds": (100, 200)}
GRIDS: dict[str, tuple[dict[str, tuple[Any, ...]], int]] = {  # draws
    "prox_admm": (STEPS, 10),
    "prox_average": (STEPS, 8),
    "dgd": (STEPS, 8),
    "mr_admm": (STEPS, 4),
    "output": (SINGLE, 6),
    "objective": (SINGLE, 6),
}
LEFT_OUT = {  # equal to one above at their defaults, or older forms of one that never won
    "admm",
    "dvp",
    "pvp",
    "m_admm",
    "r_admm",
    "pp_admm",
    "ipp_admm",
    "generalised",
}


def grids() -> list[Grid]:
    """A grid for each method that trusts nobody; a method of a newer version gets the common
    one.
    """
    known = RunConfig.defaults()
    found = []
    for name, cls in REGISTRY.items():
        if cls.private and cls.trust == NOBODY and name not in LEFT_OUT:
            knobs, draws = GRIDS.get(name, (STEPS, 10))
            idle = set(KNOBS) - set(knobs_of(cls.options))
            mine = {
                knob: values for knob, values in knobs.items() if knob in known and knob not in idle
            }
            found.append(Grid({"method": (name,)} | mine, draws, {} if cls.single else COSTLY))
    return found


@lru_cache(maxsize=4096)
def _default_penalty(config: RunConfig, n: tuple[float, ...], d: int) -> float:
    return float(np.max(prepare(config, np.array(n)[:, None], d).algorithm.penalty(1)))


def configured(setting: Setting, epsilon: float, n: np.ndarray, d: int) -> RunConfig:
    """The run of a setting.

    Raises
    ------
    SottovoceError
        If it breaks a rule of its method.
    """
    default = RunConfig.defaults()
    plain = {
        knob: value
        for knob, value in setting.items()
        if knob != "eta" and not _same(value, default[knob])
    }
    config = RunConfig.from_dict({"epsilon": epsilon, "delta": DELTA, **plain})
    if setting["eta"] == 1.0:
        return config
    return replace(
        config, eta=float(setting["eta"] * _default_penalty(config, tuple(n.ravel().tolist()), d))
    )


def _same(value: Any, default: Any) -> bool:
    return value == default or (default is None and value == math.inf)


def fresh(
    folder: Path, table: str, nodes: int, partition: str, chose: RunConfig | Setting, epsilon: float
) -> float:
    """The mean error of a configuration or setting, with noise that no choice saw and that
    differs between deals.
    """
    errors = []
    for k in range(DEALS):
        rows, dataset = held(folder, table, k, nodes, partition), load(folder, table, k)
        config = (
            chose if isinstance(chose, RunConfig) else configured(chose, epsilon, rows.n, rows.d)
        )
        result = simulate(replace(config, seed=FRESH_SEED + k, replicates=FRESH), rows)
        errors.append(
            dataset.task.model_errors(dataset.X_test, dataset.y_test, result.consensus).mean()
        )
    return float(np.mean(errors))


def best_fixed(folder: Path, table: str, nodes: int, partition: str, epsilon: float) -> Found:
    """The best of all methods and settings of the house."""

    def score(setting: Setting, full: bool) -> np.ndarray | None:
        errors = []
        for k in range(DEALS if full else 1):
            rows, dataset = held(folder, table, k, nodes, partition), load(folder, table, k)
            try:
                config = configured(setting, epsilon, rows.n, rows.d)
                seed, replicates = (0, REPLICATES) if full else (SCREENING_SEED, SCREENED)
                result = simulate(replace(config, seed=seed, replicates=replicates), rows)
            except SottovoceError:  # a rule of the method, or a solve that missed its goal
                return None
            errors.append(
                dataset.task.model_errors(dataset.X_test, dataset.y_test, result.consensus)
            )
        return np.array(errors)

    return search(grids(), score)


def auto(folder: Path, table: str, nodes: int, partition: str, epsilon: float) -> dict[str, Any]:
    """`auto` as ``sottovoce.train`` runs it: errors (deals, replicates), what it chose, and
    models without privacy.
    """
    # one seed: it chooses once
    run = RunConfig(method="auto", epsilon=epsilon, delta=DELTA, replicates=REPLICATES)
    errors, plain, majority, chose = [], [], [], run
    for k in range(DEALS):
        data, schema = str(path(folder, table, k)), str(schema_path(folder, table))
        report = train(
            TrainConfig(
                run,
                data=data,
                schema=schema,
                nodes=nodes,
                partition=partition,
                test_share=TEST_SHARE,
            )
        )
        errors.append(report.test_errors)
        plain.append(report.nonprivate_test_error)
        majority.append(report.baseline_test_errors["majority"])
        chose = report.config.run
    return {
        "errors": np.array(errors),
        "setting": words(chose),
        "fresh": fresh(folder, table, nodes, partition, chose, epsilon),
        "nonprivate": float(np.mean(plain)),
        "majority": float(np.mean(majority)),
    }


def words(config: RunConfig) -> str:
    """What a run changes of the defaults."""
    quiet = {"epsilon", "delta", "seed", "replicates", "auto", "method"}
    default = RunConfig.defaults()
    changed = {name: value for name, value in config.to_dict().items() if name not in quiet}
    said = [
        f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in changed.items()
        if v != default.get(k)
    ]
    return ", ".join([config.method, *said])
