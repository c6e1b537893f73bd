"""Estimators that share a ledger: clones, cross-validation and searches charge it, or are
refused in one sentence.
"""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, cross_val_score

from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.errors import InvalidInput, LedgerMismatch
from sottovoce.estimators import fitting
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger

LABELS = ["no", "yes"]


def problem(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + rng.logistic(size=n) > 0, "yes", "no")


def one_site(ledger: Any, **knobs: Any) -> PrivateClassifier:
    settings = {"method": "objective", "classes": LABELS, "data_norm": 3.0, "epsilon": 0.5} | knobs
    return PrivateClassifier(ledger=ledger, **settings)


@pytest.fixture
def on_disk(tmp_path: Path) -> DurableLedger:
    return DurableLedger.create(tmp_path / "rows.ledger", epsilon=5.0)


def one_line(error: BaseException, *words: str) -> None:
    text = str(error)
    assert "\n" not in text and all(word in text for word in words), text


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_clones_share_the_ledger(kind: str, on_disk: DurableLedger) -> None:
    ledger = Ledger() if kind == "memory" else on_disk
    estimator = one_site(ledger)
    assert estimator.ledger is ledger
    for twin in (
        clone(estimator),
        clone(clone(estimator)),
        copy.deepcopy(estimator),
        copy.copy(estimator),
    ):
        assert twin.ledger is ledger


@pytest.mark.parametrize("backend", [None, "threading"])
def test_every_fit_of_a_search_is_charged(backend: str | None) -> None:
    """The one-site classifier makes one release a fit, and each costs its epsilon."""
    X, y = problem()
    ledger = Ledger()
    with joblib.parallel_config(backend or "loky", n_jobs=1 if backend is None else 2):
        cross_val_score(one_site(ledger), X, y, cv=3)
        assert len(ledger.rows) == 3
        assert ledger.total() == pytest.approx(1.5, rel=1e-3)
        search = GridSearchCV(one_site(ledger), {"knobs__rho": [0.001, 0.01]}, cv=4)
        search.fit(X, y)
    assert search.best_estimator_.ledger is ledger
    assert len(ledger.rows) == 3 + 2 * 4 + 1
    assert ledger.total() == pytest.approx(6.0, rel=1e-3)


def test_a_search_stops_at_the_budget() -> None:
    X, y = problem()
    ledger = Ledger(epsilon=1.2)
    with pytest.warns(FitFailedWarning, match="passed? |budget"):
        scores = cross_val_score(one_site(ledger), X, y, cv=4)
    assert np.isnan(scores).tolist() == [False, False, True, True]
    assert len(ledger.rows) == 2 and ledger.total() <= 1.2


def test_a_pool_of_processes_is_refused(on_disk: DurableLedger) -> None:
    """What a copy of a ledger would be charged there is lost here.

    One pool asks for both kinds of ledger, because its processes need seconds to start.
    """
    X, y = problem()
    one_site(on_disk).fit(X, y)
    said = "stayed in its own process.*n_jobs=1"
    with joblib.parallel_config("loky", n_jobs=2):
        for ledger in (Ledger(), on_disk):
            before = ledger.rows
            refused = pytest.raises(InvalidInput, match=f"^ledger='[A-Za-z]*Ledger': .*{said}")
            with refused as caught:
                cross_val_score(one_site(ledger), X, y, cv=2, error_score="raise")
            one_line(caught.value)
            with pytest.raises(ValueError, match=said):
                cross_val_score(one_site(ledger), X, y, cv=2)
            assert ledger.rows == before


def test_a_model_that_was_fitted_on_a_ledger_can_be_saved() -> None:
    X, y = problem()
    model = one_site(Ledger()).fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    for one in (loaded, clone(loaded)):
        with pytest.raises(InvalidInput, match=r"set_params\(ledger=\.\.\.\) after loading"):
            one.fit(X, y)
    ledger = Ledger()
    loaded.set_params(ledger=ledger).fit(X, y)
    assert len(ledger.rows) == len(model.ledger.rows) == 1


@pytest.mark.parametrize("error_score", ["raise", math.nan])
def test_parts_of_a_table_are_not_bound_to_a_ledger_on_disk(
    on_disk: DurableLedger, error_score: Any
) -> None:
    X, y = problem()
    for run in (
        lambda: cross_val_score(one_site(on_disk), X, y, cv=3, error_score=error_score),
        lambda: GridSearchCV(
            one_site(on_disk), {"knobs__rho": [0.01]}, cv=3, error_score=error_score
        ).fit(X, y),
    ):
        with pytest.raises(ValueError) as caught:
            run()
        said = str(caught.value)
        assert "ledger='DurableLedger'" in said and "cross-validation" in said
        assert "Ledger in memory" in said
        if error_score == "raise":
            assert isinstance(caught.value, InvalidInput)
            one_line(caught.value)
    assert not on_disk.identity.bound and on_disk.rows == () and not on_disk.runs


@pytest.mark.parametrize("error_score", ["raise", math.nan])
def test_bound_ledger_refuses_folds_as_other_rows(on_disk: DurableLedger, error_score: Any) -> None:
    X, y = problem()
    model = one_site(on_disk).fit(X, y)
    spent = on_disk.total()
    with pytest.raises(LedgerMismatch if error_score == "raise" else ValueError) as caught:
        cross_val_score(model, X, y, cv=3, error_score=error_score)
    assert "other rows" in str(caught.value)
    assert "cross-validation" in str(caught.value)
    if error_score == "raise":
        one_line(caught.value)
        assert caught.value.__context__ is None
    assert on_disk.total() == spent > 0 and len(on_disk.runs) == 1
    again = clone(model).fit(X, y)  # the same rows: the fit is read from the ledger
    assert np.array_equal(again.coef_, model.coef_) and on_disk.total() == spent
    with pytest.raises(LedgerMismatch) as caught:
        model.fit(X[1:], y[1:])
    assert "cross-validation" not in str(caught.value)  # it is no clone


# Rows that are dealt anew


@pytest.fixture
def deals(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The deals of all runs."""
    found: list[bytes | None] = []
    real = fitting.run_planned

    def watch(*arguments: Any, deal: bytes | None, **options: Any) -> Any:
        found.append(deal)
        return real(*arguments, deal=deal, **options)

    monkeypatch.setattr(fitting, "run_planned", watch)
    return found


def test_digest_of_deal_covers_rows_and_their_sites(deals: list[bytes | None]) -> None:
    X, y = problem(60)
    half, third = np.arange(60) % 2, np.arange(60) % 3 // 2
    order = np.r_[1, 0, 2:60]

    def deal(X: Any = X, y: Any = y, groups: Any = half, **knobs: Any) -> bytes | None:
        settings = {
            "ledger": Ledger(),
            "classes": LABELS,
            "epsilon": math.inf,
            "n_sites": 2,
            "rounds": 1,
        }
        ConsensusClassifier(**(settings | knobs)).fit(X, y, groups)
        return deals[-1]

    same = deal()
    assert same is not None and len(same) >= 16
    assert deal(knobs={"rho": 0.1}) == deal(groups=half + 5) == deal(classes=["yes", "no"]) == same
    moved = X.copy()
    moved[3, 1] += 1.0
    other = [
        deal(X=moved),
        deal(y=np.where(np.arange(60) == 3, np.where(y == "no", "yes", "no"), y)),
        deal(groups=third),
        deal(X=X[order], y=y[order], groups=half),
        deal(X=csr_array(X)),
        *(deal(groups=None) for _ in range(2)),
    ]
    assert len({same, *other}) == 1 + len(other)
    assert deal(groups=None, random_state=3) == deal(
        groups=None, random_state=3, knobs={"rho": 0.1}
    )
    assert deal(X=csr_array(X)) == other[4]
    assert deal(ledger=None) is None


def test_ledger_total_over_new_assignments_is_that_of_the_worst_row() -> None:
    """A row may be at the dear site of both fits."""
    X, y = problem()
    knobs: dict[str, Any] = {"classes": LABELS, "method": "output", "n_sites": 2, "data_norm": 3.0}
    fixed = np.arange(240) % 2
    for groups, total in ((fixed, 1.2), (None, 2.0)):
        ledger = Ledger()
        for epsilon in ((1.0, 0.2), (0.2, 1.0)):
            ConsensusClassifier(ledger=ledger, epsilon=epsilon, **knobs).fit(X, y, groups)
        assert ledger.total() == pytest.approx(total, rel=1e-3)
