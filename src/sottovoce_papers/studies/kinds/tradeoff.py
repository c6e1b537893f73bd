"""Cells of 001, section V-C: the risk as a function of the budget alpha, the exponential fitted to
it, and the optimal budget (:mod:`sottovoce_papers.tradeoff`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any, Array

from ...tradeoff import (
    PRINTED,
    STATIONARY,
    AccuracyCurve,
    PrivacyUtility,
    fit_accuracy,
    optimal_alpha,
)
from . import Row, training

RISK, LOSS = "C times the loss", "the mean loss"
"""Units in which the printed c4 can be read."""


def run(p: Mapping[str, Any]) -> list[Row]:
    """Measure the empirical risk at budgets `alphas` after the rounds `at`, fit L_acc to it, and
    solve 001's problem (28).

    PVP as printed is scored before its last step.  With `rounds` the runs to the last of `at`
    continue to that round, so that they are the runs of another study.  The column ``what`` says
    what a row is; ``value`` is C times the mean loss, ``mean_loss`` the same without C, and
    ``share`` is ``value`` over the range of the measured means.
    "measured": rows of :func:`.training.run`.  "L_acc", "U_priv" and "J": curves over `alpha`.
    "printed": L_acc with the papers' constants, a curve for each of `constants` and `unit`, that of
    c4; c6 is as they say, from the risk at the largest alpha: the least over rounds (their first
    constants), or the mean over the last four fifths of them (their second).  "c5": fitted to every
    replicate by itself, and with `constants` as printed; "c4" likewise.  "optimum": the solution of
    (28), with `at_limit` 1 if a constraint holds there.
    """
    alphas, at = sorted(float(a) for a in p["alphas"]), sorted(int(k) for k in p["at"])
    inner = {key: value for key, value in p.items() if key not in ("alphas", "at", "rounds")}
    # its last step comes after the round
    late = int(p["method"] == "pvp" and p["form"] != "corrected")
    rows: list[Row] = []
    for k in at:
        found: dict[float, list[Row]] = {}
        rounds = k + late
        # the last run goes on to the rounds of another study, which then has it done
        if k == at[-1]:
            rounds = max(rounds, int(p.get("rounds", 0)))
        for alpha in alphas:
            # c6 of the papers is read from the curve of the largest budget
            every = k
            if alpha == alphas[-1]:
                every = max(1, k // 20)
            curve = training.run({**inner, "alpha": alpha, "rounds": rounds, "every": every})
            found[alpha] = [row for row in curve if row["round"] == k]
        measured = np.array([[row["kept_risk"] for row in found[alpha]] for alpha in alphas])
        means, span = measured.mean(axis=1), float(np.ptp(measured.mean(axis=1)))
        own = [
            row | {"what": "measured", "alpha": a, "value": row["kept_risk"]}
            for a in alphas
            for row in found[a]
        ]
        level: dict[int, list[float]] = {}
        # the last curve is that of the largest alpha
        for row in curve:
            if row["round"] <= k:
                level.setdefault(row["round"], []).append(row["kept_risk"])
        path = {j: float(np.mean(risks)) for j, risks in level.items()}
        floors = (
            min(path.values()),
            float(np.mean([risk for j, risk in path.items() if 5 * j >= k])),
        )
        own += _fitted(np.array(alphas), means, k, p) + _printed(np.array(alphas), floors, p["C"])
        own += _constants(np.array(alphas), measured)
        for row in own:
            if row["what"] in ("measured", "L_acc", "printed"):
                row |= {"mean_loss": row["value"] / p["C"], "share": row["value"] / span}
        rows += [{"round": k, "replicate": 0} | row for row in own]
    return rows


def _grid(alphas: Array) -> Array:
    """Return about 60 budgets for a smooth curve, with the measured ones among them."""
    return np.union1d(np.geomspace(alphas.min(), alphas.max(), 60)[1:-1], alphas)


def _printed(alphas: Array, floors: tuple[float, float], C: float) -> list[Row]:
    """Return rows of L_acc with the papers' constants; `floors` are the c6 of the two pairs."""
    rows: list[Row] = []
    for (c4, c5), c6 in zip(PRINTED, floors, strict=True):
        name = f"c4 = {c4:g}, c5 = {c5:g}"
        rows += [
            {"what": what, "constants": name, "value": c} for what, c in (("c4", c4), ("c5", c5))
        ]
        for unit, size in ((RISK, 1.0), (LOSS, C)):
            curve = AccuracyCurve(c4 * size, c5, c6)
            label = {"what": "printed", "constants": name, "unit": unit}
            grid = _grid(alphas)
            rows += [label | {"alpha": float(a), "value": float(curve.predict(a))} for a in grid]
    return rows


def _constants(alphas: Array, measured: Array) -> list[Row]:
    """Return rows of c4 and c5, fitted to the risks (alphas, R) of every replicate by itself.

    Replicates without a fit are left out.
    """
    rows: list[Row] = []
    for replicate, risks in enumerate(measured.T):
        try:
            curve = fit_accuracy(alphas, risks)
        except InvalidInput:
            continue
        rows += [
            {"what": name, "replicate": replicate, "value": float(getattr(curve, name))}
            for name in ("c4", "c5")
        ]
    return rows


def _fitted(alphas: Array, means: Array, k: int, p: Mapping[str, Any]) -> list[Row]:
    """Return rows of the curves fitted to the mean risks after round k, and of the optimum.

    c3 is nine tenths of the way from c6 up to the loss at the smallest budget.
    """
    name = f"{p.get('panel', p['method'])}, round {k}"
    try:
        curve = fit_accuracy(alphas, means)
        top = float(alphas.max())
        limit = curve.c6 + 0.9 * float(curve.predict(alphas.min()) - curve.c6)
        best = optimal_alpha(curve, PrivacyUtility(), alpha_U=top, c3=limit)
    except InvalidInput as error:
        return [
            {
                "what": "none",
                "alpha": float(alphas[0]),
                "value": 0.0,
                "_note": f"No fit for {name}: {error}",
            }
        ]
    grid = _grid(alphas)
    utility, fit = PrivacyUtility()(grid), curve.predict(grid)
    lines = {"L_acc": fit, "U_priv": utility, "J": fit - utility}
    note = (
        f"{name}: L_acc = {curve.c4:.3g} exp(-{curve.c5:.3g} alpha) + {curve.c6:.3g}, residual "
        f"{curve.residual:.2g}; "
        f"J is least at alpha = {best.alpha:.3g} ({best.where}), with c3 = {limit:.3g} and alpha_U "
        f"= {top:g}."
    )
    rows: list[Row] = [
        {"what": what, "alpha": float(a), "value": float(v)}
        for what, values in lines.items()
        for a, v in zip(grid, values, strict=True)
    ]
    return [
        *rows,
        {
            "what": "optimum",
            "alpha": float(best.alpha),
            "value": float(best.objective),
            "at_limit": int(best.where != STATIONARY),
            "_note": note,
        },
    ]
