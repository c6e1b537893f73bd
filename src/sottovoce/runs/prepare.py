"""From a configuration to a calibrated, priced run, before any row is read.

:func:`prepare` checks the configuration against public sizes, builds the method, and calibrates its
noise to the budget (:mod:`sottovoce.runs.calibration`).  It is called by
:mod:`sottovoce.runs.planned` for runs, and by :func:`outline_run` for cost reports.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields, replace

import numpy as np

from ..algorithms import ANSWERS, REGISTRY, Algorithm, Recipe
from ..data.rows import Rows
from ..data.table import check_memory_fits
from ..errors import InvalidInput
from ..ledger.memory import Ledger
from ..network.graphs import MOST_NODES, Graph, make_graph
from ..privacy import accountants
from ..privacy.gaussian import nominal_mu
from ..privacy.statement_facts import Caveat
from ..problem.clipped import clip_gradients
from ..problem.facts import Facts
from ..problem.losses import Loss, make_loss
from ..problem.schedules import Schedule
from ..util.typing import Any, Array
from .calibration import calibrate_method
from .centre import Centring, with_centring_digest
from .config import RunConfig
from .pricing import Prepared, RunSetting, cost_report, plan_ledger

# Largest number of rounds times nodes of a run.
MOST_RELEASES = 20_000_000
MOST_ROWS = 10**12  # at a site
# Largest number of entries of a model: features times the margins of the loss.
MOST_WEIGHTS = 10**8


def build_algorithm(config: RunConfig, facts: Facts, graph: Graph) -> Algorithm[Any]:
    """Make the configuration's method, its noise not yet calibrated.

    Parameters
    ----------
    config : RunConfig
        With the name of a registered method.
    facts : Facts
        Public facts, from which a penalty that was left out follows (:func:`default_penalty`).
    graph : Graph

    Returns
    -------
    Algorithm
        Its noise is the configuration's (the shape of a schedule, of level 1, if none is given),
        and None if the method has none or the budget is infinite.
    """
    cls = REGISTRY[config.method]
    eta = config.eta
    if eta is None:
        eta = default_penalty(config, facts, graph)
    penalty = _as_schedule(eta, config.eta_growth)
    alpha = config.noise
    if alpha is None:
        # Calibration multiplies the whole schedule, so only its shape over rounds counts.
        alpha = 1.0
    schedule = _as_schedule(alpha, config.noise_growth)
    noise = None
    if cls.private and (config.noise is not None or config.budgeted):
        noise = schedule
    # Only some methods have these fields.
    own = {f.name for f in fields(cls)} & {"form", "rounds"}
    return cls(
        penalty=penalty,
        noise=noise,
        options=config.options,
        **{name: getattr(config, name) for name in own},
    )


def _as_schedule(value: float | tuple[float, ...] | Schedule, growth: Any) -> Schedule:
    """Return a schedule as it is, or that of a first value and a factor from round to round."""
    if isinstance(value, Schedule):
        return value
    return Schedule(value, growth)


def default_penalty(config: RunConfig, facts: Facts, graph: Graph) -> float:
    """Compute the penalty eta that a configuration leaves open, from public facts.

    A method may have a rule of its own: :meth:`sottovoce.algorithms.base.Algorithm.own_penalty`.
    Otherwise the penalty is proportional to the noise that the budget needs.

    Parameters
    ----------
    config : RunConfig
        The method, its budget and rounds, and C.
    facts : Facts
        Rows of the nodes, the loss and its bounds, and whether accounting is pure.
    graph : Graph
        Degrees, for methods whose curvature comes from edges.

    Returns
    -------
    float
        The penalty eta; a gradient step has length one over it.

    Notes
    -----
    Noise of standard deviation s per coordinate (sum scale) moves a minimiser by up to ``s / K``,
    with K the strong convexity ``(n/C)(rho/N + curvature)``.  So K is chosen proportional to s,
    with a factor for each method (``noise_weight``) that was measured on Adult.

    Under pure accounting, for a release of rate ``beta``, the logistic log-determinant costs
    nothing if ``beta K >= 1`` (U1), that is, if ``K >= 2 T / epsilon`` for T equal releases under
    replace-one.  With a delta it costs almost nothing while
    ``kappa sqrt(d) / beta`` is small (``docs/privacy/tight.md``); with the Gaussian's ``beta = mu
    sqrt(d/T) / 2`` for a total of mu, ``K >= 5 sqrt(T) / mu`` keeps this quantity at a tenth.

    Losses of residuals have second derivatives up to ``1/h``, so the step measured for classes may
    diverge; theirs is one over the largest curvature.
    """
    cls = REGISTRY[config.method]
    releases = config.rounds
    if cls.single:
        releases = 1
    spread = 0.0
    if config.budgeted:
        spread = _noise_deviation(config, facts, releases)
    own = cls.own_penalty(facts, config.rounds, spread, config.options)
    if own is not None:
        return own
    least = cls.least_penalty * config.C
    if facts.loss.offset_bound and cls.gradient_steps:
        return max(least, config.C * facts.loss.curvature_bound)
    if not config.budgeted or not cls.noise_weight:
        return least
    # Curvature that a node gets per unit of the penalty: where each edge has a penalty eta, a
    # node's curvature is 2 eta times its degree.
    curvature_of_penalty = np.ones_like(facts.n)
    if cls.curvature == "edge":
        curvature_of_penalty = 2.0 * np.maximum(graph.degree, 1)
    smallest = float(np.min(facts.n * curvature_of_penalty))
    # Under pure accounting the rule is that of U1, in the notes above.
    weight = cls.noise_weight
    if config.delta is None or facts.pure:
        weight = 1.0
    return max(least, config.C * weight * spread / smallest)


def _noise_deviation(config: RunConfig, facts: Facts, releases: int) -> float:
    """Estimate the standard deviation of a release's noise in a coordinate, in sum scale.

    For spherical noise it is an order of magnitude.
    """
    epsilon = float(np.min(config.epsilon))
    # A row that is replaced changes a sum of gradients by up to 2 L.
    change = 2.0 * facts.loss.derivative_bound
    if config.delta is not None and not facts.pure:
        return change * math.sqrt(releases) / nominal_mu(epsilon, config.delta)
    # Spherical noise of rate beta = epsilon / (2 L T) has a standard deviation of about root d /
    # beta in a coordinate.  Inside the objective 1 / beta is used, which gives the rule beta K >= 1
    # of `default_penalty`.
    per_rate = change * releases / epsilon
    if REGISTRY[config.method].objective_noise:
        return per_rate
    return per_rate * math.sqrt(facts.d)


def gradient_tolerance(config: RunConfig, loss: Loss) -> float | None:
    """Return the gradient norm to which solves are certified, over C; None without ``tol``."""
    if config.tol is None:
        return None
    return config.tol * min(1.0, loss.derivative_bound)


def quorum_of_sums(config: RunConfig, nodes: int) -> tuple[int, int]:
    """Return the least number of sites of a sum, and how many may collude; zeros without sums.

    A sum needs two honest sites, and any two sets of its sites an honest one in common, so that
    there cannot be two histories (docs/privacy/sums.md).
    """
    if not config.trusted.opens_sums:
        return 0, 0
    t = config.colluders
    least = max(t + 2, (nodes + t) // 2 + 1)
    if least > nodes:
        why = ""
        if nodes == 2:
            why = ", because each of two sites can subtract its own share"
        rule = f"with {t} colluding of {nodes} sites, a sum does not hide a single site{why}"
        raise InvalidInput(
            "colluders", t, rule, "use more sites, or trust='nobody', which needs no other site"
        )
    wanted = config.participants
    if wanted is None:
        wanted = least
    if not least <= wanted <= nodes:
        rule = (
            f"must be from {least} to {nodes}: more than (sites + colluders) / 2, and at least "
            "colluders + 2"
        )
        raise InvalidInput("participants", wanted, rule, "leave it out")
    return wanted, t


def rows_on_backend(config: RunConfig, rows: Rows) -> Rows:
    """Return the rows as row guards hold them, on the configuration's array backend.

    Under central trust the one party holds the rows of all sites.
    """
    if config.trusted.pools_rows:
        rows = rows.pool_at_one_node()
    if config.backend == "numpy":
        return rows
    return rows.with_backend(config.backend)


def prepare(
    config: RunConfig,
    n: Array,
    d: int,
    *,
    graph: Graph | None = None,
    method: Recipe | None = None,
    loss: Loss | None = None,
    centre: Centring | None = None,
) -> Prepared:
    """Check everything that can be checked without rows, and calibrate the noise.

    Parameters
    ----------
    config : RunConfig
    n : array (N, 1)
        Rows of every site.
    d : int
        Features of a row, times the margins of the loss.
    graph, loss : optional
        By default those of the configuration.
    method : Recipe, optional
        Asked under this configuration's budget and trust (:meth:`sottovoce.RunConfig.for_recipe`).
    centre : Centring, optional
        Release the rows' mean first, within the budget, and run the method on centred rows.

    Returns
    -------
    Prepared

    Raises
    ------
    InvalidInput
        On a parameter that breaks a rule, an epsilon that no noise can meet, or given noise whose
        first round exceeds epsilon (all rounds, for a method that needs all of them).
    """
    config = with_centring_digest(config_of_asked_run(config, method), centre)
    check_run_size(config, n, d)
    if centre is not None:
        centre.check_columns(d // make_loss(config.loss).outputs)
    if loss is None:
        loss = clip_gradients(make_loss(config.loss), config.gradient_cap)
    rho = config.rho
    if config.trusted.pools_rows:
        # The curator solves the same problem with N = 1: the mean of the nodes' objectives is the
        # mean loss plus (rho / N) ||w||^2 / 2.
        rho = rho / len(n)
        n = n.sum(axis=0, keepdims=True)
    if graph is None:
        graph = _graph_of_config(
            config, len(n), sums=config.trusted.opens_sums or method is not None
        )
    accountant = accountants.make_accountant(config.notion)
    facts = _collect_facts(config, n, d, rho, loss, graph, centre, pure=accountant.name == "pure")
    _check_node_counts(config, len(n))
    if method is None:
        algorithm = build_algorithm(config, facts, graph)
    else:
        algorithm = _recipe_with_noise_shape(method, config)
    setting = _collect_setting(config, facts, graph, accountant, centre)
    algorithm, budget = _within_budget(algorithm, setting, config)
    ledger = Ledger(accountant, budget, setting.delta, setting.sites_per_row)
    return Prepared(config, facts, graph, algorithm, ledger, centre)


def _collect_facts(
    config: RunConfig,
    n: Array,
    d: int,
    rho: float,
    loss: Loss,
    graph: Graph,
    centre: Centring | None,
    *,
    pure: bool,
) -> Facts:
    """Collect the public facts of a run, under a regulariser `rho` of the nodes."""
    participants, colluders = quorum_of_sums(config, len(n))
    sites_per_row = 1
    if participants:
        # A person's rows at several sites all move one sum, so its privacy loss depends on this.
        sites_per_row = config.sites_per_row
    # By how much centring enlarges the rounding of products.
    stretch = 1.0
    if centre is not None:
        stretch = centre.stretch
    facts = Facts(
        loss,
        n,
        d,
        config.C,
        rho,
        len(n),
        config.relation,
        gradient_tolerance(config, loss),
        pure=pure,
        max_degree=int(np.max(graph.degree)),
        participants=participants,
        colluders=colluders,
        sites_per_row=sites_per_row,
        rows_per_person=config.rows_per_person,
        stretch=stretch,
    )
    if centre is not None and pure:
        rule = "the means of columns need Gaussian noise, which has no pure epsilon"
        raise InvalidInput("centre", None, rule, "use delta=1e-5, or do not centre rows")
    return facts


def _collect_setting(
    config: RunConfig,
    facts: Facts,
    graph: Graph,
    accountant: accountants.Accountant[Any],
    centre: Centring | None,
) -> RunSetting:
    """Collect what the price of the configuration's run depends on."""
    first = None
    if centre is not None:
        first = centre.recipe
    return RunSetting(
        facts,
        graph,
        config.rounds,
        accountant,
        config.delta or 0.0,
        sites_per_row=config.sites_per_row,
        copies=config.copies,
        first=first,
    )


def _within_budget(
    algorithm: Algorithm[Any], setting: RunSetting, config: RunConfig
) -> tuple[Algorithm[Any], Array]:
    """Return the method, calibrated unless its noise is given, and the limit of its ledger.

    A printed form is calibrated by its paper's claim.  What is proved of it may be a larger
    epsilon, which is reported; so its ledger has no limit.
    """
    budget = np.asarray(config.epsilon, dtype=float)
    if algorithm.noise is not None and config.noise is None:
        claimed = config.form != "corrected"
        algorithm = calibrate_method(algorithm, setting, budget, claimed=claimed)
        if claimed:
            budget = np.array(math.inf)
    else:
        check_affordable(algorithm, setting, config)
    if config.form == "printed":
        algorithm.check_claim(setting.facts, config.rounds)
    return algorithm, budget


def _graph_of_config(config: RunConfig, nodes: int, sums: bool) -> Graph:
    """Return the configuration's graph.

    With `sums` over all sites no edge is read, so a large complete graph need not list its edges.
    """
    seed = config.seed
    if seed is None:
        seed = 0
    # Kinds of graphs other than "complete" may need two nodes or more.
    name = config.graph
    if nodes <= 1:
        name = "complete"
    return make_graph(name, nodes, seed, listed=not sums)


def _recipe_with_noise_shape(method: Recipe, config: RunConfig) -> Recipe:
    """Return a recipe with the shape of its noise over items, which calibration scales.

    The recipe is unchanged if its noise is given, or the budget is infinite.
    """
    if config.noise is not None or not config.budgeted:
        return method
    return method.with_noise(method.releases_with_noise.shape)


def _check_node_counts(config: RunConfig, nodes: int) -> None:
    """Refuse (InvalidInput) parameters that are given for another number of nodes."""
    for name in ("epsilon", "eta", "eta_growth", "noise"):
        value = getattr(config, name)
        lengths: Collection[int] = ()
        if isinstance(value, tuple):
            lengths = {len(value)}
        elif isinstance(value, Schedule):
            lengths = value.nodes
        if any(length != nodes for length in lengths):
            shown = value
            if isinstance(value, Schedule):
                shown = value.describe_values
            rule = f"must be one number, or one for each of the {nodes} nodes"
            raise InvalidInput(name, shown, rule, f"give one or {nodes} numbers")
    if config.sites_per_row > nodes:
        raise InvalidInput(
            "sites_per_row",
            config.sites_per_row,
            f"must be at most the number of sites, {nodes}",
            "use fewer",
        )


def check_affordable(algorithm: Algorithm[Any], setting: RunSetting, config: RunConfig) -> None:
    """Refuse noise that was given, if the budget does not pay for one round.

    For a method that needs all of its rounds (:attr:`Algorithm.complete`) the budget must pay for
    all of them, up to rounding.

    Parameters
    ----------
    algorithm : Algorithm
        With its noise.
    setting : RunSetting
        What the run is priced under.
    config : RunConfig
        The budget epsilon, and the number of rounds.

    Raises
    ------
    InvalidInput
        If the first round (all rounds of a complete method) costs more than epsilon at some node.
    """
    if algorithm.complete:
        what = "the whole run"
        least = plan_ledger(algorithm, replace(setting, rounds=config.rounds))
        # Noise that was calibrated to the budget costs it up to rounding.
        totals = np.array(least.total() / (1.0 + 1e-9))
    else:
        what = "one round"
        least = plan_ledger(algorithm, replace(setting, rounds=1))
        totals = least.per_node()
    if np.any(totals > np.asarray(config.epsilon, dtype=float)):
        rule = f"with the given noise, {what} costs {least.total():.4g}"
        raise InvalidInput(
            "epsilon",
            config.epsilon,
            rule,
            "raise epsilon, or lower alpha (noise=), or leave noise out",
        )


def config_of_asked_run(config: RunConfig, method: Recipe | None) -> RunConfig:
    """Return the configuration of a run; for a recipe asked under its budget, that of the recipe.

    InvalidInput if the configuration names a recipe as its method, or gives a recipe's noise.
    """
    if method is None:
        if config.method in ANSWERS:
            rule = "names a release of statistics, which does not train a model"
            raise InvalidInput("method", config.method, rule, "use 'auto'")
        return config
    own = config.for_recipe(method)
    if config.noise is not None and config != own:
        rule = "the noise of released statistics follows from epsilon"
        raise InvalidInput("noise", config.noise, rule, "leave it out, and give an epsilon")
    return own


def check_run_size(config: RunConfig, n: Array, d: int) -> None:
    """Refuse sizes too large to compute with, and a number of weights that does not fit the loss.

    Parameters
    ----------
    config : RunConfig
    n : array (N, 1)
        Rows of every site: at most `MOST_ROWS` each, and at most `MOST_NODES` sites.
    d : int
        Entries of a model, at most `MOST_WEIGHTS`: a multiple of the margins of the loss.

    Raises
    ------
    InvalidInput
        Naming the size that is too large, or `d`.
    """
    most_rounds = MOST_RELEASES // max(len(n), 1)
    fewer_rounds = f"with {len(n):,} nodes; use fewer rounds"
    for field, value, most, remedy in (
        ("nodes", len(n), MOST_NODES, "use fewer sites"),
        ("n", float(np.max(n, initial=0)), MOST_ROWS, "use fewer rows a site"),
        ("d", d, MOST_WEIGHTS, "use fewer features"),
        ("rounds", config.rounds, most_rounds, fewer_rounds),
    ):
        # Not `value > most`, which is false for a NaN.
        if not value <= most:
            raise InvalidInput(field, value, f"must be at most {most:,}", remedy)
    check_memory_fits("replicates", 8.0 * config.replicates * len(n) * d)
    loss = make_loss(config.loss)
    if d % loss.outputs:
        rule = (
            f"must be a multiple of {loss.outputs}: the loss {loss.spec} has {loss.outputs} "
            "weights for every feature"
        )
        raise InvalidInput("d", d, rule, "give features times margins, or use loss='logistic'")


def outline_run(
    config: RunConfig,
    n: Array,
    d: int,
    *,
    caveat: Caveat = None,
    life: float | None = None,
    centre: Centring | None = None,
    method: Recipe | None = None,
    loss: Loss | None = None,
) -> dict[str, Any]:
    """Compute a run's privacy loss and noise without data, as plain data for reports.

    Parameters
    ----------
    config, n, d, centre, method, loss
        As for :func:`prepare`.
    caveat, life
        As for :func:`sottovoce.runs.pricing.cost_report`.

    Returns
    -------
    dict
        Plain data: the run's public sizes, and what :func:`sottovoce.runs.pricing.cost_report` says
        of it.

    Raises
    ------
    InvalidInput
        As :func:`prepare`.
    """
    prepared = prepare(config, n, d, method=method, loss=loss, centre=centre)
    return public_sizes(config, n, d) | cost_report(prepared, caveat=caveat, life=life)


def public_sizes(config: RunConfig, n: Array, d: int) -> dict[str, Any]:
    """Return a run's public sizes as plain data, for reports.

    Parameters
    ----------
    config : RunConfig
    n : array (N, 1)
        Rows of every site.
    d : int
        Entries of a model.

    Returns
    -------
    dict
        ``method``, ``graph``, ``rounds``, ``n`` (a list of N integers) and ``features`` (d).
    """
    return {
        "method": config.method,
        "graph": config.graph,
        "rounds": config.rounds,
        "n": n[:, 0].astype(int).tolist(),
        "features": d,
    }
