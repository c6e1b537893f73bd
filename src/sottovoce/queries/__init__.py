"""Kinds of release, one file each.  Algorithms build queries; only a curator answers them."""

from .base import Query
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
from .vault import Secret, Vault

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
    "Secret",
    "SecretMinimiser",
    "SecretStartObjective",
    "SphericalLaw",
    "Vault",
    "check_law",
    "law_of",
    "rate_for_epsilon",
]
