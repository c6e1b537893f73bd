"""Rows of a database: a query in a file, read through Arrow (ADBC).

The file ``visits.sql`` holds one query.  Which database it is asked is not written down anywhere: it stands in the
environment variable ``SOTTOVOCE_DATABASE``, as ``postgresql://user@host/clinic`` or ``sqlite:///clinic.db``, so no
password gets into a command, a record or a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..util.files import read_text
from .table import Table, fits, from_batches, read_csv, read_parquet

DATABASE = "SOTTOVOCE_DATABASE"
DRIVERS = {
    "sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql", "postgres": "adbc_driver_postgresql",
    "snowflake": "adbc_driver_snowflake", "grpc": "adbc_driver_flightsql", "grpc+tls": "adbc_driver_flightsql",
}  # fmt: skip
"""Drivers by the beginning of a database's address; each is a package with the same name in hyphens."""


def read_sql(path: str | Path) -> Table:
    """The rows that the query in a file selects; types and missing values are those of the database.

    Rows come in the order of the query: a ledger and held-out rows go by it, so the query should end with
    ``ORDER BY`` a column that nobody's values change.

    Raises
    ------
    InvalidInput
        If the driver is not installed, or the query fails; no message of the database is shown, as it may hold values.
    """
    batches, size = [], 0
    with _asked(path) as reader:
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            fits(Path(path).name, size)
    if not sum(batch.num_rows for batch in batches):
        raise InvalidInput("data", Path(path), "selects no row", "correct the query")
    return from_batches(batches, path)


def read_table(path: str | Path) -> Table:
    """Read a Parquet file or a query, by its ending, or else a CSV file."""
    readers = {".parquet": read_parquet, ".sql": read_sql}
    return readers.get(Path(path).suffix.lower(), read_csv)(path)


def sql_names(path: str | Path) -> list[str]:
    """The names of the columns that the query selects."""
    with _asked(path) as reader:
        return [str(name) for name in reader.schema.names]


@contextmanager
def _asked(path: str | Path) -> Iterator[Any]:
    """The answer to a query, as a reader of record batches."""
    query, address = read_text("data", Path(path)), os.environ.get(DATABASE, "")
    scheme, mark, rest = address.partition("://")
    if not mark or scheme not in DRIVERS:
        rule = f"must name the database that {Path(path).name} is asked, as one of {', '.join(DRIVERS)}"
        remedy = "set this environment variable, to postgresql://user@host/clinic or sqlite:///clinic.db, say"
        raise InvalidInput(DATABASE, None, rule, remedy)
    package = DRIVERS[scheme].replace("_", "-")
    try:
        driver = import_module(f"{DRIVERS[scheme]}.dbapi")
    except ImportError:
        rule, remedy = f"a {scheme} database is read by {package}", f"run: pip install 'sottovoce[sql]' {package}"
        raise InvalidInput("data", Path(path), rule, remedy) from None
    refusal = InvalidInput("data", Path(path), "the database refused it", "run the query there to see why")
    try:
        target = rest.removeprefix("/") if scheme == "sqlite" else address
        with driver.connect(target) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            reader = cursor.fetch_record_batch()
            names = reader.schema.names
            if len(set(names)) != len(names):
                raise InvalidInput(Path(path).name, None, "must name every column once", "rename one")
            yield reader
    except driver.Error:
        raise refusal from None


__all__ = ["DATABASE", "DRIVERS", "read_sql", "read_table", "sql_names"]
