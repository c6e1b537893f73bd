"""The hub's part in the questions of restarted sites: "which is my last message that you have?"

A site of a run of sums that was started again asks the other sites, so that it notices if its own
journal is an older copy, even if the hub would hide that.  The hub passes the signed question on,
and collects the signed *attestations*; the site's part is :mod:`sottovoce.deploy.sums.witnesses`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import Refused
from .hublog import HubLog
from .plan import Plan
from .rounds import Rounds
from .sums.messages import read_attestation, read_question


@dataclass
class Inquiry:
    """The last question of one site, and the other sites' answers.

    Parameters
    ----------
    question : bytes
        Signed by the site.
    enough : int
        Number of answers that the site needs.
    since : float
        When it was asked, in seconds by the hub's clock.
    answers : dict of bytes
        Signed attestations, by site.
    """

    question: bytes
    enough: int
    since: float
    answers: dict[str, bytes] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """True while answers are missing."""
        return len(self.answers) < self.enough


class Questions:
    """The open questions of a run of sums.

    Only the last question of a site is open.  A request of its killed process may still wait for
    the answers to an earlier one: it gets none, and takes none away from the new process.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    rounds : Rounds
        The run's rounds, with the lock and the clock that this class shares.
    """

    def __init__(self, plan: Plan, log: HubLog, rounds: Rounds) -> None:
        self._plan = plan
        self._log = log
        self._rounds = rounds
        self._inquiries: dict[str, Inquiry] = {}

    def wait_for_answers(
        self, site: str, question: bytes, enough: int, seconds: float
    ) -> dict[str, bytes] | None:
        """Wait for the other sites' answers to a question.

        If a question stays open for the plan's patience, in a round in which no site has sent a
        message, the run ends: such a round has no deadline that would end it.

        Parameters
        ----------
        site, question, enough, seconds
            See :meth:`sottovoce.deploy.hub.Hub.pass_on_question`.

        Returns
        -------
        dict of bytes, or None
            Signed answers by site.  None if some are missing after `seconds`, other sites ask this
            one, or a later question of the site replaced this one.

        Raises
        ------
        Refused, TransportClosed
            As by :meth:`sottovoce.deploy.hub.Hub.pass_on_question`.
        """
        with self._rounds.news:
            read_question(self._plan, question, site)
            asked = self._inquiries.get(site)
            if asked is None or asked.question != question:
                asked = self._inquiries[site] = Inquiry(question, enough, self._rounds.clock())
                self._rounds.wake_waiting_threads()
            inquiry = asked

            def superseded() -> bool:
                """Whether this site must answer others first, or has asked again meanwhile."""
                return bool(self.asked(site)) or self._inquiries[site] is not inquiry

            return self._rounds.wait_for_result(
                lambda: self._answers_if_enough(site, inquiry), seconds, superseded
            )

    def asked(self, site: str) -> dict[str, bytes]:
        """Return questions of other sites that `site` has not answered."""
        with self._rounds.news:
            return {
                who: one.question
                for who, one in self._inquiries.items()
                if who != site and one.open and site not in one.answers
            }

    def take_attestation(self, site: str, asker: str, answer: bytes) -> None:
        """Take the answer of one site to the question of another; an invalid one is dropped.

        Parameters
        ----------
        site : str
            Who answers.
        asker : str
            Who asked.
        answer : bytes
            A signed attestation for the last question of `asker`.
        """
        with self._rounds.news, suppress(Refused):
            asked = self._inquiries.get(asker)
            if asked is not None and asked.open:
                # The answer must repeat the nonce of the last question, so an old one is dropped.
                question = read_question(self._plan, asked.question, asker)
                read_attestation(self._plan, answer, site, question)
                asked.answers[site] = answer
                self._rounds.wake_waiting_threads()

    def _answers_if_enough(self, site: str, inquiry: Inquiry) -> dict[str, bytes] | None:
        """Return the answers to the inquiry of `site` once there are enough, else None.

        Ends the run if it has waited too long; see :meth:`wait_for_answers`.
        """
        with self._rounds.advanced_rounds() as rounds:
            self._rounds.check_running()
            rounds.check_member(site)
            waited = self._rounds.clock() - max(inquiry.since, rounds.open.begun)
            if not inquiry.open:
                return dict(inquiry.answers)
            # A round without any message has no deadline: if every site waits for answers, nobody
            # would ever close it.
            if not rounds.open.messages and waited >= self._rounds.waits.patience_seconds:
                self._log.decisions.record_end_of_run(self._plan.run)
                self._rounds.check_running()
            return None
