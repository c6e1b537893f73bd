"""One site's part in a run: rows, ledger and journal on one side, a transport on the other, the engine between.

Only the ledger's chain is stored.  A site that was killed starts again at round 1 with the releases and inboxes of the
chain: nothing is drawn or charged twice, and the algorithm reaches the same state.  Secrets of a query are lost with
the process, on purpose: the gate of `ipp_admm` never opens again, and the printed `pvp` continues from zero.  From
there on these two methods give other results than an undisturbed run, at a price that still holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..data.move import Move
from ..data.rows import Rows
from ..errors import (
    EndedEarly,
    InvalidInput,
    LedgerCorrupt,
    LedgerError,
    NetClosed,
    Refused,
    SottovoceError,
    TransportClosed,
    check_whole,
)
from ..ledger.durable import DurableLedger, Run, rows_digest
from ..ledger.journal import Journal
from ..network.net import Edges
from ..privacy.noise import Noise, SystemNoise
from ..privacy.statement import Statement, restate
from ..privacy.statement_facts import AtSite
from ..problem.losses import Logistic
from ..runs import engine
from ..runs.engine import BUDGET, FEW, FINISHED, NEIGHBOUR, Observer, Outcome, Place
from ..runs.prepare import held
from ..runs.row_guard import RowGuard
from ..runs.simulate import check_notion
from ..runs.start import place_of
from ..util.typing import Any, Array, IntArray
from .answering import Asker, Found, at_site
from .asks import SiteTable
from .journaled import JournaledNet
from .keys import SigningKey
from .known import check_hub
from .messages import HUB, OTHER_MEAN, OUT, Kind, Message, Reason, check_payload, read_farewell
from .plan import Plan
from .sums.masks import secret_of
from .sums.messages import Roster, SignedMessage, read, sign
from .sums.net import SumNet
from .sums.roster import LATE, ProtocolState, read_absence
from .transport import Transport

_WORDS: dict[str, Reason] = {
    FINISHED: "done", BUDGET: "its budget is spent", NEIGHBOUR: "a neighbour left", HUB: "the hub ended the run",
    FEW: "too few sites are left", OUT: "a neighbour left",
}  # fmt: skip


class WireNet(JournaledNet):
    """A site's network in a run without sums: vectors go to its neighbours.

    If the plan says how long rounds wait, the run goes on without a lost site once all that stay have signed so.
    """

    def __init__(self, plan: Plan, name: str, journal: Journal, transport: Transport, key: SigningKey) -> None:
        super().__init__(plan, name, journal, transport, key)
        self.degree = np.array([float(len(plan.neighbours(name)))])
        self.state, self._edges = ProtocolState.of(plan), Edges()

    @property
    def lost(self) -> dict[str, str]:
        return {} if self._plan.waits is None else dict(sorted(self.state.gone.items()))

    @property
    def roster(self) -> dict[str, Any] | None:
        return None if self._plan.waits is None else self.state.to_dict()

    def say(self, kind: Kind, x: Array) -> list[Message]:
        """Send a message, and return those of the neighbours."""
        check_payload(self._plan, kind, x, self.round + 1)
        found = self._said(Message(self._plan.run, self._plan.digest, self.round + 1, self._name, kind, x))
        return [one.content for one in found.values() if isinstance(one.content, Message)]

    def _said(self, content: Message | Roster) -> dict[str, SignedMessage]:
        """Take part in the next exchange, and go on with what was sent in it."""
        self.round += 1
        message = sign(self._plan, self.round, self._name, content, self._key)
        present, why = self._journaled(message, self._exchange, self._read)
        self.state.take(present | {self._name: SignedMessage(self._name, content, message)}, why)
        return present

    def _agree(self) -> None:
        """Sign the roster of those that stay, if one was lost, until all of them have signed the same."""
        while self.state.phase == "roster":
            if not self.state.enough:
                self.closed_by = FEW
                raise NetClosed(f"round={self.round}: without {', '.join(self.lost)} the run cannot go on")
            self._said(self.state.next_roster)

    def _exchange(self, message: bytes) -> dict[str, bytes]:
        """The neighbours' messages; a neighbour counts as gone only if it signed that it left, for this round."""
        try:
            return self._transport.exchange(self.round, message)
        except TransportClosed as error:
            if error.site in (None, self._name):
                self.closed_by = HUB if error.site is None else OUT
                raise
            if error.site not in self._plan.neighbours(self._name, self.round):
                raise Refused(f"round={self.round}: the hub says that a site left that is no neighbour") from None
            read_farewell(self._plan, error.farewell, error.site, self.round)
            self.closed_by = error.site
            raise

    def _read(self, inbox: dict[str, bytes]) -> tuple[dict[str, SignedMessage], dict[str, str]]:
        """The messages of an inbox, and why those of other members are missing."""
        others = [name for name in self.state.members if name != self._name]
        about = self.state.phase == "roster"
        heard = [name for name in self._plan.neighbours(self._name, self.round) if name in others]
        due = others if about else heard
        present, why = dict[str, SignedMessage](), dict.fromkeys(others, LATE) if about else dict[str, str]()
        for name in [*due, *sorted(inbox.keys() - set(due))]:
            data, absence = inbox.get(name), None
            if data is not None and self._plan.waits is not None and name in others:
                absence = read_absence(self._plan, data, name, self.round)
            if absence is not None:
                why[name] = absence
            elif name in due and data is not None:
                present[name] = read(self._plan, data, name, self.round)
                self.state.check(present[name])
                why.pop(name, None)
            elif not about or data is not None:
                raise Refused(f"round={self.round}: the hub gave messages of other sites than the neighbours")
        return present, why

    def greet(self) -> None:
        """Agree on the plan."""
        self.say("hello", np.zeros(0))
        self._agree()

    def agree(self, move: Move) -> None:
        """Compare the mean by which this site moves its rows with that of every other; Refused if one differs."""
        for name, mean in self._told(move.mean).items():
            if not np.array_equal(mean, move.mean):
                raise Refused(f"round={self.round}: {OTHER_MEAN.format(name)}")

    def finish(self, kind: Kind, model: Array) -> None:
        """Send the last model."""
        self.say(kind, model)

    def _told(self, x: Array) -> dict[str, Array]:
        """Releases of the neighbours in the next exchange, in their order."""
        messages = self.say("release", x)
        for message in messages:
            if message.kind != "release" and not self._plan.goes_on:
                self.closed_by = message.sender
                raise NetClosed(f"site {message.sender!r} ended its run in round {self.round}")
        self._agree()
        return {message.sender: message.payload for message in messages if message.sender in self.state.members}

    def neighbour_sum(self, x: Array) -> Array:
        told = self._told(x)
        return self._edges.sum(x, {name: told.get(name) for name in self._plan.neighbours(self._name)})

    def lost_dual(self, weight: Array | float) -> Array | float:
        return self._edges.lost_dual(weight)

    def whole_sum(self, x: Array) -> Array:
        total = np.zeros_like(x)
        for one in self.everyones(x):
            total = total + one
        return total

    def everyones(self, x: Array) -> Array:
        told = self._told(x) | {self._name: x}
        return np.stack([told[name] for name in self._plan.names])

    def seal(self, share: IntArray) -> IntArray:
        raise TypeError("a run without sums has no shares")

    def total(self, sealed: IntArray) -> IntArray:
        raise TypeError("a run without sums has no shares")


@dataclass(frozen=True)
class Finished:
    """A site's results at the end of a run.

    Attributes
    ----------
    model : array (d,)
        This site's classifier.
    statement : Statement
        Of this site's rows.
    spent, budget : float
        Of the data set's lifetime budget, in all.
    seconds, waited : float
        Time of the rounds, and the part of it spent on messages.  It depends on the rows and no ledger counts it: it is
        for ``site run --times``, and written to a file only in a demonstration.
    by : str, optional
        The neighbour that ended the run early.
    lost : dict
        Sites without which the run went on, and why.
    roster : dict, optional
        Sites of the last roster, in a run that may go on without some: see ``ProtocolState.to_dict``.
    found : Found, optional
        Coefficients and quality, if the plan asks for them.
    move : Move, optional
        The map by which rows were centred; `model` is of rows as they were.
    head : str
        Of the ledger, at the end.
    """

    model: Array
    outcome: Outcome
    statement: Statement
    spent: float
    budget: float
    seconds: float
    waited: float
    by: str | None = None
    lost: dict[str, str] = field(default_factory=dict)
    found: Found | None = None
    head: str = ""
    move: Move | None = None
    roster: dict[str, Any] | None = None

    @property
    def privacy(self) -> dict[str, Any]:
        """The statement as plain data."""
        return self.statement.to_dict()

    @property
    def times(self) -> dict[str, float]:
        return {"seconds": self.seconds, "waited": self.waited}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the model and the times."""
        return {
            "rounds": self.outcome.rounds, "stopped": self.outcome.stopped, "privacy": self.privacy,
            "spent": self.spent, "budget": self.budget, "by": self.by, "head": self.head,
        } | ({"lost": self.lost} if self.lost else {}) | (
            {} if self.roster is None else {"roster": self.roster}
        )  # fmt: skip


def check_end(site: str, run: str, stopped: str, by: str | None, lost: Mapping[str, str] | None = None) -> None:
    """Raise :class:`EndedEarly` if a run has ended early for a site, FinishedWithout if it went on without some."""
    if stopped not in (FINISHED, BUDGET):
        who = "" if by is None else f", site {by!r}"
        raise EndedEarly(f"site={site!r}: run {run!r} ended early: {stopped}{who}; what was spent stays spent")
    check_whole(f"site={site!r}: run {run!r}", lost or {})


@dataclass
class SiteSession:
    """A site in one run.

    Parameters
    ----------
    rows : Rows
        Of this site alone.
    ledger : DurableLedger
        Of these rows.
    noise : Noise, optional
        None for the operating system's.  Repeatable noise needs a plan *and* a ledger that are demonstrations.
    observers : sequence of callables ``(k, state)``
        After a round of a recipe the state is None.
    table : SiteTable, optional
        The same rows, for plans with recipes.
    raw : bytes, optional
        Digest of the table as it is in its file, by which a ledger knows it under every schema.
    """

    plan: Plan
    name: str
    rows: Rows
    ledger: DurableLedger
    key: SigningKey
    noise: Noise | None = None
    observers: Sequence[Observer] = ()
    table: SiteTable | None = None
    raw: bytes | None = None

    def check(self, *, bind: bool = False) -> tuple[Noise, Rows]:
        """Check everything that can be known without the hub.  Nothing is spent, reserved or sent.

        Parameters
        ----------
        bind : bool
            Tie the ledger to these rows if it is not tied to any.

        Raises
        ------
        InvalidInput, LedgerError, BudgetExceeded
        """
        plan, i = self.plan, self.plan.index(self.name)
        if plan.run in self.ledger.runs and self.ledger.given_up(plan.run):
            rule = "this site's part in it was ended for good, and nothing more of it is sent"
            raise LedgerError(f"run={plan.run!r}: {rule}; agree on a plan with another run name")
        if self.key.public != plan.sites[i].key:
            rule = f"is not the one that the plan has for {self.name!r}"
            raise InvalidInput("signing_key", None, rule, "use its own")
        self.rows.check(Logistic() if plan.infers else plan.facts.loss)
        if self.rows.d != plan.d:
            raise InvalidInput("features", self.rows.d, f"the plan has {plan.d}", "use the plan's schema")
        if self.rows.n.shape != (1, 1):
            raise InvalidInput("rows", self.rows.n.shape, "must be those of this site alone", "give no others")
        self.rows.check_unit(plan.config.rows_per_person)
        rows = held(plan.config, self.rows)
        bound, known = self.ledger.show()["bound"], [*filter(None, [self.raw]), rows_digest(*rows.arrays())]
        if bound:
            self.ledger.bind(*known, learn=bind)
        if int(self.rows.n[0, 0]) != plan.sites[i].rows:
            rule = f"the plan says {plan.sites[i].rows} of {self.name!r}"
            raise InvalidInput("rows", int(self.rows.n[0, 0]), rule, "agree on a plan with the right number")
        if plan.asks is not None and self.table is None:
            rule = "are no table, and this plan needs one: what it asks is encoded in other ways too"
            raise InvalidInput("rows", None, rule, "give a CSV or Parquet file")
        asked = None if plan.asks is None else self.table
        if asked is not None and rows_digest(*asked.rows().arrays()) != rows_digest(*self.rows.arrays()):
            raise InvalidInput("table", None, "holds other rows", "give the table of these rows")
        noise = SystemNoise() if self.noise is None else self.noise
        if len({noise.simulated, plan.demonstration, self.ledger.demonstration}) > 1:
            rule = "noise, plan and ledger must all three be of a demonstration, or none of them"
            raise InvalidInput("plan", plan.run, rule, "give a real site a plan and a ledger that are none")
        if len(self.ledger.epsilon) != 1:
            raise InvalidInput("ledger", None, "a site's ledger has one node", "make it with `sottovoce site init`")
        check_notion(plan.config, plan.facts, self.ledger)
        if bind and not bound:
            self.ledger.bind(*known)
        if plan.run in self.ledger.runs:
            self.ledger.resume(plan.run, plan.digest)
        else:
            self.ledger.afford(plan.events(self.name))
        return noise, rows

    def run(self, transport: Transport) -> Finished:
        """Take part, from the greeting to the last model.

        Raises
        ------
        Refused
            If the hub or a neighbour breaks the agreement; this site sent nothing in reply.
        LedgerCorrupt
            If the journal is older than what the hub holds.
        BudgetExceeded
            Before anything was sent, if the ledger cannot pay for the run.
        Unreachable
        """
        noise, rows = self.check(bind=True)
        plan = self.plan
        journal = Journal(self.ledger, plan.run)
        highest, own = transport.highest(plan.digest), journal.highest
        if highest > max(own, 0):
            raise LedgerCorrupt(
                f"run={plan.run!r}: the hub holds round {highest} of this site and its journal ends at round "
                f"{max(own, 0)}: the journal is an older copy; halted, nothing was drawn; find the newest one, and "
                "never restore a ledger from a backup"
            )
        check_hub(self.ledger, self.name, self.key.public, getattr(transport, "earlier", ()))
        if plan.run in self.ledger.runs:
            book = self.ledger.resume(plan.run, plan.digest)
        else:
            book = self.ledger.reserve(plan.run, plan.digest, plan.events(self.name))
        book.journaled = True
        net = self._net(journal, transport)
        asker = None
        if plan.asks is not None and self.table is not None:
            asker = at_site(plan, self.name, self.table, net, noise, book, self._observe)
        started = time.perf_counter()
        try:
            net.greet()
            net.waited, started = 0.0, time.perf_counter()
            model, outcome, found, move = self._take_part(net, asker, rows, noise, book)
        except Refused:
            net.refused()
            raise
        except NetClosed:  # before the first round
            model, outcome, found, move = self._blank(), Outcome(None, 0, NEIGHBOUR), None, None
        except Exception:
            if book.failed:  # no start can draw that release again
                with suppress(SottovoceError):  # that of the draw is told
                    net.leave("it cannot go on")
            raise
        if outcome.stopped == NEIGHBOUR and net.closed_by in (HUB, FEW, OUT):
            outcome = replace(outcome, stopped=net.closed_by)
        if outcome.stopped in (FINISHED, BUDGET):
            with suppress(NetClosed):  # a neighbour that ended before has nothing left to say
                net.finish("stop" if outcome.stopped == FINISHED else "refuse", model)
        seconds = time.perf_counter() - started
        net.leave(_WORDS[outcome.stopped])
        book.close()
        statement = self._statement(noise, len(book.rows))
        by = net.closed_by if outcome.stopped == NEIGHBOUR else None
        return Finished(
            model, outcome, statement, self.ledger.total(), float(self.ledger.epsilon[0]), seconds, net.waited, by,
            net.lost, found, self.ledger.head(), move, net.roster,
        )  # fmt: skip

    def _take_part(
        self, net: WireNet | SumNet, asker: Asker | None, rows: Rows, noise: Noise, book: Run
    ) -> tuple[Array, Outcome, Found | None, Move | None]:
        """The training and the recipes: model, outcome, results of the recipes, and the map of centred rows."""
        plan, found, move = self.plan, Found(), None
        if plan.asks is None or asker is None:
            model, outcome, move = self._train(net, rows, noise, book)
            return model, outcome, None, move
        if plan.infers:
            outcome, found = asker.infer()
            model = found.model if outcome.stopped == FINISHED else self._blank()
        else:
            assert asker.trained is not None
            model, outcome, move = self._train(net, held(plan.config, asker.trained), noise, book)
        if plan.asks.evaluation is None or outcome.stopped != FINISHED:
            return model, outcome, found, move
        judged, found = asker.judge(model, found, move)
        if plan.infers and judged.stopped == FINISHED:
            outcome = replace(outcome, rounds=len(book.rows))
        if judged.stopped in (NEIGHBOUR, BUDGET):
            outcome = replace(outcome, stopped=judged.stopped)
        return model, outcome, found, move

    def _train(self, net: WireNet | SumNet, rows: Rows, noise: Noise, book: Run) -> tuple[Array, Outcome, Move | None]:
        """The model for rows as they are, the outcome, and the map by which rows were centred."""
        plan, i = self.plan, self.plan.index(self.name)
        facts, algorithm = plan.facts.node(i), plan.prepared.algorithm.at(i)
        guard = RowGuard(rows, facts, noise, book, centring=plan.centre)
        place, stopped = Place(facts, net, guard, (), plan.d, place_of(plan.start)), FINISHED
        if plan.centre is not None:
            place, stopped = engine.centred(place, guard, plan.facts)
        if guard.move is not None:
            try:
                net.agree(guard.move)
            except NetClosed:
                stopped = NEIGHBOUR
        if stopped == FINISHED:
            before = plan.stages[0].first
            tell = [partial(self._after, observe, before) for observe in self.observers]
            outcome = engine.run(algorithm, place, plan.rounds, observers=tell)
        else:
            outcome = Outcome(algorithm.init(place), 0, stopped)
        model = np.broadcast_to(place.classifier(algorithm.model(outcome.state)), (plan.d,))
        return np.array(model), outcome, guard.move

    @staticmethod
    def _after(observe: Observer, before: int, k: int, state: Any) -> None:
        observe(before + k, state)

    def _blank(self) -> Array:
        """The model before the first round."""
        start = place_of(self.plan.start)
        return np.zeros(self.plan.last_width) + (0.0 if start is None else start)

    def _observe(self, k: int) -> None:
        for observe in self.observers:
            observe(k, None)

    def _net(self, journal: Journal, transport: Transport) -> WireNet | SumNet:
        if not self.plan.summed:
            return WireNet(self.plan, self.name, journal, transport, self.key)
        secret = secret_of(self.ledger.path, self.plan.run)
        return SumNet(self.plan, self.name, journal, transport, self.key, secret)

    def _statement(self, noise: Noise, made: int) -> Statement:
        """The price of all that was planned for this site, even if others ended the run early.

        Others see releases before they end a run, and the tightest accountants price only what was fixed beforehand.
        """
        return restate(self.plan.statement_at(self.name, noise.simulated), AtSite(self.name, made))
