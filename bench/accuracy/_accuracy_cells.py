"""The settings behind the pictures of accuracy.py, and their errors."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache, partial

import joblib
import numpy as np
from fill import Numeric, scaled, tables
from sklearn.datasets import load_digits

from sottovoce import data
from sottovoce.data import Dataset, Schema, partition
from sottovoce.data.expected import expected_rows, sketch
from sottovoce.data.rows import Rows
from sottovoce.data.synthetic_tables import Sketches, sketches_from_source
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.runs.yardstick import least_nonprivate_error
from sottovoce.util.typing import Any, Array

Cells = list[dict[str, Any]]
SITES, DELTA, REPLICATES, SEEDS = 5, 1e-5, 10, (0, 1, 2)
TABLES = {"adult": 0.1, "breast cancer": 1.0, "digits": 1.0}
"""And the epsilon of the pictures with one: where the error is neither that of a coin nor that
without privacy.
"""
EPSILONS, CAPS, NORMS = (
    (0.1, 0.5, 1.0),
    (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02),
    (1.0, 0.5, 0.25, 0.12, 0.06),
)
ROUNDS = {"momentum": 100, "prox_average": 20, "central_momentum": 100}
STEPS, CAP = (1, 2, 5, 10, 20, 50, 100, 200), 0.2
LEVERS = (
    "first guess",
    "+ cap",
    "+ rows that fill the ball",
    "+ auto",
    "trusted curator, best cap (chosen on test rows)",
    "no privacy",
)


@dataclasses.dataclass(frozen=True)
class Job:
    """One setting: a method with its knobs, or "auto", or "none" without privacy.

    `rows` says which schema encodes the table: its "bounds" alone, or with "typical" ranges and the
    scale that is proposed; then a typical row has norm 1.  `norm` multiplies the rows.
    """

    table: str
    method: str
    epsilon: float = math.inf
    cap: float = math.inf
    rounds: int = 0
    rows: str = "bounds"
    norm: float = 1.0
    quick: bool = False


@lru_cache(maxsize=8)
def numeric(name: str) -> Numeric:
    """A table that is split here."""
    if name != "digits":
        return next(table for table in tables() if table.name == name)
    digits = load_digits()
    image = {"kind": "vector", "size": 64, "lo": 0, "hi": 16}
    bounds, typical = (
        Schema.from_dict(
            {"name": name, "columns": {"image": image | {"norm": norm}}, "intercept": True}
        )
        for norm in (128.0, 50.0)
    )
    return Numeric(
        name, {"image": digits.data}, np.where(digits.target % 2, 1.0, -1.0), bounds, typical
    )


@lru_cache(maxsize=1)
def adult() -> data.Dataset:
    return data.load("adult")


def schema_of(job: Job) -> Schema:
    """The schema that encodes the rows of a job, before they are multiplied."""
    if job.table == "adult":
        schema = adult().schema
        assert schema is not None
        return schema
    table = numeric(job.table)
    return table.bounds if job.rows == "bounds" else scaled(table.typical)


def shorter(schema: Schema, norm: float, n: int, rng: np.random.Generator) -> Array:
    """Synthetic rows, multiplied as the rows of a job are."""
    return norm * sketch(schema, n, rng)


def expected(job: Job) -> Sketches:
    """What is publicly known of the rows of a job."""
    schema = schema_of(job)
    if job.norm == 1.0:
        return expected_rows(schema)
    rows = partial(shorter, schema, job.norm)
    return sketches_from_source(
        f"{schema.fingerprint} times {job.norm}", "shortened rows", rows, schema.n_features
    )


@lru_cache(maxsize=4)
def encoded(job: Job) -> tuple[tuple[Array, Array, Array, Array], ...]:
    """Training and test rows and labels, one entry for each seed."""
    if job.table == "adult":
        rows = adult()
        return ((job.norm * rows.X_train, rows.y_train, job.norm * rows.X_test, rows.y_test),)
    table = numeric(job.table)
    X, splits = job.norm * schema_of(job).encode(table.columns, labels=False).X, []
    for seed in SEEDS[:1] if job.quick else SEEDS:
        order = np.random.default_rng(seed).permutation(len(table.y))
        out, kept = np.split(order, [len(table.y) // 5])
        splits.append((X[kept], table.y[kept], X[out], table.y[out]))
    return tuple(splits)


def score(job: Job) -> dict[str, Any]:
    """Test errors in percent, of every seed and replicate, and what ran."""
    splits = encoded(dataclasses.replace(job, method="", epsilon=math.inf, cap=math.inf, rounds=0))
    dealt = []
    for seed, (X, y, _, _) in enumerate(splits):
        dealt.append(
            Rows.build_from_parts([(X[part], y[part]) for part in partition("iid", y, SITES, seed)])
        )
    run = RunConfig("prox_admm", delta=DELTA)
    if job.method == "auto":
        asked = RunConfig("auto", job.epsilon, DELTA)
        chosen = choose_method(asked, dealt[0].n[:, 0], dealt[0].d, expected=expected(job))
        run = chosen.config
    elif job.method != "none":
        run = RunConfig.from_dict(
            {
                "method": job.method,
                "epsilon": job.epsilon,
                "delta": DELTA,
                "rounds": job.rounds,
                "max_grad_norm": job.cap,
            }
        )
    errors: list[float] = []
    for seed, (rows, (X_train, y_train, X, y)) in enumerate(zip(dealt, splits, strict=True)):
        if job.method == "none":
            errors.append(
                100
                * least_nonprivate_error(Dataset(job.table, X_train, y_train, X, y, None, {}, {}))
            )
            continue
        here = dataclasses.replace(run, seed=seed, replicates=2 if job.quick else REPLICATES)
        result = simulate(here, rows)
        models = result.consensus
        if (
            run.noise is None and len(splits) > 1
        ):  # sizes are equal, so the noise of the first is that of all
            noise = RunConfig.from_dict(here.to_dict() | {"noise": result.algorithm["noise"]}).noise
            run = dataclasses.replace(run, noise=noise)
        errors += (100 * np.mean(y != np.sign(X @ models.T).T, axis=1)).tolist()
    told = {name: value for name, value in dataclasses.asdict(job).items() if name != "quick"}
    ran = (
        {}
        if job.method == "none"
        else {"ran": run.method, "ran_rounds": run.rounds, "ran_cap": run.gradient_cap}
    )
    found = {
        "error": float(np.mean(errors)),
        "sd": float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0,
        "errors": [round(error, 3) for error in errors],
    }
    plain = (told | ran | found).items()
    return {name: None if value == math.inf else value for name, value in plain}


def full(table: str) -> str:
    """Which rows of a table fill the ball; Adult's schema has nothing to change."""
    return "bounds" if table == "adult" else "typical"


def plan(quick: bool) -> dict[str, list[Job]]:
    """The settings of every picture."""
    names = ("breast cancer",) if quick else tuple(TABLES)
    epsilons = EPSILONS[-1:] if quick else EPSILONS
    caps, norms, steps = (CAPS[::4], NORMS[::4], STEPS[:2]) if quick else (CAPS, NORMS, STEPS)
    T = dict.fromkeys(ROUNDS, 5) if quick else ROUNDS
    methods = ("momentum", "prox_average")

    cap = [Job(table, "none", rows=full(table)) for table in names]
    for table, e in ((table, e) for table in names for e in epsilons):
        cap += [Job(table, method, e, c, T[method]) for method in methods for c in caps]
        cap += [] if quick else [Job(table, "auto", e)]
    norm = [Job(table, "none", rows=full(table)) for table in names]
    for table, s in ((table, s) for table in names for s in norms):
        at = Job(table, "momentum", TABLES[table], rounds=T["momentum"], rows=full(table), norm=s)
        norm += [at, dataclasses.replace(at, cap=0.1)]
        norm += [] if quick else [dataclasses.replace(at, method="auto", rounds=0)]
    rounds = [Job(table, "none", rows=full(table)) for table in names]
    for table in names:
        rounds += [
            Job(table, method, TABLES[table], CAP, t)
            for method in ("momentum", "prox_average", "dgd")
            for t in steps
        ]
    levers = []
    for table in names if quick else (*names, "made-up"):
        rows = full(table)
        levers.append(Job(table, "none", rows=rows))
        for e in epsilons:
            levers += [Job(table, "prox_admm", e, rounds=10), Job(table, "prox_admm", e, CAP, 10)]
            levers += [Job(table, "prox_admm", e, CAP, 10, rows), Job(table, "auto", e, rows=rows)]
            levers += [
                Job(table, "central_momentum", e, c, T["central_momentum"], rows) for c in caps[::2]
            ]
    pictures = {"cap": cap, "norm": norm, "rounds": rounds, "levers": levers}
    return {
        name: [dataclasses.replace(job, quick=quick) for job in jobs]
        for name, jobs in pictures.items()
    }


def measure(quick: bool, jobs: int) -> dict[str, Cells]:
    """The cells of every picture; settings that two pictures share are run once."""
    pictures = plan(quick)
    # Long ones first, and those of equal rows together.
    unique = sorted(
        dict.fromkeys(job for some in pictures.values() for job in some),
        key=lambda job: (job.method != "auto", job.table, job.rows, job.norm, -job.rounds),
    )
    found = dict(
        zip(
            unique, joblib.Parallel(jobs)(joblib.delayed(score)(job) for job in unique), strict=True
        )
    )
    return {name: [found[job] for job in some] for name, some in pictures.items()}


def levers(cells: Cells) -> Cells:
    """Means over tables, one entry for each epsilon and lever.

    `sd` is the root of the mean over tables of the variance over runs.
    """
    out = []
    names = list(dict.fromkeys(cell["table"] for cell in cells))
    for e in sorted({cell["epsilon"] for cell in cells} - {None}):
        steps: dict[str, Cells] = {lever: [] for lever in LEVERS}
        for table in names:
            own = [
                cell for cell in cells if cell["table"] == table and cell["epsilon"] in (e, None)
            ]
            prox = [cell for cell in own if cell["method"] == "prox_admm"]
            curator = [cell for cell in own if cell["method"] == "central_momentum"]
            by = {cell["method"]: cell for cell in own}
            best = min(curator, key=lambda cell: float(cell["error"]))
            for lever, cell in zip(LEVERS, (*prox, by["auto"], best, by["none"]), strict=True):
                steps[lever].append(cell)
        for lever, some in steps.items():
            error, variance = (
                np.mean([cell[key] ** p for cell in some]) for key, p in (("error", 1), ("sd", 2))
            )
            out.append(
                {"epsilon": e, "lever": lever, "error": float(error), "sd": math.sqrt(variance)}
            )
    return out
