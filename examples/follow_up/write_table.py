"""Writes the table of a follow-up study, `rows.csv`, and the schemas of its two outcomes.

`python examples/follow_up/write_table.py FOLDER`: 8,000 people at three hospitals, with the days until death or
the end of follow-up, and falls with the years in which they were counted.  The true hazard ratios
are 1.35 for ten years of age and 0.67 for the treatment, the true rate ratios 1.22 and 0.74.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

COLUMNS = """
ignore = ["*"]

[columns]
age = { kind = "number", lo = 20, hi = 90 }
arm = { kind = "category", values = ["control", "treated"] }
"""
HAZARDS = 'label = { event = "died", time = "days", cuts = [30, 90, 180, 365] }\n'
RATES = """label = { column = "falls", lo = 0, hi = 5, family = "poisson" }
offset = { column = "years", lo = 0.1, hi = 5 }
"""


def main(folder: Path) -> None:
    rng, n = np.random.default_rng(0), 8000
    age, treated = rng.uniform(20, 90, n).round(1), rng.random(n) < 0.5
    death = rng.exponential(700 / np.exp(0.03 * (age - 55) - 0.4 * treated))
    end = rng.uniform(60, 700, n)
    years = rng.uniform(0.2, 5, n).round(2)
    falls = rng.poisson(0.2 * years * np.exp(0.02 * (age - 55) - 0.3 * treated))
    told = {
        "hospital": rng.choice(["north", "south", "west"], n),
        "age": age,
        "arm": np.where(treated, "treated", "control"),
        "days": np.minimum(death, end).round(1),
        "died": (death <= end).astype(int),
        "years": years,
        "falls": falls,
    }
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(told)
        writer.writerows(zip(*told.values(), strict=True))
    (folder / "survival.toml").write_text(HAZARDS + COLUMNS)
    (folder / "falls.toml").write_text(RATES + COLUMNS)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
