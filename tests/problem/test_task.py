"""What the label is: errors, baselines, answers and words, against direct definitions and
scikit-learn's metrics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import (
    accuracy_score,
    mean_absolute_error,
    root_mean_squared_error,
    zero_one_loss,
)

from sottovoce.errors import InvalidInput
from sottovoce.problem import task as module
from sottovoce.problem.task import (
    BoundedNumber,
    Classification,
    ManyClasses,
    Task,
    TwoClasses,
    task_of_classes,
    task_of_margins,
)

TWO, MANY, DAYS = (
    TwoClasses(("lived", "died")),
    ManyClasses(("low", "middle", "high")),
    BoundedNumber(2, 62, "days"),
)
TASKS: tuple[Task, ...] = (TWO, MANY, DAYS)
WAYS = {"two": TWO, "many": MANY, "number": DAYS}


def labels(task: Task, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Encoded, all of them known."""
    rng = np.random.default_rng(seed)
    if isinstance(task, BoundedNumber):
        return task.encode(rng.uniform(task.low, task.high, size=n))
    return task.encode(
        rng.choice(len(task.names), size=n, p=[0.3, 0.7] if task is TWO else [0.2, 0.5, 0.3])
    )


def margins(
    task: Task, n: int, models: tuple[int, ...] = (), seed: int = 1
) -> np.ndarray[Any, Any]:
    inner = (n,) if task.outputs == 1 else (task.outputs, n)
    return np.random.default_rng(seed).normal(size=(*models, *inner))


# Errors


def test_errors_of_two_classes_are_exact_and_a_margin_of_zero_is_wrong() -> None:
    X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    y = np.array([1.0, 1.0, -1.0, 1.0])
    right, none, zero = [1.0, 0.0], [-1.0, -1.0], [0.0, 0.0]
    # [1, 0]: margins 1, 0, 1, 0; [-1, -1]: -1, -1, -1, 1; [0, 0]: all 0; [1, 1]: 1, 1, 1, -1.
    W = np.array([[right, none], [zero, [1.0, 1.0]], [none, right]])
    assert np.array_equal(TWO.model_errors(X, y, W), [[0.5, 0.75], [1.0, 0.25], [0.75, 0.5]])
    one = TWO.model_errors(X, y, np.array([1.0, 1.0]))
    assert one.shape == () and one == 0.25


def test_a_margin_of_zero_is_wrong_whichever_class_is_right() -> None:
    z = np.zeros(2)
    assert TWO.error(z, np.array([-1.0, 1.0])) == 1.0
    assert TWO.shown_answers(z) == ["lived", "lived"]  # an answer has to be given all the same


def test_the_first_of_several_largest_margins_is_the_answer() -> None:
    z = np.array([[1.0, 0.0, 2.0, -1.0], [1.0, 3.0, 2.0, -1.0], [0.0, 3.0, 2.0, -1.0]])
    assert MANY.decode(z).tolist() == [0, 1, 0, 0]
    assert MANY.error(z, np.array([0, 2, 0, 1])) == 0.5


@pytest.mark.parametrize("task", [TWO, MANY])
def test_the_misclassified_share_is_scikit_learns(task: Classification) -> None:
    y, z = labels(task, 500), margins(task, 500, (2, 3))
    found = task.error(z, y)
    assert found.shape == (2, 3)
    answer = task.encode(task.decode(z))
    for i, j in np.ndindex(2, 3):
        assert found[i, j] == pytest.approx(zero_one_loss(y, answer[i, j]), rel=1e-15)
        assert task.quality(found[i, j]) == pytest.approx(
            accuracy_score(y, answer[i, j]), rel=1e-15
        )
        assert found[i, j] == sum(a != b for a, b in zip(answer[i, j], y, strict=True)) / 500
    assert {name: float(e[0, 0]) for name, e in task.errors(z, y).items()} == {
        "misclassified": found[0, 0]
    }


def test_the_errors_of_a_number_are_scikit_learns_in_its_unit_with_answers_clipped() -> None:
    y, z = labels(DAYS, 500), margins(DAYS, 500, (2, 3))
    assert np.any(np.abs(z) > 1)
    found = DAYS.errors(z, y)
    assert list(found) == ["root_mean_squared", "mean_absolute"]
    assert np.array_equal(found["root_mean_squared"], DAYS.error(z, y)) and found[
        "mean_absolute"
    ].shape == (2, 3)
    t, answer = 32 + 30 * y, np.minimum(62, np.maximum(2, 32 + 30 * z))
    for i, j in np.ndindex(2, 3):
        assert found["root_mean_squared"][i, j] == pytest.approx(
            root_mean_squared_error(t, answer[i, j]), rel=1e-12
        )
        assert found["mean_absolute"][i, j] == pytest.approx(
            mean_absolute_error(t, answer[i, j]), rel=1e-12
        )
    assert DAYS.quality(2.5) == 2.5


def test_the_errors_of_a_number_by_hand() -> None:
    # 2, 32, 62 (not 182), 35 days
    t, z = (
        DAYS.encode([2, 32, 62, 47]),
        np.array([-1.0, 0.0, 5.0, 0.1]),
    )
    assert np.allclose(DAYS.decode(z), [2, 32, 62, 35], rtol=1e-15)
    assert float(DAYS.error(z, t)) == pytest.approx(6.0)
    assert float(DAYS.errors(z, t)["mean_absolute"]) == pytest.approx(3.0)


def test_no_error_is_larger_than_the_worst_and_that_one_can_be_reached() -> None:
    wrong: dict[str, tuple[Any, Any]] = {
        "two": (-np.ones(4), np.ones(4)),
        "many": (np.eye(3)[:, [0]].repeat(4, axis=1), np.ones(4)),
        "number": (-7 * np.ones(4), np.ones(4)),
    }
    for name, (z, y) in wrong.items():
        assert WAYS[name].error(z, y) == WAYS[name].worst_error
        assert np.all(
            WAYS[name].error(margins(WAYS[name], 50, (20,)), labels(WAYS[name], 50))
            < WAYS[name].worst_error
        )
    assert (TWO.worst_error, MANY.worst_error, DAYS.worst_error) == (1.0, 1.0, 60.0)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("limit", [1, 200, 1000, 2**24])
def test_models_are_scored_in_parts_of_bounded_size(
    task: Task, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    # Whole numbers: their products are exact, however they are grouped.
    X, W = (
        rng.integers(-4, 5, size=(50, 6)) / 8,
        rng.integers(-4, 5, size=(3, 7, 6 * task.outputs)) / 8,
    )
    y, seen = labels(task, 50), []
    inner = type(task).error

    def error(self: Task, z: Any, y: Any) -> Any:
        seen.append(z.size)
        return inner(self, z, y)

    monkeypatch.setattr(module, "_MARGINS", limit)
    monkeypatch.setattr(type(task), "error", error)
    found = task.model_errors(X, y, W)
    assert found.shape == (3, 7) and sum(seen) == 21 * 50 * task.outputs
    assert max(seen) <= max(limit, 50 * task.outputs)  # at least one model at a time
    for r, i in np.ndindex(3, 7):
        z = X @ W[r, i] if task.outputs == 1 else W[r, i].reshape(task.outputs, 6) @ X.T
        assert found[r, i] == pytest.approx(float(inner(task, z, y)), rel=1e-14)


@pytest.mark.parametrize("task", [TWO, MANY])
def test_the_expected_error_is_the_mean_over_all_labels_that_may_be_drawn(
    task: Classification,
) -> None:
    chances = np.random.default_rng(4).dirichlet(np.ones(len(task.names)), size=40)
    z = margins(task, 40, (5, 2))
    by_hand = np.zeros((5, 2))
    for k in range(40):
        for c, chance in enumerate(chances[k]):
            by_hand += chance * (task.decode(z)[..., k] != c) / 40
    found = task.expected_error(z, chances)
    assert found.shape == (5, 2) and np.allclose(found, by_hand, rtol=1e-12)
    certain = np.eye(len(task.names))[task.decode(z[0, 0])]
    assert task.expected_error(z[0, 0], certain) == 0.0


# Labels and answers


@pytest.mark.parametrize("task", TASKS)
def test_decoded_predictions_encode_to_the_labels(task: Task) -> None:
    y = labels(task, 100)
    perfect = np.eye(3)[:, y.astype(int)] if task is MANY else y
    answers = task.decode(perfect)
    assert answers.shape == (100,)
    assert np.allclose(task.encode(answers), y, rtol=0, atol=1e-15)
    assert task.error(perfect, y) == pytest.approx(0.0, abs=1e-12)
    assert np.all(task.has_known_label(y))


def test_undeclared_labels_are_marked_and_count_as_errors() -> None:
    assert TWO.encode([1, 0, -1]).tolist() == [1.0, -1.0, 0.0]
    assert TWO.has_known_label(np.array([1.0, -1.0, 0.0])).tolist() == [True, True, False]
    assert MANY.encode([2, 0, -1, -7]).tolist() == [2, 0, -1, -1]
    assert MANY.has_known_label(np.array([2, 0, -1])).tolist() == [True, True, False]
    y = DAYS.encode([2.0, 62.0, np.nan])
    assert y[:2].tolist() == [-1.0, 1.0] and DAYS.has_known_label(y).tolist() == [True, True, False]
    # Whoever scores leaves such rows out; of classes they would count as wrong, and of a number all
    # would be unknown.
    assert TWO.error(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == 0.5
    assert MANY.error(np.zeros((3, 2)), np.array([0, -1])) == 0.5
    assert np.isnan(DAYS.error(np.zeros(3), y))


def test_one_class_against_the_rest() -> None:
    assert TWO.encode(np.array([0, 1, 2, -1]), 2).tolist() == [-1.0, -1.0, 1.0, 0.0]
    assert TWO.contrasts == (1,) and MANY.contrasts == (0, 1, 2)


def test_a_number_beyond_its_bounds_is_clipped() -> None:
    t = [-np.inf, 1.999, 2, 30, 62, 62.001, np.inf, np.nan]
    assert DAYS.encode(t)[[0, 1, 2, 4, 5, 6]].tolist() == [-1, -1, -1, 1, 1, 1]
    assert DAYS.decode(np.array([-np.inf, -1.0, 1.0, np.inf])).tolist() == [2, 2, 62, 62]


def test_answers_never_leave_the_bounds() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        low, high = np.sort(rng.normal(size=2) * 10.0 ** rng.integers(-5, 6, size=2))
        task = BoundedNumber(low, high)
        answers = task.decode(np.array([-1e308, -1.0, 1.0, 1e308]))
        assert np.all((low <= answers) & (answers <= high))
        t = rng.uniform(low, high, size=50)
        assert np.all(np.abs(task.encode(t)) <= 1.0)
        assert np.allclose(
            task.decode(task.encode(t)), t, rtol=0, atol=1e-15 * max(abs(low), abs(high))
        )


@pytest.mark.parametrize(
    ("low", "high"), [(-1e100, 1e100), (0, 1e-300), (10**15, 10**15 + 2), (np.float32(0), True + 1)]
)
def test_bounds_far_apart_or_close_together_make_no_warning(low: Any, high: Any) -> None:
    task = BoundedNumber(low, high)
    assert type(task.low) is float and task == BoundedNumber(float(low), float(high))
    y = task.encode([low, high, 1e308, -1e308, 0.0])
    assert y[:2].tolist() == [-1.0, 1.0] and np.all(np.isfinite(y))
    assert 0 < task.error(np.zeros(5), y) <= task.worst_error < np.inf


def test_answers_are_fit_for_a_terminal_and_for_json() -> None:
    assert TwoClasses(("no\x1b[2J", "yes")).shown_answers(np.array([-1.0, 1.0])) == [
        "no\\x1b[2J",
        "yes",
    ]
    assert MANY.shown_answers(np.eye(3)) == ["low", "middle", "high"]
    answers = DAYS.shown_answers(np.array([0.0, 1.0]))
    assert answers == [32.0, 62.0] and all(type(a) is float for a in answers)


def test_two_margins_and_their_difference_answer_alike() -> None:
    W = np.random.default_rng(6).normal(size=(4, 2, 5))
    W[0, 1] = W[0, 0]  # a tie: the first class
    X = np.random.default_rng(7).normal(size=(30, 5))
    both, one = task_of_margins(2), TWO.from_softmax(W)
    assert one.shape == (4, 1, 5) and isinstance(both, ManyClasses)
    assert np.array_equal(both.decode(W @ X.T), TWO.decode(one[:, 0] @ X.T))
    assert MANY.from_softmax(W) is W


def test_which_classes_a_number_of_margins_tells_apart() -> None:
    assert task_of_classes(2) == task_of_margins(1) == TwoClasses(("0", "1"))
    assert task_of_classes(4) == task_of_margins(4) == ManyClasses(("0", "1", "2", "3"))
    assert [task.outputs for task in (*TASKS, task_of_margins(2))] == [1, 3, 1, 2]
    W = np.arange(12.0)
    assert TWO.vectors_by_margin(W) is W and MANY.vectors_by_margin(W).tolist() == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


# Baselines


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("task", [TWO, MANY])
def test_the_majority_is_scikit_learns_dummy(task: Classification, seed: int) -> None:
    y, other = labels(task, 31, seed), labels(task, 40, seed + 50)
    (name, z), *none = task.baseline_margins(y).items()
    assert name == "majority" and not none
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((31, 1)), y)
    assert task.error(z, other) == pytest.approx(
        1.0 - dummy.score(np.zeros((40, 1)), other), rel=1e-15
    )
    constant = [
        task.error(np.array([1.0 if c else -1.0]) if task is TWO else np.eye(3)[:, [c]], y)
        for c in range(2)
    ]
    assert task.error(z, y) <= min(constant)


def test_ties_of_the_majority_and_labels_that_are_not_known() -> None:
    assert TWO.baseline_margins(np.array([1.0, -1.0]))["majority"].tolist() == [1.0]
    assert TWO.baseline_margins(np.array([-1.0, 0.0, 0.0]))["majority"].tolist() == [-1.0]
    assert MANY.baseline_margins(np.array([2, 1, 1, 2, 0]))["majority"].tolist() == [
        [0.0],
        [1.0],
        [0.0],
    ]
    assert MANY.baseline_margins(np.array([2, -1, -1]))["majority"].tolist() == [
        [0.0],
        [0.0],
        [1.0],
    ]


def test_the_mean_is_scikit_learns_dummy_and_the_middle_needs_no_label() -> None:
    y, other = labels(DAYS, 31), labels(DAYS, 40, 9)
    found = DAYS.baseline_margins(y)
    assert list(found) == ["mean", "middle"]
    dummy = DummyRegressor().fit(np.zeros((31, 1)), 32 + 30 * y)
    t = 32 + 30 * other
    by_mean, by_middle = dummy.predict(np.zeros((40, 1))), np.full(40, 32.0)
    assert float(DAYS.error(found["mean"], other)) == pytest.approx(
        root_mean_squared_error(t, by_mean), rel=1e-12
    )
    assert float(DAYS.error(found["middle"], other)) == pytest.approx(
        root_mean_squared_error(t, by_middle), rel=1e-12
    )
    assert DAYS.shown_answers(found["middle"]) == [32.0]
    assert DAYS.error(found["mean"], y) <= min(
        float(DAYS.error(np.array([m]), y)) for m in np.linspace(-1, 1, 41)
    )
    nobody = np.full(3, np.nan)
    assert [z.tolist() for z in DAYS.baseline_margins(nobody).values()] == [[0.0], [0.0]]
    assert DAYS.baseline_margins(np.array([0.5, np.nan]))["mean"].tolist() == [0.5]


# Words and sites


def test_wording_of_tasks() -> None:
    said = [task.wording for task in TASKS]
    assert [(w.quality, w.unit, w.labels) for w in said] == [
        ("accuracy", "%", "positive %"),
        ("accuracy", "%", "commonest %"),
        ("root mean squared error", "days", "mean label days"),
    ]
    assert said[0].qualities == "accuracies" and BoundedNumber(0, 1).wording.labels == "mean label"
    assert [w.quality_text(t.quality(0.1234567)) for w, t in zip(said, TASKS, strict=True)] == [
        "87.65",
        "87.65",
        "0.12",
    ]
    assert [w.label_text(0.1234567) for w in said] == ["12.3", "12.3", "0.12"]
    # by the bounds' distance
    wide = {
        1e-40: "1.5e-40",
        0.01: "0.01500",
        1.0: "1.500",
        2e4: "30000",
        1e40: "1.5e+40",
    }
    for width, text in wide.items():
        assert BoundedNumber(0.0, width).wording.quality_text(1.5 * width) == text
    assert TASKS[0].names == ("lived", "died") and DAYS.names == ()


def test_one_number_about_the_labels_of_a_site() -> None:
    assert TWO.label_summary(np.array([1.0, -1.0, -1.0, 0.0])) == 0.25
    assert MANY.label_summary(np.array([0, 2, 2, -1])) == 0.5
    assert DAYS.label_summary(DAYS.encode([12, 22, np.nan])) == pytest.approx(17.0)
    assert np.isnan(DAYS.label_summary(np.array([np.nan])))


@pytest.mark.parametrize(
    ("task", "y", "strata"),
    [
        (TWO, [1.0, -1.0, 0.0, 1.0], [[0, 3], [1, 2]]),
        (MANY, [0.0, 2.0, 1.0, -1.0, 2.0], [[1, 4], [2], [0, 3]]),
        (DAYS, [0.5, -0.5, np.nan, 0.0, 1.0], [[0, 4], [1, 2, 3]]),
    ],
)
def test_rows_by_label_cover_every_row_once(
    task: Task, y: list[float], strata: list[list[int]]
) -> None:
    assert [rows.tolist() for rows in task.rows_by_label(np.array(y))] == strata


# Refusals


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (0, np.inf),
        (-np.inf, 0),
        (np.nan, 1),
        (0, np.nan),
        (0, 1.1e100),
        (0, 10**400),
        ("0", 1),
        (0, None),
        (False, True),
        (1j, 2),
        (0, 5e-324),
        (1.0, np.nextafter(1.0, 2.0)),
    ],
)
def test_invalid_bounds_are_refused(low: Any, high: Any) -> None:
    with pytest.raises(InvalidInput, match="low below high") as caught:
        BoundedNumber(low, high)
    assert caught.value.field == "low, high" and "\n" not in str(caught.value)


@pytest.mark.parametrize("unit", ["days\n", "\x1b[2J", "d" * 41, 3, None])
def test_a_unit_is_a_short_line(unit: Any) -> None:
    with pytest.raises(InvalidInput, match="one line") as caught:
        BoundedNumber(0, 1, unit)
    assert caught.value.field == "unit" and str(caught.value).isprintable()


@pytest.mark.parametrize("kind", [TwoClasses, ManyClasses])
@pytest.mark.parametrize("names", [(), ("a",), ("a", "a"), ("a", 1), ["a", "b"], "ab", None])
def test_classes_need_names_of_their_own(kind: Any, names: Any) -> None:
    with pytest.raises(InvalidInput, match="different texts") as caught:
        kind(names)
    assert caught.value.field == "names"


def test_two_classes_need_exactly_two_names() -> None:
    with pytest.raises(InvalidInput, match="two different texts"):
        TwoClasses(("a", "b", "c"))
    assert ManyClasses(("a", "b")).outputs == 2
    for classes in (0, 1):
        with pytest.raises(InvalidInput, match="names"):
            task_of_classes(classes) if classes == 0 else ManyClasses(("a",))
