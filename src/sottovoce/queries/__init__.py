"""Kinds of release, one file each.  Algorithms build queries; only a curator answers them."""

from .base import Query, Vault
from .gated import GatedMinimiser, RedrawnGate
from .objective import (
    GaussianLaw,
    PerturbedObjective,
    SecretStartObjective,
    SphericalLaw,
    check_law,
    law_of,
    rate_for_epsilon,
)
from .statistic import NoisyEpoch, NoisyGradient, NoisyMinimiser, NoisyStatistic, NoisyValue, SecretMinimiser

__all__ = [
    "GatedMinimiser",
    "GaussianLaw",
    "NoisyEpoch",
    "NoisyGradient",
    "NoisyMinimiser",
    "NoisyStatistic",
    "NoisyValue",
    "PerturbedObjective",
    "Query",
    "RedrawnGate",
    "SecretMinimiser",
    "SecretStartObjective",
    "SphericalLaw",
    "Vault",
    "check_law",
    "law_of",
    "rate_for_epsilon",
]
