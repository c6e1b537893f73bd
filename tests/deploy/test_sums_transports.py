"""Sums over every transport of the package: the models of one process, crashes, questions while
sites wait, losses.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from relay_in_tests import certify
from sites_in_tests import Consortium, Fragile, Stop
from sums_in_tests import NAMES, run, summed, twin
from tasks_in_tests import SILENT

from sottovoce.cli import cli
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import HUB, OUT
from sottovoce.deploy.nvflare import tasks
from sottovoce.deploy.report import describe_sums
from sottovoce.deploy.requests import request_and_reply_sizes
from sottovoce.deploy.sums.masks import masking_keys_beside
from sottovoce.deploy.sums.messages import Attestation, Question, make_proof
from sottovoce.deploy.sums.roster import LATE
from sottovoce.deploy.transport import Transport
from sottovoce.deploy.waits import Waits
from sottovoce.errors import Refused

pytest.importorskip("cryptography")

Door = Callable[[str], Transport]


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return summed(tmp_path / "sites")


@pytest.fixture
def hub(sites: Consortium, tmp_path: Path) -> Iterator[Hub]:
    with HubLog(tmp_path / "hub.log") as log:
        yield Hub(sites.plan, log, Waits(3.0, 3.0))


def test_a_run_has_the_models_of_one_process(sites: Consortium, hub: Hub, door: Door) -> None:
    ends = run(sites, hub, door)
    models = twin(sites, hub.rounds.attempts)
    for name in NAMES:
        np.testing.assert_array_equal(ends[name].model, models[name])
    assert hub.gone() == dict.fromkeys(sorted(NAMES), "done") and all(
        one.opened for one in hub.rounds.attempts
    )


@pytest.mark.parametrize("crash", [(1, False), (3, True)])
def test_a_site_that_crashes_asks_the_others_and_goes_on(
    sites: Consortium, hub: Hub, door: Door, crash: tuple[int, bool]
) -> None:
    asked = []

    def twice(name: str) -> np.ndarray:
        if name == "north":
            with pytest.raises(Stop):
                sites.run_site(name, Fragile(door(name), *crash))
            again = door(name)
            inquire = again.ask_other_sites
            again.ask_other_sites = lambda *question: asked.append(inquire(*question)) or asked[-1]  # type: ignore[method-assign]
            return sites.run_site(name, again).model
        return sites.run_site(name, door(name)).model

    with ThreadPoolExecutor(5) as pool:
        models = list(pool.map(twice, NAMES))
    assert len(asked) == 1 and len(asked[0]) >= 3 and "north" not in asked[0]
    assert (
        all(np.array_equal(model, models[0]) for model in models) and len(hub.rounds.attempts) == 4
    )


def test_a_lost_site_costs_an_attempt(sites: Consortium, hub: Hub, door: Door) -> None:
    ends = run(
        sites, hub, lambda name: Fragile(door(name), 3, False) if name == "west" else door(name)
    )
    models = twin(sites, hub.rounds.attempts)
    assert [one.opened for one in hub.rounds.attempts] == [True, False, True, True]
    for name in set(NAMES) - {"west"}:
        np.testing.assert_array_equal(ends[name].model, models[name])
        assert ends[name].lost == {"west": LATE}
    late = sites.run_site("west", door("west"))
    assert late.outcome.stopped == OUT and late.outcome.rounds == 1


def test_the_longest_messages_fit(sites: Consortium, hub: Hub, door: Door) -> None:
    """A proof holds two of the longest, each with its quotes escaped twice."""
    share = (
        b'{"x":"' + b"y" * (2048 + 12 * sites.plan.d - 300) + b'",' + b'"a":"b",' * 30 + b'"c":1}'
    )
    inbox = {name: share.decode() for name in NAMES[:2]} | {
        name: make_proof(share, share).decode() for name in NAMES[2:4]
    }
    assert len(json.dumps({"inbox": inbox})) <= request_and_reply_sizes(sites.plan)[1]


def test_a_job_goes_on_without_a_site_that_does_not_answer(
    sites: Consortium, tmp_path: Path
) -> None:
    """As long as the hub is patient it may come back; then it is out, and the job does not wait
    for it.
    """
    over, computed, asked = threading.Event(), threading.Event(), list[str]()

    def carry(site: str, task: dict[str, Any]) -> dict[str, Any] | None:
        asked.append(site)
        if site == "east" and not computed.wait(0.1):
            return {}
        return None if site == "west" else {tasks.ENDED: ""}

    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(1) as pool:
        hub = Hub(sites.plan, log)
        for name in NAMES:
            if name != "west":
                hub.record_farewell(name, sites.farewell(name, 0, HUB))
        job = pool.submit(tasks.serve_sites, hub, carry, over)
        with pytest.raises(TimeoutError):
            job.result(1.5)
        hub.rounds._sequence.state.gone["west"] = LATE
        computed.set()
        assert job.result(30.0) is None and over.is_set() and asked.count("west") == 1


def test_a_later_job_tells_a_site_without_which_the_run_went_on(
    sites: Consortium, tmp_path: Path
) -> None:
    """It erases its key; the others, whose part is over, are not waited for."""
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log, Waits(3.0, 3.0))
        run(
            sites,
            hub,
            lambda name: (
                Fragile(LocalTransport(hub, name, 30.0), 3, False) if name == "west" else None
            ),
        )
        assert hub.all_sites_left and hub.rounds.sites_not_told == ["west"]
        assert masking_keys_beside(sites.folder / "west.ledger")
        post, over = tasks.Post(), threading.Event()

        def carry(site: str, task: dict[str, Any]) -> dict[str, Any] | None:
            if site == "west":
                return None if over.is_set() else post.carry_task(task, 0.1)
            return {tasks.ENDED: ""}

        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(sites.run_site, "west", tasks.TaskTransport(sites.plan, post))
            session.add_done_callback(lambda _: post.end_session(""))
            assert tasks.serve_sites(hub, carry, over) is None
            post.close_with_reason("the job is over")
            assert session.result(30.0).outcome.stopped == OUT
        assert hub.rounds.sites_not_told == [] and not masking_keys_beside(
            sites.folder / "west.ledger"
        )


def test_a_job_ends_when_nobody_is_left_to_answer(sites: Consortium, tmp_path: Path) -> None:
    """The hub's patience is with those who may come back, and to this job nobody does."""
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        failure = tasks.serve_sites(hub, lambda site, task: {tasks.ENDED: "no"}, threading.Event())
        assert failure is not None and failure.endswith("stopped: no")
        for name in NAMES:
            if name != "west":
                hub.record_farewell(name, sites.farewell(name, 0, HUB))
        carry = lambda site, task: None if site == "west" else {tasks.ENDED: ""}  # noqa: E731
        assert tasks.serve_sites(hub, carry, threading.Event()) == SILENT.format("west")


def test_a_question_of_a_dead_process_takes_nothing_from_the_next(
    sites: Consortium, tmp_path: Path
) -> None:
    """North was killed while it waited for answers, and asks again: only its new question is
    answered, and heard.
    """
    plan, keys = sites.plan, sites.keys
    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        hub = Hub(plan, log)
        old, new = (Question("north", 3, digit * 32) for digit in "01")

        def asking(question: Question):
            return pool.submit(
                hub.pass_on_question,
                "north",
                question.to_signed_bytes(plan, keys["north"]),
                3,
                30.0,
            )

        def wait(question: Question) -> None:
            while hub.asked("east").get("north") != question.to_signed_bytes(plan, keys["north"]):
                time.sleep(0.005)

        dead = asking(old)
        wait(old)
        hub.take_attestation(
            "east",
            "north",
            Attestation("east", 3, old.nonce, "north", 2).to_signed_bytes(plan, keys["east"]),
        )
        alive = asking(new)
        wait(new)
        assert dead.result() is None
        again = asking(new)  # a connection broke, and the same process asks once more
        for site in ("east", "south", "west"):
            for question in (old, new):  # what answers the old one is dropped
                hub.take_attestation(
                    site,
                    "north",
                    Attestation(site, 3, question.nonce, "north", 2).to_signed_bytes(
                        plan, keys[site]
                    ),
                )
        for found in (alive.result(), again.result(), asking(new).result()):
            assert found == {
                site: Attestation(site, 3, new.nonce, "north", 2).to_signed_bytes(plan, keys[site])
                for site in ("east", "south", "west")
            }
        assert hub.asked("centre") == {}


def test_questions_are_refused_without_secure_sums(tmp_path: Path) -> None:
    from sites_in_tests import consortium

    other = consortium(tmp_path / "sites")
    with (
        HubLog(tmp_path / "hub.log") as log,
        pytest.raises(Refused, match=r"^question: "),
    ):
        Hub(other.plan, log).pass_on_question("north", b"", 1, 0.0)


def test_the_site_check_says_the_adversary_and_what_is_left(
    sites: Consortium, tmp_path: Path
) -> None:
    from sites_in_tests import settle

    home = settle(sites, tmp_path / "north")
    certify(home, ("north",))
    (home / "site.toml").write_text(
        f'agreed = "{sites.plan.digest}"\n' + (home / "site.toml").read_text()
    )
    shown = (
        CliRunner()
        .invoke(cli, ["site", "check", str(home / "site.toml")], catch_exceptions=False)
        .output
    )
    text = " ".join(shown.replace("│", " ").split())
    assert describe_sums(sites.plan) in text
    assert "all other sites" in text
    found = CliRunner().invoke(
        cli, ["site", "check", str(home / "site.toml"), "--json"], catch_exceptions=False
    )
    plain: dict[str, Any] = json.loads(found.output)
    assert (plain["participants"], plain["colluders"]) == (4, 1) and plain["privacy"][
        "alone"
    ] > plain["privacy"]["epsilon"]
