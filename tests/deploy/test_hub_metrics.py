"""What a hub tells a monitoring system, a command for alarms and a log of JSON lines: nothing of
the rows, in bounded room, and no failure or flood of theirs ends a hub.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import socket
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from sites_in_tests import Consortium

from sottovoce.deploy import metrics, monitor
from sottovoce.deploy.alarm_command import OVER, AlarmCommand, split_command
from sottovoce.deploy.certificates import Authority
from sottovoce.deploy.events_log import EventsLog
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hub_settings import HubSettings
from sottovoce.deploy.metrics import Counts, health_of, metrics_of, prometheus_text, serve_metrics
from sottovoce.deploy.monitor import Reply, serve_pages
from sottovoce.deploy.watch import ALARMS, Watch
from sottovoce.errors import InvalidInput

pytest.importorskip("cryptography")
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\]|\\.)*"\})? -?[0-9.e+-]+')


def read(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=10.0) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(text: str) -> dict[str, float]:
    """The samples of a text, by name and labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            assert SAMPLE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            found[name.removeprefix("sottovoce_hub_")] = float(value)
    return found


def greet(sites: Consortium, hub: Hub, *names: str) -> None:
    for name in names:
        hub.exchange(name, 0, sites.sealed(name, 0), 0.0)


def test_metrics_count_rounds_sites_messages_and_days(
    sites: Consortium, hub: Hub, tmp_path: Path
) -> None:
    Authority.make(tmp_path).write_hub_certificate(tmp_path, ["localhost"])
    watch, counts = Watch(hub, tmp_path), Counts()
    counts.add("refused")
    watch.note_request("north")
    greet(sites, hub, "north", "east")
    watch.note_new_messages()
    status = watch.status_for_metrics()
    text = metrics_of(status, tmp_path, counts, 3, status_time(status))
    found = values(text)
    size = sum(len(message) for message in hub.log.messages("trial").values())
    assert found['rounds_done{run="trial"}'] == 0 and found['sites{run="trial"}'] == 3
    assert found['sites_connected{run="trial"}'] == 1 and found["queue_plans"] == 3
    assert found['messages{run="trial"}'] == 2 and found['message_bytes{run="trial"}'] == size
    assert found["requests_refused_total"] == 1 and found["requests_failed_total"] == 0
    assert found['site_awaited{site="south"}'] == 1 and found['site_awaited{site="north"}'] == 0
    assert 820 < found['certificate_days_left{file="hub.crt"}'] <= 825
    assert {f'alarms{{alarm="{kind}"}}' for kind in ALARMS} <= found.keys()
    assert health_of(status, tmp_path)["waits_for"] == ["south"]
    # neither sizes of the sites, nor anything that a message holds
    assert not any(str(site.rows) in re.split(r"\W", text) for site in hub.plan.sites)


def status_time(status: dict[str, object]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(str(status["at"])).timestamp()


def test_health_says_what_a_hub_does(
    sites: Consortium, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(hub, tmp_path)

    def state() -> str:
        return str(health_of(watch.status_with_times(), tmp_path)["state"])

    watch.note_new_messages()
    assert state() == "serving" and health_of(None, tmp_path)["state"] == "idle"
    greet(sites, hub, "north", "east")
    assert state() == "waiting"
    hub.log.decisions.record_end_of_run("trial")
    assert state() == "over"
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**10))
    assert state() == "disk full" and state() not in metrics.SERVING


def test_health_tells_of_descriptors_that_are_all_taken(
    sites: Consortium, hub: Hub, tmp_path: Path
) -> None:
    """It answers though this process can open nothing more: one descriptor is in reserve."""
    Authority.make(tmp_path).write_hub_certificate(tmp_path, ["localhost"])
    greet(sites, hub, *sites.plan.names)
    watch = Watch(hub, tmp_path)
    watch.note_new_messages()
    server, address = serve_metrics(
        lambda: (watch.status_for_metrics(), 0), tmp_path, Counts(), "127.0.0.1:0"
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    host = urlsplit(address)
    try:
        with socket.socket() as asking:  # opened before the limit, as a program elsewhere would
            top = asking.fileno() + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
            holes = []
            with contextlib.suppress(OSError):
                while True:
                    holes.append(socket.socket())
            asking.settimeout(10.0)
            asking.connect((host.hostname, host.port))
            asking.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b""
            while part := asking.recv(4096):
                answer += part
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in holes:
            one.close()
        server.shutdown()
        server.server_close()
    assert b" 503 " in answer and b'"no descriptors"' in answer


def test_a_flood_of_silent_connections_keeps_nobody_out() -> None:
    server, address = serve_pages(
        {"/": lambda: Reply(200, "text/plain", "here\n")}, "127.0.0.1:0", "page"
    )
    host = urlsplit(address)
    try:
        with contextlib.ExitStack() as strangers:
            for _ in range(100):
                strangers.enter_context(
                    socket.create_connection((host.hostname, host.port), timeout=10.0)
                )
            assert read(address, "") == (200, "here\n")
            serving = [one for one in threading.enumerate() if "process_request" in one.name]
            assert len(serving) <= monitor.OPEN + 1
    finally:
        server.shutdown()
        server.server_close()


def test_the_state_is_computed_once_a_second(tmp_path: Path) -> None:
    looked = list[None]()

    def look() -> tuple[None, int]:
        looked.append(None)
        return None, 0

    server, address = serve_metrics(look, tmp_path, Counts(), "127.0.0.1:0")
    try:
        for _ in range(20):
            assert read(address, "healthz")[0] == 200
        assert read(address, "metrics")[0] == 200 and read(address, "other")[0] == 404
    finally:
        server.shutdown()
        server.server_close()
    assert len(looked) < 10


def test_labels_are_escaped() -> None:
    text = prometheus_text(
        [("x", "gauge", "About.", [({"a": 'b"\\\n'}, 1.0)]), ("y", "gauge", "", [])]
    )
    assert text.splitlines()[-1] == r'sottovoce_hub_x{a="b\"\\\n"} 1' and "_y" not in text


# The command for alarms

ALARM = {"alarm": "stalled", "about": "north; rm -rf /", "what": "$(x)", "do": "`y`"}


def test_a_command_gets_each_alarm_once_and_no_shell_reads_it(tmp_path: Path) -> None:
    clock, told = SimpleNamespace(now=0.0), list[str]()
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    command = AlarmCommand(
        [sys.executable, "-c", code, str(tmp_path / "got")], told.append, lambda: clock.now
    )

    def got() -> list[dict[str, str]]:
        command.wait(30.0)
        return [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]

    for _ in range(3):
        command.note_alarms([ALARM], run="trial")
    assert got() == [ALARM | {"run": "trial"}]
    command.note_alarms([ALARM, ALARM | {"about": "east"}])
    assert len(got()) == 2
    clock.now += OVER + 1.0  # it was over for so long: another alarm
    command.note_alarms([ALARM])
    assert len(got()) == 3 and told == []


def test_a_command_that_fails_is_told_and_ends_nothing() -> None:
    told = list[str]()
    for words, why in (
        (["/nowhere/at-all"], "could not be started: No such file"),
        ([sys.executable, "-c", "raise SystemExit(7)"], "ended with code 7"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "was killed after 1 s"),
    ):
        command = AlarmCommand(words, told.append, longest=1.0)
        command.note_alarms([ALARM])
        command.wait(30.0)
        assert why in told[-1]
    assert len(told) == 3
    for text in ("", "'"):
        with pytest.raises(InvalidInput, match=r"^on_alarm"):
            split_command(text)


# The log of JSON lines


def test_a_log_of_events_has_who_when_what_and_plan_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "hub.jsonl"
    log = EventsLog(path, "hub", pytest.fail, full=2_000, clock=lambda: 1_700_000_000.0)
    assert path.stat().st_mode & 0o077 == 0
    for k in range(200):
        log.write("serving", "5b0c", run=f"trial-{k}")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1] == {
        "at": "2023-11-14T22:13:20+00:00",
        "who": "hub",
        "what": "serving",
        "plan": "5b0c",
        "run": "trial-199",
    }
    assert {file.name for file in tmp_path.iterdir()} == {"hub.jsonl", "hub.jsonl.1"}
    assert all(file.stat().st_size <= 2_000 for file in tmp_path.iterdir())


def test_a_log_that_cannot_be_written_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    log = EventsLog(tmp_path / "hub.jsonl", "hub", told.append)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        log.write("serving", None)
        log.write("serving", None)
    log.write("serving", None)
    assert len(told) == 1 and "No space" in told[0]
    assert json.loads((tmp_path / "hub.jsonl").read_text())["what"] == "serving"
    with pytest.raises(InvalidInput, match=r"^log_json"):
        EventsLog(tmp_path, "hub", told.append)
    with pytest.raises(InvalidInput, match=r"^log_json"):
        EventsLog(tmp_path / "none" / "hub.jsonl", "hub", told.append)


# Settings


def test_settings_of_a_hub_are_read_and_what_is_typed_wins(tmp_path: Path) -> None:
    assert HubSettings.read(tmp_path) == HubSettings()
    file = tmp_path / "hub.toml"
    file.write_text('metrics = "127.0.0.1:9"\non_alarm = ["tell us"]\nlog_json = "hub.jsonl"\n')
    read_back = HubSettings.read(tmp_path)
    assert read_back == HubSettings("127.0.0.1:9", ("tell us",), tmp_path / "hub.jsonl")
    typed = read_back.changed_by("none", "tell us", None)
    assert (typed.metrics, typed.on_alarm) == (None, ("tell", "us"))
    for wrong, field in (
        ("metric = 1", "metric"),
        ("metrics = 1", "metrics"),
        ("on_alarm = [1]", "on_alarm"),
        ("metrics", "settings"),
    ):
        file.write_text(wrong)
        with pytest.raises(InvalidInput, match=f"^{field}"):
            HubSettings.read(tmp_path)
