"""Rounds

More rounds come nearer to the best model, and share the budget among more releases: at epsilon 0.3
each method has a valley.
"""

import numpy as np
from style import INK, plt, save

from sottovoce import RunConfig, TrainConfig, train

rounds = [2, 5, 10, 30, 100]
figure, axes = plt.subplots()
for method, style in (("prox_admm", "-"), ("momentum", "--")):
    for colour, epsilon in (("C0", 0.3), ("C1", 2.0)):
        errors = []
        for count in rounds:
            run = RunConfig.from_dict(
                {
                    "method": method,
                    "epsilon": epsilon,
                    "delta": 1e-5,
                    "rounds": count,
                    "max_grad_norm": 0.3,
                    "replicates": 5,
                    "seed": 0,
                }
            )
            report = train(TrainConfig(run, data="synthetic:n=6000,d=10"))
            errors.append(100 * np.mean(report.test_errors))
        axes.plot(
            rounds, errors, "o", ls=style, color=colour, label=f"{method}, epsilon {epsilon:g}"
        )
axes.axhline(100 * report.nonprivate_test_error, color=INK, lw=1, label="without privacy")
axes.set(xscale="log", xlabel="rounds", ylabel="test error, %, mean of five")
axes.set_xticks(rounds, map(str, rounds))
axes.minorticks_off()
axes.legend()
save(figure, __file__)
