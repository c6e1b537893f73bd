"""Kinds of cells: the functions that run one cell of a study.

A kind is named ``FILE.FUNCTION``, after a file of this folder and a function in it.
``FUNCTION(p)`` takes the plain parameters of one cell (fixed ones, a point of the grid, `seed`,
`replicates`) and returns tidy rows of plain scalars; a curve has one row for each round and
replicate.  It refuses unknown parameters; for missing ones :mod:`sottovoce_papers.studies.run`
raises the error.  ``_privacy`` (a privacy statement in words) and ``_note`` do not become columns
of the table but notes of the page.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from importlib import import_module, resources
from importlib.util import find_spec
from inspect import isfunction

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any

Row = dict[str, Any]
LETTER = ", as printed"
"""Ends the name of a method that runs a paper's listing to the letter; the same name without it is
the form that has a proof.
"""
NOISELESS = ("training.run", "graded.run", "graded.cost")
"""Kinds that accept ``also = "noiseless_error"``: they also report settings in which even a run
without noise learns nothing.
"""
Cell = Callable[[Mapping[str, Any]], list[Row]]


def find(kind: str) -> Cell:
    """Return the function that a study's `kind` names, or raise an
    :class:`~sottovoce.errors.InvalidInput`.
    """
    file, _, function = kind.partition(".")
    if file.isidentifier() and function.isidentifier() and not function.startswith("_"):
        place = f"{__name__}.{file}"
        if find_spec(place) is not None:
            found: Any = getattr(import_module(place), function, None)
            if isfunction(found):
                if found.__annotations__.get("return") in ("list[Row]", list[Row]):
                    return found
                raise InvalidInput(
                    "kind",
                    kind,
                    "must be annotated to return list[Row]",
                    "annotate the function",
                )
    raise InvalidInput(
        "kind",
        kind,
        "must be FILE.FUNCTION of sottovoce_papers/studies/kinds",
        "for example training.run",
    )


def check(p: Mapping[str, Any], known: set[str]) -> None:
    """Refuse a parameter that a kind of cell does not know, as
    :class:`~sottovoce.errors.InvalidInput`.

    Every kind knows `reading`, the name of a reading of the paper.
    """
    if unknown := set(p) - known - {"reading"}:
        name = min(unknown)
        raise InvalidInput(
            name, p[name], "is not a parameter of this kind of cell", "remove or correct it"
        )


def files(kind: str) -> set[str]:
    """Return the names of the files of this folder that a kind runs: its own, and those that it
    imports.
    """
    folder, todo, found = resources.files(__name__), [kind.partition(".")[0]], set[str]()
    while todo:
        name = f"{todo.pop()}.py"
        if name not in found and (folder / name).is_file():
            found.add(name)
            for node in ast.walk(ast.parse((folder / name).read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ImportFrom) or node.level != 1:
                    continue
                # `from .draws import ...`, or `from . import kept`
                if node.module:
                    todo.append(node.module)
                else:
                    todo += [alias.name for alias in node.names]
    return found
