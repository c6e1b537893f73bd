"""A copy of the source in which one file is edited: what a newcomer would add, and what follows from it.

A program that uses the copy runs in this process, where NumPy, SciPy and the rest need not be imported anew: all
modules of ours are put aside for it, and are there again afterwards.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}


@cache
def _compiled() -> Path:
    """The source with its bytecode, made once: else every copy would compile hundreds of modules that are the same."""
    folder = Path(tempfile.mkdtemp(prefix="compiled-source-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder / "src")
    assert compileall.compile_dir(folder / "src", quiet=2)
    return folder / "src"


def copied(folder: Path) -> Path:
    """A copy of the source and its bytecode."""
    shutil.copytree(_compiled(), folder / "src")
    return folder / "src"


def edited(path: Path, text: str) -> None:
    """Write another text into a file of a copy, of which no bytecode is left."""
    for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        bytecode.unlink()
    path.write_text(text, encoding="utf-8")


def first_on_path(source: Path) -> dict[str, str]:
    """The environment of a process that imports the packages of `source`, before all else that this one would find.

    What is installed declares the commands of the papers' package, so the rest of the path is kept.
    """
    path = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


@contextlib.contextmanager
def _imported_from(source: Path) -> Iterator[None]:
    """Our packages are imported anew, from `source`; afterwards they are again what they were."""

    def ours() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in PACKAGES]

    before = {name: sys.modules.pop(name) for name in ours()}
    with mock.patch.object(sys, "path", [str(source), *sys.path]), mock.patch.dict(os.environ, first_on_path(source)):
        try:
            yield
        finally:
            for name in ours():
                del sys.modules[name]
            sys.modules.update(before)


def _planted(folder: Path, file: str, edits: dict[str, str]) -> Path:
    """A copy of the source in which `edits` (old to new) were made to one file of the package."""
    source = copied(folder)
    path = source / "sottovoce" / file
    text = path.read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    edited(path, text)
    return source


def planted(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The JSON that `program` prints here, with a copy of the package in which one file was edited."""
    source, said = _planted(folder, file, edits), io.StringIO()
    with _imported_from(source), contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        assert Path(sys.modules["sottovoce"].__file__ or "").is_relative_to(source)
    return json.loads(said.getvalue())


def planted_apart(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The same of a program that needs a process of its own: one that runs tests, or that shows a whole start."""
    environment = first_on_path(_planted(folder, file, edits))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
