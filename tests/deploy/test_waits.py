"""How long rounds wait: a part of every plan, with infinite patience for a run over a graph
alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites_in_tests import Consortium, consortium
from sums_in_tests import summed

from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.waits import DEFAULT, ENDLESS, Waits
from sottovoce.errors import InvalidInput

pytest.importorskip("cryptography")


@pytest.mark.parametrize("waits", [DEFAULT, ENDLESS, Waits(1.5, 2.0)])
def test_a_plan_keeps_how_long_its_rounds_wait(tmp_path: Path, waits: Waits) -> None:
    sites = consortium(tmp_path / "sites", waits=waits)
    write_plan_file(sites.plan, tmp_path / "plan.json")
    again = read_plan_file(tmp_path / "plan.json")
    assert again.waits == waits and again.digest == sites.plan.digest
    assert sites.plan.to_dict()["waits"] == {"deadline": waits.deadline, "patience": waits.patience}


def test_a_run_that_waits_for_ever_needs_all_its_sites(sites: Consortium, tmp_path: Path) -> None:
    assert sites.plan.waits.waits_for_ever and not sites.plan.quorum.may_lose_sites
    assert consortium(tmp_path / "others", waits=DEFAULT).plan.quorum.may_lose_sites


def test_a_run_of_sums_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        summed(tmp_path / "sites", waits=ENDLESS)
    assert caught.value.field == "patience"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((None, 5.0), "deadline"),
        ((5.0, None), "patience"),
        ((0.0, 5.0), "deadline"),
        ((True, 5.0), "deadline"),
        ((5.0, 4.0), "patience"),
        ((5.0, float("inf")), "patience"),
        ((float("nan"), 5.0), "deadline"),
        (("5", 6.0), "deadline"),
        ((5.0, 1e9), "patience"),
    ],
)
def test_waits_must_be_seconds_or_both_none(given: tuple[Any, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Waits(*given)
    assert caught.value.field == field


def test_a_hub_may_be_given_another_deadline_unless_its_plan_waits_for_ever() -> None:
    assert Waits(5.0, 60.0).with_deadline(20.0) == Waits(20.0, 60.0)
    assert Waits(5.0, 60.0).with_deadline(90.0) == Waits(90.0, 90.0)
    with pytest.raises(InvalidInput) as caught:
        ENDLESS.with_deadline(5.0)
    assert caught.value.field == "patience"
