"""What one site says to another: plain data, signed, and checked before anything else looks at it.

A message is one JSON object with the keys ``v, run, plan, round, sender, kind, dtype, shape, payload, sig``.  The
payload is little-endian doubles in base64; the signature is Ed25519 over the canonical JSON of all other keys.  Nothing
in a message is ever executed or unpickled.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..errors import Refused
from ..privacy.chain import canonical
from ..typing import Any, Array
from .keys import SigningKey, verify
from .plan import Plan

VERSION = 1
DTYPE = "<f8"
Kind = Literal["hello", "release", "refuse", "stop"]
"""Agreement on the plan; a vector of a round; the last model of a site that cannot go on; of one that is done."""
_KEYS = {"v", "run", "plan", "round", "sender", "kind", "dtype", "shape", "payload", "sig"}
_OTHER_PLAN = "is of another plan; compare the digests with `sottovoce site check`"
_DOMAIN = b"sottovoce message 1\n"


@dataclass(frozen=True)
class Message:
    """A message that was checked, or is about to be sealed."""

    run: str
    plan: str
    round: int
    sender: str
    kind: Kind
    payload: Array

    def seal(self, key: SigningKey) -> bytes:
        """The signed bytes.  The same message and key give the same bytes."""
        body = {
            "v": VERSION, "run": self.run, "plan": self.plan, "round": self.round, "sender": self.sender,
            "kind": self.kind, "dtype": DTYPE, "shape": list(self.payload.shape),
            "payload": base64.b64encode(np.ascontiguousarray(self.payload, dtype=DTYPE).tobytes()).decode(),
        }  # fmt: skip
        return canonical(body | {"sig": base64.b64encode(key.sign(_signed(body))).decode()}).encode()


def _signed(body: dict[str, Any]) -> bytes:
    return _DOMAIN + canonical(body).encode()


def longest(plan: Plan) -> int:
    """Bytes of a message of this plan at most."""
    return 2048 + 12 * plan.d


def check_payload(plan: Plan, kind: str, payload: Array) -> None:
    """Refuse a vector of the wrong shape, one that is not finite, or one beyond the public cap.

    Raises
    ------
    Refused
    """
    expected = (0,) if kind == "hello" else (plan.d,)
    if payload.shape != expected:
        raise Refused(f"payload: must have shape {expected}, and has {payload.shape}")
    if not np.all(np.isfinite(payload)):
        raise Refused("payload: holds NaN or infinite entries")
    cap = plan.norm_cap
    if not (np.max(np.abs(payload), initial=0.0) <= cap and np.linalg.norm(payload) <= cap):  # no square overflows
        raise Refused(f"payload: is longer than the plan's cap of {cap:g}")


def agree(own: str, hubs: object) -> None:
    """Refuse a site whose plan has another digest than the hub's.

    Raises
    ------
    Refused
    """
    if own != hubs:
        raise Refused(f"plan={own!r}: {_OTHER_PLAN}")


def read(plan: Plan, data: bytes, sender: str, round: int) -> Message:
    """Check a message as that of `sender` in `round` of `plan`.

    Raises
    ------
    Refused
        If anything differs from what the plan allows, the signature included.
    """
    where = f"message of {sender!r} in round {round}"
    if len(data) > longest(plan):
        raise Refused(f"{where}: has {len(data)} bytes, more than any of this plan")
    try:
        body = json.loads(data)
        known = isinstance(body, dict) and body.keys() == _KEYS
        known = known and canonical(body).encode() == data  # one text a message: a signature vouches for every byte
    except (ValueError, TypeError, RecursionError):
        known = False
    if not known:
        raise Refused(f"{where}: is no message of this schema")
    if body["v"] != VERSION or isinstance(body["v"], bool):
        raise Refused(f"{where}: has version {body['v']!r}, and this is {VERSION}; use the same release everywhere")
    if body["run"] != plan.run or body["plan"] != plan.digest:
        raise Refused(f"{where}: {_OTHER_PLAN}")
    if body["sender"] != sender or sender not in plan.names:
        raise Refused(f"{where}: names another sender")
    if body["round"] != round or type(body["round"]) is not int:
        raise Refused(f"{where}: is of another round")
    if body["kind"] not in get_args(Kind) or (body["kind"] == "hello") != (round == 0) or body["dtype"] != DTYPE:
        raise Refused(f"{where}: has a kind or type of number that does not belong there")
    signature, raw = _bytes(where, body.pop("sig")), _bytes(where, body["payload"])
    member = plan.sites[plan.index(sender)]
    try:
        verify(base64.b64decode(member.key), signature, _signed(body))
    except ValueError as error:
        raise Refused(f"{where}: is not signed by {sender!r}") from error
    if not isinstance(body["shape"], list) or len(raw) % 8 or body["shape"] != [len(raw) // 8]:
        raise Refused(f"{where}: its shape is not that of its payload")
    payload = np.frombuffer(raw, dtype=DTYPE).astype(float)
    try:
        check_payload(plan, body["kind"], payload)
    except Refused as error:
        raise Refused(f"{where}: {error}") from None
    return Message(plan.run, plan.digest, round, sender, body["kind"], payload)


def _bytes(where: str, text: object) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raw = None
    if raw is None or base64.b64encode(raw).decode() != text:  # the last bits of a text may say nothing
        raise Refused(f"{where}: is no message of this schema")
    return raw
