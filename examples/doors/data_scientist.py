"""scikit-learn as you know it: a private classifier in a pipeline, beside the one without
privacy.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sottovoce import ConsensusClassifier

# 1. Digits 3 and 8, at five sites. Normalizer works row by row, so it learns nothing that is
# private.
X, y = load_digits(return_X_y=True)
X, y = X[np.isin(y, (3, 8))], y[np.isin(y, (3, 8))]
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# 2. The same pipeline, without privacy and with a budget.
plain = make_pipeline(Normalizer(), LogisticRegression(C=100)).fit(X_train, y_train)
print(f"without privacy      {plain.score(X_test, y_test):.1%} right")
epsilons, scores = (1.0, 3.0, 10.0), {}
for trust in ("sum", "nobody"):
    for epsilon in epsilons:
        private = ConsensusClassifier(
            "momentum",
            rounds=50,
            epsilon=epsilon,
            data_norm=1.0,
            trust=trust,
            random_state=0,
            verbose=False,
            knobs={"max_grad_norm": 0.3},
        )
        model = make_pipeline(Normalizer(), private).fit(X_train, y_train)
        scores[trust, epsilon] = model.score(X_test, y_test)
        print(f"trust {trust:6} epsilon {epsilon:<4g} {scores[trust, epsilon]:.1%} right")

# 3. What was spent, and what it does not cover.
spent = model[-1].privacy_spent_
print(f"epsilon {spent['epsilon']:.2f} at delta {spent['delta']:g}, {spent['relation']}")

# 4. The picture.
import matplotlib.pyplot as plt  # noqa: E402

inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams |= dict.fromkeys(inks, "#7f868e")
figure, axes = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
for trust, colour in (("sum", "#3a8fd0"), ("nobody", "#dd8a1f")):
    axes.plot(
        epsilons,
        [100 * scores[trust, e] for e in epsilons],
        "o-",
        color=colour,
        label=f"trust: {trust}",
    )
axes.axhline(100 * plain.score(X_test, y_test), color="#7f868e", ls="--", label="without privacy")
axes.set(xscale="log", xlabel="epsilon", ylabel="right on held-out rows, %")
axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
axes.legend(frameon=False)
figure.savefig("data_scientist.svg", transparent=True)
