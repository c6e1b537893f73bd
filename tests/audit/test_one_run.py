"""Audits of one run: the bound against sums of its own, its error rate, the scores, and planted
faults.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit

from sottovoce.algorithms import REGISTRY
from sottovoce.audit.game import Case, record_transcripts
from sottovoce.audit.one_run import (
    FRACTIONS,
    Count,
    attack_once,
    audit_one_run,
    bound_by_best_count,
    epsilon_from_guesses,
    guesses_p_value,
    plant_canaries,
    scores,
)
from sottovoce.audit.worst_cases import printed_form_options
from sottovoce.cli.audit import audit
from sottovoce.errors import InvalidInput
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.runs.config import RunConfig
from sottovoce.util.typing import Array

PRIVATE = [name for name, cls in REGISTRY.items() if cls.private and cls.trust.kind != "sum"]
PRINTED_READ = [
    "dvp",
    "m_admm",
    "r_admm",
    "mr_admm",
    "pp_admm",
    "output",
    "objective",
    "generalised",
]


def by_hand(m: int, r: int, v: int, odds: int, delta: Fraction) -> Fraction:
    """The theorem's right side in rationals, e^epsilon a whole number."""
    q = Fraction(odds, 1 + odds)
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]

    def f(k: int) -> Fraction:
        return sum(mass[max(k, 0) :], Fraction(0))

    slope = max((f(v - i) - f(v)) / i for i in range(1, m + 1))
    return min(f(v) + 2 * m * delta * slope, Fraction(1))


@pytest.mark.parametrize(
    ("m", "r", "v"), [(12, 9, 7), (12, 12, 12), (30, 10, 8), (30, 25, 20), (5, 5, 1)]
)
@pytest.mark.parametrize("odds", [1, 3, 20])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 1000), Fraction(1, 20)])
def test_the_p_value_is_the_theorem_summed_in_rationals(
    m: int, r: int, v: int, odds: int, delta: Fraction
) -> None:
    exact = float(by_hand(m, r, v, odds, delta))
    assert guesses_p_value(m, r, v, math.log(odds), float(delta)) == pytest.approx(exact, rel=1e-10)


def test_the_two_bounds_that_the_paper_prints() -> None:
    assert epsilon_from_guesses(1000, 100, 75, 1e-4) == pytest.approx(0.673, abs=5e-4)  # appendix D
    assert epsilon_from_guesses(100_000, 1510, 1439, 1e-5) == pytest.approx(
        2.675, abs=1e-3
    )  # section 7


@pytest.mark.parametrize("r", [1, 10, 500])
def test_all_guesses_right_has_a_closed_form(r: int) -> None:
    chance = 0.05 ** (1.0 / r)  # q^r = 0.05
    expected = max(math.log(chance / (1.0 - chance)), 0.0)
    assert epsilon_from_guesses(1000, r, r) == pytest.approx(expected, abs=1e-8)


def test_p_value_grows_with_epsilon_and_bound_with_right_guesses() -> None:
    grid = np.linspace(0.0, 8.0, 161)
    for m, r, v, delta in [
        (500, 60, 50, 1e-5),
        (500, 60, 50, 1e-3),
        (100, 100, 90, 0.0),
        (100_000, 1510, 1439, 1e-5),
    ]:
        assert np.all(np.diff([guesses_p_value(m, r, v, e, delta) for e in grid]) >= -1e-15)
    assert np.all(np.diff([epsilon_from_guesses(500, 100, v, 1e-5) for v in range(50, 101)]) >= 0)
    assert (
        epsilon_from_guesses(500, 100, 90, 0.0)
        > epsilon_from_guesses(500, 100, 90, 1e-5)
        > epsilon_from_guesses(500, 100, 90, 1e-4)
    )
    assert epsilon_from_guesses(500, 100, 90, confidence=0.9) > epsilon_from_guesses(
        500, 100, 90, confidence=0.99
    )
    assert epsilon_from_guesses(500, 100, 50) == 0.0 and epsilon_from_guesses(500, 100, 0) == 0.0


@pytest.mark.parametrize("bad", [(10, 11, 5), (10, 5, 6), (10, 5, -1)])
def test_inconsistent_counts_are_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInput, match="right"):
        guesses_p_value(*bad, 1.0)


def alarms(draw: Any, epsilon: float, delta: float, runs: int = 250) -> tuple[float, float]:
    """How often the bound exceeds epsilon, and its mean, over fixed seeds."""
    bounds = [
        bound_by_best_count(*draw(np.random.default_rng([7, k])), delta, 0.95).lower_bound
        for k in range(runs)
    ]
    return float(np.mean(np.array(bounds) > epsilon)), float(np.mean(bounds))


def responses(
    rng: np.random.Generator, epsilon: float, delta: float = 0.0, m: int = 500
) -> tuple[Array, Array]:
    """Randomised response to every coin, in the open with probability delta; half of the scores
    are pure chance.
    """
    coins = rng.random(m) < 0.5
    says = np.where(rng.random(m) < expit(epsilon), coins, ~coins)
    open_ = rng.random(m) < delta
    heard = np.where(open_, coins, says)
    return np.where(heard, 1.0, -1.0) * (1.0 + open_ + rng.random(m)), coins


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 0.0), (1.0, 1e-3)])
def test_randomised_response_is_refuted_no_more_often_than_stated(
    epsilon: float, delta: float
) -> None:
    rate, mean = alarms(partial(responses, epsilon=epsilon, delta=delta), epsilon, delta)
    assert rate <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 250)
    assert mean > (0.25 if delta else 0.4) * epsilon
    wrong, _ = alarms(
        partial(responses, epsilon=2.0 * epsilon + 0.5, delta=delta), epsilon, delta, 40
    )
    assert wrong > 0.9


def laplace(
    rng: np.random.Generator, epsilon: float, relation: str, m: int = 300
) -> tuple[Array, Array]:
    """A row of one number, 1 or -1 (replaced) or 1 or 0 (zeroed), with Laplace noise for that
    relation.
    """
    coins = rng.random(m) < 0.5
    low, moved = (-1.0, 2.0) if relation == "replace-one" else (0.0, 1.0)
    answer = np.where(coins, 1.0, low) + rng.laplace(0.0, moved / epsilon, m)
    return answer - 0.5 * (1.0 + low), coins


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_laplace_noise_is_bounded_by_the_epsilon_of_its_relation(relation: str) -> None:
    rate, mean = alarms(partial(laplace, epsilon=1.5, relation=relation), 1.5, 0.0)
    assert rate <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 250) and mean > 0.5


def test_the_count_is_over_fixed_numbers_of_guesses() -> None:
    coins = np.arange(160) % 2 == 0
    sure = np.where(coins, 1.0, -1.0) * np.linspace(2.0, 1.0, 160)
    sure[40:] *= np.where(np.arange(120) % 3 == 0, -1.0, 1.0)  # wrong beyond the first quarter
    found = bound_by_best_count(sure, coins)
    careful = 1.0 - 0.05 / len(FRACTIONS)
    assert found == Count(epsilon_from_guesses(160, 40, 40, 0.0, careful), 40, 40)


def parts(nodes: int = 8, rows: int = 120, d: int = 20) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(5)
    out = []
    for _ in range(nodes):
        X = rng.standard_normal((rows, d))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.01
        out.append((X, np.where(X[:, 0] + 0.3 * rng.standard_normal(rows) > 0, 1.0, -1.0)))
    return out


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_canaries_are_unit_rows_in_orthogonal_systems_as_the_coins_say(relation: str) -> None:
    own = parts(4)
    planted = plant_canaries(own, 60, relation, sites=[1, 3], seed=2)
    assert [len(w) for w in planted.where] == [0, 30, 0, 30]
    assert np.array_equal(planted.rows.n[:, 0], [120, 150, 120, 150])
    for i in (1, 3):
        false, true = planted.values[i]
        assert np.allclose(np.linalg.norm(true, axis=1), 1.0) and np.allclose(
            true[:20] @ true[:20].T, np.eye(20)
        )
        assert np.allclose(false, -true if relation == "replace-one" else 0.0)
        table = planted.rows.signed[i]
        assert np.allclose(table[120:], np.where(planted.coins[i][:, None], true, false))
        assert (
            np.allclose(planted.others[i][:120], table[:120]) and not planted.others[i][120:].any()
        )
    whole = planted.pooled()
    assert np.array_equal(whole.where[0], [*range(240, 270), *range(510, 540)])


@pytest.mark.parametrize(
    "method", ["dgd", "pp_admm", "central_gd", "mr_admm", "prox_admm", "central_sgd"]
)
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_scores_are_the_log_odds_that_they_say(method: str, relation: str) -> None:
    own = parts(2 if method.startswith("central") else 8)
    delta = None if method == "mr_admm" else 1e-5
    config = RunConfig(
        method=method, epsilon=8.0, delta=delta, rounds=3, loss="huber:0.5", relation=relation
    )
    right, expected, spread = 0, 0.0, 0.0
    for seed in range(4):
        nodes = len(own) if method.startswith("central") else 1
        planted = plant_canaries(
            own, 20 * (len(own) if nodes == 1 else 1), relation, seed=seed, apart=nodes
        )
        seen = record_transcripts(Case(config, (planted.rows, planted.rows), 0, ""), 0, 1, seed)
        odds, coins = scores(planted, seen), np.concatenate(planted.coins)
        sure = expit(np.abs(odds))
        right += int(np.sum((odds > 0) == coins))
        expected, spread = expected + float(sure.sum()), spread + float(np.sum(sure * (1.0 - sure)))
        m = len(coins)
    assert abs(right - expected) < 4.0 * math.sqrt(spread)
    assert expected > 4 * m * 0.55  # there is something to see


@pytest.mark.parametrize("method", PRIVATE)
def test_no_corrected_form_is_refuted(method: str) -> None:
    delta = 1e-5 if REGISTRY[method].needs_delta else None
    config = RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 2.0,
            "delta": delta,
            "rounds": 2,
            "loss": "huber:0.5",
            "positives": 2,
        }
    )
    verdict = audit_one_run(config, parts(5, 80, 10), 60)
    assert not verdict.refuted and verdict.claimed_epsilon == verdict.proved_epsilon <= 2.0
    assert 0 <= verdict.right <= verdict.guesses <= verdict.canaries == 60


class Faint(KeyedNoise):
    """A tenth of the noise that is stated."""

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        return 0.1 * super().draw_spherical(d, release, use)

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return 0.1 * super().draw_gaussian(d, release, use)


@pytest.mark.parametrize("method", ["dgd", "prox_admm", "pp_admm", "dvp", "mr_admm", "objective"])
def test_noise_at_a_tenth_of_its_scale_is_caught_in_one_run(method: str) -> None:
    delta = None if method in ("dvp", "mr_admm", "objective") else 1e-5
    config = RunConfig(
        method=method, epsilon=1.0, delta=delta, rounds=2 if delta else 1, loss="huber:0.5"
    )
    verdict = audit_one_run(config, parts(40, 200), noise=Faint)
    assert verdict.refuted and verdict.lower_bound > 1.0
    assert not audit_one_run(config, parts(40, 200)).refuted


@pytest.mark.parametrize("method", PRINTED_READ)
def test_printed_forms_without_secrets_are_read(method: str) -> None:
    delta = 1e-5 if REGISTRY[method].needs_delta else None
    knobs = {"epsilon": 1.0, "delta": delta, "rounds": 2, "loss": "huber:0.5", "eta": 0.5}
    config = RunConfig.from_dict(
        {"method": method, "form": "printed", **knobs, **printed_form_options(method, "printed")}
    )
    assert audit_one_run(config, parts(3, 60, 8), 24).claimed_epsilon > 0


def test_a_listing_that_sends_exact_minimisers_is_refuted() -> None:
    config = RunConfig(method="pvp", form="listed", epsilon=1.0, rounds=2, loss="huber:0.5")
    assert audit_one_run(config, parts()).refuted


def test_what_cannot_be_audited_is_refused() -> None:
    own = parts(3, 60, 8)
    private = RunConfig(method="dgd", epsilon=1.0)
    with pytest.raises(InvalidInput, match="canaries"):
        audit_one_run(private, own, 5)
    with pytest.raises(InvalidInput, match="without noise"):
        audit_one_run(replace(private, epsilon=math.inf), own)
    with pytest.raises(InvalidInput, match="confidence"):
        audit_one_run(private, own, confidence=1.0)
    with pytest.raises(InvalidInput, match="loss"):
        audit_one_run(RunConfig(method="prox_admm", loss="softmax:3"), own)
    with pytest.raises(InvalidInput, match="secret"):
        audit_one_run(RunConfig(method="pvp", form="printed", rounds=2), own)
    with pytest.raises(InvalidInput, match="method"):
        attack_once("admm")


def test_the_command_reports_counts_and_repeats() -> None:
    words = [
        "dgd",
        "--one-run",
        "--delta",
        "1e-5",
        "--epsilon",
        "10",
        "--data",
        "synthetic",
        "--json",
    ]

    def run(*more: str) -> dict[str, Any]:
        return json.loads(CliRunner().invoke(audit, [*words, *more], catch_exceptions=False).stdout)

    answer = run("--canaries", "200")
    assert answer == run("--canaries", "200") != run("--canaries", "200", "--seed", "1")
    assert answer["canaries"] == 200 and 0 < answer["right"] <= answer["guesses"] <= 200
    assert {
        "claimed_epsilon",
        "proved_epsilon",
        "lower_bound",
        "confidence",
        "delta",
        "why",
    } <= set(answer)
    assert answer["refuted"] is False and 0.5 < answer["lower_bound"] < answer["claimed_epsilon"]


def test_the_command_shows_a_table_and_refuses_what_does_not_go_together() -> None:
    shown = CliRunner().invoke(
        audit, ["dgd", "--one-run", "--delta", "1e-5", "--data", "synthetic"]
    )
    assert shown.exit_code == 0 and "guesses" in shown.stdout and "stands" in shown.stdout
    for words in (
        ["dgd", "--canaries", "50"],
        ["all", "--one-run"],
        ["dgd", "--one-run", "--replicates", "500"],
    ):
        assert CliRunner().invoke(audit, words).exit_code != 0
