"""Canonical JSON and digests of plain data, which are stored in ledgers and sent between sites."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

import numpy as np

from ..errors import InvalidInput
from .typing import Any

_PERSON = b"sottovoce ledger"


def _numpy_scalar_to_python(value: object) -> object:
    """Return a NumPy scalar as Python's; a ValueError for what JSON lacks."""
    if isinstance(value, np.generic):
        return value.item()
    raise ValueError(type(value).__name__)


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, default=_numpy_scalar_to_python
)


def as_python_numbers(value: Any) -> Any:
    """Convert NumPy's numbers, also those of a tuple, to Python's.

    Records and keys of runs are JSON, which knows no others.
    """
    if isinstance(value, tuple):
        return tuple(map(as_python_numbers, value))
    if isinstance(value, np.generic):
        return value.item()
    return value


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of `value`.

    Keys are sorted, there are no spaces, and floats are the shortest that read back exactly.  An
    InvalidInput for numbers that are not finite, and for what JSON lacks.
    """
    try:
        return _ENCODER.encode(value)
    except ValueError as error:
        raise InvalidInput(
            "event",
            None,
            "its parameters, and those of any record, must be finite numbers or texts",
            "see the attributes of its class",
        ) from error


def infinities_to_text(value: Any) -> Any:
    """Return plain data with infinities as the texts ``inf`` and ``-inf``, since JSON has none."""
    if isinstance(value, dict):
        return {key: infinities_to_text(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [infinities_to_text(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def format_json_text(value: Any, indent: int | None = None) -> str:
    """Return plain data as a JSON text: infinities are texts, and NaN is null."""
    return json.dumps(
        _replace_nan_by_none(infinities_to_text(value)), allow_nan=False, indent=indent
    )


def _replace_nan_by_none(value: Any) -> Any:
    """Return plain data with None in place of NaN."""
    if isinstance(value, dict):
        return {key: _replace_nan_by_none(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replace_nan_by_none(entry) for entry in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


HOLDER_ONLY = "holder_only"
"""Key in JSON of the numbers that a release does not publish: functions of the rows without noise,
for the holder of the rows only.
"""


def select_shown_figures(
    released: dict[str, Any], held_back: dict[str, Any], *, release: bool, holder: bool
) -> dict[str, Any]:
    """Select what a command may print as JSON: for a release only what was released, for a
    simulation everything.

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
        return merge_held_back_figures(released, held_back)
    # So that a reader finds the same keys in a release and in a simulation.
    shown = released | dict.fromkeys(sorted(held_back.keys() - released.keys()))
    if holder:
        shown[HOLDER_ONLY] = held_back
    return shown


def merge_held_back_figures(released: dict[str, Any], held_back: dict[str, Any]) -> dict[str, Any]:
    """Merge what is held back into what is released; dicts within are merged too."""
    joined = dict(released)
    for key, value in held_back.items():
        below = joined.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            joined[key] = merge_held_back_figures(below, value)
        else:
            joined[key] = value
    return joined


def personalised_hash(*parts: bytes, key: bytes = b"") -> bytes:
    """Compute a BLAKE2b hash of 32 bytes, personalised for this library."""
    return hashlib.blake2b(b"".join(parts), digest_size=32, key=key, person=_PERSON).digest()


def digest_public_values(*public: Any) -> bytes:
    """Compute a digest of public values, 16 bytes.

    Values are numbers, texts, arrays, dataclasses, and lists and dicts of these; anything else is a
    TypeError.  Ledgers hold such digests, also as names of runs: never digest private rows, and
    never change the digest of a value.
    """
    return personalised_hash(b"public", canonical_json(_to_injective_json(public)).encode())[:16]


def _to_injective_json(value: Any) -> Any:
    """Return JSON that differs where values do.

    Floats have all bits, arrays shape and hash, dataclasses the name of their class.
    """
    if isinstance(value, np.ndarray):
        # The sum turns -0 into 0, which are equal numbers.
        numbers = np.ascontiguousarray(value.astype("<f8", casting="same_kind")) + 0.0
        return {"array": list(value.shape), "hash": personalised_hash(numbers.tobytes()).hex()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": _to_injective_json(entries)}
    if isinstance(value, dict):
        return {str(key): _to_injective_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_injective_json(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    # With the name of its type, so that a float is not a text of the same characters.
    if isinstance(value, float | bytes):
        return {type(value).__name__: value.hex()}
    if isinstance(value, str | int | None):
        return value
    raise TypeError(f"no digest of a {type(value).__name__}")
