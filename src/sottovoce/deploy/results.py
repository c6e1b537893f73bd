"""The results of a run, as its hub reads them.

Last models, the map of moved rows, and the answers of the plan's recipes.

All of it follows from messages that the log holds, so any process that may read the log finds the
same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from ..data.move import Move
from ..util.typing import Array, IntArray
from .answering import LOST, Found, ReadNet, make_hub_asker, replay_row_move
from .hublog import HubLog
from .messages import Message
from .plan import Plan
from .rounds import Rounds
from .sums.messages import Share, read_signed_message


class Results:
    """The results of one run, as the hub reads them.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    rounds : Rounds
    """

    def __init__(self, plan: Plan, log: HubLog, rounds: Rounds) -> None:
        self._plan = plan
        self._log = log
        self._rounds = rounds

    def models(self) -> Array | None:
        """Return the last models of the sites that came to the end.

        Returns
        -------
        array (N, d) or None
            Of a run of sums the common one, (1, d).  None while one is missing.
        """
        if not self._rounds.is_over:
            return None
        last = self.last_models_by_site()
        if not self._plan.uses_secure_sums:
            return np.array([*last.values()])
        if not last:
            return None
        # The model that most sites sent: it is the one of all of them, if the sites are honest.
        counted = Counter(model.tobytes() for model in last.values())
        [(common, _)] = counted.most_common(1)
        return np.frombuffer(common, dtype=float)[None]

    def last_models_by_site(self) -> dict[str, Array]:
        """Return the last model of every site that sent one.

        Of a run of sums, of those that came to the end.
        """
        found = {}
        for name in self._plan.names:
            round = self._log.last(self._plan.run, name)
            if self._plan.uses_secure_sums and not self._is_last_exchange(round):
                continue
            data = self._log.message_of(self._plan.run, round, name)
            if data is None:
                continue
            message = read_signed_message(self._plan, data, name, round).content
            if isinstance(message, Message) and message.kind in ("stop", "refuse"):
                found[name] = message.payload
        return found

    def move(self) -> Move | None:
        """Return the map by which the sites moved their rows; None if they did not, or not yet."""
        if self._plan.centre is None:
            return None
        if self._plan.uses_secure_sums:
            with self._rounds.advanced_rounds() as rounds:
                return rounds.move
        try:
            return replay_row_move(self._plan, self._replay_sent_vectors(1, 1))
        except LookupError:
            return None

    def found(self) -> Found | None:
        """Return the results of the plan's recipes.

        None if it has none, or last models are missing.
        """
        plan = self._plan
        models = self.models()
        if plan.asks is None or models is None:
            return None
        # the first exchange of a recipe: of an inference, or else of the evaluation
        first = 1
        if not plan.is_inference:
            first = plan.stages[-1].before + 1
        if plan.uses_secure_sums:
            net = self._replay_opened_sums(first)
        else:
            net = self._replay_sent_vectors(first, plan.exchange_table.attempts)
        asker = make_hub_asker(plan, net)
        found = Found()
        if plan.is_inference:
            _, found = asker.run_inference()
        if plan.asks.evaluation is None:
            return found
        try:
            model = found.model if plan.is_inference else models[0]
            _, judged = asker.evaluate_model(model, found, self.move())
        except LookupError:
            return replace(found, notes=(LOST,))
        return judged

    def opened(self, attempt: int) -> tuple[tuple[str, ...], IntArray] | None:
        """Return the sites of an attempt, and the sum of their shares modulo ``2^64``.

        None if it was not opened.
        """
        with self._rounds.advanced_rounds() as rounds:
            attempts = rounds.state.attempts
            if attempt > len(attempts) or not attempts[attempt - 1].opened:
                return None
            round = rounds.shares[attempt - 1]
            members = attempts[attempt - 1].members
        sent = self._log.round(self._plan.run, round)
        contents = [
            read_signed_message(self._plan, sent[name], name, round).content for name in members
        ]
        words = np.array(
            [content.words for content in contents if isinstance(content, Share)], dtype=np.uint64
        )
        total = np.asarray(np.sum(words, axis=0, dtype=np.uint64))
        return members, np.asarray(total.view(np.int64))

    def _is_last_exchange(self, round: int) -> bool:
        with self._rounds.advanced_rounds() as rounds:
            return rounds.state.phase == "over" and round == rounds.open.number - 1

    def _replay_opened_sums(self, first: int) -> ReadNet:
        """Return the sums that were opened from attempt `first` on, to the first without one."""
        totals = []
        for attempt in range(first, self._plan.exchange_table.attempts + 1):
            opened = self.opened(attempt)
            if opened is None:
                break
            members, total = opened
            totals.append((self._plan.exchange_table.among(attempt, members), total))
        return ReadNet(totals)

    def _replay_sent_vectors(self, first: int, last: int) -> ReadNet:
        """Return what was sent over a graph in exchanges `first` to `last`.

        LookupError if a message is missing.
        """
        sent = []
        for round in range(first, last + 1):
            stored = self._log.round(self._plan.run, round)
            messages = [
                read_signed_message(self._plan, stored[name], name, round).content
                for name in self._plan.names
            ]
            sent.append([one.payload for one in messages if isinstance(one, Message)])
        return ReadNet(sent=sent)
