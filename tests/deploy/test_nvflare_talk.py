"""The two ends of a job without NVFlare between them: sessions on one side, the hub's log on the other."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sites_in_tests import Consortium, consortium

from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.nvflare import __main__ as entry
from sottovoce.deploy.nvflare import words
from sottovoce.deploy.nvflare.__main__ import main
from sottovoce.deploy.nvflare.provision import hardened, project
from sottovoce.deploy.nvflare.supervisor import Supervisor, write_job
from sottovoce.deploy.nvflare.talk import Talk
from sottovoce.deploy.nvflare.tasks import TaskTransport
from sottovoce.errors import EndedEarly, InvalidInput, Refused, SottovoceError, TransportClosed, Unreachable
from sottovoce.ledger.journal import Journal


class Job:
    """What NVFlare does: it takes each task to its site and the result back, in a thread a site."""

    def __init__(
        self, sites: Consortium, hub: Hub, twist: Callable[[str, dict[str, Any]], dict[str, Any] | None]
    ) -> None:
        self.talk, self._results, self._twist = Talk(hub), queue.Queue[tuple[str, dict[str, Any] | None]](), twist
        self._tasks = {name: queue.Queue[dict[str, Any] | None]() for name in sites.plan.names}
        self._threads = [threading.Thread(target=self._site, args=(sites, name)) for name in sites.plan.names]
        self.models: dict[str, Any] = {}

    def run(self, results: int = 10**6) -> Talk:
        """Until all have ended, or after so many results."""
        for thread in self._threads:
            thread.start()
        tasks = list(self.talk.open())
        while not self.talk.over and results:
            for name, task in tasks:
                self._tasks[name].put(task)
            tasks, results = list(self.talk.hear(*self._results.get(timeout=60.0))), results - 1
        for tasks_of_site in self._tasks.values():
            tasks_of_site.put(None)
        for thread in self._threads:
            thread.join()
        return self.talk

    def _site(self, sites: Consortium, name: str) -> None:
        transport, done, failed = TaskTransport(), threading.Event(), list[str]()

        def work() -> None:
            try:
                self.models[name] = sites.run_site(name, transport).model
            except SottovoceError as error:
                failed.append(str(error))
            finally:
                done.set()
                transport.nudge()

        session = threading.Thread(target=work)
        session.start()
        while (task := self._tasks[name].get()) is not None:
            transport.take(task)
            transport.wait(done, 30.0)
            result = transport.says()
            if done.is_set():
                result |= {words.STATE: words.FAILED if failed else words.FINISHED, words.REASON: "".join(failed)}
            self._results.put((name, self._twist(name, result)))
        transport.end("the job is over")
        session.join()


def honest(name: str, result: dict[str, Any]) -> dict[str, Any]:
    return result


def test_a_job_gives_the_models_of_the_local_run(sites: Consortium, hub: Hub, tmp_path: Path) -> None:
    job = Job(sites, hub, honest)
    assert job.run().failure is None
    twin = consortium(tmp_path / "twin")
    with HubLog(tmp_path / "twin.log") as log:
        finished = twin.run_locally(log)
    for name in sites.plan.names:
        np.testing.assert_array_equal(job.models[name], finished[name].model)


@pytest.mark.parametrize("results", [1, 4, 9, 14, 19])
def test_a_second_job_goes_on_where_the_first_was_cut_off(sites: Consortium, hub: Hub, results: int) -> None:
    Job(sites, hub, honest).run(results)
    before = hub.log.messages(sites.plan.run)
    job = Job(sites, hub, honest)
    assert job.run().failure is None
    after = hub.log.messages(sites.plan.run)
    assert before.items() <= after.items() and set(job.models) == set(sites.plan.names)
    for name in sites.plan.names:
        with sites.ledger(name) as ledger:
            assert len(ledger.rows) == sites.plan.config.rounds
            for k in range(sites.plan.config.rounds + 2):
                assert Journal(ledger, sites.plan.run).sent(k) == after[k, name]


def test_a_site_that_does_not_answer_ends_the_job(sites: Consortium, hub: Hub) -> None:
    talk = Job(sites, hub, lambda name, result: None if name == "east" else result).run()
    assert talk.over and talk.failure is not None and "'east' does not answer" in talk.failure


def test_a_forged_message_is_refused(sites: Consortium, hub: Hub) -> None:
    def forge(name: str, result: dict[str, Any]) -> dict[str, Any]:
        if name == "east" and result.get(words.ROUND) == 2:
            result[words.MESSAGE] = sites.sealed("north", 2)
        return result

    talk = Job(sites, hub, forge).run()
    assert talk.failure is not None and "names another sender" in talk.failure
    assert (2, "east") not in hub.log.messages(sites.plan.run)


def test_a_leave_that_a_site_did_not_sign_ends_no_job(sites: Consortium, hub: Hub) -> None:
    lies = iter([b"", b"its budget is spent", sites.farewell("north", 2), sites.farewell("east", 1)] * 9)

    def forge(name: str, result: dict[str, Any]) -> dict[str, Any]:
        if name == "east" and result.get(words.STATE) == words.WAITING:
            result[words.LEFT] = next(lies)
        return result

    job = Job(sites, hub, forge)
    assert job.run().failure is None and set(job.models) == set(sites.plan.names)
    assert hub.gone() == dict.fromkeys(sorted(sites.plan.names), "done")


def test_a_site_that_stops_without_its_signed_word_has_failed(sites: Consortium, hub: Hub) -> None:
    talk = Talk(hub)
    assert not talk.hear("east", {words.STATE: words.FINISHED, words.LEFT: sites.farewell("north", 0)})
    assert talk.over and talk.failure == "site 'east' stopped, and has not signed that it leaves"


def test_the_hub_ends_a_run_whose_sites_wait(sites: Consortium, hub: Hub, tmp_path: Path) -> None:
    talk = Talk(hub)
    for name in ("east", "north"):
        waiting = {words.STATE: words.WAITING, words.ROUND: 0, words.MESSAGE: sites.sealed(name, 0)}
        assert not talk.hear(name, waiting)
    assert not talk.look()
    hub.log.end(sites.plan.run)
    told = dict(talk.look())
    assert set(told) == {"east", "north"} and not talk.look()
    assert "the hub ended the run" in told["east"][words.CLOSED] and told["east"][words.SITE] is None
    job = Job(sites, hub, honest)
    assert job.run().failure is None
    assert set(hub.gone().values()) == {"the hub ended the run"} and hub.over
    supervisor: Any = SimpleNamespace(_hub=tmp_path, plan=sites.plan)
    with pytest.raises(EndedEarly, match="the hub ended it"):
        Supervisor._check(supervisor)


def test_a_supervisor_that_ends_early_says_so_to_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code in ((EndedEarly("run='trial': ended early"), 4), (Refused("no"), 3), (Unreachable("no"), 1)):

        def fail(error: SottovoceError = error, **_: str) -> None:
            raise error

        monkeypatch.setattr(entry, "main", fail)
        with pytest.raises(SystemExit) as stop:
            entry.start()
        assert stop.value.code == code and capsys.readouterr().err == f"Error: {error}\n"


def test_another_message_of_a_round_is_refused(sites: Consortium, hub: Hub) -> None:
    Job(sites, hub, honest).run(12)
    first = hub.log.messages(sites.plan.run)[1, "east"]
    talk = Talk(hub)
    other = sites.sealed("east", 1, np.ones(sites.plan.d))
    told = talk.hear("east", {words.STATE: words.WAITING, words.ROUND: 1, words.MESSAGE: other})
    assert "has sent another message" in dict(told)["east"][words.REFUSED]
    assert hub.log.messages(sites.plan.run)[1, "east"] == first


def test_who_waits_for_a_site_that_left_is_told(sites: Consortium, hub: Hub) -> None:
    talk = Talk(hub)
    assert not talk.hear("east", {words.STATE: words.WAITING, words.ROUND: 0, words.MESSAGE: sites.sealed("east", 0)})
    left = sites.farewell("north", 0)
    told = dict(talk.hear("north", {words.STATE: words.WORKING, words.LEFT: left}))
    assert "'north' left" in told["east"][words.CLOSED] and told["north"] == {}
    assert (told["east"][words.SITE], told["east"][words.FAREWELL]) == ("north", left)


@pytest.mark.parametrize(
    "result",
    [{}, {words.STATE: "?"}, {words.STATE: words.WAITING},
     {words.STATE: words.WAITING, words.ROUND: True, words.MESSAGE: b""},
     {words.STATE: words.WAITING, words.ROUND: 0, words.MESSAGE: "text"}, {words.STATE: words.WORKING, words.LEFT: 1}],
)  # fmt: skip
def test_a_result_that_makes_no_sense_is_asked_again(sites: Consortium, hub: Hub, result: dict[str, Any]) -> None:
    assert list(Talk(hub).hear("east", result)) == [("east", {})]
    assert not hub.log.messages(sites.plan.run) and not hub.log.gone(sites.plan.run)


def exchanging(transport: TaskTransport, done: threading.Event) -> list[BaseException | dict[str, bytes]]:
    """The outcome of an exchange of round 3, as a list that fills when `done` is set."""
    outcome: list[BaseException | dict[str, bytes]] = []

    def work() -> None:
        try:
            outcome.append(transport.exchange(3, b"message"))
        except SottovoceError as error:
            outcome.append(error)
        finally:
            done.set()

    threading.Thread(target=work, daemon=True).start()
    transport.wait(threading.Event(), 30.0)
    assert transport.wish() == (3, b"message")
    return outcome


@pytest.mark.parametrize(
    ("task", "expected"),
    [({words.INBOX: {"north": b"x"}}, dict), ({words.CLOSED: "gone"}, TransportClosed),
     ({words.REFUSED: "no"}, Refused), ({}, Refused), ({words.INBOX: {"north": "text"}}, Refused),
     ({words.INBOX: [b"x"]}, Refused)],
)  # fmt: skip
def test_what_a_task_grants_reaches_the_session(task: dict[str, Any], expected: type) -> None:
    transport, done = TaskTransport(), threading.Event()
    outcome = exchanging(transport, done)
    transport.take({words.ROUND: 2} | task)  # of another round, as when a task is sent twice
    transport.take({})
    assert not outcome
    transport.take({words.ROUND: 3} | task)
    assert done.wait(30.0) and isinstance(outcome[0], expected)
    assert transport.wish() is None


def test_the_end_of_a_job_is_no_end_of_the_run() -> None:
    transport, done = TaskTransport(), threading.Event()
    outcome = exchanging(transport, done)
    transport.end("the server went away")
    assert done.wait(30.0) and isinstance(outcome[0], Unreachable)
    with pytest.raises(Unreachable, match="went away"):
        transport.highest("agreed")


def test_highest_never_falls() -> None:
    transport = TaskTransport()
    for highest in (3, 2):
        transport.take({words.HIGHEST: highest, words.PLAN: "agreed"})
        assert transport.highest("agreed") == 3
        with pytest.raises(Refused, match="of another plan"):
            transport.highest("another")


def test_an_error_of_the_hubs_own_is_written_down_as_that(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor repeats the last words of a job: they name no site for what the hub could not do."""
    pytest.importorskip("nvflare")
    from nvflare.apis.signal import Signal

    from sottovoce.deploy.nvflare.controller import SiteController

    def broken(self: Talk) -> list[Any]:
        raise KeyError("north")

    sites.plan.write(tmp_path / words.PLAN_FILE)
    (tmp_path / words.LAST_FAILURE).write_text("site 'north' stopped")  # of an earlier job
    monkeypatch.setattr(Talk, "open", broken)
    controller = SiteController()
    controller._folder = tmp_path
    with pytest.raises(KeyError):
        controller.control_flow(Signal(), None)
    said = (tmp_path / words.LAST_FAILURE).read_text()
    assert said == "the hub failed: KeyError; the server's log says why\n"


def test_a_job_holds_no_code_and_no_plan(sites: Consortium, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", sites.plan)
    files = {file.relative_to(job).as_posix() for file in job.rglob("*") if file.is_file()}
    assert files == {"meta.json", "hub/config/config_fed_server.json", "site/config/config_fed_client.json"}
    assert sites.plan.digest not in "".join((job / file).read_text() for file in files)


def test_the_command_writes_a_project_without_nvflare(sites: Consortium, tmp_path: Path) -> None:
    sites.plan.write(tmp_path / "plan.json")
    options = ["--server", "hub.example.org", "--store", "/srv/jobs", "--workspace", str(tmp_path / "kits")]
    arguments = ["provision", str(tmp_path / "plan.json"), *options, "--project", str(tmp_path / "project.yml")]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0 and "nvflare provision -p" in done.output
    description = json.loads((tmp_path / "project.yml").read_text())
    clients = [one["name"] for one in description["participants"] if one["type"] == "client"]
    assert clients == list(sites.plan.names)
    assert any(builder["path"].endswith("policies.HardenedPolicies") for builder in description["builders"])


def test_a_hub_with_the_name_of_a_site_is_refused(sites: Consortium) -> None:
    with pytest.raises(InvalidInput, match="server='North': is the name of a site"):
        project(sites.plan, "North", 8002, store="/srv/jobs")


@pytest.mark.parametrize("name", ["server", "client"])
def test_shipped_policies_let_in_one_class_of_ours(name: str) -> None:
    policy = hardened(name)
    (allowed,) = policy["class_allow_list"]
    module, _, cls = allowed.rpartition(".")
    source = Path(words.__file__).parent / f"{module.rpartition('.')[2]}.py"
    assert f"class {cls}(" in source.read_text()
    assert policy["class_list_enforcement_mode"] == "enforce" and policy.get("allow_log_streaming", False) is False
