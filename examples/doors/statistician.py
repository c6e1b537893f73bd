"""Four hospitals ask one question: which columns go with coming back, and how sure is that?"""

import numpy as np

from sottovoce import ConsensusClassifier

# 1. Stays at four hospitals, made up by a known rule; yours come from a CSV file.
rng = np.random.default_rng(0)
n = 20_000
stays = {
    "age": rng.integers(30, 95, n).astype(float),
    "ward": rng.choice(["medicine", "surgery", "geriatrics"], n),
    "admissions": np.minimum(rng.poisson(1.0, n), 8).astype(float),
    "hospital": rng.choice(["Birkenau", "Eichberg", "Lindental", "Ulmenhof"], n),
}
odds = -3.0 + 0.02 * stays["age"] + 0.4 * stays["admissions"] - 0.5 * (stays["ward"] == "surgery")
stays["back"] = np.where(odds + rng.logistic(size=n) > 0, "yes", "no")

# 2. Public facts about the columns: from the study's protocol, never from the rows.
schema = {
    "label": {"column": "back", "positive": "yes", "negative": "no"},
    "site": "hospital",
    "intercept": True,
    "columns": {
        "age": {"kind": "number", "lo": 18, "hi": 110, "typical": [30, 95]},
        "ward": {"kind": "category", "values": ["medicine", "surgery", "geriatrics"]},
        "admissions": {"kind": "number", "lo": 0, "hi": 10, "typical": [0, 4]},
    },
}

# 3. Coefficients with intervals: only sums over the four hospitals are seen by anybody.
model = ConsensusClassifier(
    schema=schema, epsilon=2.0, trust="sum", inference=True, random_state=0
).fit(stays)
print(model.coefficients_)
print()
print(model.privacy_spent_["says"])

# 4. The picture of the odds ratios.
import matplotlib.pyplot as plt  # noqa: E402

inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams |= dict.fromkeys(inks, "#7f868e")
lines = [
    line for line in model.coefficients_ if line["odds_ratio_low"] and line["name"] != "(constant)"
]
figure, axes = plt.subplots(figsize=(5.2, 2.6), layout="constrained")
for row, line in enumerate(lines):
    axes.plot([line["odds_ratio_low"], line["odds_ratio_high"]], [row, row], color="#3a8fd0", lw=2)
    axes.plot(line["odds_ratio"], row, "o", color="#3a8fd0")
axes.axvline(1.0, color="#7f868e", lw=1)
axes.set_yticks(
    range(len(lines)), [": ".join(filter(None, (line["name"], line["level"]))) for line in lines]
)
axes.invert_yaxis()
axes.set(xscale="log", xlabel="odds ratio, per unit, with 95% interval")
axes.set_xticks([0.5, 0.7, 1.0, 1.5], ["0.5", "0.7", "1", "1.5"])
axes.minorticks_off()
figure.savefig("statistician.svg", transparent=True)
