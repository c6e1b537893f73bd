"""A site's own key of a run of sums.

Made with the greeting, read when something new is masked, erased at the end.
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
    """The key of one site in a run of sums.

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
        """Return the greeting with a new key, or the one that was `stored`: a key is made once."""
        if stored is None:
            return Hello(RunKey.make(self._secret).public)
        content = read_signed_message(self._plan, stored, self._name, 0).content
        if not isinstance(content, Hello):
            return Hello(b"")
        return Hello(content.key)

    def check_against_greeting(self, state: ProtocolState) -> RunKey:
        """Return the key, which is read from its file once.

        It is read when something new is masked: a run that is only repeated needs none.  Raises
        :class:`LedgerCorrupt` if it is not the one that the others have.
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
        """Return the share under masks that are bound to roster, attempt, query and history."""
        query = self._event_digests[state.attempt - 1]
        bound = Bound(state.session, state.roster, state.attempt, query, state.parent)
        masked = mask_share(
            share, self.check_against_greeting(state), self._name, state.members, state.keys, bound
        )
        return masked.view(np.int64)

    def erase_file(self) -> None:
        """Erase the file."""
        RunKey.erase_file(self._secret)

    @cached_property
    def _event_digests(self) -> list[bytes]:
        """Digests of the events of all attempts, the same at all sites."""
        return [
            personalised_hash(canonical_json(event.to_dict()).encode())
            for event in self._plan.planned_privacy.planned_events(0)
        ]
