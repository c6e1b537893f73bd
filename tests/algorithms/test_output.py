"""output: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestOutput(AlgorithmContract):
    method = "output"
    releases_in_ten = 1
    kind = "statistic"
