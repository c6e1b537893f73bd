"""Private ADMM (Cyffers, Bellet and Basu, ICML 2023) on the synthetic Lasso of its public code,
beside ours.

``scripts/bench private_admm [--quick] [--seeds N] [--json FILE]``

The problem, after the public code's `data.py` and `main.py` (github.com/totilas/padadmm, commit
937fdd1): 1000 rows of 64 standard normal columns, 8 coefficients uniform in (0, 1) and 56 zeros,
noise of deviation 0.1 on the outcome; 800 rows train, a row is a user.  The score is the Lasso's
objective on the other 200, ``mean (x.w - y)^2 + kappa ||w||_1``, with kappa as cross-validation
picks it.  Every row of the table is a mean over seeds of data and noise, with the standard
deviation of one seed.  delta is 1e-6; neighbours differ in one user, who takes part or not
(zero-out); what is released is every iterate of the server, which sees sums over users only.

The iteration, from the paper's formulas: 100 of the 800 users take part in a round; each sends ``2
lambda clip(x_i - z, L)`` with ``x_i = prox_{gamma f_i}(2 z - u_i)``, plus noise, and adds it to its
own u_i; the server takes ``z = prox_{gamma r}(mean of the u_i)``.  lambda and gamma are those of
the public code; so are L and 1000 rounds where nothing else is said.

* "as in the code" draws what `main.py` draws: `scale_noise` = ``2 L^2 T / (rho n^2)`` with rho the
  zCDP of the claimed epsilon and n = 1000.  It is the variance of the noise that a mean over all
  users needs; the code uses it as the standard deviation of each user's noise.  What is proved is
  the price of sums, by Renyi divergences of the sampled Gaussian (Mironov, Talwar and Zhang 2019),
  as if users were drawn independently.  *No less than* is the exact epsilon of a single round, in
  which a user who sends the longest vector takes part with probability 1/8, or never.
* "calibrated" is the same iteration with the noise that this price asks for at epsilon, the best of
  several numbers of rounds, of L and of lambda; "all users" has every user in every round, at the
  exact price of Gaussian releases.
* "momentum" is ours with a trusted curator, on rows over 11 and outcomes over 5 (longer ones are
  shortened), Huber's loss of residuals and no L1 norm, at the exact price of Gaussian releases, the
  best of several caps and rounds.

"Best" is by the mean test score, so it looks at the test rows; that is the same for all, and the
first row of the code also takes the best round by its test score, as its figure does.  About five
minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from sklearn.linear_model import LassoCV

from sottovoce.data.rows import Rows
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

EPSILONS, DELTA = (0.5, 1.0, 5.0), 1e-6
ROWS, COLUMNS, SUPPORT, NOISE, TRAINED = 1000, 64, 8, 0.1, 800
LAMBDA, GAMMA, CLIP, ROUNDS, SHARE = 0.464159, 1.584893, 1.6, 1000, 0.125
CLIPS, RELAXATIONS = (0.1, 0.4, CLIP), (0.05, LAMBDA)
LONGEST_ROW, LONGEST_OUTCOME = 11.0, 5.0
ORDERS = np.arange(2, 257)


@dataclass(frozen=True)
class Problem:
    """One draw: training and test rows, and the weight of the L1 norm."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    kappa: float

    @classmethod
    def draw(cls, seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(ROWS, COLUMNS))
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        w = np.zeros(COLUMNS)
        w[rng.choice(COLUMNS, size=SUPPORT, replace=False)] = rng.uniform(size=SUPPORT)
        y = X @ w + NOISE * rng.normal(size=ROWS)
        kappa = float(LassoCV(cv=5).fit(X[:TRAINED], y[:TRAINED]).alpha_)
        return cls(X[:TRAINED], y[:TRAINED], X[TRAINED:], y[TRAINED:], kappa)

    def score(self, w: np.ndarray) -> float:
        residuals = self.X_test @ w - self.y_test
        return float(np.mean(residuals**2) + self.kappa * np.sum(np.abs(w)))


def iterate(
    problem: Problem,
    rounds: int,
    share: float,
    noise: float,
    rng: np.random.Generator,
    clip: float = CLIP,
    relaxation: float = LAMBDA,
    watch: bool = False,
) -> tuple[np.ndarray, float]:
    """Private ADMM from zero: the last iterate, and the best test score of a round if the run is
    watched.

    Parameters
    ----------
    share : float
        Share of the users that take part in a round.
    noise : float
        Standard deviation of a coordinate of the noise of one user, over the relaxation lambda.
    """
    X, y, n = problem.X, problem.y, len(problem.y)
    u, mean, best = np.zeros_like(X), np.zeros(COLUMNS), math.inf
    # f_i = (x.w - y)^2 / 2, so r is n kappa / 2 times the L1 norm
    threshold = GAMMA * problem.kappa / 2.0
    z = np.zeros(COLUMNS)
    stiff = 1.0 + GAMMA * np.sum(X**2, axis=1)
    for _ in range(rounds):
        who = np.arange(n) if share == 1.0 else rng.choice(n, size=round(share * n), replace=False)
        point = 2.0 * z - u[who]
        errors = np.sum(X[who] * point, axis=1) - y[who]
        moved = point - (GAMMA * errors / stiff[who])[:, None] * X[who] - z
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        moved = moved * np.minimum(1.0, clip / np.maximum(length, 1e-300))
        sent = relaxation * (2.0 * moved + noise * rng.normal(size=moved.shape))
        u[who] += sent
        mean = mean + sent.sum(axis=0) / n
        z = np.sign(mean) * np.maximum(0.0, np.abs(mean) - threshold)
        if watch:
            best = min(best, problem.score(z))
    return z, best


def sampled_epsilon(multiplier: float, share: float, rounds: int) -> float:
    """Epsilon at DELTA of `rounds` sampled Gaussian releases whose noise is `multiplier` times
    the sensitivity.
    """
    divergences = []
    for order in ORDERS:
        k = np.arange(order + 1)
        chosen = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        mixed = chosen + k * math.log(share) + (order - k) * math.log1p(-share)
        divergences.append(logsumexp(mixed + k * (k - 1) / (2.0 * multiplier**2)) / (order - 1))
    total = rounds * np.array(divergences)
    # Canonne et al. 2020
    closer = np.log1p(-1.0 / ORDERS) - (math.log(DELTA) + np.log(ORDERS)) / (ORDERS - 1)
    return float(max(0.0, np.min(total + closer)))


def one_round_epsilon(multiplier: float, share: float) -> float:
    """The exact epsilon at DELTA of one such release, of the law with the user against that
    without.
    """

    def excess(epsilon: float) -> float:
        odds = epsilon + math.log1p((share - 1.0) * math.exp(-epsilon)) - math.log(share)
        bar = 0.5 + multiplier**2 * odds
        without, taking = ndtr(-bar / multiplier), ndtr((1.0 - bar) / multiplier)
        charged = math.exp(epsilon + float(log_ndtr(-bar / multiplier)))
        return float(share * taking + (1.0 - share) * without - charged - DELTA)

    return float(brentq(excess, 1e-6, 500.0))


def multiplier_for(epsilon: float, share: float, rounds: int) -> float:
    """Noise over sensitivity that gives this epsilon."""
    if share == 1.0:
        return math.sqrt(rounds) / gaussian_mu(epsilon, DELTA)
    return float(brentq(_excess, 0.1, 1e4, args=(epsilon, share, rounds), rtol=1e-6))


def _excess(multiplier: float, epsilon: float, share: float, rounds: int) -> float:
    return sampled_epsilon(multiplier, share, rounds) - epsilon


def code_noise(epsilon: float) -> float:
    """`scale_noise` of the public code at a claimed epsilon."""
    root = math.sqrt(epsilon + math.log(1.0 / DELTA)) - math.sqrt(math.log(1.0 / DELTA))
    return 2.0 * CLIP**2 * ROUNDS / (root**2 * ROWS**2)


def user_noise(epsilon: float, share: float, rounds: int, clip: float) -> float:
    """Of one of the users who take part, over lambda: their sum has the multiplier times a
    user's most, 2 L.
    """
    return 2.0 * clip * multiplier_for(epsilon, share, rounds) / math.sqrt(share * TRAINED)


def momentum(problem: Problem, epsilon: float, seed: int, rounds: int, cap: float) -> np.ndarray:
    """The last model of ours, in the units of the problem."""
    scale = np.maximum(LONGEST_ROW, np.linalg.norm(problem.X, axis=1, keepdims=True)) * (1.0 + 1e-9)
    outcomes = np.clip(problem.y / LONGEST_OUTCOME, -1.0, 1.0)
    config = RunConfig.from_dict(
        {
            "method": "momentum",
            "trust": "curator",
            "epsilon": epsilon,
            "delta": DELTA,
            "relation": "zero-out",
            "seed": seed,
            "rho": 1e-4,
            "loss": "huber-residual:0.1",
            "rounds": rounds,
            "max_grad_norm": cap,
        }
    )
    rows = Rows.build_from_parts([(problem.X / scale, np.ones(len(outcomes)))], [outcomes])
    return np.asarray(simulate(config, rows).models[0, 0] * LONGEST_OUTCOME / LONGEST_ROW)


@dataclass(frozen=True)
class Line:
    """One row of the table: scores by seed, at settings that were the best of some."""

    method: str
    epsilon: float
    proved: float
    settings: str
    scores: list[float]
    no_less: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))


def best(lines: list[Line]) -> Line:
    return min(lines, key=_mean)


def _mean(line: Line) -> float:
    return line.mean


def calibrated(
    problems: list[Problem], epsilon: float, share: float, name: str, numbers: tuple[int, ...]
) -> Line:
    """Private ADMM with the noise of this epsilon, the best of these numbers of rounds and of
    `CLIPS`.
    """
    found = []
    for rounds in numbers:
        for clip, relaxation in product(CLIPS, RELAXATIONS):
            noise = user_noise(epsilon, share, rounds, clip)
            scores = []
            for seed, one in enumerate(problems):
                rng = np.random.default_rng(1000 + seed)
                scores.append(
                    one.score(iterate(one, rounds, share, noise, rng, clip, relaxation)[0])
                )
            settings = f"{rounds} rounds, L {clip:g}, lambda {relaxation:g}"
            found.append(Line(name, epsilon, epsilon, settings, scores))
    return best(found)


def code_lines(problems: list[Problem], epsilon: float) -> list[Line]:
    """What the public code draws at a claimed epsilon, with what it costs; the last round, and
    the best one.
    """
    noise = code_noise(epsilon)
    multiplier = noise * math.sqrt(SHARE * TRAINED) / (2.0 * CLIP)
    proved, no_less = (
        sampled_epsilon(multiplier, SHARE, ROUNDS),
        one_round_epsilon(multiplier, SHARE),
    )
    last, least = [], []
    for seed, one in enumerate(problems):
        z, lowest = iterate(
            one, ROUNDS, SHARE, noise, np.random.default_rng(1000 + seed), watch=True
        )
        last.append(one.score(z))
        least.append(lowest)
    return [
        Line(
            "ADMM, noise as in the code, best round",
            epsilon,
            proved,
            f"{ROUNDS} rounds",
            least,
            no_less,
        ),
        Line(
            "ADMM, noise as in the code, last round",
            epsilon,
            proved,
            f"{ROUNDS} rounds",
            last,
            no_less,
        ),
    ]


def ours(problems: list[Problem], epsilon: float, quick: bool) -> Line:
    found = []
    grid = [(20, 0.3)] if quick else product((100, 300, 1000), (0.1, 0.3, 1.0))
    for rounds, cap in grid:
        scores = [
            one.score(momentum(one, epsilon, seed, rounds, cap))
            for seed, one in enumerate(problems)
        ]
        found.append(
            Line("momentum, ours", epsilon, epsilon, f"{rounds} rounds, cap {cap}", scores)
        )
    return best(found)


def measure(seeds: int, quick: bool) -> list[Line]:
    """All rows of the table."""
    problems = [Problem.draw(seed) for seed in range(seeds)]
    nothing = Line(
        "all coefficients zero", 0.0, 0.0, "", [one.score(np.zeros(COLUMNS)) for one in problems]
    )
    exact = [
        one.score(iterate(one, 300, 1.0, 0.0, np.random.default_rng(0))[0]) for one in problems
    ]
    lines = [nothing, Line("ADMM without noise", math.inf, math.inf, "300 rounds", exact)]
    sampled, full = ((30, 300), (3, 10)) if quick else ((100, 1000), (3, 30, 300))
    for epsilon in EPSILONS[1:2] if quick else EPSILONS:
        lines += code_lines(problems, epsilon)
        lines.append(calibrated(problems, epsilon, SHARE, "ADMM, calibrated", sampled))
        lines.append(calibrated(problems, epsilon, 1.0, "ADMM, all users", full))
        lines.append(ours(problems, epsilon, quick))
    return lines


def show(lines: list[Line]) -> None:
    table = Table(
        "method", "asked or claimed", "proved", "no less than", "test objective", "sd", "settings"
    )
    for line in lines:
        spread = float(np.std(line.scores, ddof=1)) if len(line.scores) > 1 else math.nan
        table.add_row(
            line.method,
            f"{line.epsilon:g}",
            f"{line.proved:.3g}",
            f"{line.no_less:.2f}" if line.no_less else "",
            f"{line.mean:.3f}",
            f"{spread:.3f}",
            line.settings,
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two seeds, one epsilon, few settings")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    said = parser.parse_args()
    lines = measure(2 if said.quick else said.seeds, said.quick)
    show(lines)
    if said.json is not None:
        plain = [vars(line) | {"mean": line.mean} for line in lines]
        said.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
