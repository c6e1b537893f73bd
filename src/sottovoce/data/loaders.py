"""Loading: built-in data sets and the user's tables, by name or path, as encoded rows.

The commands and `sottovoce.simulate` begin here: :func:`load` reads a table, encodes it by its
schema (:mod:`sottovoce.data.schema`), and splits it into training rows and held-out rows, which
are used for evaluation only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from numbers import Real
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..problem.task import BoundedNumber, EventRate, ManyClasses, Task, TwoClasses
from ..util.typing import Array, IntArray
from . import synthetic
from .file_formats import READ, read_table, table_file_ending
from .papers import adult_002
from .person import group_rows_by_person
from .schema import EXAMPLE, Schema
from .table import Table
from .values import Column

# The seed of the published splits of Adult.
SPLIT_SEED = 0
MNIST37_TRAIN = 12_396
_AT_ONCE = 8192  # values of a column
SYNTHETIC: dict[str, Any] = {
    "n": int,
    "d": int,
    "seed": int,
    "margin": float,
    "flip": float,
    "sites": int,
    "shift": float,
}


@dataclass(frozen=True)
class Dataset:
    """Encoded rows, ready to be given to nodes.

    Parameters
    ----------
    name : str
        As it was asked for.
    X_train, X_test : ndarray of shape (n, d)
        Rows in the unit ball.
    y_train, y_test : ndarray of shape (n,)
        Labels as `task` encodes them.  A training row with an undeclared label is a row of zeros,
        see `Encoded`; such test rows are left out.
    schema : Schema or None
        How rows are encoded; ``None`` for synthetic rows.
    clipped : dict of str to int
        See `Encoded`; counted over training and test rows.  For the holder of the data only.
    train_columns, test_columns : dict of str to ndarray
        Raw columns.
    description : str
        One line.
    notes : tuple of str
        What a reader of results must know, such as facts computed from the rows.
    kept_test : ndarray of int or None
        Indices of the test rows among the held-out rows; None if none was left out.
    held_out : int or None
        Number of held-out rows, whatever their labels; None for as many as there are test rows.
    weights : ndarray of shape (n,), optional
        Sample weights of the training rows, in [0, 1].  Scores count every test row once.
    people, held_people : ndarray of int, optional
        Whose training row it is, and whose held-out row, if the schema names a person's column;
        nobody has both.
    sites : ndarray, optional
        The schema's site column of all rows, held-out ones included.
    """

    name: str
    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array
    schema: Schema | None
    clipped: dict[str, int]
    train_columns: dict[str, Column]
    description: str = ""
    notes: tuple[str, ...] = ()
    test_columns: dict[str, Column] = field(default_factory=dict)
    kept_test: IntArray | None = None
    held_out: int | None = None
    weights: Array | None = None
    people: IntArray | None = None
    held_people: IntArray | None = None
    sites: Column | None = None

    @property
    def n_held_out(self) -> int:
        """Number of held-out rows, whatever their labels.

        It is secret where a person may have several rows; :attr:`n_units_held_out` is public.
        """
        if self.held_out is None:
            return len(self.y_test)
        return self.held_out

    @property
    def n_units_held_out(self) -> int:
        """Number of held-out people, or of held-out rows where the schema names no person:
        public.
        """
        if self.held_people is None:
            return self.n_held_out
        return len(np.unique(self.held_people))

    def all_held_out(self, X: Array) -> tuple[Array, Array]:
        """Return all held-out rows (n_held_out, d) and labels, from features X of the test rows.

        Held-out rows without a known label, which are no test rows, are zeros here; their labels
        are 0, -1 of several classes, or NaN of numbers.
        """
        if self.kept_test is None:
            return X, self.y_test
        none = {BoundedNumber: math.nan, EventRate: math.nan, ManyClasses: -1.0}
        no_label = none.get(type(self.task), 0.0)
        rows = np.zeros((self.n_held_out, X.shape[1]))
        labels = np.full(self.n_held_out, no_label)
        rows[self.kept_test] = X
        labels[self.kept_test] = self.y_test
        return rows, labels

    def weights_of_parts(self, parts: Sequence[IntArray]) -> list[Array] | None:
        """Return the sample weights of each part of the training rows; None without weights."""
        if self.weights is None:
            return None
        return [self.weights[part] for part in parts]

    @property
    def n_features(self) -> int:
        return int(self.X_train.shape[1])

    @property
    def task(self) -> Task:
        """The learning task: as the schema declares; two classes for synthetic rows."""
        if self.schema is None:
            return TwoClasses()
        return self.schema.task

    @property
    def caveat(self) -> str | None:
        return None if self.schema is None else self.schema.caveat


_LISTED: tuple[tuple[Any, ...], ...] = (
    # name, rows, features (None: of the schema), licence, about
    (
        "adult",
        48_842,
        None,
        "CC BY 4.0",
        "Census income above 50,000 dollars; encoded by public bins, 40,000 train / 8,842 test",
    ),
    (
        "adult-002",
        45_222,
        105,
        "CC BY 4.0",
        "Adult as paper 002 encodes it (data-dependent), 40,000 train / 5,222 test",
    ),
    (
        "mnist37",
        14_434,
        None,
        "CC BY-SA 3.0",
        "MNIST digits 3 and 7, rows of norm 1, 12,396 train / 2,038 test",
    ),
    (
        "synthetic:n=40000,d=50,seed=0",
        "any",
        "any",
        "none needed",
        "Logistic model; also margin, flip (label noise), sites and shift (heterogeneity)",
    ),
)


def describe() -> list[dict[str, Any]]:
    """List the built-in data sets: name, rows, features, licence and a description of each."""
    return [
        {
            "name": name,
            "rows": rows,
            "features": features or builtin_schema(name).n_features,
            "licence": licence,
            "about": about,
        }
        for name, rows, features, licence, about in _LISTED
    ]


def builtin_schema(name: str) -> Schema:
    """Read a shipped public schema by name.

    One of ``adult``, ``mnist37``, ``covertype``, ``census-us`` and ``census-brazil``.
    """
    with resources.as_file(_resource_folder("schemas") / f"{name}.toml") as path:
        return Schema.from_toml(path)


def builtin_table(name: str) -> Table:
    """Read the shipped raw table of ``adult`` or ``mnist37``."""
    with (_resource_folder("tables") / f"{name}.npz").open("rb") as file, np.load(file) as arrays:
        if name == "mnist37":
            return Table(name, dict(arrays))
        columns = {}
        for column in arrays:
            # A column is stored as its distinct values and the number of each row's value.
            if f"{column} values" in arrays:
                levels = arrays[f"{column} values"].astype(object)
                columns[column] = levels[arrays[column]]
        return Table(name, columns)


def _resource_folder(name: str) -> Any:
    return resources.files("sottovoce.data") / name


def load(
    name_or_path: str | Path,
    *,
    schema: str | Path | Mapping[str, Any] | Schema | None = None,
    test_share: float | None = 0.2,
    rng_seed: int = 0,
) -> Dataset:
    """Load a built-in data set, synthetic rows or a table of the user's as encoded rows.

    Parameters
    ----------
    name_or_path : str or Path
        ``adult``, ``adult-002``, ``mnist37``, ``synthetic:n=...,d=...,seed=...`` (n training rows),
        or the path of a table: its ending says how it is read (:mod:`sottovoce.data.file_formats`).
    schema : path, mapping or Schema, optional
        Needed for a path; replaces the shipped schema of a built-in table.  Not for synthetic rows,
        which are encoded already.
    test_share : float or None
        Share of the rows of a path or of synthetic data that are held out, in (0, 1); None for
        none. The built-in tables have one fixed public split.
    rng_seed : int
        Seed of the random split of a path.

    Returns
    -------
    Dataset
        Training and test rows in the unit ball, with their labels, weights and raw columns.

    Raises
    ------
    InvalidInput
        If a parameter or the table does not fit; no data value is shown.

    Examples
    --------
    >>> load("synthetic:n=1000,d=5").X_train.shape
    (1000, 5)
    """
    if test_share is not None and not (isinstance(test_share, Real) and 0 < test_share < 1):
        raise InvalidInput(
            "test_share", test_share, "must be above 0 and below 1", "use None for no test rows"
        )
    if not isinstance(name_or_path, str | PathLike):
        # Perhaps a table in memory, of which no value may be shown: the message has its type alone.
        rule = "must be the name of a data set, or the path of a table"
        raise InvalidInput(
            "data", type(name_or_path), rule, "write the table to a CSV or Parquet file"
        )
    name = str(name_or_path)
    if name.partition(":")[0] == "synthetic":
        if schema is not None:
            raise InvalidInput(
                "schema", None, "synthetic rows are already encoded", "leave schema out"
            )
        return _load_synthetic(name, test_share)
    if name in ("adult", "adult-002", "mnist37"):
        return _load_builtin(name, None if schema is None else _schema_from(schema))
    table = _read_table_or_refuse(name)
    if schema is None:
        remedy = f"write one and give schema='my.toml': {EXAMPLE}"
        raise InvalidInput("schema", None, "a table needs a schema of public facts", remedy)
    own = _schema_from(schema)
    return split_table(table, own, test_share=test_share, rng_seed=rng_seed, name=name)


def split_table(
    table: Table,
    schema: Schema,
    *,
    test_share: float | None = 0.2,
    rng_seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """Encode a table and split it at random into training rows and held-out rows.

    Parameters
    ----------
    table : Table
        Raw columns of all rows.
    schema : Schema
        How rows are encoded.  If it names a person's column, people are split, each with all their
        rows.
    test_share : float or None
        Share of the rows, or of the people, that are held out, in (0, 1); None for none.
    rng_seed : int
        Seed of the split.
    name : str, optional
        Name of the data set; that of the table if None.

    Returns
    -------
    Dataset
        As :func:`load` returns for a path.

    Raises
    ------
    InvalidInput
        If the table does not fit its schema, or no training row would be left.
    """
    # People are split whole: nobody has training rows and held-out rows.
    units = _units_of_split(table, schema)
    order = np.random.default_rng(rng_seed).permutation(len(units))
    n_test = 0 if test_share is None else round(len(units) * test_share)
    if n_test == len(units):
        raise InvalidInput(
            "test_share", test_share, "leaves no training row", "lower it or use None"
        )
    test, train = (_rows_of_units(units, some) for some in np.split(order, [n_test]))
    if name is None:
        name = table.name
    return _encode_split_table(name, table, schema, train, test, Path(name).name)


def _units_of_split(table: Table, schema: Schema) -> IntArray | list[IntArray]:
    """Return the units of a split: row numbers (n, 1) of single rows, or those of each person."""
    rows = np.arange(table.n_rows)
    # A table without the person's column will be refused by the encoding, which says so.
    if schema.person is None or schema.person.column not in table.columns:
        return rows[:, None]
    people = schema.person.number_people(table.columns[schema.person.column], frozenset(schema.na))
    return group_rows_by_person(people, rows)


def _rows_of_units(units: IntArray | list[IntArray], some: IntArray) -> IntArray:
    """Return the sorted row numbers of some of the units, which are given by their numbers."""
    if isinstance(units, np.ndarray):
        return np.sort(units[some].ravel())
    # NumPy concatenates no empty list.
    parts = [units[k] for k in some] or [np.empty(0, dtype=np.int64)]
    return np.sort(np.concatenate(parts))


def table_digest(tables: Sequence[Table], deal: str) -> bytes:
    """Compute a digest of the raw rows of tables; treat it as secret.

    It binds a ledger to its rows (:meth:`sottovoce.ledger.identity.RowsIdentity.bind_to_rows`) and
    is the same under every schema.

    Parameters
    ----------
    tables : sequence of Table
        In a fixed order: another order is another digest.
    deal : str
        Which site holds which row, as far as the tables do not say.

    Returns
    -------
    bytes
        32 bytes (BLAKE2b).
    """
    digest = hashlib.blake2b(deal.encode(), digest_size=32)
    for table in tables:
        digest.update(repr(table.n_rows).encode())
        for name, values in table.columns.items():
            digest.update(repr((name, values.shape)).encode())
            flat = values.ravel().tolist()
            for k in range(0, len(flat), _AT_ONCE):
                texts = list(map(_text_in_digest, flat[k : k + _AT_ONCE]))
                digest.update(repr(texts).encode("utf-8", "surrogatepass"))
    return digest.digest()


def _text_in_digest(value: object) -> str:
    """Return the text of a raw value in :func:`table_digest`.

    It must never change: ledgers recognise their tables by the digest.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    return str(value).strip()


def file_digest(name: str, deal: str) -> bytes | None:
    """Compute :func:`table_digest` of a table in a file; None for a built-in data set."""
    # `isfile` is False for a name that is too long, where Path.is_file raises.
    if not isfile(name):
        return None
    return table_digest([_read_table_or_refuse(name)], deal)


def _read_table_or_refuse(name: str) -> Table:
    if not table_file_ending(name) and not isfile(name):
        known = ", ".join(name for name, *_ in _LISTED)
        rule = f"must be one of {known}, or a path ending in {READ}"
        raise InvalidInput("data", name, rule, "give the path of a table, or one of these names")
    return read_table(name)


def _schema_from(given: str | Path | Mapping[str, Any] | Schema) -> Schema:
    """Return a schema from whatever `load` was given for it."""
    if isinstance(given, Schema):
        return given
    if not isinstance(given, str | PathLike | Mapping):
        raise InvalidInput(
            "schema",
            type(given),
            "must be a path, a mapping or a Schema",
            "give the path of a file",
        )
    if isinstance(given, Mapping):
        return Schema.from_dict(given)
    return Schema.from_toml(given)


def _load_builtin(name: str, schema: Schema | None) -> Dataset:
    """Load a built-in table, with its public split into training and held-out rows."""
    table, used, train, test = _builtin_split(name, schema)
    if used.person is not None:
        rule = (
            "cannot be declared for this data set, "
            "which has one row per person and a fixed public split"
        )
        raise InvalidInput("person", None, rule, "leave it out of the schema")
    about = next(about for known, *_, about in _LISTED if known == name)
    return _encode_split_table(name, table, used, train, test, about)


def _encode_split_table(
    name: str, table: Table, schema: Schema, train: IntArray, held_out: IntArray, about: str
) -> Dataset:
    """Encode a table, and divide it by the row numbers `train` and `held_out`."""
    rows = schema.encode(table)
    assert rows.y is not None
    # A row without a label cannot be scored.
    known = schema.task.has_known_label(rows.y[held_out])
    test = held_out[known]
    people: IntArray | None = None
    held_people: IntArray | None = None
    if schema.person is not None:
        codes = schema.person.number_people(
            table.columns[schema.person.column], frozenset(schema.na)
        )
        people, held_people = codes[train], codes[held_out]
    notes = [f"{table.name}: {note}" for note in table.notes]
    if schema.caveat is not None:
        notes.insert(0, f"{schema.caveat[0].upper()}{schema.caveat[1:]}.")
    return Dataset(
        name,
        X_train=rows.X[train],
        y_train=rows.y[train],
        X_test=rows.X[test],
        y_test=rows.y[test],
        schema=schema,
        clipped=rows.clipped,
        train_columns={column: values[train] for column, values in table.columns.items()},
        description=about,
        notes=tuple(notes),
        test_columns={column: values[test] for column, values in table.columns.items()},
        kept_test=None if known.all() else np.flatnonzero(known),
        held_out=len(held_out),
        weights=None if rows.weight is None else rows.weight[train],
        people=people,
        held_people=held_people,
        sites=None if schema.site is None else table.columns[schema.site],
    )


def _builtin_split(name: str, schema: Schema | None) -> tuple[Table, Schema, IntArray, IntArray]:
    """Return the table, its schema, and the training and held-out row numbers of a public split."""
    if name == "mnist37":
        rows = np.arange(14_434, dtype=np.int64)
        train, test = rows[:MNIST37_TRAIN], rows[MNIST37_TRAIN:]
        return builtin_table(name), schema or builtin_schema(name), train, test
    table = builtin_table("adult")
    if name == "adult":
        schema = schema or builtin_schema(name)
    else:
        table, found = adult_002(table)
        schema = schema or found
    order = np.random.default_rng(SPLIT_SEED).permutation(table.n_rows)
    return table, schema, np.sort(order[:40_000]), np.sort(order[40_000:])


def _load_synthetic(name: str, test_share: float | None) -> Dataset:
    """Draw the rows that a name such as ``synthetic:n=1000,d=5`` describes."""
    given: dict[str, Any] = {"n": 40_000, "d": 50}
    told = set[str]()
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        key = key.strip()
        if key in told:
            raise InvalidInput("synthetic", part, f"{key} is given twice", "remove one of the two")
        try:
            given[key] = SYNTHETIC[key](value)
            if SYNTHETIC[key] is int and abs(given[key]) >= 2**62:
                raise ValueError("too large")
        except (KeyError, ValueError):
            rule = f"must be NAME=NUMBER with a name of {', '.join(SYNTHETIC)}"
            raise InvalidInput(
                "synthetic", part, rule, "for example synthetic:n=40000,d=50,seed=0"
            ) from None
        told.add(key)
    n = given["n"]
    # n is the number of training rows; rows of the test come on top.
    n_test = 0 if test_share is None else round(n * test_share / (1 - test_share))
    rows = synthetic.make_synthetic(**(given | {"n": n + n_test}))
    train_columns: dict[str, Column] = {}
    test_columns: dict[str, Column] = {}
    if given.get("sites", 1) > 1:
        train_columns = {"site": rows.site[:n]}
        test_columns = {"site": rows.site[n:]}
    return Dataset(
        name,
        X_train=rows.X[:n],
        y_train=rows.y[:n],
        X_test=rows.X[n:],
        y_test=rows.y[n:],
        schema=None,
        clipped={},
        train_columns=train_columns,
        description="rows of a logistic model",
        test_columns=test_columns,
    )
