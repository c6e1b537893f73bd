"""Make the packaged raw tables from the original files: ``python scripts/make_data.py SOURCE_DIR``.

``SOURCE_DIR`` holds ``adult/adult.data.gz``, ``adult/adult.test.gz``, ``adult/adult.names`` and
``mnist37/mnist37.npz``.  Rows are only reshaped here, never encoded: encoding is the schema's work.
No time stamp enters any file, so that the same sources always give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path

import numpy as np

TABLES = Path(__file__).resolve().parents[1] / "src" / "sottovoce" / "data" / "tables"
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *(
        "relationship",
        "race",
        "sex",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
        "native-country",
    ),
    "income",
]
ADULT_ROWS = {"train": 32_561, "test": 16_281}  # as adult.names counts them
# (threes, sevens) of the original split
MNIST37_ROWS = {
    "train": (6_131, 6_265),
    "test": (1_010, 1_028),
}

ADULT_NOTE = """\
# Adult (census income)

48,842 rows extracted from the 1994 census of the United States; the task is to tell whether a person earns
more than 50,000 dollars a year.

* Source: Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
  https://doi.org/10.24432/C5XW20
* Licence: Creative Commons Attribution 4.0 International (CC BY 4.0),
  https://creativecommons.org/licenses/by/4.0/
* Changes: `adult.data` and `adult.test` are concatenated, and the column `split` (train, test) says which
  file a row comes from; blanks around values are removed; `?` is an empty field; the full stop after the
  labels of the test file is removed. No row is dropped and no value is recoded: `adult.npz` holds every column
  as its distinct texts, and for every row the number of its text among them.
"""

MNIST37_NOTE = """\
# MNIST, digits 3 and 7

14,434 images of 28 x 28 grey pixels (0 to 255): all the threes and sevens of MNIST; the task is to tell a
seven from a three.

* Source: LeCun, Y., Cortes, C. and Burges, C. J. C. The MNIST database of handwritten digits.
  http://yann.lecun.com/exdb/mnist/
* Licence: Creative Commons Attribution-ShareAlike 3.0 (CC BY-SA 3.0),
  https://creativecommons.org/licenses/by-sa/3.0/. This file is under the same licence.
* Changes: only the threes and sevens are kept, in their original order, the 12,396 of the training set
  before the 2,038 of the test set. `pixels` is (14434, 784) uint8, `digit` is 3 or 7.
"""


def adult(source: Path) -> bytes:
    """Both original files: a column's distinct texts, and which of them every row has, which is
    quick to read.
    """
    table: list[list[str]] = []
    for split, name in (("train", "adult.data.gz"), ("test", "adult.test.gz")):
        with gzip.open(source / name, "rt", encoding="ascii", newline="") as lines:
            # The test file opens with a line of its own ("|1x3 Cross validator"); both end with a
            # blank one.
            rows = [
                row
                for row in csv.reader(lines, skipinitialspace=True)
                if len(row) == len(ADULT_COLUMNS)
            ]
        if len(rows) != ADULT_ROWS[split]:
            raise SystemExit(f"{name}: {len(rows)} rows, {ADULT_ROWS[split]} expected")
        for row in rows:
            values = ["" if value.strip() == "?" else value.strip() for value in row]
            table.append([*values[:-1], values[-1].removesuffix("."), split])
    arrays = {}
    for column, texts in zip([*ADULT_COLUMNS, "split"], np.array(table).T, strict=True):
        values, numbers = np.unique(texts, return_inverse=True)
        arrays[column] = numbers.astype(np.min_scalar_type(len(values) - 1))
        arrays[f"{column} values"] = values.astype(f"U{max(map(len, values))}")
    return packed(**arrays)


def mnist37(source: Path) -> bytes:
    """Pixels and digits; the source marks a three by +1 and a seven by -1."""
    with np.load(source / "mnist37.npz") as arrays:
        pixels, digit = (
            arrays["X"].astype(np.uint8),
            np.where(arrays["y"] > 0, 3, 7).astype(np.int8),
        )
    first = sum(MNIST37_ROWS["train"])
    for split, rows in (("train", digit[:first]), ("test", digit[first:])):
        if (int(np.sum(rows == 3)), int(np.sum(rows == 7))) != MNIST37_ROWS[split]:
            raise SystemExit(
                f"mnist37.npz: the {split} rows do not hold {MNIST37_ROWS[split]} threes and sevens"
            )
    return packed(pixels=pixels, digit=digit)


def packed(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # zip members carry the constant date 1980-01-01
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Make the packaged tables from the original files."
    )
    parser.add_argument("source", type=Path, help="folder with adult/ and mnist37/")
    source = parser.parse_args().source
    if not (source / "adult" / "adult.names").is_file():
        raise SystemExit(f"{source}: no adult/adult.names there")
    TABLES.mkdir(parents=True, exist_ok=True)
    (TABLES / "adult.npz").write_bytes(adult(source / "adult"))
    (TABLES / "mnist37.npz").write_bytes(mnist37(source / "mnist37"))
    (TABLES / "ADULT.md").write_text(ADULT_NOTE, encoding="utf-8")
    (TABLES / "MNIST37.md").write_text(MNIST37_NOTE, encoding="utf-8")


if __name__ == "__main__":
    main()
