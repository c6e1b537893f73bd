"""The row guard, the only access of an algorithm to rows: it charges the ledger, then answers.

Every query passes through here: its event is recorded in the ledger before noise is drawn, so a
crash can never lose a charge.  The *vault* holds rows, solver and secrets of queries.  A *stamp* is
the digest of the public point at which some queries are asked; stored with the answer, it shows
whether a replayed answer belongs to the query.  A *share* is a site's part of a sum over sites, and
*sealed* when it is masked so that only the sum can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..data.move import Move
from ..data.rows import Rows
from ..errors import LedgerError, LedgerMismatch, Refused
from ..network.net import Net
from ..privacy.events import Event, check_parameter_sizes
from ..privacy.noise import Noise
from ..problem.facts import Facts
from ..queries import Query, Sum, Vault, check_unit
from ..solvers.apart import Apart
from ..solvers.local import Solver
from ..util.typing import Any, Array
from .centre import Centring


class Book(Protocol):
    """The part of a ledger that a row guard needs: one in memory, or one run of a durable one."""

    @property
    def rows(self) -> tuple[Event, ...]:
        """Events of this run so far."""

    def record_event(self, event: Event) -> None:
        """Record an event, or refuse it."""

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge, then draw; or return what an interrupted run has stored for the same event."""

    def to_list(self) -> list[dict[str, Any]]:
        """Return rows as plain data."""

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Go on after the rows of a checkpoint."""


class Asked(Protocol):
    """The part of a row guard that an oracle needs (:mod:`sottovoce.runs.oracles`)."""

    facts: Facts

    def charge_and_answer(self, query: Query) -> Array:
        """Charge, then release each node's own answer."""

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        """Charge, then release the sum of all sites' masked shares, which the net opens."""


class Centred(Asked, Protocol):
    """The part of a row guard that centring needs."""

    centring: Centring | None

    def move_rows_by_mean(self, mean: Array) -> Move:
        """Move rows by a released mean from now on."""


def make_solver(rows: Rows, facts: Facts) -> Solver:
    """Make the solver of the local problems."""
    return Solver(rows, facts.loss, facts.C)


@dataclass
class RowGuard:
    """Guards the rows of one node, or of all nodes of a simulation.

    Parameters
    ----------
    rows : Rows
    facts : Facts
        Public facts of the same nodes.
    noise : Noise
    ledger : Book
        Charged before noise is drawn.
    solver : callable
        Makes the solver of the local objectives, on whose certificate the guarantees rely.
    centring : Centring, optional
        How rows are centred; the mean of a restored state then moves them at once.
    """

    rows: Rows
    facts: Facts
    noise: Noise
    ledger: Book
    solver: Callable[[Rows, Facts], Solver] = make_solver
    centring: Centring | None = None

    def __post_init__(self) -> None:
        self._vault = Vault(self.solver(self.rows, self.facts), self.noise)
        self._releases = 0
        self.move: Move | None = None

    def move_rows_by_mean(self, mean: Array) -> Move:
        """Move rows by a released mean, (p,) or (R, p) of R replicates, from now on."""
        assert self.centring is not None
        if self.move is not None:
            raise LedgerError(
                "centre: rows were centred already; only the first released mean may be used"
            )
        self.move = self.centring.map_for_mean(mean)
        # Each replicate of a simulation released a mean of its own, and so has rows of its own.
        solvers = [
            self.solver(replace(self.rows, move=one), self.facts)
            for one in self.move.split_by_replicate()
        ]
        solver = solvers[0]
        if len(solvers) > 1:
            solver = Apart(solvers)
        self._vault = Vault(solver, self.noise)
        return self.move

    def charge_and_answer(self, query: Query) -> Array:
        """Record the query's event in the ledger, then answer it.

        Parameters
        ----------
        query : Query
            With its public vectors and its sensitivity over sigma.

        Returns
        -------
        array (..., d)
            The released answer, of the shape of ``query.placeholder_answer(facts)``.

        Raises
        ------
        BudgetExceeded
            If the ledger refuses the event; no noise has been drawn.
        InvalidInput, LedgerError
            If public vectors are so long that the answer might fail, or if the query needs earlier
            rounds that were not gone through; nothing has been charged.
        LedgerMismatch
            If the stored answer was computed at a different iterate than that of a query that
            stamps it.

        Guarantee
        ---------
        What is released is the query's own release, priced by
        ``query.event(facts)``, which is charged before noise is drawn.  An answer that the ledger
        has stored is returned as it is, and is neither charged nor drawn again.
        """

        def draw() -> bytes:
            answer = query.answer(self._vault, self.facts, self._releases)
            return np.ascontiguousarray(answer, dtype="<f8").tobytes()

        check_unit(query.proved_of_people(), self.facts)
        query.check_before_charge(self.facts)
        query.prepare_before_charge(self._vault)
        answer = np.frombuffer(self._charge_and_draw(query, draw), dtype="<f8")
        return answer.reshape(query.placeholder_answer(self.facts).shape).astype(float)

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        """Record an attempt in the ledger, then answer with the sum that the net opens.

        The ledger stores this site's sealed share: after a crash the same bytes leave again, or
        none.

        Parameters
        ----------
        query : Sum
        net : Net
            Which sites take part, and what opens the sum of their shares.

        Returns
        -------
        array
            The opened sum, in the units of the query.

        Raises
        ------
        BudgetExceeded, InvalidInput, LedgerError, LedgerMismatch
            As of :meth:`charge_and_answer`.
        Refused
            If the run does not allow the net's sites, nothing charged; or if no honest sites can
            have made the sum.
        AttemptLost
            If another site's share does not come.  The attempt stays charged.

        Guarantee
        ---------
        Only this site's sealed share leaves, priced by ``query.event(facts)``
        under the plan's quorum and number of colluders; every attempt counts, whether its sum was
        opened or not (docs/privacy/sums.md).
        """

        def draw() -> bytes:
            share = attempt.noisy_share(self._vault, self._releases)
            return np.ascontiguousarray(net.mask_share(share), dtype="<i8").tobytes()

        check_unit(query.proved_of_people(), self.facts)
        query.check(self.facts)
        among = net.among(self.facts)
        among.check(self.facts)
        attempt = query.attempt(self.facts, among)
        sealed = np.frombuffer(self._charge_and_draw(query, draw), dtype="<i8")
        sealed = sealed.reshape(query.placeholder_answer(self.facts).shape)
        total = net.total(sealed.astype(np.int64))
        if not attempt.is_plausible(total):
            raise Refused(
                "sum: is larger than rows and noise can make it, so a site sent something else "
                "than its share; end the run"
            )
        return attempt.mean_from_total(total)

    def _charge_and_draw(self, query: Query | Sum, draw: Callable[[], bytes]) -> bytes:
        """Charge the query's event and return its answer as bytes, drawn now or stored before."""
        event = query.event(self.facts)
        # Some answers only make sense at the public point that they were asked at: these queries
        # append its digest, the stamp; for others it is empty.
        stamp = query.public_digest()
        own: bytes | None = None

        def stamped() -> bytes:
            nonlocal own
            # Overflow depends on rows, so it must cause no error or warning.
            with np.errstate(all="ignore"):
                own = draw() + stamp
            return own

        check_parameter_sizes(event)
        self._releases += 1
        stored = self.ledger.charge_once(event, stamped)
        size = 8 * query.placeholder_answer(self.facts).size
        if stored[size:] != stamp:
            rule = (
                "was computed at a different iterate: a neighbour or the hub replayed a "
                "different message"
            )
            remedy = "end the run, or run this under another name"
            raise LedgerMismatch(f"resume: release {self._releases} of this run {rule}; {remedy}")
        # The answer is not the one drawn here: it was stored before, or by another process that
        # answered this event first.  The query updates its secrets as if it had been drawn now.
        if stored != own:
            query.replay(self._vault, self.facts, self._releases)
        return stored[:size]

    def checkpoint_state(self) -> dict[str, Array]:
        """Return the state for a checkpoint: counters and public reference points, and no rows.

        A simulation's also holds the secrets of queries and solver; at a site these are lost with
        the process.
        """
        state = {"releases": np.array(self._releases)} | self._vault.solver.state()
        if self.move is not None:
            state["mean"] = self.move.mean
        if self.noise.simulated:
            state |= {f"memory.{name}": value for name, value in self._vault.state_arrays().items()}
            state |= self._vault.solver.secret_state()
        return state

    def restore(self, state: dict[str, Array]) -> None:
        self._releases = int(state["releases"])
        if ("mean" in state) != (self.centring is not None):
            raise ValueError("rows that are moved otherwise")
        if "mean" in state:
            self.move_rows_by_mean(np.asarray(state["mean"], dtype=float))
        self._vault.solver.restore(state)
        memory = {
            name.removeprefix("memory."): value
            for name, value in state.items()
            if name.startswith("memory.")
        }
        self._vault.restore_state(memory)
