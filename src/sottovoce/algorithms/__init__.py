"""Methods, one file each, and their registry: a new method needs a file, a line here, a test and a page."""

from .admm import ADMM
from .base import Algorithm, Node
from .central import Central
from .dvp import DVP
from .gradient import DGD, CentralGD, CentralSGD
from .ipp_admm import IPPADMM
from .knobs import Knob, gather, knobs_of
from .m_admm import MADMM
from .momentum import CentralMomentum, Momentum
from .mr_admm import MRADMM
from .one_shot import Generalised, Objective, Output
from .pp_admm import PPADMM
from .prox import ProxADMM, ProxAverage
from .pvp import PVP
from .r_admm import RADMM

REGISTRY: dict[str, type[Algorithm]] = {  # type: ignore[type-arg]
    cls.name: cls
    for cls in (
        *(ADMM, DVP, PVP, MADMM, RADMM, MRADMM, PPADMM, IPPADMM),
        *(ProxADMM, ProxAverage, Momentum),
        *(Output, Objective, Generalised),
        *(DGD, Central, CentralGD, CentralSGD, CentralMomentum),
    )
}

KNOBS: dict[str, Knob] = gather(REGISTRY.values())
"""What users may set on methods, by name: all fields of methods that are declared as knobs."""

__all__ = ["KNOBS", "REGISTRY", "Algorithm", "Knob", "Node", "knobs_of"]
