"""Every private method on two data sets, of Adult also label-skewed: writes
docs/measured/results.md.

``python bench/accuracy/results.py [--quick] [--only METHOD,METHOD] [--json] [--out
docs/measured/results.md]``

5 nodes on a ring, 10 rounds, 10 replicates of the noise, every other parameter at its default.
Test rows are public; seeds are 0.  Takes about 20 minutes on 2 cores; ``--quick`` leaves out MNIST
and takes two.  ``--only`` measures some rows and keeps the others as the page has them:
`bench/digests.py` tells whether any of those has changed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from sottovoce.algorithms import REGISTRY
from sottovoce.runs.simulate import RunConfig
from sottovoce.runs.training import TrainConfig, train

DATA = ("adult", "mnist37")
PARTITIONS = ("iid", "label")
EPSILONS = (0.1, 1.0)
DELTA, ROUNDS, REPLICATES = 1e-5, 10, 10

HEAD = """# Results

To compare methods: test accuracy in percent, mean ± standard deviation over {replicates} replicates of the noise (seed
0); 5 nodes on a ring, {rounds} rounds, replace-one, delta = {delta:g}, defaults otherwise. Columns are partitions and
epsilons. The adversary sees every message; *curator* trusts one party with all rows, *sum* holds against whoever also
knows what one site knows. `auto` [picks its method](../explanation/choosing.md). Written by
`python bench/accuracy/results.py`.

"""


def score(method: str, data: str, partition: str, epsilon: float) -> dict[str, object]:
    name, _, trust = method.partition(" --trust ")
    run = RunConfig(
        method=name,
        epsilon=epsilon,
        delta=DELTA,
        rounds=ROUNDS,
        replicates=REPLICATES,
        trust=trust or "nobody",
    )
    report = train(TrainConfig(run, data=data, partition=partition))
    spent = report.result.privacy["epsilon"]
    if not 0.999 * epsilon <= spent <= epsilon:
        raise SystemExit(f"{method} on {data}: spent {spent} of {epsilon}")
    errors = report.test_errors
    return {
        "method": run.method,
        "asked": method,
        "data": data,
        "partition": partition,
        "epsilon": epsilon,
        "spent": spent,
        "accuracy": 100 * (1 - float(errors.mean())),
        "sd": 100 * float(errors.std(ddof=1)),
        "nonprivate": 100 * (1 - float(report.nonprivate_test_error or 0)),
        "majority": 100 * (1 - float(report.baseline_test_errors["majority"] or 0)),
        "replicates": REPLICATES,
    }


def shared_lines(lines: dict[str, str]) -> str:
    """The lines of a table; methods with the same trust and the same numbers share one."""
    methods: dict[str, list[str]] = {}
    for method, line in lines.items():
        methods.setdefault(line, []).append(f"`{method}`")
    return "".join(f"| {', '.join(names)}{line}\n" for line, names in methods.items())


def page(rows: list[dict[str, object]], kept: dict[str, str]) -> str:
    """The page; `kept` has lines of the table by method that were not measured now."""
    text = HEAD.format(replicates=REPLICATES, rounds=ROUNDS, delta=DELTA)
    columns: dict[tuple[object, object, object], str] = {}
    bounds = []
    for row in rows:
        column = (row["data"], row["epsilon"], row["partition"])
        if column in columns:
            continue
        new_data = all(row["data"] != data for data, *_ in columns)
        data = f"{row['data']}: " if new_data else ""
        columns[column] = f"{data}{row['partition']}, {row['epsilon']:g}"
        if new_data:
            bounds.append(
                f"{row['data']} without privacy {row['nonprivate']:.2f}, majority "
                f"{row['majority']:.2f}"
            )
    text += "; ".join(bounds) + ".\n\n"
    text += "| method | " + " | ".join(columns.values()) + " |\n"
    text += "|---|" + "---|" * len(columns) + "\n"
    measured = {row["asked"] for row in rows}
    lines: dict[str, str] = {}
    for method in METHODS:
        if method not in measured:
            if method in kept:
                lines[method] = kept[method]
            continue
        kind = REGISTRY[method].trust.kind if method in REGISTRY else ""
        trusted = "" if kind in ("", "nobody") else f" *{kind}*"
        cells = {
            (r["data"], r["epsilon"], r["partition"]): f"{r['accuracy']:.2f} ± {r['sd']:.2f}"
            for r in rows
            if r["asked"] == method
        }
        lines[method] = f"{trusted} | {' | '.join(cells.get(c, '') for c in columns)} |"
    return text + shared_lines(lines)


METHODS = [
    "auto",
    "auto --trust sum",
    "auto --trust curator",
    *(name for name, cls in REGISTRY.items() if cls.private),
]


def lines_of(text: str) -> dict[str, str]:
    """Lines of the table of a page without their methods, by method."""
    found = {}
    for line in text.splitlines():
        if shared := re.match(r"\| (`[^`]+`(?:, `[^`]+`)*)(.*)", line):
            for method in re.findall(r"`([^`]+)`", shared[1]):
                found[method] = shared[2]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out MNIST")
    parser.add_argument("--only", help="methods to measure; the others stay as the page has them")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--out", type=Path, default=Path("docs/measured/results.md"))
    arguments = parser.parse_args()
    if arguments.quick and arguments.only:
        parser.error("--only keeps lines with MNIST, which --quick leaves out: give one of the two")
    methods = arguments.only.split(",") if arguments.only else METHODS
    kept = lines_of(arguments.out.read_text()) if arguments.only else {}
    rows = []
    for data in DATA:
        if arguments.quick and data == "mnist37":
            continue
        for method in methods:
            for partition in PARTITIONS if data == "adult" else PARTITIONS[:1]:
                for epsilon in EPSILONS if data == "adult" else EPSILONS[-1:]:
                    rows.append(score(method, data, partition, epsilon))
                    print(f"{rows[-1]}", file=sys.stderr)
    arguments.out.write_text(page(rows, kept))
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
