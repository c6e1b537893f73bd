"""Answers between separate sites: the bits of one process, exact spending, held-out rows that stay apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from answers_in_tests import EVERY, NAMES, answering
from sums_in_tests import hub_of, run

from sottovoce.deploy.answering import record
from sottovoce.deploy.local import answer_sites

pytest.importorskip("cryptography")


@pytest.mark.parametrize("trust", ["sum", "nobody"])
@pytest.mark.parametrize("what", EVERY)
def test_separate_sites_find_what_one_process_finds(tmp_path: Path, what: str, trust: str) -> None:
    sites = answering(tmp_path / "sites", EVERY[what], trust=trust)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        at_hub = hub.found()
    twins = answer_sites(sites.plan, sites.tables)
    known = record(sites.plan, twins[0][1])
    for end, (model, twin) in zip((ends[name] for name in NAMES), twins, strict=True):
        assert end.outcome.stopped == "finished"
        np.testing.assert_array_equal(end.model, model)
        assert record(sites.plan, end.found) == record(sites.plan, twin) == known
    assert record(sites.plan, at_hub) == known
    for name in NAMES:
        with sites.ledger(name) as ledger:
            assert ledger.to_list() == [event.to_dict() for event in sites.plan.events(name)]
