"""Methods, one file each, and their registry: a new method is a file, a line here, a test and a page."""

from .admm import ADMM
from .base import Algorithm, Site
from .dvp import DVP
from .mr_admm import MRADMM
from .r_admm import RADMM

REGISTRY: dict[str, type[Algorithm]] = {cls.name: cls for cls in (ADMM, DVP, RADMM, MRADMM)}  # type: ignore[type-arg]

__all__ = ["ADMM", "DVP", "MRADMM", "RADMM", "REGISTRY", "Algorithm", "Site"]
