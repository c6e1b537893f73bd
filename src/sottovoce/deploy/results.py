"""The results of a run, as its hub computes them from the sites' messages.

They are the last models, the map by which rows were centred, and the results of inference and
evaluation.  All follow from messages that the log holds, so any process that may read the log finds
the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from ..data.move import Move
from ..util.typing import Array, IntArray
from .answering import LOST, Asker, Found, ReadNet, make_hub_asker, replay_row_move
from .hublog import HubLog
from .messages import Message
from .plan import Plan
from .rounds import Rounds
from .sums.messages import Share, read_signed_message


class Results:
    """The results of one run at its hub.

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
        array (sites, d) or None
            In the order of :meth:`last_models_by_site`; of a run of sums the common model alone,
            (1, d).  None if the run is not over, or the log has no last model, as after
            :meth:`sottovoce.deploy.hublog.HubLog.prune_runs`.
        """
        if not self._rounds.is_over:
            return None
        last = self.last_models_by_site()
        if not last:
            return None
        if not self._plan.uses_secure_sums:
            return np.array([*last.values()])
        # All honest sites send the same model, so it is the one that most sites sent.
        counted = Counter(model.tobytes() for model in last.values())
        [(common, _)] = counted.most_common(1)
        return np.frombuffer(common, dtype=float)[None]

    def last_models_by_site(self) -> dict[str, Array]:
        """Return the last model, (d,), of every site that sent one, in the order of the plan.

        In a run of sums only of the sites that came to the end: others may have another model.
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
        """Return the map by which the sites centred their rows; None if there is none (yet)."""
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
        """Return the results of the plan's inference and evaluation.

        None if the plan has neither, the run has no last models, or the sites ended it before their
        inference was complete.  If the evaluation is incomplete a note says so.
        """
        plan = self._plan
        models = self.models()
        if plan.asks is None or models is None:
            return None
        # A replay raises LookupError for an exchange that the log does not have.
        found = Found()
        asker: Asker | None = None
        if plan.is_inference:
            try:
                asker = make_hub_asker(plan, self._replay_from_attempt(1))
                _, found = asker.run_inference()
            except LookupError:
                return None
        if plan.asks.evaluation is None:
            return found
        try:
            # After an inference the same replay goes on.
            if asker is None:
                first = plan.stages[-1].before + 1
                asker = make_hub_asker(plan, self._replay_from_attempt(first))
            model = found.model if plan.is_inference else models[0]
            _, judged = asker.evaluate_model(model, found, self.move())
        except LookupError:
            return replace(found, notes=(LOST,))
        return judged

    def opened(self, attempt: int) -> tuple[tuple[str, ...], IntArray] | None:
        """Return the names of the sites of an attempt, and the sum of their shares.

        The sum is modulo ``2^64``, as int64 of shape (k,).  None if a share was missing, so that
        the sum was not opened.
        """
        with self._rounds.advanced_rounds() as rounds:
            attempts = rounds.state.attempts
            if attempt > len(attempts) or not attempts[attempt - 1].opened:
                return None
            # the exchange in which the shares of this attempt were sent
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
        """Return True if the run is over, and this was the exchange of the last models."""
        with self._rounds.advanced_rounds() as rounds:
            return rounds.state.phase == "over" and round == rounds.open.number - 1

    def _replay_from_attempt(self, first: int) -> ReadNet:
        """Return a replay of what the sites released from attempt `first` to the plan's last.

        Raises LookupError if the log lacks a message of them.
        """
        if self._plan.uses_secure_sums:
            return self._replay_opened_sums(first)
        return self._replay_sent_vectors(first, self._plan.exchange_table.attempts)

    def _replay_opened_sums(self, first: int) -> ReadNet:
        """Return a replay of the sums of attempts from `first` on, up to the last opened one."""
        totals = []
        for attempt in range(first, self._plan.exchange_table.attempts + 1):
            opened = self.opened(attempt)
            if opened is None:
                break
            members, total = opened
            totals.append((self._plan.exchange_table.among(attempt, members), total))
        return ReadNet(totals)

    def _replay_sent_vectors(self, first: int, last: int) -> ReadNet:
        """Return a replay of the vectors sent in exchanges `first` to `last` of a run over a graph.

        Raises LookupError if a message is missing.
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
