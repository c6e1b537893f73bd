"""`schema check` and `train` take and refuse the same tables, and check tells what would make a
training void.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Call

from sottovoce import RunConfig, Schema, TrainConfig, train
from sottovoce.data import read_csv
from sottovoce.errors import InvalidInput
from sottovoce.runs.table_check import review_for_training

Rows = list[dict[str, str]]
Change = Callable[[Rows], object]

PARTS = {
    "start": "intercept = true",
    "label": 'label = { column = "outcome", positive = "died", negative = "lived" }',
    "site": 'site = "clinic"',
    "person": "",
    "weight": "",
    "na": "",
    "age": '[columns.age]\nkind = "number"\nlo = 0\nhi = 120',
    "grade": '[columns.grade]\nkind = "category"\nvalues = ["low", "high"]',
    "stage": '[columns.stage]\nkind = "bins"\nedges = [0, 2, 4, 6]',
    "seen": '[columns.seen]\nkind = "date"\nepoch = 2020-01-01\nlo = 2020-01-01\nhi = 2024-12-31',
}
PERSON = {"person": 'person = { column = "patient", rows = 2 }'}
WEIGHT = {"weight": 'weight = { column = "w", max = 2 }'}
NUMBER = {"label": 'label = { column = "stay", lo = 0, hi = 60 }'}
CLASSES = {"label": 'label = { column = "ward", values = ["a", "b", "c"] }'}


def made_rows(n: int = 90) -> Rows:
    rng = np.random.default_rng(0)
    return [
        {
            "age": f"{rng.uniform(20, 90):.1f}",
            "grade": str(rng.choice(["low", "high"])),
            "stage": str(rng.integers(0, 6)),
            "seen": f"2022-0{rng.integers(1, 9)}-11",
            "clinic": f"site {'ABC'[k % 3]}",
            "outcome": ["died", "lived"][int(rng.integers(2))],
            "patient": f"p{k // 2}",
            "w": f"{rng.uniform(0.5, 2):.2f}",
            "stay": f"{rng.uniform(1, 50):.1f}",
            "ward": "abc"[int(rng.integers(3))],
        }
        for k in range(n)
    ]


def change(column: str, value: str, rows: object = slice(None)) -> Change:
    """A value in some rows of a column."""

    def apply(table: Rows) -> None:
        for row in table[rows] if isinstance(rows, slice) else [table[k] for k in rows]:  # type: ignore[attr-defined]
            row[column] = value

    return apply


def keep(n: int) -> Change:
    return lambda table: table.__delitem__(slice(n, None))


def drop(column: str) -> Change:
    def apply(table: Rows) -> None:
        for row in table:
            del row[column]

    return apply


def write(path: Path, table: Rows) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


def write_schema(path: Path, **parts: str) -> Path:
    entries = PARTS | parts
    ignored = 'ignore = ["*"]'
    path.write_text("\n".join(filter(None, [ignored, *entries.values()])))
    return path


SOME = [3, 11, 42]
REFUSED = {
    "a row without a site": ({}, change("clinic", "", [7])),
    "a held-out row without a site": ({}, change("clinic", "", [26])),
    "no row with a site": ({}, change("clinic", "")),
    "a site of blanks": ({}, change("clinic", "  ", SOME)),
    "no site column": ({}, drop("clinic")),
    "no label column": ({}, drop("outcome")),
    "no feature column": ({}, drop("age")),
    "no label declared": ({"label": ""}, keep(90)),
    "a limit among numbers": ({}, change("age", "<0.5", SOME)),
    "a decimal comma": ({}, change("age", "41,5", [0])),
    "a mark of missing numbers": ({}, change("age", "NA", SOME)),
    "nan as a text": ({}, change("age", "nan", SOME)),
    "an infinite number": ({}, change("age", "inf", [80])),
    "no number at all": ({}, change("age", "old")),
    "a missing number": ({}, change("age", "", [89])),
    "a word among bins": ({}, change("stage", "late", SOME)),
    "a missing bin": ({}, change("stage", "", SOME)),
    "a day that is none": ({}, change("seen", "2022-02-30", [5])),
    "a day in another order": ({}, change("seen", "11/03/2022", SOME)),
    "a missing day": ({}, change("seen", "", SOME)),
    "a row without a person": (PERSON, change("patient", "", [7])),
    "a declared mark for a person": (PERSON | {"na": 'na = ["?"]'}, change("patient", "?", SOME)),
    "no person column": (PERSON, drop("patient")),
    "a negative weight": (WEIGHT, change("w", "-1", [44])),
    "a missing weight": (WEIGHT, change("w", "", SOME)),
    "a weight that is no number": (WEIGHT, change("w", "heavy", SOME)),
    "no weight column": (WEIGHT, drop("w")),
    "fewer rows than random sites": ({"site": ""}, keep(4)),
    "fewer people than random sites": ({"site": ""} | PERSON, keep(8)),
    "an undeclared column": ({"start": "intercept = true"}, None),
}
TAKEN = {
    "a table that fits": ({}, keep(90)),
    "people with several rows": (PERSON, keep(90)),
    "people with too many rows": (PERSON, change("patient", "p1", slice(0, 50))),
    "weights": (WEIGHT, keep(90)),
    "weights above their cap": (WEIGHT, change("w", "9", SOME)),
    "weights of zero": (WEIGHT, change("w", "0")),
    "a number to predict": (NUMBER, keep(90)),
    "numbers to predict beyond their bounds": (NUMBER, change("stay", "900")),
    "numbers to predict that are none": (NUMBER, change("stay", "long")),
    "classes": (CLASSES, keep(90)),
    "a class that no row has": (CLASSES, change("ward", "a")),
    "no class that is declared": (CLASSES, change("ward", "q")),
    "no label at all": ({}, change("outcome", "")),
    "labels of one class": ({}, change("outcome", "lived")),
    "labels that nobody declared": ({}, change("outcome", "alive")),
    "labels in capitals": ({}, change("outcome", "DIED", SOME)),
    "all numbers clipped": ({}, change("age", "900")),
    "levels that nobody declared": ({}, change("grade", "medium")),
    "levels in capitals": ({}, change("grade", "High", SOME)),
    "missing levels": ({}, change("grade", "", SOME)),
    "a site of one row": ({}, change("clinic", "site D", [0])),
    "one site": ({}, change("clinic", "site A")),
    "a site a row": (
        {},
        lambda table: [row.update(clinic=row["patient"] + row["age"]) for row in table],
    ),
    "one row": ({}, keep(1)),
    "a scale far too small": ({"start": "scale = 0.01"}, keep(90)),
}


@pytest.fixture
def both(run: Call, tmp_path: Path) -> Callable[..., tuple[object, object]]:
    def ask(parts: dict[str, str], apply: Change | None) -> tuple[object, object]:
        table = made_rows()
        schema = write_schema(tmp_path / "s.toml", **parts)
        if apply is None:
            schema.write_text(schema.read_text().replace('ignore = ["*"]\n', ""))
        else:
            apply(table)
        rows = write(tmp_path / "rows.csv", table)
        checked = run("schema", "check", schema, rows, "--json")
        trained = run(
            "train",
            "--data",
            rows,
            "--schema",
            schema,
            "--method",
            "momentum",
            "--rounds",
            2,
            "--epsilon",
            3,
            "--json",
        )
        return checked, trained

    return ask


@pytest.mark.parametrize("name", REFUSED)
def test_what_training_refuses_check_refuses_in_the_same_words(
    name: str, both: Callable[..., tuple]
) -> None:
    checked, trained = both(*REFUSED[name])
    assert (checked.code, trained.code) == (2, 2)
    said = trained.err.strip().removeprefix("error: ")
    # a hint at `check` may follow
    assert any(said.startswith(line) for line in checked.json["table"]["refused"])
    assert not checked.json["fine"]


@pytest.mark.parametrize("name", TAKEN)
def test_a_table_that_check_accepts_is_trained_on(name: str, both: Callable[..., tuple]) -> None:
    checked, trained = both(*TAKEN[name])
    assert (checked.code, trained.code) == (0, 0), (checked.json["table"]["refused"], trained.err)
    assert checked.json["table"]["refused"] == []


UNREADABLE = {
    "a row with a field too many": b"age,clinic\n1,a\n2,b,c\n",
    "a row with a field too few": b"age,clinic\n1,a\n2\n",
    "two columns of one name": b"age,age\n1,2\n",
    "a header alone": b"age,clinic\n",
    "nothing": b"",
    "an open quote": b'age,clinic\n1,"a\n2,b\n',
    "other than UTF-8": b"age,clinic\n1,\xff\xfe\n",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused_by_both_alike(
    name: str, run: Call, tmp_path: Path
) -> None:
    schema = write_schema(tmp_path / "s.toml")
    (tmp_path / "rows.csv").write_bytes(UNREADABLE[name])
    checked = run("schema", "check", schema, "rows.csv")
    trained = run(
        "train", "--data", "rows.csv", "--schema", schema, "--method", "momentum", "--epsilon", 3
    )
    assert (checked.code, trained.code) == (2, 2)
    assert checked.err == trained.err != ""


def test_data_with_a_table_reports_what_schema_check_reports(run: Call, tmp_path: Path) -> None:
    table = made_rows()
    change("clinic", "", [26])(table)
    schema, rows = write_schema(tmp_path / "s.toml"), write(tmp_path / "rows.csv", table)
    checked = run("schema", "check", schema, rows, "--json").json["table"]
    assert run("data", rows, "--schema", schema, "--json").json == checked
    assert run("data", rows, "--schema", schema).code == 2


def test_rows_without_a_site_are_trained_on_where_the_partition_needs_no_site(
    run: Call, tmp_path: Path
) -> None:
    table = made_rows()
    change("clinic", "", [26])(table)
    schema, rows = write_schema(tmp_path / "s.toml"), write(tmp_path / "rows.csv", table)
    asked = (
        "train",
        "--data",
        rows,
        "--schema",
        schema,
        "--method",
        "momentum",
        "--rounds",
        2,
        "--epsilon",
        3,
    )
    assert run(*asked, "--partition", "iid", "--json").code == 0


ODD = [
    "",
    "NA",
    "nan",
    "<1",
    "1,5",
    "inf",
    "Site A",
    "site A ",
    "TRUE",
    "x",
    "0",
    "-1",
    "1e400",
    "9999999",
    "2021-01-01",
    "?",
    "null",
    "\u00e9",
    "e\u0301",
    "1.0",
    "01",
]
VARIANTS = [
    PERSON,
    WEIGHT,
    NUMBER,
    CLASSES,
    {"site": ""},
    {"na": 'na = ["?", "99"]'},
    {"start": "scale = 0.1"},
    {"age": PARTS["age"] + "\nmissing = 40"},
    {"grade": PARTS["grade"] + "\nother = true"},
    {"stage": PARTS["stage"] + "\nindicator = true"},
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(40))
def test_check_and_training_agree_on_tables_with_odd_values_anywhere(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    parts = dict[str, str]()
    for variant in VARIANTS:
        parts |= variant if draw.random() < 0.25 else {}
    table = made_rows(draw.choice([1, 3, 6, 20, 90]))
    for _ in range(draw.choice([0, 1, 2, 3])):
        column, odd = draw.choice(list(table[0])), draw.choice(ODD)
        changed = (
            table
            if draw.random() < 0.15
            else draw.sample(table, min(len(table), draw.choice([1, 2, 5])))
        )
        for row in changed:
            row[column] = odd
    schema, rows = write_schema(tmp_path / "s.toml", **parts), write(tmp_path / "rows.csv", table)
    found = review_for_training(Schema.from_toml(schema), read_csv(rows))
    run = RunConfig("momentum", epsilon=3.0, delta=1e-5, rounds=2, seed=0)
    config = TrainConfig(run, data=str(rows), schema=str(schema))
    if found.refused:
        with pytest.raises(InvalidInput) as error:
            train(config)
        assert str(error.value) in found.refused
    else:
        assert train(config).result.rounds == 2
