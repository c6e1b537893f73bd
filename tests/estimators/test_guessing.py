"""Nothing is silently the majority: before anything is spent, and of the model that was found."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from sottovoce import ConsensusClassifier, ConsensusPCA, ConsensusRegressor, PrivateClassifier
from sottovoce.errors import HolderNote, PublicNote
from sottovoce.estimators.tables import deal_rows_to_sites, read_features
from sottovoce.estimators.terms import collect_terms
from sottovoce.runs.config import RunConfig
from sottovoce.runs.forecast import LEAST, Forecast, forecast_run
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate

DELTA = {"delta": 1e-5}


def table(n: int = 300, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, (X[:, 0] > 0).astype(int)


def test_forecast_near_guessing_warns_before_any_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("a query was answered")

    monkeypatch.setattr(RowGuard, "_charge_and_draw", asked)
    X, y = table(60)
    model = ConsensusClassifier("momentum", rounds=50, epsilon=0.05, data_norm=1.0, classes=[0, 1])
    told = pytest.warns(PublicNote, match=r"guessing.*epsilon=5.*100 times")
    with told, pytest.raises(AssertionError, match="was answered"):
        model.fit(X, y)
    assert model.forecast_ is not None and model.forecast_.is_near_guessing


def test_forecast_of_a_good_run_gives_no_warning() -> None:
    X, y = table(4000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConsensusClassifier(
            "momentum", rounds=50, epsilon=4.0, data_norm=1.0, classes=[0, 1]
        ).fit(X, y)
    assert (
        model.forecast_ is not None
        and not model.forecast_.is_near_guessing
        and model.forecast_.says == ""
    )
    assert model.score(X, y) > 0.9


def test_forecast_error_is_close_to_that_of_runs() -> None:
    """On synthetic rows: within what 16 runs of noise leave open, 3 standard errors
    and a tenth.
    """
    config = RunConfig.from_dict({"method": "momentum", "epsilon": 1.0, "rounds": 50, **DELTA})
    few, many = forecast_run(config, [40] * 5, 6), forecast_run(config, [4000] * 5, 6)
    assert few is not None and many is not None
    assert few.error > many.error and few.best == many.best < few.guess
    assert many.share_of_gain > 0.9 > few.share_of_gain and many.helps == ()
    more = forecast_run(
        RunConfig.from_dict({"method": "momentum", "epsilon": 1e-3, "rounds": 50, **DELTA}),
        [40] * 5,
        6,
    )
    assert more is not None and more.share_of_gain < LEAST and abs(more.error - 0.5) < 0.1


def test_suggested_epsilon_and_rows_improve_the_forecast() -> None:
    config = RunConfig.from_dict({"method": "momentum", "epsilon": 0.05, "rounds": 50, **DELTA})
    found = forecast_run(config, [150] * 5, 6)
    assert found is not None and found.is_near_guessing and found.helps
    for what, error in found.helps:
        assert error < found.error and f"{1.0 - error:.0%} with {what}" in found.says


@pytest.mark.parametrize(
    "config",
    [
        RunConfig("admm", epsilon=math.inf),
        RunConfig.from_dict(
            {"method": "momentum", "epsilon": 1.0, "loss": "huber-residual:0.25", **DELTA}
        ),
        RunConfig("r_admm", epsilon=1.0, noise=1.0),
    ],
)
def test_methods_without_rehearsal_have_no_forecast(config: RunConfig) -> None:
    assert forecast_run(config, [50] * 5, 4) is None


def test_several_classes_have_a_forecast() -> None:
    config = RunConfig.from_dict(
        {"method": "prox_admm", "epsilon": 0.1, "rounds": 5, "loss": "softmax:4", **DELTA}
    )
    found = forecast_run(config, [30] * 5, 20)
    assert isinstance(found, Forecast) and found.is_near_guessing and found.guess > 0.5


def test_simulation_warns_if_all_rows_get_the_same_answer() -> None:
    X, _ = table()
    with pytest.warns(HolderNote, match=r"same class.*\(a simulation"):
        ConsensusClassifier(
            "momentum", rounds=10, data_norm=1.0, epsilon=8.0, classes=[0, 1], random_state=0
        ).fit(X, np.zeros(300, dtype=int))
    with pytest.warns(HolderNote, match=r"same number"):
        ConsensusRegressor((0.0, 1.0), data_norm=1.0, epsilon=1e-3, random_state=0).fit(
            X, X[:, 0] * 0.5 + 0.5
        )


def test_release_warns_if_all_synthetic_rows_get_the_same_class() -> None:
    """Rows of a commoner class alone, at much epsilon: the model is public, and so are made-up
    rows.
    """
    X, _ = table(2000)
    terms: dict[str, Any] = {"method": "momentum", "rounds": 30, "epsilon": 50.0, "classes": [0, 1]}
    with pytest.warns(PublicNote, match=r"synthetic row .*data_norm"):
        ConsensusClassifier(data_norm=1.0, **terms).fit(X, np.zeros(2000, dtype=int))
    schema = {"intercept": True, "columns": {"a": {"kind": "number", "lo": -1, "hi": 1}}}
    with pytest.warns(PublicNote, match=r"every synthetic row,"):
        ConsensusClassifier(schema=schema, **terms).fit({"a": X[:, 0]}, np.zeros(2000, dtype=int))


@pytest.mark.filterwarnings("ignore:expected")
def test_a_release_without_a_norm_is_warned() -> None:
    X, y = table()
    told = r"^data_norm is not declared"
    with pytest.warns(PublicNote, match=told):
        ConsensusClassifier("momentum", rounds=5, epsilon=8.0, classes=[0, 1]).fit(X, y)
    with pytest.warns(PublicNote, match=told):
        PrivateClassifier("objective", epsilon=8.0, classes=[0, 1]).fit(X, y)
    with pytest.warns(PublicNote, match=told):
        ConsensusRegressor((0, 1), epsilon=8.0).fit(X, y)
    with pytest.warns(PublicNote, match=told):
        ConsensusPCA(1, epsilon=8.0).fit(X)
    same = [
        ConsensusClassifier("momentum", rounds=5, data_norm=norm, random_state=0).fit(X, y)
        for norm in (None, 1.0)
    ]
    assert np.array_equal(same[0].coef_, same[1].coef_)


def test_three_classes_are_softmax_unless_the_method_has_none() -> None:
    X, _ = table()
    y = np.arange(300) % 3
    terms: dict[str, Any] = {"data_norm": 1.0, "epsilon": 8.0, "rounds": 5, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [
            ConsensusClassifier(method, **terms).fit(X, y) for method in ("prox_admm", "mr_admm")
        ]
        rest = ConsensusClassifier("prox_admm", loss="logistic", **terms).fit(X, y)
        two = ConsensusClassifier("prox_admm", **terms).fit(X, y > 0)
    assert [model.loss_ for model in (*fitted, rest, two)] == [
        "softmax",
        "logistic",
        "logistic",
        "logistic",
    ]
    assert 3 * fitted[0].privacy_spent_["releases"] == rest.privacy_spent_["releases"] >= 15
    assert fitted[0].predict_proba(X).shape == (300, 3)


def test_forecast_does_not_change_the_run() -> None:
    """No forecast draws from the run's own streams."""
    X, y = table(100)
    model = ConsensusClassifier(
        "momentum", rounds=5, data_norm=1.0, epsilon=8.0, random_state=0
    ).fit(X, y)
    result = model._result
    assert result is not None and result.config.seed == 0
    rounds = simulate(result.config, _rows(model, X, y), centre=result.centring)
    np.testing.assert_array_equal(rounds.models, result.models)


def _rows(model: ConsensusClassifier, X: np.ndarray, y: np.ndarray) -> Any:
    from sottovoce.data.rows import Rows

    terms = collect_terms(model, many_fits=False)
    parts = deal_rows_to_sites(terms, read_features(terms, X), None).parts
    encoded = terms.encoding.encode_rows(X)
    return Rows.build_from_parts(
        [(encoded[part], np.where(y[part] == 1, 1.0, -1.0)) for part in parts]
    )
