"""mr_admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestMRADMM(AlgorithmContract):
    method = "mr_admm"
    releases_in_ten = 5
