"""The query of 003's trusted average: the mean of the sites' exact minimisers, plus noise that a
trusted aggregator draws (003, section 4.4.1).

:func:`sottovoce_papers.aggregation.average_trusted` asks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sottovoce.privacy.events import Event, ExactSphericalMechanism, GaussianMechanism
from sottovoce.problem.facts import Facts
from sottovoce.queries import Query
from sottovoce.queries.vault import Vault
from sottovoce.solvers.local import certified_error
from sottovoce.util.typing import Array

_GRID = 2.0**-11  # width of the grid on which noise is added, as a share of the solver's error


@dataclass(frozen=True)
class NoisyAverage(Query):
    """The sites' average exact minimiser plus noise, drawn by a trusted aggregator (003, section
    4.4.1, scenario 2).

    One row of site i moves its minimiser by at most ``Delta C / (n_i Lambda)`` and the average by
    an N-th of that, so the *smallest* site sets the sensitivity; the solver's error on both
    neighbouring data sets is added.

    `rate`, of shape (1, 1), is that of spherical noise, or one over the sigma of Gaussian noise;
    `start` has the release's shape.
    """

    rate: Array
    gaussian: bool
    start: Array

    def sensitivity(self, facts: Facts) -> Array:
        """Compute the largest distance between the averages of two neighbouring data sets."""
        exact = facts.gradients_changed * facts.C / (facts.n_nodes * facts.n.min() * facts.mu)
        return exact + 2.0 * certified_error(facts.C, facts.exact_tol, np.array([facts.mu])) * (
            1.0 + _GRID
        )

    def event(self, facts: Facts) -> Event:
        source, how_far = "003, section 4.4.1", self.sensitivity(facts)
        if self.gaussian:
            return GaussianMechanism(source, facts.relation, 1.0 / self.rate, how_far, facts.d)
        return ExactSphericalMechanism(source, facts.relation, self.rate, how_far, facts.d)

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the average of the exact minimisers and add the noise.

        Parameters
        ----------
        vault : Vault
            Has the solver over the private rows, and the noise.
        facts : Facts
            Public facts of N sites.
        release : int
            Number of the release, which keys its noise.

        Returns
        -------
        ndarray
            Of the shape of `start`.
        """
        zero, q = np.zeros((facts.n_nodes, facts.d)), np.full((facts.n_nodes, 1), facts.mu)
        exact = vault.solver.minimise(zero, q, zero, facts.exact_tol).w.mean(axis=0)
        w = np.array(np.broadcast_to(exact, self.start.shape))
        coarsest = (
            _GRID
            * certified_error(facts.C, facts.exact_tol, np.array([facts.mu]))
            / np.sqrt(facts.d)
        )
        if self.gaussian:
            return vault.noise.add_gaussian(w, 1.0 / self.rate[0], coarsest, release)
        return vault.noise.add_spherical(w, self.rate[0], coarsest, release)

    def placeholder_answer(self, facts: Facts) -> Array:
        return self.start
