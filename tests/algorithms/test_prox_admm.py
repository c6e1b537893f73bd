"""prox_admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestProxADMM(AlgorithmContract):
    method = "prox_admm"
    releases_in_ten = 10
    kind = "statistic"
