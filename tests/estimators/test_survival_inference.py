"""Survival with hazard ratios and intervals: the table, predictions, people, refusals."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sottovoce import ConsensusSurvival
from sottovoce.errors import InvalidInput

EDGES = [0.0, 1.0, 2.0, 4.0]
SCHEMA: dict[str, Any] = {
    "intercept": True,
    "columns": {
        "age": {"kind": "number", "lo": 20, "hi": 80},
        "arm": {"kind": "category", "values": ["a", "b"]},
    },
}


def people(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    age, arm = rng.uniform(20, 80, n), rng.random(n) < 0.5
    event = rng.exponential(4.0 / np.exp(0.03 * (age - 50) - 0.6 * arm))
    left = rng.uniform(0.5, 6.0, n)
    return pd.DataFrame(
        {
            "age": age,
            "arm": np.where(arm, "b", "a"),
            "time": np.minimum(event, left),
            "died": event <= left,
        }
    )


def fit(frame: pd.DataFrame, **how: Any) -> ConsensusSurvival:
    given: dict[str, Any] = {"schema": SCHEMA, "trust": "sum", "random_state": 0}
    model = ConsensusSurvival(EDGES, inference=True, **(given | how))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(frame, "time", "died")


def test_it_has_the_table_and_the_summary_of_an_inference() -> None:
    model = fit(people(3000), epsilon=6.0)
    table = model.coef_table_
    assert table is model.coefficients_ and model.converged_
    _, arm, *constants = table.to_dict()
    assert arm["hazard_ratio_low"] < math.exp(-0.6) < arm["hazard_ratio_high"]
    assert [line["level"] for line in constants] == ["0 to 1", "1 to 2", "2 to 4"]
    assert model.coef_[1] == pytest.approx(arm["estimate"])
    assert table.wald("arm").p < 0.001
    shown = model.summary()
    assert "hazard ratio" in shown and "epsilon = 6.000" in shown
    assert table.site_constants.unknown_spread_reason is not None
    assert model.privacy_spent_["epsilon"] <= 6.0


def test_predictions_are_those_of_constant_hazards() -> None:
    frame = people(2000)
    model = fit(frame, epsilon=math.inf, delta=None, trust="curator")
    numbers = np.column_stack([frame["age"], frame["arm"] == "b"])
    rate = np.exp((numbers @ model.coef_)[:, None] + model.intercept_)
    want = np.exp(-np.cumsum(rate * np.diff(EDGES), axis=1))
    np.testing.assert_allclose(model.predict_survival(frame), want, rtol=1e-9)
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin.predict_hazard(frame), model.predict_hazard(frame))
    # Numbers without a schema have the same likelihood.
    arrays = ConsensusSurvival(
        EDGES, inference=True, epsilon=math.inf, delta=None, data_norm=100.0, random_state=0
    ).fit(numbers, frame["time"], frame["died"])
    np.testing.assert_allclose(arrays.coef_, model.coef_, rtol=1e-6)


def test_further_rows_of_unknown_people_add_nothing() -> None:
    frame = people(400)
    frame["died"] = frame["died"].astype(float)
    frame.loc[:20, "died"] = math.nan
    exact: dict[str, Any] = {"epsilon": math.inf, "delta": None, "trust": "curator"}
    model = fit(frame, **exact)
    rest = fit(frame[21:], **exact)
    np.testing.assert_allclose(model.coef_, rest.coef_, rtol=1e-8)


@pytest.mark.parametrize(
    ("how", "field"),
    [({"knobs": {"rho": 0.1}}, "rho"), ({"knobs": {"max_grad_norm": 0.5}}, "max_grad_norm")],
)
def test_what_has_no_effect_is_refused(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        fit(people(50), epsilon=1.0, **how)
    assert refused.value.field == field
    with pytest.raises(InvalidInput, match="begin below 0"):
        ConsensusSurvival([-1.0, 1.0], inference=True, epsilon=1.0).fit(
            [[0.0]] * 9, [1] * 9, [1] * 9
        )
