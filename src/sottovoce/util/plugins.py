"""Plug-ins: methods, commands and audits of other installed packages, found by entry points.

A package declares them in its ``pyproject.toml``::

    [project.entry-points."sottovoce.methods"]
    my_method = "my_package.methods:MyMethod"      # a method class of that name
    [project.entry-points."sottovoce.commands"]
    my_command = "my_package.commands:my_command"  # a click command
    [project.entry-points."sottovoce.audits"]
    my_claim = "my_package.audits:MY_CLAIM"        # a sottovoce.audit.Adversary

Nothing of a package is imported before an object of it is asked for by its name.  What is installed
is read from the ``entry_points.txt`` that an installer writes beside every package.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InvalidInput
from .installed import installed_packages

if TYPE_CHECKING:
    import ast

METHODS = "sottovoce.methods"
COMMANDS = "sottovoce.commands"
AUDITS = "sottovoce.audits"

_ENTRY = re.compile(r"(?P<name>[^=]+?)\s*=\s*(?P<module>[\w.]+)\s*:\s*(?P<attribute>\w+)")


class EntryPoint(NamedTuple):
    """An object that a package provides.

    Parameters
    ----------
    name : str
        Its name, such as that of a method.
    module, attribute : str
        The module that holds it, and its name there.
    package : str
        The distribution that provides it, as its files write it.
    """

    name: str
    module: str
    attribute: str
    package: str


def installed_entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """List all entry points of a group, by name.

    Several stand under one name if several packages bring it.

    :func:`importlib.metadata.entry_points` finds the same, and takes longer to load
    (:mod:`.installed`).  The files are INI, by the specification of entry points.
    """
    found: dict[str, list[EntryPoint]] = {}
    for one in installed_packages():
        # Most packages have no such file.
        text = one.read_text("entry_points.txt")
        for entry in _parse_entry_points(text, group, one.package):
            found.setdefault(entry.name, []).append(entry)
    return dict(sorted(found.items()))


def find_entry_point(group: str, name: str) -> EntryPoint | None:
    """Find the entry point of this name; None if no package brings one.

    Raises
    ------
    InvalidInput
        If several packages bring it.
    """
    entries = installed_entry_points(group).get(name, [])
    if len(entries) > 1:
        packages = " and ".join(entry.package for entry in entries)
        rule = f"is provided by several packages: {packages}"
        raise InvalidInput(_field_of_group(group), name, rule, "uninstall all but one of them")
    if not entries:
        return None
    return entries[0]


def load_entry_point(group: str, name: str) -> Any:
    """Import the object of this name; None if no package brings one.

    Raises
    ------
    InvalidInput
        If several packages bring it, or its package cannot be imported.
    """
    entry = find_entry_point(group, name)
    if entry is None:
        return None
    try:
        return getattr(import_module(entry.module), entry.attribute)
    except (Exception, SystemExit) as error:
        # Its module may do anything while it is imported.
        said = f"{type(error).__name__}: {error}"
        rule = f"is provided by the package {entry.package}, which cannot be loaded ({said})"
        raise InvalidInput(
            _field_of_group(group), name, rule, f"repair or uninstall {entry.package}"
        ) from error


def first_docstring_line(entry: EntryPoint) -> str:
    """Read the first paragraph of an object's docstring without running any code of its package.

    Where there is no such file or docstring, the line names the package.
    """
    # Only lists of commands need it.
    import ast

    unknown = f"Of the package {entry.package}."
    path = _find_module_source(entry.module)
    if path is None:
        return unknown
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        tree = _parse_definition(text, entry.attribute)
    except (OSError, SyntaxError, ValueError):
        return unknown
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == entry.attribute:
            paragraph = (ast.get_docstring(node) or unknown).split("\n\n")[0]
            return " ".join(paragraph.split())
    return unknown


def _parse_entry_points(text: str, group: str, package: str) -> list[EntryPoint]:
    """Parse the entry points of one group from the text of an ``entry_points.txt`` file."""
    found = []
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            continue
        match = _ENTRY.match(line)
        if section == group and match is not None and not line.startswith("#"):
            found.append(EntryPoint(match["name"], match["module"], match["attribute"], package))
    return found


def _parse_definition(text: str, name: str) -> ast.Module:
    """Parse the part of a module that defines a function or class; all of it if in doubt.

    To parse whole modules would take most of the time of ``sottovoce --help``.
    """
    import ast

    # The line of its name, and all lines after it that are indented, empty, or end its parameters.
    pattern = rf"^(?:async +def|def|class) +{re.escape(name)}\b.*\n(?:(?:[ \t)].*)?\n)*"
    parts = re.findall(pattern, text, re.MULTILINE)
    if len(parts) == 1:
        # A text over several lines may begin at the margin, where the part would be cut.
        with suppress(SyntaxError):
            return ast.parse(parts[0])
    return ast.parse(text)


def _find_module_source(module: str) -> str | None:
    """Return the path of a module's file without importing it or the packages that contain it."""
    places, prefix = None, ""
    origin = None
    for part in module.split("."):
        spec = PathFinder.find_spec(f"{prefix}{part}", places)
        prefix += f"{part}."
        if spec is None:
            return None
        places, origin = spec.submodule_search_locations, spec.origin
    return origin


def _field_of_group(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")
