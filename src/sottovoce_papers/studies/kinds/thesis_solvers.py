"""Cells of 003 on how its models are computed: the Delta of Algorithm 2, minimisation by Nelder and
Mead's method, and cross-validation for the choice of Lambda.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import minimize

from sottovoce import RunConfig
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy import accountants
from sottovoce.privacy.events import SphericalObjectivePerturbation
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Loss, make_loss
from sottovoce.runs.simulate import pooled_minimiser
from sottovoce.util.typing import Any, Array

from ...aggregation import Fit, Terms, average, feature, listed, local
from . import Row, check
from .thesis_data import HeldOut, load, splits

NEWTON, SIMPLEX, OTHER_HUBER = "Newton", "Nelder-Mead", "Nelder-Mead, the code's Huber loss"
"""Solvers of 003's objectives.  The last one minimises another loss, that of the author's published
code.
"""
SOURCE, LETTER = "e^(epsilon / 4)", "e^(c / (2 Lambda))"
"""Readings of Delta in Algorithm 2, step 1: that of its source, and the one that 003 prints."""
_FOLDS = 5
# A regulariser below this counts as 0: the model is so long that only its direction matters.
_FLAT = 1e-9
_SHARED = {"data", "pca", "loss", "Lambda", "rows", "replicates", "seed"}


def algorithm_2(p: Mapping[str, Any]) -> list[Row]:
    """Run 003's Algorithm 2 with the Delta of a `reading`, solved exactly: one site's model and the
    average of all.

    Parameters: `data`, `pca`, `loss`, `Lambda`, `epsilon`, `sites`, `rows`, `splits`; `varies`, a
    label.  Columns: `error`; `ridge`, Lambda + Delta; `branch`, 2 where epsilon' is not positive;
    `epsilon_proved`; `above`, 1 where that is more than is claimed.
    """
    check(p, _SHARED | {"epsilon", "sites", "splits", "varies"})
    held, N, out = load(p["data"], p["pca"]), int(p["sites"]), list[Row]()
    for seed, first, some in splits(p):
        sites = Rows.build_from_parts(held.deal([int(p["rows"])] * N, seed))
        terms = Terms(
            float(p["epsilon"]),
            Lambda=float(p["Lambda"]),
            loss=p["loss"],
            seed=seed,
            replicates=some,
        )
        facts = terms.facts(sites.n, sites.d)
        total, rate, rest = ridge_of(terms.epsilon, facts, p.get("reading") == LETTER)
        models = local(sites, replace(terms, tol=1e-5), "printed").models
        if p.get("reading") == LETTER and not rest:
            # the same noise under the printed Delta, whose limit at 0 is solved: see `flat`
            noise = noise_of(models, sites, facts, ridge_of(terms.epsilon, facts)[0])
            signed = [sites.rows_of_node(i).signed[0] for i in range(N)]
            models = np.array(
                [[flat(signed[i], one[i], total, facts.loss) for i in range(N)] for one in noise]
            )
        branch = 2
        if rest:
            branch = 1
        spent = proved(facts, total, rate)
        row: Row = {
            "target": terms.epsilon,
            "ridge": total,
            "branch": branch,
            "epsilon_proved": spent,
        }
        row |= {"above": int(spent > terms.epsilon * (1.0 + 1e-9))} | held.notes
        row["_privacy"] = held.told(
            "One row of one site, against who sees every model; exact minimisation is assumed."
        )
        for name, found in (("local", models[:, 0]), ("average", models.mean(axis=1))):
            errors = held.errors(found)
            out += [
                row | {"method": name, "replicate": first + k, "error": float(e)}
                for k, e in enumerate(errors)
            ]
    return out


def ridge_of(epsilon: float, facts: Facts, letter: bool = False) -> tuple[float, float, bool]:
    """Compute 003's Algorithm 2, step 1, for sites of one size, without cancellation.

    Parameters
    ----------
    epsilon : float
        The target of one release.
    facts : Facts
        Of sites with the same number of rows.
    letter : bool
        Use the Delta that 003 prints, not that of its source.

    Returns
    -------
    total : float
        The regulariser Lambda + Delta.
    rate : float
        The rate of the noise.
    first : bool
        Whether epsilon' is positive, so that Delta is 0.
    """
    c, n = facts.loss.curvature_bound, float(facts.n.flat[0])
    ridge, rate = listed(epsilon, facts, letter)
    first = epsilon - 2.0 * math.log1p(c / (n * facts.mu)) > 0
    power = epsilon / 4.0
    if letter:
        power = c / (2.0 * facts.mu)
    # 1 / (e^x - 1) as e^-x / (1 - e^-x), which does not overflow
    total = facts.mu
    if not first:
        total = c / n * math.exp(-power) / -math.expm1(-power)
    assert first or math.isclose(total, facts.mu + float(ridge.flat[0]), abs_tol=1e-12)
    return total, float(rate.flat[0]), first


def proved(facts: Facts, total: float, rate: float) -> float:
    """Compute the pure epsilon that is proved for a release, if its minimiser is exact.

    Parameters
    ----------
    facts : Facts
        Of sites with the same number of rows.
    total : float
        The regulariser Lambda + Delta.
    rate : float
        The rate of the noise.

    Returns
    -------
    float
    """
    one, K = np.ones(1), max(float(facts.n.flat[0]) * total, 1e-300)
    c, logistic = facts.loss.curvature_bound, facts.loss.logistic_identity
    event = SphericalObjectivePerturbation(
        "003, Algorithm 2 (printed)",
        facts.relation,
        beta=rate * one,
        K=K * one,
        curvature_bound=c,
        logistic=logistic,
        dimension=facts.d,
        error=0 * one,
        beta_release=0 * one,
        sigma_release=0 * one,
    )
    return float(accountants.make_accountant("pure").epsilon_of_events([event]).max())


def noise_of(models: Array, sites: Rows, facts: Facts, total: float) -> Array:
    """Recover the noise in the objectives that models minimise, from their optimality condition.

    Parameters
    ----------
    models : ndarray of shape (R, N, d)
        Exact minimisers.
    sites : Rows
        Of N sites.
    facts : Facts
        Has the loss.
    total : float
        The regulariser Lambda + Delta.

    Returns
    -------
    ndarray of shape (R, N, d)
        The noise b.
    """
    out = np.empty_like(models)
    for i in range(models.shape[1]):
        a, w = sites.rows_of_node(i).signed[0], models[:, i]
        out[:, i] = -(facts.loss.derivative(w @ a.T) @ a + len(a) * total * w)
    return out


def flat(a: Array, b: Array, total: float, loss: Loss) -> Array:
    """Compute the direction of the minimiser of ``sum loss(a w) + b.w + n total ||w||^2 / 2`` as
    `total` goes to 0.

    All margins are then large, where both losses are ``max(0, -z)``.  The dual problem is a
    quadratic one over the box [0, 1]^n in alpha, and the minimiser is ``(a' alpha - b) / (n
    total)``.

    Parameters
    ----------
    a : ndarray of shape (n, d)
        Signed rows.
    b : ndarray of shape (d,)
        The noise.
    total : float
        The regulariser, in whose limit 0 the direction does not depend on it.
    loss : Loss
        Not used either, for the same reason.

    Returns
    -------
    ndarray of shape (d,)
        Of norm 1.
    """
    n = len(a)

    def dual(alpha: Array) -> tuple[float, Array]:
        g = alpha @ a - b
        return float(g @ g) / 2.0, a @ g

    alpha = minimize(dual, np.zeros(n), jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * n).x
    w = alpha @ a - b
    return np.asarray(w / np.linalg.norm(w))


def nelder_mead(p: Mapping[str, Any]) -> list[Row]:
    """Minimise the same objectives, noise included, by Nelder and Mead's method and exactly (003,
    section 2.5).

    Parameters: `data`, `pca`, `loss`, `Lambda`, `epsilon` (infinite: no noise), `sites`, `rows`,
    `first_rows` (of the first site, without noise only), `aggregator_rows`; the aggregator's rows
    are public.  It starts at zero, with scipy's tolerances and limits.  With noise and the Huber
    loss it also minimises the loss of the author's code. Columns: `solver`, `method`, `error`, and
    of local models `excess` (nats of the objective above its minimum) and `stopped` (the share that
    ended at the limit of 200 d evaluations); `varies` is a label.
    """
    check(p, _SHARED | {"epsilon", "sites", "first_rows", "aggregator_rows", "splits", "varies"})
    held, N, out = load(p["data"], p["pca"]), int(p["sites"]), list[Row]()
    if "first_rows" in p and math.isfinite(float(p["epsilon"])):
        rule = "applies only without noise, because Delta is computed for sites of one size"
        raise InvalidInput(
            "first_rows", p["first_rows"], rule, "leave it out, or use epsilon = inf"
        )
    sizes = [
        int(p.get("first_rows", p["rows"])),
        *[int(p["rows"])] * (N - 1),
        int(p["aggregator_rows"]),
    ]
    for seed, first, some in splits(p):
        dealt = held.deal(sizes, seed)
        sites, aggregator = Rows.build_from_parts(dealt[:N]), Rows.build_from_parts(dealt[N:])
        terms = Terms(
            float(p["epsilon"]),
            Lambda=float(p["Lambda"]),
            loss=p["loss"],
            seed=seed,
            replicates=some,
        )
        exact = local(sites, replace(terms, tol=1e-5), "printed")
        out += _both(p, held, exact, sites, aggregator, replace(terms, tol=1e-5), first)
    return out


def _both(
    p: Mapping[str, Any],
    held: HeldOut,
    exact: Fit,
    sites: Rows,
    aggregator: Rows,
    terms: Terms,
    first: int,
) -> list[Row]:
    """Return the rows of all solvers on one split; `exact` has the exact minimisers of the sites,
    and `first` is the number of its first replicate.
    """
    loss, facts = make_loss(terms.loss), terms.facts(sites.n, sites.d)
    total = facts.mu
    if math.isfinite(terms.epsilon):
        total = ridge_of(terms.epsilon, facts)[0]
    noise = noise_of(exact.models, sites, facts, total)
    x0 = aggregator.rows_of_node(0).signed[0]
    models = {
        NEWTON: {
            "local": exact.models[:, 0],
            "average": average(exact).models,
            "feature": feature(exact, aggregator, terms, "public").models,
        },
    }
    told = {NEWTON: {"excess": 0.0, "stopped": 0.0}}
    values = {SIMPLEX: loss.value}
    if terms.loss.startswith("huber:") and math.isfinite(terms.epsilon):
        values[OTHER_HUBER] = partial(
            huber_of_the_code, h=float(terms.loss.partition(":")[2]), epsilon=terms.epsilon
        )
    for solver, value_of in values.items():
        found, excess, ended = np.empty_like(exact.models), [], []
        for k, i in np.ndindex(*found.shape[:2]):
            a = sites.rows_of_node(int(i)).signed[0]
            found[k, i], value, full = simplex(a, noise[k, i], total, value_of)
            excess.append(value - objective(exact.models[k, i], a, noise[k, i], total, value_of))
            ended.append(full)
        weights = [simplex(x0 @ M.T, np.zeros(len(M)), terms.Lambda, value_of)[0] for M in found]
        models[solver] = {
            "local": found[:, 0],
            "average": found.mean(axis=1),
            "feature": np.einsum("rn,rnd->rd", weights, found),
        }
        told[solver] = {"stopped": float(np.mean(ended))}
        # of another loss the exact model is not the minimum
        if solver == SIMPLEX:
            told[solver]["excess"] = float(np.mean(excess))
    out = list[Row]()
    for solver, those in models.items():
        for name, one in those.items():
            row: Row = {
                "solver": solver,
                "method": name,
                "target": terms.epsilon,
                "epsilon": exact.sites.epsilon,
            }
            if name == "local":
                row |= told[solver]
            row |= held.notes
            row["_privacy"] = held.told("What is proved for the sites assumes exact minimisation.")
            out += [
                row | {"replicate": first + k, "error": float(e)}
                for k, e in enumerate(held.errors(one))
            ]
    return out


def huber_of_the_code(z: Array, h: float, epsilon: float) -> Array:
    """Compute the Huber loss of the author's code, which has epsilon in place of one h of (3.5).

    So it is ``(1 + epsilon - z)^2 / 4h`` for margins within h of 1, and jumps at both ends.

    Parameters
    ----------
    z : ndarray
        Margins.
    h : float
        The Huber constant.
    epsilon : float
        The epsilon of the run, which the code has in place of h.

    Returns
    -------
    ndarray
        Losses, of the shape of `z`.
    """
    middle = (1.0 + epsilon - z) ** 2 / (4.0 * h)
    return np.where(z > 1.0 + h, 0.0, np.where(np.abs(1.0 - z) <= h, middle, 1.0 - z))


def objective(
    w: Array, a: Array, b: Array, total: float, value_of: Callable[[Array], Array]
) -> float:
    """Compute the objective ``mean loss(a w) + b.w / n + total ||w||^2 / 2`` of one site.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Model.
    a : ndarray of shape (n, d)
        Signed rows.
    b : ndarray of shape (d,)
        The noise.
    total : float
        The regulariser Lambda + Delta.
    value_of : callable
        The loss of margins.

    Returns
    -------
    float
    """
    n = len(a)
    return float(np.add.reduce(value_of(a @ w)) / n + b @ w / n + total / 2.0 * (w @ w))


def simplex(
    a: Array, b: Array, total: float, value_of: Callable[[Array], Array]
) -> tuple[Array, float, bool]:
    """Minimise the :func:`objective` by Nelder and Mead's method from zero, with scipy's defaults.

    Parameters
    ----------
    a : ndarray of shape (n, d)
        Signed rows.
    b : ndarray of shape (d,)
        The noise.
    total : float
        The regulariser Lambda + Delta.
    value_of : callable
        The loss of margins.

    Returns
    -------
    w : ndarray of shape (d,)
    value : float
        The objective there.
    stopped : bool
        Whether the search ended at a limit.
    """

    def at(w: Array) -> float:
        return objective(w, a, b, total, value_of)

    found = minimize(at, np.zeros(a.shape[1]), method="Nelder-Mead")
    return found.x, float(found.fun), not found.success


def folds(p: Mapping[str, Any]) -> list[Row]:
    """Compute the error of five-fold cross-validation over one party's rows, without noise (003,
    section 5.2.1).

    Parameters: `data`, `pca`, `loss`, `Lambda`, `rows`.  Every replicate draws the rows again.
    """
    check(p, _SHARED)
    held, out = load(p["data"], p["pca"]), list[Row]()
    for seed, replicate, _ in splits(p, noisy=False):
        ((X, y),) = held.deal([int(p["rows"])], seed)
        wrong = 0
        for k in range(_FOLDS):
            left = np.arange(len(y)) % _FOLDS == k
            model = pooled_minimiser(
                Rows.build_from_parts([(X[~left], y[~left])]),
                RunConfig(loss=p["loss"]),
                float(p["Lambda"]),
            )
            wrong += int((y[left] * (X[left] @ model) <= 0).sum())
        row: Row = {"replicate": replicate, "error": wrong / len(y)}
        out.append(
            row
            | held.notes
            | {"_privacy": "The folds read private rows without noise: nothing is protected."}
        )
    return out
