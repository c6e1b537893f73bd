"""Public frames (whitening transforms): hidden directions are seen in later frames, and steps allow
for clipped rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from sottovoce.algorithms.items import Answer
from sottovoce.answers import inference
from sottovoce.answers.frames import (
    EDGES,
    LONG,
    Frame,
    Sight,
    choose_row_thresholds,
    estimate_displacement,
    refine_whitening,
    whitening_transform,
)
from sottovoce.answers.inference import Estimates, newton_from_naming
from sottovoce.answers.rehearsal import facts_of_one_curator, with_curators_noise
from sottovoce.answers.terms import naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.facts import Among
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries.moments import flatten_symmetric
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate


class TestFrames:
    S = np.array([[[0.5, 0.05, 0.0], [0.05, 0.02, 0.0], [0.0, 0.0, 1e-6]]])
    KEPT = np.ones((1, 3), dtype=bool)

    def test_moments_in_a_frame_are_the_identity_except_hidden_directions(self) -> None:
        frame, unseen, lost = whitening_transform(self.S, 0.0, self.KEPT)
        np.testing.assert_allclose(frame.A @ self.S @ frame.A, np.eye(3)[None], atol=1e-9)
        np.testing.assert_allclose(frame.A @ frame.back, np.eye(3)[None], atol=1e-9)
        np.testing.assert_allclose([unseen, lost], np.zeros((2, 1, 3, 3)), atol=1e-9)
        noisy = whitening_transform(self.S, 0.001, self.KEPT)
        assert np.linalg.eigvalsh(noisy.frame.A)[0, -1] == pytest.approx(
            (0.001 * np.sqrt(6.0)) ** -0.5
        )
        np.testing.assert_allclose(np.linalg.eigvalsh(noisy.unseen)[0], [0.0, 0.0, 1.0], atol=1e-3)
        np.testing.assert_allclose(noisy.raised_moments[0, :2, :2], self.S[0, :2, :2], atol=1e-9)

    def test_columns_that_are_not_kept_are_in_no_frame(self) -> None:
        kept = np.array([[True, True, False]])
        frame = whitening_transform(inference.restrict_to_kept(self.S, kept), 0.001, kept).frame
        assert not frame.A[0, 2].any() and not frame.A[0, :, 2].any()
        np.testing.assert_allclose((frame.A @ frame.back)[0], np.diag([1.0, 1.0, 0.0]), atol=1e-9)

    def test_hidden_direction_is_seen_in_the_next_frame(self) -> None:
        """Each frame shows directions that are smaller by the noise's norm; seen directions are not
        stretched further.
        """
        spread, noise, sight = (
            0.002,
            np.array([0.002]),
            whitening_transform(self.S, 0.002, self.KEPT),
        )
        least = [self.smallest(sight)]
        for _ in range(3):
            before = sight
            sight = refine_whitening(
                sight, before.frame.A @ self.S @ before.frame.A, noise, self.KEPT
            )
            least.append(self.smallest(sight))
        assert least[0] == pytest.approx(1e-6 / (spread * np.sqrt(6.0)), rel=1e-3)
        assert least[1] == pytest.approx(least[0] / (spread * np.sqrt(6.0)), rel=0.05)
        np.testing.assert_allclose(least[2:], 1.0, rtol=0.05)
        np.testing.assert_allclose(sight.unseen, np.zeros((1, 3, 3)), atol=0.05)
        np.testing.assert_allclose(sight.raised_moments, self.S, rtol=0.05, atol=1e-8)

    def smallest(self, sight: Sight) -> float:
        return float(np.linalg.eigvalsh(sight.frame.A @ self.S @ sight.frame.A)[0, 0])

    def test_seen_direction_is_not_stretched_by_clipped_rows(self) -> None:
        sight = whitening_transform(self.S, 0.0, self.KEPT)
        shortened = refine_whitening(
            sight, np.diag([1.0, 0.2, 1.0])[None], np.array([0.001]), self.KEPT
        )
        np.testing.assert_allclose(shortened.frame.A, sight.frame.A, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(shortened.lost, np.diag([0.0, 0.8, 0.0])[None], atol=1e-9)
        longer = refine_whitening(
            sight, np.diag([1.0, 4.0, 1.0])[None], np.array([0.001]), self.KEPT
        )
        assert np.linalg.det(longer.frame.A[0]) == pytest.approx(
            0.5 * np.linalg.det(sight.frame.A[0])
        )

    def test_partly_seen_direction_without_moment_was_noise(self) -> None:
        sight = Sight(
            Frame(np.eye(2)[None], np.eye(2)[None]), np.diag([0.3, 0.0])[None], np.zeros((1, 2, 2))
        )
        found = refine_whitening(
            sight, np.diag([0.01, 1.0])[None], np.array([0.02]), np.ones((1, 2), dtype=bool)
        )
        assert found.raised_moments[0, 0, 0] < 0.1 and found.unseen[0, 0, 0] > 0.0

    def test_a_rare_reference_is_merged_with_the_most_frequent_level(self) -> None:
        ward = {"kind": "category", "values": ["a", "b", "c", "d"], "base": "a"}
        columns = {"age": {"kind": "number", "lo": 0, "hi": 100}, "ward": ward}
        naming = naming_from_schema(
            Schema.from_dict({"columns": columns, "name": "wards", "intercept": True})
        )
        marked = np.flatnonzero(naming.marks)
        shares = np.array([0.5, 0.494, 0.003])  # and .003 of the reference
        S = np.diag(naming.constant * naming.value**2)
        S[marked, marked] = shares * naming.marks[marked] ** 2
        S[marked, -1] = S[-1, marked] = shares * naming.marks[marked] * naming.value
        S[0, 0] = -1e-3  # noise
        recipe = with_curators_noise(newton_from_naming(naming), 0.5)
        facts = facts_of_one_curator(Logistic(), naming.d, 4000.0, "replace-one")
        script, among = recipe.script(facts, 1), Among.all_sites(facts)
        next(script)
        script.send(
            Answer(
                np.array([[0.3]]),
                among,
                recipe.releases_with_noise.noise_deviation(0, facts, among),
            )
        )
        said: Any = script.send(
            Answer(
                flatten_symmetric(S)[None],
                among,
                recipe.releases_with_noise.noise_deviation(1, facts, among),
            )
        )
        assert np.any(said.frame[0] != 0.0, axis=1).tolist() == [True, False, True, False, True]

    @pytest.mark.parametrize("seed", [54, 68])
    def test_steps_add_the_curvature_lost_by_clipping(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reference of 40 rows in 6,000: Hessians in the frame have a tenth of its curvature, so
        steps by them alone overshoot. The log-odds that levels have in common, near 0.8, would be
        off by ten and more.
        """
        plain = {"kind": {"kind": "category", "values": list("abcdef")}}
        plain |= {f"x{j}": {"kind": "number", "lo": -4.0, "hi": 4.0} for j in range(6)}
        naming = naming_from_schema(
            Schema.from_dict({"columns": plain, "name": "rare", "intercept": True})
        )
        rng, n = np.random.default_rng(seed), 6000
        kind = np.repeat(list("abcdef"), [40, 1192, 1192, 1192, 1192, 1192])
        rng.shuffle(kind)
        X = rng.normal(size=(n, 6)).clip(-4, 4)
        z = X @ np.array([0.5, -0.3, 0.0, 0.2, 0.0, -0.1]) - 0.8 * (kind == "a") - 0.5
        y = np.where(rng.random(n) < expit(z), 1.0, -1.0)
        parts = [
            ({"kind": kind[p].astype(object)} | {f"x{j}": X[p, j] for j in range(6)}, y[p])
            for p in np.array_split(np.arange(n), 5)
        ]

        def reached() -> float:
            of = RunConfig(method="auto", epsilon=10.0, delta=1e-5, trust="sum", seed=seed)
            loss = Weighted(Logistic()) if naming.long else Logistic()
            found: Estimates = simulate(
                of, naming.rows_of_sites(parts), method=newton_from_naming(naming), loss=loss
            ).outcome
            return float((naming.into_units @ found.at[0])[0])

        # With this few rows the reference is merged; the frames are to hold if it is not.
        monkeypatch.setattr(
            inference.Newton,
            "_columns_not_merged",
            lambda self, S, *rest: np.ones(S.shape[:2], dtype=bool),
        )
        counted = reached()
        monkeypatch.setattr(
            inference,
            "refine_whitening",
            lambda *args, **more: refine_whitening(*args, **more)._replace(
                lost=np.zeros((1, 12, 12))
            ),
        )
        assert abs(counted) < 3.0 < 10.0 < abs(reached())

    def test_clipped_share_is_below_the_noise(self) -> None:
        cells = np.zeros((1, len(EDGES) + 1))
        cells[0, [10, 14, 20]] = 0.92, 0.05, 0.03
        for noise, edge in ((1.0, EDGES[10]), (0.05, EDGES[14]), (0.0, EDGES[20])):
            assert choose_row_thresholds(cells, 0.0, np.array([noise])) == edge
        assert LONG >= 0.08

    def test_noise_in_lengths_leads_to_no_far_threshold(self) -> None:
        rng, spread = np.random.default_rng(0), 0.003
        cells = np.zeros((400, len(EDGES) + 1))
        cells[:, 10] = 1.0
        noisy = cells + spread * rng.normal(size=cells.shape)
        edges = [choose_row_thresholds(noisy, s, np.full(400, 0.01)) for s in (spread, 0.0)]
        assert np.quantile(edges[0], 0.9) <= EDGES[12] < EDGES[16] < np.quantile(edges[1], 0.9)

    def test_a_displacement_is_newtons_without_noise_and_stays_where_noise_hides_it(self) -> None:
        rng, frame = (
            np.random.default_rng(0),
            whitening_transform(self.S[:, :2, :2], 0.0, self.KEPT[:, :2]).frame,
        )
        H, away = 0.2 * np.eye(2)[None], np.array([[0.3, -2.0]])
        back = frame.back @ H @ frame.back
        gradient = -np.einsum("rij,rj->ri", back, away)
        np.testing.assert_allclose(
            estimate_displacement(frame, H, np.zeros(1), gradient, 0.0), away, rtol=1e-9
        )
        np.testing.assert_allclose(
            estimate_displacement(frame, H, np.zeros(1), gradient, 1e-7), away, rtol=1e-3
        )
        lost = np.repeat(gradient, 200, axis=0) * 0.0 + rng.normal(size=(200, 2))
        many = [np.repeat(x, 200, axis=0) for x in (frame.A, frame.back, H)]
        moved = estimate_displacement(Frame(many[0], many[1]), many[2], np.zeros(200), lost, 1.0)
        newton_step = -np.einsum("rij,rj->ri", np.linalg.inv(back), lost)
        assert np.median(np.linalg.norm(moved, axis=1) / np.linalg.norm(newton_step, axis=1)) < 0.4
