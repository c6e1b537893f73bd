"""`sottovoce schema init` and `check`: drafts without values, every mistake at once, counts for
the holder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call, Clinic, make_table, write_csv

from sottovoce.data import Schema, read_csv


class TestInit:
    def test_a_draft_becomes_the_schema(
        self, ok: Call, run: Call, clinic: Clinic, tmp_path: Path
    ) -> None:
        new = tmp_path / "new.toml"
        ok("schema", "init", clinic.csv, "--label", "outcome", "--site", "hospital", "--out", new)
        clinic.says_nothing_private(new.read_text())
        left = run("schema", "check", new, "--json")
        assert left.code == 2 and not left.json["fine"]
        fields = [line.partition(":")[0].partition("=")[0] for line in left.json["mistakes"]]
        assert fields == [
            "age.kind",
            "dose.kind",
            "colour.kind",
            "label.positive",
            "label.negative",
        ]
        text = new.read_text().replace(
            'positive = "?", negative = "?"', 'positive = "sick", negative = "well"'
        )
        for name, block in {
            "age": 'kind = "bins"\nedges = [18, 30, 45, 60, 80]',
            "dose": 'kind = "number"\nlo = 0\nhi = 10',
            "colour": 'kind = "category"\nvalues = ["vermilion", "indigo", "ochre"]',
        }.items():
            head, _, tail = text.partition(f"[columns.{name}]\n")
            text = f"{head}[columns.{name}]\n{block}\n{tail.partition(chr(10))[2]}"
        # drafted for files of R, which have no other mark
        new.write_text(text.replace('na = ["NA"]', "na = []"))
        assert ok("schema", "check", new, clinic.csv, "--json").json["fine"]
        assert Schema.from_toml(new).fingerprint == Schema.from_toml(clinic.schema).fingerprint

    def test_init_refuses_to_overwrite_a_file(
        self, refused: Callable[..., str], ok: Call, clinic: Clinic
    ) -> None:
        assert "exists" in refused("schema", "init", clinic.csv, "--out", clinic.schema)
        assert "mean outcome?" in refused("schema", "init", clinic.csv, "--label", "outcom")
        plain = ok("schema", "init", clinic.csv, "--json").json
        assert plain["schema"] == ok("schema", "init", clinic.csv).out and plain["out"] is None


class TestCheck:
    def test_check_lists_all_mistakes_and_reads_the_table_only_without_any(
        self, run: Call, clinic: Clinic
    ) -> None:
        fine = clinic.schema.read_text()
        clinic.schema.write_text(fine.replace("lo = 0", "min = 0").replace("intercept", "intercep"))
        ran = run("schema", "check", clinic.schema, clinic.csv)
        assert (
            ran.code == 2
            and "2 mistakes" in " ".join(ran.out.split())
            and "was not read" in ran.out
        )
        assert "mean lo?" in " ".join(ran.out.split()) and max(map(len, ran.out.splitlines())) <= 80
        clinic.schema.write_text(fine)
        assert run("schema", "check", clinic.schema, clinic.csv).code == 0

    def test_clipped_missing_and_unknown_by_column(self, ok: Call, clinic: Clinic) -> None:
        table = [list(row) for row in clinic.table]
        for k in range(12):
            table[k][2] = "vermillion" if k < 9 else ""
        for k in range(5):
            table[k][1] = "11000"
        write_csv(clinic.csv, table)
        text = clinic.schema.read_text()
        clinic.schema.write_text(text.replace('"ochre"]', '"ochre"]\nother = true'))
        plain = ok("schema", "check", clinic.schema, clinic.csv, "--json").json
        counted = []
        for one in plain["table"]["counts"]:
            found, _, treatment = one["what"].partition(": ")
            counted.append((one["column"], one["rows"], found, treatment, one["fits"]))
        assert counted == [
            ("dose", 5, "outside the bounds", "clipped", False),
            ("colour", 9, "undeclared value", "counts as other", True),
            ("colour", 3, "missing", "counts as other", True),
        ]
        shown = ok("schema", "check", clinic.schema, clinic.csv).out
        assert "vermillion" not in shown and "holder only" in " ".join(shown.split())
        counts = Schema.from_toml(clinic.schema).encode(read_csv(clinic.csv)).clipped
        assert counts == {"dose": 5, "(other) colour": 9}
        notes = ok(*clinic.train, "--json").json["notes"]
        assert any("as other: " in note and "'colour' in 9 " in note for note in notes)

    def test_counts_of_every_declared_column_on_the_screen(self, run: Call, clinic: Clinic) -> None:
        table = [list(row) for row in clinic.table]
        for k in (7, 99):
            table[k][1] = "<0.5"
        for k in range(9):
            table[k][3] = ""
        for k in range(30):
            table[k][2] = "Indigo"
        for k in range(0, 400, 2):
            table[k][4] = "NA"
        write_csv(clinic.csv, table)
        shown = run("schema", "check", clinic.schema, clinic.csv)
        text = " ".join(shown.out.split())
        assert (
            shown.code == 2 and "Fine" not in text and max(map(len, shown.out.splitlines())) <= 80
        )
        assert "dose 2" in text and "rows 8, 100" in text and "2 as a " in text
        sites = re.search(r"site hospital: (\d+) sites of", text)
        assert sites is not None and sites[1] == "4" and "9 rows missing" in text
        assert "label outcome: " in text and "30 rows differ" in text
        fitting = re.search(r"fits in (\d+) of (\d+) columns", text)
        assert fitting is not None and fitting.groups() == ("1", "3")
        assert "Indigo" not in text and "0.5" not in text.replace("0.50%", "")
        plain = run("schema", "check", clinic.schema, clinic.csv, "--json").json["table"]
        columns = {one["column"]: one for one in plain["columns"]}
        assert list(columns) == ["outcome", "hospital", "age", "dose", "colour"]
        assert columns["dose"]["first_rows"]["not a number"] == [8, 100]
        assert sum(columns["outcome"]["levels"].values()) == 200
        assert {
            "table",
            "schema",
            "rows",
            "refused",
            "counts",
            "fine",
            "caveat",
            "columns",
            "notes",
        } == set(plain)

    def test_labels_without_a_declared_negative(self, ok: Call, clinic: Clinic) -> None:
        table = [list(row) for row in clinic.table]
        for k in range(0, 400, 3):
            table[k][4] = "NA"
        write_csv(clinic.csv, table)
        clinic.schema.write_text(clinic.schema.read_text().replace(', negative = "well"', ""))
        shown = ok("schema", "check", clinic.schema, clinic.csv)
        assert "Fine" not in shown.out and "134" in shown.out

    def test_without_a_table_rows_are_expected_as_before(self, ok: Call, clinic: Clinic) -> None:
        assert ok("schema", "check", clinic.schema).out == ok("data", "--schema", clinic.schema).out
        expected = ok("schema", "check", clinic.schema, "--json").json["expected"]
        assert expected == ok("data", "--schema", clinic.schema, "--json").json

    @pytest.mark.parametrize("text", ["columns = 3", "a = ", "", "\x00"])
    def test_check_lists_mistakes_of_any_file_without_a_traceback(
        self, run: Call, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "s.toml").write_text(text)
        ran = run("schema", "check", "s.toml", "--json")
        assert ran.code == 2 and ran.json["mistakes"] and ran.err == ""
        assert run("schema", "check", "none.toml").code == 2


class TestSurvey:
    @pytest.fixture
    def wide(self, clinic: Clinic, tmp_path: Path) -> Path:
        write_csv(clinic.csv, make_table(4000))
        text = clinic.schema.read_text().replace("hi = 10", "hi = 10000")
        text = text.replace('"ochre"]', '"ochre", "mauve"]')
        text = text.replace('"bins"\nedges = [18, 30, 45, 60, 80]', '"number"\nlo = 0\nhi = 9000')
        (tmp_path / "wide.toml").write_text(text)
        return tmp_path / "wide.toml"

    def test_a_proposed_schema_is_trained_on_with_the_survey_s_price_beside(
        self, ok: Call, clinic: Clinic, wide: Path
    ) -> None:
        found = ok(
            "schema", "survey", wide, clinic.csv, "--epsilon", 1, "--out", "new.toml", "--json"
        ).json
        assert found["toml"] == Path("new.toml").read_text() and found["privacy"]["epsilon"] <= 1
        columns = {one["column"]: one for one in found["columns"]}
        assert columns["dose"]["proposed"]["hi"] == 16.0 and columns["colour"]["dropped"] == [
            "mauve"
        ]
        assert found["schema"]["columns"]["age"]["hi"] == 128
        assert ok("schema", "check", "new.toml", clinic.csv, "--json").json["fine"]
        train = (
            "train",
            "--data",
            clinic.csv,
            "--epsilon",
            2,
            "--method",
            "prox_admm",
            "--rounds",
            5,
            "--json",
        )
        narrow = ok(*train, "--schema", "new.toml").json
        assert (
            "epsilon = 1.000" in narrow["privacy"]["caveat"]
            and "survey" in narrow["privacy"]["caveat"]
        )
        assert narrow["test_error"] < ok(*train, "--schema", wide).json["test_error"] - 0.1

    def test_on_the_screen_nothing_but_what_was_released(
        self, ok: Call, clinic: Clinic, wide: Path
    ) -> None:
        shown = ok("schema", "survey", wide, clinic.csv)
        text = " ".join(shown.out.split())
        hidden = re.findall(r"not seen = \[(.*?)\]", text)
        assert "not a release" in text and hidden == ["mauve"] and "at most" in text
        clinic.says_nothing_private(shown.out)

    def test_survey_with_sizes_prints_what_it_would_see(
        self, ok: Call, refused: Callable[..., str], wide: Path
    ) -> None:
        said = " ".join(ok("schema", "survey", wide, "--sizes", "4000").out.split())
        assert "no data were" in said and "surely seen from" in said
        plan = ok(
            "schema", "survey", wide, "--sizes", "900,900,900", "--trust", "sum", "--json"
        ).json
        assert plan["rows"] == 2700 and plan["columns"] == ["age", "dose", "colour"]
        few = ok("schema", "survey", wide, "--sizes", 2700, "--columns", "dose", "--json").json
        assert few["columns"] == ["dose"] and few["noise"] < plan["noise"]
        assert "100 in all" in refused("schema", "survey", wide, "--sizes", 100)
        assert "give one" in refused("schema", "survey", wide)
        assert "mean dose?" in refused(
            "schema", "survey", wide, "--sizes", 4000, "--columns", "doses"
        )

    def test_survey_and_training_are_paid_for_by_one_ledger(
        self, ok: Call, run: Call, clinic: Clinic, wide: Path
    ) -> None:
        ok("ledger", "init", "l", "--epsilon", 3, "--delta", 1e-5, "--nodes", 4)
        survey = (
            "schema",
            "survey",
            wide,
            clinic.csv,
            "--ledger",
            "l",
            "--system-noise",
            "--out",
            "new.toml",
        )
        ok(*survey)
        first = ok("ledger", "show", "l", "--json").json
        assert (
            ok(*survey).code == 0
            and ok("ledger", "show", "l", "--json").json["spent"] == first["spent"]
        )
        train = (
            "train",
            "--data",
            clinic.csv,
            "--epsilon",
            1,
            "--method",
            "prox_admm",
            "--rounds",
            5,
            "--json",
        )
        trained = ok(*train, "--schema", "new.toml", "--ledger", "l", "--system-noise").json
        assert trained["privacy"]["ledger"]["spent"] > first["spent"][0]
        assert "run " in trained["privacy"]["caveat"]
        write_csv(clinic.csv, make_table(4000, seed=1))
        other = run(
            *train, "--schema", "new.toml", "--ledger", "l", "--system-noise", "--run", "again"
        )
        assert other.code != 0 and "other rows" in other.err
