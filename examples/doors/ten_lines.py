import numpy as np

from sottovoce import ConsensusClassifier

rng = np.random.default_rng(0)  # rows that stand in for yours, and the hospital of each
X, hospital = rng.normal(size=(3000, 3)), rng.integers(4, size=3000)
y = np.where(X @ [1.0, -1.0, 0.5] + rng.logistic(size=3000) > 0, "ill", "well")
model = ConsensusClassifier(
    epsilon=1.0, data_norm=3.0, trust="sum", classes=["ill", "well"], random_state=0
)
model.fit(X, y, groups=hospital)
print(f"right: {model.score(X, y):.1%} with epsilon = {model.privacy_spent_['epsilon']:.2f}")
