"""The parts of recipes: the list of releases, their answers, and the state that holds them.

An *item* is one planned release, and a *share* its part of the privacy budget: Gaussian releases
add up in mu^2 (mu is sensitivity over sigma), so shares divide mu^2, that is zCDP's rho.  A
*script* is the public program of a recipe, a generator that yields each item's statistic and
receives its answer.  :class:`sottovoce.algorithms.recipe.Recipe` plays it round by round.
"""

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
        Takes points of shape (..., d) to the bounded statistic of the rows at these points.
    share : float
        Share of the recipe's squared mu, in (0, 1]; all items' shares add up to 1.
    """

    name: str
    what: Callable[[Array], Bounded]
    share: float


@dataclass(frozen=True)
class Releases:
    """All items of a recipe, in order, with the noise schedule of their rounds.

    Item j (from 0) is released in round ``k = j + 1``; ``noise(k)`` is its mu.  None is no noise.
    """

    items: tuple[Item, ...]
    noise: Schedule | None

    def to_plain_items(self) -> list[dict[str, Any]]:
        """Return the items' names and shares as plain data, for records of the run."""
        return [{"release": item.name, "share": item.share} for item in self.items]

    @property
    def shape(self) -> Schedule:
        """The noise schedule at a total mu of 1: each item's mu is the root of its share."""
        return Schedule(table=tuple(math.sqrt(item.share) for item in self.items))

    @property
    def total_mu(self) -> float:
        """Total mu (sensitivity over sigma) of all items together; inf without noise."""
        return math.inf if self.noise is None else float(np.max(self.noise.factor))

    def entries_of_answers(self, facts: Facts) -> tuple[int, ...]:
        """Return the number of entries of each item's answer."""
        # The number does not depend on the point: any will do.
        return tuple(item.what(np.zeros(1)).number_of_entries(facts) for item in self.items)

    def query_of_item(self, k: int, what: Bounded) -> NoisyBounded:
        """Return the query of round k, from 1, with the noise of its item."""
        return NoisyBounded.of_statistic(
            what, None if self.noise is None else self.noise(k), self.items[k - 1].name
        )

    def noise_deviation(self, j: int, facts: Facts, among: Among) -> float:
        """Return the noise's standard deviation on each entry of the mean answer to an item.

        Parameters
        ----------
        j : int
            Number of the item, from 0.
        facts : Facts
            Public facts of all nodes or of one.
        among : Among
            The sites over whose rows the mean is.

        Returns
        -------
        float
            In the units of the answer.
        """
        # In the view of one node, `rows_per_node` still has the rows of all.
        whole = replace(facts, n=facts.rows_per_node)
        return query_for_release(self._query_at_some_point(j), facts).mean_spread(whole, among)

    def noise_deviations(self, j: int, facts: Facts) -> Array:
        """Return the noise's standard deviation on every site's own answer to item j, (N,)."""
        query = self._query_at_some_point(j)
        if query.alpha is None:
            return np.zeros(facts.n_nodes)
        whole = replace(facts, n=facts.rows_per_node)
        return np.array(
            np.broadcast_to(np.ravel(query.event(whole).noise_standard_deviation()), facts.n_nodes)
        )

    def _query_at_some_point(self, j: int) -> NoisyBounded:
        """Return the query of item j at an arbitrary point: noise does not depend on it."""
        return self.query_of_item(j + 1, self.items[j].what(np.zeros(1)))


OwnPart = Callable[[Bounded, Array], Array]
"""Takes a statistic and all sites' own answers to what is stored of them."""


class Kept(NamedTuple):
    """The layout of a recipe's state: what it stores of each answer.

    Attributes
    ----------
    entries : tuple of int
        How many numbers are stored of each answer.
    own_part : callable, optional
        From a statistic and the sites' own answers (..., N, entries) to what is stored of them;
        None where only the mean over all sites' rows is stored.
    """

    entries: tuple[int, ...]
    own_part: OwnPart | None = None


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
        Every site's own answer, where a recipe stores them.
    """

    value: Array
    among: Among
    spread: float
    sites: SiteAnswers | None = None

    @property
    def rows(self) -> float:
        """Number of rows of these sites together."""
        return self.among.rows


Script = Generator[Bounded, Answer, Any]
"""Yields the statistic of the next item at its points (R, d), and returns the outcome."""


class _Opened(NamedTuple):
    told: Array  # all answers, concatenated            (..., W)
    rows: Array  # number of rows behind each answer    (K,)
    sites: Array  # number of sites behind each answer  (K,)


class Opened(_Opened):
    """Public state, the same at all nodes: K answers of W entries in all, and the sites of each.

    Parameters
    ----------
    told : array of shape (..., W)
        The answers, concatenated in the order of the items; zeros where none is yet.
    rows : array of shape (K,)
        Number of rows behind each answer.
    sites : array of shape (K,)
        Number of sites behind each answer.
    """

    live: Script | None = None
    """The running script, a cache that is no part of the state.

    Without it, as after a checkpoint, the script is replayed on the stored answers."""

    def take_script(self) -> Script | None:
        """Return the running script and forget it: a generator can be continued only once."""
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
        What the script yielded last; returned if there are no answers.

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
    """Check that a script asks for the statistic whose privacy loss was planned.

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
            f"the next planned release is {item.name!r}, but the script asks for {what}"
        )
    return what


def without_copies(x: Array, facts: Facts) -> Array:
    """Keep one of N equal copies: a simulation's axis of nodes, the last but one, gets length 1."""
    # A single site's facts have `n` of shape (1,), and its vectors have no axis of nodes.
    if facts.n.ndim > 1:
        return x[..., :1, :]
    return x
