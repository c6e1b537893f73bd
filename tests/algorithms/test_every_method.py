"""No method without its contract, its parent, and a test of the law of its noise."""

from __future__ import annotations

import importlib

import parents
import pytest
from conformance import AlgorithmContract

from sottovoce.algorithms import REGISTRY
from sottovoce.errors import InvalidInput
from sottovoce.runs.config import RunConfig


def test_every_method_has_a_parent() -> None:
    assert set(parents.PARENTS) == set(REGISTRY)


@pytest.mark.parametrize("method", REGISTRY)
def test_every_method_has_its_contract_and_a_test_of_its_noise(method: str) -> None:
    found = [
        value
        for value in vars(importlib.import_module(f"test_{method}")).values()
        if isinstance(value, type) and issubclass(value, AlgorithmContract) and getattr(value, "method", "") == method
    ]
    assert len(found) == 1
    own = {name for name in vars(found[0]) if "law_of_the_event" in name}  # beside those of the contract
    assert found[0].kind in ("objective", "gaussian objective", "statistic", "sum") or own


@pytest.mark.parametrize("method", ["dvp", "r_admm", "mr_admm", "objective", "generalised"])
def test_a_printed_form_has_no_other_noise_than_its_own(method: str) -> None:
    with pytest.raises(InvalidInput, match=f"^law='gaussian': the printed {method} has its own, spherical; "):
        RunConfig(method=method, form="printed", law="gaussian", epsilon=1.0, delta=1e-5)
