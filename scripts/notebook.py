"""Make the notebooks of ``examples/notebooks`` from their scripts: ``python scripts/notebook.py``.

A script in the percent format (``# %%`` begins a cell of code, ``# %% [markdown]`` one of text) is
what is edited and tested.  Its notebook holds the same cells with what they print and show, so that
it can be read where nothing runs it; a test runs it again and compares.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
CODE, TEXT = "# %%", "# %% [markdown]"


def cells(script: str) -> list[tuple[str, str]]:
    """Return the kind, "code" or "markdown", and the text of every cell of a script."""
    found: list[tuple[str, list[str]]] = []
    for line in script.splitlines():
        if line in (CODE, TEXT):
            found.append(("markdown" if line == TEXT else "code", []))
            continue
        kind, lines = found[-1]
        lines.append(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line)
    return [(kind, "\n".join(lines).strip("\n")) for kind, lines in found]


def notebook(script: str) -> dict[str, Any]:
    """Run a script cell by cell; return its notebook in format 4.5, with outputs."""
    mpl.use("svg")
    plt.close("all")
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    count = 0
    # the hash salt and the missing date make a figure's text the same in every run
    with mpl.rc_context({"svg.hashsalt": "sottovoce", "savefig.transparent": True}):
        for k, (kind, text) in enumerate(cells(script)):
            cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}}
            if kind == "code":
                count += 1
                cell |= {"execution_count": count, "outputs": outputs_of_cell(text, names, count)}
            made.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def outputs_of_cell(code: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell in `names`; return what it prints, what its last expression shows, its figures."""
    body = ast.parse(code).body
    last = None
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)  # type: ignore[attr-defined]
    shown = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if last is not None:
            shown = eval(compile(last, "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": lines_of(printed.getvalue())}
        )
    if shown is not None:
        outputs.append(
            {
                "data": representations(shown),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    for number in plt.get_fignums():
        drawn = io.StringIO()
        plt.figure(number).savefig(drawn, format="svg", metadata={"Date": None})
        data = {"image/svg+xml": lines_of(drawn.getvalue()), "text/plain": ["a figure"]}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return outputs


def representations(shown: Any) -> dict[str, list[str]]:
    """Return an object as text and, if it can show itself in a notebook, as HTML."""
    found = {"text/plain": lines_of(repr(shown))}
    if hasattr(shown, "_repr_html_"):
        found["text/html"] = lines_of(shown._repr_html_())
    return found


def lines_of(text: str) -> list[str]:
    """Return a text as a notebook keeps it."""
    return text.splitlines(keepends=True)


def main() -> None:
    for script in sorted(FOLDER.glob("*.py")):
        if sys.argv[1:] and script.stem not in sys.argv[1:]:
            continue
        made = notebook(script.read_text(encoding="utf-8"))
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(f"wrote {script.stem}.ipynb")


if __name__ == "__main__":
    main()
