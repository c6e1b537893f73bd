"""Methods, one file each, and their registry: a new method needs a file, a line here, a test and a page."""

from .admm import ADMM
from .base import Algorithm, Node
from .central import Central, CentralMomentum
from .dvp import DVP
from .gradient import DGD, CentralGD, CentralSGD
from .ipp_admm import IPPADMM
from .knobs import Knob, gather, knobs_of
from .m_admm import MADMM
from .momentum import Momentum
from .mr_admm import MRADMM
from .one_shot import Generalised, Objective, Output
from .pp_admm import PPADMM
from .prox import CentralProx, ProxADMM, ProxAverage
from .pvp import PVP
from .r_admm import RADMM
from .recipe import Recipe
from .sums import SumMomentum, SumProx

REGISTRY: dict[str, type[Algorithm]] = {  # type: ignore[type-arg]
    cls.name: cls
    for cls in (
        *(ADMM, DVP, PVP, MADMM, RADMM, MRADMM, PPADMM, IPPADMM),
        *(ProxADMM, ProxAverage, Momentum),
        *(SumMomentum, SumProx),
        *(Output, Objective, Generalised),
        *(DGD, Central, CentralGD, CentralSGD, CentralProx, CentralMomentum),
    )
}

ANSWERS = ("newton", "slopes", "least_squares", "components", "histogram", "confusion", "misses", "once")
"""Names of recipes (:mod:`sottovoce.answers`): records of their runs hold them, and users do not choose them."""

KNOWN: dict[str, type[Algorithm]] = REGISTRY | dict.fromkeys(ANSWERS, Recipe)  # type: ignore[type-arg]
"""By all names that records of runs hold; for a recipe's, what all recipes have in common."""

KNOBS: dict[str, Knob] = gather(REGISTRY.values())
"""What users may set on methods, by name: all fields of methods that are declared as knobs."""


def same_as(name: str) -> tuple[str, ...]:
    """The methods that are declared to be the same as this one, at the defaults of both.

    They make the same releases, with the same noise, on the same seed.  Where their noise parameters have the same
    unit, results are the same bits.  Where not (`dvp` and `m_admm`), they differ by rounding and by what the search for
    the noise may leave unspent (:func:`sottovoce.runs.calibration.closeness`).

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.

    Returns
    -------
    tuple of str
        In the order of `REGISTRY`; empty for most methods.
    """
    own = REGISTRY[name].equals
    return tuple(other for other, cls in REGISTRY.items() if other == own or cls.equals == name)


__all__ = ["ANSWERS", "KNOBS", "KNOWN", "REGISTRY", "Algorithm", "Knob", "Node", "Recipe", "knobs_of", "same_as"]
