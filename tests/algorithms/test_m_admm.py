"""m_admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestMADMM(AlgorithmContract):
    method = "m_admm"
    releases_in_ten = 10
