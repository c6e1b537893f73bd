"""admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestADMM(AlgorithmContract):
    method = "admm"
    releases_in_ten = 10
