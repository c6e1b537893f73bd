"""What is signed in a run of sums, and the rules that make rosters and attempts of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_in_tests import Consortium
from sums_in_tests import NAMES, hub_of, run, summed

from sottovoce.deploy.hub import Hub
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.messages import Message
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.sums.masks import RunKey
from sottovoce.deploy.sums.messages import (
    Attestation,
    Hello,
    Question,
    Roster,
    Share,
    SignedMessage,
    make_proof,
    read_attestation,
    read_proof,
    read_question,
    read_signed_message,
    sign_content,
)
from sottovoce.deploy.sums.roster import LATE, LEFT, ProtocolState, check_quorum
from sottovoce.deploy.waits import Waits
from sottovoce.errors import InvalidInput, Refused, TransportClosed
from sottovoce.runs.config import RunConfig
from sottovoce.util.plain import canonical_json

pytest.importorskip("cryptography")

SORTED = tuple(sorted(NAMES))


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return summed(tmp_path / "sites")


class Table:
    """All sites' messages of exchange after exchange, made with their keys and given to the
    protocol.
    """

    def __init__(self, sites: Consortium, folder: Path) -> None:
        self.sites, self.state, self.round = sites, ProtocolState.of(sites.plan), 0
        self.keys = {name: RunKey.make(folder / f"{name}.masks") for name in NAMES}

    def said(self, name: str, what: Any = None) -> SignedMessage:
        if what is None:
            what = {
                "key": lambda: Hello(self.keys[name].public),
                "roster": lambda: self.state.next_roster,
                "share": lambda: self.share(name),
            }[self.state.phase]()
        data = sign_content(self.sites.plan, self.round, name, what, self.sites.keys[name])
        return read_signed_message(self.sites.plan, data, name, self.round)

    def share(self, name: str, **changes: Any) -> Share:
        words = np.full(self.sites.plan.d, 10 ** NAMES.index(name), dtype=np.uint64)
        return replace(
            Share(self.state.roster, self.state.attempt, self.state.parent, words), **changes
        )

    def go(self, *absent: str, why: dict[str, str] | None = None) -> ProtocolState:
        self.state.take_messages(
            {n: self.said(n) for n in self.state.members if n not in absent}, why or {}
        )
        self.round += 1
        return self.state


@pytest.fixture
def table(sites: Consortium, tmp_path: Path) -> Table:
    return Table(sites, tmp_path)


def test_round_completes_when_all_sites_respond(table: Table) -> None:
    session = table.go().session
    assert (table.state.phase, table.state.members, len(session)) == ("roster", SORTED, 32)
    assert table.state.next_roster == Roster(session, 0, 1, SORTED, table.state.parent)
    parents = {table.state.parent}
    table.go()
    for attempt in (1, 2, 3):
        assert (table.state.phase, table.state.attempt) == ("share", attempt)
        np.testing.assert_array_equal(table.go().total, np.full(table.sites.plan.d, 11111))
        parents.add(table.state.parent)
    assert len(parents) == 4 and all(one.opened for one in table.state.attempts)


def test_a_lost_share_costs_its_attempt_and_nothing_else(table: Table) -> None:
    table.go(), table.go(), table.go()
    parent, roster = table.state.parent, table.state.roster
    table.go("east")
    assert (
        table.state.total is None
        and table.state.parent == parent
        and table.state.gone == {"east": LATE}
    )
    assert table.state.next_roster.epoch == 1 and table.state.next_roster.first == 3
    table.go()
    assert table.state.roster != roster and table.state.phase == "share"
    np.testing.assert_array_equal(table.go().total, np.full(table.sites.plan.d, 11111 - 10))
    assert [one.opened for one in table.state.attempts] == [True, False, True]


def test_a_missing_signature_costs_an_epoch_and_no_attempt(table: Table) -> None:
    table.go(), table.go("west", why={"west": LEFT})
    assert table.state.phase == "roster" and table.state.next_roster.epoch == 1
    assert table.state.attempts == [] and table.state.gone == {"west": LEFT}
    table.go()
    assert table.state.phase == "share" and table.state.members == tuple(
        sorted(set(NAMES) - {"west"})
    )


def test_state_has_no_quorum_after_losing_too_many_sites(table: Table) -> None:
    table.go(), table.go("west")
    assert table.state.enough
    table.go("east")
    assert not table.state.enough and len(table.state.members) == 3


def test_last_models_end_a_run(table: Table) -> None:
    table.go(), table.go()
    plan = table.sites.plan
    last = Message(plan.run, plan.digest, table.round, "north", "stop", np.zeros(plan.d))
    table.state.take_messages({n: table.said(n, replace(last, sender=n)) for n in SORTED[1:]}, {})
    assert table.state.phase == "over" and table.state.gone == {SORTED[0]: LATE}


def test_early_finisher_is_marked_left(table: Table) -> None:
    table.go(), table.go()
    plan = table.sites.plan
    last = Message(plan.run, plan.digest, table.round, "north", "refuse", np.zeros(plan.d))
    table.state.take_messages(
        {n: table.said(n, last if n == "north" else None) for n in SORTED}, {}
    )
    assert table.state.gone == {"north": LEFT} and not table.state.attempts[0].opened


WRONG: dict[str, tuple[str, Callable[[Table], Any], str]] = {
    "a second greeting": (
        "roster",
        lambda t: Hello(t.keys["north"].public),
        "same history",
    ),
    "a share before the roster": (
        "roster",
        lambda t: t.share("north", roster=bytes(32)),
        "same history",
    ),
    "another epoch": (
        "roster",
        lambda t: replace(t.state.next_roster, epoch=1),
        "signs another roster 1",
    ),
    "another first attempt": (
        "roster",
        lambda t: replace(t.state.next_roster, first=2),
        "signs another roster",
    ),
    "fewer members": (
        "roster",
        lambda t: replace(t.state.next_roster, members=SORTED[1:]),
        "another roster",
    ),
    "another session": (
        "roster",
        lambda t: replace(t.state.next_roster, session=bytes(32)),
        "another roster",
    ),
    "another history": (
        "roster",
        lambda t: replace(t.state.next_roster, parent=bytes(32)),
        "another roster",
    ),
    "a roster among shares": (
        "share",
        lambda t: t.state.next_roster,
        "same history",
    ),
    "a share of another roster": (
        "share",
        lambda t: t.share("north", roster=bytes(32)),
        "another attempt",
    ),
    "a share of another attempt": (
        "share",
        lambda t: t.share("north", attempt=2),
        "another attempt",
    ),
    "a share of another history": (
        "share",
        lambda t: t.share("north", parent=bytes(32)),
        "another attempt",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_message_outside_phase_roster_or_attempt_is_refused(table: Table, wrong: str) -> None:
    phase, make, match = WRONG[wrong]
    while table.state.phase != phase:
        table.go()
    present = {name: table.said(name, make(table) if name == "north" else None) for name in SORTED}
    with pytest.raises(Refused, match=match):
        table.state.take_messages(present, {})


def test_a_signer_outside_the_roster_is_refused(table: Table) -> None:
    table.go(), table.go("west"), table.go()
    stranger = table.said("west", table.share("west"))
    with pytest.raises(Refused, match=r"'west': .* roster"):
        table.state.take_messages(
            {n: table.said(n) for n in table.state.members} | {"west": stranger}, {}
        )


def test_two_sites_with_one_key_are_refused(table: Table) -> None:
    table.keys["east"] = table.keys["west"]
    with pytest.raises(Refused, match=r"'west': .* 'east'"):
        table.go()


@pytest.mark.parametrize(
    "quorum", [(5, 4, 0), (5, 3, 2), (4, 2, 1), (6, 3, 1), (5, 6, 1), (7, 4, 1), (9, 5, 1)]
)
def test_invalid_quorum_is_refused(quorum: tuple[int, int, int]) -> None:
    """t = 0; fewer than two honest sites; 2K <= N + t; more participants than sites."""
    with pytest.raises(Refused):
        check_quorum(*quorum)


@pytest.mark.parametrize(
    "quorum", [(3, 3, 1), (5, 4, 1), (5, 5, 2), (7, 5, 1), (100, 51, 1), (100, 70, 39)]
)
def test_valid_quorum_is_accepted(quorum: tuple[int, int, int]) -> None:
    check_quorum(*quorum)


def test_site_and_hub_check_quorum_themselves(
    sites: Consortium, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of a plan that another program made: nothing is sent for it."""
    stage = sites.plan.stages[0]
    for changes, match in (
        ({"colluders": 0}, "at least 1"),
        ({"participants": 3}, "more than 3 "),
    ):
        planted = replace(stage.prepared, facts=replace(stage.facts, **changes))
        monkeypatch.setitem(sites.plan.__dict__, "stages", (replace(stage, prepared=planted),))
        with pytest.raises(Refused, match=match):
            Hub(sites.plan, None)
        with pytest.raises(Refused, match=match):
            ProtocolState.of(sites.plan)


@pytest.mark.parametrize(
    "changes", [{"colluders": 0}, {"participants": 3}, {"colluders": 4}, {"participants": 6}]
)
def test_plan_refuses_invalid_quorum(sites: Consortium, changes: dict[str, int]) -> None:
    def make() -> None:
        config = RunConfig.from_dict(
            {"method": "sum_momentum", "delta": 1e-5, "rounds": 4, "seed": 3, **changes}
        )
        make_calibrated_plan(Proposal("trial", config, sites.plan.sites, 4))

    with pytest.raises(InvalidInput, match=r"colluders|participants"):
        make()


# Signed texts


def bodies(table: Table) -> dict[str, dict[str, Any]]:
    """A greeting, a roster and a share of the site north, as plain data without their
    signatures.
    """
    found = {}
    for kind in ("key", "roster", "share"):
        while table.state.phase != kind:
            table.go()
        found[kind] = json.loads(table.said("north").data)
        del found[kind]["sig"]
    return found


def resigned(key: SigningKey, body: dict[str, Any], domain: bytes = b"sottovoce sums 1\n") -> bytes:
    from sottovoce.deploy.messages import sign_body

    return sign_body(key, domain, body)


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "members beyond the plan": ("roster", {"members": "3f"}, "not sites of the plan"),
    "members written otherwise": ("roster", {"members": "01f"}, "not sites of the plan"),
    "members in capitals": ("roster", {"members": "1F"}, "not sites of the plan"),
    "a list of members": ("roster", {"members": ["north", "north"]}, "not sites of the plan"),
    "no members": ("roster", {"members": ""}, "not sites of the plan"),
    "a negative epoch": ("roster", {"epoch": -1}, "another form"),
    "attempt zero": ("share", {"attempt": 0}, "another form"),
    "a true attempt": ("share", {"attempt": True}, "another form"),
    "a huge attempt": ("share", {"attempt": 2**63}, "another form"),
    "doubles": ("share", {"dtype": "<f8"}, "words of 64 bits"),
    "another shape": ("share", {"shape": [2, 2]}, "words of 64 bits"),
    "too few words": ("share", {"words": "AAAAAAAAAAA=", "shape": [1]}, "words of 64 bits"),
    "a short digest": ("share", {"parent": "00"}, "another form"),
    "a low-order key": ("key", {"key": "A" * 43 + "="}, "its key is of low order"),
    "an aliased key": (
        "key",
        {"key": "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIA="},
        "canonical encoding",
    ),
    "another kind": ("share", {"kind": "roster"}, "its kind"),
    "another run": ("share", {"run": "earlier"}, "another plan"),
    "another plan": ("share", {"plan": "0" * 64}, "another plan"),
    "another round": ("share", {"round": 3}, "is of another round"),
    "another sender": ("share", {"sender": "east"}, "names another sender"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_text_that_breaks_the_schema_is_refused(table: Table, broken: str) -> None:
    """Signed well all the same; and a message of an earlier run, plan or round is refused with
    it.
    """
    kind, changes, match = BROKEN[broken]
    body = bodies(table)[kind]
    round, key = int(body["round"]), table.sites.keys["north"]
    read_signed_message(table.sites.plan, resigned(key, body), "north", round)
    with pytest.raises(Refused, match=match):
        read_signed_message(table.sites.plan, resigned(key, body | changes), "north", round)


@pytest.mark.parametrize("kind", ["key", "roster", "share"])
def test_a_signature_vouches_for_every_byte_and_its_domain(table: Table, kind: str) -> None:
    body = bodies(table)[kind]
    round, plan = int(body["round"]), table.sites.plan
    for data in (
        resigned(table.sites.keys["east"], body),
        resigned(table.sites.keys["north"], body, b"sottovoce message 1\n"),
        resigned(table.sites.keys["north"], body).replace(b'"v":1', b'"v": 1'),
        resigned(table.sites.keys["north"], body) + b" ",
        canonical_json(body | {"sig": "A" * 86 + "=="}).encode(),
    ):
        with pytest.raises(Refused):
            read_signed_message(plan, data, "north", round)


def test_messages_of_other_runs_are_refused(sites: Consortium) -> None:
    for kind in ("release", "hello"):
        with pytest.raises(Refused):
            read_signed_message(sites.plan, sites.sealed("north", 2, kind=kind), "north", 2)
    assert isinstance(
        read_signed_message(sites.plan, sites.sealed("north", 2, kind="stop"), "north", 2).content,
        Message,
    )


def test_a_proof_needs_two_messages_of_one_site_and_round(table: Table) -> None:
    plan = table.sites.plan
    table.go(), table.go()
    first, other = (
        table.said("west").data,
        table.said("west", table.share("west", words=np.zeros(4, np.uint64))).data,
    )
    assert read_proof(plan, make_proof(first, other), "west", 10**5) == 2
    assert read_proof(plan, first, "west", 10**5) is None
    earlier = sign_content(plan, 1, "west", table.state.next_roster, table.sites.keys["west"])
    forged = sign_content(plan, 2, "west", table.share("west"), table.sites.keys["east"])
    for pair in (
        (first, first),
        (first, earlier),
        (first, table.said("east").data),
        (first, forged),
        (first, b"{}"),
    ):
        with pytest.raises(Refused):
            read_proof(plan, make_proof(*pair), "west", 10**5)
    for data in (
        b'{"first":1}',
        b'{"first":"x","second":',
        b'{"first":1,"second":2}',
        b'{"first":[],"second":{}}',
    ):
        with pytest.raises(Refused):
            read_proof(plan, data, "west", 10**5)


def test_answer_is_bound_to_its_question(sites: Consortium) -> None:
    plan, keys = sites.plan, sites.keys
    question = Question("north", 5, "ab" * 16)
    assert read_question(plan, question.to_signed_bytes(plan, keys["north"]), "north") == question
    answer = Attestation("east", 5, "ab" * 16, "north", 6)
    data = answer.to_signed_bytes(plan, keys["east"])
    assert read_attestation(plan, data, "east", question) == answer
    for other in (
        replace(question, nonce="cd" * 16),
        replace(question, round=4),
        replace(question, sender="west"),
    ):
        with pytest.raises(Refused, match="another question"):
            read_attestation(plan, data, "east", other)
    with pytest.raises(Refused, match="names another sender"):
        read_attestation(plan, data, "west", question)
    with pytest.raises(Refused, match="signed by 'east'"):
        read_attestation(plan, answer.to_signed_bytes(plan, keys["west"]), "east", question)
    with pytest.raises(Refused):
        read_question(plan, question.to_signed_bytes(plan, keys["east"]), "north")


# The hub


def test_a_message_of_an_earlier_run_masks_nothing_here(sites: Consortium, tmp_path: Path) -> None:
    """The same sites and plan but for the run's name: other digests, sessions and keys, so other
    masks.
    """
    again = summed(tmp_path / "again")
    object.__setattr__(again, "keys", sites.keys)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        run(sites, hub)
        old = hub.log.messages("trial")
    members = sites.plan.sites
    plan = make_calibrated_plan(Proposal("trial-2", sites.plan.config, members, sites.plan.d))
    later = Consortium(tmp_path / "later", plan, sites.keys, sites.rows)
    with hub_of(later, tmp_path / "later.log") as hub:
        for (round, name), data in old.items():
            with pytest.raises(Refused, match="another plan"):
                hub.exchange(name, round, data, 0.0)


def test_the_hub_takes_nothing_out_of_order_or_from_outside(table: Table, tmp_path: Path) -> None:
    sites = table.sites
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        early = Roster(bytes(32), 0, 1, SORTED, bytes(32))
        with pytest.raises(Refused, match="out of order"):
            hub.exchange(
                "north", 1, sign_content(sites.plan, 1, "north", early, sites.keys["north"]), 0.0
            )
        with pytest.raises(Refused, match="not a site"):
            hub.exchange("stranger", 0, table.said("north").data, 0.0)
        with pytest.raises(Refused, match="names another sender"):
            hub.exchange("east", 0, table.said("north").data, 0.0)
        for name in SORTED:
            hub.exchange(name, 0, table.said(name).data, 0.0)
        table.go()
        fewer = replace(table.state.next_roster, members=SORTED[:4])
        wrong = sign_content(sites.plan, 1, "north", fewer, sites.keys["north"])
        with pytest.raises(Refused, match="signs another roster"):
            hub.exchange("north", 1, wrong, 0.0)
        assert hub.log.last("trial", "north") == 0  # and the right one is still taken
        hub.exchange("north", 1, table.said("north").data, 0.0)


def test_hub_delivers_inbox_only_when_complete(table: Table, tmp_path: Path) -> None:
    """No inbox holds a part of a round that others may still join."""
    with hub_of(table.sites, tmp_path / "hub.log", 600.0) as hub:
        for name in SORTED[:-1]:
            assert hub.exchange(name, 0, table.said(name).data, 0.0) is None
            assert hub.rounds.inbox_of_site(name, 0) is None
        whole = hub.exchange(SORTED[-1], 0, table.said(SORTED[-1]).data, 0.0)
        assert whole == {name: table.said(name).data for name in SORTED[:-1]}
        assert hub.rounds.inbox_of_site("centre", 1) is None


def test_the_hub_waits_from_the_first_message_and_then_no_longer(
    table: Table, tmp_path: Path
) -> None:
    from sottovoce.deploy.hub import Hub
    from sottovoce.deploy.hublog import HubLog

    now = [0.0]
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(table.sites.plan, log, Waits(60.0, 60.0), clock=lambda: now[0])
        for name in SORTED:
            hub.exchange(name, 0, table.said(name).data, 0.0)
        table.go()
        now[0] = 1000.0  # nobody has signed yet, so nobody is late
        for name in SORTED[:4]:
            assert hub.exchange(name, 1, table.said(name).data, 0.0) is None
            now[0] += 10.0
        now[0] = 1059.0
        assert hub.rounds.inbox_of_site("east", 1) is None and hub.rounds.missing == ["west"]
        now[0] = 1060.0
        assert set(hub.rounds.inbox_of_site("east", 1)) == {
            "centre",
            "north",
            "south",
        } and hub.rounds.gone == {"west": LATE}
        with pytest.raises(TransportClosed) as late:
            hub.exchange("west", 1, table.said("west").data, 0.0)
        assert late.value.site == "west" and log.last("trial", "west") == 0


def test_a_clock_that_is_set_back_makes_nobody_wait_longer(table: Table, tmp_path: Path) -> None:
    from sottovoce.deploy.hub import Hub
    from sottovoce.deploy.hublog import HubLog

    now = [1000.0]
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(table.sites.plan, log, Waits(60.0, 60.0), clock=lambda: now[0])
        for name in SORTED:
            hub.exchange(name, 0, table.said(name).data, 0.0)
        table.go()
        for name in SORTED[:4]:
            hub.exchange(name, 1, table.said(name).data, 0.0)
        now[0] = 1050.0
        assert hub.rounds.inbox_of_site("east", 1) is None
        now[0] -= 10_000.0
        assert hub.rounds.inbox_of_site("east", 1) is None
        now[0] += 9.0
        assert hub.rounds.inbox_of_site("east", 1) is None and not hub.rounds.gone
        now[0] += 1.0
        assert set(hub.rounds.inbox_of_site("east", 1)) == {
            "centre",
            "north",
            "south",
        } and hub.rounds.gone == {"west": LATE}
