"""A malicious hub with a colluder, in a simulated world."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.deploy.messages import Message
from sottovoce.deploy.sums.masks import RunKey
from sottovoce.deploy.sums.messages import (
    Attestation,
    Hello,
    Roster,
    Share,
    read_question,
    read_signed_message,
    sign_content,
)
from sottovoce.errors import TransportClosed

if TYPE_CHECKING:
    from world import World

POLL = 0.5


class Lies:
    """A malicious hub, and the site whose keys it has, as one honest site sees them."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def exchange(self, round: int, message: bytes, answers: Any) -> dict[str, bytes]:
        """Return an inbox with messages left out, delayed, replayed or forged, by chance."""
        world, rng, plan = self.world, self.world.rng, self.world.plan
        held = world.__dict__.setdefault("held", {})
        held[round, self.name] = message
        for _ in range(rng.choice((0, 1, 3, 8))):
            world.sleep(POLL)
        if rng.random() < 0.03:
            raise TransportClosed("so they say", rng.choice((None, self.name, *plan.names)))
        mine = read_signed_message(plan, message, self.name, round).content
        inbox = {
            name: held[round, name]
            for name in plan.names
            if (round, name) in held and name != self.name
        }
        if world.liar != self.name:
            forged = self._forge(round, mine)
            if forged is not None:
                inbox[world.liar] = forged
        for name in plan.names:
            if name == self.name:
                continue
            if rng.random() < 0.06:
                inbox[name] = rng.choice((b"", b"expelled", b"left"))
            if rng.random() < 0.05:
                inbox.pop(name, None)
            if rng.random() < 0.02 and (round - 1, name) in held:
                inbox[name] = held[round - 1, name]
            if (
                not plan.uses_secure_sums
                and name not in plan.exchange_table.names_heard_by(self.name, round)
                and not isinstance(mine, Roster)
            ):
                inbox = {
                    who: data
                    for who, data in inbox.items()
                    if who != name or data in (b"", b"expelled", b"left")
                }
            elif not plan.uses_secure_sums and name not in inbox and rng.random() < 0.8:
                inbox[name] = b""
        if answers is not None and rng.random() < 0.2:
            world.say(f"hub lies to {self.name} in {round}: {sorted(inbox)}")
        return inbox

    def _forge(self, round: int, mine: Any) -> bytes | None:
        """Return a message of the colluder that fits the state of this one site.

        `mine` is what the site itself has just sent.
        """
        world, plan = self.world, self.world.plan
        liar = world.liar
        assert liar is not None
        key, rng = world.keys[liar], world.rng
        content: Any
        match mine:
            case Hello():
                path = world.folder / f"{liar}.trial.masks"
                content = Hello(RunKey.make(path).public)
            case Roster():
                content = mine if rng.random() < 0.9 else replace(mine, epoch=mine.epoch + 1)
            case Share():
                words = np.array([rng.getrandbits(64) for _ in mine.words], dtype=np.uint64)
                content = Share(mine.roster, mine.attempt, mine.parent, words)
            case Message():
                payload = (
                    np.zeros(0)
                    if mine.kind == "hello"
                    else np.array([rng.gauss(0.0, 1.0) for _ in mine.payload])
                )
                content = Message("trial", plan.digest, round, liar, mine.kind, payload)
        data = sign_content(plan, round, liar, content, key)
        world.auditor.said(liar, round, data)
        return data

    def inquire(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Return the colluder's answer alone to a restarted site's question."""
        world, asked = self.world, read_question(self.world.plan, question, self.name)
        answers = {}
        for name in world.plan.names:
            if (
                name == world.liar
            ):  # the others' true answers would need them to wait: they are cut off
                told = Attestation(name, asked.round, asked.nonce, self.name, asked.round)
                answers[name] = told.to_signed_bytes(world.plan, world.keys[name])
        return answers
