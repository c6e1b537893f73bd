"""Plausible ADMM with the sparse-vector technique (004, Algorithm 2: IPP-ADMM).

In every round a noisy test decides whether a node sends, at most ``positives`` times in a run.  The
corrected form tests the norm of the gradient at what was sent last
(:class:`sottovoce.queries.GatedMinimiser`); the listing tests by how much the new minimiser lowers
the clipped objective (line 9, :class:`sottovoce.queries.RedrawnGate`).  A query holds test and
release together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..queries import GatedMinimiser, Query, RedrawnGate
from ..util.constraints import Count, Interval, OneOf
from ..util.typing import Array
from .admm import Augmented
from .base import Node
from .knobs import knob
from .pp_admm import PPADMM, PPADMMOptions


@dataclass(frozen=True)
class IPPADMMOptions(PPADMMOptions):
    """Options of the sparse-vector form.

    Parameters
    ----------
    positives : int
        c of 004, the largest number of releases of a node.
    """

    positives: int = knob(10, "Largest number of releases of a node, ipp_admm.", Count())
    threshold: float = knob(
        0.002,
        "Gradient norm above which ipp_admm sends, in units of C.",
        Interval(closed="neither"),
    )
    clip: float = knob(
        1.0,
        "C_loss of the listing, in units of C.",
        Interval(0, 1e9, closed="neither"),
        form="printed",
    )
    test_sensitivity: str = knob(
        "listed",
        "Sensitivity for which the listing's tests have noise: listed, 2 C_loss (Lemma 4.2), or "
        "divided, 2 C_loss / n_i.",
        OneOf("listed", "divided"),
        form="printed",
    )


@dataclass(frozen=True)
class IPPADMM(PPADMM):
    """ADMM whose nodes send only if their gradient exceeds a noisy threshold.

    A node sends at most ``positives`` times.

    Parameters
    ----------
    test_share : float
        Epsilon of all tests together, in units of ``alpha sqrt(c)``; alpha is a release's mu.

    Guarantee
    ---------
    Corrected: U5 (sparse vector) for all tests together and U7 (noise on a minimiser) for
    ``positives`` releases, charged whether they are used or not.

    Printed: the listing redraws the threshold in every round, and tests a minimiser that it does
    not release.  So the minimiser is charged in every round, as if it were released; then each test
    has a pure epsilon, at the sensitivity ``2 C_loss / |D_i|`` (Lemma 4.2 states ``2 C_loss``: its
    proof loses the factor), and a release only costs the solver's error.  The claim is that of
    Theorem 4.1, which assumes line 3 and fewer releases than rounds.  With `test_sensitivity`
    "divided" the tests have noise for the smaller sensitivity; as listed, ``|D_i|`` times as much.
    """

    options: IPPADMMOptions = IPPADMMOptions()
    test_share: float = 0.5

    name: ClassVar[str] = "ipp_admm"
    paper: ClassVar[str] = "004, Algorithm 2"
    summary: ClassVar[str] = "ADMM that sends when a sparse-vector test says that it is worth it"
    releases: ClassVar[str] = "in rounds that a test picks, at most `positives`"
    noise_law: ClassVar[str] = "Gaussian, on the answer; Laplace in the tests"
    good_for: ClassVar[str] = "many rounds of which few matter"
    noise_weight: ClassVar[float] = 1.2
    least_penalty: ClassVar[float] = 0.0005
    objective_noise: ClassVar[bool] = False
    listed_share: ClassVar[float] = (
        1.0  # line 6 has epsilon_i1, where line 6 of Algorithm 1 has epsilon_i3
    )

    def check_claim(self, facts: Facts, rounds: int) -> None:
        super().check_claim(facts, rounds)
        if self.form == "printed" and self.noise is not None and self.options.positives >= rounds:
            rule = f"Theorem 4.1 of 004 needs fewer releases than rounds, and rounds={rounds}"
            raise InvalidInput(
                "positives", self.options.positives, rule, "use a smaller value, or more rounds"
            )

    def _rounds_of_releases(self, rounds: int) -> list[int]:
        # All releases have the noise of round 1.
        return [1]

    def sent_message(self, answer: Array, f: Array) -> Array:
        # 004, Algorithm 2, line 15: a node that does not send keeps what it sent last, and so do
        # its neighbours (line 18).
        return np.where(answer[..., -1:] > 0, answer[..., :-1], f)

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """Return the query of round k: a noisy test, and a minimiser that is sent if it passes.

        Parameters
        ----------
        k, terms, f, node
            As for :meth:`ADMM.query_of_round`.

        Returns
        -------
        GatedMinimiser or RedrawnGate
        """
        alpha = None if self.noise is None else self.noise(1)
        epsilon_of_tests = (
            self.test_share * (0.0 if alpha is None else alpha) * np.sqrt(self.options.positives)
        )
        # e1 and e2 are the epsilons of threshold and tests, epsilon_1 and epsilon_2 of 004.
        # U5 prices all tests together, whatever their number is.
        e1, e2 = above_threshold_split(epsilon_of_tests, self.options.positives)
        if self.form == "printed" and alpha is not None:
            law = self.printed_noise(alpha, terms.curvature, node)
            divisor: Array | float = 1.0
            if self.options.test_sensitivity == "divided":
                divisor = node.facts.n
            return RedrawnGate(
                *terms,
                f,
                law,
                "004, Algorithm 2 (printed)",
                self.options.tolerance,
                self.options.clip,
                self.options.threshold,
                e1,
                e2,
                self.options.positives,
                k,
                divisor,
            )
        source = "004, Algorithm 2 (corrected)"
        return GatedMinimiser(
            f,
            alpha,
            source,
            None,
            *terms,
            self.options.threshold,
            e1,
            e2,
            self.options.positives,
            k,
        )


def above_threshold_split(epsilon: Array, positives: int) -> tuple[Array, Array]:
    """Split the epsilon of a sparse-vector test into ``(e1, e2)``, for the threshold and the tests.

    Their ratio is ``1 : (2 c)^{2/3}`` with c = `positives`, which Lyu, Su and Li (2017) recommend;
    U5 of :mod:`sottovoce.privacy.bounds` holds for any split.
    """
    ratio = (2.0 * positives) ** (2.0 / 3.0)
    return epsilon / (1.0 + ratio), epsilon * ratio / (1.0 + ratio)
