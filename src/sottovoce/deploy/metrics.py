"""What a hub tells a monitoring system: ``/healthz``, and ``/metrics`` in Prometheus' text format.

``sottovoce hub run --metrics`` serves both, by default for this machine alone.  Nothing in them is
a data value, noise or a number of rows.  When messages come depends on rows, so the times are of
the last request of a site, which repeats one every few seconds while it waits.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from ..util.typing import Any
from .monitor import BoundedServer, Reply, serve_pages
from .watch import ALARMS

METRICS = "127.0.0.1:8445"
"""The address that messages give as an example."""
CONNECTED = 60.0
"""Seconds after its last request for which a site counts as connected."""
FULL = 2**16
"""A disk with fewer free bytes is called full: a message would not go into the log."""
_FRESH = 1.0
"""Seconds for which a state is told again: a flood of requests costs the hub nothing."""
_TEXT = "text/plain; version=0.0.4"
SERVING = ("serving", "waiting", "idle", "over")
"""States in which a hub is well: nothing that a restart or a person could mend."""

Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


class Counts:
    """What a process has counted since it began; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def add(self, what: str) -> None:
        """Count one more of `what`."""
        with self._lock:
            self._counts[what] += 1

    def of(self, what: str) -> int:
        """Return how many of `what` were counted."""
        with self._lock:
            return self._counts[what]


def health_of(status: Mapping[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Return the state of a hub in plain data: what it does, and for which sites it waits.

    Parameters
    ----------
    status : mapping or None
        Of :meth:`sottovoce.deploy.watch.Watch.status_with_times`; None for a hub without a plan.
    folder : Path
        The hub's, whose disk is looked at.

    Returns
    -------
    dict
        ``state`` is one of :data:`SERVING`, or "disk full", "no descriptors", "not written".
    """
    told: dict[str, Any] = {"state": "idle", "waits_for": [], "alarms": []}
    kinds: list[str] = []
    if status is not None:
        waits = {name for site in status["sites"] for name in site["waits_for"]}
        kinds = [one["alarm"] for one in status["alarms"]]
        told = {
            "state": "serving",
            "run": status["run"],
            "plan": status["plan"],
            "waits_for": sorted(waits),
            "alarms": sorted(set(kinds)),
        }
        if waits:
            told["state"] = "waiting"
        if status["ended"] or all(site["left"] is not None for site in status["sites"]):
            told["state"] = "over"
    if "exhausted" in kinds:
        told["state"] = "no descriptors"
    if "not written" in kinds:
        told["state"] = "not written"
    if shutil.disk_usage(folder).free < FULL:
        told["state"] = "disk full"
    return told


def prometheus_text(metrics: Iterable[tuple[str, str, str, Iterable[Sample]]]) -> str:
    """Return metrics in Prometheus' text format.

    Parameters
    ----------
    metrics : iterable of (name, type, help, samples)
        The name without the prefix ``sottovoce_hub_``; a metric without samples is left out.

    Returns
    -------
    str
    """
    lines = []
    for name, kind, about, samples in metrics:
        found = [
            f"sottovoce_hub_{name}{_labels_text(labels)} {value:.17g}" for labels, value in samples
        ]
        if found:
            lines += [f"# HELP sottovoce_hub_{name} {about}", f"# TYPE sottovoce_hub_{name} {kind}"]
            lines += found
    return "\n".join(lines) + "\n"


def _labels_text(labels: Mapping[str, str]) -> str:
    """Return labels in braces, escaped; nothing for none."""
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def metrics_of(
    status: Mapping[str, Any] | None, folder: Path, counts: Counts, queued: int, now: float
) -> str:
    """Return the metrics of a hub.

    Parameters
    ----------
    status : mapping or None
        Of the run that is served: :meth:`sottovoce.deploy.watch.Watch.status_for_metrics`.
    folder : Path
        The hub's.
    counts : Counts
        ``refused`` and ``failed`` requests, and plans that were ``done`` or ``set aside``.
    queued : int
        Number of plans that wait for this one's end.
    now : float
        Seconds since 1970.

    Returns
    -------
    str
        Prometheus' text format.
    """
    health = health_of(status, folder)
    free = shutil.disk_usage(folder).free
    metrics: list[tuple[str, str, str, list[Sample]]] = [
        ("well", "gauge", "1 unless the hub cannot work.", [({}, health["state"] in SERVING)]),
        ("disk_free_bytes", "gauge", "Free bytes of the hub's disk.", [({}, free)]),
        ("queue_plans", "gauge", "Plans that wait in the queue.", [({}, queued)]),
        (
            "requests_refused_total",
            "counter",
            "Requests that were refused since the start.",
            [({}, counts.of("refused"))],
        ),
        (
            "requests_failed_total",
            "counter",
            "Requests not answered since the start, by an error of the hub.",
            [({}, counts.of("failed"))],
        ),
        (
            "plans_over_total",
            "counter",
            "Plans of the queue that came to an end since the start.",
            [({"end": end}, counts.of(end)) for end in ("done", "set aside")],
        ),
    ]
    if status is not None:
        metrics += _metrics_of_run(status, now)
    return prometheus_text(metrics)


def _metrics_of_run(
    status: Mapping[str, Any], now: float
) -> list[tuple[str, str, str, list[Sample]]]:
    """Return the metrics of the run that is served, whose state is `status`."""
    run = {"run": str(status["run"])}
    sites = status["sites"]
    heard = {
        site["site"]: datetime.fromisoformat(site["last_heard"]).timestamp()
        for site in sites
        if site["last_heard"] is not None
    }
    waits = {name for site in sites for name in site["waits_for"]}
    alarms = Counter(dict.fromkeys(ALARMS, 0))
    alarms.update(one["alarm"] for one in status["alarms"])
    connected = sum(now - at < CONNECTED for at in heard.values())
    left = sum(site["left"] is not None for site in sites)
    # the greeting counts as round 0, and the last model as one more than the plan has
    done = min(max(0, status["round"]), status["rounds"])
    return [
        ("rounds_done", "gauge", "Rounds that all sites have ended.", [(run, done)]),
        ("rounds_planned", "gauge", "Rounds of the plan.", [(run, status["rounds"])]),
        ("sites", "gauge", "Sites of the plan.", [(run, len(sites))]),
        ("sites_connected", "gauge", "Sites heard within a minute.", [(run, connected)]),
        ("sites_left", "gauge", "Sites that have left the run.", [(run, left)]),
        (
            "site_heard_timestamp_seconds",
            "gauge",
            "When the last request of a site came.",
            [({"site": name}, at) for name, at in heard.items()],
        ),
        (
            "site_awaited",
            "gauge",
            "1 for a site that others wait for.",
            [({"site": site["site"]}, site["site"] in waits) for site in sites],
        ),
        ("messages", "gauge", "Messages of the run in the log.", [(run, status["stored"][0])]),
        ("message_bytes", "gauge", "Their bytes.", [(run, status["stored"][1])]),
        (
            "alarms",
            "gauge",
            "Alarms of `sottovoce hub status` by kind.",
            [({"alarm": kind}, count) for kind, count in alarms.items()],
        ),
        (
            "certificate_days_left",
            "gauge",
            "Days until a certificate ends.",
            [({"file": file}, days) for file, days in status["certificate_days"].items()],
        ),
    ]


def serve_metrics(
    look: Callable[[], tuple[Mapping[str, Any] | None, int]],
    folder: Path,
    counts: Counts,
    address: str,
) -> tuple[BoundedServer, str]:
    """Serve ``/healthz`` and ``/metrics`` from a thread.

    The state is computed at most once a second, however many ask.

    Parameters
    ----------
    look : callable
        Returns the state of the run that is served, None without one, and how many plans wait.
    folder : Path
        The hub's.
    counts : Counts
    address : str
        ``HOST:PORT``.

    Returns
    -------
    BoundedServer
        Stop it with ``shutdown`` and ``server_close``.
    str
        Its address, as a URL.
    """
    lock = threading.Lock()
    # by path: when it was made, and the reply
    kept: dict[str, tuple[float, Reply]] = {}

    def fresh(path: str, make: Callable[[], Reply]) -> Reply:
        """Return the kept reply, or a new one if that is too old."""
        with lock:
            now = time.monotonic()
            if path not in kept or not 0.0 <= now - kept[path][0] < _FRESH:
                kept[path] = (now, make())
            return kept[path][1]

    def health() -> Reply:
        told = health_of(look()[0], folder)
        code = 200
        if told["state"] not in SERVING:
            code = 503
        return Reply(code, "application/json", json.dumps(told) + "\n")

    def metrics() -> Reply:
        status, queued = look()
        return Reply(200, _TEXT, metrics_of(status, folder, counts, queued, time.time()))

    pages = {
        "/healthz": lambda: fresh("/healthz", health),
        "/metrics": lambda: fresh("/metrics", metrics),
    }
    return serve_pages(pages, address, "metrics")
