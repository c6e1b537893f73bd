"""Short texts and small HTML tables of objects, for the prompt and for notebooks.

Estimators, schemas and answers use them for ``__repr__``, ``__str__`` and ``_repr_html_``.  "Plain
data" are the dicts of their ``to_dict``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import escape_unprintable
from ..util.pages import Column, Table, render_for_notebook
from ..util.typing import Any
from .quality import RECALIBRATION

_LINES = 60
"""Most lines of a printed :class:`ColumnTable`; those before the last are left out."""


def format_pairs(title: str, pairs: Sequence[tuple[str, str]], said: str = "") -> str:
    """Format names with their values as aligned text.

    Parameters
    ----------
    title : str
        The first line.
    pairs : sequence of (str, str)
        Names and values, one line each, indented by two spaces.
    said : str
        The last line; none if empty.

    Returns
    -------
    str
    """
    width = max((len(name) for name, _ in pairs), default=0)
    lines = [title, *(f"  {name:<{width}}  {value}" for name, value in pairs)]
    if said:
        lines.append(said)
    return "\n".join(lines)


def evaluation_pairs(plain: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the released numbers of an evaluation's plain data, by name.

    Numbers for the holder of the rows only are left out.
    """
    if "classes" in plain:
        told = {"accuracy": plain["accuracy"]}
        for one in plain["classes"]:
            told[f"recall of {one['name']}"] = one["recall"]
            told[f"precision of {one['name']}"] = one["precision"]
    elif "auc" in plain:
        told = {"area under the ROC curve": plain["auc"], "Brier score": plain["brier"]}
        told |= {"share of positives": plain["positives"]}
        told |= {name: plain[key] for key, (name, _) in RECALIBRATION.items()}
        told |= plain["rates"]
    else:
        names = {
            "r2": "R2",
            "mean_absolute_error": "mean absolute error",
            "root_mean_squared_error": "root mean squared error",
            "mean_target": "mean of the number",
        }
        told = {name: plain[key] for key, name in names.items()}
    return [(escape_unprintable(name), _estimate_text(one)) for name, one in told.items()]


def _estimate_text(one: dict[str, Any]) -> str:
    """Format an estimate with its 95% interval, or say that it is refused."""
    if one["value"] is None:
        return "refused"
    return f"{one['value']:.4g} ({one['low']:.4g} to {one['high']:.4g})"


def _cell_text(x: Any) -> str:
    """Format a text or a number of a table."""
    if isinstance(x, str):
        return escape_unprintable(x)
    return f"{x:.4g}"


class ColumnTable(dict[str, list[Any]]):
    """A table as a dict of columns, which ``pandas.DataFrame`` takes; it prints as a table."""

    def _heads_and_cells(self) -> tuple[list[str], list[list[str]], int]:
        """Return heads, cells, and how many lines are left out; the last line is always shown."""
        heads = [escape_unprintable(str(head)) for head in self]
        lines = list(zip(*self.values(), strict=True))
        shown = lines
        if len(lines) > _LINES:
            shown = [*lines[: _LINES - 1], lines[-1]]
        cells = [[_cell_text(x) for x in line] for line in shown]
        return heads, cells, len(lines) - len(shown)

    def __str__(self) -> str:
        heads, cells, left = self._heads_and_cells()
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        text = []
        for first, *others in (heads, *cells):
            aligned = map(str.rjust, others, widths[1:])
            text.append("  ".join([first.ljust(widths[0]), *aligned]).rstrip())
        if left:
            text.append(f"... and {left} more")
        return "\n".join(text)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        heads, cells, left = self._heads_and_cells()
        more = f"... and {left} more" if left else ""
        return render_for_notebook(
            table=Table([Column(head) for head in heads], cells), remark=more
        )


__all__ = ["ColumnTable", "evaluation_pairs", "format_pairs"]
