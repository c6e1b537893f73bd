"""``sottovoce data --schema FILE``: what a schema's rows will be like, and what to change,
before any row is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call, Clinic, write_csv

from sottovoce import data

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
    assert "short: 3 features" in plain and "is wasted" in plain
    _, _, typical = plain.partition("change typical = ")
    assert typical.startswith("[LO, HI],") and "for [red]dose: " in typical
    assert "intercept = 0.5" in plain and "change scale = " in plain and "Fine" not in plain
    assert max(map(len, said.splitlines())) <= 80
    answer = ok("data", "--schema", "short.toml", "--json").json
    assert answer["change"]["typical"] == ["[red]dose"] and answer["change"]["intercept"] == 0.5
    assert answer["features"] == 3 and answer["divisor"] == 3**0.5 < answer["bound"]
    norm = answer["norm"]
    assert norm["low"] < norm["median"] < norm["high"] <= 1
    assert answer["wasted"] == 1 - norm["median"] and answer["median_after"] == pytest.approx(
        1, abs=0.01
    )
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
    (tmp_path / "bad.toml").write_text(
        'columns.a = { kind = "number", lo = 0, hi = 1, typical = [2, 3] }\n'
    )
    assert "a.typical" in refused("data", "--schema", "bad.toml")
    assert "cannot be read" in refused("data", "--schema", "none.toml")


class TestATableAgainstItsSchema:
    def test_a_table_that_fits_is_fine(self, ok: Call, clinic: Clinic) -> None:
        shown = ok("data", clinic.csv, "--schema", clinic.schema)
        assert (
            "400 rows" in shown.out
            and "every value fits" in shown.out
            and "refused" not in shown.out
        )
        plain = ok("data", clinic.csv, "--schema", clinic.schema, "--json").json
        assert plain["fine"] and plain["counts"] == [] and plain["rows"] == 400

    def test_counts_are_those_of_the_rows_and_said_to_be_exact(
        self, ok: Call, clinic: Clinic
    ) -> None:
        table = [list(row) for row in clinic.table]
        for k in range(7):
            table[k][2] = "mauve"
        for k in range(3):
            table[k][1] = "11"
        table[9][4] = "unclear"
        write_csv(clinic.csv, table)
        text = clinic.schema.read_text().replace(
            "[columns.dose]", "[columns.dose]\ntypical = [1, 2]"
        )
        text = f"scale = 1.5\n{text.replace('hi = 10', 'hi = 10')}"
        clinic.schema.write_text(text)
        plain = ok("data", clinic.csv, "--schema", clinic.schema, "--json").json
        counts = {one["column"]: one["rows"] for one in plain["counts"]}
        encoded = data.Schema.from_toml(clinic.schema).encode(data.read_csv(clinic.csv))
        assert counts == encoded.clipped
        assert (counts["colour"], counts["dose"], counts["(label)"]) == (7, 3, 1) and counts[
            "(row)"
        ] > 50
        assert not plain["fine"] and plain["refused"] == []
        shown = ok("data", clinic.csv, "--schema", clinic.schema).out
        assert "holder only" in " ".join(shown.split())
        assert (
            not {"mauve", "unclear"} & set(shown.split())
            and max(map(len, shown.splitlines())) <= 80
        )

    def test_a_missing_value_is_told_with_what_stands_for_it(
        self, ok: Call, clinic: Clinic
    ) -> None:
        table = [
            [a, "" if k < 5 else dose, *rest] for k, (a, dose, *rest) in enumerate(clinic.table)
        ]
        write_csv(clinic.csv, table)
        clinic.schema.write_text(
            clinic.schema.read_text().replace("hi = 10", "hi = 10\nmissing = 4.5")
        )
        plain = ok("data", clinic.csv, "--schema", clinic.schema, "--json").json
        (count,) = plain["counts"]
        assert (count["column"], count["rows"]) == ("dose", 5)
        assert count["what"].startswith("missing") and count["what"].endswith(" 4.5")
        assert plain["fine"] and count["fits"]

    def test_all_that_training_would_refuse_is_told_at_once(
        self, run: Call, clinic: Clinic
    ) -> None:
        table = [[*row, "1"] for row in clinic.table]
        table[4][1] = "ninety"
        header = ["age", "dose", "colour", "hospital", "outcome", "extra"]
        write_csv(clinic.csv, table, header)
        ran = run("data", clinic.csv, "--schema", clinic.schema, "--json")
        assert ran.code == 2 and ran.err == ""
        refusals = ran.json["refused"]
        assert len(refusals) == 2 and "extra" in refusals[0] and "dose" in refusals[1]
        clinic.says_nothing_private(ran.out)
        assert "ninety" not in ran.out
        assert run(*clinic.train).code == 2
        write_csv(clinic.csv, [row[2:] for row in clinic.table], header[2:5])
        ran = run("data", clinic.csv, "--schema", clinic.schema)
        assert (
            ran.code == 2
            and ran.out.count("refused") == 2
            and "age" in ran.out
            and "dose" in ran.out
        )

    def test_a_table_without_a_schema_is_refused(
        self, refused: Callable[..., str], clinic: Clinic
    ) -> None:
        assert "--schema" in refused("data", clinic.csv)
