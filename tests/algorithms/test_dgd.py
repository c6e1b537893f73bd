"""dgd: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestDGD(AlgorithmContract):
    method = "dgd"
    releases_in_ten = 10
    kind = "statistic"
