"""Audits of 003's aggregators: attacks on the trusted average and on the feature method.

A *game* runs a method many times on each of two neighbouring data sets that are a worst case, and
scores each result.  How well the scores tell the two apart is a lower bound on epsilon
(:mod:`sottovoce.audit`), which is compared with the claim.  The entries at the end are registered
as audits of the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from sottovoce.audit import Adversary, Options, Scores, Verdict, choose_test
from sottovoce.data.rows import Rows
from sottovoce.privacy.statement import Statement, with_further_facts
from sottovoce.privacy.statement_facts import Claim
from sottovoce.util.typing import Array

from .aggregation import Terms, average_trusted, feature, local

_STIFF = 1e5  # Lambda: minimisers stay on the loss's linear piece
RUNS, QUICK_RUNS = 20_000, 4_000
# Scores (R,) of the runs on both data sets, what the run states, and why they are a worst case.
Played = tuple[Scores, Statement, str]
Game = Callable[[str, Terms], Played]  # from a form, "corrected" or "printed", and the terms


def signed_site(*signed: float) -> tuple[Array, Array]:
    """Return features (n, 1) and labels (n,) of a site from the products ``y x`` of its rows."""
    products = np.array(signed)
    return np.abs(products)[:, None], np.where(products >= 0, 1.0, -1.0)


def average(form: str, terms: Terms) -> Played:
    """Play against the trusted average (scenario 2) with one site a tenth as large as the others.

    A row of the smallest site moves the average most.
    """
    others = [signed_site(*[1.0, -1.0] * 10)] * 2
    tables = [Rows.build_from_parts([signed_site(1.0, row), *others]) for row in (1.0, -1.0)]
    fits = [
        average_trusted(rows, replace(terms, Lambda=_STIFF, seed=2 * terms.seed + w), form)
        for w, rows in enumerate(tables)
    ]
    why = (
        "the smallest site's row, on Huber's linear piece, moves the average more than a row "
        "of the mean site"
    )
    return (-fits[0].models[:, 0], -fits[1].models[:, 0]), fits[0].sites, why


def feature_sites(form: str, terms: Terms) -> Played:
    """Play against the feature method for a row of a site.

    The printed claim is that noise at the aggregator alone protects the sites' rows.
    """
    said, scores = [], []
    if form == "corrected":
        # every site's own release is seen: its worst pair is that of objective perturbation
        for table, row in enumerate((1.0, -1.0)):
            own = replace(terms, seed=2 * terms.seed + table, Lambda=_STIFF)
            fit = local(Rows.build_from_parts([signed_site(1.0, -1.0, 1.0, row)]), own)
            scores.append(-fit.models[:, 0, 0])
            said.append(fit.sites)
        return (
            (scores[0], scores[1]),
            said[0],
            "Huber's linear piece: a row and its opposite, seen through the site's release",
        )
    X = np.array([[0.8, 0.0], [0.0, 0.8], [0.5, 0.5]])
    boss = Rows.build_from_parts([(X, np.array([1.0, -1.0, 1.0]))])
    for table, turned in enumerate(([0.6, 0.6], [0.6, -0.6])):
        sites = Rows.build_from_parts([(np.array([[0.9, 0.1], turned]), np.ones(2))])
        own = replace(terms, seed=2 * terms.seed + table, Lambda=0.05)
        fit = feature(local(sites, replace(own, epsilon=math.inf)), boss, own, "printed")
        scores.append(np.mod(np.arctan2(fit.models[:, 1], fit.models[:, 0]), math.pi))
        said.append(fit.sites)
    why = "one site, two features: the result is along the site's exact model, which a row turns"
    return (scores[0], scores[1]), with_further_facts(said[0], Claim(terms.epsilon)), why


def feature_aggregator(form: str, terms: Terms) -> Played:
    """Play against the feature method for a row of the aggregator.

    The printed noise is for features of norm 1, and here the features ``M x`` are larger.
    """
    # short rows make a long model
    small = Rows.build_from_parts([(np.full((4, 1), 0.1), np.ones(4))])
    own_rows = {"printed": "printed"}
    scores, said = [], []
    for table, row in enumerate((1.0, -1.0)):
        boss = Rows.build_from_parts([signed_site(1.0, -1.0, 1.0, row)])
        own = replace(terms, seed=2 * terms.seed + table, Lambda=1e-3)
        exact = local(small, replace(own, epsilon=math.inf))
        fit = feature(exact, boss, replace(own, Lambda=_STIFF), own_rows.get(form, "private"))
        scores.append(fit.models[:, 0] * np.sign(exact.models[:, 0, 0]))
        said.append(fit.aggregator)
    return (
        (-scores[0], -scores[1]),
        said[0],
        "one site whose model is ten times longer than its rows",
    )


def play(game: Game, name: str, asked: Options) -> Verdict:
    """Play the game of an aggregation claim and bound epsilon from its scores.

    Parameters
    ----------
    game : callable
        Makes the scores of both data sets, the run's statement, and the reason why these data sets
        are a worst case.
    name : str
        Of the claim.
    asked : Options
        The claimed epsilon and delta, the form, and the number of replicates to draw.

    Returns
    -------
    Verdict
        With the lower bound on epsilon at the given confidence.
    """
    epsilon = asked.epsilon
    if epsilon is None:
        epsilon = 1.0
    delta, replicates = asked.delta, asked.replicates or RUNS
    terms = Terms(epsilon, delta, loss="huber:0.5", seed=asked.seed, replicates=replicates)
    scores, said, why = game(asked.form, terms)
    half = replicates // 2
    first, second = (
        np.round(x / max(1e-300, float(np.std(np.concatenate(scores)))), 9) for x in scores
    )
    # one half of the replicates chooses the test, the other one bounds epsilon by it
    test = choose_test((first[:half], second[:half]), delta or 0.0, asked.confidence)
    bound = test.epsilon_lower_bound((first[half:], second[half:]), delta or 0.0, asked.confidence)
    # a corrected form claims what is proved for it
    claimed = said.printed_claim
    if claimed is None:
        claimed = said.epsilon
    return Verdict(
        method=name,
        form=asked.form,
        claimed_epsilon=claimed,
        proved_epsilon=said.epsilon,
        lower_bound=bound,
        delta=delta or 0.0,
        confidence=asked.confidence,
        replicates=replicates,
        rounds=1,
        attack="threshold on the model",
        why=why,
    )


def _adversary(game: Game, name: str) -> Adversary:
    return Adversary(
        partial(play, game, name), RUNS, QUICK_RUNS, forms=("corrected", "printed"), more=True
    )


AVERAGE = _adversary(average, "average")
FEATURE_SITES = _adversary(feature_sites, "feature_sites")
FEATURE_AGGREGATOR = _adversary(feature_aggregator, "feature_aggregator")
