"""Answers: every bounded sum and every recipe plays at a worst pair of tables, under local trust and in sums.

All is asked through the desk that answers people (:mod:`sottovoce.answers.asking`).  Rows have three entries, of which
the last is their constant, and the tables differ in one row of the smallest of three sites.  A release alone is
Gaussian, so the epsilon of its pair is also known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..answers import evaluation, inference, regression, slopes
from ..answers.asking import Desk, Item
from ..answers.naming import of_columns
from ..curator import Curator
from ..data.rows import Rows
from ..graphs import make_graph
from ..ledger.memory import Ledger
from ..losses import HuberResidual, Logistic, Loss
from ..privacy.events import GaussianMechanism
from ..privacy.gaussian import gaussian_epsilon
from ..queries import (
    Bounded,
    Curvature,
    Gradient,
    HuberGradient,
    NoisyBounded,
    Positives,
    Products,
    ResidualMoments,
    Residuals,
    Scores,
    SecondMoments,
    SlopeMoments,
)
from ..runs.config import RunConfig
from ..typing import Array
from ..weighted import Weighted
from .game import (
    Attack,
    Case,
    OpenNet,
    Recorder,
    Transcripts,
    Verdict,
    attacks,
    candidates,
    likelihood,
    solvers,
    transcripts,
    verdict,
)
from .likelihood import honest_sums
from .several import WorstVerdict, play_all

RUNS, QUICK_RUNS = 4_000, 1_000
DELTA = 0.1
D, SITES = 3, (30, 40, 40)
LAST = np.eye(D)[-1]
LOGISTIC = Logistic()


@dataclass(frozen=True)
class Asking(Case):
    """Two tables, and what a desk is asked about them.

    Attributes
    ----------
    loss : Loss
    plan : tuple of Item
    script : callable
        Asks for all of the plan.
    before : Asking, optional
        Releases about other rows.  The claim for both is the larger price of the two, as rows are in one of them only.
    """

    loss: Loss = LOGISTIC
    plan: tuple[Item, ...] = ()
    script: Callable[[Desk], object] = Desk.close
    before: Asking | None = None


@dataclass(frozen=True)
class Pair:
    """A sum at a public point, and the row that is replaced by another; rows of numbers have one to predict each."""

    what: Callable[[Array], Bounded]
    at: Array
    rows: tuple[Array, Array]
    numbers: tuple[float, float] | None = None
    long: bool = False


def _row(*x: float, norm: float = 1.0) -> Array:
    a = np.array(x)
    return np.asarray(norm * a / (np.linalg.norm(a) * (1.0 + 1e-12)))


_E0, _E1, _ZERO = _row(1, 0, 0), _row(0, 1, 0), np.zeros(D)
_TILT, _STEEP = np.array([0.0, 0.0, -0.1]), np.array([0.0, 0.0, 400.0])  # where slopes of both rows are at their bound
_LEFT, _RIGHT = _row(*(_E0 + _TILT)), _row(*(-_E0 + _TILT))
_ACROSS = (_row(1, 1, 0), _row(1, -1, 0))  # moments differ off the diagonal
PAIRS: dict[str, Pair] = {
    "gradient": Pair(Gradient, _STEEP, (_LEFT, _RIGHT)),
    "gradient, short rows": Pair(Gradient, _STEEP, (0.5 * _LEFT, 0.5 * _RIGHT), long=True),
    "second moments": Pair(SecondMoments, _ZERO, _ACROSS),
    "second moments, long rows": Pair(SecondMoments, _ZERO, (4.0 * _E0, 4.0 * _E1), long=True),
    "Hessian": Pair(Curvature, _ZERO, _ACROSS),
    "Hessian, bends cut": Pair(lambda at: Curvature(at, 0.1), _ZERO, (_E0, _E1)),
    "moments of slopes": Pair(SlopeMoments, _STEEP, (_LEFT, _row(*(_E1 + _TILT)))),
    "count of positives": Pair(lambda at: Positives(at, LAST), _ZERO, (_row(0, 0, 1), _row(0, 0, -1))),
    "scores": Pair(lambda at: Scores(at, LAST, np.array([0.0])), _E0, (_row(1, 0, 1), _row(-1, 0, 1))),
    "Huber step": Pair(lambda at: HuberGradient(at, 0.5), _ZERO, (_E0, _E0), (1.0, -1.0)),
    "cross moments": Pair(Products, _ZERO, (_E0, _E0), (1.0, -1.0)),
    "residuals": Pair(lambda at: Residuals(at, LAST, np.array([0.5])), _ZERO, (LAST, LAST), (0.1, 0.9)),
    "moments of residuals": Pair(lambda at: ResidualMoments(at, 0.5), _ZERO, (_E0, _E1), (1.0, -1.0)),
}
"""Of every kind of release the pair that moves it furthest, and pairs of rows that have weights."""
TRUSTS = ("nobody", "sum")


def tables(pair: Pair, victims: int = 1) -> tuple[Rows, Rows]:
    """Tables that differ in the first row of the first sites; the other rows are alike."""

    def one(world: int) -> Rows:
        signed = np.zeros((len(SITES), max(SITES), D))
        for i, n in enumerate(SITES):
            signed[i, :n] = [0.0, 0.0, 0.5]
        signed[:victims, 0] = pair.rows[world]
        rows = Rows(signed, np.array(SITES, dtype=float)[:, None], any_norm=pair.long)
        if pair.numbers is None:
            return rows
        first = [pair.numbers[world] if i < victims else 0.2 for i in range(len(SITES))]
        return rows.with_offset([np.array([t] + [0.2] * (n - 1)) for t, n in zip(first, SITES, strict=True)])

    return one(0), one(1)


def release(name: str, pair: Pair, config: RunConfig, victims: int = 1) -> Asking:
    """One release that spends the whole budget, at a fixed point."""

    def script(desk: Desk) -> None:
        desk.ask(name, np.broadcast_to(pair.at, (desk.replicates, D)))

    loss: Loss = LOGISTIC if pair.numbers is None else HuberResidual(1.0)
    return Asking(
        replace(config, sites_per_row=victims), tables(pair, victims), 0, f"{name}: the row that moves it furthest",
        loss=Weighted(loss) if pair.long else loss, plan=(Item(name, pair.what, 1.0),), script=script,
    )  # fmt: skip


def recipes(config: RunConfig) -> dict[str, Asking]:
    """All that answers ask for, at points that follow from earlier answers."""
    naming, why = of_columns(["x0", "x1"], 1.0), "a row whose answer is replaced by its opposite"
    flipped = Pair(Gradient, _ZERO, (_row(1, 0, 1), _row(1, 0, -1)))
    numbers = Pair(Products, _ZERO, (_row(0, 0, 1),) * 2, (1.0, -1.0))

    def held(desk: Desk) -> None:
        evaluation.ask(desk, np.broadcast_to(2.0 * np.eye(D)[:1, :-1], (desk.replicates, D - 1)), 0.5)

    return {
        "inference": Asking(
            config, tables(flipped), 0, why, plan=inference.recipe(LAST),
            script=lambda desk: inference.estimate(desk, naming),
        ),
        "evaluation": Asking(config, tables(flipped), 0, why, plan=evaluation.recipe(D), script=held),
        "regression": Asking(
            config, tables(numbers), 0, why, loss=HuberResidual(1.0), plan=regression.recipe(LAST),
            script=lambda desk: regression.least_squares(desk, np.ones(D, dtype=bool), LAST > 0),
        ),
        "regression with intervals": Asking(
            config, tables(numbers), 0, why, loss=HuberResidual(1.0), plan=slopes.recipe(LAST),
            script=lambda desk: slopes.estimate(desk, naming),
        ),
    }  # fmt: skip


def held_out(config: RunConfig, trained: bool = False) -> Asking:
    """A gradient of training rows, then scores of held-out rows; with `trained` the held-out row was trained on."""
    rows = PAIRS["gradient"].rows
    training = replace(PAIRS["gradient"], rows=rows if trained else rows[:1] * 2)
    return replace(
        release("scores", replace(PAIRS["scores"], rows=rows), config), before=release("gradient", training, config),
        why="a held-out row; the training rows are the same",
    )  # fmt: skip


def cases(epsilon: float | None = None, delta: float | None = None) -> dict[str, Asking]:
    """Every release, every recipe, and held-out rows beside training rows, by name and trust."""
    found: dict[str, Asking] = {}
    for trust in TRUSTS:
        config = RunConfig(
            method="auto", trust=trust, epsilon=1.0 if epsilon is None else epsilon,
            delta=DELTA if delta is None else delta,
        )  # fmt: skip
        mark = ", summed" if trust == "sum" else ""
        found |= {name + mark: release(name, pair, config) for name, pair in PAIRS.items()}
        found |= {name + mark: case for name, case in recipes(config).items()}
        found["held-out rows" + mark] = held_out(config)
        if trust == "sum":  # one of three sites colludes, so a person at two of them has all other rows
            found["cross moments, two sites"] = release("cross moments", PAIRS["cross moments"], config, victims=2)
    return found


def watch(case: Asking, world: int, replicates: int, seed: int) -> Transcripts:
    """Ask a desk for all of a case, and keep what leaves the sites."""
    config = replace(case.config, seed=seed, replicates=replicates)
    desk = Desk.open(config, case.worlds[world], case.loss, case.plan)
    curator = desk.place.curator
    assert isinstance(curator, Curator) and isinstance(desk.book, Ledger)
    if case.noise is not None:
        curator.noise = case.noise(seed, range(replicates), range(len(SITES)))
    curator = replace(curator, ledger=desk.book if case.book is None else case.book(desk.book))
    seen, net = Recorder(curator, desk.facts), OpenNet(make_graph("complete", len(SITES)))
    desk.place = replace(desk.place, curator=seen, net=net)
    case.script(desk)
    return transcripts(case, seen, net, desk.book, curator.ledger.rows)


def shift(case: Asking, seen: Transcripts) -> float:
    """Shift over sigma between the two tables in a case of one release."""
    if seen.opened:
        middles, deviation = honest_sums(seen.opened[0], case.worlds, seen.facts, solvers(case), case.known)
        return float(np.linalg.norm((middles[1] - middles[0])[0, 0])) / deviation
    query, tables = seen.asked[0][0], candidates(case, seen.facts)
    event = query.event(seen.facts)
    assert isinstance(query, NoisyBounded) and isinstance(event, GaussianMechanism)
    first, second = (one.silent(one.cut(query)) for one in tables)
    return float(np.linalg.norm((second - first)[0, 0]) / event.sigma[case.victim])


def play_one(case: Asking, replicates: int = RUNS, *, seed: int = 0, confidence: float = 0.95) -> Verdict:
    """Play one case, as :func:`sottovoce.audit.game.play` does; of single releases the exact epsilon is known."""
    parts = (case,) if case.before is None else (case.before, case)
    seen = [
        (watch(one, 0, replicates, seed + k), watch(one, 1, replicates, seed + k + 1000)) for k, one in enumerate(parts)
    ]
    found = attacks(case, seen[-1])
    if case.before is not None:  # what the likelihood ratio says of both together
        scores = [likelihood(one, pair).scores for one, pair in zip(parts, seen, strict=True)]
        found = [Attack("likelihood ratio", (scores[0][0] + scores[1][0], scores[0][1] + scores[1][1]), 0)]
    exact = None
    if all(len(one.plan) == 1 for one in parts):
        mu = math.hypot(*(shift(one, pair[0]) for one, pair in zip(parts, seen, strict=True)))
        exact = gaussian_epsilon(case.config.delta or 0.0, mu)
    said = verdict(case, [one for pair in seen for one in pair], found, confidence)
    return replace(said, exact_epsilon=exact, rounds=said.releases)


def play(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int | None = None,
    replicates: int = RUNS,
    seed: int = 0,
    confidence: float = 0.95,
    stands: Mapping[str, Asking] | None = None,
) -> WorstVerdict:
    """Play every game, and return the verdict that is worst for its claim.

    Parameters
    ----------
    epsilon, delta : float, optional
        Of every game; by default 1 at 0.1.
    rounds : int, optional
        Of no meaning here: a recipe has as many releases as it has.
    replicates : int
        Of each world, for every game.
    seed : int
    confidence : float
        That no bound of any game is false: each bound takes its share of the error.
    stands : mapping, optional
        What is attacked, by name; :func:`cases` by default.

    Returns
    -------
    WorstVerdict
        ``games`` has the bound of every release and recipe, and the exact epsilon of every release.

    Raises
    ------
    InvalidInput
    """
    stands = cases(epsilon, delta) if stands is None else stands
    return play_all(
        "answers", stands, confidence, lambda case, each: play_one(case, replicates, seed=seed, confidence=each)
    )
