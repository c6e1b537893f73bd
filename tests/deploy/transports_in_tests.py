"""Every transport of the package, between sites and a hub in this process: a line in `DOORS`
tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sites_in_tests import Consortium

    from sottovoce.deploy.hub import Hub
    from sottovoce.deploy.transport import Transport

    Door = Callable[[str], Transport]
    """A new connection of a site, every time it is called: the site may have been restarted."""


@contextmanager
def in_one_process(sites: Consortium, hub: Hub, folder: Path) -> Iterator[Door]:
    from sottovoce.deploy.hub import LocalTransport

    yield lambda name: LocalTransport(hub, name, 30.0)


@contextmanager
def over_the_relay(sites: Consortium, hub: Hub, folder: Path) -> Iterator[Door]:
    pytest.importorskip("grpc")
    from relay_in_tests import certify, credentials, transport

    from sottovoce.deploy.relay import start_relay

    certify(folder, tuple(sites.keys))
    server, port = start_relay(hub, credentials(folder, "hub"), "127.0.0.1:0")
    with ExitStack() as stack:
        stack.callback(lambda: server.stop(0.2).wait())
        yield lambda name: stack.enter_context(transport(sites, folder, f"127.0.0.1:{port}", name))


@contextmanager
def by_tasks(sites: Consortium, hub: Hub, folder: Path) -> Iterator[Door]:
    from tasks_in_tests import carried

    from sottovoce.deploy.nvflare import tasks

    with pytest.MonkeyPatch.context() as patch, carried(sites, hub) as door:
        # or a thread that waits in vain would end after five seconds
        patch.setattr(tasks, "PATIENCE", 0.2)
        yield door


DOORS: dict[str, Callable[[Consortium, Hub, Path], AbstractContextManager[Door]]] = {
    "process": in_one_process,
    "relay": over_the_relay,
    "tasks": by_tasks,
}
