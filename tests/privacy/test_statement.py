"""The statement as a value: frozen, made once, derived by methods, kept by files."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import CheckpointError, InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.events import GaussianMechanism, Unprotected
from sottovoce.privacy.statement import (
    DEMONSTRATION,
    Statement,
    build_statement,
    with_further_facts,
)
from sottovoce.privacy.statement_facts import (
    EXACT,
    ONE_ROW,
    PUBLIC,
    UNUSED,
    Against,
    AtSite,
    Caveats,
    Claim,
    Fact,
    Form,
    InLedger,
    Proved,
    Relation,
    RestsOn,
    Shared,
    Simulated,
    TakenAsPublic,
    UnderOtherRelation,
    Unit,
    Unproved,
)
from sottovoce.problem.trust import CURATOR, NOBODY, Trust
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import outline_run
from sottovoce.runs.simulate import Result, simulate
from sottovoce.util.plain import infinities_to_text

MINIMAL = {
    "epsilon",
    "delta",
    "relation",
    "unit",
    "accountant",
    "accountants",
    "adversary",
    "public",
    "per_node",
    "releases",
    "form",
    "release",
    "says",
}
SENT = "sees every message of every round and all of this configuration"
LIKELY = (
    f"Protects one row of one site (replace-one): whoever {SENT} "
    "finds no outcome more than 2.72 times as likely with the row as with another in its place"
)
OLD: dict[str, dict[str, Any]] = {
    "delta": {
        "epsilon": 0.9999492277338518,
        "delta": 1e-05,
        "relation": "replace-one",
        "unit": "one row of one site",
        "accountant": "pld",
        "accountants": {
            "pure": math.inf,
            "zcdp": 1.0922934908479296,
            "rdp": 1.0922934908479296,
            "pld": 0.9999492277338518,
        },
        "adversary": SENT,
        "public": PUBLIC,
        "per_node": [0.9999492277338518] * 3,
        "releases": 2,
        "form": "corrected",
        "release": False,
        "says": "epsilon = 1.000, delta = 1e-05, proved; by loss distributions, 2 releases a "
        "site (by zCDP 1.093, "
        f"Renyi 1.093).\n{LIKELY}, but for a probability of 1e-05.\nSimulation, not a release: "
        "whoever knows the seed "
        "can remove the noise.",
    },
    "printed": {
        "epsilon": 1.517344602123172,
        "delta": 0.0,
        "relation": "replace-one",
        "unit": "one row of one site",
        "accountant": "pure",
        "accountants": {"pure": 1.517344602123172},
        "adversary": SENT,
        "public": PUBLIC,
        "per_node": [1.517344602123172] * 3,
        "releases": 2,
        "form": "printed",
        "release": False,
        "printed_claim": 0.9999999995,
        "assumes": EXACT,
        "says": "epsilon = 1.518, delta = 0 (pure), proved",
    },
    "none": {
        "epsilon": math.inf,
        "delta": 0.0,
        "relation": "replace-one",
        "unit": "one row of one site",
        "accountant": "pure",
        "accountants": {"pure": math.inf},
        "adversary": SENT,
        "public": PUBLIC,
        "per_node": [math.inf] * 3,
        "releases": 2,
        "form": "corrected",
        "release": False,
        "says": "No privacy guarantee: the run drew no noise (epsilon = inf).",
    },
    "site": {
        "epsilon": 0.75,
        "delta": 0.0,
        "relation": "zero-out",
        "unit": "one row of one site",
        "accountant": "pure",
        "accountants": {"pure": 0.75},
        "adversary": SENT,
        "public": PUBLIC,
        "per_node": [0.75],
        "releases": 3,
        "form": "corrected",
        "release": False,
        "says": "epsilon = 0.750",
        "site": "north",
        "demonstration": DEMONSTRATION,
    },
    "shared": {
        "epsilon": 0.5,
        "delta": 0.0,
        "relation": "replace-one",
        "unit": "one row at each of 2 sites",
        "accountant": "pure",
        "accountants": {"pure": 0.5},
        "adversary": SENT,
        "public": PUBLIC,
        "per_node": [0.5, 0.25],
        "releases": 3,
        "form": "corrected",
        "release": True,
        "says": "epsilon = 0.500",
        "ledger": {"run": "one", "spent": 0.9, "budget": [2.0, 2.0], "delta": 0.0},
    },
}
"""Statements with words that are false: what `says` says of a delta."""


def book() -> Ledger:
    """Two releases of three nodes."""
    ledger = Ledger("rdp", math.inf, 1e-5)
    for _ in range(2):
        ledger.record_event(
            GaussianMechanism("a test", "replace-one", np.full(3, 5.0), np.full(3, 1.0), 2)
        )
    return ledger


def one(*more: Fact, nodes: int = 3) -> Statement:
    """The statement of :func:`book`, with further facts."""
    return build_statement([*usual(Proved.proved_by_ledger(book(), nodes)), *more])


def usual(proved: Proved) -> list[Fact]:
    return [
        proved,
        Against(NOBODY),
        Relation("replace-one"),
        Unit(),
        TakenAsPublic(),
        Form("corrected"),
        Simulated(True),
    ]


# Made once


def test_statement_is_immutable_in_all_parts() -> None:
    said = one(InLedger(Shared("run", 1.0, (2.0,), 1e-5)))
    for field in dataclasses.fields(said):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(said, field.name, None)
    hash(said)  # no list, dict or array in it
    assert pickle.loads(pickle.dumps(said)) == said


def test_changing_the_plain_data_leaves_the_statement_unchanged() -> None:
    said = one()
    plain = said.to_dict()
    plain["epsilon"] = 0.1
    plain["per_node"].append(0.0)
    plain["accountants"].clear()
    assert said.to_dict() == one().to_dict() and said.to_dict() is not plain


def test_statement_repeats_the_ledgers_totals() -> None:
    ledger, said = book(), one()
    assert said.epsilon == ledger.total() and said.delta == 1e-5 and said.releases == 2
    assert said.per_node == tuple(ledger.per_node()) and dict(said.accountants) == ledger.report()
    assert said.accountant == min(ledger.report(), key=ledger.report().__getitem__)
    assert one(nodes=1).per_node == (ledger.total(),)


@pytest.mark.parametrize(("releases", "counted"), [(1, "1 release a"), (2, "2 releases a")])
def test_the_accountants_sentence_counts_releases_in_the_right_number(
    releases: int, counted: str
) -> None:
    said = dataclasses.replace(one(), releases=releases)
    assert counted in dict(said.words)["Accountant"]


def test_nothing_is_proved_of_a_release_without_noise() -> None:
    ledger = Ledger("rdp", math.inf, 1e-5)
    ledger.record_event(Unprotected("a test", np.full(2, 10.0)))
    said = build_statement([*usual(Proved.proved_by_ledger(ledger, 2)), Unproved("no noise")])
    assert math.isinf(said.epsilon) and said.delta == 0.0 and said.per_node == (math.inf, math.inf)
    ((headline, reason),) = said.words
    assert headline.startswith("No ") and "no noise" in reason and "inf" in reason
    assert said.protects == "nothing" and said.not_protected.endswith("no noise")
    assert "the span" in with_further_facts(said, Unproved("the span")).text


def test_reasons_and_assumptions_are_dropped_where_they_do_not_apply() -> None:
    assert (
        one(Unproved("no noise")).unprotected is None
        and with_further_facts(one(), Unproved("no noise")) == one()
    )
    assert one(Claim(None, EXACT)).assumes is None
    assert one(Claim(0.5, EXACT)).assumes == EXACT


def test_a_statement_of_unused_rows_has_epsilon_zero() -> None:
    said = unused()
    assert (said.epsilon, said.protects, said.not_protected) == (0.0, UNUSED, "")
    headline, reason = said.words[0]
    assert headline == "epsilon = 0.000" and "none" in reason


def unused() -> Statement:
    nothing = Proved.nothing_released("pure")
    return build_statement([*usual(nothing), Relation("zero-out"), Unit(UNUSED), TakenAsPublic("")])


# What follows from further facts


def test_every_fact_is_of_a_field_and_a_statement_of_all_facts() -> None:
    """Facts by themselves settle what they name, later ones win, and none that is needed may be
    missing.
    """
    known = usual(Proved.proved_by_ledger(book(), 3))
    for fact in known:
        with pytest.raises((TypeError, KeyError)):
            build_statement([other for other in known if other is not fact])
    found = build_statement(
        [*known, RestsOn(("this",)), UnderOtherRelation(0.25), RestsOn(("that",))]
    )
    assert (found.rests, found.other_epsilon) == (("that",), 0.25)
    assert (
        with_further_facts(build_statement(known), RestsOn(("that",)), UnderOtherRelation(0.25))
        == found
    )


def test_derived_statements_leave_the_first_as_it_is() -> None:
    said = one()
    before, plain = dataclasses.asdict(said), said.to_dict()
    site = with_further_facts(said, AtSite("north", 2))
    assert site.per_node == (said.epsilon,) and site.early is None and site.demonstration
    assert list(site.to_dict())[-3:] == ["site", "made", "demonstration"]
    assert site.to_dict()["demonstration"] == DEMONSTRATION
    early = with_further_facts(said, AtSite("north", 1))
    assert early.epsilon == said.epsilon and "after 1 of" in str(early.early)
    assert f"Ended early: {early.early}." in early.text and early.to_dict()["early"] == early.early
    real = one(Simulated(False), AtSite("north", 2))
    assert (
        not real.demonstration
        and "demonstration" not in real.to_dict()
        and "Simulation" not in real.text
    )
    shared = with_further_facts(said, InLedger(Shared("trial", 1.5, (2.0, 3.0), 1e-5)))
    assert shared.ledger == Shared("trial", 1.5, (2.0, 3.0), 1e-5)
    assert shared.to_dict()["ledger"] == {
        "run": "trial",
        "spent": 1.5,
        "budget": [2.0, 3.0],
        "delta": 1e-5,
    }
    both = with_further_facts(said, Caveats("first"), Caveats(("second", None, "first")))
    assert both.caveat == "first; second" and "first; second." in both.text
    assert with_further_facts(said, Caveats(None)) == said == with_further_facts(said)
    claimed = with_further_facts(said, Claim(0.001))
    verdict = dict(claimed.words)["As printed"]
    assert "0.001" in verdict and "not proved" in verdict and "Assumes" not in claimed.text
    assert dataclasses.asdict(said) == before and said.to_dict() == plain


# What it says


def test_wording_of_a_curators_statement_does_not_speak_of_every_message() -> None:
    """The sites' messages to a curator are their rows: whoever sees those sees everything."""
    words = outline_run(RunConfig(method="central", delta=1e-5), np.full((3, 1), 500.0), 4)[
        "privacy"
    ]
    assert words["adversary"] == CURATOR.adversary and "every message" not in words["says"]
    assert (
        "against whoever sees all that the curator releases and all of this configuration, but "
        "not against the "
        "curator, who holds all rows: whatever set of outcomes" in words["says"]
    )
    not_protected = one(Against(CURATOR), TakenAsPublic("sizes")).not_protected
    assert not_protected == f"against {CURATOR.excepted}; sizes"


def test_a_sums_statement_names_who_may_collude() -> None:
    trust = Trust.in_sum(3, 1)
    assert f"against whoever {trust.adversary}: whatever set" in one(Against(trust)).text


def test_a_plan_says_all_but_whether_it_will_be_a_simulation() -> None:
    assert one().words[:-1] == one().guarantee == one(Simulated(False)).words
    assert one().words[-1][0].startswith("Simulation")
    assert (
        one().text
        == "\n".join(head + rest for head, rest in one().words)
        == one().to_dict()["says"]
    )


def test_wording_of_units() -> None:
    assert Unit.of_rows(1).unit == ONE_ROW
    assert Unit.of_rows(3).unit.endswith("3 sites")
    assert "the row is" in one(Unit("aggregator's row")).text
    assert "these rows is" in one(Unit.of_rows(3)).text


# Plain data and back


@pytest.mark.parametrize(
    "said",
    [
        one(),
        one(Simulated(False)),
        one(Caveats(("a", None, "b"))),
        one(Against(CURATOR)),
        one(Against(Trust.in_sum(4, 2))),
        one(Against(Trust("aggregator", sees="the average"))),
        one(Form("printed"), Claim(0.5, EXACT)),
        one(AtSite("north", 1)),
        one(InLedger(Shared("r", 1.0, (2.0,), 1e-5))),
        unused(),
    ],
)
def test_statement_survives_a_round_trip_through_plain_data(said: Statement) -> None:
    plain = said.to_dict()
    assert plain.keys() >= MINIMAL and list(plain)[:12] == [
        "epsilon",
        "delta",
        "relation",
        "unit",
        "accountant",
        "accountants",
        "adversary",
        "public",
        "per_node",
        "releases",
        "form",
        "release",
    ]
    assert ("trust" in plain) == (said.trust not in (NOBODY, CURATOR))
    for read in (
        plain,
        json.loads(json.dumps(plain)),
        json.loads(json.dumps(infinities_to_text(plain), allow_nan=False)),
    ):
        assert Statement.from_dict(read) == said and Statement.from_dict(read).to_dict() == plain


@pytest.mark.parametrize("name", OLD)
def test_words_in_a_file_are_not_believed_but_derived_anew(name: str) -> None:
    """All that was proved is kept; the sentence in these is false under a delta."""
    old = OLD[name]
    new = Statement.from_dict(json.loads(json.dumps(old))).to_dict()
    assert list(new) == list(old)
    assert {key for key in old if new[key] != old[key]} <= {"says"}
    assert "times as likely" not in new["says"]


BROKEN: list[dict[str, Any]] = [
    {"epsilon": "1"},
    {"epsilon": math.nan},
    {"epsilon": -1.0},
    {"epsilon": True},
    {"delta": None},
    {"relation": 1},
    {"unit": []},
    {"accountants": []},
    {"accountants": {"pure": "x"}},
    {"accountants": [["pure", None]]},
    {"per_node": 1.0},
    {"per_node": [None]},
    {"releases": -1},
    {"releases": 2.0},
    {"release": 1},
    {"public": None},
    {"caveat": 3},
    {"made": "all"},
    {"site": 1},
    {"ledger": []},
    {"ledger": {}},
    {"printed_claim": "all"},
    {"adversary": "sees nothing"},
    {"adversary": None},
    {"trust": "nobody"},
    {"trust": {"kind": "sum"}},
]


@pytest.mark.parametrize("change", BROKEN)
def test_what_is_no_statement_is_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Statement.from_dict(OLD["delta"] | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", sorted(MINIMAL - {"says", "adversary"}))
def test_a_missing_key_is_refused(key: str, tmp_path: Path) -> None:
    plain = {k: v for k, v in OLD["delta"].items() if k != key}
    with pytest.raises(InvalidInput) as caught:
        Statement.from_dict(plain)
    assert caught.value.field == key
    for foreign in (None, [], "x"):
        with pytest.raises(InvalidInput):
            Statement.from_dict(foreign)  # type: ignore[arg-type]


def test_a_saved_run_with_a_broken_statement_is_refused(tmp_path: Path) -> None:
    X, y = np.eye(4)[np.arange(60) % 4] * 0.9, np.where(np.arange(60) % 3, 1.0, -1.0)
    simulate(RunConfig(rounds=2), Rows.build_from_parts([(X, y)] * 3)).save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as file:
        meta, models = json.loads(str(file["meta"])), file["models"]
    for change in (
        {},
        {"epsilon": 1.0},
        meta["privacy"] | {"epsilon": math.nan},
        meta["privacy"] | {"ledger": 3},
    ):
        np.savez(
            tmp_path / "bad.npz",
            meta=np.array(json.dumps(meta | {"privacy": change})),
            models=models,
        )
        with pytest.raises(CheckpointError, match="not a saved"):
            Result.load(tmp_path / "bad.npz")
