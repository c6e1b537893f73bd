"""Installed packages, read from the folders that an installer writes beside them.

:mod:`importlib.metadata` reads the same.  To import that module takes longer than all else that
``sottovoce --help`` does, so the files are read here.  For the same reason nothing here needs
:mod:`pathlib`.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import NamedTuple

_FOLDER = re.compile(r"(?P<package>[^-]+)(-.*)?\.(dist|egg)-info")
_VERSION = re.compile(r"Version:[ \t]*(\S+)[ \t]*")
# Names of the file of an installer's folder that holds the version.
_METADATA = ("METADATA", "PKG-INFO")


class Installed(NamedTuple):
    """An installed package.

    Parameters
    ----------
    package : str
        The distribution's name, as its files write it.
    folder : str
        The folder that the installer wrote about it.
    """

    package: str
    folder: str

    def read_text(self, name: str) -> str:
        """Return the text of a file in the folder; empty if there is none."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return ""


def installed_packages() -> list[Installed]:
    """List every installed package.

    Where a package is installed twice, the first on the path counts, as it does for imports.
    """
    found: dict[str, Installed] = {}
    for folder in dict.fromkeys(sys.path):
        try:
            now = os.stat(folder or os.curdir)
            known = _packages_in_folder(folder, (now.st_dev, now.st_ino, now.st_mtime_ns))
        # A zip file, or a folder that is not there.
        except OSError:
            continue
        for name, one in known:
            found.setdefault(name, one)
    return list(found.values())


@lru_cache(maxsize=64)
def _packages_in_folder(
    folder: str, state: tuple[int, int, int]
) -> tuple[tuple[str, Installed], ...]:
    """List the packages of one folder of the path, by their comparable names.

    The list is kept while the folder's `state` is the same: whatever is installed changes the time
    of its last change.
    """
    found = []
    for name in sorted(os.listdir(folder or os.curdir)):
        match = _FOLDER.fullmatch(name)
        if match is not None:
            one = Installed(match["package"], os.path.join(folder, name))
            found.append((_comparable_name(one.package), one))
    return tuple(found)


def installed_version(package: str) -> str:
    """Return the version of an installed package.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If it is not installed.
    """
    name = _comparable_name(package)
    for one in installed_packages():
        if _comparable_name(one.package) == name:
            version = _version_in_headers(one)
            if version is not None:
                return version
    # A package of another kind, such as a zip file, or none.
    from importlib.metadata import version as version_of_any_kind

    return version_of_any_kind(package)


def _version_in_headers(one: Installed) -> str | None:
    """Return the version that a package's metadata declare in their headers, None without one."""
    for name in _METADATA:
        # An empty line ends the headers; a description follows.
        headers, _, _ = one.read_text(name).partition("\n\n")
        for line in headers.splitlines():
            match = _VERSION.fullmatch(line)
            if match is not None:
                return match[1]
    return None


def _comparable_name(package: str) -> str:
    """Return a name that is equal for names which installers hold to be equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()
