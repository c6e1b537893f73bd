"""A run's public starting point: an earlier run's model, a model of public rows, or a vector.

The run is the same algorithm on ``v = w - start`` (:class:`sottovoce.runs.engine.Place`), so its
regulariser pulls to the start.  Privacy loss and noise do not change, because they do not depend on
public vectors.  The guarantee is about this run's rows; :attr:`Start.caveat` tells in every privacy
statement what the start itself was computed from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, get_args

import numpy as np

from ..errors import InvalidInput
from ..privacy.statement import ceil_text
from ..util.codec import Unreadable, record_from_plain, record_to_plain
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any, Array
from .config import RunConfig

Kind = Literal["given", "public", "run"]


@dataclass(frozen=True, eq=False)
class Start:
    """A starting point and what it was computed from.

    Parameters
    ----------
    vector : array (d,)
        A model, of finite numbers.
    kind : {"given", "public", "run"}
        A vector given as public, the minimiser over public rows, or the model of an earlier run.
    epsilon, delta : float, optional
        Privacy loss of the earlier run by its record, its own start included; an epsilon of None
        means that it has no guarantee.
    simulated : bool
        Whether the earlier run's noise can be repeated, so that its model protects nothing.
    """

    vector: Array
    kind: Kind = "given"
    epsilon: float | None = None
    delta: float = 0.0
    simulated: bool = False

    def __post_init__(self) -> None:
        vector = np.array(self.vector, dtype=float)
        if vector.ndim != 1 or not vector.size or not np.all(np.isfinite(vector)):
            raise InvalidInput(
                "start",
                None,
                "must be one vector of finite numbers",
                "give one number for each model weight",
            )
        vector.setflags(write=False)
        object.__setattr__(self, "vector", vector)
        costs = [cost for cost in (self.epsilon, self.delta) if cost is not None]
        sound = self.delta is not None and all(map(_is_finite_cost, costs))
        if self.kind not in get_args(Kind) or type(self.simulated) is not bool or not sound:
            raise InvalidInput(
                "start", None, "is not the record of a starting point", "use Start(vector)"
            )

    @cached_property
    def digest(self) -> str:
        """Digest of the vector and of its record, which configurations of runs hold."""
        vector = np.ascontiguousarray(self.vector, dtype="<f8").tobytes()
        return personalised_hash(b"start", canonical_json(self.record).encode(), vector).hex()[:32]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def may_start_release(self) -> bool:
        """True if a release may start here: not from a simulated or unbudgeted run."""
        if self.kind != "run":
            return True
        return not self.simulated and self.epsilon is not None

    @property
    def caveat(self) -> str:
        """The rows or costs that the guarantee of a run from this start does not cover."""
        if self.kind == "given":
            return "what the starting point was computed from, which was given as public"
        if self.kind == "public":
            return "the public rows, from which the starting point was computed"
        if self.simulated or self.epsilon is None:
            why = "it has no guarantee"
            if self.simulated:
                why = "its noise can be removed"
            return f"the rows of the earlier run whose model is the starting point: {why}"
        cost = f"epsilon = {ceil_text(self.epsilon)}"
        if self.delta:
            cost += f", delta = {self.delta:g}"
        said = (
            f"the cost of the earlier run whose model is the starting point, by its record {cost}"
        )
        return f"{said}: where both runs read the same row, the two costs add up"

    @property
    def record(self) -> dict[str, Any]:
        """Everything but the vector, as plain data."""
        return dict(record_to_plain(self, leave_out=("vector",)))

    @classmethod
    def from_record(cls, vector: Array, record: Any) -> Self:
        """Read a vector and a :attr:`record`, which may come from anybody; InvalidInput."""
        try:
            return record_from_plain(cls, record, vector=vector)
        except Unreadable as error:
            rule = f"is not the record of a starting point: {error}"
            raise InvalidInput("start", None, rule, "use Start(vector)") from None


def _is_finite_cost(value: Any) -> bool:
    """Return true for a finite number that is not negative."""
    return isinstance(value, float) and math.isfinite(value) and value >= 0.0


def with_start_digest(config: RunConfig, start: Start | None, d: int) -> RunConfig:
    """Return the configuration with the digest of its start.

    Parameters
    ----------
    config : RunConfig
    start : Start or None
    d : int
        Entries of a model.

    Returns
    -------
    RunConfig
        As it was, if there is no start.

    Raises
    ------
    InvalidInput
        If the configuration names another start or one that was not given, if the vector has
        another length, or if a release (a run without a seed) would start from what protects
        nothing.
    """
    if start is None:
        if config.start is not None:
            rule = "is the digest of a starting point, but no starting point was given"
            raise InvalidInput("start", config.start, rule, "give both, or leave both out")
        return config
    if config.start not in (None, start.digest):
        rule = "is not the digest of the starting point that was given"
        raise InvalidInput(
            "start", config.start, rule, "give the point that the configuration was made with"
        )
    if start.vector.shape != (d,):
        rule = f"has {start.vector.size} entries, but the model of this run has {d}"
        raise InvalidInput("start", None, rule, "use a start of the same schema and loss")
    if config.seed is None and not start.may_start_release:
        rule = (
            "is the model of a run that protects nothing (a simulation, or without a budget), and "
            "must not be used in a release"
        )
        raise InvalidInput(
            "start", None, rule, "start from a release, or give a seed for a simulation"
        )
    return replace(config, start=start.digest)


def vector_of_start(start: Start | None) -> Array | None:
    """Return the start's vector for :class:`sottovoce.runs.engine.Place`; None for zero."""
    if start is None:
        return None
    return start.vector
