"""Train one linear classifier across sites that may not share their rows, with a privacy guarantee that is proved."""

from importlib.metadata import version as _version

from .errors import SottovoceError
from .estimators import ConsensusClassifier, PrivateClassifier
from .ledger.durable import DurableLedger
from .ledger.memory import Ledger
from .runs.simulate import Result, RunConfig
from .runs.training import Report, TrainConfig, train

__version__ = _version("sottovoce")

__all__ = [
    "ConsensusClassifier",
    "DurableLedger",
    "Ledger",
    "PrivateClassifier",
    "Report",
    "Result",
    "RunConfig",
    "SottovoceError",
    "TrainConfig",
    "__version__",
    "train",
]
