"""Correlated noise: noisy gradients of one sign, each less a share of those before it, at the same price.

A row's gradient of a margin loss is ``-s a`` with the row's own direction a and s never negative.  So half of the
noise's variance may be the same in all rounds.  No draw is kept secret for it: a release is a gradient less a share of
the earlier ones, with fresh noise.

Guarantee
---------
For a loss whose derivative is never positive, the releases of the rounds 1 .. t are post-processing of Gaussian
mechanisms of the shifts that their events state, whatever else is released between them
(``docs/privacy/correlated_noise.md``).  A round without those before it is priced as a release by itself.
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
from .audit_hooks import Canaries, Leaning, gaussian
from .reach import length
from .statistic import MOVED, NoisyGradient, check_places, gradient_sensitivity, moved_apart
from .vault import Secret, Vault

_U = 2.0**-53
_AGAIN = 2.0**-20  # of a gradient's bound: how far derivatives may differ if computed twice at one point
_MISSED = "resume: gradients of earlier rounds were not computed again; start the run from round 1"


@dataclass(frozen=True)
class Pulls(Secret):
    """The sum of earlier gradients before the last one, and the last; a resumed run computes them again.

    `round` is that of the last, and `release` its release's number: no other release may be made of it.
    """

    before: Array
    last: Array
    round: Array
    release: Array


def carries(facts: Facts, noise: Schedule | None, rounds: int) -> bool:
    """Whether a run may correlate its noise: one sign, one direction a row, even noise, no sums, some rounds.

    For a unit of one row, or of a person's rows of survival (docs/privacy/correlated_noise.md).
    """
    one_sign = facts.loss.monotone and facts.loss.outputs == 1 and not facts.loss.offset_bound
    return one_sign and not (facts.pure or facts.summed) and noise is not None and noise.steady and rounds > 1


def computed_twice(facts: Facts, far: float) -> float:
    """How far a row's gradients may differ that two processes compute at one point of norm `far`.

    A margin errs by at most ``(d + 8) u ||w|| ||a||``, that of a moved row by at most ``(2 d + 24) u ||w||`` times the
    facts' stretch, and a row's gradient by ``hessian_bound`` times as much.  A cap on it follows from a norm, which
    errs by less than a share ``(d + 8) u``.  What shortens a moved row, and its length, are computed again too:
    :func:`sottovoce.solvers.local.elsewhere_bound`.
    """
    loss, d, stretch = facts.loss, facts.d, facts.stretch
    wide = d + 8.0 if stretch == 1.0 else (2.0 * d + 24.0) * stretch
    once = wide * _U * (far * loss.hessian_bound + loss.derivative_bound * loss.by_norm)
    return 2.0 * (once + float(elsewhere_bound(1.0, loss, d, far, stretch)))


def within_reach(facts: Facts, point: Array) -> Array:
    """Public points (..., d), shortened to where every round of :class:`CarriedGradient` is answered.

    Both errors that a round is refused for are affine in a point's norm.  Points that are short enough come back to
    the last bit.
    """
    longest, L = math.inf, facts.loss.derivative_bound
    for error, most in ((computed_twice, _AGAIN * L), (moved_apart, MOVED * L)):
        least = error(facts, 0.0)
        if (slope := error(facts, 1.0) - least) > 0.0:
            longest = min(longest, 0.999 * (most - least) / slope)
    norm = length(point, "start")
    return np.asarray(point * (longest / np.maximum(norm, longest)) if 0.0 < longest < math.inf else point)


@dataclass(frozen=True)
class CarriedGradient(NoisyGradient):
    """``g_t - (g_1 + ... + g_{t-1}) / (T + t - 1)`` at public points; g_t is :class:`NoisyGradient`'s at ``start``.

    ``alpha`` is the shift over sigma that a round of independent noise of the same total would have.

    Parameters
    ----------
    index, rounds : int
        The round t, from 1, and T, how many are planned.
    """

    index: int = 1
    rounds: int = 1
    of_people: ClassVar[bool] = True

    @property
    def share(self) -> float:
        """Share of the sum of earlier gradients that a release leaves out, and its readers add again."""
        return 1.0 / (self.rounds + self.index - 1.0)

    def _sigma(self, sensitivity: Array) -> Array:
        """Standard deviation of this release's own noise."""
        assert self.alpha is not None
        T, t = float(self.rounds), float(self.index)
        return np.asarray(sensitivity / self.alpha * math.sqrt((T + t) / (2.0 * (T + t - 1.0))))

    def exact_sensitivity(self, facts: Facts) -> Array:
        """Of one gradient, and ``sqrt 2`` times what computation adds to the change of any round's release.

        Earlier gradients count by at most one half in all, so their rounding by half as much as this one's, and their
        sum is of T vectors.  A changed row's derivatives that a resumed run computes again differ by at most `_AGAIN`,
        which :meth:`check` sees to (docs/privacy/correlated_noise.md, "Rounding").
        """
        whole = facts.gradients_changed * facts.C / facts.n
        rounding = gradient_sensitivity(facts, facts.n) - whole
        sums = 2.0 * (self.rounds + 4.0) * _U * facts.C * facts.loss.derivative_bound
        again = _AGAIN * facts.change_certified * facts.C / facts.n
        return np.asarray(whole + math.sqrt(2.0) * (1.5 * rounding + sums + again))

    def shifts(self, facts: Facts) -> Array:
        """Shifts over sigma of the events of all rounds, (rounds, N), to the last bit."""
        assert self.alpha is not None
        sensitivity, T = self.sensitivity(facts), float(self.rounds)
        t = np.arange(1.0, T + 1.0).reshape(-1, *[1] * sensitivity.ndim)
        sigma = sensitivity / self.alpha * np.sqrt((T + t) / (2.0 * (T + t - 1.0)))
        return np.asarray(sensitivity / sigma * (T / (T + t - 1.0))).reshape(self.rounds, -1)

    def event(self, facts: Facts) -> Event:
        assert self.alpha is not None
        if not carries(facts, Schedule(), self.rounds):
            raise InvalidInput("correlation", "half", "is proved for losses of one sign and Gaussian noise", "use none")
        sensitivity = self.sensitivity(facts)
        return CarriedGaussianMechanism(
            self.source, facts.relation, np.broadcast_to(self._sigma(sensitivity), facts.n.shape), sensitivity, facts.d,
            self.index, self.rounds,
        )  # fmt: skip

    def check(self, facts: Facts) -> None:
        """Refuse a round that was not planned, and points where derivatives differ too much if computed twice.

        See :func:`computed_twice`.
        """
        check_places(facts, self.start)
        if not 1 <= self.index <= self.rounds:
            raise InvalidInput("rounds", self.index, f"the run was planned for {self.rounds}", "plan for as many")
        far = float(np.max(length(self.start, "start"), initial=0.0))
        if not computed_twice(facts, far) <= _AGAIN * facts.loss.derivative_bound:
            rule = "the model is too long for gradients to be computed twice alike"
            raise InvalidInput("eta", None, rule, "use a larger eta, or correlation='none'")

    def ready(self, vault: Vault) -> None:
        known = vault.recall(Pulls)
        if self.index > 1 and (known is None or int(known.round) != self.index - 1):
            raise LedgerError(_MISSED)

    def stamp(self) -> bytes:
        return hashlib.blake2b(np.ascontiguousarray(self.start, dtype="<f8").tobytes(), digest_size=16).digest()

    def value(self, vault: Vault, facts: Facts) -> Array:
        return self._less(self._pulls(vault, self.index))

    def _less(self, pulls: Pulls) -> Array:
        return np.asarray(pulls.last - self.share * pulls.before)

    def _pulls(self, vault: Vault, release: int) -> Pulls:
        """This round's gradient and the sum of those before it, kept for the next round.

        Where one release is gone through twice, its own gradient is not among those before it.
        """
        last, known = vault.solver.gradient(self.start), vault.recall(Pulls)
        if self.index == 1:
            before = np.zeros_like(last)
        elif known is not None and int(known.round) == self.index - 1:
            before = known.before + known.last
        elif known is not None and (int(known.round), int(known.release)) == (self.index, release):
            before = known.before
        else:
            raise LedgerError(_MISSED)
        kept = Pulls(before, last, np.array(self.index), np.array(release))
        vault.keep(kept)
        return kept

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        exact, sensitivity = self._less(self._pulls(vault, release)), self.sensitivity(facts)
        return vault.noise.add_gaussian(exact, self._sigma(sensitivity), self._coarsest(sensitivity, facts), release)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        self._pulls(vault, release)

    def _noise_density(self, noise: Array, facts: Facts) -> Array:
        return gaussian(noise, self._sigma(self.sensitivity(facts)))

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        middle, lean = canaries.gradients(self.start.reshape(-1))
        now = np.column_stack([middle, lean])
        before = canaries.kept.get("pulls", np.zeros_like(now))
        canaries.kept["pulls"] = before + now
        said = now - self.share * before
        spread = canaries.sums * float(np.max(self._sigma(self.sensitivity(canaries.facts))))
        return Leaning(canaries.sums * answer - said[:, 0], said[:, 1:], spread**2)
