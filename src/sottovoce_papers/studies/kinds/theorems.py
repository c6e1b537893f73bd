"""Parameters that the papers' theorems and listings ask for, and the conditions that a run breaks.

A study may run a method outside its theorem on convergence, as the papers' own experiments do;
:func:`broken` makes the page say so.  Outside a theorem on privacy no printed form runs
(:mod:`sottovoce.algorithms.printed_conditions`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sottovoce import RunConfig
from sottovoce.algorithms.ipp_admm import IPPADMM
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy.accountants import ZCDPAccountant
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Prepared
from sottovoce.util.typing import Any, Array

from ...convergence import smoothness, sufficient_gamma

SHARE = 0.99  # 004, section 5: epsilon_i3 over epsilon_i1


def total_004(p: Mapping[str, Any]) -> float:
    """What a run is asked for, so that its zCDP is 004's for the total `epsilon`: section 5, "we
    first convert".

    A form as printed is asked for by its claim, ``rho + 2 sqrt(rho ln(1/delta))`` (Theorem 3.3), a
    corrected one by what the accountant zcdp makes of rho.
    """
    rho, delta = _rho_004(p), p["delta"]
    if p.get("form") == "printed":
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return float(ZCDPAccountant().epsilon(np.array(rho), delta))


def _rho_004(p: Mapping[str, Any]) -> float:
    return float(p["epsilon"] ** 2 / (4 * math.log(1 / p["delta"])))


def regulariser_004(p: Mapping[str, Any], rows: Rows) -> float:
    """004, line 3 of both algorithms: ``2.8 N c1 / ((e1 - e3) n)`` with ``e3 = 0.99 e1`` and the
    budget of a release.

    Algorithm 1 shares the total among all rounds, Algorithm 2 pays for its tests and for at most
    `positives` releases; e1 is that of the share ``1 - split`` that is not for noise on the answer,
    and c1 that of the loss times its weight. `rho` = "004" is that of the cell's own method, "004,
    Algorithm 1" that of Algorithm 1 in every case.
    """
    return _needed_004(p, len(rows.n), float(rows.n.min()))


def _needed_004(p: Mapping[str, Any], N: int, n: float) -> float:
    delta, whole, many = p["delta"], _rho_004(p), p["rounds"]
    if p["rho"] == "004" and p["method"] == "ipp_admm":
        many = p["positives"]
        whole /= 1.0 + IPPADMM.test_share**2  # the rest pays for the tests
    rho = whole / many * (1.0 - p.get("split", IPPADMM.options.split))
    e1 = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return 2.8 * N * 0.25 * p.get("C", 1.0) / ((1.0 - SHARE) * e1 * n)


def _price_002(ready: Prepared) -> tuple[Array, Array, Array]:
    """Of 002's (32) at a constant penalty ``2 C / n``, ``1.4 c1 / (rho/N + 2 eta V)``; and 000's
    log; shapes (N, 1).
    """
    facts = ready.facts
    extra, c1 = 2.0 * ready.algorithm.penalty(1) * ready.graph.degree, facts.loss.curvature_bound
    bend = 2.0 * np.log1p(c1 / facts.strong_convexity_of(extra))
    return 2.0 * facts.C / facts.n, np.asarray(1.4 * c1 / (facts.mu + extra)), np.asarray(bend)


def noise_002(config: RunConfig, rows: Rows, total: float | tuple[float, ...]) -> Array:
    """000's alpha, one a node, of private ADMM as 002's Figure 5 prices it: DVP with the noise of
    002's (18).

    Every round releases, so (32) is summed over all of them; the noise's rate is the largest alpha,
    the same for all nodes, at which this sum is `total`, or each node's own with a total a node.
    InvalidInput if the curvature terms of (32) alone cost more.
    """
    ready = prepare(config, rows.n, rows.d)
    facts, (scale, fixed, bend) = ready.facts, _price_002(ready)
    each = np.reshape(total, (-1, 1)) / (scale * config.rounds) - fixed
    # one total: the same rate for all nodes, which the dearest of them can pay
    rate = each
    if not isinstance(total, tuple):
        rate = np.min(each, keepdims=True)
    if np.min(rate) <= 0:
        raise InvalidInput(
            "alpha", total, "does not pay for the curvature terms of (32)", "raise alpha"
        )
    return np.asarray(rate * facts.C / facts.n + bend)[:, 0]


def claim_002(config: RunConfig, rows: Rows, ready: Prepared) -> float:
    """The sum of (32) over all rounds for the noise of :func:`noise_002`: the inverse of it."""
    facts, (scale, fixed, bend) = ready.facts, _price_002(ready)
    assert isinstance(config.noise, tuple)
    rate = (np.array(config.noise)[:, None] - bend) * facts.n / facts.C
    return float(config.rounds * np.max(scale * (fixed + rate)))


def broken(ready: Prepared) -> str:
    """The conditions of the method's theorem on convergence that these parameters break; empty
    for none.
    """
    config, facts, found = ready.config, ready.facts, []
    eta, V = ready.algorithm.penalty(1), ready.graph.degree
    if config.method in ("r_admm", "mr_admm"):
        if ready.graph.is_bipartite:
            found.append(
                "Outside 002, Theorem 1: this graph is bipartite, and then no gamma meets its "
                "condition (ii), so that "
                "the theorem promises no convergence."
            )
        else:
            M = smoothness(facts.C, facts.loss.curvature_bound, config.rho, facts.n_nodes)
            need = sufficient_gamma(
                ready.graph, np.broadcast_to(eta, V.shape)[:, 0], np.full(len(V), M)
            )
            gamma = config.flat()["gamma"]
            if gamma < need:
                found.append(
                    f"Outside 002, Theorem 1: gamma = {gamma:g}, and its sufficient condition asks "
                    f"for {need:.3g} here."
                )
    return " ".join(found)
