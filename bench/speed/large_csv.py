"""A large CSV file to a model: processor seconds and peak memory, beside pandas and scikit-learn.

    python bench/speed/large_csv.py [--rows 100000 1000000] [--quick] [--json] [--against SRC]

The table is drawn from seed 7: five numbers (whole, of one to three decimals, and of full length),
two categories, a label and the site, at three sites.  Every number is of a process of its own with
one thread: what the system counts for it, user and system together, and the memory that it held at
most.  `read` is the reading of the file as texts, `encode` that and the encoding into the unit
ball, and `train` the whole of ``sottovoce train --trust sum --epsilon 1``, with the search for a
method and the fits without privacy that its report shows.  Beside them, in the same run:
``pandas.read_csv``, and that with categories as one-hot columns, standardised numbers and
scikit-learn's logistic regression on four fifths of the rows.  `--against` names the `src` of
another checkout, whose three numbers are told as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = """
intercept = true
site = "hospital"
label = { column = "outcome", positive = "died", negative = "lived" }
columns.age = { kind = "number", lo = 18, hi = 95 }
columns.bmi = { kind = "number", lo = 10, hi = 50 }
columns.lactate = { kind = "number", lo = 0, hi = 20, typical = [0.5, 5] }
columns.pressure = { kind = "number", lo = 60, hi = 220 }
columns.creatinine = { kind = "number", lo = 0, hi = 10, typical = [0.4, 2] }
columns.ward = { kind = "category", values = ["icu", "surgery", "general", "emergency"] }
columns.sex = { kind = "category", values = ["female", "male"] }
"""
READ = "from sottovoce.data import read_table; read_table('rows.csv')"
ENCODE = """
from sottovoce.data import Schema, read_table
Schema.from_toml('s.toml').encode(read_table('rows.csv'))
"""
TRAIN = ("--data", "rows.csv", "--schema", "s.toml", "--trust", "sum", "--epsilon", "1")
PANDAS = "import pandas; pandas.read_csv('rows.csv')"
PEER = """
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
frame = pd.read_csv('rows.csv')
y = frame.pop('outcome') == 'died'
numbers = ['age', 'bmi', 'lactate', 'pressure', 'creatinine']
columns = ColumnTransformer([('n', StandardScaler(), numbers), ('c', OneHotEncoder(), ['ward', 'sex'])])
X, X_test, y, y_test = train_test_split(frame, y, test_size=0.2, random_state=0)
model = make_pipeline(columns, LogisticRegression()).fit(X, y)
model.score(X_test, y_test)
"""
OURS = {
    "read": ("-c", READ),
    "encode": ("-c", ENCODE),
    "train": ("-m", "sottovoce", "train", *TRAIN),
}
PEERS = {"read_csv": ("-c", PANDAS), "sklearn": ("-c", PEER)}


def write_table(path: Path, n: int) -> None:
    """n rows of seven columns, a label and a site."""
    rng = np.random.default_rng(7)
    age = rng.integers(18, 95, n)
    bmi = np.round(rng.normal(27, 5, n), 1)
    lactate = np.round(rng.gamma(2, 1.2, n), 2)
    pressure = np.round(rng.normal(130, 18, n), 3)
    creatinine = rng.lognormal(0, 0.4, n)
    ward = rng.choice(["icu", "surgery", "general", "emergency"], n)
    sex = rng.choice(["female", "male"], n)
    site = rng.choice(["north", "south", "east"], n)
    risk = 0.03 * (age - 55) + 0.3 * (lactate - 2.4) + 0.5 * (creatinine - 1)
    risk += 0.9 * (ward == "icu") - 0.4 * (sex == "female")
    outcome = np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "died", "lived")
    columns = (age, bmi, lactate, pressure, creatinine, ward, sex, outcome, site)
    with path.open("w") as file:
        file.write("age,bmi,lactate,pressure,creatinine,ward,sex,outcome,hospital\n")
        for row in zip(*(column.tolist() for column in columns), strict=True):
            file.write(",".join(map(str, row)) + "\n")


def used(arguments: tuple[str, ...], folder: Path, env: dict[str, str]) -> dict[str, float]:
    """Processor seconds and MiB of one process."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=env, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments[:3]} ended with {process.returncode}")
    return {"seconds": usage.ru_utime + usage.ru_stime, "mib": usage.ru_maxrss / 2**10}


def measure(sizes: list[int], against: str | None) -> dict[str, dict[str, Any]]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    sources = {"": env}
    if against:
        sources["other "] = env | {"PYTHONPATH": os.path.abspath(against)}
    answer: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "s.toml").write_text(SCHEMA)
        for n in sizes:
            # The system counts the memory of the process that starts another as the other's, so
            # this one stays small.
            write = [
                sys.executable,
                __file__,
                "--write",
                str(folder / "rows.csv"),
                "--rows",
                str(n),
            ]
            subprocess.run(write, check=True)
            found = answer[str(n)] = {}
            for name, arguments in PEERS.items():
                found[name] = used(arguments, folder, env)
            for mark, own in sources.items():
                for name, arguments in OURS.items():
                    found[mark + name] = used(arguments, folder, own)
            found["ratio"] = found["train"]["seconds"] / found["sklearn"]["seconds"]
    return answer


def show(answer: dict[str, dict[str, Any]]) -> None:
    """A Markdown table: seconds, and MiB after a comma."""
    names = [name for name in next(iter(answer.values())) if name != "ratio"]
    print("| rows | " + " | ".join(names) + " | train / sklearn |")
    print("|---" * (len(names) + 2) + "|")
    for n, found in answer.items():
        cells = [f"{found[name]['seconds']:.1f} s, {found[name]['mib']:.0f} MiB" for name in names]
        print(f"| {int(n):,} | " + " | ".join(cells) + f" | {found['ratio']:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--against", metavar="SRC", help="src of another checkout")
    parser.add_argument("--quick", action="store_true", help="600 rows: shows that it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_table(given.write, given.rows[0])
        return
    answer = measure([600] if given.quick else given.rows, given.against)
    if given.json:
        print(json.dumps(answer))
    else:
        show(answer)


if __name__ == "__main__":
    main()
