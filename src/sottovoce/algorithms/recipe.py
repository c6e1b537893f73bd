"""Recipes: a fixed list of bounded sums over rows, of which one is released in each round.

Statistics, surveys and Newton steps are recipes (:mod:`sottovoce.answers`); they train no model by
rounds of exchange.  The list and the items' noise are fixed before the run, but the points at which
later items are computed may depend on earlier answers.

Every round asks one item.  Rounds k count from 1, as everywhere, and items j from 0: round k asks
item ``j = k - 1``.  The items' shares of the budget are the table of the noise schedule, so plans,
calibration, ledgers, replay and sites work as for every method.  The public half is a generator,
:meth:`Recipe.script`, and the state holds the answers so far.  A round continues the generator of
the round before; only where there is none, as after a checkpoint, is the script replayed from the
start on the stored answers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from ..problem.facts import Among, Facts
from ..problem.schedules import Schedule
from ..queries import Bounded
from ..util.plain import digest_public_values
from ..util.typing import Any, Array
from .base import Algorithm, Node
from .items import (
    Answer,
    Item,
    Kept,
    Opened,
    OwnPart,
    Releases,
    Script,
    SiteAnswers,
    check_listed_statistic,
    play_script,
    without_copies,
)

# A recipe has no penalty.
_NO_PENALTY = Schedule()


@dataclass(frozen=True)
class Recipe(Algorithm[Opened]):
    """A fixed list of bounded sums at public points.  All fields are public.

    Guarantee
    ---------
    Each answer is a Gaussian mechanism (:mod:`sottovoce.queries.bounded`) whose privacy loss does
    not depend on the point at which it is asked.
    """

    penalty: Schedule = _NO_PENALTY
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

    @cached_property
    def releases_with_noise(self) -> Releases:
        """The items with their noise."""
        # Made once: every round and every price asks for it.
        return Releases(self.items, self.noise)

    def __getstate__(self) -> dict[str, Any]:
        # The items hold functions that cannot be pickled, and are made again where they are needed.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def answers_of_state(self, facts: Facts) -> Kept:
        """Return the layout of the state: the mean over all sites' rows, or every site's answer."""
        return Kept(self.releases_with_noise.entries_of_answers(facts))

    def begin_script(self, facts: Facts, replicates: int) -> Script:
        """Return the script that a run plays; recipes that wrap it override this."""
        return self.script(facts, replicates)

    def init(self, node: Node) -> Opened:
        K, W = len(self.releases_with_noise.items), sum(self.answers_of_state(node.facts).entries)
        return Opened(
            without_copies(np.zeros((*node.zero_vector().shape[:-1], W)), node.facts),
            np.zeros(K),
            np.zeros(K),
        )

    def round(self, k: int, state: Opened, node: Node) -> Opened:
        """Run round k: continue the script, release its next statistic, and store the answer.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        Opened
        """
        kept = self.answers_of_state(node.facts)
        # Where the answer of this round stands among all W entries.
        start, width = sum(kept.entries[: k - 1]), kept.entries[k - 1]
        script, said = self._replayed_script(k - 1, state, node.facts, kept)
        what = check_listed_statistic(said, self.releases_with_noise.items[k - 1], node.facts)
        # The script's points, one for each replicate, have no axis of nodes; every node gets the
        # same.
        at = what.at.reshape(*state.told.shape[:-1], -1)
        at = np.array(np.broadcast_to(at, (*node.zero_vector().shape[:-1], at.shape[-1])))
        found, among = self._release_item(k, replace(what, at=at), node, kept.own_part)
        # The state as of :class:`Opened`, with this answer and who is behind it.
        told, rows, sites = (x.copy() for x in state)
        told[..., start : start + width] = found
        rows[k - 1], sites[k - 1] = among.rows, among.sites
        after = Opened(told, rows, sites)
        # The script now waits for this answer, which the next round sends to it.
        after.live = script
        return after

    def priced_round(self, k: int, state: Opened, node: Node) -> Opened:
        """Ask item k at an arbitrary point: the script itself would need real answers.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        Opened
            `state`, unchanged.
        """
        releases = self.releases_with_noise
        node.ask(releases.query_of_item(k, releases.items[k - 1].what(np.zeros(1))))
        return state

    def _release_item(
        self, k: int, what: Bounded, node: Node, own_part: OwnPart | None
    ) -> tuple[Array, Among]:
        """Release an item: return what the state stores of the answer, and the sites it covers."""
        facts, among = node.facts, node.among()
        answer = node.ask(self.releases_with_noise.query_of_item(k, what))
        if own_part is not None:
            own = own_part(what, node.net.gather_from_all_nodes(answer))
            lead = without_copies(answer, facts).shape[:-1]
            return own.reshape(*lead, -1), among
        return without_copies(node.mean(answer, among), facts), among

    def outcome(self, state: Opened, facts: Facts) -> Any:
        done = len(self.releases_with_noise.items)
        return self._replayed_script(done, state, facts, self.answers_of_state(facts))[1]

    def model(self, state: Opened) -> Array:
        # A recipe trains no model: what it finds is its outcome.
        return np.zeros((*state.told.shape[:-1], 1))

    def _replayed_script(
        self, done: int, state: Opened, facts: Facts, kept: Kept
    ) -> tuple[Script, Any]:
        """Return the script after `done` answers, and what it yields or returns then.

        A running script is continued; without one it is replayed from the start.  `kept` is the
        layout of the state.
        """
        # Answers as (replicates, W); `ends` is where each item's entries begin and end.
        told = state.told.reshape(-1, state.told.shape[-1])
        ends, apart = np.cumsum((0, *kept.entries)), kept.own_part is not None
        live = state.take_script()
        if live is None:
            script = self.begin_script(facts, len(told))
            first_question = next(script)
            first_new = 0
        else:  # it has yielded the last item, and waits for its answer
            script = live
            first_question = None
            first_new = done - 1
        answers = []
        for j in range(first_new, done):
            among = Among(float(state.rows[j]), int(state.sites[j]))
            answers.append(
                self._answer_to_item(j, told[:, ends[j] : ends[j + 1]], facts, among, apart=apart)
            )
        return script, play_script(script, answers, first_question)

    def _answer_to_item(
        self, j: int, told: Array, facts: Facts, among: Among, *, apart: bool
    ) -> Answer:
        """Return the answer to item j from its stored entries `told`, (R, stored entries).

        If the sites' answers are stored `apart`, their mean weighted by rows is the answer.
        """
        spread = self.releases_with_noise.noise_deviation(j, facts, among)
        if not apart:
            return Answer(told, among, spread)
        values = told.reshape(len(told), facts.n_nodes, -1)
        rows = facts.rows_per_node[:, 0]
        mean = np.einsum("i,rie->re", rows / rows.sum(), values)
        return Answer(
            mean,
            among,
            spread,
            SiteAnswers(values, self.releases_with_noise.noise_deviations(j, facts)),
        )

    def identity_of_run(self) -> dict[str, Any]:
        # Penalty and noise, which every method has, are left out.
        left_out = ("penalty", "noise")
        public = [getattr(self, f.name) for f in fields(self) if f.name not in left_out]
        return {
            "name": self.name,
            "asked": self.releases_with_noise.to_plain_items(),
            "public": digest_public_values(*public).hex(),
        }

    def to_dict(self) -> dict[str, Any]:
        plain = self.identity_of_run()
        if self.noise is not None:
            plain |= {"noise": self.noise.to_dict()}
        return plain
