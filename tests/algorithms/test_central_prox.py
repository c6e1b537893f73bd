"""central_prox: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestCentralProx(AlgorithmContract):
    method = "central_prox"
    releases_in_ten = 10
    kind = "statistic"
