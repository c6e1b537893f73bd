"""Fits statsmodels' Logit for answers.py, in an environment that has it: ``python _answers_logit.py
ROWS.npz``.

It imports nothing of ours.  Prints JSON: parameters and standard errors of the table X, which has
its constant, and y.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from statsmodels.api import Logit

with np.load(sys.argv[1]) as arrays:
    found = Logit(arrays["y"], arrays["X"]).fit(disp=0, maxiter=100)
print(json.dumps({"params": found.params.tolist(), "errors": found.bse.tolist()}))
