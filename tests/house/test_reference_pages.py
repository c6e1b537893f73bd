"""The Python of the reference's pages runs, on rows that a page takes for granted."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sottovoce import ConsensusClassifier, DurableLedger, Ledger
from sottovoce.errors import LedgerMismatch
from sottovoce.util.typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "reference"
SCHEMA = {
    "label": {"column": "ill", "positive": "yes", "negative": "no"},
    "site": "hospital",
    "columns": {"stage": {"kind": "category", "values": ["1", "2", "3"]}},
}


def blocks_of_page(page: str) -> list[str]:
    """Return the blocks of Python of a page, in order."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)```", text, flags=re.S | re.M)


def run_block(block: str, **names: Any) -> dict[str, Any]:
    """Run a block with names that its page takes for granted, and return all names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes on rows that nobody would train on
        exec(block, names)
    return names


@pytest.fixture
def rows() -> dict[str, Any]:
    """Six hundred people in five hospitals: columns, days, whether they died, and classes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2))
    return {
        "X": X,
        "X_new": X[:5],
        "days": rng.uniform(1, 365, 600),
        "died": rng.integers(0, 2, 600),
        "hospital": np.arange(600) % 5,
    }


def test_numbers(rows: dict[str, Any]) -> None:
    (block,) = (block for block in blocks_of_page("answers") if "ConsensusRegressor" in block)
    X, site = rows["X"], rows["hospital"]
    y = 30 + 10 * X[:, 0]
    names = run_block(block, X=X, y=y, site=site, X_new=rows["X_new"], site_new=site[:5])
    assert names["model"].predict(rows["X_new"], groups=site[:5]).shape == (5,)


@pytest.mark.parametrize("name", ["ConsensusSurvival", "ConsensusPCA"])
def test_times_and_components(name: str, rows: dict[str, Any]) -> None:
    (block,) = (block for block in blocks_of_page("answers") if name in block)
    names = run_block(block, **rows)
    assert type(names["model"]).__name__ == name


def test_a_saved_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    stage = rng.integers(1, 4, 6000)
    frame = {
        "stage": stage.astype(str),
        "ill": np.where(rng.random(6000) < 0.2 * stage, "yes", "no"),
        "hospital": np.array(["a", "b", "c"])[np.arange(6000) % 3],
    }
    monkeypatch.chdir(tmp_path)
    model = ConsensusClassifier(schema=SCHEMA, inference=True, epsilon=10, random_state=0)
    model.fit(frame).save("run.json")
    (block,) = (block for block in blocks_of_page("answers") if "SavedModel" in block)
    table = run_block(block)["table"]
    assert table.contrast({"stage: 3": 1, "stage: 2": -1}).estimate > 0


def test_steps_that_learn() -> None:
    (block,) = (block for block in blocks_of_page("estimator") if "learning_steps" in block)
    imports, _, call = block.partition("\n\n")
    names = run_block(
        f"{imports}\ntold = {call}",
        make_pipeline=make_pipeline,
        StandardScaler=StandardScaler,
        ConsensusClassifier=ConsensusClassifier,
    )
    assert call.strip().endswith(f"# {names['told']}")


def test_groups_reach_the_splitter_and_the_fits_alone(rows: dict[str, Any]) -> None:
    (block,) = (block for block in blocks_of_page("estimator") if "set_score_request" in block)
    y = rows["X"][:, 0] > 0
    with sklearn.config_context():
        names = run_block(
            block,
            sklearn=sklearn,
            ConsensusClassifier=ConsensusClassifier,
            GridSearchCV=GridSearchCV,
            GroupKFold=GroupKFold,
            Ledger=Ledger,
            X=rows["X"],
            y=y,
            hospital=rows["hospital"],
        )
    assert np.all(names["search"].cv_results_["mean_test_score"] > 0)
    assert 0 < names["ledger"].total() < 20


def test_a_durable_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (block for block in blocks_of_page("ledger") if "DurableLedger.create" in block)
    monkeypatch.chdir(tmp_path)
    stage = np.arange(600) % 3 + 1
    frame = {
        "stage": stage.astype(str),
        "ill": np.where(stage > 1, "yes", "no"),
        "hospital": np.array(["a", "b", "c", "d", "e"])[np.arange(600) % 5],
    }
    run_block(block, frame=frame, schema=SCHEMA)
    with DurableLedger.open("clinic.ledger") as ledger:
        assert ledger.identity.bound
        assert all(0 < spent < 3 for spent in ledger.show()["spent"])
        # Other rows are refused: the first fit tied the file to the rows of the frame.
        other = frame | {"ill": frame["ill"][::-1]}
        model = ConsensusClassifier(schema=SCHEMA, epsilon=0.1, trust="sum", ledger=ledger)
        with pytest.raises(LedgerMismatch, match="belongs to other rows"):
            model.fit(other)
