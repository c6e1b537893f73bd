"""What the tests of the command line share: calls, a table of a user's, and how to read answers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.algorithms import REGISTRY

METHODS = list(REGISTRY)
PRIVATE = ["dvp", "r_admm", "mr_admm"]  # whose price has the curvature in it
ROWS = ("--data", "synthetic:n=600,d=5,seed=1", "--rho", "0.02", "--eta", "0.05", "--rounds", "6")
SMALL = (*ROWS, "--method", "mr_admm", "--pure")  # where a test is not about the choice of a method
REQUIRED = {
    "method",
    "nodes",
    "rounds",
    "replicates",
    "test_error",
    "test_error_sd",
    "nonprivate_test_error",
    "privacy",
    "seconds",
}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as strict JSON: no NaN and no Infinity."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Call = Callable[..., Ran]


@dataclass(frozen=True)
class ErrorLine:
    """The parts of ``error: field=value: rule; remedy``; value and remedy are empty if left out."""

    field: str
    value: str
    rule: str
    remedy: str


def parse_error_line(text: str) -> ErrorLine:
    """Parse the last line of standard error, which is a command's error."""
    found = re.fullmatch(
        r"error: (?P<field>[^=:]+)(?:=(?P<value>'(?:[^'\\]|\\.)*'|[^:]*))?: "
        r"(?P<rule>[^;]*)(?:; (?P<remedy>.*))?",
        text.splitlines()[-1],
    )
    assert found is not None, text
    return ErrorLine(**{name: part or "" for name, part in found.groupdict().items()})


# A table of the user's.  Every value is unlike anything that a message has reason to say.

SCHEMA = """\
name = "clinic"
intercept = true
site = "hospital"
label = { column = "outcome", positive = "sick", negative = "well" }

[columns.age]
kind = "bins"
edges = [18, 30, 45, 60, 80]

[columns.dose]
kind = "number"
lo = 0
hi = 10

[columns.colour]
kind = "category"
values = ["vermilion", "indigo", "ochre"]
"""
HEADER = ["age", "dose", "colour", "hospital", "outcome"]
PUBLIC = {"vermilion", "indigo", "ochre", "sick", "well"}  # declared in the schema
Table = list[list[str]]


def make_table(n: int = 400, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(18, 80, n), rng.uniform(0, 10, n)
    colour = rng.choice(["vermilion", "indigo", "ochre"], n)
    hospital = rng.choice(["quarzberg", "tannfels", "ulmenau", "weidach"], n)
    score = (age - 50) / 12 + 0.5 * (dose - 5) + 1.5 * (colour == "indigo") + rng.logistic(size=n)
    outcome = np.where(score > 0, "sick", "well")
    columns = zip(age, dose, colour, hospital, outcome, strict=True)
    return [[f"{a:.5f}", f"{s:.6f}", str(c), str(h), str(o)] for a, s, c, h, o in columns]


def write_csv(path: Path, table: Table, header: list[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(table)
    return path


@dataclass(frozen=True)
class Clinic:
    """Files in the working folder, and the arguments that train on them."""

    table: Table
    csv: Path
    schema: Path

    @property
    def train(self) -> tuple[object, ...]:
        knobs = (
            "--rho",
            "0.02",
            "--eta",
            "0.05",
            "--epsilon",
            "4",
            "--rounds",
            "6",
            "--nodes",
            "3",
        )
        knobs += ("--partition", "iid")
        knobs += ("--method", "mr_admm", "--pure")
        return ("train", "--data", self.csv, "--schema", self.schema, *knobs)

    @property
    def test_rows(self) -> Table:
        """The held-out rows: the first fifth of the loader's permutation, in the order of the
        file.
        """
        n = len(self.table)
        held = np.sort(np.random.default_rng(0).permutation(n)[: round(0.2 * n)])
        return [self.table[k] for k in held]

    def says_nothing_private(self, message: str) -> None:
        values = {value for row in self.table for value in row if len(value) > 2} - PUBLIC
        assert len(values) > len(self.table)
        assert [value for value in values if value in message] == []


def epsilon_for(method: str) -> tuple[str, ...]:
    cls = REGISTRY[method]
    delta = ("--delta", "1e-5") if cls.needs_delta else ("--pure",)
    return ("--method", method, "--epsilon", "5" if cls.private else "inf", *delta)


def numbers(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "seconds"}
