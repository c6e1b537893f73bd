"""Examples run: those in the docstrings of what the package offers, and the scripts for frames."""

from __future__ import annotations

import doctest
import inspect
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from in_process import ran

import sottovoce

CLASSES = [name for name in sottovoce.__all__ if name != "__version__"]
FRAMES = Path(__file__).parents[2] / "examples" / "frames"
LIBRARIES = ("pandas", "polars", "pyarrow")


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_has_an_example_that_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(sottovoce, name)
    assert "Examples\n" in (inspect.getdoc(thing) or ""), name
    module = import_module(thing.__module__)
    (test,) = doctest.DocTestFinder(recurse=False).find(
        thing, name, module=module, globs=dict(vars(module))
    )
    assert len(test.examples) >= 2
    said: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the examples, with the patients that the first script makes up."""
    folder = tmp_path_factory.mktemp("examples") / "frames"
    shutil.copytree(FRAMES, folder)
    ran(folder / "patients.py", into=folder)
    return folder


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_becomes_a_private_model_in_under_ten_lines(library: str, frames: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    lines = [
        line for line in (frames / f"with_{library}.py").read_text().splitlines() if line.strip()
    ]
    assert len(lines) < 10
    said = ran(frames / f"with_{library}.py", into=frames)
    assert "ward=icu" in said and "epsilon = 1.000" in said
    assert "class died." in said and "not a release" not in said
