"""Messages: one bounded line that shows no rows and cannot steer a terminal."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import data
from sottovoce.data import Schema, Table
from sottovoce.errors import (
    InvalidInput,
    LedgerError,
    NotWritten,
    SchemaError,
    escape_unprintable,
    format_declared_value,
)
from sottovoce.runs.simulate import RunConfig
from sottovoce.runs.training import TrainConfig, train

ROWS = [["Alice Smith", 77516.25], ["Bob Jones", 83311.75]]
STEERS = "\x1b[31m\x1b]0;taken\x07\u202e\r\n"


class Frame:
    """Shows its rows, as data frames do."""

    def __repr__(self) -> str:
        return f"   name      income\n0  {ROWS[0][0]}  {ROWS[0][1]}\n1  {ROWS[1][0]}  {ROWS[1][1]}"


CARRIERS: dict[str, Any] = {
    "frame": Frame(),
    "array": np.array([77516.25, 83311.75]),
    "objects": np.array(ROWS, dtype=object),
    "zero-dimensional": np.array(77516.25),
    "rows": ROWS,
    "row": ROWS[0],
    "mapping": {"name": "Alice Smith", "income": 77516.25},
    "set": {"Alice Smith"},
    "text of a frame": str(Frame()),
    "long text": "Alice Smith, 77516.25; " * 20,
    "table": Table("t", {"name": np.array(["Alice Smith"], dtype=object)}),
    "bytes": b"Alice Smith",
    "many numbers": [77516.25] * 100,
}


def says_no_row(text: str) -> None:
    assert not any(word in text for word in ("Alice", "Smith", "Bob", "77516", "83311"))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_message_shows_no_array_no_frame_and_no_long_text(carrier: str) -> None:
    error = InvalidInput("field", CARRIERS[carrier], "rule", "remedy")
    assert str(error) == f"field=<{type(CARRIERS[carrier]).__name__}>: rule; remedy"
    says_no_row(repr(error) + repr(error.args) + repr(vars(error)))
    if carrier != "frame":  # of this file, which is no package
        says_no_row(repr(pickle.dumps(error)))
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_rows_in_place_of_a_name_are_refused_unseen(carrier: str, tmp_path: Path) -> None:
    value = CARRIERS[carrier]
    calls = [
        lambda: train(TrainConfig(data=value)),
        lambda: data.load(value),
        lambda: train(TrainConfig(data="synthetic:n=50,d=2", partition=value)),
        lambda: RunConfig(method=value),
        lambda: RunConfig(graph=value, rounds=value),
        lambda: RunConfig(seed=value),
    ]
    if not isinstance(value, str | dict):
        calls.append(lambda: data.load("adult", schema=value))
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call()
        if isinstance(value, str) and "\n" not in value:
            continue  # a name, as far as anybody can tell; it is not shown either
        says_no_row(str(caught.value))
    with pytest.raises(InvalidInput) as caught:
        data.load("adult", test_share=value)
    says_no_row(str(caught.value))


def test_short_scalars_are_shown_as_python_writes_them() -> None:
    for value, text in (
        (1.5, "1.5"),
        (np.float64(1.5), "1.5"),
        (np.int64(3), "3"),
        (True, "True"),
        ("a b", "'a b'"),
        (np.str_("a"), "'a'"),
        (Path("x/y"), "'x/y'"),
        ((0, 3), "(0, 3)"),
        ([1.0, 2.0], "[1.0, 2.0]"),
        (float("nan"), "nan"),
        (10**40, str(10**40)),
        (10**400, "<int>"),
        (10**5000, "<int>"),
        (str, "<str>"),
    ):
        assert format_declared_value(value) == text
    rule, remedy = "is odd", "double it"
    assert str(InvalidInput("h", None, rule, remedy)) == f"h: {rule}; {remedy}"
    path = Path("/somewhere", *["folder"] * 100, "run.npz")
    assert (
        format_declared_value(path).endswith("folder/run.npz'")
        and len(format_declared_value(path)) <= 200
    )


@pytest.mark.parametrize("kind", [InvalidInput, SchemaError])
def test_a_message_is_one_bounded_line_whatever_the_names(kind: type[InvalidInput]) -> None:
    error = kind(STEERS * 1000, STEERS, STEERS * 10_000, STEERS * 10_000)
    for text in (str(error), error.field, error.rule, error.remedy):
        assert text.isprintable() and len(text) <= 2000
    assert "\\x1b[31m" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", [LedgerError, NotWritten])
def test_every_error_is_one_bounded_line(kind: type[Exception]) -> None:
    assert (
        str(kind(f"run={STEERS}: is odd")) == "run=\\x1b[31m\\x1b]0;taken\\x07\\u202e\\r\\n: is odd"
    )
    assert len(str(kind("x" * 10**6))) <= 2000
    assert escape_unprintable(escape_unprintable(STEERS)) == escape_unprintable(STEERS)
    assert escape_unprintable("\ud800é", 1) == "…" and escape_unprintable("\ud800é") == "\\ud800é"


def test_headers_with_escape_bytes_are_escaped() -> None:
    schema = Schema.from_dict(
        {
            "columns": {f"a{STEERS}": {"kind": "number", "lo": 0, "hi": 1}},
            "label": {"column": "y", "positive": "1"},
        }
    )
    for columns in (
        {"y": np.array(["1"])},
        {f"a{STEERS}": np.array([0.5]), "y": np.array(["1"]), STEERS: np.array([1])},
    ):
        with pytest.raises(SchemaError) as caught:
            schema.encode(columns)
        assert str(caught.value).isprintable() and "\\x1b" in str(caught.value)
