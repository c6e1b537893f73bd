"""What the tests of answers between sites share: four sites with tables, and a plan that asks
for something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sites_in_tests import Consortium

from sottovoce.data.rows import Rows
from sottovoce.deploy.asks import Asks, SiteTable
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.session import SiteSession
from sottovoce.ledger.durable import DurableLedger
from sottovoce.runs.config import RunConfig

NAMES = ("north", "east", "south", "west")
SIZES = (420, 350, 510, 400)


@dataclass
class Answering(Consortium):
    """A consortium whose sites have tables."""

    tables: list[SiteTable] = field(default_factory=list)

    def session(self, name: str, ledger: DurableLedger, /, **changes: Any) -> SiteSession:
        return super().session(
            name, ledger, **({"table": self.tables[self.plan.index(name)]} | changes)
        )


def tables(sizes: tuple[int, ...] = SIZES, seed: int = 1) -> list[SiteTable]:
    """Rows in the unit ball, of a logistic model."""
    rng = np.random.default_rng(seed)
    made = []
    for n in sizes:
        X = rng.uniform(-0.55, 0.55, (n, 3))
        y = np.where(X @ [4.0, -2.0, 1.0] + rng.logistic(size=n) > 0, 1.0, -1.0)
        made.append(SiteTable(X, y))
    return made


def answering(
    folder: Path, asks: Asks, *, trust: str = "sum", names: tuple[str, ...] = NAMES, **knobs: Any
) -> Answering:
    """Sites of a plan that asks; of sums, K = 3 of 4 sites, t = 1."""
    folder.mkdir(parents=True, exist_ok=True)
    method = {"sum": "sum_momentum", "nobody": "prox_admm"}[trust] if not asks.inference else "auto"
    settings = {
        "method": method,
        "epsilon": 20.0,
        "delta": 1e-5,
        "rounds": 4,
        "seed": 3,
        "trust": trust,
    } | knobs
    made, sizes = tables()[: len(names)], SIZES[: len(names)]
    rows = Rows.build_from_parts([(table.X, table.y) for table in made])
    keys = {name: SigningKey.make() for name in names}
    members = [
        Member(name, size, keys[name].public) for name, size in zip(names, sizes, strict=True)
    ]
    plan = make_calibrated_plan(
        Proposal("trial", RunConfig.from_dict(settings), members, rows.d, asks=asks)
    )
    return Answering(folder, plan, keys, rows, budget=1000.0, tables=made)


TRAINED = Asks(evaluation=4.0, holdout=0.3)
INFERRED = Asks(inference=True)
BOTH = Asks(inference=True, site_constants=True, evaluation=4.0, holdout=0.3)
EVERY = {"trained": TRAINED, "inferred": INFERRED, "both": BOTH}
