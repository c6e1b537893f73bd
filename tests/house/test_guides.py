"""The sections of docs/howto/extend.md are complete: what they add is added to a copy, and their
tests pass.

A guide's command chooses the tests of what is added, and those of whatever else its edits change.
All other cases of the same tests run in this suite, on the tree without the addition.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from planting import copied, edited, first_on_path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/extend.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
GUIDES = ("A method", "An answer", "A loss", "A release", "A trust", "A transport")
BLOCK = re.compile(r"^`(\S+)`:\n\n```(python|diff)\n(.*?)^```$", re.M | re.S)
"""The name of a file, then what it holds or what changes in it."""


def side(change: str, marks: str) -> str:
    """The lines of a change before (" -") or after (" +")."""
    return "\n".join(line[1:] for line in change.splitlines() if not line or line[0] in marks)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_complete(guide: str, tmp_path: Path) -> None:
    copied(tmp_path)
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    text = SECTIONS[guide]
    for name, kind, body in BLOCK.findall(text):
        file = tmp_path / name
        if kind == "python":
            assert not file.exists()
            file.write_text(body, encoding="utf-8")
        else:
            old, new = side(body, " -"), side(body, " +")
            before = file.read_text(encoding="utf-8")
            assert before.count(old) == 1, f"{name}: not found once: {old}"
            edited(file, before.replace(old, new))
    (tests,) = re.findall(r"^scripts/test (.*)$", text, re.M)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ran = warm.run(
        [*command, *shlex.split(tests)], cwd=tmp_path, env=first_on_path(tmp_path / "src")
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_passes_the_lint(guide: str) -> None:
    """Every guide runs `scripts/check`, so what it adds must pass."""
    pytest.importorskip("ruff")
    text = SECTIONS[guide]
    for name, kind, body in BLOCK.findall(text):
        if kind == "python":
            for how in (["check", "-q"], ["format", "-q", "--check"]):
                # what is first party cannot be told of standard input, so imports are not sorted
                rules = [] if how[0] == "format" else ["--ignore", "I001"]
                command = [
                    sys.executable,
                    "-m",
                    "ruff",
                    *how,
                    *rules,
                    "--stdin-filename",
                    name,
                    "-",
                ]
                ran = subprocess.run(
                    command, input=body, text=True, capture_output=True, cwd=ROOT, check=False
                )
                assert ran.returncode == 0, f"{guide}: {name}: {ran.stdout}{ran.stderr}"


NAMED = re.compile(r"`(\w+)`(?:\([^)]*\))? (?:in|of) `([\w/]+\.py)`")


@pytest.mark.parametrize("guide", [*GUIDES, "A package of your own"])
def test_a_name_is_in_the_file_that_a_guide_gives(guide: str) -> None:
    text = SECTIONS[guide]
    for name, file in NAMED.findall(" ".join(text.split())):
        tops = ("src", "tests", "scripts")
        files = (p for top in tops for p in (ROOT / top).rglob(Path(file).name))
        found = [p for p in files if str(p).endswith(f"/{file}")]
        assert found, f"{guide}: no file {file}"
        assert any(re.search(rf"\b{name}\b", p.read_text(encoding="utf-8")) for p in found), (
            f"{guide}: {name} is not in {file}"
        )
