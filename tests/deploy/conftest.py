"""Fixtures: three sites that have agreed on a plan, the hub between them, and every transport to
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from transports_in_tests import DOORS

if TYPE_CHECKING:
    from sites_in_tests import Consortium
    from transports_in_tests import Door

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


@pytest.fixture(params=DOORS)
def door(
    request: pytest.FixtureRequest, sites: Consortium, hub: Hub, tmp_path: Path
) -> Iterator[Door]:
    with DOORS[request.param](sites, hub, tmp_path / "carrier") as opened:
        yield opened
