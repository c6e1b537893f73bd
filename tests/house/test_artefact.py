"""What a reviewer runs: exact versions, a container file that can be followed, and notebooks
that are kept with what they show.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "Containerfile"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.py"))


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


NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def words_and_numbers(text: str) -> tuple[str, list[float]]:
    """A text without its numbers, and its numbers."""
    numbers = [float(found.replace(",", "")) for found in NUMBER.findall(text)]
    return " ".join(NUMBER.sub("#", text).split()), numbers


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def notebooks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cells of a notebook as it is kept, and as it comes out when its script runs now."""
    kept = json.loads(request.param.with_suffix(".ipynb").read_text(encoding="utf-8"))
    folder = tmp_path_factory.mktemp(request.param.stem)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        warnings.simplefilter("ignore")  # notes to the holder of the rows go to standard error
        made = script("notebook").notebook(request.param.read_text(encoding="utf-8"))
    assert list(folder.iterdir()) == []
    return kept["cells"], made["cells"]


def test_a_notebook_has_the_cells_of_its_script(
    notebooks: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    kept, made = notebooks
    assert [(cell["cell_type"], cell["source"]) for cell in kept] == [
        (cell["cell_type"], cell["source"]) for cell in made
    ], "run scripts/notebook.py"
    assert {cell["cell_type"] for cell in kept} == {"code", "markdown"}


def test_a_notebook_shows_what_its_cells_print_and_show_now(
    notebooks: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """Words are equal, and numbers but for the last bits of another processor's arithmetic."""
    for old, new in zip(*notebooks, strict=True):
        for was, now in zip(old.get("outputs", []), new.get("outputs", []), strict=True):
            assert was["output_type"] == now["output_type"]
            assert was.get("data", {}).keys() == now.get("data", {}).keys()
            for text in ("text/plain", "text/html"):
                texts = [one.get("data", {}).get(text, one.get("text", [])) for one in (was, now)]
                (words, numbers), (words_now, numbers_now) = map(
                    words_and_numbers, map("".join, texts)
                )
                assert words == words_now
                np.testing.assert_allclose(numbers, numbers_now, rtol=0.02, atol=0.002)


def test_notebooks_show_verdicts_tables_and_a_figure(
    notebooks: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    outputs = [output for cell in notebooks[0] for output in cell.get("outputs", [])]
    printed = "".join("".join(output.get("text", [])) for output in outputs)
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/svg+xml" in kinds
    if "claimed" in printed:
        assert "proved" in printed and printed.count("as printed: ") >= 3
    else:
        assert "text/html" in kinds and printed.count("is inside the interval") == 4
