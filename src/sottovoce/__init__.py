"""Train one linear classifier across sites that may not share their rows, with a privacy guarantee that is proved."""

from importlib.metadata import version as _version

from .errors import SottovoceError

# ESTIMATOR
from .simulate import Result, RunConfig
from .training import Report, TrainConfig, train

__version__ = _version("sottovoce")

__all__ = ["Report", "Result", "RunConfig", "SottovoceError", "TrainConfig", "__version__", "train"]
