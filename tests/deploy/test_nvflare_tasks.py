"""The two ends of a job without NVFlare between them: sessions on one side, the hub's log on the
other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sites_in_tests import Consortium, consortium
from tasks_in_tests import SILENT

from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import HUB
from sottovoce.deploy.nvflare import __main__ as entry
from sottovoce.deploy.nvflare import layout, tasks
from sottovoce.deploy.nvflare.__main__ import main
from sottovoce.deploy.nvflare.provision import describe_project, read_hardened_policy
from sottovoce.deploy.nvflare.supervisor import Supervisor, write_job_folder
from sottovoce.deploy.nvflare.tasks import Post, TaskTransport, serve_one_site, serve_sites
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.requests import request_and_reply_sizes
from sottovoce.errors import EndedEarly, InvalidInput, Refused, SottovoceError, Unreachable
from sottovoce.ledger.journal import Journal
from sottovoce.util.plain import canonical_json

Twist = Callable[[str, dict[str, Any]], dict[str, Any] | None]


class Job:
    """What NVFlare does: it takes each task to its site and the result back."""

    def __init__(
        self, sites: Consortium, hub: Hub, twist: Twist = lambda name, result: result
    ) -> None:
        self._sites, self._hub, self._twist = sites, hub, twist
        self._posts = {name: Post() for name in sites.plan.names}
        self._over, self._counting, self._left = threading.Event(), threading.Lock(), 0
        self.models: dict[str, Any] = {}

    def run(self, results: int = 10**6) -> str | None:
        """Until all have ended, or after so many results."""
        self._left = results
        sessions = [
            threading.Thread(target=self._site, args=(name,)) for name in self._sites.plan.names
        ]
        for session in sessions:
            session.start()
        failure = serve_sites(self._hub, self._carry, self._over)
        for post in self._posts.values():
            post.close_with_reason("the job is over")
        for session in sessions:
            session.join()
        return failure

    def _carry(self, site: str, task: dict[str, Any]) -> dict[str, Any] | None:
        result = {}
        while not result and not self._over.is_set():
            result, task = self._posts[site].carry_task(task, 0.05), {}
        with self._counting:
            self._left -= 1
            if self._left < 0:
                self._over.set()
        return None if self._over.is_set() else self._twist(site, result)

    def _site(self, name: str) -> None:
        post, failed = self._posts[name], ""
        try:
            self.models[name] = self._sites.run_site(
                name, TaskTransport(self._sites.plan, post)
            ).model
        except SottovoceError as error:
            failed = str(error)
        finally:
            post.end_session(failed)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    # or a thread that waits in vain would end after five seconds
    monkeypatch.setattr(tasks, "PATIENCE", 0.2)


def test_a_job_gives_the_models_of_the_local_run(
    sites: Consortium, hub: Hub, tmp_path: Path
) -> None:
    job = Job(sites, hub)
    assert job.run() is None
    twin = consortium(tmp_path / "twin")
    with HubLog(tmp_path / "twin.log") as log:
        finished = twin.run_locally(log)
    for name in sites.plan.names:
        np.testing.assert_array_equal(job.models[name], finished[name].model)


@pytest.mark.parametrize("results", [1, 4, 9, 14, 19])
def test_a_second_job_goes_on_where_the_first_was_cut_off(
    sites: Consortium, hub: Hub, results: int
) -> None:
    Job(sites, hub).run(results)
    before = hub.log.messages(sites.plan.run)
    job = Job(sites, hub)
    assert job.run() is None
    after = hub.log.messages(sites.plan.run)
    assert before.items() <= after.items() and set(job.models) == set(sites.plan.names)
    for name in sites.plan.names:
        with sites.ledger(name) as ledger:
            assert len(ledger.rows) == sites.plan.config.rounds
            for k in range(sites.plan.config.rounds + 2):
                assert Journal(ledger, sites.plan.run).sent(k) == after[k, name]


def test_a_site_that_does_not_answer_ends_the_job(sites: Consortium, hub: Hub) -> None:
    failure = Job(sites, hub, lambda name, result: None if name == "east" else result).run()
    assert failure == SILENT.format("east")


def test_a_forged_message_is_refused(sites: Consortium, hub: Hub) -> None:
    def forge(name: str, result: dict[str, Any]) -> dict[str, Any]:
        asked = json.loads(result.get(tasks.REQUEST, b"{}"))
        if name == "east" and asked.get("round") == 2:
            asked["message"] = sites.sealed("north", 2).decode()
            result = result | {tasks.REQUEST: json.dumps(asked).encode()}
        return result

    failure = Job(sites, hub, forge).run()
    assert failure is not None and "names another sender" in failure
    assert (2, "east") not in hub.log.messages(sites.plan.run)


def test_site_without_signed_farewell_fails_job(sites: Consortium, hub: Hub) -> None:
    failure = serve_sites(hub, lambda site, task: {tasks.ENDED: ""}, threading.Event())
    assert failure is not None and failure.endswith("signed farewell")


def test_end_message_of_site_is_made_printable(sites: Consortium, hub: Hub) -> None:
    failure = serve_one_site(hub, "east", lambda site, task: {tasks.ENDED: "\x1b[2J" + "x" * 10**6})
    assert failure is not None and failure.isprintable() and len(failure) < 1000


def test_the_hub_ends_a_run_whose_sites_wait(sites: Consortium, hub: Hub, tmp_path: Path) -> None:
    def end(name: str, result: dict[str, Any]) -> dict[str, Any]:
        if b'"round":2' in result.get(tasks.REQUEST, b""):
            hub.log.decisions.record_end_of_run(sites.plan.run)
        return result

    assert Job(sites, hub, end).run() is None
    assert HUB in hub.gone().values() and hub.all_sites_left
    supervisor: Any = SimpleNamespace(_hub=tmp_path, plan=sites.plan)
    with pytest.raises(EndedEarly, match="the hub ended"):
        Supervisor._check_and_report(supervisor)


def test_a_supervisor_that_ends_early_says_so_to_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code in (
        (EndedEarly("run='trial': ended early"), 4),
        (Refused("no"), 3),
        (Unreachable("no"), 1),
    ):

        def fail(error: SottovoceError = error, **_: str) -> None:
            raise error

        monkeypatch.setattr(entry, "main", fail)
        with pytest.raises(SystemExit) as stop:
            entry.start()
        assert stop.value.code == code and capsys.readouterr().err == f"Error: {error}\n"


SERVER_LOG = "the server's log says why"
NO_REQUESTS = [
    {tasks.REQUEST: b"{}"},
    {tasks.METHOD: "highest"},
    {tasks.METHOD: ["highest"], tasks.REQUEST: b"{}"},
    {tasks.METHOD: "highest", tasks.REQUEST: "{}"},
    {tasks.METHOD: "highest", tasks.REQUEST: 1},
    {tasks.METHOD: "highest", tasks.REQUEST: b"[" * 10**5},
    {tasks.METHOD: "exchange", tasks.REQUEST: b"no JSON"},
]


@pytest.mark.parametrize("result", NO_REQUESTS, ids=range(len(NO_REQUESTS)))
def test_malformed_request_is_refused(sites: Consortium, hub: Hub, result: dict[str, Any]) -> None:
    results, told = [{tasks.NUMBER: 7} | result, None], list[dict[str, Any]]()

    def carry(site: str, task: dict[str, Any]) -> dict[str, Any] | None:
        told.append(task)
        return results.pop(0)

    serve_one_site(hub, "east", carry)
    assert (
        told[0] == {}
        and told[1].keys() == {tasks.NUMBER, tasks.REFUSED}
        and told[1][tasks.NUMBER] == 7
    )
    assert not hub.log.messages(sites.plan.run) and not hub.log.gone(sites.plan.run)


def test_a_request_that_is_too_long_is_refused(sites: Consortium, hub: Hub) -> None:
    longest = request_and_reply_sizes(sites.plan)[0]
    results: list[dict[str, Any] | None] = [
        {tasks.NUMBER: k, tasks.METHOD: "highest", tasks.REQUEST: text}
        for k, text in enumerate(
            canonical_json({"run": sites.plan.run, "plan": sites.plan.digest}).encode().ljust(size)
            for size in (longest, longest + 1)
        )
    ] + [None]
    told = list[dict[str, Any]]()
    serve_one_site(hub, "east", lambda site, task: told.append(task) or results.pop(0))
    assert tasks.REPLY in told[1] and tasks.REFUSED in told[2]


def asking(sites: Consortium) -> tuple[Post, Future[int]]:
    """A session that asks for the highest round."""
    post, pool = Post(), ThreadPoolExecutor(1)
    outcome = pool.submit(TaskTransport(sites.plan, post).highest_stored_round, sites.plan.digest)
    pool.shutdown(wait=False)
    asked = post.carry_task({}, 30.0)
    assert (asked[tasks.NUMBER], asked[tasks.METHOD]) == (1, "highest")
    return post, outcome


REPLIES = [
    ({tasks.REPLY: b'{"highest":3}'}, 3),
    ({tasks.REFUSED: "no\x1b"}, r"the hub refused: no\?$"),
    ({}, "another version"),
    ({tasks.REPLY: b"[]"}, "another version"),
    ({tasks.REPLY: 3}, "another version"),
    ({tasks.REPLY: b'{"highest":-1}'}, "another version"),
    ({tasks.REPLY: b"{}".ljust(10**6)}, "another version"),
]


@pytest.mark.parametrize(("reply", "expected"), REPLIES, ids=range(len(REPLIES)))
def test_what_a_task_brings_reaches_the_session(
    sites: Consortium, reply: dict[str, Any], expected: int | str
) -> None:
    post, outcome = asking(sites)
    for other in (
        {},
        reply,
        {tasks.NUMBER: 0} | reply,
        {tasks.NUMBER: 2} | reply,
    ):  # to no request, or another one
        assert post.carry_task(other, 0.01)[tasks.NUMBER] == 1
    assert not outcome.done()
    post.carry_task({tasks.NUMBER: 1} | reply, 0.0)
    if isinstance(expected, int):
        assert outcome.result(30.0) == expected
    else:
        with pytest.raises(Refused, match=expected):
            outcome.result(30.0)


def test_end_of_job_does_not_end_run(sites: Consortium) -> None:
    post, outcome = asking(sites)
    post.close_with_reason("the server went away")
    with pytest.raises(Unreachable, match="went away"):
        outcome.result(30.0)
    with pytest.raises(Unreachable, match="went away"):
        TaskTransport(sites.plan, post).highest_stored_round(sites.plan.digest)


def test_busy_site_gives_empty_reply(sites: Consortium, hub: Hub) -> None:
    post = Post()
    assert post.carry_task({}, 0.01) == {}
    results: list[dict[str, Any] | None] = [{}, {}, None]
    assert serve_one_site(hub, "east", lambda site, task: results.pop(0)) == SILENT.format("east")
    post.end_session("")
    assert post.carry_task({}, 30.0) == {tasks.ENDED: ""}


def test_internal_hub_error_is_recorded_as_hub_failure(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor repeats the last words of a job: they name no site for what the hub could
    not do.
    """
    pytest.importorskip("nvflare")
    from nvflare.apis.shareable import Shareable
    from nvflare.apis.signal import Signal

    from sottovoce.deploy.nvflare.controller import SiteController

    def broken(self: Hub, site: str) -> int:
        raise KeyError("north")

    def send(task: Any, fl_ctx: Any, targets: list[str]) -> None:
        result = Shareable()
        asked = canonical_json({"run": sites.plan.run, "plan": sites.plan.digest}).encode()
        result.update({tasks.NUMBER: 1, tasks.METHOD: "highest", tasks.REQUEST: asked})
        task.result_received_cb(SimpleNamespace(result=result), fl_ctx)

    write_plan_file(sites.plan, tmp_path / layout.PLAN_FILE)
    (tmp_path / layout.LAST_FAILURE).write_text("site 'north' stopped")  # of an earlier job
    monkeypatch.setattr(Hub, "highest_round_of", broken)
    controller = SiteController()
    monkeypatch.setattr(controller, "send", send)
    controller._folder = tmp_path
    with pytest.raises(KeyError):
        controller.control_flow(Signal(), None)
    said = (tmp_path / layout.LAST_FAILURE).read_text()
    reason, _, where = said.partition("; ")
    # the class of the error, and nothing of its content
    assert reason.endswith(": KeyError") and "north" not in said
    assert where == f"{SERVER_LOG}\n"


def test_a_job_holds_no_code_and_no_plan(sites: Consortium, tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "job", sites.plan)
    files = {file.relative_to(job).as_posix() for file in job.rglob("*") if file.is_file()}
    assert files == {
        "meta.json",
        "hub/config/config_fed_server.json",
        "site/config/config_fed_client.json",
    }
    assert sites.plan.digest not in "".join((job / file).read_text() for file in files)


def test_the_command_writes_a_project_without_nvflare(sites: Consortium, tmp_path: Path) -> None:
    write_plan_file(sites.plan, tmp_path / "plan.json")
    options = [
        "--server",
        "hub.example.org",
        "--store",
        "/srv/jobs",
        "--workspace",
        str(tmp_path / "kits"),
    ]
    arguments = [
        "provision",
        str(tmp_path / "plan.json"),
        *options,
        "--project",
        str(tmp_path / "project.yml"),
    ]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0 and "nvflare provision -p" in done.output
    description = json.loads((tmp_path / "project.yml").read_text())
    clients = [one["name"] for one in description["participants"] if one["type"] == "client"]
    assert clients == list(sites.plan.names)
    assert any(
        builder["path"].endswith("policies.HardenedPolicies") for builder in description["builders"]
    )


def test_a_hub_with_the_name_of_a_site_is_refused(sites: Consortium) -> None:
    with pytest.raises(InvalidInput, match=r"^server='North': "):
        describe_project(sites.plan, "North", 8002, store="/srv/jobs")


@pytest.mark.parametrize("name", ["server", "client"])
def test_shipped_policies_allow_one_own_class(name: str) -> None:
    policy = read_hardened_policy(name)
    (allowed,) = policy["class_allow_list"]
    module, _, cls = allowed.rpartition(".")
    source = Path(layout.__file__).parent / f"{module.rpartition('.')[2]}.py"
    assert f"class {cls}(" in source.read_text()
    assert (
        policy["class_list_enforcement_mode"] == "enforce"
        and policy.get("allow_log_streaming", False) is False
    )
