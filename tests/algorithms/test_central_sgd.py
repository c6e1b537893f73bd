"""central_sgd: the noise of every part of a pass."""

from __future__ import annotations

import numpy as np
import parents
import pytest
from cases import CASES, FACTORS, accepts

from sottovoce.data.rows import Rows
from sottovoce.privacy.events import ExactSphericalMechanism, GaussianMechanism

CASE = CASES["central_sgd"]


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_noise_of_every_part_has_the_law_of_the_event(
    rows: Rows, delta: float | None, batches: int, factor: float
) -> None:
    """Part by part, the noise of the others being keyed: on to the part from the pass's start, back
    from its end.

    A step ``v = w - s (g(w) + mu w + noise)`` is undone by iteration, which contracts at s = 1/2.
    """
    step = 0.5
    config = CASE.make(rounds=2, replicates=100, delta=delta, eta=1 / step, batches=batches)
    rows_seen = CASE.seen(rows)
    for b in range(batches):
        recorder, noise, ledger = CASE.rescaled(config, rows, factor, [b + 1])
        facts, found = recorder.facts, []
        for k, ((query, answer), event) in enumerate(
            zip(recorder.asked, ledger.rows, strict=True), start=1
        ):
            assert isinstance(
                event, ExactSphericalMechanism if delta is None else GaussianMechanism
            )
            scale = 1 / event.beta if isinstance(event, ExactSphericalMechanism) else event.sigma
            draw = noise.draw_spherical if delta is None else noise.draw_gaussian

            def derivative(
                w: np.ndarray, c: int, C: float = facts.C, mu: float = facts.mu
            ) -> np.ndarray:
                return parents.gradient(parents.part(rows_seen, c, batches), C, w) + mu * w

            w, after = query.start, answer  # type: ignore[attr-defined]
            for c in range(b):
                w = w - step * (derivative(w, c) + scale * draw(rows.d, k, c + 1))
            for c in reversed(range(b + 1, batches)):
                before = after
                for _ in range(20):
                    before = after + step * (derivative(before, c) + scale * draw(rows.d, k, c + 1))
                after = before
            found.append(((w - after) / step - derivative(w, b)) / scale)
        assert accepts(np.array(found), "spherical" if delta is None else "gaussian") == (
            factor == 1
        )


@pytest.mark.parametrize("factor", FACTORS)
def test_noise_of_a_pass_adds_up_over_batches(rows: Rows, factor: float) -> None:
    """All parts wrong at once, from the answer alone: rows of zeros leave a sum of normals of
    known weights.
    """
    config = CASE.make(rounds=1, replicates=200, delta=1e-5, eta=2.0, batches=10)
    blank = Rows(np.zeros_like(rows.signed), rows.n)
    recorder, _, ledger = CASE.rescaled(config, blank, factor, range(1, 11))
    event, shrink = ledger.rows[0], 1 - recorder.facts.mu / 2
    assert isinstance(event, GaussianMechanism)
    deviation = event.sigma / 2 * np.sqrt(np.sum(shrink ** (2 * np.arange(10))))
    assert accepts(recorder.asked[0][1] / deviation, "gaussian") == (factor == 1)
