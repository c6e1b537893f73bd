"""Rows of a database by a query in a file: names and types kept, nothing of the database in a
message.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sottovoce.data import Schema, load, read_table
from sottovoce.data.draft import draft
from sottovoce.data.sql import DATABASE, DRIVERS
from sottovoce.errors import InvalidInput

SCHEMA = Schema.from_dict(
    {
        "intercept": True,
        "label": {"column": "ill", "positive": "1", "negative": "0"},
        "columns": {
            "age": {"kind": "number", "lo": 0, "hi": 120, "missing": 60},
            "ward": {"kind": "category", "values": ["quarzberg", "tannfels"], "indicator": True},
        },
    }
)


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with sqlite3.connect(tmp_path / "clinic.db") as database:
        database.execute("CREATE TABLE visits (id INTEGER, age REAL, ward TEXT, ill INTEGER)")
        rows = [
            (k, None if k == 3 else 30.5 + k, [None, "quarzberg", "tannfels"][k % 3], k % 2)
            for k in range(20)
        ]
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
    database.close()
    monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path / 'clinic.db'}")
    path = tmp_path / "visits.sql"
    path.write_text("SELECT age, ward, ill FROM visits WHERE id < 12 ORDER BY id\n")
    return path


@pytest.mark.parametrize("door", ["python", "adbc"])
class TestAsked:
    @pytest.fixture(autouse=True)
    def _door(
        self, door: str, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SQLite by Python's module; or as servers are, through Arrow by a driver."""
        if door == "adbc":
            pytest.importorskip("adbc_driver_sqlite")
            monkeypatch.setitem(DRIVERS, "file", "adbc_driver_sqlite")
            monkeypatch.setenv(DATABASE, f"file://{tmp_path / 'clinic.db'}")

    def test_rows_are_those_that_the_query_selects(self, door: str, query: Path) -> None:
        table = read_table(query)
        assert list(table.columns) == ["age", "ward", "ill"] and table.n_rows == 12
        assert table.columns["age"].tolist()[:5] == [30.5, 31.5, 32.5, None, 34.5]
        assert table.columns["ward"].tolist()[:3] == [None, "quarzberg", "tannfels"]
        dataset = load(query, schema=SCHEMA, test_share=None)
        assert dataset.X_train.shape == (12, 5) and dataset.y_train.tolist() == [-1.0, 1.0] * 6
        assert np.flatnonzero(dataset.X_train[:, 3] > 0).tolist() == [0, 3, 6, 9]

    def test_a_draft_has_the_names(self, door: str, query: Path) -> None:
        text = draft(query, label="ill")
        assert "[columns.age]" in text and "[columns.ward]" in text and "quarzberg" not in text

    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            ("SELECT nothing FROM visits", "database refused"),
            ("SELEC", "database refused"),
            ("SELECT age, age FROM visits", "once"),
            ("SELECT age FROM visits WHERE id > 99", "selects no row"),
            (
                "SELECT CASE WHEN id < 9 THEN abs(-9223372036854775808) ELSE 0 END AS a FROM "
                "visits",
                "database refused",
            ),
        ],
    )
    def test_refusals_say_nothing_of_the_database(
        self, door: str, query: Path, text: str, rule: str
    ) -> None:
        query.write_text(text)
        with pytest.raises(InvalidInput, match=rule) as refused:
            read_table(query)
        assert "visits WHERE" not in str(refused.value) and "clinic.db" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None or refused.value.__suppress_context__


@pytest.mark.parametrize("address", ["", "clinic.db", "oracle://me:secret@host/x", "://"])
def test_an_address_that_names_no_database_is_not_shown(
    query: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(DATABASE, address)
    with pytest.raises(InvalidInput, match="name the database") as refused:
        read_table(query)
    assert "secret" not in str(refused.value)


def test_a_driver_that_is_not_installed_is_named(
    query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE, "snowflake://me:secret@host/x")
    with pytest.raises(InvalidInput, match="adbc-driver-snowflake") as refused:
        read_table(query)
    install_command = "pip install 'sottovoce[sql]' adbc-driver-snowflake"
    assert refused.value.remedy.endswith(install_command)
    assert "secret" not in str(refused.value)


def test_values_of_a_query_are_read_independently(query: Path, tmp_path: Path) -> None:
    """SQLite's columns have no types: a text in one row must not round, or rename, what others
    hold.
    """
    query.write_text("SELECT x FROM mixed ORDER BY id\n")
    for strange in (2.5, "x", b"x", None, 2**62, "\udc80".encode("utf-8", "surrogatepass")):
        with sqlite3.connect(tmp_path / "clinic.db") as database:
            database.execute("DROP TABLE IF EXISTS mixed")
            database.execute("CREATE TABLE mixed (id INTEGER, x)")
            rows = [
                (0, 1),
                (1, 0.1 + 0.2),
                (2, "1.50"),
                *((3 + k, 1.0) for k in range(3000)),
                (9999, strange),
            ]
            database.executemany("INSERT INTO mixed VALUES (?, ?)", rows)
        database.close()
        assert read_table(query).columns["x"].tolist()[:4] == [1, 0.1 + 0.2, "1.50", 1.0]


def test_a_query_changes_nothing(query: Path) -> None:
    query.write_text("DELETE FROM visits")
    with pytest.raises(InvalidInput, match="database refused"):
        read_table(query)


def test_the_pages_commands_run(
    query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "data.md").read_text(
        encoding="utf-8"
    )
    block = page.split("## Rows in a database")[1].split("```sh\n")[1].split("```")[0]
    asked = block.split("'")[3]
    assert f"export {DATABASE}=sqlite:///clinic.db" in block
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATABASE, "sqlite:///clinic.db")
    Path("visits.sql").write_text(asked + "\n")
    assert read_table("visits.sql").n_rows == 20
