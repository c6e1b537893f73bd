"""One driver loop for every method, in simulation and at a site.

A run can be resumed.  For this it needs the public state, the curator's counters and the ledger's rows, which
:func:`save_checkpoint` writes in one step after a round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import files
from ..algorithms import Algorithm
from ..curator import Asked, Curator
from ..errors import AttemptLost, BudgetExceeded, CheckpointError, NetClosed, SottovoceError, shown
from ..facts import Facts
from ..net import Net
from ..queries import Query, Sum
from ..typing import Any, Array

Observer = Callable[[int, Any], None]
"""Called with the round and the state after it.  In a simulation an observer may read rows; a site has no observers."""

FINISHED, BUDGET, NEIGHBOUR, FEW = "finished", "budget spent", "a neighbour left", "too few sites are left"
_VERSION = 1
UNREADABLE = (SottovoceError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)
"""What reading a damaged or foreign file can raise."""


@dataclass(frozen=True)
class Place:
    """The :class:`sottovoce.algorithms.Node` of a run: a whole simulation (lead ``(R, N)``), one site, or a plan.

    Parameters
    ----------
    start : array, optional
        A public point whose shape broadcasts to ``(*lead, width)``.  The algorithm then runs on ``v = w - start``: its
        zeros are that point, and its regulariser pulls to it.  Queries are asked about w
        (:meth:`sottovoce.queries.Query.around`), so that what is released, charged and replayed is that of an ordinary
        run with other public vectors.  States and messages hold v.
    """

    facts: Facts
    net: Net
    curator: Asked
    lead: tuple[int, ...]
    width: int
    start: Array | None = None

    def ask(self, query: Query) -> Array:
        """Ask the curator."""
        if self.start is None:
            return self.curator.ask(query)
        return query.beside(self.curator.ask(query.around(self.start, self.facts)), self.start)

    def ask_sum(self, query: Sum) -> Array:
        """Ask the curator for a sum over all sites."""
        if self.start is None:
            return self.curator.ask_sum(query, self.net)
        around = query.around(self.start, self.facts)
        return query.beside(self.curator.ask_sum(around, self.net), self.start)

    def classifier(self, model: Array) -> Array:
        """The classifier w of a model that the algorithm counts from the start."""
        return model if self.start is None else model + self.start

    def zeros(self) -> Array:
        """Zeros of shape ``(*lead, width)``; in a plan the width is one."""
        return np.zeros((*self.lead, self.width))


@dataclass(frozen=True)
class Outcome:
    """The last complete state, the number of rounds behind it, and why the run ended."""

    state: Any
    rounds: int
    stopped: str


def run(
    algorithm: Algorithm[Any],
    place: Place,
    rounds: int,
    *,
    observers: Sequence[Observer] = (),
    state: Any = None,
    done: int = 0,
) -> Outcome:
    """Run rounds ``done + 1 .. rounds``.

    The run stops before a release that would exceed the budget, and when a neighbour leaves.  Completed rounds are
    kept.  A round whose sum over sites is not opened leaves the state as it was, and ends a run that needs all rounds.
    The net stays open: other runs may follow on it.

    Parameters
    ----------
    state, done : optional
        The state and the number of rounds of an interrupted run, from which to go on.
    """
    algorithm.check(place)
    state = algorithm.init(place) if state is None else state
    stopped = FINISHED
    for k in range(done + 1, rounds + 1):
        try:
            state = algorithm.round(k, state, place)
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


def save_checkpoint(path: Path, key: str, k: int, state: Any, curator: Curator) -> None:
    """Write the run after round k, replacing the file in one step.

    Raises
    ------
    NotWritten
        If the file cannot be written; the file of an earlier round is then still there.
    """
    arrays = {f"state.{name}": value for name, value in state._asdict().items()}
    arrays |= {f"curator.{name}": value for name, value in curator.state().items()}
    meta = {"version": _VERSION, "key": key, "round": k, "ledger": curator.ledger.to_list()}
    files.write("checkpoint", path, files.pack(meta=np.array(json.dumps(meta)), **arrays), mode=0o600)


def load_checkpoint(path: Path, key: str, blank: Any, curator: Curator) -> tuple[int, Any]:
    """Restore ledger and curator, and return (rounds done, state).

    Parameters
    ----------
    key : str
        Digest of the configuration: a checkpoint of another one is refused.
    blank : NamedTuple
        A state of the right type.

    Raises
    ------
    CheckpointError
        If the file is unreadable or belongs to another configuration.
    """
    try:
        arrays = files.read_arrays(path)
        meta = dict(files.from_json(str(arrays.pop("meta")), infinite=True))
    except UNREADABLE as error:
        raise _foreign(path) from error
    if meta.get("version") != _VERSION or meta.get("key") != key:
        rule = "belongs to another configuration; use the same arguments, or another file"
        raise CheckpointError(f"checkpoint={shown(path)}: {rule}")
    try:
        done = meta["round"]
        if type(done) is not int or done < 0:
            raise ValueError("no round")
        curator.ledger.restore(meta["ledger"])
        curator.restore({n.removeprefix("curator."): v for n, v in arrays.items() if n.startswith("curator.")})
        state = type(blank)(*(_like(arrays[f"state.{name}"], getattr(blank, name)) for name in blank._fields))
    except UNREADABLE as error:
        raise _foreign(path) from error
    return done, state


def _like(found: Array, blank: Any) -> Array:
    known = np.asarray(blank)
    if found.shape != known.shape or found.dtype != known.dtype or not np.all(np.isfinite(found)):
        raise ValueError("another state")
    return found


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(f"checkpoint={shown(path)}: not a readable checkpoint; remove it to start over")
