"""Plausible ADMM's sparse-vector form (004, Algorithm 2)."""

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
        c, the largest number of releases of a node.
    """

    positives: int = knob(10, "Releases of a node at most, ipp_admm.", Count())
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
        "Sensitivity of the listing's tests: listed, 2 C_loss (Lemma 4.2), or divided, 2 C_loss "
        "/ n_i.",
        OneOf("listed", "divided"),
        form="printed",
    )


@dataclass(frozen=True)
class IPPADMM(PPADMM):
    """ADMM whose nodes send only if their gradient exceeds a noisy threshold.

    A node sends at most ``positives`` times.

    Guarantee
    ---------
    Corrected: U5 for all tests together and U7 for ``positives`` releases, charged whether they are
    used or not.  Printed (threshold redrawn, private minimiser in the query): the minimiser is
    charged in every round, as if it were released; then each test is pure, at the sensitivity ``2
    C_loss / |D_i|``, which is that of Lemma 4.2 with the factor that its proof loses, and a release
    costs the solver's error only.  The claim is that of Theorem 4.1, which presumes line 3 and
    fewer releases than rounds.  With `test_sensitivity` "divided" the tests have the noise for that
    sensitivity, as listed ``|D_i|`` times as much.

    Parameters
    ----------
    test_share : float
        Epsilon of the tests, in units of ``alpha sqrt(c)``.
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
            rule = f"Theorem 4.1 of 004 has c < T releases, and T = {rounds} rounds"
            raise InvalidInput(
                "positives", self.options.positives, rule, "use fewer, or more rounds"
            )

    def _rounds_of_releases(self, rounds: int) -> list[int]:
        # All releases have the noise of round 1.
        return [1]

    def sent_message(self, answer: Array, f: Array) -> Array:
        # 004, Algorithm 2, line 15: a node that does not send keeps what it sent last, and so do
        # its neighbours (line 18).
        return np.where(answer[..., -1:] > 0, answer[..., :-1], f)

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        alpha = None if self.noise is None else self.noise(1)
        whole = (
            self.test_share * (0.0 if alpha is None else alpha) * np.sqrt(self.options.positives)
        )
        # U5 prices all tests together, whatever their number is.
        e1, e2 = above_threshold_split(whole, self.options.positives)
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
    """U5: shares ``(e1, e2)`` of `epsilon` for threshold and tests, ``1 : (2 c)^{2/3}`` (Lyu, Su
    and Li 2017).
    """
    ratio = (2.0 * positives) ** (2.0 / 3.0)
    return epsilon / (1.0 + ratio), epsilon * ratio / (1.0 + ratio)
