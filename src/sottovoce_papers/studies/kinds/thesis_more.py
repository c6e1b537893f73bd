"""Further cells of 003: the Huber loss, Theorem 3.6, the numbers of section 5.3, and the proposals
of section 6.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import make_loss
from sottovoce.util.typing import Any, Array

from ...aggregation import Fit, Terms, average, feature, local
from ...utility import generalised_objective_perturbation
from . import LETTER, Row, check
from .thesis_data import derived, load, splits
from .thesis_models import DELTA, algorithm_3, one_site, parties

_IMPROVED = {
    "data",
    "pca",
    "loss",
    "Lambda",
    "epsilon",
    "sites",
    "rows",
    "aggregator_rows",
    "splits",
}
_OURS = {"replicates", "seed"}


def huber(p: Mapping[str, Any]) -> list[Row]:
    """Tabulate the Huber loss over its margin, and run one site at each Huber constant `h` (Figure
    3.3 and its claim).

    Other parameters as of one_site.  Rows with ``what`` "loss" have `margin` and `value`; those
    with "error" are one_site's.
    """
    loss = make_loss(f"huber:{p['h']:g}")
    margins = np.linspace(-1.0, 3.0, 81)
    out: list[Row] = [
        {"replicate": 0, "what": "loss", "margin": float(z), "value": float(v)}
        for z, v in zip(margins, loss.value(margins), strict=True)
    ]
    inner = {key: value for key, value in p.items() if key != "h"} | {"loss": loss.spec}
    return out + [row | {"what": "error"} for row in one_site(inner)]


AXES = ("rows", "epsilon", "features")


def orders(p: Mapping[str, Any]) -> list[Row]:
    """Measure the excess loss of Algorithm 3 along one variable of Theorem 3.6, beside the printed
    order of growth.

    At every point the problem is one on which the theorem's bound is attained up to a constant.
    All rows are ``s u``, u a unit vector, on the linear piece of the Huber loss, so
    that J is ``Lambda / 2 ||f||^2 - s u.f`` up to a constant, with its minimiser of norm 1 where s
    is Lambda; and Lambda is Delta / n, as much as Algorithm 3 adds.  With less curvature in J the
    noise costs less, and with more J itself keeps the model in place.

    Parameters
    ----------
    p : mapping
        `law`, "spherical" (the pure case, (3.6)) or "gaussian" ((3.7) at delta 1e-5); `axis`, the
        one of "rows", "epsilon" and "features" that takes each of `values`, of which there are two
        or more; `rows`, `epsilon` and `features`, which are n, epsilon in nats, and d; `along`, a
        label for one of several pieces of an axis.

    Returns
    -------
    rows with `value`, `excess` (nats), `order` and `ratio` (excess over order); and one a replicate
    with `slope`, `order_slope` and `beyond`: jackknife pseudovalues of the least-squares slope of
    the logarithm of the mean loss along the logarithm of the axis, that of the order, and their
    difference.
    """
    check(p, _OURS | {"law", "axis", "values", "along", *AXES})
    axis, values = p["axis"], sorted(float(value) for value in p["values"])
    if axis not in AXES or len(values) < 2:
        rule = f"must be one of {', '.join(AXES)}, with two values or more"
        raise InvalidInput("axis", axis, rule, "correct it")
    out: list[Row] = []
    excesses, printed = [], []
    for place, value in enumerate(values):
        lost, order = _lost_at({**p, axis: value, "seed": derived(int(p["seed"]), place)})
        excesses.append(lost)
        printed.append(order)
        for k, excess in enumerate(lost.tolist()):
            out.append(
                {
                    "value": value,
                    "replicate": k,
                    "order": order,
                    "excess": excess,
                    "ratio": excess / order,
                }
            )
    at = np.log(values)
    order_slope = slope_of(at, np.array(printed))
    for k, found in enumerate(jackknifed_slopes(at, np.array(excesses))):
        out.append(
            {
                "replicate": k,
                "slope": found,
                "order_slope": order_slope,
                "beyond": found - order_slope,
            }
        )
    return out


def _lost_at(p: Mapping[str, Any]) -> tuple[Array, float]:
    """Return the excess losses (R,) of Algorithm 3 on the hardest problem of this size, and the
    theorem's order of growth.
    """
    n, d, epsilon = int(p["rows"]), int(p["features"]), float(p["epsilon"])
    gaussian, delta = False, None
    if p["law"] == "gaussian":
        gaussian, delta = True, DELTA
    said = generalised_objective_perturbation(n=n, d=d, epsilon=epsilon, norm=1.0, delta=delta)
    Lambda = said.Delta / n
    # of a row's norm, so that noisy models stay on the loss's linear piece, margins below 1/2
    most = 0.1
    if Lambda > most:
        rule = f"would need rows of norm {Lambda:.2g}, but at most {most} is allowed"
        raise InvalidInput("epsilon", epsilon, rule, "raise epsilon or rows, or lower features")
    rows = Rows.build_from_parts([(np.full((n, d), Lambda / math.sqrt(d)), np.ones(n))])
    best = np.full(d, 1.0 / math.sqrt(d))
    terms = Terms(epsilon, Lambda=Lambda, loss="huber:0.5", seed=int(p["seed"]), tol=1e-9)
    terms = replace(terms, replicates=int(p["replicates"]))
    found, _ = algorithm_3(rows, terms, np.array([[said.Delta / n]]), gaussian)
    loss, signed = make_loss(terms.loss), rows.signed[0, :1]  # all rows are alike

    def objective(w: Array) -> Array:
        return np.asarray(loss.value(w @ signed.T)[..., 0] + Lambda / 2.0 * (w**2).sum(axis=-1))

    return objective(found[:, 0]) - float(objective(best[None])[0]), said.order


def slope_of(at: Array, values: Array) -> float:
    """Compute the least-squares slope of the logarithm of `values` (places,) along `at`."""
    return float(np.polyfit(at, np.log(values), 1)[0])


def jackknifed_slopes(at: Array, values: Array) -> list[float]:
    """Compute jackknife pseudovalues, one per replicate, of the :func:`slope_of` the means of
    `values` (places, R).
    """
    many, whole = values.shape[1], slope_of(at, values.mean(axis=1))
    if many == 1:
        return [whole]
    left = (values.sum(axis=1, keepdims=True) - values) / (many - 1)
    return [many * whole - (many - 1) * slope_of(at, left[:, k]) for k in range(many)]


CHANGES = {"local": 0.36, "global": 0.02}
"""By how much errors change over the values of epsilon of 003, section 5.3, as it prints them."""


def changes(p: Mapping[str, Any]) -> list[Row]:
    """Compute, for every method, the error at the first of two `values` of epsilon minus that at
    the second (section 5.3).

    Other parameters are those of parties.  `source` is "here", or "003" for rows with the numbers
    that it prints.
    """
    plain = {key: value for key, value in p.items() if key != "values"}
    found = [
        parties(plain | {"epsilon": e, "setting": "private", "models": True}) for e in p["values"]
    ]
    out: list[Row] = []
    for method in dict.fromkeys(row["method"] for row in found[0]):
        first, last = (_by_replicate(cell, method) for cell in found)
        for k, error in first.items():
            row: Row = {"method": method, "replicate": k}
            out.append(row | {"source": "here", "change": error - last[k]})
            if (said := CHANGES.get(method.removesuffix(LETTER))) is not None:
                out.append(row | {"source": "003", "change": said})
    return out


def _by_replicate(cell: list[Row], method: str) -> dict[int, float]:
    """Return the mean error of a method's models, by replicate."""
    own: dict[int, list[float]] = {}
    for row in cell:
        if row["method"] == method:
            own.setdefault(row["replicate"], []).append(row["error"])
    return {k: float(np.mean(errors)) for k, errors in own.items()}


def improved(p: Mapping[str, Any]) -> list[Row]:
    """Run the proposals of section 6.2.2 with public rows at the aggregator: the d best independent
    models of many sites, and boosting.

    Parameters as of parties, without `setting`.  Everything after the sites' releases reads only
    these and public rows, so it costs no privacy.
    """
    check(p, _OURS | _IMPROVED)
    held, out, N = load(p["data"], p["pca"]), [], int(p["sites"])
    private = math.isfinite(float(p["epsilon"]))
    for seed, first, some in splits(p, private):
        dealt = held.deal([int(p["rows"])] * N + [int(p["aggregator_rows"])], seed)
        terms = Terms(
            float(p["epsilon"]),
            Lambda=float(p["Lambda"]),
            loss=p["loss"],
            seed=seed,
            replicates=some,
        )
        sites, aggregator = Rows.build_from_parts(dealt[:N]), Rows.build_from_parts(dealt[N:])
        alone, public = local(sites, terms), aggregator.rows_of_node(0).signed[0]
        rough = replace(terms, tol=1e-5)
        few = replace(
            alone, models=np.stack([picked(M, public, held.X.shape[1]) for M in alone.models])
        )
        fits: dict[str, Fit] = {
            "average": average(alone),
            "feature, all sites": feature(alone, aggregator, rough, "public"),
            "feature, d independent": feature(few, aggregator, rough, "public"),
            "boosting": replace(alone, models=np.stack([boost(M, public) for M in alone.models])),
        }
        for name, fit in fits.items():
            row: Row = {
                "method": name,
                "target": terms.epsilon,
                "epsilon": alone.sites.epsilon,
            } | held.notes
            row["_privacy"] = held.told(
                f"{name}: protects {alone.sites.protects}; the aggregator's rows are public"
            )
            out += [
                row | {"replicate": first + k, "error": float(e)}
                for k, e in enumerate(held.errors(fit.models))
            ]
    return out


def _errors(M: Array, signed: Array) -> Array:
    """Compute the share (N,) of signed rows (n, d) that each model of M (N, d) misclassifies."""
    return (signed @ M.T <= 0).mean(axis=0)


def picked(M: Array, signed: Array, most: int) -> Array:
    """Pick linearly independent models, those with the fewest errors on public rows first.

    Parameters
    ----------
    M : ndarray of shape (N, d)
        The sites' models.
    signed : ndarray of shape (n, d)
        Public rows times their labels.
    most : int
        Largest number of models to keep.

    Returns
    -------
    ndarray of shape (k, d)
    """
    kept: list[int] = []
    basis: list[Array] = []
    for i in np.argsort(_errors(M, signed), kind="stable"):
        # Gram and Schmidt: what is left of a unit model beside those that are kept
        left = M[i]
        size = float(np.linalg.norm(left))
        if size > 0:
            left = left / size
        for b in basis:
            left = left - (left @ b) * b
        if np.linalg.norm(left) > 1e-9 and len(kept) < most:
            kept.append(int(i))
            basis.append(left / np.linalg.norm(left))
    return M[np.array(kept, dtype=int)]


def boost(M: Array, signed: Array) -> Array:
    """Combine the models M (N, d) by AdaBoost on public signed rows (n, d).

    The models, scaled to norm 1, are the weak learners; the result (d,) is their weighted sum.
    """
    norms = np.linalg.norm(M, axis=1, keepdims=True)
    units = M / np.where(norms > 0, norms, 1.0)
    wrong = signed @ units.T <= 0  # (rows, N)
    weight, total = np.full(len(signed), 1.0 / len(signed)), np.zeros(M.shape[1])
    for _ in range(len(M)):
        errors = weight @ wrong
        # a model with more than half wrong is turned round
        best = int(np.argmin(np.minimum(errors, 1.0 - errors)))
        error = float(np.clip(errors[best], 1e-6, 1.0 - 1e-6))
        step = 0.5 * math.log((1.0 - error) / error)
        if abs(step) < 1e-9:
            break
        total += step * units[best]
        weight = weight * np.exp(step * np.where(wrong[:, best], 1.0, -1.0))
        weight /= weight.sum()
    return total
