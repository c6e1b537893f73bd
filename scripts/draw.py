"""Draw the pictures and print the output of ``examples/doors`` and ``examples/gallery`` anew, into
``docs``.

``python scripts/draw.py [NAME...]`` runs all of them, or those of these names.
tests/house/test_pictures.py runs each and compares what it prints and draws with what is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOORS = ROOT / "docs" / "tutorial"
GALLERY = ROOT / "docs" / "gallery"


def scripts() -> list[Path]:
    """Every script of the doors and of the gallery."""
    found = sorted((ROOT / "examples" / "doors").glob("*.py")) + sorted(
        (ROOT / "examples" / "gallery").glob("*.py")
    )
    return [path for path in found if path.stem not in ("style", "rows")]


def run(script: Path, folder: Path) -> str:
    """Run a script in `folder`, where its pictures are then; what it prints."""
    # the same ids
    (folder / "matplotlibrc").write_text("svg.hashsalt: sottovoce\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {
            "GALLERY": str(folder),
            "MPLBACKEND": "svg",
            "OMP_NUM_THREADS": "1",
            "SOURCE_DATE_EPOCH": "0",
        },
    )
    if done.returncode:
        raise RuntimeError(f"{script} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def main(names: list[str]) -> None:
    for script in scripts():
        if names and script.stem not in names:
            continue
        started = time.perf_counter()
        into = DOORS if script.parent.name == "doors" else GALLERY
        with tempfile.TemporaryDirectory() as folder:
            said = run(script, Path(folder))
            if said:
                (into / f"{script.stem}.txt").write_text(said, encoding="utf-8")
            for made in (*Path(folder).glob("*.svg"), *Path(folder).glob("*.json")):
                shutil.copy(made, into / made.name)
        print(f"{script.stem:<18}{time.perf_counter() - started:6.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
