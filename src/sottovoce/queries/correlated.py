"""Correlated noise over rounds, for gradients whose derivatives have one sign.

A release is a noisy gradient less a share of those before it, at the same price.

A row's gradient of a margin loss is ``-s a`` with the row's own direction a and s never negative.
So half of the noise's variance may be the same in all rounds.  No draw is kept secret for it: a
release is a gradient less a share of the earlier ones, with fresh noise.

Guarantee
---------
For a loss whose derivative is never positive, the releases of the rounds 1 .. t are post-processing
of Gaussian mechanisms of the shifts that their events state, whatever else is released between them
(``docs/privacy/correlated_noise.md``).  A round without those before it is priced as a release by
itself.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput, LedgerError
from ..privacy.events import CarriedGaussianMechanism, Event
from ..problem.facts import Facts
from ..problem.schedules import Schedule
from ..solvers.local import elsewhere_bound
from ..util.typing import Array
from .audit_hooks import Canaries, Leaning, gaussian_log_density
from .reach import public_vector_norm
from .statistic import (
    MOVED,
    NoisyGradient,
    change_at_other_positions,
    check_rounding_by_position,
    gradient_sensitivity,
)
from .vault import Secret, Vault

# Unit roundoff of double precision.
_U = 2.0**-53
# How far derivatives may differ if computed twice at one point, relative to a gradient's bound.
_AGAIN = 2.0**-20
_MISSED = "resume: the gradients of earlier rounds are missing; start the run from round 1"


@dataclass(frozen=True)
class Pulls(Secret):
    """Earlier gradients of a run with correlated noise; a resumed run computes them again.

    Parameters
    ----------
    before : array of shape (..., d)
        Sum of the gradients before the last one.
    last : array of shape (..., d)
        The last gradient.
    round, release : integer arrays
        The last gradient's round, and the number of its release: no other release may be made of
        it.
    """

    before: Array
    last: Array
    round: Array
    release: Array


def can_correlate_noise(facts: Facts, noise: Schedule | None, rounds: int) -> bool:
    """Return whether a run may correlate its noise across rounds.

    Proved for losses of one margin whose derivative has one sign, so that a row's gradients have
    one direction; for a unit of one row, or of a person's rows of survival
    (docs/privacy/correlated_noise.md).

    Parameters
    ----------
    facts : Facts
        Public facts of the run; pure prices and sums over sites are excluded.
    noise : Schedule or None
        Relative noise of the rounds, which must be even; None for no noise.
    rounds : int
        How many rounds are planned, more than 1.

    Returns
    -------
    bool
    """
    one_sign = facts.loss.monotone and facts.loss.outputs == 1 and not facts.loss.offset_bound
    if not one_sign or facts.pure or facts.opens_only_sums:
        return False
    return noise is not None and noise.is_steady and rounds > 1


def computed_twice(facts: Facts, far: float) -> float:
    """Bound how far apart two processes may compute a row's gradient at one point.

    A margin errs by at most ``(d + 8) u ||w|| ||a||``, that of a moved row by at most ``(2 d + 24)
    u ||w||`` times the facts' stretch, and a row's gradient by ``hessian_bound`` times as much.  A
    cap on it follows from a norm, which errs by less than a share ``(d + 8) u``.  What clips a
    moved row, and its length, are computed again too:
    :func:`sottovoce.solvers.local.elsewhere_bound`.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    far : float
        Norm of the point.

    Returns
    -------
    float
        Bound on the Euclidean distance of a row's two gradients.
    """
    loss, d, stretch = facts.loss, facts.d, facts.stretch
    wide = d + 8.0
    if stretch != 1.0:
        wide = (2.0 * d + 24.0) * stretch
    once = wide * _U * (far * loss.hessian_bound + loss.derivative_bound * loss.by_norm)
    return 2.0 * (once + float(elsewhere_bound(1.0, loss, d, far, stretch)))


def within_reach(facts: Facts, point: Array) -> Array:
    """Scale public points down to where every round of :class:`CarriedGradient` is answered.

    Both errors that a round is refused for are affine in a point's norm.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    point : array of shape (..., d)
        Public points.

    Returns
    -------
    array of shape (..., d)
        Points that are short enough come back to the last bit.
    """
    longest = math.inf
    L = facts.loss.derivative_bound
    # The longest point at which neither error, least + slope * norm, exceeds its bound.
    for error, most in ((computed_twice, _AGAIN * L), (change_at_other_positions, MOVED * L)):
        least = error(facts, 0.0)
        if (slope := error(facts, 1.0) - least) > 0.0:
            longest = min(longest, 0.999 * (most - least) / slope)
    norm = public_vector_norm(point, "start")
    if 0.0 < longest < math.inf:
        return np.asarray(point * (longest / np.maximum(norm, longest)))
    return np.asarray(point)


@dataclass(frozen=True)
class CarriedGradient(NoisyGradient):
    """A gradient less a share of the earlier ones, with fresh noise: correlated noise over rounds.

    Round t releases ``g_t - (g_1 + ... + g_{t-1}) / (T + t - 1)`` plus noise, where g_t is the mean
    gradient of :class:`NoisyGradient` at ``start``.

    Parameters
    ----------
    start, alpha, source, claimed
        As for :class:`NoisyGradient`; `alpha` is the sensitivity over sigma that a round of
        independent noise of the same total would have.
    index : int
        The round t, from 1.
    rounds : int
        How many rounds T are planned.

    Guarantee
    ---------
    See the module: with those of the rounds before it, each priced by
    :class:`~sottovoce.privacy.events.CarriedGaussianMechanism`.
    """

    index: int = 1
    rounds: int = 1
    of_people: ClassVar[bool] = True

    @property
    def share(self) -> float:
        """Share of the sum of earlier gradients that is subtracted, and added again by readers."""
        return 1.0 / (self.rounds + self.index - 1.0)

    def _sigma(self, sensitivity: Array) -> Array:
        """Return the standard deviation of this release's own noise.

        ``sigma_t^2 = sigma^2 / 2 * (T + t) / (T + t - 1)`` with the sigma of independent noise.
        """
        assert self.alpha is not None
        T = float(self.rounds)
        t = float(self.index)
        return np.asarray(sensitivity / self.alpha * math.sqrt((T + t) / (2.0 * (T + t - 1.0))))

    def exact_sensitivity(self, facts: Facts) -> Array:
        """Return the sensitivity of one gradient, with what rounding adds to any round's release.

        Earlier gradients count by at most one half in all, so their rounding by half as much as
        this one's, and their sum is of T vectors.  A changed row's derivatives that a resumed run
        computes again differ by at most `_AGAIN`, which :meth:`check_before_charge` sees to.  The
        sum of these counts ``sqrt 2`` times (docs/privacy/correlated_noise.md, "Rounding").
        """
        whole = facts.gradients_changed * facts.C / facts.n
        rounding = gradient_sensitivity(facts, facts.n) - whole
        sums = 2.0 * (self.rounds + 4.0) * _U * facts.C * facts.loss.derivative_bound
        again = _AGAIN * facts.change_certified * facts.C / facts.n
        return np.asarray(whole + math.sqrt(2.0) * (1.5 * rounding + sums + again))

    def shifts_of_rounds(self, facts: Facts) -> Array:
        """Return sensitivity over sigma of all rounds' events, (rounds, N), to the last bit."""
        assert self.alpha is not None
        sensitivity = self.sensitivity(facts)
        T = float(self.rounds)
        t = np.arange(1.0, T + 1.0).reshape(-1, *[1] * sensitivity.ndim)
        sigma = sensitivity / self.alpha * np.sqrt((T + t) / (2.0 * (T + t - 1.0)))
        # alpha_t^2 = 2 T^2 / ((T + t - 1) (T + t)) times the shift of independent noise, squared.
        return np.asarray(sensitivity / sigma * (T / (T + t - 1.0))).reshape(self.rounds, -1)

    def event(self, facts: Facts) -> Event:
        """Return the event of this round; InvalidInput where correlated noise is not proved."""
        assert self.alpha is not None
        if not can_correlate_noise(facts, Schedule(), self.rounds):
            raise InvalidInput(
                "correlation",
                "half",
                "is proved only for Gaussian noise and losses whose derivatives have one sign",
                "use correlation='none'",
            )
        sensitivity = self.sensitivity(facts)
        return CarriedGaussianMechanism(
            self.source,
            facts.relation,
            np.broadcast_to(self._sigma(sensitivity), facts.n.shape),
            sensitivity,
            facts.d,
            self.index,
            self.rounds,
        )

    def check_before_charge(self, facts: Facts) -> None:
        """Check that the round was planned, and that derivatives can be computed twice alike.

        Raises
        ------
        InvalidInput
            If the round is beyond those planned, or the bound of :func:`computed_twice` is too
            large.
        """
        check_rounding_by_position(facts, self.start)
        if not 1 <= self.index <= self.rounds:
            raise InvalidInput(
                "rounds",
                self.index,
                f"must be from 1 to {self.rounds}, the planned number",
                "plan as many rounds as you run",
            )
        far = float(np.max(public_vector_norm(self.start, "start"), initial=0.0))
        if not computed_twice(facts, far) <= _AGAIN * facts.loss.derivative_bound:
            rule = "the model's norm is too large for gradients to be recomputed exactly enough"
            raise InvalidInput("eta", None, rule, "use a larger eta, or correlation='none'")

    def prepare_before_charge(self, vault: Vault) -> None:
        known = vault.recall_secret(Pulls)
        if self.index > 1 and (known is None or int(known.round) != self.index - 1):
            raise LedgerError(_MISSED)

    def public_digest(self) -> bytes:
        return hashlib.blake2b(
            np.ascontiguousarray(self.start, dtype="<f8").tobytes(), digest_size=16
        ).digest()

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        return self._less_carried_part(self._gradient_and_history(vault, self.index))

    def _less_carried_part(self, pulls: Pulls) -> Array:
        """Return the last gradient less the share of those before it, (..., d)."""
        return np.asarray(pulls.last - self.share * pulls.before)

    def _gradient_and_history(self, vault: Vault, release: int) -> Pulls:
        """Compute this round's gradient, and keep it and the sum of those before it.

        Where one release is gone through twice, its own gradient is not among those before it.
        """
        last = vault.solver.gradient(self.start)
        known = vault.recall_secret(Pulls)
        if self.index == 1:
            before = np.zeros_like(last)
        elif known is not None and int(known.round) == self.index - 1:
            before = known.before + known.last
        # Called again for the release that is kept already: its own gradient does not count twice.
        elif known is not None and (int(known.round), int(known.release)) == (self.index, release):
            before = known.before
        else:
            raise LedgerError(_MISSED)
        kept = Pulls(before, last, np.array(self.index), np.array(release))
        vault.keep_secret(kept)
        return kept

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the difference of gradients, keep this round's gradient, and add fresh noise.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d)
        """
        exact = self._less_carried_part(self._gradient_and_history(vault, release))
        sensitivity = self.sensitivity(facts)
        return vault.noise.add_gaussian(
            exact, self._sigma(sensitivity), self._coarsest_grid_step(sensitivity, facts), release
        )

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Compute this round's gradient again, which later rounds need.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        self._gradient_and_history(vault, release)

    def _noise_density(self, noise: Array, facts: Facts) -> Array:
        return gaussian_log_density(noise, self._sigma(self.sensitivity(facts)))

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how a round depends on canary rows, given the rounds before it."""
        middle, lean = canaries.gradients(self.start.reshape(-1))
        now = np.column_stack([middle, lean])
        before = canaries.kept.get("pulls", np.zeros_like(now))
        canaries.kept["pulls"] = before + now
        said = now - self.share * before
        # In sum scale, as the canaries' gradients are.
        spread = canaries.sums * float(np.max(self._sigma(self.sensitivity(canaries.facts))))
        return Leaning(canaries.sums * answer - said[:, 0], said[:, 1:], spread**2)
