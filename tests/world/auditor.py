"""An auditor of a simulated world that shares no code with what it audits.

It reads messages as JSON, ledgers as SQLite files and keys as bytes, and follows
``docs/deploy/sums.md``. Each broken promise is a line in :attr:`Auditor.broken`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# Entries of a roster that must be equal at all its members.
ROSTER = ("session", "epoch", "first", "members", "parent")
SMALL = 2**56
"""No share without its masks is larger; one with a mask is, in each of its words, in all but 1
case of 128.
"""


def digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=32, person=b"sottovoce ledger").digest()


def fields(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def reserved_by(record: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of a reservation, in order: each entry says what differs from the one before,
    and how many follow.
    """
    events, before = list[dict[str, Any]](), dict[str, Any]()
    for changed, count in record["releases"]:
        before = changed if "event" in changed else before | changed
        events += [before] * count
    return events


class Auditor:
    """Sees every message as it leaves a site, every draw of noise, and how every process ended.

    Parameters
    ----------
    folder : Path
        Holds ``NAME.ledger`` and, while they last, ``NAME.RUN.masks``.
    liars : collection of str
        Sites of the adversary, of which nothing is promised.

    Attributes
    ----------
    put_back : set of str
        Sites whose ledger was put back from an older copy.  ``docs/deploy/threats.md`` leaves one
        thing open for them: what the hub had not stored can be signed, and drawn, again.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        names: Collection[str],
        least: int,
        *,
        summed: bool,
        liars: Collection[str] = (),
    ) -> None:
        self.folder, self.run, self.names, self.least, self.summed = (
            folder,
            run,
            sorted(names),
            least,
            summed,
        )
        self.liars, self.broken = set(liars), list[str]()
        self.said_so_far: dict[tuple[str, int], bytes] = {}
        self.plain: dict[tuple[str, int], dict[str, Any]] = {}
        self.private: dict[str, bytes] = {}
        self.streams: dict[tuple[frozenset[str], bytes], tuple[int, bytes]] = {}
        self.draws = 0
        self.put_back = set[str]()

    def breach(self, what: str) -> None:
        self.broken.append(what)

    def records(self, site: str) -> tuple[list[dict[str, Any]], dict[int, bytes]]:
        """Records of the run in a site's ledger, as they are on the disk, and the payloads by
        record.
        """
        path = self.folder / f"{site}.ledger"
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            found = [
                (number, json.loads(body))
                for number, body in db.execute("SELECT id, body FROM log ORDER BY id")
            ]
            payloads = dict(db.execute("SELECT id, bytes FROM payload"))
        return [
            body | {"n": number} for number, body in found if body.get("run") == self.run
        ], payloads

    def stored(self, site: str) -> int:
        """The last exchange of which the hub's log holds a message of a site, on the disk; -1
        for none.
        """
        path = self.folder / "hub.log"
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            of = (self.run, site)
            (last,) = db.execute(
                "SELECT MAX(round) FROM message WHERE run = ? AND site = ?", of
            ).fetchone()
        return -1 if last is None else int(last)

    def drawn(self, site: str) -> None:
        """Noise is being drawn: its row is on the disk, and has no bytes yet."""
        self.draws += 1
        records, payloads = self.records(site)
        rows = [body for body in records if body["kind"] in ("charge", "store", "fail")]
        if not rows or rows[-1]["kind"] != "charge":
            kinds = [(body["kind"], body["release"]) for body in rows]
            self.breach(f"{site}: drew noise without a row that waits for it, after {kinds[-4:]}")
        if site in self.put_back and site not in self.liars:
            sent = [
                json.loads(payloads[one["n"]])["round"] for one in records if one["kind"] == "send"
            ]
            if self.stored(site) > max(sent, default=-1):
                self.breach(f"{site}: drew noise with a ledger that is behind what the hub holds")

    def said(self, site: str, round: int, message: bytes) -> None:
        """A site hands a message of an exchange to the network."""
        if site in self.liars:
            self.plain[site, round] = json.loads(message)
            return
        before = self.said_so_far.setdefault((site, round), message)
        if before != message:
            if site not in self.put_back or self.stored(site) >= round:
                self.breach(f"{site}: two messages in exchange {round}")
            before = self.said_so_far[site, round] = message
            self.streams = {
                mask: number for mask, number in self.streams.items() if f"at {site}" not in mask
            }
        body = self.plain[site, round] = json.loads(message)
        records, payloads = self.records(site)
        if not any(one["kind"] == "send" and payloads.get(one["n"]) == message for one in records):
            self.breach(f"{site}: a message of exchange {round} that is not in its ledger")
        if body["kind"] == "key":
            self.private[site] = (self.folder / f"{site}.{self.run}.masks").read_bytes()
        if body["kind"] in ("release", "share") and before is message:
            self._goes_on(site, round)
            if body["kind"] == "share":
                self._unmask(site, round, body, records)

    def read(self, held: dict[tuple[int, str], bytes], but: Collection[str] = ()) -> None:
        """All messages that a hub holds, after a run whose keys are erased: no mask is taken off.

        Of sites named in `but`, whose ledgers were put back from older copies, nothing is promised.
        """
        self.plain = {(site, round): json.loads(message) for (round, site), message in held.items()}
        for site in set(self.names) - set(but):
            records, payloads = self.records(site)
            sent = {payloads.get(one["n"]) for one in records if one["kind"] == "send"}
            for round in sorted(k for k, who in held if who == site):
                if held[round, site] not in sent:
                    self.breach(f"{site}: a message of exchange {round} that is not in its ledger")
                if self.plain[site, round]["kind"] in ("release", "share"):
                    self._goes_on(site, round)

    def _goes_on(self, site: str, round: int) -> None:
        """All members of the last roster that this site signed have signed the same, and are
        enough.
        """
        signed = [k for k in range(round) if self.plain.get((site, k), {}).get("kind") == "roster"]
        if not signed:
            if self.summed:
                self.breach(f"{site}: a share without a roster")
            return
        own = self.plain[site, signed[-1]]
        members = self.members(own)
        if len(members) < self.least or site not in members:
            self.breach(f"{site}: goes on with {len(members)} sites")
        for other in members:
            theirs = self.plain.get((other, signed[-1]), {})
            if other not in self.liars and any(theirs.get(word) != own[word] for word in ROSTER):
                self.breach(f"{site}: goes on with a roster that {other} has not signed")

    def members(self, roster: dict[str, Any]) -> list[str]:
        bits = int(roster["members"], 16)
        return sorted(name for i, name in enumerate(self.order) if bits >> i & 1)

    order: tuple[str, ...] = ()
    """Sites in the plan's order."""

    def _unmask(
        self, site: str, round: int, body: dict[str, Any], records: list[dict[str, Any]]
    ) -> None:
        """Take off the masks that the page describes: what is left is small, and no mask hides
        two numbers.
        """
        attempt = body["attempt"]
        others = [
            k
            for (who, k), one in self.plain.items()
            if who == site and k != round and one["kind"] == "share" and one["attempt"] == attempt
        ]
        if others:
            self.breach(f"{site}: two shares in attempt {attempt}")
        signed = max(
            k for k in range(round) if self.plain.get((site, k), {}).get("kind") == "roster"
        )
        roster = self.plain[site, signed]
        members = self.members(roster)
        if len([name for name in members if name not in self.liars]) < 2:
            self.breach(f"{site}: one honest share alone in attempt {attempt}")
        events = reserved_by(next(one for one in records if one["kind"] == "reserve"))
        query = digest(text(events[attempt - 1]))
        words = np.frombuffer(base64.b64decode(body["words"]), dtype="<u8").astype(np.uint64)
        keys = {name: base64.b64decode(self.plain[name, 0]["key"]) for name in members}
        own = X25519PrivateKey.from_private_bytes(self.private[site])
        masks: list[tuple[frozenset[str], bytes]] = []
        for other in members:
            if other == site:
                continue
            low, high = sorted((site, other))
            info = fields(
                b"sottovoce mask 1",
                low.encode(),
                high.encode(),
                keys[low],
                keys[high],
                bytes.fromhex(body["roster"]),
                attempt.to_bytes(8, "big"),
                query,
                bytes.fromhex(body["parent"]),
            )
            shared = own.exchange(X25519PublicKey.from_public_bytes(keys[other]))
            key = HKDF(hashes.SHA256(), 32, bytes.fromhex(roster["session"]), info).derive(shared)
            drawn = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * len(words)))
            mask = np.frombuffer(drawn, dtype="<u8").astype(np.uint64)
            words = words - mask if site == low else words + mask
            masks.append((frozenset((site, other, f"at {site}")), drawn))
        if np.any(np.abs(words.view(np.int64).astype(float)) > SMALL):
            self.breach(f"{site}: a share of attempt {attempt} under other masks than the page's")
        for mask in masks:
            hidden = self.streams.setdefault(mask, (attempt, words.tobytes()))
            if hidden != (attempt, words.tobytes()):
                self.breach(
                    f"{site}: a mask hides two numbers, in attempts {hidden[0]} and {attempt}"
                )

    def spending(self, site: str, code: int) -> None:
        """At the end of all: rows are a beginning of what was reserved, each with one draw; the
        rest went back.
        """
        if site in self.liars or not (self.folder / f"{site}.ledger").exists():
            return
        records = self.records(site)[0]
        reserved = [reserved_by(one) for one in records if one["kind"] == "reserve"]
        rows = [one["release"] for one in records if one["kind"] == "charge"]
        if rows and (
            len(reserved) != 1 or rows != [k + 1 for k in range(len(reserved[0]))][: len(rows)]
        ):
            self.breach(f"{site}: charged something else than what was planned")
        kept = [one["release"] for one in records if one["kind"] in ("store", "fail")]
        if kept != list(range(1, len(kept) + 1)) or not len(rows) - 1 <= len(kept) <= len(rows):
            self.breach(f"{site}: {len(rows)} rows, and bytes of {kept}")
        closed = [one for one in records if one["kind"] == "close"]
        if code in (0, 4, 5) and (
            len(closed) != 1 or closed[0]["returned"] != len(reserved[0]) - len(rows)
        ):
            self.breach(f"{site}: ended with {code}, and its reservation was not closed exactly")
