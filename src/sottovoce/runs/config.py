"""The configuration of a run: all public parameters, each checked, and the rules between them.

Constraints of single fields stand beside the fields; the functions in :data:`RULES` check several
fields together, and all errors are reported at once.  A *knob* is an option of one method only
(:mod:`sottovoce.algorithms.knobs`); a *record* is the plain data of a saved run, whose digest
identifies it, so :meth:`RunConfig.to_dict` must never change for an unchanged configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches

import numpy as np

from ..algorithms import (
    ANSWERS,
    KNOBS,
    KNOWN,
    REGISTRY,
    Algorithm,
    MethodOptions,
    Recipe,
    knobs_of,
    name_under_trust,
)
from ..algorithms.knobs import WRITTEN, values_of
from ..algorithms.method import TRUSTS
from ..errors import InvalidInput, format_declared_value, raise_collected_errors
from ..privacy import accountants
from ..problem.losses import make_loss
from ..problem.schedules import Schedule
from ..problem.trust import RELATIONS, Trust
from ..util.compatibility import Refusal
from ..util.constraints import (
    AnyOf,
    Both,
    Constraint,
    Count,
    Flag,
    Instance,
    Interval,
    Nothing,
    OneOf,
    Pattern,
    PerNode,
    Rule,
    Text,
    UsableSize,
    collect_broken_constraints,
    collect_broken_rules,
    constrained_field,
    optional_constraint,
)
from ..util.plain import as_python_numbers
from ..util.typing import Any
from .registering import find_method, offered_methods

TRUSTED = tuple(TRUSTS)
MOST_ROUNDS, MOST_REPLICATES = 50_000, 1_000_000
NO_OPTIONS = MethodOptions()
_NESTED = ("options", "other_options")  # fields that flat dictionaries have one by one
_SCHEDULES = ("eta", "noise")  # fields that may be schedules, dictionaries in records
_DIGEST = "[0-9a-f]{32}"


def positive_weight_constraint(why: str) -> Constraint:
    """Return the constraint of a finite weight above 0, with the reason why it must be."""
    return Both(Interval(low=0, closed="neither", why=why), UsableSize())


_FINITE = Both(PerNode(Interval(closed="neither")), UsableSize())
_FINITE_OR_SCHEDULE = Both(
    AnyOf(PerNode(Interval(closed="neither")), Instance(Schedule), Nothing()),
    UsableSize(),
)


@dataclass(frozen=True)
class RunConfig:
    """Configuration of a run: all that it depends on except the rows, and public.

    A record may leave out a field that has its default, so the defaults here never change.  The
    command line and the estimators have defaults of their own (:mod:`sottovoce.runs.defaults`).

    Parameters
    ----------
    method : str
        A name that ``sottovoce methods`` lists.  The field stores the name of method and ``trust``
        together: "sum_momentum" for "momentum" under "sum", which may also be given.  "auto" leaves
        the choice to :func:`sottovoce.runs.auto_search.choose_method`; until then the field stores
        a first guess: `prox_admm` with a delta, gradient clipping or a loss for which objective
        perturbation has no proof, else `mr_admm`.
    epsilon : float or tuple of N floats
        Total of the whole run, per row of one site: for all nodes, or for each.  ``inf`` runs
        without noise.
    delta : float, optional
        The addend of the guarantee ``P(S) <= e^epsilon Q(S) + delta``, for the whole run.  None for
        pure epsilon.
    trust : {"nobody", "sum", "curator"}, optional
        Whom people trust with their rows: nobody (local), nobody but with secure sums over all
        sites (secure aggregation), or a curator (central).  None for the trust that the method's
        name implies, and nobody for "auto".  A name that implies another trust is refused.
    rounds : int
        Exchanges with the neighbours.
    graph, loss : str
        See :func:`sottovoce.network.graphs.make_graph` and
        :func:`sottovoce.problem.losses.make_loss`.
    relation : {"replace-one", "zero-out"}
        Whether epsilon compares a row with any other, or with an empty one, which promises less.
    accountant : {"pure", "zcdp", "rdp", "pld", "best"}, optional
        How releases add up.  None is "pure" without a delta, and "best", the least of all, with
        one.
    colluders : int
        Under trust in sums: how many sites may collude, that is, tell others all that they know.
        With one of N sites the noise has N / (N - 1) times a curator's variance.
    participants : int, optional
        Under trust in sums: the least number of sites of a sum.  None for the least that the
        protocol allows: ``max(colluders + 2, more than (N + colluders) / 2)``.
    sites_per_row : int
        Largest number of sites at which one person may have a row; the total is that of the worst
        such sites together.
    rows_per_person : int, optional
        Largest number of rows of a person at a site (user-level privacy): the unit of the guarantee
        is then a person, whose rows are clipped together
        (:meth:`sottovoce.data.rows.Rows.with_people`).  None for a row as the unit.
    seed : int, optional
        Source of the noise in a simulation, which anybody who knows it can repeat.  None draws from
        the operating system.
    replicates : int
        Independent repetitions of the noise.

    Other Parameters
    ----------------
    form : {"corrected", "printed", "listed"}
        "corrected" is covered by a proof; the others are a paper's algorithm to the letter.
    C, rho : float
        See :mod:`sottovoce.problem.facts`.
    eta : float, tuple of N floats or Schedule, optional
        Penalty of the first round, or a whole schedule; None for
        :func:`sottovoce.runs.prepare.default_penalty`.
    eta_growth : float or tuple of N floats
        Factor q of the penalty from one release to the next: eta, eta q, eta q^2 and so on.  002's
        ``q^k`` has the exponent 1 at the first release: it is ``eta=q, eta_growth=q``.
    noise : float, tuple of N floats or Schedule, optional
        The method's own noise parameter alpha; `epsilon` is then a budget, and the run stops before
        a release that would exceed it.  None calibrates alpha so that the run costs `epsilon`.
    noise_growth : float
        Factor of alpha from one release to the next.
    copies : int
        Number of runs like this one, on the same rows and each with its own noise, that share
        epsilon and delta.
    tol : float, optional
        Relative gradient norm to which local solves are certified.  None chooses it from public
        facts for each release of a corrected form, so that the solver's error adds at most a
        thousandth to the noise, but not below 1e-8, which is also that of solves without noise and
        of printed forms.
    backend : str
        Array library that multiplies rows: "numpy", or one of
        :data:`sottovoce.data.device.LIBRARIES`, with a device where it has several ("torch:cuda").
        The noise is the same on all, and results agree to within the certificate.
    auto : bool
        Whether ``method="auto"`` was given.
    start : str, optional
        Digest of the public starting point (:class:`sottovoce.runs.start.Start`), filled in by
        :func:`sottovoce.runs.simulate.simulate`; None for zero.
    centre : str, optional
        Digest of how rows are centred (:class:`sottovoce.runs.centre.Centring`), filled in by
        :func:`sottovoce.runs.simulate.simulate`; None for rows as they are.
    options : MethodOptions
        Options of this method only: an object of the class in its file, such as
        ``MomentumOptions(momentum=0.9)``.  By default the method's own at their defaults.
    other_options : tuple of pairs
        Options by name, as given to :meth:`from_dict`: those that the method has are moved into
        `options`.  The rest belong to other methods and have no effect, so that one dictionary
        serves to compare methods; "auto" may choose a method that uses them.

    Examples
    --------
    >>> from sottovoce import RunConfig
    >>> run = RunConfig("momentum", epsilon=1.0, delta=1e-5, rounds=100, trust="sum")
    >>> run.method, run.trusts
    ('sum_momentum', 'sum')
    >>> RunConfig.from_dict({"method": "momentum", "delta": 1e-5, "momentum": 0.9}).options.momentum
    0.9
    """

    method: str = constrained_field("mr_admm", Text(), remedy="see `sottovoce methods`")
    epsilon: float | tuple[float, ...] = constrained_field(
        1.0,
        Both(PerNode(Interval(low=0, closed="high")), UsableSize()),
        remedy="use e.g. epsilon=1, or epsilon=inf for a run without noise",
    )
    delta: float | None = constrained_field(
        None,
        optional_constraint(Interval(0, 1, closed="neither")),
        remedy="use e.g. delta=1e-5; None (`train --pure`) is pure epsilon, where a method has it",
    )
    rounds: int = constrained_field(10, Count(most=MOST_ROUNDS))
    graph: str = constrained_field("ring", Text())
    form: str = constrained_field("corrected", Text())
    loss: str = constrained_field("logistic", Text())
    C: float = constrained_field(1.0, positive_weight_constraint("it weighs the data"))
    rho: float = constrained_field(0.001, positive_weight_constraint("it makes every solve unique"))
    eta: float | tuple[float, ...] | Schedule | None = constrained_field(None, _FINITE_OR_SCHEDULE)
    eta_growth: float | tuple[float, ...] = constrained_field(1.0, _FINITE)
    noise: float | tuple[float, ...] | Schedule | None = constrained_field(
        None, _FINITE_OR_SCHEDULE
    )
    noise_growth: float = constrained_field(1.0, Both(Interval(closed="neither"), UsableSize()))
    relation: str = constrained_field("replace-one", OneOf(*RELATIONS))
    accountant: str | None = constrained_field(None, optional_constraint(Text()))
    sites_per_row: int = constrained_field(1, Count(most=MOST_REPLICATES))
    copies: int = constrained_field(1, Count(most=MOST_REPLICATES))
    tol: float | None = constrained_field(
        1e-8,
        Both(
            optional_constraint(Interval(low=0, closed="neither", why="it ends every solve")),
            UsableSize(smallest=0.0),
        ),
    )
    backend: str = constrained_field("numpy", Text())
    seed: int | None = constrained_field(0, optional_constraint(Count(least=0)))
    replicates: int = constrained_field(1, Count(most=MOST_REPLICATES))
    auto: bool = constrained_field(False, Flag())
    start: str | None = constrained_field(
        None,
        optional_constraint(Pattern(_DIGEST, "the digest of a starting point")),
        remedy="leave it out",
    )
    trust: str | None = constrained_field(
        None, optional_constraint(OneOf(*TRUSTED)), remedy="use 'nobody'"
    )
    colluders: int = constrained_field(
        1,
        Count(),
        remedy="use colluders=1: every site knows its own share of the noise, so one may always "
        "collude",
    )
    participants: int | None = constrained_field(
        None, optional_constraint(Count()), remedy="leave it out"
    )
    centre: str | None = constrained_field(
        None,
        optional_constraint(Pattern(_DIGEST, "the digest of a centring")),
        remedy="leave it out",
    )
    rows_per_person: int | None = constrained_field(
        None, optional_constraint(Count(most=MOST_REPLICATES))
    )
    options: MethodOptions = constrained_field(
        NO_OPTIONS, Instance(MethodOptions), remedy="leave it out"
    )
    other_options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, as_python_numbers(getattr(self, one.name)))
        raise_collected_errors(
            [*collect_broken_constraints(self), *broken_options(self.other_options)]
        )
        self._resolve_method()
        self._resolve_options()
        raise_collected_errors(collect_broken_rules(self, RULES))

    def _resolve_method(self) -> None:
        """Replace "auto" by a first guess, and a method's name by that of the pair with its trust.

        A run that opens sums over all sites gets the complete graph.
        """
        if self.method == "auto":
            guess = _first_guess(self.delta, self.loss, self.trust, self._gradient_cap_as_given)
            object.__setattr__(self, "method", guess)
            object.__setattr__(self, "auto", True)
        if self.method not in KNOWN and find_method(self.method) is None:
            raise InvalidInput(
                "method",
                self.method,
                f"must be one of {offered_methods()}",
                "see `sottovoce methods`",
            )
        # Recipes go by one name under every trust, so the field alone says whom they trust.
        if self.method in ANSWERS:
            object.__setattr__(self, "trust", self.trust or "nobody")
        elif self.trust is not None:
            object.__setattr__(self, "method", name_under_trust(self.method, self.trust))
        elif self.trusts == "nobody":
            object.__setattr__(self, "trust", "nobody")
        # "ring" is the field's default, so the caller may not have chosen it; sums over all sites
        # need the complete graph.
        if self.trusts == "sum" and self.graph == "ring":
            object.__setattr__(self, "graph", "complete")

    @property
    def _gradient_cap_as_given(self) -> float:
        """The cap on gradients as the caller gave it, before the method is known."""
        given = dict(self.other_options)
        return float(given.get("max_grad_norm", getattr(self.options, "max_grad_norm", math.inf)))

    def _resolve_options(self) -> None:
        """Store the options of the method, and apart from them those of other methods."""
        defaults = self.algorithm.options
        options = self.options
        if options == NO_OPTIONS:
            options = defaults
        if type(options) is not type(defaults):
            rule = f"must be of the class {type(defaults).__name__}, the options of {self.method}"
            raise InvalidInput(
                "options", type(options), rule, "or give options by name to RunConfig.from_dict"
            )
        names = knobs_of(defaults)
        own = {name: value for name, value in self.other_options if name in names}
        others = {name: value for name, value in self.other_options if name not in names}
        # An option of another method at its default has no effect, so it is not stored.
        changed = {name: value for name, value in others.items() if value != KNOBS[name].default}
        object.__setattr__(self, "options", replace(options, **own))
        object.__setattr__(self, "other_options", tuple(sorted(changed.items())))

    @property
    def gradient_cap(self) -> float:
        """The cap on the norm of a row's gradient; infinity for methods that have none."""
        return getattr(self.options, "max_grad_norm", math.inf)

    @property
    def trusted(self) -> Trust:
        """The trust that the method's name implies; for a recipe, that of the field ``trust``."""
        if self.method in ANSWERS:
            return TRUSTS[self.trust or "nobody"]
        return REGISTRY[self.method].trust

    @property
    def trusts(self) -> str:
        """Kind of trust, which is "nobody", "sum" or "curator"."""
        return self.trusted.kind

    @property
    def notion(self) -> str:
        """The name of the accountant: as given, or "pure" without a delta and "best" with one."""
        if self.accountant:
            return self.accountant
        if self.delta is None:
            return "pure"
        return "best"

    @property
    def algorithm(self) -> type[Algorithm[Any]]:
        """The class of the method, or of all recipes."""
        return KNOWN[self.method]

    @property
    def budgeted(self) -> bool:
        """True if epsilon is finite at every node."""
        return bool(np.all(np.isfinite(self.epsilon)))

    def flat(self) -> dict[str, Any]:
        """Return fields and options by name, as :meth:`from_dict` reads them."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NESTED}
        options = dict(self.other_options) | values_of(self.options)
        return own | {name: value for name, value in options.items() if name not in _FIELDS}

    def but(self, **changes: Any) -> RunConfig:
        """Return the configuration with other fields or options, by name; also another method."""
        return self.from_dict(self.flat() | changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the record: plain data, with an infinite epsilon as the text ``inf``.

        Options at their defaults are left out, except those of ``WRITTEN``.
        """
        plain = {name: KNOBS[name].default for name in WRITTEN}
        for name, value in self.flat().items():
            if isinstance(value, Schedule):
                value = value.to_dict()
            plain[name] = value
        # JSON has no infinity.
        if not self.budgeted:
            plain["epsilon"] = "inf"
        # Fields and options, with the value at which a record leaves them out.  Keys of runs are
        # digests of records, so a field that is added to this class must be left out at its
        # default.
        silent = dict.fromkeys(("start", "centre", "participants", "rows_per_person"))
        silent |= {"auto": False, "colluders": 1}
        for name, knob in KNOBS.items():
            if name not in WRITTEN and name not in _FIELDS:
                silent[name] = knob.default
        # The method's name says it already.
        if self.trust in ("nobody", None):
            silent["trust"] = self.trust
        return {
            name: value
            for name, value in plain.items()
            if name not in silent or value != silent[name]
        }

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the defaults that :meth:`from_dict` fills in, of fields and options."""
        own = {one.name: one.default for one in fields(cls) if one.name not in _NESTED}
        return own | {name: knob.default for name, knob in KNOBS.items() if name not in _FIELDS}

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> RunConfig:
        """Read a configuration from a flat dictionary: of an estimator, a command or a file.

        Parameters
        ----------
        flat : mapping
            Fields, and options of whichever method, by name.  What is left out has its default.
            Lists are read as tuples, dicts as :class:`sottovoce.problem.schedules.Schedule`, and
            the text "inf" as no budget.

        Returns
        -------
        RunConfig

        Raises
        ------
        InvalidInput
            For what is wrong, and for names that are neither a field nor an option of a method.
        """
        known = cls.defaults()
        raise_collected_errors(
            [_unknown_name_error(name, known) for name in flat if name not in known]
        )
        values: dict[str, Any] = dict(flat)
        for name, value in flat.items():
            if isinstance(value, list):
                values[name] = tuple(value)
        for name in _SCHEDULES:
            if isinstance(values.get(name), dict):
                values[name] = Schedule.from_dict(values[name])
        if isinstance(values.get("epsilon"), str) and values["epsilon"] == "inf":
            values["epsilon"] = math.inf
        options = tuple((name, values.pop(name)) for name in flat if name not in _FIELDS)
        return cls(**values, other_options=options)

    @classmethod
    def from_record(cls, plain: Mapping[str, Any]) -> RunConfig:
        """Read what :meth:`to_dict` wrote, from a file: nothing may be left out.

        The file is not trusted and must not make this program load code: a method of another
        package must have been registered before.

        Raises
        ------
        ValueError
            If it is no such record; :class:`InvalidInput` for what :meth:`from_dict` refuses, and
            for a method that is not known.
        """
        refused = refusal_of_method(plain)
        if refused is not None:
            raise InvalidInput("method", plain["method"], refused.rule, refused.remedy)
        config = cls.from_dict(plain)
        if plain.keys() != config.to_dict().keys():
            raise ValueError("not the record of a configuration")
        return config

    def for_recipe(self, method: Recipe, **changes: Any) -> RunConfig:
        """Return the configuration of a recipe under this budget, trust, relation and seed.

        Other fields are not kept: a recipe has its own steps, and its own noise if that was
        calibrated before.  `changes` replace kept fields.
        """
        kept = {field: getattr(self, field) for field in _KEPT} | changes
        if self.form != "corrected":
            rule = "statistics are released in the corrected form only"
            raise InvalidInput("form", self.form, rule, "leave it out")
        if isinstance(kept["epsilon"], tuple):
            rule = "statistics over all sites have one epsilon for all"
            raise InvalidInput("epsilon", self.epsilon, rule, "give one number")
        return RunConfig(
            method.name,
            rounds=len(method.items),
            noise=method.noise,
            graph="complete",
            trust=self.trusts,
            **kept,
        )


_FIELDS = frozenset(one.name for one in fields(RunConfig))
"""Names of fields, which are never read as the name of a method's option.

Some of them decide the run's privacy loss.
"""

# Fields that `RunConfig.for_recipe` keeps.
_KEPT = (
    "epsilon",
    "delta",
    "relation",
    "accountant",
    "sites_per_row",
    "copies",
    "seed",
    "replicates",
    "colluders",
    "participants",
    "rows_per_person",
)


def refusal_of_method(plain: Any) -> Refusal | None:
    """Return why the method that a file names is refused; None if it is known or not named."""
    if not isinstance(plain, Mapping):
        return None
    method = plain.get("method")
    if not isinstance(method, str) or method in KNOWN:
        return None
    rule = (
        f"names the method {format_declared_value(method)}, which this program does not know and "
        "does not load because of a file"
    )
    return Refusal(rule, "import or register the method first, or give --method NAME")


def _unknown_name_error(name: str, known: Iterable[str]) -> InvalidInput:
    remedy = "see the parameters of RunConfig and of its methods"
    near = get_close_matches(name, known, n=1)
    if near:
        remedy = f"did you mean {near[0]!r}?"
    rule = "is neither a parameter of runs nor an option of a method"
    return InvalidInput(name, None, rule, remedy)


def broken_options(given: Iterable[tuple[str, Any]]) -> list[InvalidInput]:
    """Collect an error for every option that is unknown, or has a value out of its range."""
    wrong = []
    for name, value in given:
        knob = KNOBS.get(name)
        if knob is None:
            wrong.append(_unknown_name_error(name, KNOBS))
        elif not knob.constraint.is_satisfied_by(value):
            rule = knob.constraint.broken_rule_text(value)
            # `InvalidInput` shows no value for None, so a None that was given is shown as its type.
            shown = value
            if value is None:
                shown = type(value)
            wrong.append(InvalidInput(name, shown, rule, f"use {name}={knob.default!r}"))
    return wrong


def _first_guess(delta: float | None, loss: str, trust: str | None, cap: float) -> str:
    """Return the method that "auto" starts from (measured: docs/measured/results.md).

    `cap` is the cap on gradients, infinity for none.
    """
    # Objective perturbation is proved for some losses only, and for none with gradient clipping.
    inside = make_loss(loss).unproved_inside is None and cap == math.inf
    if trust == "sum":
        return "momentum"
    if trust == "curator":
        if inside:
            return "objective"
        return "prox_average"
    if delta is None and inside:
        return "mr_admm"
    return "prox_admm"


def one_graph_of_sums(config: RunConfig) -> Iterator[InvalidInput]:
    """Sums are over all sites: from sums over neighbours single vectors can be computed.

    On a ring of five, for example, the five sums of neighbours determine every site's vector.
    """
    if config.trusts == "sum" and config.graph != "complete":
        rule = (
            f"{config.method} needs the complete graph, because sums over neighbours would not "
            "hide single sites"
        )
        yield InvalidInput("graph", config.graph, rule, "leave it out")


def one_price_of_sums(config: RunConfig) -> Iterator[InvalidInput]:
    """In sums over all sites, no site has a budget or a parameter of its own."""
    if config.trusts != "sum":
        return
    for name in ("epsilon", "eta", "noise"):
        value = getattr(config, name)
        if isinstance(value, tuple) or (isinstance(value, Schedule) and value.nodes):
            rule = f"{config.method} releases sums over all sites, so all sites have the same value"
            yield InvalidInput(name, value, rule, "give one number")


def colluders_and_participants_of_sums(config: RunConfig) -> Iterator[InvalidInput]:
    """Colluding and participating sites are counted only under trust in sums."""
    if config.trusts == "sum":
        return
    for name, left_out in (("colluders", 1), ("participants", None)):
        value = getattr(config, name)
        if value != left_out:
            rule = f"{config.method} opens no sums over sites"
            yield InvalidInput(name, value, rule, "leave it out, or use trust='sum'")


def form_of_the_method(config: RunConfig) -> Iterator[InvalidInput]:
    """The method exists in the form that is asked for."""
    forms = config.algorithm.forms
    if config.form not in forms:
        rule = f"{config.method} only exists in the form {' or '.join(forms)}"
        yield InvalidInput("form", config.form, rule, f"use {forms[0]!r}")


def options_of_the_method(config: RunConfig) -> Iterator[InvalidInput]:
    """An option must have an effect, except one of another method.

    Those are ignored, so that methods can be compared with one dictionary of options.
    """
    own = values_of(config.options)
    for name, value in (own | dict(config.other_options)).items():
        one = KNOBS[name]
        is_read = name in own and one.form in ("", config.form)
        if value == one.default or is_read:
            continue
        if one.strict:
            rule = f"{config.method} in the {config.form} form has no such option: {one.strict}"
            yield InvalidInput(name, value, rule, f"use {name}={one.default!r}")
        elif name in own or one.form == "printed":
            readers = [
                method
                for method, cls in REGISTRY.items()
                if name in knobs_of(cls.options) and one.form in cls.forms
            ]
            fixed = f"always uses {one.default}"
            if one.form == "printed":
                fixed = "has no such option"
            rule = f"{config.method} in the {config.form} form {fixed}"
            remedy = f"leave it out: only the {one.form} form of {' or '.join(readers)} has it"
            yield InvalidInput(name, value, rule, remedy)


def corrected_form_of_moved_runs(config: RunConfig) -> Iterator[InvalidInput]:
    """A paper's algorithm to the letter starts at zero, and its rows are not centred."""
    if config.form == "corrected":
        return
    remedy = "leave it out, or use form='corrected'"
    if config.start is not None:
        yield InvalidInput(
            "start", config.start, "a printed form starts at zero, as its paper says", remedy
        )
    if config.centre is not None:
        yield InvalidInput("centre", config.centre, "a printed form does not centre rows", remedy)


def noise_of_private_methods(config: RunConfig) -> Iterator[InvalidInput]:
    """A method without noise takes no noise parameter and no finite epsilon."""
    if config.algorithm.private:
        return
    if config.noise is not None:
        rule = f"{config.method} draws no noise"
        remedy = "leave noise out, or use method='dvp'"
        yield InvalidInput("noise", config.noise, rule, remedy)
    if config.budgeted:
        rule = f"{config.method} adds no noise, so it protects nobody and has no finite epsilon"
        remedy = (
            "use a private method such as 'mr_admm', or epsilon=inf for a comparison whose results "
            "are not given to anybody else"
        )
        yield InvalidInput("epsilon", config.epsilon, rule, remedy)


def seed_of_simulations(config: RunConfig) -> Iterator[InvalidInput]:
    """Replicates and printed forms are for simulations only, which need a seed."""
    if config.seed is not None:
        return
    if config.replicates > 1:
        rule = "without a seed every replicate is a release, and their privacy losses add up"
        yield InvalidInput(
            "replicates", config.replicates, rule, "use replicates=1, or a seed for a simulation"
        )
    if config.form != "corrected":
        rule = (
            "is for simulations only: the paper's algorithm adds no noise for the solver's error, "
            "so a release has no proof"
        )
        yield InvalidInput("form", config.form, rule, "use 'corrected', or give a seed")


def budgets_of_all_nodes(config: RunConfig) -> Iterator[InvalidInput]:
    """Either every node has a finite budget, or none has one."""
    if isinstance(config.epsilon, tuple) and not np.all(np.isfinite(config.epsilon)):
        rule = "must be finite for every node, or infinite for all"
        yield InvalidInput("epsilon", config.epsilon, rule, "give finite numbers, or epsilon=inf")


def delta_of_the_accountant(config: RunConfig) -> Iterator[InvalidInput]:
    """The accountant is known, and has the delta that it needs."""
    try:
        accountant = accountants.make_accountant(config.notion)
    except InvalidInput as unknown:
        yield unknown
        return
    if accountant.name != "pure" and config.delta is None:
        rule = f"is missing, and accountant={config.notion!r} needs a delta between 0 and 1"
        yield InvalidInput("delta", None, rule, "use delta=1e-5, or accountant='pure'")


def delta_of_gaussian_noise(config: RunConfig) -> Iterator[InvalidInput]:
    """Gaussian noise has no price without a delta."""
    if config.budgeted and config.algorithm.needs_delta and config.delta is None:
        # A recipe is asked as it is: there is no other method for it.
        other = ", or a method with spherical noise"
        if config.method in ANSWERS:
            other = ""
        rule = f"is missing, and the Gaussian noise of {config.method} has no pure epsilon"
        yield InvalidInput("delta", None, rule, f"use delta=1e-5{other}")


RULES: tuple[Rule, ...] = (
    one_graph_of_sums,
    one_price_of_sums,
    colluders_and_participants_of_sums,
    form_of_the_method,
    options_of_the_method,
    corrected_form_of_moved_runs,
    noise_of_private_methods,
    seed_of_simulations,
    budgets_of_all_nodes,
    delta_of_the_accountant,
    delta_of_gaussian_noise,
)
"""Rules between the fields of a configuration, checked once the method is known."""
