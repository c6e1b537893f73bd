"""The yardstick "without privacy" is the best linear model on the same columns, and no fit in a
private run's form.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from sottovoce import data
from sottovoce.runs.simulate import PooledProblem, RunConfig, pooled_minimiser
from sottovoce.runs.training import TrainConfig, train
from sottovoce.runs.yardstick import PENALTIES, least_nonprivate_error
from sottovoce.solvers.local_rows import LocalRows
from sottovoce.util.typing import Any, Array

HEAD = """
intercept = true
label = {label}
{more}
[columns.a]
kind = "number"
lo = -5
hi = 5
[columns.b]
kind = "number"
lo = -5
hi = 5
"""
YES = '{ column = "y", positive = "1", negative = "0" }'
THREE = '{ column = "y", values = ["0", "1", "2"] }'
DAYS = '{ column = "y", lo = -20, hi = 20 }'


def table(folder: Path, X: Array, y: Any, label: str, more: str = "") -> data.Dataset:
    """The data set of a file with two columns and a label."""
    lines = ["a,b,y", *(f"{a:.6f},{b:.6f},{one}" for (a, b), one in zip(X, y, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "rows.toml").write_text(HEAD.format(label=label, more=more))
    return data.load(folder / "rows.csv", schema=folder / "rows.toml")


def normal(n: int = 800, seed: int = 0) -> Array:
    return np.clip(np.random.default_rng(seed).normal(size=(n, 2)), -4.9, 4.9)


def logistic(X: Array, sharpness: float) -> Array:
    chance = 1.0 / (1.0 + np.exp(-sharpness * (X[:, 0] - 0.7 * X[:, 1] + 0.3)))
    return (np.random.default_rng(1).random(len(X)) < chance).astype(int)


def of_sklearn(dataset: data.Dataset) -> float:
    """The least error of scikit-learn's three penalties on the encoded rows."""
    found = []
    for C in (1e4, 1.0, 0.01):
        model = LogisticRegression(C=C, max_iter=10_000).fit(dataset.X_train, dataset.y_train)
        found.append(1.0 - model.score(dataset.X_test, dataset.y_test))
    return min(found)


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
def test_yardstick_errs_no_more_than_scikit_learns_best(sharpness: float, tmp_path: Path) -> None:
    X = normal()
    dataset = table(tmp_path, X, logistic(X, sharpness), YES)
    assert least_nonprivate_error(dataset) <= of_sklearn(dataset) + 1.0 / len(dataset.y_test)


def test_classes_that_a_line_parts_are_parted_where_a_penalty_of_one_over_n_does_not(
    tmp_path: Path,
) -> None:
    """Thin classes far from the origin, whose line needs large coefficients."""
    X = normal(600)
    X[:, 1] = X[:, 0] + 0.02 * np.where(np.arange(600) % 2, 1.0, -1.0) * (1.0 + np.abs(X[:, 1]))
    dataset = table(tmp_path, X, (X[:, 1] > X[:, 0]).astype(int), YES)
    # Without the large coefficients that a private run's penalty forbids a fifth and more is
    # misclassified.
    strict = LogisticRegression(C=1.0).fit(dataset.X_train, dataset.y_train)
    assert 1.0 - strict.score(dataset.X_test, dataset.y_test) > 0.1
    assert least_nonprivate_error(dataset) <= 0.02


def test_yardstick_also_fits_rows_without_clipping(tmp_path: Path) -> None:
    X = normal(1500, 3) * [4.0, 0.3]
    X = np.clip(X, -4.9, 4.9)
    y = (X[:, 0] + 3.0 * X[:, 1] + 0.4 * np.random.default_rng(5).normal(size=1500) > 1.0).astype(
        int
    )
    short = table(tmp_path, X, y, YES, "scale = 0.7")
    assert short.clipped
    whole = table(tmp_path, X, y, YES)
    assert least_nonprivate_error(short) <= least_nonprivate_error(whole) + 0.005


def test_yardstick_of_three_classes_and_of_numbers(tmp_path: Path) -> None:
    X = normal(900, 7)
    noise = np.random.default_rng(8)
    scores = X @ np.array([[2.0, 0.0, -2.0], [0.0, 2.0, -1.0]]) + noise.gumbel(size=(900, 3))
    three = table(tmp_path, X, scores.argmax(axis=1), THREE)
    best = LogisticRegression(C=1e4, max_iter=5000).fit(three.X_train, three.y_train)
    wrong = 1.0 - best.score(three.X_test, three.y_test)
    assert least_nonprivate_error(three) <= wrong + 1.0 / len(three.y_test)

    days = table(tmp_path, X, np.round(3.0 * X[:, 0] - X[:, 1] + noise.normal(size=900), 6), DAYS)
    line = LinearRegression().fit(days.X_train, days.y_train)
    apart = np.clip(line.predict(days.X_test), -1.0, 1.0) - days.y_test
    assert least_nonprivate_error(days) == pytest.approx(
        20.0 * math.sqrt(np.mean(apart**2)), rel=0.01
    )


def test_rows_without_a_known_label_and_constant_columns_do_not_matter(tmp_path: Path) -> None:
    X = normal(500)
    X[:, 1] = 2.5
    y = [str(one) for one in logistic(X, 2.0)]
    y[::50] = ["strange"] * 10
    dataset = table(tmp_path, X, y, YES)
    assert 0.0 < least_nonprivate_error(dataset) < 0.4


def test_weights_count_in_the_fit(tmp_path: Path) -> None:
    """Rows of one class that weigh nothing leave a model that answers the other."""
    X = normal(500)
    y = logistic(X, 2.0)
    dataset = table(tmp_path, X, y, YES, 'class_weight = { "0" = 1e-9, "1" = 1.0 }')
    assert dataset.weights is not None
    assert least_nonprivate_error(dataset) == pytest.approx(
        float(np.mean(dataset.y_test < 0)), abs=0.03
    )


def test_report_shows_run_beside_yardstick(tmp_path: Path) -> None:
    X = normal(600)
    X[:, 1] = X[:, 0] + 0.02 * np.where(np.arange(600) % 2, 1.0, -1.0) * (1.0 + np.abs(X[:, 1]))
    dataset = table(tmp_path, X, (X[:, 1] > X[:, 0]).astype(int), YES)
    where = {"data": str(tmp_path / "rows.csv"), "schema": str(tmp_path / "rows.toml"), "nodes": 2}
    report = train(TrainConfig(RunConfig("prox_average", 1.0, 1e-5, seed=0), **where))
    assert (
        report.nonprivate_test_error == least_nonprivate_error(dataset) <= report.test_errors.mean()
    )


@pytest.mark.parametrize(
    ("label", "known", "loss"),
    [(YES, "1", "logistic"), (THREE, "2", "logistic"), (DAYS, "3", "huber-residual:0.25")],
)
def test_labels_in_held_out_rows_alone_end_no_run(
    tmp_path: Path, label: str, known: str, loss: str
) -> None:
    """The run has released by then, so whatever the labels are, it is finished and told."""
    X = normal(100)
    held_out = np.random.default_rng(0).permutation(100)[:20]
    for labelled in (held_out, held_out[:1], np.setdiff1d(np.arange(100), held_out), np.arange(0)):
        y = np.where(np.isin(np.arange(100), labelled), known, "")
        table(tmp_path, X, y, label)
        run = RunConfig("momentum", 2.0, 1e-5, rounds=2, seed=0, loss=loss)
        report = train(
            TrainConfig(run, str(tmp_path / "rows.csv"), str(tmp_path / "rows.toml"), nodes=2)
        )
        assert report.nonprivate_test_error is None
        assert report.test_errors.size == int(np.isin(held_out, labelled).any())


def test_rows_without_weight_give_no_yardstick(tmp_path: Path) -> None:
    dataset = table(tmp_path, normal(100), logistic(normal(100), 2.0), YES)
    weights = np.zeros(len(dataset.y_train))
    assert least_nonprivate_error(replace(dataset, weights=weights)) is None
    weights[:50] = 1.0
    some = replace(dataset, weights=weights)
    without = replace(
        dataset,
        weights=weights[:50],
        X_train=dataset.X_train[:50],
        y_train=dataset.y_train[:50],
        train_columns={name: column[:50] for name, column in dataset.train_columns.items()},
    )
    assert least_nonprivate_error(some) == least_nonprivate_error(without)


def test_yardstick_prepares_rows_once_for_all_penalties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are prepared once for each encoding, and a shared preparation changes no bit."""
    X = normal()
    dataset = table(tmp_path, X, logistic(X, 2.0), YES)
    prepared = []
    prepare_rows = LocalRows.prepare_rows

    def counted(rows: Any, *rest: Any) -> LocalRows:
        prepared.append(rows)
        return prepare_rows(rows, *rest)

    monkeypatch.setattr(LocalRows, "prepare_rows", counted)
    assert least_nonprivate_error(dataset) is not None
    assert len(prepared) == len(PENALTIES)
    problem = PooledProblem(prepared[0], "logistic")
    for l2 in (1e-3, 1e-2):
        alone = pooled_minimiser(prepared[0], RunConfig(loss="logistic"), l2)
        assert problem.minimiser(l2).tolist() == alone.tolist()
