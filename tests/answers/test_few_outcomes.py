"""Asymmetric intervals with two ends for groups in which few rows have the rarer outcome."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from sottovoce.answers.coefficients import LEVEL, Coefficients, build_coefficient_table
from sottovoce.answers.few_outcomes import FewOutcomes, ends_of_intervals, lower_end_of_mean
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import Logistic
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

Z = 1.959963984540054


def missed(mean: float, *, even: bool = False) -> float:
    """Return the exact share of printed counts (5 or more, without noise) whose low end is above
    the mean.
    """
    counts = np.arange(5, 200)
    chances = stats.poisson.pmf(counts, mean)
    ends = [
        x * math.exp(-Z / math.sqrt(x)) if even else lower_end_of_mean(float(x), 0.0, 5.0, 0.05)
        for x in counts.tolist()
    ]
    return float(chances[np.array(ends) > mean].sum() / chances.sum())


class TestLaw:
    @pytest.mark.parametrize("mean", [2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0])
    def test_lower_ends_of_printed_counts_miss_seldom(self, mean: float) -> None:
        """The probability of the count itself counts by half, so a little more than .025 is
        possible; the other side has less.
        """
        assert missed(mean) <= 0.042

    def test_symmetric_ends_miss_too_often(self) -> None:
        assert missed(3.0, even=True) > 0.1 and missed(5.0, even=True) > 0.05

    @pytest.mark.parametrize("mean", [6.0, 10.0, 20.0])
    def test_lower_ends_of_noisy_counts_miss_seldom(self, mean: float) -> None:
        """Noise of deviation 3, printed from 4 deviations on: a share of .025 in 4,000 printed
        draws has an error of .0025.
        """
        rng = np.random.default_rng(int(mean))
        counts = rng.poisson(mean, 400_000) + 3.0 * rng.normal(size=400_000)
        printed = counts[counts >= 12.0][:4_000]
        low = np.interp(
            printed,
            grid := np.linspace(12.0, 60.0, 97),
            [lower_end_of_mean(x, 3.0, 12.0, 0.05) for x in grid],
        )
        chance = min(1.0, float(np.mean(counts >= 12.0)) / 0.1)
        assert np.mean(low > mean) <= 0.025 / chance + 0.0075
        even = printed * np.exp(-Z * np.hypot(printed**-0.5, 3.0 / printed))
        assert mean > 6.0 or np.mean(even > mean) > 0.5

    def test_many_outcomes_give_the_normal_end(self) -> None:
        for count, noise in ((1_000.0, 0.0), (1_000.0, 20.0), (4_000.0, 100.0)):
            even = count * math.exp(-Z * math.hypot(count**-0.5, noise / count))
            assert lower_end_of_mean(count, noise, 5.0 + 4.0 * noise, 0.05) == pytest.approx(
                even, rel=0.01
            )

    def test_end_is_zero_where_noise_alone_may_explain_the_count(self) -> None:
        assert lower_end_of_mean(12.0, 3.0, 12.0, 1e-7) == pytest.approx(0.0, abs=1e-6)


class TestSums:
    def test_interval_is_longer_only_towards_fewer_outcomes(self) -> None:
        few = FewOutcomes(
            np.array([[1.0, 0.0]]), np.ones(1), *(np.array([x]) for x in (6.0, 0.0, 5.0, 600.0))
        )
        gained = few.squared_length_gains(
            np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]), 0.05
        )
        one = 0.98 * (math.log(6.0 / lower_end_of_mean(6.0, 0.0, 5.0, 0.05)) ** 2 - Z**2 / 6.0)
        np.testing.assert_allclose(gained, [[one, 0.0], [0.0, one], [0.0, 0.0], [4.0 * one, 0.0]])
        other = few._replace(side=-np.ones(1)).squared_length_gains(np.array([[1.0, 0.0]]), 0.05)
        np.testing.assert_allclose(other, [[0.0, one]])
        low, high = ends_of_intervals(np.zeros(1), np.ones(1), np.array([[1.0, 0.0]]), 0.05, few)
        assert low[0] == pytest.approx(-math.sqrt(Z**2 + one)) and high[0] == pytest.approx(Z)

    def test_interval_is_symmetric_at_a_share_of_one_half(self) -> None:
        few = FewOutcomes(np.eye(1), np.ones(1), *(np.array([x]) for x in (6.0, 0.0, 5.0, 12.0)))
        np.testing.assert_array_equal(few.squared_length_gains(np.eye(1), 0.05), np.zeros((1, 2)))


@pytest.fixture(scope="module")
def made() -> Coefficients:
    """Return tables of 2,000 rows of wards a to d, where d has eight events in 200 rows."""
    rng = np.random.default_rng(3)
    ward, age = np.arange(2_000) % 10, rng.uniform(20.0, 80.0, 2_000)
    level = np.where(ward == 9, 3, np.minimum(ward // 3, 2))
    positive = rng.random(2_000) < expit(0.02 * (age - 50.0))
    positive[level == 3] = np.arange(np.sum(level == 3)) % 28 == 0
    columns = {"age": age, "ward": np.array(list("abcd"), dtype=object)[level]}
    schema = {
        "age": {"kind": "number", "lo": 20, "hi": 80},
        "ward": {"kind": "category", "values": list("abcd")},
    }
    naming = naming_from_schema(Schema.from_dict({"columns": schema}))
    parts = np.array_split(rng.permutation(2_000), 3)
    raw = [{name: column[part] for name, column in columns.items()} for part in parts]
    rows = naming.rows_of_sites(
        [(one, np.where(positive[part], 1.0, -1.0)) for one, part in zip(raw, parts, strict=True)]
    )
    run = RunConfig(method="auto", trust="sum", epsilon=math.inf, delta=1e-5, seed=1)
    return build_coefficient_table(
        simulate(run, rows, method=newton_from_naming(naming), loss=Logistic()).outcome,
        naming,
        0,
        1e-5,
    )


class TestTable:
    def test_only_the_line_of_the_rare_level_reaches_farther_down(self, made: Coefficients) -> None:
        for line in made.lines:
            assert line.estimate is not None and line.standard_error is not None
            assert line.low is not None and line.high is not None
            down, up = line.estimate - line.low, line.high - line.estimate
            assert up == pytest.approx(Z * line.standard_error)
            if line.term.level == "d":
                assert 1.3 * up < down < 2.0 * up
            else:
                assert down == pytest.approx(up, rel=1e-3)

    def test_ends_are_the_same_at_every_door(self, made: Coefficients) -> None:
        again = Coefficients.from_plain_data(json.loads(json.dumps(made.to_plain_data())))
        for ends in (made.conf_int(), again.conf_int()):
            np.testing.assert_array_equal(ends, [[line.low, line.high] for line in made.lines])
        one, line = again.contrast({"ward: d": 1.0}), made.lines[3]
        assert (one.estimate, one.low, one.high) == pytest.approx(
            (line.estimate, line.low, line.high)
        )
        assert one.p == pytest.approx(line.p)
        against = made.contrast({"ward: c": 1.0, "ward: d": -1.0})
        assert against.high - against.estimate > 1.3 * (against.estimate - against.low)

    def test_p_is_below_the_level_if_zero_is_outside_the_interval(self, made: Coefficients) -> None:
        estimate, weight = made.lines[3].estimate, 1.0
        assert estimate is not None and made.lines[3].low is not None
        for line in made.lines:
            assert line.low is not None and line.high is not None and line.p is not None
            assert (line.p < 1.0 - LEVEL) == (line.low * line.high > 0.0)
        assert made.contrast({"ward: d": weight}).p == pytest.approx(made.lines[3].p)

    def test_incomplete_record_is_refused_in_one_line(self, made: Coefficients) -> None:
        """Records of versions before 0.3 have no groups with few outcomes."""
        plain = made.to_plain_data()
        for name in plain:
            with pytest.raises(InvalidInput) as refused:
                Coefficients.from_plain_data(
                    {key: value for key, value in plain.items() if key != name}
                )
            assert refused.value.field == "run" and "\n" not in str(refused.value)
