"""Collinear or constant columns: only their own lines are refused, at any epsilon."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from sottovoce import ConsensusRegressor
from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.directions import (
    Directions,
    classify_directions,
    column_variances,
    find_lost_lines,
)
from sottovoce.answers.frames import Frame
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.least_squares import slopes_from_naming, table_in_target_units
from sottovoce.answers.terms import CONSTANT, Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

INF = float("inf")
SLOPES = np.array([0.5, -0.4, 0.0, 0.3, 0.2])
SITES = ("north", "south", "west", "east")
LOST = {
    "repeated": {"x0", "x3"},
    "negative": {"x0", "x3"},
    "zeros": {"x3"},
    "constant": {"x3", CONSTANT},
    "sum": {"x0", "x1", "x3"},
    "two": {"x0", "x3", "x4"},
    "sites": {"x3", *(f"{CONSTANT}: {site}" for site in SITES)},
    "r = .99": set[str](),
}
"""Designs of numbers, and the lines that they lose."""
LEVELS = {
    "across blocks": {"ward: c", "stage: z"},
    "nested": {"ward: b", "ward: c", "stage: y", "stage: z"},
    "indicator": {"flag", "ward: b"},
    "empty": {"stage: z"},
}
"""Designs of levels, and the lines that they lose."""
SCHEMA = {
    "columns": {
        "age": {"kind": "number", "lo": -3.0, "hi": 3.0},
        "flag": {"kind": "number", "lo": 0.0, "hi": 1.0, "to": "[0,1]"},
        "ward": {"kind": "category", "values": ["a", "b", "c"]},
        "stage": {"kind": "category", "values": ["x", "y", "z"]},
    }
}
Rows = tuple[Naming, list[Any], list[np.ndarray], dict[str, float]]


def numbers(design: str, n: int, seed: int) -> Rows:
    """Return naming, columns and log-odds of each site, and the true coefficients."""
    rng = np.random.default_rng(seed)
    X, site = rng.normal(size=(n, 5)), rng.integers(4, size=n)
    made = {
        "repeated": X[:, 0],
        "negative": -2.0 * X[:, 0],
        "zeros": np.zeros(n),
        "constant": np.full(n, 1.3),
        "sum": X[:, 0] + X[:, 1],
        "two": X[:, 0],
        "sites": np.array([0.3, -1.0, 0.7, 1.2])[site],
        "r = .99": 0.99 * X[:, 0] + np.sqrt(1.0 - 0.99**2) * X[:, 3],
    }
    X[:, 3] = made[design]
    if design == "two":
        X[:, 4] = 0.0
    naming = naming_from_columns(
        [f"x{j}" for j in range(5)], 2.8, SITES if design == "sites" else ()
    )
    truth = {f"x{j}": float(SLOPES[j]) for j in range(5)} | {CONSTANT: -0.8}
    return (
        naming,
        [X[site == s] for s in range(4)],
        [X[site == s] @ SLOPES - 0.8 for s in range(4)],
        truth,
    )


def levels(design: str, n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    ward = rng.choice(np.array(["a", "b", "c"], dtype=object), p=[0.4, 0.35, 0.25], size=n)
    stage = rng.choice(np.array(["x", "y", "z"], dtype=object), p=[0.5, 0.3, 0.2], size=n)
    age, flag = np.clip(rng.normal(size=n), -3.0, 3.0), rng.random(n)
    if design == "across blocks":
        stage = np.where(ward == "c", "z", np.where(stage == "z", "x", stage)).astype(object)
    elif design == "nested":
        stage = np.array([{"a": "x", "b": "y", "c": "z"}[one] for one in ward], dtype=object)
    elif design == "indicator":
        flag = (ward == "b").astype(float)
    else:
        stage = np.where(stage == "z", "x", stage).astype(object)
    odds = (
        0.5 * age
        + 0.4 * flag
        + 0.3 * (ward == "b")
        - 0.4 * (ward == "c")
        + 0.2 * (stage == "y")
        - 0.5
    )
    truth = {
        "age": 0.5,
        "flag": 0.4,
        "ward: b": 0.3,
        "ward: c": -0.4,
        "stage: y": 0.2,
        "stage: z": 0.0,
    }
    truth[CONSTANT] = -0.5
    columns = {"age": age, "flag": flag, "ward": ward, "stage": stage}
    parts = np.array_split(np.arange(n), 4)
    tables = [{name: column[part] for name, column in columns.items()} for part in parts]
    return (
        naming_from_schema(Schema.from_dict(SCHEMA)),
        tables,
        [odds[part] for part in parts],
        truth,
    )


def tables_of(
    design: str, n: int, epsilon: float, seed: int = 0, replicates: int = 1
) -> tuple[list[Coefficients], Any]:
    """Return the tables of all replicates, and the true coefficients."""
    naming, columns, odds, truth = (numbers if design in LOST else levels)(design, n, seed)
    rng = np.random.default_rng(seed + 1000)
    y = [np.where(rng.random(len(one)) < expit(one), 1.0, -1.0) for one in odds]
    run = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=seed, replicates=replicates
    )
    rows = naming.rows_of_sites(list(zip(columns, y, strict=True)))
    found = simulate(
        run, rows, method=newton_from_naming(naming), loss=Weighted(Logistic())
    ).outcome
    return [build_coefficient_table(found, naming, k, delta=1e-5) for k in range(replicates)], truth


@pytest.mark.parametrize("epsilon", [3.0, INF])
@pytest.mark.parametrize("design", [*LOST, *LEVELS])
def test_only_lines_of_lost_columns_are_refused(design: str, epsilon: float) -> None:
    (found,), truth = tables_of(design, 12_000, epsilon)
    refused = {line.term.text for line in found.lines if line.refused is not None}
    assert refused == (LOST | LEVELS)[design]
    causes = {line.cause for line in found.lines if line.refused is not None}
    assert causes <= ({"merged"} if design == "empty" else {"lost"})
    for line in found.lines:
        if line.refused is None:
            assert (
                line.low is not None and line.high is not None and line.standard_error is not None
            )
            assert abs(line.estimate - truth[line.term.text]) < 4.0 * line.standard_error  # type: ignore[operator]
            assert line.standard_error < 0.3 or design == "r = .99"
        elif line.cause == "lost":
            alone = design in ("two", "nested")  # two relations
            named = [one for one in (LOST | LEVELS)[design] if not one.startswith(CONSTANT)]
            assert all(name in line.refused for name in ([line.term.text] if alone else named))


def test_nearly_collinear_columns_are_not_lost_if_determined() -> None:
    """Without noise columns with a correlation of .999, or a hundredth of the width of others, are
    printed.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4))
    X[:, 1] = 0.999 * X[:, 0] + np.sqrt(1.0 - 0.999**2) * X[:, 1]
    X[:, 3] = 50.0 + 0.01 * X[:, 3]  # far from 0, and nearly the constant
    y = np.where(rng.random(6000) < expit(X[:, 0] - 0.5), 1.0, -1.0)
    naming = naming_from_columns(["a", "b", "c", "d"], 60.0)
    run = RunConfig(method="auto", trust="sum", epsilon=INF, delta=1e-5, seed=0)
    found = simulate(
        run,
        naming.rows_of_sites([(X, y)] * 4),
        method=newton_from_naming(naming),
        loss=Weighted(Logistic()),
    ).outcome
    assert not found.directions.lost.any()
    assert all(line.refused is None for line in build_coefficient_table(found, naming).lines)


def test_directions_that_noise_may_hide_are_not_called_lost() -> None:
    """With few rows a column of zeros may be hidden only by noise; the table names the column."""
    naming, columns, odds, _ = numbers("zeros", 3000, 0)
    y = [
        np.where(np.random.default_rng(1).random(len(one)) < expit(one), 1.0, -1.0) for one in odds
    ]
    run = RunConfig(method="auto", trust="sum", epsilon=1.0, delta=1e-5, seed=0)
    rows = naming.rows_of_sites(list(zip(columns, y, strict=True)))
    found = simulate(
        run, rows, method=newton_from_naming(naming), loss=Weighted(Logistic())
    ).outcome
    assert found.directions.hidden.any() and not found.directions.lost.any()
    said = build_coefficient_table(found, naming, delta=1e-5)
    assert {line.cause for line in said.lines} == {"table hidden"} and said.needs is not None
    assert all("x3" in str(line.refused) for line in said.lines)


@pytest.mark.parametrize("design", ["sum", "across blocks"])
def test_intervals_of_other_lines_cover_and_lost_lines_are_not_printed(design: str) -> None:
    """Fails with probability 10^-4 if coverage is 93% or more; intervals half as wide fail."""
    inside = half = printed = 0
    lost = (LOST | LEVELS)[design]
    for seed in range(20):
        found, truth = tables_of(design, 6000, 3.0, seed, replicates=4)
        for one in found:
            for line in one.lines:
                if line.term.text in lost:
                    assert line.refused is not None
                elif line.refused is None:
                    away = abs(line.estimate - truth[line.term.text]) / line.standard_error  # type: ignore[operator]
                    printed += 1
                    inside += away < 1.96
                    half += away < 0.98
    assert printed > 200
    assert stats.binom.cdf(inside, printed, 0.93) > 1e-4
    assert stats.binom.cdf(half, printed, 0.93) < 1e-4


@pytest.mark.parametrize("design", ["repeated", "zeros", "sites", "sum"])
def test_least_squares_refuses_the_same_lost_lines(design: str) -> None:
    naming, columns, odds, _ = numbers(design, 8000, 0)
    rng, days = np.random.default_rng(2), BoundedNumber(0.0, 60.0, "days")
    y = [np.clip(30.0 + 4.0 * one + 2.0 * rng.normal(size=len(one)), 0.0, 60.0) for one in odds]
    rows = naming.rows_of_sites([(X, np.ones(len(X))) for X in columns]).with_offset(
        [days.encode(one) for one in y]
    )
    run = RunConfig(method="auto", trust="sum", epsilon=INF, delta=1e-5, seed=0)
    found = simulate(
        run, rows, method=slopes_from_naming(naming), loss=Weighted(HuberResidual(1.0))
    ).outcome
    said = table_in_target_units(found, naming, days)
    assert {line.term.text for line in said.lines if line.refused is not None} == LOST[design]
    assert {line.cause for line in said.lines if line.refused is not None} == {"lost"}
    for j in {1, 2, 4} - {int(name[1]) for name in LOST[design] if name.startswith("x")}:
        assert abs(said.lines[j].estimate - 4.0 * SLOPES[j]) < 4.0 * said.lines[j].standard_error  # type: ignore[operator]


def pair(noise: float, seed: int = 0, apart: float = 0.0) -> Directions:
    """Return the directions of two equal columns, or of two different ones if `apart`, with a third
    column, without a frame.
    """
    S = np.array([[1.0, 1.0 - apart, 0.2], [1.0 - apart, 1.0, 0.2], [0.2, 0.2, 1.0]])
    E = np.random.default_rng(seed).normal(size=(3, 3)) * noise
    S = S + (E + E.T) / 2.0 if noise else S
    eye = np.eye(3)[None]
    variances = column_variances(S[None], np.zeros(3))
    return classify_directions(
        Frame(eye, eye), S[None], np.array([noise]), variances, np.array([np.trace(S) / 3.0])
    )


class TestDirections:
    def test_zero_eigenvalue_is_lost(self) -> None:
        found = pair(0.0)
        assert found.lost.tolist() == [[True, False, False]]
        lines = find_lost_lines(found, np.eye(3), np.zeros(3, dtype=bool))
        assert lines.turned.tolist() == [True, True, False] and lines.relations[0].lines == (0, 1)
        assert lines.relations[0].share == 0.0

    def test_eigenvalue_beyond_noise_is_not_lost(self) -> None:
        assert not pair(0.0, apart=1e-4).lost.any()
        assert not pair(1e-5, apart=1e-3).lost.any() and not pair(1e-5, apart=1e-3).hidden.any()

    def test_direction_of_omitted_column_is_neither_lost_nor_hidden(self) -> None:
        """Its frame is 0, and its eigenvalue has no meaning, although it is 0 within the noise."""
        frame, H, noise = (
            np.diag([0.0, 1.0, 1.0])[None],
            np.diag([0.1, 1.0, 1.2])[None],
            np.array([0.1]),
        )
        found = classify_directions(Frame(frame, frame), H, noise, np.full((1, 3), 0.5), np.ones(1))
        assert not found.lost.any() and not found.hidden.any()
        lines = find_lost_lines(found, np.eye(3), np.zeros(3, dtype=bool))
        assert not lines.turned.any() and lines.hidden == ()

    def test_columns_of_which_noise_leaves_no_variance_have_lines_without_an_end_and_no_warning(
        self,
    ) -> None:
        eye = np.eye(3)[None]
        found = classify_directions(
            Frame(eye, eye),
            np.diag([0.01, 1.0, 1.2])[None],
            np.array([0.1]),
            np.zeros((1, 3)),
            np.ones(1),
        )
        lines = find_lost_lines(found, np.eye(3), np.zeros(3, dtype=bool))
        assert not lines.turned.any() and lines.relations == ()

    def test_hidden_direction_is_lost_only_if_its_variance_bound_is_tiny(self) -> None:
        for seed in range(20):
            small, large = pair(1e-4, seed), pair(0.1, seed)
            assert small.lost[0, 0] and not small.hidden.any() and small.share[0, 0] < 1e-3
            assert large.hidden[0, 0] and not large.lost.any()

    def test_lines_turn_only_beyond_the_noise_of_the_direction(self) -> None:
        """In few of 200 draws a line that does not depend on the direction is called lost."""
        called = [
            find_lost_lines(pair(5e-4, seed), np.eye(3), np.zeros(3, dtype=bool)).turned.tolist()
            for seed in range(200)
        ]
        assert (
            np.mean(called, axis=0)[:2].tolist() == [1.0, 1.0] and np.mean(called, axis=0)[2] < 0.03
        )

    def test_parts_of_a_shift_add_up_and_one_moves_no_score(self) -> None:
        found, shift = pair(0.0), np.array([[0.7, -0.2, 0.4]])
        inside, rest = found.split_along_lost(shift)
        np.testing.assert_allclose(inside + rest, shift, atol=1e-12)
        np.testing.assert_allclose(rest[0], [0.45, -0.45, 0.0], atol=1e-9)
        np.testing.assert_allclose(found.remove_lost_part(shift), inside, atol=1e-12)

    @pytest.mark.parametrize("noise", [0.0, 1e-4])
    def test_table_of_which_all_directions_are_lost_gains_no_variance(self, noise: float) -> None:
        """A site whose rows are all 0, say: no space is left in which a gradient has noise."""
        one = pair(noise)
        every = one._replace(lost=np.ones((1, 3), dtype=bool))
        shift = np.array([[0.7, -0.2, 0.4]])
        assert not every.projector_across_lost.any()
        assert every.lost_part_variance(shift).tolist() == [0.0]
        np.testing.assert_allclose(every.remove_lost_part(shift), 0.0, atol=1e-12)
        # Beside it the variance of one lost direction is as it was: noise**2 / 2 |b|^2 over the
        # mean of 2/3 that the projector on two of three axes has.
        expected = 0.5 * noise**2 * 2 * 0.45**2 / (2.0 / 3.0)
        np.testing.assert_allclose(one.lost_part_variance(shift), expected, rtol=1e-2, atol=1e-15)


class TestWhatLostLinesHaveTogether:
    """Sums of lost lines that do not depend on the lost direction are known; others are refused."""

    @pytest.mark.parametrize("epsilon", [3.0, INF])
    def test_sum_of_two_identical_columns_is_known(self, epsilon: float) -> None:
        (found,), _ = tables_of("repeated", 12_000, epsilon)
        both = found.contrast({"x0": 1.0, "x3": 1.0})
        assert abs(both.estimate - 0.8) < 4.0 * both.standard_error < 0.4
        with pytest.raises(InvalidInput):
            found.contrast({"x0": 1.0, "x3": -1.0})
        with pytest.raises(InvalidInput):
            found.contrast({"x0": 1.0})
        assert np.isnan(found.conf_int()[0]).all() and np.isfinite(found.conf_int()[1]).all()

    def test_rows_with_equal_repeated_columns_have_intervals(self) -> None:
        (found,), _ = tables_of("repeated", 12_000, 3.0)
        rows = np.array([[0.7, 0.1, 0.0, 0.7, -1.0, 1.0], [0.7, 0.1, 0.0, -0.7, -1.0, 1.0]])
        ends = found.sums(rows)
        truth = float(rows[0] @ np.array([*SLOPES, -0.8]))
        assert ends[0, 0] - 0.2 < truth < ends[0, 1] + 0.2 and np.isnan(ends[1]).all()

    def test_no_sum_and_no_test_of_nothing_or_of_one_line_twice(self) -> None:
        (found,), _ = tables_of("sum", 12_000, 3.0)
        for weights in ({}, {"x1": 0.0}, {"x1": float("nan")}, {"x1": float("inf")}, {"x1": "2"}):
            with pytest.raises(InvalidInput) as caught:
                found.contrast(weights)
            assert caught.value.field == "weights"
        for names in ([], ["x1", "x1"]):
            with pytest.raises(InvalidInput) as caught:
                found.wald(names)
            assert caught.value.field == "names"

    def test_known_sums_survive_a_file(self) -> None:
        (found,), _ = tables_of("sum", 12_000, 3.0)
        kept = Coefficients.from_plain_data(json.loads(json.dumps(found.to_plain_data())))
        sums = {"x0": 1.0, "x3": 1.0}
        assert kept.contrast(sums) == found.contrast(sums)
        assert abs(kept.contrast(sums).estimate - 0.8) < 4.0 * kept.contrast(sums).standard_error
        (whole,), _ = tables_of("r = .99", 12_000, INF)
        assert whole.undivided is None and whole.to_plain_data()["undivided"] is None


@pytest.mark.filterwarnings("ignore")
def test_table_refused_as_a_whole_has_no_sums_of_lost_lines() -> None:
    """Sums of x0 and x3 are known where the table is printed (the first seed), and only there.

    x3 is the sum of x0 and x1, and the truth of the contrast is 6.6.
    """
    found = {}
    for seed in (0, 15, 21):
        n = 8000
        rng = np.random.default_rng([seed, n, 7])
        x = rng.normal(size=(n, 3))
        X = np.c_[x, x[:, 0] + x[:, 1], np.full(n, 0.3), rng.normal(size=n)]
        score = X @ np.array([0.5, -0.4, 0.3, 0.6, 0.0, 0.25]) - 0.7
        y = 30.0 + 6.0 * score + 6.0 * rng.normal(size=n)
        model = ConsensusRegressor(
            (-30.0, 90.0),
            inference=True,
            trust="sum",
            n_sites=5,
            epsilon=3.0,
            data_norm=4.5,
            random_state=seed,
        ).fit(X, y)
        table = model.coefficients_
        whole = any((line.cause or "").startswith("table") for line in table.lines)
        found[seed] = whole, table.undivided is None
        if whole:
            with pytest.raises(InvalidInput, match=r"^names"):
                table.contrast({"x0": 1, "x3": 1})
        else:
            known = table.contrast({"x0": 1, "x3": 1})
            assert known.low < 6.6 < known.high
    assert found == {0: (False, False), 15: (True, True), 21: (True, True)}
