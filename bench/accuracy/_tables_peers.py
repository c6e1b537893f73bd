"""Peers of `auto` at one site: clipped gradient descent, approximate minima perturbation, and
diffprivlib.

All get the same encoded rows, the same epsilon and delta, and the relation of the house,
replace-one (one row is changed for another, and their number is public):

- clipped DP-GD: full-batch gradient descent, each row's gradient clipped to norm c, Gaussian noise
  on the sum.  One changed row moves the sum by at most 2 c; T steps with noise of multiplier
  sqrt(T) / mu are one Gaussian mechanism of parameter mu (Dong, Roth and Su 2022), with the mu that
  (epsilon, delta) allows exactly, as in the house.
- AMP: approximate minima perturbation, Algorithm 1 of Iyengar, Near, Song, Thakkar, Thakurta and
  Wang, "Towards practical differentially private convex optimization", IEEE S&P 2019, with the
  paper's accounting.  Its sensitivity 2 L / n is that of replace-one, and its r (twice the rank of
  a row's Hessian, here 2) too.
- diffprivlib: LogisticRegression of version 0.6.6, pure epsilon (it has no delta).  Its noise is
  Chaudhuri, Monteleoni and Sarwate's (JMLR 2011) of scale 2 data_norm / epsilon', for one row
  changed for another: replace-one, nothing to double.  Its proof holds for exact minimisers, and it
  releases what L-BFGS found; that is not held against it.

Norms of rows are at most 1 by the schema.  A peer that clips rows to a smaller norm may choose it
as its setting.
"""

from __future__ import annotations

import json
import math
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _tables_data import DEALS, HERE, environment, load
from _tables_house import DELTA, FRESH, FRESH_SEED, REPLICATES, SCREENED, SCREENING_SEED
from _tables_search import Found, Grid, Setting, search
from scipy.special import expit

from sottovoce.data import Dataset
from sottovoce.privacy.gaussian import gaussian_mu


class Peer(Protocol):
    """Errors on the test rows of a deal, one for each seed; None if a setting breaks the
    method's rules.
    """

    def __call__(
        self, folder: Path, table: str, k: int, setting: Setting, epsilon: float, seeds: list[int]
    ) -> np.ndarray | None: ...


def errors_of(dataset: Dataset, models: np.ndarray) -> np.ndarray:
    """Misclassified shares of models (R, d)."""
    return dataset.task.model_errors(dataset.X_test, dataset.y_test, models)


def signed(dataset: Dataset, norm: float = 1.0) -> np.ndarray:
    """Rows times their labels, shortened to a norm."""
    lengths = np.linalg.norm(dataset.X_train, axis=1, keepdims=True)
    return (
        dataset.X_train
        * dataset.y_train[:, None]
        * np.minimum(1.0, norm / np.maximum(lengths, 1e-12))
    )


# --- clipped gradient descent

GD = Grid(
    {
        "clip": (1.0, 0.5, 0.2, 0.1, 0.05, 0.02),
        "steps": (5, 10, 30, 100, 300),
        "rate": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),  # times 1 / clip
        "average": (False, True),  # the last iterate, or the mean of the last half
    },
    40,
)


def clipped_gd(
    folder: Path, table: str, k: int, setting: Setting, epsilon: float, seeds: list[int]
) -> np.ndarray | None:
    """Gradient descent on the logistic loss from zero."""
    dataset = load(folder, table, k)
    a, clip, steps = signed(dataset), setting["clip"], setting["steps"]
    n, d = a.shape
    # slope at which a row's gradient has norm clip
    most = clip / np.maximum(np.linalg.norm(a, axis=1), 1e-12)[:, None]
    sigma = 2 * clip * math.sqrt(steps) / gaussian_mu(epsilon, DELTA)
    rngs = [np.random.default_rng([seed, k, 1]) for seed in seeds]
    w, mean, rate = np.zeros((d, len(seeds))), np.zeros((d, len(seeds))), setting["rate"] / clip
    for step in range(steps):
        push = a.T @ np.minimum(expit(-(a @ w)), most)
        noise = np.stack([rng.standard_normal(d) for rng in rngs], axis=1)
        w = w + rate / n * (push + sigma * noise)
        if 2 * step >= steps:
            mean += w
    return errors_of(dataset, (mean if setting["average"] else w).T)


# --- approximate minima perturbation

AMP = Grid(
    {
        "loss": ("logistic", "huber"),
        "norm": (0.1, 0.3, 1.0),  # L: rows are shortened to it
        "share": (0.5, 0.8, 0.9, 0.95, 0.98),  # of the objective's epsilon that goes to its noise
        "output": (0.001, 0.01, 0.1),  # share of epsilon and delta for the noise on the answer
        "ridge": (1.0, 4.0, 16.0),  # times the least Lambda
    },
    30,
)
WIDTH = 0.1  # of the Huber loss around a margin of 1, as in the paper
RANK = 2  # "r" of the paper for linear models


def slope_and_bend(loss: str, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivatives at margins z."""
    if loss == "logistic":
        p = expit(-z)
        return -p, p * (1 - p)
    steep = np.clip((1 + WIDTH - z) / (2 * WIDTH), 0.0, 1.0)
    return -steep, ((steep > 0) & (steep < 1)) / (2 * WIDTH)


def value(loss: str, z: np.ndarray) -> np.ndarray:
    if loss == "logistic":
        return np.logaddexp(0.0, -z)
    steep = np.clip((1 + WIDTH - z) / (2 * WIDTH), 0.0, 1.0)
    return WIDTH * steep**2 + np.maximum(1 - WIDTH - z, 0.0)


def minimum(
    a: np.ndarray, loss: str, ridge: float, b: np.ndarray, goal: float
) -> np.ndarray | None:
    """Newton's method with halving for mean loss + ridge ||w||^2 / 2 + b w; None if `goal` is
    not reached.
    """
    n, w = len(a), np.zeros(len(b))
    for _ in range(200):
        z = a @ w
        slope, bend = slope_and_bend(loss, z)
        g = a.T @ slope / n + ridge * w + b
        if np.linalg.norm(g) <= goal:
            return w
        step = -np.linalg.solve((a * bend[:, None]).T @ a / n + ridge * np.eye(len(b)), g)
        before, fall, t = value(loss, z).mean() + ridge / 2 * w @ w + b @ w, g @ step, 1.0
        room = 1e-14 * max(1.0, abs(before))
        while t > 1e-8:
            new = w + t * step
            if (
                value(loss, a @ new).mean() + ridge / 2 * new @ new + b @ new
                <= before + 1e-4 * t * fall + room
            ):
                break
            t /= 2
        w = w + t * step
    return None


def amp(
    folder: Path, table: str, k: int, setting: Setting, epsilon: float, seeds: list[int]
) -> np.ndarray | None:
    """Algorithm 1: noise in the objective, a minimiser to within gamma = 1 / n^2, noise on the
    answer.
    """
    dataset = load(folder, table, k)
    L, loss = setting["norm"], setting["loss"]
    a = signed(dataset, L)
    n, d = a.shape
    epsilon_2, delta_2 = setting["output"] * epsilon, setting["output"] * DELTA
    epsilon_1, delta_1 = epsilon - epsilon_2, DELTA - delta_2
    epsilon_3 = setting["share"] * epsilon_1  # for the noise; the rest is for the ridge
    if not 0 < epsilon_1 - epsilon_3 < 1:
        return None
    beta = L**2 * (0.25 if loss == "logistic" else 1 / (2 * WIDTH))
    Lambda = setting["ridge"] * RANK * beta / (epsilon_1 - epsilon_3)
    gamma = 1 / n**2
    sigma_1 = 2 * L / n * (1 + math.sqrt(2 * math.log(1 / delta_1))) / epsilon_3
    sigma_2 = n * gamma / Lambda * (1 + math.sqrt(2 * math.log(1 / delta_2))) / epsilon_2
    models = []
    for seed in seeds:
        rng = np.random.default_rng([seed, k, 2])
        w = minimum(a, loss, Lambda / n, sigma_1 * rng.standard_normal(d), gamma)
        if w is None:
            return None
        models.append(w + sigma_2 * rng.standard_normal(d))
    return errors_of(dataset, np.array(models))


# --- diffprivlib

DIFFPRIVLIB = Grid(
    {"C": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0), "data_norm": (1.0, 0.5, 0.25, 0.1)},
    24,
)


@lru_cache(maxsize=1)
def _server(folder: Path) -> subprocess.Popen[str]:
    command = [str(environment(folder, "diffprivlib")), str(HERE / "_tables_diffprivlib.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def diffprivlib(
    folder: Path, table: str, k: int, setting: Setting, epsilon: float, seeds: list[int]
) -> np.ndarray | None:
    """Its LogisticRegression without an intercept of its own: the rows have a constant column,
    within their norm.
    """
    dataset, server = load(folder, table, k), _server(folder)
    assert dataset.schema is not None
    rows = folder / "deals" / f"{table}-{k}-{dataset.schema.fingerprint[:12]}.npz"
    if not rows.exists():
        np.savez(rows, X=dataset.X_train, y=dataset.y_train)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(
        json.dumps({"rows": str(rows), "epsilon": epsilon, "seeds": seeds} | setting) + "\n"
    )
    server.stdin.flush()
    return errors_of(dataset, np.array(json.loads(server.stdout.readline())))


PEERS: dict[str, tuple[Peer, Grid]] = {
    "dp-gd": (clipped_gd, GD),
    "amp": (amp, AMP),
    "diffprivlib": (diffprivlib, DIFFPRIVLIB),
}


def best_peer(name: str, folder: Path, table: str, epsilon: float) -> Found:
    """A peer with the setting that is best on the test rows."""
    peer, grid = PEERS[name]

    def score(setting: Setting, full: bool) -> np.ndarray | None:
        many = REPLICATES if full else SCREENED if name != "diffprivlib" else SCREENED // 2
        first = 0 if full else SCREENING_SEED
        errors: list[Any] = []
        for k in range(DEALS if full else 1):
            found = peer(folder, table, k, setting, epsilon, list(range(first, first + many)))
            if found is None:
                return None
            errors.append(found)
        return np.array(errors)

    return search([grid], score)


def fresh(name: str, folder: Path, table: str, setting: Setting, epsilon: float) -> float:
    """The mean error of a peer's setting with noise that no choice saw, and that differs between
    deals.
    """
    seeds = [
        list(range(FRESH_SEED + k * FRESH, FRESH_SEED + (k + 1) * FRESH)) for k in range(DEALS)
    ]
    errors = [PEERS[name][0](folder, table, k, setting, epsilon, seeds[k]) for k in range(DEALS)]
    return float(np.mean([found for found in errors if found is not None]))
