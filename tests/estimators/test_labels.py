"""Labels are private: a release has declared classes, and no other label changes anything that
can be seen.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.data import Schema
from sottovoce.data.rows import Rows
from sottovoce.data.validation import class_index_of_labels, validate_declared_classes
from sottovoce.deploy.settings import load_rows
from sottovoce.errors import HolderNote, InvalidInput
from sottovoce.estimators import fitting
from sottovoce.problem.losses import Softmax, make_loss
from sottovoce.runs.row_guard import RowGuard
from sottovoce.solvers.local import Solver

SMALL: dict[str, Any] = {
    "method": "mr_admm",
    "delta": None,
    "n_sites": 2,
    "rounds": 3,
    "data_norm": 3.0,
}


def table(n: int = 120, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.array(["a", "b", "c"])[rng.integers(classes, size=n)]


@pytest.fixture
def unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question may reach the rows."""

    def asked(*_: object) -> None:
        raise AssertionError("a query was answered")

    monkeypatch.setattr(RowGuard, "_charge_and_draw", asked)


@pytest.mark.parametrize(
    "estimator", [ConsensusClassifier(), PrivateClassifier()], ids=["consensus", "private"]
)
def test_a_release_needs_declared_classes(unspent: None, estimator: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^classes: .*classes=\[") as refusal:
        estimator.fit(*table())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("classes", "rule"),
    [
        (["a"], "two labels or more"),
        ([], "two labels or more"),
        ("ab", "a list of labels"),
        (3, "a list of labels"),
        (["a", "b", "a"], "every label once"),
        ([1, 1.0], "every label once"),
        ([0, 2**53 + 1], "up to 2\\^53"),
        ([0, 1, math.nan], "all finite numbers"),
        ([0.0, math.inf], "all finite numbers"),
        (["a", 1], "all text"),
        ([True, 2], "all booleans"),
        (["a", None], "all text"),
    ],
)
@pytest.mark.parametrize("random_state", [None, 0])
def test_invalid_classes_are_refused(
    unspent: None, classes: Any, rule: str, random_state: int | None
) -> None:
    with pytest.raises(InvalidInput, match=rf"^classes=.*{rule}") as refusal:
        ConsensusClassifier(classes=classes, random_state=random_state).fit(*table())
    assert "\n" not in str(refusal.value)


def test_classes_are_a_parameter_and_come_out_sorted() -> None:
    """The second of two is the positive one, in whatever order they are declared."""
    X, y = table()
    models = [
        ConsensusClassifier(classes=classes, random_state=0, **SMALL).fit(X, y)
        for classes in (["b", "a"], ("a", "b"), np.array(["a", "b"]))
    ]
    for model in models:
        assert model.classes_.tolist() == ["a", "b"]
        assert np.array_equal(model.coef_, models[0].coef_)
        positive = model.decision_function(X) > 0
        assert np.array_equal(model.predict(X) == "b", positive)
    assert clone(models[0]).get_params()["classes"] == ["b", "a"]
    for dtype in (int, bool, float):
        model = ConsensusClassifier(classes=[1, 0], random_state=0, **SMALL).fit(
            X, (y == "b").astype(dtype)
        )
        assert np.array_equal(model.coef_, models[0].coef_) and model.classes_.tolist() == [0, 1]


RARE = {
    "two": ({"classes": ["a", "b"]}, 2),
    "each": ({"classes": ["a", "b", "c"]}, 3),
    "softmax": (
        {"classes": ["a", "b", "c"], "loss": "softmax", "method": "prox_admm", "delta": 1e-5},
        3,
    ),
    "absent": ({"classes": ["a", "b", "c", "d"], "loss": "softmax", "method": "output"}, 2),
}


@pytest.mark.parametrize("rare", ["z", "", None, math.nan, 3, ("a", "b"), ["a"]], ids=repr)
@pytest.mark.parametrize("kind", RARE)
def test_undeclared_label_changes_only_its_own_row(
    kind: str, rare: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that the fit leaves, only what noise is drawn on differs from that of a neighbour
    without such a row.
    """
    knobs, K = RARE[kind]
    X, y = table(classes=K)
    column = y.astype(object)
    column[7] = rare
    seen: list[Rows] = []
    real = fitting.run_planned

    def watch(planned: Any, rows: Rows, **options: Any) -> Any:
        seen.append(rows)
        return real(planned, rows, **options)

    monkeypatch.setattr(fitting, "run_planned", watch)
    one, other = (ConsensusClassifier(random_state=0, **(SMALL | knobs)) for _ in range(2))
    one.fit(X, y)
    half = len(seen)
    with pytest.warns(HolderNote, match=r"^1 of 120.*undeclared"):
        other.fit(X, column)
    for before, after in zip(seen[:half], seen[half:], strict=True):
        signed = [rows.signed for rows in (before, after)]
        changed = np.argwhere(np.any(signed[0] != signed[1], axis=2))
        assert len(changed) == 1 and not signed[1][tuple(changed[0])].any()  # the constant too
        assert np.array_equal(before.n, after.n)
    fitted = [{k: v for k, v in vars(model).items() if k.endswith("_")} for model in (one, other)]
    assert fitted[0].keys() == fitted[1].keys()
    for name in ("classes_", "sites_", "n_features_in_", "n_iter_", "stopped_", "choice_"):
        assert np.array_equal(fitted[0][name], fitted[1][name])
    assert fitted[0]["privacy_spent_"] == fitted[1]["privacy_spent_"]
    assert other.coef_.shape == (len(knobs["classes"]) if len(knobs["classes"]) > 2 else 1, 3)


def test_undeclared_label_of_another_type_changes_no_other_row() -> None:
    """NumPy, and readers of tables, make text of a whole column for one entry of text."""
    X, _ = table()
    y = [k % 2 for k in range(120)]
    models = []
    for labels in (
        [*y[:-1], 5],
        [*y[:-1], "five"],
        np.array([*y[:-1], "five"]),
        [*map(float, y[:-1]), math.nan],
    ):
        with pytest.warns(HolderNote, match="^1 of 120"):
            models.append(
                ConsensusClassifier(classes=[0, 1], random_state=0, **SMALL).fit(X, labels)
            )
    assert all(np.array_equal(model.coef_, models[0].coef_) for model in models)


@pytest.mark.parametrize("random_state", [None, 0])
@pytest.mark.parametrize("sparse", [False, True])
def test_one_class_is_not_refused(random_state: int | None, sparse: bool) -> None:
    """In all of the data, or at a site; with declared classes."""
    X, y = table()
    rows = csr_array(X) if sparse else X
    knobs = SMALL | {"classes": ["a", "b"], "random_state": random_state}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the model gives")  # as it should
        model = ConsensusClassifier(**knobs).fit(rows, np.full(120, "a"))
        assert model.classes_.tolist() == ["a", "b"]
        ConsensusClassifier(**knobs).fit(rows, y, groups=np.where(y == "a", "north", "south"))
    with pytest.warns(HolderNote, match="^120 of 120"):
        ConsensusClassifier(**knobs).fit(rows, np.full(120, "z"))


def test_a_simulation_may_read_the_classes_and_says_so() -> None:
    X, y = table()
    read = ConsensusClassifier(random_state=0, **SMALL).fit(X, y).privacy_spent_
    told = ConsensusClassifier(random_state=0, classes=["a", "b"], **SMALL).fit(X, y).privacy_spent_
    release = ConsensusClassifier(classes=["a", "b"], **SMALL).fit(X, y).privacy_spent_
    assert "classes were read" in read["says"] and "read off" in read["caveat"]
    for spent in (told, release):
        assert "read off" not in str(spent)
    with pytest.raises(InvalidInput, match=r"^y: .*one class"):
        ConsensusClassifier(random_state=0).fit(X, np.full(120, "a"))


def test_rows_of_zeros_contribute_nothing_to_gradients() -> None:
    """To gradients: what is left are the other rows, weighted by the number of all."""
    X, y = table(40)
    X /= 2 * np.linalg.norm(X, axis=1).max()
    kept, signs = np.arange(40) % 4 > 0, np.where(y == "a", -1.0, 1.0)
    w = np.array([[0.3, -0.2, 0.9]])
    for rows in (X, csr_array(X)):
        part = [
            Rows.build_from_parts([(rows, np.where(kept, signs, 0.0))]),
            Rows.build_from_parts([(rows[kept], signs[kept])]),
        ]
        gradients = [Solver(one, make_loss("logistic"), 1.0).gradient(w) for one in part]
        np.testing.assert_allclose(gradients[0], gradients[1] * 30 / 40)
    V = np.random.default_rng(0).normal(size=(1, 9))
    label = np.arange(40) % 3
    classes = [
        Rows.build_with_classes([(X, np.where(kept, label, -1))], 3),
        Rows.build_with_classes([(X[kept], label[kept])], 3),
    ]
    gradients = [Solver(one, Softmax(3), 1.0).gradient(V) for one in classes]
    np.testing.assert_allclose(gradients[0], gradients[1] * 30 / 40)
    with pytest.raises(InvalidInput, match="0 for a"):
        Rows.build_from_parts([(X, np.full(40, 2.0))])


@pytest.mark.parametrize(
    "labels", [["sick", "well"], ["sick", "moribund"], ["well", ""], ["moribund", "?"]]
)
def test_a_site_reads_whatever_labels_there_are(tmp_path: Path, labels: list[str]) -> None:
    """A site's own table: no refusal of a run depends on them."""
    path = tmp_path / "rows.csv"
    lines = [f"{k % 9},{labels[k % len(labels)]}" for k in range(20)]
    path.write_text("\n".join(["age,outcome", *lines]) + "\n")
    label = {"column": "outcome", "positive": "sick", "negative": "well"}
    schema = {
        "label": label,
        "columns": {"age": {"kind": "number", "lo": 0, "hi": 9}},
        "intercept": True,
    }
    rows = load_rows(path, Schema.from_dict(schema))
    assert rows.n.tolist() == [[20.0]]
    known = np.isin(labels, ["sick", "well"])
    assert np.array_equal(np.any(rows.signed[0] != 0, axis=1), np.resize(known, 20))


class _Odd:
    """A label that cannot be compared, hashed or shown."""

    def __init__(self, which: str) -> None:
        self.which = which

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        if self.which == "hash":
            raise RuntimeError
        return 0

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("which", ["hash", "compare"])
def test_a_label_that_raises_is_one_row_of_zeros(which: str) -> None:
    labels: list[Any] = [0, 1, _Odd(which), 1]
    assert class_index_of_labels(labels, validate_declared_classes([0, 1]), 4).tolist() == [
        0,
        1,
        -1,
        1,
    ]
