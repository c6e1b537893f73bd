"""Which coefficients get an interval, and how wide: real tables at three budgets, and designs that
are named.

``scripts/bench intervals [--draws N] [--tables a,b] [--real] [--designs] [--quick] [--json FILE]
[--write FILE]``

Of a real table all rows are used, dealt to five sites at random, under the schema of its
documentation; every draw has noise of its own.  *Width* is a printed standard error over that of
the weighted maximum likelihood of the same rows without privacy (its sandwich), at the median.  The
*floor* is what one gradient with the whole budget, and the Hessian known, would give: the same
ratio for all coefficients, at the median.  *Within reach* are coefficients for which that noise is
at most 1.5 sampling errors; of these at least 80% should be printed.  *Held* is the share of
printed intervals that hold the maximum likelihood: they allow for sampling that is not there, so it
is above 95% unless noise is most of the width.  Of a design every draw has rows of its own, and
intervals should hold the truth in 95%.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _tables_data import SCHEMAS, default_folder, make
from coverage import Drawn, levels, lognormal, numbers, split
from scipy.special import expit

from sottovoce import data
from sottovoce.answers.coefficients import Coefficients, build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import Naming, naming_from_schema, rows_of_columns
from sottovoce.data.schema import Schema
from sottovoce.deploy.demonstration import FEW
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.util import files

SITES, DELTA, EPSILONS, REACH = 5, 1e-5, (1.0, 3.0, 10.0), 1.5
TRUSTS = {"nobody": float(SITES), "sum": SITES / (SITES - 1.0), "curator": 1.0}
"""The noise's variance over a curator's."""
TABLES = (
    "cps91",
    "fair",
    "loanapp",
    "crime1",
    "magic",
    "randhie",
    "diamonds",
    "anes96",
    "phishing",
    "adult, 7",
    "adult",
)
Parts = list[tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class Loaded:
    """A table at its sites, with its maximum likelihood in the users' units and what that is
    sure of.
    """

    naming: Naming
    parts: Parts
    exact: np.ndarray
    error: np.ndarray  # sampling error, a sandwich
    per_noise: np.ndarray  # error by noise of deviation 1 in a mean gradient
    rows: int


def fitted(naming: Naming, parts: Parts) -> Loaded:
    """Newton's method on the rows as the table weighs them."""
    E = np.concatenate([naming.encode_rows(one, i) for i, (one, _) in enumerate(parts)])
    y = np.concatenate([labels for _, labels in parts])
    weight = np.abs(y) / np.maximum(1.0, np.sum(E**2, axis=1))
    w = np.zeros(E.shape[1])
    for _ in range(200):
        p = expit(E @ w)
        H = (E.T * (weight * p * (1.0 - p))) @ E
        step = np.linalg.solve(H, E.T @ (weight * ((y > 0) - p)))
        w = w + step * min(1.0, 3.0 / max(1e-300, float(np.abs(E @ step).max())))
    assert float(np.abs(E @ step).max()) < 1e-6, "the maximum likelihood is at infinity"
    p, inverse, M = expit(E @ w), np.linalg.inv(H), naming.into_units
    slope = weight * ((y > 0) - p)
    covariance = inverse @ ((E.T * slope**2) @ E) @ inverse
    error, alone = (
        np.sqrt(np.einsum("ij,jk,ik->i", M, C, M))
        for C in (covariance, inverse @ inverse * len(y) ** 2)
    )
    return Loaded(naming, parts, M @ w, error, alone, len(y))


def read(folder: Path, name: str) -> Loaded:
    """A table with all of its rows."""
    if name == "adult, 7":
        schema, dataset = Schema.from_dict(FEW), data.load("adult", schema=FEW)
    elif name == "adult":
        schema, dataset = data.builtin_schema("adult"), data.load("adult")
    else:
        if not (folder / "raw" / f"{name}.csv").exists():
            make(folder, [name])
        dataset = data.load(
            folder / "raw" / f"{name}.csv", schema=SCHEMAS / f"{name}.toml", test_share=None
        )
        assert dataset.schema is not None
        schema = dataset.schema
    y, deal = dataset.y_train, np.random.default_rng(0).permutation(len(dataset.y_train))
    parts = [(rows_of_columns(dataset.train_columns, p), y[p]) for p in np.array_split(deal, SITES)]
    return fitted(naming_from_schema(schema), parts)


def asked_of(
    naming: Naming, parts: Parts, trust: str, epsilon: float, seed: int, draws: int
) -> list[Coefficients]:
    """The tables of coefficients that the recipe gives, one a draw of the noise."""
    if trust == "curator":
        whole = {key: np.concatenate([one[key] for one, _ in parts]) for key in parts[0][0]}
        parts, trust = [(whole, np.concatenate([y for _, y in parts]))], "nobody"
    loss = Weighted(Logistic()) if naming.long else Logistic()
    config = RunConfig(
        method="auto", trust=trust, epsilon=epsilon, delta=DELTA, seed=seed, replicates=draws
    )
    found = simulate(
        config, naming.rows_of_sites(parts), method=newton_from_naming(naming), loss=loss
    ).outcome
    return [build_coefficient_table(found, naming, r, DELTA) for r in range(draws)]


def judged(
    tables: list[Coefficients], truth: np.ndarray, errors: list[np.ndarray]
) -> dict[str, Any]:
    """Printed, width and held of some tables, and the coefficient that is held least if it is
    printed ten times.
    """
    shown = [[line.refused is None for line in one.lines] for one in tables]
    found = {"printed": float(np.mean(shown)), "width": None, "held": None, "worst": None}
    if not np.any(shown):
        return found
    width, held = list[float](), [list[bool]() for _ in truth]
    for one, error in zip(tables, errors, strict=True):
        for k, line in enumerate(one.lines):
            if line.low is not None and line.high is not None and line.standard_error is not None:
                width.append(line.standard_error / error[k])
                held[k].append(bool(line.low <= truth[k] <= line.high))
    often = [float(np.mean(column)) for column in held if len(column) >= 10]
    every = float(np.mean([x for column in held for x in column]))
    return found | {
        "width": float(np.median(width)),
        "held": every,
        "worst": min(often, default=None),
    }


def hidden(one: Loaded, trust: str, epsilon: float) -> np.ndarray:
    """Noise of one gradient with the whole budget, the Hessian known, in sampling errors of each
    coefficient.
    """
    shift = 2.0 * np.sqrt(TRUSTS[trust]) / one.rows
    return np.asarray(shift / gaussian_mu(epsilon, DELTA) * one.per_noise / one.error)


def real(name: str, one: Loaded, trust: str, epsilon: float, draws: int) -> dict[str, Any]:
    """A line of the table of real tables."""
    noise = hidden(one, trust, epsilon)
    tables = asked_of(one.naming, one.parts, trust, epsilon, 0, draws)
    near = noise <= REACH
    shown = np.array(
        [[line.refused is None for line in lines] for lines in (t.lines for t in tables)]
    )
    return {
        "table": name,
        "rows": one.rows,
        "coefficients": len(one.exact),
        "trust": trust,
        "epsilon": epsilon,
        **judged(tables, one.exact, [one.error] * draws),
        "floor": float(np.median(np.sqrt(1.0 + noise**2))),
        "within": int(near.sum()),
        "printed_within": float(shown[:, near].mean()) if near.any() else None,
    }


def yes_no(x: np.ndarray) -> np.ndarray:
    return np.where(x, 1.0, 0.0)


def hospitals(n: int, rng: np.random.Generator) -> Drawn:
    """Admissions: age, days, two laboratory values, earlier stays, and four yes or no."""
    age, days = rng.normal(64, 16, n).clip(18, 100), rng.gamma(1.5, 3.0, n).clip(0, 60)
    creatinine, sodium = (
        rng.lognormal(0.1, 0.45, n).clip(0, 15),
        rng.normal(138, 4, n).clip(110, 170),
    )
    before = rng.poisson(0.9, n).clip(0, 20).astype(float)
    flags = [yes_no(rng.random(n) < share) for share in (0.48, 0.3, 0.22, 0.1)]
    names = ("age", "days", "creatinine", "sodium", "before", "sex", "diabetes", "heart", "alone")
    bounds = ((18, 100), (0, 60), (0, 15), (110, 170), (0, 20), *[(0, 1)] * 4)
    constant = -1.4 - 0.02 * 64.0 - 0.05 * 4.5 - 0.3 * 1.2 + 0.04 * 138.0 - 0.35 * 0.9
    beta = np.array([0.02, 0.05, 0.3, -0.04, 0.35, 0.1, 0.25, 0.4, 0.3])
    return declared(
        names,
        bounds,
        np.stack([age, days, creatinine, sodium, before, *flags], axis=1),
        beta,
        constant,
        rng,
    )


def justice(n: int, rng: np.random.Generator) -> Drawn:
    """People charged: age, six skewed counts, and twelve yes or no of unequal shares."""
    age = rng.gamma(3.0, 5.0, n) + 18
    counts = [rng.negative_binomial(0.6, 0.6 / (0.6 + mean), n) for mean in (3.2, 0.07, 0.09, 0.11)]
    waits = [rng.lognormal(2.0, 1.2, n), rng.lognormal(1.0, 1.0, n)]
    shares = (0.8, 0.64, 0.5, 0.34, 0.25, 0.18, 0.12, 0.09, 0.06, 0.05, 0.04, 0.03)
    flags = [yes_no(rng.random(n) < share) for share in shares]
    bounds = ((18, 96), (0, 40), (0, 20), (0, 13), (0, 17), (0, 800), (0, 365), *[(0, 1)] * 12)
    beta = np.array([-0.04, 0.12, 0.2, 0.2, 0.2, 0.002, 0.004, *([0.3, -0.2, 0.1, 0.4] * 3)])
    names = [f"x{j}" for j in range(19)]
    return declared(names, bounds, np.stack([age, *counts, *waits, *flags], axis=1), beta, 0.2, rng)


def declared(
    names: Any,
    bounds: Any,
    X: np.ndarray,
    beta: np.ndarray,
    constant: float,
    rng: np.random.Generator,
) -> Drawn:
    """Numbers under declared bounds, with a logistic truth."""
    X = np.clip(X, *np.array(bounds, dtype=float).T)
    columns = {
        name: {"kind": "number", "lo": lo, "hi": hi}
        for name, (lo, hi) in zip(names, bounds, strict=True)
    }
    naming = naming_from_schema(
        Schema.from_dict({"columns": columns, "name": "declared", "intercept": True})
    )
    y = np.where(rng.random(len(X)) < expit(X @ beta + constant), 1.0, -1.0)
    parts = [({name: X[p, j] for j, name in enumerate(names)}, y[p]) for p in split(len(X))]
    return Drawn(naming, parts, np.append(beta, constant), X)


def large(n: int, rng: np.random.Generator) -> Drawn:
    """Normal columns with effects of 2, -1.33, 0, 1 and -.67."""
    X = rng.normal(size=(n, 5))
    plain = numbers(10, rng)
    beta = plain.truth[:-1] / 0.3
    y = np.where(rng.random(n) < expit(X @ beta - 0.8), 1.0, -1.0)
    return Drawn(plain.naming, [(X[p], y[p]) for p in split(n)], np.append(beta, -0.8), X)


def shipped(n: int, rng: np.random.Generator) -> Drawn:
    """Adult under its shipped schema; its maximum likelihood stands for the truth."""
    one = read(default_folder(), "adult")
    return Drawn(one.naming, one.parts, one.exact, np.empty(0))


@dataclass(frozen=True)
class Named:
    """A design with a goal: the share that should be printed, and the greatest width."""

    name: str
    draw: Callable[[int, np.random.Generator], Drawn]
    n: int
    epsilon: float
    goal: float
    width: float | None = None


NAMED = (
    *(
        Named("hospitals-like", hospitals, 8_000, e, goal)
        for e, goal in ((1.0, 0.3), (2.0, 0.6), (3.0, 0.9))
    ),
    *(Named("justice-like", justice, 7_200, e, goal) for e, goal in ((3.0, 0.2), (10.0, 0.95))),
    Named("ten blocks of five levels", partial(levels, blocks=10), 40_000, 3.0, 0.95),
    Named("lognormal, wide bounds", lognormal, 6_000, 10.0, 0.95),
    Named("large effects", large, 1_000_000, 3.0, 1.0, 1.05),
    Named("Adult's shipped schema", shipped, 40_000, 30.0, 1.0),
)


def named(one: Named, draws: int) -> dict[str, Any]:
    """A line of the table of designs: sums, rows and noise anew for every draw."""
    tables, errors, noises, truth = (
        list[Coefficients](),
        list[np.ndarray](),
        list[np.ndarray](),
        np.empty(0),
    )
    for seed in range(draws if one.n < 1_000_000 else min(draws, 3)):
        found = one.draw(one.n, np.random.default_rng([35, seed]))
        truth = found.truth
        tables += asked_of(found.naming, found.parts, "sum", one.epsilon, seed, 1)
        exact = fitted(found.naming, found.parts)
        errors.append(exact.error)
        noises.append(hidden(exact, "sum", one.epsilon))
    return {
        "design": one.name,
        "rows": one.n,
        "coefficients": len(truth),
        "epsilon": one.epsilon,
        "draws": len(tables),
        **judged(tables, truth, errors),
        "goal": one.goal,
        "goal_width": one.width,
        "floor": float(np.median(np.sqrt(1.0 + np.array(noises) ** 2))),
    }


def percent(x: float | None) -> str:
    return "–" if x is None else f"{100 * x:.0f}%"


def ratio(x: float | None) -> str:
    return "–" if x is None else f"{x:.2f}"


def of_real(lines: list[dict[str, Any]]) -> list[str]:
    """Tables of Markdown, one a trust, with a row for each table."""
    text = []
    for trust, told in (
        ("nobody", "Local trust"),
        ("sum", "Sums, one colluder"),
        ("curator", "One curator"),
    ):
        heads = " | ".join(f"epsilon {e:g}" for e in EPSILONS)
        text += [
            "",
            f"*{told}:*",
            "",
            f"| table (rows, coefficients) | {heads} |",
            f"|---|{'---|' * len(EPSILONS)}",
        ]
        mine = [line for line in lines if line["trust"] == trust]
        for name in dict.fromkeys(line["table"] for line in mine):
            own = [line for line in mine if line["table"] == name]
            cells = []
            for x in own:
                reach = (
                    f"{percent(x['printed_within'])} of {x['within']}" if x["within"] else "none"
                )
                cells.append(
                    f"{percent(x['printed'])}, {ratio(x['width'])} ({ratio(x['floor'])}); {reach}"
                )
            text.append(
                f"| {name} ({own[0]['rows']:,}, {own[0]['coefficients']}) | {' | '.join(cells)} |"
            )
    near = [(x["within"], x["printed_within"]) for x in lines if x["within"]]
    if near:
        share = sum(n * printed for n, printed in near) / sum(n for n, _ in near)
        text += ["", f"Of all coefficients within reach {percent(share)} are printed."]
    return text


def of_designs(lines: list[dict[str, Any]]) -> list[str]:
    """A table of Markdown."""
    text = [
        "| design (rows, coefficients) | epsilon | draws | printed | goal | width | floor | held |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for x in lines:
        goal = percent(x["goal"]) + (
            "" if x["goal_width"] is None else f", width {x['goal_width']:g}"
        )
        cells = (
            f"{x['design']} ({x['rows']:,}, {x['coefficients']})",
            f"{x['epsilon']:g}",
            str(x["draws"]),
            percent(x["printed"]),
            goal,
            ratio(x["width"]),
            ratio(x["floor"]),
            percent(x["held"]),
        )
        text.append(f"| {' | '.join(cells)} |")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws", type=int, default=20, help="of the noise; of a design also of the rows"
    )
    parser.add_argument("--tables", default=";".join(TABLES), help="separated by semicolons")
    parser.add_argument("--real", action="store_true", help="leave out the designs")
    parser.add_argument("--designs", action="store_true", help="leave out the real tables")
    parser.add_argument("--quick", action="store_true", help="one draw")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="where tables are kept"
    )
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--write", type=Path, help="write the tables here, as Markdown")
    args = parser.parse_args()
    draws, started = 1 if args.quick else args.draws, time.monotonic()
    lines, designs = list[dict[str, Any]](), list[dict[str, Any]]()
    for name in [] if args.designs else args.tables.split(";"):
        one = read(args.folder, name)
        lines += [
            real(name, one, trust, epsilon, draws) for trust in TRUSTS for epsilon in EPSILONS
        ]
        for x in lines[-len(TRUSTS) * len(EPSILONS) :]:
            held = f"held {percent(x['held'])}, the worst coefficient {percent(x['worst'])}"
            print(
                f"{name}, {x['trust']}, epsilon {x['epsilon']:g}: {percent(x['printed'])} "
                f"printed, {held}",
                flush=True,
            )
        print(f"{time.monotonic() - started:.0f} s", flush=True)
    for each in () if args.real else NAMED:
        designs.append(named(each, draws))
        print(f"{each.name}: {time.monotonic() - started:.0f} s", flush=True)
    text = "\n".join([*of_designs(designs), *of_real(lines)]) + "\n"
    print(text)
    if args.json:
        args.json.write_text(
            json.dumps({"draws": draws, "real": lines, "designs": designs}, indent=1) + "\n"
        )
    if args.write:
        files.write_atomically("page", args.write, text)


if __name__ == "__main__":
    main()
