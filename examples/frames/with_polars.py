"""From a polars frame with text, gaps and dates to a private model and named coefficients."""

import polars as pl

from sottovoce import ConsensusClassifier

frame = pl.read_csv("patients.csv", try_parse_dates=True)
model = ConsensusClassifier(schema="patients.toml", epsilon=1.0, trust="sum").fit(frame)
print(pl.DataFrame(model.coefficients_))
print(model.summary())
