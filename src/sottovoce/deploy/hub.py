"""What a hub does with any transport: check a message, store it once, and pass it on.

A hub sees only messages, which are public.  It cannot make a message, because it has no site's key, and it cannot
change the plan, because the plan's digest is in every message.
"""

from __future__ import annotations

import numpy as np

from ..errors import EndedEarly, InvalidInput, Refused, Unreachable
from ..typing import Any, Array
from .hublog import HubLog
from .messages import COMPLETE, Farewell, agree, read, read_farewell
from .plan import Plan


class Hub:
    """One run's hub.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    """

    def __init__(self, plan: Plan, log: HubLog) -> None:
        self.plan, self.log = plan, log
        self._left: dict[str, Farewell] = {}

    def exchange(self, site: str, round: int, message: bytes, seconds: float) -> dict[str, bytes] | None:
        """Store the message of `site`, whose identity the caller has established, and wait for its neighbours'
        messages.

        Returns
        -------
        dict or None
            Their messages of this round; None if they are not all there after `seconds`: ask again.

        Raises
        ------
        Refused, TransportClosed
        """
        read(self.plan, message, self._known(site), round)
        self.log.post(self.plan.run, round, site, message)
        return self.log.wait(self.plan.run, round, self.plan.neighbours(site), seconds)

    def highest(self, site: str) -> int:
        """The highest round of which a message of `site` is held; 0 for none."""
        return max(0, self.log.last(self.plan.run, self._known(site)))

    def missing(self, site: str, round: int) -> list[str]:
        """Neighbours of `site` that have sent nothing in `round` yet."""
        run = self.plan.run
        return [name for name in self.plan.neighbours(site) if self.log.last(run, name) < round]

    def leave(self, site: str, farewell: bytes) -> None:
        """Record that `site`, whose identity the caller has established, has signed that it will send no more.

        Raises
        ------
        Refused
            If its statement is not signed, or is for another point or another run.
        """
        due = self.log.last(self.plan.run, self._known(site)) + 1
        read_farewell(self.plan, farewell, site, due)
        self.log.leave(self.plan.run, site, due, farewell)

    def gone(self) -> dict[str, str]:
        """Sites that left, and why, from what they signed.

        Raises
        ------
        Refused
            If the log holds what a site did not sign.
        """
        for site, data in self.log.gone(self.plan.run).items():
            if site not in self._left:
                due = self.log.last(self.plan.run, self._known(site)) + 1
                self._left[site] = read_farewell(self.plan, data, site, due)
        return {site: farewell.reason for site, farewell in sorted(self._left.items())}

    @property
    def over(self) -> bool:
        """Whether every site has left."""
        return len(self.gone()) == len(self.plan.sites)

    def check(self) -> None:
        """Refuse a log that cannot belong to this run.

        Raises
        ------
        InvalidInput
        """
        try:
            self.models()
            self.gone()
        except Refused as error:
            rule = f"does not hold what the plan allows: {error}"
            raise InvalidInput("log", None, rule, "give the run a new name, or the hub the log of this run") from None

    def check_end(self) -> None:
        """Say that the run has ended early, if it has.

        Raises
        ------
        EndedEarly
        """
        left = [f"site {site!r} ({reason})" for site, reason in self.gone().items() if reason not in COMPLETE]
        if left:
            who = "the hub ended it" if self.log.ended(self.plan.run) else f"its sites left: {', '.join(left)}"
            raise EndedEarly(f"run={self.plan.run!r}: ended early: {who}")

    def sites(self) -> list[dict[str, Any]]:
        """How far every site is, as plain data."""
        gone = self.gone()
        return [
            {"site": one.name, "round": self.log.last(self.plan.run, one.name), "left": gone.get(one.name),
             "rows": one.rows}
            for one in self.plan.sites
        ]  # fmt: skip

    def status(self) -> dict[str, Any]:
        """The run and its sites, as plain data."""
        return {
            "run": self.plan.run, "plan": self.plan.digest, "rounds": self.plan.config.rounds, "sites": self.sites(),
            "demonstration": self.plan.demonstration, "finished": self.models() is not None,
            "ended": self.log.ended(self.plan.run),
        }  # fmt: skip

    def models(self) -> Array | None:
        """The last model of every site, shape (N, d); None while one is missing."""
        found = {}
        for name in self.plan.names:
            round = self.log.last(self.plan.run, name)
            data = self.log.message(self.plan.run, round, name)
            message = None if data is None else read(self.plan, data, name, round)
            if message is not None and message.kind in ("stop", "refuse"):
                found[name] = message.payload
        return np.array([found[name] for name in self.plan.names]) if len(found) == len(self.plan.names) else None

    def _known(self, site: str) -> str:
        if site not in self.plan.names:
            raise Refused(f"site={site!r}: is no site of this plan")
        return site


class LocalTransport:
    """A site's connection to a hub in the same process."""

    def __init__(self, hub: Hub, site: str, patience: float = 60.0) -> None:
        self._hub, self._site, self._patience = hub, site, patience

    def highest(self, plan: str) -> int:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        agree(plan, self._hub.plan.digest)
        return self._hub.highest(self._site)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        inbox = self._hub.exchange(self._site, round, message, self._patience)
        if inbox is None:
            raise Unreachable(f"round={round}: no message of every neighbour after {self._patience:g} s")
        return inbox

    def leave(self, farewell: bytes) -> None:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        self._hub.leave(self._site, farewell)
