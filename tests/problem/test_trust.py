"""Whom people trust: what is refused, what each kind says, and which methods it belongs to."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from problems import make_rows

from sottovoce import ConsensusClassifier, ConsensusRegressor
from sottovoce.algorithms import METHODS, NAMES, REGISTRY, name_under_trust, trusts_of
from sottovoce.cli import cli
from sottovoce.deploy.members import Member
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.network.net import DenseNet
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.trust import CURATOR, NOBODY, Trust
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.config import TRUSTED, RunConfig
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate

EVERY = [
    NOBODY,
    CURATOR,
    Trust("aggregator"),
    Trust.in_sum(2, 1),
    Trust.in_sum(7, 3),
    Trust("curator", sees="the model"),
]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("somebody",), "trust"),
        (("",), "trust"),
        ((None,), "trust"),
        (("sum",), "honest"),
        (("sum", 1, 1), "honest"),
        (("sum", 0, 1), "honest"),
        (("sum", 2.0, 1), "honest"),
        (("sum", True, 1), "honest"),
        (("sum", 2, 0), "colluding"),
        (("sum", 2, -1), "colluding"),
        (("sum", 2, "1"), "colluding"),
        (("nobody", 2, 0), "honest"),
        (("curator", 0, 1), "colluding"),
        (("nobody", 0, 0, 5), "sees"),
    ],
)
def test_inconsistent_trust_is_refused(given: tuple[Any, ...], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Trust(*given)
    assert caught.value.field == field


def test_trust_is_immutable_and_comparable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NOBODY.kind = "curator"  # type: ignore[misc]
    assert len(set(EVERY)) == len(EVERY) and Trust("nobody") == NOBODY


def test_wording_of_adversaries() -> None:
    assert NOBODY.adversary == "sees every message of every round and all of this configuration"
    assert NOBODY.excepted is None
    # Its curator is sent the rows themselves: whoever sees those messages is not protected from.
    assert CURATOR.adversary == "sees all that the curator releases and all of this configuration"
    assert CURATOR.excepted == "the curator, who holds all rows"
    assert Trust("aggregator", sees="the average").adversary == "sees the average"
    assert Trust("aggregator").excepted == "the aggregator, who sees every site's exact model"


def test_a_sum_says_who_may_collude_and_who_must_be_honest() -> None:
    said = Trust.in_sum(5, 2).adversary
    for phrase in (
        "every message of every round",
        "any 2 of the sites know",
        "at least 5 other sites",
        "encryption",
    ):
        assert phrase in said
    assert "one of the" in Trust.in_sum(2, 1).adversary
    assert Trust.in_sum(5, 2).excepted is None


def test_properties_of_each_trust() -> None:
    assert [trust.pools_rows for trust in EVERY] == [False, True, False, False, False, True]
    assert [trust.between_sites for trust in EVERY] == [True, False, False, True, True, False]


@pytest.mark.parametrize("trust", EVERY)
def test_plain_data_and_back(trust: Trust) -> None:
    assert Trust.from_dict(json.loads(json.dumps(trust.to_dict()))) == trust


@pytest.mark.parametrize(
    "plain",
    [
        None,
        "nobody",
        {},
        {"kind": "nobody"},
        NOBODY.to_dict() | {"more": 1},
        NOBODY.to_dict() | {"kind": ["nobody"]},
        NOBODY.to_dict() | {"colluding": 1},
        NOBODY.to_dict() | {"sees": None},
    ],
)
def test_plain_data_of_others_is_refused(plain: Any) -> None:
    with pytest.raises(InvalidInput):
        Trust.from_dict(plain)


def test_methods_keep_their_trust() -> None:
    curators = {name for name, cls in REGISTRY.items() if cls.trust == CURATOR}
    assert curators == {"central", "central_gd", "central_sgd", "central_momentum", "central_prox"}
    sums = {name for name, cls in REGISTRY.items() if cls.trust == Trust.in_sum(2, 1)}
    assert sums == {"sum_momentum", "sum_prox"}
    assert all(cls.trust in (NOBODY, CURATOR, Trust.in_sum(2, 1)) for cls in REGISTRY.values())
    listed = json.loads(
        CliRunner().invoke(cli, ["methods", "--all", "--json"], catch_exceptions=False).output
    )
    expected = dict.fromkeys(REGISTRY, "nobody")
    expected |= dict.fromkeys(curators, "curator") | dict.fromkeys(sums, "sum")
    pairs = (pair for entry in listed for pair in entry["trusts"].items())
    assert {pair["name"]: trust for trust, pair in pairs} == expected


# Trust as an argument

PAIRS = [(one.cls.name, one.kind, one.name) for one in METHODS]
ROWS = make_rows([40, 55, 60, 45, 50], 4, seed=3)


def config_of(method: str, trust: str | None = None, **more: Any) -> RunConfig:
    return RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 2.0,
            "delta": 1e-5,
            "rounds": 4,
            "accountant": "zcdp",
            **({"trust": trust} | more),
        }
    )


@pytest.mark.parametrize(("method", "trust", "name"), PAIRS)
def test_a_method_and_a_trust_are_the_run_that_their_name_says(
    method: str, trust: str, name: str
) -> None:
    """The same models, ledger and statement, whichever way it is asked for; and the adversary of
    that trust.
    """
    assert (
        name_under_trust(method, trust) == name_under_trust(name, trust) == name
        and trusts_of(name)[trust] == name
    )
    if not REGISTRY[name].private:
        return
    pair, named = (simulate(one, ROWS) for one in (config_of(method, trust), config_of(name)))
    assert pair.config.method == pair.algorithm["name"] == name
    assert np.array_equal(pair.models, named.models) and pair.ledger == named.ledger
    assert (
        pair.privacy == named.privacy and pair.statement.trust.kind == pair.config.trusts == trust
    )
    assert pair.config.to_dict() == named.config.to_dict() | (
        {} if trust == "nobody" else {"trust": trust}
    )
    for result in (pair, named):
        assert RunConfig.from_dict(json.loads(json.dumps(result.config.to_dict()))) == result.config


@pytest.mark.parametrize(
    ("name", "trust"), list(itertools.product([n for n in REGISTRY if n != "admm"], TRUSTED))
)
def test_a_run_has_the_trust_that_was_asked_for_or_is_refused(name: str, trust: str) -> None:
    """A name that says one trust with another trust is refused, and so is a trust that a method
    has not.
    """
    if REGISTRY[name].trust.kind == trust or (name in NAMES and trust in trusts_of(name)):
        assert (
            config_of(name, trust).trusts
            == REGISTRY[name_under_trust(name, trust)].trust.kind
            == trust
        )
        return
    with pytest.raises(InvalidInput) as refused:
        config_of(name, trust)
    assert (
        refused.value.field == "trust"
        and repr(trust) in str(refused.value)
        and repr(name) in str(refused.value)
    )


def test_given_trust_is_never_changed_silently() -> None:
    for config, change in (
        (config_of("momentum", "sum"), {"trust": "nobody"}),
        (config_of("momentum"), {"method": "sum_momentum"}),
        (config_of("momentum", "nobody"), {"method": "central"}),
        (config_of("sum_momentum"), {"trust": "curator"}),
        (config_of("auto", "sum"), {"method": "mr_admm"}),
    ):
        with pytest.raises(InvalidInput, match=r"^trust="):
            config.but(**change)
    assert config_of("momentum", "sum").but(method="prox_average").method == "sum_prox"
    assert choose_method(config_of("sum_momentum"), (300,) * 5, 6, free=()).config.trusts == "sum"


@pytest.mark.parametrize("given", [("train",), ("demo",)])
def test_the_command_line_refuses_a_name_of_another_trust(given: tuple[str, ...]) -> None:
    run = CliRunner().invoke(cli, [*given, "--method", "sum_momentum", "--trust", "nobody"])
    assert isinstance(run.exception, InvalidInput)
    assert (
        str(run.exception).startswith("trust='nobody': method 'sum_momentum'") and run.output == ""
    )


def test_the_command_line_takes_a_method_and_a_trust() -> None:
    call = [
        "train",
        "--data",
        "synthetic:n=600,d=5,seed=1",
        "--rounds",
        "4",
        "--json",
        "--seed",
        "1",
        "--method",
    ]

    def report(*more: str) -> dict[str, Any]:
        return dict(
            json.loads(CliRunner().invoke(cli, [*call, *more], catch_exceptions=False).output)
        )

    pair, named = report("momentum", "--trust", "sum"), report("sum_momentum")
    assert (
        pair["method"] == named["method"] == "sum_momentum" and pair["privacy"] == named["privacy"]
    )
    assert pair["test_error"] == named["test_error"] and pair["privacy"]["trust"]["kind"] == "sum"


def test_estimators_take_both_and_refuse_a_contradiction() -> None:
    X, y, sites = (
        np.random.default_rng(0).normal(size=(90, 2)),
        np.tile([0, 1], 45),
        np.arange(90) % 3,
    )
    fits = [
        ConsensusClassifier("momentum", rounds=3, data_norm=3.0, random_state=0, trust="sum").fit(
            X, y, sites
        ),
        ConsensusClassifier("sum_momentum", rounds=3, data_norm=3.0, random_state=0).fit(
            X, y, sites
        ),
    ]
    assert (
        np.array_equal(fits[0].coef_, fits[1].coef_)
        and fits[0].privacy_spent_["trust"]["kind"] == "sum"
    )
    with pytest.raises(InvalidInput, match=r"^trust='nobody': method 'sum_momentum'"):
        ConsensusClassifier(
            "sum_momentum", rounds=3, data_norm=3.0, random_state=0, trust="nobody"
        ).fit(X, y, sites)
    lines = ConsensusRegressor(
        (-1.0, 1.0),
        loss="log-cosh:0.5",
        method="sum_momentum",
        rounds=3,
        data_norm=3.0,
        random_state=0,
        knobs={"colluders": 2},
    ).fit(np.repeat(X, 2, axis=0), np.tile(y, 2), groups=np.arange(180) % 6)
    # as asked: it was 1, as the name said and not `trust`
    assert lines.privacy_spent_["trust"]["colluding"] == 2


def test_a_method_of_sums_does_not_run_where_nothing_is_sealed() -> None:
    """Without participants a node would answer with noise of its own, and the statement would
    speak of sums.
    """
    for name, other in (("sum_momentum", "momentum"), ("momentum", "sum_momentum")):
        mine, foreign = (prepare(config_of(m), ROWS.n, ROWS.d) for m in (name, other))
        book = Ledger("zcdp", 9.0, 1e-5)
        guard = RowGuard(ROWS, foreign.facts, KeyedNoise(0, [0], range(5)), book)
        place = Place(foreign.facts, DenseNet(foreign.graph), guard, (1, 5), ROWS.d)
        with pytest.raises(InvalidInput, match=r"^participants="):
            run_rounds(mine.algorithm, place, 4)
        assert book.rows == ()


def test_plans_of_sites_carry_the_trust_in_their_digest() -> None:
    keys = [base64.b64encode(bytes([k]) * 32).decode() for k in range(3)]
    sites = [
        Member(name, 60, key) for name, key in zip(("north", "east", "south"), keys, strict=True)
    ]
    made = {
        trust: make_calibrated_plan(Proposal("run", config_of("momentum", trust), sites, 4))
        for trust in ("nobody", "sum")
    }
    assert made["nobody"].digest != made["sum"].digest
    assert [made[trust].planned_privacy.statement.trust.kind for trust in made] == list(made)
