"""Consents to plans in a ledger: they cost nothing, are in the chain, and are of one person each."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerCorrupt
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.events import LaplaceMechanism


@pytest.fixture
def ledger(tmp_path: Path) -> DurableLedger:
    return DurableLedger.create(tmp_path / "rows.ledger", epsilon=2.0)


def test_a_consent_is_recorded_once_a_person_and_spends_nothing(ledger: DurableLedger) -> None:
    assert ledger.record_consent("trial", "ab", "Anna")
    assert not ledger.record_consent("trial", "ab", " anna ")
    assert ledger.record_consent("trial", "ab", "Bjørn")
    assert ledger.record_consent("next", "cd", "anna")
    assert ledger.total() == 0.0 and not ledger.runs
    ledger.close()
    with DurableLedger.open(ledger.path) as again:
        found = [(one.run, one.plan, one.by) for one in again.consents]
        assert found == [("trial", "ab", "Anna"), ("trial", "ab", "Bjørn"), ("next", "cd", "anna")]
        assert all(one.at.startswith("20") for one in again.consents)
        assert again.show()["consents"][1]["by"] == "Bjørn"
        again.file.verify()
        # a ledger is tied to rows at its first spending, which a consent is not
        again.identity.bind_to_rows(b"0" * 16)


@pytest.mark.parametrize("by", ["", "  ", "a\nb", "a" * 129, "\udce4"])
def test_a_name_that_no_person_has_is_refused(ledger: DurableLedger, by: str) -> None:
    head = ledger.file.head()
    with pytest.raises(InvalidInput, match="by"):
        ledger.record_consent("trial", "ab", by)
    assert ledger.file.head() == head


def test_a_consent_that_was_edited_is_noticed(ledger: DurableLedger) -> None:
    ledger.record_consent("trial", "ab", "anna")
    ledger.close()
    with sqlite3.connect(ledger.path) as db:
        db.execute("UPDATE log SET body = replace(body, 'anna', 'bert') WHERE body LIKE '%anna%'")
    db.close()
    with pytest.raises(LedgerCorrupt, match="was edited"):
        DurableLedger.open(ledger.path)


def test_a_ledger_of_the_schema_before_takes_consents_and_is_marked(ledger: DurableLedger) -> None:
    ledger.close()
    with sqlite3.connect(ledger.path) as db:
        db.execute("PRAGMA user_version = 4")
    db.close()
    with DurableLedger.open(ledger.path) as old:
        assert old.consents == ()
        assert old.record_consent("trial", "ab", "anna")
    with sqlite3.connect(ledger.path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (5,)
    db.close()
    with DurableLedger.open(ledger.path) as again:
        assert len(again.consents) == 1


def test_a_ceiling_binds_below_the_budget(ledger: DurableLedger) -> None:
    event = LaplaceMechanism("test", "replace-one", np.ones(1), np.ones(1))
    ledger.account.ceiling = 0.5
    with pytest.raises(BudgetExceeded, match="the ceiling that this site set itself"):
        ledger.record_event(event)
    ledger.account.ceiling = 1.5
    ledger.record_event(event)
    with pytest.raises(BudgetExceeded, match="ceiling"):
        ledger.record_event(event)
    ledger.account.ceiling = float("inf")
    ledger.record_event(event)
    with pytest.raises(BudgetExceeded, match="the ledger's budget"):
        ledger.record_event(event)
