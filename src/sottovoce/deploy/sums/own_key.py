"""A site's own masking key in a run of sums.

It is made with the greeting, read from its file when something new is masked, and erased at the
end.  The *public half* is in the greeting; from it and the own private half each pair of sites
derives its masks (:mod:`sottovoce.deploy.sums.masks`).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from ...errors import LedgerCorrupt
from ...util.plain import canonical_json, personalised_hash
from ...util.typing import IntArray
from ..plan import Plan
from .masks import Bound, RunKey, mask_share
from .messages import Hello, read_signed_message
from .roster import ProtocolState


class OwnKey:
    """The masking key of one site in a run of sums.

    Parameters
    ----------
    plan : Plan
    name : str
        The site.
    secret : Path
        File of the private half, which is nowhere else.
    """

    def __init__(self, plan: Plan, name: str, secret: Path) -> None:
        self._plan = plan
        self._name = name
        self._secret = secret
        self._key: RunKey | None = None

    def make_greeting(self, stored: bytes | None) -> Hello:
        """Return the greeting with a new public key, or with that of the `stored` greeting.

        `stored` are the signed bytes in the journal; None before the first greeting.
        """
        if stored is None:
            return Hello(RunKey.make(self._secret).public)
        content = read_signed_message(self._plan, stored, self._name, 0).content
        if not isinstance(content, Hello):
            return Hello(b"")
        return Hello(content.key)

    def check_against_greeting(self, state: ProtocolState) -> RunKey:
        """Read the key from its file, and check that the others have its public half.

        It is read once, when something new is masked: repeating stored messages needs no key.
        Raises :class:`LedgerCorrupt` if it is not the key of this site's greeting.
        """
        if self._key is None:
            key = RunKey.read(self._secret)
            if key.public != state.keys[self._name]:
                raise LedgerCorrupt(
                    f"run={self._plan.run!r}: the key of this run differs from the one that was "
                    "sent; halted, nothing was drawn; the other sites go on without this one"
                )
            self._key = key
        return self._key

    def mask_share(self, share: IntArray, state: ProtocolState) -> IntArray:
        """Return the share, (k,) int64, plus the masks of this attempt.

        The masks depend on roster, attempt, query and history (:class:`.masks.Bound`).
        """
        query = self._event_digests[state.attempt - 1]
        bound = Bound(state.session, state.roster, state.attempt, query, state.parent)
        masked = mask_share(
            share, self.check_against_greeting(state), self._name, state.members, state.keys, bound
        )
        return masked.view(np.int64)

    def erase_file(self) -> None:
        """Erase the file of the private key."""
        RunKey.erase_file(self._secret)

    @cached_property
    def _event_digests(self) -> list[bytes]:
        """Digests of the planned events, by attempt; those of node 0, so that all sites agree."""
        return [
            personalised_hash(canonical_json(event.to_dict()).encode())
            for event in self._plan.planned_privacy.planned_events(0)
        ]
