"""Whom people trust: what is refused, what each kind says, and which methods it belongs to."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from click.testing import CliRunner

from sottovoce.algorithms import REGISTRY
from sottovoce.cli import cli
from sottovoce.errors import InvalidInput
from sottovoce.trust import CURATOR, NOBODY, Trust

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
        (("somebody",), "trust"), (("",), "trust"), ((None,), "trust"),
        (("sum",), "honest"), (("sum", 1, 1), "honest"), (("sum", 0, 1), "honest"), (("sum", 2.0, 1), "honest"),
        (("sum", True, 1), "honest"), (("sum", 2, 0), "colluding"), (("sum", 2, -1), "colluding"),
        (("sum", 2, "1"), "colluding"), (("nobody", 2, 0), "honest"), (("curator", 0, 1), "colluding"),
        (("nobody", 0, 0, 5), "sees"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given: tuple[Any, ...], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Trust(*given)
    assert caught.value.field == field


def test_it_is_frozen_and_can_be_told_apart() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NOBODY.kind = "curator"  # type: ignore[misc]
    assert len(set(EVERY)) == len(EVERY) and Trust("nobody") == NOBODY


def test_who_sees_what() -> None:
    assert NOBODY.adversary == "sees every message of every round and all of this configuration"
    assert NOBODY.excepted is None
    # Its curator is sent the rows themselves: whoever sees those messages is not protected from.
    assert CURATOR.adversary == "sees all that the curator releases and all of this configuration"
    assert CURATOR.excepted == "the curator, who holds all rows"
    assert Trust("aggregator", sees="the average").adversary == "sees the average"
    assert Trust("aggregator").excepted == "the aggregator, who sees every site's exact model"


def test_a_sum_says_who_may_collude_and_who_must_be_honest() -> None:
    said = Trust.in_sum(5, 2).adversary
    for phrase in ("every message of every round", "any 2 of the sites know", "at least 5 other sites", "encryption"):
        assert phrase in said
    assert "one of the sites knows" in Trust.in_sum(2, 1).adversary
    assert Trust.in_sum(5, 2).excepted is None


def test_what_a_run_may_do_with_it() -> None:
    assert [trust.pools_rows for trust in EVERY] == [False, True, False, False, False, True]
    assert [trust.between_sites for trust in EVERY] == [True, False, False, True, True, False]


@pytest.mark.parametrize("trust", EVERY)
def test_plain_data_and_back(trust: Trust) -> None:
    assert Trust.from_dict(json.loads(json.dumps(trust.to_dict()))) == trust


@pytest.mark.parametrize(
    "plain",
    [None, "nobody", {}, {"kind": "nobody"}, NOBODY.to_dict() | {"more": 1}, NOBODY.to_dict() | {"kind": ["nobody"]},
     NOBODY.to_dict() | {"colluding": 1}, NOBODY.to_dict() | {"sees": None}],
)  # fmt: skip
def test_plain_data_of_others_is_refused(plain: Any) -> None:
    with pytest.raises(InvalidInput):
        Trust.from_dict(plain)


def test_methods_name_theirs_as_before() -> None:
    curators = {name for name, cls in REGISTRY.items() if cls.trust == CURATOR}
    assert curators == {"central", "central_gd", "central_sgd", "central_momentum", "central_prox"}
    sums = {name for name, cls in REGISTRY.items() if cls.trust == Trust.in_sum(2, 1)}
    assert sums == {"sum_momentum", "sum_prox"}
    assert all(cls.trust in (NOBODY, CURATOR, Trust.in_sum(2, 1)) for cls in REGISTRY.values())
    listed = json.loads(CliRunner().invoke(cli, ["methods", "--all", "--json"], catch_exceptions=False).output)
    assert {pair["name"]: trust for entry in listed for trust, pair in entry["trusts"].items()} == {
        name: "curator" if name in curators else "sum" if name in sums else "nobody" for name in REGISTRY
    }
