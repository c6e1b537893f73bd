"""A copy of the source in which one file is edited: what a newcomer would add, and what follows
from it.

A program that uses the copy runs in this process, where NumPy, SciPy and the rest need not be
imported anew: all modules of ours are put aside for it, and are there again afterwards.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import tokenize
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import warm

LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)
CLOSING = (")", "]", "}")
SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}


@cache
def _compiled() -> Path:
    """The source with its bytecode, made once: else every copy would compile hundreds of modules
    that are the same.
    """
    folder = Path(tempfile.mkdtemp(prefix="compiled-source-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder / "src")
    assert compileall.compile_dir(folder / "src", quiet=2)
    return folder / "src"


def copied(folder: Path) -> Path:
    """A copy of the source and its bytecode, of names alone where the file system can: only
    :func:`edited` writes into a file of it, and makes a new one.
    """
    try:
        shutil.copytree(_compiled(), folder / "src", copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(folder / "src", ignore_errors=True)
        shutil.copytree(_compiled(), folder / "src")
    return folder / "src"


def edited(path: Path, text: str) -> None:
    """Write another text into a file of a copy, of which no bytecode is left."""
    for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        bytecode.unlink()
    path.unlink()
    path.write_text(text, encoding="utf-8")


def first_on_path(source: Path) -> dict[str, str]:
    """The environment of a process that imports the packages of `source`, before all else that this
    one would find.

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
    with (
        mock.patch.object(sys, "path", [str(source), *sys.path]),
        mock.patch.dict(os.environ, first_on_path(source)),
    ):
        try:
            yield
        finally:
            for name in ours():
                del sys.modules[name]
            sys.modules.update(before)


def _tokens(code: str) -> list[tokenize.TokenInfo]:
    """The tokens of a text, or of a part of one whose brackets need not match; without layout
    and comments.
    """
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type not in LAYOUT and token.string:
                found.append(token)
    except (
        tokenize.TokenError,
        IndentationError,
    ):  # the part ends within brackets, or in deeper lines
        pass
    return found


def _without_last_commas(tokens: list[tokenize.TokenInfo]) -> list[tokenize.TokenInfo]:
    """Without the comma that a formatter puts before a closing bracket at the end of a line."""
    following = [token.string for token in tokens[1:]] + [""]
    return [
        token
        for token, after in zip(tokens, following, strict=True)
        if (token.string, after[:1] in CLOSING) != (",", True)
    ]


def _replaced(text: str, old: str, new: str) -> str:
    """The text with `new` in place of `old`, which occurs once, however its lines are broken."""
    if text.count(old) == 1:
        return text.replace(old, new)
    tokens, wanted = (
        _without_last_commas(_tokens(text)),
        [token.string for token in _without_last_commas(_tokens(old))],
    )
    strings = [token.string for token in tokens]
    places = [k for k in range(len(strings)) if strings[k : k + len(wanted)] == wanted]
    assert len(places) == 1, f"{len(places)} places of {old!r}"
    first, last = tokens[places[0]], tokens[places[0] + len(wanted) - 1]
    lines = text.splitlines(keepends=True)
    before = "".join(lines[: first.start[0] - 1]) + lines[first.start[0] - 1][: first.start[1]]
    after = lines[last.end[0] - 1][last.end[1] :] + "".join(lines[last.end[0] :])
    return before + new + after


def _planted(folder: Path, file: str, edits: dict[str, str]) -> Path:
    """A copy of the source in which `edits` (old to new) were made to one file of the package."""
    source = copied(folder)
    path = source / "sottovoce" / file
    text = path.read_text()
    for old, new in edits.items():
        text = _replaced(text, old, new)
    edited(path, text)
    return source


def planted(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The JSON that `program` prints here, with a copy of the package in which one file was
    edited.
    """
    source, said = _planted(folder, file, edits), io.StringIO()
    with _imported_from(source), contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        assert Path(sys.modules["sottovoce"].__file__ or "").is_relative_to(source)
    return json.loads(said.getvalue())


def planted_apart(folder: Path, file: str, edits: dict[str, str], program: str) -> Any:
    """The same of a program that needs a process of its own: one that runs tests, or that shows
    a whole start.
    """
    ran = warm.run(["-c", program], env=first_on_path(_planted(folder, file, edits)))
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
