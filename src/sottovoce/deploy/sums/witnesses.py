"""A restarted site asks the others how far they have seen it, to notice an old backup of its own.

With a journal restored from a backup a site would sign other messages for exchanges in which it has
sent some already.  The hub could hide that, so the other sites *attest*, signed, the last exchange
in which they have a message of it.
"""

from __future__ import annotations

import secrets

from ...errors import LedgerCorrupt, Refused
from ..exchanges import Exchanges
from .messages import NONCE, Attestation, Question, read_attestation, read_question


class Witnesses:
    """The other sites of a run of sums, as witnesses of this site's messages.

    Parameters
    ----------
    exchanges : Exchanges
        This site's exchanges in the run.
    again : bool
        Whether this site was started again in the run, so that its journal may be an older copy.
    """

    def __init__(self, exchanges: Exchanges, *, again: bool) -> None:
        self._exchanges = exchanges
        self._again = again

    def attest_progress(self, asker: str, question: bytes) -> bytes:
        """Return this site's signed answer to the `question` of the site `asker`.

        It says the last exchange in which this site has a message of it.  Raises :class:`Refused`
        if the question is not signed by that site.
        """
        one = self._exchanges
        asked = read_question(one.plan, question, asker)
        seen = one.seen.get(asker, -1)
        return Attestation(one.name, asked.round, asked.nonce, asker, seen).to_signed_bytes(
            one.plan, one.key
        )

    def check_journal_is_newest(self) -> None:
        """Ask the others how far they have seen this site, before it goes on after a restart.

        It signs and draws nothing new before.  Raises :class:`LedgerCorrupt` if a site has seen
        more than the journal has.  A hub cannot hide that by choosing who answers: at most
        ``N - K`` sites are outside the last roster and t collude, so of any ``N - K + t + 1`` that
        answer one is an honest member of that roster.
        """
        if not self._again:
            return
        one = self._exchanges
        facts = one.plan.facts
        # N - K + t + 1; facts.participants is K, facts.colluders is t
        need = len(one.plan.sites) - facts.participants + facts.colluders + 1
        question = Question(one.name, one.journal.highest_round, secrets.token_hex(NONCE // 2))
        found = one.call_hub(
            lambda: one.transport.ask_other_sites(question.to_signed_bytes(one.plan, one.key), need)
        )
        answers = [
            read_attestation(one.plan, data, name, question)
            for name, data in found.items()
            if name != one.name
        ]
        if len(answers) < need:
            raise Refused(
                f"round={one.round}: the hub delivered {len(answers)} answers of other sites, "
                f"but {need} are needed"
            )
        seen = max(answers, key=lambda answer: answer.seen)
        if seen.seen > question.round:
            raise LedgerCorrupt(
                f"run={one.plan.run!r}: site {seen.sender!r} has seen round {seen.seen} of "
                f"this site, but the journal here ends at round {question.round}: the journal "
                "is an older copy; halted, nothing was drawn; find the newest one, and never "
                "restore a ledger from a backup"
            )
        self._again = False
