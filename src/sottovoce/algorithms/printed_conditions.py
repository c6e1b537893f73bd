"""Conditions under which the papers state the claims of their printed forms.

A *printed form* is a paper's algorithm to the letter; its report shows the privacy that the paper
claims beside the one that is proved.  Where a condition of the paper's theorem fails, the paper
claims nothing, so such a run is refused before anything is spent.
"""

from __future__ import annotations

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..problem.schedules import Schedule
from ..util.typing import Array
from .base import Node

LEFT_FOR_CURVATURE = 0.01
"""``(epsilon_i1 - epsilon_i3) / epsilon_i1`` in 004, section 5."""


def check_curvature(penalty: Schedule, node: Node, paper: str) -> None:
    """Check ``2 c1 < min_i (B_i / C)(rho / N + 2 eta_i(1) V_i)``.

    It is a condition of 002, Algorithm 3, and of the theorem on M-ADMM: where it fails, 1.4 c1 does
    not bound the logarithm of the determinants' ratio.

    Parameters
    ----------
    penalty : Schedule
        The penalty eta_i(k).
    node : Node
        Gives public facts and degrees.
    paper : str
        The theorem's name, for the error.

    Raises
    ------
    InvalidInput
        If the condition fails.
    """
    facts = node.facts
    left = 2 * facts.loss.curvature_bound
    right = float(np.min(facts.strong_convexity_of(2 * penalty(1) * node.net.degree)))
    if not left < right:
        rule = (
            f"{paper} needs 2 c1 < min (B/C)(rho/N + 2 eta V) over all nodes, but 2 c1 = {left:g} "
            f"and the minimum is {right:g}"
        )
        raise InvalidInput(
            "eta", penalty.describe_values, rule, "raise eta or rho, or use form='corrected'"
        )


def check_growing(penalty: Schedule, paper: str) -> None:
    """Check that no node's penalty falls: the theorems' conditions are only checked in round 1.

    Raises
    ------
    InvalidInput
        If a node's penalty falls.
    """
    if not penalty.non_decreasing:
        raise InvalidInput(
            "eta",
            penalty.describe_values,
            f"must not decrease over rounds ({paper})",
            "use eta_growth >= 1",
        )


def regulariser_of_line_3(epsilon_1: Array, facts: Facts) -> Array:
    """Return lambda-hat of 004, line 3 of both algorithms, per node.

    It is ``2.8 N c1 / ((epsilon_i1 - epsilon_i3) |D_i|)``.  A loss of weight C has the bound ``C
    c1``, where the paper's has weight 1.
    """
    left = LEFT_FOR_CURVATURE * epsilon_1
    return np.asarray(2.8 * facts.n_nodes * facts.C * facts.loss.curvature_bound / (left * facts.n))


def check_line_3(alphas: list[Array], split: float, delta_1: float, facts: Facts) -> None:
    """Check that the regulariser is at least that of line 3 of 004.

    004 converts a release's rho_1 to epsilon_i1 in two ways, in Theorem 3.1 and in section 5.  The
    larger epsilon_i1, that of section 5, needs the smaller regulariser; a run that meets this one
    passes.

    Parameters
    ----------
    alphas : list of arrays of shape () or (N, 1)
        Releases, which claim ``alpha^2 / 2`` in zCDP.
    split : float
        Share of a release's rho for the noise on the answer, in (0, 1).
    delta_1 : float
        delta_i1 of the listing, in (0, 1).
    facts : Facts
        Public facts of all nodes.

    Raises
    ------
    InvalidInput
        If the regulariser is smaller.
    """
    log = np.log(1.0 / delta_1)
    needed = 0.0
    for alpha in alphas:
        rho_1 = 0.5 * alpha**2 * (1.0 - split)
        of_theorem = np.sqrt(4.0 * rho_1 * log)
        of_section_5 = rho_1 + of_theorem
        needed = max(needed, float(np.max(regulariser_of_line_3(of_section_5, facts))))
    if facts.rho < needed * (1.0 - 1e-9):
        rule = (
            "the claim of 004 needs at least the regulariser of its line 3, 2.8 N c1 / "
            f"((epsilon_i1 - epsilon_i3) |D_i|) = {needed:.4g} here"
        )
        raise InvalidInput(
            "rho", facts.rho, rule, f"use rho={_rounded_up(needed):g} or more, or form='corrected'"
        )


def _rounded_up(value: float) -> float:
    """Round a positive number up to three significant digits."""
    step = 10.0 ** (np.floor(np.log10(value)) - 2.0)
    return float(np.ceil(value / step) * step)


__all__ = ["check_curvature", "check_growing", "check_line_3", "regulariser_of_line_3"]
