"""Recipes: a fixed list of bounded sums, released one a round.

The points at which they are computed may follow from the answers before.

Round k asks item k.  The items' shares of the budget are the table of the noise schedule, so plans,
calibration, ledgers, replay and sites are those of every method.  The public half is a generator,
:meth:`Recipe.script`.  State is what was opened: a round goes through the script again, on the
answers so far, up to its own question.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from ..problem.facts import Among, Facts
from ..problem.schedules import Schedule
from ..queries import Bounded, NoisyBounded, as_released
from ..util.plain import digest_of
from ..util.typing import Any, Array
from .base import Algorithm, Node
from .items import Answer, Item, Opened, Script, SiteAnswers, play, same, shared

# A recipe has no penalty.
_NONE = Schedule()


@dataclass(frozen=True)
class Recipe(Algorithm[Opened]):
    """Bounded sums at public points, of a list that is fixed beforehand.  All fields are public.

    Guarantee
    ---------
    Each answer is a Gaussian mechanism (:mod:`sottovoce.queries.bounded`) whose event depends on no
    point.
    """

    penalty: Schedule = _NONE
    noise: Schedule | None = None
    needs_delta: ClassVar[bool] = True
    complete: ClassVar[bool] = True
    any_trust: ClassVar[bool] = True

    @property
    @abstractmethod
    def items(self) -> tuple[Item, ...]:
        """All releases in order, with shares that add up to 1."""

    @abstractmethod
    def script(self, facts: Facts, replicates: int) -> Script:
        """Yield each item's statistic at its points, receive its answer, and return the outcome."""

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The items as plain data."""
        return [{"release": item.name, "share": item.share} for item in self.items]

    @property
    def shape(self) -> Schedule:
        """The noise schedule: the roots of the shares."""
        return Schedule(table=tuple(math.sqrt(item.share) for item in self.items))

    @property
    def scale(self) -> float:
        """Sensitivity over sigma of all items together; inf without noise."""
        if self.noise is None:
            return math.inf
        return float(np.max(self.noise.factor))

    def widths(self, facts: Facts) -> tuple[int, ...]:
        """Return how many entries each answer has."""
        return tuple(item.what(np.zeros(1)).width(facts) for item in self.items)

    def separate(self, facts: Facts) -> bool:
        """Return whether every site's own answer is kept, and not only the mean over all rows."""
        return False

    def begin(self, facts: Facts, replicates: int) -> Script:
        """Return the script that a run plays."""
        return self.script(facts, replicates)

    def own_part(self, what: Bounded, answers: Array, facts: Facts) -> Array:
        """Return what is kept of the sites' own answers; by default all of it.

        Parameters
        ----------
        what : Bounded
            The statistic that was released.
        answers : array of shape (..., N, entries)
            Every site's own answer.
        facts : Facts
            Public facts of the run.

        Returns
        -------
        array of shape (..., N, kept)
        """
        return answers

    def stored(self, facts: Facts) -> tuple[int, ...]:
        """Return how many entries the state has for each answer."""
        return self.widths(facts)

    def init(self, node: Node) -> Opened:
        K, W = len(self.items), sum(self.stored(node.facts))
        return Opened(shared(np.zeros((*node.zeros().shape[:-1], W)), node.facts), np.zeros(K), np.zeros(K))

    def round(self, k: int, state: Opened, node: Node) -> Opened:
        """Run round k: play the script up to item k, release it, and store the answer.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        Opened
        """
        stored = self.stored(node.facts)
        start = sum(stored[: k - 1])
        width = stored[k - 1]
        script, said = self._played(k - 1, state, node.facts)
        what = same(said, self.items[k - 1], node.facts)
        # The script's points have no axis of nodes; every node gets the same.
        at = what.at.reshape(*state.told.shape[:-1], -1)
        at = np.array(np.broadcast_to(at, (*node.zeros().shape[:-1], at.shape[-1])))
        found, among = self._release(k, replace(what, at=at), node)
        told, rows, sites = (x.copy() for x in state)
        told[..., start : start + width] = found
        rows[k - 1], sites[k - 1] = among.rows, among.sites
        after = Opened(told, rows, sites)
        after.live = script
        return after

    def priced(self, k: int, state: Opened, node: Node) -> Opened:
        """Charge item k of a plan at a point of one entry: the script would need answers.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        Opened
            `state`.
        """
        node.ask(self.query(k, self.items[k - 1].what(np.zeros(1))))
        return state

    def _release(self, k: int, what: Bounded, node: Node) -> tuple[Array, Among]:
        """Return the mean over the rows of all sites that take part, and these sites.

        For a recipe that keeps separate answers, each site's own answer in place of the mean.
        """
        facts, among = node.facts, node.among()
        answer = node.ask(self.query(k, what))
        if self.separate(facts):
            own = self.own_part(what, node.net.everyones(answer), facts)
            lead = shared(answer, facts).shape[:-1]
            return own.reshape(*lead, -1), among
        return shared(node.mean(answer, among), facts), among

    def query(self, k: int, what: Bounded) -> NoisyBounded:
        """Return the query of item k."""
        return NoisyBounded.of(what, self._alpha(k), self.items[k - 1].name)

    def outcome(self, state: Opened, facts: Facts) -> Any:
        return self._played(len(self.items), state, facts)[1]

    def model(self, state: Opened) -> Array:
        return np.zeros((*state.told.shape[:-1], 1))  # what is found is the outcome

    def _played(self, done: int, state: Opened, facts: Facts) -> tuple[Script, Any]:
        """Return the script after `done` answers, and what it yields or returns."""
        told = state.told.reshape(-1, state.told.shape[-1])
        ends = np.cumsum((0, *self.stored(facts)))
        live = state.take()
        if live is None:  # as after a checkpoint: play it from the start
            script = self.begin(facts, len(told))
            first_new = 0
        else:  # it waits for the last answer
            script = live
            first_new = done - 1
        answers = []
        for j in range(first_new, done):
            among = Among(float(state.rows[j]), int(state.sites[j]))
            answers.append(self._answer(j, told[:, ends[j] : ends[j + 1]], facts, among))
        said = None
        if live is None:
            said = next(script)
        return script, play(script, answers, said)

    def _answer(self, j: int, told: Array, facts: Facts, among: Among) -> Answer:
        """Return the answer to item j, (R, entries), from what the state has of it."""
        spread = self.spread(j, facts, among)
        if not self.separate(facts):
            return Answer(told, among, spread)
        values = told.reshape(len(told), facts.n_nodes, -1)
        rows = facts.every_n[:, 0]
        mean = np.einsum("i,rie->re", rows / rows.sum(), values)
        return Answer(mean, among, spread, SiteAnswers(values, self.spreads(j, facts)))

    def spreads(self, j: int, facts: Facts) -> Array:
        """Return the noise's deviation on entries of every site's own answer to item j, (N,)."""
        whole = replace(facts, n=facts.every_n)
        query = self.query(j + 1, self.items[j].what(np.zeros(1)))
        if query.alpha is None:
            return np.zeros(facts.n_nodes)
        return np.array(np.broadcast_to(np.ravel(query.event(whole).spread()), facts.n_nodes))

    def spread(self, j: int, facts: Facts, among: Among) -> float:
        """Return the standard deviation of the noise on each entry of an answer.

        Parameters
        ----------
        j : int
            Number of the item, from 0.
        facts : Facts
            Public facts of all nodes, or of one.
        among : Among
            The sites of the answer.

        Returns
        -------
        float
        """
        whole = replace(facts, n=facts.every_n)
        query = self.query(j + 1, self.items[j].what(np.zeros(1)))
        return as_released(query, facts).mean_spread(whole, among)

    def identity(self) -> dict[str, Any]:
        # All fields but penalty and noise, which come first.
        public = [getattr(self, f.name) for f in fields(self)[2:]]
        return {"name": self.name, "asked": self.asked, "public": digest_of(*public).hex()}

    def to_dict(self) -> dict[str, Any]:
        plain = self.identity()
        if self.noise is not None:
            plain |= {"noise": self.noise.to_dict()}
        return plain
