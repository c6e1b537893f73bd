"""Primal variable perturbation (001, Algorithm 3): nodes send ``V = f + noise``.

Equation numbers are those of 001.  In the printed form a node's exact minimiser f stays in its
vault, and the next round's objective reads it: f is secret state, and only V is public.  Code calls
``f`` what was sent last, as in the other methods; here it is 001's V.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..queries import NoisyMinimiser, Query, SecretMinimiser, SecretStartObjective
from ..util.typing import Array
from .admm import augmented_terms, updated_dual
from .base import Node
from .dvp import DVP
from .knobs import CappedOptions, zeta
from .prox import DualState, ProxADMM


@dataclass(frozen=True)
class PVPOptions(CappedOptions):
    """Options of primal variable perturbation."""

    zeta: str = zeta()


@dataclass(frozen=True)
class PVP(ProxADMM):
    """Nodes send their minimisers plus noise; ``noise`` is alpha_p(t).

    Parameters
    ----------
    rounds : int
        In the printed form, the round of the last step, (21) to (23); 0 for none.

    Guarantee
    ---------
    Corrected: U7; a node's own state is what it sent.  Printed (V is sent, as in the text): the
    node keeps its exact minimiser.  The claim for the loop, the sum of all alphas, holds by the
    recursion of docs/privacy/verdicts.md, with noise that is ``1 + 2 eta V N / rho`` times larger.
    The claim for the last step is false, with the listing's `zeta` and with half of it, the
    proof's.  Listed (f is sent, as in the listing's "broadcast"): no guarantee at all.
    """

    form: str = "corrected"
    rounds: int = 0
    options: PVPOptions = PVPOptions()

    name: ClassVar[str] = "pvp"
    paper: ClassVar[str] = "001, Algorithm 3"
    summary: ClassVar[str] = "ADMM with noise on the sent minimisers, one release a round"
    good_for: ClassVar[str] = "001 as it is; prox_admm averages its tail too"
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed", "listed")

    def round(self, k: int, state: DualState, node: Node) -> DualState:
        """Run round k: release a noisy minimiser, exchange, and update the dual; no tail average.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        DualState
        """
        if self.form == "corrected" or self.noise is None:
            return super().round(k, state, node)._replace(mean=state.mean)
        f, S, lam, mean = state
        eta, V = self.penalty(k), node.net.degree
        linear, curvature = augmented_terms(eta, V, f, S, lam)
        # 2 eta V of all rounds so far, on which the sensitivity of the secret minimiser depends.
        path = tuple(2 * self.penalty(s) * V for s in range(1, k + 1))
        # (18) and (19): the minimiser plus noise; then (20), the dual step on what was sent.
        f = node.ask(self._query(k, f, linear, curvature, path, node))
        S = node.net.neighbour_sum(f)
        return DualState(f, S, updated_dual(eta, V, f, S, lam) - node.lost_dual(eta / 2), mean)

    def _query(
        self, k: int, f: Array, linear: Array, curvature: Array, path: tuple[Array, ...], node: Node
    ) -> Query:
        assert self.noise is not None
        alpha, source = self.noise(k), f"001, Algorithm 3 ({self.form})"
        if self.form == "listed":
            return NoisyMinimiser(f, None, source, alpha, linear, curvature)
        # The objective of (18) is centred at (f + V_j - eps) / 2 with the exact f and eps = V - f,
        # that is at (2 f + V_j - V) / 2.  Against ADMM's centre (V + V_j) / 2 this moves the linear
        # term by 2 eta N_p (V - f): the public part is added here, the secret one in the query.
        pull = path[-1] / 2  # eta times the number of neighbours, N_p of 001
        minimiser = SecretMinimiser(
            f, alpha, source, None, linear + 2 * pull * f, curvature, -2 * pull, path
        )
        if k != self.rounds:
            return minimiser
        # (21), (22): a step of DVP, (13), centred at (f + V_j) / 2 with the exact own f.  (13) has
        # the neighbours' exact f_j too, which they never sent: V_j stands in for it.
        phi, law = DVP.printed_noise(alpha, curvature, node, self.options.zeta)
        before = replace(minimiser, path=path[:-1])
        source = f"{source}, last step"
        return SecretStartObjective(
            linear + pull * f, curvature + phi, f, law, source, None, -pull, before
        )

    def model(self, state: DualState) -> Array:
        return state.f
