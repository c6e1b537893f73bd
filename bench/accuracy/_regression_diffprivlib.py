"""Fits diffprivlib's LinearRegression for regression.py, in an environment that has it.

It imports nothing of ours.  A line of JSON in (rows, epsilon, bounds, seed), a line out:
coefficients and intercept.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression

warnings.simplefilter("ignore")
for line in sys.stdin:
    job = json.loads(line)
    with np.load(job["rows"]) as arrays:
        X, y = arrays["X"], arrays["y"]
    model = LinearRegression(
        epsilon=job["epsilon"],
        bounds_X=(job["low"], job["high"]),
        bounds_y=(-1.0, 1.0),
        random_state=job["seed"],
    ).fit(X, y)
    print(json.dumps([*model.coef_.tolist(), float(np.ravel(model.intercept_)[0])]), flush=True)
