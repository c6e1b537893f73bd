"""The tutorial's commands, run as they stand there: each prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from sottovoce.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial/first_study.md").read_text()
STEPS = re.findall(r"```sh\n(.*?)```.*?```text\n(.*?)```", PAGE, flags=re.S)


def tokens(screen: str) -> list[str]:
    return re.sub("[│╭╮╰╯─]", " ", screen).split()


def same(told: str, shown: str) -> bool:
    """Words are equal, and numbers but for the last bits of another processor's arithmetic."""
    if told == shown:
        return True
    numbers = [re.fullmatch(r"\(?<?([-+]?[\d,]*\.?\d+)[%.,;)?]*", word) for word in (told, shown)]
    if None in numbers:
        return False
    a, b = (float(found[1].replace(",", "")) for found in numbers)  # type: ignore[index]
    return abs(a - b) <= 0.002 + 0.02 * abs(b)


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Every step's output, in a folder that ends up with its files."""
    folder, outputs = tmp_path_factory.mktemp("tutorial"), []
    shutil.copytree(ROOT / "examples/tutorial", folder / "examples/tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "88")
        for commands, _ in STEPS:
            program, *words = shlex.split(commands.replace("\\\n", " "))
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                if program == "python":
                    runpy.run_path(words[0], run_name="__main__")
                else:
                    main(words)
            outputs.append(out.getvalue())
    return folder, outputs


@pytest.mark.parametrize("k", range(len(STEPS)))
def test_a_command_prints_what_the_page_shows(screens: tuple[Path, list[str]], k: int) -> None:
    told, shown = tokens(screens[1][k]), tokens(STEPS[k][1])
    if shown[0] == "...":
        shown = shown[1:]
        told = told[-len(shown) :]
    assert len(told) == len(shown)
    assert not [pair for pair in zip(told, shown, strict=True) if not same(*pair)]


def test_there_are_all_steps() -> None:
    words = [shlex.split(commands.replace("\\\n", " "))[:2] for commands, _ in STEPS]
    assert [second for _, second in words[1:]] == ["data", "data", "train", "report", "train", "predict"]


def test_truth_estimates_and_misses_are_those_of_the_run(screens: tuple[Path, list[str]]) -> None:
    """Every interval that does not hold the truth is named below the table."""
    lines = json.loads((screens[0] / "run.json").read_text())["record"]["coefficients"]
    truth = runpy.run_path(str(ROOT / "examples/tutorial/hospitals.py"))["TRUTH"]
    rows = re.findall(r"^\| ([^|]+) \| (-?[\d.]+) \| (-?[\d.]+) \| (-?[\d.]+) to (-?[\d.]+) \|$", PAGE, flags=re.M)
    assert [float(row[1]) for row in rows] == list(truth.values())
    missed = []
    for (name, real, *numbers), line in zip(rows, lines[: len(rows)], strict=True):
        assert [float(x) for x in numbers] == pytest.approx([line[k] for k in ("estimate", "low", "high")], abs=0.002)
        if not line["low"] <= float(real) <= line["high"]:
            missed.append(name)
    assert missed == re.findall(r"That of `(\w+)` misses", PAGE)


def test_the_report_has_the_answer_and_the_picture_is_its_own(screens: tuple[Path, list[str]]) -> None:
    page = (screens[0] / "report.html").read_text()
    assert "<h1>Who comes back within 30 days?</h1>" in page and "Ulmenhof" in page and "geriatrics" in page
    drawn, kept = (screens[0] / "odds.svg").read_text(), (ROOT / "docs/tutorial/odds.svg").read_text()
    strip = re.compile(r"<[^>]*>")
    assert all(same(*pair) for pair in zip(strip.sub(" ", drawn).split(), strip.sub(" ", kept).split(), strict=True))
