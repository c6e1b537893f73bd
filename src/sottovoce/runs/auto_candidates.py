"""Candidates of ``method="auto"``: the methods that may win, and the knob values to try.

A *knob* here is one of :data:`sottovoce.runs.defaults.KNOBS`; it is *free* if the caller left it
open.  Candidates follow from public facts: sizes of sites, the budget, and what the caller set.
:mod:`sottovoce.runs.auto_search` tries them on synthetic rows
(:mod:`sottovoce.runs.auto_trials`); bench/accuracy measures the choices
(docs/explanation/choosing.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..algorithms import REGISTRY, knobs_of, name_under_trust
from ..errors import InvalidInput, SottovoceError
from ..problem.clipped import clip_gradients
from ..problem.losses import make_loss
from ..util.typing import Any
from .auto_trials import Ground
from .config import RunConfig
from .defaults import KNOBS
from .prepare import build_algorithm, default_penalty, gradient_tolerance, prepare
from .pricing import Prepared

CAPS, FACTORS = (math.inf, 0.3, 0.1), (0.4, 1.0, 2.5)
"""Grid of the first stage: caps on a row's gradient times multiples of the default penalty."""
WIDER = (0.15, 0.4, 1.0, 2.5, 6.0)
"""Multiples of the default penalty for methods of gradient steps, which are quick to try."""
ROUNDS = {"steps": (100, 200), "solves": (10, 20, 40)}
"""Numbers of rounds of methods with gradient steps and with local solves; the first is tried first.
"""
REGULARISERS = (0.1,)
"""Multiples of the regulariser rho that are tried, with `MANY_ROWS` rows or more per weight.

With fewer rows a smaller rho would look too good, because synthetic rows do not overfit.  Larger
ones were chosen too often: the penalty has the same effect and follows the noise.
"""
MANY_ROWS = 300
LIGHT = 0.01
"""Multiple of the regulariser rho for methods with gradient steps.

Their penalty follows the noise, and few rounds do not overfit.  The default rho would weigh as much
as gradients under a small cap, and keep the model from using many rows.
"""
PROXIMAL = ("prox_admm", "prox_average")
"""Two methods so alike that only one is searched: the first where sites differ, else the second."""


def value_of_knob(config: RunConfig, name: str) -> Any:
    """Return the value of one of :data:`KNOBS` in a configuration; infinity for no cap."""
    if name == "max_grad_norm":
        return config.gradient_cap
    return getattr(config, name)


def allows_gradient_cap(method: str) -> bool:
    """Return true if the method can clip gradients."""
    cls = REGISTRY[method]
    # Objective perturbation has no proof with gradient clipping.
    return "max_grad_norm" in knobs_of(cls.options) and not cls.objective_noise


def valid_changes(config: RunConfig, changes: Sequence[dict[str, Any]]) -> Iterator[RunConfig]:
    """Yield the changed configurations that break no rule."""
    for change in changes:
        try:
            yield config.but(**change)
        except InvalidInput:
            continue


@dataclass
class Plans:
    """Priced runs of candidates on the sites of `ground`, with one calibration for many of them.

    Candidates of a method that differ in rounds, cap, penalty or regulariser share a calibration.
    """

    ground: Ground
    _calibrated: dict[tuple[str, float], Prepared] = field(default_factory=dict)

    def prepare_candidate(self, config: RunConfig) -> Prepared:
        """Return the priced run of a candidate.

        Where noise is on gradients or minimisers, releases add up in mu^2 with a delta, and in
        epsilon without.  So the noise for one release gives that for every number of rounds, and
        caps and penalties only change the sensitivity.
        """
        cls = REGISTRY[config.method]
        if not allows_gradient_cap(config.method):
            return prepare(config, self.ground.site_sizes, self.ground.model_entries)
        key = (config.method, config.noise_growth)
        if key not in self._calibrated:
            once = next(
                valid_changes(config, [{"rounds": 1, "max_grad_norm": math.inf, "eta": None}])
            )
            self._calibrated[key] = prepare(once, self.ground.site_sizes, self.ground.model_entries)
        one = self._calibrated[key]
        rho = one.facts.rho * (config.rho / one.config.rho)
        loss = clip_gradients(make_loss(config.loss), config.gradient_cap)
        facts = replace(one.facts, loss=loss, rho=rho, tol=gradient_tolerance(config, loss))
        releases = config.rounds
        if cls.single:
            releases = 1
        growth = config.noise_growth ** np.arange(releases)
        # A release's alpha is its epsilon or mu, which grows from release to release.  Those of all
        # releases together, over that of the first: epsilons add up, or squares of mu.
        if facts.pure:
            shape = float(growth.sum())
        else:
            shape = math.sqrt(float((growth**2).sum()))
        # All releases together may cost what the one does, so alpha falls by that factor.
        assert one.algorithm.noise is not None
        noise = one.algorithm.noise.scaled(1.0 / shape)
        algorithm = build_algorithm(config, facts, one.graph).with_noise(noise)
        return replace(one, config=config, facts=facts, algorithm=algorithm)

    def usual_penalty(self, config: RunConfig) -> float:
        """Return the penalty that the configuration has if it leaves it open."""
        prepared = self.prepare_candidate(config)
        return default_penalty(config, prepared.facts, prepared.graph)


@dataclass(frozen=True)
class Candidates:
    """Configurations to try in place of a first guess, which differ in method and open knobs.

    Parameters
    ----------
    config : RunConfig
        The first guess.
    plans : Plans
        Of the sites.
    free : tuple of str
        Those of `KNOBS` that may be set.
    alike : bool
        Whether sites are assumed to have rows of one distribution.  (The worlds of runs with sums
        or a curator have no `tilt`, whatever is assumed.)
    """

    config: RunConfig
    plans: Plans
    free: tuple[str, ...]
    alike: bool = True

    @property
    def ground(self) -> Ground:
        """The sites, and the worlds in which candidates are tried."""
        return self.plans.ground

    def candidate_methods(self) -> list[str]:
        """Return the methods that are tried under the configuration's trust."""
        trust = self.config.trusts
        if trust == "sum":
            names = ["momentum"]
            if self.alike:
                names.append("prox_average")
        elif trust == "curator":
            names = ["prox_average", "momentum", "objective"]
        else:
            alike = self.ground.tilt == 0.0
            names = [PROXIMAL[alike], "momentum", "objective", "output"]
            if self.config.delta is None:
                names.append("mr_admm")
        return [name_under_trust(name, trust) for name in names]

    def grid_of_method(self, method: str) -> Iterator[RunConfig]:
        """Yield the first grid of a method: every cap with every penalty."""
        cls = REGISTRY[method]
        factors: tuple[float, ...] = FACTORS
        if cls.gradient_steps:
            factors = WIDER
        # The default penalty itself is the configuration without one.
        other_factors = [factor for factor in factors if factor != 1.0]
        usual = {
            "method": method,
            "rounds": self._rounds_to_try(method)[0],
            "rho": self._first_regulariser(method),
        }
        with_caps = [usual | {"max_grad_norm": c} for c in self._allowed_caps(method, CAPS)]
        for config in valid_changes(self.config, with_caps):
            yield config
            if "eta" in self.free and not cls.single:
                yield from valid_changes(config, self._penalty_changes(config, other_factors))

    def other_round_numbers(self, at: RunConfig) -> list[RunConfig]:
        """Return the candidate `at` with other numbers of rounds; none for a one-round method."""
        if REGISTRY[at.method].single:
            return []
        return self.valid_variants(
            at, [{"rounds": rounds} for rounds in self._rounds_to_try(at.method)]
        )

    def refine_knobs(
        self, at: RunConfig, factors: Sequence[float], *, first: bool
    ) -> list[RunConfig]:
        """Refine a candidate: vary its cap, penalty and regulariser by factors, one at a time.

        Parameters
        ----------
        at : RunConfig
            The candidate.
        factors : sequence of float
            Multiples of its cap (at most 1) and of its penalty.
        first : bool
            Whether to try smaller regularisers too, where the sites have many rows a weight.

        Returns
        -------
        list of RunConfig
            Those that break no rule.
        """
        caps = self._allowed_caps(at.method, [min(1.0, at.gradient_cap) * f for f in factors])
        changes: list[dict[str, Any]] = [{"max_grad_norm": float(f"{c:.3g}")} for c in caps]
        if "eta" in self.free:
            changes += self._penalty_changes(at, factors)
        many_rows = sum(self.ground.n) >= MANY_ROWS * self.ground.model_entries
        solves = not REGISTRY[at.method].gradient_steps
        if "rho" in self.free and first and many_rows and solves:
            changes += [{"rho": float(f"{self.config.rho * f:.4g}")} for f in REGULARISERS]
        return self.valid_variants(at, changes)

    def other_proximal_method(self, at: RunConfig) -> list[RunConfig]:
        """Return the other of the `PROXIMAL` methods, with the knobs of this candidate.

        Its penalty is the same multiple of its own default.  Empty if that breaks a rule.
        """
        other = next(name for name in PROXIMAL if name != at.method)
        change = {knob: value_of_knob(at, knob) for knob in KNOBS} | {"method": other}
        del change["eta"]
        return list(valid_changes(self.config, [change | self._rescaled_penalty(at, change)]))

    def valid_variants(self, at: RunConfig, changes: Sequence[dict[str, Any]]) -> list[RunConfig]:
        """Return the changed configurations that break no rule.

        Penalties stay the same multiple of the default.
        """
        return list(
            valid_changes(at, [change | self._rescaled_penalty(at, change) for change in changes])
        )

    def _rescaled_penalty(self, at: RunConfig, change: dict[str, Any]) -> dict[str, Any]:
        """Return the penalty after a change, the same multiple of the default as before."""
        if "eta" not in self.free or "eta" in change or not isinstance(at.eta, float):
            return {}
        before_and_after = valid_changes(at, [{"eta": None}, change | {"eta": None}])
        usual = [self.plans.usual_penalty(one) for one in before_and_after]
        # If one of the two breaks a rule, so will the changed configuration.
        if len(usual) != 2:
            return {}
        return {"eta": float(f"{at.eta * usual[1] / usual[0]:.4g}")}

    def _penalty_changes(self, config: RunConfig, factors: Sequence[float]) -> list[dict[str, Any]]:
        """Return changes of the penalty to these multiples of its value (the default if open)."""
        if isinstance(config.eta, float):
            usual = config.eta
        else:
            try:
                usual = self.plans.usual_penalty(config)
            except SottovoceError:
                # A first guess that breaks a rule has no plan.
                return []
        return [{"eta": float(f"{usual * factor:.4g}")} for factor in factors]

    def _allowed_caps(self, method: str, caps: Sequence[float]) -> Sequence[float]:
        """Return the caps to try: infinity in place of one that no gradient reaches."""
        if "max_grad_norm" not in self.free:
            return (self.config.gradient_cap,)
        if not allows_gradient_cap(method):
            return (math.inf,)
        steepest = make_loss(self.config.loss).derivative_bound
        found = np.asarray(caps, dtype=float)
        return np.where(found < steepest, found, math.inf).tolist()

    def _rounds_to_try(self, method: str) -> tuple[int, ...]:
        """Return the numbers of rounds to try, the first one first."""
        if "rounds" not in self.free:
            return (self.config.rounds,)
        if REGISTRY[method].gradient_steps:
            return ROUNDS["steps"]
        return ROUNDS["solves"]

    def _first_regulariser(self, method: str) -> float:
        """Return the regulariser to try first, rounded to four digits."""
        factor = 1.0
        if "rho" in self.free and REGISTRY[method].gradient_steps:
            factor = LIGHT
        return float(f"{self.config.rho * factor:.4g}")
