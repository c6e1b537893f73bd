"""Base class of the results of an evaluation: released metrics for everybody, exact ones for the
data owner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..privacy.statement import Statement
from ..reports.notebook import evaluation_pairs, format_pairs
from ..util.pages import render_for_notebook


class ReleasedEvaluation(ABC):
    """An evaluation with its privacy statement, and exact metrics for the data owner only.

    Subclasses are dataclasses with ``repr=False``: only what was released is ever shown.
    """

    statement: Statement
    exact: dict[str, Any]

    @abstractmethod
    def released(self) -> dict[str, Any]:
        """Return the released results as plain data."""

    def held_back(self) -> dict[str, Any]:
        """Return metrics computed without noise, as plain data: for the data owner only."""
        return {"exact": self.exact}

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, released and exact, as plain data: for the data owner only."""
        return self.released() | self.held_back()

    def __repr__(self) -> str:
        return format_pairs(*self._told())

    def _repr_html_(self) -> str:
        title, pairs, remark = self._told()
        return render_for_notebook(title=title, pairs=pairs, remark=remark)

    def _told(self) -> tuple[str, list[tuple[str, str]], str]:
        """Return title, (name, value) lines and privacy statement of the released metrics."""
        plain = self.released()
        title = f"Evaluation on {plain['rows']:,.0f} held-out rows, with 95% intervals"
        return title, evaluation_pairs(plain), self.statement.text
