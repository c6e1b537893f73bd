"""Pairs of a method and a trust: one class, and one published name for every pair.

A trust says who sees what (:mod:`sottovoce.problem.trust`).  :data:`sottovoce.algorithms.METHODS`
lists the pairs; :attr:`Method.bound_class` makes the class of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from ..problem.trust import CURATOR, NOBODY, Kind, Trust
from ..util.typing import Any
from .base import Algorithm

SUM = Trust.in_sum(honest=2, colluding=1)
"""Trust in sums at its least numbers: a run's statement has its own number of colluding sites."""
TRUSTS = {"nobody": NOBODY, "sum": SUM, "curator": CURATOR}


@dataclass(frozen=True)
class Method:
    """A method under one trust.

    Parameters
    ----------
    cls : type of Algorithm
        The method's class.
    kind : {"nobody", "sum", "curator"}
        The trust.
    name : str
        Name of the pair in records of runs: published, so it never changes.  Empty for the class's
        own name.
    own : mapping
        Class variables of the pair that differ from those of `cls`.
    """

    cls: type[Algorithm[Any]]
    kind: Kind = "nobody"
    name: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.cls.name)

    @cached_property
    def bound_class(self) -> type[Algorithm[Any]]:
        """The class itself, or a subclass with the name and trust of this pair.

        The subclass has a name of its own, "SumMomentum" for "sum_momentum", under which
        :mod:`sottovoce.algorithms` holds it: pickle finds classes by module and name.
        """
        if self.name == self.cls.name:
            return self.cls
        known = {"__module__": __package__, "__doc__": self.cls.__doc__}
        named = {"name": self.name, "trust": TRUSTS[self.kind], "equals": ""}
        # Only Gaussian shares of noise add up to noise of the same law.
        if TRUSTS[self.kind].opens_sums:
            named |= {"needs_delta": True}
        class_name = "".join(word.capitalize() for word in self.name.split("_"))
        bound = type(class_name, (self.cls,), known | named | dict(self.own))
        return cast("type[Algorithm[Any]]", bound)
