"""A run across sites with capped gradients: the plan carries the cap, and sites do what the
simulation does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, consortium

from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.report import _public_facts
from sottovoce.errors import InvalidInput
from sottovoce.problem.clipped import Capped
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import Result, simulate

pytest.importorskip("cryptography")


@pytest.mark.parametrize("method", ["prox_admm", "dgd"])
def test_sites_of_a_capped_plan_repeat_the_simulation_and_resume(
    tmp_path: Path, method: str
) -> None:
    capped = consortium(
        tmp_path / "a", method=method, delta=1e-5, max_grad_norm=0.15, eta=0.1, rounds=3
    )
    bare = consortium(tmp_path / "b", method=method, delta=1e-5, eta=0.1, rounds=3)
    write_plan_file(capped.plan, tmp_path / "plan.json")
    read = read_plan_file(tmp_path / "plan.json")
    assert (
        read.config == capped.plan.config
        and read.config.gradient_cap == 0.15
        and read.digest == capped.plan.digest
    )
    with HubLog(tmp_path / "hub.log") as log:
        found = capped.run_locally(log)
        first = {name: site.model for name, site in found.items()}
        again = capped.run_locally(log)  # every site replays its ledger
    whole = simulate(capped.plan.config, capped.rows)
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(first[name], whole.models[0, i], rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(again[name].model, first[name])
        with capped.ledger(name) as book:
            assert [row["sensitivity"] for row in book.to_list()] == [
                [row["sensitivity"][i]] for row in whole.ledger
            ]
    other = simulate(bare.plan.config, bare.rows)
    ratio = np.array(whole.ledger[0]["sensitivity"]) / np.array(other.ledger[0]["sensitivity"])
    np.testing.assert_allclose(ratio, 0.15, rtol=1e-2)
    assert bare.plan.digest != capped.plan.digest
    said = "gradients clipped at 0.15"
    assert (
        said in dict(_public_facts(capped.plan))["Method"]
        and said not in dict(_public_facts(bare.plan))["Method"]
    )


def test_a_saved_run_keeps_its_cap(tmp_path: Path) -> None:
    sites = consortium(
        tmp_path, method="prox_admm", delta=1e-5, max_grad_norm=0.15, eta=0.1, rounds=2
    )
    simulate(sites.plan.config, sites.rows).save(tmp_path / "run.npz")
    config = Result.load(tmp_path / "run.npz").config
    assert config == sites.plan.config and config.gradient_cap == 0.15
    assert isinstance(prepare(config, sites.rows.n, sites.rows.d).facts.loss, Capped)


def test_a_plan_of_a_method_without_the_cap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^max_grad_norm=0.15: "):
        consortium(tmp_path, method="mr_admm", max_grad_norm=0.15)
