"""Fixtures for all tests."""

from __future__ import annotations

import pytest
from problems import make_rows

from sottovoce.data.rows import Rows


@pytest.fixture
def rows() -> Rows:
    return make_rows([60, 45, 80, 60, 51], 4)
