"""Principal components

Directions of most variance, from noisy sums at five sites. Hollow ones, and what is below the
dashed line, may be noise.
"""

import numpy as np
from style import plt, save

from sottovoce import ConsensusPCA

rng = np.random.default_rng(0)
X = rng.normal(size=(6000, 6)) * [1.0, 0.7, 0.45, 0.25, 0.12, 0.1]
figure, axes = plt.subplots()
for colour, epsilon in (("C0", 0.3), ("C1", 3.0)):
    model = ConsensusPCA(6, data_norm=3.0, epsilon=epsilon, trust="sum", random_state=0).fit(X)
    at = np.arange(1, 7) + (0.08 if epsilon > 1 else -0.08)
    size = np.sqrt(model.explained_variance_)
    axes.vlines(at, 0, size, color=colour, lw=1.5)
    axes.plot(at, size, "o", color=colour, mfc="none", ms=8, mew=1.6, label=f"epsilon {epsilon:g}")
    axes.plot(at[model.clear_], size[model.clear_], "o", color=colour, ms=8)
    axes.axhline(np.sqrt(model.noise_), color=colour, ls="--", lw=1)
axes.set(xlabel="component", ylabel="standard deviation along it", ylim=(0, None))
axes.legend()
save(figure, __file__)
