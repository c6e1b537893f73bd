"""The plan that sites agree on before the first round: one file of public content, with one digest.

It fixes the run completely: method and calibrated hyperparameters, graph, schedules, row counts,
schema, and each site's name and public key.  Every message carries the digest, so a site with
another plan is refused.  ``sottovoce plan --write`` makes it, and every site and the hub read it.

A :class:`Plan` is a frozen record with its constraints.  What follows from it has a place of its
own:

======================  ==========================================================================
what                    where
======================  ==========================================================================
how it is made          :mod:`sottovoce.deploy.proposal`, which calibrates the noise
its file                :mod:`sottovoce.deploy.plan_file`
runs of the engine      :attr:`Plan.stages`, each a :class:`sottovoce.deploy.stages.Stage`
messages                :attr:`Plan.exchange_table`, by :mod:`sottovoce.deploy.exchange_table`
events and statements   :attr:`Plan.planned_privacy`, by :mod:`sottovoce.deploy.planned_privacy`
sites that may be lost  :attr:`Plan.quorum`, a :class:`sottovoce.deploy.quorum.Quorum`
how long a round waits  :attr:`Plan.waits`, a :class:`sottovoce.deploy.waits.Waits`
signed messages         :mod:`sottovoce.deploy.messages`
======================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..data.rows import check_loss_fits_labels
from ..data.schema import Schema
from ..errors import InvalidInput
from ..network.graphs import Graph, make_graph
from ..privacy.statement_facts import caveat_text
from ..problem.facts import Facts
from ..problem.losses import make_loss
from ..problem.task import BoundedNumber
from ..runs.centre import Centring, with_centring_digest
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.start import Start, with_start_digest
from ..util.codec import record_to_plain
from ..util.compatibility import FORMAT
from ..util.constraints import Interval, Rule, constraint_metadata, validate_fields_and_rules
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any
from . import limits
from .asks import Asks
from .exchange_table import Exchange, ExchangeTable
from .members import Member, check_members, node_of_site, training_row_counts
from .names import check_run_name
from .planned_privacy import PlannedPrivacy
from .quorum import Quorum
from .recipes import Recipes, price_recipes
from .stages import Stage
from .waits import DEFAULT, Waits

LONGEST_START = 1_000_000
"""The most entries of a starting point, so that a plan's file stays below its limit."""
_DRAWN = ("erdos-renyi", "watts-strogatz", "edges")
"""Graphs that are random or come from a file: the plan lists their edges, so no site draws or
reads them.
"""


@dataclass(frozen=True)
class Plan:
    """An agreed run.

    Parameters
    ----------
    run : str
        Its name in the hub's log and in every site's ledger.
    config : RunConfig
        With explicit penalty and noise; a seed makes it a demonstration, whose noise anybody can
        repeat.
    d : int
        Features, the constant one included.
    sites : tuple of Member
        In the order of the graph's nodes.
    edges : tuple of (int, int)
        Of the graph, sorted.
    norm_cap : float
        Vectors in messages with a larger Euclidean norm are refused.
    schema : dict or None
        How every site encodes its rows, as plain data.
    start : Start or None
        The public point from which all sites start; messages are relative to it, last models are
        not.
    asks : Asks or None
        Inference or evaluation, in addition to the training or instead of it.
    centre : Centring or None
        How rows are centred: a noisy mean of the rows, whose privacy loss is part of epsilon, is
        computed before the training and subtracted from all of them.
    waits : Waits
        How long a round waits for its last site; with infinite patience a run over a graph needs
        all its sites to its end, and a run of sums is refused.

    Raises
    ------
    InvalidInput
        If entries contradict each other or pass a limit, or the run is not possible at the privacy
        loss that the plan states.
    """

    run: str
    config: RunConfig
    d: int
    sites: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]
    norm_cap: float = field(
        metadata=constraint_metadata(Interval(low=0, closed="neither"), remedy="leave it out")
    )
    schema: dict[str, Any] | None = None
    start: Start | None = None
    asks: Asks | None = None
    centre: Centring | None = None
    waits: Waits = DEFAULT

    def __post_init__(self) -> None:
        check_public(self.run, self.config, self.sites, self.d)
        # An inbox of a run of sums may also hold proofs that a site signed two messages.
        proofs = 0
        if self.config.trusted.opens_sums:
            proofs = limits.PROOFS
        limits.check_inbox_size(self.d, int(np.max(self.graph.degree)), proofs)
        validate_fields_and_rules(self, DECLARED)
        # Computed here, so that a plan that cannot run is refused when it is built or read.
        _ = self.stages
        validate_fields_and_rules(self, PRICED)
        if self.exchange_table.any_heard_by_all:
            limits.check_inbox_size(self.exchange_table.widest_message, len(self.sites) - 1, proofs)

    # What it says

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in the order of the graph's nodes."""
        return tuple(site.name for site in self.sites)

    def index(self, name: str) -> int:
        """Return a site's node; raises :class:`InvalidInput` if the plan has no such site."""
        return node_of_site(self.names, name)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the sites; site i is node i."""
        return Graph(str(self.config.graph), len(self.sites), self.edges)

    @property
    def demonstration(self) -> bool:
        """True if the noise can be repeated, so that the run protects nothing."""
        return self.config.seed is not None

    @property
    def is_inference(self) -> bool:
        """True if the run estimates coefficients instead of training."""
        return self.asks is not None and self.asks.inference

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; :func:`sottovoce.deploy.plan_file.plan_from_dict` is the inverse."""
        plain = {
            "version": FORMAT,
            "run": self.run,
            "config": self.config.to_dict(),
            "d": self.d,
            "sites": record_to_plain(self.sites),
            "edges": [list(edge) for edge in self.edges],
            "norm_cap": self.norm_cap,
            "schema": self.schema,
            "features": _feature_names(self.schema),
            "waits": vars(self.waits),
        }
        if self.start is not None:
            plain = {"start": self.start.record | {"vector": self.start.vector.tolist()}} | plain
        for name, one in (("asks", self.asks), ("centre", self.centre)):
            if one is not None:
                plain[name] = one.to_dict()
        return plain

    @cached_property
    def digest(self) -> str:
        """Digest of everything in the plan."""
        return digest_of_plan(self.to_dict())

    # What follows from it

    @cached_property
    def recipes(self) -> Recipes | None:
        """Inference and evaluation with their privacy losses; None for a training alone."""
        if self.asks is None:
            return None
        sizes = [site.rows for site in self.sites]
        return price_recipes(
            self.asks, self.config, sizes, self.d, schema_from_plain(self.schema), self.names
        )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The runs of the engine in order: training or inference, then the evaluation if any.

        Without sums an evaluation begins with an exchange in which each site sends its last model
        to all, because the mean of these models is evaluated.
        """
        recipes = self.recipes
        if recipes is not None and recipes.inference is not None:
            first = Stage(recipes.inference)
        else:
            n = training_row_counts(self.sites, self.asks)
            first = Stage(prepare(self.config, n, self.d, graph=self.graph, centre=self.centre))
        if recipes is None or recipes.evaluation is None:
            return (first,)
        # Number of entries of the models that sites send to all before the evaluation.  After an
        # inference and in a run of sums all sites have the same model already.
        shown = self.d
        if self.is_inference or first.facts.opens_only_sums:
            shown = 0
        return first, Stage(recipes.evaluation, len(first.widths), held=True, shown=shown)

    @property
    def facts(self) -> Facts:
        """Public facts of the rows that the training or the inference reads."""
        return self.stages[0].facts

    @property
    def uses_secure_sums(self) -> bool:
        """True if the run uses secure sums: sites send masked shares to all, not to neighbours."""
        return self.facts.opens_only_sums

    @cached_property
    def planned_privacy(self) -> PlannedPrivacy:
        """Events that the sites will charge, and the privacy statements about them."""
        encoding = schema_from_plain(self.schema)
        caveats = [one.caveat for one in (encoding, self.start) if one is not None]
        return PlannedPrivacy(
            self.run, self.names, self.stages, self.demonstration, caveat_text(caveats)
        )

    @cached_property
    def quorum(self) -> Quorum:
        """Number of sites that the run needs, and whether it may go on without some."""
        sites = len(self.sites)
        if self.uses_secure_sums:
            return Quorum(sites, self.facts.participants, may_lose_sites=True)
        trains_alone = self.asks is None and not self.waits.waits_for_ever
        may_lose_sites = trains_alone and bool(self.stages[0].prepared.algorithm.induced)
        # More than half of all sites: then any two rosters have a site in common, and a site signs
        # only one roster an exchange (docs/deploy/threats.md, "Who can do what").
        return Quorum(sites, sites // 2 + 1, may_lose_sites)

    @cached_property
    def exchange_table(self) -> ExchangeTable:
        """Widths, norm caps and hearers of all exchanges."""
        width = self.d
        if self.recipes is not None and self.recipes.naming is not None:
            # an inference encodes rows in columns of its own
            width = self.recipes.naming.d
        last_model = Exchange(width, self.norm_cap)
        return ExchangeTable(
            self.sites, self.graph, self.stages, self.asks, self.quorum, last_model, self.d
        )


def check_public(run: str, config: RunConfig, sites: Sequence[Member], d: int) -> None:
    """Check limits and names, which is possible before the noise of a plan is calibrated.

    Parameters
    ----------
    run : str
    config : RunConfig
    sites : sequence of Member
    d : int
        Features, the constant one included.

    Raises
    ------
    InvalidInput
        For central trust, names that clash, and sizes beyond a limit of
        :mod:`sottovoce.deploy.limits`.
    """
    check_run_name("run", run)
    limits.check_whole_number("sites", len(sites), limits.SITES)
    limits.check_whole_number("rounds", config.rounds, limits.ROUNDS)
    limits.check_whole_number("copies", config.copies, limits.COPIES)
    limits.check_inbox_size(d, 1)
    if not config.trusted.between_sites:
        rule = "its trusted curator would hold the rows of all sites"
        raise InvalidInput("method", config.method, rule, "use a method without a trusted curator")
    check_members(sites)


def schema_from_plain(schema: dict[str, Any] | None) -> Schema | None:
    """Return a plan's schema from its plain data; None for a plan without one."""
    if schema is None:
        return None
    return Schema.from_dict(schema)


def digest_of_plan(plain: dict[str, Any]) -> str:
    """Return the digest of a plan's plain data, in hexadecimal."""
    return personalised_hash(b"plan", canonical_json(plain).encode()).hex()


def centring_and_start_of_the_configuration(plan: Plan) -> Iterator[InvalidInput]:
    """Yield faults of centring and starting point.

    Their digests must stand in the configuration, because the keys of ledgers are made of it.
    """
    remedy = "write the plan again"
    if plan.is_inference and plan.centre is not None:
        yield InvalidInput(
            "centre", None, "cannot be combined with inference", f"{remedy} without it"
        )
    if plan.start is not None and plan.d > LONGEST_START:
        yield InvalidInput(
            "start", None, f"must have at most {LONGEST_START:,} entries", "leave it out"
        )
    if with_centring_digest(plan.config, plan.centre) != plan.config:
        yield InvalidInput("centre", None, "its digest is not in the plan's configuration", remedy)
    if with_start_digest(plan.config, plan.start, plan.d) != plan.config:
        yield InvalidInput("start", None, "its digest is not in the plan's configuration", remedy)


def facts_of_the_schema(plan: Plan) -> Iterator[InvalidInput]:
    """Yield faults of the number of features and of the privacy unit, which the schema fixes."""
    if plan.schema is not None and _declares_more_features(plan.schema, plan.d):
        # Refused without building the schema: a plan comes from others, and a column of it may
        # declare more features than fit into memory.
        yield InvalidInput("d", plan.d, "the schema yields more features", "write the plan again")
        return
    encoding = schema_from_plain(plan.schema)
    if encoding is not None:
        margins = make_loss(plan.config.loss).outputs
        entries = len(encoding.feature_names) * margins
        if entries != plan.d:
            rule = f"the schema yields {len(encoding.feature_names)} features"
            if margins > 1:
                rule += f", times {margins} classes"
            yield InvalidInput("d", plan.d, rule, "write the plan again")
    declared = None
    if encoding is not None and encoding.person is not None:
        declared = encoding.person.rows
    if plan.config.rows_per_person != declared:
        rule = "differs from the schema's rows per person"
        yield InvalidInput(
            "rows_per_person", plan.config.rows_per_person, rule, "write the plan again"
        )


def loss_of_the_labels(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of a loss that cannot be that of the schema's labels.

    Sites would find it out only once their rows are encoded, after all have agreed.
    """
    encoding = schema_from_plain(plan.schema)
    if encoding is None or plan.is_inference:
        return
    numeric = isinstance(encoding.task, BoundedNumber)
    try:
        check_loss_fits_labels(make_loss(plan.config.loss), encoding.task.outputs, numeric=numeric)
    except InvalidInput as fault:
        yield fault


def one_replicate(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of several replicates: a run between sites has one."""
    if plan.config.replicates != 1:
        yield InvalidInput(
            "replicates",
            plan.config.replicates,
            "must be 1 for a run between sites",
            "use replicates=1",
        )


def edges_of_the_graph(plan: Plan) -> Iterator[InvalidInput]:
    """Yield faults of the listed edges, which must be those of the named graph, sorted."""
    if plan.graph.edges != plan.edges:
        rule = "must be sorted and unique"
        yield InvalidInput("edges", None, rule, "write the plan again")
    if _is_listed_graph(plan.config.graph):
        return
    described = plan.config.graph
    if len(plan.sites) == 1:
        described = "complete"
    if make_graph(described, len(plan.sites)).edges != plan.edges:
        rule = "has other edges in this version than the plan lists"
        yield InvalidInput("graph", plan.config.graph, rule, "use the version that wrote the plan")


def calibrated_noise(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of noise without a scale, unless the run has no noise.

    Noise is calibrated once, when the plan is written, and not by every site.
    """
    if not plan.config.budgeted:
        return
    trains_with_noise = not plan.is_inference and plan.config.algorithm.private
    scales: list[float | None] = []
    if plan.asks is not None:
        scales = _noise_scales(plan.asks)
    if None in scales or (trains_with_noise and plan.config.noise is None):
        yield InvalidInput(
            "noise", None, "must be calibrated in a plan", "write it with `sottovoce plan`"
        )


def start_and_graph_of_inference(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of an inference with a starting point, or over a graph that is not complete.

    An inference computes its own starting point from a noisy count.
    """
    if not plan.is_inference:
        return
    if plan.start is not None or plan.edges != make_graph("complete", len(plan.sites)).edges:
        rule = "inference needs a complete graph and no starting point"
        yield InvalidInput(
            "start", None, rule, "write the plan again without a start, with graph='complete'"
        )


def whole_training_before_an_evaluation(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of a budget below the privacy loss of all training rounds.

    Without an evaluation such a run ends early; an evaluation needs the whole training before it.
    """
    if plan.recipes is None or plan.is_inference:
        return
    training = plan.stages[0]
    if len(training.allowed_events(0)) < len(training.planned(0)):
        rule = "does not pay for all training rounds, which come before the evaluation"
        yield InvalidInput("epsilon", None, rule, "raise it or leave noise out")


def an_end_of_rounds_of_sums(plan: Plan) -> Iterator[InvalidInput]:
    """Yield the fault of a run of sums that waits for ever for a missing site.

    Its sites would keep the private keys of their masks for as long.
    """
    if plan.uses_secure_sums and plan.waits.waits_for_ever:
        rule = "secure sums need a time limit, so that no site waits with its key for a missing one"
        yield InvalidInput("patience", None, rule, "give a number of seconds")


DECLARED: tuple[Rule, ...] = (
    centring_and_start_of_the_configuration,
    facts_of_the_schema,
    loss_of_the_labels,
    one_replicate,
    edges_of_the_graph,
    calibrated_noise,
    start_and_graph_of_inference,
)
"""Rules on the entries of a plan, checked before its privacy loss is computed."""
PRICED: tuple[Rule, ...] = (an_end_of_rounds_of_sums, whole_training_before_an_evaluation)
"""Rules on the run that follows from the entries, checked once its stages exist."""


def _feature_names(schema: dict[str, Any] | None) -> list[str]:
    """Return names of the features, in order; empty without a schema."""
    encoding = schema_from_plain(schema)
    if encoding is None:
        return []
    return encoding.feature_names


def _declares_more_features(schema: dict[str, Any], d: int) -> bool:
    """Return True if a column declares more than `d` features, without making their names."""
    sizes = [column.get("size", 0) for column in dict(schema.get("columns", {})).values()]
    return any(isinstance(size, int) and size > d for size in sizes)


def _is_listed_graph(graph: object) -> bool:
    """Return True for a graph that is random or from a file, whose edges only the plan has."""
    kind = str(graph).strip().partition(":")[0]
    return kind.strip().lower().replace("_", "-") in _DRAWN


def _noise_scales(asks: Asks) -> list[float | None]:
    """Return the noise scales of the inference and of the evaluation, if requested and noisy.

    A scale is None as long as the noise is not calibrated.
    """
    scales = []
    if asks.inference:
        scales.append(asks.scale)
    # an infinite epsilon is an evaluation without noise
    if asks.evaluation not in (None, np.inf):
        scales.append(asks.evaluation_scale)
    return scales
