"""The checker of layers accepts this tree and names the file of every planted violation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from check_imports import BEYOND_REFERENCE, IN_REFERENCE  # noqa: E402

SOUND = {
    "__init__.py": "from .estimators import Classifier\n",
    "_version.py": "",
    "errors.py": "",
    "util/__init__.py": "",
    "util/typing.py": "",
    "problem/__init__.py": "",
    "problem/facts.py": "from ..errors import InvalidInput\nfrom ..util.typing import Array\n",
    "privacy/__init__.py": "",
    "privacy/events.py": "from ..errors import InvalidInput\n",
    "privacy/noise.py": "import numpy.random\n",
    "network/__init__.py": "",
    "network/net.py": "",
    "queries/__init__.py": "from .output import Output\n",
    "queries/output.py": "from ..privacy.noise import Noise\n",
    "algorithms/__init__.py": "from . import average\nfrom .average import Average\n",
    "algorithms/base.py": "",
    "algorithms/average.py": (
        "from __future__ import annotations\n"
        "import math\nfrom collections.abc import Callable\nfrom dataclasses import dataclass\n"
        "import numpy as np\nfrom numpy import exp\nfrom numpy.typing import ArrayLike\n"
        "from ..queries import Output\nfrom .base import Algorithm\n"
    ),
    "runs/__init__.py": "",
    "runs/row_guard.py": "from sottovoce.problem import facts\n",
    "estimators/__init__.py": "from .._version import __version__\nfrom ..algorithms.average "
    "import Average\n",
    "cli/__init__.py": "from .run import main\n",
    "cli/run.py": "from ..estimators import Classifier\n",
}

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Plants the sound tree with the given files on top."""

    def plant(files: dict[str, str]) -> Path:
        for name, text in (SOUND | files).items():
            path = tmp_path / "src" / "sottovoce" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return plant


def run(*arguments: object) -> tuple[int, list[str]]:
    """Exit status and printed lines of the checker."""
    command = [sys.executable, str(ROOT / "scripts" / "check_imports.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


NO_FAULT = re.compile(
    r"(\d+) rooms on (\d+) floors, (\d+) arrows between them, none upward, no circle"
)
"""What the checker prints of a tree without a fault: packages, layers and imports."""


def test_this_tree_keeps_its_layers() -> None:
    """The bounds are those of a house that one can take in."""
    status, (printed,) = run()
    assert status == 0
    built = NO_FAULT.fullmatch(printed)
    assert built is not None and int(built[1]) <= 28 and int(built[3]) <= 200


def test_a_sound_tree_passes(tree: Tree) -> None:
    status, (printed,) = run(tree({}))
    built = NO_FAULT.fullmatch(printed)
    assert status == 0 and built is not None and built.groups() == ("10", "12", "8")


@pytest.mark.parametrize(
    ("file", "text", "line", "rule"),
    [
        (
            "problem/facts.py",
            "\nfrom ..runs.row_guard import RowGuard\n",
            2,
            "layer 2 imports runs.row_guard, which is in layer 7",
        ),
        (
            "problem/facts.py",
            "from sottovoce.runs.row_guard import RowGuard\n",
            1,
            "layer 2 imports runs.row_guard",
        ),
        (
            "problem/facts.py",
            "def f():\n    import sottovoce.runs.row_guard\n",
            2,
            "layer 2 imports runs.row_guard",
        ),
        (
            "problem/losses.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..network.net import "
            "Net\n",
            3,
            "layer 2 imports network.net",
        ),
        # to import events runs the folder's __init__, and through it a higher layer
        (
            "privacy/__init__.py",
            "from ..queries.output import Output\n",
            1,
            "layer 3 imports queries.output",
        ),
        (
            "queries/output.py",
            "from ..algorithms import base\n",
            1,
            "layer 5 imports algorithms.base",
        ),
        ("network/net.py", "from .. import __version__\n", 1, "the top imports everything"),
        ("_version.py", "from .errors import InvalidInput\n", 1, "must import nothing"),
        ("helpers.py", "", 1, "add it to LAYERS"),
        ("helpers/__init__.py", "", 1, "add it to LAYERS"),
        ("network/net.py", "def f(:\n", 1, "does not parse"),
        ("algorithms/base.py", "import numpy.random\n", 1, "may not import numpy.random"),
        ("algorithms/base.py", "from numpy import random\n", 1, "may not import numpy.random"),
        (
            "algorithms/base.py",
            "from numpy.random import default_rng\n",
            1,
            "may not import numpy.random",
        ),
        ("algorithms/base.py", "import numpy as np\nx = np.random.rand()\n", 2, "may not draw"),
        ("algorithms/base.py", "import random\n", 1, "may not import random"),
        ("algorithms/base.py", "import importlib\n", 1, "may not import importlib"),
        ("algorithms/base.py", "__import__('os')\n", 1, "may not call __import__"),
        (
            "algorithms/base.py",
            "from ..runs.row_guard import RowGuard\n",
            1,
            "may not import sottovoce.runs.row_guard",
        ),
        (
            "algorithms/base.py",
            "from ..runs import row_guard\n",
            1,
            "may not import sottovoce.runs.row_guard",
        ),
        (
            "algorithms/base.py",
            "from ..privacy.noise import Noise\n",
            1,
            "may not import sottovoce.privacy",
        ),
        (
            "algorithms/base.py",
            "from ..privacy import noise\n",
            1,
            "may not import sottovoce.privacy",
        ),
        ("errors.py", "from .absent import name\n", 1, "no such module"),
    ],
)
def test_a_planted_violation_is_named(
    tree: Tree, file: str, text: str, line: int, rule: str
) -> None:
    status, printed = run(tree({file: text}))
    assert status == 1
    assert any(at.startswith(f"src/sottovoce/{file}:{line}: ") and rule in at for at in printed), (
        printed
    )


@pytest.fixture
def papers(tree: Tree) -> Tree:
    """Plants the sound tree and the given files of the papers' package beside it."""

    def plant(files: dict[str, str]) -> Path:
        root = tree({"algorithms/base.py": ""})
        for name, text in ({"__init__.py": ""} | files).items():
            path = root / "src" / "sottovoce_papers" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    return plant


def test_the_papers_may_import_public_modules_and_names(papers: Tree) -> None:
    sound = (
        "import sottovoce\nfrom sottovoce import RunConfig, __version__\nfrom sottovoce.problem "
        "import facts\n"
        "from sottovoce.queries import Output\nfrom . import other\nprint(facts.n, other._kept)\n"
    )
    assert run(papers({"claims.py": sound, "other.py": ""}))[0] == 0


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        (
            "from sottovoce.runs import curator\nfrom sottovoce.cli.run import main\n",
            2,
            "cli.run is no public module",
        ),
        ("from sottovoce import estimators\n", 1, "estimators.__init__ is no public module"),
        ("def f():\n    import sottovoce.privacy\n", 2, "privacy.__init__ is no public module"),
        ("from sottovoce.queries import _share\n", 1, "is private to sottovoce"),
        (
            "from sottovoce.problem import facts\nprint(facts._cache)\n",
            2,
            "facts._cache, which is private",
        ),
        (
            "from sottovoce.queries import Output as Out\nprint(Out._of)\n",
            2,
            "Out._of, which is private",
        ),
        ("from .other import name\n", 1, "circular import: claims -> other -> claims"),
        ("def f(:\n", 1, "does not parse"),
    ],
)
def test_what_the_papers_may_not_import_is_named(
    papers: Tree, text: str, line: int, rule: str
) -> None:
    status, printed = run(papers({"claims.py": text, "other.py": "from . import claims\n"}))
    assert status == 1
    assert any(
        at.startswith(f"src/sottovoce_papers/claims.py:{line}: ") and rule in at for at in printed
    ), printed


@pytest.mark.parametrize(
    "text",
    [
        "from sottovoce_papers import claims\n",
        "def f():\n    import sottovoce_papers.claims\n",
        "from importlib import import_module\nimport_module('sottovoce_papers.claims')\n",
    ],
)
def test_the_library_may_not_import_the_papers_nor_name_them(tree: Tree, text: str) -> None:
    status, printed = run(tree({"cli/run.py": text}))
    assert status == 1
    assert any("src/sottovoce/cli/run.py:" in at and "entry points" in at for at in printed), (
        printed
    )


def test_the_reference_shows_the_public_modules() -> None:
    pages = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")
    )
    shown = set(re.findall(r"automodule:: sottovoce\.(\S+)", pages))
    assert set(IN_REFERENCE) <= shown and not shown & set(BEYOND_REFERENCE)


def test_a_circle_in_one_layer_is_named(tree: Tree) -> None:
    status, printed = run(
        tree(
            {
                "network/graphs.py": "from .net import Net\n",
                "network/net.py": "from . import graphs\n",
            }
        )
    )
    circle = "network.graphs -> network.net -> network.graphs"
    assert (status, printed) == (
        1,
        [f"src/sottovoce/network/graphs.py:1: circular import: {circle}"],
    )


def test_a_circle_through_a_folder_is_named(tree: Tree) -> None:
    # output needs a name that its own folder's __init__ takes from it
    status, printed = run(tree({"queries/output.py": "from . import Output\n"}))
    circle = "queries.__init__ -> queries.output -> queries.__init__"
    assert (status, printed) == (
        1,
        [f"src/sottovoce/queries/__init__.py:1: circular import: {circle}"],
    )


def test_a_root_without_the_package_is_refused(tmp_path: Path) -> None:
    status, printed = run(tmp_path)
    assert status == 1
    assert "not found" in printed[0]
