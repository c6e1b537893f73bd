"""From a proposed run to its plan: the noise is calibrated here, once for all sites.

A :class:`Proposal` is what people decide (method, sites, budget), and :func:`make_calibrated_plan`
computes from it the :class:`sottovoce.deploy.plan.Plan` on which all sites agree.  Callers are
``sottovoce plan`` and :mod:`sottovoce.deploy.demonstration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..network.graphs import make_graph
from ..runs.centre import Centring, with_centring_digest
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.pricing import Prepared
from ..runs.start import Start, with_start_digest
from ..util.typing import Any
from .asks import Asks
from .members import Member, training_row_counts
from .plan import Plan, check_public, schema_from_plain
from .recipes import Recipes, price_recipes
from .waits import DEFAULT, Waits

_ROOM = 100.0
"""Ratio of a norm cap to the norm that minimisers and noise reach."""
_LONGEST_LOG_ODDS = 1e9
"""Norm cap of the vector of coefficients of an inference, in encoded columns."""


@dataclass(frozen=True)
class Proposal:
    """A run between sites as people decide it, before its noise is calibrated.

    Parameters
    ----------
    run : str
        Its name in the hub's log and in every site's ledger.
    config : RunConfig
    sites : sequence of Member
        In the order of the graph's nodes.
    d : int
        Features, the constant one included.
    schema : dict, optional
        Of :meth:`sottovoce.data.Schema.to_dict`.
    norm_cap : float, optional
        Largest Euclidean norm of a vector in a message.  None for a hundred times the norm that
        minimisers and noise reach with these public parameters, plus the norm of the start.
    start : Start, optional
        The public point from which all sites start.
    asks : Asks, optional
        Inference or evaluation, in addition to the training or instead of it.
    centre : Centring, optional
        How rows are centred, from :func:`sottovoce.runs.centre.decide_centring`.
    waits : Waits
        How long a round waits for its last site.
    """

    run: str
    config: RunConfig
    sites: Sequence[Member]
    d: int
    schema: dict[str, Any] | None = None
    norm_cap: float | None = None
    start: Start | None = None
    asks: Asks | None = None
    centre: Centring | None = None
    waits: Waits = DEFAULT


def make_calibrated_plan(proposal: Proposal) -> Plan:
    """Check and calibrate a run, and return its plan.

    Raises
    ------
    InvalidInput
        If the proposal breaks a rule of plans, no noise meets its budget, or its inference or
        evaluation is not possible.
    """
    check_public(proposal.run, proposal.config, proposal.sites, proposal.d)
    config = with_centring_digest(
        with_start_digest(proposal.config, proposal.start, proposal.d), proposal.centre
    )
    proposal = replace(proposal, config=config)
    if proposal.asks is None:
        return _plan_of_training(proposal)
    recipes = _price_asked_recipes(proposal, proposal.asks)
    asks = replace(
        proposal.asks,
        scale=_calibrated_scale(recipes.inference),
        evaluation_scale=_calibrated_scale(recipes.evaluation),
    )
    proposal = replace(proposal, asks=asks)
    if recipes.inference is None:
        return _plan_of_training(proposal)
    return _plan_of_inference(proposal)


def _price_asked_recipes(proposal: Proposal, asks: Asks) -> Recipes:
    """Return the inference and evaluation that are asked, with calibrated noise."""
    sizes = [site.rows for site in proposal.sites]
    names = [site.name for site in proposal.sites]
    return price_recipes(
        asks, proposal.config, sizes, proposal.d, schema_from_plain(proposal.schema), names
    )


def _calibrated_scale(prepared: Prepared | None) -> float | None:
    """Return sensitivity over sigma of all releases of a recipe together.

    None without a recipe, and without noise.
    """
    if prepared is None or prepared.algorithm.noise is None:
        return None
    return float(np.max(prepared.algorithm.noise.factor))


def _plan_of_inference(proposal: Proposal) -> Plan:
    """Return the plan of an inference.

    All sites hear each other, and rows are read as they are.
    """
    config = replace(proposal.config, graph="complete", accountant=proposal.config.notion)
    edges = make_graph("complete", len(proposal.sites)).edges
    norm_cap = proposal.norm_cap
    if norm_cap is None:
        norm_cap = _LONGEST_LOG_ODDS
    return _plan_from_proposal(proposal, config, edges, norm_cap, centre=None)


def _plan_of_training(proposal: Proposal) -> Plan:
    """Return the plan of a training, with the penalty and noise that its budget allows."""
    rows = training_row_counts(proposal.sites, proposal.asks)
    prepared = prepare(proposal.config, rows, proposal.d, centre=proposal.centre)
    # The plan holds the calibrated penalty and noise of every round, so that no site calibrates
    # again; their growth from round to round is in them, so the growth factors are 1.
    config = replace(
        proposal.config,
        eta=prepared.algorithm.penalty,
        eta_growth=1.0,
        noise=prepared.algorithm.noise,
        noise_growth=1.0,
        accountant=proposal.config.notion,
    )
    norm_cap = proposal.norm_cap
    if norm_cap is None:
        norm_cap = _default_norm_cap(proposal, prepared)
    return _plan_from_proposal(
        proposal, config, prepared.graph.edges, norm_cap, centre=proposal.centre
    )


def _plan_from_proposal(
    proposal: Proposal,
    config: RunConfig,
    edges: tuple[tuple[int, int], ...],
    norm_cap: float,
    *,
    centre: Centring | None,
) -> Plan:
    """Return the plan of a proposal, with the computed configuration, edges and norm cap."""
    return Plan(
        run=proposal.run,
        config=config,
        d=proposal.d,
        sites=tuple(proposal.sites),
        edges=edges,
        norm_cap=norm_cap,
        schema=proposal.schema,
        start=proposal.start,
        asks=proposal.asks,
        centre=centre,
        waits=proposal.waits,
    )


def _default_norm_cap(proposal: Proposal, prepared: Prepared) -> float:
    """Compute a norm cap for messages and last models from public facts.

    ``(100 (L C / mu + sqrt(d) sigma) + |start|) * stretch``: a site's minimiser has norm at most L
    C / mu, with L the bound on the loss's derivative and mu the strong convexity; sigma is the
    largest standard deviation of the noise.  Last models include the starting point.  ``stretch``
    bounds how much longer a model gets when it is mapped from centred rows to the original ones.
    """
    facts = prepared.facts
    minimiser = facts.loss.derivative_bound * facts.C / facts.mu
    events = prepared.plan_ledger(proposal.config.rounds).rows
    spread = max((float(np.max(event.noise_standard_deviation())) for event in events), default=0.0)
    noise = np.sqrt(facts.d).item() * spread
    start = 0.0
    if proposal.start is not None:
        start = float(np.linalg.norm(proposal.start.vector))
    return (_ROOM * (minimiser + noise) + start) * facts.stretch
