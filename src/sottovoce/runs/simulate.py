"""Run all nodes and replicates in one process: from a configuration and rows to a :class:`Result`.

:func:`simulate` plans and runs; :func:`run_planned` runs what :mod:`sottovoce.runs.planned` has
priced already.  A run with a seed is a simulation (its noise can be repeated); without a seed it is
a release by somebody who holds all rows.  Separate sites run the same driver loop
(:mod:`sottovoce.runs.engine`) one node each, in :mod:`sottovoce.deploy`.

Terms: a *replicate* is one repetition of the noise on the same rows (arrays ``(R, N, d)`` of R
replicates and N nodes); a *book* is the ledger of this run; a *shared ledger* is a budget that
several runs charge; the *key* of a run is the digest of all that it depends on except the rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..algorithms import ANSWERS, Algorithm, Recipe
from ..data.move import Move
from ..data.rows import Rows
from ..errors import (
    BudgetExceeded,
    CheckpointError,
    InvalidInput,
    LedgerMismatch,
    format_declared_value,
)
from ..ledger.digest import rows_digest
from ..ledger.joint import Joint
from ..ledger.memory import Ledger
from ..ledger.run import Run
from ..network.dropout import DropoutNet, draw_loss_rounds
from ..network.net import DenseNet
from ..privacy.events import Event
from ..privacy.noise import KeyedNoise, Noise, SystemNoise
from ..privacy.statement import Statement, build_statement
from ..privacy.statement_facts import Caveat, Caveats, InLedger, Shared, caveat_text
from ..problem.facts import Facts
from ..problem.losses import Loss, make_loss
from ..solvers.local import Solver
from ..solvers.local_rows import LocalRows
from ..util import files
from ..util.compatibility import FORMAT, FORMER, Refusal, check_file_format
from ..util.later import Later
from ..util.typing import Any, Array
from . import engine
from .centre import Centring
from .config import RunConfig, refusal_of_method
from .engine import Observer, Place
from .planned import PlannedRun, check_rows_fit_loss, plan_run
from .prepare import config_of_asked_run, prepare, rows_on_backend
from .pricing import Prepared, privacy_facts, privacy_statement
from .reserved import with_reserved_noise
from .row_guard import Book, RowGuard
from .start import Start, vector_of_start, with_start_digest

if TYPE_CHECKING:
    from ..ledger.durable import DurableLedger  # SQLite, which few runs need

joblib = Later("joblib")

SAVED_BEFORE = "use version 0.2 for it, or run again: a ledger keeps what was spent"
"""The remedy for a model that a version before 0.3 saved."""

__all__ = [
    "PooledProblem",
    "Prepared",
    "Result",
    "RunConfig",
    "Start",
    "pooled_minimiser",
    "prepare",
    "privacy_statement",
    "run_planned",
    "simulate",
    "simulate_many",
]


@dataclass(frozen=True)
class Result:
    """The outcome of a run: models, privacy loss, and the configuration to repeat it.

    Attributes
    ----------
    algorithm : dict
        The method with its schedules as they ran, noise calibrated.
    models : array (R, N, d)
        The classifier of every node, per replicate.
    rounds, stopped : int, str
        Rounds completed, and why the run ended.
    ledger, statement : list of dict, Statement
        Events in order, and what has been proved of them.
    seconds : float
        Duration, for the rows' holder only: it depends on the rows, and no epsilon covers it.  Not
        saved.
    extra : dict
        What the caller keeps with the run (schema, data set, scores); it must fit in JSON.
    start : Start or None
        The public point from which the run started.
    centring, move : Centring, Move or None
        How rows were centred, and the map by their released mean; models are of rows as they were.
    outcome
        What the script of a recipe that was asked to its end returned.  Not saved.
    prepared : Prepared or None
        The run as it was priced.  Not saved.

    Examples
    --------
    >>> from sottovoce import Result, RunConfig, TrainConfig, train
    >>> run = RunConfig("prox_average", epsilon=2.0, delta=1e-5, seed=0)
    >>> result = train(TrainConfig(run, data="synthetic:n=2000,d=4")).result
    >>> result.save("run.npz")
    >>> Result.load("run.npz").models.shape
    (1, 5, 4)
    """

    config: RunConfig
    facts: Facts
    algorithm: dict[str, Any]
    models: Array
    rounds: int
    stopped: str
    ledger: list[dict[str, Any]]
    statement: Statement
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    start: Start | None = None
    centring: Centring | None = None
    move: Move | None = None
    outcome: Any = None
    prepared: Prepared | None = None

    def __repr__(self) -> str:
        run = f"{self.config.method!r}, {self.facts.n_nodes} nodes, {self.rounds} rounds"
        return f"Result({run}, {self.statement!r})"

    def _repr_html_(self) -> str:
        return self.statement._repr_html_()

    @property
    def privacy(self) -> dict[str, Any]:
        """The statement as plain data."""
        return self.statement.to_dict()

    @property
    def consensus(self) -> Array:
        """The average over nodes that are not lost (002, section VIII), (R, d); InvalidInput for
        a recipe's run.
        """
        if self.config.method in ANSWERS:
            rule = "released statistics and trained no model"
            raise InvalidInput(
                "run", self.config.method, rule, "use a file that `train --save` wrote"
            )
        lost = self.extra.get("dropout", {}).get("since", {})
        stay = [i for i in range(self.models.shape[1]) if str(i) not in lost]
        # Where all sites were lost, the models at which they stopped are all that there is.
        if lost and stay:
            return self.models[:, stay].mean(axis=1)
        return self.models.mean(axis=1)

    def packed(self) -> memoryview:
        """Pack all but the duration as the bytes of an ``.npz`` file without pickled objects."""
        meta = {
            "version": FORMAT,
            "config": self.config.to_dict(),
            "facts": self.facts.to_dict(),
            "algorithm": self.algorithm,
            "rounds": self.rounds,
            "stopped": self.stopped,
            "ledger": self.ledger,
            "privacy": self.privacy,
            "extra": self.extra,
        }
        arrays = {"models": self.models, "meta": np.array(json.dumps(meta))}
        if self.start is not None:
            arrays |= {
                "start": self.start.vector,
                "start_record": np.array(json.dumps(self.start.record)),
            }
        if self.centring is not None:
            arrays["centring"] = np.array(json.dumps(self.centring.to_dict()))
        if self.move is not None:
            arrays["mean"] = self.move.mean
        return files.pack_arrays(**arrays)

    def save(self, path: str | Path) -> None:
        """Write :meth:`packed` to a file, in one step; NotWritten if that fails, and an older
        file remains.
        """
        files.write_atomically("save", path, self.packed())

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what :meth:`save` wrote, which may come from anybody; CheckpointError if it is no
        saved run.
        """
        refused: Refusal | None = None
        try:
            arrays = files.read_packed_arrays(path)
            meta = files.parse_bounded_json(str(arrays["meta"]), infinite=True)
            if "config" in meta:
                refused = check_file_format(meta.pop("version", None), SAVED_BEFORE)
                refused = refused or refusal_of_method(meta["config"])
            if refused is not None:
                raise ValueError("another format, or a method that is not known")
            return cls._from_record(arrays, meta)
        except engine.UNREADABLE as error:
            rule = refused or "not a saved run; use a file written by `train --save`"
            raise CheckpointError(f"run={format_declared_value(Path(path))}: {rule}") from error

    @classmethod
    def _from_record(cls, arrays: Mapping[str, Array], meta: dict[str, Any]) -> Result:
        """Read what :meth:`packed` wrote; an error of :data:`engine.UNREADABLE` otherwise."""
        config = RunConfig.from_record(meta.pop("config"))
        facts = Facts.from_dict(meta.pop("facts"))
        models = arrays["models"]
        _check_models(models, config, facts)
        kinds = {
            "algorithm": dict,
            "rounds": int,
            "stopped": str,
            "ledger": list,
            "privacy": dict,
            "extra": dict,
        }
        if meta.keys() != kinds.keys():
            raise ValueError("another record")
        if not all(type(meta[name]) is kind for name, kind in kinds.items()):
            raise ValueError("another record")
        said = Statement.from_dict(meta.pop("privacy"))
        start = None
        if "start" in arrays:
            start = Start.from_record(
                arrays["start"], files.parse_bounded_json(str(arrays["start_record"]))
            )
        with_start_digest(config, start, facts.d)
        centring = _centring_of_record(arrays, config, facts)
        move = None
        # A run that ended before its mean was released has no rounds, and no mean.
        if centring is not None and ("mean" in arrays or meta["rounds"]):
            move = centring.map_for_mean(arrays["mean"])
            if move.mean.shape != (config.replicates, facts.d // facts.loss.outputs):
                raise ValueError("means of another run")
        return cls(
            config=config,
            facts=facts,
            models=models,
            statement=said,
            start=start,
            centring=centring,
            move=move,
            **meta,
        )


def _check_models(models: Array, config: RunConfig, facts: Facts) -> None:
    """Raise a ValueError unless these are finite models of such a run."""
    replicates, nodes, d = models.shape
    # A file of one site has the models of that site alone.
    known = (replicates, d) == (config.replicates, facts.d) and 1 <= nodes <= facts.n_nodes
    if not known or models.dtype != np.float64 or not np.all(np.isfinite(models)):
        raise ValueError("models of another run")


def _centring_of_record(
    arrays: Mapping[str, Array], config: RunConfig, facts: Facts
) -> Centring | None:
    """Return the centring of a saved run; a ValueError if its configuration says otherwise."""
    centring, digest = None, None
    if "centring" in arrays:
        centring = Centring.from_record(files.parse_bounded_json(str(arrays["centring"])))
        centring.check_columns(facts.d // facts.loss.outputs)
        digest = centring.digest
    if config.centre != digest:
        raise ValueError("rows that were centred otherwise")
    return centring


def simulate(
    config: RunConfig,
    rows: Rows,
    *,
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | None = None,
    label: str = "",
    ledger: DurableLedger | Ledger | None = None,
    run_name: str | None = None,
    caveat: Caveat = None,
    deal: bytes | None = None,
    start: Start | None = None,
    method: Recipe | None = None,
    loss: Loss | None = None,
    digest: bytes | None = None,
    centre: Centring | None = None,
    dropout: float = 0.0,
) -> Result:
    """Run all nodes and replicates at once.

    Parameters
    ----------
    config : RunConfig
    rows : Rows
        Of N nodes.
    observers : sequence of callables ``(k, state)``
        Called after every round with its number and the state; a state holds models relative to
        `start`.
    checkpoint : path, optional
        A file written after every round.  If it exists and belongs to this configuration, the run
        goes on from it, bit for bit as if it had never stopped.
    label : str
        Names the data in the run's key.  Never a digest of rows: in a ledger the key is the run's
        name.
    ledger : DurableLedger or Ledger, optional
        A budget that several runs share.  One on disk reserves the run before the first round and
        stores every release before it is used; the same call resumes or replays the run.  One in
        memory refuses the run before its first round if the budget does not cover all of it.
    run_name : str, optional
        Name of the run in that ledger; None for its key.
    caveat : str, or iterable of str or None, optional
        What epsilon does not cover, for the statement: see
        :func:`sottovoce.runs.pricing.privacy_statement`.
    deal : bytes, optional
        Digest of how rows are partitioned over nodes, for a ledger in memory
        (:meth:`sottovoce.ledger.memory.Ledger.record_event`): of a table and of each node's row
        numbers in it.  None digests every node's rows, which is right if rows never change nodes.
    start : Start, optional
        The public point from which the run starts, and to which its regulariser pulls; None for
        zero.  It changes no price; the statement says what it was computed from.
    method : Recipe, optional
        Asked in place of the configuration's method, under its budget, trust and seed.  The run's
        key holds its identity, so that no answer is read as that of another recipe, model or
        threshold.
    loss : Loss, optional
        None for the configuration's.
    digest : bytes, optional
        Digest of the raw table, to which a new ledger on disk is bound; a ledger that is bound to
        `rows` is accepted too.
    centre : Centring, optional
        Asks for the rows' mean first, within epsilon, and runs the method on rows without it
        (:func:`sottovoce.runs.centre.decide_centring`).  States are of moved rows; models, start
        and result of rows as they were.
    dropout : float
        Probability of each site to be lost for good in a round, drawn from the seed, for all
        replicates alike: the run goes on, or ends, as separate sites would.  The ledger keeps the
        price of the plan, with all sites to the end.

    Returns
    -------
    Result
        Models of every replicate and node, the ledger's events, and what was proved of them.

    Raises
    ------
    InvalidInput
        On a parameter that breaks a rule; nothing has been spent.

    Guarantee
    ---------
    Each release is charged before its noise is drawn, and in the corrected form none is made that
    would exceed the configuration's epsilon.  ``Result.statement`` says the total, the neighbouring
    relation and the privacy unit.  With a seed the noise can be repeated: the run is a simulation,
    and protects nothing.
    """
    started = time.perf_counter()
    asked = config_of_asked_run(config, method)
    check_rows_fit_loss(rows, asked, make_loss(asked.loss) if loss is None else loss)
    planned = plan_run(config, rows.n, rows.d, method=method, loss=loss, start=start, centre=centre)
    result = run_planned(
        planned,
        rows,
        observers=observers,
        checkpoint=checkpoint,
        label=label,
        ledger=ledger,
        run_name=run_name,
        caveat=caveat,
        deal=deal,
        digest=digest,
        dropout=dropout,
    )
    return replace(result, seconds=time.perf_counter() - started)


def run_planned(
    planned: PlannedRun,
    rows: Rows,
    *,
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | None = None,
    label: str = "",
    ledger: DurableLedger | Ledger | None = None,
    run_name: str | None = None,
    caveat: Caveat = None,
    deal: bytes | None = None,
    digest: bytes | None = None,
    dropout: float = 0.0,
) -> Result:
    """Run what is planned on the rows that it was planned for: charge, draw, exchange, and state
    what was proved.

    Parameters
    ----------
    planned : PlannedRun
    rows : Rows
        Of the sizes that the run was priced for.
    observers, checkpoint, label, ledger, run_name, caveat, deal, digest, dropout
        As for :func:`simulate`.

    Returns
    -------
    Result

    Raises
    ------
    InvalidInput
        For other rows, or a ledger that the run does not fit; nothing has been spent.
    """
    started = time.perf_counter()
    planned.check_planned_rows(rows)
    prepared, config, start = planned.prepared, planned.config, planned.start
    if checkpoint is not None:
        files.check_writable_path("checkpoint", checkpoint, make=True)
    key = _key_of_run(config, prepared.facts, label, prepared.algorithm.identity_of_run())
    lead = (config.replicates, prepared.facts.n_nodes)
    noise = _noise_source(config.seed, lead)
    rows_in_ledger = _RowsInLedger(rows, rows_on_backend(config, rows), deal=deal, digest=digest)
    prepared, book = _open_ledger_of_run(
        prepared, ledger, rows_in_ledger, run_name, key, simulated=noise.simulated
    )
    with book if isinstance(book, Joint) else nullcontext():
        alone = ledger is None and checkpoint is None and config.method not in ANSWERS
        lossy = _lossy_network(dropout, prepared, rows_in_ledger.held, config.seed, alone)
        guard = RowGuard(
            rows_in_ledger.held, prepared.facts, noise, book, centring=prepared.centring
        )
        place = _place_of_run(prepared, guard, lossy, lead, start)
        file = _checkpoint_of_run(checkpoint, key, guard, ledger)
        place, outcome = _centre_and_run(
            prepared.algorithm, place, guard, config.rounds, lossy, observers, file
        )
    statement = _close_and_state(
        prepared, book, ledger, start, simulated=noise.simulated, caveat=caveat
    )
    models = place.fold_to_original_rows(prepared.algorithm.model(outcome.state))
    return Result(
        config,
        prepared.facts,
        algorithm=prepared.algorithm.to_dict(),
        models=np.array(np.broadcast_to(models, (*lead, rows.d))),
        rounds=outcome.rounds,
        stopped=outcome.stopped,
        ledger=book.to_list(),
        statement=statement,
        seconds=time.perf_counter() - started,
        start=start,
        centring=prepared.centring,
        move=guard.move,
        extra=_lost_sites(lossy, dropout, config.rounds),
        outcome=_outcome_of_script(prepared, outcome),
        prepared=prepared,
    )


def _place_of_run(
    prepared: Prepared,
    guard: RowGuard,
    lossy: DropoutNet | None,
    lead: tuple[int, int],
    start: Start | None,
) -> Place:
    """Return the place at which the method runs: all nodes and replicates in one process."""
    net = DenseNet(prepared.graph) if lossy is None else lossy
    return Place(prepared.facts, net, guard, lead, prepared.facts.d, vector_of_start(start))


def _checkpoint_of_run(
    checkpoint: str | Path | None, key: str, guard: RowGuard, ledger: DurableLedger | Ledger | None
) -> _Checkpoint | None:
    """Return the file of a run whose noise a seed or a ledger can repeat; None if none is asked."""
    if checkpoint is None:
        return None
    # A round that is run again must release what it released before: else it is a second release,
    # which nobody has paid for.
    if not guard.noise.simulated and ledger is None:
        rule = "a checkpoint needs noise that can be repeated, from a seed or a ledger"
        raise InvalidInput("seed", None, rule, "give a seed or a ledger")
    return _Checkpoint(Path(checkpoint), key, guard)


def _outcome_of_script(prepared: Prepared, outcome: engine.Outcome) -> Any:
    """Return what the script of a recipe that was asked to its end returned; else None."""
    if outcome.stopped != engine.FINISHED:
        return None
    return prepared.algorithm.outcome(outcome.state, prepared.facts)


def _close_and_state(
    prepared: Prepared,
    book: Ledger | Joint | Run,
    ledger: DurableLedger | Ledger | None,
    start: Start | None,
    *,
    simulated: bool,
    caveat: Caveat,
) -> Statement:
    """Close the run in its ledger, and return what was proved of its releases."""
    known = privacy_facts(prepared, book.rows, simulated=simulated, caveat=caveat)
    if start is not None:
        known.append(Caveats(start.caveat))
    # Closed before the total is read: what was reserved and not released is free again.
    if isinstance(book, Run):
        book.close()
    if ledger is not None:
        known.append(_shared_total(book, ledger))
    return build_statement(known)


@dataclass(frozen=True)
class _RowsInLedger:
    """The rows of a run, and the digests by which ledgers identify them.

    Parameters
    ----------
    dealt : Rows
        As partitioned over the sites.
    held : Rows
        As row guards hold them: on the array backend, and pooled under a curator.
    deal : bytes, optional
        For a ledger in memory, in place of a digest of `dealt`.
    digest : bytes, optional
        For a ledger on disk, in addition to a digest of `held`.
    """

    dealt: Rows
    held: Rows
    deal: bytes | None
    digest: bytes | None

    def digests_on_disk(self) -> list[bytes]:
        """Return all digests by which a ledger on disk may know these rows.

        The first is the one to which a new ledger is bound.
        """
        own = rows_digest(*self.held.fingerprint_arrays())
        if self.digest is None:
            return [own]
        return [self.digest, own]

    def deal_in_memory(self) -> bytes:
        """Return the digest by which a ledger in memory knows the rows."""
        if self.deal is not None:
            return self.deal
        return rows_digest(*self.dealt.fingerprint_arrays())


def _open_ledger_of_run(
    prepared: Prepared,
    ledger: DurableLedger | Ledger | None,
    rows: _RowsInLedger,
    run_name: str | None,
    key: str,
    *,
    simulated: bool,
) -> tuple[Prepared, Ledger | Joint | Run]:
    """Return the run and the ledger that it charges.

    A run that was reserved in a ledger on disk before has the noise of that reservation.
    """
    if ledger is None:
        if np.any(np.isfinite(prepared.ledger.epsilon)):
            prepared.ledger.expect(prepared.planned_events())
        return prepared, prepared.ledger
    if isinstance(ledger, Ledger):
        # Rows are identified by their content: if two people with equal rows change places between
        # runs, the digest stays and their spending is exchanged.
        return prepared, _join_shared_ledger(prepared, ledger, rows.deal_in_memory())
    if ledger.demonstration and not simulated:
        raise InvalidInput(
            "ledger",
            None,
            "was made for a demonstration and cannot pay for a release",
            "use the ledger of these rows",
        )
    ledger.identity.bind_to_rows(*rows.digests_on_disk())
    name = run_name or key
    if name in ledger.runs:
        ledger.runs.check_can_continue(name)
        prepared = with_reserved_noise(prepared, ledger.runs[name].planned)
    elif run_name is None:
        _check_no_former(ledger)
    return prepared, _reserve_or_resume(prepared, ledger, name, key)


@dataclass(frozen=True)
class _Checkpoint:
    """The file to which a run is written after every round, and from which it is resumed."""

    path: Path
    key: str
    guard: RowGuard

    def resume_state(self, algorithm: Algorithm[Any], place: Place) -> tuple[int, Any]:
        """Return the rounds done and the state after them; 0 and None for a run that begins, or
        begins again.
        """
        # A method whose releases depend on statistics of earlier rounds needs all of them again.
        # Without a seed these are not in the file, so its run is replayed from the ledger.
        replays = algorithm.recalls and not self.guard.noise.simulated
        if replays or not self.path.exists():
            return 0, None
        return engine.load_checkpoint(self.path, self.key, algorithm.init(place), self.guard)

    def observe_round(self, k: int, state: Any) -> None:
        """Write the file after round k."""
        engine.save_checkpoint(self.path, self.key, k, state, self.guard)

    def check_released_mean(self, place: Place) -> None:
        """Refuse a file that holds another mean of the rows than the one that was released
        first.
        """
        guard = self.guard
        released = replace(guard, ledger=_ledger_to_repeat(guard.ledger))
        engine.release_mean(replace(place, guard=released), released, guard.facts)
        if released.move != guard.move:
            rule = (
                "holds a mean that differs from the released mean; delete the checkpoint to "
                "continue"
            )
            raise CheckpointError(f"checkpoint={format_declared_value(self.path)}: {rule}")


def _centre_and_run(
    algorithm: Algorithm[Any],
    place: Place,
    guard: RowGuard,
    rounds: int,
    lossy: DropoutNet | None,
    observers: Sequence[Observer],
    file: _Checkpoint | None,
) -> tuple[Place, engine.Outcome]:
    """Release the mean if rows are centred, then run all remaining rounds.

    Also return the method's place, which is on moved rows where these are centred.
    """
    done, state = 0, None
    stopped = engine.FINISHED
    watchers = list(observers)
    if file is not None:
        done, state = file.resume_state(algorithm, place)
        watchers.append(file.observe_round)
    if guard.move is not None:
        # A mean that is known before anything ran was restored from the checkpoint.
        assert file is not None
        file.check_released_mean(place)
        place = place.place_on_moved_rows(guard.move)
    elif guard.centring is not None:
        place, stopped = engine.release_mean(place, guard, guard.facts)
    if stopped == engine.FINISHED:
        step = None
        if lossy is not None:
            step = partial(_run_lossy_round, algorithm, lossy)
        outcome = engine.run_rounds(
            algorithm, place, rounds, observers=watchers, state=state, done=done, step=step
        )
    else:
        outcome = engine.Outcome(algorithm.init(place), 0, stopped)
    # No neighbour can leave a simulation: a closed network means that too few sites are left.
    if lossy is not None and outcome.stopped == engine.NEIGHBOUR:
        outcome = replace(outcome, stopped=engine.FEW)
    return place, outcome


def _noise_source(seed: int | None, lead: tuple[int, int]) -> Noise:
    """Return the noise source of every replicate and node.

    Without a seed it draws from the operating system; with one, noise can be repeated.
    """
    if seed is None:
        return SystemNoise(lead)
    replicates, nodes = lead
    return KeyedNoise(seed, range(replicates), range(nodes))


def _shared_total(book: Ledger | Joint | Run, ledger: DurableLedger | Ledger) -> InLedger:
    """Return the total that the shared ledger has spent, as a fact of the statement."""
    name = "in memory"
    if isinstance(book, Run):
        name = book.name
    budget = tuple(np.atleast_1d(ledger.epsilon).tolist())
    return InLedger(Shared(name, ledger.total(), budget, ledger.delta))


def _lossy_network(
    dropout: float, prepared: Prepared, rows: Rows, seed: int | None, alone: bool
) -> DropoutNet | None:
    """Return a network that loses sites at random, to simulate dropout; None without dropout."""
    if dropout == 0.0:
        return None
    nodes = prepared.facts.n_nodes
    if seed is None or not alone or nodes < 2 or not prepared.config.trusted.between_sites:
        rule = (
            "the loss of sites can only be simulated: with a seed, two sites or more, a trust "
            "other than 'curator', and neither ledger nor checkpoint"
        )
        raise InvalidInput("dropout", dropout, rule, "give a seed, or leave dropout out")
    since = draw_loss_rounds(dropout, seed, nodes)
    induced = bool(prepared.algorithm.induced)
    return DropoutNet(prepared.graph, since, rows.n[:, 0], induced=induced)


def _run_lossy_round(
    algorithm: Algorithm[Any], net: DropoutNet, k: int, state: Any, place: Place
) -> Any:
    """Run round k with the nodes that are left; lost nodes keep their last state."""
    net.begin_round(k, place.facts)
    after = algorithm.round(k, state, place)
    parts = [np.where(net.present_nodes, new, old) for new, old in zip(after, state, strict=True)]
    return type(after)(*parts)


def _lost_sites(net: DropoutNet | None, rate: float, rounds: int) -> dict[str, Any]:
    """Return the round from which each site was lost, for the record; nothing without dropout."""
    if net is None:
        return {}
    since = {str(i): int(k) for i, k in enumerate(net.since) if k <= rounds}
    return {"dropout": {"rate": rate, "since": since}}


def simulate_many(
    configs: Iterable[RunConfig],
    rows: Rows,
    *,
    n_jobs: int | None = None,
    caveat: Caveat = None,
    start: Start | None = None,
) -> list[Result]:
    """Run several configurations on the same rows, distributed by joblib; each result is that of
    :func:`simulate`.

    Parameters
    ----------
    configs : iterable of RunConfig
    rows : Rows
        Sent once to each worker if joblib's backend can do so (memory-mapped, or scattered over a
        cluster).
    n_jobs : int, optional
        As in joblib; None for what an enclosing ``joblib.parallel_config`` says (say "dask" or
        "ray"), or for one.
    caveat, start : optional
        As for :func:`simulate`, of all runs.

    Returns
    -------
    list of Result
        In the order of `configs`.
    """
    said = caveat_text(caveat)
    one = joblib.delayed(simulate)
    return list(
        joblib.Parallel(n_jobs=n_jobs)(
            one(config, rows, caveat=said, start=start) for config in configs
        )
    )


def _affordable_releases(prepared: Prepared) -> tuple[Event, ...]:
    """Return the releases that the run's own budget allows, without data."""
    config = prepared.config
    if config.replicates != 1:
        rule = "a ledger charges one release, and every replicate is a release of its own"
        raise InvalidInput("replicates", config.replicates, rule, "use replicates=1 with a ledger")
    allowed = prepared.ledger.trial()
    planned = prepared.planned_events()
    allowed.expect(planned)
    for event in planned:
        try:
            allowed.record_event(event)
        except BudgetExceeded:
            break
    return allowed.rows


def check_ledger_accountant(
    config: RunConfig, facts: Facts, ledger: DurableLedger | Ledger
) -> None:
    """Refuse a ledger whose accountant cannot price the run's releases.

    Parameters
    ----------
    config : RunConfig
        Its delta is named in the error.
    facts : Facts
        Whether the run's accounting is pure.
    ledger : DurableLedger or Ledger

    Raises
    ------
    InvalidInput
        If the ledger counts pure epsilon, and the run's releases are priced under a delta.
    """
    if ledger.accountant.name == "pure" and not facts.pure:
        rule = (
            "the ledger counts pure epsilon, but this run's releases are only proved with a delta"
        )
        remedy = "use pure epsilon (--pure, delta=None), or a ledger that was made with a delta"
        raise InvalidInput("delta", config.delta, rule, remedy)


def _join_shared_ledger(prepared: Prepared, shared: Ledger, deal: bytes) -> Joint:
    """Join the run's ledger to a shared one that holds the price of the whole run."""
    check_ledger_accountant(prepared.config, prepared.facts, shared)
    m = prepared.config.sites_per_row
    counted = shared.sites_per_row
    if counted < m:
        rule = f"the ledger was made with sites_per_row={counted}, for people with rows at fewer"
        rule += " sites"
        raise InvalidInput("sites_per_row", m, rule, f"share a ledger made with sites_per_row={m}")
    if counted > m and prepared.facts.participants:
        rule = (
            f"the ledger was made with sites_per_row={counted}, and sums over sites must be "
            "calibrated for the same number"
        )
        raise InvalidInput("sites_per_row", m, rule, f"use sites_per_row={counted}")
    nodes = prepared.facts.n_nodes
    # A row guard of all sites' rows would hold several rows of one person.
    if counted > nodes:
        rule = (
            f"the ledger was made with sites_per_row={counted}, but the rows of this run are at "
            f"{nodes}"
        )
        raise InvalidInput(
            "method", prepared.config.method, rule, f"use a ledger made with sites_per_row={nodes}"
        )
    shared.settle()
    if not shared.accountant.is_filter:
        rule = "its totals are not proved for runs that are chosen after seeing earlier results"
        raise InvalidInput(
            "accountant",
            shared.accountant.name,
            rule,
            "share a ledger with the accountant 'pure', 'zcdp' or 'rdp'",
        )
    return Joint(prepared.ledger, shared, _affordable_releases(prepared), deal)


def _ledger_to_repeat(book: Book) -> Ledger | Run:
    """Return a ledger with which a run's first releases can be repeated without a new charge.

    A run in a ledger on disk finds its stored answers.  In memory the noise has a seed, and the
    ledger that is returned has no limit and is thrown away.
    """
    if isinstance(book, Run):
        return book.from_first_release()
    own = book
    if isinstance(book, Joint):
        own = book.own
    assert isinstance(own, Ledger)
    return Ledger(own.accountant, math.inf, own.delta)


def _reserve_or_resume(prepared: Prepared, ledger: DurableLedger, name: str, key: str) -> Run:
    """Reserve the releases that the run's own budget allows, or resume the run."""
    check_ledger_accountant(prepared.config, prepared.facts, ledger)
    if len(ledger.epsilon) != prepared.facts.n_nodes:
        rule = f"the ledger was made for {len(ledger.epsilon)} sites"
        raise InvalidInput(
            "nodes", prepared.facts.n_nodes, rule, "use the ledger made for this partition"
        )
    if prepared.config.sites_per_row > 1:
        rule = "a ledger on disk accounts for each site's rows separately"
        raise InvalidInput(
            "sites_per_row",
            prepared.config.sites_per_row,
            rule,
            "share a ledger in memory, or use 1",
        )
    allowed = _affordable_releases(prepared)
    if name in ledger.runs:
        return ledger.resume(name, key)
    return ledger.reserve(name, key, allowed)


def _check_no_former(ledger: DurableLedger) -> None:
    """Refuse an unnamed run if the ledger holds an unfinished unnamed run of a version before 0.3.

    It may be the same run, and would be charged twice.
    """
    former = [name for name in ledger.runs.open_former_runs if re.fullmatch("[0-9a-f]{32}", name)]
    if former:
        rule = f"{FORMER}, and its reserved budget is still held; the run may be this one"
        remedy = (
            "finish it with version 0.2, close it with `sottovoce ledger close`, or give this "
            "run a name of its own"
        )
        raise LedgerMismatch(f"run={former[0]!r}: {rule}; {remedy}")


def _key_of_run(config: RunConfig, facts: Facts, label: str, identity: dict[str, Any]) -> str:
    """Return the run's key: a digest of all that it depends on but the rows."""
    plain = config.to_dict()
    if config.method not in ANSWERS:
        # "momentum" with trust="sum" is "sum_momentum": one run must have one key.
        plain.pop("trust", None)
    parts = [plain, facts.to_dict(), label]
    # Only recipes have an identity; keys of all other runs are digests of the three parts.
    if identity:
        parts.append(identity)
    return _digest_of_parts(parts)


def _digest_of_parts(parts: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def pooled_minimiser(rows: Rows, config: RunConfig, l2: float | None = None) -> Array:
    """Compute the minimiser over all rows of all nodes, without noise: a baseline.

    Parameters
    ----------
    rows : Rows
    config : RunConfig
        Its loss.
    l2 : float, optional
        The weight of ``||w||^2 / 2`` relative to the mean loss; None for one over the number of
        rows.

    Returns
    -------
    array (d,)

    Guarantee
    ---------
    None: the answer is exact, and must not leave the rows' holder.
    """
    return PooledProblem(rows, config.loss).minimiser(l2)


class PooledProblem:
    """The rows of all nodes, prepared once for minimisers under several penalties, without noise.

    Parameters
    ----------
    rows : Rows
    loss : str
        The name of a loss, as of a configuration.
    """

    def __init__(self, rows: Rows, loss: str) -> None:
        pooled = rows.pool_at_one_node()
        self._units, self._d = pooled.n[0, 0], rows.d
        self._rows = LocalRows.prepare_rows(pooled, make_loss(loss), 1.0)

    def minimiser(self, l2: float | None = None) -> Array:
        """Compute the minimiser under one penalty, whatever was computed before.

        Parameters
        ----------
        l2 : float, optional
            As for :func:`pooled_minimiser`.

        Returns
        -------
        array (d,)

        Guarantee
        ---------
        None: the answer is exact, and must not leave the rows' holder.
        """
        if l2 is None:
            l2 = 1.0 / self._units
        zero = np.zeros((1, self._d))
        solver = Solver.on_prepared_rows(self._rows)
        return solver.minimise(zero, np.array([[l2]]), zero, 1e-9).w[0]
