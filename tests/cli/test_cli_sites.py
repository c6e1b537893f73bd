"""``sottovoce site | hub | demo`` and ``plan --write``: a run of separate processes, from keys
to reports.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import warm
from command_line import Call, parse_error_line

from sottovoce.answers import forecast
from sottovoce.deploy import relay as transport
from sottovoce.deploy.certificates import public_key_fingerprint
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.lock import exclusive_lock
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.deploy.relay import Credentials, start_relay
from sottovoce.errors import EXITS, Busy, InvalidInput
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.statement import DEMONSTRATION
from sottovoce.runs.simulate import Result

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

NAMES = ("north", "east", "south")
SCHEMA = """
label = {column = "ill", positive = "yes", negative = "no"}
intercept = true

[columns.pulse]
kind = "number"
lo = 0
hi = 4242

[columns.age]
kind = "number"
lo = 0
hi = 100
"""


def table(path: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pulse", "age", "ill"])
        for age in rng.integers(0, 101, rows):
            writer.writerow([int(rng.integers(0, 4242)), int(age), "yes" if age > 50 else "no"])


def start(*arguments: str) -> warm.Started:
    return warm.start(["-m", "sottovoce", *arguments], env=os.environ | {"OMP_NUM_THREADS": "1"})


def said(process: warm.Started, code: int = 0, seconds: float = 120.0) -> tuple[str, str]:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, err
    return out, err


@pytest.fixture
def agreed(run: Call, tmp_path: Path) -> int:
    """Three sites and a hub that have agreed on a plan; returns the hub's port."""
    return agree(run, tmp_path, SCHEMA)


def agree(run: Call, tmp_path: Path, schema: str) -> int:
    """Let three sites and a hub agree on a plan under a schema; returns the hub's port."""
    port = find_free_port()
    (tmp_path / "schema.toml").write_text(schema)
    assert run("hub", "init", "hub", "--host", "127.0.0.1").code == 0
    for i, name in enumerate(NAMES):
        table(tmp_path / f"{name}.csv", 300 + i, i)
        made = run(
            "site",
            "init",
            name,
            "--name",
            name,
            "--hub",
            f"127.0.0.1:{port}",
            "--data",
            f"{name}.csv",
            "--schema",
            "schema.toml",
            "--epsilon",
            "6",
            "--delta",
            "1e-5",
        )
        assert made.code == 0 and "never restore" in made.out and "of epsilon 1" in made.out
        assert run("hub", "admit", "hub", f"{name}/{name}.csr").code == 0
        for file, place in ((f"{name}.crt", name), ("ca.crt", name)):
            (tmp_path / place / file).write_bytes((tmp_path / "hub" / file).read_bytes())
    publics = [option for name in NAMES for option in ("--site", f"{name}/{name}.public.json")]
    wrote = run(
        "plan",
        "--write",
        "plan.json",
        "--run",
        "trial-1",
        "--schema",
        "schema.toml",
        *publics,
        "--method",
        "prox_admm",
        "--rounds",
        "4",
        "--epsilon",
        "2",
        "--delta",
        "1e-5",
    )
    assert wrote.code == 0 and "digest" in wrote.out
    for place in ("hub", *NAMES):
        (tmp_path / place / "plan.json").write_bytes((tmp_path / "plan.json").read_bytes())
    return port


def test_sites_run_a_plan_as_processes(run: Call, agreed: int, tmp_path: Path) -> None:
    plan = read_plan_file("plan.json")
    assert not plan.demonstration and [site.rows for site in plan.sites] == [300, 301, 302]
    checked = run("site", "check", "north/site.toml", "--json").json
    assert checked["sent"] == 0 and checked["plan"] == plan.digest and checked["privacy"]["release"]
    told = " ".join(run("site", "check", "north/site.toml").out.split())
    waits = re.search(r"a round waits (\S+) s for its last site, and (\S+) s", told)
    assert "nothing was sent" in told and waits is not None and waits.groups() == ("60", "600")
    assert checked["waits"] == {"deadline": 60.0, "patience": 600.0}
    with DurableLedger.open("north/north.ledger") as ledger:
        assert not ledger.runs
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json")
    sites = {name: start("site", "run", f"{name}/site.toml", "--json") for name in NAMES}
    ends = {
        name: [json.loads(line) for line in said(process)[0].splitlines()]
        for name, process in sites.items()
    }
    for name in NAMES:
        # the mean of rows has two exchanges
        assert [line.get("round") for line in ends[name][:-1]] == [
            3,
            4,
            5,
            6,
        ]
        spending = [line["spent"] for line in ends[name]]
        assert (
            spending[0] > 0.0
            and sorted(set(spending[:-1])) == spending[:-1]
            and spending[-1] == spending[-2]
        )
        last = ends[name][-1]
        assert not {"seconds", "waited"} & last.keys()
        assert last["privacy"]["epsilon"] <= 2.0 and last["privacy"]["release"]
        assert 0.0 < last["spent"] < last["budget"] == 6.0
        page = (tmp_path / name / f"{name}.html").read_text()
        assert f"Site {name}" in page and "demonstration" not in page
    again = said(start("site", "run", "north/site.toml", "--json"))[0].splitlines()
    # it was done before
    assert len(again) == 1 and json.loads(again[0])["spent"] == ends["north"][-1]["spent"]
    (tmp_path / "east" / "east.json").unlink()
    walked = said(start("site", "run", "east/site.toml", "--json"))[0].splitlines()
    assert [json.loads(line)["spent"] for line in walked[-1:]] == [
        ends["east"][-1]["spent"]
    ] and len(walked) == 5
    status = run("hub", "status", "hub", "--json").json
    assert not status["alarms"] and all(
        site["last_message"] and site["last_heard"] for site in status["sites"]
    )
    assert status["finished"] and [site["left"] for site in status["sites"]] == ["done"] * 3
    assert "last model" in run("hub", "status", "hub").out
    hub.send_signal(signal.SIGTERM)
    start_line, end_line = map(json.loads, said(hub)[0].splitlines())
    assert start_line["page"].startswith("http://127.0.0.1:")
    assert start_line["plan"] == plan.digest and end_line == {
        "left": dict.fromkeys(NAMES, "done"),
        "finished": True,
    }
    assert json.loads((tmp_path / "hub" / "hub.json").read_text())["finished"]
    assert (tmp_path / "hub" / "hub.log").stat().st_mode & 0o077 == 0
    models = Result.load("hub/hub.npz").models[0]
    for model, name in zip(models, NAMES, strict=True):
        np.testing.assert_array_equal(model, Result.load(f"{name}/{name}.npz").models[0, 0])
    page = (tmp_path / "hub" / "hub.html").read_text()
    assert all(name in page for name in NAMES) and "Lifetime budget" not in page
    assert run("predict", "hub/hub.npz", "north.csv", "--out", "scores.csv").code == 0
    with HubLog("hub/hub.log") as log:
        assert len(log.messages("trial-1")) == 3 * 8


def test_separate_processes_find_answers_though_one_is_killed(
    run: Call, agreed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coefficients and an evaluation under sums, with the operating system's noise; east is
    killed amid the run.
    """
    monkeypatch.setattr(forecast, "REAL_WORLDS", 3)  # from how many rows is not asked here
    monkeypatch.setattr(forecast, "EVEN_WORLDS", 2)
    publics = [option for name in NAMES for option in ("--site", f"{name}/{name}.public.json")]
    wrote = run(
        "plan",
        "--write",
        "asks.json",
        "--run",
        "answers-1",
        "--schema",
        "schema.toml",
        *publics,
        "--inference",
        "--set",
        "site_constants=no",
        "--trust",
        "sum",
        "--evaluation",
        "3",
        "--set",
        "holdout=0.3",
        "--epsilon",
        "2",
    )
    held_out = re.search(r"(\d+) of (\d+) rows are held out", wrote.out)
    assert wrote.code == 0 and held_out is not None and held_out.groups() == ("270", "903")
    assert "coefficients are printed" in wrote.out
    for place in ("hub", *NAMES):
        (tmp_path / place / "plan.json").write_bytes((tmp_path / "asks.json").read_bytes())
    # no site has agreed to a plan of sums yet
    assert run("site", "check", "north/site.toml").code == 2
    for name in NAMES:
        path = tmp_path / name / "site.toml"
        path.write_text(f'agreed = "{read_plan_file("asks.json").digest}"\n{path.read_text()}')
    checked = " ".join(run("site", "check", "north/site.toml").out.split())
    assert "coefficients with intervals" in checked and "270 held-out rows" in checked
    held_here = re.search(r"(\d+) rows are held out", checked)
    assert held_here is not None and held_here[1] == "90" and "their positions" in checked
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--once")
    sites = {name: start("site", "run", f"{name}/site.toml") for name in NAMES}
    until = time.monotonic() + 200.0
    while not Path("hub/hub.log").exists() and time.monotonic() < until:
        time.sleep(0.05)
    with HubLog("hub/hub.log") as log:
        while log.last("answers-1", "east") < 3 and time.monotonic() < until:
            time.sleep(0.02)
    sites["east"].kill()
    sites["east"].communicate()
    sites["east"] = start("site", "run", "east/site.toml")
    printed = [said(process, seconds=300.0)[0] for process in (*sites.values(), hub)]
    for text in printed:
        assert (
            "odds" in text
            and "AUC" in text
            and "of held-out rows" in text
            and "weights" not in text
        )
    records = [
        json.loads((tmp_path / name / f"{name}.json").read_text())["record"]
        for name in (*NAMES, "hub")
    ]
    assert (
        all(one == records[0] for one in records) and records[0]["evaluation"]["auc"]["value"] > 0.8
    )
    for name in NAMES:
        with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
            assert ledger.to_list() == [
                event.to_dict()
                for event in read_plan_file("asks.json").planned_privacy.events(name)
            ]
    assert run("predict", "hub/hub.json", "north.csv", "--out", "scores.csv").code == 0
    assert "AUC" in said(start("site", "run", "north/site.toml"))[0]  # it was done before


def test_a_site_is_refused_in_one_line_what_it_cannot_do(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    text = (tmp_path / "north" / "site.toml").read_text()

    def refused(change: tuple[str, str], *match: str) -> None:
        (tmp_path / "north" / "site.toml").write_text(text.replace(*change))
        ran = run("site", "check", "north/site.toml")
        assert ran.code == 2 and len(ran.err.strip().splitlines()) == 1, ran.err
        assert all(part in ran.err for part in match), ran.err
        assert "4242" not in ran.err and "Traceback" not in ran.err

    refused(("north.csv", "nowhere.csv"), "there is no such file")
    refused(("north.csv", "east.csv"), "belongs to other rows")
    refused(('name = "north"', 'name = "west"'), "not a site")
    refused(('name = "north"', 'nome = "north"'), "nome", "must be one of")
    refused(("north.signing", "north.key"), "not an Ed25519 key")
    refused(("north.crt", "none.crt"), "No such file")
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA.replace("hi = 100", "hi = 99"))
    refused((str(tmp_path / "schema.toml"), str(other)), "encodes rows differently")
    plan = (tmp_path / "north" / "plan.json").read_text()
    (tmp_path / "north" / "plan.json").write_text(plan.replace('"rounds": 4', '"rounds": 5'))
    refused(("", ""), "was changed")
    table(tmp_path / "north.csv", 300, 77)
    (tmp_path / "north" / "plan.json").write_text(plan)
    refused(("", ""), "belongs to other rows")
    assert (
        run(
            "site",
            "init",
            "north",
            "--name",
            "north",
            "--hub",
            "h:1",
            "--data",
            "east.csv",
            "--schema",
            "schema.toml",
            "--epsilon",
            "1",
        ).code
        == 2
    )
    assert run("hub", "init", "hub", "--host", "127.0.0.1").code == 2
    assert run("hub", "admit", "hub", "schema.toml").code == 2
    assert run("hub", "status", "hub").code == 2
    assert run("plan", "--write", "again.json").code == 2
    assert run("plan", "--site", "north/north.public.json").code == 2
    assert run("plan", "--write", "x.json", "--site", "schema.toml").code == 2


def test_one_process_at_a_time_takes_part_for_a_site(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    lock = tmp_path / "north" / "north.lock"
    holder = (
        "import sys\nfrom pathlib import Path\nfrom sottovoce.deploy.lock import exclusive_lock\n"
    )
    holder += (
        "with exclusive_lock(Path(sys.argv[1]), 0.0):\n    print('held', flush=True)\n    input()"
    )
    command = [sys.executable, "-c", holder, str(lock)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    ran = run("site", "run", "north/site.toml")
    assert ran.code == 1 and "another process" in ran.err  # 1: a service tries again
    other.kill()  # as a crash would
    other.communicate()
    with exclusive_lock(lock, 0.0), pytest.raises(Busy), exclusive_lock(lock, 0.0):
        raise AssertionError("both hold it")
    with (
        pytest.raises(InvalidInput, match="cannot be written"),
        exclusive_lock(tmp_path / "none" / "lock", 0.0),
    ):
        raise AssertionError("there is no such folder")


def test_a_second_run_keeps_the_results_of_the_first(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    def whole_run(name: str) -> None:
        publics = [option for site in NAMES for option in ("--site", f"{site}/{site}.public.json")]
        assert (
            run(
                "plan",
                "--write",
                "plan.json",
                "--run",
                name,
                "--schema",
                "schema.toml",
                *publics,
                "--method",
                "prox_admm",
                "--rounds",
                "2",
                "--epsilon",
                "1",
                "--delta",
                "1e-5",
            ).code
            == 0
        )
        for place in ("hub", *NAMES):
            (tmp_path / place / "plan.json").write_bytes((tmp_path / "plan.json").read_bytes())
        hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json", "--once")
        sites = [start("site", "run", f"{site}/site.toml", "--json") for site in NAMES]
        for process in (*sites, hub):
            said(process)

    whole_run("one")
    first = {site: (tmp_path / site / f"{site}.npz").read_bytes() for site in NAMES}
    whole_run("two")
    for site in NAMES:
        assert (
            (tmp_path / site / f"{site}.one.npz").read_bytes()
            == first[site]
            != (tmp_path / site / f"{site}.npz").read_bytes()
        )
        assert json.loads((tmp_path / site / f"{site}.json").read_text())["run"] == "two"
        assert (tmp_path / site / f"{site}.one.html").exists() and (
            tmp_path / "hub" / "hub.one.json"
        ).exists()
    shown = run("ledger", "show", "north/north.ledger").out.splitlines()
    assert run("ledger", "verify", "north/north.ledger", "--head", shown[-1]).code == 0
    refused = run("ledger", "verify", "north/north.ledger", "--head", shown[-2])
    assert refused.code == 2 and "`sottovoce ledger show`" in refused.err


def test_keys_are_read_out_and_compared(run: Call, agreed: int, tmp_path: Path) -> None:
    table(tmp_path / "west.csv", 300, 9)
    made = run(
        "site",
        "init",
        "west",
        "--name",
        "west",
        "--hub",
        "h:1",
        "--data",
        "west.csv",
        "--schema",
        "schema.toml",
        "--epsilon",
        "1",
    )
    key = made.out.splitlines()[2].strip()
    assert len(key.split()) == 8 and key == public_key_fingerprint(
        (tmp_path / "west" / "west.csr").read_bytes()
    )
    assert key in run("hub", "admit", "hub", "west/west.csr").out
    assert key == public_key_fingerprint((tmp_path / "hub" / "west.crt").read_bytes())
    renewed = run("site", "renew", "west/site.toml")
    assert renewed.code == 0 and key not in renewed.out
    assert (
        public_key_fingerprint((tmp_path / "west" / "renewal" / "west.csr").read_bytes())
        in renewed.out
    )
    again = run("hub", "admit", "hub", "west/renewal/west.csr")
    assert again.code == 2 and "was signed before" in again.err
    assert key == public_key_fingerprint((tmp_path / "hub" / "west.crt").read_bytes())
    assert run("hub", "admit", "hub", "--renew", "west/renewal/west.csr").code == 0
    assert key != public_key_fingerprint((tmp_path / "hub" / "renewal" / "west.crt").read_bytes())
    assert run("site", "renew", "west/site.toml").code == 2  # a key is never overwritten
    authority = run("site", "check", "north/site.toml", "--json").json["authority"]
    assert authority == public_key_fingerprint((tmp_path / "hub" / "ca.crt").read_bytes()) != key


def test_a_hub_tells_its_operator_whom_it_refused(run: Call, agreed: int, tmp_path: Path) -> None:
    publics = [option for site in NAMES for option in ("--site", f"{site}/{site}.public.json")]
    assert (
        run(
            "plan",
            "--write",
            "other.json",
            "--run",
            "trial-1",
            "--schema",
            "schema.toml",
            *publics,
            "--method",
            "prox_admm",
            "--rounds",
            "3",
            "--epsilon",
            "2",
            "--delta",
            "1e-5",
        ).code
        == 0
    )
    right = (tmp_path / "north" / "plan.json").read_bytes()
    (tmp_path / "north" / "plan.json").write_bytes((tmp_path / "other.json").read_bytes())
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}")
    ran = run("site", "run", "north/site.toml")
    assert ran.code == 3 and "another plan" in ran.err
    (tmp_path / "north" / "plan.json").write_bytes(right)
    assert run("site", "check", "north/site.toml").code == 0  # the name is free for the right plan
    second = run("hub", "run", "hub", "--listen", f"127.0.0.1:{find_free_port()}")
    assert second.code == 1 and "another process" in second.err
    hub.send_signal(signal.SIGTERM)
    out = said(hub)[0]
    assert "north: refused: plan=" in out and "stopped; the same" in out


def test_a_site_says_what_it_waits_for(
    run: Call, agreed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "QUIET", 0.1)
    path = tmp_path / "north" / "site.toml"
    path.write_text(path.read_text().replace("plan = ", "patience = 1.5\nplan = ", 1))
    ran = run("site", "run", "north/site.toml")
    (trying,) = re.findall(r"hub='(\S+)': does not answer; trying for (\S+) s", ran.err)
    assert trying == (f"127.0.0.1:{agreed}", "1.5")
    assert ran.code == 1 and "answer for 1.5" in ran.err
    monkeypatch.setattr(transport, "POLL", 0.2)
    with HubLog(tmp_path / "hub.log") as log:
        credentials = Credentials(
            *(tmp_path / "hub" / file for file in ("ca.crt", "hub.crt", "hub.key"))
        )
        server, port = start_relay(
            Hub(read_plan_file("plan.json"), log), credentials, "127.0.0.1:0"
        )
        path.write_text(path.read_text().replace(str(agreed), str(port)))

        def tire() -> None:
            while log.last("trial-1", "north") < 0:
                time.sleep(0.05)
            time.sleep(1.0)  # some questions
            log.decisions.record_end_of_run("trial-1")

        tired = threading.Thread(target=tire)
        tired.start()
        ran = run("site", "run", "north/site.toml")
        tired.join()
        server.stop(0.0).wait()
    waited_for = re.findall(r"waits for ([\w, ]+) in round (\d+)", ran.err)
    assert ran.code == 4 and waited_for == [("east, south", "0")]
    assert "hub ended the" in ran.err.splitlines()[-1]


def test_a_hub_that_ends_a_run_tells_every_site(run: Call, agreed: int, tmp_path: Path) -> None:
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json", "--once")
    early = {
        name: start("site", "run", f"{name}/site.toml", "--json") for name in ("north", "east")
    }
    while (status := run("hub", "status", "hub", "--json")).code or [
        site["round"] for site in status.json["sites"]
    ] != [0, 0, -1]:
        # Before the hub serves, there is nothing to read, or an alarm that it does not run.
        assert status.code in (0, 3) or "start the hub" in status.err
        time.sleep(0.05)
    while not (told := run("hub", "status", "hub", "--json").json)["sites"][0]["last_message"]:
        time.sleep(0.05)
    north, _, south = told["sites"]
    assert (
        told["running"]
        and north["waits_for"] == ["south"]
        and north["last_heard"]
        and south["last_heard"] is None
    )
    assert "for south, which" in run("hub", "status", "hub").out
    for wrong in (
        ("hub", "end", "hub", "trial-2"),
        ("hub", "end", "north", "trial-1"),
        ("hub", "end", "hub", "../x"),
    ):
        assert run(*wrong).code == 2
    assert "is ended" in run("hub", "end", "hub", "trial-1").out
    for process in early.values():
        out, err = said(process, 4)
        last = json.loads(out.splitlines()[-1])
        ended_by_hub = "the hub ended the run"
        assert (last["stopped"], last["rounds"], last["spent"]) == (ended_by_hub, 0, 0.0)
        assert last["privacy"]["epsilon"] > 0.0
        assert f"ended early: {ended_by_hub}" in err.splitlines()[-1]
    late = run("site", "run", "south/site.toml")
    assert late.code == 4 and "0 of 5" in " ".join(late.out.split())
    out, err = said(hub, 4)
    assert json.loads(out.splitlines()[-1])["finished"] is False
    error = parse_error_line(err)
    assert err.count("\n") == 1 and (error.field, error.value) == ("run", "'trial-1'")
    assert error.rule.startswith("ended early: the")
    again = run("site", "run", "north/site.toml")  # the hub is gone
    assert again.code == 4 and "nothing is sent" in again.err
    assert "nothing to end" in run("hub", "end", "hub", "trial-1").err
    with DurableLedger.open("north/north.ledger") as ledger:
        assert ledger.rows == () and ledger.show()["runs"][0]["held"] == 0
    page = (tmp_path / "north" / "north.html").read_text()
    assert "Ended early" in page and "Seconds" not in page
    for command in (("--help",), ("site", "--help"), ("hub", "--help")):
        assert f"4 {EXITS[4]}" in " ".join(run(*command).out.split())


def test_a_plan_that_the_ledger_cannot_pay_for_is_refused_before_anything_is_sent(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    publics = [option for name in NAMES for option in ("--site", f"{name}/{name}.public.json")]
    dear = ("--method", "prox_admm", "--rounds", "4", "--epsilon", "9", "--delta", "1e-5")
    assert (
        run(
            "plan",
            "--write",
            "plan.json",
            "--run",
            "dear",
            "--schema",
            "schema.toml",
            *publics,
            *dear,
        ).code
        == 0
    )
    (tmp_path / "north" / "plan.json").write_bytes((tmp_path / "plan.json").read_bytes())
    ran = run("site", "check", "north/site.toml")
    assert ran.code == 2 and "nothing was reserved" in ran.err


def test_the_demonstration_is_the_run_of_one_process(run: Call) -> None:
    report = run("demo", "--sites", "3", "--rounds", "3", "--json", "--keep", "shown").json
    assert report["difference"] == 0.0 and report["rounds"] == 3 and report["transport"] == "relay"
    assert report["seconds_per_round"] > 0.0 and 0.0 < report["test_error"] < 0.25
    assert report["privacy"]["epsilon"] <= 1.0 and not report["privacy"]["release"]
    assert report["demonstration"] == DEMONSTRATION
    for name in NAMES:
        with DurableLedger.open(f"shown/{name}/{name}.ledger") as ledger:
            # the mean of rows, and three rounds
            assert ledger.demonstration and len(ledger.rows) == 4
        assert "not a release" in Path(f"shown/{name}/{name}.html").read_text()
    assert "not a release" in Path("shown/hub/hub.html").read_text()
    # The command of a real site takes no part of it for a release: a real ledger refuses the plan.
    Path("shown/north/north.ledger").unlink()
    Path("shown/north/north.json").unlink()
    DurableLedger.create(
        "shown/north/north.ledger", epsilon=3.0, delta=1e-5, accountant="rdp"
    ).close()
    ran = run("site", "run", "shown/north/site.toml")
    assert ran.code != 0


def test_the_demonstration_of_sums_is_the_run_of_one_process(run: Call) -> None:
    report = run(
        "demo", "--trust", "sum", "--sites", "3", "--rounds", "3", "--json", "--keep", "shown"
    ).json
    assert (
        report["difference"] == 0.0
        and report["rounds"] == 3
        and report["privacy"]["trust"]["kind"] == "sum"
    )
    assert report["privacy"]["epsilon"] <= 1.0 < report["privacy"]["alone"]
    for name in NAMES:
        with DurableLedger.open(f"shown/{name}/{name}.ledger") as ledger:
            assert len(ledger.rows) == 4
        assert not list(Path(f"shown/{name}").glob("*.masks"))
    page = Path("shown/hub/hub.html").read_text()
    sums = re.search(r"over at least (\d+) of (\d+) sites, (\d+) of which may collude", page)
    assert "no single share" in page and sums is not None and sums.groups() == ("3", "3", "1")


@pytest.mark.parametrize("option", ["--patience", "--greeting"])
@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan"])
def test_a_waiting_time_of_a_hub_must_be_finite_and_above_zero(
    run: Call, agreed: int, option: str, seconds: str
) -> None:
    ran = run("hub", "run", "hub", option, seconds)
    error = parse_error_line(ran.err)
    assert (ran.code, error.field, error.value) == (2, option[2:], repr(float(seconds)))
    assert "above 0" in error.rule


def test_a_site_sees_before_it_runs_that_it_cannot_connect(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    """Keys and certificates of another site or authority, and a hub without a port."""
    north = tmp_path / "north"
    answer = json.loads(run("site", "check", "north/site.toml", "--json").out)
    assert answer["spent"] == 0.0 and 0.0 < answer["takes"] <= answer["budget"]

    def refused(file: str, content: bytes, match: str) -> None:
        before = (north / file).read_bytes()
        (north / file).write_bytes(content)
        for command in ("check", "run"):
            ran = run("site", command, "north/site.toml")
            assert ran.code == 2 and match in ran.err and len(ran.err.strip().splitlines()) == 1, (
                ran.err
            )
        (north / file).write_bytes(before)

    refused("north.crt", (tmp_path / "south" / "south.crt").read_bytes(), "does not belong")
    assert run("hub", "init", "foreign", "--host", "127.0.0.1").code == 0
    refused("ca.crt", (tmp_path / "foreign" / "ca.crt").read_bytes(), "was not signed")
    text = (north / "site.toml").read_text()
    refused(
        "site.toml", text.replace(f"127.0.0.1:{agreed}", "127.0.0.1").encode(), "must be HOST:PORT"
    )
    refused("site.toml", text.replace('name = "north"', "name = ").encode(), "is not TOML")


def test_a_demonstration_writes_into_no_folder_that_is_in_use(run: Call, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "hub.html").write_text("a run")
    ran = run("demo", "--keep", "hub")
    assert ran.code == 2 and "already holds files" in ran.err
    assert [path.name for path in (tmp_path / "hub").iterdir()] == ["hub.html"]


# Labels of other kinds than two classes

LABEL = 'label = {column = "ill", positive = "yes", negative = "no"}'
OTHER_LABELS = {
    "classes": (
        SCHEMA.replace(LABEL, 'label = {column = "ill", values = ["no", "yes", "unknown"]}'),
        "softmax:3",
        9,
    ),
    "numbers": (
        SCHEMA[: SCHEMA.index("[columns.age]")].replace(
            LABEL, 'label = {column = "age", lo = 0, hi = 100}\nignore = ["ill"]'
        ),
        "huber-residual:0.25",
        2,
    ),
}


@pytest.mark.parametrize("labels", OTHER_LABELS)
def test_a_plan_has_the_loss_of_the_labels_and_its_sites_run_it(
    run: Call, tmp_path: Path, labels: str
) -> None:
    schema, loss, entries = OTHER_LABELS[labels]
    port = agree(run, tmp_path, schema)
    plan = read_plan_file("plan.json")
    assert plan.config.loss == loss and plan.d == entries
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{port}", "--json", "--once")
    for process in [start("site", "run", f"{name}/site.toml", "--json") for name in NAMES]:
        said(process)
    assert json.loads(said(hub)[0].splitlines()[-1])["finished"]
    model = Result.load(str(tmp_path / "north" / "north.npz"))
    assert np.all(np.isfinite(model.consensus))


def test_a_plan_with_a_loss_of_other_labels_is_refused_before_anybody_agrees(
    run: Call, tmp_path: Path, agreed: int
) -> None:
    (tmp_path / "plan.json").unlink()
    publics = [option for name in NAMES for option in ("--site", f"{name}/{name}.public.json")]
    words = ("--run", "two", "--schema", "schema.toml", *publics, "--method", "prox_admm")
    budget = ("--epsilon", "1", "--delta", "1e-5", "--set", "loss=huber-residual:0.25")
    refused = run("plan", "--write", "plan.json", *words, *budget)
    assert refused.code == 2 and "loss" in refused.err and not (tmp_path / "plan.json").exists()


# What a stranger and a full disk do to a hub: nothing that lasts


def start_limited(descriptors: int, *arguments: str) -> subprocess.Popen[str]:
    """A program that may open only so many files."""
    limited = (
        "import resource, sys; from sottovoce.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))\n"
        "main(sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", limited, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for_port(port: int, process: subprocess.Popen[str]) -> None:
    while True:
        assert process.poll() is None, process.communicate()[1]
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def test_silent_connections_beyond_the_descriptors_do_not_end_a_hub(agreed: int) -> None:
    """Strangers hold all of the hub's file descriptors; the run ends as if they were not there,
    and no certificate is said to be wrong.
    """
    hub = start_limited(
        256, "hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json", "--once"
    )
    wait_for_port(agreed, hub)
    with contextlib.ExitStack() as strangers:
        for _ in range(400):
            stranger = strangers.enter_context(socket.socket())
            stranger.settimeout(2.0)
            with contextlib.suppress(OSError):  # the backlog may be full: that is their trouble
                stranger.connect(("127.0.0.1", agreed))
        # longer than the hub waits for a handshake, and than between two writes of its status
        time.sleep(12.0)
        assert hub.poll() is None, hub.communicate()[1]
        for process in [start("site", "run", f"{name}/site.toml", "--json") for name in NAMES]:
            said(process)
    out, _ = said(hub)
    alarms = [
        line["alarm"]["alarm"] for line in map(json.loads, out.splitlines()) if "alarm" in line
    ]
    assert "certificate" not in alarms and json.loads(out.splitlines()[-1])["finished"]


@pytest.fixture
def small_disk(agreed: int, tmp_path: Path) -> Iterator[Path]:
    """The hub's folder on a disk of 2 MiB of its own."""
    hub, place = tmp_path / "hub", tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    try:
        allowed = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("this user may not mount a small disk")
    shutil.copytree(hub, place / "hub")
    shutil.rmtree(hub)
    hub.symlink_to(place / "hub")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_under_a_hub_is_waited_for(agreed: int, small_disk: Path) -> None:
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json", "--once")
    wait_for_port(agreed, hub)
    filler = (small_disk / "filler").open("wb", buffering=0)
    with contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    sites = [start("site", "run", f"{name}/site.toml", "--json") for name in NAMES]
    time.sleep(6.0)  # three writes of the hub's status, none of which succeeds
    assert hub.poll() is None, hub.communicate()[1]
    assert all(process.poll() is None for process in sites)
    filler.close()
    (small_disk / "filler").unlink()
    for process in sites:
        said(process)
    out, _ = said(hub)
    assert json.loads(out.splitlines()[-1])["finished"]
