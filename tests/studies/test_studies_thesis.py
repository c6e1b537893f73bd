"""003's cells: what they promise, what they compute without noise, and the moments that pay for
components.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from problems import make_rows
from scipy.stats import kstest
from sklearn.decomposition import PCA

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.losses import make_loss
from sottovoce.queries import Vault
from sottovoce.queries.moments import flatten_symmetric, unflatten_symmetric
from sottovoce.runs.row_guard import RowGuard, make_solver
from sottovoce.runs.simulate import RunConfig, pooled_minimiser
from sottovoce_papers import claims
from sottovoce_papers.aggregation import Terms
from sottovoce_papers.studies import kinds, spec
from sottovoce_papers.studies.kinds import thesis, thesis_models, thesis_solvers
from sottovoce_papers.studies.kinds.thesis_components import noisy_moments
from sottovoce_papers.studies.kinds.thesis_data import leading, load, splits
from sottovoce_papers.studies.tables import deal

DATA = "synthetic:n=1200,d=6,seed=1"
SMALL: dict[str, Any] = {
    "data": DATA,
    "pca": "none",
    "loss": "huber:0.5",
    "Lambda": 0.05,
    "epsilon": 1.0,
    "rows": 100,
    "replicates": 4,
    "seed": 3,
    "splits": 2,
}
MANY = SMALL | {"sites": 3, "aggregator_rows": 120, "setting": "private"}
NAMES = [name for name in spec.names() if name.startswith("003")]


def by_method(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["method"], []).append(row)
    return found


# What is promised


def test_one_site_costs_what_it_is_asked_for_and_printed_forms_what_is_proved() -> None:
    found = by_method(thesis.one_site(SMALL))
    assert list(found) == list(thesis_models.ONE_SITE)
    assert all(math.isinf(row["epsilon"]) for row in found["without noise"])
    for method, rows in found.items():
        assert [row["replicate"] for row in rows] == [0, 1, 2, 3]
        assert all(0.0 <= row["error"] <= 1.0 and row["target"] == 1.0 for row in rows)
        if method in ("output", "objective", "objective, Gaussian"):
            assert all(0.99 <= row["epsilon"] <= 1.0 and row["claimed"] is None for row in rows)
        elif method != "without noise":
            assert all(row["claimed"] == pytest.approx(1.0, rel=1e-6) for row in rows)
    assert found["generalised, as printed"][0]["epsilon"] > 1.0  # Huber: the claim is false
    assert found["objective, as printed"][0]["epsilon"] < 1.0


def test_the_gaussian_generalised_form_is_priced_as_the_claims_say() -> None:
    rows = make_rows([claims.N_ROWS // 20], claims.FEATURES)
    known = next(
        c
        for c in claims.table()
        if c.says.startswith("(epsilon, 1e-5)") and c.paper.startswith("003")
    )
    _, said = thesis_models.kifer(
        rows, Terms(1.0, Lambda=1e-7, loss="huber:0.5", tol=1e-6), "Gaussian"
    )
    assert said.printed_claim == 1.0
    assert said.epsilon == pytest.approx(known.proved_at_delta, rel=1e-3)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_a_wrong_scale_of_the_gaussian_generalised_noise_is_noticed(
    factor: float, passes: bool
) -> None:
    rows = make_rows([80], 4)
    w = thesis_models.kifer(rows, Terms(0.5, Lambda=0.1, replicates=300), "Gaussian")[0][:, 0]
    a, K = rows.signed[0], 80 * (0.1 + 2 * 0.25 / (0.5 * 80))
    noise = ((1.0 / (1.0 + np.exp(w @ a.T))) @ a - K * w) * factor
    sigma = math.sqrt(8 * math.log(2 / thesis_models.DELTA) + 4 * 0.5) / 0.5
    assert (kstest(noise.ravel() / sigma, "norm").pvalue > 1e-3) == passes


def test_parties_promise_what_their_setting_says() -> None:
    private = by_method(thesis.parties(MANY | {"models": True}))
    assert len(private["local"]) == 3 * 4 and len(private["global"]) == 4
    for method in ("local", "global", "average", "feature, fully private"):
        assert all(0.99 <= row["epsilon"] <= 1.0 for row in private[method])
    assert all(
        math.isinf(row["epsilon"]) and row["epsilon_sites"] <= 1.0 for row in private["feature"]
    )
    printed = private["feature, fully private, as printed"]
    assert all(1.0 == row["claimed"] < row["epsilon"] < math.inf for row in printed)
    public = by_method(thesis.parties(MANY | {"setting": "public-private"}))
    assert all(
        0.99 <= row["epsilon"] <= 1.0 < row["epsilon_aggregator"] for row in public["feature"]
    )
    assert all(row["claimed"] is None for row in public[thesis_models.OURS])
    exact = thesis.parties(MANY | {"setting": "non-private"})
    assert all(math.isinf(row["epsilon"]) and row["claimed"] is None for row in exact)


def test_a_first_site_of_its_own_terms_weakens_or_keeps_the_whole() -> None:
    plain = MANY | {"setting": "public-private"}

    def average(**more: float) -> list[dict[str, Any]]:
        return by_method(thesis.parties(plain | more))["average"]

    for row in average(epsilon=math.inf, first_epsilon=0.5, first_rows=300):
        assert math.isinf(row["epsilon"]) and 0.49 <= row["epsilon_first"] <= 0.5
    assert all(0.99 <= row["epsilon"] <= 1.0 for row in average(first_epsilon=0.5))
    assert all(2.97 <= row["epsilon"] <= 3.0 for row in average(first_epsilon=3.0))


def test_components_are_paid_from_the_same_total_or_not_protected() -> None:
    p = {key: value for key, value in SMALL.items() if key != "loss"} | {
        "loss": "logistic",
        "sites": 3,
        "share": 0.5,
    }
    for pca, kept in (("none", 6), ("public", 5), ("private", 2)):
        rows = thesis.components(p | {"pca": pca, "components": 2})
        assert all(0.99 <= row["epsilon"] <= 1.0 and row["delta"] == 1e-5 for row in rows), pca
        assert rows[0]["kept"] == kept or pca == "public"
        assert [row["replicate"] for row in rows] == [0, 1, 2, 3]
    bare = thesis.components(p | {"pca": "thesis"})
    assert all(math.isinf(row["epsilon"]) and row["claimed"] == 1.0 for row in bare)
    with pytest.raises(InvalidInput, match="share"):
        thesis.components(p | {"pca": "private", "components": 2, "share": 1.0})


# What is computed


def test_cells_are_functions_of_their_parameters() -> None:
    for cell, p in ((thesis.one_site, SMALL), (thesis.parties, MANY)):
        assert cell(p) == cell(p)
        other = cell(p | {"seed": 4})
        assert [row["error"] for row in other] != [row["error"] for row in cell(p)]


def test_without_noise_every_replicate_has_a_split_of_its_own() -> None:
    assert len(list(splits({"replicates": 5, "splits": 2, "seed": 0}))) == 2
    assert sum(some for _, _, some in splits({"replicates": 5, "splits": 2, "seed": 0})) == 5
    seeds = {seed for seed, _, _ in splits({"replicates": 5, "splits": 2, "seed": 0}, noisy=False)}
    assert len(seeds) == 5


def test_leading_components_are_those_of_scikit_learn() -> None:
    X = make_rows([200], 7).signed[0] * np.linspace(1.0, 0.1, 7)
    basis = leading(X)
    model = PCA(0.9).fit(X)
    assert basis.shape[1] == model.n_components_
    assert np.allclose(basis @ basis.T, model.components_.T @ model.components_, atol=1e-8)


def test_the_test_rows_are_not_those_of_the_components() -> None:
    held, reduced = load(DATA), load(DATA, "public")
    assert len(held.X_public) + len(held.X_test) == 300
    assert np.allclose(reduced.X, held.X @ leading(held.X_public), atol=1e-9)
    assert np.allclose(load(DATA, "thesis").X, held.X @ leading(held.X), atol=1e-9)
    assert np.linalg.norm(reduced.X, axis=1).max() <= 1.0


def test_moments_are_those_of_the_rows_and_their_sensitivity_is_attained() -> None:
    rows = make_rows([30, 50], 4)
    moments, facts = noisy_moments(rows.n, 4, 1.0, 2)
    vault = Vault(make_solver(rows, facts), KeyedNoise(0, range(1), range(2), (2,)))
    S = unflatten_symmetric(moments.exact_statistic(vault, facts), 4)
    for i, one in enumerate(S):
        a = rows.rows_of_node(i).signed[0]
        assert np.allclose(one, a.T @ a / len(a))
    assert np.allclose(np.linalg.norm(flatten_symmetric(S), axis=1), np.linalg.norm(S, axis=(1, 2)))
    stated = moments.exact_sensitivity(facts)[:, 0]
    rng, far = np.random.default_rng(0), 0.0
    for _ in range(300):
        x, z = rng.standard_normal((2, 4))
        x, z = x / np.linalg.norm(x), z / np.linalg.norm(z)
        far = max(
            far,
            float(
                np.linalg.norm(
                    flatten_symmetric(np.outer(x, x)) - flatten_symmetric(np.outer(z, z))
                )
            ),
        )
    assert far <= 30 * stated[0] * (1 + 1e-12)
    x, z = np.eye(4)[:2]
    assert np.linalg.norm(
        flatten_symmetric(np.outer(x, x)) - flatten_symmetric(np.outer(z, z))
    ) == pytest.approx(30 * stated[0])


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_a_wrong_scale_of_the_moments_noise_is_noticed(factor: float, passes: bool) -> None:
    rows = make_rows([40], 30)
    moments, facts = noisy_moments(rows.n, 30, 1.0, 1)
    ledger = Ledger(claims.BestAccountant(), math.inf, 1e-5)
    guard = RowGuard(rows, facts, KeyedNoise(0, range(1), range(1), (1,)), ledger)
    a = rows.signed[0]
    noise = (guard.charge_and_answer(moments) - flatten_symmetric(a.T @ a / 40)) * factor
    (event,) = ledger.rows
    assert ledger.total() == pytest.approx(1.0, rel=1e-3) and event.sensitivity[0] == pytest.approx(
        2**0.5 / 40
    )
    assert (kstest(noise.ravel() / event.sigma[0], "norm").pvalue > 1e-3) == passes


def test_half_of_the_held_out_rows_is_as_hard_as_the_other() -> None:
    """MNIST's test images are sorted: of its first half a model misclassifies four times as many
    as of its last.
    """
    held = load("mnist37")
    w = pooled_minimiser(
        Rows.build_from_parts([(held.X[::10], held.y[::10])]), RunConfig(loss="huber:0.5"), 0.01
    )
    given = deal({"data": "mnist37", "nodes": 1})
    X, y = given.X_test, given.y_test
    assert np.array_equal(held.X_public, X[::2]) and np.array_equal(held.X_test, X[1::2])
    public, scored = (float((y[k::2] * (X[k::2] @ w) <= 0).mean()) for k in (0, 1))
    early, late = (
        float((part[1] * (part[0] @ w) <= 0).mean())
        for part in ((X[:1019], y[:1019]), (X[1019:], y[1019:]))
    )
    assert early > 2.5 * late and 0.6 < public / scored < 1.6


def test_without_privacy_the_distance_is_to_the_model_of_all_rows() -> None:
    """Of one site with all rows it is none; averages of more rows are closer."""
    found = by_method(
        thesis.parties(
            MANY | {"setting": "non-private", "sites": 1, "rows": 1199, "aggregator_rows": 1}
        )
    )
    far = by_method(
        thesis.parties(
            MANY | {"setting": "non-private", "sites": 1, "rows": 50, "aggregator_rows": 1}
        )
    )
    assert (
        max(row["mse"] for row in found["average"])
        < 1e-3
        < min(row["mse"] for row in far["average"])
    )
    assert "mse" not in thesis.parties(MANY)[0]


# Bad input, and the files


def test_unknown_parameters_and_too_few_rows_are_refused() -> None:
    for cell, p in ((thesis.one_site, SMALL), (thesis.parties, MANY), (thesis.components, SMALL)):
        with pytest.raises(InvalidInput, match="wrong"):
            cell(p | {"wrong": 1})
    with pytest.raises(InvalidInput, match=r"^rows=10000: "):
        thesis.one_site(SMALL | {"rows": 10_000})
    with pytest.raises(InvalidInput, match="setting"):
        thesis.parties(MANY | {"setting": "open"})
    with pytest.raises(InvalidInput, match="pca"):
        load(DATA, "secret")


@pytest.mark.parametrize("name", NAMES)
def test_every_study_runs_and_its_figures_and_claims_find_their_columns(name: str) -> None:
    study = spec.load(name)
    cell = kinds.find(study.kind)
    small: dict[str, Any] = {"data": DATA, "splits": 1, "replicates": 2, "seed": 0, "rows": 50}
    columns: set[str] = set()
    for quick in (study, study.quickly()):
        kept: dict[tuple[Any, ...], dict[str, Any]] = {}
        for point in quick.points():  # one cell a kind of panel
            kept.setdefault(
                tuple(point.get(key) for key in ("varies", "setting", "pca", "along", "reading")),
                point,
            )
        for point in kept.values():
            p = {**quick.fixed, **point, **small}
            if name == "003-5.2.1":
                del p["splits"]  # rows are dealt anew for every replicate
            if name == "003-thm3.6":  # which makes its rows, in no time
                p = {**quick.fixed, **point, "replicates": 2, "seed": 0}
            elif name != "003-pca":
                p["pca"] = "none"
            p |= {key: 3 for key in ("sites", "components") if key in p}
            p |= {key: 60 for key in ("aggregator_rows", "first_rows") if key in p}
            if "values" in p and name != "003-thm3.6":
                p["values"] = [3, 4] if p.get("along", "epsilon") != "epsilon" else [0.5, 1.0]
            rows = cell(p)
            assert rows
            columns |= set(point) | {key for row in rows for key in row}
    for figure in study.figures:
        series = (figure.series,) if isinstance(figure.series, str) else figure.series
        assert {figure.x, figure.y, figure.facet, *series, *figure.filter} - {""} <= columns
    for claim in study.claims:
        assert {
            claim.value,
            claim.x,
            claim.among,
            *claim.by,
            *claim.filter,
            *claim.of,
            *claim.than,
        } - {""} <= columns
    assert set(study.table) <= columns


def test_the_huber_loss_of_the_authors_code_jumps_at_both_ends_of_its_middle_piece() -> None:
    """(1 + epsilon - z)^2 / 4h where (3.5) has (1 + h - z)^2 / 4h: the same loss at epsilon = h
    only.
    """
    h, z = 0.5, np.linspace(-2.0, 3.0, 501)
    of_the_paper = make_loss(f"huber:{h}").value
    np.testing.assert_allclose(
        thesis_solvers.huber_of_the_code(z, h, epsilon=h), of_the_paper(z), atol=1e-12
    )
    other = thesis_solvers.huber_of_the_code(z, h, epsilon=0.1)
    outside = np.abs(z - 1.0) > h
    np.testing.assert_array_equal(other[outside], of_the_paper(z[outside]))
    low, high = (
        thesis_solvers.huber_of_the_code(np.array([1.0 - h, 1.0 + h]), h, epsilon=0.1)
    ).tolist()
    assert (low, high) == (pytest.approx(0.18), pytest.approx(0.08))  # 1/2 and 0 just outside


def test_three_readings_of_a_solve_with_noise_and_two_without() -> None:
    """The code's Huber loss needs an epsilon; sizes that differ need none, as Delta is that of
    one size.
    """
    p = {
        "data": "synthetic:n=900,d=4",
        "pca": "none",
        "loss": "huber:0.5",
        "Lambda": 0.05,
        "sites": 2,
        "rows": 60,
    }
    p |= {"aggregator_rows": 60, "epsilon": 2.0, "seed": 0, "replicates": 2}
    noisy = thesis_solvers.nelder_mead(p)
    assert {row["solver"] for row in noisy} == {
        thesis_solvers.NEWTON,
        thesis_solvers.SIMPLEX,
        thesis_solvers.OTHER_HUBER,
    }
    close = [
        row["excess"]
        for row in noisy
        if row["solver"] == "Nelder-Mead" and row["method"] == "local"
    ]
    assert max(close) < 1e-3  # of five parameters it finds the minimum
    assert not any("excess" in row for row in noisy if row["solver"].endswith("loss"))
    uneven = thesis_solvers.nelder_mead(p | {"epsilon": float("inf"), "first_rows": 120})
    assert {row["solver"] for row in uneven} == {"Newton", "Nelder-Mead"}
    with pytest.raises(InvalidInput, match="first_rows"):
        thesis_solvers.nelder_mead(p | {"first_rows": 120})
