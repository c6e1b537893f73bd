"""What queries remember: typed, never changed, forgotten when lost, and on disk as version 0.1
wrote it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import CheckpointError
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.queries import NoisyMinimiser, Secret, Vault
from sottovoce.queries.sparse_vector import Allowance, Gate
from sottovoce.queries.statistic import LastMinimiser
from sottovoce.runs.row_guard import RowGuard, make_solver
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.solvers.local import Solution, Solver
from sottovoce.util import files
from sottovoce.util.typing import Array, ArrayLike

RUNS: dict[str, dict[str, Any]] = {
    "gate": {
        "method": "ipp_admm",
        "delta": 1e-5,
        "positives": 5,
        "epsilon": 50.0,
        "threshold": 0.0,
    },
    "redrawn": {
        "method": "ipp_admm",
        "form": "printed",
        "delta": 1e-5,
        "accountant": "rdp",
        "positives": 2,
        "epsilon": 50.0,
        "threshold": -0.9,
        "rho": 1.0,
    },
    "last": {"method": "pvp", "form": "printed", "epsilon": 2.0},
}
STORED = {
    "gate": {"curator.memory.Gate.bar", "curator.memory.Gate.left"},
    "redrawn": {"curator.memory.Allowance.left"},
    "last": {"curator.memory.LastMinimiser.f"},
}
"""Names in checkpoints."""


class Crash(Exception):
    """Stands for a crash."""


@dataclass(frozen=True)
class Noted(Secret):
    """Another kind, with a field of the same name as one of those here."""

    f: Array


def facts_of(rows: Rows) -> Facts:
    return Facts(make_loss("logistic"), rows.n, rows.d, 1.0, 0.1, len(rows.n))


def vault(rows: Rows) -> Vault:
    return Vault(make_solver(rows, facts_of(rows)), KeyedNoise(0, [0], range(len(rows.n))))


def config(name: str) -> RunConfig:
    return RunConfig.from_dict({"rounds": 6, "rho": 0.02, "eta": 0.05} | RUNS[name])


def half(name: str, rows: Rows, path: Path) -> None:
    """A run that ends after its third round was written."""

    def crash(k: int, _: Any) -> None:
        if k == 4:
            raise Crash

    with pytest.raises(Crash):
        simulate(config(name), rows, observers=[crash], checkpoint=path)


def test_a_class_of_another_module_takes_the_place_of_no_secret_of_ours(rows: Rows) -> None:
    with pytest.raises(TypeError, match=r"sparse_vector keeps secrets"):
        type("Gate", (Secret,), {"__annotations__": {"bar": Array, "left": Array}})
    held = vault(rows)
    held.restore_state({"Gate.bar": np.zeros(1), "Gate.left": np.ones(1)})
    kept = held.recall_secret(Gate)
    assert kept is not None and kept.left == 1.0


def test_vault_keeps_one_secret_of_each_kind(rows: Rows) -> None:
    held = vault(rows)
    assert held.recall_secret(Gate) is None
    gate = Gate(np.zeros(1), np.ones(1))
    held.keep_secret(gate)
    held.keep_secret(Allowance(np.full(1, 3.0)))
    assert held.recall_secret(Gate) is gate and held.recall_secret(LastMinimiser) is None
    held.keep_secret(Gate(np.zeros(1), np.zeros(1)))
    later = held.recall_secret(Gate)
    assert later is not None and later.left == 0.0 and gate.left == 1.0
    held.forget_secret(Gate)
    held.forget_secret(Gate)
    assert held.recall_secret(Gate) is None and held.recall_secret(Allowance) is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        gate.bar = np.ones(1)  # type: ignore[misc]


@pytest.mark.parametrize(
    "secrets",
    [
        [],
        [Gate(np.ones((2, 1)), np.full((2, 1), 2.0))],
        [Allowance(np.full((2, 1), 2.0))],
        [LastMinimiser(np.ones((2, 4)))],
        [
            LastMinimiser(np.ones((2, 4))),
            Gate(np.ones((2, 1)), np.zeros((2, 1))),
            Noted(np.arange(3.0)),
        ],
    ],
)
def test_secrets_come_back_from_plain_arrays(secrets: list[Secret], rows: Rows) -> None:
    held, again = vault(rows), vault(rows)
    for one in secrets:
        held.keep_secret(one)
    state = held.state_arrays()
    again.restore_state(state)
    assert (
        again.secrets.keys() == held.secrets.keys() and again.state_arrays().keys() == state.keys()
    )
    assert all(np.array_equal(again.state_arrays()[name], value) for name, value in state.items())


def test_kinds_with_fields_of_one_name_do_not_clash() -> None:
    assert Noted.names() == {"f": "Noted.f"} and LastMinimiser.names() == {"f": "LastMinimiser.f"}


def test_arrays_of_no_kind_are_refused(rows: Rows) -> None:
    with pytest.raises(ValueError, match="not a secret"):
        vault(rows).restore_state({"bar": np.zeros(1)})


@pytest.mark.parametrize("name", list(RUNS))
def test_a_checkpoint_names_secrets_by_their_kind_and_goes_on_bit_by_bit(
    name: str, rows: Rows, tmp_path: Path
) -> None:
    path, whole = tmp_path / "a.npz", simulate(config(name), rows)
    half(name, rows, path)
    found = files.read_packed_arrays(path)
    assert {key for key in found if key.startswith("curator.memory.")} == STORED[name]
    resumed = simulate(config(name), rows, checkpoint=path)
    assert np.array_equal(resumed.models, whole.models) and resumed.ledger == whole.ledger


@pytest.mark.parametrize("name", list(RUNS))
def test_resume_without_the_secret_changes_the_models(
    name: str, rows: Rows, tmp_path: Path
) -> None:
    """Else the test above would pass with secrets that are lost."""
    path, whole = tmp_path / "a.npz", simulate(config(name), rows)
    half(name, rows, path)
    kept = {
        key: value
        for key, value in files.read_packed_arrays(path).items()
        if not key.startswith("curator.memory.")
    }
    files.write_atomically("checkpoint", path, files.pack_arrays(**kept), mode=0o600)
    resumed = simulate(config(name), rows, checkpoint=path)
    assert resumed.rounds == whole.rounds and not np.array_equal(resumed.models, whole.models)


def test_a_checkpoint_with_a_secret_of_no_query_is_refused(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    half("last", rows, path)
    changed = files.read_packed_arrays(path) | {"curator.memory.other": np.zeros(2)}
    files.write_atomically("checkpoint", path, files.pack_arrays(**changed), mode=0o600)
    with pytest.raises(CheckpointError, match="readable checkpoint"):
        simulate(config("last"), rows, checkpoint=path)


def test_only_a_simulation_writes_secrets_down(rows: Rows) -> None:
    facts = facts_of(rows)
    for noise, written in ((KeyedNoise(0, [0], range(5)), True), (SystemNoise((5,)), False)):
        guard = RowGuard(rows, facts, noise, Ledger())
        solved = {"answer": np.ones((5, 1, 4)), "gradient": np.ones((5, 1, 4))}
        guard.restore(
            guard.checkpoint_state() | {"memory.LastMinimiser.f": np.ones((5, 4))} | solved
        )
        assert all(
            (name in guard.checkpoint_state()) == written
            for name in ("memory.LastMinimiser.f", *solved)
        )


def test_a_row_guard_answers_with_the_solver_that_it_is_given(rows: Rows) -> None:
    asked: list[tuple[Rows, Facts]] = []

    class Nought(Solver):
        """Finds zero, whatever the rows are."""

        def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
            found = super().minimise(linear, q, start, tol)
            return dataclasses.replace(found, w=np.zeros_like(found.w))

    def nought(own: Rows, seen: Facts) -> Solver:
        asked.append((own, seen))
        return Nought(own, seen.loss, seen.C)

    facts, query = (
        facts_of(rows),
        NoisyMinimiser(np.zeros((5, 4)), None, "test", curvature=np.full((5, 1), 0.1)),
    )
    given = RowGuard(rows, facts, KeyedNoise(0, [0], range(5)), Ledger(), nought)
    usual = RowGuard(rows, facts, KeyedNoise(0, [0], range(5)), Ledger())
    assert len(asked) == 1 and asked[0][0] is rows and asked[0][1] is facts
    assert not given.charge_and_answer(query).any() and usual.charge_and_answer(query).any()
