"""Rows for studies, dealt to sites once in each process: the package's data sets, Covertype, and a census extract."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from .. import data
from ..data.rows import Rows
from ..data.table import as_numbers
from ..errors import InvalidInput
from ..problem.task import Task, TwoClasses
from ..runs.config import RunConfig
from ..runs.simulate import pooled_minimiser
from ..util.typing import Any, Array

COVERTYPE, COVERTYPE_12 = "covertype", "covertype-12"
"""All types, and types 1 and 2 (003, Figure 5.29), with a twentieth held out: its Figure 5.17 trains on 470,382."""
STAND_IN, STAND_IN_ROWS, STAND_IN_12 = "synthetic:n={n},d=54,seed=7", 464_809, 470_384
"""As many columns as Covertype has, and training rows as it and its types 1 and 2 have."""

INCOME = {"census-us": 25_000.0, "census-brazil": 300.0}  # 004, section 5
NO_INCOME = 9_999_998.0  # INCTOT: 9999998 unknown, 9999999 not in universe


@dataclass(frozen=True)
class Dealt:
    """Rows at their sites, and test rows."""

    rows: Rows
    parts: tuple[tuple[Array, Array], ...]  # (X, y) of every site
    X_test: Array
    y_test: Array
    note: str = ""  # what the page must say about the data
    caveat: str | None = None  # what privacy statements must say about it
    task: Task = field(default_factory=TwoClasses)
    optima: dict[tuple[str, float], Array] = field(default_factory=dict)

    def errors(self, models: Array) -> Array:
        """Of models, shape (..., d), on the test rows."""
        return self.task.model_errors(self.X_test, self.y_test, models)

    def optimum(self, loss: str, l2: float) -> Array:
        """The minimiser over all rows without noise, cached: see :func:`sottovoce.runs.simulate.pooled_minimiser`."""
        if (loss, l2) not in self.optima:
            self.optima[loss, l2] = pooled_minimiser(self.rows, RunConfig(loss=loss), l2)
        return self.optima[loss, l2]


def deal(p: Mapping[str, Any]) -> Dealt:
    """The rows of a cell: its `data` (and `file`), `limit`, `partition`, `strength` and `nodes`.

    :class:`~sottovoce.errors.InvalidInput` if `nodes` or `limit` is no whole number of at least 1.
    """
    for name in ("nodes", "limit"):
        value = p.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidInput(name, value, "must be a whole number, at least 1", "correct it, or leave it out")
    return _deal(
        p.get("data", "adult"), p.get("file"), p.get("digest"), p.get("limit"), p.get("partition", "iid"),
        float(p.get("strength", 1.0)), int(p.get("nodes", 5)),
    )  # fmt: skip


@lru_cache(maxsize=2)
def _deal(
    name: str, file: str | None, digest: str | None, limit: int | None, how: str, strength: float, nodes: int
) -> Dealt:
    X, y, X_test, y_test, columns, note, caveat, task = _load(name, file, limit if name.startswith(COVERTYPE) else None)
    if limit is not None and limit < len(y):
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:limit])
        X, y, columns = X[some], y[some], {key: values[some] for key, values in columns.items()}
    parts = data.partition(how, y, nodes, 0, columns, strength=strength, task=task)
    held = tuple((X[part], y[part]) for part in parts)
    return Dealt(Rows.build(held), held, X_test, y_test, note, caveat, task)


_Loaded = tuple[Array, Array, Array, Array, Mapping[str, Any], str, str | None, Task]


@lru_cache(maxsize=2)
def _load(name: str, file: str | None, limit: int | None) -> _Loaded:
    note = ""
    if name in (COVERTYPE, COVERTYPE_12):
        few = name == COVERTYPE_12
        table, note = covertype(few)
        if table is None:
            most = STAND_IN_12 if few else STAND_IN_ROWS
            found = data.load(STAND_IN.format(n=most if limit is None else min(limit, most)))
        else:
            schema = data.builtin_schema(COVERTYPE)
            return *_split(table, schema, 20 if few else 5), {}, note, None, schema.task
    elif name in INCOME:
        if file is None:
            raise InvalidInput("data", name, "is your own IPUMS extract", "give its CSV file with --data FILE")
        schema = data.builtin_schema(name)
        return *_split(census(file, name), schema), {}, f"Rows of {Path(file).name}.", None, schema.task
    else:
        found = data.load(name)
        note = " ".join(found.notes)
    rows = found.X_train, found.y_train, found.X_test, found.y_test
    return *rows, found.train_columns, note, found.caveat, found.task


def _split(table: data.Table, schema: data.Schema, held: int = 5) -> tuple[Array, Array, Array, Array]:
    """Encoded training rows, and one in `held` as test rows, by a fixed permutation."""
    rows = schema.encode(table)
    assert rows.y is not None
    order = np.random.default_rng(0).permutation(table.n_rows)
    test, train = np.sort(order[: table.n_rows // held]), np.sort(order[table.n_rows // held :])
    return rows.X[train], rows.y[train], rows.X[test], rows.y[test]


def census(path: str | Path, name: str) -> data.Table:
    """A user's IPUMS International extract (CSV), with the column `income` that the schema predicts.

    Rows whose income is unknown or not in universe are left out. :class:`~sottovoce.errors.InvalidInput` if the file
    cannot be read, or has no numeric column INCTOT.
    """
    table = data.read_csv(path)
    if "INCTOT" not in table.columns:
        raise InvalidInput("INCTOT", None, "the extract must hold total income", "add it at IPUMS, and export CSV")
    try:
        income, missing = as_numbers(table.columns["INCTOT"])
    except ValueError:
        raise InvalidInput("INCTOT", None, "must hold IPUMS's numeric codes", "export codes, not labels") from None
    known = ~missing & (np.nan_to_num(income) < NO_INCOME)
    if not known.any():
        raise InvalidInput("INCTOT", None, "holds no known income", "choose a sample in which income was asked")
    word = np.where(income[known] > INCOME[name], "above", "below").astype(object)
    kept = table.take(known)
    return data.Table(kept.name, {**kept.columns, "income": word})


def covertype(few: bool = False) -> tuple[data.Table | None, str]:
    """Covertype (with `few` its types 1 and 2, spruce and lodgepole pine) and a note; None where it cannot be had."""
    from sklearn.datasets import fetch_covtype

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Retry downloading")
            found = fetch_covtype(n_retries=1, delay=0.1)
    except OSError:
        return None, (
            "Covertype could not be fetched (no network, and nothing in scikit-learn's cache): synthetic rows of a "
            "logistic model stand in, with as many rows and columns."
        )
    kept = found.target <= 2 if few else np.ones(len(found.target), dtype=bool)
    columns: dict[str, Any] = {name: found.data[kept, k] for k, name in enumerate(found.feature_names)}
    columns["cover"] = np.where(found.target[kept] == 2, "pine", "other").astype(object)  # 2: lodgepole pine
    which = "types 1 and 2 of Covertype" if few else "Covertype"
    note = f"{which} as scikit-learn fetches it; the label is lodgepole pine."
    return data.Table(COVERTYPE, columns), note[0].upper() + note[1:]


def digest(path: str | Path) -> str:
    """Digest of a file's bytes: cells of another file are not reused."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError as error:
        raise InvalidInput("data", str(path), f"cannot be read: {error.strerror}", "check the path") from None
