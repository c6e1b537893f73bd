"""A method under each trust that it can be run under: one class, and one published name for every pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from ..problem.trust import CURATOR, NOBODY, Kind, Trust
from ..util.typing import Any
from .base import Algorithm

SUM = Trust.in_sum(honest=2, colluding=1)
"""The least that a sum needs; a run says how many of its sites may collude."""
TRUSTS = {"nobody": NOBODY, "sum": SUM, "curator": CURATOR}


@dataclass(frozen=True)
class Method:
    """A method under one trust.

    Parameters
    ----------
    cls : type
    kind : str
        A kind of trust.
    name : str
        As records know the pair: published, so it never changes.  Empty for the class's own name.
    own : mapping
        What differs from the class's constants and words.
    """

    cls: type[Algorithm[Any]]
    kind: Kind = "nobody"
    name: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.cls.name)

    @cached_property
    def bound(self) -> type[Algorithm[Any]]:
        """The class itself, or under another trust than the class's own a subclass with that name and trust."""
        if self.name == self.cls.name:
            return self.cls
        known = {"__module__": self.cls.__module__, "__doc__": self.cls.__doc__}
        named = {"name": self.name, "trust": TRUSTS[self.kind], "equals": ""}
        named |= {"needs_delta": True} if self.kind == "sum" else {}  # shares of noise are Gaussian
        bound = type(self.cls.__name__, (self.cls,), known | named | dict(self.own))
        return cast("type[Algorithm[Any]]", bound)
