"""The table of a plan's exchanges, and its quorum: what every site and the hub compute before
the first message.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from centred_in_tests import SUMS, centred
from sites_in_tests import consortium

from sottovoce.deploy.asks import Asks
from sottovoce.deploy.exchange_table import ANSWERS_CAP, Exchange
from sottovoce.deploy.quorum import Quorum
from sottovoce.deploy.waits import DEFAULT
from sottovoce.errors import InvalidInput


def test_a_training_sends_a_model_a_round_to_its_neighbours(tmp_path: Path) -> None:
    plan = consortium(tmp_path, graph="path").plan
    table = plan.exchange_table
    assert table.rows == (Exchange(4, plan.norm_cap),) * 4
    assert (table.attempts, table.last, table.widest_message, table.any_heard_by_all) == (
        4,
        5,
        4,
        False,
    )
    assert table.release(5) == table.last_model == Exchange(4, plan.norm_cap)
    assert [table.names_heard_by("east", k) for k in (0, 1, 5)] == [("north", "south")] * 3
    assert table.names_heard_by("north", 1) == table.neighbour_names("north") == ("east",)
    with pytest.raises(InvalidInput, match=r"^name='nowhere'"):
        table.neighbour_names("nowhere")


def test_means_and_answers_are_heard_by_all_under_caps_of_their_own(tmp_path: Path) -> None:
    """On a path: twice the mean of rows, three rounds, every site's last model, then counts on
    held-out rows.
    """
    plan = centred(tmp_path, asks=Asks(evaluation=4.0, holdout=0.3)).plan
    rows, cap = plan.exchange_table.rows, plan.norm_cap
    means, rounds, shown, answers = rows[:2], rows[2:5], rows[5], rows[6:]
    assert all(row.heard_by_all and not row.held_out and row.norm_cap < 10.0 for row in means)
    assert rounds == (Exchange(5, cap),) * 3
    assert shown == Exchange(5, cap, heard_by_all=True, held_out=True)
    assert answers and all(row[1:] == (ANSWERS_CAP, True, True) for row in answers)
    assert plan.exchange_table.any_heard_by_all
    assert plan.exchange_table.widths == tuple(row.width for row in rows)


def test_an_attempt_reads_the_rows_of_its_members_alone(tmp_path: Path) -> None:
    plan = centred(tmp_path, asks=Asks(evaluation=4.0, holdout=0.3), **SUMS).plan
    table = plan.exchange_table
    first, last = (table.among(attempt, ["north", "west"]) for attempt in (1, table.attempts))
    assert (first.rows, first.sites) == (210.0 + 147.0, 2)
    assert (last.rows, last.sites) == (90.0 + 63.0, 2)


def test_a_site_that_may_be_lost_takes_an_exchange_for_a_roster(tmp_path: Path) -> None:
    endless = consortium(tmp_path, method="dvp").plan
    patient = replace(endless, waits=DEFAULT)
    assert endless.quorum == Quorum(3, 2, may_lose_sites=False) and patient.quorum == Quorum(
        3, 2, may_lose_sites=True
    )
    assert patient.exchange_table.last == endless.exchange_table.last + 1
    summed = centred(tmp_path / "sums", **SUMS).plan
    assert summed.quorum == Quorum(4, summed.facts.participants, may_lose_sites=True)
    assert (
        summed.exchange_table.last
        == summed.exchange_table.attempts + 1 + summed.quorum.most_lost_sites + 1
    )
