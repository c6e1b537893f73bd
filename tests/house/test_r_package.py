"""The R package: its own tests, the rows that it brings, and the R of the page about it.

`scripts/r` checks all of it, with the fits; here are the parts that are quick.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "r" / "sottovoce"
NEEDED = ("jsonlite", "testthat")
# Outcomes that follow from age and sex, for the page's example.
ROWS = """
set.seed(1)
n <- 4000
data <- data.frame(age = round(runif(n, 18, 100)), sex = sample(c("female", "male"), n, TRUE))
data$hospital <- sample(c("north", "east", "south"), n, TRUE)
data$died <- ifelse(0.05 * (data$age - 60) + rlogis(n) > 0, "yes", "no")
"""


def run_r(code: str, library: Path | None = None) -> str:
    """Run R code with this interpreter's sottovoce, and return what it printed."""
    command = ", ".join(f'"{one}"' for one in (sys.executable, "-m", "sottovoce"))
    env = dict(os.environ)
    if library is not None:
        env["R_LIBS"] = str(library)
    ran = subprocess.run(
        ["Rscript", "-e", f"options(sottovoce.command = c({command}))\n{code}"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of R with the package in it; a skip where R or what the package needs is absent."""
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    names = ", ".join(f'"{name}"' for name in NEEDED)
    if "FALSE" in run_r(f"sapply(c({names}), requireNamespace, quietly = TRUE)"):
        pytest.skip(f"R has not all of {', '.join(NEEDED)}")
    folder = tmp_path_factory.mktemp("library")
    subprocess.run(
        ["R", "CMD", "INSTALL", "--no-docs", f"--library={folder}", str(PACKAGE)],
        check=True,
        capture_output=True,
    )
    return folder


def test_the_tests_of_formulas_schemas_and_rows_pass(library: Path) -> None:
    """What needs no fit."""
    folder = PACKAGE / "tests" / "testthat"
    run_r(
        f'testthat::test_dir("{folder}", filter = "formula|schema|rows", package = "sottovoce", '
        'load_package = "installed", stop_on_failure = TRUE, reporter = "summary")',
        library,
    )


def test_the_page_about_r_runs(library: Path) -> None:
    """Its code gives a summary with the privacy statement of a release."""
    page = (ROOT / "docs" / "howto" / "r.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```r\n(.*?)```", page, flags=re.S)
    # The page ends with a value, which a script has to print.
    said = run_r(ROWS + code.replace("summary(fit)", "print(summary(fit))"), library)
    assert "epsilon = 3.000, delta = 1e-05, proved for one row of one site" in said
    assert "Simulation" not in said
    (line,) = re.findall(r"^age +(\S+) +(\S+)", said, flags=re.M)[:1]
    estimate, error = map(float, line)
    assert abs(estimate - 0.05) < 4 * error


def test_the_rows_in_the_package_are_those_of_the_tutorial(tmp_path: Path) -> None:
    """The script of the tutorial writes them again, to the last byte."""
    subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tutorial" / "hospitals.py")],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    brought = PACKAGE / "inst" / "extdata"
    rows = gzip.decompress((brought / "hospitals.csv.gz").read_bytes())
    assert rows == (tmp_path / "hospitals.csv").read_bytes()
    assert (brought / "new.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()


def test_the_schema_of_the_vignette_is_that_of_the_tutorial() -> None:
    """Each declaration of the tutorial's schema stands in the vignette."""
    vignette = (PACKAGE / "vignettes" / "hospital.Rmd").read_text(encoding="utf-8")
    tutorial = (ROOT / "examples" / "tutorial" / "readmission.toml").read_text(encoding="utf-8")
    for column, lo, hi in re.findall(
        r"\[columns\.(\w+)\]\nkind = .*\nlo = (\d+)\nhi = (\d+)", tutorial
    ):
        assert f"{column} = sv_number({lo}, {hi}" in vignette
    for column, values in re.findall(r"\[columns\.(\w+)\]\nkind = .*\nvalues = \[(.*)\]", tutorial):
        assert f"{column} = sv_levels({values})" in vignette


def test_versions_and_licences_agree() -> None:
    """Of the two packages."""
    described = (PACKAGE / "DESCRIPTION").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', project, flags=re.M)
    assert f"Version: {version}\n" in described
    assert 'license = "Apache-2.0"' in project
    assert "License: Apache License (== 2.0)" in described
