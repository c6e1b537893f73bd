"""Cells of 003 beside its figures of errors: the Huber loss, Theorem 3.6, section 5.3, what section 6.2.2 proposes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...aggregation import Fit, Terms, average, feature, local
from ...data.rows import Rows
from ...papers.utility import generalised_objective_perturbation
from ...problem.losses import make_loss
from ...runs.simulate import RunConfig, pooled_minimiser
from ...util.typing import Any, Array
from . import LETTER, Row, check
from .thesis_data import load, splits
from .thesis_models import DELTA, algorithm_3, one_site, parties

_IMPROVED = {"data", "pca", "loss", "Lambda", "epsilon", "sites", "rows", "aggregator_rows", "splits"}
_OURS = {"replicates", "seed"}


def huber(p: Mapping[str, Any]) -> list[Row]:
    """Figure 3.3, and its claim: the Huber loss over its margin, and errors of one site by the Huber constant `h`.

    Other parameters as of one_site.  Rows with ``what`` "loss" have `margin` and `value`; those with "error" are
    one_site's.
    """
    loss = make_loss(f"huber:{p['h']:g}")
    margins = np.linspace(-1.0, 3.0, 81)
    out: list[Row] = [
        {"replicate": 0, "what": "loss", "margin": float(z), "value": float(v)}
        for z, v in zip(margins, loss.value(margins), strict=True)
    ]
    inner = {key: value for key, value in p.items() if key != "h"} | {"loss": loss.spec}
    return out + [row | {"what": "error"} for row in one_site(inner)]


def utility(p: Mapping[str, Any]) -> list[Row]:
    """Theorem 3.6: how much of its objective Algorithm 3 loses, with the Delta that the theorem sets.

    Parameters: `data`, `pca`, `loss`, `Lambda` (of r, ``n Lambda / 2 ||f||^2``), `rows`, `epsilon`, `law` ("spherical"
    or "gaussian", at delta 1e-5).  Columns: `excess` (nats), its proved `bound`, the theorem's `order`, `ratio`
    (excess over order) and `of_bound` (excess over bound).
    """
    check(p, _OURS | {"data", "pca", "loss", "Lambda", "rows", "epsilon", "law"})
    held, n, epsilon = load(p["data"], p["pca"]), int(p["rows"]), float(p["epsilon"])
    rows = Rows.build(held.deal([n], int(p["seed"])))
    terms = Terms(epsilon, Lambda=float(p["Lambda"]), loss=p["loss"], seed=int(p["seed"]), tol=1e-6)
    terms = replace(terms, replicates=int(p["replicates"]))
    best = pooled_minimiser(rows, RunConfig(loss=p["loss"]), terms.Lambda)
    gaussian = p["law"] == "gaussian"
    says = generalised_objective_perturbation(
        n=n, d=rows.d, epsilon=epsilon, norm=float(np.linalg.norm(best)), delta=DELTA if gaussian else None
    )
    facts = terms.facts(rows.n, rows.d)
    least = 2.0 * facts.loss.curvature_bound / epsilon  # what Algorithm 3 asks for
    found, ledger = algorithm_3(rows, terms, np.array([[says.Delta / n]]), gaussian)
    models = found[:, 0]

    def objective(w: Array) -> Array:
        values = facts.loss.value(w @ rows.signed[0, :n].T).mean(axis=-1)
        return np.asarray(values + terms.Lambda / 2.0 * (w**2).sum(axis=-1))

    lost = objective(models) - float(objective(best[None])[0])
    row: Row = {"bound": says.bound, "best_bound": says.best, "order": says.order, "Delta": says.Delta}
    row |= {"allowed": int(says.Delta >= least), "target": epsilon, "epsilon_proved": ledger.total()} | held.notes
    out: list[Row] = []
    for k, x in enumerate(lost.tolist()):
        out.append(row | {"replicate": k, "excess": x, "ratio": x / says.order, "of_bound": x / says.bound})
    return out


CHANGES = {"local": 0.36, "global": 0.02}
"""003, section 5.3: how far the errors of models change over its values of epsilon."""


def changes(p: Mapping[str, Any]) -> list[Row]:
    """Section 5.3: the error at the first of two `values` of epsilon less that at the other, of every method.

    Other parameters are those of parties.  `source` is "here", or "003" for rows with the numbers that it prints.
    """
    plain = {key: value for key, value in p.items() if key != "values"}
    found = [parties(plain | {"epsilon": e, "setting": "private", "models": True}) for e in p["values"]]
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
    """Mean errors of a method's models, by replicate."""
    own: dict[int, list[float]] = {}
    for row in cell:
        if row["method"] == method:
            own.setdefault(row["replicate"], []).append(row["error"])
    return {k: float(np.mean(errors)) for k, errors in own.items()}


def improved(p: Mapping[str, Any]) -> list[Row]:
    """Section 6.2.2 with public rows at the aggregator: the d best independent models of many sites, and boosting.

    Parameters as of parties, without `setting`.  What follows the sites' releases reads those and public rows only:
    free.
    """
    check(p, _OURS | _IMPROVED)
    held, out, N = load(p["data"], p["pca"]), [], int(p["sites"])
    private = math.isfinite(float(p["epsilon"]))
    for seed, first, some in splits(p, private):
        dealt = held.deal([int(p["rows"])] * N + [int(p["aggregator_rows"])], seed)
        terms = Terms(float(p["epsilon"]), Lambda=float(p["Lambda"]), loss=p["loss"], seed=seed, replicates=some)
        sites, aggregator = Rows.build(dealt[:N]), Rows.build(dealt[N:])
        alone, public = local(sites, terms), aggregator.node(0).signed[0]
        rough = replace(terms, tol=1e-5)
        few = replace(alone, models=np.stack([picked(M, public, held.X.shape[1]) for M in alone.models]))
        fits: dict[str, Fit] = {
            "average": average(alone), "feature, all sites": feature(alone, aggregator, rough, "public"),
            "feature, d independent": feature(few, aggregator, rough, "public"),
            "boosting": replace(alone, models=np.stack([boost(M, public) for M in alone.models])),
        }  # fmt: skip
        for name, fit in fits.items():
            row: Row = {"method": name, "target": terms.epsilon, "epsilon": alone.sites.epsilon} | held.notes
            row["_privacy"] = held.told(f"{name}: protects {alone.sites.protects}; the aggregator's rows are public")
            out += [row | {"replicate": first + k, "error": float(e)} for k, e in enumerate(held.errors(fit.models))]
    return out


def _errors(M: Array, signed: Array) -> Array:
    return (signed @ M.T <= 0).mean(axis=0)


def picked(M: Array, signed: Array, most: int) -> Array:
    """At most `most` rows of M (N, d): linearly independent ones, the fewest errors on public rows first."""
    kept: list[int] = []
    basis: list[Array] = []
    for i in np.argsort(_errors(M, signed), kind="stable"):
        size = float(np.linalg.norm(M[i]))
        left = M[i] / size if size > 0 else M[i]
        for b in basis:
            left = left - (left @ b) * b
        if np.linalg.norm(left) > 1e-9 and len(kept) < most:
            kept.append(int(i))
            basis.append(left / np.linalg.norm(left))
    return M[np.array(kept, dtype=int)]


def boost(M: Array, signed: Array) -> Array:
    """AdaBoost over the models M (N, d) as weak learners, on public rows: unit models times their weights, summed."""
    norms = np.linalg.norm(M, axis=1, keepdims=True)
    units = M / np.where(norms > 0, norms, 1.0)
    wrong = signed @ units.T <= 0  # (rows, N)
    weight, total = np.full(len(signed), 1.0 / len(signed)), np.zeros(M.shape[1])
    for _ in range(len(M)):
        errors = weight @ wrong
        best = int(np.argmin(np.minimum(errors, 1.0 - errors)))  # a model with more than half wrong is turned round
        error = float(np.clip(errors[best], 1e-6, 1.0 - 1e-6))
        step = 0.5 * math.log((1.0 - error) / error)
        if abs(step) < 1e-9:
            break
        total += step * units[best]
        weight = weight * np.exp(step * np.where(wrong[:, best], 1.0, -1.0))
        weight /= weight.sum()
    return total
