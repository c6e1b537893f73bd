"""What a hub tells besides its console, by commands: health and metrics, an exit code for alarms, a
command for each alarm, and a log of JSON lines.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from command_line import Call
from test_cli_sites import NAMES, agreed, said, start

from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.plan_file import read_plan_file

assert agreed  # a fixture
pytest.importorskip("grpc")
pytest.importorskip("cryptography")


def asked(port: int, path: str, until: float) -> str:
    """The reply of a hub's server of metrics, once there is one."""
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5.0) as reply:
                return str(reply.read().decode())
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_hub_tells_health_metrics_alarms_and_events(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    plan, until, port = read_plan_file("plan.json"), time.monotonic() + 120.0, find_free_port()
    script = tmp_path / "tell us.py"
    script.write_text("import sys\nopen('got.jsonl', 'a').write(sys.stdin.read())\nsys.exit(7)\n")
    (tmp_path / "hub" / "hub.toml").write_text(
        f'metrics = "127.0.0.1:{port}"\n'
        f"on_alarm = {json.dumps([sys.executable, str(script)])}\n"
        'log_json = "hub.jsonl"\n'
    )
    hub = start("hub", "run", "hub", "--listen", f"127.0.0.1:{agreed}", "--json")
    told = json.loads(asked(port, "healthz", until))
    assert (told["state"], told["plan"]) == ("serving", plan.digest)
    assert 'sites{run="trial-1"} 3' in asked(port, "metrics", until)
    while run("hub", "status", "hub").code:  # until its times are written for the first time
        assert time.monotonic() < until and hub.poll() is None
    # a file that was damaged: an alarm, which no site's run depends on
    certificate = (tmp_path / "hub" / "north.crt").read_bytes()
    (tmp_path / "hub" / "north.crt").write_bytes(b"damaged")
    for flags in ((), ("--json",)):
        status = run("hub", "status", "hub", *flags)
        assert status.code == 3 and "north.crt is not" in status.out
    assert status.json["alarms"][0]["about"] == "north.crt"
    while not Path("got.jsonl").exists():
        assert time.monotonic() < until and hub.poll() is None
        time.sleep(0.2)
    (tmp_path / "hub" / "north.crt").write_bytes(certificate)
    logs = ("--log-json", "north.jsonl")
    sites = [
        start("site", "run", f"{name}/site.toml", "--json", *(logs if name == "north" else ()))
        for name in NAMES
    ]
    for process in sites:
        said(process)
    while json.loads(asked(port, "healthz", until))["state"] != "over":
        time.sleep(0.2)
    metrics = asked(port, "metrics", until)
    assert 'rounds_done{run="trial-1"} 6' in metrics and 'messages{run="trial-1"} 24' in metrics
    assert run("hub", "status", "hub", "--json").code == 0
    hub.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in said(hub)[0].splitlines()]
    assert lines[0]["metrics"] == f"http://127.0.0.1:{port}/"
    [alarm] = [json.loads(line) for line in Path("got.jsonl").read_text().splitlines()]
    assert (alarm["alarm"], alarm["about"], alarm["run"]) == ("certificate", "north.crt", "trial-1")
    # the command failed: that is told, and ended nothing
    assert any("code 7" in line.get("trouble", "") for line in lines)
    events = [json.loads(line) for line in Path("hub/hub.jsonl").read_text().splitlines()]
    assert {event["plan"] for event in events} == {plan.digest}
    assert {event["who"] for event in events} == {"hub"} and all(event["at"] for event in events)
    assert [event["what"] for event in events if event["what"] != "waiting"] == [
        "serving",
        "alarm",
        "trouble",
        "every site has left",
    ]
    own = [json.loads(line) for line in Path("north.jsonl").read_text().splitlines()]
    assert {(event["who"], event["plan"]) for event in own} == {("north", plan.digest)}
    assert own[0]["what"] == "begins" and own[-1]["what"] == "ends"
    # the one column with values that nothing else has: none of them is anywhere
    rows = Path("north.csv").read_text().splitlines()[1:]
    told_texts = [Path(name).read_text() for name in ("hub/hub.jsonl", "north.jsonl")] + [metrics]
    words = {
        word for text in told_texts for word in text.replace('"', " ").replace(",", " ").split()
    }
    assert not {row.split(",")[0] for row in rows if len(row.split(",")[0]) == 4} & words


def test_settings_and_outlets_that_cannot_work_are_refused_by_name(
    run: Call, agreed: int, tmp_path: Path
) -> None:
    listen = ("--listen", f"127.0.0.1:{agreed}")
    for wrong, field in (
        (("--metrics", "8445"), "metrics"),
        (("--on-alarm", ""), "on_alarm"),
        (("--log-json", "none/hub.jsonl"), "log_json"),
    ):
        ran = run("hub", "run", "hub", *listen, *wrong)
        assert ran.code == 2 and ran.err.startswith(f"error: {field}=")
    (tmp_path / "hub" / "hub.toml").write_text("metrics = true\n")
    ran = run("hub", "run", "hub", *listen)
    assert ran.code == 2 and ran.err.startswith("error: metrics")
