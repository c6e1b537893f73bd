"""Estimators under a schema: frames of every library, names, the label, sites and weights of the
frame, files.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    PrivateClassifier,
    PrivateRegressor,
    SchemaTransformer,
)
from sottovoce.data import Schema
from sottovoce.errors import CheckpointError, HolderNote, InvalidInput, SchemaError
from sottovoce.runs.row_guard import RowGuard

COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "lo": 0, "hi": 120, "missing": 60, "indicator": True},
    "ward": {"kind": "category", "values": ["general", "icu"], "indicator": True},
    "smoker": {"kind": "category", "values": ["false", "true"], "base": "false"},
    "seen": {"kind": "date", "epoch": "2020-01-01", "lo": 0, "hi": 400, "missing": 200},
}
SCHEMA = {
    "intercept": True,
    "site": "hospital",
    "label": {"column": "outcome", "positive": "died", "negative": "lived"},
    "ignore": ["days", "dead"],
    "columns": COLUMNS,
}
NUMBER = SCHEMA | {"label": {"column": "days", "lo": 0, "hi": 20}, "ignore": ["outcome", "dead"]}
FREE: dict[str, Any] = {
    "method": "admm",
    "epsilon": np.inf,
    "rounds": 40,
    "knobs": {"eta": 0.01, "rho": 1e-4},
}
NOISY: dict[str, Any] = {"method": "momentum", "rounds": 20, "epsilon": 8.0, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:the model gives")


def columns(n: int = 600, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    age, icu, smoker = rng.uniform(20, 100, n), rng.random(n) < 0.3, rng.random(n) < 0.4
    score = 0.08 * (age - 60) + 2.0 * icu + 1.0 * smoker - 1.0
    dead = score + rng.logistic(size=n) > 0
    found: dict[str, list[Any]] = {
        "age": np.round(age, 1).tolist(),
        "ward": np.where(icu, "icu", "general").tolist(),
        "smoker": smoker.tolist(),
        "seen": (np.datetime64("2020-01-01") + rng.integers(0, 400, n)).tolist(),
        "outcome": np.where(dead, "died", "lived").tolist(),
        "days": np.clip(5 + 3 * score, 0, 20).tolist(),
        "dead": dead.tolist(),
        "hospital": rng.choice(["north", "south", "west"], n).tolist(),
    }
    for name, step in (("age", 7), ("ward", 11), ("seen", 13)):
        for k in range(0, n, step):
            found[name][k] = None
    return found


def framed(library: str, given: dict[str, list[Any]] | None = None) -> Any:
    given = columns() if given is None else given
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").table(given)
    return given if library == "dict" else pytest.importorskip(library).DataFrame(given)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_every_library_gives_the_same_model(library: str) -> None:
    frame = framed(library)
    model = ConsensusClassifier(schema=SCHEMA, **NOISY).fit(frame)
    same = ConsensusClassifier(schema=Schema.from_dict(SCHEMA), **NOISY).fit(columns())
    assert np.array_equal(model.coef_, same.coef_) and np.array_equal(
        model.intercept_, same.intercept_
    )
    assert model.sites_.tolist() == ["north", "south", "west"] and model.classes_.tolist() == [
        "died",
        "lived",
    ]
    assert (
        np.array_equal(model.predict(frame), same.predict(columns())) and model.score(frame) > 0.7
    )
    assert model.score(frame) == pytest.approx(
        np.mean(model.predict(frame) == np.array(columns()["outcome"]))
    )
    assert model.predict_proba is not None and model.n_features_in_ == 4
    names = [
        "age",
        "age=missing",
        "ward=general",
        "ward=icu",
        "ward=missing",
        "smoker=true",
        "seen",
    ]
    assert model.get_feature_names_out().tolist() == names and model.coef_.shape == (1, len(names))
    assert model.coefficients_["name"] == [*names, "(constant)"]


def test_without_noise_it_is_logistic_regression_on_the_encoded_rows() -> None:
    """Coefficients are per unit of each column, and those of the table for the schema's positive
    class.
    """
    table, schema = columns(), Schema.from_dict(SCHEMA)
    terms = FREE | {"rounds": 400, "knobs": {"rho": 0.1, "eta": 0.02, "tol": 1e-10}}
    model = ConsensusClassifier(schema=SCHEMA, **terms).fit(table)
    found = schema.encode({k: np.array(v, dtype=object) for k, v in table.items()})
    assert found.y is not None
    site = np.unique(table["hospital"], return_inverse=True)[1]
    weight = 3.0 / (3.0 * np.bincount(site)[site] * 0.1)
    reference = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    reference.fit(found.X, found.y, sample_weight=weight)
    np.testing.assert_allclose(
        -model.decision_function(table), found.X @ reference.coef_[0], atol=1e-4
    )
    named = dict(zip(model.coefficients_["name"], model.coefficients_["coefficient"], strict=True))
    np.testing.assert_allclose(list(named.values())[:-1], -model.coef_[0])
    one, other = ({k: [v[k2]] for k, v in table.items()} for k2 in (1, 1))
    one["age"], other["age"] = [70.0], [71.0]
    more = model.decision_function(one) - model.decision_function(other)
    assert (
        float(more[0]) == pytest.approx(named["age"], rel=1e-9)
        and named["age"] > 0
        and named["ward=icu"] > 0
    )
    assert model.coefficients_["odds_ratio"][0] == pytest.approx(np.exp(named["age"]))


@pytest.mark.parametrize("way", ["path", "dict", "Schema"])
def test_a_schema_is_a_path_a_dict_or_a_schema(way: str, tmp_path: Path) -> None:
    text = (
        'intercept = true\nignore = ["*"]\nlabel = {column = "outcome", positive = "died", '
        'negative = "lived"}\n'
    )
    text += '[columns.smoker]\nkind = "category"\nvalues = ["false", "true"]\n'
    path = tmp_path / "s.toml"
    path.write_text(text)
    given: Any = {
        "path": path,
        "dict": Schema.from_toml(path).to_dict(),
        "Schema": Schema.from_toml(path),
    }[way]
    model = clone(ConsensusClassifier(schema=given, **FREE)).fit(columns())
    path.unlink(missing_ok=True)  # a fitted model needs the file no more
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(
        again.predict(columns()), model.predict(columns())
    ) and model.coef_.shape == (1, 2)


def test_labels_that_are_missing_or_unknown_are_rows_of_zeros() -> None:
    table = columns()
    table["outcome"][0], table["outcome"][1] = None, "moved"
    with pytest.warns(HolderNote, match=r"^2 of 600.*undeclared"):
        model = ConsensusClassifier(schema=SCHEMA, **NOISY).fit(table)
    assert model.classes_.tolist() == ["died", "lived"]
    given = ConsensusClassifier(schema=SCHEMA, **NOISY)
    with pytest.warns(HolderNote, match=r"^2 of 600"):
        given.fit(
            {k: v for k, v in table.items() if k != "outcome"},
            np.array(table["outcome"], dtype=object),
        )
    assert np.array_equal(given.coef_, model.coef_) and given.score(table) == model.score(table)


def test_given_labels_and_groups_override_the_frame() -> None:
    table, whole = columns(), np.zeros(600, dtype=int)
    model = ConsensusClassifier(schema=SCHEMA, classes=[0, 1], **NOISY)
    model.fit(table, np.array(table["dead"]).astype(int), groups=whole)
    assert (
        model.classes_.tolist() == [0, 1]
        and model.sites_.tolist() == [0]
        and model.predict(table).dtype.kind == "i"
    )
    one_site = PrivateClassifier(
        schema=SCHEMA, method="objective", epsilon=8.0, random_state=0
    ).fit(table)
    assert len(one_site.sites_) == 1


def test_schema_weights_are_used() -> None:
    table = columns() | {"w": np.random.default_rng(1).uniform(0, 4, 600).tolist()}
    weighted = SCHEMA | {"weight": {"column": "w", "max": 3.0}}
    with pytest.warns(HolderNote, match="above max_weight"):
        model = ConsensusClassifier(schema=weighted, **NOISY).fit(table)
    same = ConsensusClassifier(schema=SCHEMA | {"ignore": ["days", "dead", "w"]}, **NOISY)
    same.set_params(knobs={"max_weight": 3.0})
    with pytest.warns(HolderNote, match="above max_weight"):
        same.fit(table, sample_weight=table["w"])
    assert np.array_equal(model.coef_, same.coef_)
    costly = ConsensusClassifier(schema=SCHEMA | {"class_weight": {"died": 4.0}}, **NOISY).fit(
        columns()
    )
    assert np.mean(costly.predict(columns()) == "died") > np.mean(
        model.predict(columns()) == "died"
    )


@pytest.fixture
def unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a query was answered")

    monkeypatch.setattr(RowGuard, "_charge_and_draw", asked)


@pytest.mark.parametrize(
    ("change", "table", "message"),
    [
        ({"data_norm": 2.0}, {}, r"^data_norm=2.0: .* schema"),
        ({"fit_intercept": False}, {}, "^fit_intercept"),
        ({"schema": 5}, {}, "^schema=<int>"),
        ({"schema": "no.toml"}, {}, "^schema"),
        ({"schema": None, "columns": ["a"]}, {}, "^columns"),
        ({}, {"age": None}, "^age: the schema 'schema' declares this column"),
        ({}, {"outcome": None}, "^outcome: is the label"),
        ({}, {"new": [1] * 600}, "^new: the schema 'schema' does not declare"),
        ({}, {"seen": [None] * 599 + ["Alice"]}, "^seen: every value must be a date"),
        ({}, {"hospital": [None] * 600}, "^hospital: has rows without a site"),
        ({"schema": NUMBER}, {}, "^label: .*classes"),
    ],
)
def test_refusals_name_the_column_and_show_no_value(
    unspent: None, change: dict[str, Any], table: dict[str, Any], message: str
) -> None:
    given = {k: v for k, v in (columns() | table).items() if v is not None}
    with pytest.raises(InvalidInput, match=message) as refusal:
        ConsensusClassifier(**({"schema": SCHEMA} | change)).fit(given)
    assert "Alice" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_wording_of_a_parameter_that_a_schema_replaces(unspent: None) -> None:
    with pytest.raises(InvalidInput) as refusal:
        ConsensusClassifier(schema=SCHEMA, data_norm=2.0).fit(columns())
    assert str(refusal.value) == (
        "data_norm=2.0: cannot be combined with a schema, which declares bounds of its own; "
        "leave it out"
    )


def test_array_without_column_names_is_refused(unspent: None) -> None:
    with pytest.raises(InvalidInput, match="columns by name"):
        ConsensusClassifier(schema=SCHEMA).fit(np.ones((5, 4)))


def test_array_with_column_names_equals_the_frame() -> None:
    table = columns()
    names = [name for name in table if name not in ("outcome", "days", "dead")]
    X = np.array([table[name] for name in names], dtype=object).T
    model = ConsensusClassifier(schema=SCHEMA, columns=names, **NOISY).fit(X, table["outcome"])
    assert np.array_equal(model.coef_, ConsensusClassifier(schema=SCHEMA, **NOISY).fit(table).coef_)
    assert cross_val_score(model, X, np.array(table["outcome"]), cv=2).min() > 0.6


@pytest.mark.parametrize("more", [{}, {"inference": True}, {"loss": "huber-residual:0.25"}])
def test_regressor_reads_its_target_from_the_schema(more: dict[str, Any]) -> None:
    table = columns()
    for k in range(0, 600, 50):
        table["days"][k] = None
    terms = {"epsilon": 20.0, "trust": "sum", "random_state": 0}
    model = ConsensusRegressor(schema=NUMBER, **terms, **more).fit(table)
    assert model.y_bounds_ == (0.0, 20.0) and model.score(table) > 0.6 and len(model.sites_) == 3
    assert model.predict(table).min() >= 0 and model.predict(table).max() <= 20
    names = model.get_feature_names_out().tolist()
    assert len(names) == len(model.coef_) and model.coef_[names.index("age")] > 0
    if not more:
        constants = [f"(constant): {site}" for site in model.sites_]
        assert model.coefficients_["name"] == [*names, *constants]
        assert (
            PrivateRegressor(schema=NUMBER, epsilon=20.0, random_state=0).fit(table).score(table)
            > 0.6
        )


def test_survival_and_components_of_frames() -> None:
    table = columns()
    time = {"time": np.random.default_rng(0).exponential(10, 600).tolist()}
    bare = {k: v for k, v in SCHEMA.items() if k != "label"} | {"ignore": ["days", "outcome"]}
    terms = {"epsilon": 8.0, "trust": "sum", "random_state": 0}
    model = ConsensusSurvival([0, 5, 10], schema=bare, **terms).fit(table | time, "time", "dead")
    assert model.predict_survival(table | time).shape == (600, 2) and len(model.coef_) == 7
    hazard = model.predict_hazard({k: v[:1] for k, v in table.items() if k in COLUMNS})
    assert hazard.shape == (1, 2) and len(model.sites_) == 3
    with pytest.raises(InvalidInput, match=r"^tme: .*a column"):
        ConsensusSurvival([0, 5], schema=bare).fit(table, "tme", "dead")
    parts = ConsensusPCA(2, schema=bare | {"ignore": ["*"]}, **terms).fit(table)
    assert parts.transform(table).shape == (600, 2)
    assert parts.get_feature_names_out().tolist() == ["consensuspca0", "consensuspca1"]


def test_the_transformer_is_one_of_scikit_learn() -> None:
    pd = pytest.importorskip("pandas")
    frame = framed("pandas")
    encode = SchemaTransformer(SCHEMA)
    expected = Schema.from_dict(SCHEMA).encode(frame, labels=False).X
    assert (
        np.array_equal(encode.fit_transform(frame), expected)
        and np.linalg.norm(expected, axis=1).max() <= 1
    )
    assert encode.get_feature_names_out().tolist() == Schema.from_dict(SCHEMA).feature_names
    shown = clone(encode).set_output(transform="pandas").fit_transform(frame)
    assert (
        isinstance(shown, pd.DataFrame)
        and list(shown.columns) == encode.get_feature_names_out().tolist()
    )
    # it learns nothing
    assert np.array_equal(SchemaTransformer(SCHEMA).transform(framed("pyarrow")), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        behind = make_pipeline(
            SchemaTransformer(SCHEMA), ConsensusClassifier(data_norm=1.0, **NOISY)
        )
        behind.fit(frame, np.array(frame["outcome"]))
    assert behind.score(frame, np.array(frame["outcome"])) > 0.7
    with pytest.raises(SchemaError, match=r"^smoker"):
        SchemaTransformer(SCHEMA).fit(frame.drop(columns="smoker"))
    with pytest.raises(InvalidInput, match=r"^schema"):
        SchemaTransformer().fit(frame)


MODELS: dict[str, Any] = {
    "rounds": lambda: ConsensusClassifier(schema=SCHEMA, **NOISY),
    "inference": lambda: ConsensusClassifier(
        schema=SCHEMA, epsilon=20.0, trust="sum", random_state=0, inference=True
    ),
    "squared": lambda: ConsensusRegressor(schema=NUMBER, epsilon=20.0, random_state=0),
    "huber": lambda: ConsensusRegressor(
        schema=NUMBER, epsilon=20.0, random_state=0, loss="huber-residual:0.25"
    ),
    "pca": lambda: ConsensusPCA(2, schema=SCHEMA, epsilon=20.0, random_state=0),
    "private": lambda: PrivateClassifier(
        schema=SCHEMA, method="objective", epsilon=8.0, random_state=0
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_estimator_is_read_back(name: str, tmp_path: Path) -> None:
    table, path = columns(), tmp_path / "model"
    model = MODELS[name]().fit(table)
    model.save(path)
    again = type(model).load(path)
    ask = "transform" if name == "pca" else "predict"
    assert np.array_equal(getattr(again, ask)(table), getattr(model, ask)(table))
    assert again.privacy_spent_ == model.privacy_spent_ and again.random_state is None
    assert again.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()
    again.save(tmp_path / "twice")
    assert np.array_equal(
        getattr(type(model).load(tmp_path / "twice"), ask)(table), getattr(model, ask)(table)
    )
    other = ConsensusSurvival if name != "pca" else ConsensusClassifier
    for wrong, file in ((other, path), (type(model), Path(__file__))):
        with pytest.raises(CheckpointError, match="not a saved"):
            wrong.load(file)


def test_numbers_without_a_schema_are_saved_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.arange(300) % 3
    model = ConsensusClassifier(data_norm=3.0, **NOISY).fit(X, y)
    model.save(tmp_path / "m")
    again = ConsensusClassifier.load(tmp_path / "m")
    assert (
        np.array_equal(again.decision_function(X), model.decision_function(X))
        and again.data_norm == 3.0
    )
    rest = ConsensusClassifier(data_norm=3.0, **NOISY | {"loss": "logistic"}).fit(X, y)
    with pytest.raises(InvalidInput, match=r"^loss='logistic'"):
        rest.save(tmp_path / "m")


def test_a_summary_says_what_coefficients_are_for() -> None:
    model = ConsensusClassifier(schema=SCHEMA, **NOISY).fit(columns())
    said = model.summary()
    positive_class = "Coefficients are for the class died."
    assert positive_class in said
    assert "ward=icu" in said and "epsilon = 8.000" in said
    inferred = ConsensusClassifier(
        schema=SCHEMA, epsilon=50.0, trust="curator", random_state=0, inference=True
    )
    inferred.fit(columns())
    lines = list(inferred.coefficients_)
    assert {line["name"] for line in lines} >= {"age", "ward", "smoker"} and len(
        inferred.coefficients_
    ) == len(lines)
    assert positive_class in inferred.summary()
    pd = pytest.importorskip("pandas")
    assert pd.DataFrame(inferred.coefficients_).shape == (len(lines), len(lines[0]))
    assert pd.DataFrame(model.coefficients_).shape == (8, 3)
