"""Cells of 003: see the functions named here."""

from .thesis_components import components
from .thesis_models import one_site, parties
from .thesis_more import huber, improved, utility
from .thesis_solvers import algorithm_2, folds, nelder_mead
from .thesis_table import changes, table_6_1

__all__ = [
    "algorithm_2", "changes", "components", "folds", "huber", "improved", "nelder_mead", "one_site", "parties",
    "table_6_1", "utility",
]  # fmt: skip
