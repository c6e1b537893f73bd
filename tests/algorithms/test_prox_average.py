"""prox_average: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestProxAverage(AlgorithmContract):
    method = "prox_average"
    releases_in_ten = 10
    kind = "statistic"
