"""A run that is over is gone through again from a site's ledger alone: the same results, and
nothing is charged, drawn or sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers_in_tests import BOTH, TRAINED, answering
from centred_in_tests import SUMS, centred
from sites_in_tests import Consortium, Fragile, consortium
from sums_in_tests import Lost, hub_of, run, summed

from sottovoce.deploy.answering import results_to_dict
from sottovoce.deploy.hub import LocalTransport
from sottovoce.deploy.session import Finished
from sottovoce.deploy.sums.masks import masking_keys_beside
from sottovoce.errors import InvalidInput, LedgerError, LedgerMismatch
from sottovoce.ledger.run import Run

pytest.importorskip("cryptography")

MADE = {
    "graph": lambda folder: consortium(folder),
    "carried": lambda folder: consortium(folder, method="prox_admm", delta=1e-5, rounds=5),
    "sums": lambda folder: summed(folder),
    "centred": lambda folder: centred(folder),
    "centred sums": lambda folder: centred(folder, **SUMS),
    "evaluation by sums": lambda folder: answering(folder, TRAINED),
    "evaluation": lambda folder: answering(folder, TRAINED, trust="nobody"),
    "coefficients": lambda folder: answering(folder, BOTH),
}


def replayed(sites: Consortium, name: str, **changes: Any) -> Finished:
    """The results of a site from its ledger alone; the file is the same before and after."""
    path = sites.folder / f"{name}.ledger"
    before = path.read_bytes()
    with sites.ledger(name) as ledger:
        try:
            return sites.session(name, ledger, **changes).replay()
        finally:
            assert path.read_bytes() == before


def plain(sites: Consortium, ended: Finished) -> dict[str, Any]:
    """Everything that is told of a run's end."""
    found = None if ended.found is None else results_to_dict(sites.plan, ended.found)
    return ended.to_dict() | {"found": found, "model": ended.model.tobytes()}


@pytest.mark.parametrize("kind", MADE)
def test_results_follow_from_the_ledger_without_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sites = MADE[kind](tmp_path / "sites")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)

    def draws(*_: object) -> None:
        raise AssertionError("a replay draws nothing")

    monkeypatch.setattr("sottovoce.ledger.run_records.RunRecords.store_payload_later", draws)
    monkeypatch.setattr("sottovoce.ledger.run_records.RunRecords.store_or_get_payload", draws)
    for name in sites.plan.names:
        end = ends[name]
        assert isinstance(end, Finished), end
        assert plain(sites, replayed(sites, name)) == plain(sites, end)
        # with sums the key is erased, so what was masked is not masked again
        assert not masking_keys_beside(sites.folder / f"{name}.ledger")


def test_results_of_a_run_that_went_on_without_a_site(tmp_path: Path) -> None:
    sites = summed(tmp_path / "sites")
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        lost = Lost(hub, "west", 2)
        ends = run(sites, hub, lambda name: lost if name == "west" else None)
    end = ends["north"]
    assert isinstance(end, Finished) and end.lost
    assert plain(sites, replayed(sites, "north")) == plain(sites, end)
    # the site that was lost has a run that is not over
    with pytest.raises((InvalidInput, LedgerError), match="site run"):
        replayed(sites, "west")


def test_a_run_that_is_not_over_is_not_replayed_into_a_new_release(tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites")
    sites.ledger("north").close()
    with pytest.raises(InvalidInput, match="taken no part"):
        replayed(sites, "north")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        broken = Fragile(LocalTransport(hub, "north", 5.0), 2, after=False)
        run(sites, hub, lambda name: broken if name == "north" else LocalTransport(hub, name, 2.0))
    with sites.ledger("north") as ledger:
        charged = ledger.runs["trial"].charged
    with pytest.raises((InvalidInput, LedgerError), match="site run"):
        replayed(sites, "north")
    with sites.ledger("north") as ledger:
        assert ledger.runs["trial"].charged == charged


def test_other_numbers_than_were_sent_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = consortium(tmp_path / "sites")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        run(sites, hub)
    charge_once = Run.charge_once

    def other(self: Run, *given: Any) -> bytes:
        data = np.frombuffer(charge_once(self, *given))
        return (data + 1e-9).tobytes()

    monkeypatch.setattr(Run, "charge_once", other)
    with pytest.raises(LedgerMismatch, match="other numbers"):
        replayed(sites, "north")
