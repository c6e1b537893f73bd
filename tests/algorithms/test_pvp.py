"""pvp: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestPVP(AlgorithmContract):
    method = "pvp"
    releases_in_ten = 10
    kind = "statistic"
