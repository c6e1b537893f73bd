"""Compatibility of files between versions, and the message that refuses files of other formats.

A ledger opens in every later version with the same privacy loss: it holds events, and a published
event never changes its meaning.  Nothing else of versions before 0.3 can be used.  Since then
saved models, plans, checkpoints, pickled estimators, and runs in ledgers record their format; one
without a format, or of an earlier one, is refused before anything else of it is read.
"""

from __future__ import annotations

from typing import NamedTuple

from .typing import Any

FORMAT = 3
"""Number of the format that this version writes and reads."""
FORMER = "is from a version before 0.3, which this version cannot continue"
"""The rule by which a file, or a run in a ledger, of an earlier format is refused."""


class Refusal(NamedTuple):
    """The rule by which a file is not read, and the remedy."""

    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}; {self.remedy}"


def check_file_format(found: Any, remedy: str) -> Refusal | None:
    """Return why a file of another format is not read; None for the present format.

    Parameters
    ----------
    found : int or None
        What the file says of its format: before 0.3 it was 1, 2 or nothing.
    remedy : str
        What to do with a file of a version before 0.3.

    Returns
    -------
    Refusal or None

    Raises
    ------
    ValueError
        If no version ever wrote such a format.
    """
    if found is None:
        return Refusal(FORMER, remedy)
    # True is an instance of int, and no format.
    if type(found) is not int or found < 1:
        raise ValueError("no format of any version")
    if found < FORMAT:
        return Refusal(FORMER, remedy)
    if found > FORMAT:
        rule = f"is of a later version: its format is {found}, and this version reads {FORMAT}"
        return Refusal(rule, "update sottovoce")
    return None
