"""003's ambiguous lines in each reading, its solver beside ours, and what it prints that a proof
refutes.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from problems import make_rows
from scipy.optimize import approx_fprime, minimize

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import make_loss
from sottovoce_papers import claims, sample_size
from sottovoce_papers.aggregation import Terms, average, listed, local
from sottovoce_papers.studies import spec, tables
from sottovoce_papers.studies.kinds import thesis, thesis_data, thesis_solvers
from sottovoce_papers.studies.kinds.thesis_models import ADDED, LARGER, bend_of_3_8, case_of, kifer
from sottovoce_papers.studies.kinds.thesis_solvers import (
    LETTER,
    SOURCE,
    flat,
    noise_of,
    objective,
    proved,
    ridge_of,
    simplex,
)

SITE: dict[str, Any] = {
    "data": "synthetic:n=1200,d=6,seed=1",
    "pca": "none",
    "loss": "huber:0.5",
    "Lambda": 0.01,
    "replicates": 3,
    "seed": 3,
    "rows": 60,
}


# What a proof says


def test_the_bound_of_3_8_is_true_and_not_tight() -> None:
    loss, rng = make_loss("huber:0.5"), np.random.default_rng(0)
    x = rng.standard_normal((40, 77))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert bend_of_3_8(loss.curvature_bound, 74) == pytest.approx(75.49, abs=0.01)
    for one, z in zip(x, rng.uniform(-1, 2, 40), strict=True):
        largest = float(
            np.linalg.eigvalsh(float(loss.curvature(np.array(z))) * np.outer(one, one))[-1]
        )
        assert largest <= 1.0 + 1e-12
    inside = float(
        np.linalg.eigvalsh(float(loss.curvature(np.array(1.0))) * np.outer(x[0], x[0]))[-1]
    )
    assert inside == pytest.approx(1.0)  # the least true bound


def test_the_comparisons_of_bounds_are_above_one() -> None:
    """003, the ends of sections 3.4 and 3.5; the first for epsilon_g and c below 1, as it says."""
    for d in (2, 77):
        for delta in (0.5, 1e-5):
            assert math.log(d / delta) * d / math.sqrt(0.99 * 0.99) > 1.0
    assert math.sqrt(77 / math.log(1e5)) * math.log(77) == pytest.approx(11.2, abs=0.1)
    assert math.sqrt(2 / math.log(1e5)) * math.log(2) < 1.0  # "usually": not with two features


def test_the_covariance_step_of_4_20_is_false() -> None:
    """Cov(X, Y) <= E(X) E(Y) for nonnegative X and Y: X = Y, 1 with chance 1/10."""
    x, chance = np.array([0.0, 1.0]), np.array([0.9, 0.1])
    mean = float(chance @ x)
    covariance = float(chance @ x**2) - mean**2
    assert covariance == pytest.approx(0.09) and mean * mean == pytest.approx(0.01)


def test_the_density_of_3_2_is_one_of_one_feature_only() -> None:
    """Its integral over d features is that of N(0, I), 1, times (2 pi)^((d - 1) / 2)."""
    x = np.linspace(-12.0, 12.0, 2001)
    one = float(np.trapezoid(np.exp(-(x**2) / 2.0), x))
    for d, whole in ((1, 1.0), (3, 2.0 * math.pi)):
        assert one**d / math.sqrt(2.0 * math.pi) == pytest.approx(whole, rel=1e-9)


def test_a_slope_of_one_does_not_bound_the_curvature_by_one() -> None:
    z = np.linspace(-3.0, 3.0, 6001)
    for h, c in ((0.5, 1.0), (0.1, 5.0)):
        loss = make_loss(f"huber:{h:g}")
        assert np.abs(loss.derivative(z)).max() <= 1.0 <= c and loss.curvature(
            z
        ).max() == pytest.approx(c)


def test_algorithm_3_holds_for_a_row_added_and_not_for_one_replaced() -> None:
    """The gradient of one row has norm zeta = 1, the noise rate epsilon / 2, the curvature is
    Delta = 2 c / epsilon.
    """
    rng, epsilon, c = np.random.default_rng(0), 1.0, 1.0
    slopes = rng.standard_normal((500, 5))
    slopes /= np.linalg.norm(slopes, axis=1, keepdims=True)
    added, replaced = 1.0, float(np.linalg.norm(slopes[:, None] - slopes[None], axis=2).max())
    assert replaced > 1.8
    bend = math.log1p(c / (2.0 * c / epsilon))
    assert epsilon / 2.0 * added + bend == pytest.approx(0.905, abs=1e-3)
    known = next(claim for claim in claims.table() if claim.paper == "003, Algorithm 3, pure")
    assert (
        known.attained == pytest.approx(epsilon / 2.0 * 2.0 + bend)
        and known.attained > known.claimed
    )


def test_an_average_of_regularised_models_is_biased() -> None:
    """Three rows 1 and one -1 of one feature, with logistic loss: f* is log 3, and every such
    site is below it.
    """
    a = np.array([[1.0], [1.0], [1.0], [-1.0]])
    value_of, none = make_loss("logistic").value, np.zeros(1)
    best = [
        minimize(lambda w, t=t: objective(w, a, none, t, value_of), none).x[0]
        for t in (0.0, 0.01, 0.1)
    ]
    assert best[0] == pytest.approx(math.log(3.0), abs=1e-4)
    assert best[0] - 0.02 > best[1] > best[2] + 0.1


def test_the_average_needs_an_nth_of_the_local_models_noise() -> None:
    """Replacing a row moves the average of N models by an N-th of what it moves its site's
    model.
    """
    N, terms = 4, Terms(math.inf, Lambda=0.1, loss="logistic", tol=1e-10)
    parts = [
        (one.signed[0], np.ones(one.signed.shape[1]))
        for one in (make_rows([40] * N, 3).rows_of_node(i) for i in range(N))
    ]
    moved = [(parts[0][0].copy(), parts[0][1]), *parts[1:]]
    moved[0][0][0] *= -1.0
    before, after = (local(Rows.build_from_parts(some), terms) for some in (parts, moved))
    site = np.linalg.norm(after.models[0, 0] - before.models[0, 0])
    whole = np.linalg.norm(average(after).models[0] - average(before).models[0])
    assert site > 1e-3 and whole == pytest.approx(site / N, rel=1e-6)


def test_a_loss_of_the_margin_is_never_strongly_convex() -> None:
    rng = np.random.default_rng(0)
    for name in ("logistic", "huber:0.5"):
        x, loss = rng.standard_normal(3), make_loss(name)
        H = float(loss.curvature(np.array(0.6))) * np.outer(x, x)
        assert (
            np.linalg.eigvalsh(H)[0] == pytest.approx(0.0, abs=1e-12)
            and np.linalg.eigvalsh(H)[-1] > 0.0
        )


def test_sigma_of_lemma_4_11_is_zero() -> None:
    """(L(y) - L(f*)) / ||y - f*||^2 along a ray: below every positive number, for a loss of
    linear growth.
    """
    a, y = np.array([1.0, 1.0, 1.0, -1.0]), 10.0 ** np.arange(1, 7)
    for name in ("logistic", "huber:0.5"):
        loss = make_loss(name)
        L = lambda f, loss=loss: loss.value(a * f).mean()  # noqa: E731
        best = float(minimize(L, 0.1, method="Nelder-Mead").x[0])
        sigma = np.array([(L(f) - L(best)) / (f - best) ** 2 for f in y])
        assert (np.diff(sigma) < 0.0).all() and 0.0 < sigma[-1] < 1e-6


def span(**given: float) -> sample_size.FeatureMethod:
    plain = {
        "N": 10,
        "lambda1": 0.1,
        "lambda2": 1.0,
        "Lambda": 0.01,
        "reference_norm": 1.0,
        "loss_gap": 0.5,
        "d": 5,
    }
    return sample_size.FeatureMethod(**{**plain, **given})


def test_the_bound_grows_with_the_sites() -> None:
    """(4.23) linearly but for a constant, and (4.30) faster, as its cube where the noise rules."""
    plain = [span(N=N).error(100.0, 100.0) for N in (1, 2, 3)]
    assert plain[2] - plain[1] == pytest.approx(plain[1] - plain[0]) and plain[1] > plain[0]
    noisy = [span(N=N, epsilon=1e-6, epsilon0=1e-6).error(100.0, 100.0) for N in (50, 100)]
    assert 8.0 < noisy[1] / noisy[0] < 12.0  # N^3 ln(N / delta)^2
    rows = [span().error(m, m) for m in (1e2, 1e4, 1e8, 1e16)]
    # and no number of rows brings it to 0
    assert rows == sorted(rows, reverse=True) and rows[-1] > 1.0


def test_no_direction_of_lambda_always_helps_the_bound() -> None:
    def errors(**given: float) -> list[float]:
        return [span(Lambda=L, **given).error(100.0, 100.0) for L in (0.01, 0.1, 1.0)]

    falls, rises = errors(C1=1.0, C2=0.1, C3=0.1), errors(C1=0.01, C2=1.0, C3=1.0)
    assert falls[0] > falls[1] > falls[2] and rises[0] < rises[1] < rises[2]


def test_lemma_4_13_bounds_less_noise_than_algorithm_2_draws() -> None:
    """Gamma(d, 2 / epsilon) has rate epsilon / 2; Algorithm 2's is smaller, and it may add a
    ridge.
    """
    for epsilon in (0.1, 1.0):
        ridge, rate = listed(
            epsilon, Terms(epsilon, Lambda=0.01, loss="huber:0.5").facts(np.array([[789.0]]), 4)
        )
        assert float(np.max(rate)) < epsilon / 2.0 and (float(np.max(ridge)) > 0.0) == (
            epsilon < 0.239
        )


def test_errors_say_nothing_of_the_distance() -> None:
    rng = np.random.default_rng(0)
    x, f = rng.standard_normal((200, 3)), np.array([1.0, -2.0, 0.5])
    y = np.sign(x @ f + 0.5 * rng.standard_normal(200))

    def error(w: Any) -> float:
        return float((y * (x @ w) < 0).mean())

    assert error(2 * f) == error(100 * f) == error(f) > 0.0
    # and a distance of nothing parts the best from the worst
    assert error(-1e-9 * f) > 0.5 > error(1e-9 * f)


def test_the_sites_models_are_linearly_independent() -> None:
    held = thesis_data.load("mnist37")
    sites = Rows.build_from_parts(held.deal([789] * 10, 0))
    models = local(sites, Terms(math.inf, Lambda=0.01, loss="huber:0.5")).models[0]
    spread = np.linalg.svd(models / np.linalg.norm(models, axis=1, keepdims=True), compute_uv=False)
    assert models.shape[0] == 10 and spread[-1] > 0.05
    # the test can fail
    assert np.linalg.matrix_rank(np.vstack([models, models.mean(axis=0)])) == 10


# Algorithm 2


@pytest.mark.parametrize(
    ("Lambda", "epsilon", "loss"), [(0.01, 0.1, "huber:0.5"), (0.2, 0.01, "logistic")]
)
def test_both_readings_of_delta(Lambda: float, epsilon: float, loss: str) -> None:
    facts = Terms(epsilon, Lambda=Lambda, loss=loss).facts(np.array([[60.0]]), 4)
    c = facts.loss.curvature_bound
    for letter, power in ((False, epsilon / 4), (True, c / (2 * Lambda))):
        total, rate, first = ridge_of(epsilon, facts, letter)
        ridge, _ = listed(epsilon, facts, letter)
        assert not first and rate == epsilon / 4
        assert total == pytest.approx(c / (60 * math.expm1(power)), rel=1e-9)
        assert float(ridge[0, 0]) == pytest.approx(total - Lambda, abs=1e-12)
        assert (proved(facts, total, rate) <= epsilon) == (not letter)
    assert ridge_of(50.0, facts) == (facts.mu, listed(50.0, facts)[1].item(), True)


def test_without_a_ridge_the_direction_is_the_limit_of_ever_smaller_ones() -> None:
    rows, loss = make_rows([50], 3), make_loss("huber:0.5")
    a, b = rows.rows_of_node(0).signed[0], np.array([20.0, -35.0, 15.0])
    limit, apart = flat(a, b, 1e-20, loss), []
    for total in (1e-2, 1e-4, 1e-6):
        w = minimize(
            lambda w, total=total: (
                objective(w, a, b, total, loss.value),
                (loss.derivative(a @ w) @ a + b) / 50 + total * w,
            ),
            -b,
            jac=True,
            method="BFGS",
            options={"gtol": 1e-9, "maxiter": 5000},
        ).x
        apart.append(float(np.linalg.norm(w / np.linalg.norm(w) - limit)))
    assert apart[0] > apart[1] > apart[2] and apart[2] < 1e-3
    assert np.linalg.norm(limit + b / np.linalg.norm(b)) > 1e-3  # the rows count too


def test_the_noise_of_a_model_is_found_again() -> None:
    rows, terms = (
        make_rows([80, 80], 4),
        Terms(0.5, Lambda=0.1, loss="logistic", replicates=2, tol=1e-10),
    )
    facts, models = terms.facts(rows.n, rows.d), local(rows, terms, "printed").models
    total = ridge_of(0.5, facts)[0]
    b = noise_of(models, rows, facts, total)
    for k, i in np.ndindex(2, 2):
        a, at = rows.rows_of_node(i).signed[0], (models[k, i], b[k, i])
        slope = approx_fprime(
            at[0], lambda w, a=a, at=at: objective(w, a, at[1], total, facts.loss.value), 1e-7
        )
        assert np.abs(slope).max() < 1e-5
    assert np.linalg.norm(b[0] - b[1]) > 1.0


@pytest.mark.parametrize("letter", [False, True])
def test_the_printed_delta_attains_far_more_than_its_claim(letter: bool) -> None:
    """One row of one feature: the density of the answer with the row 1 over that with the row 0,
    in closed form.
    """
    epsilon, loss = 0.1, make_loss("huber:0.5")
    facts = Terms(epsilon, Lambda=0.01, loss=loss.spec).facts(np.array([[1.0]]), 1)
    K, beta, first = ridge_of(epsilon, facts, letter)
    assert not first
    f = np.linspace(-3.0, 3.0, 601)

    def log_density(a: float) -> Any:
        noise = -(loss.derivative(a * f) * a + K * f)
        return -beta * np.abs(noise) + np.log(loss.curvature(a * f) * a**2 + K)

    apart = float(np.abs(log_density(1.0) - log_density(0.0)).max())
    assert apart <= proved(facts, K, beta) * (1 + 1e-9)
    assert (apart > 49.0) if letter else (apart <= epsilon)


def test_the_letter_claims_less_than_it_costs_and_the_source_does_not() -> None:
    p = SITE | {"epsilon": 0.1, "sites": 2, "splits": 2}
    for reading, above in ((SOURCE, 0), (LETTER, 1)):
        rows = thesis.algorithm_2(p | {"reading": reading})
        assert {row["above"] for row in rows} == {above} and {row["branch"] for row in rows} == {2}
        assert [row["replicate"] for row in rows if row["method"] == "average"] == [0, 1, 2]
    late = thesis.algorithm_2(p | {"epsilon": 30.0, "reading": LETTER})
    assert {(row["above"], row["branch"]) for row in late} == {(0, 1)}


# Algorithm 3


def test_lambda_and_delta_add_up_or_the_larger_counts() -> None:
    rows, terms = (
        make_rows([80], 4),
        Terms(0.5, Lambda=0.1, loss="huber:0.5", replicates=2, tol=1e-10),
    )
    both, larger = kifer(rows, terms, "", ADDED), kifer(rows, terms, "", LARGER)
    assert (
        np.linalg.norm(both[0]) < np.linalg.norm(larger[0]) and both[1].epsilon < larger[1].epsilon
    )
    # Delta is below n Lambda
    weak = Terms(50.0, Lambda=0.1, loss="huber:0.5", replicates=2, tol=1e-10)
    assert kifer(rows, weak, "", LARGER)[1].epsilon > kifer(rows, weak, "", ADDED)[1].epsilon


# Section 2.5 and the choice of Lambda


def test_nelder_and_mead_near_the_minimum_in_few_dimensions_and_far_in_many() -> None:
    for d, near in ((2, True), (40, False)):
        rows, loss = make_rows([100], d), make_loss("huber:0.5")
        exact = local(rows, Terms(math.inf, Lambda=0.01, loss="huber:0.5")).models[0, 0]
        a, none = rows.rows_of_node(0).signed[0], np.zeros(d)
        w, value, full = simplex(a, none, 0.01, loss.value)
        excess = value - objective(exact, a, none, 0.01, loss.value)
        assert w.shape == (d,) and excess >= 0.0 and (excess < 1e-4) == near and full != near


def test_both_solvers_have_every_method() -> None:
    p = SITE | {"sites": 2, "aggregator_rows": 60, "splits": 3, "replicates": 3}
    for epsilon in (math.inf, 1.0):
        rows = thesis.nelder_mead(p | {"epsilon": epsilon})
        kept = {(row["solver"], row["method"]) for row in rows}
        solvers = {solver for solver, _ in kept}
        # The loss of the author's code has epsilon in it, so that there is none without noise.
        assert solvers == {"Newton", "Nelder-Mead"} | (
            {thesis_solvers.OTHER_HUBER} if epsilon == 1.0 else set()
        )
        assert len(kept) == 3 * len(solvers) and len(rows) == 9 * len(solvers)
        assert all(
            row["excess"] >= 0.0 for row in rows if row["method"] == "local" and "excess" in row
        )
        errors = {
            key: [r["error"] for r in rows if (r["solver"], r["method"]) == key] for key in kept
        }
        assert np.mean(errors["Newton", "feature"]) < 0.5


def test_folds_score_only_rows_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = thesis_solvers.pooled_minimiser
    monkeypatch.setattr(
        thesis_solvers,
        "pooled_minimiser",
        lambda rows, *more: seen.append(int(rows.n[0, 0])) or real(rows, *more),
    )
    rows = thesis.folds(SITE | {"rows": 61})
    assert [row["replicate"] for row in rows] == [0, 1, 2] and seen == [48, 49, 49, 49, 49] * 3
    assert 0.0 < rows[0]["error"] < 0.5 and len({row["error"] for row in rows}) > 1
    blind = thesis.folds(SITE | {"Lambda": 1e9})  # a model of zeros: ties are errors
    assert blind[0]["error"] > rows[0]["error"]


# Table 6.1 and section 5.3

# 003, Table 6.1: order and trends of the errors of the average (A) and of the feature method (F)
ENTRIES = {
    "nobody private": {
        "epsilon": ["A > F"],
        "m": ["A(↓)", "F(↓)", "A ≈ F"],
        "m_0": ["A > F", "F(↓)"],
        "N": ["A(↓)", "first F(↓)", "A ≈ F", "then A < F", 'then F("s")'],
    },
    "sites private": {
        "epsilon": ["A(↓)", "A > F", 'F("s")'],
        "m": ["A(↓)", "A > F", 'F("s")'],
        "m_0": ["A > F", "F(↓)"],
        "N": ["A(↓)", "A > F", "F(↓)"],
    },
    "all private": {
        "epsilon": ["A(↓)", "A > F", 'F("s")'],
        "m": ["A(↓)", "A > F", 'F("s")'],
        "m_0": ["A > F", "F(↓)"],
        "N": ["A > F"],
    },
}
TESTS = {"↓": ("falls", "less"), ">": ("less",), "<": ("less",), "≈": ("near",), "s": ("near",)}


def of_the_table() -> list[tuple[str, Any]]:
    """The statements of Table 6.1 that a claim of a study makes, with the claim."""
    studies = (spec.load("003-fig5.6"), spec.load("003-fig5.10"))
    return [
        (claim.says, claim)
        for study in studies
        for claim in study.claims
        if "; Table 6.1" in claim.says
    ]


def test_every_entry_of_table_6_1_has_a_claim_and_no_second_one() -> None:
    found = of_the_table()
    for setting, entries in ENTRIES.items():
        for along, statements in entries.items():
            for statement in statements:
                head = f"; Table 6.1, {along}, "
                says = [
                    (text, claim)
                    for text, claim in found
                    if head in text
                    and statement in text.split(head)[1].split(":")[0]
                    and (
                        setting in text
                        or ((setting, along) == ("nobody private", "epsilon") and "5.6" in text)
                    )
                ]
                assert len(says) == 1, (setting, along, statement, [text for text, _ in says])
                assert (
                    says[0][1].test in TESTS[next(mark for mark in TESTS if mark in statement)]
                ), says[0][0]


def test_one_tolerance_of_ours_wherever_the_thesis_says_the_same() -> None:
    """Stable, unaffected and little: 0.02; alike and similar: 0.005.  And each claim says that
    it is ours.
    """
    for name in (f"003-fig5.{k}" for k in (2, 6, 10, 11)):
        study = spec.load(name)
        for claim in study.claims:
            if claim.test == "near":
                alike = any(word in claim.says for word in ("≈", "alike", "similar"))
                assert claim.within == (0.005 if alike else 0.02), claim.says
                assert "ours" in claim.says + " ".join(study.differs), claim.says


def test_changes_are_of_the_same_replicate_and_beside_the_printed_ones() -> None:
    p = SITE | {"sites": 2, "aggregator_rows": 60, "splits": 3, "values": [0.5, 50.0]}
    rows = thesis.changes(p)
    here = {
        (row["method"], row["replicate"]): row["change"] for row in rows if row["source"] == "here"
    }
    printed = {row["method"]: row["change"] for row in rows if row["source"] == "003"}
    assert printed == {
        "local": 0.36,
        "local, as printed": 0.36,
        "global": 0.02,
        "global, as printed": 0.02,
    }
    assert (
        len([key for key in here if key[0] == "local"]) == 3
        and np.mean([here["local", k] for k in range(3)]) > 0.0
    )


# Rows that stand in


def test_panels_of_rows_that_stand_in_say_so() -> None:
    assert case_of({"data": "covertype-12"}) == "stand-in, covertype-12" and tables.stands_in(
        {"data": "covertype-12"}
    )
    assert case_of({"data": "covertype-12:/a/b.data"}) == "covertype-12"
    assert (
        case_of({"data": "mnist37"}) == "mnist37"
        and case_of({"data": SITE["data"]}) == SITE["data"]
    )


def test_digits_are_fetched_or_three_and_seven_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    label = rng.choice(["3", "5", "7"], 90)
    images = SimpleNamespace(data=rng.uniform(1, 255, (90, 4)), target=label)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *a, **how: images)
    monkeypatch.setattr(thesis_data, "MNIST_TRAIN", 60)
    held = thesis_data.digits(3, 5)
    kept = np.isin(label, ["3", "5"])
    assert (
        len(held.y) == kept[:60].sum() and len(held.X_public) + len(held.X_test) == kept[60:].sum()
    )
    assert np.array_equal(held.y > 0, label[:60][kept[:60]] == "5") and held.notes == {
        "_note": held.note
    }
    assert (
        np.linalg.norm(held.X, axis=1) == pytest.approx(1.0)
        and np.linalg.norm(held.X, axis=1).max() <= 1.0
    )

    def offline(*a: Any, **how: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    gone = thesis_data.digits(3, 5)
    assert "stand in" in gone.notes["stands_in"] and len(gone.y) == 12_396
    with pytest.raises(InvalidInput):
        thesis_data.load("mnist35", "secret")
