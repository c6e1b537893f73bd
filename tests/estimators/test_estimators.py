"""ConsensusClassifier: scikit-learn's own checks, the map into the unit ball and back, budgets,
sites.
"""

from __future__ import annotations

import math
import pickle
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import sottovoce
from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.errors import BudgetExceeded, HolderNote, InvalidInput
from sottovoce.estimators import classifier_steps
from sottovoce.estimators.encoding import NormEncoding
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import lifetime_accountant, make_accountant
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.runs.auto_search import Choice
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig

# rows of any norm
pytestmark = pytest.mark.filterwarnings("ignore:.* rows are longer than data_norm")
# where a test is not about the choice of a method
NAMED: dict[str, Any] = {
    "method": "mr_admm",
    "delta": None,
}
NOISE_FREE = {
    "epsilon": math.inf,
    "method": "admm",
    "n_sites": 2,
    "rounds": 60,
    "knobs": {"eta": 0.01, "rho": 1e-4},
}
LABELS = ["no", "yes"]

COUNTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a row of weight 2 counts twice, but is "
    "one row of the number "
    "that losses are averaged over, which is public"
    for kind in ("dense", "sparse")
}
NOISY = COUNTED | {
    "check_class_weight_classifiers": "looks at weights of 1000 and .0001 on 30 rows, through noise"
}
EXPECTED_FAILURES = NOISY | {
    "check_classifiers_train": "asks for 83% accuracy on 300 rows: at five sites of 60 rows and "
    "an epsilon of 1 for "
    "three runs the noise that is proved to protect a row drowns them",
}


def problem(n: int = 400, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = 5.0 * rng.standard_normal((n, d))
    return X, np.where(X @ np.arange(1, d + 1) + 3 + rng.logistic(size=n) > 0, "yes", "no")


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (
            ConsensusClassifier(data_norm=10.0, random_state=0, **(NOISE_FREE | {"rounds": 20})),
            COUNTED,
        ),
        (ConsensusClassifier(random_state=0, **NAMED), EXPECTED_FAILURES),
        (ConsensusClassifier(random_state=0), NOISY),
    ],
    ids=["noise-free", "pure", "default"],
)
def test_classifiers_pass_scikit_learns_estimator_checks(
    estimator: ConsensusClassifier, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default is chosen once here: the checks have 20 shapes, and a search for each takes a
    minute.
    """
    chosen = {"method": "momentum", "rounds": 30, "rho": 1e-5, "max_grad_norm": 0.1}
    monkeypatch.setattr(
        classifier_steps,
        "choose_method",
        lambda config, *_, **__: Choice(config.but(**chosen, auto=False)),
    )
    monkeypatch.setattr(classifier_steps, "forecast_run", lambda *_, **__: None)
    with warnings.catch_warnings():
        # skipped checks warn; what is skipped is listed in the results
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 45
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)


def test_defaults_are_those_of_a_run_but_for_method_budget_and_certificate() -> None:
    known, ours = (
        RunConfig.defaults(),
        ConsensusClassifier().get_params() | ConsensusClassifier()._resolve_knobs(),
    )
    shared = ours.keys() & known.keys()
    own = {
        "classes",
        "n_sites",
        "data_norm",
        "fit_intercept",
        "random_state",
        "inference",
        "class_weight",
    }
    own |= {"schema", "columns", "verbose", "site_constants"}
    assert shared == ours.keys() - own - {"accounting", "ledger", "knobs", "max_weight"}
    assert ours["centre"] is True  # where it pays; a run's is a digest
    for name in shared - {
        "method",
        "delta",
        "tol",
        "trust",
        "loss",
        "centre",
    }:  # no trust: nobody's, or the method's
        assert ours[name] == known[name], name
    for estimator in (ConsensusClassifier(), PrivateClassifier()):
        assert (estimator.method, estimator.epsilon, estimator.delta) == ("auto", 1.0, 1e-5)
        assert estimator._resolve_knobs()["tol"] is None  # matched to the noise


@pytest.mark.parametrize("kind", [ConsensusClassifier, PrivateClassifier])
def test_the_default_chooses_a_method_and_spends_epsilon_1_at_a_small_delta(
    kind: type[ConsensusClassifier],
) -> None:
    X, y = problem(600)
    model = kind(data_norm=12.0, classes=LABELS, random_state=0).fit(X, y)
    assert model.choice_ is not None and model.choice_.table
    assert model.privacy_spent_["delta"] == 1e-5 and 0.999 <= model.privacy_spent_["epsilon"] <= 1.0
    pure = kind(data_norm=12.0, classes=LABELS, delta=None, random_state=0).fit(X, y)
    assert pure.privacy_spent_["delta"] == 0 and 0.999 <= pure.privacy_spent_["epsilon"] <= 1.0


def test_a_total_of_pure_epsilon_has_no_delta() -> None:
    """Neither the accountant's name nor a ledger of pure epsilon needs delta=None beside it."""
    for accountant in ("pure", Ledger()):
        model = fit_with(accountant, method="mr_admm", delta=1e-5)
        assert model.privacy_spent_["delta"] == 0 and model.privacy_spent_["accountant"] == "pure"
        assert np.array_equal(model.coef_, fit_with(None, **NAMED).coef_)
    named, left = (fit_with(Ledger(), delta=delta) for delta in (None, 1e-5))
    assert np.array_equal(named.coef_, left.coef_)  # the choice is that of a pure epsilon


def test_coefficients_are_in_the_units_of_x() -> None:
    """Rows within data_norm: the linear form in X equals the model's margin on the encoded row."""
    X, y = problem()
    for intercept in (True, False):
        model = ConsensusClassifier(
            data_norm=100.0, fit_intercept=intercept, random_state=0, **NAMED
        )
        with pytest.warns(HolderNote, match="^every row"):
            model.fit(X, y)
        norm = math.sqrt(2.0) if intercept else 1.0
        encoded = np.hstack([X / 100.0, np.ones((len(X), 1))]) / norm if intercept else X / 100.0
        assert np.linalg.norm(encoded, axis=1).max() <= 1
        np.testing.assert_allclose(
            encoded, NormEncoding(100.0, intercept).encode_rows(X), rtol=1e-9
        )
        w = (
            np.append(model.coef_[0] * 100.0, model.intercept_[0]) * norm
            if intercept
            else model.coef_[0] * 100.0
        )
        np.testing.assert_allclose(model.decision_function(X), encoded @ w, rtol=1e-9)
        assert model.site_coef_.shape == (5, 3)
        np.testing.assert_allclose(model.site_coef_.mean(axis=0), model.coef_[0], rtol=1e-9)


def test_rows_beyond_the_declared_norm_are_shortened() -> None:
    X, _ = problem()
    encoded = NormEncoding(1.0, intercept=True).encode_rows(1e6 * X)
    np.testing.assert_allclose(np.linalg.norm(encoded, axis=1), 1.0, rtol=1e-9)
    assert np.linalg.norm(encoded, axis=1).max() <= 1.0


@pytest.mark.parametrize("data_norm", [1e-300, 1.0, 1e150])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200, 1e307])
@pytest.mark.parametrize("intercept", [True, False])
def test_no_row_is_too_large_to_be_shortened(
    data_norm: float, size: float, intercept: bool
) -> None:
    """Nothing overflows, directions are kept, and no norm passes one."""
    X = size * problem(50)[0] / 5.0
    encoded = NormEncoding(data_norm, intercept).encode_rows(X)
    assert np.linalg.norm(encoded, axis=1).max() <= 1.0
    features = encoded[:, :3] * math.sqrt(2.0) if intercept else encoded
    length = np.minimum(1.0, size / data_norm * np.linalg.norm(X / size, axis=1, keepdims=True))
    direction = X / size / np.linalg.norm(X / size, axis=1, keepdims=True)
    np.testing.assert_allclose(features, length * direction, rtol=1e-9, atol=1e-300)


def test_prediction_is_linear_beyond_the_declared_norm() -> None:
    X, y = problem()
    model = ConsensusClassifier(data_norm=1.0, random_state=0, **NAMED).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(9 * X), 9 * X @ model.coef_[0] + model.intercept_[0]
    )


@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_it_is_logistic_regression_at_the_mapped_weights(intercept: bool) -> None:
    """Sites of unequal size, so that the weights of their rows differ."""
    X, y = problem()
    site = np.repeat(np.arange(4), [40, 80, 120, 160])
    model = ConsensusClassifier(
        method="admm",
        epsilon=math.inf,
        rounds=400,
        data_norm=30.0,
        knobs={"rho": 0.1, "eta": 0.02, "tol": 1e-10},
        fit_intercept=intercept,
        classes=LABELS,
    ).fit(X, y, groups=site)
    n = np.bincount(site)[:, None].astype(float)
    weights = Facts(
        make_loss("logistic"), n, 3 + intercept, C=1.0, rho=0.1, n_nodes=4
    ).sklearn_weights()[site, 0]
    reference = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    reference.fit(NormEncoding(30.0, intercept).encode_rows(X), y, sample_weight=weights)
    w = (
        np.append(model.coef_[0] * 30.0, model.intercept_[0]) * math.sqrt(2.0)
        if intercept
        else model.coef_[0] * 30.0
    )
    np.testing.assert_allclose(w, reference.coef_[0], atol=1e-5)
    # every site agrees
    np.testing.assert_allclose(model.site_coef_, np.tile(model.coef_, (4, 1)), atol=1e-5)
    assert math.isinf(model.privacy_spent_["epsilon"])


def test_groups_are_the_sites() -> None:
    X, y = problem()
    groups = np.array(["north", "south", "west"])[np.arange(400) % 20 // 7]
    model = ConsensusClassifier(epsilon=3.0, data_norm=20.0, random_state=1, **NAMED).fit(
        X, y, groups=groups
    )
    assert model.sites_.tolist() == ["north", "south", "west"]
    spent = model.privacy_spent_["per_node"]
    assert len(spent) == 3
    assert max(spent) == model.privacy_spent_["epsilon"]
    # every site has its own noise for its own size
    assert all(2.999 < each <= 3.0 for each in spent)
    with pytest.raises(InvalidInput, match=r"^groups: must name"):
        ConsensusClassifier(classes=LABELS).fit(X, y, groups=groups[:-1])
    for missing in ([None] * 200 + ["north"] * 200, [math.nan] * 200 + [1.0] * 200):
        with pytest.raises(InvalidInput, match=r"^groups: has rows"):
            ConsensusClassifier(classes=LABELS).fit(X, y, groups=missing)


@pytest.mark.parametrize("method", ["dvp", "r_admm", "mr_admm"])
def test_fit_spends_the_declared_epsilon(method: str) -> None:
    X, y = problem()
    for epsilon in (0.5, 4.0):
        model = ConsensusClassifier(method=method, epsilon=epsilon, delta=None, random_state=0).fit(
            X, y
        )
        assert epsilon * 0.999 <= model.privacy_spent_["epsilon"] <= epsilon
        assert model.n_iter_ == 10
        assert model.stopped_ == "finished"


def test_fits_differ_unless_random_state_is_given() -> None:
    X, y = problem()
    free = [ConsensusClassifier(classes=LABELS, **NAMED).fit(X, y) for _ in range(2)]
    keyed = [ConsensusClassifier(random_state=7, **NAMED).fit(X, y) for _ in range(2)]
    assert not np.array_equal(free[0].coef_, free[1].coef_)
    assert np.array_equal(keyed[0].coef_, keyed[1].coef_)
    assert free[0].privacy_spent_["release"]
    assert not keyed[0].privacy_spent_["release"]
    for source in (np.random.RandomState, np.random.default_rng):
        drawn = [ConsensusClassifier(random_state=source(3), **NAMED).fit(X, y) for _ in range(2)]
        assert np.array_equal(drawn[0].coef_, drawn[1].coef_)
        assert not drawn[0].privacy_spent_["release"]


def test_rows_are_dealt_at_random() -> None:
    """One round without noise: only the deal can make two fits differ."""
    X, y = problem()
    once = NOISE_FREE | {"rounds": 1, "classes": LABELS}
    free = [ConsensusClassifier(**once).fit(X, y) for _ in range(2)]
    keyed = [ConsensusClassifier(random_state=5, **once).fit(X, y) for _ in range(2)]
    assert not np.array_equal(free[0].site_coef_, free[1].site_coef_)
    assert np.array_equal(keyed[0].site_coef_, keyed[1].site_coef_)


@pytest.fixture
def unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question may reach the rows."""

    def asked(*_: object) -> None:
        raise AssertionError("a query was answered")

    monkeypatch.setattr(RowGuard, "_charge_and_draw", asked)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "^epsilon=0.0: must be > 0"),
        ({"epsilon": -1.0}, "^epsilon=-1.0"),
        ({"delta": 1.0}, "^delta=1.0"),
        ({"data_norm": 0.0}, "^data_norm=0.0"),
        ({"method": "nope"}, "^method='nope'"),
        ({"method": "admm"}, "no finite epsilon"),
        ({"n_sites": 61}, "^n_sites=61: must be a whole number from 1 to the number of rows, 60"),
        ({"n_sites": 0}, "^n_sites=0"),
        ({"n_sites": 2.5}, "^n_sites=2.5"),
        ({"random_state": -1}, "^random_state=-1"),
        ({"knobs": {"graph": "blob"}}, "^graph='blob'"),
        ({"rounds": 0}, "^rounds=0"),
    ],
)
def test_bad_parameters_are_one_line(
    unspent: None, parameters: dict[str, Any], message: str
) -> None:
    X, y = problem(60)
    model = ConsensusClassifier(classes=LABELS, **parameters)
    with pytest.raises(InvalidInput, match=message) as refusal:
        model.fit(X, y)
    assert "\n" not in str(refusal.value)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_estimators_work_in_pipelines_searches_and_clones() -> None:
    X, y = problem(200)
    model = ConsensusClassifier(data_norm=20.0, classes=LABELS, **NOISE_FREE)
    assert cross_val_score(model, X, y, cv=3).min() > 0.8
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), model),
        {"consensusclassifier__knobs__rho": [1e-4, 1e-2]},
        cv=2,
    )
    assert search.fit(X, y).best_score_ > 0.8
    fitted = pickle.loads(pickle.dumps(clone(model).fit(X, y)))
    assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))
    assert not hasattr(ConsensusClassifier(loss="huber:0.5"), "predict_proba")


def test_public_names() -> None:
    names = [
        "ConsensusClassifier",
        "ConsensusPCA",
        "ConsensusRegressor",
        "ConsensusSurvival",
        "DurableLedger",
        "Ledger",
        "PrivateClassifier",
        "PrivateRegressor",
        "Report",
        "Result",
        "RunConfig",
        "Schema",
        "SchemaTransformer",
        "SottovoceError",
    ]
    functions = ["describe", "register", "survival_curves", "train"]
    assert sorted(sottovoce.__all__) == [*names, "TrainConfig", "__version__", *functions]
    assert all(hasattr(sottovoce, name) for name in sottovoce.__all__)


# Budgets that several fits share


def fit_with(accountant: Any, **knobs: Any) -> ConsensusClassifier:
    X, y = problem()
    settings = {
        "n_sites": 2,
        "rounds": 4,
        "epsilon": 1.0,
        "data_norm": 10.0,
        "random_state": 0,
    } | knobs
    groups = np.arange(len(y)) % 2 if isinstance(accountant, DurableLedger) else None
    name = "accounting" if isinstance(accountant, str | None) else "ledger"
    return ConsensusClassifier(**{name: accountant}, **settings).fit(X, y, groups)


def test_privacy_spent_explains_itself() -> None:
    spent = fit_with("best", method="mr_admm", delta=1e-5).privacy_spent_
    assert spent["epsilon"] == min(spent["accountants"].values())
    assert spent["accountants"][spent["accountant"]] == spent["epsilon"]
    for phrase in ("delta = 1e-05", "one row of one site", "not a release", "zCDP"):
        assert phrase in spent["says"]


def test_fits_on_one_ledger_share_its_budget() -> None:
    ledger = Ledger(lifetime_accountant("rdp", np.array(2.0), 1e-5), 2.0, 1e-5)
    model = fit_with(ledger, method="mr_admm", delta=1e-5, random_state=1)
    first = ledger.total()
    assert model.privacy_spent_["ledger"]["spent"] == first > 0
    for seed in range(50):
        before = len(ledger.rows)
        try:
            fit_with(ledger, method="mr_admm", delta=1e-5, random_state=seed)
        except BudgetExceeded:
            break
    rows = len(ledger.rows)
    assert rows == before
    # whole fits only: the last was refused before its first round
    assert rows % 2 == 0 and 2 < rows < 100
    assert first < ledger.total() <= 2.0


def test_a_ledger_in_memory_must_be_a_filter() -> None:
    with pytest.raises(InvalidInput, match="not proved"):
        fit_with(Ledger(make_accountant("best"), 2.0, 1e-5), delta=1e-5)


def test_a_fit_on_a_durable_ledger_is_paid_once(tmp_path: Any) -> None:
    with DurableLedger.create(tmp_path / "rows.ledger", epsilon=1.5, n_nodes=2) as ledger:
        one, two = (fit_with(ledger, method="mr_admm") for _ in range(2))
        assert np.array_equal(one.coef_, two.coef_)
        assert ledger.total() == pytest.approx(1.0)
        with pytest.raises(BudgetExceeded):
            fit_with(ledger, method="mr_admm", random_state=3)
        with pytest.raises(InvalidInput, match=r"^groups"):
            ConsensusClassifier(ledger=ledger, classes=LABELS).fit(*problem())


# More than two classes, and one site


def three(n: int = 6000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.array(["a", "b", "c"])[rng.integers(3, size=n)]
    centres = {"a": (1.0, 0.0), "b": (-0.5, 0.9), "c": (-0.5, -0.9)}
    return np.array([centres[label] for label in y]) + 0.3 * rng.normal(size=(n, 2)), y


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_three_classes_share_one_budget(delta: float | None) -> None:
    X, y = three()
    knobs: dict[str, Any] = {"epsilon": 3.0, "delta": delta, "data_norm": 2.0, "n_sites": 3}
    model = ConsensusClassifier("mr_admm", random_state=0, **knobs).fit(X, y)
    spent = model.privacy_spent_
    assert 3.0 * 0.999 <= spent["epsilon"] <= 3.0
    assert spent["releases"] == 3 * (5 if delta is None else 6)  # with a delta, a mean for each
    assert model.coef_.shape == (3, 2) and model.site_coef_.shape == (3, 3, 2)
    assert model.score(X, y) > 0.85
    proba = model.predict_proba(X[:5])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(proba), model.predict_log_proba(X[:5]))
    assert model.decision_function(X[:5]).shape == (5, 3)


@pytest.mark.filterwarnings("ignore:the model gives")
def test_classes_do_not_share_noise() -> None:
    X = np.tile([[0.6, 0.2]], (600, 1))
    y = np.arange(600) % 3  # the three problems are the same up to labels' order
    model = ConsensusClassifier(epsilon=1.0, n_sites=2, random_state=0, **NAMED).fit(X, y)
    assert np.min(np.abs(np.diff(model.coef_, axis=0))) > 1e-6


def test_three_classes_and_a_ledger_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^ledger"):
        ConsensusClassifier(loss="logistic", ledger=Ledger(), n_sites=2, random_state=0).fit(
            *three(60)
        )


@pytest.mark.parametrize("method", ["objective", "output", "generalised"])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_private_classifier_spends_what_was_asked(method: str, delta: float | None) -> None:
    X, y = problem(4000)
    model = PrivateClassifier(method, epsilon=2.0, delta=delta, data_norm=12.0, random_state=0).fit(
        X, y
    )
    assert 2.0 * 0.999 <= model.privacy_spent_["epsilon"] <= 2.0
    assert model.privacy_spent_["releases"] == (1 if delta is None else 2)  # with a delta, a mean
    exact = PrivateClassifier(method, classes=LABELS, epsilon=math.inf, data_norm=12.0).fit(X, y)
    assert model.score(X, y) > exact.score(X, y) - 0.1
    assert not np.allclose(model.coef_, exact.coef_)


def test_private_classifier_is_a_scikit_learn_estimator() -> None:
    estimator = PrivateClassifier(
        "objective",
        epsilon=math.inf,
        random_state=0,
        data_norm=10.0,
        knobs={"rho": 1e-4, "eta": 1e-4},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=COUNTED, on_fail=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert sum(result["status"] == "passed" for result in results) > 40


# Sparse rows


@pytest.mark.parametrize("intercept", [True, False])
def test_sparse_rows_give_what_dense_rows_give(intercept: bool) -> None:
    X, y = problem(600, 6)
    X[np.abs(X) < 4.0] = 0.0
    knobs: dict[str, Any] = {
        "epsilon": 4.0,
        "data_norm": 12.0,
        "fit_intercept": intercept,
        "random_state": 0,
        "knobs": {"tol": 1e-11},
    }
    for method in ("mr_admm", "prox_admm", "central_sgd"):
        dense = ConsensusClassifier(method, **knobs).fit(X, y)
        sparse = ConsensusClassifier(method, **knobs).fit(csr_array(X), y)
        np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-8)
        np.testing.assert_allclose(
            sparse.decision_function(csr_array(X)), dense.decision_function(X), atol=1e-6
        )
        assert sparse.privacy_spent_["epsilon"] == dense.privacy_spent_["epsilon"]


def test_sparse_rows_are_never_made_dense() -> None:
    """4,000 rows of 30,000 columns would be 0.96 GB; the fit needs the vectors and little more."""
    rng = np.random.default_rng(0)
    n, d, each = 4000, 30000, 10
    columns = rng.integers(d, size=(n, each))
    y = rng.integers(2, size=n)
    columns[:, 0] = y  # one telling column for each class
    X = csr_array(
        (np.full(n * each, 0.3), (np.repeat(np.arange(n), each), columns.ravel())), shape=(n, d)
    )
    tracemalloc.start()
    model = ConsensusClassifier(
        "admm",
        epsilon=math.inf,
        n_sites=2,
        rounds=3,
        knobs={"rho": 0.01, "eta": 0.01},
        random_state=0,
    )
    score = model.fit(X, y).score(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score > 0.95
    assert peak < 0.2 * n * d * 8
