"""Choice of the site constant for the prediction of a row: that of the row's site, if the model
knows it, else the average of all sites' constants.

A row's site affects its own prediction and no other row's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.values import Declared, objects_or_rows
from ..errors import InvalidInput
from ..util.typing import Any, IntArray

AVERAGE = -1
"""Index that stands for the average of the sites' constants."""

WITHOUT_SITE = (
    "Held-out rows belong to no site, as only training rows were partitioned: each was scored with "
    "the average of the sites' constants."
)
"""Note for a partition of the training rows alone.  It follows from the configuration, so it is
public.
"""


def indices_of_sites(names: Sequence[str], column: Any) -> IntArray:
    """Return the index of each row's site among `names`, (n,); `AVERAGE` for unknown sites.

    `column`, (n,), are raw values, which are compared as in training, by
    :func:`sottovoce.data.values.canonical_text`.
    """
    known = Declared({name: k for k, name in enumerate(names)})
    if isinstance(column, list | tuple):
        # NumPy would read one value of a list by another's kind.
        values = objects_or_rows(column)
    else:
        values = np.asarray(column)
    return known.meanings_of_column(values, AVERAGE)


def index_of_site(names: Sequence[str], site: str | int) -> int:
    """Return the index of a site among `names`, by its name or else by its number from 0 on.

    Raises
    ------
    InvalidInput
        If the model knows no such site, or all sites share a constant.
    """
    if not names:
        rule = "needs a model with a constant for each site, and this one has one for all rows"
        raise InvalidInput("site", site, rule, "leave --site out")
    found = Declared({name: k for k, name in enumerate(names)}).meaning_of_text(str(site), AVERAGE)
    if found != AVERAGE:
        return int(found)
    number = whole_number_in_text(site)
    if number is not None and 0 <= number < len(names):
        return number
    shown = ", ".join(names[:8])
    if len(names) > 8:
        shown += ", ..."
    rule = f"is not a site of this model, whose sites are {shown}"
    remedy = f"use the name of a site, or its number from 0 to {len(names) - 1}"
    raise InvalidInput("site", site, rule, remedy)


def whole_number_in_text(site: str | int) -> int | None:
    """Return the whole number that a text holds; None if it holds none."""
    text = str(site).strip()
    digits = text.removeprefix("-")
    # Foreign digits are digits too, and int() takes texts of any length.
    if digits.isascii() and digits.isdigit() and len(digits) < 10:
        return int(text)
    return None


def note_on_unknown_sites(where: IntArray) -> str | None:
    """Return a note on the rows that get the average of the constants; None without such rows.

    `where`, (n,), are indices by :func:`indices_of_sites`.
    """
    many = int(np.sum(where == AVERAGE))
    if not many:
        return None
    return (
        f"{many:,} of {len(where):,} rows name no site that the model knows: they get the average "
        "of the sites' constants"
    )
