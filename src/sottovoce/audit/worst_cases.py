"""Worst-case pairs of tables: where a proof is tight or a claim fails.

:func:`make_case` returns the pair and the run on which :func:`sottovoce.audit.attack` plays a
method.  The page is docs/explanation/audit.md, "The pairs".

Most pairs share one idea: one feature, the Huber loss, and a penalty so strong that all rows stay
on the loss's linear piece.  A row and its opposite then change the sum of gradients by exactly 2,
the most possible, in every round.  Rows are written as their signed feature ``y x``, label times
feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..algorithms import REGISTRY, Algorithm
from ..algorithms.pp_admm import PPADMM
from ..data.rows import Rows
from ..errors import InvalidInput
from ..problem.facts import Facts
from ..runs.config import RunConfig
from ..runs.registering import find_method
from ..solvers.local import Solution, Solver
from ..util.typing import Any, Array, ArrayLike
from .game import Case

STIFF = 1e6
"""Curvature of a node's problem, on the scale of sums: noise moves its minimiser by millionths."""
LINEAR = (
    "one feature, Huber's linear piece, a row and its opposite: gradients change by 2 in every "
    "round"
)


def site_from_signed_rows(*signed: float) -> tuple[Array, Array]:
    """Return X, (n, 1), and y, (n,), of a site of one feature, from its rows as ``y x``."""
    a = np.array(signed)
    return np.abs(a)[:, None], np.where(a >= 0, 1.0, -1.0)


def tables(own: list[float], other: list[float], row: float, sites: int = 2) -> tuple[Rows, Rows]:
    """Build two tables of one feature that differ in one row, which one table holds negated.

    Parameters
    ----------
    own : list of float
        Other rows of site 0, as ``y x``.
    other : list of float
        Rows of every other site, as ``y x``.
    row : float
        Last row of site 0 on table 0, as ``y x``; ``-row`` on table 1.
    sites : int
        Number of sites.

    Returns
    -------
    pair of Rows
        Table 0 and table 1.
    """
    others = [site_from_signed_rows(*other)] * (sites - 1)
    first = Rows.build_from_parts([site_from_signed_rows(*own, row), *others])
    second = Rows.build_from_parts([site_from_signed_rows(*own, -row), *others])
    return first, second


def _stiff_options(method: str, n: int, rho: float = 0.02) -> dict[str, Any]:
    """Return options of a run in which a site of n rows has the curvature :data:`STIFF`.

    The site has one neighbour, and C, the weight of the losses, is 1.
    """
    # A penalty eta adds a curvature of 2 eta for an edge, or of eta for a node.
    per_penalty = 2.0 if REGISTRY[method].curvature == "edge" else 1.0
    return {
        "eta": STIFF / n / per_penalty,
        "rho": rho,
        "loss": "huber:0.5",
        "graph": "complete",
    }


def printed_form_options(method: str, form: str) -> dict[str, Any]:
    """Return options that keep a printed form within its theorem: 004's presume a regulariser.

    Few rows make it large, but next to `STIFF` it is nothing.  On real rows it moves the model, but
    not what an audit reads: the gradient's residual, in which noise and the row are as they were.
    """
    if form == "printed" and issubclass(REGISTRY[method], PPADMM):
        return {"rho": 2000.0}
    return {}


@dataclass(frozen=True)
class ClaimedRun:
    """A run of a method with the claim under attack, all defaults filled in.

    Attributes
    ----------
    method, form : str
        One of :func:`sottovoce.audit.targets`.
    epsilon : float
        Total budget of the run.
    delta : float or None
        Delta of the budget; None for a pure one.
    rounds : int
        Rounds of the run.
    """

    method: str
    form: str
    epsilon: float
    delta: float | None
    rounds: int


def linear(claim: ClaimedRun, **knobs: Any) -> Case:
    """Make the common worst case: one feature, on the linear piece of the Huber loss.

    There are two sites.  A method of sums has three, one of which colludes with the adversary:
    between two nothing is hidden, as one site can subtract its own share.

    Parameters
    ----------
    claim : ClaimedRun
        The claim under attack.
    **knobs
        Options of the run that replace those of this case.

    Returns
    -------
    Case
    """
    own, other = [1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]
    options = _stiff_options(claim.method, 4) | printed_form_options(claim.method, claim.form)
    config = RunConfig.from_dict(vars(claim) | options | knobs)
    sites = 3 if REGISTRY[claim.method].trust.opens_sums else 2
    return Case(config, tables(own, other, 1.0, sites), 0, LINEAR)


def sparse_vector_case(claim: ClaimedRun) -> Case:
    """Make the worst case of a sparse-vector gate: a threshold that every gradient passes.

    As corrected there is a release in every round; as printed in all but one (004 has c < T).
    """
    releases = claim.rounds if claim.form == "corrected" else max(1, claim.rounds - 1)
    return linear(claim, positives=releases, threshold=-1e6)


def minibatch_pass_case(claim: ClaimedRun) -> Case:
    """Make the worst case of a pass over two minibatches: only the last step's noise hides the row.

    Step size and regulariser are such that the last step does not depend on where it started.
    """
    # Step size times mu is 1, so that ``w - step (g + mu w)`` depends on w through g only.
    case = linear(claim, batches=2, eta=100.0, rho=200.0)
    why = (
        f"{LINEAR}; the row is in the last part, and the regulariser wipes out the noise before it"
    )
    return replace(case, why=why)


def huber_edge_case(claim: ClaimedRun) -> Case:
    """Make the worst case of 003's Algorithm 3: curvature differs where derivatives differ by 2.

    The minimiser lies where the Huber loss bends: one row has curvature there, its opposite has
    none, and their derivatives still differ by 2.
    """
    # The strong convexity of 003's Algorithm 3 at this epsilon: c1, the loss's largest curvature,
    # is 1 at h = 1/2.
    K = 2.0 / claim.epsilon
    # The sum of the other rows' derivatives at which, without noise, the minimiser lies at the edge
    # of the linear piece, w = 1/2.
    rest = 1.0 - 0.5 * K
    if abs(rest) <= 1.0:
        own = [rest]
    else:
        # One row's derivative is at most 1 in size: several rows of 1 or -1 add up to nearly it.
        own = [np.sign(rest)] * int(abs(rest))
    config = RunConfig(
        **vars(claim),
        eta=1e-9,
        rho=1e-9,
        loss="huber:0.5",
        graph="complete",
    )
    why = (
        "Huber's edge: derivatives still differ by 2 where one row has curvature and its opposite "
        "has none"
    )
    return Case(config, tables(own, [1.0, -1.0], 1.0), 0, why)


class Contrary(Solver):
    """A solver that errs by its whole tolerance, in the direction that tells the tables apart.

    It errs at site 0 only, and its certificate is true.
    """

    side: Array
    """Direction of the error of each site, (N, 1): 1, -1, or 0 for none."""

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise, then move the answer of site 0 as far as the certificate allows.

        Parameters
        ----------
        linear, q, start, tol
            As for :meth:`sottovoce.solvers.local.Solver.minimise`.

        Returns
        -------
        Solution
        """
        # Solve almost exactly, then spend the whole tolerance: ||grad|| <= tol * C moves the
        # minimiser by tol * C / q, the most where the data term is linear.
        exact = super().minimise(linear, q, start, 1e-10)
        # Just inside the tolerance, for the error of the exact solve.
        gradient = self.side * np.asarray(tol) * self._rows.C * (1.0 - 1e-6)
        away = gradient / np.broadcast_to(q, (*exact.w.shape[:-1], 1))
        return replace(exact, w=exact.w + away)


def make_contrary_solver(rows: Rows, facts: Facts, table: int) -> Solver:
    """Make a solver that errs upwards on table 0, whose row pulls its minimiser up, else downwards.

    Parameters
    ----------
    rows : Rows
        Rows of the sites.
    facts : Facts
        Public facts of the same sites.
    table : int
        0 or 1.

    Returns
    -------
    Contrary
    """
    solver = Contrary(rows, facts.loss, facts.C)
    solver.side = np.zeros((len(rows.n), 1))
    solver.side[0] = 1.0 - 2.0 * table
    return solver


def coarse_solver_case(claim: ClaimedRun) -> Case:
    """Make the worst case of 004's Theorem 3.3: an uneven split and a coarse solver.

    004 splits rho of zCDP into a part for the noise in the objective and a part rho_2 for the noise
    on the answer.  Here rho_2 is 4/5 of rho, and the solver errs by 16 C / n.  With tolerance ``tau
    C / n`` and rho_2 = s rho the true sensitivity over sigma, squared and halved, is about ``2 (1 +
    tau)^2 / (2.08 / (1 - s) + tau^2 / (2 s))`` times the rho that is charged: shift and variance
    are exact.
    """
    case = linear(claim)
    n = float(case.tables[0].n[0, 0])

    def uneven(algorithm: Algorithm[Any]) -> Algorithm[Any]:
        assert isinstance(algorithm, PPADMM)
        return replace(algorithm, options=replace(algorithm.options, split=0.8, tolerance=16.0 / n))

    why = f"{LINEAR}; rho_2 is 4/5 of rho, and a solver errs by its tolerance of 16 C / n"
    return replace(case, algorithm=uneven, solver=make_contrary_solver, why=why)


def last_step_case(claim: ClaimedRun) -> Case:
    """Make the worst case of 001's last step, which starts from an exact minimiser never sent.

    A weak regulariser lets a row move that minimiser far.
    """
    return linear(claim, rho=0.5)


@dataclass(frozen=True)
class WorstCase:
    """What is known of the worst case of a method and form: the pair, and where it shows best.

    Attributes
    ----------
    make : callable
        Makes the pair and its run from the claim.
    epsilon, delta : float
        Of the claim, where none is asked for and the method needs a delta.
    rounds : int
        Rounds of a run where none are asked for.
    replicates : int or None
        Runs of each table that show something; None for the usual number.
    """

    make: Callable[[ClaimedRun], Case] = linear
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 2
    replicates: int | None = None


COMMON = WorstCase()
"""For methods and forms of which no worse pair than the common one is known."""
RECIPES: dict[tuple[str, str], WorstCase] = {
    ("ipp_admm", "corrected"): WorstCase(sparse_vector_case, replicates=60_000),
    ("ipp_admm", "printed"): WorstCase(sparse_vector_case),
    ("central_sgd", "corrected"): WorstCase(minibatch_pass_case, rounds=1),
    ("generalised", "printed"): WorstCase(huber_edge_case),
    # The claim breaks first at these numbers, and needs many runs to be seen to.
    ("pp_admm", "printed"): WorstCase(coarse_solver_case, 2.65, 0.01, 1, 100_000),
    # At a delta so small fewer runs show nothing.
    ("pp_admm", "corrected"): WorstCase(replicates=60_000),
    ("pvp", "printed"): WorstCase(last_step_case),
}
"""Worst cases by method and form, also of methods that derive from these."""

OF_SUMS = 0.1
"""Default delta of sums over sites, so large that too little noise shows in few runs."""


def lineage(method: type[Algorithm[Any]]) -> list[str]:
    """Return the name of a method and of those that it derives from, the nearest first."""
    return [str(cls.__dict__["name"]) for cls in method.__mro__ if "name" in cls.__dict__]


def find_recipe(method: type[Algorithm[Any]], form: str) -> WorstCase:
    """Return the worst case of a method's form, or of the nearest method that it derives from."""
    known = (RECIPES.get((name, form)) for name in lineage(method))
    return next((one for one in known if one is not None), COMMON)


def is_ours(method: type[Algorithm[Any]]) -> bool:
    """Return whether a method is of this package, whose worst cases are known."""
    return method.__module__.startswith(f"{__package__.partition('.')[0]}.")


def origin_of_pair(method: type[Algorithm[Any]]) -> str:
    """Say whose pair is played for a method from outside; empty for one of this package."""
    if is_ours(method):
        return ""
    for cls in method.__mro__:
        if REGISTRY.get(cls.__dict__.get("name", "")) is cls and is_ours(cls):
            return (
                f"; the pair is that of {cls.name}, from which {method.name} derives: what it "
                "changes may have a worse one"
            )
    return f"; a generic pair, as none is known for {method.name}: that it stands says little"


def make_case(
    method: str,
    form: str = "corrected",
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int | None = None,
) -> Case:
    """Make the worst known pair of tables and run for a method.

    Parameters
    ----------
    method, form : str
        The claim under attack.
    epsilon : float, optional
        Total budget of the run; by default 1, or that of :data:`RECIPES`.
    delta : float, optional
        Delta of the budget; by default none wherever the method has a pure price.
    rounds : int, optional
        By default 2, and 1 for methods that release once or where one round gives the largest
        bound.

    Returns
    -------
    Case
        Of a method from outside it says whose pair is played.

    Raises
    ------
    InvalidInput
        For a method without noise, or an unknown one.
    """
    cls = find_method(method)
    if cls is None or not cls.private:
        rule = f"must be one of {[name for name, cls in REGISTRY.items() if cls.private]}"
        raise InvalidInput("method", method, rule, "see `sottovoce methods`")
    known = find_recipe(cls, form)
    if delta is None and cls.needs_delta:
        delta = known.delta
        if cls.trust.opens_sums:
            delta = OF_SUMS
    if epsilon is None:
        epsilon = known.epsilon
    if rounds is None:
        rounds = 1 if cls.single else known.rounds
    case = known.make(ClaimedRun(method, form, epsilon, delta, rounds))
    return replace(case, why=case.why + origin_of_pair(cls))
