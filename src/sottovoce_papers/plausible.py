"""004 in its own setting (section 5): the noise of its listings, and the privacy loss of Algorithm
2 by three proofs.

:mod:`sottovoce_papers.claims` judges 004 with it.  Numbers are those of 5 agents on a ring with
7,000 rows each; docs/privacy/verdicts.md has the
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
POSITIVES = 15  # c: how many tests may pass, and so answers be sent
CLIP = 2.0  # C_loss, to which a row's loss is clipped in a test
TESTS_SHARE = 0.2  # of the zCDP; the paper does not print what its tests get
FAR = 1000.0  # a norm that no iterate of our runs comes near
LOG = math.log(1.0 / DELTA)


def zcdp(total: float) -> float:
    """Compute the zCDP rho to which 004, section 5, converts a total epsilon."""
    return total**2 / (4.0 * LOG)


def claimed(total: float) -> float:
    """Compute the epsilon at delta 1e-4 that 004, Theorem 3.3, claims for that rho."""
    rho = zcdp(total)
    return rho + 2.0 * math.sqrt(rho * LOG)


def tests(total: float) -> tuple[float, float, float]:
    """Compute epsilon_1 and epsilon_2 of 004's Algorithm 2, and the epsilon of a single test.

    The last is for data sets whose quality differs by ``2 C_loss``, or ``2 C_loss / |D_i|`` where
    the noise is divided by the number of rows too.
    """
    share = math.sqrt(2.0 * TESTS_SHARE * zcdp(total))
    e1, e2 = map(float, above_threshold_split(np.array(share), POSITIVES))
    return e1, e2, min(e1 / POSITIVES, e2 / (2.0 * POSITIVES))


def _v(value: float) -> Array:
    """Return a number as an array of one node."""
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
        """Set the noise of one release from its budget, by 004's listings.

        Parameters
        ----------
        rho : float
            zCDP of the release.
        split : float
            Share of `rho` for the noise on the answer; the rest is for the noise in the objective.
        beta : float
            The gradient norm at which the solver stops.
        share : float
            Share of epsilon_i1 for which the objective's noise is made: 0.99 in Algorithm 1, which
            has epsilon_i3 there, 1 in Algorithm 2.
        weight : float
            C of a loss that is multiplied by C.  Line 3's regulariser is then C times as large, as
            c_1 is; relative to it the penalty's curvature and beta are C times smaller, and all
            are in units of the loss.

        Returns
        -------
        Release
        """
        rho_1, rho_2 = rho * (1.0 - split), rho * split
        epsilon_1 = math.sqrt(4.0 * rho_1 * LOG)
        sigma = 2.0 * math.sqrt(2.0 * math.log(1.25 / DELTA)) / (share * epsilon_1)
        regulariser = 2.8 * BEND / (0.01 * epsilon_1 * ROWS)
        curvature = regulariser + 2.0 * ETA * NEIGHBOURS / weight
        error = beta / weight / curvature
        return cls(sigma, regulariser, curvature, error, error / math.sqrt(2.0 * rho_2))

    def answer(self) -> Event:
        """Return the event of one noisy answer of a solver that stops at beta (Algorithm 1)."""
        return GaussianObjectivePerturbation(
            "printed",
            "replace-one",
            sigma=_v(self.sigma),
            K=_v(ROWS * self.curvature),
            curvature_bound=BEND,
            dimension=FEATURES,
            error=_v(self.error),
            sigma_release=_v(self.spread),
        )

    def to_the_letter(self, test_epsilon: float) -> list[Event]:
        """Return the events of all rounds of Algorithm 2 by the first proof.

        It counts the exact minimiser as released in every round.
        """
        return [
            MinimiserGateRelease(
                "printed",
                "replace-one",
                sigma=_v(self.sigma),
                K=_v(ROWS * self.curvature),
                curvature_bound=BEND,
                dimension=FEATURES,
                error=_v(self.error),
                sigma_release=_v(self.spread),
                test_epsilon=_v(test_epsilon),
                positives=POSITIVES,
                index=index,
            )
            for index in range(1, ROUNDS + 1)
        ]

    def with_the_same_noise(self, test_epsilon: float, reach: float) -> list[Event]:
        """Return the events of all rounds of Algorithm 2 by the second proof.

        It couples both data sets by the same noise in the objective, and assumes that no answer
        has a norm above `reach`.  A row moves the clipped mean loss of a test by ``2 C_loss / n``
        itself, and through the answer by as far as that moves (:meth:`moved`); the regulariser by
        `reach` times ``lambda-hat / N`` times that.  `test_epsilon` is a test's epsilon for a
        change of ``2 C_loss / n``.
        """
        whole = 2.0 * CLIP / ROWS
        change = whole + (1.0 + self.regulariser * reach) * self.moved()
        test = LaplaceMechanism(
            "printed",
            "replace-one",
            scale=_v(1.0 / (test_epsilon * change / whole)),
            sensitivity=_v(1.0),
        )
        sent = GaussianMechanism(
            "printed",
            "replace-one",
            sigma=_v(self.spread),
            sensitivity=_v(self.moved()),
            dimension=FEATURES,
        )
        return [test] * ROUNDS + [sent] * POSITIVES

    def with_clipped_quality(self, test_epsilon: float) -> float:
        """Compute the epsilon at delta of Algorithm 2 if Clip clips the quality itself, to the
        interval from -C_loss to C_loss.

        This is the third proof.  Whatever the minimisers are, the chance that a test passes then
        differs from that at a quality of 0 by a factor of at most ``exp(test_epsilon / 2)``.
        Compare with a run whose tests read no data and pass with that chance: it sends at most c
        answers, and its density differs from that of the real run by at most ``exp(pure / 2)``,
        once for each data set.
        """
        pure = ROUNDS * test_epsilon
        answers = BestAccountant().epsilon_of_events(
            [self.answer()] * POSITIVES, DELTA * math.exp(-pure / 2.0)
        )
        return pure + float(np.max(answers))

    def moved(self) -> float:
        """Bound how far a row moves the answer at the same noise in the objective, with the
        solver's errors.
        """
        return 2.0 / (ROWS * self.curvature) + 2.0 * self.error

    def worst_shift(self, count: int) -> float:
        """Compute mu (sensitivity / sigma) of `count` releases of a linear loss with the worst
        solver errors.
        """
        noise = math.hypot(self.sigma / (ROWS * self.curvature), self.spread)
        return self.moved() / noise * math.sqrt(count)

    def far_tests(self, place: float = -1.0) -> float:
        """Compute a lower bound on the tests' epsilon at delta, where iterates are so far out that
        the regulariser decides every test.

        What neighbours send keeps the iterates there, also after a test has passed.  Then a test
        only compares the noise in the objective, in one direction, with a number: `place`, in
        standard deviations of the noise.  A row of derivative 1 in place of one of 0 shifts the
        noise, and so does a solver that errs by beta, up for one data set and down for the other.
        Only runs with at most c passes are counted, in which all tests are held.
        """
        shift = (1.0 + 2.0 * self.error * self.curvature * ROWS) / self.sigma
        passes = special.ndtr(np.array([place + shift / 2.0, place - shift / 2.0]))[:, None]
        many = np.arange(POSITIVES + 1)
        one, two = special.comb(ROUNDS, many) * passes**many * (1.0 - passes) ** (ROUNDS - many)

        def excess(epsilon: float) -> float:
            return float(np.sum(np.maximum(one - math.exp(epsilon) * two, 0.0))) - DELTA

        return float(optimize.brentq(excess, 0.0, 50.0))
