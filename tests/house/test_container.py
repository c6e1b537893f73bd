"""What the image is built from: files that `.dockerignore` names, versions with hashes, and
nothing else.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples/deploy"
RULES = [
    line
    for line in (ROOT / ".dockerignore").read_text().splitlines()
    if line and not line.startswith("#")
]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def enters(path: str) -> bool:
    """Whether a file gets to the build, by Docker's rules: the last pattern that fits it, or a
    folder above.
    """
    parts, kept = path.split("/"), True
    above = ["/".join(parts[: k + 1]) for k in range(len(parts))]
    for rule in RULES:
        pattern = rule.removeprefix("!")
        tails = [one.split("/")[-1] for one in above] if pattern.startswith("**/") else above
        fits = (one.count("/") == pattern.count("/") or pattern.startswith("**/") for one in above)
        if any(
            fit and fnmatchcase(one, pattern.removeprefix("**/"))
            for fit, one in zip(fits, tails, strict=True)
        ):
            kept = rule.startswith("!")
    return kept


@pytest.mark.parametrize(
    "path",
    [
        "hub/ca.key",
        "north/north.ledger",
        "north/north.signing",
        "rows.csv",
        "hub/hub.log",
        "north.joined",
        "examples/deploy/hub/ca.key",
        "examples/deploy/north/north.key",
        "examples/tutorial/rows.csv",
        "shared/x",
        ".git/config",
        ".venv/bin/python",
        "examples/deploy/rows.csv",
        "tests/house/test_container.py",
        "src/sottovoce/__pycache__/a.pyc",
    ],
)
def test_nothing_that_lies_in_a_clone_enters_the_image(path: str) -> None:
    assert not enters(path)


def test_all_that_the_build_needs_enters() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, flags=re.M)
        for source in line.split()[:-1]
    ]
    assert copied == [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src",
        "examples/deploy/requirements.txt",
    ]
    for source in copied:
        assert (ROOT / source).exists() and enters(source)
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert all(enters(path.relative_to(ROOT).as_posix()) for path in files)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"]} <= set(copied)


def test_versions_are_pinned_with_hashes_and_allowed_by_the_project() -> None:
    packaging = pytest.importorskip("packaging.requirements")
    entries = re.split(r"\n(?=[a-z])", (DEPLOY / "requirements.txt").read_text())[1:]
    pinned = {}
    for entry in entries:
        found = re.match(
            r"([a-z0-9._-]+)==([0-9][^ ;\\]*)[^\n]*\\\n\s+--hash=sha256:[0-9a-f]{64}", entry
        )
        assert found is not None, entry[:60]
        pinned[found[1]] = found[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["relay"], *extras["parquet"]]
    wanted += project["build-system"]["requires"]
    for line in wanted:
        need = packaging.Requirement(line)
        assert need.specifier.contains(pinned[need.name]), line


def test_the_image_runs_as_nobody_and_compose_builds_from_the_clone() -> None:
    image, compose = ((DEPLOY / name).read_text() for name in ("Dockerfile", "compose.yaml"))
    assert image.index("\nUSER 10001:10001\n") < image.index("\nENTRYPOINT")
    assert "context: ../.." in compose and "dockerfile: examples/deploy/Dockerfile" in compose
    assert (DEPLOY / "../.." / "pyproject.toml").resolve() == ROOT / "pyproject.toml"
    for word in (
        "read_only: true",
        "cap_drop: [ALL]",
        "no-new-privileges:true",
        'user: "10001:10001"',
    ):
        assert word in compose


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_units_restrict_their_services(unit: Path) -> None:
    text = unit.read_text()
    for word in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "MemoryDenyWriteExecute=yes",
        "SystemCallFilter=@system-service",
        "RestrictNamespaces=yes",
        "CapabilityBoundingSet=\n",
        "LimitCORE=0",
        "User=sottovoce",
    ):
        assert word in text
    if shutil.which("systemd-analyze") is None:
        return
    # 20 of 100: of what is exposed, by systemd's own measure
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
    )
    if "unrecognized option" not in told.stderr:
        assert told.returncode == 0, told.stdout[-200:]
