"""central: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestCentral(AlgorithmContract):
    method = "central"
    releases_in_ten = 1
