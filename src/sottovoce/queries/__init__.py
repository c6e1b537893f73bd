"""Kinds of release, one file each.  Algorithms build queries; only a curator answers them."""

from .base import Query, Vault
from .objective import GaussianLaw, PerturbedObjective, SphericalLaw, rate_for_epsilon

__all__ = ["GaussianLaw", "PerturbedObjective", "Query", "SphericalLaw", "Vault", "rate_for_epsilon"]
