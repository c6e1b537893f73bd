"""Fixtures for all tests."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores: more threads of each would only wait
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from problems import make_rows

from sottovoce.data.rows import Rows


@pytest.fixture
def rows() -> Rows:
    return make_rows([60, 45, 80, 60, 51], 4)
