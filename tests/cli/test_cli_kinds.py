"""Training from the command line on labels of several classes and on numbers."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call

COLUMNS = """
[columns.age]
kind = "number"
lo = 20
hi = 80

[columns.ward]
kind = "category"
values = ["north", "south"]
"""
KINDS = ["home", "rehab", "died"]
SLOPE, SOUTH = 0.3, 5.0  # days a year of age, days in the south


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where people go after how many days, by age and ward."""
    place, rng, n = tmp_path_factory.mktemp("kinds"), np.random.default_rng(0), 4000
    age, south = rng.uniform(20, 80, n), rng.integers(2, size=n)
    scores = np.stack([-0.1 * (age - 50), 2.0 * south, 0.1 * (age - 50)], axis=1) + rng.gumbel(size=(n, 3))
    kind = np.array(KINDS)[scores.argmax(axis=1)]
    days = 15.0 + SLOPE * (age - 50) + SOUTH * south + 2.0 * rng.normal(size=n)
    days[:7] = 300.0
    ward = np.array(["north", "south"])[south]
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "ward", "kind", "days"])
        writer.writerows(zip(age.round(2), ward, kind, days.round(3), strict=True))
    values = ", ".join(f'"{name}"' for name in KINDS)
    (place / "kinds.toml").write_text(f'ignore = ["days"]\nlabel = {{ column = "kind", values = [{values}] }}{COLUMNS}')
    days_label = 'label = { column = "days", lo = 0, hi = 40, unit = "days" }'
    (place / "days.toml").write_text(f'intercept = true\nignore = ["kind"]\n{days_label}{COLUMNS}')
    return place


def train(folder: Path, schema: str, *more: object) -> tuple[Any, ...]:
    return ("train", "--data", folder / "rows.csv", "--schema", folder / schema, *more)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class TestSeveralClasses:
    KNOBS = ("--method", "prox_admm", "--rounds", 5, "--epsilon", 3)

    def test_softmax_is_trained_scored_by_class_saved_and_used(self, folder: Path, ok: Call, tmp_path: Path) -> None:
        run = tmp_path / "run.npz"
        report = ok(*train(folder, "kinds.toml", *self.KNOBS, "--save", run, "--json")).json
        assert report["config"]["loss"] == "softmax:3" and report["privacy"]["epsilon"] <= 3
        assert report["test_error"] < report["majority_test_error"] - 0.1
        of_class = report["test_details"]
        assert list(of_class) == [f"accuracy on {name}" for name in KINDS]
        assert all(0.0 <= value <= 1.0 for value in of_class.values())

        answers = table(ok("predict", run, folder / "rows.csv", "--proba").out)
        truth = table((folder / "rows.csv").read_text())
        right = np.mean([a["prediction"] == t["kind"] for a, t in zip(answers, truth, strict=True)])
        assert abs((1.0 - right) - report["test_error"]) < 0.05
        for answer in answers[:50]:
            chances = {name: float(answer[f"probability of {name}"]) for name in KINDS}
            assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
            assert max(chances, key=chances.__getitem__) == answer["prediction"]
        assert table(ok("predict", run, folder / "rows.csv").out)[0].keys() == {"prediction"}

    def test_accuracies_by_class_are_shown_as_the_holders_alone(self, folder: Path, ok: Call) -> None:
        shown = ok(*train(folder, "kinds.toml", *self.KNOBS)).out
        assert all(f"accuracy on {name}" in shown for name in KINDS)
        assert "for the data's holder only" in shown and "without noise" in shown

    def test_auto_chooses_among_methods_for_softmax(self, folder: Path, ok: Call) -> None:
        report = ok(*train(folder, "kinds.toml", "--epsilon", 3, "--trust", "sum", "--json")).json
        assert report["config"]["loss"] == "softmax:3" and "choice" in report
        assert report["test_error"] < report["majority_test_error"] - 0.1

    def test_what_several_classes_cannot_have_is_refused(self, folder: Path, run: Call) -> None:
        for more, said in (
            (("--method", "dvp", "--pure"), "rank one"), (("--loss", "huber:0.5"), "use 'softmax:3'"),
            (("--inference",), "two classes"), (("--evaluation", "0.5", *self.KNOBS), "two classes"),
        ):  # fmt: skip
            refused = run(*train(folder, "kinds.toml", *more))
            assert refused.code == 2 and said in refused.err and refused.err.count("\n") == 1
