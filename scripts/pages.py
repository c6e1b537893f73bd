"""Keep up to date what pages show of the code: ``python scripts/pages.py [--check]``.

Pages are plain Markdown that a forge shows whole, so listings, outputs and tables stand in them.
Each such part is between two comments, of which the first says where the part comes from::

    <!-- kept: listing examples/doors/statistician.py -->
    <!-- kept: end -->

``listing FILE`` is a file, and ``listing FILE NAME`` a function, class or method of it. ``methods``,
``knobs``, ``losses`` and ``layers`` are tables of what the package declares; ``types`` is a table
written by hand, of which it is checked that the classes exist. With ``--check`` nothing is written;
it exits with 1 if a page differs from its sources.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from check_imports import LAYERS

from sottovoce.algorithms import KNOBS, NAMES, REGISTRY, equal_methods, knobs_of, trusts_of
from sottovoce.problem.losses import REGISTRY as LOSSES

ROOT = Path(__file__).parents[1]
PART = re.compile(
    r"^<!-- kept: (?P<source>.+?) -->\n(?P<body>.*?)^<!-- kept: end -->$", re.M | re.S
)
LANGUAGES = {".py": "python", ".toml": "toml", ".txt": "text", ".sh": "sh", ".json": "json"}


def table(*rows: tuple[str, ...]) -> str:
    """Return a Markdown table; the first row is its header."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def source_of_object(text: str, path: str) -> str:
    """Return the lines of a function, class or method ``Class.method`` in a module's text."""
    found: ast.AST = ast.parse(text)
    for name in path.split("."):
        inside = [node for node in ast.iter_child_nodes(found) if getattr(node, "name", "") == name]
        if len(inside) != 1:
            raise ValueError(f"{path}: names {len(inside)} objects, not one")
        found = inside[0]
    assert isinstance(found, ast.ClassDef | ast.FunctionDef)
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : found.end_lineno]))


def listing(file: str, path: str = "") -> str:
    """Return a file of the repository, or one object of it, as a fenced block."""
    text = (ROOT / file).read_text(encoding="utf-8").strip("\n")
    shown = source_of_object(text, path) if path else text
    fence = "````" if "```" in shown else "```"
    return f"{fence}{LANGUAGES[Path(file).suffix]}\n{shown}\n{fence}"


def place_of_method(name: str) -> str:
    """Return the page whose title begins with a method, or its section of the page of methods."""
    for shelf in ("explanation", "privacy"):
        for own in sorted((ROOT / "docs" / shelf).glob("*.md")):
            if own.read_text(encoding="utf-8").startswith(f"# `{name}`"):
                return f"../{shelf}/{own.name}"
    page = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    for heading in re.findall(r"^#+ (.+)$", page, re.M):
        if name in heading.split(", "):
            return "#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    raise ValueError(f"{name}: has no page and no section in docs/reference/methods.md")


def methods() -> str:
    """Return what each method says of itself; its name leads to its section or page."""
    rows = [("method", "after", "releases, noise", "trusts", "other forms", "when")]
    for name in NAMES:
        cls = REGISTRY[name]
        trusts = [
            trust if pair == name else f"{trust} (`{pair}`)"
            for trust, pair in trusts_of(name).items()
        ]
        same = [f"by default as `{other}`" for other in equal_methods(name)]
        row = (
            f"[`{name}`]({place_of_method(name)})",
            cls.paper,
            # the page says below what the noise is without a delta
            f"{cls.releases}; {cls.noise_law}".replace(" (pure: spherical)", ""),
            ", ".join(trusts),
            ", ".join(form for form in cls.forms if form != "corrected"),
            "; ".join([cls.good_for, *same]),
        )
        rows.append(row)
    return table(*rows)


def knobs() -> str:
    """Return the methods' own knobs, but for those of printed forms, from their fields."""
    rows = [("knob", "what it is", "default", "methods")]
    for name, knob in KNOBS.items():
        if knob.form == "printed":
            continue
        own = [f"`{method}`" for method in NAMES if name in knobs_of(REGISTRY[method].options)]
        where = ", ".join(own) + (f" ({knob.form})" if knob.form else "")
        default = f"{knob.default:.4g}" if isinstance(knob.default, float) else repr(knob.default)
        rows.append((f"`{name}`", knob.about, f"`{default}`", where))
    return table(*rows)


def losses() -> str:
    """Return the losses, from the classes that state their bounds."""
    rows = [("loss", "what it is", "slopes", "curvature", "noise inside an objective")]
    for kind in LOSSES.values():
        loss = kind()
        most = f"{loss.derivative_bound:.4g}"
        slopes = f"{-loss.derivative_bound:.4g} to {0 if loss.monotone else most}"
        if loss.outputs > 1:
            slopes = f"norm at most {most}"
        jumps = ", jumps" if loss.curvature_jumps else ""
        curvature = f"at most {loss.curvature_bound:.4g}{jumps}"
        inside = "refused" if loss.unproved_inside else "taken"
        rows.append((f"`{loss.spec}`", loss.about, slopes, curvature, inside))
    return table(*rows)


def layers() -> str:
    """Return the floors of the package from the top down: what each room knows."""
    rows = [("floor", "room", "what it knows")]
    for level, floor in reversed(list(enumerate(LAYERS))):
        for room, knows in floor.items():
            rows.append((str(level), f"`{room}`", knows))
    return table(*rows)


TABLES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "knobs": knobs,
    "losses": losses,
    "layers": layers,
}


def checked_types(body: str) -> str:
    """Return a table of types as it is, after a look that each ``Class`` is in its ``module``."""
    for name, module in re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", body, re.M):
        getattr(import_module(f"sottovoce.{module}"), name)
    return body.strip("\n")


def kept(part: re.Match[str]) -> str:
    """Return a part of a page with its markers, as its source has it now."""
    kind, *words = part["source"].split()
    if kind == "listing":
        body = listing(*words)
    elif kind == "types":
        body = checked_types(part["body"])
    elif kind in TABLES:
        body = TABLES[kind]()
    else:
        raise ValueError(f"{kind!r} is no kind of part; known: listing, types, {', '.join(TABLES)}")
    # the empty lines keep a table apart from the comments, which would swallow its first line
    return f"<!-- kept: {part['source']} -->\n\n{body}\n\n<!-- kept: end -->"


def main() -> int:
    """Write the pages anew, or with ``--check`` tell which would change."""
    check = "--check" in sys.argv[1:]
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        if "_build" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(ROOT).as_posix()
        if text.count("<!-- kept: ") != 2 * len(PART.findall(text)):
            print(f"{place}: a part has no end, or an end no part", file=sys.stderr)
            return 1
        try:
            now = PART.sub(kept, text)
        except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
            print(f"{place}: {error}", file=sys.stderr)
            return 1
        if now != text:
            stale.append(place)
            if not check:
                path.write_text(now, encoding="utf-8")
    for place in stale:
        print(f"{place}: {'differs from its sources' if check else 'written anew'}")
    if check and stale:
        print("run python scripts/pages.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
