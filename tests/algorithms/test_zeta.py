"""The zeta of 000's and 001's proofs, half of the listing's: what it costs, what it draws, and
what it is not.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from problems import make_rows
from scipy.optimize import brentq
from scipy.stats import kstest

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import simulate

N, D, C = 300, 6, 40.0
SIZES = [N] * 4
SHARED = {
    "form": "printed",
    "epsilon": math.inf,
    "rounds": 1,
    "graph": "path",
    "C": C,
    "rho": 0.4,
    "eta": 0.5,
}
"""A path: its ends have one neighbour, the others two."""
BRANCH = 2.0 * math.log1p(0.25 * C / (N * (0.4 / 4 + 2.0 * 0.5)))
"""The alpha at which alpha-hat is 0 at a node with one neighbour."""


def configured(alpha: float, zeta: str, **more: object) -> RunConfig:
    return RunConfig.from_dict({"method": "dvp", **SHARED, "noise": alpha, "zeta": zeta, **more})  # type: ignore[arg-type]


def releases(alpha: float, zeta: str) -> tuple[np.ndarray, np.ndarray]:
    """Noise rates and proved prices of one release, a node each."""
    ready = prepare(configured(alpha, zeta), np.full((4, 1), float(N)), D)
    (event,) = ready.plan_ledger().rows
    return np.ravel(event.beta), np.ravel(PureAccountant().price_of_event(event))


@pytest.mark.parametrize("alpha", [0.1 * BRANCH, 0.9 * BRANCH, 1.1 * BRANCH, 1.0, 3.0])
def test_the_claim_of_a_release_holds_at_the_proofs_zeta_in_both_branches(alpha: float) -> None:
    listed, dear = releases(alpha, "listing")
    halved, price = releases(alpha, "proof")
    np.testing.assert_allclose(halved, listed / 2.0, rtol=1e-12)
    assert np.all(price <= alpha * (1.0 + 1e-9))
    if alpha >= 1.0:
        assert np.all(dear > 1.3 * alpha)  # the claim of the listing is false


@pytest.mark.parametrize("alpha", [0.5 * BRANCH, 1.2 * BRANCH])
def test_no_other_alpha_of_the_listing_has_the_proofs_noise_at_nodes_of_different_degree(
    alpha: float,
) -> None:
    """So the proof's curve is not the listing's, moved."""
    wanted, _ = releases(alpha, "proof")

    def apart(other: float) -> float:
        return float(releases(other, "listing")[0][0] - wanted[0])

    # agrees at the node at the end
    moved = brentq(apart, 1.0001 * BRANCH, 5.0 * BRANCH, xtol=1e-14)
    at_ends, inside = releases(moved, "listing")[0][[0, 1]]
    assert at_ends == pytest.approx(wanted[0], rel=1e-6)
    assert abs(inside / wanted[1] - 1.0) > 0.05


def drawn(zeta: str, rows: Rows, alpha: float, replicates: int) -> np.ndarray:
    """Norms of the noise b in the objectives of the first round, from what an end of the path
    sent.
    """
    w = simulate(configured(alpha, zeta, seed=3, replicates=replicates), rows).models[:, 0]
    signed, curvature = rows.signed[0, :N], 0.4 / 4 + 2.0 * 0.5
    slopes = -1.0 / (1.0 + np.exp(w @ signed.T))
    return np.linalg.norm(slopes @ signed + N / C * curvature * w, axis=1)


@pytest.mark.parametrize(("zeta", "share"), [("listing", 1.0), ("proof", 0.5)])
def test_noise_has_the_requested_rate(zeta: str, share: float) -> None:
    """Errs once in a thousand; three quarters or one and a half times the rate are rejected."""
    alpha = 1.0
    norms = drawn(zeta, make_rows(SIZES, D), alpha, 400)
    rate = share * (alpha - BRANCH)
    for factor, right in ((1.0, True), (0.75, False), (1.5, False)):
        assert (kstest(norms * rate * factor, "gamma", args=(D,)).pvalue > 1e-3) == right


def test_only_the_last_step_of_pvp_has_a_zeta() -> None:
    rows = make_rows(SIZES, D)

    def sent(zeta: str) -> list[np.ndarray]:
        seen: list[np.ndarray] = []
        simulate(
            configured(2.0, zeta, method="pvp", rounds=4, seed=1),
            rows,
            observers=[lambda k, s: seen.append(s.f.copy())],
        )
        return seen

    listed, proof = sent("listing"), sent("proof")
    assert all(np.array_equal(a, b) for a, b in zip(listed[:-1], proof[:-1], strict=True))
    assert not np.allclose(listed[-1], proof[-1])


def test_zeta_is_of_printed_forms_and_is_recorded_only_where_it_is_not_the_listings() -> None:
    assert "zeta" not in configured(1.0, "listing").to_dict()
    plain = configured(1.0, "proof").to_dict()
    assert plain["zeta"] == "proof" and RunConfig.from_dict(plain) == configured(1.0, "proof")
    for wrong in ({"form": "corrected"}, {"method": "m_admm"}, {"zeta": "half"}):
        with pytest.raises(InvalidInput, match=r"^zeta="):
            RunConfig.from_dict(
                {"method": "dvp", "form": "printed", "zeta": "proof", "noise": 1.0, **wrong}
            )  # type: ignore[arg-type]
