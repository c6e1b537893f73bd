"""A copy of the source in which one file is edited: what a newcomer would add, and what follows from it."""

from __future__ import annotations

import atexit
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"


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


def planted(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The JSON that `program` prints with a copy of the package in which `edits` (old to new) were made to one file."""
    path = copied(folder) / "sottovoce" / file
    text = path.read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    edited(path, text)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=first_on_path(folder / "src")
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
