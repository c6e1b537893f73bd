"""Provenance of a study: versions, commit, day and machine, without host names and paths.

None of it is part of a result: tables and verdicts do not depend on it, and their checksums leave
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
"""Libraries whose versions are recorded: those that compute, and the one that draws."""
_PACKAGE = Path(__file__).parents[1]


@lru_cache
def here() -> dict[str, Any]:
    """Describe the versions and the machine of this process.

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
    """Write what :func:`here` returns as one line of text."""
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
    """Return the processor's model, such as "AMD EPYC 7763", or the machine type ("x86_64")."""
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        for line in listed.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "an unknown processor"


def linear_algebra() -> list[str]:
    """List the loaded libraries of linear algebra, with the kernels chosen for this processor.

    They are recorded because kernels differ in the last digit of a sum.
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
    """Return the commit of the clone that holds a package, with "+" if its files were changed.

    None outside a clone, also for a package in an environment inside some other repository.
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
    """Return what git prints; None if it fails or takes more than 30 seconds."""
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
