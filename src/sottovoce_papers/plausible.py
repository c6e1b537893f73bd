"""004 in its own setting (section 5): the noise of its listings, and what three proofs charge for
Algorithm 2.

Numbers are those of 5 agents on a ring with 7,000 rows each; docs/privacy/verdicts.md has the
proofs, in the sections "Plausible ADMM" and "Improved plausible ADMM".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from sottovoce.algorithms.ipp_admm import above_threshold_split
from sottovoce.privacy.accountants import BestAccountant
from sottovoce.privacy.events import (
    Event,
    GaussianMechanism,
    GaussianObjectivePerturbation,
    LaplaceMechanism,
    MinimiserGateRelease,
)
from sottovoce.util.typing import Array

SITES, NEIGHBOURS, ROUNDS, ROWS, FEATURES = 5, 2, 30, 7000, 41
ETA, BEND, DELTA = 0.5, 0.25, 1e-4  # c1 is that of the logistic loss
BETA = 10.0**-3.5  # the gradient norm at which the solver stops
POSITIVES = 15  # c
CLIP = 2.0  # C_loss
TESTS_SHARE = 0.2  # of the zCDP; the paper does not print what its tests get
FAR = 1000.0  # a norm that no iterate of our runs comes near
LOG = math.log(1.0 / DELTA)


def zcdp(total: float) -> float:
    """What section 5 makes of a total epsilon."""
    return total**2 / (4.0 * LOG)


def claimed(total: float) -> float:
    """What Theorem 3.3 makes of that: an epsilon at delta 1e-4."""
    rho = zcdp(total)
    return rho + 2.0 * math.sqrt(rho * LOG)


def tests(total: float) -> tuple[float, float, float]:
    """epsilon_1 and epsilon_2 of Algorithm 2, and what a test costs for a change of ``2 C_loss``
    over its divisor.
    """
    share = math.sqrt(2.0 * TESTS_SHARE * zcdp(total))
    e1, e2 = map(float, above_threshold_split(np.array(share), POSITIVES))
    return e1, e2, min(e1 / POSITIVES, e2 / (2.0 * POSITIVES))


def _v(value: float) -> Array:
    return np.array([value])


@dataclass(frozen=True)
class Release:
    """The noise of a release, in the objective and on the answer.

    Attributes
    ----------
    sigma : float
        Standard deviation of the noise in the objective, of the sum over rows (line 6 times
        ``|D_i|``).
    regulariser, curvature : float
        ``lambda-hat / N`` of line 3; the same plus ``2 eta |B_i|``, the strong convexity of (5) but
        for the loss.
    error : float
        How far a solver that stops at beta may be from the exact minimiser.
    spread : float
        Standard deviation of the noise on the answer (line 9).
    """

    sigma: float
    regulariser: float
    curvature: float
    error: float
    spread: float

    @classmethod
    def of_budget(
        cls, rho: float, split: float, beta: float, share: float, weight: float = 1.0
    ) -> Release:
        """For `rho` of zCDP, of which ``1 - split`` is for the objective's noise.

        That is made for `share` of epsilon_i1: 0.99 in Algorithm 1, which has epsilon_i3 there, 1
        in Algorithm 2. A loss of another `weight` C has line 3's regulariser C times as large, as
        c_1 is; beside it the penalty's curvature and beta are C times smaller, and all are in units
        of the loss.
        """
        rho_1, rho_2 = rho * (1.0 - split), rho * split
        epsilon_1 = math.sqrt(4.0 * rho_1 * LOG)
        sigma = 2.0 * math.sqrt(2.0 * math.log(1.25 / DELTA)) / (share * epsilon_1)
        regulariser = 2.8 * BEND / (0.01 * epsilon_1 * ROWS)
        curvature = regulariser + 2.0 * ETA * NEIGHBOURS / weight
        error = beta / weight / curvature
        return cls(sigma, regulariser, curvature, error, error / math.sqrt(2.0 * rho_2))

    def answer(self) -> Event:
        """The noisy answer of a solver that stops at beta: Algorithm 1."""
        return GaussianObjectivePerturbation(
            "printed",
            "replace-one",
            _v(self.sigma),
            _v(ROWS * self.curvature),
            BEND,
            FEATURES,
            _v(self.error),
            _v(self.spread),
        )

    def to_the_letter(self, test_epsilon: float) -> list[Event]:
        """All rounds of Algorithm 2, by the first proof: the exact minimiser counts as released
        in every round.
        """
        return [
            MinimiserGateRelease(
                "printed",
                "replace-one",
                _v(self.sigma),
                _v(ROWS * self.curvature),
                BEND,
                FEATURES,
                _v(self.error),
                _v(self.spread),
                _v(test_epsilon),
                POSITIVES,
                index,
            )
            for index in range(1, ROUNDS + 1)
        ]

    def with_the_same_noise(self, test_epsilon: float, reach: float) -> list[Event]:
        """All rounds of Algorithm 2, by the second proof: both data sets have the same noise in the
        objective.

        It presumes that no answer is longer than `reach`.  A row moves the clipped mean loss of a
        test by ``2 C_loss / n`` itself, and through the answer by as far as that moves; the
        regulariser by `reach` times ``lambda-hat / N`` times that.  `test_epsilon` is a test's for
        a change of ``2 C_loss / n``.
        """
        whole = 2.0 * CLIP / ROWS
        change = whole + (1.0 + self.regulariser * reach) * self.moved()
        test = LaplaceMechanism(
            "printed", "replace-one", _v(1.0 / (test_epsilon * change / whole)), _v(1.0)
        )
        sent = GaussianMechanism(
            "printed", "replace-one", _v(self.spread), _v(self.moved()), FEATURES
        )
        return [test] * ROUNDS + [sent] * POSITIVES

    def with_clipped_quality(self, test_epsilon: float) -> float:
        """Epsilon at delta of Algorithm 2 where Clip cuts the quality itself to the interval from
        -C_loss to C_loss.

        Whatever the minimisers are, the chance that a test passes then differs from that at a
        quality of 0 by a factor of at most ``exp(test_epsilon / 2)``.  A run whose tests ask
        nothing and pass with that chance sends at most c answers; the densities of both runs differ
        by at most ``exp(pure / 2)``, once for each data set.
        """
        pure = ROUNDS * test_epsilon
        answers = BestAccountant().epsilon_of_events(
            [self.answer()] * POSITIVES, DELTA * math.exp(-pure / 2.0)
        )
        return pure + float(np.max(answers))

    def moved(self) -> float:
        """How far a row moves the answer where the noise in the objective stays, the solver's
        errors included.
        """
        return 2.0 / (ROWS * self.curvature) + 2.0 * self.error

    def worst_shift(self, count: int) -> float:
        """Shift over sigma of `count` releases of a linear loss, whose solver errs as it hurts
        most.
        """
        noise = math.hypot(self.sigma / (ROWS * self.curvature), self.spread)
        return self.moved() / noise * math.sqrt(count)

    def far_tests(self, place: float = -1.0) -> float:
        """Epsilon at delta that the tests need where iterates are so far out that the regulariser
        decides them all.

        What neighbours send keeps them there, also after a test has passed.  Then a test asks on
        which side of a number the noise in the objective lies, in one direction.  A row of
        derivative 1 in place of one of 0 shifts it, and so does a solver that errs by beta, up for
        one data set and down for the other.  `place` is that number, in standard deviations of the
        noise.  Only runs of at most c passes are looked at, in which no test is left out.
        """
        shift = (1.0 + 2.0 * self.error * self.curvature * ROWS) / self.sigma
        passes = special.ndtr(np.array([place + shift / 2.0, place - shift / 2.0]))[:, None]
        many = np.arange(POSITIVES + 1)
        one, two = special.comb(ROUNDS, many) * passes**many * (1.0 - passes) ** (ROUNDS - many)

        def excess(epsilon: float) -> float:
            return float(np.sum(np.maximum(one - math.exp(epsilon) * two, 0.0))) - DELTA

        return float(optimize.brentq(excess, 0.0, 50.0))
