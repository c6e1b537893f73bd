"""What a hub does, whatever carries the bytes: check, keep once, hand on.

A hub sees messages only, which are public.  It cannot make one, because it holds no site's key, and it cannot change
the plan, whose digest is in every message.
"""

from __future__ import annotations

import numpy as np

from ..errors import Refused, Unreachable
from ..typing import Any, Array
from .hublog import HubLog
from .messages import agree, read
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

    def exchange(self, site: str, round: int, message: bytes, seconds: float) -> dict[str, bytes] | None:
        """Keep the message of `site`, whose identity the caller has established, and wait for its neighbours'.

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

    def leave(self, site: str, reason: str) -> None:
        """Note that `site` will send no more."""
        self.log.leave(self.plan.run, self._known(site), reason)

    def sites(self) -> list[dict[str, Any]]:
        """How far every site is, as plain data."""
        gone = self.log.gone(self.plan.run)
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
    """A site's way to a hub in the same process."""

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

    def leave(self, reason: str) -> None:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        self._hub.leave(self._site, reason)
