"""What an adversary found in parameters: NumPy's numbers, a parameter given twice, a saved run
of answers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sottovoce import ConsensusClassifier, ConsensusRegressor
from sottovoce.answers.regression import LeastSquares
from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_from_columns
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate


@pytest.mark.filterwarnings("ignore:the model gives")
def test_numpy_scalars_are_accepted_as_parameters() -> None:
    """As a search over an array of values gives them: a run's key is JSON."""
    numbers = {
        "epsilon": np.float32(1.0),
        "sites_per_row": np.int64(2),
        "rounds": np.int32(3),
        "seed": np.uint8(1),
    }
    config = RunConfig.from_dict({**numbers, "delta": 1e-5})  # type: ignore[arg-type]
    assert config == RunConfig(epsilon=1.0, sites_per_row=2, rounds=3, seed=1, delta=1e-5)
    assert RunConfig(epsilon=(np.float32(1.0), np.float64(2.0))).to_dict()["epsilon"] == (1.0, 2.0)
    assert {type(value) for value in config.to_dict().values()} <= {
        float,
        int,
        str,
        bool,
        type(None),
    }
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 2))
    model = ConsensusRegressor(
        (-1, 1), random_state=0, n_sites=3, knobs={"sites_per_row": np.int64(2)}
    )
    unit = "one row at each of 2 sites"
    assert model.fit(X, X[:, 0]).privacy_spent_["unit"] == unit


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    """The weaker of two guarantees must not win in silence."""
    with pytest.raises(TypeError, match="sites_per_row"):
        ConsensusClassifier(knobs={"sites_per_row": 2}, sites_per_row=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="sites_per_row"):
        ConsensusClassifier().set_params(knobs={"sites_per_row": 2}, sites_per_row=1)


def test_a_saved_run_of_answers_has_no_model_of_a_site(tmp_path: Path) -> None:
    X, naming = (
        np.random.default_rng(0).uniform(-0.5, 0.5, (60, 2)),
        naming_from_columns(["a", "b"], 1.0),
    )
    rows = naming.rows_of_sites([(X[:30], np.ones(30)), (X[30:], np.ones(30))]).with_offset(
        [X[:30, 0], X[30:, 0]]
    )
    method = LeastSquares(constant=naming.constant, free=np.ones(naming.d))
    config = RunConfig("auto", epsilon=1.0, delta=1e-5)
    simulate(config, rows, method=method, loss=Weighted(HuberResidual(1.0))).save(
        tmp_path / "run.npz"
    )
    for site in (None, 0):
        with pytest.raises(InvalidInput, match="trained no model"):
            SavedModel.load(tmp_path / "run.npz", site=site)
