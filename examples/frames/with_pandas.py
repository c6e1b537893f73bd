"""From a pandas frame with text, gaps and dates to a private model and named coefficients."""

import pandas as pd

from sottovoce import ConsensusClassifier

frame = pd.read_csv("patients.csv", parse_dates=["admitted"])
model = ConsensusClassifier(schema="patients.toml", epsilon=1.0, trust="sum").fit(frame)
print(pd.DataFrame(model.coefficients_))
print(model.summary())
