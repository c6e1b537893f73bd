"""Run a study: cells through joblib, each stored when it is done, then the tidy table.

A cell's file is named by a digest of its parameters and of the code that it runs, and is written in
one step: a study that was killed continues where it stopped, and no finished cell runs twice.  Runs
that cells share are kept too: see :mod:`.kinds.kept`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from joblib import Parallel, delayed

from sottovoce.data.sweep import one_thread_a_product
from sottovoce.errors import InvalidInput
from sottovoce.runs.registering import find_method
from sottovoce.util import files
from sottovoce.util.typing import Any

from . import kinds, tables
from .kinds import Row
from .kinds.kept import FOLDER, Shelf, shelved
from .spec import Study
from .verdicts import ERRORS

_OWN = "sottovoce_papers"
Progress = Callable[[int, int], None]  # called with the number of finished cells and of all

_APART = {"sottovoce": ("cli/", "util/pages.py"), "sottovoce_papers": ("commands/", "studies/")}
"""Files of each package that are left out of a cell's digest, as no cell runs them.

Of ``studies/`` the files of the cell's kind and ``tables.py`` are part of it all the same.
"""


@dataclass(frozen=True)
class Cost:
    """What cells cost, in seconds of a processor, whether they ran now or earlier.

    Attributes
    ----------
    own : float
        What each of them took by itself, without the runs that cells share.
    runs : dict of str to float
        Every shared run that they used, by its name, and what it took when it was made.
    """

    own: float = 0.0
    runs: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_cell(cls, kept: Mapping[str, Any]) -> Cost:
        """Return the cost of a finished cell, as its file has it."""
        return cls(kept["seconds"], kept.get("runs", {}))

    @classmethod
    def together(cls, costs: Iterable[Cost]) -> Cost:
        """Return what several cost together: a run that some of them share counts once."""
        own, runs = 0.0, dict[str, float]()
        for one in costs:
            own += one.own
            runs.update(one.runs)
        return cls(own, runs)

    @property
    def seconds(self) -> float:
        """All of it, as if nothing had been made before."""
        return self.own + sum(self.runs.values())


@dataclass(frozen=True)
class StudyRun:
    """A study that has run: its tidy table, and what its cells reported."""

    study: Study
    folder: Path
    rows: list[Row]
    columns: list[str]
    # what cells reported on their guarantees, each once
    privacy: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    cells: int = 0
    reused: int = 0  # cells that were there already
    quick: bool = False


def run(
    study: Study,
    out: str | Path,
    *,
    quick: bool = False,
    jobs: int | None = None,
    file: str | Path | None = None,
    progress: Progress | None = None,
) -> StudyRun:
    """Run the cells that are missing, and write ``OUT/NAME/table.csv`` (and ``table.parquet``, with
    pyarrow).

    Parameters
    ----------
    study : Study
    out : path
        Folder that gets a folder of the study's name.
    quick : bool
        Use the study's overrides for a quick run.
    jobs : int, optional
        joblib's ``n_jobs``: how many cells run at a time.
    file : path, optional
        The user's table, for a study that needs one.
    progress : callable, optional
        Called with the number of finished cells and of all cells.

    Returns
    -------
    StudyRun

    Raises
    ------
    InvalidInput
        If a cell refuses its parameters, the user's table is missing, or a stored cell is damaged.
    """
    if quick:
        study = study.quickly()
    cell = kinds.find(study.kind)
    given, asked = _user_file(study, file), also(study)
    folder, points = Path(out) / study.name, study.points()
    files.check_writable_path("out", folder / "cells" / "file", make=True)
    shared = {"seed": study.seed, "replicates": study.replicates}
    cells = [
        tables.sourced({**study.fixed, **point, **given, **asked, **shared}, file)
        for point in points
    ]
    todo = [(p, folder / "cells" / f"{digest(study.kind, p)}.json.gz") for p in cells]
    # cells with the same parameters share a file, and run once
    missing = list({path: (p, path) for p, path in todo if not path.exists()}.values())
    tell = progress or (lambda done, of: None)
    tell(len(todo) - len(missing), len(todo))
    # one cell needs no processes beside this one
    workers = jobs
    if len(missing) <= 1:
        workers = 1
    pool = _Pool(n_jobs=workers)
    pool.tell = lambda done: tell(len(todo) - len(missing) + done, len(todo))
    with warnings.catch_warnings():
        # joblib's workers make room for a fresh one when they have grown, and nothing is lost
        warnings.filterwarnings(
            "ignore", message="A worker stopped while some jobs were given to the executor"
        )
        found = pool(delayed(_work)(cell, p, path) for p, path in missing)
    for (_, path), content in zip(missing, found, strict=True):
        # it ran on a machine that has not this folder (see `_work`)
        if not path.exists():
            write(path, content)
    rows, said, costs = [], [], dict[Path, Cost]()
    for labels, (_, path) in zip(study.labels(), todo, strict=True):
        kept = _kept(path)
        costs[path] = Cost.of_cell(kept)
        for row in kept["rows"]:
            said.append((row.pop("_privacy", ""), row.pop("_note", "")))
            if row:
                rows.append(labels | row)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    write(folder / "table.csv", _csv(rows, columns))
    if find_spec("pyarrow") is not None:
        write(folder / "table.parquet", _parquet(rows, columns))
    privacy, notes = (list(dict.fromkeys(pair[k] for pair in said if pair[k])) for k in (0, 1))
    notes += study.unknown_columns(columns)
    # a quick run leaves settings out, and says so
    if not quick:
        notes += study.unmatched(rows)
    return StudyRun(
        study,
        folder,
        rows,
        columns,
        privacy,
        notes,
        Cost.together(costs.values()),
        len(todo),
        len(todo) - len(missing),
        quick,
    )


def _kept(path: Path) -> dict[str, Any]:
    """Read a finished cell: its rows and its seconds; an InvalidInput if the file is damaged."""
    try:
        kept = dict(json.loads(gzip.decompress(path.read_bytes())))
        if not isinstance(kept["seconds"], int | float) or not all(
            isinstance(row, dict) for row in kept["rows"]
        ):
            raise ValueError("another record")
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, RecursionError):
        raise InvalidInput(
            "out", path, "is not a finished cell", "delete it, and the cell runs again"
        ) from None
    return kept


class _Pool(Parallel):
    """Pool of joblib, which reports the number of finished calls to `tell`."""

    tell: Callable[[int], None]

    def print_progress(self) -> None:
        self.tell(self.n_completed_tasks)


class _Parameters(dict[str, Any]):
    """Parameters of a cell; a missing one raises an InvalidInput that names it."""

    def __missing__(self, key: str) -> Any:
        rule = "is required by this kind of cell"
        remedy = "give it under [fixed], [grid] or [[cells]]"
        raise InvalidInput(f"cells.{key}", None, rule, remedy)


def _work(cell: kinds.Cell, p: dict[str, Any], path: Path) -> bytes:
    """Run one cell with parameters `p`, and store it at `path` if this machine has the folder.

    Returns the content of the file, for a caller on another machine.
    """
    # processor time: the machine may do other work at the same time
    started = time.process_time()
    try:
        # with more threads the last digits of a product would follow from how many cores are free
        with one_thread_a_product(), shelved(_shelf(path)) as used:
            rows = cell(_Parameters(p))
        if why := tables.stands_in(p):
            rows = [row | {"stands_in": why} for row in rows]
    except InvalidInput:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        rule = f"a cell of this kind cannot run with these parameters ({type(error).__name__})"
        raise InvalidInput(
            "cells", None, rule, "compare them with a study of the package"
        ) from error
    own = time.process_time() - started - used.made
    kept = {"parameters": p, "rows": rows, "seconds": own, "runs": used.seconds}
    # without the time of day, so that equal cells have equal bytes
    content = gzip.compress(json.dumps(kept).encode(), mtime=0)
    if path.parent.is_dir():
        write(path, content)
    return content


def _shelf(cell: Path) -> Shelf | None:
    """Return where runs that cells share are kept: beside the studies; None if this machine does
    not have their folder.
    """
    folder = cell.parent
    if not folder.is_dir():
        return None
    return Shelf(folder.parent.parent / FOLDER, digest)


def _user_file(study: Study, file: str | Path | None) -> dict[str, Any]:
    """Return the parameters that a user's table adds to every cell; {} without one."""
    if study.file is not None and study.file.optional:
        if file is not None:
            tables.digest(file)  # it can be read
        return {}
    if study.file is None and file is None:
        return {}
    if study.file is None:
        raise InvalidInput(
            "data", str(file), f"{study.name} does not take a table", "leave --data out"
        )
    if file is None:
        raise InvalidInput(
            "data", None, f"{study.name} needs your own table (--data FILE)", study.file.how
        )
    return {"data": study.file.loader, "file": str(file), "digest": tables.digest(file)}


def also(study: Study) -> dict[str, Any]:
    """Return the parameter ``also = "noiseless_error"`` for a study that judges errors, or {}.

    It makes cells report the error without noise, so that settings are left out in which no method
    learns anything (:func:`.verdicts.barred`); only some kinds of cells know it.
    """
    wanted = any(claim.value in ERRORS for claim in study.claims)
    if wanted and study.kind in kinds.NOISELESS:
        return {"also": "noiseless_error"}
    return {}


def plain(p: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell's parameters with the digest of a user's file in place of its path."""
    kind, _, source = str(p.get("data", "")).partition(":")
    known = {key: value for key, value in p.items() if key != "file"}
    if kind in tables.SOURCED and source not in ("", tables.CACHED):
        known["data"] = f"{kind}:{tables.digest(source)}"
    return known


def digest(kind: str, p: Mapping[str, Any]) -> str:
    """Compute the digest of a cell, from its parameters, its kind and the code that it runs.

    Of a user's file the content counts, not the path.  The code is that of both packages, and of
    any other package that provides a method that the cell names.
    """
    brought = {name: _code_of(name) for name in _methods(p)}
    parts = [kind, plain(p), code(kind), {name: found for name, found in brought.items() if found}]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _methods(p: Mapping[str, Any]) -> set[str]:
    """Return the names of methods in a cell's parameters, nested ones (`match`) included."""
    own = set[str]()
    if isinstance(p.get("method"), str):
        own.add(p["method"])
    nested = [value for value in p.values() if isinstance(value, Mapping)]
    return own.union(*map(_methods, nested))


def _code_of(name: str) -> str:
    """Return the digest of the package that provides a method; "" for our own methods."""
    method = find_method(name)
    if method is None or method.__module__.partition(".")[0] in _APART:
        return ""
    top, module = sys.modules[method.__module__.partition(".")[0]], sys.modules[method.__module__]
    folders = [Path(folder) for folder in getattr(top, "__path__", [])]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    if not folders and getattr(module, "__file__", None):
        paths = [Path(str(module.__file__))]
    if not paths:
        rule = "is not defined in a file, so results of its versions could not be distinguished"
        raise InvalidInput("method", name, rule, "define it in a module")
    hashed = hashlib.blake2b(digest_size=16)
    for path in paths:
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


@lru_cache
def code(kind: str) -> str:
    """Return the package's version and a digest of the files that a cell of this kind can run."""
    own = {"studies/tables.py"} | {f"studies/kinds/{name}" for name in kinds.files(kind)}
    hashed = hashlib.blake2b(digest_size=16)
    for package, apart in _APART.items():
        top = resources.files(package)
        assert isinstance(top, Path)
        for path in sorted(top.rglob("*.py")):
            name = path.relative_to(top).as_posix()
            run = not name.startswith(apart) or (package == _OWN and name in own)
            if run:
                hashed.update(f"{package}/{name}".encode() + b"\0" + path.read_bytes())
    return f"{version('sottovoce')} {hashed.hexdigest()}"


def write(path: Path, content: bytes | str) -> None:
    """Write a file in one step, its folder too: see
    :func:`sottovoce.util.files.write_atomically`.
    """
    files.write_atomically("out", path, content, make=True)


def _csv(rows: list[Row], columns: list[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name, "") for name in columns] for row in rows)
    return text.getvalue()


def _parquet(rows: list[Row], columns: list[str]) -> bytes:
    """Return the table as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        types = {type(value) for value in values} - {type(None)}
        # Parquet has one type a column; missing values stay missing
        one_type: Callable[[Any], Any] | None = None
        if types == {int, float}:
            one_type = float
        elif len(types) > 1:
            one_type = str
        if one_type is not None:
            values = [value if value is None else one_type(value) for value in values]
        arrays[name] = pa.array(values)
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


def changed(study: Study, replicates: int | None, seed: int | None) -> Study:
    """Return the study with the replicates and the seed of the command line.

    Parameters
    ----------
    study : Study
    replicates : int or None
        Replaces the study's own, also under ``--quick``; None to keep it.
    seed : int or None
        Replaces the study's own; None to keep it.

    Returns
    -------
    Study
    """
    if replicates is not None:
        study = replace(
            study, replicates=replicates, quick={**study.quick, "replicates": replicates}
        )
    if seed is not None:
        study = replace(study, seed=seed)
    return study
