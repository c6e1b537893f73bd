"""How many rows

Noise in a standard error falls with the rows, sampling with their root: with enough rows privacy is
nearly free.
"""

import numpy as np
from rows import made_up
from style import INK, plt, save

from sottovoce import ConsensusClassifier

sizes = [2000, 5000, 12000, 30000]
figure, axes = plt.subplots()
for epsilon in (0.5, 1.0, 3.0, float("inf")):
    errors = []
    for size in sizes:
        model = ConsensusClassifier(
            epsilon=epsilon,
            data_norm=4.0,
            trust="sum",
            n_sites=4,
            inference=True,
            classes=["no", "yes"],
            random_state=0,
        )
        errors.append(model.fit(*made_up(size)).coefficients_[0]["standard_error"])
    private = np.isfinite(epsilon)
    label = f"epsilon {epsilon:g}" if private else "no privacy"
    axes.plot(
        sizes,
        np.array(errors, dtype=float),
        "o-" if private else "--",
        color=None if private else INK,
        label=label,
    )
axes.set(
    xscale="log",
    yscale="log",
    xlabel="rows, of four sites",
    ylabel="standard error of a coefficient",
)
axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
axes.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
axes.minorticks_off()
axes.legend()
save(figure, __file__)
