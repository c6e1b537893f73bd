"""From an Arrow table with text, gaps and dates to a private model and named coefficients."""

import pyarrow as pa
from pyarrow import csv

from sottovoce import ConsensusClassifier

table = csv.read_csv("patients.csv", convert_options=csv.ConvertOptions(strings_can_be_null=True))
model = ConsensusClassifier(schema="patients.toml", epsilon=1.0, trust="sum").fit(table)
print(pa.table(model.coefficients_))
print(model.summary())
