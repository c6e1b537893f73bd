"""central_gd: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestCentralGD(AlgorithmContract):
    method = "central_gd"
    releases_in_ten = 10
    kind = "statistic"
