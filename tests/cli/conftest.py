"""Fixtures: the command line in this process, in an empty folder, on a screen of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SCHEMA, Call, Clinic, Ran, make_table, write_csv

from sottovoce.cli import main


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Call:
    """The command line in this process, in an empty folder, on a screen of 80 columns that is no
    terminal.
    """
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture
def ok(run: Call) -> Call:
    def call(*arguments: object) -> Ran:
        ran = run(*arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran

    return call


@pytest.fixture
def refused(run: Call, tmp_path: Path) -> Callable[..., str]:
    """Run what must be refused: exit 2, one line of error, silence otherwise, and no file made
    or changed.
    """

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def call(*arguments: object) -> str:
        before = files()
        ran = run(*arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        assert files() == before
        assert ran.err.endswith("\n") and ran.err.count("\n") == 1, ran.err
        found = re.fullmatch(
            r"error: (?P<field>[^:;]+.*): (?P<rule>[^;]+.*); (?P<remedy>.+)\n", ran.err
        )
        assert found is not None, ran.err
        return ran.err

    return call


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    schema = tmp_path / "clinic.toml"
    schema.write_text(SCHEMA)
    table = make_table()
    return Clinic(table, write_csv(tmp_path / "rows.csv", table), schema)
