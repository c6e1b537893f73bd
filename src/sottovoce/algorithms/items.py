"""The parts of recipes: releases that are listed, answers, and the state that holds them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from ..problem.facts import Among, Facts
from ..queries import Bounded
from ..util.typing import Any, Array


class Item(NamedTuple):
    """One release of a recipe.

    Parameters
    ----------
    name : str
        What the release is called in ledgers and reports.
    what : callable
        Takes points of shape (..., d) to the statistic at these points.
    share : float
        Share of the squared sensitivity over sigma of all releases together.
    """

    name: str
    what: Callable[[Array], Bounded]
    share: float


class SiteAnswers(NamedTuple):
    """Each of N sites' answers about its own rows, and the noise's deviation on each entry."""

    values: Array  # (R, N, entries)
    spreads: Array  # (N,)


class Answer(NamedTuple):
    """A released mean over the rows of some sites, for R replicates.

    Parameters
    ----------
    value : array of shape (R, entries)
        The mean.
    among : Among
        The sites.
    spread : float
        Standard deviation of the noise on each entry.
    sites : SiteAnswers, optional
        Every site's own answer, where a recipe keeps them.
    """

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
    """Public state, the same at all nodes: K answers of W entries in all, and the sites of each.

    Parameters
    ----------
    told : array of shape (..., W)
        The answers, side by side; zeros where none is yet.
    rows : array of shape (K,)
        Number of rows behind each answer.
    sites : array of shape (K,)
        Number of sites behind each answer.
    """

    live: Script | None = None
    """The script where it stands, which is no part of the state.

    Without it, as after a checkpoint, the script is played again."""

    def take(self) -> Script | None:
        """Return the live script, once; later calls return None."""
        live, self.live = self.live, None
        return live


def play(script: Script, answers: Iterable[Answer], said: Any = None) -> Any:
    """Send answers to a script, and return what it yields or returns last.

    Parameters
    ----------
    script : Script
        A generator that waits for the first of the answers.
    answers : iterable of Answer
        Answers to the items in order.
    said : object
        What the script yielded before them; returned if there are no answers.

    Returns
    -------
    Bounded or object
        The next statistic, or the script's outcome if it ended.
    """
    for answer in answers:
        try:
            said = script.send(answer)
        except StopIteration as end:
            said = end.value
    return said


def same(what: Bounded, item: Item, facts: Facts) -> Bounded:
    """Check that the statistic which a script asks for is that of the listed item.

    Parameters
    ----------
    what : Bounded
        The statistic that the script yields.
    item : Item
        The next item of the list, whose price was calibrated.
    facts : Facts
        Public facts of the run.

    Returns
    -------
    Bounded
        `what`.

    Raises
    ------
    ValueError
        If type or width differ from the item's.
    """
    listed = item.what(what.at)
    if type(what) is not type(listed) or what.width(facts) != listed.width(facts):
        raise ValueError(f"the next release of the list is {item.name!r}, and the script asks for {what}")
    return what


def shared(x: Array, facts: Facts) -> Array:
    """Drop the copies of what all nodes have alike: a simulation's axis of nodes gets length 1."""
    if facts.n.ndim > 1:
        return x[..., :1, :]
    return x
