"""A site's side of a run of sums: every exchange through the journal, every sum added up at the site itself."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from ...data.move import Move
from ...errors import AttemptLost, LedgerCorrupt, NetClosed, Refused, TransportClosed
from ...ledger.journal import Journal
from ...problem.facts import Among, Facts
from ...runs.engine import FEW
from ...util.plain import canonical, keyed_hash
from ...util.typing import Any, Array, IntArray
from ..journaled import JournaledNet
from ..keys import SigningKey
from ..messages import HUB, OUT, Kind, Message, Reason
from ..plan import Plan
from ..transport import Transport
from .masks import Bound, RunKey, seal
from .messages import (
    NONCE,
    Attestation,
    Content,
    Hello,
    Question,
    Share,
    SignedMessage,
    read,
    read_attestation,
    read_question,
    sign,
)
from .roster import ProtocolState, read_absence


class SumNet(JournaledNet):
    """The network of a site in a run of sums.

    `secret` is the file of the private half of the key of this run, made with the greeting and erased at the end.
    """

    def __init__(
        self, plan: Plan, name: str, journal: Journal, transport: Transport, key: SigningKey, secret: Path
    ) -> None:
        super().__init__(plan, name, journal, transport, key)
        self.state, self._secret = ProtocolState.of(plan), secret
        self.degree = np.array([float(len(plan.sites) - 1)])
        self._handed = False  # whether the row guard judges a sum just now
        self._again = journal.highest >= 0 or secret.exists()
        self._seen: dict[str, int] = {}
        transport.answers = self.answer

    @property
    def lost(self) -> dict[str, str]:
        return dict(sorted(self.state.gone.items()))

    @property
    def roster(self) -> dict[str, Any]:
        return self.state.to_dict()

    # What a row guard needs

    def among(self, facts: Facts) -> Among:
        """Sites and rows of the next attempt; signs the next roster first, if there is none.

        Raises :class:`NetClosed` if too few sites are left, or this one was left out.
        """
        self._handed = False
        while self.state.phase == "roster":
            if not self.state.enough:
                self.closed_by = FEW
                who = f"{len(self.state.members)} sites are left, and a sum of this plan needs {self.state.least}"
                raise NetClosed(f"attempt={self.state.attempt}: {who}; nothing was drawn for it")
            self._ready()
            self._exchange(self.state.next_roster)
        self._ready()
        rows = self._plan.counts(self.state.attempt)
        return Among(float(sum(rows[name] for name in self.state.members)), len(self.state.members))

    def seal(self, share: IntArray) -> IntArray:
        """The share with masks that vanish in the sum over the roster."""
        state = self.state
        return seal(share, self._own_key, self._name, state.members, state.keys, self._bound).view(np.int64)

    def total(self, sealed: IntArray) -> IntArray:
        """Send the share, and add up those of the whole roster."""
        state = self.state
        attempt, words = state.attempt, np.ascontiguousarray(sealed, dtype=np.int64).view(np.uint64)
        self._exchange(Share(state.roster, attempt, state.parent, words))
        if state.total is None:
            lost = ", ".join(sorted(set(state.gone) - {self._name}))
            raise AttemptLost(f"attempt={attempt}: no sum, because a share is missing; gone so far: {lost}")
        self._handed = True
        return state.total.view(np.int64)

    def neighbour_sum(self, x: Array) -> Array:
        raise TypeError("a run of sums sends nothing to neighbours")

    # What a session needs

    def greet(self) -> None:
        """Agree on the plan, and exchange the keys of this run."""
        stored = self._journal.sent(0)
        if stored is None:
            key = RunKey.make(self._secret).public
        else:
            content = read(self._plan, stored, self._name, 0).content
            key = content.key if isinstance(content, Hello) else b""
        self._exchange(Hello(key))

    def agree(self, move: Move) -> None:
        """Bind all that follows to the map by which this site moves its rows: another map is another history."""
        self.state.bind(move.digest)

    def finish(self, kind: Kind, model: Array) -> None:
        """Send the last model, which is the same at all sites."""
        self._exchange(Message(self._plan.run, self._plan.digest, self.round + 1, self._name, kind, model))

    def leave(self, reason: Reason) -> None:
        """Erase the key of this run, and sign the farewell."""
        RunKey.erase(self._secret)
        super().leave(reason)

    def refused(self) -> None:
        """Erase the key if a sum was refused, because then the run is over for everybody."""
        if self._handed:
            RunKey.erase(self._secret)

    def answer(self, asker: str, question: bytes) -> bytes:
        """Attest how far this site has seen another one; raises :class:`Refused` unless that site asked."""
        asked = read_question(self._plan, question, asker)
        seen = self._seen.get(asker, -1)
        return Attestation(self._name, asked.round, asked.nonce, asker, seen).seal(self._plan, self._key)

    # Inside

    def _ready(self) -> None:
        """Before anything new is signed, charged or drawn: this site has its key, and its journal is the newest."""
        if self._journal.sent(self.round + 1) is None:
            self._not_behind()
            _ = self._own_key

    @cached_property
    def _own_key(self) -> RunKey:
        """Read when something new is masked: a run that is only repeated needs no key."""
        key = RunKey.read(self._secret)
        if key.public != self.state.keys[self._name]:
            raise LedgerCorrupt(
                f"run={self._plan.run!r}: the key of this run is another than the one that was sent; halted, nothing "
                "was drawn; the other sites go on without this one"
            )
        return key

    @cached_property
    def _queries(self) -> list[bytes]:
        """Digests of the events of all attempts, the same at all sites."""
        return [keyed_hash(canonical(event.to_dict()).encode()) for event in self._plan.planned(0)]

    @property
    def _bound(self) -> Bound:
        state = self.state
        query = self._queries[state.attempt - 1]
        return Bound(state.session, state.roster, state.attempt, query, state.parent)

    def _exchange(self, content: Content) -> None:
        """Take part in the next exchange, and go on with what was sent in it."""
        self.round += 1
        message = sign(self._plan, self.round, self._name, content, self._key)
        present, why = self._journaled(message, self._ask, self._read)
        self.state.take(present | {self._name: SignedMessage(self._name, content, message)}, why)
        self._seen |= dict.fromkeys(present, self.round)

    def _ask(self, message: bytes) -> dict[str, bytes]:
        return self._told(lambda: self._transport.exchange(self.round, message))

    def _told(self, ask: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
        """What the hub says, unless it ends the run or says that this site comes too late."""
        try:
            return ask()
        except TransportClosed as error:
            if error.site not in (None, self._name):
                raise Refused(f"round={self.round}: the hub names a site that ends no run of sums") from None
            self.closed_by = HUB if error.site is None else OUT
            raise

    def _read(self, inbox: Mapping[str, bytes]) -> tuple[dict[str, SignedMessage], dict[str, str]]:
        """The messages of an inbox, and what is proved of senders that are out."""
        present: dict[str, SignedMessage] = {}
        why: dict[str, str] = {}
        others = set(self.state.members) - {self._name}
        if not inbox.keys() <= others:
            raise Refused(f"round={self.round}: the hub gave messages of other sites than the roster's")
        for name in sorted(inbox):
            absence = read_absence(self._plan, inbox[name], name, self.round)
            if absence is None:
                present[name] = read(self._plan, inbox[name], name, self.round)
                self.state.check(present[name])
            else:
                why[name] = absence
        return present, why

    def _not_behind(self) -> None:
        """Before a restarted site signs or draws anything new, ask the others how far they have seen it.

        Every roster has an honest site among any ``N - K + t + 1``, so a hub cannot hide that this site went further
        than its journal knows: then this raises :class:`LedgerCorrupt`.
        """
        if not self._again:
            return
        facts = self._plan.facts
        need = len(self._plan.sites) - facts.participants + facts.colluders + 1
        question = Question(self._name, self._journal.highest, secrets.token_hex(NONCE // 2))
        started = time.perf_counter()
        found = self._told(lambda: self._transport.inquire(question.seal(self._plan, self._key), need))
        self.waited += time.perf_counter() - started
        found.pop(self._name, None)
        answers = [read_attestation(self._plan, data, name, question) for name, data in found.items()]
        if len(answers) < need:
            raise Refused(f"round={self.round}: the hub gave {len(answers)} answers of other sites, not {need}")
        seen = max(answers, key=lambda answer: answer.seen)
        if seen.seen > question.round:
            raise LedgerCorrupt(
                f"run={self._plan.run!r}: site {seen.sender!r} has seen round {seen.seen} of this site and its journal "
                f"ends at round {question.round}: the journal is an older copy; halted, nothing was drawn; find the "
                "newest one, and never restore a ledger from a backup"
            )
        self._again = False
