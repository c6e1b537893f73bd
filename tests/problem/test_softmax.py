"""The softmax loss: derivatives, bounds, the parent without noise, and where its proof does not
carry over.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from sottovoce import ConsensusClassifier
from sottovoce.data.rows import Rows
from sottovoce.deploy.local import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import make_accountant
from sottovoce.problem.losses import Softmax, make_loss
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.simulate import RunConfig, prepare, simulate
from sottovoce.solvers.local import Solver

K, D = 4, 3


def sites(seed: int = 0, n: tuple[int, ...] = (40, 25, 31)) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(K, D))
    parts = []
    for m in n:
        y = rng.integers(K, size=m)
        X = centres[y] + 0.5 * rng.normal(size=(m, D))
        parts.append(
            (X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) / (1 + 1e-12), y)
        )
    return parts


def value(rows: Rows, w: np.ndarray) -> np.ndarray:
    """Mean loss at every node, from its definition."""
    out = []
    for i, m in enumerate(rows.n[:, 0].astype(int)):
        scores = rows.signed[i, :m] @ w[i].reshape(K, D).T
        out.append(
            np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(m), rows.labels[i, :m]])
        )
    return np.array(out)


def test_gradient_is_the_derivative_of_the_definition():
    rows = Rows.build_with_classes(sites(), K)
    solver = Solver(rows, Softmax(K), 1.0)
    rng = np.random.default_rng(1)
    w, p = rng.normal(size=(2, 3, K * D))
    slope = np.sum(solver.gradient(w) * p, axis=1)
    h = 1e-5
    np.testing.assert_allclose(
        slope, (value(rows, w + h * p) - value(rows, w - h * p)) / (2 * h), rtol=1e-7
    )
    np.testing.assert_allclose(
        solver.clipped_objective(w, np.inf)[:, 0], value(rows, w), rtol=1e-12
    )


def test_the_reference_hessian_is_the_block_diagonal_of_the_hessian():
    rows = Rows.build_with_classes(sites(), K)
    solver, loss, w = (
        Solver(rows, Softmax(K), 1.0),
        Softmax(K),
        np.random.default_rng(2).normal(size=(3, K * D)),
    )
    gram = (
        rows.sweep_over_rows().sum_curvatures(loss, w[:, None], diagonal=False) / rows.n[:, :, None]
    )
    h = 1e-5
    for j in range(K * D):
        step = np.zeros(K * D)
        step[j] = h
        column = (solver.gradient(w + step) - solver.gradient(w - step)) / (2 * h)
        own = slice(j // D * D, (j // D + 1) * D)
        np.testing.assert_allclose(gram[:, own, j], column[:, own], atol=1e-9)
        assert not gram[:, np.r_[0 : own.start, own.stop : K * D], j].any()
    diagonal = rows.sweep_over_rows().sum_curvatures(loss, w[:, None], diagonal=True) / rows.n
    np.testing.assert_allclose(diagonal, np.einsum("mjj->mj", gram))


def test_gradients_of_two_rows_differ_by_at_most_two_slope_bounds_and_come_near():
    rng = np.random.default_rng(3)
    loss, most = Softmax(K), 0.0
    near = np.array([[1.0, 0.05, 0.0], [-1.0, 0.05, 0.0]])
    for trial in range(300):
        X = rng.normal(size=(2, D)) if trial else near
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9) * (1 + 1e-9)
        y = rng.integers(K, size=2) if trial else np.zeros(2, dtype=int)
        rows = [Rows.build_with_classes([(X[k : k + 1], y[k : k + 1])], K) for k in range(2)]
        w = 10.0 ** rng.uniform(-1, 3) * rng.normal(size=(1, K * D))
        if not trial:
            w = np.zeros((1, K * D))
            w[0, D + 1] = 1e3  # both rows are taken for class 1
        g = [Solver(one, loss, 1.0).gradient(w)[0] for one in rows]
        assert max(np.linalg.norm(x) for x in g) <= loss.derivative_bound * (1 + 1e-12)
        most = max(most, float(np.linalg.norm(g[0] - g[1])))
    assert 0.99 * 2 * loss.derivative_bound < most <= 2 * loss.derivative_bound


def test_bend_bound_is_attained():
    p = np.array([0.5, 0.5, 0.0, 0.0])
    assert np.linalg.eigvalsh(np.diag(p) - np.outer(p, p)).max() == pytest.approx(
        Softmax(K).curvature_bound
    )


def test_sparse_rows_repeat_dense_rows():
    dense, sparse = sites(), [(csr_array(X), y) for X, y in sites()]
    w = np.random.default_rng(4).normal(size=(3, K * D))
    got = [
        Solver(Rows.build_with_classes(parts, K), Softmax(K), 1.0).gradient(w)
        for parts in (dense, sparse)
    ]
    np.testing.assert_allclose(got[0], got[1], rtol=1e-12)


def test_without_noise_every_site_agrees_with_scikit_learn():
    parts = sites(n=(60, 60, 60))
    rho = 0.05
    result = simulate(
        RunConfig(
            method="admm",
            loss=f"softmax:{K}",
            epsilon=np.inf,
            rounds=400,
            graph="complete",
            rho=rho,
            eta=0.02,
        ),
        Rows.build_with_classes(parts, K),
    )
    X, y = (np.concatenate([part[j] for part in parts]) for j in range(2))
    parent = LogisticRegression(
        C=1.0 / (60 * rho), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(X, y)
    np.testing.assert_allclose(result.models[0], np.tile(parent.coef_.ravel(), (3, 1)), atol=1e-5)


@pytest.mark.parametrize(
    "method", ["prox_admm", "prox_average", "pvp", "output", "ipp_admm", "dgd"]
)
def test_ledger_equals_plan_and_batched_equals_message_passing(method):
    rows = Rows.build_with_classes(sites(), K)
    config = RunConfig(
        method=method,
        loss=f"softmax:{K}",
        epsilon=2.0,
        delta=1e-5,
        rounds=3,
        replicates=2,
        eta=0.05,
    )
    result = simulate(config, rows)
    ready = prepare(config, rows.n, rows.d)
    assert (
        result.ledger
        == plan_ledger(
            ready.algorithm,
            RunSetting(ready.facts, ready.graph, 3, make_accountant(config.notion), 1e-5),
        ).to_list()
    )
    assert 0.999 * 2.0 <= result.privacy["epsilon"] <= 2.0
    for i, (outcome, ledger) in enumerate(run_sites(config, rows, replicate=1)):
        np.testing.assert_allclose(
            ready.algorithm.method_of_node(i).model(outcome.state),
            result.models[1, i],
            rtol=1e-6,
            atol=1e-9,
        )
        assert len(ledger.rows) == len(result.ledger)


def test_sensitivity_counts_the_longer_gradient():
    n = np.array([[50.0]])
    events = {}
    for loss in ("logistic", "softmax:3"):
        ready = prepare(
            RunConfig(method="prox_admm", loss=loss, delta=1e-5, rounds=1, eta=0.1), n, 9
        )
        events[loss] = plan_ledger(
            ready.algorithm, RunSetting(ready.facts, ready.graph, 1, make_accountant("best"), 1e-5)
        ).rows[0]
    assert events["softmax:3"].sensitivity / events["logistic"].sensitivity == pytest.approx(
        2**0.5, rel=1e-6
    )


@pytest.mark.parametrize("method", ["dvp", "mr_admm", "objective", "central", "pp_admm"])
def test_noise_inside_the_objective_is_refused(method):
    rows = Rows.build_with_classes(sites(), K)
    with pytest.raises(InvalidInput, match="rank one"):
        simulate(
            RunConfig(method=method, loss=f"softmax:{K}", epsilon=1.0, delta=1e-5, eta=0.1), rows
        )


def test_printed_primal_perturbation_is_refused_for_its_last_step():
    with pytest.raises(InvalidInput, match="rank one"):
        simulate(
            RunConfig(
                method="pvp", form="printed", loss=f"softmax:{K}", epsilon=1.0, rounds=1, eta=0.1
            ),
            Rows.build_with_classes(sites(), K),
        )


def test_softmax_loss_and_rows_must_fit():
    with pytest.raises(InvalidInput, match="margins per row"):
        simulate(RunConfig(loss="logistic"), Rows.build_with_classes(sites(), K))
    with pytest.raises(InvalidInput, match="2 classes"):
        make_loss("softmax:1")
    with pytest.raises(InvalidInput, match="0 to 1"):
        Rows.build_with_classes(sites(), 2)


def test_the_estimator_learns_four_classes_in_one_run():
    X, y = (np.concatenate([part[j] for part in sites(n=(1500, 1500))]) for j in range(2))
    names = np.array(["a", "b", "c", "d"])[y]
    model = ConsensusClassifier(
        "prox_admm",
        loss="softmax",
        epsilon=3.0,
        delta=1e-5,
        n_sites=2,
        data_norm=1.0,
        random_state=0,
        ledger=Ledger(make_accountant("zcdp"), 10.0, 1e-5),
    ).fit(X, names)
    loose = ConsensusClassifier(
        "admm", loss="softmax", epsilon=np.inf, n_sites=2, rounds=60, random_state=0
    )
    assert (
        model.coef_.shape == (4, D)
        and model.site_coef_.shape == (2, 4, D)
        and model.intercept_.shape == (4,)
    )
    assert model.score(X, names) > loose.fit(X, names).score(X, names) - 0.05
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert model.privacy_spent_["epsilon"] <= 3.0


def test_two_classes_give_one_row_of_coefficients():
    X, y = (np.concatenate([part[j] for part in sites()]) for j in range(2))
    y = y % 2
    options = {
        "epsilon": np.inf,
        "n_sites": 2,
        "rounds": 300,
        "knobs": {"rho": 0.05},
        "random_state": 0,
    }
    soft = ConsensusClassifier("admm", loss="softmax", **options).fit(X, y)
    assert soft.coef_.shape == (1, D) and soft.site_coef_.shape == (2, D)
    # ||w1||^2 + ||w0||^2 = ||w1 - w0||^2 / 2
    parent = LogisticRegression(C=1 / (48 * 0.05) / 2, tol=1e-10).fit(X, y)
    assert np.mean(soft.predict(X) == parent.predict(X)) > 0.95
