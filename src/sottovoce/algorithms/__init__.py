"""Training methods, one file each, and their registry.

A *method* is the public half of an algorithm: it asks queries of a row guard and exchanges vectors
between nodes (:class:`sottovoce.algorithms.base.Algorithm`).  A *trust* says whom people trust with
their rows: "nobody" (local), "sum" (secure aggregation) or "curator" (central).  One class may run
under several trusts; every pair has a published name of its own, such as "sum_momentum".  A
*recipe* is a fixed list of releases that trains no model (:mod:`sottovoce.algorithms.recipe`).

U1 to U7 in guarantees are the upper bounds on privacy loss that are proved in docs/privacy/tight.md
and docs/privacy/objective_perturbation.md.

:class:`sottovoce.runs.config.RunConfig` looks methods up here by name.  A new method needs a file,
a line in :data:`METHODS`, a test and a page (docs/howto/extend.md); methods of other packages
are added by :func:`sottovoce.runs.registering.register`.
"""

from ..errors import InvalidInput
from ..util.typing import Any
from .admm import ADMM
from .base import Algorithm, Node
from .dp_admm import DPADMM
from .dvp import DVP
from .gradient import DGD, CentralSGD
from .gradient_tracking import GradientTracking
from .ipp_admm import IPPADMM
from .knobs import Knob, MethodOptions, gather_knobs, knobs_of
from .m_admm import MADMM
from .method import Method
from .momentum import Momentum, SummedMomentumOptions
from .mr_admm import MRADMM
from .one_shot import Generalised, Objective, Output
from .pp_admm import PPADMM
from .prox import ProxADMM, ProxAverage
from .pvp import PVP
from .r_admm import RADMM
from .recipe import Recipe

METHODS = [
    Method(ADMM),
    Method(DVP),
    Method(PVP),
    Method(MADMM),
    Method(RADMM),
    Method(MRADMM),
    Method(PPADMM),
    Method(IPPADMM),
    Method(ProxADMM),
    Method(ProxAverage),
    Method(Momentum),
    Method(
        Momentum,
        "sum",
        "sum_momentum",
        {
            "paper": "ours",
            "releases": "every round, one sum over all sites",
            "summary": "gradient descent with momentum on sums that only the network sees, "
            "tail-averaged",
            "noise_law": "Gaussian, in shares, on sums of gradients",
            "recalls": False,
            "idle": ("rounds",),
            "options": SummedMomentumOptions(),
            "good_for": "three sites or more that trust sums; sites that differ; many small sites",
        },
    ),
    Method(
        ProxAverage,
        "sum",
        "sum_prox",
        {
            "releases": "every round, one sum over all sites",
            "summary": "proximal steps whose mean only the network sees, tail-averaged",
            "noise_law": "Gaussian, in shares, on sums of answers",
            "good_for": "three alike sites or more that trust sums",
        },
    ),
    Method(Output),
    Method(Objective),
    Method(Generalised),
    Method(DGD),
    Method(GradientTracking),
    Method(DPADMM),
    Method(
        Objective,
        "curator",
        "central",
        {
            "paper": "baseline",
            "forms": ("corrected",),
            "least_penalty": 0.00002,
            "noise_weight": 0.1,
            "summary": "objective perturbation of pooled rows at a trusted curator",
            "good_for": "comparisons: the accuracy that a trusted curator would allow",
        },
    ),
    Method(
        DGD,
        "curator",
        "central_gd",
        {
            "summary": "gradient descent with noisy gradients at a trusted curator",
            "good_for": "comparisons: the accuracy of a trusted curator, by gradients",
        },
    ),
    Method(CentralSGD, "curator"),
    Method(
        ProxAverage,
        "curator",
        "central_prox",
        {
            "paper": "baseline",
            "summary": "noisy proximal steps at a trusted curator, tail-averaged",
            "good_for": "comparisons: the accuracy of a trusted curator, by proximal steps",
        },
    ),
    Method(
        Momentum,
        "curator",
        "central_momentum",
        {
            "paper": "baseline",
            "summary": "gradient descent with momentum and noisy gradients at a trusted curator",
            "good_for": "comparisons: the accuracy of a trusted curator, by momentum",
        },
    ),
]
"""All pairs of a method and a trust.

The line with a method's own trust comes before its other lines; methods of other packages are
appended.
"""

REGISTRY: dict[str, type[Algorithm[Any]]] = {one.name: one.bound_class for one in METHODS}
"""The class of every pair of method and trust, by its published name ("sum_momentum").

:func:`name_under_trust` returns the name of a pair.
"""

# `Method.bound_class` makes a subclass for each further trust; pickle finds it by its name in this
# module.
globals().update(
    {one.bound_class.__name__: one.bound_class for one in METHODS if one.bound_class is not one.cls}
)

NAMES = list(dict.fromkeys(one.cls.name for one in METHODS))
"""Names of methods without the trust: "momentum" stands for "sum_momentum" too."""

ANSWERS = (
    "newton",
    "slopes",
    "least_squares",
    "components",
    "histogram",
    "confusion",
    "misses",
    "survey",
    "description",
    "hazards",
    "rates",
    "exits",
    "once",
)
"""Names of recipes in records of their runs (:mod:`sottovoce.answers`)."""

KNOWN: dict[str, type[Algorithm]] = REGISTRY | dict.fromkeys(ANSWERS, Recipe)  # type: ignore[type-arg]
"""The class for every name that a saved run may hold.

All names of :data:`ANSWERS` stand for :class:`Recipe`, the base of all recipes.
"""

KNOBS: dict[str, Knob] = gather_knobs(REGISTRY.values())
"""Knobs of all methods, by name."""


def trusts_of(name: str) -> dict[str, str]:
    """Return the trusts under which a method can run, with the name of the method under each.

    ``trusts_of("sum_momentum")`` has the keys "nobody", "sum" and "curator" and the values
    "momentum", "sum_momentum" and "central_momentum"; the method's own trust comes first.
    """
    (mine,) = (one.cls for one in METHODS if one.name == name)
    return {one.kind: one.name for one in METHODS if one.cls is mine}


def name_under_trust(name: str, trust: str) -> str:
    """Return the name of a method under a trust.

    ``name_under_trust("momentum", "sum")`` is "sum_momentum".

    Raises
    ------
    InvalidInput
        If the method cannot be run under this trust, or its name (as "sum_momentum") already
        implies another one.
    """
    name_by_trust, implied_trust = trusts_of(name), REGISTRY[name].trust.kind
    plain = next(iter(name_by_trust.values()))
    if name != plain and trust != implied_trust:
        rule = f"method {name!r} already means {plain!r} with trust={implied_trust!r}"
        raise InvalidInput("trust", trust, rule, f"leave trust out, or use method={plain!r}")
    if trust not in name_by_trust:
        others = ", ".join(one.cls.name for one in METHODS if one.kind == trust)
        rule = f"method {name!r} only runs with trust={' or '.join(map(repr, name_by_trust))}"
        raise InvalidInput(
            "trust", trust, rule, f"leave trust out, or use one of the methods {others}"
        )
    return name_by_trust[trust]


def equal_methods(name: str) -> tuple[str, ...]:
    """Return the names of the methods that make the same releases as this one, at their defaults.

    On the same seed results are the same bits if noise parameters have the same unit.  If not
    (`dvp` and `m_admm`), they differ by rounding and by what the search for the noise may leave
    unspent (:func:`sottovoce.privacy.calibration.tolerance_for`).
    """
    own = REGISTRY[name].equals
    return tuple(other for other, cls in REGISTRY.items() if other == own or cls.equals == name)


__all__ = [
    "ANSWERS",
    "KNOBS",
    "KNOWN",
    "METHODS",
    "NAMES",
    "REGISTRY",
    "Algorithm",
    "Knob",
    "Method",
    "MethodOptions",
    "Node",
    "Recipe",
    "equal_methods",
    "knobs_of",
    "name_under_trust",
    "trusts_of",
]
