"""Kaplan-Meier curves

Two arms of a trial, one release at epsilon 1: bands hold sampling and noise.
"""

import numpy as np
from style import save

from sottovoce import Schema, survival_curves

rng = np.random.default_rng(0)
arm = rng.choice(["placebo", "drug"], 3000)
time = rng.exponential(np.where(arm == "drug", 420, 300))
seen = np.minimum(time, rng.uniform(100, 900, 3000))
schema = Schema.from_dict(
    {
        "label": {"event": "died", "time": "days", "cuts": [30, 90, 180, 365]},
        "columns": {"arm": {"kind": "category", "values": ["placebo", "drug"]}},
    }
)
rows = {"days": seen, "died": time <= seen, "arm": arm}
found = survival_curves(rows, schema=schema, by="arm", epsilon=1.0, seed=0)
save(found.plot().figure, __file__)
