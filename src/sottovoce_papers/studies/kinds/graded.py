"""Cells of 004: training with the training error and the number of sent vectors, and the total
epsilon that a given test error costs.
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
    """An observer that records, after every round, the sites' models and how many vectors each
    site has sent so far.
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
    """Run :func:`on_one_draw` on each of `draws` draws of the random graph and the rows.

    The parameters are those of :func:`.training.run`.
    """
    return over_draws(on_one_draw, p)


def on_one_draw(p: Mapping[str, Any]) -> list[Row]:
    """Return the rows of :func:`.training.on_one_draw` with `train_error` and `broadcasts`.

    `train_error` is the error of the average model on all training rows.  `broadcasts` is the mean
    number of vectors that a site has sent; one that equals the site's previous one counts as not
    sent.
    """
    rows = kept.once("graded.run", p, training.wanted_rounds(p), partial(_graded, p))
    own = [{key: row[key] for key in OWN if key in row} for row in rows]
    shared = [{key: value for key, value in row.items() if key not in OWN} for row in rows]
    return [row | more for row, more in zip(training.learned(shared, p), own, strict=True)]


def _graded(p: Mapping[str, Any]) -> list[Row]:
    """Run and score one draw, with `train_error` and `broadcasts`; see :func:`on_one_draw`."""
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
    """Run :func:`run` at every total of `epsilons`, and find the total that each test error of
    `errors` costs (004, Figure 5).

    In rows with `target_error`, the column `cost` is the total epsilon at which the mean test error
    first comes down to that error, interpolated in the logarithm of the total.  The mean error is
    replaced by its running minimum, so that it never rises with the total.  The cost is the largest
    total if no error is low enough, the smallest if all are.  There is one row per replicate, a
    jackknife pseudovalue: their mean and spread are those of the cost.

    Every round is scored, though only the last one is returned, so that a cell that draws the curve
    can reuse the run.
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
    """Run :func:`run` with every round scored; return the rows of the last round, and notes."""
    rows = run({**p, "every": 1})
    last = max((row["round"] for row in rows if "round" in row), default=None)
    return [row for row in rows if row.get("round") in (last, None)]


def jackknifed(errors: Array, at: Array, target: float) -> list[float]:
    """Compute jackknife pseudovalues, one per replicate, of the total that a test error costs.

    Parameters
    ----------
    errors : ndarray of shape (totals, R)
        Test errors at each total, of R replicates.
    at : ndarray of shape (totals,)
        Logarithms of the totals, increasing.
    target : float
        The test error to reach in the mean.

    Returns
    -------
    list of float
        R pseudovalues of the total; with one replicate the total itself.
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
