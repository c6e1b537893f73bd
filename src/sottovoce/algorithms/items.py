"""What recipes are made of: the items that are asked, the answers, and the state that holds them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from ..problem.facts import Among, Facts
from ..queries import Bounded
from ..util.typing import Any, Array


class Item(NamedTuple):
    """One release: its statistic at a public point, and its share of the squared shift over sigma of all."""

    name: str
    what: Callable[[Array], Bounded]
    share: float


class SiteAnswers(NamedTuple):
    """What each of N sites released of its own rows, and the noise's standard deviation on each entry."""

    values: Array  # (R, N, entries)
    spreads: Array  # (N,)


class Answer(NamedTuple):
    """The released mean over the rows of `among`, (R, entries), and the noise's standard deviation on each entry."""

    value: Array
    among: Among
    spread: float
    sites: SiteAnswers | None = None  # of a recipe that keeps every site's own

    @property
    def rows(self) -> float:
        """Number of rows."""
        return self.among.rows


Script = Generator[Bounded, Answer, Any]
"""Yields the statistic of the next item at its points (R, d), and returns the outcome."""


class _Opened(NamedTuple):
    told: Array  # answers, side by side  (..., W)
    rows: Array  # behind each answer     (K,)
    sites: Array  # behind each answer    (K,)


class Opened(_Opened):
    """Public state, the same at all nodes: K answers of W entries together, and which sites each is of."""

    live: Script | None = None
    """The script where it stands; no part of the state.  Without it, as after a checkpoint, it is played again."""

    def take(self) -> Script | None:
        """The live script, once."""
        live, self.live = self.live, None
        return live


def play(script: Script, answers: Iterable[Answer], said: Any = None) -> Any:
    """What a script yields or returns after these answers: the next statistic, or its outcome."""
    for answer in answers:
        try:
            said = script.send(answer)
        except StopIteration as end:
            said = end.value
    return said


def same(what: Bounded, item: Item, facts: Facts) -> Bounded:
    """The statistic that a script asks for; ValueError if it is not the item's, whose price was calibrated."""
    listed = item.what(what.at)
    if type(what) is not type(listed) or what.width(facts) != listed.width(facts):
        raise ValueError(f"the next release of the list is {item.name!r}, and the script asks for {what}")
    return what


def shared(x: Array, facts: Facts) -> Array:
    """What all nodes have alike, once: in a simulation the axis of nodes gets length 1."""
    return x[..., :1, :] if facts.n.ndim > 1 else x
