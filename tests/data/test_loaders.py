"""Loading by name and by path."""

import csv
import gzip
import hashlib
import inspect
import io
import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce.data import builtin_table, describe, load, make_synthetic, read_csv, read_parquet
from sottovoce.data.loaders import SYNTHETIC
from sottovoce.data.values import column_as_text, distinct_texts, value_as_text
from sottovoce.errors import InvalidInput, SchemaError

CSV = "a,b,y,where\n" + "".join(
    f"{k},{'uv'[k % 2]},{'yes' if k % 3 else 'no'},s{k % 4}\n" for k in range(20)
)
SCHEMA = """
intercept = true
site = "where"
label = {column = "y", positive = "yes"}
columns.a = {kind = "number", lo = 0, hi = 10}
columns.b = {kind = "category", values = ["u", "v"]}
"""


@pytest.fixture(scope="module")
def adult():
    return load("adult")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (tmp_path / "t.csv.xz").write_bytes(lzma.compress(CSV.encode()))
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def test_adult_shape_split_and_balance(adult):
    assert adult.X_train.shape == (40_000, adult.n_features)
    assert adult.X_test.shape == (8_842, adult.n_features)
    assert adult.n_features == adult.schema.n_features <= 40
    ups = np.sum(adult.y_train > 0) + np.sum(adult.y_test > 0)
    assert ups == 11_687  # 23.93% of 48,842 (adult.names)
    assert set(adult.y_train) == {-1.0, 1.0}
    assert adult.clipped == {}
    assert not adult.schema.data_dependent
    assert not adult.notes
    assert len(adult.train_columns["race"]) == 40_000
    assert np.array_equal(adult.train_columns["income"] == ">50K", adult.y_train > 0)


def test_adult_is_the_table_of_its_source_text_for_text():
    """As CSV it is what `scripts/make_data.py` read: 5,547,834 bytes of that digest."""
    table = builtin_table("adult")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    found = text.getvalue().encode("ascii")
    assert len(found) == 5_547_834
    assert (
        hashlib.sha256(found).hexdigest()
        == "bf0482767305b8e0fdea738fe4e72ec6ee531a69f99ed34cc196f741c7c43298"
    )


@pytest.mark.parametrize(
    "values",
    [
        ["b", " a", "b", "", "a", "é "],
        ["x", None, b"x ", "", None, b"\xff"],
        [1, True, 1.0, "1", None, b"1", 0.5, -0.0, float("nan"), 10**30],
        [2.0, 1.0, 2.0],
        [],
    ],
)
def test_repeated_texts_are_parsed_once_with_the_same_result(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    each = np.array([value_as_text(value) for value in values], dtype=np.str_)
    texts, which = distinct_texts(column)
    assert np.array_equal(texts[which], each) and set(which.tolist()) == set(range(len(texts)))
    assert column_as_text(column).dtype == each.dtype and np.array_equal(
        column_as_text(column), each
    )
    for typed in (each, np.array([3, 1, 3]), np.array([0.5, 2.0]), np.array([True, False])):
        texts, which = distinct_texts(typed)
        assert np.array_equal(texts[which], column_as_text(typed))


def test_adult_rows_lie_in_the_unit_ball(adult):
    assert np.linalg.norm(np.vstack([adult.X_train, adult.X_test]), axis=1).max() <= 1.0


def test_the_split_does_not_depend_on_the_seed_of_the_run(adult):
    other = load("adult", rng_seed=1, test_share=0.5)
    assert np.array_equal(other.X_test, adult.X_test)


def test_non_private_accuracy(adult):
    model = LogisticRegression(C=1e3, fit_intercept=False, max_iter=1000).fit(
        adult.X_train, adult.y_train
    )
    assert model.score(adult.X_test, adult.y_test) >= 0.853


def test_mnist37():
    data = load("mnist37")
    assert data.X_train.shape == (12_396, 784)
    assert data.X_test.shape == (2_038, 784)
    assert (int(np.sum(data.y_train > 0)), int(np.sum(data.y_test > 0))) == (6_265, 1_028)
    norms = np.linalg.norm(data.X_train, axis=1)
    assert 1 - 1e-9 < norms.min() <= norms.max() <= 1
    # The plainest of classifiers: which class mean is nearer in angle.
    w = data.X_train[data.y_train > 0].mean(axis=0) - data.X_train[data.y_train < 0].mean(axis=0)
    middle = w @ data.X_train.mean(axis=0)
    assert np.mean((data.X_test @ w > middle) == (data.y_test > 0)) > 0.93


def test_builtin_adult_is_the_original_table():
    table = builtin_table("adult")
    assert table.n_rows == 48_842
    assert np.sum(table.columns["split"] == "train") == 32_561
    first = {name: values[0] for name, values in table.columns.items()}
    assert (first["age"], first["workclass"], first["income"]) == ("39", "State-gov", "<=50K")
    assert np.sum(table.columns["occupation"] == "") == 2_809
    assert set(table.columns["income"]) == {"<=50K", ">50K"}


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz"])
def test_csv_file_with_a_schema_is_loaded_and_split(files, suffix):
    data = load(files / f"t{suffix}", schema=files / "s.toml", test_share=0.25, rng_seed=3)
    assert data.X_train.shape == (15, 4)
    assert data.X_test.shape == (5, 4)
    assert data.clipped == {"a": 9}
    assert sorted(data.train_columns) == ["a", "b", "where", "y"]
    again = load(files / f"t{suffix}", schema=data.schema, test_share=0.25, rng_seed=3)
    assert np.array_equal(again.X_train, data.X_train)
    whole = load(files / f"t{suffix}", schema=data.schema.to_dict(), test_share=None)
    assert whole.X_train.shape == (20, 4)
    assert whole.X_test.shape == (0, 4)
    assert np.array_equal(whole.y_train, np.where(np.arange(20) % 3, 1.0, -1.0))


def test_parquet_gives_the_rows_of_the_csv(files):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = read_csv(files / "t.csv").columns
    typed = {"a": [int(v) for v in table["a"]]} | {
        k: table[k].tolist() for k in ("b", "y", "where")
    }
    pq.write_table(pa.table(typed), files / "t.parquet")
    options = {"schema": files / "s.toml", "test_share": None}
    assert np.array_equal(
        load(files / "t.parquet", **options).X_train, load(files / "t.csv", **options).X_train
    )


def test_parquet_tells_null_from_nan(files):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    schema = {
        "columns": {"a": {"kind": "number", "lo": 0, "hi": 1, "missing": 1}},
        "label": {"column": "y", "positive": 1},
    }
    for value in (None, float("nan")):
        pq.write_table(pa.table({"a": pa.array([0.5, value]), "y": [0, 1]}), files / "n.parquet")
        if value is None:
            assert load(files / "n.parquet", schema=schema, test_share=None).X_train[
                1, 0
            ] == pytest.approx(1)
        else:
            with pytest.raises(SchemaError, match="finite"):
                load(files / "n.parquet", schema=schema)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'sottovoce\[parquet\]'"):
        read_parquet("t.parquet")


def test_a_path_without_a_schema_shows_how_to_give_one(files):
    with pytest.raises(InvalidInput) as caught:
        load(files / "t.csv")
    text = str(caught.value)
    assert text.startswith("schema: ") and "schema='my.toml': " in text
    assert "\n" not in text
    assert "label = {" in text


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "header row and at least one row"),
        ("a,b\n", "header row and at least one row"),
        ("77,77\n1,2\n", "field 1 of the first row is a number"),
        ("a77,\n1,2\n", "field 2 of the first row is empty"),
        ("a,b\n77\n", "line 2 has 1 field, and the header row has 2"),
        ('a,b\n"77,2\n', "a quote that opens in line 2 is never closed"),
        (b"a,b\n77,\xff\n", "line 2 is not in UTF-8"),
    ],
)
def test_bad_csv_is_refused_without_its_content(tmp_path, content, rule):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInput, match=rule) as caught:
        read_csv(path)
    assert "77" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("mnist", {}, "must be one of adult, adult-002, mnist37"),
        ("none.csv", {}, "cannot be read: No such file"),
        ("adult", {"test_share": 1.5}, "test_share=1.5"),
        ("synthetic:n=10,q=3", {}, "name of n, d, seed"),
        ("synthetic:n=ten", {}, "NAME=NUMBER"),
        ("synthetic:n=10,n=20", {}, "n is given twice"),
        ("synthetic:n=0", {}, "n=0: must be at least 1"),
        ("synthetic:flip=0.7", {}, "flip=0.7"),
        ("synthetic", {"schema": {}}, "already encoded"),
    ],
)
def test_invalid_arguments_of_load_are_refused(name, options, text):
    with pytest.raises(InvalidInput, match=text):
        load(name, **options)


def test_a_broken_archive_is_reported(tmp_path):
    for suffix in (".gz", ".xz"):
        (tmp_path / f"t.csv{suffix}").write_bytes(b"not packed")
        with pytest.raises(InvalidInput, match="cannot be read"):
            read_csv(tmp_path / f"t.csv{suffix}")


def test_synthetic_data_by_name_equal_make_synthetic():
    data = load("synthetic:n=300,d=7,seed=2,sites=3,shift=0.5", test_share=0.25)
    rows = make_synthetic(400, 7, 2, sites=3, shift=0.5)
    assert data.X_train.shape == (300, 7)
    assert np.array_equal(np.vstack([data.X_train, data.X_test]), rows.X)
    assert np.array_equal(data.train_columns["site"], np.arange(300) % 3)
    assert list(SYNTHETIC) == list(inspect.signature(make_synthetic).parameters)


def test_synthetic_follows_its_model():
    n = 40_000
    for shift, sites in ((0.0, 1), (0.9, 4)):
        assert (
            np.linalg.norm(make_synthetic(n, 5, 0, sites=sites, shift=shift).X, axis=1).max() <= 1.0
        )
    sure = make_synthetic(n, 5, 0, margin=1e6)
    assert np.mean((sure.X @ sure.w > 0) == (sure.y > 0)) > 0.999
    noisy = make_synthetic(n, 5, 0, margin=1e6, flip=0.3)
    # 4 sigma
    assert np.mean((noisy.X @ noisy.w > 0) == (noisy.y > 0)) == pytest.approx(0.7, abs=0.01)
    coin = make_synthetic(n, 5, 0, margin=0)
    assert np.mean(coin.y) == pytest.approx(0, abs=0.02)
    shifted = make_synthetic(n, 5, 0, sites=2, shift=0.8)
    means = [shifted.X[shifted.site == k].mean(axis=0) for k in (0, 1)]
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 0.8, atol=0.02)


def test_describe_agrees_with_the_data(adult):
    about = {entry["name"]: entry for entry in describe()}
    assert set(about["adult"]) == {"name", "rows", "features", "licence", "about"}
    assert about["adult"]["features"] == adult.n_features
    assert about["adult"]["rows"] == len(adult.y_train) + len(adult.y_test)
    assert (about["mnist37"]["features"], about["adult-002"]["features"]) == (784, 105)


@pytest.mark.parametrize("kind", ["text", "dictionary", "list"])
def test_parquet_with_a_repeated_long_value_is_shared_or_refused(tmp_path: Path, kind: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    long: Any = [0] * 2_000_000 if kind == "list" else "x" * 1_000_000
    column = pa.array([long] * (20 if kind == "list" else 300))
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"a": column.dictionary_encode() if kind == "dictionary" else column}), path
    )
    assert path.stat().st_size < 100_000
    if kind == "dictionary":
        values = read_parquet(path).columns["a"]
        assert (
            len(values) == 300 and len({id(value) for value in values}) < 10 and values[-1] == long
        )
        return
    with pytest.raises(InvalidInput, match="268,435,456 bytes"):
        read_parquet(path)


def test_one_long_text_does_not_take_the_memory_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sottovoce.data.values.machine_memory_bytes", lambda: 2.0**20)
    values = np.array(["x" * 100_000, *["a"] * 999], dtype=object)
    with pytest.raises(InvalidInput, match=r"^column: .*memory"):
        column_as_text(values)
    assert column_as_text(values[1:]).tolist() == ["a"] * 999
