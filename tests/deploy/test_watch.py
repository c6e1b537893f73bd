"""What a hub tells of a run while it goes on: times, who waits for whom, alarms, a page; looking
writes nothing.
"""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from sites_in_tests import Consortium

from sottovoce.deploy import certificates, requests, watch
from sottovoce.deploy.certificates import Authority
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.monitor import serve_status_page
from sottovoce.deploy.requests import RequestTransport
from sottovoce.deploy.watch import SEEN, Watch, describe_long_waits, render_watch_page
from sottovoce.errors import InvalidInput, NotWritten, Refused, SottovoceError, Unreachable

pytest.importorskip("cryptography")
START = 1_700_000_000.0


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def seen(hub: Hub, tmp_path: Path, clock: Clock) -> Watch:
    return Watch(hub, tmp_path, clock)


def greet(sites: Consortium, hub: Hub, *names: str, round: int = 0) -> None:
    for name in names:
        hub.exchange(name, round, sites.sealed(name, round), 0.0)


def of(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(site for site in status["sites"] if site["site"] == name)


def test_status_lists_waiting_and_awaited_sites(
    sites: Consortium, hub: Hub, seen: Watch, clock: Clock
) -> None:
    seen.note_new_messages()
    assert not any(
        site["waits_for"] or site["last_heard"] for site in seen.status_with_times()["sites"]
    )
    clock.now += 10.0
    seen.note_request("north")
    greet(sites, hub, "north", "east")
    seen.note_new_messages()
    clock.now += 30.0
    told = seen.status_with_times()
    assert of(told, "north")["waits_for"] == ["south"] == of(told, "east")["waits_for"]
    assert of(told, "south")["waits_for"] == [] and of(told, "north")["awaited_since"] is None
    assert (
        of(told, "south")["awaited_since"]
        == "2023-11-14T22:13:30+00:00"
        == of(told, "north")["last_message"]
    )
    assert of(told, "south")["last_heard"] is None and of(told, "north")["last_heard"] is not None
    assert told["round"] == -1 and told["seconds_a_round"] is None
    [line] = describe_long_waits(told, 20.0, clock.now)
    waiting, _, awaited = line.partition(" for ")
    assert waiting.startswith("north, east") and waiting.endswith("30 s")
    assert awaited.startswith("south") and "never heard" in awaited
    assert describe_long_waits(told, 31.0, clock.now) == []
    greet(sites, hub, "south")
    seen.note_new_messages()
    assert not any(site["waits_for"] for site in seen.status_with_times()["sites"])


def test_seconds_a_round_and_times_outlive_a_restart(
    sites: Consortium, hub: Hub, seen: Watch, clock: Clock, tmp_path: Path
) -> None:
    greet(sites, hub, *sites.plan.names)
    for round in (1, 2, 3):
        seen.note_new_messages(now=True)
        clock.now += 4.0
        greet(sites, hub, *sites.plan.names, round=round)
    seen.note_new_messages(now=True)
    assert (
        seen.status_with_times()["seconds_a_round"] == pytest.approx(4.0)
        and seen.status_with_times()["round"] == 3
    )
    again = Watch(hub, tmp_path, clock)
    assert again.status_with_times()["seconds_a_round"] == pytest.approx(4.0)
    assert (
        again.status_with_times()["sites"] == seen.status_with_times()["sites"]
        and again.status_with_times()["running"]
    )
    clock.now += 60.0
    assert not again.status_with_times()["running"]
    # times decide nothing: a file that cannot be read is like none
    (tmp_path / SEEN).write_text("{")
    assert Watch(hub, tmp_path, clock).status_with_times()["seconds_a_round"] is None


def test_alarms_say_what_to_do(
    sites: Consortium,
    hub: Hub,
    seen: Watch,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alarms() -> dict[str, str]:
        return {
            one["alarm"]: one["what"] + "; " + one["do"]
            for one in seen.status_with_times()["alarms"]
        }

    assert set(alarms()) == {"not running"} and "sottovoce hub run" in alarms()["not running"]
    greet(sites, hub, "north", "east")
    seen.note_new_messages()
    assert alarms() == {}
    clock.now += 130.0
    seen.note_new_messages()
    assert set(alarms()) == {"stalled"}
    assert "2 min for" in alarms()["stalled"] and "hub end" in alarms()["stalled"]
    monkeypatch.setattr(watch.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert "1 MiB free" in alarms()["disk"]
    monkeypatch.undo()
    Authority.make(tmp_path).write_hub_certificate(tmp_path, ["localhost"])
    assert "certificate" not in alarms()
    clock.now = certificates.certificate_expiry(tmp_path / "hub.crt").timestamp() - 5 * 86_400
    assert "in 4 days" in alarms()["certificate"] or "in 5 days" in alarms()["certificate"]
    assert "sottovoce hub renew" in alarms()["certificate"]
    clock.now += 10 * 86_400
    assert "has expired" in alarms()["certificate"]


def test_a_site_that_declines_is_an_alarm_until_the_run_is_ended(
    sites: Consortium, hub: Hub, seen: Watch
) -> None:
    seen.note_new_messages()
    hub.take_declined("north", "cannot pay from its ledger")
    hub.take_declined("north", "does not agree")  # its first word stays
    [alarm] = seen.status_with_times()["alarms"]
    assert (alarm["alarm"], alarm["about"]) == ("declined", "north")
    assert "it cannot pay" in alarm["what"] and "hub end" in alarm["do"]
    greet(sites, hub, "east")
    for site, why, match in (
        ("east", "does not agree", "takes part already"),
        ("south", "has better things to do", "no reason"),
        ("liar", "does not agree", "not a site"),
    ):
        with pytest.raises(Refused, match=match):
            hub.take_declined(site, why)
    hub.log.decisions.record_end_of_run("trial")
    assert seen.status_with_times()["alarms"] == []


def test_a_disk_that_takes_no_times_is_an_alarm_and_no_error(
    sites: Consortium, hub: Hub, seen: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise NotWritten("seen: cannot be written: No space left on device")

    greet(sites, hub, *sites.plan.names)
    with monkeypatch.context() as patch:
        patch.setattr(watch.files, "write_atomically", full)
        seen.note_new_messages(now=True)
        [alarm] = seen.status_with_times()["alarms"]
        assert alarm["alarm"] == "not written" and "No space" in alarm["what"]
    seen.note_new_messages(now=True)
    assert seen.status_with_times()["alarms"] == [] and (tmp_path / SEEN).exists()


def test_want_of_descriptors_is_no_fault_of_certificates(
    sites: Consortium, hub: Hub, seen: Watch, tmp_path: Path
) -> None:
    Authority.make(tmp_path).write_hub_certificate(tmp_path, ["localhost"])
    greet(sites, hub, *sites.plan.names)
    seen.note_new_messages()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # as if all were taken
    try:
        alarms = seen.status_with_times()["alarms"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [alarm["alarm"] for alarm in alarms] == ["exhausted"]
    assert seen.status_with_times()["alarms"] == []


def test_hub_state_is_unknown_without_recorded_times(
    sites: Consortium, hub: Hub, seen: Watch, clock: Clock
) -> None:
    greet(sites, hub, "north")
    told = seen.status_with_times()  # nothing has kept times
    assert told["running"] is None and told["alarms"] == []
    page = render_watch_page(told)
    assert "running." in page and "not running" not in page


def test_a_run_that_is_over_raises_no_alarm(
    sites: Consortium, tmp_path: Path, clock: Clock
) -> None:
    with HubLog(tmp_path / "hub.log") as log:
        sites.run_locally(log)
        told = Watch(Hub(sites.plan, log), tmp_path, clock).status_with_times()
    assert told["finished"] and told["alarms"] == [] and told["round"] == told["rounds"]


def test_status_works_without_write_access(sites: Consortium, tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    with HubLog(path) as log:
        sites.run_locally(log)

    def files() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}

    before = files()
    with HubLog(path, read_only=True) as looked:
        assert Hub(sites.plan, looked).status_as_dict()["finished"] and files() == before
        with pytest.raises(SottovoceError):
            looked.decisions.record_end_of_run("trial")
    assert files() == before
    with pytest.raises(InvalidInput, match=r"^log=.* a file"):
        HubLog(tmp_path / "absent.log", read_only=True)
    assert not (tmp_path / "absent.log").exists()


def test_a_reader_beside_a_writer_sees_what_was_committed(
    sites: Consortium, hub: Hub, tmp_path: Path
) -> None:
    with HubLog(tmp_path / "hub.log", read_only=True) as looked:
        reader = Hub(sites.plan, looked)
        assert reader.highest_round_of("north") == 0 and looked.last("trial", "north") == -1
        greet(sites, hub, "north")
        assert looked.last("trial", "north") == 0
        with pytest.raises(sqlite3.OperationalError):
            looked.file.db.execute("DELETE FROM message")


@contextmanager
def served(status: Any) -> Iterator[str]:
    server, address = serve_status_page(status, "127.0.0.1:0")
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()


def test_the_page_shows_the_run_and_can_change_nothing(
    sites: Consortium, hub: Hub, seen: Watch, clock: Clock
) -> None:
    greet(sites, hub, "north", "east")
    seen.note_new_messages()
    clock.now += 500.0
    seen.note_new_messages()
    with served(seen.status_with_times) as address:
        with urllib.request.urlopen(address, timeout=10.0) as reply:
            text, headers = reply.read().decode(), reply.headers
        assert "Run trial" in text and "for south, which" in text and "hub end" in text
        # nothing from elsewhere
        assert "http://" not in text and "https://" not in text and "<script" not in text
        assert (
            headers["Content-Security-Policy"].startswith("default-src 'none'")
            and headers["Refresh"] == "5"
        )
        with urllib.request.urlopen(f"{address}status.json", timeout=10.0) as reply:
            told = json.load(reply)
        assert (
            told["sites"] == seen.status_with_times()["sites"]
            and told["alarms"][0]["alarm"] == "stalled"
        )
        host = urlsplit(address).netloc
        for method, path, name, code in (
            ("GET", "/../hub.key", host, 404),
            ("POST", "/", host, 501),
            ("PUT", "/", host, 501),
            ("GET", "/", "evil.example", 403),
            ("GET", "/", "localhost", 200),
        ):
            connection = HTTPConnection(host, timeout=10.0)
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", name)
            connection.endheaders()
            assert connection.getresponse().status == code, (method, path, name)
            connection.close()


def test_status_error_is_one_line_of_page() -> None:
    def broken() -> dict[str, Any]:
        raise SottovoceError("log: no space")

    with served(broken) as address, pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(address, timeout=10.0)
    with caught.value as error:
        assert error.code == 503 and error.read() == b"log: no space\n"


def test_page_address_must_be_valid_and_free() -> None:
    with pytest.raises(InvalidInput, match="must be HOST:PORT"):
        serve_status_page(dict, "8444")
    with served(dict) as address:
        taken = urlsplit(address).netloc
        with pytest.raises(InvalidInput, match="--page none"):
            serve_status_page(dict, taken)
        other, elsewhere = serve_status_page(dict, taken, free=True)
        other.shutdown()
        other.server_close()
        assert urlsplit(elsewhere).netloc != taken and elsewhere.startswith("http://127.0.0.1:")


def test_foreign_text_is_escaped_on_page(sites: Consortium, hub: Hub, seen: Watch) -> None:
    told = seen.status_with_times()
    told["sites"][0] |= {"left": "<script>alert(1)</script>", "last_message": None}
    told["alarms"] = [{"alarm": "x", "what": "<b>", "do": "&"}]
    text = render_watch_page(told)
    assert "<script>" not in text and "&lt;script&gt;" in text and "&lt;b&gt;" in text


def test_a_site_that_waits_says_so_again(
    sites: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said, polls = (
        SimpleNamespace(now=0.0),
        list[str](),
        iter([["east"]] * 9 + [["south"]] + [None]),
    )
    monkeypatch.setattr(requests.time, "monotonic", lambda: clock.now)

    class Poll(RequestTransport):
        def send_request(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
            clock.now += 10.0
            missing = next(polls)
            return {"inbox": {}} if missing is None else {"inbox": None, "missing": missing}

    Poll(sites.plan, said.append).exchange(3, b"")
    form = re.compile(r"waits for (\w+) in round (\d+)(?: since (\d+) s)?")
    found = [form.fullmatch(line) for line in said]
    # the site that is missing, the round, and the seconds so far
    assert [one and one.groups() for one in found] == [
        ("east", "3", None),
        ("east", "3", "70"),
        ("south", "3", "100"),
    ]


def test_status_of_secure_sums_shows_senders_waiting_for_others(
    tmp_path: Path, clock: Clock
) -> None:
    from sums_in_tests import hub_of, summed

    sums = summed(tmp_path / "sums")
    with hub_of(sums, tmp_path / "hub.log") as hub:
        seen, names = Watch(hub, tmp_path, clock), sums.plan.names
        assert not any(site["waits_for"] for site in seen.status_with_times()["sites"])
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(sums.run_site, names[0], LocalTransport(hub, names[0], 3.0))
            with pytest.raises(Unreachable):
                job.result()
        seen.note_new_messages()
        told = seen.status_with_times()
    assert of(told, names[0])["waits_for"] == sorted(names[1:])
    assert all(
        of(told, name)["waits_for"] == [] and of(told, name)["awaited_since"] for name in names[1:]
    )


def test_messages_of_finished_runs_can_be_deleted(sites: Consortium, tmp_path: Path) -> None:
    from dataclasses import replace

    from sottovoce.cli import main
    from sottovoce.deploy.plan_file import write_plan_file
    from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
    from sottovoce.deploy.report import write_hub_results

    folder = tmp_path / "hub"
    folder.mkdir()
    plans = [
        make_calibrated_plan(
            Proposal(f"trial-{k}", sites.plan.config, sites.plan.sites, sites.plan.d)
        )
        for k in range(3)
    ]
    with HubLog(folder / "hub.log") as log:
        for plan in plans[
            :2
        ]:  # the second one's results are those at hand, the first one's were put aside
            replace(sites, plan=plan).run_locally(log)
            assert write_hub_results(folder, Hub(plan, log))
        log.store_message("unknown", 0, "north", b"x")  # not known to be over
        log.store_message("unknown", 1, "north", b"y")
        kept = {run: log.earlier("another", "north") for run in ("", "trial-0")}
        size = (folder / "hub.log").stat().st_size
    write_plan_file(plans[1], folder / "plan.json")
    main(["hub", "prune", str(folder)])
    with HubLog(folder / "hub.log") as log:  # the plan's own run stays
        assert log.last("trial-1", "east") == 5 and log.last("trial-0", "east") == 0
    write_plan_file(plans[2], folder / "plan.json")
    main(["hub", "prune", str(folder)])
    with HubLog(folder / "hub.log") as log:
        assert (
            log.last("trial-0", "north") == log.last("trial-1", "east") == 0
            and log.last("unknown", "north") == 1
        )
        assert {run: log.earlier("another", "north") for run in ("", "trial-0")} == kept
        # the next run goes on as if nothing had happened
        replace(sites, plan=plans[2]).run_locally(log)
        assert Hub(plans[2], log).status_as_dict()["finished"]
        total = sum(len(message) for message in log.messages("trial-0").values())
    assert size > 0 and 0 < total < 3_000
