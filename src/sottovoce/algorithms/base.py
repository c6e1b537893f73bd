"""The interface between a training method and the run that drives it.

:class:`Algorithm` is a method's public half: hyperparameters, and how one round turns public state
into the next.  It reads no rows.  All that it sees of them are the answers of a :class:`Node`,
which charges each query to the ledger before noise is drawn (:class:`sottovoce.runs.engine.Place`).
The same code runs at one site, for all sites of a simulation at once (arrays ``(R, N, d)`` of R
replicates, N nodes and d model entries), and in a plan, where answers are placeholders and only
prices count.  :func:`sottovoce.runs.engine.run_rounds` is the loop.
"""

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

    # How nodes come to agree.  Under trust in sums all nodes have the same answer, so these
    # methods return their input unchanged (:class:`sottovoce.runs.oracles.SumAnswers`).

    def among(self) -> Among:
        """Return the sites whose rows the next answer covers; called before the query is asked."""

    def mean(self, answer: Array, among: Among) -> Array:
        """Return the mean over the rows of these sites, by one exchange among all nodes.

        Parameters
        ----------
        answer : array of shape (..., width)
            This node's answer.
        among : Among
            The sites.
        """

    def mix(self, x: Array, share: float = 1.0) -> Array:
        """Return ``(1 - share) x + share W x``, by one exchange with the neighbours.

        `x` is one vector, of shape (..., d): no message is wider.  W averages a node with its
        neighbours (weights :attr:`Facts.mixing_weight`).
        """

    def exact_diffusion(self, step: Array, current: Array, previous: Array) -> Array:
        """Return ``(I + W) / 2`` times ``step + current - previous``, by one exchange.

        This is exact diffusion (Yuan, Ying, Zhao and Sayed 2019); W is as in :meth:`mix`.

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
        """Return the sum of the dual terms of edges that were lost in the last exchange.

        The caller subtracts it from its dual variable, as a lost edge no longer constrains the
        node.  `weight` is that of the difference ``f_i - f_j`` in this round's dual step
        (:meth:`sottovoce.network.net.Net.pop_lost_edge_duals`).
        """


StateT = TypeVar("StateT", bound=NamedTuple)
_NO_OPTIONS = MethodOptions()


@dataclass(frozen=True)
class Algorithm(ABC, Generic[StateT]):
    """The public half of a method: hyperparameters in fields, all state in tuples of public arrays.

    In a *round* each node exchanges one vector with its neighbours.  *Sum scale*, in which some
    parameters are stated, is that of the objective in which every row has weight one
    (:mod:`sottovoce.problem.facts`).

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
    """Distribution of the noise, and where it is added."""
    good_for: ClassVar[str]
    """When to choose the method."""
    equals: ClassVar[str] = ""
    """Name of the method that this one equals at the defaults of both."""
    relations: ClassVar[tuple[str, ...]] = ("replace-one", "zero-out")
    """Neighbouring relations under which releases have a proved privacy loss."""
    private: ClassVar[bool] = True
    """Whether it adds noise; otherwise its epsilon is infinite."""
    forms: ClassVar[tuple[str, ...]] = ("corrected",)
    """Forms it has: "corrected" (proved), and "printed" or "listed" (the paper to the letter)."""
    trust: ClassVar[Trust] = NOBODY
    """Whom people have to trust with their rows, and what everybody else sees."""
    any_trust: ClassVar[bool] = False  # it is the same under every trust, and has one name
    curvature: ClassVar[str] = "edge"
    """Curvature that a penalty eta adds: ``2 eta`` per "edge", or ``eta`` per "node"."""
    least_penalty: ClassVar[float] = 0.001
    """The smallest default penalty, in units of C.

    :func:`sottovoce.runs.prepare.default_penalty` takes a larger one where noise needs it.
    """
    noise_weight: ClassVar[float] = 0.0
    """Default curvature over the noise's standard deviation, both in sum scale (measured on Adult).

    0 if the default penalty does not depend on the noise.
    """
    gradient_steps: ClassVar[bool] = False
    """Whether it takes gradient steps, with one over the penalty as step size."""
    single: ClassVar[bool] = False
    """Whether only the first round releases."""
    needs_delta: ClassVar[bool] = False
    """Whether its noise is Gaussian, which gives no pure epsilon."""
    idle: ClassVar[tuple[str, ...]] = ()
    """Fields that have no effect under its trust, so that records leave them out."""
    recalls: ClassVar[bool] = False
    """Whether releases depend on statistics of earlier rounds, which a resumed run recomputes."""
    objective_noise: ClassVar[bool] = False
    """Whether noise is inside the objective (objective perturbation).

    Curvature then lowers the privacy loss of the log-determinant term (U1).
    """
    induced: ClassVar[str] = ""
    """Why a run may continue on the induced subgraph without a lost site; empty if it may not."""
    complete: ClassVar[bool] = False
    """Whether only all rounds together give a result.

    The budget must then pay for all of them, and a run that loses one ends.
    """

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
            Standard deviation of a release's noise in each coordinate, in sum scale; 0 without
            noise.
        options : MethodOptions
            The method's options.

        Returns
        -------
        float or None
            None for the common rule, :func:`sottovoce.runs.prepare.default_penalty`.
        """
        return None

    def identity_of_run(self) -> dict[str, Any]:
        """Return what identifies a run beyond its configuration, as plain data.

        It enters the run's key in ledgers and checkpoints; only recipes have such content.
        """
        return {}

    def check(self, node: Node) -> None:
        """Check the preconditions of the method's theorems, before anything is spent.

        Raises
        ------
        InvalidInput
            If a parameter breaks one.
        """

    def check_claim(self, facts: Facts, rounds: int) -> None:
        """Check that a printed form meets the conditions of the theorem that it claims.

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
        """Run round k of a plan: the same queries, answered by placeholders.

        Methods override it where the answers would have to be real.

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
        """Return the result of a recipe, from public state and facts; None for other methods."""
        return None

    def model(self, state: StateT) -> Array:
        """Return the model of every node, shape (..., d)."""
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
        """Return the method with every per-node schedule cut to node number `node`."""
        of_node = {
            k: v.schedule_of_node(node) for k, v in self.__dict__.items() if isinstance(v, Schedule)
        }
        return replace(self, **of_node)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return name and hyperparameters as plain data, for records of runs.

        Options at their defaults are left out, except those of
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
