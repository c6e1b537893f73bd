"""What people wait for: processor seconds of commands and fits as they are typed, from start to
end.

    python bench/speed/felt.py [--times 5] [--quick] [--json] [--only WORD] [--against SRC]

Every case is a process of its own with one thread, and its time is what the system counts for it,
user and system together.  Of a fit in Python the seconds of `fit` alone are told too: the rest is
the interpreter, imports and the making of rows.  `--against` names the `src` of another checkout:
both take turns, and the ratio is the median of the other's seconds over these.  The first run of
each is not counted: it writes the bytecode.  `line` is what each is meant to take.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from startup import PACKAGE, environment, run

FIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
{rows}
from sottovoce import {estimator}
model = {estimator}({options}random_state=0)
start = time.process_time()
model.fit(X, y)
print("fit:", time.process_time() - start, file=sys.stderr)
"""
DIGITS = """
from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True)
"""
DENSE = """
rng = np.random.default_rng(0)
X = rng.normal(size=({n}, 100))
y = X[:, 0] + rng.normal(size=len(X)) > 0
"""
SPARSE = """
import scipy.sparse as sp
rng = np.random.default_rng(0)
at = rng.integers({d}, size=({n}, 30))
X = sp.csr_array((np.full(at.size, 1 / np.sqrt(30)), (np.repeat(np.arange(len(at)), 30), at.ravel())), ({n}, {d}))
y = at[:, 0] < {d} // 3
"""


class Case(NamedTuple):
    """What is run, how in little, and the seconds that it is meant to take."""

    arguments: tuple[str, ...]
    line: float | None = None
    fitted: bool = False
    """Whether the line is for `fit` alone."""
    quick: tuple[str, ...] | None = None


def command(*words: str) -> tuple[str, ...]:
    return ("-m", PACKAGE, *words)


def fit(rows: str, estimator: str, options: str = "") -> tuple[str, ...]:
    return ("-c", FIT.format(rows=rows, estimator=estimator, options=options and f"{options}, "))


SMALL = ("--data", "synthetic:n=300,d=3", "--nodes", "3")
CASES = {
    "train": Case(command("train"), 2.2, quick=command("train", *SMALL, "--method", "output")),
    "train --trust sum": Case(command("train", "--trust", "sum"), quick=()),
    "train --inference": Case(command("train", "--inference"), 0.8, quick=()),
    "plan --delta 1e-5": Case(command("plan", "--delta", "1e-5"), 1.5, quick=()),
    "audit dvp": Case(command("audit", "dvp"), 1.8, quick=()),
    "digits, softmax": Case(fit(DIGITS, "ConsensusClassifier"), 3.0, True, quick=()),
    "digits, one against rest": Case(
        fit(DIGITS, "ConsensusClassifier", 'loss="logistic"'), 7.0, True, quick=()
    ),
    "sparse 16,000 x 20,000": Case(
        fit(SPARSE.format(n=16_000, d=20_000), "ConsensusClassifier"), quick=()
    ),
    "PrivateClassifier, 40,000 x 100": Case(
        fit(DENSE.format(n=40_000), "PrivateClassifier"),
        0.6,
        True,
        quick=fit(DENSE.format(n=500), "PrivateClassifier", '"output"'),
    ),
}


def seconds(
    arguments: tuple[str, ...], env: dict[str, str], folder: Path
) -> tuple[float, float | None]:
    """Of the process, and of `fit` if it says so."""
    whole, text = run(arguments, env, folder)
    own = [float(line.partition(":")[2]) for line in text.splitlines() if line.startswith("fit:")]
    return whole, own[0] if own else None


def measure(times: int, only: str, against: str | None, quick: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        sources = {"here": environment(None if quick else folder / "here") | alone}
        if against:
            sources["other"] = (
                environment(folder / "other")
                | alone
                | {"PYTHONPATH": str(Path(against).absolute())}
            )
        for name, case in CASES.items():
            arguments = case.quick if quick and case.quick is not None else case.arguments
            if only not in name or not arguments:
                continue
            found: dict[str, list[tuple[float, float | None]]] = {which: [] for which in sources}
            for k in range(0 if quick else -1, times):
                for which, env in sources.items():
                    one = seconds(arguments, env, folder)
                    if k >= 0:
                        found[which].append(one)
            entry: dict[str, Any] = {
                "line": case.line,
                "line_of": "fit" if case.fitted else "process",
            }
            for which, pairs in found.items():
                entry[which] = median(pair[0] for pair in pairs)
                own = [pair[1] for pair in pairs if pair[1] is not None]
                entry[f"{which}_fit"] = median(own) if own else None
            if against:
                entry["ratio"] = entry["other"] / entry["here"]
                if entry["here_fit"]:
                    entry["ratio_fit"] = entry["other_fit"] / entry["here_fit"]
            answer[name] = entry
    return answer


def show(answer: dict[str, Any]) -> None:
    print(
        f"{'processor seconds':34}{'process':>9}{'fit':>7}{'line':>7}{'before':>9}{'fit':>7}{'ratio':>7}"
    )
    for name, one in answer.items():
        ratio = one.get("ratio_fit") if one["line_of"] == "fit" else one.get("ratio")
        numbers = [
            one["here"],
            one["here_fit"],
            one["line"],
            one.get("other"),
            one.get("other_fit"),
            ratio,
        ]
        cells = zip(numbers, (9, 7, 7, 9, 7, 7), strict=True)
        print(
            f"{name:34}"
            + "".join(f"{'' if x is None else f'{x:.2f}':>{width}}" for x, width in cells)
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--times", type=int, default=5, help="runs of each that are counted; medians are told"
    )
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--against", metavar="SRC", help="src of another checkout, in turn")
    parser.add_argument(
        "--quick", action="store_true", help="two small cases, once: shows that it runs"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    answer = measure(
        1 if given.quick else max(1, given.times), given.only, given.against, given.quick
    )
    if given.json:
        print(json.dumps(answer))
    else:
        show(answer)


if __name__ == "__main__":
    sys.exit(main())
