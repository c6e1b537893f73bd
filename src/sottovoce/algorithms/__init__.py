"""Methods, one file each, and their registry.

A new method needs a file, a line here, a test and a page.

Those from outside the package come by :func:`sottovoce.runs.registering.register`.
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
            "good_for": "what trust in one party would buy",
        },
    ),
    Method(
        DGD,
        "curator",
        "central_gd",
        {
            "summary": "gradient descent with noisy gradients at a trusted curator",
            "good_for": "what trust in one party would buy, by gradients",
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
            "good_for": "what trust in one party would buy, by proximal steps",
        },
    ),
    Method(
        Momentum,
        "curator",
        "central_momentum",
        {
            "paper": "baseline",
            "summary": "gradient descent with momentum and noisy gradients at a trusted curator",
            "good_for": "what trust in one party would buy, by gradients with momentum",
        },
    ),
]
"""All pairs of a method and a trust: a method's own line first, methods from outside last."""

REGISTRY: dict[str, type[Algorithm[Any]]] = {one.name: one.bound_class for one in METHODS}
"""Methods by the names that records know; :func:`name_under_trust` finds that of a method and a
trust.
"""

# Classes that were made for a trust are attributes of this module, where pickle looks for them.
globals().update(
    {one.bound_class.__name__: one.bound_class for one in METHODS if one.bound_class is not one.cls}
)

NAMES = list(dict.fromkeys(one.cls.name for one in METHODS))
"""Names of methods, whatever the trust."""

ANSWERS = (
    "newton",
    "slopes",
    "least_squares",
    "components",
    "histogram",
    "confusion",
    "misses",
    "survey",
    "hazards",
    "once",
)
"""Names of recipes in records of their runs (:mod:`sottovoce.answers`)."""

KNOWN: dict[str, type[Algorithm]] = REGISTRY | dict.fromkeys(ANSWERS, Recipe)  # type: ignore[type-arg]
"""Methods by the names that records hold; for a recipe's name, the base of all recipes."""

KNOBS: dict[str, Knob] = gather_knobs(REGISTRY.values())
"""Knobs of all methods, by name."""


def trusts_of(name: str) -> dict[str, str]:
    """The trusts of a method, by kind, with the name of each pair; the method's own comes first."""
    (mine,) = (one.cls for one in METHODS if one.name == name)
    return {one.kind: one.name for one in METHODS if one.cls is mine}


def name_under_trust(name: str, trust: str) -> str:
    """The name of a method under a trust: ``name_under_trust("momentum", "sum")`` is
    "sum_momentum".

    Raises
    ------
    InvalidInput
        If the method cannot be run under this trust, or its name (as "sum_momentum") says another
        one.
    """
    known, says = trusts_of(name), REGISTRY[name].trust.kind
    plain = next(iter(known.values()))
    if name != plain and trust != says:
        rule = f"method {name!r} is {plain!r} under trust={says!r}"
        raise InvalidInput("trust", trust, rule, f"leave trust out, or use method={plain!r}")
    if trust not in known:
        others = ", ".join(one.cls.name for one in METHODS if one.kind == trust)
        rule = f"method {name!r} has trust={' or '.join(map(repr, known))}"
        raise InvalidInput(
            "trust", trust, rule, f"leave trust out, or use a method that has it: {others}"
        )
    return known[trust]


def equal_methods(name: str) -> tuple[str, ...]:
    """Names of the methods that make the same releases as this one, at the defaults of both.

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
