"""What the tests of the durable ledger share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.ledger.durable import DurableLedger, rows_digest
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import SphericalObjectivePerturbation

DATA = rows_digest(np.arange(12.0).reshape(4, 3))


def release(
    beta: float = 0.5, claimed: float | None = None, nodes: int = 2
) -> SphericalObjectivePerturbation:
    return SphericalObjectivePerturbation(
        source="test",
        beta=np.full(nodes, beta),
        K=np.array([10.0, 40.0])[:nodes],
        curvature_bound=0.25,
        logistic=False,
        relation="replace-one",
        dimension=3,
        error=np.full(nodes, 1e-6),
        beta_release=np.full(nodes, 100.0),
        sigma_release=np.zeros(nodes),
        claimed=None if claimed is None else np.full(nodes, claimed),
    )


def price(beta: float = 0.5) -> float:
    """Of the first node, which is the dearer."""
    return float(PureAccountant().price_of_event(release(beta))[0])


def again(path: Path, **options: Any) -> DurableLedger:
    return DurableLedger.open(path, fingerprint=DATA, **options)


def environment() -> dict[str, str]:
    """In which another process finds this module."""
    here, known = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": here if known is None else os.pathsep.join([here, known])}
