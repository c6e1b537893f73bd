"""Trust against accuracy

One budget under three kinds of trust, with 6,000 rows dealt to ever more sites. Under local trust
accuracy falls; sums stay beside the curator.
"""

import numpy as np
from style import plt, save

from sottovoce import ConsensusClassifier
from sottovoce.data import load

adult = load("adult")
sites = [3, 10, 40]
figure, axes = plt.subplots()
for trust in ("curator", "sum", "nobody"):
    errors = []
    for count in sites:
        draws = []
        for seed in range(3):
            model = ConsensusClassifier(
                "momentum",
                data_norm=1.0,
                fit_intercept=False,
                n_sites=count,
                rounds=50,
                trust=trust,
                knobs={"max_grad_norm": 0.3},
                random_state=seed,
            )
            model.fit(adult.X_train[:6000], adult.y_train[:6000])
            draws.append(100 - 100 * model.score(adult.X_test, adult.y_test))
        errors.append(np.mean(draws))
    axes.plot(sites, errors, "o-", label=trust)
axes.set(xscale="log", xlabel="sites that share 6,000 rows", ylabel="test error, %, mean of three")
axes.set_xticks(sites, map(str, sites))
axes.minorticks_off()
axes.legend(title="who is trusted", title_fontsize=10)
save(figure, __file__)
