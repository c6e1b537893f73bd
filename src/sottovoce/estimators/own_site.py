"""Which site's constant a row gets in predictions, for models with a constant for every site.

A row's site comes from `groups`, or from the schema's site column; a row of an unknown site gets
the average of the constants, of which the data owner is told.
"""

from __future__ import annotations

import numpy as np

from ..answers.own_site import note_on_unknown_sites
from ..answers.saved import SavedModel
from ..data.validation import site_of_each_row
from ..errors import HolderNote, InvalidInput
from ..util.typing import Any, IntArray
from .notices import Note


def model_with_named_coefficients(answered: SavedModel | None) -> SavedModel | None:
    """Return the model if it comes from inference or least squares; otherwise None."""
    if answered is None or answered.naming is None:
        return None
    return answered


def site_positions(answered: SavedModel | None, rows: Any, groups: Any) -> IntArray | None:
    """Return the index of each row's site among those of a model.

    Parameters
    ----------
    answered : SavedModel or None
        The fitted model.
    rows
        Raw columns of a table, or an array (n, p).
    groups : array-like (n,) or None
        The site of every row; None for the column that the model knows.

    Returns
    -------
    array of int (n,) or None
        None if all rows have one constant.
    """
    model = model_with_named_coefficients(answered)
    if model is None:
        return None
    sites = None
    if groups is not None:
        sites = site_of_each_row(groups, number_of_rows(rows))
    return model.site_indices(rows, sites)


def check_groups_are_used(where: IntArray | None, groups: Any) -> None:
    """Refuse (InvalidInput) `groups` for a model whose rows all have one constant."""
    if where is None and groups is not None:
        rule = "has no effect: this model has one constant for all rows, and none for single sites"
        raise InvalidInput("groups", None, rule, "leave it out")


def unknown_sites_note(where: IntArray | None, groups: Any) -> Note | None:
    """Return a note, for the data owner, on how many rows have a site unknown to the model."""
    if where is None:
        return None
    said = note_on_unknown_sites(where)
    if said is None:
        return None
    remedy = ""
    if groups is None:
        remedy = "; groups= names the site of every row"
    return Note("average site", f"{said}{remedy} (for the data's holder only)", HolderNote)


def number_of_rows(rows: Any) -> int:
    """Return the number of rows of a table or an array."""
    if hasattr(rows, "n_rows"):
        return int(rows.n_rows)
    return int(np.shape(rows)[0])
