"""What an active hub and a colluding site can compute: linear algebra over everything that they
ever see.

An adversary runs the hub and one of five sites.  It delays, drops, forwards in part, shows
different things to different sites, signs whatever it likes for its own site, and kills sites at
random, on random schedules.  Every word that honest sites send is a share plus masks; the adversary
knows the masks of pairs with its own site.  All linear combinations in which the unknown masks
vanish are computed modulo a prime.  There must be one for every sum that was opened, at most one an
attempt, each over enough honest sites, and no others.

The same is run with faults planted, and must find them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_in_tests import Consortium, Stop
from sums_in_tests import NAMES, summed

from sottovoce.deploy.site_net import SiteNet
from sottovoce.deploy.sums import masks, own_key, roster
from sottovoce.deploy.sums.masks import Bound, RunKey
from sottovoce.deploy.sums.messages import Attestation, Hello, Share, read_question, sign_content
from sottovoce.deploy.sums.roster import ProtocolState
from sottovoce.errors import AttemptLost, LedgerCorrupt, NetClosed, Refused

pytest.importorskip("cryptography")

P = 2**61 - 1
COLLUDER = "centre"
HONEST = tuple(name for name in NAMES if name != COLLUDER)
ATTEMPTS = 3


class MemoryJournal:
    """The journal of a site, in memory; it outlives the site's process."""

    def __init__(self) -> None:
        self._sent: list[bytes] = []
        self._received: list[bytes] = []

    @property
    def highest_round(self) -> int:
        return len(self._sent) - 1

    def sent(self, round: int) -> bytes | None:
        return self._sent[round] if round < len(self._sent) else None

    def received(self, round: int) -> bytes | None:
        return self._received[round] if round < len(self._received) else None

    def store_message(self, round: int, message: bytes) -> bytes | None:
        if round < len(self._sent):
            assert self._sent[round] == message, "two messages of one exchange"
        else:
            assert len(self._sent) == len(self._received) == round
            self._sent.append(message)
        return self.received(round)

    def store_inbox(self, round: int, inbox: bytes) -> None:
        assert len(self._received) == round == len(self._sent) - 1
        self._received.append(inbox)


@dataclass
class Seen:
    """What the adversary saw: for every sealed share its unknown masks, signs before them, and
    who drew it when.
    """

    rows: list[tuple[str, int, bytes, dict[bytes, int]]] = field(default_factory=list)

    def visible(self) -> tuple[list[tuple[str, int]], list[np.ndarray]]:
        """The shares, and a basis of the combinations of them that the adversary can compute."""
        shares = sorted({(name, attempt) for name, attempt, _, _ in self.rows})
        unknown = sorted({key for row in self.rows for key in row[3]})
        matrix = []
        for name, attempt, _, keys in self.rows:
            row = [0] * (len(unknown) + len(shares))
            for key, side in keys.items():
                row[unknown.index(key)] = side % P
            row[len(unknown) + shares.index((name, attempt))] = 1
            matrix.append(row)
        done = reduced(matrix)
        free = [row[len(unknown) :] for row in done if not any(row[: len(unknown)])]
        return shares, [np.array(row, dtype=object) for row in free]


def reduced(matrix: list[list[int]]) -> list[list[int]]:
    """The reduced row echelon form modulo P, without rows of zeros."""
    rows, done = [list(row) for row in matrix], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(done, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        inverse = pow(rows[done][column], -1, P)
        rows[done] = [value * inverse % P for value in rows[done]]
        for i, row in enumerate(rows):
            if i != done and row[column]:
                rows[i] = [(a - row[column] * b) % P for a, b in zip(row, rows[done], strict=True)]
        done += 1
    return rows[:done]


class Wild:
    """The adversary's hub: sites wait in it until it lets one go on, with an inbox of its
    choice.
    """

    def __init__(self, sites: Consortium, folder: Path, seed: int) -> None:
        self.sites, self.plan, self.rng = sites, sites.plan, random.Random(seed)
        self.own = [RunKey.make(folder / f"own-{i}.masks") for i in range(2)]
        self.secrets = {name: folder / f"{name}.masks" for name in HONEST}
        self.journals = {name: MemoryJournal() for name in HONEST}
        self.sealed: dict[tuple[str, int], np.ndarray] = {}
        self.posts: dict[tuple[str, int], bytes] = {}
        self.nets: dict[str, SiteNet] = {}
        self.doors: dict[str, Door] = {}
        self.broken: list[Exception] = []  # what no site may raise
        self.seen, self.pending = Seen(), dict[bytes, tuple[str, int, bytes, dict[bytes, int]]]()
        self.news, self.waiting, self.let = (
            threading.Condition(),
            dict[str, int](),
            dict[str, Any](),
        )
        self.live = set(HONEST)
        groups = self.rng.choice([1, 1, 1, 2])  # sites of different groups see little of each other
        self.group = {name: self.rng.randrange(groups) for name in HONEST}
        self.patient = self.rng.choice([0.8, 0.95, 1.0])
        self.drops = self.rng.choice([0.0, 0.0, 0.02, 0.2])
        self.kills = self.rng.choice([0.0, 0.05])
        self.two_keys = self.rng.random() < 0.2

    def run(self) -> Seen:
        threads = [threading.Thread(target=self._site, args=(name,)) for name in HONEST]
        for thread in threads:
            thread.start()
        with self.news:
            while self.live:
                self.news.wait_for(lambda: set(self.waiting) >= self.live)
                if self.live:
                    self._let_one_go()
        for thread in threads:
            thread.join()
        if self.broken:
            raise self.broken[0]
        return self.seen

    def _let_one_go(self) -> None:
        whole = [name for name in sorted(self.waiting) if self._whole(name)]
        some = whole if whole and self.rng.random() < self.patient else sorted(self.waiting)
        name = self.rng.choice(some)
        round = self.waiting.pop(name)
        killed = self.rng.random() < self.kills
        self.let[name] = Stop() if killed else self._inbox(name, round)
        self.news.notify_all()

    def _others(self, name: str) -> list[str]:
        return [other for other in self.nets[name].exchanges.state.members if other != name]

    def _whole(self, name: str) -> bool:
        """Whether all honest sites of its group that it waits for have sent."""
        near = [n for n in self._others(name) if n in HONEST and self.group[n] == self.group[name]]
        return all((other, self.waiting[name]) in self.posts for other in near)

    def _inbox(self, name: str, round: int) -> dict[str, bytes]:
        found = {}
        for other in self._others(name):
            far = (
                other in HONEST
                and self.group[other] != self.group[name]
                and self.rng.random() < 0.9
            )
            if far or self.rng.random() < self.drops:
                continue
            if other == COLLUDER:
                found[other] = self._lie(name, round)
            elif (other, round) in self.posts:
                found[other] = self.posts[other, round]
        return found

    def _lie(self, name: str, round: int) -> bytes:
        """What fits this site's history, signed by the colluding one."""
        state = self.nets[name].exchanges.state
        key = self.own[self.group[name] % 2 if self.two_keys else 0].public
        if state.phase == "key":
            what: Any = Hello(key)
        elif state.phase == "roster":
            what = state.next_roster
        else:
            words = np.array(
                [self.rng.getrandbits(64) for _ in range(self.plan.d)], dtype=np.uint64
            )
            what = Share(state.roster, state.attempt, state.parent, words)
        return sign_content(self.plan, round, COLLUDER, what, self.sites.keys[COLLUDER])

    # Called by the sites' threads

    def exchange(self, name: str, round: int, message: bytes) -> dict[str, bytes]:
        with self.news:
            self.posts.setdefault((name, round), message)
            assert self.posts[name, round] == message
            if message in self.pending:
                self.seen.rows.append(self.pending.pop(message))
            self.waiting[name] = round
            self.news.notify_all()
            self.news.wait_for(lambda: name in self.let)
            found = self.let.pop(name)
        if isinstance(found, Stop):
            raise found
        return found

    def inquire(self, name: str, question: bytes, enough: int) -> dict[str, bytes]:
        asked = read_question(self.plan, question, name)
        lie = Attestation(COLLUDER, asked.round, asked.nonce, name, -1).to_signed_bytes(
            self.plan, self.sites.keys[COLLUDER]
        )
        others = [other for other in HONEST if other != name and other in self.doors]
        return {other: self.doors[other].answers(name, question) for other in others} | {
            COLLUDER: lie
        }

    def _site(self, name: str) -> None:
        while True:
            try:
                self._live(name)
            except Stop:
                continue
            except (Refused, NetClosed, LedgerCorrupt):
                pass  # the site has halted; what it sent stays seen
            except Exception as error:  # else the others would wait for this site for ever
                self.broken.append(error)
            break
        with self.news:
            self.live.discard(name)
            self.news.notify_all()

    def _live(self, name: str) -> None:
        door = Door(self, name)
        own = SiteNet(
            self.plan, name, self.journals[name], door, self.sites.keys[name], self.secrets[name]
        )
        self.nets[name], self.doors[name] = own, door
        own.exchange_greetings()
        facts = self.plan.stages[0].prepared.facts.facts_of_node(self.plan.index(name))
        for attempt in range(1, ATTEMPTS + 1):
            own.among(facts)
            if (name, attempt) not in self.sealed:  # as the ledger keeps it
                KEYS.found = {}
                share = np.random.default_rng([attempt, self.plan.index(name)]).integers(
                    -(2**50), 2**50, self.plan.d
                )
                self.sealed[name, attempt] = own.mask_share(share)
                c = own.exchanges.state
                what = Share(
                    c.roster, c.attempt, c.parent, self.sealed[name, attempt].view(np.uint64)
                )
                message = sign_content(
                    self.plan, own.exchanges.round + 1, name, what, self.sites.keys[name]
                )
                self.pending[message] = name, attempt, c.roster, dict(KEYS.found)
            try:
                own.total(self.sealed[name, attempt])
            except AttemptLost:
                continue


class Door:
    """A site's way to the adversary."""

    answers: Any = None

    def __init__(self, wild: Wild, name: str) -> None:
        self._wild, self._name = wild, name

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        return self._wild.exchange(self._name, round, message)

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        return self._wild.inquire(self._name, question, enough)


KEYS = threading.local()
"""Keys of masks with honest sites that this thread derived, and the sign of each."""


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    derive, seal = masks.derive_mask_key, masks.mask_share

    def note(own: Any, names: tuple[str, str], keys: Any, other: bytes, bound: Bound) -> bytes:
        key = derive(own, names, keys, other, bound)
        if COLLUDER not in names:
            sign = 1 if KEYS.name == names[0] else -1
            KEYS.found[key] = KEYS.found.get(key, 0) + sign
        return key

    def named(share: Any, own: Any, name: str, *rest: Any) -> Any:
        KEYS.name = name
        return seal(share, own, name, *rest)

    monkeypatch.setattr(masks, "derive_mask_key", note)
    monkeypatch.setattr(own_key, "mask_share", named)


def judge(seen: Seen, least: int) -> str | None:
    """What the adversary can compute beyond one sum an attempt over at least `least` honest
    sites; None for nothing.
    """
    shares, basis = seen.visible()
    attempts = set()
    for combination in basis:
        inside = [one for one, value in zip(shares, combination, strict=True) if value]
        values = {int(value) for value in combination if value}
        which = {attempt for _, attempt in inside}
        if len(which) != 1 or values != {1}:
            return f"a combination over several attempts: {inside}"
        if len(inside) < least:
            return f"a sum over {len(inside)} honest sites: {inside}"
        if which & attempts:
            return f"two sums of attempt {which}"
        attempts |= which
    return None


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return summed(tmp_path_factory.mktemp("sites"), rounds=ATTEMPTS)


def schedules(
    sites: Consortium, folder: Path, many: int, least: int = 3
) -> tuple[list[str], int, int]:
    """What was found in so many runs, and how many sums were opened and shares seen in all."""
    found, opened, shares = [], 0, 0
    for seed in range(many):
        place = folder / f"{seed}"
        place.mkdir()
        seen = Wild(sites, place, seed).run()
        shares, opened = shares + len(seen.rows), opened + len(seen.visible()[1])
        said = judge(seen, least)
        if said is not None:
            found.append(said)
    return found, opened, shares


def test_an_active_hub_and_a_site_see_sums_over_three_honest_sites_or_nothing(
    sites: Consortium, tmp_path: Path
) -> None:
    found, opened, shares = schedules(sites, tmp_path, 80)
    assert found == []
    assert opened >= 20 and shares >= 4 * opened  # and the schedules are not all dull


def repeated(monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    """Keys that lack something."""
    derive = masks.derive_mask_key
    blank: dict[str, Any] = {
        "attempt": 0,
        "parent": b"",
        "roster": b"",
        "query": b"",
        "session": b"s",
    }

    def lacking(own: Any, names: Any, keys: Any, other: bytes, bound: Bound) -> bytes:
        given = {name: getattr(bound, name) for name in blank}
        return derive(
            own,
            names,
            keys,
            other,
            Bound(**(given | {name: blank[name] for name in without.split()})),
        )

    monkeypatch.setattr(masks, "derive_mask_key", lacking)


def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rosters of any size."""
    monkeypatch.setattr(ProtocolState, "enough", True)


def unsigned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roster counts although not all of its sites have signed it, and those sites are left out
    of the sum.
    """
    take = ProtocolState.take_messages

    def lax(self: ProtocolState, present: Any, why: Any) -> None:
        before = self.phase
        take(self, present, why)
        if before == "roster" and self.phase == "roster":
            self.roster, self.phase = self.next_roster.digest, "share"

    monkeypatch.setattr(ProtocolState, "take_messages", lax)
    monkeypatch.setattr(ProtocolState, "enough", True)


def minority(monkeypatch: pytest.MonkeyPatch) -> None:
    """2K = N + t: two rosters may have no honest site in common."""
    monkeypatch.setattr(roster, "check_quorum", lambda *_: None)
    monkeypatch.setattr(ProtocolState, "least", 3)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "keys without the attempt and what it changes": (
        lambda m: repeated(m, "attempt query roster parent"),
        "several attempts",
    ),
    "rosters of any size": (few, "honest sites"),
    "rosters that not all have signed": (unsigned, "honest sites|several"),
    "a quorum of half": (minority, "honest sites|two sums"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    plant, match = FAULTS[fault]
    plant(monkeypatch)
    found, _, _ = schedules(sites, tmp_path, 25)
    assert found and any(any(part in said for part in match.split("|")) for said in found)


def test_no_mask_is_ever_used_twice(sites: Consortium, tmp_path: Path) -> None:
    """A key stands in exactly the two shares of its pair: one adds it and the other subtracts
    it.
    """
    for seed in range(25):
        place = tmp_path / f"{seed}"
        place.mkdir()
        signs: dict[bytes, list[int]] = {}
        for _, _, _, keys in Wild(sites, place, seed).run().rows:
            for key, side in keys.items():
                signs.setdefault(key, []).append(side)
        assert all(sorted(used) in ([-1], [1], [-1, 1]) for used in signs.values())
