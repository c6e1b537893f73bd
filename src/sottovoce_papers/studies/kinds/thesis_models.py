"""Cells of 003: one private site (chapter 3), and models of many sites averaged or weighted by an
aggregator (chapter 5).

A *printed* form runs the thesis's listing to the letter, and its columns `claimed` and `epsilon`
say what the thesis claims and what is proved; the form without that mark is the corrected one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sottovoce import Ledger, RunConfig
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy import accountants
from sottovoce.privacy.statement import Statement, build_statement
from sottovoce.privacy.statement_facts import (
    EXACT,
    Against,
    Claim,
    Form,
    Proved,
    Relation,
    Simulated,
    TakenAsPublic,
    Unit,
)
from sottovoce.problem.trust import Trust
from sottovoce.queries import GaussianLaw, SphericalLaw
from sottovoce.queries.objective import PerturbedObjective
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import pooled_minimiser, simulate
from sottovoce.util.typing import Any, Array

from ...aggregation import Fit, Terms, average, curvature_for, feature, local, pooled
from ..tables import SOURCED, stands_in
from . import LETTER, Row, check
from .thesis_data import HeldOut, derived, load, splits

DELTA = 1e-5  # of the Gaussian forms

ONE_SITE: dict[str, dict[str, Any]] = {
    "without noise": {"method": "objective", "epsilon": math.inf},
    "output": {"method": "output"},
    "objective, as printed": {"method": "objective", "form": "printed"},
    "objective": {"method": "objective"},
    "generalised, as printed": {"method": "generalised", "form": "printed"},
    "generalised Gaussian, as printed": {},
    "generalised, with the thesis's lambda": {},
    "generalised Gaussian, with the thesis's lambda": {},
    "objective, Gaussian": {"method": "objective", "law": "gaussian", "delta": DELTA},
}
"""How 003's Algorithms 1 to 3, and the forms that ship instead, are run on one site: fields of a
run, or nothing for those that :func:`kifer` runs.
"""

OURS = "aggregator's rows alone"
"""A baseline that 003 lacks: the model that an aggregator with public rows learns without sites."""

ADDED, LARGER = "Lambda and Delta add up", "the larger of Lambda and Delta"
"""Readings of Algorithm 3: how the experiments' Lambda and the algorithm's Delta combine."""

_ROUGH = 1e-5
"""Tolerance of the solver where no noise has to cover its error; a smaller one is out of reach for
large features, which leave almost no regulariser.
"""

_SHARED = {"data", "pca", "loss", "Lambda", "epsilon", "splits", "replicates", "seed", "varies"}
_ONE_SITE = _SHARED | {"rows", "methods"}
_PARTIES = _SHARED | {
    "setting",
    "sites",
    "rows",
    "aggregator_rows",
    "first_epsilon",
    "first_rows",
    "models",
}


def one_site(p: Mapping[str, Any]) -> list[Row]:
    """Run every method of :data:`ONE_SITE` (or those in `methods`) on one party (Figures 3.1 to
    3.6).

    Parameters: `data`, `pca`, `loss`, `Lambda`, `epsilon`, `rows`, `splits` (noise is drawn anew in
    every replicate); `reading` of Algorithm 3.
    """
    check(p, _ONE_SITE)
    held, out = load(p["data"], p["pca"]), []
    for seed, first, some in splits(p):
        rows = Rows.build_from_parts(held.deal([int(p["rows"])], seed))
        for name in p.get("methods", ONE_SITE):
            terms = Terms(float(p["epsilon"]), Lambda=float(p["Lambda"]), loss=p["loss"])
            terms = replace(terms, seed=seed, replicates=some)
            if ONE_SITE[name]:
                result = simulate(one_site_run(ONE_SITE[name], terms, rows), rows)
                models, said = result.models, result.statement
            else:
                models, said = kifer(rows, terms, name, p.get("reading", ADDED))
            row: Row = {
                "method": name,
                "target": terms.epsilon,
                "epsilon": said.epsilon,
                "delta": said.delta,
                "claimed": said.printed_claim,
                "_privacy": held.told(_words(name, said)),
            } | held.notes
            errors = held.errors(models[:, 0])
            out += [
                row | {"replicate": first + k, "error": float(error)}
                for k, error in enumerate(errors)
            ]
    return out


def one_site_run(how: Mapping[str, Any], terms: Terms, rows: Rows) -> RunConfig:
    """Build the run of one release of every site with regulariser ``terms.Lambda``.

    Half of the regulariser is the run's rho, and half its penalty.  Corrected objective
    perturbation adds a ridge where the determinant would cost more than half of epsilon
    (:func:`sottovoce_papers.aggregation.curvature_for`); 003 has another rule.

    Parameters
    ----------
    how : mapping
        An entry of :data:`ONE_SITE`: method, form and law.
    terms : Terms
        Target, loss, regulariser and the seed of the noise.
    rows : Rows
        Of N sites.

    Returns
    -------
    RunConfig
    """
    full: dict[str, Any] = {"form": "corrected", "epsilon": terms.epsilon, **how}
    extra, N = 0.0, len(rows.n)
    if (
        full["method"] == "objective"
        and full["form"] == "corrected"
        and math.isfinite(full["epsilon"])
    ):
        extra = float(curvature_for(full["epsilon"], terms.facts(rows.n, rows.d)).max())
    return RunConfig.from_dict(
        {
            **full,
            "rounds": 1,
            "graph": "complete",
            "loss": terms.loss,
            "rho": terms.Lambda / 2.0 * N,
            "eta": terms.Lambda / 2.0 + extra,
            "seed": terms.seed,
            "replicates": terms.replicates,
        }
    )


def bend_of_3_8(c: float, d: int) -> float:
    """Compute 003's bound (3.8) on the Hessian's largest eigenvalue, by the Frobenius norm.

    The bound `c` on the loss's second derivative is itself a bound, and a smaller one.
    """
    return math.sqrt((d * d - d) * c**2 + d * (c + 1.0) ** 2)


def kifer(rows: Rows, terms: Terms, name: str, reading: str = ADDED) -> tuple[Array, Statement]:
    """Run 003's Algorithm 3 as printed, with zeta = 1 and the smallest Delta that it allows.

    Parameters
    ----------
    rows : Rows
        Of N sites.
    terms : Terms
        Target, loss, regulariser and the seed of the noise.
    name : str
        A key of :data:`ONE_SITE`.  It says whether the algorithm's lambda is that of (3.8) or the
        smallest true bound, and whether the noise is Gaussian.
    reading : str
        With `ADDED`, the experiments' Lambda is the algorithm's r, ``n Lambda / 2 ||f||^2``, and
        adds to Delta; with `LARGER`, r is 0, and Delta is ``n Lambda`` if that is larger.

    Returns
    -------
    models : ndarray of shape (R, N, d)
    statement : Statement
        With what is claimed and what is proved.
    """
    facts = terms.facts(rows.n, rows.d)
    bound = facts.loss.curvature_bound
    if "thesis" in name:
        bound = bend_of_3_8(bound, rows.d)
    ridge = 2.0 * bound / (terms.epsilon * facts.n)
    if reading == LARGER:
        ridge = np.maximum(0.0, ridge - facts.mu)
    models, ledger = algorithm_3(rows, terms, ridge, "Gaussian" in name)
    known = [
        Proved.proved_by_ledger(ledger, len(rows.n)),
        Against(Trust("nobody", sees="the model")),
        Relation(facts.relation),
        Unit(),
        TakenAsPublic(),
        Simulated(True),
        Form("printed"),
        Claim(ledger.claimed(), EXACT),
    ]
    return models, build_statement(known)


def algorithm_3(rows: Rows, terms: Terms, ridge: Array, gaussian: bool) -> tuple[Array, Ledger]:
    """Run 003's Algorithm 3 to the letter, with any regulariser.

    Parameters
    ----------
    rows : Rows
        Of N sites.
    terms : Terms
        Target, loss, regulariser and the seed of the noise.
    ridge : ndarray of shape (N, 1)
        Added to the regulariser of `terms`.
    gaussian : bool
        Gaussian noise at delta 1e-5, in place of the pure form's.

    Returns
    -------
    models : ndarray of shape (R, N, d)
    ledger : Ledger
        Charged with the release; it has no budget, so it refuses nothing.
    """
    epsilon, shape = terms.epsilon, rows.n.shape
    start = np.zeros((terms.replicates, len(rows.n), rows.d))
    claimed = np.full(shape, epsilon)
    # to the letter: no noise for the solver's error (`polish`), and no budget
    law: GaussianLaw | SphericalLaw
    if gaussian:
        deviation = math.sqrt(8.0 * math.log(2.0 / DELTA) + 4.0 * epsilon) / epsilon
        law = GaussianLaw(np.full(shape, deviation), polish=False, claimed=claimed)
        ledger = Ledger(accountants.make_accountant("best"), math.inf, DELTA)
    else:
        law = SphericalLaw(claimed / 2.0, polish=False, claimed=claimed)
        ledger = Ledger(accountants.make_accountant("pure"), math.inf, 0.0)
    guard = RowGuard(rows, terms.facts(rows.n, rows.d), terms.noise(range(len(rows.n))), ledger)
    query = PerturbedObjective(start, ridge, start, law, "003, Algorithm 3 (printed)")
    return guard.charge_and_answer(query), ledger


def _words(name: str, said: Statement) -> str:
    """Describe a run's guarantee without its numbers, which are columns of the table."""
    if math.isinf(said.epsilon):
        return f"{name}: nothing is protected."
    delta, assumed = "pure", ""
    if said.delta:
        delta = f"delta = {said.delta:g}"
    if said.assumes is not None:
        assumed = f"; assumes {said.assumes}"
    return (
        f"{name}: {said.unit} ({said.relation}, {delta}), "
        f"against who {said.trust.adversary}{assumed}."
    )


def parties(p: Mapping[str, Any]) -> list[Row]:
    """Run 003's aggregation methods (Figures 5.2 to 5.41): N sites release one model each, and the
    models are averaged, or weighted by an aggregator.

    Parameters: `data`, `pca`, `loss`, `Lambda`, `splits`; `epsilon` of every private party;
    `sites`, `rows` and `aggregator_rows`; `setting` of
    :data:`sottovoce_papers.aggregation.SETTINGS`; `first_epsilon` and `first_rows` of the first
    site; `varies`, a label; with `models`, also every site's own model and that of all rows.
    Without privacy the column `mse` is the squared distance to the model of all training rows with
    the same loss and Lambda.
    """
    check(p, _PARTIES)
    held, out = load(p["data"], p["pca"]), []
    for seed, first, some in splits(p, p["setting"] != "non-private"):
        for row, models in _split(p, held, seed, some):
            found = [
                {"replicate": first + k, "error": float(error)}
                for k, error in enumerate(held.errors(models))
            ]
            if p["setting"] == "non-private":
                apart = models - _of_all(p["data"], p["pca"], p["loss"], float(p["Lambda"]))
                found = [one | {"mse": float(w @ w)} for one, w in zip(found, apart, strict=True)]
            out += [row | one for one in found]
    return out


@lru_cache(maxsize=8)
def _of_all(data: str, pca: str, loss: str, Lambda: float) -> Array:
    """Fit the model (d,) of all training rows without noise, in place of the thesis's f*."""
    held = load(data, pca)
    return pooled_minimiser(Rows.build_from_parts([(held.X, held.y)]), RunConfig(loss=loss), Lambda)


def _split(
    p: Mapping[str, Any], held: HeldOut, seed: int, replicates: int
) -> Iterator[tuple[Row, Array]]:
    """Yield, for one split, every method's columns and its models (replicates, d)."""
    N, setting = int(p["sites"]), p["setting"]
    sizes = [
        int(p.get("first_rows", p["rows"])),
        *[int(p["rows"])] * (N - 1),
        int(p["aggregator_rows"]),
    ]
    dealt = held.deal(sizes, seed)
    terms = Terms(
        float(p["epsilon"]),
        Lambda=float(p["Lambda"]),
        loss=p["loss"],
        seed=seed,
        replicates=replicates,
    )
    exact = replace(terms, epsilon=math.inf)
    if setting == "non-private":
        terms = exact
    rough = replace(terms, tol=_ROUGH)
    sites, aggregator = Rows.build_from_parts(dealt[:N]), Rows.build_from_parts(dealt[N:])
    alone = local(sites, terms)
    # 003's Algorithm 2 as it is meant: the same noise, at another rate; without noise there is
    # nothing to print.
    letter = alone
    if setting != "non-private":
        letter = local(sites, rough, "printed")
    if "first_epsilon" in p:
        own_terms = replace(terms, epsilon=float(p["first_epsilon"]), seed=derived(seed, 1))
        first = local(sites.rows_of_node(0), own_terms)
        alone = _first(alone, first)
        if setting != "non-private":
            letter = _first(letter, local(sites.rows_of_node(0), own_terms, "printed"))
    fits: dict[str, Fit] = {
        "average": average(alone),
        "feature": feature(alone, aggregator, rough, "public"),
    }
    printed: dict[str, Fit] = {}
    if setting != "non-private":
        printed = {
            "average": average(letter),
            "feature": feature(letter, aggregator, rough, "public"),
        }
    if setting == "private":
        fits["feature, fully private"] = feature(alone, aggregator, terms)
        printed["feature, fully private"] = feature(letter, aggregator, rough, "printed")
    elif setting == "public-private":
        boss = local(aggregator, exact)
        fits[OURS] = Fit(boss.models[:, 0], boss.aggregator, boss.sites)
    elif setting != "non-private":
        rule = "must be non-private, public-private or private"
        raise InvalidInput("setting", setting, rule, "correct it")
    if p.get("models"):
        own = {f"site {i + 1}": replace(alone, models=alone.models[:, i]) for i in range(N)}
        fits = {**own, "global": pooled(Rows.build_from_parts(dealt), terms), **fits}
        if setting != "non-private":
            own = {f"site {i + 1}": replace(letter, models=letter.models[:, i]) for i in range(N)}
            printed = {
                **own,
                "global": pooled(Rows.build_from_parts(dealt), rough, "printed"),
                **printed,
            }
    fits |= {f"{name}{LETTER}": fit for name, fit in printed.items()}
    for name, fit in fits.items():
        says = {"sites": fit.sites, "aggregator": fit.aggregator}
        counted = list(says.values())
        # the aggregator's rows are public there, and its epsilon is infinite
        if setting == "public-private":
            counted = [fit.sites]
        # every site's model is one of the local method
        plain = name.removesuffix(LETTER)
        method = name
        if plain.startswith("site "):
            method = "local" + name[len(plain) :]
        claimed = None
        if math.isfinite(terms.epsilon) and name != OURS:
            claimed = terms.epsilon
        row: Row = {
            "method": method,
            "model": name,
            "target": terms.epsilon,
            "case": f"{case_of(p)}, {setting}",
            "epsilon": max(said.epsilon for said in counted),
            "claimed": claimed,
        }
        row |= {f"epsilon_{who}": said.epsilon for who, said in says.items()}
        if "first_epsilon" in p:
            row["epsilon_first"] = first.sites.epsilon
        row |= {"_privacy": held.told(_promises(row["method"], says))} | held.notes
        yield row, fit.models


def case_of(p: Mapping[str, Any]) -> str:
    """Return the name of a cell's data for panels, without its source; synthetic rows used in
    place of the data are marked.
    """
    name = next((one for one in SOURCED if p["data"].startswith(f"{one}:")), p["data"])
    if stands_in(p):
        return f"stand-in, {name}"
    return str(name)


def _first(alone: Fit, own: Fit) -> Fit:
    """Replace the first site's model by that of `own`, which was fitted with other terms.

    The sites' guarantee becomes the weakest of all.
    """
    weakest = max(own.sites, alone.sites, key=lambda said: said.epsilon)
    return replace(
        alone, models=np.concatenate([own.models, alone.models[:, 1:]], axis=1), sites=weakest
    )


def _promises(method: str, says: Mapping[str, Statement]) -> str:
    """Describe whose rows a method protects and whose not, without numbers, which are columns."""

    def one(said: Statement) -> str:
        if math.isinf(said.epsilon):
            return said.not_protected
        if said.not_protected:
            return f"protects {said.protects}; not: {said.not_protected}"
        return f"protects {said.protects}"

    sentences = [method, *(f"{who}: {one(said)}" for who, said in says.items())]
    return " ".join(f"{said[0].upper()}{said[1:]}." for said in sentences)
