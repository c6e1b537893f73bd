"""Numbers whose coefficient few rows tell, whatever their code and however they are declared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.concentrated import concentrated_numbers
from sottovoce.answers.inference import Estimates, newton_from_naming
from sottovoce.answers.one_sided import largest_mean
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.util.typing import Any, Array

ROWS = 20_000
CODES = {"0 and 1": (0.0, 1.0), "1 and 2": (1.0, 2.0), "1 and -1": (1.0, -1.0)}


def outcome_of(naming: Naming, columns: Any, positive: Array, epsilon: float) -> Estimates:
    """Return the outcome of an inference of rows at five sites, six draws of the noise.

    `columns` is an array, or a mapping of columns under a schema.
    """
    parts = np.array_split(np.arange(len(positive)), 5)
    y = np.where(positive, 1.0, -1.0)
    draws = 6 if math.isfinite(epsilon) else 1
    run = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=4, replicates=draws
    )
    if isinstance(columns, dict):
        raw = [({name: x[part] for name, x in columns.items()}, y[part]) for part in parts]
    else:
        raw = [(columns[part], y[part]) for part in parts]
    loss = Weighted(Logistic()) if naming.long else Logistic()
    rows = naming.rows_of_sites(raw)
    return simulate(run, rows, method=newton_from_naming(naming), loss=loss).outcome


def tables_of(naming: Naming, columns: Any, positive: Array, epsilon: float) -> list[Coefficients]:
    found = outcome_of(naming, columns, positive, epsilon)
    return [build_coefficient_table(found, naming, r, 1e-5) for r in range(len(found.estimate))]


def declared(x: dict[str, Any]) -> Naming:
    """Return the encoding of a column x as declared, and of a number z."""
    columns = {"x": x, "z": {"kind": "number", "lo": -5, "hi": 5}}
    return naming_from_schema(Schema.from_dict({"columns": columns}))


def rare_rows(code: tuple[float, float], events: int) -> tuple[Array, Array]:
    """Return columns, of which the first has the second code in 1,000 rows with so many events."""
    rng = np.random.default_rng(5)
    rare, z = np.arange(ROWS) % 20 == 7, rng.normal(size=ROWS)
    positive = rng.random(ROWS) < expit(0.4 * z - 1.2)
    positive[rare] = np.arange(1_000) < events
    return np.column_stack([np.where(rare, code[1], code[0]), z]), positive


def without_schema(columns: Array) -> Naming:
    return naming_from_columns(["x", "z"], 1.35 * math.sqrt(float(np.mean(columns**2)) * 2.0))


class TestTwoValues:
    @pytest.mark.parametrize("code", list(CODES))
    @pytest.mark.parametrize("epsilon", [3.0, math.inf])
    def test_without_events_there_is_no_interval_of_two_ends(
        self, code: str, epsilon: float
    ) -> None:
        columns, positive = rare_rows(CODES[code], 0)
        for table in tables_of(without_schema(columns), columns, positive, epsilon):
            assert table.lines[0].refused is not None

    def test_declared_bounds_that_are_too_wide_change_nothing(self) -> None:
        columns, positive = rare_rows((0.0, 1.0), 0)
        naming = declared({"kind": "number", "lo": -5, "hi": 5})
        raw = {"x": columns[:, 0], "z": columns[:, 1]}
        for table in tables_of(naming, raw, positive, 3.0):
            assert table.lines[0].refused is not None

    @pytest.mark.parametrize("code", list(CODES))
    def test_moments_of_two_measures_tell_the_distance_of_two_values(self, code: str) -> None:
        """Without noise the length is exact: third over second moment by curvature."""
        columns, positive = rare_rows(CODES[code], 60)
        naming = without_schema(columns)
        found = outcome_of(naming, columns, positive, math.inf)
        ends = concentrated_numbers(found, naming, 0)
        assert ends.columns == [0, 1]
        chance = expit(naming.encode_rows(columns) @ found.at[0])
        weight = chance * (1.0 - chance)
        share = weight[columns[:, 0] == CODES[code][1]].sum() / weight.sum()
        sign = CODES[code][1] - CODES[code][0]
        length = ends.lengths[0] / naming.into_units[0, 0]
        assert length == pytest.approx(sign * (1.0 - 2.0 * share), rel=0.02)
        assert ends.side[0] == 1.0
        assert ends.noise[0] == 0.0
        assert 45.0 < ends.rarer[0] < 62.0

    def test_interval_is_that_of_a_level(self) -> None:
        columns, positive = rare_rows((0.0, 1.0), 12)
        text = np.array(["no", "yes"], dtype=object)[columns[:, 0].astype(int)]
        number, level = (
            tables_of(declared(column), {"x": x, "z": columns[:, 1]}, positive, math.inf)[0].lines[
                0
            ]
            for column, x in (
                ({"kind": "number", "lo": 0, "hi": 1}, columns[:, 0]),
                ({"kind": "category", "values": ["no", "yes"]}, text),
            )
        )
        assert number.estimate is not None and number.low is not None and number.high is not None
        assert level.estimate is not None and level.low is not None and level.high is not None
        down, up = number.estimate - number.low, number.high - number.estimate
        assert down > 1.1 * up
        assert down == pytest.approx(level.estimate - level.low, rel=0.1)
        assert up == pytest.approx(level.high - level.estimate, rel=0.1)


class TestOtherNumbers:
    def test_number_that_is_mostly_zero_is_refused_without_events(self) -> None:
        columns, positive = rare_rows((0.0, 1.0), 0)
        rng = np.random.default_rng(8)
        columns[:, 0] *= np.exp(0.5 * rng.normal(size=ROWS))
        for epsilon in (3.0, math.inf):
            for table in tables_of(without_schema(columns), columns, positive, epsilon):
                assert table.lines[0].refused is not None

    @pytest.mark.parametrize("slopes", [(0.7, -0.4), (3.0, -2.0)])
    def test_normal_columns_stay_printed_and_even(self, slopes: tuple[float, float]) -> None:
        rng = np.random.default_rng(6)
        columns = rng.normal(size=(ROWS, 2))
        positive = rng.random(ROWS) < expit(columns @ np.array(slopes) - 0.5)
        naming = naming_from_columns(["x", "z"], 1.35 * math.sqrt(2.0))
        for table in tables_of(naming, columns, positive, 3.0):
            for line in table.lines:
                assert line.refused is None
                assert line.estimate is not None and line.standard_error is not None
                assert line.low is not None and line.high is not None
                assert line.high - line.low < 1.03 * 3.92 * line.standard_error

    def test_rare_column_with_many_events_stays_printed(self) -> None:
        columns, positive = rare_rows((1.0, 2.0), 200)
        for table in tables_of(without_schema(columns), columns, positive, 3.0):
            assert all(line.refused is None for line in table.lines)


class TestConstantAlone:
    def test_interval_of_a_constant_beside_zero_columns_is_that_of_the_binomial(self) -> None:
        columns, positive = np.zeros((2_000, 2)), np.arange(2_000) % 4 == 0
        naming = naming_from_columns(["x", "z"], 1.0)
        table = tables_of(naming, columns, positive, math.inf)[0]
        assert [line.cause for line in table.lines] == ["lost", "lost", None]
        line = table.lines[-1]
        assert line.estimate == pytest.approx(math.log(1.0 / 3.0))
        assert line.standard_error == pytest.approx((2_000 * 0.25 * 0.75) ** -0.5)

    def test_constant_without_any_column_is_printed_with_noise(self) -> None:
        columns, positive = np.zeros((20_000, 0)), np.arange(20_000) % 5 == 0
        for table in tables_of(naming_from_columns([], 1.0), columns, positive, 3.0):
            (line,) = table.lines
            assert line.low is not None and line.high is not None
            assert line.low < math.log(0.25) < line.high


class TestOneEnd:
    @pytest.mark.parametrize("noise", [0.0, 3.0])
    def test_one_end_holds_among_the_counts_that_have_one(self, noise: float) -> None:
        """Counts below the threshold, wherever these are a tenth of all or more."""
        rng, printed = np.random.default_rng(9), max(5.0 + 2.0 * noise, 4.0 * noise)
        grid = np.linspace(0.0, printed, 49)
        if noise == 0.0:
            grid = np.arange(5.0)
        largest = [largest_mean(x, noise, 0.025, printed) for x in grid.tolist()]
        of_all = [largest_mean(x, noise, 0.025) for x in grid.tolist()]
        means = np.arange(1.0, 30.0)
        told = 0
        for mean in means.tolist():
            counts = rng.poisson(mean, size=200_000) + noise * rng.normal(size=200_000)
            counts = np.maximum(counts[counts < printed], 0.0)
            if len(counts) < 20_000:
                continue
            missed = np.mean(np.interp(counts, grid, largest) < mean)
            assert missed <= 0.026
            told = max(told, float(np.mean(np.interp(counts, grid, of_all) < mean)))
        # Bounds that do not ask which counts have one end miss ten times as often somewhere.
        assert told > 0.1
