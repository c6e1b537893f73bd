"""Examples run: those in the docstrings of what the package offers, and the scripts for frames."""

from __future__ import annotations

import doctest
import inspect
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import sottovoce

CLASSES = [name for name in sottovoce.__all__ if name != "__version__"]
FRAMES = Path(__file__).parents[2] / "examples" / "frames"
LIBRARIES = ("pandas", "polars", "pyarrow")


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_has_an_example_that_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(sottovoce, name)
    assert "Examples\n" in (inspect.getdoc(thing) or ""), name
    module = import_module(thing.__module__)
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, name, module=module, globs=dict(vars(module)))
    assert len(test.examples) >= 2
    said: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_becomes_a_private_model_in_under_ten_lines(library: str, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    folder = tmp_path / "frames"
    shutil.copytree(FRAMES, folder)
    lines = [line for line in (folder / f"with_{library}.py").read_text().splitlines() if line.strip()]
    assert len(lines) < 10
    for script in ("patients.py", f"with_{library}.py"):
        done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=True)
    assert "ward=icu" in done.stdout and "epsilon = 1.000, delta = 1e-05, proved" in done.stdout
    assert "Coefficients are for the class died." in done.stdout and "not a release" not in done.stdout
