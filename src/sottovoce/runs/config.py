"""The configuration of a run, checked field by field."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ..algorithms import ANSWERS, KNOBS, KNOWN, REGISTRY, Recipe, knobs_of, under
from ..algorithms.knobs import WRITTEN, paragraphs
from ..algorithms.method import TRUSTS
from ..errors import InvalidInput
from ..ledger.memory import validate_target
from ..privacy import accountants
from ..problem.losses import make_loss
from ..problem.schedules import Schedule
from ..problem.trust import Trust
from ..util.typing import Any
from .registering import find_method, offered

C = TypeVar("C")
TRUSTED = tuple(TRUSTS)
MOST_ROUNDS, MOST_REPLICATES = 50_000, 1_000_000
_SIZE = (1e-100, 1e100)
_KINDS: dict[str, tuple[str, Any]] = {  # of a field's type, as it is written: in words, and whether a value is of it
    "str": ("a text", lambda v: isinstance(v, str)),
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "int": (
        "a whole number of less than 150 digits",
        lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v).bit_length() < 512,
    ),
    "float": ("a number", lambda v: _real(v)),
    "tuple[float, ...]": ("a tuple of numbers, one a node", lambda v: isinstance(v, tuple) and all(map(_real, v))),
    "Schedule": ("a Schedule", lambda v: isinstance(v, Schedule)),
    "None": ("None", lambda v: v is None),
}  # fmt: skip


def _real(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's: records and run keys are JSON."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def check_types(config: Any) -> None:
    """Refuse a dataclass's fields that are not of their type, and numbers so large that arithmetic overflows."""
    for f in fields(config):
        kinds, value = str(f.type).split(" | "), getattr(config, f.name)
        if set(kinds) <= set(_KINDS) and not any(_KINDS[kind][1](value) for kind in kinds):
            rule = f"must be {' or '.join(_KINDS[kind][0] for kind in kinds)}"
            raise InvalidInput(f.name, type(value) if value is None else value, rule, f"the default is {f.default!r}")
        if "float" in kinds and f.name != "delta" and isinstance(value, Real | tuple):
            size, least = np.abs(np.asarray(value, dtype=float)), 0.0 if f.name == "tol" else _SIZE[0]
            if np.any(np.isfinite(size) & (size > 0) & ((size < least) | (size > _SIZE[1]))):
                rule = f"must be 0, or of a size from {_SIZE[0]:g} to {_SIZE[1]:g}"
                raise InvalidInput(f.name, value, rule, f"the default is {f.default!r}")


def _with_knobs(cls: type[C]) -> type[C]:
    """Make every knob of every method a field, and a paragraph of the docstring."""
    for one in KNOBS.values():
        cls.__annotations__[one.name] = one.kind
        setattr(cls, one.name, one.default)
    cls.__doc__ = (cls.__doc__ or "").replace("    <knobs>\n", paragraphs(KNOBS.values()))
    return cls


@dataclass(frozen=True)
@_with_knobs
class RunConfig:
    """Configuration of a run: all that it depends on except the rows, and public.

    Its defaults are what a record means that leaves a field out, so they never change.  The command line and the
    estimators have defaults of their own (:mod:`sottovoce.runs.defaults`).

    Parameters
    ----------
    method : str
        A name that ``sottovoce methods`` lists.  Stored is the name of method and `trust` together: "sum_momentum" for
        "momentum" under "sum", which may also be given.  "auto" leaves the choice to
        :func:`sottovoce.runs.auto_search.choose`; stored is the first guess, `prox_admm` with a delta, a cap on
        gradients or a loss without a proof for noise inside objectives, else `mr_admm`.
    epsilon : float or tuple of N floats
        Total of the whole run, per row of one site: for all nodes, or for each.  ``inf`` runs without noise.
    delta : float, optional
        The addend of the guarantee ``P(S) <= e^epsilon Q(S) + delta``, for the whole run.  None for pure epsilon.
    trust : {"nobody", "sum", "curator"}, optional
        Whom people trust with their rows: nobody; nobody with more than sums over all sites; or a curator.  None for
        whom the method's name says, and nobody for "auto".  A name that says another trust is refused.
    rounds : int
        Exchanges with the neighbours.
    graph, loss : str
        See :func:`sottovoce.network.graphs.make_graph` and :func:`sottovoce.problem.losses.make_loss`.
    relation : {"replace-one", "zero-out"}
        Whether epsilon compares a row with any other, or with an empty one, which promises less.
    accountant : {"pure", "zcdp", "rdp", "pld", "best"}, optional
        How releases add up.  None is "pure" without a delta, and "best", the least of all, with one.
    colluders : int
        Under trust in sums: how many sites may tell others all they know.  With one of N the noise has N / (N - 1) of
        a curator's variance.
    participants : int, optional
        Under trust in sums: the least number of sites of a sum.  None for the least that the protocol allows:
        ``max(colluders + 2, more than (N + colluders) / 2)``.
    sites_per_row : int
        Largest number of sites at which one person may have a row; the total is that of the worst such sites together.
    rows_per_person : int, optional
        The most rows of a person at a site, bounded together (:meth:`sottovoce.data.rows.Rows.with_people`): the unit
        of the guarantee is then a person.  None for a row.
    seed : int, optional
        Source of the noise in a simulation, which anybody who knows it can repeat.  None draws from the operating
        system.
    replicates : int
        Independent repetitions of the noise.

    Other Parameters
    ----------------
    form : {"corrected", "printed", "listed"}
        Whether the code has a proof that covers it, or is a paper's algorithm to the letter.
    C, rho : float
        See :mod:`sottovoce.problem.facts`.
    eta : float, tuple of N floats or Schedule, optional
        Penalty of the first round, or a whole schedule; None for :func:`sottovoce.runs.prepare.default_penalty`.
    eta_growth : float or tuple of N floats
        Factor q of the penalty from one release to the next: eta, eta q, eta q^2 and so on.  002's ``q^k`` has the
        exponent 1 at the first release: it is ``eta=q, eta_growth=q``.
    noise : float, tuple of N floats or Schedule, optional
        The method's own noise parameter alpha; `epsilon` is then a budget, and the run stops before a release that
        would exceed it.  None calibrates alpha so that the run costs `epsilon`.
    noise_growth : float
        Factor of alpha from one release to the next.
    copies : int
        Number of runs like this one, on the same rows and each with its own noise, that share epsilon and delta.
    tol : float, optional
        Relative gradient norm to which local solves are certified.  None chooses it from public facts for each release
        of a corrected form, so that the solver's error adds at most a thousandth to the noise, but not below 1e-8,
        which is also that of solves without noise and of printed forms.
    backend : str
        Array library that multiplies rows: "numpy", or one of :data:`sottovoce.data.device.LIBRARIES`, with a device
        where it has several ("torch:cuda").  The noise is the same on all, and results agree to within the certificate.
    auto : bool
        Whether ``method="auto"`` was given.
    start : str, optional
        Digest of the public starting point (:class:`sottovoce.runs.start.Start`), filled in by
        :func:`sottovoce.runs.simulate.simulate`; None for zero.
    centre : str, optional
        Digest of how rows are centred (:class:`sottovoce.runs.centre.Centring`), filled in by
        :func:`sottovoce.runs.simulate.simulate`; None for rows as they are.
    <knobs>

    Examples
    --------
    >>> from sottovoce import RunConfig
    >>> run = RunConfig("momentum", epsilon=1.0, delta=1e-5, rounds=100, trust="sum")
    >>> run.method, run.trusts
    ('sum_momentum', 'sum')
    """

    method: str = "mr_admm"
    epsilon: float | tuple[float, ...] = 1.0
    delta: float | None = None
    rounds: int = 10
    graph: str = "ring"
    form: str = "corrected"
    loss: str = "logistic"
    C: float = 1.0
    rho: float = 0.001
    eta: float | tuple[float, ...] | Schedule | None = None
    eta_growth: float | tuple[float, ...] = 1.0
    noise: float | tuple[float, ...] | Schedule | None = None
    noise_growth: float = 1.0
    relation: str = "replace-one"
    accountant: str | None = None
    sites_per_row: int = 1
    copies: int = 1
    tol: float | None = 1e-8
    backend: str = "numpy"
    seed: int | None = 0
    replicates: int = 1
    auto: bool = False
    start: str | None = None
    trust: str | None = None
    colluders: int = 1
    participants: int | None = None
    centre: str | None = None
    rows_per_person: int | None = None

    if TYPE_CHECKING:  # which cannot see the knobs

        def __init__(
            self, method: str = ..., epsilon: float | tuple[float, ...] = ..., delta: float | None = ...,
            rounds: int = ..., graph: str = ..., form: str = ..., loss: str = ..., **fields: Any,
        ) -> None: ...  # fmt: skip

        def __getattr__(self, knob: str) -> Any: ...

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, _plain(getattr(self, f.name)))
        check_types(self)
        validate_target(self.epsilon, self.delta)
        if self.trust not in (*TRUSTED, None):
            raise InvalidInput("trust", self.trust, f"must be one of {', '.join(map(repr, TRUSTED))}", "use 'nobody'")
        if self.method == "auto":  # measured: docs/measured/results.md
            object.__setattr__(self, "method", _first_guess(self.delta, self.loss, self.trust, self.max_grad_norm))
            object.__setattr__(self, "auto", True)
        if self.method not in KNOWN and find_method(self.method) is None:
            raise InvalidInput("method", self.method, f"must be one of {offered()}", "see `sottovoce methods`")
        if self.method in ANSWERS:  # which go by one name under every trust
            object.__setattr__(self, "trust", self.trust or "nobody")
        elif self.trust is not None:
            object.__setattr__(self, "method", under(self.method, self.trust))
        elif self.trusts == "nobody":
            object.__setattr__(self, "trust", "nobody")
        cls = KNOWN[self.method]
        if self.trusts == "sum":
            if self.graph not in ("ring", "complete"):  # a ring is what is meant if nothing is said
                # Sums over the neighbours of a ring of five can be solved for every single vector.
                rule = f"{self.method} opens one sum over all sites; sums over neighbours hide nothing"
                raise InvalidInput("graph", self.graph, rule, "leave it out")
            object.__setattr__(self, "graph", "complete")
            one_price = {"epsilon": self.epsilon, "eta": self.eta, "noise": self.noise}
            for name, value in one_price.items():
                if isinstance(value, tuple) or (isinstance(value, Schedule) and value.nodes):
                    rule = f"{self.method} opens sums over all sites, which have one price"
                    raise InvalidInput(name, value, rule, "give one number")
            if self.colluders < 1:
                rule = "every site knows its own share of the noise, so one may always collude"
                raise InvalidInput("colluders", self.colluders, f"must be at least 1: {rule}", "use colluders=1")
        elif (self.colluders, self.participants) != (1, None):
            name = "colluders" if self.colluders != 1 else "participants"
            rule = f"{self.method} opens no sums"
            raise InvalidInput(name, getattr(self, name), rule, "leave it out, or use trust='sum'")
        if self.form not in cls.forms:
            raise InvalidInput("form", self.form, f"{self.method} has {', '.join(cls.forms)}", f"use {cls.forms[0]!r}")
        for name in ("eta", "eta_growth", "noise", "noise_growth"):  # Facts checks the others
            value = getattr(self, name)
            if not isinstance(value, Schedule | None) and not np.all(np.isfinite(np.asarray(value, dtype=float))):
                raise InvalidInput(name, value, "must be finite", f"use the default, {getattr(type(self), name)}")
        own = knobs_of(cls)
        for name, knob in KNOBS.items():
            value = getattr(self, name)
            knob.check(value)
            if value == knob.default:
                continue
            idle = name not in own or knob.form not in ("", self.form)
            if idle and knob.strict:
                rule = f"the {self.form} {self.method} has none; {knob.strict}"
                raise InvalidInput(name, value, rule, f"use {name}={knob.default!r}")
            if idle and (name in own or knob.form == "printed"):  # of another method, so that methods can be compared
                takes = [m for m, c in REGISTRY.items() if name in knobs_of(c) and knob.form in c.forms]
                has = "none" if knob.form == "printed" else f"its own, {knob.default}"
                rule = f"the {self.form} {self.method} has {has}"
                raise InvalidInput(name, value, rule, f"leave it out: it is of the {knob.form} {' or '.join(takes)}")
        if self.start is not None and not re.fullmatch("[0-9a-f]{32}", self.start):
            raise InvalidInput("start", None, "must be the digest of a starting point", "leave it out")
        if self.start is not None and self.form != "corrected":
            rule = "a printed form starts at zero, as its paper says"
            raise InvalidInput("start", self.start, rule, "leave it out, or use form='corrected'")
        if self.centre is not None and not re.fullmatch("[0-9a-f]{32}", self.centre):
            raise InvalidInput("centre", None, "must be the digest of a centring", "leave it out")
        if self.centre is not None and self.form != "corrected":
            rule = "a printed form runs on rows as they are"
            raise InvalidInput("centre", self.centre, rule, "leave it out, or use form='corrected'")
        if self.seed is not None and self.seed < 0:
            raise InvalidInput("seed", self.seed, "must be >= 0", "use seed=0")
        if self.noise is not None and not cls.private:
            raise InvalidInput("noise", self.noise, f"{self.method} draws no noise", "leave it out, or use 'dvp'")
        counts = ("rounds", "replicates", "sites_per_row", "copies")
        for name in counts if self.rows_per_person is None else (*counts, "rows_per_person"):
            most = MOST_ROUNDS if name == "rounds" else MOST_REPLICATES
            if not 1 <= getattr(self, name) <= most:
                rule = f"must be a whole number, at least 1 and at most {most:,}"
                raise InvalidInput(name, getattr(self, name), rule, f"use {name}=1 or more")
        if self.seed is None and self.replicates > 1:
            rule = "with noise of the operating system every replicate is a release of its own, and they add up"
            raise InvalidInput("replicates", self.replicates, rule, "use one, or a seed for a simulation")
        if self.seed is None and self.form != "corrected":
            rule = "is for simulation only: it adds no noise to the solver's answer, so real releases have no proof"
            raise InvalidInput("form", self.form, rule, "use 'corrected', or give a seed")
        if isinstance(self.epsilon, tuple) and not np.all(np.isfinite(self.epsilon)):
            rule = "every node needs a finite budget, or none has one"
            raise InvalidInput("epsilon", self.epsilon, rule, "give finite numbers, or epsilon=inf")
        if accountants.make_accountant(self.notion).name != "pure" and self.delta is None:
            rule = f"the {self.notion} accountant needs one inside (0, 1)"
            raise InvalidInput("delta", None, rule, "use delta=1e-5, or 'pure' in its place")
        if self.budgeted and cls.needs_delta and self.delta is None:
            rule = f"{self.method} draws Gaussian noise, which has no pure price"
            other = "" if self.method in ANSWERS else ", or a method with spherical noise"
            raise InvalidInput("delta", None, rule, f"use delta=1e-5{other}")
        if self.budgeted and not cls.private:
            raise InvalidInput(
                "epsilon", self.epsilon, f"{self.method} releases exact minimisers, so no finite epsilon can be proved",
                "use epsilon=inf, or a private method such as 'mr_admm'",
            )  # fmt: skip

    @property
    def trusted(self) -> Trust:
        """Whom the method's name trusts, or of a recipe whom `trust` names."""
        return TRUSTS[self.trust or "nobody"] if self.method in ANSWERS else REGISTRY[self.method].trust

    @property
    def trusts(self) -> str:
        return self.trusted.kind

    @property
    def notion(self) -> str:
        return self.accountant or ("pure" if self.delta is None else "best")

    @property
    def budgeted(self) -> bool:
        return bool(np.all(np.isfinite(self.epsilon)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity is the text ``inf``.  Knobs at their defaults are left out, but for ``WRITTEN``."""
        plain = asdict(self) | {"epsilon": self.epsilon if self.budgeted else "inf"}
        silent = dict.fromkeys(("start", "centre", "participants", "rows_per_person"))
        silent |= {"auto": False, "colluders": 1} | {
            name: knob.default for name, knob in KNOBS.items() if name not in WRITTEN
        }
        silent |= {"trust": self.trust} if self.trust in ("nobody", None) else {}  # as the method's name says it
        return {name: value for name, value in plain.items() if name not in silent or value != silent[name]}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> RunConfig:
        known = {f.name for f in fields(cls)}
        read: dict[type, Any] = {list: tuple, dict: Schedule.from_dict}
        values = {k: read[type(v)](v) if type(v) in read else v for k, v in plain.items() if k in known}
        epsilon = values["epsilon"]
        return cls(**(values | {"epsilon": epsilon if isinstance(epsilon, tuple) else float(epsilon)}))

    def for_recipe(self, method: Recipe, **changes: Any) -> RunConfig:
        """The configuration of a recipe under this one's budget, trust, relation and seed.

        Nothing else is kept: a recipe has its own steps, and its own noise if that was calibrated before.
        """
        kept = {field: getattr(self, field) for field in _KEPT} | changes
        if self.form != "corrected":
            raise InvalidInput("form", self.form, "no paper has a printed form of answers", "leave it out")
        if isinstance(kept["epsilon"], tuple):
            raise InvalidInput("epsilon", self.epsilon, "answers over all sites have one price", "give one number")
        return RunConfig(
            method.name, rounds=len(method.items), noise=method.noise, graph="complete", trust=self.trusts, **kept
        )  # fmt: skip


_KEPT = ("epsilon", "delta", "relation", "accountant", "sites_per_row", "copies", "seed", "replicates", "colluders",
    "participants", "rows_per_person")  # fmt: skip


def _first_guess(delta: float | None, loss: str, trust: str | None, cap: float) -> str:
    """The method that "auto" starts from (measured: docs/measured/results.md)."""
    inside = make_loss(loss).unproved_inside is None and cap == math.inf
    if trust == "sum":
        return "momentum"
    if trust == "curator":
        return "objective" if inside else "prox_average"
    return "mr_admm" if delta is None and inside else "prox_admm"
