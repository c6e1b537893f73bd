"""A site in a run: the same model as in one process, restarts that change nothing, and what is
refused.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, Fragile, Stop, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import HUB, read_message
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.session import Finished
from sottovoce.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerCorrupt,
    LedgerMismatch,
    Refused,
    TransportClosed,
)
from sottovoce.ledger.journal import Journal
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.runs.simulate import simulate

pytest.importorskip("cryptography")


@pytest.fixture
def log(tmp_path: Path) -> HubLog:
    with HubLog(tmp_path / "hub.log") as log:
        yield log


@pytest.mark.parametrize(
    "knobs",
    [
        {"method": "dvp"},
        {"method": "mr_admm", "rounds": 5},
        {"method": "prox_admm", "delta": 1e-5, "epsilon": (2.0, 3.0, 2.5)},
        {"method": "dgd", "delta": 1e-5},
        {"method": "ipp_admm", "delta": 1e-5, "positives": 2},
    ],
    ids=lambda knobs: knobs["method"],
)
def test_separate_sites_compute_same_model_as_one_process(
    tmp_path: Path, log: HubLog, knobs: dict[str, object]
) -> None:
    sites = consortium(tmp_path / "sites", **knobs)
    finished = sites.run_locally(log)
    twin = run_sites(sites.plan.config, sites.rows)
    models = Hub(sites.plan, log).results.models()
    for i, name in enumerate(sites.plan.names):
        algorithm = sites.plan.stages[0].prepared.algorithm.method_of_node(i)
        np.testing.assert_array_equal(finished[name].model, algorithm.model(twin[i][0].state))
        np.testing.assert_array_equal(models[i], finished[name].model)
        assert finished[name].outcome.rounds == sites.plan.config.rounds
        assert (
            finished[name].statement_as_dict["epsilon"]
            <= np.broadcast_to(sites.plan.config.epsilon, (3,))[i]
        )
        assert not finished[name].statement_as_dict["release"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("crash", [0, 2, 5])
def test_a_site_that_crashes_goes_on_with_the_same_bytes(
    sites: Consortium, log: HubLog, crash: int, after: bool
) -> None:
    hub = Hub(sites.plan, log)
    whole = in_one_process(sites)

    def twice(name: str) -> np.ndarray:
        inner = LocalTransport(hub, name, 20.0)
        if name == "north":
            with pytest.raises(Stop):
                sites.run_site(name, Fragile(inner, crash, after))
        return sites.run_site(name, inner).model

    with ThreadPoolExecutor(3) as pool:
        models = list(pool.map(twice, NAMES))
    for name, model in zip(NAMES, models, strict=True):
        np.testing.assert_array_equal(model, whole[name])
    with sites.ledger("north") as ledger:
        ledger.file.verify()
        assert len(ledger.rows) == sites.plan.config.rounds
        journal = Journal(ledger, "trial")
        assert [journal.sent(k) for k in range(6)] == [
            log.messages("trial")[k, "north"] for k in range(6)
        ]
        again = sites.session("north", ledger).run(LocalTransport(hub, "north"))
        assert len(ledger.rows) == sites.plan.config.rounds
    np.testing.assert_array_equal(again.model, whole["north"])


def in_one_process(sites: Consortium) -> dict[str, np.ndarray]:
    twin = run_sites(sites.plan.config, sites.rows)
    return {name: twin[i][0].state.f for i, name in enumerate(NAMES)}


def test_operating_system_noise_survives_a_crash_too(tmp_path: Path, log: HubLog) -> None:
    sites = consortium(tmp_path / "sites", seed=None, method="prox_admm", delta=1e-5)
    hub = Hub(sites.plan, log)

    def take_part(name: str) -> Finished:
        inner = LocalTransport(hub, name, 20.0)
        if name == "east":
            with pytest.raises(Stop):
                sites.run_site(name, Fragile(inner, 3, True))
        return sites.run_site(name, inner)

    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(take_part, NAMES))
    assert all(end.statement_as_dict["release"] for end in ends)
    assert [end.outcome.rounds for end in ends] == [4, 4, 4]
    np.testing.assert_array_equal(ends[1].model, hub.results.models()[1])


def test_restored_journal_halts_site(sites: Consortium, log: HubLog) -> None:
    hub = Hub(sites.plan, log)

    def until(name: str, round: int) -> None:
        with pytest.raises(Stop):
            sites.run_site(name, Fragile(LocalTransport(hub, name, 20.0), round, False))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: until(name, 2), NAMES))
    backup = shutil.copy(sites.folder / "north.ledger", sites.folder / "backup")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: until(name, 4), NAMES))
    shutil.copy(backup, sites.folder / "north.ledger")
    with pytest.raises(LedgerCorrupt, match="holds round 3") as caught:
        sites.run_site("north", LocalTransport(hub, "north"))
    assert "at round 2" in str(caught.value) and "nothing was drawn" in str(caught.value)
    with sites.ledger("north") as ledger:
        assert len(ledger.rows) == 2
    (sites.folder / "north.ledger").unlink()
    with pytest.raises(LedgerCorrupt, match="at round 0"):
        sites.run_site("north", LocalTransport(hub, "north"))


def test_a_site_over_budget_sends_nothing(sites: Consortium, log: HubLog) -> None:
    sites.budget = 1.0  # the run costs 2
    with pytest.raises(BudgetExceeded, match="nothing was reserved"):
        sites.run_site("north", LocalTransport(Hub(sites.plan, log), "north"))
    assert log.messages("trial") == {} and log.gone("trial") == {}
    with sites.ledger("north") as ledger:
        assert ledger.rows == () and not ledger.runs


def test_a_run_that_stops_at_its_budget_says_so_and_gives_the_rest_back(
    tmp_path: Path, log: HubLog
) -> None:
    # a release costs 0.3, so three fit
    sites = consortium(tmp_path / "sites", noise=0.3, epsilon=1.0)
    ends = sites.run_locally(log)
    assert {end.outcome.stopped for end in ends.values()} == {"budget spent"}
    assert {end.outcome.rounds for end in ends.values()} == {3}
    assert read_message(sites.plan, log.messages("trial")[4, "north"], "north", 4).kind == "refuse"
    with sites.ledger("north") as ledger:
        assert len(ledger.rows) == 3 and not ledger.show()["runs"][0]["held"]


class Ending:
    """A way to a hub that ends the run in a round of its choice; its neighbours said zero until
    then.
    """

    def __init__(self, sites: Consortium, last: int) -> None:
        self._sites, self._last = sites, last

    def highest_stored_round(self, plan: str) -> int:
        return -1

    def send_farewell(self, farewell: bytes) -> None:
        pass

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        if round > self._last:
            raise TransportClosed("the hub ended the run")
        return {name: self._sites.sealed(name, round) for name in ("east", "south")}


def test_early_end_does_not_change_privacy_loss(tmp_path: Path) -> None:
    """Sums of loss distributions are proved for a number of releases that was fixed before."""
    ends = []
    for last in (1, 2, 3, 4):
        sites = consortium(tmp_path / f"{last}", delta=1e-5)
        ends.append(sites.run_site("north", Ending(sites, last)))
    assert [end.outcome.stopped for end in ends] == [HUB] * 3 + ["finished"]
    assert [end.statement_as_dict["made"] for end in ends] == [2, 3, 4, 4]
    assert {end.statement_as_dict["epsilon"] for end in ends} == {
        ends[-1].statement_as_dict["epsilon"]
    }
    assert {end.statement_as_dict["per_node"][0] for end in ends} == {
        ends[-1].statement_as_dict["epsilon"]
    }


def test_another_plan_is_refused_by_hub_and_ledger(sites: Consortium, log: HubLog) -> None:
    hub = Hub(sites.plan, log)
    other = replace(sites.plan, norm_cap=sites.plan.norm_cap * 2)
    with sites.ledger("north") as ledger:
        with pytest.raises(Refused, match="another plan"):
            sites.session("north", ledger, plan=other).run(LocalTransport(hub, "north"))
        assert ledger.rows == () and not ledger.runs  # the name is free for the right one
        ledger.reserve("trial", other.digest, other.planned_privacy.events("north"))
        with pytest.raises(LedgerMismatch, match="another name"):
            sites.session("north", ledger).run(LocalTransport(hub, "north"))
    assert log.messages("trial") == {}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"noise": None}, "for a demonstration"),
        ({"name": "west"}, "not a site"),
        ({"name": "east"}, "signing_key"),
    ],
)
def test_mismatches_are_reported_before_sending(
    sites: Consortium, log: HubLog, changes: dict[str, object], match: str
) -> None:
    with sites.ledger("north") as ledger, pytest.raises(InvalidInput, match=match):
        sites.session("north", ledger, **changes).run(LocalTransport(Hub(sites.plan, log), "north"))
    assert log.messages("trial") == {}


def test_repeatable_noise_needs_a_marked_ledger(tmp_path: Path, log: HubLog) -> None:
    real = consortium(tmp_path / "real", seed=None)
    shown = consortium(tmp_path / "shown")
    noise = KeyedNoise(0, [0], [0], lead=())
    for plan, ledgers in ((real, real), (real, shown), (shown, real)):
        with ledgers.ledger("north") as ledger:
            session = plan.session("north", ledger, noise=noise)
            with pytest.raises(InvalidInput, match="for a demonstration"):
                session.run(LocalTransport(Hub(plan.plan, log), "north"))
    with shown.ledger("north") as ledger:
        assert ledger.show()["demonstration"]
        with pytest.raises(InvalidInput, match="for a demonstration"):
            simulate(replace(real.plan.config), real.rows.rows_of_node(0), ledger=ledger)


def test_wrong_row_count_is_refused(sites: Consortium) -> None:
    with (
        sites.ledger("north") as ledger,
        pytest.raises(InvalidInput, match=r"^rows=45: .* 60"),
    ):
        sites.session("north", ledger, rows=sites.rows.rows_of_node(1)).check_before_run()


def test_the_plan_file_is_read_back_and_an_edited_one_is_refused(
    sites: Consortium, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    write_plan_file(sites.plan, path)
    again = read_plan_file(path)
    assert again == sites.plan and again.digest == sites.plan.digest
    text = path.read_text()
    path.write_text(text.replace('"rho": 0.02', '"rho": 0.03'))
    with pytest.raises(InvalidInput, match="was changed"):
        read_plan_file(path)
    for version, rule in (
        (1, "before 0.3"),
        (2, "before 0.3"),
        (4, "later version: its format is 4"),
    ):
        path.write_text(text.replace('"version": 3', f'"version": {version}'))
        with pytest.raises(InvalidInput, match=rule):
            read_plan_file(path)
    path.write_text("{}")
    with pytest.raises(InvalidInput, match="plan file"):
        read_plan_file(path)
    with pytest.raises(InvalidInput, match="curator"):
        make_calibrated_plan(
            Proposal("trial", sites.plan.config.but(method="central", eta=0.1), sites.plan.sites, 4)
        )
    with pytest.raises(InvalidInput, match="file names"):
        replace(sites.plan, sites=(sites.plan.sites[0],) * 3)


def test_journal_accepts_next_round_once(sites: Consortium) -> None:
    with sites.ledger("north") as ledger:
        ledger.identity.bind_to_rows(b"1" * 32)
        ledger.reserve("trial", sites.plan.digest, sites.plan.planned_privacy.events("north"))
        journal = Journal(ledger, "trial")
        assert journal.highest_round == -1 and Journal(ledger, "unknown").highest_round == -1
        journal.store_message(0, b"hello")
        journal.store_message(0, b"hello")
        with pytest.raises(LedgerMismatch, match="in round 0"):
            journal.store_message(0, b"good day")
        with pytest.raises(ValueError):  # the fold refuses what the rules do not allow
            journal.store_message(1, b"before the inbox of round 0")
        journal.store_inbox(0, b"inbox")
        with pytest.raises(LedgerMismatch, match="received in round"):
            journal.store_inbox(0, b"another")
        assert (journal.sent(0), journal.received(0), journal.sent(1)) == (b"hello", b"inbox", None)
        ledger.file.verify()
    with sites.ledger("north") as ledger:
        assert Journal(ledger, "trial").highest_round == 0
