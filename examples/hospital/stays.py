"""Made-up stays, in a table as hospitals have it.  ``python stays.py`` writes stays.csv.

In 1% of the rows creatinine is in micromoles a litre, in a column of milligrams a decilitre; a ward
is spelled wrongly in a few; values are missing; admissions are dates.
"""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from math import exp

WARDS = ("general", "surgery", "icu")
MICROMOLES = 88.4  # in a milligram of creatinine a decilitre, for a litre


def stays(n: int = 12_000, seed: int = 0) -> list[dict[str, object]]:
    """Rows of people who died or lived, by a model with known odds ratios."""
    rng, found = random.Random(seed), []
    for k in range(n):
        age, ward, smoker = rng.gauss(62, 14), rng.choices(WARDS, (6, 3, 1))[0], rng.random() < 0.3
        creatinine, lactate = rng.lognormvariate(0.0, 0.4), rng.lognormvariate(0.6, 0.5)
        odds = (
            0.05 * (age - 62)
            + 1.2 * (ward == "icu")
            + 0.6 * smoker
            + 0.5 * (creatinine - 1)
            + 0.4 * (lactate - 2)
            - 1
        )
        row: dict[str, object] = {
            "record": 100000 + k,
            "hospital": rng.choice(("north", "south", "east", "west")),
            "age": round(age),
            "sex": rng.choice("fm"),
            "ward": ward,
            "smoker": "yes" if smoker else "no",
            "creatinine": round(creatinine * (MICROMOLES if rng.random() < 0.01 else 1.0), 2),
            "lactate": round(lactate, 1),
            "admitted": date(2023, 1, 1) + timedelta(days=rng.randrange(730)),
            "outcome": "died" if rng.random() < 1 / (1 + exp(-odds)) else "lived",
        }
        if ward == "surgery" and rng.random() < 0.01:
            row["ward"] = "surgrey"
        for name, share in (("ward", 0.04), ("lactate", 0.2), ("smoker", 0.06), ("admitted", 0.03)):
            if rng.random() < share:
                row[name] = ""
        found.append(row)
    return found


if __name__ == "__main__":
    rows = stays()
    with open("stays.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"stays.csv: {len(rows):,} stays")
