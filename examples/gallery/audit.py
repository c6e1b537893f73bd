"""An audit

The best attack we know against each method at a claimed epsilon of 1: lower bounds at 95%
confidence. A printed form right of its claim is refuted.
"""

import numpy as np
from style import BLUE, INK, ORANGE, plt, save

from sottovoce.audit import attack

forms = [
    ("output", "corrected"),
    ("objective", "corrected"),
    ("prox_average", "corrected"),
    ("r_admm", "corrected"),
    ("momentum", "corrected"),
    ("generalised", "printed"),
    ("dvp", "printed"),
]
figure, axes = plt.subplots()
for row, (method, form) in enumerate(forms):
    found = attack(method, form, replicates=4000)
    best = (
        found.lower_bound
        if found.exact_epsilon is None
        else max(found.lower_bound, found.exact_epsilon)
    )
    share = best / found.claimed_epsilon
    axes.barh(row, share, 0.6, color=ORANGE if share > 1.0 else BLUE)
axes.axvline(1.0, color=INK, lw=1.2)
axes.set_yticks(np.arange(len(forms)), [f"{method}, {form}" for method, form in forms])
axes.invert_yaxis()
axes.set_xlabel("epsilon shown by the attack / claimed")
save(figure, __file__)
