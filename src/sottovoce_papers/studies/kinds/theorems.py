"""Parameters of runs by the papers' theorems and listings, and the conditions that a run violates.

A study may run a method outside its theorem on convergence, as the papers' own experiments do;
the page then says so (:func:`broken`).  Outside the conditions of a theorem on privacy a printed
form is refused (:mod:`sottovoce.algorithms.printed_conditions`).
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
    """Compute the epsilon to run with, so that the run's zCDP is 004's for the total `epsilon`.

    004, section 5, first converts the total to rho.  For a form as printed the result is its claim,
    ``rho + 2 sqrt(rho ln(1/delta))`` (Theorem 3.3); for a corrected one the epsilon to which the
    accountant zcdp converts rho.
    """
    rho, delta = _rho_004(p), p["delta"]
    if p.get("form") == "printed":
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return float(ZCDPAccountant().epsilon(np.array(rho), delta))


def _rho_004(p: Mapping[str, Any]) -> float:
    """Compute the zCDP rho to which 004, section 5, converts the cell's total `epsilon`."""
    return float(p["epsilon"] ** 2 / (4 * math.log(1 / p["delta"])))


def regulariser_004(p: Mapping[str, Any], rows: Rows) -> float:
    """Compute the regulariser of 004, line 3 of both algorithms, for the smallest site.

    It is ``2.8 N c1 / ((e1 - e3) n)`` with ``e3 = 0.99 e1``; e1 is the epsilon of the share ``1 -
    split`` of a release's budget that is not for noise on the answer, and c1 is that of the loss
    times its weight.  Algorithm 1 divides the total among all rounds; Algorithm 2 among its tests
    and at most `positives` releases.  With `rho` = "004" the algorithm is the cell's own, with
    "004, Algorithm 1" it is Algorithm 1 in every case.
    """
    return _needed_004(p, len(rows.n), float(rows.n.min()))


def _needed_004(p: Mapping[str, Any], N: int, n: float) -> float:
    """Compute :func:`regulariser_004` for N sites, the smallest with n rows."""
    delta, whole, many = p["delta"], _rho_004(p), p["rounds"]
    if p["rho"] == "004" and p["method"] == "ipp_admm":
        many = p["positives"]
        whole /= 1.0 + IPPADMM.test_share**2  # the rest pays for the tests
    rho = whole / many * (1.0 - p.get("split", IPPADMM.options.split))
    e1 = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return 2.8 * N * 0.25 * p.get("C", 1.0) / ((1.0 - SHARE) * e1 * n)


def _price_002(ready: Prepared) -> tuple[Array, Array, Array]:
    """Return the parts of 002's (32) at a constant penalty, each (N, 1).

    They are the factor ``2 C / n``, the curvature term ``1.4 c1 / (rho/N + 2 eta V)``, and the
    logarithm by which 000's alpha exceeds the rate of its noise.
    """
    facts = ready.facts
    extra, c1 = 2.0 * ready.algorithm.penalty(1) * ready.graph.degree, facts.loss.curvature_bound
    bend = 2.0 * np.log1p(c1 / facts.strong_convexity_of(extra))
    return 2.0 * facts.C / facts.n, np.asarray(1.4 * c1 / (facts.mu + extra)), np.asarray(bend)


def noise_002(config: RunConfig, rows: Rows, total: float | tuple[float, ...]) -> Array:
    """Compute 000's alpha of each node for private ADMM as 002's Figure 5 accounts for it.

    That is DVP with the noise of 002's (18).  Every round releases, so (32) is summed over all of
    them, and the noise is set so that this sum is the total.

    Parameters
    ----------
    config : RunConfig
        The run, whose noise is to be set.
    rows : Rows
        Of N nodes.
    total : float or tuple of float
        One total for all nodes, which then get the same rate, that of the most expensive node; or
        a total for each node.

    Returns
    -------
    ndarray of shape (N,)

    Raises
    ------
    InvalidInput
        If the curvature terms of (32) alone cost more.
    """
    ready = prepare(config, rows.n, rows.d)
    facts, (scale, fixed, bend) = ready.facts, _price_002(ready)
    each = np.reshape(total, (-1, 1)) / (scale * config.rounds) - fixed
    # one total: the same rate for all nodes, that of the most expensive one
    rate = each
    if not isinstance(total, tuple):
        rate = np.min(each, keepdims=True)
    if np.min(rate) <= 0:
        raise InvalidInput(
            "alpha", total, "is less than the curvature terms of (32) cost", "raise alpha"
        )
    return np.asarray(rate * facts.C / facts.n + bend)[:, 0]


def claim_002(config: RunConfig, rows: Rows, ready: Prepared) -> float:
    """Compute the sum of (32) over all rounds for the noise of a run, the inverse of
    :func:`noise_002`.

    Parameters
    ----------
    config : RunConfig
        With the noise of every node.
    rows : Rows
        Of N nodes.
    ready : Prepared
        The prepared run of `config`.

    Returns
    -------
    float
        The largest sum of a node.
    """
    facts, (scale, fixed, bend) = ready.facts, _price_002(ready)
    assert isinstance(config.noise, tuple)
    rate = (np.array(config.noise)[:, None] - bend) * facts.n / facts.C
    return float(config.rounds * np.max(scale * (fixed + rate)))


def broken(ready: Prepared) -> str:
    """Describe the conditions of the method's theorem on convergence that a run violates, or ""."""
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
