"""One site's part in a run.

Rows, ledger and journal on one side, a transport on the other, the engine between.

Only the ledger's chain is stored.  A site that was killed starts again at round 1 with the releases
and inboxes of the chain: nothing is drawn or charged twice, and the algorithm reaches the same
state.  Secrets of a query are lost with the process, on purpose: the gate of `ipp_admm` never opens
again, and the printed `pvp` continues from zero.  From there on these two methods give other
results than an undisturbed run, at a price that still holds.
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
from .site_net import SiteNet
from .sums.masks import masking_key_path
from .transport import Transport

_WORDS: dict[str, Reason] = {
    FINISHED: "done",
    BUDGET: "its budget is spent",
    HUB: "the hub ended the run",
    FEW: "too few sites are left",
}


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
        Time of the rounds, and the part of it spent on messages.  It depends on the rows and no
        ledger counts it: it is for ``site run --times``, and written to a file only in a
        demonstration.
    lost : dict
        Sites that are out, and why: those without which the run went on, or could not.
    roster : dict
        Sites of the last roster: see ``ProtocolState.to_dict``.
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
    lost: dict[str, str] = field(default_factory=dict)
    found: Found | None = None
    head: str = ""
    move: Move | None = None
    roster: dict[str, Any] = field(default_factory=dict)

    @property
    def by(self) -> str | None:
        """The site without which the run could not go on, if it was one alone."""
        if self.outcome.stopped != FEW or len(self.lost) != 1:
            return None
        return next(iter(self.lost))

    @property
    def statement_as_dict(self) -> dict[str, Any]:
        """The statement as plain data."""
        return self.statement.to_dict()

    @property
    def times(self) -> dict[str, float]:
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


def check_complete_end(site: str, run: str, stopped: str, lost: Mapping[str, str]) -> None:
    """Check that a run came to its end for a site, with all sites.

    Parameters
    ----------
    site, run : str
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

    Returns the outcome, with the hub's reason if the hub or the others closed the run.
    """
    closed_by = net.exchanges.closed_by
    if outcome.stopped == NEIGHBOUR and closed_by is not None:
        outcome = replace(outcome, stopped=closed_by)
    if outcome.stopped not in (FINISHED, BUDGET):
        return outcome
    kind: Kind = "refuse"
    if outcome.stopped == FINISHED:
        kind = "stop"
    # a neighbour that ended before has nothing left to say
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
        Of this site alone.
    ledger : DurableLedger
        Of these rows.
    key : SigningKey
        The one whose public half is in the plan.
    noise : Noise, optional
        None for the operating system's.  Repeatable noise needs a plan *and* a ledger that are
        demonstrations.
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

    def check_before_run(self, *, bind: bool = False) -> tuple[Noise, Rows]:
        """Check everything that can be known without the hub.  Nothing is spent, reserved or sent.

        Parameters
        ----------
        bind : bool
            Tie the ledger to these rows if it is not tied to any.

        Returns
        -------
        Noise
            The site's: the operating system's unless the session was given another.
        Rows
            The rows, as the training holds them in memory.

        Raises
        ------
        InvalidInput
            If rows, table, key, noise or ledger are not those that the plan has of this site.
        LedgerError
            If the site's part was given up, or the ledger is of other rows or has another plan of
            this run.
        BudgetExceeded
            If the ledger cannot pay for the run.
        """
        self._check_key_and_part()
        self._check_rows()
        rows = rows_on_backend(self.plan.config, self.rows)
        bound = self.ledger.show()["bound"]
        # The rows by their digests: a ledger of others is refused before what is asked of them is
        # compared.
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
        """Refuse a key or part in the run that is not this site's, or was given up."""
        plan = self.plan
        own = plan.sites[plan.index(self.name)]
        if plan.run in self.ledger.runs and self.ledger.runs[plan.run].given_up:
            rule = "this site has ended its part for good and sends nothing more"
            raise LedgerError(f"run={plan.run!r}: {rule}; agree on a plan with another run name")
        if self.key.public != own.key:
            rule = f"is not the plan's key for {self.name!r}"
            raise InvalidInput("signing_key", None, rule, "use that site's key")

    def _check_rows(self) -> None:
        """Refuse rows of several sites, or other than the plan reads them."""
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
            rule = f"the plan says {agreed} for {self.name!r}"
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
        """Refuse a ledger of several nodes, or of a demonstration that the plan is not."""
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
        """Take part, from the greeting to the last model.

        Parameters
        ----------
        transport : Transport
            To the hub of the plan.

        Returns
        -------
        Finished
            Also if the run ended early: see ``outcome.stopped``, and :func:`check_complete_end`.

        Raises
        ------
        Refused
            If the hub or a neighbour breaks the agreement; this site sent nothing in reply.
        LedgerCorrupt
            If the journal is older than what the hub holds.
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
            # before the first round
            model, outcome, found, move = (
                self._initial_model(),
                Outcome(None, 0, NEIGHBOUR),
                None,
                None,
            )
        except Exception:
            if book.failed:
                # No start can draw that release again, so the others need not wait for this site.
                # The error of the draw is told, and not one of the farewell.
                with suppress(SottovoceError):
                    net.leave_run("it cannot go on")
            raise
        outcome = _finish_with_last_model(net, outcome, model)
        seconds = time.perf_counter() - started
        # nothing to those that go on without this site
        net.leave_run(_WORDS.get(outcome.stopped))
        book.close()
        done = net.exchanges
        return Finished(
            model=model,
            outcome=outcome,
            statement=self._statement_of_planned(noise, len(book.rows)),
            spent=self.ledger.total(),
            budget=float(self.ledger.epsilon[0]),
            seconds=seconds,
            waited=done.waited,
            lost=done.lost,
            found=found,
            head=self.ledger.file.head(),
            move=move,
            roster=done.roster,
        )

    def _prepare_network(
        self, noise: Noise, transport: Transport
    ) -> tuple[SiteNet, Asker | None, Run]:
        """Return the network, the recipes if the plan has any, and the run in the ledger.

        Asks the hub for its highest round, and reserves the run; sends no message.
        """
        plan = self.plan
        journal = Journal(self.ledger, plan.run)
        self._check_journal_is_newest(journal, transport)
        # Before the greeting: a run that the budget cannot pay for sends nothing.
        book = self._reserve_run()
        secret = masking_key_path(self.ledger.path, plan.run)
        net = SiteNet(plan, self.name, journal, transport, self.key, secret)
        if plan.asks is None or self.table is None:
            return net, None, book
        asker = make_site_asker(
            plan, self.name, self.table, net, noise, book, self._observe_recipe_round
        )
        return net, asker, book

    def _check_journal_is_newest(self, journal: Journal, transport: Transport) -> None:
        """Check that the hub has no more of this site than its ledger.

        Raises :class:`LedgerCorrupt` otherwise: the ledger is an older copy.
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
        """Return the run in the ledger.

        All that is planned for this site is reserved before anything is sent.
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
        """Run the training and the recipes.

        Returns model, outcome, results of the recipes, and the map of centred rows.
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
        # All releases of an inference and of its evaluation are its rounds.
        if plan.is_inference and judged.stopped == FINISHED:
            outcome = replace(outcome, rounds=len(book.rows))
        if judged.stopped in (NEIGHBOUR, BUDGET):
            outcome = replace(outcome, stopped=judged.stopped)
        return model, outcome, found, move

    def _run_training(
        self, net: SiteNet, rows: Rows, noise: Noise, book: Run
    ) -> tuple[Array, Outcome, Move | None]:
        """Run the training.

        Returns the model for rows as they are, the outcome, and the map by which rows were centred.
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
        observe(before + k, state)

    def _initial_model(self) -> Array:
        """Return the model before the first round."""
        zeros = np.zeros(self.plan.exchange_table.last_model.width)
        start = vector_of_start(self.plan.start)
        if start is None:
            return zeros
        return zeros + start

    def _observe_recipe_round(self, k: int) -> None:
        for observe in self.observers:
            observe(k, None)

    def _statement_of_planned(self, noise: Noise, made: int) -> Statement:
        """Return the statement about all that was planned for this site.

        Also if others ended the run early.

        Others see releases before they end a run, and the tightest accountants price only what was
        fixed beforehand.
        """
        return with_further_facts(
            self.plan.planned_privacy.statement_at(self.name, noise.simulated),
            AtSite(self.name, made),
        )
