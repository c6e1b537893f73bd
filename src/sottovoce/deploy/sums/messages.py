"""Signed messages of a run of sums: greetings with a key, rosters, shares, and attestations.

A *roster* is the list of the sites that go on, which all of them sign; a *share* is a site's masked
part of a sum.  Rosters are also used in runs over a graph that go on without a lost site.

Each message is one JSON object in canonical text, signed in a domain of its own, with the keys
``v, run, plan, round, sender, kind, sig`` and

==========  ========================================================================================
kind        more
==========  ========================================================================================
``key``     ``key``: the public half of the site's key of this run
``roster``  ``session, epoch, first, members, parent``: see :class:`Roster`
``share``   ``roster, attempt, parent, dtype, shape, words``: see :class:`Share`
==========  ========================================================================================

A last model is an ordinary :class:`sottovoce.deploy.messages.Message`.  A site that was started
again sends a :class:`Question`, and the others reply with an :class:`Attestation`
(:mod:`sottovoce.deploy.sums.witnesses`).  Two different messages of a site for one exchange make a
*proof* against it (:func:`make_proof`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import Refused
from ...util.plain import canonical_json, personalised_hash
from ...util.typing import Any
from ..keys import SigningKey
from ..messages import (
    NOT_OF_THIS_SCHEMA,
    Message,
    check_signature,
    decode_base64,
    parse_unverified,
    sign_body,
)
from ..messages import read_message as read_message
from ..plan import Plan
from ..strict import parse_json
from ..transport import to_printable_text
from .masks import Words, check_public_key, encode_fields

DTYPE = "<u8"
"""Type of the words of a share: little-endian, unsigned, 64 bits."""
# Prefixes of signed texts, so that no kind of message can be taken for another.
DOMAIN = b"sottovoce sums 1\n"
"""Prefix for greetings, rosters and shares."""
_ASKING = b"sottovoce sums question 1\n"
_ANSWERING = b"sottovoce sums answer 1\n"
# Sets of keys that messages must have.
_HEAD = {"v", "run", "plan", "round", "sender", "kind", "sig"}
_KEY = _HEAD | {"key"}
_ROSTER = _HEAD | {"session", "epoch", "first", "members", "parent"}
_SHARE = _HEAD | {"roster", "attempt", "parent", "dtype", "shape", "words"}
_LAST = _HEAD | {"dtype", "shape", "payload"}
_KINDS = {True: (_KEY, _ROSTER, _SHARE, _LAST), False: (_ROSTER,)}
"""Sets of keys that are read here, by whether the plan uses secure sums."""
_KEYS_OF_KIND = {"key": _KEY, "roster": _ROSTER, "share": _SHARE}
_HEXADECIMAL = frozenset("0123456789abcdef")
_QUESTION = {"v", "run", "plan", "round", "sender", "nonce", "sig"}
_ANSWER = _QUESTION | {"asker", "seen"}
NONCE = 32
"""Hexadecimal digits of a nonce."""


@dataclass(frozen=True)
class Hello:
    """A greeting of a run of sums.

    Parameters
    ----------
    key : bytes
        The public half of the site's masking key of this run, 32 bytes in canonical form.
    """

    key: bytes


@dataclass(frozen=True)
class Roster:
    """The sites of the attempts from `first` on; valid once all its members have signed it.

    Parameters
    ----------
    session : bytes
        Digest of all greetings.
    epoch : int
        Number of the roster, from 0.  A site signs at most one roster of each number, and never one
        with a lower number later.
    first : int
        The first attempt (over a graph: round) for which it is valid; sites that have signed it
        send nothing more for earlier ones.
    members : tuple of str
        Distinct sites of the plan, sorted.
    parent : bytes
        Digest of the history.
    """

    session: bytes
    epoch: int
    first: int
    members: tuple[str, ...]
    parent: bytes

    @property
    def digest(self) -> bytes:
        """Digest of all entries, which shares and masks name."""
        epoch = self.epoch.to_bytes(8, "big")
        first = self.first.to_bytes(8, "big")
        members = encode_fields(*(name.encode() for name in self.members))
        return personalised_hash(
            b"roster", encode_fields(self.session, epoch, first, members, self.parent)
        )


@dataclass(frozen=True)
class Share:
    """A site's masked share of one attempt.

    Parameters
    ----------
    roster : bytes
        Digest of the roster.
    attempt : int
        Number of the attempt, from 1.
    parent : bytes
        Digest of the history.
    words : array of uint64, (k,)
        The share and its masks, modulo ``2^64``.
    """

    roster: bytes
    attempt: int
    parent: bytes
    words: Words


Content = Hello | Roster | Share | Message
"""What a site can send in an exchange."""


@dataclass(frozen=True, eq=False)
class SignedMessage:
    """A message that was checked.

    Parameters
    ----------
    sender : str
    content : Hello, Roster, Share or Message
    data : bytes
        The signed bytes.
    """

    sender: str
    content: Content
    data: bytes

    @property
    def digest(self) -> bytes:
        """Digest of the signed bytes, which becomes part of the history."""
        return personalised_hash(b"said", self.data)


def sign_content(plan: Plan, round: int, sender: str, content: Content, key: SigningKey) -> bytes:
    """Sign a message of a run, and return its bytes; the same content always gives the same bytes.

    Parameters
    ----------
    plan : Plan
    round : int
        Number of the exchange; not used for a :class:`sottovoce.deploy.messages.Message`, which
        holds it.
    sender : str
        This site.
    content : Hello, Roster, Share or Message
    key : SigningKey
        This site's.

    Returns
    -------
    bytes
        Canonical JSON.
    """
    body: dict[str, Any] = {"run": plan.run, "plan": plan.digest, "round": round, "sender": sender}
    match content:
        case Hello(public):
            body |= {"kind": "key", "key": _to_base64(public)}
        case Roster(session, epoch, first, members, parent):
            body |= {
                "kind": "roster",
                "session": session.hex(),
                "epoch": epoch,
                "first": first,
                "parent": parent.hex(),
                "members": _members_to_bits(plan, members),
            }
        case Share(roster, attempt, parent, words):
            body |= {
                "kind": "share",
                "roster": roster.hex(),
                "attempt": attempt,
                "parent": parent.hex(),
                "dtype": DTYPE,
                "shape": [len(words)],
                "words": _to_base64(np.ascontiguousarray(words, dtype=DTYPE).tobytes()),
            }
        case Message():
            return content.to_signed_bytes(key)
    return sign_body(key, DOMAIN, body)


def read_signed_message(plan: Plan, data: bytes, sender: str, round: int) -> SignedMessage:
    """Parse a message of any kind, and check it down to its signature.

    Whether it belongs to the present roster and history is checked by
    :meth:`sottovoce.deploy.sums.roster.ProtocolState.check_message`.

    Parameters
    ----------
    plan : Plan
    data : bytes
        As the hub passed it on.
    sender : str
        The site from which it must be.
    round : int
        The exchange to which it must belong.

    Returns
    -------
    SignedMessage

    Raises
    ------
    Refused
        If its form, plan, sender, exchange, content or signature is not right.
    """
    # Over a graph only rosters are of the kinds here; their canonical JSON begins with "epoch".
    if not plan.uses_secure_sums and not data.startswith(b'{"epoch":'):
        return SignedMessage(sender, read_message(plan, data, sender, round), data)
    where = f"message of {to_printable_text(sender)!r} in round {round}"
    body = parse_unverified(
        plan, where, data, *_KINDS[plan.uses_secure_sums], sender=sender, round=round
    )
    kind = body["kind"]
    if body.keys() == _LAST and kind in ("stop", "refuse"):
        return SignedMessage(sender, read_message(plan, data, sender, round), data)
    if not isinstance(kind, str) or body.keys() != _KEYS_OF_KIND.get(kind):
        raise Refused(f"{where}: its kind is not allowed here")
    check_signature(plan, where, DOMAIN, body)
    content: Content
    match kind:
        case "key":
            content = _read_hello(where, body)
        case "roster":
            content = _read_roster(plan, where, body)
        case _:
            content = _read_share(plan, where, body)
    return SignedMessage(sender, content, data)


def _read_hello(where: str, body: dict[str, Any]) -> Hello:
    """Return the greeting of a message; raises :class:`Refused` for an invalid key."""
    key = decode_base64(where, body["key"])
    try:
        check_public_key(key)
    except ValueError as error:
        raise Refused(f"{where}: its key {error}") from None
    return Hello(key)


def _read_roster(plan: Plan, where: str, body: dict[str, Any]) -> Roster:
    """Return the roster in the `body` of a message, which errors call `where`.

    Raises :class:`Refused` if an entry has another form.
    """
    members = _members_from_bits(plan, where, body["members"])
    epoch = _read_count(where, body["epoch"], 0)
    # Attempts of sums are numbered from 1; over a graph round 0 is the greeting.
    first = _read_count(where, body["first"], int(plan.uses_secure_sums))
    session = _read_digest(where, body["session"])
    parent = _read_digest(where, body["parent"])
    return Roster(session, epoch, first, members, parent)


def _read_share(plan: Plan, where: str, body: dict[str, Any]) -> Share:
    """Return the share in the `body` of a message, which errors call `where`.

    Raises :class:`Refused` for another attempt or width than the plan has.
    """
    raw = decode_base64(where, body["words"])
    attempt = _read_count(where, body["attempt"], 1)
    table = plan.exchange_table
    if attempt > table.attempts:
        raise Refused(f"{where}: is of attempt {attempt}, but the plan has {table.attempts}")
    width = table.widths[attempt - 1]
    if body["dtype"] != DTYPE or body["shape"] != [width] or len(raw) != 8 * width:
        raise Refused(f"{where}: must hold {width} words of 64 bits")
    words = np.frombuffer(raw, dtype=DTYPE).astype(np.uint64)
    return Share(
        _read_digest(where, body["roster"]), attempt, _read_digest(where, body["parent"]), words
    )


def _members_to_bits(plan: Plan, members: Sequence[str]) -> str:
    """Return the members as bits of one number, site 0 the lowest, in hexadecimal.

    Such a text cannot repeat a site.
    """
    return format(sum(1 << plan.index(name) for name in set(members)), "x")


def _members_from_bits(plan: Plan, where: str, text: object) -> tuple[str, ...]:
    """Return the members of the text of :func:`_members_to_bits`; raises :class:`Refused` for
    any other.
    """
    # four sites a digit
    longest = len(plan.sites) // 4 + 1
    if not isinstance(text, str) or not 0 < len(text) <= longest or set(text) - _HEXADECIMAL:
        raise Refused(f"{where}: its members are not sites of the plan")
    bits = int(text, 16)
    # one text for each roster: no zeros in front, and no bits beyond the last site
    if format(bits, "x") != text or bits >> len(plan.sites):
        raise Refused(f"{where}: its members are not sites of the plan")
    return tuple(sorted(name for i, name in enumerate(plan.names) if bits >> i & 1))


def _read_digest(where: str, text: object) -> bytes:
    """Return a digest of 32 bytes; raises :class:`Refused` for any other text."""
    if not isinstance(text, str) or len(text) != 64 or set(text) - _HEXADECIMAL:
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    return bytes.fromhex(text)


def _read_count(where: str, value: object, least: int) -> int:
    """Return a whole number, at least `least`; raises :class:`Refused` for anything else."""
    if type(value) is not int or not least <= value < 2**63:
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    return value


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# Two messages where there may be one


def make_proof(first: bytes, second: bytes) -> bytes:
    """Return the proof that a site signed two different messages for one exchange: both of them."""
    return canonical_json(
        {"first": first.decode("ascii"), "second": second.decode("ascii")}
    ).encode()


def read_proof(plan: Plan, data: bytes, sender: str, longest: int) -> int | None:
    """Check a proof that a site signed two different messages for one exchange.

    Parameters
    ----------
    plan : Plan
    data : bytes
        Entry of an inbox for the site: its message, or a proof against it.
    sender : str
        The accused site.
    longest : int
        The most bytes of a proof.

    Returns
    -------
    int or None
        The exchange of the two messages; None if `data` does not begin like a proof.

    Raises
    ------
    Refused
        If it begins like a proof but is not a valid one.
    """
    if not data.startswith(b'{"first":'):
        return None
    where = f"proof against {to_printable_text(sender)!r}"
    try:
        body = parse_json(data, longest)
        pair = []
        if len(body) == 2:
            pair = [body[word].encode("ascii") for word in ("first", "second")]
        rounds = [parse_json(one, longest)["round"] for one in pair]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(f"{where}: is not a valid proof") from None
    if len(pair) != 2 or pair[0] == pair[1] or type(rounds[0]) is not int or rounds[0] != rounds[1]:
        raise Refused(f"{where}: is not a valid proof")
    for one in pair:
        read_signed_message(plan, one, sender, rounds[0])
    return int(rounds[0])


# Questions of a site that was started again


@dataclass(frozen=True)
class Question:
    """A restarted site's question: in which exchange have you seen my last message?

    Parameters
    ----------
    sender : str
        The restarted site.
    round : int
        The highest exchange in its own journal.
    nonce : str
        32 random hexadecimal digits, new for every question, so that old attestations are not
        accepted.
    """

    sender: str
    round: int
    nonce: str

    def to_signed_bytes(self, plan: Plan, key: SigningKey) -> bytes:
        """Return the signed question, for the run of `plan`."""
        return sign_body(key, _ASKING, {"run": plan.run, "plan": plan.digest} | vars(self))


@dataclass(frozen=True)
class Attestation:
    """A site's answer to the question of a restarted site.

    Parameters
    ----------
    sender : str
        The site that answers.
    round, nonce, asker
        Entries of the question, with `asker` its sender.
    seen : int
        The highest exchange in which `sender` has a message of `asker`; -1 for none.
    """

    sender: str
    round: int
    nonce: str
    asker: str
    seen: int

    def to_signed_bytes(self, plan: Plan, key: SigningKey) -> bytes:
        """Return the signed answer, for the run of `plan`."""
        return sign_body(key, _ANSWERING, {"run": plan.run, "plan": plan.digest} | vars(self))


def read_question(plan: Plan, data: bytes, asker: str) -> Question:
    """Parse the question of a restarted site, and check it down to its signature.

    Parameters
    ----------
    plan : Plan
    data : bytes
    asker : str
        The site from which it must be.

    Returns
    -------
    Question

    Raises
    ------
    Refused
        If it is not that of `asker` in this run.
    """
    body = _read_question_or_answer(
        plan, f"question of {to_printable_text(asker)!r}", data, _QUESTION, asker, _ASKING
    )
    return Question(asker, body["round"], body["nonce"])


def read_attestation(plan: Plan, data: bytes, sender: str, question: Question) -> Attestation:
    """Parse another site's answer to a question, and check it down to its signature.

    Parameters
    ----------
    plan : Plan
    data : bytes
    sender : str
        The site from which it must be.
    question : Question
        The question to which it must belong, nonce included.

    Returns
    -------
    Attestation

    Raises
    ------
    Refused
        If it is not that of `sender`, or answers another question.
    """
    where = f"answer of {to_printable_text(sender)!r}"
    body = _read_question_or_answer(plan, where, data, _ANSWER, sender, _ANSWERING)
    asked = (question.round, question.nonce, question.sender)
    if (body["round"], body["nonce"], body["asker"]) != asked or type(body["seen"]) is not int:
        raise Refused(f"{where}: answers another question")
    return Attestation(sender, *asked, body["seen"])


def _read_question_or_answer(
    plan: Plan, where: str, data: bytes, keys: set[str], sender: str, domain: bytes
) -> dict[str, Any]:
    """Parse a question or an attestation, and check it down to its signature.

    Parameters
    ----------
    plan : Plan
    where : str
        The message as errors call it.
    data : bytes
    keys : set of str
        The keys that it must have.
    sender : str
        The site from which it must be.
    domain : bytes
        Prefix of the signed text.

    Returns
    -------
    dict
        The message, without its signature.

    Raises
    ------
    Refused
        If it is not such a message of `sender` in this run.
    """
    body = parse_unverified(plan, where, data, keys, sender=sender, round=None)
    nonce = body["nonce"]
    if not isinstance(nonce, str) or len(nonce) != NONCE or set(nonce) - _HEXADECIMAL:
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    check_signature(plan, where, domain, body)
    return body
