"""A run across sites whose unit is a person: plan, rows and statement agree, and sites do what
the simulation does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, consortium

from sottovoce.data import Schema
from sottovoce.deploy import run_sites
from sottovoce.deploy.asks import Asks, SiteTable
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.settings import load_rows_and_table
from sottovoce.errors import InvalidInput
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

pytest.importorskip("cryptography")

SCHEMA = Schema.from_dict(
    {
        "intercept": True,
        "person": {"column": "patient", "rows": 3},
        "label": {"column": "ill", "positive": "yes"},
        "columns": {"age": {"kind": "number", "lo": 0, "hi": 100}},
    }
)
RUN = RunConfig("prox_admm", 2.0, 1e-5, rounds=3, graph="complete", rows_per_person=3)


def site(folder: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, 25, 80)
    lines = [
        f"{rng.uniform(0, 100):.1f},p{p},{'yes' if rng.random() < 0.4 else 'no'}" for p in patient
    ]
    path = folder / f"{seed}.csv"
    path.write_text("\n".join(["age,patient,ill", *lines, ""]))
    return path


def test_sites_repeat_the_simulation(tmp_path: Path) -> None:
    rows = [load_rows_and_table(site(tmp_path, k), SCHEMA)[0] for k in range(3)]
    for one in rows:
        assert one.people == 3 and int(one.n[0, 0]) <= 25 < one.rows_per_node[0] <= 75
        assert one.weight is not None and one.weight[0].sum() == pytest.approx(float(one.n[0, 0]))
    longest = max(int(one.rows_per_node[0]) for one in rows)
    pad = [((0, 0), (0, longest - int(one.rows_per_node[0])), (0, 0)) for one in rows]
    whole = replace(
        rows[0],
        signed=np.concatenate([np.pad(one.signed, p) for one, p in zip(rows, pad, strict=True)]),
        n=np.concatenate([one.n for one in rows]),
        held=np.concatenate([one.rows_per_node for one in rows]),
        one_class=(),
        weight=np.concatenate(
            [np.pad(one.weight, p[:2]) for one, p in zip(rows, pad, strict=True)]
        ),
    )
    alone = [outcome.state for outcome, _ in run_sites(RUN, whole)]
    models = simulate(RUN, whole).models[0]
    for state, model in zip(alone, models, strict=True):
        np.testing.assert_allclose(state.mean, model, rtol=1e-6, atol=1e-9)


def test_plan_states_user_level_privacy_of_schema(tmp_path: Path) -> None:
    members = tuple(Member(name, 25, SigningKey.make().public) for name in NAMES)
    plain = SCHEMA.to_dict()
    plan = make_calibrated_plan(
        Proposal("people", replace(RUN, seed=None), members, 2, schema=plain)
    )
    unit = plan.planned_privacy.statement.unit
    assert unit.startswith("one person") and "up to 3" in unit
    write_plan_file(plan, tmp_path / "plan.json")
    assert read_plan_file(tmp_path / "plan.json").digest == plan.digest
    for wrong in (replace(RUN, rows_per_person=None), replace(RUN, rows_per_person=4)):
        with pytest.raises(InvalidInput, match="rows_per_person"):
            make_calibrated_plan(
                Proposal("people", replace(wrong, seed=None), members, 2, schema=plain)
            )
    with pytest.raises(InvalidInput, match=r"^person: "):
        make_calibrated_plan(
            Proposal(
                "people",
                replace(RUN, seed=None),
                members,
                2,
                schema=plain,
                asks=Asks(evaluation=1.0, holdout=0.2),
            )
        )


def test_a_site_with_rows_that_are_not_bounded_takes_no_part(tmp_path: Path) -> None:
    sites: Consortium = consortium(tmp_path, method="prox_admm", delta=1e-5, rounds=2)
    people = sites.rows.rows_of_node(0).with_people([np.arange(int(sites.rows.n[0, 0]))], 2)
    with sites.ledger(NAMES[0]) as book, pytest.raises(InvalidInput, match="rows_per_person"):
        sites.session(NAMES[0], book, rows=people).check_before_run()


def test_a_table_is_compared_with_rows_where_answers_read_it_alone(tmp_path: Path) -> None:
    """Sites whose schema declares weights, classes or people were refused: their table holds the
    rows without them.
    """
    sites: Consortium = consortium(tmp_path, method="prox_admm", delta=1e-5, rounds=2)
    rows = sites.rows.rows_of_node(0)
    table = SiteTable(np.abs(rows.signed[0]), np.ones(len(rows.signed[0])))
    with sites.ledger(NAMES[0]) as book:
        sites.session(NAMES[0], book, table=table).check_before_run()
