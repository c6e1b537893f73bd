"""Files: written whole or not at all, kept when a disk is full, and read within bounds whoever
made them.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import CheckpointError, InvalidInput, NotWritten
from sottovoce.runs.simulate import Result, RunConfig, simulate
from sottovoce.util import files

CONFIG = RunConfig(method="dvp", epsilon=4.0, rho=0.02, eta=0.05, rounds=4, seed=3)


@contextmanager
def most(size: int) -> Iterator[None]:
    """No file of this process may be larger: as on a full disk, writing fails in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    try:
        allowed = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("this user may not mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


# Written whole or not at all


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_atomically("x", path, "one")
    path.chmod(0o640)
    files.write_atomically("x", path, b"two")
    assert path.read_text() == "two" and path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to(path)
    files.write_atomically("x", tmp_path / "link", "three")
    assert (tmp_path / "link").is_symlink() and path.read_text() == "three"
    files.write_atomically("x", tmp_path / "secret", "s", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    assert {file.name for file in tmp_path.iterdir()} == {"x", "link", "secret"}


def test_a_database_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"SQLite format 3\0 and so on")
    for write in (
        lambda: files.check_writable_path("x", path),
        lambda: files.write_atomically("x", path, "new"),
    ):
        with pytest.raises((InvalidInput, NotWritten), match="ledger or another"):
            write()
    assert path.read_bytes().endswith(b"and so on")


def test_old_file_survives_a_failed_write(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_atomically("x", path, "old")
    with (
        most(1000),
        pytest.raises(NotWritten, match=r"x=.*File too large"),
    ):
        files.write_atomically("x", path, bytes(5000))
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_keeps_the_old_file(disk: Path) -> None:
    files.check_writable_path("x", disk / "x")
    files.write_atomically("x", disk / "x", "old")
    fill(disk)
    with pytest.raises(NotWritten, match="No space left"):
        files.write_atomically("x", disk / "x", bytes(100_000))
    assert (disk / "x").read_text() == "old" and {file.name for file in disk.iterdir()} == {
        "x",
        "filler",
    }
    with pytest.raises(InvalidInput, match="No space left") as refusal:
        files.check_writable_path("x", disk / "x")
    assert refusal.value.field == "x"


def test_unwritable_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for name, rule in (
        ("absent/x", "its folder must exist"),
        ("file/x", "its folder must exist"),
        ("folder", "not a regular"),
        ("pipe", "not a regular"),
        ("x" * 300, "File name too long"),
        ("/dev/full", "not a regular"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            files.check_writable_path("save", tmp_path / name)
    with (
        most(files.PROBE - 1),
        pytest.raises(InvalidInput, match="File too large"),
    ):
        files.check_writable_path("save", tmp_path / "x")
    files.check_writable_path("save", tmp_path / "new" / "x", make=True)
    assert {file.name for file in tmp_path.iterdir()} == {"folder", "file", "pipe", "new"}


# Saved runs and checkpoints


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    rows: Rows, tmp_path: Path, disk: Path
) -> None:
    whole = simulate(CONFIG, rows)

    def full(k: int, state: Any) -> None:
        if k == 3:
            fill(disk)

    with pytest.raises(NotWritten, match=r"checkpoint=.*No space left"):
        simulate(CONFIG, rows, observers=[full], checkpoint=disk / "half.npz")
    (disk / "filler").unlink()
    seen: list[int] = []
    again = simulate(
        CONFIG, rows, observers=[lambda k, _: seen.append(k)], checkpoint=disk / "half.npz"
    )
    assert seen == [3, 4] and np.array_equal(again.models, whole.models)


def test_a_checkpoint_is_refused_before_anything_is_done_if_it_cannot_be_written(
    rows: Rows, tmp_path: Path
) -> None:
    seen: list[int] = []
    with most(1000), pytest.raises(InvalidInput, match=r"checkpoint=.*cannot be written"):
        simulate(
            CONFIG, rows, observers=[lambda k, _: seen.append(k)], checkpoint=tmp_path / "half.npz"
        )
    assert not seen and not any(tmp_path.iterdir())


def test_a_saved_run_does_not_tell_how_long_it_took(
    rows: Rows, tmp_path: Path, monkeypatch: Any
) -> None:
    result = simulate(CONFIG, rows)
    assert result.seconds > 0
    result.save(tmp_path / "one")
    monkeypatch.setattr(time, "time", lambda: 2e9)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(2e9))
    replace(result, seconds=1000 * result.seconds).save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert Result.load(tmp_path / "one").seconds == 0.0


def test_a_run_that_an_earlier_version_saved_is_refused_by_its_format(
    rows: Rows, tmp_path: Path
) -> None:
    result = simulate(CONFIG, rows)
    meta = record(result) | {"seconds": 12.5}  # as the first version wrote it
    del meta["version"]
    np.savez(tmp_path / "old.npz", models=result.models, meta=np.array(json.dumps(meta)))
    with pytest.raises(CheckpointError, match=r"use version 0\.2"):
        Result.load(tmp_path / "old.npz")


@pytest.mark.parametrize("field", ["method", "epsilon", "rounds", "seed"])
def test_saved_run_contains_its_whole_configuration(field: str, rows: Rows, tmp_path: Path) -> None:
    result, path = simulate(CONFIG, rows), tmp_path / "run.npz"
    meta = record(result)
    del meta["config"][field]
    path.write_bytes(npz({"models": npy(result.models), "meta": npy(json.dumps(meta))}))
    with pytest.raises(CheckpointError, match="not a saved"):
        Result.load(path)


def record(result: Result) -> dict[str, Any]:
    arrays = np.load(io.BytesIO(result.packed()), allow_pickle=False)
    return dict(json.loads(str(arrays["meta"])))


def npz(entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as packed:
        for name, content in entries.items():
            packed.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: Any, **header: Any) -> bytes:
    """An array's bytes, with another header than its own."""
    file = io.BytesIO()
    array = np.asarray(array)
    known = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | header
    np.lib.format.write_array_header_1_0(file, known)
    return file.getvalue() + array.tobytes()


HOSTILE: dict[str, Callable[[bytes, bytes, Path], bytes]] = {
    "empty": lambda models, meta, _: b"",
    "no archive": lambda models, meta, _: b"not an archive" * 100,
    "cut short": lambda models, meta, _: npz({"models": models, "meta": meta})[:-200],
    "without models": lambda models, meta, _: npz({"meta": meta}),
    "without meta": lambda models, meta, _: npz({"models": models}),
    "packed": lambda models, meta, _: npz(
        {"models": npy(np.zeros(2**22)), "meta": meta}, zipfile.ZIP_DEFLATED
    ),
    "claims a shape": lambda models, meta, _: npz(
        {"models": npy([1.0], shape=(2**60, 4)), "meta": meta}
    ),
    "claims no rows": lambda models, meta, _: npz(
        {"models": npy([], shape=(2**60, 0, 4)), "meta": meta}
    ),
    "claims a long text": lambda models, meta, _: npz(
        {"models": models, "meta": npy("x", descr="<U500000000")}
    ),
    "pickle": lambda models, meta, path: npz({"models": pickled(path), "meta": meta}),
    "pickled meta": lambda models, meta, path: npz({"models": models, "meta": pickled(path)}),
    "not a number": lambda models, meta, _: npz(
        {"models": npy(np.full((1, 5, 4), np.nan)), "meta": meta}
    ),
    "texts": lambda models, meta, _: npz({"models": npy(np.full((1, 5, 4), "1.0")), "meta": meta}),
    "deep": lambda models, meta, _: npz({"models": models, "meta": npy("[" * 100_000)}),
    "deep within reason": lambda models, meta, _: npz(
        {"models": models, "meta": npy("[" * 900 + "]" * 900)}
    ),
    "a list": lambda models, meta, _: npz({"models": models, "meta": npy("[]")}),
    "digits": lambda models, meta, _: npz(
        {"models": models, "meta": npy('{"rounds": 1' + "0" * 400 + "}")}
    ),
}


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def pickled(path: Path) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([Bomb(path)], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_saved_runs_and_checkpoints_are_refused(
    case: str, rows: Rows, tmp_path: Path
) -> None:
    result, path, trap = simulate(CONFIG, rows), tmp_path / "run.npz", tmp_path / "trap"
    path.write_bytes(HOSTILE[case](npy(result.models), npy(json.dumps(record(result))), trap))
    with pytest.raises(CheckpointError, match="not a saved"):
        Result.load(path)
    with pytest.raises(CheckpointError, match=r"readable checkpoint|another configuration"):
        simulate(CONFIG, rows, checkpoint=path)
    assert not trap.exists()


@pytest.mark.parametrize(
    "key", ["config", "facts", "algorithm", "rounds", "stopped", "ledger", "privacy", "extra"]
)
def test_saved_runs_with_entries_of_other_types_are_refused(
    key: str, rows: Rows, tmp_path: Path
) -> None:
    result, path = simulate(CONFIG, rows), tmp_path / "run.npz"
    for value in (None, [], {}, "x", 10**90, -1.5, [[]], {"a": {"b": []}}, [None], True):
        kinds = {"rounds": int, "stopped": str, "ledger": list}
        if type(value) is kinds.get(key, dict) and key not in ("config", "facts"):
            continue  # of the right type
        meta = record(result) | {key: value}
        path.write_bytes(npz({"models": npy(result.models), "meta": npy(json.dumps(meta))}))
        with pytest.raises(CheckpointError, match="not a saved"):
            Result.load(path)


def test_checkpoints_with_another_state_are_refused(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "half.npz"
    simulate(CONFIG, rows, checkpoint=path)
    whole = files.read_packed_arrays(path)
    meta = json.loads(str(whole["meta"]))
    changes: list[dict[str, Any]] = [
        {"state.f": whole["state.f"][..., :-1]},
        {"state.f": whole["state.f"] * np.nan},
        {"state.f": np.array("x")},
        {"curator.releases": np.array("x")},
        {"curator.solves": np.array([1, 2])},
        {"curator.reference": np.array(1.0)},
        *(
            {"meta": np.array(json.dumps(meta | change))}
            for change in (
                {"round": "x"},
                {"round": -1},
                {"ledger": 5},
                {"ledger": [5]},
                {"ledger": [{"event": []}]},
                {"ledger": [{"event": "GaussianMechanism"}]},
                {"ledger": [meta["ledger"][0] | {"beta": "x"}]},
            )
        ),
    ]
    for change in changes:
        path.write_bytes(files.pack_arrays(**(whole | change)))
        with pytest.raises(CheckpointError, match="readable checkpoint"):
            simulate(CONFIG, rows, checkpoint=path)


# Read within bounds


def test_pipes_folders_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, rule in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "Is a directory"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "absent", "No such file or directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        ("a\0b", "no path"),
    ):
        with pytest.raises(
            InvalidInput, match=f"schema=.*: cannot be read: {rule}; check the path"
        ):
            files.read_bounded_file("schema", path)


def test_a_file_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)  # a sparse file
    with pytest.raises(InvalidInput, match=r"x=.*16,777,216 bytes"):
        files.read_bounded_file("x", tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        '{"a":' * 2000 + "1" + "}" * 2000,
        "[" * 65 + "]" * 65,
        "1" + "0" * 400,
        "1" + "0" * 5000,
        "NaN",
        "-Infinity",
        "1e999",
        "[1, 1e999]",
        "{",
        "",
        "\x00",
        '"\ud800',
        "[" + "[]," * 4_100_000 + "1]",
    ],
)
def test_json_beyond_bounds(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        files.parse_bounded_json(text)
    assert "set_int_max_str_digits" not in str(caught.value) and len(str(caught.value)) < 100


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "[" * 5000 + "]" * 5000,
        "a=" + "{a=" * 2000 + "1" + "}" * 2000,
        "a=1" + "0" * 400,
        "a=1" + "0" * 5000,
        ".".join(["a"] * 10**6) + "=1",
        '."a b" . '.join(["a"] * 10**5) + "=1",
        "[" + ".".join(["a"] * 10**6) + "]",
        "a=" + "[" * 65 + "]" * 65,
        "=",
        "a=nonsense",
    ],
)
def test_toml_beyond_bounds(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        files.parse_bounded_toml(text)
    assert "set_int_max_str_digits" not in str(caught.value) and len(str(caught.value)) < 100


def test_json_and_toml_within_bounds() -> None:
    entries = {"a": [1, 2.5, None], "b": "[[[["}
    assert files.parse_bounded_json(json.dumps(entries)) == entries
    assert files.parse_bounded_json("[Infinity]", infinite=True) == [float("inf")]
    deep = json.loads("[" * 64 + "]" * 64)
    assert files.parse_bounded_json("[" * 64 + "]" * 64) == deep
    floats = ", ".join(f"{k}.5" for k in range(200))
    long_toml = f"a = [{floats}]\n'b.c'.\"d.e\".f = '{'x.' * 100}'"
    assert len(files.parse_bounded_toml(long_toml)["a"]) == 200
    infinite_toml = "a = [-inf, 1e3, inf]"
    assert files.parse_bounded_toml(infinite_toml) == {"a": [-np.inf, 1000.0, np.inf]}
