"""Every private method on three data sets, sites alike and label-skewed: writes
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
import sys
from pathlib import Path

from sottovoce.algorithms import REGISTRY
from sottovoce.runs.simulate import RunConfig
from sottovoce.runs.training import TrainConfig, train

DATA = ("adult", "mnist37", "synthetic:n=20000,d=20,seed=1")
PARTITIONS = ("iid", "label")
EPSILONS = (0.1, 0.5, 1.0)
DELTA, ROUNDS, REPLICATES = 1e-5, 10, 10

HEAD = """# Results

Test accuracy in percent, mean ± standard deviation over {replicates} replicates of the noise (seed 0); 5 nodes on a
ring, {rounds} rounds, replace-one, delta = {delta:g} in total, all other parameters at their defaults. The adversary
sees every message of every round; rows marked *curator* trust one party with all rows, and rows marked *sum* hold
against whoever sees all messages and knows what one of the sites knows ([sums](../privacy/sums.md)). `auto` picks
its method, its rounds and its parameters ([choosing](../explanation/choosing.md)); `auto --trust sum` does so among the
methods of sums, and `auto --trust curator` among those of a curator, which is the yardstick: the best curator that we
can build. Rows of 20 sites with 300 rows each, and of 2 to 200 sites, are [beside the picture of
sums](../privacy/sums.md). Written by `python bench/accuracy/results.py`.

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


def page(rows: list[dict[str, object]], kept: dict[tuple[str, str], str]) -> str:
    """The page; `kept` has lines of tables by data set and method that were not measured now."""
    text = HEAD.format(replicates=REPLICATES, rounds=ROUNDS, delta=DELTA)
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        columns = list(dict.fromkeys((row["epsilon"], row["partition"]) for row in mine))
        text += (
            f"## {data}\n\nWithout privacy {mine[0]['nonprivate']:.2f}, majority "
            f"{mine[0]['majority']:.2f}.\n\n"
        )
        text += "| method | " + " | ".join(f"{p}, epsilon {e:g}" for e, p in columns) + " |\n"
        text += "|---|" + "---|" * len(columns) + "\n"
        measured = {row["asked"] for row in mine}
        for method in METHODS:
            if method not in measured:
                text += kept.get((str(data), method), "")
                continue
            kind = REGISTRY[method].trust.kind if method in REGISTRY else ""
            trusted = "" if kind in ("", "nobody") else f" *{kind}*"
            cells = {
                (r["epsilon"], r["partition"]): f"{r['accuracy']:.2f} ± {r['sd']:.2f}"
                for r in mine
                if r["asked"] == method
            }
            text += (
                f"| `{method}`{trusted} | " + " | ".join(cells.get(c, "") for c in columns) + " |\n"
            )
        text += "\n"
    return text


METHODS = [
    "auto",
    "auto --trust sum",
    "auto --trust curator",
    *(name for name, cls in REGISTRY.items() if cls.private),
]


def lines_of(text: str) -> dict[tuple[str, str], str]:
    """Lines of the tables of a page, by data set and method."""
    found, data = {}, ""
    for line in text.splitlines(keepends=True):
        if line.startswith("## "):
            data = line[3:].strip()
        elif line.startswith("| `"):
            found[data, line.split("`")[1]] = line
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
    methods = arguments.only.split(",") if arguments.only else METHODS
    kept = lines_of(arguments.out.read_text()) if arguments.only else {}
    rows = []
    for data in DATA:
        if arguments.quick and data == "mnist37":
            continue
        for method in methods:
            for partition in PARTITIONS:
                for epsilon in EPSILONS if data == "adult" else EPSILONS[-1:]:
                    rows.append(score(method, data, partition, epsilon))
                    print(f"{rows[-1]}", file=sys.stderr)
    arguments.out.write_text(page(rows, kept))
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
