"""Queries: the kinds of release.  Algorithms build queries; only the row guard answers them.

- :mod:`.statistic`: noisy gradients and proximal steps; :mod:`.correlated`, :mod:`.sparse_vector`;
- :mod:`.objective`: noise in the local objective (:mod:`.objective_noise`);
- :mod:`.bounded`, :mod:`.framed` and others: bounded sums, from which answers are computed;
- :mod:`.sums`, :mod:`.sum_attempt`: the same statistics, as sums over sites;
- :mod:`.vault`: what only queries may use, the rows, the noise and secrets between answers;
- :mod:`.reach`: bounds on answers from public facts; :mod:`.audit_hooks`: what an audit may know.
"""

from .base import Query, check_unit
from .bounded import (
    AtBounds,
    Bounded,
    Cells,
    Curvature,
    Gradient,
    HuberGradient,
    NoisyBounded,
    Positives,
    Products,
    ResidualMoments,
    Residuals,
    RowMean,
    Scores,
    SecondMoments,
    SlopeMoments,
)
from .corrections import Corrections
from .correlated import CarriedGradient, can_correlate_noise, within_reach
from .exits import Exits
from .framed import (
    FramedCurvature,
    FramedMoments,
    FramedResiduals,
    FramedSlopes,
    FramedSteps,
    Lengths,
)
from .numeric_moments import Misses
from .objective import PerturbedObjective, SecretStartObjective
from .objective_noise import GaussianLaw, SphericalLaw, check_law, noise_of_law
from .rates import RateGradient, RateHessian, RateMoments, RateSlopes, RateTotals
from .sparse_vector import GatedMinimiser, RedrawnGate
from .statistic import NoisyEpoch, NoisyGradient, NoisyMinimiser, SecretMinimiser
from .sums import Sum, query_for_release
from .table_sums import LevelSums, NumberSums, TableSums
from .vault import Secret, Vault

__all__ = [
    "AtBounds",
    "Bounded",
    "CarriedGradient",
    "Cells",
    "Corrections",
    "Curvature",
    "Exits",
    "FramedCurvature",
    "FramedMoments",
    "FramedResiduals",
    "FramedSlopes",
    "FramedSteps",
    "GatedMinimiser",
    "GaussianLaw",
    "Gradient",
    "HuberGradient",
    "Lengths",
    "LevelSums",
    "Misses",
    "NoisyBounded",
    "NoisyEpoch",
    "NoisyGradient",
    "NoisyMinimiser",
    "NumberSums",
    "PerturbedObjective",
    "Positives",
    "Products",
    "Query",
    "RateGradient",
    "RateHessian",
    "RateMoments",
    "RateSlopes",
    "RateTotals",
    "RedrawnGate",
    "ResidualMoments",
    "Residuals",
    "RowMean",
    "Scores",
    "SecondMoments",
    "Secret",
    "SecretMinimiser",
    "SecretStartObjective",
    "SlopeMoments",
    "SphericalLaw",
    "Sum",
    "TableSums",
    "Vault",
    "can_correlate_noise",
    "check_law",
    "check_unit",
    "noise_of_law",
    "query_for_release",
    "within_reach",
]
