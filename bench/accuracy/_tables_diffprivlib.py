"""Fits diffprivlib's LogisticRegression for tables.py, in an environment that has it.

It imports nothing of ours.  A line of JSON in (rows, epsilon, C, data_norm, seeds), a line out: a
model for each seed.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from diffprivlib.models import LogisticRegression


@lru_cache(maxsize=2)
def rows(path: str) -> tuple[Any, Any]:
    with np.load(path) as arrays:
        return arrays["X"], arrays["y"]


warnings.simplefilter("ignore")  # of fits that stop at its default of 100 iterations
for line in sys.stdin:
    job = json.loads(line)
    X, y = rows(job["rows"])
    models = [
        LogisticRegression(
            epsilon=job["epsilon"],
            data_norm=job["data_norm"],
            C=job["C"],
            fit_intercept=False,
            random_state=seed,
        )
        .fit(X, y)
        .coef_[0]
        .tolist()
        for seed in job["seeds"]
    ]
    print(json.dumps(models), flush=True)
