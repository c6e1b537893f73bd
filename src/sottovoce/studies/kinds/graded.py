"""Cells that train, scored on the training rows too: 004 plots the accuracy of training beside that of testing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runs.simulate import simulate
from ...util.typing import Any
from ..tables import deal
from . import Row, training


def run(p: Mapping[str, Any]) -> list[Row]:
    """Rows of :func:`.training.run` after the last round, with `train_error`: the average model on its own rows."""
    rows = training.run(p)
    dealt = deal(p)
    found = simulate(training._config(p, dealt.rows), dealt.rows, caveat=dealt.caveat)
    X, y = (np.concatenate([part[k] for part in dealt.parts]) for k in (0, 1))
    wrong = dealt.task.model_errors(X, y, found.models.mean(axis=1))
    return [row | {"train_error": float(wrong[row["replicate"]])} for row in rows]
