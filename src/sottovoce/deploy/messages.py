"""Signed messages between sites: JSON objects of plain data, checked before anything uses them.

The protocol, in the order of a run over a graph: every site sends a greeting (kind ``hello``) for
round 0, a vector for each exchange (``release``), and its last model (``stop``, or ``refuse`` if
it cannot go on).  Messages of secure sums are in :mod:`sottovoce.deploy.sums.messages`.

A message has the keys ``v, run, plan, round, sender, kind, dtype, shape, payload, sig``: the
payload is little-endian doubles in base64, the signature is Ed25519 over the canonical JSON of the
other keys, after a *domain*: a prefix that differs between kinds of messages, so that none can be
taken for another.  A site that leaves signs a :class:`Farewell`, ``v, run, plan, round, sender,
reason, sig``, in another domain.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..errors import Refused
from ..util.plain import canonical_json
from ..util.typing import Any, Array
from .keys import SigningKey, verify_signature
from .limits import PROOFS, longest_inbox_bytes, longest_message_bytes
from .plan import Plan
from .strict import parse_json
from .transport import to_printable_text

VERSION = 1
"""Version of the form of all messages, their key ``v``."""
DTYPE = "<f8"
"""Type of the numbers of a payload: little-endian doubles."""
Kind = Literal["hello", "release", "refuse", "stop"]
"""``hello``: a greeting, which agrees to the plan; ``release``: a vector of a round; ``refuse``:
the last model of a site that cannot go on; ``stop``: the last model of one that is done.
"""
_KEYS = {"v", "run", "plan", "round", "sender", "kind", "dtype", "shape", "payload", "sig"}
# Why a run between sites stopped, in addition to the reasons of `sottovoce.runs.engine`.
HUB = "the hub ended the run"
OUT = "the other sites go on without this one"
Reason = Literal[
    "done",
    "its budget is spent",
    "the hub ended the run",
    "too few sites are left",
    "it cannot go on",
]
"""Why a site sends no more: a closed list, because a free text could reveal something about its
rows.
"""
COMPLETE: tuple[Reason, ...] = ("done", "its budget is spent")
"""Reasons after which the site has done all that the plan asks of it."""
DECLINES = ("does not agree", "cannot pay from its ledger")
"""Why a site takes no part in a plan: a closed list for the same reason."""
_FAREWELL = {"v", "run", "plan", "round", "sender", "reason", "sig"}
"""Keys of a farewell of earlier versions."""
_MARKED = _FAREWELL | {"ledger"}
"""Keys of a farewell with the hash of the site's ledger."""
OTHER_MEAN = (
    "site {!r} moves its rows by another mean than this site, so the run cannot "
    "go on; compare the releases of the mean"
)
NOT_OF_THIS_SCHEMA = "has another form than messages of this version"
_OTHER_PLAN = "belongs to another plan; compare the digests with `sottovoce site check`"
_OWN = 4096
"""The most bytes of a greeting or a farewell."""
_DOMAIN = b"sottovoce message 1\n"
"""Prefix of the signed text of a message."""
_LAST_DOMAIN = b"sottovoce farewell 1\n"
"""Prefix of the signed text of a farewell."""


@dataclass(frozen=True)
class Message:
    """A message that was checked, or is about to be signed.

    Parameters
    ----------
    run, plan : str
        Name of the run, and digest of its plan.
    round : int
        Number of the exchange.
    sender : str
    kind : {"hello", "release", "refuse", "stop"}
        See :data:`Kind`.
    payload : array (k,)
        The vector; without entries in a greeting.
    """

    run: str
    plan: str
    round: int
    sender: str
    kind: Kind
    payload: Array

    def to_signed_bytes(self, key: SigningKey) -> bytes:
        """Return the signed bytes."""
        doubles = np.ascontiguousarray(self.payload, dtype=DTYPE)
        payload = base64.b64encode(doubles.tobytes()).decode()
        body = vars(self) | {"dtype": DTYPE, "shape": list(self.payload.shape), "payload": payload}
        return sign_body(key, _DOMAIN, body)


@dataclass(frozen=True)
class Farewell:
    """A site's statement that it sends nothing from a round on.

    Parameters
    ----------
    run, plan : str
        Name of the run, and digest of its plan.
    round : int
        The first exchange for which it sends nothing.
    sender : str
        The site that leaves.
    reason : str
        See :data:`Reason`.
    ledger : str, optional
        Hash of the last record of the site's ledger at that moment.  The site itself uses it later
        to notice an older copy of its ledger; others learn nothing from it.  Farewells of earlier
        versions have none.
    """

    run: str
    plan: str
    round: int
    sender: str
    reason: Reason
    ledger: str | None = None

    def to_signed_bytes(self, key: SigningKey) -> bytes:
        """Return the signed bytes."""
        body = {name: value for name, value in vars(self).items() if value is not None}
        return sign_body(key, _LAST_DOMAIN, body)


def sign_body(key: SigningKey, domain: bytes, body: dict[str, Any]) -> bytes:
    """Sign a message, and return its bytes; the same content always gives the same bytes.

    Parameters
    ----------
    key : SigningKey
    domain : bytes
        Prefix of the signed text, which tells kinds of messages apart.
    body : dict
        Plain data without version and signature.

    Returns
    -------
    bytes
        Canonical JSON of the body with the keys ``v`` and ``sig``.
    """
    body = body | {"v": VERSION}
    signature = base64.b64encode(key.sign(domain + canonical_json(body).encode())).decode()
    return canonical_json(body | {"sig": signature}).encode()


def longest_message(plan: Plan) -> int:
    """Return the most bytes of a message of this plan."""
    return longest_message_bytes(plan.exchange_table.widest_message)


def longest_inbox(plan: Plan) -> int:
    """Return the most bytes of a site's inbox of one round."""
    degree = int(plan.graph.degree.max())
    if plan.exchange_table.any_heard_by_all:
        degree = len(plan.sites) - 1
    # room for what is not a vector: signed rosters, and notices of missing sites
    rosters = longest_inbox_bytes(0, len(plan.sites))
    return longest_inbox_bytes(plan.exchange_table.widest_message, degree + PROOFS) + rosters


def check_payload(plan: Plan, kind: str, payload: Array, round: int) -> None:
    """Check a vector against what the plan says of its exchange.

    Parameters
    ----------
    plan : Plan
    kind : {"hello", "release", "refuse", "stop"}
        A greeting has no entries; the last two carry a last model.
    payload : array (k,)
    round : int
        Number of the exchange, which gives the width of a release.

    Raises
    ------
    Refused
        If the shape is another one, an entry is not finite, or the Euclidean norm passes the
        plan's public cap.
    """
    agreed = plan.exchange_table.last_model
    if kind == "release":
        agreed = plan.exchange_table.release(round)
    expected = (agreed.width,)
    if kind == "hello":
        expected = (0,)
    if payload.shape != expected:
        raise Refused(f"payload: must have shape {expected}, but has {payload.shape}")
    if not np.all(np.isfinite(payload)):
        raise Refused("payload: holds NaN or infinite entries")
    cap = agreed.norm_cap
    # The largest entry is compared first, so that no square in the norm can overflow.
    largest = np.max(np.abs(payload), initial=0.0)
    if not (largest <= cap and np.linalg.norm(payload) <= cap):
        raise Refused(f"payload: its norm is above the plan's cap of {cap:g}")


def check_plan_digest(own: str, hubs: object) -> None:
    """Raise :class:`Refused` if the digests of a site's `own` plan and of the hub's plan differ."""
    if own != hubs:
        raise Refused(f"plan={own!r}: {_OTHER_PLAN}")


def read_message(plan: Plan, data: bytes, sender: str, round: int) -> Message:
    """Parse a message of a run over a graph, and check it down to its signature.

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
    Message

    Raises
    ------
    Refused
        If it is not in canonical form, of another plan, sender or round, not signed by the
        sender, or its vector is not allowed (:func:`check_payload`).
    """
    where = f"message of {to_printable_text(sender)!r} in round {round}"
    body = parse_unverified(plan, where, data, _KEYS, sender=sender, round=round)
    if (
        body["kind"] not in get_args(Kind)
        or (body["kind"] == "hello") != (round == 0)
        or body["dtype"] != DTYPE
    ):
        raise Refused(f"{where}: its kind or number type is not allowed here")
    check_signature(plan, where, _DOMAIN, body)
    raw = decode_base64(where, body["payload"])
    if not isinstance(body["shape"], list) or len(raw) % 8 or body["shape"] != [len(raw) // 8]:
        raise Refused(f"{where}: its shape does not match its payload")
    payload = np.frombuffer(raw, dtype=DTYPE).astype(float)
    try:
        check_payload(plan, body["kind"], payload, round)
    except Refused as error:
        raise Refused(f"{where}: {error}") from None
    return Message(plan.run, plan.digest, round, sender, body["kind"], payload)


def read_farewell(plan: Plan, data: bytes, sender: str, round: int) -> Farewell:
    """Parse the farewell of a site, and check it down to its signature.

    Parameters
    ----------
    plan : Plan
    data : bytes
    sender : str
        The site from which it must be.
    round : int
        The first exchange for which the site sends nothing.

    Returns
    -------
    Farewell

    Raises
    ------
    Refused
        If it is not that of `sender` for this point of this run.
    """
    where = f"farewell of {to_printable_text(sender)!r} before round {round}"
    body = parse_unverified(
        plan,
        where,
        data,
        _FAREWELL,
        _MARKED,
        sender=sender,
        round=round,
        last=plan.exchange_table.last + 1,
    )
    if body["reason"] not in get_args(Reason):
        raise Refused(f"{where}: its reason must be one of {', '.join(get_args(Reason))}")
    if not isinstance(body.get("ledger", ""), str):
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    check_signature(plan, where, _LAST_DOMAIN, body)
    return Farewell(plan.run, plan.digest, round, sender, body["reason"], body.get("ledger"))


def read_own_message(data: bytes, name: str, key: str, *domains: bytes) -> dict[str, Any] | None:
    """Return the content of a message that a site signed in any run, without need of its plan.

    Parameters
    ----------
    data : bytes
        A text that the site may have signed.
    name : str
        The site.
    key : str
        Its public key, in base64.
    *domains : bytes
        Prefixes of signed texts that are allowed, in addition to those of messages and farewells
        over a graph.

    Returns
    -------
    dict or None
        The message without its signature; None if the site did not sign it with this key.
    """
    try:
        body = dict(parse_json(data, _OWN))
        signature = base64.b64decode(body.pop("sig"), validate=True)
        if body["sender"] != name or not isinstance(body["run"], str):
            return None
    except (ValueError, TypeError, LookupError):
        return None
    for domain in (_LAST_DOMAIN, _DOMAIN, *domains):
        with suppress(ValueError):
            verify_signature(
                base64.b64decode(key), signature, domain + canonical_json(body).encode()
            )
            return body
    return None


def parse_unverified(
    plan: Plan,
    where: str,
    data: bytes,
    *keys: set[str],
    sender: str,
    round: int | None,
    last: int | None = None,
) -> dict[str, Any]:
    """Parse a message, and check all but its signature.

    Parameters
    ----------
    plan : Plan
    where : str
        The message as errors call it.
    data : bytes
    *keys : set of str
        The sets of keys that are allowed; the message must have exactly one of them.
    sender : str
        The site from which it must be.
    round : int, optional
        The exchange to which it must belong; None takes any.
    last : int, optional
        The highest round that is allowed; by default the plan's last.

    Returns
    -------
    dict
        The message, its signature included.

    Raises
    ------
    Refused
        If its length, form, version, plan, sender or round is not right.
    """
    if len(data) > longest_message(plan):
        raise Refused(f"{where}: has {len(data)} bytes, more than any message of this plan")
    body = _read_canonical(data, longest_message(plan), keys)
    if body is None:
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    # The type counts too: to Python True and 1.0 equal 1.
    is_number = type(body["v"]) is int
    if body["v"] != VERSION or not is_number:
        shown = body["v"] if is_number else "?"
        raise Refused(
            f"{where}: has version {shown}, but this is version {VERSION}; use the same "
            "release everywhere"
        )
    if body["run"] != plan.run or body["plan"] != plan.digest:
        raise Refused(f"{where}: {_OTHER_PLAN}")
    if body["sender"] != sender or sender not in plan.names:
        raise Refused(f"{where}: names another sender")
    latest = plan.exchange_table.last
    if last is not None:
        latest = last
    if not _is_of_round(body["round"], round, latest):
        raise Refused(f"{where}: is of another round")
    return body


def _read_canonical(data: bytes, most: int, keys: Sequence[set[str]]) -> dict[str, Any] | None:
    """Parse a canonical JSON object with one of these sets of keys; None for anything else.

    `most` is the number of bytes allowed.  A text that differs from the canonical JSON of its
    content gives None, too.
    """
    try:
        body = parse_json(data, most)
        if not isinstance(body, dict) or not any(body.keys() == one for one in keys):
            return None
        # Each content has one text only, so that a signature of the content covers every byte.
        is_canonical = canonical_json(body).encode() == data
    except (ValueError, TypeError, RecursionError):
        return None
    if not is_canonical:
        return None
    return body


def _is_of_round(found: object, round: int | None, latest: int) -> bool:
    """Return True if `found` is the number `round`, and at most `latest`.

    If `round` is None, any whole number will do.
    """
    if type(found) is not int:
        return False
    return round is None or 0 <= found == round <= latest


def check_signature(plan: Plan, where: str, domain: bytes, body: dict[str, Any]) -> None:
    """Remove the signature from a message, and check it with its sender's key in the plan.

    Parameters
    ----------
    plan : Plan
    where : str
        The message as errors call it.
    domain : bytes
        Prefix of the signed text.
    body : dict
        The message; loses its key ``sig``.

    Raises
    ------
    Refused
        If its sender did not sign the rest in this domain.
    """
    sender = body["sender"]
    signature = decode_base64(where, body.pop("sig"))
    try:
        key = base64.b64decode(plan.sites[plan.index(sender)].key)
        verify_signature(key, signature, domain + canonical_json(body).encode())
    except ValueError as error:
        raise Refused(f"{where}: is not signed by {sender!r}") from error


def decode_base64(where: str, text: object) -> bytes:
    """Decode a text in canonical base64; raises :class:`Refused` for any other text.

    `where` names the message in the error.
    """
    try:
        raw = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raw = None
    # The last character of a text may hold bits that no byte needs: several texts decode to the
    # same bytes, and only one of them is accepted.
    if raw is None or base64.b64encode(raw).decode() != text:
        raise Refused(f"{where}: {NOT_OF_THIS_SCHEMA}")
    return raw
