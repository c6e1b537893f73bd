"""Principal components from one release of second moments."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import check_estimator

from sottovoce import ConsensusPCA
from sottovoce.errors import InvalidInput


def rows(n: int = 20_000, seed: int = 0) -> np.ndarray:
    """Two directions that matter, around a mean, in five columns."""
    rng = np.random.default_rng(seed)
    directions = np.array([[0.6, 0.3, 0, 0, 0], [0, 0, 0.3, -0.2, 0]])
    return (
        rng.uniform(-1, 1, (n, 2)) @ directions
        + 0.05 * rng.normal(size=(n, 5))
        + [0.2, 0, 0, 0, -0.4]
    )


def test_pca_passes_scikit_learns_estimator_checks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skipped checks warn
        results = check_estimator(ConsensusPCA(1, random_state=0, data_norm=10.0), on_fail=None)
    assert sum(one["status"] == "passed" for one in results) > 40
    assert not [one["check_name"] for one in results if one["status"] == "failed"]


def test_components_without_noise_equal_scikit_learns_pca() -> None:
    X = rows(3000)
    found, plain = (
        ConsensusPCA(3, epsilon=np.inf, data_norm=2.0, random_state=0).fit(X),
        PCA(3).fit(X),
    )
    np.testing.assert_allclose(
        found.explained_variance_, plain.explained_variance_ * 2999 / 3000, rtol=1e-8
    )
    np.testing.assert_allclose(
        found.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-8
    )
    np.testing.assert_allclose(found.mean_, plain.mean_, rtol=1e-8, atol=1e-10)
    turned = np.sign(np.sum(found.components_ * plain.components_, axis=1))
    np.testing.assert_allclose(found.transform(X), plain.transform(X) * turned, atol=1e-6)
    # the third of three alike
    assert found.noise_ == 0.0 and found.clear_.tolist() == [
        True,
        True,
        False,
    ]


def test_component_within_sampling_error_is_not_clear() -> None:
    """Without noise too: of two population eigenvalues that are equal no direction is clear,
    however many rows.
    """
    spreads, clear, turned = np.sqrt([2.0, 1.0, 1.0, 0.4]), [], []
    for seed in range(30):
        X = np.random.default_rng(seed).normal(size=(2000, 4)) * spreads
        model = ConsensusPCA(
            3, data_norm=4.5, trust="curator", epsilon=np.inf, random_state=seed
        ).fit(X)
        clear.append(model.clear_)
        turned.append(np.abs(np.diag(model.components_[:, :3])))
    assert np.mean(clear, axis=0).tolist() == [1.0, 0.0, 0.0]
    assert np.all(np.array(turned)[:, 0] > np.cos(np.radians(30.0)))
    # as noise-free numbers alone would hide
    assert np.mean(np.array(turned)[:, 1] < np.cos(np.radians(30.0))) > 0.3


def test_the_stated_sampling_error_is_that_of_repeated_draws() -> None:
    """Of the entries beside the diagonal: no less than draws show, and at most five times: few
    rows reach the bound.
    """
    entries, told = [], []
    for seed in range(40):
        X = np.random.default_rng(seed).normal(size=(500, 3)) * [1.0, 0.7, 0.5]
        model = ConsensusPCA(
            1, data_norm=3.0, trust="curator", epsilon=np.inf, random_state=seed
        ).fit(X)
        entries.append(np.linalg.norm(np.cov(X.T)[0, 1:]))
        told.append(model.sampling_[0])
    found = float(np.sqrt(np.mean(np.square(entries))))
    assert found < np.mean(told) < 5.0 * found


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_clear_directions_are_right_and_others_are_marked(trust: str) -> None:
    X = rows()
    model = ConsensusPCA(4, data_norm=1.5, trust=trust, epsilon=2.0, random_state=0).fit(X)
    plain = PCA(4).fit(X)
    assert model.clear_.tolist() == [True, True, False, False]
    turns = np.abs(np.sum(model.components_[:2] * plain.components_[:2], axis=1))
    assert np.all(turns > 0.98)
    assert np.all(
        np.abs(model.explained_variance_ - plain.explained_variance_) <= model.noise_ * 1.5
    )
    said = model.privacy_spent_
    assert said["epsilon"] <= 2.0 and "replace-one" in said["says"]


@pytest.mark.filterwarnings("ignore:every row is shorter")
def test_covariance_noise_has_the_stated_scale() -> None:
    """Of the mean of one column of zeros, whose moment with the constant is an entry beside the
    diagonal.

    A chi-squared test at one in 10^4 for the right scale, which two thirds and three halves of it
    fail.
    """
    X, means, noise = np.zeros((4000, 1)), [], 0.0
    for seed in range(80):
        model = ConsensusPCA(1, trust="curator", random_state=seed).fit(X)
        means.append(float(model.mean_[0]))
        # sqrt 2 s / scale^2; the mean has noise s / sqrt 2 / (scale value), scale = sqrt 3 value
        noise = model.noise_
    squares = float(np.sum(np.square(means) / (noise * np.sqrt(3.0) / 2.0) ** 2))
    accept = [float(stats.chi2.sf(squares * k**2, 80)) for k in (1.0, 1.5, 2 / 3)]
    assert 1e-4 < accept[0] < 1 - 1e-4 and accept[1] < 1e-4 and accept[2] > 1 - 1e-4


@pytest.mark.filterwarnings("ignore:data_norm is smaller")
def test_rows_beyond_the_norm_bound_do_not_turn_components() -> None:
    X = rows(5000) * 4.0
    found = ConsensusPCA(2, epsilon=np.inf, data_norm=1.0, random_state=0).fit(X)
    assert np.abs(np.sum(found.components_ * PCA(2).fit(X).components_, axis=1)).min() > 0.95


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n_components": 6}, "number of columns, 5"),
        ({"n_components": 0}, "n_components"),
        ({"delta": None}, "no pure epsilon"),
        ({"data_norm": 0.0}, "data_norm"),
        ({"trust": "all"}, "trust"),
    ],
)
def test_invalid_parameters_of_pca_are_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        ConsensusPCA(**({"random_state": 0} | parameters)).fit(rows(100))
