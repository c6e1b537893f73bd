"""A run that was reserved on another machine goes on at the scale of its reservation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sottovoce.runs.prepare import prepare
from sottovoce.runs.reserved import with_reserved_noise
from sottovoce.runs.simulate import RunConfig

SIZES = np.array([[300.0], [200.0], [500.0]])


@pytest.mark.parametrize("method", ["prox_admm", "ipp_admm", "momentum", "sum_momentum"])
@pytest.mark.parametrize("off", [-4e-13, 3e-9])
def test_reserved_noise_scale_is_recovered_from_a_nearby_one(method: str, off: float) -> None:
    mine = prepare(RunConfig(method=method, epsilon=2.0, delta=1e-5, rounds=3), SIZES, 4)
    noise = mine.algorithm.noise
    assert noise is not None
    factor = np.asarray(noise.factor) * (
        1.0 + off * np.arange(1, 4) if np.ndim(noise.factor) else 1.0 + off
    )
    exact = replace(noise, factor=tuple(factor.tolist()) if factor.ndim else factor.item())
    reserved = replace(mine, algorithm=mine.algorithm.with_noise(exact)).plan_ledger().rows
    plain = [event.to_dict() for event in reserved]
    assert plain != [event.to_dict() for event in mine.plan_ledger().rows]
    assert [
        event.to_dict() for event in with_reserved_noise(mine, reserved).plan_ledger().rows
    ] == plain
    assert with_reserved_noise(mine, mine.plan_ledger().rows) is mine


def test_noise_scale_of_another_run_is_not_changed() -> None:
    mine = prepare(RunConfig(method="prox_admm", epsilon=2.0, delta=1e-5, rounds=3), SIZES, 4)
    less = (
        prepare(RunConfig(method="prox_admm", epsilon=2.1, delta=1e-5, rounds=3), SIZES, 4)
        .plan_ledger()
        .rows
    )
    other = (
        prepare(RunConfig(method="mr_admm", epsilon=2.0, delta=1e-5, rounds=3), SIZES, 4)
        .plan_ledger()
        .rows
    )
    mixed = (*mine.plan_ledger().rows[:1], *less[1:])  # no scale has both
    for reserved in (less, other, mixed):
        assert with_reserved_noise(mine, reserved) is mine
