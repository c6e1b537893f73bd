"""The commands of the tutorial and of its sibling, run as they stand there: each prints what the
page shows.
"""

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
PAGES = {
    name: (ROOT / "docs" / path).read_text()
    for name, path in (("tutorial", "tutorial/first_study.md"), ("hospital", "howto/hospital.md"))
}
PAGE = PAGES["tutorial"]
STEPS = {
    name: re.findall(r"```sh\n(.*?)```.*?```text\n(.*?)```", page, flags=re.S)
    for name, page in PAGES.items()
}


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


def pieces(shown: str) -> list[list[str]]:
    """The parts of an output that a page shows, between lines of "..."; the first begins it."""
    return [tokens(part) for part in re.split(r"^\.\.\.$", shown, flags=re.M)]


def shown_by(name: str, folder: Path) -> list[str]:
    """The output of every step of a page, in a folder that ends up with its files."""
    outputs = []
    shutil.copytree(ROOT / "examples" / name, folder / "examples" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "88")
        for commands, _ in STEPS[name]:
            program, *words = shlex.split(commands.replace("\\\n", " "))
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                if program == "python":
                    runpy.run_path(words[0], run_name="__main__")
                else:
                    main(words)
            outputs.append(out.getvalue())
    return outputs


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    folders = {name: tmp_path_factory.mktemp(name) for name in PAGES}
    return folders["tutorial"], {name: shown_by(name, folder) for name, folder in folders.items()}


@pytest.mark.parametrize(
    ("name", "k"), [(name, k) for name, steps in STEPS.items() for k in range(len(steps))]
)
def test_a_command_prints_what_the_page_shows(
    screens: tuple[Path, dict[str, list[str]]], name: str, k: int
) -> None:
    told, parts = tokens(screens[1][name][k]), pieces(STEPS[name][k][1])
    for i, part in enumerate(parts):
        # what stands behind the last "..." ends the output
        starts = [len(told) - len(part)] if i == len(parts) - 1 else range(len(told))
        fits = [
            start
            for start in starts
            if start >= 0
            and len(told[start : start + len(part)]) == len(part)
            and all(map(same, told[start:], part))
        ]
        assert fits, part
        if i == 0:
            assert fits[0] == 0
        told = told[fits[0] + len(part) :]


def test_the_pages_have_all_their_commands() -> None:
    words = {
        name: [commands.split()[1] for commands, _ in steps[1:]] for name, steps in STEPS.items()
    }
    assert words["tutorial"] == ["schema", "train", "report", "train", "predict"]
    assert words["hospital"] == ["schema", "train"]


def test_truth_estimates_and_misses_are_those_of_the_run(
    screens: tuple[Path, dict[str, list[str]]],
) -> None:
    """Every interval that does not hold the truth is named below the table."""
    lines = json.loads((screens[0] / "run.json").read_text())["record"]["coefficients"]
    truth = runpy.run_path(str(ROOT / "examples/tutorial/hospitals.py"))["TRUTH"]
    rows = re.findall(
        r"^\| ([^|]+) \| (-?[\d.]+) \| (-?[\d.]+) \| (-?[\d.]+) to (-?[\d.]+) \|$", PAGE, flags=re.M
    )
    assert [float(row[1]) for row in rows] == list(truth.values())
    missed = []
    for (name, real, *numbers), line in zip(rows, lines[: len(rows)], strict=True):
        assert [float(x) for x in numbers] == pytest.approx(
            [line[k] for k in ("estimate", "low", "high")], abs=0.002
        )
        if not line["low"] <= float(real) <= line["high"]:
            missed.append(name)
    told = re.findall(r"That of `(\w+)` misses", PAGE)
    assert missed == told


def test_the_report_has_the_answer_and_the_picture_is_its_own(
    screens: tuple[Path, dict[str, list[str]]],
) -> None:
    page = (screens[0] / "report.html").read_text()
    (asked_title,) = re.findall(r'--title "(.*?)"', PAGE)
    assert f"<h1>{asked_title}</h1>" in page and "Ulmenhof" in page and "geriatrics" in page
    drawn, kept = (
        (screens[0] / "odds.svg").read_text(),
        (ROOT / "docs/tutorial/odds.svg").read_text(),
    )
    strip = re.compile(r"<[^>]*>")
    assert all(
        same(*pair)
        for pair in zip(strip.sub(" ", drawn).split(), strip.sub(" ", kept).split(), strict=True)
    )
