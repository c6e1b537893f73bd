"""Cells of 004: training rows scored too, vectors that are sent, and the total that a test error
costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sottovoce.runs.registering import find_method
from sottovoce.util.typing import Any, Array

from ..tables import deal
from . import Row, kept, training
from .draws import over_draws

OWN = ("train_error", "broadcasts")
"""Columns that these cells add to those of :mod:`.training`."""


@dataclass
class _Watch:
    """An observer of what sites sent: after every round the models, and how many vectors each
    site has sent.
    """

    models: list[Array] = field(default_factory=list)  # (R, N, d) each
    sent: list[Array] = field(default_factory=list)  # (R, N) each

    def __call__(self, k: int, state: Any) -> None:
        # every site starts at zero, and has sent nothing
        before: Any = 0.0
        many: Any = 0
        if self.models:
            before, many = self.models[-1], self.sent[-1]
        self.models.append(np.array(state.f))
        self.sent.append(many + np.any(state.f != before, axis=-1))


def run(p: Mapping[str, Any]) -> list[Row]:
    """:func:`on_one_draw` on each of `draws` draws of the random graph and the rows: see
    :func:`.training.run`.
    """
    return over_draws(on_one_draw, p)


def on_one_draw(p: Mapping[str, Any]) -> list[Row]:
    """Rows of :func:`.training.on_one_draw` with `train_error`, the average model on its own rows,
    and `broadcasts`.

    `broadcasts`: vectors that a site has sent, in the mean over sites; one that equals the last one
    counts as not sent.
    """
    rows = kept.once("graded.run", p, training.wanted_rounds(p), partial(_graded, p))
    own = [{key: row[key] for key in OWN if key in row} for row in rows]
    shared = [{key: value for key, value in row.items() if key not in OWN} for row in rows]
    return [row | more for row, more in zip(training.learned(shared, p), own, strict=True)]


def _graded(p: Mapping[str, Any]) -> list[Row]:
    watch, dealt = _Watch(), deal(p)
    rows = training.scored(p, watch)
    if not watch.models:  # left out
        return rows
    X, y = (np.concatenate([part[k] for part in dealt.parts]) for k in (0, 1))
    wrong = {
        k: dealt.task.model_errors(X, y, watch.models[k - 1].mean(axis=1))
        for k in {row["round"] for row in rows}
    }

    def own(k: int, r: int) -> Row:
        return dict(zip(OWN, (float(wrong[k][r]), float(watch.sent[k - 1][r].mean())), strict=True))

    return [row | own(row["round"], row["replicate"]) for row in rows]


def cost(p: Mapping[str, Any]) -> list[Row]:
    """:func:`run` at every total of `epsilons`, and what every test error of `errors` costs: 004,
    Figure 5.

    In rows with `target_error`, the column `cost` is the total at which the mean test error, never
    counted as rising with the total, first comes down to that; interpolated in its logarithm.  It
    is the largest total if none does, the smallest if all do.  A row a replicate: jackknife
    pseudovalues, whose mean and spread are those of the cost.

    Every round is scored, though the last one is told: so a cell that draws the curve finds its run
    done.
    """
    inner = {key: value for key, value in p.items() if key not in ("epsilons", "errors")}
    method = find_method(p["method"])
    if method is not None and not method.private:
        return _at_the_end(inner)
    totals, targets = [float(e) for e in p["epsilons"]], [float(e) for e in p["errors"]]
    found = [[row | {"epsilon": e} for row in _at_the_end({**inner, "epsilon": e})] for e in totals]
    rows = [row for each in found for row in each]
    # the method is left out at some total: there is no curve to read a cost from
    if any("test_error" not in row for row in rows):
        return rows
    errors = np.array([[row["test_error"] for row in each] for each in found])
    flat = [row.get("untestable_error") for row in rows]
    # a cost read from errors says nothing where errors say nothing at every total
    why = {}
    if all(flat):
        why = {"untestable": flat[0]}
    units = [{key: row[key] for key in ("replicate", "draw") if key in row} for row in found[0]]
    for target in targets:
        for unit, value in zip(units, jackknifed(errors, np.log(totals), target), strict=True):
            rows.append(unit | {"target_error": target, "cost": value} | why)
    return rows


def _at_the_end(p: Mapping[str, Any]) -> list[Row]:
    """:func:`run` with every round scored; the rows of the last round, and those without one."""
    rows = run({**p, "every": 1})
    last = max((row["round"] for row in rows if "round" in row), default=None)
    return [row for row in rows if row.get("round") in (last, None)]


def jackknifed(errors: Array, at: Array, target: float) -> list[float]:
    """Pseudovalues, one a replicate, of ``exp`` of the place on `at` where the mean of `errors`
    (places, R) falls.
    """

    def place(means: Array) -> float:
        falling = np.minimum.accumulate(means)[::-1]
        return float(np.exp(np.interp(target, falling, at[::-1])))

    many, whole = errors.shape[1], place(errors.mean(axis=1))
    if many == 1:
        return [whole]
    return [
        many * whole - (many - 1) * place(np.delete(errors, r, axis=1).mean(axis=1))
        for r in range(many)
    ]
