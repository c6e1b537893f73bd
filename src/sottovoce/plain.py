"""Plain data: the one JSON text of a value, infinities in words, and the hash that texts are told apart by."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np

from .errors import InvalidInput
from .typing import Any

_PERSON = b"sottovoce ledger"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise ValueError(type(value).__name__)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def canonical(value: Any) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, shortest floats that read back exactly."""
    try:
        return _ENCODER.encode(value)
    except ValueError as error:
        raise InvalidInput("event", None, "parameters must be finite numbers or texts", "see its attributes") from error


def jsonable(value: Any) -> Any:
    """Plain data in which infinities are the texts ``inf`` and ``-inf``, since JSON has none."""
    if isinstance(value, dict):
        return {k: jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def keyed_hash(*parts: bytes, key: bytes = b"") -> bytes:
    """BLAKE2b of 32 bytes, of this library's own kind."""
    return hashlib.blake2b(b"".join(parts), digest_size=32, key=key, person=_PERSON).digest()
