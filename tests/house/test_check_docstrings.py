"""The check of docstrings finds what it is for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("numpydoc")  # scripts/check brings it; CI has both

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import check_docstrings

GOOD = '''
class Base:
    """A base.

    Parameters
    ----------
    size : int
        Its size.
    """

    size: int


class Derived(Base):
    """A dataclass that inherits a field.

    Parameters
    ----------
    name, size : str, int
        Both, in an order of its own.
    """

    name: str


def scale(rows, by, *shifts, **options):
    """Scale rows.

    Parameters
    ----------
    rows : array of shape (n_rows, d)
        The rows.
    by, *shifts : float
        Factors.
    **options
        More.

    Returns
    -------
    array
        Scaled rows.

    Raises
    ------
    ValueError
        If `by` is 0.

    Guarantee
    ---------
    None.
    """


def _private(one, two, three):
    """Take three of anything."""


@click.option("--one")
def command(one, two, three):
    """Do what the help says."""
'''

FAULTS = {
    ("by, *shifts : float", "*shifts : float"): ("scale", "by"),
    ("rows : array of shape", "lines : array of shape"): ("scale", "lines"),
    ("name, size : str, int", "name, length : str, int"): ("Derived", "length"),
    ("Scale rows.", "scales rows."): ("scale", "capital"),
    ("Take three of anything.", "Take three of anything"): ("_private", "full stop"),
    ("Guarantee\n    ---------", "Promise\n    -------"): ("scale", "Promise"),
    ("Raises\n    ------", "Examples\n    --------"): ("scale", "order"),
    ('@click.option("--one")\n', ""): ("command", "one, two, three"),
}


def test_docstrings_that_fit_the_code_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    assert check_docstrings.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("edit", FAULTS, ids=lambda edit: edit[0].split("\n")[0])
def test_each_planted_fault_is_named_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: tuple[str, str]
) -> None:
    name, word = FAULTS[edit]
    assert GOOD.count(edit[0]) == 1
    (tmp_path / "bad.py").write_text(GOOD.replace(*edit))
    assert check_docstrings.main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(f": {name}: " in line for line in lines) and any(word in line for line in lines)
