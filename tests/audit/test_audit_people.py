"""The game of people: what is claimed of a person with several rows holds; rows not bounded
together are refuted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planting import planted

from sottovoce.audit import attack
from sottovoce.audit.game import Options
from sottovoce.audit.people import ANSWERS, METHODS, ROWS, play, user_level_cases
from sottovoce.errors import InvalidInput

GAME = """
import json
from sottovoce.audit.game import Options
from sottovoce.audit.people import user_level_cases, play
some = {name: case for name, case in user_level_cases().items() if name in ("prox_admm", "momentum", "mean of rows", "survey")}
verdict = play(Options(replicates=2000), some)
print(json.dumps([verdict.claimed_epsilon, verdict.lower_bound]))
"""
REFUTED = {
    "every row counts one": (
        "data/person.py",
        {"_BELOW / count[number]": "_BELOW + 0.0 * count[number]"},
    ),
    "weights of the root": (
        "data/person.py",
        {"_BELOW / count[number]": "_BELOW / np.sqrt(count[number])"},
    ),
    "a mean that forgets weights": (
        "queries/bounded.py",
        {
            "each = partial(self.sum_over_block, weighed=facts.has_several_rows)": "each = self.sum_over_block"
        },
    ),
    "a survey that forgets weights": (
        "queries/bounded.py",
        {"row_weights = list(np.asarray(block.to_numpy_array(block.weight)))": "pass"},
    ),
}


def test_the_claim_stands_for_every_kind_of_release_and_is_tight() -> None:
    stands = user_level_cases()
    assert set(stands) == {*METHODS, *ANSWERS, "survey", "descriptive table"}
    for case in stands.values():
        assert case.config.rows_per_person == ROWS
        first, second = case.tables
        assert (
            first.n.tolist() == second.n.tolist()
            and first.rows_per_node[0] != second.rows_per_node[0]
        )
        assert not np.array_equal(
            first.rows_of_node(0).fingerprint_arrays()[0],
            second.rows_of_node(0).fingerprint_arrays()[0],
        )
    verdict = attack("people", replicates=2000)
    assert not verdict.refuted and verdict.lower_bound > 0.6
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-4)


def test_a_claim_about_rows_would_be_false_of_these_people() -> None:
    """The same tables with rows as the unit: a person of four rows costs more than one row does."""
    case = user_level_cases()["dgd"]
    n = (
        case.tables[0].rows_per_node[:, None].astype(float)
    )  # the same public number of rows on both
    first, second = (
        replace(rows, weight=None, people=None, held=None, n=n) for rows in case.tables
    )
    longer = np.concatenate([second.signed, -np.ones((2, 2, 1))], axis=1)[
        :, : first.signed.shape[1]
    ]
    config = replace(case.config, rows_per_person=None)
    asked = replace(case, config=config, tables=(first, replace(second, signed=longer)))
    verdict = play(Options(replicates=2000), {"dgd": asked})
    assert verdict.refuted


def test_an_epsilon_of_zero_is_refused_and_not_replaced() -> None:
    with pytest.raises(InvalidInput) as caught:
        user_level_cases(epsilon=0.0)
    assert caught.value.field == "epsilon"


@pytest.mark.parametrize("fault", REFUTED)
def test_unbounded_contributions_of_people_are_refuted(tmp_path: Path, fault: str) -> None:
    claimed, found = planted(tmp_path, *REFUTED[fault], GAME)
    assert found > claimed
