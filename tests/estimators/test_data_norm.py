"""A data_norm that suits no row: told to the holder in a simulation, and never by a release."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce import ConsensusClassifier, ConsensusPCA, PrivateClassifier
from sottovoce.data.validation import note_on_data_norm
from sottovoce.errors import HolderNote, PublicNote

pytestmark = pytest.mark.filterwarnings("ignore:the model gives")  # labels are random
KNOBS = {"n_sites": 2, "rounds": 2, "classes": [0, 1]}


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(
        1, 2, size=(80, 1)
    ), np.arange(80) % 2


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("data_norm", "says"), [(0.99, "^data_norm is smaller"), (4.01, "^every row is shorter")]
)
def test_simulation_warns_of_a_misfit_data_norm(data_norm: float, says: str, sparse: bool) -> None:
    X, y = problem()
    rows = csr_array(X) if sparse else X
    with pytest.warns(HolderNote, match=f"{says}.*simulation, for the data's holder only"):
        told = ConsensusClassifier(data_norm=data_norm, random_state=0, **KNOBS).fit(rows, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = ConsensusClassifier(data_norm=data_norm, random_state=0, **KNOBS).fit(rows, y)
    assert np.array_equal(told.coef_, again.coef_)
    with pytest.warns(HolderNote, match=says):
        PrivateClassifier(data_norm=data_norm, random_state=0, classes=[0, 1]).fit(rows, y)


@pytest.mark.parametrize("data_norm", [0.99, 4.01])
def test_release_does_not_warn_of_a_misfit_data_norm(data_norm: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # of synthetic rows, as noise has it
        warnings.filterwarnings("ignore", "the model gives the same class", PublicNote)
        ConsensusClassifier(data_norm=data_norm, **KNOBS).fit(*problem())


@pytest.mark.parametrize("kind", [ConsensusClassifier, ConsensusPCA])
def test_simulation_counts_rows_that_a_tight_bound_clips(kind: Any) -> None:
    X, y = problem()
    beyond = int(np.sum(np.linalg.norm(X, axis=1) > 1.05))
    done = "count for less" if kind is ConsensusPCA else "were clipped"
    with pytest.warns(
        HolderNote, match=f"^{beyond} of 80 rows are longer than data_norm and {done}"
    ):
        kind(data_norm=1.05, random_state=0, epsilon=8.0, n_sites=2).fit(X, y)


def test_fitting_data_norm_gives_no_warning() -> None:
    X, y = problem()
    for data_norm in (1.3, 3.9):
        ConsensusClassifier(data_norm=data_norm, random_state=0, **KNOBS).fit(X, y)
    without_noise = {"method": "admm", "epsilon": math.inf}
    ConsensusClassifier(data_norm=100.0, random_state=0, **without_noise, **KNOBS).fit(X, y)


def test_norm_check_works_for_huge_and_tiny_numbers() -> None:
    for X in (np.full((3, 2), 1e200), csr_array(np.full((3, 2), 1e200))):
        assert str(note_on_data_norm(X, 1.0)).startswith("data_norm is smaller")
        assert note_on_data_norm(1e-400 * X, 1.0, noisy=False) is None
