"""pp_admm: the contract of every method."""

from __future__ import annotations

from conformance import AlgorithmContract


class TestPPADMM(AlgorithmContract):
    method = "pp_admm"
    releases_in_ten = 10
    delta = 1e-5
    kind = "gaussian objective"
    loud = {"epsilon": 300.0, "rounds": 3}  # noqa: RUF012
    quiet = 0.1  # no budget with a delta is large enough for less
