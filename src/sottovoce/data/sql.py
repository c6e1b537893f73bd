"""Rows of a database: a query in a file, read by Python's own module (SQLite) or through Arrow
(ADBC).

A file such as ``visits.sql`` holds one query.  The address of the database is in the environment
variable ``SOTTOVOCE_DATABASE``, as ``postgresql://user@host/clinic``
or ``sqlite:///clinic.db``, so no password gets into a command, a record or a message.

A value must not depend on what other rows hold.  Databases whose columns have a type keep to that.
SQLite's have none: a driver that reads whole columns turns 1.0 into "1.000000e+00" if any row holds
a text, so its values are read one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..errors import InvalidInput
from ..util.files import read_bounded_text
from ..util.later import Later
from .parquet_files import table_from_batches
from .table import Table, check_memory_fits

sqlite3 = Later("sqlite3")

DATABASE = "SOTTOVOCE_DATABASE"
SQLITE = "sqlite"
DRIVERS = {
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
    "snowflake": "adbc_driver_snowflake",
    "grpc": "adbc_driver_flightsql",
    "grpc+tls": "adbc_driver_flightsql",
}
"""Drivers by the beginning of a database's address; each is a package with the same name in
hyphens.
"""
_ROWS = 8192  # read at a time
# About how many bytes a value takes in memory.
_VALUE = 64.0


def read_sql(path: str | Path) -> Table:
    """Read the rows that the query in a file selects, with the database's types and missing
    values.

    Rows come in the order of the query: a ledger and held-out rows go by it, so the query should
    end with ``ORDER BY`` a column that nobody's values change.

    Raises
    ------
    InvalidInput
        If the driver is not installed, or the query fails; no message of the database is shown, as
        it may hold values.
    """
    with _open_query_result(path) as (names, parts):
        if names is None:
            batches, size = [], 0
            for batch in parts:
                batches.append(batch)
                size += batch.nbytes
                check_memory_fits(Path(path).name, size)
            rows = sum(batch.num_rows for batch in batches)
        else:
            values = list[tuple[Any, ...]]()
            for part in parts:
                values += part
                check_memory_fits(Path(path).name, _VALUE * len(names) * len(values))
            rows = len(values)
    if not rows:
        raise InvalidInput("data", Path(path), "selects no row", "correct the query")
    if names is None:
        return table_from_batches(batches, path)
    columns = (
        np.fromiter(column, dtype=object, count=rows) for column in zip(*values, strict=True)
    )
    return Table(Path(path).name, dict(zip(names, columns, strict=True)))


def sql_names(path: str | Path) -> list[str]:
    """Return the names of the columns that the query selects."""
    with _open_query_result(path) as (names, parts):
        return [str(name) for name in (parts.schema.names if names is None else names)]


@contextmanager
def _open_query_result(path: str | Path) -> Iterator[tuple[list[str] | None, Any]]:
    """Yield the answer to the query in a file.

    It is the columns' names and an iterator of lists of rows from SQLite, or None and a reader of
    Arrow record batches from a driver.
    """
    query = read_bounded_text("data", Path(path))
    address = os.environ.get(DATABASE, "")
    scheme, mark, rest = address.partition("://")
    if not mark or scheme not in (SQLITE, *DRIVERS):
        known = ", ".join((SQLITE, *DRIVERS))
        rule = (
            f"must name the database for the query in {Path(path).name}, "
            f"with one of the schemes {known}"
        )
        remedy = (
            "set this environment variable, for example to postgresql://user@host/clinic or "
            "sqlite:///clinic.db"
        )
        raise InvalidInput(DATABASE, None, rule, remedy)
    ask: AbstractContextManager[tuple[list[str] | None, Any]]
    if scheme == SQLITE:
        ask = _query_sqlite(query, rest.removeprefix("/"))
    else:
        ask = _query_with_driver(path, query, scheme, address)
    try:
        with ask as (names, parts):
            found = parts.schema.names if names is None else names
            if len(set(found)) != len(found):
                raise InvalidInput(
                    Path(path).name, None, "must name every column once", "rename one"
                )
            yield names, parts
    except _Refused:
        refusal = InvalidInput(
            "data",
            Path(path),
            "the database refused the query",
            "run the query in the database to see why",
        )
    else:
        return
    # here, where nothing is being handled: a traceback would show what the database said
    raise refusal


class _Refused(Exception):
    """The database has refused a query; its message is dropped, as it may hold values."""


@contextmanager
def _query_sqlite(query: str, file: str) -> Iterator[tuple[list[str], Any]]:
    """Yield names and lists of rows that a query selects from a SQLite file, opened read-only."""
    try:
        with closing(sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            cursor = database.execute(query)
            yield (
                [name for name, *_ in cursor.description or ()],
                iter(lambda: cursor.fetchmany(_ROWS), []),
            )
    except (sqlite3.Error, sqlite3.Warning):
        raise _Refused from None


@contextmanager
def _query_with_driver(
    path: str | Path, query: str, scheme: str, address: str
) -> Iterator[tuple[None, Any]]:
    """Yield None and a reader of the record batches that a query selects through an ADBC driver."""
    package = DRIVERS[scheme].replace("_", "-")
    try:
        driver = import_module(f"{DRIVERS[scheme]}.dbapi")
    except ImportError:
        rule, remedy = (
            f"reading a {scheme} database needs {package}",
            f"run: pip install 'sottovoce[sql]' {package}",
        )
        raise InvalidInput("data", Path(path), rule, remedy) from None
    try:
        with driver.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            yield None, cursor.fetch_record_batch()
    except InvalidInput:
        raise
    except (driver.Error, OSError, ValueError):
        # An error of the database, or of Arrow while it reads.
        raise _Refused from None


__all__ = ["DATABASE", "DRIVERS", "SQLITE", "read_sql", "sql_names"]
