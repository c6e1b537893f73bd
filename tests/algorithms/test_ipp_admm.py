"""ipp_admm: the contract of every method, and what is particular to a gate."""

from __future__ import annotations

import math

import numpy as np
from conformance import AlgorithmContract

from sottovoce.data.rows import Rows
from sottovoce.privacy.accountants import RDPAccountant
from sottovoce.privacy.events import GatedRelease
from sottovoce.simulate import simulate


class TestIPPADMM(AlgorithmContract):
    method = "ipp_admm"
    releases_in_ten = 10
    delta = 1e-5
    kind = "gate"
    part = 2.0  # the first round pays for all tests

    def test_noise_off_equals_the_non_private_parent(self, rows: Rows) -> None:
        """Without noise every round passes the gate: consensus ADMM, bit by bit."""
        quiet = simulate(self.make(epsilon=math.inf), rows)
        parent = simulate(self.make(method="admm", epsilon=math.inf, delta=None), rows)
        assert np.array_equal(quiet.models, parent.models)

    def test_no_more_is_sent_than_was_paid_for(self, rows: Rows) -> None:
        for positives, threshold in ((3, 0.0), (3, 50.0), (20, 0.0)):
            config = self.make(positives=positives, threshold=threshold, epsilon=100.0, replicates=4, rounds=12)
            recorder, _, _, ledger = self.spied(config, rows)
            sent = np.array([answer[..., -1] for _, answer in recorder.asked])
            assert set(np.unique(sent)) <= {0.0, 1.0}
            assert np.all(sent.sum(axis=0) <= positives)
            assert (sent.sum() > 0) == (threshold == 0.0)
            priced = [event.shift().max() > 0 for event in ledger.rows if isinstance(event, GatedRelease)]
            assert priced == [k < positives for k in range(12)]
            assert [event.tests().max() > 0 for event in ledger.rows] == [True] + [False] * 11  # type: ignore[attr-defined]

    def test_the_gate_costs_its_tests_and_its_releases(self, rows: Rows) -> None:
        recorder, _, _, ledger = self.spied(self.make(positives=4), rows)
        event = ledger.rows[0]
        assert isinstance(event, GatedRelease)
        mu, tests = event.shift(), event.tests()
        a, curve = np.array([2.0, 8.0]), RDPAccountant()
        curve._orders = (2.0, 8.0)
        spent = curve.nothing()
        for row in ledger.rows:
            spent = curve.add(spent, row)
        expected = 4 * a * mu[0] ** 2 / 2 + np.minimum(tests[0], a * tests[0] ** 2 / 2)
        np.testing.assert_allclose(spent[0, 0], expected)
        assert len(recorder.asked) == 10
