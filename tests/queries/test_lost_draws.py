"""Draws that nobody saw: what a query remembers of one must not be used after it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput, SolverError
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.network.net import DenseNet
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.losses import Logistic
from sottovoce.runs.engine import Place
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.solvers.local import Solver


class Beaten(Ledger):
    """A ledger in which another process stored its own draw of the first release before ours
    came.
    """

    lost = 0

    def charge_once(self, event: Any, draw: Any) -> bytes:
        drawn = super().charge_once(event, draw)
        if len(self.rows) > 1:
            return drawn
        self.lost += 1
        return np.zeros_like(np.frombuffer(drawn, dtype="<f8")).tobytes()


def gate(rows: Rows, form: str, ledger: Ledger, rounds: int) -> np.ndarray:
    """Flags (rounds, N) of a gate that passes whenever it may."""
    config = RunConfig.from_dict(
        {
            "method": "ipp_admm",
            "form": form,
            "delta": 1e-5,
            "accountant": "best",
            "positives": 2,
            "rounds": rounds,
            "epsilon": 50.0,
            "threshold": 0.0 if form == "corrected" else -0.9,
            "rho": 0.02 if form == "corrected" else 1.0,
            "eta": 0.05,
        }
    )
    ready = prepare(config, rows.n, rows.d)
    nodes = range(len(rows.n))
    guard = RowGuard(rows, ready.facts, KeyedNoise(1, [0], nodes, lead=(len(nodes),)), ledger)
    flags = []

    class Watch:
        facts = ready.facts

        def charge_and_answer(self, query: Any) -> np.ndarray:
            answer = guard.charge_and_answer(query)
            flags.append(answer[..., -1])
            return answer

        def charge_and_open_sum(self, query: Any, net: Any) -> np.ndarray:
            raise AssertionError("a gate opens no sums")

    place = Place(ready.facts, DenseNet(ready.graph), Watch(), (len(nodes),), rows.d)
    state = ready.algorithm.init(place)
    for k in range(1, rounds + 1):
        state = ready.algorithm.round(k, state, place)
    return np.array(flags)


@pytest.mark.parametrize("form", ["corrected", "printed"])
def test_a_gate_whose_first_draw_was_lost_never_opens_again(rows: Rows, form: str) -> None:
    """Else it would send `positives` releases on top of those of the draw that was stored."""
    best = make_accountant("best")
    assert np.all(gate(rows, form, Ledger(best, math.inf, 1e-5), 5).sum(axis=0) > 0)
    beaten = Beaten(best, math.inf, 1e-5)
    assert not gate(rows, form, beaten, 5).any()
    assert beaten.lost == 1


class Crash(Exception):
    """Stands for a crash."""


def test_a_printed_gate_sends_no_more_after_a_crash_than_was_charged(
    rows: Rows, tmp_path: Path
) -> None:
    config = RunConfig.from_dict(
        {
            "method": "ipp_admm",
            "form": "printed",
            "delta": 1e-5,
            "accountant": "rdp",
            "positives": 2,
            "rounds": 8,
            "epsilon": 200.0,
            "threshold": -0.9,
            "rho": 1.0,
            "eta": 0.05,
        }
    )
    n = len(rows.n)
    with DurableLedger.create(
        tmp_path / "a.ledger", epsilon=1e4, delta=1e-5, accountant="rdp", n_nodes=n
    ) as ledger:

        def crash(k: int, _: Any) -> None:
            if k == 3:
                raise Crash

        with pytest.raises(Crash):
            simulate(config, rows, observers=[crash], ledger=ledger, run_name="a")
        simulate(config, rows, ledger=ledger, run_name="a")
        sent = np.zeros(n)
        for release in range(1, 9):
            stored = ledger.runs.records_of_run("a").payload(release)
            assert stored is not None
            sent += np.frombuffer(stored, dtype="<f8").reshape(n, rows.d + 1)[:, -1]
    assert np.all(sent <= 2)
    assert sent.sum() > 0


def test_a_failed_solve_does_not_say_how_far_it_came(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sottovoce.solvers.descent.MAX_ITERATIONS", 2)
    monkeypatch.setattr("sottovoce.solvers.newton.MOST", 0)
    zero = np.zeros((len(rows.n), rows.d))
    with pytest.raises(SolverError) as failed:
        Solver(rows, Logistic(), 1.0).minimise(zero, np.full((len(rows.n), 1), 0.01), zero, 1e-10)
    said = "tol=1e-10: a local solve did not reach this accuracy; use a larger rho or tol"
    assert str(failed.value) == said


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"form": "corrected", "split": 0.1}, "pp_admm in the corrected form"),
        ({"form": "printed", "split": 1.0}, "> 0 and < 1"),
        ({"form": "printed", "split": True}, "split=True: must be a number"),
        ({"form": "printed", "split": "a"}, "split='a': must be a number"),
        ({"form": "printed", "tolerance": 1e300}, "tolerance=1e\\+300: must be"),
        ({"form": "printed", "clip": 2.0}, "pp_admm in the printed form"),
    ],
)
def test_knobs_of_printed_forms_are_checked(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        RunConfig.from_dict({"method": "pp_admm", "epsilon": 1.0, "delta": 1e-5, **knobs})
