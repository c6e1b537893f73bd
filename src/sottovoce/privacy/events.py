"""What happened, as parameters.  Never what it costs: that is the accountants' business.

An event holds, for every node it concerns, the parameters that are necessary and sufficient to price one release.
Arrays are flat, one entry a node (a real site has one).  Published events never change their meaning: a new mechanism
is a new class.  ``source`` says where the mechanism and its proof are.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from ..errors import UnknownEvent
from ..typing import Any, Array

_KINDS: dict[str, type[Event]] = {}


@dataclass(frozen=True, eq=False)
class Event(ABC):
    """One release of every node concerned.  Subclasses are frozen and register under their class name."""

    source: str
    """Paper number and place, or the bound's name in :mod:`sottovoce.privacy.bounds`."""

    nodes: ClassVar[int]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                flat = np.array(value, dtype=float).ravel()
                flat.setflags(write=False)
                object.__setattr__(self, field.name, flat)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the class name under ``event``."""
        plain: dict[str, Any] = {"event": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            plain[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
        return plain


def from_dict(plain: dict[str, Any]) -> Event:
    """Inverse of :meth:`Event.to_dict`.

    Raises
    ------
    UnknownEvent
        If no event of that name exists: a ledger from a newer version is never guessed at.
    """
    values = dict(plain)
    name = values.pop("event", None)
    if name not in _KINDS:
        raise UnknownEvent(f"event={name!r}: this version knows {sorted(_KINDS)}; use the version that wrote it")
    arrays: dict[str, Any] = {k: np.asarray(v, dtype=float) if isinstance(v, list) else v for k, v in values.items()}
    return _KINDS[name](**arrays)


@dataclass(frozen=True, eq=False)
class Unprotected(Event):
    """A function of the rows left the node without noise.  ``rows`` per node are kept to size the event."""

    rows: Array


@dataclass(frozen=True, eq=False)
class SphericalObjectivePerturbation(Event):
    """Minimiser of a local objective with a random linear term of density ``exp(-beta ||b||)`` in sum scale.

    Attributes
    ----------
    beta : array (N,)
        Rate of the noise in the objective, sum scale.
    K : array (N,)
        Strong convexity in sum scale of everything except the loss.
    bend_bound : float
    logistic : bool
        Whether ``bend = |slope| (1 - |slope|)``.
    delta_gradient : float
        2 under replace-one, 1 under zero-out.
    dimension : int
    error : array (N,)
        Largest distance between the solver's answer and the exact minimiser.
    beta_release : array (N,)
        Rate of the spherical noise added to the answer; 0 where none is added (printed forms), and then the price
        holds for exact minimisation only.
    claimed : array (N,), optional
        What the paper claims for this release, in pure epsilon.
    """

    beta: Array
    K: Array
    bend_bound: float
    logistic: bool
    delta_gradient: float
    dimension: int
    error: Array
    beta_release: Array
    claimed: Array | None = None
