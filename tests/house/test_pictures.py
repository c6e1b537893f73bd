"""Doors and gallery: every script runs, and prints and draws what the pages show."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from in_process import ran

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("draw", ROOT / "scripts" / "draw.py")
assert _spec is not None and _spec.loader is not None
draw = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw)

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def alike(told: str, shown: str) -> bool:
    """Equal in words, and in numbers but for the last bits of another processor's arithmetic."""
    here, there = (list(map(float, NUMBER.findall(text))) for text in (told, shown))
    words = [NUMBER.sub("#", text).split() for text in (told, shown)]
    return words[0] == words[1] and all(
        abs(a - b) <= 0.01 + 0.03 * abs(b) for a, b in zip(here, there, strict=True)
    )


def drawn_here(script: Path, folder: Path) -> str:
    """What a script prints, with its pictures in `folder`, without the time that a new
    interpreter takes.
    """
    return ran(script, into=folder, environment={"GALLERY": str(folder), "SOURCE_DATE_EPOCH": "0"})


def test_scripts_are_drawn_as_processes_too(tmp_path: Path) -> None:
    """As ``scripts/draw.py`` does: with the folder, the salt and the environment of its own."""
    (script,) = [script for script in draw.scripts() if script.stem == "accountants"]
    said = draw.run(script, tmp_path)
    assert said == ""
    drawn, kept = (
        (folder / "accountants.svg").read_text(encoding="utf-8")
        for folder in (tmp_path, draw.GALLERY)
    )
    assert re.findall(r' id="\w+', drawn) == re.findall(r' id="\w+', kept)
    (tmp_path / "wrong.py").write_text("raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="ended with 3"):
        draw.run(tmp_path / "wrong.py", tmp_path)


@pytest.mark.parametrize("script", draw.scripts(), ids=lambda script: script.stem)
def test_a_script_prints_and_draws_what_the_pages_show(script: Path, tmp_path: Path) -> None:
    said = drawn_here(script, tmp_path)
    kept = (draw.DOORS if script.parent.name == "doors" else draw.GALLERY) / script.name
    if said or kept.with_suffix(".txt").exists():
        assert alike(said, kept.with_suffix(".txt").read_text(encoding="utf-8")), said
    drawn = [path.name for path in tmp_path.glob("*.svg")]
    assert drawn == ([] if script.stem == "ten_lines" else [f"{script.stem}.svg"])
    for numbers in tmp_path.glob("*.json"):
        here, there = (
            json.loads(numbers.read_text()),
            json.loads((draw.GALLERY / numbers.name).read_text()),
        )
        assert [[len(line) for line in panel["lines"]] for panel in here] == [
            [len(line) for line in panel["lines"]] for panel in there
        ]
        assert alike(json.dumps(here), json.dumps(there))
    for name in drawn:  # readable on white and on black: no ground, and no black or white ink
        for picture in (tmp_path / name, kept.with_suffix(".svg")):
            ink = re.findall(
                r"(?:fill|stroke): #(000000|ffffff)", picture.read_text(encoding="utf-8")
            )
            assert ElementTree.parse(picture).getroot().get("viewBox") and not ink, picture


def test_every_picture_has_a_script() -> None:
    pictures = {path.stem for folder in (draw.DOORS, draw.GALLERY) for path in folder.glob("*.svg")}
    assert pictures - {"odds"} == {script.stem for script in draw.scripts()} - {"ten_lines"}
    page = (draw.GALLERY / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^!\[.*\]\((\w+)\.svg\)$", page, re.M)
    assert all((ROOT / "examples" / "gallery" / f"{name}.py").exists() for name in listed)
    assert (
        sorted(listed) == sorted(path.stem for path in draw.GALLERY.glob("*.svg"))
        and len(listed) >= 12
    )


def test_the_readme_shows_ten_lines_and_their_output() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = (ROOT / "examples" / "doors" / "ten_lines.py").read_text(encoding="utf-8")
    output = (draw.DOORS / "ten_lines.txt").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in readme and f"```text\n{output}```" in readme
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
