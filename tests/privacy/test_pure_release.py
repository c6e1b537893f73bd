"""Pure noise on an answer: releases draw the law that simulations draw, and what 0.1 drew is
priced as what it was.
"""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from sottovoce import DurableLedger, PrivateClassifier
from sottovoce.cli import cli
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy import accountants, spherical
from sottovoce.privacy.events import ExactSphericalMechanism, SphericalMechanism, from_dict
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.privacy.spherical import ORDERS, epsilon_from_rdp

D, DELTA = 10, 1e-5


def _one(kind: type, s: float, relation: str = "replace-one"):
    return kind("test", relation, np.array([s]), np.ones(1), D)


def laplace_delta(epsilon: float, shifts: np.ndarray) -> float:
    """delta(epsilon) of independent unit Laplace noise under these shifts, by convolution of the
    exact losses.

    The loss of a coordinate of shift t has mass 1/2 at t, e^-t/2 at -t, and density e^{(l-t)/2}/4
    between.  Losses are rounded down, so that the delta is a lower bound.
    """
    step = 1e-4
    pmf, low = np.ones(1), 0
    for t in shifts:
        n = int(np.floor(t / step))
        edges = np.clip(np.arange(-n - 1, n + 2) * step, -t, t)
        part = np.diff(0.5 * np.exp((edges - t) / 2.0))
        part[0] += 0.5 * np.exp(-t)
        part[2 * n + 1] += 0.5  # t itself, rounded down to n steps
        pmf, low = np.convolve(pmf, part), low - n - 1
    losses = (low + np.arange(len(pmf))) * step
    return float(np.sum(pmf * np.maximum(0.0, 1.0 - np.exp(epsilon - losses))))


def test_laplace_delta_knows_one_coordinate() -> None:
    """One shift of 1: delta(eps) = 1 - e^{(eps - 1)/2}."""
    assert laplace_delta(0.5, np.array([1.0])) == pytest.approx(1 - np.exp(-0.25), rel=1e-3)


def test_what_0_1_printed_for_a_release_was_ten_times_too_small_in_delta() -> None:
    """Laplace noise of scale sqrt(d)/beta against the spherical price of the same row, at pure
    epsilon 1.
    """
    shifts = np.full(D, 1.0 / D)  # a shift of Euclidean norm 1/beta, the same in every coordinate
    printed = epsilon_from_rdp(ORDERS, spherical.spherical_rdp(ORDERS, D, 1.0), DELTA)
    assert laplace_delta(printed, shifts) > 5 * DELTA
    for name in ("zcdp", "rdp", "pld", "best"):
        now = float(
            accountants.make_accountant(name).epsilon_of_events(
                [_one(SphericalMechanism, 1.0)], DELTA
            )[0]
        )
        assert now >= printed * (1 - 1e-9)
        for some in (1, 2, 5, 10):
            spread = np.full(some, 1.0 / np.sqrt(some * D))
            assert laplace_delta(now, spread) <= DELTA, (name, some)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("name", ["pure", "zcdp", "rdp", "pld", "best", "rdp:8.0"])
@pytest.mark.parametrize("s", [0.05, 0.5, 3.0])
def test_old_rows_cost_at_least_what_either_law_costs(name: str, relation: str, s: float) -> None:
    """Upward only: never below the price of the spherical law, and pure prices as they were."""
    delta = 0.0 if name == "pure" else DELTA
    price = {
        kind: accountants.make_accountant(name).epsilon_of_events(
            [_one(kind, s, relation)] * 3, delta
        )
        for kind in (SphericalMechanism, ExactSphericalMechanism)
    }
    assert np.all(price[SphericalMechanism] >= price[ExactSphericalMechanism] * (1 - 1e-9))
    if name == "pure":
        assert price[SphericalMechanism] == price[ExactSphericalMechanism] == pytest.approx(3 * s)


def test_old_rows_are_read_and_say_what_they_are() -> None:
    row = _one(SphericalMechanism, 0.5).to_dict()
    assert row["event"] == "SphericalMechanism"
    assert "0.1" in from_dict(row).caution
    assert not from_dict(_one(ExactSphericalMechanism, 0.5).to_dict()).caution


@pytest.mark.filterwarnings("ignore:.* rows are longer than data_norm")
def test_a_release_and_a_simulation_write_the_same_row_and_draw_the_same_law() -> None:
    """Norms of both against Gamma(d), level 1e-6 each; two thirds and three halves of the scale
    are rejected.
    """
    samples, rate = 2000, 4.0
    w, fine = np.zeros((samples, 1, D)), np.full((samples, 1, 1), 1e-6)
    for noise in (KeyedNoise(5, range(samples), [0]), SystemNoise((samples, 1))):
        norms = (
            rate
            * np.linalg.norm(
                noise.add_spherical(w, np.full((samples, 1, 1), rate), fine, 1), axis=-1
            ).ravel()
        )
        assert stats.kstest(norms, stats.gamma(D).cdf).pvalue > 1e-6
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(norms * wrong, stats.gamma(D).cdf).pvalue < 1e-6
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, D - 1))
    y = np.where(X[:, 0] > 0, 1, -1)
    rows = []
    for state in (None, 0):
        ledger = Ledger(accountants.make_accountant("rdp:8.0"), 5.0, DELTA)
        knobs = {"epsilon": 1.0, "delta": None, "ledger": ledger, "random_state": state}
        PrivateClassifier("output", classes=[-1, 1], **knobs).fit(X, y)
        rows.append(ledger.to_list())
    assert rows[0] == rows[1]
    assert rows[0][0]["event"] == "ExactSphericalMechanism"


def test_a_ledger_on_disk_says_what_its_old_rows_cost(tmp_path) -> None:
    for kind, said in ((SphericalMechanism, 1), (ExactSphericalMechanism, 0)):
        path = tmp_path / kind.__name__
        with DurableLedger.create(path, epsilon=3.0, delta=DELTA, accountant="rdp") as ledger:
            ledger.record_event(_one(kind, 0.5))
            assert len(ledger.show()["cautions"]) == said
        shown = CliRunner().invoke(cli, ["ledger", "show", str(path)])
        assert ("version 0.1" in " ".join(shown.output.split())) == bool(said)
