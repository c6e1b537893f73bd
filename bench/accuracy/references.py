"""Levels that have no maximum, and references with few rows: what is printed of them, and how wide
the rest is.

``scripts/bench references [--quick] [--sets N] [--draws N] [--epsilons E,...] [--only
sparse,rare] [--cases PART]``

The first table is of a level whose rows have 0, 1, 3 or 5 events as expected, or no other outcome,
of the reference, and of a site.  *Two* is the share of draws in which the line has an interval of
two ends, *one* that with one end; *cover* how many of these hold the truth.  A line without a
maximum should never have two.  The true log-odds of a level without events are minus infinity, so
one end covers if it is an upper one.

The second is of a reference with few rows: the width of the contrast of two frequent levels, and of
the prediction for a row of a frequent level, over those with the most frequent level as the
reference, at the median of the draws; and how many of their intervals cover.  A width is infinite
if it is refused.  In its last lines the rare reference is *unlike* the most frequent level, and the
contrast is with that one: noise may merge the two.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.least_squares import slopes_from_naming, table_in_target_units
from sottovoce.answers.terms import Naming, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

EPSILONS = (1.0, 3.0, 10.0, math.inf)
TASK = BoundedNumber(0.0, 20.0)
AGE = {"kind": "number", "lo": 20, "hi": 80}


class Case(NamedTuple):
    """Raw columns with their schema, the outcome of every row, and the rows of each site."""

    columns: dict[str, Any]
    schema: dict[str, Any]
    outcome: np.ndarray
    parts: list[np.ndarray]
    sites: tuple[str, ...] = ()

    @property
    def naming(self) -> Naming:
        return naming_from_schema(
            Schema.from_dict({"columns": self.schema, "na": ["NA"]}), self.sites
        )


def tables(case: Case, epsilon: float, seed: int, draws: int) -> Iterator[Coefficients]:
    """The tables of several draws of the noise; without noise one."""
    naming = case.naming
    replicates = draws if math.isfinite(epsilon) else 1
    config = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=seed, replicates=replicates
    )
    raw = [{name: column[part] for name, column in case.columns.items()} for part in case.parts]
    if case.outcome.dtype == bool:
        signs = [np.where(case.outcome[part], 1.0, -1.0) for part in case.parts]
        rows = naming.rows_of_sites(list(zip(raw, signs, strict=True)))
        logistic = Weighted(Logistic()) if naming.long else Logistic()
        found = simulate(config, rows, method=newton_from_naming(naming), loss=logistic).outcome
        for replicate in range(replicates):
            yield build_coefficient_table(found, naming, replicate, 1e-5)
        return
    rows = naming.rows_of_sites(
        [(one, np.ones(len(part))) for one, part in zip(raw, case.parts, strict=True)]
    )
    rows = rows.with_offset([TASK.encode(case.outcome[part]) for part in case.parts])
    squared = Weighted(HuberResidual(1.0)) if naming.long else HuberResidual(1.0)
    for replicate in range(replicates):
        own = RunConfig(
            method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=seed + 7919 * replicate
        )
        yield table_in_target_units(
            simulate(own, rows, method=slopes_from_naming(naming), loss=squared).outcome,
            naming,
            TASK,
            1e-5,
        )


def thirds(n: int) -> list[np.ndarray]:
    """Rows of three sites."""
    return np.array_split(np.arange(n), 3)


# What has no maximum


@dataclass(frozen=True)
class Sparse:
    """A level, `ward` d unless said, with an expected number of rows of the rarer outcome."""

    name: str
    line: str
    rarer: float
    positive: bool = True  # whether events are the rarer outcome
    n: int = 8_000
    share: float = 0.1

    def draw(self, seed: int) -> tuple[Case, float]:
        """Rows, and the true value of the line."""
        rng = np.random.default_rng(seed)
        age = rng.uniform(20.0, 80.0, self.n)
        ward = rng.choice(4, size=self.n, p=[0.4, 0.5 - self.share, 0.1, self.share])
        site = np.arange(self.n) % 4
        base = -1.0 + 0.02 * (age - 50.0)
        if self.line.startswith("("):
            group = site == 3
        elif self.line == "ward: b":
            group = ward == 0
        else:
            group = ward == 3
        shift = -math.inf
        if self.rarer > 0.0:
            shift = _shift(base[group] if self.positive else -base[group], self.rarer)
        chance = expit(base)
        own = expit((base if self.positive else -base) + shift)
        chance = np.where(group, own if self.positive else 1.0 - own, chance)
        truth = shift if self.positive else -shift
        if self.line == "ward: b":
            truth = -truth  # of b against the reference
        if self.line.startswith("("):
            truth -= 2.0  # of a row of age 0
        columns = {"age": age, "ward": np.array(list("abcd"), dtype=object)[ward]}
        schema = {"age": AGE, "ward": {"kind": "category", "values": list("abcd")}}
        sites = ("1", "2", "3", "4") if self.line.startswith("(") else ()
        parts = [np.flatnonzero(site == k) for k in range(4)]
        return Case(columns, schema, rng.random(self.n) < chance, parts, sites), truth


def _shift(base: np.ndarray, rarer: float) -> float:
    """What to add to log-odds for a mean number of events."""
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(base + middle).sum() < rarer else (low, middle)
    return low


SPARSE = (
    *(Sparse(f"a level, {k} events", "ward: d", k) for k in (0, 1, 3, 5, 10, 40)),
    Sparse("a level, no other outcome", "ward: d", 0, False),
    Sparse("a level, 3 of the other", "ward: d", 3, False),
    Sparse("a rare level, 0 events", "ward: d", 0, share=0.02),
    Sparse("a rare level, 3 events", "ward: d", 3, share=0.02),
    Sparse("the reference, 0 events", "ward: b", 0),
    Sparse("the reference, no other", "ward: b", 0, False),
    Sparse("a site, 0 events", "(constant): 4", 0),
    Sparse("a site, 3 events", "(constant): 4", 3),
)


def judged(case: Sparse, epsilon: float, sets: int, draws: int) -> dict[str, Any]:
    """Shares of draws with two ends and with one, and how many of each cover."""
    two, one, refused = list[bool](), list[bool](), 0
    for seed in range(sets if math.isfinite(epsilon) else sets * max(1, draws // 4)):
        rows, truth = case.draw(seed)
        for made in tables(rows, epsilon, 1000 + seed, draws):
            line = next(x for x in made.lines if x.term.text == case.line)
            if line.low is None and line.high is None:
                refused += 1
                continue
            low, high = (
                (-math.inf if line.low is None else line.low),
                (math.inf if line.high is None else line.high),
            )
            (one if line.one_sided else two).append(low <= truth <= high)
    every = len(two) + len(one) + refused
    return {
        "case": case.name,
        "epsilon": epsilon,
        "draws": every,
        "two": len(two) / every,
        "one": len(one) / every,
        "cover two": np.mean(two) if two else math.nan,
        "cover one": np.mean(one) if one else math.nan,
        "no maximum": case.rarer == 0,
    }


# References with few rows


@dataclass(frozen=True)
class Rare:
    """A block of which one value has few rows.

    Its log-odds are `unlike` those of the most frequent one.  The contrast is that of the two
    others, or with the most frequent one, with which noise may merge the rare one.
    """

    name: str
    kind: str  # "category", "bins", "missing" or "site"
    share: float
    numbers: bool = False
    n: int = 20_000
    unlike: float = 0.5
    with_most: bool = False

    def draw(self, seed: int, best: bool) -> tuple[Case, dict[str, float], float]:
        """Rows with the rare reference or the best one, and the contrast of two frequent levels
        with its truth.
        """
        rng = np.random.default_rng(seed)
        rest = 1.0 - self.share
        level = rng.choice(4, size=self.n, p=[self.share, 0.5 * rest, 0.3 * rest, 0.2 * rest])
        age = rng.uniform(20.0, 80.0, self.n)
        effect = np.array([self.unlike, 0.0, -0.1, 0.2])[level]
        score = 0.02 * (age - 50.0) + effect
        outcome = (
            10.0 + 3.0 * score + rng.normal(0.0, 2.0, self.n)
            if self.numbers
            else rng.random(self.n) < expit(score - 0.3)
        )
        weights, truth = {"x: c": 1.0, "x: d": -1.0}, -0.3
        if self.with_most:
            weights, truth = {"x: c": 1.0} | ({} if best else {"x: b": -1.0}), -0.1
        sites, parts = (), thirds(self.n)
        if self.kind == "bins":
            column: Any = level + 0.5
            block: dict[str, Any] = {
                "kind": "bins",
                "edges": [0, 1, 2, 3, 4],
                "base": 1 if best else 0,
            }
            weights = {}
        elif self.kind == "site":
            column, block = level, {}
            parts = [np.flatnonzero(level == k) for k in range(4)]
            sites, weights = ("a", "b", "c", "d"), {"(constant): c": 1.0, "(constant): d": -1.0}
        else:
            column = np.array(list("abcd"), dtype=object)[level]
            block = {"kind": "category", "values": list("abcd"), "base": "b" if best else "a"}
        schema = {"age": AGE} | ({"x": block} if block else {})
        columns = {"age": age} | ({"x": column} if block else {})
        return (
            Case(columns, schema, outcome, parts, sites),
            weights,
            truth * (3.0 if self.numbers else 1.0),
        )


RARE = tuple(
    Rare(f"{kind}, {share:.1%}{', numbers' if numbers else ''}", kind, share, numbers)
    for numbers in (False, True)
    for kind, share in (
        ("category", 0.0),
        ("category", 0.005),
        ("category", 0.02),
        ("bins", 0.005),
        ("site", 0.005),
    )
) + tuple(
    Rare(f"unlike by {unlike:g}, {share:.1%}", "category", share, unlike=unlike, with_most=True)
    for share in (0.005, 0.01)
    for unlike in (0.5, -2.5, 2.5)
)


def spans(
    made: Coefficients, case: Case, weights: dict[str, float], truth: float
) -> tuple[float, float, bool]:
    """Widths of the contrast and of a prediction for a row of the second most frequent level;
    whether it covers.
    """
    names = [line.term.text for line in made.lines]
    if not weights:
        c, d = [k for k, line in enumerate(made.lines) if line.term.name == "x"][-2:]
        weights = {names[c]: 1.0, names[d]: -1.0}
    every = np.zeros((2, len(names)))
    for name, weight in weights.items():
        every[0, names.index(name)] = weight
    row = {name: column[case.parts[-1][:1]] for name, column in case.columns.items()} | {
        "age": np.array([40.0])
    }
    if "x" in row:
        row["x"] = (
            np.array(["c"], dtype=object) if isinstance(row["x"][0], str) else np.array([2.5])
        )
    naming = case.naming
    X = naming.encode_rows(row, case.sites.index("c") if case.sites else None)
    every[1] = np.linalg.solve(naming.into_units.T, X[0])
    every[np.abs(every) < 1e-12] = 0.0
    (low, high), (least, most) = made.sums(every)
    wide = [math.inf if math.isnan(x) else x for x in (high - low, most - least)]
    return wide[0], wide[1], bool(low <= truth <= high)


def compared(rare: Rare, epsilon: float, sets: int, draws: int) -> dict[str, Any]:
    """Widths with the rare reference over those with the best one."""
    found: dict[bool, list[tuple[float, float, bool]]] = {False: [], True: []}
    for seed in range(sets):
        for best in (False, True):
            case, weights, truth = rare.draw(seed, best)
            if best and rare.kind == "site":  # without the tiny site
                case = case._replace(parts=case.parts[1:], sites=case.sites[1:])
            found[best] += [
                spans(made, case, weights, truth)
                for made in tables(case, epsilon, 2000 + seed, draws)
            ]
    middle = {
        best: np.median(np.array(every, dtype=float), axis=0) for best, every in found.items()
    }
    covered = [one[2] for one in found[False] if math.isfinite(one[0])]
    with np.errstate(invalid="ignore"):
        ratio = middle[False] / middle[True]
    return {
        "case": rare.name,
        "epsilon": epsilon,
        "draws": len(found[False]),
        "contrast": ratio[0],
        "prediction": ratio[1],
        "cover": np.mean(covered) if covered else math.nan,
        "printed": len(covered) / len(found[False]),
    }


def show(lines: Iterator[dict[str, Any]]) -> None:
    """A table as text, line by line."""
    for k, line in enumerate(lines):
        keys = [key for key in line if key != "no maximum"]
        if k == 0:
            print("  ".join(f"{key:>10}" if key != "case" else f"{key:<28}" for key in keys))
        cells = (f"{line[key]:>10.3g}" if key != "case" else f"{line[key]:<28}" for key in keys)
        print("  ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few draws")
    parser.add_argument("--draws", type=int, default=40, help="of the noise, for each data set")
    parser.add_argument(
        "--sets", type=int, default=10, help="data sets; the second table has a third of them"
    )
    parser.add_argument("--cases", default="", help="only cases whose names hold this")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--only", default="sparse,rare", help="tables to compute")
    asked = parser.parse_args()
    sets, draws = (2, 5) if asked.quick else (asked.sets, asked.draws)
    epsilons = [float(x) for x in asked.epsilons.split(",")]
    if "sparse" in asked.only:
        sparse = [case for case in SPARSE if asked.cases in case.name]
        show(judged(case, epsilon, sets, draws) for case in sparse for epsilon in epsilons)
        print()
    if "rare" in asked.only:
        show(
            compared(rare, epsilon, max(1, sets // 3), max(3, draws // 2))
            for rare in RARE
            if asked.cases in rare.name
            for epsilon in epsilons
        )


if __name__ == "__main__":
    main()
