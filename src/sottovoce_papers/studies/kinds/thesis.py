"""Cells of 003, a doctoral thesis, under one name: the functions are those of its other files."""

from .thesis_components import components
from .thesis_models import one_site, parties
from .thesis_more import changes, huber, improved, orders
from .thesis_solvers import algorithm_2, folds, nelder_mead

__all__ = [
    "algorithm_2",
    "changes",
    "components",
    "folds",
    "huber",
    "improved",
    "nelder_mead",
    "one_site",
    "orders",
    "parties",
]
