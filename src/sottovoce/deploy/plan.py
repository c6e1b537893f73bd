"""The plan that sites agree on before the first round: one file of public content, with one digest.

It fixes the run completely: method and calibrated hyperparameters, graph, schedules, row counts, schema, and each
site's name and public key.  Every message carries the digest, so a site with another plan is refused.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Self

import numpy as np

from ..algorithms import KNOWN
from ..data.schema import Schema
from ..errors import InvalidInput, SottovoceError, UnknownEvent
from ..network.graphs import Graph, make_graph
from ..privacy.events import Event
from ..privacy.statement import Statement, caveat_text
from ..problem.facts import Facts
from ..runs.centre import Centring, centred
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.pricing import Prepared
from ..runs.start import Start, named
from ..util import files
from ..util.compatibility import FORMAT, refusal_of_format
from ..util.constraints import Interval, Rule, constraint_metadata, validate
from ..util.plain import canonical, keyed_hash
from ..util.typing import Any, Array
from . import limits
from .asks import Asks, Lists, lists_of
from .names import check_different, check_name, check_run
from .stages import Stage
from .strict import NotStrict, parse
from .waits import DEFAULT, Waits

PLANNED_BEFORE = "end its run with version 0.2 at all sites, or write another plan: ledgers keep what was spent"
"""What to do with a plan of a version before 0.3."""
LARGEST = 32 * 2**20
"""The most bytes of a plan file."""
ROWS = 10**12
"""The most rows of a site."""
_PUBLIC = 4096  # bytes of what a site tells about itself
ANSWER = "joined"
"""Ending of a site's answer to an invitation, which holds more than a plan needs of it."""
_ROOM = 100.0
_LOG_ODDS = 1e9  # no coefficient of encoded columns is longer
ANSWERS_CAP = 1e9
"""Norm cap of answers in a run without sums; without noise they have a norm of at most 1."""
_LONGEST = 1_000_000  # entries of a start, so that the file stays below LARGEST
_DRAWN = ("erdos-renyi", "watts-strogatz", "edges")
"""Graphs that are random or come from a file: the plan lists their edges, so no site draws or reads them."""
_UNSOUND = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Member:
    """The public facts of a site.

    Parameters
    ----------
    name : str
        Also the common name of its certificate; see :func:`sottovoce.deploy.names.check_name`.
    rows : int
    key : str
        Its Ed25519 public key, 32 bytes in base64.
    """

    name: str
    rows: int
    key: str

    def __post_init__(self) -> None:
        check_name("name", self.name)
        limits.check_number("rows", self.rows, ROWS, "give the site's row count")
        try:
            raw = base64.b64decode(self.key, validate=True)
        except (ValueError, TypeError):
            raw = b""
        if len(raw) != 32 or base64.b64encode(raw).decode() != self.key:
            rule = f"of {self.name!r} must be 32 bytes in base64"
            raise InvalidInput("key", None, rule, "give the file that `site init` wrote")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the ``NAME.public.json`` of ``site init``, or what ``site join`` wrote; raises :class:`InvalidInput`."""
        try:
            if not path.is_file():
                raise InvalidInput("site", str(path), "there is no such file", "give each site's NAME.public.json")
            with path.open("rb") as file:
                told = parse(file.read(_PUBLIC + 1), _PUBLIC)
            if path.suffix == f".{ANSWER}":
                told = {name: told[name] for name in ("name", "rows", "key")}
            return cls(**told)
        except SottovoceError:
            raise
        except (OSError, ValueError, TypeError, LookupError):
            rule = "is not what `site init` writes"
            raise InvalidInput("site", str(path), rule, "give each site's NAME.public.json") from None


def check_public(run: str, config: RunConfig, sites: Sequence[Member], d: int) -> None:
    """Raise :class:`InvalidInput` for what no plan can have: a curator, names that clash, sizes beyond a limit."""
    check_run("run", run)
    for name, value, most in (
        ("sites", len(sites), limits.SITES), ("rounds", config.rounds, limits.ROUNDS),
        ("copies", config.copies, limits.COPIES),
    ):  # fmt: skip
        limits.check_number(name, value, most)
    limits.check_size(d, 1)
    if not config.trusted.between_sites:
        rule = "its curator would hold the rows of all sites"
        raise InvalidInput("method", config.method, rule, "use a method that trusts nobody")
    check_different("sites", tuple(site.name for site in sites))
    if len({site.key for site in sites}) != len(sites):
        raise InvalidInput("sites", None, "every site needs a key of its own", "correct the list")


@dataclass(frozen=True)
class Plan:
    """An agreed run.  Use :meth:`make`, which calibrates, or :meth:`read`.

    Parameters
    ----------
    run : str
        Its name in the hub's log and in every site's ledger.
    config : RunConfig
        With explicit penalty and noise; a seed makes it a demonstration, whose noise anybody can repeat.
    d : int
        Features, the constant one included.
    sites : tuple of Member
        In the order of the graph's nodes.
    norm_cap : float
        Messages of a larger Euclidean norm are refused.
    schema : dict or None
        How every site encodes its rows.
    start : Start or None
        The public point from which all sites start; messages are relative to it, last models are not.
    asks : Asks or None
        What is asked in addition to the training, or instead of it.
    centre : Centring or None
        How rows are centred: their mean is asked before the method, within epsilon, and taken away from all of them.
    waits : Waits
        How long a round waits for its last site; with infinite patience a run over a graph needs all its sites to its
        end, and a run of sums is refused.
    """

    run: str
    config: RunConfig
    d: int
    sites: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]
    norm_cap: float = field(metadata=constraint_metadata(Interval(low=0, closed="neither"), remedy="leave it out"))
    schema: dict[str, Any] | None = None
    start: Start | None = None
    asks: Asks | None = None
    centre: Centring | None = None
    waits: Waits = DEFAULT

    @classmethod
    def make(
        cls, run: str, config: RunConfig, sites: Sequence[Member], d: int, *, schema: dict[str, Any] | None = None,
        norm_cap: float | None = None, start: Start | None = None, asks: Asks | None = None,
        centre: Centring | None = None, waits: Waits = DEFAULT,
    ) -> Self:  # fmt: skip
        """Check and calibrate a run, and return its plan.

        Parameters
        ----------
        schema : dict, optional
            Of :meth:`sottovoce.data.Schema.to_dict`.
        norm_cap : float, optional
            None for a hundred times the norm that minimisers and noise reach with these public parameters, plus the
            norm of the start.
        asks : Asks, optional
            Their noise is calibrated here.
        centre : Centring, optional
            Of :func:`sottovoce.runs.centre.decide`.

        Raises
        ------
        InvalidInput
        """
        check_public(run, config, sites, d)
        config = centred(named(config, start, d), centre)
        if asks is not None:
            encoding, names = None if schema is None else Schema.from_dict(schema), [site.name for site in sites]
            lists = lists_of(asks, config, [site.rows for site in sites], d, encoding, names)
            scales = [None if one is None else scale_of(one) for one in (lists.inference, lists.evaluation)]
            asks = replace(asks, scale=scales[0], evaluation_scale=scales[1])
            if lists.inference is not None:
                edges = make_graph("complete", len(sites)).edges
                known = replace(config, graph="complete", accountant=config.notion)
                return cls(
                    run, known, d, tuple(sites), edges, _LOG_ODDS if norm_cap is None else norm_cap, schema, start,
                    asks, None, waits,
                )  # fmt: skip
        n = trained_rows(sites, asks)
        prepared = prepare(config, n, d, centre=centre)
        known = replace(
            config, eta=prepared.algorithm.penalty, eta_growth=1.0, noise=prepared.algorithm.noise, noise_growth=1.0,
            accountant=config.notion,
        )  # fmt: skip
        cap = norm_cap
        if cap is None:
            cap = _cap(prepared, config.rounds) + (0.0 if start is None else float(np.linalg.norm(start.vector)))
            cap *= prepared.facts.stretch  # between models of moved rows, and of rows as they are
        return cls(run, known, d, tuple(sites), prepared.graph.edges, cap, schema, start, asks, centre, waits)

    def __post_init__(self) -> None:
        check_public(self.run, self.config, self.sites, self.d)
        limits.check_size(self.d, int(np.max(self.graph.degree)), self._proofs)
        validate(self, DECLARED)
        _ = self.facts  # refuses what cannot run
        validate(self, PRICED)
        if self.all_hear:
            limits.check_size(self.widest, len(self.sites) - 1, self._proofs)

    @property
    def _proofs(self) -> int:
        """Proofs of double messages that an inbox may hold."""
        return limits.PROOFS if self.config.trusted.kind == "sum" else 0

    @property
    def demonstration(self) -> bool:
        """Whether the noise can be repeated, so that the run protects nothing."""
        return self.config.seed is not None

    @cached_property
    def graph(self) -> Graph:
        return Graph(str(self.config.graph), len(self.sites), self.edges)

    @cached_property
    def prepared(self) -> Prepared:
        """The run, validated and priced."""
        return prepare(self.config, self._n, self.d, graph=self.graph, centre=self.centre)

    @property
    def encoding(self) -> Schema | None:
        """The schema; None without one."""
        return None if self.schema is None else Schema.from_dict(self.schema)

    @property
    def infers(self) -> bool:
        """Whether the run estimates coefficients instead of training."""
        return self.asks is not None and self.asks.inference

    @property
    def all_hear(self) -> bool:
        """Whether there are exchanges in which all sites hear each other, whatever the graph."""
        return self.asks is not None or self.centre is not None

    @cached_property
    def lists(self) -> Lists | None:
        """The recipes, priced; None without any."""
        if self.asks is None:
            return None
        sizes = [site.rows for site in self.sites]
        return lists_of(self.asks, self.config, sizes, self.d, self.encoding, self.names)

    @property
    def facts(self) -> Facts:
        """Public facts of the rows that the training or the inference reads."""
        if self.lists is not None and self.lists.inference is not None:
            return self.lists.inference.facts
        return self.prepared.facts

    @property
    def summed(self) -> bool:
        """Whether sites send masked shares of sums, and nothing to neighbours."""
        return self.facts.summed

    @property
    def rounds(self) -> int:
        """Rounds of the training; 0 for inference."""
        return 0 if self.infers else self.config.rounds

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The runs of the plan in order: training or inference, then the evaluation.

        Without sums each site first sends its last model to all, because the evaluation is of their mean.
        """
        lists = self.lists
        first = Stage(self.prepared if lists is None or lists.inference is None else lists.inference)
        if lists is None or lists.evaluation is None:
            return (first,)
        shown = 0 if self.infers or self.summed else self.d
        return first, Stage(lists.evaluation, len(first.widths), held=True, shown=shown)

    def stage_of(self, exchange: int) -> Stage:
        """The stage to which an exchange belongs."""
        return next(stage for stage in reversed(self.stages) if exchange > stage.before or stage.before == 0)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers that a site sends in each exchange, without greetings, rosters and last models."""
        return sum((stage.widths for stage in self.stages), ())

    @property
    def attempts(self) -> int:
        """Exchanges without greetings, rosters and last models; with sums, the attempts that are priced."""
        return len(self.widths)

    @property
    def last_width(self) -> int:
        """Numbers in a last model."""
        naming = None if self.lists is None else self.lists.naming
        return self.d if naming is None else naming.d

    @property
    def widest(self) -> int:
        """The most numbers in a message."""
        return max(*self.widths, self.last_width, self.d)

    def counts(self, attempt: int) -> dict[str, int]:
        """Rows that an attempt reads at every site: the training rows, or the held-out rows."""
        if self.asks is None:
            return {site.name: site.rows for site in self.sites}
        held = {site.name: self.asks.held(site.rows) for site in self.sites}
        if self.stage_of(attempt).held:
            return held
        return {site.name: site.rows - held[site.name] for site in self.sites}

    def cap(self, exchange: int) -> float:
        """The norm cap of an exchange; answers have one of their own, and so have means of rows."""
        stage = self.stage_of(exchange)
        if exchange > self.attempts or not stage.answers(exchange):
            return self.norm_cap
        return ANSWERS_CAP if stage.recipe is not None else self._longest_mean

    @cached_property
    def _longest_mean(self) -> float:
        """What no site's part of the mean of rows is longer than, nor their sum once it is shrunk.

        Rows have norm at most 1, and d normals one above ``sqrt(d) + 40`` with a probability below e^-800.
        """
        noise = np.broadcast_to(self.stages[0].planned()[0].spread(), (len(self.sites),)) * self._n.ravel()
        return 1.001 + float(np.max(noise) / np.sum(self._n)) * (math.sqrt(self.d) + 40.0)

    @property
    def last_round(self) -> int:
        """The highest number of an exchange, greeting and last models included.

        Every roster takes an exchange: one for each site that may be lost, and with sums the first one.
        """
        spare = len(self.sites) - self.least if self.summed or self.goes_on else 0
        return self.attempts + 1 + spare + self.summed

    @property
    def least(self) -> int:
        """The fewest sites of a roster: K of a run of sums, over a graph more than half of all."""
        return self.facts.participants if self.summed else len(self.sites) // 2 + 1

    @property
    def goes_on(self) -> bool:
        """Whether a run over a graph may go on without a site."""
        return bool(not self.waits.endless and self.asks is None and self.prepared.algorithm.induced)

    @property
    def _n(self) -> Array:
        return trained_rows(self.sites, self.asks)

    @property
    def caveat(self) -> str | None:
        """The caveat of every privacy statement of this plan; None if there is none."""
        encoding = self.encoding
        return caveat_text(
            (None if encoding is None else encoding.caveat, None if self.start is None else self.start.caveat)
        )

    @cached_property
    def statement(self) -> Statement:
        """What is proved of the whole run, for every site: of a row, whichever releases read it."""
        return reduce(Statement.either, self.statements)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The same of the training rows, and of the held-out rows if there are any."""
        return tuple(stage.statement(self.demonstration, self.caveat) for stage in self.stages)

    def statement_at(self, name: str, simulated: bool) -> Statement:
        """What is proved of all that is planned for one site, about its own rows."""
        i = self.index(name)
        each = [stage.statement_at(i, simulated, self.caveat) for stage in self.stages]
        return reduce(Statement.either, each)

    @cached_property
    def digest(self) -> str:
        """Digest of everything in the plan."""
        return _digest(self.to_dict())

    @property
    def is_graph_drawn(self) -> bool:
        """Whether the graph is random or comes from a file, so that only the plan says its edges."""
        return str(self.config.graph).strip().partition(":")[0].strip().lower().replace("_", "-") in _DRAWN

    @property
    def features(self) -> list[str]:
        """Names of the features, in order; empty without a schema."""
        encoding = self.encoding
        return [] if encoding is None else encoding.feature_names

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    def index(self, name: str) -> int:
        """A site's node; raises :class:`InvalidInput` if the plan has no such site."""
        if name not in self.names:
            raise InvalidInput("name", name, f"is no site of the plan, which has {', '.join(self.names)}", "correct it")
        return self.names.index(name)

    def neighbours(self, name: str, round: int = 0) -> tuple[str, ...]:
        """Sites that a site hears in an exchange, in the order of the nodes: all others, but in rounds of training."""
        if 0 < round <= self.attempts and self.stage_of(round).heard_by_all(round):
            return tuple(other for other in self.names if other != name)
        return tuple(self.names[j] for j in self.graph.neighbours(self.index(name)))

    def planned(self, node: int | None = None) -> tuple[Event, ...]:
        """All planned events in order, whatever the budget; of one node, or of all sites."""
        return sum((stage.planned(node) for stage in self.stages), ())

    def events(self, name: str) -> tuple[Event, ...]:
        """The events that a site will charge, in order, as far as the run's own budget allows."""
        if name not in self._events:
            try:
                self._events[name] = sum((stage.allowed(self.index(name)) for stage in self.stages), ())
            except UnknownEvent as error:
                raise InvalidInput("plan", self.run, f"has no proved price: {error}", "write another one") from None
        return self._events[name]

    @cached_property
    def _events(self) -> dict[str, tuple[Event, ...]]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        start = self.start
        begin = {} if start is None else {"start": start.record | {"vector": start.vector.tolist()}}
        return begin | {
            "version": FORMAT, "run": self.run, "config": self.config.to_dict(),
            "d": self.d,
            "sites": [{"name": s.name, "rows": s.rows, "key": s.key} for s in self.sites],
            "edges": [list(edge) for edge in self.edges], "norm_cap": self.norm_cap, "schema": self.schema,
            "features": self.features, "waits": vars(self.waits),
        } | {
            name: one.to_dict() for name, one in (("asks", self.asks), ("centre", self.centre)) if one is not None
        }  # fmt: skip

    def write(self, path: str | Path) -> None:
        """Write the file that every site gets."""
        plain = self.to_dict() | {"digest": self.digest}
        files.write("plan", path, json.dumps(plain, indent=1, allow_nan=False) + "\n")  # the schema's order counts

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read what :meth:`write` wrote.

        Raises
        ------
        InvalidInput
            If it is not a plan of this version, or was changed since it was written.
        """
        changed = "does not have the digest that stands in it: it was changed"
        try:
            if not Path(path).is_file():
                raise InvalidInput("plan", str(path), "there is no such file", "see `sottovoce plan --write`")
            with Path(path).open("rb") as file:
                plain = parse(file.read(LARGEST + 1), LARGEST)
            stated, version = plain.pop("digest"), plain["version"]
            refused = refusal_of_format(version, PLANNED_BEFORE)
            if refused is not None:
                raise InvalidInput("plan", str(path), refused.rule, refused.remedy)
            if _digest(plain) != stated:
                raise InvalidInput("plan", str(path), changed, "get the agreed file again")
            _check_method(path, plain["config"]["method"])
            begin, start = plain.get("start"), None
            if begin is not None:
                vector = _listed(begin.pop("vector"), _LONGEST, "start")
                start = Start.of(np.array(vector, dtype=float), begin)
            with np.errstate(all="ignore"):  # numbers that are too large are refused with one line and no warning
                plan = cls(
                    run=plain["run"], config=RunConfig.from_dict(plain["config"]), d=plain["d"],
                    sites=tuple(Member(**site) for site in _listed(plain["sites"], limits.SITES, "sites")),
                    edges=tuple((i, j) for i, j in plain["edges"]), norm_cap=plain["norm_cap"],
                    schema=plain["schema"], start=start,
                    asks=None if "asks" not in plain else Asks.from_dict(plain["asks"]),
                    waits=Waits(**plain["waits"]),
                    centre=None if "centre" not in plain else Centring.of(plain["centre"]),
                )  # fmt: skip
        except InvalidInput:
            raise
        except SottovoceError as error:
            raise InvalidInput("plan", str(path), f"cannot be run: {error}", "correct what it says") from None
        except _UNSOUND as error:
            why = f": it {error}" if isinstance(error, NotStrict) else ""
            raise InvalidInput("plan", str(path), f"is no plan file{why}", "write one with `sottovoce plan`") from None
        if plan.digest != stated:  # it holds what this version would not write
            raise InvalidInput("plan", str(path), changed, "get the agreed file again")
        return plan


def centring_and_start_of_the_configuration(plan: Plan) -> Iterator[InvalidInput]:
    """The digests of centring and start stand in the configuration, which the ledgers' keys are made of."""
    remedy = "write the plan again"
    if plan.infers and plan.centre is not None:
        yield InvalidInput("centre", None, "inference reads rows as they are", f"{remedy}, without")
    if plan.start is not None and plan.d > _LONGEST:
        yield InvalidInput("start", None, f"a plan holds at most {_LONGEST:,} entries of one", "leave it out")
    if centred(plan.config, plan.centre) != plan.config:
        yield InvalidInput("centre", None, "must stand in the plan's configuration too", remedy)
    if named(plan.config, plan.start, plan.d) != plan.config:
        yield InvalidInput("start", None, "must stand in the plan's configuration too", remedy)


def facts_of_the_schema(plan: Plan) -> Iterator[InvalidInput]:
    """Number of features and unit of the guarantee are those of the schema."""
    if plan.schema is not None and _wider(plan.schema, plan.d):  # such a schema is not even built
        yield InvalidInput("d", plan.d, "the schema yields more features", "use its number")
        return
    if plan.schema is not None and len(plan.features) != plan.d:
        yield InvalidInput("d", plan.d, f"the schema yields {len(plan.features)} features", "use its number")
    person = None if plan.encoding is None else plan.encoding.person
    declared = None if person is None else person.rows
    if plan.config.rows_per_person != declared:
        rule = "is not what the schema says of people's rows"
        yield InvalidInput("rows_per_person", plan.config.rows_per_person, rule, "write the plan again")


def one_replicate(plan: Plan) -> Iterator[InvalidInput]:
    """Separate sites run once."""
    if plan.config.replicates != 1:
        yield InvalidInput("replicates", plan.config.replicates, "sites run once", "use replicates=1")


def edges_of_the_graph(plan: Plan) -> Iterator[InvalidInput]:
    """The listed edges are those of the named graph, in their one order."""
    if plan.graph.edges != plan.edges:
        rule = "must be sorted, and each be there once"
        yield InvalidInput("edges", None, rule, "write the plan again")
    described = plan.config.graph if len(plan.sites) > 1 else "complete"
    if not plan.is_graph_drawn and make_graph(described, len(plan.sites)).edges != plan.edges:
        rule = "is not the graph of the plan's edges"
        yield InvalidInput("graph", plan.config.graph, rule, "use the version that wrote the plan")


def calibrated_noise(plan: Plan) -> Iterator[InvalidInput]:
    """Noise is calibrated once, where the plan is written, and not by every site."""
    if not plan.config.budgeted:
        return
    trains_with_noise = not plan.infers and plan.config.algorithm.private
    scales = [] if plan.asks is None else _scales(plan.asks)
    if None in scales or (trains_with_noise and plan.config.noise is None):
        yield InvalidInput("noise", None, "must stand in a plan, calibrated", "write it with `sottovoce plan`")


def start_and_graph_of_inference(plan: Plan) -> Iterator[InvalidInput]:
    """Inference begins with a count of its own, over all sites."""
    if not plan.infers:
        return
    if plan.start is not None or plan.edges != make_graph("complete", len(plan.sites)).edges:
        rule = "inference starts from a count of its own, and all sites hear each other"
        yield InvalidInput("start", None, rule, "write the plan again, without a start")


def whole_training_before_an_evaluation(plan: Plan) -> Iterator[InvalidInput]:
    """An evaluation comes after all rounds of the training, so the budget must pay for all of them."""
    if plan.lists is None or plan.infers:
        return
    training = plan.stages[0]
    if len(training.allowed(0)) < len(training.planned(0)):
        rule = "the training would end before all of its rounds, and the evaluation comes after them"
        yield InvalidInput("epsilon", None, rule, "raise it, or leave noise out")


def an_end_of_rounds_of_sums(plan: Plan) -> Iterator[InvalidInput]:
    """A run of sums ends a round for which a site is missing: its sites would wait with their keys for ever."""
    if plan.summed and plan.waits.endless:
        rule = "a run of sums ends a round for which a site is missing, or its sites would wait with their keys"
        yield InvalidInput("patience", None, rule, "give a number of seconds")


DECLARED: tuple[Rule, ...] = (
    centring_and_start_of_the_configuration,
    facts_of_the_schema,
    one_replicate,
    edges_of_the_graph,
    calibrated_noise,
    start_and_graph_of_inference,
)
"""What the entries of a plan must be together, before the run is priced."""
PRICED: tuple[Rule, ...] = (an_end_of_rounds_of_sums, whole_training_before_an_evaluation)
"""What the priced run must be."""


def trained_rows(sites: Sequence[Member], asks: Asks | None) -> Array:
    """Training rows of every site, (N, 1)."""
    return np.array([[float(site.rows - (0 if asks is None else asks.held(site.rows)))] for site in sites])


def scale_of(prepared: Prepared) -> float | None:
    """Shift over sigma of a recipe's releases together; None without noise."""
    noise = prepared.algorithm.noise
    return None if noise is None else float(np.max(noise.factor))


def _scales(asks: Asks) -> list[float | None]:
    """Scales of the recipes with noise."""
    own = [asks.scale] if asks.inference else []
    return own if asks.evaluation in (None, np.inf) else [*own, asks.evaluation_scale]


def _check_method(path: str | Path, method: object) -> None:
    """Refuse a method of another package: a plan comes from others, and makes nobody load code by its name."""
    if method not in KNOWN:
        rule = f"runs the method {method!r}, which this version does not have"
        remedy = "let all take the same version, or register the method in the program that reads the plan"
        raise InvalidInput("plan", str(path), rule, remedy)


def _digest(plain: dict[str, Any]) -> str:
    return keyed_hash(b"plan", canonical(plain).encode()).hex()


def _listed(values: Any, most: int, field: str) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError
    limits.check_number(field, len(values), most)
    return values


def _wider(schema: dict[str, Any], d: int) -> bool:
    """Whether a column declares more features than `d`; finds out without making their names."""
    sizes = [column.get("size", 0) for column in dict(schema.get("columns", {})).values()]
    return any(isinstance(size, int) and size > d for size in sizes)


def _cap(prepared: Prepared, rounds: int) -> float:
    """A norm cap from public facts: a site's minimiser has norm at most slope times C over mu, and noise adds to it."""
    facts = prepared.facts
    alone = facts.loss.derivative_bound * facts.C / facts.mu
    spread = max((float(np.max(event.spread())) for event in prepared.plan(rounds).rows), default=0.0)
    return _ROOM * (alone + np.sqrt(facts.d).item() * spread)
