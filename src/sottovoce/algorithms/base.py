"""The interface of algorithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from ..network.net import Net
from ..problem.facts import Among, Facts
from ..problem.schedules import Schedule
from ..problem.trust import NOBODY, Trust
from ..queries import Query
from ..util.typing import Any, Array
from .knobs import WRITTEN, MethodOptions, knobs_of, values_of


class Node(Protocol):
    """The view that an algorithm has of its node: public facts, the network, and answers."""

    @property
    def facts(self) -> Facts:
        """Public facts."""

    @property
    def net(self) -> Net:
        """Degree and neighbour sums."""

    def ask(self, query: Query) -> Array:
        """Charge a query and return its released answer; in sums that of all sites together."""

    def zero_vector(self) -> Array:
        """Return a vector of zeros of shape (..., d)."""

    # How nodes come to agree.  Where answers are sums over all sites they agree already, and these
    # change nothing.

    def among(self) -> Among:
        """Return the sites of the next answer, once nodes agree; called before the query."""

    def mean(self, answer: Array, among: Among) -> Array:
        """Return the mean over the rows of these sites; an exchange that all nodes hear.

        Parameters
        ----------
        answer : array of shape (..., width)
            This node's answer.
        among : Among
            The sites.
        """

    def mix(self, x: Array, share: float = 1.0) -> Array:
        """Return `x`, moved by `share` of the way to the neighbourhood's mean; an exchange."""

    def exact_diffusion(self, step: Array, current: Array, previous: Array) -> Array:
        """Return ``(I + W) / 2`` of ``step + current - previous``, by an exchange: exact diffusion.

        Parameters
        ----------
        step : array of shape (..., d)
            Where the node's own step of this round leads.
        current : array of shape (..., d)
            The node's iterate before it.
        previous : array of shape (..., d)
            Where its own step of the last round led.

        Returns
        -------
        array of shape (..., d)
            The node's next iterate.
        """

    def lost_dual(self, weight: Array | float) -> Array | float:
        """Return what the duals of edges lost in the last exchange add up to.

        See :meth:`sottovoce.network.net.Net.pop_lost_edge_duals`.
        """


StateT = TypeVar("StateT", bound=NamedTuple)
_NO_OPTIONS = MethodOptions()


@dataclass(frozen=True)
class Algorithm(ABC, Generic[StateT]):
    """The public half of a method: hyperparameters in fields, all state in tuples of public arrays.

    In a *round* each node exchanges one vector with its neighbours.

    Parameters
    ----------
    penalty : Schedule
        The penalty or step parameter eta_i(k) of each round and node, > 0.
    noise : Schedule or None
        The paper's noise parameter ``alpha_i(k)``, which a calibration scales to meet a target;
        None for no noise.
    options : MethodOptions
        What users may set on this method alone.
    """

    penalty: Schedule
    noise: Schedule | None
    options: MethodOptions = _NO_OPTIONS
    """Options of this method alone, which users may set; on the class, at their defaults."""

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    releases: ClassVar[str]
    """How often a node releases."""
    noise_law: ClassVar[str]
    """Law of the noise, and where it is added."""
    good_for: ClassVar[str]
    """When to choose the method."""
    equals: ClassVar[str] = ""
    """Name of the method that this one equals at the defaults of both."""
    relations: ClassVar[tuple[str, ...]] = ("replace-one", "zero-out")
    """Neighbouring data for which releases have a price."""
    private: ClassVar[bool] = True
    forms: ClassVar[tuple[str, ...]] = ("corrected",)
    trust: ClassVar[Trust] = NOBODY
    """Whom people have to trust with their rows, and what everybody else sees."""
    any_trust: ClassVar[bool] = False  # it is the same under every trust, and has one name
    curvature: ClassVar[str] = "edge"
    """Curvature that a penalty eta adds: ``2 eta`` per "edge", or ``eta`` per "node"."""
    least_penalty: ClassVar[float] = 0.001
    """The smallest default penalty, in units of C; noise may ask for a larger one."""
    noise_weight: ClassVar[float] = 0.0
    """Ratio of the default curvature to the noise's deviation, in sum scale; 0 if it is fixed."""
    gradient_steps: ClassVar[bool] = False
    """Whether it takes gradient steps, with one over the penalty as step size."""
    single: ClassVar[bool] = False  # only the first round releases
    needs_delta: ClassVar[bool] = False  # its noise has no price in pure epsilon
    idle: ClassVar[tuple[str, ...]] = ()
    """Fields that do nothing under its trust: records leave them out."""
    recalls: ClassVar[bool] = False
    """Whether releases depend on statistics of earlier rounds, which a resumed run recomputes."""
    objective_noise: ClassVar[bool] = False
    """Whether noise is inside the objective; curvature then lowers the price of the determinant."""
    induced: ClassVar[str] = ""
    """Why a run may go on with the graph without a lost site; empty if the theorem forbids it."""
    complete: ClassVar[bool] = (
        False  # only all rounds together mean something: all are paid for, and none is lost
    )

    @classmethod
    def own_penalty(
        cls, facts: Facts, rounds: int, spread: float, options: MethodOptions
    ) -> float | None:
        """Return the method's own default penalty, from public facts.

        Parameters
        ----------
        facts : Facts
            Public facts of all nodes.
        rounds : int
            Planned rounds.
        spread : float
            Standard deviation of a release's noise in each coordinate, in sum scale; 0 without a
            budget.
        options : MethodOptions
            The method's options.

        Returns
        -------
        float or None
            None for the common rule.
        """
        return None

    def identity_of_run(self) -> dict[str, Any]:
        """Return public content that the configuration lacks, for the key of a stored run."""
        return {}

    def check(self, node: Node) -> None:
        """Check the preconditions of the method's theorems, before anything is spent.

        Raises
        ------
        InvalidInput
            If a parameter breaks one.
        """

    def check_claim(self, facts: Facts, rounds: int) -> None:
        """Check that a printed form's noise is within the theorem that its claim is from.

        It is called once the noise is calibrated, before anything is spent; :meth:`check` is called
        whatever the noise.

        Parameters
        ----------
        facts : Facts
            Public facts of all nodes.
        rounds : int
            Planned rounds.

        Raises
        ------
        InvalidInput
            If it is outside the theorem.
        """

    @abstractmethod
    def init(self, node: Node) -> StateT:
        """Return the state before the first round: a function of public facts, never of rows."""

    @abstractmethod
    def round(self, k: int, state: StateT, node: Node) -> StateT:
        """Run round k: at most one query, exactly one exchange.

        Parameters
        ----------
        k : int
            The round, from 1.
        state : tuple of arrays
            Public state after round ``k - 1``.
        node : Node
            Answers queries and exchanges vectors; one node, or all nodes of a simulation.

        Returns
        -------
        tuple of arrays
            Public state after round k.
        """

    def priced_round(self, k: int, state: StateT, node: Node) -> StateT:
        """Run round k of a plan, where answers are blanks: the same releases.

        Parameters
        ----------
        k, state, node
            As for :meth:`round`.

        Returns
        -------
        tuple of arrays
        """
        return self.round(k, state, node)

    def outcome(self, state: StateT, facts: Facts) -> Any:
        """Return the result of a method that gives no model, from public state and facts."""
        return None

    def model(self, state: StateT) -> Array:
        """Return the classifier of every node, shape (..., d)."""
        return state.f  # type: ignore[attr-defined]

    def _noise_parameter(self, k: int) -> Array | None:
        """Return the noise parameter of round k, (N, 1) or (), or None without noise."""
        if self.noise is None:
            return None
        return self.noise(k)

    def with_noise(self, noise: Schedule | None) -> Self:
        """Return the same method with another noise schedule."""
        return replace(self, noise=noise)

    def method_of_node(self, node: int) -> Self:
        """Return the method for node number `node` alone."""
        of_node = {
            k: v.schedule_of_node(node) for k, v in self.__dict__.items() if isinstance(v, Schedule)
        }
        return replace(self, **of_node)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return name and hyperparameters as plain data.

        Knobs at their defaults are left out, but for those of
        :data:`sottovoce.algorithms.knobs.WRITTEN`.
        """
        hyperparameters = {
            k: v for k, v in self.__dict__.items() if k != "options" and k not in self.idle
        }
        defaults = {
            name: one.default for name, one in knobs_of(self.options).items() if name not in WRITTEN
        }
        chosen = {
            k: v
            for k, v in values_of(self.options).items()
            if k not in defaults or v != defaults[k]
        }
        plain: dict[str, Any] = {"name": self.name}
        for key, value in (hyperparameters | chosen).items():
            if isinstance(value, Schedule):
                value = value.to_dict()
            plain[key] = value
        return plain


__all__ = ["Algorithm", "Node", "StateT"]
