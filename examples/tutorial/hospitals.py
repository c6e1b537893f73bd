"""Make the table of docs/tutorial/first_study.md: stays at four hospitals, and who came back within
30 days.

``python hospitals.py`` writes ``hospitals.csv`` and ``new.csv``, which has no outcomes yet.  Nobody
in it exists: every number is drawn from the model below, so that a tutorial can be compared with
the truth.
"""

import csv
from pathlib import Path

import numpy as np

SEED, ROWS, NEW, LOST = 2026, 20_000, 5, 0.08
HOSPITALS = {  # share of the stays; mean age; shares of the wards; log-odds of its own
    "Birkenau": (0.30, 66.0, (0.50, 0.30, 0.20), -1.60),
    "Eichberg": (0.30, 70.0, (0.40, 0.30, 0.30), -1.40),
    "Lindental": (0.20, 63.0, (0.45, 0.40, 0.15), -1.70),
    "Ulmenhof": (0.20, 68.0, (0.50, 0.25, 0.25), -1.30),
}
WARDS = ("medicine", "surgery", "geriatrics")
# log-odds: a year, a man, a ward, an admission in the year before, a mmol/l, log(1 + days)
TRUTH = {
    "age": 0.02,
    "male": 0.20,
    "surgery": -0.40,
    "geriatrics": 0.50,
    "admissions": 0.35,
    "sodium": -0.06,
    "stay": 0.40,
}
HEAD = ("hospital", "age", "sex", "ward", "admissions", "sodium", "stay", "readmitted")


def table(n: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Rows of n stays, as texts."""
    shares, ages, wards, own = (list(column) for column in zip(*HOSPITALS.values(), strict=True))
    site = rng.choice(len(HOSPITALS), n, p=shares)
    age = np.clip(rng.normal(np.array(ages)[site], 14.0), 18, 100).round()
    male = rng.random(n) < 0.5
    ward = np.sum(rng.random(n)[:, None] > np.cumsum(np.array(wards)[site], axis=1)[:, :2], axis=1)
    often = rng.random(n) < 0.15
    admissions = np.minimum(rng.poisson(0.8, n) + often * rng.poisson(2.5, n), 15)
    sodium = np.clip(rng.normal(138.0, 4.5, n), 110, 165).round()
    stay = np.clip(np.exp(rng.normal(1.7, 0.6, n)), 1, 60).round()
    odds = (
        np.array(own)[site]
        + TRUTH["age"] * (age - 65.0)
        + TRUTH["male"] * male
        + np.array([0.0, TRUTH["surgery"], TRUTH["geriatrics"]])[ward]
        + TRUTH["admissions"] * admissions
        + TRUTH["sodium"] * (sodium - 138.0)
        + TRUTH["stay"] * (np.log1p(stay) - np.log1p(5.0))
    )
    back = rng.random(n) < 1.0 / (1.0 + np.exp(-odds))
    lost = rng.random(n) < LOST  # values that the laboratory did not send
    names, sexes, yes = list(HOSPITALS), ("female", "male"), ("no", "yes")
    return [
        (
            names[site[i]],
            f"{age[i]:.0f}",
            sexes[int(male[i])],
            WARDS[ward[i]],
            f"{admissions[i]}",
            "" if lost[i] else f"{sodium[i]:.0f}",
            f"{stay[i]:.0f}",
            yes[int(back[i])],
        )
        for i in range(n)
    ]


def write(path: Path, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def main() -> None:
    """Write both files into the current folder."""
    rng = np.random.default_rng(SEED)
    rows, new = table(ROWS, rng), table(NEW, rng)
    write(Path("hospitals.csv"), HEAD, rows)
    write(Path("new.csv"), HEAD[:-1], [row[:-1] for row in new])
    back = sum(row[-1] == "yes" for row in rows)
    print(
        f"hospitals.csv: {ROWS:,} stays, {100 * back / ROWS:.1f}% of the patients came back; "
        f"new.csv: {NEW} stays"
    )


if __name__ == "__main__":
    main()
