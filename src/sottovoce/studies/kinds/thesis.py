"""Cells of 003: see the functions named here."""

from .thesis_components import components
from .thesis_models import one_site, parties
from .thesis_more import huber, improved, utility
from .thesis_table import table_6_1

__all__ = ["components", "huber", "improved", "one_site", "parties", "table_6_1", "utility"]
