"""A copy of the source in which one file is edited: what a newcomer would add, and what follows from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"


def planted(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The JSON that `program` prints with a copy of the package in which `edits` (old to new) were made to one file."""
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "src" / "sottovoce" / file
    text = path.read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(folder / "src")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
