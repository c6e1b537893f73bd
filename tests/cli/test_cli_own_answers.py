"""An evaluation in a ledger is of the model, the threshold and the subgroups that were asked
for, and of no others.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call

from sottovoce.ledger.durable import DurableLedger

LABELS = {
    "two": 'label = { column = "ill", positive = "yes", negative = "no" }',
    "many": 'label = { column = "kind", values = ["a", "b", "c"] }',
    "number": 'label = { column = "days", lo = 0, hi = 40 }',
}
COLUMNS = """
[columns.age]
kind = "number"
lo = -3
hi = 3

[columns.ward]
kind = "category"
values = ["north", "south"]

[columns.sex]
kind = "category"
values = ["f", "m"]
"""
TRAINED = {
    "two": ("--method", "prox_admm", "--rounds", 3, "--epsilon", 30),
    "inferred": ("--inference", "--epsilon", 30),
    "many": ("--method", "prox_admm", "--rounds", 3, "--epsilon", 30),
    "number": ("--epsilon", 30),
}


def write(path: Path, sign: float) -> None:
    rng, n = np.random.default_rng(0), 1500
    age, south, male = rng.normal(size=n), rng.integers(2, size=n), rng.integers(2, size=n)
    score = sign * (2.0 * age + south)
    told = {
        "age": age.round(4),
        "ward": np.array(["north", "south"])[south],
        "sex": np.array(["f", "m"])[male],
        "ill": np.where(score + rng.logistic(size=n) > 0, "yes", "no"),
        "kind": np.array(["a", "b", "c"])[np.digitize(score + rng.logistic(size=n), [-1.0, 1.0])],
        "days": np.clip(20.0 + 4.0 * score + rng.normal(size=n), 0.0, 40.0).round(3),
    }
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(told)
        writer.writerows(zip(*told.values(), strict=True))


@pytest.fixture
def models(ok: Call, tmp_path: Path, what: str) -> Path:
    """`a/run.npz` and `b/run.npz`: of the same rows, and of rows with labels turned round."""
    label = LABELS["two" if what == "inferred" else what]
    used = label.split('"')[1]
    ignored = json.dumps([name for name in ("ill", "kind", "days") if name != used])
    (tmp_path / "s.toml").write_text(f"intercept = true\nignore = {ignored}\n{label}{COLUMNS}")
    for name, sign in (("a", 1.0), ("b", -1.0)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "rows.csv", sign)
        train = (
            "train",
            "--data",
            tmp_path / name / "rows.csv",
            "--schema",
            tmp_path / "s.toml",
            "--nodes",
            2,
        )
        ok(*train, *TRAINED[what], "--save", tmp_path / name / "run.npz")
    ok("ledger", "init", "held.ledger", "--epsilon", 100, "--delta", 1e-5)
    return tmp_path


def told(ok: Call, models: Path, name: str, *more: object) -> Any:
    """What was released; the statement also says what a ledger holds, as it does of every run."""
    rows = models / "a" / "rows.csv"
    plain = ok("evaluate", models / name / "run.npz", rows, "--epsilon", 2, "--json", *more).json
    assert ("ledger" in plain.pop("privacy")) == ("--ledger" in more)
    return plain


A, B = ("a",), ("b",)
STRICT, WARDS, SEXES = ("a", "--threshold", 0.8), ("a", "--by", "ward"), ("a", "--by", "sex")


@pytest.mark.parametrize(
    ("what", "first", "other"),
    [
        ("two", A, B),
        ("two", A, STRICT),
        ("two", WARDS, SEXES),
        ("inferred", A, B),
        ("inferred", A, STRICT),
        ("inferred", WARDS, SEXES),
        ("many", A, B),
        ("number", A, B),
    ],
)
def test_every_question_gets_its_own_answer_and_the_same_one_again(
    ok: Call, models: Path, first: tuple[object, ...], other: tuple[object, ...]
) -> None:
    alone = [told(ok, models, *asked) for asked in (first, other)]  # without a ledger
    assert alone[0] != alone[1]
    for _ in range(2):  # the second time, from the ledger
        assert [
            told(ok, models, *asked, "--ledger", "held.ledger") for asked in (first, other)
        ] == alone
        with DurableLedger.open("held.ledger") as ledger:
            assert len(ledger.runs) == 2


@pytest.mark.parametrize("what", ["two", "many", "number"])
def test_a_run_name_that_is_taken_is_refused_with_a_free_one(
    ok: Call, run: Call, models: Path, what: str
) -> None:
    kept = ("--ledger", "held.ledger", "--run")
    first = told(ok, models, "a", *kept, "mine")
    others: list[tuple[object, ...]] = [("b",)]
    others += [("a", "--threshold", 0.8), ("a", "--by", "sex")] if what == "two" else []
    for name, *options in others:
        rows = models / "a" / "rows.csv"
        ran = run(
            "evaluate",
            models / str(name) / "run.npz",
            rows,
            "--epsilon",
            2,
            *options,
            *kept,
            "mine",
        )
        assert ran.code == 2 and ran.out == ""
        assert "run='mine'" in ran.err
        assert "'mine-2'" in ran.err
    with DurableLedger.open("held.ledger") as ledger:
        assert tuple(ledger.runs) == ("mine",)
    assert told(ok, models, "b", *kept, "mine-2") == told(ok, models, "b") != first
    assert told(ok, models, "a", *kept, "mine") == first


@pytest.mark.parametrize("what", ["two"])
def test_a_name_that_follows_from_the_question_does_not_depend_on_rows(
    ok: Call, models: Path, what: str
) -> None:
    ok("ledger", "init", "other.ledger", "--epsilon", 100, "--delta", 1e-5)
    names = []
    for rows, ledger in (("a", "held.ledger"), ("b", "other.ledger")):
        evaluate = (
            "evaluate",
            models / "a" / "run.npz",
            models / rows / "rows.csv",
            "--epsilon",
            2,
        )
        ok(*evaluate, "--ledger", ledger)
        with DurableLedger.open(ledger) as book:
            names.append(tuple(book.runs))
    assert names[0] == names[1]
