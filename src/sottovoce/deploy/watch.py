"""The state of a run at its hub: who is where, who waits for whom since when, and alarms.

It is shown by ``sottovoce hub status``, by the hub's web page (:mod:`sottovoce.deploy.monitor`) and
on the hub's console.

All times are those at which the hub got a request or a message.  Nothing is asked of a site, and
nothing about rows is known here.  The process that serves a run keeps the times in ``hub.seen``
beside its log, so that another process can show them and they outlive a restart.  The protocol does
not depend on them.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..errors import Exhausted, NotWritten, SottovoceError
from ..util import files
from ..util.pages import Column, Table, render_template
from ..util.typing import Any
from . import certificates
from .hub import Hub
from .report import describe_progress
from .requests import request_and_reply_sizes
from .strict import parse_json

SEEN = "hub.seen"
"""File of the times, in the hub's folder."""
ALIVE = 15.0
"""Seconds without a write to :data:`SEEN` after which the process that serves the run counts as
stopped.
"""
STALLED = 120.0
"""Seconds that a round may take before there is an alarm, or ten times its usual duration if that
is more.
"""
ALARMS = (
    "not running",
    "declined",
    "stalled",
    "disk",
    "not written",
    "exhausted",
    "certificate",
)
"""The kinds of alarms."""
SOON = 30
"""Days before a certificate's expiry from which on there is an alarm."""
_SPARE = 2**28
"""Bytes that the disk should have free in addition to what the run may still write."""
_KEPT = 21
"""Number of kept ends of rounds: the duration of a round is the mean of the last twenty."""
_EVERY = 2.0
"""Seconds between two writes of :data:`SEEN`."""
_LARGEST = 2**20
"""The most bytes of :data:`SEEN`."""


class Watch:
    """The hub's observations of a run, as plain data.

    Parameters
    ----------
    hub : Hub
    folder : path
        The hub's folder.
    clock : callable
        Returns the time in seconds since 1970.
    """

    def __init__(self, hub: Hub, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._hub = hub
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._wrote = 0.0
        seen = _read_kept_times(folder, hub.plan.digest)
        # By site: time of its last request; round and time of its last message.
        self._heard: dict[str, float] = dict(seen.get("heard", {}))
        self._rounds: dict[str, int] = {
            name: int(one[0]) for name, one in seen.get("said", {}).items()
        }
        self._said: dict[str, float] = {
            name: float(one[1]) for name, one in seen.get("said", {}).items()
        }
        # round and time of the last ends of rounds, oldest first
        self._ends: deque[tuple[int, float]] = deque(map(tuple, seen.get("ends", [])), _KEPT)
        # when a process last served the run
        self._served: float | None = seen.get("at")
        # why the times could not be written the last time; None if they could
        self._not_written: str | None = None

    def note_request(self, site: str) -> None:
        """Note that a request of `site` has come now; may be called from any thread."""
        with self._lock:
            self._heard[site] = self._clock()

    def note_new_messages(self, *, now: bool = False) -> None:
        """Note which sites have sent a message since the last call; for the serving process.

        Times are written to the disk every few seconds, or at once if `now` is set.  A disk that
        takes none is an alarm and no error: sites depend on the run's log, not on these times.
        """
        at = self._clock()
        with self._lock:
            before = min(self._rounds.values(), default=-1)
            for site in self._hub.sites():
                name = site["site"]
                if site["round"] > self._rounds.get(name, -1):
                    self._rounds[name] = site["round"]
                    self._said[name] = at
            # A round has ended once the last of all sites has sent its message; the greeting, round
            # 0, waits for people and says nothing about the time of a round.
            all_sent = len(self._rounds) == len(self._hub.plan.sites)
            if all_sent and min(self._rounds.values()) > max(before, 0):
                self._ends.append((min(self._rounds.values()), at))
            self._served = at
            # also due if the clock was set back to before the last write
            due = now or not self._wrote <= at < self._wrote + _EVERY
            kept = {
                "plan": self._hub.plan.digest,
                "at": at,
                "heard": dict(self._heard),
                "said": {name: [round, self._said[name]] for name, round in self._rounds.items()},
                "ends": list(self._ends),
            }
        if due:
            self._wrote = at
            try:
                files.write_atomically("seen", self._folder / SEEN, json.dumps(kept) + "\n")
                self._not_written = None
            except NotWritten as error:
                self._not_written = str(error)

    def status_with_times(self) -> dict[str, Any]:
        """Return the state of the run as plain data: sites with times, who waits for whom, alarms.

        It adds to :meth:`sottovoce.deploy.hub.Hub.status_as_dict`; an alarm has its kind
        (``alarm``), the site or file that it concerns (``about``), what is wrong (``what``) and
        what to do (``do``).
        """
        now = self._clock()
        shown = self._hub.status_as_dict()
        with self._lock:
            heard = dict(self._heard)
            said = dict(self._said)
            ends = list(self._ends)
        # mean duration of the last rounds; None before the second has ended
        seconds = None
        if len(ends) > 1:
            (first_round, first_end), (last_round, last_end) = ends[0], ends[-1]
            seconds = (last_end - first_end) / (last_round - first_round)
        waits = self._sites_waited_for(shown)
        for site in shown["sites"]:
            name = site["site"]
            site |= {
                "last_message": _to_iso_time(said.get(name)),
                "last_heard": _to_iso_time(heard.get(name)),
                "waits_for": waits.get(name, []),
                "awaited_since": None,
            }
            # The wait for this site began when the first of the others sent its message.
            since = [
                said[other] for other, names in waits.items() if name in names and other in said
            ]
            if since:
                site["awaited_since"] = _to_iso_time(min(since))
        running: bool | None = self._served is not None and now - self._served < ALIVE
        if self._served is None and any(site["round"] >= 0 for site in shown["sites"]):
            # There are messages, but no times: another transport serves the run and keeps none.
            running = None
        rounds_of_members = [site["round"] for site in shown["sites"] if site["left"] is None]
        shown |= {
            "at": _to_iso_time(now),
            "running": running,
            "seconds_a_round": seconds,
            "round": min(rounds_of_members, default=shown["rounds"]),
        }
        shown["alarms"] = [
            *self._alarms_of_run(shown, now, said, heard),
            *self._alarms_of_certificates(now),
        ]
        return shown

    def status_for_metrics(self) -> dict[str, Any]:
        """Return :meth:`status_with_times` and more numbers, for a monitoring system.

        ``stored`` are the messages of the run in the log and their bytes, ``certificate_days`` the
        days until each certificate ends, by file; one that cannot be read has none.
        """
        shown = self.status_with_times()
        now = datetime.fromtimestamp(self._clock(), UTC)
        days = {}
        for file in self._certificate_files():
            with suppress(SottovoceError):
                days[file] = (self._end_of_certificate(file) - now) / timedelta(days=1)
        stored = self._hub.log.stored_messages(self._hub.plan.run)
        return shown | {"stored": stored, "certificate_days": days}

    def _sites_waited_for(self, shown: dict[str, Any]) -> dict[str, list[str]]:
        """Return, by site that waits, the sites whose messages it waits for.

        `shown` is the hub's status.
        """
        found: dict[str, list[str]] = {}
        run, log = self._hub.plan.run, self._hub.log
        for site in shown["sites"]:
            name = site["site"]
            last = log.last(run, name)
            # A site without any message has not joined yet, so it waits for nobody.
            if site["left"] is None and last >= 0 and not shown["ended"]:
                missing = self._hub.rounds.missing
                if missing and name not in missing:
                    found[name] = sorted(missing)
        return found

    def _alarms_of_run(
        self, shown: dict[str, Any], now: float, said: dict[str, float], heard: dict[str, float]
    ) -> list[dict[str, str]]:
        """Return the alarms of a run that goes on; none once every site has left.

        `shown` is the status with times; `said` and `heard` are the times of each site's last
        message and last request, `now` the present time, all in seconds since 1970.
        """
        if all(site["left"] is not None for site in shown["sites"]):
            return []
        stalled = self._alarms_of_stalled_sites(shown, now, said, heard)
        return [
            *self._alarm_if_not_running(shown, now),
            *self._alarms_of_declined_plan(shown),
            *stalled,
            *self._alarm_if_disk_is_full(shown),
            *self._alarm_if_times_are_not_written(),
        ]

    def _alarm_if_not_running(self, shown: dict[str, Any], now: float) -> list[dict[str, str]]:
        """Return the alarm that no process serves the run, if none does."""
        if shown["running"] is not False:
            return []
        when = "has never run"
        if self._served is not None:
            when = f"was last seen {_duration_text(now - self._served)} ago"
        return [_make_alarm("not running", f"the hub {when}", f"sottovoce hub run {self._folder}")]

    def _alarms_of_declined_plan(self, shown: dict[str, Any]) -> list[dict[str, str]]:
        """Return an alarm for each site that declined the plan, unless the run was ended."""
        run = self._hub.plan.run
        if shown["ended"]:
            return []
        do = f"`sottovoce hub end {self._folder} {run}`, and agree on another plan"
        return [
            _make_alarm("declined", f"{site} takes no part in run {run}: it {why}", do, site)
            for site, why in self._hub.log.decisions.declined_sites(run).items()
        ]

    def _alarms_of_stalled_sites(
        self, shown: dict[str, Any], now: float, said: dict[str, float], heard: dict[str, float]
    ) -> list[dict[str, str]]:
        """Return an alarm for each site for which the others wait far longer than a round takes.

        Arguments as of :meth:`_alarms_of_run`.
        """
        longest = max(STALLED, 10.0 * (shown["seconds_a_round"] or 0.0))
        alarms = []
        for site in shown["sites"]:
            name = site["site"]
            # when each site that waits for this one sent its own message
            since = [
                said[s["site"]]
                for s in shown["sites"]
                if name in s["waits_for"] and s["site"] in said
            ]
            if since and now - min(since) > longest:
                quiet = "never heard from"
                if name in heard:
                    quiet = f"last heard from {_duration_text(now - heard[name])} ago"
                what = (
                    f"the other sites have waited {_duration_text(now - min(since))} for {name}, "
                    f"which was {quiet}"
                )
                alarms.append(
                    _make_alarm("stalled", what, self._remedy_for_stalled_site(name), name)
                )
        return alarms

    def _remedy_for_stalled_site(self, name: str) -> str:
        """Return what the hub's operator can do about a site for which the others wait."""
        end = f"expel {self._folder} {name}"
        if self._hub.plan.waits.waits_for_ever:
            # such a run needs all its sites: without one it can only be ended
            end = f"end {self._folder} {self._hub.plan.run}"
        do = (
            "ask its operator to check it and to repeat `sottovoce site run`; if it does "
            "not come back: "
        )
        return f"{do}`sottovoce hub {end}`"

    def _alarm_if_disk_is_full(self, shown: dict[str, Any]) -> list[dict[str, str]]:
        """Return the alarm that the disk may not hold what the sites still send, if so."""
        need = self._bytes_still_sent(shown) + _SPARE
        free = shutil.disk_usage(self._folder).free
        if free >= need:
            return []
        what = (
            f"the disk of {self._folder} has {free >> 20:,} MiB free, but this run may "
            f"need {need >> 20:,} MiB"
        )
        return [_make_alarm("disk", what, "free some disk space; the sites wait meanwhile")]

    def _alarm_if_times_are_not_written(self) -> list[dict[str, str]]:
        """Return the alarm that the times in :data:`SEEN` are not written, if they are not."""
        if self._not_written is None:
            return []
        do = "free disk space or file descriptors; the run goes on as far as its log can be written"
        return [_make_alarm("not written", self._not_written, do)]

    def _bytes_still_sent(self, shown: dict[str, Any]) -> int:
        """Return the most bytes of messages that the sites send until the end of the run."""
        message = request_and_reply_sizes(self._hub.plan)[0]
        return sum(
            message * max(0, shown["rounds"] - max(0, site["round"])) for site in shown["sites"]
        )

    def _alarms_of_certificates(self, now: float) -> list[dict[str, str]]:
        """Return an alarm for each certificate that ends soon, has ended, or cannot be read.

        One alarm in place of these if the hub has no file descriptors left to read them.
        """
        alarms = list[dict[str, str]]()
        for file in self._certificate_files():
            try:
                left = self._end_of_certificate(file) - datetime.fromtimestamp(now, UTC)
            except Exhausted as error:
                # It says nothing about the certificates, so one line for all of them is enough.
                do = "look who connects, and let the hub open more files (LimitNOFILE)"
                return [*alarms, _make_alarm("exhausted", str(error), do)]
            except SottovoceError:
                alarms.append(
                    _make_alarm("certificate", f"{file} is not a certificate", "restore it", file)
                )
                continue
            if left.days >= SOON:
                continue
            when = "has expired"
            if left.days >= 0:
                when = f"expires in {left.days} days"
            do = "`sottovoce site renew` there, `hub admit --renew` here"
            if file in ("ca.crt", "hub.crt"):
                do = f"`sottovoce hub renew {self._folder}`"
            alarms.append(_make_alarm("certificate", f"{file} {when}", do, file))
        return alarms

    def _certificate_files(self) -> list[str]:
        """Return the names of the certificates that are in the folder."""
        sites = [f"{name}.crt" for name in self._hub.plan.names]
        return [file for file in ("ca.crt", "hub.crt", *sites) if (self._folder / file).exists()]

    def _end_of_certificate(self, file: str) -> datetime:
        """Return when a certificate of the folder ends; raises :class:`SottovoceError`."""
        path = self._folder / file
        if file == "ca.crt":
            return certificates.certificate_expiry(path)
        # its own expiry, or that of its authority if that is earlier
        return certificates.last_usable_time(self._folder / "ca.crt", path)


def _make_alarm(kind: str, what: str, do: str, about: str = "hub") -> dict[str, str]:
    """Return an alarm as plain data.

    Parameters
    ----------
    kind : str
        One of :data:`ALARMS`.
    what : str
        What is wrong.
    do : str
        What to do about it.
    about : str
        The site or file that it concerns: with the kind it tells one alarm from another, while
        its words may change.

    Returns
    -------
    dict
    """
    return {"alarm": kind, "about": about, "what": what, "do": do}


def _to_iso_time(seconds: float | None) -> str | None:
    """Return a time in ISO 8601, to the second; None for None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _duration_text(seconds: float) -> str:
    """Return a duration in words, in seconds, minutes or hours."""
    # It would be negative if the clock was set back.
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _read_kept_times(folder: Path, digest: str) -> dict[str, Any]:
    """Return the content of :data:`SEEN` if it is of this plan, by its digest; else empty.

    The protocol does not depend on the times, so a broken file is no error.
    """
    try:
        found = dict(parse_json(files.read_bounded_file("seen", folder / SEEN, _LARGEST), _LARGEST))
    except (SottovoceError, ValueError, TypeError):
        return {}
    if found.get("plan") != digest:
        return {}
    return found


def describe_long_waits(
    status: dict[str, Any], longer: float, now: float | None = None
) -> list[str]:
    """Describe in words for which sites others have waited for a long time.

    Parameters
    ----------
    status : dict
        See :meth:`Watch.status_with_times`.
    longer : float
        Shortest wait that is described, in seconds.
    now : float, optional
        Seconds since 1970; by default the present time.

    Returns
    -------
    list of str
        A line for each such site.
    """
    if now is None:
        now = time.time()
    lines = []
    for site in status["sites"]:
        if site["awaited_since"] is None:
            continue
        waited = _seconds_since(site["awaited_since"], now)
        if waited < longer:
            continue
        who = [s["site"] for s in status["sites"] if site["site"] in s["waits_for"]]
        verb = "have"
        if len(who) == 1:
            verb = "has"
        quiet = "which was never heard from"
        if site["last_heard"] is not None:
            quiet = (
                "which was last heard from "
                f"{_duration_text(_seconds_since(site['last_heard'], now))} ago"
            )
        lines.append(
            f"{', '.join(who)} {verb} waited {_duration_text(waited)} for {site['site']}, {quiet}"
        )
    return lines


def _seconds_since(stamp: str, now: float) -> float:
    """Return the seconds between a time in ISO 8601 and `now`, in seconds since 1970."""
    return now - datetime.fromisoformat(stamp).timestamp()


def render_watch_page(status: dict[str, Any]) -> str:
    """Return the page of a run that goes on, from :meth:`Watch.status_with_times`."""
    progress = f"Round {max(0, status['round'])} of {status['rounds']}"
    if status["seconds_a_round"] is not None:
        progress += f", {status['seconds_a_round']:.3g} s a round"
    return render_template(
        "watch.html",
        title=f"Run {status['run']}",
        run=status["run"],
        progress=progress,
        state=_state_in_words(status),
        demonstration=status["demonstration"],
        alarms=status["alarms"],
        sites=_table_of_sites(status),
        at=status["at"],
        plan=status["plan"],
    )


def _state_in_words(status: dict[str, Any]) -> str:
    """Return the state of a run in words."""
    if status["ended"]:
        return "ended by the hub"
    # not for None: then another transport serves the run and keeps no times
    if status["running"] is False:
        return "the hub is not running"
    return "running"


def _table_of_sites(status: dict[str, Any]) -> Table:
    """Return the table of the page: a row for each site, with times and who it waits for."""
    columns = [
        Column("site", "name"),
        Column("rows", "n"),
        Column("last message"),
        Column("received", "w"),
        Column("last heard", "w"),
        Column("waits for"),
        Column("left"),
    ]
    rows = [
        [
            site["site"],
            f"{site['rows']:,}",
            describe_progress(site, status["rounds"]),
            site["last_message"] or "never",
            site["last_heard"] or "never",
            ", ".join(site["waits_for"]) or "nobody",
            site["left"] or "no",
        ]
        for site in status["sites"]
    ]
    return Table(columns, rows)
