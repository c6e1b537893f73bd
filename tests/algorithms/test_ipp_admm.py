"""ipp_admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestIPPADMM(AlgorithmContract):
    method = "ipp_admm"
    releases_in_ten = 10
    delta = 1e-5
    kind = "gate"
    loud = {"epsilon": 300.0, "rounds": 3}  # noqa: RUF012
    part = 2.0  # the first round pays for all tests
    quiet = 0.1  # no budget with a delta is large enough for less
