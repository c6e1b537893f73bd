"""What the tests of sums between sites share: five sites, a hub with little patience, and who
may be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sites_in_tests import Consortium, Stop, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.session import Finished
from sottovoce.deploy.sums.roster import Attempt
from sottovoce.deploy.transport import Transport
from sottovoce.deploy.waits import Waits
from sottovoce.errors import SottovoceError

NAMES = ("north", "east", "south", "west", "centre")
SIZES = (60, 45, 80, 50, 40)


def summed(folder: Path, **knobs: Any) -> Consortium:
    """Five sites of a plan of sums: K = 4, t = 1."""
    return consortium(folder, NAMES, SIZES, **({"method": "sum_momentum", "delta": 1e-5} | knobs))


@contextmanager
def hub_of(sites: Consortium, path: Path, patience: float = 20.0, **more: Any) -> Iterator[Hub]:
    with HubLog(path) as log:
        yield Hub(sites.plan, log, Waits(patience, patience), **more)


class Lost(LocalTransport):
    """A site that stops for good in one exchange, before or after its message got there."""

    def __init__(self, hub: Hub, site: str, round: int, after: bool = False) -> None:
        super().__init__(hub, site, 30.0)
        self._last, self._after, self.stopped = round, after, threading.Event()

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        if round == self._last:
            if self._after:
                self._hub.exchange(self._site, round, message, 0.0)
            self.stopped.set()
            raise Stop
        return super().exchange(round, message)


def run(
    sites: Consortium, hub: Hub, door: Callable[[str], Transport | None] = lambda name: None
) -> dict[str, Finished | BaseException]:
    """What becomes of every site; `door` may give some another way to the hub."""

    def one(name: str) -> Finished | BaseException:
        transport = door(name)
        try:
            return sites.run_site(
                name, LocalTransport(hub, name, 30.0) if transport is None else transport
            )
        except (SottovoceError, Stop, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(sites.plan.names)) as pool:
        return dict(zip(sites.plan.names, pool.map(one, sites.plan.names), strict=True))


def twin(sites: Consortium, attempts: list[Attempt]) -> dict[str, np.ndarray]:
    """The models of the same run in one process, with the same sites lost at the same attempts."""
    names = sites.plan.names
    told = [([names.index(name) for name in one.members], one.opened) for one in attempts]
    made = run_sites(sites.plan.config, sites.rows, attempts=told)
    algorithms = [
        sites.plan.stages[0].prepared.algorithm.method_of_node(i) for i in range(len(names))
    ]
    return {name: algorithms[i].model(made[i][0].state) for i, name in enumerate(names)}


class Background:
    """Sites that run in threads while a test does something else."""

    def __init__(self, sites: Consortium, hub: Hub, names: tuple[str, ...]) -> None:
        self.found: dict[str, Finished | BaseException] = {}
        self._threads = [
            threading.Thread(target=self._one, args=(sites, hub, name)) for name in names
        ]
        for thread in self._threads:
            thread.start()

    def _one(self, sites: Consortium, hub: Hub, name: str) -> None:
        try:
            self.found[name] = sites.run_site(name, LocalTransport(hub, name, 120.0))
        except SottovoceError as error:
            self.found[name] = error

    def join(self) -> dict[str, Finished | BaseException]:
        for thread in self._threads:
            thread.join()
        return self.found
