"""The schema: what it promises (rows in the unit ball), what it counts, what it refuses, and
how.
"""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.data import Schema, builtin_schema
from sottovoce.data.schema import EXAMPLE
from sottovoce.data.schema import LABEL as LABEL_KEY
from sottovoce.errors import InvalidInput, SchemaError

LABEL = {"column": "y", "positive": "yes", "negative": "no"}
SECRET = "31337"


def schema(columns, **entries):
    return Schema.from_dict({"label": LABEL, "columns": columns} | entries)


def one(block, values, **entries):
    """Encode the single column `a`."""
    return schema({"a": block}, **entries).encode({"a": np.array(values)}, labels=False)


def error_of(action, kind=SchemaError):
    with pytest.raises(kind) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_kind_encodes_exactly():
    s = schema(
        {
            "age": {"kind": "bins", "edges": [0, 18, 65, 120], "weight": 2},
            "sex": {"kind": "category", "values": ["F", "M"], "base": "M"},
            "job": {
                "kind": "category",
                "values": {"low": ["a", "b"], "high": ["c"]},
                "other": True,
            },
            "pay": {"kind": "number", "lo": 0, "hi": 10},
            "gain": {"kind": "number", "lo": 0, "hi": 7, "to": "[0,1]", "transform": "log1p"},
            "img": {"kind": "vector", "columns": ["p", "q"], "lo": -10, "hi": 10},
        },
        intercept=True,
    )
    table = {
        "age": ["18", "65"],
        "sex": ["F", "M"],
        "job": ["b", ""],
        "pay": [0, 7.5],
        "gain": [7, 1],
        "p": [3, 0],
        "q": [-4, 0],
        "y": ["no", "yes"],
    }
    rows = s.encode(table)
    expected = np.array(
        [
            [0, 2, 0, 1, 1, 0, 0, -1, 1, 0.6, -0.8, 1],
            [0, 0, 2, 0, 0, 0, 1, 0.5, 1 / 3, 0, 0, 1],
        ]
    ) / np.sqrt(4 + 5 + 1)
    np.testing.assert_allclose(rows.X, expected, rtol=1e-11, atol=0)
    assert rows.y.tolist() == [-1.0, 1.0]
    assert rows.clipped == {}
    assert s.feature_names == [
        *("age[0,18)", "age[18,65)", "age[65,120]", "sex=F", "job=low", "job=high", "job=other"),
        *("pay", "gain", "p", "q", "intercept"),
    ]
    assert s.n_features == rows.X.shape[1] == 12


def test_clipping_is_counted_and_lands_on_the_bound():
    bins = one({"kind": "bins", "edges": [0, 1, 2]}, [-0.1, 0, 1, 2, 2.1])
    assert bins.clipped == {"a": 2}
    assert (bins.X > 0).tolist() == [[True, False]] * 2 + [[False, True]] * 3
    number = one({"kind": "number", "lo": -1, "hi": 1}, [-5, -1, 0, 1, 5, 6])
    assert number.clipped == {"a": 3}
    np.testing.assert_allclose(number.X[:, 0], [-1, -1, 0, 1, 1, 1], rtol=1e-11)
    category = one({"kind": "category", "values": ["u", "v"]}, ["u", "x", "", "v"])
    assert category.clipped == {"a": 1, "(missing) a": 1}
    assert not category.X[1:3].any()
    vector = {"kind": "vector", "size": 2, "lo": -9, "hi": 9, "norm": 5}
    rows = one(vector, [[3, 4], [6, 8], [0, 1], [0, 10]])
    assert rows.clipped == {"a": 2}
    np.testing.assert_allclose(rows.X, [[0.6, 0.8], [0.6, 0.8], [0, 0.2], [0, 1]], rtol=1e-11)
    rows = one({"kind": "vector", "size": 2, "lo": -3, "hi": 4}, [[9, -9], [3, 4]])
    assert rows.clipped == {"a": 1}
    np.testing.assert_allclose(rows.X, [[0.8, -0.6], [0.6, 0.8]], rtol=1e-11)


def test_infinite_outer_edges_clip_nothing():
    assert one({"kind": "bins", "edges": ["-inf", 0, "inf"]}, [-1e300, 1e300]).clipped == {}


def test_a_declared_scale_shrinks_and_counts_only_the_rows_beyond_it():
    columns = {"a": {"kind": "number", "lo": 0, "hi": 1, "to": "[0,1]"}}
    rows = schema(columns, intercept=True, scale=1.25).encode({"a": [0, 0.75, 1]}, labels=False)
    assert rows.clipped == {"(row)": 1}
    np.testing.assert_allclose(rows.X, [[0, 0.8], [0.6, 0.8], [0.5**0.5, 0.5**0.5]], rtol=1e-11)


def random_schema(rng):
    columns = {}
    for k in range(rng.integers(1, 6)):
        kind = rng.choice(["bins", "category", "number", "vector"])
        block = {"kind": str(kind), "weight": float(10 ** rng.uniform(-2, 2))}
        lo, hi = np.sort(rng.normal(size=2) * 10.0 ** rng.integers(-5, 6, size=2)).tolist()
        if kind == "bins":
            block["edges"] = sorted({lo, hi, *rng.normal(size=3).tolist()})
        elif kind == "category":
            block |= {"values": ["a", "b", "1"], "other": bool(rng.integers(2))}
        elif kind == "number":
            block |= {"lo": lo, "hi": hi, "to": str(rng.choice(["[0,1]", "[-1,1]"]))}
            if rng.integers(2):
                a, b = np.sort(rng.uniform(size=2))
                block["typical"] = [lo + a * (hi - lo), lo + b * (hi - lo)]
        else:
            block |= {"lo": lo, "hi": hi, "size": int(rng.integers(1, 40))}
            block["norm"] = "unit" if rng.integers(2) else float(10 ** rng.uniform(-9, 9))
        if kind != "category":
            block["missing"] = 0
        columns[f"c{k}"] = block
    entries = {
        "intercept": float(rng.integers(2) * rng.uniform(0.1, 3)),
        "unit": bool(rng.integers(4) == 0),
    }
    return Schema.from_dict({"columns": columns} | entries)


def garbage(rng, n, width):
    values = rng.normal(size=(n, width)) * 10.0 ** rng.integers(-320, 300, size=(n, width)).astype(
        float
    )
    values[rng.uniform(size=values.shape) < 0.1] = 0.0
    if rng.integers(2):
        return values
    text = values.astype(object)
    text[rng.uniform(size=text.shape) < 0.2] = ""
    text[rng.uniform(size=text.shape) < 0.1] = None
    return np.vectorize(lambda v: v if v is None else str(v), otypes=[object])(text)


@pytest.mark.parametrize("seed", range(150))
def test_rows_of_any_values_have_norm_at_most_one(seed):
    rng = np.random.default_rng(seed)
    s = random_schema(rng)
    if seed % 2 and not s.unit:
        s = replace(s, scale=s.bound * rng.uniform(0.05, 1))
    table = {
        block.name: garbage(rng, 60, len(block.feature_names) if block.kind == "vector" else 1)
        for block in s.blocks
    }
    table = {b.name: table[b.name] if b.kind == "vector" else table[b.name][:, 0] for b in s.blocks}
    X = s.encode(table, labels=False).X
    assert np.isfinite(X).all()
    norms = np.linalg.norm(X, axis=1)
    assert norms.max() <= 1.0
    assert np.sqrt((X**2).sum(axis=1)).max() <= 1.0
    if s.unit:
        assert np.all((norms == 0) | (norms > 1 - 1e-11))
    elif s.intercept and s.scale is None and s.bound == s.divisor:
        np.testing.assert_allclose(X[:, -1], s.intercept / s.bound, rtol=1e-9)


def test_the_smallest_numbers_make_no_long_rows():
    """Norms of numbers that have underflowed have few digits, so dividing by them is not enough."""
    tiny = np.array([[5e-324, 5e-324], [1e-322, 1.5e-322], [3e-308, -4e-308], [0.0, 0.0]])
    columns = {"a": {"kind": "vector", "size": 2, "lo": -1, "hi": 1}}
    expected = [[0.5**0.5] * 2, [20 / 1300**0.5, 30 / 1300**0.5], [0.6, -0.8], [0, 0]]
    for norm, unit in (("unit", False), (1, True)):
        X = (
            schema({"a": columns["a"] | {"norm": norm}}, unit=unit)
            .encode({"a": tiny}, labels=False)
            .X
        )
        np.testing.assert_allclose(X, expected, rtol=1e-11)
        assert np.linalg.norm(X, axis=1).max() <= 1.0


def test_typical_range_is_mapped_and_rows_beyond_it_are_clipped():
    block = {"kind": "number", "lo": 0, "hi": 100, "typical": [20, 40]}
    s = schema({"a": block, "b": {"kind": "category", "values": ["u"]}}, intercept=True)
    assert (s.divisor, s.bound) == (3**0.5, 51**0.5)
    rows = s.encode({"a": [20, 30, 35, 40, 50, 200], "b": ["u"] * 6}, labels=False)
    long = [[2, 1, 1], [7, 1, 1]]
    inside = np.array([[-1, 1, 1], [0, 1, 1], [0.5, 1, 1], [1, 1, 1]]) / 3**0.5
    expected = [*inside, *(np.array(row) / np.linalg.norm(row) for row in long)]
    np.testing.assert_allclose(rows.X, expected, rtol=1e-11)
    assert rows.clipped == {"a": 1, "(row)": 2}
    assert replace(s, scale=s.bound).encode({"a": [200], "b": ["u"]}, labels=False).clipped == {
        "a": 1
    }


def test_a_typical_range_follows_the_transform_and_the_interval():
    block = {"kind": "number", "lo": 0, "hi": np.expm1(8), "transform": "log1p", "to": "[0,1]"}
    s = schema({"a": block | {"typical": [float(np.expm1(2)), float(np.expm1(4))]}})
    assert s.bound == pytest.approx(3) and s.divisor == 1
    X = replace(s, scale=s.bound).encode({"a": np.expm1([0.0, 2, 3, 4, 8])}, labels=False).X
    np.testing.assert_allclose(3 * X[:, 0], [-1, 0, 0.5, 1, 3], atol=1e-10)


def test_typical_range_equal_to_the_bounds_changes_no_bit():
    values = np.random.default_rng(0).normal(size=200)
    for more in ({}, {"to": "[0,1]"}, {"lo": -0.9, "transform": "log1p"}):
        block = {"kind": "number", "lo": -1.3, "hi": 2.1} | more
        rows = [
            one(given, values).X
            for given in (block, block | {"typical": [block["lo"], block["hi"]]})
        ]
        assert np.array_equal(*rows)


def test_unit_rows_have_norm_one_and_rows_of_zeros_stay():
    columns = {
        "a": {"kind": "number", "lo": -1, "hi": 1},
        "b": {"kind": "number", "lo": -1, "hi": 1},
    }
    table = {"a": [0.3, 0, 0.6], "b": [0.4, 0, 0.8]}
    rows = schema(columns, unit=True).encode(table, labels=False)
    np.testing.assert_allclose(rows.X, [[0.6, 0.8], [0, 0], [0.6, 0.8]], rtol=1e-11)
    assert rows.clipped == {}
    with_constant = schema(columns, unit=True, intercept=True).encode(table, labels=False).X
    np.testing.assert_allclose(
        with_constant[:2], [[0.3 / 1.25**0.5, 0.4 / 1.25**0.5, 1 / 1.25**0.5], [0, 0, 1]]
    )


def test_row_with_every_block_at_its_weight_has_norm_one():
    """A row with every block at its weight has norm 1 up to the slack: the division wastes
    nothing.
    """
    columns = {
        "a": {"kind": "number", "lo": 0, "hi": 1},
        "b": {"kind": "category", "values": [1], "weight": 3},
    }
    X = schema(columns, intercept=True).encode({"a": [0.0], "b": [1.0]}, labels=False).X
    assert 1 - 2e-12 < np.linalg.norm(X) <= 1


def test_wording_of_missing_numbers_without_a_declaration():
    bins = {"kind": "bins", "edges": [0, 1, 2]}
    expected_message = (
        "a: has missing values, and the schema declares no replacement for them; "
        "declare missing = VALUE under [columns.a]"
    )
    assert error_of(lambda: one(bins, ["1", ""])) == expected_message
    assert one(bins | {"missing": 0.5}, ["1", ""]).X.argmax(axis=1).tolist() == [1, 0]
    assert one(bins | {"missing": 0.5}, ["1", "?"], na=["?"]).X.argmax(axis=1).tolist() == [1, 0]
    error_of(lambda: one(bins | {"missing": 0.5}, ["1", "?"]))


def test_missing_category_may_stand_for_a_listed_one():
    block = {"kind": "category", "values": ["u", "v"], "missing": "v"}
    assert one(block, ["u", "", None]).X.argmax(axis=1).tolist() == [0, 1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "block", [{"kind": "bins", "edges": [0, 1]}, {"kind": "number", "lo": 0, "hi": 1}]
)
def test_nan_and_infinity_are_errors_even_where_missing_is_declared(bad, block):
    for values in (
        np.array([1.0, bad]),
        np.array(["1", str(bad)]),
        np.array([1.0, bad], dtype=object),
    ):
        assert "finite" in error_of(lambda v=values: one(block | {"missing": 0}, v))
    vector = {"kind": "vector", "size": 2, "lo": 0, "hi": 1}
    assert "finite" in error_of(lambda: one(vector, [[0.5, bad]]))


def test_an_undeclared_column_is_named_with_its_remedy():
    s = schema({"a": {"kind": "number", "lo": 0, "hi": 1}})
    table = {"a": [1], "extra": [2], "y": ["no"]}
    text = error_of(lambda: s.encode(table))
    assert text.startswith("extra: ")
    assert "[columns.extra]" in text and 'ignore = ["extra"]' in text
    for ignore in (["extra"], ["*"]):
        schema({"a": {"kind": "number", "lo": 0, "hi": 1}}, ignore=ignore).encode(table)


def test_an_absent_column_is_named_and_the_header_of_a_headerless_file_is_not():
    s = schema({"a": {"kind": "number", "lo": 0, "hi": 1}})
    text = error_of(lambda: s.encode({SECRET: ["5"], "y": ["no"]}))
    field, _, rule = text.partition(": ")
    assert field == "a" and "'schema'" in rule and "header row" in rule
    assert SECRET not in text


def test_prediction_needs_no_label_and_no_site_and_reads_none():
    s = schema({"a": {"kind": "number", "lo": 0, "hi": 1}}, site="where")
    table = {"a": [1.0], "y": ["no"], "where": ["x"]}
    bare = s.encode({"a": [1.0]}, labels=False)
    assert bare.y is None
    assert np.array_equal(bare.X, s.encode(table).X)
    assert np.array_equal(bare.X, s.encode(table | {"y": ["nonsense"]}, labels=False).X)
    for name in ("y", "where"):
        text = error_of(lambda n=name: s.encode({k: v for k, v in table.items() if k != n}))
        assert text.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("label", "values", "expected"),
    [
        (LABEL, ["yes", "no", SECRET, "", "yes"], [1, -1, 0, 0, 1]),
        ({"column": "y", "positive": "yes"}, ["yes", SECRET, "b", "", "?"], [1, -1, -1, 0, 0]),
        ({"column": "y", "positive": 1}, np.array([1.0, 0.0, np.nan]), [1, -1, 0]),
    ],
)
def test_a_row_with_another_label_is_a_row_of_zeros(label, values, expected):
    """No error: whether such a label occurs is private."""
    s = schema({"a": {"kind": "number", "lo": 0, "hi": 1}}, label=label, intercept=True, na=["?"])
    rows = s.encode({"a": [0.5] * len(values), "y": values})
    assert rows.y.tolist() == expected
    known = np.array(expected) != 0
    assert not rows.X[~known].any() and np.all(rows.X[known, -1] > 0)
    assert rows.clipped == {LABEL_KEY: int(np.sum(~known))}


def test_labels_of_one_class_and_an_undeclared_negative_are_fine():
    s = schema({"a": {"kind": "number", "lo": 0, "hi": 1}}, label={"column": "y", "positive": 7})
    for values, expected in (([7, 3, 3], [1, -1, -1]), ([3, 3], [-1, -1]), ([7.0], [1])):
        assert s.encode({"a": [0.0] * len(values), "y": np.array(values)}).y.tolist() == expected


@pytest.mark.parametrize(
    "block",
    [
        {"kind": "bins", "edges": [0, 1]},
        {"kind": "number", "lo": 0, "hi": 1},
        {"kind": "vector", "columns": ["a", "b"], "lo": 0, "hi": 1},
    ],
)
def test_no_error_shows_a_data_value(block):
    s = schema({"z": {"column": "a"} | block if block["kind"] != "vector" else block}, ignore=["b"])
    for value in (f"x{SECRET}", f"{SECRET}e999", ""):
        table = {"a": ["0", value], "b": ["0", value], "y": ["no", "yes"]}
        text = error_of(lambda t=table: s.encode(t), InvalidInput)
        assert SECRET not in text
        assert "a: " in text


@pytest.mark.parametrize(
    ("columns", "entries", "field"),
    [
        ({"a": {"kind": "bin"}}, {}, "a.kind"),
        ({"a": {"kind": "bins"}}, {}, "[columns.a]"),
        ({"a": {"kind": "bins", "edges": [1, 0]}}, {}, "a.edges"),
        ({"a": {"kind": "bins", "edges": [0, 1], "base": 0}}, {}, "a.base"),
        ({"a": {"kind": "bins", "edges": [0, "inf", "inf"]}}, {}, "a.edges"),
        ({"a": {"kind": "bins", "edges": [0, 1], "edge": 1}}, {}, "a.edge"),
        ({"a": {"kind": "category", "values": []}}, {}, "a.values"),
        ({"a": {"kind": "category", "values": ["u", "u"]}}, {}, "a.values"),
        ({"a": {"kind": "category", "values": "uv"}}, {}, "[columns.a]"),
        ({"a": {"kind": "category", "values": ["u"], "missing": "v"}}, {}, "a.missing"),
        ({"a": {"kind": "number", "lo": 1, "hi": 1}}, {}, "a.lo, hi"),
        ({"a": {"kind": "number", "lo": 0, "hi": float("inf")}}, {}, "a.lo, hi"),
        ({"a": {"kind": "number", "lo": float("nan"), "hi": 1}}, {}, "a.lo, hi"),
        ({"a": {"kind": "number", "lo": -1, "hi": 1, "transform": "log1p"}}, {}, "a.lo"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "weight": 0}}, {}, "a.weight"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "typical": [0, 2]}}, {}, "a.typical"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "typical": [0.5, 0.5]}}, {}, "a.typical"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "typical": [0.5]}}, {}, "a.typical"),
        (
            {"a": {"kind": "number", "lo": 0, "hi": 1, "typical": [float("nan"), 1]}},
            {},
            "a.typical",
        ),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "typical": [0.5, 0.5000001]}}, {}, "a.typical"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1, "typical": 0.5}}, {}, "[columns.a]"),
        ({"a": {"kind": "bins", "edges": [0, 1], "typical": [0, 1]}}, {}, "a.typical"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"unit": True, "scale": 0.5}, "scale"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"unit": 1}, "unit"),
        ({"a": {"kind": "vector", "lo": 0, "hi": 1}}, {}, "a"),
        ({"a": {"kind": "vector", "lo": 0, "hi": 1, "size": 2, "norm": -1}}, {}, "a.norm"),
        ({"a": {"kind": "vector", "lo": 0, "hi": 1, "size": 2, "norm": "L2"}}, {}, "a.norm"),
        ({"y": {"kind": "number", "lo": 0, "hi": 1}}, {}, "y"),
        ({}, {}, "columns"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"scale": 1.01}, "scale"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"intercept": -1}, "intercept"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"ignored": ["b"]}, "ignored"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"ignore": "b"}, "ignore"),
        ({"a": {"kind": "number", "lo": 0, "hi": 1}}, {"label": {"positive": "yes"}}, "label"),
    ],
)
def test_bad_declarations_are_refused_by_name(columns, entries, field):
    with pytest.raises(SchemaError) as caught:
        schema(columns, **entries)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["adult", "mnist37"])
def test_a_schema_survives_json(name):
    s = builtin_schema(name)
    text = json.dumps(s.to_dict(), allow_nan=False)
    again = Schema.from_dict(json.loads(text))
    assert again == s
    assert again.fingerprint == s.fingerprint
    assert replace(s, scale=0.5).fingerprint != s.fingerprint
    assert not s.data_dependent


@pytest.mark.parametrize(
    ("name", "start"), [("adult", "5130d0a4"), ("mnist37", "2f255038"), ("covertype", "5f12fd39")]
)
def test_schemas_without_the_later_entries_keep_their_fingerprint(name, start):
    """Written down by version 0.1: a schema may get new entries, and old files stay what they
    were.
    """
    assert builtin_schema(name).fingerprint.startswith(start)


@pytest.mark.parametrize("change", [{"unit": True}, {"typical": [0.2, 0.8]}])
def test_unit_and_typical_are_part_of_the_fingerprint(change):
    block = {"kind": "number", "lo": 0, "hi": 1}
    plain = schema({"a": block})
    block, entries = (block, change) if "unit" in change else (block | change, {})
    s = schema({"a": block}, **entries)
    assert s.fingerprint != plain.fingerprint
    assert Schema.from_dict(json.loads(json.dumps(s.to_dict()))) == s


@pytest.mark.parametrize("seed", range(30))
def test_random_schemas_survive_json(seed):
    s = random_schema(np.random.default_rng(seed))
    assert Schema.from_dict(json.loads(json.dumps(s.to_dict()))) == s


def test_the_example_in_the_messages_is_a_schema():
    Schema.from_dict(tomllib.loads(EXAMPLE.replace(" and, on a second line, ", "\n")))


def test_from_toml_names_the_schema_after_the_file_and_reports_bad_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('columns.a = {kind = "number", lo = 0, hi = 1}\nscale = 0.5\n')
    assert Schema.from_toml(path).name == "mine"
    path.write_text("columns = [")
    assert "must be TOML" in error_of(lambda: Schema.from_toml(path))
    assert "cannot be read" in error_of(
        lambda: Schema.from_toml(tmp_path / "none.toml"), InvalidInput
    )
