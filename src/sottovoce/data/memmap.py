"""Rows that outgrow memory: encoded once into files, which the solver reads block by block through
the page cache.

A folder holds, for every site, its signed rows ``y x`` in double and in single precision (for the
solver's first sweeps), and one ``rows.json`` with their numbers.  Nothing is ever loaded whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, NotWritten, SchemaError, format_declared_value
from ..util import files
from ..util.typing import Any, Array, IntArray
from .design import Dense, Storage
from .labels import require_two_classes
from .parquet_files import parquet_batches
from .rows import Rows
from .schema import Schema
from .values import sites_named_in_column

_VERSION = 1
_PRECISIONS = (np.float64, np.float32)  # in which rows are stored
# Rows of a Parquet file in memory at a time.
BATCH = 65_536
# Numbers that are checked at a time.
_AT_ONCE = 2**22


@dataclass(frozen=True)
class Mapped(Dense):
    """Rows of one node in a file, and in a second file in single precision."""

    short: NDArray[np.float32] | None = None

    def in_single_precision(self) -> Storage:
        if self.short is None:
            return super().in_single_precision()
        return Dense(self.short)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MappedRows(Rows):
    """Rows in the files of `folder`, one node for each number in `sites`; ``signed`` is empty."""

    folder: Path = Path()
    sites: tuple[int, ...] = ()

    def _file_of_site(self, i: int, kind: type) -> NDArray[Any]:
        shape = (1, int(self.rows_per_node[i]), self.d)
        name = self.folder / f"site-{self.sites[i]}.{np.dtype(kind).name}"
        return np.memmap(name, dtype=np.dtype(kind).newbyteorder("<"), mode="r", shape=shape)

    def verify_file_digests(self, i: int, name: str) -> None:
        """Refuse stored rows of node `i` that no guarantee covers, such as too long ones.

        `name` is the site's name in messages.
        """
        long = self._file_of_site(i, np.float64)[0]
        short = self._file_of_site(i, np.float32)[0]
        # When they were written, norms were at most 1 as computed then; another order of adding up
        # may round a little differently.
        most = 1.0 + self.d * 2.0**-51
        step = max(1, _AT_ONCE // self.d)
        for start in range(0, len(long), step):
            block, single = long[start : start + step], short[start : start + step]
            rule = ""
            with np.errstate(all="ignore"):
                # NaN is not below the bound either.
                if not np.einsum("nd,nd->n", block, block).max() <= most:
                    rule = "a row lies outside the unit ball, or is not finite"
                elif not np.array_equal(block.astype(np.float32), single):
                    rule = "its rows in single precision differ from those in double precision"
            if rule:
                raise InvalidInput(name, None, rule, "write the rows again with write_rows")

    def _storage_of_nodes(self, nodes: IntArray) -> Storage:
        """Return a view of a single node's files; rows of several nodes are copied and padded."""
        if len(nodes) == 1:
            i = int(nodes[0])
            return Mapped(self._file_of_site(i, np.float64), self._file_of_site(i, np.float32))
        longest = int(self.rows_per_node[nodes].max())
        a = np.zeros((len(nodes), longest, self.d))
        for row, i in zip(a, nodes, strict=True):
            row[: int(self.rows_per_node[i])] = self._file_of_site(int(i), np.float64)[0]
        return Dense(a)

    def with_backend(self, spec: str) -> Self:
        if spec != "numpy":
            raise InvalidInput(
                "backend", spec, "rows in memory-mapped files need the NumPy backend", "use 'numpy'"
            )
        return self

    def _storage_of_node(self, i: int) -> dict[str, Any]:
        return {"signed": self.signed[:1], "sites": self.sites[i : i + 1]}

    def _storage_of_pooled(self) -> dict[str, Any]:
        """Refuse to pool the rows: they are files of sites, too large for memory."""
        rule = (
            "memory-mapped files of sites cannot be used with a trusted curator, who holds "
            "all rows in one place"
        )
        raise InvalidInput(
            "rows",
            str(self.folder),
            rule,
            "map them as one site, or use a method that trusts nobody",
        )

    def _fingerprint_storage(self) -> tuple[Array, ...]:
        return (*(self._file_of_site(i, np.float64)[0] for i in range(len(self.n))), self.n)


@dataclass
class _Stored:
    """Rows that have been written so far."""

    folder: Path
    d: int | None = None
    rows: dict[int, int] = field(default_factory=dict)  # number of rows, by site
    labels: dict[int, set[float]] = field(default_factory=dict)  # labels that occur, by site

    def append_rows(self, site: int, X: Array, y: Array) -> None:
        """Validate rows of a site, and append them to its files."""
        checked = Rows.build_from_parts([(X, y)])
        if self.d is None:
            self.d = checked.d
        if checked.d != self.d:
            rule = f"rows must have shape (n, {self.d})"
            raise InvalidInput(f"site {site}", X.shape, rule, "give all the same columns")
        mode = "ab" if site in self.rows else "wb"
        self.rows.setdefault(site, 0)
        for kind in _PRECISIONS:
            with (
                _written_description(self.folder),
                self._path_of_site(site, kind).open(mode) as file,
            ):
                file.write(checked.signed[0].astype(np.dtype(kind).newbyteorder("<")).tobytes())
        self.rows[site] += len(y)
        self.labels.setdefault(site, set()).update(np.unique(y).tolist())

    def _path_of_site(self, site: int, kind: type) -> Path:
        return self.folder / f"site-{site}.{np.dtype(kind).name}"

    def remove_files(self) -> None:
        """Delete the files of every site."""
        for site in self.rows:
            for kind in _PRECISIONS:
                self._path_of_site(site, kind).unlink(missing_ok=True)

    def description(self) -> dict[str, Any]:
        """Return the entries of ``rows.json``."""
        sites = sorted(self.rows)
        one_class = [k for k, site in enumerate(sites) if len(self.labels[site]) == 1]
        rows = [self.rows[site] for site in sites]
        return {"version": _VERSION, "d": self.d, "sites": sites, "n": rows, "one_class": one_class}


def write_rows(folder: str | Path, blocks: Iterable[tuple[int, Array, Array]]) -> MappedRows:
    """Validate and store rows that arrive in blocks, and open them.

    Parameters
    ----------
    folder : path
        Made if absent; refused if it holds rows already.
    blocks : iterable of (site number, X of shape (m, d), y of shape (m,) in {-1, +1})
        In any order; one block is in memory at a time.

    Returns
    -------
    MappedRows

    Raises
    ------
    InvalidInput, NotWritten
        On all that :meth:`Rows.build_from_parts` refuses; on a full disk, for example.  Files
        written so far are removed.
    """
    folder = Path(folder)
    if (folder / "rows.json").exists():
        raise InvalidInput(
            "folder", folder, "already holds rows", "open them with map_rows, or use another folder"
        )
    with _written_description(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stored = _Stored(folder)
    try:
        for site, X, y in blocks:
            stored.append_rows(site, X, y)
        if stored.d is None:
            raise InvalidInput("blocks", 0, "there are no rows", "give at least one block")
    except BaseException:
        stored.remove_files()
        raise
    files.write_atomically("folder", folder / "rows.json", json.dumps(stored.description()))
    return _opened_rows(folder)


@contextmanager
def _written_description(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror}; free some space, or use another folder"
        raise NotWritten(f"folder={format_declared_value(folder)}: {rule}") from None


def map_rows(folder: str | Path) -> MappedRows:
    """Open the rows that :func:`write_rows` stored, and check all of them once.

    Others may have written the files.  InvalidInput if the folder holds no rows, a file has a wrong
    length, or a row is one that :meth:`Rows.build_from_parts` refuses.
    """
    found = _opened_rows(Path(folder))
    for i, site in enumerate(found.sites):
        found.verify_file_digests(i, f"site {site}")
    return found


def _opened_rows(folder: Path) -> MappedRows:
    """Open a folder as :func:`map_rows` does, without checking the rows."""
    try:
        meta = files.parse_bounded_json(files.read_bounded_text("folder", folder / "rows.json"))
        n, d, sites, alike = (meta[name] for name in ("n", "d", "sites", "one_class"))
        known = meta["version"] == _VERSION and len(n) == len(sites) > 0
        known = (
            known
            and all(type(number) is int for number in [d, *n, *sites, *alike])
            and min(d, *n) > 0
        )
        known = known and len(set(sites)) == len(sites) and set(alike) <= set(range(len(n)))
    except (ValueError, KeyError, TypeError, IndexError):
        known = False
    if not known:
        raise InvalidInput(
            "folder", folder, "holds no rows written by this version", "write them with write_rows"
        )
    for site, rows in zip(sites, n, strict=True):
        for kind, size in (("float64", 8), ("float32", 4)):
            path = folder / f"site-{site}.{kind}"
            if not path.is_file() or path.stat().st_size != rows * d * size:
                raise InvalidInput(
                    "folder", folder, f"{path.name} is missing or cut short", "write the rows again"
                )
    counts = np.asarray(n, dtype=float)[:, None]
    return MappedRows(
        np.zeros((len(n), 0, d)), counts, tuple(alike), folder=folder, sites=tuple(sites)
    )


def map_parquet(
    path: str | Path, schema: Schema, folder: str | Path, nodes: int = 1, seed: int = 0
) -> MappedRows:
    """Encode a Parquet file of any length into mapped rows, `BATCH` rows at a time.

    Parameters
    ----------
    path : str or Path
        The Parquet file.
    schema : Schema
        Its label must be one of two classes, without weights and without a person's column.  The
        values of its site column, in order of appearance, are the sites.
    folder : str or Path
        Where the rows are written; made if absent, refused if it holds rows already.
    nodes : int
        Without a site column, every row goes to one of this number of sites at random.
    seed : int
        Of that draw.

    Returns
    -------
    MappedRows

    Raises
    ------
    InvalidInput
        If the schema declares what is not supported, the file does not fit it, or the folder holds
        rows.
    NotWritten
        On a full disk, for example.  Files written so far are removed.
    """
    require_two_classes(schema.task, "map_parquet", weighs=schema.weighs)
    if schema.person is not None:
        rule = "cannot be used here: the file is read in parts, which may separate a person's rows"
        raise InvalidInput(
            "person",
            None,
            rule,
            "use a table in memory, or keep one row per person and ignore the column",
        )
    rng = np.random.default_rng(seed)
    number: dict[str, int] = {}

    def blocks() -> Iterable[tuple[int, Array, Array]]:
        for table in parquet_batches(path, BATCH):
            rows = schema.encode(table)
            assert rows.y is not None
            if schema.site is None:
                index = rng.integers(nodes, size=len(rows.y))
            else:
                names, place, none = sites_named_in_column(table.columns[schema.site])
                if none.any():
                    raise SchemaError(
                        schema.site, None, "has rows without a site", "name the site of every row"
                    )
                for k in dict.fromkeys(place.tolist()):
                    number.setdefault(names[k], len(number))
                index = np.array([number[name] for name in names])[place]
            for site in np.unique(index):
                yield int(site), rows.X[index == site], rows.y[index == site]

    return write_rows(folder, blocks())
