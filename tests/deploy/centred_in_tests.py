"""What the tests of centring between sites share: rows that are mostly offset, and a plan that
takes it away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sites_in_tests import Consortium

from sottovoce.data.rows import Rows
from sottovoce.deploy.asks import Asks, SiteTable
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member, training_row_counts
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.runs.centre import Frame, decide_centring
from sottovoce.runs.config import RunConfig

P, K = 5, 0.4
MEAN = np.array([0.4, 0.35, -0.3, 0.4])
FRAME = Frame((P - 1,), K, 2.0, ((0, 1, 3),))
NAMES, SIZES = ("north", "east", "south", "west"), (300, 90, 150, 210)
"""Of different sizes: each has its own sensitivity, and all have one mean."""


def tables_of() -> list[SiteTable]:
    rng = np.random.default_rng(0)
    truth, parts = rng.normal(size=P - 1), []
    for n in SIZES:
        z = 0.2 * rng.normal(size=(n, P - 1))
        X = np.hstack([MEAN + z, np.full((n, 1), K)])
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12))
        parts.append(SiteTable(X, np.where(z @ truth + 0.05 * rng.normal(size=n) > 0, 1.0, -1.0)))
    return parts


def centred(folder: Path, asks: Asks | None = None, **knobs: Any) -> Consortium:
    """Sites of a plan that centres."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "method": "prox_admm",
        "epsilon": 2.0,
        "delta": 1e-5,
        "rounds": 3,
        "seed": 3,
        "graph": "path",
    } | knobs
    config, rows = (
        RunConfig.from_dict(settings),
        Rows.build_from_parts([(one.X, one.y) for one in tables_of()]),
    )
    keys = {name: SigningKey.make() for name in NAMES}
    members = [
        Member(name, size, keys[name].public) for name, size in zip(NAMES, SIZES, strict=True)
    ]
    centre = decide_centring(config, training_row_counts(members, asks), P, FRAME).centring
    assert centre is not None
    return Consortium(
        folder,
        make_calibrated_plan(Proposal("trial", config, members, P, asks=asks, centre=centre)),
        keys,
        rows,
    )


SUMS: dict[str, Any] = {"method": "momentum", "trust": "sum", "graph": "complete"}
