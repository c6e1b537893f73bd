"""The interface of algorithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from ..network.net import Net
from ..problem.facts import Facts
from ..problem.schedules import Schedule
from ..problem.trust import NOBODY, Trust
from ..queries import Query
from ..util.typing import Any, Array
from .knobs import WRITTEN, MethodOptions, knobs_of, values_of


class Node(Protocol):
    """What an algorithm sees of its node."""

    @property
    def facts(self) -> Facts:
        """Public facts."""

    @property
    def net(self) -> Net:
        """Degree and neighbour sums."""

    def ask(self, query: Query) -> Array:
        """The released answer, after its charge; in sums that of all sites together."""

    def zeros(self) -> Array:
        """A vector of zeros of shape (..., d)."""


StateT = TypeVar("StateT", bound=NamedTuple)
_NO_OPTIONS = MethodOptions()


@dataclass(frozen=True)
class Algorithm(ABC, Generic[StateT]):
    """The public half of a method: hyperparameters in fields, all state in tuples of public arrays.

    In a *round* each node exchanges one vector with its neighbours.  ``noise`` is the schedule of the paper's noise
    parameter ``alpha_i(k)``, which a calibration scales to meet a target; ``None`` means no noise.
    """

    penalty: Schedule
    noise: Schedule | None
    options: MethodOptions = _NO_OPTIONS
    """What users may set on this method alone; on the class, at its defaults."""

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    releases: ClassVar[str]
    """How often a node releases."""
    noise_law: ClassVar[str]
    """Which noise, and where it is added."""
    good_for: ClassVar[str]
    """When to choose the method."""
    equals: ClassVar[str] = ""
    """The method that this one is at the defaults of both: see :func:`sottovoce.algorithms.same_as`."""
    relations: ClassVar[tuple[str, ...]] = ("replace-one", "zero-out")
    """Neighbouring data for which releases have a price."""
    private: ClassVar[bool] = True
    forms: ClassVar[tuple[str, ...]] = ("corrected",)
    trust: ClassVar[Trust] = NOBODY
    """Whom people have to trust with their rows, and what everybody else sees."""
    any_trust: ClassVar[bool] = False  # it is the same under every trust, and has one name
    curvature: ClassVar[str] = "edge"
    """What a penalty eta adds to the objective's curvature: ``2 eta`` per "edge", or ``eta`` per "node"."""
    least_penalty: ClassVar[float] = 0.001
    """The smallest default penalty, in units of C; noise may ask for a larger one."""
    noise_weight: ClassVar[float] = 0.0
    """Ratio of the default curvature to the noise's standard deviation, in sum scale; 0 if the default is fixed."""
    gradient_steps: ClassVar[bool] = False
    """Whether it takes gradient steps, with one over the penalty as step size."""
    single: ClassVar[bool] = False  # only the first round releases
    needs_delta: ClassVar[bool] = False  # its noise has no price in pure epsilon
    idle: ClassVar[tuple[str, ...]] = ()
    """Fields that do nothing under its trust: records leave them out."""
    recalls: ClassVar[bool] = False
    """Whether releases depend on statistics of earlier rounds, which a resumed run has to compute again."""
    objective_noise: ClassVar[bool] = False
    """Whether noise is inside the objective, so that the price includes a determinant that curvature makes small."""
    induced: ClassVar[str] = ""
    """Why a run may go on with the graph that is left without a lost site; empty: its theorem does not allow it."""
    complete: ClassVar[bool] = False  # only all rounds together mean something: all are paid for, and none is lost

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, options: MethodOptions) -> float | None:
        """A default penalty of the method's own, from public facts; None for the common rule.

        `spread` is the standard deviation of a release's noise in each coordinate, in sum scale; 0 without a budget.
        """
        return None

    def identity(self) -> dict[str, Any]:
        """Public content that the configuration lacks, as plain data: part of the key of a stored run."""
        return {}

    def check(self, node: Node) -> None:
        """Refuse parameters that break a precondition of the method's theorems, before anything is spent."""

    def check_claim(self, facts: Facts, rounds: int) -> None:
        """Refuse (InvalidInput), of a printed form, noise outside the theorem whose claim stands beside its price.

        It is asked once the noise is calibrated, before anything is spent; :meth:`check` is asked whatever the noise.
        """

    @abstractmethod
    def init(self, node: Node) -> StateT:
        """The state before the first round: a function of public facts, never of rows."""

    @abstractmethod
    def round(self, k: int, state: StateT, node: Node) -> StateT:
        """Round k = 1, 2, ...: at most one query, exactly one exchange."""

    def priced(self, k: int, state: StateT, node: Node) -> StateT:
        """Round k of a plan, where answers are blanks: the same releases."""
        return self.round(k, state, node)

    def outcome(self, state: StateT, facts: Facts) -> Any:
        """The result of a method that gives no model, from public state and the facts of all nodes."""
        return None

    def model(self, state: StateT) -> Array:
        """The classifier of every node, shape (..., d)."""
        return state.f  # type: ignore[attr-defined]

    def with_noise(self, noise: Schedule | None) -> Self:
        """The same method with another noise schedule."""
        return replace(self, noise=noise)

    def at(self, node: int) -> Self:
        """The method for node number `node` alone."""
        of_node = {k: v.node(node) for k, v in self.__dict__.items() if isinstance(v, Schedule)}
        return replace(self, **of_node)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Name and hyperparameters as plain data; knobs at their defaults are left out, but for ``WRITTEN``."""
        hyperparameters = {k: v for k, v in self.__dict__.items() if k != "options" and k not in self.idle}
        defaults = {name: one.default for name, one in knobs_of(self.options).items() if name not in WRITTEN}
        chosen = {k: v for k, v in values_of(self.options).items() if k not in defaults or v != defaults[k]}
        plain = {k: v.to_dict() if isinstance(v, Schedule) else v for k, v in (hyperparameters | chosen).items()}
        return {"name": self.name} | plain


__all__ = ["Algorithm", "Node", "StateT"]
