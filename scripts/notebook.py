"""Make the notebooks of ``examples/papers`` from their scripts: ``python scripts/notebook.py``,
standard library only.

A script in the percent format (``# %%`` begins a cell of code, ``# %% [markdown]`` one of text) is
what is edited and tested; its notebook holds the same cells without output, so that both can be
compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples" / "papers"
CODE, TEXT = "# %%", "# %% [markdown]"


def cells(script: str) -> list[tuple[str, str]]:
    """The kind, "code" or "markdown", and the text of every cell of a script."""
    found: list[tuple[str, list[str]]] = []
    for line in script.splitlines():
        if line in (CODE, TEXT):
            found.append(("markdown" if line == TEXT else "code", []))
            continue
        kind, lines = found[-1]
        lines.append(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line)
    return [(kind, "\n".join(lines).strip("\n")) for kind, lines in found]


def notebook(script: str) -> str:
    """The notebook of a script, as JSON of format 4.5."""
    made = []
    for k, (kind, text) in enumerate(cells(script)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for script in sorted(FOLDER.glob("*.py")):
        text = notebook(script.read_text(encoding="utf-8"))
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
