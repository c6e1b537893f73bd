"""Survival curves

Time to an event with censored rows, from sums over five sites: predicted curves at two values of
the risk, beside the truth (thin).
"""

import numpy as np
from style import INK, plt, save

from sottovoce import ConsensusSurvival

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(8000, 1))
time = rng.exponential(10.0 * np.exp(-X[:, 0]))
edges = [0, 2, 4, 7, 10, 14, 20]
model = ConsensusSurvival(edges, epsilon=3.0, trust="sum", random_state=0)
model.fit(X, np.minimum(time, 20.0), time <= 20.0)

figure, axes = plt.subplots()
grid = np.linspace(0, 20, 81)
for value, colour, label in ((-0.8, "C0", "low risk"), (0.8, "C1", "high risk")):
    curve = model.predict_survival([[value]])[0]
    axes.plot(edges, [1.0, *curve], "o-", color=colour, label=label)
    axes.plot(grid, np.exp(-grid * np.exp(value) / 10.0), color=INK, lw=0.9)
axes.set(xlabel="months", ylabel="share without the event", ylim=(0, 1.02), xticks=edges)
axes.legend()
save(figure, __file__)
