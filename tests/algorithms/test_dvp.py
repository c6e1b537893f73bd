"""dvp: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestDVP(AlgorithmContract):
    method = "dvp"
    releases_in_ten = 10
