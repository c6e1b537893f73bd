"""Commands load what they use: which libraries a process has when its command is done.

Seconds: bench/speed/startup.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import json, sys
from sottovoce.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code or 0
else:
    code = 0
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
OPTIONAL = {
    "cryptography",
    "dask",
    "grpc",
    "jinja2",
    "matplotlib",
    "nvflare",
    "pandas",
    "pyarrow",
    "torch",
}
NUMERIC = {"array_api_compat", "joblib", "networkx", "scipy", "sklearn"}
SCREEN_AND_FILES = {"numpy", "rich", "sqlite3", "threadpoolctl"}
SMALL = ("--data", "synthetic:n=300,d=4,seed=1", "--nodes", "3", "--rounds", "2", "--epsilon", "5")


def modules(folder: Path, *arguments: str, code: int = 0) -> set[str]:
    """Names of all modules that the command has loaded when it is done."""
    command = [sys.executable, "-c", CHILD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    found, names = json.loads(done.stderr.splitlines()[-1])
    assert found == code, done.stderr
    return set(names)


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("--version",)])
def test_help_and_version_load_no_command_and_no_library(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    names = modules(tmp_path, *arguments)
    assert not names & (OPTIONAL | NUMERIC | SCREEN_AND_FILES)
    ours = {name for name in names if name.startswith("sottovoce")}
    lists_commands = {f"sottovoce.util{name}" for name in ("", ".plugins", ".installed")}
    assert ours - lists_commands == {"sottovoce", "sottovoce.cli", "sottovoce.errors"}
    assert not names & {"email", "importlib.metadata", "zipfile"} or "--version" in arguments


def test_an_unknown_command_loads_no_command_and_no_library(tmp_path: Path) -> None:
    assert not modules(tmp_path, "trian", code=2) & (OPTIONAL | NUMERIC | SCREEN_AND_FILES)


def test_the_main_job_loads_neither_scikit_learn_nor_scipy_nor_networkx(tmp_path: Path) -> None:
    names = modules(tmp_path, "train", "--method", "mr_admm", "--pure", "--rounds", "2")
    assert not names & (OPTIONAL | NUMERIC)
    assert {"numpy", "sottovoce.runs.training"} <= names  # so that the test sees what is there
    # A named method needs no search, and versions are read from the packages' files.
    assert "sottovoce.runs.auto_search" not in names
    assert not names & {"email", "importlib.metadata"}


NAMED = ("plan", "--method", "mr_admm", "--pure")


@pytest.mark.parametrize(
    "arguments", [NAMED, ("methods",), ("data",), ("graphs",), (*NAMED, "--graph", "grid")]
)
def test_a_plan_and_the_lists_load_neither_scikit_learn_nor_scipy_nor_networkx(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    names = modules(tmp_path, *arguments)
    assert not names & (OPTIONAL | NUMERIC)
    # What checks tables is for `data --schema`, and for commands of schemas.
    assert (
        not names & {"sottovoce.data.check", "sottovoce.data.column_counts"} or "data" in arguments
    )


def test_a_delta_needs_special_functions_and_no_more(tmp_path: Path) -> None:
    names = modules(tmp_path, "train")
    assert "scipy.special" in names
    assert not names & (OPTIONAL | NUMERIC - {"scipy"})
    assert not names & {"scipy.stats", "scipy.optimize", "scipy.signal", "scipy.spatial"}


@pytest.mark.parametrize(
    "arguments", [("train", "--inference"), ("train", "--method", "momentum", "--delta", "1e-5")]
)
def test_gaussian_noise_needs_no_library(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    names = modules(tmp_path, *arguments)
    assert not names & (OPTIONAL | NUMERIC | {"numpy.ma"})


def test_a_random_graph_needs_networkx(tmp_path: Path) -> None:
    names = modules(tmp_path, "train", "--method", "mr_admm", *SMALL, "--graph", "erdos-renyi")
    assert "networkx" in names and "sklearn" not in names
