"""A hub that serves many plans one after another, by commands alone: nothing runs twice, nothing is
lost, and a plan that cannot run lets the next one begin.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from command_line import Call, parse_error_line
from test_cli_sites import NAMES, agreed, said, start

from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.errors import InvalidInput
from sottovoce.ledger.durable import DurableLedger

assert agreed  # a fixture
pytest.importorskip("grpc")
pytest.importorskip("cryptography")


def write_plan(run: Call, name: str, *more: str) -> str:
    """Write a plan of this run for the three sites; returns its file."""
    sites = [option for site in NAMES for option in ("--site", f"{site}/{site}.public.json")]
    options = (
        "--method",
        "prox_admm",
        "--rounds",
        "2",
        "--delta",
        "1e-5",
        "--schema",
        "schema.toml",
    )
    file = f"{name}.json"
    price = more or ("--epsilon", "1")
    wrote = run("plan", "--write", file, "--run", name, *options, *sites, *price)
    assert wrote.code == 0, wrote.err
    return file


def serve(port: int, *more: str) -> warm.Started:
    listen = ("--listen", f"127.0.0.1:{port}", "--page", "none")
    return start("hub", "run", "hub", "--queue", *listen, "--json", *more)


def states(run: Call) -> dict[str, str]:
    return {one["run"]: one["state"] for one in run("hub", "queue", "list", "hub", "--json").json}


def take_part(plan: str, *, but: tuple[str, ...] = ()) -> dict[str, warm.Started]:
    """Every site takes the plan as its own and runs it."""
    for name in NAMES:
        Path(name, "plan.json").write_bytes(Path(plan).read_bytes())
    return {
        name: start("site", "run", f"{name}/site.toml", "--json")
        for name in NAMES
        if name not in but
    }


def test_five_plans_of_a_queue_of_which_one_is_refused_and_one_too_dear(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    """The lifetime budget is 6: what is set aside costs nothing, and the ledger has three runs."""
    runs = [f"q-{k}" for k in range(1, 6)]
    plans = {name: write_plan(run, name) for name in runs}
    plans["q-4"] = write_plan(run, "q-4b", "--epsilon", "9")
    Path("q-4.json").unlink()
    runs[3] = "q-4b"
    plans["q-4b"] = plans.pop("q-4")
    added = run("hub", "queue", "add", "hub", *(plans[name] for name in runs))
    assert added.code == 0 and "4 before it" in added.out
    again = parse_error_line(run("hub", "queue", "add", "hub", plans["q-1"]).err)
    assert (again.field, again.value) == ("run", "'q-1'")
    hub = serve(agreed, "--once")
    heads = {}
    for name in runs:
        if name == "q-2":  # north's people do not want it
            Path("north", "plan.json").write_bytes(Path(plans[name]).read_bytes())
            declined = run("site", "decline", "north/site.toml")
            assert declined.code == 0 and "it does not agree" in declined.out, declined.err
            continue
        if name == "q-4b":  # and this one nobody can pay for
            Path("north", "plan.json").write_bytes(Path(plans[name]).read_bytes())
            assert run("site", "check", "north/site.toml").code == 2
            declined = run("site", "decline", "north/site.toml", "--json")
            assert declined.json["why"] == "cannot pay from its ledger"
            continue
        for process in take_part(plans[name]).values():
            said(process, seconds=200.0)
        heads[name] = {one: Path(one, f"{one}.json").read_text() for one in NAMES}
    out, err = said(hub, 4, 200.0)
    assert "set aside: 'q-2', 'q-4b'" in err
    ends = [line for line in map(json.loads, out.splitlines()) if "queue" in line]
    assert [(line["run"], line["end"]) for line in ends] == [
        ("q-1", "done"),
        ("q-2", "set aside"),
        ("q-3", "done"),
        ("q-4b", "set aside"),
        ("q-5", "done"),
    ]
    listed = {one["run"]: one["why"] for one in run("hub", "queue", "list", "hub", "--json").json}
    assert listed["q-2"] == "north declined: it does not agree"
    assert listed["q-4b"] == "north declined: it cannot pay from its ledger"
    # results of all three are there, and the ledger of each site has their events and no others
    assert json.loads(Path("hub/hub.json").read_text())["run"] == "q-5"
    assert Path("hub/hub.q-1.json").exists() and Path("hub/hub.q-3.json").exists()
    for name in NAMES:
        with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
            assert sorted(ledger.runs) == ["q-1", "q-3", "q-5"]
            planned = [
                event.to_dict()
                for one in ("q-1", "q-3", "q-5")
                for event in read_plan_file(plans[one]).planned_privacy.events(name)
            ]
            assert ledger.to_list() == planned
            assert 0.0 < ledger.total() < 6.0
    assert run("hub", "queue", "drop", "hub", "q-5").code == 2
    table = run("hub", "queue", "list", "hub")
    assert table.code == 0 and "cannot pay" in " ".join(table.out.split())


def wait_until(found: Callable[[], bool], *processes: warm.Started, seconds: float = 200.0) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)


def test_a_queue_goes_on_after_kills_and_nothing_is_done_twice(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    """The hub is killed when a plan was offered, amid a run, and between results and the record of
    an end; sites of the second plan come too early, and wait.
    """
    plans = [write_plan(run, name) for name in ("q-1", "q-2")]
    assert run("hub", "queue", "add", "hub", *plans).code == 0
    ends = [Path("hub/queue", f"{k:06d}.q-{k}.end") for k in (1, 2)]
    hub = serve(agreed)
    wait_until(lambda: read_offered() == "q-1", hub)
    hub.kill()
    hub.communicate()
    sites = take_part(plans[0])
    hub = serve(agreed)
    wait_until(lambda: any("q-1" in run for run in runs_in_log()), hub)
    hub.kill()  # the greetings are there, or more
    hub.communicate()
    hub = serve(agreed)
    for process in sites.values():
        said(process, seconds=200.0)
    wait_until(ends[0].exists, hub)
    hub.kill()
    hub.communicate()
    with HubLog("hub/hub.log") as log:
        messages = log.messages("q-1")
    # as if it had been killed between the results and the record of the end
    ends[0].unlink()
    before = {name: Path(name, f"{name}.ledger").read_bytes() for name in NAMES}
    sites = take_part(plans[1])
    north = sites["north"]
    hub = serve(agreed, "--once")
    for process in sites.values():
        said(process, seconds=200.0)
    said(hub, seconds=200.0)
    assert [json.loads(path.read_text())["end"] for path in ends] == ["done", "done"]
    assert north.returncode == 0 and before.keys() == set(NAMES)
    with HubLog("hub/hub.log") as log:
        assert log.messages("q-1") == messages and sorted(log.runs()) == ["q-1", "q-2"]
    for name in NAMES:
        with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
            assert ledger.to_list() == [
                event.to_dict()
                for plan in plans
                for event in read_plan_file(plan).planned_privacy.events(name)
            ]
    # nothing waits: the same command is over at once, and its results stay
    said(serve(agreed, "--once"))
    assert json.loads(Path("hub/hub.json").read_text())["run"] == "q-2"


def read_offered() -> str:
    """The run of the plan that the hub offers; empty for none."""
    try:
        return read_plan_file("hub/plan.json").run
    except InvalidInput:
        return ""


def runs_in_log() -> list[str]:
    with HubLog("hub/hub.log", read_only=True) as log:
        return log.runs()


def test_a_plan_to_which_nobody_comes_and_one_that_is_damaged_are_set_aside(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    Path("hub/plan.json").unlink()
    plans = [write_plan(run, name) for name in ("q-1", "q-2", "q-3", "q-4")]
    assert run("hub", "queue", "add", "hub", *plans).code == 0
    assert run("hub", "queue", "drop", "hub", "q-3").code == 0
    damaged = Path("hub/queue/000002.q-2.plan")
    damaged.write_text(damaged.read_text().replace('"d": 3', '"d": 4'))
    assert states(run) == {"q-1": "waiting", "q-2": "waiting", "q-3": "set aside", "q-4": "waiting"}
    ran = run("hub", "queue", "drop", "hub", "q-9")
    assert parse_error_line(ran.err).field == "run" and ran.code == 2
    # one site comes to the first plan: it is told that the run was ended, and spends nothing
    sites = take_part(plans[0], but=("east", "south"))
    hub = serve(agreed, "--once", "--begin", "8")
    out, _ = said(sites["north"], 4, 100.0)
    assert json.loads(out.splitlines()[-1])["spent"] == 0.0
    said(hub, 4, 100.0)
    listed = {one["run"]: one["why"] for one in run("hub", "queue", "list", "hub", "--json").json}
    assert listed["q-1"] == "ended before it began; never greeted: east, south"
    assert "does not match its digest" in listed["q-2"] and "operator" in listed["q-3"]
    assert listed["q-4"] == "ended before it began; never greeted: north, east, south"
    # a site that comes too late is told so, too
    hub = serve(agreed)
    late = start("site", "run", "east/site.toml", "--json")
    said(late, 4, 100.0)
    for name in ("north", "east"):
        with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
            assert ledger.rows == () and ledger.show()["runs"][0]["held"] == 0
    hub.send_signal(signal.SIGTERM)
    said(hub)


@pytest.mark.parametrize("seconds", ["0", "nan"])
def test_the_time_to_join_must_be_finite_and_above_zero(
    run: Call, agreed: int, seconds: str
) -> None:
    ran = run("hub", "run", "hub", "--queue", "--begin", seconds)
    assert ran.code == 2 and parse_error_line(ran.err).field == "begin"
