"""One value: its text, its number, and which texts are one label, level, site, person, weight or
mark.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import ConsensusClassifier
from sottovoce.data import Schema, values
from sottovoce.data.memmap import map_parquet
from sottovoce.data.partition import partition
from sottovoce.data.person import Person
from sottovoce.data.validation import (
    class_index_of_labels,
    classes_from_labels,
    sites_from_groups,
    validate_declared_classes,
)
from sottovoce.data.values import (
    MISSING_MARKS,
    Declared,
    as_python_value,
    canonical_text,
    column_as_numbers,
    column_as_text,
    value_as_number,
    value_as_text,
)
from sottovoce.data.weights import shares_of_classes
from sottovoce.errors import InvalidInput, SchemaError

COLUMNS = {"a": {"kind": "number", "lo": 0, "hi": 1}}


class Coded(str, Enum):  # noqa: UP042  # whose str() is not its text
    ILL = "ill"


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError


def objects(values: list[Any]) -> Any:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((True, np.True_), "true"),
        (
            (
                1,
                1.0,
                np.int8(1),
                np.uint64(1),
                np.float16(1),
                np.longdouble(1),
                Decimal("1.00"),
                Fraction(2, 2),
            ),
            "1",
        ),
        ((0.1, np.float64(0.1), Decimal("0.10"), Fraction(1, 10)), "0.1"),
        ((np.float32(0.7), float(np.float32(0.7))), "0.699999988079071"),
        (
            (
                "ill",
                " ill ",
                np.str_("ill"),
                b"ill",
                np.bytes_(b" ill"),
                Coded.ILL,
                "ill\0",
                "ill \0 ",
            ),
            "ill",
        ),
        (
            (dt.date(2020, 5, 1), dt.datetime(2020, 5, 1), np.datetime64("2020-05-01", "ns")),
            "2020-05-01",
        ),
        (
            (
                dt.datetime(2020, 5, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
                np.datetime64("2020-05-01T10", "h"),
            ),
            "2020-05-01T10:00:00.000000",
        ),
        ((None, np.datetime64("NaT"), np.timedelta64("NaT")), ""),
        ((dt.timedelta(hours=1), np.timedelta64(3600, "s")), "1:00:00"),
        ((2**70, float(2**70), Decimal(2**70)), str(2**70)),
        ((0, -0.0, np.float32(-0.0)), "0"),
        ((math.inf, np.float32("inf"), Decimal("Infinity")), "inf"),
    ],
)
def test_scalars_of_every_library_have_one_text(values: tuple[Any, ...], text: str) -> None:
    assert [value_as_text(value) for value in values] == [text] * len(values)
    assert column_as_text(objects(list(values))).tolist() == [text] * len(values)
    for value in values:
        if isinstance(value, np.generic):
            assert column_as_text(np.array([value])).tolist() == [text]


def test_scalars_of_pandas_have_the_texts_of_pythons() -> None:
    pd = pytest.importorskip("pandas")
    assert [value_as_text(value) for value in (pd.NA, pd.NaT)] == ["", ""]
    assert value_as_text(pd.Timestamp("2020-05-01")) == "2020-05-01"
    assert (
        value_as_text(pd.Timestamp("2020-05-01T10:00:00.000000001")) == "2020-05-01T10:00:00.000000"
    )
    assert (
        value_as_text(pd.Timestamp("2020-05-01", tz="Europe/Berlin"))
        == "2020-04-30T22:00:00.000000"
    )
    assert value_as_text(pd.Timedelta(hours=1)) == "1:00:00"
    assert [
        type(as_python_value(one)) for one in (pd.Timestamp("2020-05-01"), pd.Timedelta(1))
    ] == [
        dt.datetime,
        dt.timedelta,
    ]


@pytest.mark.parametrize(
    "value",
    [10**5000, {"a": 1}, [1, "x"], (1,), "\ud800", Unshowable(), 1 + 2j, Decimal("1e9999")],
    ids=["large", "dict", "list", "tuple", "surrogate", "unshowable", "complex", "decimal"],
)
def test_text_of_any_object_never_raises(value: Any) -> None:
    assert value_as_text(value) == column_as_text(objects([value, 1]))[0] != ""
    assert canonical_text(value_as_text(value)) == value_as_text(value)


def test_numbers_are_those_of_the_value_alone() -> None:
    assert [
        value_as_number(v)
        for v in (np.True_, np.float32(0.5), Decimal("2.50"), Fraction(1, 4), "1e3", b"7")
    ] == [
        1.0,
        0.5,
        2.5,
        0.25,
        1000.0,
        7.0,
    ]
    for wrong in ("true", "ill", dt.date(2020, 1, 1), (1, 2), [1.0], 2j):
        with pytest.raises(ValueError):
            value_as_number(wrong)
    found, missing = column_as_numbers(
        objects([-0.0, "-0.0", 0, np.float32(-0.0), None, "-9.0"]), frozenset({"-9"})
    )
    assert not np.signbit(found).any() and missing.tolist() == [False] * 4 + [True, True]
    typed, gone = column_as_numbers(np.array([-9.0, -0.0, 4.0]), frozenset({"-9.0"}))
    assert gone.tolist() == [True, False, False] and not np.signbit(typed).any()


@pytest.mark.parametrize(
    ("texts", "one"),
    [
        (("true", "True", "TRUE", " True "), "true"),
        (("1", "1.0", "1.", "1.000"), "1"),
        (("0", "-0", "-0.0", "0.0"), "0"),
        (("caf\u00e9", "cafe\u0301"), "caf\u00e9"),
        (("\u212b", "\u00c5", "A\u030a"), "\u00c5"),
        (("-12.0", "-12"), "-12"),
    ],
)
def test_equal_spellings_have_one_canonical_text(texts: tuple[str, ...], one: str) -> None:
    assert {canonical_text(text) for text in texts} == {one}


@pytest.mark.parametrize(
    "texts",
    [
        ("1", "01"),
        ("1", "+1"),
        ("ill", "Ill"),
        ("tRUE", "true"),
        ("1.5", "1.50"),
        ("1e3", "1000"),
        ("\u0661", "1"),
        ("NA", ""),
        ("NA", "na"),
        ("1.0.0", "1"),
        ("yes", "true"),
        ("1", "true"),
    ],
)
def test_different_texts_have_different_canonical_texts(texts: tuple[str, str]) -> None:
    assert canonical_text(texts[0]) != canonical_text(texts[1])


def test_declared_spellings_are_told_apart_as_they_are_written() -> None:
    both = Declared({"true": 0, "True": 1, "1": 2, "1.0": 3, "x": 4})
    assert [
        both.meaning_of_text(text) for text in ("true", "True", "TRUE", "1", "1.0", "1.00", "x ")
    ] == [
        0,
        1,
        None,
        2,
        3,
        None,
        4,
    ]
    alike = Declared({"true": 0, "True": 0, str(2**53 + 1): 1})
    assert alike.meaning_of_text("TRUE") == 0 and "no" not in alike
    # a frame with a gap has lost the digit
    assert (
        alike.meaning_of_text(str(2**53))
        == alike.meaning_of_text(value_as_text(float(2**53 + 1)))
        == 1
    )
    values = [2**53, 2**53 + 1]
    with pytest.raises(SchemaError, match=r"beyond 2\^53"):
        Schema.from_dict({"columns": {"c": {"kind": "category", "values": values}}})


def labels(label: dict[str, Any], values: list[Any], **more: Any) -> list[float]:
    schema = Schema.from_dict({"label": {"column": "y", **label}, "columns": COLUMNS} | more)
    return schema.encode({"a": [0.5] * len(values), "y": objects(values)}).y.tolist()


@pytest.mark.parametrize("positive", [True, "true", "True", "TRUE"])
@pytest.mark.parametrize("yes", [True, np.True_, "true", "True", "TRUE", " True"])
def test_spellings_of_truth_values_are_one_label(positive: Any, yes: Any) -> None:
    no = {True: False, "True": "False", "TRUE": "FALSE"}.get(yes, "false")
    assert labels({"positive": positive}, [yes, no, ""]) == [1.0, -1.0, 0.0]
    assert labels({"positive": positive, "negative": False}, [yes, no, "no"]) == [1.0, -1.0, 0.0]
    assert labels({"values": [False, positive]}, [yes, no, "1"]) == [1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    "mark", [*sorted(MISSING_MARKS), None, " NA ", np.datetime64("NaT"), np.str_("NA"), b"NULL"]
)
def test_marks_of_missing_values_are_no_negatives(mark: Any) -> None:
    assert labels({"positive": "died"}, ["died", mark, "lived"]) == [1.0, 0.0, -1.0]
    if isinstance(mark, str) and mark.strip():  # unless they are declared
        assert labels({"positive": mark}, ["died", mark]) == [-1.0, 1.0]
        assert labels({"positive": "died", "negative": mark}, ["died", mark]) == [1.0, -1.0]


@pytest.mark.parametrize("text", ["unknown", "na", "none", "-", "0", "?", "No"])
def test_other_texts_are_negatives_without_a_declared_one(text: str) -> None:
    assert labels({"positive": "died"}, ["died", text]) == [1.0, -1.0]
    assert labels({"positive": "died"}, ["died", text], na=[text]) == [1.0, 0.0]


def test_marks_are_missing_levels_unless_they_are_declared() -> None:
    def encoded(**entries: Any) -> Any:
        block = {"kind": "category", "values": ["icu", "ward"], **entries}
        found = Schema.from_dict({"columns": {"c": block}}).encode(
            {"c": ["icu", "NA", None, "x"]}, labels=False
        )
        return (found.X > 0).astype(int).tolist(), found.clipped

    assert encoded(indicator=True) == ([[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]], {"c": 1})
    assert encoded(missing="ward") == ([[1, 0], [0, 1], [0, 1], [0, 0]], {"c": 1})
    assert encoded(values=["icu", "NA"], missing="icu") == (
        [[1, 0], [0, 1], [1, 0], [0, 0]],
        {"c": 1},
    )


@pytest.mark.parametrize(
    ("values", "sites"),
    [
        (["1", "1.0", 1, 1.0, np.int8(1), Decimal("1.00")], 1),
        (["caf\u00e9", "cafe\u0301", " caf\u00e9", "x", "x\0", b"x"], 2),
        ([True, "True", "TRUE", np.True_, "false", False], 2),
        (
            [
                dt.date(2020, 5, 1),
                np.datetime64("2020-05-01"),
                dt.datetime(2020, 5, 1),
                "2020-05-01",
                "b",
                "a",
            ],
            3,
        ),
        (["01", "1", "1.5", "1.50", "a", "A"], 6),
        ([2, "10", 3.0, "x", "2.0", 10], 4),
    ],
)
def test_sites_and_persons_are_told_apart_by_the_same_texts(values: list[Any], sites: int) -> None:
    column = objects(values)
    assert (
        len(partition("site:s", np.ones(6), None, columns={"s": column}))
        == len(sites_from_groups(values, 6)[0])
        == sites
    )
    # 01 is 1 of people
    assert len(set(Person("p").number_people(column, frozenset()).tolist())) == sites - (
        "01" in values
    )


def test_sites_come_in_an_order_that_no_other_site_changes() -> None:
    numbers = partition("site:s", np.ones(4), None, columns={"s": np.array([10, 9, 9, 2])})
    mixed = partition("site:s", np.ones(4), None, columns={"s": objects([10, 9, "x", 2])})
    texts = partition("site:s", np.ones(4), None, columns={"s": np.array(["10", "9", "9", "2"])})
    assert (
        [part.tolist() for part in numbers]
        == [part.tolist() for part in texts]
        == [[3], [1, 2], [0]]
    )
    assert [part.tolist() for part in mixed] == [[3], [1], [0], [2]]
    assert sites_from_groups([10, 9, 9, 2], 4)[0].tolist() == [2, 9, 10] and sites_from_groups(
        ["b", "a"], 2
    )[0].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "gap", ["", None, math.nan, "NA", "nan", "<NA>", np.datetime64("NaT"), " NULL "]
)
def test_rows_without_a_site_or_a_person_are_refused(gap: Any) -> None:
    column = objects(["a", gap, "b"])
    for ask in (
        lambda: partition("site:s", np.ones(3), None, columns={"s": column}),
        lambda: sites_from_groups(column, 3),
        lambda: Person("p").number_people(column, frozenset()),
    ):
        with pytest.raises(InvalidInput, match=r"a site|person identifier"):
            ask()


def test_sites_of_a_file_too_large_for_memory_have_the_same_names(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    schema = Schema.from_dict(
        {"site": "s", "label": {"column": "y", "positive": 1}, "columns": COLUMNS}
    )
    table = {"a": [0.5] * 4, "y": ["1", "1.0", "0", "NA"]}
    pq.write_table(
        pa.table({**table, "s": ["b", "cafe\u0301", "b ", "caf\u00e9"]}), tmp_path / "t.parquet"
    )
    rows = map_parquet(tmp_path / "t.parquet", schema, tmp_path / "rows")
    assert rows.n[:, 0].tolist() == [2, 2]
    pq.write_table(pa.table({**table, "s": ["b", "a", "NA", "a"]}), tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="without a site"):
        map_parquet(tmp_path / "t.parquet", schema, tmp_path / "more")


def test_weights_of_classes_are_named_as_labels_are() -> None:
    for given in ({True: 4.0}, {"True": np.float32(4)}, {"TRUE": 4}, {np.True_: Decimal(4)}):
        assert shares_of_classes("class_weight", given, ["false", "true"]).tolist() == [0.25, 1.0]
    assert shares_of_classes("class_weight", {1.0: 2, "0": 1}, [0, 1]).tolist() == [0.5, 1.0]
    for wrong in (
        {1: 2, "1.0": 3},
        {"01": 2},
        {2: 1},
        {1: "2"},
        {1: True},
        {1: 10**400},
        {1: math.nan},
    ):
        with pytest.raises(InvalidInput):
            shares_of_classes("class_weight", wrong, [0, 1])


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (objects([0, 1, 1, 0]), [0, 1]),
        (objects([np.int8(0), 1, np.float64(1), 0.0]), [0.0, 1.0]),
        (objects([np.False_, True, True, False]), [False, True]),
        (objects(["a", "b", "b", "a"]), ["a", "b"]),
        (np.array(["a", "b", "b", "a"]), ["a", "b"]),
        (objects([Decimal(0), 1, 1, Fraction(0)]), [0, 1]),
    ],
)
def test_classes_are_read_off_arrays_of_objects(y: Any, classes: list[Any]) -> None:
    found, index = classes_from_labels(y, 4)
    assert found.tolist() == classes and index.tolist() == [0, 1, 1, 0]
    assert type(found.tolist()[0]) is type(classes[0])


@pytest.mark.parametrize(
    "y",
    [
        [0, 1, None, 1],
        [0, 1, math.nan, 1],
        [0, 1, "a", 1],
        [0, True, "x", 1],
        [{}, 1, 0, 1],
        [0, 1, 2j, 1],
    ],
)
def test_labels_of_several_kinds_are_refused_where_classes_are_read_off_them(y: list[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^y"):
        classes_from_labels(objects(y), 4)


@pytest.mark.parametrize(
    ("classes", "y", "index"),
    [
        ([0, 1], [np.True_, "1.0", b"0", Decimal("1.00"), np.float32(0), "-0"], [1, 1, 0, 1, 0, 0]),
        ([False, True], ["TRUE", "false", np.False_, 1, "yes", None], [1, 0, 0, 1, -1, -1]),
        (["no", "yes"], [np.str_("yes"), " no ", b"no", "No", "", "NA"], [1, 0, 0, -1, -1, -1]),
        (["caf\u00e9", "x"], ["cafe\u0301", "x\0", "X", (1,), [1], {}], [0, 1, -1, -1, -1, -1]),
        (["01", "1"], ["1", 1, 1.0, "01", "001", "1.0"], [1, 1, 1, 0, -1, 1]),
        (
            [0.5, 1.0],
            [0.5, "0.5", np.float16(0.5), Fraction(1, 2), "0.50", np.float32(0.1)],
            [0, 0, 0, 0, -1, -1],
        ),
    ],
)
def test_declared_classes_are_matched_by_the_same_texts(
    classes: list[Any], y: list[Any], index: list[int]
) -> None:
    assert (
        class_index_of_labels(y, validate_declared_classes(classes), 6).tolist()
        == class_index_of_labels(objects(y), validate_declared_classes(classes), 6).tolist()
        == index
    )


def test_a_classifier_takes_whole_numbers_in_an_array_of_objects() -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    y = objects([int(value) for value in X[:, 0] > 0])
    model = ConsensusClassifier("momentum", random_state=0, data_norm=3.0, rounds=3, n_sites=2)
    models = [model.fit(X, labels).coef_ for labels in (y, y.astype(int))]
    assert np.array_equal(*models) and model.classes_.tolist() == [0, 1]
    assert model.fit(X, y).score(X, y) == model.score(X, y.astype(int)) > 0.6


@pytest.mark.parametrize(
    "spelled", [[1, 2, 1, 2], [1.0, 2, 1, 2], [1, 2.0, 1.0, 2], [np.float32(1), 2, np.int8(1), 2]]
)
def test_no_row_changes_the_names_of_sites_that_are_numbers(spelled: list[Any]) -> None:
    for column in (spelled, np.array(spelled, dtype=object), np.array(spelled, dtype=float)):
        sites, parts = sites_from_groups(column, 4)
        assert sites.tolist() == [1, 2] and sites.dtype.kind == "i"
        assert [part.tolist() for part in parts] == [[0, 2], [1, 3]]


def test_site_names_keep_the_type_that_was_given() -> None:
    for given, found in (
        (["1", "2"], ["1", "2"]),
        ([True, False], [False, True]),
        ([1.5, 1], [1.0, 1.5]),
        (["b ", "a"], ["a", "b"]),
        ([1e-7, 2], [1e-7, 2.0]),
        ([-0.0, 3], [0, 3]),
    ):
        assert sites_from_groups(given, 2)[0].tolist() == found


def test_each_text_of_a_column_of_numbers_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal texts are parsed once, also beside values of other kinds; a truth value is no 1."""
    read = []
    parse = values._parse_number_or_missing

    def counted(value: object, marks: frozenset[str]) -> float | None:
        read.append(value)
        return parse(value, marks)

    monkeypatch.setattr(values, "_parse_number_or_missing", counted)
    words = np.array(["1", "2.5", "?"] * 50, dtype=object)
    numbers, missing = values.column_as_numbers(words, frozenset({"?"}))
    assert read == ["1", "2.5", "?"]
    assert (
        numbers.tolist() == [1.0, 2.5, 0.0] * 50 and missing.tolist() == [False, False, True] * 50
    )
    read.clear()
    mixed = np.array(["1", True, 1, "1", None, 0, "0", False], dtype=object)
    numbers, missing = values.column_as_numbers(mixed)
    assert numbers.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert missing.tolist() == [False] * 4 + [True] + [False] * 3
    assert read.count("1") == 1 and len(read) == 7
