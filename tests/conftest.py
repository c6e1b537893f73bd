"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # the workers share the cores: more threads of each would only wait
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from problems import make_rows

from sottovoce.data.rows import Rows


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than cores: sites in tests wait for each other and for deadlines, where no
    core works.
    """
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No look for garbage among thousands of tests and hundreds of modules while they are found,
    nor later: they stay.

    What tests make themselves is collected as ever.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def rows() -> Rows:
    return make_rows([60, 45, 80, 60, 51], 4)
