"""Outputs of estimators and commands: coefficients, exported models, files, and pages."""

from __future__ import annotations

import json
import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import check_estimator

from sottovoce import ConsensusClassifier, ConsensusRegressor, PrivateRegressor
from sottovoce.answers.saved import SavedModel
from sottovoce.cli import cli
from sottovoce.errors import CheckpointError, HolderNote, InvalidInput

SCHEMA = """
label = { column = "died", positive = "yes", negative = "no" }
[columns.age]
kind = "number"
lo = 20.0
hi = 80.0
[columns.ward]
kind = "category"
values = ["north", "south", "west"]
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with known odds: ages and wards."""
    folder, rng, n = tmp_path_factory.mktemp("hospital"), np.random.default_rng(0), 12_000
    age, ward = rng.uniform(20, 80, n), rng.integers(3, size=n)
    p = expit(-2.0 + 0.03 * (age - 50) + np.array([0.0, 0.8, -0.5])[ward])
    died = np.where(rng.random(n) < p, "yes", "no")
    names = np.array(["north", "south", "west"])[ward]
    lines = [
        "age,ward,died",
        *(f"{a:.2f},{w},{d}" for a, w, d in zip(age, names, died, strict=True)),
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    return folder


def command(*words: Any) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def inferred(hospital: Path, *more: Any) -> str:
    files = ("--data", hospital / "rows.csv", "--schema", hospital / "schema.toml")
    return command("train", "--inference", "--trust", "sum", "--epsilon", 3, *files, *more)


class TestCommands:
    def test_train_with_inference_evaluate_and_predict(
        self, hospital: Path, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.json"
        plain = json.loads(
            inferred(hospital, "--evaluation", 2, "--set", "by=ward", "--save", run, "--json")
        )
        lines = {(line["name"], line["level"]): line for line in plain["coefficients"]}
        keys = {
            "name",
            "estimate",
            "standard_error",
            "noise_share",
            "low",
            "high",
            "p",
            "odds_ratio",
        }
        assert all(keys <= set(line) for line in plain["coefficients"])
        truth = {
            ("age", None): 0.03,
            ("ward", "south"): 0.8,
            ("ward", "west"): -0.5,
            ("(constant)", None): -3.5,
        }
        assert set(lines) == set(truth)
        for key, value in truth.items():
            assert abs(lines[key]["estimate"] - value) < 4 * lines[key]["standard_error"]
            assert lines[key]["odds_ratio"] == pytest.approx(math.exp(lines[key]["estimate"]))
        held = plain["evaluation"]
        assert plain["auc"] == held["auc"]["value"] and plain["brier"] == held["brier"]["value"]
        assert held["auc"]["low"] < held["exact"]["auc"] < held["auc"]["high"]
        assert set(held["by"]) == {"ward=north", "ward=south", "ward=west"}
        assert plain["privacy"]["epsilon"] <= 3 and held["privacy"]["epsilon"] <= 2
        saved = json.loads(run.read_text())["record"]
        assert (
            "exact" not in saved and "exact" not in saved["evaluation"] and "seconds" not in saved
        )

        told = json.loads(command("evaluate", run, hospital / "rows.csv", "--epsilon", 1, "--json"))
        assert (
            told["auc"]["low"] < told["exact"]["auc"] < told["auc"]["high"]
            and told["privacy"]["epsilon"] <= 1
        )
        assert "AUC" in command("evaluate", run, hospital / "rows.csv", "--by", "ward")
        first = command("predict", run, hospital / "rows.csv").splitlines()[1].split(",")
        assert first[0] in ("yes", "no") and 0 < float(first[1]) < 1

    def test_an_ordinary_run_is_evaluated_too(self, hospital: Path, tmp_path: Path) -> None:
        files = (
            "--data",
            hospital / "rows.csv",
            "--schema",
            hospital / "schema.toml",
            "--method",
            "prox_admm",
        )
        run = tmp_path / "run.npz"
        plain = json.loads(command("train", *files, "--evaluation", 2, "--save", run, "--json"))
        assert abs(plain["auc"] - plain["evaluation"]["exact"]["auc"]) < 0.1
        told = json.loads(command("evaluate", run, hospital / "rows.csv", "--json"))
        assert told["rows"] == 12_000

    def test_printed_table_has_names_and_intervals(self, hospital: Path) -> None:
        shown = inferred(hospital)
        assert (
            "against" in shown
            and "south" in shown
            and "interval" in shown
            and "epsilon = 3.000" in shown
        )

    @pytest.mark.parametrize(
        "words",
        [
            ("--method", "mr_admm"),
            ("--set", "loss=huber:0.5"),
            ("--pure",),
            ("--set", "by=age", "--evaluation", 1),
        ],
    )
    def test_options_unused_by_inference_are_refused(
        self, hospital: Path, words: tuple[Any, ...]
    ) -> None:
        files = ["--data", str(hospital / "rows.csv"), "--schema", str(hospital / "schema.toml")]
        done = CliRunner().invoke(cli, ["train", "--inference", *files, *map(str, words)])
        assert done.exit_code != 0

    def test_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "run.json").write_text('{"kind": "something else"}')
        with pytest.raises(CheckpointError, match="not a saved"):
            SavedModel.load(tmp_path / "run.json")


def rows(n: int = 12_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.random(n) < expit(X @ [0.8, -0.5] - 0.5)).astype(int)


class TestClassifier:
    def test_inference_estimates_are_within_errors_of_the_truth(self) -> None:
        X, y = rows()
        model = ConsensusClassifier(inference=True, epsilon=3.0, data_norm=3.0, random_state=0).fit(
            X, y
        )
        for line, truth in zip(model.coefficients_.lines, (0.8, -0.5, -0.5), strict=True):
            assert line.refused is None and abs(line.estimate - truth) < 4 * line.standard_error
        assert (
            model.coef_[0, 0] == model.coefficients_.lines[0].estimate and model.score(X, y) > 0.65
        )
        assert model.privacy_spent_["epsilon"] <= 3.0

    def test_groups_have_constants_of_their_own(self) -> None:
        X, y = rows()
        groups = np.array(["a", "b", "c"])[np.arange(len(y)) % 3]
        model = ConsensusClassifier(inference=True, epsilon=5.0, data_norm=3.0, random_state=0).fit(
            X, y, groups
        )
        assert [line.term.level for line in model.coefficients_.lines[2:]] == ["a", "b", "c"]
        assert model.site_intercept_.shape == (3,) and model.intercept_[0] == pytest.approx(
            model.site_intercept_.mean()
        )

    def test_exported_sklearn_model_predicts_alike(self) -> None:
        X, y = rows(3000)
        model = ConsensusClassifier(
            method="prox_admm", epsilon=3.0, data_norm=3.0, random_state=0
        ).fit(X, y)
        plain = model.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), model.predict_proba(X))
        assert (plain.predict(X) == model.predict(X)).all()
        with pytest.raises(InvalidInput, match="logistic loss"):
            ConsensusClassifier(loss="huber", method="prox_admm", random_state=0).fit(
                X, y
            ).to_sklearn()

    def test_the_page_has_the_statement_and_escapes_names(self) -> None:
        X, y = rows()
        model = ConsensusClassifier(inference=True, epsilon=3.0, data_norm=3.0, random_state=0)
        pandas = pytest.importorskip("pandas")
        page = model.fit(pandas.DataFrame(X, columns=["<b>", "z"]), y).page()
        assert (
            "&lt;b&gt;" in page
            and "<b>" not in page
            and "epsilon = 3.000" in page
            and "<table>" in page
        )

    @pytest.mark.parametrize(
        "more", [{"method": "prox_admm"}, {"fit_intercept": False}, {"loss": "huber"}]
    )
    def test_inference_refuses_other_terms(self, more: dict[str, Any]) -> None:
        X, y = rows(500)
        with pytest.raises(InvalidInput):
            ConsensusClassifier(inference=True, random_state=0, **more).fit(X, y)


class TestRegressor:
    @pytest.mark.parametrize("kind", [ConsensusRegressor, PrivateRegressor])
    def test_scikit_learns_contract(self, kind: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped checks warn
            counted = {
                "check_sample_weight_equivalence_on_dense_data": "the number of rows is public, "
                "weights are not"
            }
            estimator = kind(random_state=0, data_norm=10.0)
            results = check_estimator(estimator, expected_failed_checks=counted, on_fail=None)
        assert sum(one["status"] == "passed" for one in results) > 45
        assert not [one["check_name"] for one in results if one["status"] == "failed"]

    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
    def test_least_squares_is_near_that_of_all_rows(self, trust: str) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20_000, 4))
        y = 20.0 + X @ [3.0, -2.0, 0.0, 1.0] + 2.0 * rng.normal(size=20_000)
        model = ConsensusRegressor(
            (0.0, 40.0), epsilon=2.0, trust=trust, data_norm=3.0, random_state=0
        ).fit(X, y)
        np.testing.assert_allclose(model.coef_, [3.0, -2.0, 0.0, 1.0], atol=0.3)
        assert (
            model.intercept_ == pytest.approx(20.0, abs=0.3)
            and model.privacy_spent_["epsilon"] <= 2.0
        )
        exact = ConsensusRegressor(
            (0.0, 40.0), epsilon=math.inf, data_norm=3.0, random_state=0
        ).fit(X, y)
        assert exact.score(X, y) > 0.77 and model.score(X, y) > exact.score(X, y) - 0.03

    def test_few_rows_lose_little_to_noise(self) -> None:
        """400 rows of 8 columns at epsilon 1, R2 of .45 without noise: .22 is lost, and .50 without
        shrinkage.
        """
        lost = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            X, w = rng.uniform(-1.0, 1.0, size=(2400, 8)), 0.15 * rng.normal(size=8)
            y = np.clip(X @ w + 0.25 * rng.normal(size=2400) - 0.3, -1.0, 1.0)
            model = PrivateRegressor((-1.0, 1.0), data_norm=2.0, random_state=seed).fit(
                X[:400], y[:400]
            )
            exact = PrivateRegressor(
                (-1.0, 1.0), data_norm=2.0, epsilon=math.inf, random_state=0
            ).fit(X[:400], y[:400])
            lost.append(exact.score(X[400:], y[400:]) - model.score(X[400:], y[400:]))
        assert 0.0 < np.mean(lost) < 0.35

    @pytest.mark.parametrize("intercept", [True, False])
    def test_noiseless_regressor_is_least_squares(self, intercept: bool) -> None:
        rng = np.random.default_rng(3)
        X = rng.normal(size=(5000, 3)) @ np.array(
            [[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.3]]
        )
        y = X @ [1.0, -2.0, 3.0] + 4.0 * intercept + rng.exponential(size=5000)
        model = ConsensusRegressor(
            (-40.0, 40.0), epsilon=math.inf, data_norm=20.0, fit_intercept=intercept, random_state=0
        ).fit(X, y)
        exact = LinearRegression(fit_intercept=intercept).fit(X, y)
        np.testing.assert_allclose(model.coef_, exact.coef_, atol=2e-3)
        assert model.intercept_ == pytest.approx(exact.intercept_, abs=2e-3)

    @pytest.mark.parametrize(
        ("loss", "share"),
        [("quantile:0.5", 0.5), ("quantile:0.9", 0.9), ("huber-residual:0.2", 0.5)],
    )
    def test_other_losses_by_rounds(self, loss: str, share: float) -> None:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(8000, 2))
        y = 10.0 + 2.0 * X[:, 0] + rng.normal(size=8000)
        model = ConsensusRegressor(
            (0.0, 20.0),
            loss=loss,
            method="prox_admm",
            epsilon=8.0,
            rounds=30,
            data_norm=3.0,
            random_state=0,
        ).fit(X, y)
        assert np.mean(y <= model.predict(X)) == pytest.approx(share, abs=0.08)

    @pytest.mark.filterwarnings("ignore:.* lie beyond y_bounds")  # a few of them do
    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator", "one site"])
    @pytest.mark.parametrize("loss", ["huber-residual:0.25", "quantile:0.5"])
    def test_other_losses_do_well_at_their_defaults(self, trust: str, loss: str) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(3000, 3))
        y = 10.0 + 3.0 * X[:, 0] - X[:, 1] + rng.normal(size=3000)
        made: Any = (
            PrivateRegressor if trust == "one site" else partial(ConsensusRegressor, trust=trust)
        )
        assert (
            made((0.0, 20.0), loss=loss, data_norm=3.0, random_state=0).fit(X, y).score(X, y) > 0.8
        )

    @pytest.mark.filterwarnings("ignore:the model gives")  # no column tells rows apart
    def test_bounds_are_declared_and_never_read_in_a_release(self) -> None:
        X, y = np.zeros((10, 2)), np.arange(10.0)
        with pytest.raises(InvalidInput, match="y_bounds"):
            ConsensusRegressor().fit(X, y)
        with pytest.warns(HolderNote) as told:
            model = ConsensusRegressor(n_sites=3, random_state=0).fit(X, y)
        assert any("half" in str(one.message) for one in told)
        assert "bounds were read" in model.privacy_spent_["says"]
        with pytest.warns(HolderNote) as told:
            wide = ConsensusRegressor((-100.0, 100.0), n_sites=3, random_state=0).fit(X, y)
        assert any("half" in str(one.message) for one in told)
        assert (
            wide.y_bounds_ == (-100.0, 100.0)
            and "bounds were read" not in wide.privacy_spent_["says"]
        )


@pytest.mark.parametrize("far", [1e200, 1e308])
@pytest.mark.parametrize("data_norm", [0.5, 1e-300])
def test_long_rows_change_no_warning_or_refusal(far: float, data_norm: float) -> None:
    """Whatever a neighbouring table contains must not show in warnings or refusals, which no
    epsilon covers.
    """
    X = np.random.default_rng(0).normal(size=(400, 2))
    X[3], y = [far, -far], X[:, 0]
    number, label = y.copy(), np.where(y > 0, 1, 0)
    number[5] = far
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", HolderNote)
        regressor = ConsensusRegressor((-3.0, 3.0), data_norm=data_norm, random_state=0).fit(
            X, number
        )
        classifier = ConsensusClassifier(inference=True, data_norm=data_norm, random_state=0).fit(
            X, label
        )
    assert np.isfinite(regressor.coef_).all() and np.isfinite(classifier.coef_).all()
