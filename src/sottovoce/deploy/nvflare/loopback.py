"""A hub and its sites as NVFlare processes of this machine, for ``sottovoce demo`` and benches.

A *federation* is a set of startup kits whose processes run; :func:`run_loopback` makes one for a
plan, runs it to its end and stops all processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Self

from ..demonstration import ONE_THREAD, Demonstration, find_free_port
from ..hublog import HubLog
from ..plan_file import read_plan_file
from . import layout
from .provision import SUPERVISOR, describe_project, make_startup_kits
from .supervisor import Supervisor

SERVER = "localhost"
"""Name of the server, also of its kit's folder."""
# NVFlare's programs of the server and of a client.
_APPS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "client": "nvflare.private.fed.app.client.client_train",
}


@dataclass
class Federation:
    """The processes of a provisioned federation; a context manager that leaves none behind.

    NVFlare starts a process for each job in a session of its own, which may outlive a killed
    parent.  All have the folder of their kit in their arguments, and are found by it in ``/proc``.
    A process that ends is started again.

    Parameters
    ----------
    kits : path
        Result of :func:`sottovoce.deploy.nvflare.provision.make_startup_kits`.
    names : tuple of str
        The sites whose processes are started.
    environment : mapping
        Variables in addition to this process's environment.
    server : bool
        Whether to start the hub, too.
    """

    kits: Path
    names: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    server: bool = True
    _parents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _over: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            for name in self._process_names:
                self._start_process(name)
            self._watch = threading.Thread(
                target=self._restart_ended_processes, name="watchdog", daemon=True
            )
            self._watch.start()
        except BaseException:
            self.stop_all_processes()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all_processes()

    @property
    def _process_names(self) -> tuple[str, ...]:
        """Names of the kits whose processes are started here."""
        if not self.server:
            return self.names
        return (SERVER, *self.names)

    def _start_process(self, name: str) -> None:
        """Start the process of the hub or a site, with its output in ``console.txt``."""
        kind = "client"
        if name == SERVER:
            kind = "server"
        kit = self.kits / name
        (kit / "transfer").mkdir(exist_ok=True)
        settings = ["secure_train=true", "org=sottovoce", "config_folder=config"]
        if kind == "client":
            settings.append(f"uid={name}")
        # as the script of the startup kit does
        app = ["-u", "-m", _APPS[kind]]
        app += ["-m", str(kit), "-s", f"fed_{kind}.json", "--set", *settings]
        environment = os.environ | ONE_THREAD | dict(self.environment)
        with (kit / "console.txt").open("ab") as out:
            self._parents[name] = subprocess.Popen(
                [sys.executable, *app],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=kit,
                start_new_session=True,
            )

    def _restart_ended_processes(self) -> None:
        """Restart ended processes, as a startup kit's watchdog or systemd does at a real site."""
        while not self._over.wait(0.5):
            with self._lock:
                for name, process in list(self._parents.items()):
                    if process.poll() is not None and not self._over.is_set():
                        self._start_process(name)

    def process_numbers_of(self, name: str | None = None) -> list[int]:
        """Return process ids of the hub or a site, jobs included; without a name, of all."""
        names = self._process_names
        if name is not None:
            names = (name,)
        kits = {os.fsencode(self.kits / one) for one in names}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                # an error means that the process has ended meanwhile
                with suppress(OSError):
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                    if not kits.isdisjoint(arguments):
                        found.append(int(entry.name))
        return sorted(found)

    def kill_processes_of(self, name: str, only: int | None = None) -> None:
        """Kill all processes of a site or the hub (SIGKILL), or the one with the id `only`."""
        with self._lock:
            numbers = [only] if only is not None else self.process_numbers_of(name)
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            parent = self._parents[name]
        if only is None or only == parent.pid:
            parent.wait()

    def stop_all_processes(self, seconds: float = 5.0) -> None:
        """End every process, by SIGTERM for `seconds` and then by SIGKILL, and wait for the end."""
        self._over.set()
        if self._watch is not None:
            self._watch.join()
        until = time.monotonic() + seconds
        with self._lock:
            while numbers := self.process_numbers_of():
                for number in numbers:
                    how = signal.SIGKILL
                    if time.monotonic() < until:
                        how = signal.SIGTERM
                    with suppress(ProcessLookupError):
                        os.kill(number, how)
                for process in self._parents.values():
                    # An ended process stays in /proc until its parent has asked for its exit code.
                    process.poll()
                time.sleep(0.1)
            for process in self._parents.values():
                process.wait()


@dataclass(frozen=True)
class Loopback:
    """Result of a run on this machine.

    Parameters
    ----------
    seconds : tuple of float
        Duration of each round, from the last message of the round before to its own.
    jobs : int
        Number of jobs: more than one after a crash.
    """

    seconds: tuple[float, ...]
    jobs: int


def run_loopback(
    hub: str | Path,
    sites: Mapping[str, Path],
    folder: str | Path,
    *,
    tick: Callable[[Federation, int], None] = lambda federation, complete: None,
    task_seconds: float = 30.0,
) -> Loopback:
    """Run a plan over NVFlare on this machine, and leave no process behind.

    It makes startup kits, starts hub and sites, submits the run, and waits for its end.

    Parameters
    ----------
    hub : path
        The hub's folder, with the plan; the log is made there.
    sites : mapping of name to path
        Each site's settings.
    folder : path
        Folder for kits and jobs.
    tick : callable ``(federation, rounds)``
        Called some times a second, with the number of complete rounds.
    task_seconds : float
        Seconds without a result after which a site is lost.

    Returns
    -------
    Loopback
    """
    hub, folder = Path(hub).resolve(), Path(folder).resolve()
    plan = read_plan_file(hub / layout.PLAN_FILE)
    made = describe_project(plan, SERVER, find_free_port(), store=folder / "store")
    kits = make_startup_kits(made, folder / "federation")
    (kits / SERVER / "local" / layout.HUB_FOLDER).symlink_to(hub)
    for name, path in sites.items():
        (kits / name / "local" / layout.SITE_FILE).symlink_to(Path(path).resolve())
    supervisor = Supervisor(kits / SUPERVISOR, hub, task_seconds=task_seconds)
    # number of complete rounds, and when it was first seen
    times: list[tuple[int, float]] = []
    with HubLog(hub / layout.HUB_LOG) as log, Federation(kits, plan.names) as federation:

        def look() -> None:
            """Note when a round became complete at all sites, and call `tick`."""
            complete = max(0, min(log.last(plan.run, name) for name in plan.names))
            known = times[-1][0] if times else 0
            if complete > known:
                times.append((complete, time.monotonic()))
            tick(federation, complete)

        supervisor.run(look)
    # If several rounds ended between two looks, each gets an equal part of the time.
    seconds = [
        (after - before) / (k - j)
        for (j, before), (k, after) in pairwise(times)
        for _ in range(k - j)
    ]
    return Loopback(tuple(seconds), len(supervisor.jobs))


def run_demonstration(demo: Demonstration, tick: Callable[[], None]) -> None:
    """Run a demonstration over NVFlare; calls `tick` some times a second."""
    sites = {name: demo.settings_file_of(name) for name in demo.plan.names}
    run_loopback(demo.hub, sites, demo.folder / "nvflare", tick=lambda federation, complete: tick())
