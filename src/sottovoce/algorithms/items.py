"""What recipes are made of: the items that are asked, the answers, and the state that holds them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from ..problem.facts import Among, Facts
from ..queries import Bounded
from ..util.typing import Any, Array


class Item(NamedTuple):
    """One release: its name, its statistic at a public point, and its share of the budget; shares add up to 1.

    The budget is divided as squares of shift over sigma are.
    """

    name: str
    what: Callable[[Array], Bounded]
    share: float


class Answer(NamedTuple):
    """What was opened, (R, entries): the mean over the rows of `among`, and the noise's deviation on each entry."""

    value: Array
    among: Among
    spread: float

    @property
    def rows(self) -> float:
        """How many rows are behind it."""
        return self.among.rows


Script = Generator[Bounded, Answer, Any]
"""Yields the statistic of the next item at its points (R, d), and returns the outcome."""


class _Opened(NamedTuple):
    told: Array  # answers, side by side  (..., W)
    rows: Array  # behind each answer     (K,)
    sites: Array  # behind each answer    (K,)


class Opened(_Opened):
    """Public state, the same at all nodes: K answers of W entries together, and of which sites each of them is.

    The script comes along where it stands.  It is no part of the state, and is taken once: without it, as after a
    checkpoint, it is gone through again.
    """

    live: Script | None = None

    def take(self) -> Script | None:
        """The script that waits for the last answer, if there is one."""
        live, self.live = self.live, None
        return live


def play(script: Script, answers: Iterable[Answer], said: Any = None) -> Any:
    """What a script says after these answers: the statistic that it asks for next, or its outcome."""
    for answer in answers:
        try:
            said = script.send(answer)
        except StopIteration as end:
            said = end.value
    return said


def same(what: Bounded, item: Item, facts: Facts) -> Bounded:
    """What a script asks for, if it is the item's statistic: else the list's price would be that of something else.

    Raises
    ------
    ValueError
    """
    listed = item.what(what.at)
    if type(what) is not type(listed) or what.width(facts) != listed.width(facts):
        raise ValueError(f"the next release of the list is {item.name!r}, and the script asks for {what}")
    return what


def shared(x: Array, facts: Facts) -> Array:
    """Of what all nodes have alike, once: in a simulation the axis of nodes has length 1."""
    return x[..., :1, :] if facts.n.ndim > 1 else x
