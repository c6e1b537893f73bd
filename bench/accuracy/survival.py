"""Survival without noise beside lifelines, on five public trials and three kinds of censoring.

For each trial, as it is and with uniform, early and late censoring: the largest difference at an
edge between the curve of people without columns and lifelines' Kaplan-Meier estimate, and between
log hazards and the maximum of the grouped likelihood, found here by plain Newton steps.  The exit
status is 1 if a line misses .005 or .01.

    scripts/bench survival

It needs lifelines, whose package holds the trials: ``pip install lifelines``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from sottovoce import ConsensusSurvival
from sottovoce.util.typing import Array, BoolArray

CURVE, LOG_HAZARDS = 0.005, 0.01
"""Largest differences."""
INTERVALS = 5
CENSORING = ("as it is", "uniform", "early", "late")


class Trial(NamedTuple):
    name: str
    X: Array  # columns, centred and of deviation one third  (n, d)
    time: Array
    event: BoolArray


def trials(datasets: Any) -> Iterator[Trial]:
    """Five trials that lifelines holds."""
    rossi = datasets.load_rossi()
    yield trial("rossi", rossi, ["fin", "age", "prio"], "week", rossi["arrest"] == 1)
    gbsg2 = datasets.load_gbsg2()
    gbsg2["treated"] = gbsg2["horTh"] == "yes"
    yield trial("gbsg2", gbsg2, ["treated", "age", "tsize", "pnodes"], "time", gbsg2["cens"] == 1)
    lung = datasets.load_lung().dropna(subset=["age", "sex", "ph.ecog"])
    yield trial(
        "lung", lung, ["age", "sex", "ph.ecog"], "time", lung["status"] == lung["status"].max()
    )
    kidney = datasets.load_kidney_transplant()
    columns = ["age", "black_male", "white_male", "black_female"]
    yield trial("kidney", kidney, columns, "time", kidney["death"] == 1)
    larynx = datasets.load_larynx()
    yield trial(
        "larynx", larynx, ["age", "Stage_II", "Stage_III", "Stage_IV"], "time", larynx["death"] == 1
    )


def trial(name: str, frame: Any, columns: list[str], time: str, event: Any) -> Trial:
    X = frame[columns].to_numpy(float)
    return Trial(
        name,
        (X - X.mean(axis=0)) / (3.0 * X.std(axis=0)),
        frame[time].to_numpy(float),
        event.to_numpy(),
    )


def censored(one: Trial, how: str) -> Trial:
    """People leave at a random time between the start and the end of the follow-up."""
    rng, end = np.random.default_rng(1), float(one.time.max())
    draws = {"uniform": (1.0, 1.0), "early": (1.0, 3.0), "late": (3.0, 1.0)}
    if how not in draws:
        return one
    until = end * rng.beta(*draws[how], size=len(one.time))
    return one._replace(time=np.minimum(one.time, until), event=one.event & (one.time <= until))


def grouped_maximum(one: Trial, edges: Array) -> Array:
    """Slopes and then constants at the maximum of the grouped likelihood; an interval without
    the event by its part.
    """
    m = len(edges) - 1
    blocks, labels, weights = [], [], []
    for j in range(m):
        start, end = edges[j], edges[j + 1]
        at_risk = one.time > start
        came = one.event & (one.time <= end)
        part = np.clip((one.time - start) / (end - start), 0.0, 1.0)
        blocks.append(np.hstack([one.X, np.tile(np.eye(m)[j], (len(one.X), 1))])[at_risk])
        labels.append(came[at_risk].astype(float))
        weights.append(np.where(came, 1.0, part)[at_risk])
    rows, label, weight = np.vstack(blocks), np.concatenate(labels), np.concatenate(weights)
    w = np.zeros(rows.shape[1])
    for _ in range(100):
        p = expit(rows @ w)
        hessian = (rows * (weight * p * (1.0 - p))[:, None]).T @ rows
        step = np.linalg.solve(hessian, rows.T @ (weight * (label - p)))
        w = w + step * min(1.0, 2.0 / float(np.abs(rows @ step).max()))
    return w


def main() -> int:
    try:
        import lifelines
        from lifelines import datasets
    except ImportError:
        print(
            "this comparison is with lifelines, which is not installed: pip install lifelines",
            file=sys.stderr,
        )
        return 2
    print(
        f"{'trial':8} {'censoring':10} {'people':>6} {'events':>6} {'curve':>8} {'log hazards':>12}"
    )
    missed = False
    for whole in trials(datasets):
        for how in CENSORING:
            one = censored(whole, how)
            # as far as events reach: where an interval has none, the likelihood has no maximum
            edges = np.linspace(0.0, float(np.quantile(one.time[one.event], 0.95)), INTERVALS + 1)
            terms: dict[str, Any] = {"epsilon": np.inf, "trust": "sum", "random_state": 0}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                curve = ConsensusSurvival(edges, **terms).fit(
                    np.zeros((len(one.X), 1)), one.time, one.event
                )
                norm = float(np.linalg.norm(one.X, axis=1).max()) * 1.001
                model = ConsensusSurvival(edges, data_norm=norm, **terms).fit(
                    one.X, one.time, one.event
                )
                fitted = lifelines.KaplanMeierFitter().fit(one.time, one.event)
            known = fitted.survival_function_at_times(edges[1:]).to_numpy()
            off = float(np.abs(curve.predict_survival([[0.0]])[0] - known).max())
            best = grouped_maximum(one, edges)
            found = np.concatenate([model.coef_, model.intercept_ - model.correction_])
            apart = float(np.abs(found - best).max())
            bad = not (off <= CURVE and apart <= LOG_HAZARDS and model.converged_)
            missed |= bad
            line = (
                f"{one.name:8} {how:10} {len(one.X):6} {int(one.event.sum()):6} {off:8.5f} "
                f"{apart:12.2e}"
            )
            print(line + ("  MISSED" if bad else ""))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
