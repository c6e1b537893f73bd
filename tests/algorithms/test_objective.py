"""objective: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestObjective(AlgorithmContract):
    method = "objective"
    releases_in_ten = 1
