# %% [markdown]
# # A hospital's study: which columns go with coming back?
#
# Four hospitals want odds ratios with confidence intervals, and none may hand out its rows. The rows here are made by a
# known rule, so the answer can be checked. The last argument of the model, `random_state`, makes all of this a
# simulation that repeats itself; without it the same call is a release.

# %%
import numpy as np

from sottovoce import ConsensusClassifier

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

# %% [markdown]
# ## What is declared
#
# Bounds and levels come from the study's protocol, never from the rows: whatever is read off the rows would have to be
# paid for.

# %%
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

# %% [markdown]
# ## Odds ratios with intervals
#
# Under `trust="sum"` only sums over the four hospitals can be read by anybody, and these carry noise. An interval
# covers both the sampling of rows and that noise; *noise* is its share of the variance.

# %%
model = ConsensusClassifier(
    schema=schema, epsilon=2.0, trust="sum", inference=True, random_state=0
).fit(stays)
model.coefficients_

# %% [markdown]
# The rule that made the rows has 0.02 for age, 0.4 for admissions, -0.5 for surgery and 0 for geriatrics.

# %%
truth = {"age": 0.02, "surgery": -0.5, "geriatrics": 0.0, "admissions": 0.4}
for line in model.coefficients_:
    name = line["level"] or line["name"]
    if name in truth:
        held = line["low"] <= truth[name] <= line["high"]
        print(f"{name}: {truth[name]:g} is {'inside' if held else 'outside'} the interval")

# %% [markdown]
# ## A picture

# %%
axes = model.plot()

# %% [markdown]
# ## What it cost, for the protocol

# %%
print(model.privacy_spent_["says"])
