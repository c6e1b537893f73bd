"""What tests/faults/fuzz.py found, each as small as it can be."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import release

from sottovoce.data import Schema
from sottovoce.data.rows import Rows
from sottovoce.errors import (
    InvalidInput,
    LedgerError,
    SchemaError,
    SottovoceError,
    UnknownEvent,
    exit_code_for_error,
)
from sottovoce.ledger.chain import hash_of_record
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.events import from_dict
from sottovoce.problem.schedules import Schedule
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import simulate
from sottovoce.util import files
from sottovoce.util.plain import canonical_json, personalised_hash


def test_schedules_for_another_number_of_nodes() -> None:
    """Failed with IndexError at the site whose value was missing."""
    n = np.full((5, 1), 100.0)
    for name in ("eta", "noise"):
        for schedule in (
            Schedule((0.1, 0.2)),
            Schedule(0.1, growth=(1.0, 1.1)),
            Schedule(0.1, table=(0.1, (0.1, 0.2))),
            Schedule(0.1, factor=(1.0, 2.0)),
        ):
            with pytest.raises(InvalidInput, match=rf"{name}=.*one for each of the 5 nodes"):
                prepare(RunConfig.from_dict({"epsilon": 50.0, "eta": 0.1} | {name: schedule}), n, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", float("nan")),
        ("tol", 1e308),
        ("rounds", "3"),
        ("rounds", 2.0),
        ("rounds", True),
        ("eta", [0.1]),
        ("graph", None),
        ("loss", ["huber"]),
        ("method", {}),
        ("seed", 2**600),
        ("rho", 10**400),
        ("epsilon", "1"),
    ],
)
def test_values_of_other_types_in_a_configuration(name: str, value: Any) -> None:
    """Failed with TypeError, AttributeError, OverflowError, or a NaN in the JSON of the report."""
    with pytest.raises(InvalidInput, match=rf"^{name}=") as caught:
        _ = (
            RunConfig.from_dict({name: value})
            if name == "threshold"
            else RunConfig(**{name: value})
        )
    assert caught.value.field == name


def test_a_schema_that_is_no_mapping() -> None:
    for given in ([], [1], "x", None, 5):
        with pytest.raises(SchemaError, match=r"^schema=.*a mapping"):
            Schema.from_dict(given)  # type: ignore[arg-type]


def test_events_with_fields_of_other_types() -> None:
    """Failed with TypeError, or with a price of NaN, when somebody asked what the ledger comes
    to.
    """
    plain = release().to_dict()
    assert from_dict(json.loads(json.dumps(plain))).to_dict() == plain
    changes: list[dict[str, Any]] = [
        {"beta": "x"},
        {"beta": ["x", "y"]},
        {"beta": ["1.5", "2"]},
        {"beta": [[1], [2]]},
        {"beta": 5},
        {"beta": [True]},
        {"beta": [1e308, 1e308]},
        {"source": 5},
        {"logistic": 1},
        {"dimension": 2.5},
        {"dimension": True},
        {"bend_bound": "x"},
        {"bend_bound": [1.0]},
        {"curvature_bound": 0.25},
        {"claimed": "x"},
        {"K": None},
        {"unheard": 1},
        {"beta": [10**400]},
    ]
    for change in changes:
        with pytest.raises(UnknownEvent, match="this version") as caught:
            from_dict(plain | change)
        assert exit_code_for_error(caught.value) == 2


def forge(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], number: int) -> None:
    """Change a record, and every hash after it: the chain is sound, and what it says is not."""
    db = sqlite3.connect(path, isolation_level=None)
    head = personalised_hash(db.execute("SELECT file_id FROM meta").fetchone()[0])
    for k, body in db.execute("SELECT id, body FROM log ORDER BY id").fetchall():
        said = canonical_json(change(json.loads(body))) if k == number else body
        head = hash_of_record(head, k, said)
        db.execute("UPDATE log SET body = ?, hash = ? WHERE id = ?", (said, head, k))
    db.execute("UPDATE meta SET head = ?", (head,))
    db.close()


@pytest.fixture
def spent(tmp_path: Path, rows: Rows) -> Path:
    path = tmp_path / "a.ledger"
    DurableLedger.create(path, epsilon=900.0, n_nodes=5).close()
    with DurableLedger.open(path) as ledger:
        simulate(
            RunConfig(method="dvp", rounds=2, epsilon=50.0, rho=0.1),
            rows,
            ledger=ledger,
            run_name="one",
        )
    return path


RECORDS: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, {"epsilon": "900"}),
    (1, {"epsilon": {"a": 1}}),
    (1, {"delta": [0.0]}),
    (1, {"accountant": 5}),
    (1, {"at": []}),
    (1, {"demonstration": "no"}),
    (2, {"tag": 5}),
    (2, {"tag": "\u00e9"}),
    (2, {"tag": None}),
    (3, {"events": {}}),
    (3, {"events": [5]}),
    (3, {"events": [[]]}),
    (3, {"run": 5}),
    (3, {"plan": []}),
    (3, {"at": 5}),
    (3, {"releases": {}}),
    (3, {"releases": [5]}),
    (3, {"releases": [[]]}),
    (3, {"releases": [[{}, 1]]}),
    (3, {"releases": [[5, 1]]}),
    (3, {"releases": [[{"event": 5}, 10**9]]}),
    (4, {"count": "1"}),
    (4, {"count": 2}),
    (4, {"release": "1"}),
    (4, {"release": 1.0}),
    (4, {"release": True}),
    (4, {"event": []}),
    (4, {"kept": "x"}),
    (4, {"kind": []}),
)


@pytest.mark.parametrize(("number", "change"), RECORDS)
def test_records_with_entries_of_other_types(
    spent: Path, rows: Rows, number: int, change: dict[str, Any]
) -> None:
    """Failed with TypeError in the middle of a run, or a traceback in `ledger show`."""
    forge(spent, lambda record: record | change, number)
    config = RunConfig(method="dvp", rounds=2, epsilon=60.0, rho=0.1)

    def use() -> None:
        with DurableLedger.open(spent) as ledger:
            ledger.show()
            simulate(config, rows, ledger=ledger, run_name="two")

    with pytest.raises(SottovoceError) as caught:
        use()
    assert exit_code_for_error(caught.value) == 2 and str(caught.value).isprintable()


def test_events_of_another_number_of_nodes(spent: Path) -> None:
    """Failed with a ValueError of NumPy's in `ledger show`."""

    def longer(record: dict[str, Any]) -> dict[str, Any]:
        (event, count), *others = record["releases"]
        return record | {"releases": [[event | {"beta": event["beta"] * 3}, count], *others]}

    forge(spent, longer, 3)
    with pytest.raises(LedgerError, match="record 3"):
        DurableLedger.open(spent)


def test_a_total_that_is_no_number_is_shown_as_infinite(tmp_path: Path) -> None:
    """Failed with `cannot convert float NaN to integer`."""
    path = tmp_path / "a.ledger"
    DurableLedger.create(path, epsilon=float("inf"), n_nodes=2).close()
    with DurableLedger.open(path) as ledger:
        state = ledger.file.read()
        assert np.array_equal(
            state._tally._epsilon_of_units(np.array([float("nan"), 0.0], dtype=object), 0.0),
            [np.inf, 0.0],
        )


def test_a_model_of_another_width_than_its_schema(tmp_path: Path, rows: Rows) -> None:
    """Failed with a ValueError of matmul's."""
    from sottovoce.cli import main

    schema = {
        "columns": {"a": {"kind": "number", "lo": 0, "hi": 1}},
        "label": {"column": "y", "positive": "1"},
    }
    result = simulate(RunConfig(method="dvp", rounds=1, epsilon=50.0, rho=0.1), rows)
    result.extra["schema"] = schema
    files.write_atomically("run", tmp_path / "run.npz", result.packed())
    (tmp_path / "t.csv").write_text("a,y\n0.5,1\n")
    with pytest.raises(SystemExit) as stop:
        main(["predict", str(tmp_path / "run.npz"), str(tmp_path / "t.csv")])
    assert stop.value.code == 2
