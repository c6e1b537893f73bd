"""Records as plain data and back: what was written is read, and everything else is refused with
its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from sottovoce.util.codec import Unreadable, record_from_plain, record_to_plain
from sottovoce.util.typing import Array


class Inner(NamedTuple):
    name: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    truth: bool
    count: int
    size: float
    kind: Literal["a", "b"]
    inner: Inner
    several: list[Inner]
    pair: tuple[str, float]
    by_name: dict[str, float | None]
    numbers: Array = field(compare=False)
    rest: dict[str, Any] = field(default_factory=dict)
    maybe: str | None = None


MADE = Outer(
    True,
    3,
    0.1 + 0.2,
    "b",
    Inner("i", (1, 2)),
    [Inner("j", ())],
    ("x", 1e-300),
    {"north": None, "south": 2.5},
    np.array([[1.0, np.nan], [0.5, -3.0]]),
    {"free": [1, {"as": "it is"}]},
    None,
)


def read(plain: Any) -> Outer:
    return record_from_plain(Outer, json.loads(json.dumps(plain, allow_nan=False)))


def test_a_record_is_read_as_it_was_to_the_bit() -> None:
    plain = record_to_plain(MADE)
    again = read(plain)
    assert again == MADE and np.array_equal(again.numbers, MADE.numbers, equal_nan=True)
    assert plain["numbers"] == [[1.0, None], [0.5, -3.0]] and plain["inner"] == {
        "name": "i",
        "columns": [1, 2],
    }


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("truth", 1, "truth"),
        ("count", True, "count"),
        ("count", 3.0, "count"),
        ("count", "3", "count"),
        ("size", 1, "size"),
        ("size", "inf", "size"),
        ("size", None, "size"),
        ("kind", "c", "kind"),
        ("kind", ["a"], "kind"),
        ("inner", ["i", [1]], "inner"),
        ("inner", {"name": "i", "columns": [1, 2.0]}, "inner.columns[1]"),
        ("inner", {"name": "i"}, "inner: lacks columns"),
        ("several", {}, "several"),
        ("several", [{"name": "i", "columns": []}, {"name": 1, "columns": []}], "several[1].name"),
        ("pair", ["x"], "pair"),
        ("pair", ["x", "y"], "pair[1]"),
        ("by_name", [], "by_name"),
        ("by_name", {"north": 1.0, "secret": "no"}, "by_name[1]"),
        ("numbers", 3.0, "numbers"),
        ("numbers", [1.0, "2.0"], "numbers"),
        ("numbers", [[1.0], [1.0, 2.0]], "numbers"),
        ("numbers", [True], "numbers"),
        ("rest", [], "rest"),
        ("maybe", 3, "maybe"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(
    key: str, value: Any, place: str
) -> None:
    with pytest.raises(Unreadable) as refused:
        read(record_to_plain(MADE) | {key: value})
    assert str(refused.value).startswith(place) and "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["truth", "maybe", "rest"])
def test_a_key_that_is_missing_is_named_though_its_field_has_a_default(key: str) -> None:
    plain = record_to_plain(MADE)
    del plain[key]
    with pytest.raises(Unreadable, match=key):
        read(plain)


@pytest.mark.parametrize("plain", [record_to_plain(MADE) | {"secret": 1}, [], None, "text"])
def test_other_keys_and_other_documents_are_refused(plain: Any) -> None:
    with pytest.raises(Unreadable) as refused:
        read(plain)
    assert "secret" not in str(refused.value)


def test_a_field_that_is_kept_elsewhere_is_neither_written_nor_read() -> None:
    plain = record_to_plain(MADE, leave_out=("numbers",))
    assert "numbers" not in plain
    again = record_from_plain(Outer, plain, numbers=MADE.numbers)
    assert again.numbers is MADE.numbers
    with pytest.raises(Unreadable, match="keys other than"):
        record_from_plain(Outer, record_to_plain(MADE), numbers=MADE.numbers)
