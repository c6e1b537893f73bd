"""The regression net: no corrected form is refuted, every false one is, and planted faults are
caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from sottovoce import register
from sottovoce.algorithms import REGISTRY
from sottovoce.algorithms.base import Algorithm, Node
from sottovoce.algorithms.ipp_admm import IPPADMM
from sottovoce.algorithms.pp_admm import PPADMM
from sottovoce.audit import ADVERSARIES, Claim, aborts, attack, make_case, play, targets
from sottovoce.audit.game import Case, Options
from sottovoce.audit.worst_cases import Contrary
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.queries import NoisyGradient
from sottovoce.runs.registering import unregister
from sottovoce.solvers.local import Solution
from sottovoce.util.typing import Array

FAST = 4000
CORRECTED = [name for name, _ in targets("corrected") if name not in ADVERSARIES]
DELTA_ONLY = {"pp_admm", "ipp_admm"}  # at delta 1e-5 few replicates show little
FALSE = {  # printed forms that docs/privacy/verdicts.md refutes, with enough replicates to see it
    ("dvp", "printed"): FAST,
    ("pvp", "printed"): 20_000,
    ("pvp", "listed"): FAST,
    ("generalised", "printed"): 10_000,
    ("pp_admm", "printed"): 40_000,
    ("average", "printed"): FAST,
    ("feature_sites", "printed"): FAST,
    ("feature_aggregator", "printed"): FAST,
}


@pytest.mark.parametrize("method", CORRECTED)
def test_no_corrected_form_is_refuted_and_the_pure_ones_are_seen_to_be_tight(method: str) -> None:
    verdict = attack(method, replicates=FAST)
    assert not verdict.refuted and verdict.claimed_epsilon == verdict.proved_epsilon
    assert verdict.lower_bound > (0.05 if method in DELTA_ONLY else 0.5) * verdict.claimed_epsilon


@pytest.mark.parametrize(("method", "form"), FALSE)
def test_every_false_claim_is_refuted(method: str, form: str) -> None:
    verdict = attack(method, form, replicates=FALSE[method, form])
    assert verdict.refuted and verdict.lower_bound <= verdict.proved_epsilon


@pytest.mark.parametrize(
    "method", ["m_admm", "r_admm", "mr_admm", "output", "objective", "ipp_admm"]
)
def test_printed_claims_that_hold_stand(method: str) -> None:
    assert not attack(method, "printed", replicates=FAST).refuted


def test_every_printed_form_without_a_proof_is_attacked() -> None:
    printed = {(n, f) for n, f in targets() if f != "corrected"}
    holds = {
        (n, "printed") for n in ("m_admm", "r_admm", "mr_admm", "output", "objective", "ipp_admm")
    }
    assert printed == set(FALSE) | holds


@pytest.mark.parametrize("rounds", [4])
def test_the_whole_trajectory_is_used(rounds: int) -> None:
    """One round of four gives a quarter of the claim; the game must show more."""
    assert attack("prox_admm", claim=Claim(rounds=rounds), replicates=10_000).lower_bound > 0.4


class OwnPlausible(PPADMM):
    """A method of one's own that changes little of a library method."""

    name = "own_plausible"
    summary = "PP-ADMM of one's own"


class OwnGate(IPPADMM):
    """The same of a gate, whose refusals are played."""

    name = "own_gate"
    summary = "IPP-ADMM of one's own"


class OwnState(NamedTuple):
    """What a node sent last."""

    f: Array


@dataclass(frozen=True)
class OwnSteps(Algorithm[OwnState]):
    """A method that derives from none of the library."""

    name: ClassVar[str] = "own_steps"
    paper: ClassVar[str] = "ours"
    summary: ClassVar[str] = "noisy gradient steps, averaged over the neighbourhood"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "a test"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.02
    gradient_steps: ClassVar[bool] = True

    def init(self, node: Node) -> OwnState:
        return OwnState(node.zero_vector())

    def round(self, k: int, state: OwnState, node: Node) -> OwnState:
        alpha = None if self.noise is None else self.noise(k)
        g = node.ask(NoisyGradient(state.f, alpha, "noisy gradient"))
        return OwnState(node.mix(state.f - (g + node.facts.mu * state.f) / self.penalty(k)))


@pytest.fixture
def own_methods() -> Iterator[None]:
    for method in (OwnPlausible, OwnGate, OwnSteps):
        register(method)
    yield
    for method in (OwnPlausible, OwnGate, OwnSteps):
        unregister(method.name)


def test_a_method_that_derives_from_another_is_attacked_on_its_parents_worst_pair(
    own_methods: None,
) -> None:
    parent, own = make_case("pp_admm", "printed"), make_case("own_plausible", "printed")
    numbers = (2.65, 0.01, 1)
    assert (own.config.epsilon, own.config.delta, own.config.rounds) == numbers
    assert own.config.but(method="pp_admm") == parent.config and own.solver is parent.solver
    assert own.why.startswith(parent.why) and "that of pp_admm" in own.why
    assert "derives" not in parent.why
    # the nearest parent counts: of a gate it is not what that derives from in turn
    assert make_case("own_gate").config.options.threshold == -1e6
    verdict = attack("own_plausible", "printed", replicates=FAST)
    assert verdict.exact_epsilon is not None and verdict.is_refuted_exactly
    assert "that of pp_admm" in verdict.why


def test_a_pair_that_is_generic_is_called_so(own_methods: None) -> None:
    assert make_case("own_steps").why.endswith("that it stands says little")
    assert all("generic" not in make_case(name).why for name in ("dgd", "output"))


def test_refusals_of_a_method_from_outside_are_played_as_those_of_its_parent(
    own_methods: None,
) -> None:
    stands = aborts._default_victims(1.0, None, None)
    assert (
        stands["own_gate"].config.options.threshold == stands["ipp_admm"].config.options.threshold
    )
    assert {"own_plausible", "own_steps"} <= set(stands)


# --- planted faults -------------------------------------------------------------------------------


class Weak(KeyedNoise):
    """Two thirds of the noise."""

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        return super().draw_spherical(d, release, use) * 2 / 3

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return super().draw_gaussian(d, release, use) * 2 / 3


class Stuck(KeyedNoise):
    """The same noise in every release."""

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        return super().draw_spherical(d, 1, use)


class FewSeeds(KeyedNoise):
    """256 seeds for everybody."""

    def __init__(
        self, seed: int, replicates: range, nodes: range, lead: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(seed, replicates, nodes, lead)
        self._streams = [(r % 256, i) for r, i in self._streams]


class Forgetful:
    """A ledger that writes down only the first release."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def record_event(self, event: Event) -> None:
        if not self._ledger.rows:
            self._ledger.record_event(event)

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        self.record_event(event)
        return draw()


class Early(Contrary):
    """Stops at a gradient norm of C / 2, whatever it is asked for."""

    def minimise(self, linear: Array, q: Array, start: Array, tol: float) -> Solution:
        return super().minimise(linear, q, start, 0.5)


def early(rows: Rows, facts: Facts, table: int) -> Early:
    solver = Early(rows, facts.loss, facts.C)
    solver.side = np.zeros((len(rows.n), 1))
    solver.side[0] = 1.0 - 2.0 * table
    return solver


def changed(case: Case, **config: Any) -> Case:
    return replace(case, config=replace(case.config, **config))


@pytest.mark.parametrize("method", [n for n in CORRECTED if n in REGISTRY and n not in DELTA_ONLY])
def test_noise_at_two_thirds_of_its_scale_is_caught(method: str) -> None:
    assert play(replace(make_case(method), noise=Weak), 6000).refuted


@pytest.mark.parametrize("method", ["dvp", "prox_admm", "dgd"])
def test_a_forgotten_ledger_row_is_caught(method: str) -> None:
    verdict = play(replace(make_case(method), book=Forgetful), FAST)
    assert verdict.refuted and verdict.claimed_epsilon == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("method", ["mr_admm", "prox_admm", "output", "dgd"])
def test_a_ledger_priced_for_rows_added_or_removed_is_caught(method: str) -> None:
    assert play(changed(make_case(method), relation="zero-out"), FAST).refuted


@pytest.mark.parametrize("method", ["output", "prox_admm", "objective"])
def test_a_solver_that_stops_early_is_caught(method: str) -> None:
    assert play(replace(make_case(method), solver=early), FAST).refuted


def test_noise_that_is_used_twice_is_caught() -> None:
    """Twice with two scales: the two answers together give the row away."""
    case = changed(make_case("prox_admm"), noise_growth=1.5)
    assert not play(case, FAST).refuted
    assert play(replace(case, noise=Stuck), FAST).refuted


@pytest.mark.parametrize("method", ["output", "prox_admm", "mr_admm"])
def test_noise_from_256_seeds_is_caught(method: str) -> None:
    verdict = play(replace(make_case(method), noise=FewSeeds), FAST)
    assert verdict.refuted and verdict.attack == "nearest transcript"


def test_adversaries_are_targets_and_get_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more runs than their own number, which is small where a run is a whole release."""
    assert {(name, "corrected") for name in ADVERSARIES} <= set(targets()) and set(
        ADVERSARIES
    ) & set(CORRECTED) == set()
    asked: list[Options] = []
    fake = ADVERSARIES["labels"]._replace(play=asked.append)
    monkeypatch.setitem(ADVERSARIES, "labels", fake)
    for options in ({}, {"quick": True}, {"replicates": 60}, {"replicates": 10**6, "quick": True}):
        attack("labels", claim=Claim(2.0), seed=3, **options)
    assert [one.replicates for one in asked] == [fake.runs, fake.quick, 60, fake.quick]
    assert all(one.epsilon == 2.0 and one.seed == 3 and one.confidence == 0.95 for one in asked)


def test_bad_targets_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"^method='admm'"):
        attack("admm")
    with pytest.raises(InvalidInput, match=r"^form='printed'"):
        attack("prox_admm", "printed")
    with pytest.raises(InvalidInput, match=r"^form='printed'"):
        attack("stopping", "printed")
    with pytest.raises(InvalidInput, match=r"^confidence=1"):
        attack("dvp", confidence=1.0)


@pytest.mark.parametrize("method", ["output", "sums", "labels", "people"])
@pytest.mark.parametrize("replicates", [0, -1, 39])
def test_too_few_replicates_are_refused_and_never_taken_for_the_default(
    method: str, replicates: int
) -> None:
    with pytest.raises(InvalidInput) as caught:
        attack(method, replicates=replicates)
    assert caught.value.field == "replicates"
