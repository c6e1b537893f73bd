"""Full disks, and files that somebody has damaged, mixed up or made up: one line, exit 2, and nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sites_in_tests import Consortium, consortium

from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.errors import InvalidInput

pytest.importorskip("cryptography")

SCHEMA = """\
label = {column = "ill", positive = "yes", negative = "no"}
[columns.age]
kind = "number"
lo = 0
hi = 100
"""
# Runs commands in a process whose files cannot grow beyond some size, as on a full disk.
_FULL = """
import contextlib, io, json, resource, sys
from sottovoce.cli import main
for line in sys.stdin:
    size, arguments = json.loads(line)
    out, err, code = io.StringIO(), io.StringIO(), 0
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as stop:
        code = stop.code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(json.dumps([code, err.getvalue()]), flush=True)
"""


@pytest.fixture
def full() -> Any:
    """``full(bytes, command...)`` gives exit code and what was said."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FULL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None and process.stdout is not None

    def call(size: int, *arguments: object) -> tuple[int, str]:
        print(json.dumps([size, [str(argument) for argument in arguments]]), file=process.stdin, flush=True)
        code, said = json.loads(process.stdout.readline())
        return int(code or 0), said

    yield call
    process.stdin.close()
    process.stdout.close()
    process.wait(60.0)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(said: str) -> bool:
    return said.startswith("error: ") and said.count("\n") == 1 and said.endswith("\n") and said[:-1].isprintable()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_leaves_no_half_of_a_site(tmp_path: Path, full: Any) -> None:
    (tmp_path / "rows.csv").write_text("age,ill\n" + "30,yes\n60,no\n" * 5)
    (tmp_path / "s.toml").write_text(SCHEMA)
    init = (
        "site", "init", tmp_path / "north", "--name", "north", "--hub", "h:1", "--data", tmp_path / "rows.csv",
        "--schema", tmp_path / "s.toml", "--epsilon", "1",
    )  # fmt: skip
    before = files(tmp_path)
    for size in (0, 100, 4096):
        code, said = full(size, *init)
        assert code == 2 and one_line(said) and "cannot be written" in said, (code, said)
        assert files(tmp_path) == before and not (tmp_path / "north").exists()
    (tmp_path / "north").mkdir()  # a folder that was there stays
    assert full(100, *init)[0] == 2 and (tmp_path / "north").exists() and files(tmp_path) == before
    assert full(2**30, *init) == (0, "")
    made = files(tmp_path)
    for command in (
        ("site", "renew", tmp_path / "north" / "site.toml"),
        ("hub", "init", tmp_path / "hub", "--host", "h"),
    ):
        for size in (0, 100, 300):
            code, said = full(size, *command)
            assert code == 2 and one_line(said) and files(tmp_path) == made, (code, said)
    assert not (tmp_path / "hub").exists() and not (tmp_path / "north" / "renewal").exists()
    assert full(2**30, "hub", "init", tmp_path / "hub", "--host", "h") == (0, "")
    made, admit = files(tmp_path), ("hub", "admit", tmp_path / "hub", tmp_path / "north" / "north.csr")
    code, said = full(100, *admit)
    assert code == 2 and one_line(said) and files(tmp_path) == made
    assert full(2**30, *admit) == (0, "")
    plan = (
        "plan", "--write", tmp_path / "plan.json", "--run", "trial", "--schema", tmp_path / "s.toml", "--site",
        tmp_path / "north" / "north.public.json", "--epsilon", "1",
    )  # fmt: skip
    made = files(tmp_path)
    code, said = full(100, *plan)
    assert code == 2 and one_line(said) and files(tmp_path) == made
    assert full(2**30, *plan) == (0, "")
    whole = files(tmp_path)
    code, said = full(100, *plan)
    assert code == 2 and files(tmp_path) == whole  # the old plan stands


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
@pytest.mark.parametrize("file", ["html", "npz", "json"])
def test_results_that_find_no_room_are_written_by_the_same_command_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    from sottovoce.deploy import files as writing
    from sottovoce.deploy.hub import LocalTransport
    from sottovoce.deploy.settings import SiteSettings

    sites = consortium(tmp_path / "sites", names=("north",), sizes=(60,), graph="complete")
    home = settle(sites, tmp_path / "home")
    found, sync = SiteSettings.read(home / "site.toml"), os.fsync

    def fill(number: int) -> None:
        if f"north.{file}" in os.readlink(f"/proc/self/fd/{number}"):
            raise OSError(28, "No space left on device")
        sync(number)

    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        monkeypatch.setattr(writing.os, "fsync", fill)
        with pytest.raises(InvalidInput, match=f"north.{file}.*cannot be written: No space left"):
            found.take_part(LocalTransport(hub, "north"))
        monkeypatch.setattr(writing.os, "fsync", sync)
        assert not found.file(file).exists() and not list(home.glob(".*.tmp")) and found.results() is None
        again = found.take_part(LocalTransport(hub, "north"))
    assert found.results() is not None and again.privacy["made"] == 4


def settle(sites: Consortium, home: Path) -> Path:
    """The files of the first site of a plan."""
    import numpy as np

    from sottovoce.data.mapped import write_rows
    from sottovoce.deploy.settings import write_settings

    home.mkdir()
    name = sites.plan.names[0]
    signed = sites.rows.node(0).signed[0]
    y = np.where(np.arange(len(signed)) % 2, 1.0, -1.0)
    write_rows(home / "data", [(0, signed * y[:, None], y)])
    sites.plan.write(home / "plan.json")
    sites.keys[name].write(home / f"{name}.signing")
    sites.folder = home
    sites.ledger(name).close()
    write_settings(home, name, "127.0.0.1:1", Path("data"))
    return home
