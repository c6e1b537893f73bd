"""The driver loop of every method, and its checkpoints.

:func:`run_rounds` runs an algorithm round by round at a :class:`Place`: the public facts, the
network and the row guard of one site, of all nodes of a simulation, or of a plan (where a pricer
stands in for the row guard).  It is called by :mod:`sottovoce.runs.simulate`, by sites
(:mod:`sottovoce.deploy`) and by :mod:`sottovoce.runs.pricing`.  The *lead* of arrays is ``(R, N)``
for R replicates and N nodes of a simulation, and ``()`` at one site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..algorithms import Algorithm
from ..data.move import Move
from ..errors import (
    AttemptLost,
    BudgetExceeded,
    CheckpointError,
    LedgerMismatch,
    NetClosed,
    NotWritten,
    SottovoceError,
    format_declared_value,
)
from ..ledger.run import Run
from ..network.net import Net
from ..problem.facts import Among, Facts
from ..queries import Query
from ..util import files
from ..util.compatibility import FORMAT, check_file_format
from ..util.typing import Any, Array
from .oracles import Oracle, check_trust_of_method, choose_oracle
from .row_guard import Asked, Centred, RowGuard

Observer = Callable[[int, Any], None]
"""Called with the round and the state after it; in simulations only."""

FINISHED, BUDGET, NEIGHBOUR, FEW = (
    "finished",
    "budget spent",
    "a neighbour left",
    "too few sites are left",
)
BEGUN_BEFORE = (
    "finish the run with version 0.2, or delete the file and start over: what was spent stays in "
    "the ledger"
)
"""The remedy for a checkpoint of a version before 0.3."""
OF_GUARD = "curator."
"""Prefix of a row guard's arrays in checkpoints: its name when their format was fixed."""
UNREADABLE = (
    SottovoceError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
)
"""Errors that reading a damaged or foreign file may raise."""


@dataclass(frozen=True)
class Place:
    """The :class:`sottovoce.algorithms.Node` of a run: a whole simulation (lead ``(R, N)``), one
    site, or a plan.

    Parameters
    ----------
    facts : Facts
    net : Net
    guard : Asked
        Answers queries about rows.
    lead : tuple of int
        Leading axes of all vectors: ``(R, N)``, ``()`` for one site, ``(N,)`` in a plan.
    width : int
        Entries of a model.
    start : array, optional
        A public point whose shape broadcasts to ``(*lead, width)``.  The algorithm then runs on
        ``v = w - start``: its zeros are that point, and its regulariser pulls to it.  States and
        messages hold v.  Queries are asked about w
        (:meth:`sottovoce.queries.Query.around_origin`), so releases, charges and replays are those
        of an ordinary run with other public vectors.
    move : Move, optional
        The map that centred the rows; w is then a model of moved rows.
    """

    facts: Facts
    net: Net
    guard: Asked
    lead: tuple[int, ...]
    width: int
    start: Array | None = None
    move: Move | None = None

    def place_on_moved_rows(self, move: Move) -> Place:
        """Return the place for moved rows; its start stays the same model."""
        start = self.start
        if start is not None:
            start = move.unfold_from_models(np.broadcast_to(start, (*self.lead, self.width)))
        return replace(self, start=start, move=move)

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle that answers queries and mixes messages under the run's trust."""
        return choose_oracle(self.facts, self.net, self.guard)

    def ask(self, query: Query) -> Array:
        """Charge a query and return its answer; with a `start`, in terms of ``v = w - start``."""
        if self.start is None:
            return self.oracle.request_answer(query)
        return query.answer_from_origin(
            self.oracle.request_answer(query.around_origin(self.start, self.facts)), self.start
        )

    def among(self) -> Among:
        return self.oracle.participating_sites()

    def mean(self, answer: Array, among: Among) -> Array:
        return self.oracle.mean_over_sites(answer, among)

    def mix(self, x: Array, share: float = 1.0) -> Array:
        return self.oracle.mix_with_neighbours(x, share)

    def exact_diffusion(self, step: Array, current: Array, previous: Array) -> Array:
        """Mix a step by exact diffusion: :meth:`sottovoce.runs.oracles.Oracle.diffuse_exactly`.

        Parameters
        ----------
        step : array (..., width)
            The nodes' points after this round's step.
        current : array (..., width)
            The points before this round's step, as mixed in the last round.
        previous : array (..., width)
            Last round's `step`, before it was mixed.

        Returns
        -------
        array (..., width)
            The nodes' next points.
        """
        return self.oracle.diffuse_exactly(step, current, previous)

    def lost_dual(self, weight: Array | float) -> Array | float:
        return self.oracle.dual_of_lost_edges(weight)

    def fold_to_original_rows(self, model: Array) -> Array:
        """Return the model w of original rows, from a model v: undo `start` and `move`."""
        w = model
        if self.start is not None:
            w = model + self.start
        if self.move is None:
            return w
        return self.move.fold_into_models(np.broadcast_to(w, (*self.lead, self.width)))

    def zero_vector(self) -> Array:
        """Return zeros of shape ``(*lead, width)``; in a plan the width is one."""
        return np.zeros((*self.lead, self.width))


@dataclass(frozen=True)
class Outcome:
    """The end of a run: its last complete state, the rounds behind it, and why it stopped."""

    state: Any
    rounds: int
    stopped: str


def run_rounds(
    algorithm: Algorithm[Any],
    place: Place,
    rounds: int,
    *,
    observers: Sequence[Observer] = (),
    state: Any = None,
    done: int = 0,
    step: Callable[..., Any] | None = None,
) -> Outcome:
    """Run rounds ``done + 1 .. rounds`` of an algorithm from a state.

    The run stops before a release that would exceed the budget, and when a neighbour leaves;
    completed rounds are kept.  The net stays open for runs that follow.

    Parameters
    ----------
    algorithm : Algorithm
    place : Place
        The facts, the network and the row guard of one node, or of all nodes of a simulation.
    rounds : int
        The number of the last round, counted from the run's beginning.
    observers : sequence of callable ``(k, state)``, optional
        Called after every completed round, in this order.
    state, done : optional, int
        The state after `done` rounds of an interrupted run; None for the algorithm's initial state.
    step : callable ``(k, state, place) -> state``, optional
        Runs a round in place of the algorithm's `round`, for example without solving in a plan.

    Returns
    -------
    Outcome
        The last complete state, the number of rounds behind it, and why the run ended.

    Raises
    ------
    InvalidInput
        If the method is for another trust than the place's facts, or cannot run on them.

    Guarantee
    ---------
    A round releases what its queries release; each query is charged before its
    noise is drawn.  A round that was charged and did not complete stays charged.
    """
    step = step or algorithm.round
    check_trust_of_method(algorithm, place.facts)
    algorithm.check(place)
    if state is None:
        state = algorithm.init(place)
    for k in range(done + 1, rounds + 1):
        try:
            state = step(k, state, place)
        except (AttemptLost, BudgetExceeded, NetClosed) as error:
            reason = _reason_to_stop(error, algorithm)
            if reason is not None:
                return Outcome(state, done, reason)
        done = k
        for observe in observers:
            observe(k, state)
    return Outcome(state, done, FINISHED)


def _reason_to_stop(error: Exception, algorithm: Algorithm[Any]) -> str | None:
    """Return why a run ends with a round that failed; None if it goes on with the next round.

    A round whose sum over sites is not opened leaves the state as it was, and ends a run that needs
    all rounds.
    """
    if isinstance(error, AttemptLost):
        # Charged, and nothing was opened: the next round starts from the same state.
        if algorithm.complete:
            return FEW
        return None
    if isinstance(error, BudgetExceeded):
        # Refused before its noise was drawn: the last complete round stands.
        return BUDGET
    return NEIGHBOUR


def release_mean(place: Place, guard: Centred, facts: Facts) -> tuple[Place, str]:
    """Release the mean that centring needs, and move the row guard's rows by it.

    If the sum is lost, the attempt stays charged and the mean is taken as zero, so that rows are
    only rescaled.  If the run ends before the mean is released, the place is returned unchanged.

    Parameters
    ----------
    place : Place
        Where the method will run.
    guard : Centred
        The row guard of the place, with a `centring`.
    facts : Facts
        Public facts of all sites.

    Returns
    -------
    place : Place
        The place of the method, on moved rows.
    stopped : str
        `FINISHED`, or why the run ended.
    """
    assert guard.centring is not None
    recipe = guard.centring.recipe
    # The start is a model; the mean is one of rows, so it is asked without a start.
    asked = run_rounds(recipe, replace(place, start=None), len(recipe.items))
    if asked.stopped == FEW:
        mean = np.zeros((1, facts.d // facts.loss.outputs))
    elif asked.stopped == FINISHED:
        mean = guard.centring.shrink_mean(recipe.outcome(asked.state, facts))
    else:
        return place, asked.stopped
    # A site has no axis of replicates.
    if not place.lead:
        mean = mean[0]
    return place.place_on_moved_rows(guard.move_rows_by_mean(mean)), FINISHED


def save_checkpoint(path: Path, key: str, k: int, state: Any, guard: RowGuard) -> None:
    """Replace a checkpoint atomically by the run after round k; if that fails, it stays as it was.

    Parameters
    ----------
    path : Path
        The file; only its owner may read it (mode 0600).
    key : str
        Digest of the configuration, without which the file is not read again.
    k : int
        Rounds completed.
    state : NamedTuple of arrays
        The algorithm's state after round k.
    guard : RowGuard
        Its state and its ledger's rows are saved.

    Raises
    ------
    NotWritten
        If the file could not be written; it says that something was released.
    """
    arrays = {f"state.{name}": value for name, value in state._asdict().items()}
    arrays |= {f"{OF_GUARD}{name}": value for name, value in guard.checkpoint_state().items()}
    meta: dict[str, Any] = {
        "version": FORMAT,
        "key": key,
        "round": k,
        "ledger": guard.ledger.to_list(),
    }
    if isinstance(guard.ledger, Run):
        meta["answers"] = guard.ledger.answers
    packed = files.pack_arrays(meta=np.array(json.dumps(meta)), **arrays)
    try:
        files.write_atomically("checkpoint", path, packed, mode=0o600)
    except NotWritten as error:
        raise error.mark_as_after_release() from None


def load_checkpoint(path: Path, key: str, blank: Any, guard: RowGuard) -> tuple[int, Any]:
    """Restore the ledger and the row guard of an interrupted run, and return where it stood.

    Parameters
    ----------
    path : Path
    key : str
        Digest of the configuration.
    blank : NamedTuple of arrays
        A state of the same type and shapes, as the algorithm's `init` makes it.
    guard : RowGuard
        Its state and its ledger's rows are replaced by those of the file.

    Returns
    -------
    done : int
        Rounds completed.
    state
        Of the type of `blank`.

    Raises
    ------
    CheckpointError
        If the file cannot be read, or is of another configuration or of a version before 0.3.
    LedgerMismatch
        If the run is in another ledger, whose stored answers differ.
    """
    try:
        arrays = files.read_packed_arrays(path)
        meta = dict(files.parse_bounded_json(str(arrays.pop("meta")), infinite=True))
        # A file without a key is no checkpoint of any version: the comparison below says so.
        refused = None
        if "key" in meta:
            refused = check_file_format(meta.get("version"), BEGUN_BEFORE)
    except UNREADABLE as error:
        raise _unreadable_error(path) from error
    if refused is not None:
        raise CheckpointError(f"checkpoint={format_declared_value(path)}: {refused}")
    if meta.get("key") != key:
        rule = "belongs to another configuration; use the same arguments, or another file"
        raise CheckpointError(f"checkpoint={format_declared_value(path)}: {rule}")
    try:
        done, state = _restore_from_file(path, meta, arrays, blank, guard)
    except LedgerMismatch:
        raise
    except UNREADABLE as error:
        raise _unreadable_error(path) from error
    return done, state


def _restore_from_file(
    path: Path, meta: dict[str, Any], arrays: dict[str, Array], blank: Any, guard: RowGuard
) -> tuple[int, Any]:
    """Restore ledger and guard from a file that is known to be of this configuration."""
    done = meta["round"]
    if type(done) is not int or done < 0:
        raise ValueError("no round")
    guard.ledger.restore(meta["ledger"])
    if isinstance(guard.ledger, Run):
        stored = guard.ledger.answers
        if meta.get("answers", stored) != stored:
            rule = (
                "its stored answers differ from those of the run in this ledger; delete the "
                "checkpoint to continue from the ledger"
            )
            raise LedgerMismatch(f"checkpoint={format_declared_value(path)}: {rule}")
    of_guard = {
        name.removeprefix(OF_GUARD): value
        for name, value in arrays.items()
        if name.startswith(OF_GUARD)
    }
    guard.restore(of_guard)
    known = [
        _check_array_like(arrays[f"state.{name}"], getattr(blank, name)) for name in blank._fields
    ]
    return done, type(blank)(*known)


def _check_array_like(found: Array, blank: Any) -> Array:
    """Return an array of a file; a ValueError unless it has the blank's shape and type."""
    known = np.asarray(blank)
    if found.shape != known.shape or found.dtype != known.dtype or not np.all(np.isfinite(found)):
        raise ValueError("another state")
    return found


def _unreadable_error(path: Path) -> CheckpointError:
    return CheckpointError(
        f"checkpoint={format_declared_value(path)}: is not a readable checkpoint; delete it to "
        "start over"
    )
