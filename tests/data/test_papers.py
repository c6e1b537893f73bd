"""The papers' encoding of Adult, against the counts that the papers and the data set print."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce.data import builtin_table, complete_cases, load
from sottovoce.data.columns import row_norms


@pytest.fixture(scope="module")
def data():
    return load("adult-002")


def test_105_features_of_45222_rows(data):
    assert data.X_train.shape == (40_000, 105)
    assert data.X_test.shape == (5_222, 105)
    names = data.schema.feature_names
    assert sum("=" in name for name in names) == 98
    assert [name for name in names if "=" not in name] == [
        *(
            "age",
            "fnlwgt",
            "education-num",
            "capital-gain",
            "capital-loss",
            "hours-per-week",
            "intercept",
        )
    ]


def test_rows_are_divided_by_the_largest_norm(data):
    X = np.vstack([data.X_train, data.X_test])
    norms = row_norms(X)
    assert 1 - 1e-9 < norms.max() <= 1
    assert data.clipped == {}
    # Undo the division: 8 ones and a constant, numbers from 0 to 1 that reach 1.
    raw = X * data.schema.scale
    np.testing.assert_allclose(raw[:, -1], 1, rtol=1e-9)
    np.testing.assert_allclose(raw[:, 6:-1].sum(axis=1), 8, rtol=1e-9)
    np.testing.assert_allclose(raw[:, :6].max(axis=0), 1, rtol=1e-9)
    assert raw[:, :6].min() >= 0


def test_one_row_by_hand(data):
    table = complete_cases(builtin_table("adult"))
    row = {name: values[0] for name, values in table.columns.items()}
    x = data.schema.encode(
        {name: values[:1] for name, values in table.columns.items()}, labels=False
    ).X[0]
    features = dict(zip(data.schema.feature_names, x * data.schema.scale, strict=True))
    assert features["age"] == pytest.approx(float(row["age"]) / 90)
    assert features["capital-gain"] == pytest.approx(float(row["capital-gain"]) / 99_999)
    assert features[f"education={row['education']}"] == pytest.approx(1)
    assert features["education=Preschool"] == 0


def test_non_private_accuracy(data):
    model = LogisticRegression(C=30, fit_intercept=False, max_iter=1000).fit(
        data.X_train, data.y_train
    )
    assert model.score(data.X_test, data.y_test) >= 0.84


def test_schema_from_rows_states_that_it_is_data_dependent(data):
    assert data.schema.data_dependent
    assert data.caveat == data.schema.caveat
    assert any(data.caveat[1:] in note for note in data.notes)
    assert data.schema.to_dict()["data_dependent"] is True


def test_complete_cases_keeps_what_adult_names_counts():
    table = builtin_table("adult")
    assert table.n_rows == 48_842
    assert complete_cases(table).n_rows == 45_222
    assert complete_cases(table, ["age"]).n_rows == 48_842
