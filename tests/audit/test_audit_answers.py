"""The games of answers: every release is as far apart as its event says, and planted faults are
refuted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from planting import planted

from sottovoce.algorithms.items import Item
from sottovoce.audit import Claim, answers, attack
from sottovoce.audit.answers import (
    DELTA,
    PAIRS,
    RUNS,
    TRUSTS,
    D,
    Given,
    Pair,
    RecipeCase,
    all_answer_cases,
    held_out,
    play,
    play_answer_case,
    release,
)
from sottovoce.audit.game import Options, record_transcripts
from sottovoce.audit.several import WorstVerdict
from sottovoce.cli import cli
from sottovoce.data import move as move_module
from sottovoce.data.rows import Rows
from sottovoce.errors import BudgetExceeded, InvalidInput
from sottovoce.estimators.regressor_steps import target_bounds
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.events import Event
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.queries import Gradient, NoisyBounded, Positives, Products
from sottovoce.runs.config import RunConfig
from sottovoce.runs.row_guard import make_solver
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Array, IntArray

CLAIM = {trust: RunConfig(method="auto", trust=trust, epsilon=1.0, delta=DELTA) for trust in TRUSTS}
RECIPE = "regression with intervals"
ALPHA = gaussian_mu(1.0, DELTA)
SEEN = 2000
ERROR = 4.5 * np.sqrt(2.0 / (SEEN // 2) * (1.0 + ALPHA**2 / 4.0))
"""Of a shift over sigma between means of half of the runs: exceeded once in 10^5."""
SHORT = {
    "gradient": 0.98,
    "gradient, short rows": 0.49,
    # Rows of three entries have one coefficient, in which no two matrices are orthogonal.
    "Hessian of rates": 0.5**0.5,
    "squares of gradients of rates": 0.5**0.5,
    "events and time seen": 0.5**0.5,
}
"""Share of the stated shift that a pair reaches, where it is not all of it."""


def separation(case: RecipeCase) -> float:
    """Shift over sigma between both tables along their difference, from half of the answers on
    the other half.
    """
    seen = [record_transcripts(case, table, SEEN, 7 + table) for table in (0, 1)]
    one, other = (x.opened[0].honest[:, 0] if x.opened else x.asked[0][1][:, 0] for x in seen)
    half = SEEN // 2
    along = (one[:half] - other[:half]).mean(axis=0)
    a, b = one[half:] @ along, other[half:] @ along
    return float((a.mean() - b.mean()) / np.sqrt(0.5 * (a.var(ddof=1) + b.var(ddof=1))))


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("name", PAIRS)
def test_the_worst_pair_is_as_far_apart_as_the_event_says_and_no_further(
    name: str, trust: str
) -> None:
    """By what was released (one colluder's share taken off), and exactly by the sums and the
    scale that was priced.
    """
    case, share = release(name, PAIRS[name], CLAIM[trust]), SHORT.get(name, 1.0)
    assert abs(separation(case) - share * ALPHA) < ERROR + 0.02
    verdict = play_answer_case(case, 200)
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-4)
    assert verdict.exact_epsilon is not None and verdict.exact_epsilon <= verdict.claimed_epsilon
    assert verdict.exact_epsilon > 0.98 or name in SHORT


def test_every_release_and_recipe_is_played_and_the_claims_stand() -> None:
    stands = all_answer_cases()
    assert all(name + mark in stands for mark in ("", ", summed") for name in PAIRS)
    assert all(
        name + mark in stands
        for mark in ("", ", summed")
        for name in (
            "inference",
            "evaluation",
            "descriptive table",
            "survival curves",
            "regression",
            RECIPE,
        )
    )
    for case in stands.values():
        apart = np.flatnonzero(
            [
                not np.array_equal(
                    *(w.rows_of_node(i).fingerprint_arrays()[0] for w in case.tables)
                )
                for i in range(3)
            ]
        )
        if not case.tables[0].has_offset:
            assert apart.tolist() == [0]
    few = {name: stands[name] for name in ("regression", "held-out rows")}
    # A run of an evaluation takes fifty times as long: fewer of them see less of the loss.
    slow = {name: stands[name] for name in ("evaluation, summed",)}
    for games, runs, least in ((slow, 500, 0.1), (few, RUNS, 0.25)):
        verdict = play(Options(replicates=runs), games)
        assert isinstance(verdict, WorstVerdict) and set(verdict.games) == set(games)
        assert not verdict.refuted and not verdict.is_refuted_exactly
        assert verdict.method == "answers"
        assert all(game["lower_bound"] > least for game in verdict.games.values())  # type: ignore[operator]
    plain = verdict.to_dict()
    assert plain["games"]["held-out rows"]["exact_epsilon"] == pytest.approx(1.0, abs=1e-3)


def test_the_command_plays_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        answers, "all_answer_cases", lambda *asked: {"one": all_answer_cases(*asked)["scores"]}
    )
    verdict = attack("answers", claim=Claim(0.5, 0.2), replicates=400)
    assert verdict.claimed_epsilon == pytest.approx(0.5, abs=1e-4) and verdict.delta == 0.2
    assert verdict.exact_epsilon == pytest.approx(0.5, abs=1e-3) and verdict.attack.startswith(
        "one: "
    )
    shown = CliRunner().invoke(
        cli, ["audit", "answers", "--replicates", "80", "--json"], catch_exceptions=False
    )
    assert json.loads(shown.stdout)["games"]["one"]["exact_epsilon"] == pytest.approx(1.0, abs=1e-3)
    shown = CliRunner().invoke(
        cli, ["audit", "answers", "--replicates", "80"], catch_exceptions=False
    )
    assert "All games" in shown.stdout


# --- Planted faults -------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", TRUSTS)
def test_evaluation_on_training_rows_is_refuted(trust: str) -> None:
    """Parallel composition needs rows that are in one of the two sets; else both prices add up."""
    assert not play_answer_case(held_out(CLAIM[trust]), 2000).refuted
    verdict = play_answer_case(held_out(CLAIM[trust], trained=True), RUNS)
    assert verdict.refuted and verdict.is_refuted_exactly
    assert verdict.exact_epsilon is not None and verdict.exact_epsilon > 1.4


def numbers(y: Array, other: Array, bounds: tuple[float, float] | None) -> RecipeCase:
    """Cross moments of targets that :class:`sottovoce.ConsensusRegressor` encodes, on rows that
    are alike.
    """

    def rows(target: Array) -> Rows:
        task, _ = target_bounds(target, bounds)
        X = np.tile([1.0 - 1e-12, 0.0, 0.0], (4, 1))
        return Rows.build_from_parts([(X, np.ones(4))] * 3, list(task.encode(target).reshape(3, 4)))

    case = release("cross moments", Pair(Products, np.zeros(D), (np.zeros(D),) * 2), CLAIM["sum"])
    return replace(
        case, tables=(rows(y), rows(other)), loss=all_answer_cases()["cross moments"].loss
    )


def test_target_bounds_computed_from_rows_are_refuted() -> None:
    """One extreme number squeezes all others to the far end."""
    y = np.concatenate([[10.0], np.linspace(5.0, 9.0, 11)])
    other = np.concatenate([[1000.0], y[1:]])
    assert not play_answer_case(numbers(y, other, (0.0, 10.0)), 200).is_refuted_exactly
    read = play_answer_case(numbers(y, other, None), 2000)
    assert read.refuted and read.is_refuted_exactly


class ForgetsCounts(Ledger):
    """Holds a count of positives to be public."""

    def record_event(self, event: Event) -> None:
        if "count" not in event.source:
            super().record_event(event)

    @classmethod
    def of(cls, book: Ledger) -> ForgetsCounts:
        return cls(book.accountant, np.inf, book.delta, book.sites_per_row)


def test_a_count_that_is_priced_as_free_is_refuted() -> None:
    pair = Pair(
        lambda at: Positives(at, np.eye(D)[-1]), np.zeros(D), PAIRS["count of positives"].rows
    )
    case = release("count of positives", pair, CLAIM["nobody"])
    count = Item("count of positives", pair.what, 0.9)
    honest = replace(
        case, method=Given(asks=(count, Item("gradient", Gradient, 0.1)), where=np.zeros(D))
    )
    assert not play_answer_case(honest, 2000).refuted
    verdict = play_answer_case(replace(honest, book=ForgetsCounts.of), 2000)
    assert verdict.claimed_epsilon < 0.5 and verdict.refuted


class Faint(KeyedNoise):
    """A third of the noise that is priced, in both ways to ask."""

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return super().draw_gaussian(d, release, use) / 3.0

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        return super().draw_rounded_gaussian(d, tau / 3.0, release, use)


@pytest.mark.parametrize(
    "name",
    [
        "scores",
        "scores, summed",
        "descriptive table",
        "descriptive table, summed",
        "survival curves",
        "inference",
        "regression, summed",
        f"{RECIPE}, summed",
    ],
)
def test_too_little_noise_is_refuted(name: str) -> None:
    case = all_answer_cases()[name]
    # of which the bound is about 1.15 for a claim of 1, and of others above 2
    many = 1600 if name == "inference" else 400
    assert not play_answer_case(case, 400).refuted  # 400 have a bound, too
    assert play_answer_case(replace(case, noise=Faint), many).refuted


class ForgetsMeans(ForgetsCounts):
    """Holds the mean of rows to be public."""

    def record_event(self, event: Event) -> None:
        if "mean of rows" not in event.source:
            Ledger.record_event(self, event)


@pytest.mark.parametrize(("mark", "runs", "least"), [("", 400, 0.1), (", summed", 200, 0.0)])
def test_a_centred_training_stands(mark: str, runs: int, least: float) -> None:
    verdict = play_answer_case(all_answer_cases()[f"centred training{mark}"], runs)
    assert verdict.releases == 3 and not verdict.refuted and verdict.lower_bound >= least
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "fault", ["a mean that costs nothing", "rows as long as they come out", "a mean of its own"]
)
def test_faults_in_a_centred_training_are_refuted(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last: rows are moved by their exact mean, and not by the one that was released."""
    own = fault == "a mean of its own"
    case = all_answer_cases()["centred training" + (", summed" if own else "")]
    assert case.centring is not None

    def exact(rows: Rows, facts: Facts, table: int) -> Solver:
        every = case.tables[table].signed * (np.arange(D) < D - 1)
        mean = (every * np.sign(case.tables[table].signed[..., -1:])).sum(
            axis=(0, 1)
        ) / case.tables[table].n.sum()
        return make_solver(
            rows if rows.move is None else replace(rows, move=replace(rows.move, mean=mean)), facts
        )

    if own:  # the training has most of the budget, as in any run
        case = replace(
            case,
            solver=exact,
            centring=replace(case.centring, alpha=case.centring.alpha / 3, share=0.09),
        )
    elif fault == "a mean that costs nothing":
        case = replace(case, book=ForgetsMeans.of)
    else:
        whole = move_module._factors_and_lengths
        monkeypatch.setattr(
            move_module,
            "_factors_and_lengths",
            lambda rows, move, short: whole(rows, move, short=False),
        )
        case = replace(case, centring=replace(case.centring, gain=8.0))
    assert play_answer_case(case, 300 if own else 700).refuted


GAME = """
import json
from sottovoce.audit.answers import all_answer_cases, play_answer_case
found = [play_answer_case(all_answer_cases()[name], 200) for name in {names!r}]
print(json.dumps([[one.claimed_epsilon, one.exact_epsilon] for one in found]))
"""
ONE = "\n\n    def exact_sum_sensitivity(self, facts):\n        return 1.0\n"
CONE = "    cone: ClassVar[bool] = "
COUNT = '        """Return 1: a row adds 0 or 1, so two of them differ by at most 1."""\n'
NORM = "    def largest_row_norm(self, facts: Facts) -> float:\n        return facts.loss."
GRADIENT, PRODUCTS = f"{NORM}derivative_bound\n", f"{NORM}offset_bound\n"
REFUTED = {
    "a histogram with the sensitivity of one cell": (
        "queries/bounded.py",
        {"return int(np.prod(self.shape))": f"return int(np.prod(self.shape)){ONE}"},
        ("scores", "scores, summed"),
    ),
    "residuals with the sensitivity of one cell": (
        "queries/bounded.py",
        {"        return len(self.edges) + 1\n": f"        return len(self.edges) + 1{ONE}"},
        ("residuals",),
    ),
    "exits with the sensitivity of one cell": (
        "queries/exits.py",
        {"        return self.cells\n": f"        return self.cells{ONE}"},
        ("exits by time", "exits by time, summed"),
    ),
    "half of the sensitivity of a count": (
        "queries/bounded.py",
        {f"{COUNT}        return 1.0": f"{COUNT}        return 0.5"},
        ("count of positives",),
    ),
    "gradients taken for a cone": (
        "queries/bounded.py",
        {GRADIENT: f"{CONE}True\n\n{GRADIENT}"},
        ("gradient", "gradient, summed"),
    ),
    "cross moments taken for a cone": (
        "queries/bounded.py",
        {PRODUCTS: f"{CONE}True\n\n{PRODUCTS}"},
        ("cross moments, two sites",),
    ),
    "curvatures that are not cut": (
        "queries/bounded.py",
        {
            "np.minimum(loss.curvature(z) / unit, weights_of_rows(loss, z))": "loss.curvature(z) / unit"
        },
        ("Hessian, curvatures cut",),
    ),
    "a Huber step that is not clipped": (
        "queries/bounded.py",
        {
            "block.to_storage_array(weights_of_rows(loss, z) * np.clip(z / self.h, -1.0, 1.0))": "block.to_storage_array(z / self.h)"
        },
        ("Huber step",),
    ),
    "derivatives where their squares are due": (
        "queries/bounded.py",
        {"return facts.loss.derivative_bound**2": "return 0.25 * facts.loss.derivative_bound"},
        ("moments of derivatives",),
    ),
    "entries beside the diagonal count twice": (
        "queries/moments.py",
        {
            "S[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0))": "S[..., i, j] * np.where(i == "
            "j, 1.0, 2.0)"
        },
        ("second moments", "Hessian, summed"),
    ),
    "a weight above one": (
        "problem/weighted_loss.py",
        {
            "1.0 / np.maximum(np.asarray(self.norms), 1.0) ** 2": "1.0 / "
            "np.maximum(np.asarray(self.norms), 0.1) ** 2"
        },
        ("gradient, short rows",),
    ),
    "a descriptive table with the sensitivity of one group": (
        "queries/table_sums.py",
        {
            "self.largest_row_norm(facts) * math.sqrt(RELATIONS[facts.relation])": "self.largest_row_norm(facts)"
        },
        ("table by group", "table of numbers, summed"),
    ),
    "moments of a number that count twice": (
        "queries/table_sums.py",
        {
            "return self.scale * math.sqrt(self.moments)": "return 2.0 * self.scale * math.sqrt(self.moments)"
        },
        ("table of numbers",),
    ),
    "a long row whose weight falls too slowly": (
        "problem/weighted_loss.py",
        {
            "1.0 / np.maximum(np.asarray(self.norms), 1.0) ** 2": "1.0 / "
            "np.maximum(np.asarray(self.norms), 1.0)"
        },
        ("second moments, long rows",),
    ),
    "expected events that are not capped": (
        "queries/rates.py",
        {"by_cap = np.minimum(1.0, self.cap / np.maximum(expected[:, 0], 1e-300))": "by_cap = 1.0"},
        ("gradient of rates", "Hessian of rates"),
    ),
}
"""Faults with which a claim is false."""


@pytest.mark.parametrize("fault", REFUTED)
def test_a_fault_that_breaks_a_claim_is_refuted_by_the_audit(fault: str, tmp_path: Path) -> None:
    file, edits, names = REFUTED[fault]
    for claimed, exact in planted(tmp_path, file, edits, GAME.format(names=names)):
        assert claimed == pytest.approx(1.0, abs=1e-4) and exact > 1.05 * claimed


def test_a_release_without_noise_is_charged_as_unprotected() -> None:
    case = release("scores", PAIRS["scores"], CLAIM["nobody"])
    facts = record_transcripts(case, 0, 2, 0).facts
    event = NoisyBounded.of_statistic(PAIRS["gradient"].what(np.zeros((1, 3, D))), None, "x").event(
        facts
    )
    book = Ledger("zcdp", 1.0, DELTA)
    with pytest.raises(BudgetExceeded):
        book.record_event(event)
    with pytest.raises(InvalidInput, match="pure"):
        record_transcripts(replace(case, config=replace(case.config, accountant="pure")), 0, 2, 0)
