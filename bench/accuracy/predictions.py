"""Intervals of predictions, for rows of known sites and of a new one: whether they cover, and how
wide they are.

``scripts/bench predictions [--sets N] [--quick] [--json] [--only predictions,between]``

Six sites with constants of their own, drawn from a normal population, so unlike that their share of
positives runs from about a tenth to nine tenths; 2,000 rows each, or as unequal as 600 to 4,800.
Every set has sites, rows and noise of its own.  *Known*: the truth is what the model says on
average of rows like these at a site that took part, in log-odds or in the number's unit.  *New*:
the same at one more site of the population; of it the chance is computed, and not drawn.  *Width*
is the median of what is not refused.  *Without the spread* is what a new site's rows would have if
its constant were the average of the six, as a check that the bench sees it.

The second table is of ``between_sites``: sites of a normal population with a deviation of .4 in
log-odds, of which some have few events.  *Told* is the share of sets in which mean and deviation
are told, and the next columns how many of their intervals cover.  *Of the printed* is the mean of
the sites whose constant is printed, wherever there are three: what it would be if the others were
left out.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from sottovoce.answers.between import FEWEST, estimate_random_effects
from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.fits import Fit, Layout, LogOdds, Numbers
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.own_site import AVERAGE
from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_from_columns
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SITES = ("a", "b", "c", "d", "e", "f")
EQUAL, UNEQUAL = (2000,) * 6, (4800, 2400, 1800, 1400, 1000, 600)
EPSILONS = (1.0, 3.0, 10.0, math.inf)
SLOPES, LEVELS = (1.0, -0.5), (0.0, 0.4, -0.3)
NUMBER = BoundedNumber(-30.0, 30.0)
MEAN, SPREAD = {"classes": -0.3, "numbers": 1.0}, {"classes": 1.2, "numbers": 3.0}
SCHEMA = Schema.from_dict(
    {
        "name": "clinic",
        "site": "site",
        "label": {"column": "y", "positive": "yes", "negative": "no"},
        "columns": {
            "u": {"kind": "number", "lo": -2.0, "hi": 2.0},
            "v": {"kind": "number", "lo": -2.0, "hi": 2.0},
            "w": {"kind": "category", "values": ["lo", "mid", "hi"]},
        },
    }
)
ROWS = 40  # of which predictions are asked


class Drawn(NamedTuple):
    """Rows without a site, and what the model says of them beyond their site's constant."""

    columns: dict[str, Any]
    fixed: np.ndarray


def rows(n: int, rng: np.random.Generator) -> Drawn:
    """Rows of a site."""
    level = rng.integers(3, size=n)
    u, v = (np.clip(rng.normal(size=n), -2.0, 2.0) for _ in range(2))
    names = np.array(["lo", "mid", "hi"], dtype=object)
    fixed = SLOPES[0] * u + SLOPES[1] * v + np.array(LEVELS)[level]
    return Drawn({"u": u, "v": v, "w": names[level]}, fixed)


def model(
    kind: str, sizes: tuple[int, ...], epsilon: float, seed: int
) -> tuple[SavedModel, np.ndarray]:
    """A model of one set, and its sites' true constants."""
    rng = np.random.default_rng(seed)
    constants = MEAN[kind] + SPREAD[kind] * rng.normal(size=len(sizes))
    made = [rows(n, rng) for n in sizes]
    scores = [one.fixed + constant for one, constant in zip(made, constants, strict=True)]
    layout = Layout.from_schema(SCHEMA, [], 1.0, sizes, SITES, "site")
    tables = [one.columns for one in made]
    fit: Fit
    if kind == "classes":
        fit = LogOdds(layout)
        labels = [np.where(rng.random(len(z)) < expit(z), 1.0, -1.0) for z in scores]
        asked = fit.encode_rows(tables, labels)
    else:
        fit = Numbers(layout, task=NUMBER, intervals=True)
        asked = fit.encode_rows(
            tables, [NUMBER.encode(z + 2.0 * rng.normal(size=len(z))) for z in scores]
        )
    config = RunConfig("auto", epsilon, 1e-5, trust="sum", seed=seed)
    result = simulate(config, asked, method=fit.recipe, loss=fit.loss)
    found = fit.read_outcome(result.outcome, config.delta)
    return layout.to_saved_model(found.model, SCHEMA, found.plain), constants


def cell(kind: str, sizes: tuple[int, ...], epsilon: float, sets: int) -> dict[str, Any]:
    """Coverage and widths over sets of sites, rows and noise."""
    known, new, narrow = list[float](), list[float](), list[float]()
    of_known, of_new, refused = list[float](), list[float](), list[float]()
    for seed in range(sets):
        saved, constants = model(kind, sizes, epsilon, 1000 + seed)
        drawn = rows(ROWS, np.random.default_rng(seed))
        at = np.arange(ROWS) % len(sizes)
        ends, truth = saved.intervals(drawn.columns, where=at), drawn.fixed + constants[at]
        refused.append(float(np.mean(np.isnan(ends[:, 0]))))
        shown = ~np.isnan(ends[:, 0])
        if shown.any():
            known.append(
                float(np.mean((ends[shown, 0] <= truth[shown]) & (truth[shown] <= ends[shown, 1])))
            )
            of_known.append(float(np.median(ends[shown, 1] - ends[shown, 0])))
        ends = saved.intervals(drawn.columns, where=np.full(ROWS, AVERAGE))
        if np.isnan(ends).any():
            continue
        new.append(chance(ends, drawn.fixed, kind))
        of_new.append(float(np.median(ends[:, 1] - ends[:, 0])))
        alone = saved.table.sums(average_weights(saved, drawn), 0.05)
        narrow.append(chance(alone, drawn.fixed, kind))
    told = {"known": known, "new": new, "without": narrow}
    plain = {name: float(np.mean(found)) if found else None for name, found in told.items()}
    errors = {
        f"{n}_error": float(np.std(x) / math.sqrt(len(x))) if x else None for n, x in told.items()
    }
    widths = {
        "width_known": float(np.median(of_known)) if of_known else None,
        "width_new": float(np.median(of_new)) if of_new else None,
    }
    names = {
        "kind": kind,
        "sizes": "equal" if sizes == EQUAL else "unequal",
        "epsilon": epsilon,
        "sets": sets,
    }
    return (
        names
        | plain
        | errors
        | widths
        | {"refused": float(np.mean(refused)), "printed_new": len(new) / sets}
    )


def average_weights(saved: SavedModel, drawn: Drawn) -> np.ndarray:
    """The table's weights in what the model says of rows with the average constant."""
    naming = saved.naming
    assert naming is not None
    X = naming.encode_with_one_constant(drawn.columns)
    own = np.tile(naming.value * saved.shares, (len(X), 1))
    return np.linalg.solve(naming.into_units.T, np.hstack([X[:, :-1], own]).T).T


def chance(ends: np.ndarray, fixed: np.ndarray, kind: str) -> float:
    """The chance that one more site's rows lie within, on average over rows."""
    z = (ends - fixed[:, None] - MEAN[kind]) / SPREAD[kind]
    return float(np.mean(ndtr(z[:, 1]) - ndtr(z[:, 0])))


class Population(NamedTuple):
    """Sites of one size, and the mean of their constants in log-odds."""

    sites: int
    rows: int
    mean: float
    epsilon: float

    @property
    def name(self) -> str:
        events = 100.0 * expit(self.mean)
        return f"{self.sites} sites of {self.rows:,}, {events:.1f}%, epsilon {self.epsilon:g}"


POPULATIONS = (
    *(Population(12, 400, -4.3, epsilon) for epsilon in (10.0, math.inf)),
    *(Population(12, 400, -3.5, epsilon) for epsilon in (10.0, math.inf)),
    *(Population(12, 400, -3.0, epsilon) for epsilon in (10.0, math.inf)),
    *(Population(12, 1_000, -2.0, epsilon) for epsilon in (3.0, 10.0)),
    Population(30, 200, -1.0, 10.0),
)
BETWEEN = 0.4


def table_of(asked: Population, seed: int) -> Coefficients:
    """The table of one set of sites, rows and noise."""
    rng = np.random.default_rng([seed, asked.sites, asked.rows, round(-100 * asked.mean)])
    names = [f"s{i}" for i in range(asked.sites)]
    naming = naming_from_columns(["u", "v"], 2.5, names)
    parts = []
    for constant in asked.mean + BETWEEN * rng.normal(size=asked.sites):
        X = rng.normal(size=(asked.rows, 2))
        chance = expit(constant + X @ [0.5, -0.3])
        parts.append((X, np.where(rng.random(asked.rows) < chance, 1.0, -1.0)))
    config = RunConfig("auto", asked.epsilon, 1e-5, trust="sum", seed=seed)
    encoded = naming.rows_of_sites(parts)
    loss = Weighted(Logistic()) if naming.long else Logistic()
    found = simulate(config, encoded, method=newton_from_naming(naming), loss=loss).outcome
    return build_coefficient_table(found, naming, 0, config.delta)


def between(asked: Population, sets: int) -> dict[str, Any]:
    """How often mean and deviation of the population are told, and cover."""
    told, mean, sd, of_printed = 0, list[bool](), list[bool](), list[bool]()
    for seed in range(sets):
        table = table_of(asked, seed)
        # What the mean would be if sites that are refused were left out.
        left = replace(table, all_sites=None).site_constants
        if left.count >= FEWEST:
            part = estimate_random_effects(left.effects, left.covariance, 0.05)
            of_printed.append(part.mean_ends[0] <= asked.mean <= part.mean_ends[1])
        if table.site_constants.unknown_spread_reason is None:
            told += 1
            found = table.between_sites()
            mean.append(found.mean_ends[0] <= asked.mean <= found.mean_ends[1])
            sd.append(found.sd_ends[0] <= BETWEEN <= found.sd_ends[1])
    return {
        "population": asked.name,
        "sets": sets,
        "told": told / sets,
        "mean": float(np.mean(mean)) if mean else None,
        "deviation": float(np.mean(sd)) if sd else None,
        "three printed": len(of_printed) / sets,
        "of the printed": float(np.mean(of_printed)) if of_printed else None,
    }


def show_between(one: dict[str, Any], *, first: bool) -> None:
    """Print a line of the second table."""
    keys = [key for key in one if key not in ("population", "sets")]
    if first:
        print(f"{'':36}{'sets':>6}" + "".join(f"{key:>16}" for key in keys))
    cells = (f"{'-':>16}" if one[key] is None else f"{100 * one[key]:15.1f}%" for key in keys)
    print(f"{one['population']:36}{one['sets']:6d}{''.join(cells)}", flush=True)


def main() -> None:
    """Print two tables, or their cells as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="two sets, at one epsilon")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="predictions,between", help="tables to compute")
    options = parser.parse_args()
    sets, epsilons = (2, (10.0,)) if options.quick else (options.sets, EPSILONS)
    found, populations = [], []
    kinds = ("classes", "numbers") if "predictions" in options.only else ()
    for kind in kinds:
        for sizes in (EQUAL, UNEQUAL):
            for epsilon in epsilons:
                found.append(cell(kind, sizes, epsilon, sets))
                if not options.json:
                    show(found[-1], first=len(found) == 1)
    for asked in POPULATIONS if "between" in options.only else ():
        populations.append(between(asked, sets))
        if not options.json:
            show_between(populations[-1], first=len(populations) == 1)
    if options.json:
        json.dump({"cells": found, "between": populations}, sys.stdout)


def show(one: dict[str, Any], *, first: bool) -> None:
    """Print a line of the table."""
    if first:
        print(
            f"{'':22}{'known':>14}{'width':>8}{'new':>14}{'width':>8}{'without the spread':>20}{'refused':>9}"
        )
    head = f"{one['kind']}, {one['sizes']}, {one['epsilon']:g}"
    known, new, without = (share(one, name) for name in ("known", "new", "without"))
    widths = [
        f"{one[name]:8.3f}" if one[name] is not None else f"{'-':>8}"
        for name in ("width_known", "width_new")
    ]
    print(
        f"{head:22}{known}{widths[0]}{new}{widths[1]}{without:>20}{100 * one['refused']:8.1f}%",
        flush=True,
    )


def share(one: dict[str, Any], name: str) -> str:
    """A coverage with its standard error, in percent."""
    if one[name] is None:
        return f"{'-':>14}"
    return f"{100 * one[name]:7.1f} ({100 * one[name + '_error']:.1f})".rjust(14)


if __name__ == "__main__":
    main()
