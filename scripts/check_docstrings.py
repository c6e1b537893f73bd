"""Check docstrings against the code: ``python scripts/check_docstrings.py [FOLDER ...]``.

numpydoc's own parser reads them; ruff has already asked for one wherever something is public.

1. A public function or method of three parameters or more documents each of them, except the
   commands of the command line, whose help is their documentation.
2. Where parameters are documented, they are the code's, and a function's come in the code's order,
   but for what one entry groups (a class may group by what fields are for).  A dataclass takes its fields, and those that it
   inherits.
3. A summary is a sentence: it begins with a capital letter, a digit or a name in backquotes, and it
   ends as sentences do.
4. Sections come in numpydoc's order, and each is one that numpydoc or this project knows:
   ``Guarantee`` stands after ``Raises``.

Prints one line a violation, ``file:line: name: rule``, and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from numpydoc.docscrape import NumpyDocString

FEWEST_PARAMETERS = 3
FOLDERS = ("src/sottovoce", "src/sottovoce_papers")

# The order of numpydoc's guide, with the project's own section among them.
SECTION_ORDER = (
    "Parameters",
    "Returns",
    "Yields",
    "Other Parameters",
    "Attributes",
    "Raises",
    "Warns",
    "Guarantee",
    "See Also",
    "Notes",
    "References",
    "Examples",
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Documented = FunctionNode | ast.ClassDef


class Docstring(NumpyDocString):
    """numpydoc's parser, which also knows the section ``Guarantee``."""

    sections: ClassVar[dict[str, object]] = {**NumpyDocString.sections, "Guarantee": ""}


@dataclass
class Project:
    """What one folder of sources defines.

    Attributes
    ----------
    modules : dict of Path to ast.Module
        Syntax trees by file.
    classes : dict of str to list of ast.ClassDef
        All classes of a name, to find what a class inherits.
    """

    modules: dict[Path, ast.Module] = field(default_factory=dict)
    classes: dict[str, list[ast.ClassDef]] = field(default_factory=dict)

    def read_folder(self, folder: Path) -> None:
        """Parse every module below `folder`."""
        for path in sorted(folder.rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            self.modules[path] = module
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(node)

    def constructor_parameters(self, node: ast.ClassDef) -> list[str] | None:
        """Return what the class is made of, in order; None where a base is not of this project."""
        for member in node.body:
            if isinstance(member, FunctionNode) and member.name == "__init__":
                return parameter_names(member)
        names: list[str] = []
        for base in node.bases:
            name = base_name(base)
            if name in ("Protocol", "NamedTuple", "ABC", "Generic", "Exception", "object"):
                continue
            found = self.classes.get(name, [])
            if len(found) != 1:
                return None
            inherited = self.constructor_parameters(found[0])
            if inherited is None:
                return None
            names += [one for one in inherited if one not in names]
        own = [
            member.target.id
            for member in node.body
            if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name)
        ]
        return names + [one for one in own if one not in names]


def base_name(base: ast.expr) -> str:
    """Return the last name of a base class, without its type arguments."""
    if isinstance(base, ast.Subscript):
        return base_name(base.value)
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def parameter_names(function: FunctionNode) -> list[str]:
    """Return the parameters' names in order, without ``self`` and ``cls``."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args]
    given += [arguments.vararg] if arguments.vararg else []
    given += arguments.kwonlyargs
    given += [arguments.kwarg] if arguments.kwarg else []
    names = [one.arg for one in given]
    return names[1:] if names and names[0] in ("self", "cls") and is_method(function) else names


def is_method(function: FunctionNode) -> bool:
    """Whether its first parameter is the instance or the class, which has no type of its own."""
    first = [*function.args.posonlyargs, *function.args.args][0]
    return first.annotation is None


def documented_entries(text: str) -> list[list[str]]:
    """Return the entries under ``Parameters``: one may be of several names, with commas between."""
    with warnings.catch_warnings():
        # section_faults reports it, with the place.
        warnings.filterwarnings("ignore", message="Unknown section")
        docstring = Docstring(text)
    return [
        [name.strip().lstrip("\\*") for name in entry.name.split(",") if name.strip()]
        for entry in docstring["Parameters"]
    ]


def names_of(entries: list[list[str]]) -> list[str]:
    """Return all names of entries."""
    return [name for entry in entries for name in entry]


def is_command(function: FunctionNode) -> bool:
    """Whether click makes a command of it: its docstring is the text of ``--help``."""
    words = " ".join(ast.unparse(one) for one in function.decorator_list)
    return any(word in words for word in ("command", "option(", "argument("))


def is_overload(function: FunctionNode) -> bool:
    """Whether it only declares a type: the function below it has the docstring."""
    return any("overload" in ast.unparse(one) for one in function.decorator_list)


def public_definitions(tree: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    """Yield public functions and classes, and the public methods of these classes."""
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node)


def all_definitions(module: ast.Module) -> Iterator[Documented]:
    """Yield every function and class of a module, private and inner ones too."""
    for node in ast.walk(module):
        if isinstance(node, Documented):
            yield node


def section_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with the order of sections."""
    lines = text.splitlines()
    found = [
        line.strip()
        for line, below in pairwise(lines)
        if line.strip() and set(below.strip()) == {"-"} and len(below.strip()) == len(line.strip())
    ]
    known = [name for name in found if name in SECTION_ORDER]
    if known != found:
        unknown = [name for name in found if name not in SECTION_ORDER]
        yield f"section {unknown[0]!r} is not one of numpydoc's or the project's"
    if known != sorted(known, key=SECTION_ORDER.index):
        yield f"sections come in the order {', '.join(sorted(known, key=SECTION_ORDER.index))}"


def summary_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with the first paragraph."""
    summary = text.strip().split("\n\n")[0].strip()
    begins_well = summary[0].isupper() or summary[0].isdigit() or summary[0] in "`*:"
    if not begins_well:
        yield "the summary begins with a capital letter"
    if summary[-1] not in ".:?!`)":
        yield "the summary ends with a full stop"


def unknown_parameters(documented: list[str], actual: list[str]) -> Iterator[str]:
    """Yield which documented parameters the code does not take."""
    unknown = [name for name in documented if name not in actual]
    if unknown:
        yield f"documents {', '.join(unknown)}, which it does not take"


def parameters_out_of_order(entries: list[list[str]], actual: list[str]) -> Iterator[str]:
    """Yield whether the first names of entries stand in another order than the code's."""
    known = [names[0] for names in entries if names[0] in actual]
    if known != sorted(known, key=actual.index):
        yield f"documents its parameters in another order than {', '.join(actual)}"


def docstring_faults(node: Documented, project: Project) -> Iterator[str]:
    """Yield what is wrong with one docstring, whoever may call what it documents."""
    text = ast.get_docstring(node)
    if text is None:
        return
    yield from section_faults(text)
    yield from summary_faults(text)
    entries = documented_entries(text)
    documented = names_of(entries)
    if isinstance(node, ast.ClassDef):
        fields = project.constructor_parameters(node)
        if fields is not None:
            yield from unknown_parameters(documented, fields)
    else:
        actual = parameter_names(node)
        yield from unknown_parameters(documented, actual)
        yield from parameters_out_of_order(entries, actual)


def missing_parameters(node: Documented) -> Iterator[str]:
    """Yield which parameters of a public function are not documented."""
    if isinstance(node, ast.ClassDef) or is_command(node) or is_overload(node):
        return
    actual = parameter_names(node)
    if len(actual) < FEWEST_PARAMETERS:
        return
    documented = names_of(documented_entries(ast.get_docstring(node) or ""))
    missing = [name for name in actual if name not in documented]
    if missing:
        yield f"does not document {', '.join(missing)}"


def faults_of_project(project: Project) -> Iterator[str]:
    """Yield one line for each fault, in the order of files and lines."""
    for path, module in project.modules.items():
        public = set(public_definitions(module))
        for node in all_definitions(module):
            found = list(docstring_faults(node, project))
            if node in public:
                found += missing_parameters(node)
            for fault in found:
                yield f"{path}:{node.lineno}: {node.name}: {fault}"


def main(folders: list[str]) -> int:
    """Print the faults of all `folders`; return the exit code."""
    project = Project()
    for folder in folders or FOLDERS:
        project.read_folder(Path(folder))
    faults = list(faults_of_project(project))
    for fault in faults:
        print(fault)
    documented = sum(
        ast.get_docstring(node) is not None
        for module in project.modules.values()
        for node in all_definitions(module)
    )
    print(f"{documented} docstrings, {len(faults)} faults", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
