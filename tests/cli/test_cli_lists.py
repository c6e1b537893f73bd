"""``sottovoce data --schema FILE``: what a schema's rows will be like, and what to change, before any row is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call, Clinic

SHORT = """\
intercept = true
[columns."[red]dose"]
kind = "number"
lo = 0
hi = 100
[columns.heart]
kind = "number"
lo = 20
hi = 300
typical = [50, 110]
"""


def test_a_schema_of_short_rows_is_told_what_to_change(ok: Call, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    said = ok("data", "--schema", "short.toml").out
    plain = " ".join(said.split())
    assert "short: 3 features" in plain and "is wasted on a typical row" in plain
    assert "typical = [LO, HI], the range of most values, for [red]dose: " in plain
    assert "change intercept = 0.5" in plain and "change scale = " in plain and "Fine" not in plain
    assert max(map(len, said.splitlines())) <= 80
    answer = ok("data", "--schema", "short.toml", "--json").json
    assert answer["change"]["typical"] == ["[red]dose"] and answer["change"]["intercept"] == 0.5
    assert answer["features"] == 3 and answer["divisor"] == 3**0.5 < answer["bound"]
    norm = answer["norm"]
    assert norm["low"] < norm["median"] < norm["high"] <= 1
    assert answer["wasted"] == 1 - norm["median"] and answer["median_after"] == pytest.approx(1, abs=0.01)
    assert not answer["fine"] and len(answer["says"]) == 3


def test_a_schema_that_was_changed_as_told_is_fine(ok: Call, tmp_path: Path) -> None:
    told = tmp_path / "told.toml"
    told.write_text(SHORT.replace("hi = 100\n", "hi = 100\ntypical = [1, 9]\n"))
    change = ok("data", "--schema", told, "--json").json["change"]
    told.write_text(told.read_text().replace("true", str(change["intercept"])))
    told.write_text(f"scale = {change['scale']}\n{told.read_text()}")
    assert "Fine: " in ok("data", "--schema", told).out
    told.write_text("unit = true\n" + told.read_text().partition("\n")[2])
    assert "their own norm" in ok("data", "--schema", told).out
    assert ok("data", "--schema", told, "--json").json["divisor"] is None


def test_only_the_schema_is_read(ok: Call, clinic: Clinic) -> None:
    clinic.csv.unlink()
    assert ok("data", "--schema", clinic.schema, "--json").json["schema"] == "clinic"


def test_a_bad_schema_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('columns.a = { kind = "number", lo = 0, hi = 1, typical = [2, 3] }\n')
    assert "a.typical" in refused("data", "--schema", "bad.toml")
    assert "cannot be read" in refused("data", "--schema", "none.toml")
