"""What every method must do, under every trust that it has."""

from __future__ import annotations

import importlib.util
import itertools
import math
from typing import Any

import numpy as np
import parents
import pytest
from cases import CASES, FACTORS, Case, Recorder, SpyNet, accepts

from sottovoce.algorithms import METHODS, REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.deploy import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.network import graphs
from sottovoce.network.net import DenseNet, Net
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import (
    CarriedGaussianMechanism,
    ExactSphericalMechanism,
    GatedRelease,
    GaussianMechanism,
    GaussianObjectivePerturbation,
    SphericalObjectivePerturbation,
    SummedGaussianMechanism,
    Unprotected,
)
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Among, Facts
from sottovoce.problem.losses import make_loss
from sottovoce.queries import Query, Sum
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.prepare import build_algorithm
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, prepare, simulate
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Array


@pytest.fixture(params=METHODS, ids=lambda one: one.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Every method under every trust that it has."""
    return CASES[request.param.name]


def test_every_method_has_a_case_and_a_parent() -> None:
    assert set(CASES) == set(parents.PARENTS) == set(REGISTRY)


def test_every_noise_has_a_test_of_its_law(case: Case) -> None:
    """Here, or where the noise is of a kind of its own in the file of the method."""
    if case.kind not in ("objective", "gaussian objective", "statistic", "sum"):
        own = f"test_{case.method}"
        lacks = f"kind {case.kind!r}: tests/algorithms/{own}.py needs a test of law_of_the_event"
        assert importlib.util.find_spec(own), lacks
        assert any("law_of_the_event" in name for name in vars(importlib.import_module(own))), lacks


@pytest.mark.parametrize("method", ["dvp", "r_admm", "mr_admm", "objective", "generalised"])
def test_a_printed_form_has_no_other_noise_than_its_own(method: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^law='gaussian': {method} .*\bspherical;"):
        RunConfig.from_dict(
            {"method": method, "form": "printed", "law": "gaussian", "epsilon": 1.0, "delta": 1e-5}
        )


def test_one_message_a_round_and_as_many_releases_as_stated(case: Case, rows: Rows) -> None:
    recorder, net, _, ledger = case.spied(case.make(), rows)
    assert len(net.sent) + len(net.opened) == 10
    assert all(message.shape[-1] == rows.d for message in net.sent), "a message is one vector"
    # a sum, the same at all sites
    assert not net.opened or all(np.all(one == one[:, :1]) for one in net.opened)
    assert len(recorder.asked) == len(ledger.rows) == case.releases_in_ten


def test_every_message_is_a_function_of_released_answers(case: Case, rows: Rows) -> None:
    """Replay the run against the recorded answers, without rows: every message must come out bit
    by bit.
    """
    config = case.make()
    recorder, net, algorithm, _ = case.spied(config, rows)
    rows = case.seen(rows)

    class Replay:
        facts = recorder.facts

        def __init__(self) -> None:
            self._answers, self.asked = (
                iter(answer for _, answer in recorder.asked),
                list[Query | Sum](),
            )

        def charge_and_answer(self, query: Query) -> Array:
            self.asked.append(query)
            return next(self._answers)

        def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
            self.asked.append(query)
            return next(self._answers)

    again = SpyNet(graphs.make_graph(config.graph if len(rows.n) > 1 else "complete", len(rows.n)))
    replay = Replay()
    run_rounds(
        algorithm, Place(recorder.facts, again, replay, (2, len(rows.n)), rows.d), config.rounds
    )
    for one, two in zip(net.sent, again.sent, strict=True):
        assert np.array_equal(one, two)
    for (first, _), second in zip(
        recorder.asked, replay.asked, strict=True
    ):  # the points that sums are taken at
        assert not isinstance(first, Sum) or np.array_equal(first.what.start, second.what.start)  # type: ignore[union-attr]


def test_plan_equals_ledger(case: Case, rows: Rows) -> None:
    config = case.make()
    prepared = prepare(config, rows.n, rows.d)
    book = prepared.ledger
    expected = plan_ledger(
        prepared.algorithm,
        RunSetting(prepared.facts, prepared.graph, config.rounds, book.accountant, book.delta),
    )
    result = simulate(config, rows)
    assert result.ledger == expected.to_list()
    per_node = np.broadcast_to(expected.per_node(), (case.nodes,))
    np.testing.assert_array_equal(per_node, result.privacy["per_node"])


def test_noise_off_equals_the_non_private_parent(case: Case, rows: Rows) -> None:
    """Without noise: an infinite epsilon, and the same trajectory as vanishing noise tends to."""
    result = simulate(case.make(epsilon=math.inf), rows)
    assert math.isinf(result.privacy["epsilon"])
    assert all(row["event"] == "Unprotected" for row in result.ledger)
    if case.private:
        loud = simulate(case.make(tol=1e-12, **case.loud), rows)
        quiet = simulate(case.make(tol=1e-12, **(case.loud | {"epsilon": math.inf})), rows)
        np.testing.assert_allclose(loud.models, quiet.models, atol=case.quiet)
        assert not np.allclose(simulate(case.make(), rows).models, quiet.models, atol=2e-2)


def test_noise_off_equals_the_parent_written_out(case: Case, rows: Rows) -> None:
    """Without noise: the non-private algorithm, in the plain NumPy of `parents`, which shares no
    code with ours.
    """
    config = case.make(epsilon=math.inf, tol=1e-12)
    result = simulate(config, rows)
    plain = parents.PARENTS[case.method](parents.Problem(case.seen(rows), config, result.facts))
    np.testing.assert_allclose(result.models[0], plain, atol=1e-9)


@pytest.mark.parametrize("graph", ["ring", "star", "erdos-renyi:p=0.5"])
def test_batched_equals_message_passing(case: Case, rows: Rows, graph: str) -> None:
    if case.kind == "sum" and graph != "ring":
        return  # one sum over all sites is opened: there is one graph
    config = case.make(graph=graph, tol=1e-12, replicates=2, seed=4)
    together = simulate(config, rows)
    algorithm = prepare(config, rows.n, rows.d).algorithm
    for replicate in (0, 1):
        for i, (outcome, ledger) in enumerate(run_sites(config, rows, replicate)):
            model = algorithm.model(outcome.state)
            np.testing.assert_allclose(model, together.models[replicate, i], atol=1e-9)
            spent = float(np.max(ledger.per_node()))
            assert spent == pytest.approx(together.privacy["per_node"][i], rel=1e-12)


def test_noise_enters_at_the_scale_of_the_event(case: Case, rows: Rows) -> None:
    """White box: the noise implied by the released vector has Gamma(d) norm at the event's rate,
    not 2/3 or 3/2.

    Standard error of a mean of M Gamma(d)/d norms is 1/sqrt(M d); the band is six of them.
    """
    if not case.private or case.kind != "objective":
        return
    rows = case.seen(rows)
    config = case.make(rounds=1, replicates=800, seed=11, tol=1e-12)
    recorder, noise, ledger = case.rescaled(config, rows, 1.0, [])
    event = ledger.rows[0]
    assert isinstance(event, SphericalObjectivePerturbation)
    (query, answer), facts = recorder.asked[0], recorder.facts
    if np.any(event.beta_release > 0):  # take the polish off again: it is keyed, so a test can
        answer = answer - noise.draw_spherical(rows.d, 1, use=1) / event.beta_release[:, None]
    slopes = facts.loss.derivative(np.einsum("ind,rid->rin", rows.signed, answer))
    gradient = np.einsum("rin,ind->rid", slopes, rows.signed)
    rest = query.linear + (facts.mu + query.curvature) * answer  # type: ignore[attr-defined]
    b = -(gradient + facts.n / facts.C * rest)
    ratio = (np.linalg.norm(b, axis=2) * event.beta / rows.d).mean()
    band = 6 / math.sqrt(800 * case.nodes * rows.d)
    assert abs(ratio - 1) < band
    for wrong in (2 / 3, 3 / 2):
        assert abs(ratio * wrong - 1) > band


@pytest.mark.parametrize("law", ["spherical", "spherical, then gaussian", "gaussian"])
def test_both_noises_of_an_objective_have_the_laws_of_the_event(
    case: Case, rows: Rows, law: str
) -> None:
    """Every release of two rounds, the mechanism itself run with noise at 1, 2/3 and 3/2 of its
    scale.

    In the objective (use 0): the gradient at the answer, less the keyed noise on it, is the noise
    there.  On the answer (use 1): what is left over the minimiser for the keyed noise in the
    objective, solved again and closer.
    """
    if not case.private or "objective" not in case.kind:
        return
    if (law == "gaussian" and case.method == "m_admm") or (
        law != "gaussian" and REGISTRY[case.method].needs_delta
    ):
        return  # the one has no Gaussian noise in its objective, and the other no other
    inside_law, polish_law = law.split(", then ") if ", then " in law else (law, law)
    config = case.make(
        rounds=2, replicates=200, delta=None if law == "spherical" else 1e-5, law=inside_law
    )
    seen, d = case.seen(rows), rows.d
    for use, factor in itertools.product((0, 1), FACTORS):
        recorder, noise, ledger = case.rescaled(config, rows, factor, [use])
        facts, found = recorder.facts, []
        for k, ((query, answer), event) in enumerate(
            zip(recorder.asked, ledger.rows, strict=True), start=1
        ):
            if isinstance(event, GaussianObjectivePerturbation):
                inside, polish = event.sigma[:, None], event.sigma_release[:, None]
            else:
                assert isinstance(event, SphericalObjectivePerturbation)
                pure = law == "spherical"
                inside = 1 / event.beta[:, None]
                polish = (1 / event.beta_release if pure else event.sigma_release)[:, None]
            q = facts.mu + query.curvature  # type: ignore[attr-defined]
            if use == 0:
                w = answer - getattr(noise, f"draw_{polish_law}")(d, k, use=1) * polish
                gradient = parents.gradient(seen, facts.C, w) + query.linear + q * w  # type: ignore[attr-defined]
                found.append(-gradient * facts.n / facts.C / inside)
            else:
                b = getattr(noise, f"draw_{inside_law}")(d, k) * inside
                linear = query.linear + facts.C / facts.n * b  # type: ignore[attr-defined]
                exact = Solver(seen, facts.loss, facts.C).minimise(linear, q, answer, 1e-12).w
                found.append((answer - exact) / polish)
        assert accepts(np.array(found), (inside_law, polish_law)[use]) == (factor == 1), (
            use,
            factor,
        )


def test_price_is_the_formula_node_by_node(case: Case, rows: Rows) -> None:
    """privacy.md U1 with the logistic identity, plus the share of the polish; written out here
    once more.
    """
    if (
        not case.private
        or case.kind != "objective"
        or case.nodes == 1
        or REGISTRY[case.method].single
    ):
        return
    config = (
        case.make(eta=(0.05, 0.06, 0.07, 0.08, 0.09)) if case.method != "r_admm" else case.make()
    )
    result = simulate(config, rows)
    n, degree = rows.n[:, 0], 2.0
    total = np.zeros(5)
    for k, row in enumerate(result.ledger):
        eta = np.broadcast_to(np.asarray(config.eta), (5,)) * config.eta_growth**k
        K = n / config.C * (config.rho / 5 + 2 * eta * degree)
        np.testing.assert_allclose(row["K"], K, rtol=1e-12)
        beta, a = np.asarray(row["beta"])[:, None], np.linspace(0, 1, 100001)
        exact = beta[:, 0] + np.max(beta * a + np.log1p(a * (1 - a) / K[:, None]), axis=1)
        total += exact + 2 * np.asarray(row["beta_release"]) * np.asarray(row["error"])
    np.testing.assert_allclose(result.privacy["per_node"], total, rtol=1e-6)
    assert result.privacy["epsilon"] == max(result.privacy["per_node"])


def test_calibration_meets_the_target_from_below(case: Case, rows: Rows) -> None:
    if not case.private:
        return
    for delta in {case.delta, 1e-5}:
        for epsilon in (0.3, 1.0, 8.0):
            spent = simulate(case.make(epsilon=epsilon, rounds=4, delta=delta), rows).privacy[
                "epsilon"
            ]
            assert epsilon * (1 - (1e-6 if delta is None else 1e-3)) < spent <= epsilon


def test_a_budget_stops_before_the_release_that_would_pass_it(case: Case, rows: Rows) -> None:
    if not case.private or REGISTRY[case.method].single:
        return
    full = prepare(case.make(), rows.n, rows.d).algorithm.noise
    assert full is not None
    # a third of what ten rounds cost
    part = simulate(case.make(epsilon=case.part, noise=full), rows)
    assert part.stopped == "budget spent"
    assert 0 < part.rounds < 10
    assert part.privacy["epsilon"] <= case.part
    whole = simulate(case.make(epsilon=3.1, noise=full, rounds=part.rounds), rows)
    assert np.array_equal(part.models, whole.models)


def test_hyperparameters_are_plain_data(case: Case) -> None:
    config = case.make()
    facts = Facts(make_loss("logistic"), np.full((5, 1), 50.0), 4, 1.0, 0.1, 5)
    algorithm = build_algorithm(config, facts, graphs.make_graph("ring", 5))
    plain = algorithm.to_dict()
    assert plain["name"] == case.method
    assert algorithm.with_noise(None).noise is None


def test_without_noise_the_event_is_unprotected(case: Case, rows: Rows) -> None:
    prepared = prepare(case.make(epsilon=math.inf), rows.n, rows.d)
    ledger = plan_ledger(
        prepared.algorithm, RunSetting(prepared.facts, prepared.graph, 1, PureAccountant())
    )
    assert isinstance(ledger.rows[0], Unprotected)


def test_noise_on_a_statistic_has_the_scale_of_the_event(case: Case, rows: Rows) -> None:
    """The release less the noise-free answer: Gamma(d) norms, or normals, at the event's scale,
    not 2/3 or 3/2.
    """
    if not case.private or case.kind != "statistic":
        return
    R, d = 400, rows.d
    for delta in {case.delta, 1e-5}:
        config = case.make(rounds=1, replicates=R, seed=11, delta=delta)
        recorders = []
        for prepared in (
            prepare(config, rows.n, d),
            prepare(case.make(epsilon=math.inf, rounds=1), rows.n, d),
        ):
            noise, held = KeyedNoise(11, range(R), range(case.nodes)), case.seen(rows)
            recorders.append(Recorder(RowGuard(held, prepared.facts, noise, prepared.ledger)))
            place = Place(
                prepared.facts, DenseNet(prepared.graph), recorders[-1], (R, case.nodes), d
            )
            run_rounds(
                prepare(config, rows.n, d).algorithm.with_noise(prepared.algorithm.noise), place, 1
            )
            if len(recorders) == 1:
                event = prepared.ledger.rows[0]
        difference = (recorders[0].asked[0][1] - recorders[1].asked[0][1])[..., :d]
        if isinstance(event, GaussianMechanism | GatedRelease | CarriedGaussianMechanism):
            found = np.sqrt((difference**2).mean(axis=-1)) / event.sigma
            scale, spread = np.sqrt((found**2).mean()), 1 / math.sqrt(2 * R * case.nodes * d)
        else:
            assert isinstance(event, ExactSphericalMechanism)
            found = np.linalg.norm(difference, axis=-1) * event.beta / d
            scale, spread = found.mean(), 1 / math.sqrt(R * case.nodes * d)
        assert abs(scale - 1) < 6 * spread
        for wrong in (2 / 3, 3 / 2):
            assert abs(scale * wrong - 1) > 6 * spread


def statistic(
    query: Any, seen: Rows, facts: Facts, answer: Array, pulled: Array
) -> tuple[Array, Array]:
    """What is released without noise, a minimiser or a gradient, and the sum of gradients so far
    where it counts.
    """
    if hasattr(query, "curvature"):
        linear = np.broadcast_to(np.asarray(query.linear, dtype=float), answer.shape)
        q = facts.mu + np.asarray(query.curvature, dtype=float)
        return Solver(seen, facts.loss, facts.C).minimise(linear, q, answer, 1e-12).w, pulled
    gradient = parents.gradient(seen, facts.C, query.start)
    if not hasattr(query, "share"):
        return gradient, pulled
    return gradient - pulled / (query.rounds + query.index - 1), pulled + gradient


def test_noise_on_every_statistic_has_the_law_of_the_event(case: Case, rows: Rows) -> None:
    """Every release of three rounds less its exact statistic, with noise at 1, 2/3 and 3/2 of
    its scale.
    """
    if not case.private or case.kind != "statistic":
        return
    seen = case.seen(rows)
    for delta, factor in itertools.product((None, 1e-5), FACTORS):
        recorder, _, ledger = case.rescaled(
            case.make(rounds=3, replicates=200, delta=delta), rows, factor, [1]
        )
        facts, found, pulled = recorder.facts, [], np.zeros(())
        for (query, answer), event in zip(recorder.asked, ledger.rows, strict=True):
            gaussian = GaussianMechanism | CarriedGaussianMechanism
            assert isinstance(event, ExactSphericalMechanism if delta is None else gaussian)
            exact, pulled = statistic(query, seen, facts, answer, pulled)
            scale = 1 / event.beta if isinstance(event, ExactSphericalMechanism) else event.sigma
            found.append((answer - exact) / scale[:, None])
        law = "spherical" if delta is None else "gaussian"
        assert accepts(np.array(found), law) == (factor == 1), (delta, factor)


def exact_sum(query: Any, rows: Rows, facts: Facts) -> Array:
    """The sum without noise, (R, d): of gradients, or of minimisers."""
    weight = rows.n / rows.n.sum()
    start = query.what.start
    if not hasattr(query.what, "curvature"):
        return np.asarray(np.sum(weight * parents.gradient(rows, facts.C, start), axis=1))
    pull = np.broadcast_to(np.asarray(query.what.curvature, dtype=float), start.shape)
    q = facts.mu + np.asarray(query.what.curvature, dtype=float)
    w = Solver(rows, facts.loss, facts.C).minimise(-pull * start, q, start, 1e-12).w
    return np.asarray(np.sum(weight * w, axis=1))


def test_noise_in_a_sum_has_the_law_of_the_event(case: Case, rows: Rows) -> None:
    """Sums of three rounds less the exact ones, at N / (N - t) of a curator's variance, not 2/3
    or 3/2 of it.
    """
    if case.kind != "sum":
        return
    for factor in FACTORS:
        recorder, _, ledger = case.rescaled(case.make(rounds=3, replicates=400), rows, factor, [1])
        facts, found = recorder.facts, []
        for (query, answer), event in zip(recorder.asked, ledger.rows, strict=True):
            assert isinstance(query, Sum) and isinstance(event, SummedGaussianMechanism)
            exact = exact_sum(query, rows, facts)
            found.append((answer[:, 0] - exact) / event.noise_standard_deviation()[0])
            curator = event.sensitivity[0] / event.alpha[0]
            assert event.noise_standard_deviation()[0] == pytest.approx(
                curator * math.sqrt(5 / (5 - facts.colluders))
            )
            step, tau = query.attempt(facts, Among.all_sites(facts)).grid
            np.testing.assert_allclose(
                math.sqrt(5) * step * tau, event.noise_standard_deviation()[0], rtol=1e-6
            )
        assert accepts(np.array(found), "gaussian") == (factor == 1), factor
