"""Privacy against accuracy

Test error on the census data, five sites under local trust. From epsilon 1 on it is nearly that
without privacy.
"""

import numpy as np
from style import BLUE, INK, plt, save

from sottovoce import RunConfig, TrainConfig, train

epsilons = [0.03, 0.1, 0.3, 1.0, 3.0]
found = [
    train(
        TrainConfig(
            RunConfig("prox_admm", epsilon=epsilon, delta=1e-5, replicates=5, seed=0), data="adult"
        )
    )
    for epsilon in epsilons
]
errors = 100 * np.array([report.test_errors for report in found])

figure, axes = plt.subplots()
axes.fill_between(epsilons, errors.min(1), errors.max(1), color=BLUE, alpha=0.25, lw=0)
axes.plot(epsilons, errors.mean(1), "o-", label="private: mean, least and most of five")
axes.axhline(100 * found[0].nonprivate_test_error, color=INK, ls="--", label="without privacy")
axes.axhline(
    100 * found[0].baseline_test_errors["majority"], color=INK, ls=":", label="the commoner class"
)
axes.set(xscale="log", xlabel="epsilon, in total", ylabel="test error, %", ylim=(12, 29))
axes.set_xticks(epsilons, map(str, epsilons))
axes.legend(loc="upper right")
save(figure, __file__)
