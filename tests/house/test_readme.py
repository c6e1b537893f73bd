"""The README's commands, run as they stand there (installation aside), and what it says of what is
offered.
"""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import sottovoce
from sottovoce.cli import main
from sottovoce.errors import InvalidInput

SCORES = ("this run", "without privacy", "majority")
README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def words(screen: str) -> str:
    """What is written, however wide the screen is."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", screen).split())


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(shlex.split(command)[1:])  # exits only if it fails
    return capsys.readouterr().out


def test_first_command_ends_with_the_main_job(capsys: pytest.CaptureFixture[str]) -> None:
    install, _, train = blocks("sh")[0].strip().rpartition("&& ")
    assert "pip install" in install
    assert train == ".venv/bin/sottovoce train"
    out, shown = run(train, capsys), blocks("text")[0]
    first, privacy, scores_shown = shown.split("...\n")
    # The choice of "auto" may turn on the last bits of another processor's arithmetic; all else may
    # not.
    data = "(corrected) on adult: 5 sites of 8,000 rows, iid partition, ring graph, 36 features,"
    assert data in words(first) and data in words(out) and "private row was" in words(out)
    assert words(privacy) in words(out)
    was = float(re.search(r"^this run +([0-9.]+) ", scores_shown, flags=re.M)[1])  # type: ignore[index]
    scores = {
        line: float(re.search(rf"^{line} +([0-9.]+) ", out, flags=re.M)[1]) for line in SCORES
    }  # type: ignore[index]
    assert abs(scores["this run"] - was) <= 0.5
    # the first run that anybody sees is a good one
    assert scores["this run"] >= scores["without privacy"] - 1.0
    assert scores["this run"] >= scores["majority"] + 5.0


def rows_of_table(first: str) -> list[list[str]]:
    """The cells of the table whose first column has this head."""
    (table,) = re.findall(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, flags=re.M)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_intervals_are_offered_where_the_readme_says() -> None:
    tasks = {row[0]: row for row in rows_of_table("task")}
    assert len(tasks) == 5
    for task, (_, intervals, *_, estimator) in tasks.items():
        made = getattr(sottovoce, estimator.strip("`"))
        offered = "inference" in inspect.signature(made).parameters and task != "several classes"
        assert intervals == ("yes" if offered else "not offered"), task
    y = np.array([0, 1, 2] * 20)
    model = sottovoce.ConsensusClassifier(classes=[0, 1, 2], inference=True, random_state=0)
    with pytest.raises(InvalidInput, match="exactly two classes"):
        model.fit(np.ones((60, 1)), y)


@pytest.mark.parametrize("row", rows_of_table("trust"), ids=lambda row: row[0])
def test_pure_epsilon_is_offered_where_the_readme_says(row: list[str]) -> None:
    trust, pure = row[1].strip('`"'), row[-1]
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 2))
    common = {"trust": trust, "delta": None, "data_norm": 3.0, "random_state": 0}
    y, losses = X[:, 0] > 0, ("huber-residual:1", "squared")
    fits = {
        "classes": sottovoce.ConsensusClassifier(classes=[False, True], **common),
        **{loss: sottovoce.ConsensusRegressor((-3, 3), loss=loss, **common) for loss in losses},
    }
    offered = {"classes", "huber-residual:1"} if pure == "classes, robust losses" else set()
    for name, model in fits.items():
        target = y if name == "classes" else X[:, 1]
        if name in offered:
            model.fit(X, target)
            assert model.privacy_spent_["delta"] == 0
        else:
            with pytest.raises(InvalidInput, match="no pure epsilon"):
                model.fit(X, target)


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (Path(__file__).parents[2] / target).exists(), target
