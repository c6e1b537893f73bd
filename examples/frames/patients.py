"""Made-up patients as a hospital has them, with gaps.  ``python patients.py`` writes
patients.csv.
"""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from math import exp

WARDS = ("general", "surgery", "icu")


def patients(n: int = 4000, seed: int = 0) -> list[dict[str, object]]:
    """Rows of text, numbers, dates and truth values."""
    rng, found = random.Random(seed), []
    for _ in range(n):
        age, ward, smoker = rng.gauss(62, 14), rng.choices(WARDS, (6, 3, 1))[0], rng.random() < 0.3
        lactate = rng.lognormvariate(0.6, 0.5)
        odds = 0.07 * (age - 62) + 1.5 * (ward == "icu") + 0.8 * smoker + 0.9 * (lactate - 2) - 0.3
        row: dict[str, object] = {
            "hospital": rng.choice(("north", "south", "east", "west", "harbour")),
            "age": round(age),
            "ward": ward,
            "smoker": smoker,
            "lactate": round(lactate, 1),
            "admitted": date(2023, 1, 1) + timedelta(days=rng.randrange(730)),
            "outcome": "died" if rng.random() < 1 / (1 + exp(-odds)) else "lived",
        }
        for name, share in (("ward", 0.05), ("lactate", 0.2), ("admitted", 0.03)):
            if rng.random() < share:
                row[name] = None
        found.append(row)
    return found


if __name__ == "__main__":
    rows = patients()
    with open("patients.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
