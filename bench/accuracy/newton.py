"""Private Newton steps against momentum at the same total budget: does a noisy Hessian pay for
itself?

``python bench/accuracy/newton.py [--replicates 20] [--tables ...]``

About a minute.  Five sites, each site's releases with noise of its own, answers averaged over all
sites; or one curator with all rows.  Replace-one, delta 1e-5.

*momentum*: 50 or 100 noisy gradients, heavy ball 0.9, tail average, the best of four steps.
*newton*: the same, but a part of the budget buys one noisy matrix of second moments (Gaussian noise
on its entries, Frobenius sensitivity sqrt 2 / n).  Its eigenvalues are clipped at 0, a ridge is
added, and steps are multiplied by its inverse.  The best of two parts, three ridges and two steps,
with 50 rounds, is shown.  Knobs are chosen on the test rows, and Newton has more of them, which
favours it.  Both have the same two caps on gradients to choose from.  Of Adult, 10,000 training
rows.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

from sottovoce import data
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.util.typing import Array

DELTA, KEEP, SITES = 1e-5, 0.9, 5
CAPS, EPSILONS, ROWS = (1.0, 0.2), (0.1, 1.0), 10_000
TABLES = ("adult", "synthetic:n=10000,d=20,seed=0", "digits", "breast_cancer")
Split = tuple[Array, Array, Array]
"""Signed training rows, test rows, test labels."""


def table(name: str) -> Split:
    """Rows in the unit ball, scaled by public bounds, with a constant."""
    if name in ("digits", "breast_cancer"):
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        # Pixels are 0 to 16.  Bounds of the cells' measurements: generous round numbers, written
        # down in advance.
        cells = [
            30,
            40,
            200,
            2500,
            0.2,
            0.4,
            0.5,
            0.25,
            0.4,
            0.1,
            3,
            5,
            25,
            550,
            0.04,
            0.15,
            0.4,
            0.06,
            0.08,
            0.03,
        ]
        cells += [40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25]
        X = np.clip(X / (16.0 if name == "digits" else np.array(cells)), 0.0, 1.0)
        X = np.column_stack([X, np.ones(len(X))]) / math.sqrt(X.shape[1] + 1.0)
        y = np.where(y % 2 == 1, 1.0, -1.0)
        order, half = np.random.default_rng(1).permutation(len(X)), 3 * len(X) // 4
        train, test = order[:half], order[half:]
        return X[train] * y[train, None], X[test], y[test]
    found = data.load(name)
    signed = (found.X_train * found.y_train[:, None])[:ROWS]
    return signed, found.X_test, found.y_test


def gradient(a: Array, norms: Array, most: float, W: Array) -> Array:
    """Mean gradients of the capped logistic loss at W of shape (R, d)."""
    with np.errstate(over="ignore"):
        slopes = np.minimum(1.0 / (1.0 + np.exp(W.astype(np.float32) @ a.T)), most / norms)
    return np.asarray(-slopes @ a / len(a))


def descend(a: Array, noise: Array, most: float, step: float, inverse: Array | None) -> Array:
    """The tail average of heavy-ball steps, shape (R, d); `noise` has shape (rounds, R, d)."""
    norms = np.maximum(np.linalg.norm(a, axis=1), 1e-9)
    W = velocity = mean = np.zeros(noise.shape[1:])
    for k, own in enumerate(noise, start=1):
        velocity = KEEP * velocity + gradient(a, norms, most, W) + own
        W = W - step * (velocity if inverse is None else np.einsum("rij,rj->ri", inverse, velocity))
        mean = mean + 4.0 / (k + 3.0) * (W - mean)
    return mean


def best(
    split: Split, epsilon: float, sites: int, replicates: int, newton: bool
) -> tuple[float, float, str]:
    """Smallest mean error in percent over the knobs, its standard error, and the knobs."""
    a, X, y = (part.astype(np.float32) for part in split)
    d, n, mu = a.shape[1], len(a) // sites, gaussian_mu(epsilon, DELTA)
    found = []
    for most in CAPS:
        flat = most * (1.0 - most) if most < 0.5 else 0.25  # the largest curvature of a row
        for words, share, rounds, ridge, step in _knobs(newton):
            rng = np.random.default_rng(0)
            sigma = 2.0 * most / n / mu * math.sqrt(rounds / (1.0 - share)) / math.sqrt(sites)
            inverse = None
            if newton:
                noise = (
                    rng.normal(size=(replicates, d, d))
                    * math.sqrt(2.0)
                    / n
                    / (mu * math.sqrt(share * sites))
                )
                # every entry off the diagonal is there twice
                low = np.tril(noise, -1) / math.sqrt(2.0)
                noisy = (
                    a.T @ a / len(a)
                    + low
                    + low.swapaxes(1, 2)
                    + np.einsum("rii,ij->rij", noise, np.eye(d))
                )
                values, vectors = np.linalg.eigh(noisy)
                values = np.maximum(values, 0.0) + ridge
                inverse = np.einsum("rik,rk,rjk->rij", vectors, 1.0 / values, vectors)
            drawn = sigma * rng.normal(size=(rounds, replicates, d))
            models = descend(a, drawn, most, step / flat, inverse)
            errors = 100.0 * np.mean(np.sign(models @ X.T) != y, axis=1)
            spread = float(errors.std(ddof=1)) / math.sqrt(replicates)
            found.append((float(errors.mean()), spread, f"cap {most:g}, {words}"))
    return min(found)


def _knobs(newton: bool) -> Iterator[tuple[str, float, int, float, float]]:
    if not newton:
        for rounds in (50, 100):
            for step in (1 / 16, 1 / 4, 1.0, 1.9):
                yield f"{rounds} rounds, step {step:g}", 0.0, rounds, 0.0, step
        return
    for share in (0.1, 0.3):
        for ridge in (0.01, 0.05, 0.25):
            for step in (0.1, 0.5):
                yield (
                    f"{share:.0%} on the matrix, ridge {ridge:g}, step {step:g}",
                    share,
                    50,
                    ridge,
                    step,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicates", type=int, default=6)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    options = parser.parse_args()
    print(f"{'table':14}{'sites':>6}{'epsilon':>9}{'momentum':>17}{'newton':>17}  knobs of newton")
    for name in options.tables:
        split = table(name)
        for sites in (SITES, 1):
            for epsilon in EPSILONS:
                ours = best(split, epsilon, sites, options.replicates, newton=False)
                theirs = best(split, epsilon, sites, options.replicates, newton=True)
                shown = [f"{error:8.2f} ± {spread:.2f}" for error, spread, _ in (ours, theirs)]
                print(
                    f"{name[:12]:14}{sites:6}{epsilon:9g}{shown[0]:>17}{shown[1]:>17}  {theirs[2]}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
