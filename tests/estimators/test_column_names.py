"""Names of columns: each is of one column, whatever table brings them, and a message names the
one that is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sottovoce import ConsensusClassifier, ConsensusPCA, ConsensusRegressor, SchemaTransformer
from sottovoce.data.frames import read_frame
from sottovoce.errors import InvalidInput

SCHEMA = {
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 90},
        "bp": {"kind": "number", "lo": 0, "hi": 200},
    },
    "intercept": True,
}
RNG = np.random.default_rng(0)
AGE, BP = RNG.uniform(0, 90, 120), RNG.uniform(0, 200, 120)
Y = (AGE > 45).astype(int)
FRAME = pd.DataFrame({"age": AGE, "bp": BP})


def models() -> list[Any]:
    return [
        ConsensusClassifier(schema=SCHEMA, random_state=0),
        ConsensusClassifier(data_norm=250.0, random_state=0),
        ConsensusRegressor((0, 1), data_norm=250.0, random_state=0),
        ConsensusPCA(data_norm=250.0, random_state=0),
        ConsensusPCA(schema=SCHEMA, random_state=0),
        SchemaTransformer(SCHEMA),
    ]


@pytest.mark.parametrize(
    "twice",
    [
        pd.concat([FRAME, FRAME[["age"]]], axis=1),
        pd.concat([FRAME, FRAME["age"].rename("age")], axis=1),
        pa.table([AGE, BP, AGE], names=["age", "bp", "age"]),
        FRAME.merge(FRAME[["bp"]], left_index=True, right_index=True).set_axis(
            ["age", "bp", "age"], axis=1
        ),
    ],
)
def test_duplicate_column_names_are_refused_and_named(twice: Any) -> None:
    for model in models():
        with pytest.raises(InvalidInput, match=r"^X: .*'age'") as caught:
            model.fit(twice, Y)
        assert "\n" not in str(caught.value) and caught.value.field == "X"


def test_error_lists_all_duplicate_names_and_cuts_long_ones() -> None:
    with pytest.raises(InvalidInput, match=r"'age', 'bp' are"):
        read_frame(pd.concat([FRAME, FRAME], axis=1))
    many = FRAME[["age"] * 2].set_axis(["x" * 300] * 2, axis=1)
    with pytest.raises(InvalidInput) as caught:
        read_frame(many)
    assert len(str(caught.value)) < 200
    with pytest.raises(InvalidInput, match=r"'e' and 3 more"):
        read_frame(pd.DataFrame(np.zeros((2, 16)), columns=list("abcdefgh") * 2))


@pytest.mark.parametrize("names", [["3.5", "3.5"], [0, 0], [1, "1"]])
def test_duplicate_names_that_look_like_values_are_not_shown(names: list[Any]) -> None:
    for model in models()[:2]:
        with pytest.raises(InvalidInput, match=r"same number") as caught:
            model.fit(FRAME.set_axis(names, axis=1), Y)
        assert "3.5" not in str(caught.value)


def test_duplicate_names_of_arrays_and_dicts_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^columns: .*'age'"):
        read_frame(np.c_[AGE, BP], ["age", "age"])
    with pytest.raises(InvalidInput, match=r"^X: .* once"):
        read_frame({"age": AGE, 1: BP, "1": BP})


def test_multiindex_columns_are_refused_under_a_schema_and_ignored_without_one() -> None:
    levels = FRAME.set_axis(pd.MultiIndex.from_tuples([("a", "age"), ("a", "bp")]), axis=1)
    for model in models():
        if getattr(model, "schema", None) is None:
            assert not hasattr(model.fit(levels, Y), "feature_names_in_")
        else:
            with pytest.raises(InvalidInput, match=r"several levels"):
                model.fit(levels, Y)


@pytest.mark.parametrize("one", [FRAME["age"], pl.Series("age", AGE), pa.chunked_array([AGE]), AGE])
def test_a_series_is_refused_as_table(one: Any) -> None:
    for model in models():
        with pytest.raises(InvalidInput, match=r"^X"):
            model.fit(one, Y)


@pytest.mark.filterwarnings("ignore:every row is shorter", "ignore:.*of 120 rows are longer")
def test_sparse_frames_are_read_or_refused_in_words() -> None:
    sparse = FRAME.astype(pd.SparseDtype(float, 0.0))
    model = ConsensusClassifier(data_norm=250.0, random_state=0, epsilon=8.0)
    dense = model.fit(FRAME, Y).coef_.copy()
    np.testing.assert_allclose(model.fit(sparse, Y).coef_, dense, rtol=1e-6)
    under = ConsensusClassifier(schema=SCHEMA, random_state=0)
    assert np.array_equal(under.fit(sparse, Y).coef_, under.fit(FRAME, Y).coef_)
    with pytest.raises(InvalidInput, match=r"sparse.*to_dense"):
        ConsensusPCA(data_norm=250.0, random_state=0).fit(sparse)
