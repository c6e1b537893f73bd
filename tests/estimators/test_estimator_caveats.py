"""What learned from the rows is told: in the statement, in print(model) and in one warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler

from sottovoce import ConsensusClassifier, ConsensusPCA, ConsensusRegressor, ConsensusSurvival, SchemaTransformer
from sottovoce.errors import HolderNote, PublicNote
from sottovoce.estimators.caveats import ASSUMED, learned, learners

UNIT = {"data_norm": 1.0}
TERMS: dict[str, Any] = {"data_norm": 4.0, "epsilon": 8.0, "random_state": 0}
CLASSIFIER: dict[str, Any] = TERMS | {"method": "momentum", "rounds": 10}


def table(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) + 0.3
    return X, (X[:, 0] > 0.3).astype(int)


def public(seen: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in seen if issubclass(one.category, PublicNote)]


def test_a_fitted_step_is_told_in_one_warning_and_everywhere() -> None:
    X, y = table()
    model = Pipeline(
        [("impute", SimpleImputer()), ("scale", StandardScaler()), ("fit", ConsensusClassifier(**CLASSIFIER))]
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(X, y)
    (said,) = public(seen)
    void = "the guarantee does not hold: impute (SimpleImputer), scale (StandardScaler) learned from the rows before"
    assert said.startswith(void) and ASSUMED in said and "SchemaTransformer" in said
    fitted = model[-1]
    assert any(one.startswith(void) for one in fitted.privacy_spent_["caveats"]) and void in str(fitted)
    assert ASSUMED in fitted.privacy_spent_["caveats"] and f"Rests on: {ASSUMED}" in str(fitted)
    assert "Not covered: " in fitted.privacy_spent_["says"] and void in fitted.privacy_spent_["caveat"]
    assert void in fitted.summary() and void in fitted.page()


@pytest.mark.parametrize(
    "kind",
    [
        lambda: ConsensusRegressor((0.0, 1.0), **TERMS),
        lambda: ConsensusPCA(1, **TERMS),
        lambda: ConsensusClassifier(inference=True, **TERMS),
    ],
)
@pytest.mark.filterwarnings("ignore:the model gives")
def test_every_estimator_tells(kind: Any) -> None:
    X, y = table()
    with pytest.warns(PublicNote, match=r"^the guarantee does not hold: StandardScaler learned"):
        model = make_pipeline(StandardScaler(), kind()).fit(X, y)
    assert "the guarantee does not hold" in str(model[-1].privacy_spent_["caveats"])


def test_survival_rests_on_how_rows_were_made() -> None:
    X, y = table()
    model = ConsensusSurvival([0, 1, 2], **TERMS).fit(X, np.arange(400.0) % 3 + 0.1, y)
    assert model.privacy_spent_["caveats"] == [ASSUMED]


def test_steps_of_public_constants_are_not_spoken_of() -> None:
    X, y = table()
    steps = (FunctionTransformer(), Normalizer(), SimpleImputer(strategy="constant", fill_value=0.0), "passthrough")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_pipeline(*steps, ConsensusClassifier(**CLASSIFIER | UNIT)).fit(X, y)
    assert model[-1].privacy_spent_["caveats"] == [model[-1].privacy_spent_["caveat"], ASSUMED]
    known = make_pipeline(*steps, ConsensusClassifier(classes=[0, 1], **CLASSIFIER | UNIT)).fit(X, y)
    assert known[-1].privacy_spent_["caveats"] == [ASSUMED]


class Odd(TransformerMixin, BaseEstimator):
    """A step that says nothing of itself."""

    def __sklearn_tags__(self) -> Any:
        raise RuntimeError


def test_which_steps_learn() -> None:
    columns = ColumnTransformer([("a", StandardScaler(), [0]), ("b", OneHotEncoder(categories=[["x"]]), [1])])
    counted = OneHotEncoder(categories=[["x", "y"]], min_frequency=2)
    both = FeatureUnion([("c", columns), ("d", PCA()), ("e", "drop")])
    assert list(learners(both)) == ["a (StandardScaler)", "d (PCA)"]
    assert list(learners(counted)) == ["OneHotEncoder"] and list(learners(OneHotEncoder())) == ["OneHotEncoder"]
    assert list(learners(make_pipeline(MinMaxScaler(), SchemaTransformer({})))) == ["MinMaxScaler"]
    assert list(learners(Odd())) == ["Odd"] and list(learners(SimpleImputer(strategy="constant"))) == ["SimpleImputer"]


def test_a_search_adds_up() -> None:
    X, y = table()
    search = GridSearchCV(ConsensusClassifier(**CLASSIFIER), {"epsilon": [4.0, 8.0]}, cv=2)
    with pytest.warns(PublicNote, match=r"^GridSearchCV may fit it many times on the same rows: fits add up"):
        search.fit(X, y)
    assert "fits add up" in search.best_estimator_.privacy_spent_["caveats"][-1]
    with pytest.warns(PublicNote, match=r"^GridSearchCV and|^the guarantee does not hold: StandardScaler learned"):
        GridSearchCV(make_pipeline(StandardScaler(), ConsensusClassifier(**CLASSIFIER)), {}, cv=2).fit(X, y)
    with pytest.warns(PublicNote, match=r"^cross-validation may fit it"):
        cross_val_score(ConsensusClassifier(**CLASSIFIER), X, y, cv=2)


def test_numbers_that_give_it_away_are_told_to_the_holder_only() -> None:
    X, y = table()
    terms = CLASSIFIER | {"data_norm": 1.5}
    for scaler, why in ((StandardScaler(), "StandardScaler"), (MinMaxScaler(), "MinMaxScaler")):
        with pytest.warns(HolderNote, match=f"as after a {why}.*for the data's holder only"):
            model = ConsensusClassifier(classes=[0, 1], **terms).fit(scaler.fit_transform(X), y)
        assert "Scaler" not in str(model.privacy_spent_)  # what the rows show is no part of what is released
    for chance in (X, X[:2], np.ones((50, 2)), csr_array(X), np.arange(100.0).reshape(-1, 2) % 2):
        assert learned(chance) is None
