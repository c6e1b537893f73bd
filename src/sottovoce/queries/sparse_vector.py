"""Sparse vector before a noisy proximal step (004, Algorithm 2, corrected; U5 and U7).

Each round asks whether the local gradient at the *public* iterate is longer than a threshold.  A
release follows only if a noisy comparison says yes, and there are at most `positives` releases in
all.

Guarantee
---------
AboveThreshold with the threshold's noise drawn once is ``epsilon_threshold + epsilon_queries``
differentially private, and every release is the Gaussian mechanism;
:class:`sottovoce.privacy.events.GatedRelease` charges the tests with round 1 and one release with
each of the rounds 1 .. `positives`.  The query reads rows and public state only.  That tests run
between other releases costs nothing more (``docs/privacy/tight.md``, "A gate between releases").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..privacy.events import (
    Event,
    GatedRelease,
    GaussianObjectivePerturbation,
    MinimiserGateRelease,
)
from ..problem.facts import Facts
from ..util.typing import Array, ArrayLike
from .audit_hooks import Canaries, Leaning, Supposed, refusal_of_secret
from .base import Query
from .objective import PerturbedObjective
from .objective_noise import GaussianLaw
from .statistic import NoisyMinimiser, gradient_sensitivity
from .vault import Secret, Vault

# Relative part of a sensitivity that the rounding to the release's grid may add.
_FINE = 2.0**-20
# Quantiles of the standard Laplace law above its median; with their mirror images they stand for
# the threshold's noise in an audit.
_UPPER = -np.log(2.0 * np.arange(32, 0, -1) / 65.0)
_BARS = np.concatenate([-_UPPER[::-1], _UPPER])


@dataclass(frozen=True)
class Gate(Secret):
    """The sparse vector's noisy threshold, and how many releases may still follow, (..., 1)."""

    bar: Array
    left: Array


@dataclass(frozen=True)
class Allowance(Secret):
    """How many releases may still follow, (..., 1), if every round draws its own threshold."""

    left: Array


@dataclass(frozen=True)
class GateSeen(Secret):
    """The auditor's record of the tests of R replicates.

    `bits`, (R, bars), is the log density of the tests' outcomes at quantiles of the threshold, and
    `sent`, (R,), the number of releases.
    """

    bits: Array
    sent: Array


def _log_below(x: Array) -> Array:
    """Return the log distribution function of the standard Laplace law."""
    return np.where(x > 0.0, np.log1p(-0.5 * np.exp(-np.abs(x))), np.log(0.5) - np.abs(x))


@dataclass(frozen=True)
class GatedMinimiser(NoisyMinimiser):
    """A noisy minimiser, released only if the gradient at the start passes a noisy threshold.

    The answer has shape (..., d + 1): the minimiser and 1, or zeros and 0.

    Parameters
    ----------
    start, alpha, source, claimed, linear, curvature
        As for :class:`sottovoce.queries.NoisyMinimiser`.
    threshold : float
        Threshold on the norm of the gradient at `start`, in units of C.
    epsilon_threshold, epsilon_queries : array of shape (..., 1)
        Pure epsilon of the threshold's noise, and of all tests together.
    positives : int
        Largest number of releases.
    index : int
        The round, from 1.

    Guarantee
    ---------
    Tests are ``epsilon_threshold + epsilon_queries`` differentially private together
    (AboveThreshold), and each release is the Gaussian mechanism;
    :class:`~sottovoce.privacy.events.GatedRelease` charges the tests with round 1, and one release
    with each of the rounds 1 .. `positives`.
    """

    threshold: float = 0.0
    epsilon_threshold: Array = None  # type: ignore[assignment]
    epsilon_queries: Array = None  # type: ignore[assignment]
    positives: int = 1
    index: int = 1

    def event(self, facts: Facts) -> Event:
        """Return the event of this round: its test, and a release if it charges one."""
        if self.alpha is None:
            return super().event(facts)
        sensitivity, shape = self.sensitivity(facts), facts.n.shape
        return GatedRelease(
            source=self.source,
            relation=facts.relation,
            sigma=sensitivity / self.alpha,
            sensitivity=sensitivity,
            dimension=facts.d,
            epsilon_threshold=np.broadcast_to(self.epsilon_threshold, shape),
            epsilon_queries=np.broadcast_to(self.epsilon_queries, shape),
            positives=self.positives,
            index=self.index,
        )

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Test the gradient, and compute the minimiser with its noise.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d + 1)
            The noisy minimiser and 1 where the test passed, else zeros.
        """
        if self.alpha is None:
            w = self.exact_statistic(vault, facts)
            return np.concatenate([w, np.ones_like(w[..., :1])], axis=-1)
        passed = self._test(vault, facts, release)
        # For all nodes; answers that did not pass are dropped unseen.
        w = super().answer(vault, facts, release)
        return np.concatenate([np.where(passed, w, 0.0), passed.astype(float)], axis=-1)

    def _quality(self, vault: Vault, facts: Facts) -> Array:
        """Return the norm of the local objective's gradient at `start`, (..., 1), in mean scale."""
        rest = np.asarray(self.linear, dtype=float) + self._q(facts) * self.start
        return np.linalg.norm(vault.solver.gradient(self.start) + rest, axis=-1, keepdims=True)

    def _test(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Return whether each node's gradient passes its noisy threshold, (..., 1)."""
        quality = self._quality(vault, facts)
        sensitivity = gradient_sensitivity(facts, facts.n) * (1.0 + _FINE)
        coarsest = _FINE / 2.0 * np.broadcast_to(sensitivity, quality.shape)
        # AboveThreshold: the threshold's noise is drawn once, in round 1, and kept.
        if self.index == 1:
            bar = np.full_like(quality, self.threshold * facts.C)
            rate = self.epsilon_threshold / sensitivity
            drawn = vault.noise.add_spherical(bar, rate, coarsest, release, use=2)
            vault.keep_secret(Gate(drawn, np.full_like(quality, self.positives)))
        gate = vault.recall_secret(Gate)
        # Lost in a resumed run; a new one would cost again.
        if gate is None:
            return np.zeros(quality.shape, dtype=bool)
        # Every comparison gets fresh Laplace noise of scale 2 c sensitivity / epsilon_queries.
        rate = self.epsilon_queries / (2.0 * self.positives * sensitivity)
        noisy = vault.noise.add_spherical(quality, rate, coarsest, release, use=3)
        # After the last positive AboveThreshold halts: U5 allows no further one.
        passed = (noisy >= gate.bar) & (gate.left > 0)
        vault.keep_secret(Gate(gate.bar, gate.left - passed))
        return np.asarray(passed)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, and forget the noisy threshold of another draw.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        super().replay(vault, facts, release)
        vault.forget_secret(Gate)

    def answer_from_origin(self, answer: Array, origin: Array) -> Array:
        w, passed = answer[..., :-1], answer[..., -1:]
        return np.concatenate([np.where(passed > 0, w - origin, 0.0), passed], axis=-1)

    def placeholder_answer(self, facts: Facts) -> Array:
        return np.zeros((*self.start.shape[:-1], self.start.shape[-1] + 1))

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Return the log density of an answer; tests of all rounds share one noisy threshold.

        Densities of the tests so far are summed over quantiles of the threshold; the ratio to the
        sum before this round is this round's part.
        """
        if self.alpha is None:
            return super().log_density(supposed, answer[..., :-1])
        vault, facts, passed = supposed.vault, supposed.facts, answer[..., -1] > 0
        length = self._quality(vault, facts)[..., 0]  # (R, 1)
        whole = facts.gradients_changed * facts.C / facts.n
        bars = self.threshold * facts.C + _BARS * float(np.max(whole / self.epsilon_threshold))
        scale = float(np.max(2.0 * self.positives * whole / self.epsilon_queries))
        seen = vault.recall_secret(GateSeen)
        if self.index == 1 or seen is None:
            seen = GateSeen(np.zeros((len(answer), len(bars))), np.zeros(len(answer)))
        over = (length - bars) / scale
        # At each quantile of the threshold: the log probability of this round's outcome.
        each = np.where(passed, _log_below(over), _log_below(-over))
        bits = seen.bits + np.where((seen.sent < self.positives)[:, None], each, 0.0)
        vault.keep_secret(GateSeen(bits, seen.sent + passed[:, 0]))
        exact = self.exact_statistic(vault, facts)
        release = np.where(passed[:, 0], self._noise_density(answer[..., :-1] - exact, facts), 0.0)
        return np.asarray(
            np.logaddexp.reduce(bits, axis=1) - np.logaddexp.reduce(seen.bits, axis=1) + release
        )

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        if answer[-1] > 0:
            return super().canary_dependence(canaries, answer[:-1])
        return None


@dataclass(frozen=True)
class RedrawnGate(PerturbedObjective):
    """A gate that redraws its threshold and reads the minimiser (004, Algorithm 2 as listed).

    A round sends if ``f_i(start) - f_i(minimiser) + Lap(4 c B / e2) >= threshold + Lap(2 c B /
    e1)``, at most c times.  Here f_i has every row's loss clipped at B, and its regulariser, which
    is not clipped.  Losses, B and the threshold are in units of C.

    The sparse vector's theorem does not apply.  Given the exact minimiser, though, one row moves
    the query by at most ``2 B / n``, because the regulariser at a known minimiser reads no rows.
    So a test is ``min(e1 / c, e2 / 2c) divisor / n``-DP, and the minimiser is charged in every
    round: see :class:`sottovoce.privacy.events.MinimiserGateRelease`.  As in other printed forms,
    the price is that of an exact solver in the test.

    Parameters
    ----------
    linear, curvature, start, noise, source, tol
        As for :class:`sottovoce.queries.PerturbedObjective`; `noise` is Gaussian, with the noise on
        the answer that the paper sets.
    clip : float
        B, the bound at which each row's loss is clipped, in units of C.
    threshold : float
        Threshold on the improvement of f_i, in units of C.
    epsilon_threshold, epsilon_queries : array of shape (..., 1)
        The paper's e1 and e2.
    positives : int
        c, the largest number of releases.
    index : int
        The round, from 1.
    divisor : array of shape (..., 1)
        Divides both noises: 1 as listed, ``|D_i|`` for the sensitivity that the proof of Lemma 4.2
        loses.
    """

    # Refused: its quality is that of the problem around zero.
    around_origin = Query.around_origin

    clip: float = 1.0
    threshold: float = 0.0
    epsilon_threshold: Array = None  # type: ignore[assignment]
    epsilon_queries: Array = None  # type: ignore[assignment]
    positives: int = 1
    index: int = 1
    divisor: ArrayLike = 1.0

    def event(self, facts: Facts) -> Event:
        """Return the event of this round: the minimiser, its test, and the noise on the answer."""
        inner = super().event(facts)
        assert isinstance(inner, GaussianObjectivePerturbation)
        # The smaller of the two Laplace rates bounds the slope of the test's log density
        # (docs/privacy/verdicts.md, "Improved plausible ADMM").
        at_whole_clip = np.minimum(
            self.epsilon_threshold / self.positives, self.epsilon_queries / (2.0 * self.positives)
        )
        # The last factor covers the grid's rounding.
        test = at_whole_clip * self.divisor / facts.n * (1.0 + _FINE)
        # The paper claims the tests once, and one release in each of the first c rounds.
        share = inner.claimed_rho
        if self.index > self.positives:
            share = np.zeros(facts.n.size)
        whole = np.broadcast_to(
            self.epsilon_threshold + self.epsilon_queries, facts.n.shape
        ).ravel()
        claimed = whole**2 / 2.0
        if self.index != 1:
            claimed = np.zeros_like(claimed)
        claimed_rho = None
        if share is not None:
            claimed_rho = share + claimed
        return MinimiserGateRelease(
            source=self.source,
            relation=facts.relation,
            sigma=inner.sigma,
            K=inner.K,
            curvature_bound=inner.curvature_bound,
            dimension=facts.d,
            error=inner.error,
            sigma_release=inner.sigma_release,
            test_epsilon=np.broadcast_to(test, facts.n.shape),
            positives=self.positives,
            index=self.index,
            claimed_rho=claimed_rho,
        )

    def quality(self, minimiser: Array, vault: Vault, facts: Facts) -> Array:
        """Compute by how much the minimiser improves f_i on the start, with clipped losses of rows.

        Parameters
        ----------
        minimiser : array of shape (..., d)
            The private minimiser.
        vault : Vault
            The rows (inside their solver).
        facts : Facts
            Public facts of the nodes.

        Returns
        -------
        array of shape (..., 1)
            In units of C.
        """

        def clipped_objective(x: Array) -> Array:
            regulariser = 0.5 * facts.mu * np.sum(x * x, axis=-1, keepdims=True)
            return vault.solver.clipped_objective(x, self.clip) + regulariser

        return (clipped_objective(self.start) - clipped_objective(minimiser)) / facts.C

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Test the improvement by the private minimiser, and release it with noise if it passes.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d + 1)
            The noisy minimiser and 1 where the test passed, else zeros.
        """
        law = self.noise
        assert isinstance(law, GaussianLaw) and law.release is not None
        w = self._noisy_minimiser(vault, facts, release)
        quality = self.quality(w, vault, facts)
        alike = np.zeros_like(quality)
        step = alike + _FINE * self.clip / facts.n
        # Laplace noise of scale 2 c B / e1 on the threshold, and 4 c B / e2 on the quality.
        rate = np.asarray(self.divisor) / (2.0 * self.positives * self.clip)
        bar = alike + self.threshold
        bar = vault.noise.add_spherical(
            bar, alike + self.epsilon_threshold * rate, step, release, use=2
        )
        noisy = vault.noise.add_spherical(
            quality, alike + self.epsilon_queries * rate / 2.0, step, release, use=3
        )
        allowance = vault.recall_secret(Allowance)
        if allowance is None:
            left = alike + self.positives
        else:
            left = allowance.left
        passed = (noisy >= bar) & (left > 0)
        vault.keep_secret(Allowance(left - passed))
        coarsest = _FINE * np.broadcast_to(law.release, quality.shape)
        sent = vault.noise.add_gaussian(
            w, np.broadcast_to(law.release, quality.shape), coarsest, release
        )
        return np.concatenate([np.where(passed, sent, 0.0), passed.astype(float)], axis=-1)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, and allow no further release.

        How many releases the stored answers held is no longer known.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        super().replay(vault, facts, release)
        vault.keep_secret(Allowance(np.zeros((*self.start.shape[:-1], 1))))

    def placeholder_answer(self, facts: Facts) -> Array:
        return np.zeros((*self.start.shape[:-1], self.start.shape[-1] + 1))

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """None, because the gate's answer depends on the same minimiser as the release."""
        return None

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)
