"""Trust is chosen at the top: below, no code asks whom people trust
(docs/explanation/architecture.md).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sottovoce
from sottovoce.algorithms.method import TRUSTS

SOURCE = Path(sottovoce.__file__).parent
TOP = {
    "problem/trust.py": "the table of trusts itself",
    "runs/config.py": "the configuration is read",
    "runs/auto_candidates.py": "the methods that may be chosen under a trust",
    "runs/forecast.py": "what another trust would buy",
}
"""Where a trust's name may be compared, and why."""
SUMMED = {
    "runs/oracles.py": "the choice",
    "queries/sums.py": "the price: which query's noise is drawn",
    "queries/correlated.py": "the price: whether noise may be carried from round to round",
    "algorithms/prox.py": "the price: noise of the network's mean gradient",
    "answers/description.py": "the price: whether every site's answer is stored by itself",
    "answers/separate_sites.py": "the price: whether every site's answer is stored by itself",
    "network/dropout.py": "the rehearsal of lost sites, under either protocol",
}
"""Where facts may be asked whether answers are sums, and why; the protocol between sites
(deploy/) aside.
"""
CLASSES = {"Trust", "Sum", "SummedGaussianMechanism", "Oracle", "OwnAnswers", "SumAnswers"}
CONSTANTS = {"NOBODY", "SUM", "CURATOR"}
PROTOCOL = ("deploy/", "cli/")


def names(node: ast.AST) -> set[str]:
    """All names in an expression, also the last parts of dotted ones."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def texts(node: ast.AST) -> set[str]:
    return {
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def about_trust(sides: list[ast.expr]) -> bool:
    """Whether a comparison is of a trust with one that is named in the code."""
    named = any(texts(side) & TRUSTS.keys() for side in sides)
    asked = any("trust" in name or name == "kind" for side in sides for name in names(side))
    return (named and asked) or any(names(side) & CONSTANTS for side in sides)


def kind_of_question(node: ast.AST) -> str | None:
    """What a piece of code asks of trust: the class of an object, a trust's name, or whether
    answers are sums.
    """
    if isinstance(node, ast.Call) and names(node.func) & {"isinstance", "issubclass"}:
        return "class" if names(node.args[1]) & CLASSES else None
    if isinstance(node, ast.Compare):
        return "name" if about_trust([node.left, *node.comparators]) else None
    if isinstance(node, ast.Match):
        return "name" if names(node.subject) & {"trust", "trusts"} else None
    if isinstance(node, ast.Attribute) and node.attr == "opens_only_sums":
        return "summed" if names(node.value) & {"facts", "self"} else None
    return None


def found_in(source: Path) -> set[tuple[str, str]]:
    """(file, kind of question) of all that ask."""
    return {
        (path.relative_to(source).as_posix(), kind)
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (kind := kind_of_question(node)) is not None
    }


def test_nothing_below_the_top_asks_whom_people_trust() -> None:
    asked = found_in(SOURCE)
    assert {path for path, kind in asked if kind == "class"} == set()
    assert {path for path, kind in asked if kind == "name"} == TOP.keys()
    assert {
        path for path, kind in asked if kind == "summed" and not path.startswith(PROTOCOL)
    } == SUMMED.keys()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("if isinstance(query, Sum): pass", "class"),
        (
            "isinstance(row.event, (events.GaussianMechanism, events.SummedGaussianMechanism))",
            "class",
        ),
        ("isinstance(place.oracle, SumAnswers)", "class"),
        ("x = 1 if config.trusts == 'nobody' else 2", "name"),
        ("cls.trust.kind in ('sum', 'curator')", "name"),
        ("algorithm.trust != CURATOR", "name"),
        ("match config.trust:\n    case 'sum':\n        pass", "name"),
        ("f = step if node.facts.opens_only_sums else 0.0", "summed"),
    ],
)
def test_a_planted_question_is_found(tmp_path: Path, line: str, kind: str) -> None:
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "base.py").write_text(line + "\n")
    assert found_in(tmp_path) == {("algorithms/base.py", kind)}


@pytest.mark.parametrize(
    "line",
    ["isinstance(value, str)", "table.kind == 'line'", "found.opens_only_sums", "print('sum')"],
)
def test_other_questions_are_not_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / "base.py").write_text(line + "\n")
    assert found_in(tmp_path) == set()
