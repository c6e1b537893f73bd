"""The parts of recipes: releases that are listed, answers, and the state that holds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..problem.facts import Among, Facts
from ..problem.schedules import Schedule
from ..queries import Bounded, NoisyBounded, query_for_release
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


@dataclass(frozen=True)
class Releases:
    """All items of a recipe, in order, with the noise of each; None for none."""

    items: tuple[Item, ...]
    noise: Schedule | None

    def to_plain_items(self) -> list[dict[str, Any]]:
        """The items as plain data."""
        return [{"release": item.name, "share": item.share} for item in self.items]

    @property
    def shape(self) -> Schedule:
        """The noise schedule: roots of the shares."""
        return Schedule(table=tuple(math.sqrt(item.share) for item in self.items))

    @property
    def total_mu(self) -> float:
        """Sensitivity over sigma of all items together; inf without noise."""
        return math.inf if self.noise is None else float(np.max(self.noise.factor))

    def entries_of_answers(self, facts: Facts) -> tuple[int, ...]:
        """Entries of each answer."""
        return tuple(item.what(np.zeros(1)).number_of_entries(facts) for item in self.items)

    def query_of_item(self, k: int, what: Bounded) -> NoisyBounded:
        """The query of item k, from 1 on."""
        return NoisyBounded.of_statistic(
            what, None if self.noise is None else self.noise(k), self.items[k - 1].name
        )

    def noise_deviation(self, j: int, facts: Facts, among: Among) -> float:
        """Standard deviation of the noise on each entry of the answer to item j, from 0 on, for
        these sites.
        """
        whole = replace(facts, n=facts.rows_per_node)
        return query_for_release(self._query_at_some_point(j), facts).mean_spread(whole, among)

    def noise_deviations(self, j: int, facts: Facts) -> Array:
        """Standard deviation of the noise on each entry of every site's own answer to item j,
        (N,).
        """
        query = self._query_at_some_point(j)
        if query.alpha is None:
            return np.zeros(facts.n_nodes)
        whole = replace(facts, n=facts.rows_per_node)
        return np.array(
            np.broadcast_to(np.ravel(query.event(whole).noise_standard_deviation()), facts.n_nodes)
        )

    def _query_at_some_point(self, j: int) -> NoisyBounded:
        """The query of item j at some point: noise does not depend on where."""
        return self.query_of_item(j + 1, self.items[j].what(np.zeros(1)))


class Kept(NamedTuple):
    """What a recipe's state holds of each answer.

    Attributes
    ----------
    entries : tuple of int
        How many numbers, of each answer.
    own_part : callable, optional
        What is kept of the sites' own answers (..., N, entries) to a statistic; None where only the
        mean over the rows of all is.
    """

    entries: tuple[int, ...]
    own_part: Callable[[Bounded, Array], Array] | None = None


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

    def take_script(self) -> Script | None:
        """Return the live script, once; later calls return None."""
        live, self.live = self.live, None
        return live


def play_script(script: Script, answers: Iterable[Answer], said: Any = None) -> Any:
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


def check_listed_statistic(what: Bounded, item: Item, facts: Facts) -> Bounded:
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
    if type(what) is not type(listed) or what.number_of_entries(facts) != listed.number_of_entries(
        facts
    ):
        raise ValueError(
            f"the next release of the list is {item.name!r}, and the script asks for {what}"
        )
    return what


def without_copies(x: Array, facts: Facts) -> Array:
    """Drop the copies of what all nodes have alike: a simulation's axis of nodes gets length 1."""
    if facts.n.ndim > 1:
        return x[..., :1, :]
    return x
