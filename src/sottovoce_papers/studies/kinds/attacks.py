"""Cells that audit a method: the claimed epsilon against a lower bound from an attack."""

from __future__ import annotations

from collections.abc import Mapping

from sottovoce.audit import Claim, attack
from sottovoce.errors import SolverError
from sottovoce.util.typing import Any

from . import Row, check

_KNOWN = {
    "method",
    "form",
    "epsilon",
    "delta",
    "rounds",
    "games",
    "confidence",
    "seed",
    "replicates",
}


def game(p: Mapping[str, Any]) -> list[Row]:
    """Attack one claim, `replicates` times with different seeds: see
    :func:`sottovoce.audit.attack`.

    Parameters: `method`, `form`, `epsilon` (claimed in total), `delta`, `rounds`, `games` (runs on
    each of the two data sets), `confidence`. Columns: `claimed`, `proved`, `audited` (the lower
    bound on epsilon), `refuted` (0 or 1), `exact` (the exact epsilon, where quadrature gives it).
    """
    check(p, _KNOWN)
    rows = []
    for k in range(p["replicates"]):
        try:
            found = attack(
                p["method"],
                p["form"],
                Claim(p["epsilon"], p.get("delta"), p.get("rounds")),
                replicates=p["games"],
                seed=p["seed"] + k,
                confidence=p.get("confidence", 0.95),
            )
        except SolverError as error:
            return [
                {
                    "_note": f"{p['method']} ({p['form']}) at epsilon {p['epsilon']:g} cannot be "
                    f"played: {error}."
                }
            ]
        row = {
            "replicate": k,
            "claimed": found.claimed_epsilon,
            "proved": found.proved_epsilon,
            "audited": found.lower_bound,
            "refuted": int(found.refuted or found.is_refuted_exactly),
        }
        if found.exact_epsilon is not None:
            row["exact"] = found.exact_epsilon
        rows.append(row)
    return rows
