"""The data of studies: the package's data sets, Covertype and census extracts, partitioned over
sites.

Each process loads and partitions a data set once.  Where Covertype is not on this machine,
synthetic rows are used in its place, and every result says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from sottovoce import RunConfig, data
from sottovoce.data.rows import Rows
from sottovoce.data.table import column_as_numbers
from sottovoce.errors import InvalidInput
from sottovoce.problem.task import Task, TwoClasses
from sottovoce.runs.simulate import pooled_minimiser, simulate
from sottovoce.util.typing import Any, Array

COVERTYPE, COVERTYPE_12 = "covertype", "covertype-12"
"""Names of two data sets: all cover types; and types 1 and 2 (003, Figure 5.29), with a twentieth
held out, as 003's Figure 5.17 trains on 470,382 rows.
"""
COLUMNS = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area_{k}" for k in range(4)),
    *(f"Soil_Type_{k}" for k in range(40)),
)
CACHED = "scikit-learn"
ABSENT = (
    "Covertype is not on this machine: synthetic rows of a logistic model stand in, with as many "
    "rows and columns. "
    "Give UCI's file with --data FILE, or fetch it once with scikit-learn's fetch_covtype()."
)
SOURCED = (COVERTYPE, COVERTYPE_12)
STAND_IN, STAND_IN_ROWS, STAND_IN_12 = "synthetic:n={n},d=54,seed=7", 464_809, 470_384
"""The synthetic data in place of Covertype: as many columns as it has, and as many training rows as
it and its types 1 and 2 have."""

INCOME = {"census-us": 25_000.0, "census-brazil": 300.0}  # threshold of the label (004, section 5)
NO_INCOME = 9_999_998.0  # INCTOT: 9999998 unknown, 9999999 not in universe


@dataclass(frozen=True)
class Dealt:
    """Training rows partitioned over sites, and test rows."""

    rows: Rows
    parts: tuple[tuple[Array, Array], ...]  # (X, y) of every site
    X_test: Array
    y_test: Array
    note: str = ""  # what the page must say about the data
    caveat: str | None = None  # what privacy statements must say about it
    task: Task = field(default_factory=TwoClasses)
    optima: dict[tuple[str, float], Array] = field(default_factory=dict)  # by loss and l2
    free: dict[RunConfig, float] = field(default_factory=dict)  # test errors of runs without noise

    def errors(self, models: Array) -> Array:
        """Compute the test errors (...) of models (..., d)."""
        return self.task.model_errors(self.X_test, self.y_test, models)

    def optimum(self, loss: str, l2: float) -> Array:
        """Compute the minimiser (d,) over all rows without noise, cached; `l2` is the regulariser.

        See :func:`sottovoce.runs.simulate.pooled_minimiser`.
        """
        if (loss, l2) not in self.optima:
            self.optima[loss, l2] = pooled_minimiser(self.rows, RunConfig(loss=loss), l2)
        return self.optima[loss, l2]

    def without_noise(self, config: RunConfig) -> float:
        """Compute the test error of a run's average model after its last round, without any noise;
        cached.
        """
        defaults = RunConfig.defaults()
        plain = {name: defaults[name] for name in _OF_PRIVACY}
        free = config.but(**plain, epsilon=math.inf, replicates=1)  # the seed draws the graph
        if free not in self.free:
            self.free[free] = float(self.errors(simulate(free, self.rows).consensus)[0])
        return self.free[free]

    @property
    def commoner(self) -> float | None:
        """The test error of always predicting the commoner class; None if the label is a number."""
        margins = self.task.baseline_margins(self.y_test).get("majority")
        if margins is None or margins.shape != (1,):
            return None
        return float(self.task.error(np.broadcast_to(margins, self.y_test.shape), self.y_test))


_OF_PRIVACY = (
    "delta",
    "noise",
    "noise_growth",
    "form",
    "relation",
    "accountant",
    "sites_per_row",
    "copies",
    "phi",
    "law",
    "max_grad_norm",
    "split",
    "tolerance",
    "delta1",
    "positives",
    "threshold",
    "clip",
    "test_sensitivity",
    "zeta",
)
"""Fields and options of a run that make no difference without noise."""


def sourced(p: Mapping[str, Any], file: str | Path | None = None) -> dict[str, Any]:
    """Add the source of Covertype to a cell's parameter `data`: a user's file, or scikit-learn's
    cache.

    It becomes ``covertype:PATH`` or ``covertype:scikit-learn``.  Other data stay as they are, and
    so does Covertype where neither source is there and synthetic rows are used.
    """
    if p.get("data") not in SOURCED:
        return dict(p)
    source = ""
    if file is not None:
        source = str(file)
    elif cached():
        source = CACHED
    if not source:
        return dict(p)
    return {**p, "data": f"{p['data']}:{source}"}


def stands_in(p: Mapping[str, Any]) -> str:
    """Return why the rows of a cell are not those of its paper; "" if they are."""
    # a name without a source after it: see `sourced`
    if p.get("data") in SOURCED:
        return ABSENT
    return ""


def deal(p: Mapping[str, Any]) -> Dealt:
    """Load and partition the rows of a cell; cached in this process.

    The parameters are `data` (and `file`), `limit` (the number of training rows), `partition` and
    `strength` (:func:`sottovoce.data.partition`), `nodes`, and `row_draw`: the number of the random
    draw, from 0, that selects the rows and their nodes.

    :class:`~sottovoce.errors.InvalidInput` if `nodes` or `limit` is no whole number of at least 1.
    """
    for name in ("nodes", "limit"):
        value = p.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidInput(
                name, value, "must be a whole number, at least 1", "correct it, or leave it out"
            )
    draw = int(p.get("row_draw", 0))
    # caches of their own: further draws must not push out the first one, which most cells need
    of_draw = _deal_first
    if draw != 0:
        of_draw = _deal_again
    return of_draw(
        p.get("data", "adult"),
        p.get("file"),
        p.get("digest"),
        p.get("limit"),
        p.get("partition", "iid"),
        float(p.get("strength", 1.0)),
        int(p.get("nodes", 5)),
        draw,
    )


def _deal(
    name: str,
    file: str | None,
    digest: str | None,
    limit: int | None,
    how: str,
    strength: float,
    nodes: int,
    draw: int,
) -> Dealt:
    """Load and partition rows: the parameters are those of :func:`deal`, as plain values."""
    # The loader's cache is by what it is asked for.  Of Covertype's stand-in it makes as many rows
    # as are used; other data are loaded whole, and once for all limits.
    limit_of_loader = None
    if name.startswith(COVERTYPE):
        limit_of_loader = limit
    X, y, X_test, y_test, columns, note, caveat, task = _load(name, file, limit_of_loader)
    if limit is not None and limit < len(y):
        some = np.sort(np.random.default_rng(draw).permutation(len(y))[:limit])
        X, y, columns = X[some], y[some], {key: values[some] for key, values in columns.items()}
    parts = data.partition(how, y, nodes, draw, columns, strength=strength, task=task)
    held = tuple((X[part], y[part]) for part in parts)
    return Dealt(Rows.build_from_parts(held), held, X_test, y_test, note, caveat, task)


_deal_first = lru_cache(maxsize=2)(_deal)
_deal_again = lru_cache(maxsize=9)(_deal)
"""The cache of further draws, which every cell of a study takes in turn: up to nine of them are
kept.
"""


# X, y, X_test, y_test, raw columns of the training rows, note, caveat and task
_Loaded = tuple[Array, Array, Array, Array, Mapping[str, Any], str, str | None, Task]


@lru_cache(maxsize=2)
def _load(name: str, file: str | None, limit: int | None) -> _Loaded:
    """Load a data set by name: training rows, test rows, and what must be said of them."""
    note = ""
    kind, _, source = name.partition(":")
    if kind in SOURCED and source:
        return _load_covertype(kind, source)
    if name in INCOME:
        return _load_census(name, file)
    if kind in SOURCED:
        note = ABSENT
        most = STAND_IN_ROWS
        if kind == COVERTYPE_12:
            most = STAND_IN_12
        if limit is not None:
            most = min(limit, most)
        found = data.load(STAND_IN.format(n=most))
    else:
        found = data.load(name)
        note = " ".join(found.notes)
    rows = found.X_train, found.y_train, found.X_test, found.y_test
    return *rows, found.train_columns, note, found.caveat, found.task


def _load_covertype(kind: str, source: str) -> _Loaded:
    """Load Covertype, or its types 1 and 2, from scikit-learn's cache or a user's file."""
    schema = data.builtin_schema(COVERTYPE)
    few, which, held = False, "Covertype", 5
    if kind == COVERTYPE_12:
        # 003's Figure 5.17 trains on 470,382 rows of both types, which is all but a twentieth
        few, which, held = True, "Types 1 and 2 of Covertype", 20
    note = f"{which} from {Path(source).name}; the label is lodgepole pine."
    return *_split(covertype(source, few), schema, held), {}, note, None, schema.task


def _load_census(name: str, file: str | None) -> _Loaded:
    """Load a user's census extract; its licence does not allow the package to ship it."""
    if file is None:
        raise InvalidInput(
            "data", name, "is your own IPUMS extract", "give its CSV file with --data FILE"
        )
    schema = data.builtin_schema(name)
    note = f"Rows of {Path(file).name}."
    return *_split(census(file, name), schema), {}, note, None, schema.task


def _split(
    table: data.Table, schema: data.Schema, held: int = 5
) -> tuple[Array, Array, Array, Array]:
    """Encode a table, and hold out one row in `held` by a fixed permutation.

    Returns X and y of the training rows, then of the test rows.
    """
    rows = schema.encode(table)
    assert rows.y is not None
    order = np.random.default_rng(0).permutation(table.n_rows)
    test, train = np.sort(order[: table.n_rows // held]), np.sort(order[table.n_rows // held :])
    return rows.X[train], rows.y[train], rows.X[test], rows.y[test]


def census(path: str | Path, name: str) -> data.Table:
    """Read a user's IPUMS International extract (CSV), and add the label `income` of the schema.

    Rows whose income is unknown or not in universe are left out.
    :class:`~sottovoce.errors.InvalidInput` if the file cannot be read, or has no numeric column
    INCTOT.
    """
    table = data.read_csv(path)
    if "INCTOT" not in table.columns:
        raise InvalidInput(
            "INCTOT",
            None,
            "the extract must have this column",
            "add total income at IPUMS, and export CSV",
        )
    try:
        income, missing = column_as_numbers(table.columns["INCTOT"])
    except ValueError:
        raise InvalidInput(
            "INCTOT", None, "must hold IPUMS's numeric codes", "export codes, not labels"
        ) from None
    known = ~missing & (np.nan_to_num(income) < NO_INCOME)
    if not known.any():
        raise InvalidInput(
            "INCTOT", None, "holds no known income", "choose a sample in which income was asked"
        )
    word = np.where(income[known] > INCOME[name], "above", "below").astype(object)
    kept = table.take(known)
    return data.Table(kept.name, {**kept.columns, "income": word})


@lru_cache
def cached() -> bool:
    """Return True if scikit-learn's cache holds Covertype; nothing is downloaded."""
    try:
        _cached()
    except OSError:
        return False
    return True


def _cached() -> tuple[Array, Array]:
    from sklearn.datasets import fetch_covtype

    found = fetch_covtype(download_if_missing=False)
    return found.data, found.target


def covertype(source: str, few: bool = False) -> data.Table:
    """Read Covertype from scikit-learn's cache (``"scikit-learn"``) or from a path of UCI's file.

    With `few` only types 1 and 2 are kept.  The label is lodgepole pine.
    :class:`~sottovoce.errors.InvalidInput` if the file does not have its 55 columns of numbers.
    """
    if source == CACHED:
        values, kinds = _cached()
    else:
        try:
            whole = np.loadtxt(source, delimiter=",", dtype=np.float64, ndmin=2)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                "data", source, f"cannot be read: {error}", "give UCI's covtype.data"
            ) from None
        if whole.shape[1] != 55 or not set(np.unique(whole[:, 54])) <= set(range(1, 8)):
            rule = "must have 55 columns, the last of them the type from 1 to 7"
            raise InvalidInput("data", source, rule, "give UCI's covtype.data or covtype.data.gz")
        values, kinds = whole[:, :54], whole[:, 54]
    kept = np.ones(len(kinds), dtype=bool)
    if few:
        kept = kinds <= 2
    columns: dict[str, Any] = {column: values[kept, k] for k, column in enumerate(COLUMNS)}
    # 2: lodgepole pine
    columns["cover"] = np.where(kinds[kept] == 2, "pine", "other").astype(object)
    return data.Table(COVERTYPE, columns)


@lru_cache
def digest(path: str | Path) -> str:
    """Compute the digest of a file's bytes, so that cells of another file are not reused."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError as error:
        raise InvalidInput(
            "data", str(path), f"cannot be read: {error.strerror}", "check the path"
        ) from None
