"""Membership inference and attribute inference on real rows, by a neighbour who sees all messages.

A small site holds rows of Adult, and the neighbour knows all of them but one.  *Membership*: the
site holds a target row or another row, both known, and the neighbour says which.  *Attribute*: the
neighbour knows the target row but for one attribute, and names its likeliest value.  Scores are
likelihoods of all messages, the most powerful test.  Real rows are seldom worst cases, so this does
not bound what an attack can do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .. import data
from ..data.rows import Rows
from ..problem.task import task_of_margins
from ..queries import NoisyMinimiser, PerturbedObjective, Query, SphericalLaw
from ..runs.config import RunConfig
from ..util.typing import Any, Array, IntArray
from .confidence import probability_lower_limit, probability_upper_limit
from .game import Case, Transcripts, record_transcripts
from .likelihood import Candidate, restrict_to_node

SITES, VICTIM = 5, 0
"""Number of sites on the ring, and the one that is attacked."""
ROUNDS = 5
ROWS, OTHERS = 50, 100
"""Rows of the victim, and of each other site."""
PUBLIC = 2000
"""Rows from which the neighbour knows how common each value of an attribute is."""
TARGETS, REPLICATES = 48, 20
"""Target rows, and runs in which each is attacked."""
QUICK_TARGETS, QUICK_REPLICATES = 8, 16
EPSILONS = (1.0, 4.0)
"""Claimed epsilons."""
CONFIDENCE, RESAMPLES = 0.95, 400
"""Of the intervals: their confidence, and how many resampled sets of targets they rest on."""
METHODS = (("pvp", "listed"), ("dvp", "printed"), ("dvp", "corrected"), ("prox_admm", "corrected"))
"""Methods and forms that are attacked, in addition to consensus ADMM without noise."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "income": {"at most 50K": "<=50K", "over 50K": ">50K"},
    "marital-status": {
        "married": "Married-civ-spouse",
        "never married": "Never-married",
        "apart": "Divorced",
    },
}
"""Attributes to infer: by column, the name of each value in the report, and a raw value for it."""

_EXACT = 1e6
"""Rate of the noise that stands for none in likelihoods, so small that only rows which explain an
answer up to rounding are likely."""


@dataclass(frozen=True)
class _Stage:
    """Rows of all sites, with the T target rows of the attacks.

    Rows are signed: the encoded features times the label.

    Attributes
    ----------
    rows : Rows
        Rows of all sites; the last row of the victim is a placeholder.
    target : array (T, d)
        Rows that the victim may hold in that place.
    other : array (T, d)
        The row that it holds instead of each target.
    guesses : dict of array (T, V, d)
        By column: the targets with each of the V values of that attribute.
    truth : dict of array of int (T,)
        By column: number of each target's true value, from 0.
    prior : dict of array (V,)
        By column: shares of the values in the population, which the neighbour knows.
    """

    rows: Rows
    target: Array
    other: Array
    guesses: dict[str, Array]
    truth: dict[str, IntArray]
    prior: dict[str, Array]

    def rows_with_target(self, row: Array) -> Rows:
        """Return the rows of all sites, with `row` as the victim's last."""
        signed = self.rows.signed.copy()
        signed[VICTIM, ROWS - 1] = row
        return replace(self.rows, signed=signed)


def _deal_adult_rows(targets: int, seed: int) -> _Stage:
    """Draw rows of Adult at random: the sites', the targets, and the targets' replacements."""
    adult = data.load("adult")
    order = np.random.default_rng(seed).permutation(len(adult.y_train))
    sizes = [ROWS] + [OTHERS] * (SITES - 1) + [targets, targets]
    *sites, target, other = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])
    schema = adult.schema
    raw = data.Table("adult", adult.train_columns)
    assert schema is not None

    def signed(table: data.Table) -> Array:
        rows = schema.encode(table)
        assert rows.y is not None
        return np.asarray(rows.X * rows.y[:, None])

    def with_value(column: str, value: str, of: IntArray) -> Array:
        table = raw.take(of)
        return signed(data.Table("adult", {**table.columns, column: np.full(len(of), value)}))

    public = order[-PUBLIC:]
    known = signed(raw.take(public))
    whole = signed(raw.take(target))
    guesses, truth, prior = {}, {}, {}
    for column, named_values in ATTRIBUTES.items():
        values = named_values.values()
        guesses[column] = np.stack([with_value(column, value, target) for value in values], axis=1)
        # The true value is the one that leaves the encoded row as it is.
        truth[column] = np.argmin(np.abs(guesses[column] - whole[:, None]).sum(axis=2), axis=1)
        alike = [np.all(with_value(column, value, public) == known, axis=1) for value in values]
        prior[column] = np.mean(alike, axis=1)
    rows = Rows.build_from_parts([(adult.X_train[part], adult.y_train[part]) for part in sites])
    return _Stage(rows, whole, signed(raw.take(other)), guesses, truth, prior)


def _give_sharp_density(query: Query) -> Query:
    """Return the query with next to no noise in place of none, so that its answer has a density.

    Other queries are returned as they are.
    """
    law = SphericalLaw(np.array(_EXACT), polish=False)
    if isinstance(query, NoisyMinimiser) and query.alpha is None:
        return PerturbedObjective(
            np.asarray(query.linear), np.asarray(query.curvature), query.start, law, query.source
        )
    if isinstance(query, PerturbedObjective) and query.noise is None:
        return replace(query, noise=law)
    return query


def _log_likelihood_of_rows(seen: Transcripts, rows: Rows) -> Array:
    """Return the log likelihood of the victim's releases if the sites held `rows`, (R,).

    A constant that does not depend on the rows is left out.
    """
    candidate = Candidate(rows, seen.facts, VICTIM)
    total = np.zeros(len(seen.messages))
    for query, answers in seen.asked:
        own = candidate.cut(_give_sharp_density(query))
        density = candidate.log_density(own, restrict_to_node(answers, VICTIM, SITES))
        assert density is not None
        total = total + density
    # As in `likelihood.log_likelihood_ratio`: the last digits of simulated noise depend on what it
    # was added to.
    return np.round(total, 9)


@dataclass(frozen=True)
class _Seen:
    """Results of both attacks in one setting, a method at a claimed epsilon.

    T is the number of targets, R that of runs on each.

    Attributes
    ----------
    claimed, proved : float
        Epsilon as the form claims it, and as the accountant proves it.
    inside : array (T, R)
        Log likelihood ratio of the target to the other row, where the site holds the target.
    outside : array (T, R)
        The same, where it holds the other row.
    right : dict of array (T, R)
        1 where the guessed value of an attribute is true, else 0.
    """

    claimed: float
    proved: float
    inside: Array
    outside: Array
    right: dict[str, Array]


def _play_setting(config: RunConfig, stage: _Stage, replicates: int, key: int) -> _Seen:
    """Play both attacks on every target in one setting.

    Parameters
    ----------
    config : RunConfig
        The setting.
    stage : _Stage
        Rows and targets.
    replicates : int
        Runs in which each target is attacked.
    key : int
        Number of the setting, which seeds its noise.

    Returns
    -------
    _Seen
    """
    inside, outside = list[Array](), list[Array]()
    right: dict[str, list[Array]] = {column: [] for column in ATTRIBUTES}
    claimed = proved = 0.0
    for t, (target, other) in enumerate(zip(stage.target, stage.other, strict=True)):
        without, with_target = stage.rows_with_target(other), stage.rows_with_target(target)
        case = Case(config, (without, with_target), VICTIM, "rows of Adult")
        seen = [
            record_transcripts(case, table, replicates, 2 * (1000 * key + t) + table)
            for table in (0, 1)
        ]
        claimed, proved = max(claimed, seen[1].claimed), max(proved, seen[1].proved)
        likelihood_without = _log_likelihood_of_rows(seen[1], without)
        true = _log_likelihood_of_rows(seen[1], with_target)
        inside.append(true - likelihood_without)
        outside.append(
            _log_likelihood_of_rows(seen[0], with_target)
            - _log_likelihood_of_rows(seen[0], without)
        )
        for column, guesses in stage.guesses.items():
            fits = []
            for v, row in enumerate(guesses[t]):
                # The target with its true value is the target.
                if v == stage.truth[column][t]:
                    fits.append(true)
                else:
                    fits.append(_log_likelihood_of_rows(seen[1], stage.rows_with_target(row)))
            # Bayes' rule: the likeliest value by all messages and the prior.
            posterior = np.stack(fits) + np.log(stage.prior[column])[:, None]
            named = task_of_margins(len(fits)).decode(posterior)
            right[column].append((named == stage.truth[column][t]).astype(float))
    found = {column: np.stack(each) for column, each in right.items()}
    return _Seen(claimed, proved, np.stack(inside), np.stack(outside), found)


def curve(inside: Array, outside: Array, weights: Array) -> tuple[Array, Array]:
    """Return ROC curves: the rates at every threshold, for several weightings of the targets.

    Parameters
    ----------
    inside : array (T, R)
        Scores of T targets in R runs, where the site holds the target.
    outside : array (T, R)
        Scores where it does not.
    weights : array (B, T)
        Weight of every target, in each of B curves.

    Returns
    -------
    false, true : array (B, G)
        False and true positive rates at the G thresholds, from the highest score down, 0 first.
    """
    scores = np.concatenate([inside.ravel(), outside.ravel()])
    # Equal scores pass a threshold together.
    values, group = np.unique(-scores, return_inverse=True)
    here, there = np.split(group, [inside.size])

    def rates(which: IntArray, width: int) -> Array:
        each = np.repeat(weights, width, axis=1)
        counts = np.stack([np.bincount(which, weights=w, minlength=len(values)) for w in each])
        total = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
        return np.concatenate([np.zeros((len(weights), 1)), total], axis=1)

    return rates(there, outside.shape[1]), rates(here, inside.shape[1])


def area_under_curves(fpr: Array, tpr: Array) -> Array:
    """Return the area under each ROC curve, (B,), by trapezoids."""
    return np.asarray(np.sum(np.diff(fpr, axis=1) * 0.5 * (tpr[:, 1:] + tpr[:, :-1]), axis=1))


def reach(fpr: Array, tpr: Array, most: float) -> Array:
    """Return the largest true positive rate at a bounded false positive rate.

    Parameters
    ----------
    fpr, tpr : array (B, G)
        ROC curves.
    most : float
        Bound on the false positive rate, in [0, 1].

    Returns
    -------
    array (B,)
    """
    return np.asarray(np.where(fpr <= most + 1e-12, tpr, 0.0).max(axis=1))


def _percentile_interval(resampled: Array) -> list[float]:
    """Return the ends of the bootstrap percentile interval of values (B,), at `CONFIDENCE`."""
    error = 0.5 * (1.0 - CONFIDENCE)
    low, high = np.quantile(resampled, [error, 1.0 - error])
    return [float(low), float(high)]


def _interval_of_rate(value: float, resampled: Array, targets: int) -> list[float]:
    """Return the bootstrap percentile interval of a rate in [0, 1] over targets.

    Where all targets agree on 0 or on 1, its open end is Clopper and Pearson's limit.

    Parameters
    ----------
    value : float
        The rate over all targets.
    resampled : array (B,)
        The rate over each resampled set of targets.
    targets : int
        Number of targets.

    Returns
    -------
    list of float
        Lower and upper end, at `CONFIDENCE`.
    """
    error = 0.5 * (1.0 - CONFIDENCE)
    low, high = _percentile_interval(resampled)
    # Resampling targets that all agree never shows one that does not, so its percentiles would say
    # that there is none.
    if min(value, low) > 1.0 - 1e-9:
        low = float(probability_lower_limit(targets, targets, error))
    if max(value, high) < 1e-9:
        high = float(probability_upper_limit(0, targets, error))
    return [low, high]


def measure_inference_attacks(seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Measure membership and attribute inference on a ring of five sites of Adult rows.

    Parameters
    ----------
    seed : int
        Of the choice of rows, the noise and the resampling of targets.
    quick : bool
        Fewer targets and repetitions.

    Returns
    -------
    dict
        ``setting``; ``membership``, per method and claim the ROC curve, its area and rates, with
        95% intervals over targets; ``printed_beside_corrected``, areas of both forms and the
        interval of their difference; ``attributes``, per column the base rate, and the accuracy per
        method and claim.
    """
    targets, replicates = TARGETS, REPLICATES
    if quick:
        targets, replicates = QUICK_TARGETS, QUICK_REPLICATES
    stage = _deal_adult_rows(targets, seed)
    rng = np.random.default_rng([seed, 1])
    # The bootstrap is over targets, not runs: runs on one target share its row.
    resampled = rng.multinomial(targets, np.full(targets, 1 / targets), RESAMPLES)
    weights = np.concatenate([np.ones((1, targets)), resampled])
    membership: list[dict[str, Any]] = []
    areas: dict[tuple[str, str, float], Array] = {}
    told: dict[str, list[dict[str, Any]]] = {column: [] for column in ATTRIBUTES}
    settings = [("admm", "corrected", math.inf)]
    settings += [(*method, epsilon) for epsilon in EPSILONS for method in METHODS]
    for k, (method, form, epsilon) in enumerate(settings):
        config = RunConfig(method=method, form=form, epsilon=epsilon, rounds=ROUNDS)
        # Without noise, repetitions would all be alike.
        without_noise = math.isinf(epsilon) or form == "listed"
        seen = _play_setting(config, stage, 1 if without_noise else replicates, k + 100 * seed)
        fpr, tpr = curve(seen.inside, seen.outside, weights)
        name = {
            "method": method,
            "form": form,
            "claimed_epsilon": epsilon,
            "proved_epsilon": seen.proved,
        }
        areas[method, form, epsilon] = area_under_curves(fpr, tpr)
        membership.append(name | _summarise_curves(fpr, tpr, targets))
        for column, right in seen.right.items():
            each = weights @ right.mean(axis=1) / targets
            interval = _interval_of_rate(float(each[0]), each[1:], targets)
            told[column].append(name | {"accuracy": float(each[0]), "interval": interval})
    setting = _attack_sizes(stage, targets, replicates)
    return {
        "setting": setting | {"seed": seed, "confidence": CONFIDENCE, "quick": quick},
        "membership": membership,
        "printed_beside_corrected": _compare_printed_forms(areas),
        "attributes": [_attribute_accuracy(column, stage, told[column]) for column in ATTRIBUTES],
    }


def _attack_sizes(stage: _Stage, targets: int, replicates: int) -> dict[str, Any]:
    """Return the sizes of the attacks, for the report."""
    return {
        "data": "adult",
        "features": stage.rows.d,
        "sites": SITES,
        "graph": "ring",
        "rounds": ROUNDS,
        "victim_rows": ROWS,
        "other_rows": OTHERS,
        "public_rows": PUBLIC,
        "targets": targets,
        "replicates": replicates,
    }


def _summarise_curves(fpr: Array, tpr: Array, targets: int) -> dict[str, Any]:
    """Return a ROC curve with its area and rates, and their intervals."""
    found: dict[str, Any] = {}
    measures = {
        "auc": area_under_curves(fpr, tpr),
        "tpr_1": reach(fpr, tpr, 0.01),
        "tpr_10": reach(fpr, tpr, 0.1),
    }
    for name, values in measures.items():
        # The first curve is of all targets, the others of resampled ones.
        found[name] = float(values[0])
        found[f"{name}_interval"] = _interval_of_rate(float(values[0]), values[1:], targets)
    grid = np.linspace(0.0, 1.0, 101)
    found["fpr"] = grid.tolist()
    found["tpr"] = [float(reach(fpr[:1], tpr[:1], most)[0]) for most in grid]
    return found


def _attribute_accuracy(column: str, stage: _Stage, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the base rate of an attribute, and how often each method revealed it."""
    values, prior, truth = list(ATTRIBUTES[column]), stage.prior[column], stage.truth[column]
    common = int(task_of_margins(len(prior)).decode(prior[:, None])[0])
    return {
        "attribute": column,
        "values": values,
        "prior": prior.tolist(),
        "commoner": values[common],
        "base_rate": float(np.mean(truth == common)),
        "rows": rows,
    }


def _compare_printed_forms(areas: dict[tuple[str, str, float], Array]) -> list[dict[str, Any]]:
    """Return areas of printed and corrected forms, and intervals of their difference.

    `areas` are those under the ROC curve by method, form and claimed epsilon, (1 + B,): over all
    targets first, then over B resampled sets of targets.
    """
    beside = []
    for method, form, epsilon in areas:
        if form != "printed":
            continue
        printed, corrected = areas[method, form, epsilon], areas[method, "corrected", epsilon]
        apart = printed - corrected
        beside.append(
            {
                "method": method,
                "claimed_epsilon": epsilon,
                "printed": float(printed[0]),
                "corrected": float(corrected[0]),
                "interval": _percentile_interval(apart[1:]),
            }
        )
    return beside
