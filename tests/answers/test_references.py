"""Rare references, small sites and levels without the rarer outcome: contrasts stay sharp, and
intervals have one end.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import expit

from sottovoce.algorithms.items import Answer
from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.inference import (
    OF_LEVELS,
    Moments,
    SmallSites,
    add_error_of_merged_levels,
    add_error_of_merged_rows,
    newton_from_naming,
)
from sottovoce.answers.least_squares import slopes_from_naming, table_in_target_units
from sottovoce.answers.merged_levels import UNLIKE, MergedLevels
from sottovoce.answers.one_sided import largest_log_odds, largest_mean
from sottovoce.answers.references import Block, merged_reference
from sottovoce.answers.terms import Naming, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.problem.facts import Among
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.reports.causes import Cause
from sottovoce.reports.coefficients import (
    build_coefficient_section,
    format_text_table,
    lay_out_forest_plot,
    make_axis,
    one_end,
    one_sided_interval_text,
)
from sottovoce.reports.picture import picture
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.util.pages import render_template

TASK = BoundedNumber(0.0, 20.0)
AGE = {"kind": "number", "lo": 20, "hi": 80}
WARDS = np.array(list("abcd"), dtype=object)


class Rows(NamedTuple):
    """Raw columns of wards a to d, and the outcome: bool for classes, else numbers."""

    columns: dict[str, Any]
    outcome: np.ndarray


def drawn(n: int, shares: tuple[float, ...], *, numbers: bool = False, seed: int = 0) -> Rows:
    """Draw rows of a model in which level c is .3 below d; three times that for numbers."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20.0, 80.0, n), rng.choice(4, size=n, p=shares)
    score = 0.02 * (age - 50.0) + np.array([0.5, 0.0, -0.1, 0.2])[ward]
    positive = rng.random(n) < expit(score - 0.3)
    outcome = 10.0 + 3.0 * score + rng.normal(0.0, 2.0, n) if numbers else positive
    return Rows({"age": age, "ward": WARDS[ward]}, outcome)


def named(base: str = "a") -> Naming:
    ward = {"kind": "category", "values": list("abcd"), "base": base}
    return naming_from_schema(Schema.from_dict({"columns": {"age": AGE, "ward": ward}}))


def tables(
    rows: Rows, naming: Naming, epsilon: float, draws: int, parts: list[np.ndarray] | None = None
) -> list[Coefficients]:
    """Return one table for each draw of the noise, of rows at three sites, or of those in `parts`."""
    if parts is None:
        parts = np.array_split(np.arange(len(rows.outcome)), 3)
    raw = [{name: column[part] for name, column in rows.columns.items()} for part in parts]

    def config(seed: int, replicates: int = 1) -> RunConfig:
        return RunConfig(
            method="auto",
            trust="sum",
            epsilon=epsilon,
            delta=1e-5,
            seed=seed,
            replicates=replicates,
        )

    if rows.outcome.dtype == bool:
        signs = [np.where(rows.outcome[part], 1.0, -1.0) for part in parts]
        given = naming.rows_of_sites(list(zip(raw, signs, strict=True)))
        found = simulate(
            config(5, draws), given, method=newton_from_naming(naming), loss=Logistic()
        ).outcome
        return [build_coefficient_table(found, naming, k, 1e-5) for k in range(draws)]
    given = naming.rows_of_sites(
        [(one, np.ones(len(part))) for one, part in zip(raw, parts, strict=True)]
    )
    given = given.with_offset([TASK.encode(rows.outcome[part]) for part in parts])
    every = []
    for seed in range(draws):
        found = simulate(
            config(seed), given, method=slopes_from_naming(naming), loss=HuberResidual(1.0)
        ).outcome
        every.append(table_in_target_units(found, naming, TASK, 1e-5))
    return every


def weights_of(naming: Naming, ward: str, age: float = 40.0) -> np.ndarray:
    """Return the weights of the lines in the prediction for a row."""
    X = naming.encode_rows({"age": np.array([age]), "ward": np.array([ward], dtype=object)})
    found = np.linalg.solve(naming.into_units.T, X[0])
    return np.where(np.abs(found) > 1e-12, found, 0.0)[None]


def width(ends: np.ndarray) -> float:
    return float(ends[0, 1] - ends[0, 0])


class TestRareReference:
    """Widths of contrasts are at most 1.3 times those with the most frequent level as reference,
    over four draws.
    """

    @pytest.mark.parametrize("share", [0.0, 0.005, 0.02])
    @pytest.mark.parametrize("epsilon", [1.0, 3.0, math.inf])
    @pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
    def test_frequent_levels_are_compared_as_sharply_as_with_the_best_reference(
        self, numbers: bool, epsilon: float, share: float
    ) -> None:
        rest = 1.0 - share
        rows = drawn(20_000, (share, 0.5 * rest, 0.3 * rest, 0.2 * rest), numbers=numbers)
        truth, found = -0.9 if numbers else -0.3, dict[str, np.ndarray]()
        for base in "ab":
            naming = named(base)
            every = tables(rows, naming, epsilon, 4 if math.isfinite(epsilon) else 1)
            against = np.array(
                [[line.term.level == "c", line.term.level == "d"] for line in every[0].lines],
                dtype=float,
            )
            compared = [made.sums((against[:, 0] - against[:, 1])[None]) for made in every]
            predicted = [made.sums(weights_of(naming, "c")) for made in every]
            refused = sum(bool(np.any(np.isnan(one))) for one in [*compared, *predicted])
            assert refused <= 2  # of one draw
            assert all(
                abs(one.mean() - truth) < width(one)
                for one in compared
                if not np.any(np.isnan(one))
            )
            found[base] = np.nanmedian(
                [list(map(width, compared)), list(map(width, predicted))], axis=1
            )
        assert np.all(found["a"] < 1.3 * found["b"])

    @pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
    def test_empty_reference_refuses_its_lines_and_predictions(self, numbers: bool) -> None:
        rows, naming = drawn(20_000, (0.0, 0.5, 0.3, 0.2), numbers=numbers), named("a")
        for made in tables(rows, naming, 3.0, 2):
            causes = {line.term.text: line.cause for line in made.lines}
            rare = Cause.REFERENCE.value
            assert causes == {
                "age": None,
                "ward: b": rare,
                "ward: c": rare,
                "ward: d": rare,
                "(constant)": rare,
            }
            assert re.search(r"\d% of", str(made.lines[1].refused))
            assert np.all(np.isnan(made.sums(weights_of(naming, "a"))))
            with pytest.raises(InvalidInput, match="refused"):
                made.contrast({"ward: c": 1.0})
            with pytest.raises(InvalidInput, match="refused"):
                made.wald("ward")

    def test_known_sums_survive_a_file_with_hidden_reference(self) -> None:
        naming = named("a")
        (made,) = tables(drawn(20_000, (0.0, 0.5, 0.3, 0.2)), naming, 3.0, 1)
        again = Coefficients.from_plain_data(json.loads(json.dumps(made.to_plain_data())))
        for ward in "bcd":
            ends = made.sums(weights_of(naming, ward), 0.1)
            assert np.all(np.isfinite(ends))
            np.testing.assert_allclose(again.sums(weights_of(naming, ward), 0.1), ends)
        old = {key: value for key, value in made.to_plain_data().items() if key != "determined"} | {
            "determined": None
        }
        assert np.all(np.isnan(Coefficients.from_plain_data(old).sums(weights_of(naming, "b"))))

    def test_a_rare_level_is_merged_with_the_reference_and_a_rare_reference_with_the_most_frequent_level(
        self,
    ) -> None:
        block = Block(np.array([1, 2, 3]), np.array([0.5, 0.3, 0.195]), 0.005, np.ones(4))
        assert merged_reference(block, np.array([True, False, True, True, True])) == 1
        assert merged_reference(block, np.ones(5, dtype=bool)) is None
        common = Block(np.array([1, 2]), np.array([0.2, 0.005]), 0.795, np.ones(3))
        assert merged_reference(common, np.array([True, True, False])) is None

    @pytest.mark.parametrize("seed", range(4))
    def test_noise_that_hides_every_level_merges_all_but_one(self, seed: int) -> None:
        naming, rng = named("a"), np.random.default_rng(seed)
        noise = rng.normal(size=(naming.d, naming.d))
        S = 5.0 * (noise + noise.T)[None]
        kept = newton_from_naming(naming)._columns_not_merged(S, 5.0, np.full(1, 0.25), 0.1)[0]
        assert kept[naming.marks == 0.0].all() and kept.shape == (naming.d,)


class TestSmallSite:
    """Compared with the table without the site: at epsilon 1 noise hides the constant of .5% of the
    rows, at 10 it does not.
    """

    def made(
        self, epsilon: float, first: int, *, numbers: bool
    ) -> tuple[list[Coefficients], Naming]:
        """Return tables of the sites from number `first` on."""
        share = 0.02 if numbers else 0.005
        rows = drawn(20_000, (share, 0.5, 0.3 - share, 0.2), numbers=numbers)
        parts = [np.flatnonzero(rows.columns["ward"] == ward) for ward in WARDS[first:]]
        naming = naming_from_schema(
            Schema.from_dict({"columns": {"age": AGE}}), tuple(WARDS[first:])
        )
        own = Rows({"age": rows.columns["age"]}, rows.outcome)
        return tables(own, naming, epsilon, 6, parts), naming

    @pytest.mark.parametrize(
        ("epsilon", "numbers", "hidden"), [(1.0, False, 6), (10.0, False, 0), (1.0, True, 0)]
    )
    def test_hidden_site_widens_no_comparison_of_other_sites(
        self, epsilon: float, numbers: bool, hidden: int
    ) -> None:
        """For numbers it keeps a column of its own, in a frame for rows as long as its own may be."""
        widths, truth = list[float](), -0.9 if numbers else -0.3
        for first in (0, 1):
            every, naming = self.made(epsilon, first, numbers=numbers)
            asked = np.zeros((1, naming.d))
            asked[0, -2:] = 1.0, -1.0
            compared = [made.sums(asked) for made in every]
            assert all(abs(one.mean() - truth) < width(one) for one in compared)
            widths.append(float(np.median([width(one) for one in compared])))
            causes = [made.lines[1].cause for made in every]
            if first == 0:
                assert causes.count(Cause.SMALL_SITE.value) == hidden
        assert widths[0] < 1.1 * widths[1]

    def test_rows_of_hidden_site_get_the_mean_constant_of_the_others(self) -> None:
        kept = np.array([[True, False, True, True]])
        small = SmallSites.from_kept_columns(
            np.array([0.0, 1.0, 1.0, 1.0]), kept, np.diag([9.0, 1.0, 6.0, 2.0])[None]
        )
        np.testing.assert_allclose(
            small.extend_to_small_sites(np.array([[5.0, 7.0, 1.0, 3.0]])), [[5.0, 1.5, 1.0, 3.0]]
        )
        gradient = Answer(np.array([[5.0, 4.0, 1.0, 3.0]]), Among(1.0, 1), 1.0)
        np.testing.assert_allclose(small.gather_gradient(gradient).value, [[5.0, 0.0, 4.0, 4.0]])
        np.testing.assert_allclose(
            small.noise[0, 2:, 2:], np.eye(2) + np.outer([0.75, 0.25], [0.75, 0.25])
        )
        none = SmallSites.from_kept_columns(np.array([0.0, 0.0, 0.0, 1.0]), kept, np.eye(4)[None])
        np.testing.assert_array_equal(none.P, np.eye(4)[None])


class TestMergedRows:
    """The covariance allows for the effect of merged rows on all other lines."""

    @pytest.mark.parametrize("base", ["a", "d"])
    def test_share_of_merged_rows_counts_levels_references_and_sites(self, base: str) -> None:
        """Levels a to d have 5, 50, 30 and 15% of the rows, and sites 60, 30 and 10%."""
        ward = {"kind": "category", "values": list("abcd"), "base": base}
        naming = naming_from_schema(
            Schema.from_dict({"columns": {"age": AGE, "ward": ward}}), ("s", "t", "u")
        )
        rows = np.random.default_rng(3).permutation(
            np.repeat(WARDS, (2_000, 20_000, 12_000, 6_000))
        )
        parts = np.split(rows, (24_000, 36_000))
        tables = [{"age": np.full(len(part), 50.0), "ward": part} for part in parts]
        x = np.concatenate([naming.encode_rows(one, site) for site, one in enumerate(tables)])
        S = (x.T @ x / len(x))[None]
        recipe, kept = newton_from_naming(naming), np.ones((1, naming.d), dtype=bool)
        assert recipe._share_of_merged_rows(S, 0.0, kept) == pytest.approx(0.0)
        kept[0, np.flatnonzero(naming.constant)[2]] = False
        assert recipe._share_of_merged_rows(S, 0.0, kept) == pytest.approx(0.1)
        columns = np.flatnonzero(naming.marks)
        levels = [level for level in "abcd" if level != base]
        if base == "a":  # the rare reference is merged with b
            kept[0, columns[levels.index("b")]] = False
            assert recipe._share_of_merged_rows(S, 0.0, kept) == pytest.approx(
                math.hypot(0.1, OF_LEVELS * 0.05)
            )
        else:
            kept[0, columns[[levels.index("a"), levels.index("c")]]] = False
            assert recipe._share_of_merged_rows(S, 0.0, kept) == pytest.approx(
                math.hypot(0.1, OF_LEVELS * 0.35)
            )
        assert recipe._share_of_merged_rows(S, 1e3, kept) > 100.0

    def test_merged_rows_move_lines_by_about_the_allowed_error(self) -> None:
        """A twentieth of the rows, one standard deviation from the mean of a column and off by one
        log-odds, without noise.
        """
        rng = np.random.default_rng(2)
        z = rng.normal(size=60_000)
        off = np.arange(60_000) < 3_000
        z[off] += 1.0
        naming = naming_from_schema(
            Schema.from_dict({"columns": {"z": {"kind": "number", "lo": -4, "hi": 4}}})
        )
        table_of_z = {"z": np.clip(z, -4.0, 4.0)}
        u = rng.random(60_000)
        found = []
        for added in (0.0, 1.0):
            y = np.where(u < expit(0.5 * z - 1.0 + added * off), 1.0, -1.0)
            run = RunConfig(method="auto", trust="sum", epsilon=math.inf, delta=1e-5, seed=0)
            rows = naming.rows_of_sites([({"z": table_of_z["z"][k::3]}, y[k::3]) for k in range(3)])
            found.append(
                simulate(run, rows, method=newton_from_naming(naming), loss=Logistic()).outcome
            )
        moved = found[1].estimate[0] - found[0].estimate[0]
        S = found[0].moments
        known = Moments(S, S @ naming.constant / naming.value, naming.marks, naming.blocks)
        more = add_error_of_merged_rows(found[0], known, np.array([0.05]))
        allowed = np.sqrt(np.diag(more.covariance[0] - found[0].covariance[0]))
        assert np.all((0.5 * allowed < moved) & (moved < 1.4 * allowed)), (moved, allowed)

    @pytest.mark.parametrize("unlike", [-UNLIKE, UNLIKE])
    def test_merged_reference_moves_contrast_with_its_level_by_about_the_allowed_error(
        self, unlike: float
    ) -> None:
        """A reference with 2% of the rows that is counted with the most frequent level, without
        noise: the contrast moves, and its interval allows for that.
        """
        rng = np.random.default_rng(6)
        ward = rng.choice(4, size=120_000, p=(0.02, 0.48, 0.3, 0.2))
        u, age = rng.random(len(ward)), rng.uniform(20.0, 80.0, len(ward))
        schema = {"kind": "category", "values": list("bcd")}
        naming = naming_from_schema(Schema.from_dict({"columns": {"age": AGE, "ward": schema}}))
        run = RunConfig(method="auto", trust="sum", epsilon=math.inf, delta=1e-5, seed=0)
        found = []
        for added in (0.0, unlike):
            y = np.where(u < expit(np.array([added, 0.0, -0.1, 0.2])[ward] - 0.3), 1.0, -1.0)
            told = {"age": age, "ward": WARDS[np.maximum(ward, 1)]}
            rows = [({k: x[i::3] for k, x in told.items()}, y[i::3]) for i in range(3)]
            encoded = naming.rows_of_sites(rows)
            found.append(
                simulate(run, encoded, method=newton_from_naming(naming), loss=Logistic()).outcome
            )
        lines = naming.into_units
        contrast = [k for k, term in enumerate(naming.terms) if term.level == "c"]
        moved = (lines @ (found[1].estimate[0] - found[0].estimate[0]))[contrast]
        first = found[0]
        # The reference of the encoding is b with a: its rows are those without a mark.
        form = naming.constant / naming.value - np.sum(
            np.eye(naming.d)[naming.marks > 0.0] / naming.marks[naming.marks > 0.0][:, None], axis=0
        )
        merged = MergedLevels(np.full((1, 1), 0.02), form[None, None], (naming.marks > 0.0)[None])
        S = first.moments
        known = Moments(S, S @ naming.constant / naming.value, naming.marks, naming.blocks)
        quiet = Answer(np.zeros((1, naming.d)), Among(1.0, 1), 1.0)
        more = add_error_of_merged_levels(first, merged, known, np.array([0.43]), quiet)
        allowed = np.sqrt(np.diag(lines @ (more.covariance - first.covariance)[0] @ lines.T))
        assert 0.7 * allowed[contrast] < np.abs(moved) < 1.2 * allowed[contrast]
        assert np.sign(moved) == -np.sign(unlike)
        # A contrast of two others does not move, and is not wider.
        others = np.zeros(naming.d)
        others[contrast[0]], others[contrast[0] + 1] = 1.0, -1.0
        added = others @ lines @ more.of_merged[0] @ lines.T @ others
        assert added < 0.01 * allowed[contrast[0]] ** 2

    def test_widening_follows_gradient_of_merged_rows_where_it_stands_out(self) -> None:
        """Of 1% of the rows, whose gradient is seen beyond noise; and never more than all of them
        may have.
        """
        form, mark = np.array([[[1.0, 0.0]]]), np.array([[True, False]])
        merged = MergedLevels(np.full((1, 1), 0.01), form, mark)

        def size(gradient: float, noise: float) -> float:
            seen = (np.array([[gradient, 0.0]]), noise)
            args = (np.eye(2)[None], np.ones((1, 2)), np.array([0.1]), np.array([0.2]))
            return float(np.sqrt(merged.covariance(*args, seen)[0, 1, 1]))

        assert size(0.0, 1.0) == pytest.approx(UNLIKE * 0.01 * 0.1)
        assert size(0.005, 0.001) == pytest.approx(math.sqrt(0.005**2 - 0.002**2))
        assert size(0.05, 0.001) == pytest.approx(0.01 * 0.8)

    def test_slope_interval_covers_if_merged_sites_follow_its_column(
        self,
    ) -> None:
        """Forty wards, whose constants rise with the mean of a column: merging them changes its
        slope by .3.
        """
        rng, rise = np.random.default_rng(7), np.repeat(np.linspace(-1.0, 1.0, 40), 200)
        z = rng.normal(size=(8_000, 3))
        z[:, 0] += rise
        z = np.clip(z, -3.0, 3.0)
        positive = rng.random(8_000) < expit(z @ (0.8, -0.5, 0.3) - 1.25 + 1.25 * rise)
        columns = {f"z{k}": {"kind": "number", "lo": -3, "hi": 3} for k in range(3)}
        naming = naming_from_schema(
            Schema.from_dict({"columns": columns}), tuple(map(str, range(40)))
        )
        given = Rows({f"z{k}": z[:, k] for k in range(3)}, positive)
        every = tables(given, naming, 1.0, 12, np.array_split(np.arange(8_000), 40))
        told = [one.lines[0] for one in every if one.lines[0].estimate is not None]
        assert all(
            line.low <= 0.8 <= line.high
            for line in told
            if line.low is not None and line.high is not None
        )


class TestOneEnd:
    def test_the_largest_mean_is_that_of_the_exact_law(self) -> None:
        """With 100,000 draws a share of .025 has an error of .0005; half or twice the share fails."""
        rng = np.random.default_rng(1)
        assert largest_mean(0.0, 0.0, 0.025) == pytest.approx(-math.log(0.025))
        assert largest_mean(3.0, 0.0, 0.025) == pytest.approx(8.7673, abs=1e-3)
        for count, noise in ((0.0, 3.0), (7.0, 4.0), (20.0, 0.5)):
            mean = largest_mean(count, noise, 0.025)
            seen = rng.poisson(mean, 100_000) + noise * rng.normal(size=100_000)
            assert abs(np.mean(seen <= count) - 0.025) < 0.003
        assert largest_mean(-9.0, 3.0, 0.025) == largest_mean(0.0, 3.0, 0.025)

    def test_bound_of_half_of_the_rows_is_no_bound(self) -> None:
        assert largest_log_odds(0.0, 0.0, 400.0, 0.025) == pytest.approx(
            math.log(3.689 / 396.311), abs=1e-3
        )
        assert (
            largest_log_odds(0.0, 0.0, 7.0, 0.025)
            == math.inf
            == largest_log_odds(0.0, 1.0, -5.0, 0.025)
        )

    @pytest.mark.parametrize("epsilon", [3.0, 10.0, math.inf])
    @pytest.mark.parametrize("positive", [False, True])
    def test_a_level_with_one_outcome_never_has_two_ends(
        self, epsilon: float, positive: bool
    ) -> None:
        rows, naming = drawn(8_000, (0.4, 0.3, 0.2, 0.1)), named()
        rows.outcome[rows.columns["ward"] == "d"] = positive
        seen = 0
        for made in tables(rows, naming, epsilon, 6 if math.isfinite(epsilon) else 1):
            line = made.lines[3]
            assert line.estimate is None and (line.low is None or line.high is None)
            if line.one_sided is None:
                continue
            seen += 1
            assert line.one_sided == ("above" if positive else "below")
            ends, known = made.conf_int()[3], line.low if positive else line.high
            assert ends[0 if positive else 1] == known and np.isinf(ends[1 if positive else 0])
            narrow, wide = made.conf_int(0.5)[3], made.conf_int(0.01)[3]
            assert abs(narrow[0 if positive else 1]) > abs(wide[0 if positive else 1])
            own, other = (made.sums(weights_of(naming, ward)) for ward in "db")
            assert np.isinf(own).sum() == 1 and (
                made.lines[1].refused is not None or np.all(np.isfinite(other))
            )
            again = Coefficients.from_plain_data(json.loads(json.dumps(made.to_plain_data())))
            np.testing.assert_array_equal(again.sums(weights_of(naming, "d")), own)
            assert again.lines[3] == line
        assert seen

    @pytest.mark.parametrize(("epsilon", "mean"), [(10.0, 4.0), (math.inf, 2.0)])
    def test_one_end_and_two_cover_a_level_with_few_events(
        self, epsilon: float, mean: float
    ) -> None:
        """Of 16 intervals with an error rate of 5%, more than three fail with probability .007."""
        missed = single = 0
        for seed in range(16):
            rows = drawn(2_000, (0.4, 0.3, 0.2, 0.1), seed=seed)
            own = rows.columns["ward"] == "d"
            shift = math.log(mean / own.sum())
            log_odds = 0.02 * (rows.columns["age"][own] - 50.0) + shift
            rows.outcome[own] = np.random.default_rng(900 + seed).random(own.sum()) < expit(
                log_odds
            )
            truth = shift + 0.3 - 0.5  # against the reference
            (made,) = tables(rows, named(), epsilon, 1)
            low, high = made.conf_int()[3]
            single += made.lines[3].one_sided is not None
            missed += not (np.isnan(high) or low <= truth <= high)
        assert missed <= 3 and single >= 8

    @pytest.mark.parametrize("epsilon", [3.0, 10.0, math.inf])
    def test_two_columns_with_one_outcome_levels_have_one_end_each(self, epsilon: float) -> None:
        """A level's rows that are in no other such level have one end; rows in both have none."""
        n, rng = 20_000, np.random.default_rng(2)
        columns = {
            name: rng.choice(4, size=n, p=(0.4, 0.3, 0.2, 0.1)) for name in ("ward", "shift")
        }
        without = (columns["ward"] == 3) | (columns["shift"] == 3)
        outcome = (rng.random(n) < 0.4) & ~without
        rows = Rows({name: WARDS[codes] for name, codes in columns.items()}, outcome)
        own = {"kind": "category", "values": list("abcd")}
        naming = naming_from_schema(Schema.from_dict({"columns": {"ward": own, "shift": own}}))
        every = tables(rows, naming, epsilon, 6 if math.isfinite(epsilon) else 1)
        told = [made for made in every if made.lines[0].cause != Cause.TABLE_UNFINISHED.value]
        assert 2 * len(told) >= len(every)
        for made in told:
            lines = {line.term.text: line for line in made.lines}
            for name in ("ward: d", "shift: d"):
                line = lines[name]
                assert line.one_sided == "below" and line.high is not None and line.high < -1.0
                other = columns["shift" if name == "ward: d" else "ward"]
                alone = np.sum((columns[name[:-3]] == 3) & (other != 3))
                least = largest_log_odds(0.0, 0.0, alone, 0.025, 5.0) - math.log(0.4 / 0.6)
                assert line.high > least - 0.1
                assert math.isfinite(epsilon) or line.high < least + 0.2
            both = np.array([line.term.level == "d" for line in made.lines], dtype=float)
            (low, high) = made.sums(both[None])[0]
            assert low == -math.inf and high > lines["ward: d"].high + lines["shift: d"].high - 1e-9
            apart = made.sums((both * [1, 1, 1, -1, -1, -1, 0])[None])
            assert np.all(np.isnan(apart))  # both ends of one may be anywhere

    def test_one_sided_interval_is_shown_in_table_and_plots(self) -> None:
        rows = drawn(8_000, (0.4, 0.3, 0.2, 0.1))
        rows.outcome[rows.columns["ward"] == "d"] = True
        (made,) = tables(rows, named(), math.inf, 1)
        lines = made.to_dict()
        end = lines[3]["low"]
        assert one_end(lines[3]) == (end, 1) and lines[3]["odds_ratio_low"] == pytest.approx(
            math.exp(end)
        )
        assert lines[3]["high"] is None and lines[3]["p"] is None
        assert one_sided_interval_text(lines[3], odds=False) == (
            f"above {math.floor(100.0 * end) / 100.0:.2f}"
        )
        above = one_sided_interval_text(lines[3], odds=True)
        assert above in format_text_table(lines)
        assert float(above.removeprefix("above ").replace(",", "")) <= math.exp(end)
        assert make_axis(lines[:4]).high > end
        (row,) = [row for row in lay_out_forest_plot(lines).rows if row.text == above]
        assert row.dot is None and row.span is not None and row.span[1] == "100.00%"
        section = render_template(
            "coefficients.html", coefficients=build_coefficient_section(made.to_plain_data())
        )
        assert (
            above.startswith("above")
            and above in section
            and above in picture(made.to_plain_data())
        )
