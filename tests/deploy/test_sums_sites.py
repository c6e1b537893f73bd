"""Runs of sums between separate sites: the models of one process; sites that are lost, come late
or lie.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_in_tests import CANNOT_GO_ON, Consortium, Stop
from sums_in_tests import NAMES, Background, Lost, hub_of, run, summed, twin

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import HUB, OUT
from sottovoce.deploy.report import render_site_report, write_hub_results
from sottovoce.deploy.session import Finished
from sottovoce.deploy.site_net import SiteNet
from sottovoce.deploy.sums.masks import RunKey, masking_key_path
from sottovoce.deploy.sums.messages import Share, read_signed_message, sign_content
from sottovoce.deploy.sums.roster import LATE, LEFT, TWICE
from sottovoce.deploy.waits import Waits
from sottovoce.errors import (
    EndedEarly,
    FinishedWithout,
    LedgerCorrupt,
    LedgerError,
    Refused,
    TransportClosed,
)
from sottovoce.ledger.journal import Journal
from sottovoce.queries.sum_attempt import Attempt
from sottovoce.runs.engine import FEW

pytest.importorskip("cryptography")


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return summed(tmp_path / "sites")


def finished(ends: dict[str, Any]) -> dict[str, Finished]:
    return {name: end for name, end in ends.items() if isinstance(end, Finished)}


def check_spending(sites: Consortium, ends: dict[str, Any]) -> None:
    """Every attempt was charged once, lost or not."""
    for name in finished(ends):
        with sites.ledger(name) as ledger:
            ledger.file.verify()
            assert ledger.to_list() == [
                event.to_dict() for event in sites.plan.planned_privacy.events(name)
            ]


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"method": "sum_prox"},
        {"max_grad_norm": 0.5, "rounds": 6},
        {"epsilon": float("inf")},
        {"colluders": 2, "participants": 5},
    ],
    ids=str,
)
def test_separate_sites_compute_same_model_as_one_process(
    tmp_path: Path, knobs: dict[str, Any]
) -> None:
    sites = summed(tmp_path / "sites", **knobs)
    sites.budget = float("inf") if "epsilon" in knobs else sites.budget
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        common = hub.results.models()
    made = run_sites(sites.plan.config, sites.rows)
    for i, name in enumerate(NAMES):
        model = sites.plan.stages[0].prepared.algorithm.method_of_node(i).model(made[i][0].state)
        np.testing.assert_array_equal(ends[name].model, model)
        np.testing.assert_array_equal(common, model[None])
        assert ends[name].outcome.stopped == "finished" and ends[name].lost == {}
        assert not masking_key_path(sites.folder / f"{name}.ledger", "trial").exists()
    check_spending(sites, ends)


def test_operating_system_noise_works_too(tmp_path: Path) -> None:
    sites = summed(tmp_path / "sites", seed=None)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
    models = [end.model for end in ends.values()]
    assert all(end.statement_as_dict["release"] for end in ends.values())
    assert all(np.array_equal(model, models[0]) for model in models) and np.all(
        np.isfinite(models[0])
    )


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("last", [1, 2, 4, 6])
def test_a_run_ends_with_those_that_remain(
    sites: Consortium, tmp_path: Path, last: int, after: bool
) -> None:
    """One site is lost for good while the roster is signed (1), in attempts 1 and 3, or with the
    last model.
    """
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(
            sites, hub, lambda name: Lost(hub, name, last, after) if name == "south" else None
        )
        attempts = hub.rounds.attempts
        assert hub.gone() == (
            {"south": LATE} if (last, after) != (6, True) else {}
        ) | dict.fromkeys(set(NAMES) - {"south"}, "done")
        assert hub.all_sites_left == (
            (last, after) != (6, True)
        )  # its word that it leaves is still to come
        without = pytest.raises(FinishedWithout, match=r"'south' .*nothing")
        with nullcontext() if (last, after) == (6, True) else without:
            hub.check_complete_end()
        assert hub.results.models().shape == (1, sites.plan.d)
    models = twin(sites, attempts)
    assert isinstance(ends["south"], Stop) and len(attempts) == sites.plan.config.rounds
    # attempt that lacks its share
    first = {
        (1, True): 1,
        (2, False): 1,
        (2, True): 2,
        (4, False): 3,
        (4, True): 4,
    }
    lost = [k + 1 for k, one in enumerate(attempts) if not one.opened]
    assert lost == ([first[last, after]] if (last, after) in first else [])
    for name in set(NAMES) - {"south"}:
        np.testing.assert_array_equal(ends[name].model, models[name])
        assert ends[name].outcome.stopped == "finished"
        assert ends[name].lost == ({} if (last, after) == (6, True) else {"south": LATE})
        # the price that the plan had
        assert ends[name].statement.epsilon == sites.plan.planned_privacy.statement.epsilon
    check_spending(sites, ends)


def test_too_few_sites_end_the_run_with_what_was_opened(sites: Consortium, tmp_path: Path) -> None:
    """K = 4 of 5: after the second loss no roster is signed, and nothing more is drawn."""
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(
            sites,
            hub,
            lambda name: (
                Lost(hub, name, {"south": 3, "west": 5}[name]) if name[0] in "sw" else None
            ),
        )
        attempts = hub.rounds.attempts
        assert hub.all_sites_left and hub.results.models() is None
        with pytest.raises(EndedEarly, match="these sites left"):
            hub.check_complete_end()
    assert [one.opened for one in attempts] == [True, False, False]
    models = twin(sites, attempts)
    for name in ("north", "east", "centre"):
        assert ends[name].outcome.stopped == FEW and ends[name].outcome.rounds == 3
        np.testing.assert_array_equal(ends[name].model, models[name])
        with sites.ledger(name) as ledger:
            assert len(ledger.rows) == 3 and not ledger.show()["runs"][0]["held"]
        assert not masking_key_path(sites.folder / f"{name}.ledger", "trial").exists()


def test_a_site_that_comes_late_is_told_and_ends(sites: Consortium, tmp_path: Path) -> None:
    """Its late share is not stored, and its own run ends with what was opened before."""
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 3) if name == "east" else None)
        late = sites.run_site("east", LocalTransport(hub, "east", 5.0))
        assert hub.log.last("trial", "east") == 2
        again = sites.run_site("east", LocalTransport(hub, "east", 5.0))
    assert late.outcome.stopped == again.outcome.stopped == OUT
    assert late.outcome.rounds == 1 and isinstance(ends["east"], Stop)
    assert not masking_key_path(sites.folder / "east.ledger", "trial").exists()
    np.testing.assert_array_equal(late.model, again.model)
    assert "Without east" in render_site_report(sites.plan, "north", ends["north"])


class Doubled(LocalTransport):
    """A site that sends two shares for one attempt: the second when the first is in, or before
    the others are.
    """

    def __init__(self, hub: Hub, sites: Consortium, site: str, round: int, early: bool) -> None:
        super().__init__(hub, site, 30.0)
        self._sites, self._twice, self._early = sites, round, early

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        if round == self._twice:
            plan, key = self._sites.plan, self._sites.keys[self._site]
            share = read_signed_message(plan, message, self._site, round).content
            assert isinstance(share, Share)
            other = Share(share.roster, share.attempt, share.parent, share.words + np.uint64(1))
            if self._early:
                self._hub.exchange(self._site, round, message, 0.0)
            else:
                super().exchange(round, message)
            self._hub.exchange(
                self._site, round, sign_content(plan, round, self._site, other, key), 0.0
            )
        return super().exchange(round, message)


@pytest.mark.parametrize("early", [False, True])
def test_two_shares_of_one_site_are_proof_against_it(
    sites: Consortium, tmp_path: Path, early: bool
) -> None:
    """It is out without a wait, named with the proof in every journal, and its first share
    stands.
    """
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        ends = run(
            sites, hub, lambda name: Doubled(hub, sites, name, 3, early) if name == "west" else None
        )
        attempts = hub.rounds.attempts
    assert isinstance(ends["west"], Refused) and "another message" in str(ends["west"])
    assert [one.opened for one in attempts] == [True, True, False, True]
    models = twin(sites, attempts)
    for name in set(NAMES) - {"west"}:
        assert ends[name].lost == {"west": TWICE}
        np.testing.assert_array_equal(ends[name].model, models[name])
        with sites.ledger(name) as ledger:
            kept = json.loads(Journal(ledger, "trial").received(4))
        assert set(json.loads(kept["west"])) == {"first", "second"}


def other_words(monkeypatch: pytest.MonkeyPatch, twist: Callable[[np.ndarray], np.ndarray]) -> None:
    """The site west sends other words than it should."""
    honest = SiteNet.mask_share
    monkeypatch.setattr(
        SiteNet,
        "mask_share",
        lambda net, x: (twist if net._name == "west" else np.copy)(honest(net, x)),
    )


@pytest.mark.parametrize("word", [0, 2**62, -(2**63)])
def test_random_shares_end_run_without_release(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: int
) -> None:
    """Masks hide who sent them; the sum is out of what rows and noise can make, and is never
    used.
    """
    # without its masks nothing vanishes
    other_words(monkeypatch, lambda words: np.full_like(words, word))
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
    for name in NAMES:
        assert isinstance(ends[name], Refused) and "sum: is larger" in str(ends[name])
        with sites.ledger(name) as ledger:
            assert len(ledger.rows) == 1  # charged, and nothing more was drawn
        # the run is over for everybody
        assert not masking_key_path(sites.folder / f"{name}.ledger", "trial").exists()


@pytest.mark.parametrize("added", [2**62, -(2**62)])
def test_too_large_sum_ends_run(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: int
) -> None:
    other_words(monkeypatch, lambda words: words + added)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
    assert all("sum: is larger" in str(end) for end in ends.values())


def test_plausible_wrong_share_changes_only_sum(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be told from an honest one: that is integrity, and no guarantee rests on it."""
    other_words(monkeypatch, lambda words: words + 10**9)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        honest = twin(sites, hub.rounds.attempts)
    for name in NAMES:
        assert ends[name].outcome.stopped == "finished" and not np.array_equal(
            ends[name].model, honest[name]
        )
    check_spending(sites, ends)


def test_failed_draw_sends_nothing_and_is_not_repeated(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that depends on rows shows nothing of them but that a share is missing: its
    words are not sent.
    """
    share = Attempt.noisy_share

    def fail(self: Attempt, vault: Any, release: int) -> Any:
        if self.facts.n[0] == 80 and release == 2:  # south
            raise ValueError("row 17 is odd")
        return share(self, vault, release)

    monkeypatch.setattr(Attempt, "noisy_share", fail)
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(sites, hub)
        # With a space, which base64 has not.
        assert "is odd" not in "".join(data.decode() for data in hub.log.messages("trial").values())
        assert hub.gone()["south"] == CANNOT_GO_ON
        monkeypatch.setattr(Attempt, "noisy_share", share)
        late = sites.run_site("south", LocalTransport(hub, "south", 5.0))
        with (
            sites.ledger("south") as ledger,
            pytest.raises(LedgerError, match="release 2 failed"),
        ):
            ledger.runs.records_of_run("trial").payload(2)
        attempts = hub.rounds.attempts
    assert isinstance(ends["south"], ValueError) and late.outcome.rounds == 1
    assert [one.opened for one in attempts] == [True, False, True, True]
    models = twin(sites, attempts)
    for name in set(NAMES) - {"south"}:
        np.testing.assert_array_equal(ends[name].model, models[name])


def test_site_without_run_key_halts(sites: Consortium, tmp_path: Path) -> None:
    with hub_of(sites, tmp_path / "hub.log", 4.0) as hub:
        others = Background(sites, hub, tuple(set(NAMES) - {"east"}))
        with pytest.raises(Stop):
            sites.run_site("east", Lost(hub, "east", 3))
        RunKey.erase_file(masking_key_path(sites.folder / "east.ledger", "trial"))
        with sites.ledger("east") as ledger:
            charged = len(ledger.rows)
        with pytest.raises(LedgerCorrupt, match="missing or damaged"):
            sites.run_site("east", LocalTransport(hub, "east", 5.0))
        with sites.ledger("east") as ledger:
            assert len(ledger.rows) == charged
        ends = others.join()
    assert all(end.lost == {"east": LATE} for end in ends.values())


def test_replaced_run_key_halts_site(sites: Consortium, tmp_path: Path) -> None:
    with hub_of(sites, tmp_path / "hub.log", 3.0) as hub:
        others = Background(sites, hub, tuple(set(NAMES) - {"east"}))
        with pytest.raises(Stop):
            sites.run_site("east", Lost(hub, "east", 1))
        path = masking_key_path(sites.folder / "east.ledger", "trial")
        path.unlink()
        RunKey.make(path)
        with pytest.raises(LedgerCorrupt, match="differs from"):
            sites.run_site("east", LocalTransport(hub, "east", 5.0))
        assert all(end.lost == {"east": LATE} for end in others.join().values())


def test_a_site_that_says_it_leaves_is_not_waited_for(sites: Consortium, tmp_path: Path) -> None:
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:

        class Leaving(Lost):
            def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
                try:
                    return super().exchange(round, message)
                except Stop:
                    self.send_farewell(sites.farewell(self._site, round))
                    raise

        ends = run(sites, hub, lambda name: Leaving(hub, name, 4) if name == "north" else None)
        assert hub.gone()["north"] == FEW
    assert ends["centre"].lost == {"north": LEFT} and ends["centre"].outcome.stopped == "finished"


def test_a_hub_that_starts_again_goes_on_with_the_same_rounds(
    sites: Consortium, tmp_path: Path
) -> None:
    """What was closed stays closed: a new process of the hub tells the same."""
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        run(sites, hub, lambda name: Lost(hub, name, 3) if name == "south" else None)
        attempts, gone, inbox = (
            hub.rounds.attempts,
            hub.gone(),
            hub.rounds.inbox_of_site("north", 3),
        )
    with HubLog(tmp_path / "hub.log") as log:
        again = Hub(sites.plan, log, Waits(1.0, 1.0))
        assert (again.rounds.attempts, again.gone(), again.rounds.inbox_of_site("north", 3)) == (
            attempts,
            gone,
            inbox,
        )
        assert again.all_sites_left and write_hub_results(tmp_path, again)
        again.check_log()
        assert [one["round"] for one in again.sites()] == [5, 5, 1, 5, 5]
    shown = json.loads((tmp_path / "hub.json").read_text())
    assert shown["finished"] and "all sites" in (tmp_path / "hub.html").read_text()


def test_the_hub_ends_a_run_of_sums(sites: Consortium, tmp_path: Path) -> None:
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, tuple(set(NAMES) - {"east"}))
        with pytest.raises(Stop):
            sites.run_site("east", Lost(hub, "east", 3))
        hub.log.decisions.record_end_of_run("trial")
        ends = others.join()
        assert set(hub.gone().values()) == {HUB}
    assert all(end.outcome.stopped == HUB and end.outcome.rounds == 1 for end in ends.values())


def test_a_greeting_waits_for_all_unless_told_otherwise(sites: Consortium, tmp_path: Path) -> None:
    """With a limit the run begins without who has not come, if enough have."""
    present = tuple(set(NAMES) - {"south"})
    with hub_of(sites, tmp_path / "hub.log", 600.0, greeting=1.0) as hub:
        ends = Background(sites, hub, present).join()
        attempts = hub.rounds.attempts
        with pytest.raises(TransportClosed, match="without 'south'"):
            LocalTransport(hub, "south").exchange(0, hello(sites, "south", tmp_path))
    models = twin(sites, attempts)
    for name in present:
        np.testing.assert_array_equal(ends[name].model, models[name])


def hello(sites: Consortium, name: str, folder: Path) -> bytes:
    from sottovoce.deploy.sums.messages import Hello

    key = RunKey.make(folder / f"{name}.masks").public
    return sign_content(sites.plan, 0, name, Hello(key), sites.keys[name])


def test_the_hub_refuses_the_key_of_another_site(sites: Consortium, tmp_path: Path) -> None:
    from sottovoce.deploy.sums.messages import Hello

    with hub_of(sites, tmp_path / "hub.log") as hub:
        key = RunKey.make(tmp_path / "one.masks").public
        assert (
            hub.exchange(
                "north",
                0,
                sign_content(sites.plan, 0, "north", Hello(key), sites.keys["north"]),
                0.0,
            )
            is None
        )
        with pytest.raises(Refused, match=r"its key .*'north'"):
            hub.exchange(
                "east", 0, sign_content(sites.plan, 0, "east", Hello(key), sites.keys["east"]), 0.0
            )
        assert hub.rounds.missing == ["centre", "east", "south", "west"]
