"""Games of 003's aggregators: the trusted average and the feature method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..aggregation import Terms, average_trusted, feature, local
from ..data.rows import Rows
from ..errors import InvalidInput
from ..privacy.statement import Statement, restate
from ..privacy.statement_facts import Claim
from .confidence import choose_test
from .game import Scores, Verdict
from .worst_cases import signed_site

_STIFF = 1e5  # Lambda: minimisers stay on the loss's linear piece
Played = tuple[Scores, Statement, str]


def average(form: str, terms: Terms) -> Played:
    """Scenario 2, with one site a tenth as large as the others: a row of the smallest moves the average most."""
    others = [signed_site(*[1.0, -1.0] * 10)] * 2
    tables = [Rows.build([signed_site(1.0, row), *others]) for row in (1.0, -1.0)]
    fits = [
        average_trusted(rows, replace(terms, Lambda=_STIFF, seed=2 * terms.seed + w), form)
        for w, rows in enumerate(tables)
    ]
    why = "the smallest site's row, on Huber's linear piece, moves the average more than a row of the mean site"
    return (-fits[0].models[:, 0], -fits[1].models[:, 0]), fits[0].sites, why


def feature_sites(form: str, terms: Terms) -> Played:
    """Scenario 2: the printed claim is that noise at the aggregator alone protects the sites' rows."""
    said, scores = [], []
    if form == "corrected":  # every site's own release is seen: its worst pair is that of objective perturbation
        for table, row in enumerate((1.0, -1.0)):
            own = replace(terms, seed=2 * terms.seed + table, Lambda=_STIFF)
            fit = local(Rows.build([signed_site(1.0, -1.0, 1.0, row)]), own)
            scores.append(-fit.models[:, 0, 0])
            said.append(fit.sites)
        return (
            (scores[0], scores[1]),
            said[0],
            "Huber's linear piece: a row and its opposite, seen through the site's release",
        )
    X = np.array([[0.8, 0.0], [0.0, 0.8], [0.5, 0.5]])
    boss = Rows.build([(X, np.array([1.0, -1.0, 1.0]))])
    for table, turned in enumerate(([0.6, 0.6], [0.6, -0.6])):
        sites = Rows.build([(np.array([[0.9, 0.1], turned]), np.ones(2))])
        own = replace(terms, seed=2 * terms.seed + table, Lambda=0.05)
        fit = feature(local(sites, replace(own, epsilon=math.inf)), boss, own, "printed")
        scores.append(np.mod(np.arctan2(fit.models[:, 1], fit.models[:, 0]), math.pi))
        said.append(fit.sites)
    why = "one site, two features: the result is along the site's exact model, which a row turns"
    return (scores[0], scores[1]), restate(said[0], Claim(terms.epsilon)), why


def feature_aggregator(form: str, terms: Terms) -> Played:
    """Private rows at the aggregator: the printed noise is for features of norm 1, and ``M x`` is larger."""
    small = Rows.build([(np.full((4, 1), 0.1), np.ones(4))])  # short rows make a long model
    scores, said = [], []
    for table, row in enumerate((1.0, -1.0)):
        boss = Rows.build([signed_site(1.0, -1.0, 1.0, row)])
        own = replace(terms, seed=2 * terms.seed + table, Lambda=1e-3)
        exact = local(small, replace(own, epsilon=math.inf))
        fit = feature(exact, boss, replace(own, Lambda=_STIFF), "printed" if form == "printed" else "private")
        scores.append(fit.models[:, 0] * np.sign(exact.models[:, 0, 0]))
        said.append(fit.aggregator)
    return (-scores[0], -scores[1]), said[0], "one site whose model is ten times longer than its rows"


GAMES: dict[str, Callable[[str, Terms], Played]] = {
    "average": average,
    "feature_sites": feature_sites,
    "feature_aggregator": feature_aggregator,
}
"""Name of a claim -> its game."""


def play(
    name: str,
    form: str = "corrected",
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    replicates: int = 20_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Verdict:
    """Play the game of an aggregation claim, as :func:`sottovoce.audit.play`; InvalidInput if there is none."""
    if name not in GAMES:
        raise InvalidInput("method", name, f"must be one of {sorted(GAMES)}", "see `sottovoce audit --help`")
    if form not in ("corrected", "printed"):
        raise InvalidInput("form", form, "must be 'corrected' or 'printed'", "use 'corrected'")
    terms = Terms(epsilon, delta, loss="huber:0.5", seed=seed, replicates=replicates)
    scores, said, why = GAMES[name](form, terms)
    half = replicates // 2
    first, second = (np.round(x / max(1e-300, float(np.std(np.concatenate(scores)))), 9) for x in scores)
    test = choose_test((first[:half], second[:half]), delta or 0.0, confidence)
    bound = test.verdict((first[half:], second[half:]), delta or 0.0, confidence)
    claimed = said.epsilon if said.printed_claim is None else said.printed_claim
    return Verdict(
        name, form, claimed, said.epsilon, bound, delta or 0.0, confidence, replicates, 1, "threshold on the model", why
    )
