"""A rare label: planted estimators that show it, one that does not, and ours."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.audit import attack, labels
from sottovoce.audit.labels import RARE, Stand, play
from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any, Array


class Declared:
    """Takes classes, and shows nothing else of its labels."""

    def __init__(self, classes: Sequence[str] | None) -> None:
        self.classes = classes

    def fit(self, X: Array, y: Any, groups: Any = None) -> Any:
        if self.classes is None:
            raise InvalidInput("classes", None, "a release must declare them", "give classes=[...]")
        self.release(y, np.array(list(self.classes)))
        return self

    def release(self, y: Any, classes: Any) -> None:
        self.classes_, self.coef_ = classes, np.random.default_rng().normal(size=(len(classes), 2))


class ReadsClasses(Declared):
    """What was wrong: the classes are those of the labels."""

    def fit(self, X: Array, y: Any, groups: Any = None) -> Any:
        self.release(y, np.unique(y))
        return self


class WantsTwo(Declared):
    """What was wrong, too: it says aloud that there is one class."""

    def release(self, y: Any, classes: Any) -> None:
        if len(np.unique(y)) < 2:
            raise ValueError("the data contains only one class")
        super().release(y, classes)


class Counts(Declared):
    """Shows how many rows have a label that was not declared."""

    def release(self, y: Any, classes: Any) -> None:
        super().release(y, classes)
        self.left_out_ = int(np.sum(~np.isin(y, classes)))


class Warns(Declared):
    """Says so in a warning."""

    def release(self, y: Any, classes: Any) -> None:
        super().release(y, classes)
        if not np.all(np.isin(y, classes)):
            warnings.warn("some labels were not declared", UserWarning, stacklevel=2)


class Shapes(Declared):
    """A coefficient row for each class that occurs."""

    def release(self, y: Any, classes: Any) -> None:
        super().release(y, classes)
        self.coef_ = self.coef_[: len(np.unique(y))]


def stands(cls: type[Declared], **more: Any) -> dict[str, Stand]:
    make: Callable[..., Any] = lambda epsilon, classes: cls(classes)  # noqa: E731
    return {"planted": Stand(make, declares=cls is not ReadsClasses, **more)}


@pytest.mark.parametrize(
    ("cls", "more", "how"),
    [
        (ReadsClasses, {}, "classes not declared"),
        (WantsTwo, {"common": ("no",)}, "the rare label declared"),
        (Counts, {}, "the rare label not declared"),
        (Warns, {}, "the rare label not declared"),
        (Shapes, {}, "the rare label declared"),
    ],
)
def test_an_estimator_that_shows_the_label_is_refuted(
    cls: type[Declared], more: dict[str, Any], how: str
) -> None:
    verdict = play(stands=stands(cls, **more))
    assert verdict.refuted and f"planted, {how}" in verdict.differ
    assert verdict.told[0].keys().isdisjoint(verdict.told[1])


def test_an_estimator_that_shows_nothing_stands() -> None:
    verdict = play(stands=stands(Declared))
    assert not verdict.refuted and verdict.differ == ()
    assert "coef_ of shape" in next(iter(verdict.told[0])) and verdict.told[0] == verdict.told[1]


class Restless(Declared):
    """Shows a number that its noise alone decides."""

    def release(self, y: Any, classes: Any) -> None:
        super().release(y, classes)
        self.norm_ = float(np.linalg.norm(self.coef_))


def test_a_difference_that_noise_makes_does_not_hide_one_that_a_label_makes() -> None:
    noisy = {f"restless {k}": stand for k in range(4) for stand in stands(Restless).values()}
    assert not play(stands=noisy).refuted
    verdict = play(stands=noisy | stands(Counts))
    assert verdict.refuted and "not declared" in verdict.attack


def test_a_label_audit_without_releases_is_refused() -> None:
    class Refuses(Declared):
        def release(self, y: Any, classes: Any) -> None:
            raise InvalidInput("epsilon", None, "is too small", "use 1")

    with pytest.raises(InvalidInput, match=r"^epsilon=.*planted"):
        play(stands=stands(Refuses))
    both = {"whole": stands(Declared)["planted"], **stands(Refuses)}
    with pytest.raises(InvalidInput, match=r"^epsilon=.*planted"):
        play(stands=both)


@pytest.mark.filterwarnings("ignore::sottovoce.errors.HolderNote")  # two rows, one class
def test_everything_but_the_values_of_coefficients_is_an_output() -> None:
    model = PrivateClassifier("objective", delta=None, random_state=0).fit(
        np.eye(2) * 0.5, ["a", "b"]
    )
    found = labels.outputs(model)
    assert set(found) == {name for name in vars(model) if name not in model.get_params()}
    # Of coefficients nothing but the shape, of all else the value.
    assert found["coef_"].endswith(str(model.coef_.shape))
    assert not any(str(value) in found["coef_"] for value in model.coef_.ravel())
    assert "'a'" in found["classes_"] and "'epsilon'" in found["privacy_spent_"]


def test_every_table_holds_the_label_in_one_row_only() -> None:
    seen: list[list[str]] = []

    class Looks(Declared):
        def release(self, y: Any, classes: Any) -> None:
            seen.append(list(y))
            super().release(y, classes)

    for stand in (
        *stands(Looks).values(),
        *stands(Looks, common=("no",)).values(),
        *stands(Looks, sites=True).values(),
    ):
        seen.clear()
        for table in (0, 1):
            stand.observe_fit(table, 1.0, ["no", "yes"])
        without, holding = seen
        assert RARE not in without and holding.count(RARE) == 1
        assert sum(a != b for a, b in zip(without, holding, strict=True)) == 1


def test_both_estimators_take_classes_and_none_shows_a_rare_label() -> None:
    for cls in (PrivateClassifier, ConsensusClassifier):
        assert "classes" in inspect.signature(cls.__init__).parameters
    verdict = attack("labels").to_dict()
    assert not verdict["refuted"] and verdict["differ"] == ()
    assert "coef_ of shape" in next(iter(verdict["told"][0]))  # of a release, not of a refusal


@pytest.mark.parametrize("name", labels._default_stands(None, None))
def test_without_classes_every_release_is_refused_alike(name: str) -> None:
    stand = labels._default_stands(None, None)[name]
    first, second = (stand.observe_fit(table, 1.0, None).told for table in (0, 1))
    assert first == second and first.startswith("InvalidInput: classes")
