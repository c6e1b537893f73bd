"""A dropout

Twenty sites agree on a run of sums, and some are gone on the day. The promise stays; the same noise
falls on fewer rows.
"""

import numpy as np
from rows import made_up
from style import BLUE, ORANGE, plt, save

from sottovoce import ConsensusClassifier

X, y = made_up(6000, sharp=3.0)
X_new, y_new = made_up(4000, seed=1, sharp=3.0)
site = np.arange(len(y)) % 20
gone = [0, 2, 4, 6, 8]
errors, spread = [], []
for left in gone:
    stay = site >= left
    models = [
        ConsensusClassifier(
            "momentum",
            rounds=30,
            epsilon=0.5,
            data_norm=3.0,
            trust="sum",
            knobs={"max_grad_norm": 0.3},
            random_state=seed,
        ).fit(X[stay], y[stay], groups=site[stay])
        for seed in range(6)
    ]
    errors.append([100 - 100 * model.score(X_new, y_new) for model in models])
    spread.append(
        np.std([model.coef_[0] / np.linalg.norm(model.coef_) for model in models], axis=0).mean()
    )
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(5.2, 4.4))
above.plot(gone, np.mean(errors, axis=1), "o-", color=BLUE)
above.fill_between(
    gone, np.min(errors, axis=1), np.max(errors, axis=1), color=BLUE, alpha=0.25, lw=0
)
above.set_ylabel("error, %")
below.plot(gone, spread, "o-", color=ORANGE)
below.set(xlabel="sites gone, of 20", ylabel="noise of a\ncoefficient", ylim=(0, None))
save(figure, __file__)
