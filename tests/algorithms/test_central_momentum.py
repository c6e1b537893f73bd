"""central_momentum: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestCentralMomentum(AlgorithmContract):
    method = "central_momentum"
    releases_in_ten = 10
    kind = "statistic"
