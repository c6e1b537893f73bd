"""Estimators under a schema whose unit is a person."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    SchemaTransformer,
)
from sottovoce.answers.training import ONE_EACH
from sottovoce.errors import HolderNote, InvalidInput, PublicNote, SchemaError

COLUMNS = {name: {"kind": "number", "lo": -3, "hi": 3} for name in ("age", "dose")}
SCHEMA: dict[str, Any] = {
    "intercept": True,
    "person": {"column": "patient", "rows": 3},
    "site": "hospital",
    "label": {"column": "ill", "positive": "yes", "negative": "no"},
    "columns": COLUMNS,
}
PLAIN = {key: value for key, value in SCHEMA.items() if key != "label"} | {"ignore": ["ill"]}
NUMBER = PLAIN | {
    "label": {"column": "dose", "lo": -3, "hi": 3},
    "columns": {"age": COLUMNS["age"]},
}
PEOPLE, READ, ONE = 600, "of which up to 3 are read", "of which one is read"


def frame() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.repeat(np.arange(PEOPLE), rng.integers(1, 6, PEOPLE)))
    age, dose = rng.uniform(-2, 2, PEOPLE)[patient], rng.uniform(-2, 2, len(patient))
    ill = np.where(2.0 * age + dose + rng.logistic(size=len(patient)) > 0, "yes", "no")
    return {
        "age": age,
        "dose": dose,
        "patient": patient,
        "hospital": np.array(["a", "b"])[patient % 2],
        "ill": ill,
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "more", [{}, {"trust": "sum", "n_sites": 3}, {"loss": "softmax", "method": "dgd"}]
)
def test_a_classifier_counts_people(more: dict[str, Any]) -> None:
    table = frame()
    schema = (
        SCHEMA
        if "n_sites" not in more
        else {k: v for k, v in SCHEMA.items() if k != "site"} | {"ignore": ["*"]}
    )
    terms = {"method": "momentum", "rounds": 10, "epsilon": 4.0, "random_state": 0} | more
    if more.get("trust") == "sum":
        terms["method"] = "sum_momentum"
    model = ConsensusClassifier(schema=schema, **terms).fit(table)
    assert model._result is not None and model._result.facts.n.sum() == PEOPLE
    assert model.privacy_spent_["unit"].endswith(READ) and "person" in model.summary()
    assert model.score(table) > 0.7
    # without whose they are
    assert model.predict({name: table[name] for name in COLUMNS}).shape == table["age"].shape


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_inference_and_least_squares_read_one_row_per_person() -> None:
    table = frame()
    with pytest.warns(PublicNote, match=ONE_EACH[:30]):
        found = ConsensusClassifier(
            schema=SCHEMA, epsilon=20.0, inference=True, random_state=0
        ).fit(table)
    with pytest.warns(PublicNote, match=ONE_EACH[:30]):
        number = ConsensusRegressor(schema=NUMBER, random_state=0).fit(table)
    for model in (found, number):
        assert model._result.facts.n.sum() == PEOPLE and model.privacy_spent_["unit"].endswith(ONE)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_components_and_trained_losses_read_all_rows_of_a_person() -> None:
    table = frame()
    with pytest.warns(HolderNote, match="left out"):
        parts = ConsensusPCA(1, schema=PLAIN, random_state=0).fit(table)
    number = ConsensusRegressor(
        schema=NUMBER, loss="huber-residual:0.25", rounds=5, random_state=0
    ).fit(table)
    for model in (parts, number):
        assert model._result.facts.n.sum() == PEOPLE and model.privacy_spent_["unit"].endswith(READ)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tables_and_methods_unfit_for_persons_are_refused() -> None:
    table = frame()
    with pytest.raises(SchemaError, match=r"^person: .*encoded rows"):
        SchemaTransformer(SCHEMA).fit(table)
    with pytest.raises(SchemaError, match=r"^person: .*one row"):
        ConsensusSurvival([0, 1], schema=PLAIN).fit(table, "age", "dose")
    with pytest.raises(SchemaError, match="person column"):
        ConsensusClassifier(schema=SCHEMA).fit({k: v for k, v in table.items() if k != "patient"})
    with pytest.raises(InvalidInput, match="for one row"):
        ConsensusClassifier("mr_admm", schema=SCHEMA, random_state=0).fit(table)
