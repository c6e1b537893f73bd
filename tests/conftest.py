"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # the workers share the cores: more threads of each would only wait
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from problems import make_rows

from sottovoce.data.rows import Rows

HERE = Path(__file__).parent


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


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Workers begin with different folders, so that each finds bytecode that others have written:
    in a fresh copy all of them would compile all modules.
    """
    report = yield
    given = getattr(collector.config, "workerinput", None)
    if given is not None and isinstance(collector, pytest.Dir) and collector.path == HERE:
        first = len(report.result) * int(given["workerid"][2:]) // given["workercount"]
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All workers have the tests in one order, by folder and module."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parts)


@pytest.fixture
def rows() -> Rows:
    return make_rows([60, 45, 80, 60, 51], 4)
