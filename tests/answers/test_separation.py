"""Separation: lines that the data do not determine are refused with their cause, at any epsilon;
the others are printed.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console
from scipy.special import expit

from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.inference import ROOM, SURE, Estimates, newton_from_naming
from sottovoce.answers.separation import RarerOutcome, at_a_point, at_the_start, groups_of, together
from sottovoce.answers.terms import Naming, naming_from_schema
from sottovoce.cli import cli
from sottovoce.cli.answers import show_coefficients
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.reports.causes import Cause, all_refused_by_noise, cause_of_line
from sottovoce.reports.coefficients import remarks_below_table, site_difference_sentences
from sottovoce.reports.page import page
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

N, SITES = 4000, ("north", "south", "west", "east")
SEEDS = range(3)
INF = math.inf
WARD = {"kind": "category", "values": ["a", "b", "c", "d"]}
BINARY = {"kind": "category", "values": ["no", "yes"]}


class Rows(NamedTuple):
    """A table that a design may change: columns, schema, whether rows are positive, and sites."""

    columns: dict[str, Any]
    schema: dict[str, Any]
    positive: np.ndarray
    site: np.ndarray
    rng: np.random.Generator


def plain(seed: int) -> Rows:
    """Draw rows of a logistic model, with 40, 30, 20 and 10% of them in four wards."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 80, N), rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=N)
    positive = rng.random(N) < expit(
        -1.0 + 0.03 * (age - 50) + np.array([0.0, 0.4, -0.4, 0.2])[ward]
    )
    columns = {"age": age, "ward": np.array(list("abcd"), dtype=object)[ward]}
    schema = {"age": {"kind": "number", "lo": 0, "hi": 120}, "ward": WARD}
    return Rows(columns, schema, positive, rng.integers(4, size=N), rng)


def a_level(rows: Rows) -> None:
    rows.positive[rows.columns["ward"] == "d"] = False


def a_common_level(rows: Rows) -> None:
    rows.positive[rows.columns["ward"] == "b"] = True


def the_reference(rows: Rows) -> None:
    rows.positive[rows.columns["ward"] == "a"] = True


def a_site(rows: Rows) -> None:
    rows.positive[rows.site == 2] = False


def full(rows: Rows) -> None:
    rows.positive[:] = rows.columns["age"] > 55.0


def quasi(rows: Rows) -> None:
    """Rows of one age have both outcomes; the others are separated on either side of it."""
    age = rows.columns["age"]
    age[:] = np.round(age)
    rows.positive[:] = np.where(age == 55.0, rows.positive, age > 55.0)


def a_combination(rows: Rows) -> None:
    """Each of two binary columns has both outcomes at both levels, but their difference decides the
    outcome where it is not 0.
    """
    first, second = rows.rng.random((2, N)) < 0.2
    for name, yes in (("u", first), ("v", second)):
        rows.columns[name], rows.schema[name] = np.where(yes, "yes", "no").astype(object), BINARY
    rows.positive[first & ~second] = True
    rows.positive[second & ~first] = False


def a_rare_missing_level(rows: Rows) -> None:
    gone = rows.rng.random(N) < 0.012
    ages = rows.columns["age"].tolist()
    rows.columns["age"] = np.array(
        ["NA" if hidden else str(age) for hidden, age in zip(gone, ages, strict=True)], object
    )
    rows.schema["age"] = rows.schema["age"] | {"missing": 50, "indicator": True}
    rows.positive[gone] = False


def a_count(rows: Rows) -> None:
    """A number that is 0 except for 5% of the rows, which are all positive."""
    count = np.where(rows.rng.random(N) < 0.05, rows.rng.poisson(2, N) + 1.0, 0.0)
    rows.columns["count"], rows.schema["count"] = count, {"kind": "number", "lo": 0, "hi": 20}
    rows.positive[count > 0] = True


WARDS = ("ward: b", "ward: c", "ward: d")
DESIGNS: dict[str, tuple[Callable[[Rows], None], tuple[str, ...], Cause]] = {
    "a level": (a_level, ("ward: d",), Cause.SEPARATION),
    "a common level": (a_common_level, ("ward: b",), Cause.SEPARATION),
    "the reference": (the_reference, (*WARDS, "(constant)"), Cause.SEPARATION),
    "a site": (a_site, ("(constant): west",), Cause.SEPARATION),
    "full": (full, ("age", *WARDS, "(constant)"), Cause.TABLE_UNFINISHED),
    "quasi": (quasi, ("age", "(constant)"), Cause.TABLE_UNFINISHED),
    "a combination": (a_combination, ("u: yes", "v: yes"), Cause.UNFINISHED),
    "a rare missing level": (a_rare_missing_level, ("age: missing",), Cause.SEPARATION),
    "a count": (a_count, ("count",), Cause.SEPARATION),
}
"""What is done to the rows, the lines that have no maximum, and their cause without noise."""
SIX = ("a level", "a site", "full", "quasi", "a combination", "a rare missing level")


def drawn(name: str, seed: int) -> tuple[Rows, tuple[str, ...]]:
    rows = plain(seed)
    if name in DESIGNS:
        DESIGNS[name][0](rows)
    return rows, SITES if name == "a site" else ()


def asked(
    rows: Rows, sites: tuple[str, ...], epsilon: float, seed: int, draws: int = 1
) -> tuple[Naming, Estimates]:
    """Return estimates for a number of draws of the noise."""
    naming = naming_from_schema(Schema.from_dict({"columns": rows.schema, "na": ["NA"]}), sites)
    y = np.where(rows.positive, 1.0, -1.0)
    own = [rows.site == i for i in range(4)]
    parts = [({key: column[mine] for key, column in rows.columns.items()}, y[mine]) for mine in own]
    config = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=seed, replicates=draws
    )
    loss = Weighted(Logistic()) if naming.long else Logistic()
    return naming, simulate(
        config, naming.rows_of_sites(parts), method=newton_from_naming(naming), loss=loss
    ).outcome


def shown(name: str, epsilon: float, seed: int) -> Coefficients:
    rows, sites = drawn(name, seed)
    naming, found = asked(rows, sites, epsilon, 100 + seed)
    return build_coefficient_table(found, naming, delta=1e-5)


@pytest.mark.parametrize("name", DESIGNS)
def test_separated_lines_are_refused_without_noise_and_others_printed(
    name: str,
) -> None:
    _, undetermined, cause = DESIGNS[name]
    for seed in SEEDS:
        for line in shown(name, INF, seed).lines:
            if line.term.text in undetermined:
                assert (
                    line.estimate is None
                    and line.p is None
                    and (line.low is None or line.high is None)
                )
                assert line.cause == cause.value and str(line.refused).startswith(cause.sentence)
            elif cause is not Cause.TABLE_UNFINISHED:
                assert line.refused is None and line.noise_share == 0.0


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("name", DESIGNS)
def test_separated_level_has_no_small_p_with_noise(name: str, epsilon: float) -> None:
    """A refused line has some cause; a printed one has no small p."""
    _, undetermined, _ = DESIGNS[name]
    for seed in SEEDS:
        for line in shown(name, epsilon, seed).lines:
            if line.term.text in undetermined:
                assert line.refused is not None or (line.p is not None and line.p > 0.05), (
                    seed,
                    line,
                )
                assert line.refused is None or line.cause in {cause.value for cause in Cause}


def exact(rows: Rows, levels: tuple[str, ...] = ("b", "c", "d")) -> tuple[np.ndarray, np.ndarray]:
    """Return maximum likelihood estimates for age and wards, and their standard errors."""
    marks = [rows.columns["ward"] == level for level in levels]
    A, w = (
        np.column_stack([rows.columns["age"], *marks, np.ones(N)]).astype(float),
        np.zeros(2 + len(levels)),
    )
    w[-1] = -1.0
    for _ in range(60):
        p = expit(A @ w)
        H = (A.T * (p * (1.0 - p))) @ A
        step = np.linalg.solve(H, A.T @ (rows.positive - p))
        w = w + step * min(1.0, 2.0 / float(np.abs(A @ step).max() + 1e-300))
    return w, np.sqrt(np.diag(np.linalg.inv(H)))


def few(events: int) -> Rows:
    rows = plain(7)
    own = np.flatnonzero(rows.columns["ward"] == "d")
    rows.positive[own] = False
    rows.positive[own[:events]] = True
    return rows


def strong(odds: float) -> Rows:
    rows = plain(8)
    own = rows.columns["ward"] == "b"
    log_odds = -1.0 + 0.03 * (rows.columns["age"] - 50) + math.log(odds) * own
    rows.positive[:] = rows.rng.random(N) < expit(log_odds)
    return rows


@pytest.mark.parametrize(
    "rows",
    [few(5), few(7), few(10), strong(20.0), strong(1 / 20.0)],
    ids=["5", "7", "10", "odds 20", "odds 1/20"],
)
def test_a_strong_effect_with_a_few_events_is_printed_and_agrees_with_maximum_likelihood(
    rows: Rows,
) -> None:
    naming, found = asked(rows, (), INF, 0)
    lines, (w, errors) = build_coefficient_table(found, naming).lines, exact(rows)
    assert all(line.refused is None and not line.unsure for line in lines)
    for line, best, error in zip(lines, w, errors, strict=True):
        assert line.estimate is not None and line.standard_error is not None
        assert abs(line.estimate - best) < 0.25 * error
        assert 0.9 * error < line.standard_error < 1.25 * error


def counted(
    rows: Rows, sites: tuple[str, ...], epsilon: float, draws: int = 1
) -> list[list[RarerOutcome]]:
    """Return counts for every draw of the noise: by the start, and by every later point."""
    naming, found = asked(rows, sites, epsilon, 0, draws)
    assert found.evidence is not None
    every = naming.constant / naming.value
    counts = []
    for draw in range(draws):
        seen, groups = found.evidence.of(draw), groups_of(naming, found.kept[draw])
        start, _ = at_the_start(groups, every, seen)
        counts.append([start, *(at_a_point(groups, every, seen, point) for point in seen.points)])
    return counts


def test_groups_count_their_rows_exactly_without_noise() -> None:
    """Of all rows, of every level, of the reference, and of a number by its distance from its
    bounds.
    """
    rows = plain(0)
    ward, age = rows.columns["ward"], rows.columns["age"]
    weights = [
        np.ones(N),
        *((ward == level).astype(float) for level in "bcda"),
        age / 120.0,
        1.0 - age / 120.0,
    ]
    rarer = np.array(
        [min(float(u[rows.positive].sum()), float(u[~rows.positive].sum())) for u in weights]
    )
    ((start, *points),) = counted(rows, (), INF)
    np.testing.assert_allclose(start.rows, rarer, rtol=1e-6)
    assert len(points) == 4 and np.all(start.noise == 0.0)
    for point in points:  # rows of unlike chances have more than is told
        np.testing.assert_allclose(point.rows, rarer, rtol=0.2)
        assert np.all(point.rows < 1.01 * rarer)
    of_all = together([start, *points])
    assert of_all.rows.tolist() == start.rows.tolist() and np.all(of_all.noise == 0.0)


def test_merged_level_keeps_the_precision_of_later_counts() -> None:
    """It has no rows and no noise; counts of all others are as precise as all points make them, not
    as the start alone.
    """
    start = RarerOutcome(np.array([0.0, 90.0, 7.0]), np.array([0.0, 30.0, 0.0]), np.zeros(3))
    point = RarerOutcome(np.array([0.0, 120.0, 8.0]), np.array([0.0, 10.0, 0.0]), np.zeros(3))
    found = together([start, point])
    np.testing.assert_allclose(found.rows, [0.0, 117.0, 7.0])
    np.testing.assert_allclose(found.noise, [0.0, 1.0 / math.sqrt(1.0 / 900.0 + 1.0 / 100.0), 0.0])


def test_count_of_group_without_outcome_is_zero_up_to_noise() -> None:
    """With 40 draws a deviation of 1 is known to .11, and a mean to .16; the third constant is that
    of the site.
    """
    for name, group in (("a site", 2), ("a level", 3), ("the reference", 4)):
        rows, sites = drawn(name, 0)
        every = counted(rows, sites, 10.0, draws=40)
        for k in range(5):
            far = np.array([counts[k].rows[group] / counts[k].noise[group] for counts in every])
            assert abs(np.mean(far)) < 0.8 and 0.55 < np.std(far) < 1.45, (name, k)
        far = np.array([one.rows[group] / one.noise[group] for one in map(together, every)])
        assert np.mean(far) < 0.6 and 0.55 < np.std(far) < 1.45 and np.all(far < 4.0), name


def test_a_merged_level_is_part_of_the_reference() -> None:
    naming = naming_from_schema(Schema.from_dict({"columns": {"ward": WARD}}))
    every, kept = naming.constant / naming.value, np.ones(naming.d, dtype=bool)
    whole = groups_of(naming, kept)
    rows = naming.encode_rows({"ward": np.array(list("abcd"), dtype=object)})
    np.testing.assert_allclose(rows @ every, 1.0)
    marked = rows @ whole.directions.T  # all rows, b, c, d, and the reference a
    np.testing.assert_allclose(
        marked, [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0]], atol=1e-9
    )
    kept[1] = False  # c
    merged = groups_of(naming, kept)
    np.testing.assert_allclose(
        (rows @ merged.directions.T)[:, 2:], [[0, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]], atol=1e-9
    )
    assert merged.decides[2:].tolist() == [
        [False] * 4,
        [False, False, True, False],
        [True, False, True, True],
    ]


def of_a_rare_level(positive: bool) -> list[RarerOutcome]:
    """Return counts by all points, in 24 draws of the noise: a level of 160 of 8,000 rows with 72
    of the rarer outcome, or none.
    """
    rng, names = np.random.default_rng(5), list("abcde")
    columns = {f"c{j}": {"kind": "category", "values": names} for j in range(3)}
    naming = naming_from_schema(Schema.from_dict({"columns": columns}))
    codes = np.stack(
        [rng.permutation(np.repeat(np.arange(5), (4000, 2000, 1200, 640, 160))) for _ in range(3)],
        axis=1,
    )
    y = np.where(
        rng.random(len(codes)) < expit(0.3 * (codes == 1) @ (1.0, -1.0, 1.0) - 0.4), 1.0, -1.0
    )
    level = np.flatnonzero(codes[:, 0] == 4)
    y[level] = -1.0
    y[level[:72]] = 1.0 if positive else -1.0
    text = np.array(names, dtype=object)[codes]
    parts = [
        ({f"c{j}": text[p, j] for j in range(3)}, y[p])
        for p in np.array_split(np.arange(len(y)), 4)
    ]
    config = RunConfig(method="auto", trust="sum", epsilon=3.0, delta=1e-5, seed=5, replicates=24)
    found = simulate(
        config, naming.rows_of_sites(parts), method=newton_from_naming(naming), loss=Logistic()
    ).outcome
    assert found.evidence is not None
    every, counts = naming.constant / naming.value, []
    for draw in range(24):
        seen, groups = found.evidence.of(draw), groups_of(naming, found.kept[draw])
        start, _ = at_the_start(groups, every, seen)
        of_all = together(
            [start, *(at_a_point(groups, every, seen, point) for point in seen.points)]
        )
        counts.append(RarerOutcome(*(part[4:5] for part in of_all)))
    return counts


def test_clipped_rare_level_is_counted_by_clipped_moments() -> None:
    """On average no more than its 72 events, and well above the noise; without the outcome next to
    none. With moments of unclipped rows the count would be 41, and that of none would have 1.3
    times the stated noise.
    """
    some, none = (
        [one for one in of_a_rare_level(which) if one.noise[0] > 0.0] for which in (True, False)
    )
    assert min(len(some), len(none)) > 20  # of 24: in the others the level is merged
    rows = np.array([one.rows[0] for one in some])
    assert 46.0 < rows.mean() < 76.0, rows.mean()
    assert np.mean([one.rows[0] > 3.0 * one.noise[0] for one in some]) > 0.7
    far = np.array([one.rows[0] / one.noise[0] for one in none])
    assert far.mean() < 0.3 and 0.4 < far.std() < 1.15 and np.all(far < 4.0), far


def rare(n: int = 40_000) -> tuple[Naming, Estimates]:
    """Return twelve draws of a table of weak effects with 2% events, and levels with 16 expected
    events.
    """
    rng, names = np.random.default_rng(4), list("abcde")
    columns = {f"c{j}": {"kind": "category", "values": names} for j in range(3)}
    naming = naming_from_schema(Schema.from_dict({"columns": columns}))
    codes = rng.choice(5, p=(0.5, 0.25, 0.15, 0.08, 0.02), size=(n, 3))
    y = np.where(rng.random(n) < expit(0.3 * (codes == 1) @ (1.0, -1.0, 1.0) - 3.9), 1.0, -1.0)
    text = np.array(names, dtype=object)[codes]
    parts = [
        ({f"c{j}": text[p, j] for j in range(3)}, y[p]) for p in np.array_split(np.arange(n), 4)
    ]
    config = RunConfig(method="auto", trust="sum", epsilon=1.0, delta=1e-5, seed=4, replicates=12)
    found = simulate(
        config, naming.rows_of_sites(parts), method=newton_from_naming(naming), loss=Logistic()
    ).outcome
    return naming, found


def test_level_refused_by_its_count_does_not_hide_the_size_of_other_effects() -> None:
    """Its estimate is mostly noise, and may be most of the size of all effects; it gets at most one
    end.
    """
    naming, found = rare()
    assert found.room is not None
    refused = ends = 0
    for k in range(12):
        made = build_coefficient_table(found, naming, k, 1e-5)
        refused += found.room[k] < ROOM and found.strain[k] <= SURE
        assert (
            not any(line.cause == Cause.SIZE_HIDDEN.value for line in made.lines)
            or found.room[k] < 2.0
        )
        rarest = [line for line in made.lines if line.term.level == "e"]
        assert all(line.low is None or line.high is None for line in rarest)
        ends += sum(line.one_sided == "below" for line in rarest)
    assert refused >= 2  # if all columns counted
    assert ends >= 12


def test_a_number_is_counted_from_its_bounds_whatever_its_encoding() -> None:
    """Also with a typical range and a transform.  If the rows at a bound are separated the number
    is refused, and the constant unless the bound is 0.
    """
    numbers = {
        "a": {"kind": "number", "lo": 0, "hi": 50, "to": "[0,1]"},
        "b": {"kind": "number", "lo": 20, "hi": 80, "typical": [30, 60]},
        "c": {"kind": "number", "lo": 0, "hi": 9, "transform": "log1p"},
    }
    naming = naming_from_schema(Schema.from_dict({"columns": numbers}))
    raw = {"a": np.array([0.0, 50.0]), "b": np.array([20.0, 80.0]), "c": np.array([0.0, 9.0])}
    encoded = naming.encode_rows(raw)
    np.testing.assert_allclose(naming.encoded_bounds[:3], encoded[:, :3].T, rtol=1e-9)
    groups = groups_of(naming, np.ones(4, dtype=bool))
    far = encoded @ groups.directions[1:].T  # from the lower and from the upper bound of each
    np.testing.assert_allclose(far, [[0, 1] * 3, [1, 0] * 3], atol=1e-9)
    constants = groups.decides[1:, 3]
    assert constants.tolist() == [False, True, True, True, False, True]
    assert [groups.decides[1 + k, :3].tolist() for k in (0, 2, 4)] == np.eye(3, dtype=bool).tolist()


def test_noise_share_is_one_minus_sampling_share() -> None:
    """The error of an unfinished last step counts as noise; errors that glm would have do not."""
    naming, found = asked(plain(1), (), 3.0, 1)
    made, M = build_coefficient_table(found, naming), naming.into_units
    sampling = np.einsum("ij,jk,ik->i", M, found.sampling[0], M)
    for line, own, whole in zip(made.lines, sampling, np.diag(made.covariance), strict=True):
        assert line.noise_share == pytest.approx(1.0 - own / whole) and 0.0 < own < whole
    errors = exact(plain(1))[1]
    for line, error in zip(made.lines, errors, strict=True):
        assert line.standard_error is not None and line.noise_share is not None
        alone = line.standard_error * math.sqrt(1.0 - line.noise_share)
        assert 0.6 * error < alone < 1.7 * error


SCHEMA = """
intercept = true
label = { column = "outcome", positive = "yes", negative = "no" }
na = ["NA"]
"""


def run_of(folder: Path, name: str, epsilon: float) -> tuple[dict[str, Any], str]:
    """Return the record of ``train --json``, and the page of ``--report``."""
    rows, sites = drawn(name, 0)
    columns = {key: np.asarray(column, dtype=object) for key, column in rows.columns.items()}
    where = np.array(SITES, dtype=object)[rows.site] if sites else None
    label = np.where(rows.positive, "yes", "no")
    heads = [*columns, *(["site"] if sites else []), "outcome"]
    cells = zip(*columns.values(), *([where] if sites else []), label, strict=True)
    (folder / "rows.csv").write_text(
        "\n".join([",".join(heads), *(",".join(map(str, row)) for row in cells)]) + "\n"
    )
    schema = SCHEMA + ('site = "site"\n' if sites else "")
    for key, block in rows.schema.items():
        schema += f"[columns.{key}]\n" + "".join(
            f"{k} = {json.dumps(v)}\n" for k, v in block.items()
        )
    (folder / "schema.toml").write_text(schema)
    words = [
        "train",
        "--data",
        folder / "rows.csv",
        "--schema",
        folder / "schema.toml",
        "--inference",
        "--trust",
        "sum",
    ]
    words += ["--partition", "site:site"] if sites else []
    words += ["--epsilon", epsilon, "--report", folder / "page.html", "--json"]
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), (folder / "page.html").read_text()


@pytest.mark.parametrize("epsilon", [1.0, 10.0, INF])
@pytest.mark.parametrize("name", SIX)
def test_terminal_json_and_report_tell_the_same_cause(
    name: str, epsilon: float, tmp_path: Path
) -> None:
    record, html = run_of(tmp_path, name, epsilon)
    console = Console(width=200, record=True, file=io.StringIO())
    show_coefficients(record, console)
    terminal = " ".join(console.export_text().split())
    for name_of in DESIGNS[name][1]:
        column, _, level = name_of.partition(": ")
        line = next(
            x for x in record["coefficients"] if (x["name"], x["level"] or "") == (column, level)
        )
        assert line["refused"] is not None or (line["p"] > 0.05 and line["unsure"])
    told = [
        line for line in record["coefficients"] if line["refused"] is not None or line["unsure"]
    ]
    assert told
    for line in told:
        cause = cause_of_line(line)
        if line["refused"] is not None:
            assert (
                cause is not None
                and line["cause"] == cause.value
                and line["estimate"] is None
                and line["p"] is None
            )
            assert line["refused"].startswith(cause.sentence)
        if cause is not None:
            # a sentence may begin with it
            assert cause.sentence[1:] in terminal and cause.sentence[1:] in html
    effects = [line for line in record["coefficients"] if line["name"] != "(constant)"]
    if not all_refused_by_noise(effects):
        assert "distinguished from noise" not in html


class TestCauses:
    def test_every_cause_has_its_own_sentence(self) -> None:
        assert (
            len({cause.sentence for cause in Cause})
            == len(Cause)
            == len({cause.value for cause in Cause})
        )
        assert all(
            cause.brief.startswith("as ") and not cause.sentence.endswith(".") for cause in Cause
        )

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ({"refused": None, "cause": None}, None),
            ({"refused": None, "cause": "hidden"}, Cause.HIDDEN),
            ({"refused": "so", "cause": "separation"}, Cause.SEPARATION),
            ({"refused": "so", "cause": "of a later version"}, None),
        ],
    )
    def test_a_line_has_the_cause_of_its_code(
        self, line: dict[str, Any], cause: Cause | None
    ) -> None:
        assert cause_of_line(line) is cause

    def test_noise_is_named_only_if_it_refuses_every_line(self) -> None:
        noise, other = (
            {"refused": "so", "cause": cause.value} for cause in (Cause.NOISE, Cause.SEPARATION)
        )
        assert (
            all_refused_by_noise([noise])
            and not all_refused_by_noise([noise, other])
            and not all_refused_by_noise([])
        )

    def test_refusals_are_grouped_by_cause(self) -> None:
        common = {"name": "ward", "reference": "a", "unit": None}
        lines = [
            common | {"level": "b", "refused": Cause.SEPARATION.sentence, "cause": "separation"},
            common | {"level": "c", "refused": Cause.NOISE.sentence, "cause": "noise"},
            common | {"level": "d", "refused": None, "cause": None},
        ]
        said = remarks_below_table(lines, None)
        assert (
            f"ward: b: {Cause.SEPARATION.sentence}." in said
            and f"ward: c: {Cause.NOISE.sentence}." in said
        )
        assert "ward: d" not in said

    def test_a_page_without_a_printed_line_tells_the_cause_first(self, tmp_path: Path) -> None:
        record, _ = run_of(tmp_path, "full", INF)
        text = page(record)
        assert "mostly noise" not in text and text.count("not converged") >= 2


@pytest.mark.parametrize(
    ("sd", "high", "said", "never"),
    [
        (0.0, 1.02, "from 0 to 1.02", "deviation of 0 (0"),
        (0.5, 1.5, "0.5 (0.1 to 1.5)", "from 0 to"),
        (0.0, 0.0, "closer together", "from 0 to"),
    ],
)
def test_spread_of_a_new_site_is_described_with_its_whole_interval(
    sd: float, high: float, said: str, never: str
) -> None:
    low = 0.1 if sd else 0.0
    found = {"p": 0.4, "sd": sd, "sd_ends": (low, high), "apart": 0.64}
    text = site_difference_sentences(found, True)
    assert said in text and never not in text
    odds_ratios = re.search(r"between ([\d.]+) and ([\d.]+) times", text)
    assert odds_ratios is not None and odds_ratios.groups() == ("0.527", "1.9")
    assert ("anything up to" in text) == (high > 0.0)
