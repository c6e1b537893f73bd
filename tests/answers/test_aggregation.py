"""003's aggregation methods: results without noise, costs, and the scale of the noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from problems import make_rows
from scipy.stats import kstest
from sklearn.linear_model import LogisticRegression

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy import accountants
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.queries.objective import PerturbedObjective
from sottovoce.queries.objective_noise import GaussianLaw, SphericalLaw
from sottovoce.runs.row_guard import RowGuard
from sottovoce.solvers.local import Solver
from sottovoce_papers import aggregation
from sottovoce_papers.aggregation import CompareConfig, Terms, compare
from sottovoce_papers.average import NoisyAverage
from sottovoce_papers.commands.compare import compare as command

SITES = [60, 45, 80, 60]
EXACT = Terms(math.inf, Lambda=0.05, tol=1e-10)
PURE = Terms(1.0, Lambda=0.05, replicates=3)
APPROXIMATE = replace(PURE, delta=1e-5)
SMALL: dict[str, Any] = {
    "data": "synthetic:n=900,d=5,seed=1",
    "sites": 4,
    "rows": 120,
    "aggregator_rows": 150,
}


@pytest.fixture
def sites() -> Rows:
    return make_rows(SITES, 4)


@pytest.fixture
def boss() -> Rows:
    return make_rows([90], 4, seed=1)


def sklearn_model(signed: Any, Lambda: float) -> Any:
    """Return the minimiser of mean loss plus Lambda/2 ||w||^2, by scikit-learn: half of the rows
    are multiplied by -1, as the loss depends on y x alone.
    """
    y = np.where(np.arange(len(signed)) % 2 == 0, 1.0, -1.0)
    model = LogisticRegression(
        C=1 / (len(signed) * Lambda), fit_intercept=False, tol=1e-12, max_iter=10_000
    )
    return model.fit(signed * y[:, None], y).coef_[0]


def watch(monkeypatch: pytest.MonkeyPatch) -> list[RowGuard]:
    """Collect all row guards that a method makes."""
    seen: list[RowGuard] = []

    class Watched(RowGuard):
        def __post_init__(self) -> None:
            super().__post_init__()
            seen.append(self)

    monkeypatch.setattr(aggregation, "RowGuard", Watched)
    return seen


# Without noise


def test_methods_without_noise_give_the_exact_models(sites: Rows, boss: Rows) -> None:
    M = np.array([sklearn_model(sites.rows_of_node(i).signed[0], 0.05) for i in range(4)])
    alone = aggregation.local(sites, EXACT)
    assert np.allclose(alone.models[0], M, atol=1e-5)
    assert np.allclose(aggregation.average(alone).models[0], M.mean(axis=0), atol=1e-5)
    weights = sklearn_model(boss.signed[0] @ M.T, 0.05)  # 003, Algorithm 5, to the letter
    assert np.allclose(
        aggregation.feature(alone, boss, EXACT, "public").models[0], M.T @ weights, atol=1e-4
    )
    scale = np.linalg.norm(M, 2)
    scaled = M.T @ sklearn_model(boss.signed[0] @ M.T / scale, 0.05) / scale
    assert np.allclose(aggregation.feature(alone, boss, EXACT).models[0], scaled, atol=1e-5)
    everything = np.concatenate([sites.rows_of_node(i).signed[0] for i in range(4)])
    assert np.allclose(
        aggregation.pooled(sites, EXACT).models[0], sklearn_model(everything, 0.05), atol=1e-5
    )


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_private_methods_approach_exact_ones_with_larger_budgets(
    sites: Rows, boss: Rows, delta: float | None
) -> None:
    loud = replace(EXACT, epsilon=1e7 if delta is None else 300.0, delta=delta, tol=1e-9)
    exact, near = aggregation.local(sites, EXACT), aggregation.local(sites, loud)
    close = {"atol": 1e-3 if delta is None else 0.3}
    assert np.allclose(near.models, exact.models, **close)
    trusted = aggregation.average_trusted(sites, loud)
    assert np.allclose(trusted.models, aggregation.average(exact).models, **close)
    feature = aggregation.feature(exact, boss, EXACT).models
    assert np.allclose(aggregation.feature(near, boss, loud).models, feature, **close)


# What is charged


@pytest.mark.parametrize(
    "terms", [PURE, APPROXIMATE, replace(PURE, relation="zero-out"), replace(PURE, epsilon=0.05)]
)
@pytest.mark.parametrize("loss", ["logistic", "huber:0.5"])
def test_total_budgets_are_spent_and_not_exceeded(
    sites: Rows, boss: Rows, terms: Terms, loss: str
) -> None:
    terms = replace(terms, loss=loss)
    alone = aggregation.local(sites, terms)
    fits = [
        alone,
        aggregation.pooled(sites, terms),
        aggregation.average_trusted(sites, terms),
        aggregation.feature(alone, boss, terms),
    ]
    said = [fit.sites for fit in fits] + [fits[-1].aggregator]
    for one in said:
        assert terms.epsilon * 0.9999 <= one.epsilon <= terms.epsilon
        assert one.relation == terms.relation
        assert (
            one.delta == (terms.delta if one.accountant != "pure" else 0.0) or terms.delta is None
        )


def test_ledger_charges_follow_corrections_u1_and_u4(
    sites: Rows, boss: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch(monkeypatch)
    aggregation.feature(aggregation.local(sites, PURE), boss, PURE)
    assert len(seen) == 2
    for guard in seen:
        (event,) = guard.ledger.rows  # one release a party
        a = np.linspace(0.0, 1.0, 200_001)[:, None]
        K = guard.facts.n.ravel() * (0.05 + aggregation.curvature_for(1.0, guard.facts).ravel())
        u1 = event.beta + np.max(event.beta * a + np.log1p(a * (1 - a) / K), axis=0)
        u4 = 2.0 * event.beta_release * event.error
        assert accountants.make_accountant("pure").price_of_event(event) == pytest.approx(
            u1 + u4, rel=1e-8
        )


def test_party_without_remaining_budget_draws_no_noise(sites: Rows) -> None:
    class NoNoise:
        simulated = True

        def load_libraries(self) -> None:
            """Nothing."""

    facts, start = PURE.facts(sites.n, sites.d), np.zeros((1, 4, 4))
    query = PerturbedObjective(
        start, np.zeros((4, 1)), start, SphericalLaw(np.full((4, 1), 9.0)), "x"
    )
    guard = RowGuard(sites, facts, NoNoise(), Ledger(epsilon=1.0))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="nothing was drawn"):
        guard.charge_and_answer(query)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_sensitivity_of_trusted_average_is_attained(relation: str) -> None:
    """In one dimension on the linear piece of Huber's loss a row's gradient is -y x for every w, so
    bounds are equalities.
    """
    sizes, Lambda = [5, 9, 20], 5.0
    terms = Terms(1.0, Lambda=Lambda, loss="huber:0.1", relation=relation, tol=1e-10)

    def averages(site: int) -> list[float]:
        found = []
        for x in (-1.0, -0.5, 0.0, 0.5, 1.0):
            parts = [np.zeros((n, 1)) for n in sizes]
            parts[site][0, 0] = x
            rows = Rows.build_from_parts([(X, np.ones(len(X))) for X in parts])
            zero = np.zeros((3, 1))
            facts = terms.facts(rows.n, 1)
            found.append(
                Solver(rows, facts.loss, 1.0)
                .minimise(zero, np.full((3, 1), Lambda), zero, 1e-10)
                .w.mean()
            )
        return found

    column = np.array(sizes, dtype=float)[:, None]
    stated = float(
        NoisyAverage(np.ones((1, 1)), False, np.zeros(1)).sensitivity(terms.facts(column, 1))[0]
    )
    for site in range(3):
        got = averages(site)
        moved = max(abs(a - (got[2] if relation == "zero-out" else b)) for a in got for b in got)
        assert moved <= stated
        # the smallest, and no other
        assert (moved == pytest.approx(stated, rel=1e-7)) == (site == 0)
    mean_size = (2.0 if relation == "replace-one" else 1.0) / (3 * np.mean(sizes) * Lambda)
    assert mean_size < 0.5 * stated  # the mean of the sizes in its place would not do


def test_scaled_features_lie_in_the_unit_ball() -> None:
    rng = np.random.default_rng(0)
    for n, d in ((1, 3), (10, 40), (50, 7)):
        M = rng.standard_normal((5, n, d)) * 10.0 ** rng.uniform(-3, 4, (5, 1, 1))
        worst = np.linalg.svd(M)[2][0, 0]  # the direction that M stretches most
        X = np.vstack([worst, -worst, rng.standard_normal((20, d)) / np.sqrt(4 * d + 99)]) * (
            1 - 1e-13
        )
        rows, norms = aggregation.features(Rows.build_from_parts([(X, np.ones(len(X)))]), M)
        lengths = np.linalg.norm(rows.signed, axis=-1)
        assert lengths.max() <= 1.0 and lengths[0, 0] == pytest.approx(1.0, abs=1e-11)
        assert np.allclose(rows.signed * norms[:, :, None], X @ M.transpose(0, 2, 1), rtol=1e-12)


# Whether the noise is as stated


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_wrong_noise_scale_of_trusted_average_is_detected(
    factor: float, passes: bool, sites: Rows
) -> None:
    terms = replace(APPROXIMATE, replicates=400)
    exact = aggregation.average(aggregation.local(sites, EXACT)).models
    how_far = 2.0 / (4 * 45 * 0.05)
    sigma = how_far / gaussian_mu(1.0, 1e-5)
    noise = (aggregation.average_trusted(sites, terms).models - exact) * factor
    assert (kstest(noise.ravel() / sigma, "norm").pvalue > 1e-3) == passes
    norms = np.linalg.norm(
        aggregation.average_trusted(sites, replace(terms, delta=None)).models - exact, axis=-1
    )
    assert (kstest(norms * factor / how_far, "gamma", args=(4,)).pvalue > 1e-3) == passes


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_wrong_noise_scale_of_a_site_is_detected(
    factor: float, passes: bool, delta: float | None, boss: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is recovered from the gradient at the released model."""
    terms, seen = replace(PURE, delta=delta, replicates=400), watch(monkeypatch)
    w = aggregation.local(boss, terms).models[:, 0]
    (event,) = seen[0].ledger.rows
    a = boss.signed[0]
    slopes = -1.0 / (1.0 + np.exp(w @ a.T))
    b = -(slopes @ a + float(event.K[0]) * w) * factor
    if delta is None:
        rate = aggregation.rate_for(aggregation._objective(w, terms), seen[0].facts, terms)[0, 0]
        assert rate * 2.0 <= 1.0
        value = kstest(np.linalg.norm(b, axis=-1) * rate, "gamma", args=(4,)).pvalue
    else:
        value = kstest(b.ravel() / float(event.sigma[0]), "norm").pvalue
    assert (value > 1e-3) == passes


def test_noise_distribution_depends_on_delta() -> None:
    assert isinstance(aggregation._law(np.ones((1, 1)), PURE), SphericalLaw)
    assert isinstance(aggregation._law(np.ones((1, 1)), APPROXIMATE), GaussianLaw)


# What is promised


def test_exact_models_protect_no_site_and_large_features_cost_more_than_claimed(
    sites: Rows, boss: Rows
) -> None:
    fit = aggregation.feature(
        aggregation.local(sites, replace(EXACT, replicates=3)), boss, PURE, "printed"
    )
    assert math.isinf(fit.sites.epsilon) and "NO protection" in fit.sites.not_protected
    assert fit.aggregator.printed_claim == 1.0 < fit.aggregator.epsilon < math.inf
    assert "norm 1" in str(fit.aggregator.assumes)
    public = aggregation.feature(aggregation.local(sites, PURE), boss, PURE, "public")
    assert math.isinf(public.aggregator.epsilon) and "public" in public.aggregator.not_protected
    assert public.sites.epsilon <= 1.0


def test_one_level_is_the_fully_private_method(sites: Rows, boss: Rows) -> None:
    whole = aggregation.feature(aggregation.local(sites, PURE), boss, PURE)
    one = aggregation.multilevel([boss, *(sites.rows_of_node(i) for i in range(4))], PURE)
    assert np.allclose(one.models, whole.models, rtol=0, atol=1e-9)
    assert one.sites == whole.sites and one.aggregator == whole.aggregator


def test_every_party_of_a_tree_spends_once(
    sites: Rows, boss: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, site = watch(monkeypatch), [sites.rows_of_node(i) for i in range(4)]
    fit = aggregation.multilevel([boss, [make_rows([70], 4, seed=2), *site[:3]], site[3]], PURE)
    # all sites together, two aggregators
    assert [len(guard.ledger.rows) for guard in seen] == [
        1,
        1,
        1,
    ]
    assert fit.models.shape == (3, 4) and max(fit.sites.epsilon, fit.aggregator.epsilon) <= 1.0
    with pytest.raises(InvalidInput, match="children"):
        aggregation.multilevel([boss], PURE)


# The comparison


@pytest.mark.parametrize("setting", aggregation.SETTINGS)
def test_compare_runs_only_applicable_methods(setting: str) -> None:
    table = compare(CompareConfig(**SMALL, setting=setting, epsilon=1.0, replicates=3))
    rows = {row["method"]: row for row in table}
    assert {"local", "global", "average", "feature"} <= set(rows) and json.dumps(
        table, allow_nan=False
    )
    assert ("feature, two levels" in rows) == (setting == "private")
    for row in table:
        assert 0.0 <= row["test_error"] <= 1.0 and row["replicates"] == 3
        protected = row["method"] == "aggregator alone" or (
            setting != "non-private" and "print" not in row["method"]
        )
        assert (row["sites"]["epsilon"] != "inf") == protected
    assert (rows["feature"]["aggregator"]["epsilon"] != "inf") == (setting == "private")
    again = compare(CompareConfig(**SMALL, setting=setting, epsilon=1.0, replicates=3))
    assert again == table


def test_the_feature_method_beats_the_average_on_mnist_with_public_rows_at_the_aggregator() -> None:
    # 003's experiment, made smaller
    config = CompareConfig(sites=5, rows=300, aggregator_rows=300, replicates=6)
    rows = {row["method"]: row["test_error"] for row in compare(config)}
    assert rows["feature"] < rows["average"] - 0.05


@pytest.mark.parametrize(
    "change", [{"sites": 0}, {"rows": 10_000}, {"setting": "open"}, {"epsilon": -1.0}]
)
def test_invalid_comparison_names_the_field(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        compare(CompareConfig(**(SMALL | change)))
    assert caught.value.field == next(iter(change))


def test_the_command_prints_a_table_or_json() -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    options += ["--epsilon=2", "--replicates=2", "--setting=private"]
    shown = " ".join(CliRunner().invoke(command, options, catch_exceptions=False).output.split())
    assert "two levels" in shown and "±" in shown and "protects nothing" in shown
    plain = json.loads(
        CliRunner().invoke(command, [*options, "--json"], catch_exceptions=False).output
    )
    assert [row["method"] for row in plain][:3] == ["local", "aggregator alone", "global"]


def test_the_printed_average_is_sized_by_the_mean_site_and_priced_by_the_smallest(
    sites: Rows,
) -> None:
    fit = aggregation.average_trusted(sites, PURE, "printed")
    assert fit.sites.printed_claim == 1.0 and "number of rows" in str(fit.sites.assumes)
    assert fit.sites.epsilon == pytest.approx(np.mean(SITES) / min(SITES), rel=1e-3)
    alike = make_rows([50] * 4, 4, seed=1)
    assert aggregation.average_trusted(alike, PURE, "printed").sites.epsilon == pytest.approx(
        1.0, rel=1e-3
    )


def test_printed_sites_are_algorithm_2_to_the_letter() -> None:
    """Delta and the noise rate follow its own rule, on both sides of the switch, and the drawn
    noise has this rate.
    """
    sites = make_rows([400], 4)
    for epsilon in (0.02, 1.0):
        terms = replace(PURE, epsilon=epsilon, replicates=400, tol=1e-10)
        facts = terms.facts(sites.n, sites.d)
        rest = epsilon - 2 * math.log(1 + 0.25 / (400 * 0.05))
        wanted = (
            (0.0, rest / 2)
            if rest > 0
            else (0.25 / (400 * math.expm1(epsilon / 4)) - 0.05, epsilon / 4)
        )
        ridge, rate = aggregation.listed(epsilon, facts)
        assert (float(ridge[0, 0]), float(rate[0, 0])) == pytest.approx(wanted)
        fit = aggregation.local(sites, terms, "printed")
        w, a = fit.models[:, 0], sites.signed[0]
        noise = 400 * ((1 / (1 + np.exp(w @ a.T))) @ a / 400 - (0.05 + wanted[0]) * w)
        length = np.linalg.norm(noise, axis=1)  # a sum of d exponentials
        for factor, passes in ((1.0, True), (1.25, False), (0.8, False)):
            assert (kstest(length * wanted[1] * factor, "gamma", args=(4,)).pvalue > 1e-4) == passes
        assert fit.sites.printed_claim == epsilon and fit.sites.form == "printed"
    assert aggregation.local(sites, EXACT, "printed").models == pytest.approx(
        aggregation.local(sites, EXACT).models
    )
    with pytest.raises(InvalidInput, match="form"):
        aggregation.local(sites, PURE, "listed")
