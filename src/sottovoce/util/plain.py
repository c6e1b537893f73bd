"""Canonical JSON and hashes of plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

import numpy as np

from ..errors import InvalidInput
from .typing import Any

_PERSON = b"sottovoce ledger"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise ValueError(type(value).__name__)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def as_python_numbers(value: Any) -> Any:
    """NumPy's numbers, also those of a tuple, as Python's: records and keys of runs are JSON."""
    if isinstance(value, tuple):
        return tuple(map(as_python_numbers, value))
    return value.item() if isinstance(value, np.generic) else value


def canonical(value: Any) -> str:
    """The canonical JSON text of `value`: sorted keys, no spaces, shortest floats that read back
    exactly.
    """
    try:
        return _ENCODER.encode(value)
    except ValueError as error:
        raise InvalidInput(
            "event", None, "parameters must be finite numbers or texts", "see its attributes"
        ) from error


def jsonable(value: Any) -> Any:
    """Plain data in which infinities are the texts ``inf`` and ``-inf``, since JSON has none."""
    if isinstance(value, dict):
        return {k: jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def json_text(value: Any, indent: int | None = None) -> str:
    """Plain data as a JSON text: infinities are texts, and what is no number is null."""
    return json.dumps(_known(jsonable(value)), allow_nan=False, indent=indent)


def _known(value: Any) -> Any:
    """Plain data with None in place of NaN."""
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


HOLDER_ONLY = "holder_only"
"""Key of what a release holds back: functions of the rows without noise, for the holder of the
rows alone.
"""


def shown_of(
    released: dict[str, Any], held_back: dict[str, Any], *, release: bool, holder: bool
) -> dict[str, Any]:
    """Select what a command may print as JSON: of a release what was released, of a simulation all.

    Parameters
    ----------
    released : dict
        Public facts and released numbers.
    held_back : dict
        Functions of the rows without noise.
    release : bool
        Whether noise came from the operating system.
    holder : bool
        Whether a release also shows what is held back, under :data:`HOLDER_ONLY`.

    Returns
    -------
    dict
        A release has all keys of a simulation on its first level; what is not shown is None.
    """
    if not release:
        return with_held_back(released, held_back)
    # so that readers find the same keys
    empty = dict.fromkeys(sorted(held_back.keys() - released.keys()))
    return released | empty | ({HOLDER_ONLY: held_back} if holder else {})


def with_held_back(released: dict[str, Any], held_back: dict[str, Any]) -> dict[str, Any]:
    """Merge what is held back into what is released; dicts within are merged too."""
    joined = dict(released)
    for key, value in held_back.items():
        below = joined.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            joined[key] = with_held_back(below, value)
        else:
            joined[key] = value
    return joined


def keyed_hash(*parts: bytes, key: bytes = b"") -> bytes:
    """Compute a BLAKE2b hash of 32 bytes, personalised for this library."""
    return hashlib.blake2b(b"".join(parts), digest_size=32, key=key, person=_PERSON).digest()


def digest_of(*public: Any) -> bytes:
    """Compute a digest of public values, 16 bytes.

    Values are numbers, texts, arrays, dataclasses, and lists and dicts of these; anything else is a
    TypeError.  Ledgers hold such digests, also as names of runs: never digest private rows, and
    never change the digest of a value.
    """
    return keyed_hash(b"public", canonical(_injective(public)).encode())[:16]


def _injective(value: Any) -> Any:
    """JSON that differs where values do: floats with all bits, arrays by shape and hash,
    dataclasses by class.
    """
    if isinstance(value, np.ndarray):
        # 0 has one sign
        numbers = np.ascontiguousarray(value.astype("<f8", casting="same_kind")) + 0.0
        return {"array": list(value.shape), "hash": keyed_hash(numbers.tobytes()).hex()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": _injective(entries)}
    if isinstance(value, dict):
        return {str(k): _injective(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_injective(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float | bytes):
        return {type(value).__name__: value.hex()}
    if isinstance(value, str | int | None):
        return value
    raise TypeError(f"no digest of a {type(value).__name__}")
