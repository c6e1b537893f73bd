"""A held-out row's score does not depend on other rows: the number of rows of another person
changes no bit of it.

Scores are counted in cells, and what a person can change is priced as one count in a cell. A linear
algebra library rounds the last rows of a matrix differently from the others, so computing scores of
more or fewer rows at once could move other people across an edge.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sottovoce import RunConfig, TrainConfig, train
from sottovoce.answers import judging
from sottovoce.answers.evaluation import Held
from sottovoce.answers.numbers import fit_numbers
from sottovoce.answers.training import evaluate_report, infer
from sottovoce.cli import cli
from sottovoce.data.move import Move
from sottovoce.data.products import products_by_row
from sottovoce.data.rows import Rows
from sottovoce.runs.simulate import Result

D = 13
HELD_OUT = np.random.default_rng(0).permutation(120)[:60].tolist()
"""People of a table of 120 of whom half are held out."""
LABELS = {
    "two classes": ('{ column = "y", positive = "a", negative = "b" }', ("a", "b")),
    "several classes": ('{ column = "y", values = ["a", "b", "c"] }', ("a", "b", "c")),
    "a number": ('{ column = "y", lo = 0, hi = 10 }', ("1.5", "7.25", "4")),
}


class TestProducts:
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("K", [None, 1, 3])
    def test_product_of_a_row_is_the_same_in_every_shape(self, order: Any, K: int | None) -> None:
        rng = np.random.default_rng(0)
        for d in (1, 2, 3, 5, 8, 13, 33):
            X, W = rng.normal(size=(70, d)), rng.normal(size=d if K is None else (K, d))
            alone = np.stack([products_by_row(row[None], W)[..., 0] for row in X], axis=-1)
            for n in range(1, 71):
                first, last = (np.asarray(part, order=order) for part in (X[:n], X[70 - n :]))
                np.testing.assert_array_equal(products_by_row(first, W), alone[..., :n])
                np.testing.assert_array_equal(products_by_row(last, W), alone[..., 70 - n :])

    def test_product_of_a_row_ignores_values_of_other_rows(self) -> None:
        rng = np.random.default_rng(1)
        X, w = rng.normal(size=(9, 6)), rng.normal(size=6)
        known = products_by_row(X, w)
        X[4] = [np.inf, np.nan, -np.inf, 1e308, 5e-324, 0.0]
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(np.delete(products_by_row(X, w), 4), np.delete(known, 4))

    def test_products_by_row_equal_the_matrix_product(self) -> None:
        rng = np.random.default_rng(2)
        X, W = rng.normal(size=(5000, 40)), rng.normal(size=(3, 40))
        np.testing.assert_allclose(products_by_row(X, W), (X @ W.T).T, rtol=0, atol=1e-12)
        assert products_by_row(np.empty((0, 4)), np.ones(4)).shape == (0,)
        assert products_by_row(np.empty((0, 4)), np.ones((2, 4))).shape == (2, 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Rows]:
    """The rows of every evaluation, as they are counted."""
    seen: list[Rows] = []
    ask = judging.simulate

    def watched(config: Any, rows: Rows, **more: Any) -> Any:
        seen.append(rows)
        return ask(config, rows, **more)

    monkeypatch.setattr(judging, "simulate", watched)
    return seen


def made_table(
    folder: Path,
    label: str,
    extra: int,
    people: int = 120,
    first: int = HELD_OUT[0],
    gap: bool = False,
) -> None:
    """Return a table of people with one row each; person `first` has `extra` more rows, and with a
    `gap` no label.
    """
    rng = np.random.default_rng(7)
    values = LABELS[label][1]
    lines = []
    for one in range(people):
        rows = rng.uniform(-1.0, 1.0, size=(9, D))
        labels = [values[k] for k in rng.integers(len(values), size=9)]
        for k in range(1 + extra if one == first else 1):
            said = "?" if gap and one == first else labels[k]
            lines.append([f"p{one}", *map(repr, rows[k].tolist()), said])
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["who", *(f"x{j}" for j in range(D)), "y"], *lines])
    columns = "".join(f'[columns.x{j}]\nkind = "number"\nlo = -1\nhi = 1\n' for j in range(D))
    (folder / "s.toml").write_text(
        f'person = "who"\nna = ["?"]\nlabel = {LABELS[label][0]}\n{columns}'
    )


def config(folder: Path, method: str = "dgd", **more: Any) -> TrainConfig:
    run = RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 1.0,
            "delta": 1e-5,
            "seed": 3,
            "trust": "curator" if method == "auto" else None,
            **more,
        }
    )
    return TrainConfig(
        run, str(folder / "rows.csv"), str(folder / "s.toml"), nodes=2, test_share=0.5, centre=False
    )


def saved_run(folder: Path, label: str) -> Path:
    """Save a run by rounds on a table with one row a person, with a model whose scores lie near
    zero.
    """
    made_table(folder, label, 0)
    result = train(replace(config(folder), test_share=None)).result
    model = np.random.default_rng(5).normal(size=result.models.shape)
    replace(result, models=model).save(folder / "run.npz")
    return folder / "run.npz"


def by_evaluate(folder: Path) -> None:
    words = [
        "evaluate",
        str(folder / "run.npz"),
        str(folder / "rows.csv"),
        "--epsilon",
        "1",
        "--json",
    ]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def by_rounds(folder: Path) -> None:
    evaluate_report(train(config(folder)), Held(50.0))


def by_answers(folder: Path) -> None:
    label = (folder / "s.toml").read_text()
    ask: Callable[..., Any] = fit_numbers if "lo = 0, hi = 10" in label else infer
    ask(config(folder, "auto"), held=Held(50.0))


def scores_of(rows: Rows) -> np.ndarray:
    """Return what is counted of every row: columns, label, and target."""
    parts = [rows.signed] if rows.offset is None else [rows.signed, rows.offset[..., None]]
    return np.concatenate(parts, axis=2)


@pytest.mark.parametrize(
    ("door", "label"),
    [(by_evaluate, label) for label in LABELS]
    + [
        (by_rounds, "two classes"),
        (by_rounds, "several classes"),
        (by_answers, "two classes"),
        (by_answers, "a number"),
    ],
)
def test_number_of_rows_of_a_person_changes_no_other_score(
    door: Callable[[Path], None], label: str, tmp_path: Path, asked: list[Rows]
) -> None:
    if door is by_evaluate:
        saved_run(tmp_path, label)
    held = {}
    for extra in (0, 1, 2, 3, 7):
        made_table(tmp_path, label, extra)
        asked.clear()
        door(tmp_path)
        held[extra] = scores_of(asked[-1])
    for extra in (
        1,
        2,
        3,
        7,
    ):  # the person keeps the first row, so nothing at all is another number
        np.testing.assert_array_equal(held[extra], held[0])


@pytest.mark.parametrize(
    ("door", "label"),
    [(by_evaluate, "two classes"), (by_rounds, "two classes"), (by_answers, "two classes")],
)
def test_row_without_label_changes_no_other_score(
    door: Callable[[Path], None], label: str, tmp_path: Path, asked: list[Rows]
) -> None:
    """The evaluated model is the same; only the held-out half differs."""
    if door is by_evaluate:
        saved_run(tmp_path, label)
    for first in HELD_OUT[:3]:
        held = []
        for gap in (False, True):
            made_table(tmp_path, label, 0, first=first, gap=gap)
            asked.clear()
            door(tmp_path)
            held.append(scores_of(asked[-1]))
        other = np.flatnonzero(np.any(held[0] != held[1], axis=2).ravel())
        assert len(other) == 1  # the row itself


def test_adversarial_model_changes_no_other_count(tmp_path: Path, asked: list[Rows]) -> None:
    """Everybody lies on an edge of the cells up to rounding; counts without noise differ by that
    one person alone.

    With a single product of all rows, a person of two rows moved up to three others across the
    edge.
    """
    rng = np.random.default_rng(11)
    run = saved_run(tmp_path, "two classes")
    result = Result.load(run)
    for _ in range(30):
        x = rng.uniform(-1.0, 1.0, size=D)
        w = rng.normal(size=D)
        w -= x * (w @ x) / (x @ x)
        replace(result, models=np.broadcast_to(w, result.models.shape)).save(run)
        positive = []
        for extra in (0, 1, 2, 3):
            people = [one for one in range(61) for _ in range(1 + extra * (one == 9))]
            rows = [[f"p{one}", *map(repr, x.tolist()), "b" if one == 0 else "a"] for one in people]
            with (tmp_path / "rows.csv").open("w", newline="") as file:
                csv.writer(file).writerows([["who", *(f"x{j}" for j in range(D)), "y"], *rows])
            asked.clear()
            by_evaluate(tmp_path)
            positive.append(int(np.sum(scores_of(asked[-1])[0, 1:, -2] >= 0.0)))
        assert len(set(positive)) == 1


def test_rows_of_a_person_are_selected_before_clipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    shorten = Move.shorten_rows

    def watched(self: Move, rows: Any) -> Any:
        sizes.append(len(rows))
        return shorten(self, rows)

    monkeypatch.setattr(Move, "shorten_rows", watched)
    for extra in (0, 3):
        made_table(tmp_path, "two classes", extra)
        (tmp_path / "s.toml").write_text("intercept = true\n" + (tmp_path / "s.toml").read_text())
        report = train(config(tmp_path))
        move = Move(np.append(np.full(D, 0.05), 0.0), (D,), 0.5, 1.3)
        sizes.clear()
        evaluate_report(replace(report, result=replace(report.result, move=move)), Held(50.0))
        assert sizes == [60]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("size", [1e300, 8e307])
def test_model_with_huge_weights_is_not_refused_by_rows(
    size: float, label: str, tmp_path: Path, asked: list[Rows]
) -> None:
    """A model may come from anybody; a refusal because a sum overflows would be a free answer about
    a row.
    """
    run = saved_run(tmp_path, label)
    result = Result.load(run)
    replace(result, models=np.full(result.models.shape, size)).save(run)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    counted = []
    for value in ("1", "-1", "0"):
        cells = lines[1].split(",")
        cells[1 : 1 + D] = [value] * D
        (tmp_path / "rows.csv").write_text(
            "\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n"
        )
        asked.clear()
        by_evaluate(tmp_path)
        counted.append(scores_of(asked[-1])[0, 1:])
    assert all(np.isfinite(found).all() for found in counted)
    for found in counted[1:]:
        np.testing.assert_array_equal(found, counted[0])
