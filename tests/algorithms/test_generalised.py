"""generalised: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestGeneralised(AlgorithmContract):
    method = "generalised"
    releases_in_ten = 1
