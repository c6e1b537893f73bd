"""Check what imports what: ``python scripts/check_imports.py [ROOT]``, standard library only.

1. Imports inside ``src/sottovoce`` go down the table below or stay in a layer, and never run in a
   circle. Imports inside functions and under ``if TYPE_CHECKING`` count too.  To import from a
   folder runs that folder's ``__init__``, so that counts as an import of it.
2. A file under ``algorithms/`` sees arrays, queries, schedules and the network, and nothing through
   which private rows or noise could reach it.
3. ``src/sottovoce_papers`` imports of the library only public modules, listed below, and nothing
   private from them. The library never imports it, nor names it where an import could follow from
   the name.

Prints one line a violation, ``file:line: rule``, and exits with 1 if there is one; else the counts
of rooms and arrows.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "sottovoce"
PAPERS = "sottovoce_papers"


# Lowest first: the rooms of every floor, and what each knows.  A room is a file, or a folder and
# all that is in it. docs/explanation/architecture.md shows this list, with what the rooms import.
LAYERS: tuple[dict[str, str], ...] = (
    {"errors": "exceptions"},
    {
        "util": "types of arrays; libraries loaded at first use; the canonical text of a value; "
        "files read within "
        "limits and written whole or not at all; HTML from the files in ``templates/``",
    },
    {
        "problem": "losses with their bounds, tasks, public facts, parameters over rounds, whom "
        "people trust"
    },
    {
        "data": "rows, how they are stored, and schemas",
        "privacy": "what happened (events), what it costs and why (prices), what a guarantee "
        "says; sources of noise",
        "network": "graphs, and the exchange with neighbours",
    },
    {
        "solvers": "minimisers with certified error",
        "ledger": "what was charged, in memory and on disk",
        "reports": "pages from plain data",
    },
    {"queries": "one file for each kind of release"},
    {"algorithms": "one file for each method"},
    {
        "runs": "access to the rows, the one loop that drives every method; pricing, choosing "
        "and simulating a run"
    },
    {"answers": "inference and evaluation"},
    {"estimators": "scikit-learn estimators", "deploy": "separate sites"},
    {"audit": "attacks on every claim"},
    {"cli": "the command line", "__main__": "``python -m sottovoce``"},
)
LAYER = {room: level for level, floor in enumerate(LAYERS) for room in floor}
TOP = "__init__"  # the package itself: it may import all, nothing in it may import it
VERSION = "_version"  # may be imported by all, imports nothing of the package

ALGORITHMS = "algorithms"
ALGORITHM_MAY_IMPORT = (
    *(
        "__future__",
        "abc",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "math",
        "types",
        "typing",
    ),
    *(f"{PACKAGE}.{name}" for name in ("errors", "queries", "network.net")),
    *(f"{PACKAGE}.util.{name}" for name in ("constraints", "plain", "typing")),
    *(f"{PACKAGE}.problem.{name}" for name in ("facts", "trust", "schedules")),
    f"{PACKAGE}.{ALGORITHMS}",  # under the same rule themselves
)
ALGORITHM_MAY_IMPORT_EXACTLY = ("numpy", "numpy.typing", "numpy.linalg")


# What other packages may import.  First what the reference shows (docs/reference), module by
# module.
IN_REFERENCE = (
    "algorithms",
    "audit",
    "data.rows",
    "data.schema",
    "errors",
    "ledger.memory",
    "network.graphs",
    "privacy.accountants",
    "privacy.calibration",
    "privacy.events",
    "privacy.gaussian",
    "privacy.statement",
    "privacy.statement_facts",
    "problem.facts",
    "problem.losses",
    "problem.task",
    "problem.trust",
    "queries.base",
    "queries.objective",
    "queries.statistic",
    "queries.vault",
    "runs.pricing",
    "runs.registering",
    "runs.simulate",
    "util.files",
)
# Then what it leaves out, and why a package needs it.
BEYOND_REFERENCE = {
    TOP: "the names of `import sottovoce`",
    "data": "tables, data sets and how rows are dealt",
    "data.labels": "refuses labels that a method of two classes cannot take",
    "data.sweep": "results that do not depend on how many cores are free",
    "data.table": "columns of a table as numbers",
    "queries": "every kind of release",
    "queries.moments": "symmetric matrices as the vectors that are released",
    "algorithms.ipp_admm": "a method's class is public, as is the way in which 004 splits its "
    "budget",
    "network.net": "the exchange of a simulation",
    "privacy.noise": "the source of noise of a simulation, which whoever makes a row guard must "
    "name",
    "solvers.local": "minimisers with a certificate of their error",
    "runs.prepare": "method and noise of a configuration",
    "runs.row_guard": "the only way to the rows: a mechanism that is no method asks it too",
    "runs.engine": "the loop over rounds, with observers",
    "cli.options": "a command declares its options as ours do",
    "cli.screen": "a command prints as ours do: no text controls the terminal, no number is cut",
    "util.pages": "the frame of an HTML page",
    "util.plain": "plain data for JSON",
    "util.typing": "types of arrays",
}
PUBLIC = frozenset((*IN_REFERENCE, *BEYOND_REFERENCE))


class Import(NamedTuple):
    line: int
    target: str
    """Absolute dotted name: of the module, where a `from` import names one, else of the name
    imported.
    """


def module_name(path: Path, package: Path) -> str:
    """``privacy/events.py`` -> ``privacy.events``; ``privacy/__init__.py`` ->
    ``privacy.__init__``.
    """
    return ".".join(path.relative_to(package).with_suffix("").parts)


def imports(tree: ast.AST, module: str, package: str = PACKAGE) -> Iterator[Import]:
    """All imports of the file, wherever they stand, with relative ones made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            here = [package, *module.split(".")]
            base = here[: len(here) - node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield Import(node.lineno, ".".join([*base, alias.name]))


def resolve(target: str, modules: set[str], package: str = PACKAGE) -> str | None:
    """The module of the package that an import of the dotted name `target` runs last; None for
    others.
    """
    first, *parts = target.split(".")
    if first != package:
        return None
    while parts:
        for name in (".".join(parts), ".".join([*parts, "__init__"])):
            if name in modules:
                return name
        parts.pop()
    return TOP


def level(module: str) -> int | None:
    """Layer of a module by the longest entry that it falls under."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        entry = ".".join(parts[:end])
        if entry in LAYER:
            return LAYER[entry]
    return None


def runs(importer: str, target: str, modules: set[str]) -> Iterator[str]:
    """`target` and the ``__init__`` of each folder that holds it but not the importer."""
    yield target
    folders = target.split(".")[:-1]
    for end in range(1, len(folders) + 1):
        folder = ".".join(folders[:end])
        opened = f"{folder}.__init__"
        if opened in modules and opened != target and not importer.startswith(f"{folder}."):
            yield opened


def check_layers(
    where: dict[str, str], found: dict[str, list[Import]]
) -> Iterator[tuple[str, int, str]]:
    """Rule 1.  `where`: module -> file as shown; `found`: module -> its imports."""
    modules = set(where)
    edges: dict[str, dict[str, int]] = {module: {} for module in sorted(modules)}
    for module in sorted(modules):
        own = level(module)
        if own is None and module not in (TOP, VERSION):
            yield (
                where[module],
                1,
                "module has no layer: add it to LAYERS in scripts/check_imports.py",
            )
        for line, name in found[module]:
            target = resolve(name, modules)
            if target is None:
                continue
            if target == TOP and module != TOP:
                why = (
                    "there is no such module"
                    if name.count(".") > 1
                    else "the top imports everything"
                )
                yield where[module], line, f"imports {name}, but {why}"
                continue
            for run in runs(module, target, modules):
                edges[module].setdefault(run, line)
                above = level(run)
                if own is not None and above is not None and above > own:
                    yield (
                        where[module],
                        line,
                        f"layer {own} imports {run}, which is in layer {above}",
                    )
        if module == VERSION and edges[module]:
            yield (
                where[module],
                min(edges[module].values()),
                f"{VERSION} must import nothing of the package",
            )
    for circle in circles(edges):
        names = " -> ".join([*circle, circle[0]])
        yield (
            where[circle[0]],
            edges[circle[0]][circle[1 % len(circle)]],
            f"circular import: {names}",
        )


def circles(edges: dict[str, dict[str, int]]) -> Iterator[list[str]]:
    """One circle for each depth-first edge that closes one."""
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        path.append(module)
        for target in edges[module]:
            if target in path:
                yield path[path.index(target) :]
            elif target not in done:
                yield from visit(target)
        done.add(path.pop())

    for module in edges:
        if module not in done:
            yield from visit(module)


def check_algorithm(tree: ast.AST, names: list[Import]) -> Iterator[tuple[int, str]]:
    """Rule 2, for one file under ``algorithms/``."""
    for line, name in names:
        below = any(name == entry or name.startswith(f"{entry}.") for entry in ALGORITHM_MAY_IMPORT)
        if not below and name not in ALGORITHM_MAY_IMPORT_EXACTLY and not public_numpy(name):
            yield (
                line,
                f"an algorithm may not import {name}: it holds the public half of a method only",
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "random":
            yield node.lineno, "an algorithm may not draw random numbers: noise belongs to queries"
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield node.lineno, "an algorithm may not call __import__: its imports must be seen"


def public_numpy(name: str) -> bool:
    """A name taken from one of numpy's allowed modules, other than the submodule that draws."""
    home, _, taken = name.rpartition(".")
    return home in ALGORITHM_MAY_IMPORT_EXACTLY and taken not in ("random", "*")


def check_names_papers(tree: ast.AST, names: list[Import]) -> Iterator[tuple[int, str]]:
    """Rule 3, for one file of the library: it neither imports the papers' package nor holds its
    name as a value.
    """
    for line, name in names:
        if name.partition(".")[0] == PAPERS:
            yield line, f"the library may not import {name}: {PAPERS} comes in by entry points"
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if text.partition(".")[0] == PAPERS and text.replace(".", "").isidentifier():
            yield (
                node.lineno,
                f"the library may not name the module {text}: {PAPERS} comes in by entry points",
            )


def check_public(
    tree: ast.AST, names: list[Import], modules: set[str]
) -> Iterator[tuple[int, str]]:
    """Rule 3, for one file of the papers' package; `modules` are those of the library."""
    from_library: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = (
                f"{node.module}."
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else ""
            )
            own = [
                alias for alias in node.names if f"{home}{alias.name}".partition(".")[0] == PACKAGE
            ]
            from_library |= {(alias.asname or alias.name).partition(".")[0] for alias in own}
    for line, name in names:
        target = resolve(name, modules)
        if target is None:
            continue
        if any(is_private(part) for part in name.split(".")):
            yield line, f"imports {name}, which is private to {PACKAGE}"
        elif target.removesuffix(".__init__") not in PUBLIC:
            yield (
                line,
                f"imports {name}, and {target} is no public module: see PUBLIC in "
                "scripts/check_imports.py",
            )
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if is_private(node.attr) and node.value.id in from_library:
            yield node.lineno, f"reads {node.value.id}.{node.attr}, which is private to {PACKAGE}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def check_papers(root: Path, library: set[str]) -> Iterator[tuple[str, int, str]]:
    """Rule 3 under `root`, and no circle within the papers' package; `library` has the modules
    of the other.
    """
    package = root / "src" / PAPERS
    where: dict[str, str] = {}
    found: dict[str, list[Import]] = {}
    for path in sorted(package.glob("**/*.py")):
        shown, module = path.relative_to(root).as_posix(), module_name(path, package)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            yield shown, error.lineno or 1, f"does not parse: {error.msg}"
            continue
        where[module], found[module] = shown, list(imports(tree, module, PAPERS))
        for line, rule in check_public(tree, found[module], library):
            yield shown, line, rule
    edges: dict[str, dict[str, int]] = {module: {} for module in sorted(where)}
    for module in edges:
        for line, name in found[module]:
            target = resolve(name, set(where), PAPERS)
            for run in () if target is None else runs(module, target, set(where)):
                edges[module].setdefault(run, line)
    for circle in circles(edges):
        names = " -> ".join([*circle, circle[0]])
        yield (
            where[circle[0]],
            edges[circle[0]][circle[1 % len(circle)]],
            f"circular import: {names}",
        )


def check(root: Path) -> Iterator[tuple[str, int, str]]:
    """All violations under `root` as (file, line, rule)."""
    package = root / "src" / PACKAGE
    if not package.is_dir():
        yield f"src/{PACKAGE}", 1, f"not found below {root}"
        return
    where: dict[str, str] = {}
    found: dict[str, list[Import]] = {}
    for path in sorted(package.glob("**/*.py")):
        shown = path.relative_to(root).as_posix()
        module = module_name(path, package)
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            yield shown, error.lineno or 1, f"does not parse: {error.msg}"
            continue
        where[module], found[module] = shown, list(imports(tree, module))
        for line, rule in check_names_papers(tree, found[module]):
            yield shown, line, rule
        if module.split(".")[0] == ALGORITHMS:
            for line, rule in check_algorithm(tree, found[module]):
                yield shown, line, rule
    yield from check_layers(where, found)
    yield from check_papers(root, set(where))


def main(arguments: list[str]) -> int:
    """Print the violations under the one argument, or under this repository; without any, how
    the house is built.
    """
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    violations = sorted(set(check(root)))
    for file, line, rule in violations:
        print(f"{file}:{line}: {rule}")
    if not violations:
        arrows = graph(root / "src" / PACKAGE)
        many = sum(map(len, arrows.values()))
        print(
            f"{len(arrows)} rooms on {len(LAYERS)} floors, {many} arrows between them, none "
            "upward, no circle"
        )
    return int(bool(violations))


def graph(package: Path) -> dict[str, set[str]]:
    """The rooms of the package, each with those that it imports."""
    where = {module_name(path, package): path for path in package.glob("**/*.py")}
    arrows: dict[str, set[str]] = {
        module.split(".")[0]: set() for module in where if module not in (TOP, VERSION)
    }
    for module, path in where.items():
        room = module.split(".")[0]
        for _, name in imports(ast.parse(path.read_text(encoding="utf-8")), module):
            target = (resolve(name, set(where)) or "").split(".")[0]
            if target != room and {room, target} <= arrows.keys():
                arrows[room].add(target)
    return arrows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
