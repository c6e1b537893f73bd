"""With what a study was made: versions, commit, day and machine, without names of hosts and without
paths.

None of it is part of a result: tables and verdicts do not change with it, and their checksums leave
it out.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from sottovoce.util.typing import Any

LIBRARIES = ("numpy", "scipy", "scikit-learn", "networkx", "matplotlib")
"""Whose versions are told: those that compute, and the one that draws."""
_PACKAGE = Path(__file__).parents[1]


@lru_cache
def here() -> dict[str, Any]:
    """What a process of now is made with.

    Returns
    -------
    dict
        ``sottovoce``, ``commit`` (None outside a clone; it ends in "+" if files of the package were
        changed after it), ``date`` (of the day, UTC), ``processor``, ``cores``, ``system``,
        ``python``, ``libraries`` (name to version) and ``linear_algebra`` (each library of it once,
        with the kernels that it chose for this processor).
    """
    return {
        "sottovoce": version("sottovoce"),
        "commit": commit(_PACKAGE),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "linear_algebra": linear_algebra(),
    }


def sentence(made: Mapping[str, Any]) -> str:
    """What :func:`here` tells, in a line."""
    at = ""
    if made.get("commit"):
        at = f" (commit {made['commit'][:12]})"
        # the first twelve characters leave out the sign of changed files
        if made["commit"].endswith("+"):
            at = f" (commit {made['commit'][:12]}+)"
    libraries = ", ".join(f"{name} {number}" for name, number in made["libraries"].items())
    cores = f"{made['cores']} cores"
    if made["cores"] == 1:
        cores = "1 core"
    return (
        f"sottovoce {made['sottovoce']}{at}, on {made['date']}, "
        f"on {made['processor']} with {cores} ({made['system']}), "
        f"Python {made['python']}, {libraries}, {', '.join(made['linear_algebra'])}"
    )


def processor() -> str:
    """The kind of the processor, such as "AMD EPYC 7763"; of the machine ("x86_64") where the
    system does not tell.
    """
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        for line in listed.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "an unknown processor"


def linear_algebra() -> list[str]:
    """Libraries of linear algebra that are loaded, each once; kernels differ in the last digit
    of a sum.
    """
    import scipy.linalg  # noqa: F401  # loaded, and NumPy with it, so that their libraries are told
    from threadpoolctl import threadpool_info

    found = [one for one in threadpool_info() if one["user_api"] == "blas"]
    told = [
        f"{one['internal_api']} {one['version']} ({one.get('architecture', 'its own choice')})"
        for one in found
    ]
    return sorted(set(told))


def commit(package: Path) -> str | None:
    """The commit of the clone that a package lies in, with "+" if its files were changed since;
    None outside a clone.

    A package that is installed below some other repository, in an environment inside a project, is
    in no clone.
    """
    git = shutil.which("git")
    if git is None:
        return None
    top = _git(git, package, "rev-parse", "--show-toplevel")
    if top is None or package.resolve() != Path(top).resolve() / "src" / package.name:
        return None
    found = _git(git, package, "rev-parse", "HEAD")
    changed = _git(git, package, "status", "--porcelain", "--", ".")
    if found is not None and changed:
        return f"{found}+"
    return found


def _git(git: str, folder: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails or takes long."""
    try:
        done = subprocess.run(
            [git, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
