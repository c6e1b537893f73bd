"""Intervals

Coefficients with 95% intervals at three budgets and without privacy, from 12,000 synthetic rows.
Thin strokes are the truth.
"""

import numpy as np
from rows import TRUTH, made_up
from style import INK, plt, save

from sottovoce import ConsensusClassifier

X, y = made_up(12000)
figure, axes = plt.subplots()
for place, epsilon in enumerate((float("inf"), 4.0, 2.0, 1.0)):
    model = ConsensusClassifier(
        epsilon=epsilon,
        data_norm=4.0,
        trust="sum",
        n_sites=4,
        inference=True,
        classes=["no", "yes"],
        random_state=1,
    ).fit(X, y)
    lines = [line for line in model.coefficients_ if line["name"] != "(constant)"]
    at = np.arange(len(lines)) + 0.18 * place - 0.27
    middle = np.array([line["estimate"] for line in lines], dtype=float)
    low, high = (np.array([line[end] for line in lines], dtype=float) for end in ("low", "high"))
    label = "no privacy" if np.isinf(epsilon) else f"epsilon {epsilon:g}"
    axes.errorbar(middle, at, xerr=(middle - low, high - middle), fmt="o", capsize=2.5, label=label)
for row, value in enumerate(TRUTH):
    axes.plot([value, value], [row - 0.38, row + 0.38], color=INK, lw=1.2)
axes.set_yticks(range(len(TRUTH)), [f"x{k}" for k in range(len(TRUTH))])
axes.invert_yaxis()
axes.set_xlabel("log-odds per unit")
axes.legend(loc="lower right")
save(figure, __file__)
