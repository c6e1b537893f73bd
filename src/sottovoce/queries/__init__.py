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
from .sums import Among, Sum, SummedGradient, SummedMinimiser
from .vault import Secret, Vault

__all__ = [
    "Among",
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
    "Sum",
    "SummedGradient",
    "SummedMinimiser",
    "Vault",
    "check_law",
    "law_of",
    "rate_for_epsilon",
]
