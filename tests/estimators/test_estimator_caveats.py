"""What an estimator rests on is told in its statement, and each notice once: a fit, or a search."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    SchemaTransformer,
)
from sottovoce.errors import HolderNote, InvalidInput, PublicNote
from sottovoce.estimators import learning_steps
from sottovoce.estimators.caveats import (
    ADD_UP,
    ASSUMED,
    ASSUMED_OF_TABLES,
    learning_parts,
    sign_of_learned_columns,
)

UNIT = {"data_norm": 1.0}
TERMS: dict[str, Any] = {"data_norm": 4.0, "epsilon": 8.0, "random_state": 0}
CLASSIFIER: dict[str, Any] = TERMS | {"method": "momentum", "rounds": 10}


def table(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) + 0.3
    return X, (X[:, 0] > 0.3).astype(int)


@pytest.mark.parametrize(
    "kind",
    [
        lambda: ConsensusClassifier(**CLASSIFIER),
        lambda: ConsensusRegressor((0.0, 1.0), **TERMS),
        lambda: ConsensusPCA(1, **TERMS),
        lambda: ConsensusClassifier(inference=True, **TERMS),
    ],
)
@pytest.mark.filterwarnings("ignore:the model gives", "ignore:every row is shorter")
def test_every_estimator_without_a_schema_says_on_what_it_rests_and_tells_the_holder(
    kind: Any,
) -> None:
    X, y = table()
    with pytest.warns(HolderNote, match="StandardScaler"):
        model = make_pipeline(StandardScaler(), kind()).fit(X, y)[-1]
    assert (
        ASSUMED in model.privacy_spent_["caveats"]
        and f"Rests on: {ASSUMED}" in model.privacy_spent_["says"]
    )


def test_under_a_schema_the_statement_rests_on_no_step_before_it_that_learned() -> None:
    X, y = table()
    schema = {
        "label": {"column": "y", "positive": "1", "negative": "0"},
        "columns": {
            "a": {"kind": "number", "lo": -4, "hi": 4},
            "b": {"kind": "number", "lo": -4, "hi": 4},
        },
    }
    terms = {key: value for key, value in CLASSIFIER.items() if key != "data_norm"}
    model = ConsensusClassifier(schema=schema, **terms).fit({"a": X[:, 0], "b": X[:, 1], "y": y})
    assert model.privacy_spent_["caveats"] == [ASSUMED_OF_TABLES]


def test_steps_of_a_pipeline_that_learn_are_named_without_fitting_it() -> None:
    steps = [
        ("impute", SimpleImputer()),
        ("scale", StandardScaler()),
        ("fit", ConsensusClassifier()),
    ]
    assert learning_steps(Pipeline(steps)) == ["impute (SimpleImputer)", "scale (StandardScaler)"]
    assert learning_steps(make_pipeline(Normalizer(), ConsensusClassifier())) == []
    nested = make_pipeline(make_pipeline(PCA(), MinMaxScaler()), ConsensusClassifier())
    assert learning_steps(nested) == ["PCA", "MinMaxScaler"]
    for wrong in (ConsensusClassifier(), StandardScaler, None, steps):
        with pytest.raises(InvalidInput, match=r"^pipeline"):
            learning_steps(wrong)


def test_survival_rests_on_how_rows_were_made() -> None:
    X, y = table()
    model = ConsensusSurvival([0, 1, 2], **TERMS).fit(X, np.arange(400.0) % 3 + 0.1, y)
    assert model.privacy_spent_["caveats"] == [ASSUMED]


def test_steps_that_learn_nothing_give_no_warning() -> None:
    X, y = table()
    steps = (
        FunctionTransformer(),
        Normalizer(),
        SimpleImputer(strategy="constant", fill_value=0.0),
        "passthrough",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_pipeline(*steps, ConsensusClassifier(**CLASSIFIER | UNIT)).fit(X, y)
    assert model[-1].privacy_spent_["caveats"] == [model[-1].privacy_spent_["caveat"], ASSUMED]
    known = make_pipeline(*steps, ConsensusClassifier(classes=[0, 1], **CLASSIFIER | UNIT)).fit(
        X, y
    )
    assert known[-1].privacy_spent_["caveats"] == [ASSUMED]


class Odd(TransformerMixin, BaseEstimator):
    """A step that says nothing of itself."""

    def __sklearn_tags__(self) -> Any:
        raise RuntimeError


def test_learning_steps_recognises_transformers() -> None:
    columns = ColumnTransformer(
        [("a", StandardScaler(), [0]), ("b", OneHotEncoder(categories=[["x"]]), [1])]
    )
    counted = OneHotEncoder(categories=[["x", "y"]], min_frequency=2)
    both = FeatureUnion([("c", columns), ("d", PCA()), ("e", "drop")])
    assert list(learning_parts(both)) == ["a (StandardScaler)", "d (PCA)"]
    assert list(learning_parts(counted)) == ["OneHotEncoder"] and list(
        learning_parts(OneHotEncoder())
    ) == ["OneHotEncoder"]
    assert list(learning_parts(make_pipeline(MinMaxScaler(), SchemaTransformer({})))) == [
        "MinMaxScaler"
    ]
    assert list(learning_parts(Odd())) == ["Odd"] and list(
        learning_parts(SimpleImputer(strategy="constant"))
    ) == ["SimpleImputer"]


def told(run: Callable[[], object], category: type[Warning] = Warning) -> list[str]:
    """Warnings that reach a user who sees all of them."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in seen if issubclass(one.category, category)]


# short of rows, and a bound that suits none
SEARCHED = CLASSIFIER | {
    "epsilon": 0.5,
    "data_norm": 0.1,
}


@pytest.mark.parametrize(
    "search",
    [
        lambda model: GridSearchCV(model, {"epsilon": [0.2, 0.4, 0.5]}, cv=3),
        lambda model: GridSearchCV(model, {"epsilon": [0.2, 0.4, 0.5]}, cv=3, refit=False),
        lambda model: RandomizedSearchCV(model, {"epsilon": [0.2, 0.4]}, n_iter=2, cv=2),
        lambda model: GridSearchCV(make_pipeline(Normalizer(), model), {}, cv=3),
        lambda model: GridSearchCV(model, {"knobs__rho": [0.1, 0.2]}, cv=2, scoring="neg_log_loss"),
        lambda model: SequentialFeatureSelector(model, n_features_to_select=1, cv=2),
    ],
)
def test_each_notice_is_told_once_a_search(search: Any) -> None:
    X, y = table()
    machine = search(ConsensusClassifier(**SEARCHED))
    for _ in range(2):  # the next search tells it again
        said = [one.partition(":")[0] for one in told(lambda: machine.fit(X, y))]
        assert len(said) == len(set(said)) and sum("a clone" in one for one in said) == 1


def test_the_folds_of_a_cross_validation_tell_each_notice_once() -> None:
    X, y = table()
    for model in (
        ConsensusClassifier(**SEARCHED),
        ConsensusRegressor((0.5, 1.0), **TERMS),
        ConsensusPCA(1, **TERMS),
    ):
        said = told(lambda: cross_validate(model, X, y, cv=4, scoring=lambda *_: 0.0))  # noqa: B023
        kinds = [re.sub(r"\d+", "", one) for one in said]
        assert len(kinds) == len(set(kinds)) >= 1 and sum("clone" in one for one in said) == 1


def test_a_process_of_a_pool_tells_each_notice_once() -> None:
    X, y = table()
    model = ConsensusClassifier(**SEARCHED)
    assert (
        joblib.hash(clone(model)) == joblib.hash(clone(model)) == joblib.hash(clone(clone(model)))
    )
    copies = [pickle.loads(pickle.dumps(clone(model))) for _ in range(3)]
    first = [len(told(lambda: one.fit(X, y))) for one in copies]  # noqa: B023
    assert first[1:] == [0, 0] or first[1:] == [1, 0]  # that fits add up is told at the second


def test_refitting_the_same_estimator_repeats_its_warnings() -> None:
    X, y = table()
    model = ConsensusClassifier(**SEARCHED)
    first, second = (told(lambda: model.fit(X, y)) for _ in range(2))
    assert first == second and len(first) == 1
    twin = clone(model)
    assert told(lambda: twin.fit(X, y)) == first  # one clone is no search
    assert (
        ADD_UP in twin.privacy_spent_["caveats"] and ADD_UP not in model.privacy_spent_["caveats"]
    )


def test_grid_search_states_that_its_fits_add_up() -> None:
    X, y = table()
    search = GridSearchCV(ConsensusClassifier(**CLASSIFIER), {"epsilon": [4.0, 8.0]}, cv=2)
    assert [one for one in told(lambda: search.fit(X, y), PublicNote) if one == ADD_UP] == [ADD_UP]
    assert ADD_UP in search.best_estimator_.privacy_spent_["caveats"]
    assert told(lambda: ConsensusClassifier(**CLASSIFIER).fit(X, y), PublicNote) == []


def test_scaled_columns_are_reported_to_the_data_owner_only() -> None:
    X, y = table()
    terms = CLASSIFIER | {"data_norm": 1.5}
    for scaler, why in ((StandardScaler(), "StandardScaler"), (MinMaxScaler(), "MinMaxScaler")):
        with pytest.warns(HolderNote, match=f"as after a {why}.*for the data's holder only"):
            model = ConsensusClassifier(classes=[0, 1], **terms).fit(scaler.fit_transform(X), y)
        # what the rows show is no part of what is released
        assert "Scaler" not in str(model.privacy_spent_)
    for chance in (X, X[:2], np.ones((50, 2)), csr_array(X), np.arange(100.0).reshape(-1, 2) % 2):
        assert sign_of_learned_columns(chance) is None
