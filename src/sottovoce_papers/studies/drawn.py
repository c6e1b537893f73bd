"""A cache of a study's figures: panels are drawn again only if the table, the study's file or the
drawing code has changed.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from sottovoce.util import files

from . import figures
from .figures import Panel
from .run import StudyRun, write
from .spec import Figure

Drawn = list[tuple[Figure, list[Panel]]]


def panels(done: StudyRun, mark: str = "") -> Drawn:
    """Draw every figure, or read its panels if nothing changed; they are stored in
    ``FOLDER/figures`` as SVG and PNG.

    `mark` stands behind the title of every panel, such as "quick run".
    """
    folder, stamp = done.folder / "figures", _stamp(done, mark)
    kept = _kept(folder, stamp, done)
    if kept is not None:
        return kept
    study = done.study
    drawn = [
        (figure, figures.draw(figure, done.rows, study.paper_points, mark))
        for figure in study.figures
    ]
    for _, those in drawn:
        for panel in those:
            write(folder / f"{panel.name}.svg", panel.svg)
            write(folder / f"{panel.name}.png", panel.png)
    listed = {
        figure.name: [[panel.name, panel.title] for panel in those] for figure, those in drawn
    }
    write(folder / _INDEX, json.dumps({"stamp": stamp, "panels": listed}, indent=1) + "\n")
    return drawn


_INDEX = "panels.json"


def _kept(folder: Path, stamp: str, done: StudyRun) -> Drawn | None:
    """Read the panels that were drawn before; None unless their stamp is the same."""
    path = folder / _INDEX

    def panel(name: str, title: str) -> Panel:
        svg, png = (folder / f"{name}.{kind}" for kind in ("svg", "png"))
        return Panel(name, title, svg.read_bytes(), png.read_bytes())

    try:
        if not path.is_file():
            return None
        index = json.loads(files.read_bounded_text("out", path))
        if index.get("stamp") != stamp:
            return None
        return [
            (figure, [panel(*each) for each in index["panels"][figure.name]])
            for figure in done.study.figures
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # damaged: the panels are drawn anew
        return None


def _stamp(done: StudyRun, mark: str) -> str:
    """Compute a digest of everything that a panel shows, and of the code that draws it."""
    study, here = done.study, resources.files(__package__)
    said = [
        version("sottovoce"),
        version("matplotlib"),
        mark,
        repr(study.figures),
        repr(study.paper_points),
    ]
    hashed = hashlib.blake2b(json.dumps(said).encode(), digest_size=16)
    for name in ("figures.py", "spec.py"):
        hashed.update((here / name).read_bytes())
    hashed.update((done.folder / "table.csv").read_bytes())
    return hashed.hexdigest()
