"""Engine, checkpoints, planner and row guard: the order of things, and what a crash leaves
behind.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import CheckpointError, InvalidInput, SolverError
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic
from sottovoce.queries import PerturbedObjective, Query, SphericalLaw
from sottovoce.runs.calibration import calibrate_method
from sottovoce.runs.pricing import RunSetting
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, prepare, simulate
from sottovoce.util.typing import Array

METHODS = ["admm", "dvp", "r_admm", "mr_admm"]


class Interrupted(Exception):
    """Stands for a crash."""


def config(method: str, **changes: Any) -> RunConfig:
    knobs: dict[str, Any] = {
        "rho": 0.02,
        "eta": 0.05,
        "gamma": 0.2,
        "rounds": 9,
        "replicates": 2,
        "seed": 3,
    }
    knobs["epsilon"] = math.inf if method == "admm" else 4.0
    return RunConfig.from_dict({"method": method, **(knobs | changes)})


@pytest.mark.parametrize("method", METHODS)
def test_resume_after_every_round_is_bit_identical(rows: Rows, method: str, tmp_path: Path) -> None:
    whole = simulate(config(method), rows)
    for crash in range(1, 9):
        path = tmp_path / f"{crash}.npz"

        def stop(k: int, state: Any, crash: int = crash) -> None:
            if k == crash + 1:  # after the round, before its checkpoint
                raise Interrupted

        with pytest.raises(Interrupted):
            simulate(config(method), rows, observers=[stop], checkpoint=path)
        resumed = simulate(config(method), rows, checkpoint=path)
        assert np.array_equal(resumed.models, whole.models)
        assert resumed.ledger == whole.ledger
        assert resumed.privacy == whole.privacy


def test_a_finished_checkpoint_adds_nothing(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    first = simulate(config("dvp"), rows, checkpoint=path)
    again = simulate(config("dvp"), rows, checkpoint=path)
    assert np.array_equal(first.models, again.models)
    assert len(again.ledger) == 9


@pytest.mark.parametrize("change", [{"seed": 4}, {"eta": 0.06}, {"rounds": 10}, {"epsilon": 5.0}])
def test_a_checkpoint_of_another_run_is_refused(
    rows: Rows, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "run.npz"
    simulate(config("dvp"), rows, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="another configuration"):
        simulate(config("dvp").but(**change), rows, checkpoint=path)
    assert path.read_bytes() == before
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="not a readable"):
        simulate(config("dvp"), rows, checkpoint=path)


def test_system_noise_cannot_be_checkpointed(rows: Rows, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^seed: .*repeated"):
        simulate(config("dvp", seed=None, replicates=1), rows, checkpoint=tmp_path / "run.npz")


def test_the_row_is_written_before_noise_is_drawn(rows: Rows) -> None:
    """A query that fails while it answers leaves its charge behind: over-counted, never
    under-counted.
    """
    facts = Facts(Logistic(), rows.n, rows.d, 1.0, 0.1, 5)
    order: list[str] = []

    class Watched(Ledger):
        def record_event(self, event: Any) -> None:
            order.append("charge")
            super().record_event(event)

    class Failing(KeyedNoise):
        def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
            order.append("draw")
            raise Interrupted

    ledger = Watched()
    guard = RowGuard(rows, facts, Failing(0, [0], range(5)), ledger)
    zero = np.zeros((1, 5, rows.d))
    with pytest.raises(Interrupted):
        guard.charge_and_answer(
            PerturbedObjective(
                zero, np.full((5, 1), 0.1), zero, SphericalLaw(np.full((5, 1), 0.2)), "test"
            )
        )
    assert order == ["charge", "draw"]
    assert len(ledger.rows) == 1


def test_a_query_without_an_event_cannot_exist() -> None:
    class Forgetful(Query):
        def answer(self, vault: Any, facts: Facts, release: int) -> Array:
            return np.zeros(1)

        def placeholder_answer(self, facts: Facts) -> Array:
            return np.zeros(1)

    with pytest.raises(TypeError, match="event"):
        Forgetful()  # type: ignore[abstract]


def test_a_certificate_that_no_solve_can_show_is_replaced_by_the_least_that_one_can(
    rows: Rows,
) -> None:
    """The price knows: the error of the event is that of the certificate that was shown."""
    ledger = simulate(config("dvp", tol=1e-300), rows).ledger
    assert all(np.all(np.array(row["error"]) > 1e-16) for row in ledger)
    assert simulate(config("dvp", tol=1e-200), rows).ledger == ledger


def test_a_run_without_a_promise_says_that_its_solve_missed_its_certificate(rows: Rows) -> None:
    with pytest.raises(SolverError, match="tol="):
        simulate(config("admm", epsilon=math.inf, tol=1e-300), rows)


def test_printed_forms_keep_the_claim_beside_the_price(rows: Rows) -> None:
    """DVP's listing is priced above its claim; Theorem 2 of 002 holds and is priced below."""
    dvp = simulate(config("dvp", form="printed", loss="huber:0.5"), rows).privacy
    assert dvp["printed_claim"] == pytest.approx(4.0, rel=1e-6)
    assert dvp["epsilon"] > 1.5 * dvp["printed_claim"]
    for method in ("r_admm", "mr_admm"):
        privacy = simulate(config(method, form="printed"), rows).privacy
        assert privacy["printed_claim"] == pytest.approx(4.0, rel=1e-6)
        assert privacy["epsilon"] < privacy["printed_claim"]
        assert "exact minimisation" in privacy["assumes"]


def test_printed_theorem_2_is_the_papers_formula(rows: Rows) -> None:
    """002, eq. (32), written out once more."""
    settings = config("mr_admm", form="printed", noise=3.0, eta_growth=1.1, epsilon=math.inf)
    result = simulate(settings, rows)
    n, total = rows.n[:, 0], np.zeros(5)
    for k in range(5):
        total += 2 / n * (1.4 * 0.25 / (0.02 / 5 + 2 * 0.05 * 1.1**k * 2) + 3.0)
    assert result.privacy["printed_claim"] == pytest.approx(total.max(), rel=1e-12)


def test_preconditions_are_refused_before_anything_is_spent(rows: Rows) -> None:
    with pytest.raises(InvalidInput, match=r"^eta=.*c1 = 20\b"):
        prepare(
            config("mr_admm", form="printed", loss="huber:0.05", noise=1.0, rho=1e-6, eta=1e-4),
            rows.n,
            rows.d,
        )
    with pytest.raises(InvalidInput, match=r"^eta=.*must not decrease"):
        prepare(config("mr_admm", eta_growth=0.9), rows.n, rows.d)
    with pytest.raises(InvalidInput, match="one constant penalty"):
        prepare(config("r_admm", eta_growth=1.1), rows.n, rows.d)
    with pytest.raises(InvalidInput, match=r"^epsilon=1\.0: .*round costs"):
        prepare(RunConfig(method="dvp", noise=2.0, epsilon=1.0, rho=0.1), rows.n, rows.d)


def test_the_smallest_target_that_can_be_met_is_told(rows: Rows) -> None:
    """With a curvature too small for the target, no noise is enough; the message says what would
    be.
    """
    for method in ("dvp", "mr_admm"):
        with pytest.raises(InvalidInput, match=r"^epsilon=0\.01: .*at least") as refusal:
            prepare(config(method, epsilon=0.01, rho=1e-3, eta=1e-3), rows.n, rows.d)
        least = float(str(refusal.value).split("at least ")[1].split(" ")[0])
        prepare(config(method, epsilon=least * 1.01, rho=1e-3, eta=1e-3), rows.n, rows.d)
        with pytest.raises(InvalidInput):
            prepare(config(method, epsilon=least * 0.98, rho=1e-3, eta=1e-3), rows.n, rows.d)


def test_growing_and_per_node_schedules_are_calibrated(rows: Rows) -> None:
    for changes in (
        {"noise_growth": 1.5},
        {"noise_growth": 0.7},
        {"eta": (0.05, 0.1, 0.2, 0.05, 0.3)},
    ):
        prepared = prepare(config("dvp", epsilon=6.0, **changes), rows.n, rows.d)
        setting = RunSetting(prepared.facts, prepared.graph, 9, PureAccountant())
        again = calibrate_method(prepared.algorithm, setting, 6.0)
        spent = simulate(config("dvp", epsilon=6.0, **changes), rows).privacy["epsilon"]
        assert 6.0 * (1 - 1e-6) < spent <= 6.0
        assert again.noise is not None


def test_zero_out_needs_less_noise_for_the_same_epsilon(rows: Rows) -> None:
    betas = {
        relation: simulate(config("dvp", relation=relation), rows).ledger[0]["beta"][0]
        for relation in ("replace-one", "zero-out")
    }
    assert 1.5 < betas["zero-out"] / betas["replace-one"] < 2.5
