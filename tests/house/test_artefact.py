"""What a reviewer runs: exact versions, a container file that can be followed, and a notebook of
one paper.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import warm

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "Containerfile"
NOTEBOOKS = sorted((ROOT / "examples" / "papers").glob("*.py"))


def script(name: str) -> ModuleType:
    """A script of the repository as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_need_of_the_studies_and_the_tests_has_one_exact_version_that_the_project_allows() -> (
    None
):
    packaging = pytest.importorskip("packaging.requirements")
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines) and all(
        re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    todo = ["test"]
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    while todo:
        needs = [packaging.Requirement(line) for line in extras[todo.pop()]]
        todo += [extra for need in needs if need.name == "sottovoce" for extra in need.extras]
        wanted += [str(need) for need in needs if need.name != "sottovoce"]
    for need in map(packaging.Requirement, wanted):
        assert need.specifier.contains(pinned[need.name]), need


def test_the_image_is_built_from_files_that_enter_it_and_by_the_exact_versions() -> None:
    found = script("containerfile").instructions(CONTAINERFILE.read_text(encoding="utf-8"))
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    sources = [source for word, rest in found if word == "COPY" for source in rest.split()[:-1]]
    assert {"constraints.txt", "src", "bench/results.py", "docs/measured/papers/results"} <= set(
        sources
    )
    for source in sources:
        assert (ROOT / source).exists() and f"!{source}" in rules, source
    (installs,) = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert installs.startswith("PIP_CONSTRAINT=constraints.txt ")


FOLLOWED = """
# A comment.
ARG BASE=python:3.11
FROM ${BASE}
WORKDIR /there
COPY one.txt two.txt kept/
COPY folder folder
ENV GREETING=hello PATH=/there/tools:${PATH}
RUN mkdir tools \\
 && echo "$GREETING" > tools/said
RUN python -c "print(1 + 1)" >> tools/said
CMD ["cat", "tools/said"]
"""


def follow(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    for name in ("one.txt", "two.txt", "folder/three.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "Containerfile").write_text(text)
    words = [
        sys.executable,
        ROOT / "scripts" / "containerfile.py",
        folder / "Containerfile",
        folder / "image",
    ]
    return subprocess.run(
        [*words, *command], capture_output=True, text=True, check=False, cwd=folder
    )


def test_a_container_file_is_followed_in_a_folder(tmp_path: Path) -> None:
    done = follow(tmp_path, FOLLOWED)
    assert (done.returncode, done.stdout) == (0, "hello\n2\n"), done.stderr
    image = tmp_path / "image"
    files = {path.relative_to(image).as_posix() for path in image.rglob("*") if path.is_file()}
    assert files == {"kept/one.txt", "kept/two.txt", "folder/three.txt", "tools/said"}


@pytest.mark.parametrize(
    "line",
    [
        "RUN false",
        "VOLUME /data",
        "COPY one.txt /etc/one.txt",
        "COPY one.txt ../one.txt",
        "WORKDIR /other",
    ],
)
def test_a_step_that_cannot_be_followed_ends_the_build(line: str, tmp_path: Path) -> None:
    done = follow(tmp_path, FOLLOWED.replace("CMD", f"{line}\nCMD"))
    assert done.returncode not in (0, None) and "2" not in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script(path: Path) -> None:
    notebook = script("notebook")
    text = path.read_text(encoding="utf-8")
    kept = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert kept == notebook.notebook(text), "run scripts/notebook.py"
    assert {cell["cell_type"] for cell in json.loads(kept)["cells"]} == {"code", "markdown"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_claim_to_its_verdicts(path: Path, tmp_path: Path) -> None:
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = warm.run([path], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert (
        "claimed" in done.stdout
        and "proved" in done.stdout
        and done.stdout.count("as printed: ") >= 3
    )
    assert list(tmp_path.iterdir()) == []
