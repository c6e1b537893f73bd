"""central_sgd: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestCentralSGD(AlgorithmContract):
    method = "central_sgd"
    releases_in_ten = 10
    kind = "pass"
