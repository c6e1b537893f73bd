"""The hub, with any transport: it checks a message, stores it once, and passes it on.

A :class:`Hub` joins four parts: the log of messages (:mod:`~sottovoce.deploy.hublog`), the rounds
of its run (:mod:`~sottovoce.deploy.rounds`), the questions of sites that were started again
(:mod:`~sottovoce.deploy.questions`) and the results that follow from the log
(:mod:`~sottovoce.deploy.results`).  Its methods are the requests of a site; a transport calls them,
such as :mod:`~sottovoce.deploy.relay`, and :class:`LocalTransport` in one process.  What a hub sees
and cannot do is in ``docs/deploy/threats.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..errors import EndedEarly, InvalidInput, Refused, Unreachable, check_no_lost_sites
from ..util.typing import Any
from .hublog import HubLog
from .messages import COMPLETE, DECLINES, Farewell, check_plan_digest, longest_inbox, read_farewell
from .plan import Plan
from .questions import Questions
from .results import Results
from .rounds import Rounds
from .waits import Waits

_QUOTED = 64
"""Bytes that quotes and escapes may add to one signed text in a reply."""


class Hub:
    """The hub of one run.

    Callers must have established the identity of a `site` that they name, as TLS does.

    Parameters
    ----------
    plan : Plan
    log : HubLog
        Messages of this run and others; the hub's only state that survives a crash.
    waits : Waits, optional
        How long a round waits for its sites; by default what the plan says.
    greeting : float
        Seconds that the first exchange waits for its last site.
    clock : callable
        Returns the time in seconds; if it is set back nobody waits longer.

    Attributes
    ----------
    rounds : Rounds
        Which sites take part, and when the messages of a round are passed on.
    results : Results
        Models and answers, computed from the messages of the sites.
    other_runs : callable ``(run, site)``, optional
        Returns the hub of another run for a site that asks for it, or raises :class:`Refused` or
        :class:`Queued`.  Without it every other run is refused.
    """

    def __init__(
        self,
        plan: Plan,
        log: HubLog,
        waits: Waits | None = None,
        greeting: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.log = log
        self.rounds = Rounds(plan, log, waits, greeting, clock)
        self.results = Results(plan, log, self.rounds)
        self._questions = Questions(plan, log, self.rounds)
        self.other_runs: Callable[[str, str], Hub] | None = None
        # farewells that were checked already, by site
        self._left: dict[str, Farewell] = {}

    # Requests of sites

    def hub_of_run(self, run: str, site: str) -> Hub:
        """Return the hub of another run that `site` asks for; raises :class:`Refused` for none."""
        if self.other_runs is None:
            raise Refused("run: this hub serves another run")
        return self.other_runs(run, site)

    def highest_round_of(self, site: str) -> int:
        """Return the highest round with a message of `site`; 0 for none."""
        return max(0, self.log.last(self.plan.run, _require_known_site(self.plan, site)))

    def earlier(self, site: str) -> list[bytes]:
        """Return the farewells and greetings that a site signed in any run of this log, as bytes.

        The site compares its ledger with them, to notice an older copy
        (:func:`sottovoce.deploy.known.check_ledger_against_hub`).  That of this run comes first;
        the list ends where a reply would grow too long.
        """
        found: list[bytes] = []
        room = longest_inbox(self.plan) // 2
        for words in self.log.earlier(self.plan.run, _require_known_site(self.plan, site)):
            room -= len(words) + _QUOTED
            if room < 0:
                break
            found.append(words)
        return found

    def exchange(
        self, site: str, round: int, message: bytes, seconds: float
    ) -> dict[str, bytes] | None:
        """Store the message of `site`, and wait for the messages of all that are in the roster.

        Parameters
        ----------
        site : str
        round : int
            Number of the exchange; 0 is the greeting.
        message : bytes
            Signed by the site; the same bytes again are accepted.
        seconds : float
            How long to wait at most.

        Returns
        -------
        dict of bytes, or None
            The inbox of the site, by sender.  None if messages are missing after `seconds`, or
            there are questions to answer (:meth:`asked`): the site must call again.

        Raises
        ------
        Refused
            If the message is not that of the site for this round, or another one is stored.
        TransportClosed
            If the hub ended the run; it names the site itself if the others go on without it.
        """
        self.rounds.post_message(_require_known_site(self.plan, site), round, message)
        return self.rounds.wait_for_result(
            lambda: self.rounds.inbox_of_site(site, round),
            seconds,
            lambda: bool(self._questions.asked(site)),
        )

    def pass_on_question(
        self, site: str, question: bytes, enough: int, seconds: float
    ) -> dict[str, bytes] | None:
        """Pass the question of a restarted site to the others, and wait for their attestations.

        Parameters
        ----------
        site : str
        question : bytes
            Signed; see :class:`sottovoce.deploy.sums.messages.Question`.
        enough : int
            How many other sites must answer.
        seconds : float
            How long to wait at most.

        Returns
        -------
        dict of bytes, or None
            Signed answers by site; None if some are missing after `seconds`: the site must call
            again.

        Raises
        ------
        Refused
            If the run has no sums, or the question is not that of the site.
        TransportClosed
            If the hub ended the run, or the others go on without the site.
        """
        if not self.plan.uses_secure_sums:
            raise Refused("question: this run allows no questions")
        return self._questions.wait_for_answers(
            _require_known_site(self.plan, site), question, enough, seconds
        )

    def asked(self, site: str) -> dict[str, bytes]:
        """Return questions that `site` has to answer, by the asking site; only in a run of sums."""
        return self._questions.asked(_require_known_site(self.plan, site))

    def take_attestation(self, site: str, asker: str, answer: bytes) -> None:
        """Take the answer of one site to the question of another.

        An answer to an earlier question, or to none, is dropped.

        Parameters
        ----------
        site : str
            Who answers.
        asker : str
            Who asked.
        answer : bytes
            Signed; see :class:`sottovoce.deploy.sums.messages.Attestation`.
        """
        self._questions.take_attestation(_require_known_site(self.plan, site), asker, answer)

    def record_farewell(self, site: str, farewell: bytes) -> None:
        """Record the farewell of `site`: its signed statement that it sends nothing more.

        Raises :class:`Refused` unless it is signed, and for the site's next exchange in this run.
        """
        due = self.log.last(self.plan.run, _require_known_site(self.plan, site)) + 1
        read_farewell(self.plan, farewell, site, due)
        self.log.record_farewell(self.plan.run, site, due, farewell)
        self.rounds.wake_waiting_threads()

    def take_declined(self, site: str, why: str) -> None:
        """Take the word of `site` that it takes no part in a run that has not begun.

        Nothing is signed: it is for the hub's operator, and for a queue, which goes on with its
        next plan.  Raises :class:`Refused` for a reason that is not in
        :data:`sottovoce.deploy.messages.DECLINES`, or after the site's greeting.
        """
        if why not in DECLINES:
            raise Refused("why: is no reason to decline a plan")
        if self.log.last(self.plan.run, _require_known_site(self.plan, site)) >= 0:
            raise Refused(f"run={self.plan.run!r}: {site!r} takes part already; see `site end`")
        self.log.decisions.record_declined(self.plan.run, site, why)

    # How the run goes

    @property
    def has_begun(self) -> bool:
        """True once the greetings are over, so that the sites compute."""
        with self.rounds.advanced_rounds() as rounds:
            return rounds.open.number > 0

    def gone(self) -> dict[str, str]:
        """Return the sites that left or were left out, and why.

        Raises :class:`Refused` if the log holds a farewell that the site did not sign.
        """
        for site, data in self.log.gone(self.plan.run).items():
            if site not in self._left:
                due = self.log.last(self.plan.run, _require_known_site(self.plan, site)) + 1
                self._left[site] = read_farewell(self.plan, data, site, due)
        reasons = {site: farewell.reason for site, farewell in self._left.items()}
        return dict(sorted((self.rounds.gone | reasons).items()))

    @property
    def all_sites_left(self) -> bool:
        """True if every site has left."""
        return len(self.gone()) == len(self.plan.sites)

    def check_log(self) -> None:
        """Raise :class:`InvalidInput` for a log that cannot belong to this run."""
        try:
            self.results.models()
            self.gone()
        except Refused as error:
            rule = f"does not match the plan: {error}"
            raise InvalidInput(
                "log", None, rule, "use a new run name, or this run's own log"
            ) from None

    def check_complete_end(self) -> None:
        """Check that the run came to its end, with all sites.

        Raises :class:`EndedEarly` if it has ended early, and :class:`FinishedWithout` if it went on
        without some.
        """
        if self.rounds.is_over:
            # The sites that stayed have done all that the plan asks for.
            check_no_lost_sites(f"run={self.plan.run!r}", self.rounds.gone)
            return
        left = [
            f"site {site!r} ({reason})"
            for site, reason in self.gone().items()
            if reason not in COMPLETE
        ]
        if left:
            who = f"these sites left: {', '.join(left)}"
            if self.log.decisions.is_run_ended(self.plan.run):
                who = "the hub ended it"
            raise EndedEarly(f"run={self.plan.run!r}: ended early: {who}")

    def sites(self) -> list[dict[str, Any]]:
        """Return the progress of every site, as plain data.

        ``round`` is the round of the algorithm that the site's last message belongs to: 0 for the
        greeting, -1 if there is no message, T + 1 for its last model; ``left`` says why it left, if
        it did.
        """
        gone = self.gone()
        # Exchanges are turned into rounds of the algorithm, because rosters are exchanges, too.
        last = {name: self.log.last(self.plan.run, name) for name in self.plan.names}
        with self.rounds.advanced_rounds() as rounds:
            reached = {name: rounds.attempt_in_exchange(round) for name, round in last.items()}
        return [
            {
                "site": one.name,
                "round": reached[one.name],
                "left": gone.get(one.name),
                "rows": one.rows,
            }
            for one in self.plan.sites
        ]

    def status_as_dict(self) -> dict[str, Any]:
        """Return the run and its sites, as plain data."""
        plan = self.plan
        return {
            "run": plan.run,
            "plan": plan.digest,
            "rounds": plan.exchange_table.attempts,
            "sites": self.sites(),
            "demonstration": plan.demonstration,
            "finished": self.results.models() is not None,
            "ended": self.log.decisions.is_run_ended(plan.run),
            "roster": self.rounds.roster,
        }


def _require_known_site(plan: Plan, site: str) -> str:
    """Return the name of a site of the plan; raises :class:`Refused` for any other."""
    if site not in plan.names:
        raise Refused(f"site={site!r}: is not a site of this plan")
    return site


class LocalTransport:
    """A site's connection to a hub in the same process.

    Parameters
    ----------
    hub : Hub
    site : str
        The site, whose identity nobody checks here.
    patience : float
        Seconds that a call waits for the other sites.
    """

    answers: Callable[[str, bytes], bytes] | None = None
    earlier: tuple[bytes, ...] = ()

    def __init__(self, hub: Hub, site: str, patience: float = 60.0) -> None:
        self._hub = hub
        self._site = site
        self._patience = patience

    def highest_stored_round(self, plan: str) -> int:
        """See :meth:`sottovoce.deploy.transport.Transport.highest_stored_round`."""
        check_plan_digest(plan, self._hub.plan.digest)
        self.earlier = tuple(self._hub.earlier(self._site))
        return self._hub.highest_round_of(self._site)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """See :meth:`sottovoce.deploy.transport.Transport.exchange`."""
        inbox = self._ask_until_patience_ends(
            lambda left: self._hub.exchange(self._site, round, message, left)
        )
        if inbox is None:
            raise Unreachable(
                f"round={round}: not all neighbours sent a message within {self._patience:g} s"
            )
        return inbox

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        """See :meth:`sottovoce.deploy.transport.Transport.ask_other_sites`."""
        found = self._ask_until_patience_ends(
            lambda left: self._hub.pass_on_question(self._site, question, enough, left)
        )
        if found is None:
            raise Unreachable(
                f"fewer than {enough} other sites answered within {self._patience:g} s"
            )
        return found

    def send_farewell(self, farewell: bytes) -> None:
        self._hub.record_farewell(self._site, farewell)

    def _ask_until_patience_ends(
        self, ask: Callable[[float], dict[str, bytes] | None]
    ) -> dict[str, bytes] | None:
        """Repeat the request `ask` until it returns something or the patience ends.

        Between two requests, questions of restarted sites are answered.  `ask` gets the seconds
        that are left.
        """
        until = time.monotonic() + self._patience
        while True:
            found = ask(until - time.monotonic())
            if found is not None or time.monotonic() >= until:
                return found
            for asker, question in self._hub.asked(self._site).items():
                if self.answers is not None:
                    self._hub.take_attestation(self._site, asker, self.answers(asker, question))
