"""One site's part in a run, from the checks before it to the last model.

A :class:`SiteSession` joins the site's rows and ledger, the engine that runs the algorithm, and a
transport to the hub.  :meth:`SiteSession.run` reserves the planned privacy loss in the ledger,
greets the other sites, trains, answers the plan's recipes, sends the last model and says farewell.
:class:`sottovoce.deploy.settings.SiteSettings` makes a session from the site's files.

Only the ledger with its *journal* (messages sent and inboxes received) is stored.  A site that was
killed starts again at round 1 with the releases and inboxes stored there: nothing is drawn or
charged twice, and the algorithm reaches the same state.  The secrets of a query are lost with the
process, on purpose: the gate of `ipp_admm` never opens again, and the printed `pvp` continues from
zero.  From there on these two methods give other results than an undisturbed run, at a privacy
loss that still holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

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
    check_no_lost_sites,
)
from ..ledger.digest import rows_digest
from ..ledger.durable import DurableLedger
from ..ledger.journal import Journal
from ..ledger.run import Run
from ..privacy.noise import Noise, SystemNoise
from ..privacy.statement import Statement, with_further_facts
from ..privacy.statement_facts import AtSite
from ..problem.losses import Logistic, Loss
from ..runs import engine
from ..runs.engine import BUDGET, FEW, FINISHED, NEIGHBOUR, Observer, Outcome, Place
from ..runs.prepare import rows_on_backend
from ..runs.row_guard import RowGuard
from ..runs.simulate import check_ledger_accountant
from ..runs.start import vector_of_start
from ..util.typing import Any, Array
from .answering import Asker, Found, make_site_asker
from .asks import SiteTable
from .keys import SigningKey
from .known import check_ledger_against_hub
from .messages import HUB, Kind, Reason
from .plan import Plan
from .replay import NoHub, ReplayedNet
from .site_net import SiteNet
from .sums.masks import masking_key_path
from .transport import Transport

_WORDS: dict[str, Reason] = {
    FINISHED: "done",
    BUDGET: "its budget is spent",
    HUB: "the hub ended the run",
    FEW: "too few sites are left",
}
"""Reason of a site's farewell, by how its run ended; for other ends there is no farewell."""


@dataclass(frozen=True)
class Finished:
    """A site's results at the end of a run.

    Attributes
    ----------
    model : array (d,)
        This site's classifier, of rows that are not centred.
    outcome : Outcome
        Last state of the algorithm, number of rounds, and why the run ended.
    statement : Statement
        Privacy statement about this site's rows.
    spent, budget : float
        Lifetime epsilon of the site's rows: spent so far in all runs, and the limit.
    seconds, waited : float
        Duration of the rounds, and the part of it that was spent on messages.  Durations depend on
        the rows and no ledger accounts for that: they are for ``site run --times``, and written to
        a file only in a demonstration.
    lost : dict of str
        Sites that were lost, and why: the run went on without them, or could not.
    roster : dict
        The last roster: see ``ProtocolState.to_dict``.
    found : Found, optional
        Coefficients and quality, if the plan asks for them.
    move : Move, optional
        The map by which the training centred its rows.
    head : str
        Count and hash of the ledger's last record at the end of the run.
    """

    model: Array
    outcome: Outcome
    statement: Statement
    spent: float
    budget: float
    seconds: float
    waited: float
    lost: dict[str, str] = field(default_factory=dict)
    found: Found | None = None
    head: str = ""
    move: Move | None = None
    roster: dict[str, Any] = field(default_factory=dict)

    @property
    def by(self) -> str | None:
        """The site whose loss ended the run, if it was a single one; else None."""
        if self.outcome.stopped != FEW or len(self.lost) != 1:
            return None
        return next(iter(self.lost))

    @property
    def statement_as_dict(self) -> dict[str, Any]:
        """The statement as plain data."""
        return self.statement.to_dict()

    @property
    def times(self) -> dict[str, float]:
        """Durations in seconds, as plain data."""
        return {"seconds": self.seconds, "waited": self.waited}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the model and the times."""
        plain = {
            "rounds": self.outcome.rounds,
            "stopped": self.outcome.stopped,
            "privacy": self.statement_as_dict,
            "spent": self.spent,
            "budget": self.budget,
            "by": self.by,
            "head": self.head,
            "roster": self.roster,
        }
        if self.lost:
            plain["lost"] = self.lost
        return plain


class _End(NamedTuple):
    """How a run ended for a site: model, outcome, recipes' results, map of rows, seconds."""

    model: Array
    outcome: Outcome
    found: Found | None
    move: Move | None
    seconds: float


def check_complete_end(site: str, run: str, stopped: str, lost: Mapping[str, str]) -> None:
    """Check that a run came to its end for a site, with all sites.

    Parameters
    ----------
    site, run : str
        Names of this site and of the run.
    stopped : str
        Why the run ended: a reason of :mod:`sottovoce.runs.engine` or
        :mod:`sottovoce.deploy.messages`.
    lost : mapping of str to str
        Sites without which it went on, and why.

    Raises
    ------
    EndedEarly
        If it ended before all rounds for another reason than the budget.
    FinishedWithout
        If it came to its end without some sites.
    """
    if stopped not in (FINISHED, BUDGET):
        who = ""
        if lost:
            who = f", without {', '.join(map(repr, lost))}"
        raise EndedEarly(
            f"site={site!r}: run {run!r} ended early: {stopped}{who}; what was spent stays spent"
        )
    check_no_lost_sites(f"site={site!r}: run {run!r}", lost)


def _finish_with_last_model(net: SiteNet, outcome: Outcome, model: Array) -> Outcome:
    """Send the last model of a run that came to its end.

    Returns the outcome.  If the network closed because the hub ended the run, or the others went on
    without this site, the outcome then says so.
    """
    closed_by = net.exchanges.closed_by
    if outcome.stopped == NEIGHBOUR and closed_by is not None:
        outcome = replace(outcome, stopped=closed_by)
    if outcome.stopped not in (FINISHED, BUDGET):
        return outcome
    kind: Kind = "refuse"
    if outcome.stopped == FINISHED:
        kind = "stop"
    # The exchange may fail because others have ended already; the outcome stays the same.
    with suppress(NetClosed):
        net.send_last_model(kind, model)
    return outcome


@dataclass
class SiteSession:
    """A site in one run.

    Parameters
    ----------
    plan : Plan
    name : str
        This site.
    rows : Rows
        The encoded rows of this site alone.
    ledger : DurableLedger
        The ledger of these rows.
    key : SigningKey
        The signing key whose public half is in the plan.
    noise : Noise, optional
        Source of noise; None for the operating system's random numbers.  Repeatable noise needs a
        plan *and* a ledger that are marked as a demonstration's.
    observers : sequence of callables ``(k, state)``
        Called after every exchange k of the plan with the algorithm's state, which is None after
        one of a recipe.
    table : SiteTable, optional
        The same rows as a table, for plans with inference or evaluation.
    raw : bytes, optional
        Digest of the file of the rows, by which the ledger recognises them under any schema.
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

    def check_before_run(self, *, bind: bool = False) -> tuple[Noise, Rows]:
        """Check everything that can be checked without the hub.  Nothing is spent or sent.

        Parameters
        ----------
        bind : bool
            Write the digest of these rows into a new ledger that has none yet, so that it can never
            be used for others.

        Returns
        -------
        Noise
            This site's source of noise.
        Rows
            The rows on the plan's array library, as the training uses them.

        Raises
        ------
        InvalidInput
            If rows, table, key, noise or ledger do not fit the plan.
        LedgerError
            If the site has ended its part of this run, or the ledger is of other rows or knows
            another plan under this run's name.
        BudgetExceeded
            If the ledger cannot pay for the run.
        """
        self._check_key_and_part()
        self._check_rows()
        rows = rows_on_backend(self.plan.config, self.rows)
        bound = self.ledger.show()["bound"]
        # The digests of the rows are compared first, so that the ledger of another table is refused
        # by this error and not by a later one.
        digests = [rows_digest(*rows.fingerprint_arrays())]
        if self.raw:
            digests.insert(0, self.raw)
        if bound:
            self.ledger.identity.bind_to_rows(*digests, learn=bind)
        self._check_row_count_and_table()
        noise = self.noise
        if noise is None:
            noise = SystemNoise()
        self._check_ledger(noise)
        # A new ledger is tied to the rows only now: nothing of it changes if a check above fails.
        if bind and not bound:
            self.ledger.identity.bind_to_rows(*digests)
        if self.plan.run in self.ledger.runs:
            self.ledger.resume(self.plan.run, self.plan.digest)
        else:
            self.ledger.account.epsilon_added_by_run(self.plan.planned_privacy.events(self.name))
        return noise, rows

    def _check_key_and_part(self) -> None:
        """Refuse a signing key that is not the plan's, and a run in which this site has ended."""
        plan = self.plan
        own = plan.sites[plan.index(self.name)]
        if plan.run in self.ledger.runs and self.ledger.runs[plan.run].given_up:
            rule = "this site has ended its part for good and sends nothing more"
            raise LedgerError(f"run={plan.run!r}: {rule}; agree on a plan with another run name")
        if self.key.public != own.key:
            rule = f"is not the plan's key for {self.name!r}"
            raise InvalidInput("signing_key", None, rule, "use that site's key")

    def _check_rows(self) -> None:
        """Refuse rows of several sites, or that the plan's loss, features or unit do not fit."""
        plan = self.plan
        loss: Loss = plan.facts.loss
        if plan.is_inference:
            loss = Logistic()
        self.rows.check_loss_fits(loss)
        if self.rows.d != plan.d:
            raise InvalidInput(
                "features", self.rows.d, f"the plan has {plan.d}", "use the plan's schema"
            )
        if self.rows.n.shape != (1, 1):
            raise InvalidInput(
                "rows", self.rows.n.shape, "must be those of this site alone", "give only its rows"
            )
        self.rows.check_privacy_unit(plan.config.rows_per_person)

    def _check_row_count_and_table(self) -> None:
        """Refuse another number of rows than the plan's, and a missing or other table."""
        plan = self.plan
        n = int(self.rows.n[0, 0])
        agreed = plan.sites[plan.index(self.name)].rows
        if n != agreed:
            rule = f"the plan says that {self.name!r} has {agreed} rows"
            raise InvalidInput("rows", n, rule, "agree on a plan with the right number")
        if plan.asks is None:
            return
        if self.table is None:
            rule = (
                "must be the raw table, because this plan's inference or evaluation re-encodes it"
            )
            raise InvalidInput("rows", None, rule, "give a CSV or Parquet file")
        if rows_digest(*self.table.rows().fingerprint_arrays()) != rows_digest(
            *self.rows.fingerprint_arrays()
        ):
            raise InvalidInput(
                "table",
                None,
                "does not hold the encoded rows",
                "give the table that they were encoded from",
            )

    def _check_ledger(self, noise: Noise) -> None:
        """Refuse a ledger of several nodes, and a demonstration mixed with a real run."""
        plan = self.plan
        if len({noise.simulated, plan.demonstration, self.ledger.demonstration}) > 1:
            rule = "noise, plan and ledger must all be for a demonstration, or all be real"
            raise InvalidInput(
                "plan", plan.run, rule, "give a real site a real plan and a real ledger"
            )
        if len(self.ledger.epsilon) != 1:
            raise InvalidInput(
                "ledger",
                None,
                "must have one node, because it is for one site",
                "make it with `sottovoce site init`",
            )
        check_ledger_accountant(plan.config, plan.facts, self.ledger)

    def run(self, transport: Transport) -> Finished:
        """Take part in the run, from the greeting to the last model.

        Parameters
        ----------
        transport : Transport
            Connection to the hub of the plan.

        Returns
        -------
        Finished
            Also if the run ended early: see ``outcome.stopped``, and :func:`check_complete_end`.

        Raises
        ------
        Refused
            If a message of the hub or of another site breaks the protocol; this site sends nothing
            in reply.
        LedgerCorrupt
            If the ledger is an older copy: the hub holds later messages of this site.
        BudgetExceeded
            Before anything was sent, if the ledger cannot pay for the run.
        Unreachable
            If the hub gave no reply for as long as the transport waits.

        Guarantee
        ---------
        The plan's statement for this site, about its own rows.  All events that the plan allows the
        site are reserved before anything is sent, and each is charged before its release is drawn.
        """
        noise, rows = self.check_before_run(bind=True)
        net, asker, book = self._prepare_network(noise, transport)
        end = self._go_to_end(net, asker, rows, noise, book)
        # Sends nothing if the others go on without this site.
        net.leave_run(_WORDS.get(end.outcome.stopped))
        book.close()
        return self._finished(net, end, noise, len(book.rows))

    def replay(self) -> Finished:
        """Go through a run that is over again, from the ledger alone: the same results.

        Nothing is charged, drawn, signed or sent, and the ledger stays as it is.

        Raises
        ------
        InvalidInput
            If the run did not come to its end in this ledger, or rows and plan do not fit.
        LedgerError
            If the ledger lacks a release, or was used for other rows.
        """
        plan = self.plan
        noise, rows = self.check_before_run()
        if plan.run not in self.ledger.runs:
            rule = "is not in the ledger: this site has taken no part in it"
            raise InvalidInput("run", plan.run, rule, "there is nothing to show")
        book = self.ledger.resume(plan.run, plan.digest)
        book.replays_only = True
        journal = Journal(self.ledger, plan.run)
        secret = masking_key_path(self.ledger.path, plan.run)
        net = ReplayedNet(plan, self.name, journal, NoHub(), self.key, secret)
        asker = self._make_asker(net, noise, book)
        end = self._go_to_end(net, asker, rows, noise, book)
        if end.outcome.stopped not in (FINISHED, BUDGET, FEW):
            rule = "did not come to its end in this ledger"
            raise InvalidInput("run", plan.run, rule, "go on with `sottovoce site run`")
        return self._finished(net, end, noise, len(book.rows))

    def _go_to_end(
        self, net: SiteNet, asker: Asker | None, rows: Rows, noise: Noise, book: Run
    ) -> _End:
        """Go from the greetings to the last model; arguments as of :meth:`_train_and_answer`."""
        started = time.perf_counter()
        try:
            net.exchange_greetings()
            # Sites are started one after another, so the wait for the greeting says nothing.
            net.exchanges.waited = 0.0
            started = time.perf_counter()
            model, outcome, found, move = self._train_and_answer(net, asker, rows, noise, book)
        except Refused:
            net.refused()
            raise
        except NetClosed:
            # the run ended while the greetings were exchanged
            model, outcome, found, move = (
                self._initial_model(),
                Outcome(None, 0, NEIGHBOUR),
                None,
                None,
            )
        except Exception:
            if book.failed:
                # A charged release could not be drawn, and no restart may draw it again, so the
                # others need not wait.  An error of the farewell must not hide this one.
                with suppress(SottovoceError):
                    net.leave_run("it cannot go on")
            raise
        outcome = _finish_with_last_model(net, outcome, model)
        return _End(model, outcome, found, move, time.perf_counter() - started)

    def _finished(self, net: SiteNet, end: _End, noise: Noise, made: int) -> Finished:
        """Return the results of a run that ended, after `made` releases."""
        done = net.exchanges
        return Finished(
            model=end.model,
            outcome=end.outcome,
            statement=self._statement_of_planned(noise, made),
            spent=self.ledger.total(),
            budget=float(self.ledger.epsilon[0]),
            seconds=end.seconds,
            waited=done.waited,
            lost=done.lost,
            found=end.found,
            head=self.ledger.file.head(),
            move=end.move,
            roster=done.roster,
        )

    def _prepare_network(
        self, noise: Noise, transport: Transport
    ) -> tuple[SiteNet, Asker | None, Run]:
        """Prepare a run: check the journal, reserve the budget, and connect the network.

        Returns the network, what runs the plan's recipes (None if it has none), and the run's entry
        in the ledger.  Asks the hub for its highest round, but sends no message of the run.
        """
        plan = self.plan
        journal = Journal(self.ledger, plan.run)
        self._check_journal_is_newest(journal, transport)
        # Before the greeting: a run that the budget cannot pay for sends nothing.
        book = self._reserve_run()
        secret = masking_key_path(self.ledger.path, plan.run)
        net = SiteNet(plan, self.name, journal, transport, self.key, secret)
        return net, self._make_asker(net, noise, book), book

    def _make_asker(self, net: SiteNet, noise: Noise, book: Run) -> Asker | None:
        """Return what runs the plan's recipes; None if it has none."""
        plan = self.plan
        if plan.asks is None or self.table is None:
            return None
        return make_site_asker(
            plan, self.name, self.table, net, noise, book, self._observe_recipe_round
        )

    def _check_journal_is_newest(self, journal: Journal, transport: Transport) -> None:
        """Check that the hub has no message of this site that its ledger lacks.

        Raises :class:`LedgerCorrupt` otherwise, because the ledger is then an older copy.
        """
        run, highest = self.plan.run, transport.highest_stored_round(self.plan.digest)
        own = max(journal.highest_round, 0)
        if highest > own:
            raise LedgerCorrupt(
                f"run={run!r}: the hub holds round {highest} of this site, but its journal "
                f"ends at round {own}: the journal is an older copy; halted, nothing was "
                "drawn; find the newest one, and never restore a ledger from a backup"
            )
        check_ledger_against_hub(
            self.ledger, self.name, self.key.public, getattr(transport, "earlier", ())
        )

    def _reserve_run(self) -> Run:
        """Reserve all events that are planned for this site, before anything is sent.

        Returns the run's entry in the ledger; a run that is there already is continued.
        """
        plan = self.plan
        if plan.run in self.ledger.runs:
            book = self.ledger.resume(plan.run, plan.digest)
        else:
            book = self.ledger.reserve(
                plan.run, plan.digest, plan.planned_privacy.events(self.name)
            )
        book.journaled = True
        return book

    def _train_and_answer(
        self, net: SiteNet, asker: Asker | None, rows: Rows, noise: Noise, book: Run
    ) -> tuple[Array, Outcome, Found | None, Move | None]:
        """Run the stages of the plan: training or inference, then the evaluation if any.

        Parameters
        ----------
        net : SiteNet
        asker : Asker or None
            Runs the recipes; None for a plan that only trains.
        rows : Rows
            All rows of the site, on the plan's array library.
        noise : Noise
        book : Run
            The run's entry in the ledger, which every release is charged to before it is drawn.

        Returns
        -------
        model : array (d,)
            This site's model, of rows that are not centred.
        outcome : Outcome
            How the run ended.
        found : Found or None
            Results of the recipes.
        move : Move or None
            The map by which rows were centred.
        """
        plan = self.plan
        if plan.asks is None or asker is None:
            model, outcome, move = self._run_training(net, rows, noise, book)
            return model, outcome, None, move
        found = Found()
        move = None
        if plan.is_inference:
            outcome, found = asker.run_inference()
            model = self._initial_model()
            if outcome.stopped == FINISHED:
                model = found.model
        else:
            assert asker.trained is not None
            model, outcome, move = self._run_training(
                net, rows_on_backend(plan.config, asker.trained), noise, book
            )
        if plan.asks.evaluation is None or outcome.stopped != FINISHED:
            return model, outcome, found, move
        judged, found = asker.evaluate_model(model, found, move)
        # An inference has no rounds of its own: the number of releases stands for them.
        if plan.is_inference and judged.stopped == FINISHED:
            outcome = replace(outcome, rounds=len(book.rows))
        if judged.stopped in (NEIGHBOUR, BUDGET):
            outcome = replace(outcome, stopped=judged.stopped)
        return model, outcome, found, move

    def _run_training(
        self, net: SiteNet, rows: Rows, noise: Noise, book: Run
    ) -> tuple[Array, Outcome, Move | None]:
        """Run the training, after the mean of rows if the plan centres them.

        Arguments as of :meth:`_train_and_answer`, with the training rows alone.  Returns the model
        of rows that are not centred (d,), how the training ended, and the map by which rows were
        centred, or None.
        """
        plan = self.plan
        node = plan.index(self.name)
        facts = plan.facts.facts_of_node(node)
        algorithm = plan.stages[0].prepared.algorithm.method_of_node(node)
        guard = RowGuard(rows, facts, noise, book, centring=plan.centre)
        place = Place(facts, net, guard, (), plan.d, vector_of_start(plan.start))
        stopped = FINISHED
        if plan.centre is not None:
            place, stopped = engine.release_mean(place, guard, plan.facts)
        if guard.move is not None:
            try:
                net.agree_on_row_move(guard.move)
            except NetClosed:
                stopped = NEIGHBOUR
        if stopped == FINISHED:
            before = plan.stages[0].first
            tell = [
                partial(self._observe_from_exchange, observe, before) for observe in self.observers
            ]
            outcome = engine.run_rounds(algorithm, place, plan.config.rounds, observers=tell)
        else:
            outcome = Outcome(algorithm.init(place), 0, stopped)
        model = np.broadcast_to(
            place.fold_to_original_rows(algorithm.model(outcome.state)), (plan.d,)
        )
        return np.array(model), outcome, guard.move

    @staticmethod
    def _observe_from_exchange(observe: Observer, before: int, k: int, state: Any) -> None:
        """Call `observe` after round k, numbered as an exchange of the plan: `before` + k."""
        observe(before + k, state)

    def _initial_model(self) -> Array:
        """Return the model before the first round."""
        zeros = np.zeros(self.plan.exchange_table.last_model.width)
        start = vector_of_start(self.plan.start)
        if start is None:
            return zeros
        return zeros + start

    def _observe_recipe_round(self, k: int) -> None:
        """Call all observers after exchange k of the plan; a recipe has no state to show."""
        for observe in self.observers:
            observe(k, None)

    def _statement_of_planned(self, noise: Noise, made: int) -> Statement:
        """Return the privacy statement about all events that were planned for this site.

        It is the same if others ended the run early, because they see releases before they decide
        to, and the tightest accountants hold only for a number of releases that was fixed before.
        `made` is the number of releases that were made.
        """
        return with_further_facts(
            self.plan.planned_privacy.statement_at(self.name, noise.simulated),
            AtSite(self.name, made),
        )
