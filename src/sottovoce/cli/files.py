"""Checks on files that a command will write, made before anything is spent."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InvalidInput


def check_folder(field: str, path: Path) -> None:
    """Refuse a path whose folder is missing or read-only.

    Raises
    ------
    InvalidInput
        Naming `field`.
    """
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InvalidInput(field, str(path), "its folder must exist and be writable", "make it first")
