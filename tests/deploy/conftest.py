"""Fixtures: three sites that have agreed on a plan, and the hub between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sites_in_tests import Consortium

    from sottovoce.deploy.hub import Hub


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    pytest.importorskip("cryptography")
    from sites_in_tests import consortium

    return consortium(tmp_path / "sites")


@pytest.fixture
def hub(sites: Consortium, tmp_path: Path) -> Iterator[Hub]:
    from sottovoce.deploy.hub import Hub
    from sottovoce.deploy.hublog import HubLog

    with HubLog(tmp_path / "hub.log") as log:
        yield Hub(sites.plan, log)
