"""Private evaluation of several classes: confusion counts, their sensitivity, and intervals that
cover.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.answers.evaluation import Held
from sottovoce.answers.judging import Scored, judge_for_task
from sottovoce.errors import InvalidInput
from sottovoce.problem.task import ManyClasses
from sottovoce.reports import sections
from sottovoce.reports.page import answer
from sottovoce.runs.config import RunConfig
from sottovoce.util.pages import render_template

TASK = ManyClasses(("a", "b", "c"))
RUN = RunConfig(method="auto", epsilon=1.0, delta=1e-5, trust="sum")
TRUTH = np.array([[0.45, 0.1, 0.05], [0.05, 0.15, 0.05], [0.02, 0.03, 0.1]])


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw margins and labels of three classes."""
    cell = np.random.default_rng(seed).choice(9, p=TRUTH.ravel(), size=n)
    return np.eye(3)[:, cell % 3], cell // 3


def judged(
    margins: np.ndarray, y: np.ndarray, held: Held, run: RunConfig = RUN, task: ManyClasses = TASK
) -> Any:
    """Evaluate margins and labels with noise, as four sites."""
    return judge_for_task(task, held, None).run_evaluation(Scored(margins, b"model", y), run, 4)


def asked(n: int, seed: int, epsilon: float = 1.0) -> Any:
    margins, y = drawn(n, seed)
    run = RunConfig(method="auto", epsilon=1.0, delta=1e-5, trust="sum", seed=seed)
    return judged(margins, y, Held(epsilon), run)


def test_metrics_without_noise_equal_exact_counts() -> None:
    margins, y = drawn(900, 0)
    y[:9] = -1
    found = judged(margins, y, Held(math.inf))
    want = np.zeros((3, 3))
    for called, label in zip(margins.argmax(axis=0)[9:], y[9:], strict=True):
        want[label, called] += 1
    np.testing.assert_allclose(found.counts, want, atol=1e-9)
    assert found.exact["rows"] == 891 and found.rows == 900
    # a row without a label counts as wrong
    assert found.accuracy.value == pytest.approx(np.trace(want) / 900)
    assert found.found["b"].value == pytest.approx(want[1, 1] / want[1].sum())
    assert found.right["b"].value == pytest.approx(want[1, 1] / want[:, 1].sum())
    assert found.share["b"].value == pytest.approx(want[1].sum() / 900)


def test_cost_is_as_stated_and_noise_scale_allows_for_two_cells() -> None:
    """A chi-squared test at one in 10^4, which two thirds and three halves of the scale fail."""
    deviations, noise = [], 0.0
    for seed in range(60):
        margins, y = drawn(4000, seed)
        counts = np.bincount(y * 3 + margins.argmax(axis=0), minlength=9).reshape(3, 3)
        found = asked(4000, seed)
        noise = found.noise
        deviations.append(((found.counts - counts) / noise).ravel())
        assert found.statement.epsilon <= 1.0
    ratio = float(np.mean(np.square(deviations)))
    assert 0.7 < ratio < 1.35
    assert noise > math.sqrt(2.0)


def test_intervals_cover_only_if_noise_is_included() -> None:
    """Of 120 tables of 1,500 rows."""
    recall, precision = np.diag(TRUTH) / TRUTH.sum(axis=1), np.diag(TRUTH) / TRUTH.sum(axis=0)
    inside, width = [], []
    for seed in range(120):
        found = asked(1500, seed, 0.5)
        pairs = [(found.accuracy, np.trace(TRUTH))]
        for k, name in enumerate(TASK.names):
            pairs += [(found.found[name], recall[k]), (found.right[name], precision[k])]
            pairs += [(found.share[name], TRUTH[k].sum())]
        inside += [one.low <= truth <= one.high for one, truth in pairs if one.value is not None]
        width += [
            abs(one.value - truth) / (one.high - one.value)
            for one, truth in pairs
            if one.value is not None
        ]
    assert len(inside) > 1000 and 0.92 < np.mean(inside) < 0.98
    assert np.mean(np.array(width) < 2 / 3) < 0.9


def test_accuracy_has_the_noise_of_its_summed_counts() -> None:
    """With five classes it is that of 5 of 25 counts; a chi-squared test of 200 runs, at one in
    10^4.
    """
    task, n = ManyClasses(tuple("abcde")), 3000
    rng = np.random.default_rng(1)
    y = rng.integers(5, size=n)
    answers = np.where(rng.random(n) < 0.8, y, (y + 1) % 5)
    exact, deviations, told = float(np.mean(answers == y)), [], []
    for seed in range(200):
        run = RunConfig(method="auto", epsilon=1.0, delta=1e-5, trust="sum", seed=seed)
        one = judged(np.eye(5)[:, answers], y, Held(0.5), run, task).accuracy
        assert one.value is not None and one.low is not None and one.high is not None
        deviations.append(one.value - exact)
        told.append(
            ((one.high - one.low) / 2.0 / stats.norm.isf(0.025)) ** 2
            - one.value * (1.0 - one.value) / n
        )
    squares = float(np.sum(np.square(deviations)) / np.mean(told))
    assert 1e-4 < stats.chi2.sf(squares, 200) < 1 - 1e-4


def test_few_rows_of_a_class_are_refused() -> None:
    found = asked(200, 0, 0.3)
    assert found.found["c"].value is None and "too few rows" in str(found.found["c"].refused)


@pytest.mark.parametrize("more", [{"by": "ward"}, {"threshold": 0.3}])
def test_options_of_two_classes_are_refused(more: dict[str, Any]) -> None:
    margins, y = drawn(50, 0)
    with pytest.raises(InvalidInput, match="two classes"):
        judged(margins, y, Held(1.0, **more))


def test_a_page_escapes_the_names_of_classes() -> None:
    evil = "<script>alert(1)</script>"
    task = ManyClasses((evil, "b", "c"))
    margins, y = drawn(2000, 0)
    plain = judged(margins, y, Held(2.0), task=task).to_dict()
    for holder in (False, True):
        text = render_template("sections.html", **sections({"evaluation": plain}, holder=holder))
        assert evil not in text and "&lt;script&gt;" in text and ("holder only" in text) is holder


def test_a_page_says_that_rows_are_too_few_where_the_accuracy_is_refused() -> None:
    margins, y = drawn(2000, 0)
    plain = judged(margins, y, Held(2.0)).to_dict()
    told = dict.fromkeys(plain["accuracy"]) | {
        "refused": "held-out rows are too few for this noise"
    }
    assert "too few" in answer({"evaluation": plain | {"accuracy": told}})[0]
    assert "correctly" in answer({"evaluation": plain})[0]
