"""The driver loop of every method, in simulation and at a site, and its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..algorithms import Algorithm
from ..data.move import Move
from ..errors import (
    AttemptLost,
    BudgetExceeded,
    CheckpointError,
    InvalidInput,
    LedgerMismatch,
    NetClosed,
    NotWritten,
    SottovoceError,
    shown,
)
from ..ledger.durable import Run
from ..network.net import Net
from ..problem.facts import Facts
from ..queries import Query, Sum
from ..util import files
from ..util.compatibility import FORMAT, refusal_of_format
from ..util.typing import Any, Array
from .curator import Asked, Centred, Curator

Observer = Callable[[int, Any], None]
"""Called with the round and the state after it; in simulations only."""

FINISHED, BUDGET, NEIGHBOUR, FEW = "finished", "budget spent", "a neighbour left", "too few sites are left"
BEGUN_BEFORE = "end the run with version 0.2, or remove the file and begin again: a ledger keeps what was spent"
"""What to do with a checkpoint of a version before 0.3."""
UNREADABLE = (SottovoceError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)
"""Raised by damaged and foreign files."""


@dataclass(frozen=True)
class Place:
    """The :class:`sottovoce.algorithms.Node` of a run: a whole simulation (lead ``(R, N)``), one site, or a plan.

    `start` is a public point whose shape broadcasts to ``(*lead, width)``.  The algorithm then runs on
    ``v = w - start``: its zeros are that point, and its regulariser pulls to it.  States and messages hold v.  Queries
    are asked about w (:meth:`sottovoce.queries.Query.around`), so releases, charges and replays are those of an
    ordinary run with other public vectors.  With a `move`, w is a model of moved rows.
    """

    facts: Facts
    net: Net
    curator: Asked
    lead: tuple[int, ...]
    width: int
    start: Array | None = None
    move: Move | None = None

    def moved(self, move: Move) -> Place:
        """The same place once rows are moved; its start stays the model that it was."""
        start = self.start
        if start is not None:
            start = move.unfold(np.broadcast_to(start, (*self.lead, self.width)))
        return replace(self, start=start, move=move)

    def ask(self, query: Query) -> Array:
        """Ask the curator: each node for its own answer, or under trust in sums all sites for theirs together."""
        asked = query if self.start is None else query.around(self.start, self.facts)
        answer = self.curator.ask(Sum.of(asked) if self.facts.summed else asked, self.net)
        return answer if self.start is None else query.beside(answer, self.start)

    def classifier(self, model: Array) -> Array:
        """The classifier of a model v, for rows as they were."""
        w = model if self.start is None else model + self.start
        return w if self.move is None else self.move.fold(np.broadcast_to(w, (*self.lead, self.width)))

    def zeros(self) -> Array:
        """Shape ``(*lead, width)``; in a plan the width is one."""
        return np.zeros((*self.lead, self.width))


@dataclass(frozen=True)
class Outcome:
    """The last complete state, the rounds behind it, and why the run ended."""

    state: Any
    rounds: int
    stopped: str


def run(
    algorithm: Algorithm[Any], place: Place, rounds: int, *, observers: Sequence[Observer] = (), state: Any = None,
    done: int = 0,
    step: Callable[..., Any] | None = None,
) -> Outcome:  # fmt: skip
    """Run rounds ``done + 1 .. rounds`` from `state`, both those of an interrupted run if it goes on.

    The run stops before a release that would exceed the budget, and when a neighbour leaves; completed rounds are
    kept.  A round whose sum over sites is not opened leaves the state as it was, and ends a run that needs all rounds.
    `step` makes a round, by default the algorithm's `round`.  The net stays open for runs that follow.
    """
    step = step or algorithm.round
    if not algorithm.any_trust and (algorithm.trust.kind == "sum") != place.facts.summed:  # prices are others
        opens = "sums alone" if place.facts.summed else "no sums"
        rule = f"{algorithm.name} trusts {algorithm.trust.kind}, and these facts are of a run that opens {opens}"
        remedy = "prepare the run with the method's own trust"
        raise InvalidInput("participants", place.facts.participants, rule, remedy)
    algorithm.check(place)
    state = algorithm.init(place) if state is None else state
    stopped = FINISHED
    for k in range(done + 1, rounds + 1):
        try:
            state = step(k, state, place)
        except AttemptLost:  # charged, and nothing was opened: the next round starts from the same state
            if algorithm.complete:
                stopped = FEW
                break
        except BudgetExceeded:
            stopped = BUDGET
            break
        except NetClosed:
            stopped = NEIGHBOUR
            break
        done = k
        for observe in observers:
            observe(k, state)
    return Outcome(state, done, stopped)


def centred(place: Place, curator: Centred, facts: Facts) -> tuple[Place, str]:
    """Ask for the mean that the curator's centring needs, and move the rows: the place of the method, and why it ended.

    `facts` are of all sites.  If the sum is lost, the attempt stays charged and the mean is zero: rows are lengthened
    and shortened alone.  If the run ends before, the place is what it was.
    """
    assert curator.centring is not None
    recipe = curator.centring.recipe
    asked = run(recipe, replace(place, start=None), len(recipe.items))  # no mean is counted from a model
    if asked.stopped == FEW:
        mean = np.zeros((1, facts.d // facts.loss.outputs))
    elif asked.stopped == FINISHED:
        mean = curator.centring.shrunk(recipe.outcome(asked.state, facts))
    else:
        return place, asked.stopped
    return place.moved(curator.centre(mean if place.lead else mean[0])), FINISHED


def save_checkpoint(path: Path, key: str, k: int, state: Any, curator: Curator) -> None:
    """Replace the checkpoint, in one step, by the run after round k; if that fails, the file is as it was.

    NotWritten then, which says that something was released.
    """
    arrays = {f"state.{name}": value for name, value in state._asdict().items()}
    arrays |= {f"curator.{name}": value for name, value in curator.state().items()}
    meta: dict[str, Any] = {"version": FORMAT, "key": key, "round": k, "ledger": curator.ledger.to_list()}
    if isinstance(curator.ledger, Run):
        meta["answers"] = curator.ledger.answers
    packed = files.pack(meta=np.array(json.dumps(meta)), **arrays)
    try:
        files.write("checkpoint", path, packed, mode=0o600)
    except NotWritten as error:
        raise error.after_release() from None


def load_checkpoint(path: Path, key: str, blank: Any, curator: Curator) -> tuple[int, Any]:
    """Restore ledger and curator, and return (rounds done, state).

    `key` is the digest of the configuration; `blank` is a state of the right type.  An unreadable file, or one of
    another configuration or of a version before 0.3, is a CheckpointError; one of a run in another ledger, whose
    answers are others, a LedgerMismatch.
    """
    try:
        arrays = files.read_arrays(path)
        meta = dict(files.from_json(str(arrays.pop("meta")), infinite=True))
        refused = refusal_of_format(meta.get("version"), BEGUN_BEFORE) if "key" in meta else None
    except UNREADABLE as error:
        raise _foreign(path) from error
    if refused is not None:
        raise CheckpointError(f"checkpoint={shown(path)}: {refused}")
    if meta.get("key") != key:
        rule = "belongs to another configuration; use the same arguments, or another file"
        raise CheckpointError(f"checkpoint={shown(path)}: {rule}")
    try:
        done, state = _restored(path, meta, arrays, blank, curator)
    except LedgerMismatch:
        raise
    except UNREADABLE as error:
        raise _foreign(path) from error
    return done, state


def _restored(
    path: Path, meta: dict[str, Any], arrays: dict[str, Array], blank: Any, curator: Curator
) -> tuple[int, Any]:
    """What :func:`load_checkpoint` gives, once the file is known to be of this configuration."""
    done = meta["round"]
    if type(done) is not int or done < 0:
        raise ValueError("no round")
    curator.ledger.restore(meta["ledger"])
    if isinstance(curator.ledger, Run) and meta.get("answers", curator.ledger.answers) != curator.ledger.answers:
        rule = "holds other answers than the run in this ledger; remove it to go on with those of the ledger"
        raise LedgerMismatch(f"checkpoint={shown(path)}: {rule}")
    curator.restore({n.removeprefix("curator."): v for n, v in arrays.items() if n.startswith("curator.")})
    state = type(blank)(*(_like(arrays[f"state.{name}"], getattr(blank, name)) for name in blank._fields))
    return done, state


def _like(found: Array, blank: Any) -> Array:
    known = np.asarray(blank)
    if found.shape != known.shape or found.dtype != known.dtype or not np.all(np.isfinite(found)):
        raise ValueError("another state")
    return found


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(f"checkpoint={shown(path)}: not a readable checkpoint; remove it to start over")
