"""A site's network: what the engine calls to send and receive, as exchanges with the other sites.

Over a graph a site sends *releases*, public vectors, to its neighbours.  In a run of sums it sends
its *share* of each sum to all sites, under masks that vanish in the total.  Which of the two is the
plan's choice; greetings, rosters, last models and farewells are the same.
:class:`sottovoce.deploy.session.SiteSession` makes it, and :mod:`sottovoce.deploy.exchanges` signs,
stores and carries each message.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..data.move import Move
from ..errors import AttemptLost, Refused
from ..ledger.journal import Journal
from ..network.net import Edges, Net
from ..problem.facts import Among, Facts
from ..util.typing import Array, IntArray
from .exchanges import Exchanges
from .keys import SigningKey
from .messages import OTHER_MEAN, Kind, Message, Reason
from .plan import Plan
from .sums.messages import Share
from .sums.own_key import OwnKey
from .sums.witnesses import Witnesses
from .transport import Transport


class SiteNet(Net):
    """The network of one site in a run.

    Parameters
    ----------
    plan : Plan
    name : str
        The site.
    journal : Journal
        Messages and inboxes of the run, in the site's ledger.
    transport : Transport
        Connection to the hub.
    key : SigningKey
        The site's signing key.
    secret : Path
        In a run of sums: the file of this site's private masking key, which is made with the
        greeting and erased at the end.

    Attributes
    ----------
    exchanges : Exchanges
        The exchanges so far, with the protocol's state.
    degree : array (1,)
        Number of sites that this one hears.
    """

    exchanges_class = Exchanges
    """What carries the messages; another class for a replay."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        journal: Journal,
        transport: Transport,
        key: SigningKey,
        secret: Path,
    ) -> None:
        self._plan = plan
        self._name = name
        self.exchanges = self.exchanges_class(plan, name, journal, transport, key)
        self._edges = Edges()
        self._own_key = OwnKey(plan, name, secret)
        self._witnesses = Witnesses(
            self.exchanges, again=journal.highest_round >= 0 or secret.exists()
        )
        # True between an opened sum and the next attempt: the engine may refuse the sum then
        self._handed = False
        if plan.uses_secure_sums:
            heard = len(plan.sites) - 1
            transport.answers = self._witnesses.attest_progress
        else:
            heard = len(plan.exchange_table.neighbour_names(name))
            transport.answers = None
        self.degree = np.array([float(heard)])

    # What a session needs

    def exchange_greetings(self) -> None:
        """Exchange greetings, which agree to the plan; with sums they hold public masking keys."""
        if self._plan.uses_secure_sums:
            greeting = self._own_key.make_greeting(self.exchanges.journal.sent(0))
            self.exchanges.exchange(greeting)
        else:
            self.exchanges.exchange_vector("hello", np.zeros(0))
            self.exchanges.agree_on_roster(self._check_ready_to_sign)

    def agree_on_row_move(self, move: Move) -> None:
        """Check that all sites centre their rows by the same map; raises :class:`Refused` if not.

        Without sums the sites send each other the mean.  With sums the digest of the map becomes
        part of the history that every later message names.
        """
        if self._plan.uses_secure_sums:
            self.exchanges.state.bind_history_to(move.digest)
            return
        for name, mean in self._exchange_release(move.mean).items():
            if not np.array_equal(mean, move.mean):
                raise Refused(f"round={self.exchanges.round}: {OTHER_MEAN.format(name)}")

    def send_last_model(self, kind: Kind, model: Array) -> None:
        """Send the last model, (d,), of `kind` "stop" if the run is complete and else "refuse"."""
        self.exchanges.exchange_vector(kind, model)

    def leave_run(self, reason: Reason | None) -> None:
        """Send the signed farewell, after the masking key of a run of sums is erased."""
        if self._plan.uses_secure_sums:
            self._own_key.erase_file()
        self.exchanges.send_farewell(reason)

    def refused(self) -> None:
        """Erase the masking key if an opened sum was refused: that ends the run for all sites."""
        if self._handed:
            self._own_key.erase_file()

    # Over a graph

    def neighbour_sum(self, x: Array) -> Array:
        """Release x, (d,), to the neighbours, and return the sum of their vectors.

        In place of a lost neighbour's vector stands x itself.
        """
        told = self._exchange_release(x)
        neighbours = self._plan.exchange_table.neighbour_names(self._name)
        # the vector of a lost neighbour is None
        return self._edges.sum_over_neighbours(x, {name: told.get(name) for name in neighbours})

    def pop_lost_edge_duals(self, weight: Array | float) -> Array | float:
        return self._edges.pop_lost_edge_duals(weight)

    def gather_from_all_nodes(self, x: Array) -> Array:
        """Release x to all sites, and return the vectors of all, (N, d), in the plan's order."""
        told = self._exchange_release(x) | {self._name: x}
        return np.stack([told[name] for name in self._plan.names])

    # Sums

    def among(self, facts: Facts) -> Among:
        """Return the number of sites and rows of the next attempt at a sum.

        If sites were lost since the last one, the remaining sites sign a new roster first.  Raises
        :class:`NetClosed` if too few sites are left, or the others go on without this one.
        """
        self._handed = False
        self.exchanges.agree_on_roster(self._check_ready_to_sign)
        self._check_ready_to_sign()
        state = self.exchanges.state
        return self._plan.exchange_table.among(state.attempt, state.members)

    def mask_share(self, share: IntArray) -> IntArray:
        """Return the share, (k,) int64, plus masks that vanish in the sum over the roster."""
        _check_kind_of_run(self._plan, summed=True)
        return self._own_key.mask_share(share, self.exchanges.state)

    def total(self, sealed: IntArray) -> IntArray:
        """Send the masked share, (k,) int64, and return the sum of all shares modulo ``2^64``.

        Raises :class:`AttemptLost` if a share is missing, so that there is no sum.
        """
        _check_kind_of_run(self._plan, summed=True)
        state = self.exchanges.state
        # read before the exchange, which advances the state to the next attempt
        attempt = state.attempt
        words = np.ascontiguousarray(sealed, dtype=np.int64).view(np.uint64)
        self.exchanges.exchange(Share(state.roster, attempt, state.parent, words))
        if state.total is None:
            lost = ", ".join(sorted(set(state.gone) - {self._name}))
            raise AttemptLost(
                f"attempt={attempt}: no sum, because a share is missing; lost so far: {lost}"
            )
        self._handed = True
        return state.total.view(np.int64)

    # Inside

    def _exchange_release(self, x: Array) -> dict[str, Array]:
        """Send a vector to the sites that hear this exchange, and return theirs, by site.

        Vectors of sites that are no longer in the roster afterwards are left out.
        """
        _check_kind_of_run(self._plan, summed=False)
        found = self.exchanges.exchange_vector("release", x)
        self.exchanges.agree_on_roster(self._check_ready_to_sign)
        members = self.exchanges.state.members
        return {
            name: one.content.payload
            for name, one in found.items()
            if isinstance(one.content, Message) and name in members
        }

    def _check_ready_to_sign(self) -> None:
        """Check, before a new roster or share is signed in a run of sums, that this site may do so.

        Its journal must be the newest, and its masking key the one that it sent in its greeting.
        An exchange that the journal already has is only repeated, and needs no check.
        """
        one = self.exchanges
        if self._plan.uses_secure_sums and one.journal.sent(one.round + 1) is None:
            self._witnesses.check_journal_is_newest()
            self._own_key.check_against_greeting(one.state)


def _check_kind_of_run(plan: Plan, *, summed: bool) -> None:
    """Raise TypeError if a share (`summed`) or a release is not what this kind of run sends.

    A guard against errors of this program: in a run of sums a release would leave the site without
    masks.
    """
    if plan.uses_secure_sums and not summed:
        raise TypeError("a run of sums sends nothing to neighbours")
    if summed and not plan.uses_secure_sums:
        raise TypeError("a run without sums has no shares")
