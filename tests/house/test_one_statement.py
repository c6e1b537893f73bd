"""Statements of privacy are made in one place: nothing else builds one, or changes what one
says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
STATEMENTS = ("statement", "statement_facts", "statement_reading")
HOME = {SOURCE / "sottovoce" / "privacy" / f"{name}.py" for name in STATEMENTS}
TOLD = {
    "adversary",
    "accountants",
    "per_node",
    "printed_claim",
    "assumes",
    "early",
    "unprotected",
    "not_protected",
}
"""Keys and fields that only statements have."""
NAMES = {"privacy", "statement"}


def is_statement(node: ast.AST) -> bool:
    """Whether an expression is called a statement: ``privacy``, ``run.statement``,
    ``d["privacy"]``, any as a dict.
    """
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if (
            inner is not None
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "promise"
        ):
            return True
        return any(is_statement(part) for part in ([inner] if inner is not None else node.args))
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in NAMES
    return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)) in NAMES


def text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def faults(source: str) -> Iterator[str]:
    """What builds or changes a statement."""
    for node in ast.walk(ast.parse(source)):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            name = (
                node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            )
            given = {keyword.arg for keyword in node.keywords}
            if name == "Statement":
                yield f"{where}: makes a Statement by hand"
            elif name == "replace" and (given & TOLD or any(map(is_statement, node.args[:1]))):
                yield f"{where}: replaces fields of a statement"
            elif name in ("update", "setdefault", "pop", "__setitem__", "__setattr__", "setattr"):
                target = node.func.value if isinstance(node.func, ast.Attribute) else None
                if (target is not None and is_statement(target)) or any(
                    is_statement(arg) for arg in node.args
                ):
                    yield f"{where}: changes a statement"
            elif name == "dict" and given & TOLD:
                yield f"{where}: builds a dict of a statement"
        elif isinstance(node, ast.Dict):
            if {text(key) for key in node.keys} & TOLD:
                yield f"{where}: builds a dict of a statement"
            if any(
                key is None and is_statement(value)
                for key, value in zip(node.keys, node.values, strict=True)
            ):
                yield f"{where}: copies a statement into another dict"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            if is_statement(node.left) or is_statement(node.right):
                yield f"{where}: adds to a statement"
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in targets:
                part = isinstance(target, ast.Subscript) and (
                    is_statement(target.value) or text(target.slice) in TOLD
                )
                if part or (isinstance(target, ast.Attribute) and is_statement(target.value)):
                    yield f"{where}: sets a part of a statement"
            if isinstance(node, ast.AugAssign) and is_statement(node.target):
                yield f"{where}: adds to a statement"


def test_no_other_file_builds_or_changes_a_statement() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert set(files) >= HOME and len(files) > 100
    found = [
        f"{path.relative_to(SOURCE)}: {fault}"
        for path in files
        if path not in HOME
        for fault in faults(path.read_text())
    ]
    assert not found


@pytest.mark.parametrize(
    "planted",
    [
        'words = dict(privacy) | {"release": True}',
        'statement |= {"site": name, "made": made}',
        'statement["early"] = "after 1 of 2 releases"',
        'result.privacy["epsilon"] = 0.1',
        'found = {"epsilon": total, "adversary": "sees the model"}',
        'found = {**result.privacy, "epsilon": 0.1}',
        'plain = run.statement.to_dict() | {"epsilon": 0.1}',
        'plain = {"release": True} | said.promise()',
        "sites = replace(sites, not_protected=why)",
        "weaker = dataclasses.replace(end.statement, epsilon=0.1)",
        "said = Statement(epsilon=0.1, delta=0.0)",
        'result.privacy.update({"epsilon": 0.1})',
        'object.__setattr__(statement, "epsilon", 0.1)',
        "result.statement.epsilon = 0.1",
        'del done["privacy"]["caveat"]',
        "found = dict(epsilon=0.1, per_node=[0.1])",
    ],
)
def test_a_planted_statement_is_found(planted: str) -> None:
    assert list(faults(planted))


@pytest.mark.parametrize(
    "allowed",
    [
        'report = {"privacy": plan.statement.to_dict(), "rounds": 3}',
        'summary = status | {"privacy": statement.to_dict()}',
        "site = restate(whole, AtSite(name, made))",
        'epsilon = result.privacy["epsilon"]',
        'said = Statement.from_dict(done["privacy"])',
        "found = build_statement([Proved.by(ledger, 1), Against(trust), Claim(0.5)])",
        "statement = privacy_statement(prepared, rows, simulated=True)",
    ],
)
def test_reading_a_statement_is_no_fault(allowed: str) -> None:
    assert not list(faults(allowed))
