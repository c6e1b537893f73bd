"""Centring

What rows have in common fills the ball that noise is scaled to; asking for their mean costs a
hundredth of the budget (epsilon 0.3).
"""

import numpy as np
from rows import made_up
from style import plt, save

from sottovoce import ConsensusClassifier

moved = [0, 2, 4, 8]
figure, axes = plt.subplots()
for centre, label in ((False, "rows as they are"), (True, "centred")):
    errors = []
    for far in moved:
        draws = []
        for seed in range(3):
            X, y = made_up(4000, seed, sharp=3.0)
            model = ConsensusClassifier(
                "momentum",
                rounds=40,
                epsilon=0.3,
                trust="sum",
                data_norm=3.0 + 2 * far,
                random_state=seed,
                knobs={"max_grad_norm": 0.3, "centre": centre},
            )
            draws.append(100 - 100 * model.fit(X + far, y).score(X + far, y))
        errors.append(draws)
    axes.plot(moved, np.mean(errors, axis=1), "o-", label=label)
    axes.fill_between(moved, np.min(errors, axis=1), np.max(errors, axis=1), alpha=0.2, lw=0)
axes.set(
    xlabel="how far all numbers are from zero", ylabel="error, %: mean, least and most of three"
)
axes.legend()
save(figure, __file__)
