"""From a configuration to a calibrated plan: all that can be checked and priced before any row is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ..algorithms import ANSWERS, REGISTRY, Algorithm, Recipe, knobs_of
from ..data.rows import Rows
from ..data.table import fits
from ..errors import InvalidInput
from ..ledger.life import share_of_life
from ..ledger.memory import Ledger
from ..network.graphs import MOST_NODES, Graph, make_graph
from ..privacy import accountants
from ..privacy.events import Event, SummedGaussianMechanism
from ..privacy.gaussian import nominal_mu
from ..privacy.statement import EXACT, PUBLIC, PUBLIC_OF_PEOPLE, Caveat, Statement, unit_of
from ..problem.clipped import cap
from ..problem.facts import Facts
from ..problem.losses import Loss, make_loss
from ..problem.schedules import Schedule
from ..problem.trust import Trust
from ..util.typing import Any, Array, BoolArray
from .centre import DISCLOSED, Centring, centred
from .config import RunConfig
from .planner import calibrate, plan

MOST_RELEASES = 20_000_000  # rounds times nodes of a run
MOST_ROWS = 10**12  # of a site
MOST_WEIGHTS = 10**8  # of a classifier: features times the margins of the loss
_BESIDE, _HALVED, _NEAREST = 1e-6, 48, 8  # how far another processor's scale may be; steps towards it; numbers there


def build(config: RunConfig, facts: Facts, graph: Graph) -> Algorithm[Any]:
    """The method with the configuration's hyperparameters, its noise not yet calibrated."""
    cls = REGISTRY[config.method]
    eta = default_penalty(config, facts, graph) if config.eta is None else config.eta
    penalty = eta if isinstance(eta, Schedule) else Schedule(eta, config.eta_growth)
    noisy = cls.private and (config.noise is not None or config.budgeted)
    alpha = 1.0 if config.noise is None else config.noise
    schedule = alpha if isinstance(alpha, Schedule) else Schedule(alpha, config.noise_growth)
    noise = schedule if noisy else None
    own = {f.name for f in fields(cls)} & {"form", "rounds"} | set(knobs_of(cls))
    return cls(penalty=penalty, noise=noise, **{name: getattr(config, name) for name in own})


def default_penalty(config: RunConfig, facts: Facts, graph: Graph) -> float:
    """A penalty from public facts: the method's own, or in proportion to the noise that the budget needs.

    Noise of standard deviation s per coordinate (sum scale) moves an answer by up to s / K.  So the strong convexity K
    is in proportion to s, with a factor for each method (``noise_weight``) that was measured on Adult.  A method may
    have a rule of its own: :meth:`sottovoce.algorithms.base.Algorithm.own_penalty`.

    Under pure accounting, for a release of rate ``beta``, the logistic log-determinant costs nothing if
    ``beta K >= 1`` (U1), that is, if ``K >= 2 T / epsilon`` for T equal releases under replace-one; ``K`` is
    ``(n/C)(rho/N + curvature)``.  With a delta it costs almost nothing while ``kappa sqrt(d) / beta`` is small
    (``docs/privacy/tight.md``); with the Gaussian's ``beta = mu sqrt(d/T) / 2`` for a total of mu,
    ``K >= 5 sqrt(T) / mu`` keeps this quantity at a tenth.

    A gradient step has length one over the penalty.  Losses of residuals have second derivatives up to ``1/h``, so the
    step measured for classes may diverge; theirs is one over the largest curvature.
    """
    cls = REGISTRY[config.method]
    releases = 1 if cls.single else config.rounds
    spread = _spread(config, facts, releases) if config.budgeted else 0.0
    own = cls.own_penalty(facts, config.rounds, spread, **{name: getattr(config, name) for name in knobs_of(cls)})
    if own is not None:
        return own
    least = cls.least_penalty * config.C
    if facts.loss.offset_bound and cls.gradient_steps:
        return max(least, config.C * facts.loss.curvature_bound)
    if not config.budgeted or not cls.noise_weight:
        return least
    stiffness = 2.0 * np.maximum(graph.degree, 1) if cls.curvature == "edge" else np.ones_like(facts.n)
    smallest = float(np.min(facts.n * stiffness))
    weight = 1.0 if config.delta is None or facts.pure else cls.noise_weight
    return max(least, config.C * weight * spread / smallest)


def _spread(config: RunConfig, facts: Facts, releases: int) -> float:
    """Standard deviation of a release's noise in a coordinate, in sum scale; about, where it is spherical."""
    epsilon = float(np.min(config.epsilon))
    if config.delta is not None and not facts.pure:
        return 2.0 * facts.loss.derivative_bound * math.sqrt(releases) / nominal_mu(epsilon, config.delta)
    inside = REGISTRY[config.method].objective_noise
    return 2.0 * facts.loss.derivative_bound * releases / epsilon * (1.0 if inside else math.sqrt(facts.d))


def certified(config: RunConfig, loss: Loss) -> float | None:
    """The gradient norm to which solves are certified, over C: under a cap, ``tol`` of the cap."""
    return None if config.tol is None else config.tol * min(1.0, loss.derivative_bound)


def quorum(config: RunConfig, nodes: int) -> tuple[int, int]:
    """Least number of sites of a sum, and how many may collude; zeros where nothing is summed.

    A sum needs two honest sites, and any two sets of its sites an honest one in common, so that there cannot be two
    histories (docs/privacy/sums.md).
    """
    if config.trusted.kind != "sum":
        return 0, 0
    t = config.colluders
    least = max(t + 2, (nodes + t) // 2 + 1)
    if least > nodes:
        why = ": each of two sites can subtract its own share" if nodes == 2 else ""
        rule = f"of {nodes} sites, {t} colluding, too few are left for a sum to hide one{why}"
        raise InvalidInput("colluders", t, rule, "use trust='nobody', which needs no other site, or more sites")
    wanted = least if config.participants is None else config.participants
    if not least <= wanted <= nodes:
        rule = f"must be from {least} to {nodes}: more than half of all sites and colluders, and two honest ones"
        raise InvalidInput("participants", wanted, rule, "leave it out")
    return wanted, t


def trust_of(config: RunConfig, nodes: int) -> Trust:
    """Whom a run trusts, with the numbers of the run."""
    least, t = quorum(config, nodes)
    return Trust.in_sum(least - t, t) if least else config.trusted


def held(config: RunConfig, rows: Rows) -> Rows:
    """The rows as the curators hold them, on the backend asked for: a trusted curator holds those of all sites."""
    if config.trusted.pools_rows:
        rows = rows.pooled()
    return rows if config.backend == "numpy" else rows.on(config.backend)


@dataclass(frozen=True)
class Prepared:
    """A validated and priced run; nothing has been spent yet."""

    config: RunConfig
    facts: Facts
    graph: Graph
    algorithm: Algorithm[Any]
    ledger: Ledger
    centring: Centring | None = None

    @property
    def first(self) -> Recipe | None:
        """What is asked before the method."""
        return None if self.centring is None else self.centring.recipe

    def plan(
        self, rounds: int | None = None, *, node: int | None = None, budget: float = math.inf,
        after: Callable[[int, Ledger], None] | None = None,
    ) -> Ledger:  # fmt: skip
        """The ledger that the run, or its first `rounds`, will leave: see :func:`sottovoce.runs.planner.plan`."""
        many, book = self.config.rounds if rounds is None else rounds, self.ledger
        return plan(
            self.algorithm, self.facts, self.graph, many, book.accountant, book.delta, node=node, budget=budget,
            after=after, first=self.first,
        )  # fmt: skip

    def as_reserved(self, reserved: Sequence[Event]) -> Prepared:
        """This run at the scale of noise with which its releases were reserved, if that is next to its own.

        On another processor prices may differ in their last bits, and a search for the scale ends elsewhere by a little
        more.  Without such a scale the run stays as it is, and the ledger refuses its releases.
        """
        noise, mine = self.algorithm.noise, [event.to_dict() for event in self.plan().rows]
        wanted = [event.to_dict() for event in reserved]
        other = next((k for k, (a, b) in enumerate(zip(mine, wanted, strict=False)) if a != b), None)
        if noise is None or other is None or mine[other].keys() != wanted[other].keys():
            return self

        def at(factor: Array) -> Prepared:
            exact = replace(noise, factor=factor.item() if factor.ndim == 0 else tuple(factor.tolist()))
            return replace(self, algorithm=self.algorithm.with_noise(exact))

        def matches(factor: Array) -> BoolArray:
            """For each node whether all that was reserved for it is what is planned now."""
            same = np.ones(self.facts.n_nodes, dtype=bool)
            for event, other in zip(at(factor).plan().rows, wanted, strict=False):
                for name, value in event.to_dict().items():
                    each = isinstance(value, list) and isinstance(other[name], list) and len(value) == len(same)
                    same &= np.array(value) == np.array(other[name]) if each else value == other[name]
            return same if factor.ndim else np.array(np.all(same))

        own = np.asarray(noise.factor, dtype=float)
        aim = np.asarray(reserved[other].spread(), dtype=float).ravel()
        low, high = own * (1.0 - _BESIDE), own * (1.0 + _BESIDE)
        for _ in range(_HALVED):  # a larger factor is less noise
            middle = 0.5 * (low + high)
            more = np.asarray(at(middle).plan().rows[other].spread(), dtype=float).ravel() > aim
            more = more if own.ndim else more[0]
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        found = np.full(own.shape, np.nan)
        for _ in range(_NEAREST):
            low = np.nextafter(low, 0.0)
        for _ in range(2 * _NEAREST):
            low = np.nextafter(low, np.inf)
            found = np.where(np.isnan(found) & matches(low), low, found)
        return self if np.any(np.isnan(found)) else at(found)


def prepare(
    config: RunConfig, n: Array, d: int, *, graph: Graph | None = None, method: Recipe | None = None,
    loss: Loss | None = None, centre: Centring | None = None,
) -> Prepared:  # fmt: skip
    """Check everything that can be checked without rows, and calibrate the noise.

    Nodes have `n` rows, (N, 1), of `d` features; `graph` and `loss` are by default the configuration's.  A recipe
    `method` is run under this configuration's budget and trust (:meth:`sottovoce.RunConfig.for_recipe`).  With `centre`
    the rows' mean is asked first, within the budget, and the method runs on moved rows.

    Raises
    ------
    InvalidInput
        On a parameter that breaks a rule, a target that cannot be met, or a budget below the price of one round; of
        all rounds, if only they together mean something.
    """
    config = centred(asked_by(config, method), centre)
    check_size(config, n, d)
    if centre is not None:
        centre.check(d // make_loss(config.loss).outputs)
    accountant = accountants.make_accountant(config.notion)
    rho = config.rho
    if config.trusted.pools_rows:  # of the same problem: sum_i f_i over N is mean loss + rho/(2N)
        n, rho = n.sum(axis=0, keepdims=True), rho / len(n)
    if graph is None:
        seed = 0 if config.seed is None else config.seed
        sums = config.trusts == "sum" or method is not None  # over all sites, not over neighbours
        graph = make_graph(config.graph if len(n) > 1 else "complete", len(n), seed, listed=not sums)
    loss = cap(make_loss(config.loss), config.max_grad_norm) if loss is None else loss
    participants, colluders = quorum(config, len(n))
    facts = Facts(
        loss, n, d, config.C, rho, len(n), config.relation, certified(config, loss), pure=accountant.name == "pure",
        max_degree=int(np.max(graph.degree)), participants=participants, colluders=colluders,
        sites_per_row=config.sites_per_row if participants else 1, rows_per_person=config.rows_per_person,
        stretch=1.0 if centre is None else centre.stretch,
    )  # fmt: skip
    first = None if centre is None else centre.recipe
    if first is not None and facts.pure:
        rule = "a mean's noise is Gaussian and has no pure price"
        raise InvalidInput("centre", None, rule, "use delta=1e-5, or leave centring out")
    for name in ("epsilon", "eta", "eta_growth", "noise"):
        value = getattr(config, name)
        lengths = {len(value)} if isinstance(value, tuple) else value.nodes if isinstance(value, Schedule) else set()
        if lengths - {len(n)}:
            rule = f"must be one number, or one for each of the {len(n)} nodes"
            raise InvalidInput(name, value.words if isinstance(value, Schedule) else value, rule, "correct it")
    if not config.sites_per_row <= len(n):
        raise InvalidInput("sites_per_row", config.sites_per_row, f"there are {len(n)} sites", "use fewer")
    algorithm: Algorithm[Any]
    if method is None:
        algorithm = build(config, facts, graph)
    else:
        algorithm = method if config.noise is not None or not config.budgeted else method.with_noise(method.shape)
    delta, budget, m = config.delta or 0.0, np.asarray(config.epsilon, dtype=float), config.sites_per_row
    if algorithm.noise is not None and config.noise is None:
        claimed = config.form != "corrected"
        algorithm = calibrate(
            algorithm, facts, graph, config.rounds, budget, accountant, delta, sites_per_row=m, copies=config.copies,
            claimed=claimed, first=first,
        )  # fmt: skip
        # A printed form is asked for by its paper's claim; what is proved may be more, and is reported.
        budget = np.array(math.inf) if claimed else budget
    else:
        many = config.rounds if algorithm.complete else 1
        least = plan(algorithm, facts, graph, many, accountant, delta, m, config.copies, first=first)
        totals = np.array(least.total() / (1.0 + 1e-9)) if algorithm.complete else least.per_node()
        if np.any(totals > budget):
            rule = f"{'the whole run' if algorithm.complete else 'one round'} costs {least.total():.4g}"
            raise InvalidInput("epsilon", config.epsilon, rule, "raise epsilon, or lower noise, or leave noise out")
    if config.form == "printed":
        algorithm.check_claim(facts, config.rounds)
    return Prepared(config, facts, graph, algorithm, Ledger(accountant, budget, delta, m), centre)


def asked_by(config: RunConfig, method: Recipe | None) -> RunConfig:
    """The configuration of a run: of a recipe asked under another's budget, one of its own."""
    if method is None:
        if config.method in ANSWERS:
            rule = "is a recipe, which is asked in place of a method"
            raise InvalidInput("method", config.method, rule, "use 'auto'")
        return config
    own = config.for_recipe(method)
    if config.noise is not None and config != own:
        rule = "a recipe calibrates the noise of its own releases"
        raise InvalidInput("noise", config.noise, rule, "leave it out, and give an epsilon")
    return own


def check_size(config: RunConfig, n: Array, d: int) -> None:
    """Refuse sizes too large to compute with, and a number of weights that does not fit the loss."""
    for field, value, most, remedy in (
        ("nodes", len(n), MOST_NODES, "use fewer sites"),
        ("n", float(np.max(n, initial=0)), MOST_ROWS, "use fewer rows a site"),
        ("d", d, MOST_WEIGHTS, "use fewer features"),
        ("rounds", config.rounds, MOST_RELEASES // max(len(n), 1), f"with {len(n):,} nodes; use fewer rounds"),
    ):
        if not value <= most:
            raise InvalidInput(field, value, f"must be at most {most:,}", remedy)
    fits("replicates", 8.0 * config.replicates * len(n) * d)
    loss = make_loss(config.loss)
    if d % loss.outputs:
        rule = f"must be a multiple of the {loss.outputs} margins that the loss {loss.spec} has a row"
        raise InvalidInput("d", d, rule, "give features times margins, or use loss='logistic'")


def privacy_statement(
    prepared: Prepared, rows: Iterable[Event], *, simulated: bool, caveat: Caveat = None
) -> Statement:
    """The guarantee of a run, which its accountant derives from the ledger's `rows`.

    `simulated` says whether the noise can be repeated; `caveat`, one or several, what epsilon does not cover, e.g.
    :attr:`sottovoce.data.Schema.caveat`.
    """
    facts, config, book = prepared.facts, prepared.config, prepared.ledger
    ledger = Ledger(book.accountant, math.inf, book.delta, book.sites_per_row)
    ledger.charge_all(tuple(rows), config.copies)
    said = Statement.prove(
        ledger, trust_of(config, facts.n_nodes), relation=facts.relation, nodes=facts.n_nodes, simulated=simulated,
        unit=unit_of(config.sites_per_row), form=config.form, assumes=EXACT, caveat=caveat,
        public=PUBLIC if config.rows_per_person is None else PUBLIC_OF_PEOPLE,
        printed_claim=None if config.form == "corrected" else ledger.claimed(),
    )  # fmt: skip
    if prepared.centring is not None:
        said = said.disclosing(DISCLOSED)
    if config.rows_per_person is not None:
        said = said.of_whole_people(config.rows_per_person, config.sites_per_row)
    return said.if_others_collude(against_all(ledger, facts.n_nodes)) if facts.participants else said


def against_all(ledger: Ledger, nodes: int) -> float:
    """What a ledger's releases cost a site's rows if all other sites collude."""
    alone = Ledger(ledger.accountant, math.inf, ledger.delta, ledger.sites_per_row)
    rows = ledger.rows
    alone.charge_all([row.against(nodes - 1) if isinstance(row, SummedGaussianMechanism) else row for row in rows])
    return alone.total()


def outline(
    config: RunConfig, n: Array, d: int, *, caveat: Caveat = None, life: float | None = None,
    centre: Centring | None = None, method: Recipe | None = None, loss: Loss | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What a run will cost and how much noise that means, computed without data; arguments as for :func:`prepare`.

    Plain data: the whole run's statement (``privacy``), the method with its calibrated noise (``algorithm``), what the
    run takes of a ledger's lifetime budget `life`, and ``releases``, per release and node: its own epsilon, and an
    upper bound on the noise's standard deviation in a coordinate.
    """
    prepared = prepare(config, n, d, method=method, loss=loss, centre=centre)
    rows, book, nodes = prepared.plan().rows, prepared.ledger, prepared.facts.n_nodes

    def one(event: Event) -> dict[str, Any]:
        alone = np.broadcast_to(book.accountant.total([event], book.delta), (nodes,))
        return {"epsilon": alone.tolist(), "spread": np.broadcast_to(event.spread(), (nodes,)).tolist()}

    known = {repr(event.to_dict()): event for event in rows}
    priced = {text: {"event": type(event).__name__} | one(event) for text, event in known.items()}
    releases = [dict(priced[repr(event.to_dict())]) for event in rows]
    return {
        "method": config.method, "graph": config.graph, "rounds": config.rounds, "n": n[:, 0].astype(int).tolist(),
        "features": d,
        "privacy": privacy_statement(prepared, rows, simulated=config.seed is not None, caveat=caveat).to_dict(),
        "algorithm": prepared.algorithm.to_dict(), "releases": releases, "config": prepared.config.to_dict(),
        "life": share_of_life(rows, config.delta, life),
    }  # fmt: skip
