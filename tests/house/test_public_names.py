"""What ``import sottovoce`` offers: every name, each from one place, and none before it is asked
for.
"""

from __future__ import annotations

import ast
import copy
import pickle
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import sottovoce

ROOT = Path(__file__).parents[2]
NAMES = [name for name in sottovoce.__all__ if name != "__version__"]


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_every_name_is_there_and_is_listed() -> None:
    assert set(sottovoce.__all__) <= set(dir(sottovoce))
    assert sottovoce.__version__ == version("sottovoce")
    for name in NAMES:
        assert getattr(sottovoce, name) is getattr(
            import_module(f"sottovoce.{sottovoce._HOMES[name]}"), name
        )
    assert sorted(sottovoce._HOMES) == sorted(NAMES)


def test_a_star_import_has_every_public_name() -> None:
    space: dict[str, object] = {}
    exec("from sottovoce import *", space)
    assert set(sottovoce.__all__) <= set(space)


def test_type_checkers_see_the_same_names_in_the_same_places() -> None:
    tree = ast.parse(Path(sottovoce.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    seen = {
        alias.name: line.module
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert seen == sottovoce._HOMES


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute 'Trainer'"):
        sottovoce.Trainer  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from sottovoce import Trainer")
    assert not hasattr(sottovoce, "__wrapped__")


def test_objects_are_pickled_by_the_place_where_their_class_is() -> None:
    config = sottovoce.RunConfig(method="dvp", rounds=3)
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)
    assert pickle.loads(pickle.dumps(sottovoce.PrivateClassifier)) is sottovoce.PrivateClassifier


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    heavy = (
        "[name for name in ('numpy', 'scipy', 'sklearn', 'networkx', 'click') if name in "
        "sys.modules]"
    )
    listed = f"import sys, sottovoce; print({heavy}, 'train' in dir(sottovoce))"
    configured = "import sys, sottovoce; sottovoce.RunConfig; print('sklearn' in sys.modules)"
    estimated = (
        "import sys; from sottovoce import PrivateClassifier; print('sklearn' in sys.modules)"
    )
    assert python(listed) == "[] True\n"
    assert (python(configured), python(estimated)) == ("False\n", "True\n")


def test_the_reference_has_every_name() -> None:
    pages = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")
    )
    modules = set(re.findall(r"automodule:: sottovoce\.(\S+)\n   :members:", pages))
    shown = set(re.findall(r"autoclass:: sottovoce\.(\w+)$", pages, flags=re.M))
    assert [
        name for name in NAMES if name not in shown and sottovoce._HOMES[name] not in modules
    ] == []
